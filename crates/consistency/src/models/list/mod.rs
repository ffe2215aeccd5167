//! Lists: transactions that append to lists and read them.
//!
//! The longest read of a key is its order of versions, because lists only grow (Elle's inference). It yields edges
//! between transactions; a cycle of edges contradicts a level that depends on the kinds of its edges.

mod graph;

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::Model;
use crate::operation::{Answer, Call, History, Key, NEVER, Operation, Step, Value};
use graph::{Cycle, DATA, Edge, Graph, RW, SESSION, TIME, WR, WW};

/// The model of lists, which are empty at first.
pub(crate) const MODEL: Model = Model {
    name: "list",
    about: "transactions that append to lists and read them",
    levels: &["strictSerializable", "serializable", "snapshotIsolation", "readCommitted"],
    kinds: &["txn"],
    reads: &["txn"],
    repeats: false,
    judge,
};

const STRICT: Levels = upto(0);
const SERIALIZABLE: Levels = upto(1);
const SNAPSHOT: Levels = upto(2);
const COMMITTED: Levels = upto(3);

/// The most edges that the search for short cycles follows.
const MOST_EDGES: u64 = 200_000_000;

/// What is known about the transactions before their order.
struct Lists<'a> {
    history: &'a History,
    /// The transaction that appended a value, and whether it appended no other one to this key after it.
    writers: Map<(Key, Value), (u32, bool)>,
    /// The longest read of each key, and its transaction.
    longest: Map<Key, (&'a [Value], u32)>,
    /// The keys that were read, by first appearance.
    keys: Vec<Key>,
    /// Acknowledged transactions that appended values that no operation read.
    unread: Map<Key, Vec<u32>>,
    /// Keys whose reads contradict each other.
    broken: Map<Key, ()>,
}

impl<'a> Lists<'a> {
    fn operation(&self, at: u32) -> &'a Operation {
        &self.history.operations[at as usize]
    }

    fn steps(&self, at: u32) -> &'a [Step] {
        steps(self.operation(at))
    }

    fn writer(&self, key: Key, value: Value) -> Option<u32> {
        self.writers.get(&(key, value)).map(|it| it.0)
    }

    fn client(&self, at: u32) -> String {
        self.history.client(self.operation(at))
    }

    /// Adds a case with these transactions.
    fn add(&self, findings: &mut Findings, kind: &'static str, levels: Levels, all: &[u32], text: String) {
        let indices: Vec<usize> = all.iter().map(|it| *it as usize).collect();
        findings.add_case(kind, levels, self.history, &indices, || text);
    }
}

fn steps(operation: &Operation) -> &[Step] {
    match &operation.call {
        Call::Txn(steps) => steps,
        _ => &[],
    }
}

/// Returns the steps of an acknowledged transaction, each with what it read. Returns nothing if a list is missing.
fn read_steps(operation: &Operation) -> impl Iterator<Item = (Step, &[Value])> {
    let lists: &[Box<[Value]>] = match operation.answer() {
        Some(Answer::Lists(lists)) => lists,
        _ => &[],
    };
    let reads = steps(operation).iter().filter(|it| matches!(it, Step::Read(_))).count();
    let is_answered = reads == lists.len() && operation.answer().is_some();
    let mut lists = lists.iter();
    let steps = if is_answered { steps(operation) } else { &[] };
    steps.iter().map(move |step| match step {
        Step::Append(..) => (*step, &[][..]),
        Step::Read(_) => (*step, lists.next().map_or(&[][..], |it| it)),
    })
}

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let mut lists = Lists {
        history,
        writers: Map::default(),
        longest: Map::default(),
        keys: Vec::new(),
        unread: Map::default(),
        broken: Map::default(),
    };
    let count = history.operations.len() as u32;
    for at in 0..count {
        let steps = lists.steps(at);
        for (place, step) in steps.iter().enumerate() {
            if let Step::Append(key, value) = step {
                let is_last =
                    !steps[place + 1..].iter().any(|it| matches!(it, Step::Append(other, _) if other == key));
                lists.writers.insert((*key, *value), (at, is_last));
            }
        }
    }
    for at in 0..count {
        for (step, list) in read_steps(lists.operation(at)) {
            let Step::Read(key) = step else { continue };
            let longest = lists.longest.entry(key).or_insert_with(|| {
                lists.keys.push(key);
                (list, at)
            });
            if list.len() > longest.0.len() {
                *longest = (list, at);
            }
        }
    }
    let mut edges = Vec::with_capacity(count as usize * 4);
    versions(&mut lists, &mut edges, findings);
    for at in 0..count {
        one_transaction(&mut lists, at, findings);
    }
    lost_updates(&lists, findings);
    for at in 0..count {
        read_edges(&lists, at, &mut edges);
    }
    let returns = order_edges(&lists, &mut edges);
    cycles(&lists, edges, returns, findings);
}

