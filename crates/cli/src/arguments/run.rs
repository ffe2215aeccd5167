//! Arguments of the commands that perform single runs.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use faultline_api::quantity::Duration;
use faultline_console::arguments::{KubernetesArguments, OutputArguments, number};

use super::{FilesArguments, StatisticsFormat, TraceLevel, address, jobs};

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
    /// Also write the results to FILE as JUnit XML: a case for each expectation, and for each property that was exercised
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Also record the inputs of each process, for `faultline replay`
    ///
    /// Not supported on Kubernetes.
    #[arg(long)]
    pub(crate) record: bool,
    /// With `--backend local`, serve the combined metrics of all nodes during the run, as Prometheus text at
    /// http://ADDR/metrics
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Serve a page that shows the run, and then its report. Prints two addresses, one of which can also add faults and
    /// pause the run [default ADDR: 127.0.0.1:7380, or the next free port]
    ///
    /// In virtual time, the page shows only the progress until the run has ended, and there is one address.
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

/// What emulates links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinksName {
    /// A delay line in each node, before the socket.
    InNode,
    /// The kernel, with each node in its own network namespace; requires root or user namespaces (see `faultline doctor`).
    Tc,
}
