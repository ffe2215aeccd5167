//! The first and the last line of a file of events, which describe the run.

use std::collections::BTreeMap;
use std::fmt;

use faultline_core::fault::{FaultAccount, Outcome};
use faultline_core::{
    Affected, ClusterId, Digest, FactKind, FaultModel, FaultNo, PlannedFault, ProcessId, Promise, Promises,
    Role, Scope, Span,
};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with_macros::skip_serializing_none;

use super::ImportError;
use super::fields::Names;
use crate::expectation::{Expectation, SystemEntry};
use crate::manifest::{
    BackendKind, Bounds, ClusterEntry, Copies, EventsEntry, Expected, FORMAT, Manifest, ProcessEntry,
    at_once_within,
};
use crate::memory::Trace;
use crate::possible::Extent;

/// The version of the format.
const VERSION: u32 = 1;

/// The first line. Entries with the names of entries of the manifest have the same form; in them, processes and clusters
/// are numbered in the order of this line.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RunLine {
    event: String,
    version: u32,
    name: String,
    protocol: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    seed: u64,
    clusters: Members,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<Other>,
    #[serde(default = "process")]
    scope: Scope,
    #[serde(default, skip_serializing_if = "is_default")]
    affected: Affected,
    #[serde(default, skip_serializing_if = "is_default")]
    survives: FaultModel,
    #[serde(default)]
    promises: Vec<Promise>,
    /// The kinds of facts that the log contains whenever they happened; without this entry, those that occur.
    pub(super) records: Option<Records>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<ClusterId>,
    bounds: Option<Bounds>,
    copies: Option<Copies>,
    #[serde(default, skip_serializing_if = "is_default")]
    volatile_storage: bool,
    longest_task: Option<Span>,
    #[serde(default)]
    spares: u32,
    #[serde(default = "at_once_within")]
    at_once_within: Span,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) plan: Vec<PlannedFault>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    drawn: Vec<FaultNo>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_random_faults: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faults: Vec<FaultAccount>,
    expected: Option<Expected>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) expectations: Vec<Expectation>,
    pub(super) system: Option<SystemEntry>,
}

/// A process outside all clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    name: String,
    role: Role,
}

/// The kinds of facts that a log contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "`records` must be `all`, or a list of kinds of facts (docs/bundle.md lists them)"
)]
pub(super) enum Records {
    /// All kinds.
    All(Everything),
    /// These kinds.
    Kinds(Vec<FactKind>),
}

impl Records {
    /// Returns the kinds; `None` for all.
    pub(super) fn kinds(self) -> Option<Vec<FactKind>> {
        match self {
            Records::All(_) => None,
            Records::Kinds(kinds) => Some(kinds),
        }
    }
}

/// The word that stands for all kinds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Everything {
    All,
}

/// The last line.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    event: String,
    outcome: String,
    /// The outcome as in the manifest, if its name does not say everything.
    detail: Option<Outcome>,
    pub(super) time_ns: Option<i64>,
    /// The number of lines between the first line and this one.
    pub(super) events: Option<u64>,
}

impl RunLine {
    /// Describes the run with this manifest.
    pub(crate) fn of(manifest: &Manifest) -> RunLine {
        let name = |process: ProcessId| manifest.processes[process.index()].name.clone();
        let ids = || (0..manifest.processes.len() as u32).map(ProcessId);
        let cluster_of = |process: ProcessId| manifest.processes[process.index()].cluster;
        let clusters = (0..).map(ClusterId).zip(&manifest.clusters);
        let members = clusters.map(|(id, entry)| {
            (entry.name.clone(), ids().filter(|it| cluster_of(*it) == id).map(name).collect())
        });
        let Promises { scope, affected, survives, .. } = manifest.promises;
        let outside = manifest.processes.iter().filter(|it| it.cluster == ClusterId::OUTSIDE);
        let events = manifest.events.as_ref().and_then(|it| it.records.clone());
        RunLine {
            event: "run".to_owned(),
            version: VERSION,
            name: manifest.name.clone(),
            protocol: Some(manifest.protocol.clone()),
            seed: manifest.seed,
            clusters: Members(members.collect()),
            others: outside.map(|it| Other { name: it.name.clone(), role: it.role }).collect(),
            scope,
            affected,
            survives,
            promises: Promise::ALL.into_iter().filter(|it| manifest.promises.include(*it)).collect(),
            records: Some(events.map_or(Records::All(Everything::All), Records::Kinds)),
            leaving: manifest.leaving.clone(),
            bounds: manifest.bounds.clone(),
            copies: manifest.copies,
            volatile_storage: manifest.volatile_storage,
            longest_task: manifest.longest_task,
            spares: manifest.spares,
            at_once_within: manifest.at_once_within,
            plan: manifest.plan.clone(),
            drawn: manifest.drawn.clone(),
            has_random_faults: manifest.has_random_faults,
            faults: manifest.faults.clone(),
            expected: manifest.expected.clone(),
            expectations: manifest.expectations.clone(),
            system: manifest.system.clone(),
        }
    }

