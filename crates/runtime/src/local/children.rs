//! Child processes as places: starting, signalling and reaping them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;

use faultline_core::{Boot, Life, ProcessId, Span, StorageFate};
use faultline_shaper::Kernel;
use faultline_tc::namespace::Hub;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::watch;
use tracing::warn;

use crate::clock::Clock;
use crate::node::NodeOptions;
use crate::supervise::places::{GRACE_PERIOD, HostEvent, PlaceBackend, Seen};
use crate::supervise::{PlaceContext, RunError};

/// Number of bytes from the end of a log that are included in the report of an unexpected exit.
const LOG_TAIL_LEN: usize = 2000;

/// All children of a run, including those that have ended.
pub(super) struct Children {
    command: Vec<OsString>,
    run_dir: PathBuf,
    names: Vec<String>,
    /// The hub between the children's network namespaces, if they have any, and the features of traffic
    /// control in use there.
    hub: Option<(Hub, Kernel)>,
    place_context: PlaceContext,
    children: BTreeMap<(ProcessId, Life), Child>,
}

struct Child {
    pid: Pid,
    /// Exit status, once the process has exited.
    exited: watch::Receiver<Option<ExitStatus>>,
    /// Whether the child was killed on request.
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
    ) -> Children {
        Children { command, run_dir, names, hub, place_context, children: BTreeMap::new() }
    }

    /// Removes the stored data of the node of `process`.
    fn wipe(&self, process: ProcessId) -> Result<(), RunError> {
        let path = self.node_dir(process).join("store");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RunError::Directory { path, source: error })
            }
            _ => Ok(()),
        }
    }

    fn signal(&mut self, process: ProcessId, life: Life, signal: Signal) -> Result<(), RunError> {
        let Some(child) = self.children.get_mut(&(process, life)) else { return Ok(()) };
        // Once the child has been reaped, its process ID may belong to another process.
        if !child.is_alive() {
            return Ok(());
        }
        child.killed.set(child.killed.get() || signal == Signal::SIGKILL);
        match kill(child.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(source) => Err(RunError::Signal { process, source }),
        }
    }

    /// Returns a report that a life has just been killed or paused, and executes no further instructions.
    fn seen_now(&self, process: ProcessId, life: Life) -> Seen {
        Seen { process, life, at: Some(self.place_context.clock.now()), error: Span::ZERO }
    }

    fn node_dir(&self, process: ProcessId) -> PathBuf {
        self.run_dir.join("nodes").join(&self.names[process.index()])
    }

    fn log_path(&self, process: ProcessId, life: Life) -> PathBuf {
        self.node_dir(process).join(format!("{}.log", life.0))
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
        };
        let (program, first) = self.command.split_first().expect("a command starts with a program");
        let mut command = Command::new(program);
        command
            .args(first)
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(log.0)
            .stderr(log.1)
            // Signals from the terminal must reach only the supervisor.
            .process_group(0)
            .kill_on_drop(true);
        let spawned = match &self.hub {
            Some((hub, _)) => hub.within(|| command.spawn()).map_err(RunError::Namespace)?,
            None => command.spawn(),
        };
        let mut child = spawned.map_err(|source| RunError::Launch { program: program.clone(), source })?;
        let pid = child.id().expect("the child has not been reaped");
        let mut stdin = child.stdin.take().expect("standard input is piped");
        let line = self.place_context.keys.of(process).expect("every process has a key").to_line();
        tokio::task::spawn_local(async move {
            if let Err(error) = stdin.write_all(line.as_bytes()).await {
                warn!(%process, %error, "cannot pass the key to the process");
            }
        });
        let (exit, exited) = watch::channel(None);
        let killed = Rc::new(Cell::new(false));
        let (host_events, is_ordered) = (self.place_context.host_events.clone(), killed.clone());
        tokio::task::spawn_local(async move {
            let status = child.wait().await.expect("a child can be waited for");
            exit.send_replace(Some(status));
            let unexpected_end = (!is_ordered.get()).then(|| (status.to_string(), last_output(&log_path)));
            host_events.put(HostEvent::Ended { process, life, unexpected_end });
        });
        self.children.insert((process, life), Child { pid: Pid::from_raw(pid as i32), exited, killed });
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
        let mut seen = Vec::with_capacity(alive.len());
        for &(process, life) in &alive {
            self.signal(process, life, Signal::SIGKILL)?;
            seen.push(self.seen_now(process, life));
        }
        for life in alive {
            let child = self.children.get_mut(&life).expect("the child was signalled");
            child.exited.wait_for(Option::is_some).await.expect("the child's task sends before it ends");
        }
        if storage == StorageFate::Lost {
            lives.iter().try_for_each(|&(process, _)| self.wipe(process))?;
        }
        self.place_context.host_events.put(HostEvent::Stopped(seen));
        Ok(())
    }

    async fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), RunError> {
        self.signal(process, life, if paused { Signal::SIGSTOP } else { Signal::SIGCONT })?;
        if paused {
            self.place_context.host_events.put(HostEvent::Stopped(vec![self.seen_now(process, life)]));
        }
        Ok(())
    }

    async fn end(&mut self, told: &[(ProcessId, Life)]) -> Result<(), RunError> {
        let ends = told.iter().filter_map(|life| self.children.get(life)).map(|child| child.exited.clone());
        let ends: Vec<_> = ends.collect();
        let all_ended = async {
            for mut end in ends {
                drop(end.wait_for(Option::is_some).await);
            }
        };
        drop(tokio::time::timeout(GRACE_PERIOD, all_ended).await);
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
}

fn last_output(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_LEN)..];
    String::from_utf8_lossy(tail).trim().to_owned()
}
