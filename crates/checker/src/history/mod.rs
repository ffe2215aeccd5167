//! What every process had done at every point, put together from the facts of its lives.
//!
//! A life's stream starts from the initial state; a restore goes back to a cut of the same process's own earlier stream.
//! So the states of a process form a tree of [`Segment`]s, each a stretch of one stream that continues a cut of an
//! earlier segment. What the process has done in the end is the path to the end of its last segment; the rest is undone.

mod build;
mod groups;
mod messages;
mod planned;
mod stints;
mod supervision;
mod tasks;

use std::collections::BTreeMap;

use faultline_core::{
    Claim, ClusterId, Digest, Fact, FactNo, Fault, ImageName, Incarnation, Life, MessageId, ProcessId, Span,
    Time, Vectors, Witness,
};
use faultline_trace::Trace;

use crate::context::Context;
use crate::evidence::contradictions;
use crate::judgement::Source;

pub use groups::{Checkpoint, CheckpointName, Commit, Group, Part, RestoredBy, Rollback, StoredCopy};
pub use messages::{Message, MessageNo, Messages};
pub use planned::{Joined, Planned, Rerun, Task};
pub use supervision::{LifeEnd, Supervision};
pub use tasks::{Absorption, End, Step, Tasks};

/// A segment's place among all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentNo(pub u32);

/// A fact's place, or (as a cut) the place before it, in the tree of its process's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The segment.
    pub segment: SegmentNo,
    /// The fact's number in its stream.
    pub fact: u32,
}

/// A stretch of one life's stream that no restore interrupts.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Whose: where tasks are assigned in advance, the process that began with the partition.
    pub process: ProcessId,
    /// Who states its facts: another process only where that took over the partition.
    pub host: ProcessId,
    /// In which life.
    pub life: Life,
    /// The first fact of the stretch; the restore that it begins with, if any, is the fact before.
    pub begin: u32,
    /// The fact after the last one.
    pub end: u32,
    /// The cut that it continues; `None` is the initial state.
    pub parent: Option<Point>,
    /// Under which incarnation its process sends.
    pub incarnation: Incarnation,
    /// Whether it begins with a restore, rather than with a life.
    pub is_restored: bool,
    /// The cut that it continues could not be found: facts are missing.
    pub is_rootless: bool,
    /// Whether the application did anything in it.
    pub is_active: bool,
    /// Facts before this one are part of what the process has done in the end; `begin` when none is.
    pub survives: u32,
    /// Its running sums, as a range of [`History::sums`].
    sums: (u32, u32),
    /// The sums of what it continues.
    base: Sums,
}

/// Multiset hashes of what a process had sent and delivered; in a program of tasks, of the tasks spawned and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Wrapping sum of the sent messages' mixes.
    pub sent: u64,
    /// Wrapping sum of the delivered messages' mixes.
    pub delivered: u64,
}

/// How well the final state of a process is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// This cut is what it has done in the end.
    Known(Point),
    /// It never stated anything.
    Silent,
    /// It was dead, or had not recovered yet, or not gone back with the others of its group, or that had been given up,
    /// when the run ended.
    Unsettled,
    /// Facts of its last life, or of what that life restored, are missing.
    Incomplete,
    /// It never lives again. What other processes absorbed of it survives.
    Gone,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessHistory {
    /// Its segments, in the order of its lives.
    pub segments: std::ops::Range<u32>,
    /// What it has done in the end.
    pub ending: Ending,
    /// Its group, and its place among the group's members; `None` for processes that run no application.
    pub member: Option<(usize, usize)>,
}

impl Sums {
    /// The sums of two multisets together.
    #[must_use]
    pub fn plus(self, other: Sums) -> Sums {
        Sums {
            sent: self.sent.wrapping_add(other.sent),
            delivered: self.delivered.wrapping_add(other.delivered),
        }
    }
}

/// A witness that someone stated.
#[derive(Clone, Copy, Debug)]
pub struct Witnessed {
    /// The fact.
    pub at: Point,
    /// Whose state it is about.
    pub owner: ProcessId,
    /// It.
    pub witness: Witness,
    /// The checkpoint part that it belongs to.
    pub part: Option<ImageName>,
    /// Whether the fact is a restore.
    pub is_restored: bool,
}

/// A delivery of a message from another group.
#[derive(Clone, Copy, Debug)]
pub struct BetweenDelivery<'a> {
    /// The message.
    pub message: MessageNo,
    /// The delivery.
    pub at: Point,
    /// The vectors of the last checkpoint that its process had committed or restored; `None` when they are not known.
    pub vectors: Option<&'a Vectors>,
}

/// What a process stated that only its protocol knows.
#[derive(Clone, Copy, Debug)]
pub struct Claimed<'a> {
    /// The fact.
    pub at: Point,
    /// By the clock of its driver.
    pub time: Time,
    /// It.
    pub claim: &'a Claim,
}

