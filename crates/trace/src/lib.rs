//! The record of a run: every fact of every life, in memory while it is judged and on disk as a bundle.

mod memory;

pub use memory::{Record, Sink, Stream, Trace};
