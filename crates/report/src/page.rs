//! The report: one self-contained HTML file that works offline and without a server. [`live`] contains the pages that a
//! server shows.

pub mod list;
pub mod live;

use std::collections::BTreeSet;

use faultline_checker::Verdict;
use faultline_history::{Standing, TimeByPart};
use faultline_trace::shell_word;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::diagram::pack::PackedDiagram;
use crate::diagram::{Diagram, svg};
use crate::explain::{ExplainedEvent, count};
use crate::histories::{HistorySummary, section};
use crate::map;
use crate::names::DisplayNames;
use crate::probes::{ProbeSummary, RecoverySummary, strips, system_numbers};
use crate::style;
use crate::summary::{
    LifeSummary, PropertyResult, PropertySummary, RecordedRun, Summary, measured_in_words,
    measured_without_output, met, restored,
};
use crate::terms;
use crate::text::{self, backend, because, instant, lost, percent, protocol, span, verdict};
use crate::timeline::Timeline;

/// Joins the script's files, in a scope of their own.
macro_rules! script {
    ($($more:literal),*) => {
        concat!(
            "\"use strict\";(() => {\n",
            include_str!("../assets/page/data.js"),
            include_str!("../assets/page/lanes.js"),
            include_str!("../assets/page/draw.js"),
            include_str!("../assets/page/act.js"),
            include_str!("../assets/page/time.js"),
            $(include_str!($more),)*
            "})();\n"
        )
    };
}
const SCRIPT: &str = script!();
/// The script of a page that a server shows.
const LIVE_SCRIPT: &str = script!("../assets/page/live.js");

/// Where a page gets its script and its styles from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assets {
    /// It contains its styles, and has no script.
    Styles,
    /// It contains both.
    Inline,
    /// The server has both, and states the page's policy.
    Linked,
}

/// Renders the page of a run.
pub fn render(recorded: RecordedRun<'_>) -> String {
    rendered(recorded, Assets::Inline).0
}

/// Renders the page of a run, and its diagram as a picture.
pub fn render_with_picture(recorded: RecordedRun<'_>) -> (String, String) {
    let (page, diagram) = rendered(recorded, Assets::Inline);
    (page, svg::render(&diagram, svg::Options::default()))
}

fn rendered(recorded: RecordedRun<'_>, assets: Assets) -> (String, Diagram) {
    let names = DisplayNames::new(recorded.manifest);
    let timeline = Timeline::new(recorded.trace, recorded.manifest);
    let summary = Summary::of_timeline(recorded, &names, &timeline);
    let (diagram, strips) = (Diagram::new(&timeline, &names), strips(&timeline, &names));
    let parts = Parts {
        strips: &strips,
        federation: &recorded.manifest.federation,
        map: &map::render(recorded.manifest, &names),
    };
    let page = page(&summary, &diagram, &names, &parts, assets);
    (page.into_string(), diagram)
}

/// Renders another page in the same style, without scripts. `styles` are added to the styles that all pages
/// share.
pub fn document(title: &str, styles: &[&str], body: Markup) -> String {
    shell(title, Assets::Styles, styles, html! { main { (body) } }).into_string()
}

/// Returns whether `content` is a page of this module.
pub fn is_page(content: &str) -> bool {
    let before_title = content.split("<title>").next().unwrap_or_default();
    before_title.contains(r#"<meta name="generator" content="faultline">"#)
}

/// Returns the title of a page of this module, of which `content` is the beginning.
pub fn title(content: &str) -> Option<String> {
    let (_, after) = content.split_once("<title>").filter(|_| is_page(content))?;
    let title = after.split_once("</title>")?.0;
    // As `maud` escapes text.
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    Some(plain.iter().fold(title.to_owned(), |title, (from, to)| title.replace(from, to)))
}

/// Renders a page around its body.
fn shell(title: &str, assets: Assets, styles: &[&str], body: Markup) -> Markup {
    let scripts = if assets == Assets::Inline { "script-src 'unsafe-inline'; " } else { "" };
    let policy = format!("default-src 'none'; style-src 'unsafe-inline'; {scripts}img-src data:");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="generator" content="faultline";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                @if assets == Assets::Linked {
                    link rel="stylesheet" href=(live::STYLES.path());
                } @else {
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    style {
                        (PreEscaped(style::PALETTE)) (PreEscaped(style::PAGE))
                        @for style in styles { (PreEscaped(style)) }
                    }
                }
            }
            body { (body) }
        }
    }
}

