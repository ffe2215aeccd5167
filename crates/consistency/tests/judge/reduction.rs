//! Reduced cases: each follows from the history by steps that keep every order of it, contradicts the definition, and
//! cannot be reduced further.
//!
//! A step leaves out an observation, or a value: without v, its writes and reads go, `cas v→b` becomes a write of b, and
//! `cas a→v` a read of a. While a compare-and-set that was answered `false` remains, no value may go.

use std::collections::BTreeSet;

use faultline_consistency::{
    Answer, Call, Case, History, NEVER, Operation, Outcome, Value, Verdict, foreign, model,
};

use crate::definition::{explained_register, random_register};
use crate::generate::{self, Plan};
use crate::random::Random;
use crate::support::{history, judged, value};

/// The longest case that is surely complete.
const MOST: usize = 11;

fn is_false(it: &Operation) -> bool {
    matches!((&it.call, it.answer()), (Call::Cas(..), Some(Answer::Flag(false))))
}

fn observes(it: &Operation) -> bool {
    matches!(it.call, Call::Read(_)) || is_false(it)
}

fn mentioned(it: &Operation) -> Vec<Value> {
    let values = match (&it.call, it.answer()) {
        (Call::Write(_, value), _) | (Call::Read(_), Some(Answer::Value(value))) => vec![*value],
        (Call::Cas(_, from, to), _) => vec![*from, *to],
        _ => vec![],
    };
    values.into_iter().filter(|it| *it != Value::NULL).collect()
}

/// Returns what remains of an operation without some values.
fn without(it: &Operation, gone: impl Fn(Value) -> bool) -> Option<Operation> {
    let mut rest = it.clone();
    match (&it.call, it.answer()) {
        (Call::Write(_, value), _) | (Call::Read(_), Some(Answer::Value(value))) if gone(*value) => {
            return None;
        }
        (Call::Cas(key, from, to), answer) => match (gone(*from), gone(*to)) {
            (true, true) => return None,
            (true, false) => {
                rest.call = Call::Write(*key, *to);
                rest.outcome = answer.map_or(Outcome::Unknown, |_| Outcome::Ok(Answer::Done));
            }
            (false, true) => {
                rest.call = Call::Read(*key);
                rest.outcome = Outcome::Ok(Answer::Value(*from));
                answer?;
            }
            (false, false) => {}
        },
        _ => {}
    }
    Some(rest)
}

/// Returns the operations up to a time. Those that returned later have no result.
fn window(operations: &[Operation], end: u64) -> Vec<Operation> {
    let called = operations.iter().filter(|it| it.call_at <= end);
    let cut = called.filter_map(|it| match it.return_at <= end {
        true => Some(it.clone()),
        false if matches!(it.call, Call::Read(_)) => None,
        false => Some(Operation { return_at: NEVER, outcome: Outcome::Unknown, ..it.clone() }),
    });
    cut.collect()
}

/// Asserts that a case follows from the history by steps that keep every order.
fn assert_follows(operations: &[Operation], case: &Case) {
    let end = case.operations[case.impossible.expect("the last operation")].return_at;
    let kept: BTreeSet<Value> = case.operations.iter().flat_map(mentioned).collect();
    let has_false = case.operations.iter().any(is_false);
    let is_gone = |value: Value| !has_false && value != Value::NULL && !kept.contains(&value);
    let same = |a: &Operation, b: &Operation| {
        (a.client, a.call_at, a.return_at, &a.call, &a.outcome)
            == (b.client, b.call_at, b.return_at, &b.call, &b.outcome)
    };
    let mut found = 0;
    // All observations that were answered `false` go before any value.
    let whole = window(operations, end);
    for it in whole.iter().filter(|it| has_false || !is_false(it)).filter_map(|it| without(it, is_gone)) {
        let is_kept = case.operations.iter().any(|other| same(&it, other));
        found += usize::from(is_kept);
        assert!(is_kept || observes(&it), "{it:?} must stay: {:#?} of {operations:#?}", case.operations);
    }
    assert_eq!(found, case.operations.len(), "{:#?} of {operations:#?}", case.operations);
}

/// Asserts that no step leaves a contradiction.
fn assert_minimal(operations: &[Operation]) {
    for at in 0..operations.len() {
        let mut rest = operations.to_vec();
        if observes(&rest.remove(at)) {
            assert!(explained_register(&rest), "{at} can go: {operations:#?}");
        }
    }
    if operations.iter().any(is_false) {
        return;
    }
    for value in operations.iter().flat_map(mentioned) {
        let rest: Vec<_> = operations.iter().filter_map(|it| without(it, |other| other == value)).collect();
        assert!(explained_register(&rest), "{value:?} can go: {operations:#?}");
    }
}

/// Writes operations on a register as JSON lines. Each has a process of its own.
fn json_lines(history: &History, operations: &[Operation]) -> String {
    let mut lines = Vec::new();
    for (process, it) in operations.iter().enumerate() {
        let show = |value: Value| value.as_number().map_or("null".to_owned(), |it| it.to_string());
        let (f, key, asked, told) = match (&it.call, it.answer()) {
            (Call::Read(key), Some(Answer::Value(value))) => ("read", key, "null".to_owned(), show(*value)),
            (Call::Write(key, value), _) => ("write", key, show(*value), show(*value)),
            (Call::Cas(key, from, to), _) => {
                let pair = format!("[{},{}]", show(*from), show(*to));
                ("cas", key, pair.clone(), pair)
            }
            _ => unreachable!("{it:?}"),
        };
        let mut line = |time: u64, is_return: bool, kind: &str, value: &str| {
            let text = format!(
                r#"{{"process":{process},"type":"{kind}","f":"{f}","key":"{}","value":{value},"time":{time}}}"#,
                history.key(*key)
            );
            lines.push((time, is_return, text));
        };
        line(it.call_at, false, "invoke", &asked);
        match it.answer() {
            Some(Answer::Flag(false)) => line(it.return_at, true, "fail", &told),
            Some(_) => line(it.return_at, true, "ok", &told),
            None => {}
        }
    }
    lines.sort();
    lines.into_iter().map(|it| it.2 + "\n").collect()
}

