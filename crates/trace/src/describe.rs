//! Describes facts in words, for people. The wording of facts is defined only in this file and in
//! [`faultline_core::claim`]: tables, listings and transcripts select facts, and use these sentences.

use std::fmt::{self, Display};

use faultline_core::fact::Flipped;
use faultline_core::names::checkpoint;
use faultline_core::operation::{Completion, FINAL};
use faultline_core::{
    Boot, ClusterId, EndedBy, Ending, Fact, MessageId, Observation, ProcessId, RunNames, StorageFate,
    TheftStep,
};

use crate::duration::lasted;
use crate::fault::{describe_change, describe_fault};
use crate::printable::printable;

/// A fact as a sentence in the present tense, with the names of a run. Its text omits the subject if that is the
/// process that reported the fact: `sends paris-0->lyon-1 #2`.
///
/// The alternate form (`{:#}`) adds details that a reader of the whole run rarely needs, such as the number of an
/// attempt. It distinguishes facts that the plain form does not.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a> {
    reporter: ProcessId,
    fact: &'a Fact,
    names: &'a RunNames,
}

/// The subject of a fact's sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The process that reported the fact.
    Reporter,
    /// Another process.
    Process(ProcessId),
    /// A cluster.
    Cluster(ClusterId),
    /// The predicate contains the subject.
    Included,
}

/// Returns the sentence that describes a fact reported by `reporter`.
pub fn describe<'a>(reporter: ProcessId, fact: &'a Fact, names: &'a RunNames) -> Sentence<'a> {
    Sentence { reporter, fact, names }
}

/// Returns the message to which a fact refers, if any.
pub fn message_of(fact: &Fact) -> Option<MessageId> {
    match fact {
        Fact::Sent { id, .. }
        | Fact::Transmitted { id, .. }
        | Fact::Suppressed(id)
        | Fact::Delivered(id)
        | Fact::Consumed(id)
        | Fact::DroppedStale(id)
        | Fact::Flipped(Flipped::Message(id)) => Some(*id),
        Fact::Claim(claim) => claim.message(),
        _ => None,
    }
}

impl<'a> Sentence<'a> {
    /// Returns the subject of the sentence.
    pub fn subject(self) -> Subject {
        match self.fact {
            Fact::LifeStarted { process, .. }
            | Fact::Failed { process, .. }
            | Fact::Resumed { process, .. } => Subject::Process(*process),
            Fact::Joined(cluster) | Fact::Leaving(cluster) | Fact::Left(cluster) => {
                Subject::Cluster(*cluster)
            }
            Fact::Begun
            | Fact::Injecting { .. }
            | Fact::Ineffective { .. }
            | Fact::Detected { .. }
            | Fact::Completed
            | Fact::Changed(_) => Subject::Included,
            _ => Subject::Reporter,
        }
    }

    /// Returns the sentence without its subject.
    pub fn predicate(self) -> Predicate<'a> {
        Predicate(self)
    }
}

impl Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject() {
            Subject::Reporter | Subject::Included => {}
            Subject::Process(process) => write!(f, "{} ", self.names.process(process))?,
            Subject::Cluster(cluster) => write!(f, "{} ", self.names.cluster(cluster))?,
        }
        self.predicate().fmt(f)
    }
}

/// A sentence without its subject.
#[derive(Clone, Copy, Debug)]
pub struct Predicate<'a>(Sentence<'a>);

