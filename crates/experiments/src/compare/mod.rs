//! Compares protocols on one federation, with the same application, faults and seeds: the costs of each protocol
//! without faults and with them.
//!
//! Every protocol runs twice with each seed, once with the faults in the file and once without. The reference for all
//! costs is the unprotected run (`none`) with the same seed and without faults. All numbers are computed from the
//! facts. The runs are performed in virtual time, or by the caller ([`Runs`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`protocols`] | the federation under each protocol |
//! | `costs` | the cost of one run |
//! | [`quantity`] | the quantities by which protocols are compared |
//! | [`estimate`] | a mean over runs, with its uncertainty |
//! | [`text`] | the comparison as text and as JSON |
//! | [`page`] | the comparison as one page, with a picture |

mod costs;
pub mod estimate;
pub mod page;
pub mod protocols;
pub mod quantity;
pub mod text;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use faultline_api::resource::{Family, Logs, ProtocolSpec};
use faultline_api::{Federation, validate};
use faultline_catalog::SetupError;
use faultline_checker::{Judgement, Verdict};
use faultline_core::fault::Outcome;
use faultline_history::{Context, History, Ledger, TimeByPart};
use faultline_session::{Recording, Session, Simulator};
use faultline_trace::manifest::BackendKind;
use serde::{Deserialize, Serialize};

use crate::reproduce::Interrupted;
use crate::simulate::{Until, consecutive};
use crate::stored::{ResultStore, RunResult};
use crate::verdict_counts::Ending;

pub use crate::verdict_counts::VerdictCounts;
pub use costs::{Costs, TaskCosts};
use estimate::{Estimate, FEW};
pub use faultline_history::Outage;
pub(crate) use protocols::without_faults;
use protocols::{under, without_absent};
use quantity::{Quantity, Reference, TOOK_EFFECT};

/// The reference protocol.
pub(crate) const UNPROTECTED: &str = "none";
/// The name of the reference runs. They are not shared with the row of [`UNPROTECTED`]: on real processes, the
/// difference between the two shows how much identical runs differ.
pub const REFERENCE: &str = "reference";

/// The backend that performs the runs.
pub enum Runs<'a> {
    /// The simulator, several runs at a time. The records of the protocols' runs with the first seed are passed on.
    Simulated(Keeper<'a>),
    /// The caller, which performs one run after another on this backend.
    Elsewhere(BackendKind, &'a mut Maker<'a>),
}

/// Keeps the record of one run of each federation, under the protocol's name in the comparison.
#[derive(Clone, Copy)]
pub struct Keeper<'a> {
    /// Receives the record of one run. Called from several threads.
    pub keep: &'a (dyn Fn(&str, &Federation, Recording) + Sync + 'a),
    /// Returns whether the record of a federation is missing. If so, the run is repeated even if its result is stored.
    pub lacks: &'a dyn Fn(&str, &Federation) -> bool,
}

impl Keeper<'_> {
    /// Keeps no records.
    pub const NONE: Keeper<'static> = Keeper { keep: &|_, _, _| (), lacks: &|_, _| false };
}

/// Returns the name of the runs of a protocol, with the faults in the file or without.
pub fn name_of_runs(protocol: &str, has_faults: bool) -> String {
    format!("{protocol}-{}", if has_faults { "with-faults" } else { "without-faults" })
}

/// Performs one run of a federation with a seed. The name is that of the protocol in the comparison, or
/// [`REFERENCE`]. Returns the result, and whether the run was already recorded.
pub type Maker<'a> = dyn FnMut(&str, &Federation, u64) -> Result<(Made, bool), Interrupted> + 'a;

/// The result of one run, on any backend.
#[derive(Clone, Debug)]
pub struct Made {
    completed: bool,
    out_of_memory: bool,
    /// Whether the verdict is unknown only because no random fault took effect.
    without_fault: bool,
    judgement: Judgement,
    costs: Costs,
    time: TimeByPart,
}

