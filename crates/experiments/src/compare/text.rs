//! A comparison as text for a terminal, and as one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use faultline_report::TimeByActivity;
use faultline_report::explain::count;
use faultline_report::text::percent;
use faultline_trace::manifest::BackendKind;
use serde::Serialize;

use super::estimate::Estimate;
use super::quantity::{Quantity, TOOK_EFFECT, Unit};
use super::{Comparison, Row, UNPROTECTED, VerdictCounts};

/// Formats the comparison for the terminal, with protocols side by side.
pub fn text(it: &Comparison) -> String {
    let mut text = format!(
        "{}: {} on {} in {}, {}, {}\n",
        it.name,
        it.application,
        count(it.ranks.into(), "process"),
        count(it.clusters as u64, "cluster"),
        seeds(it),
        on(it),
    );
    if let Some(unprotected) = &it.unprotected {
        let seconds = Unit::Seconds.text(unprotected);
        writeln!(text, "The unprotected run without faults takes {seconds}.")
            .expect("a string accepts every write");
    }
    text.push('\n');
    text.push_str(&table(it));
    if it.missing > 0 {
        writeln!(text, "Missing because the comparison was interrupted: {}.", count(it.missing, "run"))
            .expect("a string accepts every write");
    }
    let remarks = remarks(it);
    if !remarks.is_empty() {
        text.push('\n');
    }
    for line in remarks {
        writeln!(text, "note: {line}").expect("a string accepts every write");
    }
    text
}

/// Formats the comparison as one JSON object. Omits quantities that no run has.
///
/// # Panics
///
/// Panics if a number cannot be written as JSON, which would be a bug.
pub fn json(it: &Comparison) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Object<'a> {
        name: &'a str,
        backend: BackendKind,
        application: &'a str,
        processes: u32,
        clusters: usize,
        first_seed: u64,
        seeds: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        unprotected_seconds: Option<Estimate>,
        /// Runs that are missing because of an interruption.
        missing: u64,
        protocols: Vec<Protocol<'a>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Protocol<'a> {
        protocol: &'a str,
        options: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cannot: Option<&'a str>,
        without_faults: &'a VerdictCounts,
        left_out: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        cannot_with_faults: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        with_faults: Option<&'a VerdictCounts>,
        quantities: &'a BTreeMap<&'static str, Estimate>,
        /// The time by activity, summed over the processes of all runs with faults or, if the file has no faults, of
        /// all runs.
        time: &'a TimeByActivity,
    }
    let object = Object {
        name: &it.name,
        backend: it.backend,
        application: &it.application,
        processes: it.ranks,
        clusters: it.clusters,
        first_seed: it.first_seed,
        seeds: it.seeds,
        unprotected_seconds: it.unprotected,
        missing: it.missing,
        protocols: it
            .rows
            .iter()
            .map(|row| Protocol {
                protocol: &row.protocol,
                options: &row.options,
                cannot: row.cannot.as_deref(),
                without_faults: &row.calm,
                left_out: &row.left_out,
                cannot_with_faults: row.cannot_with_faults.as_deref().filter(|_| it.has_faults),
                with_faults: it.has_faults.then_some(&row.faulty),
                quantities: &row.values,
                time: &row.time,
            })
            .collect(),
    };
    serde_json::to_string_pretty(&object).expect("numbers and words have a JSON form") + "\n"
}

/// Formats the value of a quantity for one protocol.
pub(super) fn cell(row: &Row, quantity: &Quantity) -> String {
    row.values.get(quantity.name).map_or_else(|| "-".to_owned(), |it| quantity.unit.text(it))
}

/// Returns a phrase for the verdicts, such as `5 pass`.
pub(super) fn verdicts(counts: &VerdictCounts) -> String {
    counts.verdicts().unwrap_or_else(|| "-".to_owned())
}

/// Returns a phrase for the number of runs that finished, such as `8 of 10`.
pub(super) fn finished(counts: &VerdictCounts) -> String {
    if counts.runs == 0 { "-".to_owned() } else { format!("{} of {}", counts.completed, counts.runs) }
}

/// Returns a phrase for the seeds, such as `seeds 1 to 10`.
pub(super) fn seeds(it: &Comparison) -> String {
    let last = it.first_seed + u64::from(it.seeds.saturating_sub(1));
    if it.seeds == 1 { format!("seed {last}") } else { format!("seeds {} to {last}", it.first_seed) }
}

/// Returns a phrase for the backend, such as `in virtual time`.
pub(super) fn on(it: &Comparison) -> &'static str {
    match it.backend {
        BackendKind::Simulate => "in virtual time",
        BackendKind::Local => "on real processes on one machine",
        BackendKind::Kubernetes => "in pods",
    }
}

/// Returns remarks on what the numbers do not show.
pub(super) fn remarks(it: &Comparison) -> Vec<String> {
    it.rows.iter().flat_map(|row| remarks_on(it, row)).chain(fewer_faults(it)).collect()
}

