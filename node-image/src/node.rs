//! `faultline-node node`: one process of a run, whose directory says what it is to be. The same as `faultline node`,
//! without the rest of that program.

use std::ffi::OsString;

use faultline_catalog::{Setup, Visitor, with_setup};
use faultline_core::{Node, Protocol};
use faultline_runtime::{NodeError, NodeOptions, node};
use faultline_trace::Bundle;
use faultline_workloads::Workload;

use crate::trouble::Trouble;

/// Runs the process until its supervisor hangs up.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<(), Trouble> {
    let options = NodeOptions::parse(arguments).map_err(Trouble::input)?;
    let manifest = Bundle::open(&options.run_dir).read_manifest().map_err(Trouble::machine)?;
    let federation =
        faultline_api::parse("federation.yaml", manifest.federation.as_bytes()).map_err(Trouble::input)?;
    with_setup(&federation, Some(manifest.seed), Host(options))
        .map_err(Trouble::machine)?
        .map_err(Trouble::machine)
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
