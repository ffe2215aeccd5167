//! `doctor` examines the cluster and the kernels of its Kubernetes nodes. If Pod Security rejects the probes in the
//! namespace, `doctor` prints the remedy. Once a user applies the remedy, it probes every node's kernel. No pod
//! remains. A quota for fewer pods than the run has is reported.

use faultline_e2e::{Failure, Finished, Program, TestNamespace};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let program = Program::plugin()?;
    let doctor = ["doctor", "--format", "json", "--namespace", &ns.namespace];
    let Finished { status, out, stderr } = program.run(&doctor).await?;
    assert_eq!(status, Some(0), "{out}{stderr}");
    let found: Value = serde_json::from_str(&out)?;
    for name in ["API server", "definition", "operator", "permissions", "nodes", "quotas"] {
        assert_eq!(states(&found, name), ["ok"], "{out}");
    }
    assert_eq!(found["trafficControl"], Value::Null, "traffic control was not requested");

    let with_tc = [&doctor[..], &["--tc"]].concat();
    let kept_out = program.run(&with_tc).await?;
    assert_eq!(kept_out.status, Some(1), "{}", kept_out.out);
    assert!(kept_out.out.contains("pod-security.kubernetes.io/enforce=privileged"), "{}", kept_out.out);
    assert_eq!(kept_out.json()?["trafficControl"], false);

    ns.set_profile("privileged").await?;
    let probed = program.run(&with_tc).await?;
    let found = probed.json()?;
    for ability in ["sch_htb", "sch_fifo", "cls_u32", "sch_netem", "ifb", "act_mirred"] {
        assert_eq!(states(&found, ability).len(), 1, "{}", probed.out);
    }
    let needed = ["sch_htb", "sch_fifo", "cls_u32"].map(|it| states(&found, it) == ["ok"]);
    assert_eq!(found["trafficControl"], !needed.contains(&false), "{}", probed.out);
    assert_eq!(probed.status, Some(if found["trafficControl"] == true { 0 } else { 1 }));
    let left = ns.api::<Pod>().list(&ListParams::default()).await?.items;
    assert!(left.iter().all(|it| it.metadata.deletion_timestamp.is_some()), "pods are left: {left:?}");

    let full = program.run(&[&doctor[..], &["--nodes", "4000000"]].concat()).await?;
    assert_eq!(full.status, Some(1), "{}", full.out);
    assert_eq!(states(&full.json()?, "nodes"), ["fail"]);

    let quota: ResourceQuota = serde_json::from_value(
        json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "6" } } }),
    )?;
    ns.api().create(&PostParams::default(), &quota).await?;
    let refused = program.run(&doctor).await?;
    assert_eq!(refused.status, Some(1), "{}", refused.out);
    assert_eq!(states(&refused.json()?, "quotas"), ["fail"]);
    Ok(())
}

/// Returns the states of the findings with this name.
fn states<'a>(found: &'a Value, name: &str) -> Vec<&'a str> {
    let findings = found["findings"].as_array().into_iter().flatten().filter(|it| it["name"] == name);
    findings.filter_map(|it| it["state"].as_str()).collect()
}
