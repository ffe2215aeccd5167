//! CPU cores in the notation of Kubernetes: `100m`, `"0.5"`, or a whole number.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Kind, MAX_LENGTH, QuantityError, without_blanks};

const CORES: Kind = Kind {
    what: "a number of cores",
    example: "`100m`, `\"0.5\"` or `2`",
    units: &[("m", 1), ("", 1_000)],
    limit: (1_024_000, "1024"),
};

/// A number of CPU cores, such as `100m` (a tenth of a core) or `2`. Precise to a thousandth of a core; smaller parts
/// are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cores {
    /// Thousandths of a core.
    pub millis: u32,
}

impl FromStr for Cores {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        without_blanks(text, Cores::of_text)
    }
}

impl Cores {
    fn of_text(text: &str) -> Result<Self, QuantityError> {
        let (number, unit) = CORES.number(text)?;
        let worth = CORES.units.iter().find(|(name, _)| *name == unit).map(|it| it.1 as f64);
        let worth = worth.ok_or_else(|| CORES.unknown_unit(text, unit, CORES.units))?;
        CORES.within_limit(text, (number * worth).ceil()).map(|millis| Cores { millis: millis as u32 })
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.millis {
            whole if whole.is_multiple_of(1_000) => write!(f, "{}", whole / 1_000),
            millis => write!(f, "{millis}m"),
        }
    }
}

impl Serialize for Cores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts what an API server accepts as a quantity in a custom resource: a whole number or a string.
impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Cores;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of cores, such as `100m` or `2`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cores, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cores, E> {
                number.to_string().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cores, E> {
                number.to_string().parse().map_err(E::custom)
            }

            /// API servers reject fractional numbers, but accept them as strings.
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Cores, E> {
                match format!("{number}").parse::<Cores>() {
                    Ok(cores) => Err(E::custom(format_args!(
                        "a fraction of a core must be a string (found {number}): write `{cores}`"
                    ))),
                    Err(_) => Err(E::invalid_value(Unexpected::Float(number), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Cores {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Cores".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "description": "A number of CPU cores: a whole number, or a string such as `100m` or `\"0.5\"`.",
            "pattern": r"^[0-9]+(\.[0-9]+)?m?$",
            "maxLength": MAX_LENGTH,
            // The pattern applies only to strings.
            "minimum": 0,
            "maximum": CORES.limit.0 / 1_000
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn cores_are_read_as_kubernetes_writes_them() {
        for (text, millis) in
            [("100m", 100), ("0.5", 500), ("2", 2_000), ("0.0001", 1), ("0", 0), ("1024", 1_024_000)]
        {
            assert_eq!(text.parse(), Ok(Cores { millis }), "{text}");
        }
        assert_eq!(from_value::<Cores>(json!(2)).unwrap(), Cores { millis: 2_000 });
        assert_eq!(to_value(Cores { millis: 2_000 }).unwrap(), json!("2"));
        assert_eq!(to_value(Cores { millis: 1_500 }).unwrap(), json!("1500m"));
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| text.parse::<Cores>().unwrap_err().to_string();
        assert_eq!(
            error("many"),
            "`many` is not a number of cores: write a value such as `100m`, `\"0.5\"` or `2`"
        );
        assert_eq!(error("5M"), "`M` in `5M` is not a valid unit for a number of cores: use m, or no unit");
        assert_eq!(error("1025"), "`1025` is too large for a number of cores: write at most 1024");
        assert_eq!(
            from_value::<Cores>(json!(0.1)).unwrap_err().to_string(),
            "a fraction of a core must be a string (found 0.1): write `100m`"
        );
        assert!(from_value::<Cores>(json!(-1)).is_err() && from_value::<Cores>(json!([1])).is_err());
    }

    #[test]
    fn the_pattern_matches_exactly_the_strings_that_parse() {
        let schema = Cores::json_schema(&mut SchemaGenerator::default());
        let pattern = schema.get("pattern").and_then(|it| it.as_str()).expect("the type has a pattern");
        let pattern = regex::Regex::new(pattern).expect("the pattern is valid");
        for text in ["0", "1", "1.5", "1.", ".5", "100m", "1.5m", "1k", "-1", "", "m", "1e3", "1 m"] {
            assert_eq!(text.parse::<Cores>().is_ok(), pattern.is_match(text), "{text}");
        }
    }
}
