//! `kubectl faultline fetch`: copies the record of a run on a cluster to a directory on this machine.

use std::fs;
use std::path::Path;

use faultline_api::Federation;
use faultline_api::resource::Phase;
use faultline_client::naming;
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::output;
use faultline_console::place::{create_record, free_place};
use faultline_trace::manifest::BackendKind;
use kube::ResourceExt;
use miette::miette;

use crate::arguments::FetchArguments;
use crate::cluster::{ClusterError, KubernetesCluster};
use crate::supervisor::{RequestError, Supervisor};

/// Executes `kubectl faultline fetch`.
pub(crate) fn fetch(arguments: &FetchArguments) -> Result<Exit, CommandError> {
    let dir = crate::block_on(async {
        let name = name(&arguments.federation)?;
        let cluster = KubernetesCluster::connect(&arguments.cluster).await?;
        let federation = cluster.federation(name).await?;
        let phase = federation.status.as_ref().map(|it| it.phase).unwrap_or_default();
        if federation.status.is_none() {
            return Err(CommandError::input(miette!(
                help = NOT_RECONCILED,
                "the federation `{name}` has no record yet: no operator has reconciled it"
            )));
        }
        if phase != Phase::Completed {
            let namespace = cluster.namespace();
            let (help, yet) = match phase {
                Phase::Rejected | Phase::Deleting => (
                    format!("`kubectl describe federation/{name} --namespace {namespace}` states the reason"),
                    "",
                ),
                _ => (
                    format!(
                        "wait for the end of the run: `kubectl wait federation/{name} --namespace {namespace} \
                         --for=condition=Completed`"
                    ),
                    " yet",
                ),
            };
            return Err(CommandError::input(miette!(
                help = help,
                "the federation `{name}` has no record{yet}: its phase is `{phase:?}`"
            )));
        }
        let seed = federation.spec.seed();
        let free = || free_place(name, seed, &federation, BackendKind::Kubernetes);
        let dir = arguments.out.clone().unwrap_or_else(free);
        let supervisor = cluster.supervisor(&federation).await?;
        unpack(&supervisor, &federation, &dir).await?;
        Ok(dir)
    })?;
    output::print(&format!("{}\n", dir.display()))?;
    Ok(Exit::Pass)
}

/// Unpacks the record of a federation into `dir`, which must be empty if it exists. An incomplete record is removed.
pub(crate) async fn unpack(
    supervisor: &Supervisor,
    federation: &Federation,
    dir: &Path,
) -> Result<(), ClusterError> {
    let bundle = create_record("fetch into", dir)?;
    let fetched = supervisor.fetch(dir).await;
    if fetched.is_err() {
        // The cause of the failure may also prevent the removal. A truncated record is then detected as such.
        let _ = bundle.clear().map(|()| fs::remove_dir(dir));
    }
    fetched.map_err(|error| {
        let is_temporary = error.is_temporary();
        let is_lost = error.is_too_early();
        let command_error = if is_lost { record_lost(federation) } else { unreachable(error, federation) };
        ClusterError { command_error, is_temporary }
    })
}

/// Returns the error for a run that has ended but whose record is lost.
fn record_lost(federation: &Federation) -> CommandError {
    const HELP: &str = "set `spec.kubernetes.results` to store records on a volume that outlives the pod";
    let name = federation.name_any();
    CommandError::input(miette!(
        help = HELP,
        "the record of `{name}` was lost when the supervisor's pod was replaced"
    ))
}

/// Returns the error, with a remedy, for a failed request to a supervisor.
pub(crate) fn unreachable(error: RequestError, federation: &Federation) -> CommandError {
    if error.is_forbidden() {
        let help = "this requires permission to `get` and to `create` pods/portforward; docs/kubernetes.md contains \
            a role with all required permissions";
        return CommandError::input(miette!(help = help, "{error}"));
    }
    let namespace = federation.namespace().unwrap_or_default();
    let pod = format!("{}-0", naming::supervisor(federation));
    CommandError::machine(format!("{error}; see `kubectl describe pod {pod} --namespace {namespace}`"))
}

const NOT_RECONCILED: &str =
    "check with `kubectl faultline doctor` whether an operator manages its namespace";

/// Extracts the name from `NAME` or `federation/NAME`.
pub(crate) fn name(given: &str) -> Result<&str, CommandError> {
    const HELP: &str = "use kubectl's notation, such as `federation/quickstart`";
    let name = match given.split_once('/') {
        None => given,
        Some((
            "federation" | "federations" | "fed" | "federation.faultline.dev" | "federations.faultline.dev",
            name,
        )) => name,
        Some(_) => {
            return Err(CommandError::input(miette!(help = HELP, "`{given}` is not a federation")));
        }
    };
    if name.is_empty() || name.contains('/') {
        return Err(CommandError::input(miette!(help = HELP, "`{given}` is not the name of a federation")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn federations_are_named_in_the_notation_of_kubectl() {
        assert_eq!(name("quickstart").unwrap(), "quickstart");
        for kind in
            ["federation", "federations", "fed", "federation.faultline.dev", "federations.faultline.dev"]
        {
            assert_eq!(name(&format!("{kind}/quickstart")).unwrap(), "quickstart");
        }
        for wrong in ["pod/quickstart", "federation/", "", "federation/a/b"] {
            assert_eq!(name(wrong).unwrap_err().exit, Exit::BadInput, "{wrong}");
        }
    }
}
