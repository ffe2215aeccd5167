//! Imports the events of a run that Faultline did not carry out: JSON lines become a manifest and a trace, which are
//! judged like those of any other run. `docs/events.md` describes the lines and the mappings.
//!
//! | module | content |
//! | --- | --- |
//! | `run` | the first and the last line, which describe the run |
//! | `fields` | the columns of one line, and the names in them |
//! | `fact` | a line's columns as a fact |
//! | `mapping` | rules that turn the lines of another system into these columns |
//! | `assembly` | the streams of all lives, and what follows from the lines: the supervisor's facts and the witnesses |

mod assembly;
mod fact;
mod fields;
mod mapping;
pub(crate) mod run;

use faultline_core::FactKind;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::bundle::Unique;
use crate::manifest::{EventsEntry, Manifest, MappingEntry};
use crate::memory::Trace;
use crate::seal::Hash;
use assembly::Assembly;
use fields::{Fields, Names};
pub use mapping::Mapping;
use run::{EndLine, RunLine};

/// The length of the longest line, in bytes.
const LONGEST_LINE: usize = 1 << 20;
/// The largest number of bytes that are imported.
pub const MOST_BYTES: u64 = 1 << 28;

/// Events that cannot be imported: where, what is wrong, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{what}", line.map(|it| format!("line {it}: ")).unwrap_or_default())]
pub struct ImportError {
    /// The number of the line, from 1; `None` if no line is at fault.
    pub line: Option<u64>,
    /// What is wrong, with the value found.
    pub what: String,
    /// The remedy.
    pub help: String,
}

impl ImportError {
    fn new(what: impl Into<String>, help: impl Into<String>) -> ImportError {
        ImportError { line: None, what: what.into(), help: help.into() }
    }
}

/// Imports events. `file` is the name of their file for readers, and `most` the largest number of facts.
///
/// # Errors
///
/// Fails at the first line that is malformed, or if there are too many facts. Missing lines are no error, but flaws of
/// the trace.
pub fn import(
    bytes: &[u8],
    file: &str,
    mapping: Option<&Mapping>,
    most: u64,
) -> Result<(Manifest, Trace), ImportError> {
    let mut import = Import { bytes, mapping, most, begun: None, ended: None, unmatched: 0 };
    for (number, line) in lines(bytes) {
        import.read(line).map_err(|error| ImportError { line: error.line.or(Some(number)), ..error })?;
    }
    import.finish(file)
}

/// Returns the lines that are not empty, with their numbers.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    lines.filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// One line, once its mapping has been applied.
struct Event {
    process: String,
    cluster: Option<String>,
    life: EventLife,
    number: Option<u64>,
    time: Option<i64>,
    /// The kind of fact, and its other columns; `None` for a line that no rule matches.
    fact: Option<(FactKind, Map<String, Value>)>,
}

/// The life to which an event belongs.
enum EventLife {
    /// The number of the life.
    Number(u32),
    /// The process's current life. It ends with a `failed` event, and when this text changes.
    Current(Option<String>),
}

/// The import of one file.
struct Import<'a> {
    bytes: &'a [u8],
    mapping: Option<&'a Mapping>,
    most: u64,
    begun: Option<Begun>,
    ended: Option<EndLine>,
    unmatched: u64,
}

/// What is known once the run has been described.
struct Begun {
    run: RunLine,
    /// The kinds of facts that the events contain whenever they happened; `None` for all.
    records: Option<Vec<FactKind>>,
    names: Names,
    assembly: Assembly,
}

