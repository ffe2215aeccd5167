//! Derives the summary from a recorded run.

use std::collections::{BTreeMap, BTreeSet};

use faultline_checker::{Context, Finding, Judgement, Property, Verdict};
use faultline_core::fault::{FaultState, Outcome};
use faultline_core::{
    Cause, ClusterId, Digest, EndedBy, Fact, FaultNo, PlannedFault, Position, ProcessId, Span, Time,
};
use faultline_history::ProcessTime;
use faultline_trace::duration::{instant, lasted};
use faultline_trace::fault::{
    describe_aimed, describe_link, describe_planned, describe_trigger, entry_of, link,
};
use faultline_trace::manifest::{BackendKind, EffectEntry, LinkEntry, Pressure};
use faultline_trace::{Manifest, Trace};

use super::{
    ClusterSummary, FaultSummary, LifeSummary, LinkSummary, PressureSummary, ProcessSummary, PropertyResult,
    PropertySummary, RecordedRun, ResultSummary, RollbackSummary, Run, Summary,
};
use crate::explain::{count, enumerate, explain, flips_nothing};
use crate::names::{DisplayNames, RollbackUnit};
use crate::probes;
use crate::text::word;
use crate::timeline::{Timeline, TimelineCheckpoint, TimelineRollback};

impl Summary {
    /// Summarises a run.
    pub fn new(recorded: RecordedRun<'_>) -> Self {
        let names = DisplayNames::new(recorded.manifest);
        let timeline = Timeline::new(recorded.trace, recorded.manifest);
        Summary::of_timeline(recorded, &names, &timeline)
    }

    /// Summarises a run from its timeline.
    pub fn of_timeline(recorded: RecordedRun<'_>, names: &DisplayNames, timeline: &Timeline) -> Self {
        let RecordedRun { manifest, trace, judgement, .. } = recorded;
        Summary {
            verdict: judgement.verdict,
            reasons: judgement.reasons.clone(),
            caveats: caveats(manifest, timeline),
            notes: notes(timeline, manifest, judgement)
                .into_iter()
                .chain(incomplete(timeline, names))
                .chain(names.clusters().filter_map(|it| idle_timer(it, manifest, names, timeline)))
                .collect(),
            run: Run {
                name: manifest.name.clone(),
                backend: manifest.backend,
                protocol: manifest.protocol.clone(),
                seed: manifest.seed,
                outcome: outcome(manifest.outcome.as_ref()),
                duration_seconds: manifest.duration.as_secs_f64() - timeline.origin.as_secs_f64(),
                starting_seconds: timeline.origin.as_secs_f64(),
                started_unix_ms: manifest.started_unix_ms,
                bundle: recorded.bundle.to_owned(),
                tool: manifest.tool.clone(),
                facts: trace.len() as u64,
                events: manifest.events.as_ref().map(|it| it.file.clone()),
                ettr: timeline.ledger.total().ettr(),
            },
            clusters: names.clusters().map(|it| cluster(it, names, timeline, trace)).collect(),
            processes: timeline.ledger.processes.iter().map(|it| process(it, names)).collect(),
            outages: timeline.outages.clone(),
            probes: probes::probes(timeline, names),
            histories: timeline.histories.clone(),
            probe_recoveries: probes::recoveries(timeline, names),
            lives: if manifest.system.is_some() { lives(manifest, names, timeline) } else { Vec::new() },
            pressure: manifest.pressure.as_ref().map(|it| PressureSummary {
                is_available: *it != Pressure::Unavailable,
                busy_seconds: it.within(timeline.origin, Time::ZERO + manifest.duration).as_secs_f64(),
            }),
            expectations: timeline.expectations.clone(),
            faults: faults(manifest, names, timeline),
            links: manifest
                .links
                .iter()
                .filter(|it| it.is_judged())
                .map(|it| link_summary(it, names, timeline))
                .collect(),
            result: result(manifest, trace, names, timeline),
            properties: properties(judgement),
            not_judged: not_judged(manifest, judgement),
            is_system: manifest.system.is_some(),
            explanation: explain(timeline, manifest, names),
        }
    }
}