/// Parts of a page that have been rendered.
struct Parts<'a> {
    strips: &'a Markup,
    federation: &'a str,
    map: &'a Markup,
}

fn page(
    summary: &Summary,
    diagram: &Diagram,
    names: &DisplayNames,
    parts: &Parts<'_>,
    assets: Assets,
) -> Markup {
    let packed = PackedDiagram::new(diagram);
    let title = format!("{}: {}", summary.run.name, verdict(summary.verdict));
    let within = diagram.messages.iter().filter(|it| !it.between).count();
    let shows_within = within > 0 && PackedDiagram::shows_within(diagram);
    let within = format!("within clusters ({within})");
    let body = html! {
        main data-stage=[(assets == Assets::Linked).then_some("over")] class=[summary.is_system.then_some("system")] {
            (head(summary))
            h2 { "Space-time diagram" }
            div.diagram { (diagram_section(diagram, (&within, shows_within), &packed.notes)) }
            // Only the script knows the states at one time.
            section #states hidden { h2 { "Processes at " span #moment {} } (processes(names)) }
            @if !summary.links.is_empty() { (parts.map) }
            h2 { "What happened" }
            (explanation(&summary.explanation))
            // Faultline sees neither the checkpoints nor the work of a system's programs.
            @if !summary.is_system {
                h2 { "Clusters" }
                (clusters(summary))
                (time(summary))
                (rollbacks(summary))
            }
            (section(
                &summary.histories,
                rows(&HistorySummary::TITLES, summary.histories.iter().flat_map(|it| it.rows(&summary.probes))),
            ))
            @if !summary.probes.is_empty() {
                h2 { "Probes" }
                @let own: Vec<&ProbeSummary> = summary.probes.iter().filter(|it| !it.is_of_clients()).collect();
                @if !own.is_empty() { (rows(&ProbeSummary::TITLES, own.into_iter().map(ProbeSummary::row))) }
                @for reason in summary.probes.iter().flat_map(ProbeSummary::last_reasons) { p.hint { (reason) } }
                (parts.strips)
                (rows(&RecoverySummary::TITLES, summary.probe_recoveries.iter().map(RecoverySummary::row)))
            }
            @if !summary.lives.is_empty() {
                h2 { "Lives that ended" }
                (rows(&LifeSummary::TITLES, summary.lives.iter().map(LifeSummary::row)))
            }
            @if !summary.expectations.is_empty() {
                h2 { "Expectations" }
                (expectations(summary))
                @if let Some(pressure) = summary.pressure { p.hint { (pressure.sentence(summary.run.duration_seconds)) } }
            }
            h2 { "Faults" }
            (faults(summary))
            h2 { "Properties" }
            @let is_idle = |it: &&PropertySummary| it.found == PropertyResult::NotExercised;
            @let idle: Vec<_> = summary.listed().filter(is_idle).collect();
            (properties(summary.properties.iter().filter(|it| !is_idle(it))))
            @if !idle.is_empty() {
                details {
                    summary { (idle.len()) @if idle.len() == 1 { " property" } @else { " properties" } " not exercised" }
                    (properties(idle))
                }
            }
            @if !summary.links.is_empty() {
                h2 { "Links" }
                (links(summary))
            }
            (terms::section(if summary.is_system { terms::OF_A_SYSTEM } else { terms::OF_A_RUN }))
            h2 { "Federation" }
            details {
                summary { "Federation file of this run" }
                pre { (parts.federation) }
            }
            footer {
                "Recorded in " code { (summary.run.bundle) } " (" (count(summary.run.facts, "fact")) ") by faultline "
                (summary.run.tool) ". Judge it again with " code { "faultline check " (shell_word(&summary.run.bundle)) } "."
            }
        }
        (scripts(&packed, assets))
    };
    shell(&title, assets, &[], body)
}

