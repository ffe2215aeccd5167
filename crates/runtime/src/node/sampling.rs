//! The echoes that measure a link: their number, the time between them, and what their median shows.
//!
//! A node's own delay line predicts when each echo arrives, including the jitter and losses that it has drawn. A few
//! echoes are then enough, whatever the link's properties are. The kernel draws jitter and losses of its own, so a link
//! that it emulates needs more echoes, further apart, and the median of their delays remains uncertain.

use faultline_core::fault::LinkProperties;
use faultline_core::{Span, Time};
use faultline_shaper::{DelayLine, Interface};

/// Number of echoes over a link whose delays are predicted.
const SAMPLES: u64 = 51;
/// Number of echoes over a link whose delays and losses are predicted. Each loss delays all echoes that follow.
const SAMPLES_WITH_LOSS: u64 = 21;
/// Largest number of echoes over a link on which the kernel emulates jitter, and the smallest number over any link.
const MOST_SAMPLES: u64 = 401;
const LEAST_SAMPLES: u64 = 11;
/// Minimum time between two echoes, so that a program that keeps a core busy for a few milliseconds delays only a few of
/// them.
const APART: Span = Span::from_millis(2);
/// Maximum time from the first to the last echo.
const LONGEST: Span = Span::from_secs(4);
/// Number of bytes that an echo, its response and their acknowledgements occupy on a link.
const ECHO_BYTES: u64 = 512;
/// Number of standard deviations of the median within which a link is as requested.
const CERTAINTY: f64 = 4.0;
/// Number of simulated measurements that show where the median lies.
const TRIALS: u64 = 200;

/// A plan for measuring a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampling {
    /// Number of echoes in a round.
    pub(super) samples: u32,
    /// Time between two echoes.
    pub(super) apart: Span,
    /// Share of echoes that the kernel loses, in parts per million.
    lost_ppm: u32,
    /// Nanoseconds by which the median exceeds the latency, because packets keep their order.
    bias: i64,
    /// Largest deviation of the median that can be due to chance.
    pub(super) uncertainty: Span,
}

impl Sampling {
    /// Plans the measurement of a link with the properties `requested`. The node's delay line emulates the properties
    /// `own`, and the kernel all others. `links` is the number of links that the node measures in parallel.
    pub(super) fn new(requested: LinkProperties, own: LinkProperties, links: usize) -> Sampling {
        let LinkProperties { latency, .. } = requested;
        let is_lossy = requested.loss_ppm > 0;
        let jitter = if own.jitter == Span::ZERO { requested.jitter } else { Span::ZERO };
        let lost_ppm = if own.loss_ppm == 0 { requested.loss_ppm } else { 0 };
        let bandwidth = if own.bandwidth == 0 { requested.bandwidth } else { 0 };
        // No echo waits for the previous one, not even if that one is lost.
        let recovery = if lost_ppm > 0 { (latency + jitter) * 2 } else { Span::ZERO };
        let transmission = Span((ECHO_BYTES * 1_000_000_000).checked_div(bandwidth).unwrap_or(0));
        let apart = (APART * links as u64).max(jitter * 2).max(recovery).max(transmission);
        let most = if jitter > Span::ZERO { MOST_SAMPLES } else { SAMPLES };
        let predicted = if is_lossy && lost_ppm == 0 { SAMPLES_WITH_LOSS } else { SAMPLES };
        let samples = match (jitter, lost_ppm, bandwidth) {
            (Span::ZERO, 0, 0) => predicted,
            _ => (LONGEST.0 / apart.0).clamp(LEAST_SAMPLES, most),
        };
        let apart = apart.min(Span(LONGEST.0 / samples));
        let (bias, uncertainty) = spread(LinkProperties { jitter, ..requested }, samples, apart);
        Sampling { samples: samples as u32, apart, lost_ppm, bias, uncertainty }
    }

    /// Returns the latency of a link whose echoes arrived by these deviations, in nanoseconds, from the times at which
    /// they were due on a link with the latency `requested`. Echoes that the kernel lost, and sent again, arrive last;
    /// the result is the median of the others.
    pub(super) fn latency(self, requested: Span, mut deviations: Vec<i64>) -> Span {
        deviations.sort_unstable();
        let arrived = deviations.len() as u64 * u64::from(1_000_000 - self.lost_ppm) / 1_000_000;
        let median = deviations[arrived as usize / 2];
        Span(requested.0.saturating_add_signed(median.saturating_sub(self.bias)))
    }
}

