//! Link emulation: delaying and losing packets before they reach their receiver, either in the node itself
//! ([`DelayLine`]) or in the kernel ([`Tree`]).
//!
//! This crate is sans-IO: the caller passes the time to a [`DelayLine`], which returns the time at which a
//! packet may leave. The delay line never sleeps, and neither sends nor loses packets: a loss appears as the
//! delay of the transport's retransmission. A [`Tree`] is a plan, which `faultline-tc` applies.

mod delay_line;
mod kernel;
pub mod tree;

pub use delay_line::{DelayLine, Interface, retransmission};
pub use kernel::{Kernel, ShapingSide};
pub use tree::Tree;
