//! A program as the protocol of a process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use faultline_core::protocol::Stamp;
use faultline_core::{
    Breakage, BreakageKind, Claim, Gauges, Host, Image, ImageName, Input, LifeStart, Position, Promises,
    Protocol, ProtocolTypes, Role, Snapshot, Time, To, Witness,
};
use faultline_trace::Extent;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::checks::{Carried, Checks, ProgramImage, payload_of};
use crate::claim::claim;
use crate::contract::{
    Event, Fields, Json, Reply, ReplyGauges, Saved, Want, Wrong, boot_name, read, required,
};
use crate::executable::{Executable, Execution, not_a_reply};
use crate::log;
use crate::pipe::{Failure, quoted};

/// The maximum number of kinds of protocol messages, and the maximum length of their names.
const MOST_KINDS: usize = 64;
const LONGEST_KIND: usize = 40;
/// The names of all kinds, which are never freed, and their maximum number.
static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
const MOST_KINDS_OF_ALL: usize = 4096;

const ACTIONS: [&str; 21] = [
    "transmit",
    "deliver",
    "suppress",
    "dropStale",
    "hold",
    "wait",
    "release",
    "requestSnapshot",
    "requestRest",
    "restore",
    "send",
    "persist",
    "sendImage",
    "read",
    "delete",
    "list",
    "started",
    "held",
    "record",
    "claim",
    "keep` and `forget",
];

/// A program with everything that it declares as a protocol.
#[derive(Clone, Debug)]
pub struct ProgramConfig {
    /// The program.
    pub executable: Arc<Executable>,
    /// Its parameters, a JSON object.
    pub parameters: String,
    /// Its promises.
    pub promises: Promises,
    /// Whether packets between two lives must arrive in the order in which they were sent.
    pub is_fifo: bool,
    /// Whether the program relies on re-executions sending the same messages.
    pub repeats: bool,
    /// The names of all processes.
    pub processes: Vec<String>,
    /// The names of all clusters.
    pub clusters: Vec<String>,
}

/// The data that a program piggybacks on an application message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramStamp {
    position: Position,
    value: Json,
}

impl Stamp for ProgramStamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// A message from one program to another. Its kind is only counted, not sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramMessage {
    #[serde(skip, default = "unnamed")]
    kind: &'static str,
    value: Json,
}

fn unnamed() -> &'static str {
    "control"
}

impl PartialEq for ProgramMessage {
    fn eq(&self, other: &ProgramMessage) -> bool {
        self.value == other.value
    }
}

/// One process whose protocol is a program.
#[derive(Debug)]
pub struct ProgramProtocol {
    me: faultline_core::ProcessId,
    life: faultline_core::Life,
    config: Arc<ProgramConfig>,
    /// `None` once the program can no longer act as a protocol.
    execution: Option<Execution>,
    /// The number of the last event of this life, and its time.
    number: u64,
    now: Time,
    wake: Option<Time>,
    gauges: ReplyGauges,
    kinds: Vec<&'static str>,
    checks: Checks,
}

impl Clone for ProgramProtocol {
    fn clone(&self) -> ProgramProtocol {
        unreachable!("only explorations copy processes, and they do not offer programs")
    }
}

impl Drop for ProgramProtocol {
    fn drop(&mut self) {
        if let Some(mut execution) = self.execution.take() {
            let lines = execution.pipe.end_log();
            self.pass_on(lines);
            execution.keep(self.me);
        }
    }
}

impl ProtocolTypes for ProgramProtocol {
    type Control = ProgramMessage;
    type Head = Json;
    type Saved = Saved;

    fn saved_len(saved: &Saved) -> u64 {
        saved.bytes
    }
}

impl Protocol for ProgramProtocol {
    type Config = ProgramConfig;
    type Stamp = ProgramStamp;
    // Unused: the values depend on the program, and the functions below return them.
    const FIFO: bool = false;

    fn is_fifo(config: &ProgramConfig) -> bool {
        config.is_fifo
    }

    fn repeats(config: &ProgramConfig) -> bool {
        config.repeats
    }

    fn promises(config: &ProgramConfig) -> Promises {
        config.promises
    }

    fn extra_processes(_: &ProgramConfig) -> Vec<Role> {
        Vec::new()
    }

