//! Application messages: identity and content.

use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, ProcessId, finish};

/// Identity of one application message: the channel, the sender's cluster incarnation when it was *first* sent, and a
/// number dense per channel. A re-sent message keeps its identity; under a protocol that repeats executions a
/// re-executed one as well, and the incarnation is always 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId {
    /// Sender.
    pub from: ProcessId,
    /// Receiver.
    pub to: ProcessId,
    /// Incarnation of the sender's cluster at the first send.
    pub incarnation: Incarnation,
    /// Dense per channel (from, to); the first is 0.
    pub number: u32,
}

impl MessageId {
    /// A 64-bit mix of the identity, for multiset hashes: the sum over a set of messages identifies the set.
    #[inline]
    pub const fn mix(self) -> u64 {
        let a = (self.from.0 as u64) << 32 | self.to.0 as u64;
        let b = (self.incarnation.0 as u64) << 32 | self.number as u64;
        finish(finish(a).wrapping_add(b).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{} #{}", self.from, self.to, self.number)?;
        if self.incarnation.0 > 0 {
            write!(f, " (incarnation {})", self.incarnation.0)?;
        }
        Ok(())
    }
}

/// Content of an application message, opaque to protocols.
///
/// Made of whole words, its tag included, so that everything around it is copied word by word: a copy in other pieces
/// than those that were just written makes today's processors wait.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// A length without bytes, for simulations in which only the size counts.
    Virtual(u64),
    /// A few bytes in place.
    Inline(Short),
    /// More, shared.
    Shared(Arc<[u8]>),
}

/// Up to 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(align(8))]
pub struct Short([u8; 16]);

impl Short {
    /// The most bytes that there is room for: the last place holds their number.
    pub const MOST: usize = 15;

    fn new(bytes: &[u8]) -> Short {
        let mut short = [0; 16];
        short[..bytes.len()].copy_from_slice(bytes);
        short[Short::MOST] = bytes.len() as u8;
        Short(short)
    }

    #[inline]
    fn len(&self) -> usize {
        usize::from(self.0[Short::MOST]).min(Short::MOST)
    }
}

impl Payload {
    /// The payload that carries `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Payload {
        if bytes.len() <= Short::MOST {
            Payload::Inline(Short::new(bytes))
        } else {
            Payload::Shared(bytes.into())
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Virtual(len) => *len as usize,
            Payload::Inline(bytes) => bytes.len(),
            Payload::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes; none for a virtual payload.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Virtual(_) => &[],
            Payload::Inline(bytes) => &bytes.0[..bytes.len()],
            Payload::Shared(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

const _: () = assert!(size_of::<Payload>() == 24, "payloads travel by value");