/// Judges the longest read of each key, and adds an edge from each of its transactions to the next one.
fn versions(lists: &mut Lists<'_>, edges: &mut Vec<Edge>, findings: &mut Findings) {
    let history = lists.history;
    let mut places: Map<(Key, Value), ()> = Map::default();
    let mut chains: Vec<(Key, Vec<u32>)> = Vec::new();
    for &key in &lists.keys {
        let (list, reader) = lists.longest[&key];
        let (mut chain, mut failed): (Vec<u32>, Option<u32>) = (Vec::new(), None);
        for &value in list {
            let name = history.key(key);
            if places.insert((key, value), ()).is_some() {
                let text = format!("{} read {} twice in {name}", lists.client(reader), history.show(value));
                lists.add(findings, "duplicate", COMMITTED, &[reader], text);
                lists.broken.insert(key, ());
            }
            let Some(writer) = lists.writer(key, value) else {
                let text = format!(
                    "{} read {} in {name}, which no client appended",
                    lists.client(reader),
                    history.show(value)
                );
                lists.add(findings, "invented", COMMITTED, &[reader], text);
                lists.broken.insert(key, ());
                continue;
            };
            match (lists.operation(writer).is_failed(), failed) {
                (true, _) => failed = Some(writer),
                (false, Some(by)) if lists.operation(writer).answer().is_some() => {
                    let text = format!(
                        "{} appended {} to {name} after an append by {}, which was told that its transaction had no effect",
                        lists.client(writer),
                        history.show(value),
                        lists.client(by)
                    );
                    lists.add(findings, "dirty update", COMMITTED, &[by, writer, reader], text);
                    failed = None;
                }
                _ => {}
            }
            if chain.last() != Some(&writer) {
                chain.push(writer);
            }
        }
        chains.push((key, chain));
    }
    // An acknowledged append that no operation read comes after everything that was read.
    for at in 0..history.operations.len() as u32 {
        if lists.operation(at).answer().is_none() {
            continue;
        }
        for step in lists.steps(at) {
            if let Step::Append(key, value) = step
                && !places.contains_key(&(*key, *value))
            {
                let unread = lists.unread.entry(*key).or_default();
                if unread.last() != Some(&at) {
                    unread.push(at);
                }
            }
        }
    }
    for (key, chain) in chains {
        if lists.broken.contains_key(&key) {
            continue;
        }
        edges.extend(chain.windows(2).map(|pair| Edge::new(pair[0], pair[1], WW)));
        let (Some(&last), Some(unread)) = (chain.last(), lists.unread.get(&key)) else { continue };
        edges.extend(unread.iter().filter(|it| **it != last).map(|it| Edge::new(last, *it, WW)));
    }
}

