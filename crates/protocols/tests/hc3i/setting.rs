//! What the tests of HC3I share: configurations, names for its packets, and the usual questions.

use faultline_checker::Property;
use faultline_core::{Claim, ClusterId, ProcessId, Sn, Span};
use faultline_protocols::hc3i::{Config, Control, Defects, Hc3i, ReplicateTo, Scope};
use faultline_trace::manifest::ProtocolKind;

use crate::harness::{Federation as AnyFederation, Flight};

pub(crate) type Federation = AnyFederation<Hc3i>;

/// How long an unanswered request waits.
pub(crate) const RETRY: Span = Span::from_secs(1);
/// Unforced checkpoints and collections come only when a test rings for them.
const CHECKPOINT_EVERY: Span = Span::from_secs(3_600);
const COLLECT_EVERY: Span = Span::from_secs(3_600_000);

/// One copy of each part, in the next cluster.
pub(crate) fn config(defects: Defects) -> Config {
    Config {
        checkpoint_every: vec![Some(CHECKPOINT_EVERY); 8].into(),
        collect_every: Some(COLLECT_EVERY),
        replicas: 1,
        replicate_to: ReplicateTo::OtherCluster,
        scope: Scope::Cluster,
        retry_every: RETRY,
        defects,
    }
}

/// A federation whose clusters have taken their first checkpoints.
pub(crate) fn running(clusters: &[u32], config: Config) -> Federation {
    let mut federation = Federation::new(clusters, config);
    federation.settle();
    federation
}

impl Federation {
    /// `cluster` is asked for an unforced checkpoint; nothing settles.
    pub(crate) fn request_checkpoint(&mut self, cluster: ClusterId) {
        let coordinator = self.members(cluster)[0];
        let requests = |it: &Self| {
            it.claims(coordinator).filter(|it| matches!(it, Claim::CheckpointRequested { .. })).count()
        };
        let before = requests(self);
        while requests(self) == before {
            self.ring(coordinator);
        }
    }

    /// `cluster` takes an unforced checkpoint.
    pub(crate) fn take_checkpoint(&mut self, cluster: ClusterId) {
        self.request_checkpoint(cluster);
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

    /// What the checker finds violated, if the run ends here.
    pub(crate) fn violated(&self) -> Vec<Property> {
        self.judge(ProtocolKind::Hc3i).violated().collect()
    }

    /// What the checker finds wrong, as sentences.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let findings = self.judge(ProtocolKind::Hc3i).findings;
        findings.into_iter().flat_map(|it| it.violations).map(|it| it.text).collect()
    }

    /// SNs of the checkpoints that `process` could restore.
    pub(crate) fn kept(&self, process: ProcessId) -> Vec<u32> {
        self.protocol(process).kept().map(|Sn(sn)| sn).collect()
    }
}

/// Alerts.
pub(crate) fn alert(flight: &Flight<Hc3i>) -> bool {
    matches!(flight.control(), Some(Control::Alert { .. }))
}
