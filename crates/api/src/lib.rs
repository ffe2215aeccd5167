//! The `Federation` resource: types, parsing, validation, presets, and the expansion of its faults.
//!
//! No client and no drivers: a text or an object goes in, values come out.
//!
//! | module | holds |
//! | --- | --- |
//! | [`quantity`] | numbers with a unit: `5ms`, `100Mbit`, `0.1%` |
//! | [`resource`] | the resource, ready to become a custom resource definition |
//! | [`mod@parse`] | from the bytes of a file to a valid resource, or to errors that point at lines |
//! | [`mod@validate`] | what a combination of values means, and which make no sense |
//! | [`names`] | processes and clusters by name and by number |
//! | [`mod@plan`] | the expansion of the faults from a seed |
//! | [`live`] | what may change of a federation while it runs |
//! | [`samples`] | federations to start from |
//! | [`supervision`] | what is said over HTTP to the supervisor of a federation in pods |

mod document;
pub mod live;
mod locate;
pub mod names;
pub mod parse;
pub mod plan;
pub mod quantity;
pub mod resource;
pub mod samples;
pub mod supervision;
pub mod validate;

pub use document::{definition, schema, to_yaml};
pub use names::Names;
pub use parse::{Complaint, Parsed, Rejected, parse};
pub use plan::{plan, plan_among};
pub use resource::{Federation, FederationSpec};
pub use validate::{Problem, validate};
