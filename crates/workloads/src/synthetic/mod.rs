//! Synthetic traffic.
mod config;
pub use config::{Behaviour, Config, Traffic};
