//! A process's own stable record, and the messages of thefts (*legs*, see [`Leg`]) that wait for it.
//!
//! The record consists of images. Under TIC, each image is a checkpoint of the graph. Images are written one at a
//! time, and all waiting legs wait for the same next image. Under SEL, a checkpoint is followed by segments of the
//! log of events. Several images are written at a time, and a segment does not count as durable until all images before
//! it are: only a prefix of a log can be replayed.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Cause, Claim, Image, ImageName, Life, Membership, Position, ProcessId, Sn, Span, Theft, Time, Vectors,
};
use faultline_dataflow::GraphEvent;
use faultline_dataflow::recovery::{Leg, TaskHost};

use super::TaskRecovery;
use super::config::{Config, Rule, StableState};
use super::copies::{CHECKPOINT, ImageOf, is_checkpoint};
use super::holders::holders;
use super::message::Head;

/// How long a write may take before it is repeated. The time doubles with each repetition, so that slow storage does
/// not receive the same image faster than it can write it.
const RETRY: Span = Span::from_millis(200);

/// The maximum number of images of the log that are written at a time; further events are combined in the next segment.
const IN_FLIGHT: usize = 4;

/// A process's own stable record.
#[derive(Clone, Debug)]
pub(super) struct Stable {
    me: ProcessId,
    life: Life,
    /// The processes that hold replicas of this process's images, in the current membership.
    holders: Vec<ProcessId>,
    /// The number of the checkpoint from which this life started; 0 means none.
    restored: Sn,
    /// The newest image of this life, durable or not.
    last: Option<ImageName>,
    /// The newest checkpoint that is durable locally and at its holders.
    pub(super) newest: Option<Arc<ImageOf>>,
    /// Writes in progress, in the order of their names.
    writing: VecDeque<Write>,
    /// Legs that wait for the next image.
    waiting: Vec<(Theft, Leg)>,
    /// Whether the current state has to become durable.
    is_wanted: bool,
    /// Whether the next image must be a checkpoint: the log does not contain all changes since the last one,
    /// or a holder lacks the checkpoint that the log follows.
    needs_checkpoint: bool,
    /// Legs whose image is durable, held until the membership states that this process has started.
    held: Vec<(Theft, Leg)>,
    /// The time at which the next checkpoint is due.
    due: Time,
    /// The time at which stalled writes are repeated, and the delay before that time, which doubles after each
    /// repetition.
    retry: (Time, Span),
    /// Whether a write has completed since the last decision about repetitions.
    has_progressed: bool,
}

/// An image that is being written to stable storage.
#[derive(Clone, Debug)]
struct Write {
    image: Arc<ImageOf>,
    is_forced: bool,
    here: Here,
    holders: BTreeSet<ProcessId>,
    legs: Vec<(Theft, Leg)>,
}

/// The state of an image in this process's own storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    Writing,
    Failed,
    Durable,
}

impl Stable {
    pub(super) fn new(
        me: ProcessId,
        life: Life,
        now: Time,
        config: &Config,
        membership: &Membership,
    ) -> Stable {
        Stable {
            me,
            life,
            holders: holders(config, membership, me),
            restored: Sn(0),
            last: None,
            newest: None,
            writing: VecDeque::new(),
            waiting: Vec::new(),
            is_wanted: false,
            needs_checkpoint: false,
            held: Vec::new(),
            due: now + config.tau,
            retry: (now + RETRY, RETRY),
            has_progressed: false,
        }
    }

    /// Returns whether this leg waits for an image and will therefore be sent.
    pub(super) fn awaits(&self, theft: Theft, leg: Leg) -> bool {
        let written = self.writing.iter().flat_map(|it| &it.legs);
        self.waiting.iter().chain(written).chain(&self.held).any(|it| *it == (theft, leg))
    }

    /// Makes the leg wait for the next image.
    pub(super) fn await_next(&mut self, theft: Theft, leg: Leg) {
        if !self.awaits(theft, leg) {
            self.waiting.push((theft, leg));
        }
    }

    /// Makes the current state durable as soon as the limit on concurrent writes allows it.
    pub(super) fn force(&mut self) {
        self.is_wanted = true;
    }

    /// Requires a checkpoint: the log since the last one is not complete, or some holders cannot use it.
    pub(super) fn force_checkpoint(&mut self) {
        self.is_wanted = true;
        self.needs_checkpoint = true;
    }

