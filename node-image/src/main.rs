//! The node binary: one process of a run, whose bundle says what it is to be. The same as `faultline node`, without the
//! rest of the program.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use faultline_catalog::{Setup, Visitor, with_setup};
use faultline_core::{Node, Protocol};
use faultline_runtime::{NodeError, NodeOptions, node};
use faultline_trace::Bundle;
use faultline_workloads::Workload;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("faultline-node: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = NodeOptions::parse(env::args_os().skip(1))?;
    let manifest = Bundle::open(&options.run_dir).read_manifest()?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())?;
    Ok(with_setup(&federation, Some(manifest.seed), Host(options))??)
}

/// Hosts the process with the protocol that the federation asks for.
struct Host(NodeOptions);

impl Visitor for Host {
    type Output = Result<(), NodeError>;

    fn visit<P>(self, setup: Setup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        node::run::<Node<P, Workload>>(self.0, setup.process)
    }
}
