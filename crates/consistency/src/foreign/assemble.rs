//! Turns events into operations: pairs invocations with completions, and translates values for a model.

use super::data::Data;
use super::{Event, ForeignError, Type};
use crate::hash::Map;
use crate::models::Model;
use crate::operation::{Answer, Call, History, Key, NEVER, Operation, Outcome, Step, Value};

/// What all events of a file have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whether all events have a time.
    is_timed: bool,
    /// Whether all values of invocations are pairs of a key and a value.
    has_pairs: bool,
    is_empty: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { is_timed: true, has_pairs: true, is_empty: true }
    }
}

impl Shape {
    pub(super) fn learn(&mut self, event: &Event) {
        self.is_timed &= event.time.is_some();
        if is_client(&event.process) {
            self.is_empty = false;
            // A completion without a result may lack its value.
            self.has_pairs &= event.kind != Type::Invoke || event.value.pair().is_some();
        }
    }
}

fn is_client(process: &Data) -> bool {
    process.integer().is_some()
}

/// An operation that was invoked and not completed.
struct Open {
    line: u32,
    call_at: u64,
    f: String,
    key: Key,
    value: Data,
}

/// Operations in the making.
pub(super) struct Assembly {
    model: &'static str,
    kinds: &'static [&'static str],
    repeats: bool,
    shape: Shape,
    history: History,
    open: Map<i64, Open>,
    /// The processes with an open operation, by invocation.
    order: Vec<i64>,
    /// The line of the first write of each value, if values must not repeat.
    writes: Map<(Key, Value), u32>,
    events: u64,
}

impl Assembly {
    pub(super) fn new(model: &Model, shape: Shape) -> Assembly {
        let history = History { is_timed: shape.is_timed, ..History::default() };
        Assembly {
            model: model.name,
            kinds: model.kinds,
            repeats: model.repeats,
            shape,
            history,
            open: Map::default(),
            order: Vec::new(),
            writes: Map::default(),
            events: 0,
        }
    }

    /// Adds the next event of the file.
    pub(super) fn add(&mut self, event: Event) -> Result<(), ForeignError> {
        self.events += 1;
        let time = if self.shape.is_timed { event.time.unwrap_or(0) } else { self.events };
        let line = event.line;
        let Some(process) = event.process.integer() else {
            if event.kind == Type::Info {
                let value =
                    if event.value == Data::Null { String::new() } else { format!(" {}", event.value) };
                self.history.events.push((time, format!("{}{value}", event.f)));
            }
            return Ok(());
        };
        if self.model == "log"
            && ["assign", "subscribe", "crash", "debug-topic-partitions"].contains(&event.f.as_str())
        {
            return Ok(());
        }
        if event.kind == Type::Invoke {
            let (key, value) = self.key_and_value(&event);
            let open = Open { line, call_at: time, f: event.f, key, value };
            if let Some(earlier) = self.open.insert(process, open) {
                let what = format!(
                    "process {process} invokes an operation, but its `{}` of line {} has not ended",
                    earlier.f, earlier.line
                );
                let help = "use another process number after an operation without a result";
                return Err(ForeignError::new(line, what, help));
            }
            self.order.push(process);
            return Ok(());
        }
        let Some(open) = self.open.remove(&process).filter(|open| open.f == event.f) else {
            let what = format!("process {process} completes `{}`, which it has not invoked", event.f);
            return Err(ForeignError::new(line, what, "include all lines of the history"));
        };
        if time < open.call_at {
            let what = format!("`{}` ended before its invocation in line {}", open.f, open.line);
            return Err(ForeignError::new(
                line,
                what,
                "`time` is in nanoseconds, and all times are of one clock",
            ));
        }
        let value = self.key_and_value(&event).1;
        self.complete(process, open, Some((&event, value)), time)
    }

    /// Returns the key of an event, and the rest of its value.
    fn key_and_value(&mut self, event: &Event) -> (Key, Data) {
        let has_keys = ["register", "lock"].contains(&self.model);
        let (key, value) = match (&event.key, event.value.pair()) {
            (Some(key), _) => (key.to_string(), event.value.clone()),
            (None, Some((key, value))) if has_keys && self.shape.has_pairs => {
                (key.to_string(), value.clone())
            }
            _ => (String::new(), event.value.clone()),
        };
        (self.history.keys.intern(&key), value)
    }

