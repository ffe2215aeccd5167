//! The columns of one line, and the names in them.

use std::collections::BTreeMap;

use faultline_core::{
    Attempt, ClusterId, FactKind, FactNo, GroupId, ImageName, Incarnation, Life, MessageId, Position,
    ProcessId, Role, Scope, Sn, TaskId, Vectors, Witness,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ImportError;
use crate::manifest::{ClusterEntry, ProcessEntry};
use crate::printable::is_printable;
use crate::row::COLUMNS;

/// The name of the supervisor in the column `process`.
pub(super) const SUPERVISOR: &str = "supervisor";
/// The largest number of processes and of clusters.
const MOST_NAMES: usize = 10_000;
/// The length of the longest name, in bytes.
const LONGEST_NAME: usize = 128;
/// The largest number of a life.
pub(super) const MOST_LIVES: u32 = 10_000;
/// The largest number that is that of a life even if the lines before it are missing.
const FEW_LIVES: u32 = 100;
/// Columns that follow from others. They are for readers of a table, and are not imported.
const DERIVED: [&str; 4] = ["cluster", "sender_cluster", "receiver_cluster", "text"];

const SEE: &str = "docs/events.md lists the columns of each kind of fact";

/// Returns the error about a column that is missing.
pub(super) fn missing(column: &str, of: &str) -> ImportError {
    ImportError::new(format!("the column `{column}` is missing"), format!("add it to {of}; {SEE}"))
}

fn wrong(column: &str, found: &Value, expected: &str) -> ImportError {
    let found: String = crate::printable(&found.to_string()).chars().take(80).collect();
    ImportError::new(format!("`{column}` must be {expected} (found {found})"), SEE)
}

/// Returns the kind of fact with this name.
pub(super) fn kind(name: &str) -> Result<FactKind, ImportError> {
    serde_json::from_value(name.into()).map_err(|_| {
        ImportError::new(
            format!("unknown fact `{}`", crate::printable(name)),
            "docs/bundle.md lists the kinds of facts; in a foreign log, use `--mapping`",
        )
    })
}

/// The names of processes, clusters and groups.
pub(super) struct Names {
    processes: Vec<Member>,
    clusters: Vec<String>,
    by_name: BTreeMap<String, ProcessId>,
    by_cluster: BTreeMap<String, ClusterId>,
    /// Identifiers that are texts or large numbers, with the numbers that stand for them.
    identifiers: BTreeMap<String, u32>,
    scope: Scope,
    /// Whether a name that is not known yet is that of a further process.
    is_open: bool,
}

struct Member {
    name: String,
    role: Role,
    /// The cluster; `None` if no line has named it yet.
    cluster: Option<ClusterId>,
}

impl Names {
    pub(super) fn new(scope: Scope, is_open: bool) -> Names {
        let (processes, clusters) = (Vec::new(), Vec::new());
        let (by_name, by_cluster, identifiers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Names { processes, clusters, by_name, by_cluster, identifiers, scope, is_open }
    }

    /// The number of the first identifier that is not a smaller number itself.
    const FIRST_IDENTIFIER: u32 = 1 << 31;

    /// Returns the number that stands for an identifier, in the order of their appearance.
    fn identifier(&mut self, given: String) -> u32 {
        let next = Names::FIRST_IDENTIFIER.saturating_add(self.identifiers.len() as u32);
        *self.identifiers.entry(given).or_insert(next)
    }

    /// Adds a process.
    pub(super) fn add(
        &mut self,
        name: &str,
        role: Role,
        cluster: Option<ClusterId>,
    ) -> Result<ProcessId, ImportError> {
        check_name("process", name)?;
        let process = ProcessId(self.processes.len() as u32);
        if name == SUPERVISOR || self.by_name.insert(name.to_owned(), process).is_some() {
            let help = "give each process its own name, other than `supervisor`";
            return Err(ImportError::new(format!("there are two processes named `{name}`"), help));
        }
        if self.processes.len() >= MOST_NAMES {
            let help =
                "import fewer processes; check that the field for the process does not name something else";
            return Err(ImportError::new(format!("there are more than {MOST_NAMES} processes"), help));
        }
        self.processes.push(Member { name: name.to_owned(), role, cluster });
        Ok(process)
    }

    /// Returns the cluster with this name, which is added unless it is known.
    pub(super) fn cluster(&mut self, name: &str) -> Result<ClusterId, ImportError> {
        if let Some(known) = self.by_cluster.get(name) {
            return Ok(*known);
        }
        check_name("cluster", name)?;
        let cluster = ClusterId(self.clusters.len() as u16);
        if self.clusters.len() >= MOST_NAMES {
            let help = "import fewer clusters";
            return Err(ImportError::new(format!("there are more than {MOST_NAMES} clusters"), help));
        }
        self.clusters.push(name.to_owned());
        self.by_cluster.insert(name.to_owned(), cluster);
        Ok(cluster)
    }

    /// Returns the process with this name.
    pub(super) fn process(&mut self, name: &str) -> Result<ProcessId, ImportError> {
        match self.by_name.get(name) {
            _ if name == SUPERVISOR => Ok(ProcessId::SUPERVISOR),
            Some(process) => Ok(*process),
            None if self.is_open => self.add(name, Role::RANK, None),
            None => Err(unknown("process", name)),
        }
    }

    /// Assigns a process to a cluster, unless it has one.
    pub(super) fn join(&mut self, process: ProcessId, cluster: &str) -> Result<(), ImportError> {
        if !self.is_open || process == ProcessId::SUPERVISOR {
            return Ok(());
        }
        let cluster = self.cluster(cluster)?;
        self.processes[process.index()].cluster.get_or_insert(cluster);
        Ok(())
    }

    fn known_cluster(&mut self, name: &str) -> Result<ClusterId, ImportError> {
        match self.by_cluster.get(name) {
            Some(cluster) => Ok(*cluster),
            None if self.is_open => self.cluster(name),
            None => Err(unknown("cluster", name)),
        }
    }

    fn group(&mut self, name: &str) -> Result<GroupId, ImportError> {
        match self.scope {
            Scope::Process => Ok(GroupId(self.process(name)?.0 as u16)),
            Scope::Cluster => Ok(GroupId(self.known_cluster(name)?.0)),
            Scope::Federation if name == "the federation" => Ok(GroupId(0)),
            Scope::Federation => Ok(GroupId(self.known_cluster(name)?.0)),
        }
    }

    /// Returns the entries of the manifest. A process without a cluster is a cluster of its own.
    pub(super) fn finish(mut self) -> (Vec<ProcessEntry>, Vec<ClusterEntry>) {
        let alone: Vec<(usize, String)> = (0..)
            .zip(&self.processes)
            .filter(|(_, it)| it.cluster.is_none())
            .map(|(at, it)| (at, it.name.clone()))
            .collect();
        for (at, name) in alone {
            // There are no more clusters than processes, whose names have been checked.
            self.processes[at].cluster = self.cluster(&name).ok();
        }
        let entry = |it: &Member| ProcessEntry {
            name: it.name.clone(),
            role: it.role,
            cluster: it.cluster.unwrap_or(ClusterId::OUTSIDE),
        };
        let processes: Vec<ProcessEntry> = self.processes.iter().map(entry).collect();
        let size =
            |id| processes.iter().filter(|it| it.cluster == id && it.role == Role::RANK).count() as u32;
        let clusters = (0..).map(ClusterId).zip(&self.clusters);
        let clusters = clusters.map(|(id, name)| ClusterEntry { name: name.clone(), nodes: size(id) });
        let clusters = clusters.collect();
        (processes, clusters)
    }
}

fn check_name(what: &str, name: &str) -> Result<(), ImportError> {
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_printable) {
        let found: String = crate::printable(name).chars().take(80).collect();
        return Err(ImportError::new(
            format!("`{found}` cannot be the name of a {what}"),
            format!("use a name of 1 to {LONGEST_NAME} printable characters"),
        ));
    }
    Ok(())
}

fn unknown(what: &str, name: &str) -> ImportError {
    let name: String = crate::printable(name).chars().take(80).collect();
    ImportError::new(
        format!("unknown {what} `{name}`"),
        format!("list every {what} in the `run` line, or correct the name"),
    )
}

/// Returns a whole number, which may be written as `11.0`.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    // Up to this number, every whole number has a form of its own.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let float = || value.as_f64().filter(|it| it.fract() == 0.0 && (0.0..=EXACT).contains(it));
    value.as_u64().or_else(|| float().map(|it| it as u64))
}

