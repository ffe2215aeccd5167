//! A mutation run: switches on every mutation of the code, one at a time, and runs schedules until enough of them
//! have a violation.
//!
//! Mutations show which defects the checker detects, and which properties detect them. If a mutation survives, either
//! no property detects it or it has no observable effect. [`EQUIVALENT`] lists the mutations without an observable
//! effect, each with the reason.

use std::collections::{BTreeMap, BTreeSet};

use faultline_catalog::Defect;
use faultline_checker::Property;
use serde::Serialize;

use crate::coverage::{Coverage, Observed};
use crate::directed::Directions;
use crate::scenario::{ProtocolName, Scenario};
use crate::trial::{Trial, run};

/// Mutations that no observation of a run can distinguish from the correct code, each with the reason.
pub const EQUIVALENT: &[(&str, &str)] = &[
    (
        "asks-for-every-message",
        "The coordinator ignores a request that arrives while a checkpoint is being taken, and a request for an \
         older position. Asking again costs only messages inside the cluster, which no fact records.",
    ),
    (
        "stale-acknowledgements-count",
        "All code that uses an acknowledgement compares its position with the known rollbacks again (`is_owed`, \
         `collect_log`), so a stale acknowledgement has no effect.",
    ),
    (
        "begins-without-members",
        "A coordinator that knows that a member is down is recovering, and does not begin a checkpoint during a \
         recovery.",
    ),
    (
        "any-attempt-committed",
        "Only a recovery discards an attempt, and the next attempt has a new incarnation, so two attempts never \
         have the same position.",
    ),
    (
        "ready-before-recorded",
        "A member writes its tables before it reads its part of the target, or writes the part if its storage lacked it. \
         A storage completes its operations in order, so a member that has its part has recorded the target as well. \
         Only the initial state has no part. A cluster restores it only before it has acted, so nothing is undone, \
         and counting failures prevents the incarnation from being used twice.",
    ),
    (
        "learnt-before-recorded",
        "A cluster confirms an alert only if none of its members contains anything that the rollback undid, and then \
         none of their checkpoints does. A member loses unrecorded data only if it fails. Its cluster then alerts \
         all others, delivers nothing from them until each has answered with its tables, and re-sends the messages \
         that the rollbacks in these tables require.",
    ),
    (
        "failures-not-counted",
        "If a part survives, its holder's note or the part itself names all later rollbacks. Counting failures is \
         a second protection against using an incarnation twice.",
    ),
    (
        "hydee-resumes-without-members",
        "The next life of the failed member causes the cluster to restore again, which undoes everything that the \
         others did in the meantime, as after any failure.",
    ),
    (
        "hydee-arrivals-dropped-while-restoring",
        "A process that knows of the failure sends nothing until the recovery process announces a level of the new round, \
         which requires the reports of all restored processes. Messages sent earlier are stale, so they are dropped.",
    ),
    (
        "cck-promise-ignored",
        "A process receives a survey only once it knows the life of the coordinator that asks. It has then begun every \
         recovery that an earlier life announced, because these belong to older memberships, and it receives nothing \
         more from an earlier life. A coordinator asks only before the first recovery of its life.",
    ),
    (
        "composite-unseen-not-cleared",
        "The composite passes every send to the protocol in the step in which the application acts, and no \
         protocol restores in such a step after the application has acted.",
    ),
    (
        "supervisor-refill-unawaited",
        "The mutation has an effect only if a process fails again before its storage is complete. The process then \
         determines which images it lacks, because every recovery asks its holders.",
    ),
    (
        "stale-confirmation-counts",
        "The newer alert arrives unless its sender or its receiver fails. A sender's cluster then rolls back, and alerts \
         all clusters again. A receiver's cluster sends alerts itself, and each answer names all rollbacks. Until then, \
         the cluster may deliver a message that the alert will undo. This costs another rollback, whose cause is that \
         message, but no result. A cluster still cannot leave: collections require that all clusters know all \
         rollbacks.",
    ),
    (
        "spbc-in-transit-sent-again",
        "A channel resumes only after a failure of one of its ends. If the receiver failed, nothing has been \
         sent to its new incarnation yet; if the sender failed, it no longer has the messages in transit, which \
         its new incarnation makes stale.",
    ),
    (
        "spbc-older-settled-counts",
        "A committed checkpoint is complete, so every state that the peer restores later contains everything \
         that it has announced. A re-execution of the sender sends the same messages, which the announcement covers \
         as well.",
    ),
    (
        "pessimistic-older-settled-counts",
        "A committed checkpoint is complete, so every state that the peer restores later contains everything \
         that it has announced. A re-execution of the sender sends the same messages, which the announcement covers \
         as well.",
    ),
    (
        "pessimistic-older-recall-counts",
        "A process restores its state once in a life, and a driver passes no message of an earlier life's peers \
         to the next life, so all answers of the event logger belong to the restore of this life.",
    ),
    (
        "coordinated-newer-delivered",
        "No process resumes before all processes are ready, so a message from after a rollback arrives while its \
         receiver is still recovering, or has failed and recovers. In both cases, the message waits anyway.",
    ),
    (
        "chandy-lamport-older-parts-count",
        "Channels are FIFO, and a member reports that it is ready after it has reported its part. Once the \
         coordinator resumes, no report of a part from before the rollback is left.",
    ),
    (
        "tic-older-life-confirms",
        "A holder that has lost its storage asks each owner for its newest image, and the owner then forgets the \
         holder's confirmation. Until then, the same copies exist as if the holder had failed just after the \
         commit.",
    ),
    (
        "tic-asking-not-stopped",
        "A process cancels its request itself as soon as it learns that the victim has failed (`Thief::meet`).",
    ),
    (
        "satin-receipt-removes-orphan",
        "A process that still waits for the result is told that the result is missing, and executes the task again. \
         This costs work, but changes no result.",
    ),
    (
        "satin-failed-holders-recorded",
        "Before a process relies on an entry of the table, it checks again that the holder is alive (`lent`).",
    ),
    (
        "satin-given-stays-in-table",
        "Before a process relies on an entry of its own in the table, it checks that it still owes the task \
         (`lent`).",
    ),
    (
        "satin-newcomers-not-told",
        "A new process executes tasks whose results exist elsewhere. This costs work, but changes no result.",
    ),
    (
        "supervisor-announced-too-early",
        "A driver starts a life before it announces the membership of the same step, and keeps packets for a life until it \
         can receive them. A life that ends before it has registered is announced as down like any other.",
    ),
];

