//! Clients of a system: programs that carry out the operations that Faultline asks for, so that it can judge what they are
//! told (docs/histories.md).

use std::collections::BTreeMap;

use faultline_consistency::{MODELS, Model, Workload, model};
use faultline_core::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::program::{self, ProgramProblem};
use super::system::problem_of_words;
use crate::quantity::Duration;
use crate::validate::one_of;

/// The largest number of entries in `clients`.
pub(crate) const MAX_HISTORIES: usize = 8;
/// The largest number of clients of a history.
const MAX_CLIENTS: u32 = 64;
/// The smallest and the largest number of arrivals per second.
const RATES: (f64, f64) = (0.1, 10_000.0);
/// The shortest and the longest time for an answer.
const TIMEOUTS: (Span, Span) = (Span::from_millis(10), Span::from_secs(60));
/// The largest weight of a kind of operation.
const MAX_WEIGHT: u32 = 1000;
/// The largest numbers of keys, of operations for each of them, and of accounts.
const MAX_KEYS: u32 = 1000;
const MAX_OPS_PER_KEY: u32 = 1_000_000;
/// The largest number of operations of a history that are judged.
pub(crate) const MAX_OPERATIONS: u64 = 1_000_000;

/// Programs that carry out operations on the system. Faultline decides what they are asked and when, and judges their
/// answers. Each kind of operation is also a probe, such as `kv.write`.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clients {
    /// The node that runs the clients, or a cluster with a single node.
    #[schemars(length(min = 1, max = 64))]
    pub by: String,
    /// The program and its arguments, as templates. It runs with the node's environment variables, files and working
    /// directory.
    #[schemars(schema_with = "command")]
    pub command: Vec<String>,
    /// What the answers are compared with.
    #[schemars(schema_with = "models")]
    pub model: String,
    /// The level of consistency that the system promises. Default: the strongest of the model.
    #[schemars(length(min = 1, max = 40))]
    pub level: Option<String>,
    /// The number of clients. Default 5.
    #[schemars(range(min = 1, max = 64))]
    pub count: Option<u32>,
    /// The number of operations per second, over all clients. Default: 10 for each client.
    #[schemars(range(min = 0.1, max = 10_000))]
    pub rate: Option<f64>,
    /// The time for an answer. Default 1s.
    pub timeout: Option<Duration>,
    /// The weights of the kinds of operations. A kind that is omitted is not used. Default: all kinds, equally often.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "weights")]
    pub mix: BTreeMap<String, u32>,
    /// The number of keys in use at a time. Only for `register`, `list` and `log`. Default 3.
    #[schemars(range(min = 1, max = 1000))]
    pub keys: Option<u32>,
    /// The number of operations after which a key is replaced. Only for `register`, `list` and `log`. Default 300.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub ops_per_key: Option<u32>,
    /// The number of accounts, from 0, which `setup` must create. Only for `bank`. Default 8.
    #[schemars(range(min = 2, max = 1000))]
    pub accounts: Option<u32>,
    /// An object that is passed on to each client.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "parameters")]
    pub parameters: Map<String, Value>,
}

fn command(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The program and its arguments, as templates. It runs with the node's environment variables, files and working directory.",
        "minItems": 1,
        "maxItems": 64,
        "items": { "type": "string", "maxLength": super::MAX_TEXT, "description": "A word of the command." },
    })
}

fn models(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "description": "What the answers are compared with.",
        "enum": MODELS.iter().map(|it| it.name).collect::<Vec<_>>(),
    })
}

fn weights(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The weights of the kinds of operations. A kind that is omitted is not used. Default: all kinds, equally often.",
        "maxProperties": 4,
        "additionalProperties": {
            "type": "integer", "format": "uint32", "minimum": 0, "maximum": MAX_WEIGHT, "description": "A weight.",
        },
    })
}

fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "An object that is passed on to each client.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

