//! Applications and their parameters.

use faultline_core::Span;
use faultline_core::fault::FlipTarget;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::custom::Custom;
use super::program::ApplicationProgram;
use super::system::System;
use super::tasks::{Cloth, Fibonacci, Jacobi, NQueens, Qap, TaskGraph};
use crate::quantity::{Duration, Size};

/// The application that runs under the protocol.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApplicationSpec {
    /// Coupled heat solvers, one per cluster. At every step, neighbouring processes exchange rows and each cluster
    /// sends its boundary to the next cluster.
    Heat(Heat),
    /// Messages sent with given probabilities, in exact numbers, or as fast as possible. Follows the application file
    /// of the HC3I simulator.
    Synthetic(Synthetic),
    /// Random message-passing programs of the classes that HydEE supports: named receives, gathers, and polls with a
    /// fence.
    Exchange(Exchange),
    /// The communication pattern of a NAS parallel benchmark, on 16, 64, 256, 1024 or 4096 processes.
    Nas(Nas),
    /// Ping-pong between pairs of processes, over a list of message lengths. The first process is paired with the
    /// last, the second with the second to last, and so on.
    PingPong(PingPong),
    /// A master and its workers: the worker that answers first gets the next piece of work. Not send-deterministic.
    Farm(Farm),
    /// Sends different messages in every re-execution, so that determinism cannot hide a defect. There is no expected
    /// result to compare with.
    Salted(Salted),
    /// A task-based program that computes a Fibonacci number recursively, with two calls and a sum.
    Fibonacci(Fibonacci),
    /// A task-based program that counts the ways to place n queens on a board.
    NQueens(NQueens),
    /// A task-based program that solves the quadratic assignment problem by branch and bound.
    Qap(Qap),
    /// A random task-based program.
    TaskGraph(TaskGraph),
    /// A task-based program, planned in advance: Jacobi's method on a two-dimensional grid that is cut into blocks.
    Jacobi(Jacobi),
    /// A task-based program, planned in advance: the simulation of a piece of cloth that is made of particles held
    /// together by springs and cut into blocks.
    Cloth(Cloth),
    /// An application from another crate. The program that runs the federation must contain it.
    Custom(Custom),
    /// A program in any language.
    Program(ApplicationProgram),
    /// Commands that do not know Faultline, one per node. Then `protocol` is omitted.
    System(Box<System>),
}

/// Families of applications. Each protocol supports one of them, except `none`, which supports both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Processes that exchange messages.
    Messages,
    /// Tasks that share data. Any process may run any task.
    Tasks,
    /// Commands that do not know Faultline.
    System,
}

/// Parameters of the heat solvers.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heat {
    /// Rows of the grid per process. Default 16.
    #[schemars(range(min = 1))]
    pub rows: Option<u32>,
    /// Columns of the grid. A message carries one row. Default 128.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub columns: Option<u32>,
    /// Number of time steps. Default 450.
    #[schemars(range(min = 1))]
    pub steps: Option<u32>,
    /// Computing time of one step. Default 20ms.
    pub step_time: Option<Duration>,
    /// Interval, in steps, at which each cluster also sends its boundary to the previous cluster. With 1, both
    /// directions are coupled equally, and almost every message forces a checkpoint; with 0, nothing is sent back.
    /// Default 120.
    pub feedback_every: Option<u32>,
    /// Additional, incompressible state per process. Default 1MiB.
    pub state: Option<Size>,
}

/// Parameters of the synthetic application.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Synthetic {
    /// When processes send messages, and to which processes.
    pub traffic: Traffic,
    /// Length of each message. Default 1kB.
    pub message: Option<Size>,
    /// Size of the state of each process. The state has a length but no content. Default 1MB.
    pub state: Option<Size>,
}

/// When processes send messages, and to which processes.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Traffic {
    /// Processes alternate between computing and randomly deciding whether to send (HC3I, section 5.1).
    Random(RandomTraffic),
    /// An exact number of messages for each pair of clusters, sent at random times (HC3I, the table of section 5.2).
    Exact(ExactTraffic),
    /// Messages sent as fast as possible, within the cluster or to the next one. For benchmarks.
    Burst(BurstTraffic),
}

