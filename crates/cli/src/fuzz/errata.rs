//! `faultline errata`: writes one page about the incorrect and missing rules of a published protocol, each with the
//! shortest counterexample that the search finds.
//!
//! The printed rules, their effects and the corrected rules come from the protocol's document; the counterexamples, and
//! the share of schedules that each switch breaks, come from runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::validate::one_of;
use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_console::place::{self, ACTION, Claim, check_replaceable, remove_record};
use faultline_fuzz::{Scenario, Shrunk, Steps, Trial, run, shrink};
use faultline_report::page::document;
use faultline_trace::Bundle;
use maud::{Markup, html};
use miette::miette;
use serde::{Deserialize, Serialize};

use super::finding::{RenderedTrial, record, reproduce, violations};
use super::table::{self, Detection, detect};
use super::{available, summary};
use crate::arguments::{ErrataArguments, Format, FuzzArguments};
use crate::command_error::{CommandError, Exit};
use crate::journal::{Head, RUNS, ResultJournal};
use crate::{files, interrupt, output};

/// The effort spent on shrinking a counterexample. It is high, because the page is read more often than it is written.
const STEPS: Steps = Steps { seeds: 24, trials: 20_000, events: 1_000_000_000, last: 2_000 };

/// A published protocol with errata.
struct Paper {
    /// The protocol's name in federation files.
    protocol: &'static str,
    title: &'static str,
    /// The document with the printed rules, their effects, the corrected rules, and the switches that break the
    /// corrected ones.
    document: &'static str,
    /// Files with schedules constructed by hand, for defects that random schedules rarely reach.
    directed: &'static [&'static str],
    /// The crate and the test executable that contain the schedules constructed by hand.
    executable: (&'static str, &'static str),
    authors: &'static str,
    publication: &'static str,
    /// A summary of how the paper's rules fail.
    about: &'static str,
}

const PAPERS: [Paper; 5] = [
    Paper {
        protocol: "hc3i",
        title: "HC3I",
        document: include_str!("../../../../docs/hc3i.md"),
        directed: &[
            include_str!("../../../protocols/tests/hc3i/defects.rs"),
            include_str!("../../../protocols/tests/hc3i/collection.rs"),
        ],
        executable: ("faultline-protocols", "hc3i"),
        authors: "Monnet, Morin and Badrinath",
        publication: "Hybrid Checkpointing for Parallel Applications in Cluster Federations (2003)",
        about: "If every process of a cluster follows HC3I's rules as printed, messages are lost. Further rules are \
                missing from the paper, and recovery fails without them.",
    },
    Paper {
        protocol: "hydee",
        title: "HydEE",
        document: include_str!("../../../../docs/hydee.md"),
        directed: &[
            include_str!("../../../protocols/tests/hydee/defects.rs"),
            include_str!("../../../protocols/tests/hydee/spill.rs"),
        ],
        executable: ("faultline-protocols", "hydee"),
        authors: "Guermouche, Ropars, Snir and Cappello",
        publication: "HydEE: Failure Containment without Event Logging for Large Scale Send-Deterministic MPI \
                      Applications (2012)",
        about: "Asynchronous processes that follow HydEE's algorithms as printed wait forever or lose messages. Further \
                rules are missing from the paper, and recovery fails without them.",
    },
    Paper { protocol: "tic", title: "TIC", ..OF_TASKS },
    Paper { protocol: "sel", title: "SEL", ..OF_TASKS },
    Paper {
        protocol: "cck",
        title: "CCK",
        document: include_str!("../../../../docs/cck.md"),
        directed: &[include_str!("../../../sim/tests/cck/defects.rs")],
        executable: ("faultline-sim", "cck"),
        authors: "Besseron, Jafar, Gautier, Roch and Pigeon",
        publication: "CCK: An Improved Coordinated Checkpoint/Rollback Protocol for Dataflow Applications in KAAPI \
                      (2006, the short paper) and Un protocole de sauvegarde / reprise coordonné pour les applications à \
                      flot de données reconfigurables (2006, the long paper)",
        about: "Partitions that follow the rules as printed wait forever, or lose values, if one of them is ahead of another, \
                or if a failure occurs during a checkpoint or during the recovery from another failure.",
    },
];

