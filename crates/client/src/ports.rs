//! Ports on which the programs in a federation's pods listen.

/// Port of a node's agent.
pub const AGENT: u16 = 7400;
/// Port on which a process listens for other processes.
pub const NODE: u16 = 7401;
/// Port on which the supervisor listens for nodes.
pub const SUPERVISOR: u16 = 7300;
/// Port of the supervisor's HTTP API.
pub const SUPERVISOR_API: u16 = 7301;
