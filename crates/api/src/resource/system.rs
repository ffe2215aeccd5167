//! Systems: commands that do not know Faultline, one per node.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::observation::{MOST_GROUPS, MOST_OF_GROUP_NAME};
use faultline_core::{FactKind, HistoryNo, ProbeNo, Source, Span, WatchNo};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::clients::{Clients, MAX_HISTORIES};
use super::program::{self, Launch, ProgramFile, ProgramProblem};
use crate::quantity::{Duration, Size};

/// Maximum number of nodes of a system.
pub const MAX_SYSTEM_NODES: u64 = 250;
/// The ending of the names of files that are templates.
pub(crate) const TEMPLATE: &str = ".j2";
/// Maximum number of probes, and of watches.
const MAX_NAMED: usize = 16;
/// Maximum number of entries in `in`.
const MAX_OVERRIDES: usize = 32;
/// Maximum length of a word, of an address and of a regular expression, in characters.
pub(crate) const MAX_TEXT: usize = 1024;
/// Maximum length of the name of a probe or a watch.
const MAX_NAME: usize = 40;
/// The smallest number of bytes of output to keep, and the largest.
const LOGS: (u64, u64) = (4 << 10, 1 << 30);
/// The shortest interval between two samples of a probe, and its shortest time limit.
const SHORTEST_PROBE: Span = Span::from_millis(10);

/// Commands that do not know Faultline, one per node. Texts may contain templates (docs/systems.md).
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct System {
    /// The command and its arguments, as templates. It runs in a directory that contains only `files`.
    #[schemars(schema_with = "program::command")]
    pub command: Vec<String>,
    /// Environment variables. Their values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "program::variables")]
    pub env: BTreeMap<String, String>,
    /// Files in the working directory, by relative path. A file whose name ends in `.j2` is a template, and is stored
    /// without this ending. Records contain the files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub files: BTreeMap<String, ProgramFile>,
    /// When a node is ready. The run begins once all nodes are. Default: once its command has been started.
    pub ready: Option<Ready>,
    /// A command that one node runs once all nodes are ready, before the run begins.
    pub setup: Option<SetUp>,
    /// Probes, by name. They run from the start of the run to its end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub probes: BTreeMap<String, Probe>,
    /// Programs that carry out the operations that Faultline asks for, by the name of their history.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub clients: BTreeMap<String, Clients>,
    /// Regular expressions, by name. Each line of a node's output that matches one is a fact, `logged`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "watches")]
    pub watch: BTreeMap<String, String>,
    /// When the run ends. Default: 30s after the last fault that has a fixed time.
    pub ends: Option<Ends>,
    /// What happens if a command exits. Default `fail`.
    pub on_exit: Option<OnExit>,
    /// The maximum number of bytes of a node's output that are kept for each life: the first half, and the newest bytes.
    /// Default 4MiB.
    pub logs: Option<Size>,
    /// What differs for the nodes of a cluster, by the name of the cluster.
    #[serde(default, rename = "in", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub overrides: BTreeMap<String, Override>,
}

/// What differs for the nodes of a cluster. A field replaces the field of the system as a whole.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Override {
    /// The command and its arguments, as templates.
    #[serde(default)]
    #[schemars(schema_with = "program::command")]
    pub command: Option<Vec<String>>,
    /// Environment variables. Their values are templates.
    #[serde(default)]
    #[schemars(schema_with = "program::variables")]
    pub env: Option<BTreeMap<String, String>>,
    /// Files in the working directory, by relative path.
    #[schemars(extend("maxProperties" = 16))]
    pub files: Option<BTreeMap<String, ProgramFile>>,
    /// When a node is ready.
    pub ready: Option<Ready>,
    /// Regular expressions, by name.
    #[serde(default)]
    #[schemars(schema_with = "watches")]
    pub watch: Option<BTreeMap<String, String>>,
    /// What happens if a command exits.
    pub on_exit: Option<OnExit>,
    /// The maximum number of bytes of a node's output that are kept for each life.
    pub logs: Option<Size>,
    /// The clusters whose nodes must all be ready before the commands of this cluster start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "clusters")]
    pub after: Vec<String>,
}

