//! Runs consecutive seeds on the requested number of threads.

use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use faultline_api::resource::ProtocolSpec;
use faultline_catalog::{Defect, SetupError};
use faultline_console::place::RUNS;
use faultline_fuzz::{
    BLOCK, Coverage, MomentCoverage, Observed, ProtocolName, Scenario, directed_scenario, is_directed,
    repeats, run_until_stopped,
};
use faultline_report::explain::count;
use faultline_sim::in_order;
use faultline_trace::shell_word;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::finding::Finding;
use super::summary::SearchProgress;
use super::{Drawn, print_seed_on_panic};
use crate::arguments::FuzzArguments;
use crate::command_error::CommandError;
use crate::files;
use crate::journal::Head;
use crate::output::{read_file, replace};

/// The interval at which the state of a search is saved, in case the program is killed.
const KEPT_EVERY: Duration = Duration::from_secs(5);

/// The interval between two checks whether the search is over, while no schedule ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time after which a schedule that has not ended is worth mentioning.
const LONG: Duration = Duration::from_secs(10);

/// A search, with its results so far.
pub(super) struct Search<'a> {
    pub(super) arguments: &'a FuzzArguments,
    pub(super) defect: Option<Defect>,
    pub(super) interrupted: &'a AtomicBool,
    pub(super) first_seed: u64,
    pub(super) jobs: NonZero<usize>,
    pub(super) coverage: Coverage,
    /// The number of schedules run before this search was resumed.
    pub(super) before: u64,
    pub(super) took: Duration,
    /// The program under which all schedules run, if the search is for one.
    pub(super) program: Option<ProtocolSpec>,
    /// Whether the state of the search is saved while it runs.
    pub(super) is_kept: bool,
    /// The title shown with the progress.
    pub(super) title: String,
    /// The numbers of schedules that are shown as done before this search and as requested, if it is a piece of another.
    pub(super) within: Option<(u64, u64)>,
    /// The coverage before the schedule whose violation ended the search.
    before_last: Option<Coverage>,
    /// The schedule that had not ended when the search ended, although it had run for a long time.
    unfinished: Option<Unfinished>,
    /// A description of what filled the memory in the first schedule that reached the memory limit since the search was
    /// started or resumed.
    filled_memory: Option<String>,
}

/// A schedule that has not ended.
struct Unfinished {
    seed: u64,
    /// The time since the schedules before it have ended.
    since: Duration,
}

