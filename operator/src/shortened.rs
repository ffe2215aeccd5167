//! Texts that the API server limits.

/// Truncates `text` to at most `most` bytes.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    const CUT: &str = " …";
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end])
}