/// Returns by how many nanoseconds the median delay of echoes over a link exceeds its latency on average, and the
/// largest deviation from this average that can be due to chance. Responses to the echoes of the opposite direction
/// pass the link between these echoes.
fn spread(link: LinkProperties, samples: u64, apart: Span) -> (i64, Span) {
    if link.jitter == Span::ZERO {
        return (0, Span::ZERO);
    }
    let excess = |trial: u64| {
        let emulated = LinkProperties { bandwidth: 0, loss_ppm: 0, ..link };
        let (mut line, mut interface) = (DelayLine::new(emulated, trial, 0), Interface::default());
        let response = Span(apart.0 * trial / TRIALS);
        let mut delays: Vec<i64> = (0..samples)
            .map(|echo| {
                let sent = Time::ZERO + apart * echo;
                let delay = line.push(sent, 0, &mut interface, ()).since(sent).0.cast_signed();
                line.push(sent + response, 0, &mut interface, ());
                delay - link.latency.0.cast_signed()
            })
            .collect();
        delays.sort_unstable();
        delays[delays.len() / 2] as f64
    };
    let all: Vec<f64> = (0..TRIALS).map(excess).collect();
    let mean = all.iter().sum::<f64>() / TRIALS as f64;
    let variance = all.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / TRIALS as f64;
    (mean as i64, Span((CERTAINTY * variance.sqrt()) as u64).min(link.jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: LinkProperties =
        LinkProperties { latency: Span::ZERO, jitter: Span::ZERO, bandwidth: 0, loss_ppm: 0 };

    fn link(latency_ms: u64, jitter_percent: u64, loss_percent: u32, bandwidth: u64) -> LinkProperties {
        let latency = Span::from_millis(latency_ms);
        let jitter = Span(latency.0 * jitter_percent / 100);
        LinkProperties { latency, jitter, bandwidth, loss_ppm: loss_percent * 10_000 }
    }

    fn duration(sampling: Sampling) -> Span {
        sampling.apart * u64::from(sampling.samples)
    }

    #[test]
    fn a_link_that_the_node_emulates_needs_few_echoes_whatever_its_properties() {
        for (jitter, loss, bandwidth) in [(0, 0, 0), (100, 0, 0), (0, 50, 0), (100, 50, 1_000)] {
            let link = link(100, jitter, loss, bandwidth);
            let sampling = Sampling::new(link, link, 1);
            assert!(duration(sampling) <= Span::from_millis(102), "{sampling:?}");
            assert_eq!((sampling.bias, sampling.uncertainty), (0, Span::ZERO));
        }
    }

    #[test]
    fn every_round_ends_in_time_and_has_enough_echoes() {
        for latency in [0, 1, 5, 50, 500, 5_000] {
            for jitter in [0, 10, 100] {
                for (loss, bandwidth) in [(0, 0), (5, 0), (50, 0), (0, 1_000), (5, 10)] {
                    let link = link(latency, jitter, loss, bandwidth);
                    for own in [link, NOTHING, LinkProperties { bandwidth: 0, ..link }] {
                        let sampling = Sampling::new(link, own, 6);
                        assert!(duration(sampling) <= LONGEST, "{link:?} {sampling:?}");
                        assert!(u64::from(sampling.samples) >= LEAST_SAMPLES, "{link:?} {sampling:?}");
                    }
                }
            }
        }
    }

    /// Before, the median of echoes on a link whose jitter is 40 % of its latency was above the tolerance.
    #[test]
    fn the_median_is_corrected_for_packets_that_keep_their_order() {
        for (latency, jitter) in [(5, 40), (5, 100), (50, 40), (50, 100)] {
            let link = link(latency, jitter, 0, 0);
            let sampling = Sampling::new(link, NOTHING, 1);
            assert!(sampling.bias > 0 && sampling.uncertainty > Span::ZERO, "{sampling:?}");
            let mut outside = 0;
            for seed in 1000..1100 {
                let (mut line, mut interface) = (DelayLine::new(link, seed, 0), Interface::default());
                let deviations = (0..u64::from(sampling.samples)).map(|echo| {
                    let sent = Time::ZERO + sampling.apart * echo;
                    let due = line.push(sent, 0, &mut interface, ());
                    line.push(sent + Span(sampling.apart.0 * (seed % 100) / 100), 0, &mut interface, ());
                    due.since(sent).0.cast_signed() - link.latency.0.cast_signed()
                });
                let measured = sampling.latency(link.latency, deviations.collect());
                outside += u32::from(measured.0.abs_diff(link.latency.0) > sampling.uncertainty.0);
            }
            assert!(outside <= 1, "{outside} of 100 measurements of {link:?} are off: {sampling:?}");
        }
    }

    #[test]
    fn lost_echoes_do_not_move_the_median() {
        let link = link(5, 0, 30, 0);
        let sampling = Sampling::new(link, NOTHING, 1);
        let deviations = (0..100).map(|echo| if echo % 10 < 3 { 200_000_000 } else { echo });
        let measured = sampling.latency(link.latency, deviations.collect());
        assert!(measured.0 < 5_000_100, "{measured}");
    }
}
