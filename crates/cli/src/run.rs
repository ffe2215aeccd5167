//! `faultline run`: expand the plan, run, record, judge, say. One run, or several with consecutive seeds.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_api::samples::SAMPLES;
use faultline_checker::Verdict;
use faultline_report::{Summary, explain, text};
use faultline_session::Session;
use faultline_shaper::{Kernel, Place};
use faultline_trace::Bundle;
use faultline_trace::manifest::Backend;
use miette::miette;
use serde::Serialize;

use crate::arguments::{BackendName, Format, LinksName, RunArguments};
use crate::files::{self, Source};
use crate::live::View;
use crate::recording::Recording;
use crate::runner::{Here, Runner};
use crate::trouble::{Exit, Trouble};
use crate::{doctor, interrupt, kubernetes, output};

/// Where records go that nobody gave a place.
pub(crate) const RUNS: &str = "faultline-runs";

/// `faultline run`
pub(crate) fn run(arguments: &RunArguments) -> Result<Exit, Trouble> {
    let source = match &arguments.file {
        Some(path) => files::read(path)?,
        None => Source { label: "the quick start".to_owned(), bytes: SAMPLES[0].text.as_bytes().to_vec() },
    };
    has_effect(arguments)?;
    let federation = source.parse()?;
    if arguments.backend != BackendName::Kubernetes {
        files::refuse_pause(&source.label, &federation)?;
    }
    let first = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let text = source.text();
    let on = match arguments.backend {
        BackendName::Simulate => On::ThisMachine(Here::Simulator),
        BackendName::Local => {
            On::ThisMachine(Here::Processes { kernel: links(arguments)?, metrics: metrics(arguments)? })
        }
        BackendName::Kubernetes => On::Cluster,
    };
    let runs = Runs { arguments, federation: &federation, text: &text, on, interrupted: interrupt::flag() };
    if arguments.repeat == 1 {
        let dir = runs.place(first)?;
        let recording = match runs.once(first, &dir) {
            // The machine ended it early: what has been recorded is judged like any other.
            Err(trouble) if trouble.exit == Exit::Unknown && Bundle::open(&dir).holds_a_run() => {
                let Ok(recording) = Recording::read(&dir) else { return Err(trouble) };
                anstream::eprintln!("{:?}", trouble.report);
                recording
            }
            other => other?,
        };
        recording.print(arguments.output)?;
        return Ok(recording.exit());
    }
    runs.repeat(first)
}

/// Refuses what the backend would not heed.
fn has_effect(arguments: &RunArguments) -> Result<(), Trouble> {
    let RunArguments { backend, links, metrics, timeout, cluster, .. } = arguments;
    let (local, pods) = (*backend == BackendName::Local, *backend == BackendName::Kubernetes);
    let heedless = [
        ("--metrics", metrics.is_some() && !local, "local"),
        ("--timeout", timeout.is_some() && !pods, "kubernetes"),
        ("--namespace", cluster.namespace.is_some() && !pods, "kubernetes"),
        ("--context", cluster.context.is_some() && !pods, "kubernetes"),
    ];
    if *links == LinksName::Tc && !local {
        return Err(Trouble::input(miette!(
            help = "leave out `--links tc`, or add `--backend local`; for pods the file says `kubernetes: { links: tc }`",
            "links by traffic control are for real processes on this machine"
        )));
    }
    match heedless.into_iter().find(|&(_, is_heedless, _)| is_heedless) {
        None => Ok(()),
        Some((option, _, backend)) => Err(Trouble::input(miette!(
            help = format!("leave it out, or add `--backend {backend}`"),
            "`{option}` has no effect here"
        ))),
    }
}

