//! Probes of a user's own system: samples, outages, latencies, and recoveries after faults.
//!
//! All figures are shares and periods of *time*, not of samples. A process observes a probe from the start of each sample
//! until the next sample is due. An operation of a client is a sample of its kind ([`clients`]). The time in which its node was down or paused is *unobserved*, and so is the time in which
//! a sample was due and not taken (it was late by more than the time between two samples), and the time from a sample that
//! does not show whether the system works to the next one that does. An *outage* lasts from the start of the first failed sample to the start of the next successful one.
//!
//! A probe has *recovered* after a fault at the start of the first of three consecutive successful samples. The time
//! counts from the fault's effect or, if it lasts for a while and is not a crash, from its end. If the probe was not
//! working when the fault struck, nothing shows how it recovered from this fault.

use faultline_core::{Ending, Fact, FactKind, FaultNo, Observation, ProbeNo, ProcessId, Span, Time};
use faultline_trace::expectation::ProbeEntry;
use faultline_trace::printable;

use crate::clients;
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
    /// The last failed sample.
    pub last_failed: Option<Reason>,
    /// The last sample that does not show whether the system works.
    pub last_unknown: Option<Reason>,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The start of the sample.
    pub from: Time,
    /// The end of the sample.
    pub upto: Time,
    /// What the sample shows.
    pub shows: Shows,
    /// Whether the sample is an arrival that no client took in time.
    pub is_missed: bool,
}

/// What a sample shows about the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The system works.
    Success,
    /// The system does not work.
    Failure,
    /// Nothing: the sample could not be carried out, or could not tell.
    Nothing,
}

/// Why a sample did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The start of the sample.
    pub at: Time,
    /// How the sample ended, and what its command wrote last.
    pub text: String,
}

impl Sample {
    /// Returns whether the sample succeeded.
    pub fn is_success(&self) -> bool {
        self.shows == Shows::Success
    }

    /// Returns how long the sample took.
    pub fn latency(&self) -> Span {
        self.upto.since(self.from)
    }
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
    /// What the probe showed when the fault struck.
    pub before: Before,
}

impl FaultRecovery {
    /// Returns whether no sample failed after the fault.
    pub fn did_not_fail(&self) -> bool {
        self.recovered == Some(Span::ZERO) && self.failed == Span::ZERO
    }
}

/// What a probe showed when a fault struck, at the processes that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It succeeded at all of them.
    Working,
    /// It failed at this process already.
    Failing(ProcessId),
    /// It was not observed at this process.
    Unobserved(ProcessId),
}

/// The time in which a probe was down or unobserved, summed over the processes that run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// The time in outages.
    pub down: Span,
    /// The unobserved time.
    pub unobserved: Span,
    /// The whole time.
    pub whole: Span,
}

impl Availability {
    /// Returns the share of the observed time in which the probe was not down; `None` if it was not observed at all.
    pub fn share(self) -> Option<f64> {
        let observed = self.whole.as_secs_f64() - self.unobserved.as_secs_f64();
        (observed > 0.0).then(|| (1.0 - self.down.as_secs_f64() / observed).max(0.0))
    }

    /// Returns the largest possible share of the time in which the probe was not down, if all unobserved time and `excused`
    /// of the time in outages count in the system's favour.
    pub fn at_best(self, excused: Span) -> f64 {
        let whole = self.whole.as_secs_f64();
        let down = self.down.as_secs_f64() - excused.as_secs_f64();
        if whole > 0.0 { (1.0 - down.max(0.0) / whole).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Returns the share of the time that is unobserved; 1 if there is no time.
    pub fn share_unobserved(self) -> f64 {
        let whole = self.whole.as_secs_f64();
        if whole > 0.0 { self.unobserved.as_secs_f64() / whole } else { 1.0 }
    }

    fn plus(self, other: Availability) -> Availability {
        Availability {
            down: self.down + other.down,
            unobserved: self.unobserved + other.unobserved,
            whole: self.whole + other.whole,
        }
    }
}

/// How long successful samples took. A sample that takes longer than the time between two samples delays those that are
/// due meanwhile, which would have waited for the rest of its time. They count as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The median.
    pub p50: Span,
    /// The time within which 99 % of the samples succeeded.
    pub p99: Span,
    /// The longest time.
    pub longest: Span,
}

impl Latency {
    /// The largest number of samples that count because one sample delayed them.
    const MOST_DELAYED: u64 = 10_000;

