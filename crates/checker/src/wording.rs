//! The sentences for findings, with the names that the run gives to its processes and clusters. No other module puts
//! findings into words.

use std::cmp::Reverse;

use faultline_core::fault::{Handled, MemoryContent, MemoryPart, MemoryUse, Panic};
use faultline_core::names::checkpoint;
use faultline_core::text::one_line;
use faultline_core::{
    Breakage, BreakageKind, ClusterId, ImageName, Life, MessageId, ProcessId, Span, Theft, TheftStep,
};
use faultline_history::{CheckpointName, Context, Contradiction, ImpossibleFact};
use faultline_trace::Flaw;

use crate::finding::{Breach, DurableCopies, Gap, Garbage, LinkDelay, MissingPart, Remark, Round};

/// Returns the sentence for a contradiction, without a full stop.
pub fn contradiction(it: &Contradiction, names: &Context) -> String {
    let life_of = |process: ProcessId, life: Life| format!("{life} of {}", names.process(process));
    match *it {
        Contradiction::NoSupervisor => "the supervisor's facts are missing".to_owned(),
        Contradiction::NoFacts(process, life) => format!("there are no facts of {}", life_of(process, life)),
        Contradiction::StartMissing(process, life) => {
            format!("the supervisor's facts do not state that {} was started", life_of(process, life))
        }
        Contradiction::ReportedTooEarly(process, life) => {
            format!("{} reported facts before it was started", life_of(process, life))
        }
        Contradiction::StartedTooEarly { process, life, next } => {
            format!("the failure of {} was never detected, but {next} started", life_of(process, life))
        }
        Contradiction::NeverDetected(process, life) => {
            format!("the failure of {} was never detected", life_of(process, life))
        }
        Contradiction::DetectedAgain(process, life) => {
            format!("the failure of {} was detected more than once", life_of(process, life))
        }
        Contradiction::FailedAgain(process, life) => {
            format!(
                "{} failed again after it had ended, but no fault destroyed its storage",
                life_of(process, life)
            )
        }
        Contradiction::ResumedAtOtherTime(process, life) => {
            format!("{} resumed at another time than its pauses ended", life_of(process, life))
        }
        Contradiction::NeverResumed(process, life) => {
            format!(
                "the supervisor's facts do not state that {} resumed after its pause",
                life_of(process, life)
            )
        }
        Contradiction::ActedWhilePaused(process, life) => {
            format!("{} reported facts while it was paused", life_of(process, life))
        }
        Contradiction::NeverBegun => {
            "the supervisor's facts do not state that the application started".to_owned()
        }
        Contradiction::BegunAgain { times } => {
            format!("according to the supervisor's facts, the application started {times} times")
        }
        Contradiction::StartOutOfOrder => {
            "the supervisor's facts about the start are out of order".to_owned()
        }
        Contradiction::ActedTooEarly(process, life) => {
            format!("{} sent or received something before the application started", life_of(process, life))
        }
        Contradiction::CompletionMissing => {
            "the supervisor's facts do not state that the run completed".to_owned()
        }
        Contradiction::CompletedDespiteManifest => {
            "the run completed according to the supervisor's facts, but not according to the manifest"
                .to_owned()
        }
        Contradiction::ReportedAfterEnd => {
            "the supervisor reported facts after the end of the run".to_owned()
        }
        Contradiction::WrongEnd { end, last } => {
            format!("the run ended after {end}, but its last fact was reported at {last}")
        }
        Contradiction::NoResult(process, life) => {
            format!("{} never reported its result", life_of(process, life))
        }
        Contradiction::ResultMisplaced(process, life) => format!(
            "the result of {} is not at the position that its witness states: facts before it were changed",
            life_of(process, life)
        ),
        Contradiction::NeverSaved { process, life, part } => format!(
            "the storage of {} reported {} as durable, but {life} had not saved it",
            names.process(process),
            names.names.part(part)
        ),
        Contradiction::NeverTransmitted(id) => {
            format!("{} was delivered, but never transmitted", names.message(id))
        }
        Contradiction::NotTarget { fault, process, life } => {
            format!(
                "according to the supervisor's facts, {fault} ended {}, which is not its target",
                life_of(process, life)
            )
        }
        Contradiction::StartedOtherwise(process, life) => format!(
            "the supervisor's facts about the storage of {} are inconsistent with the way in which {life} started",
            names.process(process)
        ),
        Contradiction::NeverLent(theft) => format!(
            "the facts of a theft name a task that {} never lent to {}",
            names.process(theft.victim),
            names.process(theft.thief)
        ),
        Contradiction::NeverShipped(theft) => format!(
            "{} received a task that it had stolen from {}, but no fact states that the task was sent",
            names.process(theft.thief),
            names.process(theft.victim)
        ),
        Contradiction::NeverReturned(theft) => format!(
            "the result of a task that {} had stolen from {} was merged, but no fact states that it was sent",
            names.process(theft.thief),
            names.process(theft.victim)
        ),
        Contradiction::PlanApart(process, life) => format!(
            "the facts of {} about the plan of its tasks are inconsistent with those about the execution of its tasks",
            life_of(process, life)
        ),
        Contradiction::NeverExecuted { task, source } => {
            format!("{task} read values of {source}, but no fact states that {source} was executed")
        }
        Contradiction::SentWithoutTask(process, life) => {
            format!(
                "{} sent messages, but its facts do not state that it had executed a task",
                life_of(process, life)
            )
        }
        Contradiction::NotNewest(process, life) => format!(
            "the supervisor's facts state that {} ended, which was not the newest life of its process",
            life_of(process, life)
        ),
        Contradiction::TwoOutcomes(fault) => {
            format!("the supervisor's facts state more than one outcome of {fault}")
        }
        Contradiction::NotLost { fault, process } => {
            format!("{fault} was injected, but did not end {}", names.process(process))
        }
        Contradiction::FateWithoutCause(process, life) => format!(
            "what happened to the storage of {} does not follow from the cause of its end",
            life_of(process, life)
        ),
        Contradiction::EffectElsewhere { fault, process, life } => {
            format!("{fault} took effect on {}, but did not end it", life_of(process, life))
        }
        Contradiction::LinkMiscounted { from, to } => {
            format!("the measurements of {} contradict each other", link(from, to, names))
        }
        Contradiction::InjectedAgain(fault) => format!("{fault} was injected more than once"),
        Contradiction::EndedAgain { fault, process, life } => {
            format!("{fault} ended {} more than once", life_of(process, life))
        }
        Contradiction::NotPlanned(fault) => {
            format!("the supervisor's facts mention {fault}, which is not in the plan")
        }
        Contradiction::NotInjected { fault, process, life } => format!(
            "{fault} ended {}, but the supervisor's facts do not state that it was injected",
            life_of(process, life)
        ),
        Contradiction::InjectedAtOtherTime(fault) => {
            format!("{fault} was not injected at its planned time")
        }
        Contradiction::InjectedWithoutCause(fault) => {
            format!("{fault} was injected before the facts that it waits for")
        }
        Contradiction::OtherFate { fault, process, life } => {
            format!("{fault} did not affect the storage of {} as planned", life_of(process, life))
        }
        Contradiction::EndedAtOtherTime { fault, process, life } => {
            format!("{fault} ended {}, but not at the time of its injection", life_of(process, life))
        }
        Contradiction::EffectsMeasured => {
            "the effects of faults were measured, although the run was simulated".to_owned()
        }
        Contradiction::LinkNeverChanged { from, to } => {
            format!("the supervisor's facts do not state that {} changed", link(from, to, names))
        }
        Contradiction::MovedAgain(cluster) => {
            format!("{} joined or left more than once", names.cluster(cluster))
        }
        Contradiction::ChangedInVirtualTime => "a user changed the simulated federation".to_owned(),
        Contradiction::EndedNothing(fault) => format!("{fault} was injected, but ended no process"),
        Contradiction::OtherOutcome(fault) => {
            format!("the manifest and the supervisor's facts disagree about the outcome of {fault}")
        }
        Contradiction::NeverDue(fault) => {
            format!("{fault} was due, but is missing from the supervisor's facts")
        }
        Contradiction::OutcomesMissing { outcomes, planned } => {
            let (outcomes, were) =
                (count(outcomes as u64, "fault"), if planned == 1 { "was" } else { "were" });
            format!("the manifest has outcomes for {outcomes}, but {planned} {were} planned")
        }
        Contradiction::LinksMeasured => "links were measured, although they are simulated".to_owned(),
        Contradiction::LinkNotMeasured { from, to } => {
            format!("{} was not measured", link(from, to, names))
        }
    }
}

