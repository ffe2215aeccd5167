//! The run completed.

use std::cmp::Reverse;

use faultline_core::Claim;
use faultline_core::fault::{MemoryContent, MemoryPart, MemoryUse, Outcome};

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::Completed);
    let context = history.context;
    finding.instances = 1;
    match &context.outcome {
        Some(Outcome::Completed) => {}
        Some(Outcome::Deadline) => {
            let before = match history.supervision.begun {
                Some(_) => "all ranks had finished",
                None => "all processes were up and all links were measured",
            };
            finding.unjudged(|| format!("the deadline was exceeded before {before}"));
        }
        Some(Outcome::Interrupted) => finding.unjudged(|| "the run was interrupted".into()),
        Some(Outcome::Unrecoverable { cluster, missing }) => finding.unjudged(|| {
            let parts: Vec<String> = missing
                .iter()
                .map(|(name, asked)| {
                    let asked: Vec<String> = asked.iter().map(|&it| context.process(it)).collect();
                    let (owner, asked) = (context.process(name.owner), asked.join(", "));
                    match history.member(name.owner) {
                        Some(_) => {
                            format!(
                                "the part of {owner} (checkpoint {}), not found at {asked}",
                                name.position()
                            )
                        }
                        None => format!(
                            "the log of {owner} since checkpoint {}, not found at {asked}",
                            name.position()
                        ),
                    }
                })
                .collect();
            let missing = if parts.is_empty() { "every checkpoint".into() } else { parts.join("; ") };
            format!("{} is unrecoverable by design; missing: {missing}", context.group(cluster.index()))
        }),
        Some(Outcome::NotRepeated { id }) => {
            let text = || {
                let (text, sender) = (context.message(*id), context.process(id.from));
                format!(
                    "the program is not piecewise deterministic: {sender} did not send {text} again after the same messages \
                     as before; choose a protocol that does not require this"
                )
            };
            let is_it = |claim: &Claim| matches!(claim, Claim::NotRepeated { id: of, .. } if of == id);
            match history.claims.iter().find(|it| is_it(it.claim)) {
                Some(claimed) => finding.violated([history.source(claimed.at)], text),
                None => finding.unjudged(text),
            }
        }
        Some(Outcome::OutOfMemory(used)) => finding.unjudged(|| out_of_memory(used)),
        None => finding.unjudged(|| "the run was cut short".into()),
    }
    finding
}

/// Says what took the memory, and what would help against the largest part of it.
fn out_of_memory(used: &MemoryUse) -> String {
    let mut parts = used.parts.clone();
    parts.retain(|part| part.bytes > 0);
    parts.sort_by_key(|part| Reverse(part.bytes));
    let (words, remedies): (Vec<String>, Vec<&str>) = parts.iter().map(in_words).unzip();
    let contents = if words.is_empty() { String::new() } else { format!(", with {}", words.join(", ")) };
    let remedy = remedies.first().map(|it| format!("{it}, or ")).unwrap_or_default();
    let bound = mebibytes(used.bound);
    format!("the program reached the bound of its memory, {bound}{contents}; {remedy}raise `--memory`")
}

/// Returns a part of the memory in words, and what would make it smaller.
fn in_words(part: &MemoryPart) -> (String, &'static str) {
    let (what, remedy) = match part.content {
        MemoryContent::Facts => ("facts", "make the program shorter"),
        MemoryContent::JudgedFacts => ("facts and their judgement", "make the program shorter"),
        MemoryContent::Checkpoints => (
            "parts of checkpoints",
            "collect checkpoints more often (`collectEvery`), take fewer (`checkpointEvery`)",
        ),
        MemoryContent::Logs => {
            ("logged messages", "take and collect checkpoints more often (`checkpointEvery`, `collectEvery`)")
        }
        MemoryContent::Queue => ("events in the queue", "send less at a time, or use faster links"),
    };
    (format!("{} for {} {what}", mebibytes(part.bytes), part.count), remedy)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::ClusterId;

    #[test]
    fn a_program_that_is_not_deterministic_is_refused() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.context.outcome = Some(Outcome::NotRepeated { id });
        assert!(check_alone(check, &run).unknown.is_some(), "no process claimed it");
        run.claim(1, faultline_core::Claim::NotRepeated { id, recorded: 2, repeated: 1 });
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 1);
        assert!(finding.violations[0].text.contains("a protocol that does not require this"));
    }

    #[test]
    fn only_a_completed_run_passes() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(check, &run).unknown, None);
        for outcome in [Some(Outcome::Deadline), Some(Outcome::Interrupted), None] {
            run.context.outcome = outcome;
            assert!(check_alone(check, &run).unknown.is_some());
        }
    }

    #[test]
    fn a_deadline_before_the_start_is_told_apart() {
        let mut run = Run::new(&[&[0]]);
        run.context.outcome = Some(Outcome::Deadline);
        let why = |run: &Run| check_alone(check, run).unknown.expect("a deadline is no completion");
        assert!(why(&run).contains("before all processes were up"));
        run.supervisor(faultline_core::Fact::Begun);
        assert!(why(&run).contains("before all ranks had finished"));
    }

    #[test]
    fn a_run_without_memory_says_what_took_it_and_what_would_help() {
        let mut run = Run::new(&[&[0]]);
        let part =
            |content, count: u64, mebibytes: u64| MemoryPart { content, count, bytes: mebibytes << 20 };
        let parts = vec![
            part(MemoryContent::JudgedFacts, 7, 3),
            part(MemoryContent::Checkpoints, 12, 40),
            part(MemoryContent::Queue, 0, 0),
        ];
        let used = MemoryUse { bound: 64 << 20, used: 65 << 20, parts };
        run.context.outcome = Some(Outcome::OutOfMemory(used.into()));
        let finding = check_alone(check, &run);
        assert_eq!(finding.violation_count(), 0);
        assert_eq!(
            finding.unknown.unwrap(),
            "the program reached the bound of its memory, 64 MiB, with 40 MiB for 12 parts of checkpoints, 3 MiB for 7 \
             facts and their judgement; collect checkpoints more often (`collectEvery`), take fewer (`checkpointEvery`), or raise \
             `--memory`"
        );
    }

    #[test]
    fn the_unrecoverable_names_who_was_asked() {
        let mut run = Run::new(&[&[0], &[1]]);
        let missing = [(run.image(0, 0, 3), vec![p(0), p(1)])].into();
        run.context.outcome = Some(Outcome::Unrecoverable { cluster: ClusterId(0), missing });
        let reason = check_alone(check, &run).unknown.unwrap();
        assert!(reason.contains("the part of p0 (checkpoint 0.3), not found at p0, p1"), "{reason}");
    }
}
