//! Slows the commands of a node down: stops their processes for a part of each slice of time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use faultline_core::{FaultNo, Life, ProcessId, Span};
use faultline_guard::{matching, processor_time, signal_all};
use faultline_trace::manifest::{Effect, Slowed};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::clock::Clock;
use crate::supervise::places::{HostEvent, HostEvents};

/// The shortest slice.
const SLICE: Duration = Duration::from_millis(100);
/// The shortest time in a slice for which processes run.
const RUNS_FOR: Duration = Duration::from_millis(5);

/// Slows the commands of a life down until it is dropped.
pub(super) struct Slices {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// Whether a fault, or the user, has paused the commands.
    is_paused: bool,
    is_over: bool,
}

/// The life whose commands are slow.
pub(super) struct SlowLife {
    pub(super) no: FaultNo,
    pub(super) process: ProcessId,
    pub(super) life: Life,
    /// Identifies the processes.
    pub(super) id: String,
    /// The node's own process.
    pub(super) node: Pid,
    /// The percentage of its time that what the commands do takes.
    pub(super) percent: u32,
    pub(super) is_paused: bool,
}

impl Slices {
    /// Begins at once. Reports the effect, and at the end what time the commands had.
    pub(super) fn begin(of: SlowLife, clock: Clock, host_events: HostEvents) -> Slices {
        let state = Arc::new((Mutex::new(State { is_paused: of.is_paused, is_over: false }), Condvar::new()));
        let shared = state.clone();
        let thread = thread::spawn(move || slice(&of, &shared, clock, &host_events));
        Slices { state, thread: Some(thread) }
    }

    /// Lets the processes remain stopped, or not. The caller stops or continues them afterwards.
    pub(super) fn set_paused(&self, is_paused: bool) {
        lock(&self.state.0).is_paused = is_paused;
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        lock(&self.state.0).is_over = true;
        self.state.1.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slice(of: &SlowLife, (state, changed): &(Mutex<State>, Condvar), clock: Clock, host_events: &HostEvents) {
    let share = 100.0 / f64::from(of.percent);
    let slice = SLICE.max(RUNS_FOR.div_f64(share));
    let runs_for = slice.mul_f64(share);
    let waits = |time: Duration| {
        let wait = changed.wait_timeout_while(lock(state), time, |it| !it.is_over);
        wait.map_or(true, |(state, _)| state.is_over)
    };
    let effect = |at, slowed| Effect {
        process: of.process,
        life: of.life,
        at,
        exited: None,
        slowed,
        error: Span::ZERO,
    };
    let span = |it: Duration| Span(it.as_nanos() as u64);
    let begun = Instant::now();
    let (mut at, mut ran, mut used) = (None, Duration::ZERO, Duration::ZERO);
    let mut before: Option<Duration> = None;
    let mut running_since = Some(begun).filter(|_| !of.is_paused);
    loop {
        let processes = matching(|it| it == of.id, &[of.node]);
        signal_all(&processes, Signal::SIGSTOP);
        ran += running_since.map_or(Duration::ZERO, |it| it.elapsed());
        if at.is_none() && !processes.is_empty() {
            at = Some(clock.now());
            host_events.put(HostEvent::Slowed(of.no, effect(at, None)));
        }
        let time = processor_time(&processes);
        used += before.map_or(Duration::ZERO, |it| time.saturating_sub(it));
        before = Some(time);
        let mut is_over = waits(slice - runs_for);
        {
            let state = lock(state);
            running_since = (!state.is_paused).then(Instant::now);
            if !state.is_paused {
                signal_all(&processes, Signal::SIGCONT);
            }
        }
        is_over |= waits(if is_over { Duration::ZERO } else { runs_for });
        if is_over {
            break;
        }
    }
    let processes = matching(|it| it == of.id, &[of.node]);
    used += before.map_or(Duration::ZERO, |it| processor_time(&processes).saturating_sub(it));
    ran += running_since.map_or(Duration::ZERO, |it| it.elapsed());
    let slowed = Slowed { lasted: span(begun.elapsed()), ran: span(ran), used: span(used) };
    host_events.put(HostEvent::Slowed(of.no, effect(at, Some(slowed))));
}