impl Breach {
    /// Returns the sentence, without a full stop.
    pub fn sentence(&self, names: &Context) -> String {
        self.about_messages(names)
            .or_else(|| self.about_checkpoints(names))
            .or_else(|| self.about_rollbacks(names))
            .or_else(|| self.about_tasks(names))
            .or_else(|| self.about_economy(names))
            .or_else(|| self.about_lives(names))
            .unwrap_or_else(|| unreachable!("{self:?} has a sentence"))
    }

    fn about_messages(&self, names: &Context) -> Option<String> {
        let process = |it: ProcessId| names.process(it);
        let message = |it: MessageId| names.message(it);
        Some(match *self {
            Breach::NeverDelivered { message: id } => format!("{} was never delivered", message(id)),
            Breach::NotDeliveredAgain { message: id } => {
                format!("{} was not delivered again after {} had rolled back", message(id), process(id.to))
            }
            Breach::SendUndone { message: id } => {
                format!(
                    "{} is in the final state of {}, but its send was undone",
                    message(id),
                    process(id.to)
                )
            }
            Breach::NeverSent { message: id } => {
                format!("{} delivered {}, which was never sent", process(id.to), message(id))
            }
            Breach::SameIdentity { message: id } => format!("two messages have the identity {}", message(id)),
            Breach::DeliveredTwice { message: id } => {
                format!("{} delivered {} twice", process(id.to), message(id))
            }
            Breach::DeliveredBoth { one, other } => format!(
                "{} delivered both {} and {}, although one replaces the other",
                process(one.to),
                message(one),
                message(other)
            ),
            Breach::ConsumedBeforeItsCause { message: id } => {
                let receiver = process(id.to);
                format!(
                    "{receiver} consumed {}, whose send depends on later actions of {receiver}",
                    message(id)
                )
            }
            Breach::DeliveredInAnotherOrder { message: id, instead_of } => format!(
                "{} delivered {} instead of {}, on whose delivery other processes depend",
                process(id.to),
                message(id),
                message(instead_of)
            ),
            Breach::SuppressedUndelivered { message: id } => {
                format!(
                    "{} suppressed {}, although it had never been delivered",
                    process(id.from),
                    message(id)
                )
            }
            Breach::NotAnOrphan { message: id } => {
                format!(
                    "{} reported {} as an orphan message, but had not delivered it",
                    process(id.to),
                    message(id)
                )
            }
            Breach::OrphanNeverResent { message: id } => {
                let (sender, receiver) = (process(id.from), process(id.to));
                format!("{sender} never re-sent {}, an orphan message of {receiver}", message(id))
            }
            Breach::OvertookOrphan { message: id, phase, orphan, orphan_phase } => format!(
                "{} delivered {} of phase {phase} before it had re-sent {} of phase {orphan_phase}",
                process(orphan.from),
                message(id),
                message(orphan)
            ),
            Breach::WrongPhase { process: by, message: id, phase, computed } => format!(
                "{} recorded {} in phase {phase}, but the messages that its sender had consumed imply phase {computed}",
                process(by),
                message(id)
            ),
            Breach::PositionChanged { message: id, first, second } => {
                format!("{} was first sent with position {first}, and later with {second}", message(id))
            }
            Breach::DeliveredBeforeCheckpoint { message: id, sent_at, from, covered } => format!(
                "{} delivered {}, sent at position {sent_at}, after a checkpoint that covers {} only up to {covered}",
                process(id.to),
                message(id),
                names.group(from)
            ),
            Breach::NotCovered { message: id, position } => format!(
                "checkpoint {position} of {} contains the delivery of {}, which its vector does not cover",
                process(id.to),
                message(id)
            ),
            _ => return None,
        })
    }

    fn about_checkpoints(&self, names: &Context) -> Option<String> {
        let process = |it: ProcessId| names.process(it);
        Some(match *self {
            Breach::ForcedTooOften { process: by, life, forced, allowed } => format!(
                "{life} of {} took {}, but its thefts, its recovery and the end of the program force at most {allowed}",
                process(by),
                count(forced, "forced checkpoint")
            ),
            Breach::SavedDifferently { part } => {
                format!("two different states were saved as {}", names.names.part(part))
            }
            Breach::WrongContents { owner, position, tasks, sent, delivered } => {
                let what = position.map_or_else(|| "the final state".into(), |it| format!("checkpoint {it}"));
                let contents = match (tasks, sent, delivered) {
                    (false, true, true) => "messages that the process had sent and delivered",
                    (false, true, false) => "messages that the process had sent",
                    (false, false, _) => "messages that the process had delivered",
                    (true, true, true) => "tasks that the process had spawned and run",
                    (true, true, false) => "tasks that the process had spawned",
                    (true, false, _) => "tasks that the process had run",
                };
                format!("{what} of {} does not match the {contents}", process(owner))
            }
            Breach::CommittedTwice { processes: [by, also], position, attempts: [one, other] } => {
                let (checkpoint, attempts) = (checkpoint(position), format!("{one} and {other}"));
                match by == also {
                    true => format!("{} committed checkpoint {checkpoint} in {attempts}", process(by)),
                    false => format!(
                        "{} and {} committed checkpoint {checkpoint} in different attempts ({attempts})",
                        process(by),
                        process(also)
                    ),
                }
            }
            Breach::CommittedDifferently { processes: [one, other], position } => {
                let (one, other) = (process(one), process(other));
                format!("{one} and {other} committed different checkpoints as {position}")
            }
            Breach::PositionSkipped { process: by, from, to } => {
                format!("position {to} of {} does not follow its previous position, {from}", process(by))
            }
            Breach::DeliveryWithoutSend { group, position, message } => format!(
                "checkpoint {position} of {} contains the delivery of {}, but not its send",
                names.group(group),
                names.message(message)
            ),
            Breach::UsedBeforeDurable { process: by, position, owner } => format!(
                "{} treated checkpoint {position} as valid before the part of {} was durable",
                process(by),
                process(owner)
            ),
            Breach::ValidPartRemoved { holder, part } => format!(
                "{} removed the part of {} in the valid checkpoint {} before a newer checkpoint was complete",
                process(holder),
                process(part.owner),
                part.position()
            ),
            Breach::SentAndNotReceived { position, message: id } => format!(
                "checkpoint {position} contains the send of {}, but not its receipt by {}",
                names.message(id),
                process(id.to)
            ),
            Breach::SentAfterPart { position, message: id } => format!(
                "checkpoint {position} contains the receipt of {}, which {} sent after it had saved its part",
                names.message(id),
                process(id.from)
            ),
            Breach::CoordinationMessages { position, found, expected, partitions, channels } => format!(
                "checkpoint {position} required {found} messages instead of {expected}, with {partitions} partitions \
                 and {channels} channels"
            ),
            Breach::CommittedBeforeDurable { group, position, owner, holder } => format!(
                "checkpoint {position} of {} was committed before the part of {} was durable at {}",
                names.group(group),
                process(owner),
                process(holder)
            ),
            Breach::CommittedWithTooFewCopies { group, position, owner, found, replicas } => format!(
                "checkpoint {position} of {} was committed with only {found} of {replicas} replicas of the part of {}",
                names.group(group),
                process(owner)
            ),
            Breach::CollectedBeforeRollback { process: by, below, to } => format!(
                "{} rolled back to {to}, although it had collected all checkpoints below {below}",
                process(by)
            ),
            Breach::CollectedLog { process: by, collected, contained } => format!(
                "{} had collected {}, but checkpoints of the receivers contain only {contained}",
                process(by),
                count(collected, "logged message")
            ),
            _ => return None,
        })
    }

