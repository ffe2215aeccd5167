//! From the links of a federation to what the kernel of one node is to do: classes, queues and filters for what leaves
//! and for what arrives.
//!
//! Pure: nothing here talks to a kernel. A tree depends on what was asked for and on nothing that was there before, so that
//! whoever applies it finds out what differs, and repeats nothing.
//!
//! A sender's interface pushes packets out at the link's bandwidth: that is a class with a rate where packets leave, below
//! a class for all other clusters together, as in [`crate::Interface`]. The way takes its time and loses packets where
//! they arrive.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Span};
use serde::{Deserialize, Serialize};

use crate::kernel::{Kernel, Place};

/// The class of all other clusters together, for what leaves.
const OTHERS: u16 = 1;
/// The class of processes that stand outside every cluster.
const OUTSIDE: u16 = 2;
/// The class of cluster 0; that of another one is further on by its number.
const FIRST_CLUSTER: u16 = 0x10;
/// Bytes of the smallest packet: as many of them as fit into a link must fit into its queue.
const SMALLEST_PACKET: u128 = 64;
/// Bytes of a full packet on an Ethernet, with its header.
const FULL_PACKET: u64 = 1514;
/// Packets in a queue, at least: as many as an interface usually holds.
const SHORTEST_QUEUE: u32 = 1000;
/// Packets in a queue, at most.
const LONGEST_QUEUE: u32 = 10_000_000;
/// For so long an idle class may send at once: the kernel's timers are not finer under load.
const BURST: Span = Span::from_micros(250);
/// Bytes per second where none were asked for: more than any link of a machine.
const UNLIMITED: u64 = 12_500_000_000;
/// Bytes per second that a link without a bandwidth is taken to carry when its queue is measured: 10 Gbit/s.
const FAST: u64 = 1_250_000_000;

/// Addresses that share their first `length` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Prefix {
    /// Bits beyond the length do not matter.
    pub address: Ipv4Addr,
    /// At most 32.
    pub length: u8,
}

/// Another node, with which data is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Tells it from all others, for as long as there is a tree: below 0xfff0.
    pub number: u16,
    /// Its cluster: outside of all, or below 0x8000.
    pub cluster: ClusterId,
    /// Where its packets come from, and go to.
    pub prefix: Prefix,
}

/// A queue that delays and loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// On average.
    pub latency: Span,
    /// Half-width of a uniform distribution. Packets keep their order.
    pub jitter: Span,
    /// Packets lost, in parts per million.
    pub loss_ppm: u32,
    /// Packets that fit.
    pub limit: u32,
}

/// What is at the end of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaf {
    /// Other classes.
    Classes,
    /// A queue of so many packets.
    Queue(u32),
    /// A queue with a delay.
    Delay(Delay),
}

/// A class of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// The class that this one is part of; 0 is the whole interface.
    pub parent: u16,
    /// Bytes per second that it gets in any case.
    pub rate: u64,
    /// Bytes per second that it gets at most.
    pub ceiling: u64,
    /// Bytes that may leave at once.
    pub burst: u32,
    /// What is at its end.
    pub leaf: Leaf,
}

/// Puts packets of a peer into a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The peer's addresses.
    pub prefix: Prefix,
    /// The class.
    pub class: u16,
}

/// What is done to packets that pass in one direction. What no filter names passes as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// By number.
    pub classes: BTreeMap<u16, Class>,
    /// By the peer's number, which starts at 0.
    pub filters: BTreeMap<u16, Filter>,
}

/// What is done to the packets of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// To what leaves; filters look at the destination.
    pub leaving: Direction,
    /// To what arrives; filters look at the source.
    pub arriving: Direction,
}