    /// Adds the operations that remain open, which have no result.
    ///
    /// # Errors
    ///
    /// Fails if there are no operations.
    pub(super) fn finish(mut self) -> Result<History, ForeignError> {
        for process in std::mem::take(&mut self.order) {
            if let Some(open) = self.open.remove(&process) {
                self.complete(process, open, None, NEVER)?;
            }
        }
        if self.shape.is_empty || self.history.operations.is_empty() {
            return Err(ForeignError {
                line: None,
                what: "the history contains no operation of a client".to_owned(),
                help: "a client is a process with a number".to_owned(),
            });
        }
        // Sorting is stable, so the operations of a session stay in order.
        self.history.operations.sort_by_key(|it| (it.call_at, it.line));
        Ok(self.history)
    }

    /// Adds an operation with its end, if it has one.
    fn complete(
        &mut self,
        process: i64,
        open: Open,
        end: Option<(&Event, Data)>,
        time: u64,
    ) -> Result<(), ForeignError> {
        let line = open.line;
        let kind = end.as_ref().map_or(Type::Info, |it| it.0.kind);
        let error = end.as_ref().map_or(&Data::Null, |it| &it.0.error);
        let answer = end.as_ref().map_or(&Data::Null, |it| &it.1);
        let parts = self.translate(&open, kind, answer, error)?;
        let client = self.history.clients.intern(&process.to_string());
        for (call, outcome) in parts {
            self.check_repetition(line, &call)?;
            let return_at = if outcome == Outcome::Unknown { NEVER } else { time };
            let (call_at, session) = (open.call_at, client);
            self.history.operations.push(Operation {
                client,
                session,
                line,
                call_at,
                return_at,
                call,
                outcome,
            });
        }
        Ok(())
    }

    /// Refuses a second write of a value, unless the model permits it.
    fn check_repetition(&mut self, line: u32, call: &Call) -> Result<(), ForeignError> {
        if self.repeats {
            return Ok(());
        }
        let mut written = Vec::new();
        match call {
            Call::Add(value) | Call::Enqueue(value) => written.push((0, *value)),
            Call::Send(key, value) => written.push((*key, *value)),
            Call::Txn(steps) => written.extend(steps.iter().filter_map(|it| match it {
                Step::Append(key, value) => Some((*key, *value)),
                Step::Read(_) => None,
            })),
            _ => {}
        }
        for (key, value) in written {
            if let Some(first) = self.writes.insert((key, value), line) {
                let (line, first) = (line.max(first), line.min(first));
                let what =
                    format!("the value {} was written before, in line {first}", self.history.show(value));
                let help =
                    format!("`{}` needs values that name their writer: write each value once", self.model);
                return Err(ForeignError::new(line, what, help));
            }
        }
        Ok(())
    }

