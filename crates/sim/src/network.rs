//! Arrival times of packets.
//!
//! * Every process has two interfaces, one to the network of its own cluster and one to all other clusters. A
//!   packet occupies its sender's interface for its length divided by the bandwidth of its link, and packets
//!   queue for the interface.
//! * The packet then arrives after the latency of the link, with a uniform jitter.
//! * The transport re-sends a lost packet after a timeout like TCP's, and doubles the timeout after each
//!   further loss. The delay line of real processes uses a constant timeout without TCP's lower limit.
//! * Packets between two processes may overtake each other unless the processes declare FIFO.

use std::collections::HashMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, ProcessId, Span, Time};

use crate::chance::RandomStream;
use crate::config::{Chance, Links};

/// Smallest timeout for a lost packet: the lower limit of TCP's retransmission timeout on Linux.
const RETRANSMISSION_FLOOR: Span = Span::from_millis(200);
/// Maximum number of consecutive losses that can delay a packet. More would stall the link rather than emulate it.
const LOSSES_IN_A_ROW: u32 = 6;

/// The network of a federation. Computes delays; holds no packets.
#[derive(Debug)]
pub(crate) struct Network {
    original: Links,
    /// Indexed like [`Links`].
    links: Vec<Link>,
    chance: Chance,
    /// Time at which each interface becomes free: two per process.
    interfaces: Vec<[Time; 2]>,
    /// The latest pending arrival for each pair of processes. Used only with FIFO.
    latest: Option<Latest>,
    random: RandomStream,
}

#[derive(Clone, Debug)]
struct Link {
    properties: LinkProperties,
    /// Nanoseconds per byte, times 2^16; 0 means unlimited.
    nanos_per_byte: u64,
    cut: bool,
}

impl Link {
    fn new(properties: LinkProperties) -> Link {
        let nanos_per_byte = (1_000_000_000_u64 << 16).checked_div(properties.bandwidth).unwrap_or(0);
        Link { properties, nanos_per_byte, cut: false }
    }
}

/// The endpoints of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) from: ProcessId,
    pub(crate) from_cluster: ClusterId,
    pub(crate) to: ProcessId,
    pub(crate) to_cluster: ClusterId,
}

impl Route {
    /// Returns whether the route leads from one cluster to another.
    #[inline]
    pub(crate) fn is_between(self) -> bool {
        self.from_cluster != self.to_cluster
    }
}

impl Network {
    pub(crate) fn new(
        links: Links,
        processes: usize,
        fifo: bool,
        chance: Chance,
        random: RandomStream,
    ) -> Network {
        Network {
            links: (0..links.len()).map(|index| Link::new(*links.at(index))).collect(),
            original: links,
            chance,
            interfaces: vec![[Time::ZERO; 2]; processes],
            latest: fifo.then(Latest::default),
            random,
        }
    }

    /// Returns the dense index of a link.
    pub(crate) fn link(&self, from: ClusterId, to: ClusterId) -> usize {
        self.original.index(from, to)
    }

    pub(crate) fn set_cut(&mut self, link: usize, cut: bool) {
        self.links[link].cut = cut;
    }

    /// Changes the properties of a link, or restores its original ones.
    pub(crate) fn set_properties(&mut self, link: usize, properties: Option<LinkProperties>) {
        let properties = properties.unwrap_or(*self.original.at(link));
        self.links[link] = Link { cut: self.links[link].cut, ..Link::new(properties) };
    }

    /// Returns the time at which a packet of `bytes` arrives if its sender finishes handling it at `sent`, which is
    /// `now` or later. Returns `None` if its link is cut.
    #[inline]
    pub(crate) fn arrival(&mut self, route: Route, bytes: u64, sent: Time, now: Time) -> Option<Time> {
        let link = &self.links[self.original.index(route.from_cluster, route.to_cluster)];
        if link.cut {
            return None;
        }
        let mut at = sent;
        if link.nanos_per_byte > 0 {
            let interface = usize::from(route.is_between());
            let free = &mut self.interfaces[route.from.index()][interface];
            let occupied = (u128::from(bytes) * u128::from(link.nanos_per_byte)) >> 16;
            *free = (*free).max(sent) + Span(u64::try_from(occupied).unwrap_or(u64::MAX));
            at = *free;
        }
        let LinkProperties { latency, jitter, loss_ppm, .. } = link.properties;
        at += latency;
        if jitter > Span::ZERO {
            at = Time(at.0.saturating_sub(jitter.0.min(latency.0)))
                + self.random.span(jitter + jitter.min(latency));
        }
        if loss_ppm > 0 {
            at += self.resending(latency, loss_ppm);
        }
        if self.random.happens(self.chance.reorder_ppm) {
            at += self.random.span(self.chance.reorder_within);
        }
        if let Some(latest) = &mut self.latest {
            at = latest.in_order(route.from, route.to, at, now);
        }
        Some(at)
    }