    /// Returns the figures for samples that took these times and were due in intervals of `every`; `None` without samples.
    pub fn of(taken: impl Iterator<Item = Span>, every: Span) -> Option<Latency> {
        let mut all: Vec<Span> = Vec::new();
        for latency in taken {
            let delayed = if every > Span::ZERO { latency.0.saturating_sub(1) / every.0 } else { 0 };
            let delayed = (1..=delayed.min(Self::MOST_DELAYED)).map(|it| Span(latency.0 - it * every.0));
            all.push(latency);
            all.extend(delayed);
        }
        all.sort_unstable();
        // The smallest latency that at least this share of the samples does not exceed.
        let at = |percent: usize| all[(all.len() * percent).div_ceil(100).max(1) - 1];
        let longest = *all.last()?;
        Some(Latency { p50: at(50), p99: at(99), longest })
    }
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
            let strips = match system.kind_of(no) {
                Some((of, kind)) => vec![clients::strip(history, of, kind, window)],
                None => entry.by.iter().map(|it| strip(history, no, entry, *it, window)).collect(),
            };
            let mut probe = ProbeHistory { entry: entry.clone(), window, strips, recoveries: Vec::new() };
            probe.recoveries = probe.recoveries(&effects);
            probe
        })
        .collect()
}

/// Returns the time at which probes stopped: once the first check started or, without checks, once the run ended.
pub(crate) fn end(history: &History<'_>) -> Time {
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
    let mut state = State::Working;
    // The time at which the next sample is due, and how late it may be.
    let (mut due, mut tolerance) = (begun, entry.every);
    for (life, stream) in history.trace.lives(process) {
        let ended = history.supervision.end_of(process, life).map(|it| it.at);
        for (at, fact) in stream {
            let Some((sample, reason)) = sample(no, *at, fact) else { continue };
            if sample.upto < begun || sample.from >= end {
                continue;
            }
            if overlaps(&sample) {
                tolerance = Span::ZERO;
                continue;
            }
            let from = sample.from.max(begun);
            strip.gap(due, from, tolerance, &mut state);
            match sample.shows {
                Shows::Success => strip.enter(State::Working, from, &mut state),
                Shows::Failure => strip.enter(State::Failing(from), from, &mut state),
                Shows::Nothing => strip.enter(State::Unknown(from), from, &mut state),
            }
            match sample.shows {
                Shows::Success => {}
                Shows::Failure => strip.last_failed = reason,
                Shows::Nothing => strip.last_unknown = reason,
            }
            strip.samples.push(sample);
            let next = sample.from + entry.every;
            due = due.max(sample.upto).max(ended.map_or(next, |it| next.min(it)));
            tolerance = entry.every;
        }
        if ended.is_some() {
            tolerance = Span::ZERO;
        }
    }
    strip.gap(due.min(end), end, tolerance, &mut state);
    strip.leave(&mut state, end, true);
    strip
}

fn sample(no: ProbeNo, at: Time, fact: &Fact) -> Option<(Sample, Option<Reason>)> {
    let Fact::Observed(observation) = fact else { return None };
    let Observation::Probed { probe, latency, ending, said, .. } = &**observation else { return None };
    let from = Time(at.0.saturating_sub(latency.0));
    let shows = match ending {
        it if it.is_success() => Shows::Success,
        it if it.is_unknown() => Shows::Nothing,
        _ => Shows::Failure,
    };
    let reason = (shows != Shows::Success).then(|| Reason { at: from, text: quoted(ending, said) });
    (*probe == no).then_some((Sample { from, upto: at, shows, is_missed: false }, reason))
}

