//! The values at which the best protocol changes.
//!
//! At each value of the parameter, the best protocol has the highest mean goodput. If two different protocols are best at
//! two adjacent values, the mean difference of their goodput, seed by seed, has opposite signs there. It is interpolated
//! linearly between them, in the logarithm of the parameter if both values are above zero. The interval and its certainty
//! come from resampling the seeds with replacement.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Curve;
use crate::compare::estimate::Estimate;

/// The number of times that the seeds are resampled.
pub const RESAMPLES: usize = 1000;
/// The number of seeds below which no interval is stated: it would cover the true value too rarely.
pub const ENOUGH: usize = 20;
/// The share of the resamples that must cross for the seeds to decide which protocol is better on which side.
const DECISIVE: f64 = 0.95;

/// A change of the best protocol between two adjacent values.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossing {
    /// The index of the lower value; the other one is the next.
    pub after: usize,
    /// The index of the curve that is the best one at the lower value.
    pub below: usize,
    /// The index of the curve that is the best one at the upper value.
    pub above: usize,
    /// The break-even value.
    pub value: f64,
    /// The interval that covers the true break-even value in 95 % of cases; `None` with fewer seeds than [`ENOUGH`], or if
    /// the seeds do not decide.
    pub interval: Option<(f64, f64)>,
    /// The number of resamples in which the two curves cross between the two values.
    pub crossing: usize,
}

impl Crossing {
    /// Returns whether the seeds decide which protocol is better on which side.
    pub fn is_decided(&self) -> bool {
        self.crossing as f64 >= DECISIVE * RESAMPLES as f64
    }
}

/// The best protocol at one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Best {
    /// The index of its curve.
    pub(crate) curve: usize,
    /// The curves from which the seeds cannot distinguish it.
    pub(crate) ties: Vec<usize>,
}

