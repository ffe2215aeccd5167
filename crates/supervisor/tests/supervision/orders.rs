//! Tests of the orders that the supervisor issues in response to reports.

use std::sync::Arc;

use faultline_core::fault::{Impairment, Impairments, LinkProperties, StorageFault};
use faultline_core::{
    Attempt, Boot, Claim, Cluster, ClusterId, Digest, EndedBy, Fact, FactKind, FactNo, Fault, FaultNo,
    Gauges, GroupId, ImageName, Incarnation, Life, Membership, MembershipVersion, PlannedFault, Position,
    ProcessId, Progress, Sn, Span, StorageFate, Time, Trigger, Vectors, Witness,
};
use faultline_supervisor::{Config, FaultState, Order, Outcome, Report, Supervisor};

use crate::member;

const P0: ProcessId = ProcessId(0);
const P1: ProcessId = ProcessId(1);
const P2: ProcessId = ProcessId(2);
const C0: ClusterId = ClusterId(0);
const C1: ClusterId = ClusterId(1);

const DETECT_AFTER: Span = Span(100);
const RESTART_AFTER: Span = Span(50);
const DEADLINE: Span = Span(100_000);
/// Time at which the application begins in these tests.
const BEGUN: Time = Time(1000);

/// Returns the membership of two clusters: cluster 0 with P0 and P1, and cluster 1 with P2.
fn membership() -> Membership {
    let cluster = |processes: &[ProcessId]| Cluster::new(processes.into());
    Membership {
        version: MembershipVersion(0),
        members: Arc::new([member(0, 0), member(0, 1), member(1, 2)]),
        clusters: Arc::new([cluster(&[P0, P1]), cluster(&[P2])]),
    }
}

/// A supervisor, and the orders that the test has not checked yet.
struct TestDriver {
    supervisor: Supervisor,
    now: Time,
    orders: Vec<Order>,
}

impl TestDriver {
    fn new(plan: Vec<(Trigger, Fault)>) -> TestDriver {
        TestDriver::with(plan, |_| {})
    }

    fn with(plan: Vec<(Trigger, Fault)>, change: impl FnOnce(&mut Config)) -> TestDriver {
        let numbered = plan.into_iter().enumerate();
        let mut config = Config {
            detect_after: DETECT_AFTER,
            restart_after: RESTART_AFTER,
            spares: 0,
            volatile_storage: false,
            deadline: DEADLINE,
            start_within: Some(DEADLINE),
            plan: numbered
                .map(|(no, (trigger, fault))| PlannedFault {
                    no: FaultNo(no as u32),
                    trigger,
                    fault,
                    reported: None,
                    cause: None,
                })
                .collect(),
            scope: faultline_core::Scope::Cluster,
            joins: Vec::new(),
            leaves: Vec::new(),
            is_planned: false,
            least_work_left_percent: 20,
            system: None,
        };
        change(&mut config);
        let mut orders = Vec::new();
        let supervisor = Supervisor::new(config, membership(), &mut orders);
        TestDriver { supervisor, now: Time::ZERO, orders }
    }

    /// Same as [`TestDriver::new`], but begins the application at [`BEGUN`] and discards the orders so far.
    fn begun(plan: Vec<(Trigger, Fault)>) -> TestDriver {
        let mut driver = TestDriver::new(plan);
        driver.begin();
        driver
    }

    fn begin(&mut self) {
        self.now = BEGUN;
        for process in [P0, P1, P2] {
            self.report(Report::Registered { process, life: Life(1) });
        }
        self.report(Report::LinksMeasured);
        self.take();
    }

    fn report(&mut self, report: Report) {
        self.supervisor.handle(report, self.now, &mut self.orders);
    }

    /// Advances the time to `to`, with a timeout whenever the supervisor wants one.
    fn pass(&mut self, to: Time) {
        while let Some(deadline) = self.supervisor.next_deadline().filter(|it| *it <= to) {
            self.now = self.now.max(deadline);
            self.report(Report::Timeout);
        }
        self.now = to;
    }

    fn take(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Returns the membership that is announced now, and discards the other orders.
    fn announced(&mut self) -> Arc<Membership> {
        self.pass(self.now);
        let announced = self.take().into_iter().rev().find_map(|order| match order {
            Order::Announce(membership) => Some(membership),
            _ => None,
        });
        announced.expect("a membership is announced")
    }

    fn exited(&mut self, process: ProcessId, life: u32) {
        self.report(Report::Exited { process, life: Life(life) });
    }

    fn registered(&mut self, process: ProcessId, life: u32) {
        self.report(Report::Registered { process, life: Life(life) });
    }

    fn heartbeat(&mut self, process: ProcessId, life: u32) {
        self.report(Report::Heartbeat { process, life: Life(life), gauges: Gauges::default() });
    }

    fn fact(&mut self, process: ProcessId, fact: Fact, halted: bool) {
        self.report(Report::Fact { process, life: Life(1), fact, halted });
    }

    fn finished(&mut self, process: ProcessId, life: u32, sent: u64, delivered: u64) {
        let witness = Witness { life: Life(life), upto: FactNo(0), sent, delivered };
        let fact = Fact::Finished(Box::new((witness, Digest([0; 16]))));
        self.report(Report::Fact { process, life: Life(life), fact, halted: false });
    }

    fn fault(&self, no: usize) -> FaultState {
        self.supervisor.faults()[no].1.clone()
    }
}

fn crash(process: ProcessId) -> Fault {
    Fault::crash(process)
}

fn at(after: u64) -> Trigger {
    Trigger::At(Time(after))
}

fn when(fact: FactKind, cluster: Option<ClusterId>, occurrence: u32) -> Trigger {
    Trigger::When { fact, of: None, cluster, process: None, occurrence }
}

fn launch(process: ProcessId, life: u32, boot: Boot) -> [Order; 2] {
    let life = Life(life);
    [Order::Record(Fact::LifeStarted { process, life, boot }), Order::Launch { process, life, boot }]
}

/// Returns the order to record that the first fault of the plan ended a life.
fn failed(process: ProcessId, life: u32, storage: StorageFate) -> Order {
    ended(process, life, storage, EndedBy::Fault(FaultNo(0)))
}

fn ended(process: ProcessId, life: u32, storage: StorageFate, by: EndedBy) -> Order {
    Order::Record(Fact::Failed { process, life: Life(life), storage, by })
}

fn kill(lives: &[(ProcessId, u32)], storage: StorageFate) -> Order {
    Order::Kill { lives: lives.iter().map(|&(process, life)| (process, Life(life))).collect(), storage }
}

fn detected(process: ProcessId, life: u32) -> Order {
    Order::Record(Fact::Detected { process, life: Life(life) })
}

fn protected() -> Fact {
    Fact::Claim(Box::new(Claim::Protected))
}

fn go(process: ProcessId) -> Order {
    Order::Go { process, life: Life(1) }
}

fn is_announcement(order: &Order) -> bool {
    matches!(order, Order::Announce(_))
}

fn state_of(membership: &Membership, process: ProcessId) -> (u32, bool) {
    let member = membership.member(process);
    (member.life.0, member.up)
}

// Start

#[test]
fn all_processes_are_launched_and_start_once_registered_and_measured() {
    let trigger = when(FactKind::Delivered, None, 2);
    let mut driver = TestDriver::new(vec![(trigger.clone(), crash(P0))]);
    let mut expected = vec![Order::Watch(Arc::new([trigger]))];
    for process in [P0, P1, P2] {
        expected.extend(launch(process, 1, Boot::Fresh));
    }
    assert_eq!(driver.take(), expected);

    driver.now = BEGUN;
    driver.registered(P0, 1);
    driver.registered(P1, 1);
    driver.registered(P1, 1);
    driver.report(Report::LinksMeasured);
    assert_eq!(driver.take(), [], "one process has not registered");
    driver.registered(P2, 1);
    let orders = driver.take();
    assert_eq!(orders[0], Order::Record(Fact::Begun));
    let [_, Order::Announce(membership)] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!(membership.version, MembershipVersion(1));
    for process in [P0, P1, P2] {
        assert_eq!(state_of(membership, process), (1, true));
    }
    assert!(membership.members.iter().all(|member| !member.started));
    assert_eq!(driver.supervisor.status().begun, Some(BEGUN));
}

#[test]
fn a_life_that_ends_before_the_start_is_replaced_first() {
    let mut driver = TestDriver::new(vec![]);
    driver.take();
    driver.registered(P0, 1);
    driver.registered(P1, 1);
    driver.exited(P1, 1);
    driver.registered(P2, 1);
    driver.report(Report::LinksMeasured);
    assert_eq!(driver.take(), [detected(P1, 1)]);
    driver.pass(Time::ZERO + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P1, 2, Boot::Restarted));
    driver.registered(P1, 2);
    let membership = driver.announced();
    assert_eq!((membership.version, state_of(&membership, P1)), (MembershipVersion(1), (2, true)));
}