/// What traffic control is to do for links, if it is asked for.
fn links(arguments: &RunArguments) -> Result<Option<Kernel>, Trouble> {
    if arguments.links == LinksName::InNode {
        return Ok(None);
    }
    let kernel = doctor::kernel_for_tc()?;
    if !arguments.output.quiet {
        match kernel.delays_at() {
            Place::Receiver => {}
            Place::Sender => {
                anstream::eprintln!("no ifb in this kernel: packets are delayed where they leave")
            }
            Place::Node => anstream::eprintln!(
                "no netem in this kernel: traffic control limits bandwidth; latency, jitter and loss are emulated in the nodes"
            ),
        }
    }
    Ok(Some(kernel))
}

/// The port where metrics are to be served.
fn metrics(arguments: &RunArguments) -> Result<Option<Arc<TcpListener>>, Trouble> {
    let Some(address) = arguments.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).map_err(|error| {
        Trouble::input(miette!(
            help = "name another address or port with `--metrics`, or end the program that listens there",
            "cannot serve metrics at {address}: {error}"
        ))
    })?;
    Ok(Some(Arc::new(listener)))
}

/// Everything that several runs of one command share.
struct Runs<'a> {
    arguments: &'a RunArguments,
    federation: &'a Federation,
    text: &'a str,
    on: On,
    interrupted: Arc<AtomicBool>,
}

/// On what a command runs a federation.
enum On {
    ThisMachine(Here),
    Cluster,
}

/// One of several runs, for the object of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repetition {
    seed: u64,
    verdict: Verdict,
    reasons: Vec<String>,
    rollbacks: usize,
    lost_work_seconds: f64,
    duration_seconds: f64,
    /// Where the record is; none when it was removed.
    bundle: Option<String>,
}

/// The object of `--repeat N --format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repetitions<'a> {
    /// The federation's name.
    name: &'a str,
    /// The worst of all.
    verdict: Verdict,
    passed: usize,
    failed: usize,
    unknown: usize,
    runs: Vec<Repetition>,
}

