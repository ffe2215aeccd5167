//! Creates the job of a campaign, and collects the results of its pods until it ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use faultline_console::campaign::{CAMPAIGN, Campaign, WorkerArguments, sealed};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::output::{note, read_file, replace};
use faultline_console::progress::{Progress, last_shown};
use faultline_trace::printable;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt};
use miette::miette;
use tokio::time::sleep;

use super::objects::{self, CAMPAIGNS};
use crate::arguments::PerformArguments;
use crate::cluster::{ClusterError, KubernetesCluster};
use crate::waiting::{MAX_DELAY, retried};

/// Time between two checks of a job.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Number of checks without a new result after which the program looks for the cause.
const SLOW: u32 = 10;
/// Number of logs that are read in parallel.
const AT_A_TIME: usize = 16;
/// Maximum number of pods that the API server returns at once.
const PAGE: u32 = 500;
/// Maximum length of a line from the log of a failed pod.
const WIDTH: usize = 100;
/// Number of checks between two looks at the progress of unfinished parts, while no part ends.
const LOOK_EVERY: u32 = 30;
/// For how long, in seconds, the log of a pod is read at each look: longer than the time between two of them.
const LOOK_BACK: i64 = 40;
/// Number of pods whose progress is read. The others are assumed to have done as much.
const LOOKED_AT: usize = 50;
/// How a pod fails whose command is invalid, for example because its image has another version.
const BAD_INPUT: &str = "exit status 2";
/// How often parts whose logs are lost are performed again.
const ROUNDS: u32 = 3;
/// Number of checks within which a deleted job is gone.
const REMOVED_WITHIN: u32 = 120;
/// Number of checks after which a pod that should end is taken to be on a node that does not respond. Longer than the
/// time that a pod has to end.
const STUCK: u32 = 45;

/// The jobs in a namespace.
pub(super) struct Jobs<'a> {
    cluster: &'a KubernetesCluster,
    jobs: Api<Job>,
    maps: Api<ConfigMap>,
    pods: Api<Pod>,
    events: Api<Event>,
    check_every: Duration,
}

/// Why the pods of a job do not start.
pub(super) struct Delay {
    pub(super) why: String,
    /// The remedy, if waiting is useless.
    remedy: Option<&'static str>,
}

/// A campaign that is being performed.
struct Performance<'a> {
    campaign: &'a Campaign,
    dir: &'a Path,
    progress: Progress,
    /// The number of parts with results.
    done: u32,
    /// The number of runs that pods have completed in unfinished parts, as far as it was read.
    running: BTreeMap<u32, u64>,
    /// The number of unfinished parts whose progress is not read.
    unread: u64,
    /// The number of checks since all pods should have ended, although parts are missing.
    stuck: u32,
    /// Whether a violation has ended the campaign early.
    has_ended: bool,
    /// Whether a violation ends the campaign early.
    first_found: bool,
    /// The last failure of each part.
    failures: BTreeMap<u32, Failure>,
    /// The last reason for a delay that was shown.
    told: String,
}

/// The failure of a pod.
struct Failure {
    /// The exit status or the reason, such as `OOMKilled`.
    how: String,
    /// The last lines of its log.
    last: String,
}

impl<'a> Jobs<'a> {
    pub(super) fn on(cluster: &'a KubernetesCluster) -> Jobs<'a> {
        let (client, namespace) = (cluster.client(), cluster.namespace());
        Jobs {
            cluster,
            jobs: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client, namespace),
            check_every: CHECK_EVERY,
        }
    }

