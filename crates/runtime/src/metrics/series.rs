//! The series of a metrics page: their names and help text.

use std::fmt;

use faultline_core::fault::FaultState;
use faultline_core::{ClusterId, FactKind, Span};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::counts::Samples;
use super::exposition::Exposition;
use super::page::{FaultEntry, Page, PhaseLabel, RunValues, Uptime, Values, VerdictLabel};

/// Bounds of the buckets for skew and latency of faults, in seconds. The text format of Prometheus has no native
/// histograms.
const EFFECT_BUCKETS: [f64; 13] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2, 1.0, 5.0, 30.0, 300.0];
/// Bounds of the buckets for detection and recovery, in seconds.
const RECOVERY_BUCKETS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Maximum number of links with series. Each pair of clusters is a link, so the series of large federations would
/// overload Prometheus.
const MAX_LINKS: usize = 1024;

type Labels = Vec<(&'static str, String)>;

/// Encodes the metrics of one page.
struct Series<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
    page: &'a Page,
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = self.page();
        let mut series = Series { encoder: &mut encoder, page: &page };
        series.messages()?;
        series.checkpoints()?;
        series.recovery()?;
        series.application()?;
        series.links()?;
        series.probes()?;
        match &page.run {
            Some(run) => series.run(run),
            None => Ok(()),
        }
    }
}

impl Series<'_, '_> {
    fn messages(&mut self) -> fmt::Result {
        let events = [
            ("sent", FactKind::Sent),
            ("transmitted", FactKind::Transmitted),
            ("suppressed", FactKind::Suppressed),
            ("delivered", FactKind::Delivered),
            ("dropped", FactKind::DroppedStale),
            ("resent", FactKind::Resent),
        ];
        let values = self.by_cluster().flat_map(|(cluster, values)| {
            events.map(|(event, kind)| {
                let event = ("event", event.to_owned());
                (vec![("cluster", cluster.clone()), event], number(values.counts.of(kind)))
            })
        });
        let values: Vec<_> = values.collect();
        self.family("messages", "Application messages by event", None, values)
    }

    fn checkpoints(&mut self) -> fmt::Result {
        let values = self.by_cluster().flat_map(|(cluster, Values { counts, .. })| {
            let committed = counts.of(FactKind::CheckpointCommitted);
            [("forced", counts.forced), ("timer", committed.saturating_sub(counts.forced))].map(
                |(kind, count)| {
                    (vec![("cluster", cluster.clone()), ("kind", kind.to_owned())], number(count))
                },
            )
        });
        let values: Vec<_> = values.collect();
        let help = "Committed checkpoints by kind: forced, or unforced (timer)";
        self.family("checkpoints", help, None, values)?;
        self.facts("checkpoints_aborted", "Discarded checkpoints", FactKind::CheckpointAborted)?;
        self.facts("collections", "Garbage collections", FactKind::Collected)?;
        self.facts("images_saved", "Parts of checkpoints passed to the storage", FactKind::Saved)?;
        let durable = "Parts of checkpoints that the storage reported as durable";
        self.facts("images_durable", durable, FactKind::Durable)?;
        let frozen = "Time during which applications were frozen for checkpoints";
        self.time("checkpoint_frozen", frozen, |it| it.counts.frozen)?;
        self.gauge("log_messages", "Messages in the sender logs", None, |it| it.gauges.log_messages)?;
        self.gauge("log", "Payload in the sender logs", Some(Unit::Bytes), |it| it.gauges.log_bytes)?;
        let spilled = "Payload of the sender logs that is only on stable storage";
        self.gauge("log_spilled", spilled, Some(Unit::Bytes), |it| it.gauges.log_bytes_spilled)?;
        let kept = "Checkpoints that can be restored";
        self.gauge("checkpoints_kept", kept, None, |it| it.gauges.checkpoints.into())
    }

    fn recovery(&mut self) -> fmt::Result {
        self.facts("rollbacks", "Rollbacks", FactKind::RolledBack)?;
        let rounds = "Recovery rounds in which the processes took part";
        self.facts("recoveries", rounds, FactKind::RecoveryStarted)?;
        self.facts("alerts", "Rollback alerts received from other clusters", FactKind::Alerted)?;
        let lost = "Time between a checkpoint and the rollback to it, if the same life took the checkpoint";
        self.time("lost_work", lost, |it| it.counts.lost)
    }

