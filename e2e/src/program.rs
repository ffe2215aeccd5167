//! The programs that users run: `faultline`, and `kubectl-faultline`, which it calls.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::Failure;

/// A program, given by its path.
pub struct Program(PathBuf);

/// A running program.
pub struct Running(Child);

/// The outcome of running a program.
pub struct Finished {
    /// The exit status; `None` if the program was killed.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub stderr: String,
}

impl Program {
    /// Returns the `faultline` program from the target directory of these tests, as it was last built.
    pub fn built() -> Result<Program, Failure> {
        // The tests are in target/debug/deps, and the programs in target/debug.
        let tests = std::env::current_exe()?;
        let place = tests
            .ancestors()
            .nth(2)
            .ok_or_else(|| format!("{} is not in a target directory", tests.display()))?;
        for (name, package) in [("faultline", "faultline-cli"), ("kubectl-faultline", "faultline-kubectl")] {
            let program = place.join(name);
            if !program.exists() {
                return Err(format!(
                    "there is no {}: build it with `cargo build -p {package}`",
                    program.display()
                )
                .into());
            }
        }
        Ok(Program(place.join("faultline")))
    }

    /// Returns the `kubectl` plugin from the target directory of these tests, as it was last built.
    pub fn plugin() -> Result<Program, Failure> {
        Program::built().map(|Program(faultline)| Program(faultline.with_file_name("kubectl-faultline")))
    }

    /// Runs the program against the cluster of the tests, until it exits.
    pub async fn run(&self, arguments: &[&str]) -> Result<Finished, Failure> {
        let mut command = self.command(arguments);
        Ok(Finished::of(command.output().await?))
    }

    /// Starts the program against the cluster of the tests.
    pub fn start(&self, arguments: &[&str]) -> Result<Running, Failure> {
        let mut command = self.command(arguments);
        Ok(Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?))
    }

    /// Starts the program with this kubeconfig.
    pub fn start_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<Running, Failure> {
        let mut command = self.command(arguments);
        command.env("KUBECONFIG", kubeconfig);
        Ok(Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        if let Some(kubeconfig) = crate::scenario::kubeconfig() {
            command.env("KUBECONFIG", kubeconfig);
        }
        command
    }
}

impl Running {
    /// Sends an interrupt, like Ctrl-C.
    pub fn interrupt(&self) -> Result<(), Failure> {
        let id = self.0.id().and_then(|it| i32::try_from(it).ok()).ok_or("the program has already exited")?;
        Ok(kill(Pid::from_raw(id), Signal::SIGINT)?)
    }

    /// Returns the next line of standard error that contains `part`. [`Running::end`] omits the lines up to it.
    pub async fn line(&mut self, part: &str) -> Result<String, Failure> {
        let from = self.0.stderr.as_mut().ok_or("standard error is closed")?;
        let mut line = Vec::new();
        // Reads single bytes, so that nothing beyond the line is lost.
        while let Ok(byte) = from.read_u8().await {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            if text.contains(part) {
                return Ok(text);
            }
            line.clear();
        }
        Err(format!("the program printed no line with `{part}`").into())
    }

    /// Waits until the program exits.
    pub async fn end(self) -> Result<Finished, Failure> {
        Ok(Finished::of(self.0.wait_with_output().await?))
    }
}

impl Finished {
    fn of(output: Output) -> Finished {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Finished { status: output.status.code(), out: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Parses the output as JSON.
    pub fn json(&self) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.out)?)
    }
}
