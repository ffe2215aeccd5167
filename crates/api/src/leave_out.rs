//! Leaves parts of a document out, so that the mistakes in the rest of it can be found as well.
//!
//! A part is overwritten with spaces, so all other parts keep their places in the text.

use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser};

/// A field of a map with its value, or an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path of the value, such as `spec.faults[2].at`.
    pub(crate) path: String,
    /// The bytes from the key, or from the item, to the end of the value.
    bytes: Range<usize>,
    /// Whether the map or list is written in braces or brackets.
    is_in_flow: bool,
    /// Whether this is an item of a list.
    is_item: bool,
}

/// A list or a map that is being parsed.
struct Open {
    path: String,
    is_flow: bool,
    /// The number of the next item of a list; `None` for a map.
    next: Option<usize>,
    /// The key whose value follows, with its first byte.
    key: Option<(String, usize)>,
    /// The first byte.
    start: usize,
}

/// Returns the innermost entry of the first document of `text` that contains the byte `at`; `None` if there is none.
pub(crate) fn entry_at(text: &str, at: usize) -> Option<Entry> {
    let all = entries(text).into_iter().filter(|it| it.bytes.contains(&at));
    all.min_by_key(|it| it.bytes.len())
}

/// Overwrites an entry with spaces.
pub(crate) fn without(text: &str, entry: &Entry) -> String {
    let bytes = text.as_bytes();
    let (mut start, mut end) = (entry.bytes.start, entry.bytes.end.min(bytes.len()));
    let is_blank = |at: &usize| bytes[*at].is_ascii_whitespace();
    if entry.is_in_flow {
        // A comma separates it from the next entry or, if it is the last one, from the one before.
        let after = (end..bytes.len()).find(|at| !is_blank(at)).filter(|at| bytes[*at] == b',');
        let before = (0..start).rev().find(|at| !is_blank(at)).filter(|at| bytes[*at] == b',');
        match (after, before) {
            (Some(after), _) => end = after + 1,
            (None, Some(before)) => start = before,
            (None, None) => {}
        }
    } else if entry.is_item {
        start = (0..start).rev().find(|at| !is_blank(at)).filter(|at| bytes[*at] == b'-').unwrap_or(start);
    }
    let mut left = bytes.to_vec();
    left[start.min(end)..end].iter_mut().filter(|it| **it != b'\n').for_each(|it| *it = b' ');
    // Whole characters were overwritten, because entries and commas begin and end with characters.
    String::from_utf8(left).unwrap_or_else(|_| text.to_owned())
}

/// Returns all entries of the first document. If the text is not valid YAML, those before the first error.
fn entries(text: &str) -> Vec<Entry> {
    let (mut entries, mut open, mut last_end) = (Vec::new(), Vec::<Open>::new(), 0);
    for next in Parser::new_from_str(text) {
        let Ok((event, span)) = next else { break };
        let bytes = span.byte_range().unwrap_or_default();
        match event {
            Event::DocumentEnd => break,
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                let path = path_of_next(open.last());
                let is_flow = text.get(bytes.start..).is_some_and(|it| it.starts_with(['{', '[']));
                let next = matches!(event, Event::SequenceStart(..)).then_some(0);
                open.push(Open { path, is_flow, next, key: None, start: bytes.start });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                let Some(closed) = open.pop() else { break };
                // The end of a list or map without brackets has no place of its own.
                let end = if closed.is_flow { bytes.end } else { last_end };
                last_end = end;
                entries.extend(open.last_mut().and_then(|it| it.end_value(closed.start..end)));
            }
            Event::Scalar(value, ..) => {
                last_end = bytes.end;
                match open.last_mut() {
                    Some(it) if it.next.is_none() && it.key.is_none() => {
                        it.key = Some((value.into_owned(), bytes.start));
                    }
                    it => entries.extend(it.and_then(|it| it.end_value(bytes))),
                }
            }
            Event::Alias(_) => {
                last_end = bytes.end;
                entries.extend(open.last_mut().and_then(|it| it.end_value(bytes)));
            }
            _ => {}
        }
    }
    entries
}

/// Returns the path of the value that follows in this list or map.
fn path_of_next(open: Option<&Open>) -> String {
    match open {
        None => String::new(),
        Some(Open { path, next: Some(next), .. }) => format!("{path}[{next}]"),
        Some(Open { path, key: Some((key, _)), .. }) if path.is_empty() => key.clone(),
        Some(Open { path, key: Some((key, _)), .. }) => format!("{path}.{key}"),
        Some(Open { path, .. }) => path.clone(),
    }
}

impl Open {
    /// Returns the entry whose value has ended.
    fn end_value(&mut self, value: Range<usize>) -> Option<Entry> {
        let path = path_of_next(Some(self));
        let (start, is_item) = match (&mut self.next, self.key.take()) {
            (Some(next), _) => {
                *next += 1;
                (value.start, true)
            }
            (None, Some((_, start))) => (start, false),
            (None, None) => return None,
        };
        Some(Entry { path, bytes: start..value.end.max(start), is_in_flow: self.is_flow, is_item })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
spec:
  clusters: [{ name: é, nodes: 3 }, { name: b, wrong: [1, { c: 2 }] }, d]
  application:
    system:
      command: [run]
      probe: { up: { by: b } }   # a comment
  faults:
    - at: 4s
      crash:
        cluster: a
    - kill: a
  text: |
    more
    lines
";

    /// Leaves out the entry at which this part of the text begins. Returns its path and the lines that change.
    fn left_out(part: &str) -> (String, Vec<String>) {
        let entry = entry_at(TEXT, TEXT.find(part).expect("the text contains it")).expect("it is an entry");
        let left = without(TEXT, &entry);
        assert_eq!(left.len(), TEXT.len());
        let changed = TEXT.lines().zip(left.lines()).filter(|(before, after)| before != after);
        (entry.path, changed.map(|(_, after)| after.trim().to_owned()).collect())
    }

    #[test]
    fn fields_and_items_are_left_out_with_their_commas() {
        let (path, left) = left_out("wrong");
        assert_eq!(path, "spec.clusters[1].wrong");
        assert_eq!(left[0].split_whitespace().collect::<String>(), "clusters:[{name:é,nodes:3},{name:b},d]");
        let (path, left) = left_out("name: é");
        assert_eq!(path, "spec.clusters[0].name");
        assert!(
            left[0].split_whitespace().collect::<String>().starts_with("clusters:[{nodes:3},"),
            "{left:?}"
        );
        let (path, left) = left_out("d]");
        assert_eq!(path, "spec.clusters[2]");
        assert!(left[0].split_whitespace().collect::<String>().ends_with("}]"), "{left:?}");
        assert_eq!(left_out("probe"), ("spec.application.system.probe".into(), vec!["# a comment".into()]));
        assert_eq!(left_out("kill"), ("spec.faults[1].kill".into(), vec!["-".into()]));
        assert_eq!(left_out("crash"), ("spec.faults[0].crash".into(), vec![String::new(); 2]));
        let (path, left) = left_out("text: |");
        assert_eq!((path.as_str(), left.len()), ("spec.text", 3), "{left:?}");
    }
}
