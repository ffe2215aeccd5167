//! Histories: the operations of clients, with what was asked, when, and what was answered.

use crate::hash::Map;

/// The time of a return that never happened.
pub const NEVER: u64 = u64::MAX;

/// The greatest magnitude of a number that is a [`Value`] by itself.
const LARGEST: i64 = 1 << 62;

/// A value that clients write and read: a number, or the number of a text in [`History::texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(i64);

impl Value {
    /// The absence of a value: what a register holds before the first write.
    pub const NULL: Value = Value(i64::MIN);

    /// Returns the value that represents a number, or `None` if its magnitude exceeds 2^62.
    pub const fn number(number: i64) -> Option<Value> {
        if number < -LARGEST || number > LARGEST { None } else { Some(Value(number)) }
    }

    /// Returns the number, unless the value is a text or [`Value::NULL`].
    pub const fn as_number(self) -> Option<i64> {
        if self.0 < -LARGEST { None } else { Some(self.0) }
    }

    /// Returns the index of the text in [`History::texts`], if the value is one.
    pub const fn as_text(self) -> Option<usize> {
        if self.0 < -LARGEST && self.0 != i64::MIN { Some((self.0 - i64::MIN - 1) as usize) } else { None }
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value(i64::from(number))
    }
}

/// The number of a key in [`History::keys`].
pub type Key = u32;

/// One step of a transaction on lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends a value to the list of a key.
    Append(Key, Value),
    /// Reads the list of a key.
    Read(Key),
}

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reads a register. Answer: [`Answer::Value`].
    Read(Key),
    /// Writes a value to a register. Answer: [`Answer::Done`].
    Write(Key, Value),
    /// Replaces the first value with the second, unless the register holds another one. Answer: [`Answer::Flag`].
    Cas(Key, Value, Value),
    /// Appends a text to the text in a register, which is empty at first. Answer: [`Answer::Done`].
    AppendText(Key, Value),
    /// Carries out the steps of a transaction. Answer: [`Answer::Lists`], one per [`Step::Read`].
    Txn(Box<[Step]>),
    /// Adds an element to the set, or a number to the counter. Answer: [`Answer::Done`].
    Add(Value),
    /// Reads the set, the counter or all accounts. Answer: [`Answer::Values`]; for a counter, [`Answer::Value`].
    ReadAll,
    /// Appends an element to the queue. Answer: [`Answer::Done`].
    Enqueue(Value),
    /// Removes an element from the queue. Answer: [`Answer::Value`], with [`Value::NULL`] if the queue is empty.
    Dequeue,
    /// Appends a value to the log of a key. Answer: [`Answer::Value`], the offset; or [`Answer::Done`] if unknown.
    Send(Key, Value),
    /// Reads the log of a key from an offset, or from one that the history does not state. Answer: [`Answer::Entries`].
    Poll(Key, Option<i64>),
    /// Requests an identifier that no other client gets. Answer: [`Answer::Value`].
    Next,
    /// Acquires a lock. Answer: [`Answer::Done`], or [`Answer::Value`] with a fencing token.
    Acquire(Key),
    /// Releases a lock. Answer: [`Answer::Done`].
    Release(Key),
    /// Transfers an amount between two accounts. Answer: [`Answer::Flag`] or [`Answer::Done`].
    Transfer(Value, Value, i64),
}

impl Call {
    /// Returns the name of the kind of operation, as in a history.
    pub const fn kind(&self) -> &'static str {
        match self {
            Call::Read(_) | Call::ReadAll => "read",
            Call::Write(..) => "write",
            Call::Cas(..) => "cas",
            Call::AppendText(..) => "append",
            Call::Txn(_) => "txn",
            Call::Add(_) => "add",
            Call::Enqueue(_) => "enqueue",
            Call::Dequeue => "dequeue",
            Call::Send(..) => "send",
            Call::Poll(..) => "poll",
            Call::Next => "next",
            Call::Acquire(_) => "acquire",
            Call::Release(_) => "release",
            Call::Transfer(..) => "transfer",
        }
    }
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The operation was carried out.
    Done,
    /// Whether the operation was carried out.
    Flag(bool),
    /// A value.
    Value(Value),
    /// The elements of a set, or the balances of all accounts.
    Values(Box<[Value]>),
    /// Entries of a log: offsets and values.
    Entries(Box<[(i64, Value)]>),
    /// The lists that a transaction read, in the order of its reads.
    Lists(Box<[Box<[Value]>]>),
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer. A model ignores an answer of another type than the call's.
    Ok(Answer),
    /// Without any effect, now or later.
    Failed,
    /// Unknown: it takes effect once, at any time after the call, or never.
    Unknown,
}

/// One operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client, an index into [`History::clients`].
    pub client: u32,
    /// The session. An operation without a result ends the session of its client.
    pub session: u32,
    /// The line of the history that contains the call, from 1; 0 if there is none.
    pub line: u32,
    /// The time of the call, in nanoseconds or, if the history has no times, as a position in it.
    pub call_at: u64,
    /// The time of the return, in the same unit; [`NEVER`] if the outcome is unknown.
    pub return_at: u64,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub outcome: Outcome,
}

