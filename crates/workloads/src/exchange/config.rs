//! Parameters of the random message-passing programs.

use alloc::vec;
use alloc::vec::Vec;

use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, has_peers, in_range};

/// How the messages of an exchange are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// From a named sender.
    Named,
    /// From a fixed set of senders, in any order.
    Gathered,
    /// By polling, then waiting at a fence.
    Polled,
}

/// Parameters of a random message-passing program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Seed that determines the program.
    pub pattern: u64,
    /// Number of exchanges in the entire federation.
    pub exchanges: u32,
    /// Modelled duration of one computation by a rank: the computation before an exchange whose root is the rank, or
    /// one piece between polls.
    pub step_cost: Span,
    /// Classes from which the exchanges are drawn. A class may appear several times to increase its share.
    pub classes: Vec<Class>,
}

impl Default for Config {
    /// Returns the defaults: 300 exchanges of all classes.
    fn default() -> Self {
        Config {
            pattern: 1,
            exchanges: 300,
            step_cost: Span::from_millis(20),
            classes: vec![Class::Named, Class::Gathered, Class::Polled],
        }
    }
}

impl Config {
    pub(crate) fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        in_range("exchanges", self.exchanges.into(), 1 << 20)?;
        in_range("classes", self.classes.len() as u64, 16)?;
        has_peers(clusters)
    }
}
