//! Runs the commands of one life of a node: follows instructions, and tells what it observes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use faultline_core::observation::{MOST_SAID_BY_CHECK, MOST_SAID_BY_PROBE};
use faultline_core::{CheckNo, Ending, Observation, Span};
use faultline_guard::{MOST_SEARCHES, PAUSE, Processes, signal_all};
use faultline_supervisor::AfterExit;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::warn;

use super::attempt::{Attempted, attempt, cannot_be_started, command, ending_of};
use super::clients::{History, Recording};
use super::orphans::{self, Started};
use super::output::{Lines, Merged, PIECE, quoted};
use super::{NodeSystem, Probe};

/// Time within which a command must end after it was asked to. It is then killed.
pub(crate) const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to find out whether a node is ready, and the longest time of one attempt.
const READY_EVERY: Duration = Duration::from_millis(50);
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two searches for the processes of a command whose first process has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// Time for which output is awaited after a command has exited. Programs that it left behind may keep it open.
const OUTPUT_WITHIN: Duration = Duration::from_millis(200);
/// Time after which the beginning of a line is passed on.
const CONTINUES_WITHIN: Duration = Duration::from_millis(200);
/// Further time after which a line seems never to continue.
const HANGS_AFTER: Duration = Duration::from_millis(1_800);
const PATIENCE: [Duration; 2] = [CONTINUES_WITHIN, HANGS_AFTER];

/// What a node's process tells the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Starts the command.
    Prepare,
    /// Sets the system up.
    SetUp,
    /// Carries out a check.
    Check(CheckNo),
    /// Asks the command to end, and kills what remains of it after this time. No command follows in this life.
    StopCommand(Span),
    /// The run has begun: starts the command, unless it has been started, and the probes.
    Begin,
    /// Ends all processes of the node: asks the command to end, and kills what remains in the end.
    Stop,
}

/// What the runner tells the node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It observed something.
    Observed(Observation),
    /// It has set the system up.
    SetUp,
    /// The system cannot be started. The text is a predicate.
    NotReady(String),
    /// The command wrote this.
    Output(Vec<u8>),
}

/// Runs the commands of a life until it is instructed to stop. If the returned future is dropped, the processes that the
/// command started remain. Clients need `recording`.
pub(crate) async fn run(
    system: NodeSystem,
    mut instructions: mpsc::UnboundedReceiver<Instruction>,
    told: mpsc::Sender<Told>,
    recording: Option<Recording>,
) {
    let shared = Rc::new(Shared {
        system,
        told,
        is_ready: Cell::new(false),
        is_settled: Cell::new(false),
        sampling: Cell::new(0),
        has_checked: Cell::new(false),
        has_failed: Cell::new(false),
        is_stopping: Cell::new(false),
        exited: Cell::new(None),
        is_told_to_end: Cell::new(false),
        ended: Cell::new(None),
        group: Cell::new(None),
        output: RefCell::default(),
        readers: RefCell::default(),
        histories: RefCell::default(),
        recording,
        is_begun: Cell::new(false),
        clients: RefCell::default(),
    });
    let (mut is_started, mut is_probing) = (false, false);
    // They end with this function.
    let mut tasks = JoinSet::new();
    while let Some(instruction) = instructions.recv().await {
        let is_start = matches!(instruction, Instruction::Prepare | Instruction::Begin);
        if is_start && !shared.is_told_to_end.get() && !std::mem::replace(&mut is_started, true) {
            tasks.spawn_local(shared.clone().run_command());
        }
        match instruction {
            Instruction::Prepare => {}
            Instruction::Check(no) if shared.system.final_check == Some(no) => {
                tasks.spawn_local(shared.clone().finish_clients(no));
            }
            Instruction::Check(no) => drop(tasks.spawn_local(shared.clone().check(no))),
            Instruction::StopCommand(within) => {
                if !shared.is_told_to_end.replace(true) {
                    tasks.spawn_local(shared.clone().stop_command(within.into(), is_started));
                }
            }
            Instruction::SetUp => drop(tasks.spawn_local(shared.clone().set_up())),
            Instruction::Begin if !std::mem::replace(&mut is_probing, true) => {
                for index in 0..shared.system.probes.len() {
                    tasks.spawn_local(shared.clone().probe(index));
                }
                let histories = shared.histories.borrow().clone();
                shared.is_begun.set(true);
                for history in histories {
                    history.begin().await;
                }
            }
            Instruction::Begin => {}
            Instruction::Stop => break,
        }
    }
    shared.stop().await;
}

