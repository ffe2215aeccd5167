//! The known defects of all protocols, by name. Builds with debug assertions can enable them.
//!
//! Two protocols may share a rule, and therefore a defect of the same name. A prefix distinguishes them: `hydee-` for
//! HydEE, `spbc-` for SPBC, `full-logging-` for full logging, `pessimistic-` for pessimistic logging, `independent-`
//! for independent checkpoints, `coordinated-` for coordinated checkpoints, `hierarchical-` for the hierarchical ones,
//! `chandy-lamport-` for Chandy and Lamport's snapshot, and `tic-`, `sel-`, `satin-` and `cck-` for the protocols of
//! task-based programs. Full logging, the composite of protocol and application, and the supervisor have only
//! mutations; the names of the last two begin with `composite-` and `supervisor-`.

use std::fmt;
use std::str::FromStr;

use faultline_core::node as composite;
use faultline_protocols::{
    cck, chandy_lamport, coordinated, full_logging, hc3i, hydee, independent, pessimistic_logging, satin,
    spbc, theft,
};
use faultline_supervisor as supervisor;
use serde::Serialize;

/// A rule that a defect breaks. Each variant stands for one piece of code, which several protocols may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A rule of HC3I.
    Hc3i(hc3i::Defect),
    /// A rule of coordinated checkpoints, with or without leaders.
    Coordinated(coordinated::Defect),
    /// A rule of Chandy and Lamport's snapshot.
    ChandyLamport(chandy_lamport::Defect),
    /// A rule of HydEE.
    Hydee(hydee::Defect),
    /// A rule of SPBC.
    Spbc(spbc::Defect),
    /// A rule of full logging.
    FullLogging(full_logging::Defect),
    /// A rule of pessimistic logging.
    Pessimistic(pessimistic_logging::Defect),
    /// A rule of independent checkpoints.
    Independent(independent::Defect),
    /// A rule of TIC and SEL.
    Theft(theft::Defect),
    /// A rule of Satin.
    Satin(satin::Defect),
    /// A rule of CCK.
    Cck(cck::Defect),
    /// A rule of the composite of a protocol and an application.
    Composite(composite::Defect),
    /// A rule of the supervisor.
    Supervisor(supervisor::Defect),
}

macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident($code:ident, $rule:ident) $protocol:literal $prefix:literal $all:expr;)*) => {
        /// A known defect, or a mutation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Defect {
            $($(#[$doc])* $variant($code::Defect),)*
        }

        impl Defect {
            /// Iterates over all known defects.
            pub fn all() -> impl Iterator<Item = Defect> {
                let mut all = Vec::new();
                $(for rule in $all {
                    all.push(Defect::$variant(rule));
                })*
                all.into_iter()
            }

            /// Returns the name prefix that distinguishes defects with the same name in different code. Empty for HC3I.
            fn prefix(self) -> &'static str {
                match self {
                    $(Defect::$variant(_) => $prefix,)*
                }
            }

            /// Returns the protocol that has the defect, by its name in the resource.
            pub fn protocol(self) -> &'static str {
                match self {
                    $(Defect::$variant(_) => $protocol,)*
                }
            }

            /// Returns the rule's name in the code, as tests write it, such as `NoDrain`.
            pub fn variant(self) -> String {
                match self {
                    $(Defect::$variant(it) => format!("{it:?}"),)*
                }
            }

            /// Returns the rule that the defect breaks.
            pub fn rule(self) -> Rule {
                match self {
                    $(Defect::$variant(it) => Rule::$rule(it),)*
                }
            }
        }
    };
}

defects! {
    /// A defect of HC3I.
    Hc3i(hc3i, Hc3i) "hc3i" "" hc3i::Defect::ALL.iter().copied();
    /// A defect of HydEE.
    Hydee(hydee, Hydee) "hydee" "hydee-" hydee::Defect::ALL.iter().copied();
    /// A defect of SPBC.
    Spbc(spbc, Spbc) "spbc" "spbc-" spbc::Defect::ALL.iter().copied();
    /// A defect of full logging.
    FullLogging(full_logging, FullLogging) "fullLogging" "full-logging-" full_logging::Defect::ALL.iter().copied();
    /// A defect of pessimistic logging.
    Pessimistic(pessimistic_logging, Pessimistic) "pessimisticLogging" "pessimistic-" pessimistic_logging::Defect::ALL.iter().copied();
    /// A defect of independent checkpoints.
    Independent(independent, Independent) "independent" "independent-" independent::Defect::ALL.iter().copied();
    /// A defect of Chandy and Lamport's snapshot.
    ChandyLamport(chandy_lamport, ChandyLamport) "chandyLamport" "chandy-lamport-" chandy_lamport::Defect::ALL.iter().copied();
    /// A defect of coordinated checkpoints.
    Coordinated(coordinated, Coordinated) "coordinated" "coordinated-" coordinated::DEFECTS;
    /// A defect of hierarchical coordinated checkpoints, which share most rules with coordinated checkpoints without
    /// leaders.
    Hierarchical(coordinated, Coordinated) "hierarchicalCoordinated" "hierarchical-" coordinated::DEFECTS_OF_LEADERS;
    /// A defect of TIC.
    Tic(theft, Theft) "tic" "tic-" theft::Defect::ALL.iter().copied().filter(|it| !it.is_of_logs());
    /// A defect of SEL, which shares most rules with TIC.
    Sel(theft, Theft) "sel" "sel-" theft::Defect::ALL.iter().copied();
    /// A defect of Satin.
    Satin(satin, Satin) "satin" "satin-" satin::Defect::ALL.iter().copied();
    /// A defect of CCK.
    Cck(cck, Cck) "cck" "cck-" cck::Defect::ALL.iter().copied();
    /// A defect of the composite, under any protocol.
    Composite(composite, Composite) "hc3i" "composite-" composite::Defect::ALL.iter().copied();
    /// A defect of the supervisor, under any protocol.
    Supervisor(supervisor, Supervisor) "hc3i" "supervisor-" supervisor::Defect::ALL.iter().copied();
}

