//! The coordinator begins checkpoints and recoveries. It is outside the clusters, stores nothing, and may fail.
//!
//! The epoch of a recovery is the version of a membership. Versions are durable, and the same for all processes. A
//! restarted coordinator asks all processes which checkpoint is valid. If no process knows that a checkpoint is valid,
//! no process has deleted an older checkpoint because of it. The coordinator also asks for the newest map of
//! partitions. A process that runs a partition knows the map that assigns the partition to it.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Boot, Claim, ClusterId, Incarnation, LifeStart, Membership, Position, Presence, ProcessId, Role,
    Time, To,
};
use faultline_dataflow::partition::PartitionHost;

use super::Cck;
use super::config::{Config, Coordination, Rule};
use super::message::{EpochMap, Message};

/// State of the process that coordinates checkpoints and recoveries.
#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    me: ProcessId,
    config: Arc<Config>,
    membership: Arc<Membership>,
    epoch: Incarnation,
    /// The newest valid checkpoint; `None` if a restarted coordinator does not know it yet.
    valid: Option<Position>,
    /// Number of lives that the other processes have begun, plus the number of processes that never return,
    /// plus one. A recovery is due whenever this number changes.
    lives: u64,
    /// Where partitions have run since the last recovery.
    current_map: EpochMap,
    /// The clusters that were about to leave when the last recovery began. All processes know that these clusters are
    /// leaving.
    leaving: BTreeSet<ClusterId>,
    activity: Activity,
    /// Whether all processes have been up at the same time. Until then, some partitions may be unreachable.
    has_begun: bool,
    /// Time at which the next checkpoint is due.
    due: Time,
}

#[derive(Clone, Debug)]
enum Activity {
    /// Neither a checkpoint nor a recovery is in progress.
    Idle,
    /// A recovery is due, and begins once all processes are up.
    Waiting,
    /// These processes have not yet reported which checkpoint is valid; the position is the newest valid checkpoint
    /// reported so far.
    Surveying(BTreeSet<ProcessId>, Position),
    /// These partitions still lack values that were lost, and these processes may still run partitions that have moved.
    Recovering(BTreeSet<ProcessId>, BTreeSet<ProcessId>),
    /// A checkpoint is being taken, and these partitions have not saved their states.
    Checkpointing(Position, BTreeSet<ProcessId>),
}

