//! From the bytes of a file to a valid resource, or to errors that point at lines and say what to do.
//!
//! Reads and judges; prints nothing. [`Rejected`] is a `miette` diagnostic, which binaries print.

use std::fmt;
use std::ops::Range;

use faultline_core::FactKind;
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use serde::de::DeserializeOwned;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter};

use crate::document::{ApiVersion, Document, Kind};
use crate::locate::Locations;
use crate::resource::Federation;
use crate::validate::{Problem, similar, validate};

/// Larger files are refused unread: the largest federation that can be written by hand is far smaller.
const MAX_BYTES: usize = 1 << 20;

/// A file that cannot be used, and why: at least one complaint.
#[derive(Debug)]
pub struct Rejected {
    file: String,
    source: NamedSource<String>,
    complaints: Vec<Complaint>,
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Line of the first character at fault, from 1.
    pub line: usize,
    /// Column of that character, from 1.
    pub column: usize,
    /// Bytes at fault.
    span: Range<usize>,
}

/// Reads the one federation that a YAML or JSON file holds, and validates it. `file` is the name to use in errors.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Federation, Box<Rejected>> {
    let help = "write a federation; `faultline samples quickstart` prints one to start from";
    let parsed = read::<Document>(file, bytes, help)?;
    let Document { api_version: ApiVersion::V1Alpha1, kind: Kind::Federation, metadata, spec, .. } =
        parsed.value;
    let federation = Federation { metadata, spec, status: None };
    let problems = validate(&federation);
    if problems.is_empty() { Ok(federation) } else { Err(parsed.text.reject(problems)) }
}

/// What a file of values holds, with its text, so that problems found later can still be shown in place.
#[derive(Clone, Debug)]
pub struct Parsed<T> {
    /// What it holds.
    pub value: T,
    /// Where that stood.
    pub text: Text,
}

/// The text of a file.
#[derive(Clone, Debug)]
pub struct Text {
    file: String,
    text: String,
}

/// Reads the one document that a YAML or JSON file holds. `file` is the name to use in errors, `example` says what to
/// do about an empty one.
pub fn read<T: DeserializeOwned>(
    file: &str,
    bytes: &[u8],
    example: &str,
) -> Result<Parsed<T>, Box<Rejected>> {
    let text = |text: String| Text { file: file.into(), text };
    if bytes.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", bytes.len());
        let help = format!("a federation fits in {MAX_BYTES}; is this the right file?");
        return Err(text(String::new()).reject_at(vec![(message, help, 0..0)]));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(utf8) => text(utf8.into()),
        Err(error) => {
            // What is invalid stands as one replacement character in the text that is shown.
            let at = error.valid_up_to();
            let help = "save the file as UTF-8 text; is this the right file?";
            let shown = text(String::from_utf8_lossy(bytes).into_owned());
            return Err(shown.reject_at(vec![(
                "the file is not UTF-8 text".into(),
                help.into(),
                at..at + 3,
            )]));
        }
    };
    match deserialize(&text.text, example) {
        Ok(value) => Ok(Parsed { value, text }),
        Err(fault) => Err(text.reject_at(vec![fault])),
    }
}

impl Text {
    /// The content of a file of this name.
    pub fn new(file: &str, text: String) -> Text {
        Text { file: file.to_owned(), text }
    }

    /// Complains of values by their paths, like `clusters[1].nodes`. There must be at least one problem.
    pub fn reject(&self, problems: Vec<Problem>) -> Box<Rejected> {
        let locations = Locations::of(&self.text);
        let place = |path: &str| locations.find(path);
        self.reject_at(problems.into_iter().map(|it| (it.message, it.help, place(&it.path))).collect())
    }

    fn reject_at(&self, faults: Vec<Fault>) -> Box<Rejected> {
        let complaint = |(message, help, span)| Complaint::new(&self.text, message, help, span);
        Box::new(Rejected {
            file: self.file.clone(),
            source: NamedSource::new(&self.file, self.text.clone()).with_language("yaml"),
            complaints: faults.into_iter().map(complaint).collect(),
        })
    }
}

impl Rejected {
    /// What is wrong, in the order of the resource.
    pub fn complaints(&self) -> &[Complaint] {
        &self.complaints
    }

    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.complaints[..] {
            [only] => f.write_str(&only.message),
            many => write!(f, "{} has {} problems", self.file, many.len()),
        }
    }
}

impl std::error::Error for Rejected {}

impl Diagnostic for Rejected {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match &self.complaints[..] {
            [only] => only.labels(),
            _ => None,
        }
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match &self.complaints[..] {
            [only] => only.help(),
            _ => None,
        }
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match &self.complaints[..] {
            [_] => None,
            many => Some(Box::new(many.iter().map(|it| it as &dyn Diagnostic))),
        }
    }
}

impl Complaint {
    fn new(source: &str, message: String, help: String, span: Range<usize>) -> Complaint {
        let before = &source[..span.start];
        let line_start = before.rfind('\n').map_or(0, |it| it + 1);
        Complaint {
            message,
            help,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span,
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Complaint {}

impl Diagnostic for Complaint {
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(LabeledSpan::underline(self.span.clone()))))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }
}

/// A message, a remedy, and the bytes at fault.
type Fault = (String, String, Range<usize>);

