//! Performs the actions of processes, and records their facts.

use std::mem;
use std::sync::Arc;

use faultline_core::application::Job;
use faultline_core::process::ActionOf;
use faultline_core::{Action, Fact, FactKinds, FactNo, Process, ProcessId, To};
use faultline_supervisor::Report;
use faultline_trace::Sink;

use crate::sim_process::Due;
use crate::simulation::{SimEvent, Simulation, through_bytes};
use crate::storage::Operation;

impl<P: Process, S: Sink> Simulation<'_, P, S> {
    /// Performs actions in order, up to a fact at which the process halts.
    pub(crate) fn perform(&mut self, process: ProcessId, actions: &mut Vec<ActionOf<P>>) {
        // Facts are moved straight from this queue to the sink, which saves copies.
        for place in 0..actions.len() {
            let action = &mut actions[place];
            if let Action::Fact(fact) = action {
                if self.record_fact(process, fact) {
                    self.sim_processes[process.index()].backlog().rest.extend(actions.drain(place + 1..));
                    break;
                }
            } else {
                let action = mem::replace(action, Action::Held);
                self.act(process, action);
            }
        }
        actions.clear();
    }

    /// Performs one action other than a fact.
    #[inline(always)]
    fn act(&mut self, process: ProcessId, action: ActionOf<P>) {
        match action {
            Action::Send { to: To::One(to), packet } => self.send(process, to, packet),
            other => self.act_otherwise(process, other),
        }
    }

    /// Performs an action other than the most frequent ones.
    #[inline(never)]
    fn act_otherwise(&mut self, process: ProcessId, action: ActionOf<P>) {
        match action {
            Action::Fact(_) | Action::Send { to: To::One(_), .. } => unreachable!("performed by the caller"),
            Action::Send { to: To::Cluster(cluster), packet } => {
                for &to in self.federation.processes_of(cluster).clone().iter().filter(|&&to| to != process) {
                    self.send(process, to, packet.clone());
                }
            }
            Action::Persist(image) => {
                let image = if self.paranoid { Arc::new(through_bytes(&*image)) } else { image };
                self.store(process, Operation::Persist(image));
            }
            Action::Read(name) => self.store(process, Operation::Read(name)),
            Action::List => self.store(process, Operation::List),
            Action::Delete(name) => self.store(process, Operation::Delete(name)),
            Action::Record { version, bytes } => self.store(process, Operation::Record { version, bytes }),
            Action::Started => {
                let life = self.sim_processes[process.index()].life;
                self.send_report(process, Report::Started { process, life });
            }
            Action::Held => {
                let life = self.sim_processes[process.index()].life;
                self.send_report(process, Report::Held { process, life });
            }
            Action::Compute(no, job) => {
                let begun = self.processors.as_ref().map_or(self.now, |it| it.free(process, self.now));
                let sim_process = &mut self.sim_processes[process.index()];
                let at = begun + job.cost().percent(sim_process.percent);
                sim_process.jobs.push((no, job));
                let life = sim_process.life;
                self.queue.push(at, || SimEvent::Due(process, life, Due::Computed(no)));
            }
        }
    }

    fn store(&mut self, process: ProcessId, operation: Operation<P>) {
        let at = self.storages[process.index()].submit(operation, self.now, &self.storage_costs);
        let life = self.sim_processes[process.index()].life;
        self.queue.push(at, || SimEvent::Due(process, life, Due::Stored));
    }

    /// Returns the kinds of facts that the sink, the supervisor or the recorder needs.
    pub(crate) fn taken_kinds(&self) -> FactKinds {
        // A recording is compared with a replay, which reports all facts.
        if self.recorder.is_some() { FactKinds::ALL } else { S::TAKES.union(self.followed_kinds) }
    }

    /// Numbers a fact, reports it if the supervisor follows or waits for it, and records it. Returns `true` if the
    /// process halts at it.
    #[inline]
    fn record_fact(&mut self, process: ProcessId, fact: &mut Fact) -> bool {
        let kind = fact.kind();
        let halted = self.followed_kinds.contains(kind) && self.report_fact(process, fact);
        let sim_process = &mut self.sim_processes[process.index()];
        let (life, number) = (sim_process.life, FactNo(sim_process.facts));
        sim_process.facts += 1;
        if S::TAKES.contains(kind) {
            self.sink.take(process, life, number, self.now, fact);
        }
        halted
    }

    /// Reports a fact that the supervisor follows or waits for. Returns `true` if the process halts at it.
    fn report_fact(&mut self, process: ProcessId, fact: &Fact) -> bool {
        let cluster = self.addresses[process.index()].cluster;
        let halted = self.triggers.iter().any(|trigger| trigger.matches(fact, process, cluster));
        let sim_process = &mut self.sim_processes[process.index()];
        sim_process.halted = halted;
        let report = Report::Fact { process, life: sim_process.life, fact: fact.clone(), halted };
        self.send_report(process, report);
        halted
    }
}
