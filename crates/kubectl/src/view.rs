//! `kubectl faultline view`, and the page of `kubectl faultline run --view`. The server runs on this machine. What was
//! added to the record is copied to a temporary directory, and the page follows that copy.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use faultline_api::Federation;
use faultline_api::supervision::{ClusterReport, FactsHead, HeldFacts, LinkReport, PieceHead, RunStatus};
use faultline_client::outline;
use faultline_client::status::{Phase, condition};
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::interrupt;
use faultline_console::memory::set_limit;
use faultline_console::output::note;
use faultline_console::page::RunPage;
use faultline_console::recording::LocatedRecording;
use faultline_core::fault::{Change, LinkProperties};
use faultline_core::{ClusterId, Life, ProcessId, Progress, Span};
use faultline_report::page::live;
use faultline_trace::manifest::{LinkEntry, LinkMeasured};
use faultline_trace::{Bundle, BundleError};
use faultline_view::Control;
use faultline_view::feed::Feed;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::arguments::ViewArguments;
use crate::cluster::{KubernetesCluster, may};
use crate::fetch::{name, unpack};
use crate::supervisor::{RequestError, Supervisor};
use crate::waiting::{retried, until_interrupted};

/// Time from a request until an added fault is due. Until then, the operator must have passed it on.
const DUE_AFTER: Span = Span::from_millis(5000);
/// Time between two requests for facts.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time between two checks whether the run has ended.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Time within which the API server must answer a change.
const PATCHED_WITHIN: Duration = Duration::from_secs(20);
/// Maximum size of the copy of a record, in bytes.
const MOST_BYTES: u64 = 1 << 30;
/// Number of failed requests in a row after which the user is informed.
const SILENT_REPORT: u32 = 5;

/// Executes `kubectl faultline view`.
pub(crate) fn view(arguments: &ViewArguments) -> Result<Exit, CommandError> {
    set_limit(None)?;
    let interrupted = interrupt::quiet_flag();
    let page = crate::block_on(async {
        let name = name(&arguments.federation)?;
        let cluster = KubernetesCluster::connect(&arguments.cluster).await?;
        let federation = cluster.outline(name).await?;
        let has_ended = federation.status.as_ref().is_some_and(|it| it.phase == Phase::Completed);
        let spec = outline::spec(&federation).filter(|_| !has_ended);
        let changed = spec.map(|it| Federation::new(name, it));
        let page = ClusterPage::open(&cluster, arguments.at, "--at", name, changed).await?;
        tokio::select! {
            () = page.follow(&cluster, &federation) => {}
            ended = page.until_over(&cluster, &federation) => ended?,
            () = until_interrupted(&interrupted) => {}
        }
        Ok(page)
    })?;
    page.page.server.serve(&interrupted, None);
    Ok(Exit::Pass)
}

/// A change of the resource, and where to send the outcome.
struct Request {
    patch: Patch<Value>,
    outcome: mpsc::Sender<Result<(), String>>,
}

/// The page of a run on a cluster.
pub(crate) struct ClusterPage {
    pub(crate) page: RunPage,
    /// Directory for the copy of the record.
    dir: TempDir,
    requests: Mutex<UnboundedReceiver<Request>>,
}

impl ClusterPage {
    /// Opens the page of a federation, and prints its addresses. The page can change `changed`, if the user may do so.
    pub(crate) async fn open(
        cluster: &KubernetesCluster,
        address: Option<SocketAddr>,
        option: &str,
        name: &str,
        changed: Option<Federation>,
    ) -> Result<ClusterPage, CommandError> {
        let right = ("faultline.dev", "federations", "");
        // A user who may not even ask may not change anything, either.
        let is_permitted = may(&cluster.client(), cluster.namespace(), right, "patch").await.unwrap_or(false);
        if changed.is_some() && !is_permitted {
            note(format_args!(
                "the page only shows the run: you may not `patch` federations in the namespace `{}`",
                cluster.namespace()
            ));
        }
        let (sender, receiver) = unbounded_channel();
        let control = changed.filter(|_| is_permitted);
        let control = control
            .map(|it| Control::new(it, DUE_AFTER, move |after, changes| ask(&sender, after, &changes)));
        let page = RunPage::open(address, option, control)?;
        let of_machine = |error: io::Error| CommandError::of_machine(&error);
        let dir =
            tempfile::Builder::new().prefix(&format!("faultline-{name}-")).tempdir().map_err(of_machine)?;
        let bundle = Bundle::create(dir.path().join("copy")).map_err(|it| CommandError::of_machine(&it))?;
        page.server.follow(Feed::of_own_run(bundle, page.status.clone())).map_err(of_machine)?;
        page.announce();
        Ok(ClusterPage { page, dir, requests: Mutex::new(receiver) })
    }

