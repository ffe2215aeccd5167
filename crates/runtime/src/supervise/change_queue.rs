//! The interface through which users change a running federation. Can be used from any thread.

use std::sync::{Arc, Mutex, PoisonError};

use faultline_core::fault::Change;

/// Changes that the supervisor has not received yet.
#[derive(Clone, Debug, Default)]
pub struct ChangeQueue(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    changes: Vec<Change>,
    note: Option<String>,
}

impl ChangeQueue {
    /// Requests changes, in addition to earlier ones. A restarted program that resumes the run finds the
    /// `note` of the last changes that the run received ([`super::JournalContents::note`]).
    pub fn ask(&self, changes: impl IntoIterator<Item = Change>, note: Option<String>) {
        let asked = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.changes.extend(changes);
        asked.note = note.or(asked.note.take());
    }

    /// Returns the changes requested since the last call, and the newest note.
    pub(super) fn take(&self) -> (Vec<Change>, Option<String>) {
        let asked = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (asked.changes, asked.note)
    }
}
