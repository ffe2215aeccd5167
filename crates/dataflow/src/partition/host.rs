//! The process as its protocol sees it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Composite, Fact, FactKind, Image, Incarnation, Out, ProcessId, Snapshot, To};

use super::protocol::{Delivery, PartitionHost, PartitionInput, PartitionProtocol, RerunOptions};
use super::rerun::Rerun;
use super::share::{Executed, Share};
use super::{Inner, Partition, PartitionMessage, Running};
use crate::partition_map::PartitionMap;
use crate::plan::{Plan, Value};
use crate::program::Program;

/// The host through which a protocol acts while it handles one input.
pub(super) struct ProtocolHost<'a, P: PartitionProtocol, G: Program> {
    pub(super) inner: &'a mut Inner<P, G>,
    pub(super) out: &'a mut Out<Partition<P, G>>,
}

impl<P: PartitionProtocol, G: Program> ProtocolHost<'_, P, G> {
    /// Returns a partition that runs here.
    ///
    /// # Panics
    ///
    /// Panics if the partition does not run here. A protocol can check this with [`PartitionHost::runs`].
    fn running(&mut self, partition: ProcessId) -> &mut Running {
        self.inner
            .running
            .get_mut(&partition)
            .unwrap_or_else(|| panic!("partition {partition} runs elsewhere"))
    }

    fn pass(&mut self, process: ProcessId, from: ProcessId, to: ProcessId, message: P::Control) {
        if process == self.inner.me {
            self.inner.unseen.push_back(PartitionInput::Control { from, to, message });
        } else {
            self.inner.send_control(process, PartitionMessage::Protocol { from, to, message }, self.out);
        }
    }
}

