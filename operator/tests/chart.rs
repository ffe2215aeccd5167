//! Checks that the chart renders to the content of `manifests/install.yaml`, and that its options work. Requires `helm`
//! on the path, and therefore runs only on request: `cargo test -p faultline-operator --test chart -- --ignored`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use faultline_operator::install;
use serde_json::{Value, json};

fn helm(arguments: &[&str]) -> Result<String, String> {
    helm_for("faultline", arguments)
}

/// Runs a command of Helm for a release with this name.
fn helm_for(release: &str, arguments: &[&str]) -> Result<String, String> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/faultline");
    let mut command = Command::new("helm");
    command.arg(arguments[0]).args((arguments[0] == "template").then_some(release)).arg(chart);
    let output = command.args(&arguments[1..]).output().expect("helm is on the path");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns the objects by kind and name, without labels and annotations, some of which only Helm sets.
fn rendered(options: &[&str]) -> BTreeMap<String, Value> {
    named(objects(&template(options)).into_iter())
}

fn template(options: &[&str]) -> String {
    // Without a cluster, Helm assumes its own version of Kubernetes, which may be older than the chart requires.
    let usual = ["template", "--namespace", install::NAMESPACE, "--kube-version", "1.34.0"];
    helm(&[&usual, options].concat()).expect("it renders")
}

fn objects(text: &str) -> Vec<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    objects.into_iter().filter(|it| !it.is_null()).collect()
}

/// Makes numbers comparable: Helm writes `1` for `1.0`.
fn alike(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(alike),
        Value::Object(fields) => fields.values_mut().for_each(alike),
        _ => {}
    }
}