    /// Performs all parts whose results are not in `dir` yet. If a job of this campaign exists, continues it.
    pub(super) async fn perform(
        &self,
        campaign: &Campaign,
        arguments: &PerformArguments,
    ) -> Result<(), CommandError> {
        let PerformArguments { dir, workers: on, quiet, first_found } = arguments;
        let missing = || (1..=campaign.parts).filter(|it| !Campaign::results(dir, *it).exists());
        let done = campaign.parts - missing().count() as u32;
        let name = campaign.name();
        let progress = Progress::counting(runs_of(campaign, done), campaign.runs).unless_quiet(*quiet);
        let known = (1..=campaign.parts).filter_map(|it| read_file(&Campaign::results(dir, it)).ok());
        let mut performance = Performance {
            campaign,
            dir,
            progress,
            done,
            running: BTreeMap::new(),
            unread: 0,
            stuck: 0,
            has_ended: *first_found && { known }.any(|it| has_violation(&it)),
            first_found: *first_found,
            failures: BTreeMap::new(),
            told: String::new(),
        };
        for _ in 0..=ROUNDS {
            let missing: Vec<u32> = missing().collect();
            if missing.is_empty() || performance.has_ended {
                return retried(self.check_every, async || self.delete(&name).await).await;
            }
            let started = async || self.started(&name, dir, &missing, on).await;
            let numbers = retried(self.check_every, started).await?;
            let followed = self.follow(&mut performance, &name, &numbers).await;
            performance.progress.hide();
            // The results of a failed job are in the directory. With other options, its parts may succeed.
            let deleted = retried(self.check_every, async || self.delete(&name).await).await;
            followed.and(deleted)?;
        }
        Err(CommandError::machine_with(
            format!("the logs of {} parts were lost or incomplete several times", missing().count()),
            "use more `--parts`, so that each log is smaller than the limit of the kubelet (10 MiB by default)",
        ))
    }

    /// Returns the numbers of the parts that the pods of the job perform, by index. Creates the job unless it exists.
    async fn started(
        &self,
        name: &str,
        dir: &Path,
        missing: &[u32],
        on: &WorkerArguments,
    ) -> Result<Vec<u32>, ClusterError> {
        if let Some(job) = self.get(name).await? {
            let map = self.cluster.answered(self.maps.get_opt(name)).await;
            let map = map.map_err(|it| self.cluster.denied("get", "configmaps", &it))?;
            let numbers = map.and_then(|it| objects::numbers(&job, &it));
            if let Some(numbers) = numbers.filter(|_| job.metadata.deletion_timestamp.is_none()) {
                return Ok(numbers);
            }
            // It is being deleted, or the program that created it ended before it had created the ConfigMap.
            self.delete(name).await?;
        }
        let job = objects::job(name, missing.len(), on);
        objects::description(&job, dir, missing)?;
        let job = self.cluster.answered(self.jobs.create(&PostParams::default(), &job)).await;
        let job = job.map_err(|it| self.refused("jobs", &it))?;
        let map = objects::description(&job, dir, missing)?;
        let created = self.cluster.answered(self.maps.create(&PostParams::default(), &map)).await;
        if let Err(error) = created {
            let refused = self.refused("configmaps", &error);
            // Otherwise, its pods would wait for the ConfigMap.
            self.delete(name).await?;
            return Err(refused);
        }
        Ok(missing.to_vec())
    }

    /// Returns the reason why an object could not be created.
    fn refused(&self, what: &str, error: &kube::Error) -> ClusterError {
        match error {
            kube::Error::Api(status) if status.is_invalid() => {
                let help =
                    "change the option that the message refers to: `--image`, `--worker-cpu` or `--queue`";
                CommandError::input(miette!(
                    help = help,
                    "the API server rejected the campaign: {}",
                    status.message
                ))
                .into()
            }
            // An object of an earlier job is about to be deleted.
            kube::Error::Api(status) if status.is_already_exists() => ClusterError {
                command_error: CommandError::machine("an earlier campaign is still being deleted"),
                is_temporary: true,
            },
            error => self.cluster.denied("create", what, error),
        }
    }

    async fn get(&self, name: &str) -> Result<Option<Job>, ClusterError> {
        let job = self.cluster.answered(self.jobs.get_opt(name)).await;
        job.map_err(|it| self.cluster.denied("get", "jobs", &it))
    }

