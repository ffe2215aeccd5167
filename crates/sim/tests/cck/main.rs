//! Planned programs on federations in the simulator: whatever fails, the result equals that of the sequential
//! reference, and only strictly required tasks are re-executed.

mod cases;
mod defects;
mod federation;
mod required;

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Fault, ProcessId, Span, Trigger};
use faultline_dataflow::partition::RerunOptions;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::programs::graph::RandomGraph;
use faultline_dataflow::programs::queens::Queens;
use faultline_protocols::cck::{self, Cck, Coordination};
use faultline_protocols::none::NoProtocol;
use faultline_protocols::placement::ReplicateTo;

use federation::Federation;
use required::Account;

#[test]
fn without_faults_every_federation_computes_the_sequential_result() {
    for seed in 0..60 {
        let federation = Federation::random(seed, 0);
        let ended = federation.run::<NoProtocol>(());
        assert_eq!(ended.outcome, Outcome::Completed, "seed {seed}");
        assert!(ended.digests().into_iter().eq([federation.expected()]), "seed {seed}");
    }
}

#[test]
fn without_fault_tolerance_the_first_failure_ends_the_run() {
    let mut federation = Federation::random(3, 0);
    let trigger =
        Trigger::When { fact: FactKind::Ran, of: None, cluster: None, process: None, occurrence: 3 };
    let fault = Fault::crash(ProcessId(0));
    federation.faults.push((trigger, fault));
    let ended = federation.run::<NoProtocol>(());
    assert!(matches!(ended.outcome, Outcome::Unrecoverable { .. }), "{:?}", ended.outcome);
}

/// Returns parameters of CCK with two replicas of each part in other clusters.
fn coordinated(coordination: Coordination) -> cck::Config {
    cck::Config {
        interval: Span::from_millis(60),
        coordination,
        replicas: 2,
        servers: 2,
        replicate_to: ReplicateTo::OtherCluster,
        rerun: RerunOptions::default(),
        defects: cck::Defects::default(),
    }
}

#[test]
fn a_checkpoint_takes_two_messages_per_partition_and_three_per_channel() {
    let mut checkpoints = 0;
    for seed in 0..40 {
        let federation = Federation::random(seed, 0);
        let plan = federation.plan();
        let (partitions, channels) = (u64::from(plan.partitions()), plan.channels().count() as u64);
        let ended = federation.run::<Cck>(coordinated(Coordination::Neighbours));
        assert_eq!(ended.outcome, Outcome::Completed, "seed {seed}");
        assert!(ended.digests().into_iter().eq([federation.expected()]), "seed {seed}");
        let of = |kind| ended.messages.get(kind).copied().unwrap_or(0);
        // The last checkpoint may be in progress when the program ends.
        let begun = ended.count(FactKind::CheckpointRequested) as u64;
        let Some(ended_before) = begun.checked_sub(1) else { continue };
        checkpoints += ended_before;
        for (kind, each) in [
            ("init", partitions),
            ("ping", channels),
            ("pong", channels),
            ("continue", channels),
            ("ack", partitions),
        ] {
            let (least, most) = (ended_before * each, begun * each);
            assert!(
                (least..=most).contains(&of(kind)),
                "seed {seed}: {} of {kind}, expected {least} to {most}",
                of(kind)
            );
        }
    }
    assert!(checkpoints > 100, "{checkpoints}");
}

#[test]
fn global_coordination_involves_all_partitions() {
    for seed in 0..20 {
        let federation = Federation::random(seed, 0);
        let partitions = u64::from(federation.ranks());
        let ended = federation.run::<Cck>(coordinated(Coordination::Global));
        assert_eq!(ended.outcome, Outcome::Completed, "seed {seed}");
        assert!(ended.digests().into_iter().eq([federation.expected()]), "seed {seed}");
        let begun = ended.count(FactKind::CheckpointRequested) as u64;
        let stopped = ended.messages.get("stopped").copied().unwrap_or(0);
        let each = partitions * (partitions - 1);
        assert!(stopped <= begun * each && stopped >= begun.saturating_sub(1) * each, "seed {seed}");
    }
}

