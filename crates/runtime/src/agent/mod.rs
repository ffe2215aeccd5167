//! An agent runs at a place of a federation. It starts, kills, pauses and restarts the process there on the
//! supervisor's orders. The agent is the first process of a node's container, so the container survives any failure of
//! the hosted process.
//!
//! An agent makes no decisions. It hosts a single process at a time, forwards the process's facts as they are written,
//! and knows nothing about a run except what the supervisor sends. Without a supervisor, it waits for one.

mod facts;
mod lives;
mod metrics;
mod strike;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use faultline_callers::UntrustedConnections;
use faultline_core::{Life, ProcessId, Span, Time};
use faultline_trace::{Bundle, BundleError};
use nix::sys::prctl::set_child_subreaper;
use thiserror::Error;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info, warn};

use crate::clock::{Alarm, Clock, ClockSource, monotonic};
use crate::control;
use crate::exits::last_output;
use crate::node::{NodeInput, NodeOptions};
use crate::remote::messages::{Assignment, Killed, OrderNo, Ready, ToAgent, ToPlace};
use crate::secret::{Ends, MAGIC, Secret};
use crate::shaper::{Abilities, Shaper, ShaperError};
use facts::{Facts, Logs};
use lives::{End, ORDERLY, Running, reap};
use metrics::Counters;
use strike::KILL_AFTER;

/// Time between two checks for new facts of the process.
const LOOK: Duration = Duration::from_millis(20);
/// Time for which a terminating agent tries to deliver its last messages.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Prefix of the names of run directories.
const RUN: &str = "run-";

/// Options for starting an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Program and first arguments of the command that starts a process; the arguments from [`NodeOptions::to_args`]
    /// follow.
    pub command: Vec<OsString>,
    /// Address on which the agent listens for supervisors, and for requests for its metrics. The agent prints
    /// the actual address to standard output.
    pub listen: SocketAddr,
    /// Key of the hosted process. Besides this agent, only that process and the supervisor know it.
    pub secret: Secret,
    /// Directory for facts and storage. The agent removes other runs' data from it.
    pub data: PathBuf,
    /// UID of the pod. The agent accepts only supervisors that expect this pod at its address.
    pub uid: Option<String>,
    /// Port on which the process listens; 0 for any port.
    pub node_port: u16,
    /// Socket of the shaper that configures traffic control for the process. The agent accepts no connection
    /// until the shaper responds.
    pub shaper: Option<PathBuf>,
    /// Socket of the executor that runs the commands of a system.
    pub executor: Option<PathBuf>,
}

impl AgentOptions {
    /// Returns the key with which supervisors authenticate themselves to the agent.
    fn key_of_connections(&self) -> Secret {
        self.uid.as_ref().map_or_else(|| self.secret.clone(), |uid| self.secret.of_place(uid))
    }
}

/// The reason why an agent exited without a termination signal.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The agent could not become the parent of orphaned processes.
    #[error("cannot become the parent of orphaned processes: {0}")]
    Orphans(nix::Error),
    /// The timer failed.
    #[error("the timer failed: {0}")]
    Alarm(io::Error),
    /// The agent could not wait for signals.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The shaper did not report the features of the kernel.
    #[error("{0}")]
    Shaper(ShaperError),
    /// The port could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// Cause of the failure.
        source: io::Error,
    },
}

/// The reason why an order from the supervisor was not carried out.
#[derive(Debug, Error)]
enum OrderError {
    #[error("cannot use {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot create the directory for facts: {0}")]
    Bundle(BundleError),
    #[error("cannot forward facts: {0}")]
    Facts(io::Error),
    #[error("cannot start {}: {source}", program.display())]
    Launch { program: OsString, source: io::Error },
    #[error("cannot signal a process: {0}")]
    Signal(io::Error),
    #[error("the order arrived before the agent was assigned to a process")]
    NotAssigned,
}

/// Serves supervisors until a termination signal arrives. The hosted process ends with the agent.
///
/// # Errors
///
/// Fails if the agent cannot start, if its shaper does not report the features of the kernel, or if the timer fails.
///
/// # Panics
///
/// Panics if `options.command` is empty.
pub fn run(options: AgentOptions) -> Result<(), AgentError> {
    assert!(!options.command.is_empty(), "a command starts with a program");
    set_child_subreaper(true).map_err(AgentError::Orphans)?;
    // The hosted process ends with the thread that started it, so the current thread must start it.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(AgentError::Runtime)?;
    runtime.block_on(attend(options))
}

