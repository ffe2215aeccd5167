//! Common ways to write a quantity that are not valid: with blanks, or with another spelling of its unit.

use super::{MAX_LENGTH, QuantityError};

/// Words for units, in lower case and without a plural `s`, with the unit that they mean.
const WORDS: [(&str, &str); 24] = [
    ("nanosecond", "ns"),
    ("nsec", "ns"),
    ("microsecond", "us"),
    ("usec", "us"),
    ("millisecond", "ms"),
    ("msec", "ms"),
    ("second", "s"),
    ("sec", "s"),
    ("minute", "m"),
    ("min", "m"),
    ("hour", "h"),
    ("hr", "h"),
    ("day", "d"),
    ("byte", "B"),
    ("kilobyte", "kB"),
    ("megabyte", "MB"),
    ("gigabyte", "GB"),
    ("bit", "bit"),
    ("kilobit", "kbit"),
    ("megabit", "Mbit"),
    ("gigabit", "Gbit"),
    ("terabit", "Tbit"),
    ("percent", "%"),
    ("core", ""),
];

/// Parses a quantity. If the text contains blanks, the error states the same quantity without them or, if that is not
/// valid, why not.
pub(super) fn without_blanks<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, QuantityError>,
) -> Result<T, QuantityError> {
    let compact: String = text.split_whitespace().collect();
    let is_quantity =
        text.chars().count() <= MAX_LENGTH && compact.starts_with(|it: char| it.is_ascii_digit());
    if compact.len() == text.len() || !is_quantity {
        return parse(text);
    }
    match parse(&compact) {
        Ok(_) => Err(QuantityError::Blank { text: text.into(), compact }),
        Err(QuantityError::UnknownUnit { unit, what, help, .. }) => {
            Err(QuantityError::UnknownUnit { text: text.into(), unit, what, help })
        }
        Err(other) => Err(other),
    }
}

/// Returns the quantity that this number and this spelling of a unit probably mean: `5Mbit` for `5Mbps`, and `2d` for
/// `2days`.
pub(super) fn meant(number: &str, unit: &str, units: &[(&str, u64)]) -> Option<String> {
    let rate = unit.strip_suffix("ps").unwrap_or(unit);
    let bits = rate.strip_suffix('b').map(|it| format!("{it}bit"));
    let lower = unit.to_lowercase();
    let word =
        |word: &str| WORDS.iter().find(|(known, _)| *known == word).map(|(_, unit)| (*unit).to_owned());
    let word = word(&lower).or_else(|| word(lower.strip_suffix('s')?));
    let spellings = [bits, Some(rate.to_owned()), word];
    let known = |it: String| {
        let same = units.iter().find(|(name, _)| *name == it);
        // One letter alone may mean something else: `5M` is no minute.
        let similar = || units.iter().find(|(name, _)| it.len() > 1 && name.eq_ignore_ascii_case(&it));
        same.or_else(similar)
    };
    spellings.into_iter().flatten().find_map(known).map(|(name, _)| format!("{number}{name}"))
}