/// Renders the data of a diagram, and the script that shows it.
fn scripts(packed: &PackedDiagram<'_>, assets: Assets) -> Markup {
    html! {
        script type="application/json" id="data" { (PreEscaped(json(packed))) }
        @if assets == Assets::Linked {
            script src=(live::SCRIPT.path()) {}
        } @else {
            script { (PreEscaped(SCRIPT)) }
        }
    }
}

/// Serialises the diagram as JSON that can be embedded in a script element.
fn json(diagram: &PackedDiagram<'_>) -> String {
    serde_json::to_string(diagram).expect("a diagram can be written as JSON").replace('<', "\\u003c")
}

fn head(summary: &Summary) -> Markup {
    let run = &summary.run;
    let all =
        |number: fn(&crate::summary::ClusterSummary) -> f64| summary.clusters.iter().map(number).sum::<f64>();
    let unforced = all(|it| it.unforced as f64);
    let forced = all(|it| it.forced as f64);
    let rollbacks = all(|it| it.rollbacks.len() as f64);
    let lost = all(|it| it.lost_work_seconds);
    let has_lost = rollbacks > 0.0 || lost > 0.0;
    let slowest = summary
        .clusters
        .iter()
        .flat_map(|it| &it.rollbacks)
        .map(|it| it.recovery_seconds)
        .fold(0.0, f64::max);
    html! {
        header {
            div {
                h1 { (run.name) }
                p.meta {
                    @match &run.events {
                        Some(_) => {
                            (count(summary.clusters.len() as u64, "cluster")) ", "
                            (summary.run_in_words()) ", " (run.ended())
                        }
                        None => {
                            (protocol(summary)) " on the " (backend(summary)) " backend, "
                            (count(summary.clusters.len() as u64, "cluster")) ", "
                            (count(summary.clusters.iter().map(|it| it.processes as u64).sum(), "process"))
                            ", seed " (run.seed) ", " (run.ended())
                        }
                    }
                }
            }
            div.verdict {
                span class={ "badge " (verdict(summary.verdict)) } { (verdict(summary.verdict)) }
                @if let Some(added) = summary.added_in_words() { span.hint { (added) } }
            }
        }
        @if summary.reasons.is_empty() {
            ul.reasons.plain { li { (pass_reasons(summary)) } }
        } @else {
            ul.reasons { @for reason in &summary.reasons { li { (reason) } } }
        }
        @for caveat in &summary.caveats { p.hint { "Note: " (caveat) "." } }
        @if summary.is_system { (system_numbers(summary)) } @else { div.numbers {
            div { b { (rollbacks) } span { (if rollbacks == 1.0 { "rollback" } else { "rollbacks" }) } }
            div { b { (if has_lost { span(lost) } else { "none".to_owned() }) } span { "work lost, all processes" @if has_lost { ": " (percent(lost, all(|it| it.time.total_seconds()))) " of their time" } } }
            div { b { (if rollbacks > 0.0 { span(slowest) } else { "none".to_owned() }) } span { "longest recovery" } }
            @if summary.is_of_tasks() {
                @let executions = all(|it| it.tasks_run.unwrap_or(0) as f64);
                div { b { (executions) } span { (if executions == 1.0 { "execution of a task" } else { "executions of tasks" }) } }
            } @else {
                @let resent = all(|it| it.resent as f64);
                div { b { (resent) } span { (if resent == 1.0 { "message re-sent" } else { "messages re-sent" }) } }
            }
            div { b { (unforced + forced) } span { (if unforced + forced == 1.0 { "checkpoint" } else { "checkpoints" }) ", " (forced) " forced" } }
        } }
        @for note in &summary.notes { p.hint { "Note: " (note) "." } }
    }
}

fn pass_reasons(summary: &Summary) -> String {
    let result = match (&summary.result.compared_with, summary.result.equal) {
        (Some(source), Some(true)) => format!("The result equals that of {source}."),
        _ => "There is no reference result.".to_owned(),
    };
    let links = summary.links_in_words().map(|it| format!(" {it}")).unwrap_or_default();
    format!("{result} {}. {}{links}", summary.properties_in_words(), summary.faults_in_words())
}

