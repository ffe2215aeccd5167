//! Packets between nodes: the emulated link, the session between two lives, and the connection that carries it.
//!
//! Everything runs on the node's main thread. The engine puts a packet into the delay line of its receiver. Once the
//! packet is due, it moves to the session, and from there directly into the socket. A separate task is needed
//! only while a packet is not yet due or is waiting for space in the socket.

mod connection;
mod session;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Life, ProcessId, Span, Time};
use faultline_shaper::{DelayLine, Interface};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;

use crate::clock::{Alarm, Clock};
use crate::control::{Directory, DirectoryEntry};
use crate::frame::{Body, Frame, FrameKind};
use crate::links::Links;
use crate::metrics::Delays;
use crate::secret::Secret;
use session::{PeerSession, SessionError};

/// Span by which packets leave their delay line early. It is the time that they usually take to reach the
/// other process.
const HEAD_START: Span = Span::from_micros(50);
/// Bytes that a link charges for an echo. Zero, so that the measured delay excludes transmission time.
const ECHO_CHARGE: u64 = 0;
/// Time after which received frames are acknowledged if nothing else was sent.
const ACKNOWLEDGE_AFTER: Span = Span::from_millis(50);

/// A frame for the process.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: ProcessId,
    pub(crate) life: Life,
    pub(crate) kind: FrameKind,
    pub(crate) body: Bytes,
}

/// The response to an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EchoReply {
    pub(crate) from: ProcessId,
    /// Time at which the echo was handed to the link.
    pub(crate) sent: Time,
    /// Time at which the echo arrived at the other end.
    pub(crate) arrived: Time,
}

/// Identity of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) process: ProcessId,
    pub(crate) life: Life,
    pub(crate) cluster: ClusterId,
}

/// The network of one node.
pub(crate) struct Transport {
    me: Identity,
    /// The key that this node shares with each process, indexed by process.
    keys: Vec<Secret>,
    clock: Clock,
    seed: u64,
    incoming: Box<dyn Fn(Incoming)>,
    echoes: mpsc::UnboundedSender<EchoReply>,
    /// Version of the directory. Connections from unknown lives wait for a newer one.
    directory: watch::Sender<u64>,
    /// Signals that a delay line has a new packet.
    courier: Notify,
    state: RefCell<TransportState>,
}

struct TransportState {
    links: Links,
    changed: Vec<((ClusterId, ClusterId), LinkProperties)>,
    cut: Vec<(ClusterId, ClusterId)>,
    /// All processes, indexed by process.
    peers: Vec<Peer>,
    /// For each process, the newest life that is known to have been up.
    newest: Vec<Life>,
    /// Processes whose delay lines are not empty.
    waiting: Vec<ProcessId>,
    /// The interfaces to this node's own cluster and to all other clusters.
    interfaces: [Interface; 2],
    /// Number of packets that arrived from each cluster, and the sum of their delays.
    seen: Vec<(ClusterId, (u64, Span))>,
}

/// Another process.
struct Peer {
    /// Life and address of the process; `None` while it is not up.
    entry: Option<DirectoryEntry>,
    line: DelayLine<(FrameKind, Time, Body)>,
    session: PeerSession,
    connection: Option<Connection>,
    /// Number of the newest connection with this peer.
    generation: u64,
    /// Whether a task is trying to connect.
    dialing: bool,
    /// Whether a task is waiting for space in the socket.
    blocked: bool,
}

struct Connection {
    write: Rc<OwnedWriteHalf>,
    reader: AbortHandle,
}

