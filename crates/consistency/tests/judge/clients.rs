//! Clients that Faultline drives: a correct system passes under each model, and the same seed asks for the same operations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use faultline_consistency::clients::{Memory, Recorded, Reply, history_of, line_of, reply_of};
use faultline_consistency::foreign::{read, write};
use faultline_consistency::{Limits, MODELS, Verdict, Workload, judge, model};
use faultline_core::operation::{Answer, Call, Completion, FINAL, Key, Step};
use faultline_core::{Life, Span, Time};

fn workload(model: &str) -> Workload {
    let kinds = Workload::kinds_of(faultline_consistency::model(model).unwrap());
    Workload {
        seed: 7,
        model: model.to_owned(),
        every: Span::from_millis(20),
        mix: kinds.iter().map(|it| ((*it).to_owned(), 1)).collect(),
        keys: 3,
        ops_per_key: 20,
        accounts: 4,
    }
}

/// A system that carries out one operation after the other.
#[derive(Default)]
struct System {
    registers: BTreeMap<Key, i64>,
    lists: BTreeMap<Key, Vec<i64>>,
    all: Vec<i64>,
    queue: VecDeque<i64>,
    sum: i64,
    accounts: Vec<i64>,
    next: i64,
}

impl System {
    fn carry_out(&mut self, call: &Call, is_counter: bool) -> Answer {
        match call {
            Call::Read(key) => self.registers.get(key).map_or(Answer::Null, |it| Answer::Number(*it)),
            Call::Write(key, value) => {
                self.registers.insert(*key, *value);
                Answer::Null
            }
            Call::Cas(key, from, to) => {
                let is_same = self.registers.get(key).copied() == *from;
                if is_same {
                    self.registers.insert(*key, *to);
                }
                Answer::Flag(is_same)
            }
            Call::Txn(steps) => {
                let mut lists: Vec<Box<[i64]>> = Vec::new();
                for step in steps {
                    match step {
                        Step::Append(key, value) => self.lists.entry(*key).or_default().push(*value),
                        Step::Read(key) => {
                            lists.push(self.lists.get(key).cloned().unwrap_or_default().into())
                        }
                    }
                }
                Answer::Lists(lists.into())
            }
            Call::Add(value) => {
                self.all.push(*value);
                self.sum += value;
                Answer::Null
            }
            Call::ReadAll if is_counter => Answer::Number(self.sum),
            Call::ReadAll if !self.accounts.is_empty() => Answer::Numbers(self.accounts.clone().into()),
            Call::ReadAll => Answer::Numbers(self.all.clone().into()),
            Call::Enqueue(value) => {
                self.queue.push_back(*value);
                Answer::Null
            }
            Call::Dequeue => self.queue.pop_front().map_or(Answer::Null, Answer::Number),
            Call::Send(key, value) => {
                let log = self.lists.entry(*key).or_default();
                log.push(*value);
                Answer::Number(log.len() as i64 - 1)
            }
            Call::Poll(key, from) => {
                let log = self.lists.get(key).cloned().unwrap_or_default();
                let entries = (0..).zip(log).skip(*from as usize).take(5);
                Answer::Entries(entries.collect())
            }
            Call::Next | Call::Acquire => {
                self.next += 1;
                Answer::Number(self.next)
            }
            Call::Release => Answer::Null,
            Call::Transfer(from, to, amount) => {
                let is_possible = self.accounts[*from as usize] >= *amount;
                if is_possible {
                    self.accounts[*from as usize] -= amount;
                    self.accounts[*to as usize] += amount;
                }
                Answer::Flag(is_possible)
            }
        }
    }
}

/// Returns the operations of two clients that take turns, and how they ended.
fn run(
    workload: &Workload,
    arrivals: u64,
    lies: impl Fn(&Call, Answer) -> Answer,
) -> Vec<(u16, u64, Call, Completion)> {
    let mut system = System::default();
    if workload.model == "bank" {
        system.accounts = vec![100; workload.accounts as usize];
    }
    let is_counter = workload.model == "counter";
    let mut memories = [Memory::default(), Memory::default()];
    let mut all = Vec::new();
    for arrival in 0..arrivals {
        // A client that holds the lock releases it before the other one asks for it.
        let client = if workload.model == "lock" { arrival as usize / 2 % 2 } else { arrival as usize % 2 };
        let call = workload.call(arrival, &memories[client]);
        let completion = Completion::Ok(lies(&call, system.carry_out(&call, is_counter)));
        memories[client].conclude(&call, &completion);
        all.push((client as u16, arrival, call, completion));
    }
    let mut number = FINAL;
    for client in 0..2 {
        let keys = workload.keys(0..arrivals).map(Key).filter(|it| it.0 % 2 == client);
        let mut calls = VecDeque::from(workload.finals(keys));
        while let Some(call) = calls.pop_front() {
            let answer = system.carry_out(&call, is_counter);
            calls.extend(Workload::continues(&call, &answer));
            all.push((client as u16, number, call, Completion::Ok(answer)));
            number += 1;
        }
    }
    all
}

