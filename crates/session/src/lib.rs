//! One judged run: from a federation to its record, and from a record to its judgement.
//!
//! Every command that runs a federation does it here, so that the same federation with the same seed has the same
//! manifest and the same judgement whichever command asked for it:
//!
//! 1. [`Session::draft`] draws up the manifest of a run that has not begun.
//! 2. A [`Backend`] carries the run out. [`Simulator`] is one; real processes and pods are the caller's.
//! 3. The manifest is completed with how the run ended ([`Ended`]), which gives an [`Unjudged`] record.
//! 4. [`Unjudged::judge`] judges it. A record that is read back ([`Unjudged::read`]) goes the same way.
//!
//! Nothing here reads a clock or starts a process, and nothing depends on the runtime of real processes.
//!
//! | module | holds |
//! | --- | --- |
//! | `backend` | what carries a run out |
//! | `recording` | what came of it, before and after its judgement |
//! | `simulator` | the backend in virtual time, and what watches it |
//! | `tapes` | the record of what simulated processes are given |

mod backend;
mod recording;
mod simulator;
mod tapes;

use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_catalog::{Defect, Hosted, Setup, SetupError, Visitor, manifest, with_setup, with_valid};
use faultline_trace::manifest::{Backend as BackendKind, Expected};
use faultline_trace::{Bundle, BundleError, Manifest};

pub use backend::{Backend, Begun, Ended};
pub use recording::{Recording, Unjudged};
pub use simulator::{Moment, Observer, Simulator};

/// What is to be run: a federation with a seed, and whatever else decides the run.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    federation: &'a Federation,
    text: &'a str,
    seed: Option<u64>,
    started: SystemTime,
    /// The federation is known to be valid; the defect that its protocol is to have.
    trusted: Option<Option<Defect>>,
    records_inputs: bool,
    resumed: Option<&'a Manifest>,
}

/// Why there is no record of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The federation cannot be set up; nothing was written.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The record cannot be written or read.
    #[error(transparent)]
    Record(BundleError),
    /// The backend gave the run up.
    #[error("{0}")]
    Backend(E),
}

impl<'a> Session<'a> {
    /// A run of `federation` with the federation's own seed, at no time in particular.
    pub fn new(federation: &'a Federation) -> Session<'a> {
        Session {
            federation,
            text: "",
            seed: None,
            started: UNIX_EPOCH,
            trusted: None,
            records_inputs: false,
            resumed: None,
        }
    }

    /// With this seed instead of the federation's own.
    #[must_use]
    pub fn seed(self, seed: u64) -> Session<'a> {
        Session { seed: Some(seed), ..self }
    }

    /// `text` is what the federation was read from, and `started` is now: both become part of the manifest.
    #[must_use]
    pub fn of_text(self, text: &'a str, started: SystemTime) -> Session<'a> {
        Session { text, started, ..self }
    }

    /// The federation is known to be valid, and is not validated again; its protocol gets this defect.
    #[must_use]
    pub fn trusted(self, defect: Option<Defect>) -> Session<'a> {
        Session { trusted: Some(defect), ..self }
    }