/// How another system counts the lives of its processes.
pub(super) struct Lives {
    counting: Counting,
    /// The numbers of lives that are counted by appearance.
    numbers: BTreeMap<(String, String), u32>,
    newest: BTreeMap<String, u32>,
}

enum Counting {
    /// Lives have the numbers 1, 2, ….
    FromOne,
    /// Lives have the numbers 0, 1, ….
    FromZero,
    /// Lives have other names, such as the numbers of operating-system processes.
    ByAppearance,
}

impl Lives {
    /// Determines how the lives of a log are counted, from their names.
    pub(super) fn of<'a>(given: impl Iterator<Item = &'a str>) -> Lives {
        let numbers: Option<Vec<u32>> = given.map(|it| it.parse().ok()).collect();
        let counting = match numbers.map(|it| (it.iter().min().copied(), it.iter().max().copied())) {
            Some((Some(0), Some(0..=MOST_LIVES))) => Counting::FromZero,
            Some((None | Some(1), None | Some(..=MOST_LIVES)) | (_, Some(..=FEW_LIVES))) => Counting::FromOne,
            _ => Counting::ByAppearance,
        };
        Lives { counting, numbers: BTreeMap::new(), newest: BTreeMap::new() }
    }

    /// Returns the number of a life.
    pub(super) fn number(&mut self, process: &str, given: &str) -> u32 {
        let number = || given.parse().unwrap_or(u32::MAX);
        match self.counting {
            _ if process == SUPERVISOR => 0,
            Counting::FromOne => number(),
            Counting::FromZero => number().saturating_add(1),
            Counting::ByAppearance => {
                let newest = self.newest.entry(process.to_owned()).or_default();
                *self.numbers.entry((process.to_owned(), given.to_owned())).or_insert_with(|| {
                    *newest += 1;
                    *newest
                })
            }
        }
    }
}

