//! One process of the federation, as a process of the operating system.

pub(crate) mod measure;
mod sampling;
pub(crate) mod shaping;
mod supervisor_connection;

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use axum::Router;
use faultline_callers::UntrustedConnections;
use faultline_core::{Life, Process, ProcessId};
use faultline_supervisor::process_seed;
use faultline_tc::namespace::{self, NamespaceError};
use faultline_trace::{Bundle, BundleError};
use nix::sys::signal::Signal;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tracing::{debug, info};

use crate::clock::{Alarm, Clock};
use crate::control::{Setup, ToSupervisor};
use crate::engine::{Engine, EngineError, EngineOutputs, ProcessInputs, ReportedFacts, Stimulus};
use crate::exits;
use crate::metrics::exposition::Exposition;
use crate::secret::{HandshakeError, MAGIC, Secret};
use crate::storage::{self, Request, Storage, StoreError};
use crate::system::{Commands, NodeSystem, Recorder, Recording, Start};
use crate::transport::{Identity, Transport};
use measure::Echoes;
use shaping::Shaping;
pub use shaping::ShapingError;
use shaping::ShapingMethod;
use supervisor_connection::Supervisor;

/// Command-line options of a node. Everything else comes from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// Directory of the run.
    pub run_dir: PathBuf,
    /// Address of the supervisor.
    pub supervisor: SocketAddr,
    /// Process ID of the program that starts the node. The node ends with it.
    pub parent: u32,
    /// Identity of the process.
    pub process: ProcessId,
    /// Number of the life.
    pub life: Life,
    /// Port on which the node listens, at the local address of its connection to the supervisor; 0 for any
    /// port.
    pub port: u16,
    /// Whether the node moves from the hub in which it was started to its own network namespace
    /// ([`faultline_tc::namespace`]).
    pub own_network: bool,
    /// Socket of the shaper that configures traffic control for the node ([`crate::shaper`]).
    pub shaper: Option<PathBuf>,
    /// Socket of the executor that runs the commands of a system ([`crate::system::serve`]). Otherwise, the node runs them.
    pub executor: Option<PathBuf>,
}

/// The reason why a node's command line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeOptionsError {
    /// An unknown option.
    #[error("unknown option {}", .0.display())]
    Unknown(OsString),
    /// An option is missing, or its value cannot be parsed.
    #[error("the option {0} is missing or invalid")]
    Value(&'static str),
}

/// The reason why a node exited without being ordered to.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The operating system refused the request to end the node together with its parent.
    #[error("cannot arrange for this process to end when its parent ends: {0}")]
    Parent(nix::Error),
    /// The operating system refused the request to adopt the processes that commands leave behind.
    #[error("cannot adopt the processes that commands leave behind: {0}")]
    Adopt(io::Error),
    /// The program that started the node exited before the node was ready to detect this.
    #[error("the parent process has ended")]
    Orphan,
    /// The network namespace could not be created.
    #[error("{0}")]
    Namespace(NamespaceError),
    /// Traffic control could not be configured.
    #[error("{0}")]
    Links(ShapingError),
    /// The keys that the supervisor sent cannot be decrypted with this process's key.
    #[error("the supervisor sent the keys of another process")]
    Keys,
    /// Standard input did not contain the key and the description of the run.
    #[error("cannot read the process's key and the description of the run from standard input: {0}")]
    Input(io::Error),
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The supervisor could not be reached, or disconnected before the setup was complete.
    #[error("cannot communicate with the supervisor: {0}")]
    Supervisor(io::Error),
    /// The handshake with the supervisor failed.
    #[error("the handshake with the supervisor failed: {0}")]
    Handshake(HandshakeError),
    /// The supervisor sent an unexpected message.
    #[error("the supervisor's first message is not a setup")]
    Setup,
    /// The timer could not be created.
    #[error("cannot create a timer: {0}")]
    Timer(io::Error),
    /// The port could not be opened.
    #[error("cannot listen: {0}")]
    Listen(io::Error),
    /// The facts file could not be created.
    #[error("{0}")]
    Facts(BundleError),
    /// The storage could not be opened.
    #[error("{0}")]
    Storage(String),
    /// The node could not continue.
    #[error("{0}")]
    Engine(String),
}

