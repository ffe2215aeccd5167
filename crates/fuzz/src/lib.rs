//! Runs random federations under random faults, to find schedules that break recovery.
//!
//! One seed determines everything: clusters, links, storage, protocol parameters, application and faults. A
//! scenario leaves out whole kinds of fault at random (swarm testing), and ends with a quiet time in which
//! the federation has to recover and finish. It runs on the simulator and is judged by the checker. A
//! scenario is an ordinary federation, so that its file does the same in `faultline run`.
//!
//! | module | contents |
//! | --- | --- |
//! | `scenario` | a federation with a seed |
//! | `generate` | the federation that a seed determines |
//! | `trial` | a scenario, run and judged |
//! | `coverage` | what many trials reached |
//! | `bands` | how often runs of a protocol end without completing |
//! | `shrink` | the smallest scenario that violates a property |
//! | [`mutants`] | every mutation of the code, and what finds it |
//! | `kit` | the same for a protocol that is not part of this program |
//! | `contract` | whether a program sends the same in every order of delivery |

mod bands;
mod chance;
mod contract;
mod coverage;
mod generate;
mod kit;
pub mod mutants;
mod scenario;
mod shrink;
mod trial;

pub use contract::{Difference, Differs, difference};
pub use coverage::{Coverage, Observed, Shares, State, Word};
pub use kit::{Candidate, Tried};
pub use scenario::{Protocol, Scenario, UnknownProtocol};
pub use shrink::{Shrunk, Steps, shrink};
pub use trial::{Trial, repeats, run, seed_under_way};
