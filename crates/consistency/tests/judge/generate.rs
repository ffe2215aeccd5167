//! Histories of simulated systems.

use faultline_consistency::{Answer, Call, History, NEVER, Operation, Outcome, Value};

use crate::random::Random;
use crate::support::history;

/// How a register is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) operations: u64,
    pub(crate) clients: u32,
    /// The number of operations on each key.
    pub(crate) per_key: u64,
    /// The number of operations without a result.
    pub(crate) unknown: u64,
    /// The number of different values, or 0 if each is written once.
    pub(crate) values: u64,
    pub(crate) has_cas: bool,
    /// Whether one read at 90 % of the history returns a value that was replaced.
    pub(crate) is_stale: bool,
}

/// Returns the history of an atomic register for each key, in which operations take effect between call and return.
/// Operations without a result take effect later, or never.
pub(crate) fn register(plan: Plan, seed: u64) -> History {
    let mut random = Random(seed);
    let mut free = vec![0; plan.clients as usize];
    let mut session: Vec<u32> = (0..plan.clients).collect();
    let mut all: Vec<Operation> = Vec::new();
    let mut effects: Vec<(u64, usize)> = Vec::new();
    let every = (plan.operations * 8 / 10).checked_div(plan.unknown).unwrap_or(u64::MAX).max(1);
    for number in 0..plan.operations {
        let client = (0..free.len()).min_by_key(|it| free[*it]).unwrap_or(0);
        let call_at = free[client] + 4096 + random.below(300 * 4096);
        let return_at = call_at + 4096 + random.below(1000 * 4096);
        let key = (number / plan.per_key) as u32;
        let value = |random: &mut Random| Value::from(random.below(plan.values.max(1)) as u32);
        let own = if plan.values == 0 { Value::from(number as u32 + 1) } else { value(&mut random) };
        let call = match random.below(if plan.has_cas { 3 } else { 2 }) {
            0 => Call::Read(key),
            1 => Call::Write(key, own),
            _ => Call::Cas(key, value(&mut random), own),
        };
        let is_lost =
            number % every == every - 1 && number / every < plan.unknown && !matches!(call, Call::Read(_));
        let effect = match is_lost {
            false => call_at + 1 + random.below(return_at - call_at - 1),
            true if random.one_in(2) => NEVER,
            true => call_at + 1 + random.below(5000 * 4096),
        };
        let return_at = if is_lost { NEVER } else { return_at };
        let (outcome, client_number) = (Outcome::Unknown, session[client]);
        all.push(Operation {
            client: client as u32,
            session: client_number,
            line: 0,
            call_at,
            return_at,
            call,
            outcome,
        });
        if effect != NEVER {
            effects.push((effect, all.len() - 1));
        }
        free[client] = if is_lost { call_at + 1000 * 4096 } else { return_at };
        session[client] += if is_lost { plan.clients } else { 0 };
    }
    effects.sort_unstable();
    // The last values of each key, newest first.
    let keys = (plan.operations / plan.per_key + 1) as usize;
    let mut states: Vec<Vec<Value>> = vec![vec![Value::NULL]; keys];
    let mut is_done = !plan.is_stale;
    for (_, at) in effects {
        let is_known = all[at].return_at != NEVER;
        let (Call::Read(key) | Call::Write(key, _) | Call::Cas(key, ..)) = all[at].call else { continue };
        let states = &mut states[key as usize];
        let now = states[states.len() - 1];
        let answer = match &mut all[at].call {
            Call::Write(_, value) => {
                states.push(*value);
                Answer::Done
            }
            Call::Cas(_, from, to) => {
                if random.below(3) > 0 {
                    *from = now;
                }
                if *from == now {
                    states.push(*to);
                }
                Answer::Flag(*from == now)
            }
            _ if !is_done && at as u64 > plan.operations * 9 / 10 && states.len() > 40 => {
                is_done = true;
                Answer::Value(states[states.len() - 35])
            }
            _ => Answer::Value(now),
        };
        if is_known {
            all[at].outcome = Outcome::Ok(answer);
        }
    }
    assert!(is_done, "the history is long enough for a stale read");
    history(all)
}
