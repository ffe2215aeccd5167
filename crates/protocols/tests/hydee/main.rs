//! HydEE as rules: what the protocol does, and what goes wrong when a rule is left out.

#![allow(clippy::unwrap_used, reason = "tests")]

mod copies;
mod defects;
mod explore;
#[allow(dead_code, unused_imports, reason = "each protocol's tests use their part")]
#[path = "../harness/mod.rs"]
mod harness;
