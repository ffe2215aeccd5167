//! Judges small traces by a single property.

use crate::finding::Found;
use faultline_history::History;

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

pub(crate) fn check_alone(check: fn(&History<'_>) -> Found, run: &Run) -> Found {
    check(&History::new(&run.trace, &run.context))
}
