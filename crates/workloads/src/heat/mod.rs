//! Coupled heat solvers.
mod config;
pub use config::Config;
