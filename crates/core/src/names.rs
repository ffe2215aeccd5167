//! The names of processes, clusters, groups, tasks, messages, and parts of checkpoints. All names that users see come
//! from here. Names for sentences are longer than those for lists and tables.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::id::{CheckNo, ClusterId, GroupId, HistoryNo, Position, ProbeNo, ProcessId, TaskId, WatchNo};
use crate::image::ImageName;
use crate::membership::Scope;
use crate::message::MessageId;

/// The names of a run. A process or cluster without a name is identified by its number, as in `p3` or `c1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunNames {
    /// The names of processes, indexed by process.
    pub processes: Vec<String>,
    /// The names of clusters, indexed by cluster.
    pub clusters: Vec<String>,
    /// The scope of the groups that roll back together; `None` if unknown.
    pub scope: Option<Scope>,
    /// Short names of tasks, such as `t1`.
    pub tasks: BTreeMap<TaskId, String>,
    /// Short names of messages, such as `m1`.
    pub messages: BTreeMap<MessageId, String>,
    /// The names of probes, indexed by probe.
    pub probes: Vec<String>,
    /// The names of watches, indexed by watch.
    pub watches: Vec<String>,
    /// Whether the nodes run a user's own system.
    pub is_system: bool,
    /// What checks find, indexed by check.
    pub checks: Vec<String>,
    /// The names of the histories of clients, indexed by history.
    pub histories: Vec<String>,
}

impl RunNames {
    /// Returns the display name of `process`.
    pub fn process(&self, process: ProcessId) -> String {
        match self.processes.get(process.index()) {
            Some(name) => name.clone(),
            None if process == ProcessId::SUPERVISOR => "supervisor".to_owned(),
            None => process.to_string(),
        }
    }

    /// Returns the display name of `process` for a sentence: `the supervisor` instead of `supervisor`.
    pub fn process_in_sentence(&self, process: ProcessId) -> String {
        match process {
            ProcessId::SUPERVISOR => "the supervisor".to_owned(),
            process => self.process(process),
        }
    }

    /// Returns the display name of `cluster`. Processes without a cluster belong to `outside`.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        match self.clusters.get(cluster.index()) {
            Some(name) => name.clone(),
            None if cluster == ClusterId::OUTSIDE => "outside".to_owned(),
            None => cluster.to_string(),
        }
    }

    /// Returns the display name of `group`.
    pub fn group(&self, group: GroupId) -> String {
        self.group_of(self.scope.unwrap_or(Scope::Cluster), group)
    }

    /// Returns the display name of `group` under a protocol with this scope.
    pub fn group_of(&self, scope: Scope, group: GroupId) -> String {
        match scope {
            Scope::Process => self.process(ProcessId(group.0.into())),
            Scope::Cluster => self.cluster(ClusterId(group.0)),
            Scope::Federation => "the federation".to_owned(),
        }
    }

    /// Returns the display name of a message: `m1`, or its sender, receiver and number, followed by the incarnation
    /// unless that is 0.
    pub fn message(&self, id: MessageId) -> String {
        if let Some(short) = self.messages.get(&id) {
            return short.clone();
        }
        let name = format!("{}->{} #{}", self.process(id.from), self.process(id.to), id.number);
        match id.incarnation.0 {
            0 => name,
            incarnation => format!("{name} (incarnation {incarnation})"),
        }
    }

    /// Returns the display name of a message for a sentence: `message 3 from lyon-0 to lyon-1`, followed by the
    /// incarnation unless that is 0.
    pub fn message_in_sentence(&self, id: MessageId) -> String {
        let (from, to) = (self.process_in_sentence(id.from), self.process_in_sentence(id.to));
        let name = format!("message {} from {from} to {to}", id.number);
        match id.incarnation.0 {
            0 => name,
            incarnation => format!("{name} (of incarnation {incarnation})"),
        }
    }

    /// Returns the display name of a message together with its receiver: `m1 to lyon-1`. The name of a
    /// message without a short name already contains the receiver.
    pub fn message_to(&self, id: MessageId) -> String {
        match self.messages.get(&id) {
            Some(short) => format!("{short} to {}", self.process(id.to)),
            None => self.message(id),
        }
    }

    /// Returns the display name of a message together with its sender: `m1 from lyon-0`. The name of a
    /// message without a short name already contains the sender.
    pub fn message_from(&self, id: MessageId) -> String {
        match self.messages.get(&id) {
            Some(short) => format!("{short} from {}", self.process(id.from)),
            None => self.message(id),
        }
    }

    /// Returns the display name of a task: `t1`, or `task` and its identity.
    pub fn task(&self, task: TaskId) -> String {
        self.tasks.get(&task).cloned().unwrap_or_else(|| format!("task {task}"))
    }

    /// Returns the display name of a probe.
    pub fn probe(&self, probe: ProbeNo) -> String {
        self.probes.get(probe.index()).cloned().unwrap_or_else(|| probe.0.to_string())
    }

    /// Returns the display name of a watch.
    pub fn watch(&self, watch: WatchNo) -> String {
        self.watches.get(watch.index()).cloned().unwrap_or_else(|| watch.0.to_string())
    }

    /// Returns what a check finds if it succeeds.
    pub fn check(&self, check: CheckNo) -> String {
        self.checks.get(check.index()).cloned().unwrap_or_else(|| check.0.to_string())
    }

    /// Returns the display name of a history of clients.
    pub fn history(&self, history: HistoryNo) -> String {
        self.histories.get(history.index()).cloned().unwrap_or_else(|| history.0.to_string())
    }

    /// Returns the display name of a part of a checkpoint: its owner, its position, and the attempt if it was not the
    /// first.
    pub fn part(&self, name: ImageName) -> String {
        let part = format!("{}@{}", self.process(name.owner), name.position());
        match name.attempt.0 {
            0 | 1 => part,
            attempt => format!("{part} (attempt {attempt})"),
        }
    }

    /// Returns the display name of a part of a checkpoint for a sentence: `lyon-0's part of checkpoint 3`. The attempt
    /// is omitted, because a sentence about a checkpoint concerns only one attempt at it.
    pub fn part_in_sentence(&self, name: ImageName) -> String {
        format!("{}'s part of checkpoint {}", self.process(name.owner), checkpoint(name.position()))
    }

    /// Returns the display name of an image of a process that runs no application, such as an event logger, for a
    /// sentence: `the log of logger since checkpoint 3`.
    pub fn log_in_sentence(&self, name: ImageName) -> String {
        format!("the log of {} since checkpoint {}", self.process(name.owner), checkpoint(name.position()))
    }
}