/// Mutations that need a coincidence too rare for a search. For each, a directed test shows its effect: a cluster never
/// resumes, a message is lost, a process acts before something is durable, or a property is violated. Without the
/// mutation, none of these happens.
pub const DIRECTED: &[(&str, &str)] = &[
    ("older-reports-count", "protocols/tests/hc3i/mutations.rs: a_report_to_an_older_round_does_not_count"),
    (
        "older-ready-counts",
        "protocols/tests/hc3i/mutations.rs: a_member_that_was_ready_for_an_older_round_is_not_ready",
    ),
    (
        "hydee-inquiry-answered-early",
        "protocols/tests/hydee/copies.rs: a_holder_answers_only_once_its_writes_are_durable",
    ),
    (
        "hydee-in-transit-sent-again",
        "protocols/tests/hydee/mutations.rs: a_message_in_transit_is_not_sent_again_after_another_failure",
    ),
    (
        "full-logging-older-sync-accepted",
        "protocols/tests/logging/main.rs: under_full_logging_a_report_of_an_older_round_does_not_count",
    ),
    (
        "pessimistic-acknowledges-next",
        "protocols/tests/logging/main.rs: under_pessimistic_logging_a_delivery_is_acknowledged_only_once_it_is_durable",
    ),
    (
        "pessimistic-recalls-before-durable",
        "protocols/tests/logging/main.rs: under_pessimistic_logging_a_recalled_delivery_is_durable",
    ),
    (
        "chandy-lamport-inquiry-answered-early",
        "protocols/tests/coordinated/main.rs: a_server_answers_only_once_its_writes_are_durable",
    ),
    ("note-before-recorded", "fuzz/tests/searches/mutations.rs: a_cluster_waits_for_its_holders_notes"),
    ("cck-older-map-used", "fuzz/tests/searches/mutations.rs: a_restarted_coordinator_uses_the_newest_map"),
    (
        "cck-failed-writes-forgotten",
        "fuzz/tests/searches/mutations.rs: a_partition_repeats_a_write_that_failed",
    ),
    (
        "composite-departure-not-repeated",
        "fuzz/tests/searches/mutations.rs: a_cluster_that_is_to_leave_leaves_after_a_rollback",
    ),
    ("cck-released-at-first", "sim/tests/cck/cases.rs: processes_fail_as_soon_as_a_cluster_is_released"),
    (
        "one-member-confirms",
        "protocols/tests/hc3i/mutations.rs: an_alert_is_confirmed_once_all_members_have_recorded_it",
    ),
    (
        "refuses-while-refilling",
        "fuzz/tests/searches/mutations.rs: an_owner_that_has_lost_its_storage_does_not_refuse_its_images",
    ),
    (
        "supervisor-result-undone-counts",
        "fuzz/tests/searches/mutations.rs: a_run_ends_only_once_undone_results_are_stated_again",
    ),
];

