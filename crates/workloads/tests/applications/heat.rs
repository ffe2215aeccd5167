//! Tests of the heat application, which is compared with its sequential reference and exposed to the effects of
//! defective protocols.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::network::{Defect, Network, membership, seed};
use faultline_core::{Application, Chunk, Digest, Incarnation, Job, Outbox, Payload, ProcessId, Span};
use faultline_workloads::{Config, Invalid, Workload, heat, reference};
use proptest::prelude::*;

/// Returns a small configuration with feedback and a block of several pieces.
fn small() -> heat::Config {
    heat::Config {
        rows: 2,
        columns: 3,
        steps: 7,
        step_cost: Span::from_millis(1),
        feedback_every: 3,
        state_bytes: 40_000,
        virtual_state: false,
    }
}

const CLUSTERS: [usize; 2] = [2, 3];

fn expected(config: &heat::Config, clusters: &[usize]) -> Vec<Digest> {
    heat::reference(config, clusters)
}

fn run(config: &heat::Config, clusters: &[usize], schedule: u64, defect: Option<Defect>) -> Network {
    let mut network = Network::new(&Config::Heat(config.clone()), clusters, schedule);
    network.defect = defect;
    network.run();
    network
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn results_equal_those_of_the_sequential_solver(
        rows in 1_u32..4,
        columns in 1_u32..5,
        steps in 1_u32..9,
        feedback_every in 0_u32..4,
        state_bytes in prop_oneof![Just(0_u64), 1..100_u64, Just(70_000)],
        virtual_state: bool,
        clusters in prop::collection::vec(1_usize..4, 1..4),
        schedule: u64,
    ) {
        let config = heat::Config { rows, columns, steps, feedback_every, state_bytes, virtual_state, ..small() };
        let network = run(&config, &clusters, schedule, None);
        prop_assert_eq!(network.results(), Some(expected(&config, &clusters)));
        // The application needs every message, so all of them have been consumed by the end.
        prop_assert_eq!(&network.consumed, &network.sent);
    }

    #[test]
    fn a_restored_rank_continues_unchanged(schedule: u64) {
        let mut network = Network::new(&Config::Heat(small()), &CLUSTERS, schedule);
        network.restore_always = true;
        prop_assert_eq!(network.run(), Some(expected(&small(), &CLUSTERS)));
    }
}

#[test]
fn every_message_matters() {
    let expected = Some(expected(&small(), &CLUSTERS));
    let messages = run(&small(), &CLUSTERS, 0, None).messages();
    // Six exchanges on each of three inner borders, six couplings, and two feedbacks.
    assert_eq!(messages.len(), 6 * 3 * 2 + 6 + 2);
    for message in messages {
        for schedule in 0..5 {
            let lost = run(&small(), &CLUSTERS, schedule, Some(Defect::Drop(message)));
            assert_eq!(lost.results(), None, "all ranks finished although {message:?} was lost");
            let twice = run(&small(), &CLUSTERS, schedule, Some(Defect::Duplicate(message)));
            let results = twice.results().expect("a duplicate stops no rank");
            assert_ne!(Some(results), expected, "a duplicate of {message:?} did not change the result");
        }
    }
}

#[test]
fn an_inconsistent_state_changes_the_result() {
    let expected = Some(expected(&small(), &CLUSTERS));
    let mut entangled = 0;
    for rank in (0..5).map(ProcessId) {
        for step in 1..=small().steps.into() {
            for schedule in 0..5 {
                let network = run(&small(), &CLUSTERS, schedule, Some(Defect::RollBack(rank, step)));
                if network.entangled.expect("the rank was rolled back") {
                    entangled += 1;
                    assert_ne!(network.results(), expected, "{rank} was rolled back to before step {step}");
                } else {
                    // Undetectable, because the last step sends nothing.
                    assert_eq!(step, u64::from(small().steps));
                    assert_eq!(network.results(), expected);
                }
            }
        }
    }
    assert!(entangled >= 5 * 6 * 5, "every step except the last sends");
}

