//! Both directions of the channel to one peer: what is numbered, logged and recorded (R2, R3, R5, R8). Part of every
//! checkpoint.

use alloc::collections::BTreeMap;
use faultline_core::Payload;
use serde::{Deserialize, Serialize};

use super::message::{Covered, Phase};

/// A message in the sender's memory (Algorithm 1, line 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// Its phase.
    pub phase: Phase,
    /// Its content.
    pub payload: Payload,
}

/// The channel to one peer. Messages are numbered from 0; a count is the number of the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Messages sent to the peer.
    pub sent: u32,
    /// Messages received from it.
    pub received: u32,
    /// Messages to a peer in another cluster that it may need again, by number.
    pub log: BTreeMap<u32, Logged>,
    /// Phases of the messages from a peer in another cluster, by number: what may become an orphan (the paper's RPP).
    pub receipts: BTreeMap<u32, Phase>,
    /// What messages from the peer will raise the phase to when they are consumed, by number (R6).
    pub unfolded: BTreeMap<u32, Phase>,
    /// How much of the channel the peer's last committed checkpoint holds, seen from the peer: it needs no message below
    /// `received`, and will send none below `sent` again.
    pub settled: Covered,
}

impl Channel {
    /// How much there is by now.
    pub fn covered(&self) -> Covered {
        Covered { sent: self.sent, received: self.received }
    }

    /// The peer's checkpoint holds so much: what it cannot need again is forgotten (R8). The number of log entries that
    /// were removed, and their bytes.
    pub fn settle(&mut self, peer: Covered) -> (u32, u64) {
        self.settled.received = self.settled.received.max(peer.received);
        self.settled.sent = self.settled.sent.max(peer.sent);
        let kept = self.log.split_off(&self.settled.received);
        let gone = core::mem::replace(&mut self.log, kept);
        self.receipts = self.receipts.split_off(&self.settled.sent);
        (gone.len() as u32, gone.values().map(|it| it.payload.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_has_settled_is_forgotten_and_never_comes_back() {
        let mut channel = Channel { sent: 4, received: 3, ..Channel::default() };
        channel.log = (0..4).map(|it| (it, Logged { phase: 1, payload: Payload::Virtual(10) })).collect();
        channel.receipts = (0..3).map(|it| (it, 2)).collect();
        assert_eq!(channel.settle(Covered { sent: 1, received: 3 }), (3, 30));
        assert_eq!((channel.log.len(), channel.receipts.len()), (1, 2));
        assert_eq!(channel.settle(Covered { sent: 0, received: 2 }), (0, 0));
        assert_eq!(channel.settled, Covered { sent: 1, received: 3 });
    }
}
