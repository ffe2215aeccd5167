//! Tests of changes by the user while a run is in progress: links, additional faults, and pauses.

use std::sync::Arc;

use faultline_core::fault::{Change, LinkProperties};
use faultline_core::{
    Cluster, ClusterId, EndedBy, Fact, Fault, FaultNo, Gauges, Life, Membership, MembershipVersion,
    PlannedFault, ProcessId, Scope, Span, StorageFate, Time, Trigger,
};
use faultline_supervisor::{Config, FaultState, Order, Outcome, Report, Supervisor};

use crate::member;

const P0: ProcessId = ProcessId(0);
const P1: ProcessId = ProcessId(1);
const BEGUN: u64 = 1000;
const DEADLINE: u64 = 100_000;

struct TestDriver {
    supervisor: Supervisor,
    now: Time,
    orders: Vec<Order>,
}

impl TestDriver {
    fn new() -> TestDriver {
        let cluster = |process| Cluster::new([process].into());
        let membership = Membership {
            version: MembershipVersion(0),
            members: Arc::new([member(0, 0), member(1, 1)]),
            clusters: Arc::new([cluster(P0), cluster(P1)]),
        };
        let config = Config {
            detect_after: Span(100),
            restart_after: Span(50),
            spares: 0,
            volatile_storage: false,
            deadline: Span(DEADLINE),
            start_within: Some(Span(DEADLINE)),
            plan: vec![at(0, 500, P0)],
            joins: Vec::new(),
            leaves: Vec::new(),
            scope: Scope::Cluster,
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        };
        let mut orders = Vec::new();
        let supervisor = Supervisor::new(config, membership, &mut orders);
        TestDriver { supervisor, now: Time::ZERO, orders }
    }

    /// Creates a supervisor whose application has begun, and discards its orders so far.
    fn begun() -> TestDriver {
        let mut driver = TestDriver::new();
        driver.register();
        driver.pass(BEGUN);
        driver.orders.clear();
        driver
    }

    fn register(&mut self) {
        self.now = Time(BEGUN);
        for process in [P0, P1] {
            self.report(Report::Registered { process, life: Life(1) });
        }
        self.report(Report::LinksMeasured);
    }

    fn report(&mut self, report: Report) {
        self.supervisor.handle(report, self.now, &mut self.orders);
    }

    /// Reports a change. Returns the resulting orders.
    fn change(&mut self, change: Change) -> Vec<Order> {
        self.report(Report::Changed(change));
        std::mem::take(&mut self.orders)
    }

    /// Advances the time, with a timeout whenever the supervisor wants one. Returns the resulting orders.
    fn pass(&mut self, to: u64) -> Vec<Order> {
        while let Some(deadline) = self.supervisor.next_deadline().filter(|it| *it <= Time(to)) {
            self.now = self.now.max(deadline);
            self.report(Report::Timeout);
        }
        self.now = Time(to);
        std::mem::take(&mut self.orders)
    }

    fn state(&self, fault: usize) -> FaultState {
        self.supervisor.faults()[fault].1.clone()
    }
}

/// Returns a fault that kills a process at `at`, counted from the start of the application.
fn at(no: u32, at: u64, process: ProcessId) -> PlannedFault {
    let fault = Fault::crash(process);
    PlannedFault { no: FaultNo(no), trigger: Trigger::At(Time(at)), fault, reported: None, cause: None }
}

fn recorded(change: Change) -> Order {
    Order::Record(Fact::Changed(Box::new(change)))
}

fn pause(process: ProcessId, paused: bool) -> Order {
    Order::Pause { process, life: Life(1), paused }
}

fn begins(orders: &[Order]) -> bool {
    orders.contains(&Order::Record(Fact::Begun))
}

#[test]
fn a_change_of_a_link_is_reported_before_it_takes_effect() {
    let properties = LinkProperties { latency: Span(7), ..LinkProperties::default() };
    let (from, to) = (ClusterId(0), ClusterId(1));
    let change = Change::Link { from, to, properties };
    let orders = TestDriver::begun().change(change.clone());
    assert_eq!(orders, [recorded(change), Order::Relink { from, to, properties }]);
}

#[test]
fn an_added_fault_is_injected_at_its_time_and_a_late_one_is_ineffective() {
    let mut driver = TestDriver::begun();
    driver.pass(BEGUN + 20);
    let orders = driver.change(Change::Fault(at(1, 10, P1)));
    assert!(
        matches!(&orders[1], Order::Record(Fact::Ineffective { no: FaultNo(1), reason })
        if reason.contains("after it was due")),
        "{orders:?}"
    );
    assert!(matches!(driver.state(1), FaultState::Ineffective(_)));
    driver.change(Change::Fault(at(2, 30, P1)));
    assert_eq!(driver.state(2), FaultState::Pending);
    driver.pass(BEGUN + 30);
    assert_eq!(driver.state(2), FaultState::Effective);
    assert_eq!(driver.state(0), FaultState::Pending, "the first fault is unaffected");
    assert_eq!(driver.supervisor.plan().len(), 3);
}

#[test]
fn a_fault_added_before_the_start_is_scheduled_with_the_others() {
    let mut driver = TestDriver::new();
    driver.change(Change::Fault(at(1, 10, P1)));
    driver.register();
    driver.pass(BEGUN + 9);
    assert_eq!(driver.state(1), FaultState::Pending);
    driver.pass(BEGUN + 10);
    assert_eq!(driver.state(1), FaultState::Effective);
}

