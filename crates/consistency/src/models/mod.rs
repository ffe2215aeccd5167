//! The models: what a system may answer. Each is one file, and one line in [`MODELS`].

mod bank;
mod counter;
mod ids;
mod list;
mod lock;
mod log;
mod queue;
mod register;
mod set;

use crate::hash::Map;
use crate::judgement::{Findings, Limits};
use crate::operation::{Call, History, Key};

/// A model of the data that clients use.
pub struct Model {
    /// The name, as in `--model`.
    pub name: &'static str,
    /// What the model describes, in one line.
    pub about: &'static str,
    /// The levels of consistency, strongest first.
    pub levels: &'static [&'static str],
    /// The kinds of its operations.
    pub kinds: &'static [&'static str],
    /// The kinds that read, without which nothing can be judged.
    pub reads: &'static [&'static str],
    /// Whether the same value may be written twice. Otherwise, a value names its writer.
    pub(crate) repeats: bool,
    /// Adds everything that contradicts a level.
    pub(crate) judge: fn(&History, Limits, &mut Findings),
}

/// All models.
pub const MODELS: &[Model] = &[
    register::MODEL,
    list::MODEL,
    set::MODEL,
    queue::MODEL,
    log::MODEL,
    counter::MODEL,
    ids::MODEL,
    lock::MODEL,
    bank::MODEL,
];

/// Returns the model with this name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|it| it.name == name)
}

/// Returns the indices of the operations on each key, by call. The keys are in the order of their first appearance.
fn by_key(history: &History, key: impl Fn(&Call) -> Option<Key>) -> Vec<(Key, Vec<u32>)> {
    let mut places: Map<Key, usize> = Map::default();
    let mut all: Vec<(Key, Vec<u32>)> = Vec::new();
    for (at, it) in history.operations.iter().enumerate() {
        let Some(key) = key(&it.call) else { continue };
        let place = *places.entry(key).or_insert_with(|| {
            all.push((key, Vec::new()));
            all.len() - 1
        });
        all[place].1.push(at as u32);
    }
    all
}

/// Returns the last answered `read` of each client, by position, if it began after the last `add` had ended. `last_add` is
/// the end of that `add`, if there is one. Without such reads, nothing is known about the second level, `eventual`.
fn final_reads(history: &History, what: &str, last_add: Option<u64>, findings: &mut Findings) -> Vec<usize> {
    let mut last: Map<u32, usize> = Map::default();
    for (at, it) in history.operations.iter().enumerate() {
        if it.call == Call::ReadAll && it.answer().is_some() {
            last.insert(it.client, at);
        }
    }
    let reads = history.operations.iter().enumerate();
    let reads = reads.filter(|(at, it)| last.get(&it.client) == Some(at));
    let finals: Vec<usize> = reads.filter(|it| it.1.call_at > last_add.unwrap_or(0)).map(|it| it.0).collect();
    if finals.is_empty() && last_add.is_some() {
        findings.doubt(
            1 << 1,
            format!("no client read the {what} after the last `add` had ended"),
            format!(
                "let each client read the {what} once more after the last `add`, when the system has recovered"
            ),
        );
    }
    finals
}

/// Returns pairs of operations such that the second began after the first had ended, but has the smaller number: for each
/// such second one, the first one with the greatest number. `numbers` contains operations with their numbers.
fn descents(history: &History, numbers: &[(usize, i64)]) -> Vec<(usize, usize)> {
    let operations = &history.operations;
    let (mut by_call, mut by_return) = (numbers.to_vec(), numbers.to_vec());
    by_call.sort_by_key(|it| (operations[it.0].call_at, it.0));
    by_return.sort_by_key(|it| (operations[it.0].return_at, it.0));
    let mut ended = by_return.into_iter().peekable();
    let (mut greatest, mut pairs): (Option<(usize, i64)>, Vec<_>) = (None, Vec::new());
    for (at, number) in by_call {
        while let Some(it) = ended.next_if(|it| operations[it.0].return_at < operations[at].call_at) {
            greatest = greatest.filter(|greatest| greatest.1 >= it.1).or(Some(it));
        }
        pairs.extend(greatest.filter(|it| it.1 > number).map(|it| (it.0, at)));
    }
    pairs
}