    pub(super) fn read(line: &[u8]) -> Result<RunLine, ImportError> {
        let run: RunLine = parse(line, "run")?;
        if run.version != VERSION {
            return Err(ImportError::new(
                format!("`version` must be {VERSION} (found {})", run.version),
                "use the version of Faultline that wrote the events",
            ));
        }
        Ok(run)
    }

    /// Describes the run of a log that has no such line.
    pub(super) fn mapped(name: &str, scope: Scope, promises: &[Promise]) -> Result<RunLine, ImportError> {
        let line = serde_json::json!({
            "event": "run", "version": VERSION, "name": name, "clusters": {}, "scope": scope, "promises": promises,
        });
        RunLine::read(line.to_string().as_bytes())
    }

    /// Returns the names of the processes, numbered in the order of this line.
    pub(super) fn names(&self, is_open: bool) -> Result<Names, ImportError> {
        let mut names = Names::new(self.scope, is_open);
        if !self.name.chars().all(crate::is_printable) || self.name.is_empty() || self.name.len() > 128 {
            return Err(ImportError::new(
                format!("`name` is unusable (found `{}`)", crate::printable(&self.name)),
                "use 1 to 128 printable characters",
            ));
        }
        for (number, (cluster, members)) in (0_u32..).zip(&self.clusters.0) {
            let id = names.cluster(cluster)?;
            if u32::from(id.0) != number {
                let help = "give each cluster its own name";
                return Err(ImportError::new(format!("there are two clusters named `{cluster}`"), help));
            }
            members.iter().try_for_each(|it| names.add(it, Role::RANK, Some(id)).map(drop))?;
        }
        for other in &self.others {
            if other.role == Role::RANK {
                let help = "use 1 for a storage server, 2 for a recovery process, 3 for an event logger";
                return Err(ImportError::new("`role` must not be 0 outside all clusters", help));
            }
            names.add(&other.name, other.role, Some(ClusterId::OUTSIDE))?;
        }
        Ok(names)
    }

    /// Returns the manifest of the run.
    pub(super) fn manifest(
        self,
        processes: Vec<ProcessEntry>,
        clusters: Vec<ClusterEntry>,
        events: EventsEntry,
        outcome: Option<Outcome>,
        duration: Span,
    ) -> Result<Manifest, ImportError> {
        self.check(processes.len(), clusters.len())?;
        let promises = Promises::of_scope(self.scope).affecting(self.affected).surviving(self.survives);
        let expected = self.expected.map(|it| Expected { source: crate::printable(&it.source), ..it });
        Ok(Manifest {
            format: FORMAT,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
            program: None,
            name: self.name,
            backend: BackendKind::Events,
            seed: self.seed,
            federation: "# This run was imported from `events.jsonl`. It has no federation file.\n"
                .to_owned(),
            protocol: crate::printable(&self.protocol.unwrap_or_else(|| "unknown".to_owned())),
            promises: promises.with(&self.promises),
            leaving: self.leaving,
            clusters,
            processes,
            bounds: self.bounds,
            copies: self.copies,
            volatile_storage: self.volatile_storage,
            longest_task: self.longest_task,
            plan: self.plan,
            faults: self.faults,
            drawn: self.drawn,
            has_random_faults: self.has_random_faults,
            effects: Vec::new(),
            pressure: None,
            environment: BTreeMap::new(),
            spares: self.spares,
            at_once_within: self.at_once_within,
            links: Vec::new(),
            expected,
            expectations: self.expectations,
            system: self.system,
            outcome,
            waiting: Vec::new(),
            started_unix_ms: 0,
            duration,
            facts: Vec::new(),
            events: Some(events),
        })
    }