    /// Writes an image if one is due or wanted, and the limit on concurrent writes allows it.
    pub(super) fn advance(
        &mut self,
        config: &Config,
        membership: &Membership,
        now: Time,
        host: &mut dyn TaskHost<TaskRecovery>,
        absorbed: &BTreeSet<ProcessId>,
    ) {
        let is_due = now >= self.due;
        let (name, snapshot) = match config.record {
            StableState::Graph if !self.writing.is_empty() || !self.is_wanted && !is_due => return,
            StableState::Graph => (self.next_checkpoint(), host.snapshot()),
            StableState::Events if self.needs_checkpoint || is_due && !self.is_writing_checkpoint() => {
                (self.next_checkpoint(), host.snapshot())
            }
            StableState::Events if self.writing.len() >= IN_FLIGHT => return,
            StableState::Events => match (host.log(logged(config)), self.last) {
                (Some(segment), Some(last)) => (ImageName { attempt: last.attempt.next(), ..last }, segment),
                (None, None) if !self.is_wanted => return,
                // A log starts with a checkpoint.
                (_, None) => (self.next_checkpoint(), host.snapshot()),
                (None, Some(_)) => {
                    // All events are durable, or will be once the writes in progress complete.
                    self.is_wanted = false;
                    let legs = core::mem::take(&mut self.waiting);
                    return self.writing.back_mut().map_or(&mut self.held, |it| &mut it.legs).extend(legs);
                }
            },
        };
        let is_forced = core::mem::take(&mut self.is_wanted);
        if is_checkpoint(name) {
            self.due = now + config.tau;
            self.needs_checkpoint = false;
        }
        assert!(
            self.last < Some(name) && self.restored < name.sn,
            "{name:?} is newer than all images before it"
        );
        self.last = Some(name);
        let head = Arc::new(Head { absorbed: absorbed.iter().copied().collect() });
        let image = Arc::new(Image { name, head, saved: Arc::new(()), snapshot });
        host.persist(image.clone());
        let legs = core::mem::take(&mut self.waiting);
        let write = Write { image, is_forced, here: Here::Writing, holders: BTreeSet::new(), legs };
        write.send(&self.holders, membership, host);
        if self.writing.is_empty() {
            self.retry = (now + RETRY, RETRY);
        }
        self.writing.push_back(write);
    }

    /// Returns the time at which [`Stable::timeout`] must be called.
    pub(super) fn next_deadline(&self, config: &Config) -> Time {
        let is_open = match config.record {
            StableState::Graph => self.writing.is_empty(),
            StableState::Events => !self.is_writing_checkpoint(),
        };
        let retry = (!self.writing.is_empty()).then_some(self.retry.0);
        is_open.then_some(self.due).into_iter().chain(retry).min().unwrap_or(self.due)
    }

    fn next_checkpoint(&self) -> ImageName {
        let sn = self.last.map_or(self.restored, |it| it.sn).next();
        ImageName { owner: self.me, incarnation: self.life.incarnation(), sn, attempt: CHECKPOINT }
    }

    /// Repeats the writes in progress if they have stalled, because the storage may have been full, or a message lost.
    pub(super) fn timeout(
        &mut self,
        membership: &Membership,
        now: Time,
        host: &mut dyn TaskHost<TaskRecovery>,
    ) {
        if now < self.retry.0 || self.writing.is_empty() {
            return;
        }
        let after = if core::mem::take(&mut self.has_progressed) {
            RETRY
        } else {
            self.again(membership, host);
            self.retry.1 * 2
        };
        self.retry = (now + after, after);
    }

    /// Sends each image whose write is incomplete to the holders that have not confirmed it, and retries failed writes
    /// to this process's own storage. An image that this storage is still writing is not written twice: if the second
    /// write failed, the storage would lose it.
    pub(super) fn again(&mut self, membership: &Membership, host: &mut dyn TaskHost<TaskRecovery>) {
        for write in &mut self.writing {
            write.send(&self.holders, membership, host);
            if write.here == Here::Failed {
                write.here = Here::Writing;
                host.persist(write.image.clone());
            }
        }
    }

    /// Re-sends images to a holder whose storage was lost. Returns `false` if this process has no image to re-send.
    pub(super) fn refill(
        &mut self,
        holder: ProcessId,
        config: &Config,
        host: &mut dyn TaskHost<TaskRecovery>,
    ) -> bool {
        self.failed(holder);
        let image = match config.record {
            StableState::Graph => self.writing.back().map(|it| &it.image).or(self.newest.as_ref()),
            StableState::Events => {
                // A single checkpoint is all that the holder needs.
                self.needs_checkpoint |= self.last.is_some();
                return self.last.is_some();
            }
        };
        image.inspect(|it| host.send_image(holder, (**it).clone())).is_some()
    }

    /// Handles the failure of a process, which may have lost the images that it had confirmed.
    pub(super) fn failed(&mut self, holder: ProcessId) {
        for write in &mut self.writing {
            write.holders.remove(&holder);
        }
    }

