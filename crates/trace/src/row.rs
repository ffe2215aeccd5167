//! A fact as a row of a table, for other programs. Processes and clusters appear under their names in the
//! federation, and column names include units. `docs/bundle.md` lists the columns.

use faultline_core::fact::Flipped;
use faultline_core::fault::Change;
use faultline_core::{
    Attempt, Boot, Cause, Claim, ClusterId, EndedBy, Ending, Fact, FactKind, GroupId, ImageName, Incarnation,
    Life, MessageId, Observation, PartitionClaim, PhaseClaim, Position, ProcessId, RunNames, Scope, Sn,
    StorageFate, Target, Time, Vectors, Witness,
};
use serde::Serialize;
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::describe::{describe, message_of};
use crate::manifest::Manifest;
use crate::memory::Record;

/// Declares the fields of [`Row`] and, with the same names, the columns of a table.
macro_rules! columns {
    ($($name:ident: $type:ty,)*) => {
        /// The columns of a table of facts, in order: the fields of [`Row`].
        pub const COLUMNS: &[&str] = &[$(stringify!($name)),*];

        /// One fact. Columns that do not apply to its kind are empty.
        #[skip_serializing_none]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Row {
            $($name: $type,)*
        }
    };
}

columns! {
    process: String,
    cluster: Option<String>,
    life: u32,
    number: u64,
    time_ns: i64,
    fact: String,
    sender: Option<String>,
    sender_cluster: Option<String>,
    receiver: Option<String>,
    receiver_cluster: Option<String>,
    message_incarnation: Option<Incarnation>,
    message_number: Option<u32>,
    message_bytes: Option<u32>,
    message_phase: Option<u32>,
    piggybacked_incarnation: Option<Incarnation>,
    piggybacked_sn: Option<Sn>,
    checkpoint_of: Option<String>,
    checkpoint_incarnation: Option<Incarnation>,
    checkpoint_sn: Option<Sn>,
    checkpoint_attempt: Option<Attempt>,
    forced: Option<bool>,
    checked: Option<bool>,
    frozen_ns: Option<u64>,
    state_bytes: Option<u64>,
    dependencies: Option<String>,
    incarnation: Option<Incarnation>,
    recovery_lives: Option<u64>,
    round: Option<u32>,
    kept: Option<u32>,
    log_entries: Option<u32>,
    cause: Option<&'static str>,
    cause_cluster: Option<String>,
    about_process: Option<String>,
    about_life: Option<u32>,
    begins: Option<&'static str>,
    storage: Option<&'static str>,
    fault: Option<u32>,
    digest: Option<String>,
    state_life: Option<u32>,
    state_facts: Option<u64>,
    state_sent: Option<String>,
    state_delivered: Option<String>,
    delivered_positions: Option<String>,
    cause_incarnation: Option<Incarnation>,
    cause_sn: Option<Sn>,
    recorded_phase: Option<u32>,
    since: Option<u64>,
    task: Option<String>,
    spawned: Option<u32>,
    cost_us: Option<u32>,
    partition: Option<String>,
    sources: Option<String>,
    victim: Option<String>,
    thief: Option<String>,
    theft_life: Option<u32>,
    theft_number: Option<u32>,
    about_cluster: Option<String>,
    missing: Option<Value>,
    breakage: Option<Value>,
    spilled_messages: Option<u32>,
    spilled_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    ended_by: Option<&'static str>,
    probe: Option<String>,
    sample: Option<u32>,
    latency_ns: Option<u64>,
    watch: Option<String>,
    line: Option<String>,
    log_line: Option<u32>,
    stream: Option<&'static str>,
    groups: Option<Value>,
    check: Option<String>,
    ending: Option<&'static str>,
    status: Option<u16>,
    killed: Option<bool>,
    reason: Option<String>,
    said: Option<String>,
    history: Option<String>,
    client: Option<u16>,
    session: Option<u32>,
    operation: Option<u64>,
    call: Option<Value>,
    answer: Option<Value>,
    change: Option<Value>,
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
        row.about_task(fact, names);
        row.about_the_rest(fact, names);
        row
    }

    fn about_message(&mut self, fact: &Fact, names: &Naming<'_>) {
        let Some(MessageId { from, to, incarnation, number }) = message_of(fact) else { return };
        self.ends(from, to, names);
        self.message_incarnation = Some(incarnation);
        self.message_number = Some(number);
    }

    fn about_task(&mut self, fact: &Fact, names: &Naming<'_>) {
        match fact {
            Fact::Ran { task, spawned, cost_us } => {
                self.task = Some(task.to_string());
                self.spawned = Some(*spawned);
                self.cost_us = Some(*cost_us);
            }
            Fact::Planned(planned) => {
                self.task = Some(planned.task.to_string());
                self.partition = Some(names.process(planned.partition));
                let sources: Vec<String> = planned.sources.iter().map(ToString::to_string).collect();
                self.sources = Some(sources.join(" "));
            }
            Fact::Rerun { task, by, epoch, cost_us } => {
                self.task = Some(task.to_string());
                self.partition = Some(names.process(*by));
                self.incarnation = Some(*epoch);
                self.cost_us = Some(*cost_us);
            }
            Fact::Theft { theft, task, .. } => {
                self.task = Some(task.to_string());
                self.victim = Some(names.process(theft.victim));
                self.thief = Some(names.process(theft.thief));
                self.theft_life = Some(theft.life.0);
                self.theft_number = Some(theft.number);
            }
            _ => {}
        }
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
                self.state(saved.1);
                self.state_bytes = Some(saved.2);
            }
            Fact::Durable(image) | Fact::Removed(image) | Fact::Damaged(image) => self.image(image, names),
            Fact::Flipped(Flipped::Copy { name, is_checked }) => {
                self.image(name, names);
                self.checked = Some(*is_checked);
            }
            Fact::Restored(restored) => {
                if let Some(image) = &restored.0 {
                    self.image(image, names);
                    self.state(restored.2);
                }
                self.incarnation = Some(restored.1);
            }
            Fact::Absorbed(absorbed) => {
                self.partition = Some(names.process(absorbed.0));
                if let Some(image) = &absorbed.1 {
                    self.image(image, names);
                    self.state(absorbed.2);
                }
                self.incarnation = Some(absorbed.3).filter(|it| *it > Incarnation::default());
            }
            Fact::Ceded { partition, epoch } => {
                self.partition = Some(names.process(*partition));
                self.incarnation = Some(*epoch);
            }
            Fact::CheckpointMessage { position, from, to } => {
                self.checkpoint_incarnation = Some(position.incarnation);
                self.checkpoint_sn = Some(position.sn);
                self.ends(*from, *to, names);
            }
            Fact::Computed { since } => self.since = Some(since.0),
            Fact::Finished(finished) => {
                self.state(finished.0);
                self.digest = Some(finished.1.to_string());
            }
            Fact::Claim(claim) => self.claim(claim, names),
            Fact::Observed(observation) => self.observation(observation, &names.names),
            Fact::Suppressed(_)
            | Fact::Delivered(_)
            | Fact::Consumed(_)
            | Fact::DroppedStale(_)
            | Fact::Flipped(Flipped::Message(_) | Flipped::State)
            | Fact::Held
            | Fact::Ran { .. }
            | Fact::Planned(_)
            | Fact::Rerun { .. }
            | Fact::Theft { .. } => {}
            Fact::LifeStarted { .. }
            | Fact::Begun
            | Fact::Injecting { .. }
            | Fact::Ineffective { .. }
            | Fact::Failed { .. }
            | Fact::Detected { .. }
            | Fact::Resumed { .. }
            | Fact::Changed(_)
            | Fact::Joined(_)
            | Fact::Leaving(_)
            | Fact::Left(_)
            | Fact::Completed => self.about_supervision(fact, names),
        }
    }

    fn about_supervision(&mut self, fact: &Fact, names: &Naming<'_>) {
        match fact {
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
                match by {
                    EndedBy::Fault(no) => self.fault = Some(no.0),
                    EndedBy::Silence => self.ended_by = Some("silence"),
                    EndedBy::PlaceLost => self.ended_by = Some("placeLost"),
                    EndedBy::StorageLost => self.ended_by = Some("storageLost"),
                    EndedBy::SupervisorRestarted => self.ended_by = Some("supervisorRestarted"),
                    EndedBy::Moved => self.ended_by = Some("moved"),
                    EndedBy::CommandExited => self.ended_by = Some("commandExited"),
                }
                self.storage = Some(match storage {
                    StorageFate::Kept => "kept",
                    StorageFate::Lost => "lost",
                });
            }
            Fact::Detected { process, life } | Fact::Resumed { process, life } => {
                self.about(*process, *life, names);
            }
            Fact::Injecting { no, fault } => {
                self.fault = Some(no.0);
                match fault.target() {
                    Some(Target::Process(process)) => self.about_process = Some(names.process(process)),
                    Some(Target::Cluster(cluster)) => self.about_cluster = names.cluster(cluster),
                    Some(Target::Rack { .. }) | None => {}
                }
            }
            Fact::Ineffective { no, reason } => {
                self.fault = Some(no.0);
                self.reason = Some(reason.to_string());
            }
            Fact::Joined(cluster) | Fact::Leaving(cluster) | Fact::Left(cluster) => {
                self.about_cluster = names.cluster(*cluster);
            }
            Fact::Changed(change) => {
                self.change = serde_json::to_value(change).ok();
                if let Change::Fault(planned) = &**change {
                    self.fault = Some(planned.no.0);
                }
            }
            _ => {}
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
                self.vectors(vectors, names);
            }
            Claim::Aborted { position, attempt } => {
                self.checkpoint(*position);
                self.checkpoint_attempt = Some(*attempt);
            }
            Claim::RolledBack { to, checkpoint, cause, vectors } => {
                self.checkpoint(*checkpoint);
                self.incarnation = Some(to.incarnation);
                self.vectors(vectors, names);
                match cause {
                    Cause::Failure => self.cause = Some("failure"),
                    Cause::Alert { from, position } => {
                        self.cause = Some("alert");
                        self.cause_cluster = Some(names.group(*from));
                        self.cause_incarnation = Some(position.incarnation);
                        self.cause_sn = Some(position.sn);
                    }
                }
            }
            Claim::Alerted { from, position } => {
                self.cause_cluster = Some(names.group(*from));
                self.incarnation = Some(position.incarnation);
                self.checkpoint_sn = Some(position.sn);
            }
            Claim::Phase(PhaseClaim::Orphaned { phase, .. }) => self.message_phase = Some(*phase),
            Claim::Phase(PhaseClaim::NotRepeated { recorded, repeated, .. }) => {
                self.recorded_phase = Some(*recorded);
                self.message_phase = Some(*repeated);
            }
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
            Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, slot }) => {
                self.partition = Some(names.process(*partition));
                self.incarnation = Some(*epoch);
                self.checkpoint_sn = Some(slot.sn);
                self.checkpoint_incarnation = Some(slot.incarnation);
            }
            Claim::Partition(PartitionClaim::Drained { from, to, epoch }) => {
                self.ends(*from, *to, names);
                self.incarnation = Some(*epoch);
            }
            Claim::Spilled { messages, bytes, left } => {
                self.spilled_messages = Some(*messages);
                self.spilled_bytes = Some(*bytes);
                self.memory_bytes = Some(*left);
            }
            Claim::Released { cluster } => self.about_cluster = names.cluster(*cluster),
            Claim::Unrecoverable { group, missing } => {
                self.about_cluster = Some(names.group(*group));
                self.missing = serde_json::to_value(missing).ok();
            }
            Claim::Broke(breakage) => self.breakage = serde_json::to_value(breakage).ok(),
            Claim::Resent { .. } | Claim::Forcing { .. } | Claim::Protected => {}
        }
    }

    fn observation(&mut self, observation: &Observation, names: &RunNames) {
        match observation {
            Observation::Ready => {}
            Observation::Logged { watch, line, log_line, is_error, groups } => {
                self.watch = Some(names.watch(*watch));
                self.line = Some(line.to_string());
                self.log_line = (*log_line > 0).then_some(*log_line);
                self.stream = Some(if *is_error { "stderr" } else { "stdout" });
                self.groups = serde_json::to_value(groups).ok().filter(|_| !groups.is_empty());
            }
            Observation::LeftOut { watch } => self.watch = Some(names.watch(*watch)),
            Observation::Probed { probe, sample, latency, ending, said } => {
                self.probe = Some(names.probe(*probe));
                self.sample = Some(*sample);
                self.latency_ns = Some(latency.0);
                self.ending(ending, said);
            }
            Observation::Exited { ending, said } => self.ending(ending, said),
            Observation::Stopped { ending, latency, killed, said } => {
                self.latency_ns = Some(latency.0);
                self.killed = Some(*killed);
                self.ending(ending, said);
            }
            Observation::Checked { check, latency, ending, said } => {
                self.check = Some(names.check(*check));
                self.latency_ns = Some(latency.0);
                self.ending(ending, said);
            }
            Observation::Invoked { history, client, session, operation, call } => {
                self.history = Some(names.history(*history));
                self.client = Some(*client);
                self.session = Some(*session);
                self.operation = Some(*operation);
                self.call = serde_json::to_value(call).ok();
            }
            Observation::Concluded { history, operation, completion } => {
                self.history = Some(names.history(*history));
                self.operation = Some(*operation);
                self.answer = serde_json::to_value(completion).ok();
            }
        }
    }

    fn ending(&mut self, ending: &Ending, said: &str) {
        let (name, status) = match ending {
            Ending::Exit(status) => ("exit", Some((*status).into())),
            Ending::Signal(signal) => ("signal", Some((*signal).into())),
            Ending::Http(status) => ("http", Some(*status)),
            Ending::Opened => ("opened", None),
            Ending::TimedOut => ("timedOut", None),
            Ending::Failed(_) => ("failed", None),
            Ending::Impossible(_) => ("impossible", None),
        };
        (self.ending, self.status) = (Some(name), status);
        if let Ending::Failed(reason) | Ending::Impossible(reason) = ending {
            self.reason = Some(reason.to_string());
        }
        self.said = (!said.is_empty()).then(|| said.to_owned());
    }

    fn ends(&mut self, from: ProcessId, to: ProcessId, names: &Naming<'_>) {
        self.sender = Some(names.process(from));
        self.sender_cluster = names.cluster_of(from);
        self.receiver = Some(names.process(to));
        self.receiver_cluster = names.cluster_of(to);
    }

    /// Fills in the columns that state which facts a saved state contains.
    fn state(&mut self, witness: Witness) {
        self.state_life = Some(witness.life.0);
        self.state_facts = Some(witness.upto.0);
        self.state_sent = Some(format!("{:016x}", witness.sent));
        self.state_delivered = Some(format!("{:016x}", witness.delivered));
    }

    /// Fills in the columns that describe the dependencies of a checkpoint.
    fn vectors(&mut self, vectors: &Vectors, names: &Naming<'_>) {
        self.dependencies = Some(names.dependencies(vectors));
        self.delivered_positions =
            Some(names.positions(vectors.delivered.iter().copied())).filter(|it| !it.is_empty());
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

    pub(crate) fn process(&self, process: ProcessId) -> String {
        self.names.process(process)
    }

    fn cluster(&self, cluster: ClusterId) -> Option<String> {
        self.names.clusters.get(cluster.index()).cloned()
    }

    /// Returns the name of a group. If the whole federation is one group, returns the name of the cluster
    /// with this number.
    pub(crate) fn group(&self, group: GroupId) -> String {
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
        self.positions((0..).map(GroupId).zip(vectors.ddv.iter().copied()))
    }

    fn positions(&self, of: impl Iterator<Item = (GroupId, Position)>) -> String {
        let each = of.map(|(it, at)| format!("{}={}.{}", self.group(it), at.incarnation.0, at.sn.0));
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
