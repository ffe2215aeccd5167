//! Probes of a user's own system: samples, outages, and recoveries after faults.
//!
//! A process observes a probe from the start of each sample until the next sample should start. The time in which its
//! node was down or paused is *unobserved*, and so is any further gap between two samples that exceeds the timeout of
//! the probe. An *outage* lasts from the start of the first failed sample to the start of the next successful one. A
//! probe has *recovered* after a fault at the start of the first of three consecutive successful samples. The time
//! counts from the fault's effect or, if it lasts for a while and is not a crash, from its end.

use faultline_core::{Fact, FaultNo, Observation, ProbeNo, ProcessId, Span, Time};
use faultline_trace::expectation::ProbeEntry;

use crate::history::History;
use crate::lost::Pauses;

/// The number of consecutive successful samples after which a probe has recovered.
const RECOVERED_AFTER: usize = 3;

/// The samples of a probe.
#[derive(Clone, Debug)]
pub struct ProbeHistory {
    /// The probe.
    pub entry: ProbeEntry,
    /// The start and the end of the time in which samples count.
    pub window: (Time, Time),
    /// The samples of each process, in the order of [`ProbeEntry::by`].
    pub strips: Vec<Strip>,
    /// How the probe recovered after each fault that took effect, in order.
    pub recoveries: Vec<FaultRecovery>,
}

/// The samples of a probe by one process.
#[derive(Clone, Debug, Default)]
pub struct Strip {
    /// The process.
    pub process: ProcessId,
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// The periods that are unobserved, ascending.
    pub unobserved: Vec<(Time, Time)>,
    /// The outages, ascending.
    pub outages: Vec<ProbeOutage>,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The start of the sample.
    pub from: Time,
    /// The end of the sample.
    pub upto: Time,
    /// Whether the sample succeeded.
    pub is_success: bool,
}

/// An outage of a probe, as one process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOutage {
    /// The start of the first failed sample.
    pub from: Time,
    /// The start of the next successful sample, or the time from which the probe was not observed.
    pub upto: Time,
    /// Whether the outage may have lasted longer.
    pub is_open: bool,
}

impl ProbeOutage {
    /// Returns how long the outage lasted, at least.
    pub fn lasted(&self) -> Span {
        self.upto.since(self.from)
    }
}

/// How a probe recovered after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRecovery {
    /// The fault.
    pub no: FaultNo,
    /// The time of the fault's effect.
    pub effect: Time,
    /// The time from which the recovery counts.
    pub at: Time,
    /// The time until the probe had recovered at every process that runs it; `None` if it had not when the next fault
    /// took effect or the run ended.
    pub recovered: Option<Span>,
    /// The time until the next fault took effect or the run ended.
    pub within: Span,
    /// The longest total outage that a process saw from the effect until then.
    pub failed: Span,
}

/// Returns the history of every probe.
pub fn probes(history: &History<'_>) -> Vec<ProbeHistory> {
    let Some(system) = &history.context.system else { return Vec::new() };
    let begun = history.supervision.begun.unwrap_or_default();
    let window = (begun, end(history).max(begun));
    let effects = effects(history);
    let numbered = (0..).map(ProbeNo).zip(&system.probes);
    numbered
        .map(|(no, entry)| {
            let strips = entry.by.iter().map(|it| strip(history, no, entry, *it, window)).collect();
            let mut probe = ProbeHistory { entry: entry.clone(), window, strips, recoveries: Vec::new() };
            probe.recoveries = probe.recoveries(&effects);
            probe
        })
        .collect()
}

/// Returns the time at which probes stopped: once the first check started or, without checks, once the run ended.
fn end(history: &History<'_>) -> Time {
    let facts = history.trace.streams.values().flatten();
    let checks = facts.filter_map(|(at, fact)| match fact {
        Fact::Observed(it) => match **it {
            Observation::Checked { latency, .. } => Some(Time(at.0.saturating_sub(latency.0))),
            _ => None,
        },
        _ => None,
    });
    let completed = history.trace.supervisor().iter().rev().find(|(_, fact)| *fact == Fact::Completed);
    checks.min().or(completed.map(|it| it.0)).unwrap_or_else(|| history.end())
}

