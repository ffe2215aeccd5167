//! Reads the record of a run in progress, and derives what its page shows.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use faultline_core::Progress;
use faultline_report::now::Progressing;
use faultline_report::page::live::{self, Update};
use faultline_report::summary::RecordedRun;
use faultline_session::Recording;
use faultline_trace::duration::rough;
use faultline_trace::manifest::LinkEntry;
use faultline_trace::{Bundle, BundleError, Follower, Manifest, shell_word};
use tracing::debug;

use crate::{Run, Stage};

/// The interval between two looks at the record.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A page is derived from all facts. At most this share of the time is spent on that.
const SHARE: u32 = 10;
/// The maximum number of facts of a run in progress that are read.
const MOST_FACTS: u64 = 1_000_000;
/// The time over which the pace of a run is measured, at most and at least.
const PACE: Duration = Duration::from_secs(10);
const LEAST_PACE: Duration = Duration::from_secs(3);
/// Time without a new fact after which the run may have been killed.
const QUIET: Duration = Duration::from_secs(10);

/// What the supervisor of a run knows, apart from facts.
#[derive(Clone, Debug, Default)]
pub struct SharedStatus(Arc<Mutex<Status>>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Status {
    /// The progress of each cluster.
    progress: Vec<Progress>,
    /// The links as measured; empty until then.
    links: Vec<LinkEntry>,
}

impl SharedStatus {
    /// Replaces the progress of each cluster.
    pub fn set(&self, progress: impl Iterator<Item = Progress>) {
        let known = &mut self.lock().progress;
        known.clear();
        known.extend(progress);
    }

    /// Replaces the links as measured.
    pub fn set_links(&self, links: &[LinkEntry]) {
        self.lock().links = links.to_vec();
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The progress of the last seconds, from which the time that is left is estimated.
#[derive(Default)]
struct Pace(VecDeque<(Instant, Vec<Progress>)>);

impl Pace {
    /// Takes note of the progress. Returns the time that each cluster needs to finish; `None` if it is unknown.
    fn left(&mut self, now: Instant, progress: &[Progress]) -> Vec<Option<Duration>> {
        while self.0.front().is_some_and(|it| now - it.0 > PACE) {
            self.0.pop_front();
        }
        let since = self.0.front().filter(|it| now - it.0 >= LEAST_PACE);
        let left = progress.iter().enumerate().map(|(cluster, it)| {
            let (at, before) = since?;
            let done = it.done.checked_sub(before.get(cluster)?.done).filter(|it| *it > 0)?;
            let left = it.total.checked_sub(it.done).filter(|left| *left > 0)?;
            Some((now - *at).mul_f64(left as f64 / done as f64))
        });
        let left = left.collect();
        self.0.push_back((now, progress.to_vec()));
        left
    }
}

/// The record of a run in progress.
#[derive(Debug)]
pub struct Feed {
    bundle: Bundle,
    /// What the supervisor knows, if this program runs the federation. It then also says when the run has ended.
    status: Option<SharedStatus>,
}

impl Feed {
    /// Follows a run of this program until [`Server::show`](crate::Server::show) is called.
    pub fn of_own_run(bundle: Bundle, status: SharedStatus) -> Feed {
        Feed { bundle, status: Some(status) }
    }

    /// Follows a run of another program until its record has an outcome.
    pub fn of_record(bundle: Bundle) -> Feed {
        Feed { bundle, status: None }
    }

    /// Follows the run.
    pub(crate) fn run(self, run: &Run) {
        if let Err(error) = self.follow(run) {
            debug!(%error, "cannot follow the run");
            run.show(live::message("The run cannot be shown", &error.to_string(), false));
        }
    }

    fn follow(&self, run: &Run) -> Result<(), BundleError> {
        let manifest = loop {
            match self.bundle.read_manifest() {
                Ok(manifest) => break Arc::new(manifest),
                // The run may not have begun.
                Err(_) if run.is_over() => return Ok(()),
                Err(error) if !self.bundle.is_claimed_only() && !is_missing(&error) => return Err(error),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        };
        if self.status.is_none() && !is_in_progress(&self.bundle)? {
            return self.judge(run);
        }
        self.change_to(run, Stage::Running(manifest.clone()));
        let mut follower = Follower::new(self.bundle.clone(), &manifest, MOST_FACTS);
        let (mut known, mut grown, mut said) = (Status::default(), Instant::now(), 0);
        let mut pace = Pace::default();
        while !run.is_over() {
            let looked = Instant::now();
            if self.has_ended(grown.elapsed())? {
                return self.judge(run);
            }
            if !run.is_watched() {
                grown = Instant::now();
                thread::sleep(LOOK_EVERY);
                continue;
            }
            let status = self.status.as_ref().map(|it| it.lock().clone()).unwrap_or_default();
            let left = pace.left(looked, &status.progress);
            let is_new = follower.read()?;
            if is_new {
                grown = Instant::now();
            }
            let quiet = grown.elapsed().as_secs();
            if is_new || status != known || quiet != said {
                let manifest = match &status.links[..] {
                    [] => manifest.clone(),
                    links => Arc::new(Manifest {
                        links: manifest.links.iter().chain(links).cloned().collect(),
                        ..Manifest::clone(&manifest)
                    }),
                };
                let update =
                    self.update(&follower, &manifest, (&status.progress, &left), Duration::from_secs(quiet));
                run.shown.send_modify(|it| it.update = Arc::new(update));
                (known, said) = (status, quiet);
            }
            thread::sleep(LOOK_EVERY.max(looked.elapsed() * (SHARE - 1)));
        }
        Ok(())
    }

    fn update(
        &self,
        follower: &Follower,
        manifest: &Manifest,
        (progress, left): (&[Progress], &[Option<Duration>]),
        quiet: Duration,
    ) -> Update {
        let mut run = Progressing::new(follower.trace(), manifest, progress);
        if run.now.phase == "running" {
            for (cluster, left) in run.now.clusters.iter_mut().zip(left) {
                if let Some(left) = left {
                    let _ = write!(cluster.text, ", about {} left", rough(left.as_secs_f64().ceil()));
                }
            }
        }
        if follower.is_full() {
            run.now.sentence = format!(
                "The run continues. This page shows its first {MOST_FACTS} facts; the report will show all of them."
            );
        } else if self.status.is_none() && quiet >= QUIET && run.now.phase != "paused" {
            run.now.sentence = format!(
                "The record has not grown for {} s. If the run was killed, `faultline check {}` judges it.",
                quiet.as_secs(),
                shell_word(&self.bundle.dir().display().to_string())
            );
        }
        Update::new(&run, manifest)
    }

    /// Returns whether the run has ended, or was killed.
    fn has_ended(&self, quiet: Duration) -> Result<bool, BundleError> {
        if self.status.is_some() {
            return Ok(false);
        }
        let was_killed = || quiet >= QUIET && self.bundle.is_locked() == Some(false);
        Ok(self.bundle.read_manifest()?.outcome.is_some() || was_killed())
    }

    fn judge(&self, run: &Run) -> Result<(), BundleError> {
        let page = report(&self.bundle)?;
        run.show(page);
        Ok(())
    }

    /// Changes the stage, unless the run is over.
    fn change_to(&self, run: &Run, stage: Stage) {
        run.shown.send_modify(|it| {
            if !matches!(it.stage, Stage::Over(_)) {
                it.stage = stage;
            }
        });
    }
}

fn is_missing(error: &BundleError) -> bool {
    matches!(error, BundleError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// Judges the run in a bundle, and returns its report.
///
/// # Errors
///
/// Fails if the record cannot be read.
pub fn report(bundle: &Bundle) -> Result<String, BundleError> {
    let Recording { manifest, trace, judgement } = Recording::read(bundle)?;
    let dir = bundle.dir().display().to_string();
    let recorded = RecordedRun { bundle: &dir, manifest: &manifest, trace: &trace, judgement: &judgement };
    Ok(live::report(recorded))
}

/// Returns whether the run in a bundle is in progress, as far as its files show: it has no outcome, and a program writes
/// to the directory, or a file changed a short time ago.
///
/// # Errors
///
/// Fails if the manifest cannot be read.
pub fn is_in_progress(bundle: &Bundle) -> Result<bool, BundleError> {
    if bundle.is_claimed_only() {
        return Ok(bundle.is_locked() != Some(false));
    }
    Ok(is_unfinished(bundle, &bundle.read_manifest()?))
}

/// Works like [`is_in_progress`], with the manifest of the bundle.
pub(crate) fn is_unfinished(bundle: &Bundle, manifest: &Manifest) -> bool {
    let is_quiet = || {
        let written = bundle.last_written();
        written.is_some_and(|it| SystemTime::now().duration_since(it).unwrap_or_default() >= QUIET)
    };
    manifest.outcome.is_none() && (bundle.is_locked() == Some(true) || !is_quiet())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_pace_of_the_last_seconds() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut left = |seconds: u64, done: u64| {
            let progress = [Progress { done, total: 100 }, Progress { done, total: 0 }];
            pace.left(start + Duration::from_secs(seconds), &progress)
        };
        assert_eq!(left(0, 0), [None, None]);
        assert_eq!(left(1, 50), [None, None], "too early");
        assert_eq!(left(4, 80), [Some(Duration::from_secs(1)), None]);
        assert_eq!(left(12, 80), [None, None], "no progress since 4 s");
        assert_eq!(left(13, 85), [Some(Duration::from_secs(27)), None]);
        assert_eq!(left(14, 100), [None, None]);
    }
}
