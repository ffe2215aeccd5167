//! A violation found by the search. It is shrunk, recorded, and reported with the command that reproduces it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use faultline_api::resource::ProtocolSpec;
use faultline_checker::{Context, Property, Violation};
use faultline_console::place::{ACTION, Claim, check_free, remove_record, write_record};
use faultline_fuzz::{Observed, Repetition, Scenario, Steps, Trial, shrink as shrink_scenario};
use faultline_report::diagram::{Diagram, Limits, svg};
use faultline_report::transcript::{task_names, text, transcript};
use faultline_report::{DisplayNames, RecordedRun, Timeline};
use faultline_session::UnjudgedRecording;
use faultline_trace::{Bundle, Manifest, shell_word};
use serde::Serialize;

use super::{Drawn, summary};
use crate::arguments::FuzzArguments;
use crate::command_error::CommandError;
use crate::files;
use crate::output;

/// A violation, shrunk as far as possible.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// The seed with which the violation was found.
    pub(crate) seed: u64,
    /// The violated property; `None` if two runs with the same seed differed.
    pub(crate) property: Option<Property>,
    /// The violations, as sentences.
    pub(crate) texts: Vec<String>,
    /// The shrunk run, line by line.
    pub(crate) transcript: String,
    /// The number of facts in the shrunk run.
    pub(crate) facts: usize,
    /// The directory that contains the record of the shrunk run.
    pub(crate) bundle: PathBuf,
    /// The path of the picture of the shrunk run.
    pub(crate) picture: PathBuf,
    /// The command that reproduces the violation.
    pub(crate) reproduce: String,
    /// Whether the user interrupted the search for a smaller run.
    #[serde(rename = "interrupted")]
    pub(crate) is_interrupted: bool,
}

/// Shrinks a violation, and records the shrunk run: the smallest one so far if the user interrupts the program.
pub(crate) fn shrink(
    found: &Observed,
    arguments: &FuzzArguments,
    program: Option<&ProtocolSpec>,
    interrupted: &AtomicBool,
) -> Result<Finding, CommandError> {
    let scenario = match &found.directed {
        Some(scenario) => Scenario::clone(scenario),
        None => Drawn::new(arguments, program, arguments.defect).scenario(found.seed),
    };
    let property = found.decisive_violation().or(found.violated.first().copied());
    let mut is_interrupted = false;
    let (trial, texts) = match property {
        Some(property) if !arguments.no_shrink => {
            let progress = summary::shrinking(arguments, "", interrupted);
            let shrunk =
                shrink_scenario(&scenario, property, Steps::default(), progress).map_err(files::unfit)?;
            is_interrupted = shrunk.is_interrupted;
            let texts = violations(&shrunk.trial, property);
            (shrunk.trial, texts)
        }
        Some(property) => {
            let trial = faultline_fuzz::run(scenario).map_err(files::unfit)?;
            let texts = violations(&trial, property);
            (trial, texts)
        }
        None => {
            let trial = faultline_fuzz::run(scenario).map_err(files::unfit)?;
            let reply = match &found.repetition {
                Some(Repetition::Different(Some(reply))) => format!(": {reply}"),
                _ => String::new(),
            };
            (trial, vec![format!("two runs with this seed differ{reply}")])
        }
    };
    // The directory that the user named was claimed before the search.
    let new = arguments.out.is_none().then(|| claim(arguments, found.seed)).transpose()?;
    let dir = arguments.out.as_deref().or(new.as_ref().map(Claim::dir)).expect("one of them exists");
    if arguments.resume && is_of_seed(dir, found.seed) {
        remove_record(dir)?;
    }
    let picture = record(&trial, dir)?;
    let shown = RenderedTrial::new(&trial);
    Ok(Finding {
        seed: found.seed,
        property,
        texts,
        transcript: shown.text(),
        facts: trial.trace.len(),
        reproduce: reproduce(dir, &trial),
        bundle: dir.to_owned(),
        picture,
        is_interrupted,
    })
}

