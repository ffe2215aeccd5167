//! The coordinator's side of a recovery: it collects reports, chooses what to restore, and tells the members to
//! resume (section 3.4).
//!
//! Prepare to members, Inquire to holders -> Reported by all -> Restore to members, Note to holders -> copies
//! to holders that lack them -> Ready from all -> Resume. Every message carries the epoch of the round and is
//! void in any other epoch. A failure, a vanished part or a new life of a holder begins another round.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Cause, Claim, GroupId, ImageName, Incarnation, Membership, Position, ProcessId, Time, Vectors,
};

use super::config::Rule;
use super::message::{Control, Epoch, Head, RecoveryReport, RestorableCheckpoint, RollbackTarget};
use super::{Hc3i, Phase, ProtocolHost, merge_vectors, placement};
use crate::machines::{self, Checkpoint, Survey};

/// The coordinator's state during a round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    epoch: Epoch,
    cause: Cause,
    awaited: BTreeSet<ProcessId>,
    reports: Vec<(ProcessId, Arc<RecoveryReport>)>,
    target: Option<Arc<RollbackTarget>>,
}

type Parts = machines::Parts<Arc<Head>>;

impl Hc3i {
    /// Handles a member's report that it has delivered a message that a rollback elsewhere undid.
    pub(super) fn asked_to_roll_back(
        &mut self,
        incarnation: Incarnation,
        from: GroupId,
        position: Position,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if incarnation == self.position.incarnation {
            self.begin_next_round(Cause::Alert { from, position }, now, host);
        }
    }

    /// Begins a round among the same lives, unless one is in progress or will begin once a failed member is up again.
    pub(super) fn begin_next_round(&mut self, cause: Cause, now: Time, host: &mut ProtocolHost) {
        let recovering = matches!(self.phase, Phase::Recovering(_));
        if !recovering && self.all_members_up() {
            let epoch = Epoch { round: self.epoch.round + 1, ..self.epoch };
            self.begin_round(epoch, cause, now, host);
        }
    }

    /// Handles the loss of a part of a checkpoint that the cluster keeps. A round in progress relies on the part, so
    /// another round begins. Otherwise, collections stop relying on the checkpoint until the next round.
    pub(super) fn vanished(&mut self, epoch: Epoch, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if epoch != self.epoch {
            return; // Another round has begun, and asks for all parts.
        }
        let coordination = self.coordination();
        if let Some(cause) = coordination.round.as_ref().map(|round| round.cause) {
            self.begin_round(Epoch { round: epoch.round + 1, ..epoch }, cause, now, host);
        } else if coordination.vanished.insert(name.into()) {
            self.correct_inventory(host);
        }
    }

    /// Begins another round if an outside holder began a new life, since its answer may be lost.
    pub(super) fn restart_round_for_holders(&mut self, old: &Membership, now: Time, host: &mut ProtocolHost) {
        let Some(round) = self.coordination.as_ref().and_then(|it| it.round.as_ref()) else {
            return;
        };
        let (epoch, cause) = (round.epoch, round.cause);
        if self.outside_holders().any(|holder| self.began_new_life(holder, old)) {
            self.begin_round(Epoch { round: epoch.round + 1, ..epoch }, cause, now, host);
        }
    }

    pub(super) fn begin_round(&mut self, epoch: Epoch, cause: Cause, now: Time, host: &mut ProtocolHost) {
        let awaited = self.members.iter().copied().chain(self.outside_holders()).collect();
        self.forget_missing_replicas();
        self.coordination().vanished.clear();
        self.coordination().round = Some(Round { epoch, cause, awaited, reports: Vec::new(), target: None });
        let membership = self.membership.version;
        self.broadcast(Control::Prepare { epoch, membership }, host);
        let cluster = self.cluster;
        for holder in self.outside_holders().collect::<BTreeSet<_>>() {
            self.send_to(holder, Control::Inquire { epoch, cluster }, now, host);
        }
        self.prepare(epoch, membership, host);
    }

    /// Iterates over the processes outside the cluster that hold its parts.
    fn outside_holders(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.members
            .iter()
            .flat_map(|&member| placement::holders(&self.config, &self.membership, member))
            .filter(|&holder| self.cluster_of(holder) != self.cluster)
    }

