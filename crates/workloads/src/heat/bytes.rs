//! Shared bytes that do not fill a page when they are printed.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use faultline_core::{Chunk, Payload, Short};

/// Shared, immutable bytes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(Arc<[u8]>);

impl Bytes {
    /// The content of a chunk. Panics on a virtual one, which no snapshot of real state holds.
    pub(super) fn from_chunk(chunk: &Chunk) -> Bytes {
        match chunk {
            Chunk::Bytes(bytes) => Bytes(bytes.clone()),
            Chunk::Virtual(_) => panic!("a snapshot of real state has real bytes"),
        }
    }

    /// Shares the bytes with a snapshot.
    pub(super) fn to_chunk(&self) -> Chunk {
        Chunk::Bytes(self.0.clone())
    }

    /// The content of a message, shared with it when it is long.
    pub(super) fn from_payload(payload: Payload) -> Bytes {
        match payload {
            Payload::Shared(bytes) => Bytes(bytes),
            short => Bytes(short.bytes().into()),
        }
    }

    /// The bytes as the content of a message, shared with it when they are long.
    pub(super) fn to_payload(&self) -> Payload {
        if self.len() > Short::MOST { Payload::Shared(self.0.clone()) } else { Payload::from_slice(self) }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes.into())
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
