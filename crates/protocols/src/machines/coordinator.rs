//! The process that begins and commits the checkpoints of a group.

use alloc::sync::Arc;

use faultline_core::{Attempt, Claim, Machine, Position, ProcessId, Sn, Speaks, Time};

use super::gathering::Counts;
use super::{Checkpoint, Gathering, Schedule};

/// The coordinator's side of a checkpoint that is taken in two rounds: it requests the checkpoint, learns from every
/// member what it had sent, tells every member what to wait for, and commits once all parts are durable. At most one
/// checkpoint is in progress.
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

    /// Returns when the next checkpoint is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.schedule.next()
    }

    /// Begins the checkpoint after the one at `last`. `answering` are the processes that answer.
    pub(crate) fn begin<S: Speaks>(
        &mut self,
        last: Position,
        answering: Arc<[ProcessId]>,
        host: &mut dyn Machine<S>,
    ) -> Checkpoint {
        self.attempts += 1;
        self.schedule.stop();
        let position = Position { sn: Sn(last.sn.0 + 1), ..last };
        let checkpoint = Checkpoint { position, attempt: Attempt(self.attempts) };
        self.gathering = Some(Gathering::new(checkpoint, answering));
        host.claim(Claim::CheckpointRequested { position, attempt: checkpoint.attempt, forced: false });
        checkpoint
    }

    /// A member has saved its state, and had sent this many messages. Returns the sums once all have answered.
    pub(crate) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
    ) -> Option<Counts> {
        self.gathering.as_mut()?.saved(from, checkpoint, sent)
    }

    /// A member's part is durable. Returns whether all parts now are.
    pub(crate) fn drained(&mut self, from: ProcessId, checkpoint: Checkpoint) -> bool {
        self.gathering.as_mut().is_some_and(|it| it.drained(from, checkpoint))
    }

    /// Returns the checkpoint of which all parts are durable, once, and whether it removes all older ones.
    pub(crate) fn commit(&mut self, now: Time) -> Option<(Checkpoint, bool)> {
        let gathering = self.gathering.take_if(|it| it.is_over())?;
        Some((gathering.checkpoint(), self.schedule.collects(now)))
    }

    /// The checkpoint is committed: begins the delay before the next one.
    pub(crate) fn committed(&mut self, now: Time) {
        self.schedule.restart(now);
    }

    /// A member has failed: discards the checkpoint in progress.
    pub(crate) fn discard(&mut self) {
        self.gathering = None;
        self.schedule.stop();
    }

    /// The group resumes in a new incarnation.
    pub(crate) fn resumed(&mut self, now: Time) {
        self.attempts = 0;
        self.schedule.restart(now);
    }
}
