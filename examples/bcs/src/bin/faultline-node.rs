//! The program of a federation's pods, with the protocol [`Bcs`] added to it.

use std::process::ExitCode;

use bcs::Bcs;

fn main() -> ExitCode {
    faultline_node::node().protocol::<Bcs>().main()
}
