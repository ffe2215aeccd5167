//! The federation: processes and their simulated environment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultline_checker::{Context, History, Judgement, Strictness, judge_history};
use faultline_core::application::Job as _;
use faultline_core::fault::{Outcome, StorageFault};
use faultline_core::{
    Application, Boot, Claim, Cluster, ClusterId, EndedBy, Event, Fact, Fault, ImageName, Life, Member,
    Membership, MembershipVersion, MessageId, NodeConfig, NodeId, Presence, Process, ProcessId, Promises,
    Protocol, Role, Span, StorageFate, Time,
};
use faultline_trace::{Manifest, Trace};

use super::driver::{Note, TestProcess};
use super::network::{Flight, Hold, Network};
use super::script::{AppAction, LEAVE, Script, Send};
use super::storage::EventOf;
use super::transcript::Entry;

/// Maximum number of steps. Only a scenario that never becomes quiescent reaches it.
const MAX_STEPS: usize = 100_000;

/// Processes under a protocol, whose environment the test controls.
pub(crate) struct Federation<P: Protocol, A: Application = Script> {
    pub(super) config: Arc<NodeConfig<P, A>>,
    pub(super) membership: Membership,
    pub(super) hosted: Vec<TestProcess<P, A>>,
    pub(super) network: Network<P>,
    /// Requests from processes to the supervisor.
    pub(super) notes: VecDeque<Note>,
    pub(super) notes_held: bool,
    pub(super) output_survives: bool,
    /// Selects the packets that arrive twice.
    pub(super) twice: Option<fn(&Flight<P>) -> bool>,
    pub(super) faults: u32,
    /// Number of facts recorded so far. Each fact is timed by it, which orders the facts of different processes.
    pub(super) steps: u64,
    pub(super) trace: Trace,
    pub(super) log: Vec<Entry<P>>,
    pub(super) texts: BTreeMap<MessageId, String>,
}

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
        let (job, _) = self.hosted[process.index()].job.take().expect("an application that leaves can act");
        self.feed(process, Event::Computed(job, Send { to: process, text: LEAVE.into() }));
    }

    /// Returns whether `cluster` has received everything that was sent to it. The program ensures this for a
    /// cluster that leaves.
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

    /// Makes a cluster leave. Its processes end, and its storage is lost.
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

    /// Creates all processes in their first life, except for those of awaited clusters.
    fn of(membership: Membership, config: P::Config, application: A::Config) -> Federation<P, A> {
        let view = Arc::new(membership.clone());
        let mut federation = Federation {
            config: Arc::new(NodeConfig {
                protocol: Arc::new(config),
                application: Arc::new(application),
                defects: Default::default(),
            }),
            hosted: membership.members.iter().map(|_| TestProcess::new(view.clone())).collect(),
            membership,
            network: Network::new(),
            notes: VecDeque::new(),
            notes_held: false,
            output_survives: false,
            twice: None,
            faults: 0,
            steps: 0,
            trace: Trace::default(),
            log: Vec::new(),
            texts: BTreeMap::new(),
        };
        federation.state_supervisor(Fact::Begun);
        for process in
            federation.processes().filter(|&it| federation.membership.is_present(it)).collect::<Vec<_>>()
        {
            federation.begin_life(process, Boot::Fresh);
        }
        federation
    }

    // Events

    /// Performs everything that is in transit, pending or due and not held, until nothing is left. Time does
    /// not advance.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            if !self.step() {
                return;
            }
        }
        panic!("the federation does not become quiescent");
    }

    /// Performs one step. Returns `false` if no step is possible.
    pub(crate) fn step(&mut self) -> bool {
        self.take_note()
            || self.deliver_membership()
            || self.complete_operation()
            || self.deliver_next()
            || self.fire_due_timer()
    }

    /// Performs any of the possible steps, in no fixed order: `pick` receives their number and returns the index of one
    /// of them. Returns `false` if no step is possible. For random schedules: notes, memberships, storage operations
    /// and packets have no priority.
    pub(crate) fn step_any(&mut self, pick: impl FnOnce(usize) -> usize) -> bool {
        let hosted = || self.processes().map(ProcessId::index);
        let told: Vec<usize> = hosted().filter(|&it| self.hosted[it].has_news()).collect();
        let storing: Vec<usize> = hosted().filter(|&it| self.hosted[it].can_complete()).collect();
        let notes = usize::from(!self.notes.is_empty() && !self.notes_held);
        let flying = self.network.free(|flight| self.can_arrive(flight));
        let count = notes + told.len() + storing.len() + flying.len();
        if count == 0 {
            return self.fire_due_timer();
        }
        match pick(count) {
            place if place < notes => {
                self.take_note();
            }
            place if place < notes + told.len() => self.tell(told[place - notes]),
            place if place < count - flying.len() => self.complete(storing[place - notes - told.len()]),
            place => {
                let flight = self.network.remove(flying[place + flying.len() - count]);
                self.deliver(flight);
            }
        }
        true
    }

    /// Advances the time of one process after another: handles its deadlines within `span` in order, with all their
    /// consequences.
    pub(crate) fn pass(&mut self, span: Span) {
        for process in self.processes() {
            let until = self.hosted[process.index()].clock + span;
            while self.deadline(process).is_some_and(|at| at <= until) {
                self.fire_timer(process);
                self.settle();
            }
            self.hosted[process.index()].clock = until;
        }
    }

    /// Advances the time of one process to its next deadline. Panics if it has none.
    pub(crate) fn fire_timer(&mut self, process: ProcessId) {
        let deadline = self.deadline(process).expect("the process has no deadline");
        let hosted_process = &mut self.hosted[process.index()];
        hosted_process.clock = hosted_process.clock.max(deadline);
        self.feed(process, Event::Timeout);
    }

    /// Advances the time of one process by `span`, and wakes it once, at the end.
    pub(crate) fn wake(&mut self, process: ProcessId, span: Span) {
        self.hosted[process.index()].clock += span;
        self.feed(process, Event::Timeout);
    }

    pub(crate) fn lives(&self, process: ProcessId) -> bool {
        self.hosted[process.index()].node.is_some()
    }

    /// Returns the next deadline of `process`; `None` if it has none or is down.
    pub(crate) fn deadline(&self, process: ProcessId) -> Option<Time> {
        self.hosted[process.index()].node.as_ref().and_then(Process::next_deadline)
    }

    /// Delivers any event to a process. Panics if the process is down.
    pub(crate) fn feed(&mut self, process: ProcessId, event: EventOf<P, A>) {
        let hosted_process = &mut self.hosted[process.index()];
        let mut actions = Vec::new();
        let node = hosted_process.node.as_mut().expect("only a live process receives events");
        node.handle(event, hosted_process.clock, &mut actions);
        self.perform(process, actions);
    }

    // The application

    /// Returns whether the application of `process` has a computation in progress, which the test can complete.
    pub(crate) fn can_act(&self, process: ProcessId) -> bool {
        self.hosted[process.index()].job.is_some()
    }

    /// Completes the computation of `process`. Panics if there is none.
    pub(crate) fn compute(&mut self, process: ProcessId) {
        let (no, job) = self.hosted[process.index()].job.take().expect("something is being computed");
        self.feed(process, Event::Computed(no, job.run()));
    }

    /// Returns the application of a rank, which must be alive.
    pub(crate) fn application(&self, process: ProcessId) -> &A {
        let node = self.hosted[process.index()].node.as_ref().expect("only a live process has a state");
        node.application().expect("the process is a rank")
    }

    // The network

    /// Holds matching packets.
    pub(crate) fn hold(&mut self, which: impl Fn(&Flight<P>) -> bool + 'static) -> Hold {
        self.network.hold(which)
    }

    /// Ends a hold.
    pub(crate) fn release(&mut self, hold: Hold) {
        self.network.release(hold);
    }

    /// Delivers exactly the matching packets that are in transit now, held or not. Returns their number.
    pub(crate) fn let_through(&mut self, which: impl Fn(&Flight<P>) -> bool) -> usize {
        let mut delivered = Vec::new();
        while let Some(flight) = self.network.take(&which) {
            delivered.push(flight);
        }
        let count = delivered.len();
        for flight in delivered {
            assert!(self.can_arrive(&flight), "{} does not know its sender's life yet", flight.to);
            self.deliver(flight);
        }
        count
    }

    /// Returns the number of matching packets in transit.
    pub(crate) fn in_transit(&self, which: impl Fn(&Flight<P>) -> bool) -> usize {
        self.network.flights().iter().filter(|flight| which(flight)).count()
    }

    /// Keeps the packets that a process sent before its failure: they can still arrive as long as their receiver does
    /// not know the sender's next life.
    pub(crate) fn let_output_survive(&mut self) {
        self.output_survives = true;
    }

    /// Makes matching packets arrive twice, which no driver does.
    pub(crate) fn duplicate(&mut self, which: fn(&Flight<P>) -> bool) {
        self.twice = Some(which);
    }

    // Storage

    /// Sets whether storage operations of `process` are held back instead of completing.
    pub(crate) fn hold_storage(&mut self, process: ProcessId, held: bool) {
        self.hosted[process.index()].storage.held = held;
    }

    /// Sets whether writes of images fail at `process`, because its storage is full.
    pub(crate) fn fail_writes(&mut self, process: ProcessId, full: bool) {
        if full {
            self.inject(Fault::Storage { process, how: StorageFault::Full, span: None });
        }
        self.hosted[process.index()].storage.full = full;
    }

    /// Corrupts all images in the storage of `process`: they are still listed, but cannot be read.
    pub(crate) fn corrupt(&mut self, process: ProcessId) {
        self.inject(Fault::Storage { process, how: StorageFault::Corrupt, span: None });
        let storage = &mut self.hosted[process.index()].storage;
        storage.corrupt = storage.images.keys().copied().collect();
    }

    /// Returns the images in the storage of `process`, ascending.
    pub(crate) fn images(&self, process: ProcessId) -> Vec<ImageName> {
        self.hosted[process.index()].storage.images.keys().copied().collect()
    }

    // Lives

    /// Kills `process`. No other process is informed.
    pub(crate) fn kill(&mut self, process: ProcessId, storage: StorageFate) {
        let life = self.hosted[process.index()].life;
        self.state_supervisor(Fact::Failed { process, life, storage, by: EndedBy::Silence });
        self.end_life(process, storage);
    }

    fn end_life(&mut self, process: ProcessId, storage: StorageFate) {
        let hosted_process = &mut self.hosted[process.index()];
        hosted_process.node = None;
        hosted_process.job = None;
        hosted_process.news.clear();
        hosted_process.replaced |= storage == StorageFate::Lost;
        hosted_process.storage.crash(storage);
        if !self.output_survives {
            self.network.drop_all(|flight| flight.from == process);
        }
    }

    /// Informs all processes that `process` is down.
    pub(crate) fn detect(&mut self, process: ProcessId) {
        let life = self.hosted[process.index()].life;
        self.state_supervisor(Fact::Detected { process, life });
        self.member(process).up = false;
        self.announce();
    }

    /// Begins the next life of `process`, and informs all processes.
    pub(crate) fn restart(&mut self, process: ProcessId) {
        let hosted_process = &mut self.hosted[process.index()];
        assert!(hosted_process.node.is_none(), "{process} is still alive");
        hosted_process.life = hosted_process.life.next();
        hosted_process.facts = 0;
        hosted_process.withheld = false;
        let (life, replaced) = (hosted_process.life, hosted_process.replaced);
        let member = self.member(process);
        (member.life, member.up) = (life, true);
        self.announce();
        self.hosted[process.index()].view = Arc::new(self.membership.clone());
        self.begin_life(process, if replaced { Boot::Replaced } else { Boot::Restarted });
    }

    /// Performs the next step in the return of a failed `process`: informs all processes of its failure, or begins its
    /// next life.
    pub(crate) fn advance_return(&mut self, process: ProcessId) {
        if self.member(process).up { self.detect(process) } else { self.restart(process) }
    }

    /// Kills `process`, informs all processes, and begins its next life. Nothing else happens in between.
    pub(crate) fn crash(&mut self, process: ProcessId, storage: StorageFate) {
        self.kill(process, storage);
        self.detect(process);
        self.restart(process);
    }

    /// Crashes all processes of these clusters simultaneously.
    pub(crate) fn lose(&mut self, clusters: &[ClusterId], storage: StorageFate) {
        let lost = |it: &ProcessId| clusters.contains(&self.membership.cluster_of(*it));
        let processes: Vec<ProcessId> = self.processes().filter(lost).collect();
        processes.iter().for_each(|&process| self.kill(process, storage));
        processes.iter().for_each(|&process| self.detect(process));
        processes.iter().for_each(|&process| self.restart(process));
    }

    /// Sets whether memberships are withheld from `process`. Once they are no longer withheld, it receives all that it
    /// has missed.
    pub(crate) fn withhold_membership(&mut self, process: ProcessId, withheld: bool) {
        self.hosted[process.index()].withheld = withheld;
    }

    /// Sets whether requests to the supervisor wait, so that it does not record that a process has started.
    pub(crate) fn withhold_notes(&mut self, withheld: bool) {
        self.notes_held = withheld;
    }

    // Observations

    /// Returns everything that happened, in order.
    pub(crate) fn log(&self) -> &[Entry<P>] {
        &self.log
    }

    /// Returns the content of a message.
    pub(crate) fn text(&self, id: MessageId) -> &str {
        self.texts.get(&id).map_or("", String::as_str)
    }

    /// Returns the claims of `process`, in order.
    pub(crate) fn claims(&self, process: ProcessId) -> impl Iterator<Item = &Claim> {
        self.log.iter().filter_map(move |entry| match entry {
            Entry::Fact { process: by, fact: Fact::Claim(claim) } if *by == process => Some(&**claim),
            _ => None,
        })
    }

    /// Returns the contents of the messages that were re-sent, by sender, in the order of re-sending.
    pub(crate) fn resent(&self) -> Vec<&str> {
        self.processes()
            .flat_map(|process| self.claims(process))
            .filter_map(|claim| match claim {
                Claim::Resent { id } => Some(self.text(*id)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = ProcessId> + use<P, A> {
        (0..self.hosted.len() as u32).map(ProcessId)
    }

    /// Returns the membership as the supervisor knows it.
    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(crate) fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.membership.cluster_of(process)
    }

    pub(crate) fn members(&self, cluster: ClusterId) -> Arc<[ProcessId]> {
        self.membership.processes_of(cluster).clone()
    }

    /// Returns the membership as `process` knows it.
    pub(crate) fn view(&self, process: ProcessId) -> Arc<Membership> {
        self.hosted[process.index()].view.clone()
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

/// Commands to the application, and questions about its state.
impl<P: Protocol> Federation<P> {
    /// Makes the application of `from` send `text` to `to`. Panics if the application cannot act.
    pub(crate) fn send(&mut self, from: ProcessId, to: ProcessId, text: &str) -> MessageId {
        let job = self.hosted[from.index()].job.take();
        let (job, _) = job.unwrap_or_else(|| panic!("{from} has to send {text}, but may not act"));
        let before = self.log.len();
        self.feed(from, Event::Computed(job, Send { to, text: text.into() }));
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

/// Prints all events if a test fails.
impl<P: Protocol, A: Application> Drop for Federation<P, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.transcript());
        }
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
