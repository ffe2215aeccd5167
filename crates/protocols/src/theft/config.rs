//! Parameters, and known defects that can be switched on.

use faultline_core::{Span, defects};

use crate::placement::ReplicateTo;

/// Parameters of TIC and SEL.
#[derive(Clone, Debug)]
pub struct Config {
    /// The time from one checkpoint of a process to its next (tau). Under TIC, forced checkpoints count;
    /// under SEL, this is how often the log is truncated.
    pub tau: Span,
    /// The contents of stable storage.
    pub record: Record,
    /// Whether a thief takes a checkpoint before it asks for a task, as printed (section 4, event CP0).
    /// Correctness does not depend on it. SEL has no such checkpoint.
    pub before_asking: bool,
    /// The number of copies of each image beside the owner's own. A storage server counts as one.
    pub replicas: u16,
    /// Where the copies are stored.
    pub replicate_to: ReplicateTo,
    /// Rules that are violated on purpose.
    pub defects: Defects,
}

/// What stable storage contains of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// Its graph, as of its newest checkpoint: theft-induced checkpointing (TIC).
    #[default]
    Graph,
    /// A checkpoint of its graph, and a log of every event since: systematic event logging (SEL).
    Events,
}

defects! {
    /// A restored process does not ask about the state of the tasks that it lent.
    NoQuery,
    /// An absorbed graph is not looked up in the images of other absorbed processes, so that it may be
    /// absorbed twice.
    AbsorbedTwice,
    /// A task is sent before the theft is durable at the victim.
    TaskBeforeRecord,
    /// A result is sent before it is durable at the thief.
    ResultBeforeRecord,
    /// A receipt is sent when the result arrives, before the victim's state that holds it is durable: the thief's final
    /// checkpoint is deleted at event G.
    ReceiptAtMerge,
    /// As printed (F-G, case 2): a thief whose result is in transit counts as terminated. It answers no
    /// question, and sends the result once.
    LateTermination,
    /// As printed (volatile nodes): a result counts only in the life of the thief in which the task was stolen.
    StaleResultRefused,
    /// A thief denies a task that it still asks for.
    WantDenied,
    /// A process that is restoring denies tasks that its image may contain.
    RestoringDenies,
    /// A restored process answers only for itself, and not for the processes that its image had absorbed.
    HereAlone,
    /// The segments of a log count one by one, and not as a prefix: a leg is sent once its own segment is
    /// durable.
    LogOutOfOrder,
    /// As printed (section 5): the log contains what constructs the graph, but not the thefts of tasks.
    TheftsNotLogged,
}

impl Defect {
    /// Returns whether the defect violates a rule of logs, which TIC does not have.
    pub fn is_of_logs(self) -> bool {
        matches!(self, Defect::LogOutOfOrder | Defect::TheftsNotLogged)
    }
}
