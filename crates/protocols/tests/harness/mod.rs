//! A federation under the control of a test: every process is real, and the test simulates its environment.
//!
//! Nothing happens on its own. The application does what the test commands ([`Script`]). Packets stay in the network,
//! and storage operations stay pending, until the test lets them proceed. Clocks are stopped. A test reads as a
//! sequence of events:
//!
//! ```ignore
//! let mut federation = Federation::<Hc3i>::new(&[1, 2], config);     // cluster 0: p0; cluster 1: p1, p2
//! federation.settle();                                              // performs everything that is pending
//! federation.send(p(0), p(2), "m1");                                // p0's application sends
//! let held = federation.hold(|flight| flight.to == p(2));           // nothing reaches p2
//! federation.settle();                                              // ... but everything else happens
//! federation.kill(p(2), StorageFate::Kept);                         // p2 fails, and its packets are lost
//! federation.detect(p(2));                                          // the others are informed
//! federation.restart(p(2));                                         // its next life; the others are informed
//! federation.release(held);
//! federation.settle();
//! assert_eq!(federation.received(p(2)), ["m1"]);                    // what its application has received
//! assert_eq!(federation.judge().reasons, [""; 0]);                  // the checker finds no violation
//! ```
//!
//! | controlled by the test | how |
//! | --- | --- |
//! | the network | [`Federation::hold`] keeps matching packets, [`Federation::let_through`] delivers some of them anyway, [`Federation::release`] ends the hold |
//! | the storage | [`Federation::hold_storage`], [`Federation::fail_writes`], [`Federation::corrupt`]; a kill loses incomplete operations |
//! | time | each process has its own clock: [`Federation::fire_timer`] moves one clock to its next deadline, [`Federation::wake`] moves one by a span, [`Federation::pass`] moves all |
//! | lives and membership | [`Federation::kill`], [`Federation::detect`], [`Federation::restart`]; [`Federation::withhold_membership`] keeps one process uninformed |
//! | anything else | [`Federation::feed`] delivers any event to a process, even one that no driver would deliver |
//!
//! The order is fixed: requests to the supervisor, memberships, storage operations, packets in the order of sending,
//! then timers that are due. A test that requires another order holds packets back. If a test fails, it prints all
//! events so far.
//!
//! A [`Federation`] consists of two parts: [`Hosts`], a driver for any kind of process, and the code for
//! processes under a protocol. The driver passes the tests of the driver contract (`../conformance`).
//!
//! The harness is generic over the protocol. Items that all tests of one protocol share (its configuration,
//! filters for its packets) belong in those tests.

mod driver;
mod federation;
mod network;
mod script;
mod storage;
mod transcript;

pub(crate) use driver::Hosts;
pub(crate) use federation::Federation;
pub(crate) use network::Hold;
pub(crate) use transcript::assert_golden;

use faultline_core::{ClusterId, Node, ProcessId};

/// A packet from one life to another, under protocol `P`.
pub(crate) type Flight<P> = network::Flight<Node<P, script::Script>>;
/// An event of a federation.
pub(crate) type Entry<P> = transcript::Entry<Node<P, script::Script>>;

/// Returns the process with this number.
pub(crate) const fn p(number: u32) -> ProcessId {
    ProcessId(number)
}

/// Returns the cluster with this number.
pub(crate) const fn c(number: u16) -> ClusterId {
    ClusterId(number)
}
