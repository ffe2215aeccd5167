//! What the federation expects of the run, compared with what was measured. Each figure is one that reports show.
//!
//! A figure is a number with an uncertainty, and may be a lower bound: further recoveries, rollbacks and lost work may
//! follow if the record is incomplete or the run did not end. Whether an expectation is met is known only if the whole
//! range of the figure is on one side of the limit.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{
    CheckNo, ClusterId, Ending, Fact, FactKind, FactNo, Life, Observation, ProbeNo, ProcessId, Scope, Span,
    Time,
};
use faultline_trace::expectation::Expectation;
use serde::Serialize;

use crate::availability::{ProbeHistory, ProbeOutage, probes};
use crate::history::History;
use crate::ledger::Ledger;
use crate::lost::Returns;
use crate::outages::outages;
use crate::segments::Source;

/// An expectation with the figure that it is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assessment {
    /// The expectation, as a noun phrase.
    pub expected: String,
    /// The figure in words; `None` if there is none.
    pub measured: Option<String>,
    /// The figure: seconds, a number, or a fraction. `None` if there is none.
    pub figure: Option<f64>,
    /// The permitted limit of the figure, in the same unit.
    pub limit: f64,
    /// The largest possible error of the figure.
    pub uncertainty: f64,
    /// Whether the expectation is met.
    pub met: Met,
    /// The reason why this is unknown, and its remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Unknown>,
}

/// Whether an expectation is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Met {
    /// It is met.
    Yes,
    /// It is not met.
    No,
    /// The run does not show whether it is met.
    Unknown,
}

/// Why it is unknown whether an expectation is met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unknown {
    /// The reason.
    pub reason: String,
    /// What the user can do about it.
    pub remedy: &'static str,
    /// Whether missing facts suffice to explain it.
    #[serde(skip)]
    pub lacks_facts: bool,
}

/// A measured figure.
struct Figure {
    value: f64,
    /// The largest possible error of the value.
    error: f64,
    /// The reason why the figure may be larger than the value by any amount.
    more: Option<Unknown>,
    words: String,
}

/// Compares what the federation expects with the run.
pub fn assess(history: &History<'_>) -> Vec<Assessment> {
    let is_over = history.context.outcome.is_some() && !history.is_flawed();
    let measuring = Measuring { history, probes: probes(history), is_over };
    history.context.expectations.iter().map(|it| measuring.assess(it)).collect()
}

/// The largest share of the time that may be unobserved.
const MOST_UNOBSERVED: f64 = 0.05;

/// Returns the commands that ended by themselves although they must not, with the facts that state this.
pub fn unpermitted_exits<'h>(history: &'h History<'_>) -> Vec<(Source, &'h Ending)> {
    let Some(system) = &history.context.system else { return Vec::new() };
    let is_permitted = |process: &ProcessId, ending: &Ending| {
        system.may_exit.contains(process) || ending.is_success() && system.may_finish.contains(process)
    };
    let mut exits = Vec::new();
    for (&(process, life), stream) in &history.trace.streams {
        for (number, (_, fact)) in (0..).map(FactNo).zip(stream) {
            if let Fact::Observed(it) = fact
                && let Observation::Exited { ending, .. } = &**it
                && !is_permitted(&process, ending)
            {
                exits.push((Source { process, life, number }, ending));
            }
        }
    }
    exits
}

/// Returns the nodes of a system that had been ready, but whose last life was not, although its command ran.
pub fn not_ready_again(history: &History<'_>) -> Vec<(ProcessId, Life)> {
    let is_completed = history.context.outcome == Some(Outcome::Completed);
    if history.context.system.is_none() || !is_completed {
        return Vec::new();
    }
    let has_observed = |stream: &[(Time, Fact)], kind| stream.iter().any(|it| it.1.kind() == kind);
    let last = |process: &ProcessId| {
        let (life, stream) = history.trace.lives(*process).next_back()?;
        let has_ended = history.supervision.ends.iter().any(|it| (it.process, it.life) == (*process, life));
        let is_missing = life > Life(1) && !has_ended;
        let kinds = [FactKind::Ready, FactKind::Exited];
        (is_missing && !kinds.iter().any(|it| has_observed(stream, *it))).then_some((*process, life))
    };
    history.context.clusters.iter().flatten().filter_map(last).collect()
}

struct Measuring<'h, 'a> {
    history: &'h History<'a>,
    probes: Vec<ProbeHistory>,
    /// Whether no further facts can be missing.
    is_over: bool,
}

