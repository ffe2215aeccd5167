//! Which facts are about which partition, where tasks are assigned in advance.
//!
//! A process runs its own partition, and takes over those of processes that are gone for good. So the states of a partition
//! continue in the streams of other processes: in *stints*, ordered by the processes, each of which is the next rank after
//! the one before.

use std::collections::BTreeMap;

use faultline_core::{Claim, Fact, ImageName, Incarnation, Life, ProcessId};
use faultline_trace::{Stream, Trace};

/// The facts of one life that are about one partition, or about the process itself.
pub(super) struct Stint<'a> {
    /// The partition, or the process that runs none.
    pub(super) partition: ProcessId,
    /// The process that states the facts.
    pub(super) host: ProcessId,
    pub(super) life: Life,
    pub(super) stream: &'a Stream,
    /// Their places in the stream; `None` is all.
    pub(super) facts: Option<Vec<u32>>,
}

/// The stints of a run, partition by partition; `None` where tasks are not assigned in advance.
pub(super) fn of(trace: &Trace) -> Option<Vec<Stint<'_>>> {
    let says = |stream: &Stream| {
        let tells = |fact: &Fact| {
            matches!(fact, Fact::Planned(_) | Fact::Ran { .. } | Fact::Sent { .. } | Fact::Theft { .. })
        };
        let first = stream.iter().map(|(_, fact)| fact).find(|it| tells(it));
        first.is_some_and(|it| matches!(it, Fact::Planned(_)))
    };
    trace.streams.values().any(says).then(|| {
        let mut stints: Vec<Stint<'_>> = Vec::new();
        for (&(host, life), stream) in &trace.streams {
            if host != ProcessId::SUPERVISOR && !stream.is_empty() {
                stints.extend(split(host, life, stream));
            }
        }
        // After the partition's own process come those with greater numbers, then those with smaller ones.
        stints.sort_by_key(|it| (it.partition, it.host < it.partition, it.host, it.life));
        stints
    })
}

fn split(host: ProcessId, life: Life, stream: &Stream) -> Vec<Stint<'_>> {
    // The recovery in which the process took over a partition.
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
            // Others, and those from before, are copies that the process holds.
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

/// Whether an image is one that the process took itself, of a partition that it had taken over.
fn is_own(absorbed: &BTreeMap<ProcessId, Option<Incarnation>>, name: ImageName) -> bool {
    absorbed.get(&name.owner).is_some_and(|it| it.is_some_and(|epoch| name.incarnation >= epoch))
}
