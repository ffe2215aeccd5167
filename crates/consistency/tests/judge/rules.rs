//! Each rule of each model refuses a history that no other rule refuses, and accepts it without the wrong answer.

use faultline_consistency::{Answer, Call, Operation, Value, Verdict};

use crate::support::{failed, history, kinds, ok, unknown, value, values};

fn add(client: u32, call_at: u64, return_at: u64, element: u32) -> Operation {
    ok(client, call_at, return_at, Call::Add(value(element)), Answer::Done)
}

fn read_set(client: u32, call_at: u64, return_at: u64, all: &[u32]) -> Operation {
    ok(client, call_at, return_at, Call::ReadAll, Answer::Values(values(all)))
}

#[test]
fn sets() {
    let judged = |level, all: Vec<Operation>| kinds(all, "set", level);
    let strict = |all| judged(0, all);
    let none: [&str; 0] = [];
    assert_eq!(strict(vec![add(0, 1, 2, 1), read_set(1, 3, 4, &[1])]), none);
    assert_eq!(strict(vec![add(0, 1, 2, 1), read_set(1, 3, 4, &[1, 7])]), ["invented"]);
    assert_eq!(strict(vec![add(0, 1, 2, 1), read_set(1, 3, 4, &[1, 1])]), ["duplicated"]);
    assert_eq!(strict(vec![add(0, 1, 2, 1), read_set(1, 3, 4, &[])]), ["lost"]);
    assert_eq!(strict(vec![read_set(1, 1, 2, &[1]), add(0, 3, 4, 1)]), ["early"]);
    let dirty = failed(0, 1, 2, Call::Add(value(2)));
    assert_eq!(strict(vec![dirty, add(0, 3, 4, 1), read_set(1, 5, 6, &[1, 2])]), ["dirty"]);
    // A stale read does not contradict `eventual`, and is not lost.
    let stale = vec![add(0, 1, 2, 1), read_set(1, 3, 4, &[]), read_set(1, 5, 6, &[1])];
    assert_eq!(strict(stale.clone()), ["stale"]);
    assert_eq!(judged(1, stale), none);
    let apart = vec![
        add(0, 1, 20, 1),
        add(1, 1, 20, 2),
        read_set(2, 2, 3, &[1]),
        read_set(3, 2, 3, &[2]),
        read_set(2, 30, 31, &[1, 2]),
    ];
    assert_eq!(strict(apart), ["incomparable"]);
    // Operations whose times touch are concurrent.
    let touching = vec![add(0, 1, 3, 1), read_set(1, 3, 4, &[]), read_set(1, 10, 11, &[1])];
    assert_eq!(strict(touching), none);
    let touching =
        vec![add(0, 4, 20, 1), read_set(1, 5, 6, &[1]), read_set(2, 6, 7, &[]), read_set(1, 30, 31, &[1])];
    assert_eq!(strict(touching), none);
    let apart =
        vec![add(0, 4, 20, 1), read_set(1, 5, 6, &[1]), read_set(2, 7, 8, &[]), read_set(1, 30, 31, &[1])];
    assert_eq!(strict(apart), ["stale"]);
    // An element without a result may appear, or not.
    let maybe = |all: &[u32]| vec![unknown(0, 1, Call::Add(value(1))), read_set(1, 3, 4, all)];
    assert_eq!((strict(maybe(&[])), strict(maybe(&[1]))), (vec![], vec![]));
}

fn enqueue(call_at: u64, return_at: u64, element: u32) -> Operation {
    ok(0, call_at, return_at, Call::Enqueue(value(element)), Answer::Done)
}

fn dequeue(call_at: u64, return_at: u64, element: Option<u32>) -> Operation {
    let element = element.map_or(Value::NULL, value);
    ok(1, call_at, return_at, Call::Dequeue, Answer::Value(element))
}