#[test]
fn cck_survives_whatever_fails() {
    let (from, count) = seeds_or(0, 300);
    let (mut failed, mut lost, mut restored, mut absorbed) = (Vec::new(), Vec::new(), 0, 0);
    for seed in from..from + count {
        let federation = if seed % 3 == 0 { Federation::random(seed, 3) } else { Federation::wide(seed, 4) };
        let coordination = if seed % 4 == 0 { Coordination::Global } else { Coordination::Neighbours };
        let rerun = RerunOptions { from_memory: seed % 5 < 2, spread: seed % 7 < 3 };
        let ended = federation.run::<Cck>(cck::Config { rerun, ..coordinated(coordination) });
        restored += ended.count(FactKind::Restored);
        absorbed += ended.count(FactKind::Absorbed);
        if matches!(ended.outcome, Outcome::Unrecoverable { .. }) {
            lost.push(seed);
        }
        let is_right = ended.digests().iter().all(|it| *it == federation.expected());
        let ends = matches!(ended.outcome, Outcome::Completed | Outcome::Unrecoverable { .. });
        if !is_right || !ends {
            failed.push((seed, ended.outcome.clone(), is_right));
        }
    }
    println!(
        "{count} schedules: {restored} restored, {absorbed} absorbed, {} lost all copies of a part",
        lost.len()
    );
    assert!(restored > 0 && absorbed > 0, "faults have an effect");
    assert!(lost.len() as u64 <= count / 20, "{} runs lost everything: {lost:?}", lost.len());
    assert!(failed.is_empty(), "{} of {count}: {:?}", failed.len(), &failed[..failed.len().min(20)]);
}

#[test]
fn programs_whose_tasks_spawn_others_survive_whatever_fails() {
    let (from, count) = seeds_or(0, 120);
    let (mut restored, mut again) = (0, 0);
    for seed in from..from + count {
        let task_time = Span::from_millis(1 + seed % 5);
        let federation = Federation::wide(seed, 3);
        let program = match seed % 3 {
            0 => Flow::Fibonacci(Fibonacci { n: 13, threshold: 5, task_time }),
            1 => Flow::Queens(Queens { n: 6, depth: 3, task_time }),
            _ => Flow::Graph(RandomGraph { seed, depth: 4, width: 4, task_time }),
        };
        let program = program.planned();
        if program.pieces() < federation.ranks() {
            continue;
        }
        let federation = Federation { program, ..federation };
        let ended = federation.run::<Cck>(coordinated(Coordination::Neighbours));
        restored += ended.count(FactKind::Restored);
        again += ended.count(FactKind::Rerun);
        let ends = matches!(ended.outcome, Outcome::Completed | Outcome::Unrecoverable { .. });
        assert!(ends, "seed {seed}: {:?}", ended.outcome);
        assert!(ended.digests().iter().all(|it| *it == federation.expected()), "seed {seed}");
    }
    assert!(restored > 10 && again > 50, "{restored} restored, {again} re-executed");
}

#[test]
fn exactly_the_strictly_required_tasks_are_re_executed() {
    let account = required(RerunOptions::default());
    let Account { recoveries, tasks, busy, idle } = account;
    assert!(recoveries > 50 && tasks > 100 && busy > 20 && idle > busy, "{account:?}");
    let from_memory = required(RerunOptions { from_memory: true, spread: true });
    assert!(from_memory.recoveries > 50 && from_memory.tasks > 100, "{from_memory:?}");
}

fn required(rerun: RerunOptions) -> Account {
    let mut all = Account::default();
    for seed in 0..100 {
        let federation = Federation::random(seed, 3);
        let config = cck::Config { rerun, ..coordinated(Coordination::Neighbours) };
        let (_, seen) = federation.watch(config);
        let account = seen.judge(&federation.plan(), &format!("seed {seed}"));
        all.recoveries += account.recoveries;
        all.tasks += account.tasks;
        all.busy += account.busy;
        all.idle += account.idle;
    }
    all
}

/// Returns the first seed and the number of seeds. `FAULTLINE_SEEDS=FROM,COUNT` overrides them.
fn seeds_or(from: u64, count: u64) -> (u64, u64) {
    let asked = std::env::var("FAULTLINE_SEEDS").ok();
    let numbers = asked.as_deref().and_then(|it| it.split_once(','));
    numbers.and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?))).unwrap_or((from, count))
}
