//! Serves the page of a run: while the run is in progress, and its report at the same address once it has ended. Also
//! serves the list of all records below a directory.
//!
//! The growing record is the only source of the diagram: [`feed`] reads it, and derives everything from its facts as a
//! report does. It judges nothing. Without an open page, nothing is read.
//!
//! | module | contents |
//! | --- | --- |
//! | `requests` | which requests are answered: keys, hosts, origins |
//! | `server` | the answers |
//! | [`feed`] | reads the record of a run in progress |
//! | `list` | the list of all records below a directory |
//! | [`control`] | faults and pauses that the user adds to a run |

pub mod control;
pub mod feed;
mod list;
mod requests;
mod server;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use faultline_report::page::live;
use faultline_trace::Manifest;
use tokio::sync::{Semaphore, watch};

pub use control::Control;
use list::List;
use requests::Keys;

/// The ports that are tried if the user chooses none.
const PORTS: std::ops::RangeInclusive<u16> = 7380..=7399;
/// The maximum number of open pages.
const MOST_PAGES: usize = 16;
/// The interval between two checks for an interruption.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The reason why a page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines could reach the address.
    #[error("the page is served on this machine only (found {0})")]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("cannot serve a page at {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The directory contains no record.
    #[error("there is no record in {}", .0.display())]
    NoRecords(PathBuf),
    /// The operating system provided no random bytes for the keys.
    #[error("cannot generate a key: {0}")]
    Random(getrandom::Error),
    /// The server cannot start.
    #[error("cannot start the server: {0}")]
    Start(#[source] io::Error),
}

impl ServeError {
    /// Returns the remedy, if the user can do something; `option` is the option with the address.
    pub fn help(&self, option: &str) -> Option<String> {
        match self {
            ServeError::NotLoopback(address) => Some(format!(
                "use 127.0.0.1:{port}, and `ssh -L {port}:127.0.0.1:{port}` from the other machine",
                port = address.port()
            )),
            ServeError::Listen(..) => Some(format!("use another port with `{option}`")),
            ServeError::NoRecords(_) => Some("specify a directory that contains records of runs".to_owned()),
            ServeError::Random(_) | ServeError::Start(_) => None,
        }
    }
}

/// What the page shows.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// The run has not begun, or cannot be followed. Contains the page, which asks again.
    Waiting(Arc<str>),
    /// The run is in progress.
    Running(Arc<Manifest>),
    /// The run has ended, or cannot be shown. Contains the page.
    Over(Arc<str>),
}

impl Stage {
    /// Returns the name of the stage, which the page states when it asks for events.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Stage::Waiting(_) => "waiting",
            Stage::Running(_) => "running",
            Stage::Over(_) => "over",
        }
    }
}

/// What all open pages show. Each page has a receiver of its own.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) stage: Stage,
    pub(crate) update: Arc<live::Update>,
}

/// One run, and what all its open pages show.
pub(crate) struct Run {
    pub(crate) shown: watch::Sender<Shown>,
}

impl Run {
    /// Creates a run that has not begun.
    pub(crate) fn new() -> Run {
        let text = "The run has not begun, or its record is being read.";
        let stage = Stage::Waiting(live::message("Waiting", text, true).into());
        Run { shown: watch::Sender::new(Shown { stage, update: Arc::default() }) }
    }

    /// Returns whether a page is open.
    pub(crate) fn is_watched(&self) -> bool {
        self.shown.receiver_count() > 0
    }

    /// Shows a page from now on.
    pub(crate) fn show(&self, page: String) {
        self.shown.send_modify(|it| it.stage = Stage::Over(page.into()));
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.shown.borrow().stage, Stage::Over(_))
    }
}

/// What the server's threads share.
pub(crate) struct Shared {
    /// The run with number 1, unless there is a list.
    pub(crate) run: Arc<Run>,
    pub(crate) list: Option<Arc<List>>,
    pub(crate) keys: Keys,
    pub(crate) control: Option<Control>,
    pub(crate) pages: Arc<Semaphore>,
}

