//! Applications and their parameters.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Duration, Size};

/// What is protected.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Application {
    /// Coupled heat solvers, one per cluster: rows are exchanged inside a cluster at every step, and each cluster's
    /// boundary goes to the next cluster at every step.
    Heat(Heat),
    /// Messages by probability, by exact count, or as fast as possible: the application file of the HC3I simulator.
    Synthetic(Synthetic),
    /// Random message-passing programs of the classes that HydEE protects: named receives, gathers, polls with a fence.
    Exchange(Exchange),
    /// The communication of a kernel of the NAS parallel benchmarks, on 16, 64, 256, 1024 or 4096 processes.
    Nas(Nas),
    /// Ping-pong in pairs, the first process with the last one, over lengths of messages.
    PingPong(PingPong),
    /// Master and workers: whoever answers first gets the next piece of work. Not send-deterministic.
    Farm(Farm),
    /// Sends that differ in every re-execution, so that determinism hides no defect; judged by properties only.
    Salted(Salted),
}

/// Parameters of the heat solvers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heat {
    /// Rows of the grid that one process owns. Default 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rows: Option<u32>,
    /// Columns of the grid; a message carries one row. Default 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub columns: Option<u32>,
    /// Time steps. Default 450.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub steps: Option<u32>,
    /// How long a process computes one step. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Duration>,
    /// Each cluster's boundary also goes back to the cluster before it, after every so many steps: 1 couples the two
    /// ways alike, and so forces a checkpoint for almost every message; 0 never goes back. Default 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback_every: Option<u32>,
    /// Incompressible state of a process beside its grid. Default 1MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
}

/// Parameters of the synthetic application.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Synthetic {
    /// When processes send, and to whom.
    pub traffic: Traffic,
    /// Length of every message. Default 1kB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Size>,
    /// State of every process; it has a length but no content. Default 1MB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
}

/// When processes send, and to whom.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Traffic {
    /// Processes compute, draw whether to send, and compute again (HC3I, section 5.1).
    Random(RandomTraffic),
    /// A given number of messages between clusters, at random instants (HC3I, the table of section 5.2).
    Exact(ExactTraffic),
    /// As many messages as the machine carries, to the own cluster or to the next one: for benchmarks.
    Burst(BurstTraffic),
}

/// Sends by probability.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomTraffic {
    /// How long every process computes in all.
    pub duration: Duration,
    /// What the processes of each cluster do. A cluster without an entry computes and never sends.
    #[schemars(length(max = 256))]
    pub clusters: Vec<Behaviour>,
}

/// What the processes of one cluster do.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Behaviour {
    /// The cluster.
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// Mean of the exponentially distributed time of one computation.
    pub mean_computation: Duration,
    /// To whom a message follows a computation, and how probably. A cluster without an entry is never sent to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub send: Vec<Send>,
}

/// A message to a random process of a cluster, with a probability.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Send {
    /// The cluster.
    #[schemars(length(max = 40))]
    pub to: String,
    /// Between 0 and 1, independent of the other entries.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub probability: f64,
}

/// Sends by count.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExactTraffic {
    /// How long every process computes in all.
    pub duration: Duration,
    /// Messages by pair of clusters. A pair without an entry exchanges none.
    #[schemars(length(max = 1024))]
    pub messages: Vec<Count>,
}

/// Messages from one cluster to another, or inside one.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Count {
    /// Sending side.
    #[schemars(length(max = 40))]
    pub from: String,
    /// Receiving side.
    #[schemars(length(max = 40))]
    pub to: String,
    /// How many in all, shared evenly by the processes of the sending side.
    pub count: u32,
}

/// Sends as fast as possible.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BurstTraffic {
    /// Sent by each process.
    #[schemars(range(min = 1))]
    pub messages: u32,
    /// Sent after one computation. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch: Option<u32>,
    /// How long one computation takes. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation: Option<Duration>,
    /// Probability that a message goes to the next cluster. Default 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub between: Option<f64>,
    /// To how many processes of a cluster each process sends, those that follow its own place. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub receivers: Option<u32>,
}