/// Adds what a transaction contradicts by itself.
fn one_transaction(lists: &mut Lists<'_>, at: u32, findings: &mut Findings) {
    let history = lists.history;
    // What the transaction knows about each key, and whether it knows the whole list.
    let mut own: Vec<(Key, Vec<Value>, bool)> = Vec::new();
    for (step, list) in read_steps(lists.operation(at)) {
        let key = match step {
            Step::Append(key, value) => {
                match own.iter_mut().find(|it| it.0 == key) {
                    Some(it) => it.1.push(value),
                    None => own.push((key, vec![value], false)),
                }
                continue;
            }
            Step::Read(key) => key,
        };
        let (name, who) = (history.key(key), lists.client(at));
        let (longest, reader) = lists.longest[&key];
        if !longest.starts_with(list) {
            let text = format!(
                "{who} read {} in {name}, but {} read {}",
                history.list(list),
                lists.client(reader),
                history.list(longest)
            );
            lists.add(findings, "incompatible order", COMMITTED, &[at, reader], text);
            lists.broken.insert(key, ());
        }
        match own.iter_mut().find(|it| it.0 == key) {
            Some((_, known, is_whole)) => {
                let fits = if *is_whole { known[..] == *list } else { list.ends_with(known) };
                if !fits {
                    let text = format!(
                        "{who} read {} in {name}, which differs from its own steps before",
                        history.list(list)
                    );
                    lists.add(findings, "internal", SNAPSHOT, &[at], text);
                }
                (*known, *is_whole) = (list.to_vec(), true);
            }
            None => own.push((key, list.to_vec(), true)),
        }
        for &value in list {
            if let Some(writer) = lists.writer(key, value).filter(|it| lists.operation(*it).is_failed()) {
                let text = format!(
                    "{who} read {} in {name}, but {} was told that its transaction had no effect",
                    history.show(value),
                    lists.client(writer)
                );
                let indices = [writer as usize, at as usize];
                findings.add_case("G1a", COMMITTED, history, &indices, || text);
                if let Some(it) = findings.anomalies.iter_mut().find(|it| it.kind == "G1a") {
                    it.help = Some(
                        "check that the client does not answer `fail` after a time-out; use `unknown` there",
                    );
                }
            }
        }
        if let Some(&value) = list.last()
            && let Some(&(writer, false)) = lists.writers.get(&(key, value))
            && writer != at
        {
            let text = format!(
                "{who} read {} in {name}, although {} appended more to it in the same transaction",
                history.show(value),
                lists.client(writer)
            );
            lists.add(findings, "G1b", COMMITTED, &[writer, at], text);
        }
    }
}

/// Adds pairs of transactions that read the same version of a key first, and then both appended to it.
fn lost_updates(lists: &Lists<'_>, findings: &mut Findings) {
    let mut updates: Map<(Key, Value), u32> = Map::default();
    for at in 0..lists.history.operations.len() as u32 {
        let steps = lists.steps(at);
        let mut known: Vec<Key> = Vec::new();
        for (place, (step, list)) in read_steps(lists.operation(at)).enumerate() {
            let (Step::Append(key, _) | Step::Read(key)) = step;
            if known.contains(&key) {
                continue;
            }
            known.push(key);
            let appends = |it: &Step| matches!(it, Step::Append(other, _) if *other == key);
            if matches!(step, Step::Append(..))
                || lists.broken.contains_key(&key)
                || !steps[place..].iter().any(appends)
            {
                continue;
            }
            let version = list.last().copied().unwrap_or(Value::NULL);
            let other = *updates.entry((key, version)).or_insert(at);
            if other != at {
                let name = lists.history.key(key);
                let text = format!(
                    "{} and {} both read {} in {name}, and then appended to it",
                    lists.client(other),
                    lists.client(at),
                    lists.history.list(list)
                );
                lists.add(findings, "lost update", SNAPSHOT, &[other, at], text);
            }
        }
    }
}

/// Adds the edges from the writer of a version to its readers, and from these to the writer of the next version.
fn read_edges(lists: &Lists<'_>, at: u32, edges: &mut Vec<Edge>) {
    for (step, list) in read_steps(lists.operation(at)) {
        let Step::Read(key) = step else { continue };
        if lists.broken.contains_key(&key) {
            continue;
        }
        let mut add = |from: u32, to: u32, kind: u8| {
            if from != to {
                edges.push(Edge::new(from, to, kind));
            }
        };
        if let Some(writer) = list.last().and_then(|it| lists.writer(key, *it)) {
            add(writer, at, WR);
        }
        match lists.longest[&key].0.get(list.len()) {
            Some(next) => {
                if let Some(writer) = lists.writer(key, *next) {
                    add(at, writer, RW);
                }
            }
            None => lists.unread.get(&key).into_iter().flatten().for_each(|it| add(at, *it, RW)),
        }
    }
}

