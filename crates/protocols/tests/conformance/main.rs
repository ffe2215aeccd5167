//! Runs the tests of the driver contract on the harness of the protocols' tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_conformance::{Driver, Evidence, Probe, Scenario, cases};
use faultline_core::fault::{FaultState, Impairment, Outcome, StorageFault};
use faultline_core::{
    EndedBy, Fact, Fault, Life, PlannedFault, ProcessId, StorageFate, Target, Time, Trigger, Witness,
};
use faultline_trace::Trace;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

#[allow(dead_code, unused_imports, reason = "these tests use only the driver")]
#[path = "../harness/mod.rs"]
mod harness;

use harness::{Hold, Hosts};

/// The harness as a driver under test. All steps that are possible at one time are performed before time advances.
#[derive(Default)]
struct Harness {
    /// Whether the possible steps are performed in a random order.
    any_order: bool,
    /// Whether packets outlive the life that sent them.
    output_survives: bool,
    /// How this driver violates the contract; `None` if it obeys the contract.
    mistake: Option<Mistake>,
}

/// How a driver violates the contract.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    /// Every packet arrives twice.
    Duplicates,
    /// Packets overtake each other, although the process requires FIFO channels.
    Overtakes,
    /// Storage that should be lost is kept.
    KeepsStorage,
    /// Storage that should be kept is lost.
    LosesStorage,
    /// A process restarts before its failure has been announced.
    RestartsUnannounced,
}

/// A scheduled action of the test, which plays the role of the supervisor.
enum Due {
    Fault(PlannedFault),
    Detect(ProcessId),
    Restart(ProcessId),
    RepairStorage(ProcessId),
    Heal(Hold),
}

/// Scheduled actions by time. Actions for the same time are performed in the order in which they were scheduled.
#[derive(Default)]
struct Agenda {
    actions: BTreeMap<(Time, usize), Due>,
    scheduled: usize,
}

impl Agenda {
    fn add(&mut self, at: Time, due: Due) {
        self.actions.insert((at, self.scheduled), due);
        self.scheduled += 1;
    }

    fn next_time(&self) -> Option<Time> {
        self.actions.keys().next().map(|&(at, _)| at)
    }

