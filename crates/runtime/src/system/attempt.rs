//! Attempts: commands, requests and connections that succeed or fail within a limited time.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use faultline_core::Ending;
use faultline_core::observation::{MOST_SAID_BY_CHECK, MOST_SAID_BY_PROBE};
use faultline_guard::{ATTEMPT_VARIABLE, VARIABLE};
use faultline_trace::expectation::INHERITED;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until, timeout};

use super::orphans::{self, Started};
use super::output::quoted;
use super::{Attempt, NodeSystem, http};

/// Time in which the output of a command is read after its processes have ended.
const REST: Duration = Duration::from_millis(50);
/// The maximum number of bytes of each stream of a command that are kept.
const MOST_KEPT: usize = 4 << 10;

/// How an attempt ended, and what it wrote.
#[derive(Debug)]
pub(super) struct Attempted {
    pub(super) ending: Ending,
    pub(super) output: Output,
}

impl Attempted {
    pub(super) fn of(ending: Ending) -> Attempted {
        Attempted { ending, output: Output::default() }
    }

    /// Describes the end, with the last lines of output.
    pub(super) fn describe(&self) -> String {
        match self.output.last_lines() {
            lines if lines.is_empty() => self.ending.to_string(),
            lines => format!("{}: {lines}", self.ending),
        }
    }

    /// Returns what an observation of a sample quotes.
    pub(super) fn said_by_probe(&self) -> String {
        if self.ending.is_success() { String::new() } else { self.output.reason() }
    }
}

/// What a command wrote: the first line of standard error, and the newest bytes of both streams. Which of them was written
/// first is unknown.
#[derive(Debug, Default)]
pub(super) struct Output {
    first_error: Vec<u8>,
    has_first_error: bool,
    /// The newest bytes of standard output and of standard error.
    ends: [Vec<u8>; 2],
}

impl Output {
    /// Adds output of standard output (0) or standard error (1).
    fn add(&mut self, stream: usize, bytes: &[u8]) {
        if stream == 1 {
            self.add_to_first_error(bytes);
        }
        let end = &mut self.ends[stream];
        end.extend_from_slice(bytes);
        end.drain(..end.len().saturating_sub(MOST_KEPT));
    }

