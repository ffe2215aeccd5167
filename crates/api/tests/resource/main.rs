//! The resource: what is valid, what is refused and how, and what it expands to.

mod bad_input;
mod definition;
mod plan;
mod samples;
mod tasks;
