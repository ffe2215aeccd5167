//! HC3I, step by step: the paper's figures, the rules that its errata add, and what the protocol does when things go
//! wrong. Each test plays one schedule by hand; random schedules are the fuzzer's business.

#[allow(dead_code, reason = "each protocol's tests use their part")]
#[path = "../harness/mod.rs"]
mod harness;

mod checkpoints;
mod collection;
mod coordinated;
mod defects;
mod explore;
mod figures;
mod presence;
mod recovery;
mod setting;
mod spurious;
