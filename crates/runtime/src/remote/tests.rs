//! Tests with minimal places. Their processes do little more than send heartbeats, until most of them fall silent
//! simultaneously.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use faultline_core::fault::{Change, Fault, LinkProperties};
use faultline_core::{
    Cluster, ClusterId, Fact, FaultNo, Gauges, Incarnation, Life, Member, Membership, MembershipVersion,
    MessageId, NodeId, PlannedFault, ProcessId, Role, Scope, Span, Time, Trigger,
};
use faultline_supervisor::{Config, Status};
use faultline_trace::Bundle;
use faultline_trace::manifest::{LinkEntry, LinkMeasured};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

use super::messages::{Killed, Ready, ToAgent, ToPlace};
use super::*;
use crate::clock::{ClockSource, monotonic};
use crate::control::{self, Introduction, ToNode, ToSupervisor};
use crate::metrics::{Counts, Delays};
use crate::secret::{Ends, Keys, Secret};
use crate::supervise::{ChangeQueue, Names};
use crate::{Links, StorageOptions};

/// Number of processes that fall silent. One more process continues.
const SILENT: u32 = 100;
const DETECT_AFTER: Span = Span::from_millis(500);
/// Time of the fault planned for the process that continues. At that time, the silent processes are being
/// fenced.
const PLANNED: Span = Span::from_millis(700);
/// Time limit for fencing: longer than it takes to fence all silent processes together, even on a busy
/// machine, and far shorter than it takes to fence them one by one.
const TOGETHER: Span = Span::from_secs(8);

/// An observer that keeps the times of some of the supervisor's facts.
#[derive(Default)]
struct Watcher {
    begun: Option<watch::Sender<bool>>,
    began: Option<Time>,
    detected: BTreeMap<ProcessId, Time>,
    injected: Option<Time>,
    enough: Arc<AtomicBool>,
}

impl Observer for Watcher {
    fn recorded(&mut self, at: Time, by: ProcessId, _: Life, fact: &Fact) {
        assert_eq!(
            by,
            ProcessId::SUPERVISOR,
            "the processes report only facts that they cannot know: {fact:?}"
        );
        match fact {
            Fact::Begun => {
                self.began = Some(at);
                // Most processes fall silent now.
                self.begun.iter().for_each(|it| it.send(true).expect("the places listen"));
            }
            Fact::Injecting { .. } => self.injected = Some(at),
            Fact::Detected { process, .. } => drop(self.detected.insert(*process, at)),
            _ => {}
        }
        if self.detected.len() > SILENT as usize {
            self.enough.store(true, Ordering::Relaxed);
        }
    }

    fn status(&mut self, _: Time, _: &Status) {}

    fn measured(&mut self, _: &[LinkEntry]) {}
}

/// The agent of a process. Once `silent` is set, it neither reads nor writes, but keeps its connections open.
async fn agent(
    listener: tokio::net::TcpListener,
    process: ProcessId,
    key: Secret,
    silent: watch::Receiver<bool>,
) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let at_place = key.of_place(&process.to_string());
    let ends = Secret::answer(&mut stream, |_| Some(&at_place)).await.unwrap();
    assert_eq!(ends, Ends { caller: ProcessId::SUPERVISOR, called: process });
    let falls_silent = {
        let mut silent = silent.clone();
        async move { drop(silent.wait_for(|it| *it).await) }
    };
    let serve = async {
        while let Ok(order) = control::receive(&mut stream).await {
            let answer = match order {
                ToAgent::Assign(assignment) => {
                    assert_eq!(assignment.process, process);
                    let clock_source = ClockSource::of_this_process();
                    ToPlace::Ready(Ready { life: None, holds_storage: true, abilities: None, clock_source })
                }
                ToAgent::Launch { life, supervisor, .. } => {
                    tokio::task::spawn_local(node(supervisor, process, life, key.clone(), silent.clone()));
                    continue;
                }
                ToAgent::Clock => ToPlace::Clock(monotonic()),
                ToAgent::Arm { order, .. } => ToPlace::Armed { order, clock: monotonic() },
                ToAgent::Fire { order, .. } => {
                    let killed = Some(Killed { stopped: monotonic(), exited: monotonic() });
                    ToPlace::Done { order, killed, problem: None }
                }
                ToAgent::Pause { order, .. } => ToPlace::Paused { order, at: None, problem: None },
            };
            control::send(&mut stream, &answer).await.unwrap();
        }
    };
    tokio::select! {
        () = falls_silent => std::future::pending::<()>().await,
        () = serve => {}
    }
}