/// When a node is ready: once one of `exec`, `http` and `tcp` succeeds or, without any of them, once its command has been
/// started.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ready {
    /// A command that succeeds if its exit status is 0. Its words are templates.
    #[serde(default)]
    #[schemars(schema_with = "exec")]
    pub exec: Option<Vec<String>>,
    /// The address of a page, as a template: `http://HOST:PORT/PATH`. Succeeds with a status from 200 to 399.
    #[schemars(length(min = 1, max = 1024))]
    pub http: Option<String>,
    /// An address, as a template: `HOST:PORT`. Succeeds if a connection opens.
    #[schemars(length(min = 1, max = 1024))]
    pub tcp: Option<String>,
    /// The time within which the node must be ready. Default 2m.
    pub within: Option<Duration>,
}

/// A command that prepares the system once, such as the creation of a database.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetUp {
    /// The node that runs the command, such as `paris-0`.
    #[schemars(length(min = 1, max = 64))]
    pub by: String,
    /// The command. Its words are templates, and its exit status must be 0.
    #[schemars(schema_with = "exec")]
    pub exec: Vec<String>,
    /// The time within which the command must exit. Default 2m.
    pub within: Option<Duration>,
}

/// Something that succeeds or fails, and that nodes attempt repeatedly. Exactly one of `exec`, `http` and `tcp` must be
/// set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// The cluster or the node that runs the probe. Default: every node.
    #[schemars(length(min = 1, max = 64))]
    pub by: Option<String>,
    /// A command that succeeds if its exit status is 0. Its words are templates.
    #[serde(default)]
    #[schemars(schema_with = "exec")]
    pub exec: Option<Vec<String>>,
    /// The address of a page, as a template: `http://HOST:PORT/PATH`. Succeeds with a status from 200 to 399.
    #[schemars(length(min = 1, max = 1024))]
    pub http: Option<String>,
    /// An address, as a template: `HOST:PORT`. Succeeds if a connection opens.
    #[schemars(length(min = 1, max = 1024))]
    pub tcp: Option<String>,
    /// Time from the start of a sample to the start of the next one, unless the sample takes longer. Default 1s.
    pub every: Option<Duration>,
    /// Time after which a sample has failed. Default 1s.
    pub timeout: Option<Duration>,
}

/// When a run of a system ends. Exactly one field must be set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ends {
    /// Time from the start of the run to its end.
    pub after: Option<Duration>,
    /// Ends the run once the command of every node of this cluster has exited with status 0.
    #[schemars(length(max = 40))]
    pub exit: Option<String>,
}

/// What happens if a command exits by itself.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnExit {
    /// The command must not exit. If it does, the run ends.
    #[default]
    Fail,
    /// The node begins its next life. A command that exits more than five times in a row without having been ready for a
    /// second ends the run.
    Restart,
    /// All nodes of the cluster begin their next lives.
    RestartCluster,
    /// The command may exit. It is not started again, and what it has started continues.
    Stay,
    /// The command may exit once it has started a process that continues to run. The node's command has exited once all
    /// these processes have, which must not happen.
    Daemon,
}

/// An attempt that succeeds or fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// A command that succeeds if its exit status is 0.
    Exec(Vec<T>),
    /// The address of a page, which must answer with a status from 200 to 399.
    Http(T),
    /// An address, at which a connection must open.
    Tcp(T),
}

/// The attempt of a probe or of `ready` as the file states it.
pub(crate) type StatedAttempt<'a> = (&'a Option<Vec<String>>, &'a Option<String>, &'a Option<String>);

/// Returns the attempt that the file states, if it states exactly one.
fn only((exec, http, tcp): StatedAttempt<'_>) -> Option<Attempt<&str>> {
    match (exec, http, tcp) {
        (Some(words), None, None) => Some(Attempt::Exec(words.iter().map(String::as_str).collect())),
        (None, Some(url), None) => Some(Attempt::Http(url)),
        (None, None, Some(address)) => Some(Attempt::Tcp(address)),
        _ => None,
    }
}

