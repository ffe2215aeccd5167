//! Task-based programs, and how tasks are distributed.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::quantity::Duration;

/// Maximum length of the text of a QAPLIB file, in bytes.
pub(crate) const MAX_QAP_DATA: usize = 65_536;

/// Computes a Fibonacci number from its definition: two calls and a sum.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fibonacci {
    /// Index of the Fibonacci number. Default 21.
    #[schemars(range(min = 1, max = 93))]
    pub n: Option<u32>,
    /// Largest index whose Fibonacci number a single task computes without spawning others. Lower values give more
    /// tasks. Default 5.
    #[schemars(range(min = 1, max = 35))]
    pub threshold: Option<u32>,
    /// Time of a task that spawns no others, at speed 100. Other calls and sums take no time. Default 10ms.
    pub task_time: Option<Duration>,
}

/// Counts the ways to place queens on a board so that no queen attacks another.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NQueens {
    /// Rows and columns of the board. Default 10.
    #[schemars(range(min = 1, max = 18))]
    pub n: Option<u32>,
    /// Number of rows whose queens are placed by separate tasks. The tasks of the last of these rows count the
    /// placements of all remaining queens themselves. Default 3.
    #[schemars(range(min = 0, max = 18))]
    pub depth: Option<u32>,
    /// Time of a counting task at speed 100. Other tasks take no time. Default 20ms.
    pub task_time: Option<Duration>,
}

/// Solves the quadratic assignment problem by branch and bound. At most one of `instance`, `file` and `data` may be
/// set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Qap {
    /// A built-in instance. Default `nug12`.
    pub instance: Option<QapInstance>,
    /// Path of a QAPLIB file, relative to the federation's file. `faultline` reads the file and records its text with
    /// the run. A federation that is applied to Kubernetes needs the text itself, in `data`.
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
    /// Text of a QAPLIB file: the size n, then the distances and the flows as two n × n matrices of whole numbers.
    #[schemars(length(max = MAX_QAP_DATA))]
    pub data: Option<String>,
    /// Number of facilities whose locations are chosen by separate tasks. The tasks of the last of these facilities
    /// search for the locations of all remaining facilities themselves. Default 3.
    #[schemars(range(min = 0, max = 32))]
    pub depth: Option<u32>,
    /// Time of a searching task at speed 100, in the simulator. On real processes, the minimum time of the search.
    /// Other tasks take no time. Default 20ms.
    pub task_time: Option<Duration>,
}

/// A quadratic assignment problem by Nugent, Vollmann and Ruml, as collected in QAPLIB.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QapInstance {
    /// 12 facilities; the minimum cost is 578.
    #[default]
    Nug12,
    /// 14 facilities; the minimum cost is 1014.
    Nug14,
    /// 15 facilities; the minimum cost is 1150.
    Nug15,
}

/// A random task-based program, used to search for schedules that break a protocol.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskGraph {
    /// Selects one of the programs with this depth and width. Default 1.
    pub pattern: Option<u32>,
    /// Number of levels of tasks below the first level. Default 5.
    #[schemars(range(min = 0, max = 16))]
    pub depth: Option<u32>,
    /// Maximum number of tasks that one task spawns. Default 5.
    #[schemars(range(min = 1, max = 64))]
    pub width: Option<u32>,
    /// Mean time of a task that spawns no others, at speed 100. Default 10ms.
    pub task_time: Option<Duration>,
}

