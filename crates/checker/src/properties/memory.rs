//! What filled the memory of a run that reached its limit. Part of `completed`.

use std::cmp::Reverse;

use faultline_core::Span;
use faultline_core::fault::{MemoryContent, MemoryPart, MemoryUse};
use faultline_history::Context;

/// Describes what filled the memory, and returns a remedy for the largest contributor.
pub(super) fn reason_and_remedy(used: &MemoryUse, names: &Context) -> (String, String) {
    let mut parts: Vec<(u64, String, &str)> =
        used.parts.iter().filter(|part| part.bytes > 0).map(|part| in_words(part, names)).collect();
    // If the judgement would need too much memory, the parts include memory that is not in use yet.
    let is_in_use = used.parts.iter().all(|it| it.content != MemoryContent::JudgedFacts);
    let known: u64 = parts.iter().map(|it| it.0).sum();
    let rest = used.used.saturating_sub(known);
    parts.sort_by_key(|it| Reverse(it.0));
    let mut remedy = parts.first().map(|it| it.2);
    if is_in_use && rest > 0 {
        let what = format!("{} for everything else, such as the states of processes", mebibytes(rest));
        parts.push((rest, what, "use smaller states or fewer processes"));
        // The rest includes the program itself, which no change to the file can make smaller.
        remedy = remedy.filter(|_| rest <= known).or(parts.last().map(|it| it.2));
        parts.sort_by_key(|it| Reverse(it.0));
    }
    let words: Vec<String> = parts.into_iter().map(|it| it.1).collect();
    let contents = if words.is_empty() { String::new() } else { format!(", with {}", words.join(", ")) };
    let limit = mebibytes(used.bound);
    if names.in_pods {
        let remedy = remedy.unwrap_or("shorten the application");
        return (
            format!("the supervisor reached its memory limit, {limit}{contents}"),
            format!("{remedy} (the limit of a supervisor in a pod is fixed)"),
        );
    }
    let remedy = remedy.map(|it| format!("{it}, or ")).unwrap_or_default();
    (format!("the program reached its memory limit, {limit}{contents}"), format!("{remedy}raise `--memory`"))
}

/// Returns whether the stored parts of checkpoints include more than those of the initial checkpoints.
fn has_later_checkpoints(part: &MemoryPart, names: &Context) -> bool {
    let ranks = names.clusters.iter().map(Vec::len).sum::<usize>() as u64;
    part.count > ranks * (1 + names.copies.map_or(0, |it| u64::from(it.replicas)))
}

