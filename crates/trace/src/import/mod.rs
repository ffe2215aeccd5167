//! Imports the events of a run that Faultline did not carry out: JSON lines become a manifest and a trace, which are
//! judged like those of any other run. `docs/events.md` describes the lines and the mappings.
//!
//! | module | content |
//! | --- | --- |
//! | `lines` | the text, as other systems write it |
//! | `run` | the first and the last line, which describe the run |
//! | `fields` | the columns of one line, and the names in them |
//! | `fact` | a line's columns as a fact |
//! | `mapping` | rules that turn the lines of another system into these columns |
//! | `assembly` | the streams of all lives, and what follows from the lines: the supervisor's facts and the witnesses |

mod assembly;
mod fact;
mod fields;
mod lines;
mod mapping;
pub(crate) mod run;

use faultline_core::FactKind;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::flaw::{Flaw, FlawKind};
use crate::manifest::{EventsEntry, Manifest, MappingEntry};
use crate::memory::Trace;
use crate::seal::Hash;
use assembly::Assembly;
use fields::{Fields, Lives, Names};
use lines::{Line, lines};
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
    let mut import = Import { bytes, mapping, most, begun: None, ended: None, unmatched: 0, damaged: None };
    for (number, line) in lines(bytes) {
        import
            .read(number, line)
            .map_err(|error| ImportError { line: error.line.or(Some(number)), ..error })?;
    }
    import.finish(file)
}