    /// Copies what is added to the record, and makes the changes that the page asks for. Never returns.
    pub(crate) async fn follow(&self, cluster: &KubernetesCluster, federation: &impl ResourceExt) {
        let name = federation.name_any();
        tokio::join!(self.copy(cluster, federation), self.change(cluster, &name));
    }

    async fn copy(&self, cluster: &KubernetesCluster, federation: &impl ResourceExt) {
        let mut copy = RecordCopy::new(Bundle::open(self.dir.path().join("copy")));
        let (mut supervisor, mut failures) = (None, 0);
        loop {
            sleep(LOOK_EVERY).await;
            if supervisor.is_none() {
                // `until_over` and `run` report why there is none.
                supervisor = cluster.supervisor(federation).await.ok();
            }
            let Some(known) = &supervisor else { continue };
            match self.look(known, &mut copy).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == SILENT_REPORT && !error.is_missing() {
                        note(format_args!("the page cannot follow the run: {error}; retrying"));
                    }
                    // The supervisor may soon run in another pod.
                    supervisor = None;
                    sleep(LOOK_EVERY * failures.min(10)).await;
                }
            }
        }
    }

    async fn look(&self, supervisor: &Supervisor, copy: &mut RecordCopy) -> Result<(), CopyError> {
        let RunStatus { clusters, elapsed_seconds, links, .. } = supervisor.status(u64::MAX).await?;
        let RunPage { server, status } = &self.page;
        status.set_links(&links.iter().filter_map(|it| link(it, &clusters)).collect::<Vec<_>>());
        status.set(clusters.iter().map(|it| Progress { done: it.steps_done, total: it.steps }));
        if let (Some(control), Some(seconds)) = (server.control(), elapsed_seconds) {
            control.elapsed(Span((seconds.max(0.0) * 1e9) as u64));
        }
        let answer = supervisor.facts(&copy.held()).await?;
        copy.take(&answer)
    }

    async fn change(&self, cluster: &KubernetesCluster, name: &str) {
        while let Some(Request { patch, outcome }) = self.requests.lock().await.recv().await {
            let done = cluster.patch(name, &patch).await;
            // The page may no longer wait.
            let _ = outcome.send(done.map_err(|it| it.command_error.report.to_string()));
        }
        std::future::pending().await
    }

    /// Waits until the run has ended, and shows its report.
    async fn until_over(
        &self,
        cluster: &KubernetesCluster,
        federation: &impl ResourceExt,
    ) -> Result<(), CommandError> {
        let why = loop {
            let now =
                retried(CHECK_EVERY, async || cluster.find_outline(&federation.name_any()).await).await?;
            let Some(now) = now.filter(|it| it.metadata.uid == federation.meta().uid) else {
                break "The federation was deleted.".to_owned();
            };
            let status = now.status.unwrap_or_default();
            if let Some(why) = status.why_not_started() {
                break why.to_owned();
            }
            match status.phase {
                Phase::Completed => match self.report(cluster, federation).await {
                    Ok(()) => return Ok(()),
                    Err(error) => break error.report.to_string(),
                },
                Phase::Rejected => break status.message.unwrap_or_default(),
                _ => {}
            }
            if let Some(lost) = status.condition(condition::COMPLETED).filter(|it| it.reason == "RecordLost")
            {
                break lost.message.clone();
            }
            sleep(CHECK_EVERY).await;
        };
        self.page.server.show(live::message("There is no report", &why, false));
        note(&why);
        Ok(())
    }

    /// Fetches the record of a run that has ended, and shows its report.
    async fn report(
        &self,
        cluster: &KubernetesCluster,
        federation: &impl ResourceExt,
    ) -> Result<(), CommandError> {
        let supervisor = cluster.supervisor(federation).await?;
        let dir = self.dir.path().join("record");
        let transfer = async || unpack(cluster, &supervisor, federation, &dir).await;
        retried(CHECK_EVERY, transfer).await?;
        self.page.show(&LocatedRecording::read(&dir)?);
        Ok(())
    }
}

