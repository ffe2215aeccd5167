//! A federation as the operator caches it: its spec is text, which is parsed when it is needed.
//!
//! Any user who may create a federation determines its spec, which can contain arbitrary values: the parameters of a
//! custom protocol or application. Two properties of such values would let one user stop the operator for all others.
//! The parser refuses values that are nested too deeply, together with the whole page of a list that contains them.
//! (kube's `DeserializeGuard` parses all values, so it does not prevent this.) And values need many times more memory
//! than their text. Therefore, the text of a spec is skipped rather than parsed while a list is read, and a spec with
//! [too much in it](check) is never parsed.

use std::borrow::Cow;

use faultline_api::FederationSpec;
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Maximum length of a spec, in bytes.
const MAX_LENGTH: usize = 512 << 10;
/// Maximum number of lists and objects in a spec. Other values need much less memory.
const MAX_CONTAINERS: usize = 10_000;
/// Maximum number of lists and objects that contain each other.
const MAX_DEPTH: usize = 32;

/// A federation whose spec may be unreadable.
#[derive(Clone, Debug)]
pub struct CachedFederation {
    metadata: ObjectMeta,
    /// The spec, or the reason why it is not parsed.
    spec: Result<Box<RawValue>, String>,
    /// The status, or the reason why it cannot be read. Users cannot write the status.
    status: Result<Option<FederationStatus>, String>,
}

/// The metadata that the operator uses. In particular, it does not use the list of managed fields, which is nested as
/// deeply as the spec.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Texts {
    metadata: Metadata,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for CachedFederation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Texts { metadata, spec, status } = Texts::deserialize(deserializer)?;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            finalizers: metadata.finalizers,
            ..ObjectMeta::default()
        };
        let spec = spec.ok_or_else(|| "there is no `spec`".to_owned());
        let spec = spec.and_then(|it| check_length(it.get()).and_then(|()| check(it.get())).map(|()| it));
        let status = status.map(|it| parse(it.get())).transpose();
        let status = status.map_err(|error| format!("status: {error}"));
        Ok(CachedFederation { metadata, spec, status })
    }
}

impl CachedFederation {
    /// Parses the spec.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot be read.
    pub fn spec(&self) -> Result<FederationSpec, String> {
        let deserializer = &mut serde_json::Deserializer::from_str(self.spec.as_ref()?.get());
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let field = error.path().to_string();
            let field = if field == "." { "spec".to_owned() } else { format!("spec.{field}") };
            format!("{field}: {}", described(error.inner()))
        })
    }

    /// Returns the last status that was written, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot be read.
    pub fn status(&self) -> Result<Option<&FederationStatus>, String> {
        self.status.as_ref().map(Option::as_ref).map_err(String::clone)
    }

    /// Returns the phase in the last status.
    pub fn phase(&self) -> Phase {
        self.status.as_ref().ok().and_then(Option::as_ref).map(|it| it.phase).unwrap_or_default()
    }

    /// Returns whether the run of the federation has begun. Only the status says so: users of the namespace can create
    /// sets that the federation controls, but they cannot write its status.
    pub fn has_begun(&self) -> bool {
        !matches!(self.phase(), Phase::Pending | Phase::Rejected)
    }

    /// Returns the generation of the spec; 0 if the API server has not counted it.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Returns the federation with this spec instead of its own.
    pub fn with(&self, spec: FederationSpec) -> FederationObject {
        FederationObject { metadata: self.metadata.clone(), spec, status: self.status.clone().ok().flatten() }
    }
}

/// Parses the spec in the text of a federation, as it is in a ConfigMap. The API server limits its length.
///
/// # Errors
///
/// Returns the reason why it cannot be read.
pub fn read_spec(federation: &str) -> Result<FederationSpec, String> {
    #[derive(Deserialize)]
    struct File<'a> {
        #[serde(borrow)]
        spec: &'a RawValue,
    }
    let spec = parse::<File<'_>>(federation)?.spec.get();
    check(spec)?;
    parse(spec)
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|it| described(&it))
}

/// Describes an error without its position. Users do not see the text, so a position in it would not help them.
fn described(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&position).unwrap_or(&message).to_owned()
}

fn check_length(spec: &str) -> Result<(), String> {
    if spec.len() > MAX_LENGTH {
        return Err(format!("`spec` has {} bytes, which is more than {MAX_LENGTH}", spec.len()));
    }
    Ok(())
}

