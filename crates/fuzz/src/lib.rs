//! Random federations under random faults: the search for the schedule that breaks recovery.
//!
//! One seed decides everything: clusters, links, storage, protocol parameters, application and faults. Whole kinds of
//! fault are left out of a scenario at random (swarm testing), and every scenario ends with a quiet time in which the
//! federation has to recover and finish. A scenario runs on the simulator and is judged by the checker. It is an ordinary
//! federation, so that a file with it does the same in `faultline run`.
//!
//! | module | holds |
//! | --- | --- |
//! | `scenario` | a federation with a seed |
//! | `generate` | the federation that a seed stands for |
//! | `trial` | a scenario, run and judged |
//! | `coverage` | what many trials reached |
//! | `bands` | how often the runs of a protocol end otherwise than by completing |
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
pub use coverage::{Coverage, Observed, Shares, State};
pub use kit::{Candidate, Tried};
pub use scenario::{Protocol, Scenario, UnknownProtocol};
pub use shrink::{Shrunk, Steps, shrink};
pub use trial::{Trial, repeats, run, seed_under_way};