/// Parameters of the random message-passing programs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exchange {
    /// Decides the program. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<u32>,
    /// Exchanges of the whole federation. Default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub exchanges: Option<u32>,
    /// How long a process computes before an exchange that it begins. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Duration>,
    /// How messages are received; each way as often as it stands here. Default: every way once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub receive: Option<Vec<Receive>>,
}

/// How a program receives messages.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Receive {
    /// By the name of their sender.
    Named,
    /// As many as were asked for, in any order.
    Gathered,
    /// Looked for while it computes, and waited for at a fence.
    Polled,
}

/// Parameters of a NAS pattern.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nas {
    /// The kernel.
    pub pattern: NasPattern,
    /// Iterations. Default 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub iterations: Option<u32>,
    /// How long a process computes in one iteration; with 0s there are only messages. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Duration>,
    /// Length of the longest messages; others are shorter by a factor that the kernel says. At least 512. Default 16KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Size>,
    /// State of every process; it has a length but no content. Default 1MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
    /// By process, in the order of the clusters: its rank in the kernel, from 0 on. `faultline cluster` says it for the
    /// clusters that it finds. Default: the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 4096, "items" = {
        "type": "integer", "format": "uint32", "minimum": 0, "description": "The rank of one process."
    }))]
    pub order: Option<Vec<u32>>,
}

/// A kernel of the NAS parallel benchmarks.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NasPattern {
    /// Block tridiagonal solver: six neighbours on a torus, and sweeps.
    Bt,
    /// Conjugate gradient: rows by powers of two, and the transposed place.
    Cg,
    /// Fourier transform: everybody to everybody.
    Ft,
    /// Lower-upper solver: wavefronts over a mesh.
    Lu,
    /// Multigrid: a torus of three dimensions, on three grids.
    Mg,
    /// Scalar pentadiagonal solver: as BT, with shorter messages in the sweeps.
    Sp,
}

/// Parameters of ping-pong.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PingPong {
    /// Lengths of messages, in the order in which they are played; no message is shorter than 5. Default: powers of two
    /// from 8 to 1MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub sizes: Option<Vec<Size>>,
    /// Round trips with each length. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub rounds: Option<u32>,
}

/// Parameters of master and workers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Farm {
    /// Pieces of work. Default 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub pieces: Option<u32>,
    /// How long a worker computes a piece; each is up to a half longer or shorter. Default 20ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Duration>,
}

/// Parameters of the salted application.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Salted {
    /// Steps of each process. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub steps: Option<u32>,
    /// How long one step takes. Default 10ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Duration>,
    /// The most messages sent after one step; the number is random. Default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65_536))]
    pub fan_out: Option<u32>,
    /// Probability that a message goes to another cluster. Default 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub between: Option<f64>,
    /// Probability that a delivered message is answered. Default 0.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reply: Option<f64>,
    /// The longest chain of answers to one message. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub reply_depth: Option<u32>,
}

impl Application {
    /// Its name in the resource.
    pub fn name(&self) -> &'static str {
        match self {
            Application::Heat(_) => "heat",
            Application::Synthetic(_) => "synthetic",
            Application::Exchange(_) => "exchange",
            Application::Nas(_) => "nas",
            Application::PingPong(_) => "pingPong",
            Application::Farm(_) => "farm",
            Application::Salted(_) => "salted",
        }
    }

    /// How long a process computes when nothing fails and nothing is waited for; `None` when the parameters do not say.
    pub fn computing_time(&self) -> Option<Span> {
        match self {
            Application::Heat(it) => Some(it.step_time() * u64::from(it.steps())),
            Application::Salted(it) => Some(it.step_time() * u64::from(it.steps())),
            Application::Nas(it) => Some(it.step_time() * u64::from(it.iterations())),
            // Whoever begins the most exchanges computes at least its share of them; nobody computes in a ping-pong; which
            // worker computes how much, nobody can say before.
            Application::Exchange(_) | Application::PingPong(_) | Application::Farm(_) => None,
            Application::Synthetic(it) => match &it.traffic {
                Traffic::Random(it) => Some(it.duration.0),
                Traffic::Exact(it) => Some(it.duration.0),
                Traffic::Burst(_) => None,
            },
        }
    }
}

