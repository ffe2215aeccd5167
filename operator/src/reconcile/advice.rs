//! What a user can do if the API server refuses the pods of a federation.

use faultline_api::quantity::{Cores, Size};
use faultline_api::resource::{Emulation, Resources};
use faultline_client::naming;
use faultline_client::object::FederationObject;
use kube::ResourceExt;

use super::objects::{Obstacle, exceeds_quota};

/// CPU limit of a shaper in millicores, unless the process has a lower one, and memory limit in bytes.
const SHAPER: (u32, u64) = (1000, 64 << 20);

/// Explains the API server's refusal of a pod, and suggests a remedy that the API server would accept.
pub(super) fn refusal(federation: &FederationObject, message: &str) -> Obstacle {
    let shapes = shapes(federation);
    let (reason, remedy) = if message.contains("PodSecurity") {
        let namespace = federation.namespace().unwrap_or_default();
        let label = format!(
            "traffic control requires pods with NET_ADMIN: label the namespace with `kubectl label --overwrite \
             namespace {namespace} pod-security.kubernetes.io/enforce=privileged`, or {} \
             `spec.kubernetes.links: inNode`",
            again()
        );
        ("PodSecurity", shapes.then_some(label))
    } else if exceeds_quota(message) {
        ("Quota", Some(quota(federation, message)))
    } else if message.contains("usage per") || message.contains("limit to request ratio") {
        ("LimitRange", Some(limit_range(federation, message)))
    } else {
        ("Refused", None)
    };
    let message = remedy.map_or_else(|| message.to_owned(), |it| format!("{it}; {message}"));
    Obstacle { reason, message }
}

/// Returns how to change a field that cannot change while the federation exists.
fn again() -> &'static str {
    "delete the federation and apply it again with"
}

fn shapes(federation: &FederationObject) -> bool {
    federation.spec.kubernetes.as_ref().is_some_and(|it| it.links == Some(Emulation::Tc))
}

/// Returns whether a message is about the supervisor's pod.
fn is_supervisors(federation: &FederationObject, message: &str) -> bool {
    message.contains(&naming::supervisor_pod(federation))
}

/// Returns the field with the resources of the pod that a message is about.
fn field(federation: &FederationObject, message: &str) -> &'static str {
    if is_supervisors(federation, message) {
        "`spec.kubernetes.supervisor`"
    } else {
        "`spec.kubernetes.resources`"
    }
}

/// Returns the remedy for a pod that a ResourceQuota does not admit. Its message names only the resources that the pod
/// would exceed, such as `requested: limits.cpu=2,pods=1`.
fn quota(federation: &FederationObject, message: &str) -> String {
    let mut remedy = format!("raise the ResourceQuota, or {} fewer nodes", again());
    if ["cpu=", "memory="].iter().any(|it| message.contains(it)) {
        remedy += &format!(" or smaller values in {}", field(federation, message));
    }
    remedy
}

/// Returns the remedy for a pod that a LimitRange does not admit.
fn limit_range(federation: &FederationObject, message: &str) -> String {
    let values: Vec<String> = values(federation, message).into_iter().map(|it| it.to_string()).collect();
    if values.is_empty() {
        return "change the LimitRange of the namespace".to_owned();
    }
    format!("{} {}, or change the LimitRange of the namespace", again(), values.join(" and "))
}

/// A value that the API server would accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Path of the field.
    pub(super) path: String,
    /// Whether smaller values are accepted as well, or greater ones.
    pub(super) is_most: bool,
    pub(super) value: String,
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Value { path, is_most, value } = self;
        write!(f, "`{path}` of at {} {value}", if *is_most { "most" } else { "least" })
    }
}

/// Returns values with which a LimitRange would admit the pod that it refused with this message, and the federation's
/// other kind of pod. There are none for constraints that no field affects.
pub(super) fn values(federation: &FederationObject, message: &str) -> Vec<Value> {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let process = PodResources {
        field: "resources",
        resources: kubernetes.resources.unwrap_or_default(),
        is_supervisors: false,
        has_shaper: shapes(federation),
    };
    let supervisor = PodResources {
        field: "supervisor",
        resources: kubernetes.supervisor.unwrap_or_default(),
        is_supervisors: true,
        has_shaper: false,
    };
    let (refused, other) =
        if is_supervisors(federation, message) { (supervisor, process) } else { (process, supervisor) };
    let mut all: Vec<Value> = Vec::new();
    for constraint in constraints(message) {
        let of_refused = refused.remedy(&constraint);
        if of_refused.is_empty() {
            return Vec::new();
        }
        let of_other = if other.violates(&constraint) { other.remedy(&constraint) } else { Vec::new() };
        let of_refused = of_refused.into_iter().map(|it| (refused.field, it));
        let of_other = of_other.into_iter().map(|it| (other.field, it));
        for (field, (name, is_most, value)) in of_refused.chain(of_other) {
            let value = Value { path: format!("spec.kubernetes.{field}.{name}"), is_most, value };
            // The same constraint may apply to several containers.
            if !all.contains(&value) {
                all.push(value);
            }
        }
    }
    all
}

