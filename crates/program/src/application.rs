//! A program as the application of a process.
//!
//! The state of a rank is in the program. It crosses the pipe only when a checkpoint is taken or restored.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultline_core::{Breakage, BreakageKind, Life, ProcessId, Progress};
use faultline_workloads::messaging::{Message, Program, RankInfo, Step};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::contract::{Event, Wrong, read, required};
use crate::executable::{Executable, Execution, not_a_reply};
use crate::log;
use crate::pipe::Failure;
use crate::steps::{Plan, Receives, plan};

/// The number of events that a program may answer in a row without computing or waiting for a message.
const MOST_WITHOUT_TIME: u32 = 10_000;

/// A program with everything that it receives as an application.
#[derive(Clone, Debug)]
pub struct ApplicationConfig {
    /// The program.
    pub executable: Arc<Executable>,
    /// Its parameters, a JSON object.
    pub parameters: String,
    /// How it receives messages.
    pub receives: Receives,
    /// The seed of each rank.
    pub seeds: Vec<u64>,
    /// The names of all ranks.
    pub names: Vec<String>,
    /// The name of each cluster, with its ranks.
    pub clusters: Vec<(String, Vec<u32>)>,
}

/// The reply to an event of an application.
#[derive(Deserialize)]
struct Reply<'a> {
    n: u64,
    #[serde(borrow, rename = "do", default)]
    steps: Vec<&'a RawValue>,
    #[serde(default)]
    progress: Option<Progress>,
    #[serde(borrow, default)]
    state: Option<&'a RawValue>,
    #[serde(default)]
    bulk: u64,
}

/// One rank whose application is a program.
#[derive(Clone, Debug)]
pub struct ProgramRank {
    place: RankInfo,
    host: Shared,
}

/// The state of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankState {
    /// Steps of the last reply that have not begun.
    pub(crate) pending: VecDeque<Step>,
    progress: Progress,
    /// The result, as JSON, once the program has finished.
    result: Option<String>,
    program: ProgramState,
}

/// Where the program's own state is.
#[derive(Clone, Debug)]
enum ProgramState {
    /// It is the initial one.
    Initial,
    /// It is this JSON, which the program must restore before it continues.
    Saved(String),
    /// The program has it.
    Current(Shared),
}

/// The connection to the program, shared by a rank and its state.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Connection>>);

#[derive(Debug)]
struct Connection {
    config: Arc<ApplicationConfig>,
    place: RankInfo,
    /// `None` before the program is needed, and once it can no longer act.
    execution: Option<Execution>,
    /// The number of the last event.
    number: u64,
    /// The number of events in a row after which the program neither computed nor waited.
    without_time: u32,
    /// Additional bytes of the last saved state.
    bulk: u64,
    is_broken: bool,
    /// Why the program can no longer act, until it is reported.
    failure: Option<(Failure, Arc<[Arc<str>]>)>,
    /// The process, and its life, once they are known.
    of: Option<(ProcessId, Life)>,
    /// What a program that can no longer act wrote to its log.
    last_lines: Vec<String>,
}

/// Only explorations copy processes, and they do not offer programs. A copy of the state that is in the program would share
/// it with the original.
impl Serialize for ProgramState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ProgramState::Initial => None,
            ProgramState::Saved(state) => Some(state.clone()),
            ProgramState::Current(host) => host.lock().save(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProgramState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ProgramState, D::Error> {
        let state = Option::<String>::deserialize(deserializer)?;
        Ok(state.map_or(ProgramState::Initial, ProgramState::Saved))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(mut execution) = self.execution.take() {
            let lines = execution.pipe.end_log();
            self.pass_on(lines);
            execution.keep(ProcessId(self.place.me));
        }
    }
}

impl ProgramRank {
    /// Passes an event to the program, and stores its next steps in the state.
    pub(crate) fn advance(
        &self,
        state: &mut RankState,
        name: &str,
        fields: impl FnOnce(Event) -> Result<Event, Wrong>,
    ) {
        let mut host = self.host.lock();
        host.resume(&state.program);
        state.program = ProgramState::Current(self.host.clone());
        let (place, receives) = (self.place, host.config.receives);
        let found =
            host.ask(name, fields, |reply| Ok((plan(&reply.steps, place, receives)?, reply.progress)));
        if let Some((Plan { steps, result }, progress)) = found {
            let takes_time =
                steps.iter().any(|it| !matches!(it, Step::Send { .. } | Step::Compute(_)) || is_long(it));
            state.pending = steps.into();
            state.result = result;
            state.progress = progress.unwrap_or(state.progress);
            host.count(name, &state.pending, takes_time);
        }
    }

