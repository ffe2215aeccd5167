//! Tests of the resource: validity, error messages, and the expansion of faults.

mod bad_input;
mod definition;
mod limits;
mod plan;
mod samples;
mod tasks;