/// The paper on TIC and SEL. Their rules differ only in logging.
const OF_TASKS: Paper = Paper {
    protocol: "",
    title: "",
    document: include_str!("../../../../docs/tic-sel.md"),
    directed: &[include_str!("../../../sim/tests/tasks/defects.rs")],
    executable: ("faultline-sim", "tasks"),
    authors: "Jafar, Krings and Gautier",
    publication: "Flexible Rollback Recovery in Dynamic Heterogeneous Grid Computing (2009)",
    about: "If a failure occurs during the recovery from another one, or while a result is in transit, processes that \
            follow the rules as printed wait forever or run tasks twice.",
};

/// Executes `faultline errata`.
pub(crate) fn errata(arguments: &ErrataArguments) -> Result<Exit, CommandError> {
    let Some(paper) = PAPERS.iter().find(|it| it.protocol == arguments.protocol) else {
        let known: Vec<&str> = PAPERS.iter().map(|it| it.protocol).collect();
        return Err(CommandError::input(miette!(
            help = one_of(&arguments.protocol, &known),
            "there is no errata page for the protocol `{}`",
            arguments.protocol
        )));
    };
    let entries = entries(paper);
    available(&format!("errata {}", paper.protocol))?;
    let _claim = Claim::of(place::RESULTS, &arguments.out)?;
    let interrupted = interrupt::flag();
    let head = Head::of(Searched { protocol: paper.protocol.to_owned(), runs: arguments.runs });
    let (journal, known) = ResultJournal::open(&arguments.out.join(RUNS), "search", &head, arguments.resume)?;
    let defects = entries.iter().map(|it| it.defects.len()).sum();
    let mut page = Page { arguments, interrupted: &interrupted, journal, known, defects, reached: 0 };
    let (mut body, mut incomplete, mut detections) = (Vec::new(), 0, Vec::new());
    for (number, entry) in (1..).zip(&entries) {
        let mut shown = Vec::new();
        for &defect in &entry.defects {
            shown.extend(page.counterexample(defect)?);
        }
        let is_missing = shown.len() < entry.defects.len();
        let may_shrink = shown.iter().any(Counterexample::is_interrupted);
        incomplete += usize::from(is_missing || may_shrink);
        if !is_missing {
            body.push(section(paper, number, entry, &shown));
        }
        detections.extend(shown.into_iter().map(|it| it.detection));
    }
    page.journal.finish(incomplete == 0)?;
    let content =
        document(&format!("{}: errata", paper.title), &[], front(arguments, paper, &entries, &body));
    let file = output::write(&arguments.out, "errata.html", &content)?;
    output::print(&format!("{}\n", file.display()))?;
    if incomplete > 0 {
        output::note(format_args!(
            "interrupted with {incomplete} of {} entries incomplete; to continue, run the same command with `--resume`",
            entries.len()
        ));
        return Ok(Exit::Unknown);
    }
    Ok(if table::print_out_of_memory(&detections) { Exit::Unknown } else { Exit::Pass })
}

/// Identifies the work in the journal.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Searched {
    protocol: String,
    /// The number of schedules for each rule.
    runs: u64,
}

/// A rule that the paper states incorrectly or lacks, as described in the protocol's document.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrataEntry {
    /// The rule as printed; `None` if the paper does not mention it.
    printed: Option<String>,
    /// The effect of the printed rule, or of the lack of a rule.
    effect: String,
    corrected: String,
    /// The defects that break the corrected rule.
    defects: Vec<Defect>,
    /// The names of tests that demonstrate the effect, for a rule that no defect breaks.
    tests: Vec<String>,
}