    /// Returns the next step of the last reply; if there is none and the program can no longer act, the rank halts.
    pub(crate) fn pending(&self, state: &mut RankState) -> Option<Step> {
        match self.host.lock().is_broken {
            true => Some(Step::Halt),
            false => state.pending.pop_front(),
        }
    }

    pub(crate) fn broke(&self, why: &str) {
        let mut host = self.host.lock();
        let what = format!("broke the contract after event {}: {why}", host.number);
        let log = host.execution.as_mut().map_or_else(|| [].into(), |it| it.pipe.log());
        host.end(Failure { kind: BreakageKind::Contract, what }, log);
    }
}

fn is_long(step: &Step) -> bool {
    matches!(step, Step::Compute(span) if span.0 > 0)
}

impl Program for ProgramRank {
    type Config = ApplicationConfig;
    type State = RankState;

    fn new(config: &Arc<ApplicationConfig>, place: RankInfo) -> ProgramRank {
        let connection = Connection {
            config: config.clone(),
            place,
            execution: None,
            number: 0,
            without_time: 0,
            bulk: 0,
            is_broken: false,
            failure: None,
            of: None,
            last_lines: Vec::new(),
        };
        ProgramRank { place, host: Shared(Arc::new(Mutex::new(connection))) }
    }

    fn begin(&self) -> RankState {
        let (pending, progress) = (VecDeque::new(), Progress::default());
        RankState { pending, progress, result: None, program: ProgramState::Initial }
    }

    fn next(&self, state: &mut RankState) -> Step {
        if state.pending.is_empty() {
            self.advance(state, "next", Ok);
        }
        self.pending(state).unwrap_or(Step::Halt)
    }

    fn received(&self, state: &mut RankState, messages: Vec<Message>) {
        self.advance(state, "received", |event| {
            let mut list = "[".to_owned();
            for (place, message) in messages.iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let _ =
                    write!(list, "{comma}{{\"from\":{},\"content\":{}}}", message.from, content(message)?);
            }
            list.push(']');
            Ok(event.json("messages", &list))
        });
    }

    fn result(&self, state: &RankState) -> Vec<u8> {
        state.result.clone().unwrap_or_default().into_bytes()
    }

    fn progress(&self, state: &RankState) -> Progress {
        state.progress
    }

    fn bulk(&self) -> u64 {
        self.host.lock().bulk
    }

    fn mismatch(&self, _: &mut RankState, why: String) {
        self.broke(&why);
    }

    fn failure(&self, process: ProcessId, life: Life) -> Option<Arc<Breakage>> {
        let mut host = self.host.lock();
        host.of = Some((process, life));
        let mut lines = std::mem::take(&mut host.last_lines);
        lines.extend(host.execution.iter_mut().flat_map(|it| it.pipe.logged()));
        host.pass_on(lines);
        let (Failure { kind, what }, log) = host.failure.take()?;
        let program = host.config.executable.name.clone();
        Some(Arc::new(Breakage { process, life, program, kind, what: what.into(), log }))
    }
}

/// Returns the content of a message as JSON: what its sender wrote, or the numbers of a reduction.
fn content(message: &Message) -> Result<String, Wrong> {
    let text = str::from_utf8(message.bytes()).ok();
    if let Some(text) = text.filter(|it| serde_json::from_str::<&RawValue>(it).is_ok()) {
        return Ok(text.to_owned());
    }
    let numbers: Option<Vec<f64>> = message.try_unpack();
    if let Some(number) = numbers.iter().flatten().find(|it| !it.is_finite()) {
        return Err(format!(
            "receives `{number}` from a reduction, which is not a number in JSON: the numbers of the ranks are too large"
        ));
    }
    let numbers = numbers.and_then(|it| serde_json::to_string(&it).ok());
    numbers.ok_or_else(|| {
        format!(
            "receives a message of another step of rank {}: collectives are steps of all ranks",
            message.from
        )
    })
}

impl Connection {
    /// Lets the program continue from a state. Starts it first, if necessary.
    fn resume(&mut self, from: &ProgramState) {
        if self.is_broken || matches!(from, ProgramState::Current(_)) {
            return;
        }
        let is_new = self.execution.is_none();
        if is_new {
            self.start();
        }
        let state = match from {
            ProgramState::Initial if is_new => return,
            ProgramState::Saved(state) => state,
            ProgramState::Initial | ProgramState::Current(_) => "null",
        };
        self.without_time = 0;
        self.ask("restore", |event| Ok(event.json("state", state)), without_steps);
    }

