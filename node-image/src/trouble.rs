//! Why the program ends without having done what it was asked for.

use std::fmt::Display;
use std::process::ExitCode;

/// Why, and with which exit status.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) status: ExitCode,
    pub(crate) text: String,
}

impl Trouble {
    /// What was given cannot be used.
    pub(crate) fn input(text: impl Display) -> Trouble {
        Trouble { status: ExitCode::from(2), text: text.to_string() }
    }

    /// The machine did not let it happen.
    pub(crate) fn machine(error: impl Display) -> Trouble {
        Trouble { status: ExitCode::from(3), text: error.to_string() }
    }
}
