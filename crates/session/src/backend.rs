//! What carries a run out.

use faultline_catalog::{Hosted, Setup};
use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{PlannedFault, Span};
use faultline_trace::manifest::{Backend as Kind, LinkEntry};
use faultline_trace::{Bundle, Manifest, Trace};

/// Carries out one run. Implemented by whoever can: virtual time here, real processes and pods by their programs.
pub trait Backend {
    /// Why a run was given up.
    type Error;

    /// What the manifest is to say that the run ran on.
    fn kind(&self) -> Kind;

    /// Runs a federation to its end. The facts are those of the trace that is returned; without one, the backend has
    /// written them into the bundle.
    fn run<N: Hosted>(&mut self, begun: Begun<'_, N>) -> Result<(Ended, Option<Trace>), Self::Error>;
}

/// A run whose manifest has been written, and which is to be carried out.
#[derive(Debug)]
pub struct Begun<'a, N: Hosted> {
    /// The federation in values.
    pub setup: &'a Setup<N>,
    /// What the record says of the run so far.
    pub manifest: &'a Manifest,
    /// Where the record is.
    pub bundle: &'a Bundle,
}

/// How a run ended, before anyone has judged it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// Faults that were added to the plan while the run went on.
    pub added: Vec<PlannedFault>,
    /// What became of the plan, added faults included.
    pub faults: Vec<FaultAccount>,
    /// Links with what was measured; `None` where nothing was.
    pub links: Option<Vec<LinkEntry>>,
    /// From the start to the end.
    pub duration: Span,
}

impl Ended {
    /// Says in the manifest of a run how it ended.
    pub(crate) fn complete(self, manifest: &mut Manifest) {
        let Ended { outcome, added, faults, links, duration } = self;
        manifest.outcome = Some(outcome);
        manifest.plan.extend(added);
        manifest.faults = faults;
        manifest.duration = duration;
        if let Some(links) = links {
            manifest.links = links;
        }
    }
}
