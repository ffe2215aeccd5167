//! The effects of faults on real processes: every fault that a process applied has an effect, even if the process was
//! down when the fault was injected, and even if the supervisor was restarted afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_conformance::{Act, Scenario, Script, Step};
use faultline_core::fault::{Impairment, LinkProperties, Outcome, StorageFault};
use faultline_core::{
    ClusterId, Fact, Fault, FaultNo, Life, PlannedFault, ProcessId, Scope, Span, Time, Trigger,
};
use faultline_runtime::supervise::JournalContents;
use faultline_runtime::{Observer, RunError, RunOptions, RunOutcome, local, remote};
use faultline_runtime_tests::agents::Agents;
use faultline_runtime_tests::{probe_command, run_options};
use faultline_supervisor::{Config, Status};
use faultline_trace::manifest::{Effect, EffectEntry, LinkEntry};

const P0: ProcessId = ProcessId(0);
const P1: ProcessId = ProcessId(1);
const C0: ClusterId = ClusterId(0);
const C1: ClusterId = ClusterId(1);

/// Returns two clusters with one process each. The given lives finish at the given time.
fn scenario(faults: Vec<(u64, Fault)>, finish: Option<Life>, after: Span) -> Scenario {
    let steps = [P0, P1].map(|process| Step { process, life: finish, after, acts: vec![Act::Finish] });
    let planned = |(no, (millis, fault))| {
        let trigger = Trigger::At(Time::ZERO + Span::from_millis(millis));
        PlannedFault { no: FaultNo(no), trigger, fault, reported: None, cause: None }
    };
    let minute = Span::from_secs(60);
    Scenario {
        clusters: vec![1, 1],
        script: Script { steps: steps.into(), ..Script::default() },
        within: LinkProperties::default(),
        between: LinkProperties { latency: Span::from_millis(1), ..LinkProperties::default() },
        supervisor: Config {
            detect_after: minute,
            restart_after: Span::from_secs(2),
            spares: 0,
            volatile_storage: false,
            deadline: minute,
            start_within: Some(minute),
            plan: (0..).zip(faults).map(planned).collect(),
            scope: Scope::Cluster,
            joins: vec![],
            leaves: vec![],
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        },
        seed: 1,
    }
}

fn slow_link() -> Fault {
    let properties = Some(LinkProperties { latency: Span::from_millis(9), ..LinkProperties::default() });
    Fault::Link { from: C0, to: C1, properties, span: None }
}

fn slow_storage() -> Fault {
    Fault::storage(P0, StorageFault::Slow(Span::from_millis(1)), None)
}

fn slow_node() -> Fault {
    Fault::Impair { process: P0, how: Impairment::Slow { percent: 200 }, span: Some(Span::from_millis(100)) }
}

/// Returns a fault of each kind that ends no life. Some of them find what an earlier one has already changed.
fn changes() -> Vec<(u64, Fault)> {
    let partition =
        |both, millis| Fault::Partition { from: C0, to: vec![C1], both, span: Span::from_millis(millis) };
    let pause = |millis| Fault::pause(P1, Span::from_millis(millis));
    vec![
        (100, slow_link()),
        (150, partition(true, 600)),
        (200, partition(false, 100)),
        (250, slow_storage()),
        (300, pause(300)),
        (350, pause(100)),
        (380, slow_node()),
    ]
}

/// Runs a scenario with child processes, or with agents.
fn run(scenario: &Scenario, with_agents: bool) -> RunOutcome {
    let dir = tempfile::tempdir().unwrap();
    let command = probe_command(scenario, false, dir.path(), env!("CARGO_BIN_EXE_probe-node").into());
    let options = run_options(scenario, dir.path());
    if !with_agents {
        return local::run(command, options, &mut ()).unwrap();
    }
    let agents = Agents::start(dir.path(), env!("CARGO_BIN_EXE_probe-agent"), &command, 2);
    remote::run(agents.options(), options, None, &agents.place_registry(), &mut ()).unwrap()
}

/// Returns the processes that applied each fault, at a known time.
fn applied(effects: &[EffectEntry]) -> BTreeMap<u32, Vec<(ProcessId, Life)>> {
    let processes = |it: &EffectEntry| {
        it.on.iter().filter(|it| it.at.is_some()).map(|it| (it.process, it.life)).collect()
    };
    effects.iter().map(|it| (it.no.0, processes(it))).collect()
}

