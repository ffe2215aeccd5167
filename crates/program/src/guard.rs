//! Ends programs that outlive this process. A process that is killed cannot end its programs itself, and those that ignore
//! the end of their input would run forever.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::{Pid, getpgrp, getpid, getppid};

use crate::executable::is_hosted;

/// Reads the numbers of process groups that begin and end. At the end of its input, which is the end of this process, it
/// kills those that remain, and the processes elsewhere with the environment variable `$2`; then it removes the directory
/// `$1`. If this process was killed, others that it started may still start programs for a moment.
const SCRIPT: &str = r#"
groups=
rounds=20
while read -r word group; do
    others=
    for it in $groups; do [ "$it" = "$group" ] || others="$others $it"; done
    groups=$others
    case $word in
    begin) groups="$groups $group" ;;
    last) rounds=1 ;;
    esac
done
for it in $groups; do kill -9 "-$it" 2>/dev/null; done
while [ -n "$2" ] && [ $rounds -gt 0 ]; do
    for it in $(grep -ls "$2" /proc/[0-9]*/environ); do
        it=${it#/proc/}
        kill -9 "${it%/environ}" 2>/dev/null
    done
    rounds=$((rounds - 1))
    [ $rounds = 0 ] || sleep 0.1
done
[ -z "$1" ] || rm -rf -- "$1"
"#;

/// The guard; `None` before it starts, or if it cannot be started, which affects only programs that ignore the end of their
/// input.
static GUARD: Mutex<Option<Child>> = Mutex::new(None);

fn guard() -> MutexGuard<'static, Option<Child>> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the guard, unless it is running. It removes `dir` in the end, if there is one.
pub(crate) fn start(dir: Option<&Path>) {
    let mut guard = guard();
    if guard.is_some() {
        return;
    }
    let mut command = Command::new("/bin/sh");
    let dir = dir.map(Path::as_os_str).unwrap_or_default();
    // The process that started the others ends what remains of all their programs.
    let (name, value) = mark();
    let mark = if is_hosted() { String::new() } else { format!("{name}={value}") };
    command.args(["-c", SCRIPT, "faultline-guard"]).arg(dir).arg(mark).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if !is_hosted() {
        // Signals from the terminal must not reach the guard. That of a single process ends with its process group.
        command.process_group(0);
    }
    *guard = command.spawn().ok();
}

/// Returns the environment variable, with its value, that all programs of a run have. It identifies those that have left
/// their process group.
pub(crate) fn mark() -> (&'static str, String) {
    let run = if is_hosted() { getppid() } else { getpid() };
    ("FAULTLINE_PROGRAMS_OF", format!("{run};"))
}

/// States that a process group has begun.
pub(crate) fn begun(group: Pid) {
    tell("begin", group);
}

/// States that a process group has ended.
pub(crate) fn ended(group: Pid) {
    tell("end", group);
}

/// Lets the guard end the programs that remain, and waits for it.
pub(crate) fn end() {
    tell("last", getpgrp());
    if let Some(mut guard) = guard().take() {
        drop(guard.stdin.take());
        let _ = guard.wait();
    }
}

fn tell(word: &str, group: Pid) {
    if let Some(input) = guard().as_mut().and_then(|it| it.stdin.as_mut()) {
        let _ = writeln!(input, "{word} {group}");
    }
}
