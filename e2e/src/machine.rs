//! Kubernetes nodes that run as containers, such as those of `kind`, for faults that no API can cause.

use std::path::Path;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use thiserror::Error;

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
    docker: Docker,
}

impl Machine {
    /// Returns the Kubernetes node with this name. Fails with [`Skipped`] if it is not a container on this machine.
    pub async fn find(client: &Client, name: &str) -> Result<Machine, Failure> {
        let skipped = |error| Skipped(format!("{name} is not a container in this machine's Docker: {error}"));
        // A node of the same name on another machine must not be confused with this one.
        let host = std::env::var("DOCKER_HOST").unwrap_or_default();
        if !host.is_empty() && !host.starts_with("unix://") {
            return Err(Skipped(format!("DOCKER_HOST selects {host}, not this machine's Docker")).into());
        }
        let docker = Docker::connect_with_local_defaults().map_err(skipped)?;
        docker.inspect_container(name, None).await.map_err(skipped)?;
        Ok(Machine { name: name.to_owned(), client: client.clone(), docker })
    }

    /// Returns a control-plane node. Fails with [`Skipped`] if it is not a container on this machine.
    pub async fn of_control_plane(client: &Client) -> Result<Machine, Failure> {
        let labelled = ListParams::default().labels("node-role.kubernetes.io/control-plane");
        let nodes = Api::<Node>::all(client.clone()).list(&labelled).await?;
        let node = nodes.iter().next().ok_or("the control plane has no node")?;
        Machine::find(client, &node.name_any()).await
    }

    /// Runs a shell command on the machine. Returns what it printed to standard output.
    pub async fn run(&self, line: &str) -> Result<String, Failure> {
        let options = CreateExecOptions {
            cmd: Some(vec!["sh", "-c", line]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let id = self.docker.create_exec(&self.name, options).await?.id;
        let (mut printed, mut errors) = (Vec::new(), Vec::new());
        if let StartExecResults::Attached { mut output, .. } = self.docker.start_exec(&id, None).await? {
            while let Some(part) = output.try_next().await? {
                match part {
                    LogOutput::StdErr { message } => errors.extend(message),
                    other => printed.extend(other.into_bytes()),
                }
            }
        }
        match self.docker.inspect_exec(&id).await?.exit_code {
            Some(0) => Ok(String::from_utf8_lossy(&printed).into_owned()),
            status => {
                let errors = String::from_utf8_lossy(&errors);
                Err(format!("`{line}` on {}: status {status:?}, {}", self.name, errors.trim()).into())
            }
        }
    }

    /// Copies the contents of a directory of the machine into the existing directory `to`.
    pub async fn copy(&self, from: &str, to: &Path) -> Result<(), Failure> {
        let options = DownloadFromContainerOptionsBuilder::new().path(&format!("{from}/.")).build();
        let parts = self.docker.download_from_container(&self.name, Some(options));
        let archive = parts.try_fold(Vec::new(), async |mut archive, part| {
            archive.extend(part);
            Ok(archive)
        });
        Ok(tar::Archive::new(&*archive.await?).unpack(to)?)
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
        Ok(self.docker.kill_container(&self.name, None).await?)
    }

    /// Starts the node's container again.
    pub async fn start(&self) -> Result<(), Failure> {
        Ok(self.docker.start_container(&self.name, None).await?)
    }

    /// Pauses all processes in the node's container, as if the machine had stopped responding.
    pub async fn pause(&self) -> Result<(), Failure> {
        Ok(self.docker.pause_container(&self.name).await?)
    }

    /// Resumes all processes in the node's container.
    pub async fn resume(&self) -> Result<(), Failure> {
        Ok(self.docker.unpause_container(&self.name).await?)
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
