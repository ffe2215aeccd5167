//! Describes facts in words, for people. The caller adds the subject, which is the process that reported the fact.

use std::fmt::{self, Display};

use faultline_core::{Boot, EndedBy, Fact, MessageId, RunNames, StorageFate, TheftStep};

use crate::fault::{describe_change, describe_fault};

/// Returns the predicate of a sentence whose subject is the process that reported the fact, with the names of a run:
/// `sent paris-0->lyon-1 #2`.
pub fn describe<'a>(fact: &'a Fact, names: &'a RunNames) -> impl Display + use<'a> {
    Predicate(fact, names)
}

/// Returns the message to which a fact refers, if any.
pub fn message_of(fact: &Fact) -> Option<MessageId> {
    match fact {
        Fact::Sent { id, .. }
        | Fact::Transmitted { id, .. }
        | Fact::Suppressed(id)
        | Fact::Delivered(id)
        | Fact::Consumed(id)
        | Fact::DroppedStale(id) => Some(*id),
        Fact::Claim(claim) => claim.message(),
        _ => None,
    }
}

struct Predicate<'a>(&'a Fact, &'a RunNames);

impl Display for Predicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.1;
        let process = |it| names.process(it);
        let message = |it| names.message(it);
        let task_name = |it| names.task(it);
        match self.0 {
            Fact::Sent { id, .. } => write!(f, "sent {}", message(*id)),
            Fact::Transmitted { id, position } => {
                write!(f, "transmitted {} at {position}", message(*id))
            }
            Fact::Suppressed(id) => write!(f, "suppressed {}", message(*id)),
            Fact::Delivered(id) => write!(f, "delivered {}", message(*id)),
            Fact::Consumed(id) => write!(f, "consumed {}", message(*id)),
            Fact::DroppedStale(id) => write!(f, "dropped {} as stale", message(*id)),
            Fact::Saved(saved) => write!(f, "saved {} to its storage", names.part(saved.0)),
            Fact::Durable(name) => write!(f, "holds {} on stable storage", names.part(*name)),
            Fact::Removed(name) => write!(f, "removed {} from its storage", names.part(*name)),
            Fact::Restored(restored) => match &restored.0 {
                Some(name) => write!(f, "restored {} under {}", names.part(*name), restored.1),
                None => write!(f, "restored its initial state under {}", restored.1),
            },
            Fact::Finished(finished) => write!(f, "finished with the result {}", finished.1),
            Fact::Computed { .. } => f.write_str("ended a computation"),
            Fact::Ran { task, spawned, .. } => write!(f, "ran {}, which spawned {spawned}", task_name(*task)),
            Fact::Planned(planned) => write!(
                f,
                "executed {} of the partition of {}, which reads values of {}",
                task_name(planned.task),
                process(planned.partition),
                match planned.sources.len() {
                    1 => "1 task".to_owned(),
                    sources => format!("{sources} tasks"),
                }
            ),
            Fact::Rerun { task, by, epoch, .. } => {
                write!(
                    f,
                    "re-executed {}, as the partition of {} demanded in recovery {}",
                    task_name(*task),
                    process(*by),
                    epoch.0
                )
            }
            Fact::CheckpointMessage { position, from, to } => {
                let (from, to) = (process(*from), process(*to));
                write!(f, "sent a message of checkpoint {position} from {from} to {to}")
            }
            Fact::Theft { theft, task, step } => {
                let (victim, thief, task) = (process(theft.victim), process(theft.thief), task_name(*task));
                match step {
                    TheftStep::Lent => write!(f, "lent {task} to {thief}"),
                    TheftStep::Shipped => write!(f, "sent {task} to {thief}"),
                    TheftStep::Taken => write!(f, "took {task} from {victim}"),
                    TheftStep::Done => write!(f, "completed {task} for {victim}"),
                    TheftStep::Returned => write!(f, "sent the result of {task} to {victim}"),
                    TheftStep::Merged => write!(f, "merged the result of {task} from {thief}"),
                    TheftStep::Receipted => write!(f, "confirmed the result of {task} to {thief}"),
                    TheftStep::Forgotten => write!(f, "dropped {task} of {victim}"),
                    TheftStep::Voided => write!(f, "took {task} back from {thief}"),
                }
            }
            Fact::Absorbed(absorbed) => match &absorbed.1 {
                Some(name) => {
                    write!(f, "took over the work of {} from {}", process(absorbed.0), names.part(*name))
                }
                None => write!(f, "took over the work of {} from its initial state", process(absorbed.0)),
            },
            Fact::Ceded { partition, epoch } => {
                write!(
                    f,
                    "ceded partition {} to another process in recovery {}",
                    process(*partition),
                    epoch.0
                )
            }
            Fact::Claim(claim) => claim.describe(names, f),
            Fact::LifeStarted { process: of, life, boot } => {
                let how = match boot {
                    Boot::Fresh => "for the first time",
                    Boot::Restarted => "with its old storage",
                    Boot::Replaced => "with an empty storage",
                };
                write!(f, "started {life} of {} {how}", process(*of))
            }
            Fact::Begun => f.write_str("started the application"),
            Fact::Injecting { no, fault } => write!(f, "injected {no}: {}", describe_fault(fault, names)),
            Fact::Ineffective { no, reason } => write!(f, "found that {no} had no effect: {reason}"),
            Fact::Failed { process: of, life, storage, by } => {
                let (of, storage) = (process(*of), storage_clause(*storage));
                write!(f, "ended {life} of {of}{storage} ({})", CauseText(*by))
            }
            Fact::Detected { process: of, life } => {
                write!(f, "detected the failure of {life} of {}", process(*of))
            }
            Fact::Joined(cluster) => write!(f, "let {} join", names.cluster(*cluster)),
            Fact::Leaving(cluster) => {
                write!(f, "announced that {} is about to leave", names.cluster(*cluster))
            }
            Fact::Left(cluster) => {
                write!(f, "let {} leave and released its storage", names.cluster(*cluster))
            }
            Fact::Completed => f.write_str("found all ranks finished and no messages in transit"),
            Fact::Changed(change) => write!(f, "applied a change: {}", describe_change(change, names)),
        }
    }
}

