//! The backend in virtual time.

use std::cell::{Cell, RefCell};

use faultline_catalog::{Hosted, LoggedLine, Setup, keep_log, take_log};
use faultline_core::Time;
use faultline_sim::{Simulation, Stats};
use faultline_supervisor::panics::caught;
use faultline_supervisor::{MemoryBound, Status};
use faultline_trace::manifest::{BackendKind, Expected};
use faultline_trace::{BundleError, Manifest, Record, Recorder, Sink, Trace};

use crate::backend::{Backend, ComputeExpected, PreparedRun, RunEnd};
use crate::input_recorder::InputRecorder;
use crate::logs::Logs;
use crate::memory::{Watch, memory_bound};

/// The number of events between two calls of [`SimulationObserver::continues`].
const LOOK_EVERY: u32 = 1000;

/// Observes a simulation while it runs.
pub trait SimulationObserver {
    /// Called when the run begins. The manifest does not describe the end of the run yet.
    fn begins(&mut self, manifest: &Manifest) {
        let _ = manifest;
    }

    /// Called for every fact, in the order of virtual time.
    fn recorded(&mut self, record: &Record) {
        let _ = record;
    }

    /// Called for every line that a program writes to standard error. `at` is the time of the event after which the line was
    /// read.
    fn logged(&mut self, at: Time, line: &LoggedLine) {
        let _ = (at, line);
    }

    /// Called after every event. Returning `true` interrupts the run. A single event can take a long time, because it
    /// may execute a computation of the application.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// Called every thousand events. Returning `false` interrupts the run.
    fn continues(&mut self, moment: SimulationView<'_>) -> bool {
        let _ = moment;
        true
    }

    /// Works like [`Backend::expected`].
    fn expected(&mut self, compute: ComputeExpected) -> Option<Option<Expected>> {
        Some(compute())
    }
}

/// An observer that ignores everything.
impl SimulationObserver for () {}

/// A simulation between two events.
pub struct SimulationView<'a> {
    /// The current virtual time.
    pub now: Time,
    status: &'a mut dyn FnMut() -> Status,
}

impl SimulationView<'_> {
    /// Returns the current status of the federation. Computing it is not cheap.
    pub fn status(&mut self) -> Status {
        (self.status)()
    }
}

/// Runs federations in virtual time, inside this process.
pub struct Simulator<'a> {
    observer: &'a mut dyn SimulationObserver,
    most_events: u64,
    memory: Option<MemoryBound>,
    stats: Stats,
}

impl<'a> Simulator<'a> {
    /// Creates a simulator whose runs are observed by `observer`. The program's [memory limit](crate::bound_memory)
    /// applies to them.
    pub fn new(observer: &'a mut dyn SimulationObserver) -> Simulator<'a> {
        Simulator { observer, most_events: u64::MAX, memory: memory_bound(), stats: Stats::default() }
    }

    /// Interrupts a run after this many events, rounded up to a multiple of 1000.
    #[must_use]
    pub fn at_most(self, events: u64) -> Simulator<'a> {
        Simulator { most_events: events, ..self }
    }

