//! What can be asked for on the command line. The help texts are part of the product.

use std::net::SocketAddr;
use std::num::NonZero;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use faultline_api::quantity::Duration;
use faultline_api::resource::{Family, Protocol as Compared};
use faultline_catalog::Defect;
pub(crate) use faultline_console::arguments::{FetchArguments, Format, KubernetesArguments, OutputArguments};
use faultline_console::arguments::{nodes, number};
use faultline_experiments::sweep::{Parameter, quantities};
use faultline_fuzz::Protocol;

/// A testbed for rollback-recovery in federations of clusters.
///
/// One file describes a federation: clusters, links, a protocol, an application, faults and a seed. Faultline runs it,
/// on real processes or in virtual time, judges what it saw, and says what happened.
#[derive(Debug, Parser)]
#[command(name = "faultline", version, propagate_version = true, after_long_help = FIRST_STEPS)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const FIRST_STEPS: &str = "\
First steps:
  faultline run                              the quick start, under 30 s
  faultline samples quickstart > my.yaml     a file to change
  faultline run my.yaml --backend simulate   in virtual time, in milliseconds
  faultline explain faultline-runs/<run>     what happened, in sentences
  faultline report faultline-runs/<run>      a page with a space-time diagram

Exit status:
  0  pass: everything that should hold was judged, and holds
  1  fail: something that must not happen was seen
  2  bad input: the file, the directory or the arguments cannot be used
  3  unknown: nothing wrong was seen, but not everything could be judged";

const FETCH_EXAMPLES: &str = "\
Examples:
  faultline fetch federation/quickstart
  faultline check $(faultline fetch quickstart --namespace experiments)";

/// What to do.
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
    Cluster(ClusterArguments),
    Check(CheckArguments),
    Explain(ExplainArguments),
    Report(ReportArguments),
    Replay(ReplayArguments),
    Export(ExportArguments),
    Fuzz(FuzzArguments),
    Errata(ErrataArguments),
    Plan(PlanArguments),
    Validate(ValidateArguments),
    Doctor(DoctorArguments),
    /// Print the JSON schema of a federation file, for editors.
    #[command(after_help = "Example:\n  faultline schema > federation.schema.json")]
    Schema,
    Samples(SamplesArguments),
    Completions(CompletionsArguments),
    /// One process of a federation, started by a run.
    #[command(hide = true, disable_help_flag = true)]
    Node {
        /// As the run gives them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

/// Run a federation, judge the run, and say what happened.
///
/// The faults are expanded from the seed, the federation runs until its application is finished, every fact is
/// recorded, and the record is judged. Nothing is retried.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run                                the quick start, real processes
  faultline run my.yaml --backend simulate --seed 42
  faultline run my.yaml --backend simulate --repeat 1000 -q
                                               rows of those that do not pass
  faultline run my.yaml --repeat 20            20 seeds, every record is kept
  faultline run my.yaml --backend kubernetes   in pods (docs/kubernetes.md)
  faultline run my.yaml --format json > summary.json")]
pub(crate) struct RunArguments {
    /// The federation; without one, the quick start (`faultline samples quickstart`).
    pub(crate) file: Option<PathBuf>,
    /// On what to run it.
    #[arg(long, value_enum, default_value_t = BackendName::Local)]
    pub(crate) backend: BackendName,
    /// What emulates the links (local). The links that are measured before the run are in the summary either way.
    #[arg(long, value_enum, default_value_t = LinksName::InNode)]
    pub(crate) links: LinksName,
    /// Decides everything random, instead of the seed in the file.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Runs this many times, each with the next seed, and prints a table with a row for each.
    ///
    /// Records are kept, except those of runs that pass in virtual time, which their seeds repeat to the bit.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) repeat: u32,
    /// With `--repeat`, keeps the records of all runs, also of those that pass in virtual time.
    #[arg(long, requires = "repeat")]
    pub(crate) keep: bool,
    /// Waits for so long for the end of the run (kubernetes), and leaves it in the cluster then. Default: without a limit,
    /// also while pods cannot start.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// Where the record goes, instead of a new directory in `faultline-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Also records what each process is given, for `faultline replay`.
    ///
    /// Not in pods.
    #[arg(long)]
    pub(crate) record: bool,
    /// Serves the sum of all nodes' metrics as Prometheus text at http://ADDR/metrics while the run lasts (local).
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// The three files of the HC3I paper's simulator.
///
/// docs/hc3i-files.md describes them; `faultline samples` lists those of the paper's experiments.
#[derive(Clone, Debug, Args)]
pub(crate) struct FilesArguments {
    /// Clusters, nodes, links as a triangular matrix, mean time between failures.
    #[arg(long, value_name = "FILE")]
    pub(crate) topology: PathBuf,
    /// Time of computation, and send probabilities or counts of messages.
    #[arg(long, value_name = "FILE")]
    pub(crate) application: PathBuf,
    /// Delays between checkpoints of each cluster, and between garbage collections.
    #[arg(long, value_name = "FILE")]
    pub(crate) timers: PathBuf,
}

/// Simulate three files of the HC3I paper's simulator, and print statistics.
///
/// The files are topology, application and timers (HC3I, section 5.1). They become one federation under HC3I, with
/// checkpoints in the memory of their owner and of one neighbour, which runs in virtual time, bit-identical per seed, and
/// is judged. With several seeds each number is printed with its mean and range.
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
    /// Decides everything random.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Runs with this many consecutive seeds.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// Runs at the same time; the output is the same whatever their number. Default: as many as there are cores.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// How long the application computes, instead of the duration in its file.
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,
    /// How the statistics are printed.
    #[arg(long, value_enum, default_value_t = StatisticsFormat::Text)]
    pub(crate) format: StatisticsFormat,
    /// What is printed beside the statistics, while it happens: to the standard output before them, or with `--format
    /// json` and `csv` to the standard error.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = TraceLevel::Statistics)]
    pub(crate) trace: TraceLevel,
}

/// Turn three files of the HC3I paper's simulator into one federation file.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline import --topology topology.yaml --application application.yaml \\
    --timers timers.yaml > paper.yaml
  faultline run paper.yaml --backend simulate")]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    pub(crate) files: FilesArguments,
    /// What the federation is called.
    #[arg(long, default_value = "imported")]
    pub(crate) name: String,
}

