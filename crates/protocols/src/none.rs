//! No fault tolerance: the baseline for all other protocols.
//!
//! Messages pass through, nothing is saved, and the first failure ends the run.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Boot, Claim, FaultModel, Gauges, GroupId, Host, Input, LifeStart, Machine, Membership, Position,
    ProcessId, Promises, Protocol, ProtocolTypes, Role, Scope, Stamp, Time,
};
use faultline_dataflow::partition::{PartitionHost, PartitionInput, PartitionProtocol};
use faultline_dataflow::recovery::{TaskHost, TaskInput, TaskProtocol};
use serde::{Deserialize, Serialize};

/// Promises of a protocol under which any failure ends the run.
const SURVIVES_NOTHING: Promises =
    Promises::of_scope(Scope::Cluster).surviving(FaultModel::Volatile { failures: 0 });

/// One process without fault tolerance.
#[derive(Clone, Debug)]
pub struct NoProtocol {
    /// Whether a process of the federation has failed.
    lost: bool,
}

/// The empty stamp: nothing is piggybacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStamp;

impl Stamp for NoStamp {
    fn position(&self) -> Position {
        Position::default()
    }
}

impl ProtocolTypes for NoProtocol {
    type Control = ();
    type Head = ();
    type Saved = ();
}

impl Protocol for NoProtocol {
    type Config = ();
    type Stamp = NoStamp;
    const FIFO: bool = false;

    fn promises(_: &()) -> Promises {
        SURVIVES_NOTHING
    }

    fn extra_processes(_: &()) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<()>, _: Time, host: &mut dyn Host<Self>) -> Self {
        let this = NoProtocol::begin(&start, host);
        if !this.lost {
            host.release();
        }
        this
    }

    fn handle(&mut self, input: Input<Self>, _: Time, host: &mut dyn Host<Self>) {
        match input {
            Input::Sent { id, payload } => host.transmit(id, NoStamp, payload),
            Input::Received { id, payload, .. } if !self.lost => host.deliver(id, payload),
            Input::Membership(membership) if !self.lost => {
                if let Some(group) = self.first_lost(&membership) {
                    host.hold();
                    give_up(group, host);
                }
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// No fault tolerance for task-based programs: all messages of a theft pass through.
impl TaskProtocol for NoProtocol {
    type Config = ();
    const FIFO: bool = false;

    fn promises(_: &()) -> Promises {
        SURVIVES_NOTHING
    }

    fn extra_processes(_: &()) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<()>, _: Time, host: &mut dyn TaskHost<Self>) -> Self {
        let this = NoProtocol::begin(&start, host);
        if !this.lost {
            host.release();
        }
        this
    }

    fn handle(&mut self, input: TaskInput<Self>, _: Time, host: &mut dyn TaskHost<Self>) {
        match input {
            TaskInput::Due(theft, leg) => host.pass(theft, leg),
            TaskInput::Membership(membership) if !self.lost => {
                if let Some(group) = self.first_lost(&membership) {
                    host.hold();
                    give_up(group, host);
                }
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// No fault tolerance for planned programs: every value that arrives is passed to its partition immediately.
impl PartitionProtocol for NoProtocol {
    type Config = ();
    const FIFO: bool = false;

    fn promises(_: &()) -> Promises {
        SURVIVES_NOTHING
    }

    fn extra_processes(_: &()) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<()>, _: Time, host: &mut dyn PartitionHost<Self>) -> Self {
        let this = NoProtocol::begin(&start, host);
        if !this.lost {
            host.release(start.me);
        }
        this
    }

    fn handle(&mut self, input: PartitionInput<Self>, _: Time, host: &mut dyn PartitionHost<Self>) {
        match input {
            PartitionInput::Arrived(delivery) if !self.lost => host.accept(delivery),
            PartitionInput::Membership(membership) if !self.lost => {
                if let Some(group) = self.first_lost(&membership) {
                    give_up(group, host);
                }
            }
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl NoProtocol {
    /// Begins a life, which is lost unless it is the first one.
    fn begin(start: &LifeStart<()>, host: &mut dyn Machine<NoProtocol>) -> NoProtocol {
        let lost = start.boot != Boot::Fresh;
        if lost {
            give_up(Scope::Cluster.group_of(&start.membership, start.me), host);
        }
        NoProtocol { lost }
    }

    /// Returns the group of the first process that has failed. A process whose cluster has not joined yet has not failed.
    fn first_lost(&mut self, membership: &Membership) -> Option<GroupId> {
        let mut processes = (0..membership.members.len() as u32).map(ProcessId);
        let failed = processes.find(|it| {
            let member = membership.member(*it);
            membership.is_present(*it) && (!member.up || member.lives() > 1)
        })?;
        self.lost = true;
        Some(Scope::Cluster.group_of(membership, failed))
    }
}

fn give_up(group: GroupId, host: &mut dyn Machine<NoProtocol>) {
    host.claim(Claim::Unrecoverable { group, missing: Arc::from([]) });
}

#[cfg(test)]
mod tests {
    use faultline_core::{Incarnation, MessageId, Payload};

    use super::*;
    use crate::machines::testing::{HostAction, RecordingHost, membership};

    #[test]
    fn nothing_is_delivered_after_the_first_failure() {
        let mut host = RecordingHost::<NoProtocol>::default();
        let mut process = NoProtocol { lost: false };
        let mut handle = |input| {
            Protocol::handle(&mut process, input, Time::ZERO, &mut host);
            host.take()
        };
        let id = MessageId { from: ProcessId(1), to: ProcessId(0), incarnation: Incarnation(0), number: 0 };
        let received = || Input::Received { id, stamp: NoStamp, payload: Payload::from_slice(&[]) };
        assert_eq!(handle(Input::Membership(membership(&[Some(1), Some(1)], 1))), []);
        assert_eq!(handle(received()), [HostAction::Deliver(id)]);
        let claim = Claim::Unrecoverable { group: GroupId(1), missing: Arc::from([]) };
        let failed = handle(Input::Membership(membership(&[Some(1), None], 1)));
        assert_eq!(failed, [HostAction::Hold, HostAction::Claim(claim)]);
        assert_eq!(handle(received()), []);
        assert_eq!(handle(Input::Membership(membership(&[Some(1), Some(2)], 1))), []);
    }
}
