//! Registers: each rule before and in the search, counterexamples, and what a verdict depends on.

use faultline_consistency::{Answer, Call, Limits, Operation, Outcome, Value, Verdict, draw, judge, model};

use crate::generate::{Plan, register};
use crate::reduction::assert_refused;
use crate::support::{failed, history, judged, kinds, ok, unknown, value};

fn read(client: u32, call_at: u64, return_at: u64, found: u32) -> Operation {
    ok(client, call_at, return_at, Call::Read(0), Answer::Value(value(found)))
}

fn write(client: u32, call_at: u64, return_at: u64, new: u32) -> Operation {
    ok(client, call_at, return_at, Call::Write(0, value(new)), Answer::Done)
}

fn cas(client: u32, call_at: u64, return_at: u64, from: u32, to: u32, flag: bool) -> Operation {
    ok(client, call_at, return_at, Call::Cas(0, value(from), value(to)), Answer::Flag(flag))
}

fn maybe_write(client: u32, call_at: u64, new: u32) -> Operation {
    unknown(client, call_at, Call::Write(0, value(new)))
}

fn strict(all: Vec<Operation>) -> Vec<&'static str> {
    kinds(all, "register", 0)
}

#[test]
fn wrong_reads_have_names() {
    assert_eq!(strict(vec![write(0, 1, 2, 1), read(1, 3, 4, 1)]), [""; 0]);
    assert_eq!(strict(vec![write(0, 1, 2, 1), read(1, 3, 4, 9)]), ["invented"]);
    assert_eq!(strict(vec![read(1, 1, 2, 1), write(0, 3, 4, 1)]), ["early"]);
    let dirty = failed(0, 1, 2, Call::Write(0, value(5)));
    assert_eq!(strict(vec![dirty, write(0, 3, 4, 1), read(1, 5, 6, 5)]), ["dirty"]);
    assert_eq!(strict(vec![write(0, 1, 2, 1), write(0, 3, 4, 2), read(1, 5, 6, 1)]), ["stale"]);
    let own = vec![write(0, 1, 2, 1), write(0, 3, 4, 2), read(0, 5, 6, 1)];
    assert_eq!(kinds(own.clone(), "register", 1), ["backward"]);
    assert_eq!(strict(own), ["backward", "stale"]);
    assert_eq!(
        strict(vec![write(0, 1, 2, 1), cas(1, 3, 4, 1, 2, false), read(1, 5, 6, 1)]),
        ["notLinearizable"]
    );
}

#[test]
fn a_return_at_the_time_of_a_call_orders_nothing() {
    assert_eq!(strict(vec![write(0, 1, 2, 1), write(0, 2, 3, 2), read(1, 4, 5, 1)]), [""; 0]);
    assert_eq!(strict(vec![read(1, 1, 2, 1), write(0, 2, 3, 1)]), [""; 0]);
    // The register holds 1 until 5, and 2 from 5 on.
    let touching = vec![write(0, 1, 2, 1), write(1, 3, 5, 2), read(2, 5, 9, 1), read(3, 8, 10, 2)];
    assert_eq!(strict(touching), [""; 0]);
    // The read of 1 and the write that ends at 5 are concurrent, whether or not its value is read.
    let unread = vec![write(0, 1, 2, 1), write(1, 3, 5, 2), read(2, 5, 9, 1)];
    assert_eq!(strict(unread.clone()), [""; 0]);
    assert_eq!(strict([unread, vec![read(3, 4, 6, 2)]].concat()), [""; 0]);
    // The same in a search, because 1 is written twice: the read ends when the unknown write begins.
    let unknown = |call_at| {
        vec![
            write(0, 1, 2, 1),
            write(0, 3, 4, 1),
            read(1, 5, 6, 1),
            maybe_write(2, call_at, 2),
            read(1, 8, 10, 2),
        ]
    };
    assert_eq!(strict(unknown(10)), [""; 0]);
    assert_eq!(strict(unknown(11)), ["notLinearizable"]);
}

