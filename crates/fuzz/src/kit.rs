//! The conformance kit for authors of protocols: tests for any implementation of
//! [`Protocol`](faultline_core::Protocol). `docs/protocols.md` is its guide.
//!
//! The kit runs the protocol under random federations, applications and faults on the simulator, and lets the
//! checker judge each run. The protocol needs no entry in the resource or the catalog.

use std::any::type_name;
use std::fmt::Write;

use faultline_api::Federation;
use faultline_api::resource::{Protocol as Asked, Unprotected};
use faultline_catalog::{MessagesSetup, SetupError, manifest};
use faultline_checker::{Judgement, Property};
use faultline_core::Promises;
use faultline_session::Recording;
use faultline_trace::Trace;
use faultline_trace::describe::describe;

use crate::generate::federation_promised;
use crate::scenario::Scenario;
use crate::trial::{self, Played};

/// A protocol to be tested.
#[derive(Clone, Debug)]
pub struct Candidate<P: faultline_core::Protocol> {
    /// The protocol's parameters. They determine what it [promises](faultline_core::Protocol::promises), and
    /// therefore what it is judged by.
    pub config: P::Config,
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The seed.
    pub seed: u64,
    /// The federation that the seed determines.
    pub federation: Federation,
    /// The checker's judgement.
    pub judgement: Judgement,
    /// Whether a second run stated exactly the same facts. A protocol must not depend on a clock or a random
    /// number.
    pub repeats: bool,
    /// The facts.
    pub trace: Trace,
}

impl Tried {
    /// Returns what is wrong, if anything.
    pub fn complaint(&self) -> Option<String> {
        let violated: Vec<Property> = self.judgement.violated().collect();
        let mut text = match (violated.is_empty(), self.repeats) {
            (true, true) => return None,
            (true, false) => format!("seed {}: a second run stated other facts", self.seed),
            (false, _) => format!("seed {}: {violated:?}", self.seed),
        };
        for reason in &self.judgement.reasons {
            let _ = write!(text, "\n  {reason}");
        }
        Some(text)
    }

    /// Returns the facts as text, process by process: a *golden transcript*, to be kept with the protocol's
    /// tests, so that a review shows changes of its behaviour.
    pub fn transcript(&self) -> String {
        let mut text = String::new();
        for ((process, life), stream) in &self.trace.streams {
            for (at, fact) in stream {
                let _ = writeln!(text, "{at} {process} ({life}) {}", describe(fact));
            }
        }
        text
    }
}

impl<P> Candidate<P>
where
    P: faultline_core::Protocol + Send + Sync + 'static,
    P::Config: Send + Sync,
{
    /// Runs the federation of a seed under the protocol, twice, and judges it.
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub fn try_seed(&self, seed: u64) -> Result<Tried, SetupError> {
        let scenario = Scenario { seed, federation: self.federation(seed), defect: None };
        let played = self.play(&scenario)?;
        let repeats = self.play(&scenario)? == played;
        let Recording { trace, judgement, .. } = played.run.judge();
        Ok(Tried { seed, federation: scenario.federation, judgement, repeats, trace })
    }

    /// Returns the first of these seeds with a complaint.
    ///
    /// # Errors
    ///
    /// Returns an error if a federation cannot be set up.
    pub fn first_complaint(&self, seeds: std::ops::Range<u64>) -> Result<Option<Tried>, SetupError> {
        for seed in seeds {
            let tried = self.try_seed(seed)?;
            if tried.complaint().is_some() {
                return Ok(Some(tried));
            }
        }
        Ok(None)
    }

    /// Returns a random federation of the kind used for protocols with these promises. The processes that
    /// this protocol needs besides the ranks fail in it, too.
    fn federation(&self, seed: u64) -> Federation {
        let extra = P::extra_processes(&self.config);
        let mut federation = federation_promised(seed, Promises::of::<P>(&self.config), &extra);
        federation.spec.protocol = Asked::None(Unprotected {});
        federation
    }

    fn play(&self, scenario: &Scenario) -> Result<Played, SetupError> {
        let Scenario { federation, seed, .. } = scenario;
        let setup = MessagesSetup::<P>::of_own(federation, *seed, self.config.clone())?;
        let mut no_observer = ();
        let mut simulator = trial::simulator(&mut no_observer);
        let expected = || manifest::expected(&setup);
        let mut run = trial::session(scenario).simulate_setup(&setup, expected, &mut simulator);
        run.manifest.protocol = type_name::<P>().rsplit("::").next().unwrap_or_default().to_owned();
        Ok(Played { stats: simulator.stats().clone(), run })
    }
}
