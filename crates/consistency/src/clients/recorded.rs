//! Recorded operations as a history for the judge.

use std::collections::HashMap;

use faultline_core::operation::{self, Completion};
use faultline_core::{Life, Time};

use crate::operation::{Answer, Call, History, Key, NEVER, Operation, Outcome, Step, Value};

/// An operation as the facts of a run tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The client.
    pub client: u16,
    /// The life of the node's process, whose sessions have numbers of their own.
    pub life: Life,
    /// The session of the client.
    pub session: u32,
    /// The number of the operation.
    pub number: u64,
    /// The time of the invocation.
    pub invoked: Time,
    /// What was asked.
    pub call: &'a operation::Call,
    /// When the operation ended, and how; `None` if the node failed before it did.
    pub concluded: Option<(Time, &'a Completion)>,
}

/// Returns operations of clients as a history. Times count from `begun`.
pub fn history_of(operations: &[Recorded<'_>], begun: Time) -> History {
    let mut history = History { is_timed: true, ..History::default() };
    let mut sessions: HashMap<(u16, Life, u32), u32> = HashMap::new();
    let since = |it: Time| it.0.saturating_sub(begun.0);
    for it in operations {
        let next = sessions.len() as u32;
        let session = *sessions.entry((it.client, it.life, it.session)).or_insert(next);
        let client = history.clients.intern(&it.client.to_string());
        let call = call_of(it.call, &mut history);
        let (mut return_at, mut outcome) = (NEVER, Outcome::Unknown);
        match it.concluded {
            Some((at, Completion::Ok(answer))) => {
                return_at = since(at);
                outcome = Outcome::Ok(answer_of(it.call, answer, &mut history));
            }
            Some((at, Completion::Failed(_))) => {
                return_at = since(at);
                outcome = Outcome::Failed;
            }
            Some((_, Completion::Unknown(_) | Completion::Broken(_))) | None => {}
        }
        let call_at = since(it.invoked);
        history.operations.push(Operation { client, session, line: 0, call_at, return_at, call, outcome });
    }
    history
}

fn call_of(call: &operation::Call, history: &mut History) -> Call {
    let mut key = |it: &operation::Key| -> Key { history.keys.intern(&it.to_string()) };
    match call {
        operation::Call::Read(it) => Call::Read(key(it)),
        operation::Call::Write(it, value) => Call::Write(key(it), number(*value)),
        operation::Call::Cas(it, from, to) => {
            Call::Cas(key(it), from.map_or(Value::NULL, number), number(*to))
        }
        operation::Call::Txn(steps) => Call::Txn(
            steps
                .iter()
                .map(|step| match step {
                    operation::Step::Read(it) => Step::Read(key(it)),
                    operation::Step::Append(it, value) => Step::Append(key(it), number(*value)),
                })
                .collect(),
        ),
        operation::Call::Add(value) => Call::Add(number(*value)),
        operation::Call::ReadAll => Call::ReadAll,
        operation::Call::Enqueue(value) => Call::Enqueue(number(*value)),
        operation::Call::Dequeue => Call::Dequeue,
        operation::Call::Send(it, value) => Call::Send(key(it), number(*value)),
        operation::Call::Poll(it, from) => Call::Poll(key(it), Some(*from)),
        operation::Call::Next => Call::Next,
        operation::Call::Acquire => Call::Acquire(history.keys.intern("")),
        operation::Call::Release => Call::Release(history.keys.intern("")),
        operation::Call::Transfer(from, to, amount) => {
            Call::Transfer(Value::from(*from), Value::from(*to), *amount)
        }
    }
}

fn answer_of(call: &operation::Call, answer: &operation::Answer, history: &mut History) -> Answer {
    let all = |it: &[i64]| it.iter().map(|it| number(*it)).collect();
    match answer {
        operation::Answer::Null => match call {
            operation::Call::Read(_) | operation::Call::Dequeue => Answer::Value(Value::NULL),
            _ => Answer::Done,
        },
        operation::Answer::Flag(flag) => Answer::Flag(*flag),
        operation::Answer::Number(value) => Answer::Value(number(*value)),
        operation::Answer::Text(text) => Answer::Value(history.text(text)),
        operation::Answer::Numbers(values) => Answer::Values(all(values)),
        operation::Answer::Entries(entries) => {
            Answer::Entries(entries.iter().map(|(offset, value)| (*offset, number(*value))).collect())
        }
        operation::Answer::Lists(lists) => Answer::Lists(lists.iter().map(|it| all(it)).collect()),
    }
}

/// Returns a number as a value. Facts contain no numbers that are no values, unless they were changed.
fn number(number: i64) -> Value {
    Value::number(number).unwrap_or(Value::NULL)
}
