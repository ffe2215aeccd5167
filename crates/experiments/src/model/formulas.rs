//! Published formulas for the goodput under failures, and for the best checkpoint interval.
//!
//! All times are in seconds. The checkpoint interval T is the work between the commit of a checkpoint and the request of
//! the next one (`checkpointEvery`), and a period lasts P = T + C.

use serde::Serialize;

/// What the formulas need to know of a federation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Constants {
    /// M: mean time between failures.
    pub mtbf: f64,
    /// T₀: duration of the unprotected run without faults, which is the work.
    pub work: f64,
    /// λ: speed under the protocol without checkpoints.
    pub speed: f64,
    /// C: delay of the run per checkpoint, with the interval of the file.
    pub checkpoint: f64,
    /// C₀: the part of C that does not depend on the period.
    pub checkpoint_fixed: f64,
    /// β: growth of C with the period.
    pub checkpoint_growth: f64,
    /// K: delay of the run by a failure, apart from work that is repeated.
    pub failure: f64,
    /// σ: delay of the run per second of work since the last commit.
    pub repeated: f64,
}

/// A published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Young, 1974.
    Young,
    /// Daly, 2006.
    Daly,
    /// Saxena and others, 2024 (arXiv 2410.18124).
    Saxena,
    /// After Bosilca and others, 2013 (INRIA RR-7950): groups of processes that log messages.
    Hierarchical,
    /// Exact for a global rollback and exponential times between failures, which may also strike during a recovery.
    Exact,
}

impl Model {
    /// All models, in the order of the table.
    pub const ALL: [Model; 5] = [Model::Young, Model::Daly, Model::Saxena, Model::Hierarchical, Model::Exact];

    /// Returns the name of the model.
    pub fn name(self) -> &'static str {
        match self {
            Model::Young => "Young",
            Model::Daly => "Daly",
            Model::Saxena => "Saxena",
            Model::Hierarchical => "hierarchical",
            Model::Exact => "exact",
        }
    }

    /// Returns whether the goodput comes from the formula of first order: these models state only an interval.
    pub fn is_first_order(self) -> bool {
        matches!(self, Model::Young | Model::Daly | Model::Saxena)
    }

    /// Returns the interval that the model recommends.
    pub fn best(self, it: &Constants) -> f64 {
        let Constants { mtbf, checkpoint: c, .. } = *it;
        match self {
            Model::Young => (2.0 * c * mtbf).sqrt(),
            Model::Daly if c < 2.0 * mtbf => {
                let ratio = c / (2.0 * mtbf);
                (2.0 * c * mtbf).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - c
            }
            Model::Daly => mtbf,
            Model::Saxena => (2.0 * (mtbf + it.failure) * c + c * c).sqrt(),
            Model::Hierarchical => {
                let period = (2.0 * it.checkpoint_fixed * mtbf / it.repeated.max(1e-9)).sqrt();
                (period - delay(it, period)).max(0.0)
            }
            Model::Exact => mtbf * (1.0 + lambert(-(-c / mtbf - 1.0).exp())),
        }
    }

    /// Returns the goodput with the interval `every`, from 0 to 1.
    pub fn goodput(self, it: &Constants, every: f64) -> f64 {
        self.extrapolated(it, every).clamp(0.0, 1.0)
    }

    /// Returns whether the formula yields a goodput of more than 1 with the interval `every`, because the measured constants
    /// do not hold there.
    pub fn exceeds_one(self, it: &Constants, every: f64) -> bool {
        self.extrapolated(it, every) > 1.0
    }

    /// Returns the value of the formula, which may lie outside the range of a goodput.
    fn extrapolated(self, it: &Constants, every: f64) -> f64 {
        let Constants { mtbf, checkpoint: c, failure, .. } = *it;
        match self {
            Model::Young | Model::Daly | Model::Saxena => {
                let period = every + c;
                1.0 - c / period - (failure + period / 2.0) / mtbf
            }
            Model::Hierarchical => {
                let period = period(it, every);
                it.speed
                    * (1.0 - delay(it, period) / period)
                    * (1.0 - (failure + it.repeated * period / 2.0) / mtbf)
            }
            Model::Exact => it.work / duration(it, every),
        }
    }
}