/// Formats a checkpoint: its number, and the incarnation if that is not the first.
pub fn checkpoint(position: Position) -> String {
    match position.incarnation.0 {
        0 => position.sn.0.to_string(),
        incarnation => format!("{} (incarnation {incarnation})", position.sn.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Attempt, Incarnation, Sn};
    use alloc::vec;

    #[test]
    fn a_group_is_named_by_what_rolls_back_together() {
        let names = |scope| RunNames {
            processes: vec!["lyon-0".into(), "lyon-1".into()],
            clusters: vec!["lyon".into(), "nancy".into()],
            scope,
            ..RunNames::default()
        };
        assert_eq!(names(Some(Scope::Process)).group(GroupId(1)), "lyon-1");
        assert_eq!(names(Some(Scope::Process)).group(GroupId(7)), "p7");
        assert_eq!(names(Some(Scope::Cluster)).group(GroupId(1)), "nancy");
        assert_eq!(names(Some(Scope::Federation)).group(GroupId(0)), "the federation");
        assert_eq!(RunNames::default().group(GroupId(1)), "c1");
    }

    #[test]
    fn numbers_replace_missing_names() {
        let id = |incarnation| MessageId {
            from: ProcessId(0),
            to: ProcessId(2),
            incarnation: Incarnation(incarnation),
            number: 3,
        };
        let part = |attempt| ImageName {
            owner: ProcessId(1),
            incarnation: Incarnation(1),
            sn: Sn(2),
            attempt: Attempt(attempt),
        };
        for it in [id(0), id(2)] {
            assert_eq!(RunNames::default().message(it), it.to_string());
        }
        for it in [part(1), part(2)] {
            assert_eq!(RunNames::default().part(it), it.to_string());
        }
    }

    #[test]
    fn names_for_sentences_are_written_out() {
        let names = RunNames { processes: vec!["lyon-0".into()], ..RunNames::default() };
        assert_eq!(names.process_in_sentence(ProcessId::SUPERVISOR), "the supervisor");
        let message = |incarnation| {
            let (from, to) = (ProcessId(0), ProcessId(2));
            let incarnation = Incarnation(incarnation);
            names.message_in_sentence(MessageId { from, to, incarnation, number: 3 })
        };
        assert_eq!(message(0), "message 3 from lyon-0 to p2");
        assert_eq!(message(2), "message 3 from lyon-0 to p2 (of incarnation 2)");
        let part = |incarnation| ImageName {
            owner: ProcessId(0),
            incarnation: Incarnation(incarnation),
            sn: Sn(4),
            attempt: Attempt(1),
        };
        assert_eq!(names.part_in_sentence(part(0)), "lyon-0's part of checkpoint 4");
        assert_eq!(names.part_in_sentence(part(2)), "lyon-0's part of checkpoint 4 (incarnation 2)");
        assert_eq!(names.log_in_sentence(part(0)), "the log of lyon-0 since checkpoint 4");
    }
}
