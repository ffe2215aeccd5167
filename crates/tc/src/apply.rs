//! Updates the kernel's traffic control in place to match a [`Tree`]. Objects that are already
//! correct are not touched: changing one class does not disturb the others, and a restarted program adopts existing
//! objects.
//!
//! Handles and names identify this crate's own objects. An object of another program is never replaced: a tree
//! that requires the same place is not applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;

use faultline_core::ClusterId;
use faultline_shaper::Tree;
use faultline_shaper::tree::{Class, Direction, Filter, Leaf, Prefix};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::link::Link;
use crate::netlink::{Mode, Socket};
use crate::traffic::{Discipline, Handle, HtbClass, MatchField, Target};

/// The interface that shapes incoming packets.
const ARRIVING: &str = "faultline-in";
/// Root of every tree that this crate builds.
const ROOT: Handle = Handle::new(0xfa17, 0);
/// Handle of the queue in class 0. The queues of other classes follow, by class.
const FIRST_LEAF: u16 = 0x1000;
/// Bytes that a class may send before the next class of the same parent gets its turn: two full packets.
const QUANTUM: u32 = 3028;
/// Priority of the first peer's filter. Priority 0 does not exist.
const PRIORITY_OF_FIRST: u16 = 1;

/// The reason why an operation on an interface failed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The interface does not exist.
    #[error("network interface {0} not found")]
    Interface(String),
    /// No interface has this address.
    #[error("no network interface has the address {0}")]
    Address(Ipv4Addr),
    /// The interface has a queueing discipline that belongs to another program.
    #[error(
        "{interface} has a queueing discipline that belongs to another program ({kind}); remove it with `tc qdisc del dev {interface} {at}`"
    )]
    Occupied {
        /// Name of the interface.
        interface: String,
        /// Kind of the queueing discipline.
        kind: String,
        /// Location of the queueing discipline, as `tc` names it.
        at: &'static str,
    },
    /// The kernel refused to look up the interface.
    #[error("cannot look up the network interface {interface}: {source}")]
    LookUp {
        /// Name or address of the interface.
        interface: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The kernel refused an operation.
    #[error("cannot {what} on {interface}: {source}")]
    Kernel {
        /// Description of the operation.
        what: &'static str,
        /// Name of the interface.
        interface: String,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// Packets counted by a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets that passed.
    pub packets: u64,
    /// Bytes that passed.
    pub bytes: u64,
    /// Packets lost, intentionally or because the queue was full.
    pub drops: u64,
}

/// Traffic by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficCounts {
    /// Traffic to each cluster.
    pub leaving: BTreeMap<ClusterId, Counts>,
    /// Traffic from each cluster.
    pub arriving: BTreeMap<ClusterId, Counts>,
}

/// An interface, with the context for error messages.
struct Interface<'a> {
    kernel: &'a Socket,
    name: &'a str,
    link: Link,
}

/// Applies `tree` to the packets of `interface`. Returns the number of changes.
pub(crate) fn apply(kernel: &Socket, interface: &str, tree: &Tree) -> Result<usize, ApplyError> {
    let outer = find(kernel, interface)?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    let mut changes = outer.shape(&tree.leaving, MatchField::AtDestination)?;
    let there = find(kernel, ARRIVING)?;
    if tree.arriving.is_empty() {
        changes += outer.listen(&BTreeMap::new(), None)?;
        if there.is_some() {
            kernel
                .remove_link(ARRIVING)
                .map_err(outer.failed("remove the interface for incoming packets"))?;
            changes += 1;
        }
        return Ok(changes);
    }
    let inner = match there {
        Some(inner) => inner,
        None => {
            // Any redirects to a previous interface of this name are invalid.
            changes += outer.listen(&BTreeMap::new(), None)? + 1;
            let failed = |source| outer.failed("add an interface for incoming packets")(source);
            kernel.add_link("ifb", ARRIVING, None).map_err(failed)?;
            kernel.bring_up(ARRIVING).map_err(failed)?;
            find(kernel, ARRIVING)?.ok_or_else(|| ApplyError::Interface(ARRIVING.to_owned()))?
        }
    };
    changes += inner.shape(&tree.arriving, MatchField::AtSource)?;
    changes += outer.listen(&tree.arriving.filters, Some(inner.link))?;
    Ok(changes)
}

