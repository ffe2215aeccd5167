//! Tests of the start and the end of a system.

use faultline_core::fault::Impairment;
use faultline_core::{
    Boot, CheckNo, Cluster, ClusterId, EndedBy, Ending, Fact, FactKind, Fault, FaultNo, Gauges, Life,
    Membership, MembershipVersion, Observation, PlannedFault, ProcessId, Scope, Source, Span, StorageFate,
    Target, Time, Trigger, WatchNo,
};
use faultline_supervisor::{
    AfterExit, Config, FaultState, Order, Outcome, Report, Supervisor, SystemEnd, SystemRun,
};

use crate::member;

const NODES: [ProcessId; 2] = [ProcessId(0), ProcessId(1)];
const FIRST: Life = Life(1);

fn exited(ending: Ending) -> Observation {
    Observation::Exited { ending, said: "".into() }
}

/// Returns a run without setup and checks, in which these actions follow exits.
fn run(ends: SystemEnd, after_exit: [AfterExit; 2]) -> SystemRun {
    let (after_exit, starts_after) = (after_exit.to_vec(), Vec::new());
    SystemRun { set_up_by: None, ends, checks: Vec::new(), after_exit, starts_after }
}

struct TestDriver {
    supervisor: Supervisor,
    orders: Vec<Order>,
}

impl TestDriver {
    /// Creates the supervisor of two nodes, which have registered, and whose links have been measured.
    fn measured(set_up_by: Option<ProcessId>, ends: SystemEnd) -> TestDriver {
        TestDriver::with(SystemRun { set_up_by, ..run(ends, [AfterExit::End; 2]) })
    }

    fn with(system: SystemRun) -> TestDriver {
        TestDriver::planned(system, Vec::new())
    }

    fn planned(system: SystemRun, plan: Vec<PlannedFault>) -> TestDriver {
        TestDriver::new(system, plan, &[&NODES[..1], &NODES[1..]], Span(100))
    }

    fn of_clusters(system: SystemRun, clusters: &[&[ProcessId]]) -> TestDriver {
        TestDriver::new(system, Vec::new(), clusters, Span(100))
    }

    fn limited(system: SystemRun, detect_after: Span) -> TestDriver {
        TestDriver::new(system, Vec::new(), &[&NODES[..1], &NODES[1..]], detect_after)
    }

    fn new(
        system: SystemRun,
        plan: Vec<PlannedFault>,
        clusters: &[&[ProcessId]],
        detect_after: Span,
    ) -> TestDriver {
        let cluster_of = |it: ProcessId| clusters.iter().position(|all| all.contains(&it)).unwrap() as u16;
        let membership = Membership {
            version: MembershipVersion(0),
            members: NODES.map(|it| member(cluster_of(it), it.0)).into(),
            clusters: clusters.iter().map(|it| Cluster::new((*it).into())).collect(),
        };
        let config = Config {
            detect_after,
            restart_after: Span(50),
            spares: 0,
            volatile_storage: false,
            deadline: Span(100_000_000_000),
            start_within: Some(Span(100_000)),
            plan,
            joins: Vec::new(),
            leaves: Vec::new(),
            scope: Scope::Process,
            is_planned: false,
            least_work_left_percent: 0,
            system: Some(system),
        };
        let mut orders = Vec::new();
        let supervisor = Supervisor::new(config, membership, &mut orders);
        let mut driver = TestDriver { supervisor, orders };
        for process in NODES {
            driver.report(1, Report::Registered { process, life: FIRST });
        }
        driver.orders.clear();
        driver.report(1, Report::LinksMeasured);
        driver
    }

    fn report(&mut self, at: u64, report: Report) {
        self.supervisor.handle(report, Time(at), &mut self.orders);
    }

    fn observe(&mut self, at: u64, process: ProcessId, life: Life, observation: Observation) {
        let fact = Fact::Observed(Box::new(observation));
        self.report(at, Report::Fact { process, life, fact, halted: false });
    }

    /// Reports a line for a watch, at which the process is halted.
    fn log(&mut self, at: u64, process: ProcessId, watch: u16) {
        let line = Observation::Logged {
            watch: WatchNo(watch),
            line: "a line".into(),
            log_line: 0,
            is_error: false,
            groups: [].into(),
        };
        let fact = Fact::Observed(Box::new(line));
        self.report(at, Report::Fact { process, life: FIRST, fact, halted: true });
    }

