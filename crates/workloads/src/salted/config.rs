//! Parameters of the salted application.

use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, in_range, is_probability};

/// Parameters of the salted application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Number of steps after which a rank finishes.
    pub steps: u32,
    /// Modelled duration of one step.
    pub step_cost: Span,
    /// Maximum number of messages sent after one step; the actual number is random.
    pub fan_out: u32,
    /// Probability that a message goes to another cluster.
    pub between: f64,
    /// Probability that a delivered message is answered.
    pub reply: f64,
    /// Maximum length of a chain of answers to one message.
    pub reply_depth: u8,
}

impl Default for Config {
    /// Returns the defaults: a second of computation with two messages per step on average, 30 % of them between
    /// clusters.
    fn default() -> Self {
        Config {
            steps: 100,
            step_cost: Span::from_millis(10),
            fan_out: 4,
            between: 0.3,
            reply: 0.3,
            reply_depth: 3,
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        in_range("steps", self.steps.into(), u64::from(u32::MAX))?;
        in_range("fan_out", self.fan_out.max(1).into(), 1 << 16)?;
        is_probability("between", self.between)?;
        is_probability("reply", self.reply)
    }
}
