//! The record of a run: every fact of every life, in memory while the run is judged, and on disk as a bundle.
//!
//! | module | content |
//! | --- | --- |
//! | [`memory`] | facts in memory, and the sinks to which drivers pass them |
//! | [`facts`] | the file of one life's facts |
//! | [`seal`] | the end of such a file, which shows that it is complete and unchanged |
//! | [`flaw`] | flaws in the evidence |
//! | [`inputs`] | the file of one life's inputs, from which the life can be re-executed |
//! | [`manifest`] | the description of a run apart from its facts |
//! | [`expectation`] | what a federation expects, and the probes and watches of a user's own system |
//! | [`bundle`] | the directory of a recorded run |
//! | `possible` | facts that no run can contain |
//! | [`export`] | facts as JSON Lines and CSV, and the communication graph |
//! | [`mod@import`] | events of other systems as the record of a run |
//! | [`row`] | a fact as a row of a table |
//! | [`describe`] | facts in words |
//! | [`fault`] | faults, triggers, changes and links in words |
//! | [`mod@printable`] | text from files, without characters that may not reach a terminal; words for a shell |
//! | [`duration`] | times and durations as text for readers |

pub mod bundle;
pub mod describe;
pub mod duration;
pub mod expectation;
pub mod export;
pub mod facts;
pub mod fault;
pub mod flaw;
pub mod import;
pub mod inputs;
pub mod manifest;
pub mod memory;
mod possible;
pub mod printable;
pub mod row;
pub mod seal;

pub use bundle::{Bundle, BundleError, Follower};
pub use facts::{
    Cut, FactsFile, FactsReadError, FactsWriter, StreamEnd, append_record, read_facts, split_body,
};
pub use faultline_core::names::{self, RunNames};
pub use flaw::{Flaw, FlawKind};
pub use manifest::Manifest;
pub use memory::{Record, Recorder, Sink, Stream, Trace};
pub use possible::Extent;
pub use printable::{is_printable, printable, shell_word};
pub use seal::{Hash, Seal, SealedBy};
