//! Random federations under random faults: the search for the schedule that breaks recovery.
//!
//! One seed decides everything: clusters, links, storage, protocol parameters, application and faults. Whole kinds of
//! fault are left out of a scenario at random (swarm testing), and every scenario ends with a quiet time in which the
//! federation has to recover and finish. A scenario runs on the simulator and is judged by the checker.

mod chance;
mod scenario;
mod trial;

pub use scenario::{Application, Scenario};
pub use trial::{Trial, run};