/// Renders the diagram with its controls. `within` is the name of the switch for messages within clusters, and whether it
/// is on at first.
fn diagram_section(diagram: &Diagram, within: (&str, bool), notes: &[String]) -> Markup {
    let toggle = |layer: &str, sign: &str, text: &str, on: bool| {
        html! {
            label.toggle.protocols { input type="checkbox" data-layer=(layer) checked[on]; canvas data-sign=(sign) aria-hidden="true" {} (text) }
        }
    };
    let sign = |sign: &str, text: &str| {
        html! { span.hint { canvas data-sign=(sign) width="26" height="14" style="width:26px;height:14px;vertical-align:-2px" aria-hidden="true" {} " " (text) } }
    };
    html! {
        div.bar role="group" aria-label="Layers" {
            (toggle("between", "between", "between clusters", true))
            (toggle("within", "within", within.0, within.1))
            (toggle("undone", "undone", "undone", true))
            (toggle("resent", "resent", "re-sent", true))
            (toggle("checkpoints", "checkpoints", "checkpoints (forced: diamonds)", true))
            (toggle("rollbacks", "rollbacks", "rollbacks", true))
            (toggle("lines", "lines", "recovery lines", true))
            span.space {}
            button #in aria-label="Zoom in" { "+" }
            button #out aria-label="Zoom out" { "\u{2212}" }
            button #all { "whole run" }
            button #png { "save PNG" }
        }
        (filters(diagram))
        div.stage {
            div #scroll { div { div.sticky {
                canvas #plot tabindex="0" role="img"
                    aria-label="Space-time diagram: one lane per process or band per cluster, time to the right. The section below describes its content in sentences." {}
                div #names role="group" aria-label="Clusters: fold or unfold" {}
            } } }
            canvas #overview aria-hidden="true" {}
            div #tip role="status" {}
        }
        div.bar.time {
            button #play aria-label="Play" { "\u{25b6}" }
            input #time type="range" min="0" max="1000" value="1000" step="any" aria-label="Time";
            output #at .hint {}
        }
        div.bar {
            span.protocols { (sign("initial", "initial checkpoint")) " " (sign("past", "undone checkpoint")) }
            (sign("failure", "failure"))
            @if !diagram.flips.is_empty() { (sign("flip", "flipped bit")) }
            (sign("down", "down"))
            (sign("recovering", "recovering"))
            span.protocols { (sign("lost", "work undone")) }
        }
        p.hint {
            "Drag to move, double-click or " kbd { "Ctrl" } "+scroll to zoom, and hover over an item for details. "
            span.protocols {
                "Click a message to see its causal past. Where too many messages are in view, shades show how many there are. "
            }
            "The band of a folded cluster shows the share of \
                its processes in each state; click the cluster's name to unfold it. The slider chooses the time of the \
                states below. Filters can be part of the address: " code { "#process=NAME&kind=resent" } "."
            @for note in notes { " " (note) }
        }
        details #keys {
            summary { "Keys in the diagram (" kbd { "?" } ")" }
            p.hint {
                kbd { "+" } " " kbd { "\u{2212}" } " " kbd { "\u{2190}" } " " kbd { "\u{2192}" } " zoom and move, " kbd { "0" } " whole run, "
                kbd { "n" } " " kbd { "p" } " next and previous event, "
                span.protocols { kbd { "[" } " " kbd { "]" } " messages of the previous and next process, " }
                kbd { "f" } " fold or unfold clusters, " kbd { "space" } " play" span.protocols { ", " kbd { "Esc" } " all messages" } "."
            }
        }
        noscript { p.hint { "The interactive diagram requires JavaScript. A static picture is in an SVG file next to this page." } }
    }
}

