//! What the tests of HC3I share: configurations, names for its packets, and the usual questions.

use faultline_checker::Property;
use faultline_core::{Claim, ClusterId, Packet, ProcessId, Sn, Span};
use faultline_protocols::hc3i::{
    CollectBy, Config, Coordinating, Cut, Defects, Forcing, Hc3i, Piggyback, ReplicateTo, Scope,
};

use crate::harness::{Federation as AnyFederation, Flight, p};

pub(crate) type Federation = AnyFederation<Hc3i>;

/// How long an unanswered request waits.
pub(crate) const RETRY: Span = Span::from_secs(1);
/// Unforced checkpoints and collections come only when a test rings for them.
pub(crate) const CHECKPOINT_EVERY: Span = Span::from_secs(3_600);
pub(crate) const COLLECT_EVERY: Span = Span::from_secs(3_600_000);

/// One copy of each part, in the next cluster.
pub(crate) fn config(defects: Defects) -> Config {
    Config {
        checkpoint_every: vec![Some(CHECKPOINT_EVERY); 8].into(),
        collect_every: Some(COLLECT_EVERY),
        collect_by: CollectBy::Initiator,
        replicas: 1,
        replicate_to: ReplicateTo::OtherCluster,
        scope: Scope::Cluster,
        piggyback: Piggyback::Sn,
        forcing: Forcing::News,
        cut: Cut::Frozen,
        coordination: Coordinating::Directly,
        retry_every: RETRY,
        defects,
    }
}

/// One copy of each part, in the next process of the cluster (section 3.1); none where there is no other.
pub(crate) fn within(defects: Defects) -> Config {
    Config { replicate_to: ReplicateTo::SameCluster, ..config(defects) }
}

/// The same, but every cluster decides for itself what it collects.
pub(crate) fn by_every_cluster(defects: Defects) -> Config {
    Config { collect_by: CollectBy::EveryCluster, ..config(defects) }
}

/// A federation whose clusters have taken their first checkpoints.
pub(crate) fn running(clusters: &[u32], config: Config) -> Federation {
    let mut federation = Federation::new(clusters, config);
    federation.settle();
    federation
}

impl Federation {
    /// The time of the next unforced checkpoint of `cluster` comes; nothing settles.
    pub(crate) fn request_checkpoint(&mut self, cluster: ClusterId) {
        let coordinator = self.members(cluster)[0];
        let before = self.checkpoints_requested(coordinator);
        self.wake(coordinator, CHECKPOINT_EVERY);
        assert_eq!(self.checkpoints_requested(coordinator), before + 1, "{cluster} can take a checkpoint");
    }

    /// How many checkpoints a coordinator has asked for.
    pub(crate) fn checkpoints_requested(&self, coordinator: ProcessId) -> usize {
        self.claims(coordinator).filter(|it| matches!(it, Claim::CheckpointRequested { .. })).count()
    }

    /// `cluster` takes an unforced checkpoint.
    pub(crate) fn take_checkpoint(&mut self, cluster: ClusterId) {
        self.request_checkpoint(cluster);
        self.settle();
    }

    /// The first cluster initiates a collection, and everything that follows happens.
    pub(crate) fn collect(&mut self) {
        self.wake(p(0), COLLECT_EVERY);
        self.settle();
    }

    /// The time of these clusters to tell what they store comes, and everything that follows happens.
    pub(crate) fn tell_stock(&mut self, clusters: &[ClusterId]) {
        for &cluster in clusters {
            self.wake(self.members(cluster)[0], COLLECT_EVERY);
        }
        self.settle();
    }

    /// A message that says `text` is sent and everything that follows happens.
    pub(crate) fn exchange(&mut self, from: ProcessId, to: ProcessId, text: &str) {
        self.send(from, to, text);
        self.settle();
    }

    /// Lost requests are made again, a few times.
    pub(crate) fn retry(&mut self) {
        self.settle();
        for _ in 0..4 {
            self.pass(RETRY);
        }
    }

    /// Whether some cluster says that it cannot be restored.
    pub(crate) fn is_given_up(&self) -> bool {
        let mut claims = self.processes().flat_map(|it| self.claims(it));
        claims.any(|it| matches!(it, Claim::Unrecoverable { .. }))
    }

    /// What the checker finds violated, if the run ends here.
    pub(crate) fn violated(&self) -> Vec<Property> {
        self.judge().violated().collect()
    }

    /// What the checker finds wrong, as sentences.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let findings = self.judge().findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }

    /// SNs of the checkpoints that `process` could restore.
    pub(crate) fn kept(&self, process: ProcessId) -> Vec<u32> {
        self.protocol(process).kept().map(|Sn(sn)| sn).collect()
    }
}

/// Messages of the protocol that match a pattern.
macro_rules! says {
    ($pattern:pat) => {
        |flight: &crate::harness::Flight<faultline_protocols::hc3i::Hc3i>| {
            matches!(flight.control(), Some($pattern))
        }
    };
}
pub(crate) use says;

/// Those of them that go to `receiver`.
pub(crate) fn to(
    receiver: ProcessId,
    which: impl Fn(&Flight<Hc3i>) -> bool,
) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| flight.to == receiver && which(flight)
}

/// The parts of this owner.
pub(crate) fn part_of(owner: ProcessId) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| flight.image_of() == Some(owner)
}

/// Parts of checkpoints from this SN on.
pub(crate) fn part_since(sn: u32) -> impl Fn(&Flight<Hc3i>) -> bool {
    move |flight| matches!(&flight.packet, Packet::Image(it) if it.name.sn >= Sn(sn))
}
