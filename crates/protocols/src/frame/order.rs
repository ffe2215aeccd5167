//! The order in which a process delivers messages.

use alloc::collections::BTreeMap;
use core::fmt::Debug;

use faultline_core::{Host, ImageName, MessageId, ProcessId, Time};

use super::{LoggingProtocol, Never, Rank};
use crate::machines::group::{Group, View};
use crate::machines::logs::{Channel, Logs};

/// The order of a process's deliveries, as the process knows it. The default methods belong to a protocol that delivers
/// messages in any order.
pub(crate) trait Delivering<P: LoggingProtocol>: Clone + Debug {
    /// Begins a life of the process.
    fn new(defects: P::Defects, view: &View) -> Self;

    /// Handles a message about the order.
    fn handle(rank: &mut Rank<P>, message: P::OrderMessage, now: Time, host: &mut dyn Host<P>);

    /// Returns whether a message may be delivered now.
    fn decide(&self, _id: MessageId) -> Decision {
        Decision::New
    }

    /// Handles a message that is being delivered.
    fn delivered(&mut self, _id: MessageId, _decision: Decision, _host: &mut dyn Host<P>) {}

    /// Counts a message that the application sent.
    fn sent(&mut self) {}

    /// Returns whether everything that could be sent now depends only on deliveries that would be repeated.
    fn is_stable(&self) -> bool {
        true
    }

    /// Returns whether the process rolled back and has yet to learn which deliveries it has to repeat.
    fn is_asking(&self) -> bool {
        false
    }

    /// Returns whether there are known deliveries to repeat.
    fn repeats(&self) -> bool {
        false
    }

    /// Handles the answer to [`Host::request_rest`].
    fn rested(&mut self) {}

    /// Handles the commit of a checkpoint with this part and these channels.
    fn committed(
        &mut self,
        _part: ImageName,
        _channels: &BTreeMap<ProcessId, Channel<P::Tag>>,
        _host: &mut dyn Host<P>,
    ) {
    }

    /// Handles the restoration of these channels. `waiting` is the number of messages that the application had sent and
    /// that wait to be transmitted. If `has_acted` is `false`, the process has acted in none of its lives.
    fn restored(&mut self, _logs: &Logs<P>, _waiting: usize, _has_acted: bool, _host: &mut dyn Host<P>) {}

    /// Handles a change in the membership; `old` is `None` at the beginning of a life.
    fn membership_changed(&self, _old: Option<&View>, _group: &Group<P>, _host: &mut dyn Host<P>) {}
}

/// How to treat a message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Deliver the message; the delivery is new.
    New,
    /// Deliver the message; this is the next delivery to repeat.
    Repeated,
    /// Keep the message; other deliveries must be repeated first.
    Later,
}

/// Messages are delivered in the order of their arrival, also after a rollback: the program is deterministic enough to
/// repeat its messages nevertheless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsTheyArrive;

impl<P: LoggingProtocol<OrderMessage = Never>> Delivering<P> for AsTheyArrive {
    fn new(_: P::Defects, _: &View) -> AsTheyArrive {
        AsTheyArrive
    }

    fn handle(_: &mut Rank<P>, message: Never, _: Time, _: &mut dyn Host<P>) {
        match message {}
    }
}
