//! Limits on how often the operator writes about a federation.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;

/// Minimum mean time between two writes of one federation's status.
const PAUSE: Duration = Duration::from_secs(1);
/// How much earlier a write may happen if a user may be waiting for it: the few steps of a startup follow in
/// quick succession.
const CREDIT: Duration = Duration::from_secs(3);
/// Maximum number of events of a federation that are reported in each [`PERIOD`]. A run has at most a third of this
/// number, unless a foreign program runs in the supervisor's pod.
const MAX_EVENTS_PER_PERIOD: usize = 1000;
/// Period of the limit on events. By default, the API server keeps events for this time.
pub const PERIOD: Duration = Duration::from_secs(3600);
/// Time after a failure to create an event until the next attempt.
const EVENTS_AGAIN: Duration = Duration::from_secs(30);
/// Maximum number of events of a federation that are kept for the next attempt. If there are more, the oldest are
/// dropped.
const MAX_UNREPORTED: usize = 50;

/// Events that could not be created yet. They are lost if the operator stops.
#[derive(Clone, Debug, Default)]
pub struct UnreportedEvents {
    events: VecDeque<Event>,
    /// Time of the next attempt, if there are events.
    pub due: Option<Instant>,
}

impl UnreportedEvents {
    /// Adds events for the next attempt.
    pub fn keep(&mut self, events: VecDeque<Event>, now: Instant) {
        self.events.extend(events);
        let excess = self.events.len().saturating_sub(MAX_UNREPORTED);
        self.events.drain(..excess);
        self.due = self.due.or(Some(now + EVENTS_AGAIN)).filter(|_| !self.events.is_empty());
    }

    /// Removes and returns the events if it is time for the next attempt.
    pub fn take_due(&mut self, now: Instant) -> VecDeque<Event> {
        if self.due.take_if(|due| *due <= now).is_some() {
            std::mem::take(&mut self.events)
        } else {
            VecDeque::new()
        }
    }

    /// Returns the time until the next attempt; `None` if there are no events.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }
}

/// Limits how many events of a federation are reported, because a supervisor's pod may run a foreign program.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventAllowance {
    /// Beginning of the current period.
    since: Option<Instant>,
    /// Number of events reported in the current period.
    spent: usize,
}

impl EventAllowance {
    /// Returns how many more events may be reported.
    pub fn left(self, now: Instant) -> usize {
        let is_over = self.since.is_none_or(|it| now.saturating_duration_since(it) >= PERIOD);
        if is_over { MAX_EVENTS_PER_PERIOD } else { MAX_EVENTS_PER_PERIOD.saturating_sub(self.spent) }
    }

    /// Records that this many events have been reported.
    pub fn spend(&mut self, events: usize, now: Instant) {
        if events > 0 && self.left(now) == MAX_EVENTS_PER_PERIOD {
            *self = EventAllowance { since: Some(now), spent: 0 };
        }
        self.spent += events;
    }
}

/// Limits how often the status of a federation is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Time at which the status was last written.
    last: Option<Instant>,
    /// Earliest time at which a write would not exceed the mean rate.
    due: Option<Instant>,
}

impl Pace {
    /// Returns how long a write has to wait. A write that no user waits for happens at least `progress` after the
    /// previous one.
    pub fn wait(self, is_awaited: bool, progress: Duration, now: Instant) -> Duration {
        let until = |it: Option<Instant>| it.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        if is_awaited {
            until(self.due).saturating_sub(CREDIT)
        } else {
            until(self.due.max(self.last.map(|it| it + progress)))
        }
    }

    /// Records that the status has been written.
    pub fn written(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = Some(self.due.map_or(now, |due| due.max(now)) + PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_changes_are_written_immediately_at_the_mean_rate() {
        let begun = Instant::now();
        let expected: [fn(u64) -> u64; 2] = [|it| it.saturating_sub(3), |it| 5 * it];
        for (is_awaited, expected) in [true, false].into_iter().zip(expected) {
            let mut pace = Pace::default();
            let (mut now, mut times) = (begun, Vec::new());
            for _ in 0..100 {
                now += pace.wait(is_awaited, PAUSE * 5, now);
                pace.written(now);
                times.push((now - begun).as_secs());
            }
            assert_eq!(times, (0..100).map(expected).collect::<Vec<_>>(), "{is_awaited}");
        }
    }

    #[test]
    fn unused_credit_does_not_accumulate() {
        let begun = Instant::now();
        let mut pace = Pace::default();
        pace.written(begun);
        let later = begun + PAUSE * 100;
        assert_eq!(pace.wait(false, PAUSE * 5, later), Duration::ZERO);
        pace.written(later);
        assert_eq!(pace.wait(false, PAUSE * 5, later), PAUSE * 5);
        assert_eq!(pace.wait(true, PAUSE * 5, later), Duration::ZERO);
    }

    #[test]
    fn the_number_of_events_is_limited_in_each_period() {
        let begun = Instant::now();
        let mut allowance = EventAllowance::default();
        assert_eq!(allowance.left(begun), MAX_EVENTS_PER_PERIOD);
        allowance.spend(MAX_EVENTS_PER_PERIOD - 1, begun);
        assert_eq!(allowance.left(begun + PERIOD / 2), 1);
        allowance.spend(20, begun + PERIOD / 2);
        assert_eq!(allowance.left(begun + PERIOD / 2), 0);
        assert_eq!(allowance.left(begun + PERIOD), MAX_EVENTS_PER_PERIOD);
        allowance.spend(1, begun + PERIOD);
        assert_eq!(allowance.left(begun + PERIOD), MAX_EVENTS_PER_PERIOD - 1);
    }

    #[test]
    fn a_limited_number_of_events_waits_for_the_next_attempt() {
        let begun = Instant::now();
        let events = |numbers: std::ops::Range<u64>| {
            numbers
                .map(|it| Event { note: Some(it.to_string()), ..Event::default() })
                .collect::<VecDeque<_>>()
        };
        let mut unreported = UnreportedEvents::default();
        unreported.keep(events(0..0), begun);
        assert_eq!(unreported.wait(begun), None);
        unreported.keep(events(0..1), begun);
        let later = begun + EVENTS_AGAIN / 2;
        unreported.keep(events(1..60), later);
        assert_eq!(unreported.wait(later), Some(EVENTS_AGAIN / 2), "new events do not delay the attempt");
        assert_eq!(unreported.take_due(later), events(0..0));
        assert_eq!(unreported.take_due(begun + EVENTS_AGAIN), events(10..60), "the oldest are dropped");
        assert_eq!(unreported.wait(later), None);
    }
}