#[test]
fn queues() {
    let judged = |level, all: Vec<Operation>| kinds(all, "queue", level);
    let none: [&str; 0] = [];
    let two = || vec![enqueue(1, 2, 1), enqueue(3, 4, 2)];
    let then = |all: &[Operation]| [two(), all.to_vec()].concat();
    assert_eq!(
        judged(0, then(&[dequeue(5, 6, Some(1)), dequeue(7, 8, Some(2)), dequeue(9, 10, None)])),
        none
    );
    let swapped = then(&[dequeue(5, 6, Some(2)), dequeue(7, 8, Some(1))]);
    assert_eq!((judged(0, swapped.clone()), judged(1, swapped)), (vec!["reordered"], vec![]));
    let skipped = then(&[dequeue(5, 6, Some(2))]);
    assert_eq!((judged(0, skipped.clone()), judged(1, skipped)), (vec!["skipped"], vec![]));
    let twice = then(&[dequeue(5, 6, Some(1)), dequeue(7, 8, Some(1)), dequeue(9, 10, Some(2))]);
    assert_eq!((judged(1, twice.clone()), judged(2, twice)), (vec!["duplicated"], vec![]));
    let lost = then(&[dequeue(5, 6, Some(1)), dequeue(7, 8, None)]);
    assert_eq!(judged(2, lost.clone()), ["lost"]);
    // Nothing shows whether what is missing is still in the queue.
    let undrained = crate::support::judged(&history(then(&[dequeue(5, 6, Some(1))])), "queue", 2);
    assert_eq!((undrained.verdict, undrained.anomalies.len()), (Verdict::Unknown, 0));
    let excused = [lost, vec![unknown(2, 5, Call::Dequeue)]].concat();
    assert_eq!(judged(0, excused), none);
    assert_eq!(judged(2, then(&[dequeue(5, 6, Some(9))])), ["invented"]);
    assert_eq!(judged(2, vec![dequeue(1, 2, Some(1)), enqueue(3, 4, 1)]), ["early"]);
    let dirty = vec![failed(0, 1, 2, Call::Enqueue(value(1))), enqueue(3, 4, 2), dequeue(5, 6, Some(1))];
    assert_eq!(judged(2, dirty), ["dirty"]);
    let empty = then(&[dequeue(5, 6, None), dequeue(7, 8, Some(1)), dequeue(9, 10, Some(2))]);
    assert_eq!((judged(0, empty.clone()), judged(1, empty)), (vec!["notEmpty"], vec![]));
}

fn send(client: u32, call_at: u64, return_at: u64, element: u32, offset: u32) -> Operation {
    ok(client, call_at, return_at, Call::Send(0, value(element)), Answer::Value(value(offset)))
}

fn poll(call_at: u64, return_at: u64, from: i64, all: &[(i64, u32)]) -> Operation {
    let entries = all.iter().map(|it| (it.0, value(it.1))).collect();
    ok(1, call_at, return_at, Call::Poll(0, Some(from)), Answer::Entries(entries))
}

#[test]
fn logs() {
    let judged = |level, all: Vec<Operation>| kinds(all, "log", level);
    let none: [&str; 0] = [];
    let two = |last: Operation| vec![send(0, 1, 2, 1, 0), send(0, 3, 4, 2, 1), last];
    assert_eq!(judged(0, two(poll(5, 6, 0, &[(0, 1), (1, 2)]))), none);
    assert_eq!(judged(0, two(poll(5, 6, 0, &[(1, 2)]))), ["lost"]);
    assert_eq!(judged(0, two(poll(5, 6, 1, &[(1, 2)]))), none);
    assert_eq!(judged(0, two(poll(5, 6, 1, &[(0, 1), (1, 2)]))), ["backward"]);
    assert_eq!(judged(0, two(poll(5, 6, 0, &[(0, 1), (1, 7)]))), ["invented", "diverged"]);
    assert_eq!(judged(0, two(poll(5, 6, 0, &[(1, 2), (0, 1)]))), ["reordered"]);
    let twice = two(poll(5, 6, 0, &[(0, 1), (1, 2), (2, 1)]));
    assert_eq!((judged(0, twice.clone()), judged(1, twice)), (vec!["duplicated"], vec![]));
    let swapped = vec![send(0, 1, 2, 1, 1), send(0, 3, 4, 2, 0), poll(5, 6, 0, &[(0, 2), (1, 1)])];
    assert_eq!(judged(0, swapped), ["reordered"]);
    assert_eq!(judged(0, vec![poll(1, 2, 0, &[(0, 1)]), send(0, 3, 4, 1, 0)]), ["early"]);
    let dirty =
        vec![failed(0, 1, 2, Call::Send(0, value(9))), send(0, 3, 4, 1, 1), poll(5, 6, 0, &[(0, 9), (1, 1)])];
    assert_eq!(judged(0, dirty), ["dirty"]);
}