    fn start(start: LifeStart<ProgramConfig>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let LifeStart { me, life, boot, membership, config, record, seed, facts: _ } = start;
        let extent = Extent { processes: membership.members.len(), clusters: membership.clusters.len() };
        let mut this = ProgramProtocol {
            me,
            life,
            config,
            execution: None,
            number: 0,
            now,
            wake: None,
            gauges: ReplyGauges::default(),
            kinds: Vec::new(),
            checks: Checks::new(me, extent),
        };
        match Execution::take(me, &this.config.executable) {
            Ok(execution) => this.execution = Some(execution),
            Err(error) => {
                this.claim_breakage(error.kind, error.what, error.log, host);
                return this;
            }
        }
        let clusters = this.config.clusters.iter().zip(membership.clusters.iter());
        let clusters: Vec<_> = clusters
            .map(|(name, it)| {
                let processes: Vec<u32> = it.processes.iter().map(|it| it.0).collect();
                serde_json::json!({ "name": name, "processes": processes })
            })
            .collect();
        let names = serde_json::json!(this.config.processes).to_string();
        let record = record.as_deref().and_then(|it| str::from_utf8(it).ok()).unwrap_or("null");
        let event = this.event("start", now);
        let event = event
            .number("me", me.0.into())
            .number("life", life.0.into())
            .word("boot", boot_name(boot))
            // A number in JSON is exact only up to 53 bits.
            .number("seed", seed >> 11)
            .json("parameters", &this.config.parameters)
            .json("record", record)
            .json("clusters", &serde_json::Value::from(clusters).to_string())
            .json("names", &names)
            .membership(&membership);
        this.answer("start", event, None, host);
        this
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        if self.execution.is_none() {
            return;
        }
        let (name, event, carried) = match input {
            Input::Timeout if self.wake.is_none_or(|at| now < at) => return,
            Input::Consumed(_) if !self.wants(Want::Consumed) => return,
            Input::Left if !self.wants(Want::Left) => return,
            Input::Sent { id, payload } => {
                let carried = Carried::new(id, payload);
                ("sent", carried.add_to(self.event("sent", now)), Some(carried))
            }
            Input::Received { id, stamp, payload } => {
                let carried = Carried::new(id, payload);
                let event = carried.add_to(self.event("received", now));
                ("received", event.json("stamp", stamp.value.text()), Some(carried))
            }
            other => {
                let (name, event) = self.event_of(other, now);
                (name, event, None)
            }
        };
        self.answer(name, event, carried, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.wake
    }

    fn gauges(&self) -> Gauges {
        let ReplyGauges { log_messages, log_bytes, checkpoints } = self.gauges;
        Gauges { log_messages, log_bytes, checkpoints, ..Gauges::default() }
    }

    fn control_kind(message: &ProgramMessage) -> &'static str {
        message.kind
    }
}

impl ProgramProtocol {
    fn wants(&self, want: Want) -> bool {
        self.execution.as_ref().is_some_and(|it| it.wants(want))
    }

    /// Begins the next event.
    fn event(&mut self, name: &str, now: Time) -> Event {
        self.number += 1;
        self.now = now;
        Event::new(self.number, name, now)
    }

    /// Returns the event for an input that carries no application message.
    fn event_of(&mut self, input: Input<Self>, now: Time) -> (&'static str, Event) {
        match input {
            Input::Sent { .. } | Input::Received { .. } => unreachable!("handled by the caller"),
            Input::Consumed(id) => ("consumed", self.event("consumed", now).message(id)),
            Input::Control { from, message } => {
                let event = self.event("message", now).number("from", from.0.into());
                ("message", event.json("message", message.value.text()))
            }
            Input::Image { from, image } => {
                let event = self.event("image", now).number("from", from.0.into());
                self.checks.add_image(image.clone());
                ("image", content(event, &image))
            }
            Input::Snapshot(snapshot) => {
                let bytes = snapshot.len();
                let number = self.checks.add_snapshot(snapshot);
                let event = self.event("snapshot", now).number("snapshot", number);
                ("snapshot", event.number("bytes", bytes))
            }
            Input::Read { name, image: None } => {
                ("read", self.event("read", now).image(name).json("found", "false"))
            }
            Input::Read { image: Some(image), .. } => {
                self.checks.add_image(image.clone());
                ("read", content(self.event("read", now).json("found", "true"), &image))
            }
            Input::Listed(images) => {
                let event = self.event("listed", now);
                ("listed", event.images(images.iter().map(|(name, head)| (*name, &**head))))
            }
            Input::Persisted(name) => ("persisted", self.event("persisted", now).image(name)),
            Input::PersistFailed(name) => ("persistFailed", self.event("persistFailed", now).image(name)),
            Input::Recorded { version } => {
                ("recorded", self.event("recorded", now).number("version", version))
            }
            Input::Membership(membership) => {
                ("membership", self.event("membership", now).membership(&membership))
            }
            Input::Rested => ("rested", self.event("rested", now)),
            Input::Left => ("left", self.event("left", now)),
            Input::Timeout => ("timeout", self.event("timeout", now)),
        }
    }