/// Describes how a command, a request or an attempt ended, with what it wrote last.
pub(crate) fn quoted(ending: &Ending, said: &str) -> String {
    match said_in_line(said) {
        Some(said) => format!("{ending}: {said}"),
        None => ending.to_string(),
    }
}

/// Returns what a command wrote last as one line; `None` if it wrote nothing.
pub(crate) fn said_in_line(said: &str) -> Option<String> {
    let lines = said.lines().map(str::trim).filter(|it| !it.is_empty());
    let line = printable(&lines.collect::<Vec<_>>().join(" / ")).to_string();
    (!line.is_empty()).then_some(line)
}

/// Returns the periods in which a fault paused the process, or the user paused the federation.
pub(crate) fn paused(history: &History<'_>, process: ProcessId, end: Time) -> Vec<(Time, Time)> {
    let supervision = &history.supervision;
    let by_faults = supervision.injected.iter().filter(|it| it.1.pauses() == Some(process));
    let by_faults = by_faults.map(|(_, fault, at, _)| {
        let resumed = supervision.resumed.iter().filter(|it| it.1 == process && it.0 >= *at);
        (*at, resumed.map(|it| it.0).min().unwrap_or_else(|| fault.until(*at).min(end)))
    });
    by_faults.chain(Pauses::of(supervision).stretches()).collect()
}

/// What the newest sample of a strip shows, and since when.
#[derive(Clone, Copy)]
pub(crate) enum State {
    /// The probe succeeds, or nothing is known yet.
    Working,
    Failing(Time),
    Unknown(Time),
}

impl Strip {
    /// Records that no sample was taken from `from`, when one was due, to `upto`, unless this is at most `tolerance`.
    /// Nothing is known about an outage at its start.
    pub(crate) fn gap(&mut self, from: Time, upto: Time, tolerance: Span, state: &mut State) {
        if upto > from && upto.since(from) > tolerance {
            self.leave(state, from, true);
            self.not_observed(from, upto);
        }
    }

    /// Records what a sample that starts at `at` shows.
    pub(crate) fn enter(&mut self, next: State, at: Time, state: &mut State) {
        if std::mem::discriminant(&next) != std::mem::discriminant(state) {
            self.leave(state, at, matches!(next, State::Unknown(_)));
            *state = next;
        }
    }

    /// Ends an outage, or a period of which nothing is known.
    pub(crate) fn leave(&mut self, state: &mut State, upto: Time, is_open: bool) {
        match std::mem::replace(state, State::Working) {
            State::Working => {}
            State::Failing(from) => {
                self.outages.push(ProbeOutage { from, upto: upto.max(from), is_open });
            }
            State::Unknown(from) => self.not_observed(from, upto),
        }
    }

