//! Links in the kernel: what traffic control does to this node's packets, kept equal to what the links are to be like now.
//!
//! Either the node is in a network namespace of its own ([`faultline_tc::namespace`]), where it may tell the kernel itself
//! and knows everyone's address from the start; or there is a shaper beside it ([`crate::shaper`]), and where the others
//! are stands in the directory. What the kernel lacks is left for the delay lines of the transport. Cuts are left for them
//! in any case: a line that is cut holds packets back, and loses none.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, ProcessId};
use faultline_shaper::tree::{Peer, Prefix};
use faultline_shaper::{Kernel, Place, Tree};
use faultline_tc::namespace::{INTERFACE, prefix_of};
use faultline_tc::{TcError, apply};
use thiserror::Error;

use crate::control::{Directory, Entry};
use crate::links::Links;
use crate::shaper::{Shaper, ShaperError};
use crate::transport::Identity;

/// Why traffic control does not do what it is to do.
#[derive(Debug, Error)]
pub enum ShapingError {
    /// In the node's own network namespace.
    #[error("{0}")]
    Kernel(TcError),
    /// By the shaper.
    #[error("{0}")]
    Shaper(ShaperError),
}

/// Who tells the kernel.
pub(crate) enum Hands {
    /// The node itself, in its own network namespace. Latency is where packets arrive.
    Own,
    /// A shaper. Latency is where packets leave, so that each place depends on its own kernel alone, and on no address
    /// but the one that it sends to: networks hide others.
    Shaper {
        /// It.
        shaper: Shaper,
        /// Of the interface to the others.
        address: Ipv4Addr,
    },
}

/// Traffic control for one node; without hands, none.
pub(crate) struct Shaping {
    hands: Option<(Hands, Kernel)>,
    me: Identity,
    peers: Vec<Peer>,
    links: Links,
    changed: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
}

impl Hands {
    /// Those of a node that the others reach at `here`.
    pub(crate) fn new(own_network: bool, shaper: Option<&Path>, here: IpAddr) -> Option<Hands> {
        match (shaper, here) {
            _ if own_network => Some(Hands::Own),
            (Some(socket), IpAddr::V4(address)) => {
                Some(Hands::Shaper { shaper: Shaper::at(socket), address })
            }
            _ => None,
        }
    }
}

impl Shaping {
    /// Of the node `me` among processes in `clusters`, indexed by process. Nothing is in force yet.
    pub(crate) fn new(
        me: Identity,
        hands: Option<(Hands, Kernel)>,
        clusters: &[ClusterId],
        links: Links,
    ) -> Shaping {
        let others = clusters.iter().enumerate().filter(|&(index, _)| index != me.process.index());
        let peers = others.map(|(index, &cluster)| Peer {
            number: index as u16,
            cluster,
            prefix: prefix_of(ProcessId(index as u32)),
        });
        // A number says which address it is of only where addresses are given by number.
        let peers = if matches!(hands, Some((Hands::Own, _))) { peers.collect() } else { Vec::new() };
        Shaping { hands, me, peers, links, changed: BTreeMap::new() }
    }

    /// What of the links is left for the transport.
    pub(crate) fn left(&self) -> Links {
        let left = self.links.requested.iter().map(|(&pair, &link)| (pair, self.left_of(link)));
        Links { requested: left.collect() }
    }

    /// What of a link is left for the transport.
    pub(crate) fn left_of(&self, link: LinkProperties) -> LinkProperties {
        self.hands.as_ref().map_or(link, |(_, kernel)| kernel.left_for_node(link))
    }

    /// Takes note of what a link is to be like now; `None` is what was asked for.
    pub(crate) fn note(&mut self, from: ClusterId, to: ClusterId, properties: Option<LinkProperties>) {
        match properties {
            Some(properties) => drop(self.changed.insert((from, to), properties)),
            None => drop(self.changed.remove(&(from, to))),
        }
    }

    /// Takes note of what is asked of a link from now on.
    pub(crate) fn ask(&mut self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.links.requested.insert((from, to), properties);
    }

    /// Takes note of where the others are. Returns whether that changes what is to be in force.
    pub(crate) fn meet(&mut self, directory: &Directory) -> bool {
        if !matches!(self.hands, Some((Hands::Shaper { .. }, _))) {
            return false;
        }
        let peers = peers(self.me.process, directory);
        let is_news = self.peers != peers;
        self.peers = peers;
        is_news
    }

