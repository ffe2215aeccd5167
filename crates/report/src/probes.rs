//! What the probes of a user's own system found: tables for the summary, and a strip for each probe and process.

use std::collections::BTreeMap;

use faultline_core::{Span, Time};
use faultline_history::availability::{
    Before, FaultRecovery, Latency, ProbeHistory, ProbeOutage, Reason, Sample, Shows, Strip,
};
use faultline_trace::duration::{instant, span};
use maud::{Markup, html};
use serde::Serialize;

use crate::explain::count;
use crate::names::DisplayNames;
use crate::summary::Summary;
use crate::text::percent;
use crate::timeline::Timeline;

/// The width of a strip.
const WIDTH: f64 = 900.0;
/// The height of the part of a strip that shows whether samples succeeded.
const STATES: f64 = 14.0;
/// The height of the part that shows how long samples took.
const LATENCIES: f64 = 30.0;
/// The most samples whose latencies are drawn.
const MOST_DRAWN: usize = 2_000;

/// What a process found by running a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSummary {
    /// The name of the probe.
    pub probe: String,
    /// The display name of the process.
    pub by: String,
    /// The number of samples.
    pub samples: usize,
    /// The number of successful samples.
    pub succeeded: usize,
    /// The number of samples that do not show whether the system works.
    pub unknown: usize,
    /// The share of the observed time in which the probe was up; `null` if it was not observed.
    pub availability: Option<f64>,
    /// The time in seconds for which the probe was down.
    pub down_seconds: f64,
    /// The time in seconds for which the probe was observed.
    pub observed_seconds: f64,
    /// The time in seconds for which the probe was not observed.
    pub unobserved_seconds: f64,
    /// How long successful samples took; `null` if there are none.
    pub latency: Option<LatencySummary>,
    /// The last failed sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<SampleSummary>,
    /// The last sample that does not show whether the system works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_unknown: Option<SampleSummary>,
    /// The outages.
    pub outages: Vec<OutageSummary>,
}

/// How long successful samples took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencySummary {
    /// The median.
    pub p50_seconds: f64,
    /// The time within which 99 % of the samples succeeded.
    pub p99_seconds: f64,
    /// The longest time.
    pub longest_seconds: f64,
}

impl From<Latency> for LatencySummary {
    fn from(it: Latency) -> LatencySummary {
        LatencySummary {
            p50_seconds: it.p50.as_secs_f64(),
            p99_seconds: it.p99.as_secs_f64(),
            longest_seconds: it.longest.as_secs_f64(),
        }
    }
}

/// A sample that did not succeed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleSummary {
    /// The start of the sample, in seconds since the start of the application.
    pub at_seconds: f64,
    /// How the sample ended, and what its command wrote last.
    pub reason: String,
}

/// An outage of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutageSummary {
    /// The start of the first failed sample, in seconds since the start of the application.
    pub from_seconds: f64,
    /// The start of the next successful sample, or the time from which the probe was not observed.
    pub upto_seconds: f64,
    /// Whether the outage may have lasted longer.
    pub is_open: bool,
}

/// How a probe recovered after a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoverySummary {
    /// The number of the fault in the plan.
    pub fault: u32,
    /// The name of the probe.
    pub probe: String,
    /// The time of the fault's effect, in seconds since the start of the application.
    pub at_seconds: f64,
    /// The time in seconds for which the probe failed until the next fault or the end of the run: the longest that a
    /// process saw.
    pub failed_seconds: f64,
    /// The time in seconds until the probe had recovered; `null` if it had not when the next fault took effect or the run
    /// ended.
    pub recovered_seconds: Option<f64>,
    /// The largest possible error of this time, in seconds, apart from that of the clocks.
    pub uncertainty_seconds: f64,
    /// Why it is unknown how the probe recovered from this fault; omitted if it was working when the fault struck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The samples from the fault before, or from the start, until this fault took effect; `null` if there are none.
    pub before: Option<PeriodSummary>,
    /// The samples from the fault's effect until the probe had recovered or, if it did not or need not, until the next
    /// fault or the end; `null` if there are none.
    pub after: Option<PeriodSummary>,
}

/// What the samples of a probe show in a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeriodSummary {
    /// The share of the samples that failed, from 0 to 1.
    pub error_rate: f64,
    /// The latency that 99 % of the successful samples did not exceed, in seconds; `null` if no sample succeeded.
    pub p99_seconds: Option<f64>,
}

