//! Statistics of a failure trace. `docs/failures.md` defines each of them.

use faultline_core::{Span, Time};
use serde::Serialize;

use crate::weibull::Weibull;
use crate::{FailureTrace, FaultRecord, Format, Skipped};

/// The times within which faults form a group, in seconds.
const WITHIN: [u64; 3] = [60, 600, 3600];

/// The statistics of a failure trace, as in `traces.json`. A value that needs more faults than there are is `None`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// The format of the file.
    pub format: Format,
    /// The number of faults.
    pub faults: usize,
    /// The number of observed nodes.
    pub nodes: usize,
    /// The number of nodes with at least one fault.
    pub nodes_hit: usize,
    /// The time from the first start to the last event.
    pub span_seconds: f64,
    /// The times between successive faults.
    pub gaps: Gaps,
    /// The fit to the gaps above 0.
    pub weibull: Option<Weibull>,
    /// The faults of single nodes.
    pub per_node: PerNode,
    /// Faults at the same instant.
    pub instants: Instants,
    /// Faults in quick succession.
    pub groups: Vec<Groups>,
    /// Repair times.
    pub repair: Repair,
    /// The number of nodes that are down at once; `None` if the trace has no duration.
    pub down_at_once: Option<DownAtOnce>,
    /// The causes, most frequent first.
    pub causes: Vec<Cause>,
    /// Records that were skipped.
    pub skipped: Vec<Skipped>,
}

/// The differences of the starts of successive faults.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gaps {
    /// The number of gaps.
    pub count: usize,
    /// The number of gaps of 0.
    pub zero: usize,
    /// The mean time between faults (MTBF).
    pub mean_seconds: Option<f64>,
    /// The median.
    pub median_seconds: Option<f64>,
    /// The sample standard deviation, divided by the mean.
    pub variation: Option<f64>,
}

/// The faults of single nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PerNode {
    /// The mean time between faults of one node: the MTBF times the number of observed nodes.
    pub mean_seconds: Option<f64>,
    /// The largest number of faults of one node.
    pub most: usize,
    /// The smallest number of nodes that have at least half of the faults.
    pub half_on: usize,
}

/// Faults at the same instant.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instants {
    /// The number of instants with several faults.
    pub several: usize,
    /// The largest number of faults at one instant.
    pub most: usize,
}

/// Maximal runs of faults with gaps of at most a given time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Groups {
    /// The longest gap within a group.
    pub within_seconds: u64,
    /// The number of groups, including those of a single fault.
    pub groups: usize,
    /// The number of groups of several faults.
    pub several: usize,
    /// The size of the largest group.
    pub largest: usize,
}

/// How long nodes were unavailable.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// The number of faults with a known repair time.
    pub known: usize,
    /// The number of faults without one.
    pub unknown: usize,
    /// The mean.
    pub mean_seconds: Option<f64>,
    /// The median.
    pub median_seconds: Option<f64>,
    /// The 90 % quantile.
    pub p90_seconds: Option<f64>,
    /// The longest repair.
    pub longest_seconds: Option<f64>,
}

/// The number of nodes that are down at once, weighted by time. Faults with an unknown repair time do not count.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DownAtOnce {
    /// The mean.
    pub mean: f64,
    /// The number that is not exceeded for 90 % of the time.
    pub p90: usize,
    /// The number that is not exceeded for 99 % of the time.
    pub p99: usize,
    /// The largest number.
    pub most: usize,
}

/// The faults with one cause.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The name of the cause.
    pub cause: String,
    /// The number of faults.
    pub faults: usize,
    /// Their share of all faults.
    pub percent: f64,
    /// The median of the known repair times.
    pub median_repair_seconds: Option<f64>,
}

