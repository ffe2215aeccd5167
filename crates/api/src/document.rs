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

use crate::resource::{Federation, FederationSpec, custom};

/// Returns the JSON schema of a federation file, for editors and for `faultline schema`.
pub fn schema() -> serde_json::Value {
    let mut generator = SchemaGenerator::default();
    let mut schema = generator.root_schema_for::<Document>().to_value();
    custom::describe(&mut schema, &mut generator);
    schema
}

/// Returns the custom resource definition.
///
/// API servers reject `additionalProperties: false`, and remove unknown fields on their own.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Federation::crd();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
        schema.into_iter().for_each(permit_additional_properties);
    }
    definition
}

/// Removes `additionalProperties: false` from a schema and all schemas in it.
fn permit_additional_properties(schema: &mut JSONSchemaProps) {
    use JSONSchemaPropsOrArray::{Schema, Schemas};

    if let Some(JSONSchemaPropsOrBool::Bool(false)) = schema.additional_properties {
        schema.additional_properties = None;
    }
    schema.properties.iter_mut().flat_map(|it| it.values_mut()).for_each(permit_additional_properties);
    if let Some(JSONSchemaPropsOrBool::Schema(of)) = &mut schema.additional_properties {
        permit_additional_properties(of);
    }
    match &mut schema.items {
        Some(Schema(of)) => permit_additional_properties(of),
        Some(Schemas(all)) => all.iter_mut().for_each(permit_additional_properties),
        None => {}
    }
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
