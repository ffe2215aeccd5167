//! Coordinated checkpoints of the whole federation: differences between the non-blocking and the hierarchical
//! baseline. The rules C1 to C5 and L1 to L3 are those of `docs/baselines.md`.

use faultline_core::Sn;
use faultline_core::StorageFate::Kept;
use faultline_protocols::hc3i::{Config, Control, Coordinating, Cut, Defect, Defects, Hc3i, Scope};

use crate::harness::{Entry, c, p};
use crate::setting::{Federation, config, running, says, to};

fn coloured(defects: Defects) -> Config {
    Config { scope: Scope::Federation, cut: Cut::Coloured, ..config(defects) }
}

fn by_leaders(defects: Defects) -> Config {
    Config { scope: Scope::Federation, coordination: Coordinating::ByLeaders, ..config(defects) }
}

/// Returns the findings of the checker as sentences. The checker does not distinguish the two baselines.
fn wrong(federation: &Federation) -> Vec<String> {
    let findings = federation.judge().findings;
    findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
}

#[test]
fn no_process_is_paused_while_parts_are_written() {
    for (config, before) in [(coloured as fn(_) -> _, &["m"][..]), (by_leaders, &[])] {
        let mut federation = running(&[2, 1], config(Defects::default()));
        let drained = federation.hold(says!(Control::Drained { .. }));
        federation.take_checkpoint(c(0));
        federation.exchange(p(0), p(2), "m");
        assert_eq!(federation.received(p(2)), before, "before the commit");
        federation.release(drained);
        federation.settle();
        assert_eq!(federation.received(p(2)), ["m"]);
        assert_eq!(federation.protocol(p(0)).position().sn, Sn(2));
        assert_eq!(wrong(&federation), [""; 0]);
    }
}

/// C2: the request to p2 is late, and a message of the next interval requests the checkpoint instead.
#[test]
fn a_message_of_the_next_interval_takes_the_checkpoint_along() {
    let mut federation = running(&[2, 1], coloured(Defects::default()));
    federation.hold(to(p(2), says!(Control::Request { .. })));
    federation.take_checkpoint(c(0));
    assert_eq!(federation.protocol(p(0)).position().sn, Sn(1), "p2 has not saved");
    federation.exchange(p(1), p(2), "m");
    assert_eq!(federation.received(p(2)), ["m"]);
    assert_eq!(federation.protocol(p(0)).position().sn, Sn(2));
    // The checkpoint does not contain the delivery.
    federation.crash(p(1), Kept);
    federation.retry();
    assert_eq!(federation.received(p(2)), [""; 0]);
    assert_eq!(wrong(&federation), [""; 0]);
}

/// C3, C5: a message in transit is delivered although a checkpoint is being taken, and again when that is restored.
#[test]
fn what_is_in_transit_belongs_to_the_checkpoint() {
    for defect in [None, Some(Defect::NoDrain), Some(Defect::LateOnlyRecorded)] {
        let defects = defect.map_or_else(Defects::default, Defects::only);
        let mut federation = running(&[2, 1], coloured(defects));
        let in_transit = federation.hold(|flight| flight.says("m"));
        federation.exchange(p(0), p(2), "m");
        federation.take_checkpoint(c(0));
        federation.release(in_transit);
        federation.settle();
        let delivered = federation.received(p(2)).len();
        federation.crash(p(1), Kept);
        federation.retry();
        let again = federation.received(p(2)).len();
        match defect {
            None => assert_eq!((delivered, again, wrong(&federation)), (1, 1, vec![])),
            Some(Defect::NoDrain) => assert_eq!((delivered, again), (1, 0)),
            Some(_) => assert_eq!((delivered, again), (0, 1)),
        }
    }
}

/// C4: a failure before the commit rolls all processes back, including those that have continued.
#[test]
fn what_follows_an_interrupted_checkpoint_is_undone() {
    let mut federation = running(&[2, 1], coloured(Defects::default()));
    federation.exchange(p(0), p(1), "before");
    federation.hold(says!(Control::Saved { .. }));
    federation.take_checkpoint(c(0));
    federation.exchange(p(0), p(1), "after the cut");
    federation.crash(p(2), Kept);
    federation.retry();
    assert_eq!(federation.received(p(1)), [""; 0], "the first checkpoint is all there is");
    assert_eq!(wrong(&federation), [""; 0]);
}

/// L1, L2: one message in each direction per step and other cluster.
#[test]
fn leaders_represent_their_clusters() {
    for (coordination, expected) in [(Coordinating::Directly, 25), (Coordinating::ByLeaders, 10)] {
        let config = Config { coordination, ..by_leaders(Defects::default()) };
        let mut federation = running(&[2, 3, 2], config);
        let before = between_clusters(&federation);
        federation.take_checkpoint(c(0));
        assert_eq!(federation.protocol(p(6)).position().sn, Sn(2));
        // Request, Saved, Drain, Drained, Commit. Copies of parts go to the other clusters in both cases.
        assert_eq!(between_clusters(&federation) - before, expected, "{coordination:?}");
        assert_eq!(wrong(&federation), [""; 0]);
    }
}

/// Counts the messages of checkpoints that went from one cluster to another.
fn between_clusters(federation: &Federation) -> usize {
    let is_meant = |message: &Control| !matches!(message, Control::Stored(_) | Control::Offer { .. });
    let crosses = |entry: &&Entry<Hc3i>| match entry {
        Entry::Arrival(flight) => {
            federation.cluster_of(flight.from) != federation.cluster_of(flight.to)
                && flight.control().is_some_and(is_meant)
        }
        Entry::Fact { .. } => false,
    };
    federation.log().iter().filter(crosses).count()
}

/// L1: the leader p1 is told to pass on the round of recovery before it knows that p2 is alive again.
#[test]
fn a_leader_waits_until_it_knows_the_lives_of_the_others() {
    let schedule = |defects| {
        let mut federation = running(&[1, 2], by_leaders(defects));
        federation.kill(p(2), Kept);
        federation.detect(p(2));
        federation.settle();
        federation.withhold_membership(p(1), true);
        federation.come_back(p(2));
        federation.settle();
        federation.withhold_membership(p(1), false);
        federation.retry();
        federation
    };
    let sound = schedule(Defects::default());
    assert_eq!(wrong(&sound), [""; 0]);
    let broken = schedule(Defects::only(Defect::SpreadUnaware));
    let went_back = |federation: &Federation| federation.protocol(p(2)).position().incarnation.0;
    assert_eq!([&sound, &broken].map(went_back), [1, 0], "what is said to an older life is lost");
}