// Failures

#[test]
fn a_failure_is_reported_and_announced_and_the_next_life_follows() {
    let mut driver = TestDriver::begun(vec![]);
    driver.exited(P1, 1);
    assert_eq!(driver.take(), [detected(P1, 1)]);
    let membership = driver.announced();
    assert_eq!((membership.version, state_of(&membership, P1)), (MembershipVersion(2), (1, false)));
    driver.pass(BEGUN + Span(RESTART_AFTER.0 - 1));
    assert_eq!(driver.take(), [], "the restart delay has not passed");
    driver.pass(BEGUN + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P1, 2, Boot::Restarted));
    driver.registered(P1, 2);
    let membership = driver.announced();
    assert_eq!((membership.version, state_of(&membership, P1)), (MembershipVersion(3), (2, true)));
}

/// Returns a plan with one crash per time and process, each with the same repair.
fn with_repair(crashes: &[(u64, ProcessId)], repair: u64) -> Vec<(Trigger, Fault)> {
    let crash = |process: ProcessId| Fault::Kill {
        target: process.into(),
        storage: StorageFate::Kept,
        returns: true,
        repair: Some(Span(repair)),
    };
    crashes.iter().map(|&(after, process)| (at(after), crash(process))).collect()
}

#[test]
fn a_process_whose_node_is_under_repair_moves_to_a_spare_or_waits_for_a_node() {
    // The repair of each node takes much longer than a restart.
    let repair = 10 * (DETECT_AFTER.0 + RESTART_AFTER.0);
    let mut driver =
        TestDriver::with(with_repair(&[(10, P0), (20, P1), (30, P2)], repair), |it| it.spares = 1);
    driver.begin();
    for (after, process) in [(10, P0), (20, P1), (30, P2)] {
        driver.pass(BEGUN + Span(after));
        driver.exited(process, 1);
        driver.pass(driver.now);
        driver.take();
    }
    let restarts = BEGUN + Span(30) + RESTART_AFTER;
    driver.pass(restarts);
    let moved = ended(P0, 1, StorageFate::Lost, EndedBy::Moved);
    let mut orders = vec![moved, kill(&[(P0, 1)], StorageFate::Lost)];
    orders.extend(launch(P0, 2, Boot::Replaced));
    assert_eq!(driver.take(), orders, "only one process finds a spare");
    // Nothing else starts until the first node, which has no process any more, is repaired.
    driver.pass(BEGUN + Span(10 + repair - 1));
    assert_eq!(driver.take(), []);
    driver.pass(BEGUN + Span(10 + repair));
    let moved = ended(P1, 1, StorageFate::Lost, EndedBy::Moved);
    let mut orders = vec![moved, kill(&[(P1, 1)], StorageFate::Lost)];
    orders.extend(launch(P1, 2, Boot::Replaced));
    assert_eq!(driver.take(), orders, "the process that waits for the longest time is the first");
    driver.pass(BEGUN + Span(20 + repair));
    let mut orders =
        vec![ended(P2, 1, StorageFate::Lost, EndedBy::Moved), kill(&[(P2, 1)], StorageFate::Lost)];
    orders.extend(launch(P2, 2, Boot::Replaced));
    assert_eq!(driver.take(), orders);
}

#[test]
fn of_two_nodes_repaired_at_once_each_waiting_process_gets_its_own() {
    let mut driver = TestDriver::with(with_repair(&[(10, P0), (10, P1)], 1000), |it| it.spares = 1);
    driver.begin();
    driver.pass(BEGUN + Span(10));
    driver.exited(P0, 1);
    driver.exited(P1, 1);
    driver.pass(BEGUN + Span(1009));
    driver.take();
    driver.pass(BEGUN + Span(1010));
    assert_eq!(driver.take(), launch(P1, 2, Boot::Restarted), "the repaired node of p0 is a spare");
}

#[test]
fn a_process_without_a_spare_waits_for_its_own_node() {
    let mut driver = TestDriver::begun(with_repair(&[(10, P0)], 1000));
    driver.pass(BEGUN + Span(10));
    driver.exited(P0, 1);
    driver.pass(BEGUN + Span(1009));
    driver.take();
    driver.pass(BEGUN + Span(1010));
    assert_eq!(driver.take(), launch(P0, 2, Boot::Restarted), "with its own storage");
}