impl PeriodSummary {
    /// Summarises the samples that begin in a period.
    fn of(probe: &ProbeHistory, (from, upto): (Time, Time)) -> Option<PeriodSummary> {
        let all = probe.strips.iter().flat_map(|it| &it.samples);
        let all = all.filter(|it| it.from >= from && it.from < upto && it.shows != Shows::Nothing);
        let (good, bad): (Vec<&Sample>, Vec<&Sample>) = all.partition(|it| it.is_success());
        let whole = good.len() + bad.len();
        let latency = Latency::of(good.iter().map(|it| it.latency()), probe.delays());
        (whole > 0).then(|| PeriodSummary {
            error_rate: bad.len() as f64 / whole as f64,
            p99_seconds: latency.map(|it| LatencySummary::from(it).p99_seconds),
        })
    }
}

/// Summarises the samples of each probe and process.
pub(crate) fn probes(timeline: &Timeline, names: &DisplayNames) -> Vec<ProbeSummary> {
    let of_strip = |probe: &ProbeHistory, strip: &Strip| {
        let availability = strip.availability(probe.window);
        let sample = |it: &Option<Reason>| {
            it.as_ref()
                .map(|it| SampleSummary { at_seconds: timeline.seconds(it.at), reason: it.text.clone() })
        };
        ProbeSummary {
            probe: probe.entry.name.clone(),
            by: names.process(strip.process),
            samples: strip.samples.len(),
            succeeded: strip.samples.iter().filter(|it| it.is_success()).count(),
            unknown: strip.samples.iter().filter(|it| it.shows == Shows::Nothing).count(),
            availability: availability.share(),
            down_seconds: availability.down.as_secs_f64(),
            observed_seconds: (availability.whole - availability.unobserved).as_secs_f64(),
            unobserved_seconds: availability.unobserved.as_secs_f64(),
            latency: strip.latency(probe.delays()).map(LatencySummary::from),
            last_failed: sample(&strip.last_failed),
            last_unknown: sample(&strip.last_unknown),
            outages: strip.outages.iter().map(|it| outage(it, timeline)).collect(),
        }
    };
    let each = |probe: &ProbeHistory| probe.strips.iter().map(|it| of_strip(probe, it)).collect::<Vec<_>>();
    timeline.probes.iter().flat_map(each).collect()
}

fn outage(it: &ProbeOutage, timeline: &Timeline) -> OutageSummary {
    OutageSummary {
        from_seconds: timeline.seconds(it.from),
        upto_seconds: timeline.seconds(it.upto),
        is_open: it.is_open,
    }
}

/// Summarises how each probe recovered after each fault, in the order of the faults.
pub(crate) fn recoveries(timeline: &Timeline, names: &DisplayNames) -> Vec<RecoverySummary> {
    let unknown = |it: &FaultRecovery| match it.before {
        Before::Working => None,
        Before::Failing(process) => Some(format!("it was failing at {} before", names.process(process))),
        Before::Unobserved(process) => Some(format!("it was not observed at {}", names.process(process))),
    };
    let of_probe = |probe: &ProbeHistory, it: &FaultRecovery, before: Time| RecoverySummary {
        before: PeriodSummary::of(probe, (before, it.effect)),
        after: {
            let recovered = it.recovered.filter(|it| *it > Span::ZERO);
            PeriodSummary::of(probe, (it.effect, it.at + recovered.unwrap_or(it.within)))
        },
        fault: it.no.0,
        probe: probe.entry.name.clone(),
        at_seconds: timeline.seconds(it.effect),
        failed_seconds: it.failed.as_secs_f64(),
        recovered_seconds: it.recovered.filter(|_| it.before == Before::Working).map(|it| it.as_secs_f64()),
        uncertainty_seconds: probe.uncertainty().as_secs_f64(),
        unknown: unknown(it),
    };
    let each = |probe: &ProbeHistory| {
        let starts = [probe.window.0].into_iter().chain(probe.recoveries.iter().map(|it| it.effect));
        let each = probe.recoveries.iter().zip(starts).map(|(it, before)| of_probe(probe, it, before));
        each.collect::<Vec<_>>()
    };
    let mut all: Vec<_> = timeline.probes.iter().flat_map(each).collect();
    all.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
    all
}

impl ProbeSummary {
    /// The titles of a table of probes.
    pub(crate) const TITLES: [&str; 9] =
        ["probe", "by", "samples", "available", "longest outage", "p50", "p99", "longest", "not observed"];