enum Stimulus {
    /// A supervisor has connected and proved that it knows the key.
    Called(TcpStream),
    /// A message from a supervisor over the connection with this number.
    Said(u64, ToAgent),
    HungUp(u64),
}

struct Agent {
    options: AgentOptions,
    /// Link-emulation features of the kernel, if the place has a shaper.
    abilities: Option<Abilities>,
    /// Address at which this place was last reached.
    here: Option<IpAddr>,
    stimuli: mpsc::UnboundedSender<Stimulus>,
    counters: Counters,
    /// Number of the newest connection. Messages over older connections are ignored.
    calls: u64,
    supervisor: Option<Link>,
    hosted: Option<Hosted>,
    running: Option<Running>,
    armed: BTreeMap<OrderNo, Life>,
    /// Orders to end armed lives that stop at a given instant, by the time of the kill that follows. The value
    /// indicates whether to remove the storage.
    due: BTreeMap<(Time, OrderNo), bool>,
}

/// The connection to the supervisor.
struct Link {
    words: mpsc::UnboundedSender<ToPlace>,
    writer: JoinHandle<()>,
}

/// The hosted process.
struct Hosted {
    run: String,
    process: ProcessId,
    run_dir: PathBuf,
    node_dir: PathBuf,
    /// Description of the run, which the process reads when it starts.
    description: Vec<u8>,
    facts: Facts,
    logs: Logs,
}

