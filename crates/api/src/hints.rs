//! What the schema of a federation says about a field: its range, and what may stand in it. Only errors need this.

use std::ops::Range;
use std::sync::LazyLock;

use serde_json::Value;

use crate::locate::Locations;
use crate::schema::schema_of_spec;

/// Returns the smallest and largest whole number that the field at byte `at` permits; `None` if the schema states no
/// largest one.
pub(crate) fn range(locations: &Locations, at: usize) -> Option<(u64, u64)> {
    let schema = schema_at(locations.path_at(at)?)?;
    let bound = |name: &str| schema[name].as_f64().map(|it| it as u64);
    Some((bound("minimum").unwrap_or(0), bound("maximum")?))
}

/// Returns the suggested fix for the word at `place`, where a mapping is expected: the mapping that the word probably
/// means.
pub(crate) fn mapping(locations: &Locations, text: &str, place: &Range<usize>) -> String {
    let word = text.get(place.clone()).unwrap_or_default();
    let schema = locations.path_at(place.start).and_then(schema_at).unwrap_or(&Value::Null);
    let fields = || schema["properties"].as_object().into_iter().flatten();
    let permits =
        |field: &Value| field["enum"].as_array().into_iter().flatten().any(|it| it.as_str() == Some(word));
    let required = required(schema);
    let probable = match (fields().find(|it| it.0 == word), fields().find(|it| permits(it.1))) {
        (Some((_, inner)), _) => match &self::required(inner)[..] {
            [] => Some(format!("{{ {word}: {{}} }}")),
            all => Some(format!("{{ {word}: {{ {} }} }}", ellipses(all))),
        },
        (None, Some((name, _))) => Some(format!("{{ {name}: {word} }}")),
        (None, None) => match &required[..] {
            [first, rest @ ..] if !word.is_empty() => {
                let rest = if rest.is_empty() { String::new() } else { format!(", {}", ellipses(rest)) };
                Some(format!("{{ {first}: {word}{rest} }}"))
            }
            _ => {
                let is_numbered = word.rsplit_once('-').is_some_and(|it| it.1.parse::<u32>().is_ok());
                let field = if is_numbered { "process" } else { "cluster" };
                fields().any(|it| it.0 == field).then(|| format!("{{ {field}: {word} }}"))
            }
        },
    };
    match (probable, fields().next()) {
        (Some(it), _) => format!("write `{it}`"),
        (None, Some(_)) => {
            let names: Vec<&str> = fields().map(|(name, _)| name.as_str()).collect();
            format!("write `{{ … }}` with fields inside, which may be {}", names.join(", "))
        }
        (None, None) => {
            "write `{ … }` with the fields inside; `faultline samples` prints complete examples".into()
        }
    }
}

/// Returns the fields that a mapping of this schema must have.
fn required(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Formats fields without their values.
fn ellipses(fields: &[&str]) -> String {
    fields.iter().map(|it| format!("{it}: …")).collect::<Vec<_>>().join(", ")
}

/// Returns the schema of the value at a path such as `spec.clusters[1].nodes`.
fn schema_at(path: &str) -> Option<&'static Value> {
    static SPEC: LazyLock<Value> = LazyLock::new(schema_of_spec);
    let mut schema = &*SPEC;
    for name in path.strip_prefix("spec")?.split(['.', '[']).filter(|it| !it.is_empty()) {
        schema = match name.ends_with(']') {
            true => &schema["items"],
            false if schema["properties"][name].is_object() => &schema["properties"][name],
            false => &schema["additionalProperties"],
        };
    }
    Some(schema).filter(|it| it.is_object())
}