/// Random traffic: after each computation, a process may send a message to each cluster, with a given probability.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomTraffic {
    /// Total computing time of each process.
    pub duration: Duration,
    /// What the processes of each cluster do. The processes of a cluster without an entry compute, but never send.
    #[schemars(length(max = 256))]
    pub clusters: Vec<Behaviour>,
}

/// The behaviour of the processes of one cluster.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Behaviour {
    /// The cluster.
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// Mean time of one computation. The times are exponentially distributed.
    pub mean_computation: Duration,
    /// Clusters to which a process may send after a computation, each with a probability. All other clusters never
    /// receive messages from this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub send: Vec<Send>,
}

/// Sends a message to a random process of a cluster, with a given probability.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Send {
    /// The cluster.
    #[schemars(length(max = 40))]
    pub to: String,
    /// Probability between 0 and 1, independent of the other entries.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub probability: f64,
}

/// Traffic that consists of exact numbers of messages.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExactTraffic {
    /// Total computing time of each process.
    pub duration: Duration,
    /// Numbers of messages, one entry for each pair of a sending and a receiving cluster. Pairs without an entry
    /// exchange no messages.
    #[schemars(length(max = 1024))]
    pub messages: Vec<Count>,
}

/// Number of messages from one cluster to another, or within a cluster.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Count {
    /// The sending cluster.
    #[schemars(length(max = 40))]
    pub from: String,
    /// The receiving cluster.
    #[schemars(length(max = 40))]
    pub to: String,
    /// Total number of messages, divided evenly among the processes of the sending cluster.
    pub count: u32,
}

/// Traffic at the maximum speed.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BurstTraffic {
    /// Number of messages that each process sends.
    #[schemars(range(min = 1))]
    pub messages: u32,
    /// Number of messages sent after each computation. Default 1.
    #[schemars(range(min = 1))]
    pub batch: Option<u32>,
    /// Time of one computation. Default 0.
    pub computation: Option<Duration>,
    /// Probability that a message is sent to the next cluster. Default 0.05.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub between: Option<f64>,
    /// Number of processes to which a process sends in each cluster: in its own cluster, those after it; in the next
    /// cluster, those starting at its own index. Default: all.
    #[schemars(range(min = 1))]
    pub receivers: Option<u32>,
}

/// Parameters of the random message-passing programs.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exchange {
    /// Selects the program: each number stands for a different one. Default 1.
    pub pattern: Option<u32>,
    /// Number of exchanges in the whole federation. Default 300.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub exchanges: Option<u32>,
    /// Computing time before each exchange that a process starts. Default 20ms.
    pub step_time: Option<Duration>,
    /// Ways to receive messages. A way listed more than once is used more often. Default: each way once.
    #[schemars(length(min = 1, max = 16))]
    pub receive: Option<Vec<Receive>>,
}

/// How a program receives messages.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Receive {
    /// From a given sender.
    Named,
    /// One message from each of several given senders, in any order of arrival.
    Gathered,
    /// Polled for while computing, then awaited at a fence.
    Polled,
}

/// Parameters of a NAS communication pattern.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nas {
    /// The NAS kernel.
    pub pattern: NasPattern,
    /// Number of iterations. Default 200.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub iterations: Option<u32>,
    /// Computing time of one iteration. With 0s, the processes only communicate. Default 20ms.
    pub step_time: Option<Duration>,
    /// Maximum length of a message, at least 512B. Depending on the kernel, some or all messages are shorter. Default
    /// 16KiB.
    pub message: Option<Size>,
    /// Size of the state of each process. The state has a length but no content. Default 1MiB.
    pub state: Option<Size>,
    /// For each process, in the order of the clusters: its rank in the kernel, from 0. `faultline cluster` prints the
    /// order for the clusters that it finds. Default: 0, 1, 2, and so on.
    #[schemars(extend("maxItems" = 4096, "items" = {
        "type": "integer", "format": "uint32", "minimum": 0, "description": "The rank of one process in the kernel."
    }))]
    pub order: Option<Vec<u32>>,
}

