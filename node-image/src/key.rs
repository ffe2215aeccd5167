//! The federation's key, from the file that holds it. It is never shown; what is drawn from it is, to who asks.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use faultline_api::supervision;
use faultline_runtime::Secret;

use crate::trouble::Trouble;

/// Print what opens a supervisor's HTTP API, drawn from the federation's key.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  curl -H \"Authorization: Bearer $(faultline-node token --key-file key)\" http://127.0.0.1:7301/v1/status")]
pub(crate) struct TokenArguments {
    /// The federation's key: a file of 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
}

/// Prints the token.
pub(crate) fn print(arguments: &TokenArguments) -> Result<(), Trouble> {
    println!("{}", token(&arguments.key_file)?);
    Ok(())
}

/// What guards the connections of the federation.
pub(crate) fn secret(file: &Path) -> Result<Secret, Trouble> {
    Secret::read_file(file).map_err(|error| unusable(file, error))
}

/// What opens the supervisor's API.
pub(crate) fn token(file: &Path) -> Result<String, Trouble> {
    let key = fs::read_to_string(file).map_err(|error| unusable(file, error))?;
    supervision::token(&key).map_err(|error| unusable(file, error))
}

fn unusable(file: &Path, error: impl std::fmt::Display) -> Trouble {
    Trouble::input(format!(
        "cannot use the key in {}: {error}; name a file of 64 hexadecimal digits with `--key-file`",
        file.display()
    ))
}