#[test]
fn a_repair_that_ends_before_the_restart_changes_nothing() {
    let mut driver = TestDriver::with(with_repair(&[(10, P0)], RESTART_AFTER.0 - 1), |it| it.spares = 1);
    driver.begin();
    driver.pass(BEGUN + Span(10));
    driver.exited(P0, 1);
    driver.pass(driver.now);
    driver.take();
    driver.pass(BEGUN + Span(10) + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P0, 2, Boot::Restarted));
}

#[test]
fn changes_at_one_instant_share_a_version() {
    let mut driver = TestDriver::begun(vec![]);
    for process in [P0, P1, P2] {
        driver.exited(process, 1);
    }
    let membership = driver.announced();
    assert_eq!(membership.version, MembershipVersion(2));
    assert!(membership.members.iter().all(|member| !member.up));
}

#[test]
fn a_silent_process_is_fenced_exactly_after_detect_after() {
    let mut driver = TestDriver::begun(vec![]);
    driver.heartbeat(P0, 1);
    driver.now = BEGUN + Span(30);
    driver.heartbeat(P0, 1);
    driver.pass(BEGUN + Span(30 + DETECT_AFTER.0 - 1));
    assert_eq!(driver.take(), [], "the time limit has not passed");
    driver.pass(BEGUN + Span(30) + DETECT_AFTER);
    let orders = driver.take();
    let failed = ended(P0, 1, StorageFate::Kept, EndedBy::Silence);
    let fence = [failed, kill(&[(P0, 1)], StorageFate::Kept), detected(P0, 1)];
    assert_eq!(orders[..3], fence, "the process is killed before its failure is announced");
    assert!(is_announcement(&orders[3]) && orders.len() == 4);
    driver.exited(P0, 1);
    driver.heartbeat(P0, 1);
    driver.pass(driver.now);
    assert_eq!(driver.take(), [], "the exit of the fenced life is not a second failure");
}

#[test]
fn a_life_without_heartbeats_is_watched_only_when_paused_or_killed() {
    let lose = Fault::kill(P0, StorageFate::Lost);
    let pause = Fault::pause(P1, Span(500));
    let mut driver = TestDriver::begun(vec![(at(10), lose), (at(10), pause)]);
    driver.pass(BEGUN + Span(10 + DETECT_AFTER.0 - 1));
    driver.take();
    driver.pass(BEGUN + Span(10) + DETECT_AFTER);
    let orders = driver.take();
    assert!(orders.contains(&detected(P0, 1)) && orders.contains(&detected(P1, 1)));
    assert!(!orders.contains(&failed(P0, 1, StorageFate::Lost)), "a failure is recorded once: {orders:?}");
    assert!(orders.contains(&kill(&[(P0, 1)], StorageFate::Lost)), "the kill is repeated");
    let of_pause = ended(P1, 1, StorageFate::Kept, EndedBy::Fault(FaultNo(1)));
    assert!(orders.contains(&of_pause), "this process is fenced because of the pause");
    driver.registered(P0, 2);
    driver.registered(P1, 2);
    driver.pass(BEGUN + Span(10_000));
    let later = driver.take();
    assert!(!later.iter().any(|order| matches!(order, Order::Record(Fact::Detected { .. }))), "{later:?}");
}

#[test]
fn a_life_that_hangs_before_its_first_heartbeat_is_fenced_if_heartbeats_are_expected() {
    let mut driver = TestDriver::new(vec![]);
    driver.supervisor.expect_heartbeats();
    driver.begin();
    driver.heartbeat(P1, 1);
    driver.pass(BEGUN + Span(1));
    for process in [P1, P2] {
        driver.heartbeat(process, 1);
    }
    driver.pass(BEGUN + Span(DETECT_AFTER.0 - 1));
    driver.take();
    driver.pass(BEGUN + DETECT_AFTER);
    let orders = driver.take();
    let failed = ended(P0, 1, StorageFate::Kept, EndedBy::Silence);
    assert_eq!(orders[..3], [failed, kill(&[(P0, 1)], StorageFate::Kept), detected(P0, 1)]);
}

#[test]
fn a_second_failure_during_the_restart_starts_another_life() {
    let mut driver = TestDriver::begun(vec![(at(200), crash(P1))]);
    driver.exited(P1, 1);
    driver.pass(BEGUN + RESTART_AFTER);
    driver.take();
    // Life 2 is launched, and the plan kills it before it registers.
    driver.pass(BEGUN + Span(200));
    let orders = driver.take();
    assert_eq!(orders[1..], [failed(P1, 2, StorageFate::Kept), kill(&[(P1, 2)], StorageFate::Kept)]);
    driver.registered(P1, 2);
    driver.exited(P1, 2);
    assert_eq!(driver.take(), [detected(P1, 2)], "a late registration has no effect");
    assert_eq!(state_of(&driver.announced(), P1), (2, false));
    driver.pass(driver.now + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P1, 3, Boot::Restarted));
    driver.registered(P1, 3);
    assert_eq!(state_of(&driver.announced(), P1), (3, true));
}

#[test]
fn reports_from_older_lives_change_nothing() {
    let mut driver = TestDriver::begun(vec![(when(FactKind::Protected, None, 1), crash(P2))]);
    driver.exited(P0, 1);
    driver.pass(BEGUN + RESTART_AFTER);
    driver.registered(P0, 2);
    driver.pass(driver.now);
    driver.take();
    driver.exited(P0, 1);
    driver.registered(P0, 1);
    driver.heartbeat(P0, 1);
    driver.fact(P0, protected(), true);
    driver.report(Report::Started { process: P0, life: Life(1) });
    let gauges = Gauges { progress: Progress { done: 100, total: 100 }, ..Gauges::default() };
    driver.report(Report::Gauges { process: P0, life: Life(1), gauges });
    driver.finished(P0, 1, 0, 0);
    driver.finished(P1, 1, 0, 0);
    driver.finished(P2, 1, 0, 0);
    driver.pass(driver.now + DETECT_AFTER + DETECT_AFTER);
    assert_eq!(driver.take(), []);
    assert_eq!(driver.supervisor.status().clusters[0].progress, Progress::default());
    // A result that the current life reports does count.
    driver.finished(P0, 2, 0, 0);
    assert_eq!(driver.take(), [Order::Record(Fact::Completed), Order::End(Outcome::Completed)]);
}

