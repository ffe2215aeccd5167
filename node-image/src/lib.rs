//! The node image as a library: the programs in the pods of a federation.
//!
//! To run a federation in pods under a protocol from another crate, build an image with a program that contains the
//! protocol. The builder works in the same way as that of the command-line program:
//!
//! ```no_run
//! # use faultline_catalog::CustomProtocol;
//! # fn program<Bcs: CustomProtocol>() -> std::process::ExitCode {
//! faultline_node::node().protocol::<Bcs>().main()
//! # }
//! ```

mod agent;
mod amend;
mod api;
mod command_error;
mod execute;
mod key;
mod probe;
mod run_state;
mod shape;
mod supervise;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use faultline_catalog::custom::{add_application, add_protocol};
use faultline_catalog::{CustomApplication, CustomProtocol};
use faultline_launch::HostError;
use faultline_runtime::detached::LogOutput;
use faultline_runtime::interrupt::ignore_file_size_signal;
use faultline_runtime::local::THIS_PROGRAM;
use faultline_supervisor::panics::abort_on_panic;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use command_error::CommandError;

/// Log level unless FAULTLINE_LOG is set.
const LOGGED: LevelFilter = LevelFilter::WARN;

/// Run the programs in the pods of a federation.
#[derive(Debug, Parser)]
#[command(name = "faultline-node", version, disable_help_subcommand = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Agent(agent::AgentArguments),
    Execute(execute::ExecuteArguments),
    Install(execute::InstallArguments),
    Probe(probe::ProbeArguments),
    Shape(shape::ShapeArguments),
    Supervise(supervise::SuperviseArguments),
    Key(key::KeyArguments),
    Token(key::TokenArguments),
    /// Run one process of a federation. Agents start this command.
    #[command(hide = true, disable_help_flag = true)]
    Node {
        /// Arguments from the agent.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Returns a builder that contains only the built-in protocols and applications.
pub fn node() -> Node {
    Node(())
}

/// Builder of the programs, to which protocols and applications can be added.
#[derive(Debug)]
pub struct Node(());

impl Node {
    /// Adds a protocol.
    ///
    /// # Panics
    ///
    /// Panics if the protocol's name is not valid, or is the name of another protocol.
    #[must_use]
    pub fn protocol<P: CustomProtocol>(self) -> Node {
        add_protocol::<P>();
        self
    }

    /// Adds an application.
    ///
    /// # Panics
    ///
    /// Panics if the application's name is not valid, or is the name of another application.
    #[must_use]
    pub fn application<A: CustomApplication>(self) -> Node {
        add_application::<A>();
        self
    }

    /// Executes the command given on the command line, and returns the exit status of the program.
    pub fn main(self) -> ExitCode {
        abort_on_panic();
        let arguments = Arguments::parse();
        let colours = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
        let filter = std::env::var("FAULTLINE_LOG").ok().and_then(|it| it.parse::<Targets>().ok());
        let filter = filter.unwrap_or_else(|| Targets::new().with_default(LOGGED));
        ignore_file_size_signal();
        // The reader of the log must not delay a supervisor or a process.
        let output = LogOutput::new(true);
        let shown = output.clone();
        let shown = tracing_subscriber::fmt::layer()
            .with_ansi(colours)
            .log_internal_errors(false)
            .with_writer(move || shown.clone());
        tracing_subscriber::registry().with(shown.with_filter(filter)).init();
        faultline_catalog::guard_with(vec![THIS_PROGRAM.into(), "node".into()]);
        let done = match arguments.command {
            Command::Agent(arguments) => agent::run(arguments),
            Command::Execute(arguments) => execute::run(arguments),
            Command::Install(arguments) => execute::install(&arguments),
            Command::Probe(arguments) => probe::run(&arguments),
            Command::Shape(arguments) => shape::run(&arguments),
            Command::Supervise(arguments) => {
                let done = supervise::run(&arguments);
                faultline_catalog::end_all();
                done
            }
            Command::Key(arguments) => key::print_key(&arguments),
            Command::Token(arguments) => key::print(&arguments),
            Command::Node { arguments } => faultline_launch::node(arguments).map_err(|error| match error {
                HostError::Arguments(_) | HostError::Federation(_) => CommandError::input(error),
                error => CommandError::machine(error),
            }),
        };
        output.finish();
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(CommandError { status, text }) => {
                // A message about the work must not end the work.
                drop(writeln!(io::stderr(), "faultline-node: {text}"));
                status
            }
        }
    }
}
