//! The result of judging a history, and what a model needs to produce one.

use std::fmt::Write;

use crate::operation::{History, Operation};
use crate::search::Allowance;

/// Bounds of the work for one history. They are numbers of steps and bytes, so the same history has the same verdict on
/// every machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most steps of all searches for one history.
    pub steps: u64,
    /// The most steps of the search for one object, in addition to [`STEPS_PER_OPERATION`].
    pub object_steps: u64,
    /// The most memory for failed configurations, in bytes.
    pub bytes: usize,
    /// The most cases that are reduced and kept for each kind of anomaly. They take no steps, but time.
    pub cases: usize,
}

/// The number of steps for each operation that are allowed in addition to [`Limits::object_steps`].
pub const STEPS_PER_OPERATION: u64 = 20;

impl Limits {
    /// Returns what the search for one object may use, if `used` steps were taken before.
    pub(crate) fn allowance(&self, used: u64, operations: usize) -> Allowance {
        let most = self.object_steps.saturating_add(operations as u64 * STEPS_PER_OPERATION);
        Allowance { steps: self.steps.saturating_sub(used).min(most), bytes: self.bytes }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { steps: 50_000_000, object_steps: 1_000_000, bytes: 256 << 20, cases: 3 }
    }
}

/// A set of levels of one model: bit i is the level with index i.
pub type Levels = u8;

/// Returns the level with this index and all stronger ones, which have smaller indices.
pub(crate) const fn upto(level: usize) -> Levels {
    (1 << (level + 1)) - 1
}

/// The result of judging a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The history does not contradict its level.
    Pass,
    /// The history contradicts its level.
    Fail,
    /// The history could not be judged.
    Unknown,
}

impl Verdict {
    /// Returns the verdict as in a summary: `pass`, `fail` or `unknown`.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A contradiction between a history and its model, with the operations that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// One sentence.
    pub sentence: String,
    /// The operations, by call. If the case was reduced, a compare-and-set may have become its writing half, or its
    /// reading half.
    pub operations: Vec<Operation>,
    /// The position of each operation in an order that explains all but one of them, from 1, if there is one.
    pub order: Vec<Option<usize>>,
    /// The index of the operation that no order explains.
    pub impossible: Option<usize>,
}

/// All contradictions of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The name of the kind: `stale`, `lost`, `G-single`.
    pub kind: &'static str,
    /// The levels that the kind contradicts.
    pub levels: Levels,
    /// The number of cases that were found.
    pub count: usize,
    /// The first cases, at most [`Limits::cases`].
    pub cases: Vec<Case>,
    /// What the user should check, if the kind is often a mistake of the client.
    pub help: Option<&'static str>,
}

/// Why a history could not be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The levels that could not be judged.
    pub levels: Levels,
    /// What could not be judged, and why.
    pub what: String,
    /// The remedy.
    pub help: String,
}

/// What a model found in a history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) anomalies: Vec<Anomaly>,
    pub(crate) doubts: Vec<Doubt>,
    pub(crate) steps: u64,
    /// The most cases of each kind.
    pub(crate) cases: usize,
}

impl Findings {
    /// Adds a contradiction. Only the first ones of each kind need a sentence and their operations.
    pub(crate) fn add(&mut self, kind: &'static str, levels: Levels, case: impl FnOnce() -> Case) {
        let at = self.anomalies.iter().position(|it| it.kind == kind).unwrap_or_else(|| {
            self.anomalies.push(Anomaly { kind, levels, count: 0, cases: Vec::new(), help: None });
            self.anomalies.len() - 1
        });
        let anomaly = &mut self.anomalies[at];
        anomaly.count += 1;
        if anomaly.cases.len() < self.cases {
            anomaly.cases.push(case());
        }
    }

    /// Adds a contradiction that these operations show.
    pub(crate) fn add_case(
        &mut self,
        kind: &'static str,
        levels: Levels,
        history: &History,
        operations: &[usize],
        sentence: impl FnOnce() -> String,
    ) {
        self.add(kind, levels, || Case::new(history, operations, sentence()));
    }

    /// Adds that a client was told that an operation failed, although it had an effect.
    pub(crate) fn add_dirty(
        &mut self,
        levels: Levels,
        history: &History,
        operations: &[usize],
        sentence: impl FnOnce() -> String,
    ) {
        self.add_case("dirty", levels, history, operations, sentence);
        if let Some(it) = self.anomalies.iter_mut().find(|it| it.kind == "dirty") {
            it.help =
                Some("check that the client does not answer `fail` after a time-out; use `unknown` there");
        }
    }

    pub(crate) fn doubt(&mut self, levels: Levels, what: impl Into<String>, help: impl Into<String>) {
        self.doubts.push(Doubt { levels, what: what.into(), help: help.into() });
    }
}

impl Case {
    /// Creates a case in which no order is known. Names each operation once, by call.
    pub(crate) fn new(history: &History, operations: &[usize], sentence: String) -> Case {
        let mut indices = operations.to_vec();
        indices.sort_by_key(|&it| (history.operations[it].call_at, it));
        indices.dedup();
        let operations: Vec<_> = indices.iter().map(|&it| history.operations[it].clone()).collect();
        Case { sentence, order: vec![None; operations.len()], operations, impossible: None }
    }
}

/// The judgement of a history by a model.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The name of the model.
    pub model: &'static str,
    /// The level that was judged.
    pub level: &'static str,
    /// The verdict at this level.
    pub verdict: Verdict,
    /// The strongest level that was judged and that the history does not contradict.
    pub strongest: Option<&'static str>,
    /// The number of steps of all searches.
    pub steps: u64,
    /// The contradictions with the level.
    pub anomalies: Vec<Anomaly>,
    /// What could not be judged at this level.
    pub doubts: Vec<Doubt>,
    /// The number of operations of each kind.
    pub kinds: Vec<Kind>,
}

/// The number of operations of one kind, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// The name of the kind.
    pub name: &'static str,
    /// Operations that were answered.
    pub ok: usize,
    /// Operations that had no effect.
    pub failed: usize,
    /// Operations whose outcome is unknown.
    pub unknown: usize,
}

/// Returns a number with its unit in the singular or the plural.
pub(crate) fn counted(count: usize, singular: &str, plural: &str) -> String {
    let mut text = String::new();
    let digits = count.to_string();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    let _ = write!(text, " {}", if count == 1 { singular } else { plural });
    text
}