/// A kernel of the NAS parallel benchmarks.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NasPattern {
    /// Block tridiagonal solver: six neighbours on a torus, and sweeps.
    Bt,
    /// Conjugate gradient: partners in the same row, at distances that are powers of two, and the transpose partner.
    Cg,
    /// Fourier transform: all-to-all.
    Ft,
    /// Lower-upper solver: wavefronts over a mesh.
    Lu,
    /// Multigrid: a three-dimensional torus, on three grids.
    Mg,
    /// Scalar pentadiagonal solver: like BT, with shorter messages in the sweeps.
    Sp,
}

/// Parameters of ping-pong.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PingPong {
    /// Message lengths, in order. Each message has at least 5 bytes. Default: powers of two from 8B to 1MiB.
    #[schemars(length(min = 1, max = 64))]
    pub sizes: Option<Vec<Size>>,
    /// Round trips per length. Default 100.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub rounds: Option<u32>,
}

/// Parameters of the master and its workers.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Farm {
    /// Number of pieces of work. Default 1000.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub pieces: Option<u32>,
    /// Mean computing time of a piece. Each piece takes between half and one and a half times the mean. Default 20ms.
    pub step_time: Option<Duration>,
}

/// Parameters of the salted application.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Salted {
    /// Steps per process. Default 100.
    #[schemars(range(min = 1))]
    pub steps: Option<u32>,
    /// Computing time of one step. Default 10ms.
    pub step_time: Option<Duration>,
    /// Maximum number of messages that a process sends after a step. The actual number is random. Default 4.
    #[schemars(range(min = 0, max = 65_536))]
    pub fan_out: Option<u32>,
    /// Probability that a message is sent to another cluster. Default 0.3.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub between: Option<f64>,
    /// Probability that a delivered message is answered. Default 0.3.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reply: Option<f64>,
    /// Maximum length of a chain of answers. Default 3.
    #[schemars(range(min = 0, max = 255))]
    pub reply_depth: Option<u32>,
}

impl ApplicationSpec {
    /// Returns the name of the application, such as `heat`.
    pub fn name(&self) -> &str {
        match self {
            ApplicationSpec::Heat(_) => "heat",
            ApplicationSpec::Synthetic(_) => "synthetic",
            ApplicationSpec::Exchange(_) => "exchange",
            ApplicationSpec::Nas(_) => "nas",
            ApplicationSpec::PingPong(_) => "pingPong",
            ApplicationSpec::Farm(_) => "farm",
            ApplicationSpec::Salted(_) => "salted",
            ApplicationSpec::Fibonacci(_) => "fibonacci",
            ApplicationSpec::NQueens(_) => "nQueens",
            ApplicationSpec::Qap(_) => "qap",
            ApplicationSpec::TaskGraph(_) => "taskGraph",
            ApplicationSpec::Jacobi(_) => "jacobi",
            ApplicationSpec::Cloth(_) => "cloth",
            ApplicationSpec::Custom(it) => &it.name,
            ApplicationSpec::Program(it) => it.name(),
            ApplicationSpec::System(it) => it.name(),
        }
    }

    /// Returns the program, if the application is one.
    pub fn program(&self) -> Option<&ApplicationProgram> {
        match self {
            ApplicationSpec::Program(program) => Some(program),
            _ => None,
        }
    }

    /// Returns the system, if the application is one.
    pub fn system(&self) -> Option<&System> {
        match self {
            ApplicationSpec::System(system) => Some(system),
            _ => None,
        }
    }