/// Repeat a published evaluation, and put the numbers beside the published ones.
///
/// Every experiment runs with many seeds on the simulator and is judged; HydEE's ping-pong runs on real processes. Writes one page (index.html), tables as CSV and
/// figures as SVG, and prints the findings: agrees, differs, or under-specified in the paper.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline reproduce hc3i
  faultline reproduce hc3i --quick --out /tmp/hc3i
  faultline reproduce hydee --quick
  faultline reproduce hydee-table1      the clusters of its table I, found")]
pub(crate) struct ReproduceArguments {
    /// Which evaluation.
    #[arg(value_enum)]
    pub(crate) paper: Paper,
    /// Fewer settings and seeds (HC3I: 5, HydEE: 1, on 64 processes): the shape of every figure, within a minute or so.
    #[arg(long)]
    pub(crate) quick: bool,
    /// With `hc3i`: also runs a small federation on real processes, with 10 seeds (3 with `--quick`) of 4 s each, and puts them beside
    /// the simulator.
    #[arg(long)]
    pub(crate) with_processes: bool,
    /// Runs of each setting. Default: 30 for HC3I, 3 for HydEE; fewer with `--quick`.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: Option<u32>,
    /// Runs at the same time; the output is the same whatever their number. Default: as many as there are cores.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Where the page, the tables and the figures go. Default: `faultline-` and the name of the evaluation.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Find out from a communication graph which processes should be in one cluster.
///
/// With few large clusters a failure takes many processes back; with many small ones much goes between clusters and has
/// to be logged. Prints the divisions that no other one found beats at both shares, and the chosen one: the least sum of both,
/// proved up to 12 processes and the best found beyond. The graph is an edge list (`from to bytes [messages]`, one channel a line; `faultline export --format graph` writes one) or a
/// METIS file (`.graph` or `.metis`) or GraphML (`.graphml`), or it is that of a recorded run. With `--out`, also writes all
/// divisions as a picture (front.svg) and as a table (front.csv), each process's cluster (clusters.csv), the clusters as they
/// stand in a federation file (clusters.yaml), and the object of `--format json` (clusters.json).
///
/// Several graphs are the traffic of one application in intervals of the same length, and so are the intervals of a run.
/// Then says whether it pays to change clusters between them, at a checkpoint, and prints the clusters of each interval beside
/// one division for all. With `--out`, writes the sums by interval (intervals.svg, intervals.csv), each process's cluster in
/// each interval (clusters.csv), the one division for all as it stands in a federation file (clusters.yaml), and clusters.json.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run my.yaml --backend simulate --out /tmp/run
  faultline export /tmp/run --format graph > my.edges
  faultline cluster my.edges
  faultline cluster my.edges --max-rollback 10 --out clusters
  faultline cluster my.edges --balance 1.1     clusters of nearly the same size
  faultline cluster /tmp/run --intervals 4     should they change while it runs?
  faultline cluster assemble.edges solve.edges --change-cost 5")]
pub(crate) struct ClusterArguments {
    /// The communication graph, or the directory of a recorded run; several in the order of time.
    #[arg(required = true, value_name = "GRAPH")]
    pub(crate) graphs: Vec<PathBuf>,
    /// The greatest share of processes that one failure may take back, in percent.
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, value_parser = percent)]
    pub(crate) max_rollback: Option<f64>,
    /// The largest cluster holds at most FACTOR times the mean of processes: 1 is clusters of the same size.
    ///
    /// For a federation whose sites have about as many machines each. Only such divisions are looked for.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, value_parser = balance)]
    pub(crate) balance: Option<f64>,
    /// Cut a recorded run into so many intervals of the same length.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(2..=1000))]
    pub(crate) intervals: Option<usize>,
    /// What a checkpoint of all processes writes, in percent of all bytes that are sent (several intervals) [default: 1].
    ///
    /// A change of clusters costs the part of it that is of processes whose cluster has other members than before.
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, value_parser = change_cost)]
    pub(crate) change_cost: Option<f64>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Where the files go.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// How many at the same time.
