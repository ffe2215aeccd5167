//! The process as its protocol sees it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::process::Packet;
use faultline_core::{
    Action, Chunk, Composite, Fact, FactKind, Image, Incarnation, Out, ProcessId, Snapshot, TaskId, Theft, To,
};

use super::{Inner, TaskProcess, TaskProcessMessage};
use crate::graph::{Effects, Graph, GraphEvent};
use crate::program::Program;
use crate::recovery::{LastState, Leg, TaskHost, TaskProtocol, root};

/// The host through which a protocol acts while it handles one input.
pub(super) struct ProtocolHost<'a, P: TaskProtocol, G: Program> {
    pub(super) inner: &'a mut Inner<P, G>,
    pub(super) out: &'a mut Out<TaskProcess<P, G>>,
}

impl<P: TaskProtocol, G: Program> TaskHost<P> for ProtocolHost<'_, P, G> {
    fn pass(&mut self, theft: Theft, leg: Leg) {
        self.inner.pass(theft, leg, self.out);
    }

    fn is_lent(&self, theft: Theft) -> bool {
        self.inner.graph.lent(theft).is_some()
    }

    fn debt(&self, theft: Theft) -> Option<bool> {
        self.inner.graph.owed(theft).map(|_| self.inner.graph.is_done(theft))
    }

    fn has_begun(&self, theft: Theft) -> bool {
        self.inner.graph.has_begun(theft)
    }

    fn owed(&self, theft: Theft) -> Option<TaskId> {
        self.inner.graph.owed(theft)
    }

    fn asking(&self) -> Option<Theft> {
        self.inner.thief.asking()
    }

    fn stop_asking(&mut self) {
        self.inner.thief.stop();
    }

    fn loans(&self) -> Vec<Theft> {
        self.inner.graph.loans().collect()
    }

    fn debts(&self) -> Vec<(Theft, bool)> {
        self.inner.graph.debts().collect()
    }

    fn void(&mut self, theft: Theft) {
        self.inner.void(theft, self.out);
    }

    fn forget(&mut self, theft: Theft) {
        self.inner.forget(theft, self.out);
    }

    fn pass_orphan(&mut self, theft: Theft, to: ProcessId) {
        self.inner.pay_orphan(theft, to, self.out);
    }

    fn snapshot(&mut self) -> Snapshot {
        self.inner.events.clear();
        let graph = &self.inner.graph;
        Snapshot {
            witness: self.inner.witness(graph.effects()),
            channels: Arc::from([]),
            application: graph.save(),
        }
    }

    fn log(&mut self, is_logged: fn(&GraphEvent) -> bool) -> Option<Snapshot> {
        let inner = &mut *self.inner;
        if inner.events.is_empty() {
            return None;
        }
        let mut events = core::mem::take(&mut inner.events);
        events.retain(is_logged);
        inner.is_told = false;
        let bytes = postcard::to_allocvec(&events).expect("events can be encoded");
        Some(Snapshot {
            witness: inner.witness(inner.graph.effects()),
            channels: Arc::from([]),
            application: Arc::from([Chunk::Bytes(bytes.into())]),
        })
    }

    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>) {
        self.restore_from(from, &[]);
    }

    fn restore_log(&mut self, from: &Image<P::Head, P::Saved>, log: &[Arc<Image<P::Head, P::Saved>>]) {
        self.restore_from(Some(from), log);
    }

    fn absorb(&mut self, of: ProcessId, what: LastState<'_, P>) {
        let inner = &mut *self.inner;
        let last = match what {
            LastState::Image(image) => Some(image),
            LastState::Log(image, log) => log.last().map(|it| &**it).or(Some(image)),
            LastState::Beginning | LastState::Nothing => None,
        };
        let witness = last.map(|it| it.snapshot.witness).unwrap_or_default();
        let name = last.map(|it| it.name);
        let absorbed = || Fact::Absorbed(Box::new((of, name, witness, Incarnation::default())));
        inner.fact(FactKind::Absorbed, absorbed, self.out);
        let graph = match what {
            LastState::Image(image) => Graph::load(&image.snapshot.application),
            LastState::Log(image, log) => inner.replay(image, log),
            LastState::Beginning if of == root(&inner.membership) => inner.first(self.out),
            LastState::Beginning | LastState::Nothing => Graph::default(),
        };
        inner.graph.absorb(of, graph);
        inner.reconcile_own(matches!(what, LastState::Beginning), self.out);
    }

    fn is_mine(&self, process: ProcessId) -> bool {
        self.inner.is_mine(process)
    }

    fn has_root(&self) -> bool {
        self.inner.graph.owed(Theft::NONE).is_some()
    }

    fn is_over(&self) -> bool {
        self.inner.over.is_some()
    }

    fn hold(&mut self) {
        self.inner.held = true;
    }

    fn release(&mut self) {
        self.inner.held = false;
        if let Some(digest) = self.inner.over {
            self.inner.end(digest, Effects::default(), self.out);
        }
    }
}

impl<P: TaskProtocol, G: Program> ProtocolHost<'_, P, G> {
    /// Replaces the graph with that of an image, updated by the log that follows it, or with the initial
    /// graph if there is no image.
    fn restore_from(
        &mut self,
        from: Option<&Image<P::Head, P::Saved>>,
        log: &[Arc<Image<P::Head, P::Saved>>],
    ) {
        let inner = &mut *self.inner;
        let last = log.last().map(|it| &**it).or(from);
        inner.held = true;
        inner.jobs.clear();
        inner.thief.stop();
        inner.merged.clear();
        inner.unseen.clear();
        inner.events.clear();
        inner.is_told = false;
        let incarnation = inner.life.incarnation();
        let witness = last.map(|image| image.snapshot.witness).unwrap_or_default();
        let name = last.map(|image| image.name);
        inner.fact(FactKind::Restored, || Fact::Restored(Box::new((name, incarnation, witness))), self.out);
        inner.graph = match from {
            Some(image) => inner.replay(image, log),
            None if inner.me == root(&inner.membership) => inner.first(self.out),
            None => Graph::default(),
        };
        // Restoring a state does not undo the end of the program; the end is recorded again in the new state.
        inner.is_end_reported = false;
    }
}

impl<P: TaskProtocol, G: Program> Composite for ProtocolHost<'_, P, G> {
    type Protocol = P;
    type Process = TaskProcess<P, G>;

    fn out(&mut self) -> &mut Out<TaskProcess<P, G>> {
        self.out
    }

    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact) {
        self.inner.fact(kind, make, self.out);
    }

    fn send(&mut self, to: To, message: P::Control) {
        self.out.push(Action::Send { to, packet: Packet::Control(TaskProcessMessage::Protocol(message)) });
    }
}