#[test]
fn lost_storage_is_remembered_until_it_is_complete_again() {
    let lose = Fault::kill(P0, StorageFate::Lost);
    let mut driver = TestDriver::begun(vec![(at(10), lose), (at(70), crash(P0))]);
    let next = |driver: &mut TestDriver, life: u32, boot: Boot| {
        driver.exited(P0, life - 1);
        driver.pass(driver.now + RESTART_AFTER);
        let orders = driver.take();
        assert!(orders.ends_with(&launch(P0, life, boot)), "life {life}: {orders:?}");
        driver.registered(P0, life);
        driver.pass(driver.now);
    };
    driver.report(Report::Held { process: P0, life: Life(1) });
    driver.pass(BEGUN + Span(10));
    assert!(driver.take().contains(&kill(&[(P0, 1)], StorageFate::Lost)));
    // A late report from the failed life does not count.
    driver.report(Report::Held { process: P0, life: Life(1) });
    next(&mut driver, 2, Boot::Replaced);
    driver.pass(BEGUN + Span(70));
    assert!(driver.take().contains(&kill(&[(P0, 2)], StorageFate::Kept)));
    next(&mut driver, 3, Boot::Replaced);
    driver.report(Report::Held { process: P0, life: Life(2) });
    next(&mut driver, 4, Boot::Replaced);
    driver.report(Report::Held { process: P0, life: Life(4) });
    next(&mut driver, 5, Boot::Restarted);
}

#[test]
fn the_removal_of_a_place_is_detected_immediately() {
    let mut driver = TestDriver::begun(vec![]);
    let lost =
        |life, storage| Report::Lost { process: P0, life: Life(life), storage, by: EndedBy::PlaceLost };
    let failed = |process, life, storage| ended(process, life, storage, EndedBy::PlaceLost);
    let (kept, gone) = (StorageFate::Kept, StorageFate::Lost);
    driver.report(lost(1, kept));
    assert_eq!(driver.take(), [failed(P0, 1, kept), kill(&[(P0, 1)], kept), detected(P0, 1)]);
    driver.report(lost(1, gone));
    assert_eq!(driver.take(), [], "repeated reports have no effect");
    driver.announced();
    driver.pass(driver.now + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P0, 2, Boot::Restarted));
    driver.report(lost(2, gone));
    assert_eq!(driver.take(), [failed(P0, 2, gone), kill(&[(P0, 2)], gone), detected(P0, 2)]);
    driver.announced();
    driver.pass(driver.now + RESTART_AFTER);
    assert_eq!(driver.take(), launch(P0, 3, Boot::Replaced));
}

#[test]
fn a_life_that_has_not_restored_yet_does_not_reset_the_progress() {
    let mut driver = TestDriver::begun(vec![]);
    let beat = |life, done, total| {
        let gauges = Gauges { progress: Progress { done, total }, ..Gauges::default() };
        Report::Heartbeat { process: P0, life: Life(life), gauges }
    };
    driver.report(beat(1, 7, 10));
    driver.exited(P0, 1);
    driver.announced();
    driver.pass(driver.now + RESTART_AFTER);
    driver.registered(P0, 2);
    driver.report(beat(2, 0, 0));
    assert_eq!(driver.supervisor.status().clusters[0].progress, Progress { done: 7, total: 10 });
    driver.report(beat(2, 5, 10));
    assert_eq!(driver.supervisor.status().clusters[0].progress, Progress { done: 5, total: 10 });
}

#[test]
fn a_program_of_tasks_reports_its_progress_without_a_total() {
    let mut driver = TestDriver::begun(vec![]);
    for done in [3, 8] {
        let gauges = Gauges { progress: Progress { done, total: 0 }, ..Gauges::default() };
        driver.report(Report::Heartbeat { process: P0, life: Life(1), gauges });
        assert_eq!(driver.supervisor.status().clusters[0].progress, Progress { done, total: 0 });
    }
}

#[test]
fn volatile_storage_is_lost_in_every_failure() {
    let mut driver = TestDriver::with(vec![(at(10), crash(P0))], |config| config.volatile_storage = true);
    driver.begin();
    driver.exited(P1, 1);
    driver.pass(BEGUN + Span(10));
    let orders = driver.take();
    assert!(
        orders.contains(&failed(P0, 1, StorageFate::Lost))
            && orders.contains(&kill(&[(P0, 1)], StorageFate::Lost))
    );
    driver.exited(P0, 1);
    driver.pass(BEGUN + Span(10) + RESTART_AFTER);
    let orders = driver.take();
    for process in [P0, P1] {
        assert!(orders.contains(&launch(process, 2, Boot::Replaced)[1]), "{process}");
    }
}

#[test]
fn a_process_has_started_once_the_membership_contains_it() {
    let mut driver = TestDriver::begun(vec![]);
    driver.report(Report::Started { process: P1, life: Life(1) });
    let started: Vec<bool> = driver.announced().members.iter().map(|member| member.started).collect();
    assert_eq!(started[..2], [false, true]);
    driver.report(Report::Started { process: P1, life: Life(1) });
    driver.pass(driver.now);
    assert_eq!(driver.take(), [], "repeated reports have no effect");
}

// Faults

#[test]
fn faults_are_timed_from_the_start_and_reported_before_they_are_injected() {
    let mut driver = TestDriver::begun(vec![(at(10), crash(P2))]);
    assert_eq!(driver.fault(0), FaultState::Pending);
    driver.pass(BEGUN + Span(9));
    assert_eq!(driver.take(), []);
    driver.pass(BEGUN + Span(10));
    let injecting = Order::Record(Fact::Injecting { no: FaultNo(0), fault: Box::new(crash(P2)) });
    let expected = [injecting, failed(P2, 1, StorageFate::Kept), kill(&[(P2, 1)], StorageFate::Kept)];
    assert_eq!(driver.take(), expected);
    assert_eq!(driver.fault(0), FaultState::Effective);
}

#[test]
fn a_cluster_is_lost_in_one_order_and_announced_in_one_membership() {
    let fault = Fault::kill(C0, StorageFate::Lost);
    let mut driver = TestDriver::begun(vec![(at(10), fault)]);
    driver.pass(BEGUN + Span(10));
    let fate = StorageFate::Lost;
    assert_eq!(
        driver.take()[1..],
        [failed(P0, 1, fate), failed(P1, 1, fate), kill(&[(P0, 1), (P1, 1)], fate)]
    );
}

