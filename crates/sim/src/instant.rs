//! The events at one instant of virtual time.

/// The events at the current instant.
///
/// Virtual time that does not advance never ends a run, because its deadline is a virtual time, too. Without a limit, for
/// example, a timer in the past would expire forever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instant {
    /// The number of events before the instant.
    pub(crate) before: u64,
    /// The number of arrivals of application messages, and of results of its computations.
    pub(crate) of_application: u64,
    /// The number of all other events.
    pub(crate) others: u64,
}

impl Instant {
    /// The number of events that an instant may have in any run.
    pub(crate) const MOST: u64 = 100_000;
    /// The number of events that an instant may have, in addition, for each process.
    const MOST_PER_PROCESS: u64 = 10_000;
    /// How many times as many events an instant may have if they belong to the application.
    const APPLICATION: u64 = 100;

    pub(crate) fn count(&mut self, is_of_application: bool) {
        self.of_application += u64::from(is_of_application);
        self.others += u64::from(!is_of_application);
    }

    pub(crate) fn events(&self) -> u64 {
        self.of_application + self.others
    }

    /// Returns whether the run makes no progress. An instant may have as many events as the run had before it, because
    /// everything that a link held arrives when the link heals. A program that takes no time, on links without latency,
    /// runs in one instant, but never without end.
    pub(crate) fn is_endless(&self, processes: usize) -> bool {
        let most = Instant::MOST + Instant::MOST_PER_PROCESS * processes as u64;
        self.others > most + self.before + self.of_application
            || self.events() > most * Instant::APPLICATION + self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_without_progress_is_endless() {
        let is_endless =
            |before, of_application, others| Instant { before, of_application, others }.is_endless(4);
        assert!(is_endless(1000, 10, 150_000), "a timer in the past");
        assert!(!is_endless(1000, 10, 100_000), "a large exchange of messages");
        assert!(!is_endless(700_000, 300_000, 300_000), "a link heals that held many messages");
        assert!(!is_endless(0, 1_000_000, 1_000_000), "a program that takes no time");
        assert!(is_endless(0, 20_000_000, 0), "two processes that answer each other");
    }
}