    /// Returns a job that must exist, and its campaign, if it can be read.
    pub(super) async fn existing(&self, name: &str) -> Result<(Job, Option<Campaign>), ClusterError> {
        let job = self.get(name).await?.ok_or_else(|| {
            let help = "list campaigns with `kubectl faultline campaign list`, or specify a namespace with `--namespace`";
            let namespace = self.cluster.namespace();
            CommandError::input(miette!(
                help = help,
                "there is no campaign `{name}` in the namespace `{namespace}`"
            ))
        })?;
        let map = self.cluster.answered(self.maps.get_opt(name)).await;
        let data = map.ok().flatten().and_then(|it| it.data?.remove(CAMPAIGN));
        Ok((job, data.and_then(|it| serde_json::from_str(&it).ok())))
    }

    /// Returns the jobs of all campaigns.
    pub(super) async fn all(&self) -> Result<Vec<Job>, ClusterError> {
        let all = self.cluster.answered(self.jobs.list(&ListParams::default().labels(CAMPAIGNS))).await;
        Ok(all.map_err(|it| self.cluster.denied("list", "jobs", &it))?.items)
    }

    /// Deletes a job with its pods and its ConfigMap, and waits until they are deleted.
    pub(super) async fn delete(&self, name: &str) -> Result<(), ClusterError> {
        let with_pods = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        match self.cluster.answered(self.jobs.delete(name, &with_pods)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => return Err(self.cluster.denied("delete", "jobs", &error)),
        }
        for check in 0..REMOVED_WITHIN {
            if self.get(name).await?.is_none() {
                return Ok(());
            }
            if check == STUCK {
                self.force_deletion(name).await?;
            }
            sleep(self.check_every).await;
        }
        Err(CommandError::machine(format!("the deletion of the job `{name}` takes longer than two minutes"))
            .into())
    }

    /// Deletes the pods of a job although their nodes do not confirm that they have ended.
    async fn force_deletion(&self, name: &str) -> Result<(), ClusterError> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let pods = self.cluster.answered(self.pods.list(&of_job)).await;
        for pod in pods.map_err(|it| self.cluster.denied("list", "pods", &it))?.items {
            let forced = DeleteParams::default().grace_period(0);
            match self.cluster.answered(self.pods.delete(&pod.name_any(), &forced)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(self.cluster.denied("delete", "pods", &error)),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Collects results until the job has ended. Retries with increasing delays if the API server cannot be reached.
    async fn follow(
        &self,
        performance: &mut Performance<'_>,
        name: &str,
        numbers: &[u32],
    ) -> Result<(), CommandError> {
        let (mut failures, mut idle) = (0, 0);
        loop {
            let before = performance.done;
            let pause = match self.check(performance, name, numbers, idle).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    failures = 0;
                    idle = if performance.done == before { idle + 1 } else { 0 };
                    1
                }
                Err(ClusterError { command_error, is_temporary: true }) => {
                    if failures == 0 {
                        performance.tell(format!("{}; retrying", command_error.report));
                    }
                    failures += 1;
                    2_u32.saturating_pow(failures - 1).min(MAX_DELAY)
                }
                Err(ClusterError { command_error, .. }) => return Err(command_error),
            };
            performance.progress.reach("", performance.runs());
            sleep(self.check_every * pause).await;
        }
    }

