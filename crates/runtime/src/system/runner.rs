//! Runs the commands of one life of a node: follows instructions, and tells what it observes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{CheckNo, Ending, Observation, Span};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::attempt::{Attempted, attempt, command, ending_of};
use super::output::Lines;
use super::{NodeSystem, Probe};

/// Time within which a command must end after it was asked to. It is then killed.
pub(crate) const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to find out whether a node is ready, and the longest time of one attempt.
const READY_EVERY: Duration = Duration::from_millis(50);
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the exit of a command to its next start.
const RESTARTS_AFTER: Duration = Duration::from_secs(1);
/// Time for which output is awaited after a command has exited. Programs that it left behind may keep it open.
const OUTPUT_WITHIN: Duration = Duration::from_millis(200);

/// The maximum number of bytes of output in one message.
pub(crate) const PIECE: usize = 16 << 10;

/// What a node's process tells the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Instruction {
    /// Starts the command.
    Prepare,
    /// Sets the system up.
    SetUp,
    /// Carries out a check.
    Check(CheckNo),
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
/// command started remain.
pub(crate) async fn run(
    system: NodeSystem,
    mut instructions: mpsc::UnboundedReceiver<Instruction>,
    told: mpsc::Sender<Told>,
) {
    let shared = Rc::new(Shared {
        system,
        told,
        is_ready: Cell::new(false),
        is_settled: Cell::new(false),
        sampling: Cell::new(0),
        has_checked: Cell::new(false),
        is_stopping: Cell::new(false),
        group: Cell::new(None),
    });
    let (mut is_started, mut is_probing) = (false, false);
    // They end with this function.
    let mut tasks = JoinSet::new();
    while let Some(instruction) = instructions.recv().await {
        let is_start = matches!(instruction, Instruction::Prepare | Instruction::Begin);
        if is_start && !std::mem::replace(&mut is_started, true) {
            tasks.spawn_local(shared.clone().keep_running());
        }
        match instruction {
            Instruction::Prepare => {}
            Instruction::Check(no) => drop(tasks.spawn_local(shared.clone().check(no))),
            Instruction::SetUp => drop(tasks.spawn_local(shared.clone().set_up())),
            Instruction::Begin if !std::mem::replace(&mut is_probing, true) => {
                for index in 0..shared.system.probes.len() {
                    tasks.spawn_local(shared.clone().probe(index));
                }
            }
            Instruction::Begin => {}
            Instruction::Stop => break,
        }
    }
    shared.stop().await;
}

struct Shared {
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
    is_stopping: Cell<bool>,
    /// The process group of the command, while it runs.
    group: Cell<Option<Pid>>,
}

impl Shared {
    async fn stop(&self) {
        self.is_stopping.set(true);
        if let Some(group) = self.group.get() {
            // A command that has stopped itself ends only once it continues.
            let _ = killpg(group, Signal::SIGTERM).and_then(|()| killpg(group, Signal::SIGCONT));
        }
        let asked = Instant::now();
        while self.group.get().is_some() && asked.elapsed() < STOPS_WITHIN {
            sleep(READY_EVERY / 5).await;
        }
        super::end_own(&self.system.id).await;
    }

    /// Tells the node's process something. Waits while that process is busy.
    async fn tell(&self, told: Told) {
        // The receiver is closed only if the node is about to exit.
        drop(self.told.send(told).await);
    }

    async fn observe(&self, observation: Observation) {
        self.tell(Told::Observed(observation)).await;
    }

    async fn keep_running(self: Rc<Self>) {
        if let Err(error) = self.prepare_directories() {
            self.is_settled.set(true);
            return self.give_up(format!("cannot be started: its files cannot be written: {error}")).await;
        }
        loop {
            let ending = match command(&self.system, &self.system.command).spawn() {
                Ok(child) => self.run(child).await,
                Err(error) => {
                    let program = self.system.command.first().map_or("", String::as_str);
                    Ending::Failed(format!("`{program}` cannot be started: {error}").into())
                }
            };
            self.is_settled.set(true);
            if self.is_stopping.get() {
                return;
            }
            if !self.is_ready.get() && !self.system.restarts {
                self.give_up(format!("was not ready when its command ended: {ending}")).await;
            }
            self.observe(Observation::Exited { ending, said: "".into() }).await;
            if !self.system.restarts {
                return;
            }
            sleep(RESTARTS_AFTER).await;
        }
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

    /// Runs one execution of the command to its end.
    async fn run(&self, mut child: Child) -> Ending {
        self.group.set(child.id().map(|it| Pid::from_raw(it.cast_signed())));
        let file = faultline_guard::group_file(&self.system.dir);
        if let Some(group) = self.group.get()
            && let Err(error) = std::fs::write(&file, group.to_string())
        {
            warn!(%error, "cannot write the process group of the command");
        }
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut read = Box::pin(async {
            tokio::join!(self.read(stdout), self.read(stderr));
        });
        let mut ready = Box::pin(async {
            if self.become_ready().await {
                self.is_ready.set(true);
                self.observe(Observation::Ready).await;
            }
            self.is_settled.set(true);
        });
        let (mut is_read, mut is_attempted) = (false, false);
        let status = loop {
            tokio::select! {
                biased;
                () = &mut ready, if !is_attempted => is_attempted = true,
                () = &mut read, if !is_read => is_read = true,
                status = child.wait() => break status,
            }
        };
        if !is_read {
            drop(tokio::time::timeout(OUTPUT_WITHIN, read).await);
        }
        self.group.set(None);
        drop(std::fs::remove_file(&file));
        status.map_or_else(|error| Ending::Failed(error.to_string().into()), ending_of)
    }

    /// Copies output to the log, and observes the lines that match watches.
    async fn read(&self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut lines = Lines::new(&self.system.watches);
        let mut buffer = vec![0; PIECE];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.tell(Told::Output(buffer[..read].to_vec())).await;
            let mut found = Vec::new();
            lines.push(&buffer[..read], |watch, line| {
                found.push(Observation::Logged { watch, line: line.into() });
            });
            for it in found {
                self.observe(it).await;
            }
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
            if last.is_none() || made.ending != Ending::TimedOut {
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
        let Attempted { ending, output } = match self.is_ready.get() {
            true => attempt(&self.system, wanted, *within).await,
            false => Attempted::of(Ending::Failed("its node was not ready".into())),
        };
        let latency = Span(begun.elapsed().as_nanos() as u64);
        let told = format!("[check {} ended after {latency}: {ending}]\n{}\n", check.0, output.trim_end());
        self.tell(Told::Output(told.into_bytes())).await;
        self.observe(Observation::Checked { check, latency, ending, said: "".into() }).await;
    }

    async fn probe(self: Rc<Self>, index: usize) {
        let Probe { no, every, timeout, attempt: attempt_of } = &self.system.probes[index];
        for sample in 0.. {
            if self.has_checked.get() {
                return;
            }
            let begun = Instant::now();
            self.sampling.set(self.sampling.get() + 1);
            let ending = match attempt_of(sample) {
                Ok(wanted) => attempt(&self.system, &wanted, *timeout).await.ending,
                Err(error) => Ending::Failed(error.into()),
            };
            self.sampling.set(self.sampling.get() - 1);
            let latency = Span(begun.elapsed().as_nanos() as u64);
            self.observe(Observation::Probed { probe: *no, sample, latency, ending, said: "".into() }).await;
            sleep_until(begun + *every).await;
        }
    }

    /// Reports that the system cannot be started. `what` is a predicate.
    async fn give_up(&self, what: String) {
        self.tell(Told::NotReady(what)).await;
    }
}
