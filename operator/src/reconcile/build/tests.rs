//! Tests of the desired objects, without a cluster.

use std::sync::Arc;

use faultline_api::resource::{Emulation, Kubernetes, Placement, Site, Volume};
use faultline_api::samples::SAMPLES;
use faultline_api::supervision::{RunPhase, RunStatus};
use faultline_client::object::FederationObject;
use faultline_client::status::FederationStatus;
use serde_json::{Value, json};

use super::*;
use crate::cached_federation::CachedFederation;
use crate::pod_state::{address, is_complete, lacks_ipv4};

/// The quick start, as an API server returns it.
pub(crate) fn quickstart() -> FederationObject {
    let file =
        faultline_api::parse("quickstart", SAMPLES[0].text.as_bytes()).expect("the quick start is valid");
    let mut federation = FederationObject::from(file);
    federation.metadata.namespace = Some("experiments".into());
    federation.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    federation.metadata.generation = Some(1);
    federation
}

/// A pod, as the set of a group creates it.
pub(crate) fn pod(name: &str, group: Option<&str>, uid: &str, running: bool) -> Arc<Pod> {
    let state = if running { json!({ "running": {} }) } else { json!({ "waiting": {} }) };
    let mut labels = naming::labels(&quickstart());
    labels.extend(group.map(|it| (naming::CLUSTER.to_owned(), it.to_owned())));
    let pod = json!({
        "metadata": { "name": name, "namespace": "experiments", "uid": uid, "labels": labels },
        "status": {
            "podIP": running.then(|| format!("10.0.0.{}", name.len())),
            "containerStatuses": [{
                "name": naming::CONTAINER, "state": state, "ready": running, "restartCount": 0, "image": "", "imageID": "",
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// The quick start with all its pods, and with this status of its supervisor.
pub(crate) fn running(status: RunStatus) -> Observed {
    let mut observed = Observed::of(Arc::new(quickstart()));
    for (group, nodes) in [("paris", 3), ("rennes", 3)] {
        for node in 0..nodes {
            let name = format!("quickstart-{group}-{node}");
            observed
                .pods
                .insert(name.clone(), pod(&name, Some(group), &format!("uid of {group}-{node}"), true));
        }
    }
    let supervisor = "quickstart-supervisor-0";
    observed.pods.insert(supervisor.into(), pod(supervisor, None, "uid of the supervisor", true));
    observed.hear(status);
    observed
}

/// A federation, as the operator caches it.
pub(crate) fn cached(federation: &FederationObject) -> CachedFederation {
    serde_json::from_value(json!(federation)).expect("a federation")
}

fn built(observed: &Observed) -> Desired {
    built_by(observed, &Settings::default())
}

fn built_by(observed: &Observed, settings: &Settings) -> Desired {
    build(&frozen(observed), observed, settings, "faultline-system")
}

/// The federation, frozen as it is.
pub(crate) fn frozen(observed: &Observed) -> Frozen {
    Frozen::of((*observed.federation).clone())
}

pub(crate) fn with(change: impl FnOnce(&mut Kubernetes)) -> Observed {
    let mut federation = quickstart();
    change(federation.spec.kubernetes.get_or_insert_default());
    Observed::of(Arc::new(federation))
}

fn set_of(observed: &Observed, name: &str) -> Value {
    let set = built(observed).sets.into_iter().find(|it| it.name_any() == name).expect("it is built");
    serde_json::to_value(set).expect("a set serialises")
}

/// Returns the pod that a set of this federation would create.
pub(crate) fn template(federation: &FederationObject, set: &str) -> Value {
    set_of(&Observed::of(Arc::new(federation.clone())), set)["spec"]["template"]["spec"].clone()
}

#[test]
fn the_objects_of_the_quick_start_are_as_reviewed() {
    let Desired { policy, service, budget, sets, drifted } = built(&Observed::of(Arc::new(quickstart())));
    assert_eq!((drifted, service), (vec![], None));
    let names: Vec<String> = sets.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["quickstart-supervisor", "quickstart-paris", "quickstart-rennes"]);
    insta::assert_snapshot!("quickstart-supervisor", yaml(&sets[0]));
    insta::assert_snapshot!("quickstart-paris", yaml(&sets[1]));
    insta::assert_snapshot!("quickstart-pods", yaml(&policy));
    insta::assert_snapshot!("quickstart-budget", yaml(&budget));
}

#[test]
fn processes_mount_their_own_key_and_only_the_supervisor_mounts_the_federations() {
    let process = set_of(&with(|_| {}), "quickstart-paris");
    let pod = &process["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("it has mounts");
    let keys = mounts.iter().find(|it| it["name"] == "key").expect("the key is mounted");
    assert_eq!((&keys["subPathExpr"], &keys["readOnly"]), (&json!("$(POD_NAME)"), &json!(true)));
    let volumes = pod["volumes"].as_array().expect("it has volumes");
    let secrets: Vec<_> = volumes.iter().filter_map(|it| it["secret"]["secretName"].as_str()).collect();
    assert_eq!(secrets, ["quickstart-process-keys"]);
    let supervisor = set_of(&with(|_| {}), "quickstart-supervisor")["spec"]["template"]["spec"].clone();
    let sources = &supervisor["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[0]["secret"]["name"], "quickstart-key");

    let key = "0".repeat(64);
    let secret =
        crate::reconcile::keys::of_processes(&Frozen::of(quickstart()), &key).expect("the key is valid");
    let keys = secret.data.expect("it has content");
    assert_eq!(keys.len(), 6);
    let drawn = faultline_api::supervision::process_key(&key, "paris-1").expect("the key is valid");
    assert_eq!(keys["quickstart-paris-1"].0, drawn.into_bytes());
}

/// Returns a system that runs in images.
pub(crate) fn system() -> FederationObject {
    let sample = &faultline_api::samples::SYSTEMS[0];
    let file = faultline_api::parse("pages", sample.text.as_bytes()).expect("it is valid");
    let mut federation = FederationObject::from(file);
    federation.metadata.namespace = Some("experiments".into());
    federation.metadata.uid = quickstart().metadata.uid;
    let kubernetes = federation.spec.kubernetes.get_or_insert_default();
    kubernetes.image = Some("pages:1".into());
    kubernetes.image_pull_secrets = vec!["registry".into()];
    kubernetes.links = Some(Emulation::Tc);
    kubernetes.run_as = Some(999);
    kubernetes.sites.entry("clients".into()).or_default().image = Some("client:1".into());
    federation
}

#[test]
fn the_commands_of_a_system_can_read_no_key() {
    let observed = Observed::of(Arc::new(system()));
    let Desired { service, .. } = built(&observed);
    let service = serde_json::to_value(service.expect("a system has a service")).expect("it serialises");
    assert_eq!(service["metadata"]["name"], "pages-pods");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let set = set_of(&observed, "pages-paris");
    assert_eq!(set["spec"]["serviceName"], "pages-pods");
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["automountServiceAccountToken"], &pod["shareProcessNamespace"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }]));
    let containers = pod["containers"].as_array().expect("it has containers");
    let names: Vec<_> = containers.iter().map(|it| it["name"].as_str().expect("it has a name")).collect();
    assert_eq!(names, ["faultline", "shaper", "system"]);
    let commands = &containers[2];
    assert_eq!(
        (&commands["image"], &commands["command"][0]),
        (&json!("pages:1"), &json!("/faultline/bin/faultline-node"))
    );
    let context = json!({
        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": false, "runAsUser": 999,
    });
    assert_eq!(commands["securityContext"], context);
    let mounts = commands["volumeMounts"].as_array().expect("it has mounts");
    let mounted: Vec<_> = mounts.iter().map(|it| (it["name"].as_str(), it["subPath"].as_str())).collect();
    assert_eq!(mounted, [(Some("program"), None), (Some("executor"), None), (Some("data"), Some("system"))]);
    assert_eq!(mounts[0]["readOnly"], true);
    let variables = commands["env"].as_array().expect("it has variables");
    assert!(variables.iter().all(|it| it["name"] == "FAULTLINE_BIND"));
    // The shaper's socket would let the commands change the links.
    let shared = |at: usize| containers[at]["volumeMounts"].to_string().contains(r#""name":"executor""#);
    assert_eq!([0, 1, 2].map(shared), [true, false, true]);
    let client = template(&system(), "pages-clients");
    assert_eq!(client["containers"][2]["image"], "client:1");
    assert_eq!(template(&system(), "pages-supervisor")["containers"].as_array().map(Vec::len), Some(1));
}

/// Users read the record with a token that opens nothing else.
#[test]
fn the_readers_secret_contains_only_the_readers_token() {
    let key = "0".repeat(64);
    let secret = crate::reconcile::keys::of_reader(&quickstart(), &key).expect("the key is valid");
    assert_eq!(secret.metadata.name.as_deref(), Some("quickstart-reader"));
    let token = faultline_api::supervision::reader_token(&key).expect("the key is valid");
    let entries: Vec<_> =
        secret.data.iter().flatten().map(|(name, value)| (name.as_str(), &value.0)).collect();
    assert_eq!(entries, [("token", &token.into_bytes())]);
}

/// Every pod meets the `restricted` Pod Security profile and further requirements: no access to the API server, no
/// privileges, a read-only file system, and limited resources.
#[test]
fn every_pod_is_confined() {
    for set in built(&with(|it| it.volumes = Some(volume()))).sets {
        let pod = serde_json::to_value(set.spec.expect("a spec").template.spec).expect("it serialises");
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        for wide in ["hostNetwork", "hostPID", "hostIPC", "tolerations"] {
            assert!(pod[wide].is_null(), "{wide}");
        }
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
        assert!(container["resources"]["requests"]["cpu"].is_string());
        assert!(container["resources"]["limits"]["memory"].is_string());
        let env = container["env"].as_array().cloned().unwrap_or_default();
        let is_mark =
            |it: &Value| it["name"] == naming::MARK && it["value"].as_str() == quickstart().uid().as_deref();
        assert!(
            env.iter().all(|it| it["valueFrom"]["fieldRef"].is_object() || is_mark(it)),
            "no environment variable contains a key"
        );
        assert!(env.iter().any(is_mark), "a pod can be recognised without its labels");
        assert!(container["image"].as_str().is_some_and(|it| !it.ends_with(":latest") && it.contains(':')));
        for volume in pod["volumes"].as_array().expect("it has volumes") {
            assert!(volume["hostPath"].is_null());
        }
    }
}

/// Checks the privileges that only a shaper has.
#[test]
fn a_shaper_has_one_capability_and_no_key_and_nothing_else_changes() {
    let plain = set_of(&with(|_| {}), "quickstart-paris");
    let shaped = set_of(&with(|it| it.links = Some(Emulation::Tc)), "quickstart-paris");
    let pod = |set: &Value| set["spec"]["template"]["spec"].clone();
    let (plain, shaped) = (pod(&plain), pod(&shaped));
    assert_eq!(plain["containers"].as_array().map(Vec::len), Some(1));
    let [agent, shaper] = shaped["containers"].as_array().expect("it has containers").as_slice() else {
        panic!("two containers, not {}", shaped["containers"])
    };
    assert_eq!(
        shaper["securityContext"],
        json!({
            "runAsUser": 0,
            "runAsNonRoot": false,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
        })
    );
    assert_eq!(shaper["volumeMounts"], json!([{ "name": "shaper", "mountPath": "/run/faultline" }]));
    assert!(shaper["ports"].is_null() && shaper["env"].is_null());
    assert_eq!(shaper["args"], json!(["shape", "--socket", "/run/faultline/shaper"]));
    assert!(shaper["resources"]["limits"]["memory"].is_string());

    let args = agent["args"].as_array().expect("it has arguments");
    assert_eq!(args[args.len() - 2..], [json!("--shaper"), json!("/run/faultline/shaper")]);
    assert_eq!(
        agent["securityContext"], plain["containers"][0]["securityContext"],
        "the agent gets no further privileges"
    );
    assert_eq!(shaped["securityContext"], plain["securityContext"]);
    assert_eq!(shaped["automountServiceAccountToken"], false);
    let supervisor = set_of(&with(|it| it.links = Some(Emulation::Tc)), "quickstart-supervisor");
    assert_eq!(pod(&supervisor)["containers"].as_array().map(Vec::len), Some(1), "it shapes nothing");
}

pub(crate) fn volume() -> Volume {
    Volume { size: "1GiB".parse().expect("a size"), storage_class: Some("fast".into()), keep: false }
}

#[test]
fn clusters_are_spread_pinned_or_given_a_kubernetes_node_each() {
    let spread = set_of(&with(|_| {}), "quickstart-paris");
    let pod = &spread["spec"]["template"]["spec"];
    assert_eq!(pod["topologySpreadConstraints"][0]["whenUnsatisfiable"], "ScheduleAnyway");
    assert!(pod["affinity"].is_null() && pod["nodeSelector"].is_null());

    let pinned = |it: &mut Kubernetes| it.pools = [("paris".to_owned(), "east".to_owned())].into();
    let selector = |set: &str| set_of(&with(pinned), set)["spec"]["template"]["spec"]["nodeSelector"].clone();
    assert_eq!(selector("quickstart-paris"), json!({ "faultline.dev/pool": "east" }));
    assert!(selector("quickstart-rennes").is_null());

    let alone = set_of(&with(|it| it.placement = Some(Placement::ClusterPerNode)), "quickstart-paris");
    let affinity = &alone["spec"]["template"]["spec"]["affinity"];
    let term = |kind: &str| {
        affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"].clone()
    };
    assert_eq!(term("podAffinity")["matchLabels"][naming::CLUSTER], "paris");
    assert_eq!(term("podAntiAffinity")["matchExpressions"][1]["values"], json!(["paris"]));
    assert!(alone["spec"]["template"]["spec"]["topologySpreadConstraints"].is_null());
}

#[test]
fn a_cluster_runs_at_its_site_with_the_given_secrets_and_priority() {
    let spread = |it: &mut Kubernetes| {
        let site: Site = serde_json::from_value(json!({
            "nodeSelector": { "zone": "b" },
            "tolerations": [{ "key": "dedicated", "value": "us", "effect": "NoSchedule" }],
        }))
        .expect("a site");
        it.pools = [("paris".to_owned(), "east".to_owned())].into();
        it.sites = [("paris".to_owned(), site)].into();
        it.priority_class = Some("batch".into());
    };
    let observed = with(spread);
    let settings = Settings {
        node_pull_policy: "Always".into(),
        node_pull_secrets: vec!["registry".into()],
        ..Settings::default()
    };
    let sets = built_by(&observed, &settings).sets;
    for set in sets {
        let pod = json!(set.spec.unwrap().template.spec.unwrap());
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }]));
        assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(pod["priorityClassName"], "batch");
        let is_there = set.metadata.name.as_deref() == Some("quickstart-paris");
        let expected = if is_there { json!({ naming::POOL: "east", "zone": "b" }) } else { Value::Null };
        assert_eq!(pod["nodeSelector"], expected);
        assert_eq!(pod["tolerations"][0]["key"], if is_there { json!("dedicated") } else { Value::Null });
    }
}

/// If all Kubernetes nodes have taints, every pod must tolerate them, including that of the supervisor.
#[test]
fn requirements_on_all_pods_are_added_to_those_of_a_cluster() {
    let placed = |it: &mut Kubernetes| {
        let toleration = |key: &str| json!([{ "key": key, "operator": "Exists" }]);
        let site = json!({ "nodeSelector": { "zone": "b" }, "tolerations": toleration("of-site") });
        it.sites = [("paris".to_owned(), serde_json::from_value(site).expect("a site"))].into();
        it.node_selector =
            [("zone", "a"), ("arch", "arm64")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        it.tolerations = serde_json::from_value(toleration("of-all")).expect("tolerations");
    };
    for set in built(&with(placed)).sets {
        let pod = json!(set.spec.unwrap().template.spec.unwrap());
        let is_there = set.metadata.name.as_deref() == Some("quickstart-paris");
        let zone = if is_there { "b" } else { "a" };
        assert_eq!(pod["nodeSelector"], json!({ "zone": zone, "arch": "arm64" }));
        let keys: Vec<_> =
            pod["tolerations"].as_array().unwrap().iter().map(|it| it["key"].clone()).collect();
        assert_eq!(keys, if is_there { vec!["of-all", "of-site"] } else { vec!["of-all"] });
    }
}

#[test]
fn data_is_on_the_nodes_disk_or_on_volumes_that_are_deleted_or_kept() {
    let has_directory = |set: &Value| {
        let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().expect("it has volumes").clone();
        volumes.iter().any(|it| it["name"] == "data" && it["emptyDir"].is_object())
    };
    let plain = set_of(&with(|_| {}), "quickstart-paris");
    assert!(has_directory(&plain) && plain["spec"]["volumeClaimTemplates"].is_null());

    let kept = set_of(&with(|it| it.volumes = Some(volume())), "quickstart-paris");
    assert!(!has_directory(&kept));
    let claim = &kept["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["resources"]["requests"]["storage"], "1Gi");
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(kept["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Delete");

    let results = with(|it| it.results = Some(Volume { keep: true, ..volume() }));
    let supervisor = set_of(&results, "quickstart-supervisor");
    assert_eq!(supervisor["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Retain");
    assert!(has_directory(&set_of(&results, "quickstart-paris")));
}

#[test]
fn only_missing_and_different_objects_are_written() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    for set in built(&observed).sets {
        observed.sets.insert(set.name_any(), Arc::new(set));
    }
    assert_eq!(built(&observed).sets, []);
    let newer = Settings { node_image: "faultline-node:9".into(), ..Settings::default() };
    assert_eq!(built_by(&observed, &newer).sets.len(), 3);
    observed.sets.remove("quickstart-paris");
    assert_eq!(built(&observed).sets.len(), 1);
}

#[test]
fn a_set_scaled_by_others_gets_its_pods_back() {
    for phase in [Phase::Starting, Phase::Running] {
        let mut observed = Observed::of(Arc::new(quickstart()));
        for mut set in built(&observed).sets {
            let spec = set.spec.as_mut().expect("it has a spec");
            match set.metadata.name.as_deref() {
                Some("quickstart-paris") => spec.replicas = Some(2),
                Some("quickstart-supervisor") => spec.replicas = Some(3),
                _ => {}
            }
            observed.sets.insert(set.name_any(), Arc::new(set));
        }
        let mut federation = quickstart();
        federation.status = Some(FederationStatus { phase, ..FederationStatus::default() });
        observed.federation = Arc::new(federation);
        let Desired { sets, drifted, .. } = built(&observed);
        assert_eq!(sets, []);
        let drifted: Vec<_> = drifted.iter().map(|it| (&it.set[..], it.found, it.wanted)).collect();
        assert_eq!(drifted, [("quickstart-paris", 2, 3), ("quickstart-supervisor", 3, 1)], "{phase:?}");
    }
}

#[test]
fn an_operator_with_another_image_leaves_the_pods_of_a_run_alone() {
    let remade = |phase: Phase, said: Option<RunPhase>| {
        let mut observed = Observed::of(Arc::new(quickstart()));
        for set in built(&observed).sets {
            observed.sets.insert(set.name_any(), Arc::new(set));
        }
        let mut federation = quickstart();
        federation.status = Some(FederationStatus { phase, ..FederationStatus::default() });
        observed.federation = Arc::new(federation);
        if let Some(phase) = said {
            observed.hear(RunStatus { phase, ..RunStatus::default() });
        }
        let newer = Settings { node_image: "faultline-node:9".into(), ..Settings::default() };
        let sets = built_by(&observed, &newer).sets;
        sets.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    let all = ["quickstart-supervisor", "quickstart-paris", "quickstart-rennes"];
    assert_eq!(remade(Phase::Starting, None), all, "an image that could not be pulled is replaced");
    assert_eq!(remade(Phase::Starting, Some(RunPhase::Gathering)), all);
    for phase in [RunPhase::Measuring, RunPhase::Running, RunPhase::Judging] {
        assert_eq!(remade(Phase::Starting, Some(phase)), [""; 0], "the status is not up to date: {phase:?}");
    }
    assert_eq!(remade(Phase::Linking, None), [""; 0]);
    assert_eq!(remade(Phase::Running, None), [""; 0]);
    assert_eq!(remade(Phase::Completed, None), [""; 0], "the record stays");
}

#[test]
fn after_the_run_only_the_supervisor_stays() {
    let mut federation = quickstart();
    let status = FederationStatus { phase: Phase::Completed, ..FederationStatus::default() };
    let mut observed = Observed::of(Arc::new(quickstart()));
    for set in built(&observed).sets {
        observed.sets.insert(set.name_any(), Arc::new(set));
    }
    federation.status = Some(status);
    observed.federation = Arc::new(federation);
    let scaled = |observed: &Observed| {
        let Desired { sets, drifted, .. } = built(observed);
        assert_eq!(sets, [], "scaling needs no other object");
        let scaled = drifted.iter().map(|it| (it.set.clone(), it.found, it.wanted, it.is_end_of_run));
        scaled.collect::<Vec<_>>()
    };
    let expected = |name: &str, found, is_end_of_run| (format!("quickstart-{name}"), found, 0, is_end_of_run);
    assert_eq!(scaled(&observed), [expected("paris", 3, true), expected("rennes", 3, true)]);

    let mut scale = |name: &str, replicas| {
        let mut set = (*observed.sets[name]).clone();
        set.spec.as_mut().expect("it has a spec").replicas = Some(replicas);
        if replicas == 0 {
            set.annotations_mut().insert(naming::APPLIED.into(), ENDED.into());
        }
        observed.sets.insert(name.into(), Arc::new(set));
        scaled(&observed)
    };
    assert_eq!(scale("quickstart-paris", 0), [expected("rennes", 3, true)]);
    assert_eq!(scale("quickstart-rennes", 0), []);
    for replicas in [1, 3] {
        let restored = expected("paris", replicas, false);
        assert_eq!(scale("quickstart-paris", replicas), [restored], "another client scaled it");
    }
    observed.sets.clear();
    let remade: Vec<String> = built(&observed).sets.iter().map(ResourceExt::name_any).collect();
    assert_eq!(remade, ["quickstart-supervisor"], "its volume may hold the record");
}

fn yaml(object: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(object).expect("a set serialises")
}

#[test]
fn a_pod_is_reached_at_its_ipv4_address_if_it_has_several() {
    let with = |first: &str, others: &[&str]| {
        let mut pod = (*pod("quickstart-paris-0", Some("paris"), "uid", true)).clone();
        let status = pod.status.as_mut().expect("it has a status");
        status.pod_ip = Some(first.into());
        let ips: Vec<Value> = others.iter().map(|it| json!({ "ip": it })).collect();
        status.pod_ips = Some(serde_json::from_value(json!(ips)).expect("addresses"));
        (address(&pod).map(|it| it.to_string()), is_complete(&pod), lacks_ipv4(&pod))
    };
    let reached = |it: &str| (Some(it.to_owned()), true, false);
    assert_eq!(with("10.0.0.7", &["10.0.0.7", "fd00::7"]), reached("10.0.0.7"));
    assert_eq!(with("fd00::7", &["fd00::7", "10.0.0.7"]), reached("10.0.0.7"));
    assert_eq!(with("fd00::7", &["fd00::7"]), (None, false, true));
}
