//! What a bundle says of its run, drawn up before the run from the federation as it will be run.

use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_api::resource::{Protocol, StorageKind};
use faultline_catalog::Setup;
use faultline_core::{ClusterId, Span};
use faultline_trace::Manifest;
use faultline_trace::manifest::{
    Backend, Bounds, ClusterEntry, Expected, FORMAT, LinkEntry, ProcessEntry, ProtocolKind,
};

/// The manifest of a run that has not begun. `text` is the federation as its user wrote it.
pub(crate) fn draft<P: faultline_core::Protocol>(
    federation: &Federation,
    text: &str,
    setup: &Setup<P>,
    backend: Backend,
) -> Manifest {
    let spec = &federation.spec;
    let members = setup.membership.members.iter();
    let processes = setup.names.processes().into_iter().zip(members);
    let links =
        setup.links.iter().filter(|((from, to), _)| ClusterId::OUTSIDE != *from && ClusterId::OUTSIDE != *to);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Manifest {
        format: FORMAT,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        backend,
        seed: setup.seed,
        federation: text.to_owned(),
        protocol: match spec.protocol {
            Protocol::Hc3i(_) => ProtocolKind::Hc3i,
            Protocol::Coordinated(_) => ProtocolKind::Coordinated,
            Protocol::None(_) => ProtocolKind::None,
        },
        clusters: spec
            .clusters
            .iter()
            .map(|it| ClusterEntry { name: it.name.clone(), nodes: it.nodes })
            .collect(),
        processes: processes
            .map(|(name, member)| ProcessEntry { name, role: member.role, cluster: member.cluster })
            .collect(),
        bounds: bounds(federation),
        volatile_storage: spec.storage().kind == StorageKind::Memory,
        plan: setup.supervisor.plan.clone(),
        faults: Vec::new(),
        links: links
            .map(|(&(from, to), &requested)| LinkEntry { from, to, requested, measured: None })
            .collect(),
        expected: None,
        outcome: None,
        started_unix_ms: started.as_millis() as u64,
        duration: Span::ZERO,
    }
}

/// The results of a run without faults: those of the application's sequential reference, when it has one.
pub(crate) fn expected<P: faultline_core::Protocol>(setup: &Setup<P>) -> Option<Expected> {
    let digests = setup.reference()?;
    Some(Expected { source: "the sequential reference".to_owned(), digests })
}

/// What bounds the work that a rollback may lose; nothing does where no checkpoints are taken.
fn bounds(federation: &Federation) -> Option<Bounds> {
    let spec = &federation.spec;
    let every = spec.protocol.checkpointing()?.every;
    let of_cluster = |name: &str| match &spec.protocol {
        Protocol::Hc3i(it) => it.checkpoint_every_in.get(name).map_or(every, |it| it.0),
        Protocol::Coordinated(_) | Protocol::None(_) => every,
    };
    Some(Bounds {
        checkpoint_every: spec.clusters.iter().map(|it| of_cluster(&it.name)).collect(),
        detect_after: spec.failures().detect_after(),
    })
}