fn strip(
    history: &History<'_>,
    no: ProbeNo,
    entry: &ProbeEntry,
    process: ProcessId,
    (begun, end): (Time, Time),
) -> Strip {
    let paused = paused(history, process, end);
    let overlaps = |it: &Sample| paused.iter().any(|(from, upto)| it.upto > *from && it.from < *upto);
    let mut strip = Strip { process, ..Strip::default() };
    // The time until which the probe has been observed.
    let (mut upto, mut was_interrupted, mut failing) = (begun, false, None);
    for (life, stream) in history.trace.lives(process) {
        let ended = history.supervision.end_of(process, life).map(|it| it.at);
        for sample in stream.iter().filter_map(|(at, fact)| sample(no, *at, fact)) {
            if sample.upto < begun || sample.from >= end {
                continue;
            }
            if overlaps(&sample) {
                was_interrupted = true;
                continue;
            }
            let longest = if was_interrupted { Span::ZERO } else { entry.timeout };
            strip.gap(upto, sample.from, longest, &mut failing);
            if sample.is_success {
                strip.end_outage(&mut failing, sample.from, false);
            } else {
                failing.get_or_insert(sample.from);
            }
            strip.samples.push(sample);
            let next = sample.from + entry.every;
            upto = upto.max(sample.upto).max(ended.map_or(next, |it| next.min(it)));
            was_interrupted = false;
        }
        was_interrupted |= ended.is_some();
    }
    let longest = if was_interrupted { Span::ZERO } else { entry.timeout };
    strip.gap(upto.min(end), end, longest, &mut failing);
    strip.end_outage(&mut failing, end, true);
    strip
}

fn sample(no: ProbeNo, at: Time, fact: &Fact) -> Option<Sample> {
    let Fact::Observed(observation) = fact else { return None };
    let Observation::Probed { probe, latency, ending, .. } = &**observation else { return None };
    let from = Time(at.0.saturating_sub(latency.0));
    (*probe == no).then(|| Sample { from, upto: at, is_success: ending.is_success() })
}

/// Returns the periods in which a fault paused the process, or the user paused the federation.
fn paused(history: &History<'_>, process: ProcessId, end: Time) -> Vec<(Time, Time)> {
    let supervision = &history.supervision;
    let by_faults = supervision.injected.iter().filter(|it| it.1.pauses() == Some(process));
    let by_faults = by_faults.map(|(_, fault, at, _)| {
        let resumed = supervision.resumed.iter().filter(|it| it.1 == process && it.0 >= *at);
        (*at, resumed.map(|it| it.0).min().unwrap_or_else(|| fault.until(*at).min(end)))
    });
    by_faults.chain(Pauses::of(supervision).stretches()).collect()
}

impl Strip {
    /// Records a gap, unless it is at most `longest`. Nothing is known about an outage at its start.
    fn gap(&mut self, from: Time, upto: Time, longest: Span, failing: &mut Option<Time>) {
        if upto > from && upto.since(from) > longest {
            self.end_outage(failing, from, true);
            self.unobserved.push((from, upto));
        }
    }

    fn end_outage(&mut self, failing: &mut Option<Time>, upto: Time, is_open: bool) {
        if let Some(from) = failing.take() {
            self.outages.push(ProbeOutage { from, upto: upto.max(from), is_open });
        }
    }

