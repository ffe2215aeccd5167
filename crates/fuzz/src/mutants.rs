//! A mutation run: switches on every mutation of the code, one at a time, and runs schedules until enough of them
//! have a violation.
//!
//! Mutations show which defects the checker detects, and which properties detect them. A mutation that survives is
//! either missed by all properties, or has no observable effect. [`EQUIVALENT`] lists the latter with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_catalog::Defect;
use faultline_checker::Property;
use serde::Serialize;

use crate::coverage::{Coverage, Observed};
use crate::scenario::{Protocol, Scenario};
use crate::trial::run;

/// Mutations that no observation of a run can distinguish from the correct code, with the reason.
pub const EQUIVALENT: &[(&str, &str)] = &[
    (
        "asks-for-every-message",
        "The coordinator ignores a request while a checkpoint is being taken, and a request for an older position: asking \
         again costs messages inside the cluster, of which no fact tells.",
    ),
    (
        "supervisor-refill-unawaited",
        "It has an effect only if a process fails again before its storage is complete, and then the process finds out by \
         itself what it lacks: its holders are asked in every recovery.",
    ),
];

/// The result of one mutation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mutant {
    /// Name of the mutation.
    pub mutation: String,
    /// Number of schedules that were run.
    pub runs: u64,
    /// Number of the first schedule with a violation, from 1; `None` if there was none.
    pub first: Option<u64>,
    /// Number of schedules that violated each property.
    pub violated: BTreeMap<Property, u64>,
    /// Number of schedules in which the code under test panicked.
    pub panics: u64,
    /// Descriptions of outcomes whose rates differ from the known ones.
    pub unusual: Vec<String>,
}

/// Effort of a mutation run.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Maximum number of schedules of each protocol.
    pub seeds: u64,
    /// Number of schedules with a violation after which the search for a mutation stops.
    pub enough: u64,
}

impl Mutant {
    /// Returns whether a violation, a panic or an unusual rate revealed the mutation.
    pub fn is_killed(&self) -> bool {
        self.first.is_some() || !self.unusual.is_empty()
    }

    /// Returns why the mutation is equivalent to the correct code; `None` if that is not known.
    pub fn argument(&self) -> Option<&'static str> {
        EQUIVALENT.iter().find(|(name, _)| *name == self.mutation).map(|(_, why)| *why)
    }

    /// Switches on a mutation, and runs schedules of the protocols that share the code.
    pub fn hunt(mutation: Defect, extent: Extent) -> Mutant {
        let mut coverage = Coverage::default();
        let mut mutant = Mutant {
            mutation: mutation.to_string(),
            runs: 0,
            first: None,
            violated: BTreeMap::new(),
            panics: 0,
            unusual: Vec::new(),
        };
        let protocols: Vec<Protocol> = mutation.run_by().iter().filter_map(|it| it.parse().ok()).collect();
        let schedules = (0..extent.seeds).flat_map(|seed| protocols.iter().map(move |&it| (seed, it)));
        let mut found = 0;
        let _ = schedules
            .map(|(seed, protocol)| Scenario::new(seed, Some(protocol), Some(mutation)))
            .try_for_each(|scenario| {
                mutant.runs += 1;
                let properties = match catch_unwind(AssertUnwindSafe(|| run(scenario))) {
                    Err(_) => {
                        mutant.panics += 1;
                        None
                    }
                    Ok(Err(_)) => return ControlFlow::Break(()),
                    Ok(Ok(trial)) => {
                        coverage.add(&Observed::new(&trial, None));
                        Some(trial.violated().collect::<BTreeSet<Property>>())
                    }
                };
                if properties.as_ref().is_none_or(|it| !it.is_empty()) {
                    mutant.first.get_or_insert(mutant.runs);
                    found += 1;
                }
                for property in properties.into_iter().flatten() {
                    *mutant.violated.entry(property).or_default() += 1;
                }
                if found >= extent.enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        mutant.unusual = coverage.shares().unusual();
        mutant
    }
}
