//! Communication between the supervisor and the processes: delivery of reports, and execution of orders.

use std::sync::Arc;

use faultline_core::{Fact, FactNo, Life, Membership, Process, ProcessId, Span, StorageFate, Time};
use faultline_supervisor::{Order, Report};
use faultline_trace::{Record, Sink};

use crate::config::InFlight;
use crate::sim_process::Due;
use crate::simulation::{SimEvent, Simulation};

impl<P: Process, S: Sink> Simulation<'_, P, S> {
    /// Sends a process's report to the supervisor, after all its earlier reports.
    pub(crate) fn send_report(&mut self, process: ProcessId, report: Report) {
        self.send_report_after(process, Span::ZERO, report);
    }

    fn send_report_after(&mut self, process: ProcessId, delay: Span, report: Report) {
        let at = self.now + delay + self.control_delay();
        let sim_process = &mut self.sim_processes[process.index()];
        sim_process.reported = sim_process.reported.max(at);
        self.queue.push(sim_process.reported, || SimEvent::Report(Box::new(report)));
    }

    fn control_delay(&mut self) -> Span {
        self.control.delay + self.control_random.span(self.control.jitter)
    }

    /// Passes a report that has arrived to the supervisor.
    pub(crate) fn report(&mut self, report: Report) {
        if matches!(report, Report::Fact { halted: true, .. }) {
            self.refresh_gauges_for_plan();
        }
        let first = matches!(report, Report::Registered { life: Life(1), .. });
        self.tell(report);
        if first {
            self.unregistered -= 1;
            if self.unregistered == 0 {
                // The links of a simulation are exact by construction, so they are not measured.
                self.tell(Report::LinksMeasured);
            }
        }
        self.set_supervisor_timer();
    }

    pub(crate) fn fire_supervisor_timer(&mut self) {
        if self.supervisor_timer == self.now {
            self.supervisor_timer = Time::NEVER;
            self.refresh_gauges_for_plan();
            self.tell(Report::Timeout);
            self.set_supervisor_timer();
        }
    }

    pub(crate) fn set_supervisor_timer(&mut self) {
        if let Some(deadline) = self.supervisor.next_deadline() {
            let deadline = deadline.max(self.now);
            if deadline < self.supervisor_timer {
                self.supervisor_timer = deadline;
                self.queue.push(deadline, || SimEvent::SupervisorTimer);
            }
        }
    }

    fn tell(&mut self, report: Report) {
        self.supervisor.handle(report, self.now, &mut self.orders);
        self.perform_orders();
    }

    /// Updates the figures for remaining work that the supervisor considers when it injects a fault.
    fn refresh_gauges_for_plan(&mut self) {
        if self.has_plan {
            self.refresh_gauges();
        }
    }

    pub(crate) fn refresh_gauges(&mut self) {
        for (index, sim_process) in self.sim_processes.iter().enumerate() {
            if let Some(value) = sim_process.process.as_ref() {
                let (process, life, gauges) = (ProcessId(index as u32), sim_process.life, value.gauges());
                self.supervisor.handle(Report::Gauges { process, life, gauges }, self.now, &mut self.orders);
            }
        }
        self.perform_orders();
    }

    pub(crate) fn perform_orders(&mut self) {
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.drain(..) {
            self.perform_order(order);
        }
        self.orders = orders;
    }

    fn perform_order(&mut self, order: Order) {
        match order {
            Order::Launch { process, life, boot } => {
                self.sim_processes[process.index()].launch(life, boot);
                let launch = self.control.launch;
                self.send_report_after(process, launch, Report::Registered { process, life });
            }
            Order::Announce(membership) => self.announce(membership),
            Order::Watch(triggers) => self.triggers = triggers,
            Order::Go { process, life } => {
                let sim_process = &mut self.sim_processes[process.index()];
                if sim_process.alive && sim_process.life == life {
                    sim_process.halted = false;
                    self.proceed(process);
                }
            }
            Order::Prepare { .. }
            | Order::SetUp { .. }
            | Order::Check { .. }
            | Order::Stop { .. }
            | Order::Split { .. } => {
                unreachable!("a system runs only in real time")
            }
            Order::Pause { process, life, paused } => {
                let sim_process = &mut self.sim_processes[process.index()];
                if sim_process.alive && sim_process.life == life {
                    sim_process.paused = paused;
                    self.proceed(process);
                }
            }
            Order::Kill { lives, storage } => {
                for (process, life) in lives {
                    self.kill(process, life, storage);
                }
            }
            Order::Link { from, to, properties, .. } => {
                self.network.set_properties(self.network.link(from, to), properties);
            }
            Order::Relink { .. } => unreachable!("no user changes a federation in virtual time"),
            Order::Cut { from, to, cut } => {
                let link = self.network.link(from, to);
                self.network.set_cut(link, cut);
                if !cut {
                    for flight in self.held.remove(&link).into_iter().flatten() {
                        self.carry(flight);
                    }
                }
            }
            Order::Impair { process, in_force, .. } => {
                self.storages[process.index()].set_fault(in_force.storage());
                self.sim_processes[process.index()].percent = in_force.percent();
            }
            Order::Flip { process, flip, .. } => {
                let life = self.sim_processes[process.index()].life;
                self.queue.push(self.now, || SimEvent::Due(process, life, Due::Flip(flip)));
            }
            Order::Record(fact) => self.record_own_fact(fact),
            Order::End(outcome) => self.outcome = Some(outcome),
        }
    }

    fn announce(&mut self, membership: Arc<Membership>) {
        for index in 0..self.sim_processes.len() {
            let member = &membership.members[index];
            let address = &mut self.addresses[index];
            if address.life != member.life {
                (address.life, address.since) = (member.life, membership.version);
            }
            let sim_process = &mut self.sim_processes[index];
            let reaches = member.up && sim_process.alive && sim_process.life == member.life;
            if reaches && sim_process.coming.replace(membership.clone()).is_none() {
                let life = sim_process.life;
                let at = self.now + self.control_delay();
                self.queue.push(at, || SimEvent::Due(ProcessId(index as u32), life, Due::Membership));
            }
        }
    }

    fn kill(&mut self, process: ProcessId, life: Life, storage: StorageFate) {
        let sim_process = &mut self.sim_processes[process.index()];
        if sim_process.life != life {
            return;
        }
        let died = sim_process.alive;
        if died {
            sim_process.end();
            let until = self.end_of_echo();
            self.echoes.insert((process, life), until);
        }
        self.storages[process.index()].crash(self.now, storage);
        if let Some(processors) = &mut self.processors {
            processors.end(process, self.now);
        }
        if let (true, Some(notice)) = (died, self.control.exit_notice) {
            self.send_report_after(process, notice, Report::Exited { process, life });
        }
    }

    /// Returns the time until which packets still arrive from a life that is killed now.
    fn end_of_echo(&mut self) -> Time {
        match self.chance.in_flight {
            InFlight::Lost => self.now,
            InFlight::Kept => Time::NEVER,
            InFlight::Sampled => match self.failure_random.below(3) {
                0 => self.now,
                1 => {
                    // Uniform in the logarithm, from 2^10 ns to 2^30 ns, because links differ by orders of
                    // magnitude.
                    let magnitude = 1 << (10 + self.failure_random.below(20));
                    self.now + Span(magnitude + self.failure_random.below(magnitude))
                }
                _ => Time::NEVER,
            },
        }
    }

    fn record_own_fact(&mut self, fact: Fact) {
        let number = FactNo(self.supervisor_facts);
        self.supervisor_facts += 1;
        self.sink.record(Record {
            process: ProcessId::SUPERVISOR,
            life: Life(0),
            number,
            at: self.now,
            fact,
        });
    }
}
