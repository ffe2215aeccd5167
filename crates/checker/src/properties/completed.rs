//! The run completed. If the supervisor reports this, every rank that has not left or failed permanently must
//! be alive and, unless it runs tasks, must have a result in its last state.

use std::sync::Arc;

use faultline_core::fault::Outcome;
use faultline_core::text::one_line;
use faultline_core::{
    Breakage, BreakageKind, Claim, Ending, Fact, FactKind, FactNo, GroupId, ImageName, Life, MessageId,
    PhaseClaim, ProcessId,
};

use super::memory;
use super::unrecoverable_justified::{FORM_OF_MISSING, lost_parts};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::expected::{NOT_STARTED, ending_of};
use faultline_history::{Context, History, Source};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CompletedWithout { process: ProcessId, is_down: bool },
    NotDeterministic { message: MessageId },
    Broke(Arc<Breakage>),
    ExitsAgain { process: ProcessId, exits: u32, ending: Ending, said: Arc<str> },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::CompletedWithout { process: of, is_down: true } => {
                format!("the supervisor ended the run as completed while {} was down", names.process(of))
            }
            Breach::CompletedWithout { process: of, is_down: false } => {
                format!("the supervisor ended the run as completed before {} had a result", names.process(of))
            }
            Breach::NotDeterministic { message } => {
                let (reason, remedy) = not_deterministic(message, names);
                format!("{reason}; {remedy}")
            }
            Breach::Broke(ref breakage) => broke(breakage, names),
            Breach::ExitsAgain { process, exits, ref ending, ref said } => {
                let name = names.process(process);
                let said = if said.is_empty() { String::new() } else { format!(": {}", one_line(said, 200)) };
                format!(
                    "the command of {name} exited {exits} times in a row without having been ready ({ending}{said})"
                )
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::Completed, "the run completed", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    finding.instances = 1;
    match &context.outcome {
        Some(Outcome::Completed) => check_ranks(history, finding),
        Some(Outcome::Deadline) if let Some(waiting) = deadlock(history) => {
            finding.unjudged(
                format!("the deadline was exceeded before all ranks had finished: {waiting}"),
                "let the application send what they wait for; `faultline replay` shows the last steps of a process",
            );
        }
        Some(Outcome::Deadline) => {
            let (missed, remedy) = match history.supervision.begun {
                Some(_) if context.system.is_some() => (
                    "the run was due to end and all nodes were up",
                    "raise `deadline`, or let the run end earlier (`ends`)",
                ),
                Some(_) => ("all ranks had finished", "raise `deadline`, or shorten the application"),
                None => (
                    "all processes were up and all links were measured",
                    "raise `deadline`, or repeat the run on an idle machine",
                ),
            };
            finding.unjudged(format!("the deadline was exceeded before {missed}"), remedy);
        }
        Some(Outcome::Interrupted) => {
            finding.unjudged("the run was interrupted", "repeat the run, and wait for its end");
        }
        Some(Outcome::Unrecoverable { group, missing }) => {
            check_unrecoverable(history, *group, missing, finding);
        }
        Some(Outcome::NotRepeated { id }) => {
            let is_it = |claim: &Claim| matches!(claim, Claim::Phase(PhaseClaim::NotRepeated { id: of, .. }) if of == id);
            match history.claims.iter().find(|it| is_it(it.claim)) {
                Some(claimed) => {
                    finding.violated([history.source(claimed.at)], Breach::NotDeterministic { message: *id });
                }
                None => {
                    let (reason, remedy) = not_deterministic(*id, context);
                    finding.unjudged(reason, remedy);
                }
            }
        }
        Some(Outcome::OutOfMemory(used)) => {
            let (reason, remedy) = memory::reason_and_remedy(used, context);
            finding.unjudged(reason, remedy);
        }
        Some(Outcome::Broken(breakage)) => check_program(history, finding, breakage),
        Some(Outcome::ExitsAgain { process, exits }) => check_exits(history, *process, *exits, finding),
        // Properties of their own report these violations.
        Some(Outcome::Panicked(_) | Outcome::Stalled { .. }) => {}
        None if context.unmatched.is_some() => finding.unjudged(
            "the events do not state how the run ended",
            r#"end them with a line such as {"event":"end","outcome":"completed"}"#,
        ),
        None => finding.unjudged(
            "the run was cut short",
            "repeat the run; if it is cut short again, its log in the record (`run.log`) may say why",
        ),
    }
}

