//! Parameters of the NAS patterns.

use alloc::vec::Vec;

use faultline_core::Span;
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, in_range};

/// The communication pattern of a kernel of the NAS parallel benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// Block tridiagonal solver: exchanges of faces with six neighbours on a torus, then sweeps along rows, columns and
    /// one diagonal.
    Bt,
    /// Conjugate gradient: exchanges within rows at distances that are powers of two, then one with the transposed
    /// position.
    Cg,
    /// Fourier transform: all processes exchange data with each other.
    Ft,
    /// Lower-upper solver: wavefronts over a mesh, forwards and backwards.
    Lu,
    /// Multigrid: exchanges of faces on a three-dimensional torus, on finer and coarser grids.
    Mg,
    /// Scalar pentadiagonal solver: same as BT, with shorter messages in the sweeps.
    Sp,
}

/// Parameters of a NAS pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The communication pattern.
    pub pattern: Pattern,
    /// Number of iterations.
    pub iterations: u32,
    /// Modelled duration of one rank's computation in one iteration, spread evenly over the rounds.
    pub iteration_cost: Span,
    /// Maximum length of a message in bytes. Depending on the pattern, some or all messages are shorter.
    pub message_bytes: u32,
    /// Size of a rank's state in bytes. Only the size is modelled; the state contains no data.
    pub state_bytes: u64,
    /// Each process's rank in the pattern, in the order of the federation's processes. If empty, each process has the
    /// same number in the pattern as in the federation.
    pub order: Vec<u32>,
}

impl Default for Config {
    /// Returns the defaults: CG for four seconds, with messages of 16 KiB and 1 MiB of state per rank.
    fn default() -> Self {
        Config {
            pattern: Pattern::Cg,
            iterations: 200,
            iteration_cost: Span::from_millis(20),
            message_bytes: 16 << 10,
            state_bytes: 1 << 20,
            order: Vec::new(),
        }
    }
}

/// Numbers of ranks that every pattern supports: squares of powers of two.
pub const RANKS: [u32; 5] = [16, 64, 256, 1024, 4096];
/// Lower limit of [`Config::message_bytes`]. At this limit, the shortest messages still carry a value.
pub const LEAST_MESSAGE: u32 = 512;

impl Config {
    pub(crate) fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        in_range("iterations", self.iterations.into(), 1 << 20)?;
        in_range("message_bytes", self.message_bytes.into(), 1 << 28)?;
        in_range("state_bytes", self.state_bytes.max(1), 1 << 32)?;
        if self.message_bytes < LEAST_MESSAGE {
            let (value, least) = (self.message_bytes.into(), LEAST_MESSAGE.into());
            return Err(Invalid::TooSmall { field: "message_bytes", value, least });
        }
        let ranks: usize = clusters.iter().sum();
        if !RANKS.iter().any(|it| *it as usize == ranks) {
            return Err(Invalid::Ranks { found: ranks });
        }
        let mut order = self.order.clone();
        order.sort_unstable();
        match order.is_empty() || order.iter().copied().eq(0..ranks as u32) {
            true => Ok(()),
            false => Err(Invalid::NotAnOrder { ranks }),
        }
    }
}
