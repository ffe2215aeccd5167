//! Counts the contents of logs and checkpoint stores over time, from the facts as they are reported.
//!
//! No fact states the number of stored checkpoints or logged messages, but facts state which ones are added or
//! removed.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Claim, ClusterId, Fact, ImageName, MessageId, Position, ProcessId, Time};
use faultline_trace::Record;

use crate::statistics::Collected;

/// Checkpoints and logs of all clusters, for protocols that log messages between clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreCounter {
    cluster_of: Vec<ClusterId>,
    nodes: Vec<Node>,
    pub(crate) clusters: Vec<Cluster>,
    /// Collections by number.
    pub(crate) collections: BTreeMap<u32, Removal>,
}

/// The data removed by one collection.
#[derive(Clone, Debug)]
pub(crate) struct Removal {
    /// The time at which the first node carried out the collection.
    pub(crate) began: Time,
    /// The time at which the last node carried out the collection.
    pub(crate) ended: Time,
    /// Removals by cluster.
    pub(crate) clusters: Vec<Option<Collected>>,
}

/// The state of one node.
#[derive(Clone, Debug, Default)]
struct Node {
    logged: u64,
    /// For each saved part: the number of messages in the log at that time.
    logged_in: BTreeMap<ImageName, u64>,
    /// A message that is about to be re-sent, and is therefore already in the log.
    resent: Option<MessageId>,
}

/// The state of one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The member whose claims about checkpoints are counted.
    reporter: Option<ProcessId>,
    stored: BTreeSet<Position>,
    pub(crate) most_stored: u64,
    logged: u64,
    pub(crate) most_logged: u64,
    pub(crate) most_logged_by_a_node: u64,
    pub(crate) joined: Option<Time>,
    /// The time at which a process last reported that it had finished.
    pub(crate) finished: Time,
    pub(crate) left: Option<Time>,
}

impl Cluster {
    /// Returns the number of checkpoints that are stored now.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.len() as u64
    }

    /// Records that the cluster left, which releases its storage.
    fn leave(&mut self, at: Time) {
        self.left = Some(at);
        self.stored.clear();
    }
}

impl StoreCounter {
    /// Creates an empty counter. `cluster_of` has an entry for each process.
    pub(crate) fn new(cluster_of: Vec<ClusterId>, clusters: usize) -> StoreCounter {
        let mut all = vec![Cluster::default(); clusters];
        for (process, cluster) in (0..).map(ProcessId).zip(&cluster_of) {
            if let Some(cluster) = all.get_mut(cluster.index()) {
                cluster.reporter.get_or_insert(process);
            }
        }
        StoreCounter {
            nodes: vec![Node::default(); cluster_of.len()],
            clusters: all,
            cluster_of,
            collections: BTreeMap::new(),
        }
    }

    /// Handles one fact. Facts must be passed in the order in which they are reported.
    pub(crate) fn note(&mut self, record: &Record) {
        let process = record.process;
        match record.fact {
            Fact::Joined(cluster) => self.clusters[cluster.index()].joined = Some(record.at),
            Fact::Left(cluster) => self.clusters[cluster.index()].leave(record.at),
            _ => {}
        }
        let Some(&cluster) = self.cluster_of.get(process.index()) else { return };
        if cluster == ClusterId::OUTSIDE {
            return;
        }
        match &record.fact {
            Fact::Transmitted { id, .. } if self.cluster_of[id.to.index()] != cluster => {
                let node = &mut self.nodes[process.index()];
                let is_new = node.resent.take() != Some(*id);
                let logged = node.logged + u64::from(is_new);
                self.log_holds(process, logged);
            }
            Fact::Saved(saved) if saved.0.owner == process => {
                let node = &mut self.nodes[process.index()];
                node.logged_in.entry(saved.0).or_insert(node.logged);
            }
            Fact::Restored(restored) => {
                let node = &self.nodes[process.index()];
                let logged = restored.0.and_then(|image| node.logged_in.get(&image)).copied().unwrap_or(0);
                self.log_holds(process, logged);
            }
            Fact::Finished(_) => self.clusters[cluster.index()].finished = record.at,
            Fact::Claim(claim) => self.claimed(process, record.at, claim),
            _ => {}
        }
    }

    fn claimed(&mut self, process: ProcessId, at: Time, claim: &Claim) {
        let index = self.cluster_of[process.index()].index();
        let cluster = &mut self.clusters[index];
        let reports = cluster.reporter == Some(process);
        match claim {
            Claim::Resent { id } => self.nodes[process.index()].resent = Some(*id),
            Claim::Committed { position, .. } if reports => {
                cluster.stored.insert(*position);
                cluster.most_stored = cluster.most_stored.max(cluster.stored());
            }
            Claim::RolledBack { checkpoint, .. } if reports => {
                cluster.stored.retain(|it| it <= checkpoint);
                // The restored checkpoint may have been in doubt, and therefore not yet counted.
                if checkpoint.sn.0 > 0 {
                    cluster.stored.insert(*checkpoint);
                }
            }
            Claim::Collected { round, below, log, .. } => {
                let clusters = self.clusters.len();
                let none = || Removal { began: at, ended: at, clusters: vec![None; clusters] };
                let removal = self.collections.entry(*round).or_insert_with(none);
                removal.ended = at;
                let collected = removal.clusters[index].get_or_insert_with(Collected::default);
                collected.log += u64::from(*log);
                if reports {
                    let cluster = &mut self.clusters[index];
                    collected.before = cluster.stored();
                    cluster.stored.retain(|it| it.sn >= *below);
                    collected.after = cluster.stored();
                }
                let logged = self.nodes[process.index()].logged.saturating_sub(u64::from(*log));
                self.log_holds(process, logged);
            }
            _ => {}
        }
    }