    /// Returns the calls and outcomes of an operation, which is usually one.
    fn translate(
        &mut self,
        open: &Open,
        kind: Type,
        answer: &Data,
        error: &Data,
    ) -> Result<Vec<(Call, Outcome)>, ForeignError> {
        let line = open.line;
        let (key, value) = (open.key, &open.value);
        let history = &mut self.history;
        let wrong = |what: &str, help: &str| {
            let found = shortened(&what.replace("{}", &value.to_string()));
            Err(ForeignError::new(line, format!("`{}` {found}", open.f), help))
        };
        // What an answer of this type means, unless the operation failed.
        let outcome = |answer: Option<Answer>| match (kind, answer) {
            (Type::Ok, Some(answer)) => Outcome::Ok(answer),
            (Type::Fail, _) => Outcome::Failed,
            _ => Outcome::Unknown,
        };
        let done = outcome(Some(Answer::Done));
        let is_ok = kind == Type::Ok;
        let one = |call: Call, outcome: Outcome| Ok(vec![(call, outcome)]);
        match (self.model, open.f.as_str()) {
            ("register", "read") => one(Call::Read(key), outcome(Some(Answer::Value(answer.value(history))))),
            ("register", "write") => one(Call::Write(key, value.value(history)), done),
            ("register", "cas") => {
                let Some((from, to)) = value.pair() else {
                    return wrong("needs two values, not `{}`", "use the value `[from to]`");
                };
                let call = Call::Cas(key, from.value(history), to.value(history));
                // Without an error, the register held another value.
                let answer = Some(Answer::Flag(is_ok && *answer != Data::Bool(false)));
                match kind {
                    Type::Fail if *error == Data::Null => one(call, Outcome::Ok(Answer::Flag(false))),
                    _ => one(call, outcome(answer)),
                }
            }
            ("register", "get") => one(Call::Read(key), outcome(Some(Answer::Value(text(answer, history))))),
            ("register", "put") => one(Call::Write(key, text(value, history)), done),
            ("register", "append") => one(Call::AppendText(key, text(value, history)), done),
            ("list", "txn") => {
                let steps = |data: &Data, history: &mut History| -> Option<Vec<(Step, Data)>> {
                    data.list()?.iter().map(|it| step(it, history)).collect()
                };
                let Some(asked) = steps(value, history) else {
                    let help = "use steps such as `[:r key nil]` and `[:append key value]`";
                    return wrong("has steps that are neither reads nor appends: `{}`", help);
                };
                let answered = if is_ok { steps(answer, history) } else { None };
                let asked: Vec<Step> = asked.into_iter().map(|it| it.0).collect();
                let lists = match answered {
                    Some(all) if all.iter().map(|it| it.0).eq(asked.iter().copied()) => {
                        let reads = all.iter().filter(|it| matches!(it.0, Step::Read(_)));
                        let lists: Option<Vec<Box<[Value]>>> = reads
                            .map(|it| match &it.1 {
                                Data::Null => Some(Box::default()),
                                list => Some(list.list()?.iter().map(|it| it.value(history)).collect()),
                            })
                            .collect();
                        lists
                    }
                    Some(_) => {
                        return wrong(
                            "was answered with other steps than `{}`",
                            "include the answer of each step",
                        );
                    }
                    None => None,
                };
                if is_ok && lists.is_none() {
                    return wrong(
                        "has an answer without a list for each read of `{}`",
                        "include what each step read",
                    );
                }
                one(Call::Txn(asked.into()), outcome(lists.map(|it| Answer::Lists(it.into()))))
            }
            ("set", "add" | "broadcast") => one(Call::Add(value.value(history)), done),
            ("counter", "add") => match value.integer().and_then(Value::number) {
                Some(number) => one(Call::Add(number), done),
                None => wrong("adds `{}`, which is no number", "use integers up to 2^62"),
            },
            ("set", "read") => match answer.list() {
                Some(all) => {
                    let all = all.iter().map(|it| it.value(history)).collect();
                    one(Call::ReadAll, outcome(Some(Answer::Values(all))))
                }
                None if is_ok => wrong("returned no list", "include the elements that were read"),
                None => one(Call::ReadAll, outcome(None)),
            },
            ("counter", "read") => match answer.integer().and_then(Value::number) {
                Some(number) => one(Call::ReadAll, outcome(Some(Answer::Value(number)))),
                None if is_ok => wrong("returned no number", "use integers up to 2^62"),
                None => one(Call::ReadAll, outcome(None)),
            },
            ("bank", "read") => {
                let balances: Option<Vec<&Data>> = match answer {
                    Data::List(all) => Some(all.iter().collect()),
                    Data::Map(all) => {
                        let mut all: Vec<_> = all.iter().map(|it| (it.0.to_string(), &it.1)).collect();
                        all.sort_by(|a, b| a.0.cmp(&b.0));
                        Some(all.into_iter().map(|it| it.1).collect())
                    }
                    _ => None,
                };
                match balances {
                    Some(all) => {
                        let all = all.into_iter().map(|it| it.value(history)).collect();
                        one(Call::ReadAll, outcome(Some(Answer::Values(all))))
                    }
                    None if is_ok => wrong("returned no balances", "include a list or a map of balances"),
                    None => one(Call::ReadAll, outcome(None)),
                }
            }
            ("bank", "transfer") => {
                let amount = value.get("amount").and_then(Data::integer);
                let (Some(from), Some(to), Some(amount)) = (value.get("from"), value.get("to"), amount)
                else {
                    return wrong(
                        "needs two accounts and an amount, not `{}`",
                        "use a map with `from`, `to` and `amount`",
                    );
                };
                one(Call::Transfer(from.value(history), to.value(history), amount), done)
            }
            ("queue", "enqueue") => one(Call::Enqueue(value.value(history)), done),
            // Jepsen's clients say in this way that the queue was empty.
            ("queue", "dequeue") if kind == Type::Fail && is_empty(error) => {
                one(Call::Dequeue, Outcome::Ok(Answer::Value(Value::NULL)))
            }
            ("queue", "dequeue") => one(Call::Dequeue, outcome(Some(Answer::Value(answer.value(history))))),
            // A drain that ends well has found the queue empty.
            ("queue", "drain") => match answer.list() {
                Some(all) if is_ok => {
                    let ends = all.iter().map(|it| it.value(history)).chain([Value::NULL]);
                    Ok(ends.map(|it| (Call::Dequeue, Outcome::Ok(Answer::Value(it)))).collect())
                }
                _ if is_ok => wrong("returned no list", "include the elements that were dequeued"),
                _ => {
                    wrong("did not end with `ok`", "use `dequeue`, so that each element has its own outcome")
                }
            },
            ("ids", "next" | "generate") => {
                one(Call::Next, outcome(Some(Answer::Value(answer.value(history)))))
            }
            ("lock", "acquire") => {
                let answer = match answer.integer() {
                    Some(token) => Value::number(token).map_or(Answer::Done, Answer::Value),
                    None => Answer::Done,
                };
                one(Call::Acquire(key), outcome(Some(answer)))
            }
            ("lock", "release") => one(Call::Release(key), done),
            ("log", "send" | "poll" | "txn") if value.list().is_some_and(|it| it.iter().all(is_log_step)) => {
                log_steps(value, answer, kind, history).map_or_else(
                    || wrong("was answered with other steps than `{}`", "include the answer of each step"),
                    Ok,
                )
            }
            ("log", "send") => {
                let answer = answer.integer().and_then(Value::number).map_or(Answer::Done, Answer::Value);
                one(Call::Send(key, value.value(history)), outcome(Some(answer)))
            }
            ("log", "poll") => match entries(answer, history) {
                Some(all) => one(Call::Poll(key, value.integer()), outcome(Some(Answer::Entries(all)))),
                None if is_ok => wrong("returned no entries", "include a list of pairs `[offset value]`"),
                None => one(Call::Poll(key, value.integer()), outcome(None)),
            },
            (model, f) => {
                let all: Vec<String> = self.kinds.iter().map(|it| format!("`{it}`")).collect();
                let what = format!("`{}` is not an operation of the model `{model}`", shortened(f));
                Err(ForeignError::new(line, what, format!("its operations are {}", all.join(", "))))
            }
        }
    }
}