/// The end of a command.
struct Ended {
    ending: Ending,
    /// The processes that it left behind.
    left: Vec<Pid>,
}

pub(super) struct Shared {
    system: NodeSystem,
    told: mpsc::Sender<Told>,
    /// Whether the command has become ready.
    is_ready: Cell<bool>,
    /// Whether the command has become ready, or will not become ready any more.
    is_settled: Cell<bool>,
    /// The number of samples in progress.
    sampling: Cell<usize>,
    /// Whether a check has begun. No samples follow.
    has_checked: Cell<bool>,
    /// Whether the command has exited although it must not.
    has_failed: Cell<bool>,
    is_stopping: Cell<bool>,
    /// When the first process of the command ended, and whether with status 0.
    exited: Cell<Option<(Instant, bool)>>,
    /// Whether a fault has asked the command to end.
    is_told_to_end: Cell<bool>,
    /// How the command ended.
    ended: Cell<Option<Ending>>,
    /// The process group of the command, while its first process runs.
    group: Cell<Option<Pid>>,
    output: RefCell<Merged>,
    /// The tasks that read the output of commands. They end once no process can write any more.
    readers: RefCell<JoinSet<()>>,
    /// The clients, by history, and the tasks that run them.
    histories: RefCell<Vec<Rc<History>>>,
    recording: Option<Recording>,
    /// Whether the run has begun.
    is_begun: Cell<bool>,
    clients: RefCell<JoinSet<Result<(), String>>>,
}

