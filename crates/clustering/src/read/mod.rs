//! Readers for graphs in public formats. They refuse what they do not understand, and name the line.
//!
//! *Edge list*: one line per channel, `from to bytes` or `from to bytes messages`, separated by spaces and tabs, by commas
//! or by semicolons. All lines have the same separator and number of fields. A line with a single field names a process,
//! which may have no traffic. A line that begins with `#` is a comment; between spaces, text after `#` is, too. The first
//! line with several fields may name the columns. Between commas and semicolons, a field may be quoted (RFC 4180).
//! Processes are in the order of their first mention.
//!
//! *METIS*: `processes edges [format]` on the first line, then one line per process with its neighbours, counted from
//! one. Each is followed by the weight of the edge if the format ends in `1`. Lines that begin with `%` are comments.
//! Each edge appears twice, once for each end. Several edges between two processes add up.
//!
//! Numbers may be written with a fraction of zero or with an exponent. A byte order mark is not part of the text, and a
//! line ends with LF, CR or CRLF.

mod edge_list;
mod metis;
mod number;

use std::borrow::Cow;

use thiserror::Error;

use crate::graph::{CommunicationGraph, TooMuchTraffic};
pub use number::NumberError;

/// The maximum length of a quotation in an error, in characters.
const MAX_QUOTE: usize = 60;

/// The file format of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFormat {
    /// One line per channel.
    EdgeList,
    /// The graph format of METIS.
    Metis,
}

/// The reason why text cannot be read as a graph. Lines are counted from 1. Quotations are shortened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The file is not text.
    #[error("line {line}: the file is not UTF-8 text; save it as UTF-8")]
    NotText {
        /// The number of the line.
        line: usize,
    },
    /// The text is empty.
    #[error("the file contains no processes")]
    Empty,
    /// A line of an edge list has the wrong number of fields.
    #[error(
        "line {line} has {fields} fields; write the name of a process, `from to bytes`, or `from to bytes messages`"
    )]
    Fields {
        /// The number of the line.
        line: usize,
        /// The number of fields in the line.
        fields: usize,
    },
    /// A line of an edge list has another number of fields than the header or the first channel.
    #[error("line {line} has {fields} fields instead of {stated}; write all channels with the same fields")]
    Stated {
        /// The number of the line.
        line: usize,
        /// The number of fields in the line.
        fields: usize,
        /// The number of fields in the header or the first channel.
        stated: usize,
    },
    /// A line of an edge list has two kinds of separators.
    #[error(
        "line {line} separates fields both with `{found}` and with other characters; use one separator, and write 1000, \
         not 1,000"
    )]
    Mixed {
        /// The number of the line.
        line: usize,
        /// One of the separators.
        found: char,
    },
    /// A name contains a character that is probably meant as a separator.
    #[error(
        "line {line} contains `{found}`, which separates no fields in this file; separate all fields with spaces, commas \
         or semicolons, and write names that contain such a character in quotes, between commas"
    )]
    Separator {
        /// The number of the line.
        line: usize,
        /// The character.
        found: char,
    },
    /// The name of a process is missing.
    #[error("line {line}: the name of a process is missing; write `from`, `to` and `bytes`")]
    NoName {
        /// The number of the line.
        line: usize,
    },
    /// Quotes do not enclose a whole field.
    #[error(
        "line {line}: the quotes do not enclose a whole field; write `\"` inside a field as `\"\"`, within quotes"
    )]
    Quotes {
        /// The number of the line.
        line: usize,
    },
    /// A header has a column with an unknown meaning, or two with the same.
    #[error(
        "line {line}: the column `{column}` is unknown or appears twice; keep only `from`, `to`, `bytes` and `messages`"
    )]
    Column {
        /// The number of the line.
        line: usize,
        /// The name of the column.
        column: String,
    },
    /// A header has no column with the bytes.
    #[error("line {line}: there is no column `bytes`; add it")]
    NoBytes {
        /// The number of the line.
        line: usize,
    },
    /// A word should be a number but is not.
    #[error("line {line}: `{word}` {why}")]
    Number {
        /// The number of the line.
        line: usize,
        /// The word found there.
        word: String,
        /// The reason.
        why: NumberError,
    },
    /// The numbers of bytes or messages are too large.
    #[error("line {line}: {why}")]
    Traffic {
        /// The number of the line.
        line: usize,
        /// The reason.
        why: TooMuchTraffic,
    },
    /// A METIS file does not begin with a header.
    #[error(
        "line {line} is not the header of a METIS file; write `processes edges`, or `processes edges 001` with weights"
    )]
    Header {
        /// The number of the line.
        line: usize,
    },
    /// A METIS file assigns weights to processes; such weights have no meaning here.
    #[error(
        "line {line}: the format `{format}` is not supported; use 000 without weights, or 001 with weights of edges"
    )]
    Format {
        /// The number of the line.
        line: usize,
        /// The format in the header.
        format: String,
    },
    /// The number of lines in a METIS file differs from the number of processes.
    #[error("the header gives {stated} as the number of processes, but the file has lines for {found}")]
    Lines {
        /// The number of processes in the header.
        stated: usize,
        /// The number of lines after the header.
        found: usize,
    },
    /// The number of edges in a METIS file differs from the one in the header.
    #[error(
        "line {line}: the header gives {stated} as the number of edges, but the lines contain {found}; count each edge \
         once"
    )]
    Edges {
        /// The number of the line.
        line: usize,
        /// The number of edges in the header.
        stated: u64,
        /// The number of edges in the lines.
        found: u64,
    },
    /// A neighbour does not exist.
    #[error("line {line} names neighbour {neighbour}; use numbers from 1 to {processes}")]
    Neighbour {
        /// The number of the line.
        line: usize,
        /// The number of the neighbour, counted from 1.
        neighbour: u64,
        /// The number of processes.
        processes: usize,
    },
    /// A process of a METIS file is its own neighbour.
    #[error("line {line}: an edge leads from a process to itself; remove it")]
    Itself {
        /// The number of the line.
        line: usize,
    },
    /// The weight of an edge is missing.
    #[error("line {line} ends with a neighbour that has no weight")]
    Weight {
        /// The number of the line.
        line: usize,
    },
    /// An edge of a METIS file does not appear at both ends with the same weight.
    #[error(
        "line {line}: the edge to {neighbour} is missing from that process's line, or has a different weight there"
    )]
    Lopsided {
        /// The number of the line.
        line: usize,
        /// The other end of the edge.
        neighbour: usize,
    },
}