#[test]
fn losing_a_cluster_loses_the_storage_of_failed_members_too() {
    for storage in [StorageFate::Lost, StorageFate::Kept] {
        let mut driver = TestDriver::begun(vec![(at(10), Fault::kill(C0, storage))]);
        driver.exited(P1, 1);
        driver.pass(BEGUN + Span(9));
        driver.take();
        driver.pass(BEGUN + Span(10));
        let orders = driver.take();
        match storage {
            StorageFate::Lost => {
                let killed = kill(&[(P0, 1), (P1, 1)], storage);
                assert_eq!(orders[1..], [failed(P0, 1, storage), failed(P1, 1, storage), killed]);
            }
            StorageFate::Kept => assert_eq!(orders[1..], [failed(P0, 1, storage), kill(&[(P0, 1)], storage)]),
        }
        driver.exited(P0, 1);
        driver.pass(BEGUN + Span(10) + RESTART_AFTER);
        let boot = if storage == StorageFate::Lost { Boot::Replaced } else { Boot::Restarted };
        let orders = driver.take();
        for process in [P0, P1] {
            assert!(orders.contains(&launch(process, 2, boot)[1]), "{process}: {orders:?}");
        }
    }
}

#[test]
fn a_permanently_failed_process_is_announced_and_never_launched() {
    let fault = Fault::kill_permanently(P1, StorageFate::Kept);
    let mut driver = TestDriver::begun(vec![(at(10), fault), (at(500), crash(P1))]);
    driver.pass(BEGUN + Span(10));
    let kept = StorageFate::Kept;
    assert_eq!(
        driver.take()[1..],
        [failed(P1, 1, kept), kill(&[(P1, 1)], kept)],
        "nothing is announced before its end"
    );
    driver.exited(P1, 1);
    let announced = driver.announced();
    assert!(announced.member(P1).gone && !announced.member(P1).up && !announced.member(P0).gone);
    driver.pass(BEGUN + Span(10_000));
    assert!(!driver.take().iter().any(|it| matches!(it, Order::Launch { .. })));
    assert!(matches!(driver.fault(1), FaultState::Ineffective(_)), "no process is left to kill");
    driver.finished(P0, 1, 0, 0);
    driver.finished(P2, 1, 0, 0);
    assert!(driver.take().contains(&Order::End(Outcome::Completed)), "the other ranks finish without it");
}

#[test]
fn a_failed_process_can_fail_permanently_and_is_not_launched() {
    for fault in
        [Fault::kill_permanently(P1, StorageFate::Kept), Fault::kill_permanently(C0, StorageFate::Kept)]
    {
        let is_crash = fault.kind() == "crash";
        let mut driver = TestDriver::begun(vec![(at(10), fault)]);
        driver.exited(P1, 1);
        assert!(!driver.announced().member(P1).gone);
        driver.pass(BEGUN + Span(10));
        assert_eq!(driver.fault(0), FaultState::Effective);
        let killed = driver.take().iter().any(|it| matches!(it, Order::Kill { .. }));
        assert_ne!(killed, is_crash, "a failed process is not killed again");
        driver.pass(BEGUN + Span(11));
        driver.exited(P0, 1);
        assert!(driver.announced().member(P1).gone);
        driver.pass(BEGUN + Span(10_000));
        let launched = |it: &Order| matches!(it, Order::Launch { process: P1, .. });
        assert!(!driver.take().iter().any(launched));
    }
}

#[test]
fn a_federation_that_waits_only_for_a_permanently_failed_process_is_complete() {
    let fault = Fault::kill_permanently(P1, StorageFate::Kept);
    let mut driver = TestDriver::begun(vec![(at(10), fault)]);
    driver.finished(P0, 1, 3, 3);
    driver.finished(P2, 1, 0, 0);
    driver.pass(BEGUN + Span(10));
    assert!(driver.take().contains(&Order::End(Outcome::Completed)));
}

#[test]
fn a_pause_ends_on_time_and_the_longer_of_two_pauses_counts() {
    let pause = |span| Fault::pause(P0, Span(span));
    let order = |paused| Order::Pause { process: P0, life: Life(1), paused };
    let mut driver = TestDriver::begun(vec![(at(10), pause(40)), (at(20), pause(50)), (at(30), pause(5))]);
    driver.pass(BEGUN + Span(30));
    let orders = driver.take();
    assert_eq!(orders.iter().filter(|it| **it == order(true)).count(), 3, "{orders:?}");
    driver.pass(BEGUN + Span(69));
    assert_eq!(driver.take(), []);
    driver.pass(BEGUN + Span(70));
    let resumed = Order::Record(Fact::Resumed { process: P0, life: Life(1) });
    assert_eq!(driver.take(), [resumed, order(false)]);
    driver.pass(BEGUN + Span(5000));
    assert_eq!(driver.take(), [], "a resumed process is not declared failed");
}

#[test]
fn a_process_paused_beyond_the_detection_time_is_fenced_and_not_resumed() {
    let mut driver = TestDriver::begun(vec![(at(10), Fault::pause(P0, Span(1000)))]);
    driver.pass(BEGUN + Span(10));
    driver.take();
    driver.pass(BEGUN + Span(10) + DETECT_AFTER);
    assert!(driver.take().contains(&kill(&[(P0, 1)], StorageFate::Kept)));
    driver.pass(driver.now + RESTART_AFTER);
    assert!(driver.take().contains(&launch(P0, 2, Boot::Restarted)[1]));
    driver.registered(P0, 2);
    driver.pass(driver.now);
    driver.take();
    driver.pass(BEGUN + Span(5000));
    assert_eq!(driver.take(), [], "the pause of life 1 does not affect life 2");
}

#[test]
fn the_pause_of_a_life_that_exits_does_not_affect_the_next() {
    let pause = |span| Fault::pause(P0, Span(span));
    let mut driver = TestDriver::begun(vec![(at(10), pause(1000)), (at(100), pause(20))]);
    driver.pass(BEGUN + Span(10));
    driver.exited(P0, 1);
    driver.pass(BEGUN + Span(10) + RESTART_AFTER);
    driver.registered(P0, 2);
    driver.pass(BEGUN + Span(99));
    driver.take();
    driver.pass(BEGUN + Span(120));
    let order = |paused| Order::Pause { process: P0, life: Life(2), paused };
    let resumed = Order::Record(Fact::Resumed { process: P0, life: Life(2) });
    assert_eq!(driver.take()[1..], [order(true), resumed, order(false)]);
}

#[test]
fn a_link_is_restored_unless_a_later_fault_has_changed_it() {
    let mut driver =
        TestDriver::begun(vec![(at(10), slow(1, Some(Span(50)))), (at(20), slow(2, Some(Span(100))))]);
    driver.pass(BEGUN + Span(20));
    let orders = driver.take();
    assert_eq!((&orders[1], &orders[3]), (&slowed(1, 0), &slowed(2, 1)));
    driver.pass(BEGUN + Span(119));
    assert_eq!(driver.take(), [], "the end of the first fault does not end the second");
    driver.pass(BEGUN + Span(120));
    assert_eq!(driver.take(), [Order::Link { from: C0, to: C1, properties: None, of: None }]);
}

