//! Settings of the simulator. On real machines, the corresponding effects occur naturally.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Duration, Loss, Period};

/// Random effects and delays in virtual time. The other backends ignore all of these fields except `leastWorkLeft`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Simulator {
    /// Share of packets that get an additional delay, so that later packets may overtake them. Default 0%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Loss>,
    /// Maximum additional delay of reordered packets. Default 0ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_within: Option<Duration>,
    /// Fate of the packets in transit when their sender is killed. Default `sampled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlightSpec>,
    /// Time to make a write durable. Default 500us; 0 if the storage is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Duration>,
    /// Latency of messages between the supervisor and a process. Default 100us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_latency: Option<Duration>,
    /// Maximum random addition to `controlLatency`. Default 100us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_jitter: Option<Duration>,
    /// Time from the launch of a process to its registration. Default 10ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Duration>,
    /// Time until the supervisor detects the exit of a process, as a host detects the exit of a child. With `never`,
    /// failures are detected only by missing heartbeats. Default 1ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_notice: Option<Period>,
    /// Time that a process spends on sending and receiving each message. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handling: Option<Handling>,
    /// Minimum share of the application's steps, in percent, that must be left for a fault to take effect. Applies to
    /// all backends, but not to task-based programs. Default 20, or 0 if a fault has the trigger `mtbf` or
    /// `trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub least_work_left: Option<u32>,
}

/// Time for which each message occupies its sender and its receiver. A process handles one message at a time, and does
/// nothing else in that time.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handling {
    /// For messages within a cluster. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<HandlingTimeSpec>,
    /// For messages between clusters. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<HandlingTimeSpec>,
    /// Number of cores that all processes share. Default: each process has its own core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
