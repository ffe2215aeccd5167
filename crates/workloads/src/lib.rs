//! The programs that Faultline's protocols protect.
//!
//! [`Workload`] is a rank of one of seven applications, or of an application from another crate ([`custom`]),
//! selected by its [`Config`]. Users write their own programs with [`messaging`].
//!
//! | module | models | result |
//! | --- | --- | --- |
//! | [`heat`] | coupled parallel solvers with real state | equals a sequential [`reference()`], bit for bit |
//! | [`synthetic`] | the traffic of the HC3I paper's experiments, or a traffic burst | depends only on the seed |
//! | [`exchange`] | random message-passing programs that HydEE protects | equals a sequential [`reference()`] |
//! | [`nas`] | the communication of six NAS kernels | equals a sequential [`reference()`] |
//! | [`pingpong`] | latency and bandwidth by message length | equals a sequential [`reference()`] |
//! | [`farm`] | master and workers, with a new piece of work for each answer | a sum, independent of order and timing |
//! | [`salted`] | an application whose re-executions all differ | depends on every event; judged only by properties |
//!
//! Applications are state machines: no clock, no I/O, no randomness except from their seed. They are
//! independent of protocols, checkpoints and failures, except that their state can be saved and replaced by
//! an older one. Results are bit-identical on all machines: floating-point arithmetic is limited to `+ - * /` and a
//! software logarithm.
#![no_std]

extern crate alloc;

mod config;
pub mod custom;
pub mod exchange;
pub mod farm;
pub mod heat;
mod invalid;
pub mod messaging;
mod mix;
pub mod nas;
mod peers;
pub mod pingpong;
mod reference;
pub mod salted;
pub mod synthetic;
mod workload;

pub use config::Config;
pub use invalid::Invalid;
pub use reference::reference;
pub use workload::{Done, Job, Workload};
