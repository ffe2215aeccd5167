//! A skeleton to start from: each process takes one checkpoint before it acts. After a failure, all restore it.

use std::sync::Arc;

use faultline::CustomProtocol;
use faultline::core::{
    Attempt, Boot, Cause, Claim, Gauges, Host, Image, ImageName, Incarnation, Input, LifeStart, Membership,
    MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, ProtocolTypes, Role, Scope, Sn,
    Span, Time, Vectors,
};
use faultline::resource::FederationSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameters in a federation file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parameters {}

/// The data that every message carries: the number of failures that its sender knew of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamp(Incarnation);

/// The part of a process in the checkpoint.
type Part = Image<(), ()>;

/// One process.
#[derive(Clone, Debug)]
pub struct Skeleton {
    me: ProcessId,
    membership: Arc<Membership>,
    /// The number of failures so far. Every process learns it from the membership, and it never decreases.
    incarnation: Incarnation,
    /// This process's part, once it exists.
    part: Option<Arc<Part>>,
    /// When to write the part again, after a write has failed.
    write_again: Option<Time>,
    /// Whether the current state is that of a durable part. The application is held until all processes are ready.
    is_ready: bool,
    is_running: bool,
    /// Messages from processes that resumed before this one.
    early: Vec<(MessageId, Stamp, Payload)>,
}

impl CustomProtocol for Skeleton {
    const NAME: &'static str = "skeleton";
    type Parameters = Parameters;

    fn configure(parameters: Parameters, _: &FederationSpec) -> Result<Parameters, String> {
        Ok(parameters)
    }
}

impl faultline::core::Stamp for Stamp {
    fn position(&self) -> Position {
        Position { incarnation: self.0, sn: Sn(1) }
    }
}

impl ProtocolTypes for Skeleton {
    type Control = ();
    type Head = ();
    type Saved = ();
}

impl Protocol for Skeleton {
    type Config = Parameters;
    type Stamp = Stamp;
    const FIFO: bool = false;

    fn promises(_: &Parameters) -> Promises {
        Promises::of_scope(Scope::Federation).with(&[Promise::Checkpoints, Promise::Progress])
    }

    fn extra_processes(_: &Parameters) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<Parameters>, _: Time, host: &mut dyn Host<Skeleton>) -> Skeleton {
        let LifeStart { me, boot, membership, .. } = start;
        match boot {
            Boot::Fresh => host.request_snapshot(),
            Boot::Restarted | Boot::Replaced => host.read(name(me)),
        }
        Skeleton {
            me,
            incarnation: failures(&membership),
            membership,
            part: None,
            write_again: None,
            is_ready: false,
            is_running: false,
            early: Vec::new(),
        }
    }

    fn handle(&mut self, input: Input<Skeleton>, now: Time, host: &mut dyn Host<Skeleton>) {
        match input {
            // After a failure, the application's job in progress may still send. `restore` undoes these sends.
            Input::Sent { id, payload } if self.is_running => {
                host.transmit(id, Stamp(self.incarnation), payload);
            }
            Input::Received { id, stamp, payload } => self.received(id, stamp, payload, host),
            Input::Snapshot(snapshot) => {
                let (name, head, saved) = (name(self.me), Arc::new(()), Arc::new(()));
                let part = Arc::new(Part { name, head, saved, snapshot });
                self.part = Some(part.clone());
                host.persist(part);
            }
            Input::Persisted(_) => self.is_durable(host),
            Input::PersistFailed(_) => self.write_again = Some(now + Span::from_millis(100)),
            Input::Read { image, .. } => {
                self.part = image;
                match (&self.part, self.all_started()) {
                    (Some(_), true) => self.restore(host),
                    (None, true) => {
                        let group = Scope::Federation.group_of(&self.membership, self.me);
                        let missing = [(name(self.me), Vec::new())].into();
                        host.claim(Claim::Unrecoverable { group, missing });
                    }
                    // No process has acted, so the initial state is the state of the checkpoint.
                    (Some(_), false) => self.is_durable(host),
                    (None, false) => host.request_snapshot(),
                }
            }
            Input::Membership(membership) => self.learn(membership, host),
            Input::Timeout if self.write_again.is_some_and(|at| at <= now) => {
                self.write_again = None;
                host.persist(self.part.clone().expect("its write has failed"));
            }
            _ => {}
        }
        self.resume_if_possible(host);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.write_again
    }

    fn gauges(&self) -> Gauges {
        Gauges { checkpoints: u32::from(self.is_ready), ..Gauges::default() }
    }
}

/// Returns the name of a process's part. There is only one attempt at one checkpoint.
fn name(owner: ProcessId) -> ImageName {
    ImageName { owner, incarnation: Incarnation(0), sn: Sn(1), attempt: Attempt(1) }
}

/// Returns the number of lives that have ended.
fn failures(membership: &Membership) -> Incarnation {
    let ended = membership.members.iter().map(|it| (it.life.0 + u32::from(!it.up)).saturating_sub(1));
    Incarnation(ended.sum())
}

impl Skeleton {
    /// Returns whether all parts have been durable, and processes may therefore have acted.
    fn all_started(&self) -> bool {
        self.membership.members.iter().all(|member| member.started)
    }

    fn is_durable(&mut self, host: &mut dyn Host<Skeleton>) {
        self.is_ready = true;
        host.started();
        host.held();
    }

    fn learn(&mut self, membership: Arc<Membership>, host: &mut dyn Host<Skeleton>) {
        self.membership = membership;
        let failures = failures(&self.membership);
        if failures > self.incarnation {
            self.incarnation = failures;
            if self.is_ready && self.all_started() {
                self.restore(host);
            }
        }
    }

    fn restore(&mut self, host: &mut dyn Host<Skeleton>) {
        (self.is_ready, self.is_running) = (true, false);
        host.restore(self.part.as_deref(), self.incarnation);
        let checkpoint = Position { incarnation: Incarnation(0), sn: Sn(1) };
        let (to, cause) = (Position { incarnation: self.incarnation, ..checkpoint }, Cause::Failure);
        host.claim(Claim::RolledBack { to, checkpoint, cause, vectors: Arc::new(Vectors::default()) });
    }

    fn resume_if_possible(&mut self, host: &mut dyn Host<Skeleton>) {
        // A message to a process that is down is lost.
        let are_up = self.membership.members.iter().all(|member| member.up);
        if self.is_running || !self.is_ready || !are_up || !self.all_started() {
            return;
        }
        self.is_running = true;
        let (position, attempt) = (Position { incarnation: Incarnation(0), sn: Sn(1) }, Attempt(1));
        let (frozen, vectors) = (Span::ZERO, Arc::new(Vectors::default()));
        host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        host.release();
        for (id, stamp, payload) in std::mem::take(&mut self.early) {
            self.received(id, stamp, payload, host);
        }
    }

    fn received(&mut self, id: MessageId, stamp: Stamp, payload: Payload, host: &mut dyn Host<Skeleton>) {
        if stamp.0 < self.incarnation {
            host.drop_stale(id);
        } else if stamp.0 > self.incarnation || !self.is_running {
            self.early.push((id, stamp, payload));
        } else {
            host.deliver(id, payload);
        }
    }
}