/// Facts that a process cannot know: those that only a supervisor reports, and those about processes and clusters that do
/// not exist.
fn forged_facts() -> [Fact; 5] {
    let unknown = ProcessId(60_000);
    let (from, to) = (ClusterId(60_000), ClusterId(0));
    let message = MessageId { from: unknown, to: ProcessId(0), incarnation: Incarnation(0), number: 0 };
    [
        Fact::Changed(Box::new(Change::Link { from, to, properties: LinkProperties::default() })),
        Fact::Ineffective { no: FaultNo(0), reason: "the process says so".into() },
        Fact::Left(ClusterId(0)),
        Fact::Completed,
        Fact::Delivered(message),
    ]
}

/// A process that registers, answers requests to measure links, and sends heartbeats and facts that it cannot know.
async fn node(
    supervisor: SocketAddr,
    process: ProcessId,
    life: Life,
    key: Secret,
    mut silent: watch::Receiver<bool>,
) {
    let mut stream = TcpStream::connect(supervisor).await.unwrap();
    key.dial(&mut stream, Ends { caller: process, called: ProcessId::SUPERVISOR }).await.unwrap();
    control::send(&mut stream, &Introduction { process, life }).await.unwrap();
    let ToNode::Setup(setup) = control::receive(&mut stream).await.unwrap() else { panic!("no setup") };
    let (mut read, mut write) = stream.into_split();
    let (words, mut spoken) = mpsc::unbounded_channel();
    words.send(ToSupervisor::Registered(SocketAddr::from(([127, 0, 0, 1], 1)))).unwrap();
    for fact in forged_facts() {
        words.send(ToSupervisor::Fact { fact, halted: false }).unwrap();
    }
    let listen = async {
        while let Ok(order) = control::receive(&mut read).await {
            if let ToNode::Measure(links, _) = order {
                for it in links {
                    let (to, requested, began) = (it.to, it.requested.latency, setup.clock.now());
                    let (jitter, uncertainty) = (Span::ZERO, Span::ZERO);
                    let link =
                        LinkMeasured { latency: requested, jitter, samples: 1, rounds: 1, uncertainty };
                    let said = ToSupervisor::Measured { to, requested, began, link };
                    words.send(said).unwrap();
                }
            }
        }
    };
    let speak = async {
        let mut beat = tokio::time::interval(setup.heartbeat_every.into());
        loop {
            let said = tokio::select! {
                Some(said) = spoken.recv() => said,
                _ = beat.tick() => {
                    ToSupervisor::Heartbeat(Gauges::default(), Counts::default(), Delays::default())
                }
            };
            if control::send(&mut write, &said).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = silent.wait_for(|it| *it) => std::future::pending::<()>().await,
        () = listen => {}
        () = speak => {}
    }
}

/// Hosts all places on a separate thread. Returns their addresses in the order of the processes.
fn places(keys: &Keys, silent: watch::Receiver<bool>) -> Vec<SocketAddr> {
    let (told, addresses) = std::sync::mpsc::channel();
    let keys = keys.clone();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        runtime.unwrap().block_on(async move {
            let (never, never_silent) = watch::channel(false);
            let mut addresses = Vec::new();
            for process in (0..=SILENT).map(ProcessId) {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                addresses.push(listener.local_addr().unwrap());
                let silent = if process.0 < SILENT { silent.clone() } else { never_silent.clone() };
                let key = keys.of(process).unwrap().clone();
                tokio::task::spawn_local(agent(listener, process, key, silent));
            }
            told.send(addresses).unwrap();
            never.closed().await;
        });
    });
    addresses.recv().unwrap()
}

