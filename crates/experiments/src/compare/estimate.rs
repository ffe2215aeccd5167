//! A mean over runs, with its uncertainty.

use serde::Serialize;

use crate::measures::Spread;

/// The number of runs below which no interval is shown: Student's interval would be much wider than the range of
/// the runs, and less informative than the runs themselves.
pub const FEW: usize = 5;

/// A mean over runs with different seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The mean, the standard deviation and the range.
    #[serde(flatten)]
    pub spread: Spread,
    /// Half the width of the interval that covers the true mean with 95 % confidence (Student's t); absent
    /// for fewer than [`FEW`] runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Estimates the mean from the values of runs; `None` if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        let spread = Spread::of(values);
        let runs = spread.runs;
        let half_width = (runs >= FEW).then(|| student(runs - 1) * spread.deviation / (runs as f64).sqrt());
        (runs > 0).then_some(Estimate { spread, half_width })
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        self.spread.mean
    }
}

/// Returns the 97.5 % quantile of Student's t distribution. For degrees of freedom between two entries of the table,
/// returns the quantile of the smaller one, which is conservative.
fn student(degrees: usize) -> f64 {
    const FIRST: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    match degrees {
        1..=30 => FIRST[degrees - 1],
        31..60 => 2.042,
        60..120 => 2.000,
        _ => 1.980,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_students_t_distribution() {
        let estimate = Estimate::of([9.0, 11.0, 10.0, 9.0, 11.0]).expect("there are five values");
        // The deviation is 1, and the quantile for four degrees of freedom is 2.776.
        let expected = 2.776 / 5.0_f64.sqrt();
        assert_eq!(estimate.mean(), 10.0);
        assert!((estimate.half_width.expect("enough") - expected).abs() < 1e-12, "{estimate:?}");
        assert_eq!(Estimate::of([4.0, 5.0, 6.0, 5.0]).expect("there are four values").half_width, None);
        assert_eq!(Estimate::of([]), None);
    }
}
