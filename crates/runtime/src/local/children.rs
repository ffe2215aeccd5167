//! Child processes as places: starting, signalling and reaping them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{Boot, FaultNo, Life, ProcessId, Span, StorageFate, Time};
use faultline_guard::{
    Guard, MOST_SEARCHES, PAUSE, RunId, VARIABLE, group_file, kill_group, matching, signal_all,
};
use faultline_shaper::Kernel;
use faultline_tc::namespace::Hub;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;
use tracing::warn;

use super::slices::{Slices, SlowLife};
use crate::clock::Clock;
use crate::exits::{has_ended, is_by_kill, last_output};
use crate::node::{NodeInput, NodeOptions};
use crate::supervise::places::{GRACE_PERIOD, HostEvent, PlaceBackend, Seen};
use crate::supervise::{PlaceContext, RunError};
use crate::system::{STOPS_WITHIN, end_commands};

/// The directory with a directory for each node.
const NODES: &str = "nodes";

/// All children of a run, including those that have ended.
pub(super) struct Children {
    command: Vec<OsString>,
    run_dir: PathBuf,
    names: Vec<String>,
    /// The hub between the children's network namespaces, if they have any, and the features of traffic
    /// control in use there.
    hub: Option<(Hub, Kernel)>,
    place_context: PlaceContext,
    /// For a system, the identifiers of its nodes' commands, and the program that ends them with this one.
    commands: Option<Commands>,
    children: BTreeMap<(ProcessId, Life), Child>,
    /// The processes whose commands are slow: the fault, and the percentage of its time that what they do takes.
    slow: BTreeMap<ProcessId, (FaultNo, u32)>,
    /// The lives whose commands are slow.
    slices: BTreeMap<ProcessId, Slices>,
    /// The lives whose commands are paused.
    paused: BTreeSet<(ProcessId, Life)>,
}

/// The commands of a system.
struct Commands {
    run: RunId,
    _guard: Guard,
}

struct Child {
    pid: Pid,
    /// Exit status, and the time by which the process had exited.
    exited: watch::Receiver<Option<(ExitStatus, Time)>>,
    /// Whether the child was running when it was killed on request.
    killed: Rc<Cell<bool>>,
}

impl Children {
    /// Creates places for children that execute `command` and work in `run_dir`.
    pub(super) fn new(
        command: Vec<OsString>,
        run_dir: PathBuf,
        names: Vec<String>,
        hub: Option<(Hub, Kernel)>,
        place_context: PlaceContext,
        is_system: bool,
    ) -> Result<Children, RunError> {
        let commands = is_system.then(|| Commands::guarded(&command, &run_dir)).transpose()?;
        let (children, slow, slices, paused) = Default::default();
        Ok(Children { command, run_dir, names, hub, place_context, commands, children, slow, slices, paused })
    }

    /// Removes the stored data of the node of `process`, and those of its command.
    fn wipe(&self, process: ProcessId) -> Result<(), RunError> {
        ["store", "data"].into_iter().try_for_each(|it| {
            let path = self.node_dir(process).join(it);
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(RunError::Directory { path, source: error })
                }
                _ => Ok(()),
            }
        })
    }

    /// Signals a child. Returns whether it was running.
    fn signal(&mut self, process: ProcessId, life: Life, signal: Signal) -> Result<bool, RunError> {
        let Some(child) = self.children.get_mut(&(process, life)) else { return Ok(false) };
        // Once the child has been reaped, its process ID may belong to another process.
        if !child.is_alive() || has_ended(child.pid) {
            return Ok(false);
        }
        child.killed.set(child.killed.get() || signal == Signal::SIGKILL);
        // The programs that are the child's protocol and application belong to the child's group.
        match killpg(child.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(true),
            Err(source) => Err(RunError::Signal { process, source }),
        }
    }

    /// Returns a report that a life has just been killed or paused.
    fn seen_now(&self, process: ProcessId, life: Life) -> Seen {
        let at = Some(self.place_context.clock.now());
        Seen { process, life, at, exited: None, error: Span::ZERO, is_idle: false }
    }

    fn node_dir(&self, process: ProcessId) -> PathBuf {
        self.run_dir.join(NODES).join(&self.names[process.index()])
    }

    fn log_path(&self, process: ProcessId, life: Life) -> PathBuf {
        self.node_dir(process).join(format!("{}.log", life.0))
    }
}

impl Children {
    /// Returns the identifiers of the commands of these lives; none if there are no commands.
    fn ids_of(&self, lives: &[(ProcessId, Life)]) -> BTreeSet<String> {
        let of = |Commands { run, .. }: &Commands| {
            lives.iter().map(|&(process, life)| run.of_life(process, life)).collect()
        };
        self.commands.as_ref().map(of).unwrap_or_default()
    }

