//! Logs of the messages between groups, kept by their senders.
//!
//! A failed group that rolls back alone needs the messages that other groups had sent to it. Those groups do not roll
//! back, so their applications do not send the messages again. Every process therefore keeps the messages that it sends
//! to other groups. The messages of a channel are numbered, and a re-execution gives each message the same number.
//!
//! | file | contents |
//! | --- | --- |
//! | `channel` | one channel in both directions: counts, and the log; part of every checkpoint |
//! | `segments` | moving the log to stable storage above a limit |
//! | `storage` | the inputs that concern a process's storage: checkpoints, replicas and segments |
//!
//! Guarantees to the protocol:
//!
//! * A message that its receiver already has is suppressed, and logged like any other: the receiver may fail and need
//!   it later.
//! * The logged messages of a channel are passed to the network in order, each of them once, until [`Logs::resume`]
//!   states again which messages the receiver has.
//! * A message leaves the log once a committed checkpoint of its receiver contains it, and not before.
//! * The log is part of the checkpoint ([`Saved`]), because a re-execution does not repeat the messages sent before the
//!   checkpoint.

mod channel;
mod segments;
mod storage;
#[cfg(test)]
pub(super) mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use faultline_core::application::Wire;
use faultline_core::{
    Claim, Footprint, Host, ImageName, Incarnation, MessageId, Payload, Position, ProcessId, Promise,
    Promises, Protocol, Scope, To,
};
use serde::{Deserialize, Serialize};

use super::group::{Group, GroupMessage, Grouped};
pub use channel::{Channel, Content, Covered, LogSize, Logged};
use segments::Spill;
pub use segments::{Head, LogSegmentNo};

/// A protocol whose processes log the messages that they send to other groups.
pub(crate) trait Logging:
    Protocol<
        Head = Head,
        Saved = Saved<Self::Tag, Self::State>,
        Stamp = Stamp<Self::Tag>,
        Control: From<GroupMessage> + From<Settled>,
    >
{
    /// The data that a message carries in addition to its number. The sender's log keeps it as well.
    type Tag: Wire + Copy + Default;
    /// The state that the protocol saves in order to resume channels.
    type State: Wire + Default;
}

impl<P: Logging> Grouped for P {
    fn companions(owner: ProcessId, head: &Head) -> Vec<ImageName> {
        head.segments.iter().map(|it| it.image(owner)).collect()
    }

    fn is_covered(image: ImageName, by: &Head) -> bool {
        LogSegmentNo::of(image).is_some_and(|it| it.number < by.next)
    }
}

/// The stamp of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp<T> {
    /// Position of the sender's group when the message is passed to the network.
    pub position: Position,
    /// Incarnation of the receiver's group, as the sender knows it.
    pub to: Incarnation,
    /// The data that the protocol adds.
    pub tag: T,
}

impl<T: Wire> faultline_core::Stamp for Stamp<T> {
    fn position(&self) -> Position {
        self.position
    }
}

/// The protocol's own state in a part of a checkpoint (R2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved<T, S> {
    /// Channels by peer.
    pub channels: BTreeMap<ProcessId, Channel<T>>,
    /// Number of messages that were collected before the state was saved, and that the process had not reported yet.
    pub collected: u32,
    /// The state that is needed to resume channels.
    pub state: S,
    /// Actions of the application that had not taken effect.
    pub actions: VecDeque<AppAction>,
    /// Messages from this process's group that were in transit.
    pub late: Vec<Late<T>>,
}

/// An action of the application. Actions take effect in the order of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AppAction {
    /// The application sent a message.
    Sent(MessageId, Payload),
    /// The application consumed a message.
    Consumed(MessageId),
}

/// A message that was in transit inside a group when the group took a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late<T> {
    /// Identity of the message.
    pub id: MessageId,
    /// The data that the message carries in addition to its number.
    pub tag: T,
    /// Content of the message.
    pub payload: Payload,
}

impl<T, S> Saved<T, S> {
    /// Returns the length of the messages that a part of a checkpoint contains, in bytes. Messages in segments of the
    /// log are on stable storage already.
    pub(crate) fn len(&self) -> u64 {
        let mut size = LogSize::default();
        self.channels.values().flat_map(|it| it.log.values()).for_each(|it| size.add(it));
        let late = self.late.iter().map(|it| &it.payload);
        let sent = self.actions.iter().filter_map(|it| match it {
            AppAction::Sent(_, payload) => Some(payload),
            AppAction::Consumed(_) => None,
        });
        size.in_memory() + late.chain(sent).map(|it| it.len() as u64).sum::<u64>()
    }

