//! Tests the reports of a made-up run of a task-based program: processes steal tasks; one process fails and returns,
//! and another one fails and never returns.

mod common;

use faultline_checker::{Finding, Judgement, Property, Verdict};
use faultline_core::fault::FaultState;
use faultline_core::{
    Boot, Cause, Claim, ClusterId, Digest, EndedBy, Fact, Fault, FaultNo, ImageName, Incarnation, Life,
    PlannedFault, Position, ProcessId, Promise, Promises, Role, Scope, Span, StorageFate, Target, TaskId,
    TheftStep, Time, Trigger, Witness,
};
use faultline_history::testing::tasks::{TaskRun, theft};
use faultline_report::diagram::{Content, Fate, svg};
use faultline_report::text::{self, Layout};
use faultline_report::{Diagram, DisplayNames, RecordedRun, Summary, Timeline, page};
use faultline_trace::manifest::{ClusterEntry, Expected, ProcessEntry};
use faultline_trace::{Flaw, FlawKind, Manifest};

const NAMES: [&str; 3] = ["lyon", "paris", "rennes"];

fn crash(process: u32, returns: bool) -> Fault {
    Fault::Kill {
        target: Target::Process(ProcessId(process)),
        storage: StorageFate::Kept,
        returns,
        repair: None,
    }
}

fn manifest() -> Manifest {
    let (example, _) = common::run(1);
    let planned = |no, at, fault| PlannedFault {
        no: FaultNo(no),
        trigger: Trigger::At(Time(at)),
        fault,
        reported: None,
        cause: None,
    };
    Manifest {
        name: "tic".into(),
        protocol: "tic".into(),
        promises: Promises::of_scope(Scope::Process).with(&[Promise::Checkpoints]),
        leaving: Vec::new(),
        clusters: NAMES.map(|name| ClusterEntry { name: name.into(), nodes: 1 }).into(),
        processes: (0..)
            .zip(NAMES)
            .map(|(cluster, name)| ProcessEntry {
                name: format!("{name}-0"),
                role: Role::RANK,
                cluster: ClusterId(cluster),
            })
            .collect(),
        bounds: None,
        links: Vec::new(),
        plan: vec![planned(0, 20_000_000, crash(0, true)), planned(1, 30_000_000, crash(2, false))],
        faults: vec![(FaultNo(0), FaultState::Effective), (FaultNo(1), FaultState::Effective)],
        expected: Some(Expected {
            source: "the sequential reference".into(),
            digests: vec![(ProcessId(0), Digest([1; 16]))],
        }),
        duration: Span::from_millis(200),
        ..example
    }
}

fn judgement() -> Judgement {
    let finding = |property| Finding {
        property,
        instances: 5,
        violations: Vec::new(),
        more_violations: 0,
        is_doubtful: false,
        unknown: None,
        remarks: Vec::new(),
    };
    let findings = vec![finding(Property::TasksOnce), finding(Property::OneOwner)];
    Judgement { verdict: Verdict::Pass, reasons: Vec::new(), findings }
}

/// Injects a crash. If there is a checkpoint in `restored`, the process restores it in its next life; otherwise, the
/// process never returns.
fn fail(run: &mut TaskRun, no: u32, process: u32, restored: Option<(ImageName, Witness)>) {
    let (life, of) = (Life(1), ProcessId(process));
    let fault = Box::new(crash(process, restored.is_some()));
    run.0.supervisor(Fact::Injecting { no: FaultNo(no), fault });
    let by = EndedBy::Fault(FaultNo(no));
    run.0.supervisor(Fact::Failed { process: of, life, storage: StorageFate::Kept, by });
    run.0.wait(Span::from_millis(10));
    run.0.supervisor(Fact::Detected { process: of, life });
    let Some(restored) = restored else { return };
    run.0.next_life(process);
    run.0.supervisor(Fact::LifeStarted { process: of, life: life.next(), boot: Boot::Restarted });
    run.restore(process, Some(restored));
    let checkpoint = restored.0.position();
    let to = Position { incarnation: Incarnation(1), sn: checkpoint.sn };
    let (cause, vectors) = (Cause::Failure, Default::default());
    run.0.claim(process, Claim::RolledBack { to, checkpoint, cause, vectors });
}

