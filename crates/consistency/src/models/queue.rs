//! Queues: `enqueue` and `dequeue`. Each element is enqueued once at most.

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::Model;
use crate::operation::{Answer, Call, History, NEVER, Value};

/// The model of queues, which are empty at first.
pub(crate) const MODEL: Model = Model {
    name: "queue",
    about: "`dequeue` removes an element that was enqueued, in order and only once",
    levels: &["fifo", "exactlyOnce", "atLeastOnce"],
    kinds: &["enqueue", "dequeue"],
    reads: &["dequeue"],
    repeats: false,
    judge,
};

const FIFO: Levels = upto(0);
const EXACTLY_ONCE: Levels = upto(1);
const AT_LEAST_ONCE: Levels = upto(2);

/// An element that was surely enqueued.
struct Element {
    value: Value,
    enqueue: usize,
    called: u64,
    /// The return of the `enqueue` or, if that is unknown, of the first `dequeue` that returned the element.
    returned: u64,
    /// The first `dequeue` that returned it: the call, the return, and the operation.
    dequeue: Option<(u64, u64, usize)>,
}

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let operations = &history.operations;
    let who = |at: usize| history.client(&operations[at]);
    let (mut places, mut all): (Map<Value, usize>, Vec<Element>) = (Map::default(), Vec::new());
    // The end of everything that may change the queue, except for unknown operations that take effect later.
    let mut last_change = 0;
    for (at, it) in operations.iter().enumerate() {
        if let Call::Enqueue(value) = it.call {
            places.insert(value, all.len());
            let returned = if it.answer().is_some() { it.return_at } else { NEVER };
            all.push(Element { value, enqueue: at, called: it.call_at, returned, dequeue: None });
            last_change = last_change.max(if returned == NEVER { it.call_at } else { returned });
        }
    }
    // The calls of dequeues without a result, and the dequeues that found the queue empty.
    let (mut unknown, mut empty) = (Vec::new(), Vec::new());
    let mut dequeues: Vec<usize> =
        (0..operations.len()).filter(|it| operations[*it].call == Call::Dequeue).collect();
    dequeues.sort_by_key(|it| (operations[*it].return_at, *it));
    for at in dequeues {
        let it = &operations[at];
        let value = match it.answer() {
            Some(Answer::Value(Value::NULL)) => {
                empty.push(at);
                continue;
            }
            Some(Answer::Value(value)) => *value,
            _ if it.is_failed() => continue,
            _ => {
                unknown.push(it.call_at);
                continue;
            }
        };
        last_change = last_change.max(it.return_at);
        let Some(element) = places.get(&value).map(|place| &mut all[*place]) else {
            findings.add_case("invented", AT_LEAST_ONCE, history, &[at], || {
                format!("{} dequeued {}, which no client enqueued", who(at), history.show(value))
            });
            continue;
        };
        let enqueue = element.enqueue;
        if operations[enqueue].is_failed() {
            findings.add_dirty(AT_LEAST_ONCE, history, &[enqueue, at], || {
                let (a, b, what) = (who(at), who(enqueue), history.show(value));
                format!("{a} dequeued {what}, but {b} was told that its `enqueue` had no effect")
            });
        } else if it.return_at < element.called {
            findings.add_case("early", AT_LEAST_ONCE, history, &[enqueue, at], || {
                let (a, b) = (who(at), who(enqueue));
                format!("{a} dequeued {} before {b} enqueued it", history.show(value))
            });
        }
        match element.dequeue {
            Some((_, _, other)) => {
                findings.add_case("duplicated", EXACTLY_ONCE, history, &[other, at], || {
                    let (a, b) = (who(other), who(at));
                    format!("{a} and {b} both dequeued {}", history.show(value))
                })
            }
            None => {
                element.dequeue = Some((it.call_at, it.return_at, at));
                element.returned = element.returned.min(it.return_at);
            }
        }
    }
    unknown.sort_unstable();
    all.retain(|it| it.returned != NEVER && !operations[it.enqueue].is_failed());
    all.sort_by_key(|it| (it.returned, it.enqueue));
    lost(history, &all, &unknown, &empty, last_change, findings);
    order(history, &all, &unknown, findings);
    emptied(history, &all, &unknown, &empty, findings);
}

/// Returns how many dequeues without a result may have removed an element up to a time.
fn excuses(unknown: &[u64], time: u64) -> usize {
    unknown.partition_point(|it| *it <= time)
}

