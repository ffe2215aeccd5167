//! Command-line arguments. The help text is part of the product.

use std::net::SocketAddr;
use std::num::NonZero;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use faultline_api::quantity::{Duration, Size};
use faultline_api::resource::{Family, ProtocolSpec};
use faultline_catalog::Defect;
pub(crate) use faultline_console::arguments::{FetchArguments, Format, KubernetesArguments, OutputArguments};
use faultline_console::arguments::{nodes, number};
use faultline_console::campaign::WorkerArguments;
use faultline_core::Time;
use faultline_experiments::Part;
use faultline_experiments::sweep::{Parameter, quantities};
use faultline_explore::Program;
use faultline_failures::Format as TraceFormat;
use faultline_fuzz::ProtocolName;
use serde_json::Value;

use crate::files::all_samples;

/// Test rollback-recovery protocols on federations of clusters.
///
/// A file describes a federation: clusters, links, a protocol, an application, faults and a seed. Faultline runs it
/// on real processes or in virtual time, judges the run, and explains what happened.
#[derive(Debug, Parser)]
#[command(name = "faultline", version, propagate_version = true, after_long_help = FIRST_STEPS)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Limit the memory of this program to SIZE, such as 2GiB. A run that would exceed the limit ends; its record is
    /// kept, and its verdict is `unknown`. Parallel runs share the limit. Default: half of the memory of the machine,
    /// or of the container if its limit is lower
    #[arg(long, value_name = "SIZE", global = true, allow_hyphen_values = true, help_heading = "Limits")]
    pub(crate) memory: Option<Size>,
}

const FIRST_STEPS: &str = "\
First steps:
  faultline run                              run the quick start (under 30 s)
  faultline samples quickstart > my.yaml     copy it to a file and change it
  faultline run my.yaml --backend simulate   run it in virtual time
  faultline explain                          explain the newest run
  faultline report                           draw its space-time diagram
  faultline run --view                       watch a run in a browser

Exit status:
  0  pass: all required properties were judged, and hold
  1  fail: a property is violated
  2  bad input: the file, the directory or the arguments are invalid
  3  unknown: no property is violated, but some could not be judged; or a limit
     of the machine, such as a full disk, or an interruption prevented the work";

const FETCH_EXAMPLES: &str = "\
Examples:
  faultline fetch federation/quickstart
  faultline check $(faultline fetch quickstart --namespace experiments)";

/// Subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArguments),
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch(FetchArguments),
    Simulate(SimulateArguments),
    Import(ImportArguments),
    Reproduce(ReproduceArguments),
    Compare(CompareArguments),
    Sweep(SweepArguments),
    Model(ModelArguments),
    Cluster(ClusterArguments),
    Traces(TracesArguments),
    Check(CheckArguments),
    Explain(ExplainArguments),
    Report(ReportArguments),
    View(ViewArguments),
    Replay(ReplayArguments),
    Export(ExportArguments),
    Fuzz(FuzzArguments),
    Explore(ExploreArguments),
    Errata(ErrataArguments),
    Plan(PlanArguments),
    Validate(ValidateArguments),
    Doctor(DoctorArguments),
    /// Print the JSON schema of a federation file, for editors.
    #[command(after_help = "Example:\n  faultline schema > federation.schema.json")]
    Schema,
    Samples(SamplesArguments),
    Completions(CompletionsArguments),
    /// Run one process of a federation. Used internally by `run`.
    #[command(hide = true, disable_help_flag = true)]
    Node {
        /// Arguments of the process.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Perform one part of a campaign, in a pod. Used internally with `--backend kubernetes`.
    #[command(hide = true)]
    Part {
        /// Directory with the description of the campaign.
        dir: PathBuf,
    },
}

/// Run a federation, judge the run, and explain what happened.
///
/// Expands the faults from the seed, runs the federation until its application has finished, records every fact, and
/// judges the record. Never repeats a run to get a better verdict.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run                                quick start, real processes
  faultline run my.yaml --backend simulate --seed 42
  faultline run my.yaml --backend simulate --repeat 1000 -q
                                               print runs that do not pass
  faultline run my.yaml --repeat 20            run 20 seeds and keep all records
  faultline run my.yaml --backend kubernetes   run in pods (docs/kubernetes.md)
  faultline run my.yaml --format json > summary.json")]