/// The part of a run's result that a comparison stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Ended {
    completed: bool,
    // Results of runs that reached the memory limit are not stored.
    #[serde(skip)]
    out_of_memory: bool,
    verdict: Verdict,
    #[serde(default)]
    without_fault: bool,
    reasons: Vec<String>,
    costs: Costs,
    time: TimeByPart,
}

impl From<Made> for Ended {
    fn from(made: Made) -> Ended {
        let Made { completed, out_of_memory, without_fault, judgement, costs, time } = made;
        let Judgement { verdict, reasons, .. } = judgement;
        let reasons = if without_fault { Vec::new() } else { reasons };
        Ended { completed, out_of_memory, verdict, without_fault, reasons, costs, time }
    }
}

/// The seed of a run, and the run's result.
impl RunResult for (u64, Ended) {
    fn is_out_of_memory(&self) -> bool {
        self.1.out_of_memory
    }
}

/// Returns the costs of a run, and where the time of all processes went.
fn spent(history: &History<'_>) -> (Costs, TimeByPart) {
    let ledger = Ledger::of(history);
    (Costs::with(history, &ledger), ledger.total())
}

impl Made {
    /// Computes the result of a run of `federation` from its record. The clocks of the processes must agree, as they do
    /// on one machine.
    pub fn of(federation: &Federation, recording: &Recording) -> Made {
        let context = Context::from_manifest(&recording.manifest);
        let history = History::new(&recording.trace, &context);
        Made::new(federation, recording, spent(&history))
    }

