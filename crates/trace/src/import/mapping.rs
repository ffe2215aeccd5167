//! Rules that turn the lines of another system into the columns of facts.

use std::collections::BTreeMap;

use faultline_core::{FactKind, Promise, Scope};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::fields::{Common, SUPERVISOR, kind, whole_number};
use super::run::{Records, RunLine};
use super::{Event, EventLife, ImportError};
use crate::row::COLUMNS;

/// The mappings that are built in, by name.
const BUILT_IN: [(&str, &str); 2] =
    [("generic", include_str!("generic.yaml")), ("torchft", include_str!("torchft.yaml"))];
/// The length of the longest mapping, in bytes.
const LONGEST: usize = 1 << 20;

/// A mapping, with its name and the text from which it was read.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub(super) name: String,
    pub(super) text: String,
    rules: Rules,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rules {
    run: Run,
    events: Vec<Rule>,
}

/// How to describe the run, and the fields that every event has.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Run {
    name: String,
    #[serde(default = "process")]
    scope: Scope,
    #[serde(default)]
    promises: Vec<Promise>,
    process_from: ProcessFrom,
    cluster_from: Option<String>,
    life_from: Option<String>,
    number_from: Option<String>,
    time: Option<TimeFrom>,
    /// The kinds of facts that the log contains whenever they happened; without this entry, those of the rules.
    records: Option<Records>,
}

/// The field that names the process.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "`processFrom` must be the name of a field, or `{ field: NAME, until: TEXT }`")]
enum ProcessFrom {
    Field(String),
    /// The name ends before this text. What follows it identifies the life.
    Part(Part),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    field: String,
    until: String,
}

/// The field with the time, and its unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeFrom {
    field: String,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

/// A rule for lines that have certain values.
#[derive(Clone, Debug, Deserialize)]
struct Rule {
    #[serde(default)]
    r#match: BTreeMap<String, Value>,
    fact: FactFrom,
    /// Whether fields that have the name of a column become that column.
    #[serde(default)]
    copies: bool,
    time: Option<TimeFrom>,
    #[serde(flatten)]
    given: BTreeMap<String, Value>,
    /// The columns that `given` describes.
    #[serde(skip)]
    columns: BTreeMap<String, ColumnFrom>,
}

/// A kind of fact, or the field that names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "`fact` must be a kind of fact, such as `sent` (docs/bundle.md lists them), or `{ field: NAME }`"
)]
enum FactFrom {
    Kind(FactKind),
    Field(Field),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    field: String,
}

/// The field with the content of a column, or the content itself.
#[derive(Clone, Debug)]
enum ColumnFrom {
    Field(String),
    Fixed(Value),
}

impl ColumnFrom {
    /// Reads what a rule says about a column; `None` if it has another form.
    fn of(given: &Value) -> Option<ColumnFrom> {
        match given {
            Value::String(field) => Some(ColumnFrom::Field(field.clone())),
            Value::Object(fixed) if fixed.len() == 1 => fixed.get("value").cloned().map(ColumnFrom::Fixed),
            _ => None,
        }
    }
}

impl Mapping {
    /// The names of the mappings that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Returns the built-in mapping with this name.
    pub fn built_in(name: &str) -> Option<Result<Mapping, ImportError>> {
        BUILT_IN.iter().find(|(it, _)| *it == name).map(|(name, text)| Mapping::parse(name, text))
    }

