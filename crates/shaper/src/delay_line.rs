//! The emulated link from one process to another.

use std::collections::VecDeque;

use faultline_core::fault::LinkProperties;
use faultline_core::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest number of consecutive losses that delay a packet. It ensures that a link that loses every packet still
/// delivers packets eventually.
const LOSSES_IN_A_ROW: u64 = 100;

/// Transmits packets onto links, one at a time. A process has one interface to the network of its own
/// cluster and one to all other clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Time at which the transmission of all packets so far ends.
    free: Time,
}

impl Interface {
    /// Transmits a packet of `bytes` at `bandwidth` bytes per second, where 0 means unlimited. Returns the time at
    /// which the transmission ends.
    pub fn transmit(&mut self, now: Time, bytes: u64, bandwidth: u64) -> Time {
        if bandwidth == 0 {
            return now;
        }
        self.free = self.free.max(now) + transmission(bytes, bandwidth);
        self.free
    }
}

/// Holds packets from one process to another until the emulated link would have delivered them.
///
/// Packets leave in the order in which they were added, regardless of jitter, because the two processes
/// communicate over an ordered stream.
#[derive(Clone, Debug)]
pub struct DelayLine<T> {
    properties: LinkProperties,
    cut: bool,
    /// Departure time of the newest packet that was added before the last change of the properties. Packets added later
    /// do not leave before it.
    newest_before_change: Time,
    /// Departure time of the newest of the packets added since then, if those before them did not hold it back.
    newest_since_change: Time,
    queue: VecDeque<(Time, T)>,
    chance: ChaCha8Rng,
}

impl<T> DelayLine<T> {
    /// Creates a line whose jitter and losses derive from `seed`. Lines with different values of `stream` are
    /// independent of each other.
    pub fn new(properties: LinkProperties, seed: u64, stream: u64) -> Self {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        chance.set_stream(stream);
        DelayLine {
            properties,
            cut: false,
            newest_before_change: Time::ZERO,
            newest_since_change: Time::ZERO,
            queue: VecDeque::new(),
            chance,
        }
    }

    /// Adds a packet of `bytes` to the link, through the `interface` of its sender. Returns the time of its
    /// arrival, provided that the link is not cut at that time.
    pub fn push(&mut self, now: Time, bytes: u64, interface: &mut Interface, packet: T) -> Time {
        let out = interface.transmit(now, bytes, self.properties.bandwidth);
        let propagation = self.propagation();
        let due = out + self.retransmissions() + propagation;
        self.newest_since_change = self.newest_since_change.max(due);
        let newest = self.newest();
        self.queue.push_back((newest, packet));
        newest
    }

    /// Returns the time at which the packet that was added last would arrive if the link had this latency, with the
    /// same jitter and losses. Unlike the time that [`DelayLine::push`] returns, it does not depend on the latency that
    /// the line applies, except to packets from before the last change of the properties, which later packets do not
    /// overtake.
    pub fn expected(&self, latency: Span) -> Time {
        let since_change = self.newest_since_change + latency;
        self.newest_before_change.max(Time(since_change.0.saturating_sub(self.properties.latency.0)))
    }

    /// Returns the properties that the line applies to packets that are added now.
    pub fn properties(&self) -> LinkProperties {
        self.properties
    }

