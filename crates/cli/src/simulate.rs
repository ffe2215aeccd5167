//! The `simulate` backend with its live view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultline_catalog::LoggedLine;
use faultline_core::{Fact, ProcessId, Time};
use faultline_report::explain::count;
use faultline_session::{ComputeExpected, SimulationObserver, SimulationView};
use faultline_trace::manifest::Expected;
use faultline_trace::{Bundle, Manifest, Record, printable};

use crate::interrupt;
use crate::live::{Live, View};
use crate::output;
use crate::view::RunPage;

/// The minimum real time between two updates.
const UPDATE_EVERY: Duration = Duration::from_millis(100);

/// The maximum number of lines of programs that are shown.
const MOST_SHOWN: usize = 1000;

/// Shows a simulation while it runs, and ends it if the user interrupts it.
pub(crate) struct Watched<'a> {
    view: View<'a>,
    live: Option<Live>,
    page: Option<Arc<RunPage>>,
    manifest: Option<Manifest>,
    /// What the programs of the run wrote to standard error, if it is shown, and the number of lines that are not.
    logged: Vec<String>,
    not_shown: usize,
    interrupted: &'a AtomicBool,
    updated: Instant,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(
        view: View<'a>,
        page: Option<Arc<RunPage>>,
        interrupted: &'a AtomicBool,
    ) -> Watched<'a> {
        Watched {
            view,
            live: None,
            page,
            manifest: None,
            logged: Vec::new(),
            not_shown: 0,
            interrupted,
            updated: Instant::now(),
        }
    }

    /// Ends the view, and shows what programs wrote to standard error.
    pub(crate) fn finish(self) {
        if let Some(live) = self.live {
            live.finish();
        }
        self.logged.iter().for_each(output::note);
        if self.not_shown > 0 {
            output::note(format_args!(
                "the programs wrote {} more; the record contains them (`{}`)",
                count(self.not_shown as u64, "line"),
                Bundle::LOGS
            ));
        }
    }
}

impl SimulationObserver for Watched<'_> {
    fn begins(&mut self, manifest: &Manifest) {
        self.live = Some(self.view.live(manifest));
        self.manifest = self.page.as_ref().map(|_| manifest.clone());
    }

    fn recorded(&mut self, record: &Record) {
        if record.process == ProcessId::SUPERVISOR || matches!(record.fact, Fact::Claim(_)) {
            let live = self.live.as_mut().expect("the run has begun");
            live.recorded(record.at, record.process, &record.fact);
        }
    }

    fn logged(&mut self, at: Time, line: &LoggedLine) {
        if self.view.output.verbose == 0 {
            return;
        }
        if self.logged.len() == MOST_SHOWN {
            self.not_shown += 1;
            return;
        }
        let live = self.live.as_ref().expect("the run has begun");
        let LoggedLine { process, life, program, text } = line;
        let process = live.process(*process);
        let text = format!("{}  {process} ({program}, {life}): {text}", live.instant(at));
        self.logged.push(printable(&text));
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn continues(&mut self, mut moment: SimulationView<'_>) -> bool {
        if self.updated.elapsed() >= UPDATE_EVERY {
            self.updated = Instant::now();
            let live = self.live.as_mut().expect("the run has begun");
            let status = moment.status();
            live.status(moment.now, &status);
            if let (Some(page), Some(manifest)) = (&self.page, &self.manifest) {
                page.simulated(manifest, moment.now, &status);
            }
        }
        true
    }

    fn expected(&mut self, compute: ComputeExpected) -> Option<Option<Expected>> {
        interrupt::unless_interrupted(self.interrupted, compute)
    }
}