/// Returns the traffic of the classes on `interface`.
pub(crate) fn passed(kernel: &Socket, interface: &str) -> Result<TrafficCounts, ApplyError> {
    let outer = find(kernel, interface)?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    let leaving = outer.passed()?;
    let arriving = match find(kernel, ARRIVING)? {
        Some(inner) => inner.passed()?,
        None => BTreeMap::new(),
    };
    Ok(TrafficCounts { leaving, arriving })
}

/// Returns the name of the interface that has this address.
pub(crate) fn interface_of(kernel: &Socket, address: Ipv4Addr) -> Result<String, ApplyError> {
    let failed = |source| ApplyError::LookUp { interface: format!("with the address {address}"), source };
    kernel.link_of(address).map_err(failed)?.ok_or(ApplyError::Address(address))
}

/// Configures the kernel to segment data before the data reaches the queues of `interface`. Otherwise, up to 64 KiB are
/// queued, delayed and lost as one packet.
pub(crate) fn disable_segmentation_offload(kernel: &Socket, interface: &str) -> Result<(), ApplyError> {
    let found = find(kernel, interface)?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    kernel.disable_segmentation_offload(found.link).map_err(found.failed("turn off segmentation offload"))
}

fn find<'a>(kernel: &'a Socket, name: &'a str) -> Result<Option<Interface<'a>>, ApplyError> {
    let link =
        kernel.link(name).map_err(|source| ApplyError::LookUp { interface: name.to_owned(), source })?;
    Ok(link.map(|link| Interface { kernel, name, link }))
}

