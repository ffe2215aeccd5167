//! Series for charts of a failure trace, with a bounded number of points.

use faultline_core::{Span, Time};

use crate::weibull::exponential;
use crate::{FailureTrace, FaultRecord, Statistics, statistics};

/// The number of faults in a part of the trace, or of nodes that are down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The middle of the part, in seconds since the trace began.
    pub middle_seconds: f64,
    /// The number of faults, or the mean number of nodes.
    pub mean: f64,
    /// The smallest number at any time in the part.
    pub least: f64,
    /// The largest number at any time in the part.
    pub most: f64,
}

/// Divides the trace into equal parts. Returns their boundaries; there is one more than there are parts.
fn boundaries(trace: &FailureTrace, parts: u32) -> Vec<Time> {
    let first = trace.faults.first().map_or(Time::ZERO, |it| it.start);
    let span = u128::from(trace.last_event().since(first).0);
    let at = |part: u32| first + Span((span * u128::from(part) / u128::from(parts.max(1))) as u64);
    (0..=parts.max(1)).map(at).collect()
}

fn middle(part: &[Time]) -> f64 {
    part[0].as_secs_f64().midpoint(part[1].as_secs_f64())
}

/// Counts the faults in each of `parts` equal parts of the trace.
pub fn faults(trace: &FailureTrace, parts: u32) -> Vec<Part> {
    let boundaries = boundaries(trace, parts);
    let before = |time: Time| trace.faults.partition_point(|it| it.start < time);
    let last = boundaries.len() - 2;
    let part = |(index, it): (usize, &[Time])| {
        // The last part includes its end.
        let end = if index == last { trace.faults.len() } else { before(it[1]) };
        let count = (end - before(it[0])) as f64;
        Part { middle_seconds: middle(it), mean: count, least: count, most: count }
    };
    boundaries.windows(2).enumerate().map(part).collect()
}

/// Computes how many nodes are down in each of `parts` equal parts of the trace.
pub fn down(trace: &FailureTrace, parts: u32) -> Vec<Part> {
    let changes = statistics::down(trace);
    let mut next = 0;
    let mut number = 0;
    let boundaries = boundaries(trace, parts);
    let part = |it: &[Time]| {
        let (mut since, mut sum, mut range) = (it[0], 0.0, None::<(u32, u32)>);
        let mut add = |number: u32, since: Time, until: Time| {
            let time = until.since(since);
            if time > Span::ZERO {
                sum += f64::from(number) * time.as_secs_f64();
                let (least, most) = range.unwrap_or((number, number));
                range = Some((least.min(number), most.max(number)));
            }
        };
        while let Some(&(at, then)) = changes.get(next).filter(|(at, _)| *at < it[1]) {
            add(number, since, at.max(since));
            (since, number, next) = (at.max(since), then, next + 1);
        }
        add(number, since, it[1]);
        let (least, most) = range.unwrap_or((number, number));
        let length = it[1].since(it[0]).as_secs_f64();
        let mean = if length > 0.0 { sum / length } else { f64::from(number) };
        Part { middle_seconds: middle(it), mean, least: least.into(), most: most.into() }
    };
    boundaries.windows(2).map(part).collect()
}

/// Points of a distribution: a duration in seconds, and the share of values of at most this duration.
pub type Distribution = Vec<(f64, f64)>;

/// The gaps above 0, and the distributions fitted to them, at the same durations.
#[derive(Clone, Debug)]
pub struct GapDistribution {
    /// The gaps.
    pub measured: Distribution,
    /// The Weibull distribution.
    pub weibull: Distribution,
    /// The exponential distribution with the same mean.
    pub exponential: Distribution,
}

/// Returns the distribution of the gaps above 0. Returns `None` if no distribution could be fitted.
pub fn gaps(trace: &FailureTrace, statistics: &Statistics, points: u32) -> Option<GapDistribution> {
    let fit = statistics.weibull?;
    let mut gaps = statistics::gaps(&trace.faults);
    gaps.retain(|it| *it > Span::ZERO);
    gaps.sort_unstable();
    let mean = gaps.iter().map(|it| it.as_secs_f64()).sum::<f64>() / gaps.len() as f64;
    let measured = distribution(&gaps, points);
    let at = |share: &dyn Fn(f64) -> f64| measured.iter().map(|it| (it.0, share(it.0))).collect();
    Some(GapDistribution {
        weibull: at(&|it| fit.share_up_to(it)),
        exponential: at(&|it| exponential(it, mean)),
        measured,
    })
}

/// Returns the distribution of the known repair times above 0.
pub fn repairs(trace: &FailureTrace, points: u32) -> Distribution {
    let all: std::slice::Iter<'_, FaultRecord> = trace.faults.iter();
    let mut known = statistics::repairs(all);
    known.retain(|it| *it > Span::ZERO);
    distribution(&known, points)
}

/// Evaluates a distribution at durations with equal ratios.
fn distribution(sorted: &[Span], points: u32) -> Distribution {
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let (low, high) = (least.as_secs_f64().ln(), most.as_secs_f64().ln());
    let steps = points.max(2) - 1;
    let at = |step: u32| (low + (high - low) * f64::from(step) / f64::from(steps)).exp();
    let share = |seconds: f64| {
        // Rounding must not exclude the value itself.
        let up_to = sorted.partition_point(|it| it.as_secs_f64() <= seconds * (1.0 + 1e-9));
        up_to as f64 / sorted.len() as f64
    };
    (0..=steps).map(at).map(|it| (it, share(it))).collect()
}
