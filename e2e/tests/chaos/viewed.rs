//! `kubectl faultline view` follows a run in pods, adds a fault from its page, and survives a restart of the supervisor.
//! For a user who may not patch federations, the page only shows the run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use faultline_api::resource::{Kubernetes, Volume};
use faultline_client::status::Phase;
use faultline_e2e::{Failure, Program, QUICK_START, Running, TestNamespace, kubeconfig};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::config::Kubeconfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The user who may follow runs, but not change them.
const VIEWER: &str = "viewer";
/// Time within which the page must show something.
const SHOWN_WITHIN: Duration = Duration::from_secs(120);
const FAULT: &str = r#"{"crash":{"process":"paris-1"}}"#;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let plugin = Program::plugin()?;
    let dir = tempfile::tempdir()?;
    let viewer = dir.path().join("kubeconfig");
    write_kubeconfig(&ns, &viewer).await?;
    let supervisor = format!("{QUICK_START}-supervisor-0");
    ns.apply(|spec| {
        // Only the added fault counts.
        spec.faults.clear();
        let results = Volume { size: "1GiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { results: Some(results), ..Kubernetes::default() });
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let view = ["view", QUICK_START, "--namespace", &ns.namespace, "--at", "127.0.0.1:0"];
    let mut watching = plugin.start_as(&viewer, &view)?;
    let said = watching.line("federations").await?;
    assert!(said.contains("you may not `patch` federations in the namespace"), "{said}");
    let only = address(&mut watching, "watch:").await?;
    let mut page = plugin.start(&view)?;
    let watch = address(&mut page, "watch:").await?;
    let control = address(&mut page, "control:").await?;

    for shown in [&only, &watch] {
        shown.events("event: diagram").await?;
    }
    let refused = only.request("POST", "faults", FAULT).await?;
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    let mut added = String::new();
    // The page may not know the time of the run yet.
    while !added.starts_with("HTTP/1.1 202") {
        assert!(added.is_empty() || added.starts_with("HTTP/1.1 409"), "{added}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        added = control.request("POST", "faults", FAULT).await?;
    }
    watch.events("paris-1").await?;
    ns.wait(QUICK_START, "the added fault", SHOWN_WITHIN, |it| it.faults_done.as_deref() == Some("1/1"))
        .await?;
    ns.kill_pod(&supervisor).await?;
    ns.passes(QUICK_START).await?;
    for shown in [&only, &watch] {
        shown.until_report().await?;
    }
    for program in [page, watching] {
        program.interrupt()?;
        let ended = program.end().await?;
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    }
    Ok(())
}

/// Creates a user with the rights that the documentation lists for `fetch`, and writes a kubeconfig for this user.
async fn write_kubeconfig(ns: &TestNamespace, path: &Path) -> Result<(), Failure> {
    fn object<K: DeserializeOwned>(value: Value) -> Result<K, Failure> {
        Ok(serde_json::from_value(value)?)
    }
    let new = PostParams::default();
    let name = json!({ "name": VIEWER });
    ns.api::<ServiceAccount>().create(&new, &object(json!({ "metadata": name }))?).await?;
    let role = json!({ "metadata": name, "rules": [
        { "apiGroups": ["faultline.dev"], "resources": ["federations"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"] },
    ] });
    ns.api::<Role>().create(&new, &object(role)?).await?;
    let binding = json!({
        "metadata": name,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": VIEWER },
        "subjects": [{ "kind": "ServiceAccount", "name": VIEWER, "namespace": ns.namespace }],
    });
    ns.api::<RoleBinding>().create(&new, &object(binding)?).await?;
    let asked: TokenRequest = object(json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } }))?;
    let granted = ns.api::<ServiceAccount>().create_token_request(VIEWER, &new, &asked).await?;
    let token = granted.status.ok_or("the API server granted no token")?.token;
    let mut config =
        serde_json::to_value(Kubeconfig::read_from(kubeconfig().ok_or("there is no kubeconfig")?)?)?;
    for user in config["users"].as_array_mut().into_iter().flatten() {
        user["user"] = json!({ "token": token });
    }
    std::fs::write(path, serde_json::to_string(&config)?)?;
    Ok(())
}

/// The address of a page.
struct Address {
    host: String,
    path: String,
}

/// Returns the address that a program prints after this word.
async fn address(program: &mut Running, word: &str) -> Result<Address, Failure> {
    let line = program.line(word).await?;
    let (host, key) = line
        .split_once("http://")
        .and_then(|it| it.1.trim().split_once('/'))
        .ok_or_else(|| format!("no address: {line}"))?;
    Ok(Address { host: host.to_owned(), path: format!("/{key}run/1/") })
}

impl Address {
    /// Sends a request, and returns the answer up to the point at which it contains `part`, or else its end.
    async fn read(
        &self,
        method: &str,
        path: &str,
        content: &str,
        part: Option<&str>,
    ) -> Result<String, Failure> {
        let Address { host, path: base } = self;
        let length = content.len();
        let head = format!(
            "{method} {base}{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{content}"
        );
        let (host, part) = (host.clone(), part.map(str::to_owned));
        let read = move || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(host)?;
            stream.set_read_timeout(Some(SHOWN_WITHIN))?;
            stream.write_all(head.as_bytes())?;
            let (mut bytes, mut piece) = (Vec::new(), [0; 1 << 16]);
            loop {
                let read = stream.read(&mut piece)?;
                bytes.extend(&piece[..read]);
                let text = String::from_utf8_lossy(&bytes);
                if read == 0 || part.as_ref().is_some_and(|it| text.contains(it)) {
                    return Ok(text.into_owned());
                }
            }
        };
        Ok(tokio::task::spawn_blocking(read).await??)
    }

    async fn request(&self, method: &str, path: &str, content: &str) -> Result<String, Failure> {
        self.read(method, path, content, None).await
    }

    /// Waits until an event of the run in progress contains `part`.
    async fn events(&self, part: &str) -> Result<(), Failure> {
        loop {
            let text = self.read("GET", "events?stage=running", "", Some(part)).await?;
            if text.contains(part) {
                return Ok(());
            }
            // The run has not been seen yet, so the page was told to load again.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until the page is the report of the run.
    async fn until_report(&self) -> Result<(), Failure> {
        loop {
            let page = self.request("GET", "", "").await?;
            if page.contains("with 1 fault added during the run") {
                return Ok(());
            }
            assert!(!page.contains("There is no report"), "{page}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
