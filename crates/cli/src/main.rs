//! The `faultline` binary: the [program](faultline::cli) with nothing added to it.

use std::process::ExitCode;

/// Simulations make many small allocations. With the system's allocator, large federations take a fifth longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    faultline::cli().main()
}
