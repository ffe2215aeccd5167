//! Judges small traces by a single property.

use crate::finding::Findings;
use crate::rule::Rule;
use faultline_core::fault::Outcome;
use faultline_core::{Span, Time};
use faultline_history::History;
use faultline_trace::manifest::Bounds;

/// Asserts that the first violation matches this pattern.
macro_rules! finds {
    ($found:expr, $what:pat) => {
        match &$found.wrong()[..] {
            [$what, ..] => {}
            other => panic!("{other:?} is not {}", stringify!($what)),
        }
    };
}
pub(crate) use finds;

pub(crate) use faultline_history::testing::{Run, p, planned, position, tasks};

/// Creates a run in virtual time that completes after a minute, under a protocol that collects garbage every 5 s.
pub(crate) fn collecting(clusters: &[&[u32]]) -> Run {
    let mut run = Run::new(clusters);
    run.context.common_clock = true;
    run.context.outcome = Some(Outcome::Completed);
    run.context.end = Time::ZERO + Span::from_secs(60);
    run.context.bounds = Some(Bounds {
        checkpoint_every: vec![None; clusters.len()],
        detect_after: Span::ZERO,
        collect_every: Some(Span::from_secs(5)),
        delivered_within: None,
    });
    run
}

pub(crate) fn check_alone(rule: &Rule, run: &Run) -> Findings {
    rule.findings(&History::new(&run.trace, &run.context))
}
