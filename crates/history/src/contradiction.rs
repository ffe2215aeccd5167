//! Rules of a recorded run that its facts violate. None of them speaks against a protocol: facts are missing, or were
//! changed.

use faultline_core::{ClusterId, FaultNo, Life, ProcessId, Time};

/// A contradiction between the facts of a record, or between the facts and the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// The supervisor's stream is missing.
    NoSupervisor,
    /// A life that was started has no stream.
    NoFacts(ProcessId, Life),
    /// No fact states the start of a life.
    StartMissing(ProcessId, Life),
    /// A life started before the end of the previous one was detected.
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
    /// The application acted, and no fact states that it began.
    NeverBegun,
    /// The application began several times.
    BegunAgain {
        /// How often it began.
        times: usize,
    },
    /// The supervisor's facts about the start are not in their order.
    StartOutOfOrder,
    /// A life acted before the application began.
    ActedTooEarly(ProcessId, Life),
    /// The run completed according to the manifest only.
    CompletionMissing,
    /// The run completed according to the facts only.
    CompletedDespiteManifest,
    /// The supervisor stated facts after the end of the run.
    StatedAfterEnd,
    /// The last fact and the duration of the run do not fit.
    WrongEnd {
        /// The end according to the manifest.
        end: Time,
        /// The time of the last fact.
        last: Time,
    },
    /// The last life of a rank never stated its result.
    NoResult(ProcessId, Life),
    /// The witness of a result names another place than that of the result.
    ResultMisplaced(ProcessId, Life),
    /// A fault that was injected is not in the plan.
    NotPlanned(FaultNo),
    /// A fault ended a life, and no fact states its injection.
    NotInjected {
        /// The fault.
        fault: FaultNo,
        /// The process that ended.
        process: ProcessId,
        /// The life that ended.
        life: Life,
    },
    /// A fault that must end a life ended none.
    EndedNothing(FaultNo),
    /// The manifest states another outcome of a fault than the facts.
    OtherOutcome(FaultNo),
    /// A fault whose time came left no fact.
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
    /// A link was not measured.
    LinkNotMeasured {
        /// The sending cluster.
        from: ClusterId,
        /// The receiving cluster.
        to: ClusterId,
    },
}
