//! Parameters of HC3I, and the known defects that tests can switch on.

use alloc::sync::Arc;
use faultline_core::Span;
use serde::{Deserialize, Serialize};

/// Parameters of HC3I, equal for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Delay between unforced checkpoints, by cluster; `None` is infinite. A forced checkpoint restarts it
    /// (section 5.2).
    pub checkpoint_every: Arc<[Option<Span>]>,
    /// Delay between garbage collections; `None` is never (section 3.5).
    pub collect_every: Option<Span>,
    /// Copies of each part beside the owner's own (section 3.1 has one).
    pub replicas: u16,
    /// Where the copies are kept.
    pub replicate_to: ReplicateTo,
    /// What is coordinated: each cluster by itself, or the federation as one.
    pub scope: Scope,
    /// How long an unanswered request between clusters waits before it is made again.
    pub retry_every: Span,
    /// Known defects, for tests.
    pub defects: Defects,
}

/// Where copies of checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicateTo {
    /// The next processes of the owner's cluster, as the paper has it: a whole cluster's loss is unrecoverable.
    SameCluster,
    /// Processes of the next clusters.
    OtherCluster,
    /// A storage server outside every cluster.
    SharedStorage,
}

/// What one coordinated checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Each cluster by itself: HC3I.
    Cluster,
    /// All clusters together: the global coordinated baseline.
    Federation,
}

/// A rule as printed, or left out: each loses something, and the checkers must say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defect {
    /// To be completed with the protocol.
    NoDrain,
}

/// A set of switched-on defects; always empty unless the crate's `defects` feature is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    #[cfg(feature = "defects")]
    set: u64,
}

impl Defects {
    /// The set of one defect.
    #[cfg(feature = "defects")]
    pub fn only(defect: Defect) -> Defects {
        Defects { set: 1 << defect as u64 }
    }

    /// Whether `defect` is switched on.
    #[inline]
    pub fn has(self, defect: Defect) -> bool {
        #[cfg(feature = "defects")]
        return self.set & (1 << defect as u64) != 0;
        #[cfg(not(feature = "defects"))]
        {
            let _ = defect;
            false
        }
    }
}
