//! A user runs a federation whose protocol is a program that the image of the pods does not contain. The run ends at once,
//! with a message that names the command, and no federation remains. With `kubectl apply`, a file of the program is
//! rejected, because pods cannot read it.

use std::time::Duration;

use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase};
use faultline_e2e::{Failure, Program, QUICK_START, TestNamespace};
use kube::api::ListParams;
use serde_json::json;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let command = Program::built()?;
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name).display().to_string();
    let mut federation = faultline_e2e::read_sample(QUICK_START)?;
    let program = |file: serde_json::Value| {
        serde_json::from_value(json!({ "program": {
            "command": ["no-such-interpreter", "mine.py"], "files": { "mine.py": file }, "scope": "federation",
        } }))
    };
    federation.spec.protocol = program(json!({ "text": "" }))?;
    std::fs::write(path("federation.yaml"), faultline_api::to_yaml(&federation))?;
    let (file, out) = (path("federation.yaml"), path("run"));
    let run = ["run", &file, "--backend", "kubernetes", "--namespace", &ns.namespace, "--out", &out];
    let ended = command.run(&run).await?;
    assert_eq!(ended.status, Some(2), "{}{}", ended.out, ended.stderr);
    for said in ["cannot be started", "`no-such-interpreter` was not found", "image of the pods"] {
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    let left = ns.api::<FederationObject>().list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "a federation remains: {left:?}");

    let protocol = program(json!({ "file": "mine.py" }))?;
    ns.apply(|spec| spec.protocol = protocol).await?;
    let is_rejected = |it: &FederationStatus| it.phase == Phase::Rejected;
    let status = ns.wait(QUICK_START, "the file is rejected", Duration::from_secs(60), is_rejected).await?;
    let message = status.message.unwrap_or_default();
    assert!(message.contains("`mine.py` cannot be read here"), "{message}");
    Ok(())
}