pub(super) fn exec(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The command and its arguments. It succeeds if its exit status is 0. Its words are templates.",
        "minItems": 1,
        "maxItems": 64,
        "items": { "type": "string", "maxLength": MAX_TEXT, "description": "A word of the command." },
    })
}

fn clusters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The clusters whose nodes must all be ready before the commands of this cluster start.",
        "maxItems": 32,
        "items": { "type": "string", "maxLength": 40, "description": "The name of a cluster." },
    })
}

fn watches(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Regular expressions, by name. Each line of a node's output that matches one is a fact, `logged`, with what its named groups matched.",
        "maxProperties": MAX_NAMED,
        "additionalProperties": { "type": "string", "maxLength": MAX_TEXT, "description": "A regular expression." },
    })
}

/// What runs on the nodes of one cluster, after its overrides.
#[derive(Clone, Copy, Debug)]
pub struct OnNode<'a> {
    /// The command and its arguments.
    pub command: &'a [String],
    /// Environment variables.
    pub env: &'a BTreeMap<String, String>,
    /// Files in the working directory.
    pub files: &'a BTreeMap<String, ProgramFile>,
    /// When the node is ready; `None` if it is once its command has been started.
    pub ready: Option<&'a Ready>,
    /// Regular expressions, by name.
    pub watch: &'a BTreeMap<String, String>,
    /// What happens if the command exits.
    pub on_exit: OnExit,
    /// The clusters whose nodes must all be ready before the command starts.
    pub after: &'a [String],
    /// The maximum number of bytes of output that are kept for each life.
    pub log_bytes: u64,
}

impl System {
    /// Returns the name of the system: that of its program.
    pub fn name(&self) -> &str {
        Launch::of_system(&self.command, &self.env, &self.files).name()
    }

