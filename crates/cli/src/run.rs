//! `faultline run`: expand the plan, run, record, judge, say. One run, or several with consecutive seeds.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use faultline_api::Federation;
use faultline_api::samples::SAMPLES;
use faultline_catalog::{Setup, Visitor, manifest, with_setup};
use faultline_checker::Verdict;
use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{Protocol, Span};
use faultline_report::{Cast, Summary, explain, text};
use faultline_runtime::RunOutcome;
use faultline_runtime::supervise::Collapse;
use faultline_shaper::{Kernel, Place};
use faultline_trace::manifest::{Backend, LinkEntry};
use faultline_trace::{Bundle, BundleError, Manifest};
use miette::miette;
use serde::Serialize;

use crate::arguments::{BackendName, Format, LinksName, RunArguments};
use crate::files::{self, Source};
use crate::live::Live;
use crate::machine::{self, Finding, Size, State};
use crate::recording::Recording;
use crate::replay::Tapes;
use crate::screen::Screen;
use crate::trouble::{Exit, Trouble};
use crate::{doctor, interrupt, kubernetes, local, log, output, simulate};

/// Where records go that nobody gave a place.
pub(crate) const RUNS: &str = "faultline-runs";

/// So many nodes that ended by themselves are told of one by one.
const MOURNED: usize = 3;