    /// Returns the time from `at` to the first of several consecutive successful samples, all before `end`. Zero if the
    /// probe was observed, and no sample failed, until then.
    fn recovered(&self, at: Time, end: Time) -> Option<Span> {
        let first = self.samples.partition_point(|it| it.upto < at);
        let is_unobserved = |from: Time, upto: Time| {
            self.unobserved.iter().any(|(begun, ended)| from < *ended && *begun < upto)
        };
        let recovers = |it: &&[Sample]| {
            let (first, last) = (it[0], it[it.len() - 1]);
            it.iter().all(|it| it.is_success) && last.upto <= end && !is_unobserved(first.from, last.upto)
        };
        let place = self.samples[first..].windows(RECOVERED_AFTER).position(|it| recovers(&it))?;
        let from = self.samples[first + place].from.max(at);
        Some(if place == 0 && !is_unobserved(at, from) { Span::ZERO } else { from.since(at) })
    }

    /// Returns how long the probe failed in a period.
    fn failed(&self, from: Time, upto: Time) -> Span {
        let each = self.outages.iter().map(|it| (it.from.max(from), it.upto.min(upto)));
        each.filter(|(from, upto)| from < upto).fold(Span::ZERO, |sum, (from, upto)| sum + upto.since(from))
    }
}

impl ProbeHistory {
    /// Returns the number of successful samples, and that of all samples.
    pub fn samples(&self) -> (usize, usize) {
        let all = || self.strips.iter().flat_map(|it| &it.samples);
        (all().filter(|it| it.is_success).count(), all().count())
    }

    /// Returns the share of the time that is unobserved, over all processes.
    pub fn unobserved(&self) -> f64 {
        let gaps = self.strips.iter().flat_map(|it| &it.unobserved);
        let sum: f64 = gaps.map(|(from, upto)| upto.since(*from).as_secs_f64()).sum();
        let whole = self.window.1.since(self.window.0).as_secs_f64() * self.strips.len() as f64;
        if whole > 0.0 { sum / whole } else { 1.0 }
    }

    /// Iterates over the outages that any process saw.
    pub fn outages(&self) -> impl Iterator<Item = &ProbeOutage> {
        self.strips.iter().flat_map(|it| &it.outages)
    }

    /// Returns the largest possible error of a recovery, apart from that of the clocks.
    pub fn uncertainty(&self) -> Span {
        self.entry.every + self.entry.timeout
    }

    /// Returns how the probe recovered after these faults.
    fn recoveries(&self, effects: &[(FaultNo, Time, Time)]) -> Vec<FaultRecovery> {
        let ends = effects.iter().skip(1).map(|it| it.1).chain([self.window.1]);
        let recovery = |(&(no, effect, at), end): (&(FaultNo, Time, Time), Time)| {
            let (end, judged) = (end.max(at), |it: &&Strip| it.samples.iter().any(|it| it.upto >= at));
            let mut strips = self.strips.iter().filter(judged).peekable();
            let has_any = strips.peek().is_some();
            let each = strips.map(|it| it.recovered(at, end));
            let recovered = each.collect::<Option<Vec<Span>>>().filter(|_| has_any);
            FaultRecovery {
                no,
                effect,
                at,
                recovered: recovered.and_then(|it| it.into_iter().max()),
                within: end.since(at),
                failed: self.strips.iter().map(|it| it.failed(effect, end)).max().unwrap_or_default(),
            }
        };
        effects.iter().zip(ends).map(recovery).collect()
    }
}

/// Returns every fault that took effect, in order: the time of its effect, and the time from which a recovery counts.
fn effects(history: &History<'_>) -> Vec<(FaultNo, Time, Time)> {
    let effect = |&(no, fault, at, _): &(FaultNo, &faultline_core::Fault, Time, usize)| {
        let measured = history.context.effects.iter().find(|it| it.no == no);
        let last = measured.and_then(|it| it.on.iter().filter_map(|it| it.at).max());
        let at = last.unwrap_or(at).max(at);
        let until = fault.until(at);
        (no, at, if until == Time::NEVER { at } else { until })
    };
    let mut all: Vec<_> = history.supervision.injected.iter().map(effect).collect();
    all.sort_by_key(|it| it.1);
    all
}

