//! A federation as an object on Kubernetes, and the definition of its kind.

use std::borrow::Cow;

use faultline_api::resource::{Metadata, naming_rules};
use faultline_api::{Federation, FederationSpec, structural};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use serde_with_macros::skip_serializing_none;

use crate::status::FederationStatus;

const GROUP: &str = "faultline.dev";
const VERSION: &str = "v1alpha1";
const API_VERSION: &str = "faultline.dev/v1alpha1";
const KIND: &str = "Federation";
const PLURAL: &str = "federations";

/// A federation as an API server stores it.
#[derive(JsonSchema, Clone, Debug, PartialEq, Deserialize)]
#[schemars(
    title = "Federation",
    description = "An experiment: clusters, links, a rollback-recovery protocol, an application, faults and a seed.",
    extend("x-kubernetes-validations" = naming_rules())
)]
pub struct FederationObject {
    /// Metadata of the object.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// The experiment to run.
    pub spec: FederationSpec,
    /// Status of a federation.
    pub status: Option<FederationStatus>,
}

impl FederationObject {
    /// Returns an object that has nothing but a name and a spec.
    pub fn new(name: &str, spec: FederationSpec) -> FederationObject {
        Federation::new(name, spec).into()
    }

    /// Returns the federation as a file describes it.
    pub fn to_file(&self) -> Federation {
        let ObjectMeta { annotations, labels, name, namespace, .. } = self.metadata.clone();
        Federation { metadata: Metadata { annotations, labels, name, namespace }, spec: self.spec.clone() }
    }
}

impl From<Federation> for FederationObject {
    fn from(federation: Federation) -> FederationObject {
        let Federation { metadata: Metadata { annotations, labels, name, namespace }, spec } = federation;
        let metadata = ObjectMeta { annotations, labels, name, namespace, ..ObjectMeta::default() };
        FederationObject { metadata, spec, status: None }
    }
}

impl Serialize for FederationObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[skip_serializing_none]
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Written<'a> {
            api_version: &'a str,
            kind: &'a str,
            metadata: &'a ObjectMeta,
            spec: &'a FederationSpec,
            status: Option<&'a FederationStatus>,
        }
        let FederationObject { metadata, spec, status } = self;
        Written { api_version: API_VERSION, kind: KIND, metadata, spec, status: status.as_ref() }
            .serialize(serializer)
    }
}

impl Resource for FederationObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Returns the custom resource definition.
///
/// # Panics
///
/// Panics if the generated object is not a valid definition, which only a bug can cause.
pub fn definition() -> CustomResourceDefinition {
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let described = |mut column: serde_json::Value, description: &str| {
        column["description"] = json!(description);
        column
    };
    // `kubectl get` shows these columns only with `-o wide`.
    let wide = |mut column: serde_json::Value| {
        column["priority"] = json!(1);
        column
    };
    let columns = [
        column("Phase", "string", ".status.phase"),
        described(
            column("Clusters", "string", ".status.clustersReady"),
            "Clusters whose processes are all up, out of the total.",
        ),
        column("Protocol", "string", ".status.protocol"),
        described(
            column("Faults", "string", ".status.faultsDone"),
            "Planned faults that were injected or had no effect, out of the total.",
        ),
        column("Rollbacks", "integer", ".status.rollbacks"),
        column("Verdict", "string", ".status.verdict"),
        column("Age", "date", ".metadata.creationTimestamp"),
        wide(column("Seed", "integer", ".spec.seed")),
        wide(described(column("Links", "string", ".status.shaping"), "What emulates the links.")),
        wide(column("Message", "string", ".status.message")),
    ];
    let version = json!({
        "name": VERSION,
        "served": true,
        "storage": true,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": structural::<FederationObject>() },
        "subresources": { "status": {} },
    });
    let definition = json!({
        "metadata": { "name": format!("{PLURAL}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "singular": "federation",
                "plural": PLURAL,
                "shortNames": ["fed"],
                "categories": ["faultline"],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    });
    serde_json::from_value(definition).expect("the JSON describes a definition")
}

#[cfg(test)]
mod tests {
    use faultline_api::samples::SAMPLES;
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn an_object_is_written_like_a_file() {
        for sample in SAMPLES {
            let file = faultline_api::parse(sample.name, sample.text.as_bytes()).expect("samples are valid");
            let object = FederationObject::from(file.clone());
            assert_eq!(object.name_any(), sample.name);
            assert_eq!(object.to_file(), file);
            let written = serde_json::to_value(&object).unwrap();
            assert_eq!(written, serde_json::to_value(&file).unwrap());
            assert_eq!(written["apiVersion"], *FederationObject::api_version(&()));
            assert_eq!(serde_json::from_value::<FederationObject>(written).unwrap(), object);
        }
    }

    #[test]
    fn an_object_keeps_its_metadata_and_its_status() {
        let spec = json!({
            "clusters": [{ "name": "a", "nodes": 2 }],
            "protocol": { "none": {} },
            "application": { "fibonacci": {} },
        });
        let text = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": { "name": "a", "uid": "b", "labels": { "c": "d" } },
            "spec": spec,
            "status": { "phase": "Running", "rollbacks": 2 },
        });
        let object: FederationObject = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&object).unwrap(), text);
        let file = serde_json::to_value(object.to_file()).unwrap();
        assert_eq!(file["metadata"], json!({ "name": "a", "labels": { "c": "d" } }));
    }
}
