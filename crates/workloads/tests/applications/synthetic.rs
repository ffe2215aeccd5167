//! Tests of the synthetic application: it produces the requested traffic, and every defect is detected.

use std::sync::Arc;

use crate::network::{Defect, Network, membership, seed, stored};
use faultline_core::{Application, Digest, Incarnation, Job, Outbox, Payload, ProcessId, Span};
use faultline_workloads::synthetic::{Behaviour, Config as Synthetic, Term, Traffic};
use faultline_workloads::{Config, Invalid, Workload, reference};
use proptest::prelude::*;

const CLUSTERS: [usize; 2] = [2, 3];

fn config(traffic: Traffic) -> Config {
    Config::Synthetic(Synthetic { traffic, message_bytes: 100, state_bytes: 5000, terms: Vec::new() })
}

fn random() -> Config {
    let behaviour =
        |mean, send: [f64; 2]| Behaviour { mean_computation: Span::from_millis(mean), send: send.to_vec() };
    config(Traffic::Random {
        total: Span::from_millis(100),
        clusters: vec![behaviour(10, [0.9, 0.3]), behaviour(20, [0.1, 0.8])],
    })
}

fn exact() -> Config {
    let messages = vec![vec![7, 3], vec![2, 11]];
    config(Traffic::Exact { total: Span::from_millis(100), messages })
}

fn burst() -> Config {
    config(Traffic::Burst {
        messages: 50,
        batch: 4,
        cost: Span::from_micros(1),
        between: 0.2,
        receivers: None,
    })
}

/// Returns the same traffic with the second cluster present only from 20 ms to 60 ms.
fn with_guest(config: Config) -> Config {
    let Config::Synthetic(config) = config else { panic!("not synthetic") };
    let guest = Term { joins: Span::from_millis(20), leaves: Some(Span::from_millis(60)) };
    let terms = vec![Term { joins: Span::ZERO, leaves: None }, guest];
    Config::Synthetic(Synthetic { terms, ..config })
}

fn any_program() -> impl Strategy<Value = Config> {
    prop_oneof![any_traffic(), Just(with_guest(random())), Just(with_guest(exact()))]
}

fn any_traffic() -> impl Strategy<Value = Config> {
    prop_oneof![Just(random()), Just(exact()), Just(burst())]
}

fn expected(config: &Config) -> Vec<Digest> {
    let results = reference(&Arc::new(config.clone()), &membership(&CLUSTERS), seed);
    results.expect("synthetic has a reference").into_iter().map(|(_, digest)| digest).collect()
}

fn run(config: &Config, schedule: u64, defect: Option<Defect>) -> Network {
    let mut network = Network::new(config, &CLUSTERS, schedule);
    network.defect = defect;
    network.run();
    network
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_the_schedule(config in any_program(), schedule: u64) {
        prop_assert_eq!(run(&config, schedule, None).results(), Some(expected(&config)));
    }

    #[test]
    fn a_restored_rank_continues_unchanged(config in any_program(), schedule: u64) {
        let mut network = Network::new(&config, &CLUSTERS, schedule);
        network.restore_always = true;
        prop_assert_eq!(network.run(), Some(expected(&config)));
    }
}

#[test]
fn every_message_matters() {
    for config in [random(), exact(), burst()] {
        let expected = Some(expected(&config));
        let messages = run(&config, 0, None).messages();
        assert!(messages.len() > 20);
        for message in messages {
            for defect in [Defect::Drop(message), Defect::Duplicate(message)] {
                assert_ne!(run(&config, 1, Some(defect)).results(), expected, "{defect:?} was not detected");
            }
        }
    }
}

#[test]
fn an_inconsistent_state_changes_the_result() {
    for config in [random(), exact(), burst()] {
        let expected = Some(expected(&config));
        let mut entangled = 0;
        for rank in (0..5).map(ProcessId) {
            for computation in 1.. {
                let network = run(&config, 1, Some(Defect::RollBack(rank, computation)));
                match network.entangled {
                    Some(true) => {
                        entangled += 1;
                        assert_ne!(network.results(), expected, "{rank} before computation {computation}");
                    }
                    // The rank neither sent nor received: undetectable, and harmless.
                    Some(false) => assert_eq!(network.results(), expected),
                    // The rank had no computation with this number.
                    None => break,
                }
            }
        }
        assert!(entangled > 20, "{entangled} cases");
    }
}

#[test]
fn exact_counts_are_exact() {
    let network = run(&exact(), 3, None);
    let between = |from: &[u32], to: &[u32]| -> u32 {
        let sent = network.sent.iter();
        sent.filter(|((a, b), _)| from.contains(&a.0) && to.contains(&b.0)).map(|(_, count)| count).sum()
    };
    let (paris, rennes): (&[u32], &[u32]) = (&[0, 1], &[2, 3, 4]);
    assert_eq!(between(paris, paris), 7);
    assert_eq!(between(paris, rennes), 3);
    assert_eq!(between(rennes, paris), 2);
    assert_eq!(between(rennes, rennes), 11);
}