    fn about_rollbacks(&self, names: &Context) -> Option<String> {
        let process = |it: ProcessId| names.process(it);
        let group = |it| names.group(it);
        Some(match *self {
            Breach::RestoredUndone { group: by, target } => format!(
                "{} rolled back to checkpoint {target}, which an earlier rollback had undone",
                group(by)
            ),
            Breach::RestoredOlder { group: by, target, newer } => {
                let by = group(by);
                format!(
                    "{by} rolled back to checkpoint {target}, although checkpoint {newer} could have been restored"
                )
            }
            Breach::RestoredDifferently { group: by, incarnation, states } => {
                let [one, another] = states.map(state);
                format!("in {incarnation}, {} restored both {one} and {another}", group(by))
            }
            Breach::RestoredAnother { process: by, claimed } => format!(
                "{} claims to have rolled back to checkpoint {claimed}, but restored another state",
                process(by)
            ),
            Breach::ResumedBeforeDurable { group: by, position, owner, copies } => {
                let copies = match copies {
                    DurableCopies::None => "not durable anywhere".to_owned(),
                    DurableCopies::NoneAtOwner => "not durable at its owner".to_owned(),
                    DurableCopies::Only { found, replicas } => {
                        format!("durable at only {found} of {replicas} holders")
                    }
                };
                format!(
                    "{} resumed from checkpoint {position} although the part of {} was {copies}",
                    group(by),
                    process(owner)
                )
            }
            Breach::ActedBeforeBeginning { process: by, life } => {
                format!("{life} of {} sent or received something before the application started", process(by))
            }
            Breach::ActedBeforeFirstCheckpoint { process: by, life } => {
                format!("{life} of {} acted before it had committed a checkpoint", process(by))
            }
            Breach::ProtectedWithoutCopy { holder, owner } => format!(
                "{} claims that its lost storage is complete again, but holds no part of {}",
                process(holder),
                process(owner)
            ),
            Breach::WithoutCause { group: by, incarnation, undone_without_cause } => {
                let messages = match undone_without_cause {
                    false => "no message that it had delivered was undone",
                    true => "only rollbacks without a cause undid messages that it had delivered",
                };
                format!(
                    "{} rolled back ({incarnation}) although none of its processes had failed since its last rollback \
                     and {messages}",
                    group(by)
                )
            }
            Breach::RolledBackTooOften { group: by, times, deaths } => {
                let failures = match deaths {
                    0 => "none of its processes failed".to_owned(),
                    some => format!("its processes failed only {}", how_often(some as u64)),
                };
                format!("{} rolled back {}, but {failures}", group(by), how_often(times as u64))
            }
            Breach::RolledBackRepeatedly { group: by, times } => {
                format!("{} rolled back {} for the same failure", group(by), how_often(times as u64))
            }
            Breach::RolledBackLate { group: by, times, bound } => {
                let times = how_often(times as u64);
                format!("more than {bound} after the last fault, {} still rolled back {times}", group(by))
            }
            Breach::OtherPosition { message: id, carried, expected } => format!(
                "{} carried position {carried}, although its sender was at {expected}",
                names.message(id)
            ),
            Breach::NeverLeft { cluster, still } => format!(
                "{} was to leave and had finished, but did not leave in the last {still} of the run",
                names.cluster(cluster)
            ),
            Breach::RoundNotEnded { process: by, round, bound } => {
                let round = match round {
                    Round::Recovery => "recovery",
                    Round::Checkpoint => "checkpoint",
                };
                format!(
                    "a {round} that {} had begun did not end within {bound} of the last fault",
                    process(by)
                )
            }
            Breach::NoProgress { still } => {
                format!("the application made no progress for {still} before the deadline")
            }
            Breach::DeliveryOverdue { message: id, waited } => format!(
                "{} was not delivered in the last {waited} before the deadline, although nothing delayed it",
                names.message(id)
            ),
            Breach::NotResumed { process: by, still } => format!(
                "{} restored its state, but its application did nothing in the last {still} before the deadline, \
                 although it had continued from the same state without a message before the rollback",
                process(by)
            ),
            Breach::WasDurable { owner, position, holder } => format!(
                "the part of {} in checkpoint {position} was reported missing, but was durable at {}",
                process(owner),
                process(holder)
            ),
            Breach::TooFewLosses { group: of, owner, holders } => format!(
                "{} was declared unrecoverable because the part of {} was missing, but fewer than {holders} of the \
                 processes that store it had lost anything",
                group(of),
                process(owner)
            ),
            Breach::NothingLost { group: of } => {
                format!("{} was declared unrecoverable, but no part was lost", group(of))
            }
            Breach::WasAvailable { group: of, position } => format!(
                "{} was declared unrecoverable, but every part of checkpoint {position} was available",
                group(of)
            ),
            Breach::LogNotLost { group: of, holder } => format!(
                "{} was declared unrecoverable because its log was missing, but {} had not lost it",
                of.map_or_else(|| "a process".to_owned(), group),
                process(holder)
            ),
            Breach::CheckpointOverdue { group: of, waited, every, detect_after } => format!(
                "{} had taken no checkpoint for {waited} when it failed, although it should take one every {every}, \
                 and its failure should be detected within {detect_after}",
                group(of)
            ),
            _ => return None,
        })
    }

    fn about_tasks(&self, names: &Context) -> Option<String> {
        let process = |it: ProcessId| names.process(it);
        Some(match self {
            Breach::ProcessCheckpointOverdue { process: by, waited, every } => format!(
                "{} had taken no checkpoint for {waited} when it failed, although it should take one every {every}",
                process(*by)
            ),
            Breach::MovedWithoutCause { partition, from, to } => format!(
                "partition {} moved from {} to {}, although {} had not failed permanently and was not about to leave",
                process(*partition),
                process(*from),
                process(*to),
                process(*from)
            ),
            Breach::NotCeded { partition, from, to } => format!(
                "partition {} moved from {} to {}, but {} never stopped running it",
                process(*partition),
                process(*from),
                process(*to),
                process(*from)
            ),
            Breach::NextCheckpointLate { process: by, waited, allowed } => format!(
                "{} requested no checkpoint for {waited}, although the next one was due after {allowed}",
                process(*by)
            ),
            Breach::NewestNotRestored { process: by, newest } => {
                format!("{} did not restore checkpoint {newest}, the newest durable one", process(*by))
            }
            Breach::LogNotRestored { process: by, since } => format!(
                "{} did not restore its whole log since checkpoint {since}, although the log was durable",
                process(*by)
            ),
            Breach::NewestNotAbsorbed { by, of, newest } => format!(
                "{} did not absorb checkpoint {newest} of {}, the newest durable one",
                process(*by),
                process(*of)
            ),
            Breach::LogNotAbsorbed { by, of, since } => format!(
                "{} did not absorb the whole log of {} since checkpoint {since}, although the log was durable",
                process(*by),
                process(*of)
            ),
            Breach::EventNotWritten { process: by, waited } => format!(
                "{} ran a task whose event it had still not written {waited} later, although none of its writes took that \
                 long",
                process(*by)
            ),
            Breach::ImpossibleFact { process: by, what } => {
                format!("{} {}", process(*by), impossible(*what, names))
            }
            Breach::WrongResultOfTasks { process: by } => {
                format!("the tasks in the result of {} do not match the facts", process(*by))
            }
            Breach::OtherTasksThanSpawned { process: by } => {
                format!("the tasks in the result of {} are not the tasks that were spawned", process(*by))
            }
            Breach::Stalled { lent } => {
                let stalled =
                    "the program stalled: no task was run or stolen for a long time before the deadline";
                match lent {
                    Some((theft, task)) => format!(
                        "{stalled}, and the result of {} never arrived ({})",
                        names.task(*task),
                        theft_name(*theft, names)
                    ),
                    None => stalled.to_owned(),
                }
            }
            Breach::TookBackStolen { victim, thief, task, theft } => {
                let (victim, thief) = (process(*victim), process(*thief));
                format!(
                    "{victim} took back {}, although {thief} had stolen it ({})",
                    names.task(*task),
                    theft_name(*theft, names)
                )
            }
            Breach::SentBeforeDurable { process: by, step, task, theft } => {
                let (what, contained) = match step {
                    TheftStep::Shipped => ("sent", "the theft"),
                    TheftStep::Returned => ("returned the result of", "the result"),
                    _ => ("acknowledged the result of", "the result"),
                };
                format!(
                    "{} {what} {} before a checkpoint that contains {contained} was durable ({})",
                    process(*by),
                    names.task(*task),
                    theft_name(*theft, names)
                )
            }
            Breach::NotRequired { process: by, task, epoch } => format!(
                "{} re-executed {} in recovery {}, although no lost value required it",
                process(*by),
                names.task(*task),
                epoch.0
            ),
            Breach::NotReexecuted { process: by, task, epoch } => format!(
                "{} did not re-execute {} in recovery {}, although a lost value required it",
                process(*by),
                names.task(*task),
                epoch.0
            ),
            Breach::NotDemanded { process: by, task, epoch } => format!(
                "{} re-executed {} in recovery {}, although no partition needed it",
                process(*by),
                names.task(*task),
                epoch.0
            ),
            _ => return None,
        })
    }

