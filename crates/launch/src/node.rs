//! One process of a federation, in a program of its own.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultline_api::system::TemplateError;
use faultline_api::{Names, Rejected};
use faultline_catalog::{Hosted, Setup, SetupError, Visitor, with_setup};
use faultline_runtime::node::{self, NodeError, NodeInput, NodeOptions, NodeOptionsError};
use faultline_runtime::system::{ExecutorError, NodeSystem, Start, serve};
use faultline_trace::Manifest;

use crate::system::{Place, of_node};

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
    /// The guard of commands failed.
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

/// Runs the process, or the guard of commands, that a supervisor's `arguments` and standard input describe,
/// until the supervisor disconnects.
///
/// # Errors
///
/// Fails if the arguments or the description of the run cannot be used, or if the process cannot start or loses its
/// supervisor before it is set up.
pub fn node(arguments: Vec<OsString>) -> Result<(), HostError> {
    if let Some(ended) = faultline_guard::serve(&arguments) {
        return ended.map_err(HostError::Guard);
    }
    let options = NodeOptions::parse(arguments)?;
    faultline_catalog::host_in(options.program_dir());
    let input = NodeInput::read()?;
    let Description { seed, federation } =
        Description::from_bytes(&input.description).ok_or(HostError::Description)?;
    let federation = faultline_api::parse("federation.yaml", federation.as_bytes())?;
    let place = |nodes| Place::on_this_machine(&options, nodes);
    let system = of_node(&federation.spec, seed, (options.process, options.life), place)?;
    Ok(with_setup(&federation, Some(seed), Host(options, input, system))??)
}

/// Runs the commands of a system's node in a pod, as the node's process at `socket` instructs, until a termination signal
/// arrives. `data` is the directory for their files, and `namespace` and `address` are those of the pod.
///
/// # Errors
///
/// Fails if the executor cannot start, or if the socket fails.
pub fn execute(
    socket: &Path,
    data: PathBuf,
    namespace: String,
    address: IpAddr,
) -> Result<(), ExecutorError> {
    serve(socket, data, move |start: &Start, run_dir| {
        let of_start = || {
            let Description { seed, federation } =
                Description::from_bytes(&start.description).ok_or(HostError::Description)?;
            let federation = faultline_api::parse("federation.yaml", federation.as_bytes())?;
            let name = federation.metadata.name.as_deref().unwrap_or_default();
            let hosts = Names::of(&federation.spec).hosts_in_pods(name, &namespace);
            let place = |_| Place::in_pod(run_dir, hosts, address);
            of_node(&federation.spec, seed, (start.process, start.life), place).map_err(HostError::from)
        };
        let system = of_start().map_err(|error| format!("cannot be started: {error}"))?;
        system.ok_or_else(|| "cannot be started: the federation is no system".to_owned())
    })
}

/// Hosts the process under the protocol of the federation.
struct Host(NodeOptions, NodeInput, Option<NodeSystem>);

impl Visitor for Host {
    type Output = Result<(), NodeError>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        node::run::<N>(self.0, self.1, setup.process, self.2)
    }
}
