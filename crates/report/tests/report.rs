//! Tests the reports and pictures of a made-up run.

mod common;

use faultline_checker::{Finding, Judgement, Property, Verdict, Violation};
use faultline_core::fact::Flipped;
use faultline_core::{Attempt, Cause, ClusterId, FaultNo, ImageName, Incarnation, ProcessId, Sn, Span};
use faultline_report::diagram::{Fate, FlippedBit, svg};
use faultline_report::explain::explain;
use faultline_report::names::RollbackUnit;
use faultline_report::text::{self, Layout};
use faultline_report::{Diagram, DisplayNames, RecordedRun, Summary, Timeline, page};

const PROPERTIES: [Property; 8] = [
    Property::Completed,
    Property::FaultsTookEffect,
    Property::LinksAsRequested,
    Property::SameResult,
    Property::NoGhost,
    Property::NoLoss,
    Property::ExactlyOnce,
    Property::BoundedLoss,
];

fn passed() -> Judgement {
    let finding = |property| Finding {
        property,
        instances: 17,
        violations: Vec::new(),
        more_violations: 0,
        is_doubtful: false,
        unknown: None,
        remarks: Vec::new(),
    };
    let idle = Finding { instances: 0, ..finding(Property::OrphansFirst) };
    let findings = PROPERTIES.map(finding).into_iter().chain([idle]).collect();
    Judgement { verdict: Verdict::Pass, reasons: Vec::new(), findings }
}

fn failed() -> Judgement {
    let mut judgement = passed();
    let text = "rennes-1 delivered <message> 3 from paris-1 twice".to_owned();
    judgement.verdict = Verdict::Fail;
    judgement.reasons = vec![text.clone()];
    judgement.findings[6].violations = vec![Violation { text, evidence: Vec::new(), what: None }];
    judgement.findings[7].unknown = Some("no rollback was judged".to_owned());
    judgement
}

/// All reports of the run. They are also written to the directory that the environment variable `PICTURES` names, if it
/// is set.
struct Reports {
    summary: Summary,
    timeline: Timeline,
    names: DisplayNames,
    diagram: Diagram,
    page: String,
}

fn made(nodes: u32, judgement: &Judgement) -> Reports {
    let (manifest, trace) = common::run(nodes);
    let recorded =
        RecordedRun { bundle: "faultline-runs/quick-start-7", manifest: &manifest, trace: &trace, judgement };
    let names = DisplayNames::new(&manifest);
    let timeline = Timeline::new(&trace, &manifest);
    let diagram = Diagram::new(&timeline, &names);
    let made =
        Reports { summary: Summary::new(recorded), page: page::render(recorded), timeline, names, diagram };
    if let Ok(dir) = std::env::var("PICTURES") {
        let name = format!("{dir}/{nodes}-{}", text::verdict(judgement.verdict));
        std::fs::write(format!("{name}.html"), &made.page).unwrap();
        std::fs::write(format!("{name}.svg"), svg::render(&made.diagram, svg::Options::default())).unwrap();
        let layout = Layout { colour: false, quiet: false, verbose: false };
        std::fs::write(format!("{name}.txt"), text::summary(&made.summary, layout)).unwrap();
        std::fs::write(format!("{name}.json"), serde_json::to_string_pretty(&made.summary).unwrap()).unwrap();
    }
    made
}

#[test]
fn a_failure_undoes_deliveries_in_another_cluster() {
    let Reports { timeline, names, .. } = made(3, &passed());
    let [crash, alert, loss] = &timeline.rollbacks[..] else { panic!("{:?}", timeline.rollbacks) };

    let [paris, rennes] = [0, 1].map(|it| RollbackUnit::Cluster(ClusterId(it)));
    assert_eq!(crash.unit, paris);
    assert_eq!(crash.cause, Some(Cause::Failure));
    assert_eq!(
        crash.failures.iter().map(|&it| timeline.failures[it].process).collect::<Vec<_>>(),
        [ProcessId(1)]
    );
    assert_eq!((alert.unit, alert.because_of), (rennes, Some(0)));
    assert_eq!(loss.failures.len(), 3);
    for rollback in [crash, alert, loss] {
        assert!(rollback.complete && rollback.began <= rollback.ended, "{rollback:?}");
        assert_eq!(rollback.members.len(), 3);
        assert!(
            rollback.members.values().all(|it| it.saved < Some(it.restored) && it.lost.0 > 0),
            "{rollback:?}"
        );
    }
    let orphans = timeline.orphans_at(0, rennes, &names);
    assert!(!orphans.is_empty());
    for id in orphans {
        let undone: Vec<_> = timeline.messages[&id].delivered.iter().map(|it| it.1).collect();
        assert_eq!(undone, [Some(1)], "the rollback undid the delivery of {id}");
    }
    assert_eq!(loss.resent, 27);
    assert_eq!((timeline.depth(crash), timeline.depth(alert), timeline.depth(loss)), (0, 1, 0));
}