    /// Sends an event to the program, and performs the actions of its reply.
    fn answer(&mut self, name: &str, event: Event, carried: Option<Carried>, host: &mut dyn Host<Self>) {
        let Some(mut execution) = self.execution.take() else { return };
        let label = format!("event {} (`{name}`)", self.number);
        let done = execution.pipe.exchange(&event.line(), None).and_then(|reply| {
            let contract = |what: String| Failure { kind: BreakageKind::Contract, what };
            self.perform(reply, &label, carried.as_ref(), host).map_err(contract)
        });
        let failed = done.is_err().then(|| execution.pipe.log());
        self.pass_on(execution.pipe.logged());
        match done {
            Ok(()) => {
                self.checks.answered();
                self.execution = Some(execution);
            }
            Err(Failure { kind, what }) => {
                let log = failed.unwrap_or_else(|| [].into());
                self.claim_breakage(kind, what.replacen("{}", &label, 1), log, host);
            }
        }
    }

    fn pass_on(&self, lines: Vec<String>) {
        log::pass_on(self.me, self.life, &self.config.executable.name, lines);
    }

    /// Ends the run, because the program can no longer act as a protocol.
    fn claim_breakage(
        &mut self,
        kind: BreakageKind,
        what: String,
        log: Arc<[Arc<str>]>,
        host: &mut dyn Host<Self>,
    ) {
        self.wake = None;
        let program = self.config.executable.name.clone();
        let breakage = Breakage { process: self.me, life: self.life, program, kind, what: what.into(), log };
        host.claim(Claim::Broke(Arc::new(breakage)));
    }

    fn perform(
        &mut self,
        reply: &str,
        label: &str,
        carried: Option<&Carried>,
        host: &mut dyn Host<Self>,
    ) -> Result<(), Wrong> {
        let Reply { n, actions, wake, gauges } = read(reply).map_err(|why| not_a_reply(reply, &why))?;
        if n != self.number {
            return Err(format!(
                "broke the contract at {{}}: its reply has `n` {n} instead of {}",
                self.number
            ));
        }
        self.wake = wake.map(Time);
        self.gauges = gauges;
        for (place, action) in (1..).zip(actions) {
            let mut name = String::new();
            self.act(action, &mut name, label, carried, host).map_err(|why| {
                format!("broke the contract at {{}}: action {place} (`{}`): {why}", quoted(&name))
            })?;
        }
        Ok(())
    }

    /// Performs an action, whose name it stores in `name`.
    fn act(
        &mut self,
        action: &RawValue,
        name: &mut String,
        label: &str,
        carried: Option<&Carried>,
        host: &mut dyn Host<Self>,
    ) -> Result<(), Wrong> {
        let fields = Fields::parse(action).map_err(|(of, why)| {
            *name = of;
            why
        })?;
        fields.action().clone_into(name);
        let payload = |id| payload_of(id, fields.payload.as_deref(), carried);
        match fields.action() {
            "transmit" => {
                let id = self.checks.outgoing(fields.id()?)?;
                let stamp = ProgramStamp { position: fields.position()?, value: Json::of(fields.stamp) };
                host.transmit(id, stamp, payload(id)?);
            }
            "deliver" => {
                self.checks.running()?;
                let id = self.checks.incoming(fields.id()?)?;
                host.deliver(id, payload(id)?);
            }
            "suppress" => host.suppress(self.checks.outgoing(fields.id()?)?),
            "dropStale" => host.drop_stale(self.checks.incoming(fields.id()?)?),
            "hold" => {
                self.checks.hold(label);
                host.hold();
            }
            "wait" => {
                self.checks.wait(label);
                host.wait();
            }
            "release" => {
                self.checks.release(self.now);
                host.release();
            }
            "requestSnapshot" => {
                self.checks.freeze(&format!("{label}, which requested a snapshot"), self.now);
                host.request_snapshot();
            }
            "requestRest" => {
                self.checks.running()?;
                host.request_rest();
            }
            "restore" => {
                let incarnation = fields.incarnation()?;
                let image = fields.image()?.map(|it| self.checks.restorable(it)).transpose()?;
                host.restore(image.map(|it| &**it), incarnation);
                self.checks.hold(&format!("{label}, which restored a state"));
            }
            "claim" => {
                let now = self.now;
                let claim = claim(action, || self.checks.take_frozen(now))?;
                host.claim(self.checks.claim(claim)?);
            }
            _ => return self.act_on_machine(&fields, host),
        }
        Ok(())
    }