impl Display for Predicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sentence { reporter, fact, names } = self.0;
        let is_detailed = f.alternate();
        let process = |it| names.process(it);
        let message = |it| names.message(it);
        let task_name = |it| names.task(it);
        match fact {
            Fact::Sent { id, .. } => write!(f, "sends {}", names.message_to(*id)),
            Fact::Transmitted { id, position } => {
                write!(f, "transmits {} with position {position}", message(*id))
            }
            Fact::Suppressed(id) => write!(f, "suppresses {}: its receiver already has it", message(*id)),
            Fact::Delivered(id) => write!(f, "delivers {}", names.message_from(*id)),
            Fact::Consumed(id) => write!(f, "consumes {}", message(*id)),
            Fact::DroppedStale(id) => write!(f, "drops {}: a rollback undid its send", message(*id)),
            Fact::Saved(saved) => write!(f, "saves {} to its storage", names.part(saved.0)),
            Fact::Durable(name) => write!(f, "holds {} on stable storage", names.part(*name)),
            Fact::Removed(name) => write!(f, "removes {} from its storage", names.part(*name)),
            Fact::Flipped(Flipped::Message(id)) => {
                write!(f, "delivers {} with a flipped bit", message(*id))
            }
            Fact::Flipped(Flipped::Copy { name, is_checked }) => {
                write!(f, "stores {} with a flipped bit", names.part(*name))?;
                if *is_checked { f.write_str(", which its digest reveals") } else { Ok(()) }
            }
            Fact::Flipped(Flipped::State) => f.write_str("continues with a flipped bit in its state"),
            Fact::Damaged(name) => write!(f, "finds {} damaged or missing in its storage", names.part(*name)),
            Fact::Held => f.write_str("stops for a recovery"),
            Fact::Restored(restored) => {
                match &restored.0 {
                    Some(name) => {
                        write!(f, "restores its part of checkpoint {}", checkpoint(name.position()))?;
                        if is_detailed {
                            write!(f, " ({})", name.attempt)?;
                        }
                    }
                    None => f.write_str("restores its initial state")?,
                }
                write!(f, " as {}", restored.1)
            }
            Fact::Finished(finished) => {
                f.write_str("finishes")?;
                if is_detailed { write!(f, " with the result {}", finished.1) } else { Ok(()) }
            }
            Fact::Computed { .. } => f.write_str("ends a computation"),
            Fact::Ran { task, spawned: 0, .. } => write!(f, "runs {}", task_name(*task)),
            Fact::Ran { task, spawned, .. } => {
                write!(f, "runs {}, which spawns {spawned}", task_name(*task))
            }
            Fact::Planned(planned) => write!(
                f,
                "executes {} of the partition of {}, which reads values of {} {}",
                task_name(planned.task),
                process(planned.partition),
                planned.sources.len(),
                if planned.sources.len() == 1 { "task" } else { "tasks" }
            ),
            Fact::Rerun { task, by, epoch, .. } => {
                write!(f, "re-executes {}, whose values {} lost", task_name(*task), process(*by))?;
                if is_detailed { write!(f, " (recovery {})", epoch.0) } else { Ok(()) }
            }
            Fact::CheckpointMessage { position, from, to } => {
                let (position, from, to) = (checkpoint(*position), process(*from), process(*to));
                write!(f, "sends a message of checkpoint {position} from {from} to {to}")
            }
            Fact::Theft { theft, task, step } => {
                let (victim, thief, task) = (process(theft.victim), process(theft.thief), task_name(*task));
                match step {
                    TheftStep::Lent => write!(f, "lends {task} to {thief}"),
                    TheftStep::Shipped => write!(f, "sends {task} to {thief}"),
                    TheftStep::Taken => write!(f, "takes {task} from {victim}"),
                    TheftStep::Done => write!(f, "completes {task} for {victim}"),
                    TheftStep::Returned => write!(f, "sends the result of {task} to {victim}"),
                    TheftStep::Merged => write!(f, "merges the result of {task} from {thief}"),
                    TheftStep::Receipted => write!(f, "acknowledges the result of {task} to {thief}"),
                    TheftStep::Forgotten => write!(f, "drops {task} of {victim}"),
                    TheftStep::Voided => write!(f, "takes {task} back from {thief}"),
                }
            }
            Fact::Absorbed(absorbed) => {
                match absorbed.0 {
                    of if of == reporter => f.write_str("takes over its own partition from ")?,
                    of => write!(f, "takes over the work of {} from ", process(of))?,
                }
                match &absorbed.1 {
                    Some(name) => write!(f, "checkpoint {}", checkpoint(name.position())),
                    None => f.write_str("its initial state"),
                }
            }
            Fact::Ceded { partition, epoch } => {
                write!(f, "cedes partition {} to another process", process(*partition))?;
                if is_detailed { write!(f, " (recovery {})", epoch.0) } else { Ok(()) }
            }
            Fact::Claim(claim) => claim.describe(names, f),
            Fact::Observed(observation) => describe_observation(observation, names, f),
            Fact::LifeStarted { life, boot, .. } => {
                let verb = if life.0 > 1 { "restarts" } else { "starts" };
                write!(f, "{verb} ({life})")?;
                match boot {
                    Boot::Fresh if is_detailed && life.0 > 1 => f.write_str(" before its cluster joined"),
                    Boot::Restarted if is_detailed => f.write_str(" with its old storage"),
                    Boot::Replaced if is_detailed => f.write_str(" with an empty storage"),
                    Boot::Fresh | Boot::Restarted | Boot::Replaced => Ok(()),
                }
            }
            Fact::Begun => f.write_str("the application starts"),
            Fact::Injecting { no, fault } => write!(f, "FAULT {}: {}", no.0, describe_fault(fault, names)),
            Fact::Ineffective { no, reason } => write!(f, "{no} has no effect: {reason}"),
            Fact::Failed { life, storage, by, .. } => {
                f.write_str(match storage {
                    StorageFate::Kept => "FAILS",
                    StorageFate::Lost => "FAILS, and its storage is lost",
                })?;
                if is_detailed { write!(f, " ({life}; {})", CauseText(*by)) } else { Ok(()) }
            }
            Fact::Detected { process: of, life } => {
                write!(f, "the failure of {} is announced", process(*of))?;
                if is_detailed { write!(f, " ({life})") } else { Ok(()) }
            }
            Fact::Resumed { life, .. } => {
                f.write_str("resumes after a pause")?;
                if is_detailed { write!(f, " ({life})") } else { Ok(()) }
            }
            Fact::Joined(_) => f.write_str("joins"),
            Fact::Leaving(_) => f.write_str("is about to leave"),
            Fact::Left(_) => f.write_str("leaves and releases its storage"),
            Fact::Completed if names.is_system => f.write_str("the run of the system ends"),
            Fact::Completed => f.write_str("every rank has finished, and no message is in transit"),
            Fact::Changed(change) => f.write_str(&describe_change(change, names)),
        }
    }
}

