//! Link emulation in the kernel: keeps traffic control for this node's packets up to date with the current
//! properties of the links.
//!
//! A node with its own network namespace ([`faultline_tc::namespace`]) configures the kernel itself, and
//! knows all addresses from the start. Otherwise, a shaper runs next to the node ([`crate::shaper`]), and the
//! directory contains the addresses of its peers. The delay lines of the transport emulate whatever the
//! kernel does not support. They also perform cuts, because a cut delay line holds packets back, but loses
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, FaultNo, ProcessId};
use faultline_shaper::tree::{ALL_LOST, Peer, Prefix};
use faultline_shaper::{Kernel, ShapingSide, Tree};
use faultline_tc::namespace::{INTERFACE, prefix_of};
use faultline_tc::{TcError, apply};
use thiserror::Error;

use crate::control::{Directory, DirectoryEntry};
use crate::links::Links;
use crate::shaper::{Shaper, ShaperError};
use crate::transport::Identity;

/// Stands for a cluster of nodes that a partition within their cluster separates from this node.
const CUT_OFF: ClusterId = ClusterId(0x7fff);

/// The reason why traffic control could not be configured.
#[derive(Debug, Error)]
pub enum ShapingError {
    /// Failure in the node's own network namespace.
    #[error("{0}")]
    Kernel(TcError),
    /// Failure of the shaper.
    #[error("{0}")]
    Shaper(ShaperError),
}

/// The program that configures the kernel.
pub(crate) enum ShapingMethod {
    /// The node itself, in its own network namespace. Packets are delayed at their receiver.
    Own,
    /// A shaper. Packets are delayed at their sender. Shaping then depends only on the node's own kernel and
    /// on the receiver's address; networks may hide the sender's address.
    Shaper {
        /// Connection to the shaper.
        shaper: Shaper,
        /// Address of the interface to the peers.
        address: Ipv4Addr,
    },
}

/// Traffic control for one node, if anything can configure it.
pub(crate) struct Shaping {
    hands: Option<(ShapingMethod, Kernel)>,
    me: Identity,
    peers: Vec<Peer>,
    links: Links,
    changed: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    /// For a system, the links whose packets are dropped.
    cut: BTreeSet<(ClusterId, ClusterId)>,
    /// For a system, the partitions within clusters: the nodes on one side.
    splits: BTreeMap<FaultNo, Vec<ProcessId>>,
    /// Whether the packets of a system's own programs use the links. The transport then emulates nothing, so that
    /// measurements show what these programs experience.
    is_of_system: bool,
}

impl ShapingMethod {
    /// Returns the method for a node that its peers reach at `here`; `None` if nothing can configure the
    /// kernel.
    pub(crate) fn new(own_network: bool, shaper: Option<&Path>, here: IpAddr) -> Option<ShapingMethod> {
        match (shaper, here) {
            _ if own_network => Some(ShapingMethod::Own),
            (Some(socket), IpAddr::V4(address)) => {
                Some(ShapingMethod::Shaper { shaper: Shaper::at(socket), address })
            }
            _ => None,
        }
    }
}

impl Shaping {
    /// Creates the traffic control of node `me`. `clusters` contains the cluster of each process, indexed by process.
    /// Nothing takes effect before [`Shaping::apply`] is called.
    pub(crate) fn new(
        me: Identity,
        hands: Option<(ShapingMethod, Kernel)>,
        clusters: &[ClusterId],
        links: Links,
    ) -> Shaping {
        let others = clusters.iter().enumerate().filter(|&(index, _)| index != me.process.index());
        let peers = others.map(|(index, &cluster)| Peer {
            number: index as u16,
            cluster,
            prefix: prefix_of(ProcessId(index as u32)),
        });
        // Only in namespaces do process numbers determine addresses.
        let peers = if matches!(hands, Some((ShapingMethod::Own, _))) { peers.collect() } else { Vec::new() };
        let (changed, cut, splits) = Default::default();
        Shaping { hands, me, peers, links, changed, cut, splits, is_of_system: false }
    }

    /// States that the packets of a system's own programs use the links.
    pub(crate) fn of_system(self) -> Shaping {
        Shaping { is_of_system: true, ..self }
    }

    /// Returns the properties that the transport must emulate, for all links.
    pub(crate) fn left(&self) -> Links {
        let left = self.links.requested.iter().map(|(&pair, &link)| (pair, self.left_of(link)));
        Links { requested: left.collect() }
    }

    /// Returns those properties of a link that the transport must emulate.
    pub(crate) fn left_of(&self, link: LinkProperties) -> LinkProperties {
        match &self.hands {
            _ if self.is_of_system => LinkProperties::default(),
            None => link,
            Some((_, kernel)) => kernel.left_for_node(link),
        }
    }

