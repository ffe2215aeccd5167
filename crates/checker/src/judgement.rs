//! What the checker says: findings, one per property, and the verdict that follows from them.

use faultline_core::{FactNo, Life, ProcessId, Promise};
use serde::{Deserialize, Serialize};

use crate::context::Context;

/// What a run was judged by. Declared in the order in which a reader wants to see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Property {
    /// The evidence is all there, and as it was recorded.
    RecordComplete,
    /// The run came to its end.
    Completed,
    /// The planned faults changed something.
    FaultsTookEffect,
    /// The processes of a cluster that was lost died at one moment.
    AtOnce,
    /// The emulated links were as asked for.
    LinksAsAsked,
    /// Every rank's result is that of a run without faults.
    SameResult,
    /// No history holds a delivery of a message that its sender's history does not hold.
    NoGhost,
    /// Every message that was sent, and whose send was not undone, was delivered.
    NoLoss,
    /// No history holds two deliveries of one message, nor two messages of one place in their channel.
    ExactlyOnce,
    /// No message was consumed by what led to it.
    CausalOrder,
    /// Every task of a program is run exactly once, as far as the result is concerned.
    TasksOnce,
    /// No process takes back a task that its thief has.
    OneOwner,
    /// What a checkpoint says it contains is what the facts before it say.
    WitnessAgrees,
    /// A message from another cluster was delivered only after the checkpoint that it forces.
    ForcedBeforeDelivery,
    /// Stolen tasks, results and receipts are sent only after a durable checkpoint.
    CheckpointedFirst,
    /// Only thefts and recoveries force checkpoints.
    ForcedPerTheft,
    /// The processes of a cluster agree on its checkpoints and rollbacks.
    MembersAgree,
    /// No checkpoint holds a delivery of a message of its cluster without its send.
    ConsistentCheckpoint,
    /// A checkpoint of partitions was valid only once every partition had saved its part.
    ValidCheckpoints,
    /// A checkpoint of partitions holds as received what its parts hold as sent.
    Drained,
    /// A checkpoint of partitions holds nothing that was sent after the sender's part.
    QuietCheckpoints,
    /// Only neighbours coordinated a checkpoint of partitions.
    NeighboursOnly,
    /// Every part of a checkpoint was durable wherever it is kept before the checkpoint was committed.
    DurableBeforeCommit,
    /// No cluster rolled back further than it had to.
    MaximalLine,
    /// Every part of a restored checkpoint was durable before a process of its group resumed.
    DurableBeforeResume,
    /// Every rollback follows from the end of a life or from an undone message.
    RollbackCaused,
    /// Only failed clusters rolled back.
    Contained,
    /// A recovery re-executed exactly the tasks that were strictly required.
    StrictlyRequired,
    /// No partition re-executed a task that nobody needed.
    DemandedOnly,
    /// Every message whose send was undone, and whose receiver has it, was sent again and then kept from the network.
    OrphansReplayed,
    /// A process that went back got nothing of a later phase before it had sent such a message again.
    OrphansFirst,
    /// The phases of such messages are what follows from what was consumed.
    PhasesAgree,
    /// Who went back was delivered the same messages in the same order again, as far as others depend on it.
    RepeatedOrder,
    /// No failure made a cluster go back again and again.
    RecoveryTerminates,
    /// After the last fault everything came to rest or went on.
    Progress,
    /// A cluster was given up only when every copy of a part was lost.
    UnrecoverableJustified,
    /// Nothing that had been collected was needed again.
    SafeCollection,
    /// No logged message was forgotten before a checkpoint of its receiver held it.
    LogKept,
    /// No failure lost more work than the checkpoint interval allows.
    BoundedLoss,
    /// At most one life of a process acted at a time.
    OneLife,
    /// No process ended unexpectedly.
    NoUnplannedDeath,
}

impl Property {
    /// Whether a violation stands however much else is unknown: what was stated is wrong by itself.
    fn needs_no_other_fact(self) -> bool {
        matches!(
            self,
            Property::SameResult
                | Property::ExactlyOnce
                | Property::LinksAsAsked
                | Property::NoUnplannedDeath
        )
    }