    /// Returns what runs on the nodes of a cluster.
    pub fn on(&self, cluster: &str) -> OnNode<'_> {
        let own = self.overrides.get(cluster);
        OnNode {
            command: own.and_then(|it| it.command.as_ref()).unwrap_or(&self.command),
            env: own.and_then(|it| it.env.as_ref()).unwrap_or(&self.env),
            files: own.and_then(|it| it.files.as_ref()).unwrap_or(&self.files),
            ready: own.and_then(|it| it.ready.as_ref()).or(self.ready.as_ref()),
            watch: own.and_then(|it| it.watch.as_ref()).unwrap_or(&self.watch),
            on_exit: own.and_then(|it| it.on_exit).or(self.on_exit).unwrap_or_default(),
            after: own.map_or(&[][..], |it| &it.after[..]),
            log_bytes: own.and_then(|it| it.logs).or(self.logs).map_or(4 << 20, |it| it.0),
        }
    }

    /// Returns the names of all watches, in the order of their numbers.
    pub fn watch_names(&self) -> BTreeSet<&str> {
        let own = self.overrides.values().filter_map(|it| it.watch.as_ref());
        [&self.watch].into_iter().chain(own).flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the number of the watch with this name.
    pub fn watch_no(&self, name: &str) -> Option<WatchNo> {
        self.watch_names().iter().position(|it| *it == name).map(|it| WatchNo(it as u16))
    }

    /// Returns the groups of each regular expression of a watch, with the cluster that has this expression; `None` if it is
    /// that of all other clusters.
    pub fn groups(&self, watch: &str) -> Vec<(Option<&str>, Vec<String>)> {
        let own =
            self.overrides.iter().filter_map(|(cluster, it)| Some((Some(&**cluster), it.watch.as_ref()?)));
        let all = [(None, &self.watch)].into_iter().chain(own);
        all.filter_map(|(cluster, it)| Some((cluster, groups_of(&regex_of(it.get(watch)?).ok()?)))).collect()
    }

    /// Returns the names of all probes, in the order of their numbers: those of the file, and one for each kind of operation
    /// of each history of clients.
    pub fn probe_names(&self) -> Vec<String> {
        let kinds = self.clients.iter().flat_map(|(name, it)| {
            it.workload(0).kinds().into_iter().map(move |kind| format!("{name}.{kind}"))
        });
        self.probes.keys().cloned().chain(kinds).collect()
    }

    /// Returns the watch, the probe or the history with this name, depending on what the fact is about.
    pub fn source(&self, fact: FactKind, name: &str) -> Option<Source> {
        match fact {
            FactKind::Logged => self.watch_no(name).map(Source::Watch),
            FactKind::ProbeSucceeded | FactKind::ProbeFailed | FactKind::ProbeUnknown => {
                self.probes.keys().position(|it| it == name).map(|it| Source::Probe(ProbeNo(it as u16)))
            }
            FactKind::Invoked | FactKind::Concluded => {
                let position = self.clients.keys().position(|it| it == name)?;
                Some(Source::History(HistoryNo(position as u16)))
            }
            _ => None,
        }
    }

    /// Returns the files of the system and of its overrides, to be replaced with their content.
    pub fn all_files(&mut self) -> impl Iterator<Item = &mut ProgramFile> {
        let own = self.overrides.values_mut().filter_map(|it| it.files.as_mut());
        [&mut self.files].into_iter().chain(own).flat_map(BTreeMap::values_mut)
    }

    /// Time from the last fault to the end of the run, unless the file states when the run ends.
    pub const AFTER_LAST_FAULT: Span = Span::from_secs(30);

    /// Returns the files of the system and of its overrides, with their fields.
    pub fn named_files(&self) -> impl Iterator<Item = (String, &ProgramFile)> {
        let own = self.overrides.iter().flat_map(|(cluster, it)| {
            let files = it.files.iter().flatten();
            files.map(move |(name, it)| (format!("in.{cluster}.files.{name}"), it))
        });
        self.files.iter().map(|(name, it)| (format!("files.{name}"), it)).chain(own)
    }

    /// Returns the problems of the system that its fields alone show, without their templates: at most one of each field.
    pub(crate) fn problems(&self) -> Vec<ProgramProblem> {
        let mut problems = Vec::new();
        problems.extend(Launch::of_system(&self.command, &self.env, &self.files).problem());
        problems.extend(problem_of_templates("", &self.files));
        problems.extend(problem_of_ready("", self.ready.as_ref()));
        problems.extend(problem_of_watches("", &self.watch));
        problems.extend(problem_of_logs("", self.logs));
        problems.extend(self.setup.as_ref().and_then(SetUp::problem));
        problems.extend(named("probes", self.probes.keys()));
        problems.extend(self.probes.iter().filter_map(|(name, it)| it.problem(name)));
        problems.extend(self.problem_of_clients());
        problems.extend(self.clients.iter().filter_map(|(name, it)| it.problem(name)));
        problems.extend(self.ends.as_ref().and_then(Ends::problem));
        self.add_problems_of_overrides(&mut problems);
        problems
    }

    fn problem_of_clients(&self) -> Option<ProgramProblem> {
        if self.clients.len() > MAX_HISTORIES {
            let message = format!("there are too many entries ({})", self.clients.len());
            return Some(program::problem("clients", message, format!("list at most {MAX_HISTORIES}")));
        }
        let twice = self.clients.keys().find(|it| self.probes.contains_key(*it)).map(|it| {
            let message = format!("`{it}` is also the name of a probe");
            program::problem(format!("clients.{it}"), message, "use another name for one of them")
        });
        named("clients", self.clients.keys()).or(twice)
    }

    fn add_problems_of_overrides(&self, problems: &mut Vec<ProgramProblem>) {
        if self.overrides.len() > MAX_OVERRIDES {
            let message = format!("there are too many entries ({})", self.overrides.len());
            problems.push(program::problem("in", message, format!("list at most {MAX_OVERRIDES} clusters")));
            return;
        }
        for (cluster, own) in &self.overrides {
            let field = format!("in.{cluster}.");
            let OnNode { command, env, files, .. } = self.on(cluster);
            let problem =
                Launch::of_system(command, env, files).problem().filter(|it| !problems.contains(it));
            problems.extend(problem.map(|(own, message, help)| (format!("{field}{own}"), message, help)));
            problems.extend(own.files.as_ref().and_then(|it| problem_of_templates(&field, it)));
            problems.extend(problem_of_ready(&field, own.ready.as_ref()));
            problems.extend(own.watch.as_ref().and_then(|it| problem_of_watches(&field, it)));
            problems.extend(problem_of_logs(&field, own.logs));
        }
    }
}

