//! `kubectl faultline run`: creates a federation on a cluster, follows its run, and deletes the federation once its
//! record has been fetched, or if there will be no record.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultline_api::supervision::{self, RunStatus};
use faultline_api::{Federation, FederationSpec, Names, quantity};
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::examination::PlannedRun;
use faultline_console::interrupt;
use faultline_console::memory::set_limit;
use faultline_console::output::note;
use faultline_console::recording::LocatedRecording;
use faultline_console::repetition::Repetition;
use faultline_console::screen::{Row, Screen};
use faultline_console::source::{Source, unfit};
use faultline_session::Session;
use faultline_trace::manifest::BackendKind;
use faultline_trace::printable;
use kube::ResourceExt;
use miette::miette;
use tokio::time::sleep;

use crate::arguments::{KubernetesArguments, RunArguments};
use crate::cluster::{ChosenCluster, ClusterError, KubernetesCluster, invocation};
use crate::doctor::check_before_run;
use crate::fetch::{check_place, is_record_lost, record_lost, unpack, unreachable};
use crate::supervisor::{Supervisor, has_no_record, is_over};
use crate::view::ClusterPage;
use crate::waiting::{MAX_DELAY, retried, unless_interrupted, until_interrupted};

/// Time between two checks of a run.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Number of checks after which the user is informed that no operator has reconciled the federation.
const NOT_RECONCILED: u32 = 15;
/// Number of checks for which a supervisor may be silent before the user is informed.
const SILENT_REPORT: u32 = 5;
/// Number of checks for which a supervisor may be silent once the status reports the end of the run.
const SILENT_LIMIT: u32 = 60;

/// The remedy if the pods cannot start a program.
const WITHOUT_COMMAND: &str =
    "the image of the pods must contain the command; docs/programs.md shows how to build one";

/// How long the deletion of a federation may take.
const REMOVED_WITHIN: Duration = Duration::from_secs(120);

/// How a run ended.
enum End {
    /// The record is available from this supervisor.
    Over(Box<Supervisor>),
    /// The run has ended, and its record is lost.
    Lost(CommandError),
    /// There is no record, and there will be none, because the run did not end by itself.
    Without(CommandError),
}

/// Number of checks within which the operator should have reported the end of a run.
const REPORT_LIMIT: u32 = 10;

/// Executes `kubectl faultline run`.
pub(crate) fn run(arguments: &RunArguments) -> Result<Exit, CommandError> {
    set_limit(arguments.memory)?;
    let federation = Source::of(arguments.file.as_deref())?.parse_for_pods()?;
    if arguments.repeat > 1 && expires_after(&federation.spec).is_some() {
        return Err(CommandError::input(miette!(
            help = "remove the field, or use `--repeat 1`",
            "`--repeat` requires the name again for each run, but `spec.kubernetes.ttlSecondsAfterFinished` keeps the \
             federation"
        )));
    }
    if arguments.repeat > 1 && arguments.view.is_some() {
        return Err(CommandError::input(miette!(
            help = "omit one of them",
            "`--view` shows a single run, and cannot be used with `--repeat`"
        )));
    }
    let interrupted = interrupt::quiet_flag();
    let chosen =
        crate::block_on(async { ChosenCluster::of(&place(&arguments.cluster, &federation)?).await })?;
    let repetition = Repetition {
        name: &name(&federation),
        federation: &federation,
        backend: BackendKind::Kubernetes,
        repeat: arguments.repeat,
        keeps_all: true,
        out: arguments.out.as_deref(),
        junit: arguments.junit.as_deref(),
        output: arguments.output,
        interrupted: &interrupted,
    };
    let first = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let page = match arguments.view {
        None => None,
        Some(address) => Some(crate::block_on(async {
            let changed = with_seed(&federation, first)?;
            ClusterPage::open(&chosen.connect()?, address, "--view", &name(&federation), Some(changed)).await
        })?),
    };
    let exit = repetition.perform(first, |seed, dir| {
        let seeded = with_seed(&federation, seed)?;
        once(arguments, &chosen, seeded, dir, (&interrupted, page.as_ref(), seed == first))?;
        let recorded = LocatedRecording::read(dir)?;
        recorded.check_started(WITHOUT_COMMAND)?;
        if let Some(page) = &page {
            page.page.show(&recorded);
        }
        Ok(recorded)
    })?;
    if let Some(page) = page {
        page.page.serve(&interrupted);
    }
    Ok(exit)
}

/// Returns for how many seconds after its run a federation is to stay, if it is to stay.
fn expires_after(spec: &FederationSpec) -> Option<u32> {
    spec.kubernetes.as_ref()?.ttl_seconds_after_finished
}

