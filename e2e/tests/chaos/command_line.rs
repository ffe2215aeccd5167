//! The command-line program runs the same file in the simulator and in pods, with the same planned faults,
//! the same result and the same exit status. Afterwards, no federation remains. For a federation that was
//! applied manually, the program fetches the record, and the `kubectl` plugin prints the supervisor's log.

use std::path::Path;

use faultline_client::object::FederationObject;
use faultline_e2e::{Busy, Failure, Program, QUICK_START, TestNamespace};
use kube::api::ListParams;
use serde_json::Value;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let program = Program::built()?;
    let plugin = Program::plugin()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("federation.yaml");
    let sample = faultline_api::samples::sample(QUICK_START).ok_or("the quick start is not a sample")?;
    std::fs::write(&file, sample.text)?;
    let path = |it: &Path| it.display().to_string();
    let file = path(&file);

    let (simulated, in_pods) = (path(&dir.path().join("simulated")), path(&dir.path().join("pods")));
    let of_simulation = program
        .run(&["run", &file, "--backend", "simulate", "--out", &simulated, "--format", "json"])
        .await?;
    let in_namespace = ["--namespace", &ns.namespace];
    let on_cluster = ["run", &file, "--backend", "kubernetes", "--out", &in_pods, "--format", "json"];
    let of_pods = program.run(&[&on_cluster[..], &in_namespace].concat()).await?;
    let why = of_pods.stderr.split_once("the verdict is unknown: ").and_then(|it| it.1.lines().next());
    if let Some(busy) = why.and_then(|why| Busy::found(Some("unknown"), why)) {
        return Err(busy.into());
    }
    assert_eq!((of_simulation.status, of_pods.status), (Some(0), Some(0)), "{}", of_pods.stderr);
    let (of_simulation, of_pods) = (of_simulation.json()?, of_pods.json()?);
    assert_eq!(of_pods["verdict"], "pass");
    assert_eq!(of_pods["run"]["backend"], "kubernetes");
    assert_eq!(digests(&of_pods)?, digests(&of_simulation)?);
    assert_eq!(plan(&of_pods)?, plan(&of_simulation)?);
    let left = ns.api::<FederationObject>().list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "a federation remains: {left:?}");

    ns.apply(|spec| spec.faults.clear()).await?;
    let early = plugin.run(&[&["fetch", "federation/quickstart"][..], &in_namespace].concat()).await?;
    assert_eq!(early.status, Some(2), "{}", early.stderr);
    assert!(early.stderr.contains("has no record yet"), "{}", early.stderr);
    ns.passes(QUICK_START).await?;
    let fetched = path(&dir.path().join("fetched"));
    let fetch = ["fetch", "federation/quickstart", "--out", &fetched];
    let done = program.run(&[&fetch[..], &in_namespace].concat()).await?;
    assert_eq!((done.status, done.out.trim()), (Some(0), &*fetched), "{}", done.stderr);
    let checked = program.run(&["check", &fetched, "--format", "json"]).await?;
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    assert_eq!(digests(&checked.json()?)?, digests(&of_simulation)?, "a result without faults is the same");

    let logged = plugin.run(&[&["logs", "federation/quickstart"][..], &in_namespace].concat()).await?;
    assert_eq!(logged.status, Some(0), "{}", logged.stderr);
    let gone = plugin.run(&[&["logs", "quickstart", "paris-99"][..], &in_namespace].concat()).await?;
    assert_eq!(gone.status, Some(2));
    assert!(gone.stderr.contains("no process `paris-99`"), "{}", gone.stderr);

    let missing = program.run(&[&["fetch", "federation/missing"][..], &in_namespace].concat()).await?;
    assert_eq!(missing.status, Some(2));
    assert!(missing.stderr.contains("there is no federation `missing`"), "{}", missing.stderr);
    Ok(())
}

/// Returns the digest of each rank in the summary.
fn digests(summary: &Value) -> Result<&Value, Failure> {
    let digests = &summary["result"]["digests"];
    if digests.as_object().is_some_and(|it| it.len() == 6) {
        Ok(digests)
    } else {
        Err(format!("the summary does not contain six digests: {digests}").into())
    }
}

/// Returns the planned faults in the summary, with their times.
fn plan(summary: &Value) -> Result<Vec<[&Value; 3]>, Failure> {
    let faults = summary["faults"].as_array().ok_or("the summary contains no faults")?;
    Ok(faults.iter().map(|it| [&it["no"], &it["when"], &it["what"]]).collect())
}