    /// Adds to `footprint` everything that a part of a checkpoint refers to.
    pub(crate) fn add_to(&self, head: &Head, footprint: &mut Footprint) {
        footprint.add_arc(&head.segments);
        footprint.add_map(&self.channels);
        for channel in self.channels.values() {
            footprint.add_map(&channel.log);
        }
        footprint.add_vec(&self.late);
    }
}

/// Returns the promises of a protocol that takes checkpoints of each group, and rolls back only groups that fail.
pub(crate) fn promises(scope: Scope) -> Promises {
    Promises::of_scope(scope).with(&[
        Promise::Checkpoints,
        Promise::DenseNumbering,
        Promise::MaximalLine,
        Promise::Containment,
        Promise::LogKept,
        Promise::DurableRestore,
        Promise::Refill,
        Promise::Progress,
    ])
}

/// States that the sender's committed checkpoint contains this part of the channels to and from the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Incarnation of the sender's group.
    pub from: Incarnation,
    /// Incarnation of the receiver's group.
    pub to: Incarnation,
    /// Counts from the sender's point of view.
    pub covered: Covered,
}

/// The rules of the sub-machine. Tests can disable them individually.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRules {
    /// A message that the receiver already has is not re-sent.
    pub(crate) suppresses: bool,
    /// The last message that the receiver already has is not re-sent either.
    pub(crate) suppresses_last: bool,
    /// A suppressed message is logged.
    pub(crate) logs_suppressed: bool,
    /// The log is part of the checkpoint.
    pub(crate) saves_log: bool,
    /// Messages are removed from memory only once they are durable.
    pub(crate) spills_durable: bool,
    /// Messages that are only on stable storage are sent when a channel resumes.
    pub(crate) sends_spilled: bool,
    /// Whether the protocol obeys all its rules, and therefore keeps its invariants.
    pub(crate) is_sound: bool,
}

impl LogRules {
    /// All rules are obeyed.
    pub(crate) const ALL: LogRules = LogRules {
        suppresses: true,
        suppresses_last: true,
        logs_suppressed: true,
        saves_log: true,
        spills_durable: true,
        sends_spilled: true,
        is_sound: true,
    };
}

/// Progress of the transmission on a channel to another group. Does not survive the life of the process.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    /// Number of the next message to transmit. All earlier messages have arrived or are in transit.
    next: u32,
    /// Messages with a smaller number are re-sends.
    fresh: u32,
    /// The last message that this process has passed to the network since its last rollback: the incarnation of the
    /// receiver's group to which it was sent, and the number after its own.
    passed: Option<(Incarnation, u32)>,
}

/// The channels of a process, and the logs of those to other groups.
#[derive(Clone, Debug)]
pub(crate) struct Logs<P: Logging> {
    pub(crate) channels: BTreeMap<ProcessId, Channel<P::Tag>>,
    sending: BTreeMap<ProcessId, Sending>,
    size: LogSize,
    /// Number of messages that, since the last call of [`Logs::take_collected`], were removed from the log or not added
    /// to it, because a checkpoint of their receiver contains them.
    collected: u32,
    /// The part of each channel in the checkpoint that would be restored after a failure.
    committed: BTreeMap<ProcessId, Covered>,
    /// Payload in memory, in bytes, above which the log moves to stable storage.
    limit: Option<u64>,
    spill: Spill<P>,
    rules: LogRules,
}

impl<P: Logging> Logs<P> {
    /// Creates the channels of a process that has sent and received nothing. Above `limit` bytes of payload, the log
    /// moves to stable storage; `None` keeps the whole log in memory.
    pub(crate) fn new(limit: Option<u64>, rules: LogRules) -> Logs<P> {
        Logs {
            channels: BTreeMap::new(),
            sending: BTreeMap::new(),
            size: LogSize::default(),
            collected: 0,
            committed: BTreeMap::new(),
            limit,
            spill: Spill::default(),
            rules,
        }
    }

    pub(crate) fn size(&self) -> LogSize {
        self.size
    }

    /// Returns the number of messages that, since the last call, were removed from the log or not added to it, because
    /// a checkpoint of their receiver contains them.
    pub(crate) fn take_collected(&mut self) -> u32 {
        core::mem::take(&mut self.collected)
    }

    /// Returns the current counts of the channels to and from a peer.
    pub(crate) fn present(&self, peer: ProcessId) -> Covered {
        self.channels.get(&peer).map_or_else(Covered::default, Channel::covered)
    }

