//! The command line of `kubectl faultline`. The help text is part of the product.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use faultline_api::quantity::{Duration, Size};
use faultline_client::naming::NODE_IMAGE;
pub(crate) use faultline_console::arguments::{FetchArguments, Format, KubernetesArguments, OutputArguments};
use faultline_console::arguments::{nodes, number};
use faultline_console::campaign::WorkerArguments;

/// Run federations on a Kubernetes cluster that has the Faultline operator.
///
/// Uses the cluster, the user and the namespace of the kubeconfig, as kubectl does.
#[derive(Debug, Parser)]
#[command(name = "kubectl-faultline", bin_name = "kubectl faultline", version, propagate_version = true)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
#[command(after_long_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    /// Subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0  pass: all required properties were judged, and hold
  1  fail: a property is violated
  2  bad input: the file, the cluster or the arguments are invalid
  3  unknown: no property is violated, but some could not be judged";

const FETCH_EXAMPLES: &str = "\
Examples:
  kubectl faultline fetch federation/quickstart
  faultline check $(kubectl faultline fetch quickstart --namespace experiments)";

/// Subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArguments),
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch(FetchArguments),
    View(ViewArguments),
    Doctor(DoctorArguments),
    Logs(LogsArguments),
    /// List, show or cancel campaigns: runs that pods perform for `faultline sweep --backend kubernetes`, for example.
    #[command(subcommand, disable_help_subcommand = true)]
    Campaign(CampaignCommand),
    /// Print a completion script for a shell.
    #[command(after_help = "\
Example:
  kubectl faultline completions bash > /etc/bash_completion.d/kubectl-faultline")]
    Completions {
        /// Generate the script for this shell
        shell: Shell,
    },
}

impl Command {
    /// Returns whether the program logs debug messages.
    pub(crate) fn is_verbose(&self) -> bool {
        matches!(self, Command::Run(RunArguments { output, .. }) if output.verbose > 1)
    }
}

/// Subcommand of `campaign`.
#[derive(Debug, Subcommand)]
pub(crate) enum CampaignCommand {
    /// Let pods perform the parts of a campaign. Used internally by `faultline`.
    #[command(hide = true)]
    Perform(PerformArguments),
    /// List the campaigns in a namespace.
    List {
        /// Cluster and namespace.
        #[command(flatten)]
        cluster: KubernetesArguments,
    },
    /// Show a campaign: its parts, what delays it, and its command.
    View {
        /// Select the campaign
        name: String,
        /// Cluster and namespace.
        #[command(flatten)]
        cluster: KubernetesArguments,
    },
    /// Cancel a campaign. The results that a command has already collected are kept.
    Cancel {
        /// Select the campaign
        name: String,
        /// Cluster and namespace.
        #[command(flatten)]
        cluster: KubernetesArguments,
    },
}

/// Let pods perform the parts of a campaign.
#[derive(Debug, Args)]
pub(crate) struct PerformArguments {
    /// Directory with the description of the campaign, to which the results are written
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) workers: WorkerArguments,
    /// End the campaign at the first violation
    #[arg(long)]
    pub(crate) first_found: bool,
    /// Show progress only on a terminal, and only after a few seconds
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Run a federation in pods, fetch its record, judge it, and delete the federation.
///
/// Expands the faults from the seed. Judges the record on this machine, as `faultline check` does. If interrupted
/// before the run ends, deletes the federation. If it stops waiting (`--timeout`) or cannot fetch the record, the
/// federation stays in the cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl faultline run                      run the quick start
  kubectl faultline run my.yaml --seed 42 --namespace experiments
  kubectl faultline run my.yaml --repeat 20 --out runs
  kubectl faultline run my.yaml --timeout 10m --format json > summary.json")]
