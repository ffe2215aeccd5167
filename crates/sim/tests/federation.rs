//! Whole federations under HC3I, simulated and judged.

mod common;

use faultline_checker::{Context, Verdict, judge};
use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, FactKind, Fault, ProcessId, Promises, Span, StorageFate, Time, Trigger};
use faultline_protocols::hc3i::{self, Hc3i};
use faultline_sim::{Config, Contents, InFlight, Links, Run, Simulation, run};
use faultline_supervisor::{FaultState, Outcome, process_seed};
use faultline_trace::manifest::Expected;
use faultline_trace::{Manifest, Trace};
use faultline_workloads::{Config as Application, heat, pingpong, reference};

use common::Process;

const CLUSTERS: [usize; 2] = [3, 3];

fn heat() -> heat::Config {
    heat::Config {
        rows: 4,
        columns: 16,
        steps: 200,
        step_cost: Span::from_millis(20),
        feedback_every: 25,
        state_bytes: 1000,
        virtual_state: true,
    }
}

/// Returns two faults: a process fails, and cluster 0 is lost when cluster 1 requests its third checkpoint.
fn faults() -> Vec<(Trigger, Fault)> {
    let requested = Trigger::When {
        fact: FactKind::CheckpointRequested,
        of: None,
        cluster: Some(ClusterId(1)),
        process: None,
        occurrence: 3,
    };
    vec![
        (Trigger::At(Time::ZERO + Span::from_millis(900)), Fault::crash(ProcessId(4))),
        (requested, Fault::kill(ClusterId(0), StorageFate::Lost)),
    ]
}

fn config(seed: u64) -> Config<<Process as faultline_core::Process>::Config> {
    let protocol = common::hc3i(2, Span::from_millis(500));
    common::config(&CLUSTERS, protocol, Application::Heat(heat()), faults(), seed)
}

fn simulate(config: Config<<Process as faultline_core::Process>::Config>) -> (Run, Trace) {
    let mut trace = Trace::default();
    let run = run::<Process>(config, &mut trace);
    (run, trace)
}

#[test]
fn a_crash_and_the_loss_of_a_cluster_do_not_change_the_result() {
    let config = config(7);
    let expected =
        reference(&config.process.application, &config.membership, |it| process_seed(config.seed, it));
    let plan = config.supervisor.plan.clone();
    let promises = Promises::of::<Hc3i>(&config.process.protocol);
    let (run, trace) = simulate(config);
    assert_eq!(run.outcome, Outcome::Completed);
    assert!(run.faults.iter().all(|(_, state)| *state == FaultState::Effective), "{:?}", run.faults);
    let manifest = Manifest {
        plan,
        duration: run.ended.since(Time::ZERO),
        expected: expected.map(|digests| Expected { source: "the sequential reference".into(), digests }),
        ..Manifest::bare(promises, &[3, 3])
    };
    let judgement = judge(&trace, &Context::from_manifest(&manifest));
    assert_eq!(judgement.reasons, [""; 0]);
    assert_eq!(judgement.verdict, Verdict::Pass);
}

#[test]
fn equal_seeds_run_identically_and_different_ones_do_not() {
    let (run, trace) = simulate(config(7));
    let (again, same) = simulate(config(7));
    assert_eq!(run, again);
    assert!(trace == same, "two runs with the same seed differ");
    let (_, other) = simulate(config(8));
    assert!(trace != other, "the seed has no effect");
}

#[test]
fn a_paranoid_run_is_identical() {
    let (run, trace) = simulate(config(7));
    let (paranoid, same) = simulate(Config { paranoid: true, ..config(7) });
    assert_eq!(run, paranoid);
    assert!(trace == same, "encoding changes the run");
}

#[test]
fn a_run_can_be_stepped_observed_and_interrupted() {
    let mut trace = Trace::default();
    let mut simulation = Simulation::<Process, _>::new(config(7), &mut trace);
    let second = Time::ZERO + Span::from_secs(1);
    assert!(simulation.run_until(second));
    assert!(simulation.now() <= second);
    let before = simulation.status();
    assert!(before.clusters[0].committed.sn.0 >= 1 && before.clusters[0].up == 3, "{before:?}");
    assert!(simulation.run_until(Time::ZERO + Span::from_secs(2)));
    let after = simulation.status();
    assert!(after.clusters[0].progress.done > before.clusters[0].progress.done);
    simulation.interrupt();
    assert_eq!(simulation.outcome(), Some(&Outcome::Interrupted));
    assert!(!simulation.step());
}

#[test]
fn packets_of_failed_lives_are_lost_kept_or_sampled() {
    // In each step, cluster 0 sends its boundary to cluster 1, so some packets are always in transit on this slow link.
    let slow = LinkProperties { latency: Span::from_millis(100), ..LinkProperties::default() };
    let lost = |in_flight, seed| {
        let mut config = config(seed);
        config.links = Links::uniform(2, LinkProperties::default(), slow);
        config.chance.in_flight = in_flight;
        let (run, _) = simulate(config);
        assert_eq!(run.outcome, Outcome::Completed);
        run.stats.lost_in_flight
    };
    assert_eq!(lost(InFlight::Kept, 1), 0);
    assert!(lost(InFlight::Lost, 1) > 0);
    let drawn: Vec<u64> = (1..8).map(|seed| lost(InFlight::Sampled, seed)).collect();
    assert!(drawn.contains(&0) && drawn.iter().any(|&it| it > 0), "{drawn:?}");
}

/// Plays ping-pong between two clusters for `rounds` rounds, each of which forces checkpoints. Garbage
/// collection is off.
fn play(rounds: u32) -> Contents {
    let protocol =
        hc3i::Config { collect_every: None, replicas: 0, ..common::hc3i(2, Span::from_secs(36_000)) };
    let application = Application::PingPong(pingpong::Config { sizes: vec![8], rounds });
    let config = common::config(&[10, 10], protocol, application, Vec::new(), 1);
    let mut facts = ();
    let mut simulation = Simulation::<Process, _>::new(config, &mut facts);
    while simulation.step() {}
    assert_eq!(simulation.outcome(), Some(&Outcome::Completed));
    simulation.contents()
}

#[test]
fn checkpoints_share_the_log_and_the_tables_of_deliveries() {
    let (few, many) = (play(150), play(300));
    let each = |it: Contents| it.image_bytes / it.images;
    assert!(many.images > 20 * 300, "{many:?}");
    assert!(many.logged > 20 * 250, "{many:?}");
    // A separate copy of the log and of the table of deliveries would add 100 bytes per round to each part.
    assert!(each(many) < 2500, "{} bytes per part of a checkpoint", each(many));
    assert!(each(many) < each(few) + 200, "a part grows from {} to {} bytes", each(few), each(many));
}