impl NodeOptions {
    /// Parses the output of [`NodeOptions::to_args`].
    ///
    /// # Errors
    ///
    /// Fails if an option is unknown, missing or invalid.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<NodeOptions, NodeOptionsError> {
        use NodeOptionsError::Value;
        let (mut run_dir, mut supervisor, mut parent, mut process, mut life, mut port, mut own_network) =
            (None, None, None, None, None, None, None);
        let (mut shaper, mut executor) = (None, None);
        let mut args = args.into_iter();
        while let Some(option) = args.next() {
            let value = args.next();
            let text = value.as_ref().and_then(|value| value.to_str());
            match option.to_str() {
                Some("--run-dir") => run_dir = value.map(PathBuf::from),
                Some("--supervisor") => supervisor = text.and_then(|it| it.parse().ok()),
                Some("--parent") => parent = text.and_then(|it| it.parse().ok()),
                Some("--process") => process = text.and_then(|it| it.parse().ok()).map(ProcessId),
                Some("--life") => life = text.and_then(|it| it.parse().ok()).map(Life),
                Some("--port") => port = text.and_then(|it| it.parse().ok()),
                Some("--own-network") => own_network = text.and_then(|it| it.parse().ok()),
                Some("--shaper") => shaper = Some(value.map(PathBuf::from).ok_or(Value("--shaper"))?),
                Some("--executor") => {
                    executor = Some(value.map(PathBuf::from).ok_or(Value("--executor"))?);
                }
                _ => return Err(NodeOptionsError::Unknown(option)),
            }
        }
        Ok(NodeOptions {
            run_dir: run_dir.ok_or(Value("--run-dir"))?,
            supervisor: supervisor.ok_or(Value("--supervisor"))?,
            parent: parent.ok_or(Value("--parent"))?,
            process: process.ok_or(Value("--process"))?,
            life: life.ok_or(Value("--life"))?,
            port: port.ok_or(Value("--port"))?,
            own_network: own_network.ok_or(Value("--own-network"))?,
            shaper,
            executor,
        })
    }

    /// Returns the directory for the files of the process's programs: its protocol, its application, or both.
    pub fn program_dir(&self) -> PathBuf {
        self.run_dir.join("programs").join(format!("{}-{}", self.process.0, self.life.0))
    }

    /// Returns the arguments of the command that starts this node.
    pub fn to_args(&self) -> Vec<OsString> {
        let pairs: [(&str, OsString); 7] = [
            ("--run-dir", self.run_dir.clone().into()),
            ("--supervisor", self.supervisor.to_string().into()),
            ("--parent", self.parent.to_string().into()),
            ("--process", self.process.0.to_string().into()),
            ("--life", self.life.0.to_string().into()),
            ("--port", self.port.to_string().into()),
            ("--own-network", self.own_network.to_string().into()),
        ];
        let sockets = [("--shaper", &self.shaper), ("--executor", &self.executor)];
        let sockets = sockets.into_iter().filter_map(|(option, it)| Some((option, it.clone()?.into())));
        pairs.into_iter().chain(sockets).flat_map(|(option, value)| [option.into(), value]).collect()
    }
}

/// What a process reads from standard input when it starts: its key, and the description of its run.
#[derive(Debug)]
pub struct NodeInput {
    secret: Secret,
    /// The description of the run, from the options of its supervisor.
    pub description: Vec<u8>,
}

impl NodeInput {
    /// Reads standard input to its end.
    ///
    /// # Errors
    ///
    /// Fails if the input cannot be read, or does not begin with a key.
    pub fn read() -> Result<NodeInput, NodeError> {
        let mut input = io::stdin().lock();
        let secret = Secret::read_line(&mut input).map_err(NodeError::Input)?;
        let mut description = Vec::new();
        input.read_to_end(&mut description).map_err(NodeError::Input)?;
        Ok(NodeInput { secret, description })
    }

    /// Returns what the process with this key must read from its standard input.
    pub(crate) fn bytes(secret: &Secret, description: &[u8]) -> Vec<u8> {
        [secret.to_line().as_bytes(), description].concat()
    }
}

/// Runs a process until its supervisor ends it by closing the connection. `system` states what the node runs besides the
/// process, if anything.
///
/// # Errors
///
/// Fails if the node cannot start or continue.
pub fn run<P: Process + Send + 'static>(
    options: NodeOptions,
    input: NodeInput,
    config: Arc<P::Config>,
    system: Option<NodeSystem>,
) -> Result<(), NodeError> {
    // A paused process does not detect that the supervisor has disconnected, so the kernel must end it.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(NodeError::Parent)?;
    // The parent may have exited before this call.
    if std::os::unix::process::parent_id() != options.parent {
        return Err(NodeError::Orphan);
    }
    if options.own_network {
        // Must come before the creation of other threads, which would stay in the hub.
        namespace::leave_hub(options.process, options.life, system.is_some())
            .map_err(NodeError::Namespace)?;
    }
    faultline_supervisor::panics::on_panic(exits::end_with);
    let NodeInput { secret, description } = input;
    let exposition = Arc::new(Exposition::default());
    let (inbox_in, inbox) = mpsc::unbounded_channel();
    let supervisor =
        supervisor_connection::call::<P>(&options, secret.clone(), inbox_in.clone(), exposition.clone())?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(NodeError::Runtime)?;
    let result = runtime.block_on(host::<P>(
        options,
        secret,
        (config, system, description),
        supervisor,
        exposition,
        (inbox_in, inbox),
    ));
    // Do not wait for a job in progress.
    runtime.shutdown_background();
    result
}

