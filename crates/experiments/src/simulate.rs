//! Statistics of one run of a federation in virtual time.
//!
//! All numbers are computed from the facts, except two that no fact states: the packets that the simulated network
//! carried, by kind, and the number of simulator events.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_catalog::SetupError;
use faultline_core::fault::Outcome;
use faultline_core::{Cause, ClusterId, Span, Time};
use faultline_history::{Account, History};
use faultline_session::{Session, SimulationObserver, SimulationView, Simulator};
use faultline_sim::in_order;
use faultline_trace::{Manifest, Record};

use crate::statistics::{ClusterStatistics, Collection, Kind, Rollback, Statistics};
use crate::store_counter::{Removal, StoreCounter};

/// Returns consecutive seeds. The last one must not exceed [`u64::MAX`].
pub(crate) fn consecutive(first: u64, count: u32) -> impl Iterator<Item = u64> {
    (0..count).map(move |it| first + u64::from(it))
}

/// Simulates a federation to its end, judges the run, and computes its statistics.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn simulate(
    federation: &Federation,
    seed: u64,
    observer: &mut dyn SimulationObserver,
) -> Result<Statistics, SetupError> {
    simulate_and(federation, seed, observer, |_| ()).map(|(statistics, ())| statistics)
}

/// Works like [`simulate`], but also passes the history of the run to `read`.
pub(crate) fn simulate_and<T>(
    federation: &Federation,
    seed: u64,
    observer: &mut dyn SimulationObserver,
    read: impl FnOnce(&History<'_>) -> T,
) -> Result<(Statistics, T), SetupError> {
    let mut bookkeeper = StoreObserver { store_counter: StoreCounter::default(), observer };
    let mut simulator = Simulator::new(&mut bookkeeper);
    let unjudged = Session::new(federation).seed(seed).simulate(&mut simulator)?;
    let stats = simulator.stats().clone();
    let StoreObserver { store_counter, .. } = bookkeeper;
    let begun = unjudged.trace.begun().unwrap_or(Time::ZERO);
    let (recording, (facts, clusters, messages, read)) = unjudged.judge_and(|history| {
        let account = Account::of(history);
        let place = places(history);
        let clusters = cluster_statistics(history, &account, &place, &store_counter, begun);
        (account.facts, clusters, by_cluster(&account.messages, &place), read(history))
    });
    let manifest = recording.manifest;
    let statistics = Statistics {
        seed,
        outcome: manifest.outcome.as_ref().unwrap_or(&Outcome::Interrupted).name(),
        verdict: recording.judgement.verdict,
        instances: recording.judgement.findings.iter().map(|it| it.instances).sum(),
        reasons: recording.judgement.reasons,
        findings: recording.judgement.findings,
        duration_seconds: manifest.duration.as_secs_f64(),
        events: stats.events,
        facts,
        clusters,
        messages,
        collections: collections(&store_counter, begun),
        traffic: traffic(&stats),
    };
    Ok((statistics, read))
}

/// Simulates a federation once for each seed, as [`simulate`] does, on `jobs` threads. Calls `each` with the results
/// in the order of the seeds, and returns them in this order. Once `interrupted` is set, no further runs start, and
/// runs in progress end early.
///
/// # Errors
///
/// Returns an error if the federation cannot be set up.
pub fn simulate_all(
    federation: &Federation,
    seeds: impl IntoIterator<Item = u64>,
    jobs: NonZero<usize>,
    interrupted: &AtomicBool,
    mut each: impl FnMut(&Statistics),
) -> Result<Vec<Statistics>, SetupError> {
    let mut runs = Vec::new();
    let run = |seed| simulate(federation, seed, &mut Until(interrupted));
    let flow = in_order(jobs, seeds, run, |result| match result {
        Ok(run) => {
            each(&run);
            runs.push(run);
            if interrupted.load(Ordering::Relaxed) {
                ControlFlow::Break(None)
            } else {
                ControlFlow::Continue(())
            }
        }
        Err(error) => ControlFlow::Break(Some(error)),
    });
    match flow {
        ControlFlow::Break(Some(error)) => Err(error),
        ControlFlow::Break(None) | ControlFlow::Continue(()) => Ok(runs),
    }
}

/// An observer that only checks for an interruption.
pub(crate) struct Until<'a>(pub(crate) &'a AtomicBool);

impl SimulationObserver for Until<'_> {
    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts stored checkpoints and logged messages of a run, and passes everything on to another observer.
struct StoreObserver<'a> {
    store_counter: StoreCounter,
    observer: &'a mut dyn SimulationObserver,
}