/// Returns the size of a part of the memory, a description of the part, and a remedy that reduces its size.
fn in_words(part: &MemoryPart, names: &Context) -> (u64, String, &'static str) {
    let bounds = names.bounds.as_ref();
    let takes_checkpoints = bounds.is_some_and(|it| it.checkpoint_every.iter().any(Option::is_some));
    let collects_later = bounds.and_then(|it| it.collect_every).is_some_and(|it| it > Span::ZERO);
    let (one, many, remedy) = match part.content {
        MemoryContent::Facts => ("fact", "facts", "shorten the application"),
        MemoryContent::JudgedFacts => {
            ("fact and its judgement", "facts and their judgement", "shorten the application")
        }
        MemoryContent::Checkpoints => (
            "part of a checkpoint",
            "parts of checkpoints",
            match (has_later_checkpoints(part, names), takes_checkpoints) {
                (true, true) => {
                    "collect checkpoints more often (`collectEvery`) or take fewer (`checkpointEvery`)"
                }
                // Messages or thefts force the checkpoints.
                (true, false) => "collect checkpoints more often (`collectEvery`)",
                (false, _) => "use smaller states or fewer `replicas`",
            },
        ),
        MemoryContent::Logs => (
            "logged message",
            "logged messages",
            match (takes_checkpoints, collects_later) {
                (true, true) => "take and collect checkpoints more often (`checkpointEvery`, `collectEvery`)",
                (true, false) => "take checkpoints more often (`checkpointEvery`)",
                (false, _) => {
                    "take checkpoints (`checkpointEvery`), because logs are collected only after a checkpoint"
                }
            },
        ),
        MemoryContent::Queue => {
            ("event in the queue", "events in the queue", "send less at a time, or use faster links")
        }
    };
    let what = if part.count == 1 { one } else { many };
    (part.bytes, format!("{} for {} {what}", mebibytes(part.bytes), part.count), remedy)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Run;
    use faultline_trace::manifest::Bounds;

    fn sentence(used: &MemoryUse, names: &Context) -> String {
        let (reason, remedy) = reason_and_remedy(used, names);
        format!("{reason}; {remedy}")
    }

    #[test]
    fn a_run_out_of_memory_lists_its_largest_parts_and_remedies() {
        let part =
            |content, count: u64, mebibytes: u64| MemoryPart { content, count, bytes: mebibytes << 20 };
        let parts = vec![
            part(MemoryContent::JudgedFacts, 7, 3),
            part(MemoryContent::Checkpoints, 12, 40),
            part(MemoryContent::Queue, 0, 0),
        ];
        let used = MemoryUse { bound: 64 << 20, used: 65 << 20, parts };
        let mut names = Run::new(&[&[0], &[1]]).context;
        names.bounds = Some(bounds(Some(Span::from_secs(1)), Some(Span::from_secs(9))));
        let contents = "reached its memory limit, 64 MiB, with 40 MiB for 12 parts of checkpoints, 3 MiB for 7 facts \
                        and their judgement; collect checkpoints more often (`collectEvery`) or take fewer \
                        (`checkpointEvery`)";
        // In virtual time, and with real processes on one machine, the program itself reaches its limit.
        for measures_links in [false, true] {
            names.measures_links = measures_links;
            assert_eq!(sentence(&used, &names), format!("the program {contents}, or raise `--memory`"));
        }
        names.in_pods = true;
        let fixed = "the limit of a supervisor in a pod is fixed";
        assert_eq!(sentence(&used, &names), format!("the supervisor {contents} ({fixed})"));
    }

    fn bounds(checkpoint_every: Option<Span>, collect_every: Option<Span>) -> Bounds {
        Bounds {
            checkpoint_every: vec![checkpoint_every],
            detect_after: Span::from_millis(500),
            collect_every,
            delivered_within: None,
        }
    }

    #[test]
    fn the_remedy_for_full_memory_fits_the_timers_and_the_largest_part() {
        let second = Some(Span::from_secs(1));
        let remedy = |content, count, bounds: Option<Bounds>, used: u64| {
            let parts = vec![MemoryPart { content, count, bytes: 40 << 20 }];
            let used = MemoryUse { bound: 64 << 20, used: used << 20, parts };
            let mut names = Run::new(&[&[0]]).context;
            names.bounds = bounds;
            sentence(&used, &names)
        };
        let (checkpoints, logs) = (MemoryContent::Checkpoints, MemoryContent::Logs);
        for (content, count, every, collect, expected) in [
            (
                checkpoints,
                12,
                second,
                second,
                "; collect checkpoints more often (`collectEvery`) or take fewer",
            ),
            (checkpoints, 12, None, second, "; collect checkpoints more often (`collectEvery`), or raise"),
            (checkpoints, 1, None, second, "; use smaller states or fewer `replicas`, or raise"),
            (logs, 12, second, second, "; take and collect checkpoints more often"),
            (
                logs,
                12,
                second,
                Some(Span::ZERO),
                "; take checkpoints more often (`checkpointEvery`), or raise",
            ),
            (logs, 12, None, second, "; take checkpoints (`checkpointEvery`), because"),
        ] {
            let said = remedy(content, count, Some(bounds(every, collect)), 41);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains("1 MiB for everything else"), "{said}");
        }
        let said = remedy(checkpoints, 12, None, 90);
        let expected = "with 50 MiB for everything else, such as the states of processes, 40 MiB for 12 parts of \
                        checkpoints; use smaller states or fewer processes, or raise `--memory`";
        assert!(said.ends_with(expected), "{said}");
    }
}
