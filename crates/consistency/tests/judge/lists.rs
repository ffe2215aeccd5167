//! Lists: each anomaly is found by its name in a long history without others.

use faultline_consistency::{Answer, Call, History, Operation, Outcome, Step, Value, Verdict};

use crate::random::Random;
use crate::support::{history, judged};

/// A step as written below: a key, its values, and whether they were read.
type Part<'a> = (u32, &'a [u32], bool);

const READ: bool = true;
const APPEND: bool = false;

fn txn(client: u32, call_at: u64, return_at: u64, parts: &[Part<'_>]) -> Operation {
    let (mut steps, mut lists): (Vec<Step>, Vec<Box<[Value]>>) = (Vec::new(), Vec::new());
    for &(key, values, is_read) in parts {
        let values = values.iter().map(|it| Value::from(*it));
        if is_read {
            steps.push(Step::Read(key));
            lists.push(values.collect());
        } else {
            steps.extend(values.map(|it| Step::Append(key, it)));
        }
    }
    let (call, outcome) = (Call::Txn(steps.into()), Outcome::Ok(Answer::Lists(lists.into())));
    Operation { client, session: client, line: 0, call_at, return_at, call, outcome }
}

fn failed(mut it: Operation) -> Operation {
    it.outcome = Outcome::Failed;
    it
}

/// Returns transactions that contain one anomaly, on the keys 90 and 91, and the weakest level that it contradicts.
fn anomaly(name: &str) -> (Vec<Operation>, usize) {
    const X: u32 = 90;
    const Y: u32 = 91;
    let at = |client: u32, late: u64, parts: &[Part<'_>]| {
        txn(1000 + client, 1_000_000 + late * 1000, 1_000_500 + late * 1000, parts)
    };
    match name {
        "G0" => (
            vec![
                at(0, 0, &[(X, &[1], APPEND), (Y, &[1], APPEND)]),
                at(1, 0, &[(X, &[2], APPEND), (Y, &[2], APPEND)]),
                at(2, 1, &[(X, &[1, 2], READ), (Y, &[2, 1], READ)]),
            ],
            3,
        ),
        "G1a" => (vec![failed(at(0, 0, &[(X, &[1], APPEND)])), at(1, 0, &[(X, &[1], READ)])], 3),
        "G1b" => (
            vec![
                at(0, 0, &[(X, &[1, 2], APPEND)]),
                at(1, 0, &[(X, &[1], READ)]),
                at(2, 1, &[(X, &[1, 2], READ)]),
            ],
            3,
        ),
        "G1c" => (
            vec![
                at(0, 0, &[(X, &[1], APPEND), (Y, &[1], READ)]),
                at(1, 0, &[(Y, &[1], APPEND), (X, &[1], READ)]),
            ],
            3,
        ),
        "G-single" => (
            vec![
                at(0, 0, &[(X, &[], READ), (Y, &[1], READ)]),
                at(1, 0, &[(X, &[1], APPEND), (Y, &[1], APPEND)]),
                at(2, 1, &[(X, &[1], READ)]),
            ],
            2,
        ),
        "lost update" => (
            vec![
                at(0, 0, &[(X, &[], READ), (X, &[1], APPEND)]),
                at(1, 0, &[(X, &[], READ), (X, &[2], APPEND)]),
                at(2, 1, &[(X, &[1, 2], READ)]),
            ],
            2,
        ),
        "G-nonadjacent" => (
            vec![
                at(0, 0, &[(X, &[1], APPEND)]),
                at(1, 0, &[(Y, &[1], APPEND)]),
                at(2, 0, &[(X, &[1], READ), (Y, &[], READ)]),
                at(3, 0, &[(X, &[], READ), (Y, &[1], READ)]),
                at(4, 1, &[(X, &[1], READ), (Y, &[1], READ)]),
            ],
            2,
        ),
        "G2" => (
            vec![
                at(0, 0, &[(X, &[], READ), (Y, &[], READ), (X, &[1], APPEND)]),
                at(1, 0, &[(X, &[], READ), (Y, &[], READ), (Y, &[1], APPEND)]),
                at(2, 1, &[(X, &[1], READ), (Y, &[1], READ)]),
            ],
            1,
        ),
        "internal" => (vec![at(0, 0, &[(X, &[1], APPEND), (X, &[], READ)])], 2),
        "incompatible order" => (
            vec![
                at(0, 0, &[(X, &[1], APPEND)]),
                at(1, 0, &[(X, &[2], APPEND)]),
                at(2, 0, &[(X, &[1, 2], READ)]),
                at(3, 0, &[(X, &[2, 1], READ)]),
            ],
            3,
        ),
        "dirty update" => (
            vec![
                failed(at(0, 0, &[(X, &[1], APPEND)])),
                at(1, 0, &[(X, &[2], APPEND)]),
                at(2, 0, &[(X, &[1, 2], READ)]),
            ],
            3,
        ),
        "duplicate" => (vec![at(0, 0, &[(X, &[1], APPEND)]), at(1, 1, &[(X, &[1, 1], READ)])], 3),
        "invented" => (vec![at(0, 0, &[(X, &[99], READ)])], 3),
        "G-single-session" => {
            // The transactions of the session overlap, so only its order contradicts.
            let mut all = vec![
                txn(1000, 1_000_000, 1_005_000, &[(X, &[1], APPEND)]),
                txn(1000, 1_001_000, 1_006_000, &[(X, &[], READ)]),
                at(2, 7, &[(X, &[1], READ)]),
            ];
            all[1].session = all[0].session;
            (all, 0)
        }
        "G-single-realtime" => (
            vec![at(0, 0, &[(X, &[1], APPEND)]), at(1, 1, &[(X, &[], READ)]), at(2, 1, &[(X, &[1], READ)])],
            0,
        ),
        _ => unreachable!("{name}"),
    }
}

const ALL: [&str; 15] = [
    "G0",
    "G1a",
    "G1b",
    "G1c",
    "G-single",
    "lost update",
    "G-nonadjacent",
    "G2",
    "internal",
    "incompatible order",
    "dirty update",
    "duplicate",
    "invented",
    "G-single-session",
    "G-single-realtime",
];

/// Returns transactions of a strictly serializable system; one in a hundred has no result.
fn correct(count: u64, seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    let mut free = [0; 10];
    let mut effects = Vec::new();
    for number in 0..count {
        let client = (0..free.len()).min_by_key(|it| free[*it]).unwrap_or(0);
        let call_at = free[client] + 1 + random.below(300);
        let return_at = call_at + 2 + random.below(1000);
        free[client] = return_at;
        effects.push((
            call_at + 1 + random.below(return_at - call_at - 1),
            number,
            client as u32,
            call_at,
            return_at,
        ));
    }
    effects.sort_unstable();
    let mut lists: Vec<(u32, u32, Vec<u32>)> = (0..5).map(|it| (it, 0, Vec::new())).collect();
    let (mut next_key, mut all) = (100, Vec::new());
    for (_, number, client, call_at, return_at) in effects {
        let mut parts: Vec<(u32, Vec<u32>, bool)> = Vec::new();
        for _ in 0..1 + random.below(4) {
            let place = random.below(5) as usize;
            let (key, last, list) = &mut lists[place];
            if random.one_in(2) {
                *last += 1;
                list.push(*last);
                parts.push((*key, vec![*last], APPEND));
                if *last == 32 {
                    lists[place] = (next_key, 0, Vec::new());
                    next_key += 1;
                }
            } else {
                parts.push((*key, list.clone(), READ));
            }
        }
        let parts: Vec<Part<'_>> = parts.iter().map(|it| (it.0, &it.1[..], it.2)).collect();
        let mut it = txn(client, call_at, return_at, &parts);
        if random.one_in(100) {
            (it.outcome, it.return_at) = (Outcome::Unknown, u64::MAX);
        }
        all.push((number, it));
    }
    all.sort_by_key(|it| it.0);
    all.into_iter().map(|it| it.1).collect()
}

fn with_keys(operations: Vec<Operation>) -> History {
    // About one key per 16 transactions is used up.
    let count = operations.len();
    let mut history = history(operations);
    for key in 100..200 + count / 8 {
        history.keys.intern(&format!("k{key}"));
    }
    history
}

/// Expects each anomaly in a history of `count` transactions.
fn find_all(count: u64) {
    for name in ALL {
        let (bad, weakest) = anomaly(name);
        let history = with_keys([correct(count, 7), bad].concat());
        let found = judged(&history, "list", weakest);
        let kinds: Vec<_> = found.anomalies.iter().map(|it| it.kind).collect();
        assert!(kinds.contains(&name), "{name}: {kinds:?}");
        let others: &[&str] = match name {
            // A failed append that a later append follows was read.
            "dirty update" => &["G1a"],
            // Both transactions also wrote after they had read.
            "lost update" => &["G-single"],
            _ => &[],
        };
        assert!(kinds.iter().all(|it| *it == name || others.contains(it)), "{name}: {kinds:?}");
        if weakest < 3 {
            assert_eq!(judged(&history, "list", weakest + 1).verdict, Verdict::Pass, "{name}");
        }
    }
    let judgement = judged(&with_keys(correct(count, 7)), "list", 0);
    assert_eq!((judgement.verdict, judgement.strongest), (Verdict::Pass, Some("strictSerializable")));
}

#[test]
fn each_anomaly_is_found_by_its_name() {
    find_all(300);
}

#[test]
fn a_cycle_is_told_along_its_edges() {
    let (bad, _) = anomaly("G-single");
    let judgement = judged(&history(bad), "list", 0);
    assert_eq!(
        judgement.anomalies[0].cases[0].sentence,
        "G-single: T1 read k90 before T2 appended to it, T1 read what T2 appended to k91"
    );
}

mod long {
    use super::*;

    #[test]
    #[ignore = "takes 20 s"]
    fn a_million_transactions_are_judged() {
        let history = with_keys(correct(1_000_000, 7));
        assert_eq!(judged(&history, "list", 0).verdict, Verdict::Pass);
    }

    #[test]
    #[ignore = "takes a minute"]
    fn each_anomaly_is_found_in_a_long_history() {
        super::find_all(100_000);
    }
}
