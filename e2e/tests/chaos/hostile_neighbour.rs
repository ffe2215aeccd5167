//! Pods in another namespace have all the labels and the names of a run's pods, and foreign pods in the same namespace
//! have all the labels. Those that pose as a supervisor claim that the run is over and has passed. The operator does
//! not query, inform or wait for any of them. A neighbour's connections to the ports of the run are refused.

use std::fs;
use std::path::Path;
use std::time::Duration;

use axum::http;
use faultline_api::resource::ApplicationSpec;
use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use faultline_e2e::{Failure, Machine, Program, QUICK_START, Skipped, TestNamespace, restorable};
use futures::future::try_join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, LogParams, PostParams};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(60);
/// Port of a supervisor's API.
const API: u16 = 7301;
/// Number of bytes with which a program answers the beginning of a handshake: a nonce, and the proof of its own key.
const PROOF: usize = 48;
/// What a caller without a key sends: the port, whether it is the supervisor's, and the words in the notation of
/// `printf`. In a handshake, the words name the two ends, and zeros follow as nonce and proof.
const ATTEMPTS: [(u16, bool, &str); 4] = [
    (7300, true, r"FLT3\x00\x00\x00\x00\xff\xff\xff\xff"),
    (7400, false, r"FLT3\xff\xff\xff\xff\x00\x00\x00\x00"),
    (7401, false, r"FLT3\x01\x00\x00\x00\x00\x00\x00\x00"),
    (
        API,
        true,
        r"PUT /v1/places HTTP/1.1\r\nhost: x\r\nauthorization: Bearer 0\r\ncontent-length: 0\r\n\r\n",
    ),
];

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let neighbour = ns.another("neighbour").await?;
    let outcome = restorable(run_steps(&ns, &neighbour)).await;
    neighbour.remove().await?;
    outcome
}

