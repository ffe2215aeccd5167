//! Reduces the operations on a register that have no order to a few that have none either.

use std::collections::BTreeSet;

use super::object::{Effect, INITIAL, Op, Register};
use super::periods::Contradiction;
use super::{Decision, decide, explain, show_key};
use crate::judgement::Case;
use crate::operation::{Answer, Call, History, Key, NEVER, Operation, Outcome};
use crate::search::Allowance;

/// What a single judgement of a part may use. A part that needs more is kept.
const ALLOWANCE: Allowance = Allowance { steps: 1_000_000, bytes: 32 << 20 };

/// The most operations that a case keeps.
const MOST: usize = 12;

/// Returns the name of the anomaly.
pub(crate) fn kind(why: Option<Contradiction>, register: &Register) -> &'static str {
    let op = |index: u32| register.ops.iter().find(|it| it.index == index);
    match why {
        Some(Contradiction::Early(_)) => "early",
        Some(Contradiction::Overlap(old, new))
            if op(old).is_some_and(|it| matches!(it.effect, Effect::Read(_)))
                && op(new).is_some_and(|it| it.writes().is_some()) =>
        {
            "stale"
        }
        _ => "notLinearizable",
    }
}

/// Returns the smallest contradiction that the reduction finds in a history of one register.
pub(crate) fn case(history: &History, register: &Register, key: Key, why: Option<Contradiction>) -> Case {
    let name = show_key(history, key);
    let Some((mut ops, end)) = reduce(history, register) else {
        let named = match why {
            Some(Contradiction::Early(index)) => vec![index as usize],
            Some(Contradiction::Overlap(old, new)) => vec![old as usize, new as usize],
            None => vec![],
        };
        return Case::new(
            history,
            &named,
            format!("no order of the operations on {name} explains their answers"),
        );
    };
    ops.sort_by_key(|it| (it.span.call, it.index));
    let rest: Vec<Op> = ops.iter().filter(|it| it.index != end).copied().collect();
    let explained = explain(history, register, &rest, ALLOWANCE).unwrap_or_default();
    let place =
        |index: u32| explained.iter().position(|it| rest[*it as usize].index == index).map(|it| it + 1);
    let first = ops.len().saturating_sub(MOST);
    let kept: Vec<&Op> =
        ops.iter().enumerate().filter(|(at, it)| *at >= first || it.index == end).map(|it| it.1).collect();
    let operations: Vec<Operation> = kept.iter().map(|it| operation(history, register, it)).collect();
    let impossible = kept.iter().position(|it| it.index == end);
    let told = impossible.map(|at| told(history, &operations[at])).unwrap_or_default();
    let mut sentence = format!("no order of the operations on {name} explains that {told}");
    if let Some(Decision::Impossible(Some(Contradiction::Overlap(old, new)))) =
        Some(decide(history, register, &ops, ALLOWANCE, &mut 0))
        && old == end
        && let Some(other) =
            register.ops.iter().find(|it| it.index == new).and_then(|it| it.writes().or(it.reads()))
    {
        sentence += &format!(": {} had replaced it", history.show(register.values[other as usize]));
    }
    let order = kept.iter().map(|it| place(it.index)).collect();
    Case { sentence, operations, order, impossible }
}

/// Returns what a client was told: `client 2 read 311`.
fn told(history: &History, operation: &Operation) -> String {
    let who = history.client(operation);
    match (&operation.call, operation.answer()) {
        (Call::Read(_), Some(Answer::Value(value))) => format!("{who} read {}", history.show(*value)),
        (Call::Cas(_, from, to), answer) => {
            let verb = if answer == Some(&Answer::Flag(false)) { "could not replace" } else { "replaced" };
            format!("{who} {verb} {} with {}", history.show(*from), history.show(*to))
        }
        (Call::Write(_, value), _) => format!("{who} wrote {}", history.show(*value)),
        (Call::AppendText(_, value), _) => format!("{who} appended {}", history.show(*value)),
        _ => format!("{who} was answered"),
    }
}

/// Returns an operation as it remains in the reduced history.
fn operation(history: &History, register: &Register, op: &Op) -> Operation {
    let mut operation = history.operations[op.index as usize].clone();
    let (Call::Read(key) | Call::Write(key, _) | Call::Cas(key, ..) | Call::AppendText(key, _)) =
        operation.call
    else {
        return operation;
    };
    let value = |number: u32| register.values[number as usize];
    operation.return_at = op.span.ret;
    let known = |answer| if op.is_unknown() { Outcome::Unknown } else { Outcome::Ok(answer) };
    (operation.call, operation.outcome) = match op.effect {
        Effect::Read(it) => (Call::Read(key), known(Answer::Value(value(it)))),
        Effect::Write(it) => (Call::Write(key, value(it)), known(Answer::Done)),
        Effect::Append(it) => (Call::AppendText(key, value(it)), known(Answer::Done)),
        Effect::Cas(from, to, answer) => {
            (Call::Cas(key, value(from), value(to)), known(Answer::Flag(answer.unwrap_or(false))))
        }
    };
    operation
}

