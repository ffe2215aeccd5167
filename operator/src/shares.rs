//! Divides the controller's parallel reconciliations among federations, so that federations whose supervisors respond
//! slowly do not delay the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The shares of namespaces and of slow federations.
pub struct Shares {
    /// Maximum number of reconciliations in progress per namespace.
    per_namespace: usize,
    /// The namespaces with reconciliations in progress.
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The share of all slow federations together.
    slow: Arc<Semaphore>,
}

/// Permits one reconciliation, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _of_namespace: OwnedSemaphorePermit,
    _of_slow: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// Divides this number of parallel reconciliations: each namespace may use half of them, and all slow federations
    /// together a quarter.
    pub fn of(parallel: u16) -> Shares {
        let parallel = usize::from(parallel);
        let slow = Arc::new(Semaphore::new(parallel / 4));
        Shares { per_namespace: parallel / 2, namespaces: Mutex::default(), slow }
    }

    /// Returns a permit to reconcile a federation of this namespace; `None` if a share is used up.
    pub fn admit(&self, namespace: &str, is_slow: bool) -> Option<Permit> {
        let of_slow = is_slow.then(|| Arc::clone(&self.slow).try_acquire_owned()).transpose().ok()?;
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.retain(|_, it| it.available_permits() < self.per_namespace);
        let share = namespaces
            .entry(namespace.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(self.per_namespace)));
        let of_namespace = Arc::clone(share).try_acquire_owned().ok()?;
        Some(Permit { _of_namespace: of_namespace, _of_slow: of_slow })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_may_use_half_of_the_reconciliations() {
        let shares = Shares::of(32);
        let mut permits: Vec<Permit> = (0..16).filter_map(|_| shares.admit("crowded", false)).collect();
        assert_eq!(permits.len(), 16);
        assert!(shares.admit("crowded", false).is_none());
        assert!(shares.admit("other", false).is_some());
        permits.pop();
        assert!(shares.admit("crowded", false).is_some());
    }

    #[test]
    fn slow_federations_of_all_namespaces_share_a_quarter() {
        let shares = Shares::of(32);
        let admit = |number: u32| shares.admit(&format!("crowded-{number}"), true);
        let mut permits: Vec<Permit> = (0..100).filter_map(admit).collect();
        assert_eq!(permits.len(), 8);
        permits.extend((0..24).filter_map(|it| shares.admit(&format!("crowded-{it}"), false)));
        assert_eq!(permits.len(), 32, "other federations use the rest");
        permits.clear();
        assert!(admit(0).is_some());
    }
}
