//! Runs every sample in virtual time. Each must end as its comment says.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use faultline_api::samples::{SAMPLES, sample};
use faultline_api::{Federation, parse};
use faultline_checker::Verdict;
use faultline_core::{Digest, Fact, GroupId, ProcessId, Sn, Span, Target};
use faultline_session::{Recording, Session, Simulator, UnjudgedRecording};
use faultline_supervisor::{FaultState, Outcome};
use faultline_trace::{Bundle, Manifest};

fn federation(name: &str) -> Federation {
    let text = sample(name).expect("the sample exists").text;
    parse(name, text.as_bytes()).unwrap_or_else(|it| panic!("{name}: {it}"))
}

/// The end of a run, and the last result of each rank.
struct Ended {
    manifest: Manifest,
    results: Vec<(ProcessId, Digest)>,
    /// The last checkpoint that each rank restored.
    restored: BTreeMap<ProcessId, Sn>,
    /// Ranks that never return.
    gone: Vec<ProcessId>,
}

fn run(federation: &Federation) -> Ended {
    let run = Session::new(federation).simulate(&mut Simulator::new(&mut ()));
    let UnjudgedRecording { manifest, trace, .. } = run.unwrap_or_else(|it| panic!("{it}"));
    let permanent = manifest.plan.iter().filter(|it| it.fault.is_permanent());
    let lost = permanent.filter_map(|it| match it.fault.kills() {
        Some(Target::Cluster(cluster)) => Some(cluster),
        _ => None,
    });
    let gone = lost
        .flat_map(|lost| manifest.ranks().filter(move |it| it.1.cluster == lost).map(|it| it.0))
        .collect();
    let mut results = BTreeMap::new();
    let mut restored = BTreeMap::new();
    for ((process, _), stream) in &trace.streams {
        for (_, fact) in stream {
            match fact {
                Fact::Finished(it) => {
                    results.insert(*process, it.1);
                }
                Fact::Restored(it) => {
                    restored.insert(*process, it.0.as_ref().map_or(Sn(0), |image| image.sn));
                }
                _ => {}
            }
        }
    }
    Ended { manifest, results: results.into_iter().collect(), restored, gone }
}

fn simulate(name: &str) -> Ended {
    run(&federation(name))
}

#[test]
fn samples_complete_with_the_result_of_a_run_without_failures() {
    for sample in SAMPLES.iter().filter(|it| it.name != "same-cluster-loss") {
        let ended = simulate(sample.name);
        assert_eq!(ended.manifest.outcome, Some(Outcome::Completed), "{}", sample.name);
        // Random faults may come too late.
        let mut faults = ended.manifest.faults.iter().map(|it| &it.1);
        let is_fixed = !sample.text.contains("mtbf");
        assert!(!is_fixed || faults.all(|it| *it == FaultState::Effective), "{}", sample.name);
        // A process that never returns has no result. In a planned program, a process whose cluster leaves
        // has none, either.
        let leaves = |rank: &ProcessId| {
            let spec = &federation(sample.name).spec;
            let cluster = ended.manifest.processes[rank.index()].cluster;
            spec.is_planned() && spec.clusters[cluster.index()].leaves_after.is_some()
        };
        let gone = |rank: &ProcessId| ended.gone.contains(rank) || leaves(rank);
        let reference = ended.manifest.expected.map(|it| it.digests);
        let expected = reference.map(|all| all.into_iter().filter(|(rank, _)| !gone(rank)).collect());
        assert_eq!(Some(ended.results), expected, "{}", sample.name);
    }
}

#[test]
fn every_sample_passes_unless_it_demonstrates_an_unrecoverable_loss_and_its_record_is_judged_alike() {
    for sample in SAMPLES {
        let federation = federation(sample.name);
        let session = Session::new(&federation).of_text(sample.text, UNIX_EPOCH);
        let in_memory = session.simulate(&mut Simulator::new(&mut ()));
        let in_memory = in_memory.unwrap_or_else(|it| panic!("{}: {it}", sample.name));
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        in_memory.write(&bundle).unwrap();
        let (in_memory, read) = (in_memory.judge(), Recording::read(&bundle).unwrap());
        let judgement = &in_memory.judgement;
        let expected = match sample.name {
            "same-cluster-loss" => Verdict::Unknown,
            _ => Verdict::Pass,
        };
        assert_eq!(judgement.verdict, expected, "{}: {:?}", sample.name, judgement.reasons);
        assert_eq!(read.judgement, *judgement, "{}", sample.name);
        assert_eq!((read.trace.flaws, in_memory.trace.flaws), (vec![], vec![]), "{}", sample.name);
    }
}

