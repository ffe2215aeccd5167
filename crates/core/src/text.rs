//! Text of any form and length, such as the message of a panic, as it is quoted in a sentence.

use alloc::string::String;
use alloc::vec::Vec;

/// Returns the beginning of a text as one line of at most `most` characters. Line breaks and other control characters
/// become spaces, and an ellipsis replaces what is left out.
pub fn one_line(text: &str, most: usize) -> String {
    let parts: Vec<&str> = text.split(char::is_control).filter(|it| !it.is_empty()).collect();
    let mut line = parts.join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_text_becomes_one_short_line() {
        assert_eq!(one_line("left: 1\r\n right:\t2\n", 20), "left: 1  right: 2");
        assert_eq!(one_line("µµµ", 3), "µµµ");
        assert_eq!(one_line("µµ\nµ", 3), "µµ …");
        assert_eq!(one_line("", 3), "");
    }
}
