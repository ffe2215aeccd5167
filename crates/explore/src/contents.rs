//! The contents of process states and of steps. They are needed only to compute a new effect or to describe a packet.
//!
//! The contents of a process state take up several kilobytes, so the search drops those that it probably does not need
//! again. If it does need them, it recomputes them from the preceding state of the process and the event that first led
//! from that state to the dropped one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_catalog::Hosted;
use faultline_core::process::{Packet, PacketOf};
use faultline_core::text::one_line;
use faultline_core::{JobNo, Life, Membership, ProcessId};

use crate::interned::Chains;
use crate::key::key_of;
use crate::local::{ExploredEvent, Local, Reaction, Request};
use crate::tables::{Body, Effect, LocalEntry, LocalEvent, Processes, Tables};

/// The processes of one type.
pub(crate) struct Contents<N: Hosted> {
    config: Arc<N::Config>,
    /// States of processes by number, except those that were dropped.
    locals: Mutex<HashMap<u32, Local<N>>>,
    /// Packets and jobs by the number of their step.
    steps: Mutex<HashMap<u32, StepContent<N>>>,
}

enum StepContent<N: Hosted> {
    Packet(Arc<PacketOf<N>>),
    Job(JobNo, N::Job),
}

impl<N: Hosted> Contents<N> {
    pub(crate) fn new(config: Arc<N::Config>) -> Contents<N> {
        Contents { config, locals: Mutex::default(), steps: Mutex::default() }
    }

    /// Returns the number of a state of a process. `origin` is the state before it, and the event that led
    /// from there to this state.
    fn number(&self, local: Local<N>, origin: Option<(u32, LocalEvent)>, tables: &Tables) -> u32 {
        let number = tables.locals.intern(local.key, || LocalEntry {
            life: local.life,
            lives: local.lives(),
            deadline: local.deadline(),
            next_boot: local.next_boot(),
            has_finished: local.has_finished,
            facts_key: local.facts_key,
            view: local.view.clone(),
            origin,
            effects: Chains::new(),
        });
        locked(&self.locals).entry(number).or_insert(local);
        number
    }

    /// Returns the contents of the state of a process. If they were dropped, repeats the events that led to this state.
    fn local(&self, number: u32, tables: &Tables) -> Local<N> {
        let (mut origin, mut events) = (number, Vec::new());
        let mut local = loop {
            if let Some(local) = locked(&self.locals).get(&origin) {
                break local.clone();
            }
            let (before, event) = tables.locals.get(origin).origin.expect("first states are never dropped");
            events.push(event);
            origin = before;
        };
        if !events.is_empty() {
            for event in events.into_iter().rev() {
                local = local.handle(&self.config, self.event(event, tables)).local;
            }
            locked(&self.locals).insert(number, local.clone());
        }
        local
    }

    /// Returns the number of the step that a process requests.
    fn request(&self, (me, life): (ProcessId, Life), request: Request<N>, tables: &Tables) -> u32 {
        let (body, key, content) = match request {
            Request::Send { to, to_life, packet, key } => {
                let body = Body::Packet { from: me, from_life: life, to, to_life };
                (body, key, Some(StepContent::Packet(packet)))
            }
            Request::Compute(no, job) => {
                (Body::Compute(me, life), key_of(&(no, &job)), Some(StepContent::Job(no, job)))
            }
            Request::Store => (Body::Store(me, life), 0, None),
            Request::Started => (Body::Start(me, life), 0, None),
            Request::Held => (Body::Refill(me, life), 0, None),
        };
        let number = tables.step(body, key);
        if let Some(content) = content {
            locked(&self.steps).entry(number).or_insert(content);
        }
        number
    }

    fn event(&self, event: LocalEvent, tables: &Tables) -> ExploredEvent<N> {
        let step = match event {
            LocalEvent::Stores => return ExploredEvent::Stored,
            LocalEvent::Refills => return ExploredEvent::Refilled,
            LocalEvent::Rings => return ExploredEvent::Ring,
            LocalEvent::Ends(storage, _) => return ExploredEvent::End(storage),
            LocalEvent::Begins(membership) => {
                return ExploredEvent::Begin(tables.memberships.get(membership).membership.clone());
            }
            LocalEvent::Happens(step) => step,
        };
        match (&tables.steps.get(step).body, locked(&self.steps).get(&step)) {
            (Body::Packet { from, .. }, Some(StepContent::Packet(packet))) => {
                ExploredEvent::Arrive(*from, packet.clone())
            }
            (Body::Compute(..), Some(StepContent::Job(no, job))) => ExploredEvent::Computed(*no, job.clone()),
            (Body::Tell(_, _, view), _) => ExploredEvent::Told(view.clone()),
            _ => unreachable!("the contents of all requested steps are kept"),
        }
    }
}

impl<N: Hosted> Processes for Contents<N> {
    fn is_fifo(&self) -> bool {
        N::is_fifo(&self.config)
    }

    fn create(&self, me: ProcessId, view: Arc<Membership>, tables: &Tables) -> u32 {
        self.number(Local::new(me, view), None, tables)
    }

    fn handle(&self, number: u32, event: LocalEvent, tables: &Tables) -> Effect {
        let happening = self.event(event, tables);
        let local = self.local(number, tables);
        let Reaction { local, requests, facts, ends } = local.handle(&self.config, happening);
        let life = (local.me, local.life);
        let requests = requests.into_iter().map(|it| self.request(life, it, tables));
        let detection = match event {
            LocalEvent::Ends(_, returns) => Some(tables.step(Body::Detect(life.0, life.1, returns), 0)),
            _ => None,
        };
        Effect {
            requests: requests.chain(detection).collect(),
            local: self.number(local, Some((number, event)), tables),
            facts: facts.into(),
            ends: ends.map(Box::new),
        }
    }

    fn contents(&self) -> usize {
        locked(&self.locals).len()
    }

    fn retain(&self, is_needed: &dyn Fn(u32) -> bool) {
        let mut locals = locked(&self.locals);
        locals.retain(|it, _| is_needed(*it));
        locals.shrink_to_fit();
    }

    fn packet(&self, step: u32) -> String {
        const MOST: usize = 160;
        let text = match locked(&self.steps).get(&step) {
            Some(StepContent::Packet(packet)) => match &**packet {
                Packet::Application { id, .. } => format!("message {id}"),
                Packet::Control(message) => format!("{message:?}"),
                Packet::Image(image) => format!("the part {}", image.name),
            },
            _ => unreachable!("the step is the arrival of a packet"),
        };
        one_line(&text, MOST)
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
