//! A frame out and in again, beside a copy and two checksums of the same bytes, which is what it cannot do without.
//!
//! `cargo bench -p faultline-runtime --bench framing`

use bytes::{Bytes, BytesMut};
use divan::Bencher;
use divan::counter::BytesCount;
use faultline_core::Time;
use faultline_runtime::frame::{Body, FrameKind, HEADER_LEN, header, split_frame};

const LENGTHS: [usize; 3] = [24, 1024, 65_536];

fn main() {
    divan::main();
}

#[divan::bench(args = LENGTHS)]
fn frame(bencher: Bencher<'_, '_>, len: usize) {
    let body = Body::new(vec![7; len]);
    let mut wire = BytesMut::with_capacity(HEADER_LEN + len);
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        wire.extend_from_slice(&header(FrameKind::Application, 1, 2, Time(3), divan::black_box(&body)));
        wire.extend_from_slice(&body.head);
        let frame = split_frame(&mut wire);
        wire.reserve(HEADER_LEN + len);
        frame
    });
}

#[divan::bench(args = LENGTHS)]
fn copy_and_two_checksums(bencher: Bencher<'_, '_>, len: usize) {
    let body = Bytes::from(vec![7; len]);
    let mut wire = BytesMut::with_capacity(len);
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        let sent = crc32c::crc32c(divan::black_box(&body));
        wire.extend_from_slice(&body);
        let arrived = wire.split().freeze();
        let received = crc32c::crc32c(&arrived);
        wire.reserve(len);
        (sent, received, arrived)
    });
}
