//! The interface between the provider of places and the run that needs them. Can be used from any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_core::ProcessId;
use thiserror::Error;
use tokio::sync::watch;

use crate::shaper::Abilities;

/// The place of a process: an agent. A change of place begins a new life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Identifier that distinguishes the place from its predecessors.
    pub uid: String,
    /// Address of the agent.
    pub address: SocketAddr,
}

/// An action that only the provider of the places can perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique number of the request.
    pub id: u64,
    /// The requested action.
    pub wanted: Wanted,
    /// The process whose place is concerned.
    pub process: ProcessId,
    /// Identifier of the place.
    pub uid: String,
}

/// Actions that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Remove a place whose agent does not answer.
    Removal,
    /// Remove the place and its storage.
    RemovalWithStorage,
}

/// The caller's places are older than the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("generation {known} of the places is already known")]
pub struct Stale {
    /// The newest known generation.
    pub known: u64,
}

/// The state of the desk.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Generation of the places.
    pub generation: u64,
    /// The current place of each process.
    pub places: BTreeMap<ProcessId, Place>,
    /// Processes whose agents are ready.
    pub hosted: BTreeSet<ProcessId>,
    /// Requests to the provider that have not been carried out yet.
    pub requests: Vec<Request>,
    /// Features of the kernels for link emulation, for processes that have a shaper.
    pub abilities: BTreeMap<ProcessId, Abilities>,
    /// Obstacles to the connections with agents, by process.
    pub troubles: BTreeMap<ProcessId, String>,
    /// Number of requests so far.
    asked: u64,
}

/// The desk of a single run.
#[derive(Clone, Debug)]
pub struct Desk {
    board: Arc<Mutex<Board>>,
    changed: watch::Sender<()>,
}

impl Default for Desk {
    fn default() -> Self {
        Desk { board: Arc::default(), changed: watch::channel(()).0 }
    }
}

impl Desk {
    /// Replaces the places. Repeating the newest generation has no effect.
    ///
    /// # Errors
    ///
    /// Returns [`Stale`] if a newer generation is known.
    pub fn assign(&self, generation: u64, places: BTreeMap<ProcessId, Place>) -> Result<(), Stale> {
        let mut board = self.lock();
        if generation < board.generation {
            return Err(Stale { known: board.generation });
        }
        if generation > board.generation {
            board.generation = generation;
            let is_there =
                |request: &Request| places.get(&request.process).is_some_and(|it| it.uid == request.uid);
            board.requests.retain(is_there);
            board.places = places;
            drop(board);
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// Marks a request as carried out. Returns whether it existed.
    pub fn done(&self, request: u64) -> bool {
        let mut board = self.lock();
        let before = board.requests.len();
        board.requests.retain(|it| it.id != request);
        board.requests.len() < before
    }

    /// Returns the current state.
    pub fn board(&self) -> Board {
        self.lock().clone()
    }

    /// Returns a receiver that is notified of changes of the places.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        // Some places may already exist.
        changes.mark_changed();
        changes
    }

    /// Records whether the agent of `process` is ready, and what prevents a connection.
    pub(super) fn note(&self, process: ProcessId, ready: bool, trouble: Option<String>) {
        let board = &mut *self.lock();
        if ready {
            board.hosted.insert(process);
            // The agent has answered, and has ended whatever it had to end.
            board.requests.retain(|it| it.process != process);
        } else {
            board.hosted.remove(&process);
        }
        match trouble {
            Some(trouble) => drop(board.troubles.insert(process, trouble)),
            None => drop(board.troubles.remove(&process)),
        }
    }

    /// Records the kernel's features at the place of a process; `None` if no program there may configure it.
    pub(super) fn found(&self, process: ProcessId, abilities: Option<Abilities>) {
        let board = &mut *self.lock();
        match abilities {
            Some(abilities) => drop(board.abilities.insert(process, abilities)),
            None => drop(board.abilities.remove(&process)),
        }
    }

    /// Adds a request, unless it already exists.
    pub(super) fn ask(&self, wanted: Wanted, process: ProcessId, uid: String) {
        let board = &mut *self.lock();
        match board.requests.iter_mut().find(|it| it.process == process && it.uid == uid) {
            Some(known) if wanted == Wanted::Removal || known.wanted == wanted => {}
            known => {
                board.asked += 1;
                let request = Request { id: board.asked, wanted, process, uid };
                match known {
                    Some(known) => *known = request,
                    None => board.requests.push(request),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(uid: &str) -> BTreeMap<ProcessId, Place> {
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        BTreeMap::from([(ProcessId(0), Place { uid: uid.into(), address })])
    }

    #[test]
    fn older_generations_are_refused() {
        let desk = Desk::default();
        desk.assign(3, places("a")).unwrap();
        desk.assign(3, places("b")).unwrap();
        assert_eq!(desk.board().places, places("a"), "the same generation changes nothing");
        assert_eq!(desk.assign(2, places("b")), Err(Stale { known: 3 }));
        desk.assign(4, places("b")).unwrap();
        assert_eq!(desk.board().places, places("b"));
    }

    #[test]
    fn a_request_remains_until_it_is_done_or_its_place_is_removed() {
        let desk = Desk::default();
        desk.assign(1, places("a")).unwrap();
        let ask = |wanted| desk.ask(wanted, ProcessId(0), "a".into());
        ask(Wanted::Removal);
        ask(Wanted::Removal);
        let ids = || desk.board().requests.iter().map(|it| (it.id, it.wanted)).collect::<Vec<_>>();
        assert_eq!(ids(), [(1, Wanted::Removal)], "asked once");
        ask(Wanted::RemovalWithStorage);
        ask(Wanted::Removal);
        assert_eq!(ids(), [(2, Wanted::RemovalWithStorage)], "the greater wish stands");
        assert!(!desk.done(1));
        assert!(desk.done(2));
        ask(Wanted::Removal);
        desk.assign(2, places("b")).unwrap();
        assert_eq!(ids(), []);
        ask(Wanted::Removal);
        desk.note(ProcessId(0), true, None);
        assert_eq!(ids(), [], "an agent that answers has ended what it was to end");
    }
}
