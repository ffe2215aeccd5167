//! Arguments of the commands that perform many runs to measure something.

use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use faultline_api::resource::{Family, ProtocolSpec};
use faultline_console::arguments::{Format, number};
use faultline_console::campaign::WorkerArguments;
use faultline_experiments::Part;
use faultline_experiments::sweep::{Parameter, quantities};

use super::{SimulatedOn, jobs};

/// Reproduce a published evaluation, and compare the results with the published ones.
///
/// Runs the experiments on the simulator with one or more seeds, and judges every run; the evaluation of HydEE also
/// runs programs on real processes. Writes one page (index.html), tables as CSV and figures as SVG, and prints the
/// findings: whether each value or its direction agrees with the paper, cannot be told apart, differs, or is not stated
/// by the paper.
///
/// If interrupted, shows the completed experiments; to continue, run the same command with `--resume`.
///
/// Exits with 1 if a run that should pass does not, or if a goal is missed, and with 3 if the reproduction was
/// interrupted or ran out of memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline reproduce hc3i
  faultline reproduce hc3i --quick --out /tmp/hc3i
  faultline reproduce hydee --quick
  faultline reproduce hydee-table1      compute the clusters of table I
  faultline reproduce tic --seeds 5
  faultline reproduce cck --quick
  faultline reproduce hc3i --backend kubernetes")]
pub(crate) struct ReproduceArguments {
    /// Choose the evaluation
    #[arg(value_enum)]
    pub(crate) paper: Paper,
    /// Use fewer settings, and fewer seeds (5 for HC3I and TIC; 1 for CCK; 1 for HydEE, on 64 processes). Shows the
    /// shape of every figure in about a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Also run a small federation on real processes, for 4 s with each of 10 seeds (3 with `--quick`), and compare it
    /// with the simulator (HC3I); or measure the tasks of the programs on real processes, and simulate programs with
    /// these task times (CCK). Has no effect on other evaluations
    #[arg(long)]
    pub(crate) with_processes: bool,
    /// Choose where the simulations run (HC3I, TIC and CCK). Does not affect the output
    #[arg(long, value_enum, default_value_t = SimulatedOn::Simulate)]
    pub(crate) backend: SimulatedOn,
    /// Run each setting with N seeds. Default: 30 for HC3I and TIC, 3 for HydEE and CCK; fewer with `--quick`
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: Option<u32>,
    /// Run J simulations in parallel; does not affect the output. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Write the page, the tables and the figures to DIR. Default: `faultline-` and the name of the evaluation
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Continue an interrupted reproduction in the same directory
    #[arg(long)]
    pub(crate) resume: bool,
    /// Show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) parts: PartArguments,
}

/// A published evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Paper {
    /// Monnet, Morin, Badrinath: Hybrid Checkpointing for Parallel Applications in Cluster Federations, 2003.
    Hc3i,
    /// Guermouche, Ropars, Snir, Cappello: HydEE, 2012: ping-pong on real processes, the NAS kernels, and failure
    /// containment.
    Hydee,
    /// Guermouche, Ropars, Snir, Cappello: HydEE, 2012, table I: clusters of the NAS kernels. Simulates no runs.
    HydeeTable1,
    /// Jafar, Krings, Gautier: Flexible Rollback Recovery in Dynamic Heterogeneous Grid Computing, 2009: TIC, SEL, and
    /// Satin.
    Tic,
    /// Besseron, Jafar, Gautier, Roch; and Besseron, Pigeon, Gautier, Jafar: CCK, 2006: figures 5 and 6, and 10 to 12.
    Cck,
}

