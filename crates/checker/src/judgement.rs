//! The checker's output: one finding per property, and the verdict that follows from them.

use std::sync::Arc;

use faultline_core::fault::{FlipTarget, Outcome};
use faultline_core::{FactKind, Promise};
use serde::{Deserialize, Serialize};

use faultline_history::{Context, History, Source};
use faultline_trace::Flaw;

use crate::evidence::is_unread;
use crate::finding::{Findings, Worded};
use crate::properties::{self, Aspect, Rule};

/// The properties by which a run is judged, declared in the order in which reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Property {
    /// The evidence is complete and unchanged.
    RecordComplete,
    /// The run completed.
    Completed,
    /// The run was as the federation expects.
    Expected,
    /// If faults were planned, at least one of them took effect.
    FaultsTookEffect,
    /// The processes of a lost cluster failed simultaneously.
    AtOnce,
    /// The emulated links had the requested delays.
    LinksAsRequested,
    /// Every rank's result equals that of a run without faults.
    SameResult,
    /// No state contains a delivery of a message that its sender's state does not contain.
    NoGhost,
    /// Every message whose send was not undone was delivered.
    NoLoss,
    /// No state contains two deliveries of one message, or deliveries of two messages with the same position in their
    /// channel.
    ExactlyOnce,
    /// No message was consumed before its causes.
    CausalOrder,
    /// Every task of a program contributes to the result exactly once.
    TasksOnce,
    /// No process took back a task that its thief had.
    OneOwner,
    /// The self-reported contents of a checkpoint match the facts before it.
    WitnessAgrees,
    /// A message from another cluster was delivered only after the checkpoint that it forced.
    ForcedBeforeDelivery,
    /// Stolen tasks, results and receipts were sent only after a checkpoint that covers them was durable.
    CheckpointedFirst,
    /// Only thefts, recoveries and the end of the program forced checkpoints.
    ForcedPerTheft,
    /// The processes of a cluster agree on its checkpoints and rollbacks.
    MembersAgree,
    /// If a checkpoint contains the delivery of a message sent within its cluster, it also contains the send.
    ConsistentCheckpoint,
    /// A checkpoint of partitions was used as valid only after every partition had saved its part, and was then kept
    /// until a newer one was complete.
    ValidCheckpoints,
    /// A checkpoint of partitions contains the receipt of every message whose send it contains.
    Drained,
    /// A checkpoint of partitions contains no message sent after the sender's part.
    QuietCheckpoints,
    /// Among partitions, only neighbours exchanged messages to coordinate a checkpoint.
    NeighboursOnly,
    /// Every part of a checkpoint was durable at its owner and at all holders before the checkpoint was committed.
    DurableBeforeCommit,
    /// No cluster rolled back further than necessary.
    MaximalLine,
    /// Every part of a restored checkpoint was durable before a process of its group resumed.
    DurableBeforeResume,
    /// Every rollback follows from the end of a life or from an undone message.
    RollbackCaused,
    /// Only failed clusters rolled back.
    Contained,
    /// A recovery re-executed exactly the tasks that were strictly required.
    StrictlyRequired,
    /// No partition re-executed a task that no partition needed.
    DemandedOnly,
    /// Every orphan message was re-sent and then suppressed.
    OrphansReplayed,
    /// Until a process that rolled back had re-sent an orphan message, it delivered no message of a later phase from
    /// another cluster.
    OrphansFirst,
    /// The phases of orphan messages follow from the consumed messages.
    PhasesAgree,
    /// After rolling back, a process delivered the same messages again in the same order, up to the last delivery on
    /// which other processes depend.
    RepeatedOrder,
    /// No failure made a cluster roll back indefinitely.
    RecoveryTerminates,
    /// After the last fault, recoveries ended and the application resumed.
    Progress,
    /// A cluster was declared unrecoverable only if every copy of a part was lost.
    UnrecoverableJustified,
    /// Nothing that was collected was needed later.
    SafeCollection,
    /// No logged message was collected before a checkpoint of its receiver contained its delivery.
    LogKept,
    /// No failure caused the loss of more work than the checkpoint interval allows.
    BoundedLoss,
    /// At most one life of a process acted at a time.
    OneLife,
    /// A partition ran on one process at a time, and moved only if a process had failed permanently, was about to
    /// leave, or had joined.
    OneHost,
    /// No process ended unexpectedly.
    NoUnplannedFailure,
    /// The code of no process panicked.
    NoPanic,
    /// Virtual time advanced until the run ended.
    TimeAdvances,
    /// Economy: every forced checkpoint followed a new dependency.
    ForcedByNews,
    /// Economy: unforced checkpoints were no more frequent than requested.
    CheckpointsSpaced,
    /// Economy: no message was re-sent unnecessarily.
    SentOnce,
    /// Economy: parts of checkpoints that no recovery can need were removed.
    PartsCollected,
    /// Economy: logged messages that no recovery can need were removed.
    LogsCollected,
}

