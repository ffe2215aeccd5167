//! Encodes and decodes packets and images. Encoding neither copies application state nor processes it byte by byte.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use faultline_core::application::Wire;
use faultline_core::process::PacketOf;
use faultline_core::{
    Chunk, Image, ImageName, Incarnation, MessageId, Packet, Payload, Process, ProcessId, Snapshot, Witness,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{Body, FrameKind};

/// The reason why bytes cannot be decoded. Their checksum was correct, so the writer runs another version of the
/// program or has a bug.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum CodecError {
    #[error("{0} is truncated")]
    Short(&'static str),
    #[error("{what} cannot be decoded: {source}")]
    Decode { what: &'static str, source: postcard::Error },
    #[error("a frame does not contain a packet")]
    NoPacket,
}

/// Precedes the stamp and the payload of an application message.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MessageHeader {
    from: U32,
    to: U32,
    incarnation: U32,
    number: U32,
    /// Length of a virtual payload; [`NOT_VIRTUAL`] if the content follows.
    virtual_len: U32,
    stamp_len: U16,
}

const NOT_VIRTUAL: u32 = u32::MAX;

/// An image without the bytes of its chunks, which follow it.
#[derive(Serialize)]
struct ImageMetaRef<'a, H, V> {
    name: ImageName,
    head: &'a H,
    saved: &'a V,
    witness: Witness,
    channels: &'a [(ProcessId, u32)],
    chunks: Vec<ChunkMeta>,
}

