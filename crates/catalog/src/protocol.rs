//! From the protocol's options to its configuration.

use faultline_api::resource::{self, FederationSpec, Protocol};
use faultline_core::Span;
use faultline_protocols::hc3i::{Config, Defects, Piggyback, ReplicateTo, Scope};

use crate::{Defect, SetupError};

/// Parameters of HC3I, which is also the coordinated baseline when its scope is the federation.
pub(crate) fn hc3i(
    spec: &FederationSpec,
    scope: Scope,
    defect: Option<Defect>,
) -> Result<Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    let every = |cluster: &resource::Cluster| match &spec.protocol {
        Protocol::Hc3i(hc3i) => {
            hc3i.checkpoint_every_in.get(&cluster.name).map_or(checkpointing.every, |it| it.0)
        }
        _ => checkpointing.every,
    };
    Ok(Config {
        checkpoint_every: spec.clusters.iter().map(every).collect(),
        collect_every: checkpointing.collect_every,
        replicas: checkpointing.replicas as u16,
        replicate_to: match checkpointing.replicate_to {
            resource::ReplicateTo::SameCluster => ReplicateTo::SameCluster,
            resource::ReplicateTo::OtherCluster => ReplicateTo::OtherCluster,
            resource::ReplicateTo::SharedStorage => ReplicateTo::SharedStorage,
        },
        scope,
        piggyback: match &spec.protocol {
            Protocol::Hc3i(resource::Hc3i { piggyback: Some(resource::Piggyback::Ddv), .. }) => {
                Piggyback::Ddv
            }
            _ => Piggyback::Sn,
        },
        retry_every: retry_every(spec),
        defects: defects(defect)?,
    })
}

#[cfg(feature = "defects")]
fn defects(defect: Option<Defect>) -> Result<Defects, SetupError> {
    Ok(match defect {
        None => Defects::default(),
        Some(Defect::Hc3i(defect)) => Defects::only(defect),
    })
}

#[cfg(not(feature = "defects"))]
fn defects(defect: Option<Defect>) -> Result<Defects, SetupError> {
    match defect {
        None => Ok(Defects::default()),
        Some(_) => Err(SetupError::WithoutDefects),
    }
}

/// Long enough that an answer over the slowest link is there in time, so that nothing is asked twice for no reason.
fn retry_every(spec: &FederationSpec) -> Span {
    let links = spec.links();
    let pairs = links.pairs.iter().map(|pair| links.properties(&pair.from, &pair.to));
    let slowest = pairs.chain([links.within(), links.between()]).map(|it| it.latency + it.jitter).max();
    (slowest.unwrap_or_default() * 4).max(Span::from_millis(200))
}