    /// Records what processes are given as well, where the backend can. Has an effect on [`Session::record`] only.
    #[must_use]
    pub fn with_inputs(self, records_inputs: bool) -> Session<'a> {
        Session { records_inputs, ..self }
    }

    /// Goes on with a run whose manifest was drawn up and written before.
    #[must_use]
    pub fn resumed(self, manifest: Option<&'a Manifest>) -> Session<'a> {
        Session { resumed: manifest, ..self }
    }

    /// The manifest of the run before it begins. A function of the federation, the seed and the backend: drawn up again
    /// from the `federation.yaml`, the seed and the backend of a record, it is the one that the run began with.
    pub fn draft(&self, backend: BackendKind) -> Result<Manifest, SetupError> {
        self.set_up(Draft { session: self, backend })
    }

    /// The results of the run if nothing fails; `None` for an application whose results are an accident of timing. A
    /// function of the federation and the seed. May take as long as the application computes, modelled time aside.
    pub fn expected(&self) -> Result<Option<Expected>, SetupError> {
        self.set_up(Reference)
    }

    /// Runs the federation in virtual time. Nothing is written.
    pub fn simulate(&self, simulator: &mut Simulator<'_>) -> Result<Unjudged, SetupError> {
        self.set_up(InMemory { session: self, simulator })
    }

    /// [`Session::simulate`] for a setup that no federation describes in full: a protocol or an application of one's own.
    /// `expected` gives the results of a run in which nothing fails.
    pub fn simulate_setup<N: Hosted>(
        &self,
        setup: &Setup<N>,
        expected: impl FnOnce() -> Option<Expected>,
        simulator: &mut Simulator<'_>,
    ) -> Unjudged {
        let mut manifest = self.draft_of(setup, BackendKind::Simulate);
        let (ended, trace) = simulator.play(setup, &manifest, None);
        ended.complete(&mut manifest);
        manifest.expected = expected();
        Unjudged { manifest, trace }
    }

    /// Has `backend` run the federation, with the record in `bundle`, which holds no run yet unless this one is resumed.
    pub fn record<B: Backend>(
        &self,
        bundle: &Bundle,
        backend: &mut B,
    ) -> Result<Unjudged, RunError<B::Error>> {
        self.set_up(InBundle { session: self, bundle, backend })?
    }

    /// [`Session::record`] for a setup that is at hand.
    pub fn record_setup<N: Hosted, B: Backend>(
        &self,
        setup: &Setup<N>,
        bundle: &Bundle,
        backend: &mut B,
    ) -> Result<Unjudged, RunError<B::Error>> {
        let mut manifest = match self.resumed {
            Some(manifest) => manifest.clone(),
            None => {
                let draft = self.draft_of(setup, backend.kind());
                bundle.write_manifest(&draft).map_err(RunError::Record)?;
                if self.records_inputs {
                    bundle.record_inputs().map_err(RunError::Record)?;
                }
                draft
            }
        };
        let begun = Begun { setup, manifest: &manifest, bundle };
        let (ended, trace) = backend.run(begun).map_err(RunError::Backend)?;
        if let Some(trace) = &trace {
            bundle.write_trace(trace).map_err(RunError::Record)?;
        }
        ended.complete(&mut manifest);
        manifest.expected = manifest::expected(setup);
        bundle.write_manifest(&manifest).map_err(RunError::Record)?;
        match trace {
            // In memory it is complete by construction.
            Some(trace) => Ok(Unjudged { manifest, trace }),
            None => {
                let trace = bundle.read_trace().map_err(RunError::Record)?;
                Ok(Unjudged { manifest, trace }.examined())
            }
        }
    }

    fn draft_of<N: Hosted>(&self, setup: &Setup<N>, backend: BackendKind) -> Manifest {
        manifest::draft(self.federation, self.text, setup, backend, self.started)
    }

    fn set_up<V: Visitor>(&self, visitor: V) -> Result<V::Output, SetupError> {
        match self.trusted {
            Some(defect) => with_valid(self.federation, self.seed, defect, visitor),
            None => with_setup(self.federation, self.seed, visitor),
        }
    }
}

/// Draws up the manifest, whatever the protocol.
struct Draft<'a> {
    session: &'a Session<'a>,
    backend: BackendKind,
}

impl Visitor for Draft<'_> {
    type Output = Manifest;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Manifest {
        self.session.draft_of(&setup, self.backend)
    }
}

/// Computes the results of a run without failures.
struct Reference;

impl Visitor for Reference {
    type Output = Option<Expected>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Option<Expected> {
        manifest::expected(&setup)
    }
}

/// Simulates without a record on disk.
struct InMemory<'a, 's> {
    session: &'a Session<'a>,
    simulator: &'a mut Simulator<'s>,
}

impl Visitor for InMemory<'_, '_> {
    type Output = Unjudged;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Unjudged {
        self.session.simulate_setup(&setup, || manifest::expected(&setup), self.simulator)
    }
}

/// Runs on a backend, with a record on disk.
struct InBundle<'a, B> {
    session: &'a Session<'a>,
    bundle: &'a Bundle,
    backend: &'a mut B,
}

impl<B: Backend> Visitor for InBundle<'_, B> {
    type Output = Result<Unjudged, RunError<B::Error>>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        self.session.record_setup(&setup, self.bundle, self.backend)
    }
}
