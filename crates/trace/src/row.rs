//! A fact as a row of a table, for other programs. Processes and clusters appear under their names in the
//! federation, and column names include units. `docs/bundle.md` lists the columns.

use faultline_core::fault::Change;
use faultline_core::{
    Attempt, Boot, Cause, Claim, ClusterId, Fact, FactKind, GroupId, ImageName, Incarnation, Life, MessageId,
    PartitionClaim, PhaseClaim, Position, ProcessId, RunNames, Scope, Sn, StorageFate, Time, Vectors,
};
use serde::Serialize;

use crate::describe::{describe, message_of};
use crate::manifest::Manifest;
use crate::memory::Record;

/// The columns of a table of facts, in order: the fields of [`Row`].
pub const COLUMNS: [&str; 38] = [
    "process",
    "cluster",
    "life",
    "number",
    "time_ns",
    "fact",
    "sender",
    "sender_cluster",
    "receiver",
    "receiver_cluster",
    "message_incarnation",
    "message_number",
    "message_bytes",
    "message_phase",
    "piggybacked_incarnation",
    "piggybacked_sn",
    "checkpoint_of",
    "checkpoint_incarnation",
    "checkpoint_sn",
    "checkpoint_attempt",
    "forced",
    "frozen_ns",
    "state_bytes",
    "dependencies",
    "incarnation",
    "recovery_lives",
    "round",
    "kept",
    "log_entries",
    "cause",
    "cause_cluster",
    "about_process",
    "about_life",
    "begins",
    "storage",
    "fault",
    "digest",
    "text",
];

/// One fact. Columns that do not apply to its kind are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    process: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    life: u32,
    number: u64,
    time_ns: i64,
    fact: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender_cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver_cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_incarnation: Option<Incarnation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_number: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_phase: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    piggybacked_incarnation: Option<Incarnation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    piggybacked_sn: Option<Sn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_incarnation: Option<Incarnation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_sn: Option<Sn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_attempt: Option<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frozen_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<Incarnation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery_lives: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause_cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    about_process: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    about_life: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    begins: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    text: String,
}

impl Row {
    /// Creates the row for a fact. `began` is the time at which the application began.
    pub(crate) fn new(record: &Record, names: &Naming<'_>, began: Time) -> Row {
        let Record { process, life, number, at, fact } = record;
        let mut row = Row {
            process: names.process(*process),
            cluster: names.cluster_of(*process),
            life: life.0,
            number: number.0,
            time_ns: at.0 as i64 - began.0 as i64,
            fact: kind_name(fact.kind()),
            text: format!("{:#}", describe(*process, fact, &names.names)),
            ..Row::default()
        };
        row.about_message(fact, names);
        row.about_the_rest(fact, names);
        row
    }

    fn about_message(&mut self, fact: &Fact, names: &Naming<'_>) {
        let Some(MessageId { from, to, incarnation, number }) = message_of(fact) else { return };
        self.sender = Some(names.process(from));
        self.sender_cluster = names.cluster_of(from);
        self.receiver = Some(names.process(to));
        self.receiver_cluster = names.cluster_of(to);
        self.message_incarnation = Some(incarnation);
        self.message_number = Some(number);
    }

    fn about_the_rest(&mut self, fact: &Fact, names: &Naming<'_>) {
        match fact {
            Fact::Sent { bytes, .. } => self.message_bytes = Some(*bytes),
            Fact::Transmitted { position, .. } => {
                self.piggybacked_incarnation = Some(position.incarnation);
                self.piggybacked_sn = Some(position.sn);
            }
            Fact::Saved(saved) => {
                self.image(&saved.0, names);
                self.state_bytes = Some(saved.2);
            }
            Fact::Durable(image) | Fact::Removed(image) => self.image(image, names),
            Fact::Restored(restored) => {
                if let Some(image) = &restored.0 {
                    self.image(image, names);
                }
                self.incarnation = Some(restored.1);
            }
            Fact::Absorbed(absorbed) => {
                if let Some(image) = &absorbed.1 {
                    self.image(image, names);
                }
                self.incarnation = Some(absorbed.3).filter(|it| *it > Incarnation::default());
            }
            Fact::Rerun { epoch, .. } | Fact::Ceded { epoch, .. } => self.incarnation = Some(*epoch),
            Fact::CheckpointMessage { position, .. } => {
                self.checkpoint_incarnation = Some(position.incarnation);
                self.checkpoint_sn = Some(position.sn);
            }
            Fact::Finished(finished) => self.digest = Some(finished.1.to_string()),
            Fact::Claim(claim) => self.claim(claim, names),
            Fact::LifeStarted { process, life, boot } => {
                self.about(*process, *life, names);
                self.begins = Some(match boot {
                    Boot::Fresh => "fresh",
                    Boot::Restarted => "restarted",
                    Boot::Replaced => "replaced",
                });
            }
            Fact::Failed { process, life, storage, by } => {
                self.about(*process, *life, names);
                self.fault = by.fault().map(|no| no.0);
                self.storage = Some(match storage {
                    StorageFate::Kept => "kept",
                    StorageFate::Lost => "lost",
                });
            }
            Fact::Detected { process, life } | Fact::Resumed { process, life } => {
                self.about(*process, *life, names);
            }
            Fact::Injecting { no, .. } | Fact::Ineffective { no, .. } => self.fault = Some(no.0),
            Fact::Changed(change) => {
                if let Change::Fault(planned) = &**change {
                    self.fault = Some(planned.no.0);
                }
            }
            Fact::Suppressed(_)
            | Fact::Delivered(_)
            | Fact::Consumed(_)
            | Fact::DroppedStale(_)
            | Fact::Held
            | Fact::Computed { .. }
            | Fact::Ran { .. }
            | Fact::Planned(_)
            | Fact::Theft { .. }
            | Fact::Begun
            | Fact::Joined(_)
            | Fact::Leaving(_)
            | Fact::Left(_)
            | Fact::Completed => {}
        }
    }