    /// The promise without which a protocol is not judged by it; `None` when every protocol owes it. Of
    /// [`Property::MaximalLine`] and [`Property::MembersAgree`] a part rests on a promise, and is left out by itself.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Property::ForcedBeforeDelivery => Some(Promise::ForcedBeforeDelivery),
            Property::CheckpointedFirst => Some(Promise::CheckpointedFirst),
            Property::ForcedPerTheft => Some(Promise::ForcedByThefts),
            Property::Contained => Some(Promise::Containment),
            Property::NeighboursOnly => Some(Promise::NeighboursOnly),
            Property::StrictlyRequired => Some(Promise::StrictlyRequired),
            Property::OrphansFirst => Some(Promise::OrphansFirst),
            Property::PhasesAgree => Some(Promise::Phases),
            Property::RepeatedOrder => Some(Promise::RepeatedOrder),
            Property::LogKept => Some(Promise::LogKept),
            Property::RecoveryTerminates | Property::Progress => Some(Promise::Progress),
            _ => None,
        }
    }

    /// What it demands, as a sentence.
    pub fn statement(self) -> &'static str {
        match self {
            Property::RecordComplete => "the record is complete and unchanged",
            Property::Completed => "the run completed",
            Property::FaultsTookEffect => "the planned faults took effect",
            Property::AtOnce => "cluster losses ended all processes at once",
            Property::LinksAsAsked => "every link had the requested delay",
            Property::SameResult => "every result equals that of a run without faults",
            Property::NoGhost => "every delivered message was sent",
            Property::NoLoss => "every sent message was delivered",
            Property::ExactlyOnce => "no message was delivered twice",
            Property::CausalOrder => "no message was consumed before its causes",
            Property::TasksOnce => "every task ran exactly once",
            Property::OneOwner => "every task had one owner at a time",
            Property::WitnessAgrees => "the content of every checkpoint matches the facts",
            Property::ForcedBeforeDelivery => {
                "messages were delivered after the checkpoints that they forced"
            }
            Property::CheckpointedFirst => "stolen tasks and results were durable before they were sent",
            Property::ForcedPerTheft => "only thefts and recoveries forced checkpoints",
            Property::MembersAgree => "the processes of each cluster agree on its checkpoints",
            Property::ConsistentCheckpoint => "every checkpoint is consistent within its cluster",
            Property::ValidCheckpoints => "checkpoints were complete before they were valid",
            Property::Drained => "checkpoints contain every value that was sent before them",
            Property::QuietCheckpoints => "checkpoints contain no value that was sent after them",
            Property::NeighboursOnly => "checkpoints were coordinated by neighbours only",
            Property::DurableBeforeCommit => "checkpoints were durable before they were committed",
            Property::MaximalLine => "every rollback restored the newest consistent checkpoint",
            Property::DurableBeforeResume => "restored checkpoints were durable before processes resumed",
            Property::RollbackCaused => "every rollback had a cause",
            Property::Contained => "only failed clusters rolled back",
            Property::StrictlyRequired => "recoveries re-executed what was strictly required",
            Property::DemandedOnly => "nothing was re-executed for nobody",
            Property::OrphansReplayed => "orphan messages were re-sent",
            Property::OrphansFirst => "no message overtook an orphan message",
            Property::PhasesAgree => "the phases of orphan messages follow from what was consumed",
            Property::RepeatedOrder => "re-execution delivered messages in the same order",
            Property::RecoveryTerminates => "every recovery terminated",
            Property::Progress => "after the last fault, every process resumed",
            Property::UnrecoverableJustified => {
                "no cluster was declared unrecoverable that could be restored"
            }
            Property::SafeCollection => "nothing was collected that a rollback needed",
            Property::LogKept => "no logged message was collected too early",
            Property::BoundedLoss => "lost work is bounded by the checkpoint interval",
            Property::OneLife => "at most one life of each process acted at a time",
            Property::NoUnplannedDeath => "no process ended unexpectedly",
        }
    }
}