impl Transport {
    /// Creates a network in which no process is up. `keys` contains the key that this node shares with each
    /// process, indexed by process; `seed` determines jitter and losses.
    pub(crate) fn new(
        me: Identity,
        keys: Vec<Secret>,
        clock: Clock,
        links: Links,
        seed: u64,
        incoming: impl Fn(Incoming) + 'static,
        echoes: mpsc::UnboundedSender<EchoReply>,
    ) -> Rc<Transport> {
        let state = TransportState {
            links,
            changed: Vec::new(),
            cut: Vec::new(),
            peers: Vec::new(),
            newest: Vec::new(),
            waiting: Vec::new(),
            interfaces: [Interface::default(); 2],
            seen: Vec::new(),
        };
        let transport = Rc::new(Transport {
            me,
            keys,
            clock,
            seed,
            incoming: Box::new(incoming),
            echoes,
            directory: watch::channel(0).0,
            courier: Notify::new(),
            state: RefCell::new(state),
        });
        tokio::task::spawn_local(transport.clone().carry());
        tokio::task::spawn_local(transport.clone().acknowledge());
        transport
    }

    /// Applies a new directory. Drops packets in transit to or from lives that are not up.
    pub(crate) fn update(&self, directory: &Directory) {
        let mut state = self.state.borrow_mut();
        while state.peers.len() < directory.entries.len() {
            let process = state.peers.len() as u64;
            let stream = u64::from(self.me.process.0) << 32 | process;
            state.peers.push(Peer::new(DelayLine::new(LinkProperties::default(), self.seed, stream)));
            state.newest.push(Life(0));
        }
        for (index, &entry) in directory.entries.iter().enumerate() {
            let peer = &mut state.peers[index];
            if index != self.me.process.index() && peer.entry != entry {
                let same_life = peer.entry.map(|it| it.life) == entry.map(|it| it.life);
                peer.entry = entry;
                if !same_life {
                    peer.forget();
                }
                if let Some(entry) = entry {
                    state.newest[index] = state.newest[index].max(entry.life);
                    let pair = (self.me.cluster, entry.cluster);
                    let (properties, cut) = (state.properties(pair), state.cut.contains(&pair));
                    state.peers[index].line.set(properties);
                    state.peers[index].line.cut(cut);
                }
            }
        }
        drop(state);
        self.directory.send_modify(|version| *version += 1);
    }

    /// Returns whether `life` of `process` is up, as far as this node knows.
    pub(crate) fn is_up(&self, process: ProcessId, life: Life) -> bool {
        let state = self.state.borrow();
        state.peers.get(process.index()).and_then(|peer| peer.entry).is_some_and(|entry| entry.life == life)
    }

    /// Returns the delays of received packets, by link.
    pub(crate) fn delays(&self) -> Delays {
        let mut delays = Delays::new();
        for (cluster, seen) in &self.state.borrow().seen {
            delays.insert((*cluster, self.me.cluster), *seen);
        }
        delays
    }

    /// Hands a packet to the link, which charges `charge` bytes for it. Returns the time at which it was handed to the
    /// link. A packet to a process that is not up is lost; the result is then `None`.
    pub(crate) fn send(
        self: &Rc<Self>,
        to: ProcessId,
        kind: FrameKind,
        charge: u64,
        body: Body,
    ) -> Option<Time> {
        let now = self.clock.now();
        {
            let state = &mut *self.state.borrow_mut();
            let peer = state.peers.get_mut(to.index())?;
            let entry = peer.entry?;
            let interface = &mut state.interfaces[usize::from(entry.cluster != self.me.cluster)];
            let idle = peer.line.is_empty();
            let due = peer.line.push(now, charge, interface, (kind, now, body));
            if due > now + HEAD_START || !idle || peer.line.is_cut() {
                if idle {
                    state.waiting.push(to);
                    self.courier.notify_one();
                }
                return Some(now);
            }
        }
        self.release(to, now);
        Some(now)
    }

    /// Sends an echo, to measure the link to `to`. Returns the time of sending, and the time at which the echo is due
    /// at the other end if the link has the latency `requested`. The latter includes the jitter and the delays due to
    /// the link's bandwidth and losses, unless traffic control causes them. `None` if the process is not up.
    pub(crate) fn echo(self: &Rc<Self>, to: ProcessId, requested: Span) -> Option<(Time, Time)> {
        let sent = self.send(to, FrameKind::Echo, ECHO_CHARGE, Body::default())?;
        Some((sent, self.state.borrow().peers[to.index()].line.expected(requested)))
    }