    /// Returns whether no command of a life of a system is running. Programs that a command has left behind count.
    fn is_idle(&self, life: (ProcessId, Life)) -> bool {
        let Some(Commands { run, .. }) = &self.commands else { return false };
        // The node keeps this file as long as the first process of the command runs.
        let group = group_file(&self.node_dir(life.0).join(life.1.0.to_string()));
        let id = run.of_life(life.0, life.1);
        !group.exists() && !is_running(|it| it == id, &self.pids_of(&[life]))
    }

    /// Slows the commands of the newest life of a process down if a fault says so.
    fn begin_slices(&mut self, process: ProcessId) {
        self.slices.remove(&process);
        let mut lives = self.children.range((process, Life(0))..=(process, Life(u32::MAX)));
        let newest = lives.next_back().filter(|it| it.1.is_alive());
        let Some((&(no, percent), (&(_, life), child))) = self.slow.get(&process).zip(newest) else { return };
        let Some(commands) = &self.commands else { return };
        let (id, node) = (commands.run.of_life(process, life), child.pid);
        let is_paused = self.paused.contains(&(process, life));
        let of = SlowLife { no, process, life, id, node, percent, is_paused };
        let PlaceContext { clock, host_events, .. } = &self.place_context;
        self.slices.insert(process, Slices::begin(of, *clock, host_events.clone()));
    }

    /// Returns the numbers of the nodes' own processes.
    fn pids_of(&self, lives: &[(ProcessId, Life)]) -> Vec<Pid> {
        lives.iter().filter_map(|it| Some(self.children.get(it)?.pid)).collect()
    }
}

impl Commands {
    /// Starts the guard of a run's commands with `command`, which starts a node.
    fn guarded(command: &[OsString], run_dir: &Path) -> Result<Commands, RunError> {
        let run = RunId::generate().map_err(RunError::Secret)?;
        // What commands leave behind becomes a child of this process when their node has been killed.
        if let Err(error) = set_child_subreaper(true) {
            warn!(%error, "cannot adopt what commands leave behind");
        }
        let guard = Guard::start(command, &run, &run_dir.join(NODES), false);
        let program = command.first().cloned().unwrap_or_default();
        let guard = guard.map_err(|source| RunError::Launch { program, source })?;
        Ok(Commands { run, _guard: guard })
    }
}

/// Returns whether any process of these commands is running, apart from those of probes and checks.
fn is_running(is_it: impl Fn(&str) -> bool, nodes: &[Pid]) -> bool {
    matching(is_it, nodes).into_iter().any(|it| !faultline_guard::is_of_attempt(it))
}