/// The owned form of [`ImageMetaRef`], for decoding.
#[derive(Deserialize)]
struct ImageMeta<H, V> {
    name: ImageName,
    head: H,
    saved: V,
    witness: Witness,
    channels: Vec<(ProcessId, u32)>,
    chunks: Vec<ChunkMeta>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum ChunkMeta {
    Virtual(u64),
    Bytes(u64),
}

/// Encodes a packet as the body of a frame.
pub(crate) fn encode_packet<P: Process>(packet: &PacketOf<P>) -> (FrameKind, Body) {
    match packet {
        Packet::Application { id, stamp, payload } => {
            (FrameKind::Application, Body::new(encode_message(*id, stamp, payload)))
        }
        Packet::Control(message) => (FrameKind::Control, Body::new(to_bytes(message))),
        Packet::Image(image) => (FrameKind::Image, encode_image(image)),
    }
}

/// Decodes a packet from the body of a frame.
pub(crate) fn decode_packet<P: Process>(kind: FrameKind, body: &Bytes) -> Result<PacketOf<P>, CodecError> {
    match kind {
        FrameKind::Application => decode_message::<P>(body),
        FrameKind::Control => Ok(Packet::Control(from_bytes("a protocol message", body)?)),
        FrameKind::Image => Ok(Packet::Image(Arc::new(decode_image(body)?))),
        FrameKind::Acknowledge | FrameKind::Echo | FrameKind::EchoReply => Err(CodecError::NoPacket),
    }
}

/// Encodes an image: the length of the metadata, the metadata, then the chunks unchanged.
pub(crate) fn encode_image<H: Wire, V: Wire>(image: &Image<H, V>) -> Body {
    let Image { name, head, saved, snapshot } = image;
    let chunks = snapshot.application.iter().map(|chunk| match chunk {
        Chunk::Virtual(len) => ChunkMeta::Virtual(*len),
        Chunk::Bytes(bytes) => ChunkMeta::Bytes(bytes.len() as u64),
    });
    let meta = ImageMetaRef {
        name: *name,
        head: &**head,
        saved: &**saved,
        witness: snapshot.witness,
        channels: &snapshot.channels,
        chunks: chunks.collect(),
    };
    let mut first = postcard::to_extend(&meta, vec![0; 4]).expect("an image can be encoded");
    let meta_len = u32::try_from(first.len() - 4).expect("protocol state of an image is below 4 GiB");
    first[..4].copy_from_slice(&meta_len.to_le_bytes());
    let pieces = snapshot.application.iter().filter_map(|chunk| match chunk {
        Chunk::Virtual(_) => None,
        Chunk::Bytes(bytes) => Some(Bytes::from_owner(bytes.clone())),
    });
    Body { head: first.into(), tail: pieces.collect() }
}

/// Decodes the output of [`encode_image`].
pub(crate) fn decode_image<H: Wire, V: Wire>(bytes: &[u8]) -> Result<Image<H, V>, CodecError> {
    const SHORT: CodecError = CodecError::Short("an image");
    let (meta_len, rest) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
    let (meta, mut rest) = rest.split_at_checked(u32::from_le_bytes(*meta_len) as usize).ok_or(SHORT)?;
    let meta: ImageMeta<H, V> = from_bytes("an image", meta)?;
    let mut application = Vec::with_capacity(meta.chunks.len());
    for chunk in meta.chunks {
        application.push(match chunk {
            ChunkMeta::Virtual(len) => Chunk::Virtual(len),
            ChunkMeta::Bytes(len) => {
                let len = usize::try_from(len).map_err(|_| SHORT)?;
                let (chunk, others) = rest.split_at_checked(len).ok_or(SHORT)?;
                rest = others;
                Chunk::Bytes(chunk.into())
            }
        });
    }
    Ok(Image {
        name: meta.name,
        head: Arc::new(meta.head),
        saved: Arc::new(meta.saved),
        snapshot: Snapshot {
            witness: meta.witness,
            channels: meta.channels.into(),
            application: application.into(),
        },
    })
}

fn encode_message<S: Wire>(id: MessageId, stamp: &S, payload: &Payload) -> Vec<u8> {
    const HEADER: usize = size_of::<MessageHeader>();
    let body = Vec::with_capacity(HEADER + 32 + payload.bytes().len());
    let mut body = postcard::to_extend(stamp, {
        let mut body = body;
        body.resize(HEADER, 0);
        body
    })
    .expect("a stamp can be encoded");
    let stamp_len = u16::try_from(body.len() - HEADER).expect("a stamp is below 64 KiB");
    let header = MessageHeader {
        from: U32::new(id.from.0),
        to: U32::new(id.to.0),
        incarnation: U32::new(id.incarnation.0),
        number: U32::new(id.number),
        virtual_len: U32::new(match payload {
            Payload::Virtual(len) => u32::try_from(*len).expect("virtual lengths are below 4 GiB"),
            Payload::Inline(_) | Payload::Shared(_) => NOT_VIRTUAL,
        }),
        stamp_len: U16::new(stamp_len),
    };
    body[..HEADER].copy_from_slice(header.as_bytes());
    body.extend_from_slice(payload.bytes());
    body
}

fn decode_message<P: Process>(body: &Bytes) -> Result<PacketOf<P>, CodecError> {
    const SHORT: CodecError = CodecError::Short("an application message");
    let (header, rest) = MessageHeader::ref_from_prefix(body.chunk()).map_err(|_| SHORT)?;
    let (stamp, payload) = rest.split_at_checked(usize::from(header.stamp_len.get())).ok_or(SHORT)?;
    Ok(Packet::Application {
        id: MessageId {
            from: ProcessId(header.from.get()),
            to: ProcessId(header.to.get()),
            incarnation: Incarnation(header.incarnation.get()),
            number: header.number.get(),
        },
        stamp: from_bytes("a stamp", stamp)?,
        payload: match header.virtual_len.get() {
            NOT_VIRTUAL => Payload::from_slice(payload),
            len => Payload::Virtual(len.into()),
        },
    })
}

fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("a value on the network can be encoded")
}

fn from_bytes<T: for<'de> Deserialize<'de>>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    postcard::from_bytes(bytes).map_err(|source| CodecError::Decode { what, source })
}
