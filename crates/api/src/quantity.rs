//! Quantities with a unit: `5ms`, `100Mbit`, `64KiB`, `0.1%`.
//!
//! Each type parses from and prints to a string, so that files, the command line and API servers agree on its meaning.
//! A number without a unit is an error, except 0.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use faultline_core::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

mod cores;
mod spelling;

pub use cores::Cores;

use spelling::{meant, without_blanks};

/// The reason why a string is not a valid quantity. Each message suggests a fix after the colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is too long, or does not start with a valid number.
    #[error("`{text}` is not {what}: write a value such as {example}")]
    NoNumber {
        /// The text.
        text: String,
        /// The kind of quantity that was expected.
        what: &'static str,
        /// Examples of valid values.
        example: &'static str,
    },
    /// The unit is missing.
    #[error("`{text}` has no unit: write a value such as {example}")]
    NoUnit {
        /// The text.
        text: String,
        /// Examples of valid values.
        example: &'static str,
    },
    /// The text contains a blank.
    #[error("`{text}` contains a blank: write `{compact}`")]
    Blank {
        /// The text.
        text: String,
        /// The text without blanks.
        compact: String,
    },
    /// The bandwidth is greater than zero, but less than the smallest one.
    #[error("`{0}` is less than the smallest bandwidth: write at least 8bit, which is 1 byte per second")]
    TooSlow(String),
    /// The unit is unknown.
    #[error("`{unit}` in `{text}` is not a valid unit for {what}: {help}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The unknown unit.
        unit: String,
        /// The kind of quantity that was expected.
        what: &'static str,
        /// What to write: the units, and the same value with the unit that was probably meant.
        help: String,
    },
    /// The number is negative.
    #[error("{what} must not be negative (found `{text}`): write a value of zero or more")]
    Negative {
        /// The text.
        text: String,
        /// The kind of quantity that was expected.
        what: &'static str,
    },
    /// The number exceeds the limit.
    #[error("`{text}` is too large for {what}: write at most {limit}")]
    TooMuch {
        /// The text.
        text: String,
        /// The kind of quantity that was expected.
        what: &'static str,
        /// The limit.
        limit: &'static str,
    },
    /// The bandwidth is zero, which would cut the link instead of slowing it down.
    #[error(
        "a bandwidth must not be zero (found `{0}`): use a `partition` fault to cut a link, or `unlimited`"
    )]
    ZeroBandwidth(String),
}

/// A duration of at least zero, such as `5ms`. Precise to the nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(pub Span);

/// A duration or `never`: the delay of a timer that can be disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Option<Span>);

/// A bandwidth in bits (`100Mbit`) or bytes (`80MB`) per second, or `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bandwidth(u64);

/// A number of bytes, such as `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

/// Share of packets that a link loses, such as `0.1%`. At most 50%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Loss {
    /// Parts per million.
    pub ppm: u32,
}

impl Loss {
    /// The largest loss of a link that a kernel emulates, and whose latency echoes can confirm.
    pub const MOST_BY_KERNEL: Loss = Loss { ppm: 50_000 };

    /// Returns why no run can confirm a link with this loss if a kernel emulates it; `None` if a run can.
    pub fn unconfirmed_by_kernel(self) -> Option<String> {
        (self > Loss::MOST_BY_KERNEL).then(|| {
            format!(
                "a loss of {self} cannot be confirmed under traffic control, because TCP delays the packets behind a \
                 lost one"
            )
        })
    }
}

impl Duration {
    /// The longest duration that a file can state.
    pub const MAX: Duration = Duration(Span(DURATION.limit.0));
}

impl Bandwidth {
    /// No limit.
    pub const UNLIMITED: Bandwidth = Bandwidth(0);

    /// Returns a bandwidth of `bytes` per second; 0 means unlimited.
    pub const fn from_bytes_per_second(bytes: u64) -> Bandwidth {
        Bandwidth(bytes)
    }

    /// Returns the bytes per second; 0 means unlimited.
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
}

/// Maximum length of the text of a quantity, in characters.
const MAX_LENGTH: usize = 24;

