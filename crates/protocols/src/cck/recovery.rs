//! A partition's side of a recovery.
//!
//! A partition without a state restores the last valid checkpoint; the others keep their states. Each
//! partition announces on its channels which tasks it has executed. The announcement separates the values
//! that the partition sent before the recovery from later ones. A receiver then demands every value that was
//! sent to it and that it neither has nor has already used. A partition that receives a demand
//! re-executes the tasks between the last valid checkpoint and the value, and in turn demands the values that
//! these tasks need from others. All partitions together re-execute exactly the strictly required tasks, and
//! each partition demands values only from their senders.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Cause, Claim, Image, ImageName, Incarnation, PartitionClaim, Position, ProcessId, Role, Scope,
    To, Vectors,
};
use faultline_dataflow::partition::{Delivery, Executed, PartitionHost};
use faultline_dataflow::plan::Value;

use super::config::Rule;
use super::message::{EpochMap, ImageOf, Message};
use super::{Announced, Cck, LocalPartition};

/// The search for the image that a partition restores.
#[derive(Clone, Debug)]
pub(super) struct ImageSearch {
    name: ImageName,
    /// Processes that may have the image and have not answered; `None` until the storage of this process has answered.
    asked: Option<BTreeSet<ProcessId>>,
}

impl Cck {
    /// Begins the recoveries whose membership this process knows.
    pub(super) fn begin_announced(&mut self, host: &mut dyn PartitionHost<Self>) {
        let version = self.membership.version.0;
        let is_known = |it: &Announced| u64::from(it.current_map.epoch.0) <= version;
        let known = self.announced.extract_if(.., |it| is_known(it));
        for it in known.collect::<Vec<_>>() {
            self.begin_recovery(it, host);
        }
    }

    fn begin_recovery(
        &mut self,
        Announced { partition, valid, current_map }: Announced,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let epoch = current_map.epoch;
        let joined = self.locals.get(&partition).map_or(Incarnation(0), |it| it.epoch);
        if joined >= epoch || self.current_map.epoch > epoch || epoch < self.promised {
            return;
        }
        if self.current_map.epoch < epoch {
            host.set_map(current_map.map.clone());
            self.current_map = current_map;
            self.cede_moved(host);
        }
        if self.current_map.map.host_of(partition) != self.me {
            return host.control(To::One(self.coordinator_id), Message::Ceded(epoch));
        }
        self.locals.entry(partition).or_default();
        self.abort_checkpoint(partition, host);
        self.note_valid(partition, valid);
        let from_own_save = !self.config.obeys(Rule::RecordsSinceValid);
        let local = self.locals.get_mut(&partition).expect("the partition was added above");
        local.epoch = epoch;
        local.slots.retain(|position, _| *position <= valid || from_own_save);
        local.demanded.clear();
        local.lost.clear();
        local.wanted.clear();
        local.is_done = false;
        local.is_restored = false;
        local.silent = host.plan().senders_to(partition).into_iter().collect();
        if partition == self.me {
            host.claim(Claim::RecoveryStarted { lives: epoch.0.into(), round: 0 });
        }
        if host.runs(partition) {
            assert!(
                valid == Position::default() || local.slots.contains_key(&valid) || !self.config.is_sound(),
                "{partition:?} keeps its state, so it must have saved the valid checkpoint, {valid:?}"
            );
            return self.join_recovery(partition, host);
        }
        let starts_again = !self.config.obeys(Rule::RestoresAtHome)
            && partition == self.me
            && !host.is_restored_after_failure(partition);
        if valid == Position::default() || starts_again {
            local.loading = None;
            return self.restore(partition, None, host);
        }
        let Position { incarnation, sn } = valid;
        let name = ImageName { owner: partition, incarnation, sn, attempt: Attempt(1) };
        local.loading = Some(ImageSearch { name, asked: None });
        host.read(name);
    }

