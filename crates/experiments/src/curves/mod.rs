//! Compares protocols over the values of one parameter, such as the mean time between faults: which protocol has the
//! highest goodput at which values, and the break-even values at which this changes.
//!
//! All runs are in virtual time, and all protocols and values have the same seeds. Goodput is the duration of an
//! unprotected run without faults, divided by the duration of the run with the same seed.
//!
//! | module | contents |
//! | --- | --- |
//! | [`crossing`] | the value at which two protocols have equal goodput, and how certain it is |
//! | [`text`] | the curves as text and as JSON |
//! | [`page`] | the curves as one page, with a picture |

pub mod crossing;
pub mod page;
pub mod text;

use std::collections::BTreeMap;

use faultline_api::Federation;
use faultline_api::mtbf::traces_end;
use faultline_checker::Verdict;
use faultline_history::TimeByPart;

use crate::compare::estimate::Estimate;
use crate::compare::protocols::under;
use crate::compare::quantity::{ETTR, GOODPUT, QUANTITIES, Quantity, Reference};
use crate::compare::{
    Bench, Candidate, Keeper, REFERENCE, Run, Runs, Settings, UNPROTECTED, VerdictCounts, counts,
    without_faults,
};
use crate::stored::ResultStore;
use crate::sweep::parameter::Numbers;
use crate::sweep::{MTBF, OWN, Parameter, Plan, SweepError};
use crossing::{Crossing, crossings};

/// The protocols over the values of a parameter.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The settings: one for each value of the only parameter, in ascending order if the values are numbers.
    pub plan: Plan,
    /// The application's name.
    pub application: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of clusters.
    pub clusters: usize,
    /// The first of the consecutive seeds.
    pub first_seed: u64,
    /// The number of seeds.
    pub seeds: u32,
    /// One curve for each protocol that can run with faults at some value, in the requested order.
    pub curves: Vec<Curve>,
    /// The values at which the best protocol changes; empty if the values are no numbers.
    pub crossings: Vec<Crossing>,
    /// Remarks on what the numbers do not show.
    pub notes: Vec<String>,
    /// The number of runs that are missing because the work was interrupted.
    pub missing: u64,
    /// The number of runs that ended because the program reached its memory limit.
    pub out_of_memory: u64,
}

/// One protocol.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The protocol's name.
    pub protocol: String,
    /// The runs without faults, if the parameter does not affect them.
    pub calm: Option<Point>,
    /// One point for each value.
    pub points: Vec<Point>,
}

/// The runs of a protocol with one value of the parameter.
#[derive(Clone, Debug)]
pub struct Point {
    /// The federation that repeats the runs.
    pub federation: Federation,
    /// The goodput of each run in percent, by seed.
    pub goodput: BTreeMap<u64, f64>,
    /// The time to completion, the goodput and the effective training time ratio, by the name of the quantity.
    pub values: BTreeMap<&'static str, Estimate>,
    /// How the runs ended.
    pub counts: VerdictCounts,
    /// The number of completed runs whose results are not known to be right, such as runs with silent corruption. As in
    /// any comparison, their goodput counts.
    pub without_verdict: usize,
    /// How the processes spent their time, summed over the runs.
    pub time: TimeByPart,
}

/// Returns the quantities of a point, in order.
pub(crate) fn quantities() -> impl Iterator<Item = &'static Quantity> {
    let wanted = |it: &&Quantity| ["seconds", GOODPUT, ETTR].contains(&it.name);
    OWN.iter().chain(&QUANTITIES).filter(wanted)
}

impl Point {
    fn of(federation: &Federation, runs: &[Run], native: &BTreeMap<u64, Reference>) -> Point {
        let value = |quantity: &Quantity, run: &Run| (quantity.of)(run, native.get(&run.seed).copied());
        let mut goodput = BTreeMap::new();
        let mut values = BTreeMap::new();
        for quantity in quantities() {
            let all = runs.iter().filter_map(|it| Some((it.seed, value(quantity, it)?)));
            let all: BTreeMap<u64, f64> = all.collect();
            values.extend(Estimate::of(all.values().copied()).map(|it| (quantity.name, it)));
            if quantity.name == GOODPUT {
                goodput = all;
            }
        }
        let time = runs.iter().fold(TimeByPart::default(), |sum, it| sum + it.time);
        let is_open = |it: &&Run| it.completed && it.verdict == Verdict::Unknown && !it.without_fault;
        let without_verdict = runs.iter().filter(is_open).count();
        let counts = counts(runs);
        Point { federation: federation.clone(), goodput, values, counts, without_verdict, time }
    }

    /// Returns the goodput in percent; `None` without runs.
    pub fn estimate(&self) -> Option<&Estimate> {
        self.values.get(GOODPUT)
    }
}