    /// Returns whether the probe is a kind of operation of clients, which has a row in another table.
    pub(crate) fn is_of_clients(&self) -> bool {
        self.probe.contains('.')
    }

    /// Returns the share of the observed time in which the probe was up.
    pub(crate) fn available(&self) -> String {
        self.availability.map_or_else(|| "-".to_owned(), |it| percent(it, 1.0))
    }

    /// Returns how long the longest outage lasted.
    pub(crate) fn longest_outage(&self) -> String {
        let longest = self.outages.iter().map(|it| it.upto_seconds - it.from_seconds).fold(0.0, f64::max);
        let is_open =
            self.outages.iter().any(|it| it.is_open && it.upto_seconds - it.from_seconds >= longest);
        match self.outages.is_empty() {
            true => "none".to_owned(),
            false => format!("{}{}", if is_open { "at least " } else { "" }, span(longest)),
        }
    }

    /// Returns the cells of a row in a table of probes.
    pub(crate) fn row(&self) -> [String; 9] {
        let latency =
            |of: fn(LatencySummary) -> f64| self.latency.map_or_else(|| "-".to_owned(), |it| span(of(it)));
        [
            self.probe.clone(),
            self.by.clone(),
            self.samples.to_string(),
            self.available(),
            self.longest_outage(),
            latency(|it| it.p50_seconds),
            latency(|it| it.p99_seconds),
            latency(|it| it.longest_seconds),
            if self.unobserved_seconds > 0.0 { span(self.unobserved_seconds) } else { "-".to_owned() },
        ]
    }
}

impl ProbeSummary {
    /// Returns sentences, without a full stop, about the last samples that did not succeed.
    pub(crate) fn last_reasons(&self) -> impl Iterator<Item = String> {
        let (probe, by) = (&self.probe, &self.by);
        let said = move |it: &Option<SampleSummary>, what| {
            let SampleSummary { at_seconds, reason } = it.clone()?;
            Some(format!("Probe {probe} of {by} last {what} at {}: {reason}", instant(at_seconds)))
        };
        let [failed, unknown] =
            [said(&self.last_failed, "failed"), said(&self.last_unknown, "could not tell")];
        failed.into_iter().chain(unknown)
    }
}

/// Renders the most important numbers of a system's run.
pub(crate) fn system_numbers(summary: &Summary) -> Markup {
    let failures: u64 = summary.clusters.iter().map(|it| it.failures).sum();
    let lives = failures + summary.clusters.iter().map(|it| it.processes as u64).sum::<u64>();
    let mut of_probes: BTreeMap<&str, (f64, f64, usize)> = BTreeMap::new();
    for it in &summary.probes {
        let (down, observed, samples) = of_probes.entry(&it.probe).or_default();
        *down += it.down_seconds;
        *observed += it.observed_seconds;
        *samples += it.samples;
    }
    let outages = || summary.probes.iter().flat_map(|it| &it.outages);
    let longest = outages().map(|it| it.upto_seconds - it.from_seconds).fold(0.0, f64::max);
    let slowest = summary.probe_recoveries.iter().filter_map(|it| it.recovered_seconds).reduce(f64::max);
    html! {
        div.numbers {
            @for (probe, (down, observed, samples)) in of_probes {
                div { b { (percent(observed - down, observed)) } span { "availability of " (probe) ", " (count(samples as u64, "sample")) } }
            }
            @if !summary.probes.is_empty() {
                @let number = outages().count() as u64;
                div { b { (if number > 0 { span(longest) } else { "none".to_owned() }) } span { "longest outage" @if number > 0 { ", of " (number) } } }
            }
            @if let Some(slowest) = slowest {
                div { b { (span(slowest)) } span { "longest recovery of a probe" } }
            }
            div { b { (lives) } span { (if lives == 1 { "life" } else { "lives" }) ", " (count(failures, "failure")) } }
        }
    }
}

impl RecoverySummary {
    /// The titles of a table of recoveries.
    pub(crate) const TITLES: [&str; 7] =
        ["fault", "at", "probe", "failed for", "recovered after", "errors", "p99"];

    /// Returns the cells of a row in a table of recoveries.
    pub(crate) fn row(&self) -> [String; 7] {
        let change = |of: &dyn Fn(PeriodSummary) -> Option<String>| {
            let both = [self.before, self.after].map(|it| it.and_then(of).unwrap_or_else(|| "-".to_owned()));
            if both[0] == both[1] { both[0].clone() } else { both.join(" to ") }
        };
        [
            self.fault.to_string(),
            instant(self.at_seconds),
            self.probe.clone(),
            if self.failed_seconds > 0.0 { span(self.failed_seconds) } else { "-".to_owned() },
            self.recovered(),
            change(&|it| Some(percent(it.error_rate, 1.0))),
            change(&|it| it.p99_seconds.map(span)),
        ]
    }