impl Operation {
    /// Returns the answer, if there is one.
    pub const fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Ok(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns whether the operation had no effect.
    pub const fn is_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed)
    }

    /// Returns the time of the return or, if the outcome is unknown, that of the call.
    pub(crate) const fn end(&self) -> u64 {
        if self.return_at == NEVER { self.call_at } else { self.return_at }
    }

    /// Returns whether this operation ended before `other` began. Operations with the same time are concurrent.
    pub const fn precedes(&self, other: &Operation) -> bool {
        self.return_at < other.call_at
    }
}

/// Texts, each with a number.
#[derive(Clone, Debug, Default)]
pub struct Names {
    all: Vec<Box<str>>,
    numbers: Map<Box<str>, u32>,
}

impl Names {
    /// Returns the number of a text, which is added if necessary.
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// Returns a text, or `?` if there is none with this number.
    pub fn get(&self, number: usize) -> &str {
        self.all.get(number).map_or("?", |it| it)
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The operations of all clients, and the names that they use.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations. Those of a session are in the order in which it called them.
    pub operations: Vec<Operation>,
    /// The names of the clients.
    pub clients: Names,
    /// The names of the keys, numbered by their first appearance. A model without keys uses none.
    pub keys: Names,
    /// The texts among the values.
    pub texts: Names,
    /// Faults and other events that are no operations, with their times.
    pub events: Vec<(u64, String)>,
    /// Whether times are in nanoseconds, rather than positions in a file.
    pub is_timed: bool,
}

impl History {
    /// Returns the value that represents a text.
    pub fn text(&mut self, text: &str) -> Value {
        Value(i64::MIN + 1 + i64::from(self.texts.intern(text)))
    }

    /// Returns a value as in a sentence: a number, `null`, or a text of at most 24 characters in quotes.
    pub fn show(&self, value: Value) -> String {
        match (value.as_number(), value.as_text()) {
            (Some(number), _) => number.to_string(),
            (None, None) => "null".to_owned(),
            (None, Some(text)) => {
                let text = self.texts.get(text);
                match text.char_indices().nth(24) {
                    None => format!("{text:?}"),
                    // The end of a text that grows says more than its beginning.
                    Some(_) => {
                        let end: String = Vec::from_iter(text.chars().rev().take(20)).iter().rev().collect();
                        format!("…{end:?}")
                    }
                }
            }
        }
    }

    /// Returns the name of a key.
    pub fn key(&self, key: Key) -> &str {
        self.keys.get(key as usize)
    }

    /// Returns the name of an operation's client, as in a sentence: `client 3`.
    pub fn client(&self, operation: &Operation) -> String {
        format!("client {}", self.clients.get(operation.client as usize))
    }

    /// Returns a time as in a sentence: `12.41 s`, or `line 7` if the history has no times.
    pub fn time(&self, time: u64) -> String {
        match self.is_timed {
            true => format!("{:.2} s", time as f64 / 1e9),
            false => format!("event {time}"),
        }
    }

    /// Returns an operation and its answer in a few words: `read → 5`, `cas 3 → 4: false`.
    pub fn describe(&self, operation: &Operation) -> String {
        let show = |value: &Value| self.show(*value);
        let answer = operation.answer();
        let call = match &operation.call {
            Call::Write(_, value) => format!("write {}", show(value)),
            Call::Cas(_, from, to) => {
                let end = match answer {
                    Some(Answer::Flag(false)) => ": false",
                    _ => "",
                };
                format!("cas {} to {}{end}", show(from), show(to))
            }
            Call::AppendText(_, value) => format!("append {}", show(value)),
            Call::Add(value) => format!("add {}", show(value)),
            Call::Enqueue(value) => format!("enqueue {}", show(value)),
            Call::Send(_, value) => format!("send {}", show(value)),
            Call::Transfer(from, to, amount) => {
                format!("transfer {amount} from {} to {}", show(from), show(to))
            }
            Call::Txn(steps) => {
                let mut lists = match answer {
                    Some(Answer::Lists(lists)) => lists.iter(),
                    _ => [].iter(),
                };
                let steps = steps.iter().map(|step| match step {
                    Step::Append(key, value) => format!("append {} to {}", show(value), self.key(*key)),
                    Step::Read(key) => match lists.next() {
                        Some(list) => format!("{}: {}", self.key(*key), self.list(list)),
                        None => format!("read {}", self.key(*key)),
                    },
                });
                Vec::from_iter(steps).join(", ")
            }
            other => other.kind().to_owned(),
        };
        match answer {
            Some(Answer::Value(Value::NULL)) if operation.call == Call::Dequeue => format!("{call} → empty"),
            Some(Answer::Value(value)) => format!("{call} → {}", show(value)),
            Some(Answer::Values(values)) => format!("{call} → {}", self.list(values)),
            Some(Answer::Entries(entries)) => {
                let all = entries.iter().map(|(offset, value)| format!("{offset}: {}", show(value)));
                format!("{call} → {}", Vec::from_iter(all).join(", "))
            }
            Some(Answer::Flag(false)) if matches!(operation.call, Call::Transfer(..)) => {
                format!("{call}: false")
            }
            _ => call,
        }
    }

    /// Returns a list of values, of which at most six are shown.
    pub(crate) fn list(&self, values: &[Value]) -> String {
        let begin = values.len().saturating_sub(6);
        let shown = values[begin..].iter().map(|it| self.show(*it));
        format!("[{}{}]", if begin > 0 { "… " } else { "" }, Vec::from_iter(shown).join(" "))
    }
}
