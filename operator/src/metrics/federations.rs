//! The status of each federation as metrics, in the style of kube-state-metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use faultline_client::status::{FederationStatus, Phase};
use kube::ResourceExt;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// All phases, in order.
const PHASES: [Phase; 8] = [
    Phase::Pending,
    Phase::Rejected,
    Phase::Starting,
    Phase::Linking,
    Phase::Running,
    Phase::Paused,
    Phase::Completed,
    Phase::Deleting,
];
const VERDICTS: [&str; 3] = ["pass", "unknown", "fail"];

/// The federations, by UID. An entry is removed once its federation no longer exists.
#[derive(Clone, Debug, Default)]
pub(super) struct Federations(Arc<Mutex<BTreeMap<String, Exported>>>);

/// Exported properties of a federation.
#[derive(Clone, Debug)]
struct Exported {
    namespace: String,
    federation: String,
    protocol: String,
    phase: Phase,
    verdict: Option<String>,
    /// Conditions by kind, and whether each is `True`.
    conditions: Vec<(String, bool)>,
}

type Labels = Vec<(&'static str, String)>;

impl Federations {
    /// Exports the current status of a federation.
    pub(super) fn show(&self, federation: &impl ResourceExt, status: &FederationStatus) {
        let shown = Exported {
            namespace: federation.namespace().unwrap_or_default(),
            federation: federation.name_any(),
            protocol: status.protocol.clone().unwrap_or_default(),
            phase: status.phase,
            verdict: status.verdict.clone(),
            conditions: status.conditions.iter().map(|it| (it.kind.clone(), it.status == "True")).collect(),
        };
        let uid = federation.uid().unwrap_or_default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, shown);
    }

    /// Removes the federation with this UID.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

impl Exported {
    /// Returns the labels of a series about this federation.
    fn labels(&self, name: &'static str, value: String) -> Labels {
        let Exported { namespace, federation, .. } = self;
        vec![("namespace", namespace.clone()), ("federation", federation.clone()), (name, value)]
    }
}

impl Collector for Federations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<Exported> =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let info = all.iter().map(|it| (it.labels("protocol", it.protocol.clone()), true));
        family(&mut encoder, "federation_info", "Federation and its protocol; always 1", info)?;
        let phases = all
            .iter()
            .flat_map(|it| PHASES.map(|of| (it.labels("phase", format!("{of:?}")), of == it.phase)));
        family(&mut encoder, "federation_phase", "1 for the current phase, 0 for the others", phases)?;
        let verdicts = all.iter().flat_map(|it| {
            VERDICTS.map(|of| (it.labels("verdict", of.to_owned()), it.verdict.as_deref() == Some(of)))
        });
        family(
            &mut encoder,
            "federation_verdict",
            "1 for the verdict of the run once it is known, otherwise 0",
            verdicts,
        )?;
        let conditions = all.iter().flat_map(|it| {
            it.conditions.iter().map(|(kind, holds)| (it.labels("condition", kind.clone()), *holds))
        });
        family(&mut encoder, "federation_condition", "1 if the condition is true, otherwise 0", conditions)
    }
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, bool)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let gauge = |it: bool| ConstGauge::new(u64::from(it));
    let mut family = encoder.encode_descriptor(name, help, None, gauge(true).metric_type())?;
    for (labels, holds) in values {
        gauge(holds).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
