//! Instances of the quadratic assignment problem in the format of QAPLIB: a size, and two square matrices.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The largest number of facilities. Larger instances cannot be solved in a reasonable time.
pub const MOST: usize = 32;
/// The largest distance and flow. Any cost then fits in 64 bits.
const MOST_ENTRY: u64 = 1 << 24;

/// Nugent, Vollmann and Ruml's instance of 12 facilities; the optimum is 578.
pub(super) const NUG12: &str = include_str!("nug12.dat");
/// An instance of 14 facilities by the same authors; the optimum is 1014.
pub(super) const NUG14: &str = include_str!("nug14.dat");
/// An instance of 15 facilities by the same authors; the optimum is 1150.
pub(super) const NUG15: &str = include_str!("nug15.dat");

/// Facilities with flows between them, and as many locations with distances between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Number of facilities, and of locations.
    pub(super) n: usize,
    distances: Vec<u64>,
    flows: Vec<u64>,
    /// Facilities in the order in which a search places them: those with the greatest flows first, so that bounds are
    /// tight early.
    pub(super) order: Vec<usize>,
}

/// The reason why a text is not an instance. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The text contains only whitespace.
    #[error("the text is empty")]
    Empty,
    /// A word that is neither an entry of a matrix nor a size.
    #[error("line {line}: `{found}` is not a whole number from 0 to {limit}")]
    NotANumber {
        /// The line, counted from 1.
        line: usize,
        /// The word found.
        found: String,
        /// The largest number allowed.
        limit: u64,
    },
    /// A size that cannot be searched.
    #[error("line {line}: {found} facilities cannot be searched")]
    Size {
        /// The line, counted from 1.
        line: usize,
        /// The size found.
        found: u64,
    },
    /// The matrices are incomplete.
    #[error("line {line}: the text ends after {found} of {expected} entries of two {n} x {n} matrices")]
    Short {
        /// The last line that contains anything.
        line: usize,
        /// The size that the text states.
        n: usize,
        /// The number of entries found.
        found: usize,
        /// The number of entries that the size requires.
        expected: usize,
    },
    /// The matrices have more entries than the size allows.
    #[error("line {line}: `{found}` follows the last of {expected} entries of two {n} x {n} matrices")]
    Long {
        /// The line, counted from 1.
        line: usize,
        /// The first surplus word.
        found: String,
        /// The size that the text states.
        n: usize,
        /// The number of entries that the size requires.
        expected: usize,
    },
}

impl Malformed {
    /// Returns the remedy, as an instruction.
    pub fn remedy(&self) -> String {
        match self {
            Malformed::Empty => {
                "give the size n, then the distances and the flows as two n x n matrices".to_string()
            }
            Malformed::NotANumber { .. } => {
                "write whole numbers, separated by spaces or line breaks".to_string()
            }
            Malformed::Size { .. } => format!("choose an instance of 2 to {MOST} facilities"),
            Malformed::Short { n, .. } => format!("add the missing entries, or correct the size {n}"),
            Malformed::Long { n, .. } => format!("remove the surplus entries, or correct the size {n}"),
        }
    }
}

impl Instance {
    /// Reads the format of QAPLIB. Line breaks have no meaning there, so a row may span several lines.
    ///
    /// # Errors
    ///
    /// Returns the first place that violates the format.
    pub fn parse(text: &str) -> Result<Instance, Malformed> {
        let mut tokens = (1..)
            .zip(text.lines())
            .flat_map(|(line, content)| content.split_whitespace().map(move |token| (line, token)));
        let number = |(line, token): (usize, &str), limit: u64| match token.parse::<u64>() {
            Ok(number) if number <= limit => Ok(number),
            _ => Err(Malformed::NotANumber { line, found: token.to_string(), limit }),
        };
        let size = tokens.next().ok_or(Malformed::Empty)?;
        let n = match number(size, u64::MAX)? {
            n if (2..=MOST as u64).contains(&n) => n as usize,
            found => return Err(Malformed::Size { line: size.0, found }),
        };
        let (mut entries, expected, mut last) = (Vec::new(), 2 * n * n, size.0);
        for token in tokens {
            if entries.len() == expected {
                return Err(Malformed::Long { line: token.0, found: token.1.to_string(), n, expected });
            }
            entries.push(number(token, MOST_ENTRY)?);
            last = token.0;
        }
        if entries.len() < expected {
            return Err(Malformed::Short { line: last, n, found: entries.len(), expected });
        }
        let flows = entries.split_off(n * n);
        Ok(Instance::new(n, entries, flows))
    }

    fn new(n: usize, distances: Vec<u64>, flows: Vec<u64>) -> Instance {
        let mut totals = vec![0; n];
        for (index, flow) in flows.iter().enumerate() {
            totals[index / n] += flow;
            totals[index % n] += flow;
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|&it| (u64::MAX - totals[it], it));
        Instance { n, distances, flows, order }
    }

    /// Returns the cost of the flow from one facility to another at these locations.
    pub(super) fn pair(&self, from: usize, to: usize, at: usize, to_at: usize) -> u64 {
        self.flows[from * self.n + to] * self.distances[at * self.n + to_at]
    }

    pub(super) fn flows_of(&self, facility: usize) -> &[u64] {
        &self.flows[facility * self.n..][..self.n]
    }

    pub(super) fn distances_of(&self, location: usize) -> &[u64] {
        &self.distances[location * self.n..][..self.n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_span_lines() {
        let lines = Instance::parse("2\n\n0 1\n1 0\n\n0 3\n4 0\n").unwrap();
        assert_eq!(Instance::parse(" 2 0 1 1\n0\n0 3 4 0"), Ok(lines.clone()));
        assert_eq!((lines.n, lines.pair(0, 1, 1, 0), lines.pair(1, 0, 1, 0)), (2, 3, 4));
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        let bound = "is not a whole number from 0 to 16777216";
        let numbers = "write whole numbers, separated by spaces or line breaks";
        for (text, what, remedy) in [
            (
                " \n",
                "the text is empty".into(),
                "give the size n, then the distances and the flows as two n x n matrices",
            ),
            ("2\n0 1\nx 0", format!("line 3: `x` {bound}"), numbers),
            ("2\n0 -1\n1 0", format!("line 2: `-1` {bound}"), numbers),
            ("2\n0 1.5\n1 0", format!("line 2: `1.5` {bound}"), numbers),
            ("2\n0 16777217", format!("line 2: `16777217` {bound}"), numbers),
            (
                "64",
                "line 1: 64 facilities cannot be searched".into(),
                "choose an instance of 2 to 32 facilities",
            ),
            (
                "2\n0 1\n1 0\n\n0 3\n4\n\n",
                "line 6: the text ends after 7 of 8 entries of two 2 x 2 matrices".into(),
                "add the missing entries, or correct the size 2",
            ),
            (
                "2\n0 1\n1 0\n0 3\n4 0\n5",
                "line 6: `5` follows the last of 8 entries of two 2 x 2 matrices".into(),
                "remove the surplus entries, or correct the size 2",
            ),
        ] {
            let error = Instance::parse(text).unwrap_err();
            assert_eq!((error.to_string(), error.remedy().as_str()), (what, remedy));
        }
    }
}