/// What every process had done at every point.
#[derive(Debug)]
pub struct History<'a> {
    /// The facts.
    pub trace: &'a Trace,
    /// What no fact states.
    pub context: &'a Context,
    /// All segments, by process and life.
    pub segments: Vec<Segment>,
    /// Indexed by [`ProcessId`].
    pub processes: Vec<ProcessHistory>,
    /// Every message.
    pub messages: Messages,
    /// The processes that take checkpoints together.
    pub groups: Vec<Group<'a>>,
    /// What the supervisor did.
    pub supervision: Supervision<'a>,
    /// Every witness.
    pub witnessed: Vec<Witnessed>,
    /// Every delivery between groups.
    pub between: Vec<BetweenDelivery<'a>>,
    /// Every message that was kept from the network, and where, in the order of processes and lives.
    pub suppressed: Vec<(MessageId, Point)>,
    /// Every claim but those about a single message.
    pub claims: Vec<Claimed<'a>>,
    /// The last result that each segment states, by segment.
    pub results: Vec<(Point, Witness, Digest)>,
    /// What a program of tasks did; `None` for processes that exchange messages.
    pub tasks: Option<Tasks>,
    /// What a program of tasks did that are assigned in advance.
    pub planned: Option<Planned>,
    /// Who saved an image that its owner did not save itself.
    saved_by: BTreeMap<ImageName, ProcessId>,
    /// Nothing was under way when the run ended, so that what was not delivered by then is lost.
    pub is_settled: bool,
    /// What the facts demand of each other in vain, as sentences without a full stop. Empty until they are examined.
    pub contradictions: Vec<String>,
    /// Running sums at every send and delivery: (fact, sums after it).
    sums: Vec<(u32, Sums)>,
    /// Cuts of checkpoints that were committed or restored, with the group, ascending.
    cuts: Vec<(Point, usize, CheckpointName)>,
}

