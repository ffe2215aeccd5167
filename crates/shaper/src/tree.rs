//! The plan by which a node's kernel emulates the links of a federation: classes, queues and filters for outgoing and
//! incoming packets.
//!
//! This module is pure: it does not communicate with a kernel. A tree depends only on the arguments of [`Tree::new`]
//! and not on any previous state, so that the program that applies it can determine the differences and change nothing
//! else.
//!
//! A sender's interface transmits packets at the link's bandwidth. At the sender, a class with that rate emulates this.
//! The classes of all other clusters share one parent, because a process has a single [`crate::Interface`] to them.
//! Delay and loss are applied at the receiver or at the sender (see [`ShapingSide`]).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Span};
use serde::{Deserialize, Serialize};

use crate::kernel::{Kernel, ShapingSide};

/// Parent of the classes of all other clusters, for outgoing packets.
const OTHERS: u16 = 1;
/// Class of processes outside all clusters.
const OUTSIDE: u16 = 2;
/// Class of cluster 0. The classes of other clusters follow in order.
const FIRST_CLUSTER: u16 = 0x10;
/// Size of the smallest packet in bytes. A queue with a delay must hold as many packets of this size as can be in
/// transit on the link.
const SMALLEST_PACKET: u128 = 64;
/// Size of a full Ethernet packet including its header, in bytes.
const FULL_PACKET: u64 = 1514;
/// Smallest length of a queue, in packets: the usual length of an interface's queue.
const SHORTEST_QUEUE: u32 = 1000;
/// Largest length of a queue, in packets.
const LONGEST_QUEUE: u32 = 10_000_000;
/// Duration of a burst that an idle class may send at once: the resolution of the kernel's timers under load.
const BURST: Span = Span::from_micros(250);
/// The loss of a link that is cut: every packet, in parts per million.
pub const ALL_LOST: u32 = 1_000_000;
/// Bytes per second of a class without a requested bandwidth: 100 Gbit/s, which is no limit in practice.
const UNLIMITED: u64 = 12_500_000_000;
/// Assumed bytes per second of a link without a bandwidth, to compute the length of its queue: 10 Gbit/s.
const FAST: u64 = 1_250_000_000;

/// Addresses with the same first `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Prefix {
    /// An address with this prefix. Bits beyond the length are ignored.
    pub address: Ipv4Addr,
    /// Number of significant bits, at most 32.
    pub length: u8,
}

/// Another node with which this node exchanges data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Unique number of the peer, below 0xfff0. Does not change while the tree exists.
    pub number: u16,
    /// Cluster of the peer: [`ClusterId::OUTSIDE`], or below 0x8000.
    pub cluster: ClusterId,
    /// Addresses of the peer.
    pub prefix: Prefix,
}

/// A queue that delays and loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Mean delay.
    pub latency: Span,
    /// Half the width of a uniform distribution. Packets keep their order.
    pub jitter: Span,
    /// Packet loss in parts per million.
    pub loss_ppm: u32,
    /// Capacity of the queue, in packets.
    pub limit: u32,
}

/// The content of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaf {
    /// Other classes.
    Classes,
    /// A queue with this capacity, in packets.
    Queue(u32),
    /// A queue that delays and loses packets.
    Delay(Delay),
}

/// A class of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Number of the enclosing class; 0 represents the interface itself.
    pub parent: u16,
    /// Guaranteed bytes per second.
    pub rate: u64,
    /// Maximum bytes per second.
    pub ceiling: u64,
    /// Number of bytes that may leave at once.
    pub burst: u32,
    /// The content of the class.
    pub leaf: Leaf,
}

/// Assigns the packets of a peer to a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Addresses of the peer.
    pub prefix: Prefix,
    /// Number of the class.
    pub class: u16,
}

/// Treatment of packets in one direction. A packet that matches no filter passes unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// Classes by number.
    pub classes: BTreeMap<u16, Class>,
    /// Filters by the number of their peer.
    pub filters: BTreeMap<u16, Filter>,
}

/// Treatment of the packets of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// Outgoing packets. Filters match the destination.
    pub leaving: Direction,
    /// Incoming packets. Filters match the source.
    pub arriving: Direction,
}

