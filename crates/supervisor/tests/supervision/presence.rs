//! Tests of clusters that join at their scheduled time, and leave once their protocol releases them.

use std::sync::Arc;

use faultline_core::{
    Boot, Claim, Cluster, ClusterId, Digest, EndedBy, Fact, FactKind, Fault, FaultNo, Incarnation, Life,
    Membership, MembershipVersion, PlannedFault, Presence, ProcessId, Scope, Span, StorageFate, Time,
    Trigger, Witness,
};
use faultline_supervisor::{Config, FaultState, Order, Outcome, Report, Supervisor};

use crate::member;

const HOST: ProcessId = ProcessId(0);
const GUESTS: [ProcessId; 2] = [ProcessId(1), ProcessId(2)];
const GUEST: ClusterId = ClusterId(1);
const JOINS: u64 = 1000;

struct TestDriver {
    supervisor: Supervisor,
    now: Time,
    orders: Vec<Order>,
}

impl TestDriver {
    /// Creates a supervisor of a permanent cluster and a cluster that joins later. All processes have registered.
    fn begun(plan: Vec<PlannedFault>) -> TestDriver {
        TestDriver::with(plan, Presence::Awaited, vec![(GUEST, Span(JOINS))], Vec::new(), false)
    }

    /// Creates a supervisor that announces, at `JOINS`, that the second cluster is about to leave.
    fn leaving(plan: Vec<PlannedFault>) -> TestDriver {
        TestDriver::with(plan, Presence::Present, Vec::new(), vec![(GUEST, Span(JOINS))], false)
    }

    fn with(
        plan: Vec<PlannedFault>,
        presence: Presence,
        joins: Vec<(ClusterId, Span)>,
        leaves: Vec<(ClusterId, Span)>,
        is_planned: bool,
    ) -> TestDriver {
        let guest = Cluster { processes: GUESTS.into(), presence };
        let membership = Membership {
            version: MembershipVersion(0),
            members: Arc::new([member(0, 0), member(1, 1), member(1, 2)]),
            clusters: Arc::new([Cluster::new([HOST].into()), guest]),
        };
        let config = Config {
            detect_after: Span(100),
            restart_after: Span(50),
            spares: 0,
            volatile_storage: false,
            deadline: Span(100_000),
            start_within: Some(Span(100_000)),
            plan,
            scope: Scope::Cluster,
            joins,
            leaves,
            is_planned,
            least_work_left_percent: 0,
            system: None,
        };
        let mut orders = Vec::new();
        let supervisor = Supervisor::new(config, membership, &mut orders);
        let mut driver = TestDriver { supervisor, now: Time::ZERO, orders };
        for process in [HOST].into_iter().chain(GUESTS) {
            driver.report(Report::Registered { process, life: Life(1) });
        }
        driver.report(Report::LinksMeasured);
        driver
    }

    fn report(&mut self, report: Report) {
        self.supervisor.handle(report, self.now, &mut self.orders);
    }

    /// Advances the time. Returns the orders since the last call.
    fn pass(&mut self, to: u64) -> Vec<Order> {
        while let Some(deadline) = self.supervisor.next_deadline().filter(|it| *it <= Time(to)) {
            self.now = self.now.max(deadline);
            self.report(Report::Timeout);
        }
        self.now = Time(to);
        std::mem::take(&mut self.orders)
    }

    fn state(&mut self, process: ProcessId, fact: Fact) {
        self.report(Report::Fact { process, life: Life(1), fact, halted: false });
    }

    fn finish(&mut self, process: ProcessId) {
        self.state(process, Fact::Finished(Box::new((Witness::default(), Digest([0; 16])))));
    }

    fn release(&mut self) {
        self.state(GUESTS[0], Fact::Claim(Box::new(Claim::Released { cluster: GUEST })));
    }
}

/// Returns the last announced membership: whether each process is up, and the presence of the second cluster.
fn announced(orders: &[Order]) -> Option<(Vec<bool>, Presence)> {
    orders.iter().rev().find_map(|order| match order {
        Order::Announce(it) => {
            Some((it.members.iter().map(|member| member.up).collect(), it.clusters[1].presence))
        }
        _ => None,
    })
}

fn leaves(orders: &[Order]) -> bool {
    orders.contains(&Order::Record(Fact::Left(GUEST)))
}

#[test]
fn a_cluster_joins_at_its_scheduled_time_with_all_its_processes() {
    let mut driver = TestDriver::begun(Vec::new());
    assert_eq!(announced(&driver.pass(JOINS - 1)), Some((vec![true, false, false], Presence::Awaited)));
    let orders = driver.pass(JOINS);
    assert!(orders.contains(&Order::Record(Fact::Joined(GUEST))));
    assert_eq!(announced(&orders), Some((vec![true, true, true], Presence::Present)));
}