    /// Reads a mapping. `name` is the name of its file for readers.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a mapping.
    pub fn parse(name: &str, text: &str) -> Result<Mapping, ImportError> {
        const HELP: &str = "docs/events.md describes mappings";
        if text.len() > LONGEST {
            return Err(ImportError::new("the mapping is longer than 1 MiB", HELP));
        }
        let options = serde_saphyr::options! {
            strict_booleans: true,
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        };
        let mut rules: Rules = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ImportError::new(crate::printable(&error.to_string()), HELP))?;
        let columns = || rules.events.iter().flat_map(|it| it.given.keys());
        if let Some(column) = columns().find(|it| !COLUMNS.contains(&it.as_str())) {
            return Err(ImportError::new(
                format!("unknown column `{}` in a rule", crate::printable(column)),
                "docs/events.md lists the columns",
            ));
        }
        if rules.events.is_empty() {
            return Err(ImportError::new("`events` has no rule", HELP));
        }
        for (number, rule) in (1..).zip(&mut rules.events) {
            for (column, given) in &rule.given {
                let from = ColumnFrom::of(given).ok_or_else(|| {
                    let found: String = crate::printable(&given.to_string()).chars().take(80).collect();
                    ImportError::new(
                        format!("`{column}` of rule {number} has the wrong form (found {found})"),
                        "write the name of a field, or a fixed value such as `{ value: 3 }`",
                    )
                })?;
                rule.columns.insert(column.clone(), from);
            }
        }
        Ok(Mapping { name: name.to_owned(), text: text.to_owned(), rules })
    }

    /// Returns the text from which the mapping was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line that describes a run of this kind.
    pub(super) fn run(&self) -> Result<RunLine, ImportError> {
        let Run { name, scope, promises, .. } = &self.rules.run;
        RunLine::mapped(name, *scope, promises)
    }

    /// Returns the kinds of facts that a log contains whenever they happened; `None` if the rules leave this open.
    pub(super) fn records(&self) -> Option<Records> {
        let kinds = self.rules.events.iter().map(|it| match it.fact {
            FactFrom::Kind(kind) => Some(kind),
            FactFrom::Field(_) => None,
        });
        self.rules.run.records.clone().or_else(|| kinds.collect::<Option<_>>().map(Records::Kinds))
    }

    /// Returns the names of all lives in these lines, as the lines give them.
    pub(super) fn lives(&self, lines: impl Iterator<Item = Map<String, Value>>) -> Vec<String> {
        let Some(field) = &self.rules.run.life_from else { return Vec::new() };
        let (process, _) = self.rules.run.process_from.parts();
        let is_supervisor =
            |line: &Map<String, Value>| find(line, process).is_some_and(|it| it == SUPERVISOR);
        let mut all: Vec<String> = Vec::new();
        for life in lines.filter(|it| !is_supervisor(it)).filter_map(|line| label(&line, field).ok()?) {
            if all.last() != Some(&life) {
                all.push(life);
            }
        }
        all
    }

    /// Applies the first rule that matches; `None` if the line names no process.
    pub(super) fn apply(&self, line: &Map<String, Value>) -> Result<Option<Event>, ImportError> {
        let run = &self.rules.run;
        let (field, until) = run.process_from.parts();
        let Some(process) = label(line, field)? else { return Ok(None) };
        let (process, rest) = match until.and_then(|it| process.split_once(it)) {
            Some((process, rest)) => (process.to_owned(), Some(rest.to_owned())),
            None => (process, None),
        };
        let life = match &run.life_from {
            Some(field) => match label(line, field)? {
                Some(given) => EventLife::Given(given),
                None => EventLife::numbered(None, &process),
            },
            None => EventLife::Current(rest),
        };
        let number = match &run.number_from {
            Some(field) => whole(line, field)?,
            None => None,
        };
        let cluster = match &run.cluster_from {
            Some(field) => label(line, field)?,
            None => None,
        };
        let rule = self.rules.events.iter().find(|it| it.matches(line));
        let time = match rule.and_then(|it| it.time.as_ref()).or(run.time.as_ref()) {
            Some(from) => time(line, from)?,
            None => None,
        };
        let fact = rule.map(|it| it.columns(line)).transpose()?;
        Ok(Some(Event { process, cluster, life, number, time, fact }))
    }
}

impl ProcessFrom {
    /// Returns the field, and the text before which the name ends.
    fn parts(&self) -> (&str, Option<&str>) {
        match self {
            ProcessFrom::Field(field) => (field, None),
            ProcessFrom::Part(Part { field, until }) => (field, Some(until)),
        }
    }
}

