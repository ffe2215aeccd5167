//! Properties of each protocol beyond its options, in one table. Drivers and checkers do not read it: protocols
//! declare their promises themselves.

use std::collections::BTreeMap;

use faultline_core::{Role, Scope, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::application::{ApplicationSpec, Family};
use super::custom::{self, Custom};
use super::program::Program;
use super::protocol::{
    Cck, Checkpointing, Coordinated, Coordination, Forcing, Hc3i, Hydee, Independent, ProtocolSpec,
    ReplicateTo, Satin, Sel, Tic, Unprotected,
};
use super::{FederationSpec, MAX_SERVERS};
use crate::quantity::{Duration, Period, Size};

/// What a re-execution must repeat so that a protocol can protect the program.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Demand {
    /// No repetition is required.
    Nothing,
    /// The program acts identically after receiving the same messages in the same order (piecewise determinism).
    SameOrder,
    /// The program sends the same messages, regardless of the order in which messages arrive (send or channel
    /// determinism).
    AnyOrder,
}

/// Which messages a protocol logs.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Logs {
    /// No messages.
    Nothing,
    /// Messages from one cluster to another.
    BetweenClusters,
    /// Every message.
    Everything,
}

/// When a protocol removes the parts and log entries that no recovery can need.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Collection {
    /// Never, or at times that do not follow from the options.
    Unspecified,
    /// After each checkpoint.
    AfterCheckpoint,
    /// Every `collectEvery`.
    Periodic,
    /// After the first checkpoint that is taken once `collectEvery` has passed.
    WithCheckpoint,
}

/// Options of a protocol. Several protocols may share a type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is documented at its type")]
pub enum Options {
    Hc3i(Hc3i),
    Hydee(Hydee),
    Independent(Independent),
    Coordinated(Coordinated),
    Tic(Tic),
    Sel(Sel),
    Satin(Satin),
    Cck(Cck),
    Unprotected(Unprotected),
    Custom(Custom),
    Program(Program),
}

/// Options that several protocols share; `None` or empty if the file does not set them. A protocol ignores those that
/// it does not have.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharedOptions {
    /// Delay between checkpoints.
    pub checkpoint_every: Option<Period>,
    /// Delay between checkpoints of individual clusters, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections.
    pub collect_every: Option<Period>,
    /// Number of replicas of each part of a checkpoint, in addition to the owner's part.
    pub replicas: Option<u32>,
    /// Where the replicas are stored.
    pub replicate_to: Option<ReplicateTo>,
    /// Maximum size of the message log in a process's memory.
    pub log_memory: Option<Size>,
}

impl SharedOptions {
    /// Returns the checkpoint options of a protocol that has exactly these parameters; `None` if it has no
    /// `checkpointEvery`.
    pub(super) fn checkpointing(&self) -> Option<Checkpointing> {
        Some(Checkpointing {
            every: self.checkpoint_every?.0,
            collect_every: self.collect_every.and_then(|it| it.0),
            replicas: self.replicas.unwrap_or(0),
            replicate_to: self.replicate_to.unwrap_or_default(),
        })
    }
}

/// A row of the table.
struct Known {
    name: &'static str,
    with_defaults: fn() -> ProtocolSpec,
    /// The processes that roll back together. A test of the catalog compares it with the protocol's promises.
    scope: Scope,
    demand: Demand,
    logs: Logs,
    collection: Collection,
    /// The process that the protocol needs in addition to the ranks, whatever its options.
    helper: Option<Role>,
}

macro_rules! known {
    ($(
        $name:literal $variant:ident($options:ident)
        $scope:ident $demand:ident $logs:ident $collection:ident $helper:expr;
    )*) => {
        /// All built-in protocols, in the order in which documents and comparisons list them.
        const KNOWN: &[Known] = &[$(Known {
            name: $name,
            with_defaults: || ProtocolSpec::$variant($options::default()),
            scope: Scope::$scope,
            demand: Demand::$demand,
            logs: Logs::$logs,
            collection: Collection::$collection,
            helper: $helper,
        },)*];

        impl ProtocolSpec {
            /// Returns the name of the protocol, such as `hc3i`.
            pub fn name(&self) -> &str {
                match self {
                    $(ProtocolSpec::$variant(_) => $name,)*
                    ProtocolSpec::Custom(it) => &it.name,
                    ProtocolSpec::Program(it) => it.name(),
                }
            }

            /// Returns the options of the protocol.
            pub fn options(&self) -> Options {
                match self {
                    $(ProtocolSpec::$variant(it) => Options::$options(it.clone()),)*
                    ProtocolSpec::Custom(it) => Options::Custom(it.clone()),
                    ProtocolSpec::Program(it) => Options::Program(it.clone()),
                }
            }

            /// Returns the same protocol with other options.
            ///
            /// # Panics
            ///
            /// Panics if the protocol has options of another type.
            #[must_use]
            pub fn with_options(&self, options: Options) -> ProtocolSpec {
                match (self, options) {
                    $((ProtocolSpec::$variant(_), Options::$options(it)) => ProtocolSpec::$variant(it),)*
                    (ProtocolSpec::Custom(_), Options::Custom(it)) => ProtocolSpec::Custom(it),
                    (ProtocolSpec::Program(_), Options::Program(it)) => ProtocolSpec::Program(it),
                    (_, options) => panic!("{} does not have the options {options:?}", self.name()),
                }
            }
        }
    };
}

