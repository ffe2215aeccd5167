//! The resource as a file, and its schemas.
//!
//! Files are parsed more strictly than an API server parses objects: unknown fields outside the spec are also errors.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::CustomResourceExt;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use crate::resource::{Federation, FederationSpec, custom};

/// Returns the JSON schema of a federation file, for editors and for `faultline schema`.
pub fn schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let mut schema = generator.root_schema_for::<Document>().to_value();
    custom::describe(&mut schema, &mut generator);
    schema
}

/// Returns the custom resource definition.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Federation::crd();
    let of_file = schema();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            adapt(schema);
            describe(schema, &of_file, &of_file["$defs"]);
        }
    }
    definition
}

/// Returns the schema of a spec in the custom resource definition.
pub(crate) fn schema_of_spec() -> Value {
    let version = definition().spec.versions.remove(0);
    let schema = version.schema.and_then(|it| it.open_api_v3_schema).expect("the definition has a schema");
    serde_json::to_value(&schema.properties.unwrap_or_default()["spec"]).expect("a schema serialises")
}

/// Adapts a schema and all schemas in it to API servers, which
///
/// * reject `additionalProperties: false`, and remove unknown fields on their own;
/// * store a `null` only if the field is nullable. Before Kubernetes 1.34, an object with a `null` did not equal itself
///   in a rule, so the rules would have rejected every later write;
/// * do not know the format `uint32`.
fn adapt(schema: &mut JSONSchemaProps) {
    use JSONSchemaPropsOrArray::{Schema, Schemas};

    if let Some(JSONSchemaPropsOrBool::Bool(false)) = schema.additional_properties {
        schema.additional_properties = None;
    }
    schema.nullable = None;
    if schema.format.as_deref() == Some("uint32") {
        schema.maximum.get_or_insert(u32::MAX.into());
    }
    schema.properties.iter_mut().flat_map(|it| it.values_mut()).for_each(adapt);
    if let Some(JSONSchemaPropsOrBool::Schema(of)) = &mut schema.additional_properties {
        adapt(of);
    }
    match &mut schema.items {
        Some(Schema(of)) => adapt(of),
        Some(Schemas(all)) => all.iter_mut().for_each(adapt),
        None => {}
    }
}

/// Gives each property in a schema its own description from `of_file`, the corresponding schema of a file. Without this,
/// an optional enum or object has only the description of its type, because the definition has no references.
fn describe(schema: &mut JSONSchemaProps, of_file: &Value, types: &Value) {
    let parts = parts(of_file, types, false);
    let part = |keyword: &str| parts.iter().map(|(it, _)| &it[keyword]).find(|it| it.is_object());
    for (name, property) in schema.properties.iter_mut().flatten() {
        let mut found = parts.iter().map(|(it, is_variant)| (&it["properties"][name], *is_variant));
        let Some((of_file, is_variant)) = found.find(|it| it.0.is_object()) else { continue };
        // A variant is described as such, and its value only by its type.
        if let Some(own) = of_file["description"].as_str().filter(|_| !is_variant) {
            property.description = Some(own.to_owned());
        }
        describe(property, of_file, types);
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(entry)), Some(of_file)) = (&mut schema.items, part("items")) {
        describe(entry, of_file, types);
    }
    let values = &mut schema.additional_properties;
    if let (Some(JSONSchemaPropsOrBool::Schema(value)), Some(of_file)) =
        (values, part("additionalProperties"))
    {
        describe(value, of_file, types);
    }
}

/// Returns a schema and the schemas that it refers to or combines, each with whether it is a variant of an enum.
fn parts<'a>(schema: &'a Value, types: &'a Value, is_variant: bool) -> Vec<(&'a Value, bool)> {
    let referred = schema["$ref"].as_str().and_then(|it| types.get(it.trim_start_matches("#/$defs/")));
    let all = |keyword: &str| schema[keyword].as_array().into_iter().flatten();
    let others = referred.into_iter().chain(all("anyOf")).map(|it| (it, false));
    let others = others.chain(all("oneOf").map(|it| (it, true)));
    let others = others.flat_map(|(it, is_variant)| parts(it, types, is_variant));
    std::iter::once((schema, is_variant)).chain(others).collect()
}

/// Returns the text of a YAML file that describes the federation.
///
/// # Panics
///
/// Panics if the federation contains a value that YAML cannot represent. A federation that was read from a file never
/// does.
pub fn to_yaml(federation: &Federation) -> String {
    serde_saphyr::to_string(federation).expect("a federation can be written as YAML")
}

/// An experiment: clusters, links, a rollback-recovery protocol, an application, faults and a seed.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "Federation")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    /// Version of the format.
    pub(crate) api_version: ApiVersion,
    /// Kind of the resource.
    pub(crate) kind: Kind,
    /// Name and labels of the federation.
    #[schemars(with = "Metadata")]
    pub(crate) metadata: ObjectMeta,
    /// The experiment to run.
    pub(crate) spec: FederationSpec,
    /// Status of an object that was exported from Kubernetes. Ignored.
    #[serde(default, rename = "status")]
    #[schemars(skip)]
    _status: serde::de::IgnoredAny,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum ApiVersion {
    #[serde(rename = "faultline.dev/v1alpha1")]
    V1Alpha1,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) enum Kind {
    Federation,
}

/// The part of the Kubernetes metadata that users write.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct Metadata {
    /// Name of the federation.
    #[schemars(length(min = 1, max = 40), pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    name: String,
    /// Namespace on Kubernetes.
    namespace: Option<String>,
    /// Arbitrary labels, for people and tools.
    labels: Option<BTreeMap<String, String>>,
    /// Arbitrary annotations, for people and tools.
    annotations: Option<BTreeMap<String, String>>,
}