/// Returns the limits of what the run shows. If all faults are random, the verdict states that none took effect.
fn caveats(manifest: &Manifest, timeline: &Timeline) -> Vec<String> {
    let drawn = manifest.drawn.len();
    let has_others = manifest.plan.len() > drawn;
    let took_effect = manifest.drawn.iter().any(|it| timeline.took_effect.contains(it));
    if drawn == 0 || !has_others || took_effect || manifest.outcome.is_none() {
        return Vec::new();
    }
    let none = match drawn {
        1 => "the only random fault did not take".to_owned(),
        _ => format!("none of {drawn} random faults took"),
    };
    vec![format!("{none} effect before the end of the run, so the run shows nothing about random faults")]
}

/// Returns the lives that ended before the run did. A life whose command ended by itself has an entry of its own for this.
fn lives(manifest: &Manifest, names: &DisplayNames, timeline: &Timeline) -> Vec<LifeSummary> {
    let exits = timeline.exits.iter().map(|it| LifeSummary {
        node: names.process(it.process),
        life: it.life.0,
        upto_seconds: timeline.seconds(it.at),
        ended: it.ending.clone(),
        by_fault: false,
        said: it.said.clone(),
        log: it.log.clone(),
    });
    let ended = |it: &crate::timeline::Failure| match it.by {
        Some(EndedBy::Fault(no)) => format!("fault {}", no.0),
        Some(EndedBy::Silence) => "declared failed: no heartbeat".to_owned(),
        Some(EndedBy::PlaceLost) => "lost with its place".to_owned(),
        Some(EndedBy::StorageLost) => "moved, without its storage".to_owned(),
        Some(EndedBy::SupervisorRestarted) => "ended by a restart of the supervisor".to_owned(),
        Some(EndedBy::Moved) => "moved to a spare node".to_owned(),
        Some(EndedBy::CommandExited) => "ended with its cluster, because a command exited".to_owned(),
        None => "ended unexpectedly".to_owned(),
    };
    let has_exited = |it: &&crate::timeline::Failure| {
        let is_its = |exit: &crate::timeline::CommandExit| (exit.process, exit.life) == (it.process, it.life);
        it.by == Some(EndedBy::CommandExited) && timeline.exits.iter().any(is_its)
    };
    let stop_of = |it: &crate::timeline::Failure| {
        let mut stops = timeline.stops.iter().filter(|_| it.fault().is_some());
        stops.find(|stop| (stop.process, stop.life) == (it.process, it.life))
    };
    let failures = timeline.failures.iter().filter(|it| !has_exited(it)).map(|it| LifeSummary {
        node: names.process(it.process),
        life: it.life.0,
        upto_seconds: timeline.seconds(it.at),
        ended: match stop_of(it) {
            Some(stop) => format!("{}: {}", ended(it), stop.how),
            None => ended(it),
        },
        by_fault: it.fault().is_some(),
        said: stop_of(it).and_then(|it| it.said.clone()),
        log: format!("logs/{}-{}.log", manifest.processes[it.process.index()].name, it.life.0),
    });
    let mut all: Vec<LifeSummary> = exits.chain(failures).collect();
    all.sort_by(|a, b| a.upto_seconds.total_cmp(&b.upto_seconds));
    all
}

/// Returns the names of the properties about which the run contains no evidence.
fn not_judged(manifest: &Manifest, judgement: &Judgement) -> Vec<String> {
    let context = Context::from_manifest(manifest);
    let all = judgement.findings.iter().map(|it| it.property);
    all.filter(|it| it.lacks_evidence(&context)).map(|it| word(&it)).collect()
}

