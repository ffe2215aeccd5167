//! The interface between the provider of places and the run that uses them. Can be used from any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_core::ProcessId;
use thiserror::Error;
use tokio::sync::watch;

use crate::shaper::Abilities;

/// The place of a process, with the agent that hosts the process there. A process that moves to another place
/// begins a new life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlace {
    /// Identifier that distinguishes the place from its predecessors.
    pub uid: String,
    /// Address of the agent.
    pub address: SocketAddr,
}

/// An action that only the provider of the places can perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceRequest {
    /// Unique number of the request.
    pub id: u64,
    /// The requested action.
    pub wanted: Wanted,
    /// The process at the place.
    pub process: ProcessId,
    /// Identifier of the place.
    pub uid: String,
}

/// Actions that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Remove the place. Its storage may remain.
    Removal,
    /// Remove the place and its storage.
    RemovalWithStorage,
}

/// Error for announced places that are older than the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("generation {known} of the places is already known")]
pub struct Stale {
    /// The newest known generation.
    pub known: u64,
}

/// The state of the registry.
#[derive(Clone, Debug, Default)]
pub struct RegistryState {
    /// Generation of the places.
    pub generation: u64,
    /// The current place of each process.
    pub places: BTreeMap<ProcessId, AgentPlace>,
    /// Processes whose agents are ready.
    pub hosted: BTreeSet<ProcessId>,
    /// Pending requests to the provider.
    pub requests: Vec<PlaceRequest>,
    /// Link-emulation features of the kernels, by process. Contains only processes that have a shaper.
    pub abilities: BTreeMap<ProcessId, Abilities>,
    /// The reasons why agents are not connected, by process.
    pub problems: BTreeMap<ProcessId, String>,
    /// Number of requests so far.
    asked: u64,
}

/// The registry of a single run.
#[derive(Clone, Debug)]
pub struct PlaceRegistry {
    registry_state: Arc<Mutex<RegistryState>>,
    changed: watch::Sender<()>,
}

impl Default for PlaceRegistry {
    fn default() -> Self {
        PlaceRegistry { registry_state: Arc::default(), changed: watch::channel(()).0 }
    }
}

impl PlaceRegistry {
    /// Replaces the places. Repeating the newest generation has no effect.
    ///
    /// # Errors
    ///
    /// Returns [`Stale`] if a newer generation is known.
    pub fn assign(&self, generation: u64, places: BTreeMap<ProcessId, AgentPlace>) -> Result<(), Stale> {
        let mut registry_state = self.lock();
        if generation < registry_state.generation {
            return Err(Stale { known: registry_state.generation });
        }
        if generation > registry_state.generation {
            registry_state.generation = generation;
            let is_there =
                |request: &PlaceRequest| places.get(&request.process).is_some_and(|it| it.uid == request.uid);
            registry_state.requests.retain(is_there);
            registry_state.places = places;
            drop(registry_state);
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// Removes a request that has been fulfilled. Returns whether it existed.
    pub fn done(&self, request: u64) -> bool {
        let mut registry_state = self.lock();
        let before = registry_state.requests.len();
        registry_state.requests.retain(|it| it.id != request);
        registry_state.requests.len() < before
    }

    /// Returns the current state.
    pub fn state(&self) -> RegistryState {
        self.lock().clone()
    }

    /// Returns a receiver that is notified when places change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        // Some places may already exist.
        changes.mark_changed();
        changes
    }

    /// Records whether the agent of `process` is ready and, if it is not connected, the reason.
    pub(super) fn note(&self, process: ProcessId, ready: bool, problem: Option<String>) {
        let registry_state = &mut *self.lock();
        if ready {
            registry_state.hosted.insert(process);
            // The agent has responded, and has ended the lives that it had to end.
            registry_state.requests.retain(|it| it.process != process);
        } else {
            registry_state.hosted.remove(&process);
        }
        match problem {
            Some(problem) => drop(registry_state.problems.insert(process, problem)),
            None => drop(registry_state.problems.remove(&process)),
        }
    }

    /// Records the features of the kernel at the place of a process; `None` if no program there may configure the
    /// kernel.
    pub(super) fn found(&self, process: ProcessId, abilities: Option<Abilities>) {
        let registry_state = &mut *self.lock();
        match abilities {
            Some(abilities) => drop(registry_state.abilities.insert(process, abilities)),
            None => drop(registry_state.abilities.remove(&process)),
        }
    }

    /// Adds a request, unless the same or a stronger request exists for the place.
    pub(super) fn ask(&self, wanted: Wanted, process: ProcessId, uid: String) {
        let registry_state = &mut *self.lock();
        match registry_state.requests.iter_mut().find(|it| it.process == process && it.uid == uid) {
            Some(known) if wanted == Wanted::Removal || known.wanted == wanted => {}
            known => {
                registry_state.asked += 1;
                let request = PlaceRequest { id: registry_state.asked, wanted, process, uid };
                match known {
                    Some(known) => *known = request,
                    None => registry_state.requests.push(request),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.registry_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(uid: &str) -> BTreeMap<ProcessId, AgentPlace> {
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        BTreeMap::from([(ProcessId(0), AgentPlace { uid: uid.into(), address })])
    }

    #[test]
    fn older_generations_are_rejected() {
        let place_registry = PlaceRegistry::default();
        place_registry.assign(3, places("a")).unwrap();
        place_registry.assign(3, places("b")).unwrap();
        assert_eq!(place_registry.state().places, places("a"), "the same generation changes nothing");
        assert_eq!(place_registry.assign(2, places("b")), Err(Stale { known: 3 }));
        place_registry.assign(4, places("b")).unwrap();
        assert_eq!(place_registry.state().places, places("b"));
    }

    #[test]
    fn a_request_remains_until_it_is_done_or_its_place_is_removed() {
        let place_registry = PlaceRegistry::default();
        place_registry.assign(1, places("a")).unwrap();
        let ask = |wanted| place_registry.ask(wanted, ProcessId(0), "a".into());
        ask(Wanted::Removal);
        ask(Wanted::Removal);
        let ids = || place_registry.state().requests.iter().map(|it| (it.id, it.wanted)).collect::<Vec<_>>();
        assert_eq!(ids(), [(1, Wanted::Removal)], "requested once");
        ask(Wanted::RemovalWithStorage);
        ask(Wanted::Removal);
        assert_eq!(ids(), [(2, Wanted::RemovalWithStorage)], "the stronger request replaces the weaker");
        assert!(!place_registry.done(1));
        assert!(place_registry.done(2));
        ask(Wanted::Removal);
        place_registry.assign(2, places("b")).unwrap();
        assert_eq!(ids(), []);
        ask(Wanted::Removal);
        place_registry.note(ProcessId(0), true, None);
        assert_eq!(ids(), [], "an agent that responds has ended its lives");
    }
}
