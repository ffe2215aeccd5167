//! The composition of a protocol and an application into one process.
//!
//! The composite numbers application messages, reports the facts that a protocol must not report about itself,
//! maintains the witness, and decides when the application runs. It is independent of the protocol.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::application::{Application, Outbox};
use crate::claim::Claim;
use crate::composite::Composite;
use crate::content::with_flipped_bit;
use crate::counters::Counters;
use crate::fact::{Fact, FactKind, FactKinds, Flipped, Witness};
use crate::fault::{Flip, FlipTarget};
use crate::footprint::Footprint;
use crate::id::{FactNo, Incarnation, JobNo, Life, ProcessId, Role};
use crate::image::{Image, Snapshot, checked, flipped, with_digest};
use crate::membership::LifeStart;
use crate::message::{MessageId, Payload};
use crate::process::{Action, Event, Gauges, In, Out, Packet, Process, To};
use crate::protocol::{Host, Input, Protocol, Stamp};
use crate::time::Time;

/// The configuration of every process of a federation.
#[derive(Clone, Debug)]
pub struct NodeConfig<P: Protocol, A: Application> {
    /// Parameters of the protocol.
    pub protocol: Arc<P::Config>,
    /// Parameters of the application.
    pub application: Arc<A::Config>,
    /// Whether a part of a checkpoint that is read back counts as damaged if the state in it differs from the state that
    /// was saved.
    pub verify: bool,
}

/// One process: a protocol around an application.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Node<P: Protocol, A: Application> {
    state: NodeState<A>,
    protocol: P,
}

/// The composite's state, except for the protocol. `repr(C)` keeps the fields in declaration order: those that each
/// message needs come first, so they share cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
struct NodeState<A: Application> {
    me: ProcessId,
    life: Life,
    incarnation: Incarnation,
    /// The kinds of facts that the driver accepts.
    taken: FactKinds,
    held: bool,
    /// Whether [`Fact::Held`] has been reported since the application was last released or restored.
    stopped: bool,
    snapshot_wanted: bool,
    rest_wanted: bool,
    /// Whether the protocol assumes that a re-execution sends the same messages.
    repeats: bool,
    /// See [`NodeConfig::verify`].
    verify: bool,
    /// Whether the application may have changed since its result was last read.
    changed: bool,
    /// Whether the protocol has been told that the application left the program.
    left: bool,
    /// Number of facts in this life, whether or not the driver accepts them.
    facts: u64,
    sent: u64,
    delivered: u64,
    /// `None` for a process whose role runs no application.
    application: Option<A>,
    /// The running job, and the number of facts reported before it started.
    job: Option<(JobNo, FactNo)>,
    outbox: Outbox,
    /// Actions of the application that have not yet been passed to the protocol.
    unseen: VecDeque<AppAction>,
    /// Next message number per receiver.
    channels: Counters,
    next_job: JobNo,
    flips: PendingFlips,
}

/// The bits that faults have ordered to flip and that have yet to be flipped, by what will contain them.
#[derive(Clone, Debug, Default)]
struct PendingFlips {
    message: VecDeque<u64>,
    copy: VecDeque<u64>,
    state: VecDeque<u64>,
}

/// One action of the application.
#[derive(Clone, Debug)]
enum AppAction {
    Sent(MessageId, Payload),
    Consumed(MessageId),
}

impl<P: Protocol, A: Application> Process for Node<P, A> {
    type Stamp = P::Stamp;
    type Control = P::Control;
    type Head = P::Head;
    type Saved = P::Saved;
    type Job = A::Job;
    type Config = NodeConfig<P, A>;
    const FIFO: bool = P::FIFO;

    fn is_fifo(config: &Self::Config) -> bool {
        P::is_fifo(&config.protocol)
    }

