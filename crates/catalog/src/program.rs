//! Protocols that are programs: their configuration, and their executions.

use std::sync::Arc;

use faultline_api::resource::{FederationSpec, Program, ProgramFile};
use faultline_api::{Federation, Names, Problem};
use faultline_core::{ClusterId, Span};
use faultline_program::{Executable, ProgramConfig, ProgramProtocol, StartError};
pub use faultline_program::{end_all, host_in, never_reuse, with_exchanged_executions};

use crate::SetupError;
use crate::custom::ErasedConfig;

/// Returns the configuration of a program. Starts nothing.
pub(crate) fn config(program: &Program, spec: &FederationSpec) -> ErasedConfig {
    let names = Names::of(spec);
    let clusters = (0..names.clusters() as u16).map(|it| names.cluster(ClusterId(it)).to_owned());
    ErasedConfig::new::<ProgramProtocol>(ProgramConfig {
        executable: executable(program),
        parameters: serde_json::Value::Object(program.parameters.clone()).to_string(),
        promises: program.promised(),
        is_fifo: program.fifo.unwrap_or(false),
        repeats: program.repeats.unwrap_or(false),
        processes: names.processes(),
        clusters: clusters.collect(),
    })
}

fn executable(program: &Program) -> Arc<Executable> {
    let content = |(name, it): (&String, &ProgramFile)| Some((name.clone(), it.text.clone()?));
    let Span(nanos) = program.answer_within();
    Arc::new(Executable {
        name: program.name().into(),
        command: program.command.clone(),
        files: program.files.iter().filter_map(content).collect(),
        env: program.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        answer_within: std::time::Duration::from_nanos(nanos),
    })
}

/// Starts the program that is the protocol of a federation, if its protocol is one, and keeps the execution for the first
/// life. Called before a run, so that a command that cannot be started is an error of the federation.
///
/// # Errors
///
/// Fails if the program cannot be started, or does not speak a known version of the contract.
pub fn prepare_program(federation: &Federation) -> Result<(), SetupError> {
    let Some(program) = federation.spec.protocol.program() else { return Ok(()) };
    executable(program).prepare().map_err(|error| {
        let (message, StartError { help, .. }) = (error.to_string(), error);
        SetupError::Program(Problem { path: "spec.protocol.program".to_owned(), message, help })
    })
}
