//! Bounded exhaustive exploration: every run of a small federation within given bounds, by breadth-first search over
//! the states of the protocol's own code.
//!
//! A run is a sequence of choices: which packet arrives, which write completes, which computation ends, which deadline
//! expires, or which process fails next. Two states are the same if each process has the same state in both and has
//! stated the same facts, and the same steps are pending. The checker judges each complete run, as it judges any other
//! run. Interleavings that lead to the same complete run are judged once.
//!
//! | module | content |
//! | --- | --- |
//! | `bounds` | the bounds of an exploration |
//! | `federation` | the federation: its clusters, and its protocol with its options |
//! | `program` | the application: a few messages in a fixed order |
//! | `subject` | a federation that is ready to be explored |
//! | `local` | one process with its storage, and its reactions to events |
//! | `contents` | the processes of one type, and the packets and jobs of their steps |
//! | `tables` | all states of processes and of the supervisor, all steps, and their effects, by number |
//! | `interned` | tables that several threads read and extend at the same time |
//! | `state` | a state of the federation, and the choices that it offers |
//! | `search` | the breadth-first search |
//! | `independence` | which choices lead to the same state in both orders |
//! | `replay` | the facts of a run, and its judgement |
//! | `key` | keys of states |
//!
//! [The page on exploration](../../../docs/explore.md) describes what is explored and what is not.

mod bounds;
mod contents;
mod federation;
mod independence;
mod interned;
mod key;
mod local;
mod program;
mod replay;
mod search;
mod state;
mod subject;
mod tables;

use std::num::NonZero;

use faultline_api::Federation;
use faultline_catalog::{Defect, SetupError};

pub use bounds::{Bounds, Storage};
pub use federation::{Unexplored, federation, names};
pub use program::{InvalidProgram, Program, Rank};
pub use replay::Counterexample;
pub use search::SearchExtent;

use replay::Replay;
use search::{End, Search};
use subject::Subject;

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The progress of the search when it ended.
    pub extent: SearchExtent,
    /// How the exploration ended.
    pub end: Ending,
}

/// How an exploration ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Every run within the bounds was visited, and none violates a property.
    Exhausted,
    /// The exploration stopped at [`Bounds::states`]. Unvisited states may lead to violations.
    Stopped,
    /// The exploration was interrupted.
    Interrupted,
    /// This run violates a property. Among all violating runs within the bounds, it needs the fewest steps
    /// until the federation is quiet.
    Found(Box<Counterexample>),
}

/// Explores the clusters and the protocol of a federation, with the application `program`. If the federation runs a
/// task-based program, explores that instead, and ignores `program`. `federation` must be valid. Its links determine
/// only how soon protocols repeat requests; its faults are ignored. `jobs` threads search; their number does not affect
/// the result. `progress` receives the progress of the search regularly, and returns whether to continue.
///
/// # Errors
///
/// Fails if the federation cannot be set up.
///
/// # Panics
///
/// Panics if the operating system refuses to start a thread.
pub fn explore(
    federation: &Federation,
    program: &Program,
    bounds: Bounds,
    defect: Option<Defect>,
    jobs: NonZero<usize>,
    progress: &mut dyn FnMut(&SearchExtent) -> bool,
) -> Result<Exploration, SetupError> {
    let subject = Subject::new(federation, program, defect)?;
    let replay = Replay::new(&subject, bounds);
    let judge = |tables: &_, path: &[_]| replay.judge(tables, path);
    let mut search = Search::new(&subject, bounds, jobs.get(), &judge, progress);
    let end = match search.run() {
        End::Exhausted => Ending::Exhausted,
        End::Stopped => Ending::Stopped,
        End::Interrupted => Ending::Interrupted,
        End::Found(path) => Ending::Found(Box::new(replay.perform(&search.tables, &path, true))),
    };
    Ok(Exploration { extent: search.extent, end })
}