/// Returns a copy of the federation with this seed. Fails if the seed is too large for a resource.
fn with_seed(federation: &Federation, seed: u64) -> Result<Federation, CommandError> {
    if i64::try_from(seed).is_err() {
        let help = format!("use a seed of at most {} with `--seed`", i64::MAX);
        return Err(CommandError::input(miette!(
            help = help,
            "the seed {seed} is too large for a Kubernetes resource"
        )));
    }
    let mut federation = federation.clone();
    federation.spec.seed = Some(seed);
    Ok(federation)
}

/// Runs a federation until the run ends, and stores the record in `dir`. If the end of the run is not observed or the
/// record cannot be fetched, the federation stays on the cluster.
fn once(
    arguments: &RunArguments,
    chosen: &ChosenCluster,
    federation: Federation,
    dir: &Path,
    (interrupted, page, is_first): (&AtomicBool, Option<&ClusterPage>, bool),
) -> Result<(), CommandError> {
    let draft = Session::new(&federation).draft(BackendKind::Kubernetes).map_err(unfit)?;
    let protocol = federation.spec.protocol.name();
    let title = format!("{}: {protocol} in pods, seed {}", draft.name, draft.seed);
    let screen = Screen::new(arguments.output, arguments.repeat > 1, title);
    check_place(dir)?;
    crate::block_on(async {
        // A series of runs survives an API server that does not respond for a while.
        let cluster = if is_first { chosen.reach().await? } else { chosen.connect()? };
        if is_first {
            let nodes = u32::try_from(Names::of(&federation.spec).processes().len()).ok();
            let planned = PlannedRun::of(nodes.and_then(NonZero::new));
            tokio::select! {
                checked = check_before_run(&cluster, planned) => checked?,
                () = until_interrupted(interrupted) => return Err(CommandError::machine("interrupted")),
            }
        }
        let federation = create(&cluster, &federation, interrupted).await?;
        let deletion = cluster.deletion(&federation);
        let created = Created { cluster: &cluster, federation: &federation, interrupted, deletion };
        let ended = created.follow(screen, arguments.timeout, page).await?;
        let has_finished = !matches!(ended, End::Without(_));
        let fetched = match ended {
            End::Over(supervisor) => created.fetch(&supervisor, dir).await?,
            End::Lost(command_error) | End::Without(command_error) => Err(command_error),
        };
        created.delete(has_finished).await?;
        fetched
    })
}

/// Creates a federation on a cluster, with the labels and annotations of its file.
async fn create(
    cluster: &KubernetesCluster,
    federation: &Federation,
    interrupted: &AtomicBool,
) -> Result<FederationObject, CommandError> {
    let mut wanted = FederationObject::new(&name(federation), federation.spec.clone());
    wanted.metadata.labels.clone_from(&federation.metadata.labels);
    wanted.metadata.annotations.clone_from(&federation.metadata.annotations);
    wanted.metadata.namespace = Some(cluster.namespace().to_owned());
    let invocation = invocation()?;
    tokio::select! {
        made = retried(CHECK_EVERY, async || cluster.create(&wanted, &invocation).await) => made,
        () = until_interrupted(interrupted) => Err(CommandError::machine(format!(
            "interrupted while creating the federation: if it exists, delete it with `{}`",
            cluster.deletion(&wanted)
        ))),
    }
}

/// A federation that this command has created on a cluster.
struct Created<'a> {
    cluster: &'a KubernetesCluster,
    federation: &'a FederationObject,
    interrupted: &'a AtomicBool,
    /// The command that deletes the federation.
    deletion: String,
}

