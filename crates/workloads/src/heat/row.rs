//! Rows that ranks exchange.

use alloc::vec::Vec;
use faultline_core::{Chunk, Payload};

use super::bytes::Bytes;

/// A boundary row of a grid after a certain step, in its encoded form: the step, then the temperatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(Bytes);

/// Size of the step number, in bytes.
const HEADER: usize = size_of::<u32>();

impl Row {
    /// Creates a row from encoded temperatures.
    pub(super) fn new(step: u32, cells: &[u8]) -> Row {
        let mut bytes = Vec::with_capacity(HEADER + cells.len());
        bytes.extend_from_slice(&step.to_le_bytes());
        bytes.extend_from_slice(cells);
        Row(bytes.into())
    }

    /// Returns the row in a message; `None` if it does not have `columns` temperatures.
    pub(super) fn from_payload(payload: Payload, columns: usize) -> Option<Row> {
        (payload.bytes().len() == HEADER + 8 * columns).then(|| Row(Bytes::from_payload(payload)))
    }

    /// Returns the row in a snapshot.
    pub(super) fn from_chunk(chunk: &Chunk) -> Row {
        Row(Bytes::from_chunk(chunk))
    }

    /// Returns the row as a piece of a snapshot.
    pub(super) fn to_chunk(&self) -> Chunk {
        self.0.to_chunk()
    }

    /// Returns the row as a message.
    pub(super) fn to_payload(&self) -> Payload {
        self.0.to_payload()
    }

    /// Returns the step after which the row was sent.
    pub(super) fn step(&self) -> u32 {
        let (step, _) = self.0.split_first_chunk().expect("a row begins with its step");
        u32::from_le_bytes(*step)
    }

    /// Returns the encoded temperatures.
    pub(super) fn cells(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}