    /// Returns whether a fault may flip a bit there: the application can continue with other contents of its stored state,
    /// supports flipped bits in its state, or receives messages.
    pub(crate) fn allows_flip(&self, target: FlipTarget) -> bool {
        use ApplicationSpec::{Custom, Exchange, Farm, Heat, Nas, PingPong, Salted};
        match target {
            FlipTarget::Copy => matches!(self, Heat(_) | Custom(_)),
            FlipTarget::State => {
                matches!(self, Heat(_) | Custom(_) | Exchange(_) | Farm(_) | Nas(_) | PingPong(_) | Salted(_))
            }
            // The content of a program's messages is JSON, which a flipped bit may make invalid.
            FlipTarget::Message => self.family() == Family::Messages && self.program().is_none(),
        }
    }

    /// Returns the family of the application: messages, tasks or a system.
    pub fn family(&self) -> Family {
        match self {
            ApplicationSpec::Heat(_)
            | ApplicationSpec::Synthetic(_)
            | ApplicationSpec::Exchange(_)
            | ApplicationSpec::Nas(_)
            | ApplicationSpec::PingPong(_)
            | ApplicationSpec::Farm(_)
            | ApplicationSpec::Salted(_)
            | ApplicationSpec::Custom(_)
            | ApplicationSpec::Program(_) => Family::Messages,
            ApplicationSpec::Fibonacci(_)
            | ApplicationSpec::NQueens(_)
            | ApplicationSpec::Qap(_)
            | ApplicationSpec::TaskGraph(_)
            | ApplicationSpec::Jacobi(_)
            | ApplicationSpec::Cloth(_) => Family::Tasks,
            ApplicationSpec::System(_) => Family::System,
        }
    }

    /// Returns whether the first task of the application spawns all others. All tasks are then known in
    /// advance. Other task-based programs are unrolled before they are planned.
    pub fn is_planned(&self) -> bool {
        matches!(self, ApplicationSpec::Jacobi(_) | ApplicationSpec::Cloth(_))
    }

    /// Returns the computing time of a process if nothing fails and it never waits for a message; `None` if the
    /// parameters do not determine it.
    pub fn computing_time(&self) -> Option<Span> {
        match self {
            ApplicationSpec::Heat(it) => Some(it.step_time() * u64::from(it.steps())),
            ApplicationSpec::Salted(it) => Some(it.step_time() * u64::from(it.steps())),
            ApplicationSpec::Nas(it) => Some(it.step_time() * u64::from(it.iterations())),
            // In `exchange`, processes start different numbers of exchanges. In `pingPong`, no process computes. In
            // `farm`, the order of answers determines how much each worker computes.
            ApplicationSpec::Exchange(_) | ApplicationSpec::PingPong(_) | ApplicationSpec::Farm(_) => None,
            // Any process may run any task.
            ApplicationSpec::Fibonacci(_)
            | ApplicationSpec::NQueens(_)
            | ApplicationSpec::Qap(_)
            | ApplicationSpec::TaskGraph(_)
            | ApplicationSpec::Jacobi(_)
            | ApplicationSpec::Cloth(_) => None,
            // Only the application's own code knows the time.
            ApplicationSpec::Custom(_) | ApplicationSpec::Program(_) | ApplicationSpec::System(_) => None,
            ApplicationSpec::Synthetic(it) => match &it.traffic {
                Traffic::Random(it) => Some(it.duration.0),
                Traffic::Exact(it) => Some(it.duration.0),
                Traffic::Burst(_) => None,
            },
        }
    }
}

impl Heat {
    /// Returns [`rows`](field@Heat::rows), or its default.
    pub fn rows(&self) -> u32 {
        self.rows.unwrap_or(16)
    }

    /// Returns [`columns`](field@Heat::columns), or its default.
    pub fn columns(&self) -> u32 {
        self.columns.unwrap_or(128)
    }

    /// Returns [`steps`](field@Heat::steps), or its default.
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(450)
    }

    /// Returns [`step_time`](field@Heat::step_time), or its default.
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// Returns [`feedback_every`](field@Heat::feedback_every), or its default.
    pub fn feedback_every(&self) -> u32 {
        self.feedback_every.unwrap_or(120)
    }

    /// Returns [`state`](field@Heat::state) in bytes, or its default.
    pub fn state(&self) -> u64 {
        self.state.map_or(1 << 20, |it| it.0)
    }
}