fn named(objects: impl Iterator<Item = Value>) -> BTreeMap<String, Value> {
    let name =
        |it: &Value| format!("{} {}", it["kind"].as_str().unwrap(), it["metadata"]["name"].as_str().unwrap());
    let plain = |mut it: Value| {
        let metadata = it["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        metadata.remove("annotations");
        alike(&mut it);
        it
    };
    objects.map(|it| (name(&it), plain(it))).collect()
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn the_chart_installs_what_the_manifest_does() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/install.yaml");
    let mut expected = named(objects(&std::fs::read_to_string(manifest).expect("it is there")).into_iter());
    // Helm creates the namespace itself.
    expected.remove(&format!("Namespace {}", install::NAMESPACE)).expect("the manifest contains it");
    let rendered = rendered(&[]);
    assert_eq!(rendered.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, object) in expected {
        assert_eq!(rendered[&name], object, "{name}");
    }
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn with_namespace_scope_nothing_is_granted_outside_the_namespace() {
    let rendered = rendered(&["--set", "scope=namespace,crds.install=false"]);
    assert!(
        rendered.keys().all(|it| !it.starts_with("Cluster") && !it.starts_with("Custom")),
        "{rendered:#?}"
    );
    let role = &rendered["Role faultline-operator-federations"];
    assert_eq!(role["rules"], json!(install::RULES));
    assert_eq!(rendered["Role faultline-operator-secrets"]["rules"], json!(install::SECRET_RULES));
    assert_eq!(rendered["RoleBinding faultline-operator-secrets"]["roleRef"]["kind"], "Role");
    let env = &rendered["Deployment faultline-operator"]["spec"]["template"]["spec"]["containers"][0]["env"];
    let watched = env.as_array().unwrap().iter().find(|it| it["name"] == "FAULTLINE_NAMESPACE");
    assert_eq!(watched.map(|it| &it["value"]), Some(&json!(install::NAMESPACE)));
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn access_to_secrets_can_be_limited_to_some_namespaces() {
    let everywhere = rendered(&[]);
    let role = &everywhere[&format!("ClusterRole {}", install::SECRETS_ROLE)];
    assert_eq!(role["rules"], json!(install::SECRET_RULES));
    assert!(everywhere.contains_key(&format!("ClusterRoleBinding {}", install::SECRETS_ROLE)));
    let limited = objects(&template(&["--set", "rbac.secretNamespaces={a,b}"]));
    let bindings = limited.iter().filter(|it| it["roleRef"]["name"] == install::SECRETS_ROLE);
    let bindings: Vec<_> = bindings
        .map(|it| (it["kind"].as_str().unwrap(), it["metadata"]["namespace"].as_str().unwrap()))
        .collect();
    assert_eq!(bindings, [("RoleBinding", "a"), ("RoleBinding", "b")]);
    assert_eq!(rendered(&["--set", "rbac.secretNamespaces=null"]), everywhere);
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn several_operators_are_the_default_only_for_the_whole_cluster() {
    for (options, replicas) in [
        ("scope=cluster", 2.0),
        ("scope=namespace,crds.install=false", 1.0),
        ("scope=cluster,replicas=0", 0.0),
        ("scope=namespace,crds.install=false,replicas=3", 3.0),
    ] {
        let rendered = rendered(&["--set", options]);
        assert_eq!(rendered["Deployment faultline-operator"]["spec"]["replicas"], replicas, "{options}");
        assert_eq!(
            rendered.contains_key("PodDisruptionBudget faultline-operator"),
            replicas > 1.0,
            "{options}"
        );
    }
    let rendered =
        rendered(&["--set", "operator.tolerations[0].key=a,operator.tolerations[0].operator=Exists"]);
    let tolerations = &rendered["Deployment faultline-operator"]["spec"]["template"]["spec"]["tolerations"];
    assert_eq!(tolerations.as_array().unwrap().len(), 3, "{tolerations}");
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn an_administrator_and_a_user_without_cluster_wide_permissions_share_the_installation() {
    let monitoring = ["--api-versions", "monitoring.coreos.com/v1/PodMonitor"];
    let values = "scope=namespace,crds.install=false,rbac.create=false,metrics.podMonitor=false";
    let of_user = rendered(&[&monitoring[..], &["--set", values]].concat());
    // The default role `edit` permits creating these kinds.
    let permitted = ["Deployment", "NetworkPolicy", "ServiceAccount"];
    assert_eq!(
        of_user.keys().collect::<Vec<_>>(),
        permitted.map(|it| format!("{it} faultline-operator")).each_ref()
    );
    let shown = ["--show-only", "templates/crd.yaml", "--show-only", "templates/aggregated.yaml"];
    let once = rendered(&shown);
    let per_namespace = rendered(&["--set", "scope=namespace", "--show-only", "templates/rights.yaml"]);
    assert!(per_namespace.values().all(|it| it["metadata"]["namespace"] == install::NAMESPACE));
    let parts: Vec<_> = [of_user, once, per_namespace].into_iter().flatten().collect();
    let all = rendered(&["--set", "scope=namespace"]);
    assert_eq!(parts.len(), all.len(), "no object is in two parts");
    assert_eq!(parts.into_iter().collect::<BTreeMap<_, _>>(), all);
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn the_roles_of_users_stay_if_the_definition_stays() {
    for keep in [true, false] {
        let objects = objects(&template(&["--set", &format!("crds.keep={keep}")]));
        let kept = |it: &Value| it["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
        let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
        assert!(of_kind("CustomResourceDefinition").all(|it| kept(it) == keep));
        let roles: BTreeMap<_, _> =
            of_kind("ClusterRole").map(|it| (it["metadata"]["name"].as_str().unwrap(), it)).collect();
        assert!(!kept(roles["faultline-operator"]), "the operator's role belongs to the release");
        assert!(!kept(roles[install::SECRETS_ROLE]));
        assert_eq!(roles.len(), 2 + install::AGGREGATED.len());
        for install::Aggregated { of, rules } in install::AGGREGATED {
            let role = roles[format!("faultline-federations-{of}").as_str()];
            assert_eq!(role["rules"], json!(rules), "{of}");
            assert_eq!(kept(role), keep, "{of}");
            let labels = role["metadata"]["labels"].as_object().unwrap().keys();
            let target: Vec<_> =
                labels.filter_map(|it| it.strip_prefix("rbac.authorization.k8s.io/aggregate-to-")).collect();
            assert_eq!(target, [*of]);
        }
    }
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn pods_of_users_cannot_serve_the_series_of_the_operator() {
    let rendered = rendered(&["--set", "metrics.podMonitor=true,metrics.alerts=true"]);
    let monitor = |name: &str| &rendered[&format!("PodMonitor {name}")]["spec"];
    let rule =
        |regex: &str, action: &str| json!({ "sourceLabels": ["__name__"], "regex": regex, "action": action });
    let supervisors = [rule("faultline_.*", "keep"), rule("faultline_(operator|federation)_.*", "drop")];
    let agents = [rule("faultline_agent_.*", "keep")];
    for (name, rules) in [("faultline-federations", &supervisors[..]), ("faultline-agents", &agents)] {
        let monitor = monitor(name);
        assert!(["sampleLimit", "labelLimit"].iter().all(|it| monitor[it].is_number()), "{name}");
        let endpoints = monitor["podMetricsEndpoints"].as_array().unwrap();
        assert!(
            !endpoints.is_empty() && endpoints.iter().all(|it| it["metricRelabelings"] == json!(rules)),
            "{name}"
        );
    }
    assert!(monitor("faultline-operator")["podMetricsEndpoints"][0]["metricRelabelings"].is_null());
    // The rules separate the series of the two groups of alerts.
    for group in rendered["PrometheusRule faultline"]["spec"]["groups"].as_array().unwrap() {
        for alert in group["rules"].as_array().unwrap() {
            let expression = alert["expr"].as_str().unwrap();
            let series = expression.split(|it: char| it != '_' && !it.is_alphanumeric());
            for series in series.filter(|it| it.starts_with("faultline_")) {
                let is_dropped =
                    ["faultline_operator_", "faultline_federation_"].iter().any(|it| series.starts_with(it));
                assert_eq!(is_dropped, group["name"] == "faultline-operator", "{series}");
            }
        }
    }
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn values_are_checked_and_every_option_renders() {
    assert!(helm(&["lint", "--strict"]).is_ok_and(|it| it.contains("0 chart(s) failed")));
    for bad in [
        "replicas=-1",
        "scope=galaxy",
        "operator.image.tag=latest",
        "operator.maxPods=10001",
        "no.such=value",
        "rbac.create=maybe",
        "rbac.no=value",
    ] {
        assert!(helm(&["template", "--set", bad]).is_err(), "{bad}");
    }
    let monitored = rendered(&["--set", "metrics.podMonitor=true,metrics.annotations=false"]);
    assert!(monitored.contains_key("PodMonitor faultline-federations"));
    let pod = &monitored["Deployment faultline-operator"]["spec"]["template"]["metadata"];
    assert!(pod["annotations"].is_null());
    let known = rendered(&["--api-versions", "monitoring.coreos.com/v1/PodMonitor"]);
    for name in ["faultline-operator", "faultline-federations", "faultline-agents"] {
        assert!(known.contains_key(&format!("PodMonitor {name}")), "{name}");
        assert!(!rendered(&[]).contains_key(&format!("PodMonitor {name}")), "the kind is unknown");
    }
    assert!(known["Deployment faultline-operator"]["spec"]["template"]["metadata"]["annotations"].is_null());
    let declined =
        ["--api-versions", "monitoring.coreos.com/v1/PodMonitor", "--set", "metrics.podMonitor=false"];
    assert!(!rendered(&declined).contains_key("PodMonitor faultline-federations"));
    let watched = rendered(&["--set", "metrics.alerts=true,metrics.dashboard=true"]);
    let groups = watched["PrometheusRule faultline"]["spec"]["groups"].as_array().unwrap();
    assert!(groups.iter().all(|group| !group["rules"].as_array().unwrap().is_empty()), "{groups:?}");
    for name in ["run", "operator", "compare"] {
        let dashboards = &watched["ConfigMap faultline-dashboards"]["data"];
        let dashboard = dashboards[format!("faultline-{name}.json")].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(dashboard).unwrap()["uid"], format!("faultline-{name}"));
    }
    let ours = rendered(&["--set", "operator.image.repository=registry.example/operator,node.image.tag=v2"]);
    let container = &ours["Deployment faultline-operator"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("registry.example/operator:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(container["env"][0]["value"], "faultline-node:v2");
}

/// Returns the paths of all values that are numbers, except those that have to be.
fn numbers(value: &Value, path: &str) -> Vec<String> {
    const NUMBERS: &[&str] = &[
        "replicas",
        "containerPort",
        "port",
        "runAsUser",
        "runAsGroup",
        "minAvailable",
        "maxSkew",
        "tolerationSeconds",
        "sampleLimit",
        "labelLimit",
    ];
    match value {
        Value::Number(_) if !NUMBERS.iter().any(|it| path.ends_with(&format!(".{it}"))) => {
            vec![path.to_owned()]
        }
        Value::Array(items) => items.iter().flat_map(|it| numbers(it, path)).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, it)| numbers(it, &format!("{path}.{name}"))).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
#[ignore = "needs helm: run by the step `chart` of .ci/run"]
fn values_that_look_like_numbers_stay_text() {
    let options = "replicas=2,scope=namespace,crds.install=false,metrics.podMonitor=true,metrics.alerts=true,\
        metrics.dashboard=true,operator.maxPods=10000";
    let text = "operator.priorityClassName=1,operator.image.repository=2,operator.image.tag=3,\
        node.image.repository=4,node.image.tag=5";
    let arguments = ["template", "--kube-version", "1.34.0", "--namespace", "2024", "--set", options];
    let rendered = helm_for("123", &[&arguments[..], &["--set-string", text]].concat()).expect("it renders");
    let objects = objects(&rendered);
    assert!(objects.len() > 8, "{rendered}");
    for object in &objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        assert_eq!(numbers(object, ""), [""; 0], "{name}");
        assert_eq!(object["metadata"]["namespace"], "2024", "{name}");
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/instance"], "123", "{name}");
    }
    let env = objects.iter().find(|it| it["kind"] == "Deployment").map(|it| {
        it["spec"]["template"]["spec"]["containers"][0]["env"].as_array().expect("it has variables").clone()
    });
    let limit = env.into_iter().flatten().find(|it| it["name"] == "FAULTLINE_MAX_PODS");
    assert_eq!(limit.map(|it| it["value"].clone()), Some(json!("10000")));
}
