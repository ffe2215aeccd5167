//! The findings of properties, as values. Only [`crate::wording`] turns them into sentences, with the names that the
//! run gives to its processes and clusters.

use std::sync::Arc;

use faultline_core::fault::{Handled, MemoryUse, Outcome, Panic};
use faultline_core::{
    Attempt, ClusterId, Digest, FactNo, FaultNo, ImageName, Incarnation, Life, MessageId, Position,
    ProcessId, Sn, Span, TaskId, Theft, TheftStep, Time,
};
use faultline_history::{CheckpointName, Context, Contradiction, GroupId, ImpossibleFact, Source};
use faultline_trace::Flaw;

use crate::judgement::{Finding, Property, Strictness, Violation};

/// How a run violates a property.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a sentence in `wording` explains each variant")]
pub enum Breach {
    // Messages.
    NeverDelivered {
        message: MessageId,
    },
    NotDeliveredAgain {
        message: MessageId,
    },
    SendUndone {
        message: MessageId,
    },
    NeverSent {
        message: MessageId,
    },
    SameIdentity {
        message: MessageId,
    },
    DeliveredTwice {
        message: MessageId,
    },
    DeliveredBoth {
        one: MessageId,
        other: MessageId,
    },
    ConsumedBeforeItsCause {
        message: MessageId,
    },
    DeliveredInAnotherOrder {
        message: MessageId,
        instead_of: MessageId,
    },
    // Orphans.
    SuppressedUndelivered {
        message: MessageId,
    },
    NotAnOrphan {
        message: MessageId,
    },
    OrphanNeverResent {
        message: MessageId,
    },
    OvertookOrphan {
        message: MessageId,
        phase: u32,
        orphan: MessageId,
        orphan_phase: u32,
    },
    WrongPhase {
        process: ProcessId,
        message: MessageId,
        phase: u32,
        computed: u32,
    },
    // Forced checkpoints.
    PositionChanged {
        message: MessageId,
        first: Position,
        second: Position,
    },
    DeliveredBeforeCheckpoint {
        message: MessageId,
        sent_at: Position,
        from: GroupId,
        covered: Position,
    },
    NotCovered {
        message: MessageId,
        position: Position,
    },
    ForcedTooOften {
        process: ProcessId,
        life: Life,
        forced: u64,
        allowed: u64,
    },
    // Checkpoints.
    SavedDifferently {
        part: ImageName,
    },
    WrongContents {
        owner: ProcessId,
        position: Option<Position>,
        tasks: bool,
        sent: bool,
        delivered: bool,
    },
    CommittedTwice {
        processes: [ProcessId; 2],
        position: Position,
        attempts: [Attempt; 2],
    },
    CommittedDifferently {
        processes: [ProcessId; 2],
        position: Position,
    },
    PositionSkipped {
        process: ProcessId,
        from: Position,
        to: Position,
    },
    DeliveryWithoutSend {
        group: GroupId,
        position: Position,
        message: MessageId,
    },
    UsedBeforeDurable {
        process: ProcessId,
        position: Position,
        owner: ProcessId,
    },
    ValidPartRemoved {
        holder: ProcessId,
        part: ImageName,
    },
    SentAndNotReceived {
        position: Position,
        message: MessageId,
    },
    SentAfterPart {
        position: Position,
        message: MessageId,
    },
    CoordinationMessages {
        position: Position,
        found: usize,
        expected: usize,
        partitions: usize,
        channels: usize,
    },
    CommittedBeforeDurable {
        group: GroupId,
        position: Position,
        owner: ProcessId,
        holder: ProcessId,
    },
    CommittedWithTooFewCopies {
        group: GroupId,
        position: Position,
        owner: ProcessId,
        found: usize,
        replicas: u32,
    },
    // Rollbacks.
    RestoredUndone {
        group: GroupId,
        target: Position,
    },
    RestoredOlder {
        group: GroupId,
        target: Position,
        newer: Position,
    },
    RestoredDifferently {
        group: GroupId,
        incarnation: Incarnation,
        states: [Option<CheckpointName>; 2],
    },
    RestoredAnother {
        process: ProcessId,
        claimed: Position,
    },
    ResumedBeforeDurable {
        group: GroupId,
        position: Position,
        owner: ProcessId,
        copies: DurableCopies,
    },
    ActedBeforeBeginning {
        process: ProcessId,
        life: Life,
    },
    ActedBeforeFirstCheckpoint {
        process: ProcessId,
        life: Life,
    },
    ProtectedWithoutCopy {
        holder: ProcessId,
        owner: ProcessId,
    },
    WithoutCause {
        group: GroupId,
        incarnation: Incarnation,
        undone_without_cause: bool,
    },
    RolledBackTooOften {
        group: GroupId,
        times: usize,
        deaths: usize,
    },
    RolledBackRepeatedly {
        group: GroupId,
        times: usize,
    },
    RolledBackLate {
        group: GroupId,
        times: usize,
        bound: Span,
    },
    OtherPosition {
        message: MessageId,
        carried: Position,
        expected: Position,
    },
    NeverLeft {
        cluster: ClusterId,
        still: Span,
    },
    RoundNotEnded {
        process: ProcessId,
        round: Round,
        bound: Span,
    },
    NoProgress {
        still: Span,
    },
    DeliveryOverdue {
        message: MessageId,
        waited: Span,
    },
    NotResumed {
        process: ProcessId,
        still: Span,
    },
    // Unrecoverable groups.
    WasDurable {
        owner: ProcessId,
        position: Position,
        holder: ProcessId,
    },
    TooFewLosses {
        group: GroupId,
        owner: ProcessId,
        holders: u32,
    },
    NothingLost {
        group: GroupId,
    },
    WasAvailable {
        group: GroupId,
        position: Position,
    },
    LogNotLost {
        group: Option<GroupId>,
        holder: ProcessId,
    },
    // Garbage collection.
    CollectedBeforeRollback {
        process: ProcessId,
        below: Sn,
        to: Sn,
    },
    CollectedLog {
        process: ProcessId,
        collected: u64,
        contained: u64,
    },
    // Lost work.
    CheckpointOverdue {
        group: GroupId,
        waited: Span,
        every: Span,
        detect_after: Span,
    },
    ProcessCheckpointOverdue {
        process: ProcessId,
        waited: Span,
        every: Span,
    },
    MovedWithoutCause {
        partition: ProcessId,
        from: ProcessId,
        to: ProcessId,
    },
    NotCeded {
        partition: ProcessId,
        from: ProcessId,
        to: ProcessId,
    },
    NextCheckpointLate {
        process: ProcessId,
        waited: Span,
        allowed: Span,
    },
    NewestNotRestored {
        process: ProcessId,
        newest: Position,
    },
    LogNotRestored {
        process: ProcessId,
        since: Position,
    },
    NewestNotAbsorbed {
        by: ProcessId,
        of: ProcessId,
        newest: Position,
    },
    LogNotAbsorbed {
        by: ProcessId,
        of: ProcessId,
        since: Position,
    },
    EventNotWritten {
        process: ProcessId,
        waited: Span,
    },
    // Tasks.
    ImpossibleFact {
        process: ProcessId,
        what: ImpossibleFact,
    },
    WrongResultOfTasks {
        process: ProcessId,
    },
    OtherTasksThanSpawned {
        process: ProcessId,
    },
    Stalled {
        /// The first lent task whose result never arrived, if any.
        lent: Option<(Theft, TaskId)>,
    },
    TookBackStolen {
        victim: ProcessId,
        thief: ProcessId,
        task: TaskId,
        theft: Theft,
    },
    SentBeforeDurable {
        process: ProcessId,
        step: TheftStep,
        task: TaskId,
        theft: Theft,
    },
    NotRequired {
        process: ProcessId,
        task: TaskId,
        epoch: Incarnation,
    },
    NotReexecuted {
        process: ProcessId,
        task: TaskId,
        epoch: Incarnation,
    },
    NotDemanded {
        process: ProcessId,
        task: TaskId,
        epoch: Incarnation,
    },
    // Economy.
    ForcedWithoutNews {
        group: GroupId,
        position: Position,
    },
    CheckpointEarly {
        group: GroupId,
        position: Position,
        waited: Span,
        /// `None` if the cluster should take no unforced checkpoint after the first.
        every: Option<Span>,
    },
    SentAgain {
        message: MessageId,
        times: u64,
        suppressed: bool,
    },
    NotRemoved {
        holder: ProcessId,
        part: ImageName,
        why: Garbage,
        since: Time,
    },
    LogNotRemoved {
        process: ProcessId,
        removed: u64,
        due: u64,
        since: Time,
    },
    // Lives and results.
    StartedAfterNewer {
        process: ProcessId,
        older: Life,
        newer: Life,
    },
    StartedBeforeEnd {
        process: ProcessId,
        older: Life,
        newer: Life,
    },
    ActedAfterNext {
        process: ProcessId,
        older: Life,
        newer: Life,
        at: Time,
    },
    StartedUndetected {
        process: ProcessId,
        older: Life,
        newer: Life,
    },
    StartedOnLostStorage {
        process: ProcessId,
        life: Life,
    },
    CompletedWithout {
        process: ProcessId,
        is_down: bool,
    },
    NeverStarted {
        process: ProcessId,
        life: Life,
    },
    WrongResult {
        process: ProcessId,
        found: Digest,
        expected: Digest,
    },
    NeverFinished {
        process: ProcessId,
    },
    NotDeterministic {
        message: MessageId,
    },
    Panicked(Arc<Panic>),
    TimeStoodStill {
        process: ProcessId,
        handled: Handled,
        events: u64,
        at: Time,
    },
}

