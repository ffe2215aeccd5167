//! Makes what a kernel does equal to a [`Tree`], in place: what is as it should be is not touched, so that a change of one
//! class disturbs no other, and whoever comes after a restart finds what is there and goes on with it.
//!
//! Everything of ours is known by its handle or its name. What someone else has put on the interface is refused, never
//! replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use faultline_core::{ClusterId, Span};
use faultline_shaper::Tree;
use faultline_shaper::tree::{Class, Delay, Direction, Filter, Leaf, Prefix};
use nlink::netlink::link::IfbLink;
use nlink::netlink::psched::tc_calc_xmittime;
use nlink::netlink::tc::{HtbClassConfig, HtbQdiscConfig, IngressConfig, NetemConfig, PfifoConfig};
use nlink::netlink::tc_options::QdiscOptions;
use nlink::{Bytes, Connection, EthProto, FilterPriority, Packets, Percent, Rate, Route, TcHandle};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::wire::{self, HtbClass, Looks};

/// The interface through which arriving packets are sent to be shaped.
const ARRIVING: &str = "faultline-in";
/// The root of every tree of ours.
const ROOT: TcHandle = TcHandle::major_only(0xfa17);
/// The queue at the end of class 0; that of another one is further on by the class.
const FIRST_LEAF: u16 = 0x1000;
/// Bytes that a class may send before another one of the same parent has its turn: two full packets.
const QUANTUM: u32 = 3028;
/// Bytes per second of a queue with a delay: at such a rate a packet takes no time, and with any rate the kernel keeps
/// packets in order, which it does not do otherwise when there is jitter.
const IN_ORDER: u64 = 12_500_000_000;
/// The most packets that a class may burst, in bytes.
const PRIORITY_OF_FIRST: u16 = 1;

/// Why a tree is not in force.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The interface is not there.
    #[error("there is no network interface {0}")]
    Interface(String),
    /// No interface has this address.
    #[error("no network interface has the address {0}")]
    Address(Ipv4Addr),
    /// The interface has a queueing discipline of someone else's.
    #[error(
        "{interface} has a queueing discipline of another program's ({kind}): remove it with `tc qdisc del dev {interface} {at}`"
    )]
    Occupied {
        /// Which.
        interface: String,
        /// Of which kind.
        kind: String,
        /// Where, in tc's words.
        at: &'static str,
    },
    /// Something that the kernel was told to do.
    #[error("cannot {what} on {interface}: {source}")]
    Kernel {
        /// What.
        what: &'static str,
        /// Where.
        interface: String,
        /// Why.
        source: nlink::netlink::Error,
    },
}

/// Packets that a class has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// That passed.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// That were lost, by intention or because its queue was full.
    pub drops: u64,
}

/// What passed, by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// To each cluster.
    pub leaving: BTreeMap<ClusterId, Counts>,
    /// From each cluster.
    pub arriving: BTreeMap<ClusterId, Counts>,
}

/// An interface, and what an error says of it.
struct Interface<'a> {
    kernel: &'a Connection<Route>,
    name: &'a str,
    index: u32,
}

/// Makes the kernel do with the packets of `interface` what `tree` says; returns how many things had to be changed.
pub(crate) async fn apply(
    kernel: &Connection<Route>,
    interface: &str,
    tree: &Tree,
) -> Result<usize, ApplyError> {
    let outer = find(kernel, interface).await?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    let mut changes = outer.shape(&tree.leaving, Looks::AtDestination).await?;
    let there = find(kernel, ARRIVING).await?;
    if tree.arriving.is_empty() {
        changes += outer.listen(&BTreeMap::new(), None).await?;
        if there.is_some() {
            kernel.del_link(ARRIVING).await.map_err(outer.failed("remove the interface for what arrives"))?;
            changes += 1;
        }
        return Ok(changes);
    }
    let inner = match there {
        Some(inner) => inner,
        None => {
            // What still points to an interface of that name points nowhere.
            changes += outer.listen(&BTreeMap::new(), None).await? + 1;
            let failed = |source| outer.failed("add an interface for what arrives")(source);
            kernel.add_link(IfbLink::new(ARRIVING)).await.map_err(failed)?;
            kernel.set_link_up(ARRIVING).await.map_err(failed)?;
            find(kernel, ARRIVING).await?.ok_or_else(|| ApplyError::Interface(ARRIVING.to_owned()))?
        }
    };
    changes += inner.shape(&tree.arriving, Looks::AtSource).await?;
    changes += outer.listen(&tree.arriving.filters, Some(inner.index)).await?;
    Ok(changes)
}

