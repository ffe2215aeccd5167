//! The program `faultline`, with the protocol [`Bcs`] added to it.

use std::process::ExitCode;

use bcs::Bcs;

fn main() -> ExitCode {
    faultline::cli().protocol::<Bcs>().main()
}
