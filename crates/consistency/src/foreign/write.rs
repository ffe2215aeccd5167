//! Histories as EDN, so that Elle and Knossos can judge them, too.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use crate::models::Model;
use crate::operation::{Answer, Call, History, Key, NEVER, Operation, Outcome, Step, Value};

/// Writes the operations of a history as Jepsen does: a map per line, ordered by time. Each session is a process of its
/// own, and so is an operation that begins before the one before it in its session has ended. An operation without a result
/// has no second line.
///
/// # Errors
///
/// Fails if `out` does.
pub fn write(history: &History, model: &Model, out: &mut impl Write) -> fmt::Result {
    let mut events: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * history.operations.len());
    for (number, it) in history.operations.iter().enumerate() {
        events.push((it.call_at, number, false));
        if it.return_at != NEVER {
            events.push((it.return_at, number, true));
        }
    }
    let processes = processes(&history.operations);
    // At the same time, a session returns before it calls again.
    events.sort_unstable();
    for (index, (time, number, is_return)) in events.into_iter().enumerate() {
        let it = &history.operations[number];
        let written = Written { history, model: model.name, operation: it };
        write!(out, "{{:index {index}, :time {time}, :process {}, :type :", processes[number])?;
        match (is_return, &it.outcome) {
            (false, _) => write!(out, "invoke, :f :{}, {}", written.f(), written.asked())?,
            // This is how clients of Jepsen say that a register held another value.
            (true, Outcome::Ok(Answer::Flag(false))) => {
                write!(out, "fail, :f :{}, {}", written.f(), written.asked())?;
            }
            (true, Outcome::Ok(Answer::Value(Value::NULL))) if it.call == Call::Dequeue => {
                write!(out, "fail, :f :{}, :value nil, :error :empty", written.f())?;
            }
            (true, Outcome::Ok(answer)) => {
                write!(out, "ok, :f :{}, {}", written.f(), written.answered(answer))?
            }
            (true, _) => write!(out, "fail, :f :{}, {}, :error :failed", written.f(), written.asked())?,
        }
        out.write_str("}\n")?;
    }
    Ok(())
}

/// Returns the number of the process of each operation.
fn processes(operations: &[Operation]) -> Vec<u32> {
    let mut busy_until: BTreeMap<u32, u64> = BTreeMap::new();
    let mut others = operations.iter().map(|it| it.session + 1).max().unwrap_or_default()..;
    let process = |it: &Operation| match busy_until.get(&it.session) {
        Some(until) if *until > it.call_at => others.next().unwrap_or(u32::MAX),
        _ => {
            busy_until.insert(it.session, it.return_at);
            it.session
        }
    };
    operations.iter().map(process).collect()
}

/// An operation of a history, in the terms of a model.
struct Written<'a> {
    history: &'a History,
    model: &'a str,
    operation: &'a Operation,
}

