//! Tests of the salted application: it behaves the same with the same salt, behaves differently with another, and
//! always terminates.

use std::sync::Arc;

use crate::network::{Happened, Network, membership, seed};
use faultline_core::{Application, Digest, Incarnation, Job, Outbox, Payload, ProcessId, Span};
use faultline_workloads::{Config, Invalid, Workload, reference, salted};
use proptest::prelude::*;

const CLUSTERS: [usize; 2] = [2, 3];

fn small() -> salted::Config {
    salted::Config {
        steps: 10,
        step_cost: Span::from_millis(1),
        fan_out: 3,
        between: 0.4,
        reply: 0.6,
        reply_depth: 2,
    }
}

fn rank(me: ProcessId) -> Workload {
    Workload::new(&Arc::new(Config::Salted(small())), me, &membership(&CLUSTERS), seed(me))
}

/// Replays a history on a rank. Returns its sends and its result.
fn replay(rank: &mut Workload, history: &[Happened]) -> (Vec<(ProcessId, Payload)>, Option<Digest>) {
    let mut out = Outbox::default();
    for happened in history {
        match happened {
            Happened::Delivered(from, payload) => rank.deliver(*from, payload.clone(), &mut out),
            Happened::Computed => {
                let job = rank.next_job().expect("the replay has the same number of steps");
                rank.computed(job.run(), &mut out);
            }
        }
    }
    (out.sends, rank.result())
}

/// Returns the events of each rank in a run.
fn histories(schedule: u64) -> Vec<Vec<Happened>> {
    let mut network = Network::new(&Config::Salted(small()), &CLUSTERS, schedule);
    network.run().expect("all ranks finish");
    network.ranks.into_iter().map(|rank| rank.history).collect()
}

proptest! {
    #[test]
    fn every_run_ends(
        steps in 1_u32..20,
        fan_out in 0_u32..5,
        between in 0.0..=1.0,
        reply_depth in 0_u8..5,
        clusters in prop::collection::vec(1_usize..4, 1..4),
        schedule: u64,
    ) {
        let config = salted::Config { steps, fan_out, between, reply: 1.0, reply_depth, ..small() };
        let ranks: usize = clusters.iter().sum();
        let mut network = Network::new(&Config::Salted(config), &clusters, schedule);
        prop_assert!(network.run().is_some());
        let first = u64::from(steps) * u64::from(fan_out) * ranks as u64;
        prop_assert!(network.messages().len() as u64 <= first * (1 + u64::from(reply_depth)));
    }

    #[test]
    fn the_same_schedule_gives_the_same_result(schedule: u64) {
        let mut plain = Network::new(&Config::Salted(small()), &CLUSTERS, schedule);
        let mut restored = Network::new(&Config::Salted(small()), &CLUSTERS, schedule);
        restored.restore_always = true;
        prop_assert_eq!(plain.run(), restored.run());
    }
}

#[test]
fn every_delivery_matters() {
    let mut judged = 0;
    for (at, history) in histories(1).iter().enumerate() {
        let me = ProcessId(at as u32);
        let (_, right) = replay(&mut rank(me), history);
        assert!(right.is_some());
        for (place, happened) in history.iter().enumerate() {
            let Happened::Delivered(from, payload) = happened else { continue };
            judged += 1;
            let mut lost = history.clone();
            lost.remove(place);
            assert_ne!(replay(&mut rank(me), &lost).1, right, "a loss was not detected");
            let mut twice = history.clone();
            twice.insert(place, happened.clone());
            assert_ne!(replay(&mut rank(me), &twice).1, right, "a duplicate was not detected");
            let mut ghost = history.clone();
            let mut bytes = payload.bytes().to_vec();
            bytes[0] ^= 1;
            ghost[place] = Happened::Delivered(*from, Payload::from_slice(&bytes));
            assert_ne!(replay(&mut rank(me), &ghost).1, right, "a ghost was not detected");
        }
    }
    assert!(judged > 50, "{judged} deliveries");
}

