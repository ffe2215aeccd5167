//! What happened in a run: the state of every process at every point, rebuilt from the facts of its lives.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fact::Flipped;
use faultline_core::{
    Claim, ClusterId, Digest, Fact, FactNo, GroupId, ImageName, Incarnation, MessageId, Position, ProcessId,
    Time, Vectors, Witness,
};
use faultline_trace::{FlawKind, Stream, Trace};

use crate::clients::{ClientHistory, Pairs};
use crate::context::Context;
use crate::contradiction::Contradiction;
use crate::groups::{Checkpoint, CheckpointName, Groups, RestoredBy};
use crate::messages::{Message, MessageNo, Messages};
use crate::planned::Planned;
use crate::segments::{Ending, Point, ProcessHistory, Segment, SegmentNo, Source, Sums, Witnessed};
use crate::supervision::Supervision;
use crate::tasks::Tasks;

/// The cut of one part of a checkpoint. Ordered by the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointCut {
    pub(crate) cut: Point,
    pub(crate) group: GroupId,
    pub(crate) name: CheckpointName,
    /// The index of the first of the checkpoint's part cuts in [`History::part_cuts`].
    pub(crate) parts: u32,
}

/// A delivery of a message from another group.
#[derive(Clone, Copy, Debug)]
pub struct BetweenDelivery<'a> {
    /// The delivered message.
    pub message: MessageNo,
    /// The fact that states the delivery.
    pub at: Point,
    /// The vectors of the last checkpoint that the receiver had committed or restored; `None` if unknown.
    pub vectors: Option<&'a Vectors>,
}

/// A claim: a fact that only the process's protocol can know.
#[derive(Clone, Copy, Debug)]
pub struct Claimed<'a> {
    /// The fact that states the claim.
    pub at: Point,
    /// The time, by the clock of the process's driver.
    pub time: Time,
    /// The content of the claim.
    pub claim: &'a Claim,
}

/// The state of every process at every point.
#[derive(Debug)]
pub struct History<'a> {
    /// The facts of the run.
    pub trace: &'a Trace,
    /// Information about the run beyond its facts.
    pub context: &'a Context,
    /// All segments, by process and life.
    pub segments: Vec<Segment>,
    /// Process histories, indexed by [`ProcessId`].
    pub processes: Vec<ProcessHistory>,
    /// Every message, with its sends and deliveries.
    pub messages: Messages,
    /// The processes that take checkpoints together.
    pub groups: Groups<'a>,
    /// The supervisor's actions: lives, faults and changes.
    pub supervision: Supervision<'a>,
    /// Every witness that a process reported.
    pub witnessed: Vec<Witnessed>,
    /// Every delivery of a message from another group.
    pub between: Vec<BetweenDelivery<'a>>,
    /// Every message that was suppressed (not sent to the network), and the fact that states it, in the order of
    /// processes and lives.
    pub suppressed: Vec<(MessageId, Point)>,
    /// Every transmission of a message after its first, in the order of processes and lives.
    pub retransmitted: Vec<(MessageId, Point)>,
    /// Every message that a process dropped because a rollback had undone its send, in the order of processes
    /// and lives.
    pub stale: Vec<(MessageId, Point)>,
    /// Every message that a process claims to have re-sent from its log, in the order of processes and lives.
    pub resent: Vec<(MessageId, Point)>,
    /// Every message that a process claims to have held until a checkpoint, in the order of processes and
    /// lives.
    pub held: Vec<(MessageId, Point)>,
    /// Every claim except `Resent`, `Forcing` and `Drained`, which have their own lists.
    pub claims: Vec<Claimed<'a>>,
    /// Every result that a process reported, by segment.
    pub results: Vec<(Point, Witness, Digest)>,
    /// Every bit that a fault flipped, in the order of processes and lives.
    pub flips: Vec<(Point, Flipped)>,
    /// Every part of which a read found no intact copy, in the order of processes and lives.
    pub damaged: Vec<(Point, ImageName)>,
    /// The history of a task-based program; `None` for processes that exchange messages.
    pub tasks: Option<Tasks>,
    /// The history of a planned program; `None` for other programs.
    pub planned: Option<Planned>,
    /// The process that saved an image, for images that their owners did not save themselves.
    pub(crate) saved_by: BTreeMap<ImageName, ProcessId>,
    /// Whether nothing was in transit when the run ended. If so, any message not delivered by then is lost.
    pub is_settled: bool,
    /// Consistency rules that the facts violate. Empty until the facts are examined.
    pub contradictions: Vec<Contradiction>,
    /// The facts about operations of clients, by history and life, once they have been paired.
    pub(crate) pairs: OnceCell<Vec<Vec<Pairs>>>,
    /// The histories of clients, once they have been judged.
    pub(crate) clients: OnceCell<Vec<ClientHistory>>,
    /// Running sums after some of the sends and deliveries: the fact, and the sums after it.
    pub(crate) sums: Vec<(u32, Sums)>,
    /// The stream of each segment.
    pub(crate) streams: Vec<&'a Stream>,
    /// Cuts of checkpoints that were committed or restored, in ascending order.
    pub(crate) cuts: Vec<CheckpointCut>,
    /// The cuts of all parts of each committed or restored checkpoint, one checkpoint after the other.
    pub(crate) part_cuts: Vec<Option<Point>>,
    /// The index of the first cut of each segment, followed by the total number of cuts.
    pub(crate) cuts_of: Vec<u32>,
    /// The number of facts that state that a message was consumed.
    pub consumed: u64,
}

