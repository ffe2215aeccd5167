//! The interface of backends, which execute runs.

use faultline_catalog::{Hosted, Setup};
use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{PlannedFault, ProcessId, Span};
use faultline_trace::manifest::{BackendKind, EffectEntry, Expected, LinkEntry, Pressure};
use faultline_trace::{Bundle, Hash, Manifest, Trace};

/// Carries out one run. This crate implements it for virtual time; other crates implement it for real processes and for
/// pods.
pub trait Backend {
    /// The reason why a run could not be carried out.
    type Error;

    /// Returns the kind of backend that the manifest names.
    fn kind(&self) -> BackendKind;

    /// Runs a federation to its end. Returns how the run ended, and its trace; the trace is `None` if the
    /// backend has written the facts into the bundle.
    ///
    /// # Errors
    ///
    /// Fails if the run could not be carried out.
    fn run<N: Hosted>(&mut self, begun: PreparedRun<'_, N>) -> Result<(RunEnd, Option<Trace>), Self::Error>;

    /// Computes the expected results of a run that has ended. Returns `None` if the user interrupts the
    /// computation, which can take as long as the application's own computation. By default, the computation
    /// cannot be interrupted.
    fn expected(&mut self, compute: ComputeExpected) -> Option<Option<Expected>> {
        Some(compute())
    }
}

/// A computation of the expected results of a run; its result is `None` for an application without a sequential
/// reference.
pub type ComputeExpected = Box<dyn FnOnce() -> Option<Expected> + Send>;

/// A run that is about to be carried out. Its manifest has already been written.
#[derive(Debug)]
pub struct PreparedRun<'a, N: Hosted> {
    /// The configuration of the federation's processes and drivers.
    pub setup: &'a Setup<N>,
    /// The manifest, which does not describe the end of the run yet.
    pub manifest: &'a Manifest,
    /// The bundle of the run.
    pub bundle: &'a Bundle,
}

/// How a run ended, before it has been judged.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    /// The outcome of the run.
    pub outcome: Outcome,
    /// Faults that were added to the plan during the run.
    pub added: Vec<PlannedFault>,
    /// The state of each fault of the plan at the end, including added ones.
    pub faults: Vec<FaultAccount>,
    /// The times at which faults took effect; empty in virtual time.
    pub effects: Vec<EffectEntry>,
    /// How busy the processors of this machine were; `None` if they were not observed.
    pub pressure: Option<Pressure>,
    /// The links with their measurements; `None` if none was measured.
    pub links: Option<Vec<LinkEntry>>,
    /// The duration of the run, from its start to its end.
    pub duration: Span,
    /// In virtual time, if the deadline was exceeded: the ranks whose application waited for a message.
    pub waiting: Vec<ProcessId>,
    /// The digest of the program that executed the processes, if it is known.
    pub program: Option<Hash>,
}

impl RunEnd {
    /// Adds the end of the run to its manifest.
    pub(crate) fn complete(self, manifest: &mut Manifest) {
        let RunEnd { outcome, added, faults, effects, pressure, links, duration, waiting, program } = self;
        manifest.outcome = Some(outcome);
        manifest.plan.extend(added);
        manifest.faults = faults;
        manifest.effects = effects;
        manifest.pressure = pressure;
        manifest.duration = duration;
        manifest.waiting = waiting;
        manifest.program = program;
        if let Some(links) = links {
            manifest.links = links;
        }
    }
}
