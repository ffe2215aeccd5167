//! Finds the states that can no longer belong to a consistent line, because a message that they contain was
//! undone. There are none where a re-execution repeats the messages of the execution.

use faultline_history::{History, Message, Point};

/// The states that contain the delivery of a message from another group whose send was undone, or may have
/// been.
pub(super) struct Dirt {
    /// By segment: the first such delivery in it.
    first: Vec<Option<u32>>,
    /// By segment: whether it continues such a state.
    inherited: Vec<bool>,
}

impl Dirt {
    pub(super) fn of(history: &History<'_>) -> Dirt {
        let mut first = vec![None; history.segments.len()];
        let repeats = history.context.repeats();
        for delivery in history.between.iter().filter(|_| !repeats) {
            let slot: &mut Option<u32> = &mut first[delivery.at.segment.0 as usize];
            if slot.is_none() && is_undone(history, history.messages.get(delivery.message)) {
                *slot = Some(delivery.at.fact);
            }
        }
        let mut dirt = Dirt { first, inherited: Vec::with_capacity(history.segments.len()) };
        for segment in &history.segments {
            // A parent has a smaller number, so it has already been entered.
            let inherited = segment.is_rootless || segment.parent.is_some_and(|parent| dirt.is_in(parent));
            dirt.inherited.push(inherited);
        }
        dirt
    }

    pub(super) fn is_in(&self, cut: Point) -> bool {
        let segment = cut.segment.0 as usize;
        self.inherited[segment] || self.first[segment].is_some_and(|fact| fact < cut.fact)
    }
}

/// Returns whether the send of `message` was undone, or may have been.
pub(super) fn is_undone(history: &History<'_>, message: &Message) -> bool {
    history.send_survives(message) != Some(true)
}