    /// Collects the results of the pods that have ended. Returns whether the job has ended and no result is left, or the
    /// campaign has ended early. `idle` is the number of checks since the last result.
    async fn check(
        &self,
        performance: &mut Performance<'_>,
        name: &str,
        numbers: &[u32],
        idle: u32,
    ) -> Result<bool, ClusterError> {
        // Its pods are listed later, so that none can end in between.
        let job = self.get(name).await?.filter(|it| it.metadata.deletion_timestamp.is_none());
        let job = job.ok_or_else(|| {
            let help = "to continue, run the same command with `--resume`";
            CommandError {
                exit: Exit::Unknown,
                report: miette!(help = help, "the campaign `{name}` was cancelled"),
            }
        })?;
        let ended = self.listed(name, "status.phase!=Pending,status.phase!=Running", PAGE).await?;
        let pods = ended.iter().filter_map(|it| Some((it, number(it, &job, numbers)?)));
        let (succeeded, failed): (Vec<_>, Vec<_>) = pods.partition(|(it, _)| phase(it) == "Succeeded");
        for (pod, number) in failed {
            if let Some(failure) = failure(pod) {
                performance.failures.insert(number, failure);
            }
        }
        let is_last = ended.len() < PAGE as usize;
        let performance_now = &*performance;
        let collected: Vec<Option<bool>> = stream::iter(succeeded)
            .map(|(pod, number)| self.collect(performance_now, pod, number))
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await?;
        performance.done += collected.iter().flatten().count() as u32;
        performance.running.retain(|it, _| !Campaign::results(performance.dir, *it).exists());
        performance.has_ended |= performance.first_found && collected.contains(&Some(true));
        if performance.has_ended {
            return Ok(true);
        }
        if condition(&job, "Failed").is_some() && is_last {
            return Err(performance.failed(&job, numbers).into());
        }
        if condition(&job, "Complete").is_some() && is_last {
            return Ok(true);
        }
        if performance.is_stuck(&job) {
            return Ok(true);
        }
        if idle > 0
            && idle.is_multiple_of(SLOW)
            && let Some(delay) = self.delay(&job).await?
        {
            if let Some(remedy) = delay.remedy {
                return Err(CommandError::input(miette!(help = remedy, "{}", delay.why)).into());
            }
            performance.tell(delay.why);
        }
        if idle % LOOK_EVERY == SLOW {
            self.look(performance, &job, numbers).await?;
        }
        Ok(false)
    }

    /// Reads how many runs the pods of unfinished parts have completed, which they state in their logs.
    async fn look(
        &self,
        performance: &mut Performance<'_>,
        job: &Job,
        numbers: &[u32],
    ) -> Result<(), ClusterError> {
        let pods = self.listed(&job.name_any(), "status.phase=Running", PAGE).await?;
        let pods: Vec<_> = pods.iter().filter_map(|it| Some((it, number(it, job, numbers)?))).collect();
        performance.unread = pods.len().saturating_sub(LOOKED_AT) as u64;
        let recent = LogParams { since_seconds: Some(LOOK_BACK), ..LogParams::default() };
        let recent = &recent;
        let read = |(pod, number): (&Pod, u32)| {
            let name = pod.name_any();
            async move {
                // A pod may have just ended.
                let log = self.cluster.answered(self.pods.logs(&name, recent)).await.ok()?;
                Some((number, last_shown(&log)?))
            }
        };
        let read: Vec<Option<(u32, u64)>> = stream::iter(pods.into_iter().take(LOOKED_AT))
            .map(read)
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        performance.running.extend(read.into_iter().flatten());
        Ok(())
    }