#[test]
fn the_quick_start_shows_all_of_its_faults() {
    let ended = simulate("quickstart");
    assert_eq!(ended.manifest.faults.len(), 2);
    for (no, state) in &ended.manifest.faults {
        assert_eq!(*state, FaultState::Effective, "{no}");
    }
    assert!(ended.manifest.duration < Span::from_secs(20), "{}", ended.manifest.duration);
}

#[test]
fn a_cluster_lost_with_all_copies_is_unrecoverable() {
    let ended = simulate("same-cluster-loss");
    let Some(Outcome::Unrecoverable { group, missing }) = ended.manifest.outcome else {
        panic!("{:?}", ended.manifest.outcome)
    };
    assert_eq!(group, GroupId(0));
    assert!(!missing.is_empty());
}

#[test]
fn under_full_logging_only_failed_processes_roll_back() {
    let ended = simulate("full-logging");
    assert!(ended.restored.keys().eq(&[ProcessId(0), ProcessId(1), ProcessId(3)]), "{:?}", ended.restored);
}

#[test]
fn under_pessimistic_logging_only_failed_processes_roll_back_whatever_the_program() {
    let ended = simulate("pessimistic-logging");
    assert!(
        ended.manifest.faults.iter().all(|(_, state)| *state == FaultState::Effective),
        "{:?}",
        ended.manifest.faults
    );
    assert!(ended.restored.keys().eq(&[ProcessId(0), ProcessId(2), ProcessId(3)]), "{:?}", ended.restored);
}

#[test]
fn under_tic_only_returning_processes_roll_back() {
    let ended = simulate("tic");
    assert!(
        ended.manifest.faults.iter().all(|(_, it)| *it == FaultState::Effective),
        "{:?}",
        ended.manifest.faults
    );
    assert!(ended.restored.keys().eq(&[ProcessId(1)]), "{:?}", ended.restored);
    assert_eq!(ended.gone, [3, 4, 5].map(ProcessId));
}

#[test]
fn a_task_that_outlasts_the_run_is_not_a_stall() {
    for (name, task_time) in
        [("tic", "taskTime: 10ms"), ("sel", "taskTime: 50ms"), ("satin", "taskTime: 10ms")]
    {
        let text = sample(name).expect("the sample exists").text.replace(task_time, "taskTime: 10m");
        let federation = parse(name, text.as_bytes()).unwrap_or_else(|it| panic!("{name}: {it}"));
        let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ()));
        let run = run.unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(run.manifest.outcome, Some(Outcome::Deadline), "{name}");
        let Recording { judgement, .. } = run.judge();
        assert_eq!(judgement.verdict, Verdict::Unknown, "{name}: {:?}", judgement.reasons);
    }
}

#[test]
fn speed_and_cores_of_a_cluster_reach_its_places() {
    let seconds = |cluster: &str| {
        let mut federation = federation("tasks");
        federation.spec.clusters.truncate(1);
        federation.spec.clusters[0].nodes = 1;
        let text =
            faultline_api::to_yaml(&federation).replace("- name: paris", &format!("- name: paris{cluster}"));
        let federation = parse("changed", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
        let ended = run(&federation);
        assert_eq!(ended.manifest.outcome, Some(Outcome::Completed));
        ended.manifest.duration.as_secs_f64()
    };
    let usual = seconds("");
    let faster = seconds("\n    speed: 400");
    let wider = seconds("\n    cores: 4");
    assert!((3.5..4.5).contains(&(usual / faster)), "{usual} s and {faster} s");
    assert!((3.0..4.5).contains(&(usual / wider)), "{usual} s and {wider} s");
}

#[test]
fn independent_checkpoints_show_the_domino_effect() {
    let ended = simulate("domino");
    // The first checkpoint is taken before the application acts.
    assert_eq!(ended.restored, (0..4).map(|rank| (ProcessId(rank), Sn(1))).collect());
}
