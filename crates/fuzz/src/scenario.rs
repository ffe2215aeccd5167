//! A federation with a seed: what is run, and what can be written to a file and run again.

use std::fmt;
use std::str::FromStr;

use faultline_api::Federation;
use faultline_api::resource::{Application, Protocol as Options, Stated};
use faultline_catalog::Defect;

use crate::generate;

/// One run, before it has run. What it does depends on nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Decides everything random in the run.
    pub seed: u64,
    /// What is run.
    pub federation: Federation,
    /// In what way its protocol is wrong; `None` is as it should be.
    pub defect: Option<Defect>,
}

/// A protocol for which federations can be drawn: every one that protects something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(&'static str);

/// A name that no protocol has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a protocol that can be fuzzed; use one of: {all}", all = Protocol::all().map(Protocol::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownProtocol(String);

impl Scenario {
    /// The scenario of a seed. Without a protocol, that is drawn, too, unless a defect demands one.
    pub fn new(seed: u64, protocol: Option<Protocol>, defect: Option<Defect>) -> Scenario {
        let demanded = defect.map(|it| it.protocol().parse().expect("there are scenarios for defects"));
        Scenario { seed, federation: generate::federation(seed, protocol.or(demanded)), defect }
    }

    /// Whether its application is the one whose re-execution differs, which is judged by properties only.
    pub fn is_salted(&self) -> bool {
        matches!(self.federation.spec.application, Application::Salted(_))
    }

    /// It as a file. The seed stands in it.
    pub fn to_yaml(&self) -> String {
        let mut federation = self.federation.clone();
        federation.spec.seed = Some(self.seed);
        faultline_api::to_yaml(&federation)
    }
}

impl Protocol {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Protocol> {
        let all = Options::names().map(Protocol);
        all.filter(|it| it.with(Stated::default()).family().is_some())
    }

    /// Its name in the resource.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// It with these options.
    pub(crate) fn with(self, stated: Stated) -> Options {
        Options::named(self.0, stated).expect("it is a protocol's name")
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Protocol, UnknownProtocol> {
        Protocol::all().find(|it| it.name() == name).ok_or_else(|| UnknownProtocol(name.to_owned()))
    }
}
