//! The sum of the metrics of all nodes, for the supervisor's own page.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Gauges, Life, ProcessId};
use faultline_trace::manifest::EffectEntry;

use crate::RunOptions;
use crate::metrics::exposition::Exposition;
use crate::metrics::{Counts, Delays, Sum};

/// Last values of each life, and the page that shows their sum.
#[derive(Debug)]
pub(super) struct Totals {
    exposition: Arc<Exposition>,
    lives: BTreeMap<(ProcessId, Life), (Counts, Delays)>,
    /// Gauges of each process's newest life.
    gauges: BTreeMap<ProcessId, Gauges>,
}

impl Totals {
    /// Creates the sum, which is shown through `sum`.
    pub(super) fn new(options: &RunOptions, Sum(exposition): Sum) -> Totals {
        // There may be no process outside the clusters.
        let is_there = |cluster| options.membership.members.iter().any(|it| it.cluster == cluster);
        let requested = options.links.requested.iter().map(|(&pair, &link)| (pair, link));
        let requested = requested.filter(|&((from, to), _)| is_there(from) && is_there(to)).collect();
        let clusters = options.names.clusters.clone();
        exposition.update(|page| (page.clusters, page.requested) = (clusters, requested));
        Totals { exposition, lives: BTreeMap::new(), gauges: BTreeMap::new() }
    }

    /// Changes the requested properties of a link.
    pub(super) fn ask(&self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.exposition.update(|page| page.ask(from, to, properties));
    }

    /// Updates the skew and the latency of a fault.
    pub(super) fn took_effect(&self, effect: &EffectEntry) {
        let (skew, latency) = (effect.skew(), effect.latency());
        self.exposition.update(|page| {
            page.effects.insert(effect.no, (skew, latency));
        });
    }

    /// Returns the page.
    pub(super) fn exposition(&self) -> Arc<Exposition> {
        self.exposition.clone()
    }

    /// Records the current values of a life.
    pub(super) fn heard(
        &mut self,
        process: ProcessId,
        life: Life,
        gauges: Gauges,
        counts: Counts,
        delays: Delays,
    ) {
        self.lives.insert((process, life), (counts, delays));
        self.gauges.insert(process, gauges);
    }

    /// Updates the page with the current sum.
    pub(super) fn publish(&self) {
        let mut counts = Counts::default();
        let mut delays = Delays::new();
        for (of_life, seen) in self.lives.values() {
            counts.add(of_life);
            for (&link, &(packets, sum)) in seen {
                let total = delays.entry(link).or_default();
                *total = (total.0 + packets, total.1 + sum);
            }
        }
        let mut sum = Gauges::default();
        for gauges in self.gauges.values() {
            sum.progress.done += gauges.progress.done;
            sum.progress.total += gauges.progress.total;
            sum.log_messages += gauges.log_messages;
            sum.log_bytes += gauges.log_bytes;
            sum.log_bytes_spilled += gauges.log_bytes_spilled;
            sum.checkpoints += gauges.checkpoints;
        }
        self.exposition.update(|page| {
            page.counts = counts;
            page.gauges = sum;
            page.delays = delays;
        });
    }
}