impl Rule {
    fn matches(&self, line: &Map<String, Value>) -> bool {
        let is_named = match &self.fact {
            FactFrom::Kind(_) => true,
            FactFrom::Field(Field { field }) => find(line, field).is_some(),
        };
        is_named
            && self.r#match.iter().all(|(field, value)| find(line, field).is_some_and(|it| equal(it, value)))
    }

    fn columns(&self, line: &Map<String, Value>) -> Result<(FactKind, Map<String, Value>), ImportError> {
        let kind = match &self.fact {
            FactFrom::Kind(kind) => *kind,
            FactFrom::Field(Field { field }) => kind(&label(line, field)?.unwrap_or_default())?,
        };
        let mut columns = Map::new();
        if self.copies {
            let common = ["process", "cluster", "life", "number", "time_ns", "fact"];
            let known = |it: &str| COLUMNS.contains(&it) && !common.contains(&it);
            let copied = line.iter().filter(|(name, _)| known(name));
            columns.extend(copied.map(|(name, value)| (name.clone(), value.clone())));
        }
        for (column, from) in &self.columns {
            let value = match from {
                ColumnFrom::Field(field) => find(line, field).cloned(),
                ColumnFrom::Fixed(value) => Some(value.clone()),
            };
            columns.extend(value.map(|it| (column.clone(), it)));
        }
        Ok((kind, columns))
    }
}

/// Finds a field. Dots lead into objects, unless a field has the whole name.
fn find<'a>(line: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    if let Some(value) = line.get(field) {
        return Some(value).filter(|it| !it.is_null());
    }
    let (first, rest) = field.split_once('.')?;
    find(line.get(first)?.as_object()?, rest)
}

/// Returns whether two values are the same, however their numbers are written.
fn equal(one: &Value, other: &Value) -> bool {
    one == other || one.is_number() && one.as_f64() == other.as_f64()
}

/// Reads a field with a name, which may be a number.
fn label(line: &Map<String, Value>, field: &str) -> Result<Option<String>, ImportError> {
    match find(line, field) {
        Some(value @ Value::Number(number)) => {
            Ok(Some(whole_number(value).map_or_else(|| number.to_string(), |it| it.to_string())))
        }
        found => single(field, found, |columns| columns.text(field)),
    }
}

fn whole<T: TryFrom<u64>>(line: &Map<String, Value>, field: &str) -> Result<Option<T>, ImportError> {
    single(field, find(line, field), |columns| columns.number(field))
}

fn single<T>(
    field: &str,
    found: Option<&Value>,
    read: impl FnOnce(&mut Common<'_>) -> Result<T, ImportError>,
) -> Result<T, ImportError> {
    let mut columns: Map<String, Value> =
        found.map(|it| (field.to_owned(), it.clone())).into_iter().collect();
    read(&mut Common(&mut columns))
}

/// Reads a time in nanoseconds.
fn time(line: &Map<String, Value>, from: &TimeFrom) -> Result<Option<i64>, ImportError> {
    let Some(value) = find(line, &from.field) else { return Ok(None) };
    let (unit, factor) = match from.unit {
        Unit::S => (1e9, 1_000_000_000),
        Unit::Ms => (1e6, 1_000_000),
        Unit::Us => (1e3, 1_000),
        Unit::Ns => (1.0, 1),
    };
    let whole = value.as_i64().map(|it| it.checked_mul(factor));
    let time = whole.unwrap_or_else(|| match value {
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(number) => Some((number * unit) as i64).filter(|_| number.is_finite()),
            Err(_) => {
                text.trim().parse::<Timestamp>().ok().and_then(|it| i64::try_from(it.as_nanosecond()).ok())
            }
        },
        other => other.as_f64().map(|it| (it * unit) as i64),
    });
    time.map(Some).ok_or_else(|| {
        ImportError::new(
            format!("`{}` must be a time (found {})", from.field, crate::printable(&value.to_string())),
            "write a number, and its unit in the mapping, or a date with its time zone, such as 2024-01-31T10:54:00Z (RFC 3339)",
        )
    })
}

fn process() -> Scope {
    Scope::Process
}