impl Tree {
    /// Creates the tree of a node in cluster `mine` for `kernel`. `links` returns the properties requested for the link
    /// from one cluster to another. Packets are delayed at `place` if the kernel can delay incoming packets, and
    /// otherwise on the side that [`Kernel::delays_at`] returns.
    ///
    /// # Panics
    ///
    /// Panics if the kernel has no HTB, without which packets cannot be distinguished.
    pub fn new(
        mine: ClusterId,
        peers: &[Peer],
        links: impl Fn(ClusterId, ClusterId) -> LinkProperties,
        kernel: Kernel,
        place: ShapingSide,
    ) -> Tree {
        assert!(kernel.htb, "a tree requires HTB");
        let place = match (kernel.delays_at(), place) {
            (ShapingSide::Receiver, asked) => asked,
            (best, _) => best,
        };
        let mut members = BTreeMap::<ClusterId, u64>::new();
        for peer in peers {
            *members.entry(peer.cluster).or_default() += 1;
        }
        Tree {
            leaving: leaving(mine, peers, &members, &links, place),
            arriving: arriving(mine, peers, &members, &links, place),
        }
    }
}

impl Direction {
    /// Returns whether all packets pass unchanged.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Returns the class of packets to and from a cluster.
    pub fn class_of(cluster: ClusterId) -> u16 {
        if cluster == ClusterId::OUTSIDE { OUTSIDE } else { FIRST_CLUSTER + cluster.0 }
    }

    /// Returns the cluster of a class; `None` for a class that several clusters share.
    pub fn cluster_of(class: u16) -> Option<ClusterId> {
        match class {
            OTHERS => None,
            OUTSIDE => Some(ClusterId::OUTSIDE),
            cluster => cluster.checked_sub(FIRST_CLUSTER).map(ClusterId),
        }
    }

    /// Assigns each peer to the class of its cluster, if the cluster has a class.
    fn filter(&mut self, peers: &[Peer]) {
        for peer in peers {
            let class = Direction::class_of(peer.cluster);
            if self.classes.contains_key(&class) {
                self.filters.insert(peer.number, Filter { prefix: peer.prefix, class });
            }
        }
    }
}

impl Class {
    /// Creates a class directly below the interface, with the same guaranteed and maximum rate.
    fn of_rate(rate: u64, leaf: Leaf) -> Class {
        Class { parent: 0, rate, ceiling: rate, burst: burst(rate), leaf }
    }
}

fn leaving(
    mine: ClusterId,
    peers: &[Peer],
    members: &BTreeMap<ClusterId, u64>,
    links: &impl Fn(ClusterId, ClusterId) -> LinkProperties,
    place: ShapingSide,
) -> Direction {
    let mut direction = Direction::default();
    let mut shared = Vec::new();
    for &cluster in members.keys() {
        let link = links(mine, cluster);
        if link.loss_ppm >= ALL_LOST {
            // A queue without room drops packets on every kernel. The sender's programs see no error.
            let class = Class::of_rate(UNLIMITED, Leaf::Queue(0));
            direction.classes.insert(Direction::class_of(cluster), class);
            continue;
        }
        let leaf = match place {
            // Only the packets of a single sender can be in transit.
            ShapingSide::Sender => delay(link, 1),
            ShapingSide::Receiver | ShapingSide::Node => None,
        };
        if link.bandwidth == 0 && leaf.is_none() {
            continue;
        }
        let number = Direction::class_of(cluster);
        if cluster != mine && link.bandwidth > 0 {
            shared.push((number, link.bandwidth));
        }
        let rate = if link.bandwidth == 0 { UNLIMITED } else { link.bandwidth };
        let leaf = leaf.unwrap_or(Leaf::Queue(queue(link, 1, FULL_PACKET.into())));
        direction.classes.insert(number, Class::of_rate(rate, leaf));
    }
    // Each class may use its entire rate, but all of them together may not exceed the highest rate.
    if let Some(fastest) = shared.iter().map(|&(_, bandwidth)| bandwidth).max() {
        direction.classes.insert(OTHERS, Class::of_rate(fastest, Leaf::Classes));
        for &(number, bandwidth) in &shared {
            let class = direction.classes.get_mut(&number).expect("the class was just added");
            class.parent = OTHERS;
            class.rate = (bandwidth / shared.len() as u64).max(1);
        }
    }
    direction.filter(peers);
    direction
}