#[test]
fn counters() {
    let read = |found: u32| ok(1, 10, 20, Call::ReadAll, Answer::Value(value(found)));
    let judged = |level, all: Vec<Operation>| kinds(all, "counter", level);
    // 2 was surely added; 1 and 4 may have been.
    let adds = || vec![add(0, 1, 2, 2), unknown(2, 3, Call::Add(value(1))), add(0, 15, 30, 4)];
    let with = |found: u32| [adds(), vec![read(found)]].concat();
    let none: [&str; 0] = [];
    assert_eq!((judged(0, with(2)), judged(0, with(7))), (vec![], vec![]));
    assert_eq!(judged(0, with(1)), ["tooSmall"]);
    assert_eq!(judged(0, with(8)), ["tooLarge"]);
    let last = |found: u32| {
        let last = ok(1, 40, 50, Call::ReadAll, Answer::Value(value(found)));
        judged(1, [with(0), vec![last]].concat())
    };
    assert_eq!((last(6), last(7)), (vec![], vec![]));
    assert_eq!((last(5), last(8)), (vec!["lost"], vec!["exceeded"]));
    assert_eq!(judged(0, vec![failed(0, 1, 2, Call::Add(value(1))), add(0, 3, 4, 1), read(1)]), none);
}

#[test]
fn identifiers() {
    let next =
        |call_at: u64, found: u32| ok(0, call_at, call_at + 1, Call::Next, Answer::Value(value(found)));
    let none: [&str; 0] = [];
    assert_eq!(kinds(vec![next(1, 5), next(3, 6)], "ids", 0), none);
    assert_eq!(kinds(vec![next(1, 6), next(3, 5)], "ids", 0), ["decreased"]);
    assert_eq!(kinds(vec![next(1, 6), next(3, 5)], "ids", 1), none);
    assert_eq!(kinds(vec![next(1, 6), next(3, 6)], "ids", 1), ["duplicated"]);
    // Concurrent requests have no order.
    assert_eq!(kinds(vec![next(1, 6), next(2, 5)], "ids", 0), none);
}

#[test]
fn locks() {
    let acquire = |client: u32, at: u64, answer: Answer| ok(client, at, at + 1, Call::Acquire(0), answer);
    let release = |client: u32, at: u64| ok(client, at, at + 1, Call::Release(0), Answer::Done);
    let token = |number: u32| Answer::Value(value(number));
    let none: [&str; 0] = [];
    let right = vec![acquire(0, 1, token(1)), release(0, 3), acquire(1, 5, token(2))];
    assert_eq!((kinds(right.clone(), "lock", 0), kinds(right, "lock", 1)), (vec![], vec![]));
    let both = vec![acquire(0, 1, token(1)), acquire(1, 5, token(2)), release(0, 7)];
    assert_eq!((kinds(both.clone(), "lock", 0), kinds(both, "lock", 1)), (vec!["heldTwice"], vec![]));
    let older = vec![acquire(0, 1, token(2)), release(0, 3), acquire(1, 5, token(1))];
    assert_eq!((kinds(older.clone(), "lock", 0), kinds(older, "lock", 1)), (vec![], vec!["tokenDecreased"]));
    let same = vec![acquire(0, 1, token(1)), release(0, 3), acquire(1, 5, token(1))];
    assert_eq!(kinds(same, "lock", 1), ["sameToken"]);
    // A release without a result may have happened.
    let maybe =
        vec![acquire(0, 1, Answer::Done), unknown(0, 3, Call::Release(0)), acquire(1, 5, Answer::Done)];
    assert_eq!(kinds(maybe, "lock", 0), none);
}

#[test]
fn banks() {
    let transfer = ok(0, 1, 2, Call::Transfer(value(0), value(1), 5), Answer::Flag(true));
    let read = |at: u64, all: &[i64]| {
        let all = all.iter().map(|it| Value::number(*it).expect("a small number")).collect();
        ok(1, at, at + 1, Call::ReadAll, Answer::Values(all))
    };
    let judged =
        |second: &[i64]| kinds(vec![transfer.clone(), read(3, &[10, 10]), read(5, second)], "bank", 0);
    assert_eq!(judged(&[5, 15]), [""; 0]);
    assert_eq!(judged(&[5, 10]), ["total"]);
    assert_eq!(judged(&[20]), ["accounts"]);
    assert_eq!(judged(&[-5, 25]), ["negative"]);
}
