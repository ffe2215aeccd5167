//! Traces of planned programs, built step by step.

use std::sync::Arc;

use faultline_core::{
    Attempt, Claim, Fact, Incarnation, MessageId, PartitionClaim, PlannedTask, Position, Promise, Promises,
    Scope, Span, TaskId, Vectors, Witness,
};

use super::{Run, p};

/// A run of a planned program, with each process in a cluster of its own.
pub struct Partitions(pub Run);

/// Returns the task with this number.
pub fn task(number: u64) -> TaskId {
    TaskId(number)
}

impl Partitions {
    pub fn new(partitions: u32) -> Partitions {
        Partitions::promising(partitions, &[Promise::StrictlyRequired])
    }

    pub fn promising(partitions: u32, promises: &[Promise]) -> Partitions {
        let clusters: Vec<[u32; 1]> = (0..partitions).map(|it| [it]).collect();
        let clusters: Vec<&[u32]> = clusters.iter().map(|it| &it[..]).collect();
        let mut run = Run::new(&clusters);
        let all: Vec<Promise> = promises.iter().copied().chain([Promise::Repetition]).collect();
        run.context.promises = Promises::of_scope(Scope::Process).with(&all);
        // The history recognises a planned program by its `Planned` facts, so each partition executes a first task.
        let mut this = Partitions(run);
        for partition in 0..partitions {
            this.executed(partition, 1000 + u64::from(partition), &[], &[]);
        }
        this
    }

    /// Makes a partition execute a task that reads values of other tasks, and send the values that the task
    /// writes.
    pub fn executed(&mut self, partition: u32, number: u64, reads: &[u64], to: &[u32]) -> Vec<MessageId> {
        self.plan(partition, number, reads);
        let (task, spawned, cost_us) = (task(number), 0, 1000);
        self.0.state(partition, Fact::Ran { task, spawned, cost_us });
        to.iter()
            .map(|to| {
                let id = self.0.send(partition, *to);
                self.0.transmit(id, Position::default());
                id
            })
            .collect()
    }

    /// Makes a process that runs another process's partition execute a task of that partition.
    pub fn executed_at(&mut self, host: u32, partition: u32, number: u64) {
        self.plan_at(host, partition, number, &[]);
        self.0.state(host, Fact::Ran { task: task(number), spawned: 0, cost_us: 1000 });
    }

    fn plan(&mut self, partition: u32, number: u64, reads: &[u64]) {
        self.plan_at(partition, partition, number, reads);
    }

    fn plan_at(&mut self, host: u32, partition: u32, number: u64, reads: &[u64]) {
        let sources: Arc<[TaskId]> = reads.iter().map(|it| task(*it)).collect();
        let planned = PlannedTask { task: task(number), partition: p(partition), sources };
        self.0.state(host, Fact::Planned(Box::new(planned)));
    }

    /// Makes a process cede a partition.
    pub fn ceded(&mut self, host: u32, partition: u32, epoch: u32) {
        self.0.state(host, Fact::Ceded { partition: p(partition), epoch: Incarnation(epoch) });
    }

    /// Makes a partition re-execute a task because another partition demands it.
    pub fn rerun(&mut self, partition: u32, number: u64, by: u32, epoch: u32) {
        self.plan(partition, number, &[]);
        let (task, by, epoch, cost_us) = (task(number), p(by), Incarnation(epoch), 1000);
        self.0.state(partition, Fact::Rerun { task, by, epoch, cost_us });
    }

    pub fn delivered(&mut self, id: MessageId) {
        self.0.deliver(id);
    }

    /// Makes a partition save its part of a checkpoint.
    pub fn save(&mut self, partition: u32, epoch: u32, sn: u32) -> Position {
        let (name, witness) = (self.0.image(partition, epoch, sn), self.0.witness(partition));
        self.0.state(partition, Fact::Saved(Box::new((name, witness, 0))));
        self.0.durable(partition, name);
        name.position()
    }

    /// Makes all partitions save their parts of a checkpoint.
    pub fn checkpoint(&mut self, epoch: u32, sn: u32) -> Position {
        let partitions = self.0.context.clusters.len() as u32;
        (0..partitions).map(|it| self.save(it, epoch, sn)).last().expect("the run has partitions")
    }

    /// Makes a process commit a checkpoint.
    pub fn commit(&mut self, process: u32, position: Position) {
        let (attempt, forced, frozen) = (Attempt(1), false, Span::ZERO);
        let vectors = Arc::new(Vectors::default());
        self.0.claim(process, Claim::Committed { position, attempt, forced, frozen, vectors });
    }

    /// Makes a process restore its part of a checkpoint.
    pub fn restored(&mut self, process: u32, epoch: u32, from: Position) {
        let name = self.0.image(process, from.incarnation.0, from.sn.0);
        let saved = self.0.trace.records().find_map(|it| match it.fact {
            Fact::Saved(saved) if saved.0 == name => Some(saved.1),
            _ => None,
        });
        let witness = saved.expect("the part was saved");
        let fact = Fact::Restored(Box::new((Some(name), Incarnation(epoch), witness)));
        self.0.state(process, fact);
    }

    /// Makes a process take over a partition in the partition's initial state and join the recovery with it.
    pub fn absorbed(&mut self, host: u32, partition: u32, epoch: u32) {
        self.0.state(
            host,
            Fact::Absorbed(Box::new((p(partition), None, Witness::default(), Incarnation(epoch)))),
        );
        self.joined_at(host, partition, epoch, Position::default());
    }

    /// Makes `host` join a recovery with a partition that it runs.
    pub fn joined_at(&mut self, host: u32, partition: u32, epoch: u32, slot: Position) {
        let (partition, epoch) = (p(partition), Incarnation(epoch));
        self.0.claim(host, Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, slot }));
    }

    pub fn joined(&mut self, partition: u32, epoch: u32, slot: Position) {
        self.joined_at(partition, partition, epoch, slot);
    }

    pub fn drained(&mut self, from: u32, to: u32, epoch: u32) {
        let (from, to, epoch) = (p(from), p(to), Incarnation(epoch));
        self.0.claim(to.0, Claim::Partition(PartitionClaim::Drained { from, to, epoch }));
    }
}
