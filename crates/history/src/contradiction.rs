//! Contradictions in a recorded run: rules that its facts violate. Contradictions are not evidence against a
//! protocol; they show that facts are missing or were changed.

use faultline_core::{ClusterId, FaultNo, ImageName, Life, MessageId, ProcessId, TaskId, Theft, Time};

/// A contradiction between the facts of a record, or between the facts and the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The supervisor's stream is missing.
    NoSupervisor,
    /// A life that was started has no stream.
    NoFacts(ProcessId, Life),
    /// No fact states the start of a life.
    StartMissing(ProcessId, Life),
    /// A life reported facts before it was started.
    ReportedTooEarly(ProcessId, Life),
    /// A life started before the failure of the previous one was detected.
    StartedTooEarly {
        /// The process.
        process: ProcessId,
        /// The life whose end was not detected.
        life: Life,
        /// The next life.
        next: Life,
    },
    /// The end of a life was never detected.
    NeverDetected(ProcessId, Life),
    /// The end of a life was detected several times.
    DetectedAgain(ProcessId, Life),
    /// A life failed although it had already ended.
    FailedAgain(ProcessId, Life),
    /// A life ended that was not the newest one of its process.
    NotNewest(ProcessId, Life),
    /// The application acted, but no fact states that it began.
    NeverBegun,
    /// The application began several times.
    BegunAgain {
        /// How many times the application began.
        times: usize,
    },
    /// The supervisor's facts about the start are out of order.
    StartOutOfOrder,
    /// A life acted before the application began.
    ActedTooEarly(ProcessId, Life),
    /// Only the manifest states that the run completed.
    CompletionMissing,
    /// Only the facts state that the run completed.
    CompletedDespiteManifest,
    /// The supervisor reported facts after the end of the run.
    ReportedAfterEnd,
    /// The time of the last fact does not match the duration of the run.
    WrongEnd {
        /// The end according to the manifest.
        end: Time,
        /// The time of the last fact.
        last: Time,
    },
    /// The last life of a rank never reported its result.
    NoResult(ProcessId, Life),
    /// The witness of a result names a position other than that of the result.
    ResultMisplaced(ProcessId, Life),
    /// A node's storage reported a part as durable more often than its process had saved the part.
    NeverSaved {
        /// The process.
        process: ProcessId,
        /// Its life.
        life: Life,
        /// The part.
        part: ImageName,
    },
    /// A message was delivered, but no fact states that it was transmitted.
    NeverTransmitted(MessageId),
    /// The supervisor's facts mention a fault that is not in the plan.
    NotPlanned(FaultNo),
    /// A fault ended a life, but no fact states its injection.
    NotInjected {
        /// The number of the fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// According to the facts, a fault ended the life of a process that is not its target.
    NotTarget {
        /// The number of the fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// A life started in a way that does not fit the facts about the earlier lives and the storage of its process.
    StartedOtherwise(ProcessId, Life),
    /// A step of a theft names a task that the victim never lent to the thief.
    NeverLent(Theft),
    /// A task was stolen, but no fact states that it was sent.
    NeverShipped(Theft),
    /// The result of a stolen task was merged, but no fact states that it was sent.
    NeverReturned(Theft),
    /// A fact about a task's plan is not immediately followed by the execution of the task, or an execution is not
    /// immediately preceded by such a fact.
    PlanApart(ProcessId, Life),
    /// A task read the values of a task that was never executed.
    NeverExecuted {
        /// The task that read the values.
        task: TaskId,
        /// The task that was never executed.
        source: TaskId,
    },
    /// A life sent messages of a planned program before it executed any task.
    SentWithoutTask(ProcessId, Life),
    /// A fault was injected several times.
    InjectedAgain(FaultNo),
    /// The supervisor's facts state that a fault had no effect, and something else about the same fault.
    TwoOutcomes(FaultNo),
    /// A cluster loss did not end a process of its cluster.
    NotLost {
        /// The fault.
        fault: FaultNo,
        /// The process that did not end.
        process: ProcessId,
    },
    /// A fault ended a life several times.
    EndedAgain {
        /// The fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// A fault was injected at a time other than the planned one.
    InjectedAtOtherTime(FaultNo),
    /// A fault was injected before the facts that it waits for.
    InjectedWithoutCause(FaultNo),
    /// A fault struck a node that has logged no line for the watch whose last line names the target.
    StruckAnotherNode(FaultNo),
    /// The storage of a process that a fault ended had a fate other than the planned one.
    OtherFate {
        /// The fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// The fate of the storage of a process that no fault ended does not follow from the cause of its end.
    FateWithoutCause(ProcessId, Life),
    /// A life started while the node of its process was under repair.
    StartedDuringRepair(ProcessId, Life),
    /// A process moved to a spare node although its own was not under repair, or no spare was available.
    MovedWithoutCause(ProcessId, Life),
    /// The times at which a fault took effect include that of a life that it did not end.
    EffectElsewhere {
        /// The fault.
        fault: FaultNo,
        /// The process.
        process: ProcessId,
        /// The life of the process.
        life: Life,
    },
    /// A fault ended a life, but not at the time of its injection.
    EndedAtOtherTime {
        /// The fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// A process that a fault had paused resumed at a time other than the end of its last pause, or was not paused.
    ResumedAtOtherTime(ProcessId, Life),
    /// A process never resumed although its pause had ended.
    NeverResumed(ProcessId, Life),
    /// A life reported facts while it was paused.
    ActedWhilePaused(ProcessId, Life),
    /// A life reported a flipped bit, but no fault flips one there.
    FlippedByNoFault(ProcessId, Life),
    /// A user changed a federation in virtual time.
    ChangedInVirtualTime,
    /// The effects of faults were measured in virtual time.
    EffectsMeasured,
    /// According to the manifest, a link changed, but no fact states this.
    LinkNeverChanged {
        /// The sending cluster.
        from: ClusterId,
        /// The receiving cluster.
        to: ClusterId,
    },
    /// A cluster joined or left several times.
    MovedAgain(ClusterId),
    /// A fault that should have ended a life did not.
    EndedNothing(FaultNo),
    /// The manifest and the facts state different outcomes of a fault.
    OtherOutcome(FaultNo),
    /// A fault was due, but no fact mentions it.
    NeverDue(FaultNo),
    /// The manifest states the outcomes of more or fewer faults than were planned.
    OutcomesMissing {
        /// The number of outcomes.
        outcomes: usize,
        /// The number of planned faults.
        planned: usize,
    },
    /// Links were measured in virtual time.
    LinksMeasured,
    /// The numbers measured on a link do not fit together.
    LinkMiscounted {
        /// The sending cluster.
        from: ClusterId,
        /// The receiving cluster.
        to: ClusterId,
    },
    /// A link was not measured.
    LinkNotMeasured {
        /// The sending cluster.
        from: ClusterId,
        /// The receiving cluster.
        to: ClusterId,
    },
}