    fn recovered(&self) -> String {
        match self.recovered_seconds {
            _ if self.unknown.is_some() => "unknown".to_owned(),
            Some(0.0) if self.failed_seconds == 0.0 => "did not fail".to_owned(),
            Some(0.0) => "failed later".to_owned(),
            Some(after) => format!("{} +-{}", span(after), span(self.uncertainty_seconds)),
            None if self.failed_seconds > 0.0 => "not recovered".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// Describes the recovery in a sentence.
    pub(crate) fn sentence(&self) -> String {
        let failed = match self.failed_seconds > 0.0 {
            true => format!("failed for {}", span(self.failed_seconds)),
            false => "did not fail".to_owned(),
        };
        let recovered = match self.recovered_seconds {
            _ if self.unknown.is_some() => {
                let why = self.unknown.as_deref().unwrap_or_default();
                return format!(
                    "After fault {}, probe {} {failed}; nothing shows how it recovered from this fault, because {why}.",
                    self.fault, self.probe
                );
            }
            Some(0.0) if self.failed_seconds > 0.0 => {
                ", but only after it had succeeded several times".to_owned()
            }
            Some(0.0) => String::new(),
            Some(_) => format!(" and had recovered after {}", self.recovered()),
            None if self.failed_seconds > 0.0 => {
                " and had not recovered before the next fault or the end".to_owned()
            }
            None => "; the next fault or the end came too soon to judge its recovery".to_owned(),
        };
        format!("After fault {}, probe {} {failed}{recovered}.", self.fault, self.probe)
    }
}

/// Draws a strip for each probe and process: green while samples succeeded, red during an outage, grey while the probe
/// was not observed. Lines mark faults. The line below is the time that each sample took.
pub(crate) fn strips(timeline: &Timeline, names: &DisplayNames) -> Markup {
    html! {
        @for probe in &timeline.probes { @for strip in &probe.strips {
            p.hint { (probe.entry.name) " by " (names.process(strip.process)) }
            (drawn(probe, strip))
        } }
    }
}

fn drawn(probe: &ProbeHistory, strip: &Strip) -> Markup {
    let (begun, end) = probe.window;
    let whole = end.since(begun).as_secs_f64().max(f64::MIN_POSITIVE);
    let x =
        |at: Time| (at.clamp(begun, end).since(begun).as_secs_f64() / whole * WIDTH * 10.0).round() / 10.0;
    let part = |from: Time, upto: Time, colour: &str| {
        let width = (x(upto) - x(from)).max(0.5);
        html! { rect x=(x(from)) width=(width) height=(STATES) style={ "fill:var(--" (colour) ")" } {} }
    };
    let label = format!("{}: {} outages", probe.entry.name, strip.outages.len());
    let height = STATES + LATENCIES;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } role="img" style="width:100%"
            preserveAspectRatio="none" aria-label=(label) {
            (part(begun, end, "good"))
            @for it in &strip.outages { (part(it.from, it.upto, "bad")) }
            @for (from, upto) in &strip.unobserved { (part(*from, *upto, "grid")) }
            polyline points=(latencies(strip, x)) style="fill:none;stroke:var(--faint)" {}
            @for it in &probe.recoveries {
                line x1=(x(it.effect)) x2=(x(it.effect)) y1="0" y2=(height) style="stroke:var(--ink)" {}
            }
        }
    }
}

