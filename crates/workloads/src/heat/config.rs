//! Parameters of the heat application.

use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, in_range};

/// Parameters of the heat application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Number of rows of the grid per rank.
    pub rows: u32,
    /// Number of columns of the grid. A message carries one row: 8 bytes per column, plus 4.
    pub columns: u32,
    /// Number of time steps.
    pub steps: u32,
    /// Modelled duration of one step on one rank.
    pub step_cost: Span,
    /// Number of steps between feedback messages. With a feedback message, the first rank of a cluster sends its first
    /// row back to the preceding cluster. A value of 1 couples both directions equally; 0 disables feedback.
    pub feedback_every: u32,
    /// Size of a rank's incompressible state besides its grid, in bytes; rounded up to a multiple of 8.
    pub state_bytes: u64,
    /// Whether the unmodified part of the incompressible state is kept out of memory, and represented in
    /// snapshots only by its length. Intended for virtual time; the results are the same.
    pub virtual_state: bool,
}

impl Default for Config {
    /// Returns the defaults: 9 s of computation with three feedback messages, 1 MiB of incompressible state and 16 KiB
    /// of grid per rank, and messages of 1 KiB.
    fn default() -> Self {
        Config {
            rows: 16,
            columns: 128,
            steps: 450,
            step_cost: Span::from_millis(20),
            feedback_every: 120,
            state_bytes: 1 << 20,
            virtual_state: false,
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        in_range("rows", self.rows.into(), u64::from(u32::MAX))?;
        in_range("columns", self.columns.into(), 1 << 20)?;
        in_range("rows * columns", u64::from(self.rows) * u64::from(self.columns), 1 << 27)?;
        in_range("steps", self.steps.into(), u64::from(u32::MAX))?;
        in_range("state_bytes", self.state_bytes.max(1), 1 << 32)
    }
}