    fn start(start: LifeStart<Self::Config>, now: Time, out: &mut Out<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, record, seed, facts } = start;
        let application = (membership.member(me).role == Role::RANK)
            .then(|| A::new(&config.application, me, &membership, seed));
        let mut state = NodeState {
            me,
            life,
            application,
            incarnation: Incarnation(0),
            facts: 0,
            taken: facts,
            sent: 0,
            delivered: 0,
            channels: Counters::default(),
            unseen: VecDeque::new(),
            outbox: Outbox::default(),
            held: true,
            stopped: false,
            snapshot_wanted: false,
            rest_wanted: false,
            repeats: P::repeats(&config.protocol),
            verify: config.verify,
            flips: PendingFlips::default(),
            next_job: JobNo(0),
            job: None,
            changed: false,
            left: false,
        };
        let config = config.protocol.clone();
        let start = LifeStart { me, life, boot, membership, config, record, seed, facts };
        let protocol = P::start(start, now, &mut NodeHost { state: &mut state, out });
        let mut node = Node { protocol, state };
        node.settle(now, out);
        node
    }

    #[inline]
    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>) {
        let input = match event {
            Event::Packet { packet: Packet::Application { id, stamp, payload }, .. } => {
                Input::Received { id, stamp, payload }
            }
            Event::Packet { from, packet: Packet::Control(message) } => Input::Control { from, message },
            Event::Packet { from, packet: Packet::Image(image) } => Input::Image { from, image },
            Event::Persisted(name) => {
                if name.is_part() {
                    self.state.fact::<P>(FactKind::Durable, || Fact::Durable(name), out);
                }
                Input::Persisted(name)
            }
            Event::PersistFailed(name) => Input::PersistFailed(name),
            Event::Read { name, image } => {
                let is_intact = |image: &Arc<Image<P::Head, P::Saved>>| {
                    !self.state.verify || !name.is_part() || checked(&image.snapshot.application).is_some()
                };
                let image = image.filter(is_intact);
                if image.is_none() && name.is_part() {
                    self.state.fact::<P>(FactKind::Damaged, || Fact::Damaged(name), out);
                }
                Input::Read { name, image }
            }
            Event::Listed(images) => Input::Listed(images),
            Event::Recorded { version } => Input::Recorded { version },
            Event::Membership(membership) => Input::Membership(membership),
            Event::Computed(no, done) => {
                if let Some((_, since)) = self.state.job.take_if(|job| job.0 == no) {
                    self.state.fact::<P>(FactKind::Computed, || Fact::Computed { since }, out);
                    self.state.run::<P>(out, |application, outbox| application.computed(done, outbox));
                    self.settle(now, out);
                }
                return;
            }
            Event::Timeout => Input::Timeout,
            Event::Flip(Flip { target, bit }) => {
                let flips = &mut self.state.flips;
                match target {
                    FlipTarget::Message => &mut flips.message,
                    FlipTarget::Copy => &mut flips.copy,
                    FlipTarget::State => &mut flips.state,
                }
                .push_back(bit);
                self.settle(now, out);
                return;
            }
        };
        self.feed(input, now, out);
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.protocol.next_deadline()
    }

    fn gauges(&self) -> Gauges {
        let progress = self.state.application.as_ref().map(Application::progress).unwrap_or_default();
        Gauges { progress, ..self.protocol.gauges() }
    }

    fn waits(&self) -> bool {
        let NodeState { application, held, stopped, job, .. } = &self.state;
        !held && !stopped && job.is_none() && application.as_ref().is_some_and(|it| it.result().is_none())
    }

    fn control_kind(message: &P::Control) -> &'static str {
        P::control_kind(message)
    }

    fn add_to(head: &P::Head, saved: &P::Saved, footprint: &mut Footprint) {
        P::add_to(head, saved, footprint);
    }

    fn saved_len(saved: &P::Saved) -> u64 {
        P::saved_len(saved)
    }
}

impl<P: Protocol, A: Application> Node<P, A> {
    /// Returns the protocol, for tests.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Returns the application, for tests. `None` if the process's role runs none.
    pub fn application(&self) -> Option<&A> {
        self.state.application.as_ref()
    }

