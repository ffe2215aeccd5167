//! The local backend: one child process per process of the federation, all on this machine. They share its
//! network, or each has its own network namespace, in which traffic control emulates the links.

mod children;
mod pressure;
mod slices;

use std::ffi::OsString;
use std::net::TcpListener;

use faultline_core::Span;
use faultline_shaper::Kernel;
use faultline_tc::namespace::Hub;

use crate::clock::Clock;
use crate::metrics::Sum;
use crate::secret::Keys;
use crate::supervise::{
    Journal, LOOPBACK, Memory, Observer, RunError, RunOptions, RunOutcome, block_on, host,
};
use children::Children;
use pressure::{PRESSURE, PressureMeter};

/// The program that this process executes, even if its file has been replaced or removed since it started.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Performs a run. `command` is the program and the first arguments of the command that starts a node; the arguments
/// from [`crate::NodeOptions::to_args`] follow. Returns once every child has ended, even after an error.
///
/// # Errors
///
/// Fails if the run cannot be performed.
///
/// # Panics
///
/// Panics if `command` is empty, or if the number of names differs from the number of processes.
pub fn run(
    command: Vec<OsString>,
    options: RunOptions,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    let listener = TcpListener::bind(LOOPBACK).map_err(RunError::Listen)?;
    run_at(command, options, None, listener, observer)
}

/// Performs a run like [`run`], but with every child in its own network namespace. `kernel` contains the features of
/// traffic control to use for links. Requires root. The namespaces end with the children and with this process.
///
/// # Errors
///
/// Fails if the run cannot be performed.
///
/// # Panics
///
/// Panics if `command` is empty, or if the number of names differs from the number of processes.
pub fn run_in_namespaces(
    command: Vec<OsString>,
    options: RunOptions,
    kernel: Kernel,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    let (hub, listener) = Hub::new().map_err(RunError::Namespace)?;
    run_at(command, options, Some((hub, kernel)), listener, observer)
}

fn run_at(
    command: Vec<OsString>,
    mut options: RunOptions,
    hub: Option<(Hub, Kernel)>,
    listener: TcpListener,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    assert!(!command.is_empty(), "a command starts with a program");
    assert_eq!(options.names.processes.len(), options.membership.members.len(), "every process has a name");
    let keys = Keys::generate(options.names.processes.len()).map_err(RunError::Secret)?;
    let (run_dir, names) = (options.run_dir.clone(), options.names.processes.clone());
    let is_system = options.supervisor.system.is_some();
    if is_system {
        // The end of a command is observed. On a busy machine, silence says nothing about it.
        options.supervisor.detect_after = Span::MAX;
    }
    let settle = |context| Children::new(command, run_dir, names, hub, context, is_system);
    // All processes end with this program, so no run can be resumed.
    let clock = Clock::start();
    let memory = Memory { journal: Journal::default(), clock, past: None };
    block_on(async {
        let (mut meter, sum) = (PressureMeter::new(PRESSURE, clock), Sum::default());
        let run = host(options, keys, listener, sum, memory, settle, observer);
        let outcome = meter.during(run).await?;
        Ok(RunOutcome { pressure: Some(meter.finish()), ..outcome })
    })
}