    /// Returns the processes that faults have killed.
    fn killed(&self) -> Vec<ProcessId> {
        let killed = self.orders.iter().filter_map(|it| match it {
            Order::Kill { lives, .. } => Some(lives.iter().map(|it| it.0)),
            _ => None,
        });
        killed.flatten().collect()
    }

    fn begins(&mut self, at: u64) {
        for process in NODES {
            self.observe(at, process, FIRST, Observation::Ready);
        }
        assert!(self.has_begun());
    }

    fn has_begun(&self) -> bool {
        self.orders.contains(&Order::Record(Fact::Begun))
    }

    fn has_ended(&self) -> bool {
        self.orders.contains(&Order::End(Outcome::Completed))
    }
}

#[test]
fn the_run_begins_once_all_nodes_are_ready_and_the_system_is_set_up() {
    let (last, life) = (NODES[1], FIRST);
    let mut driver = TestDriver::measured(Some(last), SystemEnd::After(Span(1_000)));
    assert_eq!(driver.orders, NODES.map(|process| Order::Prepare { process, life }));
    driver.observe(2, last, life, Observation::Ready);
    driver.report(2, Report::SetUp { process: last, life });
    driver.orders.clear();
    driver.observe(3, NODES[0], life, Observation::Ready);
    assert_eq!(driver.orders, [Order::SetUp { process: last, life }]);
    driver.report(4, Report::SetUp { process: last, life });
    assert!(driver.has_begun());
}

#[test]
fn a_node_that_fails_while_commands_start_starts_its_command_again() {
    let mut driver = TestDriver::measured(None, SystemEnd::After(Span(1_000)));
    driver.observe(2, NODES[0], FIRST, Observation::Ready);
    driver.report(3, Report::Exited { process: NODES[0], life: FIRST });
    driver.report(60, Report::Timeout);
    let (process, life) = (NODES[0], Life(2));
    assert!(driver.orders.contains(&Order::Launch { process, life, boot: Boot::Restarted }));
    driver.report(70, Report::Registered { process, life });
    assert!(driver.orders.contains(&Order::Prepare { process, life }));
    driver.observe(71, NODES[1], FIRST, Observation::Ready);
    assert!(!driver.has_begun(), "the second life is not ready");
    driver.observe(72, process, life, Observation::Ready);
    assert!(driver.has_begun());
}

#[test]
fn the_run_ends_at_its_time_once_all_nodes_are_up() {
    let mut driver = TestDriver::measured(None, SystemEnd::After(Span(1_000)));
    driver.begins(10);
    driver.report(1_000, Report::Exited { process: NODES[0], life: FIRST });
    driver.report(1_020, Report::Timeout);
    assert!(!driver.has_ended(), "a node is down");
    driver.report(1_100, Report::Timeout);
    driver.report(1_110, Report::Registered { process: NODES[0], life: Life(2) });
    assert!(driver.has_ended());
}

#[test]
fn the_run_ends_once_the_commands_of_a_cluster_have_succeeded() {
    let mut driver = TestDriver::with(run(SystemEnd::Exit(ClusterId(1)), [AfterExit::Stay; 2]));
    driver.begins(10);
    driver.observe(20, NODES[0], FIRST, exited(Ending::Exit(0)));
    driver.observe(30, NODES[1], FIRST, exited(Ending::Exit(1)));
    assert!(driver.has_ended(), "a command that has failed will not succeed any more");
}

#[test]
fn the_run_does_not_end_before_it_begins() {
    let mut driver = TestDriver::measured(None, SystemEnd::Exit(ClusterId(1)));
    driver.observe(10, NODES[1], FIRST, Observation::Ready);
    driver.observe(20, NODES[1], FIRST, exited(Ending::Exit(0)));
    assert!(!driver.has_ended(), "the other command is not ready");
    driver.observe(30, NODES[0], FIRST, Observation::Ready);
    assert!(driver.has_begun() && driver.has_ended());
}

