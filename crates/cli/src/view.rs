//! `faultline view`, and the page of `faultline run --view`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use faultline_api::Federation;
use faultline_console::page::{self, started};
use faultline_console::recording::{HELP, located, unusable};
use faultline_core::{Fact, Progress, Span, Time};
use faultline_report::page::live;
use faultline_report::text;
use faultline_runtime::supervise::ChangeQueue;
use faultline_supervisor::Status;
use faultline_trace::manifest::LinkEntry;
use faultline_trace::{Bundle, Manifest};
use faultline_view::feed::{Feed, is_in_progress};
use faultline_view::{Control, Server};

use crate::arguments::ViewArguments;
use crate::command_error::{CommandError, Exit};
use crate::interrupt;
use crate::output::note;
use crate::recording::LocatedRecording;

/// Time from a request until an added fault is due.
const DUE_AFTER: Span = Span::from_millis(300);

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

/// The page of a run of this program.
pub(crate) struct RunPage {
    page: page::RunPage,
    pub(crate) change_queue: ChangeQueue,
}

impl RunPage {
    /// Opens the page of a run that is about to begin, and prints its addresses. `is_real` tells whether the run has real
    /// processes. Only then can it be followed and changed.
    pub(crate) fn open(
        address: Option<SocketAddr>,
        federation: &Federation,
        seed: u64,
        is_real: bool,
    ) -> Result<RunPage, CommandError> {
        let change_queue = ChangeQueue::default();
        let mut federation = federation.clone();
        federation.spec.seed = Some(seed);
        let queue = change_queue.clone();
        let control = is_real.then(|| {
            Control::new(federation, DUE_AFTER, move |_, changes| {
                queue.ask(changes, None);
                Ok(())
            })
        });
        let page = page::RunPage::open(address, "--view", control)?;
        page.announce();
        Ok(RunPage { page, change_queue })
    }

    /// Shows the run while it is recorded in a bundle.
    pub(crate) fn follow(&self, bundle: &Bundle) -> io::Result<()> {
        self.page.server.follow(Feed::of_own_run(bundle.clone(), self.page.status.clone()))
    }

    /// Takes note of a fact that the supervisor recorded.
    pub(crate) fn recorded(&self, at: Time, fact: &Fact) {
        self.page.server.control().into_iter().for_each(|it| it.recorded(at, fact));
    }

    /// Takes note of the measurements of links.
    pub(crate) fn measured(&self, links: &[LinkEntry]) {
        self.page.status.set_links(links);
    }

    /// Takes note of the supervisor's status.
    pub(crate) fn status(&self, now: Time, status: &Status) {
        self.page.server.control().into_iter().for_each(|it| it.passed(now));
        self.page.status.set(status.clusters.iter().map(|it| it.progress));
    }

    /// Shows the status of a run in virtual time.
    pub(crate) fn simulated(&self, manifest: &Manifest, now: Time, status: &Status) {
        let clusters = manifest.clusters.iter().zip(&status.clusters).map(|(named, it)| {
            let Progress { done, total } = it.progress;
            match total {
                0 => format!("{}: {} of {} processes are up", named.name, it.up, it.processes),
                _ => format!("{}: {} %", named.name, (100 * done.min(total)) / total),
            }
        });
        let clusters = clusters.collect::<Vec<_>>().join(", ");
        let passed = text::span(now.as_secs_f64());
        let text =
            format!("{passed} of virtual time have passed. {clusters}. The report follows at this address.");
        self.page.server.say(&format!("{} is being simulated", manifest.name), &text);
    }

    /// Shows the report of the run, which has ended.
    pub(crate) fn show(&self, recording: &LocatedRecording) {
        self.page.show(recording);
    }

    /// Serves the report for as long as the user reads it.
    pub(crate) fn serve(&self, interrupted: &AtomicBool) {
        self.page.serve(interrupted);
    }
}