impl SimulationObserver for StoreObserver<'_> {
    fn begins(&mut self, manifest: &Manifest) {
        let cluster_of = manifest.processes.iter().map(|it| it.cluster).collect();
        self.store_counter = StoreCounter::new(cluster_of, manifest.clusters.len());
        self.observer.begins(manifest);
    }

    fn recorded(&mut self, record: &Record) {
        self.observer.recorded(record);
        self.store_counter.note(record);
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted()
    }

    fn continues(&mut self, moment: SimulationView<'_>) -> bool {
        self.observer.continues(moment)
    }
}

/// Returns the cluster of each group of processes: the cluster that contains it, or the first one for the group of
/// all processes.
fn places(history: &History<'_>) -> Vec<ClusterId> {
    let of_process = |process| {
        let clusters = &history.context.clusters;
        ClusterId(
            clusters.iter().position(|it| it.contains(process)).expect("ranks belong to clusters") as u16
        )
    };
    history.groups.iter().map(|group| of_process(&group.members[0])).collect()
}

/// Sums the messages between groups for each pair of clusters, given the cluster of each group.
fn by_cluster(messages: &[Vec<u64>], place: &[ClusterId]) -> Vec<Vec<u64>> {
    let clusters = place.iter().map(|it| it.index() + 1).max().unwrap_or(0);
    let mut sums = vec![vec![0; clusters]; clusters];
    for (row, from) in messages.iter().zip(place) {
        for (count, to) in row.iter().zip(place) {
            sums[from.index()][to.index()] += count;
        }
    }
    sums
}

/// Computes the statistics of each cluster. If all clusters take checkpoints together, the checkpoints, failures and
/// rollbacks of all of them are attributed to the first one.
fn cluster_statistics(
    history: &History<'_>,
    account: &Account,
    place: &[ClusterId],
    store_counter: &StoreCounter,
    begun: Time,
) -> Vec<ClusterStatistics> {
    let context = history.context;
    let seconds = |at: Time| at.since(begun).as_secs_f64();
    let because = |cause: Option<Cause>| match cause {
        Some(Cause::Alert { from, .. }) => context.group(from),
        Some(Cause::Failure) | None => "failure".to_owned(),
    };
    let tell = |(index, kept): (usize, &crate::store_counter::Cluster)| {
        let mut told = ClusterStatistics {
            name: context.cluster(ClusterId(index as u16)),
            nodes: context.clusters[index].len() as u32,
            stored: kept.stored(),
            most_stored: kept.most_stored,
            most_logged_by_a_node: kept.most_logged_by_a_node,
            most_logged: kept.most_logged,
            joined_seconds: kept.joined.map(seconds),
            left_seconds: kept.left.map(|left| (seconds(kept.finished), seconds(left))),
            ..ClusterStatistics::default()
        };
        let is_here = |group: usize| place[group].index() == index;
        for (_, counted) in account.groups.iter().enumerate().filter(|(group, _)| is_here(*group)) {
            told.unforced += counted.unforced.saturating_sub(1);
            told.forced += counted.forced;
            let longest = counted.frozen_longest.as_secs_f64();
            told.longest_freeze_seconds = told.longest_freeze_seconds.max(longest);
            told.failures += counted.failures;
            told.resent += counted.resent;
        }
        let own = account.rollbacks.iter().filter(|it| is_here(it.group));
        told.rollbacks = own
            .map(|it| Rollback {
                because_of: because(it.cause),
                to: it.checkpoint.sn.0,
                depth: it.depth,
                lost_work_seconds: it.lost_work.as_secs_f64(),
                recovery_seconds: it.time_to_recover.map(Span::as_secs_f64),
            })
            .collect();
        told
    };
    store_counter.clusters.iter().enumerate().map(tell).collect()
}

fn collections(store_counter: &StoreCounter, begun: Time) -> Vec<Collection> {
    let tell = |(&round, removal): (&u32, &Removal)| Collection {
        round,
        at_seconds: removal.began.since(begun).as_secs_f64(),
        done_seconds: removal.ended.since(begun).as_secs_f64(),
        clusters: removal.clusters.clone(),
    };
    store_counter.collections.iter().map(tell).collect()
}

fn traffic(stats: &faultline_sim::Stats) -> Vec<Kind> {
    let kinds: BTreeMap<&str, _> = stats.kinds().collect();
    let kind = |(kind, [within, between]): (&str, [faultline_sim::Traffic; 2])| Kind {
        kind: kind.to_owned(),
        messages_within: within.packets,
        bytes_within: within.bytes,
        messages_between: between.packets,
        bytes_between: between.bytes,
    };
    kinds.into_iter().map(kind).collect()
}
