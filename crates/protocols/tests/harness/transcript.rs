//! Readable listings of everything that happened in a federation, and golden files of such listings.

use std::fmt::Write as _;
use std::path::PathBuf;

use faultline_core::{Fact, Process, ProcessId};
use faultline_trace::RunNames;
use faultline_trace::describe::{describe, message_of};

use super::driver::Hosts;
use super::network::Flight;

/// An event of a federation.
#[derive(Clone, Debug)]
pub(crate) enum Entry<N: Process> {
    /// A process or the supervisor reported a fact.
    Fact {
        /// The process that reported the fact.
        process: ProcessId,
        /// The reported fact.
        fact: Fact,
    },
    /// A packet reached its receiver.
    Arrival(Flight<N>),
}

impl<N: Process> Hosts<N> {
    /// Lists all facts and all protocol messages that arrived, one per line.
    pub(crate) fn transcript(&self) -> String {
        let (mut story, names) = (String::new(), RunNames::default());
        for entry in self.log() {
            let written = match entry {
                Entry::Fact { process: ProcessId::SUPERVISOR, fact } => {
                    writeln!(story, "supervisor: {:#}", describe(ProcessId::SUPERVISOR, fact, &names))
                }
                Entry::Fact { process, fact } => {
                    let text = message_of(fact).map(|id| format!(" ({})", self.text(id)));
                    let sentence = describe(*process, fact, &names);
                    writeln!(story, "{process} {sentence:#}{}", text.unwrap_or_default())
                }
                Entry::Arrival(flight) => match flight.control() {
                    Some(message) => writeln!(story, "    {} -> {}: {message:?}", flight.from, flight.to),
                    None => Ok(()),
                },
            };
            written.expect("writing to a string cannot fail");
        }
        story
    }
}

/// Compares `text` with the file `name` in `testdata/`. If `UPDATE_GOLDEN` is set in the environment, writes
/// the file instead. Review the difference as you would a change to the specification.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (number, (golden, line)) in (1..).zip(golden.lines().zip(text.lines())) {
        assert_eq!(golden, line, "line {number} of {name} differs (UPDATE_GOLDEN=1 rewrites the file)");
    }
    assert_eq!(golden.lines().count(), text.lines().count(), "lines of {name}");
}
