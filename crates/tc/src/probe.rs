//! What the running kernel can do: tried, not looked up, because modules are loaded on demand, compiled in, or refused.

use std::io;
use std::net::Ipv4Addr;

use faultline_core::Span;
use faultline_shaper::Kernel;
use faultline_shaper::tree::{Delay, Prefix};
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::netlink::{Mode, Socket};
use crate::traffic::{Discipline, Handle, Looks, Target};
use crate::{TcError, open};

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
        let kernel = open()?;
        let mut findings = Vec::new();
        for ability in Ability::ALL {
            findings.push((ability, attempt(&kernel, ability).map_err(|error| error.to_string())));
            for name in [SCRATCH, SCRATCH_IFB, SCRATCH_BRIDGE] {
                if let Err(error) = kernel.remove_link(name) {
                    tracing::warn!(name, %error, "an interface is left over");
                }
            }
        }
        Ok(Probe { findings })
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
fn attempt(kernel: &Socket, ability: Ability) -> io::Result<()> {
    let root = Handle::new(1, 0);
    let add = |link, discipline| kernel.set_discipline(Mode::New, link, (Handle::ROOT, root), discipline);
    match ability {
        Ability::Veth => kernel.add_pair(SCRATCH, SCRATCH_PEER, None),
        Ability::Bridge => kernel.add_link("bridge", SCRATCH_BRIDGE, None),
        Ability::Ifb => kernel.add_link("ifb", SCRATCH_IFB, None),
        Ability::Htb => add(scratch(kernel)?, Discipline::Htb),
        Ability::Pfifo => add(scratch(kernel)?, Discipline::Pfifo(1)),
        Ability::Netem => add(scratch(kernel)?, Discipline::Netem(NO_DELAY)),
        Ability::U32 => {
            let link = scratch(kernel)?;
            add(link, Discipline::Htb)?;
            let class = Target::Class(Handle::new(1, 1));
            kernel.add_filter(link, root, 1, (Looks::AtDestination, ANYWHERE), class)
        }
        Ability::Redirect => {
            let link = scratch(kernel)?;
            let place = (Handle::INGRESS, Handle::ARRIVING);
            kernel.set_discipline(Mode::New, link, place, Discipline::Ingress)?;
            let filter = (Looks::AtSource, ANYWHERE);
            kernel.add_filter(link, Handle::ARRIVING, 1, filter, Target::Interface(link))
        }
    }
}

const ANYWHERE: Prefix = Prefix { address: Ipv4Addr::new(192, 0, 2, 0), length: 24 };
const NO_DELAY: Delay = Delay { latency: Span::ZERO, jitter: Span::ZERO, loss_ppm: 0, limit: 1000 };

/// An interface of whichever kind there is.
fn scratch(kernel: &Socket) -> io::Result<Link> {
    let added = kernel.add_pair(SCRATCH, SCRATCH_PEER, None);
    added
        .or_else(|_| kernel.add_link("ifb", SCRATCH, None))
        .or_else(|_| kernel.add_link("dummy", SCRATCH, None))?;
    Ok(kernel.link(SCRATCH)?.expect("it was added, and nobody else knows it"))
}
