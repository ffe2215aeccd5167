//! The nodes that have introduced themselves: what they were told, and which orders they have not confirmed yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use faultline_callers::UntrustedConnections;
use faultline_core::fault::Impairments;
use faultline_core::{
    Boot, ClusterId, FactKind, FaultNo, Life, Membership, Presence, ProcessId, Span, Trigger,
};
use faultline_shaper::Kernel;
use faultline_supervisor::Supervisor;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::debug;

use super::RunOptions;
use super::places::{HostEvent, HostEvents};
use crate::clock::Clock;
use crate::control::{self, Directory, DirectoryEntry, Introduction, Setup, ToNode};
use crate::secret::{Ends, Keys, Secret, WrappedKeys};

/// Minimum number of heartbeats that a node sends within the detection time.
const HEARTBEATS: u64 = 5;
/// Longest interval between heartbeats, which also report the node's progress.
const HEARTBEAT_AT_LEAST_EVERY: Span = Span::from_millis(250);

/// The connected nodes, and what a node is told when it starts.
pub(super) struct Nodes {
    lives: BTreeMap<(ProcessId, Life), Node>,
    /// Processes to release once all orders have taken effect.
    halted: Vec<(ProcessId, Life)>,
    /// How the newest life of each process begins.
    pub(super) boots: BTreeMap<ProcessId, Boot>,
    /// Processes that have opened their storage in some life.
    pub(super) registered: BTreeSet<ProcessId>,
    pub(super) watches: Vec<Trigger>,
    pub(super) impaired: BTreeMap<ProcessId, Impairments>,
    /// In a system, the numbers of the faults in the list whose commands nodes run instead of their own.
    pub(super) commands: BTreeMap<ProcessId, u16>,
    follows: Vec<FactKind>,
    heartbeat_every: Span,
}

struct Node {
    orders: mpsc::UnboundedSender<ToNode>,
    /// The task that reads the node's messages, and owns this half of the connection.
    reader: AbortHandle,
    /// Address of the node, once it listens.
    address: Option<SocketAddr>,
    /// Faults that were in force when the node started. The node has applied them once it listens.
    at_start: BTreeSet<FaultNo>,
    /// For each order that the node has not confirmed yet, the fault that the order puts into effect at this node, if
    /// any.
    outstanding: VecDeque<Option<FaultNo>>,
}

impl Nodes {
    pub(super) fn new(options: &RunOptions, supervisor: &Supervisor) -> Nodes {
        let heartbeat_every = Span(options.supervisor.detect_after.0 / HEARTBEATS);
        Nodes {
            lives: BTreeMap::new(),
            halted: Vec::new(),
            boots: BTreeMap::new(),
            registered: BTreeSet::new(),
            watches: Vec::new(),
            impaired: BTreeMap::new(),
            commands: BTreeMap::new(),
            follows: FactKind::OF_PROCESSES.into_iter().filter(|&kind| supervisor.follows(kind)).collect(),
            heartbeat_every: heartbeat_every.min(HEARTBEAT_AT_LEAST_EVERY),
        }
    }

    /// Returns the first message to a node, without the links that faults change. `clock` and `kernel` are those of its
    /// place.
    pub(super) fn setup(
        &self,
        process: ProcessId,
        keys: WrappedKeys,
        options: &RunOptions,
        (clock, kernel): (Clock, Option<Kernel>),
    ) -> Setup {
        let member = options.membership.member(process);
        Setup {
            clock,
            boot: self.boots[&process],
            seed: options.seed,
            name: options.names.processes[process.index()].clone(),
            cluster_names: options.names.clusters.clone(),
            cluster: member.cluster,
            links: options.links.clone(),
            kernel,
            clusters: options.membership.members.iter().map(|member| member.cluster).collect(),
            storage: options.storage,
            has_storage: self.boots[&process] == Boot::Restarted && self.registered.contains(&process),
            keys,
            follows: self.follows.clone(),
            heartbeat_every: self.heartbeat_every,
            changed: Vec::new(),
            cut: Vec::new(),
            splits: Vec::new(),
            watches: self.watches.clone(),
            impaired: self.impaired.get(&process).cloned().unwrap_or_default(),
            command: self.commands.get(&process).copied(),
        }
    }

    pub(super) fn contains(&self, process: ProcessId, life: Life) -> bool {
        self.lives.contains_key(&(process, life))
    }

