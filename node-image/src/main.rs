//! The `faultline-node` binary: the [programs](faultline_node::node) with nothing added to them.

use std::process::ExitCode;

fn main() -> ExitCode {
    faultline_node::node().main()
}
