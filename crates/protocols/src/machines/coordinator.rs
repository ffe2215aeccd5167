//! The process that begins and commits the checkpoints of a group.

use alloc::sync::Arc;

use faultline_core::{Attempt, Claim, Machine, Position, ProcessId, ProtocolTypes, Time};

use super::gathering::Counts;
use super::{Checkpoint, Gathering, Schedule};

/// The coordinator's side of a checkpoint that is taken in two rounds: it requests the checkpoint, learns from every
/// member how many messages that member had sent, tells every member how many to wait for, and commits once all parts
/// are durable. A protocol with markers has only the second round. At most one checkpoint is in progress.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    /// Number of checkpoints begun since the last rollback.
    attempts: u32,
    gathering: Option<Gathering>,
    schedule: Schedule,
}

impl Coordinator {
    pub(crate) fn new(schedule: Schedule) -> Coordinator {
        Coordinator { attempts: 0, gathering: None, schedule }
    }

    /// Returns whether a checkpoint is due.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.schedule.is_due(now)
    }

    /// Returns the time at which the next checkpoint is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.schedule.next()
    }

    /// Begins the checkpoint after the one at `last`. `answering` lists the processes that must answer.
    pub(crate) fn begin<S: ProtocolTypes>(
        &mut self,
        last: Position,
        answering: Arc<[ProcessId]>,
        host: &mut dyn Machine<S>,
    ) -> Checkpoint {
        self.attempts += 1;
        self.request(last, Attempt(self.attempts), |checkpoint| Gathering::new(checkpoint, answering), host)
    }

    /// Begins the checkpoint after the one at `last`, which has no first round, and of which there is only one attempt.
    pub(crate) fn begin_parts<S: ProtocolTypes>(
        &mut self,
        last: Position,
        members: Arc<[ProcessId]>,
        host: &mut dyn Machine<S>,
    ) -> Checkpoint {
        self.request(last, Attempt(1), |checkpoint| Gathering::of_parts(checkpoint, members), host)
    }

    fn request<S: ProtocolTypes>(
        &mut self,
        last: Position,
        attempt: Attempt,
        gathering: impl FnOnce(Checkpoint) -> Gathering,
        host: &mut dyn Machine<S>,
    ) -> Checkpoint {
        self.schedule.stop();
        let position = Position { sn: last.sn.next(), ..last };
        let checkpoint = Checkpoint { position, attempt };
        self.gathering = Some(gathering(checkpoint));
        host.claim(Claim::CheckpointRequested { position, attempt, forced: false });
        checkpoint
    }

    /// Handles a member's report that it has saved its state, after sending the messages counted in `sent`. Returns the
    /// sums once all members have answered.
    pub(crate) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
    ) -> Option<Counts> {
        self.gathering.as_mut()?.saved(from, checkpoint, sent)
    }

    /// Handles a member's report that its part is durable. Returns whether all parts are now durable.
    pub(crate) fn drained(&mut self, from: ProcessId, checkpoint: Checkpoint) -> bool {
        self.gathering.as_mut().is_some_and(|it| it.drained(from, checkpoint))
    }

    /// If all parts of the checkpoint in progress are durable, returns the checkpoint, and whether its commit
    /// removes all older checkpoints. The checkpoint is then no longer in progress.
    pub(crate) fn commit(&mut self, now: Time) -> Option<(Checkpoint, bool)> {
        let gathering = self.gathering.take_if(|it| it.is_over())?;
        Some((gathering.checkpoint(), self.schedule.collects(now)))
    }

    /// Handles the commit: begins the delay before the next checkpoint.
    pub(crate) fn committed(&mut self, now: Time) {
        self.schedule.restart(now);
    }

    /// Handles the failure of a member: discards the checkpoint in progress.
    pub(crate) fn discard(&mut self) {
        self.gathering = None;
        self.schedule.stop();
    }

    /// Handles the resumption of the group in a new incarnation.
    pub(crate) fn resumed(&mut self, now: Time) {
        self.attempts = 0;
        self.schedule.restart(now);
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::Span;

    use super::super::testing::{Act, Plain, Recorder};
    use super::*;

    const MEMBERS: [ProcessId; 2] = [ProcessId(1), ProcessId(2)];
    const EVERY: Span = Span::from_secs(1);

    fn begun() -> (Coordinator, Checkpoint) {
        let mut coordinator = Coordinator::new(Schedule::new(Some(EVERY), None, Time::ZERO));
        let mut host = Recorder::default();
        let checkpoint = coordinator.begin::<Plain>(Position::new(0, 3), MEMBERS.into(), &mut host);
        let Checkpoint { position, attempt } = checkpoint;
        assert_eq!((position, attempt), (Position::new(0, 4), Attempt(1)));
        assert_eq!(
            host.take(),
            [Act::Claim(Claim::CheckpointRequested { position, attempt, forced: false })]
        );
        (coordinator, checkpoint)
    }

    #[test]
    fn a_checkpoint_is_committed_once_all_parts_are_durable() {
        let (mut coordinator, checkpoint) = begun();
        assert_eq!(coordinator.saved(MEMBERS[0], checkpoint, &[(MEMBERS[1], 2)]), None);
        let counts = coordinator.saved(MEMBERS[1], checkpoint, &[(MEMBERS[0], 1)]);
        assert_eq!(counts.as_deref(), Some(&[(MEMBERS[0], 1), (MEMBERS[1], 2)][..]));
        assert!(!coordinator.drained(MEMBERS[0], checkpoint));
        assert_eq!(coordinator.commit(Time::ZERO), None, "a part is missing");
        assert!(coordinator.drained(MEMBERS[1], checkpoint));
        assert_eq!(coordinator.commit(Time::ZERO), Some((checkpoint, false)));
        assert_eq!(coordinator.commit(Time::ZERO), None, "a checkpoint is returned once");
        coordinator.committed(Time::ZERO);
        assert_eq!(coordinator.next_deadline(), Some(Time::ZERO + EVERY));
    }

    #[test]
    fn a_checkpoint_with_markers_needs_only_the_parts() {
        let mut coordinator = Coordinator::new(Schedule::new(Some(EVERY), None, Time::ZERO));
        let mut host = Recorder::default();
        let first = coordinator.begin_parts::<Plain>(Position::new(0, 3), MEMBERS.into(), &mut host);
        assert_eq!((first.position, first.attempt), (Position::new(0, 4), Attempt(1)));
        assert_eq!(coordinator.saved(MEMBERS[0], first, &[]), None, "no messages are counted");
        assert!(!coordinator.drained(MEMBERS[0], first));
        assert!(coordinator.drained(MEMBERS[1], first));
        assert_eq!(coordinator.commit(Time::ZERO), Some((first, false)));
        let next = coordinator.begin_parts::<Plain>(first.position, MEMBERS.into(), &mut host);
        assert_eq!((next.position, next.attempt), (Position::new(0, 5), Attempt(1)));
    }

    #[test]
    fn a_discarded_checkpoint_is_attempted_again_under_another_number() {
        let (mut coordinator, checkpoint) = begun();
        coordinator.discard();
        assert_eq!(coordinator.saved(MEMBERS[0], checkpoint, &[]), None);
        assert!(!coordinator.drained(MEMBERS[0], checkpoint));
        let again = coordinator.begin::<Plain>(Position::new(0, 3), MEMBERS.into(), &mut Recorder::default());
        assert_eq!((again.position, again.attempt), (checkpoint.position, Attempt(2)));
        coordinator.discard();
        coordinator.resumed(Time::ZERO);
        let next = coordinator.begin::<Plain>(Position::new(1, 3), MEMBERS.into(), &mut Recorder::default());
        assert_eq!(next.attempt, Attempt(1), "attempts are counted per incarnation");
    }
}
