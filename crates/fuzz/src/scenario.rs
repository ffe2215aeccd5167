//! A federation with a seed, which can be run, written to a file and run again.

use std::fmt;
use std::str::FromStr;

use faultline_api::Federation;
use faultline_api::resource::{ApplicationSpec, ProtocolSpec, SharedOptions};
use faultline_api::validate::one_of;
use faultline_catalog::Defect;
use serde_json::Value;

use crate::generate;

/// The input of one run, which determines its result completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of all random choices in the run.
    pub seed: u64,
    /// The federation to run.
    pub federation: Federation,
    /// The protocol's defect; `None` for the correct protocol.
    pub defect: Option<Defect>,
}

/// A protocol for which federations can be drawn: all except `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolName(&'static str);

/// The error for a protocol that is unknown or cannot be fuzzed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol that can be fuzzed; {instead}", instead = one_of(.0, &ProtocolName::all().map(ProtocolName::name).collect::<Vec<_>>()))]
pub struct UnknownProtocol(String);

impl Scenario {
    /// Creates the scenario of a seed. If `protocol` is `None`, the defect determines the protocol; if there
    /// is no defect either, the seed does.
    ///
    /// # Panics
    ///
    /// Panics if the defect belongs to a protocol that cannot be fuzzed.
    pub fn new(seed: u64, protocol: Option<ProtocolName>, defect: Option<Defect>) -> Scenario {
        let demanded = defect.map(|it| it.protocol().parse().expect("there are scenarios for defects"));
        Scenario { seed, federation: generate::federation(seed, protocol.or(demanded)), defect }
    }

    /// Creates the scenario of a seed under this protocol. Draws the shared options that the protocol sets.
    pub fn under(seed: u64, protocol: &ProtocolSpec) -> Scenario {
        Scenario { seed, federation: generate::federation_drawn(seed, protocol.clone()), defect: None }
    }

    /// Sets parameters of a protocol from another crate, or of a program. Has no effect on built-in protocols.
    #[must_use]
    pub fn set(mut self, parameters: &[(String, Value)]) -> Scenario {
        let own = match &mut self.federation.spec.protocol {
            ProtocolSpec::Custom(custom) => &mut custom.parameters,
            ProtocolSpec::Program(program) => &mut program.parameters,
            _ => return self,
        };
        own.extend(parameters.iter().cloned());
        self
    }

    /// Returns whether the application is `salted`. A re-execution of `salted` differs, so there is no
    /// reference result.
    pub fn is_salted(&self) -> bool {
        matches!(self.federation.spec.application, ApplicationSpec::Salted(_))
    }

    /// Returns the text of a file that describes the federation, including the seed but not the defect.
    pub fn to_yaml(&self) -> String {
        let mut federation = self.federation.clone();
        federation.spec.seed = Some(self.seed);
        faultline_api::to_yaml(&federation)
    }
}

impl ProtocolName {
    /// Returns all protocols that can be fuzzed, in the order of [`ProtocolSpec::names`].
    pub fn all() -> impl Iterator<Item = ProtocolName> {
        let all = ProtocolSpec::names().map(ProtocolName);
        all.filter(|it| it.with(SharedOptions::default()).family().is_some())
    }

    /// Returns the name in the resource.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns whether the protocol comes from another crate.
    pub fn is_custom(self) -> bool {
        matches!(self.with(SharedOptions::default()), ProtocolSpec::Custom(_))
    }

    /// Returns the protocol with these options.
    pub(crate) fn with(self, stated: SharedOptions) -> ProtocolSpec {
        ProtocolSpec::named(self.0, stated).expect("the name denotes a protocol")
    }
}

impl fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProtocolName {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<ProtocolName, UnknownProtocol> {
        ProtocolName::all().find(|it| it.name() == name).ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}