fn notes(timeline: &Timeline, manifest: &Manifest, judgement: &Judgement) -> Vec<String> {
    const UNPLANNED: [(Option<EndedBy>, &str); 6] = [
        (
            Some(EndedBy::Silence),
            "declared failed and killed without a planned fault: the machine may be too slow for this federation \
             (raise `failures.detectAfter`, or use `--backend simulate`)",
        ),
        (
            Some(EndedBy::PlaceLost),
            "lost together with the place (on Kubernetes, the pod), without a planned fault",
        ),
        (Some(EndedBy::StorageLost), "ended by a move to a new place, without the storage of the old one"),
        (Some(EndedBy::SupervisorRestarted), "ended by a restart of the supervisor"),
        (Some(EndedBy::CommandExited), "ended because a command exited, and started again (`onExit`)"),
        (None, "terminated unexpectedly: see the logs of the nodes"),
    ];
    // The failures of an imported run are those of another system.
    let is_ours = manifest.backend != BackendKind::Events;
    let ended = |by| timeline.failures.iter().filter(|it| is_ours && it.by == by).count();
    let told = UNPLANNED.iter().map(|&(by, what)| (ended(by), what)).filter(|&(count, _)| count > 0);
    let mut notes: Vec<String> = told.map(|(count, what)| format!("{} {what}", lives_were(count))).collect();
    let moved = timeline.failures.iter().filter(|it| it.moved.is_some()).count() as u64;
    if moved > 0 {
        let times = count(moved, "time");
        notes.push(format!("{times}, a process moved to a spare node, because its own was under repair"));
    }
    notes.extend(judgement.findings.iter().flat_map(|it| &it.remarks).cloned());
    notes.extend(timeline.added_faults().map(|(at, planned)| {
        format!(
            "fault {} was added at {}, so the file and the seed alone do not repeat this run; to repeat it, add to `faults`: \
             `{}`",
            planned.no.0,
            instant(timeline.seconds(at)),
            entry_of(planned, &manifest.names())
        )
    }));
    notes
}

/// Returns a note on processes whose facts are incomplete.
fn incomplete(timeline: &Timeline, names: &DisplayNames) -> Option<String> {
    const MOST_NAMED: usize = 8;
    let of: Vec<String> =
        timeline.incomplete.iter().map(|it| names.names().process_in_sentence(*it)).collect();
    let whose = if of.len() > MOST_NAMED { count(of.len() as u64, "process") } else { enumerate(&of) };
    (!of.is_empty()).then(|| {
        format!(
            "facts of {whose} are missing: counts and lost work include only what other facts show, and the shares of \
             time do not cover these processes"
        )
    })
}

/// Returns a note if the checkpoint timer of a cluster never fired, although the run was long enough.
fn idle_timer(
    id: ClusterId,
    manifest: &Manifest,
    names: &DisplayNames,
    timeline: &Timeline,
) -> Option<String> {
    let every = (*manifest.bounds.as_ref()?.checkpoint_every.get(id.index())?)?;
    let of_it = || {
        let own = |((unit, _), _): &(&(RollbackUnit, Position), &TimelineCheckpoint)| {
            names.cluster_of_unit(*unit) == id
        };
        // The first checkpoint is taken before the application starts.
        timeline.checkpoints.iter().filter(own).filter(|((_, position), _)| position.sn.0 > 1)
    };
    let forced = of_it().filter(|(_, it)| it.forced).count() as u64;
    let is_idle =
        forced > 0 && of_it().all(|(_, it)| it.forced) && timeline.end.since(timeline.origin) > every;
    is_idle.then(|| {
        format!(
            "the checkpoint timer of {} (every {}) never fired: {} came first and restarted it",
            names.cluster(id),
            lasted(every),
            count(forced, "forced checkpoint")
        )
    })
}

fn outcome(outcome: Option<&Outcome>) -> &'static str {
    outcome.map_or("cutShort", Outcome::name)
}

fn process(it: &ProcessTime, names: &DisplayNames) -> ProcessSummary {
    ProcessSummary { name: names.process(it.process), cluster: names.cluster(it.cluster), time: it.time }
}