    /// Adds a node that has introduced itself. The faults `at_start` are in force when it starts.
    pub(super) fn connect(
        &mut self,
        Introduction { process, life }: Introduction,
        stream: TcpStream,
        setup: Setup,
        at_start: BTreeSet<FaultNo>,
        host_events: HostEvents,
    ) {
        let (mut read, write) = stream.into_split();
        let (orders, inbox) = mpsc::unbounded_channel();
        orders.send(ToNode::Setup(Box::new(setup))).expect("the receiver exists");
        tokio::task::spawn_local(speak(write, inbox));
        let reader = tokio::task::spawn_local(async move {
            loop {
                match control::receive(&mut read).await {
                    Ok(message) => host_events.put(HostEvent::Said { process, life, message }),
                    Err(error) => return debug!(%process, %life, %error, "a node closed its connection"),
                }
            }
        });
        let outstanding = VecDeque::new();
        let node = Node { orders, reader: reader.abort_handle(), address: None, at_start, outstanding };
        self.lives.insert((process, life), node);
    }

    /// Closes the connection to a node.
    pub(super) fn remove(&mut self, process: ProcessId, life: Life) {
        if let Some(node) = self.lives.remove(&(process, life)) {
            node.reader.abort();
        }
    }

    /// Stops sending orders to any node. Returns the lives of the nodes.
    pub(super) fn disconnect(&mut self) -> Vec<(ProcessId, Life)> {
        std::mem::take(&mut self.lives).into_keys().collect()
    }

    /// Records that a node listens. Returns the faults that were in force when it started.
    pub(super) fn listens(
        &mut self,
        process: ProcessId,
        life: Life,
        address: SocketAddr,
    ) -> BTreeSet<FaultNo> {
        self.registered.insert(process);
        let Some(node) = self.lives.get_mut(&(process, life)) else { return BTreeSet::new() };
        node.address = Some(address);
        std::mem::take(&mut node.at_start)
    }

    /// Records that a node has confirmed its oldest order. Returns the fault that the order put into effect, if any.
    pub(super) fn confirmed(&mut self, process: ProcessId, life: Life) -> Option<FaultNo> {
        self.lives.get_mut(&(process, life))?.outstanding.pop_front().flatten()
    }

    /// Returns whether some node has not confirmed yet that it applied a fault.
    pub(super) fn awaits(&self, no: FaultNo) -> bool {
        self.lives.values().any(|it| it.outstanding.contains(&Some(no)))
    }

    /// Returns the addresses of all processes, once all of them listen.
    pub(super) fn directory_of_all(&self, membership: &Membership) -> Option<Directory> {
        let processes = (0..membership.members.len() as u32).map(ProcessId);
        let entries = processes.map(|process| self.entry(process, None, membership));
        let directory = Directory { entries: entries.collect() };
        directory.entries.iter().all(Option::is_some).then_some(directory)
    }

    /// Announces the membership to the nodes that it contains, with their addresses.
    pub(super) fn announce(&self, membership: &Membership) {
        let members = || (0..).map(ProcessId).zip(membership.members.iter());
        let entries = members().map(|(process, member)| match membership.presence(member.cluster) {
            // The process already listens, and keeps the connections over which it measured links.
            Presence::Awaited => self.entry(process, None, membership),
            _ => member.up.then(|| self.entry(process, Some(member.life), membership)).flatten(),
        });
        let directory = Directory { entries: entries.collect() };
        for (process, member) in members().filter(|(_, member)| member.up) {
            let announcement = ToNode::Announce(membership.clone(), directory.clone());
            self.send_to_life(process, member.life, announcement);
        }
    }

    /// Returns the directory entry of a process in `life`, or in its newest life if `life` is `None`.
    fn entry(
        &self,
        process: ProcessId,
        life: Option<Life>,
        membership: &Membership,
    ) -> Option<DirectoryEntry> {
        let mut lives = self.lives.range((process, Life(0))..=(process, Life(u32::MAX))).rev();
        let (&(_, life), node) = lives.find(|&(&(_, it), _)| life.is_none_or(|life| it == life))?;
        let cluster = membership.cluster_of(process);
        node.address.map(|address| DirectoryEntry { life, cluster, address })
    }

    pub(super) fn send_to_life(&self, process: ProcessId, life: Life, message: ToNode) {
        if let Some(node) = self.lives.get(&(process, life)) {
            // If the node has ended, its exit is reported elsewhere.
            drop(node.orders.send(message));
        }
    }

    pub(super) fn send_to_process(&self, process: ProcessId, message: ToNode) {
        for node in self.lives.range((process, Life(0))..=(process, Life(u32::MAX))) {
            drop(node.1.orders.send(message.clone()));
        }
    }

