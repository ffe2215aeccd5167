//! Resuming a run: replays the journal of a predecessor.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{EndedBy, Fact, ProcessId, StorageFate, Time};
use faultline_supervisor::{Order, Report, Supervisor};
use faultline_trace::Stream;

use super::RunError;
use super::host::{Host, dated};
use super::journal::{JournalContents, JournalEntry};
use super::places::PlaceBackend;

/// Progress of replaying a predecessor's journal.
struct JournalReplay {
    /// Facts of the predecessor that the replay has not reached yet.
    recorded: std::vec::IntoIter<(Time, Fact)>,
    /// Processes whose storage was to be removed and that have not been launched since.
    wiped: BTreeSet<ProcessId>,
    outcome: Option<Outcome>,
}

impl<P: PlaceBackend> Host<'_, P> {
    /// Replays a predecessor's reports to the state machine, and records the resulting orders. Then declares all
    /// lives failed, because a process exits when it loses its connection to the supervisor. If the run was already
    /// over, returns its outcome instead.
    pub(super) fn recall(
        &mut self,
        past: JournalContents,
        recorded: Stream,
        supervisor: &mut Supervisor,
        orders: &mut Vec<Order>,
    ) -> Result<Option<Outcome>, RunError> {
        let last = past.last;
        let mut memory =
            JournalReplay { recorded: recorded.into_iter(), wiped: BTreeSet::new(), outcome: None };
        self.remember(&mut memory, Time::ZERO, supervisor, orders)?;
        for entry in past.entries().map_err(RunError::Past)? {
            match entry.map_err(RunError::Past)? {
                JournalEntry::Heard(reports) => {
                    let mut now = Time::ZERO;
                    for (at, report) in reports {
                        match &report {
                            Report::Fact { process, life, fact, .. } => {
                                self.recorder.reported(at, *process, *life, fact);
                            }
                            // Its agent has removed the storage if necessary.
                            Report::Registered { process, .. } => {
                                memory.wiped.remove(process);
                                self.nodes.registered.insert(*process);
                            }
                            Report::LinksMeasured => {
                                self.links.begun = true;
                                self.recorder.observer.measured(&self.links.measuring.entries());
                            }
                            _ => {}
                        }
                        supervisor.handle(report, at, orders);
                        now = at;
                    }
                    self.remember(&mut memory, now, supervisor, orders)?;
                }
                JournalEntry::Measured { by, to, requested, link } => {
                    self.links.measuring.measured((by, to), requested, link);
                    self.measured();
                }
                JournalEntry::Echoes { from, to, observed } => {
                    self.links.measuring.recall(from, to, observed);
                }
                JournalEntry::Stopped(seen) => self.stopped(&seen),
                JournalEntry::Paused(seen) => self.paused(seen),
                JournalEntry::InForce { no, effect } => self.effects.applied(no, effect),
                JournalEntry::Observed(no) => self.observe_effects_of(no),
                JournalEntry::Resumed(at) => self.recorder.observer.resumed(at),
                JournalEntry::Run { .. }
                | JournalEntry::Launched { .. }
                | JournalEntry::Complete { .. }
                | JournalEntry::Noted(_) => {}
            }
        }
        if memory.recorded.next().is_some() {
            return Err(RunError::Journal);
        }
        for (process, life) in supervisor.newest() {
            self.places.recall(process, life, memory.wiped.contains(&process));
            self.note_unless_started(process, life);
        }
        if memory.outcome.is_none() {
            self.observe_effects();
            let now = self.clock.now();
            self.journal.write(&JournalEntry::Resumed(now));
            self.recorder.observer.resumed(now);
            // The lives are reported lost as of the last report, so events that have become due since then find no
            // process alive.
            let (storage, by) = (StorageFate::Kept, EndedBy::SupervisorRestarted);
            let lost = |(process, life)| Report::Lost { process, life, storage, by };
            let lost = supervisor.newest().map(lost).collect();
            self.apply_reports(supervisor, dated(last, lost), orders);
        }
        Ok(memory.outcome)
    }

    /// Records orders that have already been carried out, or would have no effect. Also records the facts that the
    /// predecessor did not record before it exited.
    fn remember(
        &mut self,
        memory: &mut JournalReplay,
        at: Time,
        supervisor: &Supervisor,
        orders: &mut Vec<Order>,
    ) -> Result<(), RunError> {
        for order in orders.drain(..) {
            match order {
                Order::Record(fact) => match memory.recorded.next() {
                    None => self.record(at, &fact, supervisor)?,
                    Some((at, recorded)) if recorded == fact => {
                        self.effects.recorded(&fact, |no| supervisor.due(no));
                        self.recorder.is_recorded(at, &fact);
                    }
                    Some(_) => return Err(RunError::Journal),
                },
                Order::Kill { lives, storage: StorageFate::Lost } => {
                    memory.wiped.extend(lives.into_iter().map(|it| it.0));
                }
                Order::Announce(membership) => {
                    self.links.measuring.replace_gone(&membership, at);
                    self.membership = membership;
                }
                Order::Launch { process, boot, .. } => drop(self.nodes.boots.insert(process, boot)),
                Order::Watch(triggers) => self.nodes.watches = triggers.to_vec(),
                Order::Link { from, to, properties, of } => self.note_link(from, to, properties, of),
                Order::Relink { from, to, properties } => {
                    let since = self.links.begun.then_some(at);
                    self.note_relink(from, to, properties, since);
                }
                Order::Cut { from, to, cut } => self.note_cut(from, to, cut),
                Order::Split { of, cluster, nodes, cut } => self.note_split(of, cluster, &nodes, cut),
                Order::Impair { process, in_force, .. } => self.note_impaired(process, in_force),
                Order::Pause { process, life, paused: true } => self.effects.pausing(process, life),
                Order::Kill { .. }
                | Order::Go { .. }
                | Order::Pause { .. }
                | Order::Flip { .. }
                | Order::Prepare { .. }
                | Order::SetUp { .. }
                | Order::Check { .. }
                | Order::Stop { .. } => {}
                Order::End(outcome) => memory.outcome = Some(outcome),
            }
        }
        Ok(())
    }
}
