//! Random small histories agree with the definition of linearizability, which tries every order.

use faultline_consistency::{Answer, Call, NEVER, Operation, Outcome, Value, Verdict};

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

mod long {
    #[test]
    #[ignore = "takes 20 s"]
    fn many_registers_agree_with_the_definition() {
        super::compare_registers(300_000, 2);
    }
}