#[test]
fn a_cluster_with_a_failed_process_joins_once_it_is_up_again() {
    let mut driver = TestDriver::begun(Vec::new());
    driver.pass(JOINS - 10);
    driver.report(Report::Exited { process: GUESTS[1], life: Life(1) });
    assert_eq!(announced(&driver.pass(JOINS + 30)), None, "the cluster has not been announced yet");
    let orders = driver.pass(JOINS + 50);
    let launched = Order::Launch { process: GUESTS[1], life: Life(2), boot: Boot::Fresh };
    assert!(orders.contains(&launched), "{orders:?}");
    driver.report(Report::Registered { process: GUESTS[1], life: Life(2) });
    assert_eq!(announced(&driver.pass(JOINS + 51)), Some((vec![true, true, true], Presence::Present)));
}

#[test]
fn a_process_whose_place_is_lost_before_it_joins_has_lost_nothing() {
    let mut driver = TestDriver::begun(Vec::new());
    let lost = |life, storage, by| Report::Lost { process: GUESTS[1], life, storage, by };
    driver.report(lost(Life(1), StorageFate::Kept, EndedBy::PlaceLost));
    driver.pass(60);
    driver.report(lost(Life(2), StorageFate::Lost, EndedBy::StorageLost));
    let launched = Order::Launch { process: GUESTS[1], life: Life(3), boot: Boot::Fresh };
    let orders = driver.pass(120);
    assert!(orders.contains(&launched), "{orders:?}");
    assert_eq!(announced(&orders), None, "it was not a member");
    driver.report(Report::Registered { process: GUESTS[1], life: Life(3) });
    assert_eq!(announced(&driver.pass(JOINS)), Some((vec![true, true, true], Presence::Present)));
    // The process needs its storage only from now on.
    driver.report(Report::Exited { process: GUESTS[1], life: Life(3) });
    let launched = Order::Launch { process: GUESTS[1], life: Life(4), boot: Boot::Restarted };
    assert!(driver.pass(JOINS + 60).contains(&launched));
}

#[test]
fn the_status_contains_the_presence_of_each_cluster() {
    let mut driver = TestDriver::begun(Vec::new());
    let presence = |driver: &TestDriver| driver.supervisor.status().clusters[1].presence;
    assert_eq!(presence(&driver), Presence::Awaited);
    driver.pass(JOINS);
    assert_eq!(presence(&driver), Presence::Present);
    GUESTS.into_iter().for_each(|it| driver.finish(it));
    driver.release();
    assert_eq!(presence(&driver), Presence::Left);
}

#[test]
fn a_cluster_leaves_once_released_and_finished() {
    let mut driver = TestDriver::begun(Vec::new());
    driver.pass(JOINS);
    driver.finish(GUESTS[0]);
    driver.release();
    assert!(!leaves(&driver.pass(JOINS + 1)), "the other process's report is in transit");
    driver.finish(GUESTS[1]);
    let orders = driver.pass(JOINS + 2);
    let lives = GUESTS.map(|it| (it, Life(1))).to_vec();
    assert!(leaves(&orders));
    assert!(orders.contains(&Order::Kill { lives, storage: StorageFate::Lost }));
    assert_eq!(announced(&orders), Some((vec![true, false, false], Presence::Left)));
    // The ends of these processes are not failures, and their results count.
    driver.report(Report::Exited { process: GUESTS[0], life: Life(1) });
    driver.report(Report::Lost {
        process: GUESTS[1],
        life: Life(1),
        storage: StorageFate::Lost,
        by: EndedBy::PlaceLost,
    });
    assert_eq!(driver.pass(JOINS + 5000), []);
    driver.finish(HOST);
    assert!(driver.orders.contains(&Order::End(Outcome::Completed)));
}

#[test]
fn a_planned_program_is_not_complete_before_its_partitions_have_moved_to_a_cluster_that_joined() {
    let mut driver =
        TestDriver::with(Vec::new(), Presence::Awaited, vec![(GUEST, Span(JOINS))], Vec::new(), true);
    for kind in [FactKind::Absorbed, FactKind::Ceded] {
        assert!(driver.supervisor.follows(kind), "{kind:?}");
    }
    driver.pass(JOINS);
    // The processes of the cluster run no partition yet. The recovery that moves their partitions to them may have
    // begun before these reports arrive.
    [HOST].into_iter().chain(GUESTS).for_each(|it| driver.finish(it));
    assert!(!driver.orders.contains(&Order::End(Outcome::Completed)));
    for guest in GUESTS {
        driver.state(guest, Fact::Absorbed(Box::new((guest, None, Witness::default(), Incarnation(3)))));
    }
    GUESTS.into_iter().for_each(|it| {
        assert!(!driver.orders.contains(&Order::End(Outcome::Completed)), "it reports its completion again");
        driver.finish(it);
    });
    assert!(driver.orders.contains(&Order::End(Outcome::Completed)));
}