    #[inline(always)]
    fn feed(&mut self, input: Input<P>, now: Time, out: &mut Out<Self>) {
        self.protocol.handle(input, now, &mut NodeHost { state: &mut self.state, out });
    }

    /// Passes all actions of the application to the protocol, answers a pending snapshot request, and then lets the
    /// application continue.
    /// If the application has nothing to do, answers a pending rest request. Finally, reports the result if it may be
    /// new, and tells the protocol if the application has just left.
    #[inline(always)]
    fn settle(&mut self, now: Time, out: &mut Out<Self>) {
        self.pass_actions(now, out);
        self.state.compute::<P>(out);
        while self.state.take_requested_rest() {
            self.feed(Input::Rested, now, out);
            self.pass_actions(now, out);
            self.state.compute::<P>(out);
        }
        let has_just_left = self.state.take_departure();
        self.state.finish::<P>(out);
        if has_just_left {
            self.feed(Input::Left, now, out);
            self.pass_actions(now, out);
        }
    }

    /// Passes every send and consumption to the protocol, and answers a pending snapshot request.
    #[inline(always)]
    fn pass_actions(&mut self, now: Time, out: &mut Out<Self>) {
        loop {
            if let Some(action) = self.state.unseen.pop_front() {
                let input = match action {
                    AppAction::Sent(id, payload) => Input::Sent { id, payload },
                    AppAction::Consumed(id) => Input::Consumed(id),
                };
                self.feed(input, now, out);
            } else if self.state.snapshot_wanted
                && let Some(snapshot) = self.state.take_snapshot()
            {
                self.state.report_failure::<P>(out);
                self.feed(Input::Snapshot(snapshot), now, out);
            } else {
                break;
            }
        }
    }
}

impl<A: Application> NodeState<A> {
    #[inline(always)]
    fn fact<P: Protocol>(&mut self, kind: FactKind, make: impl FnOnce() -> Fact, out: &mut Out<Node<P, A>>) {
        self.facts += 1;
        if self.taken.contains(kind) {
            append(out, || Action::Fact(make()));
            debug_assert!(matches!(out.last(), Some(Action::Fact(fact)) if fact.kind() == kind));
        }
    }

    fn witness(&self) -> Witness {
        Witness { life: self.life, upto: FactNo(self.facts), sent: self.sent, delivered: self.delivered }
    }

    /// Lets the application act, and numbers the messages that it sends.
    #[inline]
    fn run<P: Protocol>(&mut self, out: &mut Out<Node<P, A>>, act: impl FnOnce(&mut A, &mut Outbox)) {
        let application = self.application.as_mut().expect("only ranks run an application");
        act(application, &mut self.outbox);
        self.changed = true;
        if !self.repeats {
            self.outbox.consumed.clear();
        }
        if self.outbox.sends.is_empty() && self.outbox.consumed.is_empty() {
            return;
        }
        let mut outbox = core::mem::take(&mut self.outbox);
        let mut consumed = outbox.consumed.drain(..).peekable();
        for (place, (to, payload)) in outbox.sends.drain(..).enumerate() {
            while let Some((_, from, number)) = consumed.next_if(|&(before, ..)| before <= place) {
                self.consume::<P>(from, number, out);
            }
            let number = self.next_number(to);
            let id = MessageId { from: self.me, to, incarnation: self.incarnation, number };
            self.sent = self.sent.wrapping_add(id.mix());
            let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            self.fact::<P>(FactKind::Sent, || Fact::Sent { id, bytes }, out);
            self.unseen.push_back(AppAction::Sent(id, payload));
        }
        for (_, from, number) in consumed {
            self.consume::<P>(from, number, out);
        }
        self.outbox = outbox;
    }

    fn consume<P: Protocol>(&mut self, from: ProcessId, number: u32, out: &mut Out<Node<P, A>>) {
        let id = MessageId { from, to: self.me, incarnation: self.incarnation, number };
        self.fact::<P>(FactKind::Consumed, || Fact::Consumed(id), out);
        self.unseen.push_back(AppAction::Consumed(id));
    }

