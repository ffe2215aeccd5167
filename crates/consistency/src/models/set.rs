//! Sets: `add` and `read`. Elements are never removed, and each is added once at most.

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::{Model, final_reads};
use crate::operation::{Answer, Call, History, Value};

/// The model of sets, which are empty at first.
pub(crate) const MODEL: Model = Model {
    name: "set",
    about: "`read` returns all elements that were added; none is ever removed",
    levels: &["linearizable", "eventual"],
    kinds: &["add", "read"],
    reads: &["read"],
    repeats: false,
    judge,
};

const LINEARIZABLE: Levels = upto(0);
const EVENTUAL: Levels = upto(1);

/// What is known about an element: its `add`, and whether a read of the chain contained it.
struct Element {
    add: usize,
    is_read: bool,
    is_excluded: bool,
}

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let operations = &history.operations;
    let mut elements: Map<Value, usize> = Map::default();
    let mut all: Vec<Element> = Vec::new();
    for (add, it) in operations.iter().enumerate() {
        if let Call::Add(value) = it.call {
            elements.insert(value, all.len());
            all.push(Element { add, is_read: false, is_excluded: it.is_failed() });
        }
    }
    let mut reads: Vec<(usize, &[Value])> = Vec::new();
    for (at, it) in operations.iter().enumerate() {
        if let (Call::ReadAll, Some(Answer::Values(values))) = (&it.call, it.answer()) {
            reads.push((at, values));
        }
    }
    let who = |at: usize| history.client(&operations[at]);
    let show = |value: Value| history.show(value);
    // Elements that no read may contain. They are left out of everything else.
    let mut sets: Vec<(usize, Vec<usize>)> = Vec::with_capacity(reads.len());
    let mut seen_in: Vec<usize> = vec![usize::MAX; all.len()];
    let mut is_invented: Map<Value, ()> = Map::default();
    for (number, &(read, values)) in reads.iter().enumerate() {
        let mut set = Vec::with_capacity(values.len());
        for &value in values {
            let Some(&element) = elements.get(&value) else {
                if is_invented.insert(value, ()).is_none() {
                    findings.add_case("invented", EVENTUAL, history, &[read], || {
                        format!("{} read {}, which no client added", who(read), show(value))
                    });
                }
                continue;
            };
            let add = all[element].add;
            if std::mem::replace(&mut seen_in[element], number) == number {
                findings.add_case("duplicated", EVENTUAL, history, &[add, read], || {
                    format!("a read by {} contains {} twice", who(read), show(value))
                });
                continue;
            }
            if operations[add].is_failed() {
                if !std::mem::replace(&mut all[element].is_read, true) {
                    findings.add_dirty(EVENTUAL, history, &[add, read], || {
                        format!(
                            "{} read {}, but {} was told that its `add` had no effect",
                            who(read),
                            show(value),
                            who(add)
                        )
                    });
                }
                continue;
            }
            if operations[read].precedes(&operations[add]) {
                all[element].is_excluded = true;
                findings.add_case("early", EVENTUAL, history, &[add, read], || {
                    format!("{} read {} before {} added it", who(read), show(value), who(add))
                });
            }
            set.push(element);
        }
        sets.push((read, set));
    }
    for (_, set) in &mut sets {
        set.retain(|it| !all[*it].is_excluded);
    }
    lost(history, &mut all, &sets, findings);
    chain(history, &mut all, sets, findings);
}

