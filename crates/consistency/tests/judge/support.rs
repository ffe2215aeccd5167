//! Histories written as lists of operations.

use faultline_consistency::{
    Answer, Call, History, Judgement, Limits, NEVER, Operation, Outcome, Value, Verdict, judge, model,
};

/// Returns an answered operation of a client, between two times.
pub(crate) fn ok(client: u32, call_at: u64, return_at: u64, call: Call, answer: Answer) -> Operation {
    Operation { client, session: client, line: 0, call_at, return_at, call, outcome: Outcome::Ok(answer) }
}

/// Returns an operation of a client without a result.
pub(crate) fn unknown(client: u32, call_at: u64, call: Call) -> Operation {
    let outcome = Outcome::Unknown;
    Operation { client, session: client, line: 0, call_at, return_at: NEVER, call, outcome }
}

/// Returns an operation of a client that had no effect.
pub(crate) fn failed(client: u32, call_at: u64, return_at: u64, call: Call) -> Operation {
    let outcome = Outcome::Failed;
    Operation { client, session: client, line: 0, call_at, return_at, call, outcome }
}

pub(crate) fn value(number: u32) -> Value {
    Value::from(number)
}

pub(crate) fn values(all: &[u32]) -> Box<[Value]> {
    all.iter().map(|it| value(*it)).collect()
}

/// Returns a history of these operations, with names for all clients and for 100 keys.
pub(crate) fn history(operations: Vec<Operation>) -> History {
    let mut history = History { operations, is_timed: true, ..History::default() };
    let clients = history.operations.iter().map(|it| it.client + 1).max().unwrap_or(0);
    for client in 0..clients {
        history.clients.intern(&client.to_string());
    }
    for key in 0..100 {
        history.keys.intern(&format!("k{key}"));
    }
    history
}

pub(crate) fn judged(history: &History, name: &str, level: usize) -> Judgement {
    judge(history, model(name).expect("a model"), level, Limits::default())
}

/// Returns the verdict and the kinds of anomalies of a history.
pub(crate) fn kinds(operations: Vec<Operation>, name: &str, level: usize) -> Vec<&'static str> {
    let judgement = judged(&history(operations), name, level);
    let kinds: Vec<_> = judgement.anomalies.iter().map(|it| it.kind).collect();
    assert_eq!(judgement.verdict == Verdict::Fail, !kinds.is_empty(), "{judgement:?}");
    kinds
}