    fn about_economy(&self, names: &Context) -> Option<String> {
        Some(match *self {
            Breach::ForcedWithoutNews { group, position } => format!(
                "checkpoint {position} of {} was forced, although no message carried a new position",
                names.group(group)
            ),
            Breach::CheckpointEarly { group, position, waited, every: Some(every) } => format!(
                "{} requested its checkpoint {position} {waited} after the previous one was committed, although it \
                 should have waited for {every}",
                names.group(group)
            ),
            Breach::CheckpointEarly { group, position, every: None, .. } => format!(
                "{} requested its checkpoint {position}, although it should take no unforced checkpoint after the first",
                names.group(group)
            ),
            Breach::SentAgain { message: id, times, suppressed } => {
                let (sender, receiver) = (names.process(id.from), names.process(id.to));
                let (first, times) = match suppressed {
                    true => ("suppressed", format!(" and transmitted it {}", how_often(times))),
                    false => ("transmitted", format!(" {}", how_often(times))),
                };
                format!(
                    "{sender} {first} {}{times}, although no failure of {receiver} or its group required it",
                    names.message(id)
                )
            }
            Breach::NotRemoved { holder, part, why, since } => {
                let why = match why {
                    Garbage::Undone => "a rollback had undone the checkpoint",
                    Garbage::Older => "every checkpoint that a recovery could restore was newer",
                };
                format!(
                    "at the end, {} still stored the part of {} in checkpoint {}, although by {:.2} s {why}",
                    names.process(holder),
                    names.process(part.owner),
                    part.position(),
                    since.as_secs_f64()
                )
            }
            Breach::LogNotRemoved { process: of, removed, due, since } => format!(
                "by the end, {} had removed only {} from its log, although no recovery after {:.2} s could need {due} \
                 of its messages",
                names.process(of),
                count(removed, "message"),
                since.as_secs_f64()
            ),
            _ => return None,
        })
    }

    fn about_lives(&self, names: &Context) -> Option<String> {
        let process = |it: ProcessId| names.process(it);
        Some(match *self {
            Breach::StartedAfterNewer { process: of, older, newer } => {
                format!("{newer} of {} was started after {older}", process(of))
            }
            Breach::StartedBeforeEnd { process: of, older, newer } => {
                format!("{newer} of {} was started before {older} had ended", process(of))
            }
            Breach::ActedAfterNext { process: of, older, newer, at } => {
                format!("{older} of {} still acted at {at}, after {newer} was started", process(of))
            }
            Breach::NeverStarted { process: of, life } => {
                format!("{life} of {} reported facts, but was never started", process(of))
            }
            Breach::StartedUndetected { process: of, older, newer } => {
                format!("{newer} of {} was started before the failure of {older} was detected", process(of))
            }
            Breach::StartedOnLostStorage { process: of, life } => {
                format!("{life} of {} was started as if its storage had not been lost", process(of))
            }
            Breach::CompletedWithout { process: of, is_down: true } => {
                format!("the supervisor ended the run as completed while {} was down", process(of))
            }
            Breach::CompletedWithout { process: of, is_down: false } => {
                format!("the supervisor ended the run as completed before {} had a result", process(of))
            }
            Breach::WrongResult { process: of, found, expected } => {
                format!("{} finished with the result {found} instead of {expected}", process(of))
            }
            Breach::NeverFinished { process: of } => {
                format!("{} never finished, or a rollback undid its completion", process(of))
            }
            Breach::NotDeterministic { message } => {
                let (reason, remedy) = not_deterministic(message, names);
                format!("{reason}; {remedy}")
            }
            Breach::Panicked(ref panic) => {
                let Panic { process: of, at, handled, message, place, .. } = &**panic;
                format!(
                    "{} panicked at {:.2} s while it handled {}: {} ({place})",
                    process(*of),
                    at.as_secs_f64(),
                    input(*handled, names),
                    message
                )
            }
            Breach::Broke(ref breakage) => broke(breakage, names),
            Breach::TimeStoodStill { process: of, handled, events, at } => format!(
                "virtual time stopped advancing at {:.2} s, but {events} events followed; in the last one, {} handled {}",
                at.as_secs_f64(),
                process(of),
                input(handled, names)
            ),
            _ => return None,
        })
    }
}

/// Names an input of a process.
fn input(handled: Handled, names: &Context) -> String {
    let part = |it: ImageName| names.names.part_in_sentence(it);
    match handled {
        Handled::Start => "its start".into(),
        Handled::Message(id) => names.message(id),
        Handled::Control { from } => format!("a message of the protocol from {}", names.process(from)),
        Handled::Image { from, name } => format!("{} from {}", part(name), names.process(from)),
        Handled::Persisted(name) => format!("the end of the write of {}", part(name)),
        Handled::PersistFailed(name) => format!("the failed write of {}", part(name)),
        Handled::Read(name) => format!("the answer to its read of {}", part(name)),
        Handled::Listed => "the list of its stored parts".into(),
        Handled::Recorded => "the end of the write of its record".into(),
        Handled::Membership => "a new membership".into(),
        Handled::Result(no) => format!("the result of {no}"),
        Handled::Job(no) => format!("{no} of the application"),
        Handled::Timeout => "a timeout".into(),
    }
}

/// The maximum number of characters of a text that a program wrote.
const MOST_QUOTED: usize = 1_000;

fn quoted(text: &str) -> String {
    one_line(text, MOST_QUOTED)
}

/// Describes how the program that acts as a process's protocol failed, with the last lines of its log.
fn broke(breakage: &Breakage, names: &Context) -> String {
    let Breakage { process, life, program, what, log, .. } = breakage;
    let process = names.names.process(*process);
    let mut text = format!("{process} ({}, {life}) {}", quoted(program), quoted(what));
    if !log.is_empty() {
        let lines: Vec<String> = log.iter().map(|it| quoted(it)).collect();
        text += &format!("; its log ends with: {}", lines.join(" | "));
    }
    text
}

fn remedy_of_program(kind: BreakageKind) -> &'static str {
    match kind {
        BreakageKind::Contract | BreakageKind::Ended => "the record lacks the claim that would show this",
        BreakageKind::NotStarted => "check that the command is in PATH on every machine of the run",
        BreakageKind::Silent => "use a longer `answerWithin`, or find out why the program hangs",
        BreakageKind::Killed => "see whether the machine ran out of memory",
    }
}

/// Formats how often something happened: `once`, `twice` or `3 times`.
pub fn how_often(times: u64) -> String {
    match times {
        1 => "once".into(),
        2 => "twice".into(),
        times => format!("{times} times"),
    }
}

/// Returns a number with its noun, such as `1 message` or `2 processes`.
pub fn count(number: u64, thing: &str) -> String {
    match (number, thing) {
        (1, thing) => format!("1 {thing}"),
        (_, "process") => format!("{number} processes"),
        (_, thing) => format!("{number} {thing}s"),
    }
}

/// Names a link, or the network within a cluster.
fn link(from: ClusterId, to: ClusterId, names: &Context) -> String {
    match from == to {
        true => format!("the link within {}", names.cluster(from)),
        false => format!("the link from {} to {}", names.cluster(from), names.cluster(to)),
    }
}

/// Names a state that a member restored.
fn state(name: Option<CheckpointName>) -> String {
    match name {
        Some(name) => format!("checkpoint {} ({})", name.position, name.attempt),
        None => "the initial state".into(),
    }
}

/// Returns the reason and its remedy.
fn not_deterministic(id: MessageId, names: &Context) -> (String, String) {
    let (text, sender) = (names.message(id), names.process(id.from));
    let reason = format!(
        "the program is not send-deterministic: {sender} did not send {text} again after consuming the same messages \
         as before"
    );
    (reason, "choose a protocol that does not require send determinism".into())
}