    fn start(&mut self) {
        let RankInfo { me, ranks } = self.place;
        match Execution::take(ProcessId(me), &self.config.executable) {
            Ok(execution) => self.execution = Some(execution),
            Err(error) => return self.end(Failure { kind: error.kind, what: error.what }, error.log),
        }
        let config = self.config.clone();
        let clusters =
            config.clusters.iter().map(|(name, ranks)| serde_json::json!({ "name": name, "ranks": ranks }));
        let clusters = serde_json::Value::from_iter(clusters).to_string();
        let names = serde_json::json!(config.names).to_string();
        // A number in JSON is exact only up to 53 bits.
        let seed = config.seeds.get(me as usize).copied().unwrap_or_default() >> 11;
        let fields = |event: Event| {
            let event = event.number("me", me.into()).number("ranks", ranks.into()).number("seed", seed);
            Ok(event.json("parameters", &config.parameters).json("clusters", &clusters).json("names", &names))
        };
        self.ask("start", fields, without_steps);
    }

    /// Returns the program's state as JSON.
    fn save(&mut self) -> Option<String> {
        let saved = self.ask("save", Ok, |reply| {
            let state = required("state", reply.state)?.get().to_owned();
            without_steps(reply).map(|bulk| (state, bulk))
        });
        let (state, bulk) = saved?;
        self.bulk = bulk;
        Some(state)
    }

    /// Passes an event to the program, and reads its reply. Returns `None` if the program can no longer act.
    fn ask<T>(
        &mut self,
        name: &str,
        fields: impl FnOnce(Event) -> Result<Event, Wrong>,
        take: impl FnOnce(&Reply<'_>) -> Result<T, Wrong>,
    ) -> Option<T> {
        let execution = self.execution.as_mut()?;
        self.number += 1;
        let number = self.number;
        let contract = |what: String| Failure { kind: BreakageKind::Contract, what };
        let wrong = |why: Wrong| contract(format!("broke the contract at {{}}: {why}"));
        let event = fields(Event::untimed(number, name)).map_err(wrong);
        let answer = event.and_then(|event| execution.pipe.exchange(&event.line(), None)).and_then(|text| {
            let reply: Reply<'_> = read(text).map_err(|why| contract(not_a_reply(text, &why)))?;
            if reply.n != number {
                return Err(wrong(format!("its reply has `n` {} instead of {number}", reply.n)));
            }
            take(&reply).map_err(wrong)
        });
        match answer {
            Ok(answer) => Some(answer),
            Err(Failure { kind, what }) => {
                let log = execution.pipe.log();
                let what = what.replacen("{}", &format!("event {number} (`{name}`)"), 1);
                self.end(Failure { kind, what }, log);
                None
            }
        }
    }

    /// Detects a program that never computes or waits.
    fn count(&mut self, name: &str, pending: &VecDeque<Step>, takes_time: bool) {
        self.without_time = if takes_time { 0 } else { self.without_time + 1 };
        let is_without_step =
            name == "next" && pending.is_empty() && self.config.receives == Receives::ByRank;
        let why = if is_without_step {
            "its reply contains no step; use `finish` to end the program".to_owned()
        } else if self.without_time > MOST_WITHOUT_TIME {
            format!("it has answered {MOST_WITHOUT_TIME} events without computing, receiving or finishing")
        } else {
            return;
        };
        let what = format!("broke the contract at event {} (`{name}`): {why}", self.number);
        let log = self.execution.as_mut().map_or_else(|| [].into(), |it| it.pipe.log());
        self.end(Failure { kind: BreakageKind::Contract, what }, log);
    }

    /// Passes on what the program wrote to its log, once it is known to which life the program belongs.
    fn pass_on(&self, lines: Vec<String>) {
        if let Some((process, life)) = self.of {
            log::pass_on(process, life, &self.config.executable.name, lines);
        }
    }

    /// Ends the program, which can no longer act.
    fn end(&mut self, failure: Failure, log: Arc<[Arc<str>]>) {
        self.last_lines = self.execution.take().map_or_else(Vec::new, |mut it| it.pipe.logged());
        self.is_broken = true;
        self.failure.get_or_insert((failure, log));
    }
}

/// Fails if a reply contains steps, and returns the additional bytes that it states.
fn without_steps(reply: &Reply<'_>) -> Result<u64, Wrong> {
    match reply.steps.is_empty() {
        true => Ok(reply.bulk),
        false => Err("this event is answered without steps; they follow in the reply to `next`".to_owned()),
    }
}
