//! Communication while a checkpoint is being taken: between the coordinator and all processes, or between the
//! coordinator and the leaders of clusters (L1, L2). A leader forwards the coordinator's commands to its cluster and
//! sends one answer for all its members, so the coordinator exchanges at most one command and one answer with each
//! cluster per step. Recoveries do not involve leaders.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Host, ProcessId, Time, To};

use super::{Config, Control, Coordinated, Coordination, Rank, Rule};
use crate::machines::group::Group;
use crate::machines::{Checkpoint, Gathering};

/// State of a process that leads its cluster.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    members: Arc<[ProcessId]>,
    gathering: Option<Gathering>,
}

impl Leader {
    /// Creates the state of a process that leads its cluster. Returns `None` for any other process, and in the variant
    /// without leaders.
    pub(super) fn of(config: &Config, group: &Group<Coordinated>) -> Option<Leader> {
        let members = members(group).clone();
        let leads = config.coordination == Coordination::Hierarchical && members[0] == group.me;
        leads.then_some(Leader { members, gathering: None })
    }
}

/// Returns the processes of this process's cluster. Its leader is the lowest-numbered one.
fn members(group: &Group<Coordinated>) -> &Arc<[ProcessId]> {
    let membership = &group.view.membership;
    membership.processes_of(membership.cluster_of(group.me))
}

impl Rank {
    /// Returns the processes that answer the coordinator.
    pub(super) fn answering(&self) -> Arc<[ProcessId]> {
        match self.config.coordination {
            Coordination::Direct => self.group.members.clone(),
            Coordination::Hierarchical => {
                self.group.view.membership.clusters.iter().map(|it| it.processes[0]).collect()
            }
        }
    }

    /// Sends a command from the coordinator to all processes, or to all leaders, and carries it out on this process,
    /// too.
    pub(super) fn command(&mut self, message: Control, now: Time, host: &mut dyn Host<Coordinated>) {
        match self.config.coordination {
            Coordination::Direct => self.group.broadcast(message.clone(), host),
            Coordination::Hierarchical => {
                let leaders = Vec::from_iter(self.answering().iter().copied());
                for leader in leaders.into_iter().filter(|&it| it != self.group.me) {
                    host.control(To::One(leader), message.clone());
                }
            }
        }
        self.handle_message(self.group.me, message, now, host);
    }

    /// Forwards the coordinator's commands to this leader's cluster (L1).
    pub(super) fn pass_on(&mut self, from: ProcessId, message: &Control, host: &mut dyn Host<Coordinated>) {
        let is_command =
            matches!(message, Control::Request(_) | Control::Drain { .. } | Control::Commit { .. });
        let Some(leader) = self.member.leader.as_mut().filter(|_| is_command) else { return };
        assert_eq!(from, self.group.coordinator(), "only the coordinator sends commands to leaders");
        if let Control::Request(checkpoint) = message {
            leader.gathering = Some(Gathering::new(*checkpoint, leader.members.clone()));
        }
        let cluster = self.group.view.membership.cluster_of(self.group.me);
        host.control(To::Cluster(cluster), message.clone());
    }

    /// Answers the coordinator, or the leader that answers on this process's behalf.
    pub(super) fn answer(&mut self, message: Control, now: Time, host: &mut dyn Host<Coordinated>) {
        let receiver = match self.config.coordination {
            Coordination::Direct => self.group.coordinator(),
            Coordination::Hierarchical => members(&self.group)[0],
        };
        if receiver == self.group.me {
            self.handle_message(receiver, message, now, host);
        } else {
            host.control(To::One(receiver), message);
        }
    }

    /// Handles the report that a member has saved its state, or that all processes of a cluster have.
    pub(super) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let counts_all = self.config.options.defects.obeys(Rule::LeaderCountsAll);
        let Some(leader) = self.member.leader.as_mut().filter(|it| it.members.contains(&from)) else {
            return self.counted(from, checkpoint, sent, now, host);
        };
        let Some(gathering) = &mut leader.gathering else { return };
        let is_first = gathering.is_saving(checkpoint);
        let counts = match gathering.saved(from, checkpoint, sent) {
            None if is_first && !counts_all => Some(gathering.counted()),
            counts => counts,
        };
        if let Some(sent) = counts {
            self.report(Control::Saved { checkpoint, sent }, now, host);
        }
    }

    /// Handles a report that parts are durable: a member's own part, or all parts of another leader's
    /// cluster.
    pub(super) fn drained(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let drains_all = self.config.options.defects.obeys(Rule::LeaderDrainsAll);
        let Some(leader) = self.member.leader.as_mut().filter(|it| it.members.contains(&from)) else {
            return self.parts_durable(from, checkpoint, now, host);
        };
        if leader.gathering.as_mut().is_some_and(|it| it.drained(from, checkpoint) || !drains_all) {
            leader.gathering = None;
            self.report(Control::Drained(checkpoint), now, host);
        }
    }

    /// Answers the coordinator on behalf of this leader's cluster (L2).
    fn report(&mut self, message: Control, now: Time, host: &mut dyn Host<Coordinated>) {
        let me = self.group.me;
        match message {
            Control::Saved { checkpoint, sent } if self.group.coordinates() => {
                self.counted(me, checkpoint, &sent, now, host);
            }
            Control::Drained(checkpoint) if self.group.coordinates() => {
                self.parts_durable(me, checkpoint, now, host);
            }
            message => host.control(To::One(self.group.coordinator()), message),
        }
    }
}
