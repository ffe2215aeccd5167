//! One process of a federation, in a program of its own.

use std::ffi::OsString;

use faultline_api::Rejected;
use faultline_catalog::{Hosted, Setup, SetupError, Visitor, with_setup};
use faultline_runtime::node::{self, NodeError, NodeOptions, NodeOptionsError};
use faultline_trace::{Bundle, BundleError};

/// The reason why a process of a federation cannot be hosted.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The arguments do not come from a supervisor.
    #[error(transparent)]
    Arguments(#[from] NodeOptionsError),
    /// The bundle of the run cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The bundle contains an invalid federation.
    #[error(transparent)]
    Federation(#[from] Box<Rejected>),
    /// This program cannot host the federation.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The process failed.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Runs the process that a supervisor's `arguments` describe, until the supervisor disconnects. The process uses the
/// protocol of the federation in the run's bundle.
///
/// # Errors
///
/// Fails if the arguments or the bundle cannot be used, or if the process cannot start or loses its supervisor before
/// it is set up.
pub fn node(arguments: Vec<OsString>) -> Result<(), HostError> {
    let options = NodeOptions::parse(arguments)?;
    let manifest = Bundle::open(&options.run_dir).read_manifest()?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())?;
    Ok(with_setup(&federation, Some(manifest.seed), Host(options))??)
}

/// Hosts the process under the protocol of the federation.
struct Host(NodeOptions);

impl Visitor for Host {
    type Output = Result<(), NodeError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        node::run::<N>(self.0, setup.process)
    }
}