impl Breach {
    /// Returns the violation with which the run ended, if it ended with one.
    pub fn of_end(context: &Context) -> Option<Breach> {
        match context.outcome.as_ref()? {
            Outcome::Panicked(panic) => Some(Breach::Panicked(panic.clone())),
            &Outcome::Stalled { process, handled, events } => {
                Some(Breach::TimeStoodStill { process, handled, events, at: context.end })
            }
            _ => None,
        }
    }
}

/// The durable copies that a restored part had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`wording` explains each variant")]
pub enum DurableCopies {
    None,
    NoneAtOwner,
    Only { found: usize, replicas: usize },
}

/// The reason why no recovery can need a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A rollback undid the checkpoint.
    Undone,
    /// Every checkpoint that a recovery could restore is newer.
    Older,
}

/// A round of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Round {
    Recovery,
    Checkpoint,
}

/// The reason why something could not be judged, although it should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a sentence in `wording` explains each variant")]
pub enum Gap {
    // The end of the run.
    DeadlineExceeded { begun: bool },
    Interrupted,
    CutShort,
    Unrecoverable { group: GroupId, missing: Vec<MissingPart> },
    NotDeterministic { message: MessageId },
    OutOfMemory(Arc<MemoryUse>),
    EndedUnexpectedly { process: ProcessId, at: Time },
    // The record.
    Flawed { flaws: Vec<Flaw>, contradictions: Vec<Contradiction>, more: usize },
    SupervisorMissing,
    FactsMissing { process: ProcessId },
    FactsMissingBefore { process: ProcessId, life: Life, upto: FactNo },
    FactsOfCopiesMissing,
    // Faults and links.
    NoFaultTookEffect { planned: u64 },
    FaultsNotShown { planned: u64 },
    TimesNotRecorded { cluster: ClusterId, fault: FaultNo },
    EndNotSeen { process: ProcessId, fault: FaultNo },
    EndedApart { cluster: ClusterId, processes: usize, fault: FaultNo, skew: Span, within: Span },
    LinkLatency { from: ClusterId, to: ClusterId, measured: Span, asked: Span },
    LinkDelay(LinkDelay),
    LinkNotMeasured { from: ClusterId, to: ClusterId, since: Time },
    // States.
    PartUnknown { owner: ProcessId, position: Position },
    CheckpointUnknown { group: GroupId, position: Position },
    ForcedUnknown { message: MessageId },
    StateUnknown { process: ProcessId },
    ReceiversUnknown { messages: u64 },
    SendersUnknown { messages: u64 },
    NoMessage,
    NoCheckpoint,
    NoResultOfTasks,
}

