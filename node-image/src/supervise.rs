//! `faultline-node supervise`: carries out a run at the places that it is given, stores and judges the record, and then
//! serves it.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use clap::Args;
use faultline_api::resource::custom;
use faultline_api::{Federation, supervision};
use faultline_callers::SharedPage;
use faultline_catalog::{Hosted, Setup, Visitor, awaited_clusters, with_setup};
use faultline_checker::Verdict;
use faultline_core::fault::Change;
use faultline_core::{Fact, Life, ProcessId};
use faultline_launch::{ended, run_options};
use faultline_report::events::ReportedEvent;
use faultline_report::{RecordedRun, Summary};
use faultline_runtime::metrics::{RunInfo, Sum, VerdictLabel};
use faultline_runtime::remote::{self, PlaceRegistry, RemoteOptions};
use faultline_runtime::supervise::{ChangeQueue, JournalContents, RunError};
use faultline_runtime::{Keys, RunOptions, interrupt};
use faultline_session::{Backend, PreparedRun, Recording, RunEnd, Session, SessionError, bound_memory};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, Manifest, Trace, read_facts};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::amend::Amender;
use crate::api::{self, ApiState};
use crate::command_error::CommandError;
use crate::key;
use crate::run_state::{RunRecorder, RunState};

/// Interval between two checks for a termination signal.
const SIGNAL_CHECK_EVERY: Duration = Duration::from_millis(100);

/// Supervise the run of a federation whose processes are at places with agents.
///
/// The HTTP API accepts the places of the processes, and reports everything about the run. The run starts once every
/// process has a place. After the run, the program judges the record and serves it until SIGTERM. If it is restarted
/// with the record of an unfinished run, it resumes the run with new lives of all processes, because processes end
/// with their supervisor.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node supervise --federation federation.yaml --key-file key --out results \\
      --listen 0.0.0.0:7300 --api 0.0.0.0:7301")]
pub(crate) struct SuperviseArguments {
    /// Read the federation from FILE
    #[arg(long, value_name = "FILE")]
    federation: PathBuf,
    /// Read the federation's key from FILE (64 hexadecimal digits)
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Store the record in DIR
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Listen for processes at this address. With 0.0.0.0, processes use the address from which the supervisor
    /// reaches their agents
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Serve the HTTP API at this address; prints the actual address on standard output
    #[arg(long, value_name = "ADDR")]
    api: SocketAddr,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: &SuperviseArguments) -> Result<(), CommandError> {
    bound_memory(faultline_runtime::memory::bound(None));
    custom::reject_extra_processes();
    let path = &arguments.federation;
    let bytes = fs::read(path)
        .map_err(|error| CommandError::input(format!("cannot read {}: {error}", path.display())))?;
    let label = path.display().to_string();
    let federation = faultline_api::parse(&label, &bytes)
        .map_err(|rejected| CommandError::input(format!("{:?}", miette::Report::new(*rejected))))?;
    let text = String::from_utf8_lossy(&bytes);
    let token = key::token(&arguments.key_file)?;
    // A second signal ends the program immediately, with the exit status of an unhandled interrupt.
    let ended = interrupt::flag(128 + 2, || ())
        .map_err(|error| CommandError::machine(format!("cannot wait for signals: {error}")))?;
    let Some(_lock) = lock(&arguments.out, &ended)? else { return Ok(()) };
    let run = Run { arguments, federation: &federation, text: &text, token, ended };
    with_setup(&federation, None, run).map_err(CommandError::input)?
}

/// One run, with any protocol.
struct Run<'a> {
    arguments: &'a SuperviseArguments,
    federation: &'a Federation,
    text: &'a str,
    token: String,
    ended: Arc<AtomicBool>,
}

