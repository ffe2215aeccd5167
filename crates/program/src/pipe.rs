//! A running program: one line to its standard input, one line back from its standard output, within a time limit.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faultline_core::BreakageKind;
use faultline_guard::{VARIABLE, group_file};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::executable::{Executable, is_hosted};
use crate::guard;
use crate::log::Log;

/// The maximum length of a line, in bytes.
const LONGEST_LINE: usize = 16 << 20;
/// The maximum number of characters that a message quotes.
const QUOTED: usize = 80;
/// The longest single wait. If the machine or the process is stopped meanwhile, only this counts towards the limit.
const SLICE: Duration = Duration::from_millis(100);
/// A program that used less CPU time than this while its reply was awaited was waiting, too.
const IDLE: Duration = Duration::from_millis(50);
/// The time for which an ending program may still write to its log, and for which its exit status is awaited.
const ENDING: Duration = Duration::from_millis(500);

/// Receives the process ID and the name of a program, and a line: `>` and an event, or `<` and its reply.
pub type ShowLine = fn(u32, &str, &str);

thread_local! {
    static SHOWN: Cell<Option<ShowLine>> = const { Cell::new(None) };
}

/// Passes all lines that this thread exchanges with programs to `show`, or to nothing.
pub fn show_lines(show: Option<ShowLine>) {
    SHOWN.set(show);
}

/// The process groups of all running programs that have one of their own.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn groups() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all programs that this process has started.
pub(crate) fn end_all() {
    for group in groups().drain(..) {
        let _ = killpg(group, Signal::SIGKILL);
    }
}

/// Why there is no reply.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: BreakageKind,
    /// What the program did, as a predicate; `{}` stands for the event.
    pub(crate) what: String,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Pipe {
    name: Arc<str>,
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// `None` once the program has closed it.
    error: Option<ChildStderr>,
    log: Log,
    /// The directory in which the program runs, which would differ from one run to the next.
    dir: String,
    within: Duration,
    buffer: Vec<u8>,
}

