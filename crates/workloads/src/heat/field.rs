//! The physics: initial temperatures, one explicit time step, and the representation of temperatures as bytes.
//!
//! The distributed application and the sequential reference share initial temperatures, walls and
//! representation. Each has its own implementation of the time step, with the same operations in the same
//! order.

use alloc::vec::Vec;

use crate::mix::mix;

/// The time step times the diffusivity, divided by the square of the grid spacing. Stable below 1/4.
pub(super) const DIFFUSION: f64 = 0.2;
/// Temperature above the first row of the federation.
pub(super) const HOT_WALL: f64 = 1.0;
/// Temperature below the last row of the federation.
pub(super) const COLD_WALL: f64 = 0.0;

/// Returns the initial temperature of a cell, in 0..1. Rows are numbered across the entire federation.
pub(super) fn initial(row: u64, column: u32) -> f64 {
    let bits = mix(mix(row) ^ u64::from(column));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Performs one step: the temperature of every cell moves towards those of its four neighbours. The left and
/// right borders are insulated. `cells` contains the row above, the rank's rows, and the row below; the result contains
/// only the rank's rows.
pub(super) fn advance(cells: &[f64], columns: usize) -> Vec<f64> {
    let rows = cells.len() / columns - 2;
    let mut next = Vec::with_capacity(rows * columns);
    for row in 1..=rows {
        let (above, here, below) =
            (&cells[(row - 1) * columns..], &cells[row * columns..], &cells[(row + 1) * columns..]);
        for column in 0..columns {
            let cell = here[column];
            let left = if column > 0 { here[column - 1] } else { cell };
            let right = if column + 1 < columns { here[column + 1] } else { cell };
            let around = (above[column] + below[column]) + (left + right);
            next.push(cell + DIFFUSION * (around - 4.0 * cell));
        }
    }
    next
}

/// Encodes temperatures, little-endian.
pub(super) fn to_bytes(cells: impl IntoIterator<Item = f64>) -> Vec<u8> {
    cells.into_iter().map(f64::to_le_bytes).collect::<Vec<_>>().into_flattened()
}

/// Decodes temperatures.
pub(super) fn from_bytes(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    let (cells, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "a temperature has 8 bytes");
    cells.iter().map(|&cell| f64::from_le_bytes(cell))
}
