//! Child processes: starting, signalling and burying them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use faultline_core::{Life, ProcessId};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::LocalError;
use super::host::Happening;
use crate::node::NodeOptions;
use crate::secret::Secret;

/// Bytes of a log that stand in an outcome.
const LAST_WORDS: usize = 2000;

/// All children of a run, the dead ones too.
pub(super) struct Children {
    pub(super) command: Vec<OsString>,
    pub(super) secret: Secret,
    pub(super) run_dir: PathBuf,
    pub(super) names: Vec<String>,
    pub(super) happenings: mpsc::UnboundedSender<Happening>,
    children: BTreeMap<(ProcessId, Life), Child>,
}

struct Child {
    pid: Pid,
    exited: watch::Receiver<Option<ExitStatus>>,
    /// Its end is of our making.
    killed: bool,
}

impl Children {
    pub(super) fn new(
        command: Vec<OsString>,
        secret: Secret,
        run_dir: PathBuf,
        names: Vec<String>,
        happenings: mpsc::UnboundedSender<Happening>,
    ) -> Children {
        Children { command, secret, run_dir, names, happenings, children: BTreeMap::new() }
    }

    /// Starts a life.
    pub(super) fn launch(&mut self, options: &NodeOptions) -> Result<(), LocalError> {
        let (process, life) = (options.process, options.life);
        let dir = self.node_dir(process);
        let log = self.log_path(process, life);
        let log = fs::create_dir_all(&dir)
            .and_then(|()| File::create(log))
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|source| LocalError::Directory { path: dir, source })?;
        let (program, first) = self.command.split_first().expect("a command starts with a program");
        let mut child = Command::new(program)
            .args(first)
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(log.0)
            .stderr(log.1)
            // What a terminal sends to the run is for the supervisor to deal with.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| LocalError::Launch { program: program.clone(), source })?;
        let pid = child.id().expect("it has not been waited for");
        let mut stdin = child.stdin.take().expect("it was asked for");
        let line = self.secret.to_line();
        tokio::task::spawn_local(async move {
            if let Err(error) = stdin.write_all(line.as_bytes()).await {
                warn!(%process, %error, "the secret was not taken");
            }
        });
        let (exit, exited) = watch::channel(None);
        let happenings = self.happenings.clone();
        tokio::task::spawn_local(async move {
            let status = child.wait().await.expect("a child can be waited for");
            exit.send_replace(Some(status));
            drop(happenings.send(Happening::Exited { process, life }));
        });
        let child = Child { pid: Pid::from_raw(pid as i32), exited, killed: false };
        self.children.insert((process, life), child);
        Ok(())
    }

    /// Whether a life was started and is not known to have ended.
    pub(super) fn is_alive(&self, process: ProcessId, life: Life) -> bool {
        self.children.get(&(process, life)).is_some_and(Child::is_alive)
    }

    /// Kills lives, and returns when they are gone.
    pub(super) async fn kill(&mut self, lives: &[(ProcessId, Life)]) -> Result<(), LocalError> {
        for &(process, life) in lives {
            self.signal(process, life, Signal::SIGKILL)?;
        }
        for life in lives {
            if let Some(child) = self.children.get_mut(life) {
                child.exited.wait_for(Option::is_some).await.expect("its task sends before it ends");
            }
        }
        Ok(())
    }

    /// Kills everyone.
    pub(super) async fn kill_all(&mut self) -> Result<(), LocalError> {
        let alive = self.children.iter().filter(|(_, child)| child.is_alive()).map(|(&life, _)| life);
        let alive: Vec<_> = alive.collect();
        self.kill(&alive).await
    }

    /// Stops a life where it stands, or lets it go on.
    pub(super) fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), LocalError> {
        self.signal(process, life, if paused { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Removes what the node of `process` had stored.
    pub(super) fn wipe(&self, process: ProcessId) -> Result<(), LocalError> {
        let path = self.node_dir(process).join("store");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LocalError::Directory { path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Status and last words of a life that has ended by itself; `None` when it was killed.
    pub(super) fn collapse(&self, process: ProcessId, life: Life) -> Option<(String, String)> {
        let child = self.children.get(&(process, life))?;
        let status = (*child.exited.borrow()).filter(|_| !child.killed)?;
        Some((status.to_string(), last_words(&self.log_path(process, life))))
    }

    fn signal(&mut self, process: ProcessId, life: Life, signal: Signal) -> Result<(), LocalError> {
        let Some(child) = self.children.get_mut(&(process, life)) else { return Ok(()) };
        // One that has ended and was waited for: its number may be another's by now.
        if !child.is_alive() {
            return Ok(());
        }
        child.killed |= signal == Signal::SIGKILL;
        match kill(child.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(source) => Err(LocalError::Signal { process, source }),
        }
    }

    fn node_dir(&self, process: ProcessId) -> PathBuf {
        self.run_dir.join("nodes").join(&self.names[process.index()])
    }

    fn log_path(&self, process: ProcessId, life: Life) -> PathBuf {
        self.node_dir(process).join(format!("{}.log", life.0))
    }
}

impl Child {
    fn is_alive(&self) -> bool {
        self.exited.borrow().is_none()
    }
}

fn last_words(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(LAST_WORDS)..];
    String::from_utf8_lossy(tail).trim().to_owned()
}