#[test]
fn a_failed_write_has_no_effect_and_an_unknown_one_may() {
    let after = |first: Operation, found| strict(vec![write(1, 1, 2, 1), first, read(2, 20, 21, found)]);
    assert_eq!(after(maybe_write(0, 3, 2), 1), [""; 0]);
    assert_eq!(after(maybe_write(0, 3, 2), 2), [""; 0]);
    // It takes effect once, even long after its client gave up.
    let late = |last: u32| {
        strict(vec![
            write(1, 1, 2, 1),
            maybe_write(0, 3, 2),
            read(2, 20, 21, 1),
            read(2, 30, 31, 2),
            write(1, 40, 41, 3),
            read(2, 50, 51, last),
        ])
    };
    assert_eq!(late(3), [""; 0]);
    assert_eq!(late(2), ["stale"]);
}

#[test]
fn an_unknown_write_is_not_dropped_if_a_comparison_may_have_seen_it() {
    let seen = |call_at| {
        strict(vec![
            write(1, 1, 2, 1),
            maybe_write(0, call_at, 2),
            cas(2, 20, 21, 1, 3, false),
            read(2, 30, 31, 1),
        ])
    };
    // Nothing wrote 1 again, so the comparison with 1 must succeed.
    assert_eq!(seen(3), ["notLinearizable"]);
    let last =
        |call_at| strict(vec![write(1, 1, 2, 1), maybe_write(0, call_at, 2), cas(2, 20, 21, 1, 3, false)]);
    assert_eq!(last(3), [""; 0]);
    assert_eq!(last(25), ["notLinearizable"]);
}

#[test]
fn an_observed_comparison_observes_itself() {
    // The unknown cas from 2 to 3 was observed, so the unknown write of 2 happened before.
    let all = |last: u32| {
        let cas = unknown(1, 5, Call::Cas(0, value(2), value(3)));
        strict(vec![write(2, 1, 2, 1), maybe_write(0, 3, 2), cas, read(2, 10, 11, 3), read(2, 20, 21, last)])
    };
    assert_eq!(all(3), [""; 0]);
    assert_eq!(all(2), ["notLinearizable"]);
}

#[test]
fn repeated_values_need_a_search() {
    let all = |last: u32| {
        strict(vec![
            write(0, 1, 10, 1),
            write(1, 1, 10, 2),
            write(2, 1, 10, 1),
            read(3, 2, 3, 1),
            read(3, 4, 5, 2),
            read(3, 6, 7, 1),
            read(3, 20, 21, last),
        ])
    };
    assert_eq!(all(1), [""; 0]);
    assert_eq!(all(2), ["notLinearizable"]);
}

#[test]
fn sessions_need_values_that_name_their_write() {
    let twice = history(vec![write(0, 1, 2, 1), write(0, 3, 4, 1), read(0, 5, 6, 1)]);
    assert_eq!(judged(&twice, "register", 0).verdict, Verdict::Pass);
    assert_eq!(judged(&twice, "register", 1).verdict, Verdict::Unknown);
}

#[test]
fn silence_is_unknown() {
    let verdict = |all: Vec<Operation>| judged(&history(all), "register", 0).verdict;
    assert_eq!(verdict(vec![write(0, 1, 2, 1)]), Verdict::Unknown);
    let null = ok(0, 1, 2, Call::Read(0), Answer::Value(Value::NULL));
    assert_eq!(verdict(vec![null.clone()]), Verdict::Pass);
    assert_eq!(verdict(vec![null, failed(1, 1, 2, Call::Write(0, value(1)))]), Verdict::Unknown);
    let most_unknown = [1, 2, 3].map(|it| maybe_write(it, 1, it));
    let known = vec![ok(0, 1, 2, Call::Read(0), Answer::Value(Value::NULL)), write(0, 3, 4, 9)];
    assert_eq!(verdict([known, most_unknown.to_vec()].concat()), Verdict::Unknown);
}

#[test]
fn more_than_128_operations_at_once_are_unknown() {
    // Values repeat, so a search is needed.
    let all = |count: u32| -> Vec<Operation> {
        let writes = (0..count).map(|it| write(it, 1, 100, 5));
        writes.chain([read(count, 200, 201, 5)]).collect()
    };
    assert_eq!(judged(&history(all(128)), "register", 0).verdict, Verdict::Pass);
    assert_eq!(judged(&history(all(129)), "register", 0).verdict, Verdict::Unknown);
}

