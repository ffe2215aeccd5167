//! Programs in any language: the command, its files and, for a protocol, everything that a protocol from another crate
//! declares in its code.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use faultline_core::{Affected, FaultModel, Promise, Promises, Scope, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::custom::{keep_parameters, set_shared, shared_options};
use super::known::{Collection, Demand, Logs, SharedOptions};
use super::protocol::Checkpointing;
use crate::quantity::Duration;

/// The time in which a program must answer an event, unless the file states another.
const ANSWER_WITHIN: Span = Span::from_secs(10);
/// The shortest such time: a machine may be busy for a moment.
const SHORTEST_ANSWER: Span = Span::from_millis(100);
/// Maximum size of all files of a program, in bytes.
const MAX_FILES: usize = 256 << 10;
/// Maximum number of files.
const MAX_FILE_COUNT: usize = 16;
/// The beginning of the names of environment variables that only Faultline sets.
const RESERVED: &str = "FAULTLINE_";
/// Maximum number of words of a command, and of environment variables.
const MAX_ENTRIES: usize = 64;
/// Maximum length of a word, in characters.
const MAX_WORD: usize = 1024;

/// A program that acts as the protocol, and speaks the contract of docs/programs.md.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Program {
    /// The command and its arguments. It runs in a directory that contains only `files`.
    #[schemars(schema_with = "command")]
    pub command: Vec<String>,
    /// Files in the working directory, by relative path. Records contain them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub files: BTreeMap<String, ProgramFile>,
    /// Parameters, which the program receives unchanged. A parameter with the same name as an option of the built-in
    /// protocols, such as `checkpointEvery`, has the same meaning.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_parameters")]
    pub parameters: Map<String, Value>,
    /// Which processes roll back together.
    #[schemars(schema_with = "scopes")]
    pub scope: Scope,
    /// The properties that the program promises in addition to those of every protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "promises")]
    pub promises: Vec<Promise>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "variables")]
    pub env: BTreeMap<String, String>,
    /// The time in which the program must answer an event. Default 10s.
    pub answer_within: Option<Duration>,
    /// The groups that a failure rolls back in addition to those in which a process failed. Default `dependents`.
    #[serde(default)]
    #[schemars(schema_with = "affected")]
    pub affected: Option<Affected>,
    /// The number of processes that may have failed or be recovering at the same time. Default: any number.
    #[schemars(range(min = 1))]
    pub survives: Option<u32>,
    /// Whether packets between two processes must arrive in the order in which they were sent. Default false.
    pub fifo: Option<bool>,
    /// Whether the program relies on a re-execution sending the same messages. Default false.
    pub repeats: Option<bool>,
    /// What a re-execution of the application must repeat. Default `anyOrder` if `repeats` is true, otherwise `nothing`.
    pub demand: Option<Demand>,
    /// Which messages the program logs. Default `nothing`.
    pub logs: Option<Logs>,
    /// When the program removes what no recovery can need. Default `unspecified`.
    pub collection: Option<Collection>,
}

/// A program that acts as the application, and speaks the contract of docs/programs.md.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicationProgram {
    /// The command and its arguments. It runs in a directory that contains only `files`.
    #[schemars(schema_with = "command")]
    pub command: Vec<String>,
    /// Files in the working directory, by relative path. Records contain them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub files: BTreeMap<String, ProgramFile>,
    /// Parameters, which the program receives unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_parameters")]
    pub parameters: Map<String, Value>,
    /// How the program receives messages. Default `byRank`.
    pub receives: Option<Receives>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "variables")]
    pub env: BTreeMap<String, String>,
    /// The time in which the program must answer an event. Default 10s.
    pub answer_within: Option<Duration>,
}

/// How an application that is a program receives messages.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Receives {
    /// Each receiving step names the senders, so the program sends the same messages in any order of arrival.
    ByRank,
    /// Messages are handed over in the order in which they arrive. Results are not compared.
    Any,
}

/// Everything that is needed to start a program.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The command and its arguments.
    pub command: &'a [String],
    /// Files in the working directory, by relative path.
    pub files: &'a BTreeMap<String, ProgramFile>,
    /// Environment variables.
    pub env: &'a BTreeMap<String, String>,
    answer_within: Option<Duration>,
}

/// A file of a program. Exactly one field must be set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgramFile {
    /// Path of a file with the content, relative to the federation file. Records contain the content instead.
    #[schemars(length(min = 1, max = 1024))]
    pub file: Option<String>,
    /// The content.
    #[schemars(length(max = 262_144))]
    pub text: Option<String>,
}