/// Checks that a spec does not contain too much to be parsed.
///
/// # Errors
///
/// Returns the limit that the text, which must be JSON, exceeds.
fn check(spec: &str) -> Result<(), String> {
    let (mut containers, mut depth, mut deepest) = (0_usize, 0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in spec.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                containers += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if deepest > MAX_DEPTH {
        return Err(format!("`spec` nests {deepest} lists and objects, which is more than {MAX_DEPTH}"));
    }
    if containers > MAX_CONTAINERS {
        return Err(format!(
            "`spec` has {containers} lists and objects, which is more than {MAX_CONTAINERS}"
        ));
    }
    Ok(())
}

impl Resource for CachedFederation {
    type DynamicType = ();
    type Scope = <FederationObject as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        FederationObject::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        FederationObject::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        FederationObject::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        FederationObject::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::ResourceExt;
    use kube::core::ObjectList;
    use serde_json::{Value, json};

    use super::*;
    use crate::reconcile::build::tests::quickstart;

    /// The text of a federation whose application is custom, with this parameter.
    fn with_parameter(name: &str, parameter: &str) -> String {
        let mut federation = serde_json::to_value(quickstart()).unwrap();
        federation["metadata"]["name"] = json!(name);
        federation["spec"]["application"] = json!({ "custom": { "name": "theirs", "parameter": "HERE" } });
        federation.to_string().replace("\"HERE\"", parameter)
    }

    fn nested(times: usize) -> String {
        "[".repeat(times) + &"]".repeat(times)
    }

    /// One user's federation does not prevent the operator from reading those of others.
    #[test]
    fn a_list_with_an_unreadable_federation_can_be_read() {
        let many = format!("[{}0]", "[],".repeat(MAX_CONTAINERS));
        let numbers = format!("[{}0]", "0,".repeat(200_000));
        let long = format!("\"{}\"", "x".repeat(MAX_LENGTH));
        let items = [
            with_parameter("deep", &nested(10_000)),
            with_parameter("long", &long),
            with_parameter("many", &many),
            with_parameter("usual", &nested(20)),
            with_parameter("numbers", &numbers),
            r#"{ "metadata": { "name": "none" } }"#.to_owned(),
            r#"{ "metadata": { "name": "wrong" }, "spec": { "clusters": "none" } }"#.to_owned(),
        ];
        let list = format!(
            r#"{{ "apiVersion": "faultline.dev/v1alpha1", "kind": "FederationList", "metadata": {{}}, "items": [{}] }}"#,
            items.join(",")
        );
        let list: ObjectList<CachedFederation> = serde_json::from_str(&list).unwrap();
        let read: BTreeMap<String, Result<FederationSpec, String>> =
            list.items.iter().map(|it| (it.name_any(), it.spec())).collect();
        let error = |name: &str| read[name].as_ref().unwrap_err().clone();
        assert!(error("deep").contains("nests"), "{}", error("deep"));
        assert!(error("long").contains("bytes"), "{}", error("long"));
        assert!(error("many").contains("lists and objects, which is more than 10000"), "{}", error("many"));
        assert_eq!(error("none"), "there is no `spec`");
        assert_eq!(error("wrong"), "spec.clusters: invalid type: string \"none\", expected a sequence");
        for name in ["usual", "numbers"] {
            assert_eq!(read[name].as_ref().unwrap().clusters, quickstart().spec.clusters);
        }
        let is_cached: Vec<bool> = list.items.iter().map(|it| it.spec.is_ok()).collect();
        assert_eq!(is_cached, [false, false, false, true, true, false, true], "large texts are not cached");
    }

    #[test]
    fn an_unreadable_value_is_reported_with_its_field() {
        let error = |path: &str, value: Value| {
            let mut federation = serde_json::to_value(quickstart()).unwrap();
            *federation.pointer_mut(path).expect("the field exists") = value;
            serde_json::from_value::<CachedFederation>(federation).unwrap().spec().unwrap_err()
        };
        assert_eq!(
            error("/spec/links/between", json!({ "loss": "60%" })),
            "spec.links.between.loss: `60%` is too large for a loss: write at most 50%"
        );
        let of_fault = error("/spec/faults/1", json!({ "at": "6.5", "crash": { "cluster": "paris" } }));
        assert_eq!(
            of_fault,
            "spec.faults[1].at: `6.5` has no unit: write a value such as `5ms`, `1.5s` or `2m`"
        );
        assert!(error("/spec/clusters/0/nodes", json!(-1)).starts_with("spec.clusters[0].nodes: "));
    }

    #[test]
    fn unused_metadata_is_neither_parsed_nor_cached() {
        let mut federation = serde_json::to_value(quickstart()).unwrap();
        federation["metadata"]["labels"] = json!({ "a": "b" });
        federation["metadata"]["generation"] = json!(3);
        federation["metadata"]["managedFields"] = json!("HERE");
        let text = federation.to_string().replace("\"HERE\"", &nested(1_000));
        let read = serde_json::from_str::<CachedFederation>(&text).unwrap();
        assert_eq!((read.metadata.generation, &read.metadata.labels), (Some(3), &None));
        assert_eq!(read.spec().unwrap(), quickstart().spec);
    }

    #[test]
    fn characters_in_strings_are_not_counted() {
        let text = json!({ "a": ",[{\\\"".repeat(MAX_CONTAINERS) }).to_string();
        assert_eq!(check(&text), Ok(()));
        let lists = |count| Value::from(vec![json!([]); count]).to_string();
        assert_eq!(check(&lists(MAX_CONTAINERS - 1)), Ok(()));
        assert!(check(&lists(MAX_CONTAINERS)).is_err());
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert!(check(&nested(MAX_DEPTH + 1)).is_err());
    }

    #[test]
    fn the_spec_in_a_file_has_the_same_limits_except_its_length() {
        let long =
            serde_json::from_str::<Value>(&with_parameter("long", &format!("[{}0]", "0,".repeat(200_000))));
        let indented = format!("{:#}", long.unwrap());
        assert!(indented.len() > MAX_LENGTH, "the operator writes files with indentation");
        assert_eq!(read_spec(&indented).unwrap().clusters, quickstart().spec.clusters);
        assert!(read_spec(&with_parameter("deep", &nested(10_000))).unwrap_err().contains("nests"));
        assert!(read_spec("{}").unwrap_err().contains("spec"));
        assert_eq!(read_spec(&serde_json::to_string(&quickstart()).unwrap()), Ok(quickstart().spec));
    }
}