fn jobs(text: &str) -> Result<NonZero<usize>, String> {
    let jobs = number::<usize>(1..=1024)(text)?;
    Ok(NonZero::new(jobs).expect("the range begins with 1"))
}

/// Where to listen.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address in numbers and a port, such as 127.0.0.1:9464".to_owned())
}

/// A number in a range; `wrong` says what to write.
fn real(text: &str, range: impl RangeBounds<f64>, wrong: &str) -> Result<f64, String> {
    text.parse().ok().filter(|it| range.contains(it)).ok_or_else(|| wrong.to_owned())
}

/// A share in percent.
fn percent(text: &str) -> Result<f64, String> {
    let range = (Bound::Excluded(0.0), Bound::Included(100.0));
    real(text.trim_end_matches('%'), range, "write a number above 0 and up to 100, such as 12.5")
}

/// How many times the mean the largest cluster may be.
fn balance(text: &str) -> Result<f64, String> {
    let wrong = "write a number from 1 up, such as 1.2: the largest cluster holds at most so many times the mean of \
                 processes, and 1 is clusters of the same size";
    real(text, 1.0..f64::INFINITY, wrong)
}

/// What it costs to change all clusters, in percent.
fn change_cost(text: &str) -> Result<f64, String> {
    let wrong = "write a number from 0 up, such as 2.5: what a checkpoint of all processes writes, in percent of all \
                 bytes that are sent";
    real(text.trim_end_matches('%'), 0.0..f64::INFINITY, wrong)
}

