//! Network namespaces for processes on one machine: a hub with a bridge, and one namespace per process, each
//! connected to the hub by a pair of interfaces.
//!
//! The namespaces have no names. A namespace exists as long as a process or an open file refers to it: the
//! hub exists as long as its owner, and the namespace of a process as long as that process. Nothing remains
//! after they end, even after SIGKILL. Without root, all of them are within a user namespace ([`become_root`]).

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::thread;

use faultline_core::{Life, ProcessId};
use faultline_shaper::tree::Prefix;
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

use crate::netlink::Socket;

/// Name of the interface to all other processes in each process's namespace.
pub const INTERFACE: &str = "data";
/// Largest number of processes that a hub connects: the number of ports of a Linux bridge.
pub const MOST_PROCESSES: u32 = 1023;

/// Name of the bridge in the hub.
const BRIDGE: &str = "faultline";
/// All addresses are in 10.0.0.0/8. They cannot conflict with another network, because no other network is
/// visible in these namespaces.
const NETWORK: u32 = 0x0a00_0000;
const NETWORK_LENGTH: u8 = 8;
/// Number of low bits of an address, which contain the life. The bits above contain the process.
const LIFE_BITS: u32 = 10;
/// Number of consecutive lives of a process that have different addresses. The previous life may still be
/// ending when the next one starts.
const LIVES: u32 = 1000;
/// Low bits of an address that is the same in every life. No life has these bits.
const STABLE: u32 = (1 << LIFE_BITS) - 1;
/// Address of the hub. It is at the end of the range, and no process uses it.
const HUB: Ipv4Addr = Ipv4Addr::new(10, 255, 255, 254);
/// Hardware address of the bridge. Without an address of its own, a bridge uses the smallest address of its
/// ports. That address may change when a port is added, and processes that resolved it earlier then lose
/// contact for a few seconds.
const HUB_HARDWARE: [u8; 6] = [0x02, 0xfa, 0x17, 0, 0, 1];
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The reason why a namespace could not be created or entered.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// The thread that creates the namespace did not start.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The namespace could not be created.
    #[error("cannot create a network namespace: {0} (requires CAP_SYS_ADMIN; run as root)")]
    Unshare(nix::Error),
    /// The user namespace could not be created or set up.
    #[error("cannot create a user namespace: {0}")]
    User(io::Error),
    /// The namespace could not be opened.
    #[error("cannot open {OWN_NAMESPACE}: {0}")]
    Open(io::Error),
    /// The calling thread could not enter the namespace.
    #[error("cannot enter a network namespace: {0}")]
    Enter(nix::Error),
    /// An operation in the namespace failed.
    #[error("cannot {what}: {source}")]
    Network {
        /// Description of the operation.
        what: &'static str,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The hub's port could not be opened.
    #[error("cannot listen in the network namespace of the hub: {0}")]
    Listen(io::Error),
}

/// Returns the user and the group of this process.
fn ids() -> io::Result<(u32, u32)> {
    fs::metadata("/proc/self").map(|it| (it.uid(), it.gid()))
}

/// Returns whether the user of this process is root.
pub fn is_root() -> bool {
    ids().is_ok_and(|(user, _)| user == 0)
}

/// Moves this process to a user namespace, in which its user is root, and to a network namespace that belongs to it, so
/// that it may create further ones. Does nothing if the user is root already. The process must not have started
/// threads. Sockets that are open remain in the network of the machine; those that are opened later are not.
///
/// # Errors
///
/// Fails if the kernel does not permit user namespaces.
pub fn become_root() -> Result<(), NamespaceError> {
    let (user, group) = ids().map_err(NamespaceError::User)?;
    if user == 0 {
        return Ok(());
    }
    let moved = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
    let write = |name, text: String| fs::write(format!("/proc/self/{name}"), text);
    // A group may be mapped only once groups cannot be dropped, since a group may have fewer rights than others.
    let set_up = moved
        .and_then(|()| write("setgroups", "deny".to_owned()))
        .and_then(|()| write("uid_map", format!("0 {user} 1")))
        .and_then(|()| write("gid_map", format!("0 {group} 1")));
    set_up.map_err(NamespaceError::User)
}

/// The namespace that connects all others.
#[derive(Debug)]
pub struct Hub {
    namespace: File,
    /// The namespace in which the hub was created.
    home: File,
}

impl Hub {
    /// Creates a hub, and listens there for its processes, on any free port.
    ///
    /// # Errors
    ///
    /// Fails if the namespace cannot be created or set up.
    pub fn new() -> Result<(Hub, TcpListener), NamespaceError> {
        let home = File::open(OWN_NAMESPACE).map_err(NamespaceError::Open)?;
        let (namespace, listener) = isolated(|| {
            let namespace = File::open(OWN_NAMESPACE).map_err(NamespaceError::Open)?;
            set_up_hub()?;
            let listener = TcpListener::bind(SocketAddr::from((HUB, 0))).map_err(NamespaceError::Listen)?;
            Ok((namespace, listener))
        })??;
        Ok((Hub { namespace, home }, listener))
    }

