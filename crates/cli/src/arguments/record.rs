//! Arguments of the commands that read the record of a run.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use faultline_consistency::MODELS;
use faultline_console::arguments::{Format, OutputArguments};

use super::{FilesArguments, address};

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

/// What `doctor` examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Examined {
    /// This machine.
    Local,
    /// A Kubernetes cluster.
    Kubernetes,
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
  faultline check --events log.jsonl --mapping torchft --out run
  faultline check --history history.edn --model register")]
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
    /// Print what the mapping makes of the first lines, and judge nothing
    #[arg(long, requires = "events", conflicts_with = "out")]
    pub(crate) dry_run: bool,
    /// Record the imported run in DIR, so that `explain`, `report` and `check` can read it
    #[arg(long, value_name = "DIR", requires = "events")]
    pub(crate) out: Option<PathBuf>,
    /// Judge the history of clients in FILE, which another program recorded, instead of a recorded run; `-` reads
    /// standard input
    #[arg(long, value_name = "FILE", requires = "model")]
    #[arg(conflicts_with_all = ["dir", "resimulate", "run_programs", "events", "strict"])]
    pub(crate) history: Option<PathBuf>,
    /// Compare the history with this model of the data
    #[arg(long, value_name = "MODEL", requires = "history")]
    #[arg(value_parser = PossibleValuesParser::new(MODELS.iter().map(|it| it.name)))]
    pub(crate) model: Option<String>,
    /// Expect this level of consistency [default: the strongest of the model]
    #[arg(long, value_name = "LEVEL", requires = "history")]
    pub(crate) level: Option<String>,
    /// Also write the results to FILE as JUnit XML: a case for each expectation, and for each property that was exercised
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "history"])]
    pub(crate) junit: Option<PathBuf>,
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

/// Serve a page about a run that is in progress, about a recorded run, or about all records in a directory.
///
/// Follows a run that another program performs, and shows the report at the same address once the run has ended. For a
/// directory that contains records, lists them with their verdicts, and the pages of comparisons, sweeps and
/// reproductions. Prints the address. Only this machine can reach the page. Ends with Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline view
  faultline view faultline-runs/quickstart-7
  faultline view faultline-runs                     all records")]
pub(crate) struct ViewArguments {
    /// Read the run, or all runs, in this directory [default: the newest one in `faultline-runs`]
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
  faultline export faultline-runs/quickstart-7 --format events > events.jsonl
  faultline export faultline-runs/etcd-1 --format jepsen > history.edn")]
pub(crate) struct ExportArguments {
    /// Read the recorded run in this directory [default: the newest one in `faultline-runs`]
    pub(crate) dir: Option<PathBuf>,
    /// Choose the output: a table of facts as JSON objects or comma-separated values (docs/bundle.md lists the
    /// columns), the communication graph, events for `faultline check --events`, or what clients were told
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
    /// Export the history of these clients (`clients` in the file); only for `jepsen` [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) clients: Option<String>,
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
    /// The operations of clients in the form of Jepsen (`history.edn`), for Elle, Knossos or `faultline check --history`.
    Jepsen,
}