known! {
    "hc3i" Hc3i(Hc3i) Cluster Nothing BetweenClusters Periodic None;
    "hydee" Hydee(Hydee) Cluster AnyOrder BetweenClusters AfterCheckpoint Some(Role::RECOVERY_PROCESS);
    "spbc" Spbc(Hydee) Cluster AnyOrder BetweenClusters AfterCheckpoint None;
    "fullLogging" FullLogging(Hydee) Process AnyOrder Everything AfterCheckpoint Some(Role::RECOVERY_PROCESS);
    "pessimisticLogging" PessimisticLogging(Hydee)
        Process SameOrder Everything AfterCheckpoint Some(Role::EVENT_LOGGER);
    "independent" Independent(Independent) Process Nothing Everything Periodic None;
    "coordinated" Coordinated(Coordinated) Federation Nothing Nothing WithCheckpoint None;
    "chandyLamport" ChandyLamport(Coordinated) Federation Nothing Nothing WithCheckpoint None;
    "hierarchicalCoordinated" HierarchicalCoordinated(Coordinated) Federation Nothing Nothing WithCheckpoint None;
    "tic" Tic(Tic) Process Nothing Nothing Unspecified None;
    "sel" Sel(Sel) Process Nothing Nothing Unspecified None;
    "satin" Satin(Satin) Process Nothing Nothing Unspecified None;
    "cck" Cck(Cck) Process Nothing Nothing Unspecified Some(Role::RECOVERY_PROCESS);
    "none" None(Unprotected) Cluster Nothing Nothing Unspecified None;
}

/// HC3I with a forced checkpoint for every message between clusters: a baseline under a name that states the option.
const EVERY_MESSAGE: &str = "hc3i.forcing=everyMessage";

/// CCK with checkpoints that all processes coordinate: a baseline under a name that states the option.
const CCK_GLOBAL: &str = "cck.coordination=global";

impl ProtocolSpec {
    /// Returns `none` for a file that states no protocol.
    pub(super) fn absent() -> ProtocolSpec {
        ProtocolSpec::None(Unprotected { is_absent: true })
    }

    /// Returns whether the file states no protocol.
    pub fn is_absent(&self) -> bool {
        matches!(self, ProtocolSpec::None(it) if it.is_absent)
    }

    /// Returns the family of applications that the protocol protects; `None` for `none`, which runs any application.
    pub fn family(&self) -> Option<Family> {
        match self.options() {
            Options::Unprotected(_) => None,
            Options::Tic(_) | Options::Sel(_) | Options::Satin(_) | Options::Cck(_) => Some(Family::Tasks),
            _ => Some(Family::Messages),
        }
    }

    /// Returns whether the protocol requires tasks to be assigned to processes in advance.
    pub fn plans(&self) -> bool {
        matches!(self, ProtocolSpec::Cck(_))
    }

    /// Returns whether the protocol can run this application.
    pub fn supports(&self, application: &ApplicationSpec) -> bool {
        self.family().is_none_or(|it| it == application.family())
    }