    /// Runs `work` in the hub, on the calling thread, which then moves to the namespace in which the hub was created. A
    /// process that `work` starts is in the hub.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot enter the hub.
    ///
    /// # Panics
    ///
    /// Panics if the thread cannot enter the namespace in which the hub was created.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T, NamespaceError> {
        setns(&self.namespace, CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Enter)?;
        let result = work();
        setns(&self.home, CloneFlags::CLONE_NEWNET).expect("a thread may return to its own namespace");
        Ok(result)
    }
}

/// Moves the calling thread from a hub into a new namespace with an interface to the hub. If `is_stable`, the interface
/// also has an address that is the same in every life of the process ([`stable_address_of`]), and its connections come
/// from that address. The other threads of the process stay in the hub, except those that the calling thread starts
/// later. A process must therefore call this function before it starts other threads.
///
/// # Errors
///
/// Fails if the namespace cannot be created or set up.
///
/// # Panics
///
/// Panics if `process` is not below [`MOST_PROCESSES`].
pub fn leave_hub(process: ProcessId, life: Life, is_stable: bool) -> Result<(), NamespaceError> {
    assert!(process.0 < MOST_PROCESSES, "the hub has no port for {process}");
    let failed = |what| move |source| NamespaceError::Network { what, source };
    let hub = Socket::open().map_err(failed("open a netlink socket in the hub"))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Unshare)?;
    let namespace = File::open(OWN_NAMESPACE).map_err(NamespaceError::Open)?;
    let name = format!("n{}.{}", process.0, life.0 % LIVES);
    // With a new hardware address, a stable address would be unreachable until others have looked for it again.
    let [_, _, high, low] = process.0.to_be_bytes();
    let hardware = is_stable.then_some([0x02, 0xfa, 0x17, 1, high, low]);
    hub.add_pair(&name, INTERFACE, Some(&namespace), hardware).map_err(failed("add a pair of interfaces"))?;
    hub.join(&name, BRIDGE).map_err(failed("join the bridge"))?;
    hub.bring_up(&name).map_err(failed("bring up the interface to a process"))?;
    let own = Socket::open().map_err(failed("open a netlink socket"))?;
    own.bring_up("lo").map_err(failed("bring up the loopback interface"))?;
    // Connections come from the address that is added first. Some programs tell others that this is where they listen.
    if is_stable {
        own.add_address(INTERFACE, stable_address_of(process), NETWORK_LENGTH)
            .map_err(failed("set the stable address"))?;
    }
    own.add_address(INTERFACE, address_of(process, life), NETWORK_LENGTH)
        .map_err(failed("set the address"))?;
    if let Some(link) = own.link(INTERFACE).map_err(failed("read the interface"))? {
        // Otherwise, up to 64 KiB would be queued and lost as one packet.
        own.disable_segmentation_offload(link).map_err(failed("turn off segmentation offload"))?;
    }
    own.bring_up(INTERFACE).map_err(failed("bring up the interface to the hub"))
}

/// Returns the prefix that contains the addresses of all lives of a process.
pub fn prefix_of(process: ProcessId) -> Prefix {
    Prefix { address: Ipv4Addr::from(NETWORK | process.0 << LIFE_BITS), length: 32 - LIFE_BITS as u8 }
}

/// Returns the address that a process has in every life, if it has one.
pub fn stable_address_of(process: ProcessId) -> Ipv4Addr {
    Ipv4Addr::from(NETWORK | process.0 << LIFE_BITS | STABLE)
}

/// Runs `work` on a new thread, in a new network namespace. The namespace is removed afterwards, unless `work` leaves a
/// reference to it.
///
/// # Errors
///
/// Fails if the thread cannot be started, or if the namespace cannot be created.
///
/// # Panics
///
/// Panics if `work` does.
pub fn isolated<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Unshare)?;
            Ok(work())
        });
        let result = thread.map_err(NamespaceError::Thread)?.join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn set_up_hub() -> Result<(), NamespaceError> {
    let failed = |what| move |source| NamespaceError::Network { what, source };
    let kernel = Socket::open().map_err(failed("open a netlink socket in the hub"))?;
    kernel.bring_up("lo").map_err(failed("bring up the loopback interface of the hub"))?;
    kernel.add_link("bridge", BRIDGE, Some(HUB_HARDWARE)).map_err(failed("add a bridge"))?;
    kernel.add_address(BRIDGE, HUB, NETWORK_LENGTH).map_err(failed("set the hub's address"))?;
    kernel.bring_up(BRIDGE).map_err(failed("bring up the bridge"))
}

fn address_of(process: ProcessId, life: Life) -> Ipv4Addr {
    Ipv4Addr::from(NETWORK | process.0 << LIFE_BITS | (1 + life.0 % LIVES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_life_has_its_own_address() {
        let mut seen = std::collections::BTreeSet::new();
        for process in [0, 1, 77, MOST_PROCESSES - 1].map(ProcessId) {
            let Prefix { address, length } = prefix_of(process);
            assert!(seen.insert(stable_address_of(process)));
            for life in (0..LIVES).map(Life) {
                let own = address_of(process, life);
                assert_eq!(u32::from(own) >> (32 - length), u32::from(address) >> (32 - length), "{own}");
                assert!(seen.insert(own) && own != HUB, "{own} is used twice");
            }
        }
    }
}