fn arriving(
    mine: ClusterId,
    peers: &[Peer],
    members: &BTreeMap<ClusterId, u64>,
    links: &impl Fn(ClusterId, ClusterId) -> LinkProperties,
    place: ShapingSide,
) -> Direction {
    let mut direction = Direction::default();
    if place != ShapingSide::Receiver {
        return direction;
    }
    for (&cluster, &senders) in members {
        if let Some(leaf) = delay(links(cluster, mine), senders) {
            direction.classes.insert(Direction::class_of(cluster), Class::of_rate(UNLIMITED, leaf));
        }
    }
    direction.filter(peers);
    direction
}

/// Returns the queue that delays the packets of `senders` senders; `None` if there is neither delay nor loss.
fn delay(link: LinkProperties, senders: u64) -> Option<Leaf> {
    let LinkProperties { latency, jitter, loss_ppm, .. } = link;
    let limit = queue(link, senders, SMALLEST_PACKET);
    // The sender drops the packets of a link that is cut.
    let is_delayed = (latency > Span::ZERO || loss_ppm > 0) && loss_ppm < ALL_LOST;
    is_delayed.then_some(Leaf::Delay(Delay { latency, jitter, loss_ppm, limit }))
}

/// Returns 1.5 times the number of packets of `bytes` that can be in transit from `senders` at the same time, but at
/// least [`SHORTEST_QUEUE`] and at most [`LONGEST_QUEUE`].
fn queue(link: LinkProperties, senders: u64, bytes: u128) -> u32 {
    let rate = if link.bandwidth == 0 { FAST } else { link.bandwidth };
    let longest = u128::from((link.latency + link.jitter).0);
    let under_way = u128::from(rate) * u128::from(senders) * longest * 3 / 2 / bytes / 1_000_000_000;
    u32::try_from(under_way).unwrap_or(u32::MAX).clamp(SHORTEST_QUEUE, LONGEST_QUEUE)
}