/// A published evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Paper {
    /// Monnet, Morin, Badrinath: Hybrid Checkpointing for Parallel Applications in Cluster Federations, 2003.
    Hc3i,
    /// Guermouche, Ropars, Snir, Cappello: HydEE, 2012: ping-pong on real processes, the NAS kernels, and how far a failure
    /// spreads.
    Hydee,
    /// Guermouche, Ropars, Snir, Cappello: HydEE, 2012, table I: clusters for the NAS kernels. Nothing is run.
    HydeeTable1,
}

/// Run one federation under several protocols, and put what each costs and saves side by side.
///
/// Application, faults and seeds are the same for all. Each protocol runs with every seed, once without faults and once
/// with those of the file, in virtual time or on real processes, and every run is judged. A protocol that the file asks for keeps its options;
/// others take over those that both have (checkpointEvery, collectEvery, replicas, replicateTo). Writes one page with a
/// picture (index.html), the picture alone (picture.svg) and the numbers (comparison.json), and prints a table.
///
/// Exits with 1 when a run violated something; that a protocol cannot survive a fault is a row, and no failure.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline compare my.yaml
  faultline compare my.yaml --protocols hc3i,hydee --seeds 30 --out compared
  faultline compare my.yaml --backend local      real processes
  faultline compare my.yaml --format json > compared.json")]
pub(crate) struct CompareArguments {
    /// The federation.
    pub(crate) file: PathBuf,
    /// Which protocols, by name, in the order of the table. Default: all that can protect the application.
    #[arg(long, value_name = "P,…", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(compared()))]
    pub(crate) protocols: Vec<String>,
    /// On what the runs run. Real processes (local) run one after the other, each in its own time; their records stay in
    /// the directory of the page.
    #[arg(long, value_enum, default_value_t = ComparedOn::Simulate)]
    pub(crate) backend: ComparedOn,
    /// Runs of each protocol with faults, and as many without, with consecutive seeds. Default: 10, on real processes 3.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: Option<u32>,
    /// The first seed, instead of the one in the file.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Simulated runs at the same time; the output is the same whatever their number. Default: as many as there are cores.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Where the page, the picture and the numbers go.
    #[arg(long, value_name = "DIR", default_value = "faultline-compare")]
    pub(crate) out: PathBuf,
    /// How the comparison is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Run one federation at many settings of its parameters, and find the best.
///
/// `--set` names a field below `spec` and its values; several `--set` form a grid. Every setting runs in virtual time with
/// the same seeds, and every run is judged. Writes one page with pictures (index.html), a line for each run (runs.csv), the
/// estimates (sweep.json) and the federation file of each setting (settings/), and prints a table. Names the setting with
/// the least of one quantity, and how certain that is.
///
/// Interrupted, it keeps the runs it has made; the same command with `--resume` continues, also with more seeds.
///
/// Exits with 1 if a run violated a property, with 3 if it was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s \\
                          --set links.between.latency=1ms..100ms/5 --seeds 30 --best lostWork
  faultline sweep my.yaml --set clusters.paris.nodes=2..32/5 --format csv > runs.csv")]
pub(crate) struct SweepArguments {
    /// The federation.
    pub(crate) file: PathBuf,
    /// Varies the field at PATH below `spec`. VALUES are separated by commas; `1ms..100ms/5` stands for five values with equal
    /// ratios (with equal distances when the range begins at 0).
    #[arg(long = "set", value_name = "PATH=VALUES", required = true)]
    pub(crate) parameters: Vec<Parameter>,
    /// Runs of each setting, with consecutive seeds.
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// The first seed, instead of the one in the file. Also draws the settings of `--sample`.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Runs only this many settings of the grid, drawn at random.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(1..=4096))]
    pub(crate) sample: Option<usize>,
    /// The quantity whose least value makes a setting the best.
    #[arg(long, value_name = "QUANTITY", default_value = "seconds",
        value_parser = clap::builder::PossibleValuesParser::new(quantities().map(|it| it.name)))]
    pub(crate) best: String,
    /// Runs in parallel; the output is the same for any number. Default: as many as there are cores.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Where the page, the numbers and the settings are written.
    #[arg(long, value_name = "DIR", default_value = "faultline-sweep")]
    pub(crate) out: PathBuf,
    /// Continues a sweep that was interrupted in the same directory.
    #[arg(long)]
    pub(crate) resume: bool,
    /// How the sweep is printed.
    #[arg(long, value_enum, default_value_t = SweepFormat::Text)]
    pub(crate) format: SweepFormat,
}