#[test]
fn an_earlier_fault_of_a_link_is_in_force_again_after_a_later_one() {
    for span in [Some(Span(200)), None] {
        let middle = slow(2, Some(Span(50)));
        let last = slow(3, Some(Span(20)));
        let mut driver = TestDriver::begun(vec![(at(10), slow(1, span)), (at(20), middle), (at(60), last)]);
        driver.pass(BEGUN + Span(79));
        driver.take();
        driver.pass(BEGUN + Span(80));
        assert_eq!(driver.take(), [slowed(1, 0)], "the second fault has ended in the meantime");
        driver.pass(BEGUN + Span(5000));
        let restored = Order::Link { from: C0, to: C1, properties: None, of: None };
        assert_eq!(driver.take(), span.map(|_| restored).as_slice());
    }
}

fn latency(millis: u64) -> Option<LinkProperties> {
    Some(LinkProperties { latency: Span::from_millis(millis), ..LinkProperties::default() })
}

fn slow(millis: u64, span: Option<Span>) -> Fault {
    Fault::Link { from: C0, to: C1, properties: latency(millis), span }
}

fn slowed(millis: u64, no: u32) -> Order {
    Order::Link { from: C0, to: C1, properties: latency(millis), of: Some(FaultNo(no)) }
}

#[test]
fn a_link_is_healed_when_the_last_partition_ends() {
    let partition = |from, to, both, span| Fault::Partition { from, to: vec![to], both, span: Span(span) };
    let cut = |from, to, cut| Order::Cut { from, to, cut };
    let mut driver = TestDriver::begun(vec![
        (at(10), partition(C0, C1, true, 50)),
        (at(20), partition(C1, C0, false, 100)),
        (at(30), partition(C0, C0, true, 10)),
    ]);
    driver.pass(BEGUN + Span(30));
    let orders = driver.take();
    let cuts: Vec<&Order> = orders.iter().filter(|it| matches!(it, Order::Cut { .. })).collect();
    let both = [&cut(C0, C1, true), &cut(C1, C0, true)];
    assert_eq!(cuts, [&both[..], &[&cut(C1, C0, true), &cut(C0, C0, true)]].concat(), "one for each fault");
    driver.pass(BEGUN + Span(40));
    assert_eq!(driver.take(), [cut(C0, C0, false)]);
    driver.pass(BEGUN + Span(60));
    assert_eq!(driver.take(), [cut(C0, C1, false)], "the opposite direction is still cut");
    driver.pass(BEGUN + Span(120));
    assert_eq!(driver.take(), [cut(C1, C0, false)]);
}

/// Returns the order that impairs the node of P0.
fn impaired(in_force: &[(u32, Impairment)], begins: Option<u32>) -> Order {
    let in_force: Vec<_> = in_force.iter().map(|&(no, how)| (FaultNo(no), how)).collect();
    Order::Impair { process: P0, in_force: Impairments::in_force(&in_force), begins: begins.map(FaultNo) }
}

#[test]
fn a_storage_fault_lasts_for_its_span_even_if_its_process_is_down() {
    let fault = Fault::storage(P0, StorageFault::Full, Span(30));
    let mut driver = TestDriver::begun(vec![(at(10), fault)]);
    driver.exited(P0, 1);
    driver.pass(BEGUN + Span(10));
    let full = impaired(&[(0, Impairment::Storage(StorageFault::Full))], Some(0));
    assert_eq!(driver.take().last(), Some(&full));
    driver.pass(BEGUN + Span(39));
    assert_eq!(driver.take(), []);
    driver.pass(BEGUN + Span(40));
    assert_eq!(driver.take(), [impaired(&[], None)]);
}

#[test]
fn the_end_of_a_storage_fault_does_not_end_a_later_one() {
    let fault = |how, span| Fault::storage(P0, how, span);
    let full = fault(StorageFault::Full, Some(Span(30)));
    let corrupt = fault(StorageFault::Corrupt, None);
    let mut driver = TestDriver::begun(vec![(at(10), full), (at(20), corrupt)]);
    driver.pass(BEGUN + Span(20));
    driver.take();
    driver.pass(BEGUN + Span(5000));
    assert_eq!(driver.take(), []);
}

#[test]
fn an_earlier_storage_fault_is_in_force_again_after_a_later_one() {
    let fault = |how, span| Fault::storage(P0, how, span);
    let full = fault(StorageFault::Full, None);
    let corrupt = fault(StorageFault::Corrupt, Some(Span(30)));
    let mut driver = TestDriver::begun(vec![(at(10), full), (at(20), corrupt)]);
    driver.pass(BEGUN + Span(20));
    driver.take();
    driver.pass(BEGUN + Span(50));
    assert_eq!(driver.take(), [impaired(&[(0, Impairment::Storage(StorageFault::Full))], None)]);
}

#[test]
fn impairments_of_different_kinds_are_in_force_at_the_same_time() {
    let slow = Impairment::Slow { percent: 300 };
    let slowed = Fault::Impair { process: P0, how: slow, span: Some(Span(30)) };
    let mut driver =
        TestDriver::begun(vec![(at(10), Fault::storage(P0, StorageFault::Full, None)), (at(20), slowed)]);
    driver.pass(BEGUN + Span(20));
    let full = (0, Impairment::Storage(StorageFault::Full));
    assert_eq!(driver.take().last(), Some(&impaired(&[full, (1, slow)], Some(1))));
    driver.pass(BEGUN + Span(50));
    assert_eq!(driver.take(), [impaired(&[full], None)]);
}

#[test]
fn occurrences_count_in_order_of_arrival_and_release_other_processes() {
    let trigger = when(FactKind::Protected, Some(C0), 3);
    let mut driver = TestDriver::begun(vec![(trigger, crash(P1))]);
    driver.fact(P0, protected(), true);
    driver.fact(P1, protected(), true);
    assert_eq!(driver.take(), [go(P0), go(P1)]);
    driver.fact(P2, protected(), true);
    assert_eq!(driver.take(), [go(P2)], "facts of other clusters do not count");
    driver.fact(P0, protected(), false);
    assert_eq!(driver.take(), [], "facts at which no process is halted do not count either");
    driver.fact(P0, protected(), true);
    let orders = driver.take();
    assert_eq!(orders[1], failed(P1, 1, StorageFate::Kept));
    assert_eq!(orders[2], kill(&[(P1, 1)], StorageFate::Kept));
    assert_eq!(orders[3], Order::Watch(Arc::new([])), "no trigger is left");
    assert_eq!(orders[4..], [go(P0)], "the fault is in effect before the halted process resumes");
    driver.fact(P2, protected(), true);
    assert_eq!(driver.take(), [go(P2)], "a process that has halted in the meantime also resumes");
}