/// How a run went, before anyone has judged it.
pub(crate) struct Ended {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// What became of the plan.
    pub(crate) faults: Vec<FaultAccount>,
    /// Links with what was measured; `None` where nothing was.
    pub(crate) links: Option<Vec<LinkEntry>>,
    /// From the start to the end.
    pub(crate) duration: Span,
}

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
    let session = Session::new(arguments, &federation, &text, interrupt::flag())?;
    if arguments.repeat == 1 {
        let dir = session.place(first)?;
        let recording = match session.once(first, &dir) {
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
    session.repeat(first)
}

/// Refuses what the backend would not heed.
fn has_effect(arguments: &RunArguments) -> Result<(), Trouble> {
    let RunArguments { backend, metrics, cluster, .. } = arguments;
    let (local, pods) = (*backend == BackendName::Local, *backend == BackendName::Kubernetes);
    let heedless = [
        ("--metrics", metrics.is_some() && !local, "local"),
        ("--namespace", cluster.namespace.is_some() && !pods, "kubernetes"),
        ("--context", cluster.context.is_some() && !pods, "kubernetes"),
    ];
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
    if arguments.backend != BackendName::Local {
        return Err(Trouble::input(miette!(
            help = "leave out `--links tc`, or add `--backend local`; for pods the file says `kubernetes: { links: tc }`",
            "links by traffic control are for real processes on this machine"
        )));
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
pub(crate) struct Session<'a> {
    arguments: &'a RunArguments,
    federation: &'a Federation,
    text: &'a str,
    /// What traffic control does for links, if anything.
    kernel: Option<Kernel>,
    /// Where metrics are served, if anywhere.
    metrics: Option<Arc<TcpListener>>,
    interrupted: Arc<AtomicBool>,
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

impl<'a> Session<'a> {
    /// `text` is what `federation` was read from.
    pub(crate) fn new(
        arguments: &'a RunArguments,
        federation: &'a Federation,
        text: &'a str,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Session<'a>, Trouble> {
        let (kernel, metrics) = (links(arguments)?, metrics(arguments)?);
        Ok(Session { arguments, federation, text, kernel, metrics, interrupted })
    }

    /// Runs and judges once; the record is in `dir`.
    pub(crate) fn once(&self, seed: u64, dir: &Path) -> Result<Recording, Trouble> {
        if self.arguments.backend == BackendName::Kubernetes {
            return self.in_pods(seed, dir);
        }
        with_setup(self.federation, Some(seed), Once { session: self, dir }).map_err(files::unfit)?
    }

    /// The same on a cluster: what is run there is the resource, and what is judged here is the record.
    fn in_pods(&self, seed: u64, dir: &Path) -> Result<Recording, Trouble> {
        let Self { arguments, federation, interrupted, .. } = self;
        if arguments.record {
            let help = "leave `--record` out, or take another backend";
            return Err(Trouble::input(miette!(
                help = help,
                "what processes are given is not recorded in pods"
            )));
        }
        let help = "name a seed below 4294967296 with `--seed`";
        let seed = u32::try_from(seed).map_err(|_| {
            Trouble::input(miette!(help = help, "{seed} is too large for the seed of a resource"))
        })?;
        let mut federation = (*federation).clone();
        federation.spec.seed = Some(seed);
        with_setup(&federation, None, Fits).map_err(files::unfit)?;
        let title = title(&federation, Backend::Kubernetes, u64::from(seed));
        let screen = Screen::new(arguments.output, arguments.repeat > 1, title);
        kubernetes::run(arguments, &federation, dir, interrupted, screen)?;
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

/// One run of a federation, whatever its protocol.
struct Once<'a> {
    session: &'a Session<'a>,
    dir: &'a Path,
}

impl Visitor for Once<'_> {
    type Output = Result<Recording, Trouble>;

    fn visit<P>(self, setup: Setup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        let Once { session: Session { arguments, federation, text, kernel, metrics, interrupted }, dir } =
            self;
        let backend = match arguments.backend {
            BackendName::Local => Backend::Local,
            BackendName::Simulate => Backend::Simulate,
            BackendName::Kubernetes => unreachable!("pods are not run by this program"),
        };
        if backend == Backend::Local {
            machine::require(Size::of_run(setup.membership.members.len(), &federation.spec))?;
        }
        let mut manifest = manifest::draft(federation, text, &setup, backend, SystemTime::now());
        if dir.exists() && !dir.is_dir() {
            const HELP: &str = "name a directory with `--out`; it need not exist";
            return Err(Trouble::path("record in", dir, "it is not a directory", HELP));
        }
        let is_used = dir.read_dir().is_ok_and(|mut files| files.next().is_some());
        if is_used && !Bundle::open(dir).holds_a_run() {
            const HELP: &str = "name an empty directory with `--out`, or one that does not exist";
            return Err(Trouble::path("record in", dir, "it holds other files", HELP));
        }
        let bundle = Bundle::create(dir).map_err(|error| match error {
            BundleError::Occupied(_) => {
                Trouble::path("record in", dir, error, "name another directory with `--out`")
            }
            other => {
                Trouble::path("record in", dir, other, "name a directory that can be written with `--out`")
            }
        })?;
        let unwritable = |error: BundleError| Trouble::machine(error);
        bundle.write_manifest(&manifest).map_err(unwritable)?;
        if arguments.record {
            bundle.record_inputs().map_err(unwritable)?;
        }
        manifest.expected = manifest::expected(&setup);
        let mut live = Live::new(
            arguments.output,
            arguments.repeat > 1,
            title(federation, backend, manifest.seed),
            Cast::new(&manifest),
        );
        let (ended, trace) = match backend {
            Backend::Simulate => {
                let mut tapes = arguments.record.then(|| Tapes::new(bundle.clone()));
                let (ended, trace, shown) = simulate::run(setup, interrupted, live, tapes.as_mut());
                tapes.map_or(Ok(()), Tapes::finish)?;
                live = shown;
                bundle.write_trace(&trace).map_err(unwritable)?;
                (ended, trace)
            }
            Backend::Local | Backend::Kubernetes => {
                let busy = machine::load().filter(|it| it.state != State::Ok);
                if let Some(Finding { detail, .. }) = busy.filter(|_| !arguments.output.quiet) {
                    live.warn(&format!(
                        "this machine is busy (load {detail}): processes may be taken for dead"
                    ));
                }
                log::record_in(dir).map_err(Trouble::machine)?;
                let run = match local::run(&setup, dir, metrics.clone(), *kernel, interrupted, &mut live) {
                    Ok(run) => run,
                    Err(trouble) => {
                        live.finish();
                        return Err(trouble);
                    }
                };
                let RunOutcome { outcome, faults, links, duration, collapsed, .. } = run;
                if !arguments.output.quiet {
                    mourn(&collapsed, &manifest, dir);
                }
                let ended = Ended { outcome, faults, links: Some(links), duration };
                (ended, bundle.read_trace().map_err(unwritable)?)
            }
        };
        live.finish();
        manifest.outcome = Some(ended.outcome);
        manifest.faults = ended.faults;
        manifest.duration = ended.duration;
        if let Some(links) = ended.links {
            manifest.links = links;
        }
        bundle.write_manifest(&manifest).map_err(unwritable)?;
        Ok(Recording::new(dir, manifest, trace))
    }
}

/// Says of the first nodes that ended by themselves, which none is expected to, what they had to say.
fn mourn(collapsed: &[Collapse], manifest: &Manifest, dir: &Path) {
    for it in collapsed.iter().take(MOURNED) {
        let name = &manifest.processes[it.process.index()].name;
        anstream::eprintln!("{name}, {}, ended by itself: {}", it.life, it.status);
        it.last_words.lines().for_each(|line| anstream::eprintln!("  {line}"));
    }
    if collapsed.len() > MOURNED {
        let more = collapsed.len() - MOURNED;
        anstream::eprintln!("and {more} more: see {}", dir.join(log::FILE).display());
    }
}

fn title(federation: &Federation, backend: Backend, seed: u64) -> String {
    let name = federation.metadata.name.as_deref().unwrap_or("federation");
    let protocol = federation.spec.protocol.name();
    let on = match backend {
        Backend::Local => "real processes",
        Backend::Simulate => "virtual time",
        Backend::Kubernetes => "pods",
    };
    format!("{name}: {protocol} in {on}, seed {seed}")
}

/// Finds out whether a federation can be set up.
struct Fits;

impl Visitor for Fits {
    type Output = ();

    fn visit<P>(self, _: Setup<P>)
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
    }
}
