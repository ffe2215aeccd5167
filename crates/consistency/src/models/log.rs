//! Logs: `send` appends a value to the log of a key and returns its offset, and `poll` reads entries from an offset on.
//! Each value is sent once at most.

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::{Model, by_key, descents};
use crate::operation::{Answer, Call, History, Key, Outcome, Value};

/// The model of logs, which are empty at first.
pub(crate) const MODEL: Model = Model {
    name: "log",
    about: "each offset holds one value forever, and `poll` skips none that was acknowledged",
    levels: &["exactlyOnce", "atLeastOnce"],
    kinds: &["send", "poll"],
    reads: &["poll"],
    repeats: false,
    judge,
};

const EXACTLY_ONCE: Levels = upto(0);
const AT_LEAST_ONCE: Levels = upto(1);

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    for (key, indices) in by_key(history, |call| match call {
        Call::Send(key, _) | Call::Poll(key, _) => Some(*key),
        _ => None,
    }) {
        let indices: Vec<usize> = indices.into_iter().map(|it| it as usize).collect();
        one_log(history, key, &indices, findings);
    }
}

fn one_log(history: &History, key: Key, indices: &[usize], findings: &mut Findings) {
    let operations = &history.operations;
    let name = match history.key(key) {
        "" => "the log",
        name => name,
    };
    let who = |at: usize| history.client(&operations[at]);
    let show = |value: Value| history.show(value);
    let mut sends: Map<Value, usize> = Map::default();
    // The value at each offset, with an operation that shows it.
    let mut log: Vec<(i64, Value, usize)> = Vec::new();
    let mut offsets = Vec::new();
    for &at in indices {
        let Call::Send(_, value) = operations[at].call else { continue };
        sends.insert(value, at);
        if let Some(Answer::Value(offset)) = operations[at].answer()
            && let Some(offset) = offset.as_number()
        {
            log.push((offset, value, at));
            offsets.push((at, offset));
        }
    }
    let mut unexpected: Map<Value, ()> = Map::default();
    for &at in indices {
        let (Call::Poll(_, from), Some(Answer::Entries(entries))) =
            (&operations[at].call, operations[at].answer())
        else {
            continue;
        };
        if let Some(from) = from
            && let Some(&(offset, _)) = entries.iter().find(|it| it.0 < *from)
        {
            findings.add_case("backward", AT_LEAST_ONCE, history, &[at], || {
                format!("{} polled {name} from offset {from}, and got offset {offset}", who(at))
            });
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            findings.add_case("reordered", AT_LEAST_ONCE, history, &[at], || {
                format!("a poll of {name} by {} returned offset {} before {}", who(at), pair[0].0, pair[1].0)
            });
        }
        for &(offset, value) in entries {
            log.push((offset, value, at));
            let send = sends.get(&value).copied();
            let is_wrong = send.is_none_or(|send| {
                operations[send].is_failed() || operations[at].precedes(&operations[send])
            });
            if !is_wrong || unexpected.insert(value, ()).is_some() {
                continue;
            }
            match send {
                None => findings.add_case("invented", AT_LEAST_ONCE, history, &[at], || {
                    format!("{} polled {} from {name}, which no client sent", who(at), show(value))
                }),
                Some(send) if operations[send].is_failed() => {
                    findings.add_dirty(AT_LEAST_ONCE, history, &[send, at], || {
                        let (a, b, what) = (who(at), who(send), show(value));
                        format!(
                            "{a} polled {what} from {name}, but {b} was told that its `send` had no effect"
                        )
                    });
                }
                Some(send) => findings.add_case("early", AT_LEAST_ONCE, history, &[send, at], || {
                    format!("{} polled {} from {name} before {} sent it", who(at), show(value), who(send))
                }),
            }
        }
    }
    log.sort_unstable();
    log.dedup_by_key(|it| (it.0, it.1));
    for pair in log.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        findings.add_case("diverged", AT_LEAST_ONCE, history, &[pair[0].2, pair[1].2], || {
            format!("offset {} of {name} held {} and {}", pair[0].0, show(pair[0].1), show(pair[1].1))
        });
    }
    let mut by_value: Vec<(Value, i64, usize)> = log.iter().map(|it| (it.1, it.0, it.2)).collect();
    by_value.sort_unstable();
    for pair in by_value.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        findings.add_case("duplicated", EXACTLY_ONCE, history, &[pair[0].2, pair[1].2], || {
            format!("{} is in {name} twice, at offsets {} and {}", show(pair[0].0), pair[0].1, pair[1].1)
        });
    }
    for (old, new) in descents(history, &offsets) {
        findings.add_case("reordered", AT_LEAST_ONCE, history, &[old, new], || {
            let answer = |at: usize| match &operations[at].outcome {
                Outcome::Ok(Answer::Value(offset)) => show(*offset),
                _ => String::new(),
            };
            let (a, b) = (answer(old), answer(new));
            format!("{} sent to offset {b} of {name} after {} had sent to offset {a}", who(new), who(old))
        });
    }
    missing(history, name, indices, &log, findings);
}

/// Adds offsets that held a value, and that a poll skipped.
fn missing(
    history: &History,
    name: &str,
    indices: &[usize],
    log: &[(i64, Value, usize)],
    findings: &mut Findings,
) {
    let operations = &history.operations;
    let mut found: Map<i64, ()> = Map::default();
    for &at in indices {
        let (Call::Poll(_, from), Some(Answer::Entries(entries))) =
            (&operations[at].call, operations[at].answer())
        else {
            continue;
        };
        let mut polled: Vec<i64> = entries.iter().map(|it| it.0).collect();
        polled.sort_unstable();
        let (Some(&first), Some(&last)) = (polled.first(), polled.last()) else { continue };
        let from = from.unwrap_or(first);
        let begin = log.partition_point(|it| it.0 < from);
        for &(offset, value, by) in log[begin..].iter().take_while(|it| it.0 < last) {
            if polled.binary_search(&offset).is_ok() || found.insert(offset, ()).is_some() {
                continue;
            }
            findings.add_case("lost", AT_LEAST_ONCE, history, &[by, at], || {
                let (who, what) = (history.client(&operations[at]), history.show(value));
                format!("{who} polled {name} up to offset {last} without offset {offset}, which held {what}")
            });
        }
    }
}
