//! The `local` backend: one process of this program per process of the federation, and the process that each of them
//! runs.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use faultline_api::quantity::Bandwidth;
use faultline_api::resource::StorageKind as Asked;
use faultline_catalog::{Setup, Visitor, with_setup};
use faultline_core::{Fact, Life, Node, ProcessId, Protocol, Span, Time};
use faultline_runtime::node::{self, NodeOptions};
use faultline_runtime::{Links, Observer, RunOptions, RunOutcome, StorageKind, StorageOptions, local};
use faultline_supervisor::Status;
use faultline_trace::Bundle;
use faultline_trace::manifest::LinkEntry;
use faultline_workloads::Workload;

use crate::live::Live;
use crate::trouble::Trouble;

/// A machine may be busy with other things for a moment, and links are not as asked for then.
const MEASURE_AGAIN_FOR: Span = Span::from_secs(5);

/// Runs a federation on real processes, in the bundle that was created in `dir`.
pub(crate) fn run<P: Protocol>(
    setup: &Setup<P>,
    dir: &Path,
    metrics: Option<SocketAddr>,
    interrupted: &Arc<AtomicBool>,
    live: &mut Live,
) -> Result<RunOutcome, Trouble> {
    let program = std::env::current_exe()
        .map_err(|error| Trouble::machine(format!("cannot find this program's own file: {error}")))?;
    let options = RunOptions {
        run_dir: dir.to_owned(),
        supervisor: setup.supervisor.clone(),
        membership: setup.membership.clone(),
        names: setup.names.processes(),
        seed: setup.seed,
        links: Links { requested: setup.links.clone() },
        storage: StorageOptions {
            kind: match setup.storage.kind {
                Asked::Memory => StorageKind::Memory,
                Asked::Disk => StorageKind::Disk,
            },
            write_bandwidth: setup.storage.write_bandwidth.map_or(0, Bandwidth::bytes_per_second),
            latency: setup.storage.latency.map_or(Span::ZERO, |it| it.0),
        },
        measure_again_for: MEASURE_AGAIN_FOR,
        metrics,
        interrupted: interrupted.clone(),
    };
    local::run(vec![program.into(), "node".into()], options, live).map_err(Trouble::machine)
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
