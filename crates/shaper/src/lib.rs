//! Link emulation: what happens to a packet before it reaches its receiver, either in the node itself ([`DelayLine`])
//! or in the kernel ([`Tree`]).
//!
//! Sans-IO. A [`DelayLine`] is given the time and returns when a packet may leave. It never sleeps, sends or loses a
//! packet: a loss appears as the delay of the transport's retransmission. A [`Tree`] is a plan, which `faultline-tc`
//! carries out.

mod delay_line;
mod kernel;
pub mod tree;

pub use delay_line::{DelayLine, Interface};
pub use kernel::{Kernel, ShapingSide};
pub use tree::Tree;
