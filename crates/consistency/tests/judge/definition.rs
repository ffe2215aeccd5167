//! Random small histories agree with the definition of linearizability, which tries every order.

use std::collections::HashSet;

use faultline_consistency::{Answer, Call, Limits, NEVER, Operation, Outcome, Value, Verdict, judge, model};

use crate::generate::{self, Plan};
use crate::random::Random;
use crate::support::{history, judged, ok, unknown, value};

/// Returns whether some order of the operations explains their answers. Those without a result may be left out.
pub(crate) fn has_order<S: Clone>(
    operations: &[Operation],
    done: &mut Vec<bool>,
    state: &S,
    step: &impl Fn(&S, &Operation) -> Option<S>,
) -> bool {
    let open: Vec<usize> = (0..operations.len()).filter(|it| !done[*it]).collect();
    let Some(first) = open.iter().map(|it| operations[*it].return_at).min().filter(|it| *it != NEVER) else {
        return true;
    };
    open.into_iter().filter(|it| operations[*it].call_at <= first).any(|it| {
        step(state, &operations[it]).is_some_and(|next| {
            done[it] = true;
            let found = has_order(operations, done, &next, step);
            done[it] = false;
            found
        })
    })
}

pub(crate) fn explained<S: Clone>(
    operations: &[Operation],
    state: &S,
    step: impl Fn(&S, &Operation) -> Option<S>,
) -> bool {
    has_order(operations, &mut vec![false; operations.len()], state, &step)
}

/// The register of the definition, with values as written.
fn register(state: &Value, it: &Operation) -> Option<Value> {
    match (&it.call, &it.outcome) {
        (Call::Read(_), Outcome::Ok(Answer::Value(value))) => (value == state).then_some(*state),
        (Call::Write(_, value), _) => Some(*value),
        (Call::Cas(_, from, to), Outcome::Ok(Answer::Flag(flag))) => {
            ((from == state) == *flag).then_some(if *flag { *to } else { *state })
        }
        (Call::Cas(_, from, to), _) => Some(if from == state { *to } else { *state }),
        _ => Some(*state),
    }
}

/// Returns whether operations on one register have an order.
pub(crate) fn explained_register(operations: &[Operation]) -> bool {
    has_order_of_many(operations, 0, Value::NULL, &mut HashSet::new())
}

/// Returns a random history of one register with at most nine operations.
pub(crate) fn random_register(random: &mut Random, has_cas: bool) -> Vec<Operation> {
    let count = 4 + random.below(6);
    let (is_unique, clients) = (random.one_in(2), 2 + random.below(3));
    let mut free = vec![0; clients as usize];
    let mut operations = Vec::new();
    for number in 0..count {
        let client = random.below(clients) as u32;
        let call_at = free[client as usize] * 100 + 1 + random.below(90);
        let return_at = call_at + 1 + random.below(400);
        let any = |random: &mut Random| value(random.below(if is_unique { count } else { 3 }) as u32);
        let own = if is_unique { value(number as u32) } else { any(random) };
        let is_lost = random.one_in(4);
        let (call, answer) = match random.below(if has_cas { 3 } else { 2 }) {
            0 if is_lost => continue,
            0 if random.one_in(8) => (Call::Read(0), Answer::Value(Value::NULL)),
            0 => (Call::Read(0), Answer::Value(any(random))),
            1 => (Call::Write(0, own), Answer::Done),
            _ => (Call::Cas(0, any(random), own), Answer::Flag(random.one_in(2))),
        };
        operations.push(match is_lost {
            true => unknown(client, call_at, call),
            false => ok(client, call_at, return_at, call, answer),
        });
        free[client as usize] = return_at / 100 + 1;
    }
    operations
}

/// Compares the judge with the definition in some rounds. Returns the number of histories without an order.
fn compare_registers(rounds: u64, seed: u64) -> u64 {
    let (mut random, mut refused) = (Random(seed), 0);
    for round in 0..rounds {
        let operations = random_register(&mut random, round % 3 > 0);
        let expected = explained(&operations, &Value::NULL, register);
        let judgement = judged(&history(operations.clone()), "register", 0);
        let is_fail = judgement.verdict == Verdict::Fail;
        assert_eq!(!is_fail, expected, "round {round}: {operations:#?} {:#?}", judgement.anomalies);
        refused += u64::from(is_fail);
    }
    refused
}

#[test]
fn registers_agree_with_the_definition() {
    let refused = compare_registers(10_000, 1);
    assert!((2_000..9_000).contains(&refused), "{refused}");
}

