//! The known defects of all protocols, by name. They can be switched on in builds with the feature `defects`.
//!
//! Two protocols may have the same rule, and so a defect of the same name: those of HydEE are told by `hydee-` before it,
//! those of SPBC by `spbc-`, those of pessimistic logging by `pessimistic-`, those of the non-blocking coordinated baseline by
//! `chandy-lamport-`, those of the hierarchical one by `hierarchical-`.

use std::fmt;
use std::str::FromStr;

use faultline_protocols::{hc3i, hydee};
use serde::Serialize;

/// A rule of the code that protocols share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Of the code of HC3I, which the coordinated baselines share.
    Hc3i(hc3i::Defect),
    /// Of the code of HydEE, which the logging protocols share.
    Hydee(hydee::Defect),
}

macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident($code:ident, $rule:ident) $protocol:literal $prefix:literal $all:expr;)*) => {
        /// One way in which a protocol can be made wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect {
            $($(#[$doc])* $variant($code::Defect),)*
        }

        impl Defect {
            /// Every known defect.
            pub fn all() -> impl Iterator<Item = Defect> {
                let mut all = Vec::new();
                $(for rule in $all {
                    all.push(Defect::$variant(rule));
                })*
                all.into_iter()
            }

            /// What stands before the name where protocols share code, and some of its switches.
            fn prefix(self) -> &'static str {
                match self {
                    $(Defect::$variant(_) => $prefix,)*
                }
            }

            /// The protocol that it is a defect of, by its name in the resource.
            pub fn protocol(self) -> &'static str {
                match self {
                    $(Defect::$variant(_) => $protocol,)*
                }
            }

            /// The rule that it breaks.
            pub fn rule(self) -> Rule {
                match self {
                    $(Defect::$variant(it) => Rule::$rule(it),)*
                }
            }
        }
    };
}

defects! {
    /// Of HC3I, and of the coordinated baseline, which is HC3I with one cluster.
    Hc3i(hc3i, Hc3i) "hc3i" "" hc3i::Defect::ALL.iter().copied().filter(|it| it.is_of_hc3i());
    /// Of HydEE.
    Hydee(hydee, Hydee) "hydee" "hydee-" hydee::Defect::ALL.iter().copied().filter(|it| it.is_of_phases());
    /// Of SPBC, which has many rules in common with HydEE.
    Spbc(hydee, Hydee) "spbc" "spbc-" hydee::DEFECTS_OF_PAIRS;
    /// Of pessimistic logging, which has many rules in common with SPBC.
    Pessimistic(hydee, Hydee) "pessimisticLogging" "pessimistic-" hydee::DEFECTS_OF_DETERMINANTS;
    /// Of the non-blocking coordinated baseline, which has many rules in common with HC3I.
    ChandyLamport(hc3i, Hc3i) "chandyLamport" "chandy-lamport-" hc3i::DEFECTS_OF_COLOURS;
    /// Of the hierarchical coordinated baseline, which has many rules in common with HC3I.
    Hierarchical(hc3i, Hc3i) "hierarchicalCoordinated" "hierarchical-" hc3i::DEFECTS_OF_LEADERS;
}

/// A name that no defect has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no known defect `{0}`")]
pub struct UnknownDefect(pub String);

/// Whether this build can switch defects on.
pub const AVAILABLE: bool = cfg!(feature = "defects");

impl Defect {
    /// The known defects of a protocol.
    pub fn of(protocol: &str) -> impl Iterator<Item = Defect> {
        Defect::all().filter(move |it| it.protocol() == protocol)
    }

    /// What the protocol's document calls it.
    pub fn switch(self) -> String {
        let name = self.to_string();
        name.strip_prefix(self.prefix()).unwrap_or(&name).to_owned()
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix())?;
        match self.rule() {
            Rule::Hc3i(defect) => defect.serialize(f),
            Rule::Hydee(defect) => defect.serialize(f),
        }
    }
}

impl FromStr for Defect {
    type Err = UnknownDefect;

    fn from_str(name: &str) -> Result<Defect, UnknownDefect> {
        Defect::all().find(|it| it.to_string() == name).ok_or_else(|| UnknownDefect(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for defect in Defect::all() {
            assert_eq!(defect.to_string().parse(), Ok(defect));
        }
        assert_eq!(Defect::Hc3i(hc3i::Defect::NoDrain).to_string(), "no-drain");
        let of_hydee = Defect::Hydee(hydee::Defect::NoDrain);
        assert_eq!(
            (of_hydee.to_string().as_str(), of_hydee.switch().as_str()),
            ("hydee-no-drain", "no-drain")
        );
        assert_eq!("no-brain".parse::<Defect>(), Err(UnknownDefect("no-brain".into())));
    }
}
