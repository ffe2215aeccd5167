//! Settings of the simulator. On real machines, the corresponding effects occur naturally.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::quantity::{Duration, Loss, Period};

/// Random effects and delays in virtual time. The other backends ignore all of these fields except `leastWorkLeft`.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Simulator {
    /// Share of packets that get an additional delay, so that later packets may overtake them. Default 0%.
    pub reorder: Option<Loss>,
    /// Maximum additional delay of reordered packets. Default 0ms.
    pub reorder_within: Option<Duration>,
    /// Fate of the packets in transit when their sender is killed. Default `sampled`.
    pub in_flight: Option<InFlightSpec>,
    /// Time to make a write durable. Default 500us; 0 if the storage is in memory.
    pub sync: Option<Duration>,
    /// Latency of messages between the supervisor and a process. Default 100us.
    pub control_latency: Option<Duration>,
    /// Maximum random addition to `controlLatency`. Default 100us.
    pub control_jitter: Option<Duration>,
    /// Time from the launch of a process to its registration. Default 10ms.
    pub launch: Option<Duration>,
    /// Time until the supervisor detects the exit of a process, as a host detects the exit of a child. With `never`,
    /// failures are detected only by missing heartbeats. Default 1ms.
    pub exit_notice: Option<Period>,
    /// Time that a process spends on sending and receiving each message. Default: none.
    pub handling: Option<Handling>,
    /// Minimum share of the application's steps, in percent, that must be left for a fault to take effect. Applies to
    /// all backends, but not to task-based programs. Default 20, or 0 if a fault has the trigger `mtbf` or
    /// `trace`.
    #[schemars(range(min = 0, max = 100))]
    pub least_work_left: Option<u32>,
}

/// Time for which each message occupies its sender and its receiver. A process handles one message at a time, and does
/// nothing else in that time.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handling {
    /// For messages within a cluster. Default: none.
    pub within: Option<HandlingTimeSpec>,
    /// For messages between clusters. Default: none.
    pub between: Option<HandlingTimeSpec>,
    /// Number of cores that all processes share. Default: each process has its own core.
    #[schemars(range(min = 1, max = 1024))]
    pub cores: Option<u32>,
}

/// Time to handle one message.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HandlingTimeSpec {
    /// Fixed time per message. Default 0us.
    #[serde(default)]
    pub message: Duration,
    /// Additional time per 1024 bytes. Default 0us.
    #[serde(default)]
    pub kibibyte: Duration,
}

/// Fate of the packets in transit when their sender is killed. Some of them are still in the sender's own
/// queues.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InFlightSpec {
    /// After each failure, packets still arrive for a time that is drawn at random.
    #[default]
    Sampled,
    /// All of them are lost.
    Lost,
    /// All of them arrive.
    Kept,
}

impl Simulator {
    /// Returns [`Simulator::reorder`] in parts per million.
    pub fn reorder_ppm(&self) -> u32 {
        self.reorder.map_or(0, |it| it.ppm)
    }

    /// Returns [`reorder_within`](field@Simulator::reorder_within), or its default.
    pub fn reorder_within(&self) -> Span {
        self.reorder_within.map_or(Span::ZERO, |it| it.0)
    }

    /// Returns [`in_flight`](field@Simulator::in_flight), or its default.
    pub fn in_flight(&self) -> InFlightSpec {
        self.in_flight.unwrap_or_default()
    }
}