/// A fact that something rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// Who stated it.
    pub process: ProcessId,
    /// In which life.
    pub life: Life,
    /// Its place in that life's stream.
    pub number: FactNo,
}

/// Something that must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// What happened, as a sentence that names who and what.
    pub text: String,
    /// The facts that show it.
    pub evidence: Vec<Source>,
}

/// What was found of one property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which.
    pub property: Property,
    /// How many instances were judged.
    pub instances: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// How many violations there are beside these.
    pub more_violations: u64,
    /// Why the property, or a part of it, could not be judged although it should have been.
    pub unknown: Option<String>,
    /// What a reader should know that speaks neither for nor against the protocol.
    pub remarks: Vec<String>,
}

impl Finding {
    /// Violations kept with their sentences.
    const KEPT: usize = 20;

    pub(crate) fn new(property: Property) -> Finding {
        Finding {
            property,
            instances: 0,
            violations: Vec::new(),
            more_violations: 0,
            unknown: None,
            remarks: Vec::new(),
        }
    }

    /// Notes a violation; `text` is only asked for when it is kept.
    pub(crate) fn violated<const N: usize>(&mut self, evidence: [Source; N], text: impl FnOnce() -> String) {
        if self.violations.len() < Self::KEPT {
            self.violations.push(Violation { text: text(), evidence: evidence.to_vec() });
        } else {
            self.more_violations += 1;
        }
    }

    /// Notes that something could not be judged; the first reason is kept.
    pub(crate) fn unjudged(&mut self, reason: impl FnOnce() -> String) {
        self.unknown.get_or_insert_with(reason);
    }

    /// Turns violations of a property that the protocol does not promise into remarks.
    pub(crate) fn promised(self, context: &Context) -> Finding {
        if context.is_judged(self.property) {
            return self;
        }
        let text = |it: Violation| format!("not promised: {}", it.text);
        Finding { remarks: self.violations.into_iter().map(text).collect(), ..Finding::new(self.property) }
    }

    /// How many violations were found.
    pub fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.more_violations
    }
}

/// What a run is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything that should have been judged was, and was right.
    Pass,
    /// Something could not be judged; nothing was found wrong.
    Unknown,
    /// Something was wrong.
    Fail,
}

/// What the checker says of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// In a word.
    pub verdict: Verdict,
    /// Why it is not a pass, as sentences.
    pub reasons: Vec<String>,
    /// Property by property.
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// Where the evidence `is_flawed`, only what no missing fact can explain makes a run fail.
    pub(crate) fn new(findings: Vec<Finding>, is_flawed: bool) -> Judgement {
        let (mut wrong, mut doubtful) = (Vec::new(), Vec::new());
        for finding in findings.iter().filter(|finding| finding.violation_count() > 0) {
            let first = &finding.violations[0].text;
            let text = match finding.violation_count() - 1 {
                0 => first.clone(),
                others => format!("{first} (and {others} more of this kind)"),
            };
            if is_flawed && !finding.property.needs_no_other_fact() {
                doubtful.push(format!("{text} (doubtful, because facts are missing)"));
            } else {
                wrong.push(text);
            }
        }
        let open: Vec<String> = findings.iter().filter_map(|finding| finding.unknown.clone()).collect();
        let verdict = match (wrong.is_empty(), open.is_empty() && doubtful.is_empty()) {
            (true, true) => Verdict::Pass,
            (true, false) => Verdict::Unknown,
            (false, _) => Verdict::Fail,
        };
        Judgement { verdict, reasons: wrong.into_iter().chain(open).chain(doubtful).collect(), findings }
    }

    /// What was found of `property`.
    pub fn of(&self, property: Property) -> &Finding {
        self.findings.iter().find(|finding| finding.property == property).expect("every property is judged")
    }

    /// The properties of which violations were found.
    pub fn violated(&self) -> impl Iterator<Item = Property> + '_ {
        self.findings.iter().filter(|it| it.violation_count() > 0).map(|it| it.property)
    }
}