impl Written<'_> {
    fn f(&self) -> &'static str {
        match self.operation.call {
            Call::Next => "generate",
            ref call => call.kind(),
        }
    }

    /// Returns the fields that state what was asked.
    fn asked(&self) -> String {
        let show = |it: &Value| self.value(*it);
        match &self.operation.call {
            Call::Read(key) => self.of(*key, "nil"),
            Call::Write(key, value) | Call::AppendText(key, value) => self.of(*key, show(value)),
            Call::Send(key, value) => self.of(*key, show(value)),
            Call::Cas(key, from, to) => self.of(*key, format!("[{} {}]", show(from), show(to))),
            Call::Txn(steps) => format!(":value {}", self.steps(steps, &[])),
            Call::Add(value) | Call::Enqueue(value) => format!(":value {}", show(value)),
            Call::Poll(key, from) => {
                self.of(*key, from.map_or_else(|| "nil".to_owned(), |it| it.to_string()))
            }
            Call::Acquire(key) | Call::Release(key) => self.of(*key, "nil"),
            Call::Transfer(from, to, amount) => {
                format!(":value {{:from {}, :to {}, :amount {amount}}}", show(from), show(to))
            }
            Call::ReadAll | Call::Dequeue | Call::Next => ":value nil".to_owned(),
        }
    }

    /// Returns the fields that state what was answered.
    fn answered(&self, answer: &Answer) -> String {
        let list = |all: &[Value]| all.iter().map(|it| self.value(*it)).collect::<Vec<_>>();
        let text = match answer {
            Answer::Done | Answer::Flag(_) => return self.asked(),
            Answer::Value(value) => self.value(*value),
            Answer::Values(all) if self.model == "bank" => {
                let accounts =
                    list(all).into_iter().enumerate().map(|(account, it)| format!("{account} {it}"));
                format!("{{{}}}", accounts.collect::<Vec<_>>().join(", "))
            }
            Answer::Values(all) => {
                let mut distinct = all.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                // A set that was read with an element twice is no set.
                let begin = if distinct.len() == all.len() { "#{" } else { "[" };
                let end = if distinct.len() == all.len() { "}" } else { "]" };
                format!("{begin}{}{end}", list(all).join(" "))
            }
            Answer::Entries(all) => {
                let all = all.iter().map(|(offset, it)| format!("[{offset} {}]", self.value(*it)));
                format!("[{}]", all.collect::<Vec<_>>().join(" "))
            }
            Answer::Lists(lists) => match &self.operation.call {
                Call::Txn(steps) => self.steps(steps, lists),
                _ => "nil".to_owned(),
            },
        };
        match &self.operation.call {
            Call::Read(key) | Call::Send(key, _) | Call::Poll(key, _) | Call::Acquire(key) => {
                self.of(*key, text)
            }
            _ => format!(":value {text}"),
        }
    }

    /// Returns the fields for a key and a value. Jepsen's independent keys are pairs of both.
    fn of(&self, key: Key, value: impl Display) -> String {
        match self.history.key(key) {
            "" => format!(":value {value}"),
            key if self.model == "log" => format!(":key {}, :value {value}", Name(key)),
            key => format!(":value [{} {value}]", Name(key)),
        }
    }

    fn steps(&self, steps: &[Step], lists: &[Box<[Value]>]) -> String {
        let mut lists = lists.iter();
        let step = |it: &Step| match it {
            Step::Append(key, value) => {
                format!("[:append {} {}]", Name(self.history.key(*key)), self.value(*value))
            }
            Step::Read(key) => {
                let list =
                    lists.next().map(|it| it.iter().map(|it| self.value(*it)).collect::<Vec<_>>().join(" "));
                let list = list.map_or_else(|| "nil".to_owned(), |it| format!("[{it}]"));
                format!("[:r {} {list}]", Name(self.history.key(*key)))
            }
        };
        format!("[{}]", steps.iter().map(step).collect::<Vec<_>>().join(" "))
    }

    fn value(&self, value: Value) -> String {
        match (value.as_number(), value.as_text()) {
            (Some(number), _) => number.to_string(),
            (None, Some(text)) => quoted(self.history.texts.get(text)),
            (None, None) => "nil".to_owned(),
        }
    }
}

/// A key: a number, a keyword or, if it has other characters, a text.
struct Name<'a>(&'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name(name) = self;
        let is_word = name.starts_with(|it: char| it.is_ascii_alphabetic())
            && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-' || it == '_');
        match name.parse::<i64>() {
            Ok(number) => write!(f, "{number}"),
            Err(_) if is_word => write!(f, ":{name}"),
            Err(_) => f.write_str(&quoted(name)),
        }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for it in text.chars() {
        match it {
            '"' | '\\' => quoted.extend(['\\', it]),
            '\n' => quoted += "\\n",
            '\t' => quoted += "\\t",
            '\r' => quoted += "\\r",
            _ => quoted.push(it),
        }
    }
    quoted.push('"');
    quoted
}