impl Synthetic {
    /// Returns [`message`](field@Synthetic::message) in bytes, or its default.
    pub fn message(&self) -> u64 {
        self.message.map_or(1_000, |it| it.0)
    }

    /// Returns [`state`](field@Synthetic::state) in bytes, or its default.
    pub fn state(&self) -> u64 {
        self.state.map_or(1_000_000, |it| it.0)
    }
}

impl BurstTraffic {
    /// Returns [`batch`](field@BurstTraffic::batch), or its default.
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(1)
    }

    /// Returns [`computation`](field@BurstTraffic::computation), or its default.
    pub fn computation(&self) -> Span {
        self.computation.map_or(Span::ZERO, |it| it.0)
    }

    /// Returns [`between`](field@BurstTraffic::between), or its default.
    pub fn between(&self) -> f64 {
        self.between.unwrap_or(0.05)
    }
}

impl Exchange {
    /// Returns [`pattern`](field@Exchange::pattern), or its default.
    pub fn pattern(&self) -> u32 {
        self.pattern.unwrap_or(1)
    }

    /// Returns [`exchanges`](field@Exchange::exchanges), or its default.
    pub fn exchanges(&self) -> u32 {
        self.exchanges.unwrap_or(300)
    }

    /// Returns [`step_time`](field@Exchange::step_time), or its default.
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// Returns [`receive`](field@Exchange::receive), or its default.
    pub fn receive(&self) -> Vec<Receive> {
        let every = || vec![Receive::Named, Receive::Gathered, Receive::Polled];
        self.receive.clone().unwrap_or_else(every)
    }
}

impl Nas {
    /// Returns [`iterations`](field@Nas::iterations), or its default.
    pub fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(200)
    }

    /// Returns [`step_time`](field@Nas::step_time), or its default.
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// Returns [`message`](field@Nas::message) in bytes, or its default.
    pub fn message(&self) -> u64 {
        self.message.map_or(16 << 10, |it| it.0)
    }

    /// Returns [`state`](field@Nas::state) in bytes, or its default.
    pub fn state(&self) -> u64 {
        self.state.map_or(1 << 20, |it| it.0)
    }
}

impl PingPong {
    /// Returns [`sizes`](field@PingPong::sizes) in bytes, or its default.
    pub fn sizes(&self) -> Vec<u64> {
        let every = || (3..=20).map(|it| 1 << it).collect();
        self.sizes.as_ref().map_or_else(every, |it| it.iter().map(|it| it.0).collect())
    }

    /// Returns [`rounds`](field@PingPong::rounds), or its default.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(100)
    }
}

impl Farm {
    /// Returns [`pieces`](field@Farm::pieces), or its default.
    pub fn pieces(&self) -> u32 {
        self.pieces.unwrap_or(1000)
    }

    /// Returns [`step_time`](field@Farm::step_time), or its default.
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }
}

impl Salted {
    /// Returns [`steps`](field@Salted::steps), or its default.
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(100)
    }

    /// Returns [`step_time`](field@Salted::step_time), or its default.
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(10), |it| it.0)
    }

    /// Returns [`fan_out`](field@Salted::fan_out), or its default.
    pub fn fan_out(&self) -> u32 {
        self.fan_out.unwrap_or(4)
    }

    /// Returns [`between`](field@Salted::between), or its default.
    pub fn between(&self) -> f64 {
        self.between.unwrap_or(0.3)
    }

    /// Returns [`reply`](field@Salted::reply), or its default.
    pub fn reply(&self) -> f64 {
        self.reply.unwrap_or(0.3)
    }

    /// Returns [`reply_depth`](field@Salted::reply_depth), or its default.
    pub fn reply_depth(&self) -> u32 {
        self.reply_depth.unwrap_or(3)
    }
}
