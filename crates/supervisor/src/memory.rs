//! The bound on the memory of a program that carries out runs.

/// A bound on the memory of a program. All runs that the program carries out at the same time share it.
///
/// Crates below the programs neither read the operating system nor configure an allocator. The program supplies the
/// measurement.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBound {
    /// The bound, in bytes.
    pub bytes: u64,
    /// Returns how much memory the program uses at present, in bytes. Called a few thousand times per second.
    pub used: fn() -> u64,
}
