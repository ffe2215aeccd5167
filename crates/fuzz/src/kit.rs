//! The conformance kit for authors of protocols: what a protocol of one's own gets for implementing
//! [`Protocol`](faultline_core::Protocol). `docs/protocols.md` is its guide.
//!
//! The kit runs the protocol under random federations, applications and faults, on the simulator, and has the checker judge
//! each run. The protocol is known to nobody else: it needs no entry in the resource or the catalog.

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

/// A protocol that is to be tried.
#[derive(Clone, Debug)]
pub struct Candidate<P: faultline_core::Protocol> {
    /// Its parameters. They decide what it [promises](faultline_core::Protocol::promises), and so what it is judged by.
    pub config: P::Config,
}

/// What one seed showed.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The seed.
    pub seed: u64,
    /// The federation that it stands for.
    pub federation: Federation,
    /// What the checker says.
    pub judgement: Judgement,
    /// Whether a second run stated the same facts, to the last one: a protocol may not reach a clock or a random number.
    pub repeats: bool,
    /// The facts.
    pub trace: Trace,
}

impl Tried {
    /// What is wrong, if anything.
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

    /// The facts as text, process by process: a *golden transcript*, to be kept beside the protocol's tests, so that a change
    /// of its behaviour is seen in a review.
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
    pub fn try_seed(&self, seed: u64) -> Result<Tried, SetupError> {
        let scenario = Scenario { seed, federation: self.federation(seed), defect: None };
        let played = self.play(&scenario)?;
        let repeats = self.play(&scenario)? == played;
        let Recording { trace, judgement, .. } = played.run.judge();
        Ok(Tried { seed, federation: scenario.federation, judgement, repeats, trace })
    }

    /// The first seed of these with which something is wrong.
    pub fn first_complaint(&self, seeds: std::ops::Range<u64>) -> Result<Option<Tried>, SetupError> {
        for seed in seeds {
            let tried = self.try_seed(seed)?;
            if tried.complaint().is_some() {
                return Ok(Some(tried));
            }
        }
        Ok(None)
    }

    /// A random federation of the kind that protocols with these promises are tried with. The processes that this one needs beside the
    /// ranks die in it, too.
    fn federation(&self, seed: u64) -> Federation {
        let extra = P::extra_processes(&self.config);
        let mut federation = federation_promised(seed, Promises::of::<P>(&self.config), &extra);
        federation.spec.protocol = Asked::None(Unprotected {});
        federation
    }

    fn play(&self, scenario: &Scenario) -> Result<Played, SetupError> {
        let Scenario { federation, seed, .. } = scenario;
        let setup = MessagesSetup::<P>::of_own(federation, *seed, self.config.clone())?;
        let mut nobody = ();
        let mut simulator = trial::simulator(&mut nobody);
        let expected = || manifest::expected(&setup);
        let mut run = trial::session(scenario).simulate_setup(&setup, expected, &mut simulator);
        run.manifest.protocol = type_name::<P>().rsplit("::").next().unwrap_or_default().to_owned();
        Ok(Played { stats: simulator.stats().clone(), run })
    }
}
