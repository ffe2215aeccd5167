//! What a bundle says of its run, drawn up before the run from the federation as it will be run.

use std::time::{SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_api::resource::StorageKind;
use faultline_catalog::Setup;
use faultline_core::{ClusterId, Span};
use faultline_experiments::simulate::{bounds, protocol_kind};
use faultline_trace::Manifest;
use faultline_trace::manifest::{Backend, ClusterEntry, Expected, FORMAT, LinkEntry, ProcessEntry};

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
        name: federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned()),
        backend,
        seed: setup.seed,
        federation: text.to_owned(),
        protocol: protocol_kind(spec),
        clusters: spec
            .clusters
            .iter()
            .map(|it| ClusterEntry { name: it.name.clone(), nodes: it.nodes })
            .collect(),
        processes: processes
            .map(|(name, member)| ProcessEntry { name, role: member.role, cluster: member.cluster })
            .collect(),
        bounds: bounds(spec),
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
