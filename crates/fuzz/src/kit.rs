//! The conformance kit for authors of protocols: tests for any implementation of
//! [`Protocol`]. `docs/protocols.md` is its guide.
//!
//! The kit runs the protocol with random federations, applications and faults on the simulator, and lets the checker
//! judge each run. The protocol needs no entry in the resource or the catalog.

use std::any::type_name;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use faultline_api::Federation;
use faultline_api::resource::{Custom, ProtocolSpec, StorageKind};
use faultline_catalog::custom::add_protocol;
use faultline_catalog::{CustomProtocol, MessagesSetup, SetupError, manifest};
use faultline_checker::{Judgement, Property};
use faultline_core::{Promises, Protocol};
use faultline_report::diagram::{Diagram, Limits, svg};
use faultline_report::transcript::{text, transcript};
use faultline_report::{DisplayNames, Timeline};
use faultline_session::{Recording, UnjudgedRecording};
use faultline_trace::describe::describe;
use faultline_trace::{Bundle, BundleError, Manifest, RunNames, Trace};
use serde_json::Value;

use crate::generate::{federation_promised, federation_under};
use crate::scenario::Scenario;
use crate::shrink::{Steps, shrink_by};
use crate::trial::{self, Trial, UnjudgedRun, is_out_of_memory, violated};

/// A protocol to test, with its parameters. They determine its [promises](Protocol::promises), and therefore how it is
/// judged.
#[derive(Clone, Debug)]
pub struct Candidate<P: Protocol> {
    protocol: Parameterised<P>,
    /// Whether no fault loses or corrupts stored data.
    keeps_storage: bool,
}

#[derive(Clone, Debug)]
enum Parameterised<P: Protocol> {
    /// A protocol that files can name.
    Named(Custom),
    /// A protocol that no file can name.
    Unnamed(P::Config),
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// The federation that the seed determines.
    pub federation: Federation,
    /// The checker's judgement.
    pub judgement: Judgement,
    /// Whether a second run was identical to the first. A protocol must not depend on a clock or on random
    /// numbers. Always true if one of the two runs reached the memory limit of the program.
    pub repeats: bool,
    /// The description of the run, without its facts.
    pub manifest: Manifest,
    /// The facts.
    pub trace: Trace,
}

impl SeedResult {
    /// Describes the problem with the run; `None` if there is none.
    pub fn failure(&self) -> Option<String> {
        let violated: Vec<&str> = violated(&self.judgement).map(Property::statement).collect();
        let mut text = match (violated.is_empty(), self.repeats) {
            (true, true) => return None,
            (true, false) => format!("seed {}: a second run reported different facts", self.seed),
            (false, _) => format!("seed {}: violated: {}", self.seed, violated.join("; ")),
        };
        for reason in &self.judgement.reasons {
            let _ = write!(text, "\n  {reason}");
        }
        Some(text)
    }

    /// Writes the run to a directory: its record, `transcript.txt` with one line per event, and the space-time
    /// diagram `diagram.svg`. A program that contains the protocol can judge the record of a [named](Candidate::named)
    /// candidate again. The federation's file of any other candidate has the protocol `none`, because no file can name
    /// its protocol.
    ///
    /// # Errors
    ///
    /// Fails if the directory contains other files or cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), BundleError> {
        let bundle = Bundle::create(dir)?;
        let scenario = Scenario { seed: self.seed, federation: self.federation.clone(), defect: None };
        let federation = scenario.to_yaml();
        let manifest = Manifest { federation, ..self.manifest.clone() };
        UnjudgedRecording { manifest, trace: self.trace.clone() }.write(&bundle)?;
        let names = DisplayNames::new(&self.manifest);
        let history = Timeline::new(&self.trace, &self.manifest);
        let diagram = Diagram::new(&history, &names, Limits::default());
        let picture = svg::render(&diagram, svg::Options { within: true, ..svg::Options::default() });
        let lines = text(&transcript(&self.trace, &history, &names));
        for (name, content) in [("transcript.txt", lines), ("diagram.svg", picture)] {
            let path = dir.join(name);
            std::fs::write(&path, content).map_err(|source| BundleError::Write { path, source })?;
        }
        Ok(())
    }

    /// Returns the facts as text, process by process: a *golden transcript*. Keep it with the protocol's tests, so that
    /// changes in the protocol's behaviour are visible in reviews.
    pub fn transcript(&self) -> String {
        let names = RunNames::default();
        let mut text = String::new();
        for ((process, life), stream) in &self.trace.streams {
            for (at, fact) in stream {
                let sentence = describe(*process, fact, &names);
                let _ = writeln!(text, "{at} {process} ({life}) {sentence:#}");
            }
        }
        text
    }
}

impl<P: Protocol> Candidate<P> {
    fn of(protocol: Parameterised<P>) -> Candidate<P> {
        Candidate { protocol, keeps_storage: false }
    }
}

impl<P: CustomProtocol> Candidate<P> {
    /// Returns a protocol with the parameters of a federation file, and adds it to this program. The records of its
    /// runs can be judged again.
    ///
    /// # Panics
    ///
    /// Panics if the parameters do not serialise to an object, or if the name of the protocol is invalid or is the name
    /// of another protocol of this program.
    pub fn named(parameters: P::Parameters) -> Candidate<P> {
        add_protocol::<P>();
        let Ok(Value::Object(parameters)) = serde_json::to_value(parameters) else {
            panic!("the parameters of `{}` do not serialise to an object", P::NAME)
        };
        Candidate::of(Parameterised::Named(Custom { name: P::NAME.to_owned(), parameters }))
    }
}