    /// Returns whether packets experience these properties, once they are [applied](Shaping::apply). Those of a system's
    /// programs do not if the kernel lacks what emulates them.
    pub(crate) fn emulates(&self, link: LinkProperties) -> bool {
        let left = match &self.hands {
            _ if !self.is_of_system => return true,
            None => link,
            Some((_, kernel)) => kernel.left_for_node(link),
        };
        left == LinkProperties::default()
    }

    /// Returns whether packets are dropped on links that are cut.
    pub(crate) fn drops(&self) -> bool {
        !self.is_of_system || self.hands.is_some()
    }

    /// Records the current properties of a link; `None` restores the requested ones.
    pub(crate) fn note(&mut self, from: ClusterId, to: ClusterId, properties: Option<LinkProperties>) {
        match properties {
            Some(properties) => drop(self.changed.insert((from, to), properties)),
            None => drop(self.changed.remove(&(from, to))),
        }
    }

    /// Cuts or heals a link. Returns whether traffic control must change: programs of a system know nothing of the
    /// delay lines, so their packets are dropped.
    pub(crate) fn cut(&mut self, from: ClusterId, to: ClusterId, cut: bool) -> bool {
        if !self.is_of_system {
            return false;
        }
        if cut { self.cut.insert((from, to)) } else { self.cut.remove(&(from, to)) }
    }

    /// Cuts some nodes of a cluster off from its others, or ends this.
    pub(crate) fn split(&mut self, of: FaultNo, nodes: Vec<ProcessId>, cut: bool) {
        match cut {
            true => drop(self.splits.insert(of, nodes)),
            false => drop(self.splits.remove(&of)),
        }
    }

    /// Returns the peers. Those of the node's own cluster that a partition separates from it are in [`CUT_OFF`].
    fn placed_peers(&self) -> Vec<Peer> {
        let is_split = |peer: &Peer| {
            let mut sides = self.splits.values().map(|nodes| {
                let is_there = |it| nodes.contains(&it);
                is_there(self.me.process) != is_there(ProcessId(peer.number.into()))
            });
            peer.cluster == self.me.cluster && sides.any(|it| it)
        };
        let placed = |it: &Peer| if is_split(it) { Peer { cluster: CUT_OFF, ..*it } } else { *it };
        self.peers.iter().map(placed).collect()
    }

    /// Records new requested properties of a link.
    pub(crate) fn ask(&mut self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.links.requested.insert((from, to), properties);
    }

    /// Records the addresses of the peers. Returns whether traffic control must change.
    pub(crate) fn meet(&mut self, directory: &Directory) -> bool {
        if !matches!(self.hands, Some((ShapingMethod::Shaper { .. }, _))) {
            return false;
        }
        let peers = peers(self.me.process, directory);
        let is_news = self.peers != peers;
        self.peers = peers;
        is_news
    }

    /// Applies everything recorded, and returns once it is in effect.
    pub(crate) async fn apply(&self) -> Result<(), ShapingError> {
        let Some((hands, kernel)) = &self.hands else { return Ok(()) };
        let link = |from, to| {
            let changed = self.changed.get(&(from, to)).copied();
            let link = changed.unwrap_or_else(|| self.links.between(from, to));
            let is_cut = [from, to].contains(&CUT_OFF) || self.cut.contains(&(from, to));
            if is_cut { LinkProperties { loss_ppm: ALL_LOST, ..link } } else { link }
        };
        let peers = self.placed_peers();
        let tree = |place| Tree::new(self.me.cluster, &peers, link, *kernel, place);
        let changes = match hands {
            ShapingMethod::Own => {
                apply(INTERFACE, &tree(ShapingSide::Receiver)).map_err(ShapingError::Kernel)? as u64
            }
            ShapingMethod::Shaper { shaper, address } => {
                shaper.apply(*address, tree(ShapingSide::Sender)).await.map_err(ShapingError::Shaper)?
            }
        };
        tracing::debug!(changes, "configured links");
        Ok(())
    }
}