/// Returns the delay of the run per checkpoint with this period.
fn delay(it: &Constants, period: f64) -> f64 {
    it.checkpoint_fixed + it.checkpoint_growth * period
}

/// Returns the period of an interval: P = T + C₀ + βP.
pub fn period(it: &Constants, every: f64) -> f64 {
    (every + it.checkpoint_fixed) / (1.0 - it.checkpoint_growth).max(0.01)
}

/// Returns the expected duration of a run: periods with a checkpoint, and the rest without one.
fn duration(it: &Constants, every: f64) -> f64 {
    let expected = |span: f64| it.mtbf * (it.failure / it.mtbf).exp() * (span / it.mtbf).exp_m1();
    let work = it.work / it.speed;
    let periods = (work / every).floor();
    periods * expected(every + it.checkpoint) + expected(work - periods * every)
}

/// Computes the principal branch of Lambert's function for arguments from -1/e to 0: the solution of w·eʷ = x that is at
/// least -1 (Halley's method).
fn lambert(x: f64) -> f64 {
    // Near the branch point, the function behaves like a square root.
    let root = (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt();
    let mut w = -1.0 + root - root * root / 3.0;
    for _ in 0..50 {
        let power = w.exp();
        let error = w * power - x;
        let slope = power * (w + 1.0);
        let step = error / (slope - (w + 2.0) * error / (2.0 * w + 2.0));
        if !step.is_finite() || step.abs() < 1e-14 {
            break;
        }
        w -= step;
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constants(mtbf: f64, checkpoint: f64) -> Constants {
        Constants {
            mtbf,
            work: 3603.6,
            speed: 1.0,
            checkpoint,
            checkpoint_fixed: checkpoint,
            checkpoint_growth: 0.0,
            failure: 9.1,
            repeated: 1.0,
        }
    }

    #[test]
    fn dalys_intervals_are_those_that_he_published() {
        for (hours, minutes) in [(24.0, 117.0), (6.0, 57.0), (0.25, 9.1)] {
            let best = Model::Daly.best(&constants(hours * 3600.0, 300.0)) / 60.0;
            assert!((best - minutes).abs() < 0.5, "{hours} h: {best} min");
        }
        assert_eq!(Model::Daly.best(&constants(100.0, 300.0)), 100.0);
    }

    #[test]
    fn the_exact_goodput_has_known_values() {
        let known = [
            (120.0, [0.756, 0.684, 0.391]),
            (300.0, [0.860, 0.844, 0.698]),
            (900.0, [0.909, 0.924, 0.883]),
            (3600.0, [0.929, 0.956, 0.961]),
        ];
        for (mtbf, expected) in known {
            let it = constants(mtbf, 2.08);
            let goodput = [30.0, 60.0, 180.0].map(|every| Model::Exact.goodput(&it, every));
            for (found, expected) in goodput.into_iter().zip(expected) {
                // C and K are rounded.
                assert!((found - expected).abs() < 0.001, "{mtbf}: {found} {expected}");
            }
        }
    }

    #[test]
    fn each_model_recommends_an_interval_near_its_best_goodput() {
        let it = constants(300.0, 2.08);
        let best = Model::ALL.map(|model| model.best(&it));
        let expected = [35.33, 33.95, 35.92, 33.25, 33.95];
        for (best, expected) in best.into_iter().zip(expected) {
            assert!((best - expected).abs() < 0.02, "{best} {expected}");
        }
        for model in [Model::Hierarchical, Model::Exact] {
            let best = model.best(&it);
            for other in [0.5, 0.8, 1.3, 2.0] {
                assert!(
                    model.goodput(&it, best) >= model.goodput(&it, best * other) - 0.002,
                    "{model:?} {other}"
                );
            }
        }
    }

    #[test]
    fn lamberts_function_solves_its_equation() {
        for x in [-0.367_879, -0.3, -0.1, -1e-6, 0.0] {
            let w = lambert(x);
            assert!((w * w.exp() - x).abs() < 1e-12 && w >= -1.0, "{x}: {w}");
        }
    }
}
