//! The `local` backend: one process of this program per process of the federation, and the process that each of them
//! runs.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use faultline_catalog::{Setup, Visitor, with_setup};
use faultline_core::{Fact, Life, Node, ProcessId, Protocol, Time};
use faultline_runtime::node::{self, NodeOptions};
use faultline_runtime::{Observer, RunError, RunOptions, RunOutcome, local};
use faultline_shaper::Kernel;
use faultline_supervisor::Status;
use faultline_tc::namespace::MOST_PROCESSES;
use faultline_trace::Bundle;
use faultline_trace::manifest::LinkEntry;
use faultline_workloads::Workload;

use crate::live::Live;
use crate::trouble::Trouble;

/// Runs a federation on real processes, in the bundle that was created in `dir`; with a `kernel`, in network namespaces,
/// where it emulates the links.
pub(crate) fn run<P: Protocol>(
    setup: &Setup<P>,
    dir: &Path,
    metrics: Option<Arc<TcpListener>>,
    kernel: Option<Kernel>,
    interrupted: &Arc<AtomicBool>,
    live: &mut Live,
) -> Result<RunOutcome, Trouble> {
    let program = std::env::current_exe()
        .map_err(|error| Trouble::machine(format!("cannot find this program's own file: {error}")))?;
    let options = RunOptions { metrics, interrupted: interrupted.clone(), ..setup.run_options(dir) };
    let nodes = options.names.processes.len();
    if kernel.is_some() && nodes > MOST_PROCESSES as usize {
        return Err(Trouble::input(miette::miette!(
            help = "leave out `--links tc`: links are emulated in the nodes then",
            "traffic control is for {MOST_PROCESSES} processes at the most, and there are {nodes}"
        )));
    }
    let command = vec![program.into(), "node".into()];
    match kernel {
        None => local::run(command, options, live),
        Some(kernel) => local::run_in_namespaces(command, options, kernel, live),
    }
    .map_err(|error| match &error {
        RunError::DiskFull(_) => Trouble::machine_with(
            format!("{error}; the run is recorded in {}, as far as there was room", dir.display()),
            "make room on that disk, or name a directory on another one with `--out`",
        ),
        RunError::Collapses { .. } => Trouble::machine_with(
            &error,
            format!("the logs of all processes are in {}", dir.join("nodes").display()),
        ),
        _ => Trouble::machine(error),
    })
}

impl Observer for Live {
    fn stated(&mut self, at: Time, process: ProcessId, _: Life, fact: &Fact) {
        Live::stated(self, at, process, fact);
    }

    fn status(&mut self, now: Time, status: &Status) {
        Live::status(self, now, status);
    }

    fn measured(&mut self, links: &[LinkEntry]) {
        Live::measured(self, links);
    }
}

/// `faultline node`: one process of a run, whose bundle says what it is to be.
pub(crate) fn node(arguments: Vec<OsString>) -> Result<(), Trouble> {
    let options =
        NodeOptions::parse(arguments).map_err(|error| Trouble::input(miette::miette!("{error}")))?;
    let manifest = Bundle::open(&options.run_dir).read_manifest().map_err(Trouble::machine)?;
    let federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes())
        .map_err(|rejected| Trouble::input(*rejected))?;
    with_setup(&federation, Some(manifest.seed), Host(options)).map_err(Trouble::machine)?
}

/// Hosts one process.
struct Host(NodeOptions);

impl Visitor for Host {
    type Output = Result<(), Trouble>;

    fn visit<P>(self, setup: Setup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        node::run::<Node<P, Workload>>(self.0, Arc::clone(&setup.process)).map_err(Trouble::machine)
    }
}
