//! Locations of values in a document, by paths such as `spec.faults[2].at`.
//!
//! The resource types carry no positions, because objects from an API server have none. After a document has been
//! parsed successfully, this module therefore parses its events once more and records the location of each path.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser};

/// Locations of the values in a document, by path.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    /// Bytes of a scalar. For a list or map, which may span many lines, the bytes of its key or, without a key, of its
    /// first line.
    places: BTreeMap<String, Range<usize>>,
    /// Path of the map that contains a key, by the offset of the key's first byte.
    parents: BTreeMap<usize, String>,
    /// The byte at which the text stops being valid YAML.
    invalid: Option<usize>,
}

/// A list or map that is being parsed.
enum Open {
    List { path: String, next: usize },
    Map { path: String, key: Option<(String, Range<usize>)> },
}

impl Locations {
    /// Parses the first document of `text`. If the text is not valid YAML, values after the first error have no
    /// location.
    pub(crate) fn of(text: &str) -> Locations {
        let (mut places, mut parents, mut invalid) = (BTreeMap::new(), BTreeMap::new(), None);
        let mut open: Vec<Open> = Vec::new();
        for next in Parser::new_from_str(text) {
            let (event, span) = match next {
                Ok(next) => next,
                Err(error) => {
                    invalid = Some(byte_of(text, error.marker().index()));
                    break;
                }
            };
            let bytes = span.byte_range().unwrap_or_default();
            match event {
                Event::DocumentEnd => break,
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                }
                Event::Scalar(text, ..) => {
                    if let Some(Open::Map { path, key: key @ None }) = open.last_mut() {
                        parents.insert(bytes.start, path.clone());
                        *key = Some((text.into_owned(), bytes));
                    } else {
                        let (path, _) = enter(&mut open);
                        places.insert(path, bytes);
                    }
                }
                Event::Alias(_) => {
                    let (path, _) = enter(&mut open);
                    places.insert(path, bytes);
                }
                Event::SequenceStart(..) => {
                    let (path, key) = enter(&mut open);
                    places.insert(path.clone(), key.unwrap_or(first_line(text, bytes)));
                    open.push(Open::List { path, next: 0 });
                }
                Event::MappingStart(..) => {
                    let (path, key) = enter(&mut open);
                    places.insert(path.clone(), key.unwrap_or(first_line(text, bytes)));
                    open.push(Open::Map { path, key: None });
                }
                _ => {}
            }
        }
        Locations { places, parents, invalid }
    }

    /// Returns the location of the map that contains the key at byte `at`; `None` if there is no such key.
    pub(crate) fn around(&self, at: usize) -> Option<Range<usize>> {
        self.parents.get(&at).map(|path| self.find(path))
    }

    /// Returns the byte at which the text stops being valid YAML; `None` if all of it is valid.
    pub(crate) fn invalid(&self) -> Option<usize> {
        self.invalid
    }

    /// Returns the path of the value at byte `at`; `None` if no value begins there.
    pub(crate) fn path_at(&self, at: usize) -> Option<&str> {
        self.places.iter().find(|(_, place)| place.start == at).map(|(path, _)| path.as_str())
    }

    /// Returns the location of a key named `key` in a map that contains the map at `path`, directly or not.
    pub(crate) fn outside(&self, text: &str, path: &str, key: &str) -> Option<usize> {
        let is_outer = |outer: &str| path.strip_prefix(outer).is_some_and(|rest| !rest.is_empty());
        let named = |at: usize| {
            let rest = text.get(at..).and_then(|it| it.trim_start_matches(['"', '\'']).strip_prefix(key));
            rest.is_some_and(|it| it.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
        };
        self.parents.iter().find(|(at, parent)| is_outer(parent) && named(**at)).map(|(at, _)| *at)
    }

    /// Returns the last location in the text that ends at or before byte `at`; `None` if there is none.
    pub(crate) fn before(&self, at: usize) -> Option<Range<usize>> {
        self.places.values().filter(|it| it.end <= at).max_by_key(|it| it.end).cloned()
    }

    /// Returns the location of each scalar and key, with the path of its value.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let keys = self.parents.iter().map(|(&at, path)| (path.as_str(), at..at));
        self.places.iter().map(|(path, place)| (path.as_str(), place.clone())).chain(keys)
    }

    /// Returns the location of `path`, or of its nearest ancestor in the text.
    pub(crate) fn find(&self, path: &str) -> Range<usize> {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return place.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.places.get("").cloned().unwrap_or(0..0),
            }
        }
    }
}

/// Enters the next value. Returns its path, and the location of its key if it has one.
fn enter(open: &mut [Open]) -> (String, Option<Range<usize>>) {
    match open.last_mut() {
        None => (String::new(), None),
        Some(Open::List { path, next }) => {
            *next += 1;
            (format!("{path}[{}]", *next - 1), None)
        }
        Some(Open::Map { path, key }) => match key.take() {
            Some((key, place)) if path.is_empty() => (key, Some(place)),
            Some((key, place)) => (format!("{path}.{key}"), Some(place)),
            // A key that is itself a list or a map: no resource has one.
            None => (path.clone(), None),
        },
    }
}

/// Returns the byte at which the character with this index begins.
fn byte_of(text: &str, index: usize) -> usize {
    text.char_indices().nth(index).map_or(text.len(), |(at, _)| at)
}

/// Returns the rest of the line on which `bytes` starts, without trailing whitespace.
fn first_line(text: &str, bytes: Range<usize>) -> Range<usize> {
    let rest = &text[bytes.start..];
    let line = rest.split('\n').next().unwrap_or_default();
    bytes.start..bytes.start + line.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
spec:
  clusters: [{ name: paris, nodes: 3 }, {name: \"rennes\"}]
  base: &base { a: 1 }
  faults:
    - at: 4s
      crash: { cluster: é, node: 1 }
    - copy: *base
";

    fn at(path: &str) -> &'static str {
        &TEXT[Locations::of(TEXT).find(path)]
    }

    #[test]
    fn values_and_keys_are_found() {
        assert_eq!(at("spec.clusters[0].nodes"), "3");
        assert_eq!(at("spec.clusters[1].name"), "\"rennes\"");
        assert_eq!(at("spec.faults[0].at"), "4s");
        assert_eq!(at("spec.faults[0].crash.cluster"), "é");
        assert_eq!(at("spec.faults[0].crash.node"), "1");
        assert_eq!(at("spec.faults[0].crash"), "crash");
        assert_eq!(at("spec.faults"), "faults");
        assert_eq!(at("spec.faults[0]"), "at: 4s");
        assert_eq!(at("spec.faults[1].copy"), "*base");
    }

    #[test]
    fn neighbours_are_found() {
        let locations = Locations::of(TEXT);
        let at = |part: &str| TEXT.find(part).expect("the text contains it");
        assert_eq!(locations.around(at("cluster: é")).map(|it| &TEXT[it]), Some("crash"));
        assert_eq!(locations.around(at("at: 4s")).map(|it| &TEXT[it]), Some("at: 4s"));
        assert_eq!(locations.around(at("4s")), None);
        assert_eq!(locations.before(at("crash")).map(|it| &TEXT[it]), Some("4s"));
    }

    #[test]
    fn absent_values_are_located_at_their_parent() {
        assert_eq!(at("spec.faults[0].crash.storage"), "crash");
        assert_eq!(at("spec.faults[1].copy.a"), "*base");
        assert_eq!(at("spec.deadline"), "spec");
        assert_eq!(at("elsewhere"), "spec:");
        assert_eq!(Locations::of("").find("spec"), 0..0);
    }
}
