//! Builds a history: makes one pass over every stream, and then determines the final states.

mod finish;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use faultline_core::{
    Claim, Fact, GroupId, ImageName, Incarnation, Life, MessageId, PartitionClaim, PlannedTask, ProcessId,
    TaskId, Time, Vectors, Witness,
};
use faultline_trace::{Stream, Trace};

use crate::context::Context;
use crate::groups::{CheckpointName, Commit, Groups, RestoredBy, StoredCopy};
use crate::history::{BetweenDelivery, Claimed};
use crate::history::{History, find_cut};
use crate::hosting::{self, HostingPeriod};
use crate::messages::{MessageNo, Messages};
use crate::planned::{Ceded, Joined, Planned, Removed, Rerun, Task};
use crate::segments::{Ending, Point, ProcessHistory, Segment, SegmentNo, Sums, Witnessed};
use crate::supervision::Supervision;
use crate::tasks::{Absorption, Step, Tasks};

impl<'a> History<'a> {
    /// Builds the history, in time linear in the number of facts except for sorting checkpoints.
    pub fn new(trace: &'a Trace, context: &'a Context) -> History<'a> {
        let mut builder = Builder::new(trace, context);
        if let Some(periods) = hosting::of(trace) {
            periods.iter().for_each(|period| builder.read_period(period));
            return builder.finish();
        }
        for (&(process, life), stream) in &trace.streams {
            // A life without facts has no state.
            if process != ProcessId::SUPERVISOR && !stream.is_empty() {
                builder.read(process, life, stream);
            }
        }
        builder.finish()
    }
}

/// The number of messages sent and delivered between two entries of the running sums.
const MOVES_PER_SUM: u32 = 32;

struct Builder<'a> {
    history: History<'a>,
    /// Deliveries by sender; those from unknown processes come last. They are entered sender by sender, once every
    /// stream has been read: the messages of one sender fit into a processor's cache, whereas those of all senders do
    /// not.
    deliveries: Vec<Deliveries>,
    /// The reports that an image is durable, which are entered once all parts are known.
    durable: Vec<(ImageName, StoredCopy)>,
    /// Thefts and absorptions.
    tasks: Tasks,
    /// Tasks that were assigned in advance.
    planned: Planned,
    /// The time of the last movement: an application message was sent or delivered, a task ran or was stolen, or a
    /// state was restored or absorbed.
    last_movement: Time,
}

/// A delivery that has yet to be entered.
struct Delivery {
    message: MessageId,
    at: Point,
    /// The index among the deliveries between groups, or [`Delivery::WITHIN`].
    between: u32,
}

impl Delivery {
    /// Marks a delivery within a group, which has no index.
    const WITHIN: u32 = u32::MAX;
}

/// Deliveries in pieces: a single piece would be copied whenever it grew, and would take twice the memory.
#[derive(Default)]
struct Deliveries {
    last: Vec<Delivery>,
    full: Vec<Vec<Delivery>>,
}

impl Deliveries {
    const PIECE: usize = 128;

    #[inline]
    fn push(&mut self, delivery: Delivery) {
        if self.last.len() == Deliveries::PIECE {
            let full = std::mem::replace(&mut self.last, Vec::with_capacity(Deliveries::PIECE));
            self.full.push(full);
        }
        self.last.push(delivery);
    }
}

