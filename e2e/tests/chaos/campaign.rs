//! Pods perform the parts of a sweep and of a comparison. Although a pod is killed and the command is interrupted, the
//! results are those of one machine, byte for byte, and nothing remains on the cluster.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use faultline_e2e::{Failure, Finished, Program, QUICK_START, TestNamespace};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use tokio::time::sleep;

/// Time within which the pods of a campaign start.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let program = Program::built()?;
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name).display().to_string();
    let sample = faultline_api::samples::sample(QUICK_START).ok_or("the quick start is not a sample")?;
    let file = path("federation.yaml");
    fs::write(&file, sample.text)?;
    let pods = ["--backend", "kubernetes", "--namespace", &ns.namespace, "--workers", "2"];
    let small = ["--worker-cpu", "200m", "--worker-memory", "256MiB"];
    let on_cluster = [&pods[..], &small].concat();

    let (alone, killed) = (path("alone"), path("killed"));
    let sweep =
        ["sweep", &file, "--set", "protocol.hc3i.checkpointEvery=1s,2s", "--seeds", "10", "--quiet", "--out"];
    passes(&program.run(&[&sweep[..], &[&alone]].concat()).await?);
    let running = program.start(&[&sweep[..], &[&killed, "--parts", "4"], &on_cluster].concat())?;
    ns.kill_pod(&first_pod(&ns).await?).await?;
    passes(&running.end().await?);
    are_equal(&alone, &killed, &["index.html", "sweep.json", "runs.csv"])?;
    nothing_remains(&ns).await?;

    let (alone, resumed) = (path("alone-compared"), path("resumed"));
    let compare = ["compare", &file, "--seeds", "2", "--quiet", "--out"];
    passes(&program.run(&[&compare[..], &[&alone]].concat()).await?);
    let with_pods = [&compare[..], &[&resumed], &on_cluster].concat();
    let running = program.start(&with_pods)?;
    first_pod(&ns).await?;
    // The terminal would interrupt both programs.
    running.interrupt()?;
    let plugin = Program::plugin()?;
    let listed = plugin.run(&["campaign", "list", "--namespace", &ns.namespace]).await?;
    assert!(listed.out.contains("faultline-compare-"), "{}{}", listed.out, listed.stderr);
    drop(running.end().await?);
    passes(&program.run(&[&with_pods[..], &["--resume"]].concat()).await?);
    are_equal(&alone, &resumed, &["index.html", "comparison.json"])?;
    nothing_remains(&ns).await?;

    let absent = path("absent");
    let with_image = [&sweep[..], &[&absent], &on_cluster, &["--image", "faultline:absent"]].concat();
    let refused = program.run(&with_image).await?;
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot get their image"), "{}", refused.stderr);
    nothing_remains(&ns).await
}

fn passes(finished: &Finished) {
    assert_eq!(finished.status, Some(0), "{}{}", finished.out, finished.stderr);
}

/// Returns the name of a pod of the campaign, once it runs.
async fn first_pod(ns: &TestNamespace) -> Result<String, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < STARTED_WITHIN {
        let running = ListParams::default().fields("status.phase=Running");
        if let Some(pod) = ns.api::<Pod>().list(&running).await?.items.first() {
            return Ok(pod.name_any());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err("no pod of the campaign started".into())
}

fn are_equal(one: &str, other: &str, names: &[&str]) -> Result<(), Failure> {
    for name in names {
        let [one, other] = [one, other].map(|it| fs::read(Path::new(it).join(name)));
        assert!(one? == other?, "{name} differs");
    }
    Ok(())
}

async fn nothing_remains(ns: &TestNamespace) -> Result<(), Failure> {
    let of_campaigns = ListParams::default().labels("app.kubernetes.io/component=campaign");
    let mut names = ns.names::<Job>(&of_campaigns).await?;
    names.extend(ns.names::<Pod>(&of_campaigns).await?);
    names.extend(ns.names::<ConfigMap>(&of_campaigns).await?);
    assert!(names.is_empty(), "{names:?}");
    Ok(())
}
