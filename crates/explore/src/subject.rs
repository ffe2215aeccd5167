//! A federation that is ready to be explored. Hides the type of its processes, so that the search is compiled once.

use std::time::UNIX_EPOCH;

use faultline_api::Federation;
use faultline_api::resource::Family;
use faultline_catalog::{
    Defect, Hosted, Setup, SetupError, Visitor, manifest, valid_messages, with_valid_program,
};
use faultline_core::Membership;
use faultline_session::Session;
use faultline_trace::Manifest;
use faultline_trace::manifest::BackendKind;

use crate::bounds::Bounds;
use crate::contents::Contents;
use crate::program::{Program, Rank};
use crate::state::{State, Witness};
use crate::tables::Tables;

/// A federation that is ready to be explored.
pub(crate) struct Subject {
    pub(crate) family: Family,
    /// The membership before any process is up.
    membership: Membership,
    /// The draft of every run's manifest.
    pub(crate) draft: Manifest,
    /// Creates empty tables.
    tables: Box<dyn Fn() -> Tables + Send + Sync>,
}

impl Subject {
    /// Sets up a federation. If its processes exchange messages, their application is `program`; otherwise,
    /// they run the federation's own task-based program.
    pub(crate) fn new(
        federation: &Federation,
        program: &Program,
        defect: Option<Defect>,
    ) -> Result<Subject, SetupError> {
        let preparation = Preparation { federation };
        match federation.spec.application.family() {
            Family::Messages => {
                let setup = valid_messages(federation, Some(0), defect)?;
                Ok(preparation.complete(setup.hosting::<Rank>(program.clone())))
            }
            Family::Tasks => with_valid_program(federation, Some(0), defect, preparation),
            Family::System => Err(SetupError::System),
        }
    }

    /// Returns empty tables.
    pub(crate) fn tables(&self) -> Tables {
        (self.tables)()
    }

    /// Returns the state in which every run begins.
    pub(crate) fn begun(&self, bounds: &Bounds, tables: &Tables, sink: &mut impl Witness) -> State {
        State::begun(self.membership.clone(), bounds, tables, sink)
    }
}

struct Preparation<'a> {
    federation: &'a Federation,
}

/// Prepares the exploration of processes that run the federation's own program.
impl Visitor for Preparation<'_> {
    type Output = Subject;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Subject {
        self.complete(setup)
    }
}

impl Preparation<'_> {
    fn complete<N: Hosted>(&self, setup: Setup<N>) -> Subject {
        let text = faultline_api::to_yaml(self.federation);
        let session = Session::new(self.federation).of_text(&text, UNIX_EPOCH);
        let mut draft = session.draft_of(&setup, BackendKind::Simulate);
        draft.expected = manifest::expected(&setup);
        // Faults are choices of the exploration, not part of a plan.
        draft.plan = Vec::new();
        // An exploration may delay any message without limit.
        draft.bounds.iter_mut().for_each(|it| it.delivered_within = None);
        let Setup { process, membership, .. } = setup;
        let tables = Box::new(move || Tables::new(Contents::<N>::new(process.clone())));
        let family = self.federation.spec.application.family();
        Subject { family, membership, draft, tables }
    }
}

#[cfg(test)]
impl Subject {
    /// Sets up clusters of one rank each under a protocol. They send `messages`, or run the smallest task-based
    /// program.
    pub(crate) fn small(protocol: &str, clusters: u32, messages: &str) -> Subject {
        let federation = crate::federation::federation(protocol, clusters, 1).unwrap();
        Subject::new(&federation, &messages.parse().unwrap(), None).unwrap()
    }
}
