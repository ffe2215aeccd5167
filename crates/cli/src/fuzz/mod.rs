//! `faultline fuzz`: searches random federations with random faults for schedules that break recovery, and shrinks a
//! violation to a readable size.

mod errata;
mod finding;
mod search;
mod stretches;
mod summary;
mod table;

use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use faultline_api::resource::ProtocolSpec;
use faultline_catalog::{Defect, defect};
use faultline_checker::Verdict;
use faultline_fuzz::{ProtocolName, Scenario, Shares, exercised, run, seed_under_way, stop_when};
use faultline_session::panics::{end_if_violated, is_caught};
use faultline_trace::shell_word;
use miette::miette;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::{Format, FuzzArguments, SimulatedOn};
use crate::command_error::{CommandError, Exit};
use crate::{campaign, files, interrupt, output};
pub(crate) use errata::errata;
use finding::Finding;
use search::Search;

/// Executes `faultline fuzz`.
pub(crate) fn fuzz(arguments: &FuzzArguments) -> Result<Exit, CommandError> {
    if let Some(defect) = arguments.defect {
        available(&format!("fuzz --defect {defect}"))?;
    }
    stretches::check_options(arguments)?;
    if let Some(file) = &arguments.file {
        let federation = files::read(file)?.parse()?;
        let seed = arguments.seed.or(federation.spec.seed).unwrap_or(0);
        let defect = arguments.defect.map(|it| format!(" --defect {it}")).unwrap_or_default();
        let options = format!(" --file {}{defect}", shell_word(&file.display().to_string()));
        print_seed_on_panic(move |_| Some(options.clone()));
        let scenario = Scenario { seed, federation, defect: arguments.defect };
        return one(scenario, arguments.format);
    }
    let program = arguments.program.as_deref().map(program).transpose()?;
    let is_of_user = program.is_some() || arguments.protocol.is_some_and(ProtocolName::is_custom);
    if !arguments.set.is_empty() && !is_of_user {
        return Err(CommandError::input(miette!(
            help = "set the option of a built-in protocol in a file, and use `--file`",
            "`--set` has no effect on a built-in protocol"
        )));
    }
    let interrupted = interrupt::flag();
    stop_when(interrupted.clone());
    if arguments.table {
        return table::table(arguments, &interrupted);
    }
    let mut search = Search::new(arguments, arguments.defect, &interrupted);
    if let Some(part) = arguments.parts.part {
        return stretches::print_part(&search, part, &interrupted);
    }
    let _claim = finding::claim_out(arguments)?;
    search.program.clone_from(&program);
    if arguments.resume {
        search.resume()?;
    }
    let is_divided = stretches::is_divided(arguments);
    let dir = search.kept().with_extension("campaign");
    let found = if is_divided {
        let parts = match arguments.backend {
            SimulatedOn::Simulate => arguments.parts.gather.clone(),
            SimulatedOn::Kubernetes => stretches::perform(&search, &dir, &interrupted)?,
        };
        stretches::first(&mut search, &parts, &interrupted)?
    } else {
        search.is_kept = true;
        search.first()?
    };
    let shrink = |trial| finding::shrink(&trial, arguments, program.as_ref(), &interrupted);
    let finding = found.map(shrink).transpose()?;
    let kept = if is_divided { None } else { search.keep(finding.as_ref())? };
    if is_divided && (finding.is_some() || search.ended_early().is_none()) {
        campaign::remove(&dir)?;
    }
    let is_whole = finding.is_none() && search.ended_early().is_none();
    let warning = match arguments.program.as_deref().filter(|_| is_whole) {
        Some(file) => unexercised(file, &search.coverage.shares())?,
        None => None,
    };
    let report = Report::new(&search, finding.as_ref(), warning);
    output::print(&match arguments.format {
        Format::Json => output::json(&report),
        Format::Text => output::filled(summary::report(&report, arguments)),
    })?;
    kept.iter().for_each(output::note);
    Ok(report.verdict.into())
}

/// Returns the protocol in a file, which must be a program.
fn program(file: &Path) -> Result<ProtocolSpec, CommandError> {
    let source = files::read(file)?;
    let protocol = source.parse()?.spec.protocol;
    if protocol.program().is_some() {
        return Ok(protocol);
    }
    Err(CommandError::input(miette!(
        help =
            format!("use `--protocol {}`, or name a file with `protocol: {{ program: … }}`", protocol.name()),
        "the protocol in {} is not a program",
        source.label
    )))
}

/// What determines the scenarios of a search, apart from their seeds.
#[derive(Clone)]
struct Drawn {
    protocol: Option<ProtocolName>,
    program: Option<ProtocolSpec>,
    set: Vec<(String, Value)>,
    defect: Option<Defect>,
}

impl Drawn {
    fn new(arguments: &FuzzArguments, program: Option<&ProtocolSpec>, defect: Option<Defect>) -> Drawn {
        let FuzzArguments { protocol, set, .. } = arguments;
        Drawn { protocol: *protocol, program: program.cloned(), set: set.clone(), defect }
    }

