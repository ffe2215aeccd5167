//! `kubectl faultline logs`: prints the log of a federation's supervisor, or of one of its processes.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use faultline_api::FederationSpec;
use faultline_api::names::Names;
use faultline_api::resource::ClusterSpec;
use faultline_client::naming;
use faultline_client::outline::{self, Outline};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::output;
use faultline_trace::printable;
use futures::AsyncBufReadExt;
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
        let federation = cluster.outline(name).await?;
        let pod = pod(&federation, arguments.process.as_deref())?;
        let parameters = LogParams {
            container: Some(naming::CONTAINER.to_owned()),
            follow: arguments.follow,
            previous: arguments.previous,
            ..LogParams::default()
        };
        let mut log = std::pin::pin!(cluster.log(&pod, &parameters).await?);
        let is_terminal = io::stdout().is_terminal();
        let mut line = Vec::new();
        loop {
            line.clear();
            match log.read_until(b'\n', &mut line).await {
                Ok(0) => return Ok(Exit::Pass),
                // `head` or `grep -m1` has seen enough.
                Ok(_) if !output::print_if_open(&shown(&line, is_terminal))? => return Ok(Exit::Pass),
                Ok(_) => {}
                Err(error) => return Err(broken(&pod, &error)),
            }
        }
    })
}

/// Returns a line of a log in the form in which it is printed. A process's control characters must not reach a
/// terminal.
fn shown(line: &[u8], is_terminal: bool) -> Cow<'_, [u8]> {
    if !is_terminal {
        return Cow::Borrowed(line);
    }
    let text = String::from_utf8_lossy(line);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let parts: Vec<String> = text.split('\t').map(printable).collect();
    Cow::Owned((parts.join("\t") + end).into_bytes())
}

fn broken(pod: &str, error: &io::Error) -> CommandError {
    CommandError::machine(format!("the log of the pod {pod} was interrupted: {error}"))
}

/// Returns the name of the pod of a process, or of the supervisor if `process` is `None`. Checks that the process
/// exists only if the spec can be read.
fn pod(federation: &Outline, process: Option<&str>) -> Result<String, CommandError> {
    let Some(process) = process else { return Ok(naming::supervisor_pod(federation)) };
    let clusters = federation.status.iter().flat_map(|it| &it.clusters);
    match outline::spec(federation) {
        Some(spec) => check_process(&spec, process)?,
        // This would be taken for the name of a process outside all clusters.
        None if { clusters }.any(|it| it.name == process) => {
            let help = format!("add the number of a node, as in `{process}-0`");
            return Err(CommandError::input(miette!(help = help, "`{process}` is a cluster, not a process")));
        }
        None => {}
    }
    // Only the name of a rank ends in a hyphen and a number. Each other process has a set of its own.
    let is_rank = process.rsplit_once('-').is_some_and(|(_, node)| node.parse::<u32>().is_ok());
    Ok(naming::set(federation, process) + if is_rank { "" } else { "-0" })
}

/// Checks that a process exists.
fn check_process(spec: &FederationSpec, process: &str) -> Result<(), CommandError> {
    let names = Names::of(spec);
    if names.process_id(process).is_none() {
        let processes = |it: &ClusterSpec| match it.nodes {
            1 => format!("{}-0", it.name),
            nodes => format!("{0}-0 to {0}-{1}", it.name, nodes - 1),
        };
        let of_clusters = spec.clusters.iter().map(processes);
        let known: Vec<String> = of_clusters.chain(names.extra().iter().cloned()).collect();
        return Err(CommandError::input(miette!(
            help = format!("use one of: {}", known.join(", ")),
            "the federation has no process `{process}`"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use faultline_client::status::ClusterStatus;
    use serde_json::json;

    use super::*;
    use crate::run::tests::{Answer, resource, serve, unreadable};

    #[test]
    fn only_an_existing_process_is_found_by_its_name() {
        let federation: Outline = serde_json::from_value(resource(json!({}))).unwrap();
        assert_eq!(pod(&federation, None).unwrap(), "quickstart-supervisor-0");
        assert_eq!(pod(&federation, Some("paris-1")).unwrap(), "quickstart-paris-1");
        let mut with_servers = federation.clone();
        with_servers.spec["protocol"] = json!({ "cck": { "replicateTo": "sharedStorage", "servers": 2 } });
        let of_server = pod(&with_servers, Some("storage-server.1")).unwrap();
        assert_eq!(of_server, "quickstart-storage-server-1-0");
        for wrong in ["paris", "paris-99", "nancy-0", "paris-", "-1", ""] {
            let error = pod(&federation, Some(wrong)).unwrap_err();
            assert_eq!(error.exit, Exit::BadInput, "{wrong}");
            assert!(error.report.help().unwrap().to_string().contains("paris-0 to paris-"), "{wrong}");
        }
    }

    /// The pods of a run that has begun stay the same.
    #[tokio::test]
    async fn a_process_is_found_even_if_a_change_cannot_be_read() {
        let paris = ClusterStatus { name: "paris".into(), ..ClusterStatus::default() };
        let changed = unreadable(json!({ "phase": "Running", "clusters": [paris] }));
        let cluster = serve(move |_, _, _| Answer::Object(changed.clone()));
        let federation = cluster.outline("quickstart").await.unwrap();
        for (process, expected) in [
            (None, "quickstart-supervisor-0"),
            (Some("paris-1"), "quickstart-paris-1"),
            (Some("storage-server"), "quickstart-storage-server-0"),
            (Some("storage-server.1"), "quickstart-storage-server-1-0"),
        ] {
            assert_eq!(pod(&federation, process).unwrap(), expected);
        }
        assert!(pod(&federation, Some("paris")).is_err());
    }

    #[test]
    fn control_characters_reach_only_files_and_pipes() {
        let line = b"a\x1b]0;title\x07\tb\x9b2J \xc2\x9b\r\n";
        assert_eq!(*shown(line, false), line[..]);
        let expected = "a\u{fffd}]0;title\u{fffd}\tb\u{fffd}2J \u{fffd}\u{fffd}\n";
        assert_eq!(*shown(line, true), *expected.as_bytes());
        assert_eq!(*shown(b"no line break", true), b"no line break"[..]);
    }
}