#[test]
fn a_search_that_runs_out_of_steps_is_unknown() {
    let plan = Plan {
        operations: 300,
        clients: 10,
        per_key: 300,
        unknown: 30,
        values: 5,
        has_cas: true,
        is_stale: false,
    };
    let history = register(plan, 1);
    let limits = Limits { steps: 100, ..Limits::default() };
    let judgement = judge(&history, model("register").expect("a model"), 0, limits);
    assert_eq!(judgement.verdict, Verdict::Unknown);
    assert_eq!(judgement.steps, 100);
    assert!(judgement.doubts[0].what.contains("could not be judged in 100 steps"), "{:?}", judgement.doubts);
}

/// Plans with unique and with repeated values, with and without a stale read.
fn plans(operations: u64) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (values, has_cas) in [(0, false), (0, true), (20, true)] {
        for unknown in [1, 10, 50, 100] {
            for is_stale in [false, true] {
                plans.push(Plan {
                    operations,
                    clients: 10,
                    per_key: operations,
                    unknown,
                    values,
                    has_cas,
                    is_stale,
                });
            }
        }
    }
    plans
}

/// Judges histories with many unknown operations. Unique values take few steps, and repeated ones few enough.
fn judge_plans(seeds: impl Iterator<Item = u64> + Clone) {
    for plan in plans(300) {
        for seed in seeds.clone() {
            let limits = Limits { cases: 0, ..Limits::default() };
            let judgement = judge(&register(plan, seed), model("register").expect("a model"), 0, limits);
            let name = format!("{plan:?}, seed {seed}: {judgement:?}");
            if !plan.is_stale {
                assert_ne!(judgement.verdict, Verdict::Fail, "{name}");
            } else if plan.values == 0 && plan.unknown == 1 {
                // With more of them, the write of the value that was read may be unknown and late.
                assert_eq!(judgement.verdict, Verdict::Fail, "{name}");
            }
            assert!(judgement.steps < if plan.values == 0 { 10_000 } else { 1_000_000 }, "{name}");
            assert!(judgement.doubts.iter().all(|it| !it.what.contains("judged in")), "{name}");
        }
    }
}

#[test]
fn histories_with_many_unknown_operations_are_judged_in_few_steps() {
    judge_plans(2..3);
}

#[test]
fn the_search_for_one_key_ends_after_its_steps() {
    let plan = Plan {
        operations: 300,
        clients: 10,
        per_key: 300,
        unknown: 100,
        values: 20,
        has_cas: true,
        is_stale: false,
    };
    let mut history = register(plan, 20);
    // Two reads return another value. There is hardly an order, but proof of that would take many steps.
    let reads =
        history.operations[250..].iter_mut().filter(|it| matches!(it.answer(), Some(Answer::Value(_))));
    reads.take(2).for_each(|it| it.outcome = Outcome::Ok(Answer::Value(value(0))));
    let judgement = judge(
        &history,
        model("register").expect("a model"),
        0,
        Limits { object_steps: 10_000, ..Limits::default() },
    );
    assert_eq!((judgement.verdict, judgement.steps), (Verdict::Unknown, 16_000), "{judgement:?}");
}

#[test]
fn names_of_clients_and_keys_do_not_matter() {
    for (at, plan) in plans(300).into_iter().enumerate().step_by(3) {
        let history = register(Plan { per_key: 60, is_stale: false, ..plan }, at as u64);
        let mut renamed = history.clone();
        for it in &mut renamed.operations {
            it.client = 50 - it.client;
            it.session = 10_000 - it.session;
            let (Call::Read(key) | Call::Write(key, _) | Call::Cas(key, ..)) = &mut it.call else { continue };
            *key = 90 - *key;
        }
        let (a, b) = (judged(&history, "register", 0), judged(&renamed, "register", 0));
        assert_eq!((a.verdict, a.steps, a.strongest), (b.verdict, b.steps, b.strongest), "{at}");
    }
}

