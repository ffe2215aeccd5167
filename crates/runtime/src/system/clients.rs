//! Clients: programs that carry out one operation at a time, as ordered by a line. The node's process decides what is
//! asked and when, from the seed alone, and records each operation before it is asked and after it has ended. So a recorded
//! interval contains the true one, and a client cannot change what was asked.
//!
//! Arrivals have fixed times, so a system that stalls is not asked less. The client that has been idle for the longest
//! time takes the next arrival. An arrival that no client takes until its answer would be late is missed: its number does
//! not occur in the record.

use std::collections::VecDeque;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use faultline_consistency::Workload;
use faultline_consistency::clients::{Memory, Reply, line_of, reply_of};
use faultline_core::operation::{Call, Completion, FINAL, Key, MOST_OF_REASON};
use faultline_core::{HistoryNo, Observation, Time};
use faultline_guard::ATTEMPT_VARIABLE;
use nix::sys::signal::{Signal, killpg};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Barrier, Mutex, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::NodeSystem;
use super::attempt::{command, ending_of};
use super::orphans::{self, Started};
use super::output::quoted;
use super::runner::Shared;
use crate::clock::{Alarm, Clock};

/// The version of the contract between Faultline and a client.
const CONTRACT: u32 = 1;
/// Time beyond that for an answer in which a client may reply.
const GRACE: Duration = Duration::from_millis(500);
/// Time in which a program must reply to `hello` and `start`.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// Time from the failure of a program to the start of the next one.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for which an operation of the final phase is repeated until it is answered.
const FINAL_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 60 });
/// Time between two such attempts.
const FINAL_AGAIN: Duration = Duration::from_millis(200);
/// Length of the longest line, in bytes.
const LONGEST: u64 = 1 << 20;
/// Number of bytes of a line of standard error that the log contains.
const LONGEST_NOTE: usize = 4096;

/// The clients of a history that a node runs.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The history.
    pub no: HistoryNo,
    /// The name of the history.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The number of clients.
    pub count: u16,
    /// The time for an answer.
    pub timeout: Duration,
    /// The operations.
    pub workload: Workload,
    /// The name and the host of each node.
    pub nodes: Vec<(String, String)>,
    /// An object that is passed on to each client.
    pub parameters: serde_json::Map<String, serde_json::Value>,
}

/// Records observations, and tells when they have been handed to the operating system.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) clock: Clock,
    pub(crate) record: Rc<dyn Fn(Observation, Option<oneshot::Sender<()>>)>,
}

impl Recording {
    /// Records an observation, and returns once the operating system has it. Returns whether it has.
    async fn flush(&self, observation: Observation) -> bool {
        let (acknowledge, acknowledged) = oneshot::channel();
        (self.record)(observation, Some(acknowledge));
        acknowledged.await.is_ok()
    }
}

/// The clients of a history while they run.
pub(super) struct History {
    clients: Clients,
    recording: Recording,
    arrivals: Mutex<Arrivals>,
    /// The number of clients whose first programs have started, or failed.
    started: watch::Sender<u16>,
    /// Whether the run has begun.
    has_begun: watch::Sender<bool>,
    /// Whether no arrivals follow.
    is_over: watch::Sender<bool>,
    /// Passed once all clients have carried out their last arrival.
    are_idle: Barrier,
}

struct Arrivals {
    alarm: Alarm,
    next: u64,
}

impl History {
    /// Prepares the clients.
    pub(super) fn new(clients: &Clients, recording: &Recording) -> std::io::Result<Rc<History>> {
        let alarm = Alarm::new(recording.clock)?;
        Ok(Rc::new(History {
            clients: clients.clone(),
            recording: recording.clone(),
            arrivals: Mutex::new(Arrivals { alarm, next: 0 }),
            started: watch::Sender::new(0),
            has_begun: watch::Sender::new(false),
            is_over: watch::Sender::new(false),
            are_idle: Barrier::new(clients.count.into()),
        }))
    }

    /// Returns the number of clients.
    pub(super) fn count(&self) -> u16 {
        self.clients.count
    }

    /// Waits until all clients have started their first programs, or have failed to.
    pub(super) async fn started(&self) {
        // The sender is not dropped.
        let _ = self.started.subscribe().wait_for(|it| *it == self.clients.count).await;
    }

