//! The sum of the metrics of all nodes, for the supervisor's own page.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::fault::{Change, LinkProperties, MemoryContent, MemoryPart};
use faultline_core::{ClusterId, Fact, Gauges, Life, Membership, ProcessId, Span, Time};
use faultline_supervisor::Status;
use faultline_trace::manifest::EffectEntry;

use super::incidents::Incidents;
use crate::RunOptions;
use crate::metrics::exposition::Exposition;
use crate::metrics::page::{FaultEntry, PhaseLabel, Uptime, Values};
use crate::metrics::{Counts, Delays, Sum};

/// The last values of each life, and the page that shows their sum.
#[derive(Debug)]
pub(super) struct Totals {
    exposition: Arc<Exposition>,
    lives: BTreeMap<(ProcessId, Life), (Counts, Delays)>,
    /// Gauges of each process's newest life.
    gauges: BTreeMap<ProcessId, Gauges>,
    /// Cluster of each process.
    clusters: Vec<ClusterId>,
    incidents: Incidents,
    /// Time at which uptimes and downtimes were last updated. They do not include the time before this supervisor
    /// started, even if it resumes a run.
    published: Option<Time>,
}

impl Totals {
    /// Creates the totals, which `sum` exposes.
    pub(super) fn new(options: &RunOptions, Sum(exposition): Sum) -> Totals {
        let clusters: Vec<ClusterId> = options.membership.members.iter().map(|it| it.cluster).collect();
        // Links to and from processes outside the clusters are omitted if every process belongs to a cluster.
        let is_there = |cluster| clusters.contains(&cluster);
        let requested = options.links.requested.iter().map(|(&pair, &link)| (pair, link));
        let requested = requested.filter(|&((from, to), _)| is_there(from) && is_there(to)).collect();
        exposition.update(|page| {
            page.clusters = options.names.clusters.clone();
            page.requested = requested;
            page.values = clusters.iter().map(|&it| (it, Values::default())).collect();
            let faults = options.supervisor.plan.iter().map(|it| (it.no, FaultEntry::new(&it.fault)));
            page.run().faults = faults.collect();
            if let Some(info) = options.info.clone() {
                page.run().info = Some(info);
            }
        });
        Totals {
            exposition,
            lives: BTreeMap::new(),
            gauges: BTreeMap::new(),
            clusters,
            incidents: Incidents::default(),
            published: None,
        }
    }

    /// Changes the requested properties of a link.
    pub(super) fn ask(&self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.exposition.update(|page| page.ask(from, to, properties));
    }

    /// Updates the skew and the latency of a fault.
    pub(super) fn took_effect(&self, effect: &EffectEntry) {
        let (skew, latency) = (effect.skew(), effect.latency());
        self.exposition.update(|page| {
            page.run().effects.insert(effect.no, (skew, latency));
        });
    }

    /// Returns the memory that the logs of all processes occupy.
    pub(super) fn logs(&self) -> MemoryPart {
        let mut logs = MemoryPart { content: MemoryContent::Logs, count: 0, bytes: 0 };
        for gauges in self.gauges.values() {
            logs.count += gauges.log_messages;
            logs.bytes += gauges.log_bytes.saturating_sub(gauges.log_bytes_spilled);
        }
        logs
    }

    /// Returns the number of facts that all lives have reported in their heartbeats.
    pub(super) fn facts(&self) -> u64 {
        self.lives.values().map(|(counts, _)| counts.all()).sum()
    }

    /// Returns the page.
    pub(super) fn exposition(&self) -> Arc<Exposition> {
        self.exposition.clone()
    }

