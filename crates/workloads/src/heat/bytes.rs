//! Shared bytes with concise `Debug` output.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use faultline_core::{Chunk, Payload, Short};

/// Shared, immutable bytes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(Arc<[u8]>);

impl Bytes {
    /// Returns the content of a chunk.
    ///
    /// # Panics
    ///
    /// Panics on a virtual chunk, which a snapshot of real state never contains.
    pub(super) fn from_chunk(chunk: &Chunk) -> Bytes {
        match chunk {
            Chunk::Bytes(bytes) => Bytes(bytes.clone()),
            Chunk::Virtual(_) => panic!("a snapshot of real state contains bytes"),
        }
    }

    /// Returns a chunk that shares the bytes, for a snapshot.
    pub(super) fn to_chunk(&self) -> Chunk {
        Chunk::Bytes(self.0.clone())
    }

    /// Returns the content of a message. Long content is shared.
    pub(super) fn from_payload(payload: Payload) -> Bytes {
        match payload {
            Payload::Shared(bytes) => Bytes(bytes),
            short => Bytes(short.bytes().into()),
        }
    }

    /// Returns a message with these bytes as its content. Long content is shared.
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
