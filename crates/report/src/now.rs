//! A run in progress: one sentence about what happens now, the state of every process, and counts. Makes no judgements.

use std::fmt::Write as _;

use faultline_checker::count;
use faultline_core::{ClusterId, FaultNo, ProcessId, Progress, Span, Time, Trigger};
use faultline_history::{Context, History, Standing};
use faultline_trace::duration::{lasted, span};
use faultline_trace::fault::describe_fault;
use faultline_trace::{Manifest, Trace};
use serde::Serialize;

use crate::explain::{ExplainedEvent, explain};
use crate::names::{DisplayNames, checkpoint};
use crate::timeline::{Timeline, TimelineRollback};

/// A run in progress, as its facts show it so far.
#[derive(Clone, Debug)]
pub struct Progressing {
    /// The state of the run.
    pub now: Now,
    /// What has happened.
    pub timeline: Timeline,
    /// What has happened, in sentences.
    pub events: Vec<ExplainedEvent>,
}

/// The state of a run in progress. Its serialised form is read by the page's script.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Now {
    /// The time of the newest fact in seconds since the application began; `None` before it has begun.
    pub seconds: Option<f64>,
    /// `starting`, `running` or `paused`.
    pub phase: &'static str,
    /// What happens now.
    pub sentence: String,
    /// The state of each cluster.
    pub clusters: Vec<ClusterNow>,
    /// The state of each process, cluster by cluster, as an index into [`Standing::ALL`].
    pub states: Vec<u8>,
}

/// The state of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterNow {
    /// The share of the application's steps that are done, in percent; `None` if it is unknown.
    pub percent: Option<u8>,
    /// Counts, in words.
    pub text: String,
}

impl Progressing {
    /// Interprets the facts of a run so far. `progress` is that of each cluster, if it is known.
    pub fn new(trace: &Trace, manifest: &Manifest, progress: &[Progress]) -> Progressing {
        let mut manifest = manifest.clone();
        manifest.fill_in(trace);
        let (names, context) = (DisplayNames::new(&manifest), Context::from_manifest(&manifest));
        let history = History::new(trace, &context);
        let timeline = Timeline::of(&history, &names);
        let mut events = explain(&timeline, &manifest, &names);
        // The others are about the run as a whole.
        events.retain(|it| it.from_seconds.is_some());
        let standings = names.all().map(|it| history.standing(it)).collect();
        let view =
            View { history: &history, timeline: &timeline, manifest: &manifest, names: &names, standings };
        Progressing { now: view.now(progress), timeline, events }
    }
}

struct View<'a> {
    history: &'a History<'a>,
    timeline: &'a Timeline,
    manifest: &'a Manifest,
    names: &'a DisplayNames,
    /// The state of each process.
    standings: Vec<Standing>,
}

