//! What the operator is told when it starts.

use clap::Args;

/// What stays the same for as long as the operator runs.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The image of the processes and of their supervisor.
    #[arg(long, env = "FAULTLINE_NODE_IMAGE", value_name = "IMAGE", default_value = DEFAULT_NODE_IMAGE)]
    pub node_image: String,
    /// Most pods of one federation, with the supervisor's. A larger federation is refused.
    #[arg(long, env = "FAULTLINE_MAX_PODS", value_name = "N", default_value_t = MAX_PODS)]
    pub max_pods: u32,
    /// The port of the supervisors' API.
    #[arg(skip = SUPERVISOR_API_PORT)]
    pub supervisor_api_port: u16,
}

/// The image of the processes of this version.
pub const DEFAULT_NODE_IMAGE: &str = concat!("faultline-node:", env!("CARGO_PKG_VERSION"));
/// Most pods of one federation, unless the operator is told otherwise.
pub const MAX_PODS: u32 = 500;
/// Where an agent listens, in its pod.
pub const AGENT_PORT: u16 = 7400;
/// Where a process listens for the others, in its pod.
pub const NODE_PORT: u16 = 7401;
/// Where the supervisor listens for its nodes, in its pod.
pub const SUPERVISOR_PORT: u16 = 7300;
/// Where the supervisor's API is, in its pod.
pub const SUPERVISOR_API_PORT: u16 = 7301;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_image: DEFAULT_NODE_IMAGE.into(),
            max_pods: MAX_PODS,
            supervisor_api_port: SUPERVISOR_API_PORT,
        }
    }
}
