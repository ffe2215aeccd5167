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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Other classes.
    Classes,
    /// A queue of so many packets.
    Queue(u32),
    /// A queue with a delay.
    Delay(Delay),
}

/// A class of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The peer's addresses.
    pub prefix: Prefix,
    /// The class.
    pub class: u16,
}

/// What is done to packets that pass in one direction. What no filter names passes as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// By number.
    pub classes: BTreeMap<u16, Class>,
    /// By the peer's number, which starts at 0.
    pub filters: BTreeMap<u16, Filter>,
}

/// What is done to the packets of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        direction.classes.insert(number, Class { parent: 0, rate, ceiling: rate, burst: burst(rate), leaf });
    }
    // Each may have all of it, and together they have no more.
    if let Some(fastest) = shared.iter().map(|&(_, bandwidth)| bandwidth).max() {
        let all =
            Class { parent: 0, rate: fastest, ceiling: fastest, burst: burst(fastest), leaf: Leaf::Classes };
        direction.classes.insert(OTHERS, all);
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
            let class =
                Class { parent: 0, rate: UNLIMITED, ceiling: UNLIMITED, burst: burst(UNLIMITED), leaf };
            direction.classes.insert(Direction::class_of(cluster), class);
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