impl<'a> History<'a> {
    /// Puts the history together. Linear in the number of facts, but for sorting checkpoints.
    pub fn new(trace: &'a Trace, context: &'a Context) -> History<'a> {
        build::build(trace, context)
    }

    /// The same history, with the contradictions between its facts. A record that was read needs this; what was kept in
    /// memory is complete by construction.
    #[must_use]
    pub fn examined(mut self) -> History<'a> {
        self.contradictions = contradictions(&self);
        self
    }

    /// When the last injected fault that holds messages back came to its end.
    pub(crate) fn last_disturbance(&self) -> Time {
        let ends = self.supervision.injected.iter().map(|&(_, fault, at, _)| match *fault {
            Fault::Crash { .. } | Fault::LoseCluster { .. } => at,
            Fault::Pause { span, .. } | Fault::Partition { span, .. } => at + span,
            Fault::Link { span, .. } | Fault::Storage { span, .. } => at + span.unwrap_or(Span::MAX),
        });
        ends.max().unwrap_or_default()
    }

    /// Since when the supervisor has neither disturbed nor changed the federation, by its clock; the end of time when a
    /// disturbance lasts.
    pub(crate) fn calm_since(&self) -> Time {
        let is_calm = |fact: &Fact| matches!(fact, Fact::Ineffective { .. } | Fact::Completed);
        let acts = self.trace.supervisor().iter().filter(|(_, fact)| !is_calm(fact)).map(|(at, _)| *at);
        acts.max().unwrap_or_default().max(self.last_disturbance())
    }

    /// Whether something is wrong with the evidence.
    pub fn is_flawed(&self) -> bool {
        !self.trace.flaws.is_empty() || !self.contradictions.is_empty()
    }

    /// A segment.
    pub fn segment(&self, no: SegmentNo) -> &Segment {
        &self.segments[no.0 as usize]
    }

    /// Whether a segment is a state of its process: a life other than the first has none before its first restore,
    /// unless its application acted all the same.
    pub fn has_state(&self, no: SegmentNo) -> bool {
        let segment = self.segment(no);
        let is_first = self.processes[segment.process.index()].segments.start == no.0;
        segment.is_restored || segment.is_active || is_first
    }

    /// The last state that a member had before it restored, in the same life or an earlier one.
    pub fn state_before(&self, restored: &RestoredBy) -> Option<Point> {
        restored.before.or_else(|| {
            let own = self.processes[self.process_of(restored.at).index()].segments.clone();
            let mut earlier = (own.start..restored.at.segment.0).rev().map(SegmentNo);
            let segment = earlier.find(|&it| self.has_state(it))?;
            Some(Point { segment, fact: self.segment(segment).end })
        })
    }

    /// The process that stated the fact at `point`.
    pub fn process_of(&self, point: Point) -> ProcessId {
        self.segment(point.segment).process
    }

    /// The fact at `point`, for evidence.
    pub fn source(&self, point: Point) -> Source {
        let segment = self.segment(point.segment);
        Source { process: segment.host, life: segment.life, number: FactNo(point.fact.into()) }
    }

    /// When the fact at `point` was stated, by the clock of its process.
    pub fn time(&self, point: Point) -> Time {
        let segment = self.segment(point.segment);
        self.trace.streams[&(segment.host, segment.life)][point.fact as usize].0
    }

    /// Whether the state at `cut` contains the fact at `fact`, of the same process.
    pub fn contains(&self, mut cut: Point, fact: Point) -> bool {
        while cut.segment > fact.segment {
            match self.segment(cut.segment).parent {
                Some(parent) => cut = parent,
                None => return false,
            }
        }
        cut.segment == fact.segment && fact.fact < cut.fact
    }

    /// Whether the state at `cut` contains the fact at `fact`: of the same process, or of one whose state it absorbed.
    pub fn holds(&self, cut: Point, fact: Point) -> bool {
        self.contains(cut, fact) || self.absorbed_at(cut).any(|it| self.holds(it, fact))
    }

    /// The cuts of other processes' states that the state at `cut` has absorbed itself.
    fn absorbed_at(&self, cut: Point) -> impl Iterator<Item = Point> + '_ {
        let absorptions = self.tasks.iter().flat_map(|it| &it.absorptions);
        let own = absorptions
            .filter(move |it| self.process_of(it.at) == self.process_of(cut) && self.contains(cut, it.at));
        own.filter(|it| it.image.is_some()).filter_map(|it| self.cut_of(it.of, &it.witness))
    }

    /// Whether the fact at `point` is part of what its process has done in the end.
    pub fn survives(&self, point: Point) -> bool {
        point.fact < self.segment(point.segment).survives
    }

    /// How well the final state of `process` is known.
    pub fn ending(&self, process: ProcessId) -> Ending {
        self.processes.get(process.index()).map_or(Ending::Silent, |it| it.ending)
    }

    /// Whether `process` was of a cluster that has left: nothing is under way to or from it.
    pub fn has_left(&self, process: ProcessId) -> bool {
        let of = |cluster: &ClusterId| self.context.clusters.get(cluster.index());
        self.supervision.left.iter().filter_map(of).any(|members| members.contains(&process))
    }

    /// The group of `process` and its place in it; `None` for processes that run no application.
    pub fn member(&self, process: ProcessId) -> Option<(usize, usize)> {
        self.processes.get(process.index()).and_then(|it| it.member)
    }

    /// The group of `process`.
    pub fn group_of(&self, process: ProcessId) -> Option<usize> {
        self.member(process).map(|(group, _)| group)
    }

    /// What the facts say had been sent and delivered at `cut`.
    pub fn sums_at(&self, cut: Point) -> Sums {
        let segment = self.segment(cut.segment);
        let sums = &self.sums[segment.sums.0 as usize..segment.sums.1 as usize];
        match sums.partition_point(|&(fact, _)| fact < cut.fact) {
            0 => segment.base,
            after => sums[after - 1].1,
        }
    }

    /// The first checkpoint, committed or restored, of the same segment whose cut contains the fact at `point`.
    pub fn first_checkpoint_with(&self, point: Point) -> Option<(CheckpointName, &Checkpoint<'a>)> {
        let after = self.cuts.partition_point(|&(cut, ..)| cut <= point);
        let &(cut, group, name) = self.cuts.get(after)?;
        (cut.segment == point.segment).then(|| (name, &self.groups[group].checkpoints[&name]))
    }

    /// Finds the cut that a witness of `owner` names; `None` when facts before it are missing.
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

    /// The process that saved a part.
    fn saved_by(&self, name: ImageName) -> ProcessId {
        self.saved_by.get(&name).copied().unwrap_or(name.owner)
    }

    /// What all partitions had sent and delivered that the process which stated the fact at `point` ran then.
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

    /// Whether the send of a message is part of what its sender has done in the end.
    pub fn send_survives(&self, message: &Message) -> Option<bool> {
        match self.ending(message.id.from) {
            Ending::Known(_) => Some(message.sent.iter().any(|&at| self.survives(at))),
            Ending::Silent | Ending::Gone => Some(false),
            Ending::Unsettled | Ending::Incomplete => None,
        }
    }
}

/// Finds the cut that `witness` names among the segments of its owner, the first of which has number `first`. `host` stated
/// the facts before it.
fn find_cut(segments: &[Segment], first: u32, host: ProcessId, witness: &Witness) -> Option<Point> {
    let fact = u32::try_from(witness.upto.0).ok()?;
    let place = |process: ProcessId, host: ProcessId| (host < process, host);
    // The restore that begins a segment belongs to it, so a cut right behind the restore does as well.
    let after = segments.partition_point(|it| {
        (place(it.process, it.host), it.life, it.begin) <= (place(it.process, host), witness.life, fact)
    });
    let index = after.checked_sub(1)?;
    let segment = &segments[index];
    (segment.host == host && segment.life == witness.life && fact <= segment.end)
        .then_some(Point { segment: SegmentNo(first + index as u32), fact })
}