    /// Begins the arrivals, unless they have begun.
    pub(super) async fn begin(&self) {
        if !*self.has_begun.borrow() {
            self.arrivals.lock().await.next = self.clients.workload.first_from(self.recording.clock.now());
            self.has_begun.send_replace(true);
        }
    }

    /// Ends the arrivals: the clients carry out the final phase.
    pub(super) fn finish(&self) {
        self.is_over.send_replace(true);
    }

    /// Runs a client until it has carried out the final phase. Returns what it could not read in the end, and why.
    pub(super) async fn run(self: Rc<Self>, shared: Rc<Shared>, client: u16) -> Result<(), String> {
        let mut it = Client {
            history: self.clone(),
            shared,
            client,
            session: 0,
            memory: Memory::default(),
            program: Err(String::new()),
        };
        it.start().await;
        self.started.send_modify(|it| *it += 1);
        let _ = self.has_begun.subscribe().wait_for(|it| *it).await;
        while let Some(arrival) = self.arrival().await {
            let call = self.clients.workload.call(arrival, &it.memory);
            it.carry_out(arrival, call).await;
        }
        self.are_idle.wait().await;
        let result = it.read_everything().await;
        if let Ok(program) = it.program {
            program.end().await;
        }
        result
    }

    /// Waits for the next arrival, and takes it; `None` if none follows.
    async fn arrival(&self) -> Option<u64> {
        let mut is_over = self.is_over.subscribe();
        tokio::select! {
            biased;
            _ = is_over.wait_for(|it| *it) => None,
            arrival = self.next_arrival() => Some(arrival),
        }
    }

    async fn next_arrival(&self) -> u64 {
        let workload = &self.clients.workload;
        // Clients wait for the lock in the order in which they became idle.
        let mut arrivals = self.arrivals.lock().await;
        let now = self.recording.clock.now();
        let timeout = self.clients.timeout.as_nanos() as u64;
        let earliest = workload.first_from(Time(now.0.saturating_sub(timeout)));
        arrivals.next = arrivals.next.max(earliest);
        let due = workload.due(arrivals.next);
        if due > now {
            let rung = match arrivals.alarm.set(Some(due)) {
                Ok(()) => arrivals.alarm.elapsed().await,
                Err(error) => Err(error),
            };
            if let Err(error) = rung {
                warn!(%error, "the timer of the clients failed");
                sleep(Duration::from_nanos(due.since(now).0)).await;
            }
        }
        let arrival = arrivals.next;
        arrivals.next += 1;
        arrival
    }
}

/// One client: a program at a time, and what it remembers.
struct Client {
    history: Rc<History>,
    shared: Rc<Shared>,
    client: u16,
    session: u32,
    memory: Memory,
    /// The program, or how it failed.
    program: Result<Program, String>,
}

/// How an exchange of lines with a program failed.
enum Failure {
    /// There was no reply in time.
    Late,
    /// The program broke its contract in this way.
    Broken(String),
    /// The program ended.
    Ended,
}

impl Client {
    /// Starts a program, which begins a session.
    async fn start(&mut self) {
        self.session += 1;
        let Clients { name, command, timeout: limit, nodes, parameters, .. } = &self.history.clients;
        let nodes: Vec<_> = nodes.iter().map(|(name, host)| json!({ "name": name, "host": host })).collect();
        let hello = json!({
            "n": 0, "event": "hello", "contract": [CONTRACT], "kind": "client", "faultline": env!("CARGO_PKG_VERSION"),
        });
        let start = json!({
            "n": 1, "event": "start", "history": name, "client": self.client, "session": self.session,
            "timeout": limit.as_millis() as u64, "nodes": nodes, "parameters": parameters,
        });
        let label = format!("client {} of {name}", self.client);
        self.program = match Program::start(&self.shared, command, label) {
            Err(why) => Err(why),
            Ok(mut program) => match program.greet(&hello.to_string(), &start.to_string()).await {
                Ok(()) => Ok(program),
                Err(failure) => Err(match failure {
                    Failure::Late => {
                        program.end().await;
                        format!("did not reply to `start` within {STARTS_WITHIN:?}")
                    }
                    Failure::Broken(why) => {
                        program.end().await;
                        why
                    }
                    Failure::Ended => program.how_it_ended().await,
                }),
            },
        };
    }