#[test]
fn a_process_killed_at_its_own_fact_does_not_resume() {
    let mut driver = TestDriver::begun(vec![(when(FactKind::Protected, None, 1), crash(P0))]);
    driver.fact(P1, protected(), false);
    driver.fact(P0, protected(), true);
    assert!(!driver.take().contains(&go(P0)));
    driver.exited(P0, 1);
    driver.pass(BEGUN + RESTART_AFTER);
    assert!(!driver.take().iter().any(|order| matches!(order, Order::Go { .. })));
}

#[test]
fn a_process_paused_at_its_own_fact_resumes_after_the_pause() {
    let pause = Fault::pause(P0, Span(40));
    let mut driver = TestDriver::begun(vec![(when(FactKind::Protected, None, 1), pause)]);
    driver.fact(P0, protected(), true);
    assert!(!driver.take().contains(&go(P0)));
    driver.pass(BEGUN + Span(40));
    let resumed = Order::Record(Fact::Resumed { process: P0, life: Life(1) });
    let resumes = Order::Pause { process: P0, life: Life(1), paused: false };
    assert_eq!(driver.take(), [resumed, resumes, go(P0)]);
}

#[test]
fn one_fact_may_trigger_several_faults() {
    let trigger = when(FactKind::Protected, None, 1);
    let mut driver = TestDriver::begun(vec![(trigger.clone(), crash(P1)), (trigger, crash(P2))]);
    driver.fact(P0, protected(), true);
    let orders = driver.take();
    assert!(orders.contains(&kill(&[(P1, 1)], StorageFate::Kept)));
    assert!(orders.contains(&kill(&[(P2, 1)], StorageFate::Kept)));
    assert_eq!(orders.iter().filter(|order| matches!(order, Order::Watch(_))).count(), 1);
}

#[test]
fn a_fault_without_a_live_target_is_ineffective() {
    let lose = Fault::kill(C1, StorageFate::Lost);
    let pause = Fault::pause(P2, Span(10));
    let mut driver =
        TestDriver::begun(vec![(at(10), crash(P2)), (at(20), crash(P2)), (at(21), pause), (at(22), lose)]);
    driver.pass(BEGUN + Span(10));
    driver.take();
    driver.pass(BEGUN + Span(22));
    let reason: Arc<str> = "no process of its target was alive".into();
    let recorded = |no| Order::Record(Fact::Ineffective { no: FaultNo(no), reason: reason.clone() });
    assert_eq!(driver.take(), [recorded(1), recorded(2), recorded(3)]);
    assert_eq!(driver.fault(3), FaultState::Ineffective(reason.clone()));
}

#[test]
fn a_fault_with_little_work_left_is_ineffective() {
    // Exactly 20 percent of the work is enough, but one step less is not.
    for (done, state) in [
        (240, FaultState::Effective),
        (
            241,
            FaultState::Ineffective(
                "only 19 % of the application's steps were left, less than the required 20 % (`simulator.leastWorkLeft`)"
                    .into(),
            ),
        ),
    ] {
        let mut driver = TestDriver::begun(vec![(at(10), crash(P0))]);
        for (process, done) in [(P0, 100), (P1, 100), (P2, done - 200)] {
            let gauges = Gauges { progress: Progress { done, total: 100 }, ..Gauges::default() };
            driver.report(Report::Gauges { process, life: Life(1), gauges });
        }
        driver.pass(BEGUN + Span(10));
        assert_eq!(driver.fault(0), state);
    }
}

#[test]
fn gauges_trigger_no_action() {
    let mut driver = TestDriver::begun(vec![(at(10), crash(P0))]);
    driver.now = BEGUN + Span(10);
    let gauges = Gauges { progress: Progress { done: 99, total: 100 }, ..Gauges::default() };
    for process in [P0, P1, P2] {
        driver.report(Report::Gauges { process, life: Life(1), gauges });
    }
    assert_eq!(driver.take(), []);
    driver.report(Report::Timeout);
    assert!(matches!(driver.fault(0), FaultState::Ineffective(_)));
}

#[test]
fn a_fault_that_is_never_due_stays_pending() {
    let mut driver =
        TestDriver::begun(vec![(when(FactKind::Protected, None, 2), crash(P0)), (at(u64::MAX), crash(P0))]);
    driver.fact(P0, protected(), true);
    driver.pass(BEGUN + DEADLINE);
    assert_eq!(driver.take().last(), Some(&Order::End(Outcome::Deadline)));
    assert_eq!((driver.fault(0), driver.fault(1)), (FaultState::Pending, FaultState::Pending));
}

// The end

#[test]
fn a_run_is_complete_once_all_ranks_have_finished_without_messages_in_transit() {
    let mut driver = TestDriver::begun(vec![]);
    driver.finished(P0, 1, 7, u64::MAX);
    driver.finished(P1, 1, u64::MAX, 3);
    assert_eq!(driver.take(), [], "one rank has not finished");
    driver.finished(P2, 1, 5, 7);
    assert_eq!(driver.take(), [], "a message is in transit");
    driver.finished(P2, 1, 5, 9);
    assert_eq!(driver.take(), [Order::Record(Fact::Completed), Order::End(Outcome::Completed)]);
    assert_eq!(driver.supervisor.status().outcome, Some(Outcome::Completed));
    driver.exited(P0, 1);
    driver.pass(BEGUN + DEADLINE);
    assert_eq!(driver.take(), [], "no orders are issued after the end");
    assert_eq!(driver.supervisor.next_deadline(), None);
}

#[test]
fn a_process_that_rolls_back_is_not_finished() {
    let restored = Fact::Restored(Box::new((None, Incarnation(1), Witness::default())));
    let mut driver = TestDriver::begun(vec![]);
    driver.finished(P0, 1, 0, 0);
    driver.fact(P0, restored.clone(), false);
    driver.finished(P1, 1, 0, 0);
    driver.finished(P2, 1, 0, 0);
    assert_eq!(driver.take(), []);
    driver.finished(P0, 1, 0, 0);
    assert_eq!(driver.take(), [], "its cluster rolls back with it, so P1's earlier result is void");
    driver.fact(P1, restored, false);
    driver.finished(P1, 1, 0, 0);
    assert_eq!(driver.take().last(), Some(&Order::End(Outcome::Completed)));
}

