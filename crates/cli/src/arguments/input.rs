//! Arguments of the commands that read a federation or another input file without running anything.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use faultline_api::quantity::Duration;
use faultline_console::arguments::{Format, number};
use faultline_core::Time;
use faultline_failures::Format as TraceFormat;

use super::{percent, real};
use crate::files::all_samples;

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

/// Choose clusters from a communication graph.
///
/// Large clusters roll back more processes per failure; small clusters log more messages. Prints the best trade-offs
/// between the share rolled back and the share logged, and the chosen division, which has the smallest sum of both
/// (proven optimal for up to 12 processes; for more, the best found). The graph is an edge list
/// (`from to bytes [messages]`, one channel per line; `faultline export --format graph` writes one), a METIS file
/// (`.graph` or `.metis`), or a recorded run. With `--out`, also writes all divisions as a picture (front.svg) and as a
/// table (front.csv), the cluster of each process (clusters.csv), the clusters in the form of a federation file
/// (clusters.yaml), and the output of `--format json` (clusters.json).
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

/// Names of causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Causes(pub(crate) Vec<String>);

impl Causes {
    /// Reads names that commas separate. A name in double quotes may contain commas, and `""` is a quote in it.
    fn parse(text: &str) -> Result<Causes, String> {
        let mut names = vec![String::new()];
        let (mut rest, mut is_quoted) = (text.chars().peekable(), false);
        while let Some(next) = rest.next() {
            let name = names.last_mut().expect("there is always a last name");
            match next {
                '"' if is_quoted && rest.next_if_eq(&'"').is_some() => name.push('"'),
                '"' if is_quoted || name.is_empty() => is_quoted = !is_quoted,
                ',' if !is_quoted => names.push(String::new()),
                other => name.push(other),
            }
        }
        if is_quoted {
            return Err("a double quote has no end".to_owned());
        }
        Ok(Causes(names))
    }
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
    /// Keep only faults with these causes. Enclose a cause that contains a comma in double quotes, as in a CSV file
    #[arg(long, value_name = "CAUSE,…", value_parser = Causes::parse)]
    pub(crate) causes: Option<Causes>,
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

/// Parses the maximum ratio of the largest cluster to the average.
pub(super) fn balance(text: &str) -> Result<f64, String> {
    let wrong = "write a number of at least 1, such as 1.2: the ratio of the largest cluster to the average size; 1 means clusters \
                 of equal size";
    real(text, 1.0..f64::INFINITY, wrong)
}

/// Parses the cost of changing all clusters, in percent.
pub(super) fn change_cost(text: &str) -> Result<f64, String> {
    let wrong = "write a number of at least 0, such as 2.5: the size of a checkpoint of all processes as a percentage \
                 of all bytes sent";
    real(text.trim_end_matches('%'), 0.0..f64::INFINITY, wrong)
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

/// Check whether files can be run, and suggest fixes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline validate my.yaml
  faultline validate *.yaml
  faultline validate my.yaml --orders 8
  faultline validate new.yaml --running my.yaml   check a change")]
pub(crate) struct ValidateArguments {
    /// Read the federation from this file, or from standard input if it is `-`. With several files, check each of them
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
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

#[cfg(test)]
mod tests {
    use super::Causes;

    #[test]
    fn a_cause_may_contain_a_comma() {
        let read = |text: &str| Causes::parse(text).map(|it| it.0);
        assert_eq!(read("GPU,NIC"), Ok(vec!["GPU".to_owned(), "NIC".to_owned()]));
        assert_eq!(
            read(r#""fan, disk",a"b,"say ""no""""#),
            Ok(vec!["fan, disk".to_owned(), r#"a"b"#.to_owned(), r#"say "no""#.to_owned(),])
        );
        assert!(read("\"fan").is_err());
    }
}
