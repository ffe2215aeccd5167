//! The departure of clusters: an agreement between ranks, like a disconnection in MPI.
//!
//! When a cluster leaves, each rank that may have sent to it sends a farewell to the cluster's first rank,
//! with the number of messages that it has sent to each of the cluster's ranks. The first rank adds up these
//! numbers, and tells the other ranks the total number of messages that they will receive. A rank has left
//! once it has received all of them and has finished computing. Messages may overtake each other.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use faultline_core::{ClusterId, Outbox, Payload, ProcessId, Span};
use serde::{Deserialize, Serialize};

use super::Config;
use crate::peers::Peers;

/// The part of a rank that handles the departure of clusters.
#[derive(Clone, Debug)]
pub(super) struct Leave {
    /// Clusters to which the rank sends a farewell, with the times, in ascending order of time. If the rank's own
    /// cluster leaves, that cluster is the last.
    farewells: Box<[(Span, ClusterId)]>,
    /// Ranks of clusters that leave, by cluster.
    ranks: BTreeMap<ClusterId, Box<[ProcessId]>>,
    /// If the rank's own cluster leaves: the rank's position in it, and the number of ranks that send it a farewell.
    own: Option<(usize, u32)>,
    state: State,
}

/// The part of [`Leave`] that changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    farewells_sent: u32,
    /// Number of messages sent to each rank that leaves.
    sent: BTreeMap<ProcessId, u32>,
    /// Number of messages received, excluding those of this module.
    received: u64,
    /// Total number of messages that the rank will receive, once known.
    expected: Option<u64>,
    /// First rank: number of messages announced in farewells, indexed by the position of the receiver.
    counted: Vec<u64>,
    /// First rank: number of farewells received.
    farewells_received: u32,
}

/// A message sent between ranks when a cluster leaves.
#[derive(Serialize, Deserialize)]
enum Word {
    /// To the first rank: positions of ranks in its cluster, each with the number of messages sent to that rank.
    Farewell(Vec<(u32, u32)>),
    /// To each other rank: total number of messages sent to that rank.
    Total(u64),
}

impl Leave {
    /// Creates the state; `None` if no cluster leaves.
    pub(super) fn new(config: &Config, peers: &Peers, total: Span) -> Option<Box<Leave>> {
        let own = peers.own();
        let all = || (0..peers.clusters()).map(ClusterId);
        let leaving: Vec<ClusterId> = all().filter(|&it| config.leaves(it)).collect();
        if leaving.is_empty() {
            return None;
        }
        let parts =
            |one: ClusterId, other: ClusterId| one == other || config.together(one, other, total).is_some();
        let mut farewells: Vec<(Span, ClusterId)> = leaving
            .iter()
            .filter(|&&it| parts(own, it))
            .map(|&it| (config.term(it, total).1.min(config.term(own, total).1), it))
            .collect();
        farewells.sort_unstable_by_key(|&(at, it)| (at, it == own, it));
        let of_own = || all().filter(|&it| parts(it, own)).map(|it| peers.size(it) as u32).sum();
        Some(Box::new(Leave {
            farewells: farewells.into(),
            ranks: leaving.iter().map(|&it| (it, peers.ranks(it).into())).collect(),
            own: leaving.contains(&own).then(|| (peers.place(), of_own())),
            state: State::default(),
        }))
    }

    /// Resets the state to what it is before the first computation.
    pub(super) fn begin(&mut self) {
        self.state = State::default();
    }

    /// Returns whether this rank's cluster leaves.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns whether all messages to this rank have arrived; always `true` for a rank that stays.
    pub(super) fn is_over(&self) -> bool {
        self.own.is_none() || self.state.expected == Some(self.state.received)
    }

    /// Returns the computing time after which the next farewell is due; `None` if all have been sent.
    pub(super) fn next_farewell(&self) -> Option<Span> {
        self.farewells.get(self.state.farewells_sent as usize).map(|&(at, _)| at)
    }

    /// Counts a message that the program sends to `to`, if that rank leaves.
    pub(super) fn sent(&mut self, to: ProcessId) {
        if self.ranks.values().any(|ranks| ranks.binary_search(&to).is_ok()) {
            *self.state.sent.entry(to).or_default() += 1;
        }
    }

    /// Sends the farewells that are due.
    pub(super) fn take(&mut self, elapsed: Span, out: &mut Outbox) {
        while let Some(&(_, cluster)) =
            self.farewells.get(self.state.farewells_sent as usize).filter(|&&(at, _)| at <= elapsed)
        {
            self.state.farewells_sent += 1;
            let ranks = self.ranks[&cluster].clone();
            let counts = (0..).zip(ranks.iter());
            let counts = counts.filter_map(|(place, to)| Some((place, *self.state.sent.get(to)?))).collect();
            let is_own_last =
                self.own.is_some() && self.state.farewells_sent as usize == self.farewells.len();
            match self.own {
                Some((0, _)) if is_own_last => self.farewell(&counts, out),
                _ => out.send(ranks[0], word(&Word::Farewell(counts))),
            }
        }
    }

    /// Handles a message that belongs to this module, and counts any other message. Returns whether the message belongs
    /// to this module.
    pub(super) fn deliver(&mut self, payload: &Payload, out: &mut Outbox) -> bool {
        if let Payload::Virtual(_) = payload {
            self.state.received += 1;
            return false;
        }
        // A fault may have flipped a bit of the message.
        match postcard::from_bytes(payload.bytes()) {
            Ok(Word::Farewell(counts)) => self.farewell(&counts, out),
            Ok(Word::Total(expected)) => self.state.expected = Some(expected),
            Err(_) => {}
        }
        true
    }

    /// Handles a farewell at the first rank: adds its numbers, and after the last farewell sends the totals
    /// to the other ranks.
    fn farewell(&mut self, counts: &Vec<(u32, u32)>, out: &mut Outbox) {
        let Some((_, all)) = self.own else { return };
        let own = self.farewells.last().expect("a leaving rank sends a farewell to its own cluster").1;
        let ranks = &self.ranks[&own];
        self.state.counted.resize(ranks.len(), 0);
        for &(place, count) in counts {
            if let Some(counted) = self.state.counted.get_mut(place as usize) {
                *counted += u64::from(count);
            }
        }
        self.state.farewells_received += 1;
        if self.state.farewells_received == all {
            self.state.expected = Some(self.state.counted[0]);
            for (&to, &count) in ranks.iter().zip(&self.state.counted).skip(1) {
                out.send(to, word(&Word::Total(count)));
            }
        }
    }

    pub(super) fn saved(&self) -> Vec<u8> {
        postcard::to_allocvec(&self.state).expect("numbers can be encoded")
    }

    pub(super) fn restore(&mut self, bytes: &[u8]) {
        self.state = postcard::from_bytes(bytes).expect("the bytes are a snapshot of this application");
    }
}

fn word(word: &Word) -> Payload {
    Payload::from_slice(&postcard::to_allocvec(word).expect("numbers can be encoded"))
}