impl<'a> History<'a> {
    /// Returns the time of the last fact, or of the start of the application if there is none.
    pub fn end(&self) -> Time {
        let last = self.trace.streams.values().filter_map(|stream| stream.last()).map(|(at, _)| *at).max();
        last.or(self.supervision.begun).unwrap_or_default()
    }

    /// Returns the processes with a stream that is missing, or that may end early because it is damaged, was not sealed
    /// or contains an impossible fact.
    pub fn incomplete(&self) -> BTreeSet<ProcessId> {
        let missing = self.trace.flaws.iter().filter(|it| match it.kind {
            FlawKind::Absent
            | FlawKind::Unreadable(_)
            | FlawKind::Gap(_)
            | FlawKind::Impossible(_)
            | FlawKind::Unsealed(_)
            | FlawKind::Incomplete(_)
            | FlawKind::Torn(_) => true,
            FlawKind::BrokenSeal { sealed, found } => found < sealed,
            _ => false,
        });
        missing.filter_map(|it| it.stream.map(|(process, _)| process)).collect()
    }

    /// Returns the time at which the last injected fault ended. A crash or a cluster loss counts as ended when it is
    /// injected.
    pub fn last_disturbance(&self) -> Time {
        let ends = self.supervision.injected.iter().map(|&(_, fault, at, _)| fault.until(at));
        ends.max().unwrap_or_default()
    }

    /// Returns whether the newest life of a process has not ended, and its cluster has not left.
    pub fn is_present(&self, process: ProcessId) -> bool {
        let newest = self.supervision.newest_life(process);
        newest.is_some_and(|life| self.supervision.end_of(process, life).is_none()) && !self.has_left(process)
    }

    /// Returns the time, by the supervisor's clock, after which the supervisor neither disturbs nor changes the
    /// federation; the maximum time if a disturbance never ends.
    pub fn calm_since(&self) -> Time {
        let is_calm = |fact: &Fact| matches!(fact, Fact::Ineffective { .. } | Fact::Completed);
        let acts = self.trace.supervisor().iter().filter(|(_, fact)| !is_calm(fact)).map(|(at, _)| *at);
        acts.max().unwrap_or_default().max(self.last_disturbance())
    }

    /// Returns whether the evidence has flaws or contradictions.
    pub fn is_flawed(&self) -> bool {
        !self.trace.flaws.is_empty() || !self.contradictions.is_empty()
    }

    // The properties call the functions marked `#[inline]` for every message. Without the attribute, other crates could
    // not inline them.

    /// Returns the segment with this number.
    #[inline]
    pub fn segment(&self, no: SegmentNo) -> &Segment {
        &self.segments[no.0 as usize]
    }

    /// Returns whether a segment describes states of its process. In every life but the first, a process has no state
    /// before the life's first restore, unless its application acted anyway.
    pub fn has_state(&self, no: SegmentNo) -> bool {
        let segment = self.segment(no);
        let is_first = self.processes[segment.process.index()].segments.start == no.0;
        segment.is_restored || segment.is_active || is_first
    }

    /// Returns the last state that a member had before this restore, in the same life or an earlier one.
    pub fn state_before(&self, restored: &RestoredBy) -> Option<Point> {
        restored.before.or_else(|| {
            let own = self.processes[self.process_of(restored.at).index()].segments.clone();
            let mut earlier = (own.start..restored.at.segment.0).rev().map(SegmentNo);
            let segment = earlier.find(|&it| self.has_state(it))?;
            Some(Point { segment, fact: self.segment(segment).end })
        })
    }

    /// Returns the process to whose state the fact at `point` belongs.
    pub fn process_of(&self, point: Point) -> ProcessId {
        self.segment(point.segment).process
    }

