//! An executor hosts the runner of a node's commands in a container of its own, with the system's own image: it is the first
//! process there, and stays while the node's lives come and go. It knows no key, and can do nothing that the commands
//! cannot do as well, so the node's process and the agent [check](super::commands) everything that it says.
//!
//! It listens on a socket in a directory that its container shares with the agent's. A node's process keeps one
//! connection, over which it instructs the runner. The commands end with this connection. Each request of the agent has a
//! connection of its own.

use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use faultline_core::{Boot, Life, ProcessId};
use nix::fcntl::OFlag;
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::NodeSystem;
use super::runner::{self, Instruction, Told};
use super::{adopt, end_own};
use crate::clock::{monotonic, wait_until};
use crate::control;
use crate::remote::messages::Killed;
use crate::shaper::{ServeError, listen};

/// Number of messages that wait to be sent to the node's process.
const WAITING: usize = 64;
/// Time within which a caller must state what it wants.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time within which an executor answers the agent.
const ANSWER: Duration = Duration::from_secs(4);
/// Time after a termination signal in which an executor still follows orders.
const LINGERS: Duration = Duration::from_secs(1);
/// Length of an executor's longest answer to the agent, in bytes.
const LONGEST_ANSWER: u32 = 64;

/// What a node's process or an agent tells an executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToExecutor {
    /// Begins a life. The first message of the node's process.
    Start(Start),
    /// Instructs the runner. All further messages of the node's process.
    Instruct(Instruction),
    /// Stops all processes of the commands once the monotonic clock shows this time, in nanoseconds.
    StopAt(u64),
    /// Prevents the stop, unless it has begun.
    CancelStop,
    /// Pauses or resumes all processes of the commands.
    Pause(bool),
    /// Ends all processes of the commands.
    Kill,
}

/// A life of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Identifies the run.
    pub run: String,
    /// The process.
    pub process: ProcessId,
    /// The life.
    pub life: Life,
    /// Whether the data of the node exist.
    pub boot: Boot,
    /// The number of the fault in the list whose command the node runs, if it is not its own.
    pub command: Option<u16>,
    /// The description of the run, from the options of its supervisor.
    pub description: Vec<u8>,
}

/// An executor's answer to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// Whether the order took effect: for example, whether there were processes to pause.
    Done(bool),
    Killed(Killed),
}

/// The reason why an executor exited without a termination signal.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The asynchronous runtime, or the handling of signals, failed.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The executor could not protect its memory.
    #[error("cannot change the properties of this process: {0}")]
    Process(nix::Error),
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] ServeError),
}

/// Hosts the runner of one life after another until a termination signal arrives. `data` is the directory for the data and
/// the working directories of the node; those of other runs are removed. `make` returns what the node runs in a life, given
/// the directory of the run, or the reason why it cannot run.
///
/// # Errors
///
/// Fails if the executor cannot start, or if the socket fails.
pub fn serve(
    socket: &Path,
    data: PathBuf,
    make: impl Fn(&Start, &Path) -> Result<NodeSystem, String> + 'static,
) -> Result<(), ExecutorError> {
    // The commands run as the same user.
    set_dumpable(false).map_err(ExecutorError::Process)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(ExecutorError::Runtime)?;
    runtime.block_on(async {
        adopt().map_err(ExecutorError::Runtime)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(ExecutorError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ExecutorError::Runtime)?;
        let listener = listen(socket)?;
        let executor = Rc::new(Executor {
            make: Box::new(make),
            data,
            session: Cell::new(None),
            id: RefCell::default(),
            strike: Cell::new(None),
        });
        let ended = tokio::select! {
            error = answer_all(&listener, &executor) => Err(ServeError::Accept(error).into()),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        if ended.is_ok() {
            // If the whole pod terminates, the agent ends the life. Otherwise, it would seem to have ended by itself.
            let _ = timeout(LINGERS, answer_all(&listener, &executor)).await;
        }
        executor.end_life().await;
        ended
    })
}

async fn answer_all(listener: &UnixListener, executor: &Rc<Executor>) -> io::Error {
    loop {
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return error,
        };
        match timeout(PATIENCE, control::receive(&mut stream)).await {
            Ok(Ok(order)) => {
                if let Err(error) = executor.follow(order, stream).await {
                    debug!(%error, "a caller closed the connection");
                }
            }
            Ok(Err(error)) => debug!(%error, "a caller closed the connection"),
            Err(_) => warn!("a caller did not complete its request in time"),
        }
    }
}