impl Tree {
    /// The tree of a node in cluster `mine` under `kernel`. `links` says what is asked for, from a cluster to another.
    /// Packets are delayed at `place`, where the kernel can.
    ///
    /// # Panics
    ///
    /// If the kernel has no HTB: nothing can be told apart then.
    pub fn new(
        mine: ClusterId,
        peers: &[Peer],
        links: impl Fn(ClusterId, ClusterId) -> LinkProperties,
        kernel: Kernel,
        place: Place,
    ) -> Tree {
        assert!(kernel.htb, "a tree has classes");
        let place = match (kernel.delays_at(), place) {
            (Place::Receiver, asked) => asked,
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
    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The class of what goes to a cluster, or comes from it.
    pub fn class_of(cluster: ClusterId) -> u16 {
        if cluster == ClusterId::OUTSIDE { OUTSIDE } else { FIRST_CLUSTER + cluster.0 }
    }

    /// The cluster that a class is of; `None` for the class of several.
    pub fn cluster_of(class: u16) -> Option<ClusterId> {
        match class {
            OTHERS => None,
            OUTSIDE => Some(ClusterId::OUTSIDE),
            cluster => cluster.checked_sub(FIRST_CLUSTER).map(ClusterId),
        }
    }

    /// Puts the peers of every cluster that has a class into it.
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
    /// One that has this rate to itself.
    fn of_rate(rate: u64, leaf: Leaf) -> Class {
        Class { parent: 0, rate, ceiling: rate, burst: burst(rate), leaf }
    }
}

fn leaving(
    mine: ClusterId,
    peers: &[Peer],
    members: &BTreeMap<ClusterId, u64>,
    links: &impl Fn(ClusterId, ClusterId) -> LinkProperties,
    place: Place,
) -> Direction {
    let mut direction = Direction::default();
    let mut shared = Vec::new();
    for &cluster in members.keys() {
        let link = links(mine, cluster);
        let leaf = match place {
            // One sender: what it pushes out is what is under way.
            Place::Sender => delay(link, 1),
            Place::Receiver | Place::Node => None,
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
    // Each may have all of it, and together they have no more.
    if let Some(fastest) = shared.iter().map(|&(_, bandwidth)| bandwidth).max() {
        direction.classes.insert(OTHERS, Class::of_rate(fastest, Leaf::Classes));
        for &(number, bandwidth) in &shared {
            let class = direction.classes.get_mut(&number).expect("it was put there");
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
    place: Place,
) -> Direction {
    let mut direction = Direction::default();
    if place != Place::Receiver {
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

/// The queue in which what `senders` push out spends its time under way; `None` if it takes none and nothing is lost.
fn delay(link: LinkProperties, senders: u64) -> Option<Leaf> {
    let LinkProperties { latency, jitter, loss_ppm, .. } = link;
    let limit = queue(link, senders, SMALLEST_PACKET);
    (latency > Span::ZERO || loss_ppm > 0).then_some(Leaf::Delay(Delay { latency, jitter, loss_ppm, limit }))
}

/// Packets of `bytes` that `senders` have under way at the same time, and half as many again.
fn queue(link: LinkProperties, senders: u64, bytes: u128) -> u32 {
    let rate = if link.bandwidth == 0 { FAST } else { link.bandwidth };
    let longest = u128::from((link.latency + link.jitter).0);
    let under_way = u128::from(rate) * u128::from(senders) * longest * 3 / 2 / bytes / 1_000_000_000;
    u32::try_from(under_way).unwrap_or(u32::MAX).clamp(SHORTEST_QUEUE, LONGEST_QUEUE)
}

/// What may leave at once at `rate`: two packets at least.
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
    fn rates_are_where_packets_leave_and_delays_where_they_arrive() {
        let tree = Tree::new(MINE, &peers(&[MINE, OTHER, OTHER, SLOW]), links, ALL, Place::Receiver);
        let class = |parent, rate, ceiling, burst, leaf| Class { parent, rate, ceiling, burst, leaf };
        let leaving = [
            (OTHERS, class(0, 12_500_000, 12_500_000, 3125, Leaf::Classes)),
            (0x10, class(0, 80_000_000, 80_000_000, 20_000, Leaf::Queue(1000))),
            (0x11, class(OTHERS, 6_250_000, 12_500_000, 3125, Leaf::Queue(1000))),
            (0x12, class(OTHERS, 625_000, 1_250_000, 3028, Leaf::Queue(1000))),
        ];
        assert_eq!(tree.leaving.classes, leaving.into());
        // 12.5 MB/s for 5.2 ms from each of two are 2031 packets of 64 bytes, and half as many again.
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
    fn what_a_kernel_lacks_is_done_elsewhere_or_left_for_the_node() {
        let peers = peers(&[MINE, OTHER]);
        let no_ifb = Kernel { ifb: false, ..ALL };
        for (kernel, asked) in [(no_ifb, Place::Receiver), (ALL, Place::Sender)] {
            let tree = Tree::new(MINE, &peers, links, kernel, asked);
            assert!(tree.arriving.is_empty());
            assert!(matches!(tree.leaving.classes[&0x11].leaf, Leaf::Delay(Delay { loss_ppm: 100, .. })));
            assert_eq!(kernel.left_for_node(WAN), LinkProperties::default());
        }
        let rates_only = Kernel { netem: false, ..ALL };
        let tree = Tree::new(MINE, &peers, links, rates_only, Place::Receiver);
        assert!(tree.arriving.is_empty());
        assert_eq!(tree.leaving.classes[&0x11].leaf, Leaf::Queue(1000));
        assert_eq!(rates_only.left_for_node(WAN), LinkProperties { bandwidth: 0, ..WAN });
    }

    #[test]
    fn a_link_of_which_nothing_is_asked_has_no_class() {
        let tree = Tree::new(MINE, &peers(&[MINE, OTHER]), |_, _| Default::default(), ALL, Place::Receiver);
        assert_eq!(tree, Tree::default());
    }

    #[test]
    fn those_outside_every_cluster_have_a_class_of_their_own() {
        for cluster in [ClusterId(0), ClusterId(255), ClusterId::OUTSIDE] {
            assert_eq!(Direction::cluster_of(Direction::class_of(cluster)), Some(cluster));
        }
        assert_eq!(Direction::cluster_of(OTHERS), None);
    }

    proptest! {
        #[test]
        fn queues_hold_what_is_under_way(
            latency in 0u64..2_000_000_000,
            jitter in 0u64..100_000_000,
            bandwidth in prop_oneof![Just(0u64), 1_000u64..20_000_000_000],
            senders in 1usize..40,
        ) {
            let link = LinkProperties { latency: Span(latency), jitter: Span(jitter), bandwidth, loss_ppm: 1 };
            let clusters = vec![OTHER; senders];
            let tree = Tree::new(MINE, &peers(&clusters), |_, _| link, ALL, Place::Receiver);
            let Leaf::Delay(Delay { limit, .. }) = tree.arriving.classes[&0x11].leaf else {
                panic!("there is a delay")
            };
            // Full packets of all senders, for as long as the longest is under way.
            let bytes = u128::from(bandwidth) * u128::from(latency + jitter) / 1_000_000_000;
            let packets = bytes * senders as u128 / u128::from(FULL_PACKET);
            prop_assert!(u128::from(limit) >= packets.min(u128::from(LONGEST_QUEUE)));
            for class in tree.leaving.classes.values() {
                prop_assert!(class.rate > 0 && class.rate <= class.ceiling && class.ceiling == bandwidth);
            }
        }
    }
}
