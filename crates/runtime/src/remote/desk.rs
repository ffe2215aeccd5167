//! Where those who provide places and the run that needs them meet. May be used from any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_core::ProcessId;
use thiserror::Error;
use tokio::sync::watch;

use crate::shaper::Abilities;

/// Where a process is: an agent. Another one means another life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What tells it from its predecessors.
    pub uid: String,
    /// Where the agent listens.
    pub address: SocketAddr,
}

/// What only the provider of the places can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names it; never used again.
    pub id: u64,
    /// What is wanted.
    pub wanted: Wanted,
    /// Whose place.
    pub process: ProcessId,
    /// Of the place.
    pub uid: String,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The end of a place whose agent does not answer.
    Removal,
    /// The same, and the end of its storage.
    RemovalWithStorage,
}

/// Somebody knew less than is known already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("generation {known} of the places is known already")]
pub struct Stale {
    /// The newest generation.
    pub known: u64,
}

/// What can be read at the desk.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Of the places.
    pub generation: u64,
    /// The places.
    pub places: BTreeMap<ProcessId, Place>,
    /// Processes with which an agent is ready.
    pub hosted: BTreeSet<ProcessId>,
    /// What is asked for.
    pub requests: Vec<Request>,
    /// What the kernels at the places of processes that have a shaper can do for links.
    pub abilities: BTreeMap<ProcessId, Abilities>,
    /// What stands in the way of reaching an agent, by process.
    pub troubles: BTreeMap<ProcessId, String>,
    /// Counts requests.
    asked: u64,
}

/// The desk of one run.
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
    /// Says which places there are, instead of what was said before. Saying the newest generation again changes nothing.
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

    /// A request has been carried out. Whether there was such a one.
    pub fn done(&self, request: u64) -> bool {
        let mut board = self.lock();
        let before = board.requests.len();
        board.requests.retain(|it| it.id != request);
        board.requests.len() < before
    }

    /// What can be read now.
    pub fn board(&self) -> Board {
        self.lock().clone()
    }

    /// Tells of changes of the places.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        let mut changes = self.changed.subscribe();
        // There may be places already.
        changes.mark_changed();
        changes
    }

    /// An agent is ready with `process`, or is not any more, for this reason.
    pub(super) fn note(&self, process: ProcessId, ready: bool, trouble: Option<String>) {
        let board = &mut *self.lock();
        if ready {
            board.hosted.insert(process);
            // It has answered, and has ended what it was to end.
            board.requests.retain(|it| it.process != process);
        } else {
            board.hosted.remove(&process);
        }
        match trouble {
            Some(trouble) => drop(board.troubles.insert(process, trouble)),
            None => drop(board.troubles.remove(&process)),
        }
    }

    /// What the kernel at the place of a process can do; `None` when nobody there may tell it anything.
    pub(super) fn found(&self, process: ProcessId, abilities: Option<Abilities>) {
        let board = &mut *self.lock();
        match abilities {
            Some(abilities) => drop(board.abilities.insert(process, abilities)),
            None => drop(board.abilities.remove(&process)),
        }
    }

    /// Asks for something, once.
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
    fn a_request_stands_until_it_is_done_or_its_place_is_gone() {
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