    /// Lists the pods of a job in certain phases.
    async fn listed(&self, name: &str, fields: &str, limit: u32) -> Result<Vec<Pod>, ClusterError> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let pods = self.cluster.answered(self.pods.list(&of_job.fields(fields).limit(limit))).await;
        Ok(pods.map_err(|it| self.cluster.denied("list", "pods", &it))?.items)
    }

    /// Copies the results of a pod to the directory of the campaign, and deletes the pod. If they are new and complete,
    /// returns whether they contain a violation.
    async fn collect(
        &self,
        performance: &Performance<'_>,
        pod: &Pod,
        number: u32,
    ) -> Result<Option<bool>, ClusterError> {
        let Performance { campaign, dir, .. } = performance;
        let (name, path) = (pod.name_any(), Campaign::results(dir, number));
        let is_new = pod.metadata.deletion_timestamp.is_none() && !path.exists();
        let mut violation = None;
        if is_new {
            let results = match self.cluster.answered(self.pods.logs(&name, &LogParams::default())).await {
                Ok(log) => sealed(&log, &campaign.part(number)),
                Err(error @ kube::Error::Api(_)) if !is_forbidden(&error) => None,
                Err(error) => return Err(self.cluster.denied("get", "pods/log", &error)),
            };
            violation = results.as_deref().map(has_violation);
            match results {
                Some(results) => replace(&path, &results)
                    .map_err(|error| CommandError::writing("write", &path, &error, "free some space"))?,
                None => note(format_args!(
                    "the log of part {} is incomplete: it is performed again",
                    campaign.part(number)
                )),
            }
        }
        match self.cluster.answered(self.pods.delete(&name, &DeleteParams::default())).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(self.cluster.denied("delete", "pods", &error)),
            Ok(_) => {}
        }
        Ok(violation)
    }

    /// Returns why the pods of a job do not start, if they do not.
    pub(super) async fn delay(&self, job: &Job) -> Result<Option<Delay>, ClusterError> {
        let name = job.name_any();
        if job.spec.as_ref().is_some_and(|it| it.suspend == Some(true)) {
            let why = "the campaign is suspended until its queue admits it".to_owned();
            return Ok(Some(Delay { why, remedy: None }));
        }
        let pending = self.listed(&name, "status.phase=Pending", PAGE).await?;
        if let Some(delay) = pending.iter().find_map(not_started) {
            return Ok(Some(delay));
        }
        let status = job.status.clone().unwrap_or_default();
        if status.active.unwrap_or(0) > 0 || !pending.is_empty() {
            return Ok(None);
        }
        let of_job = format!("involvedObject.name={name},reason=FailedCreate");
        let events = self.cluster.answered(self.events.list(&ListParams::default().fields(&of_job))).await;
        let events = events.map_err(|it| self.cluster.denied("list", "events", &it))?;
        let newest = events.items.into_iter().max_by_key(|it| it.last_timestamp.clone());
        Ok(newest.and_then(|it| it.message).map(|message| Delay {
            why: format!("the cluster creates no pods: {}", printable(&message)),
            remedy: Some(
                "raise the quota, or use smaller `--worker-cpu`, `--worker-memory` or `--workers`; then run the same \
                 command with `--resume`",
            ),
        }))
    }
}

impl Performance<'_> {
    /// Returns the number of completed runs.
    fn runs(&self) -> u64 {
        let most = self.campaign.runs.div_ceil(u64::from(self.campaign.parts).max(1));
        let running: u64 = self.running.values().map(|it| most.min(*it)).sum();
        let unread = running * self.unread / (self.running.len() as u64).max(1);
        self.campaign.runs.min(runs_of(self.campaign, self.done) + running + unread)
    }

    /// Shows a message unless it was the last one.
    fn tell(&mut self, message: String) {
        if message != self.told {
            self.progress.hide();
            note(&message);
            self.told = message;
        }
    }

    /// Returns whether all pods of a job have been on nodes that do not respond for some time. Their job waits for these
    /// nodes, so their parts must be performed by another one.
    fn is_stuck(&mut self, job: &Job) -> bool {
        let status = job.status.clone().unwrap_or_default();
        let is_waiting = status.active.unwrap_or(0) == 0 && status.terminating.unwrap_or(0) > 0;
        self.stuck = if is_waiting { self.stuck + 1 } else { 0 };
        if self.stuck == STUCK {
            self.tell(
                "the nodes of pods do not respond: the parts of these pods are performed again".to_owned(),
            );
        }
        self.stuck >= STUCK
    }

    /// Returns the error for a job that has failed. `numbers` are those of its parts.
    fn failed(&self, job: &Job, numbers: &[u32]) -> CommandError {
        // A list such as `1,3-5`. It is empty if bad input ended the job.
        let indexes = job.status.as_ref().and_then(|it| it.failed_indexes.as_deref()).unwrap_or_default();
        let first = indexes.split([',', '-']).next().and_then(|it| it.parse::<usize>().ok());
        let of_index = first.and_then(|it| self.failures.get_key_value(numbers.get(it)?));
        let Some((number, Failure { how, last })) = of_index.or_else(|| self.failures.last_key_value())
        else {
            let why = condition(job, "Failed").unwrap_or_default();
            return CommandError::machine(format!("the campaign failed: {}", printable(&why)));
        };
        let part = self.campaign.part(*number);
        let help = if matches!(how.as_str(), "OOMKilled" | "exit status 3") {
            "use a larger `--worker-memory`, and run the same command with `--resume`".to_owned()
        } else {
            format!(
                "to perform this part here, run the same command with `--part {part}` instead of `--backend kubernetes` \
                 and its options"
            )
        };
        let why = format!("part {part} failed ({how}); the end of its log:\n{last}");
        if how == BAD_INPUT {
            let help = "follow the advice in the log, and run the same command with `--resume`";
            return CommandError::input(miette!(help = help, "{why}"));
        }
        CommandError::machine_with(why, help)
    }
}