impl Gap {
    /// Returns whether missing facts suffice to explain the gap. The reason for the verdict on an incomplete record is
    /// then that facts are missing.
    pub(crate) fn follows_from_missing_facts(&self) -> bool {
        match self {
            Gap::SupervisorMissing
            | Gap::FactsMissing { .. }
            | Gap::FactsMissingBefore { .. }
            | Gap::FactsOfCopiesMissing
            | Gap::FaultsNotShown { .. }
            | Gap::TimesNotRecorded { .. }
            | Gap::PartUnknown { .. }
            | Gap::CheckpointUnknown { .. }
            | Gap::ForcedUnknown { .. }
            | Gap::StateUnknown { .. }
            | Gap::ReceiversUnknown { .. }
            | Gap::SendersUnknown { .. }
            | Gap::NoMessage
            | Gap::NoCheckpoint
            | Gap::NoResultOfTasks => true,
            Gap::DeadlineExceeded { .. }
            | Gap::Interrupted
            | Gap::CutShort
            | Gap::Unrecoverable { .. }
            | Gap::NotDeterministic { .. }
            | Gap::OutOfMemory(_)
            | Gap::EndedUnexpectedly { .. }
            | Gap::Flawed { .. }
            | Gap::NoFaultTookEffect { .. }
            | Gap::EndNotSeen { .. }
            | Gap::EndedApart { .. }
            | Gap::LinkLatency { .. }
            | Gap::LinkDelay(_)
            | Gap::LinkNotMeasured { .. } => false,
        }
    }
}

/// An unavailable part of a checkpoint or of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct MissingPart {
    pub name: ImageName,
    pub is_log: bool,
    pub asked: Vec<ProcessId>,
}

