//! A checkpoint of partitions takes exactly 2N + 3E messages for N partitions and E channels over which values are sent
//! (CCK long paper, section on complexity; including a `Continue` for each channel). This property is judged for
//! protocols that promise it, in completed runs, because other runs may not show all channels.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Position, ProcessId, Promise};

use super::valid_checkpoints::valid;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CoordinationMessages {
        position: Position,
        found: usize,
        expected: usize,
        partitions: usize,
        channels: usize,
    },
}

impl Worded for Breach {
    fn sentence(&self, _: &Context) -> String {
        let Breach::CoordinationMessages { position, found, expected, partitions, channels } = *self;
        format!(
            "checkpoint {position} required {found} messages instead of {expected}, with {partitions} partitions \
             and {channels} channels"
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::NeighboursOnly, "checkpoints were coordinated by neighbours only", check)
        .promised(Promise::NeighboursOnly)
        .needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(planned) = &history.planned else { return };
    let context = history.context;
    if context.outcome != Some(Outcome::Completed) {
        return;
    }
    if let Some(flawed) =
        (0..history.processes.len() as u32).map(ProcessId).find(|it| history.trace.has_gap_of(*it))
    {
        finding.lacks_facts_of(flawed, context);
        return;
    }
    let partitions = context.clusters.iter().map(Vec::len).sum::<usize>();
    let channels: BTreeSet<_> = history.messages.iter().map(|it| (it.id.from, it.id.to)).collect();
    let expected = 2 * partitions + 3 * channels.len();
    for (position, (_, at)) in valid(history) {
        finding.instances += 1;
        let sent = planned.coordinated.get(&position).map_or(&[][..], Vec::as_slice);
        if sent.len() != expected {
            let evidence = history.source(sent.last().map_or(at, |it| it.2));
            finding.violated(
                [evidence],
                Breach::CoordinationMessages {
                    position,
                    found: sent.len(),
                    expected,
                    partitions,
                    channels: channels.len(),
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;
    use faultline_core::{Fact, Promise};

    /// Checks a checkpoint of two partitions and one channel that takes `messages` messages; seven are
    /// correct.
    fn found(messages: usize) -> (u64, u64) {
        let mut run = Partitions::promising(2, &[Promise::NeighboursOnly]);
        let id = run.executed(0, 1, &[], &[1])[0];
        run.delivered(id);
        let position = run.checkpoint(0, 1);
        for _ in 0..messages {
            run.0.state(0, Fact::CheckpointMessage { position, from: id.from, to: id.to });
        }
        run.commit(0, position);
        let finding = check_alone(&RULE, &run.0);
        (finding.instances, finding.violation_count())
    }

    #[test]
    fn the_number_of_messages_is_exact() {
        assert_eq!(found(7), (1, 0));
        assert_eq!(found(6), (1, 1));
        assert_eq!(found(8), (1, 1));
    }
}
