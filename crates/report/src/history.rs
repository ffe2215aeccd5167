//! What happened, put together from the facts of all lives: checkpoints, failures, rollbacks with what they undid, and
//! the way of every message. Tells, does not judge: whether it was right is the checker's business.
//!
//! Facts of different processes are related by identity (of a message, a checkpoint, an incarnation), never by time;
//! times are for showing.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_core::{
    Cause, Claim, ClusterId, Fact, Fault, FaultNo, ImageName, Incarnation, Life, MessageId, Position,
    ProcessId, Sn, Span, StorageFate, Time,
};
use faultline_trace::Trace;

use crate::cast::Cast;

/// What happened in a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// When the application was allowed to begin: instants are shown relative to this.
    pub origin: Time,
    /// When the last fact was stated.
    pub end: Time,
    /// Every committed checkpoint, by cluster and position.
    pub checkpoints: BTreeMap<(ClusterId, Position), Checkpoint>,
    /// Ends of lives, in the supervisor's order.
    pub failures: Vec<Failure>,
    /// What the injector did, in its order.
    pub injections: Vec<Injection>,
    /// Rollbacks of clusters, in the order in which they ended.
    pub rollbacks: Vec<Rollback>,
    /// Every message with its way, by identity.
    pub messages: BTreeMap<MessageId, Message>,
    /// Every stretch of a process's life that a rollback undid.
    pub undone: Vec<Undone>,
    /// Clusters that could not be recovered, and which parts were missing where.
    pub unrecoverable: Vec<(ClusterId, Missing)>,
}

/// The parts of checkpoints that are missing, and who was asked for each.
pub type Missing = Arc<[(ImageName, Vec<ProcessId>)]>;

/// A cluster's checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// By a message from another cluster, rather than by the timer.
    pub forced: bool,
    /// When each process committed it.
    pub committed: BTreeMap<ProcessId, Time>,
    /// When each process saved the state that it holds.
    pub saved: BTreeMap<ProcessId, Time>,
    /// The longest that an application was frozen for it.
    pub frozen: Span,
}

impl Checkpoint {
    /// When its last process committed it.
    pub fn at(&self) -> Time {
        self.committed.values().copied().max().unwrap_or(Time::ZERO)
    }
}

/// The end of a life.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Whose.
    pub process: ProcessId,
    /// The life that ended.
    pub life: Life,
    /// When.
    pub at: Time,
    /// What became of its storage.
    pub storage: StorageFate,
    /// When the supervisor announced it.
    pub detected: Option<Time>,
    /// When the next life was started.
    pub restarted: Option<Time>,
    /// The fault of the plan that did it.
    pub fault: Option<FaultNo>,
}

/// One act of the injector.
#[derive(Clone, Debug)]
pub struct Injection {
    /// In the plan.
    pub no: FaultNo,
    /// When.
    pub at: Time,
    /// What was done.
    pub fault: Fault,
}

/// One cluster's return to one checkpoint.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The cluster.
    pub cluster: ClusterId,
    /// The incarnation that it began.
    pub incarnation: Incarnation,
    /// The checkpoint, under the incarnation that took it; `None` is the initial state.
    pub checkpoint: Option<Position>,
    /// Why, in the words of the protocol; `None` when it never said.
    pub cause: Option<Cause>,
    /// Its processes.
    pub members: BTreeMap<ProcessId, Returned>,
    /// The failures of the cluster that it answers, as places in [`History::failures`].
    pub failures: Vec<usize>,
    /// When the first failure happened, or the alert arrived.
    pub began: Time,
    /// When the last member went on.
    pub ended: Time,
    /// The rollback of another cluster that caused this one, as a place in [`History::rollbacks`].
    pub because_of: Option<usize>,
    /// Messages from other clusters sent again to this one afterwards.
    pub resent: u64,
    /// The protocol said of every member that it goes on.
    pub complete: bool,
}

impl Rollback {
    /// Work lost, over all members.
    pub fn lost(&self) -> Span {
        self.members.values().fold(Span::ZERO, |sum, member| sum + member.lost)
    }
}

/// A process's part in a rollback.
#[derive(Clone, Debug, Default)]
pub struct Returned {
    /// When its state was replaced.
    pub restored: Time,
    /// When it went on, if it said so.
    pub resumed: Option<Time>,
    /// When the state that it restored had been saved.
    pub saved: Time,
    /// Execution undone.
    pub lost: Span,
}

/// A stretch of a process's execution that a rollback undid.
#[derive(Clone, Debug)]
pub struct Undone {
    /// Whose.
    pub process: ProcessId,
    /// Its beginning, shown.
    pub began: Time,
    /// Its end, shown.
    pub ended: Time,
    /// By which rollback, as a place in [`History::rollbacks`].
    pub by: usize,
    from: Place,
    upto: Place,
}

