//! The part of netlink that interfaces and traffic control need: requests with their attributes, and the kernel's
//! responses.
//!
//! [`Socket::perform`] blocks until the kernel responds, which takes microseconds. A socket stays in the network
//! namespace in which it was opened, even if the calling thread moves to another one.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

/// Types of netlink's control messages (`linux/netlink.h`).
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Flags of messages.
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Size of a message's header in bytes: length, kind, flags, sequence number, port.
const HEADER: usize = 16;
/// Size of an attribute's header in bytes: length and kind.
const ATTRIBUTE: usize = 4;
/// Mask of an attribute's kind without its upper bits, which contain flags.
const NLA_TYPE_MASK: u16 = 0x3fff;
const NLA_F_NESTED: u16 = 0x8000;
/// Longest message from the kernel, in bytes.
const LONGEST: usize = 1 << 16;
/// Number of attempts to read a list that changes while it is being read.
const ATTEMPTS: usize = 16;

/// A connection to the kernel's routing and traffic control in one network namespace.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    sequence: Cell<u32>,
}

/// The operation that a message requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Mode {
    /// Reads, removes or changes an existing object.
    Existing = 0,
    /// Adds an object, which must not already exist.
    New = 0x600,
}

/// A message to the kernel.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    body: Vec<u8>,
}

impl Request {
    /// Creates a message of this kind (`RTM_…`) that begins with the fields of `head`.
    pub fn new(kind: u16, mode: Mode, head: &[u8]) -> Request {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | mode as u16).to_ne_bytes());
        Request { bytes }.raw(head)
    }

    /// Appends fields that are not attributes.
    pub fn raw(mut self, fields: &[u8]) -> Request {
        self.bytes.extend_from_slice(fields);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// Appends an attribute.
    pub fn with(self, kind: u16, value: &[u8]) -> Request {
        let length = (ATTRIBUTE + value.len()) as u16;
        let mut header = [0; ATTRIBUTE];
        header[..2].copy_from_slice(&length.to_ne_bytes());
        header[2..].copy_from_slice(&kind.to_ne_bytes());
        self.raw(&header).raw(value)
    }

    /// Appends a number as an attribute.
    pub fn number(self, kind: u16, value: u32) -> Request {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Appends a null-terminated string as an attribute.
    pub fn text(self, kind: u16, value: &str) -> Request {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that consists of other attributes.
    pub fn nested(self, kind: u16, inside: impl FnOnce(Request) -> Request) -> Request {
        let begins = self.bytes.len();
        let mut whole = inside(self.with(kind | NLA_F_NESTED, &[]));
        let length = (whole.bytes.len() - begins) as u16;
        whole.bytes[begins..begins + 2].copy_from_slice(&length.to_ne_bytes());
        whole
    }

    /// Returns the message without its header.
    #[cfg(test)]
    pub(crate) fn into_body(mut self) -> Vec<u8> {
        self.bytes.split_off(HEADER)
    }

    /// Returns the message with its header.
    fn finish(mut self, sequence: u32, flags: u16) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

impl Answer {
    /// Returns the number at `offset` in the fields at the beginning of the message; 0 if the message is
    /// shorter.
    pub fn number(&self, offset: usize) -> u32 {
        word(&self.body, offset).unwrap_or(0)
    }

    /// Returns the value of an attribute, if it is present. The attributes follow `head` bytes of fields.
    pub fn attribute(&self, head: usize, kind: u16) -> Option<&[u8]> {
        attributes(self.body.get(head..)?).find(|it| it.0 == kind).map(|it| it.1)
    }
}

impl Socket {
    /// Connects to the kernel in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the socket.
    pub fn open() -> io::Result<Socket> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Socket { socket, sequence: Cell::new(0) })
    }

    /// Sends a request, and waits until the kernel has performed it.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub fn perform(&self, request: Request) -> io::Result<()> {
        self.ask(request, NLM_F_ACK).map(drop)
    }

    /// Requests one object. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error.
    pub fn get(&self, request: Request) -> io::Result<Option<Answer>> {
        match self.ask(request, NLM_F_ACK) {
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
            answers => Ok(answers?.1.into_iter().next()),
        }
    }

    /// Requests all objects of a kind.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error. Fails if the list changes at every attempt to read it.
    pub fn list(&self, request: Request) -> io::Result<Vec<Answer>> {
        for _ in 0..ATTEMPTS {
            let (changed, answers) = self.ask(request.clone(), NLM_F_DUMP)?;
            if !changed {
                return Ok(answers);
            }
        }
        Err(io::Error::other(format!(
            "the kernel's list changed during each of {ATTEMPTS} attempts to read it"
        )))
    }

    /// Returns the responses to a request. The first value is `true` if they are inconsistent because the list changed
    /// while it was read.
    fn ask(&self, request: Request, flags: u16) -> io::Result<(bool, Vec<Answer>)> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let socket = self.socket.as_raw_fd();
        send(socket, &request.finish(sequence, flags), MsgFlags::empty())?;
        let (mut changed, mut answers) = (false, Vec::new());
        let mut buffer = vec![0; LONGEST];
        loop {
            let length = recv(socket, &mut buffer, MsgFlags::MSG_TRUNC)?;
            let received = buffer.get(..length).ok_or(io::ErrorKind::FileTooLarge)?;
            for message in messages(received).filter(|it| it.sequence == sequence) {
                changed |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR | NLMSG_DONE => {
                        // Some kernels end a complete list without an error code.
                        let code = word(message.body, 0).unwrap_or(0) as i32;
                        return if code == 0 { Ok((changed, answers)) } else { Err(refusal(code)) };
                    }
                    _ => answers.push(Answer { body: message.body.to_vec() }),
                }
            }
        }
    }
}