/// How far the observed delays of a link deviated from the requested latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct LinkDelay {
    pub from: ClusterId,
    pub to: ClusterId,
    pub percent: u32,
    pub tolerance: Span,
    pub mean: Span,
    pub asked: Span,
}

/// Information that does not affect the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a sentence in `wording` explains each variant")]
pub enum Remark {
    NotPromised(Breach),
    /// Violations of an economy property, which do not affect the verdict: the first one, and the number of the others.
    Wasteful(Breach, u64),
    EndedTogether {
        skew: Span,
    },
    WithoutEffect {
        fault: FaultNo,
        reason: String,
    },
    NotApplied {
        fault: FaultNo,
    },
    NotDue {
        never: u64,
        planned: u64,
    },
    /// The run completed before a cluster that was to leave had left.
    NotLeft {
        cluster: ClusterId,
    },
    /// The record ends before it shows what became of these faults.
    NotShown {
        open: u64,
        planned: u64,
    },
    LinkDelay(LinkDelay),
    ReplicasLost {
        group: GroupId,
        position: Position,
        target: Position,
    },
    /// Lines of imported events are not facts.
    Unmatched {
        lines: u64,
    },
    NotCounted {
        process: ProcessId,
        /// Whether the contents of the result could not be counted because facts are missing.
        is_incomplete: bool,
    },
}

/// The findings of a property, as values.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    pub(crate) property: Property,
    /// The number of instances judged.
    pub(crate) instances: u64,
    /// The first violations, with the facts that prove them.
    pub(crate) violations: Vec<(Breach, Vec<Source>)>,
    pub(crate) more_violations: u64,
    /// The first reason why something could not be judged.
    pub(crate) open: Option<Gap>,
    pub(crate) remarks: Vec<Remark>,
}

impl Findings {
    /// The maximum number of violations that are kept, with their evidence. Further ones are only counted.
    const KEPT: usize = 20;

    pub(crate) fn new(property: Property) -> Findings {
        Findings {
            property,
            instances: 0,
            violations: Vec::new(),
            more_violations: 0,
            open: None,
            remarks: Vec::new(),
        }
    }

    /// Records a violation and its evidence.
    pub(crate) fn violated<const N: usize>(&mut self, evidence: [Source; N], what: Breach) {
        if self.violations.len() < Self::KEPT {
            self.violations.push((what, evidence.to_vec()));
        } else {
            self.more_violations += 1;
        }
    }

    /// Records that something could not be judged. Keeps only the first reason.
    pub(crate) fn unjudged(&mut self, reason: Gap) {
        self.open.get_or_insert(reason);
    }

    /// Turns all violations into remarks.
    pub(crate) fn not_promised(&mut self) {
        self.remarks
            .extend(std::mem::take(&mut self.violations).into_iter().map(|(it, _)| Remark::NotPromised(it)));
        self.more_violations = 0;
    }

    /// Turns violations of an economy property into one remark, unless the judgement is strict.
    pub(crate) fn judged(mut self, strictness: Strictness) -> Findings {
        if strictness == Strictness::Lenient && self.property.is_of_economy() {
            let more = (self.violations.len() as u64 + self.more_violations).saturating_sub(1);
            let first = self.violations.drain(..).next();
            self.remarks.extend(first.map(|(it, _)| Remark::Wasteful(it, more)));
            self.more_violations = 0;
        }
        self
    }

    /// Drops the findings if the run has no evidence about the property.
    pub(crate) fn if_evident(self, context: &Context) -> Findings {
        if self.property.is_evident(context) { self } else { Findings::new(self.property) }
    }

    /// Turns violations of a property that the protocol does not promise into remarks.
    pub(crate) fn promised(self, context: &Context) -> Findings {
        if self.property.is_judged(context) {
            return self;
        }
        let mut found = Findings { violations: self.violations, ..Findings::new(self.property) };
        found.not_promised();
        found
    }

    /// Turns the finding into sentences.
    pub(crate) fn into_finding(self, names: &Context) -> Finding {
        let violation = |(what, evidence): (Breach, Vec<Source>)| Violation {
            text: what.sentence(names),
            evidence,
            what: Some(what),
        };
        Finding {
            property: self.property,
            instances: self.instances,
            violations: self.violations.into_iter().map(violation).collect(),
            more_violations: self.more_violations,
            is_doubtful: false,
            unknown: self.open.map(|it| it.sentence(names)),
            remarks: self.remarks.iter().map(|it| it.sentence(names)).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.more_violations
    }

    /// Returns the violations, without the evidence.
    #[cfg(test)]
    pub(crate) fn wrong(&self) -> Vec<Breach> {
        self.violations.iter().map(|(it, _)| it.clone()).collect()
    }
}
