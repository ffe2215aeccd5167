//! Communication with the supervisor, on a separate thread, so that a process still sends heartbeats while it computes,
//! or reads a large state.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc as handover;
use std::thread;
use std::time::Duration;

use faultline_core::{Process, ProcessId};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tracing::debug;

use super::{NodeError, NodeOptions};
use crate::control::{self, Introduction, Setup, ToNode, ToSupervisor};
use crate::engine::Stimulus;
use crate::metrics::exposition::Exposition;
use crate::secret::{Ends, Secret};

/// The connection to the supervisor, as the rest of the node sees it.
pub(super) struct Supervisor {
    /// The supervisor's first message.
    pub(super) setup: Setup,
    /// Address through which the supervisor, and therefore every node, reaches this node.
    pub(super) here: IpAddr,
    /// Messages to the supervisor besides heartbeats.
    pub(super) reports: mpsc::UnboundedSender<ToSupervisor>,
}

/// Connects to the supervisor. The supervisor's orders go to `engine`, and each heartbeat contains the values
/// of `exposition`.
pub(super) fn call<P: Process + 'static>(
    options: &NodeOptions,
    secret: Secret,
    engine: mpsc::UnboundedSender<Stimulus<P>>,
    exposition: Arc<Exposition>,
) -> Result<Supervisor, NodeError> {
    let address = options.supervisor;
    let introduction = Introduction { process: options.process, life: options.life };
    let (setup_in, setup) = handover::channel();
    let (reports, reports_out) = mpsc::unbounded_channel();
    let converse = async move {
        match register(address, &secret, introduction).await {
            Ok((read, write, setup, here)) => {
                let heartbeat_every = Duration::from(setup.heartbeat_every);
                drop(setup_in.send(Ok((setup, here))));
                tokio::select! {
                    () = listen(read, &engine) => {}
                    () = speak(write, reports_out, heartbeat_every, &engine, exposition) => {}
                }
                drop(engine.send(Stimulus::HungUp));
            }
            Err(error) => drop(setup_in.send(Err(error))),
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(NodeError::Runtime)?;
    thread::Builder::new()
        .name("supervisor".into())
        .spawn(move || runtime.block_on(converse))
        .map_err(NodeError::Runtime)?;
    let (setup, here) = setup.recv().expect("the thread reports the result of its call")?;
    Ok(Supervisor { setup, reports, here })
}

/// Registers with the supervisor, and receives the setup of this node.
async fn register(
    address: SocketAddr,
    secret: &Secret,
    introduction: Introduction,
) -> Result<(OwnedReadHalf, OwnedWriteHalf, Setup, IpAddr), NodeError> {
    let mut stream = TcpStream::connect(address).await.map_err(NodeError::Supervisor)?;
    stream.set_nodelay(true).map_err(NodeError::Supervisor)?;
    let here = stream.local_addr().map_err(NodeError::Supervisor)?.ip();
    let ends = Ends { caller: introduction.process, called: ProcessId::SUPERVISOR };
    secret.dial(&mut stream, ends).await.map_err(NodeError::Handshake)?;
    control::send(&mut stream, &introduction).await.map_err(NodeError::Supervisor)?;
    let (mut read, write) = stream.into_split();
    match control::receive(&mut read).await.map_err(NodeError::Supervisor)? {
        ToNode::Setup(setup) => Ok((read, write, *setup, here)),
        _ => Err(NodeError::Setup),
    }
}

/// Forwards the supervisor's orders until it disconnects.
async fn listen<P: Process>(mut read: OwnedReadHalf, engine: &mpsc::UnboundedSender<Stimulus<P>>) {
    loop {
        match control::receive(&mut read).await {
            Ok(order) => drop(engine.send(Stimulus::Order(order))),
            Err(error) => return debug!(%error, "the control connection ended"),
        }
    }
}

/// Sends reports and heartbeats to the supervisor.
async fn speak<P: Process>(
    mut write: OwnedWriteHalf,
    mut reports: mpsc::UnboundedReceiver<ToSupervisor>,
    heartbeat_every: Duration,
    engine: &mpsc::UnboundedSender<Stimulus<P>>,
    exposition: Arc<Exposition>,
) {
    let mut heartbeat = tokio::time::interval(heartbeat_every);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let report = tokio::select! {
            Some(report) = reports.recv() => report,
            _ = heartbeat.tick() => {
                // The update affects only the next heartbeat: this one does not wait for a busy process.
                drop(engine.send(Stimulus::Show));
                exposition.heartbeat()
            }
        };
        if let Err(error) = control::send(&mut write, &report).await {
            return debug!(%error, "the control connection ended");
        }
    }
}
