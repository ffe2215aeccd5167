//! Kubernetes nodes that run as containers, such as those of `kind`, for faults that no API can cause.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use thiserror::Error;
use tokio::process::Command;

use crate::Failure;

/// The reason why a scenario cannot run on this cluster.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Skipped(pub String);

/// A Kubernetes node that is a container in this machine's Docker.
#[derive(Clone)]
pub struct Machine {
    name: String,
    client: Client,
}

impl Machine {
    /// Returns the Kubernetes node with this name. Fails with [`Skipped`] if it is not a container on this machine.
    pub async fn find(client: &Client, name: &str) -> Result<Machine, Failure> {
        let machine = Machine { name: name.to_owned(), client: client.clone() };
        match machine.run("true").await {
            Ok(_) => Ok(machine),
            Err(error) => {
                Err(Skipped(format!("{name} is not a container in this machine's Docker: {error}")).into())
            }
        }
    }

    /// Returns a control-plane node. Fails with [`Skipped`] if it is not a container on this machine.
    pub async fn of_control_plane(client: &Client) -> Result<Machine, Failure> {
        let labelled = ListParams::default().labels("node-role.kubernetes.io/control-plane");
        let nodes = Api::<Node>::all(client.clone()).list(&labelled).await?;
        let node = nodes.iter().next().ok_or("the control plane has no node")?;
        Machine::find(client, &node.name_any()).await
    }

    /// Runs a shell command on the machine. Returns its output.
    pub async fn run(&self, line: &str) -> Result<String, Failure> {
        self.docker(&["exec", &self.name, "sh", "-c", line]).await
    }

    /// Copies the contents of a directory of the machine into the existing directory `to`.
    pub async fn copy(&self, from: &str, to: &Path) -> Result<(), Failure> {
        let to = to.to_str().ok_or("the path is not UTF-8")?;
        self.docker(&["cp", &format!("{}:{from}/.", self.name), to]).await.map(drop)
    }

    async fn docker(&self, arguments: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("docker");
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`docker {}`: {}, {}", arguments.join(" "), output.status, said.trim()).into())
    }

    /// Sends a signal to all processes of a pod. Finds them by the pod's UID, which is part of the name of its control
    /// group.
    pub async fn signal_pod(&self, uid: &str, signal: &str) -> Result<(), Failure> {
        let uid = uid.replace('-', "_");
        let line = format!(
            "for it in /proc/[0-9]*; do grep -qs -e {uid} -e {} $it/cgroup && kill -{signal} ${{it#/proc/}}; done; true",
            uid.replace('_', "-")
        );
        self.run(&line).await.map(drop)
    }

    /// Kills all processes in the node's container at once, as if the machine had lost power. (`docker stop` sends a
    /// signal first, so that some processes could end before the others, and be reported as having ended unexpectedly.)
    pub async fn stop(&self) -> Result<(), Failure> {
        self.docker(&["kill", &self.name]).await.map(drop)
    }

    /// Starts the node's container again.
    pub async fn start(&self) -> Result<(), Failure> {
        self.docker(&["start", &self.name]).await.map(drop)
    }

    /// Pauses all processes in the node's container, as if the machine had stopped responding.
    pub async fn pause(&self) -> Result<(), Failure> {
        self.docker(&["pause", &self.name]).await.map(drop)
    }

    /// Resumes all processes in the node's container.
    pub async fn resume(&self) -> Result<(), Failure> {
        self.docker(&["unpause", &self.name]).await.map(drop)
    }

    /// Keeps new pods off the node unless they tolerate a taint with this key.
    pub async fn taint(&self, key: &str) -> Result<(), Failure> {
        let taint = Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() };
        self.change_taints(|taints| taints.push(taint)).await
    }

    /// Removes a taint from the node.
    pub async fn untaint(&self, key: &str) -> Result<(), Failure> {
        self.change_taints(|taints| taints.retain(|it| it.key != key)).await
    }

    async fn change_taints(&self, change: impl FnOnce(&mut Vec<Taint>)) -> Result<(), Failure> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut taints = nodes.get(&self.name).await?.spec.and_then(|it| it.taints).unwrap_or_default();
        change(&mut taints);
        let patch = json!({ "spec": { "taints": taints } });
        nodes.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sets whether the node accepts new pods.
    pub async fn admit(&self, admitted: bool) -> Result<(), Failure> {
        let patch = json!({ "spec": { "unschedulable": !admitted } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}