fn cluster(id: ClusterId, names: &DisplayNames, timeline: &Timeline, trace: &Trace) -> ClusterSummary {
    let checkpoints = || {
        timeline.checkpoints.iter().filter(|((of, _), _)| names.cluster_of_unit(*of) == id).map(|(_, it)| it)
    };
    let rollbacks: Vec<_> =
        timeline.rollbacks.iter().filter(|it| names.cluster_of_unit(it.unit) == id).collect();
    let (mut sent_within, mut sent_between, mut delivered) = (0, 0, 0);
    for (message, way) in &timeline.messages {
        let (from, to) = timeline.endpoints(message);
        let (from, to) = (names.cluster_of(from), names.cluster_of(to));
        if from == id && way.sent.is_some() {
            *if from == to { &mut sent_within } else { &mut sent_between } += 1;
        }
        if to == id {
            delivered += way.delivered.len() as u64;
        }
    }
    ClusterSummary {
        name: names.cluster(id),
        processes: names.processes(id).len(),
        failures: timeline.failures.iter().filter(|it| names.cluster_of(it.process) == id).count() as u64,
        unforced: checkpoints().filter(|it| !it.forced).count() as u64,
        forced: checkpoints().filter(|it| it.forced).count() as u64,
        longest_freeze_seconds: checkpoints().map(|it| it.frozen).max().unwrap_or_default().as_secs_f64(),
        lost_work_seconds: rollbacks
            .iter()
            .fold(timeline.lost_permanently(|it| names.cluster_of(it) == id), |sum, it| sum + it.lost())
            .as_secs_f64(),
        time: timeline.ledger.cluster(id),
        sent_within,
        sent_between,
        delivered,
        resent: rollbacks.iter().map(|it| it.resent).sum(),
        tasks_run: timeline.tasks.map(|_| tasks_run(id, names, trace)),
        rollbacks: rollbacks.into_iter().map(|it| rollback(it, names, timeline)).collect(),
    }
}

fn tasks_run(id: ClusterId, names: &DisplayNames, trace: &Trace) -> u64 {
    let lives = trace.streams.iter().filter(|((process, _), _)| names.cluster_of(*process) == id);
    let facts = lives.flat_map(|(_, stream)| stream);
    facts.filter(|(_, fact)| matches!(fact, Fact::Ran { .. } | Fact::Rerun { .. })).count() as u64
}

fn rollback(it: &TimelineRollback, names: &DisplayNames, timeline: &Timeline) -> RollbackSummary {
    let mut faults: Vec<u32> = it
        .failures
        .iter()
        .filter_map(|&place| timeline.failures[place].fault())
        .map(|FaultNo(no)| no)
        .collect();
    faults.sort_unstable();
    faults.dedup();
    let (cause, because_of) = match it.cause {
        Some(Cause::Alert { from, .. }) => ("alert", Some(names.group(from))),
        Some(Cause::Failure) | None => {
            ("failure", it.because_of.map(|with| names.unit(timeline.rollbacks[with].unit)))
        }
    };
    RollbackSummary {
        of: names.unit(it.unit),
        cause,
        because_of,
        faults,
        unplanned: it.failures.iter().filter(|&&place| timeline.failures[place].fault().is_none()).count()
            as u32,
        at_seconds: timeline.seconds(it.began),
        checkpoint: it.sn().0,
        checkpoint_incarnation: it.checkpoint.map_or(0, |it| it.incarnation.0),
        depth: timeline.depth(it),
        lost_work_seconds: it.lost().as_secs_f64(),
        recovery_seconds: timeline.lasted(it.began, it.ended).as_secs_f64(),
        resent: it.resent,
    }
}

