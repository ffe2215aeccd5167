//! The lines of a log as other systems write them: with a byte order mark, with any of the three ends of a line, with bytes
//! that are not UTF-8, with numbers that JSON does not have, and cut off in the middle.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{ImportError, LONGEST_LINE};
use crate::bundle::Unique;

/// A line that was read.
pub(super) enum Line {
    /// A JSON object.
    Object(Map<String, Value>),
    /// The beginning of a JSON object: the rest is missing.
    Torn,
    /// Other text.
    Other(ImportError),
}

/// Returns the lines that are not empty, with their numbers. A line ends with LF, CR or CRLF.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = Some(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes));
    let lines = std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            return rest.take();
        };
        let next = if text[end..].starts_with(b"\r\n") { end + 2 } else { end + 1 };
        rest = Some(&text[next..]);
        Some(&text[..end])
    });
    (1..).zip(lines).filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// Reads a line as a JSON object in which no key occurs twice. Bytes that are not UTF-8 become U+FFFD, and numbers that are
/// not finite become null, so only a rule that uses such a field misses it.
pub(super) fn read(line: &[u8]) -> Line {
    if line.len() > LONGEST_LINE {
        return Line::Other(ImportError::new(
            format!("the line has {} bytes, but lines have at most {LONGEST_LINE}", line.len()),
            "omit fields that the import does not need",
        ));
    }
    let text = String::from_utf8_lossy(line);
    let error = match parse(&text) {
        Ok(read) => return read,
        Err(error) => error,
    };
    let error = match finite(&text) {
        Cow::Owned(finite) => match parse(&finite) {
            Ok(read) => return read,
            Err(error) => error,
        },
        Cow::Borrowed(_) => error,
    };
    match error.is_eof() && text.trim_start().starts_with('{') {
        true => Line::Torn,
        false => Line::Other(ImportError::new(
            format!("the line is not JSON: {}", crate::printable(&error.to_string())),
            "write one JSON object per line",
        )),
    }
}

fn parse(text: &str) -> serde_json::Result<Line> {
    Ok(match serde_json::from_str(text).map(|Unique(value)| value)? {
        Value::Object(columns) => Line::Object(columns),
        _ => {
            let help = "write one JSON object per line";
            Line::Other(ImportError::new("the line is not a JSON object", help))
        }
    })
}

/// Replaces the words with which some languages write numbers that are not finite by null, except in texts.
fn finite(text: &str) -> Cow<'_, str> {
    let mut changed = String::new();
    let (mut kept, mut at) = (0, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    while at < text.len() {
        let byte = text.as_bytes()[at];
        if is_text {
            is_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
        } else if byte == b'"' {
            is_text = true;
        } else if let Some(word) =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|it| starts(text, at, it))
        {
            changed += &text[kept..at];
            changed += "null";
            at += word.len();
            kept = at;
            continue;
        }
        at += 1;
    }
    match changed.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(changed + &text[kept..]),
    }
}

fn starts(text: &str, at: usize, word: &str) -> bool {
    text.as_bytes()[at..].starts_with(word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(line: &[u8]) -> Option<Map<String, Value>> {
        match read(line) {
            Line::Object(columns) => Some(columns),
            Line::Torn | Line::Other(_) => None,
        }
    }

    #[test]
    fn every_end_of_a_line_ends_it() {
        for text in ["a\nb\n", "a\r\nb\r\n", "a\rb", "\u{feff}a\n\r\nb"] {
            let all: Vec<&[u8]> = lines(text.as_bytes()).map(|it| it.1).collect();
            assert_eq!(all, [b"a", b"b"], "{text:?}");
        }
        let numbers: Vec<u64> = lines(b"a\r\n\r\nb").map(|it| it.0).collect();
        assert_eq!(numbers, [1, 3]);
    }

    #[test]
    fn numbers_that_are_not_finite_are_null() {
        let read = object(br#"{"a":NaN,"b":[-Infinity,Infinity],"c":"NaN \" NaN","d":1}"#).unwrap();
        let expected = serde_json::json!({ "a": null, "b": [null, null], "c": "NaN \" NaN", "d": 1 });
        assert_eq!(Value::Object(read), expected);
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        let read = object(b"{\"a\":\"\xff\",\"b\":1}").unwrap();
        assert_eq!((read["a"].as_str(), read["b"].as_u64()), (Some("\u{fffd}"), Some(1)));
    }

    #[test]
    fn a_line_that_is_cut_off_is_torn() {
        for torn in [&b"{\"a\":1"[..], b"{", b"{\"a\":\"\xe2\x82", b"  {\"a\":NaN,"] {
            assert!(matches!(read(torn), Line::Torn), "{}", String::from_utf8_lossy(torn));
        }
        for other in [&b"{\"a\":1}}"[..], b"[1,", b"text", b"{\"a\":1,\"a\":2}", b"{a:1}"] {
            assert!(matches!(read(other), Line::Other(_)), "{}", String::from_utf8_lossy(other));
        }
    }
}