    /// Checks that the entries that number processes and clusters number existing ones.
    fn check(&self, processes: usize, clusters: usize) -> Result<(), ImportError> {
        let extent = Extent { processes, clusters };
        let fails = |it: &PlannedFault| !extent.allows_target(&it.fault);
        let ranks = processes - self.others.len();
        let wrong = if self.plan.iter().any(fails) {
            "plan"
        } else if self.leaving.iter().any(|it| it.index() >= clusters) {
            "leaving"
        } else if self.bounds.as_ref().is_some_and(|it| it.checkpoint_every.len() != clusters) {
            "bounds"
        } else if self.expected.iter().flat_map(|it| &it.digests).any(|(it, _)| it.index() >= ranks) {
            "expected"
        } else if !self.expectations.iter().all(|it| it.is_possible(extent, self.system.as_ref())) {
            "expectations"
        } else if self.system.iter().any(|it| !it.is_possible(extent)) {
            "system"
        } else {
            return Ok(());
        };
        Err(ImportError {
            line: Some(1),
            what: format!(
                "`{wrong}` of the `run` line names a process, cluster or probe that does not exist"
            ),
            help: format!(
                "number them from 0, in the order of the `run` line ({processes} processes, {clusters} clusters)"
            ),
        })
    }
}

impl EndLine {
    /// Describes the end of a run; `None` if it was cut short, or if facts are missing.
    pub(crate) fn of(manifest: &Manifest, trace: &Trace, began: i64) -> Option<EndLine> {
        let outcome = manifest.outcome.as_ref().filter(|_| trace.flaws.is_empty())?;
        let says_all = matches!(outcome, Outcome::Completed | Outcome::Deadline | Outcome::Interrupted);
        Some(EndLine {
            event: "end".to_owned(),
            outcome: outcome.name().to_owned(),
            detail: (!says_all).then(|| outcome.clone()),
            time_ns: Some(manifest.duration.0 as i64 - began),
            events: Some(trace.len() as u64),
        })
    }

    pub(super) fn read(line: &[u8]) -> Result<EndLine, ImportError> {
        let end: EndLine = parse(line, "end")?;
        end.outcome().map(|_| end)
    }

    pub(super) fn outcome(&self) -> Result<Outcome, ImportError> {
        let outcome = match (&self.detail, self.outcome.as_str()) {
            (Some(detail), _) => detail.clone(),
            (None, "completed") => Outcome::Completed,
            (None, "deadline") => Outcome::Deadline,
            (None, "interrupted") => Outcome::Interrupted,
            (None, other) => {
                return Err(ImportError::new(
                    format!("unknown `outcome` of the `end` line (found `{}`)", crate::printable(other)),
                    "use `completed`, `deadline` or `interrupted`",
                ));
            }
        };
        if outcome.name() != self.outcome {
            let help = "omit `detail`, or correct `outcome`";
            return Err(ImportError::new("`outcome` and `detail` of the `end` line differ", help));
        }
        Ok(outcome)
    }
}

fn parse<T: DeserializeOwned>(line: &[u8], what: &str) -> Result<T, ImportError> {
    serde_json::from_slice(line).map_err(|error| {
        let why: String = crate::printable(&error.to_string()).chars().take(300).collect();
        ImportError::new(
            format!("the `{what}` line is malformed: {why}"),
            "docs/events.md describes this line",
        )
    })
}

/// Reads a digest of 32 hexadecimal digits.
pub(super) fn digest(text: &str) -> Option<Digest> {
    let value = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
    Some(Digest(value.to_be_bytes()))
}

fn process() -> Scope {
    Scope::Process
}

fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// The names of the processes of each cluster, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Members(Vec<(String, Vec<String>)>);

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, members)| (name, members)))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        from.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that lists the processes of each cluster")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(entry) = from.next_entry()? {
            members.push(entry);
        }
        Ok(Members(members))
    }
}