#[test]
fn a_planned_program_is_not_complete_before_a_leaving_cluster_has_left() {
    let mut driver =
        TestDriver::with(Vec::new(), Presence::Present, Vec::new(), vec![(GUEST, Span(JOINS))], true);
    driver.pass(JOINS);
    [HOST].into_iter().chain(GUESTS).for_each(|it| driver.finish(it));
    assert!(!driver.orders.contains(&Order::End(Outcome::Completed)));
    driver.release();
    assert!(driver.orders.contains(&Order::End(Outcome::Completed)));
}

#[test]
fn a_cluster_with_a_failed_process_stays() {
    let mut driver = TestDriver::begun(Vec::new());
    driver.pass(JOINS);
    driver.release();
    driver.report(Report::Exited { process: GUESTS[1], life: Life(1) });
    driver.pass(JOINS + 100);
    driver.report(Report::Registered { process: GUESTS[1], life: Life(2) });
    driver.finish(GUESTS[0]);
    driver.report(Report::Fact {
        process: GUESTS[1],
        life: Life(2),
        fact: Fact::Finished(Box::new((Witness::default(), Digest([0; 16])))),
        halted: false,
    });
    assert!(!leaves(&driver.pass(JOINS + 200)), "the process must recover first");
    driver.release();
    assert!(leaves(&driver.pass(JOINS + 201)));
}

#[test]
fn faults_have_no_effect_on_an_absent_cluster() {
    let crash = |no, at| PlannedFault {
        no: FaultNo(no),
        trigger: Trigger::At(Time(at)),
        fault: Fault::kill(GUEST, StorageFate::Lost),
        reported: None,
        cause: None,
    };
    let mut driver = TestDriver::begun(vec![crash(0, JOINS / 2), crash(1, JOINS * 3)]);
    driver.pass(JOINS * 2);
    GUESTS.into_iter().for_each(|it| driver.finish(it));
    driver.release();
    driver.pass(JOINS * 4);
    let reasons = ["its target had not joined", "its target had left"];
    let found: Vec<_> = driver.supervisor.faults().into_iter().map(|(_, state)| state).collect();
    assert_eq!(found, reasons.map(|it| FaultState::Ineffective(it.into())));
}

#[test]
fn a_cluster_whose_departure_was_announced_leaves_once_released() {
    let mut driver = TestDriver::leaving(Vec::new());
    driver.release();
    assert!(!leaves(&driver.pass(JOINS - 1)), "the departure was not announced");
    let mut driver = TestDriver::leaving(Vec::new());
    driver.pass(JOINS - 1);
    let orders = driver.pass(JOINS);
    assert!(orders.contains(&Order::Record(Fact::Leaving(GUEST))));
    assert_eq!(announced(&orders), Some((vec![true, true, true], Presence::Leaving)));
    driver.state(HOST, Fact::Claim(Box::new(Claim::Released { cluster: GUEST })));
    let orders = driver.pass(JOINS + 1);
    assert!(leaves(&orders), "no process needs to have finished");
    let lives = GUESTS.map(|it| (it, Life(1))).to_vec();
    assert!(orders.contains(&Order::Kill { lives, storage: StorageFate::Lost }));
    assert_eq!(announced(&orders), Some((vec![true, false, false], Presence::Left)));
    driver.finish(HOST);
    assert!(driver.pass(JOINS + 2).contains(&Order::Record(Fact::Completed)), "the others finish alone");
}

#[test]
fn a_cluster_that_joins_after_it_was_due_to_leave_leaves_at_once() {
    let joins = vec![(GUEST, Span(JOINS))];
    let mut driver = TestDriver::with(Vec::new(), Presence::Awaited, joins, vec![(GUEST, Span(1))], false);
    driver.pass(1);
    let orders = driver.pass(JOINS);
    let recorded = |fact: Fact| orders.iter().position(|it| *it == Order::Record(fact.clone()));
    assert!(recorded(Fact::Joined(GUEST)).is_some());
    assert!(recorded(Fact::Joined(GUEST)) < recorded(Fact::Leaving(GUEST)));
}

#[test]
fn a_released_cluster_with_a_failed_process_stays_until_it_is_released_again() {
    let mut driver = TestDriver::leaving(Vec::new());
    driver.pass(JOINS);
    driver.report(Report::Exited { process: GUESTS[1], life: Life(1) });
    driver.release();
    driver.pass(JOINS + 60);
    driver.report(Report::Registered { process: GUESTS[1], life: Life(2) });
    assert!(!leaves(&driver.pass(JOINS + 70)), "the release preceded the recovery");
    driver.release();
    assert!(leaves(&driver.pass(JOINS + 80)));
}

#[test]
fn a_process_that_cedes_a_partition_has_to_finish_again() {
    let mut driver = TestDriver::leaving(Vec::new());
    driver.finish(HOST);
    driver.finish(GUESTS[0]);
    driver.state(GUESTS[0], Fact::Ceded { partition: GUESTS[0], epoch: Incarnation(5) });
    driver.finish(GUESTS[1]);
    assert!(!driver.pass(1).contains(&Order::Record(Fact::Completed)));
    driver.finish(GUESTS[0]);
    assert!(driver.pass(2).contains(&Order::Record(Fact::Completed)));
}