impl Ready {
    /// Returns the attempt that must succeed, if there is one.
    pub fn attempt(&self) -> Option<Attempt<&str>> {
        only((&self.exec, &self.http, &self.tcp))
    }

    /// Returns [`within`](field@Ready::within), or its default.
    pub fn within(&self) -> Span {
        self.within.map_or(Span::from_secs(120), |it| it.0)
    }
}

impl SetUp {
    /// Returns [`within`](field@SetUp::within), or its default.
    pub fn within(&self) -> Span {
        self.within.map_or(Span::from_secs(120), |it| it.0)
    }

    fn problem(&self) -> Option<ProgramProblem> {
        problem_of_words("setup.exec", &self.exec)
            .or_else(|| too_short("setup.within", self.within(), Span::from_millis(100)))
    }
}

impl Probe {
    /// Returns the attempt of a sample.
    pub fn attempt(&self) -> Option<Attempt<&str>> {
        only((&self.exec, &self.http, &self.tcp))
    }

    /// Returns [`every`](field@Probe::every), or its default.
    pub fn every(&self) -> Span {
        self.every.map_or(Span::from_secs(1), |it| it.0)
    }

    /// Returns [`timeout`](field@Probe::timeout), or its default.
    pub fn timeout(&self) -> Span {
        self.timeout.map_or(Span::from_secs(1), |it| it.0)
    }

    fn problem(&self, name: &str) -> Option<ProgramProblem> {
        let field = format!("probes.{name}");
        if self.attempt().is_none() {
            let help = "write `exec: [COMMAND]`, `http: http://HOST:PORT/PATH` or `tcp: HOST:PORT`";
            return Some(program::problem(
                field,
                "exactly one of `exec`, `http` and `tcp` must be set",
                help,
            ));
        }
        problem_of_attempt(&field, (&self.exec, &self.http, &self.tcp))
            .or_else(|| too_short(&format!("{field}.every"), self.every(), SHORTEST_PROBE))
            .or_else(|| too_short(&format!("{field}.timeout"), self.timeout(), SHORTEST_PROBE))
    }
}

impl Ends {
    fn problem(&self) -> Option<ProgramProblem> {
        (self.after.is_some() == self.exit.is_some()).then(|| {
            let help = "write `ends: { after: 60s }`, or `ends: { exit: CLUSTER }`";
            program::problem("ends", "exactly one of `after` and `exit` must be set", help)
        })
    }
}

fn too_short(field: &str, span: Span, least: Span) -> Option<ProgramProblem> {
    (span < least).then(|| {
        let message = format!("the time is too short ({})", Duration(span));
        program::problem(field, message, format!("write at least {}", Duration(least)))
    })
}

fn problem_of_templates(path: &str, files: &BTreeMap<String, ProgramFile>) -> Option<ProgramProblem> {
    let twice = files.keys().find(|it| it.strip_suffix(TEMPLATE).is_some_and(|it| files.contains_key(it)))?;
    let message =
        format!("`{twice}` and `{}` are the same file on the node", twice.trim_end_matches(TEMPLATE));
    Some(program::problem(format!("{path}files"), message, "use another name for one of them"))
}

