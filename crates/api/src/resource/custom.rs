//! Protocols and applications from other crates: how files name them, and what this program knows about them.
//!
//! Each program contains a fixed set of them, and registers their names and the schemas of their parameters here
//! before it reads a file. A program that hosts no processes, such as the operator, [accepts](accept_unknown) names
//! that are not registered.

use std::ops::RangeInclusive;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_core::{Promises, Role};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::FederationSpec;
use super::known::{Collection, Demand, Logs, SharedOptions};
use super::protocol::{Checkpointing, ProtocolSpec};
use crate::names::Names;
use crate::validate::similar;

/// A protocol or an application from another crate: its name and its parameters.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(transform = keep_parameters)]
pub struct Custom {
    /// Name under which the program has registered it.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
    /// All other fields: the parameters. To see their descriptions, run the subcommand `schema` of the program that
    /// contains the protocol or application.
    #[serde(flatten)]
    #[schemars(skip)]
    pub parameters: Parameters,
}

/// Tells API servers to keep fields that the definition does not describe. By default, they remove such
/// fields.
pub(super) fn keep_parameters(schema: &mut Schema) {
    schema.remove("additionalProperties");
    schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
}

/// The reason why parameters were rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParameter {
    /// The parameter; `None` if it is missing, or if the problem does not concern any single parameter.
    pub parameter: Option<String>,
    /// Description of the problem.
    pub message: String,
}

/// Properties of a registered protocol from another crate.
#[derive(Clone, Copy, Debug)]
pub struct KnownProtocol {
    /// Name in files.
    pub name: &'static str,
    /// What the protocol requires of an application.
    pub demand: Demand,
    /// Which messages the protocol logs.
    pub logs: Logs,
    /// When the protocol collects garbage.
    pub collection: Collection,
    /// Its parameters.
    pub parameters: KnownParameters,
    /// Returns what the protocol declares with these parameters. Fails if they are not valid for the federation.
    pub declare: fn(&Parameters, &FederationSpec) -> Result<Declared, InvalidParameter>,
}

/// What a protocol declares about itself, with its parameters.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its promises.
    pub promises: Promises,
    /// The processes that it needs in addition to the ranks, in order.
    pub extra_processes: Vec<Role>,
}

/// Properties of a registered application from another crate.
#[derive(Clone, Copy, Debug)]
pub struct KnownApplication {
    /// Name in files.
    pub name: &'static str,
    /// Its parameters.
    pub parameters: KnownParameters,
}

/// Permitted lengths of a name, in characters.
const NAMES: RangeInclusive<usize> = 1..=40;

/// Parameters, by name.
pub type Parameters = Map<String, Value>;

/// Schema, defaults and checks of the parameters of a protocol or an application.
#[derive(Clone, Copy, Debug)]
pub struct KnownParameters {
    /// Returns the schema of the parameters, which describes an object.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Returns the given parameters with defaults filled in. Fails if a parameter is invalid or unknown.
    pub complete: fn(&Parameters) -> Result<Parameters, InvalidParameter>,
    /// Fails if the parameters are not valid for the federation.
    pub check: fn(&Parameters, &FederationSpec) -> Result<(), InvalidParameter>,
}

impl KnownParameters {
    fn names(&self) -> Vec<String> {
        let schema = (self.schema)(&mut SchemaGenerator::default());
        let properties = schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(|it| it.keys().cloned()).collect()
    }
}

static PROTOCOLS: RwLock<Vec<KnownProtocol>> = RwLock::new(Vec::new());
static APPLICATIONS: RwLock<Vec<KnownApplication>> = RwLock::new(Vec::new());
static ACCEPTS_UNKNOWN: AtomicBool = AtomicBool::new(false);
static REJECTS_EXTRA: AtomicBool = AtomicBool::new(false);

/// Registers a protocol from another crate with this program.
///
/// # Panics
///
/// Panics if a built-in or registered protocol has this name.
pub fn register_protocol(known: KnownProtocol) {
    assert!(ProtocolSpec::names().all(|it| it != known.name), "the protocol `{}` already exists", known.name);
    PROTOCOLS.write().expect("no thread panics while it holds the lock").push(known);
}

