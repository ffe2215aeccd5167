//! The spread of a value over several runs, and numbers in as few digits as are useful.

use serde::Serialize;

/// The spread of a value over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// The number of runs that have a value.
    pub runs: usize,
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation (with the number of runs minus one as the divisor).
    pub deviation: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
}

impl Spread {
    /// Computes the spread of values. All fields are zero if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.into_iter().collect();
        let runs = values.len();
        if runs == 0 {
            return Spread::default();
        }
        let mean = values.iter().sum::<f64>() / runs as f64;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        Spread {
            runs,
            mean,
            deviation: if runs > 1 { (squares / (runs - 1) as f64).sqrt() } else { 0.0 },
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Returns whether the mean lies within `tolerance` of `value`. The range is not considered: it can only widen as
    /// runs are added, so a check against it would become weaker with more seeds.
    pub fn is_near(&self, value: f64, tolerance: f64) -> bool {
        self.runs > 0 && (self.mean - value).abs() <= tolerance
    }

    /// Returns twice the standard error of the mean, which decreases as the number of runs grows. About 95 % of such
    /// means lie within this distance of the true mean.
    pub fn uncertainty(&self) -> f64 {
        2.0 * self.deviation / (self.runs.max(1) as f64).sqrt()
    }

    /// Formats the mean, and the range if there is one: `10.3 [9..11]`.
    pub fn text(&self) -> String {
        if self.runs == 0 {
            return "-".to_owned();
        }
        if self.least == self.most {
            return short(self.mean);
        }
        format!("{} [{}..{}]", short(self.mean), short(self.least), short(self.most))
    }
}

/// Formats a number with as many digits as are useful.
pub fn short(value: f64) -> String {
    let text = match value.abs() {
        it if it >= 100.0 => format!("{value:.0}"),
        it if it >= 10.0 => format!("{value:.1}"),
        it if it >= 0.01 || it == 0.0 => format!("{value:.2}"),
        // A nonzero number is never shown as zero.
        it if it >= 1e-6 => format!("{value:.0$}", (1.0 - it.log10().floor()) as usize),
        _ => format!("{value:.0e}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_runs_do_not_bring_a_mean_nearer_by_widening_its_range() {
        let few = vec![10.0, 11.0];
        let many = [&few[..], &[0.0, 21.0, 5.0, 16.0]].concat();
        let (few, many) = (Spread::of(few), Spread::of(many));
        assert!(
            few.most < 13.0 && (many.least..=many.most).contains(&13.0),
            "the range now contains the value"
        );
        assert!(!few.is_near(13.0, 2.0) && !many.is_near(13.0, 2.0));
        assert!(few.is_near(12.0, 2.0) && many.is_near(12.0, 2.0));
        assert!(!Spread::of([]).is_near(0.0, 1.0), "without values, the mean is near no number");
        // Repeating the same runs gives no new evidence about the mean, but reduces its uncertainty.
        let twice = Spread::of([10.0, 11.0, 10.0, 11.0]);
        assert!(twice.uncertainty() < few.uncertainty());
    }

    #[test]
    fn spreads_are_formatted_briefly() {
        let spread = Spread::of([9.0, 11.0, 11.0]);
        assert_eq!((spread.runs, spread.least, spread.most), (3, 9.0, 11.0));
        assert!((spread.deviation - 1.1547).abs() < 1e-4, "{spread:?}");
        assert_eq!(spread.text(), "10.3 [9..11]");
        assert!((spread.uncertainty() - 2.0 * 1.1547 / 3_f64.sqrt()).abs() < 1e-4, "{spread:?}");
        assert_eq!(Spread::of([8.0, 8.0]).text(), "8");
        assert_eq!(Spread::of([0.25]).text(), "0.25");
        assert_eq!(Spread::of([]).text(), "-");
        assert_eq!([short(2920.0), short(0.0), short(100.04), short(99.96)], ["2920", "0", "100", "100"]);
        assert_eq!([short(0.0042), short(-0.00037), short(2e-9)], ["0.0042", "-0.00037", "2e-9"]);
    }
}
