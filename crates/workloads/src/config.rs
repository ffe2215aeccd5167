//! Parameters of a workload, and their validation.
//!
//! All ranks of a federation have the same parameters. Their validity depends on the shape of the federation, so they
//! are checked against the sizes of the clusters. A workload with invalid parameters may panic.

use serde::{Deserialize, Serialize};

use crate::custom::Custom;
use crate::invalid::Invalid;
use crate::{exchange, farm, heat, nas, pingpong, salted, synthetic};

/// The application to run, with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Config {
    /// Coupled heat solvers.
    Heat(heat::Config),
    /// Messages sent with given probabilities, in exact numbers, or as fast as possible.
    Synthetic(synthetic::Config),
    /// Random message-passing programs.
    Exchange(exchange::Config),
    /// The communication of a NAS kernel.
    Nas(nas::Config),
    /// Ping-pong with messages of various lengths.
    PingPong(pingpong::Config),
    /// Master and workers.
    Farm(farm::Config),
    /// An application that sends different messages in every re-execution.
    Salted(salted::Config),
    /// An application from another crate.
    #[serde(skip)]
    Custom(Custom),
}

impl Config {
    /// Checks the parameters for a federation in which cluster `i` has `clusters[i]` ranks.
    ///
    /// # Errors
    ///
    /// Returns the first invalid parameter.
    pub fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        match self {
            Config::Heat(config) => config.validate(),
            Config::Synthetic(config) => config.validate(clusters),
            Config::Exchange(config) => config.validate(clusters),
            Config::Nas(config) => config.validate(clusters),
            Config::PingPong(config) => config.validate(clusters),
            Config::Farm(config) => config.validate(clusters),
            Config::Salted(config) => config.validate(),
            // The application's own crate checks its parameters.
            Config::Custom(_) => Ok(()),
        }
    }
}
