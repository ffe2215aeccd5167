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

use crate::finding::Findings;
use faultline_history::History;

/// Every property, in the order of [`crate::Property`].
pub(crate) const ALL: &[fn(&History<'_>) -> Findings] = &[
    record_complete::check,
    completed::check,
    faults_took_effect::check,
    at_once::check,
    links_as_requested::check,
    same_result::check,
    no_ghost::check,
    no_loss::check,
    exactly_once::check,
    causal_order::check,
    tasks_once::check,
    one_owner::check,
    witness_agrees::check,
    forced_before_delivery::check,
    checkpointed_first::check,
    forced_per_theft::check,
    members_agree::check,
    consistent_checkpoint::check,
    valid_checkpoints::check,
    drained::check,
    quiet_checkpoints::check,
    neighbours_only::check,
    durable_before_commit::check,
    maximal_line::check,
    durable_before_resume::check,
    rollback_caused::check,
    contained::check,
    strictly_required::check,
    demanded_only::check,
    orphans_replayed::check,
    orphans_first::check,
    phases_agree::check,
    repeated_order::check,
    recovery_terminates::check,
    progress::check,
    unrecoverable_justified::check,
    safe_collection::check,
    log_kept::check,
    bounded_loss::check,
    one_life::check,
    one_host::check,
    unplanned_failure::check,
    no_panic::check,
    time_advances::check,
    forced_by_news::check,
    checkpoints_spaced::check,
    sent_once::check,
    parts_collected::check,
    logs_collected::check,
];
