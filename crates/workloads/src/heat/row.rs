//! Rows that ranks exchange.

use alloc::vec::Vec;
use faultline_core::{Chunk, Payload};

use super::bytes::Bytes;

/// A boundary row of a grid as it was after a certain step, in the form in which it travels: the step, then the
/// temperatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(Bytes);

/// Bytes of the step number.
const HEADER: usize = size_of::<u32>();

impl Row {
    /// The row with these temperatures, in bytes.
    pub(super) fn new(step: u32, cells: &[u8]) -> Row {
        let mut bytes = Vec::with_capacity(HEADER + cells.len());
        bytes.extend_from_slice(&step.to_le_bytes());
        bytes.extend_from_slice(cells);
        Row(bytes.into())
    }

    /// The row in a message, when it is one of `columns` temperatures.
    pub(super) fn from_payload(payload: Payload, columns: usize) -> Option<Row> {
        (payload.bytes().len() == HEADER + 8 * columns).then(|| Row(Bytes::from_payload(payload)))
    }

    /// The row in a snapshot.
    pub(super) fn from_chunk(chunk: &Chunk) -> Row {
        Row(Bytes::from_chunk(chunk))
    }

    /// The row as a piece of a snapshot.
    pub(super) fn to_chunk(&self) -> Chunk {
        self.0.to_chunk()
    }

    /// The row as a message.
    pub(super) fn to_payload(&self) -> Payload {
        self.0.to_payload()
    }

    /// After which step the row was as it is.
    pub(super) fn step(&self) -> u32 {
        let (step, _) = self.0.split_first_chunk().expect("a row begins with its step");
        u32::from_le_bytes(*step)
    }

    /// Its temperatures, in bytes.
    pub(super) fn cells(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}