/// Run one federation under several protocols, and compare their costs and benefits.
///
/// The application, the faults and the seeds are the same for all protocols. Each protocol runs with every seed, once
/// without faults and once with those in the file, in virtual time or on real processes, and every run is judged. The
/// protocol named in the file keeps its options; other protocols use the same values for the options that they share
/// with it (checkpointEvery, collectEvery, replicas, replicateTo, logMemory). Writes one page with a picture
/// (index.html), the picture alone (picture.svg) and the numbers (comparison.json), and prints a table.
///
/// If interrupted, shows the completed runs; to continue, even with more seeds and protocols, run the same command with
/// `--resume`. Never overwrites the results of another comparison.
///
/// Exits with 1 if a run violates a property, and with 3 if the comparison was interrupted, ran out of memory, or has no
/// run that could be judged. A protocol that does not survive a fault still appears in the table; this is not a failure.
///
/// Costs with faults are comparable only if every protocol experiences the same faults. Give faults fixed times (`at`)
/// that precede the end of the shortest run.
///
/// `--sweep` compares the goodput of the protocols over the values of a parameter instead, in virtual time: the best
/// protocol at each value, and the break-even values at which two protocols have equal goodput, with their intervals.
/// Also writes the federation file of each value and protocol (settings/).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline compare my.yaml
  faultline compare my.yaml --protocols hc3i,hydee --seeds 30 --out compared
  faultline compare my.yaml --backend local      real processes
  faultline compare my.yaml --sweep mtbf=5m..24h/8 --out break-even
  faultline compare my.yaml --format json > compared.json")]
pub(crate) struct CompareArguments {
    /// Read the federation from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Compare these protocols, in this order. Default: all that can protect the application, except for
    /// `hc3i.forcing=everyMessage`
    #[arg(long, value_name = "P,…", value_delimiter = ',')]
    pub(crate) protocols: Vec<String>,
    /// Compare over the values of a parameter, written as in `faultline sweep --set`. `mtbf` scales all random faults
    /// (`mtbf` and `trace`) by one factor, so that a value is the mean time between faults
    #[arg(long, value_name = "PATH=VALUES")]
    pub(crate) sweep: Option<Parameter>,
    /// Choose what executes the runs. Runs on real processes (local) are sequential, in real time; their records are
    /// kept in the output directory. Pods (kubernetes) perform runs in virtual time, with the same results
    #[arg(long, value_enum, default_value_t = ComparedOn::Simulate)]
    pub(crate) backend: ComparedOn,
    /// Run each protocol N times with faults and N times without, with consecutive seeds. Default: 10, 20 with
    /// `--sweep`, or 3 on real processes
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: Option<u32>,
    /// Start with this seed instead of the one in the file
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Run J simulations in parallel; does not affect the output. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Write the page, the picture and the numbers to DIR
    #[arg(long, value_name = "DIR", default_value = "faultline-compare")]
    pub(crate) out: PathBuf,
    /// Continue the comparison in the same directory
    #[arg(long)]
    pub(crate) resume: bool,
    /// Show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "part")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) parts: PartArguments,
}

/// Run one federation with many settings of its parameters, and find the best setting.
///
/// `--set` names a field below `spec` and the values to try; several `--set` options form a grid. Runs every setting in
/// virtual time with the same seeds, and judges every run. Writes one page with pictures (index.html), one line per run
/// (runs.csv), the estimates (sweep.json) and the federation file of each setting (settings/), and prints a table.
/// Names the setting with the smallest value of one quantity, and states how certain this is.
///
/// Also records each setting's run with the first seed, together with its report (records/). Together, the records take
/// up at most 256 MiB: a record is omitted if it exceeds this size divided by the number of settings.
///
/// If interrupted, keeps the completed runs; to continue, even with more seeds, run the same command with `--resume`.
///
/// Exits with 1 if a run violates a property, and with 3 if the sweep was interrupted or ran out of memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s \\
                          --set links.between.latency=1ms..100ms/5 --seeds 30
  faultline sweep my.yaml --set clusters.paris.nodes=2..32/5 --sample 3")]
