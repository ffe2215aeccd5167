//! An in-memory API server that stores objects by path, and records which permissions are used. It has no
//! validation and no controllers: the test creates pods.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// The permission that a request needs: group, resource, verb.
pub(crate) type Right = (String, String, String);

/// The objects and the requests.
#[derive(Clone, Default)]
pub(crate) struct ApiServer(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    objects: BTreeMap<String, Value>,
    used: BTreeSet<Right>,
    writes: Vec<String>,
    /// The resource to which all writes are refused, and the response to such a write.
    refusing: Option<(String, Value)>,
    /// Number of writes that succeed before one fails.
    until_failure: Option<u32>,
    /// The server never answers requests for paths that contain this.
    silent_about: Option<String>,
    version: u64,
}

struct ObjectPath {
    group: String,
    resource: String,
    name: Option<String>,
    subresource: Option<String>,
    /// Path of the object, or of the collection.
    key: String,
}

impl ApiServer {
    /// Returns a client of the server.
    pub(crate) fn client(&self) -> Client {
        self.client_in("default")
    }

    /// Returns a client of the server that runs in this namespace.
    pub(crate) fn client_in(&self, namespace: &str) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let query = decoded(head.uri.query().unwrap_or_default());
                if server.is_silent_about(head.uri.path()) {
                    std::future::pending::<()>().await;
                }
                let (status, answer) = server.answer(&head.method, head.uri.path(), &query, body);
                // A watch returns nothing and ends.
                let answer =
                    answer.map(|it| serde_json::to_vec(&it).expect("it serialises")).unwrap_or_default();
                let response = Response::builder().status(status).body(Full::from(answer));
                Ok::<_, Infallible>(response.expect("a response"))
            }
        });
        Client::new(service, namespace)
    }

    /// Returns the object at a path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    /// Puts an object at a path.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().objects.insert(path.into(), object);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    /// Returns the paths of all objects with this prefix.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().filter(|it| it.starts_with(prefix)).cloned().collect()
    }

    /// Returns the permissions that have been used.
    pub(crate) fn used(&self) -> BTreeSet<Right> {
        self.0.lock().unwrap().used.clone()
    }

    /// Returns the writes since the last call, as `METHOD path`.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Refuses every write to a resource, with this message and cause, as admission control does.
    pub(crate) fn forbid(&self, resource: &str, message: &str, cause: Option<&str>) {
        let mut answer = failure(StatusCode::FORBIDDEN, "Forbidden", message);
        if let Some(cause) = cause {
            answer["details"] = json!({ "causes": [{ "reason": cause, "message": message }] });
        }
        self.0.lock().unwrap().refusing = Some((resource.into(), answer));
    }

    /// Fails every write to a resource with an internal error.
    pub(crate) fn fail_writes_to(&self, resource: &str) {
        let answer = failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "on purpose");
        self.0.lock().unwrap().refusing = Some((resource.into(), answer));
    }

    /// Accepts all writes again.
    pub(crate) fn allow(&self) {
        self.0.lock().unwrap().refusing = None;
    }

    /// Never answers requests for paths that contain `part`.
    pub(crate) fn freeze(&self, part: &str) {
        self.0.lock().unwrap().silent_about = Some(part.to_owned());
    }

    fn is_silent_about(&self, path: &str) -> bool {
        self.0.lock().unwrap().silent_about.as_ref().is_some_and(|it| path.contains(it))
    }

    /// Lets this many writes succeed, fails the next one, and then works again.
    pub(crate) fn fail_after(&self, writes: u32) {
        self.0.lock().unwrap().until_failure = Some(writes);
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: Value) -> (StatusCode, Option<Value>) {
        let (status, answer) = self.perform(method, path, query, body);
        (status, if query.contains("watch=true") { None } else { Some(answer) })
    }

    fn perform(&self, method: &Method, path: &str, query: &str, body: Value) -> (StatusCode, Value) {
        let place = ObjectPath::of(path);
        let mut state = self.0.lock().unwrap();
        let verb = match (method, &place.name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if query.contains("watch=true") => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            other => panic!("unexpected request {other:?}"),
        };
        let resource = match &place.subresource {
            Some(subresource) => format!("{}/{subresource}", place.resource),
            None => place.resource.clone(),
        };
        let need = |verb: &str| (place.group.clone(), resource.clone(), verb.to_owned());
        state.used.insert(need(verb));
        let exists = state.objects.contains_key(&place.key);
        if verb == "patch" && !exists && place.subresource.is_none() {
            // Applying a missing object creates it.
            state.used.insert(need("create"));
        }
        if method != Method::GET {
            state.writes.push(format!("{method} {path}"));
            if let Some((refused, answer)) = &state.refusing
                && *refused == place.resource
            {
                let code = answer["code"].as_u64().and_then(|it| u16::try_from(it).ok());
                let status = code.and_then(|it| StatusCode::from_u16(it).ok()).expect("a status");
                return (status, answer.clone());
            }
        }
        if method != Method::GET
            && let Some(left) = state.until_failure
        {
            state.until_failure = left.checked_sub(1);
            if left == 0 {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                return (status, failure(status, "InternalError", "on purpose"));
            }
        }
        state.version += 1;
        let version = state.version.to_string();
        match verb {
            "watch" => (StatusCode::OK, Value::Null),
            "get" => match state.objects.get(&place.key) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => (StatusCode::NOT_FOUND, failure(StatusCode::NOT_FOUND, "NotFound", "not found")),
            },
            "list" => {
                // In all namespaces, if the path names none.
                let (prefix, resource) = place.key.rsplit_once('/').expect("a path");
                let is_meant = |it: &str| {
                    it.starts_with(&format!("{}/", place.key))
                        || it.starts_with(&format!("{prefix}/namespaces/"))
                            && it.contains(&format!("/{resource}/"))
                };
                let objects = state.objects.iter().filter(|(it, _)| is_meant(it)).map(|it| it.1);
                let items: Vec<Value> = objects.filter(|it| is_selected(it, query)).cloned().collect();
                (StatusCode::OK, json!({ "metadata": { "resourceVersion": version }, "items": items }))
            }
            "create" => {
                let mut object = body;
                let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
                let key = format!("{}/{name}", place.key);
                if state.objects.contains_key(&key) {
                    return (
                        StatusCode::CONFLICT,
                        failure(StatusCode::CONFLICT, "AlreadyExists", "there is one"),
                    );
                }
                encode(&mut object);
                object["metadata"]["uid"] = json!(format!("uid of {key}"));
                object["metadata"]["resourceVersion"] = json!(version);
                state.objects.insert(key, object.clone());
                (StatusCode::CREATED, object)
            }
            "patch" => {
                let mut object = state.objects.get(&place.key).cloned().unwrap_or(Value::Null);
                let expected = &body["metadata"]["resourceVersion"];
                if expected.is_string() && *expected != object["metadata"]["resourceVersion"] {
                    return (
                        StatusCode::CONFLICT,
                        failure(StatusCode::CONFLICT, "Conflict", "it has changed"),
                    );
                }
                if place.subresource.is_some() && !exists {
                    return (StatusCode::NOT_FOUND, failure(StatusCode::NOT_FOUND, "NotFound", "not found"));
                }
                if place.subresource.as_deref() == Some("status") {
                    object["status"] = body["status"].clone();
                } else {
                    merge(&mut object, &body);
                    encode(&mut object);
                }
                object["metadata"]["resourceVersion"] = json!(version);
                if object["metadata"]["uid"].is_null() {
                    object["metadata"]["uid"] = json!(format!("uid of {}", place.key));
                }
                state.objects.insert(place.key, object.clone());
                (StatusCode::OK, object)
            }
            "delete" if exists && is_replaced(&state.objects[&place.key], &body) => (
                StatusCode::CONFLICT,
                failure(StatusCode::CONFLICT, "Conflict", "the UID in the precondition does not match"),
            ),
            // The object remains until the garbage collector has deleted its dependents.
            "delete" if body["propagationPolicy"] == "Foreground" && exists => {
                let object = state.objects.get_mut(&place.key).expect("it exists");
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                (StatusCode::OK, object.clone())
            }
            "delete" => match state.objects.remove(&place.key) {
                Some(object) => (StatusCode::OK, object),
                None => (StatusCode::NOT_FOUND, failure(StatusCode::NOT_FOUND, "NotFound", "not found")),
            },
            other => panic!("unexpected request to {other}"),
        }
    }
}