    /// Carries out an operation, and records it. Returns how it ended.
    async fn carry_out(&mut self, operation: u64, call: Call) -> Completion {
        let (history, recording) = (self.history.clients.no, self.history.recording.clone());
        let invoked = Observation::Invoked {
            history,
            client: self.client,
            session: self.session,
            operation,
            call: call.clone(),
        };
        if !recording.flush(invoked).await {
            // The node's process is about to end.
            std::future::pending::<()>().await;
        }
        let limit = self.history.clients.timeout + GRACE;
        let model = &self.history.clients.workload.model;
        let replied = match &mut self.program {
            Ok(program) => program.ask(model, &call, limit).await,
            Err(why) => Err(Failure::Broken(why.clone())),
        };
        // The time after which another program starts, if one must.
        let mut again = None;
        let completion = match replied {
            Ok(Reply::Ok(answer)) => Completion::Ok(answer),
            Ok(Reply::Fail(why)) => Completion::Failed(reason(&why)),
            Ok(Reply::Unknown(why)) => Completion::Unknown(reason(&why)),
            Err(Failure::Late) => {
                again = Some(Duration::ZERO);
                Completion::Unknown("no reply in time".into())
            }
            Err(Failure::Broken(why)) => {
                again = Some(AGAIN);
                Completion::Broken(reason(&why))
            }
            Err(Failure::Ended) => {
                // A fault that crashes the node ends the program first. This process then ends as well, which leaves the
                // operation without a result.
                sleep(AGAIN).await;
                again = Some(Duration::ZERO);
                if self.shared.is_stopping() {
                    std::future::pending::<()>().await;
                }
                match std::mem::replace(&mut self.program, Err(String::new())) {
                    Ok(program) => Completion::Broken(reason(&program.how_it_ended().await)),
                    Err(why) => Completion::Broken(reason(&why)),
                }
            }
        };
        if self.shared.is_stopping() {
            std::future::pending::<()>().await;
        }
        self.memory.conclude(&call, &completion);
        let concluded = Observation::Concluded { history, operation, completion: completion.clone() };
        (recording.record)(concluded, None);
        if let Some(again) = again {
            if let Ok(program) = std::mem::replace(&mut self.program, Err(String::new())) {
                program.end().await;
            }
            sleep(again).await;
            self.start().await;
        } else if matches!(completion, Completion::Unknown(_)) {
            self.session += 1;
        }
        completion
    }

    /// Carries out the final phase. Returns what could not be read, and why.
    async fn read_everything(&mut self) -> Result<(), String> {
        let Clients { workload, count, .. } = self.history.clients.clone();
        let next = self.history.arrivals.lock().await.next;
        let own = workload.keys(0..next).filter(|it| it % u32::from(count) == u32::from(self.client));
        let mut calls = VecDeque::from(workload.finals(own.map(Key)));
        // Each client has numbers of its own.
        let mut operation = FINAL + (u64::from(self.client) << 24);
        let begun = Instant::now();
        let mut result = Ok(());
        while let Some(call) = calls.pop_front() {
            if begun.elapsed() > FINAL_WITHIN {
                let name = &self.history.clients.name;
                return Err(format!("the final operations of {name} took longer than {FINAL_WITHIN:?}"));
            }
            let completion = loop {
                let completion = self.carry_out(operation, call.clone()).await;
                operation += 1;
                if completion.answer().is_some() || begun.elapsed() > FINAL_WITHIN {
                    break completion;
                }
                sleep(FINAL_AGAIN).await;
            };
            match completion {
                Completion::Ok(answer) => calls.extend(Workload::continues(&call, &answer)),
                Completion::Failed(why) | Completion::Unknown(why) | Completion::Broken(why) => {
                    result = Err(format!(
                        "the final `{call}` of {} was not answered: {why}",
                        self.history.clients.name
                    ));
                }
            }
        }
        result
    }
}

/// Returns what a fact quotes of a reason.
fn reason(why: &str) -> std::sync::Arc<str> {
    quoted(why.as_bytes(), MOST_OF_REASON).into()
}

/// A program of a client, with everything that it starts.
struct Program {
    child: Child,
    started: Started,
    id: String,
    group: Group,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The number of the next line.
    next: u64,
}

