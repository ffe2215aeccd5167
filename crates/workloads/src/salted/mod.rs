//! Salted traffic.
mod config;
pub use config::Config;
