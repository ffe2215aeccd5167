//! The session between two lives, independent of the connections that carry it. No I/O.
//!
//! Frames are numbered, and kept until the other end acknowledges them. Unacknowledged frames are re-sent
//! over the next connection. As long as both lives last, no frame is lost, and duplicates are discarded.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Buf;
use faultline_core::Time;
use thiserror::Error;

use crate::frame::{Body, Frame, FrameKind, HEADER_LEN, header};

/// Number of received bytes after which an acknowledgement is due immediately.
const OWED_BYTES: usize = 256 * 1024;
/// Number of received frames after which an acknowledgement is due immediately.
const OWED_FRAMES: usize = 64;
/// Number of pieces after which no further frame is added to the same call to the operating system.
const SLICES: usize = 64;

/// One end of the session between a life of this process and a life of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerSession {
    /// Frames that the other end may not have, oldest first.
    unacknowledged: VecDeque<Outgoing>,
    /// Number of the oldest unacknowledged frame.
    base: u64,
    /// Number of unacknowledged frames that the connection has accepted completely.
    written: usize,
    /// Number of bytes of the next frame that the connection has accepted.
    offset: usize,
    /// All frames below this number have been written, over this connection or an earlier one.
    ever_written: u64,
    /// All frames below this number have arrived at the other end.
    acknowledged: u64,
    /// Number of the next frame from the other end.
    expected: u64,
    /// Number of frames that arrived since the last acknowledgement.
    owed_frames: usize,
    owed_bytes: usize,
}

#[derive(Debug)]
struct Outgoing {
    header: [u8; HEADER_LEN],
    body: Body,
}

/// The reason why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum SessionError {
    #[error("received frame {got} instead of {expected}: frames are missing")]
    Gap { got: u64, expected: u64 },
    #[error("the other end claims to have received frames up to {claimed}, but only {written} were sent")]
    Unwritten { claimed: u64, written: u64 },
}

impl PeerSession {
    /// Queues a frame.
    pub(super) fn push(&mut self, kind: FrameKind, sent: Time, body: Body) {
        let number = self.base + self.unacknowledged.len() as u64;
        let header = header(kind, number, self.expected, sent, &body);
        self.unacknowledged.push_back(Outgoing { header, body });
        (self.owed_frames, self.owed_bytes) = (0, 0);
    }

    /// Returns whether there are bytes that the connection has not accepted yet.
    pub(super) fn has_unwritten(&self) -> bool {
        self.written < self.unacknowledged.len()
    }

    /// Returns whether the other end may lack a frame.
    pub(super) fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Returns the next pieces for the connection.
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

