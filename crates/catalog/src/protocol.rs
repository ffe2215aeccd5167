//! Translates the protocol's options into its configuration.

use std::sync::Arc;

use faultline_api::resource::{self, Checkpointing, FederationSpec, ProtocolSpec};
use faultline_core::Span;
use faultline_dataflow::partition::RerunOptions;
use faultline_protocols::hc3i::{self, CollectBy, Config, Forcing, Piggyback};
use faultline_protocols::placement::{Placement, ReplicateTo};
use faultline_protocols::{
    LoggingOptions, Options, cck, chandy_lamport, coordinated, full_logging, hydee, independent,
    pessimistic_logging, satin, spbc, theft,
};

use crate::defect::{AVAILABLE, Rule};
use crate::tasks::NEVER;
use crate::{Defect, SetupError};

/// Evaluates to the protocol's defects with `$defect` enabled. If the protocol does not have that defect,
/// returns an error from the enclosing function. Defects of the supervisor and of the composite are enabled
/// elsewhere. The composite exists only if processes exchange messages.
macro_rules! defects {
    (messages, $defect:expr, $protocol:ident, $rule:ident) => {
        defects!(@ $defect, $protocol, $rule, None | Some((_, Rule::Composite(_) | Rule::Supervisor(_))))
    };
    (tasks, $defect:expr, $protocol:ident, $rule:ident) => {
        defects!(@ $defect, $protocol, $rule, None | Some((_, Rule::Supervisor(_))))
    };
    (@ $defect:expr, $protocol:ident, $rule:ident, $none:pat) => {
        match $defect.map(|it| (it, it.rule())) {
            $none => $protocol::Defects::default(),
            #[cfg(debug_assertions)]
            Some((_, Rule::$rule(rule))) => $protocol::Defects::only(rule),
            Some((defect, _)) => return Err(not_applicable(defect)),
        }
    };
}

/// Returns the parameters of HC3I.
pub(crate) fn hc3i(spec: &FederationSpec, defect: Option<Defect>) -> Result<Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    Ok(Config {
        checkpoint_every: checkpoint_every(spec, checkpointing.every),
        collect_every: checkpointing.collect_every,
        collect_by: match &spec.protocol {
            ProtocolSpec::Hc3i(resource::Hc3i {
                collect_by: Some(resource::CollectBy::EveryCluster),
                ..
            }) => CollectBy::EveryCluster,
            _ => CollectBy::Initiator,
        },
        replicas: checkpointing.replicas as u16,
        replicate_to: replicate_to(checkpointing.replicate_to),
        piggyback: match &spec.protocol {
            ProtocolSpec::Hc3i(resource::Hc3i { piggyback: Some(resource::Piggyback::Ddv), .. }) => {
                Piggyback::Ddv
            }
            _ => Piggyback::Sn,
        },
        forcing: match &spec.protocol {
            ProtocolSpec::Hc3i(resource::Hc3i { forcing: Some(resource::Forcing::EveryMessage), .. }) => {
                Forcing::EveryMessage
            }
            _ => Forcing::News,
        },
        retry_every: retry_every(spec),
        defects: defects!(messages, defect, hc3i, Hc3i),
    })
}

/// Returns the parameters of independent checkpoints.
pub(crate) fn independent(
    spec: &FederationSpec,
    defect: Option<Defect>,
) -> Result<independent::Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    Ok(independent::Config {
        checkpoint_every: checkpoint_every(spec, checkpointing.every),
        collect_every: checkpointing.collect_every,
        placement: placement(checkpointing),
        retry_every: retry_every(spec),
        defects: defects!(messages, defect, independent, Independent),
    })
}

/// Returns the parameters of coordinated checkpoints.
pub(crate) fn coordinated(
    spec: &FederationSpec,
    coordination: coordinated::Coordination,
    defect: Option<Defect>,
) -> Result<coordinated::Config, SetupError> {
    let defects = defects!(messages, defect, coordinated, Coordinated);
    Ok(coordinated::Config { options: options(spec, defects), coordination })
}

/// Returns the parameters of Chandy and Lamport's snapshot.
pub(crate) fn chandy_lamport(
    spec: &FederationSpec,
    defect: Option<Defect>,
) -> Result<chandy_lamport::Config, SetupError> {
    let defects = defects!(messages, defect, chandy_lamport, ChandyLamport);
    Ok(options(spec, defects))
}

/// Returns the parameters of a protocol that takes checkpoints of the whole federation.
fn options<D>(spec: &FederationSpec, defects: D) -> Options<D> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    Options {
        checkpoint_every: checkpointing.every,
        collect_every: checkpointing.collect_every,
        placement: placement(checkpointing),
        retry_every: retry_every(spec),
        defects,
    }
}

/// Returns the reason why a defect cannot be enabled.
fn not_applicable(defect: Defect) -> SetupError {
    match AVAILABLE {
        true => SetupError::ForeignDefect(defect),
        false => SetupError::WithoutDefects,
    }
}