/// The definition for histories of up to 32 operations: remembers which operations were done when no order was left.
fn has_order_of_many(
    operations: &[Operation],
    done: u32,
    state: Value,
    failed: &mut HashSet<(u32, Value)>,
) -> bool {
    let open = || (0..operations.len()).filter(|it| done >> it & 1 == 0);
    let Some(first) = open().map(|it| operations[it].return_at).min().filter(|it| *it != NEVER) else {
        return true;
    };
    if failed.contains(&(done, state)) {
        return false;
    }
    let found = open().filter(|it| operations[*it].call_at <= first).any(|it| {
        register(&state, &operations[it])
            .is_some_and(|next| has_order_of_many(operations, done | 1 << it, next, failed))
    });
    if !found {
        failed.insert((done, state));
    }
    found
}

/// Compares the judge with the definition on histories in which many operations are unknown and values repeat, so that
/// the search remembers many failed configurations. Returns the number of histories without an order.
fn compare_many_unknown(rounds: u64, seed: u64) -> u64 {
    let (mut random, mut refused) = (Random(seed), 0);
    for round in 0..rounds {
        let plan = Plan {
            operations: 12 + random.below(14),
            clients: 3 + random.below(4) as u32,
            per_key: 100,
            unknown: random.below(13),
            values: 2 + random.below(4),
            has_cas: !random.one_in(4),
            is_stale: false,
        };
        let mut history = generate::register(plan, random.next());
        let count = history.operations.len() as u64;
        for _ in 0..random.below(3) {
            let it = &mut history.operations[random.below(count) as usize];
            match &mut it.outcome {
                Outcome::Ok(Answer::Value(found)) => *found = value(random.below(plan.values) as u32),
                Outcome::Ok(Answer::Flag(flag)) => *flag = !*flag,
                _ => {}
            }
        }
        let expected = explained_register(&history.operations);
        for bytes in [Limits::default().bytes, 1_000] {
            let limits = Limits { cases: 0, bytes, ..Limits::default() };
            let judgement = judge(&history, model("register").expect("a model"), 0, limits);
            let is_fail = judgement.verdict == Verdict::Fail;
            assert_eq!(!is_fail, expected, "round {round}: {:#?}", history.operations);
            refused += u64::from(is_fail);
        }
    }
    refused / 2
}

#[test]
fn registers_with_many_unknown_operations_agree_with_the_definition() {
    let refused = compare_many_unknown(2_000, 5);
    assert!((200..1_600).contains(&refused), "{refused}");
}

/// Returns times of an operation at random: nearly half of all pairs are concurrent.
fn times(random: &mut Random, number: u64) -> (u64, u64) {
    let call_at = random.below(40) * 16 + number;
    (call_at, call_at + 16 + random.below(30) * 16)
}

/// Makes about one in four operations unknown, and orders the operations by call.
fn forget(random: &mut Random, operations: &mut [Operation], may: impl Fn(&Operation) -> bool) {
    for it in operations.iter_mut() {
        if may(it) && random.one_in(4) {
            (it.return_at, it.outcome) = (NEVER, Outcome::Unknown);
        }
    }
    operations.sort_by_key(|it| it.call_at);
}

/// Compares the judge with a definition in some rounds.
fn compare(
    model: &str,
    rounds: u64,
    seed: u64,
    generate: impl Fn(&mut Random) -> Vec<Operation>,
    is_allowed: impl Fn(&[Operation]) -> bool,
) {
    let (mut random, mut refused) = (Random(seed), 0);
    for round in 0..rounds {
        let operations = generate(&mut random);
        let judgement = judged(&history(operations.clone()), model, 0);
        let (is_fail, expected) = (judgement.verdict == Verdict::Fail, is_allowed(&operations));
        assert_eq!(!is_fail, expected, "{model}, round {round}: {operations:#?} {:#?}", judgement.anomalies);
        refused += u64::from(is_fail);
    }
    assert!(
        refused * 20 > rounds && refused * 20 < rounds * 19,
        "{model}: {refused} of {rounds} are refused"
    );
}

