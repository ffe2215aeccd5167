//! The times and receivers of a rank's messages: the configuration in the form that a single rank needs.

use alloc::boxed::Box;
use alloc::vec::Vec;
use faultline_core::{ClusterId, ProcessId, Progress, Span};
use rand::distr::{Bernoulli, Distribution};
use rand::{Rng, RngExt};

use super::{Config, State, Traffic};
use crate::peers::Peers;

/// [`Traffic`] of one rank.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Random {
        total: Span,
        mean: Span,
        /// Clusters to which the rank sends.
        send: Box<[Target]>,
    },
    Exact {
        total: Span,
        /// The messages to send, in ascending order of time: the computing time at which each message is due,
        /// and its receiver.
        sends: Box<[(Span, ProcessId)]>,
    },
    Burst {
        messages: u64,
        batch: u32,
        cost: Span,
        /// The next cluster, and the probability that a message goes there; `None` in the last cluster.
        between: Option<(ClusterId, Bernoulli)>,
        receivers: Option<u32>,
    },
}

/// A cluster to which the rank sends.
#[derive(Clone, Debug)]
pub(super) struct Target {
    cluster: ClusterId,
    /// Probability that a message to the cluster follows a computation.
    probability: Bernoulli,
    /// The cluster is present from `from` (inclusive) to `until` (exclusive).
    from: Span,
    until: Span,
}

impl Plan {
    pub(super) fn new(config: &Config, peers: &Peers, rng: &mut impl Rng) -> Plan {
        let own = peers.own();
        let end = |total| config.term(own, total).1;
        match &config.traffic {
            Traffic::Random { total, clusters } => {
                let behaviour = &clusters[own.index()];
                let send = (0..peers.clusters()).map(ClusterId).zip(behaviour.send.iter().copied());
                let send = send.filter(|&(_, p)| p > 0.0).map(|(to, p)| {
                    let (from, until) = config.term(to, *total);
                    // A cluster that never leaves can receive messages until the end.
                    let until = if config.leaves(to) { until } else { Span::MAX };
                    Target { cluster: to, probability: probability(p), from, until }
                });
                Plan::Random { total: end(*total), mean: behaviour.mean_computation, send: send.collect() }
            }
            Traffic::Exact { total, messages } => {
                let row = &messages[own.index()];
                let mut sends: Vec<(Span, ProcessId)> = (0..peers.clusters())
                    .map(ClusterId)
                    .flat_map(|to| (0..share(row[to.index()], to, peers)).map(move |_| to))
                    .map(|to| {
                        let at = match config.together(own, to, *total) {
                            Some((from, until)) if !config.terms.is_empty() => {
                                rng.random_range(from.0 + 1..until.0)
                            }
                            _ => rng.random_range(1..=total.0),
                        };
                        (Span(at), peers.random(to, rng))
                    })
                    .collect();
                sends.sort_unstable();
                Plan::Exact { total: end(*total), sends: sends.into() }
            }
            Traffic::Burst { messages, batch, cost, between, receivers } => {
                let next = (own.0 + 1 < peers.clusters()).then(|| (own.next(), probability(*between)));
                let (messages, batch, cost, receivers) = (*messages, *batch, *cost, *receivers);
                Plan::Burst { messages, batch, cost, between: next, receivers }
            }
        }
    }

    /// Returns the duration of the next computation.
    pub(super) fn computation(&self, state: &State, rng: &mut impl Rng) -> Span {
        match self {
            Plan::Random { total, mean, .. } => exponential(*mean, rng).min(*total - state.elapsed),
            Plan::Exact { total, sends } => {
                let until = sends.get(state.sent as usize).map_or(*total, |&(at, _)| at);
                until - state.elapsed
            }
            Plan::Burst { cost, .. } => *cost,
        }
    }

    /// Sends the messages that are due after a computation.
    pub(super) fn sends(
        &self,
        state: &State,
        peers: &Peers,
        rng: &mut impl Rng,
        mut send: impl FnMut(ProcessId),
    ) {
        match self {
            Plan::Random { send: targets, .. } => {
                for it in targets {
                    if it.probability.sample(rng) && (it.from..it.until).contains(&state.elapsed) {
                        send(peers.random(it.cluster, rng));
                    }
                }
            }
            Plan::Exact { sends, .. } => {
                let due = sends[state.sent as usize..].iter().take_while(|(at, _)| *at <= state.elapsed);
                due.for_each(|&(_, to)| send(to));
            }
            Plan::Burst { messages, batch, between, receivers, .. } => {
                for _ in 0..u64::from(*batch).min(messages - state.sent) {
                    let to = match between {
                        Some((next, probability)) if probability.sample(rng) => *next,
                        _ => peers.own(),
                    };
                    send(match *receivers {
                        Some(count) => peers.following(to, count, rng),
                        None => peers.random(to, rng),
                    });
                }
            }
        }
    }

    /// Returns whether the rank has finished computing.
    #[inline]
    pub(super) fn is_over(&self, state: &State) -> bool {
        match self {
            Plan::Random { total, .. } | Plan::Exact { total, .. } => state.elapsed >= *total,
            Plan::Burst { messages, .. } => state.sent >= *messages,
        }
    }

    /// Returns the progress, in milliseconds of computing time or in messages.
    pub(super) fn progress(&self, state: &State) -> Progress {
        match self {
            Plan::Random { total, .. } | Plan::Exact { total, .. } => {
                Progress { done: millis(state.elapsed), total: millis(*total) }
            }
            Plan::Burst { messages, .. } => Progress { done: state.sent, total: *messages },
        }
    }
}

/// Returns how many of `count` messages to cluster `to` this rank sends. All ranks send the same number,
/// except for the remainder, which is assigned to different ranks for different values of `to`.
fn share(count: u64, to: ClusterId, peers: &Peers) -> u64 {
    let ranks = peers.size(peers.own()) as u64;
    let first = u64::from(to.0) * 7 % ranks;
    let turn = (peers.place() as u64 + ranks - first) % ranks;
    count / ranks + u64::from(turn < count % ranks)
}

fn probability(p: f64) -> Bernoulli {
    Bernoulli::new(p).expect("validated probabilities lie between 0 and 1")
}

/// Returns an exponentially distributed span of at least a nanosecond. Uses a software logarithm, because the
/// platform's may round differently.
fn exponential(mean: Span, rng: &mut impl Rng) -> Span {
    let uniform: f64 = rng.random();
    Span((mean.0 as f64 * -libm::log(1.0 - uniform)) as u64).max(Span(1))
}

fn millis(span: Span) -> u64 {
    span.0.div_ceil(1_000_000)
}
