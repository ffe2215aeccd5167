//! The program `faultline`, with the protocol [`Skeleton`] added to it.

use std::process::ExitCode;

use skeleton::Skeleton;

fn main() -> ExitCode {
    faultline::cli().protocol::<Skeleton>().main()
}