/// Returns the rows of the document's two tables of rules.
fn entries(paper: &Paper) -> Vec<ErrataEntry> {
    let mut entries = Vec::new();
    let mut printed = None;
    for line in paper.document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        match (&cells[..], printed) {
            (["in the paper", "what happens", "in Faultline", "switch"], _) => printed = Some(true),
            (["rule", "failure without it", "switch"], _) => printed = Some(false),
            _ if !line.starts_with('|') => printed = None,
            ([rule, effect, corrected, switches], Some(true)) if !rule.starts_with("---") => {
                entries.push(ErrataEntry {
                    printed: Some((*rule).to_owned()),
                    effect: (*effect).to_owned(),
                    corrected: (*corrected).to_owned(),
                    defects: defects(paper, switches),
                    tests: tests(paper, switches),
                })
            }
            ([rule, effect, switches], Some(false)) if !rule.starts_with("---") => {
                entries.push(ErrataEntry {
                    printed: None,
                    effect: (*effect).to_owned(),
                    corrected: (*rule).to_owned(),
                    defects: defects(paper, switches),
                    tests: tests(paper, switches),
                })
            }
            _ => {}
        }
        // A document may describe several protocols. Skip the rules of the others.
        let is_of_another =
            |it: &ErrataEntry, cell: &str| cell.contains('`') && it.defects.is_empty() && it.tests.is_empty();
        if printed.is_some() && entries.last().is_some_and(|it| is_of_another(it, cells[cells.len() - 1])) {
            entries.pop();
        }
    }
    entries
}

/// Returns the names of the tests in a cell.
fn tests(paper: &Paper, cell: &str) -> Vec<String> {
    let is_test = |word: &&str| directed_tests(paper).any(|it| test_name(it) == *word);
    cell.split('`').filter(is_test).map(str::to_owned).collect()
}

/// Returns the defects that a cell names.
fn defects(paper: &Paper, cell: &str) -> Vec<Defect> {
    let of = |word: &str| Defect::of(paper.protocol).find(|it| it.switch() == word);
    cell.split('`').filter_map(of).collect()
}

/// The counterexample of one defect.
struct Counterexample {
    defect: Defect,
    detection: Detection,
    found: Option<Found>,
}

struct Found {
    property: Property,
    trial: Trial,
    bundle: PathBuf,
    /// Whether the user interrupted the search for a smaller run.
    is_interrupted: bool,
}

impl Counterexample {
    fn is_interrupted(&self) -> bool {
        self.found.as_ref().is_some_and(|it| it.is_interrupted)
    }
}

/// A journal entry about a defect. Only the last entry about each defect counts.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Known {
    detection: Detection,
    /// Whether the search for a smaller counterexample is complete. Also true if there is no counterexample.
    is_shrunk: bool,
}

/// The state of the search for the counterexamples of a page.
struct Page<'a> {
    arguments: &'a ErrataArguments,
    interrupted: &'a AtomicBool,
    journal: ResultJournal,
    known: Vec<Known>,
    /// The number of defects on the page.
    defects: usize,
    /// The number of defects reached so far.
    reached: usize,
}

