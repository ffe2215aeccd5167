//! The cost of writing and reading a frame, compared with the minimum: one copy and two checksums of the same
//! bytes.
//!
//! `cargo bench -p faultline-runtime --bench framing`

#[path = "../../../benches/common.rs"]
mod bench;

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use faultline_core::Time;
use faultline_runtime::frame::{Body, FrameKind, HEADER_LEN, header, split_frame};

const LENGTHS: [usize; 3] = [24, 1024, 65_536];
/// Number of bytes per turn, if each frame is counted as its body plus eight headers.
const BYTES: usize = 32 << 20;

fn main() {
    bench::pin(1);
    let turns = if bench::quick() { 5 } else { 25 };
    for len in LENGTHS {
        let rounds = BYTES / (len + 8 * HEADER_LEN);
        let (mut frames, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            frames.push(frame(len, rounds));
            copies.push(copy_and_two_checksums(len, rounds));
        }
        bench::row(
            &format!("writing and reading a frame of {len} bytes"),
            &format!("{:.1} ns", bench::median(&frames)),
            &format!("copy and two checksums {:.1} ns", bench::median(&copies)),
            bench::ratio(&frames, &copies),
            None,
        );
    }
}

/// Returns the time per frame, in nanoseconds.
fn frame(len: usize, rounds: usize) -> f64 {
    let body = Body::new(vec![7; len]);
    let mut wire = BytesMut::with_capacity(HEADER_LEN + len);
    per_round(rounds, || {
        wire.extend_from_slice(&header(FrameKind::Application, 1, 2, Time(3), black_box(&body)));
        wire.extend_from_slice(&body.head);
        let frame = split_frame(&mut wire);
        wire.reserve(HEADER_LEN + len);
        frame
    })
}

/// Returns the time per body, in nanoseconds.
fn copy_and_two_checksums(len: usize, rounds: usize) -> f64 {
    let body = Bytes::from(vec![7; len]);
    let mut wire = BytesMut::with_capacity(len);
    per_round(rounds, || {
        let sent = crc32c::crc32c(black_box(&body));
        wire.extend_from_slice(&body);
        let arrived = wire.split().freeze();
        let received = crc32c::crc32c(&arrived);
        wire.reserve(len);
        (sent, received, arrived)
    })
}

fn per_round<T>(rounds: usize, mut work: impl FnMut() -> T) -> f64 {
    let (seconds, ()) = bench::busy(|| (0..rounds).for_each(|_| drop(black_box(work()))));
    seconds * 1e9 / rounds as f64
}