    fn add_to_first_error(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|_| !self.has_first_error) {
            let is_end = matches!(byte, b'\n' | b'\r') || self.first_error.len() >= MOST_SAID_BY_PROBE * 4;
            // Some programs begin with an empty line.
            let is_blank = self.first_error.iter().all(u8::is_ascii_whitespace);
            match (is_end, is_blank) {
                (true, true) => self.first_error.clear(),
                (true, false) => {
                    self.has_first_error = true;
                    return;
                }
                (false, _) => self.first_error.push(*byte),
            }
        }
    }

    /// Returns the first line of standard error or, if there is none, the last line of standard output.
    fn reason(&self) -> String {
        let first = quoted(&self.first_error, MOST_SAID_BY_PROBE);
        if first.is_empty() { last_line(&self.ends[0]) } else { first }
    }

    /// Returns the last lines of standard output and then those of standard error, as many as an observation of a check
    /// quotes. If both are long, each has half of the space.
    pub(super) fn last_lines(&self) -> String {
        const HALF: usize = MOST_SAID_BY_CHECK / 2;
        let [out, err] = self.ends.each_ref().map(|it| last_lines(it, MOST_SAID_BY_CHECK));
        if out.is_empty() || err.is_empty() {
            return out + &err;
        }
        let room = MOST_SAID_BY_CHECK - 1;
        let err = last_lines(err.as_bytes(), (room - HALF).max(room.saturating_sub(out.len())));
        let out = last_lines(out.as_bytes(), room - err.len());
        format!("{out}\n{err}")
    }

    /// Returns all output that was kept.
    pub(super) fn text(&self) -> String {
        let parts = self.ends.each_ref().map(|it| String::from_utf8_lossy(it).trim_end().to_owned());
        parts.iter().filter(|it| !it.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the last line that is not blank.
fn last_line(bytes: &[u8]) -> String {
    let lines = bytes.rsplit(|it| matches!(it, b'\n' | b'\r'));
    lines.map(|it| quoted(it, MOST_SAID_BY_PROBE)).find(|it| !it.is_empty()).unwrap_or_default()
}

/// Returns the last whole lines, at most `most` bytes. If the last line alone is longer, returns its end.
pub(super) fn last_lines(bytes: &[u8], most: usize) -> String {
    let text = quoted(bytes, usize::MAX);
    let earliest = text.len().saturating_sub(most);
    if earliest == 0 {
        return text;
    }
    let starts = text.match_indices('\n').map(|it| it.0 + 1).find(|it| *it >= earliest);
    let from = starts
        .filter(|it| *it < text.len())
        .unwrap_or_else(|| (earliest..).find(|it| text.is_char_boundary(*it)).unwrap_or(text.len()));
    text[from..].to_owned()
}

/// Makes an attempt. All its processes have ended when it has.
pub(super) async fn attempt(system: &NodeSystem, attempt: &Attempt, within: Duration) -> Attempted {
    let deadline = Instant::now() + within;
    let limited = |made: Result<io::Result<Ending>, tokio::time::error::Elapsed>| {
        Attempted::of(match made {
            Ok(Ok(ending)) => ending,
            Ok(Err(error)) => failed(&error),
            Err(_) => Ending::TimedOut,
        })
    };
    match attempt {
        Attempt::Exec(words) => execute(system, words, deadline).await,
        Attempt::Http(url) => limited(timeout(within, http::request(url)).await),
        Attempt::Tcp(address) => {
            let connect = async { TcpStream::connect(address.as_str()).await.map(|_| Ending::Opened) };
            limited(timeout(within, connect).await)
        }
    }
}

/// Returns how a request or a connection failed. This machine's own limits say nothing about the system.
fn failed(error: &io::Error) -> Ending {
    use nix::errno::Errno;
    const OWN: [Errno; 5] =
        [Errno::EMFILE, Errno::ENFILE, Errno::EADDRNOTAVAIL, Errno::ENOBUFS, Errno::ENOMEM];
    let is_own = error.raw_os_error().is_some_and(|it| OWN.contains(&Errno::from_raw(it)));
    let reason = error.to_string().into();
    if is_own || error.kind() == io::ErrorKind::InvalidInput {
        Ending::Impossible(reason)
    } else {
        Ending::Failed(reason)
    }
}

async fn execute(system: &NodeSystem, words: &[String], deadline: Instant) -> Attempted {
    let id = orphans::next_attempt(&system.id);
    let mut command = command(system, words);
    command.env(ATTEMPT_VARIABLE, &id);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Attempted::of(cannot_be_started(words, &error)),
    };
    let started = Started::by(&child);
    // Killed with its group also if this attempt is given up.
    let mut group = Group(Some(started.pid()));
    let output = RefCell::new(Output::default());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut read = std::pin::pin!(async {
        tokio::join!(
            read_to_end(stdout, |it| output.borrow_mut().add(0, it)),
            read_to_end(stderr, |it| {
                output.borrow_mut().add(1, it);
            })
        );
    });
    let mut is_read = false;
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break Some(status),
            () = &mut read, if !is_read => is_read = true,
            () = sleep_until(deadline) => break None,
        }
    };
    orphans::end_attempt(started.pid(), &id).await;
    group.0 = None;
    if !is_read {
        // What was written has arrived, but may not have been read.
        let _ = timeout(REST, read).await;
    }
    let ending = match status {
        Some(status) => status.map_or_else(|error| Ending::Impossible(error.to_string().into()), ending_of),
        None => {
            // Its processes have been killed.
            let _ = child.wait().await;
            Ending::TimedOut
        }
    };
    Attempted { ending, output: output.take() }
}

/// Kills a process group when it is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Returns the end of a command that cannot be started.
pub(super) fn cannot_be_started(words: &[String], error: &io::Error) -> Ending {
    let program = words.first().map_or("", String::as_str);
    Ending::Impossible(format!("`{program}` cannot be started: {error}").into())
}

/// Returns the variables of Faultline's own environment that the commands of a system have, too.
pub fn inherited_environment() -> impl Iterator<Item = (&'static str, OsString)> {
    INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Returns the command with these words, in its own process group. Its environment contains only what is documented.
pub(super) fn command(system: &NodeSystem, words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command
        .args(words.iter().skip(1))
        .env_clear()
        .envs(inherited_environment())
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

/// Passes everything that can be read to `take`.
async fn read_to_end(from: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        take(&buffer[..read]);
    }
}

/// Returns how a program ended.
pub(super) fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exit(code as u8),
        (None, signal) => Ending::Signal(signal.unwrap_or_default() as u8),
    }
}

#[cfg(test)]
mod tests {
    use faultline_supervisor::AfterExit;

    use super::*;
    use crate::transport::tests::run;