    /// Brings into force what was noted. Returns when it is.
    pub(crate) async fn apply(&self) -> Result<(), ShapingError> {
        let Some((hands, kernel)) = &self.hands else { return Ok(()) };
        let link = |from, to| {
            let changed = self.changed.get(&(from, to)).copied();
            changed.unwrap_or_else(|| self.links.between(from, to))
        };
        let tree = |place| Tree::new(self.me.cluster, &self.peers, link, *kernel, place);
        let changes = match hands {
            Hands::Own => apply(INTERFACE, &tree(Place::Receiver)).map_err(ShapingError::Kernel)? as u64,
            Hands::Shaper { shaper, address } => {
                shaper.apply(*address, tree(Place::Sender)).await.map_err(ShapingError::Shaper)?
            }
        };
        tracing::debug!(changes, "links are in force");
        Ok(())
    }
}

/// Those who are up, but for this process.
fn peers(me: ProcessId, directory: &Directory) -> Vec<Peer> {
    let others = directory.entries.iter().enumerate().filter(|&(index, _)| index != me.index());
    let peer = |(index, entry): (usize, &Option<Entry>)| {
        let entry = entry.as_ref()?;
        let IpAddr::V4(address) = entry.address.ip() else { return None };
        let number = u16::try_from(index).expect("a federation by traffic control has few enough processes");
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

    fn entry(address: [u8; 4], cluster: u16) -> Option<Entry> {
        let address = SocketAddr::from((address, 4711));
        Some(Entry { life: Life(1), cluster: ClusterId(cluster), address })
    }

    fn shaping(kernel: Kernel) -> Shaping {
        let me = Identity { process: ProcessId(1), life: Life(1), cluster: ClusterId(0) };
        let links = Links { requested: [((ClusterId(0), ClusterId(1)), WAN)].into() };
        let hands = Hands::new(false, Some(Path::new("/nowhere")), HERE);
        let clusters = [ClusterId(0), ClusterId(0), ClusterId(1)];
        Shaping::new(me, hands.zip(Some(kernel)), &clusters, links)
    }

    #[test]
    fn beside_a_shaper_peers_are_those_who_are_up_where_they_are_now() {
        let mut shaping = shaping(Kernel { htb: true, ..Kernel::default() });
        assert_eq!(shaping.peers, [], "no address is known before the directory");
        let entries = vec![entry([10, 1, 0, 7], 0), entry([10, 1, 0, 1], 0), entry([10, 1, 0, 9], 1)];
        assert!(shaping.meet(&Directory { entries: entries.clone() }));
        let known = |shaping: &Shaping| {
            shaping.peers.iter().map(|it| (it.number, it.cluster.0, it.prefix.address)).collect::<Vec<_>>()
        };
        let (first, last) = (Ipv4Addr::new(10, 1, 0, 7), Ipv4Addr::new(10, 1, 0, 9));
        assert_eq!(known(&shaping), [(0, 0, first), (2, 1, last)]);
        assert!(!shaping.meet(&Directory { entries: entries.clone() }), "that is no news");
        let moved = Directory { entries: vec![None, entries[1], entry([10, 1, 0, 33], 1)] };
        assert!(shaping.meet(&moved));
        assert_eq!(known(&shaping), [(2, 1, Ipv4Addr::new(10, 1, 0, 33))], "one has gone, one has moved");
    }

    #[test]
    fn what_the_kernel_lacks_is_left_for_the_transport() {
        let pair = (ClusterId(0), ClusterId(1));
        let rates = shaping(Kernel { htb: true, netem: false, ifb: true });
        assert_eq!(rates.left().requested[&pair], LinkProperties { bandwidth: 0, ..WAN });
        let all = shaping(Kernel { htb: true, netem: true, ifb: false });
        assert_eq!(all.left().requested[&pair], LinkProperties::default());
    }

    #[test]
    fn traffic_control_needs_somebody_who_may_and_an_address_of_the_old_kind() {
        let socket = Some(Path::new("/nowhere"));
        assert!(Hands::new(false, None, HERE).is_none());
        assert!(Hands::new(false, socket, "2001:db8::1".parse().unwrap()).is_none());
        assert!(matches!(Hands::new(true, None, HERE), Some(Hands::Own)));
    }
}
