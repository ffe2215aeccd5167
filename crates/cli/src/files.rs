//! Federation files, and the commands that print or check them: `plan`, `validate`, `schema`, `samples`.

use std::path::Path;
use std::time::SystemTime;

use faultline_api::Federation;
use faultline_api::parse::bare_booleans;
use faultline_api::samples::{PROGRAMS, SAMPLES, SYSTEMS, Sample};
use faultline_catalog::messages;
pub(crate) use faultline_console::source::{Source, read, read_with, unfit};
use faultline_core::{PlannedFault, ProcessId, Time, Trigger};
use faultline_fuzz::{Difference, Differs, difference};
use faultline_report::explain::count;
use faultline_report::table::titled;
use faultline_session::Session;
use faultline_supervisor::process_seed;
use faultline_trace::duration::{LONG, clock};
use faultline_trace::fault::{describe_change, describe_planned, describe_trigger};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Manifest, printable};
use faultline_workloads::Workload;
use miette::miette;
use serde::Serialize;

use crate::arguments::{Format, PlanArguments, SamplesArguments, ValidateArguments};
use crate::command_error::{CommandError, Exit};
use crate::output;

/// Rejects a paused federation on a backend that cannot resume it.
pub(crate) fn refuse_pause(label: &str, federation: &Federation) -> Result<(), CommandError> {
    if !federation.spec.pause {
        return Ok(());
    }
    Err(CommandError::input(miette!(
        help = "remove `pause` from the file; only federations on Kubernetes can be paused and resumed",
        "{label}: with `spec.pause`, the application would never start, because the file cannot change during the run"
    )))
}

/// Executes `faultline validate`.
pub(crate) fn validate(arguments: &ValidateArguments) -> Result<Exit, CommandError> {
    let files = match arguments.files.as_slice() {
        [file] => return validate_file(file, arguments),
        files => files,
    };
    if arguments.running.is_some() {
        return Err(CommandError::input(miette!(
            help = "specify one changed file",
            "`--running` compares one file with that of a running federation (found {} files)",
            files.len()
        )));
    }
    let mut rejected = Vec::new();
    for file in files {
        if let Err(error) = validate_file(file, arguments) {
            error.print();
            rejected.push(error.exit);
        }
    }
    output::print(&format!("{} of {} files are valid\n", files.len() - rejected.len(), files.len()))?;
    // A file that cannot be used outweighs a file that could not be checked.
    match rejected.iter().copied().min_by_key(|it| *it != Exit::BadInput) {
        Some(exit) => Err(CommandError::reported(exit)),
        None => Ok(Exit::Pass),
    }
}

fn validate_file(file: &Path, arguments: &ValidateArguments) -> Result<Exit, CommandError> {
    let source = read(file)?;
    let federation = source.parse()?;
    for warning in bare_booleans(&source.label, &source.text(), &federation) {
        output::note(format_args!("warning: {}", printable(&warning)));
    }
    if let Some(running) = &arguments.running {
        return print_changes(&read(running)?, &federation, &source);
    }
    let manifest = expand(&federation, "", None)?;
    note_crowding(&federation, &manifest);
    let nodes = manifest.processes.len() as u64;
    output::print(&format!(
        "{} is valid: {}, {}, {}, {}\n",
        source.label,
        manifest.protocol,
        count(manifest.clusters.len() as u64, "cluster"),
        count(nodes, "process"),
        count(manifest.plan.len() as u64, "fault"),
    ))?;
    match arguments.orders {
        Some(orders) => check_orders(&federation, &manifest, orders),
        None => Ok(Exit::Pass),
    }
}

/// Prints what would change if a running federation were changed to `new`.
fn print_changes(running: &Source, new: &Federation, source: &Source) -> Result<Exit, CommandError> {
    let changes = faultline_api::live::changes(&running.parse()?, new).map_err(|it| source.reject(it))?;
    let rewritten = faultline_api::live::rewritten(&running.text(), &source.text());
    let rewritten = rewritten.map_err(|rejected| CommandError::input(*rejected))?;
    if !rewritten.is_empty() {
        return Err(source.reject(rewritten));
    }
    if changes.is_empty() {
        output::print("nothing would change\n")?;
    }
    let names = expand(new, "", None)?.names();
    for change in changes {
        output::print(&format!("{}\n", describe_change(&change, &names)))?;
    }
    Ok(Exit::Pass)
}

/// Prints whether the application sends the same messages in all tested orders of delivery. Returns a
/// bad-input error if the messages differ and the protocol requires them to be the same.
fn check_orders(federation: &Federation, manifest: &Manifest, orders: u32) -> Result<Exit, CommandError> {
    let setup = messages(federation, None).map_err(unfit)?;
    let seed = |process| process_seed(setup.seed, process);
    let found = difference::<Workload>(&setup.process.application, &setup.membership, seed, orders);
    let in_orders = format!("in {}", count(u64::from(orders) + 1, "delivery order"));
    let Some(Difference { process, send, what, .. }) = found else {
        output::print(&format!("every process sends the same messages {in_orders}\n"))?;
        return Ok(Exit::Pass);
    };
    let process = manifest.names().process(process);
    let differs = match what {
        Differs::Message => "has a different receiver or different content in another delivery order",
        Differs::Consumed => "depends on different messages in another delivery order",
        Differs::Count => "is not sent in every order",
    };
    let text =
        format!("the application depends on the delivery order: message {send} of {process} {differs}");
    match federation.spec.protocol.relies_on_repetition() {
        true => Err(CommandError::input(miette!(
            help = "choose a protocol that does not require send determinism, or use only named receives, gathers, and polls with a \
                    fence",
            "{text}"
        ))),
        false => {
            output::print(&format!("{text}; protocols that require send determinism cannot protect it\n"))?;
            Ok(Exit::Pass)
        }
    }
}

