//! A federation of processes under a protocol: its setup, its application, and the checker's verdict on it.

use std::sync::Arc;

use faultline_checker::{Context, History, Judgement, Strictness, judge_history};
use faultline_core::fault::Outcome;
use faultline_core::{
    Application, Boot, Claim, Cluster, ClusterId, Event, Fact, Life, Member, Membership, MembershipVersion,
    MessageId, Node, NodeConfig, NodeId, Presence, ProcessId, Promises, Protocol, Role, Span, StorageFate,
};
use faultline_trace::Manifest;

use super::driver::{Computation, Hosts};
use super::script::{AppAction, LEAVE, Script, Send};
use super::transcript::Entry;

/// Processes under a protocol, whose environment the test controls.
pub(crate) type Federation<P, A = Script> = Hosts<Node<P, A>>;

impl<P: Protocol> Federation<P> {
    /// Creates clusters of these sizes. Every process is in its first life. Nothing has been delivered or written
    /// yet.
    pub(crate) fn new(clusters: &[u32], config: P::Config) -> Federation<P> {
        Federation::with_application(clusters, config, ())
    }

    /// Creates clusters of these sizes, some of which join later or leave.
    pub(crate) fn with_presences(
        clusters: &[u32],
        config: P::Config,
        guests: &[(ClusterId, Presence)],
    ) -> Federation<P> {
        let mut membership = first_membership(clusters, P::extra_processes(&config));
        for &(cluster, presence) in guests {
            Arc::make_mut(&mut membership.clusters)[cluster.index()].presence = presence;
            if presence == Presence::Awaited {
                for &process in membership.processes_of(cluster).clone().iter() {
                    let member = &mut Arc::make_mut(&mut membership.members)[process.index()];
                    (member.life, member.up) = (Life(0), false);
                }
            }
        }
        Federation::of(membership, config, ())
    }

    /// Makes an awaited cluster join.
    pub(crate) fn join(&mut self, cluster: ClusterId) {
        self.enter(cluster, Presence::Present);
        self.state_supervisor(Fact::Joined(cluster));
        for &process in self.members(cluster).iter() {
            let member = self.member(process);
            (member.life, member.up) = (Life(1), true);
        }
        self.announce();
        for &process in self.members(cluster).iter() {
            self.hosted[process.index()].view = Arc::new(self.membership.clone());
            self.begin_life(process, Boot::Fresh);
        }
    }

    /// Makes the application of `process` leave the program. Panics if the application cannot act.
    pub(crate) fn leave(&mut self, process: ProcessId) {
        let Computation { no, .. } =
            self.hosted[process.index()].jobs.pop().expect("an application that leaves can act");
        self.feed(process, Event::Computed(no, Send { to: process, text: LEAVE.into() }));
    }

    /// Returns whether `cluster` has received everything that was sent to it. A program must ensure this before a
    /// cluster leaves.
    pub(crate) fn has_everything(&self, cluster: ClusterId) -> bool {
        let ranks = || self.processes().filter(|it| self.cluster_of(*it) != ClusterId::OUTSIDE);
        let mut living = ranks().filter(|it| self.membership.is_present(*it));
        living.all(|from| {
            self.lives(from)
                && self.app_actions(from).iter().all(|app_action| match app_action {
                    AppAction::Sent(to, text) if self.cluster_of(*to) == cluster => {
                        self.lives(*to)
                            && self.app_actions(*to).contains(&AppAction::Received(from, text.clone()))
                    }
                    _ => true,
                })
        })
    }

    /// Returns whether the application of `process`, which must be alive, has left the program.
    pub(crate) fn has_left(&self, process: ProcessId) -> bool {
        self.application(process).has_left()
    }

    /// Returns whether the protocol permits `cluster` to leave.
    pub(crate) fn may_leave(&self, cluster: ClusterId) -> bool {
        self.releases(cluster) > 0
    }

    /// Returns the number of times that the protocol has permitted `cluster` to leave.
    pub(crate) fn releases(&self, cluster: ClusterId) -> usize {
        let coordinator = self.members(cluster)[0];
        self.claims(coordinator).filter(|it| **it == Claim::Released { cluster }).count()
    }

    /// Makes a cluster leave. Its processes end, and their storage is lost.
    pub(crate) fn leave_federation(&mut self, cluster: ClusterId) {
        self.enter(cluster, Presence::Left);
        self.state_supervisor(Fact::Left(cluster));
        for &process in self.members(cluster).iter() {
            self.member(process).up = false;
            self.end_life(process, StorageFate::Lost);
        }
        self.announce();
    }

    fn enter(&mut self, cluster: ClusterId, presence: Presence) {
        Arc::make_mut(&mut self.membership.clusters)[cluster.index()].presence = presence;
    }
}