/// The way of one message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// When the application sent it.
    pub sent: Option<Time>,
    /// The rollback that undid the sending.
    pub send_undone: Option<usize>,
    /// When it was given to the network, and whether that was a repetition from a log.
    pub transmitted: Vec<(Time, bool)>,
    /// When it was delivered, and the rollback that undid this.
    pub delivered: Vec<(Time, Option<usize>)>,
    /// When it was dropped because its sending had been undone.
    pub stale: Vec<Time>,
    sent_place: Option<Place>,
    delivered_places: Vec<Place>,
}

/// A place in a process's history: a life, and a fact of it. Places of one process are ordered like its history.
type Place = (Life, usize);

impl History {
    /// Puts together what `trace` holds about `cast`.
    pub fn new(trace: &Trace, cast: &Cast) -> Self {
        let mut history = History::default();
        history.read_supervisor(trace, cast);
        let mut builder = Builder::default();
        for cluster in cast.clusters() {
            for &process in cast.processes(cluster) {
                builder.read_process(trace, cluster, process, &mut history);
            }
        }
        history.end = trace
            .streams
            .values()
            .filter_map(|stream| stream.last())
            .map(|(at, _)| *at)
            .max()
            .unwrap_or(history.origin);
        builder.finish(&mut history, cast);
        history
    }

    /// An instant relative to the beginning, in seconds; negative before it.
    pub fn seconds(&self, at: Time) -> f64 {
        (at.0 as f64 - self.origin.0 as f64) / 1e9
    }

    /// The messages of other clusters' processes and `cluster`'s that rollback `by` undid at the sender and that
    /// `cluster` had delivered, by identity.
    pub fn orphans_at(&self, by: usize, cluster: ClusterId, cast: &Cast) -> Vec<MessageId> {
        self.messages
            .iter()
            .filter(|(id, message)| {
                message.send_undone == Some(by)
                    && cast.cluster_of(id.to) == cluster
                    && cast.crosses(**id)
                    && !message.delivered.is_empty()
            })
            .map(|(id, _)| *id)
            .collect()
    }

    fn read_supervisor(&mut self, trace: &Trace, cast: &Cast) {
        for (at, fact) in trace.supervisor() {
            match fact {
                Fact::Begun => self.origin = *at,
                Fact::Injecting { no, fault } => {
                    self.injections.push(Injection { no: *no, at: *at, fault: (**fault).clone() });
                }
                Fact::Failed { process, life, storage } => {
                    let fault = self.author(*process, cast);
                    self.failures.push(Failure {
                        process: *process,
                        life: *life,
                        at: *at,
                        storage: *storage,
                        detected: None,
                        restarted: None,
                        fault,
                    });
                }
                Fact::Detected { process, life } => match self.failure_of(*process, *life) {
                    Some(failure) => failure.detected = Some(*at),
                    None => self.failures.push(Failure {
                        process: *process,
                        life: *life,
                        at: *at,
                        storage: StorageFate::Kept,
                        detected: Some(*at),
                        restarted: None,
                        fault: None,
                    }),
                },
                Fact::LifeStarted { process, life, .. } if life.0 > 1 => {
                    if let Some(failure) = self.failure_of(*process, Life(life.0 - 1)) {
                        failure.restarted = Some(*at);
                    }
                }
                _ => {}
            }
        }
    }

    fn failure_of(&mut self, process: ProcessId, life: Life) -> Option<&mut Failure> {
        self.failures.iter_mut().rev().find(|it| it.process == process && it.life == life)
    }

    /// The last injected fault that can end a life of this process.
    fn author(&self, process: ProcessId, cast: &Cast) -> Option<FaultNo> {
        let hits = |fault: &Fault| match *fault {
            Fault::Crash { process: it, .. } | Fault::Pause { process: it, .. } => it == process,
            Fault::LoseCluster { cluster, .. } => cluster == cast.cluster_of(process),
            Fault::Link { .. } | Fault::Partition { .. } | Fault::Storage { .. } => false,
        };
        self.injections.iter().rev().find(|it| hits(&it.fault)).map(|it| it.no)
    }
}

/// What is gathered process by process before rollbacks can be put together.
#[derive(Default)]
struct Builder {
    /// By cluster and new incarnation.
    rollbacks: BTreeMap<(ClusterId, Incarnation), Rollback>,
    /// Undone stretches with the rollback's key.
    undone: Vec<(Undone, (ClusterId, Incarnation))>,
    /// When each cluster first heard of another's return to a position.
    alerts: BTreeMap<(ClusterId, ClusterId, Position), Time>,
}

