//! One process of the federation as a process of the operating system.

pub(crate) mod measure;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use faultline_core::{Life, Process, ProcessId};
use faultline_supervisor::process_seed;
use faultline_trace::{Bundle, BundleError};
use nix::sys::signal::Signal;
use thiserror::Error;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info};

use crate::clock::Alarm;
use crate::control::{self, Introduction, Setup, ToNode, ToSupervisor};
use crate::engine::{Engine, EngineError, Inbox, Outlets, Parents};
use crate::metrics::exposition::{Exposition, Visitors};
use crate::secret::{HandshakeError, MAGIC, Secret};
use crate::storage::{Storage, StoreError};
use crate::transport::{Identity, Transport};

/// What the command line of a node says. The rest comes from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Where the supervisor listens.
    pub supervisor: SocketAddr,
    /// Which process this is.
    pub process: ProcessId,
    /// In which life.
    pub life: Life,
}

/// Why a command line is not a node's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NodeOptionsError {
    /// An option is not known.
    #[error("{} is no option of a node", .0.display())]
    Unknown(OsString),
    /// An option is missing, or has no value that can be read.
    #[error("{0} is missing, or is not what it should be")]
    Value(&'static str),
}

/// Why a node ended without having been told to.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The operating system did not tie the node's life to its parent's.
    #[error("cannot ask to die with the parent: {0}")]
    Parent(nix::Error),
    /// The secret was not on the standard input.
    #[error("cannot read the run's secret from the standard input: {0}")]
    Secret(io::Error),
    /// The asynchronous runtime did not start.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// The supervisor cannot be reached, or hung up before it had said everything.
    #[error("cannot talk to the supervisor: {0}")]
    Supervisor(io::Error),
    /// The supervisor is not the one of this run.
    #[error("the supervisor: {0}")]
    Handshake(HandshakeError),
    /// It said something else than expected.
    #[error("the supervisor began with something else than a setup")]
    Setup,
    /// No port to listen on.
    #[error("cannot listen: {0}")]
    Listen(io::Error),
    /// No file for the facts.
    #[error("{0}")]
    Facts(BundleError),
    /// The storage cannot be opened.
    #[error("{0}")]
    Storage(String),
    /// The node could not go on.
    #[error("{0}")]
    Engine(String),
}

impl NodeOptions {
    /// Reads what [`NodeOptions::to_args`] wrote.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<NodeOptions, NodeOptionsError> {
        use NodeOptionsError::Value;
        let (mut run_dir, mut supervisor, mut process, mut life) = (None, None, None, None);
        let mut args = args.into_iter();
        while let Some(option) = args.next() {
            let value = args.next();
            let text = value.as_ref().and_then(|value| value.to_str());
            match option.to_str() {
                Some("--run-dir") => run_dir = value.map(PathBuf::from),
                Some("--supervisor") => supervisor = text.and_then(|it| it.parse().ok()),
                Some("--process") => process = text.and_then(|it| it.parse().ok()).map(ProcessId),
                Some("--life") => life = text.and_then(|it| it.parse().ok()).map(Life),
                _ => return Err(NodeOptionsError::Unknown(option)),
            }
        }
        Ok(NodeOptions {
            run_dir: run_dir.ok_or(Value("--run-dir"))?,
            supervisor: supervisor.ok_or(Value("--supervisor"))?,
            process: process.ok_or(Value("--process"))?,
            life: life.ok_or(Value("--life"))?,
        })
    }

    /// The arguments for the command that starts this node.
    pub fn to_args(&self) -> Vec<OsString> {
        let pairs: [(&str, OsString); 4] = [
            ("--run-dir", self.run_dir.clone().into()),
            ("--supervisor", self.supervisor.to_string().into()),
            ("--process", self.process.0.to_string().into()),
            ("--life", self.life.0.to_string().into()),
        ];
        pairs.into_iter().flat_map(|(option, value)| [option.into(), value]).collect()
    }
}

/// Runs a process until its supervisor hangs up, which is how a node is told to end. The run's secret stands on the
/// standard input.
pub fn run<P: Process + 'static>(options: NodeOptions, config: Arc<P::Config>) -> Result<(), NodeError> {
    // The connection to the supervisor ends with it, but a process that has been stopped would not notice.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(NodeError::Parent)?;
    let secret = Secret::read_line(io::stdin().lock()).map_err(NodeError::Secret)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(NodeError::Runtime)?;
    let result = runtime.block_on(host::<P>(options, secret, config));
    // A job that is out is not waited for.
    runtime.shutdown_background();
    result
}

