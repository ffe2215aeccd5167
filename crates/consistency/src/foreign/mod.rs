//! Histories that other programs recorded.
//!
//! | format | recognised by |
//! | --- | --- |
//! | EDN of Jepsen and Maelstrom, and Porcupine's key-value text | a map or a vector of maps |
//! | log lines of Jepsen | `jepsen.util` in a line |
//! | JSON lines | `{"` at the beginning of a line |
//!
//! All formats contain the same events: a process invokes an operation, and completes it with `ok`, `fail` or `info`.
//! A file is read twice: first to learn whether all events have times and all values name a key.

mod assemble;
mod data;
mod edn;
mod write;

use crate::models::Model;
use crate::operation::History;
use assemble::{Assembly, Shape};
use data::Data;
use edn::Reader;
pub use write::write;

/// The longest file that is read, in bytes.
pub const MOST_BYTES: u64 = 256 << 20;

/// Why a file cannot be read as a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignError {
    /// The line, from 1, unless the error concerns the whole file.
    pub line: Option<u32>,
    /// What is wrong.
    pub what: String,
    /// The remedy.
    pub help: String,
}

impl ForeignError {
    fn new(line: u32, what: impl Into<String>, help: impl Into<String>) -> ForeignError {
        ForeignError { line: Some(line), what: what.into(), help: help.into() }
    }
}

/// What an event says about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Invoke,
    Ok,
    Fail,
    Info,
}

/// An event of a foreign history.
#[derive(Clone, Debug)]
struct Event {
    line: u32,
    process: Data,
    kind: Type,
    f: String,
    key: Option<Data>,
    value: Data,
    /// Nanoseconds.
    time: Option<u64>,
    /// Why the operation has no result; `Null` if the event does not say so.
    error: Data,
}

/// Reads a history that another program recorded, for a model.
///
/// # Errors
///
/// Fails if the file is malformed, contradicts itself, contains operations that the model lacks, or writes a value twice
/// although the model needs values that name their writer.
pub fn read(bytes: &[u8], model: &Model) -> Result<History, ForeignError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|it| **it == b'\n').count() + 1;
        ForeignError::new(line as u32, "the text is not UTF-8", "convert the file to UTF-8")
    })?;
    let mut shape = Shape::default();
    each_event(text, &mut |event| {
        shape.learn(&event);
        Ok(())
    })?;
    let mut assembly = Assembly::new(model, shape);
    each_event(text, &mut |event| assembly.add(event))?;
    assembly.finish()
}

/// Calls `each` with all events of a file.
fn each_event(
    text: &str,
    each: &mut impl FnMut(Event) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    let begin = text.trim_start();
    if text.lines().take(1000).any(|it| log_line(it).is_some()) {
        return each_log_line(text, each);
    }
    if begin.starts_with('{') && begin[1..].trim_start().starts_with('"') {
        return each_json_line(text, each);
    }
    if begin.starts_with(['{', '[', '(', '#', ';']) {
        return each_form(text, each);
    }
    Err(ForeignError {
        line: None,
        what: "this is not a history in a known format".to_owned(),
        help: "use EDN or log lines of Jepsen, or one JSON object per line".to_owned(),
    })
}

fn each_form(
    text: &str,
    each: &mut impl FnMut(Event) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    let mut reader = Reader::new(text, 1);
    let mut end = None;
    if reader.skip()?.is_some_and(|it| it == '[' || it == '(') {
        end = reader.open();
    }
    while let Some(next) = reader.skip()? {
        if Some(next) == end {
            break;
        }
        let line = reader.line;
        let form = reader.form()?;
        each(event(line, &form)?)?;
    }
    Ok(())
}

fn each_json_line(
    text: &str,
    each: &mut impl FnMut(Event) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    for (line, text) in (1..).zip(text.lines()).filter(|it| !it.1.trim().is_empty()) {
        let json: serde_json::Value = serde_json::from_str(text).map_err(|error| {
            let help = "each line is an object such as {\"process\":0,\"type\":\"invoke\",\"f\":\"read\",\"value\":null}";
            ForeignError::new(line, format!("invalid JSON in column {}", error.column()), help)
        })?;
        each(event(line, &json.into())?)?;
    }
    Ok(())
}

/// Returns the event of a map.
fn event(line: u32, form: &Data) -> Result<Event, ForeignError> {
    let help = "each operation is a map with `process`, `type`, `f` and `value`";
    if !matches!(form, Data::Map(_)) {
        return Err(ForeignError::new(line, "this is not a map", help));
    }
    let field = |name: &str| form.get(name);
    let missing = |name: &str| ForeignError::new(line, format!("the field `{name}` is missing"), help);
    let kind = field("type").ok_or_else(|| missing("type"))?;
    Ok(Event {
        line,
        process: field("process").ok_or_else(|| missing("process"))?.clone(),
        kind: kind_of(line, &kind.to_string())?,
        f: field("f").ok_or_else(|| missing("f"))?.to_string(),
        key: field("key").cloned(),
        value: field("value").cloned().unwrap_or(Data::Null),
        time: field("time").and_then(Data::integer).and_then(|it| it.try_into().ok()),
        error: field("error").cloned().unwrap_or(Data::Null),
    })
}

fn kind_of(line: u32, text: &str) -> Result<Type, ForeignError> {
    match text {
        "invoke" => Ok(Type::Invoke),
        "ok" => Ok(Type::Ok),
        "fail" => Ok(Type::Fail),
        "info" => Ok(Type::Info),
        other => {
            let what = format!("`type` must not be `{other}`");
            Err(ForeignError::new(line, what, "use `invoke`, `ok`, `fail` or `info`"))
        }
    }
}

/// Returns the part of a log line that describes an event.
fn log_line(line: &str) -> Option<&str> {
    let at = line.find("jepsen.util")?;
    let rest = line[at + "jepsen.util".len()..].trim_start();
    let rest = rest.strip_prefix(['-', ':'])?.trim_start();
    let kind = rest.split_whitespace().nth(1)?;
    [":invoke", ":ok", ":fail", ":info"].contains(&kind).then_some(rest)
}

/// Reads the lines that Jepsen logs: the process, the type, the function, the value, and perhaps an error.
fn each_log_line(
    text: &str,
    each: &mut impl FnMut(Event) -> Result<(), ForeignError>,
) -> Result<(), ForeignError> {
    for (line, text) in (1..).zip(text.lines()) {
        let Some(text) = log_line(text) else { continue };
        let mut reader = Reader::new(text, line);
        let (process, kind, f) = (reader.form()?, reader.form()?, reader.form()?);
        let value = if reader.skip()?.is_some() { reader.form()? } else { Data::Null };
        let error = if reader.skip()?.is_some() { reader.form()? } else { Data::Null };
        each(Event {
            line,
            process,
            kind: kind_of(line, &kind.to_string())?,
            f: f.to_string(),
            key: None,
            value,
            time: None,
            error,
        })?;
    }
    Ok(())
}