#[test]
fn a_process_that_fails_is_not_finished() {
    let mut driver = TestDriver::begun(vec![]);
    driver.finished(P1, 1, 0, 0);
    driver.exited(P1, 1);
    driver.finished(P0, 1, 0, 0);
    driver.finished(P2, 1, 0, 0);
    assert_eq!(driver.take(), [detected(P1, 1)]);
    driver.pass(BEGUN + RESTART_AFTER);
    driver.registered(P1, 2);
    driver.pass(driver.now);
    driver.take();
    driver.finished(P1, 2, 0, 0);
    assert_eq!(driver.take().last(), Some(&Order::End(Outcome::Completed)));
}

#[test]
fn a_fault_at_the_last_fact_precedes_the_end() {
    let mut driver = TestDriver::begun(vec![(when(FactKind::Finished, None, 1), crash(P2))]);
    driver.finished(P0, 1, 0, 0);
    driver.finished(P1, 1, 0, 0);
    let witness = Witness::default();
    driver.fact(P2, Fact::Finished(Box::new((witness, Digest([0; 16])))), true);
    let orders = driver.take();
    assert_eq!(
        orders.last(),
        Some(&Order::Watch(Arc::new([]))),
        "the killed process prevents completion: {orders:?}"
    );
}

#[test]
fn a_cluster_that_cannot_be_restored_ends_the_run() {
    let name = ImageName { owner: P2, incarnation: Incarnation(0), sn: Sn(4), attempt: Attempt(1) };
    let missing: Arc<[(ImageName, Vec<ProcessId>)]> = Arc::new([(name, vec![P0, P2])]);
    let claim = Claim::Unrecoverable { group: GroupId(1), missing: missing.clone() };
    let mut driver = TestDriver::begun(vec![(when(FactKind::Unrecoverable, None, 1), crash(P0))]);
    driver.fact(P2, Fact::Claim(Box::new(claim)), true);
    assert_eq!(driver.take(), [Order::End(Outcome::Unrecoverable { group: GroupId(1), missing })]);
}

#[test]
fn the_deadline_counts_from_the_start() {
    let mut driver = TestDriver::begun(vec![]);
    driver.pass(Time(BEGUN.0 + DEADLINE.0 - 1));
    assert_eq!(driver.take(), []);
    driver.pass(BEGUN + DEADLINE);
    assert_eq!(driver.take(), [Order::End(Outcome::Deadline)]);
}

#[test]
fn a_federation_that_does_not_start_in_time_ends_the_run() {
    let mut driver = TestDriver::new(vec![]);
    driver.registered(P0, 1);
    driver.take();
    driver.pass(Time(DEADLINE.0 - 1));
    assert_eq!(driver.take(), []);
    driver.pass(Time::ZERO + DEADLINE);
    assert_eq!(driver.take(), [Order::End(Outcome::Deadline)]);
}

#[test]
fn an_interruption_ends_the_run_even_before_it_has_begun() {
    let mut driver = TestDriver::new(vec![]);
    driver.take();
    driver.report(Report::Interrupted);
    driver.report(Report::Interrupted);
    assert_eq!(driver.take(), [Order::End(Outcome::Interrupted)]);
}

// Live view

#[test]
fn the_status_shows_processes_checkpoints_and_progress() {
    let mut driver = TestDriver::begun(vec![(at(10), crash(P0))]);
    let committed = |position, forced| {
        let vectors = Arc::new(Vectors::default());
        let attempt = Attempt(1);
        Fact::Claim(Box::new(Claim::Committed { position, attempt, forced, frozen: Span(1), vectors }))
    };
    driver.fact(P0, committed(Position::new(0, 3), false), false);
    driver.fact(P1, committed(Position::new(0, 2), true), false);
    for (process, done) in [(P0, 4), (P1, 5), (P2, 6)] {
        let gauges = Gauges { progress: Progress { done, total: 10 }, ..Gauges::default() };
        driver.report(Report::Gauges { process, life: Life(1), gauges });
    }
    driver.exited(P1, 1);
    driver.pass(BEGUN + Span(10));
    let status = driver.supervisor.status();
    let cluster = status.clusters[0];
    assert_eq!((cluster.processes, cluster.up), (2, 1), "a failure counts once it is detected");
    assert_eq!(cluster.committed, Position::new(0, 3));
    assert_eq!(cluster.progress, Progress { done: 9, total: 20 });
    assert_eq!(status.clusters[1].up, 1);
    assert_eq!(status.faults, [(FaultNo(0), FaultState::Effective)]);
}

#[test]
fn facts_that_the_supervisor_needs_are_followed() {
    let driver = TestDriver::new(vec![(when(FactKind::Forcing, None, 1), crash(P0))]);
    for kind in [FactKind::Finished, FactKind::Restored, FactKind::Unrecoverable, FactKind::Forcing] {
        assert!(driver.supervisor.follows(kind), "{kind:?}");
    }
    for kind in [FactKind::Sent, FactKind::Delivered, FactKind::Saved] {
        assert!(!driver.supervisor.follows(kind), "{kind:?}");
    }
}

#[test]
fn late_heartbeats_count_before_silence_is_declared() {
    let mut driver = TestDriver::begun(vec![]);
    for process in [P0, P1] {
        driver.heartbeat(process, 1);
    }
    // The supervisor's driver was busy for a while.
    driver.now += DETECT_AFTER + DETECT_AFTER;
    for process in [P0, P1] {
        driver.heartbeat(process, 1);
    }
    driver.take();
    driver.report(Report::Timeout);
    assert_eq!(driver.take(), [], "both heartbeats count");
    driver.pass(driver.now + DETECT_AFTER);
    assert!(driver.take().iter().any(|order| matches!(order, Order::Kill { .. })), "now both are silent");
}

#[test]
fn a_silent_process_is_announced_only_after_its_exit_is_reported() {
    let mut driver = TestDriver::begun(vec![]);
    driver.supervisor.await_exits();
    for process in [P0, P1] {
        driver.heartbeat(process, 1);
    }
    driver.take();
    driver.pass(driver.now + DETECT_AFTER);
    let ordered = |orders: Vec<Order>| {
        let is = |what: fn(&Order) -> bool| orders.iter().filter(|it| what(it)).count();
        (
            is(|it| matches!(it, Order::Kill { .. })),
            is(|it| matches!(it, Order::Record(Fact::Detected { .. }))),
        )
    };
    assert_eq!(ordered(driver.take()), (2, 0), "both are killed at once, and neither is known to have ended");
    driver.pass(driver.now + DETECT_AFTER + DETECT_AFTER);
    assert_eq!(ordered(driver.take()), (0, 0), "no order is repeated");
    driver.exited(P1, 1);
    driver.pass(driver.now);
    assert_eq!(ordered(driver.take()), (0, 1));
    let membership = {
        driver.exited(P0, 1);
        driver.announced()
    };
    assert!(!state_of(&membership, P0).1 && !state_of(&membership, P1).1);
}