    /// Runs a federation in virtual time.
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub fn simulated(
        federation: &Federation,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<Made, SetupError> {
        Ok(Made::recorded(federation, seed, interrupted)?.0)
    }

    /// Works like [`Made::simulated`], and also returns the record.
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub fn recorded(
        federation: &Federation,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<(Made, Recording), SetupError> {
        Made::played(Session::new(federation).seed(seed), federation, interrupted)
    }

    /// Works like [`Made::recorded`], but a fault that does not occur under the federation's protocol does not make the verdict
    /// unknown: the comparison counts such faults.
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub fn compared(
        federation: &Federation,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> Result<(Made, Recording), SetupError> {
        Made::played(Session::new(federation).seed(seed).needing_no_faults(), federation, interrupted)
    }

    fn played(
        session: Session<'_>,
        federation: &Federation,
        interrupted: &AtomicBool,
    ) -> Result<(Made, Recording), SetupError> {
        let mut until = Until(interrupted);
        let unjudged = session.simulate(&mut Simulator::new(&mut until))?;
        let (recording, spent) = unjudged.judge_and(spent);
        Ok((Made::new(federation, &recording, spent), recording))
    }

    /// Works like [`Made::simulated`], and also reads more from the history of the run.
    pub(crate) fn measured<T>(
        federation: &Federation,
        seed: u64,
        interrupted: &AtomicBool,
        read: impl FnOnce(&History<'_>) -> T,
    ) -> Result<(Made, T), SetupError> {
        let mut until = Until(interrupted);
        let unjudged = Session::new(federation).seed(seed).simulate(&mut Simulator::new(&mut until))?;
        let (recording, (spent, read)) = unjudged.judge_and(|history| (spent(history), read(history)));
        Ok((Made::new(federation, &recording, spent), read))
    }

    fn new(federation: &Federation, recording: &Recording, (costs, time): (Costs, TimeByPart)) -> Made {
        Made {
            completed: recording.manifest.outcome == Some(Outcome::Completed),
            out_of_memory: matches!(recording.manifest.outcome, Some(Outcome::OutOfMemory(_))),
            without_fault: recording.is_without_fault(federation),
            judgement: recording.judgement.clone(),
            costs,
            time,
        }
    }

    /// Returns whether the run completed and passed.
    pub fn is_good(&self) -> bool {
        self.completed && self.judgement.verdict == Verdict::Pass
    }

    /// Returns the checker's judgement.
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Returns the cost of the run.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }
}

/// The parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names of protocols, in the order of the table; each is one of
    /// [`ProtocolSpec::compared`](faultline_api::resource::ProtocolSpec::compared).
    pub protocols: Vec<String>,
    /// The first of the consecutive seeds, the last of which must not exceed [`u64::MAX`].
    pub first_seed: u64,
    /// The number of seeds. With each, every protocol runs once with faults and once without.
    pub seeds: u32,
    /// The maximum number of simulated runs in parallel.
    pub jobs: NonZero<usize>,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The federation's name.
    pub name: String,
    /// The backend that performed the runs.
    pub backend: BackendKind,
    /// The application's name.
    pub application: String,
    /// The family of the application: messages or tasks.
    pub family: Family,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of clusters.
    pub clusters: usize,
    /// Whether the file has faults. If it has none, there are no runs with faults to report.
    pub has_faults: bool,
    /// The protocol of the file.
    pub own: String,
    /// Whether the file states expectations, by which a comparison judges no run.
    pub has_expectations: bool,
    /// The first of the consecutive seeds.
    pub first_seed: u64,
    /// The number of seeds.
    pub seeds: u32,
    /// Seconds that the unprotected run takes without faults; `None` if no such run completed.
    pub unprotected: Option<Estimate>,
    /// One row for each protocol, in the requested order. An interrupted comparison lacks the protocols that have no
    /// runs.
    pub rows: Vec<Row>,
    /// The number of runs that are missing because the comparison was interrupted.
    pub missing: u64,
    /// The number of runs that ended because the program reached its memory limit, including runs of the reference.
    pub out_of_memory: u64,
}

/// The result of one protocol.
#[derive(Clone, Debug)]
pub struct Row {
    /// The protocol's name.
    pub protocol: String,
    /// The protocol's options as in the federation file, on one line.
    pub options: String,
    /// The number of replicas of each part of a checkpoint; `None` for a protocol without periodic checkpoints.
    pub replicas: Option<u32>,
    /// The reason why the protocol cannot run with this federation.
    pub cannot: Option<String>,
    /// Faults that are omitted, because they concern processes that the protocol does not have.
    pub left_out: Vec<String>,
    /// The reason why the protocol cannot run with the faults in the file.
    pub cannot_with_faults: Option<String>,
    /// Outcomes of the runs without faults.
    pub calm: VerdictCounts,
    /// Outcomes of the runs with faults.
    pub faulty: VerdictCounts,
    /// The values, by the name of the quantity. A quantity that no run has is missing.
    pub values: BTreeMap<&'static str, Estimate>,
    /// The value of each run, by the name of the quantity, for quantities with fewer than [`FEW`] runs.
    pub points: BTreeMap<&'static str, Vec<f64>>,
    /// How the processes spent their time, summed over the runs with faults or, if the file has no faults, over those
    /// without.
    pub time: TimeByPart,
    /// The period of the checkpoint timer if the timer never fired without faults: every run took longer than the
    /// period, but all checkpoints were forced.
    pub timer_never_fired: Option<String>,
}

impl Row {
    /// Adds the values of a quantity, one for each run that has it.
    fn add(&mut self, quantity: &Quantity, values: Vec<f64>) {
        self.values.extend(Estimate::of(values.iter().copied()).map(|it| (quantity.name, it)));
        if (1..FEW).contains(&values.len()) {
            self.points.insert(quantity.name, values);
        }
    }
}

/// A run, with the properties of its federation on which quantities depend.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) completed: bool,
    pub(crate) out_of_memory: bool,
    pub(crate) verdict: Verdict,
    pub(crate) without_fault: bool,
    pub(crate) reasons: Vec<String>,
    pub(crate) ranks: u32,
    logs: Logs,
    pub(crate) costs: Costs,
    pub(crate) time: TimeByPart,
}

impl Run {
    /// Combines the result of a run with the properties of `federation`.
    pub(crate) fn of(federation: &Federation, seed: u64, ended: Ended) -> Run {
        let Ended { completed, out_of_memory, verdict, without_fault, reasons, costs, time } = ended;
        let ranks = federation.spec.clusters.iter().map(|it| it.nodes).sum();
        let logs = federation.spec.protocol.logs();
        Run { seed, completed, out_of_memory, verdict, without_fault, reasons, ranks, logs, costs, time }
    }
}

impl Comparison {
    /// Returns whether a run of any protocol had a violation.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|it| it.calm.fail + it.faulty.fail > 0)
    }