/// Adds acknowledged elements that a final read lacks, and excludes them from what follows.
fn lost(history: &History, all: &mut [Element], sets: &[(usize, Vec<usize>)], findings: &mut Findings) {
    let operations = &history.operations;
    let last_add = all.iter().map(|it| operations[it.add].end()).max();
    let finals = final_reads(history, "set", last_add, findings);
    let mut in_finals = vec![0; all.len()];
    let mut lacking = vec![usize::MAX; all.len()];
    for (count, &read) in finals.iter().enumerate() {
        let set = sets.binary_search_by_key(&read, |it| it.0).map_or(&[][..], |it| &sets[it].1);
        for &element in set {
            in_finals[element] += 1;
        }
        for (element, lacking) in lacking.iter_mut().enumerate() {
            if in_finals[element] <= count && *lacking == usize::MAX {
                *lacking = read;
            }
        }
    }
    for (element, &read) in lacking.iter().enumerate() {
        let it = &mut all[element];
        let (add, value) = match &operations[it.add].call {
            Call::Add(value) => (it.add, *value),
            _ => continue,
        };
        if read == usize::MAX || it.is_excluded || operations[add].answer().is_none() {
            continue;
        }
        it.is_excluded = true;
        findings.add_case("lost", EVENTUAL, history, &[add, read], || {
            let (who, what) = (history.client(&operations[read]), history.show(value));
            let when = history.time(operations[add].return_at);
            format!("{what} was acknowledged at {when}, but is missing in the final read by {who}")
        });
    }
}

/// Judges the order of all reads. By size, each contains the one before. A set exists from the latest call of its reads
/// and elements on, and so do all larger ones; no read lacks an element that was acknowledged before that.
fn chain(
    history: &History,
    all: &mut [Element],
    mut sets: Vec<(usize, Vec<usize>)>,
    findings: &mut Findings,
) {
    let operations = &history.operations;
    for (_, set) in &mut sets {
        set.retain(|it| !all[*it].is_excluded);
    }
    sets.sort_by_key(|(read, set)| (set.len(), operations[*read].call_at, *read));
    for it in all.iter_mut() {
        it.is_read = false;
    }
    let mut acknowledged: Vec<usize> = (0..all.len())
        .filter(|it| !all[*it].is_excluded && operations[all[*it].add].answer().is_some())
        .collect();
    acknowledged.sort_by_key(|it| (operations[all[*it].add].return_at, *it));
    let mut acknowledged = acknowledged.into_iter().peekable();
    // The latest call so far, and its operation.
    let (mut after, mut by) = (0, usize::MAX);
    let (mut size, mut last) = (0, usize::MAX);
    for (read, set) in sets {
        let known = set.iter().filter(|it| all[**it].is_read).count();
        if known < size {
            findings.add_case("incomparable", LINEARIZABLE, history, &[last, read], || {
                let (a, b) = (history.client(&operations[last]), history.client(&operations[read]));
                format!("a read by {a} and one by {b} each contain an element that the other lacks")
            });
            continue;
        }
        for &element in &set {
            let it = &mut all[element];
            let add = &operations[it.add];
            if !std::mem::replace(&mut it.is_read, true) && add.call_at > after {
                (after, by) = (add.call_at, it.add);
            }
        }
        (size, last) = (set.len(), read);
        // A smaller read began after this one had ended.
        if operations[read].return_at < after {
            findings.add_case("stale", LINEARIZABLE, history, &[read, by], || {
                let (who, other) = (history.client(&operations[by]), history.client(&operations[read]));
                format!("{who} read fewer elements than {other} had read before")
            });
        }
        if operations[read].call_at > after {
            (after, by) = (operations[read].call_at, read);
        }
        while let Some(element) = acknowledged.next_if(|it| operations[all[*it].add].return_at < after) {
            if all[element].is_read {
                continue;
            }
            let add = all[element].add;
            findings.add_case("stale", LINEARIZABLE, history, &[add, by, read], || {
                let Call::Add(value) = operations[add].call else { return String::new() };
                let (who, when) =
                    (history.client(&operations[read]), history.time(operations[add].return_at));
                let what = history.show(value);
                match by == read {
                    true => format!("a read by {who} lacks {what}, which had been acknowledged at {when}"),
                    false => format!(
                        "a read by {who} lacks {what}, acknowledged at {when}, but contains what came later"
                    ),
                }
            });
        }
    }
}
