//! What the clients of a user's own system were told: a table of the kinds of operations, and drawings of contradictions.

use faultline_consistency::{Case, History, NEVER, Operation, Verdict, draw};
use faultline_history::clients::{ClientHistory, KindHistory};
use faultline_trace::duration::span;
use faultline_trace::printable;
use maud::{Markup, html};
use serde::Serialize;

use crate::probes::{LatencySummary, ProbeSummary};

/// The most cases of a history that are drawn. If there are several kinds of contradictions, one of each is drawn.
const DRAWN: usize = 3;
/// The width of a drawing.
const WIDTH: f64 = 900.0;
/// The width of the names of clients.
const MARGIN: f64 = 80.0;
/// The height of the lane of a client.
const LANE: f64 = 34.0;

/// A history of clients, compared with its model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistorySummary {
    /// The name of the history.
    pub name: String,
    /// The model.
    pub model: String,
    /// The level of consistency that the federation states.
    pub level: String,
    /// `pass`, `fail`, or `unknown`.
    pub result: &'static str,
    /// The strongest level that the history does not contradict; `null` if none is known.
    pub strongest: Option<String>,
    /// The number of steps of the judge.
    pub steps: u64,
    /// The number of all operations, with those of the final phase.
    pub operations: usize,
    /// The kinds of operations, without those of the final phase.
    pub kinds: Vec<KindSummary>,
    /// The contradictions with the level.
    pub anomalies: Vec<AnomalySummary>,
}

/// A kind of operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindSummary {
    /// The name of the kind.
    pub kind: String,
    /// The number of operations that were answered.
    pub ok: usize,
    /// The number of operations that had no effect.
    pub failed: usize,
    /// The number of operations without a result.
    pub unknown: usize,
    /// The number of arrivals that no client took in time.
    pub missed: usize,
    /// How long answers took, from the time at which the operation was due; `null` without answers.
    pub latency: Option<LatencySummary>,
}

/// All contradictions of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnomalySummary {
    /// The name of the kind, such as `stale` or `lost`.
    pub kind: &'static str,
    /// The number of cases.
    pub count: usize,
    /// The first case as a sentence.
    pub sentence: String,
    /// The last fault that took effect before the end of the first case; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<u32>,
    /// The first cases as text, in at most 100 columns.
    pub drawings: Vec<String>,
    /// The first cases as pictures.
    #[serde(skip)]
    pub pictures: Vec<String>,
}

impl HistorySummary {
    /// Summarises a history.
    pub(crate) fn of(it: &ClientHistory, run: &faultline_history::History<'_>) -> HistorySummary {
        let judgement = &it.judgement;
        let mut left = DRAWN;
        let each = if judgement.anomalies.len() > 1 { 1 } else { DRAWN };
        let anomalies = judgement.anomalies.iter().map(|anomaly| {
            let drawn: Vec<&Case> = anomaly.cases.iter().take(left.min(each)).collect();
            left -= drawn.len();
            AnomalySummary {
                kind: anomaly.kind,
                count: anomaly.count,
                fault: anomaly.cases.first().and_then(|case| it.fault_before(run, case)).map(|it| it.0),
                sentence: anomaly.cases.first().map_or_else(String::new, |it| it.sentence.clone()),
                drawings: drawn.iter().map(|case| draw(&it.operations, case)).collect(),
                pictures: drawn.iter().map(|case| picture(&it.operations, case).into_string()).collect(),
            }
        });
        let result = match judgement.verdict {
            Verdict::Pass if !it.is_consistent() => Verdict::Unknown.name(),
            verdict => verdict.name(),
        };
        HistorySummary {
            name: it.entry.name.clone(),
            model: it.entry.workload.model.clone(),
            level: it.entry.level.clone(),
            result,
            strongest: judgement.strongest.map(str::to_owned),
            steps: judgement.steps,
            operations: it.len(),
            anomalies: anomalies.collect(),
            kinds: it.kinds.iter().map(KindSummary::of).collect(),
        }
    }

    /// The titles of a table of kinds of operations.
    pub(crate) const TITLES: [&str; 9] =
        ["operations", "answered", "failed", "no result", "missed", "available", "outage", "p50", "p99"];

    /// Returns the rows of a table of kinds of operations, which are probes as well.
    pub(crate) fn rows(&self, probes: &[ProbeSummary]) -> impl Iterator<Item = [String; 9]> {
        self.kinds.iter().map(|it| {
            let name = format!("{}.{}", self.name, it.kind);
            let probe = probes.iter().find(|probe| probe.probe == name);
            let latency =
                |of: fn(LatencySummary) -> f64| it.latency.map_or_else(|| "-".to_owned(), |it| span(of(it)));
            [
                name,
                it.ok.to_string(),
                it.failed.to_string(),
                it.unknown.to_string(),
                it.missed.to_string(),
                probe.map_or_else(|| "-".to_owned(), ProbeSummary::available),
                probe.map_or_else(|| "-".to_owned(), ProbeSummary::longest_outage),
                latency(|it| it.p50_seconds),
                latency(|it| it.p99_seconds),
            ]
        })
    }