#[test]
fn surviving_deliveries_were_not_undone() {
    let Reports { timeline, .. } = made(3, &passed());
    for undone in &timeline.undone {
        let rollback = &timeline.rollbacks[undone.by];
        let (began, ended) = (undone.stretch.began, undone.stretch.ended);
        assert!(began <= ended && ended <= rollback.ended, "{undone:?}");
    }
    let last = timeline.undone.iter().map(|it| it.stretch.ended).max().unwrap();
    for (id, message) in &timeline.messages {
        if message.sent.is_some_and(|sent| sent > last) {
            assert_eq!(message.send_undone, None, "{id}");
        }
    }
}

#[test]
fn flipped_bits_are_marked_where_they_were_flipped() {
    let Reports { mut timeline, names, diagram, .. } = made(3, &passed());
    let drawn = |diagram: &Diagram| svg::render(diagram, svg::Options::default());
    assert!(!drawn(&diagram).contains("flipped bit"));
    let at = timeline.origin + Span::from_secs(2);
    timeline.flipped.insert(FaultNo(3), (at, ProcessId(4), Flipped::State));
    let diagram = Diagram::new(&timeline, &names);
    let text = "fault 3: rennes-1 continues with a flipped bit in its state".to_owned();
    assert_eq!(diagram.flips, [FlippedBit { lane: 4, at: 2_000_000, text: text.clone() }]);
    let picture = drawn(&diagram);
    assert!(picture.contains(&format!("<title>{text}</title>")) && picture.contains(">flipped bit<"));
}

