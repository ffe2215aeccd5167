//! The parameters of a sweep: each is a field of the federation file, with its values.

use std::fmt;
use std::str::FromStr;

use faultline_api::Federation;
use faultline_api::parse::value as parse_value;
use faultline_api::quantity::{Bandwidth, Duration, Loss, Size};
use faultline_failures::text::duration;
use serde_json::{Map, Value};
use thiserror::Error;

/// The maximum number of points of a range.
const MOST_STEPS: usize = 1000;
/// Fields with a single key, which selects a kind. A path below one kind cannot set a field of another.
const KINDS: [&str; 2] = ["protocol", "application"];

/// A field of the federation file, and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The path of the field below `spec`, with dots between the names: `links.between.latency`. An element of a list
    /// is addressed by its name or by its index from 0: `clusters.paris.nodes`.
    pub path: String,
    /// The values: each as text, and as it appears in the federation file.
    pub values: Vec<(String, Value)>,
    /// Notes on ranges with fewer values than requested.
    pub notes: Vec<String>,
}

/// The reason why a parameter is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// There is no path, or there are no values.
    #[error("expected PATH=VALUES, as in `links.between.latency=1ms,5ms` (found `{0}`)")]
    Shape(String),
    /// The field is the seed, which a sweep replaces with its own seeds.
    #[error(
        "every setting runs with the same seeds; set the first with `--seed` and their number with `--seeds`"
    )]
    Seed,
    /// A value appears twice.
    #[error("the value `{0}` appears twice; remove one")]
    Twice(String),
    /// The number of points of a range is missing or out of range.
    #[error(
        "a range must end with its number of points, from 2 to {MOST_STEPS}, as in `1ms..100ms/5` (found `{0}`)"
    )]
    Steps(String),
    /// The ends of a range are neither two numbers nor two quantities of one kind.
    #[error(
        "the ends of a range must be two numbers, durations, sizes, bandwidths or percentages (found `{0}`)"
    )]
    Ends(String),
    /// The range is descending.
    #[error("the start of a range must be less than its end (found `{0}`)")]
    Down(String),
}

/// The reason why a value cannot be set in a federation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The path selects a protocol or application other than that of the file.
    #[error("`{path}`: the file's {field} is `{found}`, not `{asked}`")]
    Kind {
        /// The whole path.
        path: String,
        /// `protocol` or `application`.
        field: String,
        /// The kind in the file.
        found: String,
        /// The kind in the path.
        asked: String,
    },
    /// A list has no such element.
    #[error("`{path}`: there is no `{asked}` (available: {known})")]
    Element {
        /// The whole path.
        path: String,
        /// The name or index in the path.
        asked: String,
        /// The existing names or indices.
        known: String,
    },
    /// The path leads through a value that has no fields.
    #[error("`{path}`: `{at}` has no fields")]
    Leaf {
        /// The whole path.
        path: String,
        /// The part of the path that has no fields.
        at: String,
    },
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<&str> = self.values.iter().map(|it| it.0.as_str()).collect();
        write!(f, "{}={}", self.path, values.join(","))
    }
}

impl FromStr for Parameter {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Parameter, ParameterError> {
        let shape = || ParameterError::Shape(text.to_owned());
        let (path, values) = text.split_once('=').ok_or_else(shape)?;
        let path = path.strip_prefix("spec.").unwrap_or(path);
        if path.split('.').any(str::is_empty) || values.split(',').any(|it| it.trim().is_empty()) {
            return Err(shape());
        }
        if path == "seed" {
            return Err(ParameterError::Seed);
        }
        let mut all: Vec<(String, Value)> = Vec::new();
        let mut notes = Vec::new();
        for value in values.split(',').map(str::trim) {
            let written = match value.split_once("..") {
                Some((from, rest)) => {
                    let (points, count) = range(value, from, rest)?;
                    if points.len() < count {
                        let found = points.len();
                        notes.push(if points.iter().all(|it| it.parse::<i64>().is_ok()) {
                            format!(
                                "`{value}` has only {found} different whole numbers, not {count}; for fractions, write \
                                 the ends of the range with a decimal point, as in `1.0..2.0/5`"
                            )
                        } else {
                            format!(
                                "`{value}` has only {found} different values, not {count}, because the values between \
                                 its ends are rounded to three digits"
                            )
                        });
                    }
                    points
                }
                None => vec![value.to_owned()],
            };
            for value in written {
                if all.iter().any(|(known, _)| *known == value) {
                    return Err(ParameterError::Twice(value));
                }
                let parsed = parse_value(&value);
                all.push((value, parsed));
            }
        }
        Ok(Parameter { path: path.to_owned(), values: all, notes })
    }
}