async fn host<P: Process + Send + 'static>(
    options: NodeOptions,
    secret: Secret,
    (config, system, description): (Arc<P::Config>, Option<NodeSystem>, Vec<u8>),
    supervisor: Supervisor,
    exposition: Arc<Exposition>,
    (inbox_in, inbox): (mpsc::UnboundedSender<Stimulus<P>>, mpsc::UnboundedReceiver<Stimulus<P>>),
) -> Result<(), NodeError> {
    let Supervisor { setup, reports, here } = supervisor;
    if system.is_some() {
        // A command that runs in the background remains a descendant.
        crate::system::adopt().map_err(NodeError::Adopt)?;
    }
    let NodeOptions { run_dir, process, life, port, own_network, shaper, executor, .. } = options;
    let listener = TcpListener::bind((here, port)).await.map_err(NodeError::Listen)?;
    let address = listener.local_addr().map_err(NodeError::Listen)?;
    let me = Identity { process, life, cluster: setup.cluster };

    let bundle = Bundle::open(&run_dir);
    let facts = bundle.facts_writer(process, life).map_err(NodeError::Facts)?;
    let inputs = bundle.records_inputs().then(|| bundle.inputs_writer(process, life)).transpose();
    let inputs = inputs.map_err(NodeError::Facts)?;
    let storage = open_storage(&run_dir, life, &setup, inbox_in.clone())
        .map_err(|error| NodeError::Storage(error.to_string()))?;
    let method = ShapingMethod::new(own_network, shaper.as_deref(), here);
    let shaping = shape(me, method, &setup, system.is_some()).await?;

    let is_there = |to| setup.clusters.contains(&to);
    let requested =
        setup.links.requested.iter().filter(|&(&(from, to), _)| from == setup.cluster && is_there(to));
    let requested = requested.map(|(&pair, &link)| (pair, link)).collect();
    let keys = secret.unwrap(&setup.keys).ok_or(NodeError::Keys)?;
    let (transport, measure) = connect(me, keys, &setup, &shaping, inbox_in.clone(), reports.clone());
    exposition.update(|page| (page.clusters, page.requested) = (setup.cluster_names, requested));
    let connections = UntrustedConnections::besides(setup.clusters.len());
    let app = exposition.clone().app(Some(setup.name));
    tokio::task::spawn_local(listen(listener, connections, transport.clone(), app));

    let record = storage.record.clone();
    let parents = ProcessInputs { config, boot: setup.boot, seed: process_seed(setup.seed, process), record };
    let attention = ReportedFacts { follows: setup.follows, watches: setup.watches };
    let alarm = Alarm::new(setup.clock).map_err(NodeError::Timer)?;
    let life_of_system = Start {
        run: run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        process,
        life,
        boot: setup.boot,
        command: setup.command,
        description,
    };
    let commands = system
        .map(|it| commands(it, life_of_system, executor, setup.clock, inbox_in.clone(), reports.clone()));
    let outlets = EngineOutputs {
        transport,
        shaping,
        storage,
        inbox: inbox_in,
        supervisor: reports.clone(),
        measure,
        facts,
        inputs,
        commands: commands.as_ref().map(Commands::instructions),
        exposition,
    };
    let engine = Engine::<P>::new(me, setup.clock, parents, attention, inbox, alarm, outlets);
    engine.set_percent(setup.impaired.percent());
    drop(reports.send(ToSupervisor::Registered(address)));
    // The engine runs as a task, because the runtime checks for I/O before it polls the outermost future
    // again. That would add a system call between the arrival of a packet and its handling.
    let end = tokio::task::spawn_local(engine.run()).await.expect("the engine is not cancelled");
    if let Some(commands) = commands {
        commands.stop().await;
    }
    match end {
        EngineError::HungUp => {
            info!("the supervisor closed the connection");
            Ok(())
        }
        error => Err(NodeError::Engine(error.to_string())),
    }
}