/// Plans the settings of the only parameter. Sorts its values if they are numbers.
///
/// # Errors
///
/// Returns an error if a value cannot be set in the federation, or if a setting is not a valid federation.
pub fn plan(federation: &Federation, parameter: &Parameter) -> Result<Plan, SweepError> {
    let mut parameter = parameter.clone();
    if let [only] = &parameter.values[..] {
        return Err(SweepError::Invalid {
            setting: format!("{}={}", parameter.path, only.0),
            why: "one value makes no curve".to_owned(),
            help: "write several values, such as `mtbf=5m..24h/8`".to_owned(),
        });
    }
    if let Some(numbers) = Numbers::of(&parameter) {
        let mut sorted: Vec<_> = numbers.all.into_iter().zip(parameter.values).collect();
        sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
        parameter.values = sorted.into_iter().map(|it| it.1).collect();
    }
    Plan::new(federation, vec![parameter], None)
}

/// A protocol before its runs.
struct Candidates<'a> {
    name: &'a str,
    /// One for each setting.
    all: Vec<Candidate>,
    /// The federation without faults, if it is the same in all settings and valid.
    calm: Option<Federation>,
}

impl<'a> Candidates<'a> {
    fn new(name: &'a str, plan: &Plan) -> Candidates<'a> {
        let under =
            |it: &Federation| under(it, name).unwrap_or_else(|| panic!("there is no protocol `{name}`"));
        let all: Vec<Candidate> =
            plan.settings.iter().map(|it| Candidate::new(name, &under(&it.federation))).collect();
        let calm = without_faults(&all[0].federation);
        let is_same = all.iter().all(|it| it.cannot.is_none() && without_faults(&it.federation) == calm);
        let runs = all.iter().any(Candidates::runs);
        Candidates { name, calm: (runs && is_same).then_some(calm), all }
    }

    fn runs(candidate: &Candidate) -> bool {
        candidate.cannot.is_none() && candidate.cannot_with_faults.is_none()
    }

    fn settings(&self) -> u64 {
        self.all.iter().filter(|it| Candidates::runs(it)).count() as u64 + u64::from(self.calm.is_some())
    }

    /// Returns why the protocol cannot run at some values, and which faults it lacks.
    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for (setting, it) in self.all.iter().enumerate() {
            let why = it.cannot.as_ref().or(it.cannot_with_faults.as_ref());
            let cannot = why.map(|why| match self.settings() {
                0 => format!("{} is left out: {why}", self.name),
                _ => format!("{} is left out at {}: {why}", self.name, plan.words(setting)),
            });
            let left_out = it.left_out.iter().filter(|_| why.is_none());
            let left_out = left_out.map(|it| format!("{} runs without {it}", self.name));
            for note in cannot.into_iter().chain(left_out) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }
}

/// Runs every protocol with every value of the parameter. Does not repeat runs whose results are in `store`. After an
/// interruption, the curves contain the completed runs.
///
/// # Panics
///
/// Panics if one of the protocols cannot be compared, or if the plan has no settings.
pub fn curves(plan: Plan, settings: &Settings, store: &mut ResultStore<'_>) -> Curves {
    let reference = |it: &Federation| {
        without_faults(&under(it, UNPROTECTED).expect("every federation can run without a protocol"))
    };
    let references: Vec<Federation> = plan.settings.iter().map(|it| reference(&it.federation)).collect();
    let unique = (0..references.len()).filter(|&it| !references[..it].contains(&references[it]));
    let unique: Vec<usize> = unique.collect();
    let protocols: Vec<Candidates<'_>> =
        settings.protocols.iter().map(|it| Candidates::new(it, &plan)).collect();
    let kinds = unique.len() as u64 + protocols.iter().map(Candidates::settings).sum::<u64>();
    store.expect(u64::from(settings.seeds) * kinds);
    let mut bench = Bench::new(settings, Runs::Simulated(Keeper::NONE), store, true);
    let mut natives: Vec<BTreeMap<u64, Reference>> = Vec::new();
    for (setting, federation) in references.iter().enumerate() {
        if let Some(known) = references[..setting].iter().position(|it| it == federation) {
            natives.push(natives[known].clone());
            continue;
        }
        let runs = bench.runs(REFERENCE, federation).unwrap_or_default();
        let completed = runs.iter().filter(|it| it.completed);
        natives.push(completed.map(|it| (it.seed, Reference::of(it))).collect());
    }
    let mut notes = notes_on(&plan);
    let mut curves = Vec::new();
    for it in &protocols {
        notes.extend(it.notes(&plan));
        if it.settings() > 0 {
            curves.push(curve(&mut bench, it, &natives, &mut notes));
        }
    }
    notes.extend(notes_on_traces(&plan, &natives, &curves));
    let crossings = Numbers::of(&plan.parameters[0])
        .map_or_else(Vec::new, |it| crossings(&it.all, &curves, settings.first_seed));
    let spec = &plan.settings[0].federation.spec;
    let (application, clusters) = (spec.application.name().to_owned(), spec.clusters.len());
    let ranks = spec.clusters.iter().map(|it| it.nodes).sum();
    let Settings { first_seed, seeds, .. } = *settings;
    let (done, total) = store.progress();
    let (missing, out_of_memory) = (total.saturating_sub(done), store.out_of_memory());
    Curves {
        plan,
        application,
        ranks,
        clusters,
        first_seed,
        seeds,
        curves,
        crossings,
        notes,
        missing,
        out_of_memory,
    }
}

/// Performs the runs of a protocol.
fn curve(
    bench: &mut Bench<'_, '_, '_>,
    protocol: &Candidates<'_>,
    natives: &[BTreeMap<u64, Reference>],
    notes: &mut Vec<String>,
) -> Curve {
    let mut point = |federation: &Federation, native| match bench.runs(protocol.name, federation) {
        Ok(runs) => Point::of(federation, &runs, native),
        Err(error) => {
            bench.skip(1);
            notes.push(format!("{} is left out: {error}", protocol.name));
            Point::of(federation, &[], native)
        }
    };
    let calm = protocol.calm.as_ref().map(|it| point(it, &natives[0]));
    let mut points = Vec::new();
    for (candidate, native) in protocol.all.iter().zip(natives) {
        points.push(match Candidates::runs(candidate) {
            true => point(&candidate.federation, native),
            false => Point::of(&candidate.federation, &[], native),
        });
    }
    Curve { protocol: protocol.name.to_owned(), calm, points }
}

/// Returns remarks on faults that the settings hide.
fn notes_on(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.parameters[0].path != MTBF {
        return notes;
    }
    let simulator = plan.settings[0].federation.spec.simulator.as_ref();
    if let Some(percent) = simulator.and_then(|it| it.least_work_left).filter(|it| *it > 0) {
        notes.push(format!(
            "`simulator.leastWorkLeft` is {percent}: it hides the faults in the last {percent} % of the work, which raises \
             the goodput of every protocol; set it to 0"
        ));
    }
    notes
}

/// Returns a remark for each setting in which a run lasted longer than a failure trace.
fn notes_on_traces(plan: &Plan, natives: &[BTreeMap<u64, Reference>], curves: &[Curve]) -> Vec<String> {
    let mut notes = Vec::new();
    for (setting, native) in natives.iter().enumerate() {
        let spec = &plan.settings[setting].federation.spec;
        let calm = native.values().map(|it| it.seconds).fold(0.0, f64::max);
        let points = curves.iter().filter_map(|it| it.points.get(setting));
        let lasted = |it: &Point| {
            let completed = it.values.get("seconds").map_or(0.0, |it| it.spread.most);
            let is_cut = it.counts.completed < it.counts.runs;
            if is_cut { completed.max(spec.deadline().as_secs_f64()) } else { completed }
        };
        let seconds = points.map(lasted).fold(calm, f64::max);
        if let Some(end) = traces_end(spec).filter(|it| *it < seconds) {
            notes.push(format!(
                "at {}, the failure trace ends after {}, before the runs do, so they have fewer faults than this mean time \
                 states; use shorter runs, a longer trace, or an exponential distribution",
                plan.words(setting),
                faultline_failures::text::duration(end)
            ));
        }
    }
    notes
}

impl Curves {
    /// Returns the name of the parameter in sentences, before one of its values.
    pub(crate) fn named(&self) -> String {
        match self.plan.parameters[0].path.as_str() {
            MTBF => "an MTBF of".to_owned(),
            path => format!("{path} ="),
        }
    }

