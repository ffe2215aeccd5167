//! Limits of parameters.

/// The reason why parameters are invalid. Fields are named as in the configuration types.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A parameter that must not be zero is zero.
    #[error("`{field}` must be at least 1")]
    Zero {
        /// Name of the parameter.
        field: &'static str,
    },
    /// A parameter exceeds its limit.
    #[error("`{field}` must be at most {limit} (found {value})")]
    TooLarge {
        /// Name of the parameter.
        field: &'static str,
        /// The value found.
        value: u64,
        /// Greatest permitted value.
        limit: u64,
    },
    /// A parameter is below the smallest permitted value.
    #[error("`{field}` must be at least {least} (found {value})")]
    TooSmall {
        /// Name of the parameter.
        field: &'static str,
        /// The value found.
        value: u64,
        /// Smallest permitted value.
        least: u64,
    },
    /// The pattern does not support this number of ranks.
    #[error("the pattern does not support {found} ranks; use 16, 64, 256, 1024 or 4096")]
    Ranks {
        /// Number of ranks in the federation.
        found: usize,
    },
    /// An order does not contain every rank exactly once.
    #[error("`order` must contain each of the {ranks} ranks exactly once, counted from 0")]
    NotAnOrder {
        /// Number of ranks in the federation.
        ranks: usize,
    },
    /// A parameter is not a probability.
    #[error("`{field}` must be a probability between 0 and 1 (found {value})")]
    NotAProbability {
        /// Name of the parameter.
        field: &'static str,
        /// The value found.
        value: f64,
    },
    /// A list does not have one entry per cluster.
    #[error("`{field}` must have {clusters} entries, one per cluster (found {found})")]
    NotPerCluster {
        /// Name of the parameter.
        field: &'static str,
        /// Number of entries found.
        found: usize,
        /// Number of clusters in the federation.
        clusters: usize,
    },
    /// A cluster leaves before it joins, or the program ends before the cluster has joined and left.
    #[error("cluster {cluster} must join before it leaves, and both must happen before the program ends")]
    NoTerm {
        /// Index of the cluster.
        cluster: usize,
    },
    /// There are messages between two clusters, one of which leaves before the other joins.
    #[error("clusters {from} and {to} are never present at the same time")]
    NeverTogether {
        /// Index of the sending cluster.
        from: usize,
        /// Index of the receiving cluster.
        to: usize,
    },
    /// Clusters join or leave under burst traffic, which has no notion of time.
    #[error("clusters cannot join or leave under burst traffic")]
    Timeless,
    /// There are messages inside a cluster whose single rank has no peer.
    #[error("cluster {cluster} has one node, which cannot send messages inside its cluster")]
    OneNode {
        /// Index of the cluster.
        cluster: usize,
    },
    /// The program sends messages between processes, but the federation has only one process.
    #[error("the federation has only one process, which cannot exchange messages")]
    OneProcess,
}

/// Fails unless clusters of these sizes have at least two processes in total.
pub(crate) fn has_peers(clusters: &[usize]) -> Result<(), Invalid> {
    if clusters.iter().sum::<usize>() < 2 { Err(Invalid::OneProcess) } else { Ok(()) }
}

/// Fails unless `value` is in `1..=limit`.
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
