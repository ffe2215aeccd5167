//! The schemas of the resource: of a file, and of an object on Kubernetes.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::resource::{Document, FederationSpec, custom};

/// Returns the JSON schema of a federation file, for editors and for `faultline schema`.
pub fn schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let mut schema = generator.root_schema_for::<Document>().to_value();
    custom::describe(&mut schema, &mut generator);
    schema
}

/// Returns the schema of a type of the resource in the structural form that a custom resource definition must have: a
/// schema states all fields of a value in one place, and refers to no other schema.
pub fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let settings = settings.with_transform(RecursiveTransform(flatten));
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the structural schema of a spec.
pub(crate) fn schema_of_spec() -> Value {
    structural::<FederationSpec>()
}

/// Moves the fields of the schemas that a schema combines into the schema itself, and adapts it to API servers, which
///
/// * reject `additionalProperties: false`, and remove unknown fields on their own;
/// * store a `null` only if the field is nullable. Before Kubernetes 1.34, an object with a `null` did not equal itself
///   in a rule, so the rules would have rejected every later write;
/// * do not know the format `uint32`.
///
/// The types of the resource combine schemas only for optional values and for enums (see [`crate::resource`]).
fn flatten(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::Array(alternatives)) = schema.remove("anyOf") {
        let value = alternatives.into_iter().find(|it| it["enum"] != json!([null]));
        for (keyword, own) in value.iter().filter_map(Value::as_object).flatten() {
            // The description of a field says more than that of its type.
            schema.entry(keyword).or_insert_with(|| own.clone());
        }
    }
    if let Some(Value::Array(variants)) = schema.remove("oneOf") {
        for variant in variants {
            add_variant(schema, variant);
        }
    }
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        schema.remove("additionalProperties");
    }
    schema.remove("nullable");
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    if schema.get("format").is_some_and(|it| it == "uint32") {
        schema.entry("maximum").or_insert_with(|| u32::MAX.into());
    }
}

/// Adds a variant of an enum to the schema of the enum: a word, or a field that excludes those of the other variants.
fn add_variant(schema: &mut Map<String, Value>, mut variant: Value) {
    let list = |schema: &mut Map<String, Value>, keyword: &str, mut added: Vec<Value>| {
        if let Value::Array(all) = schema.entry(keyword).or_insert_with(|| json!([])) {
            all.append(&mut added);
        }
    };
    schema.insert("type".to_owned(), variant["type"].take());
    if let Value::Array(words) = variant["enum"].take() {
        return list(schema, "enum", words);
    }
    list(schema, "oneOf", vec![json!({ "required": variant["required"] })]);
    let Value::Object(fields) = variant["properties"].take() else { return };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    for (name, mut field) in fields {
        if variant["description"].is_string() {
            field["description"] = variant["description"].clone();
        }
        properties[name] = field;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Trip {
        /// How to travel.
        by: Option<Vehicle>,
        /// When to travel.
        on: Option<Day>,
        /// How many travel.
        people: Option<u32>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Vehicle {
        /// A train.
        Train(Train),
        /// A ship.
        Ship(Ship),
    }

    /// A kind of train.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Train {
        /// Whether it is fast.
        fast: bool,
    }

    #[derive(JsonSchema)]
    struct Ship {}

    /// A day.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Day {
        /// Today.
        Today,
        /// The day after today.
        Tomorrow,
    }

    #[test]
    fn a_structural_schema_states_the_fields_of_a_value_in_one_place() {
        let train = json!({
            "type": "object",
            "description": "A train.",
            "properties": { "fast": { "type": "boolean", "description": "Whether it is fast." } },
            "required": ["fast"],
        });
        let vehicle = json!({
            "type": "object",
            "description": "How to travel.",
            "properties": { "Train": train, "Ship": { "type": "object", "description": "A ship." } },
            "oneOf": [{ "required": ["Train"] }, { "required": ["Ship"] }],
        });
        let day =
            json!({ "type": "string", "description": "When to travel.", "enum": ["Today", "Tomorrow"] });
        let people = json!({
            "type": "integer", "description": "How many travel.", "format": "uint32", "minimum": 0, "maximum": u32::MAX,
        });
        let trip = json!({
            "title": "Trip", "type": "object", "properties": { "by": vehicle, "on": day, "people": people },
        });
        assert_eq!(structural::<Trip>(), trip);
    }
}
