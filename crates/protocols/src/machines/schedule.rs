//! The times at which a coordinator begins checkpoints, and which of them remove older ones.

use faultline_core::{Span, Time};

/// The timers of a coordinator. The delay before the next checkpoint is measured from the end of the last one: its
/// timer stops when a checkpoint begins, and restarts at the commit or after a rollback. Once the delay before a
/// collection has elapsed, the next checkpoint to be committed removes all older ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    checkpoint_every: Option<Span>,
    collect_every: Option<Span>,
    checkpoint_at: Option<Time>,
    collect_at: Option<Time>,
}

impl Schedule {
    /// Begins the first delay before a collection. No checkpoint is due before [`Schedule::restart`]. A delay of `None`
    /// never ends.
    pub(crate) fn new(checkpoint_every: Option<Span>, collect_every: Option<Span>, now: Time) -> Schedule {
        let collect_at = collect_every.map(|every| now + every);
        Schedule { checkpoint_every, collect_every, checkpoint_at: None, collect_at }
    }

    /// Returns whether a checkpoint is due.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.checkpoint_at.is_some_and(|at| at <= now)
    }

    /// Returns the time at which the next checkpoint is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.checkpoint_at
    }

    /// Stops the timer for the next checkpoint, because one begins or the group has failed.
    pub(crate) fn stop(&mut self) {
        self.checkpoint_at = None;
    }

    /// Begins the delay before the next checkpoint.
    pub(crate) fn restart(&mut self, now: Time) {
        self.checkpoint_at = self.checkpoint_every.map(|every| now + every);
    }

    /// Returns whether the checkpoint that is being committed removes all older ones. If so, begins the next delay.
    pub(crate) fn collects(&mut self, now: Time) -> bool {
        let is_due = self.collect_at.is_some_and(|at| at <= now);
        if is_due {
            self.collect_at = self.collect_every.map(|every| now + every);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::ZERO + SECOND * seconds
    }

    #[test]
    fn the_delay_is_counted_from_the_end_of_a_checkpoint() {
        let mut schedule = Schedule::new(Some(SECOND), None, at(0));
        assert!(!schedule.is_due(at(9)), "the first checkpoint is not timed");
        schedule.restart(at(1));
        assert_eq!(schedule.next(), Some(at(2)));
        assert!(!schedule.is_due(at(1)) && schedule.is_due(at(2)));
        schedule.stop();
        assert!(!schedule.is_due(at(9)));
        assert!(!schedule.collects(at(9)), "no collection was requested");
    }

    #[test]
    fn the_first_commit_after_the_delay_collects() {
        let mut schedule = Schedule::new(None, Some(SECOND * 2), at(0));
        assert!(!schedule.collects(at(1)));
        assert!(schedule.collects(at(3)));
        assert!(!schedule.collects(at(4)), "the delay is counted from the collection");
        assert!(schedule.collects(at(5)));
        schedule.restart(at(5));
        assert_eq!(schedule.next(), None);
    }
}
