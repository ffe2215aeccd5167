//! Linux traffic control, over netlink: what carries out a [`Tree`], finds out what the running kernel can do, and gives
//! each process a network namespace of its own.
//!
//! | module | holds |
//! | --- | --- |
//! | [`probe`] | what this kernel can, tried one by one on interfaces that are thrown away |
//! | [`namespace`] | a hub and the namespaces around it, for processes on one machine |
//!
//! Acts on the network namespace of the calling thread. What is set up there dies with the namespace; nothing is written
//! anywhere else, and no `tc` program is called. Decides nothing about links: that is `faultline-shaper`'s.

mod apply;
pub mod namespace;
pub mod probe;
mod wire;

use std::io;
use std::net::Ipv4Addr;
use std::thread;

use faultline_shaper::Tree;
use nlink::{Connection, Route};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

pub use apply::{ApplyError, Counts, Passed};

/// Why traffic control could not be asked.
#[derive(Debug, Error)]
pub enum TcError {
    /// The thread that asks did not start.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// No netlink socket.
    #[error("cannot talk to the kernel: {0}")]
    Socket(nlink::netlink::Error),
    /// The kernel said no.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// Makes the kernel do with the packets of `interface` what `tree` says, and nothing else: an empty tree removes
/// everything. Returns how many things had to be changed; none, when all was as it should be.
pub fn apply(interface: &str, tree: &Tree) -> Result<usize, TcError> {
    ask(async |kernel| Ok(apply::apply(&kernel, interface, tree).await?))
}

/// What has passed through the classes of the tree on `interface`. A class that nothing passes through shapes nothing.
pub fn passed(interface: &str) -> Result<Passed, TcError> {
    ask(async |kernel| Ok(apply::passed(&kernel, interface).await?))
}

/// The interface of the calling thread's network namespace that has an address.
pub fn interface_of(address: Ipv4Addr) -> Result<String, TcError> {
    ask(async |kernel| Ok(apply::interface_of(&kernel, address).await?))
}

/// Has packets cut to their size before they come to the queues of `interface`: otherwise what TCP has to say is queued,
/// delayed and lost 64 KiB at a time.
pub fn cut_to_size(interface: &str) -> Result<(), TcError> {
    ask(async |kernel| Ok(apply::cut_to_size(&kernel, interface).await?))
}

/// Talks to the kernel on a thread of its own, in the caller's network namespace, so that it may be called from
/// asynchronous code, too: an answer takes microseconds.
fn ask<T: Send>(
    question: impl AsyncFnOnce(Connection<Route>) -> Result<T, TcError> + Send,
) -> Result<T, TcError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("tc".into()).spawn_scoped(scope, || {
            let runtime = runtime().map_err(TcError::Thread)?;
            runtime.block_on(async { question(Connection::<Route>::new().map_err(TcError::Socket)?).await })
        });
        thread.map_err(TcError::Thread)?.join().expect("the thread that asks does not panic")
    })
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