/// Registers an application from another crate with this program.
///
/// # Panics
///
/// Panics if an application with this name is registered.
pub fn register_application(known: KnownApplication) {
    assert!(application(known.name).is_none(), "the application `{}` is already registered", known.name);
    APPLICATIONS.write().expect("no thread panics while it holds the lock").push(known);
}

/// Accepts names that are not registered. Intended for programs that host no processes, because another program runs
/// the federation.
pub fn accept_unknown() {
    ACCEPTS_UNKNOWN.store(true, Ordering::Relaxed);
}

/// Rejects protocols that need processes in addition to the ranks. Intended for the programs in pods: the operator does
/// not contain such a protocol, so it creates no pods for these processes.
pub fn reject_extra_processes() {
    REJECTS_EXTRA.store(true, Ordering::Relaxed);
}

/// Returns all registered protocols, in the order of registration.
pub(crate) fn protocols() -> Vec<KnownProtocol> {
    PROTOCOLS.read().expect("no thread panics while it holds the lock").clone()
}

/// Returns all registered applications, in the order of registration.
pub(crate) fn applications() -> Vec<KnownApplication> {
    APPLICATIONS.read().expect("no thread panics while it holds the lock").clone()
}

/// Returns the registered protocol with this name.
pub(super) fn protocol(name: &str) -> Option<KnownProtocol> {
    protocols().into_iter().find(|it| it.name == name)
}

fn application(name: &str) -> Option<KnownApplication> {
    applications().into_iter().find(|it| it.name == name)
}

/// The parameters that built-in protocols share. A protocol from another crate may also have them.
const SHARED: [&str; 6] =
    ["checkpointEvery", "checkpointEveryIn", "collectEvery", "replicas", "replicateTo", "logMemory"];

impl Custom {
    /// Returns the shared parameters that are set.
    pub(super) fn shared_options(&self) -> SharedOptions {
        shared_options(&self.parameters)
    }

    /// Changes the shared parameters. Those that the protocol does not have are ignored.
    pub(super) fn set_shared_options(&mut self, shared: &SharedOptions) {
        let own = protocol(&self.name).map(|it| it.parameters.names());
        let has = |name: &str, set: &Parameters| match &own {
            Some(own) => own.iter().any(|it| it == name),
            None => set.contains_key(name),
        };
        set_shared(&mut self.parameters, shared, has);
    }

    /// Returns the shared options with the protocol's own defaults filled in; `None` if the protocol has no
    /// `checkpointEvery`, is not registered, or has invalid parameters.
    pub(super) fn checkpointing(&self) -> Option<Checkpointing> {
        let known = protocol(&self.name)?;
        let all = (known.parameters.complete)(&self.parameters).ok()?;
        shared_options(&all).checkpointing()
    }

    /// Returns what the protocol declares in this federation; `None` if it is not registered or its parameters are
    /// invalid.
    pub(super) fn declared(&self, spec: &FederationSpec) -> Option<Declared> {
        (protocol(&self.name)?.declare)(&self.parameters, spec).ok()
    }

    /// Returns the problem with a protocol from another crate: the parameter, the message, and the suggested fix.
    pub(crate) fn problem_of_protocol(&self, spec: &FederationSpec) -> Option<(String, String, String)> {
        let names = protocols().into_iter().map(|it| it.name).collect();
        let problem = self.problem("protocol", names, protocol(&self.name).map(|it| it.parameters), spec);
        problem.or_else(|| self.problem_of_pods(spec).filter(|_| REJECTS_EXTRA.load(Ordering::Relaxed)))
    }

    /// Returns the problem with running the protocol in pods, if there is one.
    fn problem_of_pods(&self, spec: &FederationSpec) -> Option<(String, String, String)> {
        let extra = Names::extra_of(&self.declared(spec)?.extra_processes);
        let message = || {
            format!(
                "`{}` needs processes outside the clusters, for which there are no pods: {}",
                self.name,
                extra.join(", ")
            )
        };
        let help = "run the federation in virtual time or on local processes, with `faultline run`";
        (!extra.is_empty()).then(|| ("name".to_owned(), message(), help.to_owned()))
    }