/// Jacobi's method on a two-dimensional grid: each cell repeatedly becomes the mean of its four neighbours. The grid is
/// cut into blocks; a task computes one iteration of one block.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Jacobi {
    /// Rows of blocks. Default 4.
    #[schemars(range(min = 1, max = 1024))]
    pub rows: Option<u32>,
    /// Columns of blocks. Default 4.
    #[schemars(range(min = 1, max = 1024))]
    pub columns: Option<u32>,
    /// Number of cells along each side of a block. Default 16.
    #[schemars(range(min = 1, max = 4096))]
    pub size: Option<u32>,
    /// Number of times that each cell is computed. Default 100.
    #[schemars(range(min = 1))]
    pub iterations: Option<u32>,
    /// Number of iterations between two tests for convergence; 0 disables the tests. A test gathers the largest change
    /// in each block. Default 10.
    pub test_every: Option<u32>,
    /// The computation counts as converged once a test finds that no cell changed by more than this. All iterations
    /// are computed in any case; the result contains the number of the iteration after which the computation converged.
    /// Default 0.001.
    #[schemars(range(min = 0.0))]
    pub tolerance: Option<f64>,
    /// Time of one iteration of a block at speed 100. Other tasks take no time. Default 10ms.
    pub task_time: Option<Duration>,
}

/// Simulation of a piece of cloth that hangs by two corners: particles held together by springs, cut into square
/// blocks. An iteration of a block consists of two tasks: one computes forces, the other moves the particles.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cloth {
    /// Rows of blocks. Default 4.
    #[schemars(range(min = 1, max = 1024))]
    pub rows: Option<u32>,
    /// Columns of blocks. Default 4.
    #[schemars(range(min = 1, max = 1024))]
    pub columns: Option<u32>,
    /// Number of particles along each side of a block. Default 8.
    #[schemars(range(min = 1, max = 1024))]
    pub size: Option<u32>,
    /// Number of times that each particle is moved. Default 100.
    #[schemars(range(min = 1))]
    pub iterations: Option<u32>,
    /// Time of each of the two tasks of a block at speed 100. Other tasks take no time. Default 5ms.
    pub task_time: Option<Duration>,
}

/// How the tasks of a program are assigned to processes in advance. Only for task-based programs, under a protocol that
/// does not let processes steal tasks.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schedule {
    /// Number of iterations that a process may be working on at the same time. Default 2.
    #[schemars(range(min = 1, max = 1024))]
    pub window: Option<u32>,
    /// Which of its executable tasks a process executes first. Default `oldestFirst`.
    pub order: Option<TaskOrder>,
    /// For each piece of the program, the number of the process that it is assigned to. The pieces are the blocks of
    /// `jacobi` and `cloth`, row by row, or the tasks of other programs. Processes are numbered from 0 in the order of
    /// the clusters. Default: the pieces are divided equally, and each process gets consecutive pieces.
    #[schemars(length(max = 1_048_576), extend("items" = {
        "description": "Number of a process.", "type": "integer", "format": "uint32", "minimum": 0
    }))]
    pub pieces: Option<Vec<u32>>,
    /// Path of a partition file as METIS writes it, relative to the federation's file: line i holds the process of
    /// piece i. `faultline` reads the file and records its content with the run. A federation that is applied to
    /// Kubernetes needs the content itself, in `pieces`.
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
}

/// Which of its executable tasks a process executes first.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskOrder {
    /// The oldest one, in the order of the program.
    #[default]
    OldestFirst,
    /// The one whose values, or values computed from them, are sent to another process soonest.
    SendingFirst,
}

/// How idle processes get tasks from others. Only for task-based programs.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stealing {
    /// Time that a process without work waits before it asks for a task again. Default 5ms.
    pub patience: Option<Duration>,
    /// Probability that a request for a task goes to a process of the same cluster, where links are fast. Otherwise, it
    /// goes to any process. Default 0.8.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub cluster_first: Option<f64>,
}

impl Fibonacci {
    /// Returns [`n`](field@Fibonacci::n), or its default.
    pub fn n(&self) -> u32 {
        self.n.unwrap_or(21)
    }

    /// Returns [`threshold`](field@Fibonacci::threshold), or its default.
    pub fn threshold(&self) -> u32 {
        self.threshold.unwrap_or(5)
    }

    /// Returns [`task_time`](field@Fibonacci::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(10), |it| it.0)
    }
}

