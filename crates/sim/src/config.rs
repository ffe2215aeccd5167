//! The configuration of a simulation.

use std::num::NonZero;
use std::sync::Arc;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, Span};

use crate::defect::Defects;

/// Everything that determines a simulation. Equal configurations produce identical runs, on every machine.
#[derive(Clone, Debug)]
pub struct Config<C> {
    /// Configuration of the processes.
    pub process: Arc<C>,
    /// Processes, clusters and nodes before any process is up: version 0, all lives 0.
    pub membership: Membership,
    /// Links within and between clusters.
    pub links: Links,
    /// Durations of storage actions.
    pub storage: StorageCosts,
    /// Time that processes spend on packets; `None` if handling packets takes no time.
    pub handling: Option<Handling>,
    /// Configuration of the supervisor, including the fault plan.
    pub supervisor: faultline_supervisor::Config,
    /// Seed of all random choices.
    pub seed: u64,
    /// Random effects on packets, beyond the jitter of their links.
    pub chance: Chance,
    /// Delays between the supervisor and the processes.
    pub control: Control,
    /// Whether to encode and decode every packet sent and every image stored, to test the encoding. Slow; for tests.
    pub paranoid: bool,
    /// The enabled defect of the simulator, if any.
    pub defects: Defects,
}

impl<C> Config<C> {
    /// Creates a configuration with the default control plane, storage and random effects.
    pub fn new(
        process: Arc<C>,
        membership: Membership,
        links: Links,
        supervisor: faultline_supervisor::Config,
        seed: u64,
    ) -> Config<C> {
        Config {
            process,
            membership,
            links,
            storage: StorageCosts::default(),
            handling: None,
            supervisor,
            seed,
            chance: Chance::default(),
            control: Control::default(),
            paranoid: false,
            defects: Defects::default(),
        }
    }
}

/// Properties of all links, indexed by sending and receiving cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    clusters: usize,
    matrix: Vec<LinkProperties>,
}

impl Links {
    /// Creates links within and between `clusters` clusters, and between them and the processes outside
    /// ([`ClusterId::OUTSIDE`]). `of` returns the properties of each link, given its sending and receiving
    /// cluster.
    pub fn new(clusters: usize, of: impl Fn(ClusterId, ClusterId) -> LinkProperties) -> Links {
        let id = |index| if index == clusters { ClusterId::OUTSIDE } else { ClusterId(index as u16) };
        let pairs = (0..=clusters).flat_map(|from| (0..=clusters).map(move |to| (from, to)));
        Links { clusters, matrix: pairs.map(|(from, to)| of(id(from), id(to))).collect() }
    }

    /// Creates links with the properties `within` inside every cluster, and `between` between any two
    /// clusters.
    pub fn uniform(clusters: usize, within: LinkProperties, between: LinkProperties) -> Links {
        Links::new(clusters, |from, to| if from == to { within } else { between })
    }

    /// Returns the properties of one link.
    pub fn get(&self, from: ClusterId, to: ClusterId) -> &LinkProperties {
        &self.matrix[self.index(from, to)]
    }

    /// Returns the number of links. Every [`Links::index`] is smaller.
    pub(crate) fn len(&self) -> usize {
        self.matrix.len()
    }

    pub(crate) fn index(&self, from: ClusterId, to: ClusterId) -> usize {
        from.index().min(self.clusters) * (self.clusters + 1) + to.index().min(self.clusters)
    }

    pub(crate) fn at(&self, index: usize) -> &LinkProperties {
        &self.matrix[index]
    }
}

/// Durations of storage actions. Every process has its own storage, which performs one action at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageCosts {
    /// Fixed duration of every action.
    pub latency: Span,
    /// Bytes written per second; 0 means unlimited.
    pub write_bandwidth: u64,
    /// Bytes read per second; 0 means unlimited.
    pub read_bandwidth: u64,
    /// Additional duration until a write is durable.
    pub fsync: Span,
}

impl Default for StorageCosts {
    /// Returns the costs of a solid-state disk: a latency of 50 us, 500 MB/s, and 500 us until a write is durable.
    fn default() -> StorageCosts {
        StorageCosts {
            latency: Span::from_micros(50),
            write_bandwidth: 500_000_000,
            read_bandwidth: 500_000_000,
            fsync: Span::from_micros(500),
        }
    }
}

/// Time that the sender and the receiver of a packet each spend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handling {
    /// For packets within a cluster.
    pub within: HandlingTime,
    /// For packets between clusters.
    pub between: HandlingTime,
    /// Number of cores that all processes share; `None` gives each process its own core.
    pub cores: Option<NonZero<u32>>,
}

/// Time that one process spends on one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlingTime {
    /// Fixed time per packet.
    pub packet: Span,
    /// Additional time per 1024 bytes of the packet.
    pub kibibyte: Span,
}

/// Random effects on packets, beyond the jitter of their links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// Share of packets, in parts per million, that get an extra delay, so that later packets can overtake them.
    pub reorder_ppm: u32,
    /// Upper limit of the extra delay.
    pub reorder_within: Span,
    /// Fate of packets in transit when the sending life is killed.
    pub in_flight: InFlight,
}

/// Fate of packets in transit when the sending life is killed, including packets in the sender's own queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// A random choice per failure: all of these packets are lost, all of them arrive, or only those arrive that
    /// would reach their receiver within a random time between 1 us and 1 s. On a FIFO link, the packets that arrive
    /// are a prefix of those in transit.
    #[default]
    Sampled,
    /// Packets in transit are lost.
    Lost,
    /// Packets in transit arrive.
    Kept,
}

/// Delays of messages between the supervisor and the processes, and the duration of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Delay of each message of the control plane.
    pub delay: Span,
    /// Upper limit of a uniform random addition to each delay of the control plane.
    pub jitter: Span,
    /// Time from the launch of a life to its registration.
    pub launch: Span,
    /// Time from the end of a life until its host reports it, if the host sees its child exit; `None` if only silence
    /// reveals a failure.
    pub exit_notice: Option<Span>,
}

impl Default for Control {
    /// Returns the defaults: messages take 100 to 200 us, a launch takes 10 ms, and an exit is reported after 1 ms.
    fn default() -> Control {
        Control {
            delay: Span::from_micros(100),
            jitter: Span::from_micros(100),
            launch: Span::from_millis(10),
            exit_notice: Some(Span::from_millis(1)),
        }
    }
}