impl Created<'_> {
    /// Shows the run until it ends or the user interrupts it.
    async fn follow(
        &self,
        screen: Screen,
        timeout: Option<quantity::Duration>,
        page: Option<&ClusterPage>,
    ) -> Result<End, CommandError> {
        let mut watch = Watch {
            cluster: self.cluster,
            federation: self.federation,
            screen,
            check_every: CHECK_EVERY,
            told: 0,
            said: String::new(),
        };
        let shown = async {
            match page {
                Some(page) => page.follow(self.cluster, self.federation).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            ended = within(timeout, watch.follow()) => Some(ended),
            () = shown => None,
            () = until_interrupted(self.interrupted) => None,
        };
        watch.screen.finish();
        let ended = ended.unwrap_or_else(|| {
            note(format_args!(
                "interrupted: deleting the federation from the cluster without fetching a record; to exit now, interrupt \
                 again, and then run `{}`",
                self.deletion
            ));
            Ok(End::Without(CommandError::reported(Exit::Unknown)))
        });
        ended.inspect_err(|_| {
            let fetching = self.cluster.fetching(self.federation);
            note(format_args!(
                "the federation stays in the cluster: after the run, fetch its record with `{fetching}`, and then delete \
                 the federation with `{}`",
                self.deletion
            ));
        })
    }

    /// Stores the record in `dir`. Returns an error inside the result if the record is lost.
    ///
    /// # Errors
    ///
    /// Fails if the record cannot be fetched now. The federation must then stay in the cluster, and the record with it.
    async fn fetch(
        &self,
        supervisor: &Supervisor,
        dir: &Path,
    ) -> Result<Result<(), CommandError>, CommandError> {
        let transfer = async || unpack(self.cluster, supervisor, self.federation, dir).await;
        match unless_interrupted(self.interrupted, retried(CHECK_EVERY, transfer)).await {
            Err(error) if !is_record_lost(&error) => {
                let fetching = self.cluster.fetching(self.federation);
                note(format_args!(
                    "the federation stays in the cluster: fetch its record with `{fetching}`, and then delete the \
                     federation with `{}`",
                    self.deletion
                ));
                Err(error)
            }
            fetched => Ok(fetched.map_err(without_verdict)),
        }
    }

    /// Deletes the federation, unless its run has finished and the operator is to delete it later.
    async fn delete(&self, has_finished: bool) -> Result<(), CommandError> {
        let Created { cluster, federation, interrupted, deletion } = self;
        if let Some(seconds) = expires_after(&federation.spec).filter(|_| has_finished) {
            note(format_args!(
                "the federation stays in the cluster until the operator deletes it, {seconds} s after the end of the run; \
                 to delete it earlier, use `{deletion}`"
            ));
            return Ok(());
        }
        if has_finished {
            // Otherwise, neither the operator's metrics nor its events would contain the verdict.
            tokio::select! {
                () = until_reported(cluster, federation, CHECK_EVERY) => {}
                () = until_interrupted(interrupted) => {}
            }
        }
        remove(cluster, federation, interrupted, REMOVED_WITHIN).await.inspect_err(|_| {
            note(format_args!("the federation is still in the cluster; delete it with `{deletion}`"));
        })
    }
}

/// Returns the error for a run that has no verdict because its record is lost.
fn without_verdict(lost: CommandError) -> CommandError {
    CommandError { exit: Exit::Unknown, ..lost }
}

/// Deletes a federation. Gives up if some of its objects still exist after `limit`, for example because another program
/// has a finalizer on them, or if the user interrupts the deletion.
async fn remove(
    cluster: &KubernetesCluster,
    federation: &FederationObject,
    interrupted: &AtomicBool,
    limit: Duration,
) -> Result<(), CommandError> {
    let is_ending = interrupted.load(Ordering::Relaxed);
    let deleted = retried(CHECK_EVERY, async || cluster.delete(federation).await);
    tokio::select! {
        deleted = tokio::time::timeout(limit, deleted) => deleted.unwrap_or_else(|_| {
            let description = cluster.description(&format!("federation/{}", federation.name_any()));
            Err(CommandError::machine(format!(
                "the deletion of the federation takes longer than {limit:?}; the message at the end of `{description}` \
                 states what it waits for"
            )))
        }),
        () = until_interrupted(interrupted), if !is_ending => {
            Err(CommandError::machine("interrupted while deleting the federation"))
        }
    }
}

/// Returns the outcome of following a run, or an error if the run exceeds the user's time limit.
async fn within(
    timeout: Option<quantity::Duration>,
    follow: impl Future<Output = Result<End, CommandError>>,
) -> Result<End, CommandError> {
    let Some(limit) = timeout else { return follow.await };
    let waited = tokio::time::timeout(limit.0.into(), follow).await;
    waited.unwrap_or_else(|_| {
        Err(CommandError::machine(format!("the run did not end within {limit} (`--timeout`)")))
    })
}

/// A run that is being followed.
struct Watch<'a> {
    cluster: &'a KubernetesCluster,
    federation: &'a FederationObject,
    screen: Screen,
    /// Time between two checks.
    check_every: Duration,
    /// Number of the newest event that was shown.
    told: u64,
    /// The last message that was shown.
    said: String,
}

/// The state of a run as observed so far.
#[derive(Default)]
struct Seen {
    supervisor: Option<Supervisor>,
    /// Number of consecutive checks without an answer from the supervisor that has the record.
    silent: u32,
    /// Whether the run has ended, but its supervisor's last answer shows that the record is lost.
    is_lost: bool,
    checks: u32,
}

/// Returns the status of a federation; `None` if it was deleted or is being deleted. Its messages may quote the
/// supervisor.
async fn status_of(
    cluster: &KubernetesCluster,
    federation: &FederationObject,
) -> Result<Option<FederationStatus>, ClusterError> {
    let there = cluster.find_outline(&federation.name_any()).await?;
    let there = there.filter(|it| it.metadata.uid == federation.metadata.uid);
    let there = there.filter(|it| it.metadata.deletion_timestamp.is_none());
    Ok(there.map(|it| {
        let mut status = it.status.unwrap_or_default();
        let conditions = status.conditions.iter_mut().map(|it| &mut it.message);
        status.message.iter_mut().chain(conditions).for_each(|it| *it = printable(it));
        status
    }))
}