    /// Removes and returns the oldest packet if it is due and the link is not cut.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, packet)| packet)
    }

    /// Returns the time at which [`DelayLine::pop`] will return a packet; `None` if the line is empty or cut.
    pub fn next_due(&self) -> Option<Time> {
        if self.cut { None } else { self.queue.front().map(|&(due, _)| due) }
    }

    /// Changes the link's properties for packets that are added later.
    pub fn set(&mut self, properties: LinkProperties) {
        if properties != self.properties {
            self.properties = properties;
            (self.newest_before_change, self.newest_since_change) = (self.newest(), Time::ZERO);
        }
    }

    /// Cuts the link (`true`) or heals it. While it is cut, no packet leaves and none is lost.
    pub fn cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Returns whether the link is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Drops the packets in transit, because one end of the link no longer exists.
    pub fn clear(&mut self) {
        self.queue.clear();
        (self.newest_before_change, self.newest_since_change) = (Time::ZERO, Time::ZERO);
    }

    /// Returns the number of packets in transit.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no packet is in transit.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the departure time of the newest packet.
    fn newest(&self) -> Time {
        self.newest_before_change.max(self.newest_since_change)
    }

    fn propagation(&mut self) -> Span {
        let LinkProperties { latency, jitter, .. } = self.properties;
        if jitter == Span::ZERO {
            return latency;
        }
        let least = latency - jitter;
        let most = latency + jitter;
        Span(self.chance.random_range(least.0..=most.0))
    }

    /// Returns the delay that retransmissions cause.
    fn retransmissions(&mut self) -> Span {
        let loss_ppm = self.properties.loss_ppm;
        if loss_ppm == 0 {
            return Span::ZERO;
        }
        let mut losses = 0;
        while losses < LOSSES_IN_A_ROW && self.chance.random_ratio(loss_ppm.min(1_000_000), 1_000_000) {
            losses += 1;
        }
        retransmission(self.properties) * losses
    }
}

/// Returns the delay of a packet that is lost once: the transport re-sends it after a round trip with the greatest
/// jitter, plus a millisecond.
pub fn retransmission(link: LinkProperties) -> Span {
    (link.latency + link.jitter) * 2 + Span::from_millis(1)
}

