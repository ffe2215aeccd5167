//! What a simulation is given.

use std::num::NonZero;
use std::sync::Arc;

use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, Membership, Span};

use crate::defect::Defects;

/// Everything that decides a simulation. Equal configurations run identically, on every machine.
#[derive(Clone, Debug)]
pub struct Config<C> {
    /// Of the processes.
    pub process: Arc<C>,
    /// Who is where, before anybody is up: version 0, lives 0.
    pub membership: Membership,
    /// The network between and within clusters.
    pub links: Links,
    /// What a storage costs.
    pub storage: StorageCosts,
    /// What packets take their processes; `None`: nothing.
    pub handling: Option<Handling>,
    /// Of the supervisor, with the plan of faults.
    pub supervisor: faultline_supervisor::Config,
    /// Decides every random choice.
    pub seed: u64,
    /// What chance may do to packets beyond the jitter of their links.
    pub chance: Chance,
    /// Between the supervisor and the processes.
    pub control: Control,
    /// Encodes and decodes every packet and image on its way, to show that they survive it. Slow; for tests.
    pub paranoid: bool,
    /// What the simulator does wrong on purpose.
    pub defects: Defects,
}

impl<C> Config<C> {
    /// A simulation with a fast control plane, a fast disk and no chance beyond the links' own.
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

/// The properties of every link, by sending and receiving cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    clusters: usize,
    matrix: Vec<LinkProperties>,
}

impl Links {
    /// Links between `clusters` clusters, and between them and the processes outside
    /// ([`ClusterId::OUTSIDE`]), with the properties that `of` gives.
    pub fn new(clusters: usize, of: impl Fn(ClusterId, ClusterId) -> LinkProperties) -> Links {
        let id = |index| if index == clusters { ClusterId::OUTSIDE } else { ClusterId(index as u16) };
        let pairs = (0..=clusters).flat_map(|from| (0..=clusters).map(move |to| (from, to)));
        Links { clusters, matrix: pairs.map(|(from, to)| of(id(from), id(to))).collect() }
    }

    /// The same properties within every cluster, and the same between any two.
    pub fn uniform(clusters: usize, within: LinkProperties, between: LinkProperties) -> Links {
        Links::new(clusters, |from, to| if from == to { within } else { between })
    }

    /// The properties of one link.
    pub fn get(&self, from: ClusterId, to: ClusterId) -> &LinkProperties {
        &self.matrix[self.index(from, to)]
    }

    /// How many links there are, each with an [`Links::index`] below that.
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

/// What storage actions cost. Every process has a storage of its own, which does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageCosts {
    /// Of every action that reads or writes, before the first byte.
    pub latency: Span,
    /// Bytes per second; 0 is unlimited.
    pub bandwidth: u64,
    /// Of making a write durable.
    pub fsync: Span,
}

impl Default for StorageCosts {
    /// A solid-state disk: 50 us, 500 MB/s, 500 us.
    fn default() -> StorageCosts {
        StorageCosts { latency: Span::from_micros(50), bandwidth: 500_000_000, fsync: Span::from_micros(500) }
    }
}

/// For how long a packet keeps a process busy, at each of its two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handling {
    /// Of packets within a cluster.
    pub within: Effort,
    /// Of packets between clusters.
    pub between: Effort,
    /// All processes share so many cores; `None`: each has one of its own.
    pub cores: Option<NonZero<u32>>,
}

/// For how long a packet keeps a process busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Whatever its length.
    pub packet: Span,
    /// And this for each 1024 bytes of it.
    pub kibibyte: Span,
}

/// What chance may do to packets beyond the jitter of their links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// Packets that are delayed further, so that later ones overtake them, in parts per million.
    pub reorder_ppm: u32,
    /// By up to this much.
    pub reorder_within: Span,
    /// What becomes of a killed life's packets that are under way.
    pub in_flight: InFlight,
}

/// What becomes of a killed life's packets that are under way: part of them is still in the sender's own queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// For each death it is drawn how long its packets keep arriving: not at all, for some time between 1 us and
    /// 1 s, or without an end. What survives on a FIFO link is a prefix.
    #[default]
    Sampled,
    /// They die with their sender.
    Lost,
    /// They arrive.
    Kept,
}

/// Delays between the supervisor and the processes, and of starting them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Of each message of the control plane.
    pub delay: Span,
    /// Added to each delay of the control plane, uniformly drawn from zero to this.
    pub jitter: Span,
    /// From the launch of a life to its registration.
    pub launch: Span,
    /// From the end of a life to the notice of it, where a host sees the exit of its child; `None`: a death is noticed
    /// only by silence.
    pub exit_notice: Option<Span>,
}

impl Default for Control {
    /// Messages take 100 to 200 us, a launch 10 ms, an exit is noticed after 1 ms.
    fn default() -> Control {
        Control {
            delay: Span::from_micros(100),
            jitter: Span::from_micros(100),
            launch: Span::from_millis(10),
            exit_notice: Some(Span::from_millis(1)),
        }
    }
}
