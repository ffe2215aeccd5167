//! Configurations, packet filters and assertions that the tests of HC3I share.

use faultline_checker::Property;
use faultline_core::{Claim, ClusterId, Packet, ProcessId, Sn, Span};
use faultline_protocols::hc3i::{CollectBy, Config, Defects, Forcing, Hc3i, Piggyback, ReplicateTo};

use crate::harness::{Federation as AnyFederation, Flight, p};

pub(crate) type Federation = AnyFederation<Hc3i>;

/// Time after which an unanswered request is repeated.
pub(crate) const RETRY: Span = Span::from_secs(1);
/// A delay so long that unforced checkpoints and collections happen only when a test requests them.
pub(crate) const CHECKPOINT_EVERY: Span = Span::from_secs(3_600);
pub(crate) const COLLECT_EVERY: Span = Span::from_secs(3_600_000);

/// Creates a configuration with one replica of each part, in the next cluster.
pub(crate) fn config(defects: Defects) -> Config {
    Config {
        checkpoint_every: vec![Some(CHECKPOINT_EVERY); 8].into(),
        collect_every: Some(COLLECT_EVERY),
        collect_by: CollectBy::Initiator,
        replicas: 1,
        replicate_to: ReplicateTo::OtherCluster,
        piggyback: Piggyback::Sn,
        forcing: Forcing::News,
        retry_every: RETRY,
        defects,
    }
}

/// Creates a configuration with one replica of each part, at the next process of the same cluster if there is one
/// (section 3.1).
pub(crate) fn within(defects: Defects) -> Config {
    Config { replicate_to: ReplicateTo::SameCluster, ..config(defects) }
}

/// Creates a configuration in which every cluster decides by itself what to collect.
pub(crate) fn by_every_cluster(defects: Defects) -> Config {
    Config { collect_by: CollectBy::EveryCluster, ..config(defects) }
}

/// Creates a federation whose clusters have taken their first checkpoints.
pub(crate) fn running(clusters: &[u32], config: Config) -> Federation {
    let mut federation = Federation::new(clusters, config);
    federation.settle();
    federation
}

impl Federation {
    /// Advances time to the next unforced checkpoint of `cluster`, without handling any consequences yet.
    pub(crate) fn request_checkpoint(&mut self, cluster: ClusterId) {
        let coordinator = self.members(cluster)[0];
        let before = self.checkpoints_requested(coordinator);
        self.wake(coordinator, CHECKPOINT_EVERY);
        assert_eq!(self.checkpoints_requested(coordinator), before + 1, "{cluster} can take a checkpoint");
    }

    /// Returns the number of checkpoints that a coordinator has requested.
    pub(crate) fn checkpoints_requested(&self, coordinator: ProcessId) -> usize {
        self.claims(coordinator).filter(|it| matches!(it, Claim::CheckpointRequested { .. })).count()
    }

    /// Takes an unforced checkpoint in `cluster`.
    pub(crate) fn take_checkpoint(&mut self, cluster: ClusterId) {
        self.request_checkpoint(cluster);
        self.settle();
    }

    /// Makes the first cluster begin a collection, and handles all consequences.
    pub(crate) fn collect(&mut self) {
        self.wake(p(0), COLLECT_EVERY);
        self.settle();
    }

    /// Makes these clusters report their inventories, and handles all consequences.
    pub(crate) fn announce_inventory(&mut self, clusters: &[ClusterId]) {
        for &cluster in clusters {
            self.wake(self.members(cluster)[0], COLLECT_EVERY);
        }
        self.settle();
    }

    /// Sends a message with the content `text`, and handles all consequences.
    pub(crate) fn exchange(&mut self, from: ProcessId, to: ProcessId, text: &str) {
        self.send(from, to, text);
        self.settle();
    }

    /// Advances time until unanswered requests have been repeated a few times, and handles all consequences.
    pub(crate) fn retry(&mut self) {
        self.settle();
        for _ in 0..4 {
            self.pass(RETRY);
        }
    }

    /// Returns whether some cluster claims that it cannot be restored.
    pub(crate) fn is_unrecoverable(&self) -> bool {
        let mut claims = self.processes().flat_map(|it| self.claims(it));
        claims.any(|it| matches!(it, Claim::Unrecoverable { .. }))
    }

    /// Returns the properties that the checker finds violated, as if the run ended here.
    pub(crate) fn violated(&self) -> Vec<Property> {
        self.judge().violated().collect()
    }

    /// Returns the violations that the checker finds, as sentences.
    pub(crate) fn violations(&self) -> Vec<String> {
        let findings = self.judge().findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }

    /// Returns the SNs of the checkpoints that `process` could restore.
    pub(crate) fn kept(&self, process: ProcessId) -> Vec<u32> {
        self.protocol(process).kept().map(|Sn(sn)| sn).collect()
    }
}

/// Creates a filter for packets whose protocol message matches a pattern.
macro_rules! says {
    ($pattern:pat) => {
        |flight: &crate::harness::Flight<faultline_protocols::hc3i::Hc3i>| {
            matches!(flight.control(), Some($pattern))
        }
    };
}
pub(crate) use says;

/// Creates a filter for the packets to `receiver` that match `which`.
pub(crate) fn to(
    receiver: ProcessId,
    which: impl Fn(&Flight<Hc3i>) -> bool,
) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| flight.to == receiver && which(flight)
}

/// Creates a filter for packets that contain a part of `owner`.
pub(crate) fn part_of(owner: ProcessId) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| flight.image_of() == Some(owner)
}

/// Creates a filter for packets that contain a part of a checkpoint with this SN or a greater one.
pub(crate) fn part_since(sn: u32) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| matches!(&flight.packet, Packet::Image(it) if it.name.sn >= Sn(sn))
}