/// A server of the page of a run, or of a list. It ends with the program.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    watch: String,
    control: Option<String>,
    /// The thread that reads the record.
    feed: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Server {
    /// Starts a server at this address, or at a free port of this machine. With `control`, a second address of the page
    /// can change the run.
    ///
    /// # Errors
    ///
    /// Fails if other machines could reach the address, if it cannot be used, or if the server cannot start.
    pub fn start(address: Option<SocketAddr>, control: Option<Control>) -> Result<Server, ServeError> {
        Server::of(address, control, None)
    }

    /// Starts a server of the list of all records below a directory.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`Server::start`], and if there is no record.
    pub fn of_list(address: Option<SocketAddr>, dir: &Path) -> Result<Server, ServeError> {
        Server::of(address, None, Some(List::start(dir)?))
    }

    fn of(
        address: Option<SocketAddr>,
        control: Option<Control>,
        list: Option<Arc<List>>,
    ) -> Result<Server, ServeError> {
        let listener = listen(address)?;
        let address = listener.local_addr().map_err(ServeError::Start)?;
        let watch = new_key()?;
        let control_key = control.is_some().then(new_key).transpose()?;
        let shared = Arc::new(Shared {
            run: Arc::new(Run::new()),
            list,
            keys: Keys::new(&watch, control_key.as_deref()),
            control,
            pages: Arc::new(Semaphore::new(MOST_PAGES)),
        });
        server::spawn(listener, shared.clone()).map_err(ServeError::Start)?;
        Ok(Server { shared, address, watch, control: control_key, feed: Mutex::new(None) })
    }

    /// Returns the address at which the page only shows the run.
    pub fn address(&self) -> String {
        format!("http://{}/{}/", self.address, self.watch)
    }

    /// Returns the address at which the page can also change the run.
    pub fn control_address(&self) -> Option<String> {
        self.control.as_ref().map(|key| format!("http://{}/{key}/", self.address))
    }

    /// Returns what may change the run, if anything may.
    pub fn control(&self) -> Option<&Control> {
        self.shared.control.as_ref()
    }

    /// Starts to follow a run in progress.
    ///
    /// # Errors
    ///
    /// Fails if the operating system cannot start a thread.
    pub fn follow(&self, feed: feed::Feed) -> io::Result<()> {
        let run = self.shared.run.clone();
        let handle = thread::Builder::new().name("feed".to_owned()).spawn(move || feed.run(&run))?;
        *self.feed.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Shows a text until the run has ended, for a run that cannot be followed.
    pub fn say(&self, title: &str, text: &str) {
        self.shared.run.shown.send_if_modified(|it| {
            let is_open = matches!(it.stage, Stage::Waiting(_));
            if is_open {
                it.stage = Stage::Waiting(live::message(title, text, true).into());
            }
            is_open
        });
    }

    /// Shows a page instead of the run, which has ended.
    pub fn show(&self, page: String) {
        self.shared.run.show(page);
    }

    /// Serves the page until `interrupted` is set or, if `patience` is set, until no page has been open for this time.
    pub fn serve(&self, interrupted: &AtomicBool, patience: Option<Duration>) {
        let mut seen = Instant::now();
        while !interrupted.load(Ordering::Relaxed) {
            if self.shared.run.is_watched() {
                seen = Instant::now();
            }
            if patience.is_some_and(|it| seen.elapsed() >= it) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Opens the port. Only programs on this machine can reach it.
fn listen(address: Option<SocketAddr>) -> Result<TcpListener, ServeError> {
    if let Some(address) = address {
        return match address.ip().is_loopback() {
            true => TcpListener::bind(address).map_err(|error| ServeError::Listen(address, error)),
            false => Err(ServeError::NotLoopback(address)),
        };
    }
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let free = PORTS.map(local).find_map(|it| TcpListener::bind(it).ok());
    free.map_or_else(|| TcpListener::bind(local(0)).map_err(|error| ServeError::Listen(local(0), error)), Ok)
}

/// Returns 128 random bits as hexadecimal digits.
fn new_key() -> Result<String, ServeError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(ServeError::Random)?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}