fn deserialize<T: DeserializeOwned>(text: &str, example: &str) -> Result<T, Fault> {
    let options = serde_saphyr::options! {
        emit_comments: false,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
    };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(("the file is empty".into(), example.into(), 0..0));
    }
    serde_saphyr::from_str_with_options::<T>(text, options).map_err(|error| explain(text, &error))
}

/// A reader's error in words that speak of the resource rather than of the reader.
fn explain(text: &str, error: &Error) -> Fault {
    let place = place(text, error);
    let error = match error {
        Error::AliasError { error, .. } => error,
        other => other,
    };
    let (message, help) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("there is no field `{field}` here"), instead(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("`{variant}` is not possible here"), instead(variant, &possible(expected)))
        }
        Error::SerdeMissingField { field, .. } => {
            let help = format!("add `{field}: …`; `faultline samples` shows whole federations");
            let around = Locations::of(text).around(place.start).unwrap_or(place);
            return (format!("`{field}` is missing"), help, around);
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            (format!("{unexpected} cannot stand here"), format!("write {expected}"))
        }
        Error::InvalidScalar { ty, .. } => match *ty {
            "floating point" => ("this is not a number".into(), "write a number, such as 0.7".into()),
            "boolean" => ("this is neither true nor false".into(), "write `true` or `false`".into()),
            _ => (
                "this is not a whole number in range".into(),
                "write a whole number, at least 0; the description of the field says how large it may be"
                    .into(),
            ),
        },
        Error::Unexpected { expected, .. } if expected.contains("mapping") => {
            // A plain word is complained of where the mapping would have begun: at the key after it.
            let locations = Locations::of(text);
            let word = locations.around(place.start).and_then(|_| locations.before(place.start));
            let help =
                "write `{ … }` with the fields that belong here; `faultline samples` shows whole federations";
            return ("fields must stand here".into(), help.into(), word.unwrap_or(place));
        }
        Error::Unexpected { expected, .. } if expected.contains("scalar") => {
            ("one plain value must stand here".into(), "write a word or a number, without brackets".into())
        }
        Error::Unexpected { expected, .. } if expected.contains("sequence") => (
            "a list must stand here".into(),
            "write `[ … ]`, or one line beginning with `- ` for each entry".into(),
        ),
        Error::MultipleDocuments { .. } => (
            "the file holds more than one document".into(),
            "put each federation in a file of its own".into(),
        ),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::Budget { .. } => (
            "the file unfolds into far more than it says: its aliases multiply each other".into(),
            "write the values out instead of using `*aliases`".into(),
        ),
        Error::DuplicateMappingKey { key, .. } => (
            format!("`{}` stands here twice", key.as_deref().unwrap_or("a key")),
            "keep one of the two".into(),
        ),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::ExpectedStringKeyForExternallyTaggedEnum { .. }
        | Error::ExpectedMappingEndAfterEnumVariantValue { .. } => (
            "exactly one kind with its options can stand here".into(),
            "write one, like `{ hc3i: { checkpointEvery: 2s } }` for a protocol or `{ heat: { steps: 500 } }` for an application".into(),
        ),
        // A quantity's own words: what is wrong, then what to write.
        Error::Message { msg, .. } => match msg.split_once(": ") {
            Some((message, help)) => (message.into(), help.into()),
            None => (msg.clone(), "see the description of the field in `faultline schema`".into()),
        },
        other => (
            DefaultMessageFormatter.format_message(other).into_owned(),
            "this is not YAML as it should be; look at the indentation and at what is quoted".into(),
        ),
    };
    (message, help, place)
}

/// The words that can stand in a place where the reader expects these: of facts, only those that processes state.
fn possible(expected: &[&'static str]) -> Vec<&'static str> {
    let fact = |word: &str| serde_json::from_value::<FactKind>(word.into()).ok();
    let are_facts = expected.iter().all(|it| fact(it).is_some());
    let is_possible = |word: &str| fact(word).is_none_or(|it| FactKind::OF_PROCESSES.contains(&it));
    expected.iter().copied().filter(|it| !are_facts || is_possible(it)).collect()
}

/// What to write instead of a word that is not known here.
fn instead(word: &str, expected: &[&'static str]) -> String {
    let possible = match expected {
        [] => "nothing can be stated here; remove it".to_owned(),
        many => format!("possible are: {}", many.join(", ")),
    };
    if let Some(whose) = option_elsewhere(word) {
        return format!("`{word}` is an option of {whose}; {possible}");
    }
    match similar(word, expected.iter().copied()) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => possible,
    }
}

/// Which protocols have this option, if any has.
fn option_elsewhere(word: &str) -> Option<&'static str> {
    match word {
        "checkpointEvery" | "checkpointEveryIn" | "collectEvery" | "replicas" | "replicateTo" => {
            Some("other protocols")
        }
        "piggyback" | "forcing" | "collectBy" => Some("hc3i"),
        _ => None,
    }
}

/// The bytes that an error is about: the word or value that begins at its location.
fn place(text: &str, error: &Error) -> Range<usize> {
    let Some(location) = error.location() else { return 0..0 };
    let start = match location.span().byte_offset() {
        Some(offset) => (offset as usize).min(text.len()),
        None => text.char_indices().nth(location.span().offset() as usize).map_or(text.len(), |(at, _)| at),
    };
    let line = text[start..].split('\n').next().unwrap_or_default();
    let end = line.find([',', '}', ']', ':', '#']).unwrap_or(line.len());
    start..start + line[..end].trim_end().len()
}