/// Renders the filters for the diagram's messages.
fn filters(diagram: &Diagram) -> Markup {
    let kinds = [
        ("delivered", "delivered"),
        ("undone", "undone"),
        ("resent", "re-sent"),
        ("stale", "dropped as stale"),
        ("lost", "never arrived"),
    ];
    let group = |lane| diagram.clusters.iter().rposition(|it| it.first <= lane).unwrap_or(0);
    // Only links that carried messages: with many clusters, there are many pairs.
    let links: BTreeSet<_> = diagram.messages.iter().map(|it| (group(it.from), group(it.to))).collect();
    html! {
        div.bar role="group" aria-label="Filters" {
            label { "process " select data-filter="process" {
                option value="" { "all" }
                @for cluster in diagram.clusters.iter().filter(|it| it.lanes > 0) {
                    optgroup label=(cluster.name) {
                        option value=(cluster.name) { "all of " (cluster.name) }
                        @for lane in &diagram.lanes[cluster.first..cluster.first + cluster.lanes] { option { (lane) } }
                    }
                }
            } }
            label.protocols { "kind " select data-filter="kind" {
                option value="" { "all" }
                @for (value, text) in kinds { option value=(value) { (text) } }
            } }
            label.protocols { "link " select data-filter="link" {
                option value="" { "all" }
                @for (from, to) in links {
                    @let (from, to) = (&diagram.clusters[from].name, &diagram.clusters[to].name);
                    option value={ (from) ">" (to) } { @if from == to { "within " (from) } @else { (from) " to " (to) } }
                }
            } }
            output #count .hint {}
            button #forget hidden { "show all messages" }
        }
    }
}

/// Renders the state of every process.
fn processes(names: &DisplayNames) -> Markup {
    html! {
        @let signs = Standing::ALL.map(|it| (it.name(), sign(it)));
        div #processes data-signs=(serde_json::to_string(&signs).unwrap_or_default()) { @for cluster in names.clusters() {
            div class={ "c" (cluster.index() % 6) } role="group" aria-label=(names.cluster(cluster)) {
                b { (names.cluster(cluster)) }
                @for &process in names.processes(cluster) {
                    @let name = names.process(process);
                    @let prefix = format!("{}-", names.cluster(cluster));
                    span.cell data-cell="starting" title={ (name) ": starting" } {
                        span.sign aria-hidden="true" { (sign(Standing::Starting)) }
                        (name.strip_prefix(&prefix).unwrap_or(&name)) " "
                        span.state { "starting" }
                    }
                }
            }
        } }
    }
}

/// Returns the sign of a state, which can be told from the others without its colour.
fn sign(standing: Standing) -> &'static str {
    match standing {
        Standing::Starting => "\u{2026}",
        Standing::Up => "\u{25b2}",
        Standing::Recovering => "\u{25c6}",
        Standing::Down => "\u{2715}",
        Standing::Paused => "\u{2016}",
        Standing::Finished => "\u{2713}",
        Standing::Absent => "\u{2013}",
    }
}

fn explanation(events: &[ExplainedEvent]) -> Markup {
    html! {
        ol.story {
            @for it in events {
                li {
                    time { @if let Some(at) = it.from_seconds { (instant(at)) } }
                    span { (it.text) }
                    @if let (Some(from), Some(upto)) = (it.from_seconds, it.upto_seconds) {
                        button data-from=((from * 1e6) as i64) data-upto=((upto * 1e6) as i64) { "show" }
                    }
                }
            }
        }
    }
}

fn clusters(summary: &Summary) -> Markup {
    html! {
        div.table { table {
            thead { tr {
                th { "cluster" } th.num { "processes" } th.num { "unforced checkpoints" } th.num { "forced checkpoints" }
                th.num { "longest freeze" } th.num { "failures" } th.num { "rollbacks" } th.num { "lost work" }
                @if summary.is_of_tasks() { th.num { "tasks run" } } @else {
                    th.num { "sent within" } th.num { "sent to others" } th.num { "re-sent to it" }
                }
            } }
            tbody { @for (index, it) in summary.clusters.iter().enumerate() { tr {
                td { span class={ "dot c" (index % 6) } {} (it.name) }
                td.num { (it.processes) } td.num { (it.unforced) } td.num { (it.forced) }
                td.num { (span(it.longest_freeze_seconds)) } td.num { (it.failures) } td.num { (it.rollbacks.len()) }
                td.num { (lost(it)) }
                @match it.tasks_run {
                    Some(run) => td.num { (run) },
                    None => { td.num { (it.sent_within) } td.num { (it.sent_between) } td.num { (it.resent) } }
                }
            } } }
        } }
    }
}