/// Name of a quantity, and its units with their values in ascending order.
struct Kind {
    what: &'static str,
    example: &'static str,
    units: &'static [(&'static str, u64)],
    limit: (u64, &'static str),
}

const DURATION: Kind = Kind {
    what: "a duration",
    example: "`5ms`, `1.5s` or `2m`",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("d", 86_400_000_000_000),
    ],
    limit: (3_650 * 86_400_000_000_000, "3650d"),
};

const BANDWIDTH: Kind = Kind {
    what: "a bandwidth",
    example: "`100Mbit` or `80MB` (per second)",
    units: &[("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)],
    limit: (1_000_000_000_000, "1000GB"),
};

/// Units of bandwidth in bits.
const BITS: &[(&str, u64)] =
    &[("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000), ("Tbit", 1_000_000_000_000)];

const SIZE: Kind = Kind {
    what: "a size",
    example: "`500B`, `64KiB` or `2MB`",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
    ],
    limit: (1 << 40, "1024GiB"),
};

const LOSS: Kind =
    Kind { what: "a loss", example: "`0.1%`", units: &[("%", 10_000)], limit: (500_000, "50%") };

impl Kind {
    /// Splits `text` into the number and the unit. Only `0` may lack a unit.
    fn split<'a>(&self, text: &'a str) -> Result<(f64, &'a str), QuantityError> {
        let (number, unit) = self.number(text)?;
        if unit.is_empty() && text != "0" {
            return Err(QuantityError::NoUnit { text: text.into(), example: self.example });
        }
        Ok((number, unit))
    }

    /// Splits `text` into the number and the rest.
    fn number<'a>(&self, text: &'a str) -> Result<(f64, &'a str), QuantityError> {
        let digits = text.trim_start_matches('-');
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let (number, unit) = digits.split_at(end);
        let no_number =
            || QuantityError::NoNumber { text: text.into(), what: self.what, example: self.example };
        if text.chars().count() > MAX_LENGTH || number.starts_with('.') || number.ends_with('.') {
            return Err(no_number());
        }
        let number: f64 = number.parse().map_err(|_| no_number())?;
        if digits.len() != text.len() {
            return Err(QuantityError::Negative { text: text.into(), what: self.what });
        }
        Ok((number, unit))
    }

    fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        let (number, unit) = self.split(text)?;
        // The prefix for a millionth is either the micro sign or the Greek letter.
        let ascii = unit.strip_prefix(['\u{b5}', '\u{3bc}']).map(|it| format!("u{it}"));
        let ascii = ascii.as_deref().unwrap_or(unit);
        let worth = match self.units.iter().find(|(name, _)| *name == ascii) {
            Some(&(_, worth)) => worth,
            // Zero needs no unit.
            None if unit.is_empty() => 0,
            None => return Err(self.unknown_unit(text, unit, self.units)),
        };
        self.within_limit(text, number * worth as f64)
    }

    fn within_limit(&self, text: &str, value: f64) -> Result<u64, QuantityError> {
        let (limit, name) = self.limit;
        if value > limit as f64 {
            return Err(QuantityError::TooMuch { text: text.into(), what: self.what, limit: name });
        }
        Ok(value.round() as u64)
    }

    fn unknown_unit(&self, text: &str, unit: &str, units: &[(&str, u64)]) -> QuantityError {
        let named: Vec<&str> = units.iter().map(|(name, _)| *name).filter(|it| !it.is_empty()).collect();
        let or_none = if named.len() < units.len() { ", or no unit" } else { "" };
        let all = match &named[..] {
            [only] => format!("use {only}{or_none}"),
            many => format!("use one of {}{or_none}", many.join(", ")),
        };
        let number = text.trim_end_matches(|it: char| !it.is_ascii_digit());
        let help = match meant(number, unit, units) {
            Some(meant) => format!("write `{meant}`, or {all}"),
            None => all,
        };
        QuantityError::UnknownUnit { text: text.into(), unit: unit.trim().into(), what: self.what, help }
    }

    /// Prints `value` in the largest unit that makes it a whole number or, if there is none, in the smallest unit, so
    /// that it parses to the same value.
    fn print(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.units.iter().rev().find(|(_, worth)| value != 0 && value.is_multiple_of(*worth));
        match whole {
            Some((name, worth)) => write!(f, "{}{name}", value / worth),
            None => write!(f, "{}{}", value as f64 / self.units[0].1 as f64, self.units[0].0),
        }
    }
}

