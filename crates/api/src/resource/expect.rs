//! What the federation expects of the run: each entry has one assertion.
//!
//! Assertions are optional fields of one flat struct rather than an enum, like those of a fault. [`ExpectSpec::assertions`]
//! returns them as an enum.

use faultline_core::{LatencyOf, LinesOf, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::rules::Rule;
use crate::quantity::Duration;

/// Maximum number of entries in `expect`.
pub const MAX_EXPECTATIONS: usize = 64;

/// One expectation: exactly one assertion. A run that does not meet it fails.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [
    Rule::new(
        "[has(self.recoveredWithin), has(self.rollbacks), has(self.lostWork), has(self.finishedWithin), \
         has(self.availability), has(self.latency), has(self.longestOutage), has(self.exits), has(self.check), \
         has(self.faults), has(self.longestGap), has(self.same), has(self.increases), \
         has(self.atMost) && !has(self.exits), has(self.atLeast)].filter(x, x).size() == 1"
    ).message("an expectation must have exactly one assertion: recoveredWithin, rollbacks, lostWork, finishedWithin, availability, latency, longestOutage, exits, check, faults, longestGap, same, increases, atMost or atLeast"),
    Rule::new(
        "has(self.probe) ? !has(self.watch) && (has(self.recoveredWithin) || has(self.availability) || has(self.latency) || has(self.longestOutage)) \
         : !has(self.availability) && !has(self.latency) && !has(self.longestOutage)"
    ).message("availability, latency and longestOutage need probe, which only they and recoveredWithin allow"),
    Rule::new(
        "has(self.watch) ? has(self.recoveredWithin) || has(self.longestGap) || has(self.same) || has(self.increases) \
         || has(self.atMost) && !has(self.exits) || has(self.atLeast) : !has(self.longestGap) && !has(self.same) \
         && !has(self.increases) && !has(self.atLeast) && has(self.atMost) == has(self.exits)"
    ).message("longestGap, same, increases, atMost and atLeast need watch, which only they and recoveredWithin allow; exits and atMost need each other"),
    Rule::new("has(self.same) || !has(self.__for__)").message("for belongs to same"),
    Rule::new(
        "!has(self.per) || has(self.increases) \
         || has(self.watch) && (has(self.recoveredWithin) || has(self.longestGap)) && self.per != 'life'"
    ).message("per belongs to increases or, as node or run, to recoveredWithin and longestGap of a watch"),
    Rule::new(
        "has(self.check) ? has(self.by) && has(self.exec) : !has(self.by) && !has(self.exec) && !has(self.within)"
    ).message("check needs by and exec, which only it and within allow"),
]))]
pub struct ExpectSpec {
    /// Assertion: no recovery takes longer than this, from the first failure until the last process that rolled back has
    /// resumed. With `probe`: from the effect of each fault until the probe succeeds again. With `watch`: until the
    /// next line.
    pub recovered_within: Option<Duration>,
    /// Assertion: few rollbacks. If each process rolls back alone, those of processes count, otherwise those of
    /// clusters.
    pub rollbacks: Option<AtMost>,
    /// Assertion: little work is lost, summed over all processes.
    pub lost_work: Option<TimeAtMost>,
    /// Assertion: the run completes within this time, counted from the start of the application.
    pub finished_within: Option<Duration>,
    /// The probe that `availability`, `latency`, `longestOutage` or `recoveredWithin` is about. Only for systems.
    /// A kind of operation of `clients` is a probe as well, such as `kv.write`.
    #[schemars(length(min = 1, max = 60))]
    pub probe: Option<String>,
    /// Assertion: the probe is up for at least this fraction of the time.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub availability: Option<f64>,
    /// Assertion: successful samples of the probe take at most this long.
    pub latency: Option<LatencyAtMost>,
    /// Assertion: no outage of the probe is longer than this.
    pub longest_outage: Option<Duration>,
    /// Assertion: at most `atMost` commands of this cluster end by themselves. Only for systems.
    #[schemars(length(min = 1, max = 40))]
    pub exits: Option<String>,
    /// The largest permitted number of `exits`. With `watch`, assertion: the programs log at most this many lines.
    pub at_most: Option<u32>,
    /// The watch whose lines `recoveredWithin`, `longestGap`, `same`, `increases`, `atMost` or `atLeast` is about. Only
    /// for systems.
    #[schemars(length(min = 1, max = 40))]
    pub watch: Option<String>,
    /// Assertion: from the first line to the end, no longer time passes without a line, while the node is up.
    pub longest_gap: Option<Duration>,
    /// Assertion: this group of the watch has the same value in all lines or, with `for`, in all lines that have the same
    /// value of that group.
    #[schemars(length(min = 1, max = 40))]
    pub same: Option<String>,
    /// The group whose values distinguish the lines that `same` compares.
    #[serde(rename = "for")]
    #[schemars(length(min = 1, max = 40))]
    pub for_each: Option<String>,
    /// Assertion: this group of the watch is a number that is larger in each line than in the one before.
    #[schemars(length(min = 1, max = 40))]
    pub increases: Option<String>,
    /// The lines that `increases`, `recoveredWithin` or `longestGap` considers together: those of a `life` (only for
    /// `increases`), of a `node` in all its lives, or of all nodes (`run`). Default `node`.
    pub per: Option<Per>,
    /// Assertion: the programs log at least this many lines.
    pub at_least: Option<u32>,
    /// Assertion: the command `exec` succeeds at the end of the run. The text says what it then has found. Only for
    /// systems.
    #[schemars(length(min = 1, max = 100))]
    pub check: Option<String>,
    /// The node that runs the command of `check`, such as `paris-0`.
    #[schemars(length(min = 1, max = 64))]
    pub by: Option<String>,
    /// The command of `check`. It succeeds if its exit status is 0.
    #[serde(default)]
    #[schemars(schema_with = "super::system::exec")]
    pub exec: Option<Vec<String>>,
    /// The time within which the command of `check` must exit. Default 1m.
    pub within: Option<Duration>,
    /// Assertion: enough faults take effect, whether planned or drawn.
    pub faults: Option<AtLeast>,
}