/// Returns the parameters of HydEE.
pub(crate) fn hydee(spec: &FederationSpec, defect: Option<Defect>) -> Result<hydee::Config, SetupError> {
    Ok(logging(spec, defects!(messages, defect, hydee, Hydee)))
}

/// Returns the parameters of full logging.
pub(crate) fn full_logging(
    spec: &FederationSpec,
    defect: Option<Defect>,
) -> Result<full_logging::Config, SetupError> {
    Ok(logging(spec, defects!(messages, defect, full_logging, FullLogging)))
}

/// Returns the parameters of SPBC.
pub(crate) fn spbc(spec: &FederationSpec, defect: Option<Defect>) -> Result<spbc::Config, SetupError> {
    Ok(logging(spec, defects!(messages, defect, spbc, Spbc)))
}

/// Returns the parameters of pessimistic logging.
pub(crate) fn pessimistic_logging(
    spec: &FederationSpec,
    defect: Option<Defect>,
) -> Result<pessimistic_logging::Config, SetupError> {
    Ok(logging(spec, defects!(messages, defect, pessimistic_logging, Pessimistic)))
}

/// Returns the parameters of a protocol that logs the messages between groups.
fn logging<D>(spec: &FederationSpec, defects: D) -> LoggingOptions<D> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    LoggingOptions {
        checkpoint_every: checkpoint_every(spec, checkpointing.every),
        placement: placement(checkpointing),
        log_memory: spec.protocol.shared_options().log_memory.map(|it| it.0),
        retry_every: retry_every(spec),
        defects,
    }
}

/// Returns the parameters of TIC or SEL, which differ in their `record`.
pub(crate) fn theft(
    spec: &FederationSpec,
    record: theft::StableState,
    defect: Option<Defect>,
) -> Result<theft::Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    let cp0 = match &spec.protocol {
        ProtocolSpec::Tic(it) => it.cp0.unwrap_or_default(),
        _ => resource::Cp0::None,
    };
    Ok(theft::Config {
        tau: checkpointing.every.unwrap_or(NEVER),
        record,
        before_asking: cp0 == resource::Cp0::Each,
        replicas: checkpointing.replicas as u16,
        replicate_to: replicate_to(checkpointing.replicate_to),
        defects: defects!(tasks, defect, theft, Theft),
    })
}

/// Returns the parameters of Satin, which has no options other than the enabled defect.
pub(crate) fn satin(defect: Option<Defect>) -> Result<satin::Config, SetupError> {
    let defects = defects!(tasks, defect, satin, Satin);
    Ok(satin::Config { defects })
}

/// Returns the parameters of CCK.
pub(crate) fn cck(
    spec: &FederationSpec,
    options: &resource::Cck,
    defect: Option<Defect>,
) -> Result<cck::Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    Ok(cck::Config {
        interval: checkpointing.every.unwrap_or(NEVER),
        coordination: match options.coordination.unwrap_or_default() {
            resource::Coordination::Neighbours => cck::Coordination::Neighbours,
            resource::Coordination::Global => cck::Coordination::Global,
        },
        replicas: checkpointing.replicas as u16,
        servers: options.servers.unwrap_or(checkpointing.replicas) as u16,
        replicate_to: replicate_to(checkpointing.replicate_to),
        rerun: RerunOptions {
            from_memory: options.from_memory.unwrap_or(false),
            spread: options.spread.unwrap_or(false),
        },
        defects: defects!(tasks, defect, cck, Cck),
    })
}

/// Returns the delay between checkpoints of each cluster.
fn checkpoint_every(spec: &FederationSpec, every: Option<Span>) -> Arc<[Option<Span>]> {
    let own = spec.protocol.shared_options().checkpoint_every_in;
    spec.clusters.iter().map(|cluster| own.get(&cluster.name).map_or(every, |it| it.0)).collect()
}

/// Returns the placement of the replicas of checkpoints.
fn placement(checkpointing: Checkpointing) -> Placement {
    Placement { replicas: checkpointing.replicas as u16, to: replicate_to(checkpointing.replicate_to) }
}

fn replicate_to(to: resource::ReplicateTo) -> ReplicateTo {
    match to {
        resource::ReplicateTo::SameCluster => ReplicateTo::SameCluster,
        resource::ReplicateTo::OtherCluster => ReplicateTo::OtherCluster,
        resource::ReplicateTo::SharedStorage => ReplicateTo::SharedStorage,
    }
}

/// Returns a delay that is long enough for a response over the slowest link, so that no request is repeated
/// unnecessarily.
fn retry_every(spec: &FederationSpec) -> Span {
    let links = spec.links();
    let pairs = links.pairs.iter().map(|pair| links.properties(&pair.from, &pair.to));
    let slowest = pairs.chain([links.within(), links.between()]).map(|it| it.latency + it.jitter).max();
    (slowest.unwrap_or_default() * 4).max(Span::from_millis(200))
}