/// Describes the end of a run in which all ranks that have not finished wait for a message, although every message was
/// delivered; `None` if this is not known.
pub(super) fn deadlock(history: &History<'_>) -> Option<String> {
    let context = history.context;
    let ranks = || context.clusters.iter().flatten();
    let is_over = |rank: &ProcessId| {
        let last = history.processes[rank.index()].segments.end.checked_sub(1);
        history.has_left(*rank) || history.results.iter().any(|(at, ..)| Some(at.segment.0) == last)
    };
    let stuck = ranks().filter(|rank| !is_over(rank));
    let waits = |rank: &ProcessId| history.is_present(*rank) && context.waiting.contains(rank);
    if context.waiting.is_empty() || history.is_flawed() || !stuck.clone().all(waits) {
        return None;
    }
    let is_open = |message: &faultline_history::Message| {
        let survives = |at: &&faultline_history::Point| history.survives(**at);
        message.sent().iter().any(|at| survives(&at)) && !message.delivered().iter().any(|at| survives(&at))
    };
    if history.messages.iter().any(is_open) {
        return None;
    }
    Some(match (stuck.count(), ranks().count()) {
        (1, 1) => "the only rank waits for a message".to_owned(),
        (stuck, all) if stuck == all => format!("all {all} ranks wait for a message"),
        (1, all) => format!("one of {all} ranks waits for a message, and the others have finished"),
        (stuck, all) => format!("{stuck} of {all} ranks wait for a message, and the others have finished"),
    })
}

/// Reports a group that is unrecoverable, with the parts that are missing.
fn check_unrecoverable(
    history: &History<'_>,
    group: GroupId,
    missing: &[(ImageName, Vec<ProcessId>)],
    finding: &mut Findings,
) {
    let names = history.context;
    let part = |(name, asked): &(ImageName, Vec<ProcessId>)| {
        let asked: Vec<String> = asked.iter().map(|&it| names.process(it)).collect();
        let whom = match &asked[..] {
            [] => "no process holds it".to_owned(),
            asked => format!("not found at {}", asked.join(", ")),
        };
        let what = match history.member(name.owner) {
            Some(_) => names.names.part_in_sentence(history.newest_lost(*name)),
            None => names.names.log_in_sentence(*name),
        };
        format!("{what} ({whom})")
    };
    let missing = match missing {
        [] => match lost_parts(history, group, usize::MAX).first() {
            Some(&first) => {
                format!("{}; the claim names no part ({FORM_OF_MISSING})", part(&(first, Vec::new())))
            }
            None => "every checkpoint".into(),
        },
        some => some.iter().map(part).collect::<Vec<_>>().join("; "),
    };
    let remedy = match names.copies {
        Some(_) => "store more copies (`replicas`) or store them elsewhere (`replicateTo`)",
        None => "choose another protocol",
    };
    finding.unjudged(
        format!("{} is unrecoverable by design; missing: {missing}", names.group(group)),
        format!("to survive such failures, {remedy}"),
    );
}

/// Reports a program that can no longer act as a protocol. If the machine may be the cause, nothing is judged.
fn check_program(history: &History<'_>, finding: &mut Findings, breakage: &Arc<Breakage>) {
    let is_it = |claim: &Claim| matches!(claim, Claim::Broke(of) if of == breakage);
    match history.claims.iter().find(|it| is_it(it.claim)) {
        Some(claimed) if breakage.kind.is_violation() => {
            finding.violated([history.source(claimed.at)], Breach::Broke(breakage.clone()));
        }
        _ => finding.unjudged(broke(breakage, history.context), remedy_of_program(breakage.kind)),
    }
}

/// Checks that, when the supervisor reports that the run has completed, every rank that has not left or failed
/// permanently is alive and, unless it runs tasks, has reported a result in its last state.
fn check_ranks(history: &History<'_>, finding: &mut Findings) {
    let supervisor = history.trace.supervisor();
    let Some(completed) = supervisor.iter().position(|(_, fact)| *fact == Fact::Completed) else { return };
    let source = Source { process: ProcessId::SUPERVISOR, life: Life(0), number: FactNo(completed as u64) };
    let gone = history.supervision.gone(&history.context.clusters);
    let has_results = history.context.recorded.contains(FactKind::Finished);
    let is_of_tasks = history.tasks.is_some() || history.planned.is_some();
    for &process in history.context.clusters.iter().flatten() {
        let Some(newest) = history.supervision.newest_life(process) else { continue };
        if gone.contains(&process) || history.has_left(process) {
            continue;
        }
        let is_down = history.supervision.end_of_life(process, newest) < completed;
        let has_finished = || {
            let last = history.processes[process.index()].segments.end.checked_sub(1);
            history.results.iter().any(|(at, ..)| Some(at.segment.0) == last)
        };
        if is_down && history.context.derives_supervision() {
            continue;
        }
        if is_down || !is_of_tasks && has_results && !has_finished() {
            finding.violated([source], Breach::CompletedWithout { process, is_down });
        }
    }
}