#[test]
fn every_fault_that_changes_something_has_an_effect() {
    for with_agents in [false, true] {
        let outcome = run(&scenario(changes(), None, Span::from_secs(2)), with_agents);
        assert_eq!(outcome.outcome, Outcome::Completed);
        let (p0, p1) = ((P0, Life(1)), (P1, Life(1)));
        let expected = [vec![p0], vec![p0, p1], vec![p0], vec![p0], vec![p1], vec![p1], vec![p0]];
        assert_eq!(applied(&outcome.effects), (0..).zip(expected).collect(), "with agents: {with_agents}");
    }
}

#[test]
fn a_fault_injected_while_its_process_is_down_takes_effect_when_the_process_starts() {
    let crash = Fault::crash(P0);
    let partition = Fault::Partition { from: C0, to: vec![C1], both: false, span: Span::from_secs(60) };
    let faults = vec![(100, crash), (1000, slow_link()), (1000, slow_storage()), (1000, partition)];
    for with_agents in [false, true] {
        let outcome = run(&scenario(faults.clone(), None, Span::from_secs(1)), with_agents);
        let expected = [vec![(P0, Life(1))], vec![(P0, Life(2))], vec![(P0, Life(2))], vec![(P0, Life(2))]];
        assert_eq!(applied(&outcome.effects), (0..).zip(expected).collect(), "with agents: {with_agents}");
        let exit = outcome.effects[0].exit().unwrap();
        assert!(exit > Span::ZERO && exit < Span::from_secs(2), "the killed process exits soon: {exit}");
        for effect in &outcome.effects[1..] {
            assert_eq!(effect.exit(), None, "it ends no process");
            let latency = effect.latency().unwrap();
            assert!(latency > Span::from_millis(100), "the process restarts 2 s after its crash: {latency}");
        }
    }
}

/// Notes the effects of which it is told. Requests the end of the program once there are enough.
#[derive(Default)]
struct Watcher {
    told: Vec<(FaultNo, Vec<Effect>)>,
    enough: usize,
    interrupted: Arc<AtomicBool>,
}

impl Observer for Watcher {
    fn recorded(&mut self, _: Time, _: ProcessId, _: Life, _: &Fact) {}

    fn status(&mut self, _: Time, _: &Status) {}

    fn measured(&mut self, _: &[LinkEntry]) {}

    fn took_effect(&mut self, effect: &EffectEntry) {
        self.told.push((effect.no, effect.on.clone()));
        self.interrupted.store(self.told.len() >= self.enough, Ordering::Relaxed);
    }
}

#[test]
fn a_restarted_supervisor_knows_the_effects_of_earlier_faults() {
    let dir = tempfile::tempdir().unwrap();
    let faults = changes();
    let mut before = Watcher { enough: faults.len(), ..Watcher::default() };
    let mut after = Watcher { enough: usize::MAX, ..Watcher::default() };
    let scenario = scenario(faults, Some(Life(2)), Span::from_millis(500));
    let command = probe_command(&scenario, false, dir.path(), env!("CARGO_BIN_EXE_probe-node").into());
    let options = run_options(&scenario, dir.path());
    let with = |watcher: &Watcher| RunOptions { interrupted: watcher.interrupted.clone(), ..options.clone() };
    let agents = Agents::start(dir.path(), env!("CARGO_BIN_EXE_probe-agent"), &command, 2);

    let left = remote::run(agents.options(), with(&before), None, &agents.place_registry(), &mut before);
    assert!(matches!(left, Err(RunError::Left)), "{left:?}");
    let past = JournalContents::of(&options.run_dir).unwrap();
    let outcome = remote::run(agents.options(), with(&after), past, &agents.place_registry(), &mut after);
    let outcome = outcome.unwrap();

    assert_eq!(outcome.outcome, Outcome::Completed);
    assert_eq!(before.told, after.told, "the observer is told the same");
    let mut told = before.told;
    told.sort_by_key(|it| it.0);
    // The confirmations of one fault arrive in any order.
    told.iter_mut().for_each(|(_, on)| on.sort_by_key(|it| it.process));
    let recorded = outcome.effects.into_iter().map(|it| (it.no, it.on)).collect::<Vec<_>>();
    assert_eq!(recorded, told);
}
