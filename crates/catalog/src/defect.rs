//! The known defects of all protocols, by name. Builds with debug assertions can enable them.
//!
//! Two protocols may share a rule, and therefore a defect of the same name. A prefix, such as `hydee-`, distinguishes
//! them.

use std::fmt;
use std::str::FromStr;

use faultline_protocols::{
    cck, chandy_lamport, coordinated, hc3i, hydee, independent, pessimistic_logging, satin, spbc, theft,
};
use serde::Serialize;

/// Declares the defects of each module. For each protocol that has defects of its own: its variant, its name in the
/// resource, the prefix of its defects, and its known defects.
macro_rules! defects {
    ($(
        $code:ident($module:ident) => {
            $(#[$first_doc:meta])*
            $first:ident $first_protocol:literal $first_prefix:literal $first_all:expr;
            $($(#[$doc:meta])* $variant:ident $protocol:literal $prefix:literal $all:expr;)*
        }
    )*) => {
        /// A known defect, by the code that contains it. Several protocols may share this code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named after its code")]
        pub enum CodeDefect {
            $($code($module::Defect),)*
        }

        /// A known defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect {
            $(
                $(#[$first_doc])* $first($module::Defect),
                $($(#[$doc])* $variant($module::Defect),)*
            )*
        }

        impl Defect {
            /// Iterates over all known defects.
            pub fn all() -> impl Iterator<Item = Defect> {
                let mut all = Vec::new();
                $(
                    all.extend($first_all.iter().copied().map(Defect::$first));
                    $(all.extend($all.iter().copied().map(Defect::$variant));)*
                )*
                all.into_iter()
            }

            /// Returns the name prefix that distinguishes defects with the same name in different code. Empty for HC3I.
            fn prefix(self) -> &'static str {
                match self {
                    $(Defect::$first(_) => $first_prefix, $(Defect::$variant(_) => $prefix,)*)*
                }
            }

            /// Returns the protocol that has the defect, by its name in the resource.
            pub fn protocol(self) -> &'static str {
                match self {
                    $(Defect::$first(_) => $first_protocol, $(Defect::$variant(_) => $protocol,)*)*
                }
            }

            /// Returns the rule's name in the code, as tests write it, such as `NoDrain`.
            pub fn variant(self) -> String {
                match self {
                    $(Defect::$first(it) $(| Defect::$variant(it))* => format!("{it:?}"),)*
                }
            }

            /// Returns the defect of the code.
            pub fn in_code(self) -> CodeDefect {
                match self {
                    $(Defect::$first(it) $(| Defect::$variant(it))* => CodeDefect::$code(it),)*
                }
            }
        }

        impl fmt::Display for CodeDefect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(CodeDefect::$code(it) => it.serialize(f),)*
                }
            }
        }
    };
}

defects! {
    Hc3i(hc3i) => {
        /// A defect of HC3I.
        Hc3i "hc3i" "" hc3i::Defect::ALL;
    }
    Hydee(hydee) => {
        /// A defect of HydEE.
        Hydee "hydee" "hydee-" hydee::Defect::ALL;
    }
    Spbc(spbc) => {
        /// A defect of SPBC.
        Spbc "spbc" "spbc-" spbc::Defect::ALL;
    }
    Pessimistic(pessimistic_logging) => {
        /// A defect of pessimistic logging.
        Pessimistic "pessimisticLogging" "pessimistic-" pessimistic_logging::Defect::ALL;
    }
    Independent(independent) => {
        /// A defect of independent checkpoints.
        Independent "independent" "independent-" independent::Defect::ALL;
    }
    ChandyLamport(chandy_lamport) => {
        /// A defect of Chandy and Lamport's snapshot.
        ChandyLamport "chandyLamport" "chandy-lamport-" chandy_lamport::Defect::ALL;
    }
    Coordinated(coordinated) => {
        /// A defect of coordinated checkpoints.
        Coordinated "coordinated" "coordinated-" coordinated::DEFECTS;
        /// A defect of hierarchical coordinated checkpoints, which share most rules with coordinated checkpoints
        /// without leaders.
        Hierarchical "hierarchicalCoordinated" "hierarchical-" coordinated::DEFECTS_OF_LEADERS;
    }
    Theft(theft) => {
        /// A defect of TIC.
        Tic "tic" "tic-" theft::Defect::ALL.iter().copied().filter(|it| !it.is_of_logs()).collect::<Vec<_>>();
        /// A defect of SEL, which shares most rules with TIC.
        Sel "sel" "sel-" theft::Defect::ALL;
    }
    Satin(satin) => {
        /// A defect of Satin.
        Satin "satin" "satin-" satin::Defect::ALL;
    }
    Cck(cck) => {
        /// A defect of CCK.
        Cck "cck" "cck-" cck::Defect::ALL;
    }
}

/// A name that belongs to no defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown defect `{0}`; for a list, see docs/hc3i.md and the documents about the other protocols")]
pub struct UnknownDefect(pub String);

/// Whether this build can enable defects.
pub const AVAILABLE: bool = cfg!(debug_assertions);

impl Defect {
    /// Iterates over the known defects of a protocol.
    pub fn of(protocol: &str) -> impl Iterator<Item = Defect> {
        Defect::all().filter(move |it| it.protocol() == protocol)
    }

    /// Returns the defect's name in the protocol's document, without the prefix.
    pub fn switch(self) -> String {
        let name = self.to_string();
        name.strip_prefix(self.prefix()).unwrap_or(&name).to_owned()
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix())?;
        self.in_code().fmt(f)
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
    fn names_are_parsed_as_printed() {
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