/// Returns the time that `bytes` take at `bandwidth` bytes per second.
fn transmission(bytes: u64, bandwidth: u64) -> Span {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth);
    Span(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(properties: LinkProperties) -> DelayLine<u32> {
        DelayLine::new(properties, 7, 0)
    }

    #[test]
    fn packets_queue_for_the_interface_whatever_their_receiver() {
        let properties =
            LinkProperties { latency: Span::from_millis(1), bandwidth: 1_000_000, ..Default::default() };
        let (mut one, mut other) = (line(properties), line(properties));
        let mut interface = Interface::default();
        assert_eq!(one.push(Time(0), 1000, &mut interface, 0), Time(2_000_000));
        assert_eq!(other.push(Time(0), 1000, &mut interface, 1), Time(3_000_000));
        let idle = Time(10_000_000);
        assert_eq!(one.push(idle, 500, &mut interface, 2), Time(11_500_000));
    }

    #[test]
    fn a_cut_holds_packets_and_healing_releases_them_in_order() {
        let mut line = line(LinkProperties { latency: Span::from_millis(1), ..Default::default() });
        let mut interface = Interface::default();
        line.push(Time(0), 1, &mut interface, 0);
        line.cut(true);
        line.push(Time(5), 1, &mut interface, 1);
        assert_eq!(line.next_due(), None);
        assert_eq!(line.pop(Time::NEVER), None);
        line.cut(false);
        assert_eq!(line.pop(Time(2_000_000)), Some(0));
        assert_eq!(line.pop(Time(2_000_000)), Some(1));
    }

    #[test]
    fn a_loss_delays_the_packet_by_a_retransmission() {
        let latency = Span::from_millis(5);
        let certain = LinkProperties { latency, loss_ppm: 1_000_000, ..Default::default() };
        let due = line(certain).push(Time(0), 1, &mut Interface::default(), 0);
        assert_eq!(due, Time(0) + latency + Span::from_millis(11) * LOSSES_IN_A_ROW);
        let rare = LinkProperties { loss_ppm: 100_000, ..Default::default() };
        let mut line = line(rare);
        let late = (0..10_000).filter(|_| line.retransmissions() > Span::ZERO).count();
        assert!((900..1100).contains(&late), "{late} of 10000 packets were lost at 10 %");
    }

    #[test]
    fn the_expected_arrival_depends_on_the_requested_latency() {
        let asked = Span::from_millis(10);
        let slow = LinkProperties { latency: asked * 5, ..Default::default() };
        let (mut line, mut interface) = (line(slow), Interface::default());
        assert_eq!(line.push(Time(0), 1, &mut interface, 0), Time(0) + asked * 5);
        assert_eq!(line.expected(asked), Time(0) + asked);
        // A later packet does not overtake those from before the change.
        let limited = LinkProperties { latency: asked, bandwidth: 1_000_000, ..Default::default() };
        line.set(limited);
        line.push(Time(1), 0, &mut interface, 1);
        assert_eq!(line.expected(asked), Time(0) + asked * 5);
        // Nor does it pass the interface before the packets that use the link's bandwidth.
        line.push(Time(1), 100_000, &mut interface, 2);
        line.push(Time(1), 0, &mut interface, 3);
        assert_eq!(line.expected(asked), Time(1) + Span::from_millis(100) + asked);
    }

    proptest! {
        #[test]
        fn the_expected_arrival_differs_from_the_actual_one_by_the_deviation_from_the_requested_latency(
            latency in 0u64..10_000_000,
            requested in 0u64..10_000_000,
            jitter in 0u64..10_000_000,
            bandwidth in prop_oneof![Just(0u64), 1_000u64..1_000_000_000],
            loss_ppm in 0u32..500_000,
            packets in prop::collection::vec((0u64..2_000_000, 0u64..10_000), 1..60),
        ) {
            let (latency, jitter) = (Span(latency), Span(jitter.min(latency)));
            let mut line = line(LinkProperties { latency, jitter, bandwidth, loss_ppm });
            let (mut interface, mut now) = (Interface::default(), Time(0));
            for (gap, bytes) in packets {
                now += Span(gap);
                let due = line.push(now, bytes, &mut interface, 0);
                prop_assert_eq!(line.expected(latency), due);
                let by_request = (due + Span(requested)).0.saturating_sub(latency.0);
                prop_assert_eq!(line.expected(Span(requested)), Time(by_request));
            }
        }

        #[test]
        fn packets_leave_in_order_and_never_early(
            latency in 0u64..10_000_000,
            jitter in 0u64..10_000_000,
            bandwidth in prop_oneof![Just(0u64), 1_000u64..1_000_000_000],
            packets in prop::collection::vec((0u64..2_000_000, 0u64..100_000), 1..60),
        ) {
            let properties =
                LinkProperties { latency: Span(latency), jitter: Span(jitter), bandwidth, loss_ppm: 0 };
            let mut line = line(properties);
            let mut interface = Interface::default();
            let mut now = Time(0);
            let mut before = Time(0);
            for (n, &(gap, bytes)) in packets.iter().enumerate() {
                now += Span(gap);
                let due = line.push(now, bytes, &mut interface, n as u32);
                prop_assert!(due >= before);
                let least = Span(latency) - Span(jitter);
                let out = if bandwidth == 0 { Span::ZERO } else { transmission(bytes, bandwidth) };
                prop_assert!(due >= now + out + least);
                before = due;
            }
            for n in 0..packets.len() as u32 {
                let due = line.next_due().unwrap();
                if due > Time(0) {
                    prop_assert_eq!(line.pop(Time(due.0 - 1)), None);
                }
                prop_assert_eq!(line.pop(due), Some(n));
            }
            prop_assert!(line.is_empty());
        }

        #[test]
        fn jitter_stays_within_its_half_width(latency in 0u64..1_000_000, jitter in 0u64..1_000_000, seed: u64) {
            let properties =
                LinkProperties { latency: Span(latency), jitter: Span(jitter), ..Default::default() };
            let mut line = DelayLine::<()>::new(properties, seed, 0);
            for _ in 0..20 {
                let delay = line.propagation().0;
                prop_assert!(delay >= latency.saturating_sub(jitter) && delay <= latency + jitter);
            }
        }
    }
}
