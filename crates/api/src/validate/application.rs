//! Checks an application's parameters, and whether the application can run on the federation's clusters.

use std::collections::BTreeSet;

use faultline_core::Span;

use super::Check;
use crate::quantity::Size;
use crate::resource::{
    ApplicationSpec, BurstTraffic, ExactTraffic, Exchange, Farm, Heat, MAX_COUNTS, Nas, PingPong,
    RandomTraffic, Salted, Synthetic, Traffic,
};

/// Maximum number of grid cells per process of the heat solver.
const MAX_CELLS: u64 = 1 << 27;
/// Maximum number of columns, limited because a message carries a row.
const MAX_COLUMNS: u32 = 1 << 20;
/// Maximum size of the state of a process, in bytes.
const MAX_STATE: u64 = 1 << 32;
/// Maximum length of a message, in bytes.
const MAX_MESSAGE: u64 = 1 << 28;
/// Lower limit on the configured maximum message length of a NAS pattern, in bytes. Even the shortest message
/// must carry a value.
const LEAST_NAS_MESSAGE: u64 = 512;
/// Numbers of processes that all NAS patterns support: the squares of powers of two from 16 to 4096.
const NAS_PROCESSES: [u64; 5] = [16, 64, 256, 1024, 4096];
/// Maximum number of message lengths of a ping-pong.
const MAX_LENGTHS: usize = 64;
/// Maximum number of round trips of a ping-pong per message length.
const MAX_ROUNDS: u32 = 1 << 20;
/// Maximum number of round trips of a ping-pong in total.
const MAX_ROUND_TRIPS: u64 = 1 << 24;
/// Maximum number of pieces of work in a farm.
const MAX_PIECES: u64 = 1 << 24;
/// Maximum number of messages that a process sends to one cluster in exact traffic. Their times are kept in memory.
const MAX_EXACT: u64 = 1_000_000;