impl Measuring<'_, '_> {
    fn assess(&self, expectation: &Expectation) -> Assessment {
        let (limit, figure) = match *expectation {
            Expectation::Availability { probe, at_least } => (at_least, self.availability(probe)),
            Expectation::LongestOutage { probe, at_most } => {
                (at_most.as_secs_f64(), self.longest_outage(probe))
            }
            Expectation::ProbeRecovered { probe, within } => {
                let limit = within.as_secs_f64();
                (limit, self.recovery_of(probe, limit))
            }
            Expectation::Check { check, .. } => (0.0, self.check(check)),
            Expectation::Exits { cluster, at_most } => (at_most as f64, Ok(self.exits(cluster))),
            Expectation::RecoveredWithin(within) => (within.as_secs_f64(), self.recovery()),
            Expectation::Rollbacks { at_most } => (at_most as f64, Ok(self.rollbacks())),
            Expectation::LostWork { at_most } => (at_most.as_secs_f64(), Ok(self.lost_work())),
            Expectation::FinishedWithin(within) => (within.as_secs_f64(), self.duration()),
        };
        let is_affected_by_links = !matches!(
            expectation,
            Expectation::Rollbacks { .. } | Expectation::Check { .. } | Expectation::Exits { .. }
        );
        // An availability must not be too small, all other figures must not be too large.
        let sign = if matches!(expectation, Expectation::Availability { .. }) { -1.0 } else { 1.0 };
        let (met, unknown) = match &figure {
            Ok(figure) => self.compare(figure, sign, limit, is_affected_by_links),
            Err(unknown) => (Met::Unknown, Some(unknown.clone())),
        };
        let figure = figure.ok();
        Assessment {
            expected: expectation.describe(&self.history.context.names),
            figure: figure.as_ref().map(|it| it.value),
            uncertainty: figure.as_ref().map_or(0.0, |it| it.error),
            measured: figure.map(|it| it.words),
            limit,
            met,
            unknown,
        }
    }

    /// Compares a figure with the largest permitted one, after both have been multiplied by `sign`.
    fn compare(
        &self,
        figure: &Figure,
        sign: f64,
        limit: f64,
        is_affected_by_links: bool,
    ) -> (Met, Option<Unknown>) {
        let unknown = |it| (Met::Unknown, Some(it));
        let (value, limit) = (figure.value * sign, limit * sign);
        if value - figure.error > limit {
            let context = &self.history.context;
            let is_off = || context.links.iter().any(|it| context.judges_link(it) && it.is_off());
            return match is_affected_by_links && is_off() {
                true => unknown(Unknown {
                    reason: "the links did not have the requested delays, which may be the reason".into(),
                    remedy: "repeat the run on an idle machine",
                    lacks_facts: false,
                }),
                false => (Met::No, None),
            };
        }
        if let Some(more) = &figure.more {
            return unknown(more.clone());
        }
        if value + figure.error <= limit {
            return (Met::Yes, None);
        }
        unknown(Unknown {
            reason: "the measured time is too uncertain".into(),
            remedy: "repeat the run, sample more often, or permit a longer time",
            lacks_facts: false,
        })
    }

    /// Returns the longest recovery from an outage.
    fn recovery(&self) -> Result<Figure, Unknown> {
        let (history, begun) = (self.history, self.history.supervision.begun.unwrap_or_default());
        let all = outages(history, &Ledger::of(history));
        let ended = history.end().since(begun).as_secs_f64();
        let longest = all.iter().map(|it| it.recovery_seconds.unwrap_or(ended - it.at_seconds));
        let Some(value) = longest.max_by(f64::total_cmp) else {
            return Err(self.lacks_facts().unwrap_or_else(|| Unknown {
                reason: "no process failed".into(),
                remedy: "plan a fault that ends a process, or omit the expectation",
                lacks_facts: false,
            }));
        };
        let is_open = all.iter().any(|it| it.recovery_seconds.is_none());
        let error = self.clock_error();
        let words = match all.len() {
            _ if is_open => format!("{} until the end of the run", seconds(value, error)),
            1 => seconds(value, error),
            all => format!("{}, the longest of {all} recoveries", seconds(value, error)),
        };
        let more = self.lacks_facts().or_else(|| {
            is_open.then(|| Unknown {
                reason: "a process had not resumed when the run ended".into(),
                remedy: "let the run last longer, or inject the last fault earlier",
                lacks_facts: false,
            })
        });
        Ok(Figure { value, error, more, words })
    }

