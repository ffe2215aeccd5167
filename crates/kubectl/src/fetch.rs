//! `kubectl faultline fetch`: copies the record of a run on a cluster to a directory on this machine.

use std::fs;
use std::path::Path;

use faultline_api::Federation;
use faultline_api::resource::Phase;
use faultline_client::naming;
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::interrupt;
use faultline_console::output;
use faultline_console::place::{create_record, free_place};
use faultline_trace::Bundle;
use faultline_trace::manifest::BackendKind;
use kube::ResourceExt;
use miette::miette;

use crate::arguments::FetchArguments;
use crate::cluster::{ClusterError, KubernetesCluster};
use crate::run::until_interrupted;
use crate::supervisor::{RequestError, Supervisor};

/// Executes `kubectl faultline fetch`.
pub(crate) fn fetch(arguments: &FetchArguments) -> Result<Exit, CommandError> {
    let interrupted = interrupt::flag();
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
            let (help, yet) = match phase {
                Phase::Rejected | Phase::Deleting => (
                    format!("`{}` states the reason", cluster.description(&format!("federation/{name}"))),
                    "",
                ),
                _ => (format!("wait for the end of the run: `{}`", cluster.waiting(name)), " yet"),
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
        tokio::select! {
            unpacked = unpack(&cluster, &supervisor, &federation, &dir) => unpacked?,
            () = until_interrupted(&interrupted) => {
                return Err(CommandError::machine("interrupted while fetching the record"));
            }
        }
        Ok(dir)
    })?;
    output::print(&format!("{}\n", dir.display()))?;
    Ok(Exit::Pass)
}

/// Unpacks the record of a federation into `dir`, which must be empty if it exists. An incomplete record is removed.
pub(crate) async fn unpack(
    cluster: &KubernetesCluster,
    supervisor: &Supervisor,
    federation: &Federation,
    dir: &Path,
) -> Result<(), ClusterError> {
    let mut incomplete = Incomplete::create(dir)?;
    let fetched = supervisor.fetch(dir).await;
    if fetched.is_ok() {
        incomplete.record = None;
    }
    fetched.map_err(|error| {
        let is_temporary = error.is_temporary();
        let is_lost = error.is_too_early();
        let command_error =
            if is_lost { record_lost(federation) } else { unreachable(error, cluster, federation) };
        ClusterError { command_error, is_temporary }
    })
}

/// Checks that a record can be stored in `dir`, before a run takes time.
pub(crate) fn check_place(dir: &Path) -> Result<(), CommandError> {
    Incomplete::create(dir).map(drop)
}

/// A record that is being fetched. Unless it is complete in the end, it is removed, even if the user interrupts the
/// transfer.
struct Incomplete<'a> {
    /// The record; `None` once it is complete.
    record: Option<Bundle>,
    dir: &'a Path,
    /// Whether the directory is the user's, which stays.
    is_given: bool,
}

impl Incomplete<'_> {
    fn create(dir: &Path) -> Result<Incomplete<'_>, CommandError> {
        let is_given = dir.exists();
        Ok(Incomplete { record: Some(create_record("fetch into", dir)?), dir, is_given })
    }
}

impl Drop for Incomplete<'_> {
    fn drop(&mut self) {
        let Some(record) = &self.record else { return };
        // The cause of a failure may also prevent the removal. A truncated record is then detected as such.
        if record.clear().is_ok() && !self.is_given {
            let _ = fs::remove_dir(self.dir);
        }
    }
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
pub(crate) fn unreachable(
    error: RequestError,
    cluster: &KubernetesCluster,
    federation: &Federation,
) -> CommandError {
    if let RequestError::Unpack(error) = error {
        let help = "free space, or specify another directory with `--out`";
        return CommandError {
            exit: Exit::Unknown,
            report: miette!(help = help, "cannot store the record on this machine: {error}"),
        };
    }

    if error.is_forbidden() {
        let help = "this requires permission to `get` and to `create` pods/portforward; docs/kubernetes.md contains \
            a role with all required permissions";
        return CommandError::input(miette!(help = help, "{error}"));
    }
    let pod = format!("pod/{}-0", naming::supervisor(federation));
    CommandError::machine(format!("{error}; see `{}`", cluster.description(&pod)))
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_incomplete_record_leaves_nothing_but_the_directory_of_the_user() {
        let temporary = tempfile::tempdir().unwrap();
        let new = temporary.path().join("new");
        let interrupted = Incomplete::create(&new).unwrap();
        fs::write(new.join("manifest.json"), "{").unwrap();
        drop(interrupted);
        assert!(!new.exists());
        let given = temporary.path().join("given");
        fs::create_dir(&given).unwrap();
        fs::set_permissions(&given, fs::Permissions::from_mode(0o700)).unwrap();
        check_place(&given).unwrap();
        assert_eq!(fs::metadata(&given).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(given.read_dir().unwrap().count(), 0);
        let mut complete = Incomplete::create(&given).unwrap();
        complete.record = None;
        drop(complete);
        assert!(given.join("facts").exists());
    }

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