pub(crate) struct RunArguments {
    /// Read the federation from this file, or from standard input if it is `-` [default: the sample `quickstart`]
    pub(crate) file: Option<PathBuf>,
    /// Choose what executes the run
    #[arg(long, value_enum, default_value_t = BackendName::Local)]
    pub(crate) backend: BackendName,
    /// Choose what emulates the links, with `--backend local`. The summary shows the links as measured before the run
    #[arg(long, value_enum, default_value_t = LinksName::InNode)]
    pub(crate) links: LinksName,
    /// Use this seed instead of the one in the file
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Run N times with consecutive seeds, and print a table with one row per run
    ///
    /// Keeps all records except those of simulated runs that pass or in which no random fault occurred: a simulated run
    /// can be repeated exactly from its seed.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) repeat: u32,
    /// With `--repeat`, keep the records of all runs, including simulated runs that pass
    #[arg(long, requires = "repeat")]
    pub(crate) keep: bool,
    /// With `--backend kubernetes`, stop waiting for the run after this time, and leave the federation in the cluster.
    /// Default: wait indefinitely, even while pods cannot start
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// Write the record to DIR instead of a new directory in `faultline-runs`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Also record the inputs of each process, for `faultline replay`
    ///
    /// Not supported on Kubernetes.
    #[arg(long)]
    pub(crate) record: bool,
    /// With `--backend local`, serve the combined metrics of all nodes during the run, as Prometheus text at
    /// http://ADDR/metrics
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// With `--backend local`, serve a page that shows the run, and then its report. Prints two addresses, one of which
    /// can also add faults and pause the run [default ADDR: 127.0.0.1:7380, or the next free port]
    ///
    /// After the run, the program serves the report until Ctrl-C, or until no page has been open for 60 s. Only this
    /// machine can reach the page.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, value_parser = address, conflicts_with = "repeat")]
    pub(crate) view: Option<Option<SocketAddr>>,
    /// Judge waste, too: unnecessary checkpoints, messages and storage count as violations instead of remarks
    ///
    /// For a run on Kubernetes, use `faultline check --strict` on its record.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Start a program anew for each life, even in virtual time
    #[arg(long)]
    pub(crate) fresh_programs: bool,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// The three input files of the HC3I paper's simulator.
///
/// docs/hc3i-files.md describes the files; `faultline samples` lists the files for the paper's experiments.
#[derive(Clone, Debug, Args)]
pub(crate) struct FilesArguments {
    /// Read the clusters, their nodes, the triangular matrix of links, and the mean time between failures from FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: PathBuf,
    /// Read the computing time, and either the send probabilities or the numbers of messages, from FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) application: PathBuf,
    /// Read the delays between checkpoints of each cluster and between garbage collections from FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) timers: PathBuf,
}

/// Simulate a federation described by the three input files of the HC3I paper's simulator, and print statistics.
///
/// The files define the topology, the application and the timers (HC3I, section 5.1). This command converts them into
/// one federation under HC3I, with checkpoints in the memory of their owner and of one neighbour, runs it in virtual
/// time, and judges the run. Runs with the same seed are bit-identical. With several seeds, prints the mean and range
/// of each statistic.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline samples hc3i/topology > topology.yaml
  faultline samples hc3i/application > application.yaml
  faultline samples hc3i/timers > timers.yaml
  set -- --topology topology.yaml --application application.yaml
  faultline simulate \"$@\" --timers timers.yaml
  faultline simulate \"$@\" --timers timers.yaml --seeds 30 --format csv
  faultline simulate \"$@\" --timers timers.yaml --trace actions | less")]
