//! Changes that a user makes to a running federation: links, additional faults, and pauses. Each is recorded before it
//! takes effect.

use faultline_core::fault::Change;
use faultline_core::{Fact, PlannedFault, ProcessId, Time, Trigger};

use crate::faults::Due;
use crate::interface::Order;
use crate::supervisor::{LifeState, Supervisor};

impl Supervisor {
    /// Returns whether the application has begun and the user has paused the federation.
    pub(crate) fn is_federation_paused(&self) -> bool {
        self.paused.is_some() && self.begun.is_some()
    }

    pub(crate) fn change(&mut self, change: Change, now: Time, out: &mut Vec<Order>) {
        if change == Change::Pause(self.paused.is_some()) {
            return;
        }
        out.push(Order::Record(Fact::Changed(Box::new(change.clone()))));
        match change {
            Change::Link { from, to, properties } => out.push(Order::Relink { from, to, properties }),
            Change::Fault(planned) => self.add(planned, now, out),
            Change::Pause(true) => self.pause_all(now, out),
            Change::Pause(false) => self.resume_all(now, out),
        }
    }

    fn add(&mut self, planned: PlannedFault, now: Time, out: &mut Vec<Order>) {
        let trigger = planned.trigger.clone();
        let index = self.plan.add(planned);
        match trigger {
            Trigger::When { .. } => self.watch(out),
            // Scheduled with the other faults once the application begins.
            Trigger::At(_) if self.begun.is_none() => {}
            Trigger::At(at) => {
                let due = self.origin + at.since(Time::ZERO);
                // During a pause, time does not advance for the plan.
                let reached = self.paused.unwrap_or(now);
                if due < reached {
                    let late = reached.since(due);
                    self.mark_ineffective(index, format!("it was added {late} after it was due").into(), out);
                } else {
                    self.plan_at(due, Due::Inject(index));
                }
            }
        }
    }

    /// Pauses all processes. Before the application begins, this only delays its start.
    fn pause_all(&mut self, now: Time, out: &mut Vec<Order>) {
        self.paused = Some(now);
        if self.begun.is_some() {
            self.for_each_that_may_run(|process, supervisor| {
                let life = supervisor.entries[process.index()].life;
                out.push(Order::Pause { process, life, paused: true });
            });
        }
    }

    /// Resumes all processes except those that a fault has paused. Postpones all scheduled actions by the
    /// length of the pause.
    fn resume_all(&mut self, now: Time, out: &mut Vec<Order>) {
        let stood = now.since(self.paused.take().expect("only a paused federation is resumed"));
        if self.begun.is_none() {
            self.origin = now;
            self.plan_start(now);
            return self.try_begin(now, out);
        }
        self.origin += stood;
        let agenda = std::mem::take(&mut self.agenda);
        self.agenda = agenda.into_iter().map(|((at, no), due)| ((at + stood, no), due)).collect();
        for entry in &mut self.entries {
            entry.paused_until = entry.paused_until.map(|(until, by)| (until + stood, by));
        }
        self.failure_detector.heartbeat_from_all(now);
        self.for_each_that_may_run(|process, supervisor| {
            let life = supervisor.entries[process.index()].life;
            out.push(Order::Pause { process, life, paused: false });
            supervisor.release(process, out);
        });
    }

    /// Calls `act` for each registered process, except those that a fault has paused.
    fn for_each_that_may_run(&mut self, mut act: impl FnMut(ProcessId, &mut Supervisor)) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if entry.state == LifeState::Registered && entry.paused_until.is_none() {
                act(ProcessId(index as u32), self);
            }
        }
    }
}