/// Asserts that a case is refused again after it was written and read.
pub(crate) fn assert_refused(history: &History, operations: &[Operation]) {
    let text = json_lines(history, operations);
    let read = foreign::read(text.as_bytes(), model("register").expect("a model"));
    let read = read.unwrap_or_else(|error| panic!("{error:?}: {text}"));
    assert_eq!(judged(&read, "register", 0).verdict, Verdict::Fail, "{text}");
}

/// Changes some answers.
fn spoil(random: &mut Random, history: &mut History, values: u64) {
    let count = history.operations.len() as u64;
    for _ in 0..1 + random.below(2) {
        let it = &mut history.operations[random.below(count) as usize];
        match &mut it.outcome {
            Outcome::Ok(Answer::Value(found)) => *found = value(random.below(values) as u32),
            Outcome::Ok(Answer::Flag(flag)) => *flag = !*flag,
            _ => {}
        }
    }
}

/// Returns a random history of one register.
fn random_history(random: &mut Random) -> History {
    if random.one_in(2) {
        let has_cas = !random.one_in(3);
        return history(random_register(random, has_cas));
    }
    let plan = Plan {
        operations: 8 + random.below(10),
        clients: 3 + random.below(3) as u32,
        per_key: 100,
        unknown: random.below(7),
        values: if random.one_in(2) { 0 } else { 2 + random.below(5) },
        has_cas: !random.one_in(3),
        is_stale: false,
    };
    let mut history = generate::register(plan, random.next());
    spoil(random, &mut history, if plan.values == 0 { plan.operations } else { plan.values });
    history
}

/// Reduces random histories. Returns the numbers of reduced cases, and of those with each kind of remainder: unknown
/// operations, comparisons answered `false`, and halves of a compare-and-set.
fn reduce(rounds: u64, seed: u64) -> [usize; 4] {
    let (mut random, mut counts) = (Random(seed), [0; 4]);
    for _ in 0..rounds {
        let history = random_history(&mut random);
        for case in judged(&history, "register", 0).anomalies.iter().flat_map(|it| &it.cases) {
            if case.impossible.is_none() || case.operations.len() > MOST {
                continue;
            }
            assert_follows(&history.operations, case);
            assert!(!explained_register(&case.operations), "{:#?} has an order", case.operations);
            assert_minimal(&case.operations);
            assert_refused(&history, &case.operations);
            let is_half = |it: &Operation| {
                let mut all = history.operations.iter();
                let original = all.find(|other| (other.client, other.call_at) == (it.client, it.call_at));
                original.is_some_and(|other| matches!(other.call, Call::Cas(..)) && other.call != it.call)
            };
            counts[0] += 1;
            counts[1] += usize::from(case.operations.iter().any(|it| it.return_at == NEVER));
            counts[2] += usize::from(case.operations.iter().any(is_false));
            counts[3] += usize::from(case.operations.iter().any(is_half));
        }
    }
    counts
}

#[test]
fn cases_follow_contradict_and_are_minimal() {
    let counts = reduce(3_000, 11);
    assert!(counts.iter().all(|it| *it >= 20), "{counts:?}");
}

/// Applies random steps to consistent histories: an order must remain.
fn keep(rounds: u64, seed: u64) -> usize {
    let (mut random, mut consistent) = (Random(seed), 0);
    for _ in 0..rounds {
        let history = random_history(&mut random);
        if !explained_register(&history.operations) {
            continue;
        }
        consistent += 1;
        let returns: Vec<u64> =
            history.operations.iter().map(|it| it.return_at).filter(|it| *it != NEVER).collect();
        let end = returns.get(random.below(returns.len().max(1) as u64) as usize).copied().unwrap_or(NEVER);
        let mut rest = window(&history.operations, end);
        let drops_values = random.one_in(2);
        rest.retain(|it| !(observes(it) && (drops_values && is_false(it) || random.one_in(3))));
        if drops_values {
            let gone: BTreeSet<Value> = rest
                .iter()
                .flat_map(mentioned)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .filter(|_| random.one_in(2))
                .collect();
            rest = rest.iter().filter_map(|it| without(it, |value| gone.contains(&value))).collect();
        }
        assert!(explained_register(&rest), "{rest:#?} has no order, unlike {:#?}", history.operations);
    }
    consistent
}

#[test]
fn the_steps_of_a_reduction_keep_every_order() {
    let consistent = keep(3_000, 12);
    assert!(consistent > 500, "{consistent}");
}

mod long {
    #[test]
    #[ignore = "takes 20 s"]
    fn many_cases_follow_contradict_and_are_minimal() {
        super::reduce(100_000, 13);
    }

    #[test]
    #[ignore = "takes 10 s"]
    fn the_steps_of_many_reductions_keep_every_order() {
        super::keep(100_000, 14);
    }
}