pub(crate) struct SimulateArguments {
    #[command(flatten)]
    pub(crate) files: FilesArguments,
    /// Use this seed for all random choices
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Run with N consecutive seeds
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// Run J simulations in parallel; does not affect the output. Default: number of cores
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Use this computing time for the application instead of the duration in its file
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,
    /// Choose the format of the statistics
    #[arg(long, value_enum, default_value_t = StatisticsFormat::Text)]
    pub(crate) format: StatisticsFormat,
    /// Also print events as they occur: to standard output, or to standard error with `--format json` or `csv`
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = TraceLevel::Statistics)]
    pub(crate) trace: TraceLevel,
}

/// Convert the three input files of the HC3I paper's simulator into a federation file.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline import --topology topology.yaml --application application.yaml \\
    --timers timers.yaml > paper.yaml
  faultline run paper.yaml --backend simulate")]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) files: FilesArguments,
    /// Name the federation
    #[arg(long, default_value = "imported")]
    pub(crate) name: String,
}

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

/// Choose clusters from a communication graph.
///
/// Large clusters roll back more processes per failure; small clusters log more messages. Prints the best trade-offs
/// between the share rolled back and the share logged, and the chosen division, which has the smallest sum of both
/// (proven optimal for up to 12 processes; for more, the best found). The graph is an edge list
/// (`from to bytes [messages]`, one channel per line; `faultline export --format graph` writes one), a METIS file
/// (`.graph` or `.metis`), a GraphML file (`.graphml`), or a recorded run. With `--out`, also writes all divisions as a
/// picture (front.svg) and as a table (front.csv), the cluster of each process (clusters.csv), the clusters in the form
/// of a federation file (clusters.yaml), and the output of `--format json` (clusters.json).
///
/// To choose clusters for the traffic of one application in successive intervals of equal length, pass several graphs,
/// or a recorded run with `--intervals`. The command then also reports whether changing the clusters between intervals,
/// at a checkpoint, pays off. It prints the clusters of each interval, and one division for all intervals. With
/// `--out`, writes the costs by interval (intervals.svg, intervals.csv), the cluster of each process in each interval
/// (clusters.csv), the division for all intervals in the form of a federation file (clusters.yaml), and clusters.json.
///
/// To assign the pieces of a task-based program to processes in advance, pass its federation file. The command then
/// prints a partition file for `schedule.file`, with about the same number of pieces for each process and few values
/// sent between processes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run my.yaml --backend simulate --out /tmp/run
  faultline export /tmp/run --format graph > my.edges
  faultline cluster my.edges
  faultline cluster my.edges --max-rollback 10 --out clusters
  faultline cluster my.edges --balance 1.1     clusters of nearly equal size
  faultline cluster /tmp/run --intervals 4     should clusters change?
  faultline cluster assemble.edges solve.edges --change-cost 5
  faultline cluster jacobi.yaml > jacobi.part  partitions for `schedule.file`")]
pub(crate) struct ClusterArguments {
    /// Read a communication graph (`-` is standard input), the directory of a recorded run, or a federation file.
    /// Pass several graphs in chronological order
    #[arg(required = true, value_name = "GRAPH")]
    pub(crate) graphs: Vec<PathBuf>,
    /// Limit the average share of processes that one failure rolls back, in percent
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, value_parser = percent)]
    pub(crate) max_rollback: Option<f64>,
    /// Limit the largest cluster to FACTOR times the average size: 1 means clusters of equal size
    ///
    /// Use this if all sites have about the same number of machines. The search considers only divisions within this
    /// limit.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, value_parser = balance)]
    pub(crate) balance: Option<f64>,
    /// Divide a recorded run into N intervals of equal length
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(2..=1000))]
    pub(crate) intervals: Option<usize>,
    /// Set the size of a checkpoint of all processes as a percentage of all bytes sent; requires `--intervals` or
    /// several graphs [default: 1]
    ///
    /// A change of clusters costs this size times the share of processes whose cluster gains or loses members.
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, value_parser = change_cost)]
    pub(crate) change_cost: Option<f64>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Write files to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Describe recorded failures of a real system: time between faults, repairs, nodes down at once, and causes.