/// A constraint of a LimitRange that a pod violates.
struct Constraint<'a> {
    kind: ConstraintKind,
    resource: &'a str,
    /// Whether the constraint applies to the sum over the containers of a pod.
    is_of_pod: bool,
    bound: &'a str,
}

#[derive(PartialEq, Eq)]
enum ConstraintKind {
    Maximum,
    Minimum,
    /// The greatest ratio of the limit to the request.
    Ratio,
}

/// Returns the constraints that a message of the API server names, such as `maximum cpu usage per Container is 1, but
/// limit is 2`.
fn constraints(message: &str) -> impl Iterator<Item = Constraint<'_>> {
    let words: Vec<&str> = message.split([' ', '[', ']']).filter(|it| !it.is_empty()).collect();
    let of = |words: &[&'_ str]| -> Option<(ConstraintKind, usize, usize)> {
        match words {
            ["maximum", _, "usage", "per", ..] => Some((ConstraintKind::Maximum, 1, 4)),
            ["minimum", _, "usage", "per", ..] => Some((ConstraintKind::Minimum, 1, 4)),
            [_, "max", "limit", "to", "request", "ratio", "per", ..] => Some((ConstraintKind::Ratio, 0, 7)),
            _ => None,
        }
    };
    let found = (0..words.len()).filter_map(move |start| {
        let words = &words[start..];
        let (kind, resource, place) = of(words)?;
        let bound = words.get(place + 2)?.trim_end_matches([',', '.']);
        Some(Constraint { kind, resource: words[resource], is_of_pod: *words.get(place)? == "Pod", bound })
    });
    found.collect::<Vec<_>>().into_iter()
}

/// The resources of a kind of pod.
struct PodResources {
    /// The field that states them.
    field: &'static str,
    resources: Resources,
    is_supervisors: bool,
    has_shaper: bool,
}

impl PodResources {
    /// Returns whether the container of the process or the supervisor violates a constraint.
    fn violates(&self, constraint: &Constraint<'_>) -> bool {
        let resources = &self.resources;
        let (cpu, memory) = match self.is_supervisors {
            true => (resources.cpu_of_supervisor(), resources.memory_of_supervisor()),
            false => (resources.cpu(), (resources.memory(), resources.memory())),
        };
        let cpu = (u64::from(cpu.millis), u64::from(resources.cpu_limit().millis));
        let millis = || constraint.bound.parse::<Cores>().ok().map(|it| u64::from(it.millis));
        let ((request, limit), bound) = match constraint.resource {
            "cpu" => (cpu, millis()),
            "memory" => (memory, bytes(constraint.bound)),
            _ => return false,
        };
        match constraint.kind {
            ConstraintKind::Maximum => bound.is_some_and(|it| limit > it),
            ConstraintKind::Minimum => bound.is_some_and(|it| request < it),
            ConstraintKind::Ratio => {
                constraint.bound.parse::<f64>().is_ok_and(|it| limit as f64 / request as f64 > it)
            }
        }
    }

