//! A mutation run: every mutation of the code is switched on, one at a time, and schedules are run until enough of them
//! violate something.
//!
//! What the checker is worth shows in what it finds: which mutations, and by which property. A mutation that survives is
//! either found by no property, or changes nothing that a property speaks of; why it changes nothing is written down in
//! [`EQUIVALENT`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_catalog::Defect;
use faultline_checker::Property;
use serde::Serialize;

use crate::coverage::{Coverage, Observed};
use crate::scenario::{Protocol, Scenario};
use crate::trial::run;

/// Mutations that cannot be told from the code as it should be, by what can be observed of a run, and why.
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

/// What became of a mutation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mutant {
    /// The mutation's name.
    pub mutation: String,
    /// Schedules that were run.
    pub runs: u64,
    /// The first that violated something, from 1; `None` if none did.
    pub first: Option<u64>,
    /// In how many schedules each property was violated.
    pub violated: BTreeMap<Property, u64>,
    /// Schedules in which the code under test ended the program.
    pub panics: u64,
    /// How the runs ended otherwise than they are known to.
    pub unusual: Vec<String>,
}

/// How far a mutation run goes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Schedules of each protocol, at most.
    pub seeds: u64,
    /// A mutation is found well enough when this many schedules violated something.
    pub enough: u64,
}

impl Mutant {
    /// Whether something found the mutation.
    pub fn is_killed(&self) -> bool {
        self.first.is_some() || !self.unusual.is_empty()
    }

    /// Why the mutation is equivalent to the code as it should be, if it is.
    pub fn argument(&self) -> Option<&'static str> {
        EQUIVALENT.iter().find(|(name, _)| *name == self.mutation).map(|(_, why)| *why)
    }

    /// Switches a mutation on, and runs schedules of the protocols that share the code.
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