/// The maximum number of characters of a text that a program wrote.
const MOST_QUOTED: usize = 1_000;

fn quoted(text: &str) -> String {
    one_line(text, MOST_QUOTED)
}

/// Describes how the program that acts as a process's protocol or application failed, with the last lines of its log.
fn broke(breakage: &Breakage, names: &Context) -> String {
    let Breakage { process, life, program, what, log, .. } = breakage;
    let process = names.names.process(*process);
    let mut text = format!("{process} ({}, {life}) {}", quoted(program), quoted(what));
    if !log.is_empty() {
        let lines: Vec<String> = log.iter().map(|it| quoted(it)).collect();
        text += &format!("; its log ends with: {}", lines.join(" | "));
    }
    text
}

fn remedy_of_program(kind: BreakageKind) -> &'static str {
    match kind {
        BreakageKind::Contract | BreakageKind::Ended => "the record lacks the claim that would show this",
        BreakageKind::NotStarted => {
            "check that the command is in PATH on every machine of the run, or in the image of its pods"
        }
        BreakageKind::Silent => "use a longer `answerWithin`, or find out why the program hangs",
        BreakageKind::Killed => "see whether the machine ran out of memory",
    }
}

/// Returns the reason and its remedy.
fn not_deterministic(id: MessageId, names: &Context) -> (String, &'static str) {
    let (text, sender) = (names.message(id), names.process(id.from));
    let reason = format!(
        "the program is not send-deterministic: {sender} did not send {text} again after consuming the same messages \
         as before"
    );
    (reason, "choose a protocol that does not require send determinism")
}

/// Checks that the facts of a node state that its command exited so often.
fn check_exits(history: &History<'_>, process: ProcessId, exits: u32, finding: &mut Findings) {
    let mut seen = Vec::new();
    for (life, stream) in history.trace.lives(process) {
        for (number, (_, fact)) in (0..).map(FactNo).zip(stream) {
            if let Some((ending, said)) = ending_of(fact) {
                seen.push((Source { process, life, number }, ending.clone(), Arc::from(said)));
            }
        }
    }
    match seen.pop() {
        Some((_, Ending::Impossible(why), _)) => {
            let name = history.context.process(process);
            finding.unjudged(format!("the command of {name}: {why}"), NOT_STARTED);
        }
        Some((source, ending, said)) if seen.len() + 1 >= exits as usize => {
            finding.violated([source], Breach::ExitsAgain { process, exits, ending, said });
        }
        _ => finding.unjudged(
            format!(
                "the record does not contain all exits of the command of {}",
                history.context.process(process)
            ),
            "repeat the run",
        ),
    }
}

