//! `faultline fuzz --table`: prints how many seeds it takes to find each known defect, as a table for a
//! document.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_report::explain::count;
use serde::{Deserialize, Serialize};

use super::available;
use super::search::Search;
use crate::arguments::{Format, FuzzArguments};
use crate::command_error::{CommandError, Exit};
use crate::output;

/// Properties that limit the cost of a protocol. A violation of any other property is a better indication of what a
/// defect breaks.
const COSTS: [Property; 2] = [Property::NeighboursOnly, Property::ForcedPerTheft];

/// How often a defect causes a violation, and of which property.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detection {
    pub(crate) defect: String,
    /// The number of seeds run, up to and including the first seed with a violation.
    pub(crate) seeds: Option<u64>,
    /// The property that was violated first.
    pub(crate) property: Option<Property>,
    /// The number of runs with a violation.
    pub(crate) violating: u64,
    pub(crate) runs: u64,
    /// The number of runs that reached the memory limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) out_of_memory: u64,
    /// The first seed with a violation.
    pub(crate) first: Option<u64>,
    /// The first seed whose run violated a property other than `sameResult` and the limits on cost, and that property.
    #[serde(default)]
    pub(crate) harmful: Option<(u64, Property)>,
}

impl Detection {
    /// Returns the seed that best shows what the defect breaks, and the property that is violated there.
    pub(crate) fn shown(&self) -> Option<(u64, Property)> {
        self.harmful.or_else(|| self.first.zip(self.property))
    }

    /// Returns the percentage of schedules with a violation, and the bounds of its 95 % confidence interval
    /// (Wilson's).
    pub(crate) fn share(&self) -> (f64, f64, f64) {
        let (n, k) = (self.runs.max(1) as f64, self.violating as f64);
        let (z, p) = (1.959_964, k / n);
        let centre = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let width = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        (p * 100.0, (centre - width).max(0.0) * 100.0, (centre + width).min(1.0) * 100.0)
    }

    pub(crate) fn share_text(&self) -> String {
        let (share, from, to) = self.share();
        format!("{share:.2} % ({from:.2} to {to:.2})")
    }
}

/// Executes `faultline fuzz --table`.
pub(super) fn table(arguments: &FuzzArguments, interrupted: &AtomicBool) -> Result<Exit, CommandError> {
    let is_asked_for =
        |it: &Defect| arguments.protocol.is_none_or(|protocol| protocol.name() == it.protocol());
    let defects: Vec<Defect> = match arguments.defect {
        Some(defect) => vec![defect],
        None => Defect::all().filter(is_asked_for).collect(),
    };
    available("fuzz --table")?;
    // Each row takes a long time, so print it as soon as it is complete.
    if arguments.format == Format::Text {
        output::print(&output::filled(HEAD.to_owned()))?;
    }
    let mut rows = Vec::new();
    for (number, &defect) in (1..).zip(&defects) {
        let title = title(defect, number, defects.len());
        let Some(detection) = detect(arguments, defect, &title, interrupted)? else { break };
        if arguments.format == Format::Text {
            output::print(&output::filled(row(&detection)))?;
        }
        rows.push(detection);
    }
    output::print(&match arguments.format {
        Format::Json => output::json(&rows),
        Format::Text => {
            let first = arguments.seed.unwrap_or(0);
            format!("\nSeeds from {first}, {} for each defect.\n", arguments.runs)
        }
    })?;
    if rows.len() < defects.len() {
        output::note(format_args!(
            "interrupted: the table has {} of {} defects; repeat the command to try all",
            rows.len(),
            defects.len()
        ));
        return Ok(Exit::Unknown);
    }
    Ok(if print_out_of_memory(&rows) { Exit::Unknown } else { Exit::Pass })
}

/// Prints how many schedules reached the memory limit. Returns whether any did.
pub(crate) fn print_out_of_memory<'a>(detections: impl IntoIterator<Item = &'a Detection>) -> bool {
    let limited: u64 = detections.into_iter().map(|it| it.out_of_memory).sum();
    if limited > 0 {
        output::note(format_args!(
            "out of memory: {} reached the memory limit; use a larger `--memory`",
            count(limited, "schedule")
        ));
    }
    limited > 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns the title shown with the progress: the defect, and its number among the defects that the command searches
/// for.
pub(crate) fn title(defect: Defect, number: usize, of: usize) -> String {
    format!("{defect} (defect {number} of {of})")
}

/// Runs the schedules of all requested seeds with a defect enabled. Returns `None` if the user interrupts the search.
pub(crate) fn detect(
    arguments: &FuzzArguments,
    defect: Defect,
    title: &str,
    interrupted: &AtomicBool,
) -> Result<Option<Detection>, CommandError> {
    let mut search = Search::new(arguments, Some(defect), interrupted);
    title.clone_into(&mut search.title);
    let mut row = Detection {
        defect: defect.to_string(),
        seeds: None,
        property: None,
        violating: 0,
        runs: 0,
        out_of_memory: 0,
        first: None,
        harmful: None,
    };
    search.each(|observed| {
        row.runs += 1;
        row.out_of_memory += u64::from(observed.is_out_of_memory());
        if let Some(property) = observed.decisive_violation() {
            row.violating += 1;
            row.seeds.get_or_insert(row.runs);
            row.property.get_or_insert(property);
            row.first.get_or_insert(observed.seed);
            let does_harm = |it: &Property| !COSTS.contains(it) && *it != Property::SameResult;
            if let Some(harm) = observed.violated.iter().copied().find(does_harm) {
                row.harmful.get_or_insert((observed.seed, harm));
            }
        }
        ControlFlow::Continue(())
    })?;
    match search.ended_early() {
        Some(_) if interrupted.load(Ordering::Relaxed) => Ok(None),
        Some(reason) => Err(CommandError::machine(format!("the table is incomplete: {reason}"))),
        None => Ok(Some(row)),
    }
}

const HEAD: &str = "| defect | found after | violated | share of schedules |\n| --- | ---: | --- | ---: |\n";

fn row(row: &Detection) -> String {
    let seeds = row.seeds.map_or_else(|| format!("not in {}", row.runs), |it| it.to_string());
    let property = row.property.map_or("", Property::statement);
    format!("| `{}` | {seeds} | {} | {} |\n", row.defect, property, row.share_text())
}
