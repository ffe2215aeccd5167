//! What the paper leaves to future work (section 7), with its effect where Faultline has it.

use super::Experiment;

/// In the order of the page.
pub(super) const ALL: &[Experiment] = &[];
