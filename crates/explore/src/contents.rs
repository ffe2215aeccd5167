//! The contents of the states of processes and of steps. Only the computation of a new effect needs them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_catalog::Hosted;
use faultline_core::process::{Packet, PacketOf};
use faultline_core::{JobNo, Life, Membership, ProcessId};

use crate::interned::Chains;
use crate::key::key_of;
use crate::local::{ExploredEvent, Local, Reaction, Request};
use crate::tables::{Body, Effect, LocalEntry, LocalEvent, Processes, Tables};

/// The processes of one type.
pub(crate) struct Contents<N: Hosted> {
    config: Arc<N::Config>,
    /// States of processes by number.
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

    /// Returns the number of a state of a process.
    fn number(&self, local: Local<N>, tables: &Tables) -> u32 {
        let number = tables.locals.intern(local.key, || LocalEntry {
            life: local.life,
            lives: local.lives(),
            deadline: local.deadline(),
            next_boot: local.next_boot(),
            has_finished: local.has_finished,
            facts_key: local.facts_key,
            view: local.view.clone(),
            effects: Chains::new(),
        });
        locked(&self.locals).entry(number).or_insert(local);
        number
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
        self.number(Local::new(me, view), tables)
    }

    fn handle(&self, local: u32, event: LocalEvent, tables: &Tables) -> Effect {
        let happening = self.event(event, tables);
        let local = locked(&self.locals).get(&local).cloned().expect("the contents of all states are kept");
        let Reaction { local, requests, facts, ends } = local.handle(&self.config, happening);
        let life = (local.me, local.life);
        let requests = requests.into_iter().map(|it| self.request(life, it, tables));
        let detection = match event {
            LocalEvent::Ends(_, returns) => Some(tables.step(Body::Detect(life.0, life.1, returns), 0)),
            _ => None,
        };
        Effect {
            requests: requests.chain(detection).collect(),
            local: self.number(local, tables),
            facts: facts.into(),
            ends: ends.map(Box::new),
        }
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
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