impl Builder {
    fn read_process(&mut self, trace: &Trace, cluster: ClusterId, process: ProcessId, history: &mut History) {
        let mut past = Past::default();
        let mut saved: BTreeMap<ImageName, Time> = BTreeMap::new();
        for (life, stream) in trace.lives(process) {
            let mut stopped = None;
            let mut returning = None;
            for (index, &(at, ref fact)) in stream.iter().enumerate() {
                let place = (life, index);
                match fact {
                    Fact::Sent(id) => {
                        let message = history.messages.entry(*id).or_default();
                        message.sent = Some(at);
                        message.sent_place = Some(place);
                    }
                    Fact::Transmitted { id, .. } => {
                        history.messages.entry(*id).or_default().transmit(at, false);
                    }
                    Fact::Delivered(id) => {
                        let message = history.messages.entry(*id).or_default();
                        message.delivered.push((at, None));
                        message.delivered_places.push(place);
                    }
                    Fact::DroppedStale(id) => history.messages.entry(*id).or_default().stale.push(at),
                    Fact::Saved(it) if it.0.owner == process => {
                        saved.insert(it.0, at);
                    }
                    Fact::Restored(it) => {
                        let (image, incarnation, witness) = &**it;
                        let cut = (witness.life, witness.upto.index());
                        let key = (cluster, *incarnation);
                        let ended = stopped.unwrap_or(at);
                        let undone = past.restore(cut, place);
                        let mut lost = Span::ZERO;
                        let returned_to = image
                            .and_then(|it| saved.get(&it).copied())
                            .unwrap_or_else(|| instant(trace, process, cut).max(history.origin));
                        for (from, upto) in undone {
                            let began = instant(trace, process, from).max(history.origin);
                            let ended = if upto.0 == life {
                                ended
                            } else {
                                history
                                    .failure_of(process, upto.0)
                                    .map_or_else(|| instant(trace, process, upto), |it| it.at)
                            }
                            .max(began);
                            lost = lost + ended.since(began);
                            self.undone.push((Undone { process, began, ended, by: 0, from, upto }, key));
                        }
                        let rollback =
                            self.rollbacks.entry(key).or_insert_with(|| Rollback::new(cluster, *incarnation));
                        rollback.checkpoint = image.map(|it| it.position());
                        let member = rollback.members.entry(process).or_default();
                        member.restored = at;
                        member.saved = returned_to;
                        member.lost = member.lost + lost;
                        returning = Some(key);
                        stopped = None;
                    }
                    Fact::Claim(claim) => match &**claim {
                        Claim::RecoveryStarted { .. } => stopped = stopped.or(Some(at)),
                        Claim::RolledBack { to, cause, .. } => {
                            let key = (cluster, to.incarnation);
                            if let Some(rollback) = self.rollbacks.get_mut(&key) {
                                rollback.cause = Some(*cause);
                                rollback.members.entry(process).or_default().resumed = Some(at);
                            }
                            returning = returning.filter(|it| *it != key);
                        }
                        Claim::Alerted { from, position } => {
                            let first = self.alerts.entry((cluster, *from, *position)).or_insert(at);
                            *first = at.min(*first);
                        }
                        Claim::Resent { id } => history.messages.entry(*id).or_default().transmit(at, true),
                        Claim::Committed { position, forced, frozen, .. } => {
                            let checkpoint =
                                history.checkpoints.entry((cluster, *position)).or_insert_with(|| Checkpoint {
                                    forced: *forced,
                                    committed: BTreeMap::new(),
                                    saved: BTreeMap::new(),
                                    frozen: Span::ZERO,
                                });
                            checkpoint.committed.insert(process, at);
                            checkpoint.frozen = checkpoint.frozen.max(*frozen);
                        }
                        Claim::Unrecoverable { cluster, missing } => {
                            if history.unrecoverable.iter().all(|(it, _)| it != cluster) {
                                history.unrecoverable.push((*cluster, missing.clone()));
                            }
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        for (image, at) in saved {
            if let Some(checkpoint) = history.checkpoints.get_mut(&(cluster, image.position())) {
                checkpoint.saved.insert(process, at);
            }
        }
    }

    fn finish(self, history: &mut History, cast: &Cast) {
        let mut keyed: Vec<_> = self.rollbacks.into_iter().collect();
        for (_, rollback) in &mut keyed {
            rollback.ended =
                rollback.members.values().map(|it| it.resumed.unwrap_or(it.restored)).max().unwrap_or_default();
            rollback.complete = rollback.members.len() == cast.processes(rollback.cluster).len()
                && rollback.members.values().all(|it| it.resumed.is_some());
        }
        keyed.sort_by_key(|((cluster, incarnation), rollback)| (rollback.ended, *cluster, *incarnation));
        let places: BTreeMap<_, _> = keyed.iter().enumerate().map(|(place, (key, _))| (*key, place)).collect();
        history.rollbacks = keyed.into_iter().map(|(_, rollback)| rollback).collect();
        history.undone =
            self.undone.into_iter().map(|(undone, key)| Undone { by: places[&key], ..undone }).collect();

        let mut answered = vec![false; history.failures.len()];
        for rollback in &mut history.rollbacks {
            for (place, failure) in history.failures.iter().enumerate() {
                let of_it = cast.cluster_of(failure.process) == rollback.cluster;
                if of_it && failure.at <= rollback.ended && !answered[place] {
                    answered[place] = true;
                    rollback.failures.push(place);
                }
            }
            let first_restored =
                rollback.members.values().map(|it| it.restored).min().unwrap_or(rollback.ended);
            let failed = rollback.failures.iter().map(|&it| history.failures[it].at).min();
            let alerted = match rollback.cause {
                Some(Cause::Alert { from, position }) => {
                    rollback.because_of = places.get(&(from, position.incarnation)).copied();
                    self.alerts.get(&(rollback.cluster, from, position)).copied()
                }
                Some(Cause::Failure) | None => None,
            };
            rollback.began = failed.into_iter().chain(alerted).min().unwrap_or(first_restored);
        }

        let mut undone_of: BTreeMap<ProcessId, Vec<&Undone>> = BTreeMap::new();
        for undone in &history.undone {
            undone_of.entry(undone.process).or_default().push(undone);
        }
        let undoer = |process: ProcessId, place: Place| {
            undone_of.get(&process)?.iter().find(|it| (it.from..it.upto).contains(&place)).map(|it| it.by)
        };
        for (id, message) in &mut history.messages {
            message.send_undone = message.sent_place.and_then(|place| undoer(id.from, place));
            for (place, (_, undone)) in message.delivered_places.iter().zip(&mut message.delivered) {
                *undone = undoer(id.to, *place);
            }
            for &(at, again) in message.transmitted.iter().filter(|_| cast.crosses(*id)) {
                let of = cast.cluster_of(id.to);
                let last = history.rollbacks.iter_mut().rev().find(|it| it.cluster == of && it.began <= at);
                if let Some(rollback) = last.filter(|_| again) {
                    rollback.resent += 1;
                }
            }
        }
    }
}

impl Rollback {
    fn new(cluster: ClusterId, incarnation: Incarnation) -> Self {
        Rollback {
            cluster,
            incarnation,
            checkpoint: None,
            cause: None,
            members: BTreeMap::new(),
            failures: Vec::new(),
            began: Time::ZERO,
            ended: Time::ZERO,
            because_of: None,
            resent: 0,
            complete: false,
        }
    }

    /// The checkpoint's number; 0 is the initial state.
    pub fn sn(&self) -> Sn {
        self.checkpoint.map_or(Sn(0), |it| it.sn)
    }
}

impl Message {
    /// A repetition is stated twice, by the protocol and by the composite, one after the other.
    fn transmit(&mut self, at: Time, again: bool) {
        const TOGETHER: Span = Span::from_millis(1);
        match self.transmitted.last_mut() {
            Some((last, known)) if at.since(*last) <= TOGETHER && *known != again => *known = true,
            _ => self.transmitted.push((at, again)),
        }
    }
}

/// What of a process's history stands, as stretches of it.
#[derive(Default)]
struct Past {
    standing: Vec<(Place, Place)>,
    begun: Place,
}

impl Past {
    /// At `now`, the process returns to `cut`. Answers with the stretches that this undoes.
    fn restore(&mut self, cut: Place, now: Place) -> Vec<(Place, Place)> {
        self.standing.push((self.begun, now));
        self.begun = now;
        let mut undone = Vec::new();
        while let Some((from, upto)) = self.standing.pop() {
            if from < cut && cut < upto {
                self.standing.push((from, cut));
                undone.extend(split_by_life(cut, upto));
                break;
            } else if upto <= cut {
                self.standing.push((from, upto));
                break;
            }
            undone.extend(split_by_life(from, upto));
        }
        undone.reverse();
        undone
    }
}

/// A stretch over several lives as one stretch per life.
fn split_by_life(from: Place, upto: Place) -> Vec<(Place, Place)> {
    let mut stretches = Vec::new();
    for life in (from.0.0..=upto.0.0).rev() {
        let begin = if life == from.0.0 { from.1 } else { 0 };
        let end = if life == upto.0.0 { upto.1 } else { usize::MAX };
        if life > 0 && begin < end {
            stretches.push(((Life(life), begin), (Life(life), end)));
        }
    }
    stretches
}

/// When a process was at a place of its history: the time of the fact before it.
fn instant(trace: &Trace, process: ProcessId, place: Place) -> Time {
    let stream = trace.streams.get(&(process, place.0)).map_or(&[][..], Vec::as_slice);
    let last = place.1.min(stream.len()).saturating_sub(1);
    stream.get(last).map_or(Time::ZERO, |(at, _)| *at)
}