    /// Returns the number of rollbacks: of clusters or, if each process rolls back alone, of processes.
    fn rollbacks(&self) -> Figure {
        let context = self.history.context;
        let units = match context.promises.scope {
            Scope::Process => context.clusters.iter().flatten().map(|it| vec![*it]).collect(),
            Scope::Cluster | Scope::Federation => context.clusters.clone(),
        };
        let returns = Returns::new(self.history);
        let number: usize = units
            .iter()
            .map(|unit| {
                let all = unit.iter().flat_map(|it| returns.of(*it)).map(|it| it.incarnation);
                all.collect::<BTreeSet<_>>().len()
            })
            .sum();
        let words = number.to_string();
        Figure { value: number as f64, error: 0.0, more: self.unfinished(), words }
    }

    /// Returns the lost work of all processes.
    fn lost_work(&self) -> Figure {
        let returns = Returns::new(self.history);
        let all = self.history.context.clusters.iter().flatten();
        let undone = all.flat_map(|it| returns.of(*it)).map(|it| it.lost());
        let lost = undone.chain(returns.successions().into_iter().map(|it| it.lost()));
        let value = lost.fold(Span::ZERO, |sum, it| sum + it).as_secs_f64();
        let error = self.clock_error() * self.history.supervision.ends.len() as f64;
        Figure { value, error, more: self.unfinished(), words: seconds(value, error) }
    }

    /// Returns the time from the start of the application to the end of the run, by the supervisor's clock.
    fn duration(&self) -> Result<Figure, Unknown> {
        let context = self.history.context;
        let Some(begun) = self.history.supervision.begun else {
            return Err(Unknown {
                reason: "the application did not start".into(),
                remedy: "repeat the run; if it does not start again, see its log",
                lacks_facts: true,
            });
        };
        let value = context.end.since(begun).as_secs_f64();
        let words = match context.outcome.as_ref().is_some_and(|it| it.name() == "completed") {
            true => seconds(value, 0.0),
            false => format!("not finished after {}", seconds(value, 0.0)),
        };
        Ok(Figure { value, error: 0.0, more: self.unfinished(), words })
    }

    fn probe(&self, probe: ProbeNo) -> Result<&ProbeHistory, Unknown> {
        let history = self.probes.get(probe.index()).filter(|it| it.samples().1 > 0);
        let history = history.ok_or_else(|| Unknown {
            reason: "the probe did not run".into(),
            remedy: "see the log of its node, or let another cluster run it (`by`)",
            lacks_facts: !self.is_over,
        })?;
        match history.unobserved() {
            share if share > MOST_UNOBSERVED => Err(Unknown {
                reason: format!("the probe was not observed for {:.1} % of the time", share * 100.0),
                remedy: "let a cluster of clients run it (`by`), which no fault affects, or use an idle machine",
                lacks_facts: false,
            }),
            _ => Ok(history),
        }
    }

    /// Returns the share of successful samples.
    fn availability(&self, probe: ProbeNo) -> Result<Figure, Unknown> {
        let (succeeded, all) = self.probe(probe)?.samples();
        let value = succeeded as f64 / all as f64;
        let words = format!("{:.1} % of {all} samples", value * 100.0);
        Ok(Figure { value, error: 0.0, more: self.unfinished(), words })
    }

