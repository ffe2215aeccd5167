//! A comparison as text for a terminal, and as one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write;

use faultline_history::TimeByPart;
use faultline_report::explain::count;
use faultline_report::table::{split, wrapped};
use faultline_report::text::shares;
use faultline_trace::manifest::BackendKind;
use serde::Serialize;

use super::estimate::Estimate;
use super::quantity::{Quantity, Unit};
use super::{Comparison, Row, UNPROTECTED, VerdictCounts};

/// Formats the comparison for the terminal, with a row for each protocol.
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
    text.extend(warning(it).map(|warning| wrapped("warning: ", &warning)));
    text.push('\n');
    text.push_str(&tables(it));
    if it.missing > 0 {
        writeln!(text, "Missing because the comparison was interrupted: {}.", count(it.missing, "run"))
            .expect("a string accepts every write");
    }
    let remarks = remarks(it);
    if !remarks.is_empty() {
        text.push('\n');
    }
    text.extend(remarks.iter().map(|line| wrapped("note: ", line)));
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
        time: &'a TimeByPart,
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
        BackendKind::Events => "from events",
    }
}

/// Returns remarks on what the numbers do not show.
pub(super) fn remarks(it: &Comparison) -> Vec<String> {
    let omitted = "no run is judged by the expectations of the file (`expect`), which were chosen for its own protocol; \
                   use `faultline run` or `faultline sweep`";
    let omitted = it.has_expectations.then(|| omitted.to_owned());
    let each = it.rows.iter().flat_map(|row| remarks_on(it, row));
    let replicas: Vec<_> =
        it.rows.iter().filter_map(|it| Some((it.protocol.as_str(), it.replicas?))).collect();
    omitted.into_iter().chain(different_replicas(&replicas)).chain(each).collect()
}

/// Returns a remark if the protocols keep different numbers of replicas.
fn different_replicas(protocols: &[(&str, u32)]) -> Option<String> {
    let (_, first) = *protocols.first()?;
    protocols.iter().any(|(_, replicas)| *replicas != first).then(|| {
        let all: Vec<String> = protocols.iter().map(|(name, replicas)| format!("{name} {replicas}")).collect();
        format!(
            "the protocols keep different numbers of replicas of a checkpoint, so their costs are not those of the same \
             protection ({}); set `replicas`",
            all.join(", ")
        )
    })
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
/// [`TimeByPart::parts`], with their names.
pub(super) fn kinds_of_time(it: &Comparison) -> Vec<(usize, &'static str)> {
    let names = TimeByPart::default().parts().into_iter().map(|(name, _)| name).enumerate();
    names.filter(|(kind, _)| it.rows.iter().any(|row| row.time.parts()[*kind].1 > 0.0)).collect()
}

/// Formats the share of the total time that one activity takes.
pub(super) fn share_of_time(row: &Row, kind: usize) -> String {
    shares(&row.time.parts().map(|it| it.1)).swap_remove(kind)
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

/// Returns a warning if some protocols experienced fewer faults than others, in which case their costs are not
/// comparable.
pub(super) fn warning(it: &Comparison) -> Option<String> {
    let fewer = it.rows.iter().filter_map(|row| Some((row, it.fewer_faults(row)?)));
    let (mut names, mut most) = (Vec::new(), 0.0);
    for (row, (own, maximum)) in fewer {
        names.push(format!("{} ({})", row.protocol, Unit::Count.brief(own)));
        most = maximum;
    }
    (!names.is_empty()).then(|| {
        format!(
            "costs with faults are not comparable, because some protocols experienced fewer faults per run, on average, \
             than others (maximum: {}): {}. The other faults were due after the end of a run, waited for an event that \
             never happened, or concern a process that the protocol does not have; to compare, give all faults fixed times (`at`) before the end of the shortest run",
            Unit::Count.brief(most),
            names.join(", ")
        )
    })
}

/// Formats the tables, each of which has a row for each protocol. Marks the protocols whose costs are not comparable.
fn tables(it: &Comparison) -> String {
    let mut tables = Vec::new();
    let mut add = |heading: &str, titles: &[&str], faulty: bool, cells: &dyn Fn(&Row) -> Vec<String>| {
        let shown = it.rows.iter().map(|row| {
            let mark = if faulty && it.fewer_faults(row).is_some() { "*" } else { "" };
            let name = format!("{}{mark}", row.protocol);
            std::iter::once(name).chain(cells(row)).collect::<Vec<_>>()
        });
        let rows: Vec<_> = shown.filter(|row| row[1..].iter().any(|cell| cell != "-")).collect();
        if rows.is_empty() {
            return;
        }
        let titles: Vec<&str> = std::iter::once("protocol").chain(titles.iter().copied()).collect();
        let note = rows.iter().any(|row| row[0].ends_with('*'));
        let note = if note { " (*: not comparable, see the warning)" } else { "" };
        tables.push(format!("{heading}{note}\n{}", split(1, &titles, &rows)));
    };
    fn counts(row: &Row, faulty: bool) -> &VerdictCounts {
        if faulty { &row.faulty } else { &row.calm }
    }
    let unfinished = |counts: &VerdictCounts| counts.completed < counts.runs;
    for (heading, faulty) in [("WITHOUT FAULTS", false), ("WITH FAULTS", true)] {
        let quantities: Vec<_> = Quantity::of_family(it.family).filter(|it| it.faulty == faulty).collect();
        // Only runs that finish can pass.
        let shows_finished = it.rows.iter().any(|row| unfinished(counts(row, faulty)));
        let of_runs = if shows_finished { &["verdicts", "finished"][..] } else { &["verdicts"] };
        let titles = of_runs.iter().copied().chain(quantities.iter().map(|it| it.title));
        add(heading, &titles.collect::<Vec<_>>(), faulty, &|row| {
            let counts = counts(row, faulty);
            let values = quantities.iter().map(|it| cell(row, it));
            [verdicts(counts), finished(counts)].into_iter().take(of_runs.len()).chain(values).collect()
        });
    }
    let kinds = kinds_of_time(it);
    let titles: Vec<_> = kinds.iter().map(|it| it.1).collect();
    add(if it.has_faults { "TIME, WITH FAULTS" } else { "TIME" }, &titles, it.has_faults, &|row| {
        kinds.iter().map(|it| share_of_time(row, it.0)).collect()
    });
    tables.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_numbers_of_replicas_are_noted() {
        assert_eq!(different_replicas(&[]), None);
        assert_eq!(different_replicas(&[("hydee", 1), ("coordinated", 1)]), None);
        let note = different_replicas(&[("hydee", 1), ("again.py", 0)]).unwrap();
        assert!(note.contains("(hydee 1, again.py 0)"), "{note}");
    }
}