/// What is known about the evidence of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It is complete and unchanged, as far as the record shows.
    Whole,
    /// Facts may be missing.
    Incomplete,
    /// A process may have continued with a flipped bit, for which no protocol is to blame.
    Corrupted,
    /// The record was changed after the run.
    Changed,
}

impl Evidence {
    /// Returns what is known about the evidence. Facts may be missing while a run is in progress, or if it was cut short:
    /// no seal shows where its streams end. They are also missing if they do not fit in this program's memory.
    pub(crate) fn of(history: &History<'_>) -> Evidence {
        if history.trace.flaws.iter().any(Flaw::is_change) {
            return Evidence::Changed;
        }
        if history.silently_corrupted().is_some() {
            return Evidence::Corrupted;
        }
        let mut flips = history.supervision.injected.iter().filter_map(|it| it.1.flips());
        let may_be_corrupted = flips.clone().next().is_some();
        // A process that cannot handle a flipped bit may panic before it has reported the bit.
        let has_panicked = matches!(history.context.outcome, Some(Outcome::Panicked(_)));
        if has_panicked && flips.any(|it| it.1 != FlipTarget::Copy) {
            return Evidence::Corrupted;
        }
        match history.is_flawed() || history.context.outcome.is_none() || is_unread(history) {
            true if may_be_corrupted => Evidence::Corrupted,
            true => Evidence::Incomplete,
            false => Evidence::Whole,
        }
    }
}

/// How waste is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Waste is reported as a remark.
    #[default]
    Lenient,
    /// Waste violates a property.
    Strict,
}

impl Property {
    fn rule(self) -> &'static Rule {
        properties::ALL[self as usize]
    }

    /// Returns the property as a sentence.
    pub fn statement(self) -> &'static str {
        self.rule().statement
    }

    /// Returns whether a violation holds even if facts are missing, because the reported facts alone prove it.
    fn needs_no_other_fact(self) -> bool {
        self.rule().aspects.contains(&Aspect::NeedsNoOtherFact)
    }

    /// Returns whether the property is about waste: work, messages or storage that a correct run could do without.
    /// Violations count only under [`Strictness::Strict`].
    pub fn is_of_economy(self) -> bool {
        self.rule().aspects.contains(&Aspect::Economy)
    }

    /// Returns the promise that a protocol must make to be judged by the property; `None` if every protocol must have
    /// the property, or if the property depends on a promise only in part and checks this itself, as
    /// [`Property::MaximalLine`] and [`Property::DurableBeforeResume`] do.
    pub fn promise(self) -> Option<Promise> {
        self.rule().promise
    }

    /// Returns whether the property is judged, because every protocol must have it or because this protocol promises
    /// it.
    pub fn is_judged(self, context: &Context) -> bool {
        self.promise().is_none_or(|it| context.promises.include(it))
    }

    /// Returns whether the property is not judged because an imported run has no evidence about it, although another one
    /// could have. Never applies to properties that concern waste or only some kinds of runs.
    pub fn lacks_evidence(self, context: &Context) -> bool {
        const SPECIAL: [FactKind; 5] =
            [FactKind::Ran, FactKind::Lent, FactKind::Planned, FactKind::Consumed, FactKind::Orphaned];
        let is_special = self.rule().evidence.iter().any(|kind| SPECIAL.contains(kind));
        let is_special = is_special || self.is_of_economy() || self == Property::TimeAdvances;
        self.is_judged(context) && !self.is_evident(context) && !is_special
    }

    /// Returns whether the run can contain evidence about the property. All runs can, except those that were imported.
    pub(crate) fn is_evident(self, context: &Context) -> bool {
        let rule = self.rule();
        context.unmatched.is_none()
            || !rule.aspects.contains(&Aspect::NeverImported)
                && (self != Property::SameResult || context.expected.is_some())
                && rule.evidence.iter().all(|it| context.recorded.contains(*it))
    }
}

/// One violation of a property.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// What happened, as a sentence that names the processes and messages involved.
    pub text: String,
    /// The facts that prove the violation.
    pub evidence: Vec<Source>,
    /// What happened, as a value; `None` if the judgement was read from JSON, which contains only the sentence.
    #[serde(skip)]
    pub what: Option<Arc<dyn Worded>>,
}

