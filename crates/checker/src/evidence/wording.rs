//! The sentences for contradictions.

use faultline_core::{FaultNo, Life, ProcessId, Theft};
use faultline_history::{Context, Contradiction};

use crate::words::{count, link};

/// Returns the sentence for a contradiction, without a full stop.
pub fn contradiction(it: &Contradiction, names: &Context) -> String {
    let life_of = |process: ProcessId, life: Life| format!("{life} of {}", names.process(process));
    if let Some((process, life, before, after)) = about_life(it) {
        return format!("{before}{}{after}", life_of(process, life));
    }
    if let Some((fault, before, after)) = about_fault(it) {
        return format!("{before}{fault}{after}");
    }
    match *it {
        Contradiction::StartedTooEarly { process, life, next } => {
            format!("the failure of {} was never detected, but {next} started", life_of(process, life))
        }
        Contradiction::BegunAgain { times } => {
            format!("according to the supervisor's facts, the application started {times} times")
        }
        Contradiction::WrongEnd { end, last } => {
            format!("the run ended after {end}, but its last fact was reported at {last}")
        }
        Contradiction::NeverSaved { process, life, part } => format!(
            "the storage of {} reported {} as durable, but {life} had not saved it",
            names.process(process),
            names.names.part(part)
        ),
        Contradiction::NeverTransmitted(id) => {
            format!("{} was delivered, but never transmitted", names.message(id))
        }
        Contradiction::NotTarget { fault, process, life } => {
            let ended = format!("{fault} ended {}", life_of(process, life));
            format!("according to the supervisor's facts, {ended}, which is not its target")
        }
        Contradiction::StartedOtherwise(process, life) => format!(
            "the supervisor's facts about the storage of {} are inconsistent with the way in which {life} started",
            names.process(process)
        ),
        Contradiction::NeverExecuted { task, source } => {
            format!("{task} read values of {source}, but no fact states that {source} was executed")
        }
        Contradiction::NotLost { fault, process } => {
            format!("{fault} was injected, but did not end {}", names.process(process))
        }
        Contradiction::EffectElsewhere { fault, process, life } => {
            format!("{fault} took effect on {}, but did not end it", life_of(process, life))
        }
        Contradiction::EndedAgain { fault, process, life } => {
            format!("{fault} ended {} more than once", life_of(process, life))
        }
        Contradiction::NotInjected { fault, process, life } => {
            let ended = format!("{fault} ended {}", life_of(process, life));
            format!("{ended}, but the supervisor's facts do not state that it was injected")
        }
        Contradiction::OtherFate { fault, process, life } => {
            format!("{fault} did not affect the storage of {} as planned", life_of(process, life))
        }
        Contradiction::EndedAtOtherTime { fault, process, life } => {
            format!("{fault} ended {}, but not at the time of its injection", life_of(process, life))
        }
        Contradiction::MovedAgain(cluster) => {
            format!("{} joined or left more than once", names.cluster(cluster))
        }
        Contradiction::OutcomesMissing { outcomes, planned } => {
            let (outcomes, were) =
                (count(outcomes as u64, "fault"), if planned == 1 { "was" } else { "were" });
            format!("the manifest has outcomes for {outcomes}, but {planned} {were} planned")
        }
        ref other => about_link(other, names)
            .or_else(|| about_theft(other, names))
            .unwrap_or_else(|| about_run(other).to_owned()),
    }
}

