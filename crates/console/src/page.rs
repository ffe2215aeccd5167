//! The page that shows a run, at addresses that the program prints.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use faultline_report::page::live;
use faultline_view::feed::SharedStatus;
use faultline_view::{Control, ServeError, Server};
use miette::miette;

use crate::command_error::CommandError;
use crate::output::note;
use crate::recording::LocatedRecording;

/// Time without an open page after which `run --view` ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// The page of a run.
pub struct RunPage {
    /// The server of the page.
    pub server: Server,
    /// What is known about the run, apart from facts.
    pub status: SharedStatus,
}

impl RunPage {
    /// Opens the page. `option` is the option with the address. With `control`, the page can change the run.
    ///
    /// # Errors
    ///
    /// Fails if the page cannot be served at this address.
    pub fn open(
        address: Option<SocketAddr>,
        option: &str,
        control: Option<Control>,
    ) -> Result<RunPage, CommandError> {
        let server = started(Server::start(address, control), option)?;
        Ok(RunPage { server, status: SharedStatus::default() })
    }

    /// Prints the addresses.
    pub fn announce(&self) {
        note(format_args!("watch:   {}", self.server.address()));
        if let Some(address) = self.server.control_address() {
            note(format_args!("control: {address}"));
        }
    }

    /// Shows the report of the run, which has ended.
    pub fn show(&self, recording: &LocatedRecording) {
        self.server.show(live::report(recording.recorded()));
    }

    /// Serves the report for as long as the user reads it.
    pub fn serve(&self, interrupted: &AtomicBool) {
        note(format_args!(
            "the report is served until Ctrl-C, or until no page has been open for {} s",
            PATIENCE.as_secs()
        ));
        self.server.serve(interrupted, Some(PATIENCE));
    }
}

/// Returns a server, or the error; `option` is the option with the address.
///
/// # Errors
///
/// Fails if there is no server.
pub fn started(server: Result<Server, ServeError>, option: &str) -> Result<Server, CommandError> {
    server.map_err(|error| match error.help(option) {
        Some(help) => CommandError::input(miette!(help = help, "{error}")),
        None => CommandError::of_machine(&error),
    })
}
