//! The `faultline` program as a library: runs federations, judges the runs, and explains them.
//!
//! Your own crate can build the same program with additional protocols and applications:
//!
//! ```no_run
//! # use faultline::{CustomApplication, CustomProtocol};
//! # fn program<Bcs: CustomProtocol, Stencil: CustomApplication>() -> std::process::ExitCode {
//! faultline::cli().protocol::<Bcs>().application::<Stencil>().main()
//! # }
//! ```
//!
//! Federation files can then name them, and every command treats them like the built-in ones:
//!
//! ```yaml
//! protocol: { custom: { name: bcs, checkpointEvery: 2s } }
//! application: { custom: { name: stencil, rows: 64 } }
//! ```
//!
//! The guides are `docs/protocols.md` and `docs/applications.md`, and `examples/` has complete crates.
//!
//! | item | for |
//! | --- | --- |
//! | [`cli`], [`Cli`] | the program |
//! | [`CustomProtocol`], [`core`] | protocols: the trait for use in federation files, and the kernel with the trait `Protocol` |
//! | [`CustomApplication`], [`messaging`] | applications: the trait for use in federation files, and the messaging interface |
//! | [`quantity`], [`resource`] | the types of parameters, and the federation that they belong to |
//! | [`placement`] | which processes keep replicas |
//! | [`kit`] | random federations and faults, in a test |

mod arguments;
mod campaign;
mod cluster;
mod compare;
mod doctor;
mod events;
mod explore;
mod files;
mod foreign_history;
mod fuzz;
mod journal;
mod live;
mod local;
mod log;
mod machine;
mod model;
mod paper;
mod plugin;
mod processes;
mod recording;
mod records;
mod replay;
mod reproduce;
mod run;
mod runner;
mod simulate;
mod sweep;
mod traces;
mod view;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use clap_complete::Shell;
use faultline_api::quantity::Size;
use faultline_console::memory::set_limit;
use faultline_console::{command_error, interrupt, output, progress, screen};
use faultline_fuzz::ProtocolName;
use faultline_runtime::interrupt::ignore_file_size_signal;
use faultline_session::panics::abort_on_panic;

pub use faultline_api::{quantity, resource};
pub use faultline_catalog::{CustomApplication, CustomProtocol};
pub use faultline_core as core;
pub use faultline_protocols::placement;
pub use faultline_workloads::messaging;

use arguments::{Arguments, Command};
use command_error::{CommandError, Exit};

/// Tests a protocol in random federations with random faults. The protocol does not have to be part of the program.
pub mod kit {
    pub use faultline_checker::Property;
    pub use faultline_fuzz::{Candidate, SeedResult, run_federation};
}

/// Returns the program with only the built-in protocols and applications.
pub fn cli() -> Cli {
    Cli(())
}

/// The program, to which protocols and applications can be added before it runs.
#[derive(Debug)]
pub struct Cli(());

impl Cli {
    /// Adds a protocol, under the name by which federation files select it.
    ///
    /// # Panics
    ///
    /// Panics if its name is invalid, or is already the name of another protocol.
    #[must_use]
    pub fn protocol<P: CustomProtocol>(self) -> Cli {
        faultline_catalog::custom::add_protocol::<P>();
        self
    }

    /// Adds an application, under the name by which federation files select it.
    ///
    /// # Panics
    ///
    /// Panics if its name is invalid, or is already the name of another application.
    #[must_use]
    pub fn application<A: CustomApplication>(self) -> Cli {
        faultline_catalog::custom::add_application::<A>();
        self
    }

    /// Executes the command line, and returns the exit status of the program. A local run also starts this executable
    /// for each process of the federation.
    pub fn main(self) -> ExitCode {
        command_error::explain();
        output::fit_terminal();
        let arguments =
            Arguments::from_arg_matches(&command_line().get_matches()).unwrap_or_else(|it| it.exit());
        let arguments = match &arguments.command {
            Command::Part { dir } => match campaign::of_pod(dir) {
                Ok(of_pod) => of_pod,
                Err(error) => return error.end(),
            },
            _ => arguments,
        };
        faultline_catalog::guard_with(local::node_command());
        // A search ends with its threads, and prints the seed first.
        if !matches!(arguments.command, Command::Fuzz(_) | Command::Errata(_)) {
            abort_on_panic();
        }
        if let Command::Run(arguments) = &arguments.command {
            run::enter_namespaces(arguments);
        }
        let log = log::begin(&arguments.command);
        let Arguments { command, memory } = arguments;
        let limited = set_limit(memory);
        let done = limited.and_then(|()| {
            ignore_file_size_signal();
            perform(command, memory)
        });
        faultline_catalog::end_all();
        log.finish();
        match done {
            Ok(exit) => exit.into(),
            Err(error) => error.end(),
        }
    }
}

/// Returns the command line, whose help names the protocols of other crates that were added to the program.
fn command_line() -> clap::Command {
    let custom = ProtocolName::all().filter(|it| it.is_custom()).map(ProtocolName::name);
    let custom = custom.collect::<Vec<_>>().join(", ");
    let named = |command: clap::Command| {
        command.mut_arg("protocol", |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help}. This program also contains: {custom}"))
        })
    };
    let command = Arguments::command();
    if custom.is_empty() {
        return command;
    }
    ["fuzz", "explore"].into_iter().fold(command, |command, name| command.mut_subcommand(name, named))
}

/// Returns the completion script for a shell.
fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "faultline", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Fish {
        // For fish, the library leaves out the values of arguments that are not options.
        for command in command_line().get_subcommands() {
            let values = command.get_positionals().flat_map(clap::Arg::get_possible_values);
            let values: Vec<String> = values.map(|it| it.get_name().to_owned()).collect();
            if !values.is_empty() {
                let condition = format!("__fish_faultline_using_subcommand {}", command.get_name());
                script +=
                    &format!("complete -c faultline -n \"{condition}\" -f -a \"{}\"\n", values.join(" "));
            }
        }
    }
    script
}

fn perform(command: Command, memory: Option<Size>) -> Result<Exit, CommandError> {
    match command {
        Command::Run(arguments) => run::run(&arguments, memory),
        Command::Fetch(arguments) => plugin::fetch(&arguments),
        Command::Simulate(arguments) => paper::simulate(&arguments),
        Command::Import(arguments) => paper::import(&arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&arguments),
        Command::Cluster(arguments) => cluster::cluster(&arguments),
        Command::Model(arguments) => model::model(&arguments),
        Command::Traces(arguments) => traces::traces(&arguments),
        Command::Check(arguments) => recording::check(&arguments),
        Command::Explain(arguments) => recording::explain_run(&arguments),
        Command::Report(arguments) => recording::report(&arguments),
        Command::View(arguments) => view::view(&arguments),
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
            output::print(&completions(arguments.shell))?;
            Ok(Exit::Pass)
        }
        Command::Part { .. } => unreachable!("a part is performed by its command"),
        Command::Node { arguments } => local::node(arguments).map(|()| Exit::Pass),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_complete_the_names_of_samples() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = completions(shell);
            let line = script.lines().find(|it| it.contains("quickstart") && it.contains("guest"));
            assert!(line.is_some(), "{shell}");
            if shell == Shell::Fish {
                assert!(
                    line.is_some_and(|it| it.contains("__fish_faultline_using_subcommand samples\" -f -a "))
                );
            }
        }
    }
}