/// Writes the predicate of a sentence whose subject is the process.
fn describe_observation(
    observation: &Observation,
    names: &RunNames,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let outcome = |ending: &Ending| match ending {
        it if it.is_success() => "succeeds",
        it if it.is_unknown() => "cannot tell",
        _ => "fails",
    };
    match observation {
        Observation::Ready => f.write_str("is ready"),
        Observation::Logged { watch, line, .. } => {
            write!(f, "logs {}: {}", names.watch(*watch), printable(line))
        }
        Observation::LeftOut { watch } => {
            write!(f, "logs {} too often, or a very long line: lines may be missing", names.watch(*watch))
        }
        Observation::Probed { probe, sample, latency, ending, said } => {
            let (probe, time) = (names.probe(*probe), lasted(*latency));
            write!(f, "probe {probe} {} after {time}", outcome(ending))?;
            if f.alternate() || !ending.is_success() {
                write!(f, ": {}{}", printable(&ending.to_string()), Said(said))?;
            }
            if f.alternate() { write!(f, " (sample {sample})") } else { Ok(()) }
        }
        Observation::Exited { ending, said } => {
            write!(f, "its command ends: {}{}", printable(&ending.to_string()), Said(said))
        }
        Observation::Stopped { ending, latency, killed, said } => {
            let (how, time) = (if *killed { "is killed" } else { "ends" }, lasted(*latency));
            let ending = printable(&ending.to_string());
            write!(f, "its command {how} {time} after it was told to end: {ending}{}", Said(said))
        }
        Observation::Checked { check, latency, ending, said } => {
            let (check, time) = (names.check(*check), lasted(*latency));
            let how = printable(&ending.to_string());
            write!(f, "check \"{check}\" {} after {time}: {how}{}", outcome(ending), Said(said))
        }
        Observation::Invoked { history, client, session, operation, call } => {
            write!(
                f,
                "client {client} of {} begins {}: {call}",
                names.history(*history),
                number(*operation)
            )?;
            if f.alternate() { write!(f, " (session {session})") } else { Ok(()) }
        }
        Observation::Concluded { history, operation, completion } => {
            let (history, number) = (names.history(*history), number(*operation));
            match completion {
                Completion::Ok(answer) => {
                    write!(f, "{number} of {history} is answered: {}", printable(&answer.to_string()))
                }
                Completion::Failed(why) => write!(f, "{number} of {history} has no effect{}", Said(why)),
                Completion::Unknown(why) => write!(f, "{number} of {history} has no result{}", Said(why)),
                Completion::Broken(why) => {
                    write!(f, "the client breaks its contract at {number} of {history}{}", Said(why))
                }
            }
        }
    }
}

/// Names an operation of a client.
fn number(operation: u64) -> String {
    match operation.checked_sub(FINAL) {
        Some(number) => format!("final operation {number}"),
        None => format!("operation {operation}"),
    }
}

/// What a command wrote last, if anything, after a colon.
struct Said<'a>(&'a str);

