//! The mean time between the random faults of a federation, and the same federation with another mean.

use faultline_core::{Span, Time};

use crate::failure_trace::{chosen, parsed};
use crate::quantity::Duration;
use crate::resource::{Federation, FederationSpec, Mtbf, NodeChoice, TraceTrigger, Uniform, Weibull};

/// Returns the mean time between the faults that all `mtbf` and `trace` entries of a valid federation cause together, in
/// seconds. Returns `None` if they cause none.
pub fn mean_between_faults(spec: &FederationSpec) -> Option<f64> {
    let ranks: u32 = spec.clusters.iter().map(|it| it.nodes).sum();
    let of_mtbf = spec.faults.iter().filter_map(|it| Some(1.0 / mean(it.mtbf.as_ref()?, ranks)));
    let of_traces = spec.faults.iter().filter_map(|it| rate(it.trace.as_ref()?, ranks));
    let rate: f64 = of_mtbf.chain(of_traces).sum();
    (rate > 0.0).then(|| 1.0 / rate)
}

/// Returns the federation in which all `mtbf` and `trace` entries are scaled by one factor, so that `mean` is the mean time
/// between the faults that they cause together. Failures of a trace last as long as before. Returns `None` if the
/// federation has no such entry.
pub fn with_mean_between_faults(federation: &Federation, mean: Duration) -> Option<Federation> {
    let factor = mean.0.as_secs_f64() / mean_between_faults(&federation.spec)?;
    let scaled = |it: Duration| Duration(Span(((it.0.0 as f64 * factor).round() as u64).max(1)));
    let mut other = federation.clone();
    for fault in &mut other.spec.faults {
        match &mut fault.mtbf {
            Some(Mtbf::Exponential(mean) | Mtbf::PerNode(mean)) => *mean = scaled(*mean),
            Some(Mtbf::Preset(it)) => it.speed = Some(it.speed.unwrap_or(1.0) / factor),
            Some(Mtbf::Weibull(weibull)) => weibull.scale = scaled(weibull.scale),
            Some(Mtbf::Uniform(Uniform { least, most })) => (*least, *most) = (scaled(*least), scaled(*most)),
            None => {}
        }
        if let Some(trace) = &mut fault.trace {
            let speed = trace.speed();
            trace.repair_speed.get_or_insert(speed);
            trace.speed = Some(speed / factor);
        }
    }
    Some(other)
}

/// Returns the time after which the shortest of the federation's failure traces has no more failures, in seconds;
/// `None` if there is no trace.
pub fn traces_end(spec: &FederationSpec) -> Option<f64> {
    let end = |it: &TraceTrigger| Some(parsed(it).ok()?.last_event().as_secs_f64() / it.speed());
    spec.faults.iter().filter_map(|it| end(it.trace.as_ref()?)).min_by(f64::total_cmp)
}

/// Returns the mean of a distribution for a federation with `ranks` nodes, in seconds.
fn mean(mtbf: &Mtbf, ranks: u32) -> f64 {
    match mtbf {
        Mtbf::Weibull(Weibull { scale, shape }) => scale.0.as_secs_f64() * libm::tgamma(1.0 + 1.0 / shape),
        Mtbf::Uniform(Uniform { least, most }) => (least.0.as_secs_f64() + most.0.as_secs_f64()) / 2.0,
        _ => mtbf.exponential_mean(ranks).unwrap_or(f64::INFINITY),
    }
}

/// Returns the number of failures of a trace that hit the federation per second.
fn rate(trace: &TraceTrigger, ranks: u32) -> Option<f64> {
    trace.data.as_ref()?;
    let all = parsed(trace).ok()?;
    let share = match trace.nodes.unwrap_or_default() {
        NodeChoice::Fold => 1.0,
        NodeChoice::Sample => f64::from(ranks) / all.observed.max(1) as f64,
    };
    let starts: Vec<Time> = chosen(trace, &all).map(|it| it.start).collect();
    // As in the statistics of a trace: the mean of the gaps, or the whole trace if all faults coincide.
    let gaps = starts.last()?.since(*starts.first()?);
    let (faults, lasts) = match gaps > Span::ZERO {
        true => (starts.len() - 1, gaps),
        false => (starts.len(), all.last_event().since(Time::ZERO)),
    };
    (lasts > Span::ZERO).then(|| faults as f64 * share * trace.speed() / lasts.as_secs_f64())
}
