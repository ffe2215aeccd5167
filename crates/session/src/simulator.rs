//! The backend in virtual time.

use std::cell::RefCell;

use faultline_catalog::{Hosted, Setup};
use faultline_core::Time;
use faultline_sim::{Simulation, Stats};
use faultline_supervisor::Status;
use faultline_trace::manifest::Backend as Kind;
use faultline_trace::{BundleError, Manifest, Record, Recorder, Sink, Trace};

use crate::backend::{Backend, Begun, Ended};
use crate::tapes::Tapes;

/// Events between two times that an observer is asked whether to go on.
const LOOK_EVERY: u32 = 1000;

/// Watches a simulation while it goes on.
pub trait Observer {
    /// The run begins. The manifest says nothing of how it ends.
    fn begins(&mut self, manifest: &Manifest) {
        let _ = manifest;
    }

    /// A fact was stated. Facts come in the order of virtual time.
    fn stated(&mut self, record: &Record) {
        let _ = record;
    }

    /// Called every thousand events; false interrupts the run.
    fn goes_on(&mut self, moment: Moment<'_>) -> bool {
        let _ = moment;
        true
    }
}

/// Watches nothing.
impl Observer for () {}

/// A simulation between two events.
pub struct Moment<'a> {
    /// The virtual time.
    pub now: Time,
    status: &'a mut dyn FnMut() -> Status,
}

impl Moment<'_> {
    /// The federation at a glance; takes time to draw up.
    pub fn status(&mut self) -> Status {
        (self.status)()
    }
}

/// Runs federations in virtual time, in this process.
pub struct Simulator<'a> {
    observer: &'a mut dyn Observer,
    most_events: u64,
    stats: Stats,
}

impl<'a> Simulator<'a> {
    /// A simulator whose runs `observer` watches.
    pub fn new(observer: &'a mut dyn Observer) -> Simulator<'a> {
        Simulator { observer, most_events: u64::MAX, stats: Stats::default() }
    }

    /// Interrupts a run after this many events, a multiple of 1000.
    #[must_use]
    pub fn at_most(self, events: u64) -> Simulator<'a> {
        Simulator { most_events: events, ..self }
    }

    /// What the last run counted that no fact states.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Runs a federation to its end.
    pub(crate) fn play<N: Hosted>(
        &mut self,
        setup: &Setup<N>,
        manifest: &Manifest,
        tapes: Option<&mut Tapes>,
    ) -> (Ended, Trace) {
        self.observer.begins(manifest);
        let observer: RefCell<&mut dyn Observer> = RefCell::new(&mut *self.observer);
        let mut sink = Watched { facts: Recorder::default(), observer: &observer };
        let mut simulation = Simulation::<N, _>::new(setup.simulation(), &mut sink);
        if let Some(tapes) = tapes {
            simulation.record(tapes);
        }
        while (0..LOOK_EVERY).all(|_| simulation.step()) {
            let now = simulation.now();
            let moment = Moment { now, status: &mut || simulation.status() };
            let goes_on = observer.borrow_mut().goes_on(moment);
            if !goes_on || simulation.stats().events >= self.most_events {
                simulation.interrupt();
            }
        }
        let run = simulation.run();
        self.stats = run.stats;
        let ended = Ended {
            outcome: run.outcome,
            added: Vec::new(),
            faults: run.faults,
            links: None,
            duration: run.ended.since(Time::ZERO),
        };
        (ended, sink.facts.finish())
    }
}

impl Backend for Simulator<'_> {
    type Error = BundleError;

    fn kind(&self) -> Kind {
        Kind::Simulate
    }

    fn run<N: Hosted>(&mut self, begun: Begun<'_, N>) -> Result<(Ended, Option<Trace>), BundleError> {
        let Begun { setup, manifest, bundle } = begun;
        let mut tapes = bundle.records_inputs().then(|| Tapes::new(bundle.clone()));
        let (ended, trace) = self.play(setup, manifest, tapes.as_mut());
        tapes.map_or(Ok(()), Tapes::finish)?;
        Ok((ended, Some(trace)))
    }
}

/// Keeps every fact, and shows it to the observer.
struct Watched<'a, 'o> {
    facts: Recorder,
    observer: &'a RefCell<&'o mut dyn Observer>,
}

impl Sink for Watched<'_, '_> {
    fn record(&mut self, record: Record) {
        self.observer.borrow_mut().stated(&record);
        self.facts.record(record);
    }
}
