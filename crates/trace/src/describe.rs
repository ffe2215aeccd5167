//! Describes facts in words, for people. The caller adds the subject, which is the process that stated the fact.

use std::fmt::{self, Display};

use faultline_core::fault::{Change, StorageFault};
use faultline_core::{Boot, Cause, Claim, EndedBy, Fact, Fault, MessageId, StorageFate, TheftStep};

/// Returns the predicate of a sentence whose subject is the process that stated the fact: `sent p0->p3 #2`.
pub fn describe(fact: &Fact) -> impl Display + '_ {
    Predicate(fact)
}

/// Returns the sentence with user-defined names, where they exist, in place of `p17` and `c1`.
pub fn with_names(
    sentence: &str,
    process: impl Fn(u32) -> Option<String>,
    cluster: impl Fn(u16) -> Option<String>,
) -> String {
    let name = |word: &str| match word.split_at_checked(1)? {
        ("p", number) => process(number.parse().ok()?),
        ("c", number) => cluster(number.parse().ok()?),
        _ => None,
    };
    let words = sentence.split_inclusive(|it: char| !it.is_ascii_alphanumeric());
    words
        .map(|piece| {
            let word = piece.trim_end_matches(|it: char| !it.is_ascii_alphanumeric());
            name(word).map_or_else(|| piece.to_owned(), |name| name + &piece[word.len()..])
        })
        .collect()
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
        Fact::Claim(claim) => match **claim {
            Claim::Resent { id }
            | Claim::Forcing { id }
            | Claim::NotRepeated { id, .. }
            | Claim::Orphaned { id, .. } => Some(id),
            _ => None,
        },
        _ => None,
    }
}

/// Describes a fault in the imperative: `crash p3`.
pub fn describe_fault(fault: &Fault) -> impl Display + '_ {
    FaultText(fault)
}

struct Predicate<'a>(&'a Fact);