async fn host<P: Process + 'static>(
    options: NodeOptions,
    secret: Secret,
    config: Arc<P::Config>,
) -> Result<(), NodeError> {
    let (read, write, setup) = register(&options, &secret).await?;
    let NodeOptions { run_dir, process, life, .. } = options;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(NodeError::Listen)?;
    let address = listener.local_addr().map_err(NodeError::Listen)?;
    let me = Identity { process, life, cluster: setup.cluster };

    let facts = Bundle::open(&run_dir).facts_writer(process, life).map_err(NodeError::Facts)?;
    let (events_in, events) = mpsc::unbounded_channel();
    let store = run_dir.join("nodes").join(&setup.name).join("store");
    let storage = Storage::<P>::open(store, life, setup.storage, events_in.clone())
        .map_err(|error: StoreError| NodeError::Storage(error.to_string()))?;

    let requested = setup.links.requested.iter().filter(|((from, _), _)| *from == setup.cluster);
    let requested = requested.map(|(&pair, &link)| (pair, link)).collect();
    let (packets_in, packets) = mpsc::unbounded_channel();
    let (echoes_in, echoes) = mpsc::unbounded_channel();
    let transport = Transport::new(me, secret, setup.clock, setup.links, setup.seed, packets_in, echoes_in);
    let (supervisor, reports) = mpsc::unbounded_channel();
    let (measure, wanted) = mpsc::unbounded_channel();
    tokio::task::spawn_local(measure::measure(transport.clone(), wanted, echoes, supervisor.clone()));
    let exposition = Arc::new(Exposition::default());
    exposition.update(|page| page.requested = requested);
    let (visitors, streams) = mpsc::unbounded_channel();
    tokio::spawn(exposition.clone().serve(Visitors { streams, address }, Some(process)));
    tokio::task::spawn_local(listen(listener, transport.clone(), visitors));

    let (control_in, control) = mpsc::unbounded_channel();
    for (from, to, properties) in setup.changed {
        transport.set_link(from, to, Some(properties));
    }
    for (from, to) in setup.cut {
        transport.cut(from, to, true);
    }
    if setup.storage_fault.is_some() {
        control_in.send(ToNode::Storage(setup.storage_fault)).expect("its receiver is below");
    }
    let mut heartbeat = tokio::time::interval(Duration::from(setup.heartbeat_every));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let record = storage.record.clone();
    let parents = Parents { config, boot: setup.boot, seed: process_seed(setup.seed, process), record };
    let alarm = Alarm::new(setup.clock).map_err(NodeError::Listen)?;
    let inbox = Inbox { control, events, packets, heartbeat, alarm };
    let outlets = Outlets {
        transport,
        storage,
        events: events_in,
        supervisor: supervisor.clone(),
        measure,
        facts,
        exposition,
    };
    let engine = Engine::<P>::new(me, setup.clock, parents, setup.follows, setup.watches, inbox, outlets);

    drop(supervisor.send(ToSupervisor::Registered(address)));
    tokio::task::spawn_local(speak(write, reports));
    tokio::select! {
        ended = engine.run() => {
            let Err(error): Result<_, EngineError> = ended;
            Err(NodeError::Engine(error.to_string()))
        }
        () = obey(read, control_in) => {
            info!("the supervisor hung up");
            Ok(())
        }
    }
}

/// Meets the supervisor, and learns what this node is to be.
async fn register(
    options: &NodeOptions,
    secret: &Secret,
) -> Result<(OwnedReadHalf, OwnedWriteHalf, Setup), NodeError> {
    let mut stream = TcpStream::connect(options.supervisor).await.map_err(NodeError::Supervisor)?;
    stream.set_nodelay(true).map_err(NodeError::Supervisor)?;
    secret.dial(&mut stream).await.map_err(NodeError::Handshake)?;
    let introduction = Introduction { process: options.process, life: options.life };
    control::send(&mut stream, &introduction).await.map_err(NodeError::Supervisor)?;
    let (mut read, write) = stream.into_split();
    match control::receive(&mut read).await.map_err(NodeError::Supervisor)? {
        ToNode::Setup(setup) => Ok((read, write, setup)),
        _ => Err(NodeError::Setup),
    }
}

/// Hands on what the supervisor says until it hangs up.
async fn obey(mut read: OwnedReadHalf, to: mpsc::UnboundedSender<ToNode>) {
    loop {
        match control::receive(&mut read).await {
            Ok(message) => drop(to.send(message)),
            Err(error) => return debug!(%error, "the control connection ended"),
        }
    }
}

/// Tells the supervisor. When it cannot be told, [`obey`] ends as well.
async fn speak(mut write: OwnedWriteHalf, mut reports: mpsc::UnboundedReceiver<ToSupervisor>) {
    while let Some(report) = reports.recv().await {
        if let Err(error) = control::send(&mut write, &report).await {
            return debug!(%error, "the control connection ended");
        }
    }
}

/// One port for everything: other nodes begin with [`MAGIC`], everyone else wants metrics.
async fn listen(listener: TcpListener, transport: Rc<Transport>, visitors: mpsc::UnboundedSender<TcpStream>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, or a caller that has gone again.
                debug!(%error, "a call was missed");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let (transport, visitors) = (transport.clone(), visitors.clone());
        tokio::task::spawn_local(async move {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first[0] == MAGIC[0] => transport.accept(stream).await,
                Ok(_) => drop(visitors.send(stream)),
                Err(error) => debug!(%error, "a call was not taken"),
            }
        });
    }
}