/// Waits until the operator has reported the end of a run, but not for long: there may be no operator.
async fn until_reported(cluster: &KubernetesCluster, federation: &FederationObject, check_every: Duration) {
    for _ in 0..REPORT_LIMIT {
        match status_of(cluster, federation).await {
            Ok(Some(status)) if status.phase != Phase::Completed => sleep(check_every).await,
            _ => return,
        }
    }
}

impl Watch<'_> {
    /// Shows the run until it has ended. Retries with increasing delays if the API server cannot be reached.
    async fn follow(&mut self) -> Result<End, CommandError> {
        let mut seen = Seen::default();
        let mut failures = 0;
        loop {
            let pause = match self.check(&mut seen).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => {
                    failures = 0;
                    1
                }
                Err(ClusterError { command_error, is_temporary: true }) => {
                    if failures == 0 {
                        self.screen.show_event(None, &format!("{}; retrying", command_error.report));
                    }
                    failures += 1;
                    2_u32.saturating_pow(failures - 1).min(MAX_DELAY)
                }
                Err(ClusterError { command_error, .. }) => return Err(command_error),
            };
            sleep(self.check_every * pause).await;
        }
    }

    async fn check(&mut self, seen: &mut Seen) -> Result<Option<End>, ClusterError> {
        let Some(status) = status_of(self.cluster, self.federation).await? else {
            let message = "another client deleted the federation from the cluster, and no record was fetched";
            return Ok(Some(End::Without(CommandError::machine(message))));
        };
        seen.checks += 1;
        if status.phase == Phase::Rejected {
            let why = status.message.unwrap_or_default();
            let command_error = CommandError::input(miette!("the operator rejected the federation: {why}"));
            return Ok(Some(End::Without(command_error)));
        }
        // A run that has begun continues without the operator.
        let has_begun = status.phase > Phase::Rejected;
        let unreadable = status.condition(condition::RECONCILED).filter(|it| it.reason == "Unreadable");
        if let Some(error) = unreadable.filter(|_| !has_begun) {
            let command_error = CommandError::input(miette!("{}", error.message));
            return Ok(Some(End::Without(command_error)));
        }
        if let Some(lost) = status.condition(condition::COMPLETED).filter(|it| it.reason == "RecordLost") {
            return Ok(Some(End::Lost(CommandError::machine(&lost.message))));
        }
        if let Some(why) = status.why_not_started() {
            return Ok(Some(End::Without(CommandError::machine(why))));
        }
        let is_over_there = status.phase == Phase::Completed;
        if seen.supervisor.is_none() && (is_over_there || status.holds(condition::SUPERVISED)) {
            seen.supervisor = Some(self.cluster.supervisor(self.federation).await?);
        }
        let Some(supervisor) = &seen.supervisor else {
            self.say(match status.message.as_deref() {
                Some(message) => message,
                None if seen.checks < NOT_RECONCILED => "waiting for the operator",
                None => {
                    "waiting for the operator, which has not reconciled the federation yet; check with `kubectl \
                     faultline doctor` whether it is running and manages this namespace"
                }
            });
            return Ok(None);
        };
        match supervisor.status(self.told).await {
            Ok(said) if is_over(&said) => {
                self.show(&said, &status);
                return Ok(seen.supervisor.take().map(|it| End::Over(Box::new(it))));
            }
            // The supervisor judges the record again, or is another one, which does not have it.
            Ok(said) if is_over_there => {
                seen.silent += 1;
                seen.is_lost = has_no_record(&said);
            }
            Ok(said) => {
                seen.silent = 0;
                self.show(&said, &status);
            }
            Err(error) if error.is_forbidden() => {
                return Err(unreachable(error, self.cluster, self.federation).into());
            }
            // The supervisor may soon run in another pod.
            Err(error) => {
                seen.silent += 1;
                if seen.silent == SILENT_REPORT {
                    self.screen.show_event(None, &format!("{error}; retrying"));
                }
            }
        }
        if is_over_there && seen.silent >= SILENT_LIMIT {
            if seen.is_lost {
                return Ok(Some(End::Lost(without_verdict(record_lost(self.federation)))));
            }
            let message = "the run has ended, but its supervisor does not send the record";
            return Err(CommandError::machine(message).into());
        }
        Ok(None)
    }

    fn say(&mut self, message: &str) {
        if self.said != message {
            self.said = message.to_owned();
            self.screen.show_event(None, message);
        }
        if self.screen.is_due() {
            self.screen.show(None, "starting", &[]);
        }
    }

    fn show(&mut self, said: &RunStatus, resource: &FederationStatus) {
        for event in said.events.iter().filter(|it| it.number > self.told) {
            self.screen.show_event(event.at_seconds, &event.text);
        }
        self.told = said.events.last().map_or(self.told, |it| it.number);
        let state = match said.phase {
            supervision::RunPhase::Gathering => {
                self.say(resource.message.as_deref().unwrap_or("waiting for processes"));
                "starting"
            }
            supervision::RunPhase::Measuring => "measuring the links",
            supervision::RunPhase::Running => "running",
            supervision::RunPhase::Paused => "paused",
            supervision::RunPhase::Judging => "judging",
            supervision::RunPhase::Completed | supervision::RunPhase::Failed => "ended",
        };
        if self.screen.is_due() {
            let rows: Vec<Row> = said.clusters.iter().map(row).collect();
            self.screen.show(said.elapsed_seconds, state, &rows);
        }
    }
}

