//! Registers: `read`, `write`, `cas`, and texts that grow.

pub(crate) mod object;
mod periods;
mod resolve;
mod session;
mod shrink;
mod text;

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, counted, upto};
use crate::models::{Model, by_key};
use crate::operation::{Call, History, Key, Value};
use crate::search::{Allowance, Found, MOST_PENDING, Span, search};
use object::{Effect, INITIAL, Op, Register, Searched};
use periods::Contradiction;
use text::Texts;

/// The model of registers, which hold null at first.
pub(crate) const MODEL: Model = Model {
    name: "register",
    about: "one value per key: `read` returns what `write` or `cas` stored last",
    levels: &["linearizable", "session"],
    kinds: &["read", "write", "cas", "append"],
    reads: &["read"],
    repeats: true,
    judge,
};

const LINEARIZABLE: Levels = upto(0);

/// Whether the operations on one register have an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// There is one. The search returns it, as positions in the operations that it was given.
    Possible,
    /// There is none, for this reason if it is known.
    Impossible(Option<Contradiction>),
    /// The steps were used up.
    OutOfSteps,
    /// Too many operations were in progress at the same time.
    TooMany,
}

fn judge(history: &History, limits: Limits, findings: &mut Findings) {
    let dirty = failed_writes(history);
    for (key, indices) in by_key(history, |call| match call {
        Call::Read(key) | Call::Write(key, _) | Call::Cas(key, ..) | Call::AppendText(key, _) => Some(*key),
        _ => None,
    }) {
        let register = Register::new(history, &indices);
        session::judge(history, &register, key, findings);
        if unwritten(history, &register, key, &dirty, findings) {
            continue;
        }
        let allowance = limits.allowance(findings.steps, register.ops.len());
        let name = show_key(history, key);
        match decide(history, &register, &register.ops, allowance, &mut findings.steps) {
            Decision::Possible => {}
            Decision::Impossible(why) => {
                let kind = shrink::kind(why, &register);
                findings.add(kind, LINEARIZABLE, || shrink::case(history, &register, key, why));
            }
            Decision::OutOfSteps => {
                let open = register.ops.iter().filter(|it| it.is_unknown()).count();
                let (all, steps) = (register.ops.len(), counted(allowance.steps as usize, "step", "steps"));
                findings.doubt(
                    LINEARIZABLE,
                    format!(
                        "{name} could not be judged in {steps}: {open} of its {all} operations have no result"
                    ),
                    "use fewer operations per key, or a longer time-out if the system answers late",
                );
            }
            Decision::TooMany => findings.doubt(
                LINEARIZABLE,
                format!("{name} has more than {MOST_PENDING} operations in progress at the same time"),
                "record the history with fewer clients",
            ),
        }
    }
}

/// Returns the name of a register, as in a sentence.
pub(crate) fn show_key(history: &History, key: Key) -> String {
    match history.key(key) {
        "" => "the register".to_owned(),
        name if name.parse::<i64>().is_ok() => format!("key {name}"),
        name => name.to_owned(),
    }
}

/// Returns the first failed write of each value.
fn failed_writes(history: &History) -> Map<(Key, Value), usize> {
    let mut writes = Map::default();
    for (at, it) in history.operations.iter().enumerate().filter(|(_, it)| it.is_failed()) {
        if let Call::Write(key, value) | Call::Cas(key, _, value) = it.call {
            writes.entry((key, value)).or_insert(at);
        }
    }
    writes
}

/// Adds the values that were read and never written. Returns whether there are any.
fn unwritten(
    history: &History,
    register: &Register,
    key: Key,
    dirty: &Map<(Key, Value), usize>,
    findings: &mut Findings,
) -> bool {
    if register.has_texts {
        return false;
    }
    let mut is_written = vec![false; register.values.len()];
    is_written[INITIAL as usize] = true;
    for value in register.ops.iter().filter_map(Op::writes) {
        is_written[value as usize] = true;
    }
    let mut found = false;
    for it in &register.ops {
        let Some(value) = it.reads().filter(|it| !std::mem::replace(&mut is_written[*it as usize], true))
        else {
            continue;
        };
        found = true;
        let (value, index) = (register.values[value as usize], it.index as usize);
        let sentence = |end: String| {
            let (who, what) = (history.client(&history.operations[index]), history.show(value));
            format!("{who} read {what} from {}, {end}", show_key(history, key))
        };
        match dirty.get(&(key, value)) {
            Some(&writer) => findings.add_dirty(upto(1), history, &[writer, index], || {
                let other = history.client(&history.operations[writer]);
                sentence(format!("but {other} was told that its write had no effect"))
            }),
            None => findings.add_case("invented", upto(1), history, &[index], || {
                sentence("which no client wrote".to_owned())
            }),
        }
    }
    found
}

/// Decides whether operations on one register have an order.
pub(crate) fn decide(
    history: &History,
    register: &Register,
    ops: &[Op],
    allowance: Allowance,
    steps: &mut u64,
) -> Decision {
    if register.has_texts {
        let mut ops = ops.to_vec();
        let (texts, states) = Texts::number(&mut ops, &register.values, history);
        return found(&Searched { ops: &ops, states, initial: 0, texts: &texts }, allowance, steps);
    }
    let (mut ops, values) = Register::simplified(ops);
    if resolve::is_unique(&ops, values) {
        resolve::resolve(&mut ops, values);
        if let Some(why) = periods::refute(&ops, values) {
            return Decision::Impossible(Some(why.at_indices(&ops)));
        }
        if !ops.iter().any(|it| matches!(it.effect, Effect::Cas(..))) {
            return Decision::Possible;
        }
    }
    let texts = Texts::default();
    found(&Searched { ops: &ops, states: values, initial: INITIAL, texts: &texts }, allowance, steps)
}

fn found(object: &Searched<'_>, allowance: Allowance, steps: &mut u64) -> Decision {
    let spans: Vec<Span> = object.ops.iter().map(|it| it.span).collect();
    match search(object, &spans, allowance, steps) {
        Found::Order(_) => Decision::Possible,
        Found::Nothing => Decision::Impossible(None),
        Found::OutOfSteps => Decision::OutOfSteps,
        Found::TooMany => Decision::TooMany,
    }
}

/// Returns an order that explains the answers of all operations, as positions in `ops`, if a search finds one.
fn explain(history: &History, register: &Register, ops: &[Op], allowance: Allowance) -> Option<Vec<u32>> {
    let (mut numbered, texts, states, initial);
    if register.has_texts {
        numbered = ops.to_vec();
        (texts, states) = Texts::number(&mut numbered, &register.values, history);
        initial = 0;
    } else {
        (numbered, states) = Register::simplified(ops);
        (texts, initial) = (Texts::default(), INITIAL);
    }
    let spans: Vec<Span> = numbered.iter().map(|it| it.span).collect();
    let object = Searched { ops: &numbered, states, initial, texts: &texts };
    match search(&object, &spans, allowance, &mut 0) {
        Found::Order(order) => Some(order),
        _ => None,
    }
}
