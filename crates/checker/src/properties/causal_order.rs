//! Causal order (HydEE section II-A: the events of an execution are consistent with the happened-before relation): the
//! actions in the final states of the processes can be arranged in an order in which every message is sent before it is
//! consumed.
//!
//! Without rollbacks, this always holds. But if messages of a rolled-back process still exist before it has re-sent
//! them, a message that depends on them can overtake them and be consumed before its own cause. This property is judged
//! if consumption is recorded, as it is under protocols that rely on repetition.

use crate::finding::{Findings, Worded};
use crate::properties::order::{ProcessAction, final_actions, replay};
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId};
use faultline_history::{Context, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ConsumedBeforeItsCause { message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::ConsumedBeforeItsCause { message: id } = *self;

        let receiver = names.process(id.to);
        format!(
            "{receiver} consumed {}, whose send depends on later actions of {receiver}",
            names.message(id)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::CausalOrder, "no message was consumed before its causes", check)
        .needs(&[FactKind::Consumed]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.consumed == 0 {
        return;
    }
    let final_actions = final_actions(history);
    let is_consumed = |doing: &ProcessAction| matches!(doing, ProcessAction::Consumes(_));
    finding.instances = final_actions.iter().flatten().filter(|(doing, _)| is_consumed(doing)).count() as u64;
    if finding.instances > 0
        && let Some((id, at)) = replay(&final_actions, |_, _| {})
    {
        finding.violated([at], Breach::ConsumedBeforeItsCause { message: id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};

    #[test]
    fn a_chain_of_messages_is_in_order_in_any_reading_order() {
        let mut run = Run::new(&[&[0], &[1], &[2]]);
        let first = run.send(2, 1);
        run.deliver(first);
        run.consume(first);
        let second = run.send(1, 0);
        run.deliver(second);
        run.consume(second);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }

    #[test]
    fn a_message_consumed_before_its_cause_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let cause = run.send(0, 1);
        run.deliver(cause);
        run.consume(cause);
        let effect = run.send(1, 0);
        // The cause is undone, but its effect is not, so the effect is consumed before the cause is re-sent.
        run.restore(0, 0, Some((0, 1)));
        run.deliver(effect);
        run.consume(effect);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0, "the cause no longer exists");
        run.send_as(cause);
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::ConsumedBeforeItsCause { .. });
    }
}
