//! Translates the options of protocols into their configurations.

use std::sync::Arc;

use faultline_api::resource::{self, Checkpointing, FederationSpec, ProtocolSpec};
use faultline_core::Span;
use faultline_dataflow::partition::RerunOptions;
use faultline_protocols::coordinated::{self, Coordination};
use faultline_protocols::hc3i::{self, CollectBy, Config, Forcing, Piggyback};
use faultline_protocols::placement::{Placement, ReplicateTo};
use faultline_protocols::{
    LoggingOptions, Options, cck, chandy_lamport, hydee, independent, pessimistic_logging, satin, spbc, theft,
};

use crate::any::AnyConfig;
use crate::defect::AVAILABLE;
#[cfg(debug_assertions)]
use crate::defect::CodeDefect;
use crate::{Defect, SetupError, custom, program};

/// The period of a disabled timer: one hundred years.
const NEVER: Span = Span::from_secs(100 * 365 * 24 * 3600);

/// Evaluates to the protocol's defects with `$defect` enabled. If the protocol does not have that defect, returns an error
/// from the enclosing function.
macro_rules! defects {
    ($defect:expr, $protocol:ident, $code:ident) => {
        match $defect.map(|it| (it, it.in_code())) {
            None => $protocol::Defects::default(),
            #[cfg(debug_assertions)]
            Some((_, CodeDefect::$code(it))) => $protocol::Defects::only(it),
            Some((defect, _)) => return Err(not_applicable(defect)),
        }
    };
}

/// Returns the configuration of the protocol of a federation whose processes exchange messages, with `defect` enabled.
pub(crate) fn config(spec: &FederationSpec, defect: Option<Defect>) -> Result<AnyConfig, SetupError> {
    if defect.is_some() && !AVAILABLE {
        return Err(SetupError::WithoutDefects);
    }
    let global = |coordination| -> Result<AnyConfig, SetupError> {
        let options = options(spec, defects!(defect, coordinated, Coordinated));
        Ok(AnyConfig::Coordinated(Arc::new(coordinated::Config { options, coordination })))
    };
    let config = match &spec.protocol {
        ProtocolSpec::Hc3i(_) => AnyConfig::Hc3i(Arc::new(hc3i(spec, defect)?)),
        ProtocolSpec::Hydee(_) => AnyConfig::Hydee(Arc::new(logging(spec, defects!(defect, hydee, Hydee)))),
        ProtocolSpec::Spbc(_) => AnyConfig::Spbc(Arc::new(logging(spec, defects!(defect, spbc, Spbc)))),
        ProtocolSpec::PessimisticLogging(_) => {
            let defects = defects!(defect, pessimistic_logging, Pessimistic);
            AnyConfig::PessimisticLogging(Arc::new(logging(spec, defects)))
        }
        ProtocolSpec::Independent(_) => AnyConfig::Independent(Arc::new(independent(spec, defect)?)),
        ProtocolSpec::Coordinated(_) => global(Coordination::Direct)?,
        ProtocolSpec::HierarchicalCoordinated(_) => global(Coordination::Hierarchical)?,
        ProtocolSpec::ChandyLamport(_) => {
            let defects = defects!(defect, chandy_lamport, ChandyLamport);
            AnyConfig::ChandyLamport(Arc::new(options(spec, defects)))
        }
        ProtocolSpec::FullLogging(_) => {
            without_defects(defect)?;
            AnyConfig::FullLogging(Arc::new(logging(spec, ())))
        }
        ProtocolSpec::None(_) => {
            without_defects(defect)?;
            AnyConfig::None(Arc::new(()))
        }
        ProtocolSpec::Custom(it) => {
            without_defects(defect)?;
            let config = custom::protocol(it, spec).ok_or_else(|| SetupError::unknown("protocol", it))?;
            AnyConfig::Erased(Arc::new(config.map_err(|it| SetupError::unsuitable("protocol", it))?))
        }
        ProtocolSpec::Program(it) => {
            without_defects(defect)?;
            AnyConfig::Erased(Arc::new(program::config(it, spec)))
        }
        ProtocolSpec::Tic(_) | ProtocolSpec::Sel(_) | ProtocolSpec::Satin(_) | ProtocolSpec::Cck(_) => {
            return Err(SetupError::Tasks);
        }
    };
    Ok(config)
}

/// Returns the parameters of HC3I.
fn hc3i(spec: &FederationSpec, defect: Option<Defect>) -> Result<Config, SetupError> {
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
        defects: defects!(defect, hc3i, Hc3i),
    })
}

/// Returns the parameters of independent checkpoints.
fn independent(spec: &FederationSpec, defect: Option<Defect>) -> Result<independent::Config, SetupError> {
    let checkpointing = spec.protocol.checkpointing().expect("the protocol takes checkpoints");
    Ok(independent::Config {
        checkpoint_every: checkpoint_every(spec, checkpointing.every),
        collect_every: checkpointing.collect_every,
        placement: placement(checkpointing),
        retry_every: retry_every(spec),
        defects: defects!(defect, independent, Independent),
    })
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

/// Returns the parameters of a protocol that logs the messages between groups.
pub(crate) fn logging<D>(spec: &FederationSpec, defects: D) -> LoggingOptions<D> {
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
        defects: defects!(defect, theft, Theft),
    })
}

/// Returns an error if a defect is requested of a protocol without known defects.
pub(crate) fn without_defects(defect: Option<Defect>) -> Result<(), SetupError> {
    defect.map_or(Ok(()), |it| Err(SetupError::ForeignDefect(it)))
}

/// Returns the parameters of Satin, which has no options other than the enabled defect.
pub(crate) fn satin(defect: Option<Defect>) -> Result<satin::Config, SetupError> {
    let defects = defects!(defect, satin, Satin);
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
        defects: defects!(defect, cck, Cck),
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
