//! Parameters of TIC and SEL, their rules, and the known defects that tests can enable.
//!
//! A rule cites the section of the paper that contains it. Rules marked *corrected* differ from what the paper prints
//! there; rules marked *added* are missing from the paper. `docs/tic-sel.md` explains both.

use faultline_core::Span;

use crate::machines::{rule_queries, rules};
use crate::placement::ReplicateTo;

/// Parameters of TIC and SEL.
#[derive(Clone, Debug)]
pub struct Config {
    /// The time from one checkpoint of a process to the next (tau). Under TIC, forced checkpoints count as well;
    /// under SEL, each checkpoint truncates the log.
    pub tau: Span,
    /// The contents of stable storage.
    pub record: StableState,
    /// Whether a thief takes a checkpoint before it asks for a task, as printed (section 4, event CP0). Correctness
    /// does not depend on this checkpoint. SEL does not take it.
    pub before_asking: bool,
    /// Number of replicas of each image, not counting the owner's own copy. The copy at a storage server counts as one
    /// replica.
    pub replicas: u16,
    /// Where the replicas are stored.
    pub replicate_to: ReplicateTo,
    /// Enabled defects, for tests.
    pub defects: Defects,
}

/// The part of a process's state that stable storage contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StableState {
    /// The graph, as of the newest checkpoint: theft-induced checkpointing (TIC).
    #[default]
    Graph,
    /// A checkpoint of the graph, and a log of all events since then: systematic event logging (SEL).
    Events,
}

rules! {
    /// A process asks about the tasks that it has lent when it is restored, and when a new life or a successor replaces
    /// the thief (section 4, A-B case 1 and D-E; corrected).
    AsksAboutLoans, without
        /// When a process is restored, or a new life or a successor replaces the thief, the process does not ask
        /// about the tasks that it has lent.
        NoQuery;
    /// A graph that another absorbed graph contains is not absorbed again (added).
    AbsorbsOnce, without
        /// A graph is absorbed even if another absorbed graph already contains it.
        AbsorbedTwice;
    /// A task is sent only once the theft is durable at the victim (section 4, between C and D).
    RecordsTheft, without
        /// A task is sent before the theft is durable at the victim.
        TaskBeforeRecord;
    /// A result is sent only once it is durable at the thief (section 4, before F).
    RecordsResult, without
        /// A result is sent before it is durable at the thief.
        ResultBeforeRecord;
    /// A receipt is sent only once the victim's state that contains the result is durable (section 4, after G).
    RecordsMerge, without
        /// A receipt is sent when the result arrives, before the victim's state that contains it is durable: the
        /// thief's final checkpoint is deleted at event G.
        ReceiptAtMerge;
    /// A thief answers queries until it has the receipt (section 4, F-G case 2; corrected).
    AnswersUntilReceipt, without
        /// As printed (F-G, case 2): a thief whose result is in transit counts as terminated. It answers no queries,
        /// and sends the result only once.
        LateTermination;
    /// A result is accepted from any life of the thief (section 3, volatile nodes; corrected).
    AcceptsLaterLives, without
        /// As printed (volatile nodes): a result is accepted only from the life of the thief that stole the task.
        StaleResultRefused;
    /// A thief that is still waiting for a task reports this when the victim asks (added).
    ReportsWant, without
        /// A thief denies a task that it is still requesting.
        WantDenied;
    /// A process that is restoring its state denies no task (added).
    DeniesOnlyRestored, without
        /// A process that is restoring denies tasks that its image may contain.
        RestoringDenies;
    /// A restored process also answers for the processes whose graphs its image contains (section 4, name server;
    /// corrected).
    AnswersForAbsorbed, without
        /// A restored process answers only for itself, and not for the processes whose graphs its image contains.
        HereAlone;
    /// A process sends its results again when it is restored, and when a new life or a successor replaces the victim
    /// (section 4, F-G case 2; corrected).
    ReturnsAgain, without
        /// A process sends a result again only when its victim asks, not when the process is restored, or when a
        /// new life or a successor replaces the victim.
        NotReturnedAgain;
    /// The name of a theft includes the thief's life (added).
    NamesLives, without
        /// The names of thefts do not include the thief's life: a process that asks for a task mistakes a query about a
        /// request of an earlier life for one about its current request.
        KeysWithoutLife;
    /// A holder refuses images of earlier lives, and of processes that failed permanently (added).
    FencesStorage, without
        /// A holder stores images of earlier lives, and of processes that failed permanently.
        StorageUnfenced;
    /// A segment of a log counts as durable only once all earlier segments are (section 5; corrected).
    DurableInOrder, without
        /// A segment of a log counts as durable even if an earlier segment is not durable: a theft's message is sent
        /// once its own segment is durable.
        LogOutOfOrder;
    /// The log contains the thefts of tasks (section 5; corrected).
    LogsThefts, without
        /// As printed (section 5): the log contains the construction of the graph, but not the thefts of tasks.
        TheftsNotLogged;
}

rule_queries!(Config);

impl Defect {
    /// Returns whether the defect violates a rule about logs, which TIC does not have.
    pub fn is_of_logs(self) -> bool {
        matches!(self, Defect::LogOutOfOrder | Defect::TheftsNotLogged)
    }
}