/// Returns the violations of one property, as sentences that name tasks as the transcript does.
pub(crate) fn violations(trial: &Trial, property: Property) -> Vec<String> {
    if let (Property::RecordComplete, Some(gap)) = (property, &trial.judgement.of(property).unknown) {
        // The remedy follows; it applies to records.
        let reason = gap.rsplit_once("; ").map_or(gap.as_str(), |(reason, _)| reason);
        let ours = "no protocol can cause this: please report it, with the record, as a mistake of Faultline";
        return vec![reason.to_owned(), ours.to_owned()];
    }
    let RenderedTrial { names, history, .. } = RenderedTrial::new(trial);
    let mut context = Context::from_manifest(&trial.manifest);
    context.names.tasks = task_names(&trial.trace, &history, &names);
    let sentence =
        |it: &Violation| it.what.as_ref().map_or_else(|| it.text.clone(), |it| it.sentence(&context));
    trial.judgement.of(property).violations.iter().map(sentence).collect()
}

/// A trial that can be rendered as text and as a picture.
pub(crate) struct RenderedTrial<'a> {
    trial: &'a Trial,
    names: DisplayNames,
    history: Timeline,
}

impl<'a> RenderedTrial<'a> {
    pub(crate) fn new(trial: &'a Trial) -> RenderedTrial<'a> {
        let names = DisplayNames::new(&trial.manifest);
        let history = Timeline::new(&trial.trace, &trial.manifest);
        RenderedTrial { trial, names, history }
    }

    pub(crate) fn text(&self) -> String {
        text(&transcript(&self.trial.trace, &self.history, &self.names))
    }

    pub(crate) fn picture(&self) -> String {
        let diagram = Diagram::new(&self.history, &self.names, Limits::default());
        svg::render(&diagram, svg::Options { within: true, ..svg::Options::default() })
    }
}

/// Writes the record of a trial, with its page and picture. Returns the picture's path.
pub(crate) fn record(trial: &Trial, dir: &Path) -> Result<PathBuf, CommandError> {
    let manifest = Manifest { federation: trial.scenario.to_yaml(), ..trial.manifest.clone() };
    let run = UnjudgedRecording { manifest, trace: trial.trace.clone() };
    write_record(dir, &run)?;
    let shown = RenderedTrial::new(trial);
    let recorded = RecordedRun {
        bundle: &dir.display().to_string(),
        manifest: &run.manifest,
        trace: &run.trace,
        judgement: &trial.judgement,
    };
    output::write(dir, "transcript.txt", &shown.text())?;
    output::write(dir, "report.html", &faultline_report::page::render(recorded))?;
    output::write(dir, "diagram.svg", &shown.picture())
}

/// Returns whether the directory contains the record of a violation that a search found with this seed.
fn is_of_seed(dir: &Path, seed: u64) -> bool {
    let name = Scenario::new(seed, None, None).federation.metadata.name;
    Bundle::open(dir).read_manifest().is_ok_and(|it| Some(it.name) == name)
}

/// Claims, before a search, the directory that the user named for the record of a violation, if any. A resumed search may
/// replace its own record.
pub(super) fn claim_out(arguments: &FuzzArguments) -> Result<Option<Claim>, CommandError> {
    let of_search = |dir: &Path| {
        let name = Bundle::open(dir).read_manifest().ok()?.name;
        name.rsplit('-').next()?.parse().ok().filter(|seed| is_of_seed(dir, *seed))
    };
    let Some(out) = &arguments.out else { return Ok(None) };
    let claim = Claim::of(ACTION, out)?;
    if !(arguments.resume && of_search(out).is_some()) {
        check_free(ACTION, out)?;
    }
    Ok(Some(claim))
}

/// Claims a new directory for the record of a violation.
fn claim(arguments: &FuzzArguments, seed: u64) -> Result<Claim, CommandError> {
    match arguments.defect {
        Some(defect) => Claim::numbered(&format!("fuzz-{defect}-{seed}")),
        None => Claim::numbered(&format!("fuzz-{seed}")),
    }
}

/// Returns the command that reproduces a trial.
pub(crate) fn reproduce(dir: &Path, trial: &Trial) -> String {
    let file = shell_word(&dir.join("federation.yaml").display().to_string());
    match trial.scenario.defect {
        Some(defect) => {
            format!("cargo run -- fuzz --file {file} --defect {defect}")
        }
        None => {
            let is_only_waste = trial.violated().all(Property::is_of_economy);
            let strict = if is_only_waste { " --strict" } else { "" };
            format!("faultline run {file} --backend simulate{strict}")
        }
    }
}
