//! The program `faultline`, with the application [`Stencil`] added to it.

use std::process::ExitCode;

use stencil::Stencil;

fn main() -> ExitCode {
    faultline::cli().application::<Stencil>().main()
}