    fn pop(&mut self, now: Time) -> Option<Due> {
        let entry = self.actions.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

impl Driver for Harness {
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence {
        let mut membership = scenario.membership();
        for member in Arc::make_mut(&mut membership.members) {
            (member.life, member.up) = (Life(1), true);
        }
        let mut hosts = Hosts::<Probe<FIFO>>::start(membership, scenario.script.clone());
        if self.output_survives {
            hosts.let_output_survive();
        }
        match self.mistake {
            Some(Mistake::Duplicates) => hosts.duplicate(|_| true),
            Some(Mistake::Overtakes) => hosts.let_packets_overtake(),
            _ => {}
        }
        let mut dice = ChaCha8Rng::seed_from_u64(scenario.seed);
        let mut agenda = Agenda::default();
        let (mut waiting, mut faults) = (Vec::new(), Vec::new());
        for planned in &scenario.supervisor.plan {
            match planned.trigger {
                Trigger::At(at) => agenda.add(at, Due::Fault(planned.clone())),
                Trigger::When { .. } => waiting.push(planned.clone()),
            }
        }
        let mut now = Time::ZERO;
        loop {
            for planned in waiting.extract_if(.., |it| is_triggered(&it.trigger, hosts.trace())) {
                agenda.add(now, Due::Fault(planned));
            }
            while let Some(due) = agenda.pop(now) {
                if let Due::Fault(PlannedFault { no, .. }) = due {
                    faults.push((no, FaultState::Effective));
                }
                self.perform(due, now, scenario, &mut hosts, &mut agenda);
            }
            let has_stepped = if self.any_order {
                hosts.step_any(|count| dice.random_range(0..count))
            } else {
                hosts.step()
            };
            if has_stepped {
                continue;
            }
            let Some(next) = hosts.next_time().into_iter().chain(agenda.next_time()).min() else { break };
            now = next;
            hosts.advance(now);
        }
        let trace = hosts.trace().clone();
        Evidence { outcome: outcome(&trace, scenario), trace, faults }
    }
}

impl Harness {
    fn perform<const FIFO: bool>(
        &self,
        due: Due,
        now: Time,
        scenario: &Scenario,
        hosts: &mut Hosts<Probe<FIFO>>,
        agenda: &mut Agenda,
    ) {
        let fate = |storage| match self.mistake {
            Some(Mistake::KeepsStorage) => StorageFate::Kept,
            Some(Mistake::LosesStorage) => StorageFate::Lost,
            _ if scenario.supervisor.volatile_storage => StorageFate::Lost,
            _ => storage,
        };
        match due {
            Due::Fault(PlannedFault { no, fault, .. }) => match fault {
                Fault::Kill { target, storage, returns: true, .. } => {
                    let killed = match target {
                        Target::Process(process) => vec![process],
                        Target::Cluster(cluster) | Target::Rack { cluster, .. } => {
                            target.among(&hosts.members(cluster)).to_vec()
                        }
                    };
                    for process in killed {
                        hosts.kill_by(EndedBy::Fault(no), process, fate(storage));
                        agenda.add(now + scenario.supervisor.detect_after, Due::Detect(process));
                    }
                }
                Fault::Impair { process, how: Impairment::Storage(how), span } => {
                    match how {
                        StorageFault::Full => hosts.fail_writes(process, true),
                        StorageFault::Corrupt => hosts.corrupt(process),
                        StorageFault::Slow(_) => panic!("the storage of the harness has no speed"),
                    }
                    if let Some(span) = span {
                        agenda.add(now + span, Due::RepairStorage(process));
                    }
                }
                partition @ Fault::Partition { span, .. } => {
                    let cut = partition.cuts();
                    let membership = hosts.membership().clone();
                    let hold = hosts.hold(move |flight| {
                        let link = (membership.cluster_of(flight.from), membership.cluster_of(flight.to));
                        cut.contains(&link)
                    });
                    agenda.add(now + span, Due::Heal(hold));
                }
                other => panic!("the harness cannot inject {other:?}"),
            },
            Due::Detect(process) => {
                if self.mistake != Some(Mistake::RestartsUnannounced) {
                    hosts.detect(process);
                }
                agenda.add(now + scenario.supervisor.restart_after, Due::Restart(process));
            }
            Due::Restart(process) => hosts.restart(process),
            Due::RepairStorage(process) => hosts.repair_storage(process),
            Due::Heal(hold) => hosts.release(hold),
        }
    }
}

/// Returns whether a fault that waits for a fact is due. The process has then performed the other actions of the same
/// event as well, but none of their effects has reached another process or the storage.
fn is_triggered(trigger: &Trigger, trace: &Trace) -> bool {
    let &Trigger::When { fact: kind, of: None, cluster: None, process: Some(process), occurrence } = trigger
    else {
        panic!("the contract's tests wait for a fact of one process");
    };
    let facts = trace.lives(process).flat_map(|(_, facts)| facts);
    facts.filter(|(_, fact)| fact.kind() == kind).count() >= occurrence as usize
}

/// Returns the outcome of a run in which nothing more can happen: completed if every process has finished,
/// and all messages counted by the probes have arrived.
fn outcome(trace: &Trace, scenario: &Scenario) -> Outcome {
    let last_witness = |process| {
        let (_, facts) = trace.lives(process).last()?;
        facts.iter().rev().find_map(|(_, fact)| match fact {
            Fact::Finished(finished) => Some(finished.0),
            _ => None,
        })
    };
    let finished: Option<Vec<Witness>> = scenario.processes().map(last_witness).collect();
    let arrived = finished.is_some_and(|all| {
        all.iter().map(|it| it.sent).sum::<u64>() == all.iter().map(|it| it.delivered).sum::<u64>()
    });
    if arrived { Outcome::Completed } else { Outcome::Deadline }
}

mod in_order {
    faultline_conformance::conformance_tests!(super::Harness::default(), without suspension);
}

/// Packets overtake each other and memberships, and outlive the life that sent them.
mod in_any_order {
    faultline_conformance::conformance_tests!(
        super::Harness { any_order: true, output_survives: true, ..Default::default() },
        without suspension
    );
}

/// Each mistake of a driver makes one of the tests fail.
mod mistakes {
    use super::{Harness, Mistake, cases};

    fn with(mistake: Mistake) -> Harness {
        Harness { any_order: true, mistake: Some(mistake), ..Default::default() }
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn duplicated_packets_are_detected() {
        cases::lives_do_not_mix(&mut Harness { any_order: false, ..with(Mistake::Duplicates) });
    }

    #[test]
    #[should_panic(expected = "p1->p0: [")]
    fn packets_that_overtake_are_detected() {
        cases::fifo_keeps_the_order_of_every_pair(&mut with(Mistake::Overtakes));
    }

    #[test]
    #[should_panic(expected = "left: Started { boot: Restarted")]
    fn storage_that_is_not_lost_is_detected() {
        cases::lost_storage_is_empty_and_the_loss_is_remembered(&mut with(Mistake::KeepsStorage));
    }

    #[test]
    #[should_panic(expected = "left: [[]]")]
    fn storage_that_is_lost_without_reason_is_detected() {
        cases::a_crash_keeps_what_was_durable_and_nothing_else(&mut with(Mistake::LosesStorage));
    }

    #[test]
    #[should_panic(expected = "left: 3")]
    fn a_restart_before_the_announcement_is_detected() {
        cases::a_lost_cluster_returns(&mut with(Mistake::RestartsUnannounced));
    }
}