/// How a sweep is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepFormat {
    /// For people: a row for each setting.
    Text,
    /// One JSON object.
    Json,
    /// A line for each run.
    Csv,
}

/// The protocols that can be compared, whatever the application.
fn compared() -> Vec<&'static str> {
    let mut all = Compared::compared(Family::Messages);
    let tasks = Compared::compared(Family::Tasks);
    all.splice(all.len() - 1..all.len() - 1, tasks.into_iter().filter(|it| *it != "none"));
    all
}

/// How statistics are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatisticsFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// One line for each number.
    Csv,
}

/// How much of a simulation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum TraceLevel {
    /// Nothing but the statistics.
    Statistics,
    /// What clusters do: checkpoints, collections, failures, rollbacks.
    Events,
    /// Also each message between clusters.
    Messages,
    /// Every action of every node, time-stamped.
    Actions,
}

/// On what protocols are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparedOn {
    /// Virtual time, bit-identical per seed.
    Simulate,
    /// Real processes on this machine.
    Local,
}

/// On what a federation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// One process per node on this machine, TCP between them, failures by SIGKILL.
    Local,
    /// The same protocol code in virtual time, bit-identical per seed.
    Simulate,
    /// Pods of a Kubernetes cluster on which Faultline is installed; nothing is left of them at the end.
    Kubernetes,
}

/// What can be examined.
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
    /// The kernel, with each node in a network namespace of its own; takes root (`faultline doctor`).
    Tc,
}

/// Say what this machine, or a Kubernetes cluster, can run and shape, and what to do about the rest.
///
/// Looks at limits for runs on real processes, and tries in a network namespace, which is gone afterwards, what the kernel
/// can do for `faultline run --links tc`. Changes nothing. Exits with 1 when something that was asked for is not possible.
///
/// Of a cluster, it looks at what `faultline run --backend kubernetes` and `faultline fetch` need in one namespace. With
/// `--tc` it also tries what the kernel of each Kubernetes node can do for `spec.kubernetes.links: tc`, in a pod on each
/// that is gone afterwards; this takes the rights to list nodes, to create, get, list and delete pods, and to get pods/log.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline doctor
  faultline doctor --nodes 200 --tc     200 nodes, links by traffic control
  faultline doctor --backend kubernetes --tc
  faultline doctor --format json")]