    #[inline]
    fn next_number(&mut self, to: ProcessId) -> u32 {
        let next = self.channels.get_mut(to);
        let number = *next;
        *next = number.checked_add(1).expect("message numbers of a channel are exhausted");
        number
    }

    /// Returns `true` once per request, when the application has come to rest. An application that is not held and has
    /// no job is waiting for a message.
    #[inline(always)]
    fn take_requested_rest(&mut self) -> bool {
        let is_at_rest = self.rest_wanted && !self.held && self.job.is_none();
        self.rest_wanted &= !is_at_rest;
        is_at_rest
    }

    /// Returns `true` on the first call after the application has left the program.
    #[inline(always)]
    fn take_departure(&mut self) -> bool {
        let has_just_left = self.changed && !self.left && self.application.as_ref().is_some_and(A::has_left);
        self.left |= has_just_left;
        has_just_left
    }

    /// Takes the requested snapshot, unless a job holds the state.
    fn take_snapshot(&mut self) -> Option<Snapshot> {
        let application = self.application.as_ref().expect("only ranks are checkpointed").snapshot()?;
        self.snapshot_wanted = false;
        let channels = self.channels.iter().collect();
        let application = if self.verify { with_digest(&application) } else { application };
        Some(Snapshot { witness: self.witness(), channels, application })
    }

    #[inline]
    fn compute<P: Protocol>(&mut self, out: &mut Out<Node<P, A>>) {
        if self.job.is_some() {
            return;
        }
        while let Some(bit) = self.flips.state.pop_front() {
            self.flip_state::<P>(bit, out);
        }
        if self.held {
            return;
        }
        if let Some(job) = self.application.as_mut().and_then(Application::next_job) {
            let no = self.next_job;
            self.next_job = no.next();
            self.job = Some((no, FactNo(self.facts)));
            out.push(Action::Compute(no, job));
        }
    }

    /// Flips a bit of the application's state, if the application supports this.
    #[cold]
    fn flip_state<P: Protocol>(&mut self, bit: u64, out: &mut Out<Node<P, A>>) {
        if self.application.as_mut().is_some_and(|it| it.flip(bit)) {
            self.changed = true;
            self.fact::<P>(FactKind::Flipped, || Fact::Flipped(Flipped::State), out);
        }
    }

    #[inline]
    fn finish<P: Protocol>(&mut self, out: &mut Out<Node<P, A>>) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        self.report_failure::<P>(out);
        if let Some(digest) = self.application.as_ref().and_then(Application::result) {
            let witness = self.witness();
            self.fact::<P>(FactKind::Finished, || Fact::Finished(Box::new((witness, digest))), out);
        }
    }

    /// Ends the run if the application can no longer act.
    #[inline]
    fn report_failure<P: Protocol>(&mut self, out: &mut Out<Node<P, A>>) {
        let (me, life) = (self.me, self.life);
        if let Some(breakage) = self.application.as_mut().and_then(|it| it.failure(me, life)) {
            self.fact::<P>(FactKind::Broke, || Fact::Claim(Box::new(Claim::Broke(breakage))), out);
        }
    }
}

/// Appends an action, built in place. [`Vec::push`] would build it elsewhere and copy it immediately, in units that
/// differ from those in which it was written. On current processors, the resulting stall costs more time per
/// message than everything else here.
#[inline(always)]
fn append<T>(queue: &mut Vec<T>, make: impl FnOnce() -> T) {
    queue.extend(core::iter::once_with(make));
}

/// The host that a protocol uses while it handles one input.
struct NodeHost<'a, P: Protocol, A: Application> {
    state: &'a mut NodeState<A>,
    out: &'a mut Out<Node<P, A>>,
}

