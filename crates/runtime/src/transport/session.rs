//! What two lives have said to each other, independent of the connections that come and go between them. No I/O.
//!
//! Frames are numbered, kept until the other end says that they arrived, and sent again from there over the next
//! connection: nothing is lost and nothing arrives twice while both lives last.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Buf;
use faultline_core::Time;
use thiserror::Error;

use crate::frame::{Body, Frame, FrameKind, HEADER_LEN, header};

/// An acknowledgement is owed at once after so many bytes.
const OWED_BYTES: usize = 256 * 1024;
/// Or so many frames.
const OWED_FRAMES: usize = 64;
/// Pieces handed to the operating system in one call.
const SLICES: usize = 64;

/// One end of a conversation between two lives.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Frames that the other end may not have, oldest first.
    unacknowledged: VecDeque<Outgoing>,
    /// Number of the oldest of these.
    base: u64,
    /// How many of these the connection has taken whole.
    written: usize,
    /// How many bytes of the next one the connection has taken.
    offset: usize,
    /// Number of the next frame from the other end.
    expected: u64,
    /// Arrived since the other end was last told.
    owed_frames: usize,
    owed_bytes: usize,
}

#[derive(Debug)]
struct Outgoing {
    header: [u8; HEADER_LEN],
    body: Body,
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum SessionError {
    #[error("frame {got} came where {expected} was next: some are missing")]
    Gap { got: u64, expected: u64 },
    #[error("the other end has frames up to {claimed}, of which only {written} were written")]
    Unwritten { claimed: u64, written: u64 },
    #[error("the other end wants frame {wanted} again, which it had said arrived")]
    Forgotten { wanted: u64 },
}

impl Session {
    /// Queues a frame.
    pub(super) fn push(&mut self, kind: FrameKind, sent: Time, body: Body) {
        let number = self.base + self.unacknowledged.len() as u64;
        let header = header(kind, number, self.expected, sent, &body);
        self.unacknowledged.push_back(Outgoing { header, body });
        (self.owed_frames, self.owed_bytes) = (0, 0);
    }

    /// Whether the connection has not taken everything.
    pub(super) fn has_unwritten(&self) -> bool {
        self.written < self.unacknowledged.len()
    }

    /// Whether the other end may lack something.
    pub(super) fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// The next pieces for the connection.
    pub(super) fn unwritten(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2);
        let mut skip = self.offset;
        for frame in self.unacknowledged.range(self.written..) {
            let pieces = [&frame.header[..], &frame.body.head];
            for piece in pieces.into_iter().chain(frame.body.tail.iter().map(|piece| piece.chunk())) {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                if skipped < piece.len() {
                    slices.push(IoSlice::new(&piece[skipped..]));
                }
            }
            if slices.len() >= SLICES {
                break;
            }
        }
        slices
    }

