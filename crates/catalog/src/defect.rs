//! The known defects of all protocols, by name. They can be switched on in builds with the feature `defects`.

use std::fmt;
use std::str::FromStr;

use faultline_protocols::hc3i;
use serde::{Deserialize, Serialize};

/// One way in which a protocol can be made wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Defect {
    /// Of HC3I, and of the coordinated baseline, which is HC3I with one cluster.
    Hc3i(hc3i::Defect),
}

/// A name that no defect has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no known defect `{0}`")]
pub struct UnknownDefect(pub String);

/// Whether this build can switch defects on.
pub const AVAILABLE: bool = cfg!(feature = "defects");

impl Defect {
    /// Every known defect.
    pub fn all() -> impl Iterator<Item = Defect> {
        hc3i::Defect::ALL.iter().copied().map(Defect::Hc3i)
    }

    /// The protocol that it is a defect of, by its name in the resource.
    pub fn protocol(self) -> &'static str {
        match self {
            Defect::Hc3i(_) => "hc3i",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Hc3i(defect) => defect.serialize(f),
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
        assert_eq!("no-brain".parse::<Defect>(), Err(UnknownDefect("no-brain".into())));
    }
}
