//! Parts of many runs, which several machines can perform.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// One of several parts of the runs: `3/50` is the third of fifty. Every run belongs to exactly one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 1 to `of`.
    number: u32,
    of: u32,
}

/// A text that names no part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a part, such as `3/50`: the third of fifty")]
pub struct NotAPart(String);

impl Part {
    /// Returns whether the run with this index belongs to this part.
    pub fn contains(self, index: u64) -> bool {
        index % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl FromStr for Part {
    type Err = NotAPart;

    fn from_str(text: &str) -> Result<Part, NotAPart> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&number).then_some(Part { number, of })
        });
        parsed.ok_or_else(|| NotAPart(text.to_owned()))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_belongs_to_one_part() {
        let parts: Vec<Part> = (1..=7).map(|it| format!("{it}/7").parse().expect("a part")).collect();
        for index in 0..100 {
            assert_eq!(parts.iter().filter(|it| it.contains(index)).count(), 1);
        }
    }

    #[test]
    fn a_part_is_parsed_as_printed() {
        assert_eq!("3/50".parse::<Part>().map(|it| it.to_string()), Ok("3/50".to_owned()));
        for text in ["0/2", "3/2", "3", "a/b", "1/0", "-1/2", "1/2/3", ""] {
            assert_eq!(text.parse::<Part>(), Err(NotAPart(text.to_owned())));
        }
    }
}