impl Page<'_> {
    /// Searches for a counterexample, or returns the known one. Returns `None` if the search was interrupted before it
    /// had run all schedules. If it was interrupted later, the counterexample is the smallest one so far.
    fn counterexample(&mut self, defect: Defect) -> Result<Option<Counterexample>, CommandError> {
        let Page { arguments, interrupted, .. } = *self;
        self.reached += 1;
        let title = table::title(defect, self.reached, self.defects);
        let search = FuzzArguments {
            runs: arguments.runs,
            jobs: arguments.jobs,
            defect: Some(defect),
            quiet: arguments.quiet,
            ..FuzzArguments::silent(Format::Text)
        };
        let bundle = arguments.out.join(defect.to_string());
        let of_defect = |it: &&Known| it.detection.defect == defect.to_string();
        let Known { detection, is_shrunk } = match self.known.iter().rfind(of_defect) {
            Some(known) => known.clone(),
            None if interrupted.load(Ordering::Relaxed) => return Ok(None),
            None => {
                check_replaceable(ACTION, &bundle)?;
                let Some(detection) = detect(&search, defect, &title, interrupted)? else { return Ok(None) };
                remove_record(&bundle)?;
                let new = Known { is_shrunk: detection.shown().is_none(), detection };
                self.journal.add(&new);
                new
            }
        };
        let Some((seed, property)) = detection.shown() else {
            return Ok(Some(Counterexample { defect, detection, found: None }));
        };
        if is_shrunk {
            let trial = run(recorded(&bundle, defect)?).map_err(files::unfit)?;
            let found = Some(Found { property, trial, bundle, is_interrupted: false });
            return Ok(Some(Counterexample { defect, detection, found }));
        }
        // Continue with the smallest run of an interrupted search.
        let scenario = match bundle.join("manifest.json").exists() {
            true => recorded(&bundle, defect)?,
            false => Scenario::new(seed, None, Some(defect)),
        };
        let progress = summary::shrinking(&search, &title, interrupted);
        let Shrunk { trial, is_interrupted, .. } =
            shrink(&scenario, property, STEPS, progress).map_err(files::unfit)?;
        remove_record(&bundle)?;
        record(&trial, &bundle)?;
        if !is_interrupted {
            self.journal.add(&Known { detection: detection.clone(), is_shrunk: true });
        }
        let found = Some(Found { property, trial, bundle, is_interrupted });
        Ok(Some(Counterexample { defect, detection, found }))
    }
}

/// Returns the scenario of a recorded counterexample.
fn recorded(bundle: &Path, defect: Defect) -> Result<Scenario, CommandError> {
    let manifest = Bundle::open(bundle).read_manifest().map_err(|error| {
        CommandError::path(
            "continue with",
            bundle,
            error,
            "omit `--resume`, and specify another directory with `--out`",
        )
    })?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())
        .map_err(|rejected| CommandError::input(*rejected))?;
    Ok(Scenario { seed: manifest.seed, federation, defect: Some(defect) })
}

fn front(arguments: &ErrataArguments, paper: &Paper, entries: &[ErrataEntry], sections: &[Markup]) -> Markup {
    let switched = entries.iter().filter(|it| !it.defects.is_empty()).count();
    html! {
        h1 { (paper.title) ": errata" }
        p {
            (paper.title) " is the protocol of " (paper.authors) ", " em { (paper.publication) } ". " (paper.about) " "
            "Of the " (entries.len()) " entries below, " (switched) " have a switch that breaks the corrected rule."
        }
        p {
            "Each counterexample was found by running " (arguments.runs) " random federations with random faults in virtual time, and then shrunk. "
            "The checker sees only recorded facts. Each share is the percentage of random schedules in which the switch leads to a violation, with a 95 % confidence interval. Shares describe these schedules only, not the frequency of the failure in practice."
        }
        p {
            "In the diagrams, time runs to the right, with one lane per process. Circles are unforced checkpoints and diamonds are forced checkpoints. Undone work is red, recovery is yellow, and dashed lines mark the restored checkpoints. "
            "Positions are written as " code { "incarnation.checkpoint" } ": " code { "1.2" } " is checkpoint 2 after one rollback."
        }
        @for section in sections { (section) }
    }
}

fn section(paper: &Paper, number: usize, entry: &ErrataEntry, shown: &[Counterexample]) -> Markup {
    html! {
        h2 { (number) ". " (prose(entry.printed.as_deref().unwrap_or(&entry.corrected))) }
        table {
            tr { th { "Printed" } td { (prose(entry.printed.as_deref().unwrap_or("Not mentioned in the paper."))) } }
            tr { th { "What happens" } td { (prose(&entry.effect)) } }
            tr { th { "Corrected" } td { (prose(&entry.corrected)) } }
        }
        @if shown.is_empty() && entry.tests.is_empty() {
            p { "No switch breaks the corrected rule." }
        }
        @for name in &entry.tests {
            p { "No switch breaks the corrected rule. A test shows what happens without this rule:" }
            (listing(paper, directed_tests(paper).find(|it| test_name(it) == name)))
        }
        @for it in shown { (example(paper, it)) }
    }
}