/// Explains undone time on the pages that show how processes spent their time.
pub const UNDONE: &str = "The first execution of work that was re-executed after a rollback counts as undone; the \
                          re-execution itself counts as working.";

/// Maximum number of processes of which each has a bar of its own.
const MOST_BARS: usize = 64;

/// Shows how the processes of each cluster spent their time, as a bar and as percentages, and each process as a bar.
fn time(summary: &Summary) -> Markup {
    html! {
        h2 { "Where the time went" }
        div.spent {
            @for it in summary.clusters.iter().filter(|it| it.time.total_seconds() > 0.0) {
                b { (it.name) }
                div { (shares(&it.name, &it.time)) }
            }
        }
        @if (2..=MOST_BARS).contains(&summary.processes.len()) {
            details {
                summary { "Each process" }
                div.spent {
                    @for it in &summary.processes {
                        span { (it.name) }
                        (bar(&it.name, &it.time))
                    }
                }
            }
        }
        p.hint {
            "The time of all processes, each moment counted once. A process that neither computes nor runs a task \
             is waiting. " (UNDONE)
        }
    }
}

/// Renders the time spent on each activity as a bar with a legend, for a page that includes the shared styles.
pub fn shares(name: &str, spent: &TimeByPart) -> Markup {
    html! {
        (bar(name, spent))
        span.hint {
            @for (kind, _, share) in present(spent) { span { i class=(kind) {} " " (kind) " " (share) } " " }
        }
    }
}

/// Renders the time spent on each activity as a bar.
fn bar(name: &str, spent: &TimeByPart) -> Markup {
    let whole = spent.total_seconds();
    html! {
        div.shares role="img" aria-label={ "Time of " (name) ", as shares" } {
            @for (kind, seconds, share) in present(spent) {
                i class=(kind) style={ "width:" (format!("{:.3}", 100.0 * seconds / whole)) "%" }
                    title={ (kind) ": " (span(seconds)) ", " (share) } {}
            }
        }
    }
}

/// Returns the activities on which time was spent, each with its seconds and its share.
fn present(spent: &TimeByPart) -> impl Iterator<Item = (&'static str, f64, String)> {
    let shares = text::shares(&spent.parts().map(|it| it.1));
    let parts = spent.parts().into_iter().zip(shares).filter(|it| it.0.1 > 0.0);
    parts.map(|((kind, seconds), share)| (kind, seconds, share))
}

fn rollbacks(summary: &Summary) -> Markup {
    let mut all: Vec<_> = summary
        .clusters
        .iter()
        .enumerate()
        .flat_map(|(index, it)| it.rollbacks.iter().map(move |rollback| (index, rollback)))
        .collect();
    all.sort_by(|(_, a), (_, b)| a.order(b));
    html! {
        @if !all.is_empty() {
            h2 { "Rollbacks" }
            div.table { table {
                thead { tr {
                    th { "rollback of" } th.num { "at" } th { "cause" } th { "restored checkpoint" } th.num { "checkpoints undone" }
                    th.num { "lost work" } th.num { "recovered in" }
                    @if !summary.is_of_tasks() { th.num { "messages re-sent" } }
                } }
                tbody { @for (index, it) in all { tr {
                    td { span class={ "dot c" (index % 6) } {} (it.of) }
                    td.num { (instant(it.at_seconds)) } td { (because(it)) } td { (restored(it)) } td.num { (it.depth) }
                    td.num { (span(it.lost_work_seconds)) } td.num { (span(it.recovery_seconds)) }
                    @if !summary.is_of_tasks() { td.num { (it.resent) } }
                } } }
            } }
        }
    }
}

