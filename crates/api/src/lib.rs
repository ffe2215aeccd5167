//! The `Federation` resource: types, parsing, validation, presets, and the expansion of its faults.
//!
//! This crate contains no client and no drivers: it turns text into values. `faultline-client` has the resource as a
//! Kubernetes object, with its status and its definition.
//!
//! | module | contents |
//! | --- | --- |
//! | [`quantity`] | quantities with a unit: `5ms`, `100Mbit`, `0.1%` |
//! | [`resource`] | the types of the resource, with the rules that API servers evaluate |
//! | [`mod@parse`] | parsing of files into valid resources, or into errors with line numbers |
//! | [`mod@validate`] | checks of combinations of values |
//! | [`names`] | processes and clusters by name and by number |
//! | [`mod@flow`] | task-based programs from their parameters |
//! | [`mod@plan`] | the expansion of the faults from a seed |
//! | [`failure_trace`] | failure traces as triggers of faults |
//! | [`mtbf`] | the mean time between random faults |
//! | [`live`] | changes to a running federation |
//! | [`samples`] | example federations |
//! | [`system`] | the templates of a system: what each node is given |
//! | [`supervision`] | the supervisor's HTTP API, for a federation in pods |

pub mod failure_trace;
pub mod flow;
mod hints;
mod leave_out;
pub mod live;
mod locate;
pub mod mtbf;
pub mod names;
pub mod parse;
pub mod plan;
pub mod quantity;
pub mod resource;
pub mod samples;
mod schema;
pub mod supervision;
pub mod system;
pub mod validate;

pub use names::Names;
pub use parse::{FileError, Parsed, Rejected, parse};
pub use plan::{plan, plan_among};
pub use resource::{Federation, FederationSpec, to_yaml};
pub use schema::{schema, structural};
pub use validate::{Problem, unfit_for_pods, validate};