fn any_parameters(_: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema!({
        "type": "object",
        "description": "Parameters, which the program receives unchanged.",
    });
    keep_parameters(&mut schema);
    schema
}

pub(super) fn command(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The command and its arguments. It runs in a directory that contains only `files`.",
        "minItems": 1,
        "maxItems": MAX_ENTRIES,
        "items": { "type": "string", "maxLength": MAX_WORD, "description": "A word of the command." },
    })
}

pub(super) fn variables(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Environment variables.",
        "maxProperties": MAX_ENTRIES,
        "additionalProperties": { "type": "string", "maxLength": MAX_WORD, "description": "The value of a variable." },
    })
}

fn scopes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "description": "Which processes roll back together: each one alone, those of each cluster, or all.",
        "enum": ["process", "cluster", "federation"],
    })
}

fn affected(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "description": "The groups that a failure rolls back in addition to those in which a process failed: those that \
                        depend on undone messages, or any group, to reach a common recovery line. Default `dependents`.",
        "enum": ["dependents", "line"],
    })
}

fn promises(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The properties that the program promises in addition to those of every protocol \
                        (docs/verdict.md).",
        "maxItems": Program::PROMISES.len(),
        "items": { "type": "string", "enum": Program::PROMISES, "description": "A promise." },
    })
}

/// A problem of a program: the field, the message, and the suggested fix.
pub(crate) type ProgramProblem = (String, String, String);

pub(super) fn problem(
    field: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> ProgramProblem {
    (field.into(), message.into(), help.into())
}

impl Program {
    /// The promises of protocols for applications that exchange messages. `repetition` follows from `repeats`.
    pub const PROMISES: [Promise; 13] = [
        Promise::Checkpoints,
        Promise::DenseNumbering,
        Promise::MaximalLine,
        Promise::ForcedBeforeDelivery,
        Promise::Containment,
        Promise::OrphansFirst,
        Promise::Phases,
        Promise::RepeatedOrder,
        Promise::LogKept,
        Promise::DurableRestore,
        Promise::Refill,
        Promise::Progress,
        Promise::ForcedByNews,
    ];

    /// Returns what is needed to start the program.
    pub fn launch(&self) -> Launch<'_> {
        let Program { command, files, env, answer_within, .. } = self;
        Launch { command, files, env, answer_within: *answer_within }
    }

    /// Returns the [name](Launch::name) of the program.
    pub fn name(&self) -> &str {
        self.launch().name()
    }

    /// Returns the promises that the file states.
    pub fn promised(&self) -> Promises {
        let survives = self.survives.map_or(FaultModel::Stable, |failures| FaultModel::Volatile { failures });
        Promises::of_scope(self.scope)
            .with(&self.promises)
            .affecting(self.affected.unwrap_or_default())
            .surviving(survives)
    }

    /// Returns what the program requires of an application.
    pub fn demand(&self) -> Demand {
        let usual = if self.repeats == Some(true) { Demand::AnyOrder } else { Demand::Nothing };
        self.demand.unwrap_or(usual)
    }

    pub(super) fn shared_options(&self) -> SharedOptions {
        shared_options(&self.parameters)
    }

    /// Changes the shared options that the file sets. The others are ignored.
    pub(super) fn set_shared_options(&mut self, shared: &SharedOptions) {
        set_shared(&mut self.parameters, shared, |name, set| set.contains_key(name));
    }

    pub(super) fn checkpointing(&self) -> Option<Checkpointing> {
        self.shared_options().checkpointing()
    }

    /// Returns the first problem of the program.
    pub(crate) fn problem(&self) -> Option<ProgramProblem> {
        self.launch().problem().or_else(|| self.problem_of_options())
    }

    fn problem_of_options(&self) -> Option<ProgramProblem> {
        if let Some(it) = self.promises.iter().find(|it| !Program::PROMISES.contains(it)) {
            let word = serde_json::to_value(it).unwrap_or_default();
            let help = match it {
                Promise::Repetition => "omit it, and write `repeats: true`".to_owned(),
                _ => "omit it: only protocols for task-based programs can promise it".to_owned(),
            };
            return Some(problem("promises", format!("a program cannot promise {word}"), help));
        }
        let repeated = |place: &usize| self.promises[..*place].contains(&self.promises[*place]);
        if (0..self.promises.len()).any(|it| repeated(&it)) {
            return Some(problem("promises", "a promise is repeated", "state each promise once"));
        }
        if self.survives == Some(0) {
            let help = "omit `survives` if the program survives any number of failures";
            return Some(problem("survives", "the program survives no failure", help));
        }
        let options = serde_json::from_value::<SharedOptions>(Value::Object(self.parameters.clone()));
        options.err().map(|error| {
            let help = "parameters that the built-in protocols share keep their form; rename yours if its meaning differs";
            problem("parameters", error.to_string(), help)
        })
    }
}