impl<P: Protocol, A: Application> Composite for NodeHost<'_, P, A> {
    type Protocol = P;
    type Process = Node<P, A>;

    #[inline(always)]
    fn out(&mut self) -> &mut Out<Node<P, A>> {
        self.out
    }

    #[inline(always)]
    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact) {
        self.state.fact::<P>(kind, make, self.out);
    }

    fn send(&mut self, to: To, message: P::Control) {
        self.out.push(Action::Send { to, packet: Packet::Control(message) });
    }

    /// Flips the bit that a fault has chosen, if the image is a part of a checkpoint with content.
    fn written(&mut self, image: Arc<Image<P::Head, P::Saved>>) -> Arc<Image<P::Head, P::Saved>> {
        let name = image.name;
        let Some(&bit) = self.state.flips.copy.front().filter(|_| name.is_part()) else { return image };
        let Some(application) = flipped(&image.snapshot.application, bit) else { return image };
        self.state.flips.copy.pop_front();
        let is_checked = self.state.verify;
        self.fact(FactKind::Flipped, || Fact::Flipped(Flipped::Copy { name, is_checked }));
        let snapshot = Snapshot { application, ..image.snapshot.clone() };
        Arc::new(Image { name, head: image.head.clone(), saved: image.saved.clone(), snapshot })
    }
}

impl<P: Protocol, A: Application> Host<P> for NodeHost<'_, P, A> {
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, payload: Payload) {
        self.fact(FactKind::Transmitted, || Fact::Transmitted { id, position: stamp.position() });
        let to = To::One(id.to);
        append(self.out, || Action::Send { to, packet: Packet::Application { id, stamp, payload } });
    }

    fn suppress(&mut self, id: MessageId) {
        self.fact(FactKind::Suppressed, || Fact::Suppressed(id));
    }

    fn deliver(&mut self, id: MessageId, mut payload: Payload) {
        assert!(!self.state.held, "{} delivered while the application is held", id);
        self.state.delivered = self.state.delivered.wrapping_add(id.mix());
        self.fact(FactKind::Delivered, || Fact::Delivered(id));
        if let Some(&bit) = self.state.flips.message.front()
            && let Some(flipped) = with_flipped_bit(payload.bytes(), bit)
        {
            payload = Payload::from_slice(&flipped);
            self.state.flips.message.pop_front();
            self.fact(FactKind::Flipped, || Fact::Flipped(Flipped::Message(id)));
        }
        self.state.run::<P>(self.out, |application, outbox| application.deliver(id.from, payload, outbox));
    }

    fn drop_stale(&mut self, id: MessageId) {
        self.fact(FactKind::DroppedStale, || Fact::DroppedStale(id));
    }

    fn hold(&mut self) {
        self.state.held = true;
        if !core::mem::replace(&mut self.state.stopped, true) {
            self.fact(FactKind::Held, || Fact::Held);
        }
    }

    fn wait(&mut self) {
        self.state.held = true;
    }

    fn release(&mut self) {
        self.state.held = false;
        self.state.stopped = false;
    }

    fn request_snapshot(&mut self) {
        self.state.held = true;
        self.state.snapshot_wanted = true;
    }

    fn request_rest(&mut self) {
        self.state.rest_wanted = true;
    }

    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>, incarnation: Incarnation) {
        let state = &mut *self.state;
        state.held = true;
        state.stopped = false;
        state.snapshot_wanted = false;
        state.rest_wanted = false;
        state.job = None;
        state.unseen.clear();
        state.incarnation = if state.repeats { Incarnation(0) } else { incarnation };
        state.changed = true;
        state.left = false;
        let snapshot = from.map(|image| &image.snapshot);
        let application = state.application.as_mut().expect("only ranks are restored");
        let digests = usize::from(state.verify);
        let state_of = |it: &'_ Snapshot| it.application.len().saturating_sub(digests);
        application.restore(snapshot.map(|it| &it.application[..state_of(it)]), incarnation);
        state.channels = snapshot.iter().flat_map(|it| it.channels.iter().copied()).collect();
        let witness = snapshot.map(|it| it.witness).unwrap_or_default();
        (state.sent, state.delivered) = (witness.sent, witness.delivered);
        self.fact(FactKind::Restored, || {
            Fact::Restored(Box::new((from.map(|image| image.name), incarnation, witness)))
        });
    }
}