/// Returns the sentence about an impossible fact of a task-based program, without its subject.
fn impossible(what: ImpossibleFact, names: &Context) -> String {
    let named = |theft| theft_name(theft, names);
    let name = |task| names.task(task);
    match what {
        ImpossibleFact::Ran { task } => format!("ran {}, which it did not have", name(task)),
        ImpossibleFact::Lent { task } => format!("lent {}, which it did not have", name(task)),
        ImpossibleFact::Sent { task, theft } => {
            format!("sent {}, which it had not lent ({})", name(task), named(theft))
        }
        ImpossibleFact::TookTwice { task, theft } => {
            format!("received {} twice for one theft ({})", name(task), named(theft))
        }
        ImpossibleFact::Merged { task, theft } => {
            format!("used the result of {}, which it had not lent ({})", name(task), named(theft))
        }
        ImpossibleFact::TookBack { task } => format!("took back {}, which it had not lent", name(task)),
        ImpossibleFact::Dropped { task } => format!("dropped {}, which it did not have", name(task)),
        ImpossibleFact::OwedNothing { task, theft } => {
            format!("completed or returned {}, for which it owed nothing ({})", name(task), named(theft))
        }
        ImpossibleFact::Unfinished { task, theft, returned, left } => {
            let what = if returned { "returned" } else { "completed" };
            format!(
                "{what} stolen {} although {left} of its tasks had not ended ({})",
                name(task),
                named(theft)
            )
        }
        ImpossibleFact::EndedEarly { left } => {
            format!("ended the program although {left} of its tasks had not ended")
        }
        ImpossibleFact::EndedNothing => "ended the program, which it did not own".into(),
        ImpossibleFact::AbsorbedTwice { of, theft } => format!(
            "took over the state of {}, part of which ({}) it already had",
            names.process(of),
            named(theft)
        ),
    }
}

/// Names a theft, or the program itself, which no process stole.
fn theft_name(theft: Theft, names: &Context) -> String {
    if theft == Theft::NONE {
        return "the program itself".into();
    }
    let (victim, thief) = (names.process(theft.victim), names.process(theft.thief));
    format!("theft {} by {thief} in {}, from {victim}", theft.number, theft.life)
}

/// The remedy if links or the times of faults differ from the request, which happens on a busy machine.
fn idle_machine(names: &Context) -> String {
    match names.in_pods {
        true => "the machines were busy: repeat the run on idle ones, or use `--backend simulate`".into(),
        false => "the machine was busy: repeat the run on an idle one, or use `--backend simulate`".into(),
    }
}

/// The remedy if facts are missing.
fn complete_record() -> String {
    "restore the files of the record from a complete copy, or repeat the run".into()
}

impl Gap {
    /// Returns the reason and its remedy as a sentence, without a full stop.
    pub fn sentence(&self, names: &Context) -> String {
        let (reason, remedy) = self.reason_and_remedy(names);
        format!("{reason}; {remedy}")
    }

    /// Returns the reason why something could not be judged, and what the user can do about it.
    fn reason_and_remedy(&self, names: &Context) -> (String, String) {
        let process = |it: ProcessId| names.process(it);
        match self {
            Gap::DeadlineExceeded { begun: true } => (
                "the deadline was exceeded before all ranks had finished".into(),
                "raise `deadline`, or shorten the application".into(),
            ),
            Gap::DeadlineExceeded { begun: false } => (
                "the deadline was exceeded before all processes were up and all links were measured".into(),
                "raise `deadline`, or repeat the run on an idle machine".into(),
            ),
            Gap::Interrupted => {
                ("the run was interrupted".into(), "repeat the run, and wait for its end".into())
            }
            Gap::CutShort if names.unmatched.is_some() => (
                "the events do not state how the run ended".into(),
                "end them with a line such as {\"event\":\"end\",\"outcome\":\"completed\"}".into(),
            ),
            Gap::CutShort => (
                "the run was cut short".into(),
                "repeat the run; if it is cut short again, its log in the record (`run.log`) may say why".into(),
            ),
            Gap::Unrecoverable { group, missing } => {
                let parts: Vec<String> = missing.iter().map(|it| missing_part(it, names)).collect();
                let missing = if parts.is_empty() { "every checkpoint".into() } else { parts.join("; ") };
                let reason = format!("{} is unrecoverable by design; missing: {missing}", names.group(*group));
                let remedy = match names.copies {
                    Some(_) => "to survive such failures, store more copies (`replicas`) or store them elsewhere \
                                (`replicateTo`)",
                    None => "to survive such failures, choose another protocol",
                };
                (reason, remedy.into())
            }
            Gap::NotDeterministic { message } => not_deterministic(*message, names),
            Gap::OutOfMemory(used) => out_of_memory(used, names),
            Gap::Broke(breakage) => (broke(breakage, names), remedy_of_program(breakage.kind).into()),
            Gap::EndedUnexpectedly { process: of, at } => (
                format!(
                    "{} ended unexpectedly at {:.2} s, without a planned fault",
                    process(*of),
                    at.as_secs_f64()
                ),
                match names.in_pods {
                    true => "its log may say why (`kubectl faultline logs`)".into(),
                    false => "its log in the record (`nodes`) may say why".into(),
                },
            ),
            Gap::Flawed { flaws, contradictions, more } => {
                let is_changed = flaws.iter().any(Flaw::is_change);
                let flaws = flaws.iter().map(|flaw| flaw.describe(process));
                let named: Vec<String> =
                    flaws.chain(contradictions.iter().map(|it| contradiction(it, names))).collect();
                let more = match more {
                    0 => String::new(),
                    more => format!("; and {more} more of this kind"),
                };
                let remedy = match is_changed {
                    _ if names.unmatched.is_some() => "complete the events, and import them again".into(),
                    true => "use an unchanged copy of the record, or repeat the run".into(),
                    false => complete_record(),
                };
                (format!("{}{more}", named.join("; ")), remedy)
            }
            Gap::SupervisorMissing => ("the supervisor's facts are missing".into(), complete_record()),
            Gap::FactsMissing { process: of } => {
                (format!("facts of {} are missing", process(*of)), complete_record())
            }
            Gap::FactsMissingBefore { process: of, life, upto } => {
                (format!("facts of {} before {upto} of {life} are missing", process(*of)), complete_record())
            }
            Gap::FactsOfCopiesMissing => {
                ("facts are missing that may show a durable copy".into(), complete_record())
            }
            Gap::NoFaultTookEffect { planned } => (
                match planned {
                    1 => "the only planned fault did not take effect".into(),
                    _ => format!("none of the {planned} planned faults took effect"),
                },
                "plan a fault that is due before the end of the run, or let the application run longer".into(),
            ),
            Gap::FaultsNotShown { planned } => (
                match planned {
                    1 => "the record does not show whether the only planned fault took effect".into(),
                    _ => format!("the record does not show whether any of the {planned} planned faults took effect"),
                },
                complete_record(),
            ),
            Gap::TimesNotRecorded { cluster, fault } => (
                format!(
                    "the times at which {fault} ended the processes of {} were not recorded",
                    names.cluster(*cluster)
                ),
                "repeat the run".into(),
            ),
            Gap::EndNotSeen { process: of, fault } => (
                format!(
                    "it is unknown when {fault} ended {}: its place did not respond, or the process had already ended",
                    process(*of)
                ),
                "repeat the run".into(),
            ),
            Gap::EndedApart { cluster, processes, fault, skew, within } => (
                format!(
                    "{fault} ended the {processes} processes of {} within {skew}, not within {within}",
                    names.cluster(*cluster)
                ),
                idle_machine(names),
            ),
            Gap::LinkLatency { from, to, measured, asked } => (
                format!("{} has a latency of {measured} instead of {asked}", link(*from, *to, names)),
                idle_machine(names),
            ),
            Gap::LinkDelay(delay) => (link_delay(delay, names), idle_machine(names)),
            Gap::LinkNotMeasured { from, to, since } => (
                format!(
                    "{} was not measured after its change at {:.2} s",
                    link(*from, *to, names),
                    since.as_secs_f64()
                ),
                idle_machine(names),
            ),
            Gap::PartUnknown { owner, position } => (
                format!("the content of checkpoint {position} of {} is unknown", process(*owner)),
                complete_record(),
            ),
            Gap::CheckpointUnknown { group, position } => (
                format!("the content of checkpoint {position} of {} is unknown", names.group(*group)),
                complete_record(),
            ),
            Gap::ForcedUnknown { message } => (
                format!(
                    "the checkpoint that {} forced at {} is unknown",
                    names.message(*message),
                    process(message.to)
                ),
                complete_record(),
            ),
            Gap::StateUnknown { process: of } => {
                (format!("the final state of {} is unknown", process(*of)), complete_record())
            }
            Gap::ReceiversUnknown { messages } => (
                format!("the final states of the receivers of {} are unknown", count(*messages, "message")),
                complete_record(),
            ),
            Gap::SendersUnknown { messages } => {
                let messages = count(*messages, "delivered message");
                (format!("the final states of the senders of {messages} are unknown"), complete_record())
            }
            Gap::NoMessage => (
                "no message had to be delivered".into(),
                "use an application whose ranks exchange messages, or let it run longer".into(),
            ),
            Gap::NoCheckpoint => (
                "no checkpoint was taken".into(),
                "set the interval between checkpoints (`checkpointEvery` or `tau`) to less than the duration of the run"
                    .into(),
            ),
            Gap::NoResultOfTasks => (
                "no process reported a result that contains tasks".into(),
                "keep at least one process until the end of the program".into(),
            ),
        }
    }
}