    fn system() -> (tempfile::TempDir, NodeSystem) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let system = NodeSystem {
            id: format!("test-{}", std::process::id()),
            command: vec!["sleep".into(), "60".into()],
            later_commands: Default::default(),
            env: vec![("OWN".into(), "1".into())],
            files: Vec::new(),
            dir: path.clone(),
            data: path.clone(),
            log: path.join("log"),
            log_bytes: 4096,
            ready: (None, Duration::ZERO),
            set_up: None,
            probes: Vec::new(),
            checks: Vec::new(),
            clients: Vec::new(),
            final_check: None,
            watches: Vec::new(),
            after_exit: AfterExit::End,
            may_finish: false,
            is_daemon: false,
        };
        (dir, system)
    }

    async fn execute(words: &[&str]) -> Attempted {
        let (_dir, system) = system();
        let words = words.iter().map(|it| (*it).to_owned()).collect();
        attempt(&system, &Attempt::Exec(words), Duration::from_secs(2)).await
    }

    #[test]
    fn what_cannot_be_started_is_impossible() {
        run(async {
            for words in [&["no-such-program", "x"][..], &["/etc/passwd"], &["./none"], &[""]] {
                let made = execute(words).await;
                assert!(matches!(made.ending, Ending::Impossible(_)), "{:?}", made.ending);
                assert!(made.ending.is_unknown());
            }
            assert!(execute(&["sh", "-c", "exit 75"]).await.ending.is_unknown());
            assert_eq!(execute(&["sh", "-c", "exit 1"]).await.ending, Ending::Exit(1));
            let (_dir, system) = system();
            let refused = Attempt::Tcp("127.0.0.1:1".into());
            let made = attempt(&system, &refused, Duration::from_secs(2)).await;
            assert!(matches!(made.ending, Ending::Failed(_)), "{:?}", made.ending);
        });
    }

    #[test]
    fn an_attempt_that_takes_too_long_fails_with_what_it_said() {
        run(async {
            let made = execute(&["sh", "-c", "echo; echo waiting >&2; echo more >&2; sleep 60"]).await;
            assert_eq!((&made.ending, &*made.said_by_probe()), (&Ending::TimedOut, "waiting"));
        });
    }

    #[test]
    fn a_sample_that_fails_says_why() {
        run(async {
            for (script, said) in [
                ("echo one; echo first >&2; echo last >&2; exit 1", "first"),
                ("echo one; printf 'two\n\n'; exit 1", "two"),
                ("printf '\\n\\033[31mbad\\033[0m' >&2; exit 1", "bad"),
                ("exit 1", ""),
                ("echo fine", ""),
            ] {
                assert_eq!(execute(&["sh", "-c", script]).await.said_by_probe(), said, "{script}");
            }
            let long = execute(&["sh", "-c", "printf '%01000d' 7 >&2; exit 1"]).await;
            assert_eq!(long.said_by_probe().len(), MOST_SAID_BY_PROBE);
        });
    }

    #[test]
    fn a_check_says_its_last_lines() {
        run(async {
            for (script, ends, least) in [
                ("seq 1000; echo lost 3 >&2; exit 1", "\n999\n1000\nlost 3", 450),
                ("echo lost 3; seq 1000 >&2; exit 1", "lost 3\n", 450),
                ("seq 1000; seq 1000 >&2; exit 1", "\n999\n1000", 450),
                ("echo lost 3; exit 1", "lost 3", 6),
            ] {
                let said = execute(&["sh", "-c", script]).await.output.last_lines();
                assert!(said.contains(ends) && (least..=MOST_SAID_BY_CHECK).contains(&said.len()), "{said}");
                let is_whole = |it: &str| it == "lost 3" || it.parse::<u32>().is_ok_and(|it| it > 800);
                assert!(said.lines().all(is_whole), "{said}");
            }
        });
        assert_eq!(last_lines("ä\nböö".as_bytes(), 5), "böö");
        assert_eq!(last_lines("ä\nböö".as_bytes(), 4), "öö");
        assert_eq!(last_lines(b"a\n", 4), "a");
    }

    #[test]
    fn commands_have_only_the_documented_environment() {
        run(async {
            let made = execute(&["env"]).await;
            let text = made.output.text();
            for line in text.lines() {
                let name = line.split('=').next().unwrap();
                let is_own = name == "OWN" || name.starts_with("FAULTLINE_") || INHERITED.contains(&name);
                assert!(is_own, "{line}");
            }
            assert!(text.contains("OWN=1") && text.contains("PATH="), "{text}");
        });
    }
}