fn faults(summary: &Summary) -> Markup {
    html! {
        @if summary.faults.is_empty() { p { "No faults were planned." } } @else {
            div.table { table {
                thead { tr { th.num { "no." } th { "due" } th { "action" } th { "effect" } } }
                tbody { @for it in &summary.faults { tr {
                    td.num { (it.no) } td { (it.when) @if it.added { ", added" } } td { (it.what) }
                    td {
                        @match it.state {
                            "effective" => {
                                (chip(Verdict::Pass, "took effect"))
                                @if let Some(at) = it.injected_seconds { " at " (instant(at)) (it.measured()) }
                            }
                            "pending" => (chip(Verdict::Unknown, "not due before the end")),
                            "unknown" => (chip(Verdict::Unknown, "not known: the record ends early")),
                            _ => { (chip(Verdict::Unknown, "none")) @if let Some(reason) = &it.reason { " " (reason) } }
                        }
                    }
                } } }
            } }
        }
    }
}

fn properties<'a>(all: impl IntoIterator<Item = &'a PropertySummary>) -> Markup {
    html! {
        div.table { table {
            thead { tr { th { "result" } th { "property" } th.num { "instances judged" } } }
            tbody { @for it in all { tr {
                td { @match it.found {
                    PropertyResult::Holds => (chip(Verdict::Pass, "holds")),
                    PropertyResult::NotExercised => span.hint { "not exercised" },
                    PropertyResult::Unknown => (chip(Verdict::Unknown, "unknown")),
                    PropertyResult::Violated => (chip(Verdict::Fail, "violated")),
                } }
                td {
                    (it.statement) " " span.hint { "(" (it.name()) ")" }
                    @if let Some(reason) = &it.unknown { p.hint { (reason) } }
                    @for remark in &it.remarks { p.hint { (remark) } }
                    @for violation in &it.violations { p.violation { (violation) } }
                    @if it.violation_count > it.violations.len() as u64 {
                        p.violation { "and " (it.violation_count - it.violations.len() as u64) " more" }
                    }
                }
                td.num { (it.instances) }
            } } }
        } }
    }
}

/// Returns a table of these rows.
fn rows<const N: usize>(titles: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> Markup {
    html! {
        div.table { table {
            thead { tr { @for title in titles { th { (title) } } } }
            tbody { @for row in rows { tr { @for cell in &row { td { (cell) } } } } }
        } }
    }
}

fn expectations(summary: &Summary) -> Markup {
    html! {
        div.table { table {
            thead { tr { th { "result" } th { "expected" } th { "measured" } } }
            tbody { @for it in &summary.expectations { tr {
                td { @let (result, verdict) = met(it); (chip(verdict, result)) }
                td { (it.expected) @if let Some(unknown) = &it.unknown { p.hint { (unknown.reason) } } }
                td {
                    @if it.output.is_empty() { (measured_in_words(it)) } @else {
                        (measured_without_output(it)) pre { (it.output.join("\n")) }
                    }
                    @if let Some(log) = &it.log { " " span.hint { (log) } }
                }
            } } }
        } }
    }
}

fn links(summary: &Summary) -> Markup {
    html! {
        div.table { table {
            thead { tr {
                th { "link" } th { "result" } th { "requested" } th.num { "before the run" } th { "during the run" }
                th.num { "measured jitter (not judged)" } th.num { "echoes" } th.num { "measurements" }
            } }
            tbody { @for it in &summary.links { tr {
                td { (it.link) }
                td { @if it.is_emulated() { @let (result, verdict) = it.result(); (chip(verdict, result)) } }
                td { (it.asked()) }
                td.num { (it.measured_latency_seconds.map_or_else(|| "not measured".to_owned(), span)) }
                td { (it.observed().unwrap_or_default()) }
                td.num { (it.measured_jitter_seconds.map_or_else(|| "-".to_owned(), span)) }
                td.num { (it.samples) }
                td.num { (it.rounds) }
            } } }
        } }
    }
}

fn chip(colour: Verdict, text: &str) -> Markup {
    html! { span class={ "chip " (verdict(colour)) } { (text) } }
}
