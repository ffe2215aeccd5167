//! Two processes, each a group of its own. The tests act as the second one, the peer of the first.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Boot, Claim, Cluster, ClusterId, Gauges, Host, Image, ImageName, Incarnation, Input, Life, LifeStart,
    Machine, Member, Membership, MembershipVersion, MessageId, NodeId, Payload, Position, ProcessId,
    Promises, Protocol, ProtocolTypes, Role, Scope, Time, To,
};
use serde::{Deserialize, Serialize};

use super::{Covered, Head, LogRules, Logging, Logs, Saved, Settled, Stamp};
use crate::machines::group::{self, Group, Rules, View};
use crate::machines::{ChannelReport, PairRules, Pairs};
use crate::placement::{Placement, ReplicateTo};

pub(crate) const ME: ProcessId = ProcessId(0);
pub(crate) const PEER: ProcessId = ProcessId(1);

#[derive(Clone, Debug)]
pub(crate) struct Talk;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Control {
    Group(group::GroupMessage),
    Settled(Settled),
    ChannelReport(ChannelReport),
}

impl From<group::GroupMessage> for Control {
    fn from(message: group::GroupMessage) -> Control {
        Control::Group(message)
    }
}

impl From<Settled> for Control {
    fn from(settled: Settled) -> Control {
        Control::Settled(settled)
    }
}

impl From<ChannelReport> for Control {
    fn from(report: ChannelReport) -> Control {
        Control::ChannelReport(report)
    }
}

impl ProtocolTypes for Talk {
    type Control = Control;
    type Head = Head;
    type Saved = Saved<(), ()>;
}

impl Logging for Talk {
    type Tag = ();
    type State = ();
}

impl Protocol for Talk {
    type Config = ();
    type Stamp = Stamp<()>;
    const FIFO: bool = true;

    fn promises((): &()) -> Promises {
        super::promises(Scope::Process)
    }
    fn extra_processes((): &()) -> Vec<Role> {
        Vec::new()
    }
    fn start(_: LifeStart<()>, _: Time, _: &mut dyn Host<Self>) -> Self {
        Talk
    }
    fn handle(&mut self, _: Input<Self>, _: Time, _: &mut dyn Host<Self>) {}
    fn next_deadline(&self) -> Option<Time> {
        None
    }
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// An action of the process that the tests check.
#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    Transmit(u32),
    Resent(u32),
    Suppress(u32),
    Say(Control),
    Persist(ImageName),
    Snapshot,
    Claim(Claim),
}

#[derive(Default)]
pub(crate) struct Actions(Vec<Act>);

impl Actions {
    pub(crate) fn take(&mut self) -> Vec<Act> {
        core::mem::take(&mut self.0)
    }
}

impl Machine<Talk> for Actions {
    fn control(&mut self, to: To, message: Control) {
        assert_eq!(to, To::One(PEER));
        self.0.push(Act::Say(message));
    }
    fn send_image(&mut self, _: ProcessId, _: Arc<Image<Head, Saved<(), ()>>>) {}
    fn persist(&mut self, image: Arc<Image<Head, Saved<(), ()>>>) {
        self.0.push(Act::Persist(image.name));
    }
    fn read(&mut self, _: ImageName) {}
    fn list(&mut self) {}
    fn delete(&mut self, _: ImageName) {}
    fn record(&mut self, _: u64, _: Arc<[u8]>) {}
    fn started(&mut self) {}
    fn held(&mut self) {}
    fn claim(&mut self, claim: Claim) {
        self.0.push(match claim {
            Claim::Resent { id } => Act::Resent(id.number),
            other => Act::Claim(other),
        });
    }
}

impl Host<Talk> for Actions {
    fn transmit(&mut self, id: MessageId, _: Stamp<()>, _: Payload) {
        self.0.push(Act::Transmit(id.number));
    }
    fn suppress(&mut self, id: MessageId) {
        self.0.push(Act::Suppress(id.number));
    }
    fn deliver(&mut self, _: MessageId, _: Payload) {}
    fn drop_stale(&mut self, _: MessageId) {}
    fn hold(&mut self) {}
    fn wait(&mut self) {}
    fn release(&mut self) {}
    fn request_snapshot(&mut self) {
        self.0.push(Act::Snapshot);
    }
    fn request_rest(&mut self) {}
    fn restore(&mut self, _: Option<&Image<Head, Saved<(), ()>>>, _: Incarnation) {}
}

