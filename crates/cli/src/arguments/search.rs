//! Arguments of the commands that search for violations.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use faultline_api::quantity::Duration;
use faultline_catalog::Defect;
use faultline_console::arguments::{Format, number};
use faultline_explore::Program;
use faultline_fuzz::ProtocolName;
use serde_json::Value;

use super::{PartArguments, SimulatedOn, jobs};

/// Search random federations with random faults for schedules that break recovery.
///
/// Each seed determines a federation: clusters, links, storage, protocol parameters, an application, and faults. Faults
/// strike at random times, at protocol events and during recoveries, alone or several at once. Each schedule omits some
/// kinds of faults, chosen at random. In one schedule in eight, the search itself chooses the moment of a second fault,
/// so that it tries all kinds of moments. At the end, all faults are healed, and the federation must recover and
/// finish. Each schedule runs in virtual time and is judged. Unless the protocol is a program, it also runs a second time,
/// to confirm that it is deterministic. The search ends at the first violation. It then shrinks the federation for as long
/// as the same property is violated, records and draws its run, and writes the federation to a file for `faultline run`.
///
/// If interrupted, shows and saves the coverage, and records the smallest violation so far; to continue, run the
/// same command with `--resume`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  faultline fuzz                                    run 1000 schedules
  faultline fuzz --for 10m --jobs 2                 run for ten minutes
  faultline fuzz --protocol hc3i --seed 5000 --runs 100 --format json
  faultline fuzz --file faultline-runs/fuzz-17/federation.yaml

Known defects require a development build:
  cargo run -- fuzz --defect no-drain
  cargo run -- fuzz --defect hydee-no-gate
  cargo run -- fuzz --table --protocol hydee")]
pub(crate) struct FuzzArguments {
    /// Generate only federations with this protocol, such as `hydee` or `tic`, instead of HC3I, HydEE or the coordinated
    /// baseline, chosen at random. An unknown name lists all protocols
    #[arg(long, value_name = "P", group = "subject")]
    pub(crate) protocol: Option<ProtocolName>,
    /// Generate only federations whose protocol is the program in FILE (docs/programs.md)
    #[arg(long, value_name = "FILE", group = "subject", conflicts_with_all = ["defect", "table", "file"])]
    pub(crate) program: Option<PathBuf>,
    /// Run N schedules
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "span",
        allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    pub(crate) runs: u64,
    /// Run schedules for this long, such as 10m, instead of a fixed number of schedules
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) span: Option<Duration>,
    /// Choose where the schedules run. Does not affect the result
    #[arg(long, value_enum, default_value_t = SimulatedOn::Simulate)]
    pub(crate) backend: SimulatedOn,
    /// Start with this seed. Default: 0
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Run J schedules in parallel; does not affect the result. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Run this percentage of the schedules twice, to confirm that they are deterministic. Default: 100, or 0 with
    /// `--program`
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = number::<u8>(0..=100))]
    pub(crate) twice: Option<u8>,
    /// Set a parameter of a program, or of a protocol that is defined in another crate, such as a switch that disables one
    /// of its rules
    #[arg(long, value_name = "NAME=VALUE", requires = "subject", value_parser = parameter)]
    pub(crate) set: Vec<(String, Value)>,
    /// Enable a known defect of the protocol (requires a development build)
    #[arg(long, value_name = "NAME")]
    pub(crate) defect: Option<Defect>,
    /// Print how many schedules it takes to find each known defect, as a table (requires a development build)
    #[arg(long, conflicts_with_all = ["file", "span"])]
    pub(crate) table: bool,
    /// Instead of searching, run the federation in FILE (`-` for standard input) and print the run line by line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["span", "protocol"])]
    pub(crate) file: Option<PathBuf>,
    /// Do not shrink a federation that violates a property
    #[arg(long)]
    pub(crate) no_shrink: bool,
    /// Continue the search that was interrupted in this directory; requires the same first seed, protocol and defect
    #[arg(long, conflicts_with_all = ["table", "file"])]
    pub(crate) resume: bool,
    /// Write the record of the violation to DIR instead of a new directory in `faultline-runs`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "part")]
    pub(crate) format: Format,
    /// Print only the verdict and its reasons; show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Also print what the search covered
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// With `--backend kubernetes`, end the search at the first violation that a pod finds, instead of the one with the
    /// lowest seed
    #[arg(long)]
    pub(crate) first_found: bool,
    #[command(flatten)]
    pub(crate) parts: PartArguments,
}

impl FuzzArguments {
    /// Returns the percentage of the schedules that run twice. A schedule under a program takes much longer than others.
    pub(crate) fn twice(&self) -> u8 {
        self.twice.unwrap_or(if self.program.is_some() { 0 } else { 100 })
    }

    /// Returns the arguments of a search that prints nothing.
    pub(crate) fn silent(format: Format) -> FuzzArguments {
        FuzzArguments {
            protocol: None,
            program: None,
            runs: 1000,
            span: None,
            seed: None,
            jobs: None,
            twice: Some(0),
            set: Vec::new(),
            defect: None,
            table: false,
            file: None,
            no_shrink: false,
            resume: false,
            out: None,
            format,
            quiet: true,
            verbose: false,
            first_found: false,
            backend: SimulatedOn::Simulate,
            parts: PartArguments::default(),
        }
    }
}

/// Reads a parameter and its value: a number, `true`, `false`, or a word.
fn parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "write a name, `=` and a value".to_owned())?;
    Ok((name.to_owned(), faultline_api::parse::value(value)))
}

