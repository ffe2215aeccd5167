//! Parameters of the heat application.

use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::config::{Invalid, in_range};

/// Parameters of the heat application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Rows of the grid that one rank owns.
    pub rows: u32,
    /// Columns of the grid. A message carries one row: 8 bytes a column, and 4.
    pub columns: u32,
    /// Time steps.
    pub steps: u32,
    /// Modelled duration of one step on one rank.
    pub step_cost: Span,
    /// A cluster's first rank sends its first row back to the cluster before it after every `feedback_every` steps: 1
    /// couples the two ways alike, 0 never sends back.
    pub feedback_every: u32,
    /// Incompressible state of one rank beside its grid, in bytes; rounded up to 8.
    pub state_bytes: u64,
}

impl Default for Config {
    /// About 10 s of computation with three feedbacks, 1 MiB of incompressible state and 16 KiB of grid a rank, messages of 1 KiB.
    fn default() -> Self {
        Config {
            rows: 16,
            columns: 128,
            steps: 450,
            step_cost: Span::from_millis(20),
            feedback_every: 120,
            state_bytes: 1 << 20,
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        in_range("rows", self.rows.into(), u64::from(u32::MAX))?;
        in_range("columns", self.columns.into(), 1 << 20)?;
        in_range("cells of a rank", u64::from(self.rows) * u64::from(self.columns), 1 << 27)?;
        in_range("steps", self.steps.into(), u64::from(u32::MAX))?;
        in_range("state_bytes", self.state_bytes.max(1), 1 << 32)
    }
}
