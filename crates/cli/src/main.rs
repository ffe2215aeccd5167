//! `faultline`: runs federations, judges them, and prints what happened. Only this file exits the program.

mod arguments;
mod cluster;
mod compare;
mod doctor;
mod explore;
mod files;
mod fuzz;
mod journal;
mod live;
mod local;
mod log;
mod machine;
mod memory;
mod paper;
mod plugin;
mod processes;
mod recording;
mod replay;
mod reproduce;
mod run;
mod runner;
mod simulate;
mod sweep;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use faultline_console::{command_error, interrupt, output, progress, screen};

use arguments::{Arguments, Command};
use command_error::{CommandError, Exit};

/// A simulation makes many small allocations, and the memory of its processes becomes scattered: with the
/// system's allocator, large federations take a fifth longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    command_error::explain();
    let arguments = Arguments::parse();
    log::begin(&arguments.command);
    match memory::bound(arguments.memory).and_then(|()| perform(arguments.command)) {
        Ok(exit) => exit.into(),
        Err(CommandError { exit, report }) => {
            anstream::eprintln!("{report:?}");
            exit.into()
        }
    }
}

fn perform(command: Command) -> Result<Exit, CommandError> {
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Fetch(arguments) => plugin::fetch(&arguments),
        Command::Simulate(arguments) => paper::simulate(&arguments),
        Command::Import(arguments) => paper::import(&arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&arguments),
        Command::Cluster(arguments) => cluster::cluster(&arguments),
        Command::Check(arguments) => recording::check(&arguments),
        Command::Explain(arguments) => recording::tell(&arguments),
        Command::Report(arguments) => recording::report(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Export(arguments) => recording::export(&arguments),
        Command::Fuzz(arguments) => fuzz::fuzz(&arguments),
        Command::Explore(arguments) => explore::explore(&arguments),
        Command::Errata(arguments) => fuzz::errata(&arguments),
        Command::Plan(arguments) => files::plan(&arguments),
        Command::Validate(arguments) => files::validate(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Schema => files::schema(),
        Command::Samples(arguments) => files::samples(&arguments),
        Command::Completions(arguments) => {
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut Arguments::command(), "faultline", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Pass)
        }
        Command::Node { arguments } => local::node(arguments).map(|()| Exit::Pass),
    }
}