struct CauseText(EndedBy);

impl Display for CauseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            EndedBy::Fault(no) => write!(f, "{no}"),
            EndedBy::Silence => f.write_str("no heartbeat"),
            EndedBy::PlaceLost => f.write_str("its place was lost"),
            EndedBy::StorageLost => f.write_str("its storage was lost with its old place"),
            EndedBy::SupervisorRestarted => f.write_str("the supervisor was restarted"),
        }
    }
}

fn storage_clause(storage: StorageFate) -> &'static str {
    match storage {
        StorageFate::Kept => "",
        StorageFate::Lost => " with its storage",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Fault, Incarnation, Position, ProcessId};

    #[test]
    fn facts_read_as_sentences() {
        let names = RunNames::default();
        let id = MessageId {
            from: ProcessId(1),
            to: ProcessId(2),
            incarnation: Incarnation::default(),
            number: 3,
        };
        assert_eq!(describe(&Fact::Sent { id, bytes: 8 }, &names).to_string(), "sent p1->p2 #3");
        let claim = Claim::RolledBack {
            to: Position::new(1, 2),
            checkpoint: Position::new(0, 2),
            cause: Cause::Alert { from: faultline_core::GroupId(1), position: Position::new(1, 3) },
            vectors: Default::default(),
        };
        assert_eq!(
            describe(&Fact::Claim(Box::new(claim)), &names).to_string(),
            "rolled back to checkpoint 0.2 as 1.2, because c1 rolled back to 1.3"
        );
        let fault = Fault::Crash { process: ProcessId(4), storage: StorageFate::Lost, returns: true };
        let injected = Fact::Injecting { no: faultline_core::FaultNo(0), fault: Box::new(fault) };
        assert_eq!(
            describe(&injected, &names).to_string(),
            "injected fault 0: p4 is killed, and its storage is lost"
        );
        let resent = Fact::Claim(Box::new(Claim::Resent { id }));
        assert_eq!(message_of(&resent), Some(id));
    }

    #[test]
    fn sentences_contain_the_names_of_the_run() {
        use faultline_core::{GroupId, Scope};
        let mut names = RunNames {
            processes: ["paris-0", "lyon-0", "lyon-1"].map(str::to_owned).to_vec(),
            clusters: ["paris", "lyon"].map(str::to_owned).to_vec(),
            scope: Some(Scope::Cluster),
            ..RunNames::default()
        };
        let id = MessageId { from: ProcessId(0), to: ProcessId(2), incarnation: Incarnation(1), number: 3 };
        assert_eq!(
            describe(&Fact::Delivered(id), &names).to_string(),
            "delivered paris-0->lyon-1 #3 (incarnation 1)"
        );
        let alerted = Claim::Alerted { from: GroupId(1), position: Position::new(1, 2) };
        let alerted = Fact::Claim(Box::new(alerted));
        assert_eq!(describe(&alerted, &names).to_string(), "learned that lyon rolled back to 1.2");
        // If each process rolls back alone, a claim names a process.
        names.scope = Some(Scope::Process);
        assert_eq!(describe(&alerted, &names).to_string(), "learned that lyon-0 rolled back to 1.2");
    }
}