/// Returns all other processes that are up and have an IPv4 address.
fn peers(me: ProcessId, directory: &Directory) -> Vec<Peer> {
    let others = directory.entries.iter().enumerate().filter(|&(index, _)| index != me.index());
    let peer = |(index, entry): (usize, &Option<DirectoryEntry>)| {
        let entry = entry.as_ref()?;
        let IpAddr::V4(address) = entry.address.ip() else { return None };
        let number =
            u16::try_from(index).expect("federations with traffic control have at most 65536 processes");
        Some(Peer { number, cluster: entry.cluster, prefix: Prefix { address, length: 32 } })
    };
    others.filter_map(peer).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use faultline_core::{Life, Span};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
    const WAN: LinkProperties = LinkProperties {
        latency: Span::from_millis(5),
        jitter: Span::ZERO,
        bandwidth: 12_500_000,
        loss_ppm: 0,
    };

    fn entry(address: [u8; 4], cluster: u16) -> Option<DirectoryEntry> {
        let address = SocketAddr::from((address, 4711));
        Some(DirectoryEntry { life: Life(1), cluster: ClusterId(cluster), address })
    }

    fn shaping(kernel: Kernel) -> Shaping {
        let me = Identity { process: ProcessId(1), life: Life(1), cluster: ClusterId(0) };
        let links = Links { requested: [((ClusterId(0), ClusterId(1)), WAN)].into() };
        let hands = ShapingMethod::new(false, Some(Path::new("/nowhere")), HERE);
        let clusters = [ClusterId(0), ClusterId(0), ClusterId(1)];
        Shaping::new(me, hands.zip(Some(kernel)), &clusters, links)
    }

    #[test]
    fn with_a_shaper_peers_are_the_processes_that_are_up() {
        let mut shaping = shaping(Kernel { htb: true, ..Kernel::default() });
        assert_eq!(shaping.peers, [], "no address is known before the directory");
        let entries = vec![entry([10, 1, 0, 7], 0), entry([10, 1, 0, 1], 0), entry([10, 1, 0, 9], 1)];
        assert!(shaping.meet(&Directory { entries: entries.clone() }));
        let known = |shaping: &Shaping| {
            shaping.peers.iter().map(|it| (it.number, it.cluster.0, it.prefix.address)).collect::<Vec<_>>()
        };
        let (first, last) = (Ipv4Addr::new(10, 1, 0, 7), Ipv4Addr::new(10, 1, 0, 9));
        assert_eq!(known(&shaping), [(0, 0, first), (2, 1, last)]);
        assert!(!shaping.meet(&Directory { entries: entries.clone() }), "an equal directory changes nothing");
        let moved = Directory { entries: vec![None, entries[1], entry([10, 1, 0, 33], 1)] };
        assert!(shaping.meet(&moved));
        assert_eq!(
            known(&shaping),
            [(2, 1, Ipv4Addr::new(10, 1, 0, 33))],
            "one peer has ended, one has moved"
        );
    }

    #[test]
    fn a_partition_within_a_cluster_separates_its_nodes_but_no_others() {
        let mut shaping = shaping(Kernel { htb: true, ..Kernel::default() }).of_system();
        let entries = vec![entry([10, 1, 0, 7], 0), entry([10, 1, 0, 1], 0), entry([10, 1, 0, 9], 1)];
        shaping.meet(&Directory { entries });
        let clusters = |it: &Shaping| it.placed_peers().iter().map(|it| it.cluster).collect::<Vec<_>>();
        let [home, away] = [0, 1].map(ClusterId);
        let [first, second] = [0, 1].map(FaultNo);
        shaping.split(first, vec![ProcessId(0)], true);
        assert_eq!(clusters(&shaping), [CUT_OFF, away]);
        shaping.split(second, vec![ProcessId(0), ProcessId(1)], true);
        shaping.split(first, Vec::new(), false);
        assert_eq!(clusters(&shaping), [home, away], "both are on the same side");
        shaping.split(second, vec![ProcessId(1)], true);
        assert_eq!(clusters(&shaping), [CUT_OFF, away]);
    }

    #[test]
    fn the_transport_emulates_what_the_kernel_lacks() {
        let pair = (ClusterId(0), ClusterId(1));
        let rates = shaping(Kernel { htb: true, netem: false, ifb: true });
        assert_eq!(rates.left().requested[&pair], LinkProperties { bandwidth: 0, ..WAN });
        let all = shaping(Kernel { htb: true, netem: true, ifb: false });
        assert_eq!(all.left().requested[&pair], LinkProperties::default());
    }

    #[test]
    fn the_packets_of_a_systems_programs_experience_only_what_the_kernel_emulates() {
        let kernel = |netem| Kernel { htb: true, netem, ifb: true };
        let rate = LinkProperties { bandwidth: 1, ..LinkProperties::default() };
        let lossy = LinkProperties { loss_ppm: 1, ..LinkProperties::default() };
        let emulated = |shaping: &Shaping| [WAN, rate, lossy].map(|it| shaping.emulates(it));
        assert_eq!(emulated(&shaping(kernel(false)).of_system()), [false, true, false]);
        assert_eq!(emulated(&shaping(kernel(true)).of_system()), [true; 3]);
        assert_eq!(emulated(&shaping(kernel(false))), [true; 3], "the node's transport emulates the rest");
        let without = Shaping { hands: None, ..shaping(kernel(true)).of_system() };
        assert_eq!((emulated(&without), without.drops()), ([false; 3], false));
    }

    #[test]
    fn traffic_control_requires_a_shaper_and_an_ipv4_address() {
        let socket = Some(Path::new("/nowhere"));
        assert!(ShapingMethod::new(false, None, HERE).is_none());
        assert!(ShapingMethod::new(false, socket, "2001:db8::1".parse().unwrap()).is_none());
        assert!(matches!(ShapingMethod::new(true, None, HERE), Some(ShapingMethod::Own)));
    }
}