///
/// Reads a failure trace in one of these formats: the InfiniteHBD trace (infinitehbd), the failure records of Los Alamos
/// National Laboratory (lanl), SkyPilot's spot traces (spot), or separated values with the columns start, end, node and
/// cause (csv). Decompress the file first. Refuses a file that it does not fully understand; up to 1 % of the records
/// may lack a usable time. `docs/failures.md` defines the statistics, and says where to find public traces.
///
/// With `--out`, also writes a page with charts (index.html), the output of `--format json` (traces.json), and the
/// chosen faults in the form of `csv` (trace.csv).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline traces fault_trace.json
  faultline traces fault_trace.json --causes GPU,NIC --out failures
  faultline traces lanl.csv --system 20
  faultline traces event_trace.tab --where event_type=0 \\
    --columns start=event_start_time,end=event_stop_time,node=node_id
  gzip -dc ras.csv.gz | faultline traces - --merge 10m")]
pub(crate) struct TracesArguments {
    /// Read recorded failures from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Choose the format of the file. Default: recognised by its content
    #[arg(long = "as", value_name = "FORMAT", value_parser = trace_format())]
    pub(crate) as_format: Option<TraceFormat>,
    /// Read this system of a LANL file
    #[arg(long, value_name = "SYSTEM")]
    pub(crate) system: Option<String>,
    /// Keep only faults with these causes
    #[arg(long, value_name = "CAUSE,…", value_delimiter = ',')]
    pub(crate) causes: Vec<String>,
    /// Set the number of observed nodes. Default: those in the file
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(1..=10_000_000))]
    pub(crate) nodes: Option<usize>,
    /// Keep only faults that start at this time or later, such as 12h or 40d. A trace with dates begins with its
    /// first fault
    #[arg(long, value_name = "T", allow_hyphen_values = true, value_parser = trace_time)]
    pub(crate) begin: Option<Time>,
    /// Keep only faults that start before this time
    #[arg(long, value_name = "T", allow_hyphen_values = true, value_parser = trace_time)]
    pub(crate) end: Option<Time>,
    /// Join faults of one node that begin within this time of the previous one
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) merge: Option<Duration>,
    /// Use other names of columns of a CSV file, such as `start=began,node=host`
    #[arg(long, value_name = "NAME=COLUMN,…", value_delimiter = ',', value_parser = equation)]
    pub(crate) columns: Vec<(String, String)>,
    /// Keep only rows of a CSV file in which this column has this value; may be repeated
    #[arg(long = "where", value_name = "COLUMN=VALUE", value_parser = equation)]
    pub(crate) conditions: Vec<(String, String)>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Write the page, the statistics and the faults to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Parses the name of a format of failure traces.
fn trace_format() -> impl TypedValueParser<Value = TraceFormat> {
    PossibleValuesParser::new(TraceFormat::ALL.map(TraceFormat::name)).map(|name| {
        let named = TraceFormat::ALL.into_iter().find(|it| it.name() == name);
        named.expect("only these names are possible")
    })
}

/// Parses a time since the beginning of a failure trace.
fn trace_time(text: &str) -> Result<Time, String> {
    text.parse::<Duration>().map(|it| Time::ZERO + it.0).map_err(|error| error.to_string())
}

/// Parses `NAME=VALUE`.
fn equation(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write a name, `=` and a value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Parses a number of parallel jobs.
fn jobs(text: &str) -> Result<NonZero<usize>, String> {
    let jobs = number::<usize>(1..=1024)(text)?;
    Ok(NonZero::new(jobs).expect("the range begins with 1"))
}

/// Parses an address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9464".to_owned())
}

/// Parses a number in a range; `wrong` is the error.
fn real(text: &str, range: impl RangeBounds<f64>, wrong: &str) -> Result<f64, String> {
    text.parse().ok().filter(|it| range.contains(it)).ok_or_else(|| wrong.to_owned())
}

/// Parses a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let range = (Bound::Excluded(0.0), Bound::Included(100.0));
    real(text.trim_end_matches('%'), range, "write a number above 0 and at most 100, such as 12.5")
}

/// Parses the maximum ratio of the largest cluster to the average.
fn balance(text: &str) -> Result<f64, String> {
    let wrong = "write a number of at least 1, such as 1.2: the ratio of the largest cluster to the average size; 1 means clusters \
                 of equal size";
    real(text, 1.0..f64::INFINITY, wrong)
}