/// Columns that are read before the kind of fact is known.
pub(super) struct Common<'a>(pub(super) &'a mut Map<String, Value>);

impl Common<'_> {
    /// Takes a column with text; `None` if it is absent or null.
    pub(super) fn text(&mut self, column: &str) -> Result<Option<String>, ImportError> {
        match self.0.remove(column) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(column, &other, "text")),
        }
    }

    /// Takes a column with a whole number.
    pub(super) fn number<T: TryFrom<u64>>(&mut self, column: &str) -> Result<Option<T>, ImportError> {
        let Some(value) = self.0.remove(column).filter(|it| !it.is_null()) else { return Ok(None) };
        match whole_number(&value).and_then(|it| T::try_from(it).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(column, &value, "a whole number that is not too large")),
        }
    }

    /// Takes a column with a time in nanoseconds.
    pub(super) fn time(&mut self, column: &str) -> Result<Option<i64>, ImportError> {
        let Some(value) = self.0.remove(column).filter(|it| !it.is_null()) else { return Ok(None) };
        value.as_i64().map(Some).ok_or_else(|| wrong(column, &value, "a time in whole nanoseconds"))
    }
}

/// The columns of one fact. Each is removed once it has been read, so that those left over can be reported.
pub(super) struct Fields<'a> {
    kind: FactKind,
    own: ProcessId,
    columns: Map<String, Value>,
    names: &'a mut Names,
}