#[test]
fn the_explanation_says_what_became_of_flipped_bits() {
    let (manifest, trace) = common::run(3);
    let mut timeline = Timeline::new(&trace, &manifest);
    let names = DisplayNames::new(&manifest);
    let undone = &timeline.undone[0];
    let (process, during) = (undone.process, undone.stretch.began);
    let kept = ImageName { owner: ProcessId(4), incarnation: Incarnation(1), sn: Sn(3), attempt: Attempt(2) };
    let copy = |is_checked| Flipped::Copy { name: kept, is_checked };
    let end = timeline.end;
    timeline.damaged.push((end, ProcessId(1), kept));
    timeline.flipped = [
        (during, process, Flipped::State),
        (end, ProcessId(1), copy(true)),
        (end, ProcessId(2), copy(true)),
        (end, ProcessId(4), copy(false)),
        (end, ProcessId(5), Flipped::State),
    ]
    .into_iter()
    .zip(10..)
    .map(|(flip, no)| (FaultNo(no), flip))
    .collect();
    let told = explain(&timeline, &manifest, &names);
    let told = told.iter().map(|it| it.text.as_str()).filter(|it| it.contains("flipped bit"));
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_explanation_names_clusters_and_checkpoints() {
    let Reports { summary, .. } = made(3, &passed());
    let texts: Vec<_> = summary.explanation.iter().map(|it| it.text.as_str()).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn the_summary_is_formatted_for_a_terminal() {
    let layout = Layout { colour: false, quiet: false, verbose: false };
    insta::assert_snapshot!("passed", text::summary(&made(3, &passed()).summary, layout));
    let Reports { summary, .. } = made(3, &failed());
    insta::assert_snapshot!("failed", text::summary(&summary, Layout { verbose: true, ..layout }));
    insta::assert_snapshot!("quiet", text::summary(&summary, Layout { quiet: true, ..layout }));
    assert!(text::summary(&summary, Layout { colour: true, ..layout }).contains('\u{1b}'));
    assert!(!text::summary(&summary, layout).contains('\u{1b}'));
}

#[test]
fn the_summary_fits_one_screen_and_begins_with_the_answer() {
    let layout = Layout { colour: false, quiet: false, verbose: false };
    let said = text::summary(&made(3, &passed()).summary, layout);
    assert!(said.lines().count() <= 24, "{said}");
    let order = [
        "PASS",
        "rollback of",
        "lost work  ",
        "The results of",
        "exercised properties hold",
        "faultline explain",
    ];
    let places = order.map(|it| said.find(it).unwrap_or_else(|| panic!("{it}: {said}")));
    assert!(places.is_sorted(), "{said}");
    // Faults and links that are as expected are not listed, and neither are names of properties.
    assert!(
        said.contains("2 of 3 planned faults took effect.") && !said.contains("paris-1 is killed"),
        "{said}"
    );
    assert!(
        said.contains("All 4 links had the requested delay.") && !said.contains("within paris"),
        "{said}"
    );
    assert!(!said.contains("orphansFirst"), "{said}");
    for verbose in [false, true] {
        let said = text::summary(&made(3, &failed()).summary, Layout { verbose, ..layout });
        assert!(said.lines().all(|it| it.chars().count() <= 100), "{said}");
    }
}

#[test]
fn a_link_that_affects_the_verdict_is_off_everywhere_and_never_as_requested() {
    use faultline_core::Span;
    use faultline_trace::manifest::LinkObserved;

    let (mut manifest, trace) = common::run(3);
    let link = &mut manifest.links[1];
    assert_eq!(link.as_requested(), Some(true));
    link.observed = Some(LinkObserved { echoes: 100, outside: 37, mean: Span::from_micros(15_400) });
    let judgement = passed();
    let recorded = RecordedRun { bundle: "off", manifest: &manifest, trace: &trace, judgement: &judgement };
    for colour in [false, true] {
        let said = text::summary(&Summary::new(recorded), Layout { colour, quiet: false, verbose: false });
        assert!(said.contains("1 of 4 links did not have the requested delay."), "{said}");
        let row = said.lines().find(|it| it.contains("paris->rennes")).unwrap();
        let off = if colour { "\u{1b}[38;5;11m off" } else { "15.4 ms, 37 % deviate  off" };
        assert!(row.contains(off) && !said.contains("as requested"), "{row:?}");
        assert!(!said.contains("rennes->paris"), "{said}");
    }
    let page = page::render(recorded);
    let row = page.split("<tr>").find(|it| it.contains("paris-&gt;rennes") && it.contains("chip")).unwrap();
    assert!(
        row.contains("<span class=\"chip unknown\">off</span>") && !row.contains("as requested"),
        "{row}"
    );
}

#[test]
fn the_summary_is_serialised_as_json() {
    let json = serde_json::to_value(&made(3, &failed()).summary).unwrap();
    assert_eq!(json["verdict"], "fail");
    assert_eq!(json["faults"][2]["state"], "ineffective");
    assert_eq!(json["clusters"][1]["rollbacks"][0]["becauseOf"], "paris");
    assert_eq!(json["result"]["equal"], true);
    assert_eq!(json["links"][1]["asRequested"], true);
    assert_eq!(json["links"][1]["toleranceSeconds"], 400e-6);
    let found = |property: &str| {
        let all = json["properties"].as_array().unwrap();
        all.iter().find(|it| it["property"] == property).unwrap()["found"].clone()
    };
    assert_eq!(found("noLoss"), "holds");
    assert_eq!(found("exactlyOnce"), "violated");
    assert_eq!(found("boundedLoss"), "unknown");
    assert_eq!(found("orphansFirst"), "notExercised");
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let documented = [
        "clusters",
        "explanation",
        "faults",
        "links",
        "notes",
        "outages",
        "processes",
        "properties",
        "reasons",
        "result",
        "run",
        "verdict",
    ];
    assert_eq!(keys, documented);
}

#[test]
fn the_diagram_shows_every_kind_of_item() {
    let Reports { diagram, .. } = made(3, &passed());
    let fates = |fate| diagram.messages.iter().filter(|it| it.fate == fate).count();
    assert!(fates(Fate::Delivered) > 0 && fates(Fate::Undone) > 0 && fates(Fate::Resent) > 0);
    assert_eq!((diagram.lanes.len(), diagram.outages.len(), diagram.rollbacks.len()), (6, 4, 3));
    assert_eq!(diagram.recovery_lines.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3]);
    for line in &diagram.messages {
        assert!(line.arrived.is_none_or(|at| at >= line.sent), "{line:?}");
    }
    assert_eq!(
        diagram.checkpoints.iter().map(|it| it.members.len()).max(),
        Some(3),
        "one entry per checkpoint"
    );
}

#[test]
fn the_page_is_self_contained_and_complete() {
    let Reports { page, .. } = made(3, &failed());
    for fetched in ["src=\"", "href=\"", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    assert!(page.contains("delivered &lt;message&gt; 3"), "text is escaped");
    assert!(page.contains("not exercised"));
    let praise = made(3, &passed()).page;
    assert!(praise.contains("8 of 8 exercised properties hold (136 instances); 1 was not exercised."));
    assert!(praise.contains("<details><summary>1 property not exercised</summary>"));
    let first = |text: &str| praise.find(text).unwrap_or_else(|| panic!("{text}"));
    let order =
        [">pass<", "exercised properties hold", "longest recovery", "checkpoints, ", "Space-time diagram"];
    assert!(order.map(first).is_sorted(), "{:?}", order.map(first));
    let data = page.split("id=\"data\">").nth(1).and_then(|it| it.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["lanes"][0], "paris-0");
    assert_eq!(data["kept"], data["total"]);
    assert!(data["messages"].as_str().is_some_and(|it| it.len() as u64 > data["total"].as_u64().unwrap()));
}

#[test]
fn a_page_about_many_processes_stays_small() {
    let Reports { page, diagram, .. } = made(40, &passed());
    assert!(page.len() < 12 * diagram.messages.len() + 250_000, "{} bytes", page.len());
}

#[test]
fn a_run_that_never_started_can_be_reported() {
    let (manifest, _) = common::run(2);
    let recorded = RecordedRun {
        bundle: "nothing",
        manifest: &manifest,
        trace: &faultline_trace::Trace::default(),
        judgement: &passed(),
    };
    assert!(
        page::render(recorded).contains("No cluster rolled back")
            || page::render(recorded).contains("There were no failures")
    );
    assert!(
        svg::render(
            &Diagram::new(&Timeline::default(), &DisplayNames::new(&manifest)),
            svg::Options::default()
        )
        .contains("<svg")
    );
}

/// Returns a trace in which the supervisor records these facts, a tenth of a second apart.
fn supervised(facts: impl IntoIterator<Item = faultline_core::Fact>) -> faultline_trace::Trace {
    use faultline_core::{FactNo, Life, Time};
    use faultline_trace::{Record, Sink, Trace};

    let mut trace = Trace::default();
    for (number, fact) in facts.into_iter().enumerate() {
        let (process, life, number) = (ProcessId::SUPERVISOR, Life(0), FactNo(number as u64));
        trace.record(Record { process, life, number, at: Time(number.0 * 100_000_000), fact });
    }
    trace
}

#[test]
fn a_rollback_of_a_single_process_names_the_process() {
    use faultline_core::{Promises, Scope};

    let (mut manifest, trace) = common::run(2);
    manifest.promises = Promises::of_scope(Scope::Process);
    let judgement = passed();
    let recorded = RecordedRun { bundle: "alone", manifest: &manifest, trace: &trace, judgement: &judgement };
    let summary = Summary::new(recorded);
    let rollbacks: Vec<_> = summary.clusters.iter().flat_map(|it| &it.rollbacks).collect();
    let processes = ["paris-0", "paris-1", "rennes-0", "rennes-1"];
    assert!(!rollbacks.is_empty());
    for it in rollbacks {
        assert!(processes.contains(&it.of.as_str()), "{it:?}");
        let row = format!("\n {} ", it.of);
        let layout = Layout { colour: false, quiet: false, verbose: false };
        let text = text::summary(&summary, layout);
        assert!(text.contains(&row), "{text}");
    }
}

#[test]
fn unplanned_failures_are_distinguished() {
    use faultline_core::{EndedBy, Fact, Life, StorageFate};

    let (manifest, _) = common::run(2);
    let failed_in = |life, process, by| {
        let process = ProcessId(process);
        Fact::Failed { process, life, storage: StorageFate::Kept, by }
    };
    let life = Life(1);
    let failed = |process, by| failed_in(life, process, by);
    let facts = [
        Fact::Begun,
        failed(0, EndedBy::Silence),
        Fact::Detected { process: ProcessId(0), life },
        failed(3, EndedBy::Silence),
        Fact::Detected { process: ProcessId(1), life },
        failed(2, EndedBy::PlaceLost),
        failed_in(Life(2), 2, EndedBy::StorageLost),
        failed_in(Life(2), 0, EndedBy::SupervisorRestarted),
    ];
    let trace = supervised(facts);
    let judgement = passed();
    let recorded = RecordedRun { bundle: "slow", manifest: &manifest, trace: &trace, judgement: &judgement };
    let summary = Summary::new(recorded);
    let told: Vec<_> = summary.explanation.iter().map(|it| it.text.as_str()).collect();
    assert!(
        told[0].starts_with("At 0.10 s, paris-0 and rennes-1 were declared failed and killed"),
        "{told:?}"
    );
    assert!(told[1].starts_with("At 0.40 s, paris-1 ended unexpectedly"), "{told:?}");
    assert!(told[2].starts_with("At 0.50 s, rennes-0 was lost together with its place"), "{told:?}");
    assert!(
        told[3].starts_with("At 0.60 s, rennes-0 moved to a new place, and lost its storage"),
        "{told:?}"
    );
    assert!(told[4].starts_with("At 0.70 s, the supervisor was restarted, and paris-0"), "{told:?}");
    let notes = summary.notes.join("\n");
    assert_eq!(summary.notes.len(), 5, "{notes}");
    let silent = notes.lines().find(|it| it.contains("failures.detectAfter")).unwrap();
    assert!(silent.starts_with("2 lives were declared failed"), "{silent}");
}

#[test]
fn a_run_that_was_cut_short_is_reported_as_far_as_recorded() {
    use faultline_core::{Fact, Fault, FaultNo, Span};

    let (whole, _) = common::run(2);
    let manifest = faultline_trace::Manifest { outcome: None, ..whole };
    let told = |facts: Vec<Fact>| -> Vec<String> {
        let trace = supervised(facts);
        let judgement = passed();
        let recorded =
            RecordedRun { bundle: "cut", manifest: &manifest, trace: &trace, judgement: &judgement };
        Summary::new(recorded).explanation.into_iter().map(|it| it.text).collect()
    };
    let fault = Fault::pause(ProcessId(0), Span::from_secs(1));
    let paused = told(vec![Fact::Begun, Fact::Injecting { no: FaultNo(0), fault: fault.into() }]);
    assert!(paused[0].ends_with("; the record ends before it resumed."), "{paused:?}");
    assert!(paused.iter().any(|it| it.starts_with("The run was cut short")), "{paused:?}");
    let silent = told(vec![Fact::Begun, Fact::Begun]);
    assert!(silent.iter().any(|it| it == "The record shows no failures and no rollbacks."), "{silent:?}");
}

#[test]
fn what_missing_facts_could_change_is_not_stated() {
    use faultline_trace::{Flaw, FlawKind};

    let told = |(manifest, trace): &(faultline_trace::Manifest, faultline_trace::Trace)| {
        let judgement = passed();
        let recorded = RecordedRun { bundle: "cut", manifest, trace, judgement: &judgement };
        let explained = Summary::new(recorded).explanation;
        explained.into_iter().map(|it| it.text).collect::<Vec<_>>().join("\n")
    };
    let whole = common::run(2);
    let stated = told(&whole);
    let lives: Vec<_> = whole.1.streams.keys().filter(|it| it.0 != ProcessId::SUPERVISOR).copied().collect();
    let (mut ages, mut bounds) = (0, 0);
    for life in lives {
        let (manifest, mut trace) = whole.clone();
        trace.streams.remove(&life);
        trace.flaws.push(Flaw { stream: Some(life), kind: FlawKind::Absent });
        let text = told(&(manifest, trace));
        for claim in ["had not delivered any undone message", "did not reach all", "no work was lost"] {
            assert!(!text.contains(claim), "{life:?}: {text}");
        }
        for age in text.split("(saved ").skip(1).filter_map(|it| it.split_once(" before")) {
            assert!(stated.contains(&format!("saved {} before", age.0)), "{life:?}: {}: {stated}", age.0);
            ages += 1;
        }
        bounds += text.matches("at least").count();
    }
    assert!(ages > 0 && bounds > 0, "{ages} {bounds}");
}

#[test]
fn a_damaged_part_is_named() {
    use faultline_core::Fact;

    let (manifest, mut trace) = common::run(2);
    let mut all = trace.streams.values().flatten();
    let part = all.find_map(|(_, fact)| match fact {
        Fact::Saved(saved) => Some(saved.0),
        _ => None,
    });
    let part = part.expect("a process saved its part of a checkpoint");
    for (holder, expected) in [
        (part.owner, "its own part of checkpoint 1 damaged"),
        (ProcessId(part.owner.0 + 1), "paris-0's part of checkpoint 1 damaged"),
    ] {
        let stream = trace.streams.iter_mut().find(|it| it.0.0 == holder).expect("the process has facts").1;
        let last = stream.last().expect("the process has facts").0;
        stream.push((last, Fact::Damaged(part)));
        let judgement = passed();
        let recorded =
            RecordedRun { bundle: "damaged", manifest: &manifest, trace: &trace, judgement: &judgement };
        let explained = Summary::new(recorded).explanation;
        assert!(explained.iter().any(|it| it.text.contains(expected)), "{expected}: {explained:?}");
    }
}

#[test]
fn a_doubtful_violation_is_not_reported_as_one() {
    let mut judgement = failed();
    judgement.verdict = Verdict::Unknown;
    judgement.findings[6].is_doubtful = true;
    judgement.findings[6].unknown = Some("doubtful, because facts may be missing".to_owned());
    let Reports { summary, page, .. } = made(2, &judgement);
    let property = &summary.properties[6];
    assert_eq!((property.violation_count, property.violations.len()), (0, 0));
    assert_eq!(property.verdict, Verdict::Unknown);
    let layout = Layout { colour: false, quiet: false, verbose: false };
    let text = text::summary(&summary, layout);
    assert!(!text.contains("violation") && !page.contains("class=\"violation\""), "{text}");
}

#[test]
fn a_program_that_is_not_send_deterministic_is_named_as_the_reason_for_the_end() {
    use faultline_core::fault::Outcome;
    use faultline_core::{Fact, Incarnation, MessageId};

    let (whole, _) = common::run(2);
    let id = MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Incarnation(0), number: 4 };
    let manifest = faultline_trace::Manifest { outcome: Some(Outcome::NotRepeated { id }), ..whole };
    let trace = supervised(vec![Fact::Begun]);
    let recorded = RecordedRun { bundle: "cut", manifest: &manifest, trace: &trace, judgement: &passed() };
    let told: Vec<String> = Summary::new(recorded).explanation.into_iter().map(|it| it.text).collect();
    assert!(told.iter().any(|it| it.contains(" was re-executed, its message 4 to ")), "{told:?}");
}

#[test]
fn lives_ended_by_a_fault_are_reported_with_it_and_others_separately() {
    use faultline_core::{ClusterId, EndedBy, Fact, Fault, FaultNo, Life, Span, StorageFate};

    let (manifest, _) = common::run(2);
    let lost = |process, life, by| Fact::Failed {
        process: ProcessId(process),
        life: Life(life),
        storage: StorageFate::Lost,
        by,
    };
    let planned = |no| EndedBy::Fault(FaultNo(no));
    let fault = Box::new(Fault::kill(ClusterId(1), StorageFate::Lost));
    let pause = Box::new(Fault::pause(ProcessId(3), Span::from_millis(10)));
    let facts = [
        Fact::Begun,
        Fact::Injecting { no: FaultNo(1), fault },
        lost(2, 1, planned(1)),
        lost(3, 1, planned(1)),
        // The pause ends before the process counts as silent.
        Fact::Injecting { no: FaultNo(2), fault: pause.clone() },
        Fact::Resumed { process: ProcessId(3), life: faultline_core::Life(2) },
        lost(3, 2, EndedBy::Silence),
        Fact::Injecting { no: FaultNo(3), fault: pause },
        lost(3, 3, planned(3)),
    ];
    let trace = supervised(facts);
    let judgement = passed();
    let recorded = RecordedRun { bundle: "late", manifest: &manifest, trace: &trace, judgement: &judgement };
    let told: Vec<_> = Summary::new(recorded).explanation.into_iter().map(|it| it.text).collect();
    assert!(told[0].contains("both processes of rennes were killed (fault 1"), "{told:?}");
    assert!(
        told[1].contains("rennes-1 was paused for 10.0 ms (fault 2, pause) and then resumed"),
        "{told:?}"
    );
    assert!(told[2].starts_with("At 0.60 s, rennes-1 was declared failed and killed"), "{told:?}");
    assert!(told[3].contains("(fault 3, pause); it was declared failed and killed at 0.80 s"), "{told:?}");

    // During the run, only lives that were declared failed are reported separately from the faults.
    let mut reporter = faultline_report::events::EventReporter::new(&manifest, Default::default());
    let told: Vec<_> = trace
        .supervisor()
        .iter()
        .filter_map(|(_, fact)| reporter.observe(ProcessId::SUPERVISOR, fact))
        .collect();
    let reasons: Vec<_> = told.iter().map(|it| it.reason).collect();
    let expected =
        ["Started", "FaultInjected", "FaultInjected", "DeclaredFailed", "FaultInjected", "DeclaredFailed"];
    assert_eq!(reasons, expected);
    assert!(told[3].text.starts_with("rennes-1 sent no heartbeat"), "{told:?}");
    assert!(told[5].text.starts_with("rennes-1 has been paused for too long (fault 3)"), "{told:?}");
}

/// rennes-1 of a system crashes, and becomes ready again; a system never rolls back.
#[test]
fn a_node_of_a_system_has_failed_until_it_is_ready_again() {
    use faultline_core::{ClusterId, EndedBy, Fact, Life, Observation, Scope, StorageFate};
    use faultline_report::events::EventReporter;

    let (mut manifest, _) = common::run(2);
    manifest.system = Some(Default::default());
    manifest.promises.scope = Scope::Process;
    let (rennes, process) = (ClusterId(1), DisplayNames::new(&manifest).processes(ClusterId(1))[1]);
    let (storage, by) = (StorageFate::Kept, EndedBy::PlaceLost);
    let mut reporter = EventReporter::new(&manifest, Default::default());
    let ready = Fact::Observed(Box::new(Observation::Ready));
    assert_eq!(reporter.observe(process, &ready), None);
    for fact in
        [Fact::Failed { process, life: Life(1), storage, by }, Fact::Detected { process, life: Life(1) }]
    {
        reporter.observe(ProcessId::SUPERVISOR, &fact);
    }
    assert!(reporter.is_failing(rennes));
    let told = reporter.observe(process, &ready).expect("it is an event");
    assert_eq!((told.reason, told.text.as_str(), told.warning), ("ReadyAgain", "rennes-1 is ready", false));
    assert!(!reporter.is_failing(rennes));
}

/// rennes joins and leaves; rennes-1 is lost before, in between and afterwards.
#[test]
fn a_place_lost_while_its_cluster_is_absent_is_no_failure() {
    use faultline_core::{ClusterId, EndedBy, Fact, Life, StorageFate};
    use faultline_report::events::EventReporter;

    let (manifest, _) = common::run(2);
    let names = DisplayNames::new(&manifest);
    let (rennes, process) = (ClusterId(1), names.processes(ClusterId(1))[1]);
    let (storage, by) = (StorageFate::Lost, EndedBy::PlaceLost);
    let lost = |life| [Fact::Failed { process, life, storage, by }, Fact::Detected { process, life }];
    let [before, between, afterwards] = [1, 2, 3].map(|it| lost(Life(it)));
    let mut reporter = EventReporter::new(&manifest, [rennes].into());
    let presence = [vec![Fact::Joined(rennes)], vec![Fact::Left(rennes)]];
    let [joined, left] = presence;
    let facts = [vec![Fact::Begun], before.to_vec(), joined, between.to_vec(), left, afterwards.to_vec()];
    let told: Vec<_> =
        facts.iter().flatten().filter_map(|it| reporter.observe(ProcessId::SUPERVISOR, it)).collect();
    let reasons: Vec<_> = told.iter().map(|it| (it.reason, it.warning)).collect();
    let expected = [
        ("Started", false),
        ("PlaceLost", false),
        ("Joined", false),
        ("PlaceLost", true),
        ("FailureDetected", true),
        ("Left", false),
        ("PlaceLost", false),
    ];
    assert_eq!(reasons, expected, "{told:?}");
    assert_eq!(
        told[1].text,
        "rennes-1 is lost while rennes does not take part in the run, so nothing has failed"
    );
}

#[test]
fn faults_are_explained_with_their_measurements() {
    use faultline_core::{EndedBy, Fact, Fault, FaultNo, Life, Span, StorageFate, Time};
    use faultline_trace::manifest::{BackendKind, Effect, EffectEntry};

    let (whole, _) = common::run(2);
    let (rennes, storage) = (ClusterId(1), StorageFate::Kept);
    let effects = |at: [Option<u64>; 2]| {
        let on = [2, 3].map(ProcessId).into_iter().zip(at).map(|(process, micros)| Effect {
            process,
            life: Life(1),
            at: micros.map(|it| Time::ZERO + Span::from_micros(it)),
            exited: micros.map(|it| Time::ZERO + Span::from_micros(it + 1700)),
            slowed: None,
            error: Span::ZERO,
        });
        vec![EffectEntry { no: FaultNo(1), due: Time::ZERO, on: on.collect(), idle: Vec::new() }]
    };
    let told = |fault: &Fault, killed: &[u32], backend, effects| {
        let injecting = Fact::Injecting { no: FaultNo(1), fault: Box::new(fault.clone()) };
        let failed = killed.iter().map(|it| Fact::Failed {
            process: ProcessId(*it),
            life: Life(1),
            storage,
            by: EndedBy::Fault(FaultNo(1)),
        });
        let trace = supervised([Fact::Begun, injecting].into_iter().chain(failed));
        let manifest = faultline_trace::Manifest { backend, effects, ..whole.clone() };
        let judgement = passed();
        let recorded = RecordedRun { bundle: "", manifest: &manifest, trace: &trace, judgement: &judgement };
        Summary::new(recorded).explanation.remove(0).text
    };
    let (known, unknown) = ([Some(2000), Some(2300)], [Some(2000), None]);
    let lost = Fault::kill(rennes, storage);
    let (local, both) = (BackendKind::Local, "At 0.10 s, both processes of rennes were killed");
    assert_eq!(
        told(&lost, &[2, 3], local, effects(known)),
        format!(
            "{both} and stopped within 300 us (fault 1, cluster loss, 2.30 ms late, exited up to 1.70 ms later)."
        )
    );
    for effects in [effects(unknown), Vec::new()] {
        assert_eq!(
            told(&lost, &[2, 3], local, effects),
            format!("{both} (fault 1, cluster loss). The times at which they stopped are not all known.")
        );
    }
    let at_once = format!("{both} at once (fault 1, cluster loss).");
    assert_eq!(told(&lost, &[2, 3], BackendKind::Simulate, Vec::new()), at_once);
    let single = "At 0.10 s, 1 process of rennes was killed at once (fault 1, cluster loss).";
    assert_eq!(told(&lost, &[2], local, Vec::new()), single);
    let crash = Fault::kill(ProcessId(2), StorageFate::Lost);
    let text = told(&crash, &[2], local, effects([Some(2000), Some(2000)]));
    assert_eq!(
        text,
        "At 0.10 s, rennes-0 was killed (fault 1, crash, storage lost, 2.00 ms late, exited up to 1.70 ms later)."
    );
    let partition = Fault::Partition { from: ClusterId(0), to: vec![rennes], both: true, span: Span(1) };
    let mut applied = effects(known);
    applied[0].on.iter_mut().for_each(|it| it.exited = None);
    let text = told(&partition, &[], local, applied);
    assert!(text.ends_with(" (fault 1, 2.30 ms late, within 300 us)."), "{text}");
}

/// Under such a protocol, the only group consists of all clusters.
#[test]
fn a_federation_that_rolls_back_together_is_unrecoverable_as_a_whole() {
    use faultline_core::fault::Outcome;
    use faultline_core::{
        Attempt, Claim, Fact, FactNo, GroupId, ImageName, Incarnation, Life, Promises, Scope, Sn, Time,
    };
    use faultline_report::events::EventReporter;
    use faultline_trace::{Record, Sink};

    let (whole, _) = common::run(2);
    let owner = ProcessId(2);
    let part = ImageName { owner, incarnation: Incarnation(0), sn: Sn(3), attempt: Attempt(1) };
    let (group, missing) = (GroupId(0), [(part, vec![owner])].into());
    let outcome = Outcome::Unrecoverable { group, missing };
    let Outcome::Unrecoverable { missing, .. } = outcome.clone() else { unreachable!() };
    let claim = Fact::Claim(Box::new(Claim::Unrecoverable { group, missing }));
    let manifest = faultline_trace::Manifest {
        promises: Promises::of_scope(Scope::Federation),
        outcome: Some(outcome),
        ..whole
    };
    let mut trace = supervised([Fact::Begun]);
    let (process, life, number) = (ProcessId(0), Life(1), FactNo(0));
    trace.record(Record { process, life, number, at: Time(1), fact: claim.clone() });
    let judgement = passed();
    let recorded = RecordedRun { bundle: "lost", manifest: &manifest, trace: &trace, judgement: &judgement };
    let told: Vec<String> = Summary::new(recorded).explanation.into_iter().map(|it| it.text).collect();
    let expected = "No checkpoint of the federation can be restored. Missing: rennes-0's part of checkpoint 3 (not \
                    found at rennes-0).";
    assert!(told.iter().any(|it| it == expected), "{told:?}");

    let names = DisplayNames::new(&manifest);
    let clusters: Vec<_> = names.clusters().collect();
    let mut reporter = EventReporter::new(&manifest, Default::default());
    assert!(!clusters.iter().any(|it| reporter.is_unrecoverable(*it)));
    let event = reporter.observe(process, &claim).unwrap();
    assert_eq!(event.text, "no checkpoint of the federation can be restored");
    assert!(clusters.iter().all(|it| reporter.is_unrecoverable(*it)), "all clusters belong to the group");
}

#[test]
fn a_rollback_reports_detection_later_failures_and_a_discarded_checkpoint() {
    use faultline_core::{
        Attempt, Claim, EndedBy, Fact, FactNo, Fault, FaultNo, ImageName, Incarnation, Life, Position, Sn,
    };
    use faultline_core::{StorageFate, Time, Witness};
    use faultline_trace::{Record, Sink, Trace};

    let (manifest, _) = common::run(2);
    let mut trace = Trace::default();
    let mut state = |process, life, millis: u64, fact| {
        let (life, at) = (Life(life), Time(millis * 1_000_000));
        let number = FactNo(trace.streams.get(&(process, life)).map_or(0, |it| it.len() as u64));
        trace.record(Record { process, life, number, at, fact });
    };
    let supervisor = ProcessId::SUPERVISOR;
    let (one, two) = (ProcessId(0), ProcessId(1));
    let by = EndedBy::Fault(FaultNo(0));
    let failed = |process| Fact::Failed { process, life: Life(1), storage: StorageFate::Kept, by };
    let detected = |process| Fact::Detected { process, life: Life(1) };
    let crash = |process| Box::new(Fault::crash(process));
    let image = |owner| ImageName { owner, incarnation: Incarnation(0), sn: Sn(3), attempt: Attempt(1) };
    let (position, attempt) = (Position::new(0, 3), Attempt(1));
    let back = Claim::RolledBack {
        to: Position::new(1, 3),
        checkpoint: position,
        cause: Cause::Failure,
        vectors: Default::default(),
    };
    let story = [
        (supervisor, 0, 0, Fact::Begun),
        (two, 1, 900, Fact::Claim(Box::new(Claim::Aborted { position, attempt }))),
        (supervisor, 0, 1000, Fact::Injecting { no: FaultNo(0), fault: crash(one) }),
        (supervisor, 0, 1000, failed(one)),
        (supervisor, 0, 1300, detected(one)),
        (supervisor, 0, 1400, Fact::Injecting { no: FaultNo(1), fault: crash(two) }),
        (supervisor, 0, 1400, failed(two)),
        (supervisor, 0, 1410, detected(two)),
    ];
    story.into_iter().for_each(|(process, life, millis, fact)| state(process, life, millis, fact));
    for process in [one, two] {
        let restored = (Some(image(process)), Incarnation(1), Witness::default());
        state(process, 2, 1500, Fact::Restored(Box::new(restored)));
        state(process, 2, 1600, Fact::Claim(Box::new(back.clone())));
    }
    let judgement = passed();
    let recorded = RecordedRun { bundle: "twice", manifest: &manifest, trace: &trace, judgement: &judgement };
    let told: Vec<_> = Summary::new(recorded).explanation.into_iter().map(|it| it.text).collect();
    let rollback =
        told.iter().find(|it| it.contains("rolled back")).expect("the explanation describes a rollback");
    for part in [
        "paris, whose failure was detected after 300 ms (and 1 process failed before paris resumed, at 1.40 s), rolled back",
        "then discarded, although all its parts were durable",
    ] {
        assert!(rollback.contains(part), "{rollback}");
    }
}