    fn not_observed(&mut self, from: Time, upto: Time) {
        match self.unobserved.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(upto),
            _ if from < upto => self.unobserved.push((from, upto)),
            _ => {}
        }
    }

    /// Returns the index of the first sample that ended at `at` or later. Operations of clients overlap, so those that
    /// follow may have ended earlier.
    fn ending_from(&self, at: Time) -> usize {
        self.samples.iter().position(|it| it.upto >= at).unwrap_or(self.samples.len())
    }

    /// Returns the time from `at` to the first of several consecutive successful samples, all before `end`. Zero if the
    /// probe was observed, and no sample failed, until then.
    fn recovered(&self, at: Time, end: Time) -> Option<Span> {
        let first = self.ending_from(at);
        let is_unobserved = |from: Time, upto: Time| {
            self.unobserved.iter().any(|(begun, ended)| from < *ended && *begun < upto)
        };
        let recovers = |it: &&[Sample]| {
            let (first, last) = (it[0], it[it.len() - 1]);
            it.iter().all(Sample::is_success) && last.upto <= end && !is_unobserved(first.from, last.upto)
        };
        let place = self.samples[first..].windows(RECOVERED_AFTER).position(|it| recovers(&it))?;
        let from = self.samples[first + place].from.max(at);
        Some(if place == 0 && !is_unobserved(at, from) { Span::ZERO } else { from.since(at) })
    }

    /// Works like [`Strip::recovered`], but outages that begin up to `latest` belong to the same recovery, even if successful
    /// samples precede them.
    fn recovered_from_all(&self, at: Time, latest: Time, end: Time) -> Option<Span> {
        let mut recovered = self.recovered(at, end)?;
        // A failed sample in progress at the end may be due to the next fault.
        let is_own = |from: Time| self.samples.iter().any(|it| it.from == from && it.upto < end);
        let begins_after =
            |from: Time| self.outages.iter().map(|it| it.from).find(|it| *it >= from && is_own(*it));
        while let Some(from) = begins_after(at + recovered).filter(|it| *it <= latest) {
            recovered = from.since(at) + self.recovered(from, end)?;
        }
        Some(recovered)
    }

    /// Returns how long the probe failed in a period.
    fn failed(&self, from: Time, upto: Time) -> Span {
        let each = self.outages.iter().map(|it| (it.from.max(from), it.upto.min(upto)));
        each.filter(|(from, upto)| from < upto).fold(Span::ZERO, |sum, (from, upto)| sum + upto.since(from))
    }

    /// Returns what the last sample before `at` showed. A sample that ended long before says nothing.
    fn before(&self, at: Time, entry: &ProbeEntry) -> Before {
        let last = self.samples.iter().rfind(|it| it.upto <= at);
        let recent = last.filter(|it| at.since(it.upto.max(it.from + entry.every)) <= entry.timeout);
        match recent.map(|it| it.shows) {
            Some(Shows::Success) => Before::Working,
            Some(Shows::Failure) => Before::Failing(self.process),
            Some(Shows::Nothing) | None => Before::Unobserved(self.process),
        }
    }

    /// Returns whether a sample that ended in a period failed, or took more than twice as long as any before the period.
    fn notices(&self, from: Time, upto: Time) -> bool {
        let place = self.ending_from(from);
        let longest = self.samples[..place].iter().map(Sample::latency).max().unwrap_or_default();
        let mut within = self.samples[place..].iter().take_while(|it| it.from < upto);
        within.any(|it| it.shows == Shows::Failure || it.latency() > longest * 2)
    }

    /// Returns the time in which the probe was down or unobserved. `window` is the whole time.
    pub fn availability(&self, window: (Time, Time)) -> Availability {
        let sum = |all: &mut dyn Iterator<Item = (Time, Time)>| {
            all.fold(Span::ZERO, |sum, (from, upto)| sum + upto.since(from))
        };
        Availability {
            down: sum(&mut self.outages.iter().map(|it| (it.from, it.upto))),
            unobserved: sum(&mut self.unobserved.iter().copied()),
            whole: window.1.since(window.0),
        }
    }

    /// Returns how long successful samples took; `None` if there are none. `every` is the time between two samples, or zero
    /// if samples are taken when they are due, whether or not others are in progress.
    pub fn latency(&self, every: Span) -> Option<Latency> {
        Latency::of(self.samples.iter().filter(|it| it.is_success()).map(Sample::latency), every)
    }
}

impl ProbeHistory {
    /// Returns the time between two samples, by which a sample delays the next one; zero if samples may overlap.
    pub fn delays(&self) -> Span {
        if self.entry.name.contains('.') { Span::ZERO } else { self.entry.every }
    }

    /// Returns the number of successful samples, and that of all samples.
    pub fn samples(&self) -> (usize, usize) {
        let all = || self.strips.iter().flat_map(|it| &it.samples);
        (all().filter(|it| it.is_success()).count(), all().count())
    }

    /// Returns the time in which the probe was down or unobserved, over all processes.
    pub fn availability(&self) -> Availability {
        let each = self.strips.iter().map(|it| it.availability(self.window));
        each.fold(Availability::default(), Availability::plus)
    }

