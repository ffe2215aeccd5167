//! Tests of the resource: validity, error messages, and the expansion of faults.

mod bad_input;
mod limits;
mod plan;
mod samples;
mod schema;
mod tasks;
