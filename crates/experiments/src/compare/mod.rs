//! One federation under several protocols, with the same application, faults and seeds: what each costs and what each
//! saves.
//!
//! Every protocol runs twice with each seed, once as the file says and once without its faults. The measure of all costs
//! is the unprotected run (`none`) of the same seed without faults. Everything is drawn from the facts. Runs are made here in
//! virtual time, or elsewhere by whoever can ([`Runs`]).
//!
//! | module | holds |
//! | --- | --- |
//! | [`protocols`] | which protocols there are, and the file under each |
//! | `costs` | what one run cost |
//! | [`quantity`] | what protocols are compared by |
//! | [`estimate`] | a mean over runs, and how well it is known |
//! | [`tell`] | the comparison as text and as JSON |
//! | [`page`] | the comparison as one page, with a picture |

mod costs;
pub mod estimate;
pub mod page;
pub mod protocols;
pub mod quantity;
pub mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::resource::{Family, Logs, Protocol};
use faultline_api::{Federation, validate};
use faultline_catalog::SetupError;
use faultline_checker::{Judgement, Verdict};
use faultline_core::fault::Outcome;
use faultline_session::{Recording, Session, Simulator};
use faultline_sim::in_order;
use faultline_trace::manifest::Backend;
use serde::Serialize;

use crate::reproduce::Interrupted;

pub(crate) use costs::Bookkeeper;
pub use costs::{Costs, Outage, TaskCosts};
use estimate::Estimate;
use protocols::{under, without_absent, without_faults};
use quantity::Quantity;

/// The protocol that all others are measured against.
const UNPROTECTED: &str = "none";
/// Different reasons that are given for runs that do not pass.
const REASONS: usize = 3;

/// Who makes the runs.
pub enum Runs<'a> {
    /// The simulator, several at a time.
    Simulated,
    /// Somebody else, one after the other: on this backend, a run of this federation with this seed.
    Elsewhere(Backend, &'a mut Maker<'a>),
}

/// Makes one run, with its record and judgement.
pub type Maker<'a> = dyn FnMut(&Federation, u64) -> Result<Made, Interrupted> + 'a;

/// What came of one run, wherever it was made.
#[derive(Clone, Debug)]
pub struct Made {
    completed: bool,
    judgement: Judgement,
    costs: Costs,
}

impl Made {
    /// Of a record. The clocks of its processes have to show the same time, as they do on one machine.
    pub fn of(recording: &Recording) -> Made {
        Made {
            completed: recording.manifest.outcome == Some(Outcome::Completed),
            judgement: recording.judgement.clone(),
            costs: Costs::of(&recording.manifest, &recording.trace),
        }
    }

    /// Of a run in virtual time.
    pub fn simulated(
        federation: &Federation,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<Made, SetupError> {
        let mut books = Bookkeeper::new(interrupted);
        let unjudged = Session::new(federation).seed(seed).simulate(&mut Simulator::new(&mut books))?;
        let Recording { manifest, judgement, .. } = unjudged.judge();
        let completed = manifest.outcome == Some(Outcome::Completed);
        Ok(Made { completed, judgement, costs: books.close() })
    }

    /// Whether it came to its end and passed.
    pub fn is_good(&self) -> bool {
        self.completed && self.judgement.verdict == Verdict::Pass
    }

    /// What the checkers say of it.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// What it cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }
}

/// How protocols are compared.
#[derive(Clone, Debug)]
pub struct Settings {
    /// By name, in the order of the table; each is one of [`Protocol::compared`](faultline_api::resource::Protocol::compared).
    pub protocols: Vec<String>,
    /// The first seed; the others follow.
    pub first_seed: u64,
    /// Runs of each protocol, with and without faults.
    pub seeds: u32,
    /// Simulated runs at the same time.
    pub jobs: NonZero<usize>,
}

/// What came of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The federation's name.
    pub name: String,
    /// What the runs ran on.
    pub backend: Backend,
    /// The application's name.
    pub application: &'static str,
    /// What the application consists of.
    pub family: Family,
    /// Ranks.
    pub ranks: u32,
    /// Clusters.
    pub clusters: usize,
    /// Whether the file has faults; without any there is nothing to tell of runs with faults.
    pub has_faults: bool,
    /// The first seed.
    pub first_seed: u64,
    /// How many.
    pub seeds: u32,
    /// What the unprotected run takes without faults, in seconds; `None` when it cannot be run.
    pub unprotected: Option<Estimate>,
    /// By protocol, in the order asked for.
    pub rows: Vec<Row>,
}

