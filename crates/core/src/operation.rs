//! Operations of clients on a user's own system: what a client was asked to do, and what it was told. All clients of an
//! entry in the federation file share a *history*, which is numbered in the manifest.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

/// The numbers of operations of the final phase, in which clients read everything once more, begin here. Operations with
/// smaller numbers are arrivals.
pub const FINAL: u64 = 1 << 40;
/// The maximum number of bytes that a fact quotes of the reason why an operation has no answer.
pub const MOST_OF_REASON: usize = 200;

/// A key, register or account. Clients see it as a text, such as `k7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(pub u32);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}", self.0)
    }
}

/// What a client was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Call {
    /// Reads a register. Answered with [`Answer::Number`] or [`Answer::Null`].
    Read(Key),
    /// Writes a value to a register. Answered with [`Answer::Null`].
    Write(Key, i64),
    /// Replaces the first value of a register with the second, unless it holds another one. Answered with
    /// [`Answer::Flag`].
    Cas(Key, Option<i64>, i64),
    /// Carries out a transaction on lists. Answered with [`Answer::Lists`], one for each [`Step::Read`].
    Txn(Box<[Step]>),
    /// Adds an element to a set, or a number to a counter. Answered with [`Answer::Null`].
    Add(i64),
    /// Reads a set, a counter, or all accounts. Answered with [`Answer::Numbers`]; for a counter, with
    /// [`Answer::Number`].
    ReadAll,
    /// Appends an element to a queue. Answered with [`Answer::Null`].
    Enqueue(i64),
    /// Removes an element from a queue. Answered with [`Answer::Number`], or with [`Answer::Null`] if it is empty.
    Dequeue,
    /// Appends a value to a log. Answered with [`Answer::Number`], the offset.
    Send(Key, i64),
    /// Reads a log from an offset. Answered with [`Answer::Entries`].
    Poll(Key, i64),
    /// Requests an identifier. Answered with [`Answer::Number`] or [`Answer::Text`].
    Next,
    /// Acquires the lock. Answered with [`Answer::Null`], or with [`Answer::Number`], a fencing token.
    Acquire,
    /// Releases the lock. Answered with [`Answer::Null`].
    Release,
    /// Transfers an amount from one account to another. Answered with [`Answer::Flag`].
    Transfer(u32, u32, i64),
}

/// A step of a transaction on lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Reads a list.
    Read(Key),
    /// Appends a value to a list.
    Append(Key, i64),
}

/// What a client was told by the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// Nothing more than that the operation was carried out, or that there is no value.
    Null,
    /// Whether the operation was carried out.
    Flag(bool),
    /// A number.
    Number(i64),
    /// A text: an identifier that is no number.
    Text(Arc<str>),
    /// The elements of a set, or the balances of all accounts.
    Numbers(Box<[i64]>),
    /// Entries of a log: offsets and values.
    Entries(Box<[(i64, i64)]>),
    /// The lists that a transaction read, in the order of its reads.
    Lists(Box<[Box<[i64]>]>),
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Completion {
    /// With this answer of the system.
    Ok(Answer),
    /// The client says that the operation had no effect, and never will, for this reason.
    Failed(Arc<str>),
    /// It is unknown, for this reason, whether the operation took effect, or will.
    Unknown(Arc<str>),
    /// The client broke its contract in this way, so the effect of the operation is unknown as well.
    Broken(Arc<str>),
}

impl Call {
    /// Returns the kind of the operation, as in a federation file and in the lines of clients.
    pub const fn kind(&self) -> &'static str {
        match self {
            Call::Read(_) | Call::ReadAll => "read",
            Call::Write(..) => "write",
            Call::Cas(..) => "cas",
            Call::Txn(_) => "txn",
            Call::Add(_) => "add",
            Call::Enqueue(_) => "enqueue",
            Call::Dequeue => "dequeue",
            Call::Send(..) => "send",
            Call::Poll(..) => "poll",
            Call::Next => "next",
            Call::Acquire => "acquire",
            Call::Release => "release",
            Call::Transfer(..) => "transfer",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Read(key) => write!(f, "read {key}"),
            Call::Write(key, value) => write!(f, "write {value} to {key}"),
            Call::Cas(key, Some(from), to) => write!(f, "cas {key} from {from} to {to}"),
            Call::Cas(key, None, to) => write!(f, "cas {key} from null to {to}"),
            Call::Txn(steps) => {
                for (at, step) in steps.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    match step {
                        Step::Read(key) => write!(f, "read {key}")?,
                        Step::Append(key, value) => write!(f, "append {value} to {key}")?,
                    }
                }
                Ok(())
            }
            Call::Add(value) => write!(f, "add {value}"),
            Call::Enqueue(value) => write!(f, "enqueue {value}"),
            Call::Send(key, value) => write!(f, "send {value} to {key}"),
            Call::Poll(key, from) => write!(f, "poll {key} from {from}"),
            Call::Transfer(from, to, amount) => write!(f, "transfer {amount} from {from} to {to}"),
            Call::ReadAll | Call::Dequeue | Call::Next | Call::Acquire | Call::Release => {
                f.write_str(self.kind())
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Null => f.write_str("null"),
            Answer::Flag(flag) => write!(f, "{flag}"),
            Answer::Number(number) => write!(f, "{number}"),
            Answer::Text(text) => write!(f, "{text:?}"),
            Answer::Numbers(all) => write!(f, "{} numbers", all.len()),
            Answer::Entries(all) => write!(f, "{} entries", all.len()),
            Answer::Lists(all) => write!(f, "{} lists", all.len()),
        }
    }
}

impl Completion {
    /// Returns the answer of the system, if there is one.
    pub const fn answer(&self) -> Option<&Answer> {
        match self {
            Completion::Ok(answer) => Some(answer),
            _ => None,
        }
    }
}
