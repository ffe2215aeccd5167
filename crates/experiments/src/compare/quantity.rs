//! The quantities by which protocols are compared.

use faultline_api::resource::{Family, Logs};
use faultline_history::ledger::TimePart;
use faultline_report::text::span;

use super::Run;
use super::estimate::Estimate;
use crate::measures::{Spread, short};

/// One quantity by which protocols are compared.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    /// The name in the JSON form.
    pub name: &'static str,
    /// The title in tables.
    pub title: &'static str,
    /// The unit.
    pub unit: Unit,
    /// Whether the quantity concerns the runs with the faults in the file, rather than those without faults.
    pub faulty: bool,
    /// Whether the picture shows the quantity.
    pub drawn: bool,
    /// The family of applications that have this quantity; `None` means all families.
    pub family: Option<Family>,
    /// Computes the quantity of one run, given the unprotected run with the same seed and without faults. Returns `None`
    /// if the run does not have this quantity.
    pub(crate) of: fn(&Run, Option<Reference>) -> Option<f64>,
}

/// What the quantities need to know of an unprotected run without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    /// The duration, in seconds.
    pub(crate) seconds: f64,
    /// The time that all processes spent on the application's work, in seconds.
    pub(crate) working: f64,
    /// The time that the processes of the run of the same protocol without faults did not spend on its checkpoints, in
    /// seconds; `None` if there is no such run, or if it did not complete.
    pub(crate) calm: Option<f64>,
}

impl Reference {
    pub(crate) fn of(run: &Run) -> Reference {
        let working = run.time.of(TimePart::Working).as_secs_f64();
        Reference { seconds: run.costs.seconds, working, calm: None }
    }

    /// Adds the run of a protocol without faults.
    pub(crate) fn beside(self, calm: Option<&Run>) -> Reference {
        Reference { calm: calm.filter(|it| it.completed).map(at_work), ..self }
    }
}

/// Returns the time that the processes of a run spent at work, waiting and finished, in seconds.
fn at_work(run: &Run) -> f64 {
    let parts =
        [TimePart::Working, TimePart::Waiting, TimePart::Stalled, TimePart::Rerunning, TimePart::Finished];
    parts.map(|it| run.time.of(it).as_secs_f64()).iter().sum()
}

/// The unit of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, such as a number of messages.
    Count,
    /// Percent.
    Percent,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

/// The name of the quantity that shows whether costs with faults are comparable.
pub(super) const TOOK_EFFECT: &str = "faultsTookEffect";

/// The overhead of runs without faults.
pub(super) const OVERHEAD: &str = "overheadPercent";
/// The lost work, per outage.
pub(super) const LOST: &str = "lostSeconds";

/// The share of the time of a run that the application's work takes in an unprotected run without faults.
pub(crate) const GOODPUT: &str = "goodputPercent";
/// The share of the time of a run in which processes worked for good, or waited for messages of the application.
pub(crate) const ETTR: &str = "ettrPercent";

