//! Parameters of the synthetic application, which correspond to the application file of the HC3I paper's simulator.

use alloc::vec::Vec;
use faultline_core::{ClusterId, Span};
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, in_range, is_probability};

/// Parameters of the synthetic application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The times and receivers of the ranks' messages.
    pub traffic: Traffic,
    /// Length of every message in bytes. Messages have no content.
    pub message_bytes: u32,
    /// Size of every rank's virtual state in bytes, besides the few bytes of real state.
    pub state_bytes: u64,
    /// The time during which each cluster takes part in the program; empty if all take part from start to
    /// end.
    pub terms: Vec<Term>,
}

/// The time during which a cluster takes part in the program, measured in computing time from the start of
/// the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Time at which the cluster's ranks begin. No rank sends to the cluster before then.
    pub joins: Span,
    /// Time at which the cluster's ranks stop computing; `None` for the end of the program. No rank sends to the
    /// cluster afterwards.
    pub leaves: Option<Span>,
}

/// The times and receivers of the ranks' messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Traffic {
    /// Ranks compute, choose at random whether to send, and compute again (HC3I, section 5.1).
    Random {
        /// Computing time of each rank.
        total: Span,
        /// Behaviour of the ranks of each cluster.
        clusters: Vec<Behaviour>,
    },
    /// A given number of messages for each ordered pair of clusters, sent at random times within the
    /// computing time (HC3I, table 1).
    Exact {
        /// Computing time of each rank.
        total: Span,
        /// `messages[i][j]`: total number of messages from cluster i to cluster j, distributed evenly among the ranks
        /// of cluster i.
        messages: Vec<Vec<u64>>,
    },
    /// Messages as fast as possible, for benchmarks. They go to the sender's cluster or to the next one, so
    /// traffic between clusters is one-way. The last cluster sends only within itself.
    Burst {
        /// Number of messages sent by each rank.
        messages: u64,
        /// Number of messages sent after one computation.
        batch: u32,
        /// Modelled duration of one computation.
        cost: Span,
        /// Probability that a message goes to the next cluster.
        between: f64,
        /// Number of receivers that each rank has in a cluster: in its own cluster, the ranks after it; in
        /// the next cluster, the ranks starting at its own position. `None` means all ranks.
        receivers: Option<u32>,
    },
}

/// Behaviour of the ranks of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behaviour {
    /// Mean time of one computation. The times are exponentially distributed.
    pub mean_computation: Span,
    /// `send[j]`: probability that a message to a random rank of cluster j follows a computation. The choices for
    /// different clusters are independent.
    pub send: Vec<f64>,
}

impl Config {
    pub(crate) fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        let per_cluster = |field, found| {
            let clusters = clusters.len();
            if found == clusters { Ok(()) } else { Err(Invalid::NotPerCluster { field, found, clusters }) }
        };
        match &self.traffic {
            Traffic::Random { total, clusters: behaviours } => {
                in_range("total", total.0, u64::MAX)?;
                per_cluster("clusters", behaviours.len())?;
                for behaviour in behaviours {
                    in_range("mean_computation", behaviour.mean_computation.0, u64::MAX)?;
                    per_cluster("send", behaviour.send.len())?;
                    behaviour.send.iter().try_for_each(|&p| is_probability("send", p))?;
                }
                for (cluster, behaviour) in behaviours.iter().enumerate() {
                    inside(cluster, clusters, behaviour.send[cluster] > 0.0)?;
                }
                self.terms_fit(*total, clusters.len())?;
            }
            Traffic::Exact { total, messages } => {
                in_range("total", total.0, u64::MAX)?;
                per_cluster("messages", messages.len())?;
                for (cluster, row) in messages.iter().enumerate() {
                    per_cluster("messages", row.len())?;
                    inside(cluster, clusters, row[cluster] > 0)?;
                    for &count in row {
                        // Each rank keeps the times of its sends in memory.
                        in_range("messages", count.max(1), MOST_EXACT * clusters[cluster] as u64)?;
                    }
                }
                self.terms_fit(*total, clusters.len())?;
                if self.terms.is_empty() {
                    return Ok(());
                }
                for (from, row) in messages.iter().enumerate() {
                    for (to, _) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
                        if self.together(ClusterId(from as u16), ClusterId(to as u16), *total).is_none() {
                            return Err(Invalid::NeverTogether { from, to });
                        }
                    }
                }
            }
            Traffic::Burst { messages, batch, between, receivers, .. } => {
                in_range("messages", *messages, u64::MAX)?;
                in_range("batch", (*batch).into(), u64::from(u32::MAX))?;
                is_probability("between", *between)?;
                in_range("receivers", receivers.unwrap_or(1).into(), u64::from(u32::MAX))?;
                for cluster in 0..clusters.len() {
                    inside(cluster, clusters, *between < 1.0 || cluster + 1 == clusters.len())?;
                }
                if !self.terms.is_empty() {
                    return Err(Invalid::Timeless);
                }
            }
        }
        Ok(())
    }

    fn terms_fit(&self, total: Span, clusters: usize) -> Result<(), Invalid> {
        if !self.terms.is_empty() && self.terms.len() != clusters {
            return Err(Invalid::NotPerCluster { field: "terms", found: self.terms.len(), clusters });
        }
        let fits = |term: &Term| {
            term.joins < term.leaves.unwrap_or(total) && term.leaves.is_none_or(|it| it < total)
        };
        match self.terms.iter().position(|term| !fits(term)) {
            Some(cluster) => Err(Invalid::NoTerm { cluster }),
            None => Ok(()),
        }
    }

    /// Returns the beginning and the end of the time during which `cluster` takes part in a program of length
    /// `total`.
    pub(super) fn term(&self, cluster: ClusterId, total: Span) -> (Span, Span) {
        let term = self.terms.get(cluster.index());
        term.map_or((Span::ZERO, total), |term| (term.joins, term.leaves.unwrap_or(total)))
    }

    /// Returns the time during which both clusters take part, if any.
    pub(super) fn together(&self, one: ClusterId, other: ClusterId, total: Span) -> Option<(Span, Span)> {
        let (mine, its) = (self.term(one, total), self.term(other, total));
        let common = (mine.0.max(its.0), mine.1.min(its.1));
        // At least one instant must lie strictly between the beginning and the end.
        (common.0 + Span(1) < common.1).then_some(common)
    }

    /// Returns whether `cluster` leaves before the program ends.
    pub(super) fn leaves(&self, cluster: ClusterId) -> bool {
        self.terms.get(cluster.index()).is_some_and(|term| term.leaves.is_some())
    }
}

/// Maximum number of messages from one rank to one cluster in exact traffic.
const MOST_EXACT: u64 = 1_000_000;

/// Fails if a cluster with a single rank is to send messages within itself.
fn inside(cluster: usize, clusters: &[usize], sends: bool) -> Result<(), Invalid> {
    if sends && clusters[cluster] < 2 { Err(Invalid::OneNode { cluster }) } else { Ok(()) }
}