/// Adds the elements that are missing although the queue was found empty in the end. Each `dequeue` without a result may
/// have removed one of them.
fn lost(
    history: &History,
    all: &[Element],
    unknown: &[u64],
    empty: &[usize],
    last_change: u64,
    findings: &mut Findings,
) {
    let operations = &history.operations;
    let in_the_end = empty.iter().filter(|it| operations[**it].call_at > last_change);
    let missing: Vec<&Element> = all.iter().filter(|it| it.dequeue.is_none()).collect();
    let Some(&end) = in_the_end.max_by_key(|it| operations[**it].call_at) else {
        if missing.len() > unknown.len() {
            let what = format!(
                "{} acknowledged elements were never dequeued, and the queue was not found empty in the end",
                missing.len()
            );
            let help =
                "in the end, let a client `dequeue` until the queue is empty; that answer is `ok` with null";
            findings.doubt(AT_LEAST_ONCE, what, help);
        }
        return;
    };
    let excused = excuses(unknown, operations[end].return_at);
    for it in missing.iter().take(missing.len().saturating_sub(excused)) {
        findings.add_case("lost", AT_LEAST_ONCE, history, &[it.enqueue, end], || {
            let (what, when) = (history.show(it.value), history.time(it.returned));
            let count = if excused > 0 { " one of several elements" } else { "" };
            let lost = format!("{what} was acknowledged at {when}, and no `dequeue` returned it");
            match count {
                "" => format!("{lost} before the queue was found empty"),
                _ => format!("{lost}; more elements are missing than {excused} unknown `dequeue`s explain"),
            }
        });
    }
}

/// Adds elements that were dequeued in another order than they were enqueued.
fn order(history: &History, all: &[Element], unknown: &[u64], findings: &mut Findings) {
    // By the call of `enqueue`; `all` is sorted by its return.
    let mut later: Vec<&Element> = all.iter().filter(|it| it.dequeue.is_some()).collect();
    later.sort_by_key(|it| (it.called, it.enqueue));
    let mut earlier = all.iter().peekable();
    // Of the elements that were enqueued before: the one that was dequeued last, and those that never were.
    let mut slowest: Option<(u64, &Element)> = None;
    let (mut missing, mut first_missing) = (0, None);
    for it in later {
        while let Some(other) = earlier.next_if(|other| other.returned < it.called) {
            match other.dequeue {
                Some((call, ..)) if slowest.is_none_or(|slowest| slowest.0 < call) => {
                    slowest = Some((call, other));
                }
                Some(_) => {}
                None => {
                    missing += 1;
                    first_missing.get_or_insert(other);
                }
            }
        }
        let Some((_, returned, dequeue)) = it.dequeue else { continue };
        if let Some((call, other)) = slowest
            && returned < call
        {
            let second = other.dequeue.map_or(other.enqueue, |it| it.2);
            let names = [other.enqueue, it.enqueue, dequeue, second];
            findings.add_case("reordered", FIFO, history, &names, || {
                let (first, second) = (history.show(other.value), history.show(it.value));
                format!("{first} was enqueued before {second}, but dequeued after it")
            });
        } else if missing > excuses(unknown, returned)
            && let Some(other) = first_missing
        {
            let names = [other.enqueue, it.enqueue, dequeue];
            findings.add_case("skipped", FIFO, history, &names, || {
                let (first, second) = (history.show(other.value), history.show(it.value));
                format!("{second} was dequeued, but {first}, which was enqueued before it, never was")
            });
        }
    }
}

/// Adds dequeues that found the queue empty while some element was surely inside at all times.
fn emptied(history: &History, all: &[Element], unknown: &[u64], empty: &[usize], findings: &mut Findings) {
    let operations = &history.operations;
    // An element is surely inside between the return of its `enqueue` and the call of its `dequeue`.
    let removed = |it: &Element| it.dequeue.map(|dequeue| dequeue.0);
    // For each prefix of `all`, the element that stayed longest: with, and without those that were never dequeued.
    let mut longest: [Vec<(u64, usize)>; 2] = [Vec::new(), Vec::new()];
    for (place, it) in all.iter().enumerate() {
        for (side, stays) in [removed(it), Some(removed(it).unwrap_or(NEVER))].into_iter().enumerate() {
            let last = longest[side].last().copied().unwrap_or((0, 0));
            longest[side].push(stays.map_or(last, |it| last.max((it, place))));
        }
    }
    for &at in empty {
        let it = &operations[at];
        let has_excuse = excuses(unknown, it.return_at) > 0;
        let longest = &longest[usize::from(!has_excuse)];
        let (mut time, mut inside) = (it.call_at, Vec::new());
        while time <= it.return_at {
            let earlier = all.partition_point(|it| it.returned < time);
            let Some(&(until, place)) = earlier.checked_sub(1).map(|last| &longest[last]) else { break };
            if until <= time {
                break;
            }
            (time, _) = (until, inside.push(all[place].enqueue));
        }
        if time > it.return_at {
            let first = inside[0];
            inside.truncate(4);
            inside.push(at);
            findings.add_case("notEmpty", FIFO, history, &inside, || {
                let Call::Enqueue(value) = operations[first].call else { return String::new() };
                let (who, what) = (history.client(it), history.show(value));
                format!("{who} found the queue empty, although {what} was in it")
            });
        }
    }
}
