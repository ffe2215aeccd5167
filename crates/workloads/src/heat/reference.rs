//! The sequential reference: one loop over the grid of the entire federation.
//!
//! Deliberately independent of the state machine: a rank is only a slab of the grid, without edges or messages.

use alloc::vec::Vec;
use faultline_core::Digest;

use super::memory::Block;
use super::{Config, field, memory};

/// Returns the digest of every rank's result, cluster by cluster. Cluster `i` has `clusters[i]` ranks.
pub fn reference(config: &Config, clusters: &[usize]) -> Vec<Digest> {
    let (rows, columns) = (config.rows as usize, config.columns as usize);
    let ranks: usize = clusters.iter().sum();
    let all = ranks * rows;

    let mut grid: Vec<Vec<f64>> = (0..all)
        .map(|row| (0..config.columns).map(|column| field::initial(row as u64, column)).collect())
        .collect();
    // The first row below each cluster except the last.
    let seams: Vec<usize> = clusters[..clusters.len() - 1]
        .iter()
        .scan(0, |row, size| {
            *row += size * rows;
            Some(*row)
        })
        .collect();
    // The same rows, as last fed back to the cluster above.
    let mut fed_back: Vec<Vec<f64>> = seams.iter().map(|&row| grid[row].clone()).collect();
    let mut history = alloc::vec![0; ranks];
    let mut blocks: Vec<_> = (0..ranks).map(|rank| Block::initial(rank as u64, config.state_bytes)).collect();
    let hot = alloc::vec![field::HOT_WALL; columns];
    let cold = alloc::vec![field::COLD_WALL; columns];

    for step in 0..config.steps {
        if step > 0 && config.feedback_every > 0 && step % config.feedback_every == 0 {
            for (seam, &row) in seams.iter().enumerate() {
                fed_back[seam].clone_from(&grid[row]);
            }
        }
        let mut next = grid.clone();
        for row in 0..all {
            let above = if row == 0 { &hot } else { &grid[row - 1] };
            let below = match seams.binary_search(&(row + 1)) {
                Ok(seam) => &fed_back[seam],
                Err(_) if row + 1 == all => &cold,
                Err(_) => &grid[row + 1],
            };
            for column in 0..columns {
                let cell = grid[row][column];
                let left = grid[row][column.saturating_sub(1)];
                let right = grid[row][(column + 1).min(columns - 1)];
                let around = (above[column] + below[column]) + (left + right);
                next[row][column] = cell + field::DIFFUSION * (around - 4.0 * cell);
            }
        }
        grid = next;
        for rank in 0..ranks {
            history[rank] = memory::remember(history[rank], &grid[rank * rows..(rank + 1) * rows].concat());
            if let Some(at) = blocks[rank].rewritten_by(step) {
                let piece = memory::rewrite(&blocks[rank].piece(at), history[rank]);
                blocks[rank].set(at, piece);
            }
        }
    }

    (0..ranks)
        .map(|rank| {
            let first = rank * rows;
            let every_step = u64::from(config.steps - 1);
            let from_above = if rank == 0 { 0 } else { every_step };
            let from_below = if rank + 1 == ranks {
                0
            } else if !seams.contains(&(first + rows)) {
                every_step
            } else {
                every_step.checked_div(config.feedback_every.into()).unwrap_or(0)
            };
            let cells = field::to_bytes(grid[first..first + rows].concat());
            memory::result(from_above + from_below, history[rank], &cells, &blocks[rank])
        })
        .collect()
}