    fn application(&mut self) -> fmt::Result {
        self.gauge("steps_done", "Completed steps of the application", None, |it| it.gauges.progress.done)?;
        self.gauge("steps_wanted", "Total steps of the application", None, |it| it.gauges.progress.total)
    }

    fn links(&mut self) -> fmt::Result {
        let Page { clusters, requested, delays, over, .. } = self.page;
        let labels = |(from, to): (ClusterId, ClusterId)| -> Labels {
            vec![("from", clusters.of(from)), ("to", clusters.of(to))]
        };
        if requested.len().max(delays.len()) > MAX_LINKS {
            return Ok(());
        }
        let seconds = Some(Unit::Seconds);
        let asked =
            requested.iter().filter(|_| !over).map(|&(pair, link)| (labels(pair), span(link.latency)));
        self.family("link_delay_requested", "Requested latency of a link", seconds.as_ref(), asked)?;
        let sums =
            delays.iter().map(|(&pair, &(_, sum))| (labels(pair), ConstCounter::new(sum.as_secs_f64())));
        self.family("link_delay", "Sum of the delays of all packets over a link", seconds.as_ref(), sums)?;
        let packets = delays.iter().map(|(&pair, &(packets, _))| (labels(pair), number(packets)));
        self.family("link_packets", "Packets that arrived over a link", None, packets)
    }

    fn probes(&mut self) -> fmt::Result {
        let info = || self.page.run.iter().flat_map(|it| &it.info);
        let probes: Vec<&String> = info().flat_map(|it| &it.probes).collect();
        let histories: Vec<&String> = info().flat_map(|it| &it.histories).collect();
        let mut all: Vec<(Labels, Samples)> = Vec::new();
        for (cluster, values) in self.by_cluster() {
            let labels = |name: String| vec![("cluster", cluster.clone()), ("probe", name)];
            for (probe, samples) in &values.counts.probes {
                let name = probes.get(probe.index()).map_or_else(|| probe.to_string(), |it| (*it).clone());
                all.push((labels(name), *samples));
            }
            for (history, kinds) in &values.counts.operations {
                let Some(name) = histories.get(history.index()) else { continue };
                all.extend(kinds.iter().map(|(kind, it)| (labels(format!("{name}.{kind}")), *it)));
            }
        }
        let by_result = all.iter().flat_map(|(labels, samples)| {
            let Samples { succeeded, failed, unknown, .. } = *samples;
            [("succeeded", succeeded), ("failed", failed), ("unknown", unknown)].map(|(result, count)| {
                let labels = labels.iter().cloned().chain([("result", result.to_owned())]);
                (labels.collect(), number(count))
            })
        });
        let by_result: Vec<(Labels, _)> = by_result.collect();
        self.family("probe_samples", "Samples of the probes of a system, by result", None, by_result)?;
        let latency =
            all.into_iter().map(|(labels, it)| (labels, ConstCounter::new(it.latency.as_secs_f64())));
        self.family("probe", "Sum of the times that samples took", Some(&Unit::Seconds), latency)
    }

    /// Encodes the metrics of the whole run.
    fn run(&mut self, run: &RunValues) -> fmt::Result {
        let about = run.info.iter().map(|it| {
            (vec![("backend", it.backend.to_owned()), ("seed", it.seed.to_string())], ConstGauge::new(1_u64))
        });
        self.family("run_info", "Backend and seed of the run, as labels", None, about)?;
        let phases = PhaseLabel::ALL
            .map(|it| (vec![("phase", format!("{it:?}"))], ConstGauge::new(u64::from(it == run.phase))));
        self.family("run_phase", "1 for the current phase of the run, otherwise 0", None, phases)?;
        let verdicts = VerdictLabel::ALL.map(|it| {
            let value = u64::from(Some(it) == run.verdict);
            (vec![("verdict", it.name().to_owned())], ConstGauge::new(value))
        });
        self.family(
            "run_verdict",
            "1 for the verdict of the run once it is known, otherwise 0",
            None,
            verdicts,
        )?;
        self.clusters(run)?;
        self.faults(run)?;
        let detection = "Time from a fault, or the last heartbeat, until the failure was announced";
        self.histogram("detection", detection, &RECOVERY_BUCKETS, run.detections.iter().copied())?;
        let recovery =
            "Time from a fault, or the last heartbeat, until the failed process had restored its state";
        self.histogram("recovery", recovery, &RECOVERY_BUCKETS, run.recoveries.iter().copied())
    }