    /// Returns the longest outage of a probe.
    fn longest_outage(&self, probe: ProbeNo) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let longest = probe.outages().map(ProbeOutage::lasted).max().unwrap_or_default();
        let more = self.unfinished().or_else(|| {
            probe.outages().any(|it| it.is_open).then(|| Unknown {
                reason: "an outage had not ended when it was last observed".into(),
                remedy: "let the run last longer, or let a cluster of clients run the probe (`by`)",
                lacks_facts: false,
            })
        });
        let value = longest.as_secs_f64();
        Ok(Figure { value, error: 0.0, more, words: seconds(value, 0.0) })
    }

    /// Returns the longest recovery of a probe after a fault. A fault is not judged if the next one takes effect, or the
    /// run ends, before the probe has recovered and before the limit.
    fn recovery_of(&self, probe: ProbeNo, limit: f64) -> Result<Figure, Unknown> {
        let probe = self.probe(probe)?;
        let error = probe.uncertainty().as_secs_f64() + self.clock_error();
        let judged: Vec<(f64, bool)> = probe
            .recoveries
            .iter()
            .map(|it| (it.recovered.unwrap_or(it.within).as_secs_f64(), it.recovered.is_some()))
            .filter(|(value, has_recovered)| *has_recovered || value - error > limit)
            .collect();
        let Some(&(value, has_recovered)) = judged.iter().max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Err(Unknown {
                reason: "no fault took effect long enough before the next one or the end".into(),
                remedy: "plan a fault, or leave more time after it",
                lacks_facts: !self.is_over,
            });
        };
        let time = seconds(value, error);
        let words = match (has_recovered, judged.len()) {
            (false, _) => format!("not recovered after {time}"),
            (true, 1) => time,
            (true, faults) => format!("{time}, the longest after {faults} faults"),
        };
        Ok(Figure { value, error, more: self.lacks_facts(), words })
    }

    /// Returns 0 if a check succeeded, and 1 if it failed.
    fn check(&self, check: CheckNo) -> Result<Figure, Unknown> {
        let facts = self.history.trace.streams.values().flatten();
        let mut results = facts.filter_map(|(_, fact)| match fact {
            Fact::Observed(it) => match &**it {
                Observation::Checked { check: of, latency, ending, .. } if *of == check => {
                    Some((latency, ending))
                }
                _ => None,
            },
            _ => None,
        });
        match results.next() {
            Some((latency, ending)) if *ending == Ending::TimedOut || ending.is_unknown() => Err(Unknown {
                reason: format!("{ending} after {latency}"),
                remedy: "raise `within`, or correct the command",
                lacks_facts: false,
            }),
            Some((latency, ending)) => Ok(Figure {
                value: if ending.is_success() { 0.0 } else { 1.0 },
                error: 0.0,
                more: None,
                words: format!("{ending} after {latency}"),
            }),
            None => Err(Unknown {
                reason: "the check did not run".into(),
                remedy: "see whether the run ended early, and whether the node of the check was up",
                lacks_facts: !self.is_over,
            }),
        }
    }

    /// Returns the number of commands of a cluster that ended by themselves.
    fn exits(&self, cluster: ClusterId) -> Figure {
        let members = self.history.context.clusters.get(cluster.index()).into_iter().flatten();
        let streams = members.flat_map(|it| self.history.trace.lives(*it)).flat_map(|(_, stream)| stream);
        let number = streams.filter(|(_, fact)| fact.kind() == FactKind::Exited).count();
        Figure { value: number as f64, error: 0.0, more: self.unfinished(), words: number.to_string() }
    }

    /// Returns the largest difference between the clocks of two processes that the record shows.
    fn clock_error(&self) -> f64 {
        let effects = self.history.context.effects.iter().flat_map(|it| &it.on);
        effects.map(|it| it.error).max().unwrap_or_default().as_secs_f64()
    }

    /// Returns the reason why something may have happened that no fact shows.
    fn lacks_facts(&self) -> Option<Unknown> {
        (!self.is_over).then(|| Unknown {
            reason: "facts may be missing".into(),
            remedy: "repeat the run, or restore the files of the record from a complete copy",
            lacks_facts: true,
        })
    }

    /// Returns the reason why something may still have happened after the run.
    fn unfinished(&self) -> Option<Unknown> {
        let is_completed = self.history.context.outcome.as_ref().is_some_and(|it| it.name() == "completed");
        self.lacks_facts().or_else(|| {
            (!is_completed).then(|| Unknown {
                reason: "the run ended before the application had finished".into(),
                remedy: "raise `deadline`, or see why the run ended",
                lacks_facts: false,
            })
        })
    }
}

