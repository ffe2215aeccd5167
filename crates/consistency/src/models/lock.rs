//! Locks: `acquire` and `release`.

use crate::hash::Map;
use crate::judgement::{Case, Findings, Levels, Limits, counted};
use crate::models::{Model, by_key, descents};
use crate::operation::{Answer, Call, History, Key, NEVER, Outcome, Value};
use crate::search::{Allowance, Found, MOST_PENDING, Object, Span, search};

/// The model of locks, which no session holds at first.
pub(crate) const MODEL: Model = Model {
    name: "lock",
    about: "at most one client holds a lock; or, for leases, fencing tokens increase",
    levels: &["exclusive", "fenced"],
    kinds: &["acquire", "release"],
    reads: &["acquire"],
    repeats: true,
    judge,
};

const EXCLUSIVE: Levels = 1;
const FENCED: Levels = 2;

/// An operation on one lock. The holder of a lock is its session, numbered from 1; 0 is none.
#[derive(Clone, Copy)]
struct Op {
    span: Span,
    holder: u32,
    is_acquire: bool,
    index: u32,
}

struct Lock<'a> {
    ops: &'a [Op],
    states: usize,
}

impl Object for Lock<'_> {
    fn initial(&self) -> u32 {
        0
    }

    fn states(&self) -> usize {
        self.states
    }

    fn step(&self, state: u32, operation: usize) -> Option<u32> {
        let Op { holder, is_acquire, .. } = self.ops[operation];
        let (from, to) = if is_acquire { (0, holder) } else { (holder, 0) };
        (state == from).then_some(to)
    }

    fn observes(&self, _: usize) -> bool {
        false
    }

    fn effect(&self, operation: usize) -> u64 {
        let Op { holder, is_acquire, .. } = self.ops[operation];
        u64::from(holder) << 1 | u64::from(is_acquire)
    }

    fn changes(&self, operation: usize) -> Option<u32> {
        self.needs(operation)
    }

    fn needs(&self, operation: usize) -> Option<u32> {
        let Op { holder, is_acquire, .. } = self.ops[operation];
        Some(if is_acquire { 0 } else { holder })
    }

    fn makes(&self, operation: usize, mut each: impl FnMut(u32)) {
        let Op { holder, is_acquire, .. } = self.ops[operation];
        each(if is_acquire { holder } else { 0 });
    }
}

fn judge(history: &History, limits: Limits, findings: &mut Findings) {
    for (key, indices) in by_key(history, |call| match call {
        Call::Acquire(key) | Call::Release(key) => Some(*key),
        _ => None,
    }) {
        fenced(history, key, &indices, findings);
        let ops = operations(history, &indices);
        let allowance = limits.allowance(findings.steps, ops.len());
        match find(&ops, allowance, &mut findings.steps) {
            Found::Order(_) => {}
            Found::Nothing => findings.add("heldTwice", EXCLUSIVE, || case(history, key, &ops)),
            Found::OutOfSteps => {
                let steps = counted(allowance.steps as usize, "step", "steps");
                let what = format!("{} could not be judged in {steps}", show_key(history, key));
                findings.doubt(EXCLUSIVE, what, "use a longer time-out, so that fewer outcomes are unknown");
            }
            Found::TooMany => findings.doubt(
                EXCLUSIVE,
                format!(
                    "{} has more than {MOST_PENDING} operations in progress at the same time",
                    show_key(history, key)
                ),
                "record the history with fewer clients",
            ),
        }
    }
}

fn show_key(history: &History, key: Key) -> String {
    match history.key(key) {
        "" => "the lock".to_owned(),
        name => format!("the lock {name}"),
    }
}

fn operations(history: &History, indices: &[u32]) -> Vec<Op> {
    let mut holders: Map<u32, u32> = Map::default();
    let mut ops = Vec::with_capacity(indices.len());
    for &index in indices {
        let it = &history.operations[index as usize];
        let ret = match it.outcome {
            Outcome::Failed => continue,
            Outcome::Ok(_) => it.return_at,
            Outcome::Unknown => NEVER,
        };
        let next = holders.len() as u32 + 1;
        // A client holds a lock across its sessions, but in a history of Jepsen each session is a client of its own.
        let holder = *holders.entry(it.client).or_insert(next);
        let is_acquire = matches!(it.call, Call::Acquire(_));
        ops.push(Op { span: Span { call: it.call_at, ret }, holder, is_acquire, index });
    }
    ops
}

fn find(ops: &[Op], allowance: Allowance, steps: &mut u64) -> Found {
    let spans: Vec<Span> = ops.iter().map(|it| it.span).collect();
    let states = ops.iter().map(|it| it.holder as usize + 1).max().unwrap_or(0) + 1;
    search(&Lock { ops, states }, &spans, allowance, steps)
}