impl FromStr for Duration {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        without_blanks(text, |text| DURATION.parse(text)).map(|nanos| Duration(Span(nanos)))
    }
}

impl FromStr for Period {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "never" | "infinite" => Ok(Period(None)),
            _ => text.parse::<Duration>().map(|duration| Period(Some(duration.0))),
        }
    }
}

impl FromStr for Bandwidth {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text == "unlimited" {
            return Ok(Bandwidth::UNLIMITED);
        }
        without_blanks(text, Bandwidth::of_text)
    }
}

impl Bandwidth {
    fn of_text(text: &str) -> Result<Self, QuantityError> {
        let (number, unit) = BANDWIDTH.split(text)?;
        if unit.is_empty() {
            return Err(QuantityError::ZeroBandwidth(text.into()));
        }
        let unit = unit.strip_suffix("/s").unwrap_or(unit);
        let worth =
            |units: &[(&str, u64)]| units.iter().find(|(name, _)| *name == unit).map(|it| it.1 as f64);
        let bytes = match (worth(BANDWIDTH.units), worth(BITS)) {
            (Some(bytes), _) => bytes,
            (None, Some(bits)) => bits / 8.0,
            (None, None) => {
                return Err(BANDWIDTH.unknown_unit(text, unit, &[BITS, BANDWIDTH.units].concat()));
            }
        };
        if number == 0.0 {
            return Err(QuantityError::ZeroBandwidth(text.into()));
        }
        if number * bytes < 1.0 {
            return Err(QuantityError::TooSlow(text.into()));
        }
        BANDWIDTH.within_limit(text, number * bytes).map(Bandwidth)
    }
}

impl FromStr for Size {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        // Kubernetes writes `Ki`, `Mi` and `Gi`.
        let of_text = |text: &str| match ["Ki", "Mi", "Gi"].iter().any(|unit| text.ends_with(unit)) {
            true => SIZE.parse(&format!("{text}B")),
            false => SIZE.parse(text),
        };
        without_blanks(text, of_text).map(Size)
    }
}

impl FromStr for Loss {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        without_blanks(text, |text| LOSS.parse(text)).map(|ppm| Loss { ppm: ppm as u32 })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DURATION.print(self.0.0, f)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => Duration(span).fmt(f),
            None => f.write_str("never"),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bandwidth::UNLIMITED => f.write_str("unlimited"),
            Bandwidth(bytes) => BANDWIDTH.print(bytes, f),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SIZE.print(self.0, f)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LOSS.print(u64::from(self.ppm), f)
    }
}

/// Implements the conversions that serde uses, and the schema, for a quantity that is a string with this pattern and
/// description.
macro_rules! string_quantity {
    ($name:ident, $pattern:literal, $description:literal) => {
        impl TryFrom<String> for $name {
            type Error = QuantityError;
            fn try_from(text: String) -> Result<Self, QuantityError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(quantity: $name) -> String {
                quantity.to_string()
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": $pattern,
                    "maxLength": MAX_LENGTH
                })
            }
        }
    };
}