    fn claim(&mut self, claim: &Claim, names: &Naming<'_>) {
        match claim {
            Claim::CheckpointRequested { position, attempt, forced } => {
                self.checkpoint(*position);
                self.checkpoint_attempt = Some(*attempt);
                self.forced = Some(*forced);
            }
            Claim::Committed { position, attempt, forced, frozen, vectors } => {
                self.checkpoint(*position);
                self.checkpoint_attempt = Some(*attempt);
                self.forced = Some(*forced);
                self.frozen_ns = Some(frozen.0);
                self.dependencies = Some(names.dependencies(vectors));
            }
            Claim::Aborted { position, attempt } => {
                self.checkpoint(*position);
                self.checkpoint_attempt = Some(*attempt);
            }
            Claim::RolledBack { to, checkpoint, cause, vectors } => {
                self.checkpoint(*checkpoint);
                self.incarnation = Some(to.incarnation);
                self.dependencies = Some(names.dependencies(vectors));
                match cause {
                    Cause::Failure => self.cause = Some("failure"),
                    Cause::Alert { from, .. } => {
                        self.cause = Some("alert");
                        self.cause_cluster = Some(names.group(*from));
                    }
                }
            }
            Claim::Alerted { from, position } => {
                self.cause_cluster = Some(names.group(*from));
                self.incarnation = Some(position.incarnation);
                self.checkpoint_sn = Some(position.sn);
            }
            Claim::Phase(PhaseClaim::Orphaned { phase, .. }) => self.message_phase = Some(*phase),
            Claim::Phase(PhaseClaim::NotRepeated { repeated, .. }) => self.message_phase = Some(*repeated),
            Claim::RecoveryStarted { lives, round } => {
                self.recovery_lives = Some(*lives);
                self.round = Some(*round);
            }
            Claim::Collected { round, below, kept, log } => {
                self.round = Some(*round);
                self.checkpoint_sn = Some(*below);
                self.kept = Some(*kept);
                self.log_entries = Some(*log);
            }
            Claim::Partition(PartitionClaim::RecoveryJoined { epoch, slot, .. }) => {
                self.incarnation = Some(*epoch);
                self.checkpoint_sn = Some(slot.sn);
                self.checkpoint_incarnation = Some(slot.incarnation);
            }
            Claim::Partition(PartitionClaim::Drained { epoch, .. }) => self.incarnation = Some(*epoch),
            Claim::Resent { .. }
            | Claim::Forcing { .. }
            | Claim::Spilled { .. }
            | Claim::Protected
            | Claim::Released { .. }
            | Claim::Unrecoverable { .. }
            | Claim::Broke(_) => {}
        }
    }

    /// Fills in the columns that describe a checkpoint of this process.
    fn checkpoint(&mut self, position: Position) {
        self.checkpoint_of = Some(self.process.clone());
        self.checkpoint_incarnation = Some(position.incarnation);
        self.checkpoint_sn = Some(position.sn);
    }

    /// Fills in the columns that describe a part of a checkpoint. The part may belong to another process.
    fn image(&mut self, image: &ImageName, names: &Naming<'_>) {
        self.checkpoint_of = Some(names.process(image.owner));
        self.checkpoint_incarnation = Some(image.incarnation);
        self.checkpoint_sn = Some(image.sn);
        self.checkpoint_attempt = Some(image.attempt);
    }

    fn about(&mut self, process: ProcessId, life: Life, names: &Naming<'_>) {
        self.about_process = Some(names.process(process));
        self.about_life = Some(life.0);
    }
}

/// Names of the processes, clusters and groups of a run.
pub(crate) struct Naming<'a> {
    manifest: &'a Manifest,
    names: RunNames,
}

impl Naming<'_> {
    /// Takes the names of a run from its manifest.
    pub(crate) fn new(manifest: &Manifest) -> Naming<'_> {
        Naming { manifest, names: manifest.names() }
    }

    fn process(&self, process: ProcessId) -> String {
        self.names.process(process)
    }

    fn cluster(&self, cluster: ClusterId) -> Option<String> {
        self.names.clusters.get(cluster.index()).cloned()
    }

    /// Returns the name of a group. If the whole federation is one group, returns the name of the cluster
    /// with this number.
    fn group(&self, group: GroupId) -> String {
        let scope = match self.manifest.promises.scope {
            Scope::Process => Scope::Process,
            Scope::Cluster | Scope::Federation => Scope::Cluster,
        };
        self.names.group_of(scope, group)
    }

    /// Returns the name of a process's cluster; `None` outside all clusters.
    fn cluster_of(&self, process: ProcessId) -> Option<String> {
        self.cluster(self.manifest.processes.get(process.index())?.cluster)
    }

    /// Formats the DDV, with the incarnation and sequence number for each group: `paris=0.3 rennes=1.2`.
    fn dependencies(&self, vectors: &Vectors) -> String {
        let groups = (0..).map(|number| self.group(GroupId(number))).zip(vectors.ddv.iter());
        let each = groups.map(|(it, at)| format!("{it}={}.{}", at.incarnation.0, at.sn.0));
        each.collect::<Vec<_>>().join(" ")
    }
}

/// Returns the name of a kind of fact, as written in triggers.
pub(crate) fn kind_name(kind: FactKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a kind of fact serializes to a string, not {other:?}"),
    }
}
