//! Errors that end the program.

use std::fmt::Display;
use std::process::ExitCode;

/// An error message, with its exit status.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) status: ExitCode,
    pub(crate) text: String,
}

impl CommandError {
    /// Creates an error about unusable input, with exit status 2.
    pub(crate) fn input(text: impl Display) -> CommandError {
        CommandError { status: ExitCode::from(2), text: text.to_string() }
    }

    /// Creates an error about the machine or its operating system, with exit status 3.
    pub(crate) fn machine(error: impl Display) -> CommandError {
        CommandError { status: ExitCode::from(3), text: error.to_string() }
    }
}