string_quantity!(
    Duration,
    r"^(0|[0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h|d))$",
    "A duration: a number with a unit (ns, us or µs, ms, s, m, h, d)."
);
string_quantity!(
    Period,
    r"^(never|infinite|0|[0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h|d))$",
    "A duration: a number with a unit (ns, us or µs, ms, s, m, h, d), or `never`."
);
string_quantity!(
    Bandwidth,
    r"^(unlimited|[0-9]+(\.[0-9]+)?([kMGT]?bit|[kMG]?B)(/s)?)$",
    "A bandwidth, as an amount of data per second: a number with a unit (bit, kbit, Mbit, Gbit, Tbit, B, kB, MB, GB), or `unlimited`."
);
string_quantity!(
    Size,
    r"^(0|[0-9]+(\.[0-9]+)?(B|kB|KiB?|MB|MiB?|GB|GiB?))$",
    "A size: a number with a unit (B, kB, KiB, MB, MiB, GB, GiB); Ki, Mi and Gi mean the same as KiB, MiB and GiB."
);
string_quantity!(
    Loss,
    r"^(0|[0-9]+(\.[0-9]+)?%)$",
    "Share of packets that are lost and retransmitted: a percentage of at most 50%."
);

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T: FromStr<Err = QuantityError> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn durations_are_exact_in_every_unit() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("7ns", 7),
            ("200us", 200_000),
            ("200\u{b5}s", 200_000),
            ("1.5\u{3bc}s", 1_500),
            ("0.1ms", 100_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("10h", 36_000_000_000_000),
            ("1.5d", 129_600_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Duration(Span(nanos))), "{text}");
        }
        for (text, bytes) in [("512Mi", 512 << 20), ("1Gi", 1 << 30), ("1.5Ki", 1536), ("64KiB", 64 << 10)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size(512 << 20).to_string(), "512MiB");
        assert!(error::<Size>("5MiBB").contains("is not a valid unit"));
        assert_eq!("never".parse(), Ok(Period(None)));
        assert_eq!("infinite".parse(), Ok(Period(None)));
        assert_eq!("30m".parse(), Ok(Period(Some(Span::from_secs(1800)))));
    }

    #[test]
    fn bandwidths_distinguish_bits_and_bytes() {
        for (text, bytes) in [
            ("100Mbit", 12_500_000),
            ("100Mbit/s", 12_500_000),
            ("80MB", 80_000_000),
            ("1.5GB", 1_500_000_000),
            ("8bit", 1),
            ("unlimited", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bandwidth(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_and_losses_parse_exactly() {
        assert_eq!("64KiB".parse(), Ok(Size(65_536)));
        assert_eq!("2MB".parse(), Ok(Size(2_000_000)));
        assert_eq!("0.1%".parse(), Ok(Loss { ppm: 1_000 }));
        assert_eq!("50%".parse(), Ok(Loss { ppm: 500_000 }));
    }

    #[test]
    fn errors_say_what_to_write() {
        assert_eq!(error::<Duration>("5"), "`5` has no unit: write a value such as `5ms`, `1.5s` or `2m`");
        assert_eq!(
            error::<Duration>("5seconds"),
            "`seconds` in `5seconds` is not a valid unit for a duration: write `5s`, or use one of ns, us, ms, s, m, h, d"
        );
        assert_eq!(
            error::<Duration>("5 milliseconds"),
            "`milliseconds` in `5 milliseconds` is not a valid unit for a duration: write `5ms`, or use one of ns, us, ms, \
             s, m, h, d"
        );
        assert!(error::<Duration>("1.5days").contains("write `1.5d`, or use one of"));
        assert!(
            error::<Duration>("5 fortnights").ends_with("for a duration: use one of ns, us, ms, s, m, h, d")
        );
        assert_eq!(error::<Duration>("5 "), "`5` has no unit: write a value such as `5ms`, `1.5s` or `2m`");
        assert_eq!(error::<Duration>("5 ms"), "`5 ms` contains a blank: write `5ms`");
        assert_eq!(error::<Duration>("5\u{a0}ms"), "`5\u{a0}ms` contains a blank: write `5ms`");
        assert_eq!(error::<Bandwidth>(" 100 Mbit "), "` 100 Mbit ` contains a blank: write `100Mbit`");
        assert!(error::<Duration>("in 5 ms").contains("is not a duration"));
        assert_eq!(
            error::<Duration>("-5ms"),
            "a duration must not be negative (found `-5ms`): write a value of zero or more"
        );
        assert_eq!(
            error::<Duration>("soon"),
            "`soon` is not a duration: write a value such as `5ms`, `1.5s` or `2m`"
        );
        assert!(error::<Duration>("1e9s").starts_with("`e9s` in `1e9s` is not a valid unit"));
        assert_eq!(
            error::<Duration>("99999999h"),
            "`99999999h` is too large for a duration: write at most 3650d"
        );
        assert!(error::<Bandwidth>("100Mbps").contains("write `100Mbit`, or use one of bit, kbit, Mbit"));
        for (text, meant) in
            [("100 Mbps", "`100Mbit`"), ("5Mb/s", "`5Mbit`"), ("1.5mbit", "`1.5Mbit`"), ("8MBps", "`8MB`")]
        {
            assert!(error::<Bandwidth>(text).contains(meant), "{text}: {}", error::<Bandwidth>(text));
        }
        for (text, meant) in [("1 megabyte", "`1MB`"), ("64kib", "`64KiB`"), ("2 Bytes", "`2B`")] {
            assert!(error::<Size>(text).contains(meant), "{text}: {}", error::<Size>(text));
        }
        assert!(error::<Loss>("1 percent").contains("write `1%`, or use %"));
        assert!(error::<Bandwidth>("0MB").contains("`partition`"));
        assert_eq!(
            error::<Bandwidth>("1bit"),
            "`1bit` is less than the smallest bandwidth: write at least 8bit, which is 1 byte per second"
        );
        assert!(error::<Bandwidth>("7bit").contains("at least 8bit") && "8bit".parse::<Bandwidth>().is_ok());
        assert_eq!(error::<Loss>("100%"), "`100%` is too large for a loss: write at most 50%");
        assert!(error::<Size>("1..2MB").contains("is not a size"));
    }

    #[test]
    fn a_printed_quantity_parses_to_the_same_value() {
        for nanos in
            [0, 1, 999, 1_000, 1_500_000, 90_000_000_000, 5_400_000_000_000, 172_800_000_000_000, 123_456_789]
        {
            let duration = Duration(Span(nanos));
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
        for ppm in [0, 1, 15, 1_000, 12_345, 500_000] {
            let loss = Loss { ppm };
            assert_eq!(loss.to_string().parse(), Ok(loss));
        }
        for bytes in [0, 1, 12_500_000, 12_500_001] {
            assert_eq!(Bandwidth(bytes).to_string().parse(), Ok(Bandwidth(bytes)));
        }
        for bytes in [0, 1, 1 << 20, 65_537] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Period(None).to_string(), "never");
    }

    /// API servers check only the pattern and the length.
    #[test]
    fn patterns_match_exactly_the_strings_that_parse() {
        fn agree<T: FromStr<Err = QuantityError> + JsonSchema>(text: &str) {
            let schema = T::json_schema(&mut SchemaGenerator::default());
            let pattern = schema.get("pattern").and_then(|it| it.as_str()).expect("a quantity has a pattern");
            let admitted = regex::Regex::new(pattern).expect("the pattern is valid").is_match(text)
                && text.chars().count() <= MAX_LENGTH;
            let exceeds_a_limit = |error| {
                use QuantityError::{TooMuch, TooSlow, ZeroBandwidth};
                matches!(error, TooMuch { .. } | TooSlow(_) | ZeroBandwidth(_))
            };
            match text.parse::<T>() {
                Ok(_) => assert!(admitted, "the pattern {pattern} rejects `{text}`"),
                Err(error) => {
                    assert!(!admitted || exceeds_a_limit(error), "the pattern {pattern} accepts `{text}`")
                }
            }
        }
        let numbers =
            ["0", "1", "007", "1.5", "1.", ".5", "1..5", "-1", "", "0.0", "1000000000000000000000000", "1e3"];
        let units = [
            "", "ns", "us", "µs", "μs", "ms", "s", "m", "h", "d", " s", "bit", "kbit", "Mbit", "Gbit",
            "Tbit", "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "Mbit/s", "MB/s", "/s", "%",
        ];
        let words = ["never", "infinite", "unlimited", "Never"].map(String::from);
        let all = numbers.iter().flat_map(|number| units.iter().map(move |unit| format!("{number}{unit}")));
        for text in all.chain(words) {
            agree::<Duration>(&text);
            agree::<Period>(&text);
            agree::<Bandwidth>(&text);
            agree::<Size>(&text);
            agree::<Loss>(&text);
        }
    }
}