/// Compares only the sentence and the evidence, because a judgement that was read from JSON has no `what`.
impl PartialEq for Violation {
    fn eq(&self, other: &Violation) -> bool {
        (&self.text, &self.evidence) == (&other.text, &other.evidence)
    }
}

impl Eq for Violation {}

/// The finding for one property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The judged property.
    pub property: Property,
    /// The number of instances judged.
    pub instances: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// The number of further violations.
    pub more_violations: u64,
    /// Whether missing facts or a change to the record could explain the violations. They are then no evidence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_doubtful: bool,
    /// The reason why the property, or a part of it, could not be judged although it should have been.
    pub unknown: Option<String>,
    /// Information for the reader that does not affect the verdict.
    pub remarks: Vec<String>,
}

impl Finding {
    /// Returns the number of violations.
    pub fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.more_violations
    }

    /// Returns the first violation, with the number of the others.
    fn first_violation(&self) -> Option<String> {
        let first = &self.violations.first()?.text;
        Some(match self.violation_count() - 1 {
            0 => first.clone(),
            others => format!("{first} (and {others} more of this kind)"),
        })
    }
}

/// The overall verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything that should have been judged was judged, and no violation was found.
    Pass,
    /// Something could not be judged, and no violation was found.
    Unknown,
    /// A violation was found.
    Fail,
}

/// The checker's judgement of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The overall verdict.
    pub verdict: Verdict,
    /// The reasons why the verdict is not a pass, as sentences.
    pub reasons: Vec<String>,
    /// One finding per property.
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// Derives the verdict. If silent corruption may have reached the result, the run does not fail. If facts are missing,
    /// a run fails only because of violations that no missing fact can explain. If the record was changed, the run does not
    /// fail at all. In these cases, the corruption, the gap or the change is the reason for the verdict. Whatever follows
    /// from it is stated only with the property that could not be judged, unless there would be no reason otherwise.
    pub(crate) fn new(findings: Vec<Findings>, evidence: Evidence, names: &Context) -> Judgement {
        let (mut wrong, mut open, mut judged) = (Vec::new(), Vec::new(), Vec::new());
        let mut consequence = None;
        for findings in findings {
            let is_consequence = evidence != Evidence::Whole
                && findings.open.as_ref().is_some_and(|it| it.follows_from_missing_facts);
            let mut finding = findings.into_finding(names);
            match is_consequence {
                true => consequence = consequence.or_else(|| finding.unknown.clone()),
                false => open.extend(finding.unknown.clone()),
            }
            let text = finding.first_violation();
            finding.is_doubtful = text.is_some()
                && match evidence {
                    Evidence::Whole => false,
                    Evidence::Incomplete => !finding.property.needs_no_other_fact(),
                    Evidence::Corrupted | Evidence::Changed => true,
                };
            if !finding.is_doubtful {
                wrong.extend(text);
            } else if finding.unknown.is_none() {
                let why = match evidence {
                    Evidence::Changed => "the record was changed",
                    Evidence::Corrupted => "silent corruption may have reached the result",
                    Evidence::Incomplete | Evidence::Whole => "facts may be missing",
                };
                finding.unknown = text.map(|it| format!("doubtful, because {why}: {it}"));
            }
            judged.push(finding);
        }
        if evidence == Evidence::Corrupted && open.is_empty() {
            let doubtful = judged.iter().find(|it| it.is_doubtful).and_then(|it| it.unknown.clone());
            open.extend(doubtful.or(consequence));
        }
        let verdict = match (wrong.is_empty(), open.is_empty()) {
            (true, true) => Verdict::Pass,
            (true, false) => Verdict::Unknown,
            (false, _) => Verdict::Fail,
        };
        Judgement { verdict, reasons: wrong.into_iter().chain(open).collect(), findings: judged }
    }

    /// Returns the finding for `property`.
    ///
    /// # Panics
    ///
    /// Panics if the judgement lacks the finding. [`crate::judge`] never omits one.
    pub fn of(&self, property: Property) -> &Finding {
        self.findings.iter().find(|finding| finding.property == property).expect("every property is judged")
    }

    /// Returns the properties with violations, including doubtful ones.
    pub fn violated(&self) -> impl Iterator<Item = Property> + Clone + '_ {
        self.findings.iter().filter(|it| it.violation_count() > 0).map(|it| it.property)
    }

    /// Returns the properties that could not be judged, at least in part, although they should have been.
    pub fn unjudged(&self) -> impl Iterator<Item = Property> + '_ {
        self.findings.iter().filter(|it| it.unknown.is_some()).map(|it| it.property)
    }
}
