//! Link emulation inside a node: what a packet meets before it reaches the socket.
//!
//! Sans-IO: a [`DelayLine`] is told the time and says when a packet may go. It never sleeps, never sends and never
//! loses a packet: a loss appears as the delay of the transport's retransmission.

mod delay_line;

pub use delay_line::{DelayLine, Interface};