pub(crate) struct RunArguments {
    /// Read the federation from this file, or from standard input if it is `-` [default: the sample `quickstart`]
    pub(crate) file: Option<PathBuf>,
    /// Use this seed instead of the one in the file
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(0..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Run N times with consecutive seeds, and print a table with one row per run
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) repeat: u32,
    /// Stop waiting for the run after this time, and leave the federation in the cluster. Default: no limit, even while
    /// pods cannot start
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// Write the record to DIR instead of a new directory in `faultline-runs`
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Also write the results to FILE as JUnit XML: a case for each expectation, and for each property that was exercised
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Serve a page that shows the run, and then its report. Prints an address to watch, and, if you may patch
    /// federations, one that can also add faults and pause the run [default ADDR: 127.0.0.1:7380, or the next free port]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true)]
    pub(crate) view: Option<Option<SocketAddr>>,
    /// Limit the memory of this program to SIZE, such as 2GiB. A record that cannot be judged within the limit is
    /// rejected. Does not apply to the supervisor, which has its own limit. Default: half of the memory of the machine,
    /// or of the container if its limit is lower
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<Size>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// Serve a page about a run in pods, and its report once the run has ended.
///
/// Follows the run from this machine, and does not affect it. Prints an address to watch, and, if you may patch
/// federations, one that can also add faults and pause the run. Requires permission to get federations and the secret
/// `NAME-reader`, and to get and create pods/portforward. Only this machine can reach the page. Ends with Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl faultline view federation/quickstart
  kubectl faultline view quickstart --namespace experiments")]
pub(crate) struct ViewArguments {
    /// Select the federation, in the notation of kubectl
    #[arg(value_name = "federation/NAME")]
    pub(crate) federation: String,
    /// Serve the page at this address [default: 127.0.0.1:7380, or the next free port]
    #[arg(long, value_name = "ADDR")]
    pub(crate) at: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// Check whether a Kubernetes cluster can run federations in a namespace, and suggest fixes.
///
/// Checks the definition, the operator, your permissions, and the capacity for pods. With `--tc`, also tests on each
/// Kubernetes node that accepts pods, in a temporary pod, which of the features used by `spec.kubernetes.links: tc` the
/// kernel supports. This requires permission to list nodes, to create, get, list and delete pods, and to get pods/log.
/// Exits with 1 if the cluster cannot do what you requested.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl faultline doctor
  kubectl faultline doctor --nodes 200 --tc
  kubectl faultline doctor --namespace experiments --format json")]
pub(crate) struct DoctorArguments {
    /// Check the capacity for a run with N nodes [default: for the quick start]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = nodes)]
    pub(crate) nodes: Option<NonZero<u32>>,
    /// Also check traffic control
    #[arg(long)]
    pub(crate) tc: bool,
    /// Check traffic control with this node image of this program's version
    #[arg(long, requires = "tc", value_name = "IMAGE", default_value = NODE_IMAGE)]
    pub(crate) image: String,
    /// Choose the output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

/// Print the log of a federation's supervisor, or of one of its processes.
///
/// Requires, in the federation's namespace, permission to get federations and pods/log. On a terminal, replaces the
/// log's control characters except line breaks and tabs. Writes the log unchanged to a pipe or a file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl faultline logs federation/quickstart          log of the supervisor
  kubectl faultline logs quickstart paris-1 --follow
  kubectl faultline logs quickstart paris-1 --previous  before the last restart")]
pub(crate) struct LogsArguments {
    /// Select the federation, in the notation of kubectl
    #[arg(value_name = "federation/NAME")]
    pub(crate) federation: String,
    /// Select the process, such as `paris-1` [default: the supervisor]
    pub(crate) process: Option<String>,
    /// Follow the log until the container ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print the log of the container from before its last restart
    #[arg(long, short, conflicts_with = "follow")]
    pub(crate) previous: bool,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}

#[cfg(test)]
mod tests {
    use super::*;

    use clap::CommandFactory;

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
    fn seeds_are_limited_to_those_of_a_resource() {
        let with = |seed: &str| Arguments::try_parse_from(["kubectl-faultline", "run", "--seed", seed]);
        assert!(with("9223372036854775807").is_ok());
        assert!(with("9223372036854775808").unwrap_err().to_string().contains("to 9223372036854775807"));
    }
}
