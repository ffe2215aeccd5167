//! A checkpoint of a process that is a group of its own.

use alloc::sync::Arc;

use faultline_core::{Attempt, Claim, Host, Image, ImageName, Position, ProcessId, Protocol, Snapshot, Time};

use super::group::{Group, Grouped};
use super::{Checkpoint, Replication, Requires, Schedule};

/// The checkpoints that a process takes alone: the process saves its state, writes the image to its own storage and to
/// that of its holders, and commits the checkpoint once the image is durable everywhere. The application is paused from
/// the request to the commit.
#[derive(Clone, Debug)]
pub(crate) struct Solo<P: Grouped> {
    /// Number of checkpoints begun since the last rollback.
    attempts: u32,
    schedule: Schedule,
    part: Option<Part<P>>,
    requires: Requires,
}

/// The checkpoint in progress.
#[derive(Clone, Debug)]
struct Part<P: Grouped> {
    checkpoint: Checkpoint,
    since: Time,
    /// The image, once the application has returned its state.
    written: Option<Replication<P>>,
    is_durable: bool,
}

impl<P: Grouped + Protocol> Solo<P> {
    pub(crate) fn new(schedule: Schedule, requires: Requires) -> Solo<P> {
        Solo { attempts: 0, schedule, part: None, requires }
    }

