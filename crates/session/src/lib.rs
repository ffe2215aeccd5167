//! One judged run: from a federation to its record, and from a record to its judgement.
//!
//! Every command that runs a federation uses this crate. The manifest of a run and, for a given strictness, its
//! judgement therefore do not depend on the command:
//!
//! 1. [`Session::draft`] drafts the manifest of a run that has not started.
//! 2. A [`Backend`] carries out the run. [`Simulator`] is one; the caller supplies those for real processes and pods.
//! 3. The manifest is completed with the end of the run ([`RunEnd`]). The result is an [`UnjudgedRecording`].
//! 4. [`UnjudgedRecording::judge`] judges it. A record that is read back ([`UnjudgedRecording::read`]) is judged in
//!    the same way.
//!
//! This crate reads no clock, starts no process, and does not depend on the runtime of real processes.
//!
//! | module | contents |
//! | --- | --- |
//! | `backend` | the interface of backends, which execute runs |
//! | `events` | runs that are imported from events of other systems |
//! | `memory` | the memory limit of simulated runs |
//! | `reading` | reading a record back |
//! | `recording` | the record of a run, before and after its judgement |
//! | `repetition` | comparison of a recorded run with a repetition in virtual time |
//! | `simulator` | the backend in virtual time, and its observers |
//! | `input_recorder` | recording the inputs of simulated processes |

mod backend;
mod events;
mod input_recorder;
mod logs;
mod memory;
mod reading;
mod recording;
mod repetition;
mod simulator;

use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_catalog::{
    Defect, Hosted, Setup, SetupError, Visitor, check_virtual_time, manifest, prepare_programs, with_setup,
    with_valid,
};
use faultline_core::fault::Outcome;
use faultline_core::{Digest, Fact, ProcessId};
use faultline_trace::manifest::{BackendKind, Expected};
use faultline_trace::{Bundle, BundleError, Manifest};

pub use faultline_supervisor::{MemoryBound, panics};

pub use backend::{Backend, ComputeExpected, PreparedRun, RunEnd};
pub use events::Events;
use logs::Logs;
use memory::check_program;
pub use memory::{BYTES_PER_FACT, bound_memory, memory_bound, most_facts};
pub use recording::{Recording, UnjudgedRecording};
pub use repetition::RepetitionError;
pub use simulator::{SimulationObserver, SimulationView, Simulator};

/// A run to be carried out: a federation with a seed, and everything else that determines the run.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    federation: &'a Federation,
    text: &'a str,
    seed: Option<u64>,
    started: SystemTime,
    /// `Some` if the federation is known to be valid. Contains the defect to enable in its protocol, if any.
    trusted: Option<Option<Defect>>,
    records_inputs: bool,
    needs_no_faults: bool,
    resumed: Option<&'a Manifest>,
}

/// The reason why a run has no record.
#[derive(Debug, thiserror::Error)]
pub enum SessionError<E> {
    /// The federation cannot be set up. Nothing was written.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The record cannot be written or read.
    #[error(transparent)]
    Record(BundleError),
    /// The backend could not carry out the run.
    #[error("{0}")]
    Backend(E),
}

impl<'a> Session<'a> {
    /// Creates a session for `federation` with the federation's own seed and without a start time.
    pub fn new(federation: &'a Federation) -> Session<'a> {
        Session {
            federation,
            text: "",
            seed: None,
            started: UNIX_EPOCH,
            trusted: None,
            records_inputs: false,
            needs_no_faults: false,
            resumed: None,
        }
    }

    /// Uses this seed instead of the federation's own.
    #[must_use]
    pub fn seed(self, seed: u64) -> Session<'a> {
        Session { seed: Some(seed), ..self }
    }

    /// Sets the text from which the federation was read, and the start time of the run. Both become part of the
    /// manifest.
    #[must_use]
    pub fn of_text(self, text: &'a str, started: SystemTime) -> Session<'a> {
        Session { text, started, ..self }
    }

    /// Skips the validation of a federation that is known to be valid, and enables `defect` in its protocol, if it is
    /// `Some`.
    #[must_use]
    pub fn trusted(self, defect: Option<Defect>) -> Session<'a> {
        Session { trusted: Some(defect), ..self }
    }