/// Returns whether the results of a part of a search contain a violation.
fn has_violation(results: &str) -> bool {
    let is_violation = |it: serde_json::Value| it["violation"].is_number();
    results
        .lines()
        .any(|it| it.contains("\"violation\":") && serde_json::from_str(it).is_ok_and(is_violation))
}

/// Returns the number of runs in this many parts.
fn runs_of(campaign: &Campaign, parts: u32) -> u64 {
    (u128::from(campaign.runs) * u128::from(parts) / u128::from(campaign.parts)) as u64
}

/// Returns the message of a condition of a job that is true.
pub(super) fn condition(job: &Job, name: &str) -> Option<String> {
    let conditions = job.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let found = { conditions }.find(|it| it.type_ == name && it.status == "True")?;
    Some(found.message.clone().unwrap_or_default())
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or_default()
}

/// Returns the number of the part that a pod of this job performs. `numbers` are those of all its parts.
fn number(pod: &Pod, job: &Job, numbers: &[u32]) -> Option<u32> {
    // Anyone who may create pods may label them.
    let is_of_job = pod.owner_references().iter().any(|it| Some(&it.uid) == job.uid().as_ref());
    let index = pod.annotations().get("batch.kubernetes.io/job-completion-index").filter(|_| is_of_job)?;
    numbers.get(index.parse::<usize>().ok()?).copied()
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// Returns how a pod failed, unless the cluster ended it.
fn failure(pod: &Pod) -> Option<Failure> {
    let status = pod.status.as_ref()?;
    if status.conditions.iter().flatten().any(|it| it.type_ == "DisruptionTarget" && it.status == "True") {
        return None;
    }
    let ended =
        status.container_statuses.iter().flatten().find_map(|it| it.state.as_ref()?.terminated.as_ref())?;
    let how = match ended.reason.as_deref() {
        None | Some("Error") => format!("exit status {}", ended.exit_code),
        Some(reason) => reason.to_owned(),
    };
    let last = ended.message.as_deref().unwrap_or_default();
    // Results are long lines, whose beginnings name the run: usually the one before the failure.
    let short = |line: &str| printable(&line.chars().take(WIDTH).collect::<String>());
    let lines: Vec<String> = last.lines().rev().take(10).map(short).collect();
    Some(Failure { how, last: lines.into_iter().rev().collect::<Vec<_>>().join("\n") })
}

/// Returns why a pod does not start, if it does not.
fn not_started(pod: &Pod) -> Option<Delay> {
    let status = pod.status.as_ref()?;
    let waiting =
        status.container_statuses.iter().flatten().find_map(|it| it.state.as_ref()?.waiting.as_ref());
    let reason = waiting.and_then(|it| it.reason.as_deref()).unwrap_or_default();
    let message = || printable(waiting.and_then(|it| it.message.as_deref()).unwrap_or(reason));
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => Some(Delay {
            why: format!("the pods cannot get their image: {}", message()),
            remedy: Some(
                "make the image available to the cluster, or specify another with `--image`; docs/campaigns.md shows how \
                 to build it",
            ),
        }),
        "CreateContainerError" | "RunContainerError" => Some(Delay {
            why: format!("the pods cannot start their program: {}", message()),
            remedy: Some(
                "specify an image of `faultline` with `--image`; docs/campaigns.md shows how to build it",
            ),
        }),
        _ => {
            let conditions = status.conditions.iter().flatten();
            let found = { conditions }.find(|it| it.reason.as_deref() == Some("Unschedulable"))?;
            let message = printable(found.message.as_deref().unwrap_or_default());
            Some(Delay { why: format!("a pod is waiting: {message}"), remedy: None })
        }
    }
}

#[cfg(test)]
mod tests;
