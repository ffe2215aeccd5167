//! Settings of the operator.

use clap::Args;
use faultline_api::supervision::MAX_PROCESSES;
use faultline_client::naming::NODE_IMAGE;
use faultline_client::ports;

/// Settings that do not change while the operator runs.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Run processes and supervisors from this image.
    #[arg(long, env = "FAULTLINE_NODE_IMAGE", value_name = "IMAGE", default_value = NODE_IMAGE)]
    pub node_image: String,
    /// Pull the pods' image according to this policy: Always, IfNotPresent or Never.
    #[arg(long, env = "FAULTLINE_NODE_PULL_POLICY", value_name = "POLICY", default_value = PULL_POLICY,
        value_parser = ["Always", "IfNotPresent", "Never"])]
    pub node_pull_policy: String,
    /// Use these secrets (comma-separated) to pull the pods' image. Each namespace with federations must contain them.
    #[arg(long, env = "FAULTLINE_NODE_PULL_SECRETS", value_name = "NAMES", value_delimiter = ',')]
    pub node_pull_secrets: Vec<String>,
    /// Reject federations with more pods than this, including the supervisor's pod.
    #[arg(long, env = "FAULTLINE_MAX_PODS", value_name = "N", default_value_t = MAX_PODS,
        value_parser = clap::value_parser!(u32).range(2..=MAX_PROCESSES as i64))]
    pub max_pods: u32,
    /// Run the commands of systems in these images (comma-separated patterns, in which * stands for any text). Rejects
    /// federations with other images. Default: none.
    #[arg(long, env = "FAULTLINE_ALLOW_IMAGES", value_name = "PATTERNS", value_delimiter = ',')]
    pub allow_images: Vec<String>,
    /// Port of the supervisors' API.
    #[arg(skip = ports::SUPERVISOR_API)]
    pub supervisor_api_port: u16,
}

/// Default policy for pulling the image of federations' pods.
pub const PULL_POLICY: &str = "IfNotPresent";
/// Default maximum number of pods per federation.
pub const MAX_PODS: u32 = 500;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_image: NODE_IMAGE.into(),
            node_pull_policy: PULL_POLICY.into(),
            node_pull_secrets: Vec::new(),
            max_pods: MAX_PODS,
            allow_images: Vec::new(),
            supervisor_api_port: ports::SUPERVISOR_API,
        }
    }
}