/// Opens the storage of a life, which sends what it completes to `inbox`.
fn open_storage<P: Process + Send + 'static>(
    run_dir: &Path,
    life: Life,
    setup: &Setup,
    inbox: mpsc::UnboundedSender<Stimulus<P>>,
) -> Result<Storage<P>, StoreError> {
    let store = run_dir.join("nodes").join(&setup.name).join("store");
    if setup.has_storage {
        storage::require(&store, setup.storage)?;
    }
    // The receiver is closed only if the node is about to exit.
    let stored = move |done| {
        drop(inbox.send(match done {
            Ok(event) => Stimulus::Event(event),
            Err(error) => Stimulus::Broken(EngineError::Storage(error)),
        }));
    };
    let storage = Storage::open(store, life, setup.storage, setup.clock, stored)?;
    storage.ask(Request::Misbehave(setup.impaired.storage()));
    Ok(storage)
}

/// Gives the links of a process the properties that they have at the start of its life.
async fn shape(
    me: Identity,
    method: Option<ShapingMethod>,
    setup: &Setup,
    is_of_system: bool,
) -> Result<Shaping, NodeError> {
    let mut shaping = Shaping::new(me, method.zip(setup.kernel), &setup.clusters, setup.links.clone());
    if is_of_system {
        shaping = shaping.of_system();
    }
    for &(from, to, properties) in &setup.changed {
        shaping.note(from, to, Some(properties));
    }
    for &(from, to) in &setup.cut {
        shaping.cut(from, to, true);
    }
    for (of, nodes) in &setup.splits {
        shaping.split(*of, nodes.clone(), true);
    }
    shaping.apply().await.map_err(NodeError::Links)?;
    Ok(shaping)
}

/// Connects a process with the others, through links with the properties that they have at the start of its life. Sends
/// the packets that arrive to `inbox`, and the results of measurements, which the returned channel orders, to `reports`.
fn connect<P: Process + 'static>(
    me: Identity,
    keys: Vec<Secret>,
    setup: &Setup,
    shaping: &Shaping,
    inbox: mpsc::UnboundedSender<Stimulus<P>>,
    reports: mpsc::UnboundedSender<ToSupervisor>,
) -> (Rc<Transport>, mpsc::UnboundedSender<Echoes>) {
    let (echoes_in, echoes) = mpsc::unbounded_channel();
    // The receiver is closed only if the node is about to exit.
    let arrived = move |packet| drop(inbox.send(Stimulus::Packet(packet)));
    let transport = Transport::new(me, keys, setup.clock, shaping.left(), setup.seed, arrived, echoes_in);
    for &(from, to, properties) in &setup.changed {
        transport.set_link(from, to, Some(shaping.left_of(properties)));
    }
    for &(from, to) in &setup.cut {
        transport.cut(from, to, true);
    }
    let (measure, wanted) = mpsc::unbounded_channel();
    tokio::task::spawn_local(measure::measure(transport.clone(), setup.clock, wanted, echoes, reports));
    (transport, measure)
}

/// Lets the node's commands run, in this process or in the executor at a socket.
fn commands<P: Process + 'static>(
    system: NodeSystem,
    start: Start,
    executor: Option<PathBuf>,
    clock: Clock,
    engine: mpsc::UnboundedSender<Stimulus<P>>,
    reports: mpsc::UnboundedSender<ToSupervisor>,
) -> Commands {
    // The receiver is closed only if the node is about to exit.
    let observed = engine.clone();
    let record = move |it, acknowledge| drop(observed.send(Stimulus::Observed(it, acknowledge)));
    let recording = Recording { clock, record: Rc::new(record) };
    let record = recording.record.clone();
    let recorder = Recorder::new(&system, move |it| record(it, None), reports);
    match executor {
        None => Commands::here(system.booted(start.boot, start.command), recorder, recording),
        Some(socket) => Commands::in_executor(socket, start, &system, recorder, move |error| {
            drop(engine.send(Stimulus::Broken(EngineError::Commands(error))));
        }),
    }
}

/// Accepts all connections on a single port. Other nodes begin with [`MAGIC`]; all other callers request metrics from
/// `app`.
pub(crate) async fn listen(
    listener: TcpListener,
    connections: UntrustedConnections,
    transport: Rc<Transport>,
    app: Router,
) {
    loop {
        let (mut stream, connection) = connections.accept(&listener).await;
        let (transport, app) = (transport.clone(), app.clone());
        tokio::task::spawn_local(async move {
            let meet = async {
                let mut first = [0];
                if stream.peek(&mut first).await? == 1 && first != MAGIC[..1] {
                    faultline_callers::answer(stream, app).await;
                    return Ok(None);
                }
                let call = transport.hear(&mut stream).await?;
                Ok(Some((call, stream)))
            };
            match connection.met(meet).await {
                Some(Ok(Some((call, stream)))) => transport.accept(call, stream).await,
                Some(Err(error)) => debug!(%error, "refused a connection"),
                Some(Ok(None)) | None => {}
            }
        });
    }
}