#[test]
fn the_run_ends_at_once_if_a_command_exits_that_must_not() {
    let mut driver = TestDriver::measured(None, SystemEnd::After(Span(1_000)));
    driver.observe(5, NODES[0], FIRST, exited(Ending::Exit(3)));
    driver.begins(10);
    assert!(!driver.has_ended(), "before the beginning, the node says so");
    driver.observe(20, NODES[1], FIRST, exited(Ending::Exit(0)));
    assert!(driver.has_ended());
    let mut driver = TestDriver::with(run(SystemEnd::After(Span(1_000)), [AfterExit::Stay, AfterExit::End]));
    driver.begins(10);
    driver.observe(20, NODES[0], FIRST, exited(Ending::Exit(3)));
    assert!(!driver.has_ended());
    driver.report(1_010, Report::Timeout);
    assert!(driver.has_ended());
}

#[test]
fn a_command_that_is_started_again_begins_a_life_and_ends_the_run_when_it_succeeds() {
    let (process, life) = (NODES[1], Life(2));
    let mut driver = TestDriver::with(run(SystemEnd::Exit(ClusterId(1)), [AfterExit::Restart; 2]));
    driver.begins(10);
    driver.observe(30, process, FIRST, exited(Ending::Exit(1)));
    let (storage, by) = (StorageFate::Kept, EndedBy::CommandExited);
    assert!(driver.orders.contains(&Order::Record(Fact::Failed { process, life: FIRST, storage, by })));
    assert_eq!(driver.killed(), [process]);
    driver.report(31, Report::Exited { process, life: FIRST });
    driver.report(31, Report::Timeout);
    driver.report(100, Report::Timeout);
    assert!(driver.orders.contains(&Order::Launch { process, life, boot: Boot::Restarted }));
    driver.report(110, Report::Registered { process, life });
    driver.observe(120, process, life, Observation::Ready);
    driver.observe(130, process, life, exited(Ending::Exit(0)));
    assert!(driver.has_ended() && driver.killed().len() == 1);
}

#[test]
fn all_nodes_of_a_cluster_can_begin_new_lives_at_an_exit() {
    let mut system = run(SystemEnd::After(Span(1_000)), [AfterExit::RestartCluster; 2]);
    system.ends = SystemEnd::After(Span(10_000_000_000));
    let mut driver = TestDriver::of_clusters(system, &[&NODES]);
    driver.begins(10);
    driver.observe(30, NODES[1], FIRST, exited(Ending::Signal(6)));
    assert_eq!(driver.killed(), NODES);
    // The end of the other rank follows from that of the first.
    driver.observe(31, NODES[0], FIRST, exited(Ending::Exit(1)));
    assert_eq!(driver.killed(), NODES);
}

#[test]
fn a_command_that_exits_again_and_again_ends_the_run() {
    let (process, second) = (NODES[1], 1_000_000_000);
    // The fourth life is ready for more than a second. In the end, what commands leave behind takes longer to end.
    for (lasts, ends_after, most) in [(0, 1, 6), (2 * second, 1, 10), (0, 2 * second, 6)] {
        let mut driver = TestDriver::with(run(SystemEnd::After(Span(u64::MAX)), [AfterExit::Restart; 2]));
        driver.begins(10);
        let (mut now, mut life) = (10, FIRST);
        let outcome = (1..).find_map(|exits| {
            now += if exits == 4 { lasts } else { 5 };
            driver.observe(now, process, life, exited(Ending::Exit(3)));
            let is_end = |it: &&Order| matches!(it, Order::End(_));
            if let Some(Order::End(outcome)) = driver.orders.iter().find(is_end) {
                return Some((exits, outcome.clone()));
            }
            now += ends_after;
            driver.report(now, Report::Exited { process, life });
            driver.report(now, Report::Timeout);
            driver.report(now + 100, Report::Timeout);
            (now, life) = (now + 110, life.next());
            driver.report(now, Report::Registered { process, life });
            driver.observe(now, process, life, Observation::Ready);
            None
        });
        assert_eq!(outcome, Some((most, Outcome::ExitsAgain { process, exits: 6 })));
    }
}