    /// Returns whether a checkpoint is due.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.schedule.is_due(now)
    }

    /// Returns the time at which the next checkpoint is due; `None` while one is in progress.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.schedule.next().filter(|_| self.part.is_none())
    }

    /// Returns whether a checkpoint is in progress.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.part.is_some()
    }

    /// Returns whether the checkpoint in progress already contains the application's state, and thus none of the
    /// application's later actions.
    pub(crate) fn is_cut(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.written.is_some())
    }

    /// Pauses the application, and requests its state for the checkpoint after the one at `last`.
    pub(crate) fn begin(&mut self, last: Position, now: Time, host: &mut dyn Host<P>) {
        assert!(self.part.is_none(), "the previous checkpoint is committed or discarded");
        self.attempts += 1;
        self.schedule.stop();
        let position = Position { sn: last.sn.next(), ..last };
        let checkpoint = Checkpoint { position, attempt: Attempt(self.attempts) };
        host.claim(Claim::CheckpointRequested { position, attempt: checkpoint.attempt, forced: false });
        self.part = Some(Part { checkpoint, since: now, written: None, is_durable: false });
        host.request_snapshot();
    }

    /// Handles the snapshot, which follows all earlier sends of the application: writes it together with the protocol's
    /// state.
    pub(crate) fn cut(
        &mut self,
        group: &mut Group<P>,
        snapshot: Snapshot,
        saved: P::Saved,
        head: P::Head,
        host: &mut dyn Host<P>,
    ) {
        let Some(part) = &mut self.part else { return };
        assert!(part.written.is_none(), "the application returns its state once");
        let name = part.checkpoint.part(group.me);
        let image = Image { name, head: Arc::new(head), saved: Arc::new(saved), snapshot };
        let Group { holders, store, .. } = group;
        let requires = self.requires;
        part.written = Some(Replication::begin(image.into(), holders, requires, &mut store.writes, host));
    }

    fn written(&mut self) -> Option<&mut Replication<P>> {
        self.part.as_mut()?.written.as_mut()
    }

    /// Records that an image is durable in this process's storage.
    pub(crate) fn durable(&mut self, name: ImageName) {
        if let Some(written) = self.written() {
            written.durable(name);
        }
    }

    /// Handles a holder's confirmation.
    pub(crate) fn confirmed(&mut self, holder: ProcessId, name: ImageName) {
        if let Some(written) = self.written() {
            written.confirmed(holder, name);
        }
    }

    /// Handles a new life of a holder, whose replica may not have arrived, or may be lost.
    pub(crate) fn repeat(&mut self, holder: ProcessId, host: &mut dyn Host<P>) {
        if let Some(written) = self.written() {
            written.repeat(holder, host);
        }
    }

    /// Sends the image again to the holders that have not confirmed it.
    pub(crate) fn repeat_to_awaited(&mut self, host: &mut dyn Host<P>) {
        if let Some(written) = self.written() {
            written.repeat_to_awaited(host);
        }
    }

    /// Returns whether the image has just become durable, locally and at its holders. Call this after each of the
    /// methods above.
    pub(crate) fn completes(&mut self) -> bool {
        let completes = self.written().is_some_and(Replication::completes);
        if let Some(part) = &mut self.part {
            part.is_durable |= completes;
        }
        completes
    }

    /// Ends the checkpoint in progress if it is durable everywhere. Returns the checkpoint, the protocol's state in it,
    /// and the process's claim.
    pub(crate) fn commit(&mut self, now: Time) -> Option<(Checkpoint, Arc<P::Saved>, Claim)> {
        let Part { checkpoint, since, written, .. } = self.part.take_if(|part| part.is_durable)?;
        let written = written.expect("a durable part has been written");
        let Checkpoint { position, attempt } = checkpoint;
        let (frozen, vectors) = (now.since(since), Arc::default());
        let committed = Claim::Committed { position, attempt, forced: false, frozen, vectors };
        Some((checkpoint, written.image().saved.clone(), committed))
    }

    /// Begins the delay before the next checkpoint, because one was committed or the process has rolled back.
    pub(crate) fn restart_timer(&mut self, now: Time) {
        self.schedule.restart(now);
    }

    /// Handles the failure of the process: discards the checkpoint in progress.
    pub(crate) fn discard(&mut self, host: &mut dyn Host<P>) {
        if let Some(Part { checkpoint: Checkpoint { position, attempt }, .. }) = self.part.take() {
            host.claim(Claim::Aborted { position, attempt });
        }
        self.schedule.stop();
    }

    /// Begins a new incarnation of the process, in which attempts are counted from 1 again.
    pub(crate) fn restored(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Span, Witness};

    use super::super::logs::tests::{Act, Actions, PEER, Talk, group};
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) }
    }

    fn begun() -> (Solo<Talk>, Group<Talk>, Actions, Checkpoint) {
        let schedule = Schedule::new(Some(Span::from_secs(1)), None, Time::ZERO);
        let (mut solo, mut host) = (Solo::new(schedule, Requires::ALL), Actions::default());
        solo.begin(Position::new(0, 0), Time::ZERO, &mut host);
        let (position, attempt) = (Position::new(0, 1), Attempt(1));
        let requested = Claim::CheckpointRequested { position, attempt, forced: false };
        assert_eq!(host.take(), [Act::Claim(requested), Act::Snapshot]);
        (solo, group(), host, Checkpoint { position, attempt })
    }

    #[test]
    fn a_checkpoint_is_committed_once_it_is_durable_here_and_at_its_holders() {
        let (mut solo, mut group, mut host, checkpoint) = begun();
        assert!(solo.is_checkpointing() && !solo.is_cut());
        solo.cut(&mut group, snapshot(), Default::default(), Default::default(), &mut host);
        let name = checkpoint.part(group.me);
        assert!(solo.is_cut());
        assert_eq!(host.take(), [Act::Persist(name)]);
        solo.durable(name);
        assert!(
            !solo.completes() && solo.commit(Time::ZERO).is_none(),
            "a holder has not confirmed the image"
        );
        solo.confirmed(PEER, name);
        assert!(solo.completes());
        let (committed, _, claim) = solo.commit(Time::ZERO).unwrap();
        assert_eq!(committed, checkpoint);
        assert!(matches!(claim, Claim::Committed { position, .. } if position == checkpoint.position));
        assert!(!solo.is_checkpointing() && solo.commit(Time::ZERO).is_none(), "a commit happens once");
    }

    #[test]
    fn a_failure_discards_the_checkpoint_in_progress() {
        let (mut solo, mut group, mut host, Checkpoint { position, attempt }) = begun();
        solo.discard(&mut host);
        assert_eq!(host.take(), [Act::Claim(Claim::Aborted { position, attempt })]);
        solo.cut(&mut group, snapshot(), Default::default(), Default::default(), &mut host);
        assert_eq!(host.take(), [], "the state belongs to no checkpoint");
        solo.discard(&mut host);
        assert_eq!(host.take(), []);
    }
}