fn judged(workload: &Workload, level: usize, all: &[(u16, u64, Call, Completion)]) -> (Verdict, Vec<String>) {
    let recorded = (1..).zip(all).map(|(at, (client, number, call, completion))| Recorded {
        client: *client,
        life: Life(1),
        session: 1,
        number: *number,
        invoked: Time(at * 10),
        call,
        concluded: Some((Time(at * 10 + 5), completion)),
    });
    let history = history_of(&recorded.collect::<Vec<_>>(), Time::ZERO);
    let model = model(&workload.model).unwrap();
    let judgement = judge(&history, model, level, Limits::default());
    // For other judges, it is written in the form of Jepsen.
    let mut text = String::new();
    write(&history, model, &mut text).unwrap();
    let history = read(text.as_bytes(), model).unwrap();
    assert_eq!(judge(&history, model, level, Limits::default()).verdict, judgement.verdict, "{text}");
    let anomalies = judgement.anomalies.iter().map(|it| format!("{}: {}", it.kind, it.cases[0].sentence));
    let doubts = judgement.doubts.iter().map(|it| it.what.clone());
    (judgement.verdict, anomalies.chain(doubts).collect())
}

#[test]
fn a_correct_system_passes_under_each_model() {
    for it in MODELS {
        let workload = workload(it.name);
        let all = run(&workload, 400, |_, answer| answer);
        assert_eq!(judged(&workload, 0, &all), (Verdict::Pass, Vec::new()), "{}", it.name);
        let kinds: BTreeSet<&str> = all.iter().map(|it| it.2.kind()).collect();
        assert_eq!(kinds.len(), Workload::kinds_of(it).len(), "{}", it.name);
    }
}

#[test]
fn a_lie_is_found_under_each_model() {
    for it in MODELS {
        let workload = workload(it.name);
        let honest = run(&workload, 400, |_, answer| answer);
        // The last answer that is not trivial before the final phase is replaced with that of the first such operation.
        let is_telling = |it: &&(u16, u64, Call, Completion)| {
            it.1 < FINAL
                && match &it.3 {
                    Completion::Ok(Answer::Number(_) | Answer::Numbers(_)) => true,
                    Completion::Ok(Answer::Entries(entries)) => !entries.is_empty(),
                    Completion::Ok(Answer::Lists(lists)) => lists.iter().any(|it| !it.is_empty()),
                    _ => false,
                }
        };
        let first = honest.iter().find(is_telling).unwrap().3.clone();
        let mut wrong = honest.clone();
        let last = wrong.iter().rposition(|it| is_telling(&it)).unwrap();
        wrong[last].3 = match (&first, &wrong[last].3) {
            // A balance changes although nothing was moved.
            (Completion::Ok(Answer::Numbers(all)), _) if it.name == "bank" => {
                let mut all = all.clone();
                all[0] += 1;
                Completion::Ok(Answer::Numbers(all))
            }
            (_, Completion::Ok(Answer::Lists(lists))) => {
                let lists = lists.iter().map(|it| it[..it.len().saturating_sub(1)].into());
                Completion::Ok(Answer::Lists(lists.collect()))
            }
            (_, Completion::Ok(Answer::Entries(entries))) => {
                let entries = entries.iter().map(|(offset, value)| (*offset, value + 1));
                Completion::Ok(Answer::Entries(entries.collect()))
            }
            _ => first,
        };
        // Only this level of a lock judges fencing tokens.
        let level = it.levels.iter().position(|it| *it == "fenced").unwrap_or(0);
        let (verdict, why) = judged(&workload, level, &wrong);
        assert_eq!(verdict, Verdict::Fail, "{}: {why:?}", it.name);
    }
}

#[test]
fn the_same_seed_asks_for_the_same_operations() {
    for it in MODELS {
        let calls = |seed| -> Vec<Call> {
            let workload = Workload { seed, ..workload(it.name) };
            run(&workload, 200, |_, answer| answer).into_iter().map(|it| it.2).collect()
        };
        assert_eq!(calls(1), calls(1), "{}", it.name);
        // Identifiers and locks leave nothing to choose.
        assert_eq!(calls(1) == calls(2), matches!(it.name, "ids" | "lock"), "{}", it.name);
    }
}

