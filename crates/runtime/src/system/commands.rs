//! The commands of a node, as its own process sees them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use faultline_core::observation::{
    MOST_GROUPS, MOST_OF_GROUP, MOST_OF_GROUP_NAME, MOST_SAID_BY_CHECK, MOST_SAID_BY_PROBE,
};
use faultline_core::{CheckNo, Ending, Observation, ProbeNo, WatchNo};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::executor::{self, Start, ToExecutor};
use super::output::{Log, MOST_QUOTED, PIECE};
use super::runner::{self, Instruction, STOPS_WITHIN, Told};
use super::{NodeSystem, Recording};
use crate::control::{self, ToSupervisor};

/// Number of messages from a runner that wait while the node's process is busy.
const WAITING: usize = 64;
/// Length of the longest message from an executor, in bytes.
const LONGEST: u32 = 64 << 10;
/// Number of bytes of the longest text from an executor.
const LONGEST_TEXT: usize = 8 << 10;
/// The maximum number of observations from an executor per minute.
const MOST_PER_MINUTE: u32 = 10_000;
/// Time for which the node waits for an executor that no longer listens, because its container is being restarted. Whether a
/// container that has never run can start is for the operator to judge.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to reach an executor.
const AGAIN: Duration = Duration::from_millis(20);
/// Time beyond [`STOPS_WITHIN`] in which everything that remains of the commands is killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// The commands of a node.
pub(crate) struct Commands {
    instructions: mpsc::UnboundedSender<Instruction>,
    ended: JoinHandle<()>,
}

impl Commands {
    /// Runs the commands in this process.
    pub(crate) fn here(system: NodeSystem, recorder: Recorder, recording: Recording) -> Commands {
        let (instructions, instructed) = mpsc::unbounded_channel();
        let (telling, told) = mpsc::channel(WAITING);
        tokio::task::spawn_local(runner::run(system, instructed, telling, Some(recording)));
        Commands { instructions, ended: tokio::task::spawn_local(record(told, recorder)) }
    }

    /// Lets the executor at `socket` run the commands. `lost` is called if the executor is lost, or does not keep the
    /// rules.
    pub(crate) fn in_executor(
        socket: PathBuf,
        start: Start,
        system: &NodeSystem,
        recorder: Recorder,
        lost: impl FnOnce(io::Error) + 'static,
    ) -> Commands {
        let (instructions, instructed) = mpsc::unbounded_channel();
        let rules = Rules::of(system);
        let ended = tokio::task::spawn_local(async move {
            if let Err(error) = relay(socket, start, instructed, (recorder, rules)).await {
                lost(error);
            }
        });
        Commands { instructions, ended }
    }

    /// Returns the sender of instructions to the runner.
    pub(crate) fn instructions(&self) -> mpsc::UnboundedSender<Instruction> {
        self.instructions.clone()
    }

    /// Ends all processes of the node.
    pub(crate) async fn stop(self) {
        // The runner has ended already if it was lost.
        let _ = self.instructions.send(Instruction::Stop);
        drop(timeout(STOPS_WITHIN + KILLED_WITHIN, self.ended).await);
    }
}

/// Records what a runner tells, in the log of the commands, as facts, and in reports to the supervisor.
pub(crate) struct Recorder {
    log: Option<Log>,
    observe: Box<dyn Fn(Observation)>,
    reports: mpsc::UnboundedSender<ToSupervisor>,
}

impl Recorder {
    /// Creates the log. `observe` receives the observations.
    pub(crate) fn new(
        system: &NodeSystem,
        observe: impl Fn(Observation) + 'static,
        reports: mpsc::UnboundedSender<ToSupervisor>,
    ) -> Recorder {
        let log = Log::create(&system.log, system.log_bytes);
        let log = log.inspect_err(|error| warn!(%error, "cannot create the log of the command")).ok();
        Recorder { log, observe: Box::new(observe), reports }
    }

