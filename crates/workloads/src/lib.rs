//! The programs that Faultline's protocols protect.
#![no_std]

extern crate alloc;

mod config;
pub mod heat;
pub mod salted;
pub mod synthetic;

pub use config::{Config, Invalid};