/// Formats a time with its uncertainty.
fn seconds(value: f64, error: f64) -> String {
    let time = faultline_trace::duration::span;
    match error > 0.0 {
        true => format!("{} +-{}", time(value), time(error)),
        false => time(value),
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::Outcome;
    use faultline_core::{EndedBy, FaultNo, Life, Time};
    use faultline_trace::manifest::{Effect, EffectEntry};

    use super::*;
    use crate::testing::{Run, p};

    const SECOND: Span = Span::from_secs(1);

    /// A run of 12 s. One process fails after 5 s, and both have rolled back 3 s later.
    fn recovered(expectations: &[Expectation]) -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.context.expectations = expectations.to_vec();
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0, 1]);
        for it in [0, 1] {
            run.send(it, 1 - it);
        }
        run.wait(SECOND * 5);
        run.kill(0, false);
        run.wait(SECOND * 2);
        run.restore(0, 1, Some((0, 1)));
        run.wait(SECOND);
        run.restore(1, 1, Some((0, 1)));
        run.wait(SECOND * 4);
        run.supervisor(Fact::Completed);
        run.context.outcome = Some(Outcome::Completed);
        run.context.end = Time::ZERO + SECOND * 12;
        run
    }

    fn met(run: &Run) -> Vec<Met> {
        assess(&run.history()).iter().map(|it| it.met).collect()
    }

    /// Limits that the run above just meets, and limits that it just exceeds.
    fn limits() -> ([Expectation; 4], [Expectation; 4]) {
        let of = |recovery: u64, rollbacks, lost: u64, end: u64| {
            [
                Expectation::RecoveredWithin(Span::from_millis(recovery)),
                Expectation::Rollbacks { at_most: rollbacks },
                Expectation::LostWork { at_most: Span::from_millis(lost) },
                Expectation::FinishedWithin(Span::from_millis(end)),
            ]
        };
        (of(3_000, 1, 13_000, 12_000), of(2_999, 0, 12_999, 11_999))
    }

    #[test]
    fn each_figure_is_compared_with_its_limit() {
        let (just, exceeded) = limits();
        let run = recovered(&just);
        let all = assess(&run.history());
        assert_eq!(all.iter().map(|it| it.figure).collect::<Vec<_>>(), [3.0, 1.0, 13.0, 12.0].map(Some));
        assert!(all.iter().all(|it| it.met == Met::Yes), "{all:?}");
        assert_eq!(met(&recovered(&exceeded)), [Met::No; 4]);
    }

    #[test]
    fn more_may_follow_in_an_unfinished_run_but_a_limit_that_is_exceeded_stays_exceeded() {
        let (just, exceeded) = limits();
        for (outcome, recovery) in [(None, Met::Unknown), (Some(Outcome::Deadline), Met::Yes)] {
            let mut run = recovered(&just);
            run.context.outcome = outcome.clone();
            let all = met(&run);
            assert_eq!(all, [recovery, Met::Unknown, Met::Unknown, Met::Unknown], "{outcome:?}");
            let mut run = recovered(&exceeded);
            run.context.outcome = outcome;
            assert_eq!(met(&run), [Met::No; 4]);
        }
    }

    #[test]
    fn a_recovery_that_does_not_end_and_a_run_without_failures_are_unknown() {
        let expected = |within: u64| [Expectation::RecoveredWithin(SECOND * within)];
        for (within, verdict) in [(6, Met::No), (7, Met::Unknown)] {
            let mut run = Run::new(&[&[0, 1]]);
            run.context.expectations = expected(within).to_vec();
            run.context.outcome = Some(Outcome::Deadline);
            run.supervisor(Fact::Begun);
            run.kill(0, false);
            run.wait(SECOND * 7);
            run.send(1, 0);
            assert_eq!(met(&run), [verdict], "{within}");
        }
        let mut run = Run::new(&[&[0, 1]]);
        run.context.expectations = expected(1).to_vec();
        run.context.outcome = Some(Outcome::Completed);
        run.supervisor(Fact::Begun);
        run.send(1, 0);
        let unknown = assess(&run.history()).remove(0).unknown.expect("nothing was measured");
        assert_eq!(unknown.reason, "no process failed");
    }

    #[test]
    fn a_difference_within_the_uncertainty_of_the_clocks_is_unknown() {
        let (just, _) = limits();
        let mut run = recovered(&just[..1]);
        let at = Some(Time::ZERO);
        let effect = Effect { process: p(0), life: Life(1), at, exited: None, error: Span::from_millis(5) };
        run.context.effects = vec![EffectEntry { no: FaultNo(0), due: Time::ZERO, on: vec![effect] }];
        let found = assess(&run.history()).remove(0);
        assert_eq!((found.met, found.measured.as_deref()), (Met::Unknown, Some("3.00 s +-5.00 ms")));
        run.context.expectations = vec![Expectation::RecoveredWithin(Span::from_millis(3_005))];
        assert_eq!(met(&run), [Met::Yes]);
        run.context.expectations = vec![Expectation::RecoveredWithin(Span::from_millis(2_994))];
        assert_eq!(met(&run), [Met::No]);
    }

    #[test]
    fn an_unplanned_failure_counts_like_any_other() {
        let (just, _) = limits();
        let mut run = recovered(&just[..1]);
        let (process, by) = (p(1), EndedBy::Silence);
        run.supervisor(Fact::Failed {
            process,
            life: Life(1),
            storage: faultline_core::StorageFate::Kept,
            by,
        });
        run.wait(SECOND * 4);
        run.send(0, 1);
        assert_eq!(met(&run), [Met::No]);
    }
}
