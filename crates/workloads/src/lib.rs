//! The programs that Faultline's protocols protect.
//!
//! [`Workload`] is one rank of one of seven applications, chosen by its [`Config`]; programs of one's own are written with
//! [`messaging`].
//!
//! | module | models | result |
//! | --- | --- | --- |
//! | [`heat`] | coupled parallel solvers with real state | equals a sequential [`reference()`], bit by bit |
//! | [`synthetic`] | the traffic of the HC3I paper's experiments, or as much traffic as a machine carries | depends on the seed only |
//! | [`exchange`] | random message-passing programs of the classes that HydEE protects | equals a sequential [`reference()`] |
//! | [`nas`] | the communication of six NAS kernels | equals a sequential [`reference()`] |
//! | [`pingpong`] | latency and bandwidth over lengths of messages | equals a sequential [`reference()`] |
//! | [`farm`] | master and workers: whoever answers first gets the next piece | depends on neither order nor timing: a sum over the pieces |
//! | [`salted`] | an application whose re-execution differs from its execution | depends on everything; judged by properties |
//!
//! Applications are state machines: no clock, no I/O, no randomness but from their seed. They know nothing of protocols,
//! checkpoints or failures beyond being asked for their state and being given an old one. Everything is bit-identical on
//! every machine: floating point only in `+ - * /` and in a software logarithm.
#![no_std]

extern crate alloc;

mod config;
pub mod exchange;
pub mod farm;
pub mod heat;
pub mod messaging;
mod mix;
pub mod nas;
mod peers;
pub mod pingpong;
mod reference;
pub mod salted;
pub mod synthetic;
mod workload;

pub use config::{Config, Invalid};
pub use reference::reference;
pub use workload::{Done, Job, Workload};