    /// Collects a report, and chooses a target once all reports have arrived.
    pub(super) fn reported(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        report: Arc<RecoveryReport>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let Some(round) = self.coordination().round.as_mut() else {
            return;
        };
        if round.epoch != epoch || round.target.is_some() || !round.awaited.remove(&from) {
            return;
        }
        round.reports.push((from, report));
        if round.awaited.is_empty() {
            self.choose(now, host);
        }
    }

    /// Chooses the newest complete checkpoint that was neither undone nor collected, and that contains nothing that was
    /// undone elsewhere. The paper restores the checkpoint before that one.
    fn choose(&mut self, now: Time, host: &mut ProtocolHost) {
        let round = self.coordination().round.as_mut().expect("a round is in progress");
        let (epoch, cause) = (round.epoch, round.cause);
        let reports = core::mem::take(&mut round.reports);
        let mut survey = Survey::default();
        for (at, report) in &reports {
            self.history.merge(&report.history);
            for (name, head) in &report.parts {
                self.history.extend(self.cluster, &head.past);
                survey.add(*at, *name, head.clone());
            }
        }
        let holders: Vec<(ProcessId, Vec<ProcessId>)> = self
            .members
            .iter()
            .map(|&owner| (owner, placement::holders(&self.config, &self.membership, owner)))
            .collect();
        let mut kept: Vec<RestorableCheckpoint> = Vec::new();
        for (Checkpoint { position, attempt }, parts) in survey.complete(&self.members) {
            if self.may_restore(position) {
                let vectors = Arc::new(self.vectors_of(position, parts));
                if self.undone_in(&vectors).is_none() {
                    let covered =
                        holders.iter().all(|(owner, of)| of.iter().all(|it| parts[owner].1.contains(it)));
                    kept.push(RestorableCheckpoint { position, attempt, vectors, covered });
                }
            }
        }
        if !self.obeys(Rule::RestoresNewest) && kept.len() > 1 {
            kept.pop();
        }
        if kept.is_empty() && (self.has_started() || !self.obeys(Rule::StartGate)) {
            let missing = self.missing_parts(&survey);
            host.claim(Claim::Unrecoverable { group: self.cluster, missing });
            return;
        }
        // Parts can outlive the tables, and the supervisor counts the lives, so no incarnation is reused even if
        // everything else is lost.
        let of_parts = survey.all().map(|(it, _)| it.position.incarnation).max().unwrap_or_default();
        let failures = (epoch.lives - self.members.len() as u64) as u32;
        let incarnation = self.history.known(self.cluster).max(of_parts).next().max(Incarnation(failures));
        let checkpoint = kept.last().cloned();
        let sn = checkpoint.as_ref().map(|kept| kept.position.sn).unwrap_or_default();
        self.history.rolled_back(self.cluster, incarnation, sn);
        let sources = kept.iter().flat_map(|kept| survey.sources(kept.checkpoint())).collect();
        let uncovered =
            kept.iter().flat_map(|it| uncovered(it, survey.parts(it.checkpoint()), &holders)).collect();
        if let Some(target) = kept.last_mut() {
            target.covered = true; // Its replicas are confirmed before the cluster resumes.
        }
        let target = Arc::new(RollbackTarget {
            checkpoint,
            incarnation,
            cause,
            kept: kept.into(),
            sources,
            uncovered,
            history: self.history.clone(),
        });
        let awaited = self.members.iter().copied().chain(self.outside_holders()).collect();
        let round = self.coordination().round.as_mut().expect("a round is in progress");
        round.awaited = awaited;
        round.target = Some(target.clone());
        self.broadcast(Control::Restore { epoch, target: target.clone() }, host);
        let (cluster, past) = (self.cluster, self.history.of(self.cluster));
        for holder in self.outside_holders().collect::<BTreeSet<_>>() {
            self.send_to(holder, Control::Note { epoch, cluster, past: past.clone() }, now, host);
        }
        self.restore(epoch, target, now, host);
    }