impl Parameter {
    /// Returns the last name of the path, which identifies the parameter if no other path ends in the same name.
    ///
    /// # Panics
    ///
    /// Never panics: a path has at least one name.
    pub fn short(&self) -> &str {
        self.path.rsplit('.').next().expect("a path has a name")
    }
}

/// The values of a parameter as numbers, on which curves can be drawn.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The numbers: durations in seconds, other quantities in the smallest unit of their kind.
    pub(crate) all: Vec<f64>,
    /// Formats a number between two of the values.
    print: fn(f64, &[Unit; 2]) -> String,
    units: [Unit; 2],
}

impl Numbers {
    /// Returns the values of a parameter as numbers, unless one of them is none or of another kind.
    pub(crate) fn of(parameter: &Parameter) -> Option<Numbers> {
        let values = || parameter.values.iter().map(|it| it.0.as_str());
        if let Some(all) = values().map(|it| it.parse().ok()).collect::<Option<Vec<f64>>>() {
            return Some(Numbers { all, print: |it, _| decimal(it), units: [None, None] });
        }
        let (kind, all) = (0..)
            .zip(QUANTITIES)
            .find_map(|(kind, parse)| Some((kind, values().map(parse).collect::<Option<Vec<f64>>>()?)))?;
        let ends = [values().next()?, values().next_back()?];
        let units = ends.map(|it| unit(it, &QUANTITIES[kind]));
        if kind == 0 {
            let all = all.into_iter().map(|it| it / 1e9).collect();
            return Some(Numbers { all, print: |it, _| duration(it), units });
        }
        Some(Numbers { all, print: with_unit, units })
    }

    /// Formats a number between two of the values.
    pub(crate) fn text(&self, number: f64) -> String {
        (self.print)(number, &self.units)
    }
}

/// Returns the points of `FROM..TO/N`, and N. Successive points have equal ratios or, if the range starts at zero or
/// below, equal differences. There are fewer than N points if some of them round to the same number.
fn range(text: &str, from: &str, rest: &str) -> Result<(Vec<String>, usize), ParameterError> {
    let steps = || ParameterError::Steps(text.to_owned());
    let (to, steps_text) = rest.split_once('/').ok_or_else(steps)?;
    let (from, to) = (from.trim(), to.trim());
    let count: usize = steps_text.trim().parse().map_err(|_| steps())?;
    if !(2..=MOST_STEPS).contains(&count) {
        return Err(steps());
    }
    let print: Box<dyn Fn(f64) -> String>;
    let (least, most): (f64, f64);
    if let (Ok(first), Ok(last)) = (from.parse(), to.parse()) {
        (least, most) = (first, last);
        print = Box::new(if [from, to].iter().any(|it| it.contains('.')) { decimal } else { whole });
    } else if let Some((ends, units)) = QUANTITIES.iter().find_map(|parse| {
        let ends = (parse(from)?, parse(to)?);
        Some((ends, [from, to].map(|end| unit(end, parse))))
    }) {
        (least, most) = ends;
        print = Box::new(move |it| with_unit(it, &units));
    } else {
        return Err(ParameterError::Ends(text.to_owned()));
    }
    if least.is_infinite() || most.is_infinite() {
        return Err(ParameterError::Ends(text.to_owned()));
    }
    if least.partial_cmp(&most) != Some(std::cmp::Ordering::Less) {
        return Err(ParameterError::Down(text.to_owned()));
    }
    let last = count - 1;
    let between = |step: usize| {
        let share = step as f64 / last as f64;
        if least > 0.0 { least * (most / least).powf(share) } else { least + (most - least) * share }
    };
    let point = |step: usize| match step {
        // The ends stay as they were written.
        0 => from.to_owned(),
        it if it == last => to.to_owned(),
        _ => print(between(step)),
    };
    let mut points: Vec<String> = (0..count).map(point).collect();
    // Points that are close together can round to the same number.
    points.dedup();
    Ok((points, count))
}

/// Parses a quantity of one kind. Returns it in the kind's smallest unit.
type ParseQuantity = fn(&str) -> Option<f64>;