#[test]
fn the_counts_of_table_1_are_reproduced() {
    // HC3I table 1: two clusters of 100 nodes, ten hours.
    let counts = vec![vec![2920, 145], vec![11, 2497]];
    let total = Span::from_secs(36_000);
    let config = Arc::new(config(Traffic::Exact { total, messages: counts.clone() }));
    let membership = membership(&[100, 100]);
    let mut sent = vec![vec![0, 0], vec![0, 0]];
    for me in (0..200).map(ProcessId) {
        let mut rank = Workload::new(&config, me, &membership, seed(me));
        let mut out = Outbox::default();
        let mut computing = Span::ZERO;
        while let Some(job) = rank.next_job() {
            computing = computing + job.cost();
            rank.computed(job.run(), &mut out);
        }
        assert_eq!(computing, total);
        let share = out.sends.len();
        assert!(if me.0 < 100 { (30..=32).contains(&share) } else { (24..=26).contains(&share) }, "{share}");
        for (to, payload) in out.sends {
            assert_ne!(to, me);
            assert_eq!(payload, Payload::Virtual(100));
            sent[usize::from(me.0 >= 100)][usize::from(to.0 >= 100)] += 1;
        }
    }
    assert_eq!(sent, counts);
}

#[test]
fn random_traffic_follows_the_probabilities() {
    let behaviour =
        |send: [f64; 2]| Behaviour { mean_computation: Span::from_millis(10), send: send.to_vec() };
    let clusters = vec![behaviour([0.5, 0.1]), behaviour([0.0, 1.0])];
    let total = Span::from_secs(100);
    let config = Arc::new(config(Traffic::Random { total, clusters }));
    let membership = membership(&CLUSTERS);
    let sent = |me: u32, cluster: std::ops::Range<u32>| {
        let mut rank = Workload::new(&config, ProcessId(me), &membership, seed(ProcessId(me)));
        let mut out = Outbox::default();
        let mut computing = Span::ZERO;
        while let Some(job) = rank.next_job() {
            computing = computing + job.cost();
            rank.computed(job.run(), &mut out);
        }
        assert_eq!(computing, total);
        out.sends.iter().filter(|(to, _)| cluster.contains(&to.0)).count()
    };
    // Within five standard deviations, for a Poisson-distributed count of sends in 10^4 computations.
    let near = |count: usize, mean: f64| (count as f64 - mean).abs() < 5.0 * mean.sqrt();
    assert!(near(sent(0, 0..2), 5000.0));
    assert!(near(sent(0, 2..5), 1000.0));
    assert_eq!(sent(2, 0..2), 0);
    assert!(near(sent(2, 2..5), 10_000.0));
}

#[test]
fn a_burst_is_one_way() {
    let traffic =
        Traffic::Burst { messages: 10_000, batch: 7, cost: Span(1), between: 0.05, receivers: None };
    let config = Arc::new(config(traffic));
    let membership = membership(&CLUSTERS);
    for me in (0..5).map(ProcessId) {
        let mut rank = Workload::new(&config, me, &membership, seed(me));
        let mut out = Outbox::default();
        while let Some(job) = rank.next_job() {
            let before = out.sends.len();
            rank.computed(job.run(), &mut out);
            assert!((1..=7).contains(&(out.sends.len() - before)));
        }
        assert_eq!(out.sends.len(), 10_000);
        let between = out.sends.iter().filter(|(to, _)| (to.0 < 2) != (me.0 < 2)).count();
        let expected = if me.0 < 2 { 400..600 } else { 0..1 };
        assert!(expected.contains(&between), "{between} of 10000 between clusters");
    }
}

#[test]
fn a_burst_may_have_few_receivers() {
    let traffic =
        |receivers| Traffic::Burst { messages: 500, batch: 1, cost: Span(1), between: 0.3, receivers };
    let membership = membership(&CLUSTERS);
    let receivers = |count| {
        let mut rank = Workload::new(&Arc::new(config(traffic(count))), ProcessId(1), &membership, 5);
        let mut out = Outbox::default();
        while let Some(job) = rank.next_job() {
            rank.computed(job.run(), &mut out);
        }
        out.sends.into_iter().map(|(to, _)| to.0).collect::<std::collections::BTreeSet<_>>()
    };
    // The other rank of its own cluster, and the ranks of the next cluster, starting at its own position.
    assert_eq!(receivers(Some(1)), [0, 3].into());
    assert_eq!(receivers(Some(2)), [0, 3, 4].into());
    assert_eq!(receivers(None), [0, 2, 3, 4].into());
}