impl View<'_> {
    fn standing(&self, process: ProcessId) -> Standing {
        self.standings.get(process.index()).copied().unwrap_or(Standing::Absent)
    }

    /// Returns the processes in a state.
    fn all_in(&self, standing: Standing) -> Vec<ProcessId> {
        self.names.all().filter(|it| self.standing(*it) == standing).collect()
    }

    fn now(&self, progress: &[Progress]) -> Now {
        let begun = self.history.supervision.begun;
        let clusters = self.names.clusters().map(|it| ClusterNow {
            // The last heartbeat may be older than the last step.
            percent: match self.names.processes(it).iter().all(|it| self.standing(*it) == Standing::Finished)
            {
                true => Some(100),
                false => progress.get(it.index()).and_then(percent),
            },
            text: self.counts(it),
        });
        let lanes = self.names.clusters().flat_map(|it| self.names.processes(it).to_vec());
        Now {
            seconds: begun.map(|_| self.timeline.seconds(self.timeline.end)),
            phase: match begun {
                None => "starting",
                Some(_) if self.history.is_paused() => "paused",
                Some(_) => "running",
            },
            sentence: self.sentence(progress),
            clusters: clusters.collect(),
            states: lanes.map(|it| self.standing(it) as u8).collect(),
        }
    }

    fn counts(&self, cluster: ClusterId) -> String {
        let processes = self.names.processes(cluster);
        let is_up = |it: &&ProcessId| {
            matches!(self.standing(**it), Standing::Up | Standing::Finished | Standing::Recovering)
        };
        let up = processes.iter().filter(is_up).count();
        let of_cluster = |it: &crate::names::RollbackUnit| self.names.cluster_of_unit(*it) == cluster;
        let taken = self.timeline.checkpoints.iter().filter(|((unit, _), _)| of_cluster(unit));
        let (taken, forced) =
            taken.fold((0, 0), |(all, forced), (_, it)| (all + 1, forced + u64::from(it.forced)));
        let rollbacks = self.timeline.rollbacks.iter().filter(|it| of_cluster(&it.unit)).count();
        let mut text = format!("{up} of {} running", count(processes.len() as u64, "process"));
        if taken > 0 {
            let _ = write!(text, ", {}", count(taken, "checkpoint"));
        }
        if forced > 0 {
            let _ = write!(text, " ({forced} forced)");
        }
        if rollbacks > 0 {
            let _ = write!(text, ", {}", count(rollbacks as u64, "rollback"));
        }
        let strips = self.timeline.probes.iter().flat_map(|it| &it.strips);
        let samples = strips.filter(|it| self.names.cluster_of(it.process) == cluster);
        let (all, succeeded) = samples
            .flat_map(|it| &it.samples)
            .fold((0, 0), |(all, succeeded), it| (all + 1, succeeded + u64::from(it.is_success())));
        if all > 0 {
            let _ = write!(text, ", {succeeded} of {} succeeded", count(all, "sample"));
        }
        text
    }

    /// Returns what happens now in one sentence: the first that applies.
    fn sentence(&self, progress: &[Progress]) -> String {
        let clauses: [&dyn Fn() -> Option<String>; 8] = [
            &|| self.starting(),
            &|| self.history.is_paused().then(|| "The run is paused".to_owned()),
            &|| self.unrecoverable(),
            &|| self.rolls_back(),
            &|| self.down(),
            &|| self.recovers(),
            &|| self.in_force(),
            &|| self.takes_checkpoint(),
        ];
        let said = clauses.iter().find_map(|it| it()).unwrap_or_else(|| self.computes(progress));
        format!("{said}.")
    }

    fn starting(&self) -> Option<String> {
        if self.history.supervision.begun.is_some() {
            return None;
        }
        let (all, started) = (self.manifest.processes.len(), self.history.supervision.starts.len());
        Some(if started < all {
            format!("{started} of {} have been started", count(all as u64, "process"))
        } else {
            "The processes start, and the links between them are measured".to_owned()
        })
    }

    fn unrecoverable(&self) -> Option<String> {
        let (group, _) = self.timeline.unrecoverable.first()?;
        Some(format!("No checkpoint of {} can be restored", self.names.group(*group)))
    }

    fn rolls_back(&self) -> Option<String> {
        let is_open = |it: &&TimelineRollback| {
            let members = self.names.members(it.unit);
            !it.complete && members.into_iter().any(|it| self.standing(it) == Standing::Recovering)
        };
        let it = self.timeline.rollbacks.iter().rev().find(is_open)?;
        let to = match it.checkpoint {
            None => "its initial state".to_owned(),
            Some(position) => format!("checkpoint {}", checkpoint(position)),
        };
        let fault = it.failures.iter().find_map(|&it| self.timeline.failures[it].fault());
        let because = match (fault, it.because_of) {
            (Some(no), _) => format!(" because of fault {}", no.0),
            (None, Some(place)) => {
                format!(" because {} rolled back", self.names.unit(self.timeline.rollbacks[place].unit))
            }
            (None, None) => String::new(),
        };
        let all = self.names.members(it.unit).len() as u64;
        let resumed = it.members.values().filter(|it| it.resumed.is_some()).count();
        let restored = it.members.len();
        let has = if restored == 1 && all == 1 { "has" } else { "have" };
        Some(format!(
            "{} rolls back to {to}{because}: {restored} of {} {has} restored it, and {resumed} {} resumed",
            self.names.unit(it.unit),
            count(all, "process"),
            if resumed == 1 { "has" } else { "have" },
        ))
    }

    fn down(&self) -> Option<String> {
        let is_down = |it: &&crate::timeline::Failure| self.standing(it.process) == Standing::Down;
        let it = self.timeline.failures.iter().rev().find(is_down)?;
        let others = self.all_in(Standing::Down).len() - 1;
        let cause = it.fault().map(|no| format!(" (fault {})", no.0)).unwrap_or_default();
        let next = match it.detected {
            None => "its failure has not been announced",
            Some(_) => "its failure has been announced, and its next life has not started",
        };
        Some(match others {
            0 => format!("{} is down{cause}; {next}", self.names.process(it.process)),
            _ => format!("{} and {} are down{cause}", self.names.process(it.process), more(others)),
        })
    }

    fn recovers(&self) -> Option<String> {
        let recovering = self.all_in(Standing::Recovering);
        let first = self.names.process(*recovering.first()?);
        Some(match recovering.len() - 1 {
            0 => format!("{first} recovers"),
            others => format!("{first} and {} recover", more(others)),
        })
    }

    fn in_force(&self) -> Option<String> {
        let now = self.timeline.end;
        let lasts = |it: &&crate::timeline::Injection| {
            it.fault.kills().is_none() && it.fault.until(it.at) > now && it.fault.until(it.at) != Time::NEVER
        };
        let it = self.timeline.injections.iter().rev().find(lasts)?;
        let left = it.fault.until(it.at).since(now);
        let what = describe_fault(&it.fault, self.names.names());
        Some(format!("Fault {} is in force for another {}: {what}", it.no.0, lasted(left)))
    }

    fn takes_checkpoint(&self) -> Option<String> {
        self.history.groups.numbered().find_map(|(id, group)| {
            let (name, it) = group.checkpoints.last_key_value()?;
            let saved = it.parts.iter().filter(|it| it.witness.is_some()).count();
            let newest = group.rollbacks.keys().next_back().copied().unwrap_or_default();
            let is_open = it.commits.is_empty() && saved > 0 && group.members.len() > 1;
            let is_given_up = self.history.claims.iter().any(|claimed| {
                matches!(claimed.claim, faultline_core::Claim::Aborted { position, attempt }
                    if (*position, *attempt) == (name.position, name.attempt))
            });
            (is_open && !is_given_up && name.position.incarnation >= newest).then(|| {
                format!(
                    "{} takes checkpoint {}: {saved} of {} have saved their states",
                    self.names.group(id),
                    checkpoint(name.position),
                    count(group.members.len() as u64, "process")
                )
            })
        })
    }

    fn computes(&self, progress: &[Progress]) -> String {
        let mut ranks = self.manifest.ranks().map(|it| self.standing(it.0));
        if ranks.clone().count() > 0 && ranks.all(|it| matches!(it, Standing::Finished | Standing::Absent)) {
            return "All processes have finished the application".to_owned();
        }
        let sum = progress.iter().fold(Progress::default(), |sum, it| Progress {
            done: sum.done + it.done,
            total: sum.total + it.total,
        });
        let done = percent(&sum).map(|it| format!(": {it} % done")).unwrap_or_default();
        let due = self
            .next_fault()
            .map(|(no, left)| format!("; fault {} is due in {}", no.0, span(left.as_secs_f64())));
        format!("The application runs{done}{}", due.unwrap_or_default())
    }

    /// Returns the next fault that is due at a known time, and the time until then.
    fn next_fault(&self) -> Option<(FaultNo, Span)> {
        let elapsed = self.timeline.lasted(self.timeline.origin, self.timeline.end);
        let due = self.manifest.plan.iter().filter_map(|it| match it.trigger {
            Trigger::At(at) => Some((it.no, at.since(Time::ZERO))),
            Trigger::When { .. } => None,
        });
        let later = due.filter(|(_, at)| *at > elapsed);
        later.min_by_key(|it| it.1).map(|(no, at)| (no, Span(at.0 - elapsed.0)))
    }
}

fn more(others: usize) -> String {
    if others == 1 { "another process".to_owned() } else { format!("{others} others") }
}

fn percent(progress: &Progress) -> Option<u8> {
    (progress.total > 0).then(|| (progress.done.min(progress.total) * 100 / progress.total) as u8)
}