fn compare_sets(rounds: u64, seed: u64) {
    let generate = |random: &mut Random| {
        let elements = 1 + random.below(4) as u32;
        let mut operations = Vec::new();
        for number in 0..elements + 1 + random.below(4) as u32 {
            let (call_at, return_at) = times(random, number.into());
            let (call, answer) = match number < elements {
                true => (Call::Add(value(number)), Answer::Done),
                false => {
                    let all = (0..elements).filter(|_| random.one_in(2)).map(value);
                    (Call::ReadAll, Answer::Values(all.collect()))
                }
            };
            operations.push(ok(number, call_at, return_at, call, answer));
        }
        forget(random, &mut operations, |it| it.call != Call::ReadAll);
        operations
    };
    let step = |state: &Vec<Value>, it: &Operation| match (&it.call, it.answer()) {
        (Call::Add(value), _) => {
            let mut next = state.clone();
            next.push(*value);
            next.sort_unstable();
            Some(next)
        }
        (_, Some(Answer::Values(values))) => (values[..] == state[..]).then(|| state.clone()),
        _ => Some(state.clone()),
    };
    compare("set", rounds, seed, generate, |all| explained(all, &Vec::new(), step));
}

/// Unknown dequeues only excuse what is missing. So with them, the judge may accept more than the definition.
fn compare_queues(rounds: u64, seed: u64) {
    let generate = |random: &mut Random| {
        let (elements, mut operations) = (1 + random.below(4) as u32, Vec::new());
        let mut rest = Vec::from_iter(0..elements);
        for number in 0..elements + 1 + random.below(4) as u32 {
            let (call_at, return_at) = times(random, number.into());
            let (call, answer) = match number < elements {
                true => (Call::Enqueue(value(number)), Answer::Done),
                false if rest.is_empty() || random.one_in(3) => (Call::Dequeue, Answer::Value(Value::NULL)),
                false => {
                    let at = random.below(rest.len() as u64) as usize;
                    (Call::Dequeue, Answer::Value(value(rest.remove(at))))
                }
            };
            operations.push(ok(number, call_at, return_at, call, answer));
        }
        forget(random, &mut operations, |it| it.call != Call::Dequeue);
        operations
    };
    compare("queue", rounds, seed, generate, |all| explained(all, &Vec::new(), queue_step));
    let mut random = Random(seed);
    for round in 0..rounds {
        let mut operations = generate(&mut random);
        forget(&mut random, &mut operations, |it| it.call == Call::Dequeue);
        if judged(&history(operations.clone()), "queue", 0).verdict == Verdict::Fail {
            assert!(
                !explained(&operations, &Vec::new(), queue_step),
                "queue, round {round}: {operations:#?}"
            );
        }
    }
}

#[expect(clippy::ptr_arg, reason = "the type of the state")]
fn queue_step(state: &Vec<Value>, it: &Operation) -> Option<Vec<Value>> {
    match (&it.call, it.answer()) {
        (Call::Enqueue(value), _) => Some(state.iter().copied().chain([*value]).collect()),
        (Call::Dequeue, Some(Answer::Value(value))) => match state.split_first() {
            None => (*value == Value::NULL).then(Vec::new),
            Some((first, rest)) => (first == value).then(|| rest.to_vec()),
        },
        _ => Some(state.iter().skip(1).copied().collect()),
    }
}

fn compare_locks(rounds: u64, seed: u64) {
    let generate = |random: &mut Random| {
        let (mut operations, mut free, mut holds) = (Vec::new(), [0; 3], [false; 3]);
        for _ in 0..3 + random.below(7) {
            let client = random.below(3) as usize;
            let call_at = free[client] * 100 + 1 + random.below(90);
            let return_at = call_at + 1 + random.below(300);
            free[client] = return_at / 100 + 1;
            let is_acquire = holds[client] == random.one_in(8);
            holds[client] = is_acquire;
            let call = if is_acquire { Call::Acquire(0) } else { Call::Release(0) };
            operations.push(ok(client as u32, call_at, return_at, call, Answer::Done));
        }
        forget(random, &mut operations, |_| true);
        operations
    };
    let step = |holder: &Option<u32>, it: &Operation| match it.call {
        Call::Acquire(_) => holder.is_none().then_some(Some(it.client)),
        _ => (*holder == Some(it.client)).then_some(None),
    };
    compare("lock", rounds, seed, generate, |all| explained(all, &None, step));
}