pub(crate) struct DoctorArguments {
    /// Where the run is to be.
    #[arg(long, value_enum, default_value_t = Examined::Local)]
    pub(crate) backend: Examined,
    /// Nodes of the run that is planned.
    #[arg(long, value_name = "N", default_value = "6", allow_negative_numbers = true, value_parser = nodes)]
    pub(crate) nodes: NonZero<u32>,
    /// Traffic control is needed, too.
    #[arg(long)]
    pub(crate) tc: bool,
    /// How the findings are printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// Judge a recorded run again.
///
/// Reads facts only: what the run itself concluded does not matter. Exits like the run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline check faultline-runs/quickstart-7
  faultline check faultline-runs/quickstart-7 -v     every property, in full
  faultline check faultline-runs/quickstart-7 --format json")]
pub(crate) struct CheckArguments {
    /// The record of a run.
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// Say in sentences why each cluster rolled back, to where, and what it lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline explain faultline-runs/quickstart-7")]
pub(crate) struct ExplainArguments {
    /// The record of a run.
    pub(crate) dir: PathBuf,
}

/// Write one self-contained page about a recorded run, with a space-time diagram.
///
/// The page needs no network. The diagram is also written as a picture of its own, `diagram.svg`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline report faultline-runs/quickstart-7
  faultline report faultline-runs/quickstart-7 --to /tmp/quickstart.html")]
pub(crate) struct ReportArguments {
    /// The record of a run.
    pub(crate) dir: PathBuf,
    /// Where to write the page, instead of `report.html` in the record; the picture goes beside it.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

/// Give the nodes of a recorded run once more what they were given, and compare what they do.
///
/// The run must have been recorded with `faultline run --record`, on any backend. Nothing is simulated: a node sees its
/// own inputs, each at its recorded time, and has to state the same facts and take the same actions. Fails with the first
/// difference.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline run my.yaml --record --out /tmp/run
  faultline replay /tmp/run                         every node, every life
  faultline replay /tmp/run --node paris-1")]
pub(crate) struct ReplayArguments {
    /// The record of a run.
    pub(crate) dir: PathBuf,
    /// Only this node.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Print the facts of a recorded run for other programs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline export faultline-runs/quickstart-7 > facts.jsonl
  faultline export faultline-runs/quickstart-7 --format csv > facts.csv
  faultline export faultline-runs/quickstart-7 --format graph > quickstart.edges")]
pub(crate) struct ExportArguments {
    /// The record of a run.
    pub(crate) dir: PathBuf,
    /// One table of facts as JSON objects or as comma-separated values (docs/bundle.md lists the columns), or the
    /// communication graph.
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
}

/// How facts are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON Lines.
    #[value(alias = "json")]
    Jsonl,
    /// Comma-separated values.
    Csv,
    /// Who sent how much to whom, as an edge list for `faultline cluster`.
    Graph,
}

/// Search random federations under random faults for the schedule that breaks recovery.
///
/// Each seed stands for a federation: clusters, links, storages, protocol parameters, an application, and faults at any
/// time, at events of the protocol, several at once and during recovery. Whole kinds of fault are left out at random; then
/// all is healed, and the federation has to recover and to finish. It runs in virtual time, is judged, and is run again
/// to see that it does the same. The first violation ends the search: its federation is made as small as it can be while
/// it still violates the same property, recorded, drawn, and written as a file that `faultline run` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline fuzz                                    1000 schedules
  faultline fuzz --for 10m --jobs 2                 as many as there is time for
  faultline fuzz --protocol hc3i --seed 5000 --runs 100 --format json
  faultline fuzz --file faultline-runs/fuzz-17/federation.yaml

Known defects are compiled in by a feature, so that no other build is wrong:
  cargo run --release --features defects -- fuzz --defect no-drain
  cargo run --release --features defects -- fuzz --defect hydee-no-gate
  cargo run --release --features defects -- fuzz --table --protocol hydee")]
pub(crate) struct FuzzArguments {
    /// Only federations with this protocol (hc3i, coordinated, chandyLamport, hierarchicalCoordinated,
    /// hydee, fullLogging, spbc, pessimisticLogging, independent), instead of HC3I, HydEE and the
    /// coordinated baseline in turn.
    #[arg(long, value_name = "P")]
    pub(crate) protocol: Option<Protocol>,
    /// How many schedules.
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "span",
        allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    pub(crate) runs: u64,
    /// As many schedules as fit into this time, such as 10m.
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) span: Option<Duration>,
    /// The first seed; the others follow. Default 0.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// How many schedules at a time; what is found does not depend on it. Default: one for each core.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// The share of schedules that are run a second time, in percent, to see that they do the same.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, allow_negative_numbers = true, value_parser = number::<u8>(0..=100))]
    pub(crate) twice: u8,
    /// Makes the protocol wrong in a known way (builds with the feature `defects`).
    #[arg(long, value_name = "NAME")]
    pub(crate) defect: Option<Defect>,
    /// How many schedules it takes to find each known defect, as a table (builds with the feature `defects`).
    #[arg(long, conflicts_with_all = ["file", "span"])]
    pub(crate) table: bool,
    /// Runs the federation in this file, and prints the run line by line, instead of searching.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["span", "protocol"])]
    pub(crate) file: Option<PathBuf>,
    /// Leaves what is found as it is.
    #[arg(long)]
    pub(crate) no_shrink: bool,
    /// Where the record of what is found goes, instead of a new directory in `faultline-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Only the verdict and what is found; no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl FuzzArguments {
    /// A search of which nothing is said.
    pub(crate) fn silent(format: Format) -> FuzzArguments {
        FuzzArguments {
            protocol: None,
            runs: 1000,
            span: None,
            seed: None,
            jobs: None,
            twice: 0,
            defect: None,
            table: false,
            file: None,
            no_shrink: false,
            out: None,
            format,
            quiet: true,
        }
    }
}

/// Write a page about the rules of a published protocol that fail.
///
/// For each rule of the paper that fails as printed, or that is missing: what it breaks, the shortest counterexample that
/// the fuzzer finds, as a transcript and a picture, the share of random schedules that it breaks, and the corrected rule.
/// Every counterexample is recorded, and runs again by the line under it. Takes some minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Example (known defects are compiled in by a feature):
  cargo run --release --features defects -- errata hc3i --out errata
  cargo run --release --features defects -- errata hydee --out errata-hydee")]
pub(crate) struct ErrataArguments {
    /// Whose: hc3i, hydee.
    pub(crate) protocol: String,
    /// Where the page and the records of the counterexamples go.
    #[arg(long, value_name = "DIR", default_value = "errata")]
    pub(crate) out: PathBuf,
    /// How many schedules for each rule.
    #[arg(long, value_name = "N", default_value_t = 5000, allow_negative_numbers = true, value_parser = number::<u64>(1..=u64::MAX))]
    pub(crate) runs: u64,
    /// How many schedules at a time. Default: one for each core.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// No progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Print what a file's faults expand to under a seed.
///
/// Times are counted from the beginning of the application. What waits for a fact has no time before the run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline plan my.yaml
  faultline plan my.yaml --seed 42 --format json")]
pub(crate) struct PlanArguments {
    /// The federation.
    pub(crate) file: PathBuf,
    /// Decides everything random, instead of the seed in the file.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// How the plan is printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Say whether a file can be run, and if not, what to change where.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline validate my.yaml
  faultline validate my.yaml --orders 8
  faultline validate new.yaml --running my.yaml   may it change so?")]
pub(crate) struct ValidateArguments {
    /// The federation.
    pub(crate) file: PathBuf,
    /// Says what would change if a federation that runs on Kubernetes with this file were changed to the other one: its
    /// links, added faults, a pause. What cannot change is an error, as it is for an API server.
    #[arg(long, value_name = "FILE", conflicts_with = "orders")]
    pub(crate) running: Option<PathBuf>,
    /// Also runs the application, without failures, in so many random orders of delivery, and compares what each process
    /// sends: a protocol that repeats executions, such as hydee, cannot protect a program that lets the order of arrival
    /// decide. Takes as long as the application computes, for each order.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(1..=1000))]
    pub(crate) orders: Option<u32>,
}

/// Print a federation to start from, or list what there is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline samples                                what there is
  faultline samples quickstart > my.yaml           one of them, to change")]
pub(crate) struct SamplesArguments {
    /// Which.
    pub(crate) name: Option<String>,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline completions bash > /etc/bash_completion.d/faultline
  faultline completions zsh > ~/.zfunc/_faultline")]
pub(crate) struct CompletionsArguments {
    /// For which.
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_fits_and_no_example_is_broken_over_lines() {
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
    fn a_number_out_of_range_is_refused() {
        assert!(percent("0").is_err() && percent("NaN").is_err() && percent("12.5%") == Ok(12.5));
        assert!(["0.5", "NaN", "inf", "-2", "x", ""].iter().all(|it| balance(it).is_err()));
        assert_eq!((balance("1"), balance("1.25")), (Ok(1.0), Ok(1.25)));
        assert!(["-1", "NaN", "inf", "x", ""].iter().all(|it| change_cost(it).is_err()));
        assert_eq!((change_cost("0"), change_cost("250%")), (Ok(0.0), Ok(250.0)));
        assert!(jobs("0").is_err());
    }
}
