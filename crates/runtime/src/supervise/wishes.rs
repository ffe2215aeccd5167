//! Where those who change a federation while it runs and the run meet. May be used from any thread.

use std::sync::{Arc, Mutex, PoisonError};

use faultline_core::fault::Change;

/// Changes that the supervisor has not heard of yet.
#[derive(Clone, Debug, Default)]
pub struct Wishes(Arc<Mutex<Vec<Change>>>);

impl Wishes {
    /// Asks for changes, after those that were asked for before.
    pub fn ask(&self, changes: impl IntoIterator<Item = Change>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(changes);
    }

    /// What has been asked for since the last time.
    pub(super) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