/// Identifies a search when it is resumed. The number of schedules is not part of the identity.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Searched {
    protocol: Option<String>,
    /// Parameters of the protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<(String, serde_json::Value)>,
    defect: Option<String>,
    first_seed: u64,
    twice: u8,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        arguments: &'a FuzzArguments,
        defect: Option<Defect>,
        interrupted: &'a AtomicBool,
    ) -> Search<'a> {
        let cores = || thread::available_parallelism().ok();
        Search {
            arguments,
            defect,
            interrupted,
            first_seed: arguments.seed.unwrap_or(0),
            jobs: arguments.jobs.or_else(cores).unwrap_or(NonZero::<usize>::MIN),
            coverage: Coverage::default(),
            before: 0,
            took: Duration::ZERO,
            program: None,
            is_kept: false,
            title: defect.map(|it| it.to_string()).unwrap_or_default(),
            within: None,
            before_last: None,
            unfinished: None,
            filled_memory: None,
        }
    }

    /// Returns whether the search is for a protocol of the user.
    pub(super) fn is_of_user(&self) -> bool {
        self.program.is_some() || self.arguments.protocol.is_some_and(ProtocolName::is_custom)
    }

    /// Returns why the search ended before all requested schedules had run; `None` if it did not.
    pub(super) fn ended_early(&self) -> Option<String> {
        let runs = self.coverage.runs();
        let (is_short, schedules) = match self.arguments.span {
            Some(span) => (self.took < Duration::from_nanos(span.0.0), count(runs, "schedule")),
            None => (runs < self.arguments.runs, format!("{runs} of {} schedules", self.arguments.runs)),
        };
        let why = match &self.unfinished {
            Some(Unfinished { seed, since }) => format!(
                "the schedule of seed {seed} did not end within {:.0} s; to repeat it: {}",
                since.as_secs_f64(),
                self.command_of(*seed)
            ),
            None if runs == 0 && !is_short => "none ended in this time; use a longer `--for`".to_owned(),
            None if !is_short => return None,
            None if self.interrupted.load(Ordering::Relaxed) => "interrupted".to_owned(),
            None => format!("{} is the last seed; use a smaller `--seed`", u64::MAX),
        };
        Some(format!("the search ended after {schedules}: {why}"))
    }

    /// Returns the command that runs a single schedule.
    fn command_of(&self, seed: u64) -> String {
        format!("faultline fuzz --seed {seed}{}", self.repeat_options())
    }

    /// Returns how many schedules reached the memory limit, if any.
    pub(super) fn out_of_memory(&self) -> Option<String> {
        let limited = self.coverage.out_of_memory();
        (limited > 0).then(|| {
            let first = self.filled_memory.as_ref().map(|it| format!(" (first: {it})")).unwrap_or_default();
            format!(
                "{limited} of {} schedules reached the memory limit{first}; use a larger `--memory`",
                self.coverage.runs()
            )
        })
    }

    /// Describes each outcome that a protocol reached more often than its known rate explains. Returns nothing if a
    /// defect is enabled.
    pub(super) fn unusual(&self) -> Vec<String> {
        if self.defect.is_some() { Vec::new() } else { self.coverage.shares().unusual() }
    }

    /// Describes why the search says too little about a protocol. Returns nothing if a defect is enabled.
    pub(super) fn inconclusive(&self) -> Vec<String> {
        if self.defect.is_some() { Vec::new() } else { self.coverage.shares().inconclusive() }
    }

    /// Runs schedules until the first violation or the requested end. Returns the violation, if any.
    pub(super) fn first(&mut self) -> Result<Option<Observed>, CommandError> {
        let mut found = None;
        let wrong = self.defect.is_some();
        self.each(|observed| {
            let clean = if wrong { observed.decisive_violation().is_none() } else { observed.is_clean() };
            if clean {
                return ControlFlow::Continue(());
            }
            found = Some(observed.clone());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Loads the coverage of an interrupted search, to continue it.
    pub(super) fn resume(&mut self) -> Result<(), CommandError> {
        let path = self.kept();
        let wrong = |why: String| {
            CommandError::path("continue from", &path, why, "omit `--resume` to start from the first seed")
        };
        let text = read_file(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => wrong("no interrupted search has these arguments".to_owned()),
            _ => wrong(error.to_string()),
        })?;
        let (head, coverage): (Head<Searched>, Coverage) =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if head != self.head() {
            return Err(wrong(
                "it belongs to another search: the options or the version of Faultline differs".to_owned(),
            ));
        }
        if !coverage.is_consistent(self.defect.is_some()) {
            return Err(wrong("its numbers contradict each other".to_owned()));
        }
        self.coverage = coverage;
        self.before = self.coverage.runs();
        Ok(())
    }

    /// Writes the coverage of an interrupted search to its file, and returns a message that says how to continue. The
    /// file of a search that was interrupted while it shrank a violation does not contain the violating schedule, so
    /// that a resumed search finds the violation again. Removes the file after any other search.
    pub(super) fn keep(&self, finding: Option<&Finding>) -> Result<Option<String>, CommandError> {
        let path = self.kept();
        let wrong = |error: io::Error| {
            CommandError::writing("write", &path, &error, "run the command in a writable directory")
        };
        let is_interrupted = self.interrupted.load(Ordering::Relaxed) && self.ended_early().is_some();
        let (coverage, text) = match (finding, &self.before_last) {
            (Some(finding), Some(before)) if finding.is_interrupted => (
                before,
                "to find the violation again and shrink it from the start, run the same command with `--resume`",
            ),
            (None, _) if is_interrupted => {
                (&self.coverage, "to continue, run the same command with `--resume`")
            }
            _ => return remove(&path).map(|()| None).map_err(wrong),
        };
        write(&path, &self.head(), coverage).map_err(wrong)?;
        Ok(Some(format!("interrupted: the coverage is kept in {}; {text}", path.display())))
    }

    /// Returns the file of an interrupted search. Searches with different parameters have different files.
    pub(super) fn kept(&self) -> PathBuf {
        let Searched { protocol, defect, set, first_seed, .. } = self.searched();
        let set = set
            .iter()
            .map(|(name, value)| format!("{name}-{value}").replace(|it: char| !it.is_alphanumeric(), "-"));
        let of = protocol.into_iter().chain(defect).chain(set).map(|it| it + "-").collect::<String>();
        Path::new(RUNS).join(format!("fuzz-{of}{first_seed}.interrupted"))
    }

    fn head(&self) -> Head<Searched> {
        Head::of(self.searched())
    }

    /// Returns the first line of the results of a part.
    pub(super) fn head_of_parts(&self) -> Head<Searched> {
        let Searched { protocol, set, defect, first_seed, twice } = self.searched();
        let set = set.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        let options = [
            ("--protocol", protocol),
            ("--set", (!set.is_empty()).then(|| set.join(" --set "))),
            ("--defect", defect),
            ("--seed", Some(first_seed.to_string())),
            ("--twice", Some(twice.to_string())),
            ("--runs", Some(self.arguments.runs.to_string())),
        ];
        self.head().of_parts(options.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }

    fn searched(&self) -> Searched {
        Searched {
            protocol: self
                .program
                .as_ref()
                .map_or_else(|| self.arguments.protocol.map(|it| it.name()), |it| Some(it.name()))
                .map(str::to_owned),
            set: self.arguments.set.clone(),
            defect: self.defect.map(|it| it.to_string()),
            first_seed: self.first_seed,
            twice: self.arguments.twice(),
        }
    }

    /// Returns the options that, together with a seed, repeat one run of the search.
    fn repeat_options(&self) -> String {
        let mut options = String::from(" --runs 1");
        if let Some(protocol) = self.arguments.protocol {
            options += &format!(" --protocol {}", protocol.name());
        }
        if let Some(program) = &self.arguments.program {
            options += &format!(" --program {}", shell_word(&program.display().to_string()));
        }
        if let Some(defect) = self.defect {
            options += &format!(" --defect {defect}");
        }
        let set =
            |(name, value): &(String, Value)| format!(" --set {}", shell_word(&format!("{name}={value}")));
        options.extend(self.arguments.set.iter().map(set));
        options
    }

    /// Returns the function that runs the schedule of a seed. A panic of this function prints the seed.
    fn schedule(
        &self,
    ) -> impl Fn(u64, &MomentCoverage) -> Result<Observed, SetupError> + Send + Sync + 'static + use<> {
        let (arguments, defect) = (self.arguments, self.defect);
        let is_custom = self.is_of_user();
        let is_directed = move |seed| defect.is_none() && !is_custom && is_directed(seed);
        let options = self.repeat_options();
        print_seed_on_panic(move |seed| (!is_directed(seed)).then(|| options.clone()));
        let (protocol, twice) = (arguments.protocol, arguments.twice());
        let drawn = Drawn::new(arguments, self.program.as_ref(), defect);
        move |seed, steering| {
            if is_directed(seed) {
                let scenario = directed_scenario(seed, protocol, steering)?;
                let observed = observe(scenario.clone(), twice)?;
                return Ok(observed.of_directed(scenario));
            }
            observe(drawn.scenario(seed), twice)
        }
    }

    /// Calls `take` with the observation of each run, in the order of the seeds.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(&Observed) -> ControlFlow<()>,
    ) -> Result<(), CommandError> {
        let arguments = self.arguments;
        let begun = Instant::now();
        let runs = if arguments.span.is_some() { u64::MAX } else { arguments.runs };
        let begin = self.first_seed.saturating_add(self.before);
        let left = runs.saturating_sub(self.before);
        let mut ticker = SearchProgress::new(arguments, self.before, &self.title).within(self.within);
        let work = Arc::new(self.schedule());
        let kept = self.is_kept.then(|| (self.kept(), self.head()));
        let mut kept_at = begun;
        let (coverage, interrupted) = (&mut self.coverage, self.interrupted);
        let (before_last, filled_memory) = (&mut self.before_last, &mut self.filled_memory);
        let is_over = || {
            let is_late = arguments.span.is_some_and(|it| begun.elapsed() >= Duration::from_nanos(it.0.0));
            is_late || interrupted.load(Ordering::Relaxed)
        };
        let mut take_next = |observed: Result<Observed, SetupError>, coverage: &mut Coverage| {
            if interrupted.load(Ordering::Relaxed) {
                // The interruption may have ended this schedule.
                return ControlFlow::Break(None);
            }
            let observed = match observed {
                Ok(observed) => observed,
                Err(error) => return ControlFlow::Break(Some(error)),
            };
            let is_last = take(&observed).is_break();
            if filled_memory.is_none() {
                filled_memory.clone_from(&observed.filled_memory);
            }
            if is_last {
                *before_last = Some(coverage.clone());
            }
            if let Some((path, head)) = &kept
                && (is_last || kept_at.elapsed() >= KEPT_EVERY)
            {
                // An error is ignored here. The write at the end of the search reports it.
                drop(write(path, head, coverage));
                kept_at = Instant::now();
            }
            coverage.add(&observed);
            ticker.tick(coverage);
            if is_last || is_over() {
                return ControlFlow::Break(None);
            }
            ControlFlow::Continue(())
        };
        let mut flow = ControlFlow::Continue(());
        let (mut next, mut left) = (Some(begin), left);
        while let Some(from) = next.filter(|_| left > 0 && flow.is_continue()) {
            let count = left.min(BLOCK - coverage.runs() % BLOCK);
            let steering = coverage.steering().clone();
            let seeds = (from..=u64::MAX).take(usize::try_from(count).unwrap_or(usize::MAX));
            let work = work.clone();
            let work = move |seed| work(seed, &steering);
            let mut ended_at = Instant::now();
            let mut ended = 0;
            flow = unless(is_over, self.jobs, seeds, work, |observed| {
                (ended_at, ended) = (Instant::now(), ended + 1);
                take_next(observed, coverage)
            })
            .unwrap_or_else(|| {
                let since = ended_at.elapsed();
                self.unfinished = (since >= LONG).then_some(Unfinished { seed: from + ended, since });
                ControlFlow::Break(None)
            });
            (next, left) = (from.checked_add(count), left - count);
        }
        drop(ticker);
        self.took = begun.elapsed();
        match flow {
            ControlFlow::Break(Some(error)) => Err(files::unfit(error)),
            _ => Ok(()),
        }
    }
}

