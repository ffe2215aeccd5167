//! The record of a run, before and after its judgement.

use std::sync::Arc;

use faultline_api::Federation;
use faultline_checker::{Judgement, Property, Strictness, Verdict, contradiction, examined, judge_history};
use faultline_core::fault::{FaultState, Outcome};
use faultline_history::{Account, Context, History};
use faultline_trace::{Bundle, BundleError, Flaw, FlawKind, Manifest, Trace};

use crate::backend::RunEnd;
use crate::memory::beyond;

/// The record of a run that has not been judged yet.
#[derive(Clone, Debug, PartialEq)]
pub struct UnjudgedRecording {
    /// The description of the run apart from its facts.
    pub manifest: Manifest,
    /// The facts of the run.
    pub trace: Trace,
}

/// The record of a run, with its judgement.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The description of the run apart from its facts.
    pub manifest: Manifest,
    /// The facts of the run.
    pub trace: Trace,
    /// The checker's judgement.
    pub judgement: Judgement,
}

impl UnjudgedRecording {
    /// Returns the record of a run that has just ended, from its draft, its end, and its facts in memory.
    pub fn of_ended(mut manifest: Manifest, end: RunEnd, trace: Trace) -> UnjudgedRecording {
        end.complete(&mut manifest);
        UnjudgedRecording::in_memory(manifest, trace)
    }

    /// Returns the record of a run whose facts were collected in memory. They are examined like those of a record that
    /// is read.
    pub(crate) fn in_memory(manifest: Manifest, mut trace: Trace) -> UnjudgedRecording {
        trace.examine(&manifest);
        UnjudgedRecording { manifest, trace }
    }

    /// Returns what remains of a run with more than `most` facts, which this program cannot judge.
    pub(crate) fn too_large(manifest: Manifest, most: u64) -> UnjudgedRecording {
        let outcome = Some(Outcome::OutOfMemory(Arc::new(beyond(most))));
        UnjudgedRecording { manifest: Manifest { outcome, ..manifest }, trace: Trace::default() }
    }

    /// Returns the flaws of the record, including contradictions between its facts, for commands that do not judge the
    /// run.
    pub fn flaws(&self) -> Vec<Flaw> {
        let context = Context::from_manifest(&self.manifest);
        let found = examined(History::new(&self.trace, &context)).contradictions;
        let found = found.iter().map(|it| contradiction(it, &context)).collect();
        self.trace.flaws.iter().cloned().chain(contradicted(found)).collect()
    }

    /// Writes the record into a bundle that contains no facts yet.
    ///
    /// # Errors
    ///
    /// Fails if the bundle cannot be written.
    pub fn write(&self, bundle: &Bundle) -> Result<(), BundleError> {
        // The manifest lists the facts, so they must be written first.
        bundle.write_trace(&self.trace)?;
        bundle.write_manifest(&self.manifest)
    }

    /// Judges the run by its facts and its manifest. Waste leads only to a remark.
    pub fn judge(self) -> Recording {
        self.judge_as(Strictness::Lenient)
    }

    /// Judges the run with this strictness.
    pub fn judge_as(self, strictness: Strictness) -> Recording {
        self.judge_with(strictness, |_| ()).0
    }

    /// Judges the run, and passes its history to `read`, so that the history is built only once.
    pub fn judge_and<T>(self, read: impl FnOnce(&History<'_>) -> T) -> (Recording, T) {
        self.judge_with(Strictness::Lenient, read)
    }

    fn judge_with<T>(self, strictness: Strictness, read: impl FnOnce(&History<'_>) -> T) -> (Recording, T) {
        let UnjudgedRecording { manifest, mut trace } = self;
        let context = Context::from_manifest(&manifest);
        let history = examined(History::new(&trace, &context));
        let judgement = judge_history(&history, strictness);
        let read = read(&history);
        let found = history.contradictions.iter().map(|it| contradiction(it, &context)).collect();
        drop(history);
        trace.flaws.extend(contradicted(found));
        (Recording { manifest, trace, judgement }, read)
    }
}

pub(crate) fn contradicted(sentences: Vec<String>) -> impl Iterator<Item = Flaw> {
    sentences.into_iter().map(|it| Flaw { stream: None, kind: FlawKind::Contradiction(it) })
}

impl Recording {
    /// Reads and judges the record in a bundle. The verdict on a record with too many facts for this program's [memory
    /// limit](crate::bound_memory) is unknown.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`UnjudgedRecording::read`].
    pub fn read(bundle: &Bundle) -> Result<Recording, BundleError> {
        match UnjudgedRecording::read(bundle) {
            Err(BundleError::TooManyFacts { most, .. }) => {
                Ok(UnjudgedRecording::too_large(bundle.read_manifest()?, most).judge())
            }
            read => Ok(read?.judge()),
        }
    }

    /// Returns whether the verdict is unknown only because no random fault of the federation took effect
    /// before the end. The run's seed is then evidence neither for nor against the federation.
    pub fn is_without_fault(&self, federation: &Federation) -> bool {
        let faults = &federation.spec.faults;
        let mut states = self.manifest.faults.iter().map(|(_, state)| state);
        let mut others =
            self.judgement.findings.iter().filter(|it| it.property != Property::FaultsTookEffect);
        self.judgement.verdict == Verdict::Unknown
            && !faults.is_empty()
            && faults.iter().all(|it| it.repeated().is_some())
            && states.all(|it| *it != FaultState::Effective)
            && self.judgement.of(Property::FaultsTookEffect).unknown.is_some()
            && others.all(|it| it.unknown.is_none())
    }

    /// Returns the costs of the run.
    pub fn account(&self) -> Account {
        Account::of(&History::new(&self.trace, &Context::from_manifest(&self.manifest)))
    }
}
