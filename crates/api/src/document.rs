//! The form of the resource in a file, and its schemas.
//!
//! A file is read more strictly than an API server reads an object: what is misspelt beside the spec is an error too.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResourceExt;
use schemars::{JsonSchema, schema_for};
use serde::Deserialize;

use crate::resource::{Federation, FederationSpec};

/// The JSON schema of a file, for editors and for `faultline schema`.
pub fn schema() -> serde_json::Value {
    schema_for!(Document).to_value()
}

/// The custom resource definition, for Kubernetes.
pub fn definition() -> CustomResourceDefinition {
    Federation::crd()
}

/// A federation as the text of a file. Panics on a value that no file can hold, which serialisation has no other way to
/// report: every federation that was read from a file can be written.
pub fn to_yaml(federation: &Federation) -> String {
    serde_saphyr::to_string(federation).expect("a federation has a form in YAML")
}

/// An experiment: clusters, links, a rollback-recovery protocol, an application, faults and a seed.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "Federation")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    /// The version of this form.
    pub(crate) api_version: ApiVersion,
    /// What the file holds.
    pub(crate) kind: Kind,
    /// What the federation is called.
    #[schemars(with = "Metadata")]
    pub(crate) metadata: ObjectMeta,
    /// The experiment.
    pub(crate) spec: FederationSpec,
    /// What a cluster reported; means nothing here.
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

/// The part of Kubernetes' metadata that people write.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct Metadata {
    /// Names the federation.
    #[schemars(length(min = 1, max = 40), pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    name: String,
    /// Its namespace on Kubernetes.
    namespace: Option<String>,
    /// For people and tools.
    labels: Option<BTreeMap<String, String>>,
    /// For people and tools.
    annotations: Option<BTreeMap<String, String>>,
}