impl Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", printable(self.0)) }
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
            EndedBy::Moved => f.write_str("it moved to a spare node"),
            EndedBy::CommandExited => f.write_str("its command exited, and is started again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Cause, Claim, Fault, FaultNo, GroupId, Incarnation, Life, Position, Scope};

    const P1: ProcessId = ProcessId(1);

    /// Returns the plain and the detailed sentence.
    fn sentences(fact: &Fact, names: &RunNames) -> [String; 2] {
        let sentence = describe(P1, fact, names);
        [format!("{sentence}"), format!("{sentence:#}")]
    }

    fn id(incarnation: u32) -> MessageId {
        MessageId { from: ProcessId(0), to: ProcessId(2), incarnation: Incarnation(incarnation), number: 3 }
    }

    #[test]
    fn facts_read_as_sentences() {
        let names = RunNames::default();
        let plain = |fact: &Fact| describe(P1, fact, &names).to_string();
        assert_eq!(plain(&Fact::Sent { id: id(0), bytes: 8 }), "sends p0->p2 #3");
        let fault = Fault::kill(ProcessId(4), StorageFate::Lost);
        let injected = Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) };
        assert_eq!(plain(&injected), "FAULT 0: p4 is killed, and its storage is lost");
        let resent = Fact::Claim(Box::new(Claim::Resent { id: id(0) }));
        assert_eq!(message_of(&resent), Some(id(0)));
    }

    #[test]
    fn details_distinguish_what_the_plain_sentence_does_not() {
        let names = RunNames::default();
        let claim = Claim::RolledBack {
            to: Position::new(1, 2),
            checkpoint: Position::new(0, 2),
            cause: Cause::Alert { from: GroupId(1), position: Position::new(1, 3) },
            vectors: Default::default(),
        };
        let plain = "rolls back to checkpoint 2 as incarnation 1, because c1 rolled back";
        let detailed = format!("{plain} to 1.3");
        assert_eq!(sentences(&Fact::Claim(Box::new(claim)), &names), [plain.to_owned(), detailed]);
    }

    #[test]
    fn the_subject_is_omitted_only_if_it_is_the_process_that_reported_the_fact() {
        let names = RunNames { clusters: vec!["lyon".into()], ..RunNames::default() };
        let failed = Fact::Failed {
            process: ProcessId(4),
            life: Life(2),
            storage: StorageFate::Kept,
            by: EndedBy::Silence,
        };
        assert_eq!(sentences(&failed, &names), ["p4 FAILS", "p4 FAILS (life 2; no heartbeat)"]);
        assert_eq!(sentences(&Fact::Joined(ClusterId(0)), &names), ["lyon joins", "lyon joins"]);
        assert_eq!(describe(P1, &failed, &names).predicate().to_string(), "FAILS");
        let absorbed =
            |of| Fact::Absorbed(Box::new((ProcessId(of), None, Default::default(), Incarnation(0))));
        let own = "takes over its own partition from its initial state";
        assert_eq!(sentences(&absorbed(1), &names), [own, own]);
        let other = "takes over the work of p2 from its initial state";
        assert_eq!(sentences(&absorbed(2), &names), [other, other]);
    }

    #[test]
    fn sentences_contain_the_names_of_the_run() {
        let mut names = RunNames {
            processes: ["paris-0", "lyon-0", "lyon-1"].map(str::to_owned).to_vec(),
            clusters: ["paris", "lyon"].map(str::to_owned).to_vec(),
            scope: Some(Scope::Cluster),
            ..RunNames::default()
        };
        let plain = |fact: &Fact, names: &RunNames| describe(P1, fact, names).to_string();
        let delivered = Fact::Delivered(id(1));
        assert_eq!(plain(&delivered, &names), "delivers paris-0->lyon-1 #3 (incarnation 1)");
        names.messages.insert(id(1), "m1".to_owned());
        assert_eq!(plain(&delivered, &names), "delivers m1 from paris-0");
        assert_eq!(plain(&Fact::Sent { id: id(1), bytes: 8 }, &names), "sends m1 to lyon-1");
        let alerted = Claim::Alerted { from: GroupId(1), position: Position::new(1, 2) };
        let alerted = Fact::Claim(Box::new(alerted));
        assert_eq!(plain(&alerted, &names), "learns that lyon rolled back to 1.2");
        // If each process rolls back alone, a claim names a process.
        names.scope = Some(Scope::Process);
        assert_eq!(plain(&alerted, &names), "learns that lyon-0 rolled back to 1.2");
    }
}