fn remarks_on(it: &Comparison, row: &Row) -> Vec<String> {
    let cannot = row.cannot.iter().map(|it| format!("{} cannot run this federation: {it}", row.protocol));
    let left_out = row.left_out.iter().map(|it| format!("{} runs without {it}", row.protocol));
    let faulty = row.cannot_with_faults.iter().filter(|_| it.has_faults);
    let faulty = faulty.map(|it| format!("{} does not run with faults: {it}", row.protocol));
    let side = |when: &'static str, counts: &VerdictCounts| {
        let lines: Vec<String> =
            counts.reasons.iter().map(|it| format!("{} {when}, {it}", row.protocol)).collect();
        lines
    };
    cannot
        .chain(left_out)
        .chain(faulty)
        .chain(side("without faults", &row.calm))
        .chain(side("with faults", &row.faulty))
        .chain(only_forced(row))
        .chain(measure_itself(it, row))
        .collect()
}

/// Returns a remark if the timer caused no checkpoint.
fn only_forced(row: &Row) -> Option<String> {
    let every = row.timer_never_fired.as_ref()?;
    Some(format!(
        "{}: the checkpoint timer ({every}) never fired without faults, because forced checkpoints came first and \
         restarted it",
        row.protocol
    ))
}

/// Returns the activities on which the processes of any protocol spent time: their positions in
/// [`TimeByActivity::parts`], with their names.
pub(super) fn kinds_of_time(it: &Comparison) -> Vec<(usize, &'static str)> {
    let names = TimeByActivity::default().parts().into_iter().map(|(name, _)| name).enumerate();
    names.filter(|(kind, _)| it.rows.iter().any(|row| row.time.parts()[*kind].1 > 0.0)).collect()
}

/// Formats the share of the total time that one activity takes.
pub(super) fn share_of_time(row: &Row, kind: usize) -> String {
    percent(row.time.parts()[kind].1, row.time.total_seconds())
}

/// Returns a remark on the overhead of the unprotected runs on real processes: it shows how much identical runs
/// differ on this machine.
fn measure_itself(it: &Comparison, row: &Row) -> Option<String> {
    let is_measure =
        row.protocol == UNPROTECTED && it.backend != BackendKind::Simulate && row.calm.completed > 0;
    is_measure.then(|| {
        format!(
            "{UNPROTECTED} is the reference, run a second time: its overhead shows how much identical runs differ"
        )
    })
}

/// Returns a remark if some protocols experienced fewer faults than others, in which case their costs are not
/// comparable.
fn fewer_faults(it: &Comparison) -> Option<String> {
    let met = |row: &Row| row.values.get(TOOK_EFFECT).map(Estimate::mean);
    let most = it.rows.iter().filter_map(met).fold(0.0, f64::max);
    let fewer: Vec<String> = it
        .rows
        .iter()
        .filter_map(|row| {
            let own = met(row).filter(|own| *own < most)?;
            Some(format!("{} ({})", row.protocol, Unit::Count.brief(own)))
        })
        .collect();
    (!fewer.is_empty()).then(|| {
        format!(
            "some protocols experienced fewer faults per run, on average, than others (maximum: {}): {}. The other faults were due \
             after the end of a run, or waited for an event that never happened. Costs with faults are therefore not \
             comparable (`faultline run` with one of these protocols shows which faults took effect)",
            Unit::Count.brief(most),
            fewer.join(", ")
        )
    })
}

fn table(it: &Comparison) -> String {
    let mut table = Table::new();
    let names = it.rows.iter().map(|row| row.protocol.clone());
    table.load_style(NOTHING).force_no_tty().set_header(std::iter::once(String::new()).chain(names));
    let mut add = |title: &str, of: &dyn Fn(&Row) -> String| {
        table.add_row(std::iter::once(title.to_owned()).chain(it.rows.iter().map(of)));
    };
    for (title, faulty) in [("WITHOUT FAULTS", false), ("WITH FAULTS", true)] {
        if faulty && !it.has_faults {
            continue;
        }
        let counts = |row: &Row| if faulty { row.faulty.clone() } else { row.calm.clone() };
        add(title, &|_| String::new());
        add("verdicts", &|row| verdicts(&counts(row)));
        add("finished", &|row| finished(&counts(row)));
        for quantity in Quantity::of_family(it.family).filter(|it| it.faulty == faulty) {
            add(quantity.title, &|row| cell(row, quantity));
        }
    }
    let kinds = kinds_of_time(it);
    if !kinds.is_empty() {
        let title = if it.has_faults { "TIME, WITH FAULTS" } else { "TIME" };
        table.add_row(std::iter::once(title.to_owned()).chain(it.rows.iter().map(|_| String::new())));
    }
    for (kind, name) in kinds {
        let shares = it.rows.iter().map(|row| share_of_time(row, kind));
        table.add_row(std::iter::once(name.to_owned()).chain(shares));
    }
    let columns: Vec<_> = table.column_iter_mut().collect();
    for column in columns.into_iter().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let begins = |line: &str| ["WITH FAULTS", "TIME"].iter().any(|it| line.trim_start().starts_with(it));
    let blank = |line: &str| if begins(line) { "\n" } else { "" };
    table.lines().map(|it| format!("{}{}\n", blank(&it), it.trim_end())).collect()
}