/// Returns the operations up to the first return that no order explains, without pairs of `acquire` and `release` that
/// are not needed for the contradiction.
fn case(history: &History, key: Key, ops: &[Op]) -> Case {
    const ALLOWANCE: Allowance = Allowance { steps: 1_000_000, bytes: 32 << 20 };
    const MOST: usize = 12;
    let is_bad = |ops: &[Op]| find(ops, ALLOWANCE, &mut 0) == Found::Nothing;
    let window = |end: u64| -> Vec<Op> {
        let called = ops.iter().filter(|it| it.span.call <= end);
        let cut = called.map(|it| Op {
            span: Span { ret: if it.span.ret <= end { it.span.ret } else { NEVER }, ..it.span },
            ..*it
        });
        cut.collect()
    };
    let mut returns: Vec<u64> = ops.iter().map(|it| it.span.ret).filter(|it| *it != NEVER).collect();
    returns.sort_unstable();
    let first = returns.partition_point(|end| !is_bad(&window(*end)));
    let Some(&end) = returns.get(first) else {
        return Case::new(
            history,
            &[],
            format!("no order of the operations on {} exists", show_key(history, key)),
        );
    };
    let mut rest = window(end);
    // In any order, an `acquire` is followed by the `release` of the same client, so a pair can be left out. An
    // operation without a result must stay: it may explain what remains.
    let mut at = 0;
    while at < rest.len() {
        let partner = rest.iter().enumerate().skip(at + 1).find(|(_, it)| it.holder == rest[at].holder);
        let part = match partner {
            Some((other, it))
                if rest[at].is_acquire
                    && !it.is_acquire
                    && rest[at].span.ret != NEVER
                    && it.span.ret != NEVER =>
            {
                vec![at, other]
            }
            _ => vec![],
        };
        let mut fewer = rest.clone();
        for &it in part.iter().rev() {
            fewer.remove(it);
        }
        if !part.is_empty() && is_bad(&fewer) {
            rest = fewer;
        } else {
            at += 1;
        }
    }
    let last = rest.iter().find(|it| it.span.ret == end).map(|it| it.index);
    let kept = &rest[rest.len().saturating_sub(MOST)..];
    let mut names: Vec<usize> = kept.iter().map(|it| it.index as usize).collect();
    names.extend(last.map(|it| it as usize));
    let told = last.map_or(String::new(), |it| {
        let it = &history.operations[it as usize];
        let verb = if matches!(it.call, Call::Acquire(_)) { "acquired it" } else { "released it" };
        format!("{} {verb} at {}", history.client(it), history.time(it.return_at))
    });
    let sentence = format!("no order of the operations on {} explains that {told}", show_key(history, key));
    let mut case = Case::new(history, &names, sentence);
    for it in &mut case.operations {
        if it.return_at > end {
            (it.return_at, it.outcome) = (NEVER, Outcome::Unknown);
        }
    }
    case.impossible = case.operations.iter().position(|it| it.return_at == end);
    case
}

/// Judges fencing tokens: the later of two acquisitions has the greater token.
fn fenced(history: &History, key: Key, indices: &[u32], findings: &mut Findings) {
    let operations = &history.operations;
    let (mut tokens, mut first): (Vec<(usize, i64)>, Map<Value, usize>) = (Vec::new(), Map::default());
    let mut without = None;
    for at in indices.iter().map(|it| *it as usize) {
        match (&operations[at].call, operations[at].answer()) {
            (Call::Acquire(_), Some(Answer::Value(value))) if value.as_number().is_some() => {
                tokens.push((at, value.as_number().unwrap_or(0)));
                let other = *first.entry(*value).or_insert(at);
                if other != at {
                    findings.add_case("sameToken", FENCED, history, &[other, at], || {
                        let (a, b) = (history.client(&operations[other]), history.client(&operations[at]));
                        format!("{a} and {b} both got the token {}", history.show(*value))
                    });
                }
            }
            (Call::Acquire(_), Some(_)) => without = Some(at),
            _ => {}
        }
    }
    if without.is_some() {
        let what = format!("an `acquire` of {} returned no token", show_key(history, key));
        findings.doubt(FENCED, what, "use the level `exclusive`, or let `acquire` return a number");
    }
    for (old, new) in descents(history, &tokens) {
        findings.add_case("tokenDecreased", FENCED, history, &[old, new], || {
            let (a, b) = (history.client(&operations[old]), history.client(&operations[new]));
            let token = |at: usize| tokens.iter().find(|it| it.0 == at).map_or(0, |it| it.1);
            format!("{b} got the token {} after {a} had got {}", token(new), token(old))
        });
    }
}