/// All quantities, in the order of the table: those of the runs without faults come first.
pub const QUANTITIES: [Quantity; 22] = [
    Quantity::new(OVERHEAD, "overhead over an unprotected run", Unit::Percent, longer).drawn(),
    Quantity::new("checkpointsPerProcess", "checkpoints per process", Unit::Count, |run, _| {
        Some(run.costs.checkpoints as f64 / run.ranks as f64)
    }),
    Quantity::new("forcedPerProcess", "forced checkpoints per process", Unit::Count, |run, _| {
        Some(run.costs.forced as f64 / run.ranks as f64)
    })
    .drawn(),
    Quantity::new("checkpointBytes", "state saved, with replicas", Unit::Bytes, |run, _| {
        Some(run.costs.checkpoint_bytes as f64)
    })
    .drawn(),
    Quantity::new("loggedBytes", "messages logged", Unit::Bytes, |run, _| Some(logged(run)))
        .of_family_only(Family::Messages),
    Quantity::new("spilledBytes", "moved from memory to storage", Unit::Bytes, |run, _| {
        Some(run.costs.spilled_bytes as f64)
    })
    .of_family_only(Family::Messages),
    Quantity::new("loggedPercent", "logged, share of all messages", Unit::Percent, |run, _| {
        let sent = run.costs.sent_bytes as f64;
        Some(if sent > 0.0 { 100.0 * logged(run) / sent } else { 0.0 })
    })
    .drawn()
    .of_family_only(Family::Messages),
    Quantity::new("theftsPerProcess", "thefts per process", Unit::Count, |run, _| {
        run.costs.tasks.map(|it| it.thefts as f64 / run.ranks as f64)
    })
    .of_family_only(Family::Tasks),
    Quantity::new("messagesPerCheckpoint", "messages per checkpoint", Unit::Count, |run, _| {
        let tasks = run.costs.tasks.filter(|it| it.coordinated > 0)?;
        Some(tasks.coordination as f64 / tasks.coordinated as f64)
    })
    .of_family_only(Family::Tasks),
    Quantity::new(
        "slowdownPercent",
        "overhead over an unprotected run without faults",
        Unit::Percent,
        longer,
    )
    .with_faults()
    .drawn(),
    // A fault that is due after the end of the application has no effect, so a faster protocol may experience fewer
    // faults.
    Quantity::new(TOOK_EFFECT, "faults that took effect", Unit::Count, |run, _| {
        Some(run.costs.faults as f64)
    })
    .with_faults(),
    Quantity::new("outages", "outages", Unit::Count, |run, _| {
        run.completed.then_some(run.costs.outages.len() as f64)
    })
    .with_faults(),
    Quantity::new("rolledBackPercent", "processes rolled back, per outage", Unit::Percent, |run, _| {
        per_outage(run, |it| Some(100.0 * it.rolled_back as f64 / run.ranks as f64))
    })
    .with_faults()
    .drawn(),
    Quantity::new(LOST, "lost work, per outage", Unit::Seconds, |run, _| {
        per_outage(run, |it| Some(it.lost_work_seconds))
    })
    .with_faults()
    .drawn(),
    Quantity::new("tasksRunAgainPercent", "tasks re-executed", Unit::Percent, |run, _| {
        run.costs.tasks.map(|it| 100.0 * it.again as f64 / it.tasks.max(1) as f64)
    })
    .with_faults()
    .drawn()
    .of_family_only(Family::Tasks),
    Quantity::new(
        "globalRollbackPercent",
        "tasks re-executed, estimated global rollback",
        Unit::Percent,
        |run, _| {
            let tasks = run.costs.tasks.filter(|it| it.global > 0)?;
            let by_failed = tasks.again.saturating_sub(tasks.rerun);
            Some(100.0 * (by_failed + tasks.global) as f64 / tasks.tasks.max(1) as f64)
        },
    )
    .with_faults()
    .of_family_only(Family::Tasks),
    Quantity::new(
        "rerunPercent",
        "re-executed without failing, share of an estimated global rollback",
        Unit::Percent,
        |run, _| {
            let tasks = run.costs.tasks.filter(|it| it.global > 0)?;
            Some(100.0 * tasks.rerun as f64 / tasks.global as f64)
        },
    )
    .with_faults()
    .of_family_only(Family::Tasks),
    Quantity::new("idlePercent", "did not fail and re-executed nothing", Unit::Percent, |run, _| {
        let tasks = run.costs.tasks.filter(|it| it.live > 0)?;
        Some(100.0 * tasks.idle as f64 / tasks.live as f64)
    })
    .with_faults()
    .of_family_only(Family::Tasks),
    Quantity::new("recoverySeconds", "time to recover", Unit::Seconds, |run, _| {
        per_outage(run, |it| it.recovery_seconds)
    })
    .with_faults()
    .drawn(),
    Quantity::new("delayedSeconds", "delayed, per process", Unit::Seconds, |run, native| {
        let calm = native?.calm.filter(|_| run.completed)?;
        Some((at_work(run) - calm) / f64::from(run.ranks))
    })
    .with_faults(),
    Quantity::new(GOODPUT, "goodput", Unit::Percent, goodput).with_faults().drawn(),
    Quantity::new(ETTR, "effective training time ratio", Unit::Percent, |run, _| {
        Some(100.0 * run.time.ettr()?)
    })
    .with_faults(),
];

impl Quantity {
    /// Creates a quantity of runs without faults that applications of all families have, and that the picture omits.
    const fn new(
        name: &'static str,
        title: &'static str,
        unit: Unit,
        of: fn(&Run, Option<Reference>) -> Option<f64>,
    ) -> Quantity {
        Quantity { name, title, unit, faulty: false, drawn: false, family: None, of }
    }

    /// Makes this a quantity of the runs with the faults in the file.
    const fn with_faults(self) -> Quantity {
        Quantity { faulty: true, ..self }
    }

    /// Makes the picture show the quantity.
    const fn drawn(self) -> Quantity {
        Quantity { drawn: true, ..self }
    }

    /// Limits the quantity to applications of this family.
    const fn of_family_only(self, family: Family) -> Quantity {
        Quantity { family: Some(family), ..self }
    }

    /// Returns whether a higher value is better.
    pub fn rises(&self) -> bool {
        [GOODPUT, ETTR].contains(&self.name)
    }

    /// Returns the quantities of applications of this family.
    pub fn of_family(family: Family) -> impl Iterator<Item = &'static Quantity> {
        QUANTITIES.iter().filter(move |it| it.family.is_none_or(|own| own == family))
    }
}

/// The smallest half-width of an interval that is shown, as a share of the mean.
const NEGLIGIBLE: f64 = 1e-3;