impl Statistics {
    /// Computes the statistics.
    pub fn of(trace: &FailureTrace) -> Statistics {
        let faults = &trace.faults;
        let mut sorted = gaps(faults);
        let (gaps, weibull) = {
            let all: Vec<f64> = sorted.iter().map(|it| it.as_secs_f64()).collect();
            sorted.sort_unstable();
            (Gaps::of(&all, &sorted), fit(&sorted))
        };
        let mut of_nodes = vec![0_usize; trace.nodes.len()];
        faults.iter().for_each(|it| of_nodes[it.node as usize] += 1);
        of_nodes.retain(|it| *it > 0);
        of_nodes.sort_unstable_by(|one, other| other.cmp(one));
        let span = faults.first().map_or(Span::ZERO, |it| trace.last_event().since(it.start));
        Statistics {
            format: trace.format,
            faults: faults.len(),
            nodes: trace.observed,
            nodes_hit: of_nodes.len(),
            span_seconds: span.as_secs_f64(),
            per_node: PerNode::of(&of_nodes, faults.len(), gaps.mean_seconds, trace.observed),
            gaps,
            weibull,
            instants: Instants::of(faults),
            groups: WITHIN.iter().map(|it| Groups::of(faults, *it)).collect(),
            repair: Repair::of(faults),
            down_at_once: DownAtOnce::of(trace),
            causes: causes(trace),
            skipped: trace.skipped.clone(),
        }
    }
}

/// Returns the gaps, in the order of the faults.
pub(crate) fn gaps(faults: &[FaultRecord]) -> Vec<Span> {
    faults.windows(2).map(|it| it[1].start.since(it[0].start)).collect()
}

/// Fits the Weibull distribution to those of the ascending gaps that are above 0.
pub(crate) fn fit(sorted: &[Span]) -> Option<Weibull> {
    let above = sorted.iter().filter(|it| **it > Span::ZERO);
    Weibull::fit(&above.map(|it| it.as_secs_f64()).collect::<Vec<_>>())
}

impl Gaps {
    fn of(all: &[f64], sorted: &[Span]) -> Gaps {
        let mean = mean(all);
        let variation = mean.filter(|it| *it > 0.0 && all.len() > 1).map(|mean| {
            let squares: f64 = all.iter().map(|it| (it - mean).powi(2)).sum();
            (squares / (all.len() - 1) as f64).sqrt() / mean
        });
        Gaps {
            count: all.len(),
            zero: sorted.iter().take_while(|it| **it == Span::ZERO).count(),
            mean_seconds: mean,
            median_seconds: quantile(sorted, 0.5),
            variation,
        }
    }
}

impl PerNode {
    /// `of_nodes` are the numbers of faults of the nodes, largest first.
    fn of(of_nodes: &[usize], faults: usize, mtbf: Option<f64>, observed: usize) -> PerNode {
        let mut counted = 0;
        let before_half = of_nodes.iter().take_while(|it| {
            let is_before = counted * 2 < faults;
            counted += **it;
            is_before
        });
        PerNode {
            half_on: before_half.count(),
            mean_seconds: mtbf.map(|it| it * observed as f64),
            most: of_nodes.first().copied().unwrap_or(0),
        }
    }
}

impl Instants {
    fn of(faults: &[FaultRecord]) -> Instants {
        let sizes = || faults.chunk_by(|one, other| one.start == other.start).map(<[_]>::len);
        Instants { several: sizes().filter(|it| *it > 1).count(), most: sizes().max().unwrap_or(0) }
    }
}

impl Groups {
    fn of(faults: &[FaultRecord], within_seconds: u64) -> Groups {
        let within = Span::from_secs(within_seconds);
        let sizes = || faults.chunk_by(|one, other| other.start.since(one.start) <= within).map(<[_]>::len);
        Groups {
            within_seconds,
            groups: sizes().count(),
            several: sizes().filter(|it| *it > 1).count(),
            largest: sizes().max().unwrap_or(0),
        }
    }
}

impl Repair {
    fn of(faults: &[FaultRecord]) -> Repair {
        let known = repairs(faults.iter());
        Repair {
            known: known.len(),
            unknown: faults.len() - known.len(),
            mean_seconds: mean(&known.iter().map(|it| it.as_secs_f64()).collect::<Vec<_>>()),
            median_seconds: quantile(&known, 0.5),
            p90_seconds: quantile(&known, 0.9),
            longest_seconds: known.last().map(|it| it.as_secs_f64()),
        }
    }
}

/// Returns the known repair times, ascending.
pub(crate) fn repairs<'a>(faults: impl Iterator<Item = &'a FaultRecord>) -> Vec<Span> {
    let mut known: Vec<Span> = faults.filter_map(|it| it.repair()).collect();
    known.sort_unstable();
    known
}

