//! Flaws in the evidence of a run: facts that are missing, or that cannot be shown to be complete.

use std::fmt;

use faultline_core::{FactNo, Life, ProcessId};

use crate::manifest::FactsEntry;

/// One flaw in the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The stream concerned; `None` if the flaw concerns no particular stream.
    pub stream: Option<(ProcessId, Life)>,
    /// The kind of flaw.
    pub kind: FlawKind,
}

/// Kinds of flaws in a stream, or in the description of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlawKind {
    /// The manifest lists the stream, but its file does not exist.
    Absent,
    /// The file cannot be read as a facts file.
    Unreadable(String),
    /// The record of this fact is damaged, or the fact never arrived although later ones did. The stream ends before
    /// it.
    Gap(FactNo),
    /// No run of this federation can contain this fact: it names a process or a cluster that does not exist, reports that
    /// more tasks were spawned than fit in memory, or is of a kind that only the supervisor, or only a process, reports.
    /// The stream ends before it.
    Impossible(FactNo),
    /// The file ends in the middle of a record or of its seal, after this many facts.
    Torn(u64),
    /// The file ends without a seal, after this many facts.
    Unsealed(u64),
    /// The seal at the end does not match the bytes of the file.
    BrokenSeal {
        /// The number of facts according to the seal.
        sealed: u64,
        /// The number of facts in the file.
        found: u64,
    },
    /// The file continues after the seal.
    AfterSeal,
    /// The supervisor sealed the facts that it had received, and does not know whether any are missing.
    Incomplete(u64),
    /// The manifest does not list the stream.
    Unlisted,
    /// The manifest lists the stream with a different length or seal.
    Unlike {
        /// The stream according to the manifest.
        listed: Box<FactsEntry>,
        /// The stream according to its file.
        found: Box<FactsEntry>,
    },
    /// According to its name, the file contains the facts of another life.
    Misnamed(String),
    /// A second file contains the facts of this life.
    Twice(String),
    /// The directory of facts contains a file whose name does not denote a life.
    Stranger(String),
    /// This fact has an earlier time than its predecessor in the stream.
    TimeGoesBack(FactNo),
    /// From this fact on, the stream differs from that of a repeated simulation.
    NotRepeated(FactNo),
    /// The manifest has no digest.
    NoDigest,
    /// `manifest.json` or `federation.yaml` has changed since it was written.
    Edited,
    /// The lines of imported events are not numbered, so missing ones cannot be detected.
    Unnumbered,
    /// Imported events have no last line that states how the run ended.
    NoEnd,
    /// The last line of imported events counts more or fewer events than there are.
    EventsMissing {
        /// The number of events according to the last line.
        counted: u64,
        /// The number of events found.
        found: u64,
    },
    /// Lines of imported events are cut off or otherwise damaged.
    Damaged {
        /// The number of the first such line.
        first: u64,
        /// The number of such lines.
        lines: u64,
    },
    /// Two parts of the record contradict each other: the manifest and the federation, for example, or two facts.
    /// Contains a sentence that explains the contradiction.
    Contradiction(String),
}

impl Flaw {
    /// Returns whether the flaw concerns this stream.
    pub fn concerns(&self, process: ProcessId, life: Life) -> bool {
        self.stream == Some((process, life))
    }

    /// Returns whether the flaw shows that the record was changed after the run. All other flaws may mean only that facts
    /// are missing.
    pub fn is_change(&self) -> bool {
        matches!(
            self.kind,
            FlawKind::BrokenSeal { .. }
                | FlawKind::AfterSeal
                | FlawKind::Impossible(_)
                | FlawKind::Unlike { .. }
                | FlawKind::Misnamed(_)
                | FlawKind::Twice(_)
                | FlawKind::TimeGoesBack(_)
                | FlawKind::NotRepeated(_)
                | FlawKind::Edited
        )
    }

    /// Describes the flaw in a sentence without a full stop. `name` returns the name of a process.
    pub fn describe(&self, name: impl Fn(ProcessId) -> String) -> String {
        let who = match self.stream {
            None => return self.kind.to_string(),
            Some((ProcessId::SUPERVISOR, _)) => "the supervisor".to_owned(),
            Some((process, life)) => format!("{}, {life}", name(process)),
        };
        format!("the facts of {who} {}", self.kind)
    }
}

impl fmt::Display for FlawKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = |number: u64| if number == 1 { "1 fact".to_owned() } else { format!("{number} facts") };
        match self {
            FlawKind::Absent => write!(f, "are missing: there is no file"),
            FlawKind::Unreadable(why) => write!(f, "cannot be read: {why}"),
            FlawKind::Gap(number) => write!(f, "have a gap: {number} and later ones are missing"),
            FlawKind::Impossible(number) => {
                write!(
                    f,
                    "contain a fact that is impossible in this federation: {number} and later ones are ignored"
                )
            }
            FlawKind::Torn(found) => {
                write!(f, "are cut off in the middle of a record, after {}", facts(*found))
            }
            FlawKind::Unsealed(found) => {
                write!(f, "end without a seal after {}: later ones may be missing", facts(*found))
            }
            FlawKind::BrokenSeal { sealed, found } if sealed != found => {
                write!(
                    f,
                    "are not those that were sealed: the seal counts {sealed}, but the file contains {found}"
                )
            }
            FlawKind::BrokenSeal { found, .. } => {
                write!(f, "are not those that were sealed: the digest of all {found} facts differs")
            }
            FlawKind::AfterSeal => write!(f, "are followed by other content after their seal"),
            FlawKind::Incomplete(found) => {
                write!(f, "may be incomplete: {} arrived, but later ones may be missing", facts(*found))
            }
            FlawKind::Unlisted => write!(f, "are not listed in the manifest"),
            FlawKind::Unlike { listed, found } => {
                let count = |entry: &FactsEntry| entry.seal.map_or(0, |it| it.facts);
                match (count(listed), count(found)) {
                    (listed, found) if listed != found => {
                        write!(f, "differ from the manifest, which lists {listed} (found {found})")
                    }
                    _ => write!(f, "differ from the manifest: their seals are different"),
                }
            }
            FlawKind::Misnamed(file) => write!(f, "are in a file with the wrong name, {file}"),
            FlawKind::Twice(file) => write!(f, "are also in a second file, {file}"),
            FlawKind::Stranger(file) => {
                write!(f, "the file {file} in the directory of facts belongs to no process")
            }
            FlawKind::TimeGoesBack(number) => {
                write!(f, "are not in chronological order: the time decreases at {number}")
            }
            FlawKind::NotRepeated(number) => {
                write!(f, "differ from those of a repeated simulation, beginning with {number}")
            }
            FlawKind::Unnumbered => {
                write!(f, "some events have no number, so missing ones cannot be detected")
            }
            FlawKind::NoEnd => write!(f, "the events have no `end` line, so later ones may be missing"),
            FlawKind::EventsMissing { counted, found } => {
                write!(f, "the `end` line counts {counted} events (found {found})")
            }
            FlawKind::Damaged { first, lines: 1 } => {
                write!(f, "line {first} of the events is cut off or damaged, so what it stated is missing")
            }
            FlawKind::Damaged { first, lines } => write!(
                f,
                "{lines} lines of the events are cut off or damaged, the first of them line {first}, so what they stated is \
                 missing"
            ),
            FlawKind::Contradiction(text) => write!(f, "{text}"),
            FlawKind::NoDigest => write!(f, "the manifest contains no digest of itself"),
            FlawKind::Edited => {
                write!(f, "manifest.json or federation.yaml was changed after the run: the digest differs")
            }
        }
    }
}