#[cfg(test)]
mod tests {
    use faultline_core::{Ending, Fault};
    use faultline_trace::expectation::{Expectation, SystemEntry};

    use super::*;
    use crate::expected::{Met, assess};
    use crate::testing::{Run, p};

    const PROBE: ProbeNo = ProbeNo(0);

    fn millis(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    fn at(of: u64) -> Time {
        Time::ZERO + millis(of)
    }

    /// A run whose process 1 runs a probe every 100 ms with a timeout of 50 ms.
    fn probing() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        let (every, timeout) = (millis(100), millis(50));
        let probes = vec![ProbeEntry { name: "write".into(), by: vec![p(1)], every, timeout }];
        run.context.system = Some(SystemEntry { probes, ..SystemEntry::default() });
        run.context.outcome = Some(faultline_core::fault::Outcome::Completed);
        run.supervisor(Fact::Begun);
        run
    }

    /// Adds a sample for each letter, every 100 ms: `s` for one that succeeds after 10 ms, `f` for one that fails after
    /// 50 ms, and `-` for none.
    fn samples(run: &mut Run, letters: &str) {
        for letter in letters.chars() {
            let (latency, ending) = match letter {
                's' => (millis(10), Ending::Exit(0)),
                _ => (millis(50), Ending::TimedOut),
            };
            run.wait(latency);
            if letter != '-' {
                let observation =
                    Observation::Probed { probe: PROBE, sample: 0, latency, ending, said: "".into() };
                run.state(1, Fact::Observed(Box::new(observation)));
            }
            run.wait(Span(millis(100).0 - latency.0));
        }
    }

    fn found(run: &Run) -> ProbeHistory {
        probes(&run.history()).remove(0)
    }

    fn end(run: &mut Run) {
        run.supervisor(Fact::Completed);
    }

    #[test]
    fn an_outage_lasts_from_the_first_failed_sample_to_the_next_successful_one() {
        let mut run = probing();
        samples(&mut run, "ssfffssfs");
        end(&mut run);
        let found = found(&run);
        assert_eq!(found.samples(), (5, 9));
        let outages: Vec<_> = found.outages().map(|it| (it.from, it.upto, it.is_open)).collect();
        assert_eq!(outages, [(at(200), at(500), false), (at(700), at(800), false)]);
        assert_eq!(found.unobserved(), 0.0);
    }

    #[test]
    fn an_outage_that_does_not_end_is_open() {
        let mut run = probing();
        samples(&mut run, "sff");
        end(&mut run);
        let outages: Vec<_> = found(&run).outages().copied().collect();
        assert_eq!(outages, [ProbeOutage { from: at(100), upto: at(300), is_open: true }]);
    }

    #[test]
    fn time_in_which_the_node_is_down_or_paused_or_takes_no_samples_is_unobserved() {
        let mut run = probing();
        samples(&mut run, "ssf");
        run.kill(1, false);
        samples(&mut run, "--sss");
        let no = FaultNo(0);
        run.supervisor(Fact::Injecting { no, fault: Box::new(Fault::pause(p(1), millis(250))) });
        samples(&mut run, "ff");
        run.supervisor(Fact::Resumed { process: p(1), life: faultline_core::Life(2) });
        samples(&mut run, "ss--s");
        end(&mut run);
        let found = found(&run);
        let gaps = [(at(300), at(500)), (at(800), at(1000)), (at(1200), at(1400))];
        assert_eq!(found.strips[0].unobserved, gaps);
        assert_eq!(found.samples(), (8, 9), "samples during a pause do not count");
        let outages: Vec<_> = found.outages().copied().collect();
        assert_eq!(outages, [ProbeOutage { from: at(200), upto: at(300), is_open: true }]);
    }

    /// Returns whether expectations about the probe are met, with the figures.
    fn judged(run: &mut Run, expectations: &[Expectation]) -> Vec<(Met, Option<f64>)> {
        run.context.expectations = expectations.to_vec();
        assess(&run.history()).into_iter().map(|it| (it.met, it.figure)).collect()
    }