/// Returns a link as measured; `None` if it was not measured.
fn link(link: &LinkReport, clusters: &[ClusterReport]) -> Option<LinkEntry> {
    let cluster = |name: &str| {
        let place = clusters.iter().position(|it| it.name == name)?;
        u16::try_from(place).ok().map(ClusterId)
    };
    let latency = Span::from_micros(link.measured_micros?);
    let requested = Span::from_micros(link.requested_micros);
    Some(LinkEntry {
        from: cluster(&link.from)?,
        to: cluster(&link.to)?,
        requested: LinkProperties { latency: requested, ..LinkProperties::default() },
        measured: Some(LinkMeasured {
            latency,
            jitter: Span::ZERO,
            samples: 0,
            rounds: 1,
            uncertainty: Span::ZERO,
        }),
        observed: None,
        since: None,
    })
}

/// Changes the resource as the page asks, and waits for the outcome.
fn ask(requests: &UnboundedSender<Request>, after: &Federation, changes: &[Change]) -> Result<(), String> {
    let Some(patch) = patch(after, changes) else { return Ok(()) };
    let (outcome, done) = mpsc::channel();
    let sent = requests.send(Request { patch, outcome });
    let closed = || "The run is no longer followed.".to_owned();
    sent.map_err(|_| closed())?;
    done.recv_timeout(PATCHED_WITHIN).map_err(|_| "The API server does not answer.".to_owned())?
}

/// Returns the change of the resource. It adds a fault to those of the resource, which other clients may have changed,
/// too.
fn patch(after: &Federation, changes: &[Change]) -> Option<Patch<Value>> {
    changes.iter().find_map(|it| match it {
        Change::Pause(pause) => Some(Patch::Merge(json!({ "spec": { "pause": pause } }))),
        Change::Fault(_) => {
            let fault = after.spec.faults.last()?;
            let (path, value) = match after.spec.faults.len() {
                1 => ("/spec/faults", json!([fault])),
                _ => ("/spec/faults/-", json!(fault)),
            };
            let operations = json!([{ "op": "add", "path": path, "value": value }]);
            Some(Patch::Json(serde_json::from_value(operations).ok()?))
        }
        _ => None,
    })
}

/// The reason why the copy of a record does not grow.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("cannot store the copy of the record: {0}")]
    Store(#[from] BundleError),
    #[error("the supervisor's answer is not a part of a record")]
    Answer,
    #[error("the copy of the record exceeds {MOST_BYTES} bytes")]
    TooLong,
}

impl CopyError {
    /// Returns whether the supervisor has no record yet, or is too old to send facts.
    fn is_missing(&self) -> bool {
        matches!(self, CopyError::Request(error) if error.is_missing())
    }
}

/// The copy of a record that grows.
struct RecordCopy {
    bundle: Bundle,
    digest: Option<String>,
    lengths: BTreeMap<(u32, u32), u64>,
}

impl RecordCopy {
    fn new(bundle: Bundle) -> RecordCopy {
        RecordCopy { bundle, digest: None, lengths: BTreeMap::new() }
    }

    fn held(&self) -> HeldFacts {
        let facts = self.lengths.iter().map(|(&(process, life), &length)| (process, life, length));
        HeldFacts { description: self.digest.clone(), facts: facts.collect() }
    }

    /// Stores an answer of the supervisor. The pod might run another program, so each piece must continue its file.
    fn take(&mut self, answer: &[u8]) -> Result<(), CopyError> {
        let end = answer.iter().position(|it| *it == b'\n').ok_or(CopyError::Answer)?;
        let head: FactsHead = serde_json::from_slice(&answer[..end]).map_err(|_| CopyError::Answer)?;
        let mut rest = &answer[end + 1..];
        while let Some((PieceHead { process, life, offset, .. }, content, after)) = PieceHead::split(rest) {
            let length = self.lengths.entry((process, life)).or_default();
            if *length != offset || content.is_empty() {
                return Err(CopyError::Answer);
            }
            self.bundle.write_facts_at(ProcessId(process), Life(life), offset, content)?;
            *length += content.len() as u64;
            rest = after;
        }
        if self.lengths.values().sum::<u64>() > MOST_BYTES {
            return Err(CopyError::TooLong);
        }
        if let Some(description) = head.description {
            self.bundle.write_description(&description)?;
            self.digest = Some(head.digest);
        }
        if rest.is_empty() { Ok(()) } else { Err(CopyError::Answer) }
    }
}

#[cfg(test)]
mod tests {
    use faultline_api::samples::sample;

    use super::*;
    use crate::run::tests::{Answer, resource, serve};

    fn quickstart() -> Federation {
        let text = sample("quickstart").expect("the sample exists").text;
        faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid")
    }

