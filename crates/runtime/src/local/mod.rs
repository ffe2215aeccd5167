//! The local backend: one child process per process of the federation, all on this machine.

mod children;

use std::ffi::OsString;

use crate::metrics::Sum;
use crate::secret::Secret;
use crate::supervise::{LOOPBACK, Observer, RunError, RunOptions, RunOutcome, block_on, host};
use children::Children;

/// Carries out a run. `command` is the program and the first arguments that start a node;
/// [`crate::NodeOptions::to_args`] follow. Returns when every child is gone, whatever happened.
pub fn run(
    command: Vec<OsString>,
    options: RunOptions,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    assert!(!command.is_empty(), "a command starts with a program");
    assert_eq!(options.names.len(), options.membership.members.len(), "every process has a name");
    let secret = Secret::generate().map_err(RunError::Secret)?;
    let (run_dir, names) = (options.run_dir.clone(), options.names.clone());
    let settle = |ground| Children::new(command, run_dir, names, ground);
    block_on(host(options, secret, LOOPBACK, Sum::default(), settle, observer))
}