/// The lines that an assertion considers together.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum Per {
    /// Those of one life of a node.
    Life,
    /// Those of a node, in all its lives.
    #[default]
    Node,
    /// Those of all nodes.
    Run,
}

impl From<Per> for LinesOf {
    fn from(per: Per) -> LinesOf {
        match per {
            Per::Life => LinesOf::Life,
            Per::Node => LinesOf::Node,
            Per::Run => LinesOf::Run,
        }
    }
}

/// The smallest permitted number.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AtLeast {
    /// The smallest permitted number.
    pub at_least: u32,
}

/// The longest permitted times of successful samples. At least one must be set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [
    Rule::new("has(self.p50) || has(self.p99) || has(self.max)").message("latency needs a limit: p50, p99 or max"),
]))]
pub struct LatencyAtMost {
    /// The longest permitted median.
    pub p50: Option<Duration>,
    /// The time within which 99 % of the samples must succeed.
    pub p99: Option<Duration>,
    /// The longest permitted time of any sample.
    pub max: Option<Duration>,
}

impl LatencyAtMost {
    /// Returns the limits that are set.
    fn limits(self) -> impl Iterator<Item = (LatencyOf, Duration)> {
        let all = [(LatencyOf::P50, self.p50), (LatencyOf::P99, self.p99), (LatencyOf::Max, self.max)];
        all.into_iter().filter_map(|(of, limit)| Some((of, limit?)))
    }
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Assertion<'a> {
    /// See [`ExpectSpec::recovered_within`].
    RecoveredWithin(Duration),
    /// See [`ExpectSpec::rollbacks`].
    Rollbacks(AtMost),
    /// See [`ExpectSpec::lost_work`].
    LostWork(TimeAtMost),
    /// See [`ExpectSpec::finished_within`].
    FinishedWithin(Duration),
    /// See [`ExpectSpec::availability`].
    Availability(f64),
    /// See [`ExpectSpec::longest_outage`].
    LongestOutage(Duration),
    /// See [`ExpectSpec::exits`].
    Exits(&'a str),
    /// See [`ExpectSpec::check`].
    Check(&'a str),
    /// See [`ExpectSpec::latency`].
    Latency(LatencyOf, Duration),
    /// See [`ExpectSpec::faults`].
    Faults(AtLeast),
    /// See [`ExpectSpec::longest_gap`].
    LongestGap(Duration),
    /// See [`ExpectSpec::same`].
    Same(&'a str),
    /// See [`ExpectSpec::increases`].
    Increases(&'a str),
    /// See [`ExpectSpec::at_most`]: a number of lines.
    LinesAtMost(u32),
    /// See [`ExpectSpec::at_least`].
    LinesAtLeast(u32),
}

impl ExpectSpec {
    /// Returns the assertions with the names of their fields. Valid entries have exactly one, except that `latency` has one
    /// for each of its limits.
    pub fn assertions(&self) -> Vec<(&'static str, Assertion<'_>)> {
        let all = [
            ("recoveredWithin", self.recovered_within.map(Assertion::RecoveredWithin)),
            ("rollbacks", self.rollbacks.map(Assertion::Rollbacks)),
            ("lostWork", self.lost_work.map(Assertion::LostWork)),
            ("finishedWithin", self.finished_within.map(Assertion::FinishedWithin)),
            ("availability", self.availability.map(Assertion::Availability)),
            ("longestOutage", self.longest_outage.map(Assertion::LongestOutage)),
            ("exits", self.exits.as_deref().map(Assertion::Exits)),
            ("check", self.check.as_deref().map(Assertion::Check)),
            ("faults", self.faults.map(Assertion::Faults)),
            ("longestGap", self.longest_gap.map(Assertion::LongestGap)),
            ("same", self.same.as_deref().map(Assertion::Same)),
            ("increases", self.increases.as_deref().map(Assertion::Increases)),
            ("atMost", self.at_most.filter(|_| self.exits.is_none()).map(Assertion::LinesAtMost)),
            ("atLeast", self.at_least.map(Assertion::LinesAtLeast)),
        ];
        let latency = self.latency.into_iter().flat_map(LatencyAtMost::limits);
        let latency = latency.map(|(of, limit)| ("latency", Assertion::Latency(of, limit)));
        all.into_iter().filter_map(|(name, it)| Some((name, it?))).chain(latency).collect()
    }

    /// Returns [`within`](field@ExpectSpec::within), or its default.
    pub fn check_within(&self) -> Span {
        self.within.map_or(Span::from_secs(60), |it| it.0)
    }
}