fn options(dir: &std::path::Path, enough: &Arc<AtomicBool>) -> RunOptions {
    let processes: Vec<ProcessId> = (0..=SILENT).map(ProcessId).collect();
    let member = |process: &ProcessId| Member {
        cluster: ClusterId(0),
        role: Role::RANK,
        node: NodeId(process.0),
        life: Life(0),
        up: false,
        started: false,
        gone: false,
        idle_lives: 0,
    };
    let fault = Fault::crash(ProcessId(SILENT));
    let planned = PlannedFault {
        no: FaultNo(0),
        trigger: Trigger::At(Time::ZERO + PLANNED),
        fault,
        reported: None,
        cause: None,
    };
    RunOptions {
        run_dir: dir.join("run"),
        description: Arc::default(),
        supervisor: Config {
            detect_after: DETECT_AFTER,
            restart_after: Span::from_secs(60),
            spares: 0,
            volatile_storage: false,
            deadline: Span::from_secs(60),
            start_within: Some(Span::from_secs(60)),
            scope: Scope::Cluster,
            joins: vec![],
            leaves: vec![],
            plan: vec![planned],
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        },
        membership: Membership {
            version: MembershipVersion(0),
            members: processes.iter().map(member).collect(),
            clusters: [Cluster::new(processes.iter().copied().collect())].into(),
        },
        names: Names { processes: processes.iter().map(ToString::to_string).collect(), ..Names::default() },
        info: None,
        memory: None,
        fact_bytes: 0,
        seed: 1,
        links: Links::default(),
        storage: StorageOptions::default(),
        measure_again_for: Span::ZERO,
        metrics: None,
        interrupted: enough.clone(),
        change_queue: ChangeQueue::default(),
    }
}

#[test]
fn places_that_fall_silent_together_delay_neither_detection_nor_faults() {
    let dir = tempfile::tempdir().unwrap();
    Bundle::create(dir.path().join("run")).unwrap();
    let keys = Keys::generate(SILENT as usize + 1).unwrap();
    let (begun, silent) = watch::channel(false);
    let place_registry = PlaceRegistry::default();
    let place = |(process, address)| {
        (ProcessId(process), AgentPlace { uid: ProcessId(process).to_string(), address })
    };
    place_registry.assign(1, (0..).zip(places(&keys, silent)).map(place).collect()).unwrap();
    let remote = RemoteOptions {
        run: "run".into(),
        keys,
        replace_after: Duration::from_secs(60),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        sum: Sum::default(),
    };
    let mut watcher = Watcher { begun: Some(begun), ..Watcher::default() };
    let options = options(dir.path(), &watcher.enough);
    let left = run(remote, options, None, &place_registry, &mut watcher);
    assert!(matches!(left, Err(RunError::Left)), "{left:?}");

    let began = watcher.began.unwrap();
    let (silent, other): (BTreeMap<_, _>, BTreeMap<_, _>) =
        watcher.detected.into_iter().partition(|(process, _)| process.0 < SILENT);
    assert_eq!(silent.len(), SILENT as usize);
    let latest = silent.values().max().unwrap().since(began);
    let limit = Span(DETECT_AFTER.0 + TOGETHER.0);
    assert!(latest < limit, "the last failure was detected {latest} after all places had fallen silent");
    let injected = watcher.injected.unwrap().since(began);
    assert!(injected < Span(PLANNED.0 + TOGETHER.0), "{injected}");
    assert_eq!(other.len(), 1, "the planned fault was injected");
    assert!(place_registry.state().requests.is_empty(), "no place is replaced too early");
}
