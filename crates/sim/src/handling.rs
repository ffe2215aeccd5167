//! Time that processes spend on the packets that they send and receive.
//!
//! A process handles one packet at a time, in the order in which packets arrive and are sent. If processes share
//! cores, a packet also waits for a free core. Other work of a process occupies no core: a computation of the
//! application is simply a delay.

use faultline_core::{ProcessId, Span, Time};

use crate::config::{Handling, HandlingTime};

/// The times until which each process and each core is busy.
#[derive(Debug)]
pub(crate) struct Processors {
    handling: Handling,
    /// Indexed by process.
    busy_until: Vec<Time>,
    /// Indexed by core; empty unless cores are shared.
    cores: Vec<Time>,
}

impl Processors {
    pub(crate) fn new(handling: Handling, processes: usize) -> Processors {
        let cores = handling.cores.map_or(0, |it| it.get() as usize);
        Processors { handling, busy_until: vec![Time::ZERO; processes], cores: vec![Time::ZERO; cores] }
    }

    /// Returns the time at which `process` finishes handling a packet of `bytes` that is queued at `now`. The handling
    /// takes `percent` percent of its time.
    pub(crate) fn handle(
        &mut self,
        process: ProcessId,
        between: bool,
        bytes: u64,
        percent: u32,
        now: Time,
    ) -> Time {
        let HandlingTime { packet, kibibyte } =
            if between { self.handling.between } else { self.handling.within };
        let by_length = u128::from(kibibyte.0) * u128::from(bytes) / 1024;
        let effort = (packet + Span(u64::try_from(by_length).unwrap_or(u64::MAX))).percent(percent);
        let busy_until = &mut self.busy_until[process.index()];
        let mut begun = now.max(*busy_until);
        if let Some(core) = self.cores.iter_mut().min() {
            begun = begun.max(*core);
            *core = begun + effort;
        }
        *busy_until = begun + effort;
        *busy_until
    }

    /// Returns the time at which `process` finishes all packets queued so far.
    pub(crate) fn free(&self, process: ProcessId, now: Time) -> Time {
        self.busy_until[process.index()].max(now)
    }

    /// Discards the remaining work of a failed process.
    pub(crate) fn end(&mut self, process: ProcessId, now: Time) {
        self.busy_until[process.index()] = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;

    const HANDLING: Handling = Handling {
        within: HandlingTime { packet: Span(10), kibibyte: Span(4) },
        between: HandlingTime { packet: Span(100), kibibyte: Span::ZERO },
        cores: None,
    };

    #[test]
    fn a_process_handles_one_packet_at_a_time() {
        let mut processors = Processors::new(HANDLING, 2);
        assert_eq!(processors.handle(ProcessId(0), false, 2048, 100, Time(0)), Time(18));
        assert_eq!(processors.handle(ProcessId(0), true, 2048, 100, Time(5)), Time(118));
        assert_eq!(
            processors.handle(ProcessId(1), false, 0, 100, Time(5)),
            Time(15),
            "each process has its own core"
        );
        assert_eq!(
            processors.handle(ProcessId(0), false, 0, 100, Time(200)),
            Time(210),
            "after an idle period"
        );
        assert_eq!(
            (processors.free(ProcessId(0), Time(201)), processors.free(ProcessId(1), Time(201))),
            (Time(210), Time(201))
        );
        processors.end(ProcessId(0), Time(203));
        assert_eq!(processors.handle(ProcessId(0), false, 0, 100, Time(204)), Time(214));
        assert_eq!(processors.handle(ProcessId(0), false, 0, 250, Time(300)), Time(325), "on a slow node");
    }

    #[test]
    fn processes_wait_for_shared_cores() {
        let mut processors = Processors::new(Handling { cores: NonZero::new(2), ..HANDLING }, 3);
        let done = [0, 1, 2, 0].map(|it| processors.handle(ProcessId(it), true, 0, 100, Time(0)));
        assert_eq!(done, [Time(100), Time(100), Time(200), Time(200)]);
    }
}
