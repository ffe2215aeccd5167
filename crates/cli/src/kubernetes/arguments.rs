//! What can be asked for on the command line about federations on Kubernetes.

use std::path::PathBuf;

use clap::Args;

/// Which cluster, and where on it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct KubernetesArguments {
    /// The namespace of the federation, instead of that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The context of the kubeconfig, instead of the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Fetch the record of a run on Kubernetes, for check, explain and report.
///
/// The supervisor's pod keeps the record until the federation is deleted. It is reached over a port that the API server
/// forwards; nothing has to be open. Takes, in the federation's namespace, the right to get federations, the secret
/// NAME-key and pods/portforward, and to create pods/portforward. Prints the directory that the record is in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline fetch federation/quickstart
  faultline check $(faultline fetch quickstart --namespace experiments)")]
pub(crate) struct FetchArguments {
    /// The federation, as kubectl names it.
    #[arg(value_name = "federation/NAME")]
    pub(crate) federation: String,
    /// Where the record goes, instead of a new directory in `faultline-runs`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: KubernetesArguments,
}