    /// Sets whether the inputs of processes are also recorded, if the backend supports this. Affects only runs that are
    /// recorded in a bundle.
    #[must_use]
    pub fn with_inputs(self, records_inputs: bool) -> Session<'a> {
        Session { records_inputs, ..self }
    }

    /// Judges a run whose faults were drawn with the federation, such as that of a search, or that was planned for another
    /// protocol. None of them has to occur.
    #[must_use]
    pub fn needing_no_faults(self) -> Session<'a> {
        Session { needs_no_faults: true, ..self }
    }

    /// Resumes the run that `manifest` describes; `None` begins a new run.
    #[must_use]
    pub fn resumed(self, manifest: Option<&'a Manifest>) -> Session<'a> {
        Session { resumed: manifest, ..self }
    }

    /// Returns the manifest of the run before it begins. Apart from what [`Session::of_text`] sets, it depends only on
    /// the federation, the seed and the backend: drafted again from the `federation.yaml`, seed and backend of a
    /// record, it equals the manifest with which the run began.
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up.
    pub fn draft(&self, backend: BackendKind) -> Result<Manifest, SetupError> {
        self.set_up(Draft { session: self, backend })
    }

    /// Returns the results of a run without faults; `None` for an application without a sequential reference. Depends
    /// only on the federation and the seed. Computing them can take as long as the application's own computation,
    /// excluding modelled time.
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up.
    pub fn expected(&self) -> Result<Option<Expected>, SetupError> {
        self.set_up(Reference)
    }

    /// Runs the federation in virtual time, without writing anything.
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up.
    pub fn simulate(&self, simulator: &mut Simulator<'_>) -> Result<UnjudgedRecording, SetupError> {
        check_virtual_time(self.federation)?;
        self.set_up_run(simulator.memory(), InMemory { session: self, simulator })
    }

    /// Works like [`Session::simulate`], but for a setup that no federation file fully describes, such as one with a
    /// user-defined protocol or application. `expected` returns the results of a run without faults, if they are
    /// known.
    pub fn simulate_setup<N: Hosted>(
        &self,
        setup: &Setup<N>,
        expected: impl Fn() -> Option<Expected>,
        simulator: &mut Simulator<'_>,
    ) -> UnjudgedRecording {
        let draft = self.draft_of(setup, BackendKind::Simulate);
        let (ended, trace) = simulator.play(setup, &draft, None, &mut Logs::default());
        let mut run = UnjudgedRecording::of_ended(draft, ended, trace);
        if compares_results(&run.manifest) {
            run.manifest.expected = expected();
        }
        if self.must_repeat_expected(&run) {
            run.manifest.compare_expected_with(expected());
        }
        run
    }

    /// Runs the federation on `backend`, and writes the record into `bundle`. The bundle must be empty unless the
    /// session resumes a run.
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up, the record cannot be written, or the backend fails.
    pub fn record<B: Backend>(
        &self,
        bundle: &Bundle,
        backend: &mut B,
    ) -> Result<UnjudgedRecording, SessionError<B::Error>> {
        if backend.kind() == BackendKind::Simulate {
            check_virtual_time(self.federation)?;
        }
        self.set_up_run(memory_bound(), InBundle { session: self, bundle, backend })?
    }

    /// Works like [`Session::record`], but in virtual time. This function is not generic, so the simulator of each
    /// protocol is compiled once with this crate rather than with each caller.
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up, or the record cannot be written.
    pub fn record_simulated(
        &self,
        bundle: &Bundle,
        simulator: &mut Simulator<'_>,
    ) -> Result<UnjudgedRecording, SessionError<BundleError>> {
        self.record(bundle, simulator)
    }

    /// Works like [`Session::record`], but for an existing setup.
    ///
    /// # Errors
    ///
    /// Fails if the record cannot be written, or the backend fails.
    pub fn record_setup<N: Hosted, B: Backend>(
        &self,
        setup: &Setup<N>,
        bundle: &Bundle,
        backend: &mut B,
    ) -> Result<UnjudgedRecording, SessionError<B::Error>> {
        let mut manifest = match self.resumed {
            Some(manifest) => manifest.clone(),
            None => {
                let draft = self.draft_of(setup, backend.kind());
                bundle.write_manifest(&draft).map_err(SessionError::Record)?;
                if self.records_inputs {
                    bundle.record_inputs().map_err(SessionError::Record)?;
                }
                draft
            }
        };
        let begun = PreparedRun { setup, manifest: &manifest, bundle };
        let (ended, trace) = backend.run(begun).map_err(SessionError::Backend)?;
        if let Some(trace) = &trace {
            bundle.write_trace(trace).map_err(SessionError::Record)?;
        }
        ended.complete(&mut manifest);
        let mut expected = || {
            let setup = setup.clone();
            backend.expected(Box::new(move || manifest::expected(&setup)))
        };
        if compares_results(&manifest) {
            match expected() {
                Some(expected) => manifest.expected = expected,
                None => manifest.outcome = Some(Outcome::Interrupted),
            }
        }
        bundle.write_manifest(&manifest).map_err(SessionError::Record)?;
        let mut run = match trace {
            Some(trace) => UnjudgedRecording::in_memory(manifest, trace),
            None => {
                UnjudgedRecording::read_back(bundle, manifest, most_facts()).map_err(SessionError::Record)?
            }
        };
        if self.must_repeat_expected(&run)
            && let Some(again) = expected()
            && run.manifest.compare_expected_with(again)
        {
            bundle.write_manifest(&run.manifest).map_err(SessionError::Record)?;
        }
        Ok(run)
    }

    /// Returns whether the expected results must be computed again before the run is judged: if the application is a
    /// program and its results differ from them, the program may not be deterministic.
    fn must_repeat_expected(&self, run: &UnjudgedRecording) -> bool {
        let Some(expected) = &run.manifest.expected else { return false };
        let result = |fact: &Fact| match fact {
            Fact::Finished(it) => Some(it.1),
            _ => None,
        };
        let differs = |&(rank, digest): &(ProcessId, Digest)| {
            let results =
                run.trace.lives(rank).flat_map(|(_, stream)| stream).filter_map(|(_, it)| result(it));
            results.into_iter().any(|it| it != digest)
        };
        self.federation.spec.application.program().is_some() && expected.digests.iter().any(differs)
    }

    /// Works like [`Session::draft`], but for an existing setup.
    pub fn draft_of<N: Hosted>(&self, setup: &Setup<N>, backend: BackendKind) -> Manifest {
        let mut draft = manifest::draft(self.federation, self.text, setup, backend, self.started);
        if self.needs_no_faults {
            draft.drawn = draft.plan.iter().map(|it| it.no).collect();
            draft.has_random_faults = false;
        }
        draft
    }

    /// Sets up a run, after checking that the federation's task-based program fits in the memory limit, and that the
    /// program that is its protocol can be started, if it has one.
    fn set_up_run<V: Visitor>(
        &self,
        memory: Option<MemoryBound>,
        visitor: V,
    ) -> Result<V::Output, SetupError> {
        check_program(self.federation, memory)?;
        prepare_programs(self.federation)?;
        self.set_up(visitor)
    }

    fn set_up<V: Visitor>(&self, visitor: V) -> Result<V::Output, SetupError> {
        match self.trusted {
            Some(defect) => with_valid(self.federation, self.seed, defect, visitor),
            None => with_setup(self.federation, self.seed, visitor),
        }
    }
}

/// Returns whether the results of a run that has just ended may be compared with expected ones. If the code of a process
/// panicked, computing expected results could panic as well.
fn compares_results(manifest: &Manifest) -> bool {
    !matches!(manifest.outcome, Some(Outcome::Interrupted | Outcome::Panicked(_)))
}

/// Drafts the manifest, for any protocol.
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

/// Computes the results of a run without faults, for any protocol.
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
    type Output = UnjudgedRecording;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> UnjudgedRecording {
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
    type Output = Result<UnjudgedRecording, SessionError<B::Error>>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        self.session.record_setup(&setup, self.bundle, self.backend)
    }
}
