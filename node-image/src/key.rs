//! The federation's key, read from its file, and the keys derived from it. The federation's key is never printed; the
//! derived keys are printed on request.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use faultline_api::supervision;
use faultline_runtime::{Keys, Secret};

use crate::command_error::CommandError;

/// Print the token for a supervisor's HTTP API, derived from the federation's key.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  curl -H \"Authorization: Bearer $(faultline-node token --key-file key)\" http://127.0.0.1:7301/v1/status")]
pub(crate) struct TokenArguments {
    /// Read the federation's key from FILE (64 hexadecimal digits)
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
}

/// Prints the token.
pub(crate) fn print(arguments: &TokenArguments) -> Result<(), CommandError> {
    print_line(token(&arguments.key_file)?)
}

/// Print the key of one process, derived from the federation's key, for its agent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node key --key-file key paris-0 > key-of-paris-0")]
pub(crate) struct KeyArguments {
    /// Read the federation's key from FILE (64 hexadecimal digits)
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Print the key of this process: `CLUSTER-N`, or the name of a process outside the clusters
    process: String,
}

/// Prints the key of a process.
pub(crate) fn print_key(arguments: &KeyArguments) -> Result<(), CommandError> {
    let file = &arguments.key_file;
    let key = supervision::process_key(&read(file)?, &arguments.process);
    print_line(key.map_err(|error| unusable(file, error))?)
}

fn print_line(line: impl Display) -> Result<(), CommandError> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| CommandError::machine(format!("cannot write to standard output: {error}")))
}

/// Reads the key of one process.
pub(crate) fn secret(file: &Path) -> Result<Secret, CommandError> {
    Secret::read_file(file).map_err(|error| unusable(file, error))
}

/// Derives the keys of these processes from the federation's key.
pub(crate) fn keys(file: &Path, processes: &[String]) -> Result<Keys, CommandError> {
    let key = read(file)?;
    let of_process = |process: &String| {
        let drawn = supervision::process_key(&key, process).map_err(|error| unusable(file, error))?;
        Secret::read_line(format!("{drawn}\n").as_bytes()).map_err(|error| unusable(file, error))
    };
    processes.iter().map(of_process).collect::<Result<_, _>>().map(Keys::new)
}

/// Derives the token of the supervisor's API.
pub(crate) fn token(file: &Path) -> Result<String, CommandError> {
    supervision::token(&read(file)?).map_err(|error| unusable(file, error))
}

/// Derives the reader's token of the supervisor's API.
pub(crate) fn reader_token(file: &Path) -> Result<String, CommandError> {
    supervision::reader_token(&read(file)?).map_err(|error| unusable(file, error))
}

/// Reads the federation's key from its file.
pub(crate) fn read(file: &Path) -> Result<String, CommandError> {
    fs::read_to_string(file).map_err(|error| unusable(file, error))
}

fn unusable(file: &Path, error: impl std::fmt::Display) -> CommandError {
    CommandError::input(format!(
        "cannot use the key in {}: {error}; specify a file of 64 hexadecimal digits with `--key-file`",
        file.display()
    ))
}