    /// Ends a run as [out of memory](faultline_core::fault::Outcome::OutOfMemory) once this limit is reached. Replaces
    /// the program's limit.
    #[must_use]
    pub fn within(self, memory: MemoryBound) -> Simulator<'a> {
        Simulator { memory: Some(memory), ..self }
    }

    /// Returns the memory limit of this simulator's runs.
    pub(crate) fn memory(&self) -> Option<MemoryBound> {
        self.memory
    }

    /// Returns the last run's counts of events and packets, which its facts do not contain.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Runs a federation to its end. Adds to `logs` what its programs write to standard error.
    pub(crate) fn play<N: Hosted>(
        &mut self,
        setup: &Setup<N>,
        manifest: &Manifest,
        input_recorder: Option<&mut InputRecorder>,
        logs: &mut Logs,
    ) -> (RunEnd, Trace) {
        keep_log(true);
        let mut take_logs = |at, observer: &mut dyn SimulationObserver| {
            for line in take_log() {
                observer.logged(at, &line);
                logs.add(at, &line);
            }
        };
        self.observer.begins(manifest);
        let observer: RefCell<&mut dyn SimulationObserver> = RefCell::new(&mut *self.observer);
        let facts = Cell::new(0);
        let memory = Watch::new(self.memory);
        let mut sink = Watched { facts: Recorder::default(), count: &facts, observer: &observer };
        let mut simulation = Simulation::<N, _>::new(setup.simulation(), &mut sink);
        if let Some(input_recorder) = input_recorder {
            simulation.record(input_recorder);
        }
        let mut events = 0;
        let mut pace = Pace::new(&memory);
        let steps = || {
            while simulation.step() {
                take_logs(simulation.now(), &mut **observer.borrow_mut());
                if observer.borrow().is_interrupted() {
                    simulation.interrupt();
                    continue;
                }
                if pace.is_due() {
                    if let Some(used) = memory.reached(facts.get(), || simulation.contents()) {
                        simulation.exhaust(used);
                        continue;
                    }
                    pace.measured(memory.last_used());
                }
                events += 1;
                if events < LOOK_EVERY {
                    continue;
                }
                events = 0;
                let now = simulation.now();
                let moment = SimulationView { now, status: &mut || simulation.status() };
                let continues = observer.borrow_mut().continues(moment);
                if !continues || simulation.stats().events >= self.most_events {
                    simulation.interrupt();
                }
            }
        };
        if let Err(panic) = caught(steps) {
            simulation.panicked(panic);
        }
        let run = simulation.run();
        take_logs(run.ended, &mut **observer.borrow_mut());
        keep_log(false);
        memory.make_room(facts.get());
        self.stats = run.stats;
        let ended = RunEnd {
            outcome: run.outcome,
            added: Vec::new(),
            faults: run.faults,
            effects: Vec::new(),
            pressure: None,
            links: None,
            duration: run.ended.since(Time::ZERO),
            waiting: run.waiting,
            program: None,
        };
        (ended, sink.facts.finish())
    }
}

/// Decides when the memory is measured: every thousand events, but more often at the start of a run and while memory
/// grows quickly, because the tasks of a program may have large data.
struct Pace {
    /// The number of events until the next measurement.
    left: u32,
    /// The number of events from the last measurement to the next.
    every: u32,
    /// The last measurement, in bytes.
    used: u64,
    /// The growth in bytes between two measurements beyond which memory counts as growing quickly.
    fast: u64,
}

impl Pace {
    /// The fraction of the limit, as a divisor, beyond which growth between two measurements counts as quick.
    const GROWTH: u64 = 32;

    fn new(memory: &Watch) -> Pace {
        Pace { left: 0, every: 0, used: memory.last_used(), fast: memory.limit() / Pace::GROWTH }
    }

    /// Counts an event. Returns whether the memory has to be measured after it.
    fn is_due(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Records a measurement, and schedules the next one.
    fn measured(&mut self, used: u64) {
        let is_fast = used.saturating_sub(self.used) > self.fast;
        self.every = if is_fast { 1 } else { (self.every * 2).clamp(1, LOOK_EVERY) };
        (self.left, self.used) = (self.every, used);
    }
}

impl Backend for Simulator<'_> {
    type Error = BundleError;

    fn kind(&self) -> BackendKind {
        BackendKind::Simulate
    }

    fn run<N: Hosted>(&mut self, begun: PreparedRun<'_, N>) -> Result<(RunEnd, Option<Trace>), BundleError> {
        let PreparedRun { setup, manifest, bundle } = begun;
        let mut input_recorder = bundle.records_inputs().then(|| InputRecorder::new(bundle.clone()));
        let mut logs = Logs::default();
        let (ended, trace) = self.play(setup, manifest, input_recorder.as_mut(), &mut logs);
        logs.write(bundle, manifest)?;
        input_recorder.map_or(Ok(()), InputRecorder::finish)?;
        Ok((ended, Some(trace)))
    }

    fn expected(&mut self, compute: ComputeExpected) -> Option<Option<Expected>> {
        self.observer.expected(compute)
    }
}

/// Keeps all facts, and passes them to the observer.
struct Watched<'a, 'o> {
    facts: Recorder,
    count: &'a Cell<u64>,
    observer: &'a RefCell<&'o mut dyn SimulationObserver>,
}

impl Sink for Watched<'_, '_> {
    fn record(&mut self, record: Record) {
        self.observer.borrow_mut().recorded(&record);
        self.count.update(|it| it + 1);
        self.facts.record(record);
    }
}
