//! Application messages: identity and payload.

use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::id::{Incarnation, ProcessId, finish};

/// Identity of one application message: the channel, the incarnation of the sender's cluster when the message was
/// *first* sent, and a number that is consecutive per channel. A re-sent message keeps its identity. Under a protocol
/// that relies on repetition, a message that a re-execution sends again keeps it as well, and the incarnation is always
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId {
    /// The sending process.
    pub from: ProcessId,
    /// The receiving process.
    pub to: ProcessId,
    /// Incarnation of the sender's cluster at the first send.
    pub incarnation: Incarnation,
    /// The message's number in its channel (`from`, `to`), counted from 0.
    pub number: u32,
}

impl MessageId {
    /// Returns a 64-bit hash of the identity. The sum over a set of messages serves as a hash of the set.
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
/// Consists of whole words, including its tag, so that it is copied word by word. If a value is copied in units
/// that differ from those in which it was just written, current processors cannot forward the stores, and stall.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// A length without content, for simulations in which only the length matters.
    Virtual(u64),
    /// A few bytes, stored in place.
    Inline(Short),
    /// Longer content, shared between copies.
    Shared(Arc<[u8]>),
}

/// Up to 15 bytes, stored in place.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(align(8))]
pub struct Short([u8; 16]);

impl Short {
    /// Maximum number of bytes; the sixteenth byte holds the length.
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
    /// Creates a payload with the content `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Payload {
        if bytes.len() <= Short::MOST {
            Payload::Inline(Short::new(bytes))
        } else {
            Payload::Shared(bytes.into())
        }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Virtual(len) => *len as usize,
            Payload::Inline(bytes) => bytes.len(),
            Payload::Shared(bytes) => bytes.len(),
        }
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the content; empty for a virtual payload.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Virtual(_) => &[],
            Payload::Inline(bytes) => &bytes.0[..bytes.len()],
            Payload::Shared(bytes) => bytes,
        }
    }
}

/// The output differs for different contents.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Virtual(len) => write!(f, "{len} bytes"),
            Payload::Inline(_) | Payload::Shared(_) => Content(self.bytes()).fmt(f),
        }
    }
}

const _: () = assert!(size_of::<Payload>() == 24, "payloads are passed by value");
