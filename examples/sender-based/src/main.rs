//! The program `faultline`, with the protocol [`SenderBased`] added to it.

use std::process::ExitCode;

use sender_based::SenderBased;

fn main() -> ExitCode {
    faultline::cli().protocol::<SenderBased>().main()
}
