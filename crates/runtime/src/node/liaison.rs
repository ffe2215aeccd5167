//! The conversation with the supervisor, on a thread of its own: a process that computes, or reads back a large state,
//! is not dead, and its heart goes on beating.

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

/// The supervisor as the rest of the node sees it.
pub(super) struct Supervisor {
    /// What it said first.
    pub(super) setup: Setup,
    /// The address from which it was reached, and at which it, and so everyone, reaches this node.
    pub(super) here: IpAddr,
    /// What it is told, beside the heartbeats.
    pub(super) reports: mpsc::UnboundedSender<ToSupervisor>,
}

/// Calls the supervisor. What it says goes to `engine`; what `exposition` shows goes out with each heartbeat.
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
        .name("liaison".into())
        .spawn(move || runtime.block_on(converse))
        .map_err(NodeError::Runtime)?;
    let (setup, here) = setup.recv().expect("the liaison says what became of its call")?;
    Ok(Supervisor { setup, reports, here })
}

/// Meets the supervisor, and learns what this node is to be.
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

/// Hands on what the supervisor says until it hangs up.
async fn listen<P: Process>(mut read: OwnedReadHalf, engine: &mpsc::UnboundedSender<Stimulus<P>>) {
    loop {
        match control::receive(&mut read).await {
            Ok(order) => drop(engine.send(Stimulus::Order(order))),
            Err(error) => return debug!(%error, "the control connection ended"),
        }
    }
}

/// Tells the supervisor what there is to tell, and that the node is there.
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
                // For the next one: this one does not wait for a process that is busy.
                drop(engine.send(Stimulus::Show));
                exposition.heartbeat()
            }
        };
        if let Err(error) = control::send(&mut write, &report).await {
            return debug!(%error, "the control connection ended");
        }
    }
}