/// Parses the cost of changing all clusters, in percent.
fn change_cost(text: &str) -> Result<f64, String> {
    let wrong = "write a number of at least 0, such as 2.5: the size of a checkpoint of all processes as a percentage \
                 of all bytes sent";
    real(text.trim_end_matches('%'), 0.0..f64::INFINITY, wrong)
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

/// Which events of a simulation are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum TraceLevel {
    /// Only the statistics.
    Statistics,
    /// Also events of clusters: checkpoints, garbage collections, failures, rollbacks.
    Events,
    /// Also messages between clusters.
    Messages,
    /// All actions of all nodes, with timestamps.
    Actions,
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

/// Where runs in virtual time are performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulatedOn {
    /// On this machine.
    Simulate,
    /// In pods on a Kubernetes cluster (docs/campaigns.md).
    Kubernetes,
}

/// What executes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// One process per node on this machine. Processes are connected over TCP, and killed with SIGKILL.
    Local,
    /// The same protocol code in virtual time. Runs with the same seed are bit-identical.
    Simulate,
    /// Pods in a Kubernetes cluster where Faultline is installed. The pods are deleted after the run.
    Kubernetes,
}

/// What `doctor` examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Examined {
    /// This machine.
    Local,
    /// A Kubernetes cluster.
    Kubernetes,
}

/// What emulates links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinksName {
    /// A delay line in each node, before the socket.
    InNode,
    /// The kernel, with each node in its own network namespace; requires root (see `faultline doctor`).
    Tc,
}

/// Check what this machine or a Kubernetes cluster can run, and suggest fixes.
///
/// Checks whether the limits of this machine allow runs on real processes. Tests, in a temporary network namespace,
/// which of the features used by `faultline run --links tc` the kernel supports. Changes nothing. Exits with 1 if
/// anything that you requested is not possible.
///
/// For a Kubernetes cluster, checks what `faultline run --backend kubernetes` and `faultline fetch` need in one
/// namespace. With `--tc`, also tests on each Kubernetes node that accepts pods, in a temporary pod, which of the
/// features used by `spec.kubernetes.links: tc` the kernel supports. This requires permission to list nodes, to create,
/// get, list and delete pods, and to get pods/log.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline doctor
  faultline doctor --nodes 200 --tc     check for 200 nodes and traffic control
  faultline doctor --backend kubernetes --tc
  faultline doctor --format json")]
pub(crate) struct DoctorArguments {
    /// Choose the backend of the planned run
    #[arg(long, value_enum, default_value_t = Examined::Local)]
    pub(crate) backend: Examined,
    /// Set the number of nodes of the planned run [default: those of the quick start]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = nodes)]
    pub(crate) nodes: Option<NonZero<u32>>,
    /// Also check traffic control
    #[arg(long)]
    pub(crate) tc: bool,
    /// With `--backend kubernetes`: check traffic control with this node image of this program's version. Default: the
    /// image without a registry
    #[arg(long, requires = "tc", value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// Judge a recorded run again.
///
/// Judges the record itself, regardless of the verdict that the run reported. Has the same exit statuses as `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline check                                    judge the newest run
  faultline check faultline-runs/quickstart-7 -v     print all properties
  faultline check faultline-runs/quickstart-7 --format json
  faultline check faultline-runs/quickstart-7 --resimulate
  faultline check --events log.jsonl --mapping torchft --out run")]
pub(crate) struct CheckArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Judge waste, too: unnecessary checkpoints, messages and storage count as violations instead of remarks
    #[arg(long)]
    pub(crate) strict: bool,
    /// Simulate the run again, and compare all facts; a difference makes the verdict `unknown`. Works only for
    /// simulated runs that ended on their own and were recorded by the same version of this program
    #[arg(long)]
    pub(crate) resimulate: bool,
    /// Start the programs of the run: to compute the expected results of its application again, and for `--resimulate`
    #[arg(long)]
    pub(crate) run_programs: bool,
    /// Import and judge the events in FILE, one JSON object per line, instead of a recorded run; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "resimulate", "run_programs"])]
    pub(crate) events: Option<PathBuf>,
    /// Turn the lines of another system into facts: a built-in mapping (`generic`, `torchft`) or a file with rules
    #[arg(long, value_name = "NAME|FILE", requires = "events")]
    pub(crate) mapping: Option<PathBuf>,
    /// Record the imported run in DIR, so that `explain`, `report` and `check` can read it
    #[arg(long, value_name = "DIR", requires = "events")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Explain why each cluster rolled back, to which checkpoint, and what it lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline explain faultline-runs/quickstart-7")]
pub(crate) struct ExplainArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
}

