//! What the running kernel can do: tried, not looked up, because modules are loaded on demand, compiled in, or refused.

use faultline_shaper::Kernel;
use faultline_shaper::tree::Prefix;
use nlink::netlink::link::{BridgeLink, DummyLink, IfbLink, VethLink};
use nlink::netlink::tc::{HtbQdiscConfig, IngressConfig, NetemConfig, PfifoConfig};
use nlink::{Connection, Route, TcHandle};
use serde::{Deserialize, Serialize};

use crate::wire::{self, Looks};
use crate::{TcError, ask};

/// The interface on which things are tried, and thrown away.
const SCRATCH: &str = "faultline-probe";
const SCRATCH_PEER: &str = "faultline-peer";
const SCRATCH_BRIDGE: &str = "faultline-br";
const SCRATCH_IFB: &str = "faultline-ifb";

/// Something that a kernel can do, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ability {
    /// Pairs of interfaces that join namespaces.
    Veth,
    /// Joining many interfaces.
    Bridge,
    /// Rates.
    Htb,
    /// Queues of a given length.
    Pfifo,
    /// Telling packets apart by address.
    U32,
    /// Delay, jitter and loss.
    Netem,
    /// An interface to send packets through in order to shape them.
    Ifb,
    /// Sending what arrives through another interface.
    Redirect,
}

/// What was tried, and why it did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// In the order of [`Ability::ALL`].
    pub findings: Vec<(Ability, Result<(), String>)>,
}

impl Ability {
    /// All.
    pub const ALL: [Ability; 8] = [
        Ability::Veth,
        Ability::Bridge,
        Ability::Htb,
        Ability::Pfifo,
        Ability::U32,
        Ability::Netem,
        Ability::Ifb,
        Ability::Redirect,
    ];

    /// What links are made of where the interfaces are there already: a pod needs no pairs of them, and no bridge.
    pub const OF_LINKS: [Ability; 6] =
        [Ability::Htb, Ability::Pfifo, Ability::U32, Ability::Netem, Ability::Ifb, Ability::Redirect];

    /// The kernel's names for it: its modules.
    pub const fn module(self) -> &'static str {
        match self {
            Ability::Veth => "veth",
            Ability::Bridge => "bridge",
            Ability::Htb => "sch_htb",
            Ability::Pfifo => "sch_fifo",
            Ability::U32 => "cls_u32",
            Ability::Netem => "sch_netem",
            Ability::Ifb => "ifb",
            Ability::Redirect => "act_mirred",
        }
    }

    /// What it is good for.
    pub const fn purpose(self) -> &'static str {
        match self {
            Ability::Veth => "joins the namespaces of processes",
            Ability::Bridge => "joins more than two of them",
            Ability::Htb => "limits bandwidth",
            Ability::Pfifo => "holds what waits for bandwidth",
            Ability::U32 => "tells peers apart",
            Ability::Netem => "delays and loses packets",
            Ability::Ifb => "delays packets where they arrive",
            Ability::Redirect => "sends what arrives to where it is delayed",
        }
    }
}

impl Probe {
    /// Tries everything in the calling thread's network namespace, where interfaces whose names begin with `faultline-`
    /// come and go. Needs CAP_NET_ADMIN.
    pub fn run() -> Result<Probe, TcError> {
        ask(async |kernel| {
            let mut findings = Vec::new();
            for ability in Ability::ALL {
                let finding = attempt(&kernel, ability).await.map_err(|error| error.to_string());
                findings.push((ability, finding));
                for name in [SCRATCH, SCRATCH_IFB, SCRATCH_BRIDGE] {
                    if let Err(error) = kernel.del_link_if_exists(name).await {
                        tracing::warn!(name, %error, "an interface is left over");
                    }
                }
            }
            Ok(Probe { findings })
        })
    }

    /// Whether the kernel can do this.
    pub fn can(&self, ability: Ability) -> bool {
        self.findings.contains(&(ability, Ok(())))
    }

    /// What of this a [`Tree`] depends on.
    pub fn kernel(&self) -> Kernel {
        let all = |abilities: &[Ability]| abilities.iter().all(|&it| self.can(it));
        Kernel {
            htb: all(&[Ability::Htb, Ability::Pfifo, Ability::U32]),
            netem: self.can(Ability::Netem),
            ifb: all(&[Ability::Ifb, Ability::Redirect]),
        }
    }

    /// What is missing of `abilities`, with the reasons.
    pub fn lacks(&self, abilities: &[Ability]) -> Vec<(Ability, &str)> {
        let of_these = self.findings.iter().filter(|(ability, _)| abilities.contains(ability));
        of_these.filter_map(|(ability, finding)| Some((*ability, finding.as_ref().err()?.as_str()))).collect()
    }
}

/// Tries one thing on a new interface.
async fn attempt(kernel: &Connection<Route>, ability: Ability) -> nlink::netlink::Result<()> {
    match ability {
        Ability::Veth => kernel.add_link(VethLink::new(SCRATCH, SCRATCH_PEER)).await,
        Ability::Bridge => kernel.add_link(BridgeLink::new(SCRATCH_BRIDGE)).await,
        Ability::Ifb => kernel.add_link(IfbLink::new(SCRATCH_IFB)).await,
        Ability::Htb => {
            scratch(kernel).await?;
            kernel.add_qdisc(SCRATCH, HtbQdiscConfig::new().build()).await
        }
        Ability::Pfifo => {
            scratch(kernel).await?;
            kernel.add_qdisc(SCRATCH, PfifoConfig::new().build()).await
        }
        Ability::Netem => {
            scratch(kernel).await?;
            kernel.add_qdisc(SCRATCH, NetemConfig::new().build()).await
        }
        Ability::U32 => {
            scratch(kernel).await?;
            kernel.add_qdisc(SCRATCH, HtbQdiscConfig::new().build()).await?;
            let root = TcHandle::major_only(1);
            let filter = wire::into_class(Looks::AtDestination, ANYWHERE, 1, TcHandle::new(1, 1));
            kernel.add_filter(SCRATCH, root, filter).await
        }
        Ability::Redirect => {
            scratch(kernel).await?;
            kernel.add_qdisc(SCRATCH, IngressConfig::new()).await?;
            let index = kernel.get_link_by_name(SCRATCH).await?.map_or(0, |link| link.ifindex());
            let filter = wire::into_interface(Looks::AtSource, ANYWHERE, 1, index);
            kernel.add_filter(SCRATCH, TcHandle::new(0xffff, 0), filter).await
        }
    }
}

const ANYWHERE: Prefix = Prefix { address: std::net::Ipv4Addr::new(192, 0, 2, 0), length: 24 };

/// An interface of whichever kind there is.
async fn scratch(kernel: &Connection<Route>) -> nlink::netlink::Result<()> {
    match kernel.add_link(VethLink::new(SCRATCH, SCRATCH_PEER)).await {
        Ok(()) => Ok(()),
        Err(_) => match kernel.add_link(IfbLink::new(SCRATCH)).await {
            Ok(()) => Ok(()),
            Err(_) => kernel.add_link(DummyLink::new(SCRATCH)).await,
        },
    }
}