/// Reduces a history of one register. Returns the operations that remain, and the index of the one that returned last,
/// without which they have an order. Returns `None` if the whole needs more than [`ALLOWANCE`].
pub(crate) fn reduce(history: &History, register: &Register) -> Option<(Vec<Op>, u32)> {
    let is_bad =
        |ops: &[Op]| matches!(decide(history, register, ops, ALLOWANCE, &mut 0), Decision::Impossible(_));
    let mut returns: Vec<(u64, u32)> =
        register.ops.iter().filter(|it| !it.is_unknown()).map(|it| (it.span.ret, it.index)).collect();
    returns.sort_unstable();
    let (mut low, mut high) = (0, returns.len().checked_sub(1)?);
    if !is_bad(&window(&register.ops, returns[high].0)) {
        return None;
    }
    // If the history is impossible up to a return, it is impossible up to any later one.
    while low < high {
        let middle = (low + high) / 2;
        if is_bad(&window(&register.ops, returns[middle].0)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let (end, index) = returns[low];
    let mut ops = window(&register.ops, end);
    let is_false = |it: &Op| matches!(it.effect, Effect::Cas(_, _, Some(false)));
    let kept: Vec<Op> = ops.iter().filter(|it| !is_false(it)).copied().collect();
    if kept.len() < ops.len() && is_bad(&kept) {
        ops = kept;
    }
    // A compare-and-set that was answered `false` depends on all values.
    let drops_values = !register.has_texts && !ops.iter().any(is_false);
    loop {
        let before = ops.len();
        if drops_values {
            drop_values(&mut ops, &is_bad);
        }
        // An unknown operation must stay: it may explain an observation that remains.
        let mut at = 0;
        while at < ops.len() {
            if ops[at].observes() {
                let mut rest = ops.clone();
                rest.remove(at);
                if is_bad(&rest) {
                    ops = rest;
                    continue;
                }
            }
            at += 1;
        }
        if ops.len() == before {
            return Some((ops, index));
        }
    }
}

/// Returns the operations called up to a time. Those that returned later have no result yet.
fn window(ops: &[Op], end: u64) -> Vec<Op> {
    let called = ops.iter().filter(|it| it.span.call <= end);
    let cut = called.filter_map(|it| match (it.span.ret <= end, it.effect) {
        (true, _) => Some(*it),
        (false, Effect::Read(_)) => None,
        (false, effect) => {
            let effect = match effect {
                Effect::Cas(from, to, _) => Effect::Cas(from, to, None),
                other => other,
            };
            Some(Op { span: crate::search::Span { ret: NEVER, ..it.span }, effect, ..*it })
        }
    });
    cut.collect()
}

/// Drops values, with all operations on them, as long as the rest is impossible: halves first, then single values.
fn drop_values(ops: &mut Vec<Op>, is_bad: &impl Fn(&[Op]) -> bool) {
    let mentioned = |it: &Op| match it.effect {
        Effect::Read(value) | Effect::Write(value) => [Some(value), None],
        Effect::Cas(from, to, _) => [Some(from), Some(to)],
        Effect::Append(_) => [None, None],
    };
    let all: BTreeSet<u32> = ops.iter().flat_map(mentioned).flatten().filter(|it| *it != INITIAL).collect();
    let mut all = Vec::from_iter(all);
    let mut size = all.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < all.len() {
            let part = at..(at + size).min(all.len());
            let rest = without(ops, &all[part.clone()]);
            if is_bad(&rest) {
                *ops = rest;
                all.drain(part);
            } else {
                at += size;
            }
        }
        size /= 2;
    }
}

/// Returns the operations without some values, which are sorted. A compare-and-set from one of them becomes a write, and
/// one to it a read. If the whole has an order, then so has the result.
fn without(ops: &[Op], values: &[u32]) -> Vec<Op> {
    let gone = |value: u32| values.binary_search(&value).is_ok();
    let rest = ops.iter().filter_map(|it| {
        let effect = match it.effect {
            Effect::Read(value) | Effect::Write(value) if gone(value) => return None,
            Effect::Cas(from, to, Some(true)) => match (gone(from), gone(to)) {
                (true, true) => return None,
                (true, false) => Effect::Write(to),
                (false, true) => Effect::Read(from),
                (false, false) => it.effect,
            },
            Effect::Cas(_, to, None) if gone(to) => return None,
            Effect::Cas(from, to, None) if gone(from) => Effect::Write(to),
            other => other,
        };
        Some(Op { effect, ..*it })
    });
    rest.collect()
}