    /// The connection has taken so many bytes of these.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.offset += bytes;
        while let Some(frame) = self.unacknowledged.get(self.written) {
            let length = HEADER_LEN + frame.body.len();
            if self.offset < length {
                return;
            }
            self.offset -= length;
            self.written += 1;
        }
        assert_eq!(self.offset, 0, "more was written than there was");
    }

    /// A frame has arrived. Whether it is new; otherwise it is one that an earlier connection had brought already.
    pub(super) fn arrived(&mut self, frame: &Frame) -> Result<bool, SessionError> {
        self.acknowledged(frame.expected)?;
        if frame.number > self.expected {
            return Err(SessionError::Gap { got: frame.number, expected: self.expected });
        }
        if frame.number < self.expected {
            return Ok(false);
        }
        self.expected += 1;
        if frame.kind != FrameKind::Acknowledge {
            self.owed_frames += 1;
            self.owed_bytes += frame.body.len();
        }
        Ok(true)
    }

    /// Number of the next frame from the other end: what it needs to know to go on over a new connection.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// Whether so much has arrived that the other end should be told now.
    pub(super) fn owes_now(&self) -> bool {
        self.owed_frames >= OWED_FRAMES || self.owed_bytes >= OWED_BYTES
    }

    /// Whether anything has arrived of which the other end was not told.
    pub(super) fn owes(&self) -> bool {
        self.owed_frames > 0
    }

    /// Goes on over a new connection, whose other end wants frame `wanted` next.
    pub(super) fn resume(&mut self, wanted: u64) -> Result<(), SessionError> {
        if wanted < self.base {
            return Err(SessionError::Forgotten { wanted });
        }
        self.acknowledged(wanted)?;
        self.written = 0;
        self.offset = 0;
        Ok(())
    }

    fn acknowledged(&mut self, expected: u64) -> Result<(), SessionError> {
        let written = self.base + self.written as u64;
        if expected > written {
            return Err(SessionError::Unwritten { claimed: expected, written });
        }
        while self.base < expected {
            self.unacknowledged.pop_front();
            self.base += 1;
            self.written -= 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::split_frame;
    use bytes::BytesMut;
    use proptest::prelude::*;

    /// Moves up to `limit` bytes from one end to the other; returns the numbers of the new frames.
    fn carry(from: &mut Session, to: &mut Session, buffer: &mut BytesMut, limit: usize) -> Vec<u8> {
        let bytes: Vec<u8> = from.unwritten().iter().flat_map(|slice| slice.to_vec()).take(limit).collect();
        from.wrote(bytes.len());
        buffer.extend_from_slice(&bytes);
        let mut new = Vec::new();
        while let Some(frame) = split_frame(buffer).unwrap() {
            if to.arrived(&frame).unwrap() && frame.kind == FrameKind::Control {
                new.push(frame.body[0]);
            }
        }
        new
    }

    proptest! {
        /// Whatever is said, however connections break, each end gets what the other said, in order and once.
        #[test]
        fn nothing_is_lost_or_doubled_across_connections(
            steps in prop::collection::vec((0u8..6, 1usize..200), 1..200),
        ) {
            let mut ends = [Session::default(), Session::default()];
            let mut wires = [BytesMut::new(), BytesMut::new()];
            let mut said = [Vec::new(), Vec::new()];
            let mut heard = [Vec::new(), Vec::new()];
            let reconnect = |ends: &mut [Session; 2], wires: &mut [BytesMut; 2]| {
                wires.iter_mut().for_each(|wire| wire.clear());
                let (left, right) = ends.split_at_mut(1);
                let wanted = left[0].expected();
                left[0].resume(right[0].expected()).unwrap();
                right[0].resume(wanted).unwrap();
            };
            for (step, size) in steps {
                let end = usize::from(step % 2);
                match step {
                    0 | 1 => {
                        let word = said[end].len() as u8;
                        said[end].push(word);
                        let body = Body { head: vec![word; size].into(), tail: vec![vec![word; 3].into()] };
                        ends[end].push(FrameKind::Control, Time(0), body);
                    }
                    2 | 3 => {
                        let (left, right) = ends.split_at_mut(1);
                        let (from, to) = if end == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
                        heard[end].extend(carry(from, to, &mut wires[end], size));
                        if to.owes() {
                            to.push(FrameKind::Acknowledge, Time(0), Body::default());
                        }
                    }
                    _ => reconnect(&mut ends, &mut wires),
                }
            }
            reconnect(&mut ends, &mut wires);
            while ends.iter().any(Session::has_unwritten) {
                let (left, right) = ends.split_at_mut(1);
                heard[0].extend(carry(&mut left[0], &mut right[0], &mut wires[0], 4096));
                heard[1].extend(carry(&mut right[0], &mut left[0], &mut wires[1], 4096));
            }
            prop_assert_eq!(said, heard);
        }
    }

    #[test]
    fn what_arrived_is_forgotten_and_a_gap_is_an_error() {
        let (mut left, mut right) = (Session::default(), Session::default());
        let mut wire = BytesMut::new();
        for word in 0..3 {
            left.push(FrameKind::Control, Time(0), Body::new(vec![word]));
        }
        assert_eq!(carry(&mut left, &mut right, &mut wire, usize::MAX), [0, 1, 2]);
        assert!(left.has_unacknowledged() && right.owes());
        right.push(FrameKind::Acknowledge, Time(0), Body::default());
        carry(&mut right, &mut left, &mut BytesMut::new(), usize::MAX);
        assert!(!left.has_unacknowledged());
        assert!(!left.owes(), "an acknowledgement of an acknowledgement would never end");
        assert_eq!(left.resume(2), Err(SessionError::Forgotten { wanted: 2 }));
        let ahead =
            Frame { kind: FrameKind::Control, number: 9, expected: 0, sent: Time(0), body: vec![1].into() };
        assert_eq!(right.arrived(&ahead), Err(SessionError::Gap { got: 9, expected: 3 }));
        let liar =
            Frame { kind: FrameKind::Control, number: 3, expected: 5, sent: Time(0), body: vec![1].into() };
        assert_eq!(right.arrived(&liar), Err(SessionError::Unwritten { claimed: 5, written: 1 }));
    }
}