impl Runs<'_> {
    /// Runs and judges once; the record is in `dir`.
    fn once(&self, seed: u64, dir: &Path) -> Result<Recording, Trouble> {
        let Runs { arguments, federation, text, on, interrupted } = self;
        let view = View { federation, output: arguments.output, of_many: arguments.repeat > 1 };
        match on {
            On::Cluster => self.in_pods(seed, dir, view),
            On::ThisMachine(here) => {
                Runner { federation, text, here, records_inputs: arguments.record, view, interrupted }
                    .once(seed, dir)
            }
        }
    }

    /// The same on a cluster: what is run there is the resource, and what is judged here is the record.
    fn in_pods(&self, seed: u64, dir: &Path, view: View<'_>) -> Result<Recording, Trouble> {
        let Runs { arguments, federation, interrupted, .. } = self;
        if arguments.record {
            let help = "leave `--record` out, or take another backend";
            return Err(Trouble::input(miette!(
                help = help,
                "what processes are given is not recorded in pods"
            )));
        }
        if i64::try_from(seed).is_err() {
            let help = format!("name a seed up to {} with `--seed`", i64::MAX);
            return Err(Trouble::input(miette!(
                help = help,
                "{seed} is too large for the seed of a resource"
            )));
        }
        let mut federation = (*federation).clone();
        federation.spec.seed = Some(seed);
        let draft = Session::new(&federation).draft(Backend::Kubernetes).map_err(files::unfit)?;
        kubernetes::run(
            &arguments.cluster,
            arguments.timeout,
            &federation,
            dir,
            interrupted,
            view.screen(&draft),
        )?;
        Recording::read(dir)
    }

    /// Runs with consecutive seeds until done or interrupted.
    fn repeat(&self, first: u64) -> Result<Exit, Trouble> {
        let output = self.arguments.output;
        let keeps_all = self.arguments.keep || self.arguments.backend != BackendName::Simulate;
        let mut runs: Vec<Repetition> = Vec::new();
        if output.format == Format::Text && !output.quiet {
            output::print(&row(["seed", "verdict", "rollbacks", "lost work", "took", "record"]))?;
        }
        for seed in (first..).take(self.arguments.repeat as usize) {
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            let dir = self.place(seed)?;
            let summary = Summary::new(self.once(seed, &dir)?.recorded());
            let passed = summary.verdict == Verdict::Pass;
            let is_kept = keeps_all || !passed;
            if !is_kept {
                fs::remove_dir_all(&dir)
                    .map_err(|error| Trouble::machine(format!("cannot remove {}: {error}", dir.display())))?;
            }
            let run = Repetition {
                seed,
                verdict: summary.verdict,
                rollbacks: summary.clusters.iter().map(|it| it.rollbacks.len()).sum(),
                lost_work_seconds: summary.clusters.iter().map(|it| it.lost_work_seconds).sum(),
                duration_seconds: summary.run.duration_seconds,
                bundle: is_kept.then(|| dir.display().to_string()),
                reasons: summary.reasons,
            };
            if output.format == Format::Text && !(output.quiet && passed) {
                output::print(&rows(&run))?;
            }
            runs.push(run);
        }
        let count = |verdict| runs.iter().filter(|it| it.verdict == verdict).count();
        let (passed, unknown, failed) = (count(Verdict::Pass), count(Verdict::Unknown), count(Verdict::Fail));
        let missing = self.arguments.repeat as usize - runs.len();
        let worst = runs.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Unknown);
        let verdict = if missing > 0 { worst.max(Verdict::Unknown) } else { worst };
        match output.format {
            Format::Json => {
                let name = self.name();
                output::print(&output::json(&Repetitions { name, verdict, passed, failed, unknown, runs }))?;
            }
            Format::Text => {
                let not_run = if missing > 0 { format!(", {missing} not run") } else { String::new() };
                let total = runs.len() as u64;
                output::print(&format!(
                    "{}: {passed} pass, {unknown} unknown, {failed} fail{not_run}\n",
                    explain::count(total, "run")
                ))?;
            }
        }
        Ok(verdict.into())
    }

    fn name(&self) -> &str {
        self.federation.metadata.name.as_deref().unwrap_or("federation")
    }

    /// The directory for the record of a run: new, unless the user named it.
    fn place(&self, seed: u64) -> Result<PathBuf, Trouble> {
        match (&self.arguments.out, self.arguments.repeat) {
            (Some(out), 1) => Ok(out.clone()),
            (Some(out), _) => Ok(out.join(format!("seed-{seed}"))),
            (None, _) => Ok(free_place(self.name(), seed)),
        }
    }
}

/// A directory that is not there yet, for the record of a run.
pub(crate) fn free_place(name: &str, seed: u64) -> PathBuf {
    let base = format!("{name}-{seed}");
    let free = (1..).map(|number| match number {
        1 => base.clone(),
        number => format!("{base}.{number}"),
    });
    let mut places = free.map(|it| Path::new(RUNS).join(it)).filter(|it| !it.exists());
    places.next().expect("there are as many names as numbers")
}

/// The row of a run in the table of all, with the reasons why it does not pass below.
fn rows(run: &Repetition) -> String {
    let mut rows = row([
        &run.seed.to_string(),
        &text::verdict(run.verdict).to_uppercase(),
        &run.rollbacks.to_string(),
        &if run.rollbacks == 0 { "-".to_owned() } else { text::span(run.lost_work_seconds) },
        &text::span(run.duration_seconds),
        run.bundle.as_deref().unwrap_or("-"),
    ]);
    for reason in &run.reasons {
        rows.push_str(&format!("{:>10}  - {reason}\n", ""));
    }
    rows
}

/// Rows are printed while runs are still to come, so that their columns have fixed widths.
fn row([seed, verdict, rollbacks, lost, took, record]: [&str; 6]) -> String {
    format!("{seed:>10}  {verdict:<7}  {rollbacks:>9}  {lost:>9}  {took:>9}  {record}\n")
}