    fn log_holds(&mut self, process: ProcessId, logged: u64) {
        let cluster = &mut self.clusters[self.cluster_of[process.index()].index()];
        let node = &mut self.nodes[process.index()];
        cluster.logged = cluster.logged + logged - node.logged;
        node.logged = logged;
        cluster.most_logged = cluster.most_logged.max(cluster.logged);
        cluster.most_logged_by_a_node = cluster.most_logged_by_a_node.max(logged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Attempt, Cause, FactNo, Incarnation, Life, Sn, Witness};

    struct CountedRun(StoreCounter);

    impl CountedRun {
        /// Creates a counter for two clusters of two processes.
        fn new() -> CountedRun {
            CountedRun(StoreCounter::new([0, 0, 1, 1].map(ClusterId).to_vec(), 2))
        }

        fn fact(&mut self, process: u32, fact: Fact) {
            let (life, number) = (Life(1), FactNo(0));
            self.0.note(&Record { process: ProcessId(process), life, number, at: Time(7), fact });
        }

        fn claim(&mut self, process: u32, claim: Claim) {
            self.fact(process, Fact::Claim(Box::new(claim)));
        }

        fn send(&mut self, from: u32, to: u32, number: u32) -> MessageId {
            let (from, to) = (ProcessId(from), ProcessId(to));
            let id = MessageId { from, to, incarnation: Incarnation(0), number };
            self.fact(from.0, Fact::Transmitted { id, position: Position::new(0, 1) });
            id
        }

        fn part(process: u32, sn: u32) -> ImageName {
            ImageName {
                owner: ProcessId(process),
                incarnation: Incarnation(0),
                sn: Sn(sn),
                attempt: Attempt(1),
            }
        }

        fn checkpoint(&mut self, processes: &[u32], sn: u32) {
            for &process in processes {
                self.fact(
                    process,
                    Fact::Saved(Box::new((CountedRun::part(process, sn), Witness::default(), 0))),
                );
                let (position, attempt) = (Position::new(0, sn), Attempt(1));
                let (frozen, vectors) = Default::default();
                self.claim(process, Claim::Committed { position, attempt, forced: false, frozen, vectors });
            }
        }

        fn collected(&mut self, process: u32, below: u32, log: u32) {
            self.claim(process, Claim::Collected { round: 1, below: Sn(below), kept: 0, log });
        }
    }

    #[test]
    fn logs_hold_messages_to_other_clusters_until_they_are_collected_or_undone() {
        let mut run = CountedRun::new();
        run.send(0, 1, 0);
        let id = run.send(0, 2, 0);
        run.checkpoint(&[0, 1], 1);
        run.send(0, 3, 0);
        run.send(1, 3, 0);
        run.claim(0, Claim::Resent { id });
        run.fact(0, Fact::Transmitted { id, position: Position::new(0, 1) });
        let cluster = &run.0.clusters[0];
        assert_eq!((cluster.most_logged, cluster.most_logged_by_a_node), (3, 2));
        run.fact(
            0,
            Fact::Restored(Box::new((Some(CountedRun::part(0, 1)), Incarnation(1), Witness::default()))),
        );
        assert_eq!(run.0.clusters[0].logged, 2, "one of node 0, as saved, and one of node 1");
        run.collected(0, 1, 1);
        assert_eq!((run.0.clusters[0].logged, run.0.clusters[0].most_logged), (1, 3));
        assert_eq!(run.0.clusters[1].most_logged, 0);
    }

    #[test]
    fn checkpoints_are_stored_until_they_are_undone_or_collected() {
        let mut run = CountedRun::new();
        (1..=4).for_each(|sn| run.checkpoint(&[2, 3], sn));
        let (to, checkpoint) = (Position::new(1, 3), Position::new(0, 3));
        run.claim(
            2,
            Claim::RolledBack { to, checkpoint, cause: Cause::Failure, vectors: Default::default() },
        );
        assert_eq!((run.0.clusters[1].stored(), run.0.clusters[1].most_stored), (3, 4));
        run.collected(3, 3, 2);
        run.collected(2, 3, 5);
        let Removal { began, ended, clusters: collection } = &run.0.collections[&1];
        assert_eq!((*began, *ended), (Time(7), Time(7)));
        assert_eq!(collection[..], [None, Some(Collected { before: 3, after: 1, log: 7 })]);
    }
}