struct Process {
    group: Group<Talk>,
    logs: Logs<Talk>,
    pairs: Pairs,
    host: Actions,
}

/// Returns the view of a membership in which the peer is in life `peer`.
fn view(peer: u32) -> View {
    let member = |it: ProcessId, life| Member {
        cluster: ClusterId(it.0 as u16),
        role: Role::RANK,
        node: NodeId(it.0),
        life: Life(life),
        up: true,
        started: true,
        gone: false,
        idle_lives: 0,
    };
    let membership = Membership {
        version: MembershipVersion(u64::from(peer)),
        members: [member(ME, 1), member(PEER, peer)].into(),
        clusters: [Cluster::new([ME].into()), Cluster::new([PEER].into())].into(),
    };
    View::new(Scope::Process, None, Arc::new(membership))
}

/// Returns the process as a group of one, with the peer as the holder of its parts.
pub(crate) fn group() -> Group<Talk> {
    let placement = Placement { replicas: 1, to: ReplicateTo::OtherCluster };
    let membership =
        group::GroupParameters { me: ME, boot: Boot::Fresh, view: view(1), placement, rules: Rules::ALL };
    Group::new(membership, &mut Actions::default())
}

impl Process {
    fn new() -> Process {
        let group = group();
        let host = Actions::default();
        let (logs, pairs) = (Logs::new(None, LogRules::ALL), Pairs::new(PairRules::ALL));
        Process { group, logs, pairs, host }
    }

    /// Makes the application send its message with this number.
    fn send(&mut self, number: u32) -> Vec<Act> {
        let id = MessageId { from: ME, to: PEER, incarnation: Incarnation(0), number };
        let is_decided = self.pairs.is_decided(PEER);
        if !self.logs.sent(id, (), Payload::Virtual(10), is_decided, &mut self.host) && is_decided {
            self.logs.pump(&mut self.group, PEER, Position::new(0, 1), |()| true, &mut self.host);
        }
        self.host.take()
    }

    /// Makes the peer fail and begin its next life.
    fn peer_fails(&mut self, life: u32) -> Vec<Act> {
        self.group.view = view(life);
        self.pairs.report(&self.group, &self.logs, &mut self.host);
        self.host.take()
    }

    /// Handles the report that the peer, in life `life`, has received `received` messages.
    fn peer_reports(&mut self, life: u32, received: u32) -> Vec<Act> {
        let present = Covered { sent: 0, received };
        let (from, committed) = (Incarnation(life - 1), Covered::default());
        let report = ChannelReport { from, to: Incarnation(0), present, committed };
        if self.pairs.reported(&self.group, &mut self.logs, PEER, report, &mut self.host) {
            self.logs.pump(&mut self.group, PEER, Position::new(0, 1), |()| true, &mut self.host);
        }
        self.host.take()
    }
}

#[test]
fn a_message_is_logged_and_transmitted_once() {
    let mut process = Process::new();
    assert_eq!(process.send(0), [Act::Transmit(0)]);
    assert_eq!(process.send(1), [Act::Transmit(1)]);
    assert_eq!((process.logs.size().messages, process.logs.size().bytes), (2, 20));
}

#[test]
fn messages_in_a_checkpoint_of_the_receiver_are_removed_from_the_log() {
    let mut process = Process::new();
    (0..3).for_each(|it| drop(process.send(it)));
    let of = |to, received| Settled { from: Incarnation(0), to, covered: Covered { sent: 0, received } };
    let settled = of(Incarnation(0), 2);
    assert!(process.logs.settled(&process.group, PEER, settled).is_some());
    assert_eq!((process.logs.size().messages, process.logs.take_collected()), (1, 2));
    process.group.view = view(2);
    assert!(
        process.logs.settled(&process.group, PEER, of(Incarnation(0), 3)).is_none(),
        "from an older life"
    );
    assert_eq!(process.logs.size().messages, 1);
}

