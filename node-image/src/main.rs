//! The `faultline-node` binary: the [programs](faultline_node::node) without any additions.

use std::process::ExitCode;

fn main() -> ExitCode {
    faultline_node::node().main()
}