/// Write a self-contained page about a recorded run, with a space-time diagram.
///
/// The page needs no network access. The diagram is also written to a separate file: `diagram.svg` or, with `--to`, the
/// page's name with the extension `svg`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline report faultline-runs/quickstart-7
  faultline report faultline-runs/quickstart-7 --to /tmp/quickstart.html")]
pub(crate) struct ReportArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Write the page to FILE instead of `report.html` in the record, and the diagram next to it
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// Serve a page about a run that is in progress, or about a recorded run.
///
/// Follows a run that another program performs, and shows the report at the same address once the run has ended. Prints
/// the address. Only this machine can reach the page. Ends with Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline view
  faultline view faultline-runs/quickstart-7")]
pub(crate) struct ViewArguments {
    /// Read the run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Serve the page at this address [default: 127.0.0.1:7380, or the next free port]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) at: Option<SocketAddr>,
}

/// Feed the recorded inputs of a run to its nodes again, and compare their behaviour with the record.
///
/// Requires a run that was recorded with `faultline run --record`, on real processes or in virtual time. Nothing is
/// simulated: each node receives its own inputs at their recorded times, and must report the same facts and take the
/// same actions. Fails at the first difference.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run my.yaml --record --out /tmp/run
  faultline replay /tmp/run                         all nodes and their lives
  faultline replay /tmp/run --node paris-1
  faultline replay /tmp/run --node paris-1 --run-programs --lines")]
pub(crate) struct ReplayArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Replay only this node
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Start the programs that were the protocol or the application of the run
    #[arg(long)]
    pub(crate) run_programs: bool,
    /// Also print the lines that the node exchanges with its programs: `>` and each event, `<` and its reply
    #[arg(long, requires = "node", conflicts_with = "format")]
    pub(crate) lines: bool,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Export the facts of a recorded run for use in other programs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline export faultline-runs/quickstart-7 > facts.jsonl
  faultline export faultline-runs/quickstart-7 --format csv > facts.csv
  faultline export faultline-runs/quickstart-7 --format graph > quickstart.edges
  faultline export faultline-runs/quickstart-7 --format events > events.jsonl")]
pub(crate) struct ExportArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Choose the output: a table of facts as JSON objects or comma-separated values (docs/bundle.md lists the
    /// columns), the communication graph, or events for `faultline check --events`
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
}

/// Output of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON Lines.
    #[value(alias = "json")]
    Jsonl,
    /// Comma-separated values.
    Csv,
    /// Communication graph as an edge list for `faultline cluster`.
    Graph,
    /// The facts between a line that describes the run and a line that states how it ended.
    Events,
}