impl<P> Candidate<P>
where
    P: Protocol + Send + Sync + 'static,
    P::Config: Send + Sync,
{
    /// Returns a protocol with this configuration, which no federation file can describe.
    pub fn new(config: P::Config) -> Candidate<P> {
        Candidate::of(Parameterised::Unnamed(config))
    }

    /// Omits faults that lose or corrupt stored data, and storage in memory. Under a protocol that keeps no replicas,
    /// such faults make nearly half of the schedules unrecoverable, and these schedules show little.
    #[must_use]
    pub fn keeping_storage(self) -> Candidate<P> {
        Candidate { keeps_storage: true, ..self }
    }

    /// Runs the federation of a seed under the protocol twice, and judges the first run.
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub fn try_seed(&self, seed: u64) -> Result<SeedResult, SetupError> {
        let scenario = Scenario { seed, federation: self.federation(seed), defect: None };
        let played = self.play(&scenario)?;
        let again = self.play(&scenario)?;
        let is_limited = [&played, &again].iter().any(|it| is_out_of_memory(&it.run.manifest));
        let repeats = is_limited || again == played;
        let Recording { manifest, trace, judgement } = played.run.judge();
        Ok(SeedResult { seed, federation: scenario.federation, judgement, repeats, manifest, trace })
    }

    /// Returns the smallest federation found, with a seed under which it violates the first property that
    /// `tried` violates. If `tried` violates none, returns `tried` itself. Takes up to several thousand runs.
    ///
    /// # Errors
    ///
    /// Returns an error if a federation cannot be set up.
    pub fn shrink(&self, tried: &SeedResult) -> Result<SeedResult, SetupError> {
        let Some(property) = violated(&tried.judgement).next() else { return Ok(tried.clone()) };
        let run = |scenario: Scenario| {
            let UnjudgedRun { stats, run } = self.play(&scenario)?;
            let Recording { manifest, trace, judgement } = run.judge();
            Ok(Trial { scenario, stats, manifest, trace, judgement, exchange: Arc::default() })
        };
        let scenario = Scenario { seed: tried.seed, federation: tried.federation.clone(), defect: None };
        let progress = |_, _: &Trial| ControlFlow::Continue(());
        let shrunk = shrink_by(&run, run(scenario)?, property, Steps::default(), progress)?.trial;
        let Trial { scenario: Scenario { seed, federation, .. }, manifest, trace, judgement, .. } = shrunk;
        Ok(SeedResult { seed, federation, judgement, repeats: tried.repeats, manifest, trace })
    }

    /// Runs these seeds in order, and returns the first result with a failure; `None` if no seed fails.
    ///
    /// # Errors
    ///
    /// Returns an error if a federation cannot be set up.
    pub fn first_failure(&self, seeds: std::ops::Range<u64>) -> Result<Option<SeedResult>, SetupError> {
        for seed in seeds {
            let tried = self.try_seed(seed)?;
            if tried.failure().is_some() {
                return Ok(Some(tried));
            }
        }
        Ok(None)
    }

    /// Returns a random federation of the kind used for protocols with this protocol's demand or promises. Its faults
    /// also affect the processes that this protocol needs in addition to the ranks.
    fn federation(&self, seed: u64) -> Federation {
        let mut federation = match &self.protocol {
            Parameterised::Named(custom) => federation_under(seed, ProtocolSpec::Custom(custom.clone())),
            Parameterised::Unnamed(config) => {
                federation_promised(seed, Promises::of::<P>(config), P::extra_processes(config))
            }
        };
        if self.keeps_storage {
            keep_storage(&mut federation);
        }
        federation
    }

    fn play(&self, scenario: &Scenario) -> Result<UnjudgedRun, SetupError> {
        let Parameterised::Unnamed(config) = &self.protocol else { return trial::played(scenario, &mut ()) };
        let Scenario { federation, seed, .. } = scenario;
        let setup = MessagesSetup::<P>::of_own(federation, *seed, config.clone())?;
        let mut no_observer = ();
        let mut simulator = trial::simulator(&mut no_observer);
        let expected = || manifest::expected(&setup);
        let mut run = trial::session(scenario).simulate_setup(&setup, expected, &mut simulator);
        run.manifest.protocol = type_name::<P>().rsplit("::").next().unwrap_or_default().to_owned();
        Ok(UnjudgedRun { stats: simulator.stats().clone(), run })
    }
}

/// Runs a federation once in virtual time, and judges it. The program must contain the federation's protocol.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn run_federation(federation: Federation, seed: u64) -> Result<SeedResult, SetupError> {
    let Trial { scenario, manifest, trace, judgement, .. } =
        trial::run(Scenario { seed, federation, defect: None })?;
    let Scenario { federation, .. } = scenario;
    Ok(SeedResult { seed, federation, judgement, repeats: true, manifest, trace })
}

/// Removes everything that loses or corrupts stored data.
fn keep_storage(federation: &mut Federation) {
    let spec = &mut federation.spec;
    if let Some(storage) = &mut spec.storage {
        storage.kind = StorageKind::Disk;
    }
    spec.faults.retain(|it| it.corrupt_storage.is_none());
    for fault in &mut spec.faults {
        if let Some(crash) = &mut fault.crash {
            crash.storage = None;
        }
        if let Some(loss) = &mut fault.lose_cluster {
            loss.storage = None;
        }
    }
}