impl Pipe {
    /// Starts a program in `dir`.
    pub(crate) fn start(executable: &Executable, dir: &Path) -> io::Result<Pipe> {
        let (program, arguments) = executable.command.split_first().ok_or(ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir);
        // Without these, two executions of the same program could differ.
        command.env("PYTHONHASHSEED", "0").env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        command.env(VARIABLE, guard::id());
        command.envs(executable.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !is_hosted() {
            // Signals from the terminal must not reach the program.
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        if !is_hosted() {
            let group = Pid::from_raw(child.id().cast_signed());
            groups().push(group);
            let _ = fs::write(group_file_of(group, dir), group.to_string());
        }
        let piped = "standard streams are piped";
        let input = child.stdin.take().expect(piped);
        let (output, error) = (child.stdout.take().expect(piped), child.stderr.take().expect(piped));
        set_nonblocking(&input)?;
        set_nonblocking(&output)?;
        set_nonblocking(&error)?;
        Ok(Pipe {
            name: executable.name.clone(),
            child,
            input,
            output,
            error: Some(error),
            log: Log::default(),
            dir: format!("{}/", dir.display()),
            within: executable.answer_within,
            buffer: Vec::new(),
        })
    }

    /// Sends a line, and returns the line with which the program replies, without its end. `within` replaces the time
    /// limit of the program.
    pub(crate) fn exchange(&mut self, line: &str, within: Option<Duration>) -> Result<&str, Failure> {
        let Some(show) = SHOWN.get() else { return self.exchange_line(line, within) };
        let (id, name) = (self.child.id(), self.name.clone());
        show(id, &name, &format!("> {}", line.trim_end()));
        let reply = self.exchange_line(line, within);
        show(id, &name, &format!("< {}", reply.as_ref().unwrap_or(&"(no reply)")));
        reply
    }

    fn exchange_line(&mut self, line: &str, within: Option<Duration>) -> Result<&str, Failure> {
        self.buffer.clear();
        let within = within.unwrap_or(self.within);
        let (mut left, mut searched) = (line.as_bytes(), 0);
        let (mut waited, mut cpu_before) = (Duration::ZERO, None);
        let mut exited = None;
        loop {
            left = self.write(left);
            let begun = Instant::now();
            let (has_output, has_log) = self.wait(!left.is_empty());
            waited += begun.elapsed().min(SLICE);
            if has_log {
                self.read_log();
            }
            if has_output {
                let has_ended = self.read();
                if let Some(at) = self.buffer[searched..].iter().position(|it| *it == b'\n') {
                    return self.take(searched + at, left.is_empty());
                }
                searched = self.buffer.len();
                if searched > LONGEST_LINE {
                    let what = "broke the contract at {}: its reply is longer than 16 MiB".to_owned();
                    return Err(Failure { kind: BreakageKind::Contract, what });
                }
                if has_ended {
                    return Err(self.ended());
                }
            }
            // Another process may hold the output of a program that has exited, but only the program's own output counts.
            if !has_output && matches!(self.child.try_wait(), Ok(Some(_))) {
                let since = *exited.get_or_insert_with(Instant::now);
                if since.elapsed() >= ENDING {
                    return Err(self.ended());
                }
            }
            if waited >= within {
                return Err(self.silent(waited, cpu_before));
            }
            if cpu_before.is_none() && waited >= SLICE {
                cpu_before = self.cpu_time();
            }
        }
    }

    /// Returns the reply that ends at this byte of the buffer.
    fn take(&mut self, end: usize, is_read: bool) -> Result<&str, Failure> {
        let contract = |what: String| Failure { kind: BreakageKind::Contract, what };
        let is_alone = is_read && end + 1 == self.buffer.len();
        // Of two lines, the first usually says more about the mistake.
        if !is_alone && is_object(&self.buffer[..end]) {
            let what = "broke the contract at {}: it wrote more than one line in reply";
            return Err(contract(what.to_owned()));
        }
        str::from_utf8(&self.buffer[..end]).map_err(|_| {
            let start = String::from_utf8_lossy(&self.buffer[..end.min(4 * QUOTED)]);
            contract(format!("broke the contract at {{}}: its reply is not UTF-8 text: `{}`", quoted(&start)))
        })
    }

    /// Writes as much as fits, and returns the rest. The output of a program that no longer reads says why.
    fn write<'a>(&mut self, mut left: &'a [u8]) -> &'a [u8] {
        while !left.is_empty() {
            match self.input.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return &[],
            }
        }
        left
    }

    /// Reads what the program has written. Returns whether it has closed its standard output.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 4 << 10];
        loop {
            match self.output.read(&mut chunk) {
                Ok(0) => return true,
                Ok(read) => {
                    self.buffer.extend_from_slice(&chunk[..read]);
                    // A reply that is complete or too long needs no more.
                    if read < chunk.len() || self.buffer.len() > LONGEST_LINE {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits until the program has written something or, if `writes`, reads its input; at most for one slice. Returns
    /// whether it has written output, and whether it has written to its log.
    fn wait(&self, writes: bool) -> (bool, bool) {
        let mut polled = Vec::with_capacity(3);
        polled.push(PollFd::new(self.output.as_fd(), PollFlags::POLLIN));
        polled.extend(self.error.as_ref().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
        if writes {
            polled.push(PollFd::new(self.input.as_fd(), PollFlags::POLLOUT));
        }
        let slice = PollTimeout::try_from(SLICE).unwrap_or(PollTimeout::MAX);
        // An interruption by a signal only shortens the wait.
        let _ = poll(&mut polled, slice);
        let is_ready = |place: usize| polled.get(place).and_then(PollFd::any).unwrap_or(false);
        (is_ready(0), self.error.is_some() && is_ready(1))
    }

    /// Reads what the program has written to its log, but not without end.
    fn read_log(&mut self) {
        let mut chunk = [0; 4 << 10];
        for _ in 0..64 {
            let Some(error) = &mut self.error else { return };
            match error.read(&mut chunk) {
                Ok(0) => self.error = None,
                Ok(read) => {
                    if is_hosted() {
                        let _ = io::stderr().write_all(&chunk[..read]);
                    }
                    self.log.add(&chunk[..read], &self.dir);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the last lines of the log. Paths in the program's directory are relative.
    pub(crate) fn log(&mut self) -> Arc<[Arc<str>]> {
        self.read_log();
        self.log.last(&self.dir)
    }

    /// Returns what the program has written to its log, as far as it was read, since the last call.
    pub(crate) fn logged(&mut self) -> Vec<String> {
        self.log.take()
    }

    /// Ends the log of a life, and returns its last lines.
    pub(crate) fn end_log(&mut self) -> Vec<String> {
        self.read_log();
        self.log.end(&self.dir)
    }

    /// Describes the end of a program that has closed its standard output.
    fn ended(&mut self) -> Failure {
        let begun = Instant::now();
        let status = loop {
            self.read_log();
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                _ if begun.elapsed() > ENDING => break None,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let Some(status) = status else {
            let what = "broke the contract at {}: it closed its standard output".to_owned();
            return Failure { kind: BreakageKind::Contract, what };
        };
        let kind = match status.signal() {
            Some(signal) if signal == Signal::SIGKILL as i32 => BreakageKind::Killed,
            _ => BreakageKind::Ended,
        };
        Failure { kind, what: format!("{} while it answered {{}}", ending(status)) }
    }

    fn silent(&self, waited: Duration, cpu_before: Option<Duration>) -> Failure {
        if !self.buffer.is_empty() {
            let start = String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(4 * QUOTED)]);
            let what =
                format!("broke the contract at {{}}: its reply has no end of line: `{}`", quoted(&start));
            return Failure { kind: BreakageKind::Contract, what };
        }
        let mut what = format!("has not answered {{}} for {:.0} s", waited.as_secs_f64().max(1.0));
        if let Some((before, now)) = cpu_before.zip(self.cpu_time()) {
            let used = now.saturating_sub(before);
            what += &format!("; it used {:.1} s of CPU time", used.as_secs_f64());
            // A program that waits for its next event, and whose reply is in a buffer, uses none.
            if used < IDLE {
                what += ": did the program flush its output?";
            }
        }
        Failure { kind: BreakageKind::Silent, what }
    }

    /// Returns the CPU time that the program has used; `None` if it cannot be determined.
    fn cpu_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name of the program, in parentheses, may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        // Linux reports these times in hundredths of a second on every machine.
        Some(Duration::from_millis(ticks * 10))
    }
}

/// Returns the file from which the guard learns the process group of a program in this directory.
fn group_file_of(group: Pid, dir: &Path) -> PathBuf {
    group_file(&dir.with_file_name(group.to_string()))
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let _ = match is_hosted() {
            // The group is that of the process, and ends with it.
            true => kill(pid, Signal::SIGKILL),
            false => killpg(pid, Signal::SIGKILL),
        };
        let _ = self.child.wait();
        if !is_hosted() {
            groups().retain(|it| *it != pid);
            let _ = fs::remove_file(group_file_of(pid, Path::new(&self.dir)));
        }
    }
}

/// Returns whether a line is a JSON object.
pub(crate) fn is_object(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line).is_ok()
}

/// Returns the beginning of a text, for a message.
pub(crate) fn quoted(text: &str) -> String {
    let mut start: String =
        text.chars().take(QUOTED).map(|it| if it.is_control() { ' ' } else { it }).collect();
    if text.chars().nth(QUOTED).is_some() {
        start.push('…');
    }
    start
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |it| it.to_string());
            format!("was ended by {name}")
        }
        (None, None) => "ended".to_owned(),
    }
}

fn set_nonblocking(stream: &(impl AsFd + AsRawFd)) -> Result<(), Errno> {
    let flags = OFlag::from_bits_truncate(fcntl(stream, FcntlArg::F_GETFL)?);
    fcntl(stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}
