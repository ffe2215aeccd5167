//! A user presses Ctrl-C while `faultline run --backend kubernetes` runs a federation: the program deletes the
//! federation.

use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use faultline_e2e::{Failure, Program, QUICK_START, TestNamespace};
use kube::api::ListParams;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let program = Program::built()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("federation.yaml");
    let sample = faultline_api::samples::sample(QUICK_START).ok_or("the quick start is not a sample")?;
    std::fs::write(&file, sample.text)?;
    let (file, out) = (file.display().to_string(), dir.path().join("out").display().to_string());
    let command = ["run", &file, "--backend", "kubernetes", "--out", &out, "--namespace", &ns.namespace];
    let running = program.start(&command)?;
    ns.reach(QUICK_START, Phase::Running).await?;
    running.interrupt()?;
    let ran = running.end().await?;
    assert!(ran.status.is_some_and(|it| it != 0), "{}", ran.stderr);
    let remedy = format!("kubectl delete federation {QUICK_START} --namespace {}", ns.namespace);
    assert!(ran.stderr.contains(&remedy) && ran.stderr.contains("deleting the federation"), "{}", ran.stderr);
    let left = ns.api::<FederationObject>().list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "a federation remains: {left:?}");
    ns.until::<FederationObject>(
        QUICK_START,
        "the federation is deleted",
        std::time::Duration::from_secs(1),
        |it: Option<&FederationObject>| it.is_none(),
    )
    .await?;
    Ok(())
}