impl Interface<'_> {
    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> ApplyError + use<> {
        let interface = self.name.to_owned();
        move |source| ApplyError::Kernel { what, interface: interface.clone(), source }
    }

    /// Applies classes, queues and filters to outgoing packets of this interface.
    fn shape(&self, wanted: &Direction, looks: MatchField) -> Result<usize, ApplyError> {
        if wanted.is_empty() {
            return self.unshape();
        }
        let mut changes = 0;
        if !self.is_ours()? {
            let added =
                self.kernel.set_discipline(Mode::New, self.link, (Handle::ROOT, ROOT), Discipline::Htb);
            added.map_err(self.failed("add HTB"))?;
            changes += 1;
        }
        let there = self.classes()?;
        // The parent of a class cannot be changed.
        let parent = |number: u16, class: &Class| (number, parent(class));
        let kept: BTreeSet<_> = wanted.classes.iter().map(|(&number, class)| parent(number, class)).collect();
        let gone: BTreeSet<u16> = there
            .iter()
            .filter(|(number, (up, _))| !kept.contains(&(**number, *up)))
            .map(|(&n, _)| n)
            .collect();
        changes += self.remove_filters(ROOT, looks, |priority, prefix, class| {
            let as_wanted = wanted.filters.get(&number(priority));
            as_wanted == Some(&Filter { prefix, class: class.minor() }) && !gone.contains(&class.minor())
        })?;
        // Remove from the bottom: classes further down have greater numbers.
        for &number in gone.iter().rev() {
            let removed = self.kernel.remove_class(self.link, parent_handle(0), class_handle(number));
            removed.map_err(self.failed("remove a class"))?;
            changes += 1;
        }
        for (&number, class) in &wanted.classes {
            let is = there.get(&number).filter(|_| !gone.contains(&number)).map(|(_, is)| is);
            changes += self.set_class(number, class, is)?;
        }
        changes += self.set_leaves(wanted)?;
        let there = self.filters(ROOT, looks)?;
        for (&number, &Filter { prefix, class }) in &wanted.filters {
            if !there.contains_key(&priority(number)) {
                let class = Target::Class(class_handle(class));
                let added = self.kernel.add_filter(self.link, ROOT, priority(number), (looks, prefix), class);
                added.map_err(self.failed("add a filter"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Redirects exactly the packets from these peers to the interface `to`. Without `to`, stops redirecting packets.
    fn listen(&self, wanted: &BTreeMap<u16, Filter>, to: Option<Link>) -> Result<usize, ApplyError> {
        let queues = self.kernel.queues(self.link).map_err(self.failed("read the queueing disciplines"))?;
        let ingress = queues.iter().find(|it| it.parent == Handle::INGRESS);
        if let Some(other) = ingress.filter(|it| it.kind != "ingress") {
            // A queueing discipline of another program does no harm if no packets are redirected.
            return if to.is_none() { Ok(0) } else { Err(self.occupied(&other.kind, "ingress")) };
        }
        let Some(to) = to else {
            // All ingress queueing disciplines have the same handle. One counts as this crate's if it has filters by
            // source address.
            let ours = ingress.is_some() && !self.filters(Handle::ARRIVING, MatchField::AtSource)?.is_empty();
            if ours {
                let removed = self.kernel.remove_discipline(self.link, Handle::INGRESS, Handle::ARRIVING);
                removed.map_err(self.failed("stop filtering incoming packets"))?;
            }
            return Ok(usize::from(ours));
        };
        let mut changes = 0;
        if ingress.is_none() {
            let place = (Handle::INGRESS, Handle::ARRIVING);
            let added = self.kernel.set_discipline(Mode::New, self.link, place, Discipline::Ingress);
            added.map_err(self.failed("filter incoming packets"))?;
            changes += 1;
        }
        changes += self.remove_filters(Handle::ARRIVING, MatchField::AtSource, |priority, prefix, _| {
            wanted.get(&number(priority)).is_some_and(|filter| filter.prefix == prefix)
        })?;
        let there = self.filters(Handle::ARRIVING, MatchField::AtSource)?;
        for (&number, &Filter { prefix, .. }) in wanted {
            if !there.contains_key(&priority(number)) {
                let (filter, target) = ((MatchField::AtSource, prefix), Target::Interface(to));
                let place = Handle::ARRIVING;
                let added = self.kernel.add_filter(self.link, place, priority(number), filter, target);
                added.map_err(self.failed("redirect incoming packets for shaping"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Removes this crate's tree, if it exists.
    fn unshape(&self) -> Result<usize, ApplyError> {
        let is_ours = match self.is_ours() {
            // Another program's tree does no harm if no packets are shaped.
            Err(ApplyError::Occupied { .. }) => false,
            other => other?,
        };
        if is_ours {
            let removed = self.kernel.remove_discipline(self.link, Handle::ROOT, ROOT);
            removed.map_err(self.failed("remove HTB"))?;
        }
        Ok(usize::from(is_ours))
    }

    /// Returns whether this crate's tree exists; `false` if there are only the kernel's defaults. Fails if the tree of
    /// another program exists.
    fn is_ours(&self) -> Result<bool, ApplyError> {
        let queues = self.kernel.queues(self.link).map_err(self.failed("read the queueing disciplines"))?;
        match queues.iter().find(|it| it.parent == Handle::ROOT) {
            None => Ok(false),
            Some(root) if root.handle.is_none() => Ok(false),
            Some(root) if root.handle == ROOT && root.kind == "htb" => Ok(true),
            Some(other) => Err(self.occupied(&other.kind, "root")),
        }
    }

    fn occupied(&self, kind: &str, at: &'static str) -> ApplyError {
        let kind = if kind.is_empty() { "unnamed" } else { kind }.to_owned();
        ApplyError::Occupied { interface: self.name.to_owned(), kind, at }
    }

    /// Returns the parents and parameters of the existing classes.
    fn classes(&self) -> Result<BTreeMap<u16, (Handle, HtbClass)>, ApplyError> {
        let classes = self.kernel.classes(self.link).map_err(self.failed("read the classes"))?;
        let ours = classes.into_iter().filter(|(handle, ..)| handle.major() == ROOT.major());
        Ok(ours.map(|(handle, parent, class)| (handle.minor(), (parent, class))).collect())
    }

    fn set_class(&self, number: u16, class: &Class, is: Option<&HtbClass>) -> Result<usize, ApplyError> {
        let wanted = HtbClass::new(class.rate, class.ceiling, class.burst, QUANTUM);
        // The kernel does not keep the quantum of a class that has classes below it.
        let equal = |is: &HtbClass| match class.leaf {
            Leaf::Classes => HtbClass { quantum: QUANTUM, ..*is } == wanted,
            _ => *is == wanted,
        };
        if is.is_some_and(equal) {
            return Ok(0);
        }
        let mode = if is.is_some() { Mode::Existing } else { Mode::New };
        let place = (parent_handle(class.parent), class_handle(number));
        let set = self.kernel.set_class(mode, self.link, place, wanted, class.burst);
        set.map_err(self.failed("set the rate of a class"))?;
        Ok(1)
    }

    /// Sets the queues of the classes that contain no other classes.
    fn set_leaves(&self, wanted: &Direction) -> Result<usize, ApplyError> {
        let queues = self.kernel.queues(self.link).map_err(self.failed("read the queues"))?;
        let mut changes = 0;
        for (&number, class) in &wanted.classes {
            let (up, handle) = (class_handle(number), Handle::new(FIRST_LEAF + number, 0));
            let discipline = match class.leaf {
                Leaf::Classes => continue,
                Leaf::Queue(limit) => Discipline::Pfifo(limit),
                Leaf::Delay(delay) => Discipline::Netem(delay),
            };
            // The kernel gives a class a default queue, whose handle differs from those of this crate.
            let is = queues.iter().find(|it| it.parent == up && it.handle == handle);
            let same_kind = is.filter(|it| it.kind == discipline.kind());
            if same_kind.is_some_and(|it| it.is(discipline)) {
                continue;
            }
            if is.is_some() && same_kind.is_none() {
                let removed = self.kernel.remove_discipline(self.link, up, handle);
                removed.map_err(self.failed("remove a queue"))?;
            }
            let mode = if same_kind.is_some() { Mode::Existing } else { Mode::New };
            let set = self.kernel.set_discipline(mode, self.link, (up, handle), discipline);
            set.map_err(self.failed("configure a queue"))?;
            changes += 1;
        }
        Ok(changes)
    }

    /// Returns the address filters at `parent`, indexed by priority.
    fn filters(
        &self,
        parent: Handle,
        looks: MatchField,
    ) -> Result<BTreeMap<u16, (Prefix, Handle)>, ApplyError> {
        let filters =
            self.kernel.filters(self.link, parent, looks).map_err(self.failed("read the filters"))?;
        Ok(filters.into_iter().map(|(priority, prefix, class)| (priority, (prefix, class))).collect())
    }

    /// Removes the filters at `parent` for which `keep` returns `false`.
    fn remove_filters(
        &self,
        parent: Handle,
        looks: MatchField,
        keep: impl Fn(u16, Prefix, Handle) -> bool,
    ) -> Result<usize, ApplyError> {
        let mut changes = 0;
        for (priority, (prefix, class)) in self.filters(parent, looks)? {
            if !keep(priority, prefix, class) {
                let removed = self.kernel.remove_filter(self.link, parent, priority);
                removed.map_err(self.failed("remove a filter"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Returns the traffic by cluster.
    fn passed(&self) -> Result<BTreeMap<ClusterId, Counts>, ApplyError> {
        let queues = self.kernel.queues(self.link).map_err(self.failed("read the queues"))?;
        let of_cluster = queues.iter().filter(|it| it.parent.major() == ROOT.major()).filter_map(|it| {
            let counts = Counts { packets: it.packets.into(), bytes: it.bytes, drops: it.drops.into() };
            Some((Direction::cluster_of(it.parent.minor())?, counts))
        });
        Ok(of_cluster.collect())
    }
}

/// Returns the priority that identifies a peer's filter. Priority 0 does not exist.
fn priority(number: u16) -> u16 {
    number + PRIORITY_OF_FIRST
}

fn number(priority: u16) -> u16 {
    priority - PRIORITY_OF_FIRST
}

fn class_handle(number: u16) -> Handle {
    Handle::new(ROOT.major(), number)
}

/// Returns the handle that requests use for a class's parent.
fn parent_handle(number: u16) -> Handle {
    if number == 0 { ROOT } else { class_handle(number) }
}

/// Returns the handle that the kernel reports as a class's parent.
fn parent(class: &Class) -> Handle {
    if class.parent == 0 { Handle::ROOT } else { class_handle(class.parent) }
}