#[test]
fn a_restored_process_suppresses_messages_that_its_peer_has() {
    let mut process = Process::new();
    process.send(0);
    let channels = process.logs.channels.clone();
    process.logs.restore(&process.group, channels, 0);
    process.pairs.restore(&process.logs);
    assert_eq!(process.send(1), [], "it is not known whether the peer has the message");
    process.peer_fails(1);
    assert_eq!(process.peer_reports(1, 2), [Act::Suppress(1)], "the peer has both");
    assert_eq!(process.send(2), [Act::Transmit(2)]);
    assert_eq!(process.logs.size().messages, 3, "a suppressed message is logged");
}

#[test]
fn messages_that_a_failed_peer_lacks_are_re_sent() {
    let mut process = Process::new();
    (0..3).for_each(|it| drop(process.send(it)));
    let present = Covered { sent: 3, received: 0 };
    let (from, committed) = (Incarnation(0), Covered::default());
    let report = ChannelReport { from, to: Incarnation(1), present, committed };
    assert_eq!(process.peer_fails(2), [Act::Say(Control::ChannelReport(report))]);
    assert_eq!(process.send(3), [], "until both ends have reported");
    assert_eq!(process.peer_reports(1, 3), [], "a report from before the failure");
    let again = [Act::Resent(1), Act::Transmit(1), Act::Resent(2), Act::Transmit(2), Act::Transmit(3)];
    assert_eq!(process.peer_reports(2, 1), again, "the last message is sent for the first time");
}

/// A third group's failure makes the peer report the state of the channel once more, before the message has arrived.
#[test]
fn a_message_in_transit_is_not_sent_again() {
    let mut process = Process::new();
    assert_eq!(process.send(0), [Act::Transmit(0)]);
    process.logs.resume(&process.group, PEER, 0, 1);
    assert_eq!(process.send(1), [Act::Transmit(1)]);
    process.logs.resume(&process.group, PEER, 0, 2);
    process.group.view = view(2);
    process.logs.resume(&process.group, PEER, 0, 2);
    let again = [Act::Resent(0), Act::Transmit(0), Act::Resent(1), Act::Transmit(1), Act::Transmit(2)];
    assert_eq!(process.send(2), again, "the peer has failed, and may have lost the message");
}

/// The messages are removed before the checkpoint but reported after it, so the rollback undoes the report.
#[test]
fn removed_messages_that_were_not_reported_are_reported_after_a_restore() {
    let mut process = Process::new();
    (0..3).for_each(|it| drop(process.send(it)));
    process.logs.settle(PEER, Covered { sent: 0, received: 2 });
    let saved = process.logs.saved((), Default::default());
    assert_eq!(process.logs.take_collected(), 2);
    process.logs.restore(&process.group, saved.channels, saved.collected);
    assert_eq!(process.logs.take_collected(), 2);
}

/// A restored process sends a message again, for example one that had to wait for the event logger. It has already
/// learned that a checkpoint of the receiver contains the message.
#[test]
fn a_message_that_the_log_need_not_keep_counts_as_removed() {
    let mut process = Process::new();
    process.send(0);
    process.logs.settle(PEER, Covered { sent: 0, received: 2 });
    assert_eq!(process.logs.take_collected(), 1);
    process.send(1);
    assert_eq!((process.logs.size().messages, process.logs.take_collected()), (0, 1));
}

#[test]
fn a_commit_tells_peers_what_it_contains() {
    let mut process = Process::new();
    process.send(0);
    let channels = process.logs.channels.clone();
    process.logs.commit(&process.group, &channels, &mut process.host);
    let covered = Covered { sent: 1, received: 0 };
    let settled = Settled { from: Incarnation(0), to: Incarnation(0), covered };
    assert_eq!(process.host.take(), [Act::Say(Control::Settled(settled))]);
    assert_eq!(process.logs.committed(PEER), covered);
}