fn missing_part(part: &MissingPart, names: &Context) -> String {
    let asked: Vec<String> = part.asked.iter().map(|&it| names.process(it)).collect();
    let whom = if asked.is_empty() {
        "no process holds it".to_owned()
    } else {
        format!("not found at {}", asked.join(", "))
    };
    let what = match part.is_log {
        false => names.names.part_in_sentence(part.name),
        true => names.names.log_in_sentence(part.name),
    };
    format!("{what} ({whom})")
}

fn link_delay(delay: &LinkDelay, names: &Context) -> String {
    let LinkDelay { from, to, percent, tolerance, mean, asked } = *delay;
    format!(
        "for {percent} % of the echoes during the run, the delay of {} was off by more than {tolerance}: {mean} on average instead \
         of {asked}",
        link(from, to, names)
    )
}

/// Describes what filled the memory, and returns a remedy for the largest contributor.
fn out_of_memory(used: &MemoryUse, names: &Context) -> (String, String) {
    let mut parts: Vec<(u64, String, &str)> =
        used.parts.iter().filter(|part| part.bytes > 0).map(|part| in_words(part, names)).collect();
    // If the judgement would need too much memory, the parts include memory that is not in use yet.
    let is_in_use = used.parts.iter().all(|it| it.content != MemoryContent::JudgedFacts);
    let known: u64 = parts.iter().map(|it| it.0).sum();
    let rest = used.used.saturating_sub(known);
    parts.sort_by_key(|it| Reverse(it.0));
    let mut remedy = parts.first().map(|it| it.2);
    if is_in_use && rest > 0 {
        let what = format!("{} for everything else, such as the states of processes", mebibytes(rest));
        parts.push((rest, what, "use smaller states or fewer processes"));
        // The rest includes the program itself, which no change to the file can make smaller.
        remedy = remedy.filter(|_| rest <= known).or(parts.last().map(|it| it.2));
        parts.sort_by_key(|it| Reverse(it.0));
    }
    let words: Vec<String> = parts.into_iter().map(|it| it.1).collect();
    let contents = if words.is_empty() { String::new() } else { format!(", with {}", words.join(", ")) };
    let limit = mebibytes(used.bound);
    if names.in_pods {
        let remedy = remedy.unwrap_or("shorten the application");
        return (
            format!("the supervisor reached its memory limit, {limit}{contents}"),
            format!("{remedy} (the limit of a supervisor in a pod is fixed)"),
        );
    }
    let remedy = remedy.map(|it| format!("{it}, or ")).unwrap_or_default();
    (format!("the program reached its memory limit, {limit}{contents}"), format!("{remedy}raise `--memory`"))
}

/// Returns whether the stored parts of checkpoints include more than those of the initial checkpoints.
fn has_later_checkpoints(part: &MemoryPart, names: &Context) -> bool {
    let ranks = names.clusters.iter().map(Vec::len).sum::<usize>() as u64;
    part.count > ranks * (1 + names.copies.map_or(0, |it| u64::from(it.replicas)))
}

