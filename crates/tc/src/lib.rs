//! Linux traffic control, over netlink: what carries out a [`Tree`], finds out what the running kernel can do, and gives
//! each process a network namespace of its own.
//!
//! | module | holds |
//! | --- | --- |
//! | [`probe`] | what this kernel can, tried one by one on interfaces that are thrown away |
//! | [`namespace`] | a hub and the namespaces around it, for processes on one machine |
//! | [`netlink`] | how the kernel is asked |
//! | [`link`] | interfaces and their addresses |
//! | [`traffic`] | queueing disciplines, classes and filters |
//!
//! Acts on the network namespace of the calling thread. What is set up there dies with the namespace; nothing is written
//! anywhere else, and no `tc` program is called. Decides nothing about links: that is `faultline-shaper`'s.

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

/// Why traffic control could not be asked.
#[derive(Debug, Error)]
pub enum TcError {
    /// No netlink socket.
    #[error("cannot talk to the kernel: {0}")]
    Socket(io::Error),
    /// The kernel said no.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Makes the kernel do with the packets of `interface` what `tree` says, and nothing else: an empty tree removes
/// everything. Returns how many things had to be changed; none, when all was as it should be.
pub fn apply(interface: &str, tree: &Tree) -> Result<usize, TcError> {
    Ok(apply::apply(&open()?, interface, tree)?)
}

/// What has passed through the classes of the tree on `interface`. A class that nothing passes through shapes nothing.
pub fn passed(interface: &str) -> Result<Passed, TcError> {
    Ok(apply::passed(&open()?, interface)?)
}

/// The interface of the calling thread's network namespace that has an address.
pub fn interface_of(address: Ipv4Addr) -> Result<String, TcError> {
    Ok(apply::interface_of(&open()?, address)?)
}

/// Has packets cut to their size before they come to the queues of `interface`: otherwise what TCP has to say is queued,
/// delayed and lost 64 KiB at a time.
pub fn cut_to_size(interface: &str) -> Result<(), TcError> {
    Ok(apply::cut_to_size(&open()?, interface)?)
}

/// Asks the kernel in the calling thread's network namespace.
fn open() -> Result<Socket, TcError> {
    Socket::open().map_err(TcError::Socket)
}
