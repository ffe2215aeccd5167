//! What only the simulator does: on real machines these things happen by themselves.

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Duration, Loss, Period};

/// Chance and delays in virtual time. Other backends have their own, and ignore these.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Simulator {
    /// The share of packets that are delayed further, so that later ones overtake them. Default 0%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Loss>,
    /// By up to this much. Default 0ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_within: Option<Duration>,
    /// What becomes of the packets under way of a process that is killed. Default `sampled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// What making a write durable takes. Default 500us; nothing when the storage is memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Duration>,
    /// Of each message between the supervisor and a process. Default 100us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_latency: Option<Duration>,
    /// Added to that, at random, from zero to this. Default 100us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_jitter: Option<Duration>,
    /// From the launch of a life to its registration. Default 10ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Duration>,
    /// From the end of a life to its notice, where a host sees its child exit; with `never` a death is noticed only by
    /// silence. Default 1ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_notice: Option<Period>,
    /// What sending and receiving messages takes their processes. Default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handling: Option<Handling>,
    /// A fault that finds less than this share of the application's work left takes no effect, in percent. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub least_work_left: Option<u32>,
}

/// For how long a message keeps a process busy, at each of its two ends: one message after the other, and nothing else
/// meanwhile.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handling {
    /// Of messages within a cluster. Default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Effort>,
    /// Of messages between clusters. Default nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Effort>,
    /// All processes share so many cores of one machine. Default: each has a core of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cores: Option<u32>,
}

/// For how long a message keeps a process busy.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Effort {
    /// Whatever its length. Default 0us.
    #[serde(default)]
    pub message: Duration,
    /// And this for each 1024 bytes of it. Default 0us.
    #[serde(default)]
    pub kibibyte: Duration,
}

/// What becomes of a killed process's packets that are under way: part of them is still in the sender's own queues.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InFlight {
    /// For each death it is drawn how long its packets keep arriving.
    #[default]
    Sampled,
    /// They die with their sender.
    Lost,
    /// They arrive.
    Kept,
}

impl Simulator {
    /// See [`Simulator::reorder`], in parts per million.
    pub fn reorder_ppm(&self) -> u32 {
        self.reorder.map_or(0, |it| it.ppm)
    }

    /// See [`Simulator::reorder_within`].
    pub fn reorder_within(&self) -> Span {
        self.reorder_within.map_or(Span::ZERO, |it| it.0)
    }

    /// See [`Simulator::in_flight`].
    pub fn in_flight(&self) -> InFlight {
        self.in_flight.unwrap_or_default()
    }
}