#[test]
fn a_pause_stops_processes_the_plan_and_failure_detection() {
    let mut driver = TestDriver::begun();
    for process in [P0, P1] {
        driver.report(Report::Heartbeat { process, life: Life(1), gauges: Gauges::default() });
    }
    driver.pass(BEGUN + 50);
    let orders = driver.change(Change::Pause(true));
    assert_eq!(orders, [recorded(Change::Pause(true)), pause(P0, true), pause(P1, true)]);
    assert!(driver.supervisor.status().paused);
    assert_eq!(driver.change(Change::Pause(true)), [], "a repeated pause has no effect");
    // Far beyond the limit for silence, the fault at 500, and the deadline.
    assert_eq!(driver.pass(10 * DEADLINE), []);
    let orders = driver.change(Change::Pause(false));
    assert_eq!(orders, [recorded(Change::Pause(false)), pause(P0, false), pause(P1, false)]);
    let resumed = 10 * DEADLINE;
    let beats = |driver: &mut TestDriver| {
        for process in [P0, P1] {
            driver.report(Report::Heartbeat { process, life: Life(1), gauges: Gauges::default() });
        }
    };
    for after in (50..=400).step_by(50) {
        assert_eq!(driver.pass(resumed + after), []);
        beats(&mut driver);
    }
    // 50 ns had elapsed before the pause.
    driver.pass(resumed + 449);
    assert_eq!(driver.state(0), FaultState::Pending);
    driver.pass(resumed + 450);
    assert_eq!(driver.state(0), FaultState::Effective);
    let ended = |driver: &TestDriver| driver.supervisor.status().outcome;
    driver.pass(resumed + DEADLINE - 51);
    assert_eq!(ended(&driver), None);
    driver.pass(resumed + DEADLINE - 50);
    assert_eq!(ended(&driver), Some(Outcome::Deadline));
}

#[test]
fn a_process_lost_during_a_pause_restarts_soon_after_it() {
    let mut driver = TestDriver::begun();
    driver.change(Change::Pause(true));
    driver.now = Time(BEGUN + 1_000_000);
    driver.report(Report::Lost {
        process: P1,
        life: Life(1),
        storage: StorageFate::Kept,
        by: EndedBy::PlaceLost,
    });
    let launched = |orders: &[Order]| orders.iter().any(|it| matches!(it, Order::Launch { process: P1, .. }));
    assert!(!launched(&driver.pass(BEGUN + 2_000_000)), "nothing is launched during a pause");
    let orders = driver.change(Change::Pause(false));
    assert_eq!(
        orders,
        [recorded(Change::Pause(false)), pause(P0, false)],
        "failed processes are not resumed"
    );
    assert!(!launched(&driver.pass(BEGUN + 2_000_049)));
    assert!(launched(&driver.pass(BEGUN + 2_000_050)));
}

#[test]
fn a_life_that_starts_during_a_pause_is_paused() {
    let mut driver = TestDriver::begun();
    driver.report(Report::Exited { process: P1, life: Life(1) });
    driver.pass(BEGUN + 60);
    driver.change(Change::Pause(true));
    driver.report(Report::Registered { process: P1, life: Life(2) });
    assert!(driver.orders.contains(&Order::Pause { process: P1, life: Life(2), paused: true }));
    let orders = driver.change(Change::Pause(false));
    assert!(orders.contains(&Order::Pause { process: P1, life: Life(2), paused: false }));
}

#[test]
fn a_process_paused_by_a_fault_stays_paused_for_its_span() {
    let mut driver = TestDriver::begun();
    let fault = Fault::pause(P0, Span(40));
    let added =
        PlannedFault { no: FaultNo(1), trigger: Trigger::At(Time(0)), fault, reported: None, cause: None };
    assert_eq!(driver.change(Change::Fault(added)).last(), Some(&pause(P0, true)), "the fault is due now");
    driver.now = Time(BEGUN + 10);
    assert_eq!(driver.change(Change::Pause(true))[1..], [pause(P1, true)]);
    driver.now = Time(BEGUN + 5000);
    assert_eq!(driver.change(Change::Pause(false))[1..], [pause(P1, false)]);
    assert_eq!(driver.pass(BEGUN + 5029), []);
    let resumed = Order::Record(Fact::Resumed { process: P0, life: Life(1) });
    assert_eq!(driver.pass(BEGUN + 5030), [resumed, pause(P0, false)]);
}

#[test]
fn an_application_paused_from_the_start_starts_when_resumed() {
    let mut driver = TestDriver::new();
    assert_eq!(driver.change(Change::Pause(true)).last(), Some(&recorded(Change::Pause(true))));
    driver.register();
    assert!(!begins(&driver.pass(3 * DEADLINE)), "the application does not begin during the pause");
    assert_eq!(driver.supervisor.status().outcome, None, "the deadline does not apply during the pause");
    let orders = driver.change(Change::Pause(false));
    assert!(begins(&orders), "{orders:?}");
    driver.pass(4 * DEADLINE - 1);
    assert_eq!(driver.supervisor.status().outcome, None);
    driver.pass(4 * DEADLINE);
    assert_eq!(driver.supervisor.status().outcome, Some(Outcome::Deadline));
}