/// Returns a text, or its beginning.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the value of a text to which others are appended. The empty text is null.
fn text(data: &Data, history: &mut History) -> Value {
    match data {
        Data::Null => Value::NULL,
        Data::Text(text) if text.is_empty() => Value::NULL,
        other => history.text(&other.to_string()),
    }
}

/// Returns a step of a transaction on lists, with what was read.
fn step(data: &Data, history: &mut History) -> Option<(Step, Data)> {
    let [f, key, value] = data.list()? else { return None };
    let key = history.keys.intern(&key.to_string());
    match f.text()? {
        "append" => Some((Step::Append(key, value.value(history)), Data::Null)),
        "r" => Some((Step::Read(key), value.clone())),
        _ => None,
    }
}

fn is_log_step(data: &Data) -> bool {
    let first = data.list().and_then(|it| it.first()).and_then(Data::text);
    first.is_some_and(|it| it == "send" || it == "poll")
}

fn entries(data: &Data, history: &mut History) -> Option<Box<[(i64, Value)]>> {
    let entry = |it: &Data| {
        let (offset, value) = it.pair()?;
        Some((offset.integer()?, value.value(history)))
    };
    data.list()?.iter().map(entry).collect()
}

/// Returns the operations of a transaction on logs: `[:send key value]` and `[:poll]`, which are answered with
/// `[:send key [offset value]]` and `[:poll {key [[offset value] …]}]`.
fn log_steps(value: &Data, answer: &Data, kind: Type, history: &mut History) -> Option<Vec<(Call, Outcome)>> {
    let mut parts = Vec::new();
    let is_ok = kind == Type::Ok;
    let answers = if is_ok { answer.list()? } else { &[] };
    let asked = value.list()?;
    if is_ok && answers.len() != asked.len() {
        return None;
    }
    for (at, it) in asked.iter().enumerate() {
        let answer = answers.get(at).and_then(Data::list);
        match (it.list()?, answer) {
            ([f, key, value], answer) if f.text() == Some("send") => {
                let key = history.keys.intern(&key.to_string());
                let call = Call::Send(key, value.value(history));
                let offset = answer.and_then(|it| it.get(2)).and_then(Data::pair);
                let offset = offset.and_then(|it| it.0.integer()).and_then(Value::number);
                let outcome = match kind {
                    Type::Ok => Outcome::Ok(offset.map_or(Answer::Done, Answer::Value)),
                    Type::Fail => Outcome::Failed,
                    _ => Outcome::Unknown,
                };
                parts.push((call, outcome));
            }
            (_, Some([_, Data::Map(all)])) => {
                for (key, list) in all {
                    let key = history.keys.intern(&key.to_string());
                    let list = entries(list, history)?;
                    parts.push((Call::Poll(key, None), Outcome::Ok(Answer::Entries(list))));
                }
            }
            _ => {}
        }
    }
    Some(parts)
}
/// Returns whether an error says that a queue was empty.
fn is_empty(error: &Data) -> bool {
    matches!(error, Data::Text(it) if ["empty", "exhausted"].contains(&it.trim_start_matches(':')))
}