/// Converts the kernel's negative error code.
fn refusal(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code.saturating_neg())
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Splits received bytes into messages. Stops at a truncated message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = word(bytes, 0)? as usize;
        let half = |offset: usize| Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let message = Message {
            kind: half(4)?,
            flags: half(6)?,
            sequence: word(bytes, 8)?,
            body: bytes.get(HEADER..length)?,
        };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Splits `bytes` into attributes, each with its kind. Stops at a truncated attribute.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let half = |offset: usize| Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?));
        let (length, kind) = (usize::from(half(0)?), half(2)? & NLA_TYPE_MASK);
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the 32-bit number at `offset`, in the machine's byte order; `None` if `bytes` is too short.
pub fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_layout_that_the_kernel_expects() {
        let request = Request::new(16, Mode::New, &[0; 16]).text(3, "data").nested(18, |it| it.number(1, 7));
        let bytes = request.finish(5, NLM_F_ACK);
        let mut expected = Vec::new();
        expected.extend([56_u32.to_ne_bytes(), [0; 4], 5_u32.to_ne_bytes(), [0; 4]].concat());
        expected[4..8].copy_from_slice(&[16_u16.to_ne_bytes(), 0x605_u16.to_ne_bytes()].concat());
        expected.extend([0; 16]);
        expected.extend([9_u16.to_ne_bytes(), 3_u16.to_ne_bytes()].concat());
        expected.extend(*b"data\0\0\0\0");
        expected.extend([12_u16.to_ne_bytes(), 0x8012_u16.to_ne_bytes()].concat());
        expected.extend(
            [[8_u16.to_ne_bytes(), 1_u16.to_ne_bytes()].concat(), 7_u32.to_ne_bytes().to_vec()].concat(),
        );
        assert_eq!(bytes.len(), 56);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn attributes_are_read_back_without_truncated_ones() {
        let whole =
            Request { bytes: Vec::new() }.number(1, 7).text(2, "ab").nested(3, |it| it.number(4, 8)).bytes;
        let read: Vec<_> = attributes(&whole).map(|(kind, value)| (kind, value.len())).collect();
        assert_eq!(read, [(1, 4), (2, 3), (3, 8)]);
        for length in 0..whole.len() {
            assert!(attributes(&whole[..length]).count() < 3, "{length}");
        }
        // A message of length 0 must not be read repeatedly.
        assert_eq!(attributes(&[0; 64]).count(), 0);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