/// Returns the number of bytes that may leave at once at `rate`: at least two packets.
fn burst(rate: u64) -> u32 {
    let bytes = u128::from(rate) * u128::from(BURST.0) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(2 * FULL_PACKET as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Kernel = Kernel { htb: true, netem: true, ifb: true };
    const MINE: ClusterId = ClusterId(0);
    const OTHER: ClusterId = ClusterId(1);
    const SLOW: ClusterId = ClusterId(2);
    const WAN: LinkProperties = LinkProperties {
        latency: Span::from_millis(5),
        jitter: Span::from_micros(200),
        bandwidth: 12_500_000,
        loss_ppm: 100,
    };

    fn peers(clusters: &[ClusterId]) -> Vec<Peer> {
        let of = |(number, &cluster)| {
            let address = Ipv4Addr::new(10, 0, number as u8, 0);
            Peer { number: number as u16, cluster, prefix: Prefix { address, length: 24 } }
        };
        clusters.iter().enumerate().map(of).collect()
    }

    fn links(from: ClusterId, to: ClusterId) -> LinkProperties {
        match (from, to) {
            (MINE, MINE) => LinkProperties { bandwidth: 80_000_000, ..Default::default() },
            (_, SLOW) => LinkProperties { bandwidth: 1_250_000, ..WAN },
            _ => WAN,
        }
    }

    #[test]
    fn the_sender_drops_the_packets_of_a_link_that_is_cut() {
        let cut = |from, to| match (from, to) {
            (MINE, OTHER) => LinkProperties { loss_ppm: ALL_LOST, ..WAN },
            _ => links(from, to),
        };
        let peers = peers(&[OTHER, SLOW]);
        let class = Direction::class_of(OTHER);
        for kernel in [ALL, Kernel { netem: false, ..ALL }] {
            let tree = Tree::new(MINE, &peers, cut, kernel, ShapingSide::Receiver);
            assert_eq!(tree.leaving.classes[&class].leaf, Leaf::Queue(0));
            assert_eq!(tree.leaving.filters[&0].class, class);
            let other = Tree::new(OTHER, &self::peers(&[MINE]), cut, kernel, ShapingSide::Receiver);
            assert_eq!(other.arriving.classes.len(), 0);
        }
    }

    #[test]
    fn rates_apply_at_the_sender_and_delays_at_the_receiver() {
        let tree = Tree::new(MINE, &peers(&[MINE, OTHER, OTHER, SLOW]), links, ALL, ShapingSide::Receiver);
        let class = |parent, rate, ceiling, burst, leaf| Class { parent, rate, ceiling, burst, leaf };
        let leaving = [
            (OTHERS, class(0, 12_500_000, 12_500_000, 3125, Leaf::Classes)),
            (0x10, class(0, 80_000_000, 80_000_000, 20_000, Leaf::Queue(1000))),
            (0x11, class(OTHERS, 6_250_000, 12_500_000, 3125, Leaf::Queue(1000))),
            (0x12, class(OTHERS, 625_000, 1_250_000, 3028, Leaf::Queue(1000))),
        ];
        assert_eq!(tree.leaving.classes, leaving.into());
        // At 12.5 MB/s each, two senders send 2031 packets of 64 bytes in 5.2 ms. The limit is half as many
        // again.
        let delay =
            |limit| Leaf::Delay(Delay { latency: WAN.latency, jitter: WAN.jitter, loss_ppm: 100, limit });
        let arriving = [
            (0x11, class(0, UNLIMITED, UNLIMITED, 3_125_000, delay(3046))),
            (0x12, class(0, UNLIMITED, UNLIMITED, 3_125_000, delay(1523))),
        ];
        assert_eq!(tree.arriving.classes, arriving.into());
        let classes: Vec<_> = tree.leaving.filters.iter().map(|(&peer, it)| (peer, it.class)).collect();
        assert_eq!(classes, [(0, 0x10), (1, 0x11), (2, 0x11), (3, 0x12)]);
        assert_eq!(tree.arriving.filters.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn missing_features_of_a_kernel_are_left_to_the_node() {
        let peers = peers(&[MINE, OTHER]);
        let no_ifb = Kernel { ifb: false, ..ALL };
        for (kernel, asked) in [(no_ifb, ShapingSide::Receiver), (ALL, ShapingSide::Sender)] {
            let tree = Tree::new(MINE, &peers, links, kernel, asked);
            assert!(tree.arriving.is_empty());
            assert!(matches!(tree.leaving.classes[&0x11].leaf, Leaf::Delay(Delay { loss_ppm: 100, .. })));
            assert_eq!(kernel.left_for_node(WAN), LinkProperties::default());
        }
        let rates_only = Kernel { netem: false, ..ALL };
        let tree = Tree::new(MINE, &peers, links, rates_only, ShapingSide::Receiver);
        assert!(tree.arriving.is_empty());
        assert_eq!(tree.leaving.classes[&0x11].leaf, Leaf::Queue(1000));
        assert_eq!(rates_only.left_for_node(WAN), LinkProperties { bandwidth: 0, ..WAN });
    }

    #[test]
    fn a_link_without_requested_properties_has_no_class() {
        let tree =
            Tree::new(MINE, &peers(&[MINE, OTHER]), |_, _| Default::default(), ALL, ShapingSide::Receiver);
        assert_eq!(tree, Tree::default());
    }

    #[test]
    fn processes_outside_every_cluster_have_their_own_class() {
        for cluster in [ClusterId(0), ClusterId(255), ClusterId::OUTSIDE] {
            assert_eq!(Direction::cluster_of(Direction::class_of(cluster)), Some(cluster));
        }
        assert_eq!(Direction::cluster_of(OTHERS), None);
    }

    proptest! {
        #[test]
        fn queues_have_room_for_packets_in_transit(
            latency in 0u64..2_000_000_000,
            jitter in 0u64..100_000_000,
            bandwidth in prop_oneof![Just(0u64), 1_000u64..20_000_000_000],
            senders in 1usize..40,
        ) {
            let link = LinkProperties { latency: Span(latency), jitter: Span(jitter), bandwidth, loss_ppm: 1 };
            let clusters = vec![OTHER; senders];
            let tree = Tree::new(MINE, &peers(&clusters), |_, _| link, ALL, ShapingSide::Receiver);
            let Leaf::Delay(Delay { limit, .. }) = tree.arriving.classes[&0x11].leaf else {
                panic!("the class has no delay")
            };
            // Full packets of all senders, for the longest time in transit.
            let bytes = u128::from(bandwidth) * u128::from(latency + jitter) / 1_000_000_000;
            let packets = bytes * senders as u128 / u128::from(FULL_PACKET);
            prop_assert!(u128::from(limit) >= packets.min(u128::from(LONGEST_QUEUE)));
            for class in tree.leaving.classes.values() {
                prop_assert!(class.rate > 0 && class.rate <= class.ceiling && class.ceiling == bandwidth);
            }
        }
    }
}
