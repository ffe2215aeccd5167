//! A planned task-based program runs under CCK. One process fails and returns. Then a whole cluster is lost with its
//! storage, and is replaced. Only the failed processes roll back; the record counts what the others re-executed.

use faultline_e2e::{Failure, Program, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply_over_slow_links("cck").await?;
    let status = ns.passes("cck").await?;
    ns.heartbeats_were_on_time().await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    assert!(status.clusters.iter().any(|it| it.name == "rennes" && it.rollbacks >= 1), "{status:#?}");
    assert!(status.clusters.iter().any(|it| it.name == "nancy" && it.rollbacks == 0), "{status:#?}");

    let program = Program::built()?;
    let dir = tempfile::tempdir()?;
    let record = dir.path().join("record").display().to_string();
    let fetch = ["fetch", "federation/cck", "--out", &record, "--namespace", &ns.namespace];
    let fetched = program.run(&fetch).await?;
    assert_eq!(fetched.status, Some(0), "{}", fetched.stderr);
    let summary = program.run(&["check", &record, "--format", "json"]).await?.json()?;
    let properties = summary["properties"].as_array().ok_or("there are no properties")?;
    // Only failed processes rolled back, and every re-execution by the other processes was judged.
    for name in ["contained", "strictlyRequired", "demandedOnly"] {
        let found = properties
            .iter()
            .find(|it| it["property"] == name)
            .ok_or_else(|| format!("`{name}` is not judged"))?;
        assert!(found["verdict"] == "pass" && found["instances"].as_u64() > Some(0), "{found:#}");
    }
    let explained = program.run(&["explain", &record]).await?;
    assert!(explained.out.contains("by processes that kept their states"), "{}", explained.out);
    ns.delete("cck").await
}