const QUANTITIES: [ParseQuantity; 4] = [
    |text| text.parse::<Duration>().ok().map(|it| it.0.0 as f64),
    |text| text.parse::<Size>().ok().map(|it| it.0 as f64),
    |text| {
        text.parse::<Bandwidth>()
            .ok()
            .filter(|it| *it != Bandwidth::UNLIMITED)
            .map(|it| it.bytes_per_second() as f64)
    },
    |text| text.parse::<Loss>().ok().map(|it| f64::from(it.ppm)),
];

/// A unit and its value in the smallest unit of its kind; `None` for a zero that is written without a unit.
type Unit = Option<(f64, String)>;

/// Returns the unit of a quantity, given the function that parses quantities of its kind.
fn unit(quantity: &str, parse: &ParseQuantity) -> Unit {
    // One bit per second is less than the smallest bandwidth, so several units are parsed.
    const SEVERAL: f64 = 8.0;
    let name = quantity.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
    let several = parse(&format!("{SEVERAL}{name}"))?;
    Some((several / SEVERAL, name.to_owned()))
}

/// Formats a quantity in the unit of one of the ends of its range: the larger unit that is not greater than
/// the value or, if both are greater, the smaller unit.
fn with_unit(value: f64, units: &[Unit; 2]) -> String {
    let fits = |it: &&(f64, String)| it.0 <= value;
    let by_value = |one: &&(f64, String), other: &&(f64, String)| one.0.total_cmp(&other.0);
    let all = || units.iter().flatten();
    let unit = all().filter(fits).max_by(by_value).or_else(|| all().min_by(by_value));
    let (worth, unit) = unit.map_or((1.0, ""), |(worth, unit)| (*worth, unit));
    format!("{}{unit}", three_digits(value / worth))
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn decimal(value: f64) -> String {
    three_digits(value).to_string()
}

/// Rounds to three significant digits: 3.16 ms is more readable than 3.16227766 ms.
fn three_digits(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let unit = 10_f64.powi(value.abs().log10().floor() as i32 - 2);
    if unit >= 1.0 { (value / unit).round() * unit } else { (value / unit).round() / (1.0 / unit).round() }
}

/// Sets `value` at `path` below `spec` of a federation in JSON form. Adds sections that the file omits.
pub(super) fn place(federation: &mut Value, path: &str, value: &Value) -> Result<(), PlaceError> {
    let names: Vec<&str> = path.split('.').collect();
    let mut at = &mut federation["spec"];
    for (depth, name) in names.iter().enumerate() {
        at = match at {
            Value::Null => {
                *at = Value::Object(Map::new());
                at.as_object_mut().expect("the object was just created").entry(*name).or_insert(Value::Null)
            }
            Value::Object(fields) => {
                let kind = depth == 1 && KINDS.contains(&names[0]);
                if let (true, Some(found), false) = (kind, fields.keys().next(), fields.contains_key(*name)) {
                    return Err(PlaceError::Kind {
                        path: path.to_owned(),
                        field: names[0].to_owned(),
                        found: found.clone(),
                        asked: (*name).to_owned(),
                    });
                }
                fields.entry(*name).or_insert(Value::Null)
            }
            Value::Array(elements) => {
                let named = |it: &Value| it.get("name").and_then(Value::as_str) == Some(name);
                let index = name.parse().ok().or_else(|| elements.iter().position(named));
                match index {
                    Some(index) if index < elements.len() => &mut elements[index],
                    _ => return Err(unknown_element(path, name, elements)),
                }
            }
            _ => {
                return Err(PlaceError::Leaf { path: path.to_owned(), at: names[..depth].join(".") });
            }
        };
    }
    *at = value.clone();
    Ok(())
}

fn unknown_element(path: &str, asked: &str, elements: &[Value]) -> PlaceError {
    let name = |(index, it): (usize, &Value)| match it.get("name").and_then(Value::as_str) {
        Some(name) => format!("`{name}`"),
        None => format!("`{index}`"),
    };
    let known: Vec<String> = elements.iter().enumerate().map(name).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    PlaceError::Element { path: path.to_owned(), asked: asked.to_owned(), known }
}

/// Returns a federation as a document in which values can be set.
pub(super) fn document(federation: &Federation) -> Value {
    serde_json::to_value(federation).expect("a federation has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<String>, ParameterError> {
        let parameter: Parameter = text.parse()?;
        Ok(parameter.values.into_iter().map(|it| it.0).collect())
    }

    #[test]
    fn ranges_are_geometric_and_those_from_zero_are_linear() {
        assert_eq!(values("a.b=1ms..100ms/5").expect("valid"), ["1ms", "3.16ms", "10ms", "31.6ms", "100ms"]);
        assert_eq!(values("a=0..8/5").expect("valid"), ["0", "2", "4", "6", "8"]);
        assert_eq!(values("a=1..3/5").expect("valid"), ["1", "2", "3"], "whole numbers stay whole");
        assert_eq!(values("a=1.0..2.0/3").expect("valid"), ["1.0", "1.41", "2.0"], "decimals stay decimals");
        assert_eq!(values("a=0.1..1.6/5").expect("valid"), ["0.1", "0.2", "0.4", "0.8", "1.6"]);
        assert_eq!(values("a=100ms..10s/5").expect("valid"), ["100ms", "316ms", "1s", "3.16s", "10s"]);
        assert_eq!(values("a=0..1s/3").expect("valid"), ["0", "0.5s", "1s"]);
        assert_eq!(values("a= 0 .. 10µs / 3").expect("valid"), ["0", "5µs", "10µs"]);
        assert_eq!(
            values("a=10Mbit..1Gbit/5").expect("valid"),
            ["10Mbit", "31.6Mbit", "100Mbit", "316Mbit", "1Gbit"]
        );
        assert_eq!(values("a=0.1%..10%/3").expect("valid"), ["0.1%", "1%", "10%"]);
        let sizes = values("a=0B..4MiB/3").expect("valid");
        assert_eq!((sizes[0].as_str(), sizes[2].as_str()), ("0B", "4MiB"), "the ends stay as written");
        assert_eq!(values("a=1s,never, 5s").expect("valid"), ["1s", "never", "5s"]);
    }

    #[test]
    fn a_range_with_fewer_values_than_requested_has_a_note() {
        let notes = |text: &str| text.parse::<Parameter>().expect("valid").notes;
        assert_eq!(
            notes("a=1..2/5"),
            [
                "`1..2/5` has only 2 different whole numbers, not 5; for fractions, write the ends of the range \
                 with a decimal point, as in `1.0..2.0/5`"
            ]
        );
        assert_eq!(
            notes("a=1.0..1.001/10"),
            [
                "`1.0..1.001/10` has only 3 different values, not 10, because the values between its ends are rounded to \
                 three digits"
            ]
        );
        assert!(notes("a=1..16/5").is_empty() && notes("a=1.0..2.0/5").is_empty());
    }

    #[test]
    fn errors_name_what_was_found() {
        let refused = |text: &str| values(text).expect_err("the parameter must be rejected").to_string();
        assert!(refused("checkpointEvery").contains("`checkpointEvery`"));
        assert!(refused("a=").contains("expected PATH=VALUES"));
        assert!(refused("a..b=1").contains("expected PATH=VALUES"));
        assert!(refused("a=1s,1s").contains("`1s` appears twice"));
        assert!(refused("a=1s..5s").contains("`1s..5s`"));
        assert!(refused("a=1s..5s/1").contains("from 2 to"));
        assert!(refused("a=1s..5KiB/3").contains("two numbers, durations"));
        assert!(refused("a=5s..1s/3").contains("must be less than its end"));
        assert!(refused("a=1..nan/3").contains("must be less than its end"));
        assert!(refused("a=1..inf/3").contains("two numbers, durations"));
    }

    #[test]
    fn values_reach_named_elements_and_sections_that_were_left_out() {
        let mut it =
            serde_json::json!({ "spec": { "clusters": [{ "name": "a" }], "protocol": { "hydee": {} } } });
        place(&mut it, "clusters.a.nodes", &Value::from(3)).expect("the cluster exists");
        place(&mut it, "links.between.latency", &Value::from("5ms")).expect("missing sections are added");
        assert_eq!(it["spec"]["clusters"][0]["nodes"], 3);
        assert_eq!(it["spec"]["links"]["between"]["latency"], "5ms");
        let refused = |path: &str, it: &mut Value| {
            place(it, path, &Value::Null).expect_err("the path must be rejected").to_string()
        };
        assert!(refused("clusters.b.nodes", &mut it).contains("there is no `b` (available: `a`)"));
        assert!(refused("clusters.7.nodes", &mut it).contains("there is no `7`"));
        assert!(refused("protocol.hc3i.replicas", &mut it).contains("is `hydee`, not `hc3i`"));
        assert!(
            refused("links.between.latency.x", &mut it).contains("`links.between.latency` has no fields")
        );
    }
}