impl Display for Predicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fact::Sent { id, .. } => write!(f, "sent {id}"),
            Fact::Transmitted { id, position } => write!(f, "transmitted {id} at {position}"),
            Fact::Suppressed(id) => write!(f, "suppressed {id}"),
            Fact::Delivered(id) => write!(f, "delivered {id}"),
            Fact::Consumed(id) => write!(f, "consumed {id}"),
            Fact::DroppedStale(id) => write!(f, "dropped {id} as stale"),
            Fact::Saved(saved) => write!(f, "saved {} to its storage", saved.0),
            Fact::Durable(name) => write!(f, "holds {name} on stable storage"),
            Fact::Removed(name) => write!(f, "removed {name} from its storage"),
            Fact::Restored(restored) => match &restored.0 {
                Some(name) => write!(f, "restored {name} under {}", restored.1),
                None => write!(f, "restored its initial state under {}", restored.1),
            },
            Fact::Finished(finished) => write!(f, "finished with the result {}", finished.1),
            Fact::Ran { task, spawned, .. } => write!(f, "ran task {task}, which spawned {spawned}"),
            Fact::Planned(planned) => write!(
                f,
                "executed task {} of the partition of {}, which reads values of {}",
                planned.task,
                planned.partition,
                match planned.sources.len() {
                    1 => "1 task".to_owned(),
                    sources => format!("{sources} tasks"),
                }
            ),
            Fact::Rerun { task, by, epoch, .. } => {
                write!(
                    f,
                    "re-executed task {task}, as the partition of {by} demanded in recovery {}",
                    epoch.0
                )
            }
            Fact::CheckpointMessage { position, from, to } => {
                write!(f, "sent a message of checkpoint {position} from {from} to {to}")
            }
            Fact::Theft { theft, task, step } => {
                let (victim, thief) = (theft.victim, theft.thief);
                match step {
                    TheftStep::Lent => write!(f, "lent task {task} to {thief}"),
                    TheftStep::Shipped => write!(f, "sent task {task} to {thief}"),
                    TheftStep::Taken => write!(f, "took task {task} from {victim}"),
                    TheftStep::Done => write!(f, "completed task {task} for {victim}"),
                    TheftStep::Returned => write!(f, "sent the result of task {task} to {victim}"),
                    TheftStep::Merged => write!(f, "merged the result of task {task} from {thief}"),
                    TheftStep::Receipted => {
                        write!(f, "confirmed to {thief} that the result of task {task} is durable")
                    }
                    TheftStep::Forgotten => write!(f, "dropped task {task} of {victim}"),
                    TheftStep::Voided => write!(f, "took task {task} back from {thief}"),
                }
            }
            Fact::Absorbed(absorbed) => match &absorbed.1 {
                Some(name) => write!(f, "took over the work of {} from {name}", absorbed.0),
                None => write!(f, "took over the work of {} from its initial state", absorbed.0),
            },
            Fact::Claim(claim) => describe_claim(claim, f),
            Fact::LifeStarted { process, life, boot } => {
                let how = match boot {
                    Boot::Fresh => "for the first time",
                    Boot::Restarted => "with its old storage",
                    Boot::Replaced => "with an empty storage",
                };
                write!(f, "started {life} of {process} {how}")
            }
            Fact::Begun => f.write_str("started the application"),
            Fact::Injecting { no, fault } => write!(f, "injected {no}: {}", FaultText(fault)),
            Fact::Ineffective { no, reason } => write!(f, "saw no effect of {no}: {reason}"),
            Fact::Failed { process, life, storage, by } => {
                write!(f, "ended {life} of {process}{} ({})", storage_clause(*storage), CauseText(*by))
            }
            Fact::Detected { process, life } => write!(f, "detected the failure of {life} of {process}"),
            Fact::Joined(cluster) => write!(f, "saw {cluster} join"),
            Fact::Left(cluster) => write!(f, "let {cluster} leave and released its storage"),
            Fact::Completed => f.write_str("saw all ranks finished and no messages in transit"),
            Fact::Changed(change) => match &**change {
                Change::Link { from, to, properties } => {
                    write!(f, "was asked to set the latency from {from} to {to} to {}", properties.latency)
                }
                Change::Fault(planned) => {
                    write!(f, "was asked to add {}: {}", planned.no, FaultText(&planned.fault))
                }
                Change::Pause(true) => f.write_str("was asked to pause the federation"),
                Change::Pause(false) => f.write_str("was asked to resume the federation"),
            },
        }
    }
}

