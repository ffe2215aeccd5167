//! `faultline view`, and the page of `faultline run --view`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use faultline_api::Federation;
use faultline_console::recording::{HELP, located, unusable};
use faultline_core::{Fact, Span, Time};
use faultline_report::page::live;
use faultline_runtime::supervise::ChangeQueue;
use faultline_supervisor::Status;
use faultline_trace::Bundle;
use faultline_trace::manifest::LinkEntry;
use faultline_view::feed::{Feed, SharedStatus, is_in_progress};
use faultline_view::{Control, ServeError, Server};
use miette::miette;

use crate::arguments::ViewArguments;
use crate::command_error::{CommandError, Exit};
use crate::interrupt;
use crate::output::note;
use crate::recording::LocatedRecording;

/// Time from a request until an added fault is due.
const DUE_AFTER: Span = Span::from_millis(300);
/// Time without an open page after which `faultline run --view` ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Executes `faultline view`.
pub(crate) fn view(arguments: &ViewArguments) -> Result<Exit, CommandError> {
    let dir = located(arguments.dir.as_deref())?;
    let bundle = Bundle::open(&dir);
    if dir.is_dir() && !bundle.holds_a_run() {
        let server = started(Server::of_list(arguments.at, &dir), "--at")?;
        note(format_args!("watch: {}", server.address()));
        server.serve(&interrupt::flag(), None);
        return Ok(Exit::Pass);
    }
    let follows = bundle.holds_a_run() && is_in_progress(&bundle).map_err(|it| unusable(&dir, it, HELP))?;
    let recording = (!follows).then(|| LocatedRecording::read(&dir)).transpose()?;
    let server = started(Server::start(arguments.at, None), "--at")?;
    match recording {
        Some(recording) => {
            recording.warn();
            server.show(live::report(recording.recorded()));
        }
        None => server.follow(Feed::of_record(bundle)).map_err(|error| CommandError::of_machine(&error))?,
    }
    note(format_args!("watch: {}", server.address()));
    server.serve(&interrupt::flag(), None);
    Ok(Exit::Pass)
}

/// Returns a server, or the error; `option` is the option with the address.
fn started(server: Result<Server, ServeError>, option: &str) -> Result<Server, CommandError> {
    server.map_err(|error| match error.help(option) {
        Some(help) => CommandError::input(miette!(help = help, "{error}")),
        None => CommandError::of_machine(&error),
    })
}

/// The page of a run of this program.
pub(crate) struct RunPage {
    server: Server,
    progress: SharedStatus,
    pub(crate) change_queue: ChangeQueue,
}

impl RunPage {
    /// Opens the page of a run that is about to begin, and prints its addresses.
    pub(crate) fn open(
        address: Option<SocketAddr>,
        federation: &Federation,
        seed: u64,
    ) -> Result<RunPage, CommandError> {
        let change_queue = ChangeQueue::default();
        let mut federation = federation.clone();
        federation.spec.seed = Some(seed);
        let queue = change_queue.clone();
        let control = Control::new(federation, DUE_AFTER, move |_, changes| {
            queue.ask(changes, None);
            Ok(())
        });
        let server = started(Server::start(address, Some(control)), "--view")?;
        note(format_args!("watch:   {}", server.address()));
        if let Some(address) = server.control_address() {
            note(format_args!("control: {address}"));
        }
        Ok(RunPage { server, progress: SharedStatus::default(), change_queue })
    }

    /// Shows the run while it is recorded in a bundle.
    pub(crate) fn follow(&self, bundle: &Bundle) -> io::Result<()> {
        self.server.follow(Feed::of_own_run(bundle.clone(), self.progress.clone()))
    }

    /// Takes note of a fact that the supervisor recorded.
    pub(crate) fn recorded(&self, at: Time, fact: &Fact) {
        self.server.control().into_iter().for_each(|it| it.recorded(at, fact));
    }

    /// Takes note of the measurements of links.
    pub(crate) fn measured(&self, links: &[LinkEntry]) {
        self.progress.set_links(links);
    }

    /// Takes note of the supervisor's status.
    pub(crate) fn status(&self, now: Time, status: &Status) {
        self.server.control().into_iter().for_each(|it| it.passed(now));
        self.progress.set(status.clusters.iter().map(|it| it.progress));
    }

    /// Shows the report of the run, which has ended.
    pub(crate) fn show(&self, recording: &LocatedRecording) {
        self.server.show(live::report(recording.recorded()));
    }

    /// Serves the report for as long as the user reads it.
    pub(crate) fn serve(&self, interrupted: &AtomicBool) {
        note(format_args!(
            "the report is served until Ctrl-C, or until no page has been open for {} s",
            PATIENCE.as_secs()
        ));
        self.server.serve(interrupted, Some(PATIENCE));
    }
}