impl Visitor for Run<'_> {
    type Output = Result<(), CommandError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        let Run { arguments, federation, text, token, ended } = self;
        let keys = key::keys(&arguments.key_file, &setup.names.processes())?;
        let out = &arguments.out;
        // In a pod, only this volume is writable.
        faultline_catalog::store_in(out.parent().unwrap_or(out).to_owned());
        let (place_registry, sum, change_queue) =
            (PlaceRegistry::default(), Sum::default(), ChangeQueue::default());
        let bundle = Bundle::open(out);
        let earlier = EarlierRun::of(&bundle)?;
        if earlier.journal().is_none() && federation.spec.pause {
            change_queue.ask([Change::Pause(true)], None);
        }
        let run = earlier.journal().map_or_else(identity, |it| Ok(it.run().to_owned()))?;
        let awaited = awaited_clusters(&federation.spec);
        let run_state = RunState::new(run.clone(), setup.names.clone(), awaited, place_registry.clone());
        let note = earlier.journal().and_then(JournalContents::note);
        let amender = Amender::new(federation, note, change_queue.clone());
        if let Some(newest) = amender.newest() {
            run_state.amended(newest);
        }
        let api = ApiState {
            key: key::read(&arguments.key_file)?,
            token,
            reader_token: key::reader_token(&arguments.key_file)?,
            names: setup.names.clone(),
            place_registry: place_registry.clone(),
            run_state: run_state.clone(),
            amender,
            sum: sum.clone(),
            page: SharedPage::new(api::FRESH),
            dir: out.clone(),
            facts_readers: Arc::new(Semaphore::new(api::FACTS_READERS)),
        };
        let session = Session::new(federation).of_text(text, SystemTime::now());
        let draft = session.draft(BackendKind::Kubernetes).map_err(CommandError::input)?;
        sum.describe(RunInfo::of(&draft));
        let run_recorder = run_state.keep(&draft);
        // A resumed run must never be reported as not started.
        match &earlier {
            EarlierRun::Finished => run_state.judging(),
            EarlierRun::Unfinished(..) => run_state.resumed(),
            EarlierRun::NotBegun => {}
        }
        serve(arguments.api, api)?;
        let (begun, past) = match earlier {
            EarlierRun::Finished => {
                let recording = Recording::read(&bundle).map_err(|it| it.to_string());
                return conclude(recording, &bundle, &run_state, &sum, &ended);
            }
            EarlierRun::Unfinished(_, Err(why)) => {
                return conclude(Err(why), &bundle, &run_state, &sum, &ended);
            }
            EarlierRun::Unfinished(manifest, Ok(past)) => (Some(manifest), Some(past)),
            EarlierRun::NotBegun => {
                begin_record(&bundle)?;
                (None, None)
            }
        };
        let mut pods = Pods {
            run,
            keys,
            replace_after: federation.spec.failures().replace_after().into(),
            listen: arguments.listen,
            sum: sum.clone(),
            past,
            change_queue,
            place_registry,
            run_recorder,
            ended: ended.clone(),
        };
        let recording = match session.resumed(begun.as_deref()).record_setup(&setup, &bundle, &mut pods) {
            Ok(run) => Ok(run.judge()),
            // A restarted program will resume the run.
            Err(SessionError::Backend(RunError::Left)) => return Ok(()),
            Err(SessionError::Backend(error)) => Err(error.to_string()),
            Err(error) => return Err(CommandError::machine(error)),
        };
        conclude(recording, &bundle, &run_state, &sum, &ended)
    }
}

/// The run whose record a supervisor finds when it starts.
enum EarlierRun {
    /// There is no record, or the application had not begun.
    NotBegun,
    /// The run can be resumed, unless its journal is lost.
    Unfinished(Box<Manifest>, Result<JournalContents, String>),
    Finished,
}

impl EarlierRun {
    fn of(bundle: &Bundle) -> Result<EarlierRun, CommandError> {
        if !begun(bundle)? {
            return Ok(EarlierRun::NotBegun);
        }
        let manifest = bundle.read_manifest().map_err(CommandError::machine)?;
        if manifest.outcome.is_some() {
            return Ok(EarlierRun::Finished);
        }
        Ok(EarlierRun::Unfinished(Box::new(manifest), read_journal(bundle.dir())))
    }

    /// Returns the journal from which the run is to be resumed.
    fn journal(&self) -> Option<&JournalContents> {
        match self {
            EarlierRun::Unfinished(_, journal) => journal.as_ref().ok(),
            EarlierRun::NotBegun | EarlierRun::Finished => None,
        }
    }
}

/// Runs a federation at the places in its registry.
struct Pods {
    /// Identifier of the run.
    run: String,
    keys: Keys,
    replace_after: Duration,
    listen: SocketAddr,
    sum: Sum,
    /// Journal of an earlier supervisor of the same run.
    past: Option<JournalContents>,
    change_queue: ChangeQueue,
    place_registry: PlaceRegistry,
    run_recorder: RunRecorder,
    ended: Arc<AtomicBool>,
}

impl Backend for Pods {
    type Error = RunError;

    fn kind(&self) -> BackendKind {
        BackendKind::Kubernetes
    }

    fn run<N: Hosted>(&mut self, begun: PreparedRun<'_, N>) -> Result<(RunEnd, Option<Trace>), RunError> {
        let PreparedRun { setup, .. } = begun;
        let remote = RemoteOptions {
            run: self.run.clone(),
            keys: self.keys.clone(),
            replace_after: self.replace_after,
            listen: self.listen,
            sum: self.sum.clone(),
        };
        let (interrupted, change_queue) = (self.ended.clone(), self.change_queue.clone());
        let mut options = RunOptions { interrupted, change_queue, ..run_options(&begun) };
        // The client that provides the places reports what prevents the start, and a user may be able to
        // remove the cause.
        options.supervisor.start_within = None;
        let run =
            remote::run(remote, options, self.past.take(), &self.place_registry, &mut self.run_recorder)?;
        self.sum.over();
        let run_state = self.run_recorder.run_state();
        run_state.judging();
        let (ended, collapsed) = ended(run);
        for it in collapsed {
            let name = setup.names.process(it.process);
            let output = match it.last_output.trim() {
                "" => String::new(),
                output => format!("; its last output: {output}"),
            };
            let text = format!("{name}, {}, ended unexpectedly: {}{output}", it.life, it.status);
            run_state.note(warning("EndedUnexpectedly", text));
        }
        Ok((ended, None))
    }
}