    /// Returns the properties of the link to a process that this node emulates. Traffic control emulates all others.
    pub(crate) fn emulated(&self, to: ProcessId) -> LinkProperties {
        self.state.borrow().peers[to.index()].line.properties()
    }

    /// Changes the properties of a link for packets sent later; `None` restores the requested properties.
    pub(crate) fn set_link(&self, from: ClusterId, to: ClusterId, properties: Option<LinkProperties>) {
        let state = &mut *self.state.borrow_mut();
        state.changed.retain(|(pair, _)| *pair != (from, to));
        state.changed.extend(properties.map(|properties| ((from, to), properties)));
        let properties = state.properties((from, to));
        for peer in state.peers_across(self.me.cluster, (from, to)) {
            peer.line.set(properties);
        }
    }

    /// Changes the requested properties of a link. A change made with [`Transport::set_link`] stays in effect.
    pub(crate) fn ask_link(&self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        let state = &mut *self.state.borrow_mut();
        state.links.requested.insert((from, to), properties);
        let properties = state.properties((from, to));
        for peer in state.peers_across(self.me.cluster, (from, to)) {
            peer.line.set(properties);
        }
    }

    /// Cuts the link from one cluster to another, or heals it.
    pub(crate) fn cut(&self, from: ClusterId, to: ClusterId, cut: bool) {
        let state = &mut *self.state.borrow_mut();
        state.cut.retain(|pair| *pair != (from, to));
        if cut {
            state.cut.push((from, to));
        }
        for peer in state.peers_across(self.me.cluster, (from, to)) {
            peer.line.cut(cut);
        }
        self.courier.notify_one();
    }

    /// Moves due packets from the delay line of `to` into its session, and from there into the socket.
    fn release(self: &Rc<Self>, to: ProcessId, now: Time) {
        let mut any = false;
        {
            let peer = &mut self.state.borrow_mut().peers[to.index()];
            while let Some((kind, sent, body)) = peer.line.pop(now + HEAD_START) {
                peer.session.push(kind, sent, body);
                any = true;
            }
        }
        if any {
            self.write(to);
        }
    }

    /// Handles a frame that arrived over a connection. An error ends the connection.
    fn take(self: &Rc<Self>, from: ProcessId, generation: u64, frame: Frame) -> Result<(), SessionError> {
        let (life, owes) = {
            let state = &mut *self.state.borrow_mut();
            let peer = &mut state.peers[from.index()];
            let Some(entry) = peer.entry.filter(|_| peer.generation == generation) else {
                return Ok(());
            };
            if !peer.session.arrived(&frame)? {
                return Ok(());
            }
            let owes = peer.session.owes_now();
            if owes {
                peer.session.push(FrameKind::Acknowledge, self.clock.now(), Body::default());
            }
            if frame.kind != FrameKind::Acknowledge {
                see(&mut state.seen, entry.cluster, self.clock.now().since(frame.sent));
            }
            (entry.life, owes)
        };
        if owes {
            self.write(from);
        }
        match frame.kind {
            FrameKind::Application | FrameKind::Control | FrameKind::Image => {
                (self.incoming)(Incoming { from, life, kind: frame.kind, body: frame.body });
            }
            FrameKind::Acknowledge => {}
            FrameKind::Echo => {
                let times = [frame.sent.0.to_le_bytes(), self.clock.now().0.to_le_bytes()];
                self.send(from, FrameKind::EchoReply, ECHO_CHARGE, Body::new(times.concat()));
            }
            FrameKind::EchoReply => {
                let time = |at| Some(Time(u64::from_le_bytes(*frame.body.get(at..)?.first_chunk()?)));
                if let (Some(sent), Some(arrived)) = (time(0), time(8)) {
                    let _ = self.echoes.send(EchoReply { from, sent, arrived });
                }
            }
        }
        Ok(())
    }