/// What has passed through the classes on `interface`.
pub(crate) async fn passed(kernel: &Connection<Route>, interface: &str) -> Result<Passed, ApplyError> {
    let outer = find(kernel, interface).await?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    let leaving = outer.passed().await?;
    let arriving = match find(kernel, ARRIVING).await? {
        Some(inner) => inner.passed().await?,
        None => BTreeMap::new(),
    };
    Ok(Passed { leaving, arriving })
}

/// The interface that has an address.
pub(crate) async fn interface_of(
    kernel: &Connection<Route>,
    address: Ipv4Addr,
) -> Result<String, ApplyError> {
    let failed = |source| ApplyError::Kernel { what: "look for", interface: address.to_string(), source };
    let addresses = kernel.get_addresses().await.map_err(failed)?;
    let has_it = addresses.iter().find(|it| it.primary_address() == Some(&IpAddr::V4(address)));
    let index = has_it.ok_or(ApplyError::Address(address))?.ifindex();
    let links = kernel.get_links().await.map_err(failed)?;
    let named = links.iter().find(|it| it.ifindex() == index).and_then(|it| it.name());
    named.map(str::to_owned).ok_or(ApplyError::Address(address))
}

/// Has packets cut to their size before they come to the queues of `interface`: otherwise 64 KiB are queued, delayed and
/// lost as one.
pub(crate) async fn cut_to_size(kernel: &Connection<Route>, interface: &str) -> Result<(), ApplyError> {
    let found = find(kernel, interface).await?.ok_or_else(|| ApplyError::Interface(interface.to_owned()))?;
    let set = kernel.set_link_gso_max_segs_by_index(found.index, 1).await;
    set.map_err(found.failed("turn off segmentation behind the queues"))
}

async fn find<'a>(kernel: &'a Connection<Route>, name: &'a str) -> Result<Option<Interface<'a>>, ApplyError> {
    let link = kernel.get_link_by_name(name).await.map_err(|source| ApplyError::Kernel {
        what: "look",
        interface: name.to_owned(),
        source,
    })?;
    Ok(link.map(|link| Interface { kernel, name, index: link.ifindex() }))
}

