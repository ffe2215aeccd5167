//! Checkpoints as they reach stable storage: one image is one process's part of one checkpoint.

use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::content::{Content, with_flipped_bit};
use crate::fact::Witness;
use crate::footprint::Footprint;
use crate::id::{Attempt, Incarnation, Position, ProcessId, Sn};

/// Name of an image: a process's part of one attempt at a checkpoint, or [other data](ImageName::is_part).
/// Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageName {
    /// The process whose state the image holds. Another process may store it.
    pub owner: ProcessId,
    /// Incarnation of the owner's cluster when the image was taken.
    pub incarnation: Incarnation,
    /// Sequence number of the checkpoint.
    pub sn: Sn,
    /// The attempt at the checkpoint.
    pub attempt: Attempt,
}

impl ImageName {
    /// Returns the checkpoint's position in the history of its cluster.
    pub const fn position(self) -> Position {
        Position { incarnation: self.incarnation, sn: self.sn }
    }

    /// Returns whether the image is a part of a checkpoint. Checkpoints are numbered from 1; a protocol may use the
    /// number 0 to store data that is not application state. No fact is reported about such images.
    pub const fn is_part(self) -> bool {
        self.sn.0 > 0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.owner, self.position())?;
        if self.attempt.0 > 1 {
            write!(f, " (attempt {})", self.attempt.0)?;
        }
        Ok(())
    }
}

/// A piece of application state, opaque to protocols. Images that contain the same piece share it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunk {
    /// A length without content, for simulations in which only the length matters.
    Virtual(u64),
    /// The content itself.
    Bytes(Arc<[u8]>),
}

impl Chunk {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Virtual(len) => *len,
            Chunk::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The output differs for different contents.
impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chunk::Virtual(len) => write!(f, "{len} bytes"),
            Chunk::Bytes(bytes) => Content(bytes).fmt(f),
        }
    }
}

/// Returns a digest of a state, which is different if one bit is.
fn digest(state: &[Chunk]) -> Chunk {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = state.iter().fold(0xcbf2_9ce4_8422_2325, |sum, chunk| match chunk {
        Chunk::Virtual(len) => len.to_le_bytes().iter().fold(sum, mix),
        Chunk::Bytes(bytes) => bytes.iter().fold(sum, mix),
    });
    Chunk::Bytes(sum.to_le_bytes().into())
}

/// Appends a digest of the state to its pieces.
pub(crate) fn with_digest(state: &[Chunk]) -> Arc<[Chunk]> {
    state.iter().cloned().chain([digest(state)]).collect()
}

/// Returns the state without its [digest](with_digest); `None` if the digest is missing or is that of another state.
pub(crate) fn checked(pieces: &[Chunk]) -> Option<&[Chunk]> {
    let (last, state) = pieces.split_last()?;
    (*last == digest(state)).then_some(state)
}

/// Flips one bit, chosen by `bit`, of the longest piece with content; `None` if no piece has any.
pub(crate) fn flipped(pieces: &[Chunk], bit: u64) -> Option<Arc<[Chunk]>> {
    let content = |chunk: &Chunk| match chunk {
        Chunk::Virtual(_) => 0,
        Chunk::Bytes(bytes) => bytes.len(),
    };
    let longest = (0..pieces.len()).max_by_key(|&it| content(&pieces[it]))?;
    let Chunk::Bytes(bytes) = &pieces[longest] else { return None };
    let mut all = pieces.to_vec();
    all[longest] = Chunk::Bytes(with_flipped_bit(bytes, bit)?.into());
    Some(all.into())
}

/// The saved state of the application and of the composite around it. Opaque to the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Evidence of the state's content.
    pub witness: Witness,
    /// Next message number of each channel: one entry per receiver, ascending.
    pub channels: Arc<[(ProcessId, u32)]>,
    /// The application's own state, with a digest if the federation asks for it ([`NodeConfig`](crate::NodeConfig)).
    pub application: Arc<[Chunk]>,
}

impl Snapshot {
    /// Returns the size of the application state in bytes.
    pub fn len(&self) -> u64 {
        self.application.iter().map(Chunk::len).sum()
    }

    /// Returns whether the application state is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One part of a checkpoint: a typed value within the process, which drivers convert to bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image<H, V> {
    /// Unique name of the image.
    pub name: ImageName,
    /// Small header that a listing of the storage returns, so that recovery can choose among images without reading
    /// them.
    pub head: Arc<H>,
    /// The remaining saved state of the protocol.
    pub saved: Arc<V>,
    /// The application's state, with its witness.
    pub snapshot: Snapshot,
}

impl<H, V> Image<H, V> {
    /// Returns the number of bytes that networks and storage charge for the image: those of the application's state and
    /// of the messages that the protocol saved with it, which `saved_len` counts
    /// ([`Process::saved_len`](crate::Process::saved_len)).
    pub fn len(&self, saved_len: impl FnOnce(&V) -> u64) -> u64 {
        self.snapshot.len() + saved_len(&self.saved)
    }

    /// Adds an image to a footprint. `add` adds the values to which its head and its saved state refer.
    pub fn add_to(self: &Arc<Self>, footprint: &mut Footprint, add: impl FnOnce(&H, &V, &mut Footprint)) {
        if !footprint.add_arc(self) {
            return;
        }
        footprint.add_arc(&self.head);
        footprint.add_arc(&self.saved);
        add(&self.head, &self.saved, footprint);
        footprint.add_arc(&self.snapshot.channels);
        footprint.add_arc(&self.snapshot.application);
        for chunk in self.snapshot.application.iter() {
            if let Chunk::Bytes(bytes) = chunk {
                footprint.add_arc(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_detects_every_flipped_bit() {
        let state = [Chunk::Bytes([1, 2].into()), Chunk::Virtual(9), Chunk::Bytes([7; 12].into())];
        let pieces = with_digest(&state);
        assert_eq!(checked(&pieces), Some(&state[..]));
        for bit in 0..12 * 8 {
            let other = flipped(&pieces, bit).expect("the state has content");
            assert_eq!((checked(&other), &other[0]), (None, &state[0]), "{bit}");
            assert_eq!(flipped(&other, bit).as_ref(), Some(&pieces));
        }
        assert_eq!(flipped(&[Chunk::Virtual(9)], 3), None);
        assert_eq!(flipped(&[], 3), None);
    }
}