    fn clusters(&mut self, run: &RunValues) -> fmt::Result {
        let clusters = &self.page.clusters;
        let of = |value: fn(&Uptime) -> u32| {
            let value = move |(&cluster, it): (&ClusterId, &Uptime)| {
                (vec![("cluster", clusters.of(cluster))], ConstGauge::new(u64::from(value(it))))
            };
            run.clusters.iter().map(value).collect::<Vec<_>>()
        };
        let (all, up) = (of(|it| it.processes), of(|it| it.up));
        let times = run.clusters.iter().flat_map(|(&cluster, it)| {
            [("up", it.time_up), ("down", it.time_down)].map(|(state, time)| {
                let labels = vec![("cluster", clusters.of(cluster)), ("state", state.to_owned())];
                (labels, ConstCounter::new(time.as_secs_f64()))
            })
        });
        let times: Vec<_> = times.collect();
        self.family("processes", "Processes of a cluster", None, all)?;
        self.family("processes_up", "Processes of a cluster that are up", None, up)?;
        let spares = [(Vec::new(), ConstGauge::new(u64::from(run.spares)))];
        self.family("spares_free", "Spare nodes on which no process runs", None, spares)?;
        let help = "Time since the application started, summed over all processes, by state: up or down";
        self.family("process_time", help, Some(&Unit::Seconds), times)
    }

    fn faults(&mut self, run: &RunValues) -> fmt::Result {
        let kinds: std::collections::BTreeSet<_> = run.faults.values().map(|it| it.kind).collect();
        let count = |is: fn(&FaultEntry) -> bool| {
            let count =
                |kind: &str| run.faults.values().filter(|it| it.kind == kind && is(it)).count() as u64;
            kinds.iter().map(|&kind| (vec![("kind", kind.to_owned())], count(kind))).collect::<Vec<_>>()
        };
        let planned = count(|_| true).into_iter().map(|(labels, count)| (labels, ConstGauge::new(count)));
        self.family("faults_planned", "Planned faults by kind", None, planned)?;
        let counters = [
            ("faults_injected", "Injected faults by kind", count(|it| it.is_injected)),
            (
                "faults_effective",
                "Faults that had an effect, by kind",
                count(|it| it.state == FaultState::Effective),
            ),
            (
                "faults_ineffective",
                "Faults that had no effect, by kind",
                count(|it| matches!(it.state, FaultState::Ineffective(_))),
            ),
        ];
        for (name, help, counts) in counters {
            self.family(name, help, None, counts.into_iter().map(|(labels, it)| (labels, number(it))))?;
        }
        let apart = "Cluster losses whose effects were further apart than the federation permits";
        self.family(
            "cluster_losses_apart",
            apart,
            None,
            [(Vec::new(), ConstGauge::new(run.losses_apart()))],
        )?;
        let skew = "Time from the first to the last effect of a fault with several targets";
        self.histogram("fault_skew", skew, &EFFECT_BUCKETS, run.effects.values().filter_map(|it| it.0))?;
        let latency = "Time between the due time of a fault and its last effect";
        self.histogram("fault_latency", latency, &EFFECT_BUCKETS, run.effects.values().filter_map(|it| it.1))
    }

    /// Iterates over the names and the values of the clusters.
    fn by_cluster(&self) -> impl Iterator<Item = (String, &Values)> {
        self.page.values.iter().map(|(&cluster, values)| (self.page.clusters.of(cluster), values))
    }

