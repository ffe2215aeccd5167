//! Linux traffic control over netlink: applies a [`Tree`], determines the features of the running kernel, and gives
//! each process its own network namespace.
//!
//! | module | content |
//! | --- | --- |
//! | [`probe`] | features of the running kernel, each tested on temporary interfaces |
//! | [`namespace`] | network namespaces, connected by a hub, for processes on one machine |
//! | [`netlink`] | requests to the kernel, and its responses |
//! | [`link`] | interfaces and their addresses |
//! | [`traffic`] | queueing disciplines, classes and filters |
//!
//! The crate acts on the network namespace of the calling thread. Everything that it sets up is removed with
//! the namespace; it writes nothing elsewhere, and does not run the `tc` program. Decisions about links belong in
//! `faultline-shaper`.

mod apply;
pub mod link;
pub mod namespace;
pub mod netlink;
pub mod probe;
pub mod traffic;

use std::io;
use std::net::Ipv4Addr;

use faultline_shaper::Tree;
use netlink::Socket;
use thiserror::Error;

pub use apply::{ApplyError, Counts, TrafficCounts};

/// The reason why a traffic control operation failed.
#[derive(Debug, Error)]
pub enum TcError {
    /// The netlink socket could not be opened.
    #[error("cannot open a netlink socket: {0}")]
    Socket(io::Error),
    /// The program may not change the network, so the kernel's features cannot be tested.
    #[error("this program may not change the network: {0} (requires CAP_NET_ADMIN)")]
    NotPermitted(io::Error),
    /// The operation on the interface failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Applies exactly `tree` to the packets of `interface`: an empty tree removes everything. Returns the number of
/// changes, which is zero if the tree was already in effect.
///
/// # Errors
///
/// Fails if the interface does not exist, if the kernel rejects a request, or if another program shapes the interface.
pub fn apply(interface: &str, tree: &Tree) -> Result<usize, TcError> {
    Ok(apply::apply(&open()?, interface, tree)?)
}

/// Returns the traffic of the classes on `interface`. A class that has counted nothing has shaped nothing.
///
/// # Errors
///
/// Fails if the interface does not exist, or if the kernel rejects a request.
pub fn passed(interface: &str) -> Result<TrafficCounts, TcError> {
    Ok(apply::passed(&open()?, interface)?)
}

/// Returns the name of the interface with this address in the calling thread's network namespace.
///
/// # Errors
///
/// Fails if no interface has the address, or if the kernel rejects a request.
pub fn interface_of(address: Ipv4Addr) -> Result<String, TcError> {
    Ok(apply::interface_of(&open()?, address)?)
}

/// Makes the kernel segment data before it reaches the queues of `interface`. Otherwise, TCP data is queued,
/// delayed and lost in units of up to 64 KiB.
///
/// # Errors
///
/// Fails if the interface does not exist, or if the kernel rejects a request.
pub fn disable_segmentation_offload(interface: &str) -> Result<(), TcError> {
    Ok(apply::disable_segmentation_offload(&open()?, interface)?)
}

/// Opens a netlink socket in the calling thread's network namespace.
fn open() -> Result<Socket, TcError> {
    Socket::open().map_err(TcError::Socket)
}