/// Describes what a mapping makes of the first `most` lines, with their numbers. Without a mapping, the lines have the columns
/// of Faultline.
pub fn preview(bytes: &[u8], mapping: Option<&Mapping>, most: usize) -> Vec<(u64, String)> {
    let import = Import { bytes, mapping, most: 0, begun: None, ended: None, unmatched: 0, damaged: None };
    let described = |line: &[u8]| match lines::read(line) {
        Line::Object(columns) if columns.get("event").is_some_and(|it| it == "run" || it == "end") => {
            "describes the run".to_owned()
        }
        Line::Object(columns) => match import.event(columns) {
            Ok(None) => "left out: the line names no process".to_owned(),
            Ok(Some(event)) => event.in_words(),
            Err(error) => format!("error: {}; {}", error.what, error.help),
        },
        Line::Torn => "damaged: the line is cut off".to_owned(),
        Line::Other(error) if mapping.is_none() => format!("error: {}; {}", error.what, error.help),
        Line::Other(_) => "left out: the line is not a JSON object".to_owned(),
    };
    lines(bytes).take(most).map(|(number, line)| (number, described(line))).collect()
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

impl Event {
    /// Returns whether a value that is used contains the replacement of bytes that are not UTF-8.
    fn has_replaced_text(&self) -> bool {
        let is_replaced = |it: &str| it.contains(char::REPLACEMENT_CHARACTER);
        let life = match &self.life {
            EventLife::Number(_) | EventLife::Current(None) => None,
            EventLife::Given(life) | EventLife::Current(Some(life)) => Some(life),
        };
        let named = [Some(&self.process), self.cluster.as_ref(), life].into_iter().flatten();
        let mut columns = self.fact.iter().flat_map(|it| it.1.values());
        { named }.any(|it| is_replaced(it)) || columns.any(|it| is_replaced(&it.to_string()))
    }
}

/// The life to which an event belongs.
enum EventLife {
    /// The number of the life.
    Number(u32),
    /// What another system calls the life: a number from 0 or 1, the number of an operating-system process, or a text.
    Given(String),
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
    /// The first line that is damaged, and the number of such lines.
    damaged: Option<(u64, u64)>,
}

/// What is known once the run has been described.
struct Begun {
    run: RunLine,
    /// The kinds of facts that the events contain whenever they happened; `None` for all.
    records: Option<Vec<FactKind>>,
    names: Names,
    lives: Lives,
    assembly: Assembly,
}

impl Import<'_> {
    fn read(&mut self, number: u64, line: &[u8]) -> Result<(), ImportError> {
        let may_be_damaged = self.mapping.is_some() || self.begun.is_some();
        let columns = match lines::read(line) {
            Line::Object(columns) => columns,
            Line::Torn if may_be_damaged => return self.damage(number),
            Line::Torn => return Err(self.lacks_run()),
            // A log may contain other text between its lines.
            Line::Other(_) if self.mapping.is_some() => {
                return match line.trim_ascii_start().starts_with(b"{") {
                    true => self.damage(number),
                    false => {
                        self.unmatched += 1;
                        Ok(())
                    }
                };
            }
            Line::Other(error) => return Err(error),
        };
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
                None => return Err(self.lacks_run()),
            },
        }
        let event = self.event(columns)?;
        // Bytes that are not UTF-8 were replaced, so different names may have become equal.
        if str::from_utf8(line).is_err() && event.as_ref().is_some_and(Event::has_replaced_text) {
            return self.damage(number);
        }
        self.add(event)
    }

    /// Notes a line that is cut off or otherwise damaged. What it stated is missing.
    fn damage(&mut self, number: u64) -> Result<(), ImportError> {
        self.damaged.get_or_insert((number, 0)).1 += 1;
        Ok(())
    }

    fn lacks_run(&self) -> ImportError {
        ImportError::new(
            "the first line does not describe the run",
            "begin with a line such as {\"event\":\"run\",\"version\":1,\"name\":\"mine\",\
             \"clusters\":{\"a\":[\"a-0\"]}}, or use `--mapping`",
        )
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
        let given = self.mapping.map_or_else(Vec::new, |it| it.lives(self.objects()));
        let lives = Lives::of(given.iter().map(String::as_str));
        self.begun = Some(Begun { run, records, names, lives, assembly });
        Ok(())
    }

    /// Iterates over the lines that are JSON objects.
    fn objects(&self) -> impl Iterator<Item = Map<String, Value>> {
        lines(self.bytes).filter_map(|(_, line)| match lines::read(line) {
            Line::Object(columns) => Some(columns),
            Line::Torn | Line::Other(_) => None,
        })
    }

    /// Returns the kinds of facts that occur. Lines that are malformed are reported when they are read.
    fn occurring(&self) -> Vec<FactKind> {
        let mut kinds = Vec::new();
        for columns in self.objects() {
            if let Ok(Some(Event { fact: Some((kind, _)), .. })) = self.event(columns)
                && !kinds.contains(&kind)
            {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Adds an event; `None` stands for a line that belongs to no process.
    fn add(&mut self, event: Option<Event>) -> Result<(), ImportError> {
        let Some(mut event) = event else {
            self.unmatched += 1;
            return Ok(());
        };
        let Some(Begun { run, names, lives, assembly, .. }) = &mut self.begun else { return Ok(()) };
        if let EventLife::Given(given) = &event.life {
            event.life = EventLife::Number(lives.number(&event.process, given));
        }
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
        let Some(Begun { run, records, names, assembly, .. }) = self.begun else {
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
        if let Some((first, lines)) = self.damaged {
            trace.flaws.push(Flaw { stream: None, kind: FlawKind::Damaged { first, lines } });
        }
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

impl Event {
    /// Describes the event for the author of a mapping.
    fn in_words(&self) -> String {
        let life = match &self.life {
            EventLife::Number(number) => format!(", life {number}"),
            EventLife::Given(given) | EventLife::Current(Some(given)) => format!(", life \"{given}\""),
            EventLife::Current(None) => String::new(),
        };
        let number = self.number.map(|it| format!(", number {it}")).unwrap_or_default();
        let time = self.time.map(|it| format!(", {it} ns")).unwrap_or_default();
        let fact = match &self.fact {
            Some((kind, columns)) => {
                format!("{} {}", crate::row::kind_name(*kind), Value::Object(columns.clone()))
            }
            None => "no rule matches".to_owned(),
        };
        crate::printable(&format!("{}{life}{number}{time}: {fact}", self.process))
    }
}

impl Mapping {
    fn entry(&self) -> MappingEntry {
        MappingEntry { name: self.name.clone(), digest: Hash::of_bytes(self.text.as_bytes()) }
    }
}
