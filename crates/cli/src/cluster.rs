//! `faultline cluster`: computes clusters from a communication graph.

use std::fmt::Write;
use std::path::Path;

use faultline_clustering::graph::{MAX_TRAFFIC, TooMuchTraffic};
use faultline_clustering::read::{GraphFormat, read};
use faultline_clustering::{CommunicationGraph, Constraints, Division, SearchResult, find};
use faultline_console::place::{self, Claim};
use faultline_experiments::table1::front_chart;
use faultline_report::explain::count;
use miette::miette;
use serde::Serialize;

use crate::arguments::{ClusterArguments, Format};
use crate::command_error::{CommandError, Exit};
use crate::files::{self, Source};
use crate::{output, recording};

mod pieces;
mod recluster;

/// The maximum number of divisions of the front that are printed. The chosen division is always printed.
const ROWS: usize = 16;

/// The file with the chosen clusters, in the directory that `--out` names.
const FRAGMENT: &str = "clusters.yaml";

const GRAPH_HELP: &str =
    "`faultline export DIR --format graph` writes a graph; docs/clustering.md describes the formats";

/// The output of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    processes: usize,
    bytes: u64,
    #[serde(flatten)]
    found: &'a SearchResult,
    /// The members of each cluster of the chosen division.
    clusters: Vec<Vec<&'a str>>,
}

/// Executes `faultline cluster`.
pub(crate) fn cluster(arguments: &ClusterArguments) -> Result<Exit, CommandError> {
    let graphs = match &arguments.graphs[..] {
        [path] if !path.is_dir() && arguments.intervals.is_none() => match input(path)? {
            Input::Federation(source) => return pieces::print(&source),
            Input::Graph(graph) => vec![graph],
        },
        _ => graphs(arguments)?,
    };
    let constraints =
        Constraints { max_rollback_percent: arguments.max_rollback, balance: arguments.balance };
    let printed = match (&graphs[..], arguments.change_cost) {
        ([graph], None) => divide(graph, constraints, arguments)?,
        ([_], Some(_)) => {
            return Err(unfit(
                "`--change-cost` has no effect on a single graph; specify several graphs, or add `--intervals`",
            ));
        }
        (graphs, cost) => recluster::recluster(graphs, constraints, cost.unwrap_or(1.0), arguments)?,
    };
    output::print(&printed)?;
    if let (Some(out), Format::Text) = (&arguments.out, arguments.format) {
        output::print(&format!("\n{}\n", out.join(FRAGMENT).display()))?;
    }
    Ok(Exit::Pass)
}

/// Computes the clusters for one graph. Writes the files that `--out` requests, and returns the text to print.
fn divide(
    graph: &CommunicationGraph,
    constraints: Constraints,
    arguments: &ClusterArguments,
) -> Result<String, CommandError> {
    let found = find(graph, constraints);
    let chosen = &found.front[found.chosen];
    let object = Object {
        processes: graph.len(),
        bytes: graph.total(),
        found: &found,
        clusters: members(graph.names(), chosen),
    };
    let (json, fragment) = (output::json(&object), fragment(&object.clusters, chosen));
    if let Some(out) = &arguments.out {
        let files = [
            ("front.svg", &front_chart("divisions", &found, &[]).file()),
            ("front.csv", &front_csv(&found)),
            ("clusters.csv", &csv(graph, chosen)),
            (FRAGMENT, &fragment),
            ("clusters.json", &json),
        ];
        write(out, &files)?;
    }
    Ok(match arguments.format {
        Format::Json => json,
        Format::Text => text(graph, &found, &fragment),
    })
}

fn write(out: &Path, files: &[(&str, &String)]) -> Result<(), CommandError> {
    let _claim = Claim::of(place::RESULTS, out)?;
    files.iter().try_for_each(|(name, content)| output::write(out, name, content).map(drop))
}

/// Reads one graph per path, or one per interval of a recorded run.
fn graphs(arguments: &ClusterArguments) -> Result<Vec<CommunicationGraph>, CommandError> {
    match (&arguments.graphs[..], arguments.intervals) {
        ([run], Some(intervals)) if run.is_dir() => recording::graphs(run, intervals),
        (_, Some(_)) => {
            Err(unfit("`--intervals` requires the directory of one recorded run and no other graph"))
        }
        (paths, None) => {
            let graphs = paths.iter().map(|it| graph(it)).collect::<Result<Vec<_>, _>>()?;
            check_sum(&graphs)?;
            Ok(graphs)
        }
    }
}