    /// Stops running the partitions that the map assigns to other processes. A value or a list of executed tasks that
    /// belongs to a later recovery is kept, because that recovery may move the partition back.
    fn cede_moved(&mut self, host: &mut dyn PartitionHost<Self>) {
        let EpochMap { epoch, map } = &self.current_map;
        let me = self.me;
        for (&partition, local) in self.locals.iter_mut().filter(|it| map.host_of(*it.0) != me) {
            let LocalPartition { round, mut flushed, mut arrived, .. } = core::mem::take(local);
            if let Some(position) = round.filter(|_| partition == me).map(|it| it.position()) {
                host.claim(Claim::Aborted { position, attempt: Attempt(1) });
            }
            flushed.retain(|_, it| it.0 > *epoch);
            arrived.retain(|it| flushed.contains_key(&it.id.from));
            *local = LocalPartition { epoch: *epoch, flushed, arrived, ..LocalPartition::default() };
            if host.runs(partition) {
                host.cede(partition, *epoch);
            }
        }
    }

    /// Stops waiting for processes that have left the federation.
    pub(super) fn forget_departed(&mut self, host: &mut dyn PartitionHost<Self>) {
        let membership = &self.membership;
        let searches = self.locals.values_mut().filter_map(|it| it.loading.as_mut());
        let mut names = Vec::new();
        for search in searches {
            search.asked.iter_mut().for_each(|it| it.retain(|it| !membership.is_absent(*it)));
            names.push(search.name);
        }
        names.into_iter().for_each(|it| self.give_up_if_lost(it, host));
    }

    /// Joins the recovery with the partition's state: informs its receivers, and determines the values that it lacks.
    fn join_recovery(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let local = self.locals.get_mut(&partition).expect("the partition recovers");
        let executed = host.executed(partition);
        for it in host.plan().receivers_of(partition) {
            host.tell(partition, it, Message::Flush(local.epoch, executed.clone()));
        }
        // The newest slot is the valid one, because all others were dropped.
        assert!(
            local.slots.len() <= 1 || !self.config.is_sound(),
            "of the checkpoints of {partition:?}, only the valid one is left"
        );
        let slot = local.slots.last_key_value().map(|(position, image)| (*position, image.snapshot.clone()));
        let position = slot.as_ref().map_or(Position::default(), |it| it.0);
        host.claim(Claim::Partition(PartitionClaim::RecoveryJoined {
            partition,
            epoch: local.epoch,
            slot: position,
        }));
        host.begin_rerun(partition, local.epoch, slot.as_ref().map(|it| &it.1), self.config.rerun);
        let (epoch, flushed) = (local.epoch, &local.flushed);
        let is_early = |it: &Delivery| flushed.get(&it.id.from).is_some_and(|it| it.0 > epoch);
        let (early, arrived): (Vec<Delivery>, Vec<Delivery>) =
            core::mem::take(&mut local.arrived).into_iter().partition(is_early);
        local.arrived = early;
        arrived.into_iter().for_each(|it| host.accept(it));
        let senders: Vec<ProcessId> = local.flushed.keys().copied().collect();
        senders.into_iter().for_each(|from| self.compare(from, partition, host));
        self.report_done(partition, host);
    }