    /// Returns the total delay that re-sends add to a packet; zero if the packet is not lost.
    fn resending(&mut self, latency: Span, loss_ppm: u32) -> Span {
        let (mut waited, mut timeout) = (Span::ZERO, RETRANSMISSION_FLOOR + latency * 2);
        for _ in 0..LOSSES_IN_A_ROW {
            if !self.random.happens(loss_ppm) {
                break;
            }
            waited = waited + timeout;
            timeout = timeout * 2;
        }
        waited
    }
}

/// Keeps the packets of each pair of processes in order.
#[derive(Debug, Default)]
struct Latest {
    arrivals: HashMap<(ProcessId, ProcessId), Time>,
    /// Number of entries at which past arrivals are removed.
    prune_at: usize,
}

impl Latest {
    fn in_order(&mut self, from: ProcessId, to: ProcessId, at: Time, now: Time) -> Time {
        if self.arrivals.len() >= self.prune_at {
            self.arrivals.retain(|_, latest| *latest > now);
            self.prune_at = (self.arrivals.len() * 2).max(1024);
        }
        let latest = self.arrivals.entry((from, to)).or_insert(at);
        *latest = (*latest).max(at);
        *latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Span = Span::from_millis(5);

    fn network(link: LinkProperties, fifo: bool, chance: Chance) -> Network {
        Network::new(Links::uniform(1, link, link), 2, fifo, chance, RandomStream::new(7, 0))
    }

    fn arrival(network: &mut Network, bytes: u64, now: Time) -> Time {
        network.arrival(route(), bytes, now, now).expect("no link is cut")
    }

    fn route() -> Route {
        let cluster = ClusterId(0);
        Route { from: ProcessId(0), from_cluster: cluster, to: ProcessId(1), to_cluster: cluster }
    }

    #[test]
    fn latency_and_length_over_bandwidth_add_up_and_packets_queue_for_the_interface() {
        let link = LinkProperties { latency: LATENCY, bandwidth: 1_000_000, ..LinkProperties::default() };
        let mut network = network(link, false, Chance::default());
        assert_eq!(arrival(&mut network, 1000, Time::ZERO), Time::ZERO + Span::from_millis(6));
        assert_eq!(arrival(&mut network, 1000, Time::ZERO), Time::ZERO + Span::from_millis(7));
        assert_eq!(
            arrival(&mut network, 0, Time(10_000_000)),
            Time(15_000_000),
            "the interface is idle again"
        );
    }

    #[test]
    fn jitter_is_uniform_within_its_half_width_and_lets_packets_overtake() {
        let link =
            LinkProperties { latency: LATENCY, jitter: Span::from_millis(1), ..LinkProperties::default() };
        let mut network = network(link, false, Chance::default());
        let delays: Vec<u64> = (0..1000).map(|_| arrival(&mut network, 64, Time::ZERO).0).collect();
        let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!((4_000_000..4_020_000).contains(least) && (5_980_000..=6_000_000).contains(most));
        let mean = delays.iter().sum::<u64>() / 1000;
        assert!((4_950_000..5_050_000).contains(&mean), "{mean}");
        assert!(delays.windows(2).any(|pair| pair[1] < pair[0]));
    }

    #[test]
    fn fifo_keeps_every_pair_in_order() {
        let link = LinkProperties { latency: LATENCY, jitter: LATENCY, loss_ppm: 100_000, bandwidth: 0 };
        let chance =
            Chance { reorder_ppm: 500_000, reorder_within: Span::from_millis(50), ..Chance::default() };
        let mut network = network(link, true, chance);
        let arrivals: Vec<Time> = (0..3000).map(|at| arrival(&mut network, 64, Time(at * 1000))).collect();
        assert!(arrivals.is_sorted());
    }

    #[test]
    fn a_loss_appears_as_the_delay_of_a_retransmission() {
        let link = LinkProperties { latency: LATENCY, loss_ppm: 100_000, ..LinkProperties::default() };
        let mut network = network(link, false, Chance::default());
        let late = (0..10_000).filter(|_| arrival(&mut network, 64, Time::ZERO) > Time(LATENCY.0)).count();
        assert!((900..1100).contains(&late), "{late}");
        network.set_properties(0, Some(LinkProperties { loss_ppm: 1_000_000, ..link }));
        let at = arrival(&mut network, 64, Time::ZERO);
        let timeouts = (RETRANSMISSION_FLOOR + LATENCY * 2) * (1 + 2 + 4 + 8 + 16 + 32);
        assert_eq!(at, Time::ZERO + LATENCY + timeouts);
        network.set_properties(0, None);
        assert!(arrival(&mut network, 64, Time::ZERO) < at);
    }
}