/// Returns the points of the line of latencies; the longest is at the top.
fn latencies(strip: &Strip, x: impl Fn(Time) -> f64) -> String {
    let latency = |it: &faultline_history::availability::Sample| it.upto.since(it.from).as_secs_f64();
    let longest = strip.samples.iter().map(latency).fold(f64::MIN_POSITIVE, f64::max);
    let step = strip.samples.len().div_ceil(MOST_DRAWN).max(1);
    let point = |it: &[faultline_history::availability::Sample]| {
        let slowest = it.iter().map(latency).fold(0.0, f64::max);
        format!("{},{:.1}", x(it[0].from), STATES + LATENCIES - (LATENCIES - 4.0) * slowest / longest)
    };
    strip.samples.chunks(step).map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use faultline_checker::{Judgement, Verdict};
    use faultline_core::{
        Ending, Fact, Fault, FaultNo, Observation, ProbeNo, ProcessId, Promises, Scope, Span, StorageFate,
    };
    use faultline_history::testing::Run;
    use faultline_trace::Manifest;
    use faultline_trace::expectation::{ProbeEntry, SystemEntry};

    use super::*;
    use crate::now::Progressing;
    use crate::summary::RecordedRun;

    /// A run in which a probe fails for three samples after a crash, and for the last sample.
    fn run() -> (Manifest, Run) {
        let every = Span::from_millis(100);
        let (name, by) = ("write".into(), vec![ProcessId(1)]);
        let probes = vec![ProbeEntry { name, by, every, timeout: Span::from_millis(50) }];
        let system = Some(SystemEntry { probes, ..SystemEntry::default() });
        let manifest = Manifest { system, ..Manifest::bare(Promises::of_scope(Scope::Cluster), &[1, 1]) };
        let mut run = Run::new(&[&[0], &[1]]);
        run.supervisor(Fact::Begun);
        for (sample, is_success) in (0..).zip("ssfffsssf".chars().map(|it| it == 's')) {
            if sample == 2 {
                let fault = Box::new(Fault::kill(ProcessId(0), StorageFate::Kept));
                run.supervisor(Fact::Injecting { no: FaultNo(0), fault });
            }
            let latency = Span::from_millis(20);
            run.wait(latency);
            let ending = if is_success { Ending::Exit(0) } else { Ending::Exit(1) };
            let probed = Observation::Probed { probe: ProbeNo(0), sample, latency, ending, said: "".into() };
            run.state(1, Fact::Observed(Box::new(probed)));
            run.wait(Span(every.0 - latency.0));
        }
        run.supervisor(Fact::Completed);
        (manifest, run)
    }

    #[test]
    fn tables_sentences_and_strips_show_outages_and_recoveries() {
        let (manifest, run) = run();
        let (names, timeline) = (DisplayNames::new(&manifest), Timeline::new(&run.trace, &manifest));
        let all = probes(&timeline, &names);
        let row = ["write", "p1", "9", "55.6 %", "300 ms", "20.0 ms", "20.0 ms", "20.0 ms", "-"];
        assert_eq!(all[0].row(), row.map(str::to_owned));
        let reasons: Vec<_> = all[0].last_reasons().collect();
        assert_eq!(reasons, ["Probe write of p1 last failed at 0.80 s: exit status 1"]);
        let json = serde_json::to_string(&all[0]).unwrap();
        assert!(json.contains("\"unobservedSeconds\":0.0"), "{json}");
        let found = &recoveries(&timeline, &names)[0];
        let row = ["0", "0.20 s", "write", "400 ms", "300 ms +-150 ms", "0.0 % to 100.0 %", "20.0 ms to -"];
        assert_eq!(found.row(), row.map(str::to_owned));
        let sentence =
            "After fault 0, probe write failed for 400 ms and had recovered after 300 ms +-150 ms.";
        assert_eq!(found.sentence(), sentence);
        let unharmed = RecoverySummary { failed_seconds: 0.0, recovered_seconds: Some(0.0), ..found.clone() };
        assert_eq!(unharmed.row()[3..5], ["-", "did not fail"]);
        assert_eq!(unharmed.sentence(), "After fault 0, probe write did not fail.");
        let judgement = Judgement { verdict: Verdict::Unknown, reasons: Vec::new(), findings: Vec::new() };
        let (manifest, trace) = (&manifest, &run.trace);
        let summary = Summary::new(RecordedRun { bundle: "run", manifest, trace, judgement: &judgement });
        let numbers = system_numbers(&summary).into_string();
        for number in [
            "<b>55.6 %</b><span>availability of write, 9 samples",
            "<b>300 ms</b><span>longest outage, of 2",
            "<b>300 ms</b><span>longest recovery of a probe",
            "<b>2</b><span>lives, 0 failures",
        ] {
            assert!(numbers.contains(number), "{numbers}");
        }
        let now = Progressing::new(trace, manifest, &[]).now;
        let texts: Vec<_> = now.clusters.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts, ["1 of 1 process running", "1 of 1 process running, 5 of 9 samples succeeded"]);
        let drawn = strips(&timeline, &names).into_string();
        assert!(drawn.contains("write by p1"), "{drawn}");
        let bad = r#"<rect x="200" width="300" height="14" style="fill:var(--bad)"></rect>"#;
        assert!(drawn.contains(bad), "{drawn}");
    }
}
