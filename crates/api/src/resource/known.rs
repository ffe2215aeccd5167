//! What is known of each protocol beside its options: a line of a table. What it promises when it runs is the protocol's
//! business; nothing here is read by a driver or a checker.

use std::collections::BTreeMap;

use faultline_core::{Role, Span};

use super::protocol::{
    Checkpointing, Coordinated, Forcing, Hc3i, Hydee, Independent, Protocol, ReplicateTo, Unprotected,
};
use crate::quantity::{Period, Size};

/// What a program must repeat so that a protocol can protect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing.
    Nothing,
    /// After the same messages in the same order it does the same again.
    SameOrder,
    /// It sends the same messages again, in whichever order messages arrive.
    AnyOrder,
}

/// What a protocol copies to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// Nothing.
    Nothing,
    /// Messages from one cluster to another.
    BetweenClusters,
    /// Every message.
    Everything,
}

/// The options of a protocol. Protocols of one family have the same ones.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is documented at its type")]
pub enum Options {
    Hc3i(Hc3i),
    Hydee(Hydee),
    Independent(Independent),
    Coordinated(Coordinated),
    Unprotected(Unprotected),
}

/// The options that protocols have in common, as far as a file states them. A protocol ignores those that it does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stated {
    /// Delay between checkpoints.
    pub checkpoint_every: Option<Period>,
    /// The same for single clusters, by name.
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections.
    pub collect_every: Option<Period>,
    /// Copies of each part of a checkpoint, beside the owner's own.
    pub replicas: Option<u32>,
    /// Where the copies are kept.
    pub replicate_to: Option<ReplicateTo>,
    /// Content of logged messages that a process keeps in its memory.
    pub log_memory: Option<Size>,
}

/// A protocol's line.
struct Known {
    name: &'static str,
    with_defaults: fn() -> Protocol,
    demand: Demand,
    logs: Logs,
    /// The process that it needs beside the ranks, whatever its options are.
    helper: Option<Role>,
}

macro_rules! known {
    ($($name:literal $variant:ident($options:ident) $demand:ident $logs:ident $helper:expr;)*) => {
        /// In the order of a table that nobody has ordered.
        const KNOWN: &[Known] = &[$(Known {
            name: $name,
            with_defaults: || Protocol::$variant($options::default()),
            demand: Demand::$demand,
            logs: Logs::$logs,
            helper: $helper,
        },)*];

        impl Protocol {
            /// Its name in the resource.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Protocol::$variant(_) => $name,)*
                }
            }

            /// Its options.
            pub fn options(&self) -> Options {
                match self {
                    $(Protocol::$variant(it) => Options::$options(it.clone()),)*
                }
            }

            /// The same protocol with other options. Panics when they are of another family.
            #[must_use]
            pub fn with_options(&self, options: Options) -> Protocol {
                match (self, options) {
                    $((Protocol::$variant(_), Options::$options(it)) => Protocol::$variant(it),)*
                    (_, options) => panic!("{} does not have the options {options:?}", self.name()),
                }
            }
        }
    };
}

known! {
    "hc3i" Hc3i(Hc3i) Nothing BetweenClusters None;
    "hydee" Hydee(Hydee) AnyOrder BetweenClusters Some(Role::RECOVERY_PROCESS);
    "spbc" Spbc(Hydee) AnyOrder BetweenClusters None;
    "fullLogging" FullLogging(Hydee) AnyOrder Everything Some(Role::RECOVERY_PROCESS);
    "pessimisticLogging" PessimisticLogging(Hydee) SameOrder Everything Some(Role::EVENT_LOGGER);
    "independent" Independent(Independent) Nothing Everything None;
    "coordinated" Coordinated(Coordinated) Nothing Nothing None;
    "chandyLamport" ChandyLamport(Coordinated) Nothing Nothing None;
    "hierarchicalCoordinated" HierarchicalCoordinated(Coordinated) Nothing Nothing None;
    "none" None(Unprotected) Nothing Nothing None;
}

/// HC3I as it would be if every message between clusters forced a checkpoint: the baseline of its kind, which is compared under
/// a name of its own.
const EVERY_MESSAGE: &str = "every-message";

