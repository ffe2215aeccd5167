//! Computes whether changing clusters between intervals pays off.

use std::collections::BTreeMap;
use std::fmt::Write;

use faultline_clustering::{
    CommunicationGraph, Constraints, DivisionSequence, Interval, Reclustering, recluster as find,
};
use faultline_experiments::measures::Spread;
use faultline_report::chart::{Chart, Series};
use faultline_report::explain::count;
use faultline_report::table::wrapped;
use serde::Serialize;

use super::{FRAGMENT, csv_rows, fragment, listed, members, write};
use crate::arguments::{ClusterArguments, Format};
use crate::command_error::CommandError;
use crate::output;

/// The output of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    processes: usize,
    bytes: u64,
    change_cost_percent: f64,
    #[serde(flatten)]
    found: &'a Reclustering,
    /// For each interval of the best sequence, the members of each cluster, by cluster number.
    clusters: Vec<BTreeMap<u32, Vec<&'a str>>>,
}

/// Computes the clusters for several graphs, given in chronological order. Writes the files that `--out` requests, and
/// returns the text to print.
pub(super) fn recluster(
    graphs: &[CommunicationGraph],
    constraints: Constraints,
    change_cost: f64,
    arguments: &ClusterArguments,
) -> Result<String, CommandError> {
    let found = find(graphs, constraints, change_cost);
    let object = Object {
        processes: found.processes.len(),
        bytes: graphs.iter().map(CommunicationGraph::total).sum(),
        change_cost_percent: change_cost,
        found: &found,
        clusters: found.best.intervals.iter().map(|it| clusters(&found, it)).collect(),
    };
    let json = output::json(&object);
    let one = &found.one.intervals[0].division;
    let fragment = fragment(&members(&found.processes, one), one);
    if let Some(out) = &arguments.out {
        let files = [
            ("intervals.svg", &chart(&found).file()),
            ("intervals.csv", &intervals_csv(&found)),
            ("clusters.csv", &clusters_csv(&found)),
            (FRAGMENT, &fragment),
            ("clusters.json", &json),
        ];
        write(out, &files)?;
    }
    Ok(match arguments.format {
        Format::Json => json,
        Format::Text => text(&object, &fragment),
    })
}

/// Returns the members of each cluster, by cluster number.
fn clusters<'a>(found: &'a Reclustering, interval: &Interval) -> BTreeMap<u32, Vec<&'a str>> {
    interval.numbers.iter().copied().zip(members(&found.processes, &interval.division)).collect()
}

/// Returns the sequences, each with the name that is printed.
fn sequences(found: &Reclustering) -> [(&'static str, &DivisionSequence); 3] {
    [
        ("best sequence", &found.best),
        ("one division for all intervals", &found.one),
        ("clusters of the first interval", &found.first),
    ]
}

fn text(object: &Object<'_>, fragment: &str) -> String {
    let Object { processes, bytes, change_cost_percent, found, clusters } = object;
    let intervals = &found.best.intervals;
    let mut text = format!(
        "{}, {}, {}; ",
        count(*processes as u64, "process"),
        count(intervals.len() as u64, "interval"),
        count(*bytes, "byte")
    );
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("writing to a string never fails")
    };
    line(format_args!("a checkpoint of all processes costs {change_cost_percent} % of the bytes sent\n\n"));
    line(format_args!("   interval         bytes  clusters  rolled back    logged      sum"));
    line(format_args!("   change cluster   take checkpoint\n"));
    for (number, Interval { bytes, division: it, moved, checkpointed, .. }) in (1..).zip(intervals) {
        let (clusters, rolled, logged, sum) =
            (it.clusters, it.rolled_back_percent, it.logged_percent, it.cost());
        line(format_args!(
            "   {number:>8}  {bytes:>12}  {clusters:>8}  {rolled:>9.2} %  {logged:>6.2} %  {sum:>7.2}"
        ));
        line(format_args!("  {moved:>15}  {checkpointed:>17}\n"));
    }
    line(format_args!("\n   over all intervals                rolled back    logged   changes      sum\n"));
    for (name, it) in sequences(found) {
        line(format_args!(
            "   {name:<30}  {:>11.2} %  {:>6.2} %  {:>6.2} %  {:>7.2}\n",
            it.rolled_back_percent,
            it.logged_percent,
            it.changes_percent,
            it.cost()
        ));
    }
    let mut verdict = found.verdict.clone();
    verdict[..1].make_ascii_uppercase();
    line(format_args!("\n{}", wrapped("", &format!("{verdict}."))));
    let changes = found.best.changes();
    if changes.is_empty() {
        line(format_args!("\n{fragment}"));
        return text;
    }
    for number in [1].into_iter().chain(changes) {
        line(format_args!("\nFrom interval {number}:\n"));
        for (cluster, members) in &clusters[number - 1] {
            line(format_args!("  cluster-{cluster}: {}\n", listed(members)));
        }
    }
    line(format_args!(
        "\nFaultline does not change clusters during a run. The best single division for all intervals:\n\n{fragment}"
    ));
    text
}

/// Returns a chart of the costs of the sequences, by interval.
fn chart(found: &Reclustering) -> Chart {
    let sequence = |(name, sequence): (&str, &DivisionSequence)| Series {
        name: name.to_owned(),
        points: (1..)
            .zip(&sequence.intervals)
            .map(|(number, it)| (f64::from(number), Spread::of([it.division.cost()])))
            .collect(),
    };
    Chart::new(
        "processes rolled back plus bytes logged, by interval",
        "interval",
        "rolled back plus logged, sum of both percentages",
        sequences(found).into_iter().map(sequence).collect(),
    )
}

/// Formats the sequences, with one line for each interval of each sequence.
fn intervals_csv(found: &Reclustering) -> String {
    let mut text =
        "sequence,interval,bytes,clusters,largest,rolled_back_percent,logged_percent,moved,checkpointed\n"
            .to_owned();
    for (name, sequence) in sequences(found) {
        for (number, Interval { bytes, division: it, moved, checkpointed, .. }) in
            (1..).zip(&sequence.intervals)
        {
            let (rolled_back, logged) = (it.rolled_back_percent, it.logged_percent);
            writeln!(
                text,
                "{name},{number},{bytes},{},{},{rolled_back},{logged},{moved},{checkpointed}",
                it.clusters, it.largest
            )
            .expect("writing to a string never fails");
        }
    }
    text
}

/// Formats, for each process, its cluster in the single division and in each interval of the best sequence.
fn clusters_csv(found: &Reclustering) -> String {
    let intervals = &found.best.intervals;
    let columns = (1..=intervals.len()).map(|it| format!(",interval-{it}"));
    let text = format!("process,one{}\n", columns.collect::<String>());
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (process, name) in found.processes.iter().enumerate() {
        let cluster = |it: &Interval| it.numbers[it.division.cluster_of[process] as usize];
        let all = [&found.one.intervals[0]].into_iter().chain(intervals);
        let cells = all.map(|it| format!("cluster-{}", cluster(it)));
        rows.push([name.clone()].into_iter().chain(cells).collect());
    }
    text + &csv_rows(rows.into_iter())
}