    /// Returns the fields that must change to satisfy a constraint, whether their new values are the greatest or the
    /// smallest ones, and these values.
    fn remedy(&self, constraint: &Constraint<'_>) -> Vec<(&'static str, bool, String)> {
        let Constraint { kind, resource, is_of_pod, bound } = constraint;
        let of_shaper = self.has_shaper && *is_of_pod;
        let cores = |millis| Cores { millis }.to_string();
        let at_most = |most: u32| {
            let cpu = self.resources.cpu.filter(|it| it.millis > most).map(|_| ("cpu", true, cores(most)));
            cpu.into_iter().chain([("cpuLimit", true, cores(most))]).collect()
        };
        let at_least = |least: u32| {
            let limit = self.resources.cpu_limit().millis < least;
            let limit = limit.then(|| ("cpuLimit", false, cores(least)));
            [("cpu", false, cores(least))].into_iter().chain(limit).collect()
        };
        let (millis, memory) = (bound.parse::<Cores>().ok().map(|it| it.millis), bytes(bound));
        match (*resource, kind) {
            // The shaper's limit is the same as that of the process, up to a maximum.
            ("cpu", ConstraintKind::Maximum) if of_shaper => {
                millis.map(|it| at_most(it.saturating_sub(SHAPER.0).max(it / 2))).unwrap_or_default()
            }
            ("cpu", ConstraintKind::Maximum) => millis.map(at_most).unwrap_or_default(),
            ("cpu", ConstraintKind::Minimum) if !self.has_shaper => millis.map(at_least).unwrap_or_default(),
            ("cpu", ConstraintKind::Ratio) if !self.has_shaper => {
                let ratio = bound.parse().ok().filter(|it: &f64| *it >= 1.0);
                let least = ratio.map(|it| f64::from(self.resources.cpu_limit().millis) / it);
                least.map(|it| at_least(it.ceil() as u32)).unwrap_or_default()
            }
            ("memory", ConstraintKind::Maximum) => {
                let most = memory.and_then(|it| it.checked_sub(if of_shaper { SHAPER.1 } else { 0 }));
                most.map(|it| ("memory", true, Size(it).to_string())).into_iter().collect()
            }
            ("memory", ConstraintKind::Minimum) if !self.has_shaper => {
                memory.map(|it| ("memory", false, Size(it).to_string())).into_iter().collect()
            }
            // With a stated memory, the request equals the limit.
            ("memory", ConstraintKind::Ratio) if self.is_supervisors => {
                vec![("memory", false, Size(self.resources.memory_of_supervisor().0).to_string())]
            }
            _ => Vec::new(),
        }
    }
}

