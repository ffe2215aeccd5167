//! HC3I section 3.2: if a message from another cluster carries a position newer than the one in the receiver's
//! dependencies vector, the message is delivered only after the checkpoint that it forces. A checkpoint taken after a
//! delivery accounts for it: the vector that determines rollbacks covers every delivery that the checkpoint contains.
//!
//! The position is the piggybacked one that the composite observed. It must be that of the checkpoint that the sender
//! had last committed or restored when it transmitted the message for the first time; otherwise, it would prove nothing.
//! The vectors are self-reported: those of the checkpoint that the receiver last committed or restored. All members that
//! commit a checkpoint must report the same position and vectors (see `members_agree`).

use std::collections::BTreeMap;

use faultline_core::{Claim, FactKind, MessageId, Position, ProcessId, Promise, Time, Vectors};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{BetweenDelivery, Context, Group, GroupId, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    PositionChanged { message: MessageId, first: Position, second: Position },
    DeliveredBeforeCheckpoint { message: MessageId, sent_at: Position, from: GroupId, covered: Position },
    NotCovered { message: MessageId, position: Position },
    OtherPosition { message: MessageId, carried: Position, expected: Position },
    NeverReached { process: ProcessId, of: GroupId, position: Position },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::PositionChanged { message: id, first, second } => {
                format!("{} was first sent with position {first}, and later with {second}", names.message(id))
            }
            Breach::DeliveredBeforeCheckpoint { message: id, sent_at, from, covered } => format!(
                "{} delivered {}, sent at position {sent_at}, after a checkpoint that covers {} only up to {covered}",
                names.process(id.to),
                names.message(id),
                names.group(from)
            ),
            Breach::NotCovered { message: id, position } => format!(
                "checkpoint {position} of {} contains the delivery of {}, which its vector does not cover",
                names.process(id.to),
                names.message(id)
            ),
            Breach::OtherPosition { message: id, carried, expected } => format!(
                "{} carried position {carried}, although its sender was at {expected}",
                names.message(id)
            ),
            Breach::NeverReached { process: by, of, position } => format!(
                "{} claimed to depend on position {position} of {}, which had not reached it",
                names.process(by),
                names.group(of)
            ),
        }
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::ForcedBeforeDelivery,
    "messages were delivered after the checkpoints that they forced",
    check,
)
.promised(Promise::ForcedBeforeDelivery)
.needs(&[FactKind::Transmitted, FactKind::Delivered, FactKind::CheckpointCommitted]);

fn check(history: &History<'_>, finding: &mut Findings) {
    check_stamps(history, finding);
    check_positions(history, finding);
    if history.context.common_clock {
        check_vectors(history, finding);
    }
    for delivery in &history.between {
        check_delivery(history, delivery, finding);
    }
}

/// Checks that a re-sent message carries its original position.
fn check_stamps(history: &History<'_>, finding: &mut Findings) {
    for message in history.messages.iter() {
        if let (Some((first, at)), Some((second, again))) = (message.stamp(), message.restamped()) {
            finding.violated(
                [history.source(at), history.source(again)],
                Breach::PositionChanged { message: message.id, first, second },
            );
        }
    }
}

/// Checks that each message to another group was first transmitted with its sender's position.
fn check_positions(history: &History<'_>, finding: &mut Findings) {
    let mut taken: BTreeMap<ProcessId, Vec<(Point, Position)>> = BTreeMap::new();
    for claimed in &history.claims {
        if let Claim::Committed { position, .. } | Claim::RolledBack { to: position, .. } = claimed.claim {
            taken.entry(history.process_of(claimed.at)).or_default().push((claimed.at, *position));
        }
    }
    taken.values_mut().for_each(|it| it.sort_unstable_by_key(|(at, _)| *at));
    for message in history.messages.iter() {
        let Some((carried, at)) = message.stamp() else { continue };
        let from = message.id.from;
        if history.group_of(from) == history.group_of(message.id.to) || history.trace.has_gap_of(from) {
            continue;
        }
        let own = taken.get(&from).map_or(&[][..], Vec::as_slice);
        let last = own[..own.partition_point(|(it, _)| *it < at)].last();
        let expected = last.map_or(Position::default(), |(_, position)| *position);
        if carried != expected {
            let breach = Breach::OtherPosition { message: message.id, carried, expected };
            finding.violated([history.source(at)], breach);
        }
    }
}

/// Checks that a dependencies vector covers only positions that the other groups had reached by then. Otherwise, a protocol
/// could claim to depend on everything, and would never have to force a checkpoint.
fn check_vectors(history: &History<'_>, finding: &mut Findings) {
    let reached: Vec<Vec<(Time, Position)>> = history.groups.iter().map(reached).collect();
    for claimed in &history.claims {
        let vectors = match claimed.claim {
            Claim::Committed { vectors, .. } | Claim::RolledBack { vectors, .. } => vectors,
            _ => continue,
        };
        let process = history.process_of(claimed.at);
        let own = history.group_of(process);
        for (of, &position) in (0..).map(GroupId).zip(vectors.ddv.iter()) {
            if Some(of) == own || position == Position::default() {
                continue;
            }
            let all = reached.get(usize::from(of.0)).map_or(&[][..], Vec::as_slice);
            let before = all.partition_point(|(at, _)| *at <= claimed.time);
            if all[..before].last().is_none_or(|(_, newest)| *newest < position) {
                let breach = Breach::NeverReached { process, of, position };
                finding.violated([history.source(claimed.at)], breach);
            }
        }
    }
}