/// Returns a life, and the text before and after it.
fn about_life(it: &Contradiction) -> Option<(ProcessId, Life, &'static str, &'static str)> {
    let (process, life, before, after) = match *it {
        Contradiction::NoFacts(process, life) => (process, life, "there are no facts of ", ""),
        Contradiction::StartMissing(process, life) => {
            (process, life, "the supervisor's facts do not state that ", " was started")
        }
        Contradiction::ReportedTooEarly(process, life) => {
            (process, life, "", " reported facts before it was started")
        }
        Contradiction::NeverDetected(process, life) => {
            (process, life, "the failure of ", " was never detected")
        }
        Contradiction::DetectedAgain(process, life) => {
            (process, life, "the failure of ", " was detected more than once")
        }
        Contradiction::FailedAgain(process, life) => {
            (process, life, "", " failed again after it had ended, but no fault destroyed its storage")
        }
        Contradiction::ResumedAtOtherTime(process, life) => {
            (process, life, "", " resumed at another time than its pauses ended")
        }
        Contradiction::FlippedByNoFault(process, life) => {
            (process, life, "", " reported more flipped bits than faults flipped there")
        }
        Contradiction::NeverResumed(process, life) => {
            (process, life, "the supervisor's facts do not state that ", " resumed after its pause")
        }
        Contradiction::ActedWhilePaused(process, life) => {
            (process, life, "", " reported facts while it was paused")
        }
        Contradiction::ActedTooEarly(process, life) => {
            (process, life, "", " sent or received something before the application started")
        }
        Contradiction::NoResult(process, life) => (process, life, "", " never reported its result"),
        Contradiction::ResultMisplaced(process, life) => {
            let misplaced = " is not at the position that its witness states: facts before it were changed";
            (process, life, "the result of ", misplaced)
        }
        Contradiction::PlanApart(process, life) => {
            let apart =
                " about the plan of its tasks are inconsistent with those about the execution of its tasks";
            (process, life, "the facts of ", apart)
        }
        Contradiction::SentWithoutTask(process, life) => {
            (process, life, "", " sent messages, but its facts do not state that it had executed a task")
        }
        Contradiction::NotNewest(process, life) => {
            let ended = " ended, which was not the newest life of its process";
            (process, life, "the supervisor's facts state that ", ended)
        }
        Contradiction::FateWithoutCause(process, life) => {
            let fate = " does not follow from the cause of its end";
            (process, life, "what happened to the storage of ", fate)
        }
        Contradiction::StartedDuringRepair(process, life) => {
            (process, life, "", " started while the node of its process was under repair")
        }
        Contradiction::MovedWithoutCause(process, life) => {
            let moved = " moved to a spare node, although its own was not under repair or no spare was free";
            (process, life, "the process of ", moved)
        }
        _ => return None,
    };
    Some((process, life, before, after))
}

/// Returns a fault, and the text before and after it.
fn about_fault(it: &Contradiction) -> Option<(FaultNo, &'static str, &'static str)> {
    Some(match *it {
        Contradiction::TwoOutcomes(fault) => {
            (fault, "the supervisor's facts state more than one outcome of ", "")
        }
        Contradiction::InjectedAgain(fault) => (fault, "", " was injected more than once"),
        Contradiction::NotPlanned(fault) => {
            (fault, "the supervisor's facts mention ", ", which is not in the plan")
        }
        Contradiction::InjectedAtOtherTime(fault) => (fault, "", " was not injected at its planned time"),
        Contradiction::InjectedWithoutCause(fault) => {
            (fault, "", " was injected before the facts that it waits for")
        }
        Contradiction::StruckAnotherNode(fault) => {
            (fault, "", " struck a node that had logged no line for its watch")
        }
        Contradiction::EndedNothing(fault) => (fault, "", " was injected, but ended no process"),
        Contradiction::OtherOutcome(fault) => {
            (fault, "the manifest and the supervisor's facts disagree about the outcome of ", "")
        }
        Contradiction::NeverDue(fault) => (fault, "", " was due, but is missing from the supervisor's facts"),
        _ => return None,
    })
}

fn about_link(it: &Contradiction, names: &Context) -> Option<String> {
    Some(match *it {
        Contradiction::LinkMiscounted { from, to } => {
            format!("the measurements of {} contradict each other", link(from, to, names))
        }
        Contradiction::LinkNeverChanged { from, to } => {
            format!("the supervisor's facts do not state that {} changed", link(from, to, names))
        }
        Contradiction::LinkNotMeasured { from, to } => {
            format!("{} was not measured", link(from, to, names))
        }
        _ => return None,
    })
}

fn about_theft(it: &Contradiction, names: &Context) -> Option<String> {
    let parties = |it: Theft| (names.process(it.victim), names.process(it.thief));
    Some(match *it {
        Contradiction::NeverLent(theft) => {
            let (victim, thief) = parties(theft);
            format!("the facts of a theft name a task that {victim} never lent to {thief}")
        }
        Contradiction::NeverShipped(theft) => {
            let (victim, thief) = parties(theft);
            format!(
                "{thief} received a task that it had stolen from {victim}, but no fact states that the task was sent"
            )
        }
        Contradiction::NeverReturned(theft) => {
            let (victim, thief) = parties(theft);
            format!(
                "the result of a task that {thief} had stolen from {victim} was merged, but no fact states that it \
                 was sent"
            )
        }
        _ => return None,
    })
}