/// What came of one protocol.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub protocol: String,
    /// Its options, as in the file, in one line of YAML.
    pub options: String,
    /// Why it cannot be run with this federation.
    pub cannot: Option<String>,
    /// Faults that are left out, because they are those of processes that it does not have.
    pub left_out: Vec<String>,
    /// Why it cannot be run with the faults of the file.
    pub cannot_with_faults: Option<String>,
    /// What became of the runs without faults.
    pub calm: Tally,
    /// What became of the runs with faults.
    pub faulty: Tally,
    /// By name of the quantity; one that no run has is missing.
    pub values: BTreeMap<&'static str, Estimate>,
}

/// What became of several runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Runs.
    pub runs: usize,
    /// Runs whose application finished.
    pub completed: usize,
    /// Runs in which everything was judged, and holds.
    pub pass: usize,
    /// Runs that could not be judged in every respect.
    pub unknown: usize,
    /// Runs with a violation.
    pub fail: usize,
    /// Why runs did not pass: some different reasons.
    pub reasons: Vec<String>,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) completed: bool,
    pub(crate) verdict: Verdict,
    pub(crate) reasons: Vec<String>,
    ranks: u32,
    logs: Logs,
    pub(crate) costs: Costs,
}

impl Run {
    /// A run of `federation` that was made.
    pub(crate) fn of(federation: &Federation, seed: u64, made: Made) -> Run {
        let Made { completed, judgement: Judgement { verdict, reasons, .. }, costs } = made;
        let ranks = federation.spec.clusters.iter().map(|it| it.nodes).sum();
        Run { seed, completed, verdict, reasons, ranks, logs: federation.spec.protocol.logs(), costs }
    }
}

impl Comparison {
    /// Whether a run of some protocol violated something.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|it| it.calm.fail + it.faulty.fail > 0)
    }
}

/// Compares protocols on a federation. `tell` is told what is run, and after how many runs of all.
///
/// # Panics
///
/// When one of the protocols is not among [`Protocol::compared`](faultline_api::resource::Protocol::compared).
pub fn compare(
    federation: &Federation,
    settings: &Settings,
    runs: Runs<'_>,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Comparison, Interrupted> {
    let backend = match &runs {
        Runs::Simulated => Backend::Simulate,
        Runs::Elsewhere(backend, _) => *backend,
    };
    let mut bench = Bench { settings, maker: runs, interrupted, tell, done: 0 };
    let native = bench.runs(&without_faults(&under(federation, UNPROTECTED).expect("it is a protocol")));
    let native = match native {
        Err(Stop::Interrupted) => return Err(Interrupted),
        other => other.unwrap_or_default(),
    };
    let native: BTreeMap<u64, f64> =
        native.iter().filter(|it| it.completed).map(|it| (it.seed, it.costs.seconds)).collect();
    let mut rows = Vec::new();
    for name in &settings.protocols {
        let it = under(federation, name).unwrap_or_else(|| panic!("`{name}` is no protocol"));
        rows.push(bench.row(name, &it, &native)?);
    }
    let spec = &federation.spec;
    Ok(Comparison {
        name: federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned()),
        backend,
        application: spec.application.name(),
        family: spec.application.family(),
        ranks: spec.clusters.iter().map(|it| it.nodes).sum(),
        clusters: spec.clusters.len(),
        has_faults: !spec.faults.is_empty(),
        first_seed: settings.first_seed,
        seeds: settings.seeds,
        unprotected: Estimate::of(native.into_values()),
        rows,
    })
}

/// Why there are no runs.
enum Stop {
    /// Somebody interrupted the work.
    Interrupted,
    /// The federation cannot be set up.
    Unfit(SetupError),
}

/// Where runs are made.
struct Bench<'a, 'r> {
    settings: &'a Settings,
    maker: Runs<'r>,
    interrupted: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&str, u64),
    done: u64,
}

