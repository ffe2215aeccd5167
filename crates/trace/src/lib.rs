//! The record of a run: every fact of every life, in memory while it is judged and on disk as a bundle.
//!
//! | module | holds |
//! | --- | --- |
//! | [`memory`] | facts in memory, and where drivers put them |
//! | [`facts`] | the file of one life's facts |
//! | [`seal`] | what ends such a file, and vouches for it |
//! | [`flaw`] | what is wrong with evidence |
//! | [`inputs`] | the file of what one life was given, to let it live again |
//! | [`manifest`] | what a bundle says of its run beside the facts |
//! | [`bundle`] | the directory of a recorded run |
//! | [`export`] | facts as JSON Lines and CSV |
//! | [`row`] | a fact as a row of a table |
//! | [`describe`] | facts as sentences |

pub mod bundle;
pub mod describe;
pub mod export;
pub mod facts;
pub mod flaw;
pub mod inputs;
pub mod manifest;
pub mod memory;
pub mod row;
pub mod seal;

pub use bundle::{Bundle, BundleError};
pub use facts::{Cut, FactsFile, FactsReadError, FactsWriter, StreamEnd, append_record, split_body};
pub use flaw::{Flaw, FlawKind};
pub use manifest::Manifest;
pub use memory::{Record, Recorder, Sink, Stream, Trace};
pub use seal::{Hash, Seal, SealedBy};
