//! Assigns the facts of planned programs to partitions.
//!
//! A process runs its own partition, and takes over those of permanently failed processes. The states of a partition
//! therefore continue in the streams of other processes, in *stints*. They are ordered by process, starting with the
//! partition's own; each next process is the next rank that has not failed permanently.

use std::collections::BTreeMap;

use faultline_core::{Claim, Fact, ImageName, Incarnation, Life, ProcessId};
use faultline_trace::{Stream, Trace};

/// The facts of one life that are about one partition, or about the process itself.
pub(super) struct Stint<'a> {
    /// The partition, or the process if it runs none.
    pub(super) partition: ProcessId,
    /// The process that states the facts.
    pub(super) host: ProcessId,
    pub(super) life: Life,
    pub(super) stream: &'a Stream,
    /// The positions of the facts in the stream; `None` means all.
    pub(super) facts: Option<Vec<u32>>,
}

/// Returns the stints of a run, partition by partition; `None` if its program is not planned.
pub(super) fn of(trace: &Trace) -> Option<Vec<Stint<'_>>> {
    let is_planned = |stream: &Stream| {
        let is_of_tasks = |fact: &Fact| {
            matches!(fact, Fact::Planned(_) | Fact::Ran { .. } | Fact::Sent { .. } | Fact::Theft { .. })
        };
        let first = stream.iter().map(|(_, fact)| fact).find(|it| is_of_tasks(it));
        first.is_some_and(|it| matches!(it, Fact::Planned(_)))
    };
    trace.streams.values().any(is_planned).then(|| {
        let mut stints: Vec<Stint<'_>> = Vec::new();
        for (&(host, life), stream) in &trace.streams {
            if host != ProcessId::SUPERVISOR && !stream.is_empty() {
                stints.extend(split(host, life, stream));
            }
        }
        // The partition's own process comes first, then those with greater numbers, then those with smaller ones.
        stints.sort_by_key(|it| (it.partition, it.host < it.partition, it.host, it.life));
        stints
    })
}

fn split(host: ProcessId, life: Life, stream: &Stream) -> Vec<Stint<'_>> {
    // For each partition that the process took over, the recovery in which it did.
    let mut absorbed: BTreeMap<ProcessId, Option<Incarnation>> = BTreeMap::new();
    let mut executing = host;
    let mut facts: BTreeMap<ProcessId, Vec<u32>> = BTreeMap::from([(host, Vec::new())]);
    for (place, (_, fact)) in (0..).zip(stream) {
        let partition = match fact {
            Fact::Planned(planned) => {
                executing = planned.partition;
                executing
            }
            Fact::Ran { .. } | Fact::Rerun { .. } => executing,
            Fact::Sent { id, .. } | Fact::Transmitted { id, .. } => id.from,
            Fact::Delivered(id) => id.to,
            Fact::Absorbed(of) => {
                absorbed.insert(of.0, None);
                of.0
            }
            // Other images, and those saved before the takeover, are replicas that the process holds.
            Fact::Saved(saved) if is_own(&absorbed, saved.0) => saved.0.owner,
            Fact::Claim(claim) => match **claim {
                Claim::RecoveryJoined { partition, epoch, .. } => {
                    absorbed.entry(partition).and_modify(|it| *it = it.or(Some(epoch)));
                    partition
                }
                Claim::Drained { to, .. } => to,
                _ => host,
            },
            _ => host,
        };
        facts.entry(partition).or_default().push(place);
    }
    let is_alone = facts.len() == 1;
    let stint = |(partition, facts): (ProcessId, Vec<u32>)| Stint {
        partition,
        host,
        life,
        stream,
        facts: (!is_alone).then_some(facts),
    };
    facts.into_iter().map(stint).collect()
}

/// Returns whether the process saved this image itself, for a partition that it had taken over.
fn is_own(absorbed: &BTreeMap<ProcessId, Option<Incarnation>>, name: ImageName) -> bool {
    absorbed.get(&name.owner).is_some_and(|it| it.is_some_and(|epoch| name.incarnation >= epoch))
}
