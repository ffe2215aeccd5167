//! The supervisor against scripts of reports.

mod changes;
mod orders;
mod presence;
