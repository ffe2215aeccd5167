//! Command-line arguments. The help text is part of the product.
//!
//! | module | arguments of the commands |
//! | --- | --- |
//! | `input` | those that read a federation or another input file, and run nothing |
//! | `record` | those that read the record of a run |
//! | `run` | those that perform single runs |
//! | `search` | those that search for violations |
//! | `study` | those that perform many runs to measure something |

mod input;
mod record;
mod run;
mod search;
mod study;

use std::net::SocketAddr;
use std::num::NonZero;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use faultline_api::quantity::Size;
pub(crate) use faultline_console::arguments::{FetchArguments, Format, KubernetesArguments, OutputArguments};
use faultline_console::arguments::{nodes, number};

pub(crate) use input::{
    ClusterArguments, FilesArguments, PlanArguments, SamplesArguments, TracesArguments, ValidateArguments,
};
pub(crate) use record::{
    CheckArguments, Examined, ExplainArguments, ExportArguments, ExportFormat, ImportArguments,
    ReplayArguments, ReportArguments, ViewArguments,
};
pub(crate) use run::{BackendName, LinksName, RunArguments, SimulateArguments, SimulatedOn};
pub(crate) use search::{ErrataArguments, ExploreArguments, FuzzArguments, Overtakings, StorageName};
pub(crate) use study::{
    CompareArguments, ComparedOn, ModelArguments, Paper, PartArguments, ReproduceArguments, StatisticsFormat,
    SweepArguments, SweepFormat, compared,
};

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

/// Parses a number of parallel jobs.
fn jobs(text: &str) -> Result<NonZero<usize>, String> {
    let jobs = number::<usize>(1..=1024)(text)?;
    Ok(NonZero::new(jobs).expect("the range begins with 1"))
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

/// Parses an address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:9464".to_owned())
}

/// Parses a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let range = (Bound::Excluded(0.0), Bound::Included(100.0));
    real(text.trim_end_matches('%'), range, "write a number above 0 and at most 100, such as 12.5")
}

/// Parses a number in a range; `wrong` is the error.
fn real(text: &str, range: impl RangeBounds<f64>, wrong: &str) -> Result<f64, String> {
    text.parse().ok().filter(|it| range.contains(it)).ok_or_else(|| wrong.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::input::{balance, change_cost};
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
