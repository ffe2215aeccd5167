//! One direction of one pair of processes.

use std::collections::VecDeque;

use faultline_core::fault::LinkProperties;
use faultline_core::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What a lost packet waits at least before its sender notices: the floor that Linux puts under TCP's retransmission
/// timeout.
const RETRANSMISSION_FLOOR: Span = Span::from_millis(200);
/// Losses in a row that are charged; more would stall a link rather than emulate it.
const LOSSES_IN_A_ROW: u32 = 6;

/// Holds what is sent from one process to another until the emulated link would have carried it.
///
/// Packets leave in the order in which they came, whatever the jitter: the pair talks over one ordered stream.
#[derive(Clone, Debug)]
pub struct DelayLine<T> {
    properties: LinkProperties,
    cut: bool,
    /// When the sender's side of the link has pushed out everything given to it so far.
    free: Time,
    /// When the newest packet leaves; nothing later leaves before.
    newest: Time,
    queue: VecDeque<(Time, T)>,
    chance: ChaCha8Rng,
}

impl<T> DelayLine<T> {
    /// A line whose jitter and losses come from `seed`; lines with different `stream` draw independently.
    pub fn new(properties: LinkProperties, seed: u64, stream: u64) -> Self {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        chance.set_stream(stream);
        DelayLine {
            properties,
            cut: false,
            free: Time::ZERO,
            newest: Time::ZERO,
            queue: VecDeque::new(),
            chance,
        }
    }

    /// Gives a packet of `bytes` to the link; says when it leaves, unless the link is cut by then.
    pub fn push(&mut self, now: Time, bytes: u64, packet: T) -> Time {
        self.free = self.free.max(now) + transmission(bytes, self.properties.bandwidth);
        let arrival = self.free + self.propagation() + self.retransmissions();
        self.newest = self.newest.max(arrival);
        self.queue.push_back((self.newest, packet));
        self.newest
    }

    /// The oldest packet, once its time has come.
    pub fn pop(&mut self, now: Time) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, packet)| packet)
    }

    /// When [`DelayLine::pop`] will have something; `None` when it is empty or cut.
    pub fn next_due(&self) -> Option<Time> {
        if self.cut { None } else { self.queue.front().map(|&(due, _)| due) }
    }

    /// Changes the link for what is sent from now on.
    pub fn set(&mut self, properties: LinkProperties) {
        self.properties = properties;
    }

    /// Cuts the link (`true`): nothing leaves until it is healed, and nothing is lost.
    pub fn cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Whether it is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Forgets what is under way: one of its ends is gone.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.free = Time::ZERO;
        self.newest = Time::ZERO;
    }

    /// Packets under way.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
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

    /// Each loss in a row doubles the timeout, as TCP does.
    fn retransmissions(&mut self) -> Span {
        let LinkProperties { latency, loss_ppm, .. } = self.properties;
        if loss_ppm == 0 {
            return Span::ZERO;
        }
        let mut timeout = RETRANSMISSION_FLOOR + latency * 2;
        let mut delay = Span::ZERO;
        for _ in 0..LOSSES_IN_A_ROW {
            if !self.chance.random_ratio(loss_ppm.min(1_000_000), 1_000_000) {
                break;
            }
            delay = delay + timeout;
            timeout = timeout * 2;
        }
        delay
    }
}

/// How long `bytes` take at `bandwidth` bytes per second, of which 0 is unlimited.
fn transmission(bytes: u64, bandwidth: u64) -> Span {
    if bandwidth == 0 {
        return Span::ZERO;
    }
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
    fn bandwidth_is_charged_one_packet_after_the_other() {
        let properties =
            LinkProperties { latency: Span::from_millis(1), bandwidth: 1_000_000, ..Default::default() };
        let mut line = line(properties);
        assert_eq!(line.push(Time(0), 1000, 0), Time(2_000_000));
        assert_eq!(line.push(Time(0), 1000, 1), Time(3_000_000));
        let idle = Time(10_000_000);
        assert_eq!(line.push(idle, 500, 2), Time(11_500_000));
    }

    #[test]
    fn a_cut_holds_and_a_heal_releases_in_order() {
        let mut line = line(LinkProperties { latency: Span::from_millis(1), ..Default::default() });
        line.push(Time(0), 1, 0);
        line.cut(true);
        line.push(Time(5), 1, 1);
        assert_eq!(line.next_due(), None);
        assert_eq!(line.pop(Time::NEVER), None);
        line.cut(false);
        assert_eq!(line.pop(Time(2_000_000)), Some(0));
        assert_eq!(line.pop(Time(2_000_000)), Some(1));
    }

    #[test]
    fn a_loss_is_a_retransmission_timeout() {
        let certain = LinkProperties { loss_ppm: 1_000_000, ..Default::default() };
        let due = line(certain).push(Time(0), 1, 0);
        let doubled: u64 = (0..LOSSES_IN_A_ROW).map(|n| RETRANSMISSION_FLOOR.0 << n).sum();
        assert_eq!(due, Time(doubled));
        let rare = LinkProperties { loss_ppm: 100_000, ..Default::default() };
        let mut line = line(rare);
        let late = (0..10_000).filter(|_| line.retransmissions() > Span::ZERO).count();
        assert!((900..1100).contains(&late), "{late} of 10000 packets were lost at 10 %");
    }

    proptest! {
        #[test]
        fn packets_leave_in_order_and_neither_early_nor_never(
            latency in 0u64..10_000_000,
            jitter in 0u64..10_000_000,
            bandwidth in prop_oneof![Just(0u64), 1_000u64..1_000_000_000],
            packets in prop::collection::vec((0u64..2_000_000, 0u64..100_000), 1..60),
        ) {
            let properties =
                LinkProperties { latency: Span(latency), jitter: Span(jitter), bandwidth, loss_ppm: 0 };
            let mut line = line(properties);
            let mut now = Time(0);
            let mut before = Time(0);
            for (n, &(gap, bytes)) in packets.iter().enumerate() {
                now += Span(gap);
                let due = line.push(now, bytes, n as u32);
                prop_assert!(due >= before);
                prop_assert!(due >= now + transmission(bytes, bandwidth) + (Span(latency) - Span(jitter)));
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
