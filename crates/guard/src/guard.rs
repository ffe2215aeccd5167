//! The guard, and the program that starts it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::Signal;

use crate::processes::{MOST_SEARCHES, PAUSE, RunId, kill_group, signal};

/// The first argument of a guard.
pub const MARK: &str = "--guard";

/// The last argument of a guard that removes its directory in the end.
const REMOVE: &str = "--remove";

/// A guard that was started. It ends once this value is dropped, or the program with this value has ended.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts a guard for the commands of a run: `command`, followed by the arguments for [`serve`]. In `dir` and the
    /// directories in it are the [files](crate::group_file) with the process groups of the commands.
    ///
    /// # Errors
    ///
    /// Fails if the guard cannot be started.
    ///
    /// # Panics
    ///
    /// Panics if `command` is empty.
    pub fn start(command: &[OsString], run: &RunId, dir: &Path, removes: bool) -> io::Result<Guard> {
        let (program, first) = command.split_first().expect("a command starts with a program");
        let mut guard = Command::new(program);
        let dir = std::path::absolute(dir)?;
        guard.args(first).arg(MARK).arg(run.as_str()).arg(dir).args(removes.then_some(REMOVE));
        // Neither signals from the terminal nor the end of this program's process group must reach the guard.
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        guard.current_dir("/").spawn().map(Guard)
    }
}

/// Lets the guard end the commands that remain, and waits for it.
impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Performs the work of a guard if `arguments` are those of one: once standard input ends, which is when the program that
/// started the guard has ended, kills all processes of the run's commands. Returns `None` otherwise.
///
/// # Errors
///
/// Fails if standard input cannot be read.
pub fn serve(arguments: &[OsString]) -> Option<io::Result<()>> {
    let [mark, run, dir, rest @ ..] = arguments else { return None };
    (mark == MARK).then(|| {
        // `pkill faultline` must not end the guard as well.
        let _ = fs::write("/proc/self/comm", "guard");
        let ended = io::stdin().lock().read_to_end(&mut Vec::new());
        let dir = Path::new(dir);
        end_commands(&run.to_string_lossy(), dir);
        if rest.first().is_some_and(|it| it == REMOVE) {
            let _ = fs::remove_dir_all(dir);
        }
        ended.map(drop)
    })
}

fn end_commands(run: &str, dir: &Path) {
    let prefix = format!("{run}-");
    // Descendants without an identifier are found only while their parents run.
    signal(|it| it.starts_with(&prefix), &[], Signal::SIGKILL);
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().filter_map(|it| Some(it.ok()?.path()));
    for path in entries(dir).flat_map(|it| entries(&it).chain([it]).collect::<Vec<_>>()) {
        if path.extension() == Some(OsStr::new("group")) {
            kill_group(&path);
        }
    }
    // A process that starts another one while it is being killed is found in the next search.
    let mut quiet = 0;
    for _ in 0..MOST_SEARCHES {
        quiet = if signal(|it| it.starts_with(&prefix), &[], Signal::SIGKILL) { 0 } else { quiet + 1 };
        if quiet > 2 {
            break;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use faultline_core::{Life, ProcessId};

    use super::*;
    use crate::processes::{VARIABLE, group_file, matching};

    #[test]
    #[ignore = "this is the guard of another test"]
    fn serves() {
        let arguments: Vec<OsString> = std::env::args_os().skip_while(|it| it != MARK).collect();
        serve(&arguments).expect("these are the arguments of a guard").unwrap();
    }

    /// Starts a command with a child, and returns it with its identifier.
    fn started(script: &str, id: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(VARIABLE, id).process_group(0).stdin(Stdio::null());
        command.spawn().expect("`sh` starts")
    }

    fn ends(mut command: Child) {
        let begun = Instant::now();
        while command.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the command remains");
            thread::sleep(PAUSE);
        }
    }

    #[test]
    fn a_guard_ends_the_commands_of_its_run_alone_and_removes_their_directory() {
        let serves = ["--ignored", "--exact", "guard::tests::serves", "--"].map(OsString::from);
        let command: Vec<OsString> =
            [std::env::current_exe().unwrap().into_os_string()].into_iter().chain(serves).collect();
        let (run, other) = (RunId::generate().unwrap(), RunId::generate().unwrap());
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("programs");
        fs::create_dir_all(dir.join("node")).unwrap();
        let id = run.of_life(ProcessId(0), Life(1));
        // The second command leaves its session, and the third one has no identifier.
        let first = started("trap '' TERM; sleep 60 & wait", &id);
        let second = started("exec setsid sleep 60", &id);
        let third = started("sleep 60 & wait", "");
        fs::write(group_file(&dir.join("node/1")), third.id().to_string()).unwrap();
        let mut spared = started("exec sleep 60", &other.of_life(ProcessId(0), Life(1)));
        let guard = Guard::start(&command, &run, &dir, true).unwrap();
        while matching(|it| it == id, &[]).len() < 3 {
            thread::sleep(PAUSE);
        }
        drop(guard);
        for command in [first, second, third] {
            ends(command);
        }
        assert!(matching(|it| it == id, &[]).is_empty() && !dir.exists());
        assert!(spared.try_wait().unwrap().is_none());
        spared.kill().and_then(|()| spared.wait()).unwrap();
    }

    #[test]
    fn other_arguments_are_not_those_of_a_guard() {
        for other in [&[][..], &[MARK, "run"], &["--process", "run", "dir"]] {
            let other: Vec<OsString> = other.iter().map(OsString::from).collect();
            assert!(serve(&other).is_none());
        }
    }
}