fn problem_of_ready(path: &str, ready: Option<&Ready>) -> Option<ProgramProblem> {
    let ready = ready?;
    let stated = (&ready.exec, &ready.http, &ready.tcp);
    let is_empty = stated == (&None, &None, &None);
    if !is_empty && ready.attempt().is_none() {
        let help = "keep one of them, or write `ready: {}` for a node that is ready once its command has been started";
        let message = "more than one of `exec`, `http` and `tcp` is set";
        return Some(program::problem(format!("{path}ready"), message, help));
    }
    problem_of_attempt(&format!("{path}ready"), stated)
        .or_else(|| too_short(&format!("{path}ready.within"), ready.within(), Span::from_millis(100)))
}

fn problem_of_attempt(field: &str, (exec, http, tcp): StatedAttempt<'_>) -> Option<ProgramProblem> {
    let of_exec = exec.as_ref().and_then(|it| problem_of_words(&format!("{field}.exec"), it));
    of_exec.or_else(|| {
        let texts = [("http", http), ("tcp", tcp)];
        let mut texts = texts.into_iter().filter_map(|(name, it)| Some((name, it.as_ref()?)));
        texts.find(|(_, it)| it.is_empty() || it.chars().count() > MAX_TEXT).map(|(name, _)| {
            let help = format!("write 1 to {MAX_TEXT} characters");
            program::problem(format!("{field}.{name}"), "the address is empty or too long", help)
        })
    })
}

pub(crate) fn problem_of_words(field: &str, words: &[String]) -> Option<ProgramProblem> {
    let (env, files) = (BTreeMap::new(), BTreeMap::new());
    let (own, message, help) = Launch::of_system(words, &env, &files).problem()?;
    Some((own.replacen("command", field, 1), message, help))
}

fn problem_of_logs(path: &str, logs: Option<Size>) -> Option<ProgramProblem> {
    let (least, most) = LOGS;
    logs.filter(|it| !(least..=most).contains(&it.0)).map(|it| {
        let help = format!("write a size from {} to {}", Size(least), Size(most));
        program::problem(format!("{path}logs"), format!("{it} is out of range"), help)
    })
}

/// Returns the first problem of these names of probes or watches.
fn named<'a>(field: &str, names: impl ExactSizeIterator<Item = &'a String>) -> Option<ProgramProblem> {
    if names.len() > MAX_NAMED {
        let message = format!("there are too many entries ({})", names.len());
        return Some(program::problem(field, message, format!("list at most {MAX_NAMED}")));
    }
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
    let is_name = |it: &str| !it.is_empty() && it.len() <= MAX_NAME && it.chars().all(is_plain);
    names.into_iter().find(|it| !is_name(it)).map(|it| {
        let help = format!("write 1 to {MAX_NAME} letters, digits, `-` and `_`");
        program::problem(field, format!("`{it}` is not a valid name"), help)
    })
}

fn problem_of_watches(path: &str, watches: &BTreeMap<String, String>) -> Option<ProgramProblem> {
    let of_names = named(&format!("{path}watch"), watches.keys());
    of_names.or_else(|| {
        watches.iter().find_map(|(name, pattern)| {
            let field = format!("{path}watch.{name}");
            if pattern.chars().count() > MAX_TEXT {
                let help = format!("write at most {MAX_TEXT} characters");
                return Some(program::problem(field, "the regular expression is too long", help));
            }
            match regex_of(pattern) {
                Ok(regex) => problem_of_groups(field, &groups_of(&regex)),
                Err(error) => {
                    let help = "write a regular expression in the syntax of the Rust crate `regex`";
                    let message = format!("the regular expression is not valid: {error}");
                    Some(program::problem(field, message, help))
                }
            }
        })
    })
}

fn problem_of_groups(field: String, groups: &[String]) -> Option<ProgramProblem> {
    if groups.len() > MOST_GROUPS {
        let help = format!("name at most {MOST_GROUPS}; write the others as `(?:…)`");
        return Some(program::problem(
            field,
            format!("there are too many named groups ({})", groups.len()),
            help,
        ));
    }
    let long = groups.iter().find(|it| it.len() > MOST_OF_GROUP_NAME)?;
    let help = format!("write at most {MOST_OF_GROUP_NAME} bytes");
    Some(program::problem(field, format!("the name of the group `{long}` is too long"), help))
}