fn causes(trace: &FailureTrace) -> Vec<Cause> {
    let mut repairs = vec![(0_usize, Vec::new()); trace.causes.len()];
    for fault in &trace.faults {
        let (faults, known) = &mut repairs[fault.cause as usize];
        *faults += 1;
        known.extend(fault.repair());
    }
    let all = trace.causes.iter().zip(repairs);
    let mut causes: Vec<Cause> = all
        .filter(|(_, (faults, _))| *faults > 0)
        .map(|(name, (faults, mut known))| {
            known.sort_unstable();
            Cause {
                cause: name.clone(),
                faults,
                percent: 100.0 * faults as f64 / trace.faults.len() as f64,
                median_repair_seconds: quantile(&known, 0.5),
            }
        })
        .collect();
    // Equally frequent causes keep the order of the file.
    causes.sort_by_key(|it| std::cmp::Reverse(it.faults));
    causes
}

/// How the number of nodes that are down changes: each time at which it does, and the new number. Several
/// faults of one node at once count as one.
pub(crate) fn down(trace: &FailureTrace) -> Vec<(Time, u32)> {
    let faults = &trace.faults;
    let mut order: Vec<u32> = (0..faults.len() as u32).collect();
    order.retain(|it| faults[*it as usize].repair().is_some_and(|it| it > Span::ZERO));
    order.sort_unstable_by_key(|it| (faults[*it as usize].node, *it));
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for of_node in order.chunk_by(|one, other| faults[*one as usize].node == faults[*other as usize].node) {
        let mut until: Option<Time> = None;
        for fault in of_node.iter().map(|it| faults[*it as usize]) {
            let Some(end) = fault.end() else { continue };
            match until {
                Some(last) if fault.start <= last => until = Some(last.max(end)),
                _ => {
                    ends.extend(until);
                    starts.push(fault.start);
                    until = Some(end);
                }
            }
        }
        ends.extend(until);
    }
    drop(order);
    starts.sort_unstable();
    ends.sort_unstable();
    let (mut started, mut ended) = (0, 0);
    let mut changes = Vec::new();
    while ended < ends.len() {
        let at = starts.get(started).map_or(ends[ended], |it| ends[ended].min(*it));
        started += starts[started..].iter().take_while(|it| **it == at).count();
        ended += ends[ended..].iter().take_while(|it| **it == at).count();
        changes.push((at, (started - ended) as u32));
    }
    changes
}

impl DownAtOnce {
    fn of(trace: &FailureTrace) -> Option<DownAtOnce> {
        let (first, last) = (trace.faults.first()?.start, trace.last_event());
        let total = u128::from(last.since(first).0);
        if total == 0 {
            return None;
        }
        // The time for which each number of nodes is down.
        let mut times: Vec<u128> = vec![0];
        let mut add = |number: u32, time: Span| {
            let number = number as usize;
            times.resize(times.len().max(number + 1), 0);
            times[number] += u128::from(time.0);
        };
        let (mut since, mut number) = (first, 0);
        for (at, next) in down(trace) {
            add(number, at.since(since));
            (since, number) = (at, next);
        }
        add(number, last.since(since));
        let exceeded_less_than = |percent: u128| {
            let mut sum = 0;
            let before = times.iter().take_while(|it| {
                let is_before = sum * 100 < total * percent;
                sum += **it;
                is_before
            });
            before.count() - 1
        };
        let weighted: f64 = times.iter().enumerate().map(|(number, it)| number as f64 * *it as f64).sum();
        Some(DownAtOnce {
            mean: weighted / total as f64,
            p90: exceeded_less_than(90),
            p99: exceeded_less_than(99),
            most: times.iter().rposition(|it| *it > 0).unwrap_or(0),
        })
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Interpolates linearly between the two nearest values (type 7 of Hyndman and Fan). Returns seconds.
fn quantile(sorted: &[Span], share: f64) -> Option<f64> {
    let place = share * (sorted.len().checked_sub(1)?) as f64;
    let (below, above) = (sorted[place.floor() as usize].0, sorted[place.ceil() as usize].0);
    // To the nanosecond, as all times.
    let more = (above - below) as f64 * (place - place.floor());
    Some(Span(below + more.round() as u64).as_secs_f64())
}