/// Kills a process group when it is dropped.
struct Group(nix::unistd::Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

impl Program {
    fn start(shared: &Rc<Shared>, words: &[String], label: String) -> Result<Program, String> {
        let system: &NodeSystem = shared.system();
        let id = orphans::next_attempt(&system.id);
        let mut command = command(system, words);
        command.env(ATTEMPT_VARIABLE, &id).stdin(Stdio::piped());
        let failed = |why: &dyn std::fmt::Display| {
            format!("`{}` cannot be started: {why}", words.first().map_or("", String::as_str))
        };
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let started = Started::by(&child);
        let group = Group(started.pid());
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(&"it has no standard streams"));
        };
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while let Ok(1..) = (&mut lines).take(LONGEST_NOTE as u64).read_until(b'\n', &mut line).await {
                let text = quoted(&line, LONGEST_NOTE);
                shared.note(&format!("[{label}] {text}")).await;
                line.clear();
            }
        });
        Ok(Program { child, started, id, group, stdin, stdout: BufReader::new(stdout), next: 2 })
    }

    /// Exchanges the first lines.
    async fn greet(&mut self, hello: &str, start: &str) -> Result<(), Failure> {
        let exchange = async {
            let replied = self.exchange(&format!("{hello}\n")).await?;
            let reply: serde_json::Value = serde_json::from_slice(&replied).unwrap_or_default();
            if reply["n"] != 0 || reply["contract"] != CONTRACT {
                let found = quoted(&replied, 120);
                let wanted = "{\"n\":0,\"contract\":1}";
                return Err(Failure::Broken(format!("did not reply to `hello` with {wanted}: {found}")));
            }
            let replied = self.exchange(&format!("{start}\n")).await?;
            let reply: serde_json::Value = serde_json::from_slice(&replied).unwrap_or_default();
            if reply["n"] != 1 {
                let found = quoted(&replied, 120);
                return Err(Failure::Broken(format!("did not reply to `start` with {{\"n\":1}}: {found}")));
            }
            Ok(())
        };
        timeout(STARTS_WITHIN, exchange).await.unwrap_or(Err(Failure::Late))
    }

    /// Asks for an operation.
    async fn ask(&mut self, model: &str, call: &Call, within: Duration) -> Result<Reply, Failure> {
        let number = self.next;
        self.next += 1;
        let line = line_of(number, call);
        let replied = timeout(within, self.exchange(&line)).await.unwrap_or(Err(Failure::Late))?;
        reply_of(model, number, call, &replied).map_err(Failure::Broken)
    }

    /// Writes a line, and reads the next one.
    async fn exchange(&mut self, line: &str) -> Result<Vec<u8>, Failure> {
        if self.stdin.write_all(line.as_bytes()).await.is_err() || self.stdin.flush().await.is_err() {
            return Err(Failure::Ended);
        }
        let mut replied = Vec::new();
        let read = (&mut self.stdout).take(LONGEST + 1).read_until(b'\n', &mut replied).await;
        match read {
            Ok(1..) if replied.ends_with(b"\n") => Ok(replied),
            Ok(read) if read as u64 > LONGEST => {
                Err(Failure::Broken(format!("replied with a line of more than {LONGEST} bytes")))
            }
            _ => Err(Failure::Ended),
        }
    }

    /// Ends the program with everything that it has started.
    async fn end(mut self) {
        orphans::end_attempt(self.started.pid(), &self.id).await;
        // It has been killed.
        let _ = self.child.wait().await;
        drop(self.group);
    }

    /// Ends the program, whose output has ended, and says how it ended.
    async fn how_it_ended(mut self) -> String {
        let ended = timeout(GRACE, self.child.wait()).await;
        orphans::end_attempt(self.started.pid(), &self.id).await;
        match ended {
            Ok(Ok(status)) => format!("ended: {}", ending_of(status)),
            _ => {
                let _ = self.child.wait().await;
                "closed its standard output".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use faultline_core::operation::Answer;
    use faultline_core::{CheckNo, Ending, Span};
    use faultline_guard::{Processes, VARIABLE};
    use faultline_supervisor::AfterExit;
    use tokio::sync::mpsc;

    use super::*;
    use crate::system::runner::{self, Instruction, Told};
    use crate::transport::tests::run;

    /// Returns a client that replies to `hello` and `start`, and to each operation with this script. `$n` is its number.
    fn client(script: &str) -> Vec<String> {
        let program = format!(
            r#"while read -r line; do
                 n=${{line#*\"n\":}}; n=${{n%%[,\}}]*}}
                 case $line in
                   *'"event":"hello"'*) echo "{{\"n\":$n,\"contract\":1}}" ;;
                   *'"event":"start"'*) echo "{{\"n\":$n}}" ;;
                   *) {script} ;;
                 esac
               done"#
        );
        vec!["sh".into(), "-c".into(), program]
    }

    const NULL: &str = r#"echo "{\"n\":$n,\"ok\":null}""#;

    struct Ran {
        observed: Vec<Observation>,
        ending: Ending,
        log: String,
    }

    impl Ran {
        fn invoked(&self) -> Vec<u64> {
            let number = |it: &Observation| match it {
                Observation::Invoked { operation, .. } => Some(*operation),
                _ => None,
            };
            self.observed.iter().filter_map(number).collect()
        }

        fn completions(&self) -> Vec<&Completion> {
            let completions = self.observed.iter().filter_map(|it| match it {
                Observation::Concluded { completion, .. } => Some(completion),
                _ => None,
            });
            completions.collect()
        }
    }

    /// Lets two clients read for this time, and then carry out the final phase. Afterwards, none of their processes may be
    /// left.
    async fn read(command: Vec<String>, lasts: Duration) -> Ran {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let id = format!("clients-{}", orphans::next_attempt("test"));
        let workload = Workload {
            seed: 1,
            model: "register".into(),
            every: Span::from_millis(20),
            mix: [("read".into(), 1)].into(),
            keys: 1,
            ops_per_key: 1_000_000,
            accounts: 2,
        };
        let clients = Clients {
            no: HistoryNo(0),
            name: "kv".into(),
            command,
            count: 2,
            timeout: Duration::from_millis(200),
            workload,
            nodes: vec![("paris-0".into(), "127.0.0.1".into())],
            parameters: serde_json::Map::new(),
        };
        let system = NodeSystem {
            id: id.clone(),
            command: vec!["sleep".into(), "60".into()],
            later_commands: Default::default(),
            env: Vec::new(),
            files: Vec::new(),
            dir: path.clone(),
            data: path.clone(),
            log: path.join("log"),
            log_bytes: 4096,
            ready: (None, Duration::ZERO),
            set_up: None,
            probes: Vec::new(),
            checks: Vec::new(),
            clients: vec![clients],
            final_check: Some(CheckNo(0)),
            watches: Vec::new(),
            after_exit: AfterExit::End,
            may_finish: false,
            is_daemon: false,
        };
        let observed: Rc<RefCell<Vec<Observation>>> = Rc::default();
        let all = observed.clone();
        let record = move |it, acknowledge: Option<oneshot::Sender<()>>| {
            all.borrow_mut().push(it);
            if let Some(acknowledge) = acknowledge {
                acknowledge.send(()).unwrap();
            }
        };
        let recording = Recording { clock: Clock::start(), record: Rc::new(record) };
        let (instructions, instructed) = mpsc::unbounded_channel();
        let (telling, mut told) = mpsc::channel(64);
        let ended = tokio::task::spawn_local(runner::run(system, instructed, telling, Some(recording)));
        instructions.send(Instruction::Begin).unwrap();
        sleep(lasts).await;
        instructions.send(Instruction::Check(CheckNo(0))).unwrap();
        let mut log = String::new();
        let ending = loop {
            match told.recv().await.unwrap() {
                Told::Observed(Observation::Checked { ending, .. }) => break ending,
                Told::Output(bytes) => log += &String::from_utf8_lossy(&bytes),
                _ => {}
            }
        };
        // A stop would end all processes that this process started, also those of other tests.
        ended.abort();
        let is_left = |it| faultline_guard::has(it, VARIABLE, &id) && faultline_guard::is_of_attempt(it);
        assert!(Processes::all().matching(is_left).is_empty(), "a process is left");
        Ran { observed: observed.take(), ending, log }
    }

    #[test]
    fn clients_carry_out_each_arrival_and_then_read_everything() {
        run(async {
            let script = format!("echo $line >&2; {NULL}");
            let ran = read(client(&script), Duration::from_millis(600)).await;
            let invoked = ran.invoked();
            let arrivals: Vec<u64> = invoked.iter().copied().filter(|it| *it < FINAL).collect();
            assert!((5..=30).contains(&arrivals.len()), "{arrivals:?}");
            assert_eq!(invoked[arrivals.len()..], [FINAL], "one client reads the only key");
            assert!(ran.completions().iter().all(|it| **it == Completion::Ok(Answer::Null)));
            assert_eq!(ran.completions().len(), invoked.len());
            assert_eq!(ran.ending, Ending::Exit(0));
            assert!(ran.log.contains("[client 0 of kv] {"), "{}", ran.log);
        });
    }

    #[test]
    fn a_client_without_a_reply_is_killed_and_started_again() {
        run(async {
            // The second program answers. What the first one has started ignores SIGTERM.
            let script = format!(
                r#"if test -e there; then {NULL}; else touch there; (trap "" TERM; sleep 100) & sleep 100; fi"#
            );
            let ran = read(client(&script), Duration::from_millis(1500)).await;
            let unknown: Vec<_> = ran.completions().into_iter().filter(|it| it.answer().is_none()).collect();
            assert!((1..=2).contains(&unknown.len()), "{unknown:?}");
            assert_eq!(*unknown[0], Completion::Unknown("no reply in time".into()));
            let sessions = ran.observed.iter().filter_map(|it| match it {
                Observation::Invoked { session, .. } => Some(*session),
                _ => None,
            });
            assert_eq!(sessions.max(), Some(2));
            assert_eq!(ran.ending, Ending::Exit(0));
        });
    }

    #[test]
    fn a_client_that_breaks_its_contract_is_quoted() {
        run(async {
            for (script, part) in [
                ("exit 3", "ended: exit status 3"),
                ("exec >&-; sleep 100", "closed its standard output"),
                ("echo hello", "replied with no JSON object: hello"),
                (
                    r#"echo "{\"n\":$n,\"ok\":\"a\"}""#,
                    "answered `read` with something else than an integer or null",
                ),
                (r#"echo "{\"n\":$n,\"ok\":1,\"fail\":\"a\"}""#, "replied without exactly one of"),
                (r#"echo "{\"n\":7,\"ok\":1}""#, "replied without `\"n\":2`"),
                (
                    "head -c 2097152 /dev/zero | tr '\\0' a; echo",
                    "replied with a line of more than 1048576 bytes",
                ),
            ] {
                let script = format!("if test -e there; then {NULL}; else touch there; {script}; fi");
                let ran = read(client(&script), Duration::from_millis(300)).await;
                let broken = ran.completions().into_iter().find_map(|it| match it {
                    Completion::Broken(why) => Some(why.clone()),
                    _ => None,
                });
                let broken = broken.unwrap_or_default();
                assert!(broken.contains(part), "{script}: {broken}");
                assert_eq!(ran.ending, Ending::Exit(0), "{script}: another program answers");
            }
        });
    }

    #[test]
    fn a_client_that_answers_twice_breaks_its_contract() {
        run(async {
            let script = format!("{NULL}; {NULL}");
            let ran = read(client(&script), Duration::from_millis(300)).await;
            let is_broken = |it: &&Completion| matches!(it, Completion::Broken(why) if why.starts_with("replied without"));
            assert!(ran.completions().iter().any(is_broken));
        });
    }

    #[test]
    fn a_client_that_cannot_be_started_breaks_its_contract() {
        run(async {
            for (command, part) in [
                (vec!["no-such-program".to_owned()], "`no-such-program` cannot be started"),
                (
                    ["sh", "-c", "read line; echo hi; sleep 100"].map(str::to_owned).to_vec(),
                    "did not reply to `hello` with {\"n\":0,\"contract\":1}: hi",
                ),
            ] {
                let ran = read(command, Duration::from_millis(200));
                let ran = timeout(Duration::from_secs(90), ran).await.unwrap();
                assert!(
                    matches!(ran.completions()[0], Completion::Broken(why) if why.contains(part)),
                    "{:?}",
                    ran.completions()[0]
                );
                assert!(
                    matches!(&ran.ending, Ending::Failed(why) if why.contains("the final `read k0` of kv"))
                );
            }
        });
    }
}
