//! The discrete-event driver: a federation in virtual time.
//!
//! The protocol code is the one that runs on real processes; the simulator owns time, network, storage and failures,
//! and every random choice is drawn from one seed. Nothing here reads a clock, opens a file or knows any protocol.
//!
//! | module | holds |
//! | --- | --- |
//! | `simulation` | the loop, and what processes do |
//! | `supervising` | the supervisor's reports and orders |
//! | `network`, `storage` | what packets and images cost, and what a crash leaves of them |
//! | `handling` | what packets take the processes that send and receive them |
//! | `queue` | what happens when |
//! | `defect` | known defects of a driver, as switches |
//! | `parallel` | many runs on many cores |

mod chance;
mod config;
mod defect;
mod handling;
mod network;
mod parallel;
mod queue;
mod seat;
mod simulation;
mod stats;
mod storage;
mod supervising;

pub use config::{Chance, Config, Control, Effort, Handling, InFlight, Links, StorageCosts};
pub use defect::{Defect, Defects};
pub use parallel::in_order;
pub use simulation::{Run, Simulation, run};
pub use stats::{Stats, Traffic};