impl ApplicationProgram {
    /// Returns what is needed to start the program.
    pub fn launch(&self) -> Launch<'_> {
        let ApplicationProgram { command, files, env, answer_within, .. } = self;
        Launch { command, files, env, answer_within: *answer_within }
    }

    /// Returns the [name](Launch::name) of the program.
    pub fn name(&self) -> &str {
        self.launch().name()
    }

    /// Returns [`receives`](field@ApplicationProgram::receives), or its default.
    pub fn receives(&self) -> Receives {
        self.receives.unwrap_or(Receives::ByRank)
    }
}

impl<'a> Launch<'a> {
    /// Returns what is needed to start a command of a system.
    pub(crate) fn of_system(
        command: &'a [String],
        env: &'a BTreeMap<String, String>,
        files: &'a BTreeMap<String, ProgramFile>,
    ) -> Launch<'a> {
        Launch { command, files, env, answer_within: None }
    }

    /// Returns the name of the program: the first word of its command that names one of its files or, if there is none,
    /// the last part of the command's path.
    pub fn name(self) -> &'a str {
        let file = |word: &String| self.files.keys().find(|it| word.trim_start_matches("./") == *it);
        let command = || Path::new(self.command.first()?).file_name()?.to_str();
        self.command.iter().find_map(file).map(String::as_str).or_else(command).unwrap_or("program")
    }

    /// Returns the time in which the program must answer an event.
    pub fn answer_within(self) -> Span {
        self.answer_within.map_or(ANSWER_WITHIN, |it| it.0)
    }

    /// Returns the first problem of the command, the files, the environment or the time limit.
    pub(crate) fn problem(self) -> Option<ProgramProblem> {
        let problem = self.problem_of_command().or_else(|| self.problem_of_files());
        let is_short = || self.answer_within() < SHORTEST_ANSWER;
        problem.or_else(|| {
            is_short().then(|| {
                let message = format!("`answerWithin` is too short ({})", self.answer_within());
                self::problem("answerWithin", message, "write at least 100ms: a machine may be busy")
            })
        })
    }

    fn problem_of_command(self) -> Option<ProgramProblem> {
        let is_usable = |it: &String| it.chars().count() <= MAX_WORD && !it.contains('\0');
        match self.command {
            [] => Some(problem("command", "the command is empty", "write a program and its arguments")),
            [first, ..] if first.is_empty() => {
                Some(problem("command", "the program has no name", "write a program and its arguments"))
            }
            words => {
                let unusable = words.iter().position(|it| !is_usable(it));
                let field = match unusable {
                    Some(place) => format!("command[{place}]"),
                    None => "command".to_owned(),
                };
                (unusable.is_some() || words.len() > MAX_ENTRIES).then(|| {
                    problem(
                        field,
                        "the command is too long, or contains a null character",
                        format!("write at most {MAX_ENTRIES} words of at most {MAX_WORD} characters"),
                    )
                })
            }
        }
        .or_else(|| {
            let is_usable = |(name, value): &(&String, &String)| {
                let is_name = !name.is_empty() && !name.contains(['=', '\0']) && !name.starts_with(RESERVED);
                is_name && name.chars().count() <= MAX_WORD && is_usable(value)
            };
            let unusable = self.env.iter().find(|it| !is_usable(it));
            let help = format!(
                "write at most {MAX_ENTRIES} names without `=`, with at most {MAX_WORD} characters; names that begin \
                 with `{RESERVED}` are reserved"
            );
            let field = unusable.map_or("env".to_owned(), |(name, _)| format!("env.{name}"));
            let is_problem = unusable.is_some() || self.env.len() > MAX_ENTRIES;
            is_problem.then(|| problem(field, "a name or a value cannot be used in an environment", help))
        })
    }

    fn problem_of_files(self) -> Option<ProgramProblem> {
        if self.files.len() > MAX_FILE_COUNT {
            let message = format!("there are too many files ({})", self.files.len());
            return Some(problem("files", message, format!("list at most {MAX_FILE_COUNT} files")));
        }
        for (name, ProgramFile { file, text }) in self.files {
            let field = format!("files.{name}");
            // Also detects a path that `components` would change, such as `a//b` or `a/`.
            let is_plain = |it| matches!(it, Component::Normal(_));
            let is_within = Path::new(name).components().all(is_plain)
                && name.split('/').count() == Path::new(name).components().count();
            if name.is_empty() || name.contains('\0') || !is_within {
                let message = format!("`{name}` is not a path within the program's directory");
                return Some(problem("files", message, "write a relative path without `..`"));
            }
            if let Some(other) = self.files.keys().find(|it| *it != name && Path::new(it).starts_with(name)) {
                let message = format!("`{name}` is a file, and the directory of `{other}`");
                return Some(problem("files", message, "use another name for one of them"));
            }
            if file.is_some() == text.is_some() {
                let help = "write `{ file: PATH }`, or `{ text: … }` with the content";
                return Some(problem(field, "either `file` or `text` must be set", help));
            }
            if file.as_ref().is_some_and(|it| it.is_empty() || it.chars().count() > MAX_WORD) {
                let help = format!("write a path of 1 to {MAX_WORD} characters");
                return Some(problem(format!("{field}.file"), "the path cannot name a file", help));
            }
        }
        let bytes: usize = self.files.values().filter_map(|it| it.text.as_ref()).map(String::len).sum();
        (bytes > MAX_FILES).then(|| {
            let help = format!(
                "use at most {} KiB; install larger files on the machine, and name them in `command`",
                MAX_FILES >> 10
            );
            let is_alone =
                |it: &(&String, &ProgramFile)| it.1.text.as_ref().is_some_and(|it| it.len() > MAX_FILES);
            let alone = self.files.iter().find(is_alone).map(|(name, _)| format!("files.{name}.text"));
            let field = alone.unwrap_or_else(|| "files".to_owned());
            problem(field, format!("the files of the program are too large ({bytes} bytes)"), help)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn program(mut value: Value) -> Program {
        let usual = json!({ "command": ["python3", "a.py"], "scope": "process" });
        for (name, it) in usual.as_object().unwrap() {
            value.as_object_mut().unwrap().entry(name).or_insert_with(|| it.clone());
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_name_is_that_of_a_file_or_of_the_command() {
        let of_file = json!({ "files": { "a.py": { "text": "" } } });
        assert_eq!(program(of_file).name(), "a.py");
        assert_eq!(program(json!({ "command": ["/usr/bin/protocol", "-v"] })).name(), "protocol");
    }

    #[test]
    fn a_program_that_cannot_be_run_is_rejected() {
        assert_eq!(program(json!({})).problem(), None);
        for (value, field) in [
            (json!({ "command": [] }), "command"),
            (json!({ "command": [""] }), "command"),
            (json!({ "env": { "A=B": "" } }), "env.A=B"),
            (json!({ "env": { "FAULTLINE_ID": "x" } }), "env.FAULTLINE_ID"),
            (json!({ "files": { "../a.py": { "text": "" } } }), "files"),
            (json!({ "files": { "/a.py": { "text": "" } } }), "files"),
            (json!({ "files": { "a//b": { "text": "" } } }), "files"),
            (json!({ "files": { "a/": { "text": "" } } }), "files"),
            (json!({ "files": { "a": { "text": "" }, "a/b/c": { "text": "" } } }), "files"),
            (json!({ "files": { "a.py": {} } }), "files.a.py"),
            (json!({ "files": { "a.py": { "text": "", "file": "b" } } }), "files.a.py"),
            (json!({ "files": { "a.py": { "text": "x".repeat(MAX_FILES + 1) } } }), "files.a.py.text"),
            (json!({ "promises": ["repetition"] }), "promises"),
            (json!({ "promises": ["eventsLogged"] }), "promises"),
            (json!({ "survives": 0 }), "survives"),
            (json!({ "answerWithin": "1ms" }), "answerWithin"),
            (json!({ "parameters": { "checkpointEvery": "soon" } }), "parameters"),
        ] {
            assert_eq!(program(value.clone()).problem().map(|it| it.0).as_deref(), Some(field), "{value}");
        }
    }
}