/// Executes `faultline plan`.
pub(crate) fn plan(arguments: &PlanArguments) -> Result<Exit, CommandError> {
    let federation = read(&arguments.file)?.parse()?;
    let manifest = expand(&federation, "", arguments.seed)?;
    note_crowding(&federation, &manifest);
    let names = manifest.names();
    let at = |trigger: &Trigger| match trigger {
        Trigger::At(at) => Some(*at),
        Trigger::When { .. } => None,
    };
    let mut plan = manifest.plan.clone();
    // In the order in which they are due; those that wait for an event come last.
    plan.sort_by_key(|it| at(&it.trigger).unwrap_or(Time::NEVER));
    let times = plan.iter().filter_map(|it| at(&it.trigger));
    let is_long = times.max().is_some_and(|it| it.as_secs_f64() >= LONG);
    let planned = |it: &PlannedFault| Planned {
        no: it.no.0,
        at_seconds: at(&it.trigger).map(Time::as_secs_f64),
        when: match at(&it.trigger).filter(|_| is_long) {
            // All times have the same notation.
            Some(at) => format!("at {}", clock((at.as_secs_f64() * 100.0).round() / 100.0)),
            None => describe_trigger(&it.trigger, &names),
        },
        what: describe_planned(it, &names),
        cause: it.cause.as_deref().map(str::to_owned),
    };
    let entries: Vec<Planned> = plan.iter().map(planned).collect();
    output::print(&match arguments.format {
        Format::Json => output::json(&entries),
        Format::Text if entries.is_empty() => "the file has no faults\n".to_owned(),
        Format::Text => titled(
            ["fault", "due", "action"],
            entries.into_iter().map(|it| [it.no.to_string(), it.when, it.what]),
        ),
    })?;
    Ok(Exit::Pass)
}

/// Prints a note if, on average, at least as many nodes are under repair as the federation has.
fn note_crowding(federation: &Federation, manifest: &Manifest) {
    let mut clusters = vec![Vec::new(); manifest.clusters.len()];
    for (process, entry) in (0..).map(ProcessId).zip(&manifest.processes) {
        clusters.get_mut(entry.cluster.index()).into_iter().for_each(|it| it.push(process));
    }
    let deadline = Time::ZERO + federation.spec.deadline();
    let under_repair = manifest.plan.iter().filter_map(|it| {
        let Trigger::At(at) = it.trigger else { return None };
        let lasts = it.fault.repair()?.min(deadline.since(at));
        Some(lasts.as_secs_f64() * it.fault.kills()?.processes(&clusters).len() as f64)
    });
    let mean = under_repair.sum::<f64>() / deadline.as_secs_f64();
    let nodes: usize = clusters.iter().map(Vec::len).sum();
    if mean >= nodes as f64 + f64::from(manifest.spares) {
        output::note(format_args!(
            "note: on average, {mean:.0} nodes are under repair at once, but the federation has {} and {}; use `nodes: \
             sample`, add spares, or shorten `repair`",
            count(nodes as u64, "node"),
            count(manifest.spares.into(), "spare")
        ));
    }
}

/// An entry of the plan, as `faultline plan` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    no: u32,
    /// When the fault is due, in seconds since the application started; `null` if it waits for an event.
    at_seconds: Option<f64>,
    when: String,
    what: String,
    /// The cause that a failure trace states.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Executes `faultline schema`.
pub(crate) fn schema() -> Result<Exit, CommandError> {
    output::print(&output::json(&faultline_api::schema()))?;
    Ok(Exit::Pass)
}

/// Executes `faultline samples`.
pub(crate) fn samples(arguments: &SamplesArguments) -> Result<Exit, CommandError> {
    let Some(name) = &arguments.name else {
        let rows = all_samples().map(|it| [it.name.to_owned(), it.description().to_owned()]);
        output::print(&titled(["sample", "description"], rows))?;
        return Ok(Exit::Pass);
    };
    let sample = all_samples().find(|it| it.name == name).expect("clap permits only known names");
    output::print(sample.text)?;
    Ok(Exit::Pass)
}

/// Returns the sample federations, followed by programs, systems and the input files of the HC3I paper's experiments.
pub(crate) fn all_samples() -> impl Iterator<Item = &'static Sample> {
    SAMPLES.iter().chain(PROGRAMS).chain(SYSTEMS).chain(faultline_experiments::samples::SAMPLES)
}

/// Returns the manifest with which a run of `federation` would start.
fn expand(federation: &Federation, text: &str, seed: Option<u64>) -> Result<Manifest, CommandError> {
    let session = Session::new(federation).of_text(text, SystemTime::UNIX_EPOCH);
    let session = seed.map_or(session, |seed| session.seed(seed));
    session.draft(BackendKind::Simulate).map_err(unfit)
}