/// Reaps processes of commands that have been killed, and that this process has adopted. Until then, their numbers remain
/// in use, and some programs take that of their earlier life for a sign that it still runs.
async fn reap(commands: &[Pid]) {
    let is_alive = |pid: &Pid| waitpid(*pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
    let mut left: Vec<Pid> = commands.to_vec();
    for _ in 0..MOST_SEARCHES {
        // Another process has adopted those that cannot be waited for.
        left.retain(is_alive);
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl PlaceBackend for Children {
    fn kernel(&self, _: ProcessId) -> Option<Kernel> {
        self.hub.as_ref().map(|&(_, kernel)| kernel)
    }

    fn launch(&mut self, process: ProcessId, life: Life, _: Boot) -> Result<(), RunError> {
        let dir = self.node_dir(process);
        let log_path = self.log_path(process, life);
        let log = fs::create_dir_all(&dir)
            .and_then(|()| File::create(&log_path))
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|source| RunError::Directory { path: dir, source })?;
        let options = NodeOptions {
            run_dir: self.run_dir.clone(),
            supervisor: self.place_context.control,
            parent: std::process::id(),
            process,
            life,
            port: 0,
            own_network: self.hub.is_some(),
            shaper: None,
            executor: None,
        };
        let (program, first) = self.command.split_first().expect("a command starts with a program");
        let mut command = Command::new(program);
        if program == super::THIS_PROGRAM {
            // Lists of processes show the name by which this program was started.
            command.arg0(std::env::args_os().next().unwrap_or_default());
        }
        command
            .args(first)
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(log.0)
            .stderr(log.1)
            // Signals from the terminal must reach only the supervisor.
            .process_group(0)
            .kill_on_drop(true);
        let group = group_file(&self.node_dir(process).join(life.0.to_string()));
        let id = self.commands.as_ref().map(|it| it.run.of_life(process, life));
        command.envs(id.iter().map(|it| (VARIABLE, it)));
        let spawned = match &self.hub {
            Some((hub, _)) => hub.within(|| command.spawn()).map_err(RunError::Namespace)?,
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|source| RunError::Launch { program: program.clone(), source })?;
        let pid = Pid::from_raw(child.id().expect("the child has not been reaped").cast_signed());
        let mut stdin = child.stdin.take().expect("standard input is piped");
        let secret = self.place_context.keys.of(process).expect("every process has a key");
        let input = NodeInput::bytes(secret, &self.place_context.description);
        tokio::task::spawn_local(async move {
            if let Err(error) = stdin.write_all(&input).await {
                warn!(%process, %error, "cannot pass the key to the process");
            }
        });
        let (exit, exited) = watch::channel(None);
        let killed = Rc::new(Cell::new(false));
        let (host_events, is_ordered) = (self.place_context.host_events.clone(), killed.clone());
        let clock = self.place_context.clock;
        tokio::task::spawn_local(async move {
            let status = child.wait().await.expect("a child can be waited for");
            // A program that does not end with its input has survived the child.
            let _ = killpg(pid, Signal::SIGKILL);
            // So have the commands of a system's node.
            if let Some(id) = id {
                let commands = matching(|it| it == id, &[]);
                kill_group(&group);
                end_commands(|it| it == id, &[]).await;
                reap(&commands).await;
            }
            exit.send_replace(Some((status, clock.now())));
            let is_expected = is_ordered.get() && is_by_kill(status);
            let unexpected_end = (!is_expected).then(|| (status.to_string(), last_output(&log_path)));
            host_events.put(HostEvent::Ended { process, life, unexpected_end });
        });
        self.children.insert((process, life), Child { pid, exited, killed });
        self.begin_slices(process);
        Ok(())
    }

    fn hosts(&self, process: ProcessId, life: Life) -> bool {
        self.children.get(&(process, life)).is_some_and(Child::is_alive)
    }

    fn clock(&self, _: ProcessId) -> Clock {
        self.place_context.clock
    }

    async fn kill(&mut self, lives: &[(ProcessId, Life)], storage: StorageFate) -> Result<(), RunError> {
        let alive: Vec<_> =
            lives.iter().copied().filter(|&(process, life)| self.hosts(process, life)).collect();
        alive.iter().for_each(|it| drop(self.slices.remove(&it.0)));
        let ids = self.ids_of(&alive);
        // A search takes much longer than the signals that follow.
        let commands = match ids.is_empty() {
            true => Vec::new(),
            false => matching(|it| ids.contains(it), &self.pids_of(&alive)),
        };
        let idle: Vec<bool> = alive.iter().map(|it| self.is_idle(*it)).collect();
        let mut seen = Vec::with_capacity(alive.len());
        for (&(process, life), is_idle) in alive.iter().zip(idle) {
            if self.signal(process, life, Signal::SIGKILL)? {
                seen.push(Seen { is_idle, ..self.seen_now(process, life) });
            }
        }
        // After the nodes' own processes, which would otherwise observe the ends of their commands.
        signal_all(&commands, Signal::SIGKILL);
        if !ids.is_empty() {
            end_commands(|it| ids.contains(it), &[]).await;
        }
        for life in &alive {
            let child = self.children.get_mut(life).expect("the child was signalled");
            child.exited.wait_for(Option::is_some).await.expect("the child's task sends before it ends");
        }
        // This process adopts them once the nodes' own processes have exited.
        reap(&commands).await;
        seen.retain_mut(|it| {
            it.exited = self.children[&(it.process, it.life)].killed_at();
            it.exited.is_some()
        });
        if storage == StorageFate::Lost {
            lives.iter().try_for_each(|&(process, _)| self.wipe(process))?;
        }
        self.place_context.host_events.put(HostEvent::Stopped(seen));
        Ok(())
    }

    async fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), RunError> {
        let signal = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
        let is_running = match &self.commands {
            None => self.signal(process, life, signal)?,
            // The node's own process continues: it observes the command.
            Some(commands) => {
                match paused {
                    true => drop(self.paused.insert((process, life))),
                    false => drop(self.paused.remove(&(process, life))),
                }
                if let Some(slices) = self.slices.get(&process) {
                    slices.set_paused(paused);
                }
                let child = self.children.get(&(process, life)).filter(|it| it.is_alive());
                let id = commands.run.of_life(process, life);
                child.is_some_and(|child| {
                    let is_running = is_running(|it| it == id, &[child.pid]);
                    // A command that starts another one meanwhile is found the second time.
                    for _ in 0..2 {
                        faultline_guard::signal(|it| it == id, &[child.pid], signal);
                    }
                    is_running
                })
            }
        };
        if paused {
            let seen = self.seen_now(process, life);
            let is_idle = !is_running && self.commands.is_some();
            let seen = Seen { at: seen.at.filter(|_| is_running), is_idle, ..seen };
            self.place_context.host_events.put(HostEvent::Paused(seen));
        }
        Ok(())
    }

    fn slow(&mut self, process: ProcessId, by: Option<(FaultNo, u32)>) {
        match by {
            Some(by) => drop(self.slow.insert(process, by)),
            None => drop(self.slow.remove(&process)),
        }
        self.begin_slices(process);
    }

    async fn end(&mut self, told: &[(ProcessId, Life)]) -> Result<(), RunError> {
        self.slices.clear();
        let ends = told.iter().filter_map(|life| self.children.get(life)).map(|child| child.exited.clone());
        let ends: Vec<_> = ends.collect();
        let all_ended = async {
            for mut end in ends {
                drop(end.wait_for(Option::is_some).await);
            }
        };
        let stops_within = if self.commands.is_some() { STOPS_WITHIN } else { Duration::ZERO };
        drop(tokio::time::timeout(stops_within + GRACE_PERIOD, all_ended).await);
        let alive = self.children.iter().filter(|(_, child)| child.is_alive()).map(|(&life, _)| life);
        let alive: Vec<_> = alive.collect();
        self.kill(&alive, StorageFate::Kept).await?;
        Ok(())
    }
}

impl Child {
    fn is_alive(&self) -> bool {
        self.exited.borrow().is_none()
    }

    /// Returns the time by which the child had exited if it ended because it was killed on request.
    fn killed_at(&self) -> Option<Time> {
        let (_, at) = self.exited.borrow().filter(|(status, _)| self.killed.get() && is_by_kill(*status))?;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::sync::mpsc;

    use super::*;
    use crate::secret::Keys;
    use crate::supervise::places::HostEvents;
    use crate::transport::tests::run;

    const PROCESS: ProcessId = ProcessId(0);
    const LIFE: Life = Life(1);

    /// Starts a child that executes a shell command.
    fn child(
        dir: &Path,
        command: &str,
    ) -> (Children, mpsc::UnboundedReceiver<(faultline_core::Time, HostEvent)>) {
        let clock = Clock::start();
        let (host_events, happened) = HostEvents::new(clock);
        let control = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let (keys, description) = (Keys::generate(1).unwrap(), Arc::default());
        let context = PlaceContext { clock, keys, description, control, host_events };
        let command = ["sh", "-c", command].map(OsString::from).to_vec();
        let mut children =
            Children::new(command, dir.to_owned(), vec!["p0".into()], None, context, false).unwrap();
        children.launch(PROCESS, LIFE, Boot::Fresh).unwrap();
        (children, happened)
    }

    /// Kills a child that executes `command`, once it is running or, if `ends`, once it has ended by itself. Returns
    /// the number of times at which it was seen to stop, and its unexpected exit status.
    async fn killed(command: &str, ends: bool) -> (usize, Option<String>) {
        let dir = tempfile::tempdir().unwrap();
        let (mut children, mut happened) = child(dir.path(), command);
        let pid = children.children[&(PROCESS, LIFE)].pid;
        let begin = Instant::now();
        // Without a turn of the runtime, nothing reaps the child.
        while has_ended(pid) != ends {
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(1));
        }
        children.kill(&[(PROCESS, LIFE)], StorageFate::Kept).await.unwrap();
        let (mut stopped, mut status) = (None, None);
        while let Ok((_, event)) = happened.try_recv() {
            match event {
                HostEvent::Stopped(seen) => stopped = Some(seen.len()),
                HostEvent::Ended { unexpected_end, .. } => status = Some(unexpected_end.map(|it| it.0)),
                _ => unreachable!("no other event happens"),
            }
        }
        (stopped.unwrap(), status.expect("the end is reported"))
    }

    #[test]
    fn a_child_that_ended_by_itself_was_not_killed() {
        run(async {
            assert_eq!(killed("exec sleep 60", false).await, (1, None));
            assert_eq!(killed("exit 3", true).await, (0, Some("exit status: 3".into())));
            let own_kill = (0, Some("signal: 9 (SIGKILL)".into()));
            assert_eq!(killed("kill -9 $$", true).await, own_kill);
        });
    }

    #[test]
    fn a_child_that_ended_by_itself_was_not_paused() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (mut children, mut happened) = child(dir.path(), "exit 3");
            while !has_ended(children.children[&(PROCESS, LIFE)].pid) {
                std::thread::sleep(Duration::from_millis(1));
            }
            children.pause(PROCESS, LIFE, true).await.unwrap();
            let Ok((_, HostEvent::Paused(seen))) = happened.try_recv() else { panic!("no answer") };
            assert_eq!((seen.process, seen.life, seen.at), (PROCESS, LIFE, None));
        });
    }
}