    /// Returns whether the comparison shows something: the runs of at least one protocol, other than the unprotected
    /// ones, could be judged, without faults and, if the file has faults, with them.
    pub fn is_judged(&self) -> bool {
        let protected = || self.rows.iter().filter(|it| it.protocol != UNPROTECTED);
        let is_judged = |counts: &VerdictCounts| counts.pass + counts.fail + counts.without_fault > 0;
        // A comparison of `none` alone measures the unprotected run.
        protected().next().is_none()
            || protected().any(|it| is_judged(&it.calm))
                && (!self.has_faults || protected().any(|it| is_judged(&it.faulty)))
    }

    /// Returns how many faults took effect in each run with faults of a protocol, on average, and the maximum of this
    /// number for all protocols; `None` unless the protocol experienced fewer faults than others. Its costs with faults
    /// are then not comparable with theirs.
    pub(crate) fn fewer_faults(&self, row: &Row) -> Option<(f64, f64)> {
        let met = |row: &Row| row.values.get(TOOK_EFFECT).map(Estimate::mean);
        let most = self.rows.iter().filter_map(met).fold(0.0, f64::max);
        met(row).filter(|own| *own < most).map(|own| (own, most))
    }
}

/// Compares protocols on a federation. Does not repeat runs whose results are in `store`. After an interruption, the
/// comparison contains the completed runs.
///
/// # Panics
///
/// Panics if one of the protocols is not among
/// [`ProtocolSpec::compared`](faultline_api::resource::ProtocolSpec::compared).
pub fn compare(
    federation: &Federation,
    settings: &Settings,
    runs: Runs<'_>,
    store: &mut ResultStore<'_>,
) -> Comparison {
    let backend = match &runs {
        Runs::Simulated(_) => BackendKind::Simulate,
        Runs::Elsewhere(backend, _) => *backend,
    };
    let under =
        |name: &str| under(federation, name).unwrap_or_else(|| panic!("there is no protocol `{name}`"));
    let kinds = |name: &String| Candidate::new(name, &under(name)).kinds();
    store.expect(u64::from(settings.seeds) * (1 + settings.protocols.iter().map(kinds).sum::<u64>()));
    let has_faults = !federation.spec.faults.is_empty();
    let mut bench = Bench::new(settings, runs, store, has_faults);
    let native = bench.runs(REFERENCE, &without_faults(&under(UNPROTECTED)));
    if native.is_err() {
        bench.skip(1);
    }
    let native = native.unwrap_or_default();
    let native: BTreeMap<u64, Reference> =
        native.iter().filter(|it| it.completed).map(|it| (it.seed, Reference::of(it))).collect();
    let mut rows = Vec::new();
    for name in &settings.protocols {
        rows.push(bench.row(name, Candidate::new(name, &under(name)), &native));
    }
    let (done, total) = store.progress();
    let missing = total.saturating_sub(done);
    if missing > 0 {
        rows.retain(|it| it.cannot.is_some() || it.calm.runs + it.faulty.runs > 0);
    }
    let spec = &federation.spec;
    Comparison {
        name: federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned()),
        backend,
        application: spec.application.name().to_owned(),
        family: spec.application.family(),
        ranks: spec.clusters.iter().map(|it| it.nodes).sum(),
        clusters: spec.clusters.len(),
        has_faults,
        own: spec.protocol.name().to_owned(),
        has_expectations: !spec.expect.is_empty(),
        first_seed: settings.first_seed,
        seeds: settings.seeds,
        unprotected: Estimate::of(native.into_values().map(|it| it.seconds)),
        rows,
        missing,
        out_of_memory: store.out_of_memory(),
    }
}