    /// Records that the connection has accepted `bytes` bytes of the unwritten pieces.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.offset += bytes;
        while let Some(frame) = self.unacknowledged.get(self.written) {
            let length = HEADER_LEN + frame.body.len();
            if self.offset < length {
                return self.forget();
            }
            self.offset -= length;
            self.written += 1;
            self.ever_written = self.ever_written.max(self.base + self.written as u64);
        }
        assert_eq!(self.offset, 0, "more bytes were written than queued");
        self.forget();
    }

    /// Handles a frame. Returns whether it is new; otherwise, an earlier connection has delivered it.
    pub(super) fn arrived(&mut self, frame: &Frame) -> Result<bool, SessionError> {
        self.check(frame.expected)?;
        self.acknowledged = self.acknowledged.max(frame.expected);
        self.forget();
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

    /// Returns the number of the next frame from the other end. The other end needs it to resume on a new
    /// connection.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// Returns whether an acknowledgement is due immediately.
    pub(super) fn owes_now(&self) -> bool {
        self.owed_frames >= OWED_FRAMES || self.owed_bytes >= OWED_BYTES
    }

    /// Returns whether any received frame has not been acknowledged.
    pub(super) fn owes(&self) -> bool {
        self.owed_frames > 0
    }

    /// Resumes on a new connection, whose other end expects frame `wanted` next. This number may be older
    /// than the last acknowledgement on the previous connection.
    pub(super) fn resume(&mut self, wanted: u64) -> Result<(), SessionError> {
        self.check(wanted)?;
        self.written = 0;
        self.offset = 0;
        self.acknowledged = self.acknowledged.max(wanted);
        self.forget();
        Ok(())
    }

    fn check(&self, expected: u64) -> Result<(), SessionError> {
        // Over an earlier connection, the other end may have received the frame that is being written.
        if expected > self.ever_written {
            return Err(SessionError::Unwritten { claimed: expected, written: self.ever_written });
        }
        Ok(())
    }

    /// Drops acknowledged frames. A partially written frame must still be completed.
    fn forget(&mut self) {
        while self.base < self.acknowledged && (self.written > 0 || self.offset == 0) {
            self.unacknowledged.pop_front();
            self.base += 1;
            self.written = self.written.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::split_frame;
    use bytes::BytesMut;
    use proptest::prelude::*;

    /// Moves up to `limit` bytes from one end to the other. Returns the first byte of the body of each new control
    /// frame.
    fn carry(from: &mut PeerSession, to: &mut PeerSession, buffer: &mut BytesMut, limit: usize) -> Vec<u8> {
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

    /// Both ends, and the bytes in transit between them.
    #[derive(Default)]
    struct Pair {
        ends: [PeerSession; 2],
        wires: [BytesMut; 2],
        said: [Vec<u8>; 2],
        heard: [Vec<u8>; 2],
        /// Next frame that each end expected when they agreed on the next connection.
        agreed: Option<[u64; 2]>,
    }

    impl Pair {
        fn say(&mut self, end: usize, size: usize) {
            let word = self.said[end].len() as u8;
            self.said[end].push(word);
            let body = Body { head: vec![word; size].into(), tail: vec![vec![word; 3].into()] };
            self.ends[end].push(FrameKind::Control, Time(0), body);
        }

        fn carry(&mut self, end: usize, limit: usize) {
            let [left, right] = &mut self.ends;
            let (from, to) = if end == 0 { (left, right) } else { (right, left) };
            self.heard[end].extend(carry(from, to, &mut self.wires[end], limit));
            if to.owes_now() || limit.is_multiple_of(3) && to.owes() {
                to.push(FrameKind::Acknowledge, Time(0), Body::default());
            }
        }

        fn agree(&mut self) {
            self.agreed = Some(self.ends.each_ref().map(PeerSession::expected));
        }

        /// Resumes on a new connection, on which the two ends may have agreed earlier.
        fn reconnect(&mut self) {
            let wanted = self.agreed.take().unwrap_or(self.ends.each_ref().map(PeerSession::expected));
            self.wires = Default::default();
            self.ends[0].resume(wanted[1]).unwrap();
            self.ends[1].resume(wanted[0]).unwrap();
        }
    }

    proptest! {
        /// Whatever is sent and however connections break, each end receives the other's frames in order and
        /// exactly once.
        #[test]
        fn nothing_is_lost_or_duplicated_across_connections(
            steps in prop::collection::vec((0u8..8, 1usize..200), 1..200),
        ) {
            let mut pair = Pair::default();
            for (step, size) in steps {
                match step {
                    0 | 1 => pair.say(step.into(), size),
                    2..=5 => pair.carry(usize::from(step % 2), size),
                    6 => pair.agree(),
                    _ => pair.reconnect(),
                }
            }
            pair.reconnect();
            while pair.ends.iter().any(PeerSession::has_unwritten) {
                pair.carry(0, 4096);
                pair.carry(1, 4096);
            }
            prop_assert_eq!(pair.said, pair.heard);
        }
    }

    #[test]
    fn arrived_frames_are_dropped_and_a_gap_is_an_error() {
        let (mut left, mut right) = (PeerSession::default(), PeerSession::default());
        let mut wire = BytesMut::new();
        for word in 0..3 {
            left.push(FrameKind::Control, Time(0), Body::new(vec![word]));
        }
        assert_eq!(carry(&mut left, &mut right, &mut wire, usize::MAX), [0, 1, 2]);
        assert!(left.has_unacknowledged() && right.owes());
        right.push(FrameKind::Acknowledge, Time(0), Body::default());
        carry(&mut right, &mut left, &mut BytesMut::new(), usize::MAX);
        assert!(!left.has_unacknowledged());
        assert!(!left.owes(), "acknowledgements are not acknowledged");
        left.resume(2).expect("a number from before the acknowledgement");
        let ahead =
            Frame { kind: FrameKind::Control, number: 9, expected: 0, sent: Time(0), body: vec![1].into() };
        assert_eq!(right.arrived(&ahead), Err(SessionError::Gap { got: 9, expected: 3 }));
        let liar =
            Frame { kind: FrameKind::Control, number: 3, expected: 5, sent: Time(0), body: vec![1].into() };
        assert_eq!(right.arrived(&liar), Err(SessionError::Unwritten { claimed: 5, written: 1 }));
    }
}