impl Interface<'_> {
    fn failed(&self, what: &'static str) -> impl Fn(nlink::netlink::Error) -> ApplyError + use<> {
        let interface = self.name.to_owned();
        move |source| ApplyError::Kernel { what, interface: interface.clone(), source }
    }

    /// Classes, queues and filters of what leaves through this interface.
    async fn shape(&self, wanted: &Direction, looks: Looks) -> Result<usize, ApplyError> {
        if wanted.is_empty() {
            return self.unshape().await;
        }
        let mut changes = 0;
        if !self.is_ours().await? {
            let failed = self.failed("add HTB");
            let htb = HtbQdiscConfig::new().default_class(0).build();
            let added = self.kernel.add_qdisc_by_index_full(self.index, TcHandle::ROOT, Some(ROOT), htb);
            added.await.map_err(failed)?;
            changes += 1;
        }
        let there = self.classes().await?;
        // A class cannot be given another parent.
        let parent = |number: u16, class: &Class| (number, parent(class));
        let kept: BTreeSet<_> = wanted.classes.iter().map(|(&number, class)| parent(number, class)).collect();
        let gone: BTreeSet<u16> = there
            .iter()
            .filter(|(number, (up, _))| !kept.contains(&(**number, *up)))
            .map(|(&n, _)| n)
            .collect();
        changes += self
            .remove_filters(ROOT, looks, |priority, prefix, class| {
                let as_wanted = wanted.filters.get(&number(priority));
                as_wanted == Some(&Filter { prefix, class: class.minor() }) && !gone.contains(&class.minor())
            })
            .await?;
        // Those further down have greater numbers.
        for &number in gone.iter().rev() {
            let removed = self.kernel.del_class_by_index(self.index, parent_handle(0), class_handle(number));
            removed.await.map_err(self.failed("remove a class"))?;
            changes += 1;
        }
        for (&number, class) in &wanted.classes {
            let is = there.get(&number).filter(|_| !gone.contains(&number)).map(|(_, is)| is);
            changes += self.set_class(number, class, is).await?;
        }
        changes += self.set_leaves(wanted).await?;
        let there = self.filters(ROOT, looks).await?;
        for (&number, &Filter { prefix, class }) in &wanted.filters {
            if !there.contains_key(&priority(number)) {
                let filter = wire::into_class(looks, prefix, priority(number), class_handle(class));
                let added = self.kernel.add_filter_by_index(self.index, ROOT, filter);
                added.await.map_err(self.failed("add a filter"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Sends what arrives from the peers through the interface `to`, and nothing else.
    async fn listen(&self, wanted: &BTreeMap<u16, Filter>, to: Option<u32>) -> Result<usize, ApplyError> {
        let qdiscs =
            self.kernel.get_qdiscs_by_index(self.index).await.map_err(self.failed("read what is there"))?;
        let ingress = qdiscs.iter().find(|it| it.parent() == TcHandle::INGRESS);
        if let Some(other) = ingress.filter(|it| it.kind() != Some("ingress")) {
            // Another program's, which does no harm when nothing is to be done here.
            return if to.is_none() { Ok(0) } else { Err(self.occupied(other.kind(), "ingress")) };
        }
        let Some(to) = to else {
            // An ingress queueing discipline has no handle of its own: it is ours if its filters are.
            let ours = ingress.is_some() && !self.filters(INGRESS, Looks::AtSource).await?.is_empty();
            if ours {
                let removed = self.kernel.del_ingress_by_index(self.index);
                removed.await.map_err(self.failed("stop looking at what arrives"))?;
            }
            return Ok(usize::from(ours));
        };
        let mut changes = 0;
        if ingress.is_none() {
            let added = self.kernel.add_qdisc_by_index(self.index, IngressConfig::new());
            added.await.map_err(self.failed("look at what arrives"))?;
            changes += 1;
        }
        changes += self
            .remove_filters(INGRESS, Looks::AtSource, |priority, prefix, _| {
                wanted.get(&number(priority)).is_some_and(|filter| filter.prefix == prefix)
            })
            .await?;
        let there = self.filters(INGRESS, Looks::AtSource).await?;
        for (&number, &Filter { prefix, .. }) in wanted {
            if !there.contains_key(&priority(number)) {
                let filter = wire::into_interface(Looks::AtSource, prefix, priority(number), to);
                let added = self.kernel.add_filter_by_index(self.index, INGRESS, filter);
                added.await.map_err(self.failed("send what arrives to be shaped"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Removes our tree, if there is one.
    async fn unshape(&self) -> Result<usize, ApplyError> {
        let is_ours = match self.is_ours().await {
            // Someone else's does no harm when nothing is to be done.
            Err(ApplyError::Occupied { .. }) => false,
            other => other?,
        };
        if is_ours {
            let removed = self.kernel.del_qdisc_by_index_full(self.index, TcHandle::ROOT, Some(ROOT));
            removed.await.map_err(self.failed("remove HTB"))?;
        }
        Ok(usize::from(is_ours))
    }

    /// Whether a tree of ours is there; `false` when there is nothing but what the kernel puts there by itself.
    async fn is_ours(&self) -> Result<bool, ApplyError> {
        let qdiscs =
            self.kernel.get_qdiscs_by_index(self.index).await.map_err(self.failed("read what is there"))?;
        match qdiscs.iter().find(|it| it.parent().is_root()) {
            None => Ok(false),
            Some(root) if root.handle_raw() == 0 => Ok(false),
            Some(root) if root.handle() == ROOT && root.kind() == Some("htb") => Ok(true),
            Some(other) => Err(self.occupied(other.kind(), "root")),
        }
    }

    fn occupied(&self, kind: Option<&str>, at: &'static str) -> ApplyError {
        let kind = kind.unwrap_or("of no name").to_owned();
        ApplyError::Occupied { interface: self.name.to_owned(), kind, at }
    }

    /// The classes that are there: their parents, and what they are like.
    async fn classes(&self) -> Result<BTreeMap<u16, (TcHandle, HtbClass)>, ApplyError> {
        let classes =
            self.kernel.get_classes_by_index(self.index).await.map_err(self.failed("read the classes"))?;
        let ours = classes.iter().filter(|it| it.handle().major() == ROOT.major());
        let read = ours.filter_map(|it| {
            let class = wire::htb_class(it.raw_options()?)?;
            Some((it.handle().minor(), (it.parent(), class)))
        });
        Ok(read.collect())
    }

    async fn set_class(
        &self,
        number: u16,
        class: &Class,
        is: Option<&HtbClass>,
    ) -> Result<usize, ApplyError> {
        let wanted = HtbClass {
            rate: class.rate,
            ceiling: class.ceiling,
            burst: tc_calc_xmittime(class.rate, class.burst),
            quantum: QUANTUM,
        };
        // The kernel does not keep the quantum of a class that has others below it.
        let equal = |is: &HtbClass| match class.leaf {
            Leaf::Classes => HtbClass { quantum: QUANTUM, ..*is } == wanted,
            _ => *is == wanted,
        };
        if is.is_some_and(equal) {
            return Ok(0);
        }
        let config = HtbClassConfig::new(Rate::bytes_per_sec(class.rate))
            .ceil(Rate::bytes_per_sec(class.ceiling))
            .burst(Bytes::new(class.burst.into()))
            .cburst(Bytes::new(class.burst.into()))
            .quantum(QUANTUM)
            .build();
        let (up, handle) = (parent_handle(class.parent), class_handle(number));
        let set = match is {
            Some(_) => self.kernel.change_class_by_index(self.index, up, handle, config).await,
            None => self.kernel.add_class_by_index(self.index, up, handle, config).await,
        };
        set.map_err(self.failed("set the rate of a class"))?;
        Ok(1)
    }

    /// The queues at the ends of the classes.
    async fn set_leaves(&self, wanted: &Direction) -> Result<usize, ApplyError> {
        let qdiscs =
            self.kernel.get_qdiscs_by_index(self.index).await.map_err(self.failed("read the queues"))?;
        let mut changes = 0;
        for (&number, class) in &wanted.classes {
            let (up, handle) = (class_handle(number), TcHandle::major_only(FIRST_LEAF + number));
            let kind = match class.leaf {
                Leaf::Classes => continue,
                Leaf::Queue(_) => "pfifo",
                Leaf::Delay(_) => "netem",
            };
            // The kernel gives a class a queue of its own, which has no handle that we would give.
            let is = qdiscs.iter().find(|it| it.parent() == up && it.handle() == handle);
            let same_kind = is.filter(|it| it.kind() == Some(kind));
            let equal = match (class.leaf, same_kind) {
                (_, None) | (Leaf::Classes, _) => false,
                (Leaf::Queue(limit), Some(is)) => {
                    is.raw_options().and_then(|it| wire::word(it, 0)) == Some(limit)
                }
                (Leaf::Delay(delay), Some(is)) => {
                    matches!(is.options(), Some(QdiscOptions::Netem(netem)) if delay_of(&netem) == delay)
                }
            };
            if equal {
                continue;
            }
            if is.is_some() && same_kind.is_none() {
                let removed = self.kernel.del_qdisc_by_index_full(self.index, up, Some(handle));
                removed.await.map_err(self.failed("remove a queue"))?;
            }
            let (kernel, index, to_change) = (self.kernel, self.index, same_kind.is_some());
            let set = match class.leaf {
                Leaf::Queue(limit) => {
                    let fifo = PfifoConfig::new().limit(Packets::new(limit)).build();
                    if to_change {
                        kernel.change_qdisc_by_index_full(index, up, Some(handle), fifo).await
                    } else {
                        kernel.add_qdisc_by_index_full(index, up, Some(handle), fifo).await
                    }
                }
                Leaf::Delay(delay) => {
                    let netem = netem(delay);
                    if to_change {
                        kernel.change_qdisc_by_index_full(index, up, Some(handle), netem).await
                    } else {
                        kernel.add_qdisc_by_index_full(index, up, Some(handle), netem).await
                    }
                }
                Leaf::Classes => unreachable!("has no queue"),
            };
            set.map_err(self.failed("set a queue"))?;
            changes += 1;
        }
        Ok(changes)
    }

    /// The filters by address at `parent`, by priority.
    async fn filters(
        &self,
        parent: TcHandle,
        looks: Looks,
    ) -> Result<BTreeMap<u16, (Prefix, TcHandle)>, ApplyError> {
        let filters = self.kernel.get_filters_by_parent_index(self.index, parent).await;
        let filters = filters.map_err(self.failed("read the filters"))?;
        let read = filters.iter().filter(|it| it.kind() == Some("u32")).filter_map(|it| {
            let filter = wire::filter(it.raw_options()?, looks)?;
            Some((it.filter_priority()?.as_u16(), filter))
        });
        Ok(read.collect())
    }

    /// Removes the filters at `parent` that are not to be kept.
    async fn remove_filters(
        &self,
        parent: TcHandle,
        looks: Looks,
        keep: impl Fn(u16, Prefix, TcHandle) -> bool,
    ) -> Result<usize, ApplyError> {
        let mut changes = 0;
        for (priority, (prefix, class)) in self.filters(parent, looks).await? {
            if !keep(priority, prefix, class) {
                let which = FilterPriority::new(priority);
                let removed = self.kernel.del_filter_by_index(self.index, parent, EthProto::IP, which);
                removed.await.map_err(self.failed("remove a filter"))?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// What has passed, by cluster.
    async fn passed(&self) -> Result<BTreeMap<ClusterId, Counts>, ApplyError> {
        let qdiscs =
            self.kernel.get_qdiscs_by_index(self.index).await.map_err(self.failed("read the queues"))?;
        let of_cluster = qdiscs.iter().filter(|it| it.parent().major() == ROOT.major()).filter_map(|it| {
            let counts = Counts { packets: it.packets(), bytes: it.bytes(), drops: it.drops().into() };
            Some((Direction::cluster_of(it.parent().minor())?, counts))
        });
        Ok(of_cluster.collect())
    }
}

/// Where filters of what arrives are.
const INGRESS: TcHandle = TcHandle::new(0xffff, 0);

/// A peer's filter is told from others by its priority, of which there is none that is 0.
fn priority(number: u16) -> u16 {
    number + PRIORITY_OF_FIRST
}

fn number(priority: u16) -> u16 {
    priority - PRIORITY_OF_FIRST
}

fn class_handle(number: u16) -> TcHandle {
    TcHandle::new(ROOT.major(), number)
}

/// How a class is told who its parent is.
fn parent_handle(number: u16) -> TcHandle {
    if number == 0 { ROOT } else { class_handle(number) }
}

/// What the kernel says a class's parent is.
fn parent(class: &Class) -> TcHandle {
    if class.parent == 0 { TcHandle::ROOT } else { class_handle(class.parent) }
}

fn netem(Delay { latency, jitter, loss_ppm, limit }: Delay) -> NetemConfig {
    let netem = NetemConfig::new()
        .delay(Duration::from_nanos(latency.0))
        .jitter(Duration::from_nanos(jitter.0))
        .loss(Percent::from_fraction(f64::from(loss_ppm) / 1e6))
        .limit(Packets::new(limit));
    if jitter > Span::ZERO { netem.rate(Rate::bytes_per_sec(IN_ORDER)) } else { netem }.build()
}

/// What the kernel says of a queue with a delay.
fn delay_of(netem: &nlink::netlink::tc_options::NetemOptions) -> Delay {
    let span = |duration: Option<Duration>| duration.map_or(Span::ZERO, Span::from);
    Delay {
        latency: span(netem.delay()),
        jitter: span(netem.jitter()),
        loss_ppm: (netem.loss().unwrap_or(0.0) * 1e4).round() as u32,
        limit: netem.limit().unwrap_or(0),
    }
}
