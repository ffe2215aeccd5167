//! The state of a run, during and after it: written by the run, and read by HTTP requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use faultline_api::Names;
use faultline_api::supervision::{
    Amendment, ClusterReport, ClusterState, EVENTS_PER_STATUS, Faults, LinkReport, Request, RequestedAction,
    RunEvent, RunPhase, RunStatus, RunVerdict, Shaping,
};
use faultline_core::fault::{Change, FaultAccount, FaultState, Outcome};
use faultline_core::{ClusterId, Fact, Life, Presence, ProcessId, Span, Time};
use faultline_report::events::{self, EventReporter};
use faultline_report::explain::never_due;
use faultline_runtime::Observer;
use faultline_runtime::remote::{PlaceRegistry, Wanted};
use faultline_runtime::shaper::Abilities;
use faultline_shaper::Kernel;
use faultline_supervisor as supervisor;
use faultline_trace::Manifest;
use faultline_trace::manifest::{ClusterEntry, EffectEntry, LinkEntry};

/// Size limit of the texts of all events in a status, in bytes, unless there is only one event. As JSON, they are up to
/// six times as long, and clients read no more than a megabyte.
const EVENT_TEXTS: usize = 128 << 10;

/// The state of a run, shared between threads.
#[derive(Clone)]
pub(crate) struct RunState {
    names: Names,
    processes: u32,
    /// The clusters that join later.
    awaited: BTreeSet<ClusterId>,
    place_registry: PlaceRegistry,
    data: Arc<Mutex<RunData>>,
}

/// Keeps events separate from the rest of the status, so that they are not copied unnecessarily.
#[derive(Default)]
struct RunData {
    status: RunStatus,
    /// The events, each with the time at which it occurred.
    events: Vec<(RunEvent, Moment)>,
    /// The time on the run's clock at an instant.
    clock: Option<(Instant, Time)>,
}

/// The time at which an event occurred.
#[derive(Clone, Copy)]
enum Moment {
    /// On the run's clock, which continues if the supervisor is restarted.
    OfRun(Time),
    /// On this program's clock, for events outside the run.
    OfProgram(Instant),
}

impl RunState {
    /// Creates the state of a run that has not started, under the supervisor with this identifier.
    pub(crate) fn new(
        supervisor: String,
        names: Names,
        awaited: BTreeSet<ClusterId>,
        place_registry: PlaceRegistry,
    ) -> RunState {
        let processes = names.processes().len() as u32;
        let run_state = RunState { names, processes, awaited, place_registry, data: Arc::default() };
        run_state.lock().status.supervisor = supervisor;
        run_state
    }

    /// Returns the current status, with the first events whose numbers are greater than `after`.
    pub(crate) fn status(&self, after: u64) -> RunStatus {
        let registry_state = self.place_registry.state();
        let data = self.lock();
        let newest_event = data.events.len() as u64;
        let mut shown = RunStatus { events: data.events_after(after), newest_event, ..data.status.clone() };
        drop(data);
        shown.generation = registry_state.generation;
        shown.shaping = shaping(&registry_state.abilities);
        if !is_over(shown.phase) {
            let missing = (0..self.processes).map(ProcessId).filter(|it| !registry_state.hosted.contains(it));
            shown.missing = missing.map(|it| self.names.process(it)).collect();
            shown.requests = registry_state.requests.iter().map(|it| self.request(it)).collect();
            if shown.phase == RunPhase::Gathering && shown.missing.is_empty() {
                shown.phase = RunPhase::Measuring;
            }
        }
        shown
    }

    /// Records the outcome of applying a new spec.
    pub(crate) fn amended(&self, amendment: Amendment) {
        self.lock().status.amendment = Some(amendment);
    }

    /// Records an event that occurred now.
    pub(crate) fn note(&self, event: events::ReportedEvent) {
        self.lock().note_now(event);
    }

    /// Records that this supervisor resumes a run that an earlier one started.
    pub(crate) fn resumed(&self) {
        self.lock().status.phase = RunPhase::Running;
    }

    /// Records that the run is over and its record is being judged.
    pub(crate) fn judging(&self) {
        self.lock().status.phase = RunPhase::Judging;
    }

    /// Records the judgement.
    pub(crate) fn judged(&self, verdict: RunVerdict, reasons: Vec<String>, manifest: &Manifest) {
        let data = &mut *self.lock();
        if let Some(text) = never_due(manifest) {
            data.note_now(events::ReportedEvent { reason: "FaultsNeverDue", warning: true, text });
        }
        let status = &mut data.status;
        status.phase = RunPhase::Completed;
        status.verdict = Some(verdict);
        status.exceeded_deadline = manifest.outcome == Some(Outcome::Deadline);
        status.elapsed_seconds.get_or_insert(manifest.duration.as_secs_f64());
        let text = match verdict {
            RunVerdict::Pass => "the run passes: all required properties were judged, and hold".to_owned(),
            RunVerdict::Unknown => format!("the verdict is unknown: {}", reasons.join("; ")),
            RunVerdict::Fail => format!("the run fails: {}", reasons.join("; ")),
        };
        status.reasons = reasons;
        let warning = verdict != RunVerdict::Pass;
        data.note_now(events::ReportedEvent { reason: "Judged", warning, text });
    }

