//! Links in the kernel: what traffic control does to this node's packets, kept equal to what the links are to be like now.
//!
//! The node is in a network namespace of its own ([`faultline_tc::namespace`]). What its kernel lacks is left for the
//! delay lines of the transport. Cuts are left for them in any case: a line that is cut holds packets back, and loses none.

use std::collections::BTreeMap;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, ProcessId};
use faultline_shaper::tree::Peer;
use faultline_shaper::{Kernel, Place, Tree};
use faultline_tc::namespace::{INTERFACE, prefix_of};
use faultline_tc::{TcError, apply};

use crate::links::Links;
use crate::transport::Identity;

/// Traffic control for one node; without a kernel, none.
pub(crate) struct Shaping {
    kernel: Option<Kernel>,
    mine: ClusterId,
    peers: Vec<Peer>,
    links: Links,
    changed: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
}

impl Shaping {
    /// Of the node `me` among processes in `clusters`, indexed by process. Nothing is in force yet.
    pub(crate) fn new(me: Identity, kernel: Option<Kernel>, clusters: &[ClusterId], links: Links) -> Shaping {
        let others = clusters.iter().enumerate().filter(|&(index, _)| index != me.process.index());
        let peers = others.map(|(index, &cluster)| Peer {
            number: index as u16,
            cluster,
            prefix: prefix_of(ProcessId(index as u32)),
        });
        // A number says which address it is of only where addresses are given by number.
        let peers = if kernel.is_some() { peers.collect() } else { Vec::new() };
        Shaping { kernel, mine: me.cluster, peers, links, changed: BTreeMap::new() }
    }

    /// What of the links is left for the transport.
    pub(crate) fn left(&self) -> Links {
        let left = self.links.requested.iter().map(|(&pair, &link)| (pair, self.left_of(link)));
        Links { requested: left.collect() }
    }

    /// What of a link is left for the transport.
    pub(crate) fn left_of(&self, link: LinkProperties) -> LinkProperties {
        self.kernel.map_or(link, |kernel| kernel.left_for_node(link))
    }

    /// Takes note of what a link is to be like now; `None` is what was asked for.
    pub(crate) fn note(&mut self, from: ClusterId, to: ClusterId, properties: Option<LinkProperties>) {
        match properties {
            Some(properties) => drop(self.changed.insert((from, to), properties)),
            None => drop(self.changed.remove(&(from, to))),
        }
    }

    /// Brings into force what was noted.
    pub(crate) fn apply(&self) -> Result<(), TcError> {
        let Some(kernel) = self.kernel else { return Ok(()) };
        let link = |from, to| {
            let changed = self.changed.get(&(from, to)).copied();
            changed.unwrap_or_else(|| self.links.between(from, to))
        };
        let tree = Tree::new(self.mine, &self.peers, link, kernel, Place::Receiver);
        let changes = apply(INTERFACE, &tree)?;
        tracing::debug!(changes, "links are in force");
        Ok(())
    }
}
