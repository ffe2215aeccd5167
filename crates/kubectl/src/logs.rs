//! `kubectl faultline logs`: prints the log of a federation's supervisor, or of one of its processes.

use std::io;

use faultline_api::Federation;
use faultline_api::names::Names;
use faultline_api::resource::ClusterSpec;
use faultline_client::naming;
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::output;
use futures::{AsyncBufReadExt, TryStreamExt};
use kube::api::LogParams;
use miette::miette;

use crate::arguments::LogsArguments;
use crate::cluster::KubernetesCluster;
use crate::fetch;

/// Executes `kubectl faultline logs`.
pub(crate) fn logs(arguments: &LogsArguments) -> Result<Exit, CommandError> {
    crate::block_on(async {
        let name = fetch::name(&arguments.federation)?;
        let cluster = KubernetesCluster::connect(&arguments.cluster).await?;
        let federation = cluster.federation(name).await?;
        let pod = pod(&federation, arguments.process.as_deref())?;
        let parameters = LogParams {
            container: Some(naming::CONTAINER.to_owned()),
            follow: arguments.follow,
            previous: arguments.previous,
            ..LogParams::default()
        };
        let mut lines = cluster.log(&pod, &parameters).await?.lines();
        loop {
            match lines.try_next().await {
                // `head` or `grep -m1` has seen enough.
                Ok(Some(line)) if !output::print_if_open(&format!("{line}\n"))? => return Ok(Exit::Pass),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(Exit::Pass),
                Err(error) => return Err(broken(&pod, &error)),
            }
        }
    })
}

fn broken(pod: &str, error: &io::Error) -> CommandError {
    CommandError::machine(format!("the log of the pod {pod} was interrupted: {error}"))
}

/// Returns the name of the pod of a process, or of the supervisor if `process` is `None`.
fn pod(federation: &Federation, process: Option<&str>) -> Result<String, CommandError> {
    let Some(process) = process else { return Ok(format!("{}-0", naming::supervisor(federation))) };
    let names = Names::of(&federation.spec);
    if names.process_id(process).is_none() {
        let processes = |it: &ClusterSpec| match it.nodes {
            1 => format!("{}-0", it.name),
            nodes => format!("{0}-0 to {0}-{1}", it.name, nodes - 1),
        };
        let of_clusters = federation.spec.clusters.iter().map(processes);
        let known: Vec<String> = of_clusters.chain(names.extra().iter().cloned()).collect();
        return Err(CommandError::input(miette!(
            help = format!("use one of: {}", known.join(", ")),
            "the federation has no process `{process}`"
        )));
    }
    // Each process outside the clusters has a set of its own.
    let is_outside = names.extra().iter().any(|it| it == process);
    Ok(naming::set(federation, process) + if is_outside { "-0" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_existing_process_is_found_by_its_name() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        assert_eq!(pod(&federation, None).unwrap(), "quickstart-supervisor-0");
        assert_eq!(pod(&federation, Some("paris-1")).unwrap(), "quickstart-paris-1");
        let mut with_servers = federation.clone();
        let protocol = serde_json::json!({ "cck": { "replicateTo": "sharedStorage", "servers": 2 } });
        with_servers.spec.protocol = serde_json::from_value(protocol).unwrap();
        let of_server = pod(&with_servers, Some("storage-server.1")).unwrap();
        assert_eq!(of_server, "quickstart-storage-server-1-0");
        for wrong in ["paris", "paris-99", "nancy-0", "paris-", "-1", ""] {
            let error = pod(&federation, Some(wrong)).unwrap_err();
            assert_eq!(error.exit, Exit::BadInput, "{wrong}");
            assert!(error.report.help().unwrap().to_string().contains("paris-0 to paris-"), "{wrong}");
        }
    }
}