/// Checks that the traffic of all graphs together is within the limit of one graph.
fn check_sum(graphs: &[CommunicationGraph]) -> Result<(), CommandError> {
    let is_within = |of: fn(&CommunicationGraph) -> u64| {
        let sum = graphs.iter().try_fold(0_u64, |sum, it| sum.checked_add(of(it)));
        sum.is_some_and(|it| it <= MAX_TRAFFIC)
    };
    if is_within(CommunicationGraph::total) && is_within(CommunicationGraph::messages) {
        return Ok(());
    }
    Err(CommandError::input(miette!(help = GRAPH_HELP, "all graphs together: {TooMuchTraffic}")))
}

fn unfit(why: &str) -> CommandError {
    CommandError::input(miette!(help = "see the examples in `faultline cluster --help`", "{why}"))
}

/// Reads a graph from a file, or derives it from a recorded run.
fn graph(path: &Path) -> Result<CommunicationGraph, CommandError> {
    if path.is_dir() {
        return Ok(recording::graphs(path, 1)?.remove(0));
    }
    match input(path)? {
        Input::Graph(graph) => Ok(graph),
        Input::Federation(source) => {
            Err(unfit(&format!("{} is a federation file; pass it without any graphs", source.label)))
        }
    }
}

/// The input to divide, as read from a file.
enum Input {
    /// A federation. The pieces of its program are divided into partitions.
    Federation(Source),
    /// A communication graph.
    Graph(CommunicationGraph),
}

/// Reads a file. The format follows from the name of the file or, for standard input, from the content.
fn input(path: &Path) -> Result<Input, CommandError> {
    let extension = path.extension().and_then(|it| it.to_str());
    if matches!(extension, Some("yaml" | "yml")) {
        return files::read(path).map(Input::Federation);
    }
    let source = if path == Path::new("-") {
        let source = files::read(path)?;
        let is_key = |line: &str| line.starts_with("apiVersion:") || line.starts_with("kind:");
        if source.text().lines().any(is_key) {
            return Ok(Input::Federation(source));
        }
        source
    } else {
        files::read_with(path, GRAPH_HELP)?
    };
    let form = match extension {
        Some("graph" | "metis") => GraphFormat::Metis,
        Some("graphml" | "gexf" | "xml") => {
            let why = miette!(help = GRAPH_HELP, "{}: graphs in XML are not supported", source.label);
            return Err(CommandError::input(why));
        }
        _ => GraphFormat::EdgeList,
    };
    let graph = read(&source.bytes, form)
        .map_err(|error| CommandError::input(miette!(help = GRAPH_HELP, "{}: {error}", source.label)))?;
    Ok(Input::Graph(graph))
}

/// Returns the names of the processes of each cluster.
fn members<'a>(names: &'a [String], division: &Division) -> Vec<Vec<&'a str>> {
    let mut members = vec![Vec::new(); division.clusters];
    for (name, &cluster) in names.iter().zip(&division.cluster_of) {
        members[cluster as usize].push(name.as_str());
    }
    members
}

fn text(graph: &CommunicationGraph, found: &SearchResult, fragment: &str) -> String {
    let mut text = format!(
        "{}, {}, {}\n\n   clusters     largest cluster  rolled back    logged      sum\n",
        count(graph.len() as u64, "process"),
        count(graph.pairs() as u64, "communicating pair"),
        count(graph.total(), "byte"),
    );
    let (shown, hidden) = rows(found);
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("writing to a string never fails")
    };
    for index in shown {
        let it = &found.front[index];
        let mark = if index == found.chosen { "->" } else { "  " };
        let (rolled, logged) = (it.rolled_back_percent, it.logged_percent);
        line(format_args!(
            "{mark} {:>8}  {:>7} ({:>6.2} %)  {rolled:>9.2} %  {logged:>6.2} %  {:>7.2}\n",
            it.clusters,
            it.largest,
            share(it.largest, graph.len()),
            it.cost()
        ));
    }
    if hidden > 0 {
        line(format_args!(
            "   ({} divisions into several clusters are on the front; only those with the lowest sums are shown)\n",
            several(found).count()
        ));
    }
    line(format_args!("\nChosen: {}.\n\n{fragment}", found.reason));
    text
}

/// Returns the indices of the divisions into several clusters.
fn several(found: &SearchResult) -> impl Iterator<Item = usize> {
    (0..found.front.len()).filter(|it| found.front[*it].clusters > 1)
}