/// Visit every run of a small federation, within bounds.
///
/// A run is a sequence of choices: which packet arrives, which write completes, which computation ends, which process
/// fails next. The search is breadth first over distinct states, and every complete run is judged. By default, it visits
/// the runs in which no step overtakes another; `--overtakings` permits more. It ends at the first violation: no run
/// with the same number of overtakings violates a property in fewer steps. PASS means that every run within the bounds
/// was visited; otherwise the verdict is UNKNOWN. The last lines state what the search covered.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline explore --protocol hc3i --nodes 2 --messages 3 --crashes 1
  faultline explore --protocol hydee --clusters 2 --nodes 1 --overtakings 2
  faultline explore --file my.yaml --program '0>2,2>0' --timers 2

Known defects require a development build:
  cargo run -- explore --nodes 1 --defect resend-greater")]
pub(crate) struct ExploreArguments {
    /// Explore this protocol. Default: the protocol of `--defect`; without a defect, `hc3i`
    #[arg(long, value_name = "P", conflicts_with = "file")]
    pub(crate) protocol: Option<String>,
    /// Use N clusters
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true, value_parser = number::<u32>(1..=26))]
    pub(crate) clusters: u32,
    /// Use N nodes in each cluster
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true, value_parser = number::<u32>(1..=100))]
    pub(crate) nodes: u32,
    /// Read the clusters, the protocol and its options from FILE instead of using the options above
    #[arg(long, value_name = "FILE", conflicts_with_all = ["clusters", "nodes"])]
    pub(crate) file: Option<PathBuf>,
    /// Send N messages, each from one cluster to the next, except that every third one stays inside its cluster
    #[arg(long, value_name = "N", default_value_t = 3, allow_negative_numbers = true, value_parser = number::<u32>(1..=20))]
    pub(crate) messages: u32,
    /// Send these messages instead: pairs of ranks, such as `0>2,2>0`
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["messages", "all_programs"])]
    pub(crate) program: Option<Program>,
    /// Explore every program with the number of messages given by `--messages`, one after the other
    #[arg(long)]
    pub(crate) all_programs: bool,
    /// Let processes fail up to N times in a run
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(0..=10))]
    pub(crate) crashes: u32,
    /// Choose what a failure does to the storage of its process
    #[arg(long, value_enum, default_value_t = StorageName::Any)]
    pub(crate) storage: StorageName,
    /// Let up to N timers, such as those for unforced checkpoints, expire while other steps are pending
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(0..=20))]
    pub(crate) timers: u32,
    /// Let up to N steps be overtaken in each run (`all`: any number; `deepen`: 0, then 1, then 2, and so on, until no
    /// further run exists or the limit of `--states` is reached)
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true, value_parser = overtakings)]
    pub(crate) overtakings: Overtakings,
    /// Stop after N distinct states
    #[arg(long, value_name = "N", default_value_t = 1_000_000, allow_negative_numbers = true, value_parser = number::<u64>(1..=1_000_000_000))]
    pub(crate) states: u64,
    /// Is rejected, with the reason, unless it is this machine
    #[arg(long, value_enum, default_value_t = SimulatedOn::Simulate, hide = true)]
    pub(crate) backend: SimulatedOn,
    /// Is rejected, too
    #[arg(long, value_name = "W", hide = true)]
    pub(crate) workers: Option<u32>,
    /// Search with J threads; does not affect the result. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Enable a known defect of the protocol (requires a development build)
    #[arg(long, value_name = "NAME")]
    pub(crate) defect: Option<Defect>,
    /// Write the record of a violation to DIR instead of a new directory in `faultline-runs`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Print only the verdict and the violation; show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The effect of a failure on storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StorageName {
    /// The process finds its storage unchanged when it restarts
    Kept,
    /// The storage is lost
    Lost,
    /// Explore both
    Any,
}

/// Number of overtakings in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overtakings {
    /// At most this many.
    AtMost(u32),
    /// Any number; every order is explored.
    All,
    /// At first none, then more and more.
    Deepen,
}

fn overtakings(text: &str) -> Result<Overtakings, String> {
    match text {
        "all" => Ok(Overtakings::All),
        "deepen" => Ok(Overtakings::Deepen),
        _ => text
            .parse()
            .ok()
            .filter(|it| *it <= 100)
            .map(Overtakings::AtMost)
            .ok_or_else(|| "use a number from 0 to 100, `all` or `deepen`".to_owned()),
    }
}

/// Write a page about the incorrect and missing rules of a published protocol.
///
/// The page has an entry for each rule that fails as printed in the paper, or that the paper lacks. An entry shows what
/// goes wrong, the corrected or missing rule, the shortest counterexample that the fuzzer finds without it (as a
/// transcript and a picture), and the share of random schedules that fail. Every counterexample is recorded, with the
/// command that runs it again. Takes several minutes.
///
/// If interrupted, writes the page with the entries found so far; to continue, run the same command with `--resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (require a development build):
  cargo run -- errata hc3i --out errata
  cargo run -- errata hydee --out errata-hydee
  cargo run -- errata tic --out errata-tic")]
pub(crate) struct ErrataArguments {
    /// Select the protocol: hc3i, hydee, tic, sel or cck
    pub(crate) protocol: String,
    /// Write the page and the records of the counterexamples to DIR
    #[arg(long, value_name = "DIR", default_value = "errata")]
    pub(crate) out: PathBuf,
    /// Run N schedules for each rule
    #[arg(long, value_name = "N", default_value_t = 5000, allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    pub(crate) runs: u64,
    /// Run J schedules in parallel. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Continue an interrupted run of this command in the same directory
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