    /// Performs an action on the network or the storage.
    fn act_on_machine(&mut self, fields: &Fields<'_>, host: &mut dyn Host<Self>) -> Result<(), Wrong> {
        let checks = &mut self.checks;
        match fields.action() {
            "send" => {
                let to = match (fields.to_cluster, fields.to()) {
                    (Some(cluster), _) => To::Cluster(checks.cluster(cluster)?),
                    (None, to) => To::One(checks.process(to?)?),
                };
                required("message", fields.message)?;
                let kind = self.kind(fields.kind.as_deref())?;
                host.control(to, ProgramMessage { kind, value: Json::of(fields.message) });
            }
            "persist" => host.persist(match fields.image()? {
                Some(name) => checks.image(name)?.clone(),
                None => self.new_image(fields)?,
            }),
            "sendImage" => {
                let image = checks.image(required("image", fields.image()?)?)?.clone();
                host.send_image(checks.process(fields.to()?)?, image);
            }
            "read" => host.read(self.name(fields)?),
            "delete" => host.delete(self.name(fields)?),
            "list" => host.list(),
            "started" => host.started(),
            "held" => host.held(),
            "record" => {
                let version = checks.record(fields.version()?)?;
                host.record(version, Json::of(fields.data).text().as_bytes().into());
            }
            "keep" => checks.keep(fields.image()?, fields.snapshot, true)?,
            "forget" => checks.keep(fields.image()?, fields.snapshot, false)?,
            "" => return Err("field `do` is missing".to_owned()),
            _ => return Err(format!("there is no such action; use one of: `{}`", ACTIONS.join("`, `"))),
        }
        Ok(())
    }

    fn name(&self, fields: &Fields<'_>) -> Result<ImageName, Wrong> {
        let name = fields.name()?;
        self.checks.process(name.owner)?;
        Ok(name)
    }

    /// Creates the image that a program describes, and makes it available.
    fn new_image(&mut self, fields: &Fields<'_>) -> Result<ProgramImage, Wrong> {
        let name = fields.name()?;
        if name.owner != self.me {
            return Err(format!("process {} owns this image, not process {}", name.owner.0, self.me.0));
        }
        let nothing =
            || Snapshot { witness: Witness::default(), channels: [].into(), application: [].into() };
        let snapshot = match fields.snapshot {
            Some(number) => self.checks.snapshot(number)?.clone(),
            None if name.is_part() => return Err("field `snapshot` is missing".to_owned()),
            None => nothing(),
        };
        let value = Json::of(fields.saved);
        // The host cannot tell messages from other values.
        let bytes = fields.saved_bytes.unwrap_or(value.text().len() as u64);
        let (head, saved) = (Json::of(fields.head).into(), Saved { value, bytes }.into());
        let image = Arc::new(Image { name, head, saved, snapshot });
        self.checks.add_image(image.clone());
        Ok(image)
    }

    fn kind(&mut self, name: Option<&str>) -> Result<&'static str, Wrong> {
        let Some(name) = name else { return Ok(unnamed()) };
        if let Some(known) = self.kinds.iter().find(|it| **it == name) {
            return Ok(known);
        }
        let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        if !(1..=LONGEST_KIND).contains(&name.len()) || !name.chars().all(is_allowed) {
            let permitted = format!("letters, digits, `-` and `_`, at most {LONGEST_KIND}");
            return Err(format!("`{}` is not a valid kind; use {permitted}", quoted(name)));
        }
        if self.kinds.len() == MOST_KINDS {
            return Err(format!("`{name}` is one kind of message more than the {MOST_KINDS} permitted"));
        }
        let mut all = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = match all.get(name) {
            Some(known) => *known,
            None if all.len() == MOST_KINDS_OF_ALL => unnamed(),
            None => {
                let new: &'static str = Box::leak(name.into());
                all.insert(new);
                new
            }
        };
        self.kinds.push(kind);
        Ok(kind)
    }
}

/// Adds the content of an image to an event.
fn content(event: Event, image: &Image<Json, Saved>) -> Event {
    let event =
        event.image(image.name).json("head", image.head.text()).json("saved", image.saved.value.text());
    event.number("bytes", image.snapshot.len())
}