/// Reads a graph from a file in this format.
///
/// # Errors
///
/// Returns a [`ReadError`] that names the problem and, where possible, its line.
pub fn read(bytes: &[u8], format: GraphFormat) -> Result<CommunicationGraph, ReadError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        ReadError::NotText { line: 1 + before.iter().filter(|it| **it == b'\n').count() }
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = match text.contains('\r') {
        true => text.replace("\r\n", "\n").replace('\r', "\n").into(),
        false => Cow::Borrowed(text),
    };
    match format {
        GraphFormat::EdgeList => edge_list::read(&text),
        GraphFormat::Metis => metis::read(&text),
    }
}

fn number(word: &str, line: usize) -> Result<u64, ReadError> {
    number::whole(word).map_err(|why| ReadError::Number { line, word: quoted(word), why })
}

/// Returns the beginning of a text, as quoted in an error.
fn quoted(text: &str) -> String {
    let mut quote: String = text.chars().take(MAX_QUOTE).collect();
    if quote.len() < text.len() {
        quote.push('…');
    }
    quote
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the error for a text that must be refused.
    pub(super) fn refusal(text: &str, format: GraphFormat) -> String {
        read(text.as_bytes(), format).expect_err("the text must be refused").to_string()
    }

    #[test]
    fn what_is_not_text_is_refused() {
        assert_eq!(refusal("# nothing\n", GraphFormat::EdgeList), "the file contains no processes");
        let error = read(b"a b 5\nb\xff c 5\n", GraphFormat::EdgeList).unwrap_err().to_string();
        assert_eq!(error, "line 2: the file is not UTF-8 text; save it as UTF-8");
    }

    #[test]
    fn every_end_of_a_line_ends_it() {
        let plain = "p q 10\nq r 4\n";
        for end in ["\r\n", "\r"] {
            let other = plain.replace('\n', end);
            let [one, other] = [plain, &other].map(|it| read(it.as_bytes(), GraphFormat::EdgeList).unwrap());
            assert_eq!(one, other, "{end:?}");
        }
        assert!(refusal("p q 10\rq r x\r", GraphFormat::EdgeList).starts_with("line 2"));
    }

    #[test]
    fn an_error_about_a_long_line_is_short() {
        let long = "x".repeat(1 << 20);
        for format in [GraphFormat::EdgeList, GraphFormat::Metis] {
            for text in [format!("a b {long}"), format!("2 1\n{long}\n1"), format!("<{long}/>")] {
                if let Err(error) = read(text.as_bytes(), format) {
                    assert!(error.to_string().len() < 1000, "{format:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            for format in [GraphFormat::EdgeList, GraphFormat::Metis] {
                let _ = read(&bytes, format);
            }
        }
    }
}