#[test]
fn the_effect_of_a_wrong_temperature_never_disappears() {
    // Diffusion alone would smooth the error out; see `memory.rs`.
    let config = heat::Config { rows: 1, columns: 1, steps: 400, state_bytes: 0, ..small() };
    let last_rank = |first_boundary: f64| {
        let mut rank =
            Workload::new(&Arc::new(Config::Heat(config.clone())), ProcessId(1), &membership(&[2]), 0);
        for step in 1..config.steps {
            compute(&mut rank);
            let temperature = if step == 1 { first_boundary } else { 0.5 };
            let row = [&step.to_le_bytes()[..], &temperature.to_le_bytes()].concat();
            rank.deliver(ProcessId(0), Payload::from_slice(&row), &mut Outbox::default());
        }
        compute(&mut rank);
        rank
    };
    let (right, wrong) = (last_rank(0.5), last_rank(0.7));
    let grid = |rank: &Workload| rank.snapshot().expect("heat always provides a snapshot")[2].clone();
    assert_eq!(grid(&right), grid(&wrong), "diffusion removes the error");
    assert!(right.result().is_some());
    assert_ne!(right.result(), wrong.result());
}

#[test]
fn a_snapshot_during_a_step_is_the_state_before_it() {
    let mut rank = rank(&small(), 0);
    let before = rank.snapshot();
    let job = rank.next_job().expect("the first step needs no message");
    assert_eq!(rank.snapshot(), before);
    rank.computed(job.clone().run(), &mut Outbox::default());
    assert_ne!(rank.snapshot(), before);
    rank.restore(before.as_deref(), Incarnation(1));
    assert_eq!(rank.next_job(), Some(job));
}

#[test]
fn restoring_without_a_snapshot_restarts_the_rank() {
    let mut rank = rank(&small(), 0);
    let (before, job) = (rank.snapshot(), rank.next_job());
    compute(&mut rank);
    rank.restore(None, Incarnation(1));
    assert_eq!((rank.snapshot(), rank.next_job()), (before, job));
}

#[test]
fn snapshots_share_unchanged_pieces() {
    let config = heat::Config { state_bytes: 1 << 20, ..small() };
    let mut rank = rank(&config, 0);
    let before = rank.snapshot().expect("heat always provides a snapshot");
    compute(&mut rank);
    let after = rank.snapshot().expect("heat always provides a snapshot");
    let same = before.iter().zip(after.iter()).filter(|pair| match pair {
        (Chunk::Bytes(one), Chunk::Bytes(other)) => Arc::ptr_eq(one, other),
        _ => false,
    });
    let shared: u64 = same.map(|(chunk, _)| chunk.len()).sum();
    let boundaries = 2 * (4 + 8 * u64::from(config.columns));
    assert_eq!(
        shared,
        (1 << 20) - (16 << 10) + boundaries,
        "all but one piece of the block, and the boundaries"
    );
}

/// Uses more pieces than steps, so that some keep their initial content.
#[test]
fn virtual_state_has_the_same_length_and_result() {
    let real = heat::Config { state_bytes: 20 * (16 << 10) + 8, ..small() };
    let virtual_state = heat::Config { virtual_state: true, ..real.clone() };
    let after = |config: &heat::Config, restored: bool| {
        let mut rank =
            Workload::new(&Arc::new(Config::Heat(config.clone())), ProcessId(0), &membership(&[1]), 0);
        let mut lengths = Vec::new();
        for _ in 0..config.steps {
            let snapshot = rank.snapshot().expect("heat always provides a snapshot");
            lengths.push(snapshot.iter().map(Chunk::len).sum::<u64>());
            if restored {
                compute(&mut rank);
                rank.restore(Some(&snapshot), Incarnation(1));
            }
            compute(&mut rank);
        }
        (lengths, rank.result().expect("the rank has finished"))
    };
    let expected = after(&real, false);
    assert_eq!(after(&virtual_state, false), expected);
    assert_eq!(after(&virtual_state, true), expected);
    let rank = |config| Workload::new(&Arc::new(Config::Heat(config)), ProcessId(0), &membership(&[1]), 0);
    let block = |rank: Workload| rank.snapshot().expect("heat always provides a snapshot").last().cloned();
    assert_eq!(block(rank(virtual_state)), Some(Chunk::Virtual(20 * (16 << 10) + 8)));
    assert_eq!(block(rank(real)).map(|it| it.len()), Some(8));
}