    /// Returns the share of the time that is unobserved, over all processes.
    pub fn unobserved(&self) -> f64 {
        self.availability().share_unobserved()
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
        // Faults that strike together are one to the probe.
        let is_together =
            |a: &(FaultNo, Time, Time), b: &(FaultNo, Time, Time)| b.1.since(a.1) <= self.entry.every;
        let together = effects.chunk_by(is_together);
        let struck = together.flat_map(|all| all.iter().map(|_| all[0].1));
        let recovery = |((&(no, effect, at), end), struck): ((&(FaultNo, Time, Time), Time), Time)| {
            let end = end.max(at);
            let recovered = self.slowest(at, |it| it.recovered(at, end));
            let before = self.observing(at).map(|it| it.before(struck, &self.entry));
            FaultRecovery {
                no,
                effect,
                at,
                recovered,
                within: end.since(at),
                failed: self.strips.iter().map(|it| it.failed(effect, end)).max().unwrap_or_default(),
                before: before.into_iter().find(|it| *it != Before::Working).unwrap_or(Before::Working),
            }
        };
        effects.iter().zip(ends).zip(struck).map(recovery).collect()
    }

    /// Returns a recovery to which all outages belong that begin up to `limit` after the fault, even if successful samples
    /// precede them: a fault may show late.
    pub fn up_to(&self, of: &FaultRecovery, limit: Span) -> FaultRecovery {
        let end = of.at + of.within;
        let recovered = self.slowest(of.at, |it| it.recovered_from_all(of.at, of.at + limit, end));
        FaultRecovery { recovered, ..*of }
    }

    /// Returns the strips with samples that ended at `at` or later.
    fn observing(&self, at: Time) -> impl Iterator<Item = &Strip> {
        self.strips.iter().filter(move |it| it.samples.iter().any(|it| it.upto >= at))
    }

    /// Returns the longest of the recoveries of these strips; `None` if there are none, or one has not recovered.
    fn slowest(&self, at: Time, recovered: impl Fn(&Strip) -> Option<Span>) -> Option<Span> {
        let each = self.observing(at).map(recovered).collect::<Option<Vec<Span>>>();
        each.and_then(|it| it.into_iter().max())
    }
}

/// Returns the faults that nothing noticed until the next fault took effect or the run ended: no sample failed or took more
/// than twice as long as all samples before, no node logged a line for a watch, and no command exited.
pub fn unnoticed(history: &History<'_>, probes: &[ProbeHistory]) -> Vec<FaultNo> {
    const NOTICING: [FactKind; 2] = [FactKind::Logged, FactKind::Exited];
    let effects = effects(history);
    let ends = effects.iter().skip(1).map(|it| it.1).chain([history.end()]);
    let facts = history.trace.streams.values().flatten();
    let noticing = facts.filter(|(_, fact)| NOTICING.contains(&fact.kind())).map(|it| it.0);
    let noticing: Vec<Time> = noticing.collect();
    let is_unnoticed = |(from, upto): (Time, Time)| {
        let mut strips = probes.iter().flat_map(|it| &it.strips);
        !strips.any(|it| it.notices(from, upto)) && !noticing.iter().any(|at| (from..upto).contains(at))
    };
    let each = effects.iter().zip(ends).filter(|(effect, upto)| is_unnoticed((effect.1, *upto)));
    each.map(|(effect, _)| effect.0).collect()
}

/// Returns every fault that took effect, in order: the time of its effect, and the time from which a recovery counts.
pub(crate) fn effects(history: &History<'_>) -> Vec<(FaultNo, Time, Time)> {
    let effect = |&(no, fault, injected, _): &(FaultNo, &faultline_core::Fault, Time, usize)| {
        let measured = history.context.effects.iter().find(|it| it.no == no);
        let last = measured.and_then(|it| it.on.iter().filter_map(|it| it.at).max());
        let at = last.unwrap_or(injected).max(injected);
        // What a restart of one node after the other causes begins with the first node, and must end after the last one.
        if fault.is_stop() {
            return (no, injected, at);
        }
        let until = fault.until(at);
        (no, at, if until == Time::NEVER { at } else { until })
    };
    let mut all: Vec<_> = history.supervision.injected.iter().map(effect).collect();
    all.sort_by_key(|it| it.1);
    all
}

