//! Link emulation: what a packet meets before it reaches its receiver, in the node itself ([`DelayLine`]) or in the kernel
//! ([`Tree`]).
//!
//! Sans-IO. A [`DelayLine`] is told the time and says when a packet may go. It never sleeps, never sends and never
//! loses a packet: a loss appears as the delay of the transport's retransmission. A [`Tree`] is a plan, which
//! `faultline-tc` carries out.

mod delay_line;
mod kernel;
pub mod tree;

pub use delay_line::{DelayLine, Interface};
pub use kernel::{Kernel, Place};
pub use tree::Tree;