/// Returns the size of a part of the memory, a description of the part, and a remedy that reduces its size.
fn in_words(part: &MemoryPart, names: &Context) -> (u64, String, &'static str) {
    let bounds = names.bounds.as_ref();
    let takes_checkpoints = bounds.is_some_and(|it| it.checkpoint_every.iter().any(Option::is_some));
    let collects_later = bounds.and_then(|it| it.collect_every).is_some_and(|it| it > Span::ZERO);
    let (one, many, remedy) = match part.content {
        MemoryContent::Facts => ("fact", "facts", "shorten the application"),
        MemoryContent::JudgedFacts => {
            ("fact and its judgement", "facts and their judgement", "shorten the application")
        }
        MemoryContent::Checkpoints => (
            "part of a checkpoint",
            "parts of checkpoints",
            match (has_later_checkpoints(part, names), takes_checkpoints) {
                (true, true) => {
                    "collect checkpoints more often (`collectEvery`) or take fewer (`checkpointEvery`)"
                }
                // Messages or thefts force the checkpoints.
                (true, false) => "collect checkpoints more often (`collectEvery`)",
                (false, _) => "use smaller states or fewer `replicas`",
            },
        ),
        MemoryContent::Logs => (
            "logged message",
            "logged messages",
            match (takes_checkpoints, collects_later) {
                (true, true) => "take and collect checkpoints more often (`checkpointEvery`, `collectEvery`)",
                (true, false) => "take checkpoints more often (`checkpointEvery`)",
                (false, _) => {
                    "take checkpoints (`checkpointEvery`), because logs are collected only after a checkpoint"
                }
            },
        ),
        MemoryContent::Queue => {
            ("event in the queue", "events in the queue", "send less at a time, or use faster links")
        }
    };
    let what = if part.count == 1 { one } else { many };
    (part.bytes, format!("{} for {} {what}", mebibytes(part.bytes), part.count), remedy)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

impl Remark {
    /// Returns the sentence, without a full stop.
    pub fn sentence(&self, names: &Context) -> String {
        match self {
            Remark::NotPromised(it) => format!("not promised: {}", it.sentence(names)),
            Remark::Wasteful(it, 0) => format!("wasteful: {}", it.sentence(names)),
            Remark::Wasteful(it, more) => {
                format!("wasteful: {} (and {more} more of this kind)", it.sentence(names))
            }
            Remark::EndedTogether { skew } => {
                format!("cluster losses: all processes of a lost cluster stopped within {skew}")
            }
            Remark::WithoutEffect { fault, reason } => format!("{fault} had no effect: {reason}"),
            Remark::NotApplied { fault } => {
                format!("{fault} was injected, but no process reported that it took effect")
            }
            Remark::NotDue { never, planned } => {
                format!("{never} of {planned} faults did not become due before the end of the run")
            }
            Remark::NotLeft { cluster } => {
                format!("{} had not left when the run completed", names.cluster(*cluster))
            }
            Remark::NotShown { open, planned } => {
                format!("the record does not show what became of {open} of {planned} faults")
            }
            Remark::Unmatched { lines: 1 } => "1 line of the events matches no rule".to_owned(),
            Remark::Unmatched { lines } => format!("{lines} lines of the events match no rule"),
            Remark::LinkDelay(delay) => link_delay(delay, names),
            Remark::ReplicasLost { group, position, target } => format!(
                "{} lost every copy of a part of checkpoint {position}, and rolled back to {target}",
                names.group(*group)
            ),
            Remark::NotCounted { process, is_incomplete } => format!(
                "{}, so the tasks in the result of {} could not be checked",
                match is_incomplete {
                    true => "facts are missing",
                    false => "executions of a task spawned different tasks",
                },
                names.process(*process)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::{
        Attempt, FactNo, FaultNo, GroupId, ImageName, Incarnation, Position, Sn, TaskId, Time,
    };
    use faultline_trace::manifest::Bounds;

    /// Returns the names of two clusters, each of which has one process.
    fn names() -> Context {
        let mut names = Run::new(&[&[0], &[1]]).context;
        names.names.processes = vec!["paris-0".into(), "lyon-0".into()];
        names.names.clusters = vec!["paris".into(), "lyon".into()];
        names
    }

    fn part(owner: u32) -> ImageName {
        ImageName { owner: p(owner), incarnation: Incarnation(0), sn: Sn(3), attempt: Attempt(1) }
    }

    #[test]
    fn each_contradiction_has_a_sentence() {
        let (process, life, next, fault) = (p(0), Life(1), Life(2), FaultNo(4));
        let (from, to) = (ClusterId(0), ClusterId(1));
        let message = MessageId { from: p(0), to: p(1), incarnation: Incarnation(2), number: 7 };
        let theft = Theft { victim: p(0), thief: p(1), life, number: 1 };
        let seconds = |it| Time::ZERO + Span::from_secs(it);
        let sentences = [
            (Contradiction::NoSupervisor, "the supervisor's facts are missing"),
            (Contradiction::NoFacts(process, life), "there are no facts of life 1 of paris-0"),
            (
                Contradiction::StartMissing(process, life),
                "the supervisor's facts do not state that life 1 of paris-0 was started",
            ),
            (
                Contradiction::ReportedTooEarly(process, life),
                "life 1 of paris-0 reported facts before it was started",
            ),
            (
                Contradiction::StartedTooEarly { process, life, next },
                "the failure of life 1 of paris-0 was never detected, but life 2 started",
            ),
            (
                Contradiction::NeverDetected(process, life),
                "the failure of life 1 of paris-0 was never detected",
            ),
            (
                Contradiction::DetectedAgain(process, life),
                "the failure of life 1 of paris-0 was detected more than once",
            ),
            (
                Contradiction::ResumedAtOtherTime(process, life),
                "life 1 of paris-0 resumed at another time than its pauses ended",
            ),
            (
                Contradiction::NeverResumed(process, life),
                "the supervisor's facts do not state that life 1 of paris-0 resumed after its pause",
            ),
            (
                Contradiction::ActedWhilePaused(process, life),
                "life 1 of paris-0 reported facts while it was paused",
            ),
            (
                Contradiction::FailedAgain(process, life),
                "life 1 of paris-0 failed again after it had ended, but no fault destroyed its storage",
            ),
            (
                Contradiction::NotNewest(process, life),
                "the supervisor's facts state that life 1 of paris-0 ended, which was not the newest life of its \
                 process",
            ),
            (Contradiction::NeverBegun, "the supervisor's facts do not state that the application started"),
            (
                Contradiction::BegunAgain { times: 2 },
                "according to the supervisor's facts, the application started 2 times",
            ),
            (Contradiction::StartOutOfOrder, "the supervisor's facts about the start are out of order"),
            (
                Contradiction::ActedTooEarly(process, life),
                "life 1 of paris-0 sent or received something before the application started",
            ),
            (Contradiction::CompletionMissing, "the supervisor's facts do not state that the run completed"),
            (
                Contradiction::CompletedDespiteManifest,
                "the run completed according to the supervisor's facts, but not according to the manifest",
            ),
            (Contradiction::ReportedAfterEnd, "the supervisor reported facts after the end of the run"),
            (
                Contradiction::WrongEnd { end: seconds(3), last: seconds(4) },
                "the run ended after 3.000000 s, but its last fact was reported at 4.000000 s",
            ),
            (Contradiction::NoResult(process, life), "life 1 of paris-0 never reported its result"),
            (
                Contradiction::ResultMisplaced(process, life),
                "the result of life 1 of paris-0 is not at the position that its witness states: facts before it \
                 were changed",
            ),
            (
                Contradiction::NeverSaved { process, life, part: part(1) },
                "the storage of paris-0 reported lyon-0@0.3 as durable, but life 1 had not saved it",
            ),
            (
                Contradiction::NeverTransmitted(message),
                "message 7 from paris-0 to lyon-0 (of incarnation 2) was delivered, but never transmitted",
            ),
            (
                Contradiction::NotPlanned(fault),
                "the supervisor's facts mention fault 4, which is not in the plan",
            ),
            (
                Contradiction::NotInjected { fault, process, life },
                "fault 4 ended life 1 of paris-0, but the supervisor's facts do not state that it was injected",
            ),
            (
                Contradiction::NotTarget { fault, process, life },
                "according to the supervisor's facts, fault 4 ended life 1 of paris-0, which is not its target",
            ),
            (
                Contradiction::StartedOtherwise(process, life),
                "the supervisor's facts about the storage of paris-0 are inconsistent with the way in which life 1 \
                 started",
            ),
            (
                Contradiction::NeverLent(theft),
                "the facts of a theft name a task that paris-0 never lent to lyon-0",
            ),
            (
                Contradiction::NeverShipped(theft),
                "lyon-0 received a task that it had stolen from paris-0, but no fact states that the task was sent",
            ),
            (
                Contradiction::NeverReturned(theft),
                "the result of a task that lyon-0 had stolen from paris-0 was merged, but no fact states that it was \
                 sent",
            ),
            (
                Contradiction::PlanApart(process, life),
                "the facts of life 1 of paris-0 about the plan of its tasks are inconsistent with those about the \
                 execution of its tasks",
            ),
            (
                Contradiction::NeverExecuted { task: TaskId(1), source: TaskId(2) },
                "0000000000000001 read values of 0000000000000002, but no fact states that 0000000000000002 was \
                 executed",
            ),
            (
                Contradiction::SentWithoutTask(process, life),
                "life 1 of paris-0 sent messages, but its facts do not state that it had executed a task",
            ),
            (Contradiction::InjectedAgain(fault), "fault 4 was injected more than once"),
            (
                Contradiction::TwoOutcomes(fault),
                "the supervisor's facts state more than one outcome of fault 4",
            ),
            (Contradiction::NotLost { fault, process }, "fault 4 was injected, but did not end paris-0"),
            (
                Contradiction::EndedAgain { fault, process, life },
                "fault 4 ended life 1 of paris-0 more than once",
            ),
            (Contradiction::InjectedAtOtherTime(fault), "fault 4 was not injected at its planned time"),
            (
                Contradiction::InjectedWithoutCause(fault),
                "fault 4 was injected before the facts that it waits for",
            ),
            (
                Contradiction::OtherFate { fault, process, life },
                "fault 4 did not affect the storage of life 1 of paris-0 as planned",
            ),
            (
                Contradiction::FateWithoutCause(process, life),
                "what happened to the storage of life 1 of paris-0 does not follow from the cause of its end",
            ),
            (
                Contradiction::EffectElsewhere { fault, process, life },
                "fault 4 took effect on life 1 of paris-0, but did not end it",
            ),
            (
                Contradiction::EndedAtOtherTime { fault, process, life },
                "fault 4 ended life 1 of paris-0, but not at the time of its injection",
            ),
            (Contradiction::ChangedInVirtualTime, "a user changed the simulated federation"),
            (
                Contradiction::EffectsMeasured,
                "the effects of faults were measured, although the run was simulated",
            ),
            (
                Contradiction::LinkNeverChanged { from, to },
                "the supervisor's facts do not state that the link from paris to lyon changed",
            ),
            (Contradiction::MovedAgain(to), "lyon joined or left more than once"),
            (Contradiction::EndedNothing(fault), "fault 4 was injected, but ended no process"),
            (
                Contradiction::OtherOutcome(fault),
                "the manifest and the supervisor's facts disagree about the outcome of fault 4",
            ),
            (Contradiction::NeverDue(fault), "fault 4 was due, but is missing from the supervisor's facts"),
            (
                Contradiction::OutcomesMissing { outcomes: 2, planned: 1 },
                "the manifest has outcomes for 2 faults, but 1 was planned",
            ),
            (Contradiction::LinksMeasured, "links were measured, although they are simulated"),
            (
                Contradiction::LinkMiscounted { from, to: from },
                "the measurements of the link within paris contradict each other",
            ),
            (Contradiction::LinkNotMeasured { from, to }, "the link from paris to lyon was not measured"),
        ];
        for (found, sentence) in sentences {
            assert_eq!(contradiction(&found, &names()), sentence);
        }
    }

    /// Returns a gap of each kind. A kind that is added must be added here, too.
    fn every_gap() -> Vec<Gap> {
        let (process, message) =
            (p(0), MessageId { from: p(0), to: p(1), incarnation: Incarnation(0), number: 7 });
        let (from, to, cluster, fault) = (ClusterId(0), ClusterId(1), ClusterId(0), FaultNo(1));
        let (position, since, at) = (Position::new(0, 3), Time::ZERO, Time::ZERO);
        let (measured, asked, skew, within) = (Span::ZERO, Span::ZERO, Span::ZERO, Span::ZERO);
        let group = GroupId(0);
        let delay = LinkDelay { from, to, percent: 37, tolerance: Span::ZERO, mean: measured, asked };
        let memory = MemoryUse { bound: 1, used: 2, parts: Vec::new() };
        let (program, what, kind) = ("a.py".into(), "does not reply".into(), BreakageKind::Silent);
        let breakage = Breakage { process, life: Life(1), program, kind, what, log: [].into() };
        let gaps = vec![
            Gap::DeadlineExceeded { begun: true },
            Gap::DeadlineExceeded { begun: false },
            Gap::Interrupted,
            Gap::CutShort,
            Gap::Unrecoverable { group, missing: Vec::new() },
            Gap::NotDeterministic { message },
            Gap::OutOfMemory(memory.into()),
            Gap::Broke(breakage.into()),
            Gap::EndedUnexpectedly { process, at },
            Gap::Flawed { flaws: Vec::new(), contradictions: vec![Contradiction::NoSupervisor], more: 0 },
            Gap::SupervisorMissing,
            Gap::FactsMissing { process },
            Gap::FactsMissingBefore { process, life: Life(1), upto: FactNo(3) },
            Gap::FactsOfCopiesMissing,
            Gap::NoFaultTookEffect { planned: 2 },
            Gap::FaultsNotShown { planned: 2 },
            Gap::TimesNotRecorded { cluster, fault },
            Gap::EndNotSeen { process, fault },
            Gap::EndedApart { cluster, processes: 3, fault, skew, within },
            Gap::LinkLatency { from, to, measured, asked },
            Gap::LinkDelay(delay),
            Gap::LinkNotMeasured { from, to, since },
            Gap::PartUnknown { owner: process, position },
            Gap::CheckpointUnknown { group, position },
            Gap::ForcedUnknown { message },
            Gap::StateUnknown { process },
            Gap::ReceiversUnknown { messages: 1 },
            Gap::SendersUnknown { messages: 2 },
            Gap::NoMessage,
            Gap::NoCheckpoint,
            Gap::NoResultOfTasks,
        ];
        for gap in &gaps {
            // Fails to compile if a kind is added.
            match gap {
                Gap::DeadlineExceeded { .. }
                | Gap::Interrupted
                | Gap::CutShort
                | Gap::Unrecoverable { .. } => {}
                Gap::NotDeterministic { .. } | Gap::OutOfMemory(_) | Gap::Broke(_) => {}
                Gap::EndedUnexpectedly { .. } => {}
                Gap::Flawed { .. } | Gap::SupervisorMissing | Gap::FactsMissing { .. } => {}
                Gap::FactsMissingBefore { .. } | Gap::FactsOfCopiesMissing => {}
                Gap::FaultsNotShown { .. } => {}
                Gap::NoFaultTookEffect { .. } | Gap::TimesNotRecorded { .. } | Gap::EndNotSeen { .. } => {}
                Gap::EndedApart { .. } | Gap::LinkLatency { .. } | Gap::LinkDelay(_) => {}
                Gap::LinkNotMeasured { .. } | Gap::PartUnknown { .. } | Gap::CheckpointUnknown { .. } => {}
                Gap::ForcedUnknown { .. } | Gap::StateUnknown { .. } | Gap::ReceiversUnknown { .. } => {}
                Gap::SendersUnknown { .. } | Gap::NoMessage | Gap::NoCheckpoint | Gap::NoResultOfTasks => {}
            }
        }
        gaps
    }

    #[test]
    fn each_gap_has_a_reason_and_a_remedy() {
        const VERBS: [&str; 14] = [
            "choose",
            "keep",
            "let",
            "plan",
            "raise",
            "repeat",
            "restore",
            "set",
            "store",
            "use",
            "take",
            "collect",
            "shorten",
            "may say why",
        ];
        for in_pods in [false, true] {
            let mut names = names();
            names.in_pods = in_pods;
            for gap in every_gap() {
                let (reason, remedy) = gap.reason_and_remedy(&names);
                let acts = VERBS.iter().any(|it| remedy.contains(it));
                assert!(!reason.is_empty() && acts && !remedy.ends_with('.'), "{gap:?}: {reason}; {remedy}");
                assert_eq!(gap.sentence(&names), format!("{reason}; {remedy}"));
            }
        }
        let link = |it: &&Gap| matches!(it, Gap::LinkDelay(_));
        let said = every_gap().iter().find(link).expect("it is listed").sentence(&names());
        let remedy = "; the machine was busy: repeat the run on an idle one, or use `--backend simulate`";
        assert!(said.starts_with("for 37 % of the echoes") && said.ends_with(remedy), "{said}");
    }

    #[test]
    fn an_unrecoverable_group_names_the_processes_that_were_asked() {
        let missing = vec![
            MissingPart { name: part(0), is_log: false, asked: vec![p(0), p(1)] },
            MissingPart { name: part(1), is_log: true, asked: vec![] },
        ];
        let gap = Gap::Unrecoverable { group: GroupId(0), missing };
        assert_eq!(
            gap.sentence(&names()),
            "paris is unrecoverable by design; missing: paris-0's part of checkpoint 3 (not found at paris-0, lyon-0); \
             the log of lyon-0 since checkpoint 3 (no process holds it); to survive such failures, choose another \
             protocol"
        );
    }

    #[test]
    fn a_run_out_of_memory_lists_its_largest_parts_and_remedies() {
        let part =
            |content, count: u64, mebibytes: u64| MemoryPart { content, count, bytes: mebibytes << 20 };
        let parts = vec![
            part(MemoryContent::JudgedFacts, 7, 3),
            part(MemoryContent::Checkpoints, 12, 40),
            part(MemoryContent::Queue, 0, 0),
        ];
        let gap = Gap::OutOfMemory(MemoryUse { bound: 64 << 20, used: 65 << 20, parts }.into());
        let mut names = names();
        names.bounds = Some(bounds(Some(Span::from_secs(1)), Some(Span::from_secs(9))));
        let contents = "reached its memory limit, 64 MiB, with 40 MiB for 12 parts of checkpoints, 3 MiB for 7 facts \
                        and their judgement; collect checkpoints more often (`collectEvery`) or take fewer \
                        (`checkpointEvery`)";
        // In virtual time, and with real processes on one machine, the program itself reaches its limit.
        for measures_links in [false, true] {
            names.measures_links = measures_links;
            assert_eq!(gap.sentence(&names), format!("the program {contents}, or raise `--memory`"));
        }
        names.in_pods = true;
        let fixed = "the limit of a supervisor in a pod is fixed";
        assert_eq!(gap.sentence(&names), format!("the supervisor {contents} ({fixed})"));
    }

    fn bounds(checkpoint_every: Option<Span>, collect_every: Option<Span>) -> Bounds {
        Bounds {
            checkpoint_every: vec![checkpoint_every],
            detect_after: Span::from_millis(500),
            collect_every,
            delivered_within: None,
        }
    }

    #[test]
    fn the_remedy_for_full_memory_fits_the_timers_and_the_largest_part() {
        let second = Some(Span::from_secs(1));
        let remedy = |content, count, bounds: Option<Bounds>, used: u64| {
            let parts = vec![MemoryPart { content, count, bytes: 40 << 20 }];
            let used = MemoryUse { bound: 64 << 20, used: used << 20, parts };
            let mut names = Run::new(&[&[0]]).context;
            names.bounds = bounds;
            Gap::OutOfMemory(used.into()).sentence(&names)
        };
        let (checkpoints, logs) = (MemoryContent::Checkpoints, MemoryContent::Logs);
        for (content, count, every, collect, expected) in [
            (
                checkpoints,
                12,
                second,
                second,
                "; collect checkpoints more often (`collectEvery`) or take fewer",
            ),
            (checkpoints, 12, None, second, "; collect checkpoints more often (`collectEvery`), or raise"),
            (checkpoints, 1, None, second, "; use smaller states or fewer `replicas`, or raise"),
            (logs, 12, second, second, "; take and collect checkpoints more often"),
            (
                logs,
                12,
                second,
                Some(Span::ZERO),
                "; take checkpoints more often (`checkpointEvery`), or raise",
            ),
            (logs, 12, None, second, "; take checkpoints (`checkpointEvery`), because"),
        ] {
            let said = remedy(content, count, Some(bounds(every, collect)), 41);
            assert!(said.contains(expected), "{said}");
            assert!(said.contains("1 MiB for everything else"), "{said}");
        }
        let said = remedy(checkpoints, 12, None, 90);
        let expected = "with 50 MiB for everything else, such as the states of processes, 40 MiB for 12 parts of \
                        checkpoints; use smaller states or fewer processes, or raise `--memory`";
        assert!(said.ends_with(expected), "{said}");
    }
}
