//! A federation in a test's hands: every process is real, the world around it is played by the test.
//!
//! Nothing happens by itself. The application does what the test tells it ([`Script`]); packets lie in the network and
//! operations in the storages until somebody moves them; clocks stand still. A test reads like a story:
//!
//! ```ignore
//! let mut federation = Federation::<Hc3i>::new(&[1, 2], config);     // cluster 0: p0; cluster 1: p1, p2
//! federation.settle();                                              // everything that is under way happens
//! federation.send(p(0), p(2), "m1");                                // p0's application sends
//! let held = federation.hold(|flight| flight.to == p(2));           // from now on nothing reaches p2
//! federation.settle();                                              // ... but everything else happens
//! federation.kill(p(2), StorageFate::Kept);                         // p2 dies, and with it what it had sent
//! federation.detect(p(2));                                          // the others are told
//! federation.restart(p(2));                                         // its next life; the others are told
//! federation.release(held);
//! federation.settle();
//! assert_eq!(federation.received(p(2)), ["m1"]);                    // what its application's state holds
//! assert_eq!(federation.judge().reasons, [""; 0]); // the checker, over the facts
//! ```
//!
//! | in the test's hands | how |
//! | --- | --- |
//! | the network | [`Federation::hold`] keeps matching packets, [`Federation::let_through`] delivers some of them all the same, [`Federation::release`] ends the hold |
//! | the storages | [`Federation::hold_storage`], [`Federation::fail_writes`], [`Federation::corrupt`]; a kill loses what is not complete |
//! | time | each process has a clock of its own: [`Federation::ring`] moves one to its next deadline, [`Federation::wake`] one by a span, [`Federation::pass`] all |
//! | lives and membership | [`Federation::kill`], [`Federation::detect`], [`Federation::restart`]; [`Federation::withhold_membership`] keeps one process in the past |
//! | anything else | [`Federation::feed`] gives a process any event, also one that no driver would |
//!
//! The order is fixed: the supervisor's notes, memberships, storages, then packets in the order of sending. A test that
//! wants another order holds packets back. When a test fails, the story so far is printed.
//!
//! Generic over the protocol; knows nothing of any. What is the same in all tests of one protocol (its configuration,
//! names for its packets) belongs beside those tests.

mod driver;
mod federation;
mod network;
mod script;
mod storage;
mod story;

pub(crate) use federation::Federation;
pub(crate) use network::Flight;
pub(crate) use story::{Entry, assert_golden};

use faultline_core::{ClusterId, ProcessId};

/// A process by its number.
pub(crate) const fn p(number: u32) -> ProcessId {
    ProcessId(number)
}

/// A cluster by its number.
pub(crate) const fn c(number: u16) -> ClusterId {
    ClusterId(number)
}