impl<'a> Fields<'a> {
    pub(super) fn new(
        kind: FactKind,
        own: ProcessId,
        columns: Map<String, Value>,
        names: &'a mut Names,
    ) -> Fields<'a> {
        Fields { kind, own, columns, names }
    }

    fn kind_name(&self) -> String {
        format!("`{}`", crate::row::kind_name(self.kind))
    }

    fn needed<T>(&self, column: &str, value: Option<T>) -> Result<T, ImportError> {
        value.ok_or_else(|| missing(column, &self.kind_name()))
    }

    pub(super) fn optional_text(&mut self, column: &str) -> Result<Option<String>, ImportError> {
        Common(&mut self.columns).text(column)
    }

    pub(super) fn text(&mut self, column: &str) -> Result<String, ImportError> {
        let text = self.optional_text(column)?;
        self.needed(column, text)
    }

    pub(super) fn optional<T: TryFrom<u64>>(&mut self, column: &str) -> Result<Option<T>, ImportError> {
        Common(&mut self.columns).number(column)
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self, column: &str) -> Result<T, ImportError> {
        let number = self.optional(column)?;
        self.needed(column, number)
    }

    /// Reads a number that is 0 if it is absent.
    pub(super) fn or_zero<T: TryFrom<u64> + Default>(&mut self, column: &str) -> Result<T, ImportError> {
        Ok(self.optional(column)?.unwrap_or_default())
    }

    /// Reads a truth value that is false if it is absent.
    pub(super) fn flag(&mut self, column: &str) -> Result<bool, ImportError> {
        match self.columns.remove(column) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(column, &other, "true or false")),
        }
    }

    /// Reads a value that has the form of an entry of the manifest.
    pub(super) fn value<T: DeserializeOwned>(&mut self, column: &str) -> Result<T, ImportError> {
        let value = self.columns.remove(column);
        let value = self.needed(column, value)?;
        serde_json::from_value(value.clone()).map_err(|error| {
            let why = crate::printable(&error.to_string());
            wrong(column, &value, &format!("a value as in manifest.json: {why}"))
        })
    }

    /// Works like [`Fields::value`], but returns the default if the column is absent.
    pub(super) fn optional_value<T: DeserializeOwned + Default>(
        &mut self,
        column: &str,
    ) -> Result<T, ImportError> {
        let is_there = self.columns.get(column).is_some_and(|it| !it.is_null());
        if is_there { self.value(column) } else { Ok(T::default()) }
    }

    /// Returns the error about a column with this text, which is not one of those `expected`.
    pub(super) fn not_one_of(&self, column: &str, found: &str, expected: &str) -> ImportError {
        wrong(column, &found.into(), &format!("one of {expected}"))
    }

    pub(super) fn process_or_own(&mut self, column: &str) -> Result<ProcessId, ImportError> {
        let own = self.own;
        self.process_or(column, Some(own))
    }

    /// Reads the name of a process. `otherwise` stands for a missing name; without it, a name is required.
    pub(super) fn process_or(
        &mut self,
        column: &str,
        otherwise: Option<ProcessId>,
    ) -> Result<ProcessId, ImportError> {
        match (self.optional_text(column)?, otherwise) {
            (Some(name), _) => self.named(column, &name),
            (None, Some(process)) => Ok(process),
            (None, None) => self.process(column),
        }
    }

    pub(super) fn process(&mut self, column: &str) -> Result<ProcessId, ImportError> {
        let name = self.text(column)?;
        self.named(column, &name)
    }

    fn named(&mut self, column: &str, name: &str) -> Result<ProcessId, ImportError> {
        let found = self.names.process(name);
        found.map_err(|error| ImportError { what: format!("`{column}`: {}", error.what), ..error })
    }

    pub(super) fn cluster(&mut self, column: &str) -> Result<ClusterId, ImportError> {
        let name = self.text(column)?;
        self.names.known_cluster(&name)
    }

    /// Reads the name of a cluster. `otherwise` stands for a missing name; without it, a name is required.
    pub(super) fn cluster_or(
        &mut self,
        column: &str,
        otherwise: Option<ClusterId>,
    ) -> Result<ClusterId, ImportError> {
        match (self.optional_text(column)?, otherwise) {
            (Some(name), _) => self.names.known_cluster(&name),
            (None, Some(cluster)) => Ok(cluster),
            (None, None) => self.cluster(column),
        }
    }

    pub(super) fn group(&mut self, column: &str) -> Result<GroupId, ImportError> {
        let name = self.text(column)?;
        self.names.group(&name)
    }

    pub(super) fn task(&mut self, column: &str) -> Result<TaskId, ImportError> {
        let text = self.text(column)?;
        task(&text).ok_or_else(|| wrong(column, &text.into(), "16 hexadecimal digits"))
    }

    pub(super) fn tasks(&mut self, column: &str) -> Result<Vec<TaskId>, ImportError> {
        let text = self.optional_text(column)?.unwrap_or_default();
        let tasks: Option<Vec<TaskId>> = text.split_whitespace().map(task).collect();
        tasks
            .ok_or_else(|| wrong(column, &text.into(), "tasks of 16 hexadecimal digits, separated by spaces"))
    }

    pub(super) fn incarnation(&mut self, column: &str) -> Result<Incarnation, ImportError> {
        Ok(Incarnation(self.or_zero(column)?))
    }

    /// Reads the identity of a message. `is_sender` states whether the own process sent it if no other is named.
    pub(super) fn message(&mut self, is_sender: bool) -> Result<MessageId, ImportError> {
        let (from, to) = match is_sender {
            true => (self.process_or_own("sender")?, self.process("receiver")?),
            false => (self.process("sender")?, self.process_or_own("receiver")?),
        };
        let incarnation = self.incarnation("message_incarnation")?;
        let channel = format!("{} {}", from.0, to.0);
        let number = self.identifier("message_number", &channel)?;
        Ok(MessageId { from, to, incarnation, number: self.needed("message_number", number)? })
    }

    /// Reads an identifier that need not be a small number: a larger number or a text gets a number of its own among those
    /// of the same column and `scope`.
    fn identifier(&mut self, column: &str, scope: &str) -> Result<Option<u32>, ImportError> {
        let Some(value) = self.columns.remove(column).filter(|it| !it.is_null()) else { return Ok(None) };
        let given = match (&value, whole_number(&value)) {
            (_, Some(number)) => number.to_string(),
            (Value::String(text), None) => text.trim().to_owned(),
            _ => return Err(wrong(column, &value, "a whole number or a text")),
        };
        match given.parse::<u32>() {
            Ok(number) if number < Names::FIRST_IDENTIFIER => Ok(Some(number)),
            _ => Ok(Some(self.names.identifier(format!("{column} {scope} {given}")))),
        }
    }

    /// Reads a message that the own process receives, if the columns name one.
    pub(super) fn optional_message(&mut self) -> Result<Option<MessageId>, ImportError> {
        let is_there = self.columns.get("message_number").is_some_and(|it| !it.is_null());
        if is_there { self.message(false).map(Some) } else { Ok(None) }
    }

    /// Reads a checkpoint of the own process.
    pub(super) fn checkpoint(&mut self) -> Result<Position, ImportError> {
        self.optional_text("checkpoint_of")?;
        let incarnation = self.incarnation("checkpoint_incarnation")?;
        Ok(Position { incarnation, sn: Sn(self.number("checkpoint_sn")?) })
    }

    /// Reads the attempt at a checkpoint: the first, if it is absent.
    pub(super) fn attempt(&mut self) -> Result<Attempt, ImportError> {
        Ok(Attempt(self.identifier("checkpoint_attempt", "")?.unwrap_or(1)))
    }

    /// Reads the part of a checkpoint.
    pub(super) fn image(&mut self) -> Result<ImageName, ImportError> {
        let owner = self.process_or_own("checkpoint_of")?;
        let Position { incarnation, sn } = self.checkpoint()?;
        Ok(ImageName { owner, incarnation, sn, attempt: self.attempt()? })
    }

    /// Reads the part of a checkpoint, which is absent for the initial state.
    pub(super) fn optional_image(&mut self) -> Result<Option<ImageName>, ImportError> {
        let is_there = self.columns.get("checkpoint_sn").is_some_and(|it| !it.is_null());
        if is_there { self.image().map(Some) } else { Ok(None) }
    }

    pub(super) fn vectors(&mut self) -> Result<Vectors, ImportError> {
        let listed = self.positions("dependencies")?;
        if listed.iter().zip(0..).any(|((group, _), number)| group.0 != number) {
            return Err(ImportError::new(
                "`dependencies` does not list the clusters in order",
                "list every cluster in the order of the `run` line, or omit the column",
            ));
        }
        let ddv = listed.into_iter().map(|(_, position)| position).collect();
        Ok(Vectors { ddv, delivered: self.positions("delivered_positions")?.into() })
    }

    fn positions(&mut self, column: &str) -> Result<Vec<(GroupId, Position)>, ImportError> {
        let text = self.optional_text(column)?.unwrap_or_default();
        let bad = || wrong(column, &text.as_str().into(), "positions such as `paris=0.3 rennes=1.2`");
        let mut positions = Vec::new();
        for entry in text.split_whitespace() {
            let (name, position) = entry.rsplit_once('=').ok_or_else(bad)?;
            let (incarnation, sn) = position.split_once('.').ok_or_else(bad)?;
            let incarnation = incarnation.parse().map_err(|_| bad())?;
            let sn = sn.parse().map_err(|_| bad())?;
            positions.push((self.names.group(name)?, Position::new(incarnation, sn)));
        }
        Ok(positions)
    }

    /// Reads which facts a saved state contains; `None` if the line does not say.
    pub(super) fn state(&mut self) -> Result<Option<Witness>, ImportError> {
        let Some(life) = self.optional("state_life")? else { return Ok(None) };
        let upto = FactNo(self.number("state_facts")?);
        Ok(Some(Witness {
            life: Life(life),
            upto,
            sent: self.sum("state_sent")?,
            delivered: self.sum("state_delivered")?,
        }))
    }

    fn sum(&mut self, column: &str) -> Result<u64, ImportError> {
        let Some(text) = self.optional_text(column)? else { return Ok(0) };
        digits(&text).ok_or_else(|| wrong(column, &text.into(), "16 hexadecimal digits"))
    }

    /// Checks that every column was read.
    pub(super) fn finish(mut self) -> Result<(), ImportError> {
        self.columns.retain(|column, _| !DERIVED.contains(&column.as_str()));
        let Some(column) = self.columns.keys().next() else { return Ok(()) };
        let kind = self.kind_name();
        let name: String = crate::printable(column).chars().take(80).collect();
        Err(match COLUMNS.contains(&column.as_str()) {
            true => ImportError::new(format!("the column `{name}` does not apply to {kind}"), SEE),
            false => ImportError::new(
                format!("unknown column `{name}`"),
                format!("remove or rename it, or use `--mapping`; {SEE}"),
            ),
        })
    }
}

fn task(text: &str) -> Option<TaskId> {
    digits(text).map(TaskId)
}

fn digits(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_counted_from_0_or_1_or_by_appearance() {
        for (given, expected) in [
            (["1", "2"], [1, 2]),
            (["2", "3"], [2, 3]),
            (["0", "1"], [1, 2]),
            (["4711", "4802"], [1, 2]),
            (["4802", "4711"], [1, 2]),
            (["x", "y"], [1, 2]),
            (["1", "99999"], [1, 2]),
        ] {
            let mut lives = Lives::of(given.into_iter());
            assert_eq!(given.map(|it| lives.number("a", it)), expected, "{given:?}");
            assert_eq!(given.map(|it| lives.number("a", it)), expected, "{given:?}: a life keeps its number");
            assert_eq!(lives.number(SUPERVISOR, "0"), 0);
        }
        assert_eq!(Lives::of(["5"].into_iter()).number("a", "5"), 5);
        assert_eq!(Lives::of(std::iter::empty()).number("a", "3"), 3);
    }
}