/// The result of the search for one mutation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mutant {
    /// The name of the mutation.
    pub mutation: String,
    /// The number of schedules that were run.
    pub runs: u64,
    /// The number of the first schedule with a violation, counted from 1; `None` if there was none.
    pub first: Option<u64>,
    /// The number of schedules with a violation.
    pub found: u64,
    /// The number of schedules that violated each property.
    pub violated: BTreeMap<Property, u64>,
    /// Descriptions of outcomes that occurred more often than their known rates.
    pub unusual: Vec<String>,
}

/// The effort of a mutation run.
#[derive(Clone, Copy, Debug)]
pub struct MutationEffort {
    /// The maximum number of random schedules of each protocol.
    pub seeds: u64,
    /// The maximum number of schedules of each protocol from which [directed](crate::Directions) ones are derived. Only
    /// mutations that random schedules do not find often enough need them.
    pub directed: u64,
    /// The number of schedules with a violation after which the search for a mutation ends.
    pub enough: u64,
}

impl Mutant {
    /// Returns whether a violation or an unusual rate revealed the mutation.
    pub fn is_killed(&self) -> bool {
        self.first.is_some() || !self.unusual.is_empty()
    }

    /// Returns the directed test that shows the effect of the mutation; `None` if [`DIRECTED`] does not list the
    /// mutation.
    pub fn shown_by(&self) -> Option<&'static str> {
        DIRECTED.iter().find(|(name, _)| *name == self.mutation).map(|(_, test)| *test)
    }

    /// Returns why the mutation is equivalent to the correct code; `None` if [`EQUIVALENT`] does not list the mutation.
    pub fn argument(&self) -> Option<&'static str> {
        EQUIVALENT.iter().find(|(name, _)| *name == self.mutation).map(|(_, why)| *why)
    }

    /// Switches on a mutation, and runs schedules of the protocols that use the mutated code.
    pub fn search(mutation: Defect, extent: MutationEffort) -> Mutant {
        let mut coverage = Coverage::default();
        let mut mutant = Mutant {
            mutation: mutation.to_string(),
            runs: 0,
            first: None,
            violated: BTreeMap::new(),
            found: 0,
            unusual: Vec::new(),
        };
        let protocols: Vec<ProtocolName> =
            mutation.run_by().iter().filter_map(|it| it.parse().ok()).collect();
        let each = |seeds: u64| {
            let protocols = protocols.clone();
            (0..seeds).flat_map(move |seed| protocols.clone().into_iter().map(move |it| (seed, it)))
        };
        for (seed, protocol) in each(extent.seeds) {
            if mutant.found >= extent.enough {
                break;
            }
            let trial = mutant.run_schedule(Scenario::new(seed, Some(protocol), Some(mutation)));
            coverage.add(&Observed::new(&trial, None));
        }
        mutant.unusual = coverage.shares().unusual();
        let mut directions = Directions::default();
        for (seed, protocol) in each(extent.directed) {
            if mutant.found >= extent.enough {
                break;
            }
            let base = mutant.run_schedule(Directions::base(seed, protocol, Some(mutation)));
            for scenario in directions.follow(&base, FOLLOWED) {
                mutant.run_schedule(scenario);
            }
        }
        mutant
    }

    /// Runs a schedule, and records its violations.
    ///
    /// # Panics
    ///
    /// Panics if the schedule cannot be set up, because nothing would then search for the mutation.
    fn run_schedule(&mut self, scenario: Scenario) -> Trial {
        self.runs += 1;
        let trial =
            run(scenario).unwrap_or_else(|error| panic!("{} cannot be searched for: {error}", self.mutation));
        let violated: BTreeSet<Property> = trial.violated().collect();
        if !violated.is_empty() {
            self.first.get_or_insert(self.runs);
            self.found += 1;
        }
        for property in violated {
            *self.violated.entry(property).or_default() += 1;
        }
        trial
    }
}

