//! Attempts: commands, requests and connections that succeed or fail within a limited time.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use faultline_core::Ending;
use faultline_guard::VARIABLE;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::{Attempt, NodeSystem};

/// Number of bytes of a command's output that an error shows, and of the answer to a request that are read.
const MOST_READ: usize = 1_000;

/// Time in which the output of a command is read after its end.
const REST: Duration = Duration::from_millis(50);

/// How an attempt ended, and what it wrote last.
#[derive(Debug)]
pub(super) struct Attempted {
    pub(super) ending: Ending,
    pub(super) output: String,
}

impl Attempted {
    pub(super) fn of(ending: Ending) -> Attempted {
        Attempted { ending, output: String::new() }
    }

    /// Describes the end, with the last lines of output.
    pub(super) fn describe(&self) -> String {
        match self.output.trim() {
            "" => self.ending.to_string(),
            output => format!("{}: {output}", self.ending),
        }
    }
}

/// Makes an attempt. Its processes end with it.
pub(super) async fn attempt(system: &NodeSystem, attempt: &Attempt, within: Duration) -> Attempted {
    let carry_out = async {
        match attempt {
            Attempt::Exec(words) => execute(system, words).await,
            Attempt::Http(url) => Attempted::of(request(url).await.unwrap_or_else(|it| failed(&it))),
            Attempt::Tcp(address) => Attempted::of(match TcpStream::connect(address.as_str()).await {
                Ok(_) => Ending::Opened,
                Err(error) => failed(&error),
            }),
        }
    };
    tokio::time::timeout(within, carry_out).await.unwrap_or_else(|_| Attempted::of(Ending::TimedOut))
}

fn failed(error: &io::Error) -> Ending {
    Ending::Failed(error.to_string().into())
}

/// Kills a process group when it is dropped.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

async fn execute(system: &NodeSystem, words: &[String]) -> Attempted {
    let mut command = command(system, words);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = words.first().map_or("", String::as_str);
            return Attempted::of(Ending::Failed(format!("`{program}` cannot be started: {error}").into()));
        }
    };
    // Killed with everything that it started, also if it does not end in time.
    let _group = child.id().map(|it| Group(Pid::from_raw(it.cast_signed())));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let status = {
        let read = async { tokio::join!(read_end(stdout, &mut out), read_end(stderr, &mut err)) };
        let mut read = std::pin::pin!(read);
        tokio::select! {
            // What the command wrote has arrived, but may not have been read. A program that the command left behind may
            // keep its output open.
            status = child.wait() => {
                let _ = tokio::time::timeout(REST, read).await;
                status
            }
            _ = &mut read => child.wait().await,
        }
    };
    let end = if err.is_empty() { out } else { err };
    let output = String::from_utf8_lossy(&end).into_owned();
    let ending = status.map_or_else(|error| failed(&error), ending_of);
    Attempted { ending, output }
}

/// Returns the command with these words, in its own process group.
pub(super) fn command(system: &NodeSystem, words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command
        .args(words.iter().skip(1))
        .envs(system.env.iter().map(|(name, value)| (name, value)))
        .env(VARIABLE, &system.id)
        .current_dir(&system.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Reads to the end, and keeps the newest bytes.
async fn read_end(from: Option<impl AsyncRead + Unpin>, end: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        end.extend_from_slice(&buffer[..read]);
        end.drain(..end.len().saturating_sub(MOST_READ));
    }
}

/// Returns how a program ended.
pub(super) fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exit(code as u8),
        (None, signal) => Ending::Signal(signal.unwrap_or_default() as u8),
    }
}

/// Requests a page, and returns the status of the answer.
async fn request(url: &str) -> io::Result<Ending> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    let address = if has_port { host.to_owned() } else { format!("{host}:80") };
    let mut stream = TcpStream::connect(address).await?;
    let path = if path.is_empty() { "/" } else { path };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: faultline\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST_READ as u64).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let mut words = answer.split_whitespace();
    let status = words.next().filter(|it| it.starts_with("HTTP/")).and_then(|_| words.next()?.parse().ok());
    status.map(Ending::Http).ok_or_else(|| io::Error::other("the answer is not one of an HTTP server"))
}