/// Returns a unique identifier for a run.
fn identity() -> Result<String, CommandError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| CommandError::machine(format!("cannot generate random bytes: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates and locks the directory of the record. If another supervisor still writes to it, as one whose pod was deleted
/// without a grace period may do for some seconds, waits until that supervisor has ended: what it still writes would be
/// missing from the resumed run. Returns `None` after a termination signal. Where the file system supports no locks, this
/// function only creates the directory.
fn lock(dir: &Path, ended: &AtomicBool) -> Result<Option<File>, CommandError> {
    let open = || fs::create_dir_all(dir).and_then(|()| File::open(dir));
    let file =
        open().map_err(|error| CommandError::machine(format!("cannot open {}: {error}", dir.display())))?;
    let mut is_waiting = false;
    while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        if ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if !is_waiting {
            is_waiting = true;
            warn!(dir = %dir.display(), "waiting until the other supervisor that writes this record has ended");
        }
        thread::sleep(SIGNAL_CHECK_EVERY);
    }
    Ok(Some(file))
}

/// Reads the supervisor's journal for a run that has already started.
fn read_journal(out: &Path) -> Result<JournalContents, String> {
    let past = JournalContents::of(out).map_err(|error| format!("cannot resume the run: {error}"))?;
    past.ok_or_else(|| "cannot resume the run: it has no journal".to_owned())
}

/// Returns whether the directory contains the record of a run whose application had started.
fn begun(bundle: &Bundle) -> Result<bool, CommandError> {
    // The supervisor's facts are enough. Those of all processes may not fit into memory.
    let path = bundle.facts_path(ProcessId::SUPERVISOR, Life(0));
    if !path.exists() {
        return Ok(false);
    }
    let facts = fs::read(&path).map(|it| read_facts(&it));
    let facts =
        facts.map_err(|error| CommandError::machine(format!("cannot read {}: {error}", path.display())))?;
    Ok(facts.is_ok_and(|it| it.stream.iter().any(|(_, fact)| *fact == Fact::Begun)))
}

/// Creates the record of a new run.
fn begin_record(bundle: &Bundle) -> Result<(), CommandError> {
    if bundle.holds_a_run() {
        // The application has not begun, so the run can start from the beginning.
        bundle.clear().map_err(CommandError::machine)?;
    }
    Bundle::create(bundle.dir()).map(drop).map_err(CommandError::input)
}

/// Serves the API, and prints its address.
fn serve(address: SocketAddr, api: ApiState) -> Result<(), CommandError> {
    let address = api::serve(address, api)
        .map_err(|error| CommandError::machine(format!("cannot serve the API on {address}: {error}")))?;
    // The reader of standard output may have closed it.
    drop(writeln!(io::stdout(), "{address}"));
    Ok(())
}

/// Reports the judgement, or the reason why there is none, and waits for a termination signal while the API serves the
/// record.
fn conclude(
    recording: Result<Recording, String>,
    bundle: &Bundle,
    run_state: &RunState,
    sum: &Sum,
    ended: &AtomicBool,
) -> Result<(), CommandError> {
    match recording {
        Err(why) => {
            sum.failed();
            run_state.failed(why);
        }
        Ok(Recording { manifest, trace, judgement }) => {
            let dir = bundle.dir().display().to_string();
            let recorded =
                RecordedRun { bundle: &dir, manifest: &manifest, trace: &trace, judgement: &judgement };
            let summary = Summary::new(recorded);
            let (verdict, shown) = match summary.verdict {
                Verdict::Pass => (supervision::RunVerdict::Pass, VerdictLabel::Pass),
                Verdict::Unknown => (supervision::RunVerdict::Unknown, VerdictLabel::Unknown),
                Verdict::Fail => (supervision::RunVerdict::Fail, VerdictLabel::Fail),
            };
            sum.judged(shown);
            run_state.judged(verdict, summary.reasons, &manifest);
        }
    }
    wait_for_signal(ended);
    Ok(())
}

fn wait_for_signal(ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(SIGNAL_CHECK_EVERY);
    }
}

fn warning(reason: &'static str, text: String) -> ReportedEvent {
    ReportedEvent { reason, warning: true, text }
}