/// Returns the names of the groups of a regular expression.
fn groups_of(regex: &regex::Regex) -> Vec<String> {
    regex.capture_names().flatten().map(str::to_owned).collect()
}

/// Compiles the regular expression of a watch.
fn regex_of(pattern: &str) -> Result<regex::Regex, String> {
    let built = regex::RegexBuilder::new(pattern).size_limit(1 << 20).build();
    built.map_err(|error| error.to_string().lines().last().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problem(mut value: Value) -> Option<String> {
        value.as_object_mut().unwrap().entry("command").or_insert_with(|| json!(["etcd"]));
        let system: System = serde_json::from_value(value).unwrap();
        system.problems().into_iter().next().map(|it| it.0)
    }

    #[test]
    fn a_system_that_cannot_be_run_is_rejected() {
        assert_eq!(problem(json!({ "ready": {} })), None);
        for (value, field) in [
            (json!({ "command": [] }), "command"),
            (json!({ "files": { "../a": { "text": "" } } }), "files"),
            (json!({ "ready": { "exec": ["a"], "tcp": "b:1" } }), "ready"),
            (json!({ "ready": { "within": "1ms" } }), "ready.within"),
            (json!({ "setup": { "by": "a-0", "exec": [] } }), "setup.exec"),
            (json!({ "probes": { "a": {} } }), "probes.a"),
            (json!({ "probes": { "a": { "exec": [""] } } }), "probes.a.exec"),
            (json!({ "probes": { "a": { "tcp": "b:1", "every": "1ms" } } }), "probes.a.every"),
            (json!({ "probes": { "a b": { "tcp": "b:1" } } }), "probes"),
            (json!({ "watch": { "a": "(" } }), "watch.a"),
            (json!({ "ends": {} }), "ends"),
            (json!({ "logs": "1B" }), "logs"),
            (json!({ "in": { "a": { "command": [] } } }), "in.a.command"),
            (json!({ "in": { "a": { "watch": { "w": "[" } } } }), "in.a.watch.w"),
            (
                json!({ "watch": { "a": "(?<a>.)(?<b>.)(?<c>.)(?<d>.)(?<e>.)(?<f>.)(?<g>.)(?<h>.)(?<i>.)" } }),
                "watch.a",
            ),
            (json!({ "watch": { "a": format!("(?<{}>.)", "a".repeat(41)) } }), "watch.a"),
        ] {
            assert_eq!(problem(value.clone()).as_deref(), Some(field), "{value}");
        }
    }

    #[test]
    fn each_field_has_a_problem_of_its_own() {
        let value = json!({
            "command": [], "ready": { "within": "1ms" }, "probes": { "a": {}, "b": {} }, "watch": { "a": "(" },
            "in": { "clients": { "env": {}, "watch": { "w": "[" } }, "paris": { "logs": "1B" } },
        });
        let system: System = serde_json::from_value(value).unwrap();
        let fields: Vec<String> = system.problems().into_iter().map(|it| it.0).collect();
        let expected = [
            "command",
            "ready.within",
            "watch.a",
            "probes.a",
            "probes.b",
            "in.clients.watch.w",
            "in.paris.logs",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_override_replaces_fields() {
        let value = json!({
            "command": ["etcd"], "watch": { "a": "b" }, "onExit": "restart",
            "in": { "clients": { "command": ["load"], "watch": {} } },
        });
        let system: System = serde_json::from_value(value).unwrap();
        assert_eq!(
            (system.on("paris").command, system.on("paris").watch.len()),
            (&["etcd".to_owned()][..], 1)
        );
        let clients = system.on("clients");
        assert_eq!((clients.command, clients.watch.len()), (&["load".to_owned()][..], 0));
        assert_eq!(clients.on_exit, OnExit::Restart);
    }
}
