//! The properties, one per file, and code that they share. Each counts what it judged, and reports what it found and
//! what it could not judge.

mod at_once;
mod bounded_loss;
mod causal_order;
mod checkpointed_first;
mod checkpoints_spaced;
mod collected;
mod completed;
mod consistent_checkpoint;
mod contained;
mod copies;
mod demanded_only;
mod departures;
mod drained;
mod durable_before_commit;
mod durable_before_resume;
mod exactly_once;
mod expected;
mod faults_took_effect;
mod forced_before_delivery;
mod forced_by_news;
mod forced_per_theft;
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

use crate::finding::{Findings, Worded};
use crate::judgement::Property;
use faultline_core::{FactKind, Promise};
use faultline_history::{Context, History};

/// A property, and how it is judged.
pub(crate) struct Rule {
    pub(crate) property: Property,
    /// The property as a sentence.
    pub(crate) statement: &'static str,
    /// The promise that a protocol must make to be judged; `None` if every protocol must have the property.
    pub(crate) promise: Option<Promise>,
    /// The kinds of facts without which the property cannot be judged.
    pub(crate) evidence: &'static [FactKind],
    pub(crate) aspects: &'static [Aspect],
    check: fn(&History<'_>, &mut Findings),
}

/// What sets a property apart from most others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// It is about waste.
    Economy,
    /// A violation holds even if facts are missing, because the reported facts alone prove it.
    NeedsNoOtherFact,
    /// An imported run has no evidence about it.
    NeverImported,
    /// If the protocol does not promise it, violations are remarks.
    RemarkedIfNotPromised,
}

impl Rule {
    /// Creates the rule for a property that every protocol must have.
    const fn new(
        property: Property,
        statement: &'static str,
        check: fn(&History<'_>, &mut Findings),
    ) -> Rule {
        Rule { property, statement, promise: None, evidence: &[], aspects: &[], check }
    }

    /// Restricts the property to protocols that make a promise.
    const fn promised(self, promise: Promise) -> Rule {
        Rule { promise: Some(promise), ..self }
    }

    /// Adds the kinds of facts without which the property cannot be judged.
    const fn needs(self, evidence: &'static [FactKind]) -> Rule {
        Rule { evidence, ..self }
    }

    /// Adds what sets the property apart from most others.
    const fn with(self, aspects: &'static [Aspect]) -> Rule {
        Rule { aspects, ..self }
    }

    /// Judges a run by the property, if the protocol promises it.
    pub(crate) fn findings(&self, history: &History<'_>) -> Findings {
        let mut finding = Findings::new(self.property);
        if self.property.is_judged(history.context) {
            (self.check)(history, &mut finding);
        } else if self.aspects.contains(&Aspect::RemarkedIfNotPromised) {
            (self.check)(history, &mut finding);
            finding = Findings { violations: finding.violations, ..Findings::new(self.property) };
            finding.not_promised(history.context);
        }
        finding
    }
}

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