impl Bench<'_, '_> {
    fn row(
        &mut self,
        name: &str,
        federation: &Federation,
        native: &BTreeMap<u64, f64>,
    ) -> Result<Row, Interrupted> {
        let (federation, left_out) = &without_absent(federation);
        let protocol = &federation.spec.protocol;
        let mut row = Row {
            protocol: name.to_owned(),
            options: options(protocol),
            cannot: None,
            // Without protection there are no runs with faults at all, which is said once.
            left_out: if name == UNPROTECTED { Vec::new() } else { left_out.clone() },
            cannot_with_faults: None,
            calm: Tally::default(),
            faulty: Tally::default(),
            values: BTreeMap::new(),
        };
        row.cannot = problem_of(&without_faults(federation));
        if row.cannot.is_some() {
            return Ok(row);
        }
        match self.measure(federation, native, &mut row) {
            Ok(()) => Ok(row),
            Err(Stop::Unfit(error)) => Ok(Row { cannot: Some(error.to_string()), ..row }),
            Err(Stop::Interrupted) => Err(Interrupted),
        }
    }

    fn measure(
        &mut self,
        federation: &Federation,
        native: &BTreeMap<u64, f64>,
        row: &mut Row,
    ) -> Result<(), Stop> {
        let calm = self.runs(&without_faults(federation))?;
        row.cannot_with_faults = if row.protocol == UNPROTECTED {
            Some("without a protocol, the first failure ends the run".to_owned())
        } else {
            problem_of(federation)
        };
        let has_runs = !federation.spec.faults.is_empty() && row.cannot_with_faults.is_none();
        let faulty = if has_runs { self.runs(federation)? } else { Vec::new() };
        for quantity in Quantity::of_family(federation.spec.application.family()) {
            let runs = if quantity.faulty { &faulty } else { &calm };
            let values = runs.iter().filter_map(|it| (quantity.of)(it, native.get(&it.seed).copied()));
            row.values.extend(Estimate::of(values).map(|it| (quantity.name, it)));
        }
        (row.calm, row.faulty) = (Tally::of(&calm), Tally::of(&faulty));
        Ok(())
    }

    /// Runs a federation with every seed.
    fn runs(&mut self, federation: &Federation) -> Result<Vec<Run>, Stop> {
        let Settings { first_seed, seeds, jobs, .. } = *self.settings;
        let (interrupted, tell, done) = (self.interrupted, &mut *self.tell, &mut self.done);
        let protocol = &federation.spec.protocol;
        let what = protocol.name();
        tell(what, *done);
        let mut runs = Vec::new();
        let run = |seed, made| Run::of(federation, seed, made);
        let all = (first_seed..).take(seeds as usize);
        if let Runs::Elsewhere(_, maker) = &mut self.maker {
            for seed in all {
                let made = maker(federation, seed).map_err(|Interrupted| Stop::Interrupted)?;
                if interrupted.load(Ordering::Relaxed) {
                    return Err(Stop::Interrupted);
                }
                runs.push(run(seed, made));
                *done += 1;
                tell(what, *done);
            }
            return Ok(runs);
        }
        let work = |seed| Ok((seed, Made::simulated(federation, seed, interrupted)?));
        let flow = in_order(jobs, all, work, |made| match made {
            _ if interrupted.load(Ordering::Relaxed) => ControlFlow::Break(Stop::Interrupted),
            Ok((seed, made)) => {
                runs.push(run(seed, made));
                *done += 1;
                tell(what, *done);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Stop::Unfit(error)),
        });
        match flow {
            ControlFlow::Break(stop) => Err(stop),
            ControlFlow::Continue(()) => Ok(runs),
        }
    }
}

impl Tally {
    fn of(runs: &[Run]) -> Tally {
        let count = |verdict| runs.iter().filter(|it| it.verdict == verdict).count();
        let mut seen = BTreeSet::new();
        let reasons = runs.iter().flat_map(|run| run.reasons.iter().map(move |it| (run.seed, it)));
        Tally {
            runs: runs.len(),
            completed: runs.iter().filter(|it| it.completed).count(),
            pass: count(Verdict::Pass),
            unknown: count(Verdict::Unknown),
            fail: count(Verdict::Fail),
            reasons: reasons
                .filter(|(_, it)| seen.insert(*it))
                .map(|(seed, it)| format!("seed {seed}: {it}"))
                .take(REASONS)
                .collect(),
        }
    }
}

/// The first reason why a federation cannot be run.
fn problem_of(federation: &Federation) -> Option<String> {
    let problem = validate(federation).into_iter().next()?;
    Some(format!("{}: {}; {}", problem.path, problem.message, problem.help))
}

/// A protocol with its options as in a file, in one line.
fn options(protocol: &Protocol) -> String {
    let text = serde_json::to_string(protocol).expect("a protocol has a JSON form");
    text.replace('"', "").replace(':', ": ").replace(',', ", ")
}
