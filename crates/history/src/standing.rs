//! The states of processes at the end of the facts known so far. Makes no judgements.

use faultline_core::{Claim, Fact, ProcessId, Time};
use faultline_trace::Stream;

use crate::history::History;
use crate::lost::Pauses;

/// The state of a process at the end of the facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The process, or the whole application, has not started.
    Starting,
    /// The process takes part in the run.
    Up,
    /// The process restores a state, or has stopped for a recovery.
    Recovering,
    /// The newest life of the process has ended.
    Down,
    /// A fault or the user has paused the process.
    Paused,
    /// The process has finished the application.
    Finished,
    /// The process's cluster has left, or has not joined yet.
    Absent,
}

impl Standing {
    /// All states.
    pub const ALL: [Standing; 7] = [
        Standing::Starting,
        Standing::Up,
        Standing::Recovering,
        Standing::Down,
        Standing::Paused,
        Standing::Finished,
        Standing::Absent,
    ];

    /// Returns the state in a word, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Standing::Starting => "starting",
            Standing::Up => "up",
            Standing::Recovering => "recovering",
            Standing::Down => "down",
            Standing::Paused => "paused",
            Standing::Finished => "finished",
            Standing::Absent => "absent",
        }
    }
}

impl History<'_> {
    /// Returns the state of a process at the end of the facts.
    pub fn standing(&self, process: ProcessId) -> Standing {
        let supervision = &self.supervision;
        if self.has_left(process) {
            return Standing::Absent;
        }
        let Some(life) = supervision.newest_life(process) else {
            return if supervision.begun.is_some() { Standing::Absent } else { Standing::Starting };
        };
        if supervision.end_of(process, life).is_some() {
            return Standing::Down;
        }
        let start = supervision.starts.iter().rfind(|it| (it.0, it.1) == (process, life));
        let started = start.and_then(|it| self.trace.supervisor().get(it.2)).map_or(Time::ZERO, |it| it.0);
        let resumed = supervision.resumed.iter().rfind(|it| (it.1, it.2) == (process, life));
        let resumed = resumed.map_or(started, |it| it.0);
        let pauses = |(_, fault, at, _): &(_, &faultline_core::Fault, Time, _)| {
            fault.pauses() == Some(process) && *at >= resumed
        };
        if supervision.injected.iter().any(pauses) || self.is_paused() {
            return Standing::Paused;
        }
        let stream = self.trace.streams.get(&(process, life));
        let is_first = supervision.starts.iter().filter(|it| it.0 == process).count() == 1;
        match stream.map_or(Activity::None, Activity::last_in) {
            Activity::Finished => Standing::Finished,
            Activity::Works => Standing::Up,
            Activity::Recovers => Standing::Recovering,
            Activity::None if supervision.begun.is_none() => Standing::Starting,
            // A later life of an application process starts with a restore.
            Activity::None if !is_first && self.context.system.is_none() && self.is_member(process) => {
                Standing::Recovering
            }
            Activity::None => Standing::Up,
        }
    }

    /// Returns whether the user has paused the federation.
    pub fn is_paused(&self) -> bool {
        let pauses = Pauses::of(&self.supervision);
        pauses.stretches().last().is_some_and(|(_, upto)| upto == Time::NEVER)
    }

    fn is_member(&self, process: ProcessId) -> bool {
        self.processes.get(process.index()).is_some_and(|it| it.member.is_some())
    }
}

/// What the newest facts of a life show.
enum Activity {
    None,
    Works,
    Recovers,
    Finished,
}

impl Activity {
    fn last_in(stream: &Stream) -> Activity {
        let of = |fact: &Fact| match fact {
            Fact::Finished(_) => Some(Activity::Finished),
            Fact::Held | Fact::Restored(_) => Some(Activity::Recovers),
            Fact::Sent { .. } | Fact::Delivered(_) | Fact::Computed { .. } | Fact::Ran { .. } => {
                Some(Activity::Works)
            }
            Fact::Claim(claim) => match **claim {
                Claim::RolledBack { .. } => Some(Activity::Works),
                Claim::RecoveryStarted { .. } => Some(Activity::Recovers),
                _ => None,
            },
            _ => None,
        };
        let mut newest = stream.iter().rev().filter_map(|(_, fact)| of(fact));
        match newest.next() {
            // A process that only sends or recovers for others may have finished before.
            Some(it @ Activity::Works) => {
                let kept = stream.iter().rev().find_map(|(_, fact)| match fact {
                    Fact::Finished(_) => Some(true),
                    Fact::Restored(_) | Fact::Computed { .. } | Fact::Ran { .. } | Fact::Delivered(_) => {
                        Some(false)
                    }
                    _ => None,
                });
                if kept == Some(true) { Activity::Finished } else { it }
            }
            Some(it) => it,
            None => Activity::None,
        }
    }
}