/// Judges a case again, after it was written and read, and without each of its operations.
fn is_minimal(
    history: &faultline_consistency::History,
    operations: &[Operation],
    may_drop: impl Fn(&Operation) -> bool,
) {
    let verdict = |operations: Vec<Operation>| {
        let part = faultline_consistency::History { operations, ..history.clone() };
        judged(&part, "register", 0)
    };
    assert_refused(history, operations);
    for at in 0..operations.len() {
        let mut rest = operations.to_vec();
        if may_drop(&rest.remove(at)) {
            assert_ne!(verdict(rest).verdict, Verdict::Fail, "{at} is not needed in {operations:#?}");
        }
    }
}

#[test]
fn counterexamples_are_refused_again_and_are_minimal() {
    for seed in 0..6 {
        for has_cas in [false, true] {
            let plan = Plan {
                operations: 600,
                clients: 10,
                per_key: 600,
                unknown: 5,
                values: 0,
                has_cas,
                is_stale: true,
            };
            let history = register(plan, seed);
            let judgement = judged(&history, "register", 0);
            let anomaly =
                judgement.anomalies.iter().find(|it| it.kind != "backward").expect("a contradiction");
            let case = &anomaly.cases[0];
            assert!(case.operations.len() <= 12, "{}", case.operations.len());
            assert!(case.impossible.is_some());
            // A write that is missing makes its readers wrong for another reason.
            is_minimal(&history, &case.operations, |it| match it.call {
                Call::Write(_, value) | Call::Cas(_, _, value) => {
                    !case.operations.iter().any(|other| match (&other.call, other.answer()) {
                        (Call::Read(_), Some(Answer::Value(read))) => *read == value,
                        (Call::Cas(_, from, _), _) => *from == value,
                        _ => false,
                    })
                }
                _ => true,
            });
            let drawing = draw(&history, case);
            assert!(drawing.lines().all(|it| it.chars().count() <= 100), "{drawing}");
            assert!(drawing.contains('✗'), "{drawing}");
        }
    }
}

#[test]
fn a_case_is_drawn_with_an_order_that_explains_all_but_one_operation() {
    let all = vec![
        write(0, 10_000_000_000, 11_000_000_000, 311),
        write(1, 11_500_000_000, 12_400_000_000, 318),
        read(2, 12_600_000_000, 13_240_000_000, 311),
        read(3, 13_600_000_000, 14_000_000_000, 318),
    ];
    let history = history(all);
    let judgement = judged(&history, "register", 0);
    let case = &judgement.anomalies[0].cases[0];
    assert_eq!(
        case.sentence,
        "no order of the operations on k0 explains that client 2 read 311: 318 had replaced it"
    );
    let drawing = draw(&history, case);
    let expected = "  client 0  ├1 write 311┤
  client 1               ├2 write 318┤
  client 2                            ├✗ read → 311┤
            10.00 s     11.00 s      12.40 s  13.24 s
";
    assert_eq!(drawing, expected, "{drawing}");
}

mod long {
    use super::*;

    /// A million operations on one key are judged and reduced in few steps.
    #[test]
    #[ignore = "takes 20 s"]
    fn a_million_operations_on_one_key_are_judged() {
        for (has_cas, unknown) in [(false, 10), (false, 20_000), (true, 10), (true, 20_000)] {
            for is_stale in [false, true] {
                let plan = Plan {
                    operations: 1_000_000,
                    clients: 10,
                    per_key: 1_000_000,
                    unknown,
                    values: 0,
                    has_cas,
                    is_stale,
                };
                let history = register(plan, 2);
                let judgement = judged(&history, "register", 0);
                let expected = if is_stale { Verdict::Fail } else { Verdict::Pass };
                assert_eq!(judgement.verdict, expected, "{plan:?}");
                assert!(judgement.steps < 2_000_000, "{plan:?}: {}", judgement.steps);
                let reduced = judgement.anomalies.iter().filter(|it| it.kind != "backward");
                for case in reduced.flat_map(|it| &it.cases) {
                    assert!(case.operations.len() <= 12, "{case:?}");
                    assert_refused(&history, &case.operations);
                }
            }
        }
    }

    #[test]
    #[ignore = "takes 10 s"]
    fn many_histories_with_unknown_operations_are_judged_in_few_steps() {
        super::judge_plans(0..6);
    }
}
