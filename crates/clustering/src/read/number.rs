//! Whole numbers as programs write them: `1500`, `3.0`, `1.5e3`.

use thiserror::Error;

/// The reason why a word is not a whole number, with the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NumberError {
    /// The word is empty.
    #[error("is not a number; a number is missing here")]
    Missing,
    /// The word is not a number.
    #[error("is not a whole number; write one of at least 0, such as 1500")]
    NotANumber,
    /// The number is negative.
    #[error("is negative; write a whole number of at least 0")]
    Negative,
    /// The number is infinite or undefined.
    #[error("is not finite; write a whole number of at least 0")]
    NotFinite,
    /// The number has a fraction.
    #[error("has a fraction; round it to a whole number")]
    Fraction,
    /// The number does not fit in 64 bits.
    #[error("is too large; write at most 18446744073709551615")]
    TooLarge,
    /// The number has separators between its digits, or is part of a number that has.
    #[error("has separators between its digits, or leading zeros; write 1000, not 1,000 or 0100")]
    Grouped,
}

/// Parses a whole number, which may be written with a fraction of zero or with an exponent.
pub(super) fn whole(word: &str) -> Result<u64, NumberError> {
    let unsigned = word.strip_prefix('+').unwrap_or(word);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_digits(integer) || !fraction.is_none_or(is_digits) {
        return Err(not_a_number(word));
    }
    if integer.len() > 1 && integer.starts_with('0') {
        return Err(NumberError::Grouped);
    }
    let fraction = fraction.unwrap_or_default();
    let digits = format!("{integer}{fraction}");
    let (digits, zeros) = match digits.trim_matches('0') {
        "" => ("", 0),
        _ => (digits.trim_end_matches('0'), digits.len() - digits.trim_end_matches('0').len()),
    };
    let exponent = match exponent.map(|it| (it.strip_prefix(['+', '-']).unwrap_or(it), it.starts_with('-'))) {
        None => 0,
        Some((size, is_negative)) if is_digits(size) => {
            // Every larger exponent has the same effect.
            let size = size.parse::<i64>().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
            if is_negative { -size } else { size }
        }
        Some(_) => return Err(NumberError::NotANumber),
    };
    if digits.is_empty() {
        return Ok(0);
    }
    // The value is `digits` times ten to the power of this.
    let power = exponent + zeros as i64 - fraction.len() as i64;
    let power = u32::try_from(power)
        .map_err(|_| if power < 0 { NumberError::Fraction } else { NumberError::TooLarge })?;
    let digits: u64 = digits.parse().map_err(|_| NumberError::TooLarge)?;
    10_u64.checked_pow(power).and_then(|it| digits.checked_mul(it)).ok_or(NumberError::TooLarge)
}

/// Returns the reason why a word that does not consist of digits is not a number.
fn not_a_number(word: &str) -> NumberError {
    let is_grouping = |it: char| ",_' \u{a0}\u{202f}".contains(it);
    let unsigned =
        word.strip_prefix('-').filter(|it| it.starts_with(|it: char| it.is_ascii_digit())).map(whole);
    let is_negative = matches!(unsigned, Some(Ok(1..) | Err(NumberError::Fraction | NumberError::TooLarge)));
    match word.to_ascii_lowercase().trim_start_matches(['+', '-']) {
        "" if word.is_empty() => NumberError::Missing,
        "nan" | "inf" | "infinity" => NumberError::NotFinite,
        _ if is_negative => NumberError::Negative,
        _ if word.contains(is_grouping)
            && word.chars().all(|it| it.is_ascii_digit() || it == '.' || is_grouping(it)) =>
        {
            NumberError::Grouped
        }
        _ => NumberError::NotANumber,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_numbers_are_accepted_however_programs_write_them() {
        for (word, value) in [
            ("0", 0),
            ("0.0", 0),
            ("0e9", 0),
            ("0e-9", 0),
            ("+7", 7),
            ("3.0", 3),
            ("3.00e0", 3),
            ("1.5e3", 1500),
            ("1.5E+03", 1500),
            ("1500e-2", 15),
            ("12.50e1", 125),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551615.0", u64::MAX),
            ("1e19", 10_u64.pow(19)),
        ] {
            assert_eq!(whole(word), Ok(value), "{word}");
        }
    }

    #[test]
    fn other_words_are_refused_with_the_reason() {
        use NumberError::*;
        for (word, why) in [
            ("", Missing),
            ("x", NotANumber),
            (".", NotANumber),
            ("5.", NotANumber),
            (".5", NotANumber),
            ("1e", NotANumber),
            ("0x10", NotANumber),
            ("5B", NotANumber),
            ("--5", NotANumber),
            ("-0", NotANumber),
            ("-1", Negative),
            ("-1.5", Negative),
            ("-inf", NotFinite),
            ("NaN", NotFinite),
            ("Infinity", NotFinite),
            ("0.5", Fraction),
            ("1.5", Fraction),
            ("15e-1", Fraction),
            ("1e-99999999999999999999", Fraction),
            ("18446744073709551616", TooLarge),
            ("1e20", TooLarge),
            ("1e99999999999999999999", TooLarge),
            ("1,000", Grouped),
            ("1_000", Grouped),
            ("1'000", Grouped),
            ("1 000", Grouped),
            ("1.000,5", Grouped),
            ("000", Grouped),
        ] {
            assert_eq!(whole(word), Err(why), "{word}");
        }
    }

    proptest! {
        #[test]
        fn every_whole_number_is_read_back(value: u64) {
            prop_assert_eq!(whole(&value.to_string()), Ok(value));
            prop_assert_eq!(whole(&format!("{value}.0")), Ok(value));
        }

        #[test]
        fn no_word_panics(word in r"[-+0-9.,eE_ \PC]{0,30}") {
            let _ = whole(&word);
        }
    }
}
