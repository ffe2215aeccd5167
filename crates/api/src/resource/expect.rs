//! What the federation expects of the run: each entry has one assertion.
//!
//! Assertions are optional fields of one flat struct rather than an enum, like those of a fault. [`ExpectSpec::assertions`]
//! returns them as an enum.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Duration;

/// Maximum number of entries in `expect`.
pub const MAX_EXPECTATIONS: usize = 64;

/// One expectation: exactly one assertion. A run that does not meet it fails.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new(
        "[has(self.recoveredWithin), has(self.rollbacks), has(self.lostWork), has(self.finishedWithin)]\
         .filter(x, x).size() == 1"
    ).message("an expectation must have exactly one assertion: recoveredWithin, rollbacks, lostWork or finishedWithin"),
)]
pub struct ExpectSpec {
    /// Assertion: no recovery takes longer than this, from the first failure until the last process that rolled back has
    /// resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_within: Option<Duration>,
    /// Assertion: few rollbacks. If each process rolls back alone, those of processes count, otherwise those of
    /// clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollbacks: Option<AtMost>,
    /// Assertion: little work is lost, summed over all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_work: Option<TimeAtMost>,
    /// Assertion: the run completes within this time, counted from the start of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_within: Option<Duration>,
}

/// The largest permitted number.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AtMost {
    /// The largest permitted number.
    pub at_most: u32,
}

/// The largest permitted time.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimeAtMost {
    /// The largest permitted time.
    pub at_most: Duration,
}

/// An assertion of [`ExpectSpec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assertion {
    /// See [`ExpectSpec::recovered_within`].
    RecoveredWithin(Duration),
    /// See [`ExpectSpec::rollbacks`].
    Rollbacks(AtMost),
    /// See [`ExpectSpec::lost_work`].
    LostWork(TimeAtMost),
    /// See [`ExpectSpec::finished_within`].
    FinishedWithin(Duration),
}

impl ExpectSpec {
    /// Returns the assertions with the names of their fields. Valid entries have exactly one.
    pub fn assertions(&self) -> Vec<(&'static str, Assertion)> {
        let all = [
            ("recoveredWithin", self.recovered_within.map(Assertion::RecoveredWithin)),
            ("rollbacks", self.rollbacks.map(Assertion::Rollbacks)),
            ("lostWork", self.lost_work.map(Assertion::LostWork)),
            ("finishedWithin", self.finished_within.map(Assertion::FinishedWithin)),
        ];
        all.into_iter().filter_map(|(name, it)| Some((name, it?))).collect()
    }
}