#[test]
fn a_cluster_can_start_after_others_are_ready() {
    let mut system = run(SystemEnd::After(Span(1_000)), [AfterExit::End; 2]);
    system.starts_after = vec![vec![ClusterId(1)], vec![]];
    let mut driver = TestDriver::with(system);
    let [first, last] = NODES;
    let prepare = |process, life| Order::Prepare { process, life };
    assert_eq!(driver.orders, [prepare(last, FIRST)]);
    driver.observe(2, last, FIRST, Observation::Ready);
    assert_eq!(driver.orders, [prepare(last, FIRST), prepare(first, FIRST)]);
    assert_eq!(driver.supervisor.status().clusters.iter().map(|it| it.up).collect::<Vec<_>>(), [0, 1]);
    driver.observe(3, first, FIRST, Observation::Ready);
    assert!(driver.has_begun());
    assert_eq!(driver.supervisor.status().clusters.iter().map(|it| it.up).collect::<Vec<_>>(), [1, 1]);
    driver.observe(4, first, FIRST, exited(Ending::Exit(0)));
    assert_eq!(driver.supervisor.status().clusters.iter().map(|it| it.up).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn without_a_limit_silence_kills_no_node() {
    let mut driver =
        TestDriver::limited(run(SystemEnd::After(Span(u64::MAX)), [AfterExit::End; 2]), Span::MAX);
    driver.begins(10);
    driver.supervisor.expect_heartbeats();
    driver.report(20, Report::Heartbeat { process: NODES[0], life: FIRST, gauges: Gauges::default() });
    driver.report(1_000_000_000_000, Report::Timeout);
    assert_eq!(driver.killed(), []);
}

#[test]
fn a_life_sets_the_system_up_if_the_previous_one_failed_to() {
    let last = NODES[1];
    let mut driver = TestDriver::measured(Some(last), SystemEnd::After(Span(1_000)));
    for process in NODES {
        driver.observe(2, process, FIRST, Observation::Ready);
    }
    driver.report(3, Report::Exited { process: last, life: FIRST });
    driver.report(60, Report::Timeout);
    driver.report(70, Report::Registered { process: last, life: Life(2) });
    driver.orders.clear();
    driver.observe(72, last, Life(2), Observation::Ready);
    assert_eq!(driver.orders, [Order::SetUp { process: last, life: Life(2) }]);
    driver.report(74, Report::SetUp { process: last, life: Life(2) });
    assert!(driver.has_begun());
}

#[test]
fn a_run_ends_after_its_checks_have_been_carried_out_one_after_the_other() {
    let [first, last] = NODES;
    let ends = SystemEnd::After(Span(1_000));
    let mut driver = TestDriver::with(SystemRun {
        checks: (0..).map(CheckNo).zip([last, first, first]).collect(),
        ..run(ends, [AfterExit::End; 2])
    });
    let check = |no, process, life| Order::Check { process, life, check: CheckNo(no) };
    let checked = |no| {
        let (ending, said) = (Ending::Exit(1), "".into());
        Observation::Checked { check: CheckNo(no), latency: Span(1), ending, said }
    };
    driver.begins(10);
    driver.orders.clear();
    driver.report(1_010, Report::Timeout);
    assert_eq!(driver.orders, [check(0, last, FIRST)]);
    driver.observe(1_020, last, FIRST, checked(0));
    driver.orders.clear();
    driver.report(1_030, Report::Exited { process: first, life: FIRST });
    driver.report(1_040, Report::Timeout);
    driver.report(1_200, Report::Timeout);
    driver.report(1_210, Report::Registered { process: first, life: Life(2) });
    assert!(driver.orders.contains(&check(1, first, Life(2))), "the life that was to check has failed");
    driver.observe(1_220, first, Life(2), checked(1));
    assert!(driver.orders.contains(&check(2, first, Life(2))) && !driver.has_ended());
    driver.observe(1_230, first, Life(2), checked(1));
    assert!(!driver.has_ended(), "this check has been carried out before");
    driver.observe(1_230, first, Life(2), checked(2));
    assert!(driver.has_ended());
}

#[test]
fn checks_wait_for_the_end_of_faults_that_last() {
    let [first, last] = NODES;
    let clusters = [ClusterId(0), ClusterId(1)];
    let pause = Fault::Impair { process: first, how: Impairment::Paused, span: Some(Span(500)) };
    let partition =
        Fault::Partition { from: clusters[0], to: vec![clusters[1]], both: true, span: Span(500) };
    let cut_for_ever = Fault::Link { from: clusters[0], to: clusters[1], properties: None, span: None };
    for (fault, ends_at) in [(pause, 1_300), (partition, 1_300), (cut_for_ever, 1_000)] {
        let name = format!("{fault:?}");
        let trigger = Trigger::At(Time(800));
        let plan = vec![PlannedFault { no: FaultNo(0), trigger, fault, reported: None, cause: None }];
        let system = SystemRun { checks: vec![(CheckNo(0), last)], ..ends_late() };
        let mut driver = TestDriver::new(system, plan, &[&NODES[..1], &NODES[1..]], Span(10_000));
        let check = Order::Check { process: last, life: FIRST, check: CheckNo(0) };
        driver.begins(0);
        for at in (790..1_400).step_by(10) {
            driver.report(at, Report::Timeout);
            assert_eq!(driver.orders.contains(&check), at >= ends_at, "{at}: {name}");
        }
    }
}

fn crash_of_reporter(trigger: Trigger) -> PlannedFault {
    let fault = Fault::crash(ProcessId::SUPERVISOR);
    PlannedFault { no: FaultNo(0), trigger, fault, reported: Some(WatchNo(1)), cause: None }
}

fn ends_late() -> SystemRun {
    run(SystemEnd::After(Span(1000)), [AfterExit::End; 2])
}

#[test]
fn a_fault_strikes_the_node_that_last_logged_a_line_for_its_watch() {
    let plan = vec![crash_of_reporter(Trigger::At(Time(100)))];
    let mut driver = TestDriver::planned(ends_late(), plan);
    // Lines from before the beginning count, and those for another watch do not.
    driver.log(2, NODES[0], 1);
    driver.log(3, NODES[1], 1);
    driver.log(4, NODES[0], 0);
    driver.begins(10);
    driver.report(110, Report::Timeout);
    assert_eq!(driver.killed(), [NODES[1]]);
    let fault = Box::new(Fault::crash(NODES[1]));
    assert!(driver.orders.contains(&Order::Record(Fact::Injecting { no: FaultNo(0), fault })));
}

#[test]
fn a_fault_has_no_effect_if_no_node_has_logged_a_line_for_its_watch() {
    let mut driver = TestDriver::planned(ends_late(), vec![crash_of_reporter(Trigger::At(Time(100)))]);
    driver.begins(10);
    driver.log(20, NODES[0], 0);
    driver.report(110, Report::Timeout);
    assert_eq!(driver.killed(), []);
    let reason = "no node had logged a line for its watch".into();
    assert_eq!(driver.supervisor.faults()[0].1, FaultState::Ineffective(reason));
}

#[test]
fn a_fault_waits_for_a_line_for_its_watch_after_the_beginning() {
    let when = Trigger::When {
        fact: FactKind::Logged,
        of: Some(Source::Watch(WatchNo(1))),
        cluster: None,
        process: None,
        occurrence: 1,
    };
    let mut driver = TestDriver::planned(ends_late(), vec![crash_of_reporter(when)]);
    driver.log(2, NODES[0], 1);
    driver.begins(10);
    driver.log(20, NODES[0], 0);
    assert_eq!(driver.killed(), [], "the line is for another watch");
    driver.log(30, NODES[1], 1);
    assert_eq!(driver.killed(), [NODES[1]]);
}

/// Returns a driver of two nodes in one cluster whose commands a fault stops at 20, once the run has begun.
fn stopped(target: Target, in_turn: bool) -> TestDriver {
    let (storage, repair, command) = (StorageFate::Kept, None, Some(3));
    let fault = Fault::Stop { target, storage, repair, within: Span(500), in_turn, command };
    let planned =
        PlannedFault { no: FaultNo(0), trigger: Trigger::At(Time(10)), fault, reported: None, cause: None };
    let system = run(SystemEnd::After(Span(100)), [AfterExit::End; 2]);
    let mut driver = TestDriver::new(system, vec![planned], &[&NODES], Span::MAX);
    driver.begins(10);
    driver.report(20, Report::Timeout);
    driver
}

/// The order to end the command of the first life of a node.
fn stop(process: ProcessId) -> Order {
    Order::Stop { process, life: FIRST, within: Span(500), command: Some(3) }
}

fn has_stopped() -> Observation {
    Observation::Stopped { ending: Ending::Exit(0), latency: Span(7), killed: false, said: "".into() }
}

impl TestDriver {
    fn told_to_stop(&self) -> Vec<Order> {
        self.orders.iter().filter(|it| matches!(it, Order::Stop { .. })).cloned().collect()
    }

    /// Lets the command of a node end, and its next life become ready.
    fn restarts(&mut self, now: u64, process: ProcessId) {
        self.observe(now, process, FIRST, has_stopped());
        self.report(now + 1, Report::Exited { process, life: FIRST });
        self.report(now + 1, Report::Timeout);
        self.report(now + 60, Report::Timeout);
        self.report(now + 61, Report::Registered { process, life: Life(2) });
    }
}

#[test]
fn the_life_of_a_node_ends_once_its_command_has_stopped() {
    let process = NODES[1];
    let mut driver = stopped(process.into(), false);
    assert_eq!((driver.told_to_stop(), driver.killed()), (vec![stop(process)], vec![]));
    driver.report(200, Report::Timeout);
    assert!(!driver.has_ended(), "the command has not ended");
    driver.restarts(300, process);
    let (storage, by) = (StorageFate::Kept, EndedBy::Fault(FaultNo(0)));
    assert!(driver.orders.contains(&Order::Record(Fact::Failed { process, life: FIRST, storage, by })));
    assert!(driver.orders.contains(&Order::Launch { process, life: Life(2), boot: Boot::Restarted }));
    assert!(driver.has_ended(), "the run was over before");
    let mut driver = stopped(process.into(), false);
    driver.observe(30, NODES[0], FIRST, has_stopped());
    assert_eq!(driver.killed(), [], "a node that was not told to stop cannot end its life");
}

#[test]
fn nodes_restart_at_once_or_one_after_the_other() {
    let [first, last] = NODES;
    let driver = stopped(ClusterId(0).into(), false);
    assert_eq!(driver.told_to_stop(), [stop(first), stop(last)]);
    let mut driver = stopped(ClusterId(0).into(), true);
    driver.restarts(30, first);
    assert_eq!(driver.told_to_stop(), [stop(first)]);
    driver.observe(100, first, Life(2), Observation::Ready);
    assert_eq!(driver.told_to_stop(), [stop(first), stop(last)]);
    assert!(!driver.has_ended(), "a node has not stopped yet");
    driver.restarts(200, last);
    assert!(driver.has_ended());
}

#[test]
fn a_node_that_is_down_when_its_turn_comes_is_restarted_once_it_is_ready() {
    let [first, last] = NODES;
    let mut driver = stopped(ClusterId(0).into(), true);
    driver.report(25, Report::Exited { process: last, life: FIRST });
    driver.report(25, Report::Timeout);
    driver.restarts(30, first);
    driver.observe(100, first, Life(2), Observation::Ready);
    driver.report(101, Report::Registered { process: last, life: Life(2) });
    assert_eq!(driver.told_to_stop(), [stop(first)]);
    driver.observe(110, last, Life(2), Observation::Ready);
    let again = Order::Stop { process: last, life: Life(2), within: Span(500), command: Some(3) };
    assert_eq!(driver.told_to_stop(), [stop(first), again]);
}

#[test]
fn a_command_that_has_exited_cannot_be_stopped() {
    let system = run(SystemEnd::After(Span(1_000)), [AfterExit::Stay; 2]);
    let (storage, repair, command) = (StorageFate::Kept, None, None);
    let target = NODES[0].into();
    let fault = Fault::Stop { target, storage, repair, within: Span(500), in_turn: false, command };
    let trigger = Trigger::At(Time(10));
    let planned = PlannedFault { no: FaultNo(0), trigger, fault, reported: None, cause: None };
    let mut driver = TestDriver::planned(system, vec![planned]);
    driver.begins(10);
    driver.observe(15, NODES[0], FIRST, exited(Ending::Exit(0)));
    driver.report(20, Report::Timeout);
    assert!(driver.told_to_stop().is_empty());
    let [(_, FaultState::Ineffective(reason))] = &driver.supervisor.faults()[..] else { panic!("no effect") };
    assert_eq!(&**reason, "no node of its target was running its command");
}