/// The number of directed schedules that are derived from one run.
const FOLLOWED: usize = 8;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_listed_mutation_exists_and_is_listed_once() {
        let mutations: Vec<String> = Defect::mutations().map(|it| it.to_string()).collect();
        let listed: Vec<&str> = EQUIVALENT.iter().chain(DIRECTED).map(|(name, _)| *name).collect();
        for (place, name) in listed.iter().enumerate() {
            assert!(mutations.iter().any(|it| it == name), "{name} is not a mutation");
            assert!(!listed[..place].contains(name), "{name} is listed twice");
        }
    }

    /// [`DIRECTED`] names tests as `FILE: FUNCTION`, which the compiler does not check.
    #[test]
    fn every_test_that_shows_a_mutation_exists() {
        for (mutation, test) in DIRECTED {
            let (file, function) = test.split_once(": ").unwrap_or_else(|| panic!("{mutation}: {test}"));
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{mutation}: {file}: {error}"));
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let declared = lines.iter().position(|it| *it == format!("fn {function}() {{"));
            let place = declared.unwrap_or_else(|| panic!("{mutation}: no test {function} in {file}"));
            let attributes = lines[..place].iter().rev().take_while(|it| it.starts_with("#["));
            let attributes: Vec<&&str> = attributes.collect();
            assert_eq!(attributes, [&"#[test]"], "{mutation}: {function} in {file}");
            let mut body = lines[place..].iter().take_while(|it| **it != "#[test]");
            let variant = format!("Defect::{}", mutation.parse::<Defect>().unwrap().variant());
            assert!(body.any(|it| it.contains(&variant)), "{mutation}: {function} does not enable it");
        }
    }

    #[test]
    fn every_mutation_can_be_enabled_in_each_protocol_that_runs_it() {
        for mutation in Defect::mutations() {
            for protocol in mutation.run_by() {
                let protocol =
                    protocol.parse().ok().unwrap_or_else(|| panic!("{protocol} is not a protocol"));
                let scenario = Scenario::new(0, Some(protocol), Some(mutation));
                if let Err(error) = run(scenario) {
                    panic!("{mutation} in {protocol:?}: {error}");
                }
            }
        }
    }
}