/// Returns what a node runs in a life, given the directory of the run, or the reason why it cannot run.
type Make = dyn Fn(&Start, &Path) -> Result<NodeSystem, String>;

struct Executor {
    make: Box<Make>,
    data: PathBuf,
    /// The task that hosts the current life.
    session: Cell<Option<task::JoinHandle<()>>>,
    /// Identifies the processes of the current life.
    id: RefCell<String>,
    strike: Cell<Option<Strike>>,
}

impl Executor {
    async fn follow(self: &Rc<Self>, order: ToExecutor, mut stream: UnixStream) -> io::Result<()> {
        let answer = match order {
            ToExecutor::Start(start) => {
                self.end_life().await;
                self.id.replace(format!("{}-{}-{}", start.run, start.process.0, start.life.0));
                self.session.set(Some(task::spawn_local(self.clone().host(start, stream))));
                return Ok(());
            }
            ToExecutor::Instruct(_) => return Err(io::Error::other("the life has not been started")),
            ToExecutor::StopAt(at) => {
                self.strike.set(Some(Strike::at(at, self.id.borrow().clone())?));
                Answer::Done(true)
            }
            ToExecutor::CancelStop => Answer::Done(self.strike.take().is_none_or(|it| it.finish().is_none())),
            ToExecutor::Pause(paused) => {
                let order = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
                let is_running = self.signal(order);
                // A command that starts another one meanwhile is found the second time.
                Answer::Done(self.signal(order) || is_running)
            }
            ToExecutor::Kill => {
                let stopped = self.strike.take().and_then(Strike::finish);
                self.signal(Signal::SIGKILL);
                let stopped = stopped.unwrap_or_else(monotonic);
                self.end_life().await;
                Answer::Killed(Killed { stopped, exited: monotonic() })
            }
        };
        control::send(&mut stream, &answer).await
    }

    /// Signals the processes of the commands. Returns whether there are any.
    fn signal(&self, signal: Signal) -> bool {
        let id = self.id.borrow();
        faultline_guard::signal(|it| it == *id, &[getpid()], signal)
    }

    /// Ends the current life, with everything that its commands have started.
    async fn end_life(&self) {
        if let Some(session) = self.session.take() {
            session.abort();
            drop(session.await);
        }
        let _ = self.strike.take().and_then(Strike::finish);
        let id = self.id.borrow().clone();
        end_own(&id).await;
    }

    /// Runs a life until its node's process closes the connection, or has instructed it to stop.
    async fn host(self: Rc<Self>, start: Start, stream: UnixStream) {
        let (mut read, mut write) = stream.into_split();
        let id = self.id.borrow().clone();
        let system = match self.prepare(&start) {
            Ok(system) => NodeSystem { id: id.clone(), ..system.booted(start.boot, start.command) },
            Err(why) => return drop(control::send(&mut write, &Told::NotReady(why)).await),
        };
        let (instructions, instructed) = mpsc::unbounded_channel();
        let (telling, mut told) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        tasks.spawn_local(runner::run(system, instructed, telling, None));
        let follow = async {
            while let Ok(ToExecutor::Instruct(it)) = control::receive(&mut read).await {
                let _ = instructions.send(it);
            }
        };
        let tell = async {
            while let Some(it) = told.recv().await {
                if control::send(&mut write, &it).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = tell => {}
        }
        tasks.shutdown().await;
        end_own(&id).await;
    }

    /// Prepares the directories of a life, and returns what it runs.
    fn prepare(&self, start: &Start) -> Result<NodeSystem, String> {
        let failed =
            |error: io::Error| format!("cannot be started: its directories cannot be prepared: {error}");
        let run = self.data.join(&start.run);
        fs::create_dir_all(&run).map_err(failed)?;
        for entry in fs::read_dir(&self.data).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path != run && path.is_dir() {
                fs::remove_dir_all(path).map_err(failed)?;
            }
        }
        let system = (self.make)(start, &run)?;
        if start.boot != Boot::Restarted && system.data.exists() {
            fs::remove_dir_all(&system.data).map_err(failed)?;
        }
        Ok(system)
    }
}

