//! `kubectl faultline fetch`: copies the record of a run on a cluster to a directory on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use faultline_api::Federation;
use faultline_client::naming;
use faultline_client::outline::{self, Outline};
use faultline_client::status::{FederationStatus, Phase};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::interrupt;
use faultline_console::output;
use faultline_console::place::{Claim, create_record};
use faultline_trace::Bundle;
use faultline_trace::manifest::BackendKind;
use kube::ResourceExt;
use miette::{Diagnostic, miette};
use thiserror::Error;

use crate::arguments::FetchArguments;
use crate::cluster::{ClusterError, KubernetesCluster};
use crate::doctor;
use crate::supervisor::{RequestError, Supervisor, has_no_record};
use crate::waiting::unless_interrupted;

/// The start of an error about the directory into which a record is fetched.
const ACTION: &str = "fetch into";

/// Executes `kubectl faultline fetch`.
pub(crate) fn fetch(arguments: &FetchArguments) -> Result<Exit, CommandError> {
    let interrupted = interrupt::quiet_flag();
    let dir = crate::block_on(async {
        let name = name(&arguments.federation)?;
        let cluster = KubernetesCluster::connect(&arguments.cluster).await?;
        fetch_from(&cluster, name, arguments.out.clone(), &interrupted).await
    })?;
    output::print(&format!("{}\n", dir.display()))?;
    Ok(Exit::Pass)
}

/// Fetches the record of a federation into `out` or, without it, into a new directory. Returns the directory.
pub(crate) async fn fetch_from(
    cluster: &KubernetesCluster,
    name: &str,
    out: Option<PathBuf>,
    interrupted: &AtomicBool,
) -> Result<PathBuf, CommandError> {
    let federation = cluster.outline(name).await?;
    let phase = federation.status.as_ref().map(|it| it.phase).unwrap_or_default();
    if federation.status.is_none() {
        return Err(CommandError::input(miette!(
            help = NOT_RECONCILED,
            "the federation `{name}` has no record yet: no operator has reconciled it"
        )));
    }
    if phase != Phase::Completed {
        let mut without_operator = String::new();
        let (help, yet) = match phase {
            Phase::Rejected | Phase::Deleting => {
                (format!("`{}` states the reason", cluster.description(&format!("federation/{name}"))), "")
            }
            _ => match doctor::without_operator(cluster).await {
                Some((why, remedy)) => {
                    without_operator = format!(", and nothing will report the end of the run: {why}");
                    (remedy, " yet")
                }
                None => (format!("wait for the end of the run: `{}`", cluster.waiting(name)), " yet"),
            },
        };
        return Err(CommandError::input(miette!(
            help = help,
            "the federation `{name}` has no record{yet}: its phase is `{phase:?}`{without_operator}"
        )));
    }
    if let Some(why) = federation.status.as_ref().and_then(FederationStatus::why_not_started) {
        return Err(CommandError::input(miette!(
            "the federation `{name}` has no record, because it never ran: {why}"
        )));
    }
    let claim = match &out {
        Some(out) => Claim::of(ACTION, out)?,
        None => place(name, &federation)?,
    };
    let supervisor = cluster.supervisor(&federation).await?;
    unless_interrupted(interrupted, unpack(cluster, &supervisor, &federation, claim.dir())).await?;
    Ok(claim.dir().to_owned())
}

/// Claims a new directory for the record of a federation. Without a readable spec, the seed is unknown, and the name of
/// the directory is that of the federation.
fn place(name: &str, federation: &Outline) -> Result<Claim, CommandError> {
    match outline::spec(federation) {
        Some(spec) => {
            let seed = spec.seed();
            Claim::of_run(name, seed, &Federation::new(name, spec), BackendKind::Kubernetes)
        }
        None => Claim::numbered(name),
    }
}

/// Unpacks the record of a federation into `dir`, which must be empty if it exists. An incomplete record is removed.
pub(crate) async fn unpack(
    cluster: &KubernetesCluster,
    supervisor: &Supervisor,
    federation: &impl ResourceExt,
    dir: &Path,
) -> Result<(), ClusterError> {
    let mut incomplete = Incomplete::create(dir)?;
    let Err(error) = supervisor.fetch(dir).await else {
        incomplete.record = None;
        return Ok(());
    };
    if error.is_too_early() && supervisor.status(0).await.is_ok_and(|it| has_no_record(&it)) {
        return Err(record_lost(federation).into());
    }
    let is_temporary = error.is_temporary();
    Err(ClusterError { command_error: unreachable(error, cluster, federation), is_temporary })
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
        Ok(Incomplete { record: Some(create_record(ACTION, dir)?), dir, is_given })
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

/// The record of a run that has ended is lost.
#[derive(Debug, Diagnostic, Error)]
#[error("the record of `{0}` was lost when the supervisor's pod was replaced")]
#[diagnostic(help("set `spec.kubernetes.results` to store records on a volume that outlives the pod"))]
struct RecordLost(String);

/// Returns the error for a run that has ended but whose record is lost.
pub(crate) fn record_lost(federation: &impl ResourceExt) -> CommandError {
    CommandError::input(RecordLost(federation.name_any()))
}

/// Returns whether an error reports that a record is lost.
pub(crate) fn is_record_lost(error: &CommandError) -> bool {
    error.report.downcast_ref::<RecordLost>().is_some()
}

/// Returns the error, with a remedy, for a failed request to a supervisor.
pub(crate) fn unreachable(
    error: RequestError,
    cluster: &KubernetesCluster,
    federation: &impl ResourceExt,
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
    let pod = format!("pod/{}", naming::supervisor_pod(federation));
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

    use serde_json::json;

    use super::*;
    use crate::run::tests::{Answer, serve, unreadable};

    /// The operator continues such a run with the file from which its pods were created.
    #[tokio::test]
    async fn a_record_is_fetched_even_if_a_change_cannot_be_read() {
        let federation = unreadable(json!({ "phase": "Completed" }));
        let cluster = serve(move |_, last, _| match last {
            "quickstart" => Answer::Object(federation.clone()),
            "quickstart-reader" => {
                let token = k8s_openapi::ByteString("00ff".into());
                Answer::Object(json!({ "metadata": { "name": last }, "data": { "token": token } }))
            }
            "portforward" => Answer::Error(403, "Forbidden"),
            other => panic!("the program requested {other}"),
        });
        let temporary = tempfile::tempdir().unwrap();
        let out = Some(temporary.path().join("record"));
        let error = fetch_from(&cluster, "quickstart", out, &AtomicBool::new(false)).await.unwrap_err();
        let told = error.report.to_string();
        assert!(told.contains("cannot forward a port to the pod quickstart-supervisor-0"), "{told}");
        let federation = cluster.outline("quickstart").await.unwrap();
        assert!(place("quickstart", &federation).unwrap().dir().ends_with("quickstart"));
    }

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