/// Describes how a program that acts as a protocol or an application failed, if the run ended because of this.
pub(super) fn at_end(context: &Context) -> Option<String> {
    match context.outcome.as_ref()? {
        Outcome::Broken(breakage) => Some(broke(breakage, context)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::Observation;
    use faultline_core::fault::MemoryUse;
    use faultline_core::{BreakageKind, Digest, EndedBy, GroupId, StorageFate};

    #[test]
    fn a_command_that_exits_again_and_again_is_a_violation_if_the_facts_say_so() {
        for (exits, is_violated) in [(6, true), (7, false)] {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.outcome = Some(Outcome::ExitsAgain { process: p(1), exits });
            for _ in 0..6 {
                let (ending, said) = (Ending::Exit(3), "no config".into());
                run.state(1, Fact::Observed(Box::new(Observation::Exited { ending, said })));
            }
            let finding = check_alone(&RULE, &run);
            match is_violated {
                true => finds!(finding, Breach::ExitsAgain { exits: 6, ending: Ending::Exit(3), .. }),
                false => assert!(finding.gap().contains("does not contain all exits"), "{}", finding.gap()),
            }
        }
    }

    #[test]
    fn a_program_that_broke_its_contract_violates_and_a_silent_one_is_not_judged() {
        for (kind, is_violation) in [(BreakageKind::Contract, true), (BreakageKind::Silent, false)] {
            let mut run = Run::new(&[&[0], &[1]]);
            let (program, what, log) = ("a.py".into(), "broke its contract".into(), ["Oh".into()].into());
            let breakage = Arc::new(Breakage { process: p(1), life: Life(1), program, kind, what, log });
            run.context.outcome = Some(Outcome::Broken(breakage.clone()));
            let gap = check_alone(&RULE, &run).gap();
            assert!(gap.contains("(a.py, life 1) broke its contract"), "no claim: {gap}");
            run.claim(1, Claim::Broke(breakage.clone()));
            let finding = check_alone(&RULE, &run);
            assert_eq!(finding.violation_count() == 1, is_violation);
            if is_violation {
                let text = finding.wrong::<Breach>()[0].sentence(&run.context);
                assert!(text.ends_with("(a.py, life 1) broke its contract; its log ends with: Oh"), "{text}");
            }
        }
    }

    #[test]
    fn a_program_that_is_not_deterministic_is_refused() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.context.outcome = Some(Outcome::NotRepeated { id });
        assert!(check_alone(&RULE, &run).open.is_some(), "no process claimed this outcome");
        run.claim(
            1,
            faultline_core::Claim::Phase(faultline_core::PhaseClaim::NotRepeated {
                id,
                recorded: 2,
                repeated: 1,
            }),
        );
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 1);
        finds!(finding, Breach::NotDeterministic { .. });
    }

    /// A run of one rank that has finished. The supervisor has not reported the completion of the run yet.
    fn finished() -> Run {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        run.finish(0, Digest([1; 16]));
        run
    }

    #[test]
    fn a_run_with_a_rank_that_is_down_has_not_completed() {
        let mut run = finished();
        run.supervisor(Fact::Completed);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        let mut run = finished();
        let (process, by) = (p(0), EndedBy::Silence);
        run.supervisor(Fact::Failed { process, life: Life(1), storage: StorageFate::Kept, by });
        run.supervisor(Fact::Completed);
        finds!(check_alone(&RULE, &run), Breach::CompletedWithout { is_down: true, .. });
    }

    #[test]
    fn a_run_whose_result_was_undone_has_not_completed() {
        let mut run = finished();
        run.restore(0, 1, Some((0, 1)));
        run.supervisor(Fact::Completed);
        finds!(check_alone(&RULE, &run), Breach::CompletedWithout { is_down: false, .. });
    }

    #[test]
    fn only_a_completed_run_passes() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
        for outcome in [Some(Outcome::Deadline), Some(Outcome::Interrupted), None] {
            run.context.outcome = outcome;
            assert!(check_alone(&RULE, &run).open.is_some());
        }
    }

    #[test]
    fn a_deadline_before_the_start_is_reported_as_such() {
        let mut run = Run::new(&[&[0]]);
        run.context.outcome = Some(Outcome::Deadline);
        let remedies = [
            "raise `deadline`, or repeat the run on an idle machine",
            "raise `deadline`, or shorten the application",
        ];
        assert!(check_alone(&RULE, &run).gap().ends_with(remedies[0]));
        run.supervisor(faultline_core::Fact::Begun);
        assert!(check_alone(&RULE, &run).gap().ends_with(remedies[1]));
    }

    #[test]
    fn a_run_out_of_memory_is_not_judged() {
        let mut run = Run::new(&[&[0]]);
        let used = Arc::new(MemoryUse { bound: 64 << 20, used: 65 << 20, parts: Vec::new() });
        run.context.outcome = Some(Outcome::OutOfMemory(used));
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert!(finding.gap().starts_with("the program reached its memory limit, 64 MiB"), "{finding:?}");
    }

    #[test]
    fn an_unrecoverable_cluster_names_the_processes_that_were_asked() {
        let mut run = Run::new(&[&[0], &[1]]);
        let log = ImageName { owner: p(2), ..run.image(1, 0, 3) };
        let missing = [(run.image(0, 0, 3), vec![p(0), p(1)]), (log, Vec::new())].into();
        run.context.outcome = Some(Outcome::Unrecoverable { group: GroupId(0), missing });
        assert_eq!(
            check_alone(&RULE, &run).gap(),
            "c0 is unrecoverable by design; missing: p0's part of checkpoint 3 (not found at p0, p1); the log of p2 \
             since checkpoint 3 (no process holds it); to survive such failures, choose another protocol"
        );
    }

    #[test]
    fn an_unrecoverable_cluster_names_its_newest_lost_checkpoint() {
        // p1, which has lost everything, no longer knows that checkpoint 2 was committed.
        for (keeps, expected) in [(false, 2), (true, 1)] {
            let mut run = Run::new(&[&[0, 1], &[2]]);
            run.commit_all(0, &[0, 1]);
            run.commit_all(0, &[0, 1]);
            run.kill(1, !keeps);
            let first = run.image(1, 0, 1);
            run.context.outcome =
                Some(Outcome::Unrecoverable { group: GroupId(0), missing: [(first, vec![p(1)])].into() });
            let gap = check_alone(&RULE, &run).gap();
            assert!(gap.contains(&format!("missing: p1's part of checkpoint {expected} (")), "{gap}");
        }
    }
}
