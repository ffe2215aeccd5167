//! Properties of a session that hold for every backend and every command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_catalog::Hosted;
use faultline_checker::{Judgement, Property, Verdict};
use faultline_core::fault::{MemoryContent, Outcome};
use faultline_session::{
    Backend, MemoryBound, PreparedRun, Recording, RunEnd, Session, SessionError, SimulationObserver,
    SimulationView, Simulator, UnjudgedRecording,
};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, Manifest, Record, Trace};

/// A process fails while the other cluster requests a checkpoint.
const TEXT: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: small }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 2 }]
  links: { between: { latency: 3ms } }
  protocol: { hc3i: { checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster } }
  application: { heat: { steps: 60, stepTime: 20ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
  faults: [{ when: { fact: checkpointRequested, cluster: nancy, occurrence: 2 }, crash: { cluster: lyon, node: 1 } }]
";

fn federation(text: &str) -> Federation {
    faultline_api::parse("test.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

fn simulated(session: Session<'_>) -> UnjudgedRecording {
    session.simulate(&mut Simulator::new(&mut ())).unwrap()
}

#[test]
fn a_recorded_run_is_judged_like_one_in_memory_and_one_that_is_read_back() {
    let federation = federation(TEXT);
    let session = Session::new(&federation).seed(3).of_text(TEXT, UNIX_EPOCH + Duration::from_secs(7));
    let in_memory = simulated(session).judge();
    assert_eq!(in_memory.judgement.verdict, Verdict::Pass, "{:?}", in_memory.judgement.reasons);
    assert!(in_memory.judgement.of(Property::BoundedLoss).instances > 0);

    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    let recorded = session.record(&bundle, &mut Simulator::new(&mut ())).unwrap().judge();
    assert_eq!(recorded.manifest, in_memory.manifest);
    assert!(recorded.trace == in_memory.trace);
    assert_eq!(recorded.judgement, in_memory.judgement);

    let read = Recording::read(&bundle).unwrap();
    assert_eq!(Manifest { facts: Vec::new(), ..read.manifest }, in_memory.manifest);
    assert_eq!(read.judgement, in_memory.judgement);
}

#[test]
fn the_manifest_of_a_record_can_be_derived_again() {
    let federation = federation(TEXT);
    let session = Session::new(&federation).seed(3).of_text(TEXT, UNIX_EPOCH);
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path()).unwrap();
    session.record(&bundle, &mut Simulator::new(&mut ())).unwrap();

    let record = bundle.read_manifest().unwrap();
    let again = faultline_api::parse("federation.yaml", record.federation.as_bytes()).unwrap();
    let again = Session::new(&again).seed(record.seed).of_text(&record.federation, UNIX_EPOCH);
    let (draft, expected) = (again.draft(record.backend).unwrap(), again.expected().unwrap());
    assert!(expected.is_some());
    let Manifest { outcome, faults, duration, facts, .. } = record.clone();
    assert_eq!(Manifest { expected, outcome, faults, duration, facts, ..draft }, record);
    let other = again.seed(4).draft(record.backend).unwrap();
    assert_ne!(other.seed, record.seed);
}

/// Counts the calls to its methods, and interrupts a run on call number `most_looks` to `continues`.
struct Counting {
    begun: usize,
    facts: u64,
    looks: u32,
    most_looks: u32,
}

impl SimulationObserver for Counting {
    fn begins(&mut self, manifest: &Manifest) {
        assert_eq!((manifest.outcome.as_ref(), self.facts), (None, 0));
        self.begun += 1;
    }

    fn recorded(&mut self, _: &Record) {
        self.facts += 1;
    }

    fn continues(&mut self, mut moment: SimulationView<'_>) -> bool {
        self.looks += 1;
        assert_eq!(moment.status().clusters.len(), 2);
        self.looks < self.most_looks
    }
}

#[test]
fn an_observer_sees_every_fact_and_can_interrupt() {
    let federation = federation(&TEXT.replace("steps: 60", "steps: 600"));
    let session = Session::new(&federation).seed(3);
    let whole = simulated(session);
    let mut counting = Counting { begun: 0, facts: 0, looks: 0, most_looks: u32::MAX };
    let watched = session.simulate(&mut Simulator::new(&mut counting)).unwrap();
    assert!(watched == whole, "an observer changes nothing");
    assert_eq!((counting.begun, counting.facts), (1, whole.trace.len() as u64));

    let mut counting = Counting { begun: 0, facts: 0, looks: 0, most_looks: 2 };
    let interrupted = session.simulate(&mut Simulator::new(&mut counting)).unwrap();
    assert_eq!(interrupted.manifest.outcome, Some(Outcome::Interrupted));
    assert_eq!(counting.facts, interrupted.trace.len() as u64);
    assert!(counting.facts < whole.trace.len() as u64);

    let mut no_observer = ();
    let mut simulator = Simulator::new(&mut no_observer).at_most(2000);
    let limited = session.simulate(&mut simulator).unwrap();
    assert_eq!((limited.manifest.outcome, simulator.stats().events), (Some(Outcome::Interrupted), 2000));
}

#[test]
fn a_run_that_is_out_of_memory_is_unknown_and_keeps_what_it_recorded() {
    let text = TEXT.replace("steps: 60", "steps: 600");
    let federation = federation(&text);
    let session = Session::new(&federation).seed(3).of_text(&text, UNIX_EPOCH);
    let whole = simulated(session);

    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path().join("run")).unwrap();
    let mut observer = ();
    // From the 13th measurement of the run on, the program uses 300 MiB more at every measurement.
    static MEASURED: AtomicU64 = AtomicU64::new(0);
    let used = || MEASURED.fetch_add(1, Ordering::Relaxed).saturating_sub(12) * (300 << 20);
    let bound = MemoryBound { bytes: 1 << 30, used };
    let mut simulator = Simulator::new(&mut observer).within(bound);
    let run = session.record(&bundle, &mut simulator).unwrap().judge();
    assert_eq!(
        simulator.stats().events,
        3026,
        "memory was measured after 1, 2, 4, ..., 1024, 2024, and 3024 events, and then after each"
    );
    let Some(Outcome::OutOfMemory(used)) = &run.manifest.outcome else {
        panic!("{:?}", run.manifest.outcome)
    };
    assert_eq!((used.bound, used.used), (1 << 30, 3 * (300 << 20)));
    let part = |content| used.parts.iter().find(|it| it.content == content).unwrap();
    assert_eq!(part(MemoryContent::Facts).count as usize, run.trace.len());
    assert!(part(MemoryContent::Checkpoints).count > 4, "parts of four processes, and replicas");
    assert!(part(MemoryContent::Checkpoints).bytes > 4 << 20, "with a mebibyte of state in each");
    assert_eq!(run.judgement.verdict, Verdict::Unknown);
    assert!(run.judgement.reasons[0].contains("its memory limit"), "{:?}", run.judgement.reasons);
    let begins = |(life, stream): (_, &Vec<_>)| whole.trace.streams[life].starts_with(stream);
    assert!(run.trace.streams.iter().skip(1).all(begins), "the facts before the end are the same");

    let read = Recording::read(&bundle).unwrap();
    assert_eq!((read.judgement, read.manifest.outcome), (run.judgement, run.manifest.outcome));
}

#[test]
fn a_run_ends_while_its_facts_can_still_be_judged() {
    let federation = federation(&TEXT.replace("steps: 60", "steps: 6000"));
    let session = Session::new(&federation).seed(3);
    let bound = MemoryBound { bytes: 1 << 20, used: || 0 };
    let run = session.simulate(&mut Simulator::new(&mut ()).within(bound)).unwrap();
    assert!(matches!(run.manifest.outcome, Some(Outcome::OutOfMemory(_))), "{:?}", run.manifest.outcome);
    // Other runs of this test program may share the limit.
    assert!(run.trace.len() > 100 && run.trace.len() < 6000, "{} facts", run.trace.len());
}

#[test]
fn a_program_whose_first_task_exceeds_the_memory_limit_is_rejected() {
    let tasks =
        "protocol: { tic: {} }\n  application: { jacobi: { size: 4, iterations: 100 } }\n  deadline: 100ms\n";
    let head = TEXT.split_once("protocol").unwrap().0;
    let federation = federation(&format!("{head}{tasks}"));
    // The program has 1642 tasks.
    let limits = [(1 << 20, true), (16 << 20, false)];
    for (bytes, is_rejected) in limits {
        let bound = MemoryBound { bytes, used: || 0 };
        let rejected = Session::new(&federation).simulate(&mut Simulator::new(&mut ()).within(bound)).err();
        let text = rejected.map(|it| it.to_string()).unwrap_or_default();
        let expected = "spec.application.jacobi: the program needs at least 2 MiB";
        assert_eq!(text.contains(expected), is_rejected, "{text}");
        assert!(is_rejected || text.is_empty(), "{text}");
    }
}

#[test]
fn memory_that_grows_quickly_is_measured_after_every_event() {
    static USED: AtomicU64 = AtomicU64::new(0);
    let federation = federation(TEXT);
    // Each measurement reports 64 KiB more than the one before, so the limit is reached at the 16th at the latest,
    // within a few events.
    let bound = MemoryBound { bytes: 1 << 20, used: || USED.fetch_add(64 << 10, Ordering::Relaxed) };
    let run = Session::new(&federation).seed(3).simulate(&mut Simulator::new(&mut ()).within(bound)).unwrap();
    assert!(matches!(run.manifest.outcome, Some(Outcome::OutOfMemory(_))), "{:?}", run.manifest.outcome);
    assert!(run.trace.len() < 100, "{} facts", run.trace.len());
}

/// A backend that either fails every run, or immediately reports that the run was interrupted.
struct Lazy {
    gives_up: bool,
}

impl Backend for Lazy {
    type Error = &'static str;

    fn kind(&self) -> BackendKind {
        BackendKind::Local
    }

    fn run<N: Hosted>(&mut self, begun: PreparedRun<'_, N>) -> Result<(RunEnd, Option<Trace>), &'static str> {
        let on_disk = begun.bundle.read_manifest().unwrap();
        assert_eq!((on_disk.outcome, on_disk.backend), (None, BackendKind::Local));
        if self.gives_up {
            return Err("the backend gave up");
        }
        Ok((
            RunEnd {
                outcome: Outcome::Interrupted,
                added: begun.manifest.plan.clone(),
                faults: Vec::new(),
                effects: Vec::new(),
                pressure: None,
                links: None,
                duration: Default::default(),
                waiting: Vec::new(),
                program: None,
            },
            None,
        ))
    }
}

#[test]
fn an_abandoned_run_leaves_its_initial_manifest_and_can_be_resumed() {
    let federation = federation(TEXT);
    let session = Session::new(&federation).of_text(TEXT, UNIX_EPOCH + Duration::from_secs(1));
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path()).unwrap();
    let given_up = session.record(&bundle, &mut Lazy { gives_up: true });
    assert!(matches!(given_up, Err(SessionError::Backend("the backend gave up"))));
    let begun = bundle.read_manifest().unwrap();
    assert_eq!(begun, session.draft(BackendKind::Local).unwrap());

    // A restarted program runs at another time and, here, with another seed. The resumed run uses neither.
    let later = Session::new(&federation).seed(99).of_text(TEXT, UNIX_EPOCH + Duration::from_secs(2));
    let run = later.resumed(Some(&begun)).record(&bundle, &mut Lazy { gives_up: false }).unwrap();
    let kept = (run.manifest.seed, run.manifest.started_unix_ms);
    assert_eq!(kept, (begun.seed, begun.started_unix_ms));
    assert_eq!(run.manifest.plan.len(), 2 * begun.plan.len(), "what was added is part of the plan");
    assert_eq!(bundle.read_manifest().unwrap().outcome, Some(Outcome::Interrupted));
}

#[test]
fn a_failed_setup_leaves_no_files() {
    let mut federation = federation(TEXT);
    federation.spec.clusters.clear();
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(dir.path()).unwrap();
    let refused = Session::new(&federation).record(&bundle, &mut Lazy { gives_up: false });
    assert!(matches!(refused, Err(SessionError::Setup(_))));
    assert!(bundle.read_manifest().is_err());
}

#[test]
fn inputs_are_recorded_on_request() {
    let federation = federation(TEXT);
    for asked in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let bundle = Bundle::create(dir.path()).unwrap();
        let session = Session::new(&federation).with_inputs(asked);
        session.record(&bundle, &mut Simulator::new(&mut ())).unwrap();
        assert_eq!(bundle.records_inputs(), asked);
    }
}

/// Judges a run in which a process fails and is not restarted before the deadline, so the run makes no further
/// progress.
fn silent(deadline: &str) -> Judgement {
    let text = TEXT.lines().filter(|it| !it.contains("faults:")).collect::<Vec<_>>().join("\n");
    let text = text.replace("restartAfter: 50ms", "restartAfter: 1h");
    let text = format!("{text}\n  faults: [{{ at: 500ms, crash: {{ cluster: lyon, node: 1 }} }}]");
    let federation = federation(&format!("{text}\n  deadline: {deadline}\n"));
    let run = simulated(Session::new(&federation).seed(3));
    assert_eq!(run.manifest.outcome, Some(Outcome::Deadline));
    run.judge().judgement
}

#[test]
fn undelivered_messages_at_the_deadline_are_judged_only_after_a_long_silence() {
    for (deadline, is_settled) in [("8s", false), ("30s", true)] {
        let judgement = silent(deadline);
        assert_eq!(judgement.verdict, Verdict::Unknown, "{:?}", judgement.reasons);
        let losses = judgement.of(Property::NoLoss);
        assert_eq!(losses.instances > 0 || losses.unknown.is_some(), is_settled, "{deadline}: {losses:?}");
    }
}
