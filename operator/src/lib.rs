//! The operator: creates a federation's pods, tells their supervisor where they are, carries out requests that need
//! the API server, and reports the state in the resource.
//!
//! The operator is independent of the protocol and makes no decisions about the run: the supervisor makes them, in its
//! own pod. All state of the operator is in the API server or in the supervisor, so it can stop and restart at any
//! time.
//!
//! | module | content |
//! | --- | --- |
//! | [`controller`] | watched objects, and when a federation is reconciled |
//! | [`shares`] | how federations share the parallel reconciliations |
//! | [`reconcile`] | reconciling a federation: freezing it, and six steps |
//! | [`context`] | what all reconciliations share |
//! | [`cached_federation`] | federations as they are cached, readable or not |
//! | [`federation_cache`] | what is remembered about each federation |
//! | [`object_cache`] | the known pods and sets of each federation |
//! | [`limits`] | how often the operator writes about a federation |
//! | [`pages`] | lists that are read page by page |
//! | [`client`] | the client of the API server |
//! | [`election`] | which of several operators is active |
//! | [`install`] | the objects that install the operator, including its permissions |
//! | [`metrics`] | metrics of the operator |

pub mod cached_federation;
pub mod client;
pub mod context;
pub mod controller;
pub mod election;
pub mod federation_cache;
pub mod install;
pub mod limits;
pub mod metrics;
pub mod object_cache;
pub mod pages;
pub mod reconcile;
pub mod settings;
pub mod shares;

use faultline_client::{naming, supervisor};

pub use context::Context;
pub use settings::Settings;
