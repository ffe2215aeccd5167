//! One process of a federation, in a program of its own.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use faultline_api::Rejected;
use faultline_api::system::TemplateError;
use faultline_catalog::{Hosted, Setup, SetupError, Visitor, with_setup};
use faultline_runtime::node::{self, NodeError, NodeInput, NodeOptions, NodeOptionsError};
use faultline_runtime::system::{GUARD, NodeSystem, guard};
use faultline_trace::Manifest;

/// The reason why a process of a federation cannot be hosted.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The arguments do not come from a supervisor.
    #[error(transparent)]
    Arguments(#[from] NodeOptionsError),
    /// The description of the run does not come from a supervisor.
    #[error("the description of the run is not one of this program's")]
    Description,
    /// The description contains an invalid federation.
    #[error(transparent)]
    Federation(#[from] Box<Rejected>),
    /// This program cannot host the federation.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A template of the system cannot be rendered.
    #[error("{0}")]
    Template(#[from] TemplateError),
    /// The guard of a system's commands failed.
    #[error("cannot wait for the end of the run: {0}")]
    Guard(io::Error),
    /// The process failed.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// The description of a run, which each process reads from its standard input rather than from the record: a file could
/// be changed, or replaced with that of another run, between two lives.
pub(crate) struct Description<'a> {
    seed: u64,
    /// The text of the federation's file.
    federation: &'a str,
}

impl<'a> Description<'a> {
    pub(crate) fn of(manifest: &'a Manifest) -> Description<'a> {
        Description { seed: manifest.seed, federation: &manifest.federation }
    }

    pub(crate) fn to_bytes(&self) -> Arc<[u8]> {
        format!("{}\n{}", self.seed, self.federation).into_bytes().into()
    }

    fn from_bytes(bytes: &'a [u8]) -> Option<Description<'a>> {
        let (seed, federation) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        Some(Description { seed: seed.parse().ok()?, federation })
    }
}

/// Runs the process, or the guard of a system's commands, that a supervisor's `arguments` and standard input describe,
/// until the supervisor disconnects.
///
/// # Errors
///
/// Fails if the arguments or the description of the run cannot be used, or if the process cannot start or loses its
/// supervisor before it is set up.
pub fn node(arguments: Vec<OsString>) -> Result<(), HostError> {
    if let [first, run, nodes] = &arguments[..]
        && first == GUARD
    {
        return guard(&run.to_string_lossy(), Path::new(nodes)).map_err(HostError::Guard);
    }
    let options = NodeOptions::parse(arguments)?;
    faultline_catalog::host_in(options.program_dir());
    let input = NodeInput::read()?;
    let Description { seed, federation } =
        Description::from_bytes(&input.description).ok_or(HostError::Description)?;
    let federation = faultline_api::parse("federation.yaml", federation.as_bytes())?;
    let system = crate::system::of_node(&federation.spec, seed, &options)?;
    Ok(with_setup(&federation, Some(seed), Host(options, input, system))??)
}

/// Hosts the process under the protocol of the federation.
struct Host(NodeOptions, NodeInput, Option<NodeSystem>);

impl Visitor for Host {
    type Output = Result<(), NodeError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        node::run::<N>(self.0, self.1, setup.process, self.2)
    }
}
