//! Where those who change a federation while it runs and the run meet. May be used from any thread.

use std::sync::{Arc, Mutex, PoisonError};

use faultline_core::fault::Change;

/// Changes that the supervisor has not heard of yet.
#[derive(Clone, Debug, Default)]
pub struct Wishes(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    changes: Vec<Change>,
    note: Option<String>,
}

impl Wishes {
    /// Asks for changes, after those that were asked for before. Should the run be taken up by another start of the
    /// program, that one finds the `note` of the last changes that the run knows of ([`super::Past::note`]).
    pub fn ask(&self, changes: impl IntoIterator<Item = Change>, note: Option<String>) {
        let asked = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.changes.extend(changes);
        asked.note = note.or(asked.note.take());
    }

    /// What has been asked for since the last time, and the newest note.
    pub(super) fn take(&self) -> (Vec<Change>, Option<String>) {
        let asked = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (asked.changes, asked.note)
    }
}