/// Adds the order of sessions and that of time. Time is a chain of nodes, one for each return, with numbers from that of
/// the operations on. Returns the number of these nodes.
fn order_edges(lists: &Lists<'_>, edges: &mut Vec<Edge>) -> usize {
    let operations = &lists.history.operations;
    let count = operations.len() as u32;
    let mut last: Map<u32, u32> = Map::default();
    for at in (0..count).filter(|it| lists.operation(*it).answer().is_some()) {
        if let Some(before) = last.insert(lists.operation(at).session, at) {
            edges.push(Edge::new(before, at, SESSION));
        }
    }
    let mut returns: Vec<u32> = (0..count)
        .filter(|it| lists.operation(*it).answer().is_some() && lists.operation(*it).return_at != NEVER)
        .collect();
    returns.sort_by_key(|it| (operations[*it as usize].return_at, *it));
    for (place, &at) in returns.iter().enumerate() {
        let node = count + place as u32;
        edges.push(Edge::new(at, node, TIME));
        if place > 0 {
            edges.push(Edge::new(node - 1, node, TIME));
        }
    }
    // An unknown transaction that was observed was not carried out before its call.
    let mut calls: Vec<u32> = (0..count).filter(|it| !lists.operation(*it).is_failed()).collect();
    calls.sort_by_key(|it| (operations[*it as usize].call_at, *it));
    let mut ended = 0;
    for at in calls {
        while ended < returns.len()
            && operations[returns[ended] as usize].return_at < operations[at as usize].call_at
        {
            ended += 1;
        }
        if ended > 0 {
            edges.push(Edge::new(count + ended as u32 - 1, at, TIME));
        }
    }
    returns.len()
}

