//! Judges what clients of a system were told: does a history of their operations contradict a model of the data?
//!
//! [`judge`] compares a [`History`] with one of the [`MODELS`] at a level of consistency. It is a pure function: the same
//! history has the same verdict, after the same number of steps, on every machine. The names of clients and keys do not
//! matter. An operation without a result may have taken effect at any time after its call, or never; operations with
//! equal times are concurrent. Hence the judge never orders operations that the system may have ordered otherwise.
//!
//! | module | content |
//! | --- | --- |
//! | [`clients`] | operations of clients that Faultline drives |
//! | [`foreign`] | histories that other programs recorded |
//! | `operation` | histories |
//! | `drawing` | the operations of a contradiction as text |
//! | `judgement` | the result, with the operations that show each contradiction |
//! | `models` | one file for each model |
//! | `search` | the search for an order of the operations on one object |

pub mod clients;
mod drawing;
pub mod foreign;
mod hash;
mod judgement;
mod models;
mod operation;
mod search;

pub use clients::Workload;
pub use drawing::{WIDTH, draw};
pub use judgement::{Anomaly, Case, Doubt, Judgement, Kind, Levels, Limits, STEPS_PER_OPERATION, Verdict};
pub use models::{MODELS, Model, model};
pub use operation::{Answer, Call, History, Key, NEVER, Names, Operation, Outcome, Step, Value};

use judgement::Findings;

/// Judges a history at a level of a model, which is an index into [`Model::levels`].
///
/// The operations of the history may be in any order, except that those of a session are in the order of their calls.
pub fn judge(history: &History, model: &Model, level: usize, limits: Limits) -> Judgement {
    let mut findings = Findings { cases: limits.cases, ..Findings::default() };
    (model.judge)(history, limits, &mut findings);
    let kinds = kinds(history, model);
    silent(history, model, &kinds, &mut findings);
    let is_at = |levels: Levels, level: usize| levels & (1 << level) != 0;
    let is_contradicted = |level| findings.anomalies.iter().any(|it| is_at(it.levels, level));
    let is_doubtful = |level| findings.doubts.iter().any(|it| is_at(it.levels, level));
    let verdict = match (is_contradicted(level), is_doubtful(level)) {
        (true, _) => Verdict::Fail,
        (false, true) => Verdict::Unknown,
        (false, false) => Verdict::Pass,
    };
    let strongest = (0..model.levels.len()).find(|it| !is_contradicted(*it) && !is_doubtful(*it));
    let Findings { mut anomalies, mut doubts, steps, .. } = findings;
    anomalies.retain(|it| is_at(it.levels, level));
    doubts.retain(|it| is_at(it.levels, level));
    Judgement {
        model: model.name,
        level: model.levels[level],
        verdict,
        strongest: strongest.map(|it| model.levels[it]),
        steps,
        anomalies,
        doubts,
        kinds,
    }
}

/// Counts the operations of each kind of the model that the history contains.
fn kinds(history: &History, model: &Model) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = model.kinds.iter().map(|name| Kind { name, ..Kind::default() }).collect();
    for it in &history.operations {
        let Some(kind) = kinds.iter_mut().find(|kind| kind.name == it.call.kind()) else { continue };
        match it.outcome {
            Outcome::Ok(_) => kind.ok += 1,
            Outcome::Failed => kind.failed += 1,
            Outcome::Unknown => kind.unknown += 1,
        }
    }
    kinds.retain(|it| it.ok + it.failed + it.unknown > 0);
    kinds
}

/// Doubts a history that says too little.
fn silent(history: &History, model: &Model, kinds: &[Kind], findings: &mut Findings) {
    let all = Levels::MAX;
    if !model.reads.is_empty() && !kinds.iter().any(|it| model.reads.contains(&it.name) && it.ok > 0) {
        let what = format!("no `{}` was answered, so nothing can be judged", model.reads.join("` or `"));
        findings.doubt(all, what, "include operations that read in the history");
    }
    for it in kinds.iter().filter(|it| it.ok == 0 && !model.reads.contains(&it.name)) {
        let count = judgement::counted(it.failed + it.unknown, "operation", "operations");
        let what = format!("no `{}` was answered (of {count})", it.name);
        findings.doubt(all, what, "check that the client can carry out this kind of operation");
    }
    let unknown: usize = kinds.iter().map(|it| it.unknown).sum();
    let count = history.operations.len();
    if unknown * 2 > count {
        let what = format!("{unknown} of {count} operations have no result");
        findings.doubt(all, what, "use a longer time-out, or fewer faults");
    }
}
