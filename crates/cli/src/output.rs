//! What goes to the standard output.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::trouble::Trouble;

/// Whether the standard output takes colours: it is a terminal that can show them, and the user did not forbid them.
pub(crate) fn colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Prints text. A reader who has gone away is not an error.
pub(crate) fn print(text: &str) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Trouble::machine(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A value as indented JSON with a line's end.
pub(crate) fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("what is printed has a JSON form");
    text.push('\n');
    text
}
