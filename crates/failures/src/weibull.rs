//! Fits of the Weibull and the exponential distribution to times between faults.

use serde::Serialize;

/// The relative precision of the shape.
const PRECISION: f64 = 1e-9;

/// The Weibull distribution that fits best, and how far it and the exponential distribution are off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Weibull {
    /// The shape; 1 if the distribution is exponential, less if faults come in bursts.
    pub shape: f64,
    /// The scale, in seconds.
    pub scale_seconds: f64,
    /// The Kolmogorov-Smirnov distance between the gaps and this distribution.
    pub deviation: f64,
    /// The same distance for the exponential distribution with the mean of the gaps.
    pub exponential_deviation: f64,
}

impl Weibull {
    /// Fits the distribution by maximum likelihood. `gaps` are ascending and above 0, in seconds. Returns `None` if
    /// fewer than two gaps differ.
    pub(crate) fn fit(gaps: &[f64]) -> Option<Weibull> {
        let (least, most) = (*gaps.first()?, *gaps.last()?);
        if least == most {
            return None;
        }
        let groups: Vec<Group> = gaps
            .chunk_by(|one, other| one == other)
            .map(|it| Group { gap: it[0], log: (it[0] / most).ln(), count: it.len() as f64 })
            .collect();
        let count = gaps.len() as f64;
        let mean_log = groups.iter().map(|it| it.count * it.log).sum::<f64>() / count;
        // The sums of gap^shape, and of gap^shape ln(gap), relative to the largest gap.
        let sums = |shape: f64| {
            groups.iter().fold((0.0, 0.0), |(powers, logs), it| {
                let power = it.count * (shape * it.log).exp();
                (powers + power, logs + power * it.log)
            })
        };
        // The derivative of the profile likelihood has the opposite sign. It increases with the shape.
        let profile = |shape: f64| {
            let (powers, logs) = sums(shape);
            logs / powers - 1.0 / shape - mean_log
        };
        let (mut low, mut high) = (1.0, 1.0);
        while profile(low) > 0.0 {
            low /= 2.0;
        }
        while profile(high) < 0.0 && high < 1e12 {
            high *= 2.0;
        }
        while high - low > PRECISION * high {
            let middle = low.midpoint(high);
            if profile(middle) < 0.0 { low = middle } else { high = middle }
        }
        let shape = low.midpoint(high);
        let scale_seconds = most * (sums(shape).0 / count).powf(1.0 / shape);
        let mean = gaps.iter().sum::<f64>() / count;
        let fit = Weibull { shape, scale_seconds, deviation: 0.0, exponential_deviation: 0.0 };
        Some(Weibull {
            deviation: deviation(&groups, count, |it| fit.share_up_to(it)),
            exponential_deviation: deviation(&groups, count, |it| exponential(it, mean)),
            ..fit
        })
    }

    /// Returns the share of gaps of at most `seconds` under this distribution.
    pub fn share_up_to(&self, seconds: f64) -> f64 {
        -(-(seconds / self.scale_seconds).powf(self.shape)).exp_m1()
    }
}

/// Returns the share of gaps of at most `seconds` under the exponential distribution with this mean.
pub(crate) fn exponential(seconds: f64, mean: f64) -> f64 {
    -(-seconds / mean).exp_m1()
}

/// Equal gaps.
struct Group {
    gap: f64,
    /// The logarithm of the gap, relative to the largest one.
    log: f64,
    count: f64,
}

/// Returns the Kolmogorov-Smirnov distance between the gaps and a distribution.
fn deviation(groups: &[Group], count: f64, share_up_to: impl Fn(f64) -> f64) -> f64 {
    let mut before = 0.0;
    let mut most = 0.0_f64;
    for it in groups {
        let expected = share_up_to(it.gap);
        let after = before + it.count;
        most = most.max((expected - before / count).abs()).max((after / count - expected).abs());
        before = after;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the quantiles of a Weibull distribution, which are as regular as a sample can be.
    fn quantiles(shape: f64, scale: f64, count: u32) -> Vec<f64> {
        (0..count)
            .map(|it| {
                let share = (f64::from(it) + 0.5) / f64::from(count);
                scale * (-(1.0 - share).ln()).powf(1.0 / shape)
            })
            .collect()
    }

    #[test]
    fn the_fit_finds_the_distribution() {
        for (shape, scale) in [(0.5, 3.0), (1.0, 3600.0), (2.5, 1e6)] {
            let fit = Weibull::fit(&quantiles(shape, scale, 20_000)).unwrap();
            assert!((fit.shape / shape - 1.0).abs() < 2e-3, "{fit:?}");
            assert!((fit.scale_seconds / scale - 1.0).abs() < 2e-3, "{fit:?}");
            assert!(fit.deviation < 1e-3, "{fit:?}");
        }
        let exponential = Weibull::fit(&quantiles(1.0, 10.0, 20_000)).unwrap();
        assert!(exponential.exponential_deviation < 1e-3);
        assert!(Weibull::fit(&quantiles(0.5, 10.0, 2000)).unwrap().exponential_deviation > 0.15);
    }

    #[test]
    fn equal_or_missing_gaps_have_no_fit() {
        assert_eq!(Weibull::fit(&[]), None);
        assert_eq!(Weibull::fit(&[5.0]), None);
        assert_eq!(Weibull::fit(&[5.0, 5.0, 5.0]), None);
    }

    #[test]
    fn gaps_of_very_different_size_have_a_fit() {
        let fit = Weibull::fit(&[1e-9, 9e9]).unwrap();
        assert!(fit.shape.is_finite() && fit.scale_seconds.is_finite(), "{fit:?}");
        let fit = Weibull::fit(&[1.0, 1.0 + 1e-12]).unwrap();
        assert!(fit.shape.is_finite() && fit.scale_seconds.is_finite(), "{fit:?}");
    }
}