#[test]
fn kinds_occur_as_often_as_their_weights_say_and_every_value_is_unique() {
    let mut workload = workload("register");
    workload.mix = [("read".to_owned(), 2), ("write".to_owned(), 1), ("cas".to_owned(), 0)].into();
    assert_eq!(workload.kinds(), ["read", "write"]);
    assert_eq!(
        (workload.every("read"), workload.every("write")),
        (Span::from_millis(30), Span::from_millis(60))
    );
    let kinds: Vec<&str> = (0..3000).map(|it| workload.kind(it)).collect();
    let reads = kinds.iter().filter(|it| **it == "read").count();
    assert!((1900..2100).contains(&reads), "{reads}");
    let mut values = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for arrival in 0..3000 {
        let call = workload.call(arrival, &Memory::default());
        assert_eq!(call.kind(), kinds[arrival as usize]);
        if let Call::Write(key, value) = call {
            assert!(values.insert(value));
            assert_eq!(u64::from(key.0) / 3, arrival / 60, "keys are replaced after 20 operations each");
            keys.insert(key);
        }
    }
    assert_eq!(keys.len(), 150);
    assert_eq!(workload.keys(0..3000), 0..150);
    assert_eq!((workload.due(50), workload.first_from(Time(1_000_000_001))), (Time(1_000_000_000), 51));
}

#[test]
fn lines_are_as_documented() {
    let document = include_str!("../../../../docs/histories.md");
    let key = Key(7);
    for (number, call, reply) in [
        (2, Call::Write(key, 318), Reply::Ok(Answer::Null)),
        (3, Call::Cas(key, Some(318), 319), Reply::Ok(Answer::Flag(true))),
        (4, Call::Read(key), Reply::Unknown("timed out".into())),
    ] {
        let asked: serde_json::Value = serde_json::from_str(&line_of(number, &call)).unwrap();
        let lines: Vec<&str> =
            document.lines().filter(|it| it.starts_with(&format!("{{\"n\":{number},"))).collect();
        assert_eq!(serde_json::from_str::<serde_json::Value>(lines[0]).unwrap(), asked);
        assert_eq!(reply_of("register", number, &call, lines[1].as_bytes()), Ok(reply));
    }
}

#[test]
fn a_reply_that_breaks_the_contract_is_quoted() {
    let read = Call::Read(Key(1));
    let txn = Call::Txn([Step::Read(Key(1)), Step::Append(Key(2), 5)].into());
    for (model, call, line, part) in [
        ("register", &read, "hello", "replied with no JSON object: hello"),
        ("register", &read, "[1]", "replied with no JSON object: [1]"),
        ("register", &read, r#"{"ok":1}"#, r#"replied without `"n":4`"#),
        ("register", &read, r#"{"n":3,"ok":1}"#, r#"replied without `"n":4`"#),
        ("register", &read, r#"{"n":4}"#, "exactly one of `ok`, `fail` and `unknown`"),
        ("register", &read, r#"{"n":4,"ok":1,"fail":"a"}"#, "exactly one of `ok`, `fail` and `unknown`"),
        ("register", &read, r#"{"n":4,"fail":1}"#, "replied with `fail` that is no text"),
        (
            "register",
            &read,
            r#"{"n":4,"ok":"1"}"#,
            "answered `read` with something else than an integer or null",
        ),
        ("register", &read, r#"{"n":4,"ok":9223372036854775807}"#, "answered `read` with something else"),
        ("counter", &Call::ReadAll, r#"{"n":4,"ok":[1]}"#, "something else than an integer"),
        ("set", &Call::ReadAll, r#"{"n":4,"ok":1}"#, "something else than a list of integers"),
        ("log", &Call::Poll(Key(1), 0), r#"{"n":4,"ok":[[1]]}"#, "a list of pairs"),
        ("list", &txn, r#"{"n":4,"ok":[["r","k1",[1]]]}"#, "the list of its steps"),
        ("list", &txn, r#"{"n":4,"ok":[["r","k1",[1]],["append","k2",6]]}"#, "the list of its steps"),
    ] {
        let found = reply_of(model, 4, call, line.as_bytes()).unwrap_err();
        assert!(found.contains(part), "{line}: {found}");
    }
    let line = r#"{"n":4,"ok":[["r","k1",[1]],["append","k2",5]],"took":3}"#;
    assert_eq!(reply_of("list", 4, &txn, line.as_bytes()), Ok(Reply::Ok(Answer::Lists([[1].into()].into()))));
}