    pub(super) fn send_to_all(&self, message: &ToNode) {
        for node in self.lives.values() {
            drop(node.orders.send(message.clone()));
        }
    }

    /// Sends every node an order that must take effect before a halted process resumes. `fault` takes effect at the
    /// nodes of the cluster `at`, which send the packets concerned.
    pub(super) fn order_all(
        &mut self,
        order: &ToNode,
        at: Option<ClusterId>,
        fault: Option<FaultNo>,
        membership: &Membership,
    ) {
        self.order(|_| true, |process| fault.filter(|_| Some(membership.cluster_of(process)) == at), order);
    }

    /// Sends an order to the nodes of the processes `of`. `fault` returns the fault that the order puts into effect at
    /// the node of a process.
    pub(super) fn order(
        &mut self,
        of: impl Fn(ProcessId) -> bool,
        fault: impl Fn(ProcessId) -> Option<FaultNo>,
        order: &ToNode,
    ) {
        for (&(process, _), node) in self.lives.iter_mut().filter(|((process, _), _)| of(*process)) {
            if node.orders.send(order.clone()).is_ok() {
                node.outstanding.push_back(fault(process));
            }
        }
    }

    /// Requests the release of a halted process.
    pub(super) fn halted(&mut self, process: ProcessId, life: Life) {
        self.halted.push((process, life));
    }

    /// Releases halted processes if all orders are in effect. Returns whether they are. Paused processes confirm no
    /// order until they resume or fail, because they may handle earlier messages before they apply the order.
    pub(super) fn release_halted(&mut self) -> bool {
        let is_settled = self.lives.values().all(|node| node.outstanding.is_empty());
        if is_settled {
            for (process, life) in std::mem::take(&mut self.halted) {
                self.send_to_life(process, life, ToNode::Go);
            }
        }
        is_settled
    }
}

/// Sends messages to a node until it disconnects.
async fn speak(mut write: OwnedWriteHalf, mut orders: mpsc::UnboundedReceiver<ToNode>) {
    while let Some(order) = orders.recv().await {
        if let Err(error) = control::send(&mut write, &order).await {
            return debug!(%error, "a node closed its connection");
        }
    }
}

/// Accepts connections at the control port from processes that prove that they know their keys.
pub(super) async fn listen(
    listener: TcpListener,
    connections: UntrustedConnections,
    keys: Keys,
    host_events: HostEvents,
) {
    loop {
        let (mut stream, connection) = connections.accept(&listener).await;
        let (keys, host_events) = (keys.clone(), host_events.clone());
        tokio::task::spawn_local(async move {
            let introduce = async {
                stream.set_nodelay(true)?;
                let key_of =
                    |ends: Ends| keys.of(ends.caller).filter(|_| ends.called == ProcessId::SUPERVISOR);
                let ends = Secret::answer(&mut stream, key_of).await.map_err(std::io::Error::other)?;
                let introduction: Introduction = control::receive(&mut stream).await?;
                if introduction.process != ends.caller {
                    return Err(std::io::Error::other("the node identifies itself as another process"));
                }
                Ok(introduction)
            };
            match connection.met(introduce).await {
                Some(Ok(introduction)) => host_events.put(HostEvent::Introduced { introduction, stream }),
                // Anyone can connect, and as often as they like.
                Some(Err(error)) => debug!(%error, "refused a connection"),
                None => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::{connect_from, run};

    #[test]
    fn strangers_do_not_keep_a_process_from_introducing_itself() {
        const MOST: usize = 4;
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let keys = Keys::generate(1).unwrap();
            let (host_events, mut happened) = HostEvents::new(Clock::start());
            let connections = UntrustedConnections::new(MOST);
            tokio::task::spawn_local(listen(listener, connections, keys.clone(), host_events));
            let mut strangers = Vec::new();
            for _ in 0..2 * MOST {
                strangers.push(connect_from(2, address).await);
            }
            let mut stream = TcpStream::connect(address).await.unwrap();
            let ends = Ends { caller: ProcessId(0), called: ProcessId::SUPERVISOR };
            keys.of(ProcessId(0)).unwrap().dial(&mut stream, ends).await.unwrap();
            let introduction = Introduction { process: ProcessId(0), life: Life(1) };
            control::send(&mut stream, &introduction).await.unwrap();
            let Some((_, HostEvent::Introduced { introduction: heard, .. })) = happened.recv().await else {
                panic!("the process is introduced")
            };
            assert_eq!(heard, introduction);
        });
    }
}
