//! A skeleton to start from: each process takes one checkpoint before it acts. After a failure, all restore it.

use std::sync::Arc;

use faultline::CustomProtocol;
use faultline::core::{
    Attempt, Boot, Cause, Claim, Gauges, Host, Image, ImageName, Incarnation, Input, LifeStart, Membership,
    MessageId, Payload, Position, ProcessId, Promise, Promises, Protocol, ProtocolTypes, Role, Scope, Sn,
    Span, Time,
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
    /// Whether the part is durable. The application is held until all parts are, and all processes are up.
    is_durable: bool,
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
            is_durable: false,
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
            Input::Persisted(_) => self.persisted(host),
            Input::PersistFailed(_) => self.write_again = Some(now + Span::from_millis(100)),
            Input::Read { image, .. } => {
                self.part = image;
                match (&self.part, self.membership.member(self.me).started) {
                    (Some(_), _) => self.persisted(host),
                    // The part has never been durable, so no process has acted.
                    (None, false) => host.request_snapshot(),
                    (None, true) => {
                        let group = Scope::Federation.group_of(&self.membership, self.me);
                        let missing = [(name(self.me), Vec::new())].into();
                        host.claim(Claim::Unrecoverable { group, missing });
                    }
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
        Gauges { checkpoints: u32::from(self.is_durable), ..Gauges::default() }
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
    fn persisted(&mut self, host: &mut dyn Host<Skeleton>) {
        self.is_durable = true;
        host.started();
        host.held();
    }

    fn learn(&mut self, membership: Arc<Membership>, host: &mut dyn Host<Skeleton>) {
        self.membership = membership;
        let failures = failures(&self.membership);
        if failures > self.incarnation {
            (self.incarnation, self.is_running) = (failures, false);
            host.hold();
        }
    }

    fn resume_if_possible(&mut self, host: &mut dyn Host<Skeleton>) {
        // A message to a process that is down is lost.
        let are_ready = self.membership.members.iter().all(|member| member.started && member.up);
        if self.is_running || !self.is_durable || !are_ready {
            return;
        }
        self.is_running = true;
        let (checkpoint, vectors) = (Position { incarnation: Incarnation(0), sn: Sn(1) }, Arc::default());
        if self.incarnation == Incarnation(0) {
            let (position, attempt, frozen) = (checkpoint, Attempt(1), Span::ZERO);
            host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        } else {
            host.restore(self.part.as_deref(), self.incarnation);
            let (to, cause) = (Position { incarnation: self.incarnation, ..checkpoint }, Cause::Failure);
            host.claim(Claim::RolledBack { to, checkpoint, cause, vectors });
        }
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