    /// Returns the counts of the channels to and from a peer in the checkpoint that would be restored after a failure.
    pub(crate) fn committed(&self, peer: ProcessId) -> Covered {
        self.committed.get(&peer).copied().unwrap_or_default()
    }

    /// Returns the number of messages received from a peer.
    pub(crate) fn received(&self, peer: ProcessId) -> u32 {
        self.channels.get(&peer).map_or(0, |it| it.received)
    }

    /// Counts a message that is being received.
    pub(crate) fn receive(&mut self, id: MessageId) -> &mut Channel<P::Tag> {
        let channel = self.channels.entry(id.from).or_default();
        assert!(
            id.number == channel.received || !self.rules.is_sound,
            "messages of a channel are received in order"
        );
        channel.received = channel.received.max(id.number + 1);
        channel
    }

    /// Counts a message that the application sends to its own group.
    pub(crate) fn sent_inside(&mut self, id: MessageId) {
        self.channels.entry(id.to).or_default().sent = id.number + 1;
    }

    /// Logs a message that the application sends to another group. Returns whether it is suppressed, because the
    /// receiver has it already; if `is_decided` is `false`, this is not known yet. [`Logs::pump`] passes messages that
    /// are not suppressed to the network.
    pub(crate) fn sent(
        &mut self,
        id: MessageId,
        tag: P::Tag,
        payload: Payload,
        is_decided: bool,
        host: &mut dyn Host<P>,
    ) -> bool {
        let channel = self.channels.entry(id.to).or_default();
        assert!(
            id.number == channel.sent || !self.rules.is_sound,
            "messages of a channel are numbered in order"
        );
        channel.sent = id.number + 1;
        let sending = self.sending.entry(id.to).or_default();
        let had = if self.rules.suppresses_last { id.number } else { id.number + 1 };
        let is_suppressed = is_decided && had < sending.next && self.rules.suppresses;
        if is_decided && !is_suppressed {
            // Ensures that the message is transmitted even if a rule is disabled.
            sending.next = sending.next.min(id.number);
        }
        let is_needed = id.number >= channel.settled.received;
        self.collected += u32::from(!is_needed);
        if is_needed && (!is_suppressed || self.rules.logs_suppressed) {
            let entry = Logged { tag, content: Content::Here(payload) };
            self.size.add(&entry);
            channel.log.insert(id.number, entry);
            if self.limit.is_some() {
                self.spill.logged(id.to, id.number);
            }
        }
        if is_suppressed {
            host.suppress(id);
        }
        is_suppressed
    }

    /// Passes a channel's logged messages to the network, in order, while `admits` returns `true` for their tags.
    pub(crate) fn pump(
        &mut self,
        group: &mut Group<P>,
        to: ProcessId,
        position: Position,
        admits: impl Fn(P::Tag) -> bool,
        host: &mut dyn Host<P>,
    ) {
        let (Some(channel), Some(sending)) = (self.channels.get(&to), self.sending.get_mut(&to)) else {
            return;
        };
        let incarnation = group.view.incarnation(group.view.group_of(to));
        let mut lacking = None;
        for (&number, entry) in channel.log.range(sending.next..) {
            if !admits(entry.tag) {
                break;
            }
            let payload = match &entry.content {
                Content::Here(payload) => payload.clone(),
                Content::Spilled { .. } if !self.rules.sends_spilled => continue,
                Content::Spilled { segment, .. } => match self.spill.fetched(to, number) {
                    Some(payload) => payload,
                    None => {
                        lacking = Some(*segment);
                        break;
                    }
                },
            };
            let id = MessageId { from: group.me, to, incarnation: Incarnation(0), number };
            if number < sending.fresh {
                host.claim(Claim::Resent { id });
            }
            host.transmit(id, Stamp { position, to: incarnation, tag: entry.tag }, payload);
            sending.next = number + 1;
            sending.passed = Some((incarnation, number + 1));
        }
        if let Some(segment) = lacking {
            self.want_segment(group, segment, to, host);
        }
    }

    /// Returns the peers in other groups to which this process has sent a message, or whose channel was settled,
    /// resumed or restored.
    pub(crate) fn peers(&self) -> Vec<ProcessId> {
        self.sending.keys().copied().collect()
    }