/// A protocol before its runs.
pub(crate) struct Candidate {
    /// The federation under this protocol, without the faults of processes that it does not have.
    pub(crate) federation: Federation,
    pub(crate) left_out: Vec<String>,
    pub(crate) cannot: Option<String>,
    pub(crate) cannot_with_faults: Option<String>,
}

impl Candidate {
    /// Prepares the runs of a protocol, whose federation is the result of [`under`].
    pub(crate) fn new(name: &str, federation: &Federation) -> Candidate {
        let (federation, left_out) = without_absent(federation);
        let cannot = problem_of(&without_faults(&federation));
        let cannot_with_faults = match (&cannot, name) {
            (Some(_), _) => None,
            (None, UNPROTECTED) => Some("without a protocol, the first failure ends the run".to_owned()),
            (None, _) => problem_of(&federation),
        };
        Candidate { federation, left_out, cannot, cannot_with_faults }
    }

    /// Returns the number of kinds of runs, from 0 to 2: without faults, and with the faults in the file.
    fn kinds(&self) -> u64 {
        if self.cannot.is_some() { 0 } else { 1 + u64::from(self.has_faulty_runs()) }
    }

    fn has_faulty_runs(&self) -> bool {
        !self.federation.spec.faults.is_empty() && self.cannot_with_faults.is_none()
    }
}

/// Performs the runs of a comparison.
pub(crate) struct Bench<'a, 'r, 's> {
    settings: &'a Settings,
    maker: Runs<'r>,
    store: &'a mut ResultStore<'s>,
    /// Whether the file has faults.
    has_faults: bool,
    /// Whether to start no further runs.
    is_stopped: bool,
}