#[test]
fn an_inconsistent_state_changes_the_result() {
    let mut judged = 0;
    for (at, history) in histories(2).iter().enumerate() {
        let me = ProcessId(at as u32);
        let right = replay(&mut rank(me), history);
        // Roll back by one event, at every point.
        for place in 0..history.len() {
            let mut rank = rank(me);
            let (mut sends, _) = replay(&mut rank, &history[..place]);
            let before = rank.snapshot();
            let (undone, _) = replay(&mut rank, &history[place..=place]);
            if undone.is_empty() && matches!(history[place], Happened::Computed) {
                // The rank neither sent nor received: undetectable, and harmless.
                continue;
            }
            judged += 1;
            sends.extend(undone);
            rank.restore(before.as_deref(), Incarnation(0));
            let mut out = Outbox { sends, ..Outbox::default() };
            for happened in &history[place + 1..] {
                if let Happened::Delivered(from, payload) = happened {
                    rank.deliver(*from, payload.clone(), &mut out);
                } else if let Some(job) = rank.next_job() {
                    rank.computed(job.run(), &mut out);
                }
            }
            while let Some(job) = rank.next_job() {
                rank.computed(job.run(), &mut out);
            }
            assert_ne!((out.sends, rank.result()), right, "{me} lost {:?}", history[place]);
        }
    }
    assert!(judged > 50, "{judged} cases");
}

#[test]
fn a_re_execution_differs_only_under_another_salt() {
    for (at, history) in histories(3).iter().enumerate() {
        let me = ProcessId(at as u32);
        for cut in 0..history.len() {
            let mut original = rank(me);
            replay(&mut original, &history[..cut]);
            let state = original.snapshot();
            let again = |incarnation| {
                let mut restored = rank(me);
                restored.restore(state.as_deref(), Incarnation(incarnation));
                replay(&mut restored, &history[cut..])
            };
            let (sends, result) = again(1);
            assert_eq!(again(1), (sends.clone(), result));
            let (others, other) = again(2);
            if !sends.is_empty() || !others.is_empty() {
                assert_ne!(others, sends, "{me} sends the same messages after event {cut}");
                assert_ne!(other, result);
            }
        }
    }
}

#[test]
fn restoring_without_a_snapshot_or_a_salt_restarts_the_rank() {
    let history = &histories(4)[0];
    let me = ProcessId(0);
    let mut restored = rank(me);
    replay(&mut restored, &history[..5]);
    restored.restore(None, Incarnation(0));
    assert_eq!(replay(&mut restored, history), replay(&mut rank(me), history));
}

#[test]
fn a_finished_rank_receives_but_does_not_answer() {
    let mut rank = rank(ProcessId(0));
    let mut out = Outbox::default();
    while let Some(job) = rank.next_job() {
        rank.computed(job.run(), &mut out);
    }
    let (_, message) = out.sends.pop().expect("a message was sent");
    let before = rank.result();
    out.sends.clear();
    for _ in 0..20 {
        rank.deliver(ProcessId(1), message.clone(), &mut out);
    }
    assert!(out.sends.is_empty());
    assert!(before.is_some() && rank.result() != before);
}

#[test]
fn a_chain_of_answers_ends() {
    let config = salted::Config { reply: 1.0, reply_depth: 4, fan_out: 1, ..small() };
    let config = Arc::new(Config::Salted(config));
    let new = |me| Workload::new(&config, me, &membership(&[2]), seed(me));
    let mut ranks = [new(ProcessId(0)), new(ProcessId(1))];
    let mut out = Outbox::default();
    while out.sends.is_empty() {
        let job = ranks[0].next_job().expect("a step sends");
        ranks[0].computed(job.run(), &mut out);
    }
    let mut sent = 0;
    let mut from = ProcessId(0);
    while let Some((to, payload)) = out.sends.pop() {
        sent += 1;
        ranks[to.index()].deliver(from, payload, &mut out);
        from = to;
    }
    assert_eq!(sent, 5, "a message and four answers");
}

#[test]
fn invalid_parameters_are_named() {
    let validate = |config: salted::Config| Config::Salted(config).validate(&CLUSTERS);
    assert_eq!(validate(small()), Ok(()));
    assert_eq!(validate(salted::Config { steps: 0, ..small() }), Err(Invalid::Zero { field: "steps" }));
    assert_eq!(
        validate(salted::Config { reply: -0.5, ..small() }),
        Err(Invalid::NotAProbability { field: "reply", value: -0.5 })
    );
}

#[test]
fn there_is_no_reference_result() {
    let config = Arc::new(Config::Salted(small()));
    assert_eq!(reference(&config, &membership(&CLUSTERS), seed), None);
}
