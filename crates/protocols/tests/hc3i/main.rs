//! HC3I, step by step: the paper's figures, the rules that `docs/hc3i.md` adds, and failures. Each test runs one
//! directed schedule, except for `explore`, which runs random schedules without a clock.

#[allow(dead_code, unused_imports, reason = "each protocol's tests use only part of the harness")]
#[path = "../harness/mod.rs"]
mod harness;

mod checkpoints;
mod collection;
mod defects;
mod explore;
mod figures;
mod presence;
mod recovery;
mod rounds;
mod setting;
mod spurious;
