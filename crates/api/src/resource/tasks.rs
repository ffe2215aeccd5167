//! Programs of tasks, and how tasks are distributed.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Duration;

/// Maximum length of the text of a QAPLIB file, in bytes.
pub const MAX_QAP_DATA: usize = 65_536;

/// Computes a Fibonacci number by its definition: two calls and a sum.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fibonacci {
    /// Index of the Fibonacci number. Default 21.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 93))]
    pub n: Option<u32>,
    /// Largest index that one task computes without spawning others. Lower values give more tasks. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 35))]
    pub threshold: Option<u32>,
    /// Time of such a task at speed 100. Calls above the threshold and sums take no time. Default 10ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_time: Option<Duration>,
}

/// Counts the ways to place queens on a board so that none attacks another.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NQueens {
    /// Rows and columns of the board. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 18))]
    pub n: Option<u32>,
    /// Number of rows whose queens are placed by separate tasks. The tasks of the last of these rows count the rest by
    /// themselves. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 18))]
    pub depth: Option<u32>,
    /// Time of a counting task at speed 100. Other tasks take no time. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_time: Option<Duration>,
}

/// Solves the quadratic assignment problem by branch and bound. At most one of `instance`, `file` and `data` defines
/// the problem.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Qap {
    /// A built-in instance. Default `nug12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<QapInstance>,
    /// Path of a QAPLIB file, relative to the federation's file. `faultline` reads the file and records its text with
    /// the run. A federation that is applied to Kubernetes needs the text itself, in `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
    /// Text of a QAPLIB file: the size n, then the distances and the flows as two n x n matrices of whole numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub data: Option<String>,
    /// Number of facilities whose locations are chosen by separate tasks. Such a task searches all other locations by
    /// itself. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 32))]
    pub depth: Option<u32>,
    /// Time of a searching task at speed 100, in the simulator. On real processes, the minimum time of the search.
    /// Other tasks take no time. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_time: Option<Duration>,
}

/// An instance of the quadratic assignment problem by Nugent, Vollmann and Ruml, as collected in QAPLIB.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QapInstance {
    /// 12 facilities; the least cost is 578.
    #[default]
    Nug12,
    /// 14 facilities; the least cost is 1014.
    Nug14,
    /// 15 facilities; the least cost is 1150.
    Nug15,
}

/// Random program of tasks, to search for schedules that a protocol does not survive.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskGraph {
    /// Selects one of the programs of this size. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<u32>,
    /// Number of levels of tasks below the first. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub depth: Option<u32>,
    /// Maximum number of tasks that one task spawns. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub width: Option<u32>,
    /// Mean time of a task that spawns no others, at speed 100. Default 10ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_time: Option<Duration>,
}

/// How idle processes get tasks from others. Only for programs of tasks.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stealing {
    /// Time that a process without work waits before it asks again. Default 5ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Duration>,
    /// Probability that a process first asks within its own cluster, where links are fast. Default 0.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub cluster_first: Option<f64>,
}

impl Fibonacci {
    /// See [`Fibonacci::n`].
    pub fn n(&self) -> u32 {
        self.n.unwrap_or(21)
    }

    /// See [`Fibonacci::threshold`].
    pub fn threshold(&self) -> u32 {
        self.threshold.unwrap_or(5)
    }

    /// See [`Fibonacci::task_time`].
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(10), |it| it.0)
    }
}

impl NQueens {
    /// See [`NQueens::n`].
    pub fn n(&self) -> u32 {
        self.n.unwrap_or(10)
    }

    /// See [`NQueens::depth`]; no more rows than there are.
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(3.min(self.n()))
    }

    /// See [`NQueens::task_time`].
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(20), |it| it.0)
    }
}

impl Qap {
    /// See [`Qap::depth`].
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(3)
    }

    /// See [`Qap::task_time`].
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
    /// See [`TaskGraph::pattern`].
    pub fn pattern(&self) -> u32 {
        self.pattern.unwrap_or(1)
    }

    /// See [`TaskGraph::depth`].
    pub fn depth(&self) -> u32 {
        self.depth.unwrap_or(5)
    }

    /// See [`TaskGraph::width`].
    pub fn width(&self) -> u32 {
        self.width.unwrap_or(5)
    }

    /// See [`TaskGraph::task_time`].
    pub fn task_time(&self) -> Span {
        self.task_time.map_or(Span::from_millis(10), |it| it.0)
    }
}

impl Stealing {
    /// See [`Stealing::patience`].
    pub fn patience(&self) -> Span {
        self.patience.map_or(Span::from_millis(5), |it| it.0)
    }

    /// See [`Stealing::cluster_first`].
    pub fn cluster_first(&self) -> f64 {
        self.cluster_first.unwrap_or(0.8)
    }
}