impl Coordinator {
    pub(super) fn start(start: LifeStart<Config>, now: Time, host: &dyn PartitionHost<Cck>) -> Coordinator {
        let LifeStart { me, boot, membership, config, .. } = start;
        let is_first = boot == Boot::Fresh;
        Coordinator {
            me,
            epoch: Incarnation(0),
            valid: is_first.then(Position::default),
            lives: if is_first { membership.members.len() as u64 } else { 0 },
            current_map: EpochMap { epoch: Incarnation(0), map: host.initial_map().clone() },
            leaving: BTreeSet::new(),
            activity: Activity::Idle,
            has_begun: !is_first,
            due: now + config.interval,
            config,
            membership,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        (self.has_begun && matches!(self.activity, Activity::Idle)).then_some(self.due)
    }

    fn partitions(&self) -> BTreeSet<ProcessId> {
        self.membership.with_role(Role::RANK).collect()
    }

    fn broadcast(&self, message: &Message, host: &mut dyn PartitionHost<Cck>) {
        for it in self.partitions() {
            host.tell(self.me, it, message.clone());
        }
    }

    pub(super) fn update_membership(
        &mut self,
        membership: Arc<Membership>,
        now: Time,
        host: &mut dyn PartitionHost<Cck>,
    ) {
        let mut presences = self.membership.clusters.iter().zip(membership.clusters.iter());
        // The recovery after a survey has the epoch of the survey. Its map must not depend on a newer membership, which
        // other processes may not know yet.
        let is_outdated = presences.any(|(old, new)| old.presence != new.presence);
        if is_outdated && matches!(self.activity, Activity::Surveying(..)) {
            self.activity = Activity::Waiting;
        }
        self.membership = membership;
        let others = || (0..).map(ProcessId).zip(self.membership.members.iter()).filter(|it| it.0 != self.me);
        let lives =
            others().map(|(_, it)| u64::from(it.lives().max(1)) + u64::from(it.gone)).sum::<u64>() + 1;
        if lives != self.lives {
            self.lives = lives;
            self.activity = Activity::Waiting;
        }
        let are_up = others().all(|(id, it)| it.up || self.membership.is_absent(id));
        if are_up && !self.has_begun {
            (self.has_begun, self.due) = (true, now + self.config.interval);
        }
        let has_to_move = self.has_to_move();
        match self.activity {
            Activity::Waiting if are_up => {}
            // A checkpoint is taken first, so that the partitions move from a state that is as new as possible.
            Activity::Idle if has_to_move => {
                self.due = now;
                return;
            }
            _ => return,
        }
        self.epoch = epoch_of(&self.membership);
        if self.valid.is_some() {
            return self.recover(now, host);
        }
        let asked: Vec<ProcessId> =
            others().map(|(it, _)| it).filter(|it| !self.membership.is_absent(*it)).collect();
        for it in &asked {
            host.control(To::One(*it), Message::Survey(self.epoch));
        }
        self.activity = Activity::Surveying(asked.into_iter().collect(), Position::default());
    }

    fn recover(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        let valid = self.valid.expect("the valid checkpoint is known before a recovery begins");
        assert!(
            self.epoch > self.current_map.epoch && self.epoch > valid.incarnation,
            "recovery {:?} is newer than the map of {:?} and checkpoint {valid:?}",
            self.epoch,
            self.current_map.epoch
        );
        let map = self.current_map.map.update(&self.membership);
        self.current_map = EpochMap { epoch: self.epoch, map: map.clone() };
        self.leaving = self.all_leaving().collect();
        host.set_map(map.clone());
        let message = Message::Recover(self.epoch, valid, map.clone());
        self.broadcast(&message, host);
        // A process whose partitions have moved has to cede them, and may not know any map yet.
        let partitions = self.partitions();
        let hosts: BTreeSet<ProcessId> = partitions.iter().map(|it| map.host_of(*it)).collect();
        let idle = partitions.difference(&hosts).copied();
        let idle: BTreeSet<ProcessId> = idle.filter(|it| !self.membership.is_absent(*it)).collect();
        idle.iter().for_each(|it| host.control(To::One(*it), message.clone()));
        self.activity = Activity::Recovering(partitions, idle);
        if !self.config.obeys(Rule::AwaitsRerun) {
            (self.activity, self.due) = (Activity::Idle, now);
        }
    }

    /// Begins the recovery once every process has reported which checkpoint is valid.
    fn end_survey(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        if let Activity::Surveying(missing, newest) = &self.activity
            && missing.is_empty()
        {
            self.valid = Some(*newest);
            self.recover(now, host);
        }
    }

    /// Ends the recovery if no lost value is missing and all moved partitions have been ceded. The next checkpoint
    /// begins immediately, so that lost replicas are replaced as soon as possible.
    fn end_recovery(&mut self, now: Time) {
        if matches!(&self.activity, Activity::Recovering(missing, idle) if missing.is_empty() && idle.is_empty())
        {
            (self.activity, self.due) = (Activity::Idle, now);
        }
    }

    fn all_leaving(&self) -> impl Iterator<Item = ClusterId> {
        let clusters = (0..).map(ClusterId).zip(self.membership.clusters.iter());
        clusters.filter(|(_, it)| it.presence == Presence::Leaving).map(|(cluster, _)| cluster)
    }

    /// Returns whether a recovery is due without a failure, because clusters have joined or are leaving. A leaving
    /// cluster counts even if it runs no partition, because it may hold replicas.
    fn has_to_move(&self) -> bool {
        let EpochMap { map, .. } = &self.current_map;
        self.has_begun
            && self.membership.version.0 > u64::from(self.epoch.0)
            && (map.update(&self.membership) != *map
                || self.all_leaving().any(|it| !self.leaving.contains(&it)))
    }

    /// Releases each leaving cluster whose processes run no partition, once two checkpoints have been taken without it:
    /// all parts of the newest one record that the `previous` one is valid, so even a restarted coordinator needs
    /// nothing that the cluster stores. After the first of these checkpoints, the second one begins immediately.
    fn release_clusters(&mut self, previous: Position, now: Time, host: &mut dyn PartitionHost<Cck>) {
        let is_recorded = previous.incarnation == self.epoch;
        if !is_recorded && !self.leaving.is_empty() {
            self.due = now;
        }
        let map = &self.current_map.map;
        for cluster in self.all_leaving() {
            let processes = self.membership.processes_of(cluster);
            let is_running = self.partitions().iter().any(|it| processes.contains(&map.host_of(*it)));
            let is_free = !is_running && self.leaving.contains(&cluster) && is_recorded;
            if is_free {
                host.claim(Claim::Released { cluster });
            }
        }
    }

    /// Begins a checkpoint if one is due.
    pub(super) fn advance(&mut self, now: Time, host: &mut dyn PartitionHost<Cck>) {
        let (Activity::Idle, Some(valid)) = (&self.activity, self.valid) else { return };
        if now < self.due || !self.has_begun {
            return;
        }
        self.due = now + self.config.interval;
        let position = Position { incarnation: self.epoch, sn: valid.sn.next() };
        assert!(position > valid, "checkpoint {position:?} is newer than the valid one, {valid:?}");
        host.claim(Claim::CheckpointRequested { position, attempt: Attempt(1), forced: false });
        self.broadcast(&Message::Init(position, valid), host);
        let awaited = self.partitions();
        self.activity = Activity::Checkpointing(position, awaited);
    }

    pub(super) fn handle_message(
        &mut self,
        from: ProcessId,
        message: Message,
        now: Time,
        host: &mut dyn PartitionHost<Cck>,
    ) {
        let is_current = |epoch| epoch == self.epoch || !self.config.obeys(Rule::IgnoresOlderEpochs);
        match (message, &mut self.activity) {
            (Message::Known(epoch, known, current_map), Activity::Surveying(missing, newest))
                if epoch == self.epoch =>
            {
                *newest = (*newest).max(known);
                if current_map.epoch > self.current_map.epoch {
                    self.current_map = current_map;
                }
                missing.remove(&from);
                self.end_survey(now, host);
            }
            (Message::Done(epoch), Activity::Recovering(missing, _)) if is_current(epoch) => {
                missing.remove(&from);
                self.end_recovery(now);
            }
            (Message::Ceded(epoch), Activity::Recovering(_, idle)) if is_current(epoch) => {
                idle.remove(&from);
                self.end_recovery(now);
            }
            (Message::Ack(acked), Activity::Checkpointing(position, missing)) if acked == *position => {
                missing.remove(&from);
                if missing.is_empty() {
                    let previous = self.valid.replace(acked).expect("checkpoints follow a valid one");
                    assert!(previous < acked, "{acked:?} becomes valid after {previous:?}");
                    self.activity = Activity::Idle;
                    if self.config.coordination == Coordination::Global {
                        self.broadcast(&Message::Resume(acked), host);
                    }
                    self.release_clusters(previous, now, host);
                    if self.has_to_move() {
                        self.epoch = epoch_of(&self.membership);
                        return self.recover(now, host);
                    }
                }
            }
            _ => {}
        }
        self.advance(now, host);
    }
}

/// Returns the epoch of a recovery that begins in this membership.
fn epoch_of(membership: &Membership) -> Incarnation {
    Incarnation(u32::try_from(membership.version.0).expect("a version fits in 32 bits"))
}
