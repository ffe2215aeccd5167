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

/// The most contradictions from which the end of the window is guessed.
const MOST_HINTS: usize = 8;

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
    let Some((mut ops, end)) = reduce(history, register, why) else {
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

/// Reduces a history of one register, which is impossible for a reason. Returns the operations that remain, and the index
/// of the one that returned last, without which they have an order. Returns `None` if the whole needs more than
/// [`ALLOWANCE`].
pub(crate) fn reduce(
    history: &History,
    register: &Register,
    why: Option<Contradiction>,
) -> Option<(Vec<Op>, u32)> {
    let decide = |ops: &[Op]| decide(history, register, ops, ALLOWANCE, &mut 0);
    let is_bad = |ops: &[Op]| matches!(decide(ops), Decision::Impossible(_));
    let mut returns: Vec<(u64, u32)> =
        register.ops.iter().filter(|it| !it.is_unknown()).map(|it| (it.span.ret, it.index)).collect();
    returns.sort_unstable();
    let last = returns.len().checked_sub(1)?;
    // The history is possible before the return at `low`, and impossible up to that at `high`, if `is_known`.
    let (mut low, mut high, mut is_known) = (0, last, false);
    // The operations on the values of a contradiction are few, and the history is impossible where they are. If it is
    // possible just before, that is the place.
    let (mut hint, mut start) = (why, None);
    for _ in 0..MOST_HINTS {
        let Some(part) = hint.and_then(|it| Part::new(register, it)) else { break };
        if !is_bad(&part.upto(returns[high].0)) {
            break;
        }
        let mut ends: Vec<u64> =
            part.ops.iter().map(|it| it.span.ret).filter(|it| *it <= returns[high].0).collect();
        ends.sort_unstable();
        let Some(last) = ends.len().checked_sub(1) else { break };
        let end = ends[first_bad(0, last, |at| is_bad(&part.upto(ends[at])))];
        high = returns.partition_point(|it| it.0 < end);
        is_known = true;
        let before = high.checked_sub(1).map(|it| decide(&window(&register.ops, returns[it].0)));
        if let Some(Decision::Impossible(why)) = before {
            (high, hint) = (high - 1, why);
        } else {
            start = Some(part.upto(end));
            low = high;
            break;
        }
    }
    if !is_known && !is_bad(&window(&register.ops, returns[high].0)) {
        return None;
    }
    // If the history is impossible up to a return, it is impossible up to any later one.
    low = first_bad(low, high, |at| is_bad(&window(&register.ops, returns[at].0)));
    let (end, index) = returns[low];
    let mut ops = start.unwrap_or_else(|| window(&register.ops, end));
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

fn is_false(it: &Op) -> bool {
    matches!(it.effect, Effect::Cas(_, _, Some(false)))
}

/// Returns the first number in a range that satisfies a condition. If one does, so do all after it, and `high`.
fn first_bad(mut low: usize, mut high: usize, is_bad: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if is_bad(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The operations on the values of a contradiction.
struct Part {
    ops: Vec<Op>,
    values: Vec<u32>,
}

impl Part {
    fn new(register: &Register, why: Contradiction) -> Option<Part> {
        if register.has_texts {
            return None;
        }
        let named = match why {
            Contradiction::Early(index) => [index, index],
            Contradiction::Overlap(old, new) => [old, new],
        };
        let named = register.ops.iter().filter(|it| named.contains(&it.index));
        let values: Vec<u32> = named.flat_map(mentioned).flatten().chain([INITIAL]).collect();
        let concerns = |it: &&Op| mentioned(it).into_iter().flatten().any(|value| values.contains(&value));
        Some(Part { ops: register.ops.iter().filter(concerns).copied().collect(), values })
    }

    /// Returns what remains of all operations up to a time without the other values.
    fn upto(&self, end: u64) -> Vec<Op> {
        let mut ops = window(&self.ops, end);
        ops.retain(|it| !is_false(it));
        without(&ops, |value| !self.values.contains(&value))
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

fn mentioned(it: &Op) -> [Option<u32>; 2] {
    match it.effect {
        Effect::Read(value) | Effect::Write(value) => [Some(value), None],
        Effect::Cas(from, to, _) => [Some(from), Some(to)],
        Effect::Append(_) => [None, None],
    }
}

/// Drops values, with all operations on them, as long as the rest is impossible: halves first, then single values.
fn drop_values(ops: &mut Vec<Op>, is_bad: &impl Fn(&[Op]) -> bool) {
    let all: BTreeSet<u32> = ops.iter().flat_map(mentioned).flatten().filter(|it| *it != INITIAL).collect();
    let mut all = Vec::from_iter(all);
    let mut size = all.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < all.len() {
            let part = at..(at + size).min(all.len());
            let values = &all[part.clone()];
            let rest = without(ops, |value| values.binary_search(&value).is_ok());
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

/// Returns the operations without some values. A compare-and-set from one of them becomes a write, and
/// one to it a read. If the whole has an order, then so has the result.
fn without(ops: &[Op], gone: impl Fn(u32) -> bool) -> Vec<Op> {
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
