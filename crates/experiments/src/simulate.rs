//! One run of a federation in virtual time, told in numbers.
//!
//! Everything is drawn from the facts, except two things that no fact states: how many packets of which kind the
//! simulator carried, and how many events it took.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::{Federation, FederationSpec, Names};
use faultline_catalog::manifest::bounds;
use faultline_catalog::{Setup, SetupError, Visitor, with_setup};
use faultline_checker::{Account, Context, History, judge_history};
use faultline_core::fault::Outcome;
use faultline_core::{Cause, Node, ProcessId, Protocol, Span, Time};
use faultline_sim::{Simulation, in_order};
use faultline_trace::{Record, Recorder, Sink};
use faultline_workloads::Workload;

use crate::ledger::{Ledger, Removal};
use crate::statistics::{ClusterStatistics, Collection, Kind, Rollback, Statistics};

/// Events between two looks at whether to go on.
const EVENTS: u32 = 1000;

/// Sees a run while it goes on.
pub trait Watch {
    /// A fact was stated, in the order of virtual time.
    fn stated(&mut self, names: &Names, record: &Record) {
        let _ = (names, record);
    }

    /// Called now and then with the virtual time; false interrupts the run.
    fn goes_on(&mut self, now: Time) -> bool {
        let _ = now;
        true
    }
}

/// Nobody watches.
impl Watch for () {}

/// Simulates a federation to its end, judges it, and draws up its numbers.
pub fn simulate(federation: &Federation, seed: u64, watch: &mut dyn Watch) -> Result<Statistics, SetupError> {
    with_setup(federation, Some(seed), Once { federation, watch: RefCell::new(watch) })
}

/// Simulates a federation once for each seed, as [`simulate`] does, on `jobs` threads. `each` sees the results in the order
/// of the seeds, which is also that of the answer. Once `interrupted` is raised nothing more begins, and what is under way
/// is cut short.
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

/// Watches only for an interruption.
struct Until<'a>(&'a AtomicBool);

impl Watch for Until<'_> {
    fn goes_on(&mut self, _: Time) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// One run of a federation, whatever its protocol.
struct Once<'a> {
    federation: &'a Federation,
    watch: RefCell<&'a mut dyn Watch>,
}

impl Visitor for Once<'_> {
    type Output = Statistics;

    fn visit<P>(self, setup: Setup<P>) -> Statistics
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        let spec = &self.federation.spec;
        let names = setup.names.clone();
        let clusters: Vec<Vec<ProcessId>> =
            setup.membership.clusters.iter().map(|it| it.processes.to_vec()).collect();
        let cluster_of = setup.membership.members.iter().map(|it| it.cluster).collect();
        let mut context = Context {
            process_names: names.processes(),
            cluster_names: spec.clusters.iter().map(|it| it.name.clone()).collect(),
            planned_faults: setup.supervisor.plan.len(),
            expected: setup.reference(),
            bounds: bounds(spec),
            volatile_storage: setup.supervisor.volatile_storage,
            common_clock: true,
            ..Context::new(setup.promises(), clusters)
        };
        let seed = setup.seed;
        let ledger = Ledger::new(cluster_of, spec.clusters.len());
        let mut sink = Watched { trace: Recorder::default(), ledger, names: &names, watch: &self.watch };
        let mut simulation = Simulation::<Node<P, Workload>, _>::new(setup.simulation(), &mut sink);
        while (0..EVENTS).all(|_| simulation.step()) {
            if !self.watch.borrow_mut().goes_on(simulation.now()) {
                simulation.interrupt();
            }
        }
        let begun = simulation.status().begun.unwrap_or(Time::ZERO);
        let run = simulation.run();
        let Watched { trace, ledger, .. } = sink;
        let trace = trace.finish();
        context.outcome = Some(run.outcome.clone());
        context.end = run.ended;
        let duration = run.ended.since(Time::ZERO);
        context.settled_after = Some(Span(duration.0 / 2).max(Span::from_secs(10)));
        let history = History::new(&trace, &context);
        let judgement = judge_history(&history);
        let account = Account::of(&history);
        let mut statistics = Statistics {
            seed,
            outcome: match run.outcome {
                Outcome::Completed => "completed",
                Outcome::Deadline => "deadline",
                Outcome::Interrupted => "interrupted",
                Outcome::Unrecoverable { .. } => "unrecoverable",
                Outcome::NotRepeated { .. } => "notRepeated",
            },
            verdict: judgement.verdict,
            instances: judgement.findings.iter().map(|it| it.instances).sum(),
            reasons: judgement.reasons,
            duration_seconds: duration.as_secs_f64(),
            events: run.stats.events,
            facts: account.facts,
            clusters: Vec::new(),
            messages: account.messages.clone(),
            collections: collections(&ledger, begun),
            traffic: traffic(&run.stats),
        };
        statistics.clusters = tell_clusters(spec, &account, &ledger, begun);
        statistics
    }
}

/// Keeps every fact, and shows it.
struct Watched<'a, 'w> {
    trace: Recorder,
    ledger: Ledger,
    names: &'a Names,
    watch: &'a RefCell<&'w mut dyn Watch>,
}

impl Sink for Watched<'_, '_> {
    fn record(&mut self, record: Record) {
        self.watch.borrow_mut().stated(self.names, &record);
        self.ledger.note(&record);
        self.trace.record(record);
    }
}

/// By cluster; where all clusters take checkpoints together, their numbers stand with the first.
fn tell_clusters(
    spec: &FederationSpec,
    account: &Account,
    ledger: &Ledger,
    begun: Time,
) -> Vec<ClusterStatistics> {
    let seconds = |at: Time| at.since(begun).as_secs_f64();
    let because = |cause: Option<Cause>| match cause {
        Some(Cause::Alert { from, .. }) => spec.clusters[from.index()].name.clone(),
        Some(Cause::Failure) | None => "failure".to_owned(),
    };
    let tell = |(index, cluster): (usize, &faultline_api::resource::Cluster)| {
        let mut told = ClusterStatistics {
            name: cluster.name.clone(),
            nodes: cluster.nodes,
            stored: ledger.clusters[index].stored(),
            most_stored: ledger.clusters[index].most_stored,
            most_logged_by_a_node: ledger.clusters[index].most_logged_by_a_node,
            most_logged: ledger.clusters[index].most_logged,
            joined_seconds: ledger.clusters[index].joined.map(seconds),
            left_seconds: ledger.clusters[index]
                .left
                .map(|left| (seconds(ledger.clusters[index].finished), seconds(left))),
            ..ClusterStatistics::default()
        };
        if let Some(counted) = account.clusters.get(index) {
            told.unforced = counted.unforced.saturating_sub(1);
            told.forced = counted.forced;
            told.longest_freeze_seconds = counted.frozen_longest.as_secs_f64();
            told.failures = counted.failures;
            told.resent = counted.resent;
        }
        let own = account.rollbacks.iter().filter(|it| it.cluster == index);
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
    spec.clusters.iter().enumerate().map(tell).collect()
}

fn collections(ledger: &Ledger, begun: Time) -> Vec<Collection> {
    let tell = |(&round, removal): (&u32, &Removal)| Collection {
        round,
        at_seconds: removal.began.since(begun).as_secs_f64(),
        done_seconds: removal.ended.since(begun).as_secs_f64(),
        clusters: removal.clusters.clone(),
    };
    ledger.collections.iter().map(tell).collect()
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