/// Returns the sentence for a contradiction that concerns the run as a whole.
fn about_run(it: &Contradiction) -> &'static str {
    match it {
        Contradiction::NoSupervisor => "the supervisor's facts are missing",
        Contradiction::NeverBegun => "the supervisor's facts do not state that the application started",
        Contradiction::StartOutOfOrder => "the supervisor's facts about the start are out of order",
        Contradiction::CompletionMissing => "the supervisor's facts do not state that the run completed",
        Contradiction::CompletedDespiteManifest => {
            "the run completed according to the supervisor's facts, but not according to the manifest"
        }
        Contradiction::ReportedAfterEnd => "the supervisor reported facts after the end of the run",
        Contradiction::EffectsMeasured => {
            "the effects of faults were measured, although the run was simulated"
        }
        Contradiction::ChangedInVirtualTime => "a user changed the simulated federation",
        Contradiction::LinksMeasured => "links were measured, although they are simulated",
        other => unreachable!("{other:?} has a sentence"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::{
        Attempt, ClusterId, FaultNo, ImageName, Incarnation, MessageId, Sn, Span, TaskId, Theft, Time,
    };

    /// Returns the names of two clusters, each of which has one process.
    fn names() -> Context {
        let mut names = Run::new(&[&[0], &[1]]).context;
        names.names.processes = vec!["paris-0".into(), "lyon-0".into()];
        names.names.clusters = vec!["paris".into(), "lyon".into()];
        names
    }

    fn part(owner: u32) -> ImageName {
        ImageName { owner: p(owner), incarnation: Incarnation(0), sn: Sn(3), attempt: Attempt(1) }
    }

    #[test]
    fn each_contradiction_has_a_sentence() {
        let (process, life, next, fault) = (p(0), Life(1), Life(2), FaultNo(4));
        let (from, to) = (ClusterId(0), ClusterId(1));
        let message = MessageId { from: p(0), to: p(1), incarnation: Incarnation(2), number: 7 };
        let theft = Theft { victim: p(0), thief: p(1), life, number: 1 };
        let seconds = |it| Time::ZERO + Span::from_secs(it);
        let sentences = [
            (Contradiction::NoSupervisor, "the supervisor's facts are missing"),
            (Contradiction::NoFacts(process, life), "there are no facts of life 1 of paris-0"),
            (
                Contradiction::StartMissing(process, life),
                "the supervisor's facts do not state that life 1 of paris-0 was started",
            ),
            (
                Contradiction::ReportedTooEarly(process, life),
                "life 1 of paris-0 reported facts before it was started",
            ),
            (
                Contradiction::StartedTooEarly { process, life, next },
                "the failure of life 1 of paris-0 was never detected, but life 2 started",
            ),
            (
                Contradiction::NeverDetected(process, life),
                "the failure of life 1 of paris-0 was never detected",
            ),
            (
                Contradiction::DetectedAgain(process, life),
                "the failure of life 1 of paris-0 was detected more than once",
            ),
            (
                Contradiction::ResumedAtOtherTime(process, life),
                "life 1 of paris-0 resumed at another time than its pauses ended",
            ),
            (
                Contradiction::FlippedByNoFault(process, life),
                "life 1 of paris-0 reported more flipped bits than faults flipped there",
            ),
            (
                Contradiction::NeverResumed(process, life),
                "the supervisor's facts do not state that life 1 of paris-0 resumed after its pause",
            ),
            (
                Contradiction::ActedWhilePaused(process, life),
                "life 1 of paris-0 reported facts while it was paused",
            ),
            (
                Contradiction::FailedAgain(process, life),
                "life 1 of paris-0 failed again after it had ended, but no fault destroyed its storage",
            ),
            (
                Contradiction::NotNewest(process, life),
                "the supervisor's facts state that life 1 of paris-0 ended, which was not the newest life of its \
                 process",
            ),
            (Contradiction::NeverBegun, "the supervisor's facts do not state that the application started"),
            (
                Contradiction::BegunAgain { times: 2 },
                "according to the supervisor's facts, the application started 2 times",
            ),
            (Contradiction::StartOutOfOrder, "the supervisor's facts about the start are out of order"),
            (
                Contradiction::ActedTooEarly(process, life),
                "life 1 of paris-0 sent or received something before the application started",
            ),
            (Contradiction::CompletionMissing, "the supervisor's facts do not state that the run completed"),
            (
                Contradiction::CompletedDespiteManifest,
                "the run completed according to the supervisor's facts, but not according to the manifest",
            ),
            (Contradiction::ReportedAfterEnd, "the supervisor reported facts after the end of the run"),
            (
                Contradiction::WrongEnd { end: seconds(3), last: seconds(4) },
                "the run ended after 3.000000 s, but its last fact was reported at 4.000000 s",
            ),
            (Contradiction::NoResult(process, life), "life 1 of paris-0 never reported its result"),
            (
                Contradiction::ResultMisplaced(process, life),
                "the result of life 1 of paris-0 is not at the position that its witness states: facts before it \
                 were changed",
            ),
            (
                Contradiction::NeverSaved { process, life, part: part(1) },
                "the storage of paris-0 reported lyon-0@0.3 as durable, but life 1 had not saved it",
            ),
            (
                Contradiction::NeverTransmitted(message),
                "message 7 from paris-0 to lyon-0 (of incarnation 2) was delivered, but never transmitted",
            ),
            (
                Contradiction::NotPlanned(fault),
                "the supervisor's facts mention fault 4, which is not in the plan",
            ),
            (
                Contradiction::NotInjected { fault, process, life },
                "fault 4 ended life 1 of paris-0, but the supervisor's facts do not state that it was injected",
            ),
            (
                Contradiction::NotTarget { fault, process, life },
                "according to the supervisor's facts, fault 4 ended life 1 of paris-0, which is not its target",
            ),
            (
                Contradiction::StartedOtherwise(process, life),
                "the supervisor's facts about the storage of paris-0 are inconsistent with the way in which life 1 \
                 started",
            ),
            (
                Contradiction::NeverLent(theft),
                "the facts of a theft name a task that paris-0 never lent to lyon-0",
            ),
            (
                Contradiction::NeverShipped(theft),
                "lyon-0 received a task that it had stolen from paris-0, but no fact states that the task was sent",
            ),
            (
                Contradiction::NeverReturned(theft),
                "the result of a task that lyon-0 had stolen from paris-0 was merged, but no fact states that it was \
                 sent",
            ),
            (
                Contradiction::PlanApart(process, life),
                "the facts of life 1 of paris-0 about the plan of its tasks are inconsistent with those about the \
                 execution of its tasks",
            ),
            (
                Contradiction::NeverExecuted { task: TaskId(1), source: TaskId(2) },
                "0000000000000001 read values of 0000000000000002, but no fact states that 0000000000000002 was \
                 executed",
            ),
            (
                Contradiction::SentWithoutTask(process, life),
                "life 1 of paris-0 sent messages, but its facts do not state that it had executed a task",
            ),
            (Contradiction::InjectedAgain(fault), "fault 4 was injected more than once"),
            (
                Contradiction::TwoOutcomes(fault),
                "the supervisor's facts state more than one outcome of fault 4",
            ),
            (Contradiction::NotLost { fault, process }, "fault 4 was injected, but did not end paris-0"),
            (
                Contradiction::EndedAgain { fault, process, life },
                "fault 4 ended life 1 of paris-0 more than once",
            ),
            (Contradiction::InjectedAtOtherTime(fault), "fault 4 was not injected at its planned time"),
            (
                Contradiction::InjectedWithoutCause(fault),
                "fault 4 was injected before the facts that it waits for",
            ),
            (
                Contradiction::StruckAnotherNode(fault),
                "fault 4 struck a node that had logged no line for its watch",
            ),
            (
                Contradiction::OtherFate { fault, process, life },
                "fault 4 did not affect the storage of life 1 of paris-0 as planned",
            ),
            (
                Contradiction::FateWithoutCause(process, life),
                "what happened to the storage of life 1 of paris-0 does not follow from the cause of its end",
            ),
            (
                Contradiction::StartedDuringRepair(process, life),
                "life 1 of paris-0 started while the node of its process was under repair",
            ),
            (
                Contradiction::MovedWithoutCause(process, life),
                "the process of life 1 of paris-0 moved to a spare node, although its own was not under repair or no \
                 spare was free",
            ),
            (
                Contradiction::EffectElsewhere { fault, process, life },
                "fault 4 took effect on life 1 of paris-0, but did not end it",
            ),
            (
                Contradiction::EndedAtOtherTime { fault, process, life },
                "fault 4 ended life 1 of paris-0, but not at the time of its injection",
            ),
            (Contradiction::ChangedInVirtualTime, "a user changed the simulated federation"),
            (
                Contradiction::EffectsMeasured,
                "the effects of faults were measured, although the run was simulated",
            ),
            (
                Contradiction::LinkNeverChanged { from, to },
                "the supervisor's facts do not state that the link from paris to lyon changed",
            ),
            (Contradiction::MovedAgain(to), "lyon joined or left more than once"),
            (Contradiction::EndedNothing(fault), "fault 4 was injected, but ended no process"),
            (
                Contradiction::OtherOutcome(fault),
                "the manifest and the supervisor's facts disagree about the outcome of fault 4",
            ),
            (Contradiction::NeverDue(fault), "fault 4 was due, but is missing from the supervisor's facts"),
            (
                Contradiction::OutcomesMissing { outcomes: 2, planned: 1 },
                "the manifest has outcomes for 2 faults, but 1 was planned",
            ),
            (Contradiction::LinksMeasured, "links were measured, although they are simulated"),
            (
                Contradiction::LinkMiscounted { from, to: from },
                "the measurements of the link within paris contradict each other",
            ),
            (Contradiction::LinkNotMeasured { from, to }, "the link from paris to lyon was not measured"),
        ];
        for (found, sentence) in sentences {
            assert_eq!(contradiction(&found, &names()), sentence);
        }
    }
}