async fn run_steps(ns: &TestNamespace, neighbour: &TestNamespace) -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let record = passed(dir.path()).await?;
    ns.apply(|spec| {
        spec.deadline = "240s".parse().ok();
        if let ApplicationSpec::Heat(heat) = &mut spec.application {
            heat.steps = Some(2000); // 40 s of computation
        }
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let mut forged = Vec::new();
    for (component, forgery) in [("supervisor-0", Forgery::Supervisor(&record)), ("paris-1", Forgery::Agent)]
    {
        let name = format!("{QUICK_START}-{component}");
        let pod = ns.api::<Pod>().get(&name).await?;
        forged.push((neighbour, forge(neighbour, &pod, &name, forgery).await?));
        forged.push((ns, forge(ns, &pod, &format!("{name}-bystander"), forgery).await?));
    }
    let policy = ns.api::<NetworkPolicy>().get(&format!("{QUICK_START}-pods")).await?;
    assert!(
        policy.spec.and_then(|it| it.ingress).is_some_and(|it| !it.is_empty()),
        "some traffic is allowed"
    );
    for (ns, name) in &forged[..2] {
        claims_to_have_passed(ns, name).await?;
    }
    match connect(ns, neighbour, &forged[0].1).await {
        Err(error) if error.is::<Skipped>() => {
            println!("the neighbour's connections are not tested: {error}")
        }
        done => done?,
    }
    let federation = ns.api::<FederationObject>().get(QUICK_START).await?;
    let phase = federation.status.map(|it| it.phase).unwrap_or_default();
    assert_eq!(phase, Phase::Running, "the run continues, whatever others claim");

    let status = ns.passes(QUICK_START).await?;
    assert_eq!(
        status.faults_done.as_deref(),
        Some("2/2"),
        "only the planned faults were injected: {status:#?}"
    );
    let told = ns.event_reasons().await?;
    assert!(!told.contains("SupervisorSilent"), "another program was queried: {told:?}");
    for (ns, name) in &forged[..2] {
        let log = ns.api::<Pod>().logs(name, &LogParams::default()).await?;
        assert!(!log.contains("the handshake with a caller"), "the operator called {name}: {log}");
    }

    ns.api::<FederationObject>().delete(QUICK_START, &DeleteParams::default()).await?;
    let is_gone = |it: Option<&FederationObject>| it.is_none();
    ns.until::<FederationObject>(
        QUICK_START,
        "the federation is deleted, although foreign pods remain",
        WITHIN,
        is_gone,
    )
    .await?;
    for (ns, name) in forged {
        let pod = ns.api::<Pod>().get(&name).await?;
        assert!(pod.metadata.deletion_timestamp.is_none(), "{}/{name} was touched", ns.namespace);
    }
    Ok(())
}

/// What a foreign pod pretends to be.
#[derive(Clone, Copy)]
enum Forgery<'a> {
    Agent,
    /// A supervisor that serves this record, given as the files' paths and contents.
    Supervisor(&'a [(String, Vec<u8>)]),
}

/// Returns the record of a simulated run of the quick start that has passed.
async fn passed(dir: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let file = dir.join("federation.yaml");
    let sample = faultline_api::samples::sample(QUICK_START).ok_or("the quick start is not a sample")?;
    fs::write(&file, sample.text)?;
    let (file, out) = (file.display().to_string(), dir.join("record"));
    let simulate = ["run", &file, "--backend", "simulate", "--out", &out.display().to_string()];
    let simulated = Program::built()?.run(&simulate).await?;
    assert_eq!(simulated.status, Some(0), "{}", simulated.stderr);
    let mut paths = vec!["manifest.json".to_owned(), "federation.yaml".to_owned()];
    for entry in fs::read_dir(out.join("facts"))? {
        paths.push(format!("facts/{}", entry?.file_name().display()));
    }
    paths.into_iter().map(|path| Ok((path.clone(), fs::read(out.join(path))?))).collect()
}

/// Creates a running pod with the image and labels of another one, and a secret and an unused claim with the same
/// labels.
async fn forge(ns: &TestNamespace, like: &Pod, name: &str, forgery: Forgery<'_>) -> Result<String, Failure> {
    let container = like.spec.as_ref().and_then(|it| it.containers.first());
    let image = container.and_then(|it| it.image.clone()).ok_or("the pod has no image")?;
    let record = match forgery {
        Forgery::Agent => &[],
        Forgery::Supervisor(record) => record,
    };
    let key = ("key".to_owned(), "0".repeat(64).into_bytes());
    // A key of a secret cannot contain a slash.
    let entries = record.iter().chain([&key]).map(|(path, content)| (path.replace('/', "."), path, content));
    let data: serde_json::Map<String, Value> =
        entries.clone().map(|(entry, _, content)| (entry, json!(ByteString(content.clone())))).collect();
    let items: Vec<Value> = entries.map(|(entry, path, _)| json!({ "key": entry, "path": path })).collect();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "data": data,
    }))?;
    ns.api::<Secret>().create(&PostParams::default(), &secret).await?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    }))?;
    ns.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await?;
    let program = match forgery {
        // Listens on the port of a supervisor's API.
        Forgery::Agent => "agent --listen 0.0.0.0:7301 --key-file /key/key --data /data",
        Forgery::Supervisor(_) => {
            "supervise --federation /key/federation.yaml --key-file /key/key --out /key --listen 0.0.0.0:7300 --api \
             0.0.0.0:7301"
        }
    };
    let arguments: Vec<&str> = program.split(' ').collect();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "faultline",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "args": arguments,
                // Failed handshakes are logged at this level.
                "env": [{ "name": "FAULTLINE_LOG", "value": "debug" }],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [
                    { "name": "key", "mountPath": "/key" }, { "name": "data", "mountPath": "/data" },
                ],
            }],
            "volumes": [
                { "name": "key", "secret": { "secretName": name, "items": items } },
                { "name": "data", "emptyDir": {} },
            ],
        },
    }))?;
    ns.api::<Pod>().create(&PostParams::default(), &pod).await?;
    let runs = |it: Option<&Pod>| {
        it.and_then(|it| it.status.as_ref()?.phase.as_deref()).is_some_and(|it| it == "Running")
    };
    ns.until::<Pod>(name, "the forged pod runs", WITHIN, runs).await?;
    Ok(name.to_owned())
}