impl ObjectPath {
    fn of(path: &str) -> ObjectPath {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts[0] {
            "api" => (String::new(), 2),
            _ => (parts[1].to_owned(), 3),
        };
        if parts.get(rest) != Some(&"namespaces") {
            let resource = parts[rest].to_owned();
            return ObjectPath {
                group,
                resource,
                name: None,
                subresource: None,
                key: format!("/{}", parts.join("/")),
            };
        }
        let at = |index: usize| parts.get(rest + index).map(|it| (*it).to_owned());
        let length = parts.len().min(rest + 4);
        ObjectPath {
            group,
            resource: at(2).expect("a resource"),
            name: at(3),
            subresource: at(4),
            key: format!("/{}", parts[..length].join("/")),
        }
    }
}

/// Returns whether the precondition of a deletion names another object.
fn is_replaced(object: &Value, deletion: &Value) -> bool {
    let expected = &deletion["preconditions"]["uid"];
    expected.is_string() && *expected != object["metadata"]["uid"]
}

/// Returns whether the selectors in a query admit an object. Knows only the operators that the operator uses.
fn is_selected(object: &Value, query: &str) -> bool {
    let selectors = query.split('&').filter_map(|it| it.split_once("Selector="));
    selectors.flat_map(|(kind, terms)| terms.split(',').map(move |term| (kind, term))).all(|(kind, term)| {
        match (kind, term.split_once('=')) {
            ("label", Some((label, value))) => object["metadata"]["labels"][label] == value,
            ("label", None) => object["metadata"]["labels"][term].is_string(),
            (_, Some((path, value))) => path.split('.').fold(object, |it, name| &it[name]) == value,
            (_, None) => panic!("unexpected selector {term}"),
        }
    })
}

/// Decodes the characters that a query escapes.
fn decoded(query: &str) -> String {
    let query = query.replace('+', " ");
    let mut parts = query.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        text.push(u8::from_str_radix(code, 16).expect("hexadecimal digits").into());
        text.push_str(rest);
    }
    text
}

fn failure(status: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "reason": reason, "message": message, "code": status.as_u16(),
    })
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

/// Encodes the text of a new secret in base64, as an API server does.
fn encode(object: &mut Value) {
    let given = object.as_object_mut().and_then(|it| it.remove("stringData"));
    for (name, text) in given.iter().flat_map(|it| it.as_object().into_iter().flatten()) {
        object["data"][name] = json!(base64(text.as_str().expect("text").as_bytes()));
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)];
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for digit in 0..4 {
            let is_there = digit <= chunk.len();
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_there { DIGITS[index] as char } else { '=' });
        }
    }
    text
}