    /// Handles the image that this process's storage returned. If the storage does not have an image that a partition
    /// restores, asks all processes that may hold it.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(image) = image {
            self.found(image, host);
            return;
        }
        let Some(loading) = self.locals.get_mut(&name.owner).and_then(|it| it.loading.as_mut()) else {
            return;
        };
        if loading.name != name || loading.asked.is_some() {
            return;
        }
        let holds = |role| role == Role::RANK || role == Role::STORAGE_SERVER;
        let all = (0..).map(ProcessId).zip(self.membership.members.iter());
        let others = all
            .filter(|(it, member)| *it != self.me && !self.membership.is_absent(*it) && holds(member.role));
        let asked: BTreeSet<ProcessId> = others.map(|(it, _)| it).collect();
        asked.iter().for_each(|it| host.control(To::One(*it), Message::Fetch(name)));
        loading.asked = Some(asked);
        self.give_up_if_lost(name, host);
    }

    /// Records that a process does not have the image.
    pub(super) fn absent(&mut self, name: ImageName, from: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let loading = self.locals.get_mut(&name.owner).and_then(|it| it.loading.as_mut());
        if let Some(asked) = loading.filter(|it| it.name == name).and_then(|it| it.asked.as_mut()) {
            asked.remove(&from);
            self.give_up_if_lost(name, host);
        }
    }

    fn give_up_if_lost(&self, name: ImageName, host: &mut dyn PartitionHost<Self>) {
        let asked = self.locals[&name.owner].loading.as_ref().and_then(|it| it.asked.as_ref());
        if asked.is_some_and(BTreeSet::is_empty) {
            let group = Scope::Process.group_of(&self.membership, name.owner);
            let holders = super::holders::holders(&self.config, &self.membership, name.owner, self.me);
            host.claim(Claim::Unrecoverable { group, missing: Arc::from([(name, holders)]) });
        }
    }

    /// Handles an image that was read or received. Returns whether a partition restores it.
    pub(super) fn found(&mut self, image: &Arc<ImageOf>, host: &mut dyn PartitionHost<Self>) -> bool {
        let partition = image.name.owner;
        let Some(local) = self.locals.get_mut(&partition) else { return false };
        if local.loading.take_if(|it| it.name == image.name).is_none() {
            return false;
        }
        local.slots.insert(image.name.position(), image.clone());
        self.restore(partition, Some(image), host);
        true
    }

    fn restore(
        &mut self,
        partition: ProcessId,
        image: Option<&Image<super::Head, ()>>,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let local = self.locals.get_mut(&partition).expect("the partition recovers");
        let has_failed = host.is_restored_after_failure(partition);
        host.restore(partition, local.epoch, image);
        let checkpoint = image.map(|it| it.name.position()).unwrap_or_default();
        assert!(
            image.is_none_or(|it| it.name.owner == partition) && checkpoint.incarnation < local.epoch,
            "recovery {:?} restores an older state of {partition:?}, not {checkpoint:?}",
            local.epoch
        );
        local.committed = checkpoint;
        local.is_restored = true;
        // For a partition that has moved to this process, the host has recorded the absorption instead.
        if has_failed {
            host.claim(Claim::RolledBack {
                to: Position { incarnation: local.epoch, sn: checkpoint.sn },
                checkpoint,
                cause: Cause::Failure,
                vectors: Arc::new(Vectors::default()),
            });
        }
        host.release(partition);
        self.join_recovery(partition, host);
    }

    /// Passes a value on to its partition, or keeps the value until the partition can accept it.
    pub(super) fn arrived(&mut self, mut delivery: Delivery, host: &mut dyn PartitionHost<Self>) {
        let (from, to) = (delivery.id.from, delivery.id.to);
        let local = self.locals.entry(to).or_default();
        // A value sent in a recovery that has not begun here must not enter the state with which the partition
        // joins that recovery.
        let is_early = local.flushed.get(&from).is_some_and(|(epoch, _)| *epoch > local.epoch);
        if is_early || !host.runs(to) {
            if self.config.obeys(Rule::KeepsEarlyData) {
                local.arrived.push(delivery);
            }
            return;
        }
        if !self.config.obeys(Rule::NamesVersions) {
            delivery.value = next_version(&delivery, &*host);
        }
        local.lost.remove(&delivery.value);
        host.accept(delivery);
        self.report_done(to, host);
    }

    /// Handles the list of tasks that a sender had executed when it joined a recovery.
    pub(super) fn flushed(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        epoch: Incarnation,
        executed: Executed,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let local = self.locals.entry(partition).or_default();
        // The sender's old host may have sent this list before it learned of the recovery that moved the sender.
        let is_older = local.flushed.get(&from).is_some_and(|(newest, _)| *newest > epoch);
        if is_older {
            return;
        }
        local.flushed.insert(from, (epoch, executed));
        if host.runs(partition) {
            self.compare(from, partition, host);
            self.report_done(partition, host);
        }
    }

    fn is_current(&self, local: &LocalPartition, epoch: Incarnation) -> bool {
        epoch == local.epoch || !self.config.obeys(Rule::IgnoresOlderEpochs)
    }

    /// Demands the values that a sender has sent and that this partition lacks.
    fn compare(&mut self, from: ProcessId, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let local = &self.locals[&partition];
        let Some((epoch, executed)) = local.flushed.get(&from) else { return };
        if !self.is_current(local, *epoch) {
            return;
        }
        let mut lacking = host.lacking(partition, from, executed);
        if !self.config.obeys(Rule::DemandsAllLosses) && !local.is_restored {
            lacking.clear();
        }
        host.claim(Claim::Partition(PartitionClaim::Drained { from, to: partition, epoch: *epoch }));
        let local = self.locals.get_mut(&partition).expect("the partition is local");
        local.silent.remove(&from);
        local.lost.extend(lacking.iter().copied());
        local.demanded.extend(lacking.iter().copied());
        if !lacking.is_empty() {
            host.tell(partition, from, Message::Demand(local.epoch, lacking.into()));
        }
        let wanted: Vec<Value> = local.wanted.iter().copied().collect();
        self.demand_inputs(partition, wanted, host);
    }

    /// Demands the values that a re-execution needs, if other partitions have already computed them. The
    /// other values will arrive without a demand.
    fn demand_inputs(
        &mut self,
        partition: ProcessId,
        values: Vec<Value>,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if !self.config.obeys(Rule::DemandsInputs) {
            return;
        }
        let plan = host.plan();
        let mut by_sender: BTreeMap<ProcessId, Vec<Value>> = BTreeMap::new();
        for value in values {
            by_sender.entry(plan.partition_of(value.task)).or_default().push(value);
        }
        for (from, values) in by_sender {
            let local = &self.locals[&partition];
            let flushed = local.flushed.get(&from).filter(|(epoch, _)| self.is_current(local, *epoch));
            let Some((_, executed)) = flushed else {
                self.locals.get_mut(&partition).expect("the partition is local").wanted.extend(values);
                continue;
            };
            let sent: Vec<Value> = values.iter().copied().filter(|it| executed.contains(it.task)).collect();
            let epoch = local.epoch;
            let local = self.locals.get_mut(&partition).expect("the partition is local");
            local.wanted.retain(|it| !values.contains(it));
            if !sent.is_empty() {
                host.tell(partition, from, Message::Demand(epoch, sent.into()));
            }
        }
    }

    /// Handles a demand for values that this partition has sent.
    pub(super) fn demanded(
        &mut self,
        by: ProcessId,
        partition: ProcessId,
        epoch: Incarnation,
        values: &[Value],
        host: &mut dyn PartitionHost<Self>,
    ) {
        let is_current = self.locals.get(&partition).is_some_and(|it| self.is_current(it, epoch));
        if is_current && host.runs(partition) {
            if !self.config.obeys(Rule::RerunsApart) {
                let slot = self.locals[&partition].slots.last_key_value().map(|(_, image)| image.clone());
                host.restore(partition, epoch, slot.as_deref());
                return host.release(partition);
            }
            let wanted = host.demand(partition, values, by);
            self.demand_inputs(partition, wanted, host);
        }
    }

    /// Informs the coordinator as soon as the partition has received everything that was lost. All re-execution on
    /// behalf of the partition has then ended.
    fn report_done(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        let has_all = local.silent.is_empty() && local.lost.is_empty() && local.epoch > Incarnation(0);
        if has_all && !local.is_done && host.runs(partition) {
            local.is_done = true;
            host.tell(partition, self.coordinator_id, Message::Done(local.epoch));
        }
    }
}

/// Returns the first missing version of this value's data, or the value itself if no version is missing.
fn next_version(delivery: &Delivery, host: &dyn PartitionHost<Cck>) -> Value {
    let Delivery { id, value, .. } = delivery;
    let all = Executed { before: host.plan().steps(), beyond: BTreeSet::new() };
    let lacking = host.lacking(id.to, id.from, &all);
    let is_of_data = |it: &Value| (it.task.index, it.output) == (value.task.index, value.output);
    lacking.into_iter().find(is_of_data).unwrap_or(*value)
}
