//! Reads the record of a run in progress, and derives what its page shows.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use faultline_core::Progress;
use faultline_report::now::Progressing;
use faultline_report::page::live::{self, Update};
use faultline_report::summary::RecordedRun;
use faultline_session::Recording;
use faultline_trace::{Bundle, BundleError, Follower, Manifest, shell_word};
use tracing::debug;

use crate::{Run, Stage};

/// The interval between two looks at the record.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A page is derived from all facts. At most this share of the time is spent on that.
const SHARE: u32 = 10;
/// The maximum number of facts of a run in progress that are read.
const MOST_FACTS: u64 = 1_000_000;
/// Time without a new fact after which the run may have been killed.
const QUIET: Duration = Duration::from_secs(10);

/// The progress of each cluster of a run, as its supervisor knows it.
#[derive(Clone, Debug, Default)]
pub struct SharedProgress(Arc<Mutex<Vec<Progress>>>);

impl SharedProgress {
    /// Replaces the progress.
    pub fn set(&self, progress: impl Iterator<Item = Progress>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.extend(progress);
    }

    fn get(&self) -> Vec<Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The record of a run in progress.
#[derive(Debug)]
pub struct Feed {
    bundle: Bundle,
    /// The progress, if this program runs the federation. It then also says when the run has ended.
    progress: Option<SharedProgress>,
}

impl Feed {
    /// Follows a run of this program until [`Server::show`](crate::Server::show) is called.
    pub fn of_own_run(bundle: Bundle, progress: SharedProgress) -> Feed {
        Feed { bundle, progress: Some(progress) }
    }

    /// Follows a run of another program until its record has an outcome.
    pub fn of_record(bundle: Bundle) -> Feed {
        Feed { bundle, progress: None }
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
        if self.progress.is_none() && !is_in_progress(&self.bundle)? {
            return self.judge(run);
        }
        self.change_to(run, Stage::Running(manifest.clone()));
        let mut follower = Follower::new(self.bundle.clone(), &manifest, MOST_FACTS);
        let (mut known, mut grown, mut said) = (Vec::new(), Instant::now(), 0);
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
            let progress = self.progress.as_ref().map(SharedProgress::get).unwrap_or_default();
            let is_new = follower.read()?;
            if is_new {
                grown = Instant::now();
            }
            let quiet = grown.elapsed().as_secs();
            if is_new || progress != known || quiet != said {
                let update = self.update(&follower, &manifest, &progress, Duration::from_secs(quiet));
                run.shown.send_modify(|it| it.update = Arc::new(update));
                (known, said) = (progress, quiet);
            }
            thread::sleep(LOOK_EVERY.max(looked.elapsed() * (SHARE - 1)));
        }
        Ok(())
    }

    fn update(
        &self,
        follower: &Follower,
        manifest: &Manifest,
        progress: &[Progress],
        quiet: Duration,
    ) -> Update {
        let mut run = Progressing::new(follower.trace(), manifest, progress);
        if follower.is_full() {
            run.now.sentence = format!(
                "The run continues. This page shows its first {MOST_FACTS} facts; the report will show all of them."
            );
        } else if self.progress.is_none() && quiet >= QUIET && run.now.phase != "paused" {
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
        if self.progress.is_some() {
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
    let is_locked = bundle.is_locked();
    if bundle.is_claimed_only() {
        return Ok(is_locked != Some(false));
    }
    let has_outcome = bundle.read_manifest()?.outcome.is_some();
    let quiet = bundle.last_written().map(|it| SystemTime::now().duration_since(it).unwrap_or_default());
    Ok(!has_outcome && (is_locked == Some(true) || quiet.is_none_or(|it| it < QUIET)))
}