/// The position of the pass within one stream.
struct Cursor<'a> {
    process: ProcessId,
    /// The process that reports the facts.
    host: ProcessId,
    life: Life,
    stream: &'a Stream,
    group: Option<GroupId>,
    segment: Segment,
    sums: Sums,
    /// The task that was executed last.
    ran: Option<TaskId>,
    /// Messages sent and delivered in the segment.
    moves: u32,
    /// Whether the stream also has facts about other partitions.
    is_shared: bool,
    /// The vectors of the last checkpoint that was committed or restored.
    vectors: Option<&'a Vectors>,
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace, context: &'a Context) -> Builder<'a> {
        let groups = context.groups();
        let known =
            trace.streams.keys().map(|&(process, _)| process).filter(|&it| it != ProcessId::SUPERVISOR);
        let members = groups.iter().flatten().copied();
        let count = known.chain(members).max().map_or(0, |it| it.index() + 1);
        let process = ProcessHistory { segments: 0..0, ending: Ending::Silent, member: None };
        let mut processes = vec![process; count];
        let groups = Groups::new(groups);
        for (number, group) in groups.numbered() {
            for (place, member) in group.members.iter().enumerate() {
                processes[member.index()].member = Some((number, place));
            }
        }
        let history = History {
            trace,
            context,
            segments: Vec::new(),
            processes,
            messages: Messages::new(count, trace.len()),
            groups,
            supervision: Supervision::new(trace.supervisor(), context.volatile_storage, &context.clusters),
            witnessed: Vec::new(),
            between: Vec::new(),
            suppressed: Vec::new(),
            retransmitted: Vec::new(),
            stale: Vec::new(),
            resent: Vec::new(),
            held: Vec::new(),
            claims: Vec::new(),
            results: Vec::new(),
            flips: Vec::new(),
            damaged: Vec::new(),
            tasks: None,
            planned: None,
            saved_by: BTreeMap::new(),
            is_settled: false,
            contradictions: Vec::new(),
            pairs: OnceCell::new(),
            clients: OnceCell::new(),
            sums: Vec::new(),
            streams: Vec::new(),
            cuts: Vec::new(),
            part_cuts: Vec::new(),
            cuts_of: Vec::new(),
            consumed: 0,
        };
        Builder {
            history,
            deliveries: (0..=count).map(|_| Deliveries::default()).collect(),
            durable: Vec::new(),
            tasks: Tasks::default(),
            planned: Planned::default(),
            last_movement: Time::ZERO,
        }
    }

    fn read(&mut self, process: ProcessId, life: Life, stream: &'a Stream) {
        let mut cursor = self.begin(process, process, life, stream, (0, false));
        for (fact, (time, what)) in (0..).zip(stream) {
            self.read_fact(&mut cursor, fact, *time, what);
        }
        self.close(&mut cursor, stream.len() as u32);
    }

    fn read_period(&mut self, period: &HostingPeriod<'a>) {
        let HostingPeriod { partition, host, life, stream, begin, end, continues, ref facts, .. } = *period;
        let Some(facts) = facts else { return self.read(partition, life, stream) };
        let mut cursor = self.begin(partition, host, life, stream, (begin, true));
        if continues {
            self.resume(&mut cursor);
        }
        for &fact in facts {
            let (time, what) = &stream[fact as usize];
            self.read_fact(&mut cursor, fact, *time, what);
        }
        self.close(&mut cursor, end);
    }

    /// Continues from the process's last state of the partition, which other processes have run since.
    fn resume(&self, cursor: &mut Cursor<'a>) {
        let history = &self.history;
        let own = history.processes[cursor.process.index()].segments.clone().rev().map(SegmentNo);
        let mut own = own.map(|it| (it, history.segment(it)));
        let last = own.find(|(_, it)| (it.host, it.life) == (cursor.host, cursor.life));
        let Some((segment, last)) = last else { return };
        let parent = Point { segment, fact: last.end };
        let segment = &mut cursor.segment;
        (segment.parent, segment.incarnation) = (Some(parent), last.incarnation);
        (segment.is_restored, segment.is_rootless, segment.continues) = (true, last.is_rootless, true);
        segment.base = history.sums_at(parent);
        cursor.sums = segment.base;
    }

    fn begin(
        &mut self,
        process: ProcessId,
        host: ProcessId,
        life: Life,
        stream: &'a Stream,
        (begin, is_shared): (u32, bool),
    ) -> Cursor<'a> {
        let first = self.history.segments.len() as u32;
        let range = &mut self.history.processes[process.index()].segments;
        if range.end == range.start {
            *range = first..first;
        }
        let initial = Segment {
            process,
            host,
            life,
            begin,
            end: begin,
            parent: None,
            incarnation: Incarnation::default(),
            is_restored: false,
            is_rootless: false,
            continues: false,
            is_active: false,
            survives: 0,
            sums: (self.history.sums.len() as u32, 0),
            is_shared,
            base: Sums::default(),
        };
        let group = self.history.group_of(process);
        assert!(u32::try_from(stream.len()).is_ok(), "a stream of {} facts", stream.len());
        let (sums, ran, vectors) = (Sums::default(), None, None);
        let (moves, is_shared) = (0, initial.is_shared);
        Cursor { process, host, life, stream, group, segment: initial, sums, ran, moves, is_shared, vectors }
    }

    /// Reads a fact. The facts about messages are by far the most frequent.
    #[inline(always)]
    fn read_fact(&mut self, cursor: &mut Cursor<'a>, fact: u32, time: Time, what: &'a Fact) {
        let history = &mut self.history;
        let at = Point { segment: SegmentNo(history.segments.len() as u32), fact };
        match what {
            Fact::Sent { id, .. } => {
                let number = history.messages.entry(id);
                history.messages.get_mut(number).send(at);
                if let Some(task) = cursor.ran {
                    self.planned.sent_by.insert(number, task);
                }
                cursor.sums.sent = cursor.sums.sent.wrapping_add(id.mix());
                self.moved(cursor, fact, time);
            }
            Fact::Transmitted { id, position } => {
                let number = history.messages.entry_transmitted(id);
                if !self.planned.is_empty() {
                    self.planned.transmitted.entry(number).or_default().push(at);
                }
                if history.messages.get_mut(number).transmit(*position, at) {
                    history.retransmitted.push((*id, at));
                }
            }
            Fact::Delivered(id) => {
                let mut between = Delivery::WITHIN;
                if cursor.group != history.group_of(id.from) {
                    between = history.between.len() as u32;
                    let (message, vectors) = (MessageNo::NONE, cursor.vectors);
                    history.between.push(BetweenDelivery { message, at, vectors });
                }
                let sender = id.from.index().min(self.deliveries.len() - 1);
                self.deliveries[sender].push(Delivery { message: *id, at, between });
                cursor.sums.delivered = cursor.sums.delivered.wrapping_add(id.mix());
                self.moved(cursor, fact, time);
            }
            _ => self.read_other(cursor, at, time, what),
        }
    }

    #[inline(never)]
    fn read_other(&mut self, cursor: &mut Cursor<'a>, at: Point, time: Time, what: &'a Fact) {
        let history = &mut self.history;
        match what {
            Fact::Consumed(_) => history.consumed += 1,
            Fact::Suppressed(id) => history.suppressed.push((*id, at)),
            Fact::DroppedStale(id) => history.stale.push((*id, at)),
            Fact::Damaged(name) => history.damaged.push((at, *name)),
            Fact::Flipped(flipped) => history.flips.push((at, *flipped)),
            Fact::Saved(saved) => {
                let (name, witness, bytes) = &**saved;
                if cursor.process == name.owner && cursor.host != name.owner {
                    history.saved_by.insert(*name, cursor.host);
                }
                history.witnessed.push(Witnessed {
                    at,
                    owner: name.owner,
                    witness: *witness,
                    part: Some(*name),
                    is_restored: false,
                    bytes: *bytes,
                });
                if let Some((group, place)) = history.member(name.owner) {
                    let part =
                        &mut history.groups[group].checkpoint(CheckpointName::from(*name)).parts[place];
                    part.witness.get_or_insert((*witness, at));
                }
            }
            Fact::Durable(name) => {
                self.durable.push((*name, StoredCopy { holder: cursor.process, life: cursor.life, time }));
            }
            Fact::Restored(restored) => {
                let (name, incarnation, witness) = **restored;
                self.restore(cursor, at, time, name, incarnation, witness);
                let history = &mut self.history;
                if let Some((group, place)) = history.member(cursor.process) {
                    let before = history.has_state(at.segment).then_some(at);
                    let group = &mut history.groups[group];
                    group.rollback(incarnation).restored[place] =
                        Some(RestoredBy { at, time, checkpoint: name.map(CheckpointName::from), before });
                    if let Some(name) = name {
                        group.checkpoint(name.into()).is_restored = true;
                    }
                }
            }
            Fact::Finished(finished) => {
                let (witness, digest) = **finished;
                history.witnessed.push(Witnessed {
                    at,
                    owner: cursor.process,
                    witness,
                    part: None,
                    is_restored: false,
                    bytes: 0,
                });
                history.results.push((at, witness, digest));
                cursor.segment.is_active = true;
            }
            Fact::Claim(claim) => self.read_claim(cursor, at, time, claim),
            _ => self.read_of_tasks(cursor, at, time, what),
        }
    }

    /// Reads a fact about the tasks of a program.
    fn read_of_tasks(&mut self, cursor: &mut Cursor<'a>, at: Point, time: Time, what: &'a Fact) {
        match what {
            Fact::Planned(planned) => {
                let PlannedTask { task, partition, sources } = &**planned;
                let new = || Task { partition: *partition, sources: sources.clone(), ran: Vec::new() };
                self.planned.tasks.entry(*task).or_insert_with(new);
            }
            Fact::Rerun { task, by, epoch, cost_us } => {
                let (task, by, epoch, cost_us) = (*task, *by, *epoch, *cost_us);
                self.planned.reruns.push(Rerun { at, task, by, epoch, cost_us });
                self.active(cursor, time);
            }
            Fact::Removed(part) => self.planned.removed.push(Removed { at, part: *part }),
            Fact::CheckpointMessage { position, from, to } => {
                self.planned.coordinated.entry(*position).or_default().push((*from, *to, at));
            }
            Fact::Ran { task, .. } if self.planned.tasks.contains_key(task) => {
                self.planned.tasks.get_mut(task).expect("the task is known").ran.push(at);
                cursor.ran = Some(*task);
                self.active(cursor, time);
            }
            Fact::Absorbed(absorbed) if absorbed.0 == cursor.process => {
                let (_, name, witness, _) = **absorbed;
                self.restore(cursor, at, time, name, Incarnation::default(), witness);
            }
            Fact::Ceded { partition, epoch } if *partition == cursor.process => {
                let ceded = Ceded { at, partition: *partition, host: cursor.host, epoch: *epoch };
                self.planned.ceded.push(ceded);
                self.cede(cursor, at);
            }
            Fact::Ran { task, .. } => {
                self.tasks.moves += 1;
                self.tasks.ran.push(*task);
                self.active(cursor, time);
            }
            Fact::Theft { theft, task, step } => {
                self.tasks.thefts.entry(*theft).or_default().push(Step { at, step: *step, task: *task });
                self.active(cursor, time);
            }
            Fact::Absorbed(absorbed) => {
                let (of, image, witness, _) = **absorbed;
                self.tasks.absorptions.push(Absorption { at, of, image, witness });
                if image.is_some() {
                    let (owner, part, is_restored, bytes) = (of, image, false, 0);
                    self.history.witnessed.push(Witnessed { at, owner, witness, part, is_restored, bytes });
                }
                self.active(cursor, time);
            }
            _ => {}
        }
    }

    fn read_claim(&mut self, cursor: &mut Cursor<'a>, at: Point, time: Time, claim: &'a Claim) {
        let history = &mut self.history;
        match claim {
            Claim::Resent { id } => return history.resent.push((*id, at)),
            Claim::Forcing { id } => return history.held.push((*id, at)),
            Claim::Committed { position, attempt, forced, frozen, vectors } => {
                cursor.vectors = Some(vectors);
                if let Some(group) = cursor.group {
                    let name = CheckpointName { position: *position, attempt: *attempt };
                    history.groups[group].checkpoint(name).commits.push(Commit {
                        process: cursor.process,
                        at,
                        time,
                        forced: *forced,
                        frozen: *frozen,
                        vectors,
                    });
                }
            }
            Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, slot }) => {
                self.planned.joined.entry((*epoch, *partition)).or_insert(Joined { at, slot: *slot });
            }
            Claim::Partition(PartitionClaim::Drained { from, to, epoch }) => {
                self.planned.drained.entry((*epoch, *from, *to)).or_insert(at);
                return;
            }
            Claim::RolledBack { to, checkpoint, cause, vectors } => {
                cursor.vectors = Some(vectors);
                if let Some(group) = cursor.group {
                    let rollback = history.groups[group].rollback(to.incarnation);
                    rollback.cause.get_or_insert((*cause, at));
                    rollback.claimed.push((cursor.process, *checkpoint, at));
                }
            }
            _ => {}
        }
        history.claims.push(Claimed { at, time, claim });
    }

    /// Handles an application message that was sent or delivered.
    fn moved(&mut self, cursor: &mut Cursor<'a>, fact: u32, time: Time) {
        // Between two entries, the sums are computed from the facts. In a stream that covers several partitions, every
        // send and delivery has an entry.
        if cursor.moves.is_multiple_of(MOVES_PER_SUM) || cursor.is_shared {
            self.history.sums.push((fact, cursor.sums));
        }
        cursor.moves += 1;
        self.active(cursor, time);
    }

    /// Records that the process did something that the end of the run may have to wait for.
    fn active(&mut self, cursor: &mut Cursor<'a>, time: Time) {
        cursor.segment.is_active = true;
        self.last_movement = self.last_movement.max(time);
    }

    /// Handles a restore: the process's state becomes that of an earlier cut.
    fn restore(
        &mut self,
        cursor: &mut Cursor<'a>,
        at: Point,
        time: Time,
        name: Option<ImageName>,
        incarnation: Incarnation,
        witness: Witness,
    ) {
        self.close(cursor, at.fact);
        self.last_movement = self.last_movement.max(time);
        let history = &mut self.history;
        let owner = cursor.process;
        let (mut parent, mut is_rootless, mut base) = (None, false, Sums::default());
        if let Some(name) = name {
            let own = history.processes[owner.index()].segments.clone();
            let segments = &history.segments[own.start as usize..own.end as usize];
            parent = find_cut(segments, own.start, history.saved_by(name), &witness);
            match parent {
                Some(cut) => base = history.sums_at(cut),
                None => is_rootless = true,
            }
        }
        is_rootless |= parent.is_some_and(|cut| history.segment(cut.segment).is_rootless);
        history.witnessed.push(Witnessed { at, owner, witness, part: name, is_restored: true, bytes: 0 });
        (cursor.sums, cursor.moves) = (base, 0);
        cursor.vectors = None;
        cursor.ran = None;
        cursor.segment = Segment {
            process: owner,
            host: cursor.host,
            life: cursor.life,
            begin: at.fact + 1,
            end: at.fact + 1,
            parent,
            incarnation,
            is_restored: true,
            is_rootless,
            continues: false,
            is_active: false,
            survives: 0,
            sums: (history.sums.len() as u32, 0),
            is_shared: cursor.is_shared,
            base,
        };
    }

    /// Handles a partition that the process has ceded: from here on, the process holds none of the partition's state.
    fn cede(&mut self, cursor: &mut Cursor<'a>, at: Point) {
        self.close(cursor, at.fact);
        (cursor.sums, cursor.moves) = (Sums::default(), 0);
        cursor.ran = None;
        cursor.segment = Segment {
            begin: at.fact + 1,
            end: at.fact + 1,
            parent: None,
            incarnation: Incarnation::default(),
            is_restored: true,
            is_rootless: true,
            continues: false,
            is_active: false,
            survives: 0,
            sums: (self.history.sums.len() as u32, 0),
            base: Sums::default(),
            ..cursor.segment.clone()
        };
    }

    fn close(&mut self, cursor: &mut Cursor<'a>, end: u32) {
        let history = &mut self.history;
        let mut segment = cursor.segment.clone();
        segment.end = end;
        segment.survives = segment.begin;
        segment.sums.1 = history.sums.len() as u32;
        history.segments.push(segment);
        history.streams.push(cursor.stream);
        history.processes[cursor.process.index()].segments.end = history.segments.len() as u32;
    }
}