/// Reads a number of bytes in Kubernetes' notation.
fn bytes(text: &str) -> Option<u64> {
    match text.parse::<u64>() {
        Ok(bytes) => Some(bytes),
        Err(_) => text.parse::<Size>().or_else(|_| format!("{text}B").parse()).ok().map(|it| it.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::reconcile::build::tests::{quickstart, template};

    /// Returns a quantity as a number.
    fn number(quantity: &str) -> f64 {
        match bytes(quantity) {
            Some(bytes) => bytes as f64,
            None => f64::from(quantity.parse::<Cores>().expect("a quantity").millis) / 1000.0,
        }
    }

    /// Returns why a LimitRange refuses a pod, in the words of the API server.
    fn refused(name: &str, pod: &Json, constraint: &Json) -> Option<String> {
        let resource = constraint["resource"].as_str().unwrap();
        let all = |part: &str| -> Vec<(String, f64)> {
            let containers = pod["containers"].as_array().unwrap().iter();
            let texts = containers.map(|it| it["resources"][part][resource].as_str().unwrap().to_owned());
            texts.map(|it| (it.clone(), number(&it))).collect()
        };
        let (mut requests, mut limits) = (all("requests"), all("limits"));
        let kind = constraint["type"].as_str().unwrap();
        if kind == "Pod" {
            let sum = |all: &[(String, f64)]| {
                let sum: f64 = all.iter().map(|it| it.1).sum();
                vec![(sum.to_string(), sum)]
            };
            (requests, limits) = (sum(&requests), sum(&limits));
        }
        let mut problems = Vec::new();
        for (request, limit) in requests.iter().zip(&limits) {
            if let Some(max) = constraint["max"].as_str().filter(|it| limit.1 > number(it)) {
                problems
                    .push(format!("maximum {resource} usage per {kind} is {max}, but limit is {}", limit.0));
            }
            if let Some(min) = constraint["min"].as_str().filter(|it| request.1 < number(it)) {
                problems.push(format!(
                    "minimum {resource} usage per {kind} is {min}, but request is {}",
                    request.0
                ));
            }
            let ratio = limit.1 / request.1;
            if let Some(max) = constraint["ratio"].as_str().filter(|it| ratio > number(it)) {
                problems.push(format!(
                    "{resource} max limit to request ratio per {kind} is {max}, but provided ratio is {ratio:.6}"
                ));
            }
        }
        let problems =
            if problems.len() > 1 { format!("[{}]", problems.join(", ")) } else { problems.concat() };
        (!problems.is_empty()).then(|| {
            format!(
                "create Pod {name} in StatefulSet x failed error: pods \"{name}\" is forbidden: {problems}"
            )
        })
    }

    /// What is advised must work: the API server admits the pod with the advised values.
    #[test]
    fn a_limit_range_admits_a_pod_with_the_advised_resources() {
        let constraints = [
            json!({ "type": "Container", "resource": "cpu", "max": "1" }),
            json!({ "type": "Container", "resource": "cpu", "max": "250m" }),
            json!({ "type": "Pod", "resource": "cpu", "max": "1" }),
            json!({ "type": "Pod", "resource": "cpu", "max": "2500m" }),
            json!({ "type": "Container", "resource": "memory", "max": "128Mi" }),
            json!({ "type": "Pod", "resource": "memory", "max": "200Mi" }),
            json!({ "type": "Container", "resource": "cpu", "min": "200m" }),
            json!({ "type": "Container", "resource": "memory", "min": "512Mi" }),
            json!({ "type": "Container", "resource": "cpu", "ratio": "4" }),
            json!({ "type": "Container", "resource": "memory", "ratio": "2" }),
        ];
        let sets = ["quickstart-paris", "quickstart-supervisor"];
        let mut advised = 0;
        for links in ["inNode", "tc"] {
            for constraint in &constraints {
                for set in sets {
                    let mut federation = quickstart();
                    let mut kubernetes = json!({ "links": links });
                    federation.spec.kubernetes = Some(serde_json::from_value(kubernetes.clone()).unwrap());
                    let why = |federation: &FederationObject, set: &str| {
                        refused(&format!("{set}-0"), &template(federation, set), constraint)
                    };
                    let Some(message) = why(&federation, set) else { continue };
                    let obstacle = refusal(&federation, &message);
                    assert_eq!(obstacle.reason, "LimitRange");
                    let values = values(&federation, &message);
                    if values.is_empty() {
                        // The shaper's requests are fixed.
                        assert_eq!(links, "tc", "{message}");
                        assert!(
                            obstacle.message.starts_with("change the LimitRange"),
                            "{}",
                            obstacle.message
                        );
                        continue;
                    }
                    advised += 1;
                    for value in &values {
                        assert!(obstacle.message.contains(&value.to_string()), "{}", obstacle.message);
                        let path: Vec<&str> = value.path.split('.').collect();
                        kubernetes[path[2]][path[3]] = json!(value.value);
                    }
                    federation.spec.kubernetes = Some(serde_json::from_value(kubernetes).unwrap());
                    assert_eq!(faultline_api::validate(&federation.to_file()), [], "{message}");
                    // With `tc`, the pods of processes may violate a constraint that only the LimitRange can relax.
                    for other in sets.into_iter().filter(|it| *it == set || links == "inNode") {
                        assert_eq!(why(&federation, other), None, "{values:?}");
                    }
                }
            }
        }
        assert!(advised > 20, "{advised}");
    }

    #[test]
    fn smaller_pods_are_advised_only_if_a_quota_limits_their_resources() {
        let told = |pod: &str, exceeded: &str| {
            let message =
                format!("pods \"{pod}\" is forbidden: exceeded quota: small, requested: {exceeded}=1");
            let Obstacle { reason, message } = refusal(&quickstart(), &message);
            assert_eq!(reason, "Quota");
            message.split_once(';').expect("a remedy").0.to_owned()
        };
        let fewer = "raise the ResourceQuota, or delete the federation and apply it again with fewer nodes";
        assert_eq!(told("quickstart-paris-0", "pods"), fewer);
        let smaller = |field: &str| format!("{fewer} or smaller values in `spec.kubernetes.{field}`");
        assert_eq!(told("quickstart-paris-0", "limits.memory"), smaller("resources"));
        assert_eq!(told("quickstart-supervisor-0", "requests.cpu"), smaller("supervisor"));
    }

    #[test]
    fn what_no_field_affects_is_not_advised() {
        let message = "pods \"quickstart-paris-0\" is forbidden: maximum ephemeral-storage usage per Container is 1Gi, but \
                       limit is 4Gi";
        assert_eq!(values(&quickstart(), message), []);
        let told = refusal(&quickstart(), message).message;
        assert!(told.starts_with("change the LimitRange of the namespace; pods"), "{told}");
    }
}