    fn record(&mut self, told: Told) {
        // The receivers are closed only if the node is about to exit.
        match told {
            Told::Observed(observation) => (self.observe)(observation),
            Told::SetUp => drop(self.reports.send(ToSupervisor::SetUp)),
            Told::NotReady(what) => {
                let log = self.log.as_mut().map(Log::end).unwrap_or_default();
                let text = if log.is_empty() { what } else { format!("{what}; its output ends with: {log}") };
                drop(self.reports.send(ToSupervisor::NotReady(text)));
            }
            Told::Output(bytes) => {
                if let Some(Err(error)) = self.log.as_mut().map(|it| it.write(&bytes)) {
                    warn!(%error, "cannot write the log of the command");
                }
            }
        }
    }
}

async fn record(mut told: mpsc::Receiver<Told>, mut recorder: Recorder) {
    while let Some(it) = told.recv().await {
        recorder.record(it);
    }
}

/// Relays instructions to an executor, and records what it tells, until it has stopped as instructed.
async fn relay(
    socket: PathBuf,
    start: Start,
    mut instructions: mpsc::UnboundedReceiver<Instruction>,
    (mut recorder, mut rules): (Recorder, Rules),
) -> io::Result<()> {
    let begun = Instant::now();
    let stream = loop {
        match executor::connect(&socket) {
            Ok(stream) => break stream,
            Err(error) if is_hopeless(&error, begun.elapsed()) => return Err(error),
            Err(_) => sleep(AGAIN).await,
        }
    };
    stream.set_nonblocking(true)?;
    let (mut read, mut write) = UnixStream::from_std(stream)?.into_split();
    control::send(&mut write, &ToExecutor::Start(start)).await?;
    let mut is_stopping = false;
    let mut told = Box::pin(receive(&mut read));
    loop {
        tokio::select! {
            Some(it) = instructions.recv() => {
                is_stopping |= it == Instruction::Stop;
                control::send(&mut write, &ToExecutor::Instruct(it)).await?;
            }
            received = &mut told => {
                let it = match received {
                    Err(error) if is_stopping && error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    it => it?,
                };
                drop(told);
                rules.check(&it).map_err(io::Error::other)?;
                recorder.record(it);
                told = Box::pin(receive(&mut read));
            }
        }
    }
}

/// Returns whether to wait no longer for an executor that cannot be reached for this reason.
fn is_hopeless(error: &io::Error, waited: Duration) -> bool {
    // Without a socket, the container has never run. Pulling its image may take long.
    error.kind() != io::ErrorKind::NotFound && waited > PATIENCE
}

