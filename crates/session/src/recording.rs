//! What came of a run, before and after its judgement.

use faultline_catalog::{Rederived, rederive};
use faultline_checker::{Account, Context, History, Judgement, contradictions, judge_history};
use faultline_trace::{Bundle, BundleError, Flaw, FlawKind, Manifest, Trace};

/// The record of a run that nobody has judged yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unjudged {
    /// What the record says of the run beside the facts.
    pub manifest: Manifest,
    /// The facts.
    pub trace: Trace,
}

/// The record of a run with its judgement.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the record says of the run beside the facts.
    pub manifest: Manifest,
    /// The facts.
    pub trace: Trace,
    /// What the checker says.
    pub judgement: Judgement,
}

impl Unjudged {
    /// The record in a bundle. Of a run that was cut short, what its facts tell of its end. What does not follow from the
    /// federation file of the record is derived from it, and becomes a flaw of the trace.
    ///
    /// Takes as long as the application computes, modelled time aside.
    pub fn read(bundle: &Bundle) -> Result<Unjudged, BundleError> {
        let recorded = bundle.read_manifest()?;
        let mut trace = bundle.read_trace()?;
        let Rederived { mut manifest, doubts } = rederive(recorded, &trace);
        trace.flaws.extend(contradicted(doubts));
        manifest.fill_in(&trace);
        Ok(Unjudged { manifest, trace }.examined())
    }

    /// The same run, with what its facts demand of each other in vain among the flaws of its trace.
    pub(crate) fn examined(mut self) -> Unjudged {
        let context = Context::from_manifest(&self.manifest);
        let found = contradictions(&History::new(&self.trace, &context));
        self.trace.flaws.extend(contradicted(found));
        self
    }

    /// Writes the record into a bundle that holds no facts.
    pub fn write(&self, bundle: &Bundle) -> Result<(), BundleError> {
        // The manifest says how much there is of the facts.
        bundle.write_trace(&self.trace)?;
        bundle.write_manifest(&self.manifest)
    }

    /// Judges the run.
    pub fn judge(self) -> Recording {
        self.judge_and(|_| ()).0
    }

    /// Judges the run, and reads something else from its history, which is put together once.
    pub fn judge_and<T>(self, read: impl FnOnce(&History<'_>) -> T) -> (Recording, T) {
        let Unjudged { manifest, trace } = self;
        let context = Context::from_manifest(&manifest);
        let history = History::new(&trace, &context);
        let judgement = judge_history(&history);
        let read = read(&history);
        drop(history);
        (Recording { manifest, trace, judgement }, read)
    }
}

fn contradicted(sentences: Vec<String>) -> impl Iterator<Item = Flaw> {
    sentences.into_iter().map(|it| Flaw { stream: None, kind: FlawKind::Contradiction(it) })
}

impl Recording {
    /// Reads and judges the record in a bundle.
    pub fn read(bundle: &Bundle) -> Result<Recording, BundleError> {
        Ok(Unjudged::read(bundle)?.judge())
    }

    /// What the run cost, in numbers.
    pub fn account(&self) -> Account {
        Account::of(&History::new(&self.trace, &Context::from_manifest(&self.manifest)))
    }
}
