//! `kubectl faultline`: the user's commands for federations on a Kubernetes cluster. The program needs only the
//! permissions of a user; the operator does the rest. `faultline run --backend kubernetes` calls this program.

mod arguments;
mod campaign;
mod cluster;
mod doctor;
mod fetch;
mod logs;
mod run;
mod supervisor;
mod view;
mod waiting;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use faultline_console::command_error::{self, CommandError, Exit};
use faultline_console::output;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    command_error::explain();
    output::fit_terminal();
    let arguments = Arguments::parse();
    // A custom protocol is part of the image of the federation's pods, not of this program.
    faultline_api::resource::custom::accept_unknown();
    let colours = output::supports_escapes(&std::io::stderr());
    // The client logs failed requests, which the errors of this program describe.
    let usual = match arguments.command.is_verbose() {
        true => Targets::new().with_default(LevelFilter::DEBUG),
        false => Targets::new().with_default(LevelFilter::WARN).with_target("kube_client", LevelFilter::OFF),
    };
    let filter = std::env::var("FAULTLINE_LOG").ok().and_then(|it| it.parse::<Targets>().ok());
    let filter = filter.unwrap_or(usual);
    let shown = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(shown.with_filter(filter)).init();
    match perform(&arguments.command) {
        Ok(exit) => exit.into(),
        Err(error) => error.end(),
    }
}

fn perform(command: &Command) -> Result<Exit, CommandError> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Fetch(arguments) => fetch::fetch(arguments),
        Command::View(arguments) => view::view(arguments),
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::Logs(arguments) => logs::logs(arguments),
        Command::Campaign(command) => campaign::campaign(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "kubectl-faultline", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Pass)
        }
    }
}

/// Runs asynchronous work until it completes.
fn block_on<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| CommandError::machine(format!("cannot start the runtime: {error}")))?
        .block_on(work)
}
