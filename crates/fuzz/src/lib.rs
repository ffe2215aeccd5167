//! Runs random federations under random faults, to find schedules that break recovery.
//!
//! One seed determines everything: clusters, links, storage, protocol parameters, application and faults. A scenario
//! omits whole kinds of fault at random (swarm testing), and ends with a fault-free period, in which the federation
//! must recover and finish. It runs on the simulator, and the checker judges it. A scenario is an ordinary
//! federation, so its file has the same effect in `faultline run`.
//!
//! | module | contents |
//! | --- | --- |
//! | `scenario` | a federation with a seed |
//! | `generate` | the federation that a seed determines |
//! | `trial` | a scenario, run and judged |
//! | `exchange` | the lines that a trial exchanges with its programs, to explain why a repeated one differs |
//! | `coverage` | the coverage of many trials |
//! | `directed` | second faults at moments that matter |
//! | `bands` | how often runs of a protocol end without completing |
//! | `shrink` | a smaller scenario that violates the same property |
//! | `kit` | the same tests for a protocol that is not part of this program |
//! | `contract` | whether a program sends the same messages in every order of delivery |

mod bands;
mod chance;
mod contract;
mod coverage;
mod directed;
mod exchange;
mod generate;
mod kit;
mod scenario;
mod shrink;
mod trial;

pub use contract::{Difference, Differs, difference};
pub use coverage::{BLOCK, Coverage, CoverageName, Observed, STRETCH, Shares, State, exercised};
pub use directed::{Directions, MomentCoverage, MomentShares, directed_scenario, is_directed};
pub use kit::{Candidate, SeedResult, run_federation};
pub use scenario::{ProtocolName, Scenario, UnknownProtocol};
pub use shrink::{Shrunk, Steps, shrink};
pub use trial::{Repetition, Trial, repeats, run, run_until_stopped, seed_under_way, stop_when};