fn row(cluster: &supervision::ClusterReport) -> Row {
    Row {
        name: cluster.name.clone(),
        processes: cluster.processes,
        up: cluster.up,
        checkpoints: cluster.checkpoints,
        forced: cluster.forced,
        done: cluster.steps_done,
        total: cluster.steps,
    }
}

/// Determines the namespace of the federation from the arguments and the file.
fn place(asked: &KubernetesArguments, federation: &Federation) -> Result<KubernetesArguments, CommandError> {
    let mut asked = asked.clone();
    match (&asked.namespace, &federation.metadata.namespace) {
        (Some(asked), Some(stated)) if asked != stated => Err(CommandError::input(miette!(
            help = "omit one of the two, or make them agree",
            "`--namespace` is `{asked}`, but the file's metadata.namespace is `{stated}`"
        ))),
        (None, Some(stated)) => {
            asked.namespace = Some(stated.clone());
            Ok(asked)
        }
        _ => Ok(asked),
    }
}

fn name(federation: &Federation) -> String {
    federation.metadata.name.clone().unwrap_or_else(|| "federation".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::arguments::{Format, OutputArguments};
    use crate::fetch::fetch_from;

    #[test]
    fn a_file_may_name_its_namespace() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let mut federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        let asked = |namespace: Option<&str>| KubernetesArguments {
            namespace: namespace.map(str::to_owned),
            ..KubernetesArguments::default()
        };
        let chosen = |asked, federation: &Federation| place(&asked, federation).map(|it| it.namespace);
        assert_eq!(chosen(asked(None), &federation).unwrap(), None);
        federation.metadata.namespace = Some("other".to_owned());
        assert_eq!(chosen(asked(None), &federation).unwrap().as_deref(), Some("other"));
        assert_eq!(chosen(asked(Some("other")), &federation).unwrap().as_deref(), Some("other"));
        assert!(chosen(asked(Some("mine")), &federation).is_err());
    }

    /// Time limit of each request in a test.
    const DEADLINE: Duration = Duration::from_millis(100);

    /// An answer of the API server.
    #[derive(Clone)]
    pub(crate) enum Answer {
        Object(serde_json::Value),
        /// A log.
        Text(String),
        /// An error with this status and reason.
        Error(u16, &'static str),
        /// The connection fails.
        Broken,
        /// There is no answer.
        Never,
    }

    /// Returns a cluster whose API server answers each request, given as its method and the last segment of its path.
    pub(crate) fn serve(
        answer: impl Fn(&http::Method, &str, serde_json::Value) -> Answer + Send + Sync + 'static,
    ) -> KubernetesCluster {
        serve_uris(move |method, uri, body| {
            answer(method, uri.path().rsplit('/').next().unwrap_or_default(), body)
        })
    }

    /// Works like [`serve`], but the API server knows the whole URI of each request.
    pub(crate) fn serve_uris(
        answer: impl Fn(&http::Method, &http::Uri, serde_json::Value) -> Answer + Send + Sync + 'static,
    ) -> KubernetesCluster {
        let answer = Arc::new(answer);
        let service = service_fn(move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("a body");
                let body = serde_json::from_slice(&body).unwrap_or_default();
                match answer(&head.method, &head.uri, body) {
                    Answer::Text(text) => Ok(Response::new(Body::from(text.into_bytes()))),
                    Answer::Object(object) => Ok(Response::new(Body::from(object.to_string().into_bytes()))),
                    Answer::Broken => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                    Answer::Never => std::future::pending().await,
                    Answer::Error(code, reason) => {
                        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                            "message": "no", "reason": reason, "code": code });
                        let body = Body::from(status.to_string().into_bytes());
                        Ok(Response::builder().status(code).body(body).expect("a response"))
                    }
                }
            }
        });
        KubernetesCluster::at(kube::Client::new(service, "default"), "default", DEADLINE)
    }

    /// Returns a cluster, and a counter of the requests to it. The cluster's API server gives these answers
    /// in turn, and then repeats the last one.
    fn cluster(answers: Vec<Answer>) -> (KubernetesCluster, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answer = move |_: &http::Method, _: &str, _| {
            let number = counted.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
            answers[number].clone()
        };
        (serve(answer), asked)
    }

    /// Returns the outcome of following a run on this cluster.
    async fn followed(
        cluster: &KubernetesCluster,
        timeout: Option<quantity::Duration>,
    ) -> Result<End, CommandError> {
        let federation: FederationObject = serde_json::from_value(resource(json!({}))).expect("a federation");
        let quiet = OutputArguments { format: Format::Text, quiet: true, verbose: 0 };
        let mut watch = Watch {
            cluster,
            federation: &federation,
            screen: Screen::new(quiet, true, String::new()),
            check_every: Duration::from_millis(1),
            told: 0,
            said: String::new(),
        };
        within(timeout, watch.follow()).await
    }

    pub(crate) fn resource(status: serde_json::Value) -> serde_json::Value {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        let mut object = serde_json::to_value(federation).unwrap();
        object["metadata"]["uid"] = json!("the uid");
        object["status"] = status;
        object
    }

    /// Returns a federation with a change that the API server admits, but that neither this program nor the operator
    /// can read.
    pub(crate) fn unreadable(status: serde_json::Value) -> serde_json::Value {
        let mut changed = resource(status);
        changed["spec"]["links"]["between"]["loss"] = json!("60%");
        assert!(serde_json::from_value::<FederationObject>(changed.clone()).is_err());
        changed
    }

    /// Returns a federation of which a pod could not start in time.
    pub(crate) fn not_started() -> serde_json::Value {
        resource(json!({
            "phase": "Completed",
            "conditions": [{
                "type": "Completed", "status": "True", "reason": "PodsNotStarted", "message": "no image for paris-0",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }))
    }

    #[tokio::test]
    async fn a_federation_whose_pods_could_not_start_ends_the_run_without_a_verdict() {
        let (cluster, asked) = cluster(vec![Answer::Object(not_started())]);
        let Ok(End::Without(command_error)) = followed(&cluster, None).await else {
            panic!("there is no record")
        };
        assert_eq!(command_error.report.to_string(), "no image for paris-0");
        assert_eq!((command_error.exit, asked.load(Ordering::Relaxed)), (Exit::Unknown, 1));
        let error = fetch_from(&cluster, "quickstart", None, &AtomicBool::new(false)).await.unwrap_err();
        assert!(error.report.to_string().ends_with("it never ran: no image for paris-0"), "{}", error.report);
    }

    #[tokio::test]
    async fn an_interrupt_is_reported_once() {
        let (cluster, _) = cluster(vec![Answer::Object(resource(json!({ "phase": "Starting" })))]);
        let (federation, interrupted) = (federation(), AtomicBool::new(true));
        let deletion = cluster.deletion(&federation);
        let created =
            Created { cluster: &cluster, federation: &federation, interrupted: &interrupted, deletion };
        let quiet = OutputArguments { format: Format::Text, quiet: true, verbose: 0 };
        let screen = Screen::new(quiet, true, String::new());
        let Ok(End::Without(error)) = created.follow(screen, None, None).await else {
            panic!("it was interrupted")
        };
        assert_eq!(error.exit, Exit::Unknown);
        assert!(error.is_reported(), "{:?}", error.report);
    }

    fn lost() -> serde_json::Value {
        resource(json!({
            "phase": "Completed",
            "conditions": [{
                "type": "Completed", "status": "True", "reason": "RecordLost", "message": "the record is lost",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }))
    }

    #[tokio::test]
    async fn a_temporarily_unreachable_api_server_does_not_end_the_run() {
        let starting = resource(json!({ "phase": "Starting", "message": "0 of 7 pods are running" }));
        let broken = || Answer::Broken;
        let answers = vec![
            Answer::Object(starting),
            broken(),
            Answer::Error(503, "ServiceUnavailable"),
            Answer::Never,
            broken(),
            Answer::Object(lost()),
        ];
        let (cluster, asked) = cluster(answers);
        let end = followed(&cluster, None).await;
        let Ok(End::Lost(command_error)) = end else { panic!("the run has ended without a record") };
        assert_eq!(command_error.report.to_string(), "the record is lost");
        assert_eq!(asked.load(Ordering::Relaxed), 6);
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_read_does_not_end_the_run() {
        let changed = unreadable(json!({ "phase": "Running", "conditions": [{
            "type": "Reconciled", "status": "False", "reason": "Unreadable", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] }));
        let (cluster, asked) = cluster(vec![Answer::Object(changed), Answer::Object(lost())]);
        let end = followed(&cluster, None).await;
        let Ok(End::Lost(command_error)) = end else { panic!("the run has ended without a record") };
        assert_eq!(command_error.report.to_string(), "the record is lost");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn control_characters_in_messages_are_replaced() {
        let mut status = lost();
        status["status"]["conditions"][0]["message"] = json!("lost\u{1b}[2J\n");
        let rejected = resource(json!({ "phase": "Rejected", "message": "no\u{1b}c" }));
        for (status, message) in [
            (status, "lost\u{fffd}[2J\u{fffd}"),
            (rejected, "the operator rejected the federation: no\u{fffd}c"),
        ] {
            let (cluster, _) = cluster(vec![Answer::Object(status)]);
            let Ok(End::Lost(command_error) | End::Without(command_error)) = followed(&cluster, None).await
            else {
                panic!("the run has ended without a record")
            };
            assert_eq!(command_error.report.to_string(), message);
        }
    }

    /// Another program's finalizer holds one of the federation's objects.
    #[tokio::test]
    async fn a_deletion_that_does_not_end_is_given_up() {
        let (cluster, _) = cluster(vec![Answer::Object(resource(json!({})))]);
        let removed = async |interrupted, limit| {
            let interrupted = AtomicBool::new(interrupted);
            let error = remove(&cluster, &federation(), &interrupted, Duration::from_millis(limit)).await;
            error.unwrap_err().report.to_string()
        };
        let told = removed(false, 50).await;
        assert!(told.contains("takes longer than 50ms"), "{told}");
        let told = removed(true, 50).await;
        assert!(
            told.contains("takes longer than 50ms"),
            "the federation is deleted after an interrupt: {told}"
        );
        let interrupted = AtomicBool::new(false);
        let federation = federation();
        let removed = remove(&cluster, &federation, &interrupted, Duration::from_secs(600));
        let (removed, ()) = tokio::join!(removed, async { interrupted.store(true, Ordering::Relaxed) });
        assert!(removed.unwrap_err().report.to_string().contains("interrupted"));
    }

    #[tokio::test]
    async fn commands_that_are_printed_name_the_cluster_and_the_namespace() {
        let (cluster, _) = cluster(vec![Answer::Object(resource(json!({})))]);
        let arguments = "--context here --namespace default";
        let error =
            remove(&cluster, &federation(), &AtomicBool::new(false), Duration::ZERO).await.unwrap_err();
        let described = format!("`kubectl describe federation/quickstart {arguments}`");
        assert!(error.report.to_string().contains(&described), "{}", error.report);
        for command in [
            cluster.deletion(&federation()),
            cluster.fetching(&federation()),
            cluster.description("pod/quickstart-supervisor-0"),
            cluster.waiting("quickstart"),
        ] {
            assert!(command.contains(arguments), "{command}");
        }
    }

    #[test]
    fn a_run_whose_record_is_lost_has_no_verdict() {
        let lost = record_lost(&federation());
        assert!(is_record_lost(&lost));
        assert_eq!(without_verdict(lost).exit, Exit::Unknown);
        assert!(!is_record_lost(&CommandError::machine("no answer")));
    }

    /// A definition of another version may drop fields, and a webhook may change them.
    #[tokio::test]
    async fn a_federation_that_the_cluster_changes_is_deleted_again() {
        let wanted = federation();
        let deleted = Arc::new(AtomicUsize::new(0));
        let counted = deleted.clone();
        let drops_faults = serve(move |method, _, mut body| match *method {
            http::Method::POST => {
                body["spec"].as_object_mut().unwrap().remove("faults");
                body["metadata"]["uid"] = json!("the uid");
                Answer::Object(body)
            }
            http::Method::DELETE => {
                assert_eq!(body["preconditions"]["uid"], "the uid");
                counted.fetch_add(1, Ordering::Relaxed);
                Answer::Object(
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" }),
                )
            }
            _ => {
                let mut other = resource(json!({}));
                other["metadata"]["uid"] = json!("another");
                Answer::Object(other)
            }
        });
        let error = drops_faults.create(&wanted, "0").await.unwrap_err().command_error;
        assert_eq!((error.exit, deleted.load(Ordering::Relaxed)), (Exit::BadInput, 1));
        assert!(error.report.to_string().contains("`spec.faults`"), "{}", error.report);
        let keeps_all = serve(|_, _, body| Answer::Object(body));
        assert_eq!(keeps_all.create(&wanted, "0").await.unwrap().spec, wanted.spec);
    }

    #[tokio::test]
    async fn forbidden_requests_are_not_retried() {
        let (cluster, asked) = cluster(vec![Answer::Error(403, "Forbidden")]);
        assert!(followed(&cluster, None).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn the_timeout_ends_waiting_for_pods_that_never_start() {
        let (cluster, _) =
            cluster(vec![Answer::Object(resource(json!({ "phase": "Starting", "message": "no room" })))]);
        let Err(command_error) = followed(&cluster, "50ms".parse().ok()).await else {
            panic!("the run has not ended")
        };
        let told = command_error.report.to_string();
        assert!(told.contains("50ms") && told.contains("--timeout"), "{told}");
    }

    fn federation() -> FederationObject {
        serde_json::from_value(resource(json!({}))).expect("a federation")
    }

    #[tokio::test]
    async fn a_silent_supervisor_does_not_hide_the_end_of_the_run() {
        let checks = AtomicUsize::new(0);
        let forwards = Arc::new(AtomicUsize::new(0));
        let forwarded = forwards.clone();
        let supervised = resource(json!({ "phase": "Running", "conditions": [{
            "type": "Supervised", "status": "True", "reason": "Supervised", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] }));
        let cluster = serve(move |_, last, _| match last {
            "quickstart" if checks.fetch_add(1, Ordering::Relaxed) < 2 => Answer::Object(supervised.clone()),
            "quickstart" => Answer::Object(lost()),
            "quickstart-reader" => {
                let token = k8s_openapi::ByteString("00ff".into());
                Answer::Object(json!({ "metadata": { "name": last }, "data": { "token": token } }))
            }
            "portforward" => {
                forwarded.fetch_add(1, Ordering::Relaxed);
                Answer::Never
            }
            other => panic!("the program requested {other}"),
        });
        let Ok(End::Lost(command_error)) = followed(&cluster, None).await else {
            panic!("the run has ended without a record")
        };
        assert_eq!(command_error.report.to_string(), "the record is lost");
        assert_eq!(forwards.load(Ordering::Relaxed), 2, "each request has a deadline");
    }

    #[tokio::test]
    async fn a_federation_whose_creation_was_not_confirmed_is_not_created_again() {
        for is_ours in [true, false] {
            let created = std::sync::Mutex::new(None);
            let cluster = serve(move |method, _, body| {
                let mut created = created.lock().unwrap();
                match (method.as_str(), &*created) {
                    ("POST", None) => {
                        *created = Some(body);
                        Answer::Broken
                    }
                    ("POST", Some(_)) => Answer::Error(409, "AlreadyExists"),
                    (_, Some(found)) => {
                        let mut found = found.clone();
                        found["metadata"]["uid"] = json!("the uid");
                        if !is_ours {
                            found["metadata"]["annotations"] =
                                json!({ "faultline.dev/invocation": "another" });
                        }
                        Answer::Object(found)
                    }
                    _ => panic!("the federation was requested before its creation"),
                }
            });
            let wanted = FederationObject::new("quickstart", federation().spec);
            let made = retried(Duration::from_millis(1), async || cluster.create(&wanted, "one").await).await;
            match made {
                Ok(made) => assert!(is_ours && made.metadata.uid.as_deref() == Some("the uid")),
                Err(error) => assert!(!is_ours && error.report.to_string().contains("already exists")),
            }
        }
    }

    /// Otherwise, the operator's metrics might never contain the verdict.
    #[tokio::test]
    async fn the_operator_has_time_to_report_the_end_of_a_run() {
        let phase = |phase: &str| Answer::Object(resource(json!({ "phase": phase })));
        for (answers, expected) in [
            (vec![phase("Running"), phase("Running"), phase("Completed")], 3),
            (vec![phase("Running")], REPORT_LIMIT as usize),
            (vec![Answer::Error(403, "Forbidden")], 1),
        ] {
            let (cluster, asked) = cluster(answers);
            let federation: FederationObject =
                serde_json::from_value(resource(json!({}))).expect("a federation");
            until_reported(&cluster, &federation, Duration::from_millis(1)).await;
            assert_eq!(asked.load(Ordering::Relaxed), expected);
        }
    }

    #[tokio::test]
    async fn an_action_is_retried_only_after_temporary_failures() {
        let (cluster, asked) = cluster(vec![Answer::Broken, Answer::Never, Answer::Object(lost())]);
        let find = async || cluster.find("quickstart").await;
        assert!(retried(Duration::from_millis(1), find).await.is_ok_and(|it| it.is_some()));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        let (cluster, asked) = self::cluster(vec![Answer::Error(403, "Forbidden")]);
        assert!(retried(Duration::from_millis(1), async || cluster.find("quickstart").await).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_missing_secret_is_named_with_the_remedy() {
        let empty = json!({ "metadata": { "name": "quickstart-reader" } });
        for (answer, problem) in [
            (Answer::Error(404, "NotFound"), "does not exist"),
            (Answer::Object(empty), "does not contain a token"),
        ] {
            let (cluster, _) = cluster(vec![answer]);
            let Err(error) = cluster.supervisor(&federation()).await else { panic!("there is no token") };
            assert!(!error.is_temporary);
            let report = error.command_error.report;
            let told = report.to_string();
            assert!(told.contains("`quickstart-reader`") && told.contains(problem), "{told}");
            let help = report.help().expect("a remedy").to_string();
            assert!(help.contains("the operator creates this secret"), "{help}");
        }
    }
}
