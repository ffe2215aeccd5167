//! Protocols and applications that are programs: their configuration, and their executions.

use std::sync::Arc;

use faultline_api::resource::{ApplicationProgram, FederationSpec, Launch, Program, ProgramFile, Receives};
use faultline_api::{Federation, Names, Problem};
use faultline_core::{ClusterId, ProcessId, Span};
use faultline_program::{
    Actor, ApplicationConfig, Executable, Kind, ProgramConfig, ProgramProtocol, ProgramRank, StartError,
};
pub use faultline_program::{
    LoggedLine, end_all, guard_with, host_in, keep_log, never_reuse, show_lines, store_in, take_log,
    with_exchanged_executions,
};
use faultline_supervisor::process_seed;
use faultline_workloads::custom::Custom;
use faultline_workloads::messaging::Performer;

use crate::SetupError;
use crate::custom::ErasedConfig;

/// Returns the configuration of a protocol that is a program. Starts nothing.
pub(crate) fn config(program: &Program, spec: &FederationSpec) -> ErasedConfig {
    let names = Names::of(spec);
    let clusters = (0..names.clusters() as u16).map(|it| names.cluster(ClusterId(it)).to_owned());
    ErasedConfig::new::<ProgramProtocol>(ProgramConfig {
        executable: executable(program.launch(), Kind::Protocol),
        parameters: serde_json::Value::Object(program.parameters.clone()).to_string(),
        promises: program.promised(),
        is_fifo: program.fifo.unwrap_or(false),
        repeats: program.repeats.unwrap_or(false),
        processes: names.processes(),
        clusters: clusters.collect(),
    })
}

/// Returns the configuration of an application that is a program, in a run with this seed. Starts nothing.
pub(crate) fn application(program: &ApplicationProgram, spec: &FederationSpec, seed: u64) -> Custom {
    let names = Names::of(spec);
    let mut ranks = 0..;
    let clusters = spec.clusters.iter().map(|it| {
        let ranks = ranks.by_ref().take(it.nodes as usize).collect();
        (it.name.clone(), ranks)
    });
    let clusters: Vec<(String, Vec<u32>)> = clusters.collect();
    let all = || clusters.iter().flat_map(|it| &it.1).map(|it| ProcessId(*it));
    let config = ApplicationConfig {
        executable: executable(program.launch(), Kind::Application),
        parameters: serde_json::Value::Object(program.parameters.clone()).to_string(),
        receives: match program.receives() {
            Receives::ByRank => faultline_program::Receives::ByRank,
            Receives::Any => faultline_program::Receives::Any,
        },
        seeds: all().map(|it| process_seed(seed, it)).collect(),
        names: all().map(|it| names.process(it)).collect(),
        clusters,
    };
    match program.receives() {
        Receives::ByRank => Custom::new::<Performer<ProgramRank>>(config),
        Receives::Any => Custom::new::<Actor>(config),
    }
}

fn executable(program: Launch<'_>, kind: Kind) -> Arc<Executable> {
    let content = |(name, it): (&String, &ProgramFile)| Some((name.clone(), it.text.clone()?));
    let Span(nanos) = program.answer_within();
    Arc::new(Executable {
        kind,
        name: program.name().into(),
        command: program.command.to_vec(),
        files: program.files.iter().filter_map(content).collect(),
        env: program.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        answer_within: std::time::Duration::from_nanos(nanos),
    })
}

/// Starts the programs that are the protocol and the application of a federation, if they are programs, and keeps the
/// executions for the first life. Called before a run, so that a command that cannot be started is an error of the
/// federation.
///
/// # Errors
///
/// Fails if a program cannot be started, or does not speak a known version of the contract.
pub fn prepare_programs(federation: &Federation) -> Result<(), SetupError> {
    let spec = &federation.spec;
    let protocol = spec.protocol.program().map(|it| (it.launch(), Kind::Protocol, "spec.protocol.program"));
    let application =
        spec.application.program().map(|it| (it.launch(), Kind::Application, "spec.application.program"));
    for (program, kind, path) in protocol.into_iter().chain(application) {
        executable(program, kind).prepare().map_err(|error| {
            let (message, StartError { help, .. }) = (error.to_string(), error);
            SetupError::Program(Problem { path: path.to_owned(), message, help })
        })?;
    }
    Ok(())
}
