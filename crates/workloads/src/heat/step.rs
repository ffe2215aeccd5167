//! One time step of one rank, as a job that owns its data.

use alloc::vec::Vec;
use faultline_core::Span;

use super::bytes::Bytes;
use super::field;
use super::memory;
use super::row::Row;

/// The computation of one time step of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(super) cost: Span,
    pub(super) columns: usize,
    pub(super) above: Row,
    pub(super) grid: Bytes,
    pub(super) below: Row,
    pub(super) history: u64,
    /// The piece of the block that the step rewrites.
    pub(super) piece: Option<Bytes>,
}

/// The output of a [`Step`].
#[derive(Clone, Debug, PartialEq)]
pub struct Stepped {
    pub(super) grid: Bytes,
    pub(super) history: u64,
    pub(super) piece: Option<Bytes>,
}

impl Step {
    pub(crate) fn cost(&self) -> Span {
        self.cost
    }

    pub(crate) fn run(self) -> Stepped {
        let cells: Vec<f64> = [self.above.cells(), &self.grid, self.below.cells()]
            .into_iter()
            .flat_map(field::from_bytes)
            .collect();
        let cells = field::advance(&cells, self.columns);
        let history = memory::remember(self.history, &cells);
        Stepped {
            grid: field::to_bytes(cells).into(),
            history,
            piece: self.piece.map(|piece| memory::rewrite(&piece, history)),
        }
    }
}