impl Unit {
    /// Formats the mean with half the width of its interval or, for few runs, with the range of their values,
    /// in one unit. Omits a half-width that is too small to show in the three digits of the mean.
    pub fn text(self, estimate: &Estimate) -> String {
        let mean = estimate.mean();
        let (divisor, unit) = self.scale(mean);
        let half_width = estimate.half_width.map(|it| if it < NEGLIGIBLE * mean.abs() { 0.0 } else { it });
        let value = match half_width.map(|it| short(it / divisor)) {
            Some(half) if half != "0" => format!("{} ±{half}", short(mean / divisor)),
            Some(_) => short(mean / divisor),
            None => {
                let Spread { least, most, .. } = estimate.spread;
                Spread {
                    mean: mean / divisor,
                    least: least / divisor,
                    most: most / divisor,
                    ..estimate.spread
                }
                .text()
            }
        };
        if unit.is_empty() { value } else { format!("{value} {unit}") }
    }

    /// Formats the mean alone.
    pub fn brief(self, mean: f64) -> String {
        if self == Unit::Seconds {
            return span(mean);
        }
        let (divisor, unit) = self.scale(mean);
        format!("{} {unit}", short(mean / divisor)).trim_end().to_owned()
    }

    /// Formats the values of an axis, all in the unit of the greatest one.
    pub fn axis(self, values: &[f64]) -> Vec<(f64, String)> {
        let (divisor, unit) = self.scale(values.iter().copied().fold(0.0, f64::max));
        let text = |it: f64| format!("{} {unit}", short(it / divisor)).trim_end().to_owned();
        values.iter().map(|it| (*it, text(*it))).collect()
    }

    fn scale(self, mean: f64) -> (f64, &'static str) {
        match self {
            Unit::Count => (1.0, ""),
            Unit::Percent => (1.0, "%"),
            Unit::Bytes if mean >= 1e9 => (1e9, "GB"),
            Unit::Bytes if mean >= 1e6 => (1e6, "MB"),
            Unit::Bytes if mean >= 1e3 => (1e3, "kB"),
            Unit::Bytes => (1.0, "B"),
            Unit::Seconds if mean > 0.0 && mean < 1.0 => (1e-3, "ms"),
            Unit::Seconds => (1.0, "s"),
        }
    }
}

fn longer(run: &Run, native: Option<Reference>) -> Option<f64> {
    let native = native.filter(|it| it.seconds > 0.0)?;
    run.completed.then(|| 100.0 * (run.costs.seconds / native.seconds - 1.0))
}

/// A run that did not complete counts for the share of the work that it did and kept.
fn goodput(run: &Run, native: Option<Reference>) -> Option<f64> {
    let native = native.filter(|it| it.seconds > 0.0 && it.working > 0.0)?;
    let done = match run.completed {
        true => 1.0,
        false => run.time.of(TimePart::Working).as_secs_f64() / native.working,
    };
    (run.costs.seconds > 0.0).then(|| 100.0 * done * native.seconds / run.costs.seconds)
}

fn logged(run: &Run) -> f64 {
    match run.logs {
        Logs::Nothing => 0.0,
        Logs::BetweenClusters => run.costs.between_bytes as f64,
        Logs::Everything => run.costs.sent_bytes as f64,
    }
}

/// Returns the mean of a value over the outages from which a run recovered; `None` if the run did not complete, or if
/// there are no such outages.
fn per_outage(run: &Run, of: impl Fn(&super::Outage) -> Option<f64>) -> Option<f64> {
    let survived = run.costs.outages.iter().filter(|it| it.recovery_seconds.is_some());
    let values: Vec<f64> = survived.filter_map(of).collect();
    (run.completed && !values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_an_axis_have_one_unit() {
        let texts =
            |unit: Unit, values: &[f64]| unit.axis(values).into_iter().map(|it| it.1).collect::<Vec<_>>();
        assert_eq!(texts(Unit::Seconds, &[0.0, 0.5, 1.0, 10.0]), ["0 s", "0.5 s", "1 s", "10 s"]);
        assert_eq!(texts(Unit::Seconds, &[0.0, 0.2]), ["0 ms", "200 ms"]);
        assert_eq!(texts(Unit::Bytes, &[0.0, 500.0, 2e6]), ["0 MB", "0.0005 MB", "2 MB"]);
    }

    #[test]
    fn mean_and_interval_have_one_unit() {
        let text = |unit: Unit, values: &[f64]| {
            unit.text(&Estimate::of(values.iter().copied()).expect("there are values"))
        };
        assert_eq!(text(Unit::Bytes, &[2e6, 2.2e6, 2e6, 2.2e6, 2.1e6]), "2.1 ±0.12 MB");
        assert_eq!(
            text(Unit::Seconds, &[14.4, 14.401, 14.4, 14.401, 14.4]),
            "14.4 s",
            "too narrow to be shown"
        );
        assert_eq!(text(Unit::Bytes, &[2e6, 2.2e6]), "2.1 [2..2.2] MB", "two runs have no interval");
        assert_eq!(text(Unit::Percent, &[3.25]), "3.25 %");
        assert_eq!(text(Unit::Count, &[3.0, 3.0]), "3");
        assert_eq!(text(Unit::Seconds, &[0.25]), "250 ms");
    }
}