fn describe_claim(claim: &Claim, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let kind = |forced| if forced { "forced" } else { "unforced" };
    match claim {
        Claim::CheckpointRequested { position, attempt, forced } => {
            write!(f, "requested {} checkpoint {position}, {attempt}", kind(*forced))
        }
        Claim::Committed { position, forced, frozen, .. } => {
            write!(f, "committed {} checkpoint {position} after a freeze of {frozen}", kind(*forced))
        }
        Claim::Aborted { position, attempt } => write!(f, "discarded checkpoint {position}, {attempt}"),
        Claim::RecoveryStarted { lives, round } => write!(f, "entered recovery round {lives}.{round}"),
        Claim::RolledBack { to, checkpoint, cause, .. } => {
            write!(f, "rolled back to checkpoint {checkpoint} as {to}, because ")?;
            match cause {
                Cause::Failure => f.write_str("a process of its cluster failed"),
                Cause::Alert { from, position } => write!(f, "{from} rolled back to {position}"),
            }
        }
        Claim::Alerted { from, position } => write!(f, "learned that {from} rolled back to {position}"),
        Claim::Resent { id } => write!(f, "re-sent {id}"),
        Claim::Forcing { id } => write!(f, "holds {id} until the checkpoint that it forces"),
        Claim::Collected { round, below, kept, log } => {
            write!(
                f,
                "collected checkpoints below {below} (round {round}; {kept} kept, {log} log entries removed)"
            )
        }
        Claim::NotRepeated { id, recorded, repeated } => {
            write!(f, "found {id} re-executed in phase {repeated} instead of {recorded}")
        }
        Claim::Orphaned { id, phase } => {
            write!(f, "has the orphan {id} of phase {phase}")
        }
        Claim::Released { cluster } => {
            write!(f, "found that no recovery needs {cluster}, and lets it leave")
        }
        Claim::Spilled { messages, bytes, left } => {
            write!(
                f,
                "moved {messages} logged messages of {bytes} bytes to its storage; {left} bytes remain in memory"
            )
        }
        Claim::RecoveryJoined { partition, epoch, slot } => {
            write!(
                f,
                "joined recovery {} with the partition of {partition}, based on checkpoint {slot}",
                epoch.0
            )
        }
        Claim::Drained { from, to, epoch } => {
            write!(
                f,
                "has for {to} everything that {from} had sent before recovery {}, except what was lost",
                epoch.0
            )
        }
        Claim::Protected => f.write_str("is protected again"),
        Claim::Unrecoverable { cluster, missing } => {
            write!(f, "found no checkpoint of {cluster} that could be restored")?;
            for (name, asked) in missing.iter() {
                write!(f, "; missing {name}, asked")?;
                asked.iter().try_for_each(|process| write!(f, " {process}"))?;
            }
            Ok(())
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

struct FaultText<'a>(&'a Fault);

impl Display for FaultText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Crash { process, storage, returns } => {
                write!(f, "crash {process}{}{}", storage_clause(*storage), for_good(*returns))
            }
            Fault::Pause { process, span } => write!(f, "pause {process} for {span}"),
            Fault::LoseCluster { cluster, storage, returns } => {
                write!(f, "lose {cluster}{}{}", storage_clause(*storage), for_good(*returns))
            }
            Fault::Link { from, to, properties, span } => {
                match properties {
                    Some(it) => write!(f, "change the link {from} to {to} to a latency of {}", it.latency)?,
                    None => write!(f, "restore the link {from} to {to}")?,
                }
                span.map_or(Ok(()), |span| write!(f, " for {span}"))
            }
            Fault::Partition { from, to, both, span } => {
                let ways = if *both { " both ways" } else { "" };
                write!(f, "cut {from} from {to}{ways} for {span}")
            }
            Fault::Storage { process, how, span } => {
                match how {
                    StorageFault::Slow(by) => write!(f, "slow down the storage of {process} by {by}")?,
                    StorageFault::Full => write!(f, "fill the storage of {process}")?,
                    StorageFault::Corrupt => write!(f, "corrupt the storage of {process}")?,
                }
                span.map_or(Ok(()), |span| write!(f, " for {span}"))
            }
        }
    }
}

fn for_good(returns: bool) -> &'static str {
    if returns { "" } else { " for good" }
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
    use faultline_core::{Incarnation, Position, ProcessId};

    #[test]
    fn facts_read_as_sentences() {
        let id = MessageId {
            from: ProcessId(1),
            to: ProcessId(2),
            incarnation: Incarnation::default(),
            number: 3,
        };
        assert_eq!(describe(&Fact::Sent { id, bytes: 8 }).to_string(), "sent p1->p2 #3");
        let claim = Claim::RolledBack {
            to: Position::new(1, 2),
            checkpoint: Position::new(0, 2),
            cause: Cause::Alert { from: faultline_core::ClusterId(1), position: Position::new(1, 3) },
            vectors: Default::default(),
        };
        assert_eq!(
            describe(&Fact::Claim(Box::new(claim))).to_string(),
            "rolled back to checkpoint 0.2 as 1.2, because c1 rolled back to 1.3"
        );
        let fault = Fault::Crash { process: ProcessId(4), storage: StorageFate::Lost, returns: true };
        assert_eq!(describe_fault(&fault).to_string(), "crash p4 with its storage");
        let resent = Fact::Claim(Box::new(Claim::Resent { id }));
        assert_eq!(message_of(&resent), Some(id));
    }
}