impl Protocol {
    /// The names of all protocols, in the order of a table that nobody has ordered.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|it| it.name)
    }

    /// What can be compared: all protocols, `none` last, and one that is another with other options.
    pub fn compared() -> Vec<&'static str> {
        let mut names: Vec<_> = Protocol::names().collect();
        names.insert(names.len() - 1, EVERY_MESSAGE);
        names
    }

    /// The protocol of this name with the options of its own that are stated; `None` when there is no such protocol.
    pub fn named(name: &str, stated: Stated) -> Option<Protocol> {
        let known = KNOWN.iter().find(|it| it.name == name)?;
        let mut protocol = (known.with_defaults)();
        protocol.restate(|it| *it = stated);
        Some(protocol)
    }

    /// What stands in for this protocol in a comparison under `name`, one of [`Protocol::compared`]: this one itself keeps its
    /// options, others take over those that both have.
    pub fn or_instead(&self, name: &str) -> Option<Protocol> {
        if name == EVERY_MESSAGE {
            let Options::Hc3i(own) = self.or_instead("hc3i")?.options() else { return None };
            return Some(Protocol::Hc3i(Hc3i { forcing: Some(Forcing::EveryMessage), ..own }));
        }
        if name == self.name() { Some(self.clone()) } else { Protocol::named(name, self.stated()) }
    }

    /// Changes the options that protocols have in common; those that it does not have stay unsaid.
    pub fn restate(&mut self, change: impl FnOnce(&mut Stated)) {
        let mut options = self.options();
        let mut stated = options.stated();
        change(&mut stated);
        options.state(stated);
        *self = self.with_options(options);
    }

    fn known(&self) -> &'static Known {
        KNOWN.iter().find(|it| it.name == self.name()).expect("one table makes both")
    }

    /// The options that protocols have in common, as far as they are stated.
    pub fn stated(&self) -> Stated {
        self.options().stated()
    }

    /// Whether it can only protect a program whose re-execution sends what the execution sent, in whichever order messages
    /// arrive.
    pub fn relies_on_repetition(&self) -> bool {
        self.demand() == Demand::AnyOrder
    }

    /// What it demands of a program.
    pub fn demand(&self) -> Demand {
        self.known().demand
    }

    /// What it logs.
    pub fn logs(&self) -> Logs {
        self.known().logs
    }

    /// The processes that it needs beside the ranks, in their order.
    pub fn extra_processes(&self) -> Vec<Role> {
        let keeps_copies =
            |it: Checkpointing| it.replicas > 0 && it.replicate_to == ReplicateTo::SharedStorage;
        let server = self.checkpointing().is_some_and(keeps_copies).then_some(Role::STORAGE_SERVER);
        self.known().helper.into_iter().chain(server).collect()
    }

    /// Its checkpoints; `None` when it takes none.
    pub fn checkpointing(&self) -> Option<Checkpointing> {
        let options = self.options();
        let stated = options.stated();
        let collect_every = match options {
            Options::Unprotected(_) => return None,
            // It collects after each checkpoint, and needs no timer for it.
            Options::Hydee(_) => None,
            Options::Hc3i(_) | Options::Independent(_) | Options::Coordinated(_) => {
                stated.collect_every.map_or(Some(Span::from_secs(60)), |it| it.0)
            }
        };
        Some(Checkpointing {
            every: stated.checkpoint_every.map_or(Some(Span::from_secs(10)), |it| it.0),
            collect_every,
            replicas: stated.replicas.unwrap_or(1),
            replicate_to: stated.replicate_to.unwrap_or_default(),
        })
    }
}

impl Options {
    /// Those that protocols have in common.
    pub fn stated(&self) -> Stated {
        match self.clone() {
            Options::Hc3i(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Hydee(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: None,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: it.log_memory,
            },
            Options::Independent(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Coordinated(it) => Stated {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: BTreeMap::new(),
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Unprotected(Unprotected {}) => Stated::default(),
        }
    }

    fn state(&mut self, stated: Stated) {
        let Stated {
            checkpoint_every,
            checkpoint_every_in,
            collect_every,
            replicas,
            replicate_to,
            log_memory,
        } = stated;
        match self {
            Options::Hc3i(it) => {
                *it = Hc3i {
                    checkpoint_every,
                    checkpoint_every_in,
                    collect_every,
                    replicas,
                    replicate_to,
                    ..it.clone()
                };
            }
            Options::Hydee(it) => {
                *it = Hydee { checkpoint_every, checkpoint_every_in, replicas, replicate_to, log_memory };
            }
            Options::Independent(it) => {
                *it = Independent {
                    checkpoint_every,
                    checkpoint_every_in,
                    collect_every,
                    replicas,
                    replicate_to,
                };
            }
            Options::Coordinated(it) => {
                *it = Coordinated { checkpoint_every, collect_every, replicas, replicate_to };
            }
            Options::Unprotected(Unprotected {}) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Stated {
        Stated {
            checkpoint_every: Some(Period(Some(Span::from_secs(1)))),
            checkpoint_every_in: [("a".to_owned(), Period(None))].into(),
            collect_every: Some(Period(Some(Span::from_secs(2)))),
            replicas: Some(2),
            replicate_to: Some(ReplicateTo::SharedStorage),
            log_memory: Some(Size(7)),
        }
    }

    #[test]
    fn every_name_makes_the_protocol_of_that_name_as_files_have_it() {
        for name in Protocol::names() {
            let protocol = Protocol::named(name, Stated::default()).unwrap();
            let written = serde_json::to_value(&protocol).unwrap();
            assert_eq!(written, serde_json::json!({ name: {} }));
            assert_eq!(serde_json::from_value::<Protocol>(written).unwrap(), protocol);
            assert_eq!(protocol.name(), name);
        }
        assert_eq!(Protocol::named("hc4i", Stated::default()), None);
    }

    #[test]
    fn options_that_a_protocol_does_not_have_stay_unsaid() {
        for name in Protocol::names() {
            let protocol = Protocol::named(name, everything()).unwrap();
            let kept = protocol.stated();
            assert_eq!(Protocol::named(name, kept.clone()), Some(protocol.clone()), "{name}");
            assert_eq!(protocol.checkpointing().is_some(), kept.replicas == Some(2), "{name}");
        }
    }

    #[test]
    fn a_comparison_keeps_what_a_protocol_alone_has() {
        let own = Hc3i { piggyback: Some(super::super::Piggyback::Ddv), ..Hc3i::default() };
        let protocol = Protocol::Hc3i(own.clone());
        assert_eq!(protocol.or_instead("hc3i"), Some(protocol.clone()));
        let every = protocol.or_instead(EVERY_MESSAGE).unwrap();
        assert_eq!(every, Protocol::Hc3i(Hc3i { forcing: Some(Forcing::EveryMessage), ..own }));
        let other = Protocol::named("coordinated", everything()).unwrap();
        assert_eq!(other.or_instead(EVERY_MESSAGE).unwrap().stated().replicas, Some(2));
        assert_eq!(protocol.or_instead("hc4i"), None);
    }
}