impl<P: Protocol, A: Application> Federation<P, A> {
    /// Creates clusters of these sizes, with any application.
    pub(crate) fn with_application(
        clusters: &[u32],
        config: P::Config,
        application: A::Config,
    ) -> Federation<P, A> {
        Federation::of(first_membership(clusters, P::extra_processes(&config)), config, application)
    }

    fn of(membership: Membership, protocol: P::Config, application: A::Config) -> Federation<P, A> {
        let (protocol, application) = (Arc::new(protocol), Arc::new(application));
        Hosts::start(membership, NodeConfig { protocol, application, verify: false })
    }

    /// Returns the application of a rank, which must be alive.
    pub(crate) fn application(&self, process: ProcessId) -> &A {
        let node = self.hosted[process.index()].node.as_ref().expect("only a live process has a state");
        node.application().expect("the process is a rank")
    }

    /// Returns the protocol of a process. Panics if the process is down.
    pub(crate) fn protocol(&self, process: ProcessId) -> &P {
        self.hosted[process.index()].node.as_ref().expect("only a live process has a state").protocol()
    }

    /// Returns the verdict of the checker on the facts so far, as if the run ended here. The checker thus
    /// also requires that every message that the applications sent has been delivered.
    pub(crate) fn judge(&self) -> Judgement {
        self.judge_as(Strictness::Lenient)
    }

    /// Same as [`Federation::judge`]. Under [`Strictness::Strict`], waste is a violation, too.
    pub(crate) fn judge_as(&self, strictness: Strictness) -> Judgement {
        let sizes: Vec<u32> =
            self.membership.clusters.iter().map(|cluster| cluster.processes.len() as u32).collect();
        let promises = Promises::of::<P>(&self.config.protocol);
        let mut manifest = Manifest { duration: Span(self.steps), ..Manifest::bare(promises, &sizes) };
        let given_up = self.log.iter().find_map(|entry| match entry {
            Entry::Fact { fact: Fact::Claim(claim), .. } => Outcome::of_claim(claim),
            _ => None,
        });
        manifest.outcome = Some(given_up.unwrap_or(Outcome::Completed));
        judge_history(&History::new(&self.trace, &Context::from_manifest(&manifest)), strictness)
    }
}

/// Commands to the application, and queries about its state.
impl<P: Protocol> Federation<P> {
    /// Makes the application of `from` send `text` to `to`. Panics if the application cannot act.
    pub(crate) fn send(&mut self, from: ProcessId, to: ProcessId, text: &str) -> MessageId {
        let job = self.hosted[from.index()].jobs.pop();
        let Computation { no, .. } =
            job.unwrap_or_else(|| panic!("{from} has to send {text}, but may not act"));
        let before = self.log.len();
        self.feed(from, Event::Computed(no, Send { to, text: text.into() }));
        let sent = self.log[before..].iter().find_map(|entry| match entry {
            Entry::Fact { fact: Fact::Sent { id, .. }, .. } => Some(*id),
            _ => None,
        });
        let id = sent.expect("an application sends what the test commands");
        self.texts.insert(id, text.into());
        id
    }

    /// Returns the contents of the messages that the application of `process` has received according to its current
    /// state.
    pub(crate) fn received(&self, process: ProcessId) -> Vec<&str> {
        self.app_actions(process)
            .iter()
            .filter_map(|it| match it {
                AppAction::Received(_, text) => Some(text.as_str()),
                AppAction::Sent(..) | AppAction::Left => None,
            })
            .collect()
    }

    /// Returns the contents of the messages that the application of `process` has sent according to its current state.
    pub(crate) fn sent(&self, process: ProcessId) -> Vec<&str> {
        self.app_actions(process)
            .iter()
            .filter_map(|it| match it {
                AppAction::Sent(_, text) => Some(text.as_str()),
                AppAction::Received(..) | AppAction::Left => None,
            })
            .collect()
    }

    fn app_actions(&self, process: ProcessId) -> &[AppAction] {
        &self.application(process).done
    }
}

/// Creates a membership in which every process is up, in its first life.
fn first_membership(clusters: &[u32], extra: Vec<Role>) -> Membership {
    let mut members = Vec::new();
    let mut add = |cluster, role| {
        let id = members.len() as u32;
        members.push(Member {
            cluster,
            role,
            node: NodeId(id),
            life: Life(1),
            up: true,
            started: false,
            gone: false,
            idle_lives: 0,
        });
        ProcessId(id)
    };
    let mut groups = Vec::new();
    for (cluster, &size) in clusters.iter().enumerate() {
        let processes = (0..size).map(|_| add(ClusterId(cluster as u16), Role::RANK)).collect();
        groups.push(Cluster::new(processes));
    }
    for role in extra {
        add(ClusterId::OUTSIDE, role);
    }
    Membership { version: MembershipVersion(1), members: members.into(), clusters: groups.into() }
}
