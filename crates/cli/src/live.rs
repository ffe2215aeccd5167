//! The live view of a run. Shows the run as the supervisor sees it, without judging it.

use std::sync::Arc;

use faultline_api::Federation;
use faultline_catalog::awaited_clusters;
use faultline_core::{ClusterId, Fact, ProcessId, Time};
use faultline_report::events::EventReporter;
use faultline_supervisor::{ClusterStatus, Status};
use faultline_trace::Manifest;
use faultline_trace::manifest::{BackendKind, LinkEntry};

use crate::arguments::OutputArguments;
use crate::screen::{Row, Screen, instant};
use crate::view::RunPage;

/// How the progress of runs is shown.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) federation: &'a Federation,
    pub(crate) output: OutputArguments,
    /// Whether the run is one of many. Such a run is shown only on a terminal.
    pub(crate) of_many: bool,
}

impl View<'_> {
    pub(crate) fn live(self, manifest: &Manifest) -> Live {
        let reporter = EventReporter::new(manifest, awaited_clusters(&self.federation.spec));
        Live { screen: self.screen(manifest), reporter, origin: None, page: None }
    }

    pub(crate) fn screen(self, manifest: &Manifest) -> Screen {
        let protocol = self.federation.spec.protocol.name();
        let on = match manifest.backend {
            BackendKind::Local => "on real processes",
            BackendKind::Simulate => "in virtual time",
            BackendKind::Kubernetes => "in pods",
            BackendKind::Events => "from events",
        };
        let title = format!("{}: {protocol} {on}, seed {}", manifest.name, manifest.seed);
        Screen::new(self.output, self.of_many, title)
    }
}

pub(crate) struct Live {
    screen: Screen,
    reporter: EventReporter,
    origin: Option<Time>,
    /// The page that shows the run, too.
    pub(crate) page: Option<Arc<RunPage>>,
}

impl Live {
    /// Detaches the output from the run, which a terminal that is stopped then does not delay.
    pub(crate) fn detached(self) -> Live {
        Live { screen: self.screen.detached(), ..self }
    }

    /// Shows the event that a fact represents, if any.
    pub(crate) fn recorded(&mut self, at: Time, process: ProcessId, fact: &Fact) {
        if *fact == Fact::Begun {
            self.origin = Some(at);
        }
        if let Some(event) = self.reporter.observe(process, fact) {
            self.screen.show_event(self.seconds(at), &event.text);
        }
    }

    /// Shows a warning before the run starts.
    pub(crate) fn warn(&mut self, text: &str) {
        self.screen.show_event(None, text);
    }

    /// Shows the measurements of links.
    pub(crate) fn measured(&mut self, links: &[LinkEntry]) {
        if let Some(page) = &self.page {
            page.measured(links);
        }
        let event = self.reporter.measured(links);
        self.screen.show_event(None, &event.text);
    }

    /// Shows the current status. Ignores calls that come too soon after the last update.
    pub(crate) fn status(&mut self, now: Time, status: &Status) {
        if !self.screen.is_due() {
            return;
        }
        let state = if status.begun.is_none() { "starting" } else { "running" };
        let clusters = status.clusters.iter().zip(self.reporter.names().clusters());
        let rows: Vec<Row> = clusters.map(|(it, cluster)| self.row(it, cluster)).collect();
        self.screen.show(self.seconds(now), state, &rows);
    }

    /// Ends the view, so that other output can follow.
    pub(crate) fn finish(self) {
        self.screen.finish();
    }

    /// Returns the name of a process.
    pub(crate) fn process(&self, process: ProcessId) -> String {
        self.reporter.names().process(process)
    }

    /// Returns a time as the view shows it.
    pub(crate) fn instant(&self, at: Time) -> String {
        instant(self.seconds(at))
    }

    /// Returns the seconds since the application started; `None` before that.
    fn seconds(&self, at: Time) -> Option<f64> {
        self.origin.map(|origin| at.since(origin).as_secs_f64())
    }

    fn row(&self, status: &ClusterStatus, cluster: ClusterId) -> Row {
        let (checkpoints, forced) = self.reporter.checkpoints(cluster);
        Row {
            name: self.reporter.names().cluster(cluster),
            processes: status.processes,
            up: status.up,
            checkpoints: checkpoints as u32,
            forced: forced as u32,
            done: status.progress.done,
            total: status.progress.total,
        }
    }
}
