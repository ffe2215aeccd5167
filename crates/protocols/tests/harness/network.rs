//! The network of a test: packets in the order of sending, and the holds on them.

use std::collections::BTreeSet;

use faultline_core::process::PacketOf;
use faultline_core::{Life, Packet, Process, ProcessId};

use super::script::text_of;

/// A packet from one life to another.
#[derive(Clone, Debug)]
pub(crate) struct Flight<N: Process> {
    pub(crate) from: ProcessId,
    pub(crate) from_life: Life,
    pub(crate) to: ProcessId,
    pub(crate) to_life: Life,
    pub(crate) packet: PacketOf<N>,
}

impl<N: Process> Flight<N> {
    /// Returns the protocol message in the packet, if it contains one.
    pub(crate) fn control(&self) -> Option<&N::Control> {
        match &self.packet {
            Packet::Control(message) => Some(message),
            _ => None,
        }
    }

    /// Returns whether the packet is the application message with this content.
    pub(crate) fn contains(&self, text: &str) -> bool {
        matches!(&self.packet, Packet::Application { payload, .. } if text_of(payload) == text)
    }

    /// Returns the owner of the image in the packet, if it contains one.
    pub(crate) fn image_of(&self) -> Option<ProcessId> {
        match &self.packet {
            Packet::Image(image) => Some(image.name.owner),
            _ => None,
        }
    }
}

/// Identifies a hold, so that it can be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold(u32);

type Filter<N> = Box<dyn Fn(&Flight<N>) -> bool>;

pub(crate) struct Network<N: Process> {
    /// Packets in the order of sending.
    flights: Vec<Flight<N>>,
    holds: Vec<(Hold, Filter<N>)>,
    /// Whether packets between two lives arrive in the order of sending.
    fifo: bool,
    next_hold: u32,
}

impl<N: Process> Network<N> {
    pub(crate) fn new(fifo: bool) -> Network<N> {
        Network { flights: Vec::new(), holds: Vec::new(), fifo, next_hold: 0 }
    }

    pub(crate) fn let_overtake(&mut self) {
        self.fifo = false;
    }

    pub(crate) fn send(&mut self, flight: Flight<N>) {
        self.flights.push(flight);
    }

    pub(crate) fn hold(&mut self, which: impl Fn(&Flight<N>) -> bool + 'static) -> Hold {
        let hold = Hold(self.next_hold);
        self.next_hold += 1;
        self.holds.push((hold, Box::new(which)));
        hold
    }

    pub(crate) fn release(&mut self, hold: Hold) {
        let before = self.holds.len();
        self.holds.retain(|&(it, _)| it != hold);
        assert_eq!(self.holds.len() + 1, before, "a hold is released once");
    }

    /// Returns the positions of the packets that are not held and for which `ready` returns `true`.
    pub(crate) fn free(&self, ready: impl Fn(&Flight<N>) -> bool) -> Vec<usize> {
        let free = |flight: &Flight<N>| ready(flight) && self.holds.iter().all(|(_, held)| !held(flight));
        let between = |flight: &Flight<N>| (flight.from, flight.from_life, flight.to, flight.to_life);
        let mut overtaken = BTreeSet::new();
        let places = self.flights.iter().enumerate().filter(|(_, flight)| {
            // On ordered channels, only the first packet between two lives can arrive.
            (!self.fifo || overtaken.insert(between(flight))) && free(flight)
        });
        places.map(|(place, _)| place).collect()
    }

    pub(crate) fn remove(&mut self, place: usize) -> Flight<N> {
        self.flights.remove(place)
    }

    /// Removes and returns the first matching packet, held or not.
    pub(crate) fn take(&mut self, which: impl Fn(&Flight<N>) -> bool) -> Option<Flight<N>> {
        let place = self.flights.iter().position(which)?;
        Some(self.flights.remove(place))
    }

    pub(crate) fn flights(&self) -> &[Flight<N>] {
        &self.flights
    }

    /// Removes all matching packets.
    pub(crate) fn drop_all(&mut self, which: impl Fn(&Flight<N>) -> bool) {
        self.flights.retain(|flight| !which(flight));
    }
}