    /// Returns the drawings of contradictions as lines of at most 100 columns, each case after its sentence.
    pub(crate) fn drawings(&self) -> String {
        let mut text = String::new();
        for anomaly in &self.anomalies {
            for drawing in &anomaly.drawings {
                text += &format!("{} {}:\n", self.name, anomaly.kind);
                for line in drawing.lines() {
                    text += &format!("{}\n", printable(line));
                }
            }
        }
        text
    }
}

impl KindSummary {
    fn of(it: &KindHistory) -> KindSummary {
        let latency = it.latency.map(LatencySummary::from);
        let KindHistory { name, ok, failed, unknown, missed, .. } = *it;
        KindSummary { kind: name.to_owned(), ok, failed, unknown, missed, latency }
    }
}

/// Draws the operations of a case: a lane for each client, and a box from the call of each operation to its return, which is
/// open to the right if the outcome is unknown. Each call and each return has a place of its own, so distances are not to
/// scale.
fn picture(history: &History, case: &Case) -> Markup {
    let operations = &case.operations;
    let mut clients: Vec<u32> = operations.iter().map(|it| it.client).collect();
    clients.sort_unstable();
    clients.dedup();
    let mut ends: Vec<(u64, bool, usize)> = Vec::new();
    for (at, it) in operations.iter().enumerate() {
        ends.push((it.call_at, false, at));
        if it.return_at != NEVER {
            ends.push((it.return_at, true, at));
        }
    }
    ends.sort_unstable();
    let step = (WIDTH - MARGIN - 20.0) / ends.len().max(1) as f64;
    let place = |at: usize, is_return: bool| {
        let position = ends.iter().position(|it| (it.2, it.1) == (at, is_return));
        position.map_or(WIDTH - 10.0, |it| MARGIN + step * it as f64)
    };
    let lane =
        |it: &Operation| clients.iter().position(|client| *client == it.client).unwrap_or(0) as f64 * LANE;
    let height = clients.len() as f64 * LANE + 20.0;
    let name = |client: u32| operations.iter().find(|it| it.client == client).map(|it| history.client(it));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } role="img" style="width:100%"
            aria-label=(case.sentence) {
            @for (row, client) in clients.iter().enumerate() {
                text x="0" y=(row as f64 * LANE + 20.0) style="font-size:12px;fill:var(--ink)" {
                    (name(*client).unwrap_or_default())
                }
            }
            @for (at, it) in operations.iter().enumerate() {
                @let (from, upto, y) = (place(at, false), place(at, true), lane(it));
                @let is_impossible = case.impossible == Some(at);
                @let colour = if is_impossible { "bad" } else { "ink" };
                @let dashes = if it.return_at == NEVER { "stroke-dasharray:4" } else { "" };
                g {
                    title { (history.describe(it)) ", from " (history.time(it.call_at)) }
                    rect x=(from) y=(y + 4.0) width=((upto - from).max(4.0)) height="22"
                        style={ "fill:none;stroke:var(--" (colour) ");" (dashes) } {}
                    text x=(from + 4.0) y=(y + 19.0) style={ "font-size:11px;fill:var(--" (colour) ")" } {
                        @if let Some(order) = case.order[at].filter(|_| !is_impossible) { (order) " " }
                        (history.describe(it))
                    }
                }
            }
            @if let (Some(first), Some(last)) = (ends.first(), ends.last()) {
                text x=(MARGIN) y=(height - 4.0) style="font-size:11px;fill:var(--faint)" { (history.time(first.0)) }
                text x=(WIDTH - 70.0) y=(height - 4.0) style="font-size:11px;fill:var(--faint)" { (history.time(last.0)) }
            }
        }
    }
}

/// Renders the histories of clients for the page.
pub(crate) fn section(histories: &[HistorySummary], table: Markup) -> Markup {
    html! {
        @if !histories.is_empty() {
            h2 { "Clients" }
            (table)
            @for it in histories {
                p { (it.name) " (" (it.model) ", " (it.level) "): " (it.result)
                    @if let Some(strongest) = it.strongest.as_ref().filter(|strongest| **strongest != it.level) {
                        ". The strongest level that it does not contradict is " (strongest) "."
                    }
                }
                @for anomaly in &it.anomalies {
                    p { b { (anomaly.kind) } ": " (anomaly.sentence) @if anomaly.count > 1 { " (one of " (anomaly.count) ")" } }
                    @for picture in &anomaly.pictures { (maud::PreEscaped(picture)) }
                }
            }
        }
    }
}
