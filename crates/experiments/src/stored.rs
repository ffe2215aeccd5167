//! Stored results of runs, from which interrupted work resumes.
//!
//! This module neither reads nor writes files: the caller passes in the stored results, and stores each new one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_catalog::SetupError;
use faultline_sim::in_order;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::part::Part;

/// The stored result of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredResult {
    /// The setting and the form of the result, as returned by [`setting`].
    pub setting: String,
    /// The seed.
    pub seed: u64,
    /// The result, as JSON.
    pub result: Value,
}

/// A result that can be stored as JSON.
pub(crate) trait RunResult: Serialize + DeserializeOwned + Send {
    /// Returns whether the run ended because the program reached its memory limit. Such a result depends on the
    /// machine. It is not stored, so that the run can be repeated with a higher limit.
    fn is_out_of_memory(&self) -> bool;
}

/// The progress after one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunProgress<'a> {
    /// The current setting, as shown to the user.
    pub what: &'a str,
    /// Completed runs of all settings.
    pub done: u64,
    /// Runs of all settings.
    pub total: u64,
    /// Whether the result was already stored, in which case the run took no time.
    pub is_known: bool,
}

/// The results of earlier runs, and the functions that store new ones and report progress.
pub struct ResultStore<'a> {
    known: BTreeMap<(String, u64), Value>,
    save: &'a mut dyn FnMut(&StoredResult),
    report: &'a mut dyn FnMut(RunProgress<'_>),
    interrupted: &'a AtomicBool,
    /// Runs to perform although their results are stored. The results are not stored again.
    repeated: BTreeSet<(String, u64)>,
    /// Perform only this part of the runs.
    part: Option<Part>,
    /// The number of requested runs.
    requested: u64,
    total: u64,
    done: u64,
    out_of_memory: u64,
}

/// Returns the identity of a setting: the form of its results, and a hash of the federation.
#[expect(clippy::missing_panics_doc, reason = "every federation has a JSON form")]
pub fn setting(form: &str, federation: &Federation) -> String {
    let text = serde_json::to_vec(federation).expect("a federation has a JSON form");
    format!("{form}-{}", &blake3::hash(&text).to_hex()[..32])
}

impl<'a> ResultStore<'a> {
    /// Creates a store with the results of earlier runs. `save` receives all new results, except those of
    /// runs that reached the memory limit. `report` receives the progress after every run.
    pub fn new(
        known: Vec<StoredResult>,
        save: &'a mut dyn FnMut(&StoredResult),
        report: &'a mut dyn FnMut(RunProgress<'_>),
        interrupted: &'a AtomicBool,
    ) -> ResultStore<'a> {
        let known = known.into_iter().map(|it| ((it.setting, it.seed), it.result)).collect();
        let (part, requested) = (None, 0);
        ResultStore {
            known,
            save,
            report,
            interrupted,
            repeated: BTreeSet::new(),
            part,
            requested,
            total: 0,
            done: 0,
            out_of_memory: 0,
        }
    }

    /// Lets the store perform only a part of the runs.
    #[must_use]
    pub fn of_part(self, part: Part) -> ResultStore<'a> {
        ResultStore { part: Some(part), ..self }
    }

    /// Lets a run be performed although its result is stored.
    pub(crate) fn repeat(&mut self, form: &str, federation: &Federation, seed: u64) {
        let run = (setting(form, federation), seed);
        if self.known.remove(&run).is_some() {
            self.repeated.insert(run);
        }
    }

    /// Takes the part of this store, because the caller divides its work into larger pieces than runs.
    pub(crate) fn take_part(&mut self) -> Option<Part> {
        self.part.take()
    }

    /// Sets the total number of runs.
    pub(crate) fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Subtracts runs that will not be performed from the total.
    pub(crate) fn skip(&mut self, runs: u64) {
        self.total = self.total.saturating_sub(runs);
    }

    /// Returns the number of completed runs, and the total.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Counts a run if it ended because the program reached its memory limit.
    pub(crate) fn note_memory(&mut self, is_out_of_memory: bool) {
        self.out_of_memory += u64::from(is_out_of_memory);
    }

    /// Returns the number of runs that ended because the program reached its memory limit.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.out_of_memory
    }

    /// Returns the flag that is set when the user interrupts the work.
    pub(crate) fn interrupted(&self) -> &'a AtomicBool {
        self.interrupted
    }

    /// Returns whether the user interrupted the work.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns the results of a federation with these seeds, in ascending order of the seeds. Runs that are not stored
    /// are performed, `jobs` at a time. After an interruption, no further runs are started, and some results may be
    /// missing, as are those that do not belong to the [part](ResultStore::of_part).
    ///
    /// # Errors
    ///
    /// Returns an error if the federation cannot be set up.
    pub(crate) fn results<R: RunResult>(
        &mut self,
        (form, what): (&str, &str),
        federation: &Federation,
        seeds: impl Iterator<Item = u64>,
        jobs: NonZero<usize>,
        make: impl Fn(u64) -> Result<R, SetupError> + Sync,
    ) -> Result<Vec<R>, SetupError> {
        let setting = setting(form, federation);
        let mut results = BTreeMap::new();
        let mut open = Vec::new();
        for seed in seeds {
            let index = self.requested;
            self.requested += 1;
            if self.part.is_some_and(|it| !it.contains(index)) {
                self.skip(1);
                continue;
            }
            let known = self.known.get(&(setting.clone(), seed));
            match known.and_then(|it| serde_json::from_value(it.clone()).ok()) {
                Some(result) => {
                    results.insert(seed, result);
                    self.step(what, true);
                }
                None => open.push(seed),
            }
        }
        let interrupted = self.interrupted;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(results.into_values().collect());
        }
        let work = |seed| Ok((seed, make(seed)?));
        let flow = in_order(jobs, open, work, |made| match made {
            _ if interrupted.load(Ordering::Relaxed) => ControlFlow::Break(None),
            Ok((seed, result)) => {
                let kept = serde_json::to_value(&result).expect("a result has a JSON form");
                let kept = StoredResult { setting: setting.clone(), seed, result: kept };
                if result.is_out_of_memory() {
                    self.out_of_memory += 1;
                } else if !self.repeated.contains(&(setting.clone(), seed)) {
                    (self.save)(&kept);
                }
                // The same setting may be requested again.
                self.known.insert((kept.setting, seed), kept.result);
                self.step(what, false);
                results.insert(seed, result);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Some(error)),
        });
        match flow {
            ControlFlow::Break(Some(error)) => Err(error),
            _ => Ok(results.into_values().collect()),
        }
    }

    /// Counts a completed run.
    pub(crate) fn step(&mut self, what: &str, is_known: bool) {
        self.done += 1;
        (self.report)(RunProgress { what, done: self.done, total: self.total, is_known });
    }
}