fn faults(manifest: &Manifest, names: &DisplayNames, timeline: &Timeline) -> Vec<FaultSummary> {
    let states: BTreeMap<_, _> = manifest.faults.iter().map(|(no, state)| (*no, state)).collect();
    let summary = |planned: &PlannedFault| {
        let (state, reason) = match states.get(&planned.no) {
            Some(FaultState::Effective) => match flips_nothing(timeline, planned.no, &planned.fault) {
                Some(reason) => ("ineffective", Some(reason.to_owned())),
                None if timeline.redundant.contains_key(&planned.no) => {
                    let reason = timeline.redundant[&planned.no].trim_start_matches("changed nothing: ");
                    ("ineffective", Some(reason.to_owned()))
                }
                None if !timeline.took_effect.contains(&planned.no) && !timeline.is_cut_short => {
                    ("ineffective", Some("no process reported that it took effect".to_owned()))
                }
                None => ("effective", None),
            },
            Some(FaultState::Ineffective(reason)) => ("ineffective", Some(reason.to_string())),
            Some(FaultState::Pending) | None if timeline.is_cut_short => ("unknown", None),
            Some(FaultState::Pending) | None => ("pending", None),
        };
        let injected = timeline.injections.iter().find(|it| it.no == planned.no);
        let effect = manifest.effects.iter().find(|it| it.no == planned.no);
        let ended = timeline.failures.iter().filter(|it| it.fault() == Some(planned.no));
        let stopped = ended.filter_map(|it| {
            let mut stops = timeline.stops.iter();
            let stop = stops.find(|stop| (stop.process, stop.life) == (it.process, it.life))?;
            Some(format!("{} {}", names.process(stop.process), stop.how))
        });
        FaultSummary {
            no: planned.no.0,
            when: describe_trigger(&planned.trigger, names.names()),
            what: match injected {
                Some(injected) => describe_aimed(planned, &injected.fault, names.names()),
                None => describe_planned(planned, names.names()),
            },
            cause: planned.cause.as_deref().map(str::to_owned),
            added: timeline.added_faults().any(|(_, it)| it.no == planned.no),
            state,
            reason,
            is_unnoticed: timeline.unnoticed.contains(&planned.no),
            injected_seconds: injected.map(|it| timeline.seconds(it.at)),
            stopped: stopped.collect(),
            ran_share: effect.and_then(EffectEntry::ran_share),
            processor_share: effect.and_then(EffectEntry::processor_share),
            skew_seconds: effect.and_then(EffectEntry::skew).map(Span::as_secs_f64),
            latency_seconds: effect.and_then(EffectEntry::latency).map(Span::as_secs_f64),
            exit_seconds: effect.and_then(EffectEntry::exit).map(Span::as_secs_f64),
        }
    };
    manifest.plan.iter().map(summary).collect()
}

fn link_summary(it: &LinkEntry, names: &DisplayNames, timeline: &Timeline) -> LinkSummary {
    LinkSummary {
        link: link(it.from, it.to, names.names()),
        requested: describe_link(&it.requested),
        requested_latency_seconds: it.requested.latency.as_secs_f64(),
        requested_jitter_seconds: it.requested.jitter.as_secs_f64(),
        measured_latency_seconds: it.measured.map(|it| it.latency.as_secs_f64()),
        measured_jitter_seconds: it.measured.map(|it| it.jitter.as_secs_f64()),
        samples: it.measured.map_or(0, |it| it.samples),
        rounds: it.measured.map_or(0, |it| it.rounds),
        tolerance_seconds: it.tolerance().as_secs_f64(),
        as_requested: it.as_requested(),
        observed_latency_seconds: it.observed.map(|it| it.mean.as_secs_f64()),
        observed_percent_outside: it.percent_outside(),
        since_seconds: it.since.map(|it| timeline.seconds(it)),
        is_off: it.is_off(),
    }
}

