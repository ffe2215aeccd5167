//! The protocols that can be compared, and the federation of a file under each of them.

use std::collections::BTreeMap;

use faultline_api::quantity::{Period, Size};
use faultline_api::resource::{Coordinated, Forcing, Hc3i, Hydee, Independent, Protocol, Unprotected};
use faultline_api::{Federation, Names};

/// Names of all that can be compared, in the order of a table that nobody has ordered.
pub const NAMES: [&str; 11] = [
    "hc3i",
    "hydee",
    "spbc",
    "fullLogging",
    "pessimisticLogging",
    "independent",
    "coordinated",
    "chandyLamport",
    "hierarchicalCoordinated",
    EVERY_MESSAGE,
    "none",
];
/// HC3I as it would be if every message between clusters forced a checkpoint: the baseline of its kind.
const EVERY_MESSAGE: &str = "every-message";

/// What a protocol copies to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logs {
    /// Nothing.
    Nothing,
    /// Messages from one cluster to another.
    BetweenClusters,
    /// Every message.
    Everything,
}

/// The same federation under the protocol of this name; `None` when there is no such protocol.
///
/// A protocol that the file itself asks for keeps its options. Others take over those that both have: the delays between
/// checkpoints and collections, the copies and their place. What the file does not state has the protocol's default.
pub fn under(federation: &Federation, name: &str) -> Option<Federation> {
    let stated = &federation.spec.protocol;
    let protocol = match (stated, name) {
        (Protocol::Hc3i(it), EVERY_MESSAGE) => {
            Protocol::Hc3i(Hc3i { forcing: Some(Forcing::EveryMessage), ..it.clone() })
        }
        (stated, name) if stated.name() == name => stated.clone(),
        (stated, name) => Stated::of(stated).into_protocol(name)?,
    };
    let mut other = federation.clone();
    other.spec.protocol = protocol;
    Some(other)
}

/// The same federation to which nothing happens.
pub(crate) fn without_faults(federation: &Federation) -> Federation {
    let mut other = federation.clone();
    other.spec.faults.clear();
    other
}

/// The same federation without the faults of processes that its protocol does not have, and what each of them was.
pub(crate) fn without_absent(federation: &Federation) -> (Federation, Vec<String>) {
    let mut other = federation.clone();
    let names = Names::of(&federation.spec);
    let mut left_out = Vec::new();
    let mut number = 0;
    other.spec.faults.retain(|fault| {
        let absent = fault.process().filter(|name| names.process_id(name).is_none());
        left_out.extend(absent.map(|name| format!("spec.faults[{number}]: it has no {name}")));
        number += 1;
        absent.is_none()
    });
    (other, left_out)
}

/// What a protocol logs.
pub(crate) fn logs(protocol: &Protocol) -> Logs {
    match protocol {
        Protocol::Hc3i(_) | Protocol::Hydee(_) | Protocol::Spbc(_) => Logs::BetweenClusters,
        Protocol::FullLogging(_) | Protocol::PessimisticLogging(_) | Protocol::Independent(_) => {
            Logs::Everything
        }
        Protocol::Coordinated(_)
        | Protocol::ChandyLamport(_)
        | Protocol::HierarchicalCoordinated(_)
        | Protocol::None(_) => Logs::Nothing,
    }
}

/// The options that protocols have in common, as far as the file states them.
#[derive(Default)]
struct Stated {
    checkpoint_every: Option<Period>,
    checkpoint_every_in: BTreeMap<String, Period>,
    collect_every: Option<Period>,
    replicas: Option<u32>,
    replicate_to: Option<faultline_api::resource::ReplicateTo>,
    log_memory: Option<Size>,
}

impl Stated {
    fn of(protocol: &Protocol) -> Stated {
        match protocol.clone() {
            Protocol::Hc3i(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Protocol::Hydee(it)
            | Protocol::FullLogging(it)
            | Protocol::Spbc(it)
            | Protocol::PessimisticLogging(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: None,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: it.log_memory,
            },
            Protocol::Independent(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Protocol::Coordinated(it)
            | Protocol::ChandyLamport(it)
            | Protocol::HierarchicalCoordinated(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: BTreeMap::new(),
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Protocol::None(_) => Stated::default(),
        }
    }

    fn into_protocol(self, name: &str) -> Option<Protocol> {
        let Stated {
            checkpoint_every,
            checkpoint_every_in,
            collect_every,
            replicas,
            replicate_to,
            log_memory,
        } = self;
        Some(match name {
            "hc3i" | EVERY_MESSAGE => Protocol::Hc3i(Hc3i {
                checkpoint_every,
                checkpoint_every_in,
                collect_every,
                collect_by: None,
                replicas,
                replicate_to,
                piggyback: None,
                forcing: (name == EVERY_MESSAGE).then_some(Forcing::EveryMessage),
            }),
            "hydee" | "spbc" | "fullLogging" | "pessimisticLogging" => {
                let options =
                    Hydee { checkpoint_every, checkpoint_every_in, replicas, replicate_to, log_memory };
                match name {
                    "hydee" => Protocol::Hydee(options),
                    "spbc" => Protocol::Spbc(options),
                    "fullLogging" => Protocol::FullLogging(options),
                    _ => Protocol::PessimisticLogging(options),
                }
            }
            "independent" => Protocol::Independent(Independent {
                checkpoint_every,
                checkpoint_every_in,
                collect_every,
                replicas,
                replicate_to,
            }),
            "coordinated" | "chandyLamport" | "hierarchicalCoordinated" => {
                let options = Coordinated { checkpoint_every, collect_every, replicas, replicate_to };
                match name {
                    "coordinated" => Protocol::Coordinated(options),
                    "chandyLamport" => Protocol::ChandyLamport(options),
                    _ => Protocol::HierarchicalCoordinated(options),
                }
            }
            "none" => Protocol::None(Unprotected {}),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_api::samples::sample;

    #[test]
    fn every_name_is_a_protocol_of_that_name_with_the_options_of_the_file() {
        let text = sample("quickstart").expect("is a sample").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("can be run");
        for name in NAMES {
            let other = under(&federation, name).expect("is a protocol");
            let expected = if name == EVERY_MESSAGE { "hc3i" } else { name };
            assert_eq!(other.spec.protocol.name(), expected);
            if let (Some(own), Some(here)) =
                (federation.spec.protocol.checkpointing(), other.spec.protocol.checkpointing())
            {
                assert_eq!(
                    (own.every, own.replicas, own.replicate_to),
                    (here.every, here.replicas, here.replicate_to)
                );
            }
        }
        assert_eq!(under(&federation, "hc3i"), Some(federation.clone()));
        assert_eq!(under(&federation, "hc4i"), None);
    }

    #[test]
    fn a_fault_of_a_process_that_a_protocol_does_not_have_is_left_out() {
        let text = sample("hydee").expect("is a sample").text;
        let federation = faultline_api::parse("hydee", text.as_bytes()).expect("can be run");
        assert_eq!(without_absent(&federation), (federation.clone(), vec![]));
        let (other, left_out) = without_absent(&under(&federation, "hc3i").expect("is a protocol"));
        assert_eq!(left_out, ["spec.faults[4]: it has no recovery-process"]);
        assert_eq!(other.spec.faults, federation.spec.faults[..4]);
    }
}
