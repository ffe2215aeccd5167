//! The content of an application message, as text that a program passes on unchanged. The text contains a check, so a
//! payload that was altered, or that belongs to another message, is detected without remembering any payload.

use faultline_core::{MessageId, Payload};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Length of the check, and of the tag before the content, in bytes.
const CHECK: usize = 8;
const BYTES: u8 = 0;
const LENGTH: u8 = 1;

/// Returns the text for a payload: base64 without padding.
pub(crate) fn encode(id: MessageId, payload: &Payload) -> String {
    let mut bytes = vec![0; CHECK];
    match payload {
        Payload::Virtual(length) => {
            bytes.push(LENGTH);
            bytes.extend(length.to_le_bytes());
        }
        _ => {
            bytes.push(BYTES);
            bytes.extend(payload.bytes());
        }
    }
    let check = check(id, &bytes[CHECK..]);
    bytes[..CHECK].copy_from_slice(&check.to_le_bytes());
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    let digit = |word: u32, shift: u32| DIGITS[(word >> shift) as usize & 63];
    let mut chunks = bytes.chunks_exact(3);
    for chunk in &mut chunks {
        let word = u32::from_be_bytes([0, chunk[0], chunk[1], chunk[2]]);
        text.extend_from_slice(&[digit(word, 18), digit(word, 12), digit(word, 6), digit(word, 0)]);
    }
    match *chunks.remainder() {
        [a] => text.extend_from_slice(&[digit(u32::from(a) << 16, 18), digit(u32::from(a) << 16, 12)]),
        [a, b] => {
            let word = u32::from_be_bytes([0, a, b, 0]);
            text.extend_from_slice(&[digit(word, 18), digit(word, 12), digit(word, 6)]);
        }
        _ => {}
    }
    String::from_utf8(text).expect("the digits are ASCII")
}

/// Returns the payload of a message; `None` if the text is not the payload of this message.
pub(crate) fn decode(id: MessageId, text: &str) -> Option<Payload> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let digits = chunk.iter().map(|&it| value(it));
        let word =
            digits.enumerate().try_fold(0, |word, (at, digit)| Some(word | digit? << (18 - 6 * at)))?;
        bytes.extend(&word.to_be_bytes()[1..chunk.len().max(1)]);
    }
    let content = bytes.get(CHECK..)?;
    if bytes[..CHECK] != check(id, content).to_le_bytes() {
        return None;
    }
    match content.split_first()? {
        (&LENGTH, length) => Some(Payload::Virtual(u64::from_le_bytes(length.try_into().ok()?))),
        (_, content) => Some(Payload::from_slice(content)),
    }
}

fn value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

fn check(id: MessageId, content: &[u8]) -> u64 {
    content.chunks(8).fold(id.mix() ^ content.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 29
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Incarnation, ProcessId};

    fn id(number: u32) -> MessageId {
        MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Incarnation(0), number }
    }

    #[test]
    fn a_payload_is_unchanged_and_belongs_to_one_message() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|it: u8| it.wrapping_mul(37)).collect();
            let payload = Payload::from_slice(&bytes);
            let text = encode(id(7), &payload);
            assert_eq!(decode(id(7), &text), Some(payload), "{text}");
            assert_eq!(decode(id(8), &text), None);
            assert_eq!(decode(id(7), &text.replacen(&text[3..4], "-", 1)), None);
            assert_eq!(decode(id(7), &text[1..]), None);
        }
        let text = encode(id(7), &Payload::Virtual(1 << 40));
        assert_eq!(decode(id(7), &text), Some(Payload::Virtual(1 << 40)));
        assert_eq!(decode(id(7), ""), None);
        assert_eq!(decode(id(7), "€€"), None);
    }
}