/// Waits until a forged supervisor claims that its run has passed. Its metrics can be read without a token.
async fn claims_to_have_passed(ns: &TestNamespace, pod: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}:{API}/proxy/metrics", ns.namespace);
    let claimed = async {
        loop {
            let request = http::Request::get(&path).body(Vec::new())?;
            // The program may not listen yet.
            let page = ns.client.request_text(request).await.unwrap_or_default();
            let says = |label: &str| page.lines().any(|it| it.contains(label) && it.ends_with(" 1"));
            if says(r#"phase="Completed""#) && says(r#"verdict="pass""#) {
                return Ok::<_, Failure>(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(WITHIN, claimed).await.map_err(|_| format!("{pod} does not claim a verdict"))?
}

/// Connects from a neighbour's pod to all ports of the run. The network policy or the programs refuse each connection.
async fn connect(ns: &TestNamespace, neighbour: &TestNamespace, from: &str) -> Result<(), Failure> {
    let from = neighbour.api::<Pod>().get(from).await?;
    let uid = from.metadata.uid.ok_or("the pod has no UID")?;
    let node = from.spec.and_then(|it| it.node_name).ok_or("the pod is not on a node")?;
    let machine = Machine::find(&ns.client, &node).await?;
    let mut addresses = Vec::new();
    for name in ["paris-0", "supervisor-0"] {
        let pod = ns.api::<Pod>().get(&format!("{QUICK_START}-{name}")).await?;
        addresses.push(pod.status.and_then(|it| it.pod_ip).ok_or("the pod has no address")?);
    }
    let attempts = ATTEMPTS.map(|(port, is_supervisor, words)| {
        let (machine, uid, address) = (&machine, &uid, &addresses[usize::from(is_supervisor)]);
        async move { Ok::<_, Failure>((port, say(machine, uid, address, port, words).await?)) }
    });
    for (port, answer) in try_join_all(attempts).await? {
        let Some((said, is_closed)) = answer else { continue };
        assert!(is_closed, "port {port} keeps a connection without a key open");
        if port == API {
            assert!(said.starts_with("HTTP/1.1 426"), "port {port} answered {said:?}");
        } else {
            assert!(said.is_empty() || said.len() == PROOF, "port {port} answered {said:?}");
        }
    }
    Ok(())
}

/// Sends words to a port, from the network of the pod with this UID. Returns the first bytes of the answer, in which
/// dots represent unprintable bytes, and whether the other end closed the connection. Returns `None` if the port cannot
/// be reached.
async fn say(
    machine: &Machine,
    uid: &str,
    address: &str,
    port: u16,
    words: &str,
) -> Result<Option<(String, bool)>, Failure> {
    const UNREACHABLE: &str = "unreachable";
    let to = format!("/dev/tcp/{address}/{port}");
    let zeros = if port == API { 0 } else { PROOF };
    let script = format!(
        r#"timeout 5 bash -c "exec 3<>{to}" 2>/dev/null || {{ echo {UNREACHABLE}; exit 0; }}
        exec 3<>{to}
        {{ printf "{words}"; head -c {zeros} /dev/zero; }} >&3
        timeout 20 head -c 200 <&3 2>/dev/null | LC_ALL=C tr -c "[:print:]" "."
        status=${{PIPESTATUS[0]}}; echo; echo $status"#
    );
    // The pod's processes are in control groups that are named after its UID.
    let find = format!(
        "for it in /proc/[0-9]*; do grep -qs -e {uid} -e {} $it/cgroup && pid=${{it#/proc/}}; done",
        uid.replace('-', "_")
    );
    let output = machine.run(&format!("{find}; nsenter --target $pid --net bash -c '{script}'")).await?;
    if output.trim() == UNREACHABLE {
        return Ok(None);
    }
    let (said, status) = output.trim_end().rsplit_once('\n').ok_or("the script printed no status")?;
    // `timeout` exits with 124 if the other end neither answers nor closes the connection.
    Ok(Some((said.to_owned(), status != "124")))
}