    /// Records that the run could not be carried out, and has no verdict.
    pub(crate) fn failed(&self, reason: String) {
        let data = &mut *self.lock();
        data.status.phase = RunPhase::Failed;
        data.note_now(events::ReportedEvent { reason: "Failed", warning: true, text: reason.clone() });
        data.status.reasons = vec![reason];
    }

    /// Returns whether the record no longer changes: the run has been judged, or could not be carried out.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.lock().status.phase, RunPhase::Completed | RunPhase::Failed)
    }

    /// Creates an observer that updates the state during the run.
    pub(crate) fn keep(&self, manifest: &Manifest) -> RunRecorder {
        let cluster = |it: &ClusterEntry| ClusterReport {
            name: it.name.clone(),
            processes: it.nodes,
            ..ClusterReport::default()
        };
        let reporter = EventReporter::new(manifest, self.awaited.clone());
        let run_state = self.clone();
        let alone = manifest.clusters.iter().map(|it| it.nodes == 1).collect();
        let recorder = RunRecorder { run_state, reporter, begun: None, finished: BTreeSet::new(), alone };
        let status = &mut self.lock().status;
        status.clusters = manifest.clusters.iter().map(cluster).collect();
        status.links = recorder.links(&manifest.links);
        status.faults.planned = manifest.plan.len() as u32;
        recorder
    }

    fn request(&self, request: &faultline_runtime::remote::PlaceRequest) -> Request {
        Request {
            id: request.id,
            action: match request.wanted {
                Wanted::Removal => RequestedAction::DeletePod,
                Wanted::RemovalWithStorage => RequestedAction::DeleteVolume,
            },
            process: self.names.process(request.process),
            uid: request.uid.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunData> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunData {
    /// Returns as many of the events whose numbers are greater than `after` as fit in a status, but at least one if there
    /// is one.
    fn events_after(&self, after: u64) -> Vec<RunEvent> {
        let skipped = usize::try_from(after).map_or(self.events.len(), |it| it.min(self.events.len()));
        let mut size = 0;
        let fits = |(place, event): &(usize, &(RunEvent, Moment))| {
            size += event.0.text.len();
            *place == 0 || size <= EVENT_TEXTS
        };
        let events = self.events[skipped..].iter().take(EVENTS_PER_STATUS).enumerate();
        let now = Instant::now();
        let events = events.take_while(fits).map(|(_, (event, moment))| {
            let age = self.age(*moment, now).and_then(|it| u64::try_from(it.as_micros()).ok());
            RunEvent { age_micros: age, ..event.clone() }
        });
        events.collect()
    }

    /// Returns the time since a moment; `None` if the run's clock is not known.
    fn age(&self, moment: Moment, now: Instant) -> Option<Duration> {
        match moment {
            Moment::OfProgram(at) => Some(now.saturating_duration_since(at)),
            Moment::OfRun(at) => {
                let (instant, time) = self.clock?;
                let since = Duration::from_nanos(time.0.abs_diff(at.0));
                let then = if at <= time { instant.checked_sub(since)? } else { instant + since };
                Some(now.saturating_duration_since(then))
            }
        }
    }

    fn note_now(&mut self, event: events::ReportedEvent) {
        self.note(None, Moment::OfProgram(Instant::now()), event);
    }

    fn note(&mut self, at_seconds: Option<f64>, moment: Moment, event: events::ReportedEvent) {
        let events::ReportedEvent { reason, warning, text } = event;
        let number = self.events.len() as u64 + 1;
        let reason = reason.to_owned();
        let event = RunEvent { number, at_seconds, reason, warning, text, age_micros: None };
        self.events.push((event, moment));
    }
}

/// Updates the state of a run from the run's reports.
pub(crate) struct RunRecorder {
    run_state: RunState,
    reporter: EventReporter,
    begun: Option<Time>,
    /// Ranks that have finished and have not rolled back since.
    finished: BTreeSet<ProcessId>,
    /// For each cluster, whether it has only one process, and therefore no link within it.
    alone: Vec<bool>,
}

impl RunRecorder {
    /// Returns the state that this recorder updates.
    pub(crate) fn run_state(&self) -> &RunState {
        &self.run_state
    }

    fn seconds(&self, at: Time) -> Option<f64> {
        self.begun.map(|begun| at.since(begun).as_secs_f64())
    }

    /// Records an event that occurred at this time.
    fn note(&self, at: Time, event: events::ReportedEvent) {
        self.run_state.lock().note(self.seconds(at), Moment::OfRun(at), event);
    }
}

impl RunRecorder {
    /// Replaces the requested properties of a changed link, and marks the link as not measured.
    fn changed(&self, change: &Change) {
        if let Change::Link { from, to, properties } = *change {
            let entry =
                LinkEntry { from, to, requested: properties, measured: None, observed: None, since: None };
            let asked = self.link(&entry);
            let links = &mut self.run_state.lock().status.links;
            links.iter_mut().filter(|it| (&it.from, &it.to) == (&asked.from, &asked.to)).for_each(|it| {
                *it = asked.clone();
            });
        }
    }

    /// Returns the reports of the links that exist.
    fn links(&self, links: &[LinkEntry]) -> Vec<LinkReport> {
        let is_alone = |it: ClusterId| self.alone.get(it.index()).copied().unwrap_or_default();
        let links = links.iter().filter(|it| it.from != it.to || !is_alone(it.from));
        links.map(|it| self.link(it)).collect()
    }

    fn link(&self, link: &LinkEntry) -> LinkReport {
        let micros = |span: Span| span.0 / 1000;
        let names = &self.run_state.names;
        LinkReport {
            from: names.cluster(link.from).to_owned(),
            to: names.cluster(link.to).to_owned(),
            requested_micros: micros(link.requested.latency),
            measured_micros: link.measured.map(|it| micros(it.latency)),
            as_requested: link.as_requested().filter(|_| link.is_judged()),
        }
    }
}

impl Observer for RunRecorder {
    fn recorded(&mut self, at: Time, process: ProcessId, _: Life, fact: &Fact) {
        match fact {
            Fact::Begun => self.begun = Some(at),
            Fact::Finished(_) => drop(self.finished.insert(process)),
            Fact::Restored(_) => drop(self.finished.remove(&process)),
            Fact::Changed(change) => self.changed(change),
            _ => {}
        }
        if let Some(event) = self.reporter.observe(process, fact) {
            self.note(at, event);
        }
    }

    fn status(&mut self, now: Time, seen: &supervisor::Status) {
        let elapsed = self.seconds(now);
        let data = &mut *self.run_state.lock();
        data.clock = Some((Instant::now(), now));
        let status = &mut data.status;
        if seen.begun.is_some() {
            status.phase = if seen.paused { RunPhase::Paused } else { RunPhase::Running };
        }
        status.elapsed_seconds = elapsed;
        status.rollbacks = 0;
        for (index, (cluster, seen)) in status.clusters.iter_mut().zip(&seen.clusters).enumerate() {
            let id = ClusterId(index as u16);
            let (checkpoints, forced) = self.reporter.checkpoints(id);
            let ranks = self.reporter.names().processes(id);
            let is_finished = ranks.iter().all(|rank| self.finished.contains(rank));
            cluster.state = if seen.presence == Presence::Left {
                ClusterState::Left
            } else if self.reporter.is_unrecoverable(id) {
                ClusterState::Unrecoverable
            } else if seen.presence == Presence::Awaited && elapsed.is_some() {
                ClusterState::Awaited
            } else if self.reporter.is_failing(id) {
                ClusterState::Failed
            } else if elapsed.is_none() {
                ClusterState::Starting
            } else if is_finished {
                ClusterState::Finished
            } else {
                ClusterState::Running
            };
            (cluster.processes, cluster.up) = (seen.processes, seen.up);
            (cluster.checkpoints, cluster.forced) = (checkpoints as u32, forced as u32);
            cluster.rollbacks = self.reporter.rollbacks(id) as u32;
            let total = seen.progress.total;
            // The last progress report may predate the end of the application.
            (cluster.steps_done, cluster.steps) =
                (if is_finished { seen.progress.done.max(total) } else { seen.progress.done }, total);
            status.rollbacks += cluster.rollbacks;
        }
        let Faults { worst_skew_micros, worst_latency_micros, .. } = status.faults;
        status.faults = Faults { worst_skew_micros, worst_latency_micros, ..faults(&seen.faults) };
    }

    fn measured(&mut self, links: &[LinkEntry]) {
        let event = self.reporter.measured(links);
        let reports = self.links(links);
        let data = &mut *self.run_state.lock();
        data.status.links = reports;
        data.note_now(event);
    }

    fn resumed(&mut self, at: Time) {
        let text = "the supervisor was restarted: all processes roll back to their last durable state, and the run \
            resumes";
        let event =
            events::ReportedEvent { reason: "SupervisorRestarted", warning: true, text: text.to_owned() };
        self.note(at, event);
    }

    fn took_effect(&mut self, effect: &EffectEntry) {
        let Some(last) = effect.on.iter().filter_map(|it| it.at).max() else { return };
        let (at, fault) = (self.seconds(last), effect.no.0);
        let data = &mut *self.run_state.lock();
        let faults = &mut data.status.faults;
        let micros = |it: Option<Span>| it.map(|it| it.0 / 1000);
        faults.worst_skew_micros = faults.worst_skew_micros.max(micros(effect.skew()));
        faults.worst_latency_micros = faults.worst_latency_micros.max(micros(effect.latency()));
        let latency = effect.latency().map(|it| format!(", {it} after it was due"));
        let exit = effect.exit().map(|it| format!("; the processes that it killed exited up to {it} later"));
        let skew = effect.skew().map(|it| format!(" on {} processes within {it}", effect.on.len()));
        let details: String = skew.into_iter().chain(latency).chain(exit).collect();
        let text = format!("fault {fault} took effect{details}");
        data.note(
            at,
            Moment::OfRun(last),
            events::ReportedEvent { reason: "FaultTookEffect", warning: false, text },
        );
    }
}

/// Counts the places whose kernels support each feature; `None` if no place has a shaper.
fn shaping(abilities: &BTreeMap<ProcessId, Abilities>) -> Option<Shaping> {
    let count = |can: fn(&Kernel) -> bool| abilities.values().filter(|it| can(&it.kernel)).count() as u32;
    let lacks = abilities.values().flat_map(|it| &it.lacks).map(|(what, why)| format!("{what} ({why})"));
    let shaping = Shaping {
        places: abilities.len() as u32,
        rates: count(|it| it.htb),
        delays: count(|it| it.htb && it.netem),
        lacks: lacks.collect::<BTreeSet<_>>().into_iter().collect(),
    };
    (shaping.places > 0).then_some(shaping)
}

fn faults(accounts: &[FaultAccount]) -> Faults {
    let count = |is: fn(&FaultState) -> bool| accounts.iter().filter(|(_, state)| is(state)).count() as u32;
    Faults {
        planned: accounts.len() as u32,
        done: count(|it| matches!(it, FaultState::Effective)),
        without_effect: count(|it| matches!(it, FaultState::Ineffective(_))),
        worst_skew_micros: None,
        worst_latency_micros: None,
    }
}

fn is_over(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::Judging | RunPhase::Completed | RunPhase::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_events(texts: impl Iterator<Item = String>) -> RunData {
        let mut data = RunData::default();
        for text in texts {
            data.note_now(events::ReportedEvent { reason: "RolledBack", warning: true, text });
        }
        data
    }

    fn numbers(data: &RunData, after: u64) -> Vec<u64> {
        data.events_after(after).iter().map(|it| it.number).collect()
    }

    #[test]
    fn a_status_contains_a_limited_number_of_events_the_oldest_first() {
        let data = with_events((1..=2500).map(|it| format!("event {it}")));
        assert_eq!(numbers(&data, 0), (1..=1000).collect::<Vec<_>>());
        assert_eq!(numbers(&data, 1000), (1001..=2000).collect::<Vec<_>>());
        assert_eq!(numbers(&data, 2000), (2001..=2500).collect::<Vec<_>>());
        assert_eq!((numbers(&data, 2500), numbers(&data, u64::MAX)), (vec![], vec![]));
    }

    #[test]
    fn an_event_says_how_long_ago_it_occurred() {
        let age = |clock: Option<Time>, at: Time| {
            let now = Instant::now();
            RunData { clock: clock.map(|it| (now, it)), ..RunData::default() }.age(Moment::OfRun(at), now)
        };
        let second = |it: u64| Time(it * 1_000_000_000);
        assert_eq!(age(Some(second(9)), second(7)), Some(Duration::from_secs(2)));
        assert_eq!(age(Some(second(9)), second(10)), Some(Duration::ZERO));
        assert_eq!(age(None, second(7)), None);
        let data = with_events(["now".to_owned()].into_iter());
        let told = data.events_after(0).remove(0).age_micros.expect("it occurred now");
        assert!(told < 5_000_000, "{told}");
    }

    #[test]
    fn long_events_are_sent_a_few_at_a_time() {
        let length = [EVENT_TEXTS + 1, EVENT_TEXTS / 2, EVENT_TEXTS / 2, 1];
        let data = with_events(length.into_iter().map(|it| "\u{1b}".repeat(it)));
        let answers = [0, 1, 3].map(|after| numbers(&data, after));
        assert_eq!(answers, [vec![1], vec![2, 3], vec![4]]);
        let json = serde_json::to_vec(&data.events_after(1)).unwrap();
        assert!(json.len() < 1 << 20, "{}", json.len());
    }
}
