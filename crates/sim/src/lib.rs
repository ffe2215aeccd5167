//! The discrete-event driver: a federation in virtual time.
//!
//! Protocols run the same code as on real processes. The simulator owns time, network, storage and failures,
//! and draws every random choice from a single seed. It reads no clock, opens no file, and is independent of
//! the protocol.
//!
//! | module | content |
//! | --- | --- |
//! | `simulation`, `acting` | the event loop, and the actions of processes |
//! | `instant` | the events at one instant, which must not be endless |
//! | `supervising` | reports to the supervisor, and its orders |
//! | `network`, `storage` | arrival times of packets, and the stable storage of a process |
//! | `handling` | time that processes spend on the packets that they send and receive |
//! | `contents` | the memory of a simulation, broken down by its contents |
//! | `queue` | events in the order of their times |
//! | `defect` | known defects of a driver, which tests can enable |
//! | `parallel` | many runs on many cores |
//! | `sim_process` | the simulator's entry for a process |
//! | `chance` | random choices |
//! | `config`, `stats` | the configuration of a simulation, and its counts of events and packets |

mod acting;
mod chance;
mod config;
mod contents;
mod defect;
mod handling;
mod instant;
mod network;
mod parallel;
mod queue;
mod sim_process;
mod simulation;
mod stats;
mod storage;
mod supervising;

pub use config::{Chance, Config, Control, Handling, HandlingTime, InFlight, Links, StorageCosts};
pub use contents::Contents;
pub use defect::{Defect, Defects};
pub use parallel::in_order;
pub use simulation::{Run, Simulation, run};
pub use stats::{Stats, Traffic};