impl<P: PartitionProtocol, G: Program> PartitionHost<P> for ProtocolHost<'_, P, G> {
    fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    fn tell(&mut self, from: ProcessId, to: ProcessId, message: P::Control) {
        if let Some(position) = P::checkpoint_of(&message) {
            self.inner.fact(
                FactKind::CheckpointMessage,
                || Fact::CheckpointMessage { position, from, to },
                self.out,
            );
        }
        let host = self.inner.partition_map.host_of(to);
        self.pass(host, from, to, message);
    }

    fn initial_map(&self) -> &PartitionMap {
        &self.inner.initial_map
    }

    fn set_map(&mut self, map: PartitionMap) {
        self.inner.partition_map = map;
    }

    fn runs(&self, partition: ProcessId) -> bool {
        self.inner.running.contains_key(&partition)
    }

    fn accept(&mut self, Delivery { id, value, content }: Delivery) {
        let (plan, window) = (self.inner.plan.clone(), self.inner.window);
        let running = self.running(id.to);
        if let Some(rerun) = &mut running.rerun {
            rerun.receive(&plan, value, content.clone());
        }
        if running.share.receive(&plan, window, value, content) {
            running.share.received = running.share.received.wrapping_add(id.mix());
            self.inner.fact(FactKind::Delivered, || Fact::Delivered(id), self.out);
        }
    }

    fn executed(&self, partition: ProcessId) -> Executed {
        self.inner.running[&partition].share.executed().clone()
    }

    fn lacking(&self, partition: ProcessId, from: ProcessId, executed: &Executed) -> Vec<Value> {
        self.inner.running[&partition].share.lacking(&self.inner.plan, from, executed)
    }

    fn snapshot(&mut self, partition: ProcessId) -> Snapshot {
        let share = &self.inner.running[&partition].share;
        Snapshot {
            witness: self.inner.witness(share.sent, share.received),
            channels: Arc::from([]),
            application: share.save(),
        }
    }

    fn restore(&mut self, partition: ProcessId, epoch: Incarnation, from: Option<&Image<P::Head, P::Saved>>) {
        let has_failed = self.is_restored_after_failure(partition);
        let inner = &mut *self.inner;
        let share = share(from.map(|image| &image.snapshot), partition, inner);
        inner.run(partition, share);
        let witness = from.map(|image| image.snapshot.witness).unwrap_or_default();
        let name = from.map(|image| image.name);
        if has_failed {
            let fact = || Fact::Restored(Box::new((name, epoch, witness)));
            inner.fact(FactKind::Restored, fact, self.out);
        } else {
            let fact = || Fact::Absorbed(Box::new((partition, name, witness, epoch)));
            inner.fact(FactKind::Absorbed, fact, self.out);
        }
        // If the image contains the result, no task computes it again, and all processes that knew it may have failed.
        // The result must therefore be announced here.
        inner.announce_result(partition, self.out);
    }

    fn is_restored_after_failure(&self, partition: ProcessId) -> bool {
        let Inner { me, membership, running, .. } = &*self.inner;
        partition == *me && (membership.member(*me).lives() > 1 || running.contains_key(me))
    }

    fn cede(&mut self, partition: ProcessId, epoch: Incarnation) {
        self.inner.stop(partition);
        self.inner.fact(FactKind::Ceded, || Fact::Ceded { partition, epoch }, self.out);
    }

    fn begin_rerun(
        &mut self,
        partition: ProcessId,
        epoch: Incarnation,
        from: Option<&Snapshot>,
        how: RerunOptions,
    ) {
        self.end_rerun(partition);
        let share = share(from, partition, self.inner);
        let running = self.running(partition);
        let memory = running.share.in_memory().filter(|_| how.from_memory);
        running.rerun = Some(Rerun::new(partition, epoch, share, memory, how.spread));
    }

    fn demand(&mut self, partition: ProcessId, values: &[Value], by: ProcessId) -> Vec<Value> {
        let plan = self.inner.plan.clone();
        let mut wanted = Vec::new();
        for value in values {
            let Some(rerun) = &mut self.running(partition).rerun else { return Vec::new() };
            match rerun.demand(&plan, *value, by) {
                Ok(content) => {
                    for id in plan.messages(*value).filter(|id| id.to == by) {
                        self.inner.transmit(id, *value, content.clone(), self.out);
                    }
                }
                Err(more) => wanted.extend(more),
            }
        }
        wanted
    }

    fn end_rerun(&mut self, partition: ProcessId) {
        self.inner.jobs.retain(|it| it.partition != partition || !it.is_again);
        self.inner.help.forget(partition);
        let running = self.running(partition);
        running.rerun = None;
        running.waiting.retain(|(it, _)| !it.is_again);
    }

    fn hold(&mut self, partition: ProcessId) {
        self.running(partition).held = true;
    }

    fn release(&mut self, partition: ProcessId) {
        let running = self.running(partition);
        running.held = false;
        for (done, wrote) in core::mem::take(&mut running.waiting) {
            self.inner.apply(done, wrote, self.out);
        }
    }
}

/// Returns the share in a snapshot, or the initial share if there is no snapshot.
fn share<P: PartitionProtocol, G: Program>(
    from: Option<&Snapshot>,
    partition: ProcessId,
    inner: &Inner<P, G>,
) -> Share {
    match from {
        Some(snapshot) => Share::load(&snapshot.application, &inner.plan, inner.window),
        None => Share::new(partition, &inner.plan, inner.window),
    }
}

impl<P: PartitionProtocol, G: Program> Composite for ProtocolHost<'_, P, G> {
    type Protocol = P;
    type Process = Partition<P, G>;

    fn out(&mut self) -> &mut Out<Partition<P, G>> {
        self.out
    }

    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact) {
        self.inner.fact(kind, make, self.out);
    }

    fn send(&mut self, to: To, message: P::Control) {
        let from = self.inner.me;
        match to {
            To::One(to) => self.pass(to, from, to, message),
            To::Cluster(cluster) => {
                for to in self.inner.membership.processes_of(cluster).clone().iter() {
                    if *to != from {
                        self.pass(*to, from, *to, message.clone());
                    }
                }
            }
        }
    }
}
