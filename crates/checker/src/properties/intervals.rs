//! What the bounds on lost work share: checkpoint intervals, and the lives before a failure.

use faultline_core::{Fact, Life, ProcessId, Span};
use faultline_history::{Group, History};
use faultline_trace::Stream;
use faultline_trace::manifest::Bounds;

/// How late the timers of real processes may fire.
pub(super) const SLACK: Span = Span::from_millis(500);

/// Returns the delay between the checkpoints of a group. The inner option is `None` if the group takes no unforced
/// checkpoints, and the outer one if the resource does not specify the delay.
///
/// The resource specifies a delay for each cluster. A cluster may differ from the group of processes that roll back
/// together.
pub(super) fn checkpoint_every(
    history: &History<'_>,
    bounds: &Bounds,
    group: &Group,
) -> Option<Option<Span>> {
    let first = group.members.first()?;
    let cluster = history.context.clusters.iter().position(|it| it.contains(first))?;
    bounds.checkpoint_every.get(cluster).copied()
}

/// Returns the lives of a process before `life` that reported facts, in order.
pub(super) fn lives_before<'a>(
    history: &History<'a>,
    process: ProcessId,
    life: Life,
) -> Vec<(Life, &'a Stream)> {
    let streams = history.trace.lives(process).filter(|it| it.0 < life);
    streams.filter(|(_, stream)| !stream.is_empty()).collect()
}

/// Returns the last of `lives` that restored a state, and all lives after it; all lives if none restored a
/// state. Earlier lives are judged at that restore. Lives that failed before they restored a state may follow
/// the life whose work was lost.
pub(super) fn since_restored<'s, 'a>(lives: &'s [(Life, &'a Stream)]) -> &'s [(Life, &'a Stream)] {
    let has_restored = |it: &(Life, &Stream)| it.1.iter().any(|(_, fact)| matches!(fact, Fact::Restored(_)));
    &lives[lives.iter().rposition(has_restored).unwrap_or(0)..]
}