/// Applies `work` to `seeds` on other threads, and passes the results to `take` in the order of the seeds. Returns
/// `None` if `is_over` returns `true` before all results are available. Schedules that have not ended by then are
/// abandoned, because a defective protocol may never return. Their threads end with them or with the program.
fn unless<R: Send + 'static, B: Send + 'static>(
    is_over: impl Fn() -> bool,
    jobs: NonZero<usize>,
    seeds: impl Iterator<Item = u64> + Send + 'static,
    work: impl Fn(u64) -> R + Send + Sync + 'static,
    mut take: impl FnMut(R) -> ControlFlow<B>,
) -> Option<ControlFlow<B>> {
    let (sender, results) = sync_channel(1);
    let searching = thread::spawn(move || {
        // The receiver is gone once the search is over.
        let send =
            |result| sender.send(result).map_or(ControlFlow::Break(()), |()| ControlFlow::Continue(()));
        let _: ControlFlow<()> = in_order(jobs, seeds, work, send);
    });
    loop {
        match results.recv_timeout(LOOK_EVERY) {
            Ok(result) => {
                let flow = take(result);
                if flow.is_break() {
                    return Some(flow);
                }
            }
            Err(RecvTimeoutError::Timeout) if is_over() => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match searching.join() {
                Ok(()) => return Some(ControlFlow::Continue(())),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

/// Writes the state of a search, replacing an older one.
fn write(path: &Path, head: &Head<Searched>, coverage: &Coverage) -> io::Result<()> {
    let text = serde_json::to_string(&(head, coverage)).expect("a search can be written as JSON");
    fs::create_dir_all(RUNS)?;
    replace(path, &text)
}

/// Removes the state of a search, and its directory if nothing else is in it.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            // Fails if the directory contains the records of other runs.
            drop(fs::remove_dir(RUNS));
            Ok(())
        }
    }
}

/// Runs a scenario, and repeats it if its seed belongs to the share that is run twice.
fn observe(scenario: Scenario, twice: u8) -> Result<Observed, SetupError> {
    let again = scenario.seed % 100 * 61 % 100 < u64::from(twice);
    let trial = run_until_stopped(scenario)?;
    let repeated = if again { repeats(&trial)? } else { None };
    Ok(Observed::new(&trial, repeated))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Searches ten seeds, of which `endless` never ends. Returns the results, and how the search ended.
    fn search(endless: Option<u64>, jobs: usize) -> (Vec<u64>, Option<ControlFlow<()>>) {
        let begun = Instant::now();
        // The schedule ends with this function, so that no thread outlives the test.
        let (keep, kept) = channel::<()>();
        let kept = std::sync::Mutex::new(kept);
        let work = move |seed| {
            if Some(seed) == endless {
                let _ = kept.lock().expect("no thread panics").recv();
            }
            seed
        };
        let mut results = Vec::new();
        let is_over = || begun.elapsed() > Duration::from_millis(300);
        let jobs = NonZero::new(jobs).expect("at least one");
        let flow = unless(is_over, jobs, 0..10, work, |result| {
            results.push(result);
            ControlFlow::Continue(())
        });
        assert!(begun.elapsed() < LONG, "the search waits for a schedule");
        drop(keep);
        (results, flow)
    }

    #[test]
    fn a_search_ends_in_the_middle_of_a_schedule() {
        for jobs in [1, 3] {
            assert_eq!(search(None, jobs), (Vec::from_iter(0..10), Some(ControlFlow::Continue(()))));
            assert_eq!(search(Some(4), jobs), (vec![0, 1, 2, 3], None));
        }
    }

    #[test]
    fn a_violation_ends_a_search() {
        let jobs = NonZero::<usize>::MIN;
        let flow = unless(
            || false,
            jobs,
            0..10,
            |seed| seed,
            |it| {
                if it == 3 { ControlFlow::Break(it) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(flow, Some(ControlFlow::Break(3)));
    }
}
