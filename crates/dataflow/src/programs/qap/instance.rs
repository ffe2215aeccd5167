//! Instances of the quadratic assignment problem in the format of QAPLIB: a size, and two square matrices.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The maximum number of facilities. Larger instances cannot be solved in a reasonable time.
pub const MOST: usize = 32;
/// The largest permitted distance or flow, chosen so that any cost fits in 64 bits.
const MOST_ENTRY: u64 = 1 << 24;

/// Nugent, Vollmann and Ruml's instance with 12 facilities; the optimum is 578.
pub(super) const NUG12: &str = include_str!("nug12.dat");
/// An instance with 14 facilities by the same authors; the optimum is 1014.
pub(super) const NUG14: &str = include_str!("nug14.dat");
/// An instance with 15 facilities by the same authors; the optimum is 1150.
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

/// The reason why a text is not an instance. Lines are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The text contains only whitespace.
    #[error("the text is empty")]
    Empty,
    /// The first word is not a supported size.
    #[error("line {line}: the size must be a whole number from 2 to {MOST} (found `{found}`)")]
    Size {
        /// The line, counted from 1.
        line: usize,
        /// The word found.
        found: String,
    },
    /// A word is not a valid entry of a matrix.
    #[error("line {line}: `{found}` is not a whole number from 0 to {MOST_ENTRY}")]
    NotAnEntry {
        /// The line, counted from 1.
        line: usize,
        /// The word found.
        found: String,
    },
    /// Exactly one line does not have as many entries as a row of the matrices.
    #[error(
        "line {line}: this row has {in_row} instead of {n} entries, so the two {n} x {n} matrices have {found} instead of \
         {expected} entries"
    )]
    Row {
        /// The line, counted from 1.
        line: usize,
        /// The number of entries in this line.
        in_row: usize,
        /// The size that the text states.
        n: usize,
        /// The number of entries found.
        found: usize,
        /// The number of entries that the size requires.
        expected: usize,
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
    #[error(
        "line {line}: unexpected `{surplus}`: two {n} x {n} matrices have {expected} entries (found {found})"
    )]
    Long {
        /// The line, counted from 1.
        line: usize,
        /// The first surplus word.
        surplus: String,
        /// The size that the text states.
        n: usize,
        /// The number of entries found.
        found: usize,
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
            Malformed::Size { .. } => format!("choose an instance of 2 to {MOST} facilities"),
            Malformed::NotAnEntry { .. } => {
                format!("write whole numbers from 0 to {MOST_ENTRY}, separated by spaces or line breaks")
            }
            Malformed::Row { in_row, n, .. } if in_row < n => {
                "add the missing entries to this line".to_string()
            }
            Malformed::Row { .. } => "remove the surplus entries from this line".to_string(),
            Malformed::Short { n, .. } => format!("add the missing entries, or correct the size {n}"),
            Malformed::Long { n, .. } => format!("remove the surplus entries, or correct the size {n}"),
        }
    }
}

impl Instance {
    /// Returns the number of facilities, which is also the number of locations.
    pub fn size(&self) -> u32 {
        self.n as u32
    }

    /// Parses a text in the format of QAPLIB. Line breaks have no meaning in this format, so a row may span several
    /// lines.
    ///
    /// # Errors
    ///
    /// Returns an error that describes how the text violates the format.
    pub fn parse(text: &str) -> Result<Instance, Malformed> {
        let mut tokens = (1..)
            .zip(text.lines())
            .flat_map(|(line, content)| content.split_whitespace().map(move |token| (line, token)));
        let (line, size) = tokens.next().ok_or(Malformed::Empty)?;
        let n = match size.parse() {
            Ok(n) if (2..=MOST).contains(&n) => n,
            _ => return Err(Malformed::Size { line, found: size.to_string() }),
        };
        let tokens: Vec<(usize, &str)> = tokens.collect();
        let (found, expected) = (tokens.len(), 2 * n * n);
        let mut entries = Vec::with_capacity(expected);
        for &(line, token) in tokens.iter().take(expected) {
            match token.parse() {
                Ok(entry) if entry <= MOST_ENTRY => entries.push(entry),
                _ => return Err(Malformed::NotAnEntry { line, found: token.to_string() }),
            }
        }
        if found != expected {
            return Err(miscounted(n, line, &tokens));
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

/// Returns the error for too few or too many entries. If there are more than two lines of entries, and exactly one of
/// them does not have `n` entries, the error names that line. `line` is the number of the line that states the size.
fn miscounted(n: usize, line: usize, tokens: &[(usize, &str)]) -> Malformed {
    let (found, expected) = (tokens.len(), 2 * n * n);
    let rows = || tokens.chunk_by(|one, other| one.0 == other.0);
    let mut odd = rows().filter(|row| row.len() != n);
    if let (Some(row), None, true) = (odd.next(), odd.next(), rows().count() > 2) {
        return Malformed::Row { line: row[0].0, in_row: row.len(), n, found, expected };
    }
    match tokens.get(expected) {
        Some(&(line, surplus)) => Malformed::Long { line, surplus: surplus.to_string(), n, found, expected },
        None => Malformed::Short { line: tokens.last().map_or(line, |it| it.0), n, found, expected },
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
        let numbers = "write whole numbers from 0 to 16777216, separated by spaces or line breaks";
        let sizes = "choose an instance of 2 to 32 facilities";
        let size =
            |found: &str| format!("line 1: the size must be a whole number from 2 to 32 (found `{found}`)");
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
            ("0", size("0"), sizes),
            ("-3\n0 1", size("-3"), sizes),
            ("64", size("64"), sizes),
            ("99999999999999999999999", size("99999999999999999999999"), sizes),
            ("nug12\n12", size("nug12"), sizes),
            (
                "2",
                "line 1: the text ends after 0 of 8 entries of two 2 x 2 matrices".into(),
                "add the missing entries, or correct the size 2",
            ),
            (
                "2\n0 1\n1 0\n\n0 3\n\n",
                "line 5: the text ends after 6 of 8 entries of two 2 x 2 matrices".into(),
                "add the missing entries, or correct the size 2",
            ),
            (
                "2\n0 1\n1\n\n0 3\n4 0\n",
                "line 3: this row has 1 instead of 2 entries, so the two 2 x 2 matrices have 7 instead of 8 entries".into(),
                "add the missing entries to this line",
            ),
            (
                "2\n0 1\n1 0\n0 3 3\n4 0\n",
                "line 4: this row has 3 instead of 2 entries, so the two 2 x 2 matrices have 9 instead of 8 entries".into(),
                "remove the surplus entries from this line",
            ),
            (
                "2\n0 1\n1 0\n0 3\n4 0\n5 x",
                "line 6: unexpected `5`: two 2 x 2 matrices have 8 entries (found 10)".into(),
                "remove the surplus entries, or correct the size 2",
            ),
        ] {
            let error = Instance::parse(text).unwrap_err();
            assert_eq!((error.to_string(), error.remedy().as_str()), (what, remedy));
        }
    }
}
