//! Drafts the description of a run from its federation, before the run begins.

use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::flow::flow;
use faultline_api::plan::drawn;
use faultline_api::resource::{
    Assertion, Checkpointing, ClusterSpec, Collection, ExpectSpec, FederationSpec, OnExit, ProtocolSpec,
    ReplicateTo, StorageKind, System,
};
use faultline_api::{Federation, Names};
use faultline_core::{CheckNo, ClusterId, ProbeNo, ProcessId, Promise, Promises, Span, WatchNo};
use faultline_trace::Manifest;
use faultline_trace::expectation::{Expectation, HistoryEntry, INHERITED, LinesAre, ProbeEntry, SystemEntry};
use faultline_trace::manifest::{
    BackendKind, Bounds, ClusterEntry, Copies, Expected, FORMAT, LinkEntry, ProcessEntry, ReplicaHolders,
};

use crate::{Hosted, Setup};

/// Returns the manifest of a run that has not begun. `text` is the federation file as the user wrote it; `started` is
/// the time at which the run starts.
pub fn draft<N: Hosted>(
    federation: &Federation,
    text: &str,
    setup: &Setup<N>,
    backend: BackendKind,
    started: SystemTime,
) -> Manifest {
    let spec = &federation.spec;
    let members = setup.membership.members.iter();
    let processes = setup.names.processes().into_iter().zip(members);
    let links =
        setup.links.iter().filter(|((from, to), _)| ClusterId::OUTSIDE != *from && ClusterId::OUTSIDE != *to);
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let system = spec.application.system().map(|it| system(it, &setup.names, setup.seed));
    let inherited = INHERITED.into_iter().filter(|_| system.is_some() && backend == BackendKind::Local);
    let value = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    Manifest {
        format: FORMAT,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        program: None,
        name: federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned()),
        backend,
        seed: setup.seed,
        federation: text.to_owned(),
        protocol: if spec.application.system().is_some() { "system" } else { spec.protocol.name() }
            .to_owned(),
        promises: setup.promises(),
        clusters: spec
            .clusters
            .iter()
            .map(|it| ClusterEntry { name: it.name.clone(), nodes: it.nodes })
            .collect(),
        leaving: (0..)
            .map(ClusterId)
            .zip(&spec.clusters)
            .filter_map(|(id, cluster)| cluster.leaves_after.map(|_| id))
            .collect(),
        processes: processes
            .map(|(name, member)| ProcessEntry { name, role: member.role, cluster: member.cluster })
            .collect(),
        bounds: bounds(spec, setup.promises()),
        copies: copies(spec),
        volatile_storage: spec.storage().kind == StorageKind::Memory,
        longest_task: longest_task(spec),
        plan: setup.supervisor.plan.clone(),
        drawn: drawn(federation, &setup.names, setup.seed),
        has_random_faults: spec.faults.iter().any(|it| it.repeated().is_some()),
        faults: Vec::new(),
        effects: Vec::new(),
        pressure: None,
        environment: inherited.filter_map(|name| Some((name.to_owned(), value(name)?))).collect(),
        spares: spec.failures().spares(),
        at_once_within: spec.failures().at_once_within(),
        events: None,
        links: links
            .map(|(&(from, to), &requested)| LinkEntry {
                from,
                to,
                requested,
                measured: None,
                observed: None,
                since: None,
            })
            .collect(),
        expected: None,
        expectations: expectations(spec, system.as_ref()),
        system,
        outcome: None,
        waiting: Vec::new(),
        started_unix_ms: started.as_millis() as u64,
        duration: Span::ZERO,
        facts: Vec::new(),
    }
}

/// Returns the results of a run without faults, computed by the application's sequential reference; `None` if
/// the application has no reference.
pub fn expected<N: Hosted>(setup: &Setup<N>) -> Option<Expected> {
    let digests = setup.reference()?;
    Some(Expected { source: "the sequential reference".to_owned(), digests })
}