fn example(paper: &Paper, example: &Counterexample) -> Markup {
    let Counterexample { defect, detection, found } = example;
    html! {
        h3 { "With the switch " code { (defect.switch()) } }
        p { "Breaks " (detection.violating) " of " (detection.runs) " schedules: " (detection.share_text()) "." }
        @match found {
            Some(Found { property, trial, bundle, is_interrupted }) => {
                p { strong { "Violated: " (property.statement()) ". " } }
                @if *is_interrupted {
                    p { "The search for a smaller counterexample was interrupted." }
                }
                ul { @for text in violations(trial, *property).iter().take(3) { li { (text) } } }
                img style="width:100%" alt={ "Space-time diagram of the counterexample of " (defect.to_string()) } src=(data(&RenderedTrial::new(trial).picture()));
                pre { (RenderedTrial::new(trial).text()) }
                pre { (reproduce(bundle, trial)) }
            }
            None => (directed(paper, *defect))
        }
    }
}

/// Renders the schedule that was constructed by hand for a defect that the search did not find.
fn directed(paper: &Paper, defect: Defect) -> Markup {
    let name = format!("Defect::{}", defect.variant());
    let is_named = |test: &&str| [",", ")"].iter().any(|end| test.contains(&format!("{name}{end}")));
    let test = directed_tests(paper).find(is_named);
    html! {
        @if test.is_some() {
            p { "The random search did not find a counterexample. The following schedule was constructed by hand." }
            (listing(paper, test))
        } @else {
            p { "The random search did not find a counterexample. A search with more schedules (" code { "--runs" } ") may." }
        }
    }
}

fn directed_tests(paper: &Paper) -> impl Iterator<Item = &'static str> {
    let of_file = |file: &'static str| {
        let starts = file.match_indices("#[test]\n").map(move |(start, _)| &file[start..]);
        starts.map(|text| text.find("\n}\n").map_or(text, |end| &text[..end + 3]))
    };
    paper.directed.iter().copied().flat_map(of_file)
}

/// Renders a test, and the command that runs it.
fn listing(paper: &Paper, test: Option<&str>) -> Markup {
    let (package, executable) = paper.executable;
    html! {
        @match test {
            Some(test) => {
                pre { (test.trim()) }
                pre { "cargo test -p " (package) " --test " (executable) " " (test_name(test)) }
            }
            None => p { "No schedule is available." }
        }
    }
}

fn test_name(test: &str) -> &str {
    let after = test.split("fn ").nth(1).unwrap_or_default();
    after.split('(').next().unwrap_or_default()
}