fn result(manifest: &Manifest, trace: &Trace, names: &DisplayNames, timeline: &Timeline) -> ResultSummary {
    let digests: BTreeMap<ProcessId, Digest> = names
        .all()
        .filter_map(|process| {
            let (_, stream) = trace.lives(process).next_back()?;
            let finished = stream.iter().rev().find_map(|(_, fact)| match fact {
                Fact::Finished(it) => Some(it.1),
                _ => None,
            })?;
            Some((process, finished))
        })
        .collect();
    let expected = manifest.expected.as_ref().filter(|it| !it.digests.is_empty());
    let mut gone: BTreeSet<ProcessId> = timeline.permanent_failures(names).into_keys().collect();
    // In a task-based program, the ranks of a cluster that has left have no result: other ranks continue their work.
    let left = timeline.left.iter().flat_map(|(_, cluster)| names.processes(*cluster));
    gone.extend(left.filter(|rank| !digests.contains_key(*rank)).copied());
    ResultSummary {
        compared_with: expected.map(|it| it.source.clone()),
        finished: digests.len(),
        is_incomplete: !timeline.incomplete.is_empty() || timeline.is_cut_short,
        remaining: manifest.ranks().filter(|(rank, _)| !gone.contains(rank)).count(),
        equal: expected
            .map(|it| it.digests.iter().filter(|(process, _)| !gone.contains(process)))
            .map(|mut it| it.all(|(process, digest)| digests.get(process) == Some(digest))),
        digests: digests
            .iter()
            .map(|(process, digest)| (names.process(*process), digest.to_string()))
            .collect(),
    }
}

fn properties(judgement: &Judgement) -> Vec<PropertySummary> {
    let mut findings: Vec<_> = judgement.findings.iter().collect();
    findings.sort_by_key(|it| it.property);
    // A federation that expects nothing in particular is not short of evidence about it.
    findings.retain(|it| it.property != Property::Expected || found(it) != PropertyResult::NotExercised);
    findings
        .into_iter()
        .map(|it| PropertySummary {
            property: it.property,
            statement: it.property.statement(),
            found: found(it),
            verdict: match found(it) {
                PropertyResult::Holds | PropertyResult::NotExercised => Verdict::Pass,
                PropertyResult::Unknown => Verdict::Unknown,
                PropertyResult::Violated => Verdict::Fail,
            },
            instances: it.instances,
            violation_count: if it.is_doubtful { 0 } else { it.violation_count() },
            violations: match it.is_doubtful {
                true => Vec::new(),
                false => it.violations.iter().map(|it| it.text.clone()).collect(),
            },
            unknown: it.unknown.clone(),
            is_doubtful: it.is_doubtful,
            remarks: it.remarks.clone(),
        })
        .collect()
}

fn found(it: &Finding) -> PropertyResult {
    match (it.violation_count(), &it.unknown, it.instances) {
        _ if it.is_doubtful => PropertyResult::Unknown,
        (0, None, 0) => PropertyResult::NotExercised,
        (0, None, _) => PropertyResult::Holds,
        (0, Some(_), _) => PropertyResult::Unknown,
        _ => PropertyResult::Violated,
    }
}

fn lives_were(number: usize) -> String {
    if number == 1 { "1 life was".to_owned() } else { format!("{number} lives were") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Fault, Promises, Scope, Trigger};

    #[test]
    fn a_run_without_random_faults_says_so_unless_no_other_faults_were_planned() {
        let mut manifest = Manifest::bare(Promises::of_scope(Scope::Cluster), &[1]);
        let planned = |no| PlannedFault {
            no: FaultNo(no),
            trigger: Trigger::At(Time(1)),
            fault: Fault::crash(ProcessId(0)),
            reported: None,
            cause: None,
        };
        manifest.plan = (0..3).map(planned).collect();
        manifest.drawn = vec![FaultNo(1), FaultNo(2)];
        let caveats = |manifest: &Manifest, effective: &[u32]| {
            let took_effect = effective.iter().copied().map(FaultNo).collect();
            super::caveats(manifest, &Timeline { took_effect, ..Timeline::default() })
        };
        let expected = "none of 2 random faults took effect before the end of the run, so the run shows nothing about random \
                        faults";
        assert_eq!(caveats(&manifest, &[0]), [expected]);
        assert_eq!(caveats(&manifest, &[0, 2]), [""; 0]);
        manifest.drawn = (0..3).map(FaultNo).collect();
        assert_eq!(caveats(&manifest, &[]), [""; 0], "the verdict states it");
    }
}