    /// Returns the problem with an application from another crate: the parameter, the message, and the
    /// suggested fix.
    pub(crate) fn problem_of_application(&self, spec: &FederationSpec) -> Option<(String, String, String)> {
        let names = applications().into_iter().map(|it| it.name).collect();
        self.problem("application", names, application(&self.name).map(|it| it.parameters), spec)
    }

    fn problem(
        &self,
        kind: &str,
        names: Vec<&'static str>,
        known: Option<KnownParameters>,
        spec: &FederationSpec,
    ) -> Option<(String, String, String)> {
        let name = &self.name;
        let length = name.chars().count();
        if !NAMES.contains(&length) {
            let message = format!("the name of the {kind} must not have {length} characters");
            let help = format!("write a name of {} to {} characters", NAMES.start(), NAMES.end());
            return Some(("name".to_owned(), message, help));
        }
        let Some(known) = known else {
            if ACCEPTS_UNKNOWN.load(Ordering::Relaxed) {
                return None;
            }
            let message =
                format!("this program does not contain the {kind} `{name}`, which is part of another crate");
            let help = match similar(name, names.iter().copied()) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => format!(
                    "run the program that was built with `{name}` (docs/{kind}s.md); this one contains {}",
                    match &names[..] {
                        [] => format!("no custom {kind}"),
                        names => format!("only `{}`", names.join("`, `")),
                    }
                ),
            };
            return Some(("name".to_owned(), message, help));
        };
        let InvalidParameter { parameter, message } =
            (known.complete)(&self.parameters).and_then(|it| (known.check)(&it, spec)).err()?;
        let help = match &known.names()[..] {
            [] => format!("`{name}` has no parameters"),
            [only] => format!("the only parameter of `{name}` is `{only}`"),
            names => format!("the parameters of `{name}` are: {}", names.join(", ")),
        };
        Some((parameter.unwrap_or_default(), message, help))
    }
}

pub(super) fn shared_options(parameters: &Parameters) -> SharedOptions {
    serde_json::from_value(Value::Object(parameters.clone())).unwrap_or_default()
}

/// Changes the shared parameters that the protocol has.
pub(super) fn set_shared(
    parameters: &mut Parameters,
    shared: &SharedOptions,
    has: impl Fn(&str, &Parameters) -> bool,
) {
    let Ok(Value::Object(new)) = serde_json::to_value(shared) else {
        panic!("options have the form of an object")
    };
    for name in SHARED.into_iter().filter(|it| has(it, parameters)).collect::<Vec<_>>() {
        match new.get(name) {
            Some(value) => drop(parameters.insert(name.to_owned(), value.clone())),
            None => drop(parameters.remove(name)),
        }
    }
}

/// Adds the parameters of registered protocols and applications to the schema of a file.
pub(crate) fn describe(schema: &mut Value, generator: &mut SchemaGenerator) {
    let protocols = protocols().into_iter().map(|it| (it.name, it.parameters)).collect();
    let applications = applications().into_iter().map(|it| (it.name, it.parameters)).collect();
    for (list, known) in [("ProtocolSpec", protocols), ("ApplicationSpec", applications)] {
        let known: Vec<(&str, KnownParameters)> = known;
        let variants = schema.pointer_mut(&format!("/$defs/{list}/oneOf")).and_then(Value::as_array_mut);
        let custom =
            variants.and_then(|it| it.iter_mut().find_map(|it| it.pointer_mut("/properties/custom")));
        if let (Some(custom), false) = (custom, known.is_empty()) {
            let shapes = known.into_iter().map(|(name, parameters)| shape(name, parameters, generator));
            *custom = serde_json::json!({ "oneOf": shapes.collect::<Vec<_>>() });
        }
    }
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in generator.take_definitions(true) {
            definitions.entry(name).or_insert(definition);
        }
    }
}

fn shape(name: &str, parameters: KnownParameters, generator: &mut SchemaGenerator) -> Value {
    let mut schema = (parameters.schema)(generator).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        let properties = object.entry("properties").or_insert_with(|| Map::new().into());
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("name".to_owned(), serde_json::json!({ "const": name }));
        }
        let required = object.entry("required").or_insert_with(|| Vec::<Value>::new().into());
        if let Some(required) = required.as_array_mut() {
            required.push("name".into());
        }
    }
    schema
}