/// Returns the indices of the divisions that are printed, and the number of other divisions into several
/// clusters.
fn rows(found: &SearchResult) -> (Vec<usize>, usize) {
    let mut shown: Vec<usize> = several(found).collect();
    shown.sort_by(|&a, &b| found.front[a].cost().total_cmp(&found.front[b].cost()));
    shown.truncate(ROWS);
    if !shown.contains(&found.chosen) {
        shown.push(found.chosen);
    }
    shown.sort_unstable();
    let hidden = several(found).filter(|it| !shown.contains(it)).count();
    (shown, hidden)
}

/// Formats the names of processes for one line of text, whatever characters they contain.
fn listed(names: &[&str]) -> String {
    names.iter().map(|it| output::name(it)).collect::<Vec<_>>().join(" ")
}

/// Formats the clusters as in a federation file. In the file, processes are numbered cluster by cluster; comments state
/// the names of the processes and, if the graph has a different order, their indices in the graph.
fn fragment(clusters: &[Vec<&str>], division: &Division) -> String {
    let mut text = "spec:\n  clusters:\n".to_owned();
    for (number, members) in clusters.iter().enumerate() {
        let name = format!("cluster-{number}");
        writeln!(text, "    - {{ name: {name}, nodes: {} }} # {}", members.len(), listed(members))
            .expect("writing to a string never fails");
    }
    let mut order: Vec<usize> = (0..division.cluster_of.len()).collect();
    order.sort_by_key(|it| division.cluster_of[*it]);
    // If the processes have the same order in the graph and in the federation, each has the same number in
    // both, and the list is not needed.
    if !order.is_sorted() {
        let order: Vec<String> = order.iter().map(usize::to_string).collect();
        writeln!(
            text,
            "  # processes of the graph in the order of these clusters (for the option `order` of `nas`): [{}]",
            order.join(", ")
        )
        .expect("writing to a string never fails");
    }
    text
}

/// Returns `part` as a percentage of `all`.
fn share(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all as f64
}

/// Formats the divisions of the front, one per line.
fn front_csv(found: &SearchResult) -> String {
    let row = |(index, it): (usize, &Division)| {
        let Division { clusters, largest, rolled_back_percent, logged_percent, .. } = it;
        let chosen = index == found.chosen;
        format!("{clusters},{largest},{rolled_back_percent},{logged_percent},{chosen}\n")
    };
    "clusters,largest,rolled_back_percent,logged_percent,chosen\n".to_owned()
        + &found.front.iter().enumerate().map(row).collect::<String>()
}

fn csv(graph: &CommunicationGraph, chosen: &Division) -> String {
    let rows = graph.names().iter().zip(&chosen.cluster_of);
    let rows = rows.map(|(name, cluster)| vec![name.clone(), format!("cluster-{cluster}")]);
    "process,cluster\n".to_owned() + &csv_rows(rows)
}

/// Formats rows of text as comma-separated values. All of them are in quotes, so that spreadsheets take none for a number.
fn csv_rows(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).expect("writing to memory never fails, and all rows have the same length");
    }
    let bytes = writer.into_inner().expect("writing to memory never fails");
    String::from_utf8(bytes).expect("the rows are text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a front with the division into one cluster and `divided` others. The division at the index
    /// `chosen` is chosen.
    fn front(divided: usize, chosen: usize) -> SearchResult {
        let division = |index: usize| Division {
            clusters: index + 1,
            largest: 1,
            rolled_back_percent: 100.0 / (index + 1) as f64,
            logged_percent: index as f64,
            cluster_of: Vec::new(),
        };
        let front = (0..=divided).rev().map(division).collect();
        SearchResult { front, chosen, reason: String::new(), exhaustive: true }
    }

    #[test]
    fn the_division_into_one_cluster_is_not_hidden() {
        let hidden = |found: &SearchResult| {
            let (rows, hidden) = rows(found);
            (rows.len(), hidden)
        };
        assert_eq!(hidden(&front(ROWS, 0)), (ROWS, 0));
        assert_eq!(hidden(&front(ROWS + 1, 5)), (ROWS, 1));
        // If the division into one cluster is chosen, it is printed in addition to the others.
        assert_eq!(hidden(&front(ROWS, ROWS)), (ROWS + 1, 0));
        let graph = read(b"0 1 8\n", GraphFormat::EdgeList).expect("it is a graph");
        let is_noted = |divided| text(&graph, &front(divided, 0), "").contains("are on the front");
        assert_eq!((is_noted(ROWS), is_noted(ROWS + 1)), (false, true));
    }
}
