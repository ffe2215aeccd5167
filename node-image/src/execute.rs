//! `faultline-node execute`: runs as the first process in a container with a system's own image, where it runs the commands of
//! a node.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use crate::command_error::CommandError;

/// Run the commands of a system's node in this container, as the node's process instructs.
///
/// Knows no key. Everything that it runs ends with the life of the node. It is a static program, so it runs in any image.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node execute --socket /faultline/run/executor --data /faultline/data \\
      --namespace default --address 10.244.1.7")]
pub(crate) struct ExecuteArguments {
    /// Listen for the node's process and the agent on this socket
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
    /// Keep the data and the working directories of the commands in DIR. Removes those of other runs
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Namespace of the pods, which is part of their domain names
    #[arg(long, value_name = "NAME")]
    namespace: String,
    /// Address of this pod
    #[arg(long, value_name = "ADDR")]
    address: IpAddr,
}

/// Copy this program, so that a container with another image can run it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node install --to /faultline/bin/faultline-node")]
pub(crate) struct InstallArguments {
    /// Write the program to FILE
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: ExecuteArguments) -> Result<(), CommandError> {
    let ExecuteArguments { socket, data, namespace, address } = arguments;
    faultline_launch::execute(&socket, data, namespace, address).map_err(CommandError::machine)
}

/// Copies the program.
pub(crate) fn install(arguments: &InstallArguments) -> Result<(), CommandError> {
    let copied = std::env::current_exe().and_then(|it| fs::copy(it, &arguments.to));
    copied.map(drop).map_err(|error| {
        CommandError::machine(format!("cannot copy this program to {}: {error}", arguments.to.display()))
    })
}
