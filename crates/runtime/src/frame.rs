//! The wire format between two nodes: frames with a fixed header and a body.
//!
//! | header | bytes | content, little-endian |
//! | --- | --- | --- |
//! | length | 4 | length of the body |
//! | checksum | 4 | CRC32C of the body |
//! | number | 8 | number of the frame within its session, from 0 |
//! | expected | 8 | number of the next frame expected in the other direction; all frames before it have arrived |
//! | sent | 8 | time on the run's clock at which the frame was handed to the link |
//! | kind | 1 | see [`FrameKind`] |
//! | | 3 | zero |
//! | guard | 4 | CRC32C of the preceding part of the header |

use bytes::{Buf, Bytes, BytesMut};
use faultline_core::Time;
use thiserror::Error;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = size_of::<Header>();
/// Limit on the length of a body, in bytes. A longer body indicates a bug or an attack.
pub const LONGEST_BODY: usize = 1 << 30;

/// Purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An application message.
    Application,
    /// A protocol message.
    Control,
    /// A part of a checkpoint.
    Image,
    /// Only a header, which acknowledges frames.
    Acknowledge,
    /// A request for an echo, to measure the link.
    Echo,
    /// The response to an echo request.
    EchoReply,
}

/// Content of a frame, in pieces: the chunks of state in an image are never copied into one buffer.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The first piece.
    pub head: Bytes,
    /// All further pieces.
    pub tail: Vec<Bytes>,
}

/// A frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Purpose of the frame.
    pub kind: FrameKind,
    /// Number of the frame within its session.
    pub number: u64,
    /// Number of the next frame expected in the other direction.
    pub expected: u64,
    /// Time on the run's clock at which the frame was handed to the link.
    pub sent: Time,
    /// Content of the frame.
    pub body: Bytes,
}

/// The reason why bytes are not a frame. Their connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The header fails its checksum, or contains an unknown kind.
    #[error("a frame's header is damaged")]
    Header,
    /// The body would be longer than [`LONGEST_BODY`].
    #[error("a frame declares an invalid length of {0} bytes")]
    TooLong(usize),
    /// The body fails its checksum.
    #[error("a frame's body is damaged")]
    Body,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    length: U32,
    checksum: U32,
    number: U64,
    expected: U64,
    sent: U64,
    kind: u8,
    zero: [u8; 3],
    guard: U32,
}

impl Body {
    /// Creates a body with a single piece.
    pub fn new(head: impl Into<Bytes>) -> Body {
        Body { head: head.into(), tail: Vec::new() }
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.iter().map(Bytes::len).sum::<usize>()
    }

    fn checksum(&self) -> u32 {
        self.tail.iter().fold(crc32c::crc32c(&self.head), |crc, piece| crc32c::crc32c_append(crc, piece))
    }
}

/// Returns the header of a frame.
///
/// # Panics
///
/// Panics if the body is longer than [`LONGEST_BODY`].
pub fn header(kind: FrameKind, number: u64, expected: u64, sent: Time, body: &Body) -> [u8; HEADER_LEN] {
    assert!(body.len() <= LONGEST_BODY, "a frame of {} bytes exceeds the limit", body.len());
    let mut header = Header {
        length: U32::new(body.len() as u32),
        checksum: U32::new(body.checksum()),
        number: U64::new(number),
        expected: U64::new(expected),
        sent: U64::new(sent.0),
        kind: kind as u8,
        zero: [0; 3],
        guard: U32::ZERO,
    };
    header.guard = U32::new(crc32c::crc32c(&header.as_bytes()[..HEADER_LEN - 4]));
    zerocopy::transmute!(header)
}

/// Removes the first frame from `buffer`. Returns `None` if it is not complete yet.
///
/// # Errors
///
/// Fails if the bytes cannot be a frame.
pub fn split_frame(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Ok((header, rest)) = Header::ref_from_prefix(buffer) else {
        return Ok(None);
    };
    if crc32c::crc32c(&header.as_bytes()[..HEADER_LEN - 4]) != header.guard.get() {
        return Err(FrameError::Header);
    }
    let kind = FrameKind::from_byte(header.kind).ok_or(FrameError::Header)?;
    let length = header.length.get() as usize;
    if length > LONGEST_BODY {
        return Err(FrameError::TooLong(length));
    }
    if rest.len() < length {
        buffer.reserve(HEADER_LEN + length - buffer.len());
        return Ok(None);
    }
    let checksum = header.checksum.get();
    let (number, expected, sent) = (header.number.get(), header.expected.get(), Time(header.sent.get()));
    buffer.advance(HEADER_LEN);
    let body = buffer.split_to(length).freeze();
    if crc32c::crc32c(&body) != checksum {
        return Err(FrameError::Body);
    }
    Ok(Some(Frame { kind, number, expected, sent, body }))
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        const ALL: [FrameKind; 6] = [
            FrameKind::Application,
            FrameKind::Control,
            FrameKind::Image,
            FrameKind::Acknowledge,
            FrameKind::Echo,
            FrameKind::EchoReply,
        ];
        ALL.get(usize::from(byte)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(kind: FrameKind, number: u64, body: &Body) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(&header(kind, number, 7, Time(9), body));
        bytes.extend_from_slice(&body.head);
        body.tail.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    #[test]
    fn frames_are_read_as_written_however_they_are_split() {
        let bodies = [
            (FrameKind::Application, Body::new(vec![1, 2, 3])),
            (FrameKind::Acknowledge, Body::default()),
            (
                FrameKind::Image,
                Body { head: vec![4; 5].into(), tail: vec![vec![6; 1000].into(), vec![7; 3].into()] },
            ),
            (FrameKind::EchoReply, Body::new(vec![0; 70_000])),
        ];
        let mut wire = BytesMut::new();
        for (number, (kind, body)) in bodies.iter().enumerate() {
            wire.extend_from_slice(&encoded(*kind, number as u64, body));
        }
        for step in [1, 7, 4096, wire.len()] {
            let mut buffer = BytesMut::new();
            let mut read = Vec::new();
            for part in wire.chunks(step) {
                buffer.extend_from_slice(part);
                while let Some(frame) = split_frame(&mut buffer).unwrap() {
                    read.push(frame);
                }
            }
            assert!(buffer.is_empty());
            assert_eq!(read.len(), bodies.len());
            for (number, (frame, (kind, body))) in read.iter().zip(&bodies).enumerate() {
                assert_eq!((frame.kind, frame.number), (*kind, number as u64));
                assert_eq!((frame.expected, frame.sent), (7, Time(9)));
                assert_eq!(frame.body, [&body.head[..], &body.tail.concat()].concat());
            }
        }
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let wire = encoded(FrameKind::Control, 3, &Body::new(vec![5; 40]));
        for bit in 0..wire.len() * 8 {
            let mut damaged = wire.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(split_frame(&mut damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_with_an_invalid_length_is_rejected_before_it_is_read() {
        let mut wire = encoded(FrameKind::Control, 3, &Body::default());
        wire[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let guard = crc32c::crc32c(&wire[..HEADER_LEN - 4]);
        wire[HEADER_LEN - 4..].copy_from_slice(&guard.to_le_bytes());
        assert_eq!(split_frame(&mut wire), Err(FrameError::TooLong(u32::MAX as usize)));
    }
}
