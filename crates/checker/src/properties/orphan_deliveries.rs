//! Finds the states that can no longer belong to a consistent line, because they contain the delivery of a message
//! whose send was undone. There are no such states if re-execution repeats messages.

use faultline_history::{History, Message, Point};

/// States that contain the delivery of a message from another group whose send was undone, or may have been.
pub(super) struct OrphanDeliveries {
    /// By segment: the first delivery of a message from another group whose send was undone, or may have
    /// been.
    first: Vec<Option<u32>>,
    /// By segment: whether it continues a state that contains the delivery of an undone message, or an
    /// unknown state.
    inherited: Vec<bool>,
}

impl OrphanDeliveries {
    pub(super) fn of(history: &History<'_>) -> OrphanDeliveries {
        let mut first = vec![None; history.segments.len()];
        let repeats = history.context.repeats();
        for delivery in history.between.iter().filter(|_| !repeats) {
            let slot: &mut Option<u32> = &mut first[delivery.at.segment.0 as usize];
            if slot.is_none() && is_undone(history, history.messages.get(delivery.message)) {
                *slot = Some(delivery.at.fact);
            }
        }
        let mut orphans = OrphanDeliveries { first, inherited: Vec::with_capacity(history.segments.len()) };
        for segment in &history.segments {
            // A parent has a smaller number, so its entry already exists.
            let inherited = segment.is_rootless || segment.parent.is_some_and(|parent| orphans.is_in(parent));
            orphans.inherited.push(inherited);
        }
        orphans
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
