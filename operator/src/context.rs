//! What all reconciliations share: the settings, clients and caches.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync;

use crate::federation_cache::FederationCache;
use crate::metrics::Metrics;
use crate::object_cache::ObjectCache;
use crate::settings::Settings;
use crate::shares::Shares;

/// Maximum number of federations reconciled in parallel.
pub const CONCURRENCY: u16 = 32;
/// Maximum duration of a reconciliation. A reconciliation that takes longer is a failure, and is repeated.
const DEADLINE: Duration = Duration::from_secs(30);

/// Everything that reconciling a federation needs.
pub struct Context {
    /// Client of the API server.
    pub client: Client,
    /// Settings of the operator.
    pub settings: Settings,
    /// Name under which this operator holds the lease and reports events.
    pub identity: String,
    /// Cache of the stateful sets.
    pub sets: ObjectCache<StatefulSet>,
    /// Cache of the pods.
    pub pods: ObjectCache<Pod>,
    /// Metrics of the operator.
    pub metrics: Arc<Metrics>,
    /// Maximum duration of a reconciliation.
    pub deadline: Duration,
    /// Held while a large status of a supervisor is read: several at once could exhaust the operator's memory.
    pub large_status: sync::Mutex<()>,
    /// Shares of the parallel reconciliations.
    pub shares: Shares,
    sessions: Mutex<HashMap<String, FederationCache>>,
}

impl Context {
    /// Creates a context with empty caches.
    pub fn new(client: Client, settings: Settings, identity: String, metrics: Arc<Metrics>) -> Context {
        Context {
            client,
            settings,
            identity,
            sets: ObjectCache::default(),
            pods: ObjectCache::default(),
            metrics,
            deadline: DEADLINE,
            large_status: sync::Mutex::default(),
            shares: Shares::of(CONCURRENCY),
            sessions: Mutex::default(),
        }
    }

    /// Returns the API for objects in the namespace of this object.
    pub fn api<K>(&self, beside: &impl ResourceExt) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    /// Reads or changes the state of the federation with this UID.
    pub fn session<T>(&self, uid: &str, look: impl FnOnce(&mut FederationCache) -> T) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        look(sessions.entry(uid.to_owned()).or_default())
    }

    /// Reads or changes the state of a federation.
    pub fn cache<T>(&self, federation: &impl ResourceExt, look: impl FnOnce(&mut FederationCache) -> T) -> T {
        self.session(&federation.uid().unwrap_or_default(), look)
    }

    /// Changes the state of the federation with this UID, unless it has been [dropped](Context::forget).
    pub fn update_session(&self, uid: &str, change: impl FnOnce(&mut FederationCache)) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get_mut(uid).map(change);
    }

    /// Logs a warning about a federation, at most once per minute: its cause may persist for many reconciliations.
    pub fn warn(&self, federation: &impl ResourceExt, warning: &'static str, error: &dyn Display) {
        let uid = federation.uid().unwrap_or_default();
        if self.session(&uid, |it| it.may_warn(warning, Instant::now())) {
            let namespace = federation.namespace().unwrap_or_default();
            let name = format!("{namespace}/{}", federation.name_any());
            tracing::warn!(federation = name, %error, "{warning}");
        }
    }

    /// Returns the number of known federations.
    pub fn federations(&self) -> u32 {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// Drops the state of all federations that had this namespace and name, except the one with the UID `present`. A
    /// federation is deleted without another reconciliation if a user has removed its finalizer.
    pub fn forget_others(&self, name: &str, present: Option<&str>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|uid, session| {
            let is_gone = session.name == name && Some(uid.as_str()) != present;
            if is_gone {
                self.metrics.forget(uid);
            }
            !is_gone
        });
        if let Some(uid) = present {
            name.clone_into(&mut sessions.entry(uid.to_owned()).or_default().name);
        }
    }

    /// Drops the state of the federation with this UID.
    pub fn forget(&self, uid: &str) {
        self.metrics.forget(uid);
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
