//! The pages of runs that a server shows: of a run in progress, and its report at the same address once it has ended.
//! Their script and their styles are files of their own, so that the server can forbid all others.

use std::sync::LazyLock;

use faultline_trace::manifest::BackendKind;
use faultline_trace::{Hash, Manifest};
use maud::{Markup, html};
use serde::Serialize;

use super::{Assets, LIVE_SCRIPT, diagram_section, explanation, processes, rendered, scripts, shell};
use crate::diagram::Diagram;
use crate::diagram::pack::PackedDiagram;
use crate::explain::count;
use crate::map;
use crate::names::DisplayNames;
use crate::now::Progressing;
use crate::style;
use crate::summary::RecordedRun;

/// A file that pages refer to. Its address contains a digest of its content, so that browsers may keep it.
#[derive(Debug)]
pub struct Asset {
    /// The media type.
    pub kind: &'static str,
    /// The content.
    pub content: String,
    path: String,
}

impl Asset {
    fn new(kind: &'static str, extension: &str, content: String) -> Asset {
        let digest = Hash::of_bytes(content.as_bytes()).to_string();
        Asset { kind, path: format!("/assets/{}.{extension}", &digest[..16]), content }
    }

    /// Returns the path of its address.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the file with this path.
    pub fn at(path: &str) -> Option<&'static Asset> {
        [&*SCRIPT, &*LIST_SCRIPT, &*STYLES].into_iter().find(|it| it.path == path)
    }
}

/// The script of the pages of runs.
pub static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("text/javascript; charset=utf-8", "js", LIVE_SCRIPT.to_owned()));
/// The script of the list of records.
pub static LIST_SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let script = include_str!("../../assets/list.js");
    Asset::new("text/javascript; charset=utf-8", "js", format!("\"use strict\";(() => {{\n{script}}})();\n"))
});
/// The styles of all pages.
pub static STYLES: LazyLock<Asset> = LazyLock::new(|| {
    let styles = [style::PALETTE, style::PAGE, include_str!("../../assets/live.css")];
    Asset::new("text/css; charset=utf-8", "css", styles.concat())
});

/// The parts of a run in progress that its page shows, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// The state of the run.
    pub now: String,
    /// The diagram.
    pub diagram: String,
    /// What has happened.
    pub story: String,
    /// The map of the links.
    pub map: String,
}

impl Update {
    /// Renders the parts.
    pub fn new(run: &Progressing, manifest: &Manifest) -> Update {
        let names = DisplayNames::new(manifest);
        let diagram = Diagram::new(&run.timeline, &names);
        let story = match &run.events[..] {
            [] if manifest.system.is_some() => html! { p.hint { "No faults so far." } },
            [] => html! { p.hint { "No faults and no rollbacks so far." } },
            events => explanation(events),
        };
        Update {
            now: json(&run.now),
            diagram: json(&PackedDiagram::new(&diagram)),
            story: json(&story.into_string()),
            map: json(&map::render(manifest, &names).into_string()),
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers can be written as JSON")
}

/// Renders the report of a run that has ended.
pub fn report(recorded: RecordedRun<'_>) -> String {
    rendered(recorded, Assets::Linked).0
}

/// What follows the link to the list of all records.
const BEFORE: &str = "<main";

/// Adds a link to the list of all records to the page of a run.
pub fn listed(page: &str) -> String {
    let up = html! { nav { a href="../../" { "all records" } } }.into_string();
    page.replacen(BEFORE, &format!("{up}{BEFORE}"), 1)
}

/// Renders a page about a run that cannot be shown, or not yet. `refreshes` tells whether the page asks again.
pub fn message(title: &str, text: &str, refreshes: bool) -> String {
    let body = html! {
        @if refreshes { meta http-equiv="refresh" content="1"; }
        main { h1 { (title) } p { (text) } }
    };
    shell(title, Assets::Linked, &[], body).into_string()
}

/// Renders the page of a run in progress, without what the server sends later. `controls` tells whether the page can
/// change the run.
pub fn page(manifest: &Manifest, controls: bool) -> String {
    let names = DisplayNames::new(manifest);
    let diagram = Diagram::empty(&names);
    let packed = PackedDiagram::new(&diagram);
    let body = html! {
        main data-stage="running" class=[manifest.system.is_some().then_some("system")] {
            (head(manifest))
            p #lost role="status" hidden {}
            p #sentence.now { "Reading the record." }
            p #said.unseen aria-live="polite" {}
            div.columns {
                section { h2 { "Progress" } (progress(&names)) }
                section { h2 { "Processes" span.hint { " " span #moment {} } } (processes(&names)) }
            }
            div #links { (map::render(manifest, &names)) }
            @if controls { (control()) }
            h2 { "Space-time diagram" }
            div.diagram { (diagram_section(&diagram, ("within clusters", names.clusters().count() == 1), &[])) }
            h2 { "What happened" }
            div #story {}
            footer {
                "As reported so far; not judged. The report replaces this page once the run has ended."
            }
        }
        (scripts(&packed, Assets::Linked))
    };
    shell(&format!("{}: in progress", manifest.name), Assets::Linked, &[], body).into_string()
}

fn head(manifest: &Manifest) -> Markup {
    let on = match manifest.backend {
        BackendKind::Local => "on real processes",
        BackendKind::Simulate => "in virtual time",
        BackendKind::Kubernetes => "in pods",
        BackendKind::Events => "from events",
    };
    html! {
        header {
            div {
                h1 { (manifest.name) }
                p.meta {
                    (manifest.protocol) " " (on) ", " (count(manifest.clusters.len() as u64, "cluster")) ", "
                    (count(manifest.processes.len() as u64, "process")) ", seed " (manifest.seed)
                }
            }
            span.badge.progressing { span #phase { "starting" } " " span #elapsed {} }
        }
    }
}

fn progress(names: &DisplayNames) -> Markup {
    html! {
        div.progress { @for cluster in names.clusters() {
            @let index = cluster.index();
            div id={ "cluster-" (index) } class={ "c" (index % 6) } {
                b { span.dot {} (names.cluster(cluster)) }
                div role="progressbar" aria-label={ "Progress of " (names.cluster(cluster)) }
                    aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" hidden { i style="width:0" {} }
                span.percent {}
                span.text.hint {}
            }
        } }
    }
}

/// Renders the form that adds faults.
fn control() -> Markup {
    let actions = [
        ("crash", "kill a process"),
        ("lose", "kill a process, and lose its storage"),
        ("pause", "pause a process for 1 s"),
        ("cluster", "kill a whole cluster"),
        ("cut", "cut the network between two clusters for 1 s"),
        ("slow", "delay a link by 100 ms for 2 s"),
    ];
    html! {
        h2 { "Control" }
        form #fault.bar {
            label { "action " select name="action" {
                @for (value, text) in actions { option value=(value) { (text) } }
            } }
            label { "target " select name="target" {} }
            button { "add fault" }
            button #pause type="button" disabled { "pause the run" }
        }
        p #answer role="status" { "A fault is due soon after it was added. The record will say that it was added by hand." }
    }
}
