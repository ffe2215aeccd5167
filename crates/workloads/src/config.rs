//! The parameters of a workload, and what makes them valid.
//!
//! Equal for every rank of a federation. Validity depends on the shape of the federation, so it is checked against the
//! sizes of the clusters; a workload built from parameters that fail the check panics.

use serde::{Deserialize, Serialize};

use crate::{exchange, farm, heat, nas, pingpong, salted, synthetic};

/// Which application runs, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Config {
    /// Coupled heat solvers.
    Heat(heat::Config),
    /// Messages by probability, by exact count, or as fast as possible.
    Synthetic(synthetic::Config),
    /// Random message-passing programs.
    Exchange(exchange::Config),
    /// The communication of a NAS kernel.
    Nas(nas::Config),
    /// Ping-pong over lengths of messages.
    PingPong(pingpong::Config),
    /// Master and workers.
    Farm(farm::Config),
    /// Sends that differ in every re-execution.
    Salted(salted::Config),
}

impl Config {
    /// Checks the parameters for a federation whose clusters have `clusters[i]` ranks.
    pub fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        match self {
            Config::Heat(config) => config.validate(),
            Config::Synthetic(config) => config.validate(clusters),
            Config::Exchange(config) => config.validate(clusters),
            Config::Nas(config) => config.validate(clusters),
            Config::PingPong(config) => config.validate(clusters),
            Config::Farm(config) => config.validate(clusters),
            Config::Salted(config) => config.validate(),
        }
    }
}

/// Why parameters cannot be run. Fields are named as in the configuration types.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// Less than the least that makes sense.
    #[error("{field} must be at least 1")]
    Zero {
        /// Which.
        field: &'static str,
    },
    /// More than the greatest that this testbed carries.
    #[error("{field} is {value}; at most {limit} is possible")]
    TooLarge {
        /// Which.
        field: &'static str,
        /// As given.
        value: u64,
        /// The greatest value.
        limit: u64,
    },
    /// Less than is possible.
    #[error("{field} is {value}; at least {least} is needed")]
    TooSmall {
        /// Which.
        field: &'static str,
        /// As given.
        value: u64,
        /// The least value.
        least: u64,
    },
    /// A pattern that this many ranks cannot have.
    #[error("the pattern cannot be run on {found} ranks; it can on 16, 64, 256, 1024 or 4096")]
    Ranks {
        /// Ranks of the federation.
        found: usize,
    },
    /// Not every rank once.
    #[error("order must name each of the {ranks} ranks once, from 0 on")]
    NotAnOrder {
        /// Ranks of the federation.
        ranks: usize,
    },
    /// Not a probability.
    #[error("{field} is {value}, which is not a probability between 0 and 1")]
    NotAProbability {
        /// Which.
        field: &'static str,
        /// As given.
        value: f64,
    },
    /// A list with one entry a cluster has another length.
    #[error("{field} has {found} entries; the federation has {clusters} clusters")]
    NotPerCluster {
        /// Which.
        field: &'static str,
        /// Entries given.
        found: usize,
        /// Clusters of the federation.
        clusters: usize,
    },
    /// A cluster that joins after it leaves, or leaves after the program ends.
    #[error("cluster {cluster} has no time in the program")]
    NoTerm {
        /// Its index.
        cluster: usize,
    },
    /// Messages between clusters of which one leaves before the other joins.
    #[error("clusters {from} and {to} are never there together")]
    NeverTogether {
        /// Index of the sending cluster.
        from: usize,
        /// Index of the receiving cluster.
        to: usize,
    },
    /// Clusters join or leave in a program that knows no time.
    #[error("traffic that goes as fast as possible has no time at which a cluster joins or leaves")]
    Timeless,
    /// Messages inside a cluster whose only rank has nobody to send to.
    #[error("cluster {cluster} has one node, which cannot send messages inside its cluster")]
    NobodyToSendTo {
        /// Its index.
        cluster: usize,
    },
}

/// Fails unless `value` lies in `1..=limit`.
pub(crate) fn in_range(field: &'static str, value: u64, limit: u64) -> Result<(), Invalid> {
    match value {
        0 => Err(Invalid::Zero { field }),
        _ if value > limit => Err(Invalid::TooLarge { field, value, limit }),
        _ => Ok(()),
    }
}

/// Fails unless `value` is a probability.
pub(crate) fn is_probability(field: &'static str, value: f64) -> Result<(), Invalid> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(Invalid::NotAProbability { field, value }) }
}