impl Clients {
    /// Returns the model, if it exists.
    pub fn model(&self) -> Option<&'static Model> {
        model(&self.model)
    }

    /// Returns [`level`](field@Clients::level), or the strongest level of the model.
    pub fn level(&self) -> &str {
        let strongest = || self.model().map_or("", |it| it.levels[0]);
        self.level.as_deref().unwrap_or_else(strongest)
    }

    /// Returns [`count`](field@Clients::count), or its default.
    pub fn count(&self) -> u32 {
        self.count.unwrap_or(5)
    }

    /// Returns [`rate`](field@Clients::rate), or its default.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or_else(|| f64::from(self.count()) * 10.0)
    }

    /// Returns [`timeout`](field@Clients::timeout), or its default.
    pub fn timeout(&self) -> Span {
        self.timeout.map_or(Span::from_secs(1), |it| it.0)
    }

    /// Returns the operations of the clients in a run with this seed.
    pub fn workload(&self, seed: u64) -> Workload {
        let all = self.model().map(Workload::kinds_of).unwrap_or_default();
        let mix = match self.mix.is_empty() {
            true => all.iter().map(|it| ((*it).to_owned(), 1)).collect(),
            false => self.mix.clone(),
        };
        Workload {
            seed,
            model: self.model.clone(),
            every: Span((1e9 / self.rate()) as u64),
            mix,
            keys: self.keys.unwrap_or(3),
            ops_per_key: self.ops_per_key.unwrap_or(300),
            accounts: self.accounts.unwrap_or(8),
        }
    }

    /// Returns the first problem that the fields alone show.
    pub(super) fn problem(&self, name: &str) -> Option<ProgramProblem> {
        let field = |it: &str| format!("clients.{name}.{it}");
        let Some(model) = self.model() else {
            let names: Vec<&str> = MODELS.iter().map(|it| it.name).collect();
            let message = format!("there is no model `{}`", self.model);
            return Some(program::problem(field("model"), message, one_of(&self.model, &names)));
        };
        if let Some(level) = self.level.as_ref().filter(|it| !model.levels.contains(&it.as_str())) {
            let message = format!("the model `{}` has no level `{level}`", model.name);
            return Some(program::problem(field("level"), message, one_of(level, model.levels)));
        }
        problem_of_words(&field("command"), &self.command)
            .or_else(|| self.problem_of_numbers(&field))
            .or_else(|| self.problem_of_mix(model, field("mix")))
            .or_else(|| self.problem_of_keys(model, &field))
    }

    fn problem_of_numbers(&self, field: &dyn Fn(&str) -> String) -> Option<ProgramProblem> {
        let range = |name: &str, found: Option<u32>, least: u32, most: u32| {
            found.filter(|it| !(least..=most).contains(it)).map(|it| {
                let help = format!("write a number from {least} to {most}");
                program::problem(field(name), format!("{it} is out of range"), help)
            })
        };
        let of_rate = self.rate.filter(|it| !(RATES.0..=RATES.1).contains(it)).map(|it| {
            let help = format!("write a number from {} to {}", RATES.0, RATES.1);
            program::problem(field("rate"), format!("{it} is out of range"), help)
        });
        let of_timeout =
            Some(self.timeout()).filter(|it| !(TIMEOUTS.0..=TIMEOUTS.1).contains(it)).map(|it| {
                let help = format!("write a time from {} to {}", Duration(TIMEOUTS.0), Duration(TIMEOUTS.1));
                program::problem(field("timeout"), format!("{} is out of range", Duration(it)), help)
            });
        range("count", self.count, 1, MAX_CLIENTS)
            .or(of_rate)
            .or(of_timeout)
            .or_else(|| range("keys", self.keys, 1, MAX_KEYS))
            .or_else(|| range("opsPerKey", self.ops_per_key, 1, MAX_OPS_PER_KEY))
            .or_else(|| range("accounts", self.accounts, 2, MAX_KEYS))
    }

    fn problem_of_mix(&self, model: &Model, field: String) -> Option<ProgramProblem> {
        if self.mix.is_empty() {
            return None;
        }
        if model.name == "lock" {
            let message = "a lock is acquired and released in turn, so `mix` has no effect";
            return Some(program::problem(field, message, "omit it"));
        }
        if let Some((kind, weight)) = self.mix.iter().find(|it| *it.1 > MAX_WEIGHT) {
            let help = format!("write a number from 0 to {MAX_WEIGHT}");
            return Some(program::problem(format!("{field}.{kind}"), format!("{weight} is too large"), help));
        }
        let kinds = Workload::kinds_of(model);
        if let Some(kind) = self.mix.keys().find(|it| !kinds.contains(&it.as_str())) {
            let message = format!("`{kind}` is not an operation of the model `{}`", model.name);
            return Some(program::problem(format!("{field}.{kind}"), message, one_of(kind, kinds)));
        }
        let read = model.reads.first()?;
        (!self.workload(0).kinds().contains(read)).then(|| {
            let help = format!("add `{read}`: without it, nothing can be judged");
            program::problem(field, format!("`{read}` is missing"), help)
        })
    }

    fn problem_of_keys(&self, model: &Model, field: &dyn Fn(&str) -> String) -> Option<ProgramProblem> {
        let has_keys = Workload::has_keys(model);
        let fields = [
            ("keys", self.keys.is_some() && !has_keys),
            ("opsPerKey", self.ops_per_key.is_some() && !has_keys),
            ("accounts", self.accounts.is_some() && model.name != "bank"),
        ];
        fields.into_iter().find(|it| it.1).map(|(name, _)| {
            let message = format!("`{name}` has no effect on the model `{}`", model.name);
            program::problem(field(name), message, "omit it")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(mut value: Value) -> Option<String> {
        let stated = value.as_object_mut().unwrap();
        stated.entry("by").or_insert_with(|| json!("clients-0"));
        stated.entry("command").or_insert_with(|| json!(["client"]));
        stated.entry("model").or_insert_with(|| json!("register"));
        let clients: Clients = serde_json::from_value(value).unwrap();
        clients.problem("kv").map(|(field, message, help)| format!("{field}: {message}; {help}"))
    }

    #[test]
    fn clients_that_cannot_be_judged_are_rejected() {
        assert_eq!(problem(json!({})), None);
        assert_eq!(problem(json!({ "mix": { "read": 2, "write": 1 }, "rate": 0.1, "keys": 1 })), None);
        for (value, part) in [
            (json!({ "model": "registers" }), "clients.kv.model: there is no model `registers`"),
            (json!({ "level": "strict" }), "the model `register` has no level `strict`"),
            (json!({ "command": [] }), "clients.kv.command"),
            (json!({ "count": 65 }), "clients.kv.count: 65 is out of range"),
            (json!({ "rate": 0.01 }), "clients.kv.rate"),
            (json!({ "rate": 20000 }), "clients.kv.rate"),
            (json!({ "timeout": "2m" }), "clients.kv.timeout"),
            (json!({ "mix": { "read": 1, "append": 1 } }), "clients.kv.mix.append"),
            (json!({ "mix": { "write": 1 } }), "add `read`: without it, nothing can be judged"),
            (json!({ "mix": { "read": 0, "write": 1 } }), "add `read`"),
            (json!({ "mix": { "read": 1001 } }), "clients.kv.mix.read"),
            (json!({ "model": "lock", "mix": { "acquire": 1 } }), "`mix` has no effect"),
            (json!({ "model": "set", "keys": 3 }), "`keys` has no effect on the model `set`"),
            (json!({ "accounts": 3 }), "`accounts` has no effect"),
        ] {
            let found = problem(value.clone()).unwrap_or_default();
            assert!(found.contains(part), "{value}: {found}");
        }
    }
}