/// A class of cycles: its name alone, with the order of sessions, and with that of time.
struct Class {
    names: [&'static str; 3],
    levels: Levels,
    edges: u8,
    /// The kind of edge that each cycle contains.
    start: u8,
    anti: graph::Anti,
}

const CLASSES: [Class; 5] = [
    Class {
        names: ["G0", "G0-session", "G0-realtime"],
        levels: COMMITTED,
        edges: WW,
        start: WW,
        anti: graph::Anti::None,
    },
    Class {
        names: ["G1c", "G1c-session", "G1c-realtime"],
        levels: COMMITTED,
        edges: WW | WR,
        start: WR,
        anti: graph::Anti::None,
    },
    Class {
        names: ["G-single", "G-single-session", "G-single-realtime"],
        levels: SNAPSHOT,
        edges: WW | WR,
        start: RW,
        anti: graph::Anti::None,
    },
    Class {
        names: ["G-nonadjacent", "G-nonadjacent-session", "G-nonadjacent-realtime"],
        levels: SNAPSHOT,
        edges: DATA,
        start: RW,
        anti: graph::Anti::NotAdjacent,
    },
    Class {
        names: ["G2", "G2-session", "G2-realtime"],
        levels: SERIALIZABLE,
        edges: DATA,
        start: RW,
        anti: graph::Anti::Several,
    },
];

/// Adds a short cycle of the worst class for each part of the graph that contains cycles.
fn cycles(lists: &Lists<'_>, edges: Vec<Edge>, returns: usize, findings: &mut Findings) {
    let count = lists.history.operations.len();
    let nodes = count + returns;
    let (component, sizes) = Graph::new(nodes, &edges).components(u8::MAX);
    let is_cyclic = |node: u32| sizes[component[node as usize] as usize] > 1;
    // From here on, only nodes on cycles matter.
    let names: Vec<u32> = (0..nodes as u32).filter(|it| is_cyclic(*it)).collect();
    if names.is_empty() {
        return;
    }
    let mut numbers = vec![u32::MAX; nodes];
    for (number, name) in names.iter().enumerate() {
        numbers[*name as usize] = number as u32;
    }
    let part: Vec<u32> = names.iter().map(|it| component[*it as usize]).collect();
    let inner = edges
        .iter()
        .filter(|it| is_cyclic(it.from) && component[it.from as usize] == component[it.to as usize]);
    let inner: Vec<Edge> =
        inner.map(|it| Edge::new(numbers[it.from as usize], numbers[it.to as usize], it.kind)).collect();
    drop(edges);
    let graph = Graph::new(names.len(), &inner);
    let mut explained: Map<u32, ()> = Map::default();
    let mut budget = MOST_EDGES;
    let extras = [(0, None), (SESSION, Some(STRICT)), (SESSION | TIME, Some(STRICT))];
    for (place, (extra, levels)) in extras.into_iter().enumerate() {
        for class in &CLASSES {
            let found =
                graph.cycles(class.edges | extra, class.start, class.anti, &part, &explained, &mut budget);
            for (part, cycle) in found {
                explained.insert(part, ());
                let kind = class.names[place];
                let text = || sentence(lists, kind, &cycle, &names, count);
                let all: Vec<usize> = cycle
                    .nodes
                    .iter()
                    .map(|it| names[*it as usize] as usize)
                    .filter(|it| *it < count)
                    .collect();
                findings.add_case(kind, levels.unwrap_or(class.levels), lists.history, &all, text);
            }
            if budget == 0 {
                let what = "the transactions contain cycles that could not be classified within the limit";
                // Each part of the graph that is left contains some cycle.
                findings.doubt(Levels::MAX, what, "judge a part of the history");
                return;
            }
        }
    }
}

/// Returns a sentence that goes along the cycle.
fn sentence(lists: &Lists<'_>, kind: &str, cycle: &Cycle, names: &[u32], count: usize) -> String {
    // Nodes of time only connect operations.
    let mut steps: Vec<(u32, u8)> = Vec::new();
    for (node, edge) in cycle.nodes.iter().zip(&cycle.kinds) {
        let name = names[*node as usize];
        if (name as usize) < count {
            steps.push((name, *edge));
        }
    }
    let number = |at: usize| format!("T{}", at + 1);
    let mut parts = Vec::new();
    for (at, &(from, edge)) in steps.iter().enumerate() {
        let next = (at + 1) % steps.len();
        let (a, b, to) = (number(at), number(next), steps[next].0);
        let key = |key: Option<Key>| key.map_or("a list".to_owned(), |it| lists.history.key(it).to_owned());
        parts.push(match edge {
            WW => format!("{a} appended to {} before {b} did", key(common(lists, from, to, edge))),
            WR => format!("{b} read what {a} appended to {}", key(common(lists, from, to, edge))),
            RW => format!("{a} read {} before {b} appended to it", key(common(lists, from, to, edge))),
            SESSION => format!("{a} preceded {b} in a session"),
            _ => format!("{a} had ended before {b} began"),
        });
    }
    let shown = parts.len().min(6);
    let more =
        if parts.len() > shown { format!(", and {} more", parts.len() - shown) } else { String::new() };
    format!("{kind}: {}{more}", parts[..shown].join(", "))
}

/// Returns a key that connects two transactions by an edge of this kind.
fn common(lists: &Lists<'_>, from: u32, to: u32, edge: u8) -> Option<Key> {
    let keys = |at: u32, reads: bool| {
        lists.steps(at).iter().filter_map(move |it| match it {
            Step::Read(key) if reads => Some(*key),
            Step::Append(key, _) if !reads => Some(*key),
            _ => None,
        })
    };
    let mut others = Vec::new();
    for key in keys(from, edge == RW) {
        if !keys(to, edge == WR).any(|it| it == key) {
            continue;
        }
        let mut edges = Vec::new();
        match edge {
            WR => read_edges(lists, to, &mut edges),
            RW => read_edges(lists, from, &mut edges),
            _ => {}
        }
        others.push(key);
        if edge == WW {
            break;
        }
        // With several common keys, the one whose reads alone make the edge.
        let reader = if edge == WR { to } else { from };
        let is_made = read_steps(lists.operation(reader)).any(|(step, list)| {
            step == Step::Read(key)
                && match edge {
                    WR => list.last().and_then(|it| lists.writer(key, *it)) == Some(from),
                    _ => match lists.longest[&key].0.get(list.len()) {
                        Some(next) => lists.writer(key, *next) == Some(to),
                        None => lists.unread.get(&key).is_some_and(|it| it.contains(&to)),
                    },
                }
        });
        if is_made {
            return Some(key);
        }
    }
    others.first().copied()
}
