//! The protocol of the guide `docs/protocols.md`: after a failure, all processes restart from the beginning.

use std::sync::Arc;

use faultline_core::{
    Cause, Claim, Gauges, Host, Incarnation, Input, LifeStart, Membership, MessageId, Payload, Position,
    Promise, Promises, Protocol, ProtocolTypes, Role, Scope, Time, Vectors,
};
use serde::{Deserialize, Serialize};

/// One process.
#[derive(Clone, Debug)]
pub(crate) struct StartAgain {
    config: Arc<Config>,
    /// The number of failures so far. Every process learns it from the membership, and it never decreases.
    incarnation: Incarnation,
    /// Whether all processes are up and can therefore receive messages.
    is_running: bool,
    /// Messages from processes that learned of a failure, or started, before this process did.
    early: Vec<(MessageId, Stamp, Payload)>,
}

/// The protocol's only parameter is a defect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// Whether messages from before a failure are delivered after it.
    pub(crate) accepts_stale: bool,
}

/// The data that every message carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stamp(Incarnation);

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        Position { incarnation: self.0, ..Position::default() }
    }
}

impl ProtocolTypes for StartAgain {
    type Control = ();
    type Head = ();
    type Saved = ();
}

impl Protocol for StartAgain {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = false;

    fn promises(_: &Config) -> Promises {
        Promises::of_scope(Scope::Federation).with(&[Promise::Progress])
    }

    fn extra_processes(_: &Config) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<Config>, _: Time, host: &mut dyn Host<Self>) -> Self {
        let (config, early) = (start.config, Vec::new());
        let mut this = StartAgain { config, incarnation: Incarnation(0), is_running: false, early };
        this.update(&start.membership, host);
        this
    }

    fn handle(&mut self, input: Input<Self>, _: Time, host: &mut dyn Host<Self>) {
        match input {
            Input::Sent { id, payload } => host.transmit(id, Stamp(self.incarnation), payload),
            Input::Received { id, stamp, payload } => self.arrived(id, stamp, payload, host),
            Input::Membership(membership) => self.update(&membership, host),
            _ => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl StartAgain {
    fn update(&mut self, membership: &Membership, host: &mut dyn Host<Self>) {
        let failures = membership.members.iter().map(|it| (it.life.0 + u32::from(!it.up)).saturating_sub(1));
        let incarnation = Incarnation(failures.sum());
        if incarnation > self.incarnation {
            self.incarnation = incarnation;
            self.is_running = false;
            host.restore(None, incarnation);
            let to = Position { incarnation, ..Position::default() };
            let (checkpoint, cause) = (Position::default(), Cause::Failure);
            host.claim(Claim::RolledBack { to, checkpoint, cause, vectors: Arc::new(Vectors::default()) });
        }
        // A message to a process that is down is lost.
        if !self.is_running && membership.members.iter().all(|member| member.up) {
            self.is_running = true;
            host.release();
            for (id, stamp, payload) in std::mem::take(&mut self.early) {
                self.arrived(id, stamp, payload, host);
            }
        }
    }

    fn arrived(&mut self, id: MessageId, stamp: Stamp, payload: Payload, host: &mut dyn Host<Self>) {
        if stamp.0 < self.incarnation && !self.config.accepts_stale {
            host.drop_stale(id);
        } else if stamp.0 > self.incarnation || !self.is_running {
            self.early.push((id, stamp, payload));
        } else {
            host.deliver(id, payload);
        }
    }
}