    fn inject(run: &mut Run, no: u32, fault: Fault) {
        run.supervisor(Fact::Injecting { no: FaultNo(no), fault: Box::new(fault) });
    }

    #[test]
    fn availability_and_the_longest_outage_are_compared_with_their_limits() {
        let available = |at_least| Expectation::Availability { probe: PROBE, at_least };
        let outage = |at_most| Expectation::LongestOutage { probe: PROBE, at_most: millis(at_most) };
        let mut run = probing();
        samples(&mut run, "sssssssffs");
        end(&mut run);
        let expected = [available(0.8), available(0.81), outage(200), outage(199)];
        let found = judged(&mut run, &expected);
        let values = [0.8, 0.8, 0.2, 0.2].map(Some);
        let met = [Met::Yes, Met::No, Met::Yes, Met::No];
        assert_eq!(found, met.into_iter().zip(values).collect::<Vec<_>>());
        let mut run = probing();
        samples(&mut run, "ss-----sss");
        end(&mut run);
        assert_eq!(
            judged(&mut run, &expected[..1]),
            [(Met::Unknown, None)],
            "half of the time is unobserved"
        );
        let mut run = probing();
        run.wait(millis(500));
        end(&mut run);
        assert_eq!(judged(&mut run, &expected[..1]), [(Met::Unknown, None)], "no sample");
    }

    #[test]
    fn a_probe_has_recovered_at_the_first_of_three_successes_in_a_row() {
        let expected = |within| Expectation::ProbeRecovered { probe: PROBE, within: millis(within) };
        let mut run = probing();
        samples(&mut run, "sss");
        inject(&mut run, 0, Fault::crash(p(0)));
        samples(&mut run, "ffssfsssss");
        end(&mut run);
        // The uncertainty is 150 ms.
        let found = judged(&mut run, &[expected(650), expected(649), expected(350), expected(349)]);
        assert_eq!(
            found.iter().map(|it| it.0).collect::<Vec<_>>(),
            [Met::Yes, Met::Unknown, Met::Unknown, Met::No]
        );
        assert_eq!(found[0].1, Some(0.5));
    }

    #[test]
    fn a_fault_that_is_followed_by_another_one_too_early_is_not_judged() {
        let expected = |within| Expectation::ProbeRecovered { probe: PROBE, within: millis(within) };
        let mut run = probing();
        samples(&mut run, "sss");
        inject(&mut run, 0, Fault::crash(p(0)));
        samples(&mut run, "ffff");
        inject(&mut run, 1, Fault::crash(p(0)));
        samples(&mut run, "ff");
        end(&mut run);
        assert_eq!(judged(&mut run, &[expected(300)]), [(Met::Unknown, None)]);
        assert_eq!(judged(&mut run, &[expected(200)]), [(Met::No, Some(0.4))]);
    }

    #[test]
    fn a_fault_that_makes_no_sample_fail_needs_no_recovery() {
        let mut run = probing();
        samples(&mut run, "sss");
        run.wait(millis(20));
        inject(&mut run, 0, Fault::crash(p(0)));
        run.wait(millis(10));
        samples(&mut run, "ssss");
        end(&mut run);
        assert_eq!(found(&run).recoveries[0].recovered, Some(Span::ZERO));
    }

    #[test]
    fn a_fault_that_lasts_counts_from_its_end() {
        let (from, to) = (faultline_core::ClusterId(0), faultline_core::ClusterId(1));
        let mut run = probing();
        samples(&mut run, "sss");
        inject(&mut run, 0, Fault::Partition { from, to, both: true, span: millis(400) });
        samples(&mut run, "ffffffsss");
        end(&mut run);
        let recovery = found(&run).recoveries[0];
        assert_eq!((recovery.at, recovery.recovered), (at(700), Some(millis(200))));
        assert_eq!(recovery.failed, millis(600));
    }
}
