//! The resource as a file describes it. Kubernetes objects have further metadata and a status, which other crates know.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_with_macros::skip_serializing_none;

use super::FederationSpec;

/// An experiment with its name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Document")]
pub struct Federation {
    /// Its name and labels.
    pub metadata: Metadata,
    /// The experiment.
    pub spec: FederationSpec,
}

/// The part of the Kubernetes metadata that users write.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(inline)]
pub struct Metadata {
    /// Arbitrary annotations, for people and tools.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Arbitrary labels, for people and tools.
    pub labels: Option<BTreeMap<String, String>>,
    /// Name of the federation.
    #[schemars(with = "String", length(min = 1, max = 40), pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Namespace on Kubernetes.
    pub namespace: Option<String>,
}

impl Federation {
    /// Returns a federation that has nothing but a name and a spec.
    pub fn new(name: &str, spec: FederationSpec) -> Federation {
        Federation { metadata: Metadata { name: Some(name.to_owned()), ..Metadata::default() }, spec }
    }
}

impl From<Document> for Federation {
    fn from(document: Document) -> Federation {
        let Document { api_version: ApiVersion::V1Alpha1, kind: Kind::Federation, metadata, spec, .. } =
            document;
        Federation { metadata, spec }
    }
}

impl Serialize for Federation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            api_version: ApiVersion,
            kind: Kind,
            metadata: &'a Metadata,
            spec: &'a FederationSpec,
        }
        let Federation { metadata, spec } = self;
        Written { api_version: ApiVersion::V1Alpha1, kind: Kind::Federation, metadata, spec }
            .serialize(serializer)
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
///
/// Files are read more strictly than an API server reads objects: unknown fields outside the spec are also errors.
#[derive(Deserialize, JsonSchema)]
#[schemars(
    title = "Federation",
    description = "An experiment: clusters, links, a rollback-recovery protocol, an application, faults and a seed."
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    /// Version of the format.
    api_version: ApiVersion,
    /// Kind of the resource.
    kind: Kind,
    /// Name and labels of the federation.
    metadata: Metadata,
    /// The experiment to run.
    spec: FederationSpec,
    /// Status of an object that was exported from Kubernetes. Ignored.
    #[serde(default, rename = "status")]
    #[schemars(skip)]
    _status: IgnoredAny,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum ApiVersion {
    #[serde(rename = "faultline.dev/v1alpha1")]
    V1Alpha1,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Kind {
    Federation,
}