async fn attend(options: AgentOptions) -> Result<(), AgentError> {
    let mut child = signal(SignalKind::child()).map_err(AgentError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signals)?;
    let abilities = match &options.shaper {
        None => None,
        Some(socket) => {
            let shaper = Shaper::at(socket);
            tokio::select! {
                found = shaper.abilities() => Some(found.map_err(AgentError::Shaper)?),
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
            }
        }
    };
    let failed = |address| move |source| AgentError::Listen { address, source };
    let listener = TcpListener::bind(options.listen).await.map_err(failed(options.listen))?;
    let address = listener.local_addr().map_err(failed(options.listen))?;
    let counters = Counters::new(options.shaper.as_deref());
    let (stimuli_in, mut stimuli) = mpsc::unbounded_channel();
    let app = counters.app();
    tokio::task::spawn_local(listen(listener, options.key_of_connections(), stimuli_in.clone(), app));
    // The reader of standard output may have closed it.
    drop(writeln!(io::stdout(), "{address}"));

    let mut agent = Agent {
        options,
        abilities,
        here: None,
        stimuli: stimuli_in,
        counters,
        calls: 0,
        supervisor: None,
        hosted: None,
        running: None,
        armed: BTreeMap::new(),
        due: BTreeMap::new(),
    };
    let mut alarm = Alarm::new(Clock::MACHINE).map_err(AgentError::Alarm)?;
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        alarm.set(agent.due.keys().next().map(|&(at, _)| at)).map_err(AgentError::Alarm)?;
        tokio::select! {
            biased;
            rung = alarm.elapsed(), if alarm.is_set() => {
                rung.map_err(AgentError::Alarm)?;
                agent.fire_due();
            }
            Some(stimulus) = stimuli.recv() => agent.take(stimulus),
            _ = child.recv() => agent.handle_exit(),
            _ = look.tick(), if agent.running.is_some() && agent.supervisor.is_some() => agent.look(),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    agent.leave().await;
    Ok(())
}

impl Agent {
    fn take(&mut self, stimulus: Stimulus) {
        match stimulus {
            Stimulus::Called(stream) => self.called(stream),
            Stimulus::Said(call, order) if call == self.calls => self.obey(order),
            Stimulus::Said(..) => {}
            Stimulus::HungUp(call) => {
                if call == self.calls {
                    debug!("the supervisor closed the connection");
                    self.supervisor = None;
                    self.counters.connected.set(0);
                }
            }
        }
    }

    fn called(&mut self, stream: TcpStream) {
        self.calls += 1;
        self.armed.clear();
        self.due.clear();
        if self.running.as_mut().is_some_and(|it| !it.cancel_stop())
            && let Err(error) = self.end_running()
        {
            warn!(%error, "cannot kill the stopped process");
        }
        let call = self.calls;
        self.here = stream.local_addr().ok().map(|it| it.ip());
        self.counters.at(self.here);
        let (mut read, write) = stream.into_split();
        let (words, written) = mpsc::unbounded_channel();
        self.supervisor = Some(Link { words, writer: tokio::task::spawn_local(speak(write, written)) });
        self.counters.connected.set(1);
        let stimuli = self.stimuli.clone();
        tokio::task::spawn_local(async move {
            loop {
                let stimulus = match control::receive(&mut read).await {
                    Ok(order) => Stimulus::Said(call, order),
                    Err(error) => {
                        debug!(%error, "a connection ended");
                        // The send fails only if the agent is about to exit.
                        return drop(stimuli.send(Stimulus::HungUp(call)));
                    }
                };
                drop(stimuli.send(stimulus));
            }
        });
    }

    fn obey(&mut self, order: ToAgent) {
        debug!(?order, "obeying");
        match order {
            ToAgent::Clock => self.send(ToPlace::Clock(monotonic())),
            ToAgent::Assign(assignment) => {
                if let Err(error) = self.host(assignment) {
                    // The supervisor will reconnect.
                    warn!(%error, "cannot accept the assignment");
                    self.supervisor = None;
                    self.calls += 1;
                }
            }
            ToAgent::Launch { life, keeps_storage, supervisor } => {
                if let Err(error) = self.launch(life, keeps_storage, supervisor) {
                    self.send(ToPlace::Ended { life, status: error.to_string(), last_output: String::new() });
                }
            }
            ToAgent::Arm { order, life } => {
                self.armed.insert(order, life);
                self.send(ToPlace::Armed { order, clock: monotonic() });
            }
            ToAgent::Fire { order, wipe, at: None } => self.fire_now(order, wipe),
            ToAgent::Fire { order, wipe, at: Some(at) } => {
                let armed = self.armed.get(&order).copied();
                if let Some(it) = self.running.as_mut().filter(|it| Some(it.life) == armed) {
                    it.stop_at(at);
                }
                self.due.insert((Clock::MACHINE.at(at) + Span::from(KILL_AFTER), order), wipe);
            }
            ToAgent::Pause { order, life, paused } => {
                let it = self.running.as_ref().filter(|it| it.life == life);
                let (at, problem) = match it.map(|it| it.pause(paused)).transpose() {
                    Ok(at) => (at.flatten(), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                self.send(ToPlace::Paused { order, at, problem });
            }
        }
    }

    /// Carries out all orders that are due.
    fn fire_due(&mut self) {
        while let Some(entry) = self.due.first_entry().filter(|it| it.key().0 <= Clock::MACHINE.now()) {
            let ((_, order), wipe) = entry.remove_entry();
            self.fire_now(order, wipe);
        }
    }

    fn fire_now(&mut self, order: OrderNo, wipe: bool) {
        let (killed, problem) = match self.fire(order, wipe) {
            Ok(killed) => (killed, None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.send(ToPlace::Done { order, killed, problem });
    }

    /// Accepts the assignment to a process, or resumes it after a lost connection.
    fn host(&mut self, assignment: Assignment) -> Result<(), OrderError> {
        let Assignment { run, process, name, cluster_names, description, life, newest, arrived } = assignment;
        self.counters.call(cluster_names);
        if self.hosted.as_ref().is_none_or(|it| it.run != run || it.process != process) {
            self.end_running()?;
            let run_dir = self.options.data.join(format!("{RUN}{run}"));
            self.remove_other_runs(&run_dir)?;
            match Bundle::create(&run_dir) {
                // A previous container of the same pod created it.
                Ok(_) | Err(BundleError::Occupied(_)) => {}
                Err(error) => return Err(OrderError::Bundle(error)),
            }
            let node_dir = run_dir.join("nodes").join(&name);
            let facts = Facts::new(run_dir.clone(), process);
            let logs = Logs::new(&run_dir, &name);
            self.hosted = Some(Hosted { run, process, run_dir, node_dir, description, facts, logs });
        }
        if self.running.as_ref().map(|it| it.life) != life {
            self.end_running()?;
        }
        let hosted = self.hosted.as_mut().expect("assigned above or earlier");
        hosted.facts.resume(newest, &arrived);
        hosted.logs.resume(newest);
        let holds_storage = hosted.node_dir.exists();
        self.send_facts()?;
        info!(process = %process, "assigned to a process");
        self.send(ToPlace::Ready(Ready {
            life: self.running.as_ref().map(|it| it.life),
            holds_storage,
            abilities: self.abilities_here(),
            clock_source: ClockSource::of_this_process(),
        }));
        Ok(())
    }

    /// Returns the kernel's features for link emulation at the address of this place.
    fn abilities_here(&self) -> Option<Abilities> {
        let abilities = self.abilities.clone()?;
        let Some(address @ IpAddr::V6(_)) = self.here else { return Some(abilities) };
        let why = format!("traffic control does not support IPv6, and this place has the address {address}");
        Some(Abilities { lacks: vec![("IPv4".into(), why)], ..Abilities::default() })
    }

    fn launch(&mut self, life: Life, keeps_storage: bool, supervisor: SocketAddr) -> Result<(), OrderError> {
        self.end_running()?;
        // The supervisor no longer waits for orders to end an earlier life. They must not remove the storage of this
        // one.
        self.armed.clear();
        self.due.clear();
        // If an earlier life was still running, the supervisor has fenced it and no longer waits for its facts. Send
        // them now.
        self.send_facts()?;
        self.send(ToPlace::Sent { upto: Life(life.0.saturating_sub(1)) });
        let hosted = self.hosted.as_mut().ok_or(OrderError::NotAssigned)?;
        hosted.facts.follow(life);
        hosted.logs.follow(life);
        if !keeps_storage {
            hosted.wipe()?;
        }
        let options = NodeOptions {
            run_dir: hosted.run_dir.clone(),
            supervisor,
            parent: std::process::id(),
            process: hosted.process,
            life,
            port: self.options.node_port,
            own_network: false,
            shaper: self.options.shaper.clone(),
            executor: self.options.executor.clone(),
        };
        let command = &self.options.command;
        let input = NodeInput::bytes(&self.options.secret, &hosted.description);
        let running = Running::start(command, &options, input, &hosted.log(life))
            .map_err(|source| OrderError::Launch { program: command[0].clone(), source })?;
        self.running = Some(running);
        self.counters.launched.inc();
        Ok(())
    }

    /// Ends an armed life, sends its facts, and removes its storage if `wipe` is set. Returns when the life
    /// stopped and exited; `None` if it was not running. Reports a life that had ended by itself.
    fn fire(&mut self, order: OrderNo, wipe: bool) -> Result<Option<Killed>, OrderError> {
        let life = self.armed.remove(&order);
        let running = self.running.take_if(|it| Some(it.life) == life);
        let end = running.map(Running::end).transpose().map_err(OrderError::Signal)?;
        let killed = match end {
            Some(End::Ordered(killed)) => {
                self.counters.killed(killed);
                Some(killed)
            }
            Some(End::Own(_)) | None => None,
        };
        self.send_facts()?;
        if let Some(upto) = life {
            if let Some(End::Own(status)) = end {
                self.ended_by_itself(upto, status);
            }
            self.send(ToPlace::Sent { upto });
        }
        if wipe && let Some(hosted) = &self.hosted {
            hosted.wipe()?;
        }
        Ok(killed)
    }

    fn end_running(&mut self) -> Result<(), OrderError> {
        if let Some(running) = self.running.take() {
            match running.end().map_err(OrderError::Signal)? {
                End::Ordered(killed) => self.counters.killed(killed),
                End::Own(_) => drop(self.counters.killed.inc()),
            }
        }
        Ok(())
    }

    /// Handles the exit of a child.
    fn handle_exit(&mut self) {
        let Some((life, status)) = reap(&mut self.running) else { return };
        self.look();
        self.ended_by_itself(life, status);
    }

    /// Reports the end of a life whose facts have been sent.
    fn ended_by_itself(&mut self, life: Life, status: String) {
        if status == ORDERLY {
            info!(%life, "the process ended because the supervisor closed the connection");
        } else {
            warn!(%life, status, "the process ended unexpectedly");
            self.counters.collapsed.inc();
        }
        let last_output =
            self.hosted.as_ref().map_or_else(String::new, |hosted| last_output(&hosted.log(life)));
        self.send(ToPlace::Ended { life, status, last_output });
    }

    /// Forwards the facts that the process has written.
    fn look(&mut self) {
        if let Err(error) = self.send_facts() {
            // The supervisor detects this, because the facts are not reported as complete.
            warn!(%error, "cannot forward facts");
            self.supervisor = None;
        }
    }

    fn send_facts(&mut self) -> Result<(), OrderError> {
        let (Some(hosted), Some(link)) = (&mut self.hosted, &self.supervisor) else { return Ok(()) };
        // A disconnected supervisor reconnects, and then reports which facts have arrived.
        let sent = hosted.facts.send(|piece| drop(link.words.send(piece))).map_err(OrderError::Facts)?;
        self.counters.facts.inc_by(sent);
        let running = self.running.as_ref().map(|it| it.life);
        hosted.logs.send(running, |piece| drop(link.words.send(piece)));
        Ok(())
    }

    fn send(&self, words: ToPlace) {
        if let Some(link) = &self.supervisor {
            drop(link.words.send(words));
        }
    }

    /// Ends the hosted process, sends its remaining facts, and informs the supervisor.
    async fn leave(mut self) {
        info!("terminating");
        if let Err(error) = self.end_running().and_then(|()| self.send_facts()) {
            warn!(%error, "cannot end the process or read its remaining facts");
            return;
        }
        self.send(ToPlace::Leaving);
        if let Some(Link { words, writer }) = self.supervisor.take() {
            drop(words);
            if tokio::time::timeout(GRACE_PERIOD, writer).await.is_err() {
                warn!("the supervisor does not respond");
            }
        }
    }

    fn remove_other_runs(&self, run_dir: &Path) -> Result<(), OrderError> {
        let data = &self.options.data;
        let failed = |source| OrderError::Directory { path: data.clone(), source };
        fs::create_dir_all(data).map_err(failed)?;
        for entry in fs::read_dir(data).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_run = entry.file_name().to_str().is_some_and(|name| name.starts_with(RUN));
            if is_run && entry.path() != run_dir {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Hosted {
    fn wipe(&self) -> Result<(), OrderError> {
        let path = self.node_dir.join("store");
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(OrderError::Directory { path, source })
            }
            _ => Ok(()),
        }
    }

    fn log(&self, life: Life) -> PathBuf {
        self.node_dir.join(format!("{}.log", life.0))
    }
}

/// Writes to a supervisor until it disconnects or no sender is left.
async fn speak(mut write: OwnedWriteHalf, mut words: mpsc::UnboundedReceiver<ToPlace>) {
    while let Some(word) = words.recv().await {
        if let Err(error) = control::send(&mut write, &word).await {
            return debug!(%error, "the supervisor closed the connection");
        }
    }
}

/// Accepts all connections on a single port. A supervisor begins with [`MAGIC`] and proves that it knows the key; all
/// other callers request metrics from `app`.
async fn listen(
    listener: TcpListener,
    secret: Secret,
    stimuli: mpsc::UnboundedSender<Stimulus>,
    app: Router,
) {
    let connections = UntrustedConnections::besides(1);
    loop {
        let (mut stream, connection) = connections.accept(&listener).await;
        let (secret, stimuli, app) = (secret.clone(), stimuli.clone(), app.clone());
        tokio::task::spawn_local(async move {
            let meet = async {
                let mut first = [0];
                if stream.peek(&mut first).await? == 1 && first != MAGIC[..1] {
                    faultline_callers::answer(stream, app).await;
                    return Ok(None);
                }
                stream.set_nodelay(true)?;
                let key_of = |ends: Ends| Some(&secret).filter(|_| ends.caller == ProcessId::SUPERVISOR);
                Secret::answer(&mut stream, key_of).await.map_err(io::Error::other)?;
                Ok(Some(stream))
            };
            match connection.met(meet).await {
                Some(Ok(Some(stream))) => drop(stimuli.send(Stimulus::Called(stream))),
                // Anyone can connect, and as often as they like.
                Some(Err(error)) => debug!(%error, "refused a connection"),
                Some(Ok(None)) | None => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::metrics::ClusterNames;
    use crate::transport::tests::run;

    const SUPERVISOR: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    /// Returns an agent that starts a shell command as its process, and the messages that it sends.
    fn agent(data: &Path, command: &str) -> (Agent, mpsc::UnboundedReceiver<ToPlace>) {
        let options = AgentOptions {
            command: ["sh", "-c", command].map(OsString::from).to_vec(),
            listen: SUPERVISOR,
            secret: Secret::generate().unwrap(),
            data: data.to_owned(),
            uid: None,
            node_port: 0,
            shaper: None,
            executor: None,
        };
        let (words, said) = mpsc::unbounded_channel();
        let writer = tokio::task::spawn_local(std::future::pending());
        let mut agent = Agent {
            options,
            abilities: None,
            here: None,
            stimuli: mpsc::unbounded_channel().0,
            counters: Counters::new(None),
            calls: 0,
            supervisor: Some(Link { words, writer }),
            hosted: None,
            running: None,
            armed: BTreeMap::new(),
            due: BTreeMap::new(),
        };
        agent.obey(ToAgent::Assign(Assignment {
            run: "run".into(),
            process: ProcessId(0),
            name: "p0".into(),
            cluster_names: ClusterNames::default(),
            description: vec![],
            life: None,
            newest: Life(0),
            arrived: vec![],
        }));
        launch(&mut agent, 1);
        (agent, said)
    }

    fn launch(agent: &mut Agent, life: u32) {
        agent.obey(ToAgent::Launch { life: Life(life), keeps_storage: true, supervisor: SUPERVISOR });
        assert_eq!(agent.running.as_ref().map(|it| it.life), Some(Life(life)));
    }

    #[test]
    fn an_agent_accepts_only_supervisors_that_expect_its_place() {
        run(async {
            // An address that belonged to place `a` may belong to a stranger that relays to another place.
            for (uid, is_accepted) in [(Some("a"), true), (Some("b"), false), (None, true)] {
                let secret = Secret::generate().unwrap();
                let options = AgentOptions {
                    command: vec![],
                    listen: SUPERVISOR,
                    secret: secret.clone(),
                    data: PathBuf::new(),
                    uid: uid.map(str::to_owned),
                    node_port: 0,
                    shaper: None,
                    executor: None,
                };
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let (stimuli_in, mut stimuli) = mpsc::unbounded_channel();
                let key = options.key_of_connections();
                tokio::task::spawn_local(listen(listener, key, stimuli_in, Router::new()));
                let mut stream = TcpStream::connect(address).await.unwrap();
                let ends = Ends { caller: ProcessId::SUPERVISOR, called: ProcessId(0) };
                let met = secret.dial_place("a", &mut stream, ends).await;
                assert_eq!(met.is_ok(), is_accepted, "{uid:?}");
                if is_accepted {
                    assert!(matches!(stimuli.recv().await, Some(Stimulus::Called(_))));
                } else {
                    assert!(stimuli.try_recv().is_err());
                }
            }
        });
    }

    #[test]
    fn a_late_order_to_end_a_life_leaves_the_storage_of_the_next_one() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (mut agent, _said) = agent(dir.path(), "exec sleep 60");
            agent.obey(ToAgent::Arm { order: 1, life: Life(1) });
            let at = monotonic() + 20_000_000;
            agent.obey(ToAgent::Fire { order: 1, wipe: true, at: Some(at) });
            launch(&mut agent, 2);
            let store = agent.hosted.as_ref().unwrap().node_dir.join("store");
            fs::create_dir_all(&store).unwrap();
            std::thread::sleep(Duration::from_nanos(at.saturating_sub(monotonic())) + KILL_AFTER * 2);
            agent.fire_due();
            assert!(store.exists());
            assert!(agent.running.is_some());
            agent.end_running().unwrap();
        });
    }

    #[test]
    fn an_order_to_end_a_life_that_ended_by_itself_reports_its_exit_status() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (mut agent, mut said) = agent(dir.path(), "echo no >&2; exit 3");
            let begin = Instant::now();
            // Nothing reaps the process before the order.
            while agent.running.as_ref().unwrap().pause(false).unwrap().is_some() {
                assert!(begin.elapsed() < Duration::from_secs(30));
                std::thread::sleep(Duration::from_millis(1));
            }
            agent.obey(ToAgent::Arm { order: 1, life: Life(1) });
            agent.obey(ToAgent::Fire { order: 1, wipe: false, at: None });
            let status = "exit status: 3".to_owned();
            let expected = [
                ToPlace::Ended { life: Life(1), status, last_output: "no".into() },
                ToPlace::Sent { upto: Life(1) },
                ToPlace::Done { order: 1, killed: None, problem: None },
            ];
            let mut words = Vec::new();
            while let Ok(word) = said.try_recv() {
                words.push(word);
            }
            assert_eq!(words[words.len() - 3..], expected);
        });
    }
}