/// A thread that stops all processes of the commands at an instant.
struct Strike {
    /// Whether the thread stops them, or the stop has been prevented; empty until either happens.
    stops: Arc<OnceLock<bool>>,
    thread: JoinHandle<u64>,
}

impl Strike {
    fn at(at: u64, id: String) -> io::Result<Strike> {
        let stops = Arc::new(OnceLock::new());
        let decided = Arc::clone(&stops);
        // A search takes much longer than the signals that follow.
        let me = [getpid()];
        let found: Vec<Pid> = faultline_guard::matching(|it| it == id, &me);
        let wait_and_stop = move || {
            wait_until(at);
            if *decided.get_or_init(|| true) {
                for pid in found {
                    // A process that has ended in the meantime needs no signal.
                    let _ = kill(pid, Signal::SIGSTOP);
                }
                faultline_guard::signal(|it| it == id, &me, Signal::SIGSTOP);
            }
            monotonic()
        };
        let thread = thread::Builder::new().name("strike".to_owned()).spawn(wait_and_stop)?;
        Ok(Strike { stops, thread })
    }

    /// Prevents the stop. If it has begun, waits until the processes have stopped instead, and returns when they had.
    fn finish(self) -> Option<u64> {
        if *self.stops.get_or_init(|| false) { self.thread.join().ok() } else { None }
    }
}

/// Connects to an executor. Anyone in its container may replace its socket, but not with a link to another one.
pub(crate) fn connect(socket: &Path) -> io::Result<BlockingStream> {
    let flags = (OFlag::O_PATH | OFlag::O_NOFOLLOW).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(socket)?;
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::other(format!("{} is not a socket", socket.display())));
    }
    BlockingStream::connect(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// An agent's access to the executor at its place.
#[derive(Clone, Debug)]
pub(crate) struct ExecutorClient {
    socket: PathBuf,
}

impl ExecutorClient {
    pub(crate) fn at(socket: &Path) -> ExecutorClient {
        ExecutorClient { socket: socket.to_owned() }
    }

    /// Stops the commands once the monotonic clock shows `at`, in nanoseconds.
    pub(crate) fn stop_at(&self, at: u64) -> io::Result<()> {
        self.ask(&ToExecutor::StopAt(at)).map(drop)
    }

    /// Cancels [`stop_at`](ExecutorClient::stop_at), unless the stop has begun. Returns whether the commands continue.
    pub(crate) fn cancel_stop(&self) -> io::Result<bool> {
        Ok(self.ask(&ToExecutor::CancelStop)? == Answer::Done(true))
    }

    /// Pauses or resumes the commands. Returns whether any were running.
    pub(crate) fn pause(&self, paused: bool) -> io::Result<bool> {
        Ok(self.ask(&ToExecutor::Pause(paused))? == Answer::Done(true))
    }

    /// Ends the commands. Returns when they stopped and had exited.
    pub(crate) fn kill(&self) -> io::Result<Killed> {
        let now = || Killed { stopped: monotonic(), exited: monotonic() };
        match self.ask(&ToExecutor::Kill) {
            Ok(Answer::Killed(it)) => Ok(Killed { stopped: it.stopped.min(monotonic()), ..now() }),
            Ok(Answer::Done(_)) => Err(io::Error::other("the executor sent an unexpected answer")),
            // Nothing outlives the executor: it is the first process of its container.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(now())
            }
            Err(error) => Err(error),
        }
    }

    fn ask(&self, order: &ToExecutor) -> io::Result<Answer> {
        let mut stream = connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.write_all(&control::encoded(order))?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > LONGEST_ANSWER {
            return Err(io::Error::other("the executor's answer is too long"));
        }
        let mut bytes = vec![0; length as usize];
        stream.read_exact(&mut bytes)?;
        postcard::from_bytes(&bytes).map_err(io::Error::other)
    }
}