#[test]
fn a_late_duplicate_only_increases_the_count() {
    let mut rank = rank(&small(), 4);
    let row = |step: u32| Payload::from_slice(&[&step.to_le_bytes()[..], &[0; 24]].concat());
    let deliver = |rank: &mut Workload, step| {
        rank.deliver(ProcessId(3), row(step), &mut Outbox::default());
        rank.snapshot().expect("heat always provides a snapshot").len()
    };
    compute(&mut rank);
    let nothing_waits = deliver(&mut rank, 1) - 1;
    compute(&mut rank);
    assert_eq!(deliver(&mut rank, 1), nothing_waits);
    assert_eq!(deliver(&mut rank, 2), nothing_waits + 1);
    assert_eq!(deliver(&mut rank, 2), nothing_waits + 1);
}

#[test]
fn the_default_state_is_a_megabyte_that_cannot_be_compressed() {
    let config = Arc::new(Config::Heat(heat::Config::default()));
    let mut rank = Workload::new(&config, ProcessId(0), &membership(&[1]), 0);
    assert_random_words(&rank);
    // This still holds once every piece has been rewritten.
    (0..100).for_each(|_| compute(&mut rank));
    assert_random_words(&rank);
}

/// Asserts that the state consists of distinct 64-bit words, as random bytes do; compressible bytes repeat
/// themselves.
fn assert_random_words(rank: &Workload) {
    const HEAD_BOUNDARIES_AND_GRID: usize = 4;
    let state = rank.snapshot().expect("heat always provides a snapshot");
    let block = state[HEAD_BOUNDARIES_AND_GRID..].iter().flat_map(|chunk| match chunk {
        Chunk::Bytes(bytes) => bytes.as_chunks().0,
        Chunk::Virtual(_) => panic!("the state is real"),
    });
    let words: Vec<[u8; 8]> = block.copied().collect();
    assert_eq!(words.len(), 1 << 17, "a megabyte");
    let different: BTreeSet<_> = words.iter().collect();
    assert_eq!(different.len(), words.len());
}

#[test]
fn invalid_messages_are_only_counted() {
    let mut network = Network::new(&Config::Heat(small()), &CLUSTERS, 0);
    let noise = |bytes: &[u8]| Payload::from_slice(bytes);
    for (from, payload) in [
        (1, noise(&[1, 2, 3])),
        (1, noise(&[0xFF; 28])),
        (4, noise(&[1, 0, 0, 0])),
        (1, Payload::Virtual(28)),
    ] {
        network.ranks[0].application.deliver(ProcessId(from), payload, &mut Outbox::default());
    }
    let results = network.run().expect("invalid messages stop no rank");
    let expected = expected(&small(), &CLUSTERS);
    assert_ne!(results[0], expected[0]);
    assert_eq!(results[1..], expected[1..]);
}

#[test]
fn invalid_parameters_are_named() {
    let validate = |config: heat::Config| Config::Heat(config).validate(&CLUSTERS);
    assert_eq!(validate(heat::Config::default()), Ok(()));
    assert_eq!(validate(heat::Config { columns: 0, ..small() }), Err(Invalid::Zero { field: "columns" }));
    let too_large = heat::Config { rows: 1 << 20, columns: 1 << 20, ..small() };
    assert!(matches!(validate(too_large), Err(Invalid::TooLarge { field: "rows * columns", .. })));
}

#[test]
fn the_reference_names_the_ranks() {
    let config = Arc::new(Config::Heat(small()));
    let results = reference(&config, &membership(&CLUSTERS), seed).expect("heat has a reference");
    let digests = expected(&small(), &CLUSTERS);
    assert_eq!(results, (0..5).map(ProcessId).zip(digests).collect::<Vec<_>>());
}

/// Returns rank `me` of a federation of five ranks.
fn rank(config: &heat::Config, me: u32) -> Workload {
    Workload::new(&Arc::new(Config::Heat(config.clone())), ProcessId(me), &membership(&CLUSTERS), 0)
}

fn compute(rank: &mut Workload) {
    let job = rank.next_job().expect("a step is possible");
    rank.computed(job.run(), &mut Outbox::default());
}