    /// Returns the text of each value of the parameter.
    pub(crate) fn values(&self) -> Vec<&str> {
        self.plan.parameters[0].values.iter().map(|it| it.0.as_str()).collect()
    }

    /// Returns all points with the index of their values.
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.curves.iter().flat_map(|it| it.calm.iter().chain(&it.points))
    }

    /// Returns whether a run had a violation.
    pub fn has_failed(&self) -> bool {
        self.points().any(|it| it.counts.fail > 0)
    }

    /// Returns whether some runs with faults could be judged.
    pub fn is_judged(&self) -> bool {
        let judged = |it: &Point| it.counts.pass + it.counts.fail + it.counts.without_fault > 0;
        self.curves.iter().flat_map(|it| &it.points).any(judged)
    }

    /// Returns the federation file of each point, with its path.
    pub fn files(&self) -> Vec<(String, &Federation)> {
        let mut all = Vec::new();
        for curve in &self.curves {
            let points = curve.points.iter().enumerate();
            all.extend(points.map(|(setting, it)| (file(setting, &curve.protocol), &it.federation)));
        }
        all
    }
}

/// Returns the path of the federation file of a point.
pub(crate) fn file(setting: usize, protocol: &str) -> String {
    format!("settings/{}-{protocol}.yaml", setting + 1)
}