/// Returns a run in which lyon-0 begins a program of five tasks. paris-0 steals one and returns its result.
/// rennes-0 steals another one, fails, and never returns; paris-0 absorbs its graph, and re-executes the task. lyon-0
/// fails, and re-executes one task.
fn run() -> TaskRun {
    let mut run = TaskRun::promising(3, &[]);
    run.0.supervisor(Fact::Begun);
    let tasks = run.begin(0, 4);
    let steal = |run: &mut TaskRun, thief: u32, task: TaskId| {
        run.lend(0, theft(0, thief), task);
        run.step(0, theft(0, thief), task, TheftStep::Shipped);
        run.step(thief, theft(0, thief), task, TheftStep::Taken);
    };
    steal(&mut run, 1, tasks[0]);
    run.ran(1, tasks[0], 0);
    run.step(1, theft(0, 1), tasks[0], TheftStep::Done);
    run.commit(1, 1, true);
    run.step(1, theft(0, 1), tasks[0], TheftStep::Returned);
    run.step(0, theft(0, 1), tasks[0], TheftStep::Merged);
    steal(&mut run, 2, tasks[1]);
    let saved = run.commit(0, 1, true);
    run.step(0, theft(0, 1), tasks[0], TheftStep::Receipted);
    run.ran(0, tasks[2], 0);
    fail(&mut run, 0, 0, Some(saved));
    run.ran(0, tasks[2], 0);
    let stolen = run.commit(2, 1, true);
    run.0.durable(1, stolen.0);
    run.ran(2, tasks[1], 0);
    fail(&mut run, 1, 2, None);
    run.absorb(1, 2, Some(stolen));
    run.ran(1, tasks[1], 0);
    run.step(1, theft(0, 2), tasks[1], TheftStep::Done);
    run.step(1, theft(0, 2), tasks[1], TheftStep::Returned);
    run.step(0, theft(0, 2), tasks[1], TheftStep::Merged);
    run.ran(0, tasks[3], 0);
    run.finish(0, 5, 5);
    run
}

/// Formats the arrows of a diagram, one per line.
fn arrows(diagram: &Diagram) -> String {
    let lane = |it: usize| &diagram.lanes[it];
    let lines = diagram.messages.iter().map(|it| {
        let arrived = it.arrived.map_or_else(|| "never".to_owned(), |it| format!("{it} us"));
        let (from, to) = (lane(it.from), lane(it.to));
        format!("{:?} {from} -> {to}, {} us to {arrived}: {:?}\n", it.content, it.sent, it.fate)
    });
    lines.collect()
}

#[test]
fn thefts_absorbed_graphs_and_repeated_tasks_are_explained() {
    let (manifest, run) = (manifest(), run());
    let (trace, judgement) = (&run.0.trace, judgement());
    let recorded = RecordedRun { bundle: "tic-7", manifest: &manifest, trace, judgement: &judgement };
    let summary = Summary::new(recorded);
    let told: Vec<_> = summary.explanation.iter().map(|it| it.text.as_str()).collect();
    insta::assert_snapshot!("tasks_explained", told.join("\n"));
    let layout = Layout { colour: false, quiet: false, verbose: false };
    insta::assert_snapshot!("tasks_summary", text::summary(&summary, layout));
}

#[test]
fn a_record_without_the_facts_of_a_process_claims_nothing_about_it() {
    let (manifest, mut run) = (manifest(), run());
    let trace = &mut run.0.trace;
    let (rennes, life) = (ProcessId(2), Life(1));
    trace.streams.remove(&(rennes, life)).expect("the process reported facts");
    trace.flaws.push(Flaw { stream: Some((rennes, life)), kind: FlawKind::Absent });
    let judgement = judgement();
    let recorded = RecordedRun { bundle: "tic-7", manifest: &manifest, trace, judgement: &judgement };
    let summary = Summary::new(recorded);
    let told: String = summary.explanation.iter().map(|it| format!("{}\n", it.text)).collect();
    assert!(
        told.contains("took over the work of rennes-0, starting from rennes-0's checkpoint 1."),
        "{told}"
    );
    assert!(told.contains("According to the facts that remain, "), "{told}");
    assert_eq!(summary.clusters[2].time.total_seconds(), 0.0, "nothing is known");
    assert!(
        summary.notes.iter().any(|it| it.starts_with("facts of rennes-0 are missing")),
        "{:?}",
        summary.notes
    );
    let layout = Layout { colour: false, quiet: false, verbose: false };
    let text = text::summary(&summary, layout);
    assert!(text.contains("note: facts of rennes-0 are missing"), "{text}");
}

#[test]
fn the_diagram_draws_thefts_as_arrows() {
    let (manifest, run) = (manifest(), run());
    let (trace, judgement) = (&run.0.trace, judgement());
    let names = DisplayNames::new(&manifest);
    let history = Timeline::new(trace, &manifest);
    let diagram = Diagram::new(&history, &names);
    insta::assert_snapshot!("tasks_arrows", arrows(&diagram));
    assert!(diagram.messages.iter().all(|it| it.between && it.fate != Fate::Lost));

    // A picture without thefts lacks their arrows.
    let drawn = |diagram: &Diagram| svg::render(diagram, svg::Options::default());
    let stolen = |it: &faultline_report::diagram::MessageLine| it.content != Content::Message;
    let mut without = diagram.clone();
    without.messages.retain(|it| !stolen(it));
    let paths = |it: &str| it.matches("class=\"message").count();
    assert!(paths(&drawn(&diagram)) > paths(&drawn(&without)), "{}", drawn(&diagram));

    let recorded = RecordedRun { bundle: "tic-7", manifest: &manifest, trace, judgement: &judgement };
    let page = page::render(recorded);
    let data = page.split("id=\"data\">").nth(1).and_then(|it| it.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let of = |content: Content| diagram.messages.iter().filter(|it| it.content == content).count();
    assert_eq!((of(Content::Task), of(Content::Result)), (2, 2));
    assert_eq!(data["kept"], 4);
}