    /// Resumes a channel: its receiver has every message before `next`. Later messages before `fresh` are re-sends.
    /// Messages that this process has sent since either end of the channel last rolled back have arrived or are still
    /// in transit, and are not sent again: another group's failure loses none of them.
    pub(crate) fn resume(&mut self, group: &Group<P>, peer: ProcessId, next: u32, fresh: u32) {
        let to = group.view.incarnation(group.view.group_of(peer));
        let passed = self.sending.get(&peer).and_then(|it| it.passed).filter(|it| it.0 == to);
        let in_transit = passed.map_or(0, |(_, next)| next);
        self.sending.insert(peer, Sending { next: next.max(in_transit), fresh, passed });
    }

    /// Reports that the messages with these numbers on a channel are suppressed, because the receiver already has them.
    pub(crate) fn suppress(
        &self,
        me: ProcessId,
        peer: ProcessId,
        numbers: core::ops::Range<u32>,
        host: &mut dyn Host<P>,
    ) {
        for number in numbers {
            host.suppress(MessageId { from: me, to: peer, incarnation: Incarnation(0), number });
        }
    }

    /// Learns which messages the peer's committed checkpoint contains, and removes from the log those that the peer can
    /// no longer need.
    pub(crate) fn settle(&mut self, peer: ProcessId, covered: Covered) {
        let gone = self.channels.entry(peer).or_default().settle(covered);
        self.size.subtract(gone);
        self.collected += gone.messages as u32;
        let sending = self.sending.entry(peer).or_default();
        sending.next = sending.next.max(covered.received);
    }

    /// Reports the current counts to a peer as if a checkpoint contained them. Used only by a defect.
    pub(crate) fn tell_present(&self, group: &Group<P>, peer: ProcessId, host: &mut dyn Host<P>) {
        let to = group.view.incarnation(group.view.group_of(peer));
        let settled = Settled { from: group.incarnation, to, covered: self.present(peer) };
        host.control(To::One(peer), settled.into());
    }

    /// Handles a peer's message about its checkpoint. Returns the counts, unless the message is from before a failure:
    /// in that case, the state of the channels will be exchanged anyway.
    pub(crate) fn settled(&mut self, group: &Group<P>, peer: ProcessId, settled: Settled) -> Option<Covered> {
        let Settled { from, to, covered } = settled;
        if from < group.view.incarnation(group.view.group_of(peer)) || to < group.incarnation {
            return None;
        }
        self.settle(peer, covered);
        Some(covered)
    }

    /// Handles the commit of a checkpoint that contains these channels: informs every peer in another group.
    /// Each of them removes from its log the messages that this process can no longer need.
    pub(crate) fn commit(
        &mut self,
        group: &Group<P>,
        channels: &BTreeMap<ProcessId, Channel<P::Tag>>,
        host: &mut dyn Host<P>,
    ) {
        let outside = channels.iter().filter(|(peer, _)| group.view.group_of(**peer) != group.number);
        let covered = outside.map(|(&peer, channel)| (peer, channel.covered()));
        self.committed = covered.collect();
        for (&peer, covered) in &self.committed {
            let to = group.view.incarnation(group.view.group_of(peer));
            let settled = Settled { from: group.incarnation, to, covered: *covered };
            host.control(To::One(peer), settled.into());
        }
    }

    /// Returns the channels for a checkpoint, with the rest of the protocol's state.
    pub(crate) fn saved(&self, state: P::State, actions: VecDeque<AppAction>) -> Saved<P::Tag, P::State> {
        let (channels, collected) = (self.channels.clone(), self.collected);
        Saved { channels, collected, state, actions, late: Vec::new() }
    }

    /// Installs the channels of a restored checkpoint. `collected` is the number of entries that were removed from its
    /// log but not yet reported. Transmits nothing until the protocol knows which messages the receivers have and calls
    /// [`Logs::resume`].
    pub(crate) fn restore(
        &mut self,
        group: &Group<P>,
        channels: BTreeMap<ProcessId, Channel<P::Tag>>,
        collected: u32,
    ) {
        *self = Logs { channels, collected, ..Logs::new(self.limit, self.rules) };
        for (&peer, channel) in &mut self.channels {
            if group.view.group_of(peer) == group.number {
                continue;
            }
            if !self.rules.saves_log {
                channel.log.clear();
            }
            self.committed.insert(peer, channel.covered());
            self.sending.insert(peer, Sending { next: channel.sent, fresh: channel.sent, passed: None });
            for (&number, entry) in &channel.log {
                self.size.add(entry);
                if entry.content.segment().is_none() && self.limit.is_some() {
                    self.spill.logged(peer, number);
                }
            }
        }
    }
}