/// Search random federations with random faults for schedules that break recovery.
///
/// Each seed determines a federation: clusters, links, storage, protocol parameters, an application, and faults. Faults
/// strike at random times, at protocol events and during recoveries, alone or several at once. Each schedule omits some
/// kinds of faults, chosen at random. In one schedule in eight, the search itself chooses the moment of a second fault,
/// so that it tries all kinds of moments. At the end, all faults are healed, and the federation must recover and
/// finish. Each schedule runs in virtual time, is judged, and runs a second time to confirm that it is deterministic.
/// The search ends at the first violation. It then shrinks the federation for as long as the same property is violated,
/// records and draws its run, and writes the federation to a file for `faultline run`.
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
    /// Generate only federations with this protocol (hc3i, hydee, spbc, fullLogging, pessimisticLogging, independent,
    /// coordinated, chandyLamport, hierarchicalCoordinated, tic, sel, satin, cck), instead of HC3I, HydEE or the
    /// coordinated baseline, chosen at random
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
    /// Run this percentage of the schedules twice, to confirm that they are deterministic
    #[arg(long, value_name = "PERCENT", default_value_t = 100, allow_negative_numbers = true, value_parser = number::<u8>(0..=100))]
    pub(crate) twice: u8,
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
    /// Print only the violation and the verdict; show progress only on a terminal, and only after a few seconds
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
    /// Returns the arguments of a search that prints nothing.
    pub(crate) fn silent(format: Format) -> FuzzArguments {
        FuzzArguments {
            protocol: None,
            program: None,
            runs: 1000,
            span: None,
            seed: None,
            jobs: None,
            twice: 0,
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

/// Print the planned faults of a file, with random faults expanded from the seed.
///
/// Lists the faults in the order in which they are due. Times count from the start of the application. The time of a
/// fault that waits for a fact is not known before the run, so such faults come last; in the JSON output, their
/// `atSeconds` is null.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline plan my.yaml
  faultline plan my.yaml --seed 42 --format json")]
pub(crate) struct PlanArguments {
    /// Read the federation from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Use this seed instead of the one in the file
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Check whether a file can be run, and suggest fixes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline validate my.yaml
  faultline validate my.yaml --orders 8
  faultline validate new.yaml --running my.yaml   check a change")]
pub(crate) struct ValidateArguments {
    /// Read the federation from this file, or from standard input if it is `-`
    pub(crate) file: PathBuf,
    /// Print what the file would change in a federation that was started on Kubernetes from FILE: links, added faults,
    /// a pause. Changes to other fields are errors, as they are for an API server
    #[arg(long, value_name = "FILE", conflicts_with = "orders")]
    pub(crate) running: Option<PathBuf>,
    /// Also run the application without failures in one delivery order and in N random orders, and compare what each
    /// process sends. Protocols that require send determinism, such as hydee, cannot protect a program whose messages
    /// depend on the order of arrival. Testing each order takes as long as the application's computation
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=1000))]
    pub(crate) orders: Option<u32>,
}

/// Print a sample federation, or list all samples.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline samples                                list the samples
  faultline samples quickstart > my.yaml           copy one to a file")]
pub(crate) struct SamplesArguments {
    /// Print the sample with this name
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(all_samples().map(|it| it.name)))]
    pub(crate) name: Option<String>,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline completions bash > /etc/bash_completion.d/faultline
  faultline completions fish > ~/.config/fish/completions/faultline.fish
  faultline completions zsh > ~/.zfunc/_faultline

The scripts for bash, fish and zsh also complete names of samples and papers.")]
pub(crate) struct CompletionsArguments {
    /// Generate the script for this shell
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_fits_and_examples_are_not_wrapped() {
        let all = Arguments::command();
        let commands = all.get_subcommands().cloned().chain([all.clone()]);
        for (command, width) in commands.flat_map(|it| [(it.clone(), 80), (it, 120)]) {
            let help = command.clone().term_width(width).render_long_help().to_string();
            let long = help.lines().find(|it| it.chars().count() > width);
            assert_eq!(long, None, "{} at {width} columns", command.get_name());
            let examples = command.get_after_long_help().or(command.get_after_help());
            for line in examples.map(ToString::to_string).unwrap_or_default().lines() {
                assert!(help.lines().any(|it| it == line), "{} breaks `{line}`", command.get_name());
            }
        }
    }

    #[test]
    fn a_number_out_of_range_is_rejected() {
        assert!(percent("0").is_err() && percent("NaN").is_err() && percent("12.5%") == Ok(12.5));
        assert!(["0.5", "NaN", "inf", "-2", "x", ""].iter().all(|it| balance(it).is_err()));
        assert_eq!((balance("1"), balance("1.25")), (Ok(1.0), Ok(1.25)));
        assert!(["-1", "NaN", "inf", "x", ""].iter().all(|it| change_cost(it).is_err()));
        assert_eq!((change_cost("0"), change_cost("250%")), (Ok(0.0), Ok(250.0)));
        assert!(jobs("0").is_err());
    }
}