impl Check<'_> {
    pub(super) fn application(&mut self) {
        match &self.spec.application {
            ApplicationSpec::Heat(heat) => self.heat("spec.application.heat", heat),
            ApplicationSpec::Synthetic(synthetic) => self.synthetic("spec.application.synthetic", synthetic),
            ApplicationSpec::Exchange(exchange) => self.exchange("spec.application.exchange", exchange),
            ApplicationSpec::Nas(nas) => self.nas("spec.application.nas", nas),
            ApplicationSpec::PingPong(it) => self.ping_pong("spec.application.pingPong", it),
            ApplicationSpec::Farm(it) => self.farm("spec.application.farm", it),
            ApplicationSpec::Salted(salted) => self.salted("spec.application.salted", salted),
            ApplicationSpec::Fibonacci(_)
            | ApplicationSpec::NQueens(_)
            | ApplicationSpec::Qap(_)
            | ApplicationSpec::TaskGraph(_)
            | ApplicationSpec::Jacobi(_)
            | ApplicationSpec::Cloth(_) => self.program(),
            ApplicationSpec::Custom(it) => {
                self.custom("spec.application.custom", it.problem_of_application(self.spec));
            }
            ApplicationSpec::Program(it) => self.custom("spec.application.program", it.launch().problem()),
            // Checked last, because its templates are rendered only if there are no other problems.
            ApplicationSpec::System(_) => {}
        }
    }

    fn heat(&mut self, path: &str, heat: &Heat) {
        self.positive(&format!("{path}.rows"), heat.rows());
        self.positive(&format!("{path}.columns"), heat.columns());
        self.positive(&format!("{path}.steps"), heat.steps());
        self.computes(&format!("{path}.stepTime"), heat.step_time());
        let cells = u64::from(heat.rows()) * u64::from(heat.columns());
        if heat.columns() > MAX_COLUMNS {
            self.problem(
                format!("{path}.columns"),
                format!("too many columns ({})", heat.columns()),
                format!("write at most {MAX_COLUMNS}: a message carries a whole row"),
            );
        } else if cells > MAX_CELLS {
            self.problem(
                format!("{path}.rows"),
                format!("too many cells per process ({cells})"),
                format!("reduce `rows` times `columns` to at most {MAX_CELLS}"),
            );
        }
        self.at_most(&format!("{path}.state"), heat.state(), MAX_STATE);
    }

    fn synthetic(&mut self, path: &str, synthetic: &Synthetic) {
        self.at_most(&format!("{path}.message"), synthetic.message(), MAX_MESSAGE);
        self.at_most(&format!("{path}.state"), synthetic.state(), MAX_STATE);
        match &synthetic.traffic {
            Traffic::Random(traffic) => self.random(&format!("{path}.traffic.random"), traffic),
            Traffic::Exact(traffic) => self.exact(&format!("{path}.traffic.exact"), traffic),
            Traffic::Burst(traffic) => self.burst(&format!("{path}.traffic.burst"), traffic),
        }
    }

    fn random(&mut self, path: &str, traffic: &RandomTraffic) {
        self.computes(&format!("{path}.duration"), traffic.duration.0);
        let mut clusters = BTreeSet::new();
        for (index, behaviour) in traffic.clusters.iter().enumerate() {
            let path = format!("{path}.clusters[{index}]");
            self.cluster(&format!("{path}.cluster"), &behaviour.cluster);
            if !clusters.insert(&behaviour.cluster) {
                self.twice(&path, &format!("cluster `{}`", behaviour.cluster));
            }
            self.computes(&format!("{path}.meanComputation"), behaviour.mean_computation.0);
            let mut targets = BTreeSet::new();
            for (index, send) in behaviour.send.iter().enumerate() {
                let path = format!("{path}.send[{index}]");
                self.cluster(&format!("{path}.to"), &send.to);
                self.probability(&format!("{path}.probability"), send.probability);
                if !targets.insert(&send.to) {
                    self.twice(&path, &format!("messages from `{}` to `{}`", behaviour.cluster, send.to));
                }
                if send.to == behaviour.cluster && send.probability > 0.0 {
                    self.require_two_nodes(&path, &send.to);
                }
            }
        }
    }

    fn exact(&mut self, path: &str, traffic: &ExactTraffic) {
        self.computes(&format!("{path}.duration"), traffic.duration.0);
        self.at_most_entries(&format!("{path}.messages"), traffic.messages.len(), MAX_COUNTS);
        let mut pairs = BTreeSet::new();
        for (index, count) in traffic.messages.iter().enumerate() {
            let path = format!("{path}.messages[{index}]");
            let known = self.cluster(&format!("{path}.from"), &count.from);
            self.cluster(&format!("{path}.to"), &count.to);
            if !pairs.insert((&count.from, &count.to)) {
                self.twice(&path, &format!("messages from `{}` to `{}`", count.from, count.to));
            }
            if count.from == count.to && count.count > 0 {
                self.require_two_nodes(&path, &count.to);
            }
            let most = MAX_EXACT * u64::from(self.nodes.get(count.from.as_str()).copied().unwrap_or(0));
            if known && u64::from(count.count) > most {
                self.problem(
                    format!("{path}.count"),
                    format!("too many messages ({})", count.count),
                    format!(
                        "write at most {MAX_EXACT} per sending process, or use `random` or `burst` traffic"
                    ),
                );
            }
        }
    }

    fn burst(&mut self, path: &str, traffic: &BurstTraffic) {
        self.positive(&format!("{path}.messages"), traffic.messages);
        self.positive(&format!("{path}.batch"), traffic.batch());
        self.probability(&format!("{path}.between"), traffic.between());
        self.positive(&format!("{path}.receivers"), traffic.receivers.unwrap_or(1));
        for (index, cluster) in self.spec.clusters.iter().enumerate() {
            // The last cluster sends only within itself.
            if traffic.between() < 1.0 || index + 1 == self.spec.clusters.len() {
                self.require_two_nodes(path, &cluster.name);
            }
        }
    }

    fn exchange(&mut self, path: &str, exchange: &Exchange) {
        self.positive(&format!("{path}.exchanges"), exchange.exchanges());
        self.at_most(&format!("{path}.exchanges"), exchange.exchanges().into(), 1 << 20);
        self.computes(&format!("{path}.stepTime"), exchange.step_time());
        if exchange.receive().is_empty() {
            self.problem(
                format!("{path}.receive"),
                "the list of ways to receive is empty",
                "list `named`, `gathered` or `polled`, or omit the field for all three",
            );
        }
        self.at_most_entries(&format!("{path}.receive"), exchange.receive().len(), 16);
        self.require_two_processes(path);
    }

    fn nas(&mut self, path: &str, nas: &Nas) {
        self.positive(&format!("{path}.iterations"), nas.iterations());
        self.at_most(&format!("{path}.iterations"), nas.iterations().into(), 1 << 20);
        self.at_most(&format!("{path}.message"), nas.message(), MAX_MESSAGE);
        if nas.message() < LEAST_NAS_MESSAGE {
            self.problem(
                format!("{path}.message"),
                format!(
                    "{} is too short: some of the kernel's messages are only a fraction of this length",
                    Size(nas.message())
                ),
                format!("write at least {LEAST_NAS_MESSAGE}B"),
            );
        }
        self.at_most(&format!("{path}.state"), nas.state(), MAX_STATE);
        let processes = self.total;
        if !self.sized {
            return;
        }
        if !NAS_PROCESSES.contains(&processes) {
            self.problem(
                path,
                match processes {
                    1 => "the NAS kernels do not support a single process".to_owned(),
                    _ => format!("the NAS kernels do not support {processes} processes"),
                },
                "use 16, 64, 256, 1024 or 4096 nodes in total",
            );
        } else if let Some(order) = &nas.order {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().map(u64::from).eq(0..processes) {
                self.problem(
                    format!("{path}.order"),
                    format!("`order` must contain each of the {processes} ranks exactly once"),
                    format!("list the numbers from 0 to {} in any order, or omit `order`", processes - 1),
                );
            }
        }
    }

    fn ping_pong(&mut self, path: &str, it: &PingPong) {
        let sizes = it.sizes();
        if sizes.is_empty() {
            self.problem(
                format!("{path}.sizes"),
                "the list of lengths is empty",
                "list at least one length, or omit the field",
            );
        }
        self.at_most_entries(&format!("{path}.sizes"), sizes.len(), MAX_LENGTHS);
        for (index, size) in sizes.iter().enumerate() {
            self.at_most(&format!("{path}.sizes[{index}]"), *size, MAX_MESSAGE);
        }
        self.positive(&format!("{path}.rounds"), it.rounds());
        self.at_most(&format!("{path}.rounds"), it.rounds().into(), MAX_ROUNDS.into());
        let round_trips = sizes.len() as u64 * u64::from(it.rounds());
        if it.rounds() <= MAX_ROUNDS && round_trips > MAX_ROUND_TRIPS {
            self.problem(
                format!("{path}.rounds"),
                format!("too many round trips in total ({round_trips})"),
                format!("reduce `rounds` times the number of `sizes` to at most {MAX_ROUND_TRIPS}"),
            );
        }
        self.require_two_processes(path);
    }

    fn farm(&mut self, path: &str, it: &Farm) {
        self.positive(&format!("{path}.pieces"), it.pieces());
        self.at_most(&format!("{path}.pieces"), it.pieces().into(), MAX_PIECES);
        self.computes(&format!("{path}.stepTime"), it.step_time());
        self.require_two_processes(path);
    }

    fn salted(&mut self, path: &str, salted: &Salted) {
        self.positive(&format!("{path}.steps"), salted.steps());
        self.computes(&format!("{path}.stepTime"), salted.step_time());
        self.at_most(&format!("{path}.fanOut"), salted.fan_out().into(), 1 << 16);
        self.at_most(&format!("{path}.replyDepth"), salted.reply_depth().into(), u8::MAX.into());
        self.probability(&format!("{path}.between"), salted.between());
        self.probability(&format!("{path}.reply"), salted.reply());
    }

    fn positive(&mut self, path: &str, value: u32) {
        if value == 0 {
            self.problem(path, "the value must not be 0", "write at least 1");
        }
    }

    fn computes(&mut self, path: &str, span: Span) {
        if span == Span::ZERO {
            self.problem(path, "the computing time must not be 0", "write a duration above zero");
        }
    }

    fn at_most(&mut self, path: &str, value: u64, limit: u64) {
        if value > limit {
            let (value, limit) =
                if path.ends_with("state") || path.ends_with("message") || path.contains(".sizes[") {
                    (Size(value).to_string(), Size(limit).to_string())
                } else {
                    (value.to_string(), limit.to_string())
                };
            self.problem(path, format!("{value} is too large"), format!("write at most {limit}"));
        }
    }

    pub(super) fn probability(&mut self, path: &str, value: f64) {
        if !(0.0..=1.0).contains(&value) {
            self.problem(path, format!("{value} is not a probability"), "write a number between 0 and 1");
        }
    }

    fn twice(&mut self, path: &str, what: &str) {
        self.problem(path, format!("there are two entries for {what}"), "keep one of the two entries");
    }

    /// Checks that the federation has more than one process.
    fn require_two_processes(&mut self, path: &str) {
        if self.sized && self.total == 1 {
            self.problem(
                path,
                "the application exchanges messages, but the federation has only one process",
                "add nodes",
            );
        }
    }

    /// Checks that the cluster has more than one node.
    fn require_two_nodes(&mut self, path: &str, cluster: &str) {
        if self.nodes.get(cluster) == Some(&1) {
            self.problem(
                path,
                format!(
                    "cluster `{cluster}` has only one node, which cannot send messages within its cluster"
                ),
                "add a node to the cluster, or let it send only to other clusters",
            );
        }
    }
}