impl Heat {
    /// See [`Heat::rows`].
    pub fn rows(&self) -> u32 {
        self.rows.unwrap_or(16)
    }

    /// See [`Heat::columns`].
    pub fn columns(&self) -> u32 {
        self.columns.unwrap_or(128)
    }

    /// See [`Heat::steps`].
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(450)
    }

    /// See [`Heat::step_time`].
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// See [`Heat::feedback_every`].
    pub fn feedback_every(&self) -> u32 {
        self.feedback_every.unwrap_or(120)
    }

    /// Bytes; see [`Heat::state`].
    pub fn state(&self) -> u64 {
        self.state.map_or(1 << 20, |it| it.0)
    }
}

impl Synthetic {
    /// Bytes; see [`Synthetic::message`].
    pub fn message(&self) -> u64 {
        self.message.map_or(1_000, |it| it.0)
    }

    /// Bytes; see [`Synthetic::state`].
    pub fn state(&self) -> u64 {
        self.state.map_or(1_000_000, |it| it.0)
    }
}

impl BurstTraffic {
    /// See [`BurstTraffic::batch`].
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(1)
    }

    /// See [`BurstTraffic::computation`].
    pub fn computation(&self) -> Span {
        self.computation.map_or(Span::ZERO, |it| it.0)
    }

    /// See [`BurstTraffic::between`].
    pub fn between(&self) -> f64 {
        self.between.unwrap_or(0.05)
    }
}

impl Exchange {
    /// See [`Exchange::pattern`].
    pub fn pattern(&self) -> u32 {
        self.pattern.unwrap_or(1)
    }

    /// See [`Exchange::exchanges`].
    pub fn exchanges(&self) -> u32 {
        self.exchanges.unwrap_or(300)
    }

    /// See [`Exchange::step_time`].
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// See [`Exchange::receive`].
    pub fn receive(&self) -> Vec<Receive> {
        let every = || vec![Receive::Named, Receive::Gathered, Receive::Polled];
        self.receive.clone().unwrap_or_else(every)
    }
}

impl Nas {
    /// See [`Nas::iterations`].
    pub fn iterations(&self) -> u32 {
        self.iterations.unwrap_or(200)
    }

    /// See [`Nas::step_time`].
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }

    /// Bytes; see [`Nas::message`].
    pub fn message(&self) -> u64 {
        self.message.map_or(16 << 10, |it| it.0)
    }

    /// Bytes; see [`Nas::state`].
    pub fn state(&self) -> u64 {
        self.state.map_or(1 << 20, |it| it.0)
    }
}

impl PingPong {
    /// Bytes; see [`PingPong::sizes`].
    pub fn sizes(&self) -> Vec<u64> {
        let every = || (3..=20).map(|it| 1 << it).collect();
        self.sizes.as_ref().map_or_else(every, |it| it.iter().map(|it| it.0).collect())
    }

    /// See [`PingPong::rounds`].
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(100)
    }
}

impl Farm {
    /// See [`Farm::pieces`].
    pub fn pieces(&self) -> u32 {
        self.pieces.unwrap_or(1000)
    }

    /// See [`Farm::step_time`].
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(20), |it| it.0)
    }
}

impl Salted {
    /// See [`Salted::steps`].
    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(100)
    }

    /// See [`Salted::step_time`].
    pub fn step_time(&self) -> Span {
        self.step_time.map_or(Span::from_millis(10), |it| it.0)
    }

    /// See [`Salted::fan_out`].
    pub fn fan_out(&self) -> u32 {
        self.fan_out.unwrap_or(4)
    }

    /// See [`Salted::between`].
    pub fn between(&self) -> f64 {
        self.between.unwrap_or(0.3)
    }

    /// See [`Salted::reply`].
    pub fn reply(&self) -> f64 {
        self.reply.unwrap_or(0.3)
    }

    /// See [`Salted::reply_depth`].
    pub fn reply_depth(&self) -> u32 {
        self.reply_depth.unwrap_or(3)
    }
}
