//! Finds the setting with the best value of a quantity, and determines how certain this is.

use super::Sweep;
use crate::compare::estimate::Estimate;
use crate::compare::quantity::Quantity;

/// The best setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The index of the setting with the best mean.
    pub setting: usize,
    /// The mean at this setting.
    pub mean: f64,
    /// Other settings that these seeds cannot distinguish from the best one: the interval of the difference,
    /// seed by seed, contains zero.
    pub ties: Vec<usize>,
    /// The setting with the best mean among those that are worse with 95 % confidence, and how much worse it is than the
    /// best one.
    pub next: Option<(usize, Estimate)>,
    /// Settings that are excluded, because they have no runs, or a run that is not
    /// [sound](super::Measured::is_sound).
    pub excluded: Vec<usize>,
}

/// Finds the setting with the best mean of `quantity`. Considers only settings whose runs all completed, and either
/// passed or had no fault. Returns `None` if no run of these settings has the quantity.
///
/// Two settings are compared by the mean difference between their runs with the same seed. Its interval covers the true
/// difference with a confidence of 95 % (Student's t). With few seeds, nothing is certain, and every other setting is a
/// tie.
pub fn best(sweep: &Sweep, quantity: &Quantity) -> Option<Best> {
    let settings = 0..sweep.plan.settings.len();
    let (sound, excluded): (Vec<usize>, Vec<usize>) =
        settings.partition(|&it| sweep.of(it).next().is_some() && sweep.of(it).all(|run| run.is_sound()));
    let mean = |setting: usize| Some(sweep.estimate(setting, quantity)?.mean());
    let mut ranked: Vec<(usize, f64)> = sound.into_iter().filter_map(|it| Some((it, mean(it)?))).collect();
    let sign = if quantity.rises() { -1.0 } else { 1.0 };
    ranked.sort_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)));
    let (&(setting, mean), others) = ranked.split_first()?;
    let (mut ties, mut next) = (Vec::new(), None);
    for &(other, _) in others {
        let difference = Estimate::of(differences(sweep, quantity, setting, other).map(|it| sign * it));
        match difference.filter(|it| it.half_width.is_some_and(|half| it.mean() > half)) {
            Some(certain) => next = next.or(Some((other, certain))),
            None => ties.push(other),
        }
    }
    Some(Best { setting, mean, ties, next, excluded })
}

/// Returns by how much `other` exceeds `setting`, for every seed that both have.
fn differences(
    sweep: &Sweep,
    quantity: &Quantity,
    setting: usize,
    other: usize,
) -> impl Iterator<Item = f64> {
    let value = |setting: usize, seed: u64| {
        sweep.of(setting).find(|it| it.seed == seed)?.values.get(quantity.name).copied()
    };
    let seeds = sweep.of(setting).map(|it| it.seed);
    seeds.filter_map(move |seed| Some(value(other, seed)? - value(setting, seed)?))
}