/// Returns the best protocol at the value with this index.
pub(crate) fn best(curves: &[Curve], setting: usize) -> Option<Best> {
    let mean = |it: &usize| curves[*it].points[setting].estimate().map(Estimate::mean);
    let known: Vec<usize> = (0..curves.len()).filter(|it| mean(it).is_some()).collect();
    // The first of several equal protocols is the best one.
    let curve = known
        .iter()
        .copied()
        .rev()
        .max_by(|a, b| mean(a).partial_cmp(&mean(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let is_tie = |other: &usize| {
        let differences = differences(curves, curve, *other, &[setting]);
        let estimate = Estimate::of(differences.into_iter().map(|it| it[0]));
        estimate.is_none_or(|it| it.half_width.is_none_or(|half| it.mean() <= half))
    };
    let ties = known.into_iter().filter(|it| *it != curve).filter(is_tie).collect();
    Some(Best { curve, ties })
}

/// Returns the differences in goodput between two protocols at these values, for each seed with results of both protocols
/// at all of the values.
fn differences<const N: usize>(
    curves: &[Curve],
    one: usize,
    other: usize,
    settings: &[usize; N],
) -> Vec<[f64; N]> {
    let of = |curve: usize, setting: usize| &curves[curve].points[setting].goodput;
    let difference =
        |seed: &u64, setting: usize| Some(of(one, setting).get(seed)? - of(other, setting).get(seed)?);
    let seeds = of(one, settings[0]).keys();
    let all = seeds.filter_map(|seed| {
        let each = settings.map(|it| difference(seed, it));
        each.iter().all(Option::is_some).then(|| each.map(Option::unwrap_or_default))
    });
    all.collect()
}

/// Returns all changes of the best protocol over ascending values.
pub(crate) fn crossings(values: &[f64], curves: &[Curve], seed: u64) -> Vec<Crossing> {
    let between = |after: usize| {
        let [below, above] = [after, after + 1].map(|it| best(curves, it));
        let (below, above) = (below?.curve, above?.curve);
        let ends = [values[after], values[after + 1]];
        let differences = differences(curves, below, above, &[after, after + 1]);
        let (value, found) = crossing(ends, &differences, seed).filter(|_| below != above)?;
        let it = Crossing { after, below, above, value, interval: None, crossing: found.len() };
        let has_interval = differences.len() >= ENOUGH && it.is_decided();
        Some(Crossing { interval: interval(&found).filter(|_| has_interval), ..it })
    };
    (0..values.len().saturating_sub(1)).filter_map(between).collect()
}

/// Returns the value between `ends` at which the mean difference becomes negative, and the same values of those resamples
/// that have one, in ascending order. Returns `None` if the mean difference does not become negative.
fn crossing(ends: [f64; 2], differences: &[[f64; 2]], seed: u64) -> Option<(f64, Vec<f64>)> {
    let value = between(ends, mean(differences.iter()))?;
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let count = differences.len() as u64;
    let mut resample = || {
        let drawn = (0..differences.len()).map(|_| &differences[chance.random_range(0..count) as usize]);
        between(ends, mean(drawn))
    };
    let mut found: Vec<f64> = (0..RESAMPLES).filter_map(|_| resample()).collect();
    found.sort_by(f64::total_cmp);
    Some((value, found))
}

/// Returns the interval between the 2.5 % and the 97.5 % quantile of ascending values.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    quantile(sorted, 0.025).zip(quantile(sorted, 0.975))
}

fn mean<'a>(differences: impl ExactSizeIterator<Item = &'a [f64; 2]>) -> [f64; 2] {
    let count = differences.len() as f64;
    differences.fold([0.0; 2], |sum, it| [sum[0] + it[0] / count, sum[1] + it[1] / count])
}

/// Interpolates the value at which a difference is zero. It is above zero at the first value, and below at the second.
fn between([from, to]: [f64; 2], [first, last]: [f64; 2]) -> Option<f64> {
    if first < 0.0 || last > 0.0 || first <= last {
        return None;
    }
    let share = first / (first - last);
    Some(if from > 0.0 { from * (to / from).powf(share) } else { from + (to - from) * share })
}

/// Returns a quantile of ascending values, interpolated linearly between the two nearest ones.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (lower, upper) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(lower + (upper - lower) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws differences of a toy with a break-even value of 10 between the values 5 and 40: on average, the difference
    /// falls by 3 with each doubling of the value.
    fn toy(seeds: usize, chance: &mut ChaCha8Rng) -> Vec<[f64; 2]> {
        let mut noise = || (0..12).map(|_| chance.random_range(0.0..1.0)).sum::<f64>() - 6.0;
        (0..seeds).map(|_| [3.0 + 2.0 * noise(), -6.0 + 4.0 * noise()]).collect()
    }

    #[test]
    fn the_interval_covers_the_break_even_value_of_a_toy() {
        let mut chance = ChaCha8Rng::seed_from_u64(3);
        let (mut covered, mut sum) = (0, 0.0);
        for seed in 0..200 {
            let (value, found) =
                crossing([5.0, 40.0], &toy(20, &mut chance), seed).expect("the curves cross");
            let (low, high) = interval(&found).expect("the resamples cross");
            assert!(low <= value && value <= high && found.len() > 900, "{low} {value} {high}");
            covered += u32::from(low <= 10.0 && 10.0 <= high);
            sum += value;
        }
        assert!((176..=199).contains(&covered), "{covered} of 200");
        assert!((sum / 200.0 - 10.0).abs() < 0.5, "{sum}");
    }

    #[test]
    fn curves_that_touch_or_stay_apart_do_not_cross() {
        assert_eq!(between([1.0, 100.0], [2.0, -2.0]).map(|it| (it * 1e6).round()), Some(1e7), "geometric");
        assert_eq!(between([0.0, 100.0], [2.0, -2.0]), Some(50.0), "arithmetic from zero");
        assert_eq!(between([1.0, 100.0], [2.0, 1.0]), None);
        assert_eq!(between([1.0, 100.0], [0.0, 0.0]), None);
        let undecided: Vec<[f64; 2]> =
            (0..20).map(|it| if it % 2 == 0 { [10.0, -1.0] } else { [-9.0, -1.0] }).collect();
        let (_, found) = crossing([1.0, 2.0], &undecided, 1).expect("the means cross");
        assert!((500..900).contains(&found.len()), "{}", found.len());
    }
}