    /// Handles permanent failures, after which other processes hold the replicas.
    pub(super) fn holders_changed(&mut self, config: &Config, membership: &Membership) {
        self.holders = holders(config, membership, self.me);
        self.needs_checkpoint |= config.record == StableState::Events && self.last.is_some();
    }

    /// Handles a completed or failed write to this process's own storage.
    pub(super) fn written(&mut self, name: ImageName, is_durable: bool) {
        if let Some(write) = self.find(name) {
            write.here = if is_durable { Here::Durable } else { Here::Failed };
        }
    }

    pub(super) fn is_at(&mut self, name: ImageName, holder: ProcessId) {
        if let Some(write) = self.find(name) {
            write.holders.insert(holder);
        }
    }

    fn find(&mut self, name: ImageName) -> Option<&mut Write> {
        self.writing.iter_mut().find(|it| it.image.name == name)
    }

    fn is_writing_checkpoint(&self) -> bool {
        self.writing.iter().any(|it| is_checkpoint(it.image.name))
    }

    /// Completes the oldest write if it is durable everywhere; otherwise completes the first checkpoint that
    /// is durable everywhere, since a checkpoint replaces all images before it. Returns the name of the
    /// image.
    pub(super) fn complete(
        &mut self,
        config: &Config,
        membership: &Membership,
        host: &mut dyn TaskHost<TaskRecovery>,
    ) -> Option<ImageName> {
        let is_durable = |write: &Write| {
            write.here == Here::Durable && self.holders.iter().all(|it| write.holders.contains(it))
        };
        let in_any_order = !config.obeys(Rule::DurableInOrder);
        let may_complete =
            |index: usize, write: &Write| index == 0 || is_checkpoint(write.image.name) || in_any_order;
        let complete = |(index, write): (usize, &Write)| may_complete(index, write) && is_durable(write);
        let index = self.writing.iter().enumerate().position(complete)?;
        let write = self.writing.remove(index)?;
        self.has_progressed = true;
        let name = write.image.name;
        if is_checkpoint(name) {
            let earlier = self.writing.drain(..index);
            self.held.extend(earlier.flat_map(|it| it.legs));
        }
        self.held.extend(write.legs);
        if is_checkpoint(name) {
            let before = self.newest.as_ref().map(|it| it.name);
            assert!(
                before < Some(name),
                "checkpoint {name:?} is newer than {before:?}, which was durable before it"
            );
            self.newest = Some(write.image);
            host.claim(Claim::Committed {
                position: name.position(),
                attempt: name.attempt,
                forced: write.is_forced,
                frozen: Span::ZERO,
                vectors: Arc::new(Vectors::default()),
            });
        }
        if !membership.member(self.me).started {
            host.started();
        }
        Some(name)
    }

    /// Sends the legs whose image is durable, once the membership states that this process has started.
    pub(super) fn release(&mut self, membership: &Membership, host: &mut dyn TaskHost<TaskRecovery>) {
        if membership.member(self.me).started {
            self.held.drain(..).for_each(|(theft, leg)| host.pass(theft, leg));
        }
    }

    /// Claims the rollback to the restored image.
    pub(super) fn claim_restored(&mut self, name: Option<ImageName>, host: &mut dyn TaskHost<TaskRecovery>) {
        let checkpoint = name.map(ImageName::position).unwrap_or_default();
        let is_earlier = |it: ImageName| it.owner == self.me && it.incarnation < self.life.incarnation();
        assert!(self.last.is_none(), "a process restores its state before it writes any image");
        assert!(name.is_none_or(is_earlier), "{name:?} is not an image of an earlier life of {:?}", self.me);
        self.restored = checkpoint.sn;
        host.claim(Claim::RolledBack {
            to: Position { incarnation: self.life.incarnation(), sn: checkpoint.sn },
            checkpoint,
            cause: Cause::Failure,
            vectors: Arc::new(Vectors::default()),
        });
    }
}

impl Write {
    fn send(&self, holders: &[ProcessId], membership: &Membership, host: &mut dyn TaskHost<TaskRecovery>) {
        for holder in holders {
            if !self.holders.contains(holder) && membership.member(*holder).up {
                host.send_image(*holder, self.image.clone());
            }
        }
    }
}

/// Returns the filter that selects the events to log: all events, except under a defect.
fn logged(config: &Config) -> fn(&GraphEvent) -> bool {
    if config.obeys(Rule::LogsThefts) {
        |_| true
    } else {
        |event| !matches!(event, GraphEvent::Lent(..) | GraphEvent::Voided(_))
    }
}
