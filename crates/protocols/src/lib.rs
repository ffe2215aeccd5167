//! Rollback-recovery protocols as state machines without I/O, one directory each.
#![no_std]

extern crate alloc;

pub mod hc3i;
pub mod none;
