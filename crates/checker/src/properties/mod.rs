//! The properties, one per file, and code that they share. Each counts what it judged, and reports what it found and
//! what it could not judge.

mod at_once;
mod bounded_loss;
mod causal_order;
mod checkpointed_first;
mod checkpoints_spaced;
mod collected;
mod completed;
mod consistent;
mod consistent_checkpoint;
mod contained;
mod copies;
mod demanded_only;
mod departures;
mod drained;
mod durable_before_commit;
mod durable_before_resume;
mod evident_loss;
mod exactly_once;
mod expected;
mod faults_took_effect;
mod forced_before_delivery;
mod forced_by_news;
mod forced_per_theft;
mod intervals;
mod line;
mod links_as_requested;
mod log_kept;
mod logs_collected;
mod lost_events;
mod lost_planned;
mod lost_tasks;
mod maximal_line;
mod members_agree;
mod memory;
mod neighbours_only;
mod no_ghost;
mod no_loss;
mod no_panic;
mod one_host;
mod one_life;
mod one_owner;
mod order;
mod orphan_deliveries;
mod orphans_first;
mod orphans_replayed;
mod parts_collected;
mod phases_agree;
mod progress;
mod protected;
mod quiet_checkpoints;
mod record_complete;
mod recovery_terminates;
mod refilled;
mod repeated_order;
mod rollback_caused;
mod safe_collection;
mod same_result;
mod sent_once;
mod stalled;
mod strictly_required;
mod tasks_once;
mod time_advances;
mod unplanned_failure;
mod unrecoverable_justified;
mod valid_checkpoints;
pub(crate) mod witness_agrees;

use crate::finding::Worded;
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_core::{FactKind, Promise};
use faultline_history::Context;

/// Describes the violation with which a run ended, if it ended with one.
pub fn violation_at_end(context: &Context) -> Option<String> {
    let panicked = no_panic::at_end(context).map(|it| it.sentence(context));
    let stalled = time_advances::at_end(context).map(|it| it.sentence(context));
    panicked.or(stalled).or_else(|| completed::at_end(context))
}

/// Every property, in the order of [`Property`].
pub(crate) const ALL: &[&Rule] = &[
    &record_complete::RULE,
    &completed::RULE,
    &expected::RULE,
    &consistent::RULE,
    &faults_took_effect::RULE,
    &at_once::RULE,
    &links_as_requested::RULE,
    &same_result::RULE,
    &no_ghost::RULE,
    &no_loss::RULE,
    &exactly_once::RULE,
    &causal_order::RULE,
    &tasks_once::RULE,
    &one_owner::RULE,
    &witness_agrees::RULE,
    &forced_before_delivery::RULE,
    &checkpointed_first::RULE,
    &forced_per_theft::RULE,
    &members_agree::RULE,
    &consistent_checkpoint::RULE,
    &valid_checkpoints::RULE,
    &drained::RULE,
    &quiet_checkpoints::RULE,
    &neighbours_only::RULE,
    &durable_before_commit::RULE,
    &maximal_line::RULE,
    &durable_before_resume::RULE,
    &rollback_caused::RULE,
    &contained::RULE,
    &strictly_required::RULE,
    &demanded_only::RULE,
    &orphans_replayed::RULE,
    &orphans_first::RULE,
    &phases_agree::RULE,
    &repeated_order::RULE,
    &recovery_terminates::RULE,
    &progress::RULE,
    &unrecoverable_justified::RULE,
    &safe_collection::RULE,
    &log_kept::RULE,
    &bounded_loss::RULE,
    &one_life::RULE,
    &one_host::RULE,
    &unplanned_failure::RULE,
    &no_panic::RULE,
    &time_advances::RULE,
    &forced_by_news::RULE,
    &checkpoints_spaced::RULE,
    &sent_once::RULE,
    &parts_collected::RULE,
    &logs_collected::RULE,
];

impl Property {
    fn rule(self) -> &'static Rule {
        ALL[self as usize]
    }

    /// Returns the property as a sentence.
    pub fn statement(self) -> &'static str {
        self.rule().statement
    }

    /// Returns whether a violation holds even if facts are missing, because the reported facts alone prove it.
    pub(crate) fn needs_no_other_fact(self) -> bool {
        self.rule().has(Aspect::NeedsNoOtherFact)
    }

    /// Returns whether the property is about waste: work, messages or storage that a correct run could do without.
    /// Violations count only under [`Strictness::Strict`](crate::Strictness::Strict).
    pub fn is_of_economy(self) -> bool {
        self.rule().has(Aspect::Economy)
    }

    /// Returns the promise that a protocol must make to be judged by the property; `None` if every protocol must have
    /// the property, or if the property depends on a promise only in part and checks this itself, as
    /// [`Property::MaximalLine`] and [`Property::DurableBeforeResume`] do.
    pub fn promise(self) -> Option<Promise> {
        self.rule().promise
    }

    /// Returns whether the property is judged, because every protocol must have it or because this protocol promises
    /// it.
    pub fn is_judged(self, context: &Context) -> bool {
        self.rule().is_judged(context)
    }

    /// Returns whether the property is not judged because an imported run has no evidence about it, although another one
    /// could have. Never applies to properties that concern waste or only some kinds of runs.
    pub fn lacks_evidence(self, context: &Context) -> bool {
        const SPECIAL: [FactKind; 5] =
            [FactKind::Ran, FactKind::Lent, FactKind::Planned, FactKind::Consumed, FactKind::Orphaned];
        let rule = self.rule();
        let is_special = rule.evidence.iter().any(|kind| SPECIAL.contains(kind));
        let is_special = is_special || self.is_of_economy() || self == Property::TimeAdvances;
        rule.is_judged(context) && !rule.is_evident(context) && !is_special
    }
}