    /// Returns whether a checkpoint of this cluster was neither undone nor [collected](machines::History::is_collected).
    fn may_restore(&self, position: Position) -> bool {
        let (history, cluster) = (&self.history, self.cluster);
        let is_collected =
            history.is_collected(cluster, position) && self.obeys(Rule::NeverRestoresCollected);
        !is_collected && !history.undid_checkpoint(cluster, position)
    }

    /// Returns the element-wise maxima of the vectors of a checkpoint's parts.
    fn vectors_of(&self, position: Position, parts: &Parts) -> Vectors {
        let mut vectors = Vectors::default();
        for (head, _) in parts.values() {
            merge_vectors(&mut vectors, &head.vectors);
        }
        let mut ddv = self.whole(&vectors.ddv);
        ddv[self.cluster.place()] = position;
        Vectors { ddv: ddv.into(), ..vectors }
    }

    /// Returns the missing parts that make the cluster unrecoverable, and the processes that were asked for each.
    fn missing_parts(&self, survey: &Survey<Arc<Head>>) -> Arc<[(ImageName, Vec<ProcessId>)]> {
        // Name as few lost parts as possible: of the checkpoints that lack the fewest parts, take the oldest. The
        // newest checkpoint may never have been committed; if there is another checkpoint, none of the newest one's
        // parts was needed.
        let lacks = |parts: &Parts, owner: &ProcessId| !parts.contains_key(owner);
        let restorable = |it: &(Checkpoint, &Parts)| self.may_restore(it.0.position);
        let newest = survey.all().filter(restorable).map(|(it, _)| it.position).max();
        let nearest = survey
            .all()
            .filter(restorable)
            .filter(|(_, parts)| parts.len() < self.members.len())
            .min_by_key(|(it, parts)| (Some(it.position) == newest, self.members.len() - parts.len()));
        // If no checkpoint has any part left, the oldest uncollected one was needed.
        let first = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
        let oldest = self.history.collected(self.cluster).max(first);
        let nothing = Parts::new();
        let (checkpoint, parts) = nearest.unwrap_or((oldest, &nothing));
        let asked = |owner: ProcessId| {
            let holders = placement::holders(&self.config, &self.membership, owner);
            core::iter::once(owner).chain(holders).collect()
        };
        self.members
            .iter()
            .filter(|owner| lacks(parts, owner))
            .map(|&owner| (checkpoint.part(owner), asked(owner)))
            .collect()
    }

    pub(super) fn ready(&mut self, from: ProcessId, epoch: Epoch, now: Time, host: &mut ProtocolHost) {
        let Some(round) = self.coordination().round.as_mut() else {
            return;
        };
        if round.epoch == epoch
            && round.target.is_some()
            && round.awaited.remove(&from)
            && round.awaited.is_empty()
        {
            self.maybe_resume(now, host);
        }
    }

    /// Resumes the cluster once all members and holders are ready and no member has failed since. If the restored state
    /// lets the application act for the first time, the supervisor must record this first.
    pub(super) fn maybe_resume(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(round) = self.coordination.as_ref().and_then(|it| it.round.as_ref()) else {
            return;
        };
        let Some(target) = round.target.as_ref().filter(|_| round.awaited.is_empty()) else {
            return;
        };
        let acts = target.checkpoint.is_some();
        let epoch = round.epoch;
        if !self.all_members_up() {
            // Another round begins once all members are up.
        } else if acts && !self.has_started() && self.obeys(Rule::StartGate) {
            host.started();
        } else {
            self.coordination().round = None;
            self.broadcast(Control::Resume { epoch }, host);
            self.resume(epoch, now, host);
        }
    }
}

/// Returns the parts of a checkpoint that holders lack, each with the holder that lacks it.
fn uncovered(
    kept: &RestorableCheckpoint,
    parts: &Parts,
    holders: &[(ProcessId, Vec<ProcessId>)],
) -> Vec<(ImageName, ProcessId)> {
    let lacking = |(owner, of): &(ProcessId, Vec<ProcessId>)| {
        let (part, has) = (kept.part(*owner), &parts[owner].1);
        let without: Vec<_> = of.iter().filter(|it| !has.contains(it)).map(|&it| (part, it)).collect();
        without
    };
    holders.iter().flat_map(lacking).collect()
}
