//! Features of the running kernel, determined by trying them: modules may be loaded on demand, compiled in,
//! or refused.

use std::io;
use std::net::Ipv4Addr;

use faultline_core::Span;
use faultline_shaper::Kernel;
use faultline_shaper::tree::{Delay, Prefix};
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::netlink::{Mode, Socket};
use crate::traffic::{Discipline, Handle, MatchField, Target};
use crate::{TcError, open};

/// Names of the temporary interfaces.
const SCRATCH: &str = "faultline-probe";
const SCRATCH_PEER: &str = "faultline-peer";
const SCRATCH_BRIDGE: &str = "faultline-br";
const SCRATCH_IFB: &str = "faultline-ifb";

/// A feature that a kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ability {
    /// Pairs of interfaces, which connect namespaces.
    Veth,
    /// Bridges, which connect many interfaces.
    Bridge,
    /// Rate limits.
    Htb,
    /// Queues of a given length.
    Pfifo,
    /// Filters that distinguish packets by address.
    U32,
    /// Delay, jitter and loss.
    Netem,
    /// Interfaces to which packets are redirected for shaping.
    Ifb,
    /// Redirection of incoming packets to another interface.
    Redirect,
}

/// Results of trying each ability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// One result per ability, in the order of [`Ability::ALL`], with the reason if the kernel lacks the ability.
    pub findings: Vec<(Ability, Result<(), String>)>,
}

impl Ability {
    /// All abilities.
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

    /// Features used to emulate links between existing interfaces, as in a pod, which needs neither pairs of interfaces
    /// nor a bridge.
    pub const OF_LINKS: [Ability; 6] =
        [Ability::Htb, Ability::Pfifo, Ability::U32, Ability::Netem, Ability::Ifb, Ability::Redirect];

    /// Returns the name of the kernel module.
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

    /// Returns a phrase that describes the purpose of the ability.
    pub const fn purpose(self) -> &'static str {
        match self {
            Ability::Veth => "connects the namespaces of processes",
            Ability::Bridge => "connects more than two namespaces",
            Ability::Htb => "limits bandwidth",
            Ability::Pfifo => "queues packets that wait for bandwidth",
            Ability::U32 => "distinguishes peers",
            Ability::Netem => "delays and drops packets",
            Ability::Ifb => "delays packets at the receiver",
            Ability::Redirect => "redirects incoming packets to the delaying interface",
        }
    }
}

impl Probe {
    /// Tries all abilities in the calling thread's network namespace, in which it creates and removes
    /// interfaces with the prefix `faultline-`. Requires CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// Fails if no netlink socket can be opened, or if the program lacks the permission. A missing ability is not an
    /// error.
    pub fn run() -> Result<Probe, TcError> {
        let kernel = open()?;
        let mut findings = Vec::new();
        for ability in Ability::ALL {
            findings.push((ability, attempt(&kernel, ability)));
            for name in [SCRATCH, SCRATCH_IFB, SCRATCH_BRIDGE] {
                if let Err(error) = kernel.remove_link(name) {
                    tracing::warn!(name, %error, "cannot remove an interface");
                }
            }
        }
        let is_denied = |it: &io::Error| it.kind() == io::ErrorKind::PermissionDenied;
        // Without the permission, every attempt fails, whatever the kernel supports.
        if findings.iter().all(|(_, finding)| finding.as_ref().is_err_and(is_denied))
            && let Some((_, Err(error))) = findings.pop()
        {
            return Err(TcError::NotPermitted(error));
        }
        let findings = findings.into_iter().map(|(it, finding)| (it, finding.map_err(|it| it.to_string())));
        Ok(Probe { findings: findings.collect() })
    }

    /// Returns whether the kernel has this ability.
    pub fn can(&self, ability: Ability) -> bool {
        self.findings.contains(&(ability, Ok(())))
    }

    /// Returns the features on which a [`Tree`](faultline_shaper::Tree) depends.
    pub fn kernel(&self) -> Kernel {
        let all = |abilities: &[Ability]| abilities.iter().all(|&it| self.can(it));
        Kernel {
            htb: all(&[Ability::Htb, Ability::Pfifo, Ability::U32]),
            netem: self.can(Ability::Netem),
            ifb: all(&[Ability::Ifb, Ability::Redirect]),
        }
    }

    /// Returns the abilities among `abilities` that the kernel lacks, with the reasons.
    pub fn lacks(&self, abilities: &[Ability]) -> Vec<(Ability, &str)> {
        let of_these = self.findings.iter().filter(|(ability, _)| abilities.contains(ability));
        of_these.filter_map(|(ability, finding)| Some((*ability, finding.as_ref().err()?.as_str()))).collect()
    }
}

/// Tries an ability on a new interface.
fn attempt(kernel: &Socket, ability: Ability) -> io::Result<()> {
    let root = Handle::new(1, 0);
    let add = |link, discipline| kernel.set_discipline(Mode::New, link, (Handle::ROOT, root), discipline);
    match ability {
        Ability::Veth => kernel.add_pair(SCRATCH, SCRATCH_PEER, None, None),
        Ability::Bridge => kernel.add_link("bridge", SCRATCH_BRIDGE, None),
        Ability::Ifb => kernel.add_link("ifb", SCRATCH_IFB, None),
        Ability::Htb => add(scratch(kernel)?, Discipline::Htb),
        Ability::Pfifo => add(scratch(kernel)?, Discipline::Pfifo(1)),
        Ability::Netem => add(scratch(kernel)?, Discipline::Netem(NO_DELAY)),
        Ability::U32 => {
            let link = scratch(kernel)?;
            add(link, Discipline::Htb)?;
            let class = Target::Class(Handle::new(1, 1));
            kernel.add_filter(link, root, 1, (MatchField::AtDestination, ANYWHERE), class)
        }
        Ability::Redirect => {
            let link = scratch(kernel)?;
            let place = (Handle::INGRESS, Handle::ARRIVING);
            kernel.set_discipline(Mode::New, link, place, Discipline::Ingress)?;
            let filter = (MatchField::AtSource, ANYWHERE);
            kernel.add_filter(link, Handle::ARRIVING, 1, filter, Target::Interface(link))
        }
    }
}

const ANYWHERE: Prefix = Prefix { address: Ipv4Addr::new(192, 0, 2, 0), length: 24 };
const NO_DELAY: Delay = Delay { latency: Span::ZERO, jitter: Span::ZERO, loss_ppm: 0, limit: 1000 };

/// Creates a temporary interface of any available kind.
fn scratch(kernel: &Socket) -> io::Result<Link> {
    let added = kernel.add_pair(SCRATCH, SCRATCH_PEER, None, None);
    added
        .or_else(|_| kernel.add_link("ifb", SCRATCH, None))
        .or_else(|_| kernel.add_link("dummy", SCRATCH, None))?;
    Ok(kernel.link(SCRATCH)?.expect("the interface was just added"))
}