/// Returns what a valid federation expects of the run.
fn expectations(spec: &FederationSpec, system: Option<&SystemEntry>) -> Vec<Expectation> {
    let probe = |entry: &ExpectSpec| {
        let name = entry.probe.as_ref()?;
        let position = system?.probes.iter().position(|it| it.name == *name)?;
        Some(ProbeNo(position as u16))
    };
    let of_lines = |entry: &ExpectSpec, assertion: Assertion<'_>| {
        let watch = system?.watches.iter().position(|it| Some(it) == entry.watch.as_ref())?;
        let per = entry.per.unwrap_or_default().into();
        let are = match assertion {
            Assertion::RecoveredWithin(within) => LinesAre::RecoveredWithin { within: within.0, per },
            Assertion::LongestGap(at_most) => LinesAre::LongestGap { at_most: at_most.0, per },
            Assertion::Same(group) => {
                let for_each = entry.for_each.as_deref().map(Into::into);
                LinesAre::Same { group: group.into(), for_each }
            }
            Assertion::Increases(group) => LinesAre::Increases { group: group.into(), per },
            Assertion::LinesAtMost(most) => LinesAre::AtMost(most.into()),
            Assertion::LinesAtLeast(least) => LinesAre::AtLeast(least.into()),
            _ => return None,
        };
        Some(Expectation::Lines { watch: WatchNo(watch as u16), are })
    };
    let expectation = |entry: &ExpectSpec, assertion: Assertion<'_>| match (assertion, probe(entry)) {
        (it, _) if entry.watch.is_some() => of_lines(entry, it),
        (Assertion::RecoveredWithin(within), None) => Some(Expectation::RecoveredWithin(within.0)),
        (Assertion::RecoveredWithin(within), Some(probe)) => {
            Some(Expectation::ProbeRecovered { probe, within: within.0 })
        }
        (Assertion::Rollbacks(it), _) => Some(Expectation::Rollbacks { at_most: it.at_most.into() }),
        (Assertion::LostWork(it), _) => Some(Expectation::LostWork { at_most: it.at_most.0 }),
        (Assertion::FinishedWithin(within), _) => Some(Expectation::FinishedWithin(within.0)),
        (Assertion::Latency(of, at_most), probe) => {
            Some(Expectation::Latency { probe: probe?, of, at_most: at_most.0 })
        }
        (Assertion::Faults(it), _) => Some(Expectation::Faults { at_least: it.at_least.into() }),
        (Assertion::Availability(at_least), probe) => {
            Some(Expectation::Availability { probe: probe?, at_least })
        }
        (Assertion::LongestOutage(it), probe) => {
            Some(Expectation::LongestOutage { probe: probe?, at_most: it.0 })
        }
        (Assertion::Exits(name), _) => {
            let cluster = spec.clusters.iter().position(|it| it.name == name)?;
            let at_most = entry.at_most.unwrap_or(0).into();
            Some(Expectation::Exits { cluster: ClusterId(cluster as u16), at_most })
        }
        (Assertion::Check(text), _) => {
            let check = spec.checks().position(|it| std::ptr::eq(it, entry))?;
            let by = Names::of(spec).process_id(entry.by.as_ref()?)?;
            let (check, within) = (CheckNo(check as u16), entry.check_within());
            Some(Expectation::Check { check, text: text.into(), by, within })
        }
        // Without a watch, these are invalid.
        (
            Assertion::LongestGap(_)
            | Assertion::Same(_)
            | Assertion::Increases(_)
            | Assertion::LinesAtMost(_)
            | Assertion::LinesAtLeast(_),
            _,
        ) => None,
    };
    let of_entry = |entry: &ExpectSpec| {
        let all = entry.assertions().into_iter();
        all.filter_map(|(_, it)| expectation(entry, it)).collect::<Vec<_>>()
    };
    spec.expect.iter().flat_map(of_entry).collect()
}

/// Returns the bounds on the work that a rollback may undo; `None` for a protocol that takes no checkpoints, or that
/// logs the events of tasks, because logged events are not lost.
fn bounds(spec: &FederationSpec, promises: Promises) -> Option<Bounds> {
    if promises.include(Promise::EventsLogged) {
        return None;
    }
    let every = spec.protocol.checkpointing()?.every;
    let own = spec.protocol.shared_options().checkpoint_every_in;
    let of_cluster = |name: &str| own.get(name).map_or(every, |it| it.0);
    Some(Bounds {
        checkpoint_every: spec.clusters.iter().map(|it| of_cluster(&it.name)).collect(),
        detect_after: spec.detect_after(),
        collect_every: collect_every(&spec.protocol),
        delivered_within: delivered_within(spec),
    })
}