impl NQueens {
    /// Returns [`n`](field@NQueens::n), or its default.
    pub fn n(&self) -> u32 {
        self.n.unwrap_or(10)
    }

    /// Returns [`depth`](field@NQueens::depth), or its default. The default is at most the number of rows.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(3.min(self.n()))
    }

    /// Returns [`task_time`](field@NQueens::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(20), |it| it.0)
    }
}

impl Qap {
    /// Returns [`depth`](field@Qap::depth), or its default. A program limits the default to the size of its instance.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(3)
    }

    /// Returns [`task_time`](field@Qap::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(20), |it| it.0)
    }
}

impl QapInstance {
    /// Returns the name of the instance in the resource and in QAPLIB.
    pub fn name(self) -> &'static str {
        match self {
            QapInstance::Nug12 => "nug12",
            QapInstance::Nug14 => "nug14",
            QapInstance::Nug15 => "nug15",
        }
    }
}

impl TaskGraph {
    /// Returns [`pattern`](field@TaskGraph::pattern), or its default.
    pub fn pattern(&self) -> u32 {
        self.pattern.unwrap_or(1)
    }

    /// Returns [`depth`](field@TaskGraph::depth), or its default.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(5)
    }

    /// Returns [`width`](field@TaskGraph::width), or its default.
    pub fn width(&self) -> u32 {
        self.width.unwrap_or(5)
    }

    /// Returns [`task_time`](field@TaskGraph::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(10), |it| it.0)
    }
}

impl Jacobi {
    /// Returns [`rows`](field@Jacobi::rows), or its default.
    pub fn rows(&self) -> u32 {
        self.rows.unwrap_or(4)
    }

    /// Returns [`columns`](field@Jacobi::columns), or its default.
    pub fn columns(&self) -> u32 {
        self.columns.unwrap_or(4)
    }

    /// Returns [`size`](field@Jacobi::size), or its default.
    pub fn size(&self) -> u32 {
        self.size.unwrap_or(16)
    }

    /// Returns [`iterations`](field@Jacobi::iterations), or its default.
    pub fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(100)
    }

    /// Returns [`test_every`](field@Jacobi::test_every), or its default.
    pub fn test_every(&self) -> u32 {
        self.test_every.unwrap_or(10)
    }

    /// Returns [`tolerance`](field@Jacobi::tolerance), or its default.
    pub fn tolerance(&self) -> f64 {
        self.tolerance.unwrap_or(1e-3)
    }

    /// Returns [`task_time`](field@Jacobi::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(10), |it| it.0)
    }
}

impl Cloth {
    /// Returns [`rows`](field@Cloth::rows), or its default.
    pub fn rows(&self) -> u32 {
        self.rows.unwrap_or(4)
    }

    /// Returns [`columns`](field@Cloth::columns), or its default.
    pub fn columns(&self) -> u32 {
        self.columns.unwrap_or(4)
    }

    /// Returns [`size`](field@Cloth::size), or its default.
    pub fn size(&self) -> u32 {
        self.size.unwrap_or(8)
    }

    /// Returns [`iterations`](field@Cloth::iterations), or its default.
    pub fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(100)
    }

    /// Returns [`task_time`](field@Cloth::task_time), or its default.
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(5), |it| it.0)
    }
}

impl Schedule {
    /// Returns [`window`](field@Schedule::window), or its default.
    pub fn window(&self) -> u32 {
        self.window.unwrap_or(2)
    }
}

impl Stealing {
    /// Returns [`patience`](field@Stealing::patience), or its default.
    pub fn patience(&self) -> Span {
        self.patience.map_or(Span::from_millis(5), |it| it.0)
    }

    /// Returns [`cluster_first`](field@Stealing::cluster_first), or its default.
    pub fn cluster_first(&self) -> f64 {
        self.cluster_first.unwrap_or(0.8)
    }
}
