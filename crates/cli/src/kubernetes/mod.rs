//! Federations on a Kubernetes cluster, as their user sees them: this program needs the rights of a user, and no more. The
//! operator does the rest.

mod arguments;
mod cluster;
mod doctor;
mod fetch;
mod run;
mod supervisor;

pub(crate) use arguments::{FetchArguments, KubernetesArguments};
pub(crate) use doctor::examine;
pub(crate) use fetch::fetch;
pub(crate) use run::run;

use crate::trouble::Trouble;

/// Does something that waits for others.
fn block_on<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Trouble::machine(format!("cannot start the runtime: {error}")))?.block_on(work)
}