async fn receive(read: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<Told> {
    control::receive_at_most(read, LONGEST).await
}

/// What an executor may tell. A program of the user could be in its place.
struct Rules {
    probes: Vec<(ProbeNo, u32)>,
    watches: Vec<WatchNo>,
    checks: Vec<CheckNo>,
    /// The begin of the current minute, and the number of observations in it.
    minute: (Instant, u32),
}

impl Rules {
    fn of(system: &NodeSystem) -> Rules {
        Rules {
            probes: system.probes.iter().map(|it| (it.no, 0)).collect(),
            watches: system.watches.iter().map(|it| it.0).collect(),
            checks: system.checks.iter().map(|it| it.0).chain(system.final_check).collect(),
            minute: (Instant::now(), 0),
        }
    }

    /// Checks that a message makes sense, is of moderate size, and does not come too often.
    fn check(&mut self, told: &Told) -> Result<(), String> {
        let is_short = |it: &Ending| !matches!(it, Ending::Failed(text) | Ending::Impossible(text) if text.len() > LONGEST_TEXT);
        let is_permitted = match told {
            Told::SetUp => true,
            Told::NotReady(text) => text.len() <= LONGEST_TEXT,
            Told::Output(bytes) => bytes.len() <= PIECE,
            Told::Observed(Observation::Ready) => true,
            Told::Observed(Observation::Logged { watch, line, groups, .. }) => {
                let is_short = |(name, value): (&Arc<str>, &Arc<str>)| {
                    name.len() <= MOST_OF_GROUP_NAME && value.len() <= MOST_OF_GROUP
                };
                let are_few = groups.len() <= MOST_GROUPS && groups.iter().all(is_short);
                self.watches.contains(watch) && line.len() < MOST_QUOTED + 4 && are_few
            }
            Told::Observed(Observation::LeftOut { watch }) => self.watches.contains(watch),
            Told::Observed(Observation::Probed { probe, sample, ending, said, .. }) => {
                let next = self.probes.iter_mut().find(|it| it.0 == *probe).map(|it| &mut it.1);
                let is_next =
                    next.is_some_and(|it| std::mem::replace(it, sample.saturating_add(1)) == *sample);
                is_next && is_short(ending) && said.len() <= MOST_SAID_BY_PROBE
            }
            // Clients do not run in a container, and no fault asks its command to end.
            Told::Observed(
                Observation::Invoked { .. } | Observation::Concluded { .. } | Observation::Stopped { .. },
            ) => false,
            Told::Observed(Observation::Exited { ending, said }) => {
                is_short(ending) && said.len() <= MOST_SAID_BY_PROBE
            }
            Told::Observed(Observation::Checked { check, ending, said, .. }) => {
                self.checks.contains(check) && is_short(ending) && said.len() <= MOST_SAID_BY_CHECK
            }
        };
        if !is_permitted {
            return Err(format!("the container of the command sent something unexpected: {told:.200?}"));
        }
        if self.minute.0.elapsed() >= Duration::from_secs(60) {
            self.minute = (Instant::now(), 0);
        }
        self.minute.1 += u32::from(matches!(told, Told::Observed(_)));
        match self.minute.1 > MOST_PER_MINUTE {
            true => Err(format!("there were more than {MOST_PER_MINUTE} observations in a minute")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Span;

    use super::*;

    fn rules() -> Rules {
        let (probes, watches, checks) = (vec![(ProbeNo(1), 0)], vec![WatchNo(2)], vec![CheckNo(3)]);
        Rules { probes, watches, checks, minute: (Instant::now(), 0) }
    }

    /// Otherwise, the node would fail repeatedly while the image of its container is pulled.
    #[test]
    fn a_container_that_has_never_run_is_awaited() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("socket");
        let is_hopeless = |waited| {
            let error = executor::connect(&socket).expect_err("no process listens");
            super::is_hopeless(&error, waited)
        };
        assert!(!is_hopeless(PATIENCE * 100));
        drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
        assert!(!is_hopeless(PATIENCE) && is_hopeless(PATIENCE * 2));
    }

    #[test]
    fn an_executor_must_keep_the_rules() {
        let probed = |no, sample| {
            let ending = Ending::Opened;
            Told::Observed(Observation::Probed {
                probe: ProbeNo(no),
                sample,
                latency: Span::ZERO,
                ending,
                said: "".into(),
            })
        };
        let with = |no, line: &str, groups: &[(&str, &str)]| {
            let groups = groups.iter().map(|it| (it.0.into(), it.1.into())).collect();
            let (watch, line) = (WatchNo(no), line.into());
            Told::Observed(Observation::Logged { watch, line, log_line: 1, is_error: true, groups })
        };
        let logged = |no, line: &str| with(no, line, &[]);
        let long = "a".repeat(LONGEST_TEXT + 1);
        let failed = |text: &str| {
            Told::Observed(Observation::Exited { ending: Ending::Failed(text.into()), said: "".into() })
        };
        let mut rules = rules();
        for it in [probed(1, 0), probed(1, 1), logged(2, "a"), failed("a"), Told::SetUp] {
            assert_eq!(rules.check(&it), Ok(()));
        }
        let (latency, ending) = (Span::ZERO, Ending::Opened);
        let checked = Observation::Checked { check: CheckNo(4), latency, ending, said: "".into() };
        for it in [
            probed(2, 0),
            probed(1, 1),
            logged(1, "a"),
            logged(2, &long),
            with(2, "a", &[("a", &long)]),
            Told::Observed(Observation::LeftOut { watch: WatchNo(1) }),
            failed(&long),
            Told::Observed(checked),
            Told::NotReady(long.clone()),
            Told::Output(vec![0; PIECE + 1]),
        ] {
            assert!(rules.check(&it).is_err(), "{it:?}");
        }
    }

    #[test]
    fn an_executor_must_not_send_too_many_observations() {
        let mut rules = rules();
        let ready = Told::Observed(Observation::Ready);
        for _ in 0..MOST_PER_MINUTE {
            assert_eq!(rules.check(&ready), Ok(()));
        }
        assert_eq!(rules.check(&Told::Output(vec![0])), Ok(()));
        assert!(rules.check(&ready).unwrap_err().contains("10000"));
    }
}