impl Import<'_> {
    fn read(&mut self, line: &[u8]) -> Result<(), ImportError> {
        if line.len() > LONGEST_LINE {
            return Err(ImportError::new(
                format!("the line has {} bytes, but lines have at most {LONGEST_LINE}", line.len()),
                "omit fields that the import does not need",
            ));
        }
        let columns = object(line)?;
        if self.ended.is_some() {
            return Err(ImportError::new("the line follows the `end` line", "write the `end` line last"));
        }
        let event = columns.get("event").and_then(Value::as_str);
        match (event, &mut self.begun) {
            (Some("run"), None) => return self.begin(RunLine::read(line)?, false),
            (Some("run"), Some(_)) => {
                let help = "keep only the first `run` line; import each run on its own";
                return Err(ImportError::new("a second `run` line, or one that is not the first", help));
            }
            (Some("end"), Some(_)) => {
                self.ended = Some(EndLine::read(line)?);
                return Ok(());
            }
            (_, Some(_)) => {}
            (_, None) => match self.mapping {
                Some(mapping) => self.begin(mapping.run()?, true)?,
                None => {
                    return Err(ImportError::new(
                        "the first line does not describe the run",
                        "begin with a line such as {\"event\":\"run\",\"version\":1,\"name\":\"mine\",\
                         \"clusters\":{\"a\":[\"a-0\"]}}, or use `--mapping`",
                    ));
                }
            },
        }
        self.add(self.event(columns)?)
    }

    /// Applies the mapping to a line; `None` if the line belongs to no process.
    fn event(&self, columns: Map<String, Value>) -> Result<Option<Event>, ImportError> {
        match self.mapping {
            Some(mapping) => mapping.apply(&columns),
            None => direct(columns).map(Some),
        }
    }

    fn begin(&mut self, run: RunLine, is_open: bool) -> Result<(), ImportError> {
        let names = run.names(is_open)?;
        let declared = match self.mapping.filter(|_| is_open) {
            Some(mapping) => mapping.records(),
            None => run.records.clone(),
        };
        let records = match declared {
            Some(records) => records.kinds(),
            None => Some(self.occurring()),
        };
        let has = |kind| records.as_ref().is_none_or(|it| it.contains(&kind));
        let assembly = Assembly::new(has(FactKind::LifeStarted), has(FactKind::Saved));
        self.begun = Some(Begun { run, records, names, assembly });
        Ok(())
    }

    /// Returns the kinds of facts that occur. Lines that are malformed are reported when they are read.
    fn occurring(&self) -> Vec<FactKind> {
        let mut kinds = Vec::new();
        for (_, line) in lines(self.bytes).filter(|(_, line)| line.len() <= LONGEST_LINE) {
            let event = object(line).and_then(|columns| self.event(columns));
            if let Ok(Some(Event { fact: Some((kind, _)), .. })) = event
                && !kinds.contains(&kind)
            {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Adds an event; `None` stands for a line that belongs to no process.
    fn add(&mut self, event: Option<Event>) -> Result<(), ImportError> {
        let Some(event) = event else {
            self.unmatched += 1;
            return Ok(());
        };
        let Some(Begun { run, names, assembly, .. }) = &mut self.begun else { return Ok(()) };
        let process = names.process(&event.process)?;
        if let Some(cluster) = &event.cluster {
            names.join(process, cluster)?;
        }
        let place = assembly.place(process, &event)?;
        if assembly.facts() > self.most {
            return Err(ImportError::new(
                format!("the file has more than {} facts, the limit of this program", self.most),
                "use a larger `--memory`, or import a part of the run",
            ));
        }
        let Some((kind, columns)) = event.fact else {
            self.unmatched += 1;
            return Ok(());
        };
        let mut fields = Fields::new(kind, process, columns, names);
        let fact = fact::read(kind, assembly.facts_at(place), run, &mut fields)?;
        let state = fields.state()?;
        fields.finish()?;
        assembly.add(place, fact, state)
    }

    fn finish(self, file: &str) -> Result<(Manifest, Trace), ImportError> {
        let Some(Begun { run, records, names, assembly }) = self.begun else {
            return Err(ImportError::new("the file has no lines", "write one JSON object per line"));
        };
        let events = EventsEntry {
            file: file.to_owned(),
            digest: Hash::of_bytes(self.bytes),
            mapping: self.mapping.map(Mapping::entry),
            records,
            unmatched: self.unmatched,
        };
        let (processes, clusters) = names.finish();
        if processes.is_empty() {
            return Err(ImportError::new(
                "no line belongs to a process",
                "check that `processFrom` of the mapping names a field of the lines",
            ));
        }
        let mut trace = Trace::default();
        let outcome = self.ended.as_ref().map(EndLine::outcome).transpose()?;
        let end = self.ended.as_ref().map_or((None, None), |it| (it.time_ns, it.events));
        let duration = assembly.finish(processes.len() as u32, outcome.as_ref(), end, &mut trace)?;
        let manifest = run.manifest(processes, clusters, events, outcome, duration)?;
        Ok((manifest, trace))
    }
}

/// Reads an event that has the columns of Faultline.
fn direct(mut columns: Map<String, Value>) -> Result<Event, ImportError> {
    let mut common = fields::Common(&mut columns);
    let missing = |column| move || fields::missing(column, "every event");
    let process = common.text("process")?.ok_or_else(missing("process"))?;
    Ok(Event {
        cluster: common.text("cluster")?,
        life: EventLife::numbered(common.number("life")?, &process),
        number: common.number("number")?,
        time: common.time("time_ns")?,
        fact: Some((fields::kind(&common.text("fact")?.ok_or_else(missing("fact"))?)?, columns)),
        process,
    })
}

impl EventLife {
    /// Returns the life with this number; without one, the first.
    fn numbered(number: Option<u32>, process: &str) -> EventLife {
        EventLife::Number(number.unwrap_or(u32::from(process != fields::SUPERVISOR)))
    }
}

/// Parses a line as a JSON object in which no key occurs twice.
fn object(line: &[u8]) -> Result<Map<String, Value>, ImportError> {
    match serde_json::from_slice(line).map(|Unique(value)| value) {
        Ok(Value::Object(columns)) => Ok(columns),
        Ok(_) => Err(ImportError::new("the line is not a JSON object", "write one JSON object per line")),
        Err(error) => Err(ImportError::new(
            format!("the line is not JSON: {}", crate::printable(&error.to_string())),
            "write one JSON object per line",
        )),
    }
}

impl Mapping {
    fn entry(&self) -> MappingEntry {
        MappingEntry { name: self.name.clone(), digest: Hash::of_bytes(self.text.as_bytes()) }
    }
}