impl Shared {
    pub(super) fn system(&self) -> &NodeSystem {
        &self.system
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Writes lines of Faultline's own to the log.
    pub(super) async fn note(&self, text: &str) {
        let bytes = self.output.borrow_mut().note(text);
        self.write(bytes).await;
    }

    /// Starts the clients, which need the files in the working directory. Arrivals follow once the run has begun.
    async fn start_clients(self: &Rc<Self>) {
        let Some(recording) = &self.recording else { return };
        for clients in &self.system.clients {
            match History::new(clients, recording) {
                Ok(history) => {
                    for client in 0..history.count() {
                        let run = history.clone().run(self.clone(), client);
                        self.clients.borrow_mut().spawn_local(run);
                    }
                    if self.is_begun.get() {
                        history.begin().await;
                    }
                    self.histories.borrow_mut().push(history);
                }
                Err(error) => {
                    self.note(&format!("[the clients of {} cannot run: {error}]", clients.name)).await
                }
            }
        }
    }

    /// Lets the clients carry out the final phase. Probes end before it begins.
    async fn finish_clients(self: Rc<Self>, check: CheckNo) {
        self.has_checked.set(true);
        let begun = Instant::now();
        self.histories.borrow().iter().for_each(|it| it.finish());
        let mut running = self.clients.take();
        let mut ending = Ending::Exit(0);
        while let Some(ended) = running.join_next().await {
            let ended = ended.unwrap_or_else(|error| Err(error.to_string()));
            if let Err(why) = ended {
                ending = Ending::Failed(quoted(why.as_bytes(), MOST_SAID_BY_CHECK).into());
            }
        }
        let latency = Span(begun.elapsed().as_nanos() as u64);
        self.observe(Observation::Checked { check, latency, ending, said: "".into() }).await;
    }

    async fn stop(&self) {
        self.is_stopping.set(true);
        self.clients.take().abort_all();
        let mut left = Vec::new();
        // A command that has stopped itself ends only once it continues.
        match self.group.get() {
            Some(group) => drop(killpg(group, Signal::SIGTERM).and_then(|()| killpg(group, Signal::SIGCONT))),
            None => {
                left = self.remaining();
                for pid in &left {
                    let _ = kill(*pid, Signal::SIGTERM).and_then(|()| kill(*pid, Signal::SIGCONT));
                }
            }
        }
        let asked = Instant::now();
        let is_running =
            || self.group.get().is_some() || left.iter().any(|it| faultline_guard::is_running(*it));
        while is_running() && asked.elapsed() < STOPS_WITHIN {
            sleep(READY_EVERY / 5).await;
        }
        super::end_own(&self.system.id).await;
        let mut readers = self.readers.take();
        let read = async { while readers.join_next().await.is_some() {} };
        drop(timeout(OUTPUT_WITHIN, read).await);
    }

    /// Asks the command to end, kills what remains of it after a while, and tells how it ended.
    async fn stop_command(self: Rc<Self>, within: Duration, is_started: bool) {
        let asked = Instant::now();
        let until = asked + within;
        // A command that a fault has paused stays paused.
        match self.group.get() {
            Some(group) => {
                let _ = killpg(group, Signal::SIGTERM);
            }
            None => signal_all(&self.remaining(), Signal::SIGTERM),
        }
        while self.group.get().is_some() && Instant::now() < until {
            sleep_until(until.min(Instant::now() + READY_EVERY / 5)).await;
        }
        while Instant::now() < until && !self.remaining().is_empty() {
            sleep_until(until.min(Instant::now() + LOOKS_EVERY)).await;
        }
        let mut killed = false;
        for _ in 0..MOST_SEARCHES {
            let left = self.remaining();
            if left.is_empty() {
                break;
            }
            killed = true;
            signal_all(&left, Signal::SIGKILL);
            sleep(PAUSE).await;
        }
        let latency = Span(asked.elapsed().as_nanos() as u64);
        let ending = loop {
            match self.ended.take() {
                Some(ending) => break ending,
                None if is_started => sleep(READY_EVERY / 5).await,
                None => break Ending::Impossible("its command had not been started".into()),
            }
        };
        let said = quoted(self.output.borrow().last_line().as_bytes(), MOST_SAID_BY_PROBE).into();
        self.observe(Observation::Stopped { ending, latency, killed, said }).await;
    }

    /// Tells the node's process something. Waits while that process is busy.
    async fn tell(&self, told: Told) {
        // The receiver is closed only if the node is about to exit.
        drop(self.told.send(told).await);
    }

    async fn observe(&self, observation: Observation) {
        self.tell(Told::Observed(observation)).await;
    }

    /// Runs the command of the life to its end.
    async fn run_command(self: Rc<Self>) {
        if let Err(error) = self.prepare_directories() {
            self.is_settled.set(true);
            self.ended.set(Some(Ending::Impossible("its files cannot be written".into())));
            return self.give_up(format!("cannot be started: its files cannot be written: {error}")).await;
        }
        self.start_clients().await;
        let Ended { ending, left } = match command(&self.system, &self.system.command).spawn() {
            Ok(child) => self.clone().run(child).await,
            Err(error) => Ended { ending: cannot_be_started(&self.system.command, &error), left: Vec::new() },
        };
        self.is_settled.set(true);
        if self.is_stopping.get() {
            return;
        }
        self.ended.set(Some(ending.clone()));
        if self.is_told_to_end.get() {
            return;
        }
        let is_permitted = match self.system.after_exit {
            AfterExit::End => self.system.may_finish && ending == Ending::Exit(0),
            AfterExit::Stay | AfterExit::Restart | AfterExit::RestartCluster => true,
        };
        self.has_failed.set(!is_permitted);
        let left = left.iter().find_map(|it| faultline_guard::name_of(*it)).filter(|_| !is_permitted);
        let left = left.map(|name| {
            format!("it left `{name}` running: keep that in the foreground, or write `onExit: daemon`")
        });
        let restarts = matches!(self.system.after_exit, AfterExit::Restart | AfterExit::RestartCluster);
        // Once the run has begun, the observation says so.
        if !restarts && (!is_permitted || !self.is_ready.get()) {
            let left = left.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
            let when = match self.is_ready.get() {
                true => "ended before the run began",
                false => "was not ready when its command ended",
            };
            self.give_up(format!("{when}: {ending}{left}")).await;
        }
        let said = left.unwrap_or_else(|| self.output.borrow().last_line().to_owned());
        let said = quoted(said.as_bytes(), MOST_SAID_BY_PROBE).into();
        self.observe(Observation::Exited { ending, said }).await;
    }

    fn prepare_directories(&self) -> std::io::Result<()> {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let NodeSystem { dir, data, files, .. } = &self.system;
        fs::create_dir_all(dir)?;
        fs::create_dir_all(data)?;
        for (name, content) in files {
            let path = dir.join(name);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// Runs the command to its end. Its output is read as long as a process has it open.
    async fn run(self: Rc<Self>, mut child: Child) -> Ended {
        let started = Started::by(&child);
        self.group.set(Some(started.pid()));
        let file = faultline_guard::group_file(&self.system.dir);
        if let Err(error) = std::fs::write(&file, started.pid().to_string()) {
            warn!(%error, "cannot write the process group of the command");
        }
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (reading, mut is_read) = mpsc::channel::<()>(1);
        {
            let (mut readers, reading_too) = (self.readers.borrow_mut(), reading.clone());
            let (this, that) = (self.clone(), self.clone());
            readers.spawn_local(async move { (this.read(stdout, 0).await, reading).0 });
            readers.spawn_local(async move { (that.read(stderr, 1).await, reading_too).0 });
        }
        let mut ready = Box::pin(async {
            if self.become_ready().await {
                let histories = self.histories.borrow().clone();
                for history in histories {
                    history.started().await;
                }
                self.is_ready.set(true);
                self.observe(Observation::Ready).await;
            }
            self.is_settled.set(true);
        });
        let mut end = Box::pin(self.end_of(child, started));
        let mut is_attempted = false;
        let Ended { ending, mut left } = loop {
            tokio::select! {
                biased;
                () = &mut ready, if !is_attempted => is_attempted = true,
                ended = &mut end => break ended,
            }
        };
        // The last lines say why it ended.
        drop(timeout(OUTPUT_WITHIN, is_read.recv()).await);
        left.retain(|it| faultline_guard::is_running(*it));
        Ended { ending, left }
    }

    /// Waits for the end of the command: of its first process or, if that may leave others behind, of all its processes.
    async fn end_of(&self, mut child: Child, started: Started) -> Ended {
        let status = child.wait().await;
        drop(started);
        self.group.set(None);
        drop(std::fs::remove_file(faultline_guard::group_file(&self.system.dir)));
        let ending = status.map_or_else(|error| Ending::Failed(error.to_string().into()), ending_of);
        self.exited.set(Some((Instant::now(), ending.is_success())));
        let mut left = self.remaining();
        let mut last = Vec::new();
        // What a command has left behind may become ready.
        let continues =
            || self.system.is_daemon || self.system.after_exit == AfterExit::Stay && !self.is_settled.get();
        while !left.is_empty() && continues() {
            last.clone_from(&left);
            sleep(LOOKS_EVERY).await;
            left.retain(|it| faultline_guard::is_running(*it));
            if left.is_empty() {
                left = self.remaining();
            }
        }
        let of_last = last.iter().rev().find_map(|it| orphans::ending_of(*it));
        Ended { ending: of_last.filter(|_| self.system.is_daemon).unwrap_or(ending), left }
    }

    /// Returns the processes of the life, except those of attempts.
    fn remaining(&self) -> Vec<Pid> {
        let all = faultline_guard::matching(|it| it == self.system.id, &[getpid()]);
        let mut attempts = orphans::started();
        if let Some(command) = self.group.get() {
            attempts.remove(&command);
        }
        let attempts = Processes::all().with_descendants(attempts);
        let is_of_attempt = |it: Pid| attempts.contains(&it) || faultline_guard::is_of_attempt(it);
        all.into_iter().filter(|it| !is_of_attempt(*it)).collect()
    }

    /// Returns whether the end of the output may be incomplete, because a signal ended a program. Only if the command
    /// exited with status 0 at the same time, it was certainly not.
    async fn was_killed(&self) -> bool {
        let asked = Instant::now();
        loop {
            match self.exited.get() {
                Some((at, is_success)) => {
                    return !is_success || asked.saturating_duration_since(at) > OUTPUT_WITHIN;
                }
                None if asked.elapsed() > OUTPUT_WITHIN => return true,
                None => sleep(READY_EVERY / 10).await,
            }
        }
    }

    /// Copies the output of a stream to the log, and observes the lines that match watches.
    async fn read(&self, from: Option<impl AsyncRead + Unpin>, stream: usize) {
        let Some(mut from) = from else { return };
        let mut lines = Lines::new(&self.system.watches, stream == 1);
        let mut buffer = vec![0; PIECE / 2];
        // The times for which the next output is awaited before the beginning of a line is passed on.
        let mut patience: std::slice::Iter<'static, Duration> = [].iter();
        loop {
            let read = from.read(&mut buffer);
            let read = match patience.next() {
                None => read.await,
                Some(within) => match timeout(*within, read).await {
                    Ok(read) => read,
                    Err(_) => {
                        let mut found = Vec::new();
                        let log_line = self.output.borrow().next_line(stream);
                        lines.pause(*within == HANGS_AFTER, log_line, |it| found.push(it));
                        let bytes = self.output.borrow_mut().flush(stream);
                        self.write(bytes).await;
                        for it in found {
                            self.observe(it).await;
                        }
                        continue;
                    }
                },
            };
            let mut found = Vec::new();
            let read = read.unwrap_or_default();
            let was_killed = read == 0 && self.was_killed().await;
            let log_line = self.output.borrow().next_line(stream);
            let bytes = match read {
                0 => {
                    lines.finish(was_killed, log_line, |it| found.push(it));
                    self.output.borrow_mut().flush(stream)
                }
                _ => {
                    lines.push(&buffer[..read], log_line, |it| found.push(it));
                    self.output.borrow_mut().add(stream, &buffer[..read])
                }
            };
            patience = if buffer[..read].ends_with(b"\n") { [].iter() } else { PATIENCE.iter() };
            self.write(bytes).await;
            for it in found {
                self.observe(it).await;
            }
            if read == 0 {
                return;
            }
        }
    }

    /// Writes to the log.
    async fn write(&self, bytes: Vec<u8>) {
        for piece in bytes.chunks(PIECE) {
            self.tell(Told::Output(piece.to_vec())).await;
        }
    }

    /// Waits until the node is ready. Returns whether it is.
    async fn become_ready(&self) -> bool {
        let (Some(wanted), within) = &self.system.ready else { return true };
        let begun = Instant::now();
        let mut last = None;
        loop {
            let left = within.saturating_sub(begun.elapsed());
            let made = attempt(&self.system, wanted, left.min(READY_TIMEOUT)).await;
            if made.ending.is_success() {
                return true;
            }
            // The last attempt may have had too little time to show what is wrong.
            if last.is_none() || made.ending != Ending::TimedOut || left >= READY_TIMEOUT {
                last = Some(made.describe());
            }
            if begun.elapsed() >= *within {
                let what = last.unwrap_or_default();
                self.give_up(format!("was not ready within {within:?}, but its command is running: {what}"))
                    .await;
                return false;
            }
            sleep(READY_EVERY).await;
        }
    }

    async fn set_up(self: Rc<Self>) {
        let Some((wanted, within)) = &self.system.set_up else { return };
        let made: Attempted = attempt(&self.system, wanted, *within).await;
        match made.ending.is_success() {
            true => self.tell(Told::SetUp).await,
            false => self.give_up(format!("could not set the system up: {}", made.describe())).await,
        }
    }

    async fn check(self: Rc<Self>, check: CheckNo) {
        let Some((_, wanted, within)) = self.system.checks.iter().find(|it| it.0 == check) else { return };
        // A sample that changes the system must not end after the check has looked at its effect.
        self.has_checked.set(true);
        while !self.is_settled.get() || self.sampling.get() > 0 {
            sleep(READY_EVERY).await;
        }
        let begun = Instant::now();
        let impossible = |why: &str| Attempted::of(Ending::Impossible(why.into()));
        let made = match (self.is_ready.get(), self.has_failed.get()) {
            (true, false) => attempt(&self.system, wanted, *within).await,
            (true, true) => impossible("the command of its node had exited"),
            (false, _) => impossible("its node was not ready"),
        };
        let latency = Span(begun.elapsed().as_nanos() as u64);
        let told =
            format!("[check {} ended after {latency}: {}]\n{}", check.0, made.ending, made.output.text());
        let told = self.output.borrow_mut().note(told.trim_end());
        self.write(told).await;
        let said = made.output.last_lines().into();
        self.observe(Observation::Checked { check, latency, ending: made.ending, said }).await;
    }

    async fn probe(self: Rc<Self>, index: usize) {
        let Probe { no, every, timeout, attempt: attempt_of } = &self.system.probes[index];
        for sample in 0.. {
            if self.has_checked.get() {
                return;
            }
            let begun = Instant::now();
            self.sampling.set(self.sampling.get() + 1);
            let made = match attempt_of(sample) {
                Ok(wanted) => attempt(&self.system, &wanted, *timeout).await,
                Err(error) => Attempted::of(Ending::Impossible(error.into())),
            };
            self.sampling.set(self.sampling.get() - 1);
            let latency = Span(begun.elapsed().as_nanos() as u64);
            let said = made.said_by_probe().into();
            let ending = made.ending;
            self.observe(Observation::Probed { probe: *no, sample, latency, ending, said }).await;
            sleep_until(begun + *every).await;
        }
    }

    /// Reports that the system cannot be started. `what` is a predicate.
    async fn give_up(&self, what: String) {
        self.tell(Told::NotReady(what)).await;
    }
}