    /// Returns the processes that last sent and last received a message. They differ from the ranks in the
    /// message's identity if a rank's partition had moved.
    pub fn endpoints(&self, message: &Message) -> (ProcessId, ProcessId) {
        let host = |at: Option<&Point>| at.map(|at| self.segment(at.segment).host);
        let MessageId { from, to, .. } = message.id;
        let (sent, delivered) = (message.sent(), message.delivered());
        (host(sent.iter().last()).unwrap_or(from), host(delivered.iter().last()).unwrap_or(to))
    }

    /// Cites the fact at `point` as evidence.
    pub fn source(&self, point: Point) -> Source {
        let segment = self.segment(point.segment);
        Source { process: segment.host, life: segment.life, number: FactNo(point.fact.into()) }
    }

    /// Returns the time of the fact at `point`, by the clock of the process that reported it.
    pub fn time(&self, point: Point) -> Time {
        self.streams[point.segment.0 as usize][point.fact as usize].0
    }

    /// Returns the fact at `point`.
    pub(crate) fn fact(&self, point: Point) -> &'a Fact {
        &self.streams[point.segment.0 as usize][point.fact as usize].1
    }

    /// Returns whether the state at `cut` contains the fact at `fact`. Both belong to the same process.
    #[inline]
    pub fn contains(&self, mut cut: Point, fact: Point) -> bool {
        while cut.segment > fact.segment {
            match self.segment(cut.segment).parent {
                Some(parent) => cut = parent,
                None => return false,
            }
        }
        cut.segment == fact.segment && fact.fact < cut.fact
    }

    /// Returns whether the state at `cut` contains the fact at `fact`, which belongs to the same process or
    /// to a process whose state was absorbed.
    pub fn holds(&self, cut: Point, fact: Point) -> bool {
        self.contains(cut, fact) || self.absorbed_at(cut).any(|it| self.holds(it, fact))
    }

    /// Returns the cuts of other processes' states that the state at `cut` has absorbed directly.
    fn absorbed_at(&self, cut: Point) -> impl Iterator<Item = Point> + '_ {
        let absorptions = self.tasks.iter().flat_map(|it| &it.absorptions);
        let own = absorptions
            .filter(move |it| self.process_of(it.at) == self.process_of(cut) && self.contains(cut, it.at));
        own.filter(|it| it.image.is_some()).filter_map(|it| self.cut_of(it.of, &it.witness))
    }

    /// Returns whether the fact at `point` belongs to the final state of its process.
    #[inline]
    pub fn survives(&self, point: Point) -> bool {
        point.fact < self.segment(point.segment).survives
    }

    /// Returns how much is known about the final state of `process`.
    #[inline]
    pub fn ending(&self, process: ProcessId) -> Ending {
        self.processes.get(process.index()).map_or(Ending::Silent, |it| it.ending)
    }

    /// Returns whether `process` belonged to a cluster that has left. Nothing is then in transit to or from it.
    pub fn has_left(&self, process: ProcessId) -> bool {
        let of = |cluster: &ClusterId| self.context.clusters.get(cluster.index());
        self.supervision
            .left
            .iter()
            .map(|(_, cluster)| cluster)
            .filter_map(of)
            .any(|members| members.contains(&process))
    }

    /// Returns the group of `process` and its index in it; `None` for processes that run no application.
    #[inline]
    pub fn member(&self, process: ProcessId) -> Option<(GroupId, usize)> {
        self.processes.get(process.index()).and_then(|it| it.member)
    }

    /// Returns the group of `process`.
    #[inline]
    pub fn group_of(&self, process: ProcessId) -> Option<GroupId> {
        self.member(process).map(|(group, _)| group)
    }

    /// Returns the owner's part of the newest checkpoint that its group had committed, if all of its copies may be lost,
    /// or else `name`. A process that has lost everything no longer knows this checkpoint, and names an older one.
    pub fn newest_lost(&self, name: ImageName) -> ImageName {
        let newest = || {
            let (group, index) = self.member(name.owner)?;
            let group = &self.groups[group];
            let line = group.line_before(Incarnation(u32::MAX));
            let (newest, checkpoint) = group.committed_after(&line, name.position()).next()?;
            let is_lost = checkpoint.parts[index].may_be_lost(&self.supervision, usize::MAX);
            let Position { incarnation, sn } = newest.position;
            is_lost.then_some(ImageName { owner: name.owner, incarnation, sn, attempt: newest.attempt })
        };
        newest().unwrap_or(name)
    }

    /// Returns the sums of everything that had been sent and delivered at `cut`, according to the facts.
    pub fn sums_at(&self, cut: Point) -> Sums {
        let segment = self.segment(cut.segment);
        let sums = &self.sums[segment.sums.0 as usize..segment.sums.1 as usize];
        let (from, mut found) = match sums.partition_point(|&(fact, _)| fact < cut.fact) {
            0 => (segment.begin, segment.base),
            after => (sums[after - 1].0 + 1, sums[after - 1].1),
        };
        if segment.is_shared {
            return found;
        }
        let stream = self.streams[cut.segment.0 as usize];
        for (_, fact) in &stream[from.min(cut.fact) as usize..(cut.fact as usize).min(stream.len())] {
            match fact {
                Fact::Sent { id, .. } => found.sent = found.sent.wrapping_add(id.mix()),
                Fact::Delivered(id) => found.delivered = found.delivered.wrapping_add(id.mix()),
                _ => {}
            }
        }
        found
    }

    /// Returns the first committed or restored checkpoint in the same segment whose cut contains the fact at `point`.
    pub fn first_checkpoint_with(&self, point: Point) -> Option<(CheckpointName, &Checkpoint<'a>)> {
        let CheckpointCut { group, name, .. } = *self.first_cut_with(point)?;
        Some((name, &self.groups[group].checkpoints[&name]))
    }

    /// Returns the name of the checkpoint that [`History::first_checkpoint_with`] returns, and the cuts of its parts by
    /// the member's index in its group. Faster than looking up the checkpoint.
    #[inline]
    pub fn first_line_with(&self, point: Point) -> Option<(CheckpointName, &[Option<Point>])> {
        let CheckpointCut { group, name, parts, .. } = *self.first_cut_with(point)?;
        let parts = &self.part_cuts[parts as usize..][..self.groups[group].members.len()];
        Some((name, parts))
    }

    #[inline]
    fn first_cut_with(&self, point: Point) -> Option<&CheckpointCut> {
        let segment = point.segment.0 as usize;
        let own = &self.cuts[self.cuts_of[segment] as usize..self.cuts_of[segment + 1] as usize];
        // All of them are cuts of this segment.
        own.get(own.partition_point(|it| it.cut.fact <= point.fact))
    }

    /// Returns the cut that a witness of `owner` names; `None` if facts before it are missing.
    pub fn cut_of(&self, owner: ProcessId, witness: &Witness) -> Option<Point> {
        self.cut_at(owner, owner, witness)
    }

    /// Finds the cut that the witness of a saved part names.
    pub fn cut_of_part(&self, name: ImageName, witness: &Witness) -> Option<Point> {
        self.cut_at(name.owner, self.saved_by(name), witness)
    }

    fn cut_at(&self, owner: ProcessId, host: ProcessId, witness: &Witness) -> Option<Point> {
        let range = self.processes.get(owner.index())?.segments.clone();
        find_cut(&self.segments[range.start as usize..range.end as usize], range.start, host, witness)
    }

    /// Returns the process that saved a part.
    pub(crate) fn saved_by(&self, name: ImageName) -> ProcessId {
        self.saved_by.get(&name).copied().unwrap_or(name.owner)
    }

    /// Returns the sums, at `point`, of all partitions that ran on the process that reported the fact there.
    pub fn sums_of_host(&self, point: Point) -> Sums {
        let Segment { host, life, .. } = *self.segment(point.segment);
        let own = Point { fact: point.fact, ..point };
        let others = self.processes.iter().enumerate().filter(|(index, _)| *index != host.index());
        let last = |it: &ProcessHistory| {
            let mut segments = it.segments.clone().rev().map(SegmentNo);
            segments.find(|it| {
                let it = self.segment(*it);
                (it.host, it.life) == (host, life) && it.begin <= point.fact && it.is_restored
            })
        };
        let cuts = others.filter_map(|(_, it)| Some(Point { segment: last(it)?, fact: point.fact }));
        cuts.fold(self.sums_at(own), |sum, cut| sum.plus(self.sums_at(cut)))
    }

    /// Returns whether the send of a message belongs to the final state of its sender; `None` if that is
    /// unknown.
    #[inline]
    pub fn send_survives(&self, message: &Message) -> Option<bool> {
        match self.ending(message.id.from) {
            Ending::Known(_) => Some(message.sent().iter().any(|&at| self.survives(at))),
            Ending::Silent | Ending::Gone => Some(false),
            Ending::Unsettled | Ending::Incomplete => None,
        }
    }
}

/// Finds the cut that `witness` names among the segments of its owner, the first of which has number `first`.
/// `host` reported the facts before the cut.
pub(crate) fn find_cut(
    segments: &[Segment],
    first: u32,
    host: ProcessId,
    witness: &Witness,
) -> Option<Point> {
    let fact = u32::try_from(witness.upto.0).ok()?;
    // A segment begins after the restore that starts it, so a cut immediately after the restore belongs to the segment.
    let is_of_life = |it: &Segment| it.host == host && it.life == witness.life && it.begin <= fact;
    let index = segments.iter().rposition(is_of_life)?;
    (fact <= segments[index].end).then_some(Point { segment: SegmentNo(first + index as u32), fact })
}