/// A name that belongs to no defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown defect `{0}`; for a list, see docs/hc3i.md and the documents about the other protocols")]
pub struct UnknownDefect(pub String);

/// Whether this build can enable defects.
pub const AVAILABLE: bool = cfg!(debug_assertions);

impl Defect {
    /// Iterates over all mutations, without duplicates.
    pub fn mutations() -> impl Iterator<Item = Defect> {
        let of_hc3i = hc3i::Defect::MUTATIONS.iter().copied().map(Defect::Hc3i);
        let of_hydee = hydee::Defect::MUTATIONS.iter().copied().map(Defect::Hydee);
        let of_spbc = spbc::Defect::MUTATIONS.iter().copied().map(Defect::Spbc);
        let of_full_logging = full_logging::Defect::MUTATIONS.iter().copied().map(Defect::FullLogging);
        let of_pessimistic = pessimistic_logging::Defect::MUTATIONS.iter().copied().map(Defect::Pessimistic);
        let of_independent = independent::Defect::MUTATIONS.iter().copied().map(Defect::Independent);
        let of_coordinated = coordinated::Defect::MUTATIONS.iter().copied().map(Defect::Coordinated);
        let of_chandy_lamport = chandy_lamport::Defect::MUTATIONS.iter().copied().map(Defect::ChandyLamport);
        let of_composite = composite::Defect::MUTATIONS.iter().copied().map(Defect::Composite);
        let of_supervisor = supervisor::Defect::MUTATIONS.iter().copied().map(Defect::Supervisor);
        let of_clusters = of_hc3i.chain(of_hydee).chain(of_spbc);
        let of_baselines = of_full_logging
            .chain(of_pessimistic)
            .chain(of_independent)
            .chain(of_coordinated)
            .chain(of_chandy_lamport);
        // Mutations of TIC exist in SEL, too.
        let of_theft = theft::Defect::MUTATIONS.iter().copied().map(Defect::Tic);
        let of_satin = satin::Defect::MUTATIONS.iter().copied().map(Defect::Satin);
        let of_cck = cck::Defect::MUTATIONS.iter().copied().map(Defect::Cck);
        let of_tasks = of_theft.chain(of_satin).chain(of_cck);
        of_clusters.chain(of_baselines).chain(of_tasks).chain(of_composite).chain(of_supervisor)
    }

    /// Returns the protocols that run the rule's code, by their names in the resource. Those that exercise most of it
    /// come first.
    pub fn run_by(self) -> &'static [&'static str] {
        match self.rule() {
            Rule::Hc3i(_) => &["hc3i"],
            Rule::Coordinated(_) => &["coordinated", "hierarchicalCoordinated"],
            Rule::ChandyLamport(_) => &["chandyLamport"],
            Rule::Hydee(_) => &["hydee"],
            Rule::Spbc(_) => &["spbc"],
            Rule::FullLogging(_) => &["fullLogging"],
            Rule::Pessimistic(_) => &["pessimisticLogging"],
            Rule::Independent(_) => &["independent"],
            Rule::Theft(_) => &["tic", "sel"],
            Rule::Satin(_) => &["satin"],
            Rule::Cck(_) => &["cck"],
            Rule::Composite(_) => &["hc3i", "hydee"],
            Rule::Supervisor(_) => &["hc3i", "hydee", "tic", "satin"],
        }
    }

    /// Returns the composite's defects to enable for `defect`.
    pub(crate) fn of_composite(defect: Option<Defect>) -> composite::Defects {
        match defect.map(Defect::rule) {
            #[cfg(debug_assertions)]
            Some(Rule::Composite(rule)) => composite::Defects::only(rule),
            _ => composite::Defects::default(),
        }
    }

    /// Returns the supervisor defects that `defect` enables.
    pub(crate) fn of_supervisor(defect: Option<Defect>) -> supervisor::Defects {
        match defect.map(Defect::rule) {
            #[cfg(debug_assertions)]
            Some(Rule::Supervisor(rule)) => supervisor::Defects::only(rule),
            _ => supervisor::Defects::default(),
        }
    }

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
        match self.rule() {
            Rule::Hc3i(defect) => defect.serialize(f),
            Rule::Coordinated(defect) => defect.serialize(f),
            Rule::ChandyLamport(defect) => defect.serialize(f),
            Rule::Hydee(defect) => defect.serialize(f),
            Rule::Spbc(defect) => defect.serialize(f),
            Rule::FullLogging(defect) => defect.serialize(f),
            Rule::Pessimistic(defect) => defect.serialize(f),
            Rule::Independent(defect) => defect.serialize(f),
            Rule::Theft(defect) => defect.serialize(f),
            Rule::Satin(defect) => defect.serialize(f),
            Rule::Cck(defect) => defect.serialize(f),
            Rule::Composite(defect) => defect.serialize(f),
            Rule::Supervisor(defect) => defect.serialize(f),
        }
    }
}

impl FromStr for Defect {
    type Err = UnknownDefect;

    fn from_str(name: &str) -> Result<Defect, UnknownDefect> {
        Defect::all()
            .chain(Defect::mutations())
            .find(|it| it.to_string() == name)
            .ok_or_else(|| UnknownDefect(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_printed() {
        for defect in Defect::all().chain(Defect::mutations()) {
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