/// Renders a cell of a Markdown table: code spans as code, everything else as plain text without asterisks.
fn prose(cell: &str) -> Markup {
    html! {
        @for (place, part) in cell.replace('*', "").split('`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// Encodes a picture as a data URL. Inline drawings in one document would share their identifiers.
fn data(svg: &str) -> String {
    let mut address = "data:image/svg+xml,".to_owned();
    for it in svg.chars() {
        match it {
            '%' | '#' | '<' | '>' | '"' | '&' | '\n' => address.push_str(&format!("%{:02X}", it as u32)),
            _ => address.push(it),
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_entries_and_each_defect_in_it_is_known() {
        let least = [(8, 10), (8, 4), (6, 3), (8, 3), (8, 4)];
        for (paper, (least_printed, least_missing)) in PAPERS.iter().zip(least) {
            let entries = entries(paper);
            let printed = entries.iter().filter(|it| it.printed.is_some()).count();
            assert!(printed >= least_printed && entries.len() - printed >= least_missing, "{entries:#?}");
            let named: Vec<Defect> = entries.iter().flat_map(|it| it.defects.clone()).collect();
            let cells =
                paper.document.lines().skip_while(|it| !it.starts_with("## Differences")).take_while(|it| {
                    !["## Options", "## Defect", "## Recorded"].iter().any(|next| it.starts_with(next))
                });
            let switches: Vec<&str> = cells
                .filter(|it| it.starts_with('|'))
                .filter_map(|it| it.trim_end_matches('|').rsplit(" | ").next())
                .flat_map(|it| it.split('`').skip(1).step_by(2))
                .collect();
            let is_of = |protocol: &str, word: &str| Defect::of(protocol).any(|it| it.switch() == word);
            // One document may describe two protocols.
            let is_of_another = |word: &str| {
                PAPERS.iter().any(|it| it.document == paper.document && is_of(it.protocol, word))
            };
            let is_known =
                |word: &&&str| is_of_another(word) || !tests(paper, &format!("`{word}`")).is_empty();
            assert_eq!(switches.iter().find(|it| !is_known(it)), None, "of {}", paper.protocol);
            let own = switches.iter().filter(|it| is_of(paper.protocol, it)).count();
            assert_eq!(named.len(), own, "{named:?}");
        }
        let of_hydee: Vec<Defect> = entries(&PAPERS[1]).into_iter().flat_map(|it| it.defects).collect();
        let missing: Vec<Defect> = Defect::of("hydee").filter(|it| !of_hydee.contains(it)).collect();
        assert_eq!(missing, []);
    }

    /// Below their tables, the documents describe differences that break nothing and cost only messages or
    /// checkpoints.
    #[test]
    fn a_difference_that_breaks_nothing_is_not_an_entry() {
        for (protocol, difference) in [("cck", "N(N + 3)"), ("tic", "`cp0: each`"), ("sel", "`cp0: each`")] {
            let paper = PAPERS.iter().find(|it| it.protocol == protocol).expect("it has a page");
            assert!(paper.document.contains(difference), "{protocol}");
            let entries = entries(paper);
            let cells =
                entries.iter().flat_map(|it| [it.printed.as_ref(), Some(&it.effect), Some(&it.corrected)]);
            let wrong =
                cells.flatten().find(|it| it.contains(difference) || it.starts_with("nothing breaks"));
            assert_eq!(wrong, None, "{protocol}");
        }
    }

    /// The list `DIRECTED` in the tests of `faultline-fuzz` names the defects that no search finds.
    #[test]
    fn every_defect_that_no_search_finds_has_a_directed_schedule() {
        let searches = include_str!("../../../fuzz/tests/searches/defects.rs");
        let (_, list) = searches.split_once("const DIRECTED: &[Defect] = &[").expect("there is a list");
        let (list, _) = list.split_once("];").expect("the list ends");
        let of_page = |line: &str| {
            let (protocol, variant) = line.trim().strip_prefix("Defect::")?.split_once('(')?;
            let paper = PAPERS.iter().find(|it| it.protocol == protocol.to_lowercase())?;
            let variant = variant.trim_end_matches("),").rsplit("::").next()?;
            Some((paper, Defect::of(paper.protocol).find(|it| it.variant() == variant)?))
        };
        let listed: Vec<(&Paper, Defect)> = list.lines().filter_map(of_page).collect();
        for protocol in ["hc3i", "hydee", "sel"] {
            assert!(listed.iter().any(|(paper, _)| paper.protocol == protocol), "{protocol}: {list}");
        }
        for (paper, defect) in listed {
            let text = directed(paper, defect).into_string();
            assert!(text.contains("cargo test -p "), "{defect}: {text}");
        }
    }

    #[test]
    fn a_directed_schedule_is_found_by_its_defect() {
        for (paper, name) in [
            (&PAPERS[0], "notes-not-refilled"),
            (&PAPERS[0], "no-write-barrier"),
            (&PAPERS[0], "tables-volatile"),
            (&PAPERS[1], "hydee-older-level-obeyed"),
        ] {
            let text = directed(paper, name.parse().unwrap()).into_string();
            let command = format!("cargo test -p faultline-protocols --test {} ", paper.protocol);
            assert!(text.contains(&command), "{text}");
        }
        let entries = entries(&PAPERS[2]);
        let shown = entries.iter().find(|it| !it.tests.is_empty()).expect("the bound has a test");
        let text = section(&PAPERS[2], 1, shown, &[]).into_string();
        assert!(
            text.contains("prunes_equal")
                && text.contains("cargo test -p faultline-sim --test tasks a_search"),
            "{text}"
        );
    }
}
