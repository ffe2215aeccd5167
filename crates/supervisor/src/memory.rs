//! The memory limit of a program that performs runs.

/// The memory limit of a program, shared by all runs that the program performs in parallel.
///
/// The libraries neither ask the operating system for the memory in use nor configure an allocator, so each program
/// supplies the measurement.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBound {
    /// The limit, in bytes.
    pub bytes: u64,
    /// Returns the memory that the program uses at present, in bytes. Called a few thousand times per second.
    pub used: fn() -> u64,
}
