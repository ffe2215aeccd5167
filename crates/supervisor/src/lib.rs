//! The reliable process manager that every rollback-recovery paper assumes, as a state machine without I/O.
//!
//! Each federation has one supervisor. It numbers lives, publishes the membership, detects failures and
//! fences suspected processes, injects the faults of a plan, and decides when the run is over. Its driver
//! (the simulator, or the host in the runtime) passes [`Report`]s to it and performs its [`Order`]s.

mod changes;
mod completion;
mod failure_detector;
mod faults;
mod interface;
mod memory;
mod nodes;
pub mod panics;
mod presence;
mod stops;
mod supervisor;
mod system;

pub use interface::{ClusterStatus, Config, FaultAccount, FaultState, Order, Outcome, Report, Status};
pub use memory::MemoryBound;
pub use supervisor::Supervisor;
pub use system::{AfterExit, SystemEnd, SystemRun};

/// Returns the seed of a process's own random choices in the run with seed `run`: the same for all its lives
/// and on every backend.
pub fn process_seed(run: u64, process: faultline_core::ProcessId) -> u64 {
    let mut x = run ^ u64::from(process.0).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