#[cfg(test)]
mod tests {
    use faultline_core::{Ending, Fault, LatencyOf};
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
    /// 50 ms, `u` for one that cannot tell, and `-` for none.
    fn samples(run: &mut Run, letters: &str) {
        for letter in letters.chars() {
            let (latency, ending) = match letter {
                's' => (millis(10), Ending::Exit(0)),
                'u' => (millis(10), Ending::Exit(faultline_core::CANNOT_TELL)),
                _ => (millis(50), Ending::TimedOut),
            };
            run.wait(latency);
            if letter != '-' {
                let observation = Observation::Probed {
                    probe: PROBE,
                    sample: 0,
                    latency,
                    ending,
                    said: "no\nroute\n".into(),
                };
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
    fn an_outage_that_begins_late_but_before_the_limit_belongs_to_the_recovery() {
        let within = |limit| Expectation::ProbeRecovered { probe: PROBE, within: millis(limit) };
        for (letters, limit, met) in [
            ("ssssfffffffffsssss", 1_000, Met::No),
            ("ssssfffffffffffffff", 1_000, Met::No),
            ("ssssffsssssssssssss", 1_000, Met::Yes),
            ("ssssssssssssssffffffffffff", 1_000, Met::Yes),
            // The run ends before the limit.
            ("ssssfffff", 1_000, Met::Unknown),
            ("ssss", 1_000, Met::Yes),
        ] {
            let mut run = probing();
            samples(&mut run, "ssss");
            inject(&mut run, 0, Fault::crash(p(0)));
            samples(&mut run, letters);
            end(&mut run);
            assert_eq!(judged(&mut run, &[within(limit)])[0].0, met, "{letters}");
        }
        // The last sample before the next fault is in progress when that fault strikes.
        let mut run = probing();
        samples(&mut run, "ssss");
        inject(&mut run, 0, Fault::crash(p(0)));
        samples(&mut run, "ssssssss");
        run.wait(millis(30));
        inject(&mut run, 1, Fault::crash(p(0)));
        samples(&mut run, "ffffssssssssss");
        end(&mut run);
        assert_eq!(judged(&mut run, &[within(1_500)])[0].0, Met::Yes);
    }

    #[test]
    fn an_availability_is_a_share_of_time_not_of_samples() {
        // One sample takes four seconds, in which 40 were due.
        let mut run = probing();
        run.context.system.as_mut().unwrap().probes[0].timeout = millis(4_000);
        samples(&mut run, "ssssssssss");
        let latency = millis(4_000);
        run.wait(latency);
        let ending = Ending::TimedOut;
        let probed = Observation::Probed { probe: PROBE, sample: 0, latency, ending, said: "".into() };
        run.state(1, Fact::Observed(Box::new(probed)));
        samples(&mut run, "ssssssssss");
        end(&mut run);
        let availability = found(&run).availability();
        assert_eq!((availability.down, availability.unobserved), (millis(4_000), Span::ZERO));
        let expected = Expectation::Availability { probe: PROBE, at_least: 0.9 };
        let [(met, Some(figure))] = judged(&mut run, &[expected])[..] else { panic!("there is a figure") };
        assert!(met == Met::No && (figure - 2.0 / 6.0).abs() < 1e-9, "{figure}");
        assert_eq!(found(&run).samples(), (20, 21), "95 % of the samples succeeded");
    }

    #[test]
    fn an_availability_that_misses_its_limit_at_best_is_not_met_however_much_is_unobserved() {
        let available = |at_least| Expectation::Availability { probe: PROBE, at_least };
        let mut run = probing();
        // 300 ms of 1 s failed, 300 ms were not observed.
        samples(&mut run, "ssfff---ss");
        end(&mut run);
        let found = judged(&mut run, &[available(0.71), available(0.7), available(0.3)]);
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), [Met::No, Met::Unknown, Met::Unknown]);
        assert_eq!(found[1].1, None, "there is no figure");
    }

    #[test]
    fn a_sample_that_cannot_tell_is_neither_success_nor_failure() {
        let mut run = probing();
        samples(&mut run, "ssuufuss");
        end(&mut run);
        let probe = found(&run);
        let strip = &probe.strips[0];
        assert_eq!(strip.unobserved, [(at(200), at(400)), (at(500), at(600))]);
        assert_eq!(strip.outages, [ProbeOutage { from: at(400), upto: at(500), is_open: true }]);
        assert_eq!(probe.samples(), (4, 8));
        let reason = |it: &Option<Reason>| it.as_ref().map(|it| (it.at, it.text.clone()));
        assert_eq!(reason(&strip.last_failed), Some((at(400), "no result in time: no / route".into())));
        let said = "exit status 75 (cannot tell): no / route";
        assert_eq!(reason(&strip.last_unknown), Some((at(500), said.into())));
        run.context.expectations = vec![Expectation::Availability { probe: PROBE, at_least: 0.5 }];
        let unknown = assess(&run.history()).remove(0).unknown.expect("too much is unobserved");
        assert!(unknown.reason.contains(said), "{}", unknown.reason);
    }

    #[test]
    fn a_time_without_samples_is_unobserved_even_if_it_is_shorter_than_the_timeout() {
        let mut run = probing();
        run.context.system.as_mut().unwrap().probes[0].timeout = millis(4_000);
        samples(&mut run, "ss---s-s");
        end(&mut run);
        assert_eq!(found(&run).strips[0].unobserved, [(at(200), at(500))], "one sample may be late");
    }

    #[test]
    fn a_busy_machine_may_be_the_reason_for_an_outage() {
        use faultline_trace::manifest::Pressure;
        let outage = |at_most| Expectation::LongestOutage { probe: PROBE, at_most: millis(at_most) };
        let available = |at_least| Expectation::Availability { probe: PROBE, at_least };
        let mut run = probing();
        samples(&mut run, "ssffffssss");
        end(&mut run);
        let expected =
            [outage(400), outage(300), outage(100), available(0.6), available(0.7), available(0.9)];
        run.context.pressure = Some(Pressure::Busy(vec![(at(0), at(300)), (at(500), at(900))]));
        let found = judged(&mut run, &expected);
        let met = [Met::Yes, Met::Unknown, Met::No, Met::Yes, Met::Unknown, Met::No];
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), met);
        run.context.pressure = Some(Pressure::Unavailable);
        let found = judged(&mut run, &expected);
        let met = [Met::Yes, Met::No, Met::No, Met::Yes, Met::No, Met::No];
        assert_eq!(found.iter().map(|it| it.0).collect::<Vec<_>>(), met);
    }

    #[test]
    fn a_long_sample_delays_those_that_are_due_meanwhile() {
        let of = |millis: &[u64]| {
            let taken = millis.iter().map(|it| Span::from_millis(*it));
            Latency::of(taken, Span::from_millis(100)).expect("there are samples")
        };
        let latency = of(&[10; 200]);
        assert_eq!((latency.p50, latency.p99, latency.longest), (millis(10), millis(10), millis(10)));
        // 199 fast samples, and 1000, 900, and so on down to 100 ms.
        let mut taken = vec![10; 199];
        taken.push(1_000);
        let latency = of(&taken);
        assert_eq!((latency.p50, latency.p99, latency.longest), (millis(10), millis(800), millis(1_000)));
        assert_eq!(Latency::of([].into_iter(), millis(100)), None);
        let limit = |of, at_most| Expectation::Latency { probe: PROBE, of, at_most: millis(at_most) };
        let mut run = probing();
        samples(&mut run, "ssssssss");
        end(&mut run);
        let expected = [limit(LatencyOf::P50, 10), limit(LatencyOf::P99, 9), limit(LatencyOf::Max, 10)];
        assert_eq!(judged(&mut run, &expected).map_met(), [Met::Yes, Met::No, Met::Yes]);
        let mut run = probing();
        samples(&mut run, "ffff");
        end(&mut run);
        assert_eq!(judged(&mut run, &expected[..1]), [(Met::Unknown, None)], "no sample succeeded");
    }

    /// Returns only whether expectations are met.
    trait MapMet {
        fn map_met(&self) -> Vec<Met>;
    }

    impl MapMet for Vec<(Met, Option<f64>)> {
        fn map_met(&self) -> Vec<Met> {
            self.iter().map(|it| it.0).collect()
        }
    }

    #[test]
    fn the_recovery_of_a_probe_that_was_not_working_when_the_fault_struck_is_unknown() {
        let expected = Expectation::ProbeRecovered { probe: PROBE, within: millis(300) };
        for (before, what) in
            [("ssff", "was failing"), ("ssuu", "was not observed"), ("ss-----", "was not observed")]
        {
            let mut run = probing();
            samples(&mut run, before);
            inject(&mut run, 0, Fault::crash(p(0)));
            samples(&mut run, "ffffffssss");
            end(&mut run);
            run.context.expectations = vec![expected.clone()];
            let unknown = assess(&run.history()).remove(0).unknown.expect("the probe was not working");
            let reason = format!("probe write of p1 {what} when fault 0 struck, so its recovery is unknown");
            assert_eq!(unknown.reason, reason, "{before}");
        }
        // A later fault that can be judged, and that the probe does not survive, is not excused by this.
        let mut run = probing();
        samples(&mut run, "ssff");
        inject(&mut run, 0, Fault::crash(p(0)));
        samples(&mut run, "ssssss");
        inject(&mut run, 1, Fault::crash(p(0)));
        samples(&mut run, "ffffffffffss");
        end(&mut run);
        assert_eq!(judged(&mut run, &[expected]).map_met(), [Met::No]);
    }

    #[test]
    fn a_fault_that_strikes_with_another_one_is_not_judged_by_what_the_other_one_caused() {
        let mut run = probing();
        samples(&mut run, "sss");
        for no in 0..3 {
            inject(&mut run, no, Fault::crash(p(0)));
            samples(&mut run, "f");
        }
        samples(&mut run, "fffsss");
        end(&mut run);
        let before: Vec<Before> = found(&run).recoveries.iter().map(|it| it.before).collect();
        assert_eq!(before, [Before::Working; 3]);
    }

    #[test]
    fn a_fault_that_nothing_notices_is_named() {
        let mut run = probing();
        samples(&mut run, "sss");
        for no in 0..2 {
            inject(&mut run, no, Fault::crash(p(0)));
            samples(&mut run, if no == 0 { "sss" } else { "sfs" });
        }
        let no = FaultNo(2);
        run.supervisor(Fact::Injecting { no, fault: Box::new(Fault::crash(p(0))) });
        let logged = Observation::Logged {
            watch: faultline_core::WatchNo(0),
            line: "elected".into(),
            log_line: 0,
            is_error: false,
            groups: [].into(),
        };
        run.wait(millis(10));
        run.state(0, Fact::Observed(Box::new(logged)));
        samples(&mut run, "ss");
        end(&mut run);
        let history = run.history();
        assert_eq!(unnoticed(&history, &probes(&history)), [FaultNo(0)]);
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
        let recovery = found(&run).recoveries[0];
        assert!(recovery.did_not_fail(), "{recovery:?}");
        let expected = Expectation::ProbeRecovered { probe: PROBE, within: millis(500) };
        run.context.expectations = vec![expected];
        assert_eq!(assess(&run.history())[0].measured.as_deref(), Some("did not fail"));
    }

    #[test]
    fn a_fault_that_lasts_counts_from_its_end() {
        let (from, to) = (faultline_core::ClusterId(0), faultline_core::ClusterId(1));
        let mut run = probing();
        samples(&mut run, "sss");
        inject(&mut run, 0, Fault::Partition { from, to: vec![to], both: true, span: millis(400) });
        samples(&mut run, "ffffffsss");
        end(&mut run);
        let recovery = found(&run).recoveries[0];
        assert_eq!((recovery.at, recovery.recovered), (at(700), Some(millis(200))));
        assert_eq!(recovery.failed, millis(600));
    }
}