#[test]
fn restoring_without_a_snapshot_restarts_the_rank() {
    for config in [random(), exact(), burst()] {
        let mut rank = Workload::new(&Arc::new(config), ProcessId(1), &membership(&CLUSTERS), 3);
        let run = |rank: &mut Workload| {
            let mut out = Outbox::default();
            while let Some(job) = rank.next_job() {
                rank.computed(job.run(), &mut out);
            }
            out.sends
        };
        let first = run(&mut rank);
        rank.restore(None, Incarnation(4));
        assert_eq!(run(&mut rank), first);
    }
}

#[test]
fn the_sender_of_a_message_matters() {
    let results = [0, 2, 3].map(|from| {
        let mut rank = Workload::new(&Arc::new(random()), ProcessId(1), &membership(&CLUSTERS), 3);
        rank.deliver(ProcessId(from), Payload::Virtual(100), &mut Outbox::default());
        while let Some(job) = rank.next_job() {
            rank.computed(job.run(), &mut Outbox::default());
        }
        rank.result()
    });
    assert!(results[0] != results[1] && results[1] != results[2] && results[0] != results[2]);
}

#[test]
fn a_state_has_the_requested_length() {
    let rank = Workload::new(&Arc::new(random()), ProcessId(0), &membership(&CLUSTERS), 3);
    let state = rank.snapshot().expect("synthetic always provides a snapshot");
    assert!((5000..5100).contains(&stored(&state).iter().map(|chunk| chunk.len()).sum::<u64>()));
}

#[test]
fn invalid_parameters_are_named() {
    let exact = |messages| config(Traffic::Exact { total: Span(1), messages });
    assert_eq!(
        exact(vec![vec![1, 2]]).validate(&CLUSTERS),
        Err(Invalid::NotPerCluster { field: "messages", found: 1, clusters: 2 })
    );
    assert_eq!(exact(vec![vec![1, 2], vec![3, 4]]).validate(&[2, 1]), Err(Invalid::OneNode { cluster: 1 }));
    assert_eq!(exact(vec![vec![1, 2], vec![3, 0]]).validate(&[2, 1]), Ok(()));
    let burst = |between, batch| {
        config(Traffic::Burst { messages: 1, batch, cost: Span(1), between, receivers: None })
    };
    assert_eq!(burst(0.1, 0).validate(&CLUSTERS), Err(Invalid::Zero { field: "batch" }));
    assert_eq!(
        burst(1.5, 1).validate(&CLUSTERS),
        Err(Invalid::NotAProbability { field: "between", value: 1.5 })
    );
    assert!(matches!(burst(f64::NAN, 1).validate(&CLUSTERS), Err(Invalid::NotAProbability { .. })));
}

#[test]
fn a_rank_leaves_once_it_has_received_everything() {
    for config in [with_guest(random()), with_guest(exact())] {
        for schedule in 0..20 {
            let mut network = Network::new(&config, &CLUSTERS, schedule);
            let has_left =
                |it: &Network| it.ranks.iter().map(|it| it.application.has_left()).collect::<Vec<_>>();
            let mut at_leaving: [Option<Option<Digest>>; 5] = [None; 5];
            while network.step() {
                for (rank, left) in has_left(&network).into_iter().enumerate().filter(|(_, left)| *left) {
                    assert!(left && rank >= 2, "the first cluster stays");
                    at_leaving[rank].get_or_insert(network.ranks[rank].application.result());
                }
            }
            let results = network.results().expect("all ranks finish");
            assert_eq!(has_left(&network), [false, false, true, true, true]);
            let at_leaving: Vec<_> = at_leaving[2..].iter().map(|it| it.flatten().unwrap()).collect();
            assert_eq!(at_leaving, results[2..], "no message arrived afterwards");
        }
    }
}

#[test]
fn clusters_that_are_never_present_together_exchange_nothing() {
    let validate = |config: Config| config.validate(&CLUSTERS);
    assert_eq!(validate(with_guest(exact())), Ok(()));
    assert_eq!(validate(with_guest(burst())), Err(Invalid::Timeless));
    let Config::Synthetic(mut apart) = with_guest(exact()) else { panic!("not synthetic") };
    apart.terms[0].leaves = Some(Span::from_millis(20));
    assert_eq!(validate(Config::Synthetic(apart.clone())), Err(Invalid::NeverTogether { from: 0, to: 1 }));
    apart.terms[0] = Term { joins: Span::from_millis(100), leaves: None };
    assert_eq!(validate(Config::Synthetic(apart)), Err(Invalid::NoTerm { cluster: 0 }));
}
