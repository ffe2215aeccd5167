//! `faultline-node node`: one process of a run, which is described in the run's directory. Works like `faultline
//! node`.

use std::ffi::OsString;

use faultline_catalog::{Hosted, Setup, Visitor, with_setup};
use faultline_runtime::{NodeError, NodeOptions, node};
use faultline_trace::Bundle;

use crate::command_error::CommandError;

/// Runs the process until its supervisor disconnects.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<(), CommandError> {
    let options = NodeOptions::parse(arguments).map_err(CommandError::input)?;
    let manifest = Bundle::open(&options.run_dir).read_manifest().map_err(CommandError::machine)?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())
        .map_err(CommandError::input)?;
    with_setup(&federation, Some(manifest.seed), Host(options))
        .map_err(CommandError::machine)?
        .map_err(CommandError::machine)
}

/// Hosts the process under the protocol of the federation.
struct Host(NodeOptions);

impl Visitor for Host {
    type Output = Result<(), NodeError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        node::run::<N>(self.0, setup.process)
    }
}