    /// Records a fact reported by the supervisor or by a process.
    pub(super) fn recorded(&mut self, at: Time, process: ProcessId, life: Life, fact: &Fact) {
        self.incidents.recorded(at, process, life, fact);
        match fact {
            Fact::Injecting { no, .. } => self.exposition.update(|page| {
                if let Some(fault) = page.run().faults.get_mut(no) {
                    fault.is_injected = true;
                }
            }),
            Fact::Joined(cluster) => {
                let processes = (0..).map(ProcessId).zip(&self.clusters);
                processes.filter(|(_, of)| *of == cluster).for_each(|(it, _)| self.incidents.joined(it));
            }
            // The last heartbeat may be older than this fact.
            Fact::Finished(_) => {
                if let Some(gauges) = self.gauges.get_mut(&process) {
                    gauges.progress.done = gauges.progress.done.max(gauges.progress.total);
                }
            }
            Fact::Changed(change) => {
                if let Change::Fault(it) = &**change {
                    self.exposition.update(|page| {
                        page.run().faults.insert(it.no, FaultEntry::new(&it.fault));
                    });
                }
            }
            _ => {}
        }
    }

    /// Records the current values of a life.
    pub(super) fn heard(
        &mut self,
        at: Time,
        process: ProcessId,
        life: Life,
        gauges: Gauges,
        counts: Counts,
        delays: Delays,
    ) {
        self.incidents.heard(at, process, life);
        self.lives.insert((process, life), (counts, delays));
        self.gauges.insert(process, gauges);
    }

    /// Updates the page with the current sums.
    pub(super) fn publish(&mut self, now: Time, status: &Status, membership: &Membership) {
        let mut values: BTreeMap<ClusterId, Values> = BTreeMap::new();
        let mut delays = Delays::new();
        for (&(process, _), (counts, seen)) in &self.lives {
            values.entry(self.clusters[process.index()]).or_default().counts.add(counts);
            for (&link, &(packets, sum)) in seen {
                let total = delays.entry(link).or_default();
                *total = (total.0 + packets, total.1 + sum);
            }
        }
        for (process, gauges) in &self.gauges {
            let sum = &mut values.entry(self.clusters[process.index()]).or_default().gauges;
            sum.progress.done += gauges.progress.done;
            sum.progress.total += gauges.progress.total;
            sum.log_messages += gauges.log_messages;
            sum.log_bytes += gauges.log_bytes;
            sum.log_bytes_spilled += gauges.log_bytes_spilled;
            sum.checkpoints += gauges.checkpoints;
        }
        let passed = now.since(self.published.replace(now).unwrap_or(now));
        let counts = status.begun.is_some() && !status.paused && status.outcome.is_none();
        let passed = if counts { passed } else { Span::ZERO };
        self.exposition.update(|page| {
            page.values.extend(values);
            page.delays = delays;
            let run = page.run();
            run.phase = match (status.begun, status.paused) {
                (None, _) => PhaseLabel::Starting,
                (Some(_), true) => PhaseLabel::Paused,
                (Some(_), false) => PhaseLabel::Running,
            };
            for (index, of) in status.clusters.iter().enumerate() {
                let cluster = ClusterId(index as u16);
                if !membership.presence(cluster).is_present() {
                    // A cluster that has left keeps the times of its processes, as it keeps its other sums.
                    if let Some(left) = run.clusters.get_mut(&cluster) {
                        (left.processes, left.up) = (0, 0);
                    }
                    continue;
                }
                let Uptime { time_up, time_down, .. } =
                    run.clusters.get(&cluster).copied().unwrap_or_default();
                let down = of.processes.saturating_sub(of.up);
                let uptime = Uptime {
                    processes: of.processes,
                    up: of.up,
                    time_up: time_up + Span(passed.0 * u64::from(of.up)),
                    time_down: time_down + Span(passed.0 * u64::from(down)),
                };
                run.clusters.insert(cluster, uptime);
            }
            for (no, state) in &status.faults {
                if let Some(fault) = run.faults.get_mut(no) {
                    fault.state.clone_from(state);
                }
            }
            run.spares = status.spares;
            run.detections.clone_from(&self.incidents.detections);
            run.recoveries.clone_from(&self.incidents.recoveries);
        });
    }
}
