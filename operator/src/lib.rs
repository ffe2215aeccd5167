//! The operator: makes a federation's pods, tells their supervisor where they are, carries out what only the API server
//! can do, and says in the resource what has become of it.
//!
//! It knows no protocol and decides nothing about the run: the supervisor does, in a pod of its own. Everything that the
//! operator needs stands in the API server or in the supervisor, so that it may end at any moment and begin again.
//!
//! | module | holds |
//! | --- | --- |
//! | [`controller`] | what is watched, and when a federation is looked at |
//! | [`reconcile`] | one look at a federation: dereference, validate, build, apply, update the status |
//! | [`mirror`] | what is known of the pods and sets of each federation |
//! | [`install`] | what it takes to install the operator, and the rights that it has |
//! | [`metrics`] | what is counted, and the page on which it stands |

pub mod controller;
pub mod install;
pub mod metrics;
pub mod mirror;
pub mod reconcile;
pub mod settings;

use faultline_client::{naming, supervisor};

pub use controller::Context;
pub use settings::Settings;