/// Returns the greatest position of a group at the end of each commit and each restore, in the order of their times.
fn reached(group: &Group<'_>) -> Vec<(Time, Position)> {
    let committed = group.checkpoints.iter().filter_map(|(name, it)| {
        let first = it.commits.iter().map(|commit| commit.time).min()?;
        Some((first, name.position))
    });
    let restored = group.rollbacks.iter().flat_map(|(&incarnation, it)| {
        it.restores().map(move |restored| {
            let sn = restored.checkpoint.map(|name| name.position.sn).unwrap_or_default();
            (restored.time, Position { incarnation, sn })
        })
    });
    let mut all: Vec<(Time, Position)> = committed.chain(restored).collect();
    all.sort_unstable();
    let mut newest = Position::default();
    for (_, position) in &mut all {
        newest = newest.max(*position);
        *position = newest;
    }
    all
}

fn check_delivery(history: &History<'_>, delivery: &BetweenDelivery<'_>, finding: &mut Findings) {
    let message = history.messages.get(delivery.message);
    let (Some((stamp, stamped)), Some(vectors)) = (message.stamp(), delivery.vectors) else {
        let (id, names) = (message.id, history.context);
        let forced = format!("{} forced at {}", names.message(id), names.process(id.to));
        finding.lacks_facts(format!("the checkpoint that {forced} is unknown"));
        return;
    };
    let Some(group) = history.group_of(message.id.from) else { return };
    finding.instances += 1;
    let known = vectors.ddv.get(usize::from(group.0)).copied().unwrap_or_default();
    if known < stamp {
        finding.violated(
            [history.source(delivery.at), history.source(stamped)],
            Breach::DeliveredBeforeCheckpoint {
                message: message.id,
                sent_at: stamp,
                from: group,
                covered: known,
            },
        );
    }
    if let Some((name, checkpoint)) = history.first_checkpoint_with(delivery.at)
        && let Some(commit) = checkpoint.commits.first().filter(|it| !covers(it.vectors, group, stamp))
    {
        finding.violated(
            [history.source(delivery.at), history.source(commit.at)],
            Breach::NotCovered { message: message.id, position: name.position },
        );
    }
}

/// Returns whether the delivered vector covers a message that `group` sent at `stamp`.
fn covers(vectors: &Vectors, group: GroupId, stamp: Position) -> bool {
    let covers = |&(it, at): &(GroupId, Position)| {
        it == group && at.incarnation == stamp.incarnation && at.sn >= stamp.sn
    };
    vectors.delivered.iter().any(covers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, position};

    /// Returns a run in which p0 sends after its checkpoint 1, and p1 delivers after a checkpoint whose
    /// vector contains `ddv` for p0's cluster.
    fn run(ddv: Position) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_with(1, &[1], &[ddv, position(0, 1)], &[]);
        let id = run.send(0, 1);
        run.transmit(id, position(0, 1));
        run.deliver(id);
        run
    }

    #[test]
    fn a_delivery_on_an_older_checkpoint_is_found() {
        let finding = check_alone(&RULE, &run(position(0, 1)));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
        let finding = check_alone(&RULE, &run(position(0, 0)));
        assert_eq!((finding.instances, finding.violation_count()), (1, 1));
    }

    #[test]
    fn a_checkpoint_whose_vector_lacks_a_delivery_is_found() {
        let ddv = [position(0, 1), position(0, 2)];
        let mut good = run(position(0, 1));
        good.commit_with(1, &[1], &ddv, &[(0, position(0, 1))]);
        assert_eq!(check_alone(&RULE, &good).violation_count(), 0);
        let mut bad = run(position(0, 1));
        bad.commit_with(1, &[1], &ddv, &[]);
        finds!(check_alone(&RULE, &bad), Breach::NotCovered { .. });
    }

    #[test]
    fn a_different_position_at_the_second_transmission_is_found() {
        let mut run = run(position(0, 1));
        let id = run.message(0, 1, 0, 0);
        run.transmit(id, position(0, 1));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.transmit(id, position(0, 2));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn a_message_that_does_not_carry_its_sender_s_position_is_found() {
        for other in [position(0, 0), position(0, 2), position(1, 1)] {
            let mut run = Run::new(&[&[0], &[1]]);
            run.commit_all(0, &[0]);
            let id = run.send(0, 1);
            run.transmit(id, other);
            finds!(check_alone(&RULE, &run), Breach::OtherPosition { .. });
        }
    }

    #[test]
    fn a_restored_checkpoint_counts() {
        let mut run = run(position(0, 1));
        let id = run.message(0, 1, 0, 0);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        assert_eq!(check_alone(&RULE, &run).instances, 2);
    }

    #[test]
    fn a_protocol_that_forces_nothing_is_not_judged() {
        let mut run = run(position(0, 0));
        run.withdraw(faultline_core::Promise::ForcedBeforeDelivery);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