pub(crate) struct SweepArguments {
    /// Read the federation from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Vary the field at PATH below `spec`, such as `protocol.hc3i.checkpointEvery`, `links.between.latency` or
    /// `clusters.paris.nodes` (an element of a list by its name or its index from 0). VALUES are separated by commas;
    /// `1ms..100ms/5` means five values in geometric progression (in arithmetic progression if the range starts at 0).
    /// `mtbf` scales all random faults, so that a value is the mean time between faults. The values of a range between whole numbers are rounded, and equal ones are merged
    #[arg(long = "set", value_name = "PATH=VALUES", required = true)]
    pub(crate) parameters: Vec<Parameter>,
    /// Run each setting with N consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// Start with this seed instead of the one in the file. Also determines the settings of `--sample`
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Run only this many settings of the grid, drawn at random
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(1..=4096))]
    pub(crate) sample: Option<usize>,
    /// Choose where the runs are performed. Does not affect the output
    #[arg(long, value_enum, default_value_t = SimulatedOn::Simulate)]
    pub(crate) backend: SimulatedOn,
    /// Choose the quantity to minimise
    #[arg(long, value_name = "QUANTITY", default_value = "seconds",
        value_parser = PossibleValuesParser::new(quantities().map(|it| it.name)))]
    pub(crate) best: String,
    /// Run J simulations in parallel; does not affect the output. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Write the page, the numbers and the settings to DIR
    #[arg(long, value_name = "DIR", default_value = "faultline-sweep")]
    pub(crate) out: PathBuf,
    /// Continue an interrupted sweep in the same directory
    #[arg(long)]
    pub(crate) resume: bool,
    /// Show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = SweepFormat::Text, conflicts_with = "part")]
    pub(crate) format: SweepFormat,
    #[command(flatten)]
    pub(crate) parts: PartArguments,
}

/// Predict the goodput under random crashes, and the best checkpoint interval, by published models.
///
/// Measures the constants of the models by runs of the federation in virtual time: the delay of a checkpoint, and that of
/// a crash. Then prints the interval that each model recommends, and the goodput there and with the file's interval:
/// Young, Daly, Saxena, a hierarchical model for protocols that log messages, and an exact model for a global rollback.
/// States why a model does not apply. `docs/failures.md` defines the constants and the formulas.
///
/// The protocol must have a checkpoint period (`checkpointEvery`), and the file a fault with the trigger `mtbf` or `trace`.
///
/// Exits with 1 if a run violates a property, and with 3 if it was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline model my.yaml
  faultline model my.yaml --check --out model    also measure the goodput
  faultline sweep my.yaml --set \"$(faultline model my.yaml --advise)\"")]
pub(crate) struct ModelArguments {
    /// Read the federation from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Measure the goodput with eight intervals, from a quarter to four times the best one, with the file's faults
    #[arg(long)]
    pub(crate) check: bool,
    /// Run each interval of `--check` with N consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// Print only the recommended interval, as an option for `faultline sweep --set`
    #[arg(long)]
    pub(crate) advise: bool,
    /// Run J simulations in parallel; does not affect the output. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Write a page with pictures and the numbers to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Runs on several machines (docs/parts.md) or on a Kubernetes cluster (docs/campaigns.md).
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Several machines")]
pub(crate) struct PartArguments {
    /// Perform only the Ith of N parts of the runs, and print their results for `--gather`. Writes no files
    #[arg(long, value_name = "I/N", conflicts_with_all = ["resume", "out", "gather"])]
    pub(crate) part: Option<Part>,
    /// Use the results of parts that other machines performed, instead of performing these runs. Repeats the runs that
    /// failed and one run of each part, and reports an error if their results differ on this machine
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) gather: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) workers: WorkerArguments,
}

/// Output of `sweep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepFormat {
    /// Human-readable text, one row per setting.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values, one line per run.
    Csv,
}

/// Returns the names of the protocols that can be compared, for any application.
pub(crate) fn compared() -> Vec<&'static str> {
    let mut all = ProtocolSpec::compared(Family::Messages);
    let tasks = ProtocolSpec::compared(Family::Tasks);
    all.splice(all.len() - 1..all.len() - 1, tasks.into_iter().filter(|it| *it != "none"));
    all
}

/// Format of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatisticsFormat {
    /// Human-readable text.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values, one line per value.
    Csv,
}

/// What executes the runs of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparedOn {
    /// Virtual time. Runs with the same seed are bit-identical.
    Simulate,
    /// Real processes on this machine.
    Local,
    /// Virtual time, in pods on a Kubernetes cluster (docs/campaigns.md).
    Kubernetes,
}