    /// Releases packets from their delay lines when they are due.
    async fn carry(self: Rc<Self>) {
        let mut alarm = Alarm::new(self.clock).expect("a timer can be created");
        loop {
            let due = self.state.borrow().next_due();
            let set = alarm.set(due.map(|due| Time(due.0.saturating_sub(HEAD_START.0))));
            set.expect("a timer can be set");
            tokio::select! {
                rung = alarm.elapsed() => rung.expect("a timer can be waited for"),
                () = self.courier.notified() => {}
            }
            let now = self.clock.now();
            let waiting = std::mem::take(&mut self.state.borrow_mut().waiting);
            for &to in &waiting {
                self.release(to, now);
            }
            let state = &mut *self.state.borrow_mut();
            state.waiting.extend(waiting);
            state.waiting.retain(|to| !state.peers[to.index()].line.is_empty());
        }
    }

    /// Periodically acknowledges frames from peers to which nothing else has been sent.
    async fn acknowledge(self: Rc<Self>) {
        // Not a Tokio timer: while one is pending, every wait for sockets would set a timer in the kernel.
        let mut alarm = Alarm::new(self.clock).expect("a timer can be created");
        loop {
            alarm.set(Some(self.clock.now() + ACKNOWLEDGE_AFTER)).expect("a timer can be set");
            alarm.elapsed().await.expect("a timer can be waited for");
            let mut owed = Vec::new();
            for (index, peer) in self.state.borrow_mut().peers.iter_mut().enumerate() {
                if peer.connection.is_some() && peer.session.owes() {
                    peer.session.push(FrameKind::Acknowledge, self.clock.now(), Body::default());
                    owed.push(ProcessId(index as u32));
                }
            }
            owed.into_iter().for_each(|to| self.write(to));
        }
    }
}

impl TransportState {
    fn properties(&self, pair: (ClusterId, ClusterId)) -> LinkProperties {
        let changed = self.changed.iter().find(|(changed, _)| *changed == pair);
        changed.map_or_else(|| self.links.between(pair.0, pair.1), |&(_, properties)| properties)
    }

    /// Iterates over the peers that a node in cluster `mine` reaches over the link `pair`.
    fn peers_across(
        &mut self,
        mine: ClusterId,
        pair: (ClusterId, ClusterId),
    ) -> impl Iterator<Item = &mut Peer> {
        let up = move |peer: &&mut Peer| peer.entry.is_some_and(|entry| (mine, entry.cluster) == pair);
        self.peers.iter_mut().filter(up)
    }

    fn next_due(&self) -> Option<Time> {
        self.waiting.iter().filter_map(|to| self.peers[to.index()].line.next_due()).min()
    }
}

impl Peer {
    fn new(line: DelayLine<(FrameKind, Time, Body)>) -> Peer {
        Peer {
            entry: None,
            line,
            session: PeerSession::default(),
            connection: None,
            generation: 0,
            dialing: false,
            blocked: false,
        }
    }

    /// Discards all state of the session with a life that has ended.
    fn forget(&mut self) {
        self.line.clear();
        self.session = PeerSession::default();
        self.dialing = false;
        self.disconnect();
    }

    fn disconnect(&mut self) {
        self.generation += 1;
        self.blocked = false;
        if let Some(connection) = self.connection.take() {
            connection.reader.abort();
        }
    }

    fn address(&self, life: Life) -> Option<SocketAddr> {
        self.entry.filter(|entry| entry.life == life).map(|entry| entry.address)
    }
}

fn see(seen: &mut Vec<(ClusterId, (u64, Span))>, from: ClusterId, delay: Span) {
    match seen.iter_mut().find(|(cluster, _)| *cluster == from) {
        Some((_, (packets, sum))) => {
            *packets += 1;
            *sum = *sum + delay;
        }
        None => seen.push((from, (1, delay))),
    }
}
