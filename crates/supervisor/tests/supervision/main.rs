//! Tests of the supervisor against scripted reports.

mod changes;
mod orders;
mod presence;
mod system;