    /// Returns the names of all protocols: the built-in ones in the order of the table, then those from other crates.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|it| it.name).chain(custom::protocols().into_iter().map(|it| it.name))
    }

    /// Returns the names of the built-in protocols that need a process with this role, whatever their options.
    pub(super) fn that_need(role: Role) -> impl Iterator<Item = &'static str> {
        KNOWN.iter().filter(move |it| it.helper == Some(role)).map(|it| it.name)
    }

    /// Returns the names of the built-in protocols that can store replicas on storage servers.
    pub(super) fn that_replicate() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().filter(|it| (it.with_defaults)().checkpointing().is_some()).map(|it| it.name)
    }

    /// Returns the field of `spec.protocol` that contains the options.
    pub fn field(&self) -> &str {
        match self {
            ProtocolSpec::Custom(_) => "custom",
            ProtocolSpec::Program(_) => "program",
            _ => self.name(),
        }
    }

    /// Returns the names of the protocols to compare for applications of this family: all that can protect them,
    /// followed by a variant of HC3I for messages or of CCK for tasks, and then `none`. The name of a variant states its
    /// option, such as `hc3i.forcing=everyMessage`.
    pub fn compared(family: Family) -> Vec<&'static str> {
        let protects = |it: &Known| (it.with_defaults)().family().is_none_or(|own| own == family);
        let mut names: Vec<_> = KNOWN.iter().filter(|it| protects(it)).map(|it| it.name).collect();
        let of_other_crates = custom::protocols().into_iter().filter(|_| family == Family::Messages);
        names.splice(names.len() - 1..names.len() - 1, of_other_crates.map(|it| it.name));
        let also = match family {
            Family::Messages => EVERY_MESSAGE,
            Family::Tasks => CCK_GLOBAL,
            // A system has no protocol.
            Family::System => return vec!["none"],
        };
        names.insert(names.len() - 1, also);
        names
    }

    /// Returns those names in [`ProtocolSpec::compared`] whose protocols support this application, in the
    /// same order.
    pub fn compared_on(application: &ApplicationSpec) -> Vec<&'static str> {
        let mut names = ProtocolSpec::compared(application.family());
        names.retain(|name| {
            let protocol = ProtocolSpec::None(Unprotected::default()).or_instead(name);
            protocol.is_some_and(|it| it.supports(application))
        });
        names
    }

    /// Returns those names in [`ProtocolSpec::compared_on`] that a comparison includes unless the user selects others. With
    /// a forced checkpoint for every message, many applications do not finish before their deadline.
    pub fn compared_by_default(application: &ApplicationSpec) -> Vec<&'static str> {
        let mut names = ProtocolSpec::compared_on(application);
        names.retain(|it| *it != EVERY_MESSAGE);
        names
    }

    /// Returns the protocol with this name and these shared options. Options that the protocol does not have are
    /// ignored. Returns `None` if there is no such protocol.
    pub fn named(name: &str, stated: SharedOptions) -> Option<ProtocolSpec> {
        let known = || Some((KNOWN.iter().find(|it| it.name == name)?.with_defaults)());
        let of_other_crate = || {
            let name = custom::protocol(name)?.name.to_owned();
            Some(ProtocolSpec::Custom(Custom { name, ..Custom::default() }))
        };
        let mut protocol = known().or_else(of_other_crate)?;
        protocol.change_shared_options(|it| *it = stated);
        Some(protocol)
    }

    /// Returns the protocol that a comparison runs under `name`, one of [`ProtocolSpec::compared`]; `None` for any
    /// other name. If `name` is this protocol's own, the result has all of its options; if `name` denotes a variant of
    /// this protocol, such as `hc3i.forcing=everyMessage`, the result has all options except the one that defines the variant.
    /// Otherwise, the result inherits the shared options that both protocols have.
    pub fn or_instead(&self, name: &str) -> Option<ProtocolSpec> {
        if name == EVERY_MESSAGE {
            let Options::Hc3i(own) = self.or_instead("hc3i")?.options() else { return None };
            return Some(ProtocolSpec::Hc3i(Hc3i { forcing: Some(Forcing::EveryMessage), ..own }));
        }
        if name == CCK_GLOBAL {
            let Options::Cck(own) = self.or_instead("cck")?.options() else { return None };
            return Some(ProtocolSpec::Cck(Cck { coordination: Some(Coordination::Global), ..own }));
        }
        if name == self.name() {
            Some(self.clone())
        } else {
            ProtocolSpec::named(name, self.shared_options())
        }
    }

    /// Changes the shared options. Options that the protocol does not have are ignored.
    pub fn change_shared_options(&mut self, change: impl FnOnce(&mut SharedOptions)) {
        let mut options = self.options();
        let mut stated = options.shared_options();
        change(&mut stated);
        options.set_shared_options(stated);
        *self = self.with_options(options);
    }

    fn known(&self) -> Option<&'static Known> {
        KNOWN.iter().find(|it| it.name == self.field())
    }

    /// Returns the registered properties of a protocol from another crate.
    fn known_custom(&self) -> Option<custom::KnownProtocol> {
        let ProtocolSpec::Custom(it) = self else { return None };
        custom::protocol(&it.name)
    }

    /// Returns the shared options that are set.
    pub fn shared_options(&self) -> SharedOptions {
        self.options().shared_options()
    }

    /// Returns whether the protocol requires a re-execution to send the same messages, regardless of the order in which
    /// messages arrive.
    pub fn relies_on_repetition(&self) -> bool {
        self.demand() == Demand::AnyOrder
    }

    /// Returns whether the protocol comes from another crate, or is a program. Searches judge it leniently, and know
    /// nothing else about it.
    pub fn is_of_user(&self) -> bool {
        matches!(self, ProtocolSpec::Custom(_) | ProtocolSpec::Program(_))
    }

    /// Returns the program, if the protocol is one.
    pub fn program(&self) -> Option<&Program> {
        match self {
            ProtocolSpec::Program(program) => Some(program),
            _ => None,
        }
    }

    /// Returns what the protocol requires of an application.
    pub fn demand(&self) -> Demand {
        if let Some(program) = self.program() {
            return program.demand();
        }
        let custom = || self.known_custom().map(|it| it.demand);
        self.known().map(|it| it.demand).or_else(custom).unwrap_or(Demand::Nothing)
    }

    /// Returns which messages the protocol logs.
    pub fn logs(&self) -> Logs {
        if let Some(program) = self.program() {
            return program.logs.unwrap_or(Logs::Nothing);
        }
        let custom = || self.known_custom().map(|it| it.logs);
        self.known().map(|it| it.logs).or_else(custom).unwrap_or(Logs::Nothing)
    }

    /// Returns when the protocol collects garbage.
    pub fn collection(&self) -> Collection {
        if let Some(program) = self.program() {
            return program.collection.unwrap_or(Collection::Unspecified);
        }
        let custom = || self.known_custom().map(|it| it.collection);
        self.known().map(|it| it.collection).or_else(custom).unwrap_or(Collection::Unspecified)
    }

    /// Returns the processes that a built-in protocol needs in addition to the ranks, in order. If the numbers in its
    /// options are too large, the list contains only the first [`MAX_SERVERS`] storage servers.
    fn extra_processes(&self) -> Vec<Role> {
        let shared = self.checkpointing().filter(|it| it.replicate_to == ReplicateTo::SharedStorage);
        let servers = match (shared, self) {
            (None, _) => 0,
            (Some(it), ProtocolSpec::Cck(cck)) => {
                it.replicas.max(cck.servers.unwrap_or(it.replicas)).min(MAX_SERVERS) as usize
            }
            (Some(it), _) => usize::from(it.replicas > 0),
        };
        let servers = (0..servers).map(|_| Role::STORAGE_SERVER);
        self.known().and_then(|it| it.helper).into_iter().chain(servers).collect()
    }

    /// Returns the checkpoint options with defaults filled in; `None` if the protocol takes no checkpoints.
    pub fn checkpointing(&self) -> Option<Checkpointing> {
        let options = self.options();
        let stated = options.shared_options();
        let collect_every = match options {
            Options::Satin(_) | Options::Unprotected(_) => return None,
            Options::Custom(it) => return it.checkpointing(),
            Options::Program(it) => return it.checkpointing(),
            // Garbage collection follows each checkpoint, so it needs no timer.
            Options::Hydee(_) | Options::Tic(_) | Options::Sel(_) | Options::Cck(_) => None,
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

impl FederationSpec {
    /// Returns the processes that the protocol needs in addition to the ranks, in order. Empty under a protocol from
    /// another crate that is not registered or has invalid parameters.
    pub fn extra_processes(&self) -> Vec<Role> {
        match &self.protocol {
            ProtocolSpec::Custom(it) => it.declared(self).map(|it| it.extra_processes).unwrap_or_default(),
            ProtocolSpec::Program(_) => Vec::new(),
            built_in => built_in.extra_processes(),
        }
    }

    /// Returns which processes roll back together; `None` under a protocol from another crate that is not registered or
    /// has invalid parameters.
    pub fn scope(&self) -> Option<Scope> {
        match &self.protocol {
            ProtocolSpec::Custom(it) => it.declared(self).map(|it| it.promises.scope),
            ProtocolSpec::Program(it) => Some(it.scope),
            built_in => built_in.known().map(|it| it.scope),
        }
    }
}

impl Options {
    /// Returns the shared options that are set.
    pub fn shared_options(&self) -> SharedOptions {
        match self.clone() {
            Options::Hc3i(it) => SharedOptions {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Hydee(it) => SharedOptions {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: None,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: it.log_memory,
            },
            Options::Independent(it) => SharedOptions {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: it.checkpoint_every_in,
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Coordinated(it) => SharedOptions {
                checkpoint_every: it.checkpoint_every,
                checkpoint_every_in: BTreeMap::new(),
                collect_every: it.collect_every,
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                log_memory: None,
            },
            Options::Tic(it) => SharedOptions {
                checkpoint_every: it.tau.map(|tau| Period(Some(tau.0))),
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                ..SharedOptions::default()
            },
            Options::Sel(it) => SharedOptions {
                checkpoint_every: it.tau.map(|tau| Period(Some(tau.0))),
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                ..SharedOptions::default()
            },
            Options::Cck(it) => SharedOptions {
                checkpoint_every: it.tau.map(|tau| Period(Some(tau.0))),
                replicas: it.replicas,
                replicate_to: it.replicate_to,
                ..SharedOptions::default()
            },
            Options::Satin(Satin {}) | Options::Unprotected(_) => SharedOptions::default(),
            Options::Custom(it) => it.shared_options(),
            Options::Program(it) => it.shared_options(),
        }
    }

    fn set_shared_options(&mut self, shared: SharedOptions) {
        match self {
            Options::Custom(it) => return it.set_shared_options(&shared),
            Options::Program(it) => return it.set_shared_options(&shared),
            _ => {}
        }
        let SharedOptions {
            checkpoint_every,
            checkpoint_every_in,
            collect_every,
            replicas,
            replicate_to,
            log_memory,
        } = shared;
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
            Options::Tic(it) => {
                let tau = checkpoint_every.and_then(|it| it.0).map(Duration);
                *it = Tic { tau, replicas, replicate_to, ..it.clone() };
            }
            Options::Sel(it) => {
                *it = Sel { tau: checkpoint_every.and_then(|it| it.0).map(Duration), replicas, replicate_to };
            }
            Options::Cck(it) => {
                let tau = checkpoint_every.and_then(|it| it.0).map(Duration);
                *it = Cck { tau, replicas, replicate_to, ..it.clone() };
            }
            Options::Satin(Satin {}) | Options::Unprotected(_) => {}
            Options::Custom(_) | Options::Program(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> SharedOptions {
        SharedOptions {
            checkpoint_every: Some(Period(Some(Span::from_secs(1)))),
            checkpoint_every_in: [("a".to_owned(), Period(None))].into(),
            collect_every: Some(Period(Some(Span::from_secs(2)))),
            replicas: Some(2),
            replicate_to: Some(ReplicateTo::SharedStorage),
            log_memory: Some(Size(7)),
        }
    }

    #[test]
    fn every_name_gives_the_protocol_with_that_name() {
        for name in ProtocolSpec::names() {
            let protocol = ProtocolSpec::named(name, SharedOptions::default()).unwrap();
            let written = serde_json::to_value(&protocol).unwrap();
            assert_eq!(written, serde_json::json!({ name: {} }));
            assert_eq!(serde_json::from_value::<ProtocolSpec>(written).unwrap(), protocol);
            assert_eq!(protocol.name(), name);
        }
        assert_eq!(ProtocolSpec::named("hc4i", SharedOptions::default()), None);
    }

    #[test]
    fn options_that_a_protocol_does_not_have_are_ignored() {
        for name in ProtocolSpec::names() {
            let protocol = ProtocolSpec::named(name, everything()).unwrap();
            let kept = protocol.shared_options();
            assert_eq!(ProtocolSpec::named(name, kept.clone()), Some(protocol.clone()), "{name}");
            assert_eq!(protocol.checkpointing().is_some(), kept.replicas == Some(2), "{name}");
        }
    }

    #[test]
    fn a_comparison_keeps_options_that_only_one_protocol_has() {
        let own = Hc3i { piggyback: Some(super::super::Piggyback::Ddv), ..Hc3i::default() };
        let protocol = ProtocolSpec::Hc3i(own.clone());
        assert_eq!(protocol.or_instead("hc3i"), Some(protocol.clone()));
        let every = protocol.or_instead(EVERY_MESSAGE).unwrap();
        assert_eq!(every, ProtocolSpec::Hc3i(Hc3i { forcing: Some(Forcing::EveryMessage), ..own }));
        let other = ProtocolSpec::named("coordinated", everything()).unwrap();
        assert_eq!(other.or_instead(EVERY_MESSAGE).unwrap().shared_options().replicas, Some(2));
        assert_eq!(protocol.or_instead("hc4i"), None);
    }
}