impl<'a, 'r, 's> Bench<'a, 'r, 's> {
    pub(crate) fn new(
        settings: &'a Settings,
        maker: Runs<'r>,
        store: &'a mut ResultStore<'s>,
        has_faults: bool,
    ) -> Bench<'a, 'r, 's> {
        Bench { settings, maker, store, has_faults, is_stopped: false }
    }

    /// Returns the row of a protocol.
    fn row(&mut self, name: &str, candidate: Candidate, native: &BTreeMap<u64, Reference>) -> Row {
        let kinds = candidate.kinds();
        let has_runs = candidate.has_faulty_runs();
        let Candidate { federation, left_out, cannot, cannot_with_faults } = candidate;
        let federation = &federation;
        let mut row = Row {
            protocol: name.to_owned(),
            options: options(&federation.spec.protocol),
            replicas: federation.spec.protocol.checkpointing().map(|it| it.replicas),
            cannot,
            // Without protection, there are no runs with faults. A separate remark says so.
            left_out: if name == UNPROTECTED { Vec::new() } else { left_out },
            cannot_with_faults,
            calm: VerdictCounts::default(),
            faulty: VerdictCounts::default(),
            values: BTreeMap::new(),
            points: BTreeMap::new(),
            time: TimeByPart::default(),
            timer_never_fired: None,
        };
        if row.cannot.is_some() {
            return row;
        }
        let calm = match self.runs(name, &without_faults(federation)) {
            Ok(calm) => calm,
            Err(error) => {
                self.skip(kinds);
                return Row { cannot: Some(error.to_string()), ..row };
            }
        };
        let faulty = if has_runs { self.runs(name, federation) } else { Ok(Vec::new()) };
        let faulty = match faulty {
            Ok(faulty) => faulty,
            Err(error) => {
                self.skip(1);
                return Row { cannot: Some(error.to_string()), ..row };
            }
        };
        for quantity in Quantity::of_family(federation.spec.application.family()) {
            let runs = if quantity.faulty { &faulty } else { &calm };
            let beside =
                |seed: u64| native.get(&seed).map(|it| it.beside(calm.iter().find(|calm| calm.seed == seed)));
            let values = runs.iter().filter_map(|it| (quantity.of)(it, beside(it.seed)));
            row.add(quantity, values.collect());
        }
        row.timer_never_fired = period(federation)
            .filter(|(_, period)| {
                let is_forced = |it: &Run| it.costs.forced > 0 && it.costs.forced == it.costs.checkpoints;
                !calm.is_empty() && calm.iter().all(|it| is_forced(it) && it.costs.seconds > *period)
            })
            .map(|(text, _)| text);
        // The time that processes spend on each activity without faults says nothing about runs with faults.
        let timed = if self.has_faults { &faulty } else { &calm };
        row.time = timed.iter().fold(TimeByPart::default(), |sum, it| sum + it.time);
        (row.calm, row.faulty) = (counts(&calm), counts(&faulty));
        row
    }

    /// Subtracts `kinds` runs for each seed from the total, because they will not be performed.
    pub(crate) fn skip(&mut self, kinds: u64) {
        self.store.skip(kinds * u64::from(self.settings.seeds));
    }

    /// Runs a federation with every seed, under this name; stops early if the work is interrupted.
    pub(crate) fn runs(&mut self, name: &str, federation: &Federation) -> Result<Vec<Run>, SetupError> {
        let Settings { first_seed, seeds, jobs, .. } = *self.settings;
        let what = federation.spec.protocol.name();
        let run = |(seed, ended)| Run::of(federation, seed, ended);
        let all = consecutive(first_seed, seeds);
        let maker = match &mut self.maker {
            Runs::Elsewhere(_, maker) => maker,
            Runs::Simulated(Keeper { keep, lacks }) => {
                let interrupted = self.store.interrupted();
                // The reference is the unprotected run in virtual time.
                let name = if name == REFERENCE { UNPROTECTED } else { name };
                let is_compared = self.settings.protocols.iter().any(|it| it == name);
                let make = |seed| {
                    let (made, recording) = Made::compared(federation, seed, interrupted)?;
                    let is_whole = recording.manifest.outcome != Some(Outcome::Interrupted);
                    if seed == first_seed && is_compared && is_whole {
                        keep(name, federation, recording);
                    }
                    Ok((seed, Ended::from(made)))
                };
                if is_compared && lacks(name, federation) {
                    self.store.repeat("comparison", federation, first_seed);
                }
                let ended = self.store.results(("comparison", what), federation, all, jobs, make)?;
                return Ok(ended.into_iter().map(run).collect());
            }
        };
        let mut runs = Vec::new();
        for seed in all {
            if self.is_stopped || self.store.is_interrupted() {
                break;
            }
            let Ok((made, is_known)) = maker(name, federation, seed) else {
                self.is_stopped = true;
                break;
            };
            if self.store.is_interrupted() {
                break;
            }
            self.store.note_memory(made.out_of_memory && !is_known);
            runs.push(run((seed, made.into())));
            self.store.step(what, is_known);
        }
        Ok(runs)
    }
}

pub(crate) fn counts(runs: &[Run]) -> VerdictCounts {
    VerdictCounts::of(runs.iter().map(|it| {
        let Run { seed, completed, verdict, without_fault, .. } = *it;
        (seed, Ending { completed, verdict, without_fault }, &it.reasons[..])
    }))
}

/// Returns the first reason why a federation cannot be run.
fn problem_of(federation: &Federation) -> Option<String> {
    let problem = validate(federation).into_iter().next()?;
    Some(format!("{}: {}; {}", problem.path, problem.message, problem.help))
}

/// Returns the longest checkpoint period of all clusters, as text and in seconds; `None` if a cluster has no checkpoint
/// timer.
fn period(federation: &Federation) -> Option<(String, f64)> {
    let draft = Session::new(federation).draft(BackendKind::Simulate).ok()?;
    let periods = draft.bounds?.checkpoint_every;
    let longest = periods.iter().copied().collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some((longest.to_string(), longest.as_secs_f64()))
}

/// Formats a protocol and its options on one line, as in a federation file.
fn options(protocol: &ProtocolSpec) -> String {
    let text = serde_json::to_string(protocol).expect("a protocol has a JSON form");
    text.replace('"', "").replace(':', ": ").replace(',', ", ")
}