    /// Encodes the number of facts of a kind in each cluster.
    fn facts(&mut self, name: &str, help: &str, kind: FactKind) -> fmt::Result {
        let values = self.by_cluster();
        let values: Vec<_> =
            values.map(|(name, it)| (vec![("cluster", name)], number(it.counts.of(kind)))).collect();
        self.family(name, help, None, values)
    }

    /// Encodes a duration that never decreases, for each cluster.
    fn time(&mut self, name: &str, help: &str, time: impl Fn(&Values) -> Span) -> fmt::Result {
        let value = |(name, it): (String, &Values)| {
            (vec![("cluster", name)], ConstCounter::new(time(it).as_secs_f64()))
        };
        let values: Vec<_> = self.by_cluster().map(value).collect();
        self.family(name, help, Some(&Unit::Seconds), values)
    }

    /// Encodes a gauge for each cluster.
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        of: impl Fn(&Values) -> u64,
    ) -> fmt::Result {
        let value = |(name, it): (String, &Values)| (vec![("cluster", name)], ConstGauge::new(of(it)));
        let values: Vec<_> = self.by_cluster().map(value).collect();
        self.family(name, help, unit.as_ref(), values)
    }

    /// Encodes durations. The histogram exists even without observations, so that rates include the first
    /// one.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
        spans: impl Iterator<Item = Span>,
    ) -> fmt::Result {
        let histogram = Histogram::new(buckets.iter().copied());
        spans.for_each(|it| histogram.observe(it.as_secs_f64()));
        self.family(name, help, Some(&Unit::Seconds), [(vec![], histogram)])
    }

    /// Encodes a metric with its labelled values, or nothing if there are none.
    fn family<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl IntoIterator<Item = (Labels, M)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        let Some((_, first)) = values.peek() else { return Ok(()) };
        let mut family = self.encoder.encode_descriptor(name, help, unit, first.metric_type())?;
        for (labels, value) in values {
            if labels.is_empty() {
                return value.encode(family);
            }
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn number(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn span(span: Span) -> ConstGauge<f64> {
    ConstGauge::new(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::LinkProperties;
    use faultline_core::{Fault, FaultNo, HistoryNo, ProbeNo, ProcessId, StorageFate};

    use super::super::Sum;
    use super::super::page::RunInfo;
    use super::*;

    #[test]
    fn a_federation_with_many_clusters_has_no_series_for_links() {
        let links = |clusters: u16| {
            let sum = Sum::default();
            sum.0.update(|page| {
                let all = || (0..clusters).map(ClusterId);
                for pair in all().flat_map(|from| all().map(move |to| (from, to))) {
                    page.delays.insert(pair, (1, Span::from_millis(5)));
                }
            });
            sum.text().lines().filter(|it| it.starts_with("faultline_link_packets_total")).count()
        };
        assert_eq!([links(32), links(33)], [1024, 0]);
    }

    #[test]
    fn the_largest_federation_stays_below_the_sample_limit_of_the_chart() {
        let sum = Sum::default();
        sum.0.update(|page| {
            let outside = std::iter::once(ClusterId::OUTSIDE);
            for cluster in (0..256).map(ClusterId).chain(outside) {
                page.values.entry(cluster).or_default();
                page.run().clusters.insert(cluster, Uptime::default());
            }
            let all = || (0..32).map(ClusterId);
            for (from, to) in all().flat_map(|from| all().map(move |to| (from, to))) {
                page.delays.insert((from, to), (1, Span::from_millis(5)));
                page.requested.push(((from, to), LinkProperties::default()));
            }
            page.run().info = Some(RunInfo {
                federation: "large".to_owned(),
                protocol: "p".to_owned(),
                backend: "kubernetes",
                seed: 7,
                at_once_within: Span::from_millis(20),
                probes: vec!["write".to_owned()],
                histories: vec!["kv".to_owned()],
            });
            for (no, kind) in (0..).zip(Fault::KINDS) {
                let (is_at_once, state) = (false, FaultState::Effective);
                let entry = FaultEntry { kind, is_at_once, is_injected: true, state };
                page.run().faults.insert(FaultNo(no), entry);
            }
        });
        let series = sum.text().lines().filter(|it| !it.starts_with('#')).count();
        // See charts/faultline/templates/monitors.yaml.
        assert_eq!(series, 27 * 257 + 3 * 1024 + 74 + 4 * Fault::KINDS.len());
        assert!(series < 10_240);
    }

    #[test]
    fn a_run_shows_its_phase_verdict_and_faults() {
        let sum = Sum::default();
        sum.0.update(|page| {
            let counts = &mut page.values.entry(ClusterId(0)).or_default().counts;
            counts.lost = Span::from_secs(2);
            let samples = Samples { succeeded: 5, failed: 1, unknown: 0, latency: Span::from_millis(1500) };
            counts.probes.insert(ProbeNo(0), samples);
            counts.operations.insert(HistoryNo(0), [("read".to_owned(), samples)].into());
            let run = page.run();
            run.info = Some(RunInfo {
                federation: "pair".to_owned(),
                protocol: "p".to_owned(),
                backend: "local",
                seed: 7,
                at_once_within: Span::from_millis(20),
                probes: vec!["write".to_owned()],
                histories: vec!["kv".to_owned()],
            });
            run.phase = PhaseLabel::Running;
            let fault = Fault::pause(ProcessId(0), Span::from_secs(1));
            run.faults.insert(FaultNo(0), FaultEntry::new(&fault));
            let injected =
                FaultEntry { is_injected: true, state: FaultState::Effective, ..FaultEntry::new(&fault) };
            run.faults.insert(FaultNo(1), injected);
            let loss = Fault::kill(ClusterId(0), StorageFate::Kept);
            for (no, skew) in [(2, 19), (3, 21)] {
                run.faults.insert(FaultNo(no), FaultEntry::new(&loss));
                run.effects.insert(FaultNo(no), (Some(Span::from_millis(skew)), None));
            }
            // The effects of other faults may be apart.
            run.effects.insert(FaultNo(1), (Some(Span::from_millis(21)), None));
            run.detections.push(Span::from_millis(200));
            run.spares = 2;
        });
        let text = sum.text();
        let of_run = "federation=\"pair\",protocol=\"p\"";
        for line in [
            format!("faultline_run_info{{{of_run},backend=\"local\",seed=\"7\"}} 1"),
            format!("faultline_run_phase{{{of_run},phase=\"Running\"}} 1"),
            format!("faultline_run_phase{{{of_run},phase=\"Starting\"}} 0"),
            format!("faultline_run_verdict{{{of_run},verdict=\"pass\"}} 0"),
            format!("faultline_spares_free{{{of_run}}} 2"),
            format!("faultline_faults_planned{{{of_run},kind=\"pause\"}} 2"),
            format!("faultline_faults_injected_total{{{of_run},kind=\"pause\"}} 1"),
            format!("faultline_faults_effective_total{{{of_run},kind=\"pause\"}} 1"),
            format!("faultline_faults_ineffective_total{{{of_run},kind=\"pause\"}} 0"),
            format!("faultline_cluster_losses_apart{{{of_run}}} 1"),
            format!("faultline_detection_seconds_bucket{{{of_run},le=\"0.1\"}} 0"),
            format!("faultline_detection_seconds_bucket{{{of_run},le=\"0.3\"}} 1"),
            format!("faultline_lost_work_seconds_total{{{of_run},cluster=\"c0\"}} 2.0"),
            format!(
                "faultline_probe_samples_total{{{of_run},cluster=\"c0\",probe=\"write\",result=\"failed\"}} 1"
            ),
            format!("faultline_probe_seconds_total{{{of_run},cluster=\"c0\",probe=\"write\"}} 1.5"),
            format!(
                "faultline_probe_samples_total{{{of_run},cluster=\"c0\",probe=\"kv.read\",result=\"failed\"}} 1"
            ),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        sum.judged(VerdictLabel::Fail);
        let text = sum.text();
        assert!(text.contains(&format!("faultline_run_verdict{{{of_run},verdict=\"fail\"}} 1")), "{text}");
        assert!(text.contains(&format!("faultline_run_phase{{{of_run},phase=\"Completed\"}} 1")), "{text}");
    }
}
