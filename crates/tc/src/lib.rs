//! Linux traffic control over netlink: applies a [`Tree`], determines the features of the running kernel, and gives
//! each process its own network namespace.
//!
//! | module | holds |
//! | --- | --- |
//! | [`probe`] | features of this kernel, each tried on temporary interfaces |
//! | [`namespace`] | a hub and the namespaces around it, for processes on one machine |
//! | [`netlink`] | how the kernel is asked |
//! | [`link`] | interfaces and their addresses |
//! | [`traffic`] | queueing disciplines, classes and filters |
//!
//! Acts on the network namespace of the calling thread. Everything it sets up ends with the namespace; nothing is
//! written elsewhere, and no `tc` program is called. Decisions about links belong in `faultline-shaper`.

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

pub use apply::{ApplyError, Counts, Passed};

/// Why a traffic control operation failed.
#[derive(Debug, Error)]
pub enum TcError {
    /// The netlink socket could not be opened.
    #[error("cannot talk to the kernel: {0}")]
    Socket(io::Error),
    /// The kernel refused the operation.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Applies exactly `tree` to the packets of `interface`: an empty tree removes everything. Returns the number of
/// changes, which is zero if everything was already in force.
///
/// # Errors
///
/// Fails if the kernel refuses, or if another program uses the interface.
pub fn apply(interface: &str, tree: &Tree) -> Result<usize, TcError> {
    Ok(apply::apply(&open()?, interface, tree)?)
}

/// Returns the traffic of the tree's classes on `interface`. A class without traffic shapes nothing.
///
/// # Errors
///
/// Fails if the interface does not exist, or the kernel refuses.
pub fn passed(interface: &str) -> Result<Passed, TcError> {
    Ok(apply::passed(&open()?, interface)?)
}

/// Returns the interface with this address in the calling thread's network namespace.
///
/// # Errors
///
/// Fails if no interface has the address.
pub fn interface_of(address: Ipv4Addr) -> Result<String, TcError> {
    Ok(apply::interface_of(&open()?, address)?)
}

/// Makes the kernel segment packets before they reach the queues of `interface`. Otherwise TCP's data is queued,
/// delayed and lost in units of 64 KiB.
///
/// # Errors
///
/// Fails if the interface does not exist, or the kernel refuses.
pub fn cut_to_size(interface: &str) -> Result<(), TcError> {
    Ok(apply::cut_to_size(&open()?, interface)?)
}

/// Opens a netlink socket in the calling thread's network namespace.
fn open() -> Result<Socket, TcError> {
    Socket::open().map_err(TcError::Socket)
}