/// The number of bytes that may be queued at a sender with limited bandwidth ahead of a message to the coordinator.
/// When a partition acknowledges a checkpoint, its part of the checkpoint has left the queue; only values that the
/// partition sent afterwards may still be queued.
const QUEUED: u64 = 10_000_000;

/// Returns the longest time that a message between a cluster and the coordinator of CCK takes in virtual time; `None`
/// under other protocols, or if the time is unbounded.
fn delivered_within(spec: &FederationSpec) -> Option<Span> {
    let (link, simulator) = (spec.links().between(), spec.simulator());
    let is_bounded = link.loss_ppm == 0 && simulator.handling.is_none();
    let queued = (QUEUED * 1_000_000).checked_div(link.bandwidth).map_or(Span::ZERO, Span::from_micros);
    (spec.protocol.plans() && is_bounded)
        .then(|| link.latency + link.jitter + simulator.reorder_within() + queued)
}

/// Returns the longest delay between two garbage collections; zero if garbage collection follows every checkpoint.
/// `None` if the protocol never collects garbage, or does not specify when.
fn collect_every(protocol: &ProtocolSpec) -> Option<Span> {
    let Checkpointing { every, collect_every, .. } = protocol.checkpointing()?;
    match protocol.collection() {
        Collection::Unspecified => None,
        Collection::AfterCheckpoint => Some(Span::ZERO),
        Collection::Periodic => collect_every,
        Collection::WithCheckpoint => Some(collect_every? + every?),
    }
}

/// Returns an upper bound on the time that one task takes, on the slowest cluster; `None` if the federation does not
/// determine it.
fn longest_task(spec: &FederationSpec) -> Option<Span> {
    let longest = flow(&spec.application)?.ok()?.longest_task();
    let slowest = spec.clusters.iter().map(ClusterSpec::speed).min()?.max(1);
    Some(Span(longest.0.saturating_mul(100) / u64::from(slowest)))
}

/// Returns the parts of a system to which facts refer.
pub(crate) fn system(system: &System, names: &Names, seed: u64) -> SystemEntry {
    let ranks = || (0..names.ranks()).map(ProcessId);
    let is_in =
        |name: &str, it: ProcessId| names.process(it) == name || names.cluster(names.cluster_of(it)) == name;
    let probes = system.probes.iter().map(|(name, probe)| ProbeEntry {
        name: name.clone(),
        by: ranks().filter(|it| probe.by.as_ref().is_none_or(|by| is_in(by, *it))).collect(),
        every: probe.every(),
        timeout: probe.timeout(),
    });
    let histories: Vec<HistoryEntry> = system
        .clients
        .iter()
        .filter_map(|(name, it)| {
            Some(HistoryEntry {
                name: name.clone(),
                by: ranks().find(|process| is_in(&it.by, *process))?,
                count: it.count() as u16,
                timeout: it.timeout(),
                level: it.level().to_owned(),
                workload: it.workload(seed),
            })
        })
        .collect();
    let kinds = histories.iter().flat_map(|it| {
        it.workload.kinds().into_iter().map(|kind| ProbeEntry {
            name: format!("{}.{kind}", it.name),
            by: vec![it.by],
            every: it.workload.every(kind),
            timeout: it.timeout,
        })
    });
    let may_exit = |it: &ProcessId| {
        let on_exit = system.on(names.cluster(names.cluster_of(*it))).on_exit;
        !matches!(on_exit, OnExit::Fail | OnExit::Daemon)
    };
    let ends = system.ends.as_ref().and_then(|it| it.exit.as_ref());
    let may_finish = |it: &ProcessId| ends.is_some_and(|name| is_in(name, *it));
    SystemEntry {
        probes: probes.chain(kinds).collect(),
        histories: histories.clone(),
        watches: system.watch_names().into_iter().map(str::to_owned).collect(),
        may_exit: ranks().filter(may_exit).collect(),
        may_finish: ranks().filter(may_finish).collect(),
    }
}

/// Returns the requested replicas of checkpoints.
fn copies(spec: &FederationSpec) -> Option<Copies> {
    let checkpointing = spec.protocol.checkpointing()?;
    let kept_by = match checkpointing.replicate_to {
        ReplicateTo::SameCluster => ReplicaHolders::SameCluster,
        ReplicateTo::OtherCluster => ReplicaHolders::OtherCluster,
        ReplicateTo::SharedStorage => ReplicaHolders::SharedStorage,
    };
    Some(Copies { replicas: checkpointing.replicas, kept_by })
}