    /// Returns the scenario of a seed, unless it is a directed one.
    fn scenario(&self, seed: u64) -> Scenario {
        let scenario = match &self.program {
            Some(program) => Scenario::under(seed, program),
            None => Scenario::new(seed, self.protocol, self.defect),
        };
        scenario.set(&self.set)
    }
}

/// Runs the scenario of a file, and prints the result.
fn one(scenario: Scenario, format: Format) -> Result<Exit, CommandError> {
    let trial = run(scenario).map_err(files::unfit)?;
    output::print(&match format {
        Format::Json => output::json(&trial.judgement),
        Format::Text => output::filled(summary::trial(&trial)),
    })?;
    Ok(trial.judgement.verdict.into())
}

/// Returns an error if this is a release build, which contains no known defects. The error's remedy shows how
/// to run `command` in a build that contains them.
pub(crate) fn available(command: &str) -> Result<(), CommandError> {
    if defect::AVAILABLE {
        return Ok(());
    }
    Err(CommandError::input(miette!(
        help = format!("use a development build: cargo run -- {command}"),
        "known defects are available only in development builds"
    )))
}

/// Returns the options that, together with this seed, repeat a run of the search in progress; `None` if they do not
/// determine the run.
type RepeatOptions = Box<dyn Fn(u64) -> Option<String> + Send>;

/// The options of the search in progress.
static SEARCHED: Mutex<Option<RepeatOptions>> = Mutex::new(None);

/// Installs a hook that, if the program panics, prints the seed and how to reproduce the panic. A panic of a process is
/// a violation instead, unless the program was built with `panic = "abort"`. Later calls change only the options.
fn print_seed_on_panic(options: impl Fn(u64) -> Option<String> + Send + 'static) {
    static SET: Once = Once::new();
    *SEARCHED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(options));
    SET.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_caught = is_caught();
            before(panic);
            if is_caught {
                return;
            }
            let searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((seed, options)) = seed_under_way().zip(searched.as_ref()) else { return };
            match options(seed) {
                Some(options) => output::note(format_args!(
                    "panicked at seed {seed}; to reproduce the panic: faultline fuzz --seed {seed}{options}"
                )),
                None => output::note(format_args!(
                    "panicked at seed {seed}, whose schedule may depend on the seeds before it; to reproduce the panic, \
                     repeat the search"
                )),
            }
            end_if_violated();
        }));
    });
}

/// The output of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    verdict: Verdict,
    first_seed: u64,
    jobs: usize,
    /// The number of runs before the search was resumed. `seconds` and `runs_per_second` do not include them.
    runs_before: u64,
    seconds: f64,
    runs_per_second: f64,
    coverage: Shares,
    finding: Option<&'a Finding>,
    /// The reason why the verdict is unknown, or a failure that appears only in the statistics of all schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Which properties the run of the file exercises, but no schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// Whether to list the properties that the schedules exercised, of which little is known for a protocol of the user.
    #[serde(skip)]
    lists_exercised: bool,
}

/// Returns a warning if the run of a file exercises properties that no schedule of a search exercised.
fn unexercised(file: &Path, shares: &Shares) -> Result<Option<String>, CommandError> {
    let federation: faultline_api::Federation = files::read(file)?.parse()?;
    let seed = federation.spec.seed.unwrap_or(0);
    // What cannot run exercises nothing.
    let Ok(trial) = run(Scenario { seed, federation, defect: None }) else { return Ok(None) };
    let all = exercised(&trial.judgement).into_iter().filter(|it| !shares.exercised.contains_key(it));
    let names: Vec<String> = all.map(|it| format!("`{}`", summary::property_name(it))).collect();
    Ok((!names.is_empty()).then(|| {
        format!(
            "no schedule exercised {}, which a run of {} does; use more `--runs`, or check that the program takes its \
             parameters from the schedule",
            names.join(", "),
            file.display()
        )
    }))
}

impl<'a> Report<'a> {
    fn new(search: &Search<'_>, finding: Option<&'a Finding>, warning: Option<String>) -> Report<'a> {
        let seconds = search.took.as_secs_f64();
        let open: Vec<String> = search.ended_early().into_iter().chain(search.out_of_memory()).collect();
        let (verdict, reason) = match finding {
            Some(_) => (Verdict::Fail, None),
            None if !open.is_empty() => (Verdict::Unknown, Some(open.join("; "))),
            None => match (search.unusual(), search.inconclusive()) {
                (unusual, _) if !unusual.is_empty() => (Verdict::Fail, Some(unusual.join("; "))),
                (_, open) if !open.is_empty() => (Verdict::Unknown, Some(open.join("; "))),
                _ => (Verdict::Pass, None),
            },
        };
        Report {
            verdict,
            first_seed: search.first_seed,
            jobs: search.jobs.get(),
            runs_before: search.before,
            seconds,
            runs_per_second: (search.coverage.runs() - search.before) as f64 / seconds.max(1e-9),
            coverage: search.coverage.shares(),
            finding,
            reason,
            warning,
            lists_exercised: search.is_of_user() && !search.arguments.quiet,
        }
    }
}