/// Counters have a necessary condition. It is exact for one read if all numbers have the same sign.
fn compare_counters(rounds: u64, seed: u64) {
    let generate = |random: &mut Random, negative: u64| {
        let mut operations = Vec::new();
        for number in 0..2 + random.below(6) as u32 {
            let (call_at, return_at) = times(random, number.into());
            let client = number;
            let number = if random.below(4) < negative { -1 } else { 1 };
            let call = Call::Add(Value::number(number).expect("a small number"));
            operations.push(ok(client, call_at, return_at, call, Answer::Done));
        }
        let (call_at, return_at) = times(random, 15);
        let read = Answer::Value(Value::number(random.below(7) as i64 - 1).expect("a small number"));
        operations.push(ok(9, call_at, return_at, Call::ReadAll, read));
        forget(random, &mut operations, |it| it.call != Call::ReadAll);
        operations
    };
    let step = |state: &i64, it: &Operation| match (&it.call, it.answer()) {
        (Call::Add(value), _) => value.as_number().map(|it| state + it),
        (_, Some(Answer::Value(value))) => (value.as_number() == Some(*state)).then_some(*state),
        _ => Some(*state),
    };
    compare("counter", rounds, seed, |random| generate(random, 0), |all| explained(all, &0, step));
    let mut random = Random(seed);
    for round in 0..rounds {
        let operations = generate(&mut random, 2);
        if judged(&history(operations.clone()), "counter", 0).verdict == Verdict::Fail {
            assert!(!explained(&operations, &0, step), "counter, round {round}: {operations:#?}");
        }
    }
}

/// The sentence that defines the level `session`, for pairs of operations of a session.
fn keeps_sessions(operations: &[Operation]) -> bool {
    let reads = |it: &Operation| match (&it.call, it.answer()) {
        (Call::Read(_), Some(Answer::Value(value))) => Some(*value),
        (Call::Cas(_, from, _), Some(Answer::Flag(true))) => Some(*from),
        _ => None,
    };
    let writes = |it: &Operation| match (&it.call, it.answer()) {
        (Call::Write(_, value), _) => Some(*value),
        (Call::Cas(_, _, value), Some(Answer::Flag(true)) | None) => Some(*value),
        _ => None,
    };
    let writer = |value: Value| operations.iter().find(|it| writes(it) == Some(value));
    // A write without a result returned at the latest with its first observer.
    let returned = |value: Value| {
        let observed = operations.iter().filter(|it| reads(it) == Some(value)).map(|it| it.return_at);
        let written = writer(value).map_or(0, |it| it.return_at);
        if written == NEVER { observed.min().unwrap_or(NEVER) } else { written }
    };
    operations.iter().enumerate().all(|(at, it)| {
        let Some(value) = reads(it) else { return true };
        if value != Value::NULL && writer(value).is_none() {
            return false;
        }
        let earlier = operations[..at].iter().filter(|other| other.session == it.session);
        earlier.filter(|other| other.answer().is_some()).all(|other| {
            [reads(other), writes(other)]
                .into_iter()
                .flatten()
                .all(|known| writer(known).is_none_or(|writer| returned(value) >= writer.call_at))
        })
    })
}

fn compare_sessions(rounds: u64, seed: u64) {
    let (mut random, mut refused) = (Random(seed), 0);
    for round in 0..rounds {
        let mut operations = random_register(&mut random, false);
        // Each value is written once.
        for (number, it) in operations.iter_mut().enumerate() {
            if let Call::Write(_, value) = &mut it.call {
                *value = Value::from(number as u32);
            }
        }
        let is_fail = judged(&history(operations.clone()), "register", 1).verdict == Verdict::Fail;
        assert_eq!(!is_fail, keeps_sessions(&operations), "session, round {round}: {operations:#?}");
        refused += u64::from(is_fail);
    }
    assert!(refused * 20 > rounds && refused * 20 < rounds * 19, "{refused} of {rounds} are refused");
}

fn compare_all(rounds: u64, seed: u64) {
    compare_sets(rounds, seed);
    compare_queues(rounds, seed);
    compare_locks(rounds, seed);
    compare_counters(rounds, seed);
    compare_sessions(rounds, seed);
}

#[test]
fn other_models_agree_with_their_definitions() {
    compare_all(2_000, 3);
}

mod long {
    #[test]
    #[ignore = "takes 20 s"]
    fn many_registers_agree_with_the_definition() {
        super::compare_registers(200_000, 2);
    }

    #[test]
    #[ignore = "takes 20 s"]
    fn many_registers_with_many_unknown_operations_agree_with_the_definition() {
        super::compare_many_unknown(50_000, 6);
    }

    #[test]
    #[ignore = "takes 20 s"]
    fn many_histories_agree_with_their_definitions() {
        super::compare_all(30_000, 4);
    }
}