    fn answer(digest: &str, description: Option<[&str; 2]>, pieces: &[(u32, u64, &str)]) -> Vec<u8> {
        let description = description.map(|it| it.map(str::to_owned));
        let mut bytes = serde_json::to_vec(&FactsHead { digest: digest.to_owned(), description }).unwrap();
        bytes.push(b'\n');
        for &(process, offset, content) in pieces {
            let head = PieceHead { process, life: 1, offset, length: content.len() as u32 };
            bytes.extend(head.bytes());
            bytes.extend(content.as_bytes());
        }
        bytes
    }

    #[test]
    fn a_copy_grows_by_pieces_that_continue_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut copy = RecordCopy::new(Bundle::create(dir.path().join("copy")).unwrap());
        copy.take(&answer("d", Some(["{}", "a"]), &[(0, 0, "abc"), (4, 0, "x")])).unwrap();
        copy.take(&answer("d", None, &[(0, 3, "def")])).unwrap();
        let held = HeldFacts { description: Some("d".to_owned()), facts: vec![(0, 1, 6), (4, 1, 1)] };
        assert_eq!(copy.held(), held);
        assert_eq!(copy.bundle.read_facts_at(ProcessId(0), Life(1), 0, 9).unwrap(), b"abcdef");
        assert_eq!(copy.bundle.read_description().unwrap(), ["{}", "a"]);
        for wrong in [
            answer("d", None, &[(0, 9, "z")]),
            answer("d", None, &[(0, 6, "")]),
            b"no line".to_vec(),
            b"{}\n".to_vec(),
            [answer("d", None, &[]), b"torn".to_vec()].concat(),
        ] {
            assert!(matches!(copy.take(&wrong), Err(CopyError::Answer)), "{wrong:?}");
        }
        assert_eq!(copy.held(), held);
    }

    #[tokio::test]
    async fn a_fault_added_from_the_page_is_a_patch_of_the_resource() {
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let to = asked.clone();
        let cluster = serve(move |method, last, body| {
            if *method == http::Method::PATCH {
                to.lock().unwrap().push((last.to_owned(), body));
                return Answer::Object(resource(json!({})));
            }
            Answer::Object(
                json!({ "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
                "spec": {}, "status": { "allowed": true } }),
            )
        });
        let address = Some("127.0.0.1:0".parse().unwrap());
        let page =
            ClusterPage::open(&cluster, address, "--at", "quickstart", Some(quickstart())).await.unwrap();
        let page = std::sync::Arc::new(page);
        let from = page.clone();
        let changes = tokio::task::spawn_blocking(move || {
            let control = from.page.server.control().unwrap();
            control.elapsed(Span::from_millis(2000));
            let fault = control.add_fault(br#"{"crash": {"process": "paris-1"}}"#);
            (fault, control.pause(br#"{"pause": true}"#))
        });
        tokio::select! {
            changes = changes => {
                let (fault, pause) = changes.unwrap();
                assert!(fault.unwrap().contains("due at 7.00 s"));
                pause.unwrap();
            }
            () = page.change(&cluster, "quickstart") => unreachable!("changes have no end"),
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked[0].0, "quickstart");
        assert_eq!(asked[0].1[0]["path"], "/spec/faults/-");
        assert_eq!(asked[0].1[0]["value"]["at"], "7s");
        assert_eq!(asked[1].1, json!({ "spec": { "pause": true } }));
    }

    #[test]
    fn measured_links_are_those_of_the_clusters() {
        let clusters =
            ["paris", "rennes"].map(|it| ClusterReport { name: it.to_owned(), ..ClusterReport::default() });
        let report = |to: &str, measured_micros| LinkReport {
            from: "rennes".to_owned(),
            to: to.to_owned(),
            requested_micros: 5000,
            measured_micros,
            as_requested: None,
        };
        let entry = link(&report("paris", Some(5200)), &clusters).unwrap();
        assert_eq!(
            (entry.from, entry.to, entry.measured.unwrap().latency),
            (ClusterId(1), ClusterId(0), Span::from_micros(5200))
        );
        assert_eq!(link(&report("paris", None), &clusters), None);
        assert_eq!(link(&report("nancy", Some(1)), &clusters), None);
    }

    #[tokio::test]
    async fn users_who_may_not_change_a_federation_only_watch() {
        let cluster = serve(|_, _, _| Answer::Error(403, "Forbidden"));
        let address = Some("127.0.0.1:0".parse().unwrap());
        let page =
            ClusterPage::open(&cluster, address, "--at", "quickstart", Some(quickstart())).await.unwrap();
        assert_eq!(page.page.server.control_address(), None);
    }
}
