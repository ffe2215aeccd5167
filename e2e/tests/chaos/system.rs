//! A system runs in pods, in an image of the user's: a command crashes, and a site is lost with its data. The container of
//! the commands has no privilege and can read no key. An expectation that is not met fails the run, and the operator refuses
//! an image that it does not permit.

use std::time::Duration;

use faultline_api::samples::SYSTEMS;
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, Skipped, TestNamespace};
use kube::api::PostParams;
use serde_json::{Value, json};

/// Names an image with Python and a shell that the operator permits.
const IMAGE: &str = "FAULTLINE_E2E_SYSTEM_IMAGE";

/// Fails if the container has a privilege, or can read anything that looks like a key.
const CONFINED: &str = r#"
import os, re
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, status
assert status["NoNewPrivs"] == "1" and os.getuid() != 0, status
numbers = [it for it in os.listdir("/proc") if it.isdigit()]
commands = [open(f"/proc/{it}/cmdline").read() for it in numbers if os.path.exists(f"/proc/{it}/cmdline")]
assert not any("--key-file" in it for it in commands), commands
assert not any(os.path.exists(it) for it in ("/var/run/secrets", "/etc/faultline", "/var/lib/faultline"))
key = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
assert not key.search(repr(os.environ).encode())
seen = 0
for top, directories, files in os.walk("/"):
    directories[:] = [it for it in directories if os.path.join(top, it) not in ("/proc", "/sys", "/usr", "/var/lib", "/var/log")]
    for path in (os.path.join(top, it) for it in files):
        if os.path.isfile(path) and os.access(path, os.R_OK):
            assert path.startswith("/faultline/bin/") or not key.search(open(path, "rb").read()), path
            seen += 1
assert seen > 10, seen
for path in ("/proc/1/environ", "/proc/1/mem", "/faultline/bin/new"):
    try:
        open(path, "wb" if path.endswith("new") else "rb")
    except OSError:
        continue
    raise AssertionError(path)
"#;

async fn apply(ns: &TestNamespace, name: &str, image: &str, check: Value) -> Result<(), Failure> {
    let sample = &SYSTEMS[0];
    let federation =
        faultline_api::parse(sample.name, sample.text.as_bytes()).map_err(|it| it.to_string())?;
    let mut federation = serde_json::to_value(federation)?;
    federation["metadata"]["name"] = json!(name);
    federation["spec"]["kubernetes"]["image"] = json!(image);
    let client = &mut federation["spec"]["application"]["system"]["in"]["clients"];
    client["files"] = json!({ "confined.py": { "text": CONFINED } });
    federation["spec"]["expect"].as_array_mut().ok_or("the sample expects something")?.push(check);
    let federation: FederationObject = serde_json::from_value(federation)?;
    ns.api().create(&PostParams::default(), &federation).await?;
    Ok(())
}

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let check =
        |command: Value| json!({ "check": "the container is confined", "by": "clients-0", "exec": command });
    apply(&ns, "refused", "not.permitted.example/any:1", check(json!(["true"]))).await?;
    let is_rejected = |it: &FederationStatus| it.phase == Phase::Rejected;
    let status = ns.wait("refused", "the image is refused", Duration::from_secs(60), is_rejected).await?;
    let accepted = status.condition(condition::ACCEPTED).ok_or("the condition is set")?;
    assert_eq!(accepted.reason, "ImageNotAllowed", "{accepted:?}");
    assert!(accepted.message.contains("`not.permitted.example/any:1`"), "{accepted:?}");

    let image = std::env::var(IMAGE).map_err(|_| Skipped(format!("{IMAGE} names no image")))?;
    apply(&ns, "pages", &image, check(json!(["python3", "confined.py"]))).await?;
    ns.passes("pages").await?;
    ns.delete("pages").await?;
    apply(&ns, "bad", &image, check(json!(["python3", "-c", "raise SystemExit(1)"]))).await?;
    let status = ns.verdict("bad").await?;
    assert_eq!(status.verdict.as_deref(), Some("fail"), "{status:?}");
    Ok(())
}
