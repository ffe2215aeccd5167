//! Parsing of files into valid resources, or into errors that point at lines and suggest a fix.
//!
//! Prints nothing: [`Rejected`] is a `miette` diagnostic, which binaries print.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use faultline_core::FactKind;
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use serde::de::DeserializeOwned;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter};

use crate::hints;
use crate::leave_out::{entry_at, without};
use crate::locate::Locations;
use crate::resource::{Federation, ProtocolSpec, triggering};
use crate::validate::{MAX_PROBLEMS, Problem, one_of, validate};

/// The length of a line in bytes from which on errors do not show it.
const LONG_LINE: usize = 300;
/// The maximum length of a message in characters. It may contain a value from the file, of any length.
const LONGEST_MESSAGE: usize = 400;

/// Maximum size of a file in bytes. Federations written by hand are far smaller.
const MAX_BYTES: usize = 1 << 20;

/// A file that was rejected, with at least one error.
#[derive(Debug)]
pub struct Rejected {
    file: String,
    /// `None` if the lines with the errors are too long to be shown.
    source: Option<NamedSource<String>>,
    errors: Vec<FileError>,
}

/// One error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Description of the problem.
    pub message: String,
    /// Suggested fix.
    pub help: String,
    /// Line of the error, from 1.
    pub line: usize,
    /// Column of the error in characters, from 1.
    pub column: usize,
    /// Byte range of the error; `None` if the line is too long to be shown.
    span: Option<Range<usize>>,
}

/// Parses and validates the federation in a YAML or JSON file. `file` is the name to use in errors.
///
/// # Errors
///
/// Fails if the file does not contain exactly one valid federation. Returns the first error that prevents parsing or,
/// if the file can be parsed, all problems that validation finds.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Federation, Box<Rejected>> {
    let Parsed { value: federation, text } = parse_unchecked(file, bytes)?;
    let problems = validate(&federation);
    if problems.is_empty() { Ok(federation) } else { Err(text.reject(problems)) }
}

/// Works like [`parse`], but does not [`validate`] the federation.
///
/// # Errors
///
/// Fails if the file does not contain exactly one federation. The error then also contains the problems of the parts that
/// could be parsed.
pub fn parse_unchecked(file: &str, bytes: &[u8]) -> Result<Parsed<Federation>, Box<Rejected>> {
    let help = "describe a federation; `faultline samples quickstart` prints an example";
    let text = text_of(file, bytes)?;
    let Found { mistakes, value: federation, rest, left_out } = find_mistakes::<Federation>(&text.text, help);
    match federation {
        Some(value) if mistakes.is_empty() => match ambiguous_parameters(&text.text, &value) {
            ambiguous if ambiguous.is_empty() => Ok(Parsed { value, text }),
            ambiguous => Err(text.reject_at(ambiguous)),
        },
        federation => {
            // Everything depends on the protocol and the application.
            let is_without = |it: &String| {
                let mut rest =
                    ["spec.protocol", "spec.application"].iter().filter_map(|all| it.strip_prefix(all));
                rest.any(|rest| rest.is_empty() || rest.matches('.').count() == 1)
            };
            let federation = federation.filter(|_| !left_out.iter().any(is_without));
            let problems = federation.iter().flat_map(validate).filter(|it| !follows(it, &left_out));
            let locations = Locations::of(&rest);
            let located = problems.map(|it| (it.message, it.help, locations.find(&it.path)));
            let mut all: Vec<Mistake> = mistakes.into_iter().chain(located).collect();
            all.sort_by_key(|it| it.2.start);
            all.truncate(MAX_PROBLEMS);
            Err(text.reject_at(all))
        }
    }
}

/// Returns whether a problem may follow from parts of the file that were left out: they belong to the value that has the
/// problem, or stand beside it, or may be what it does not find.
fn follows(problem: &Problem, left_out: &[String]) -> bool {
    let around = |path: &str| path.rfind(['.', '[']).unwrap_or(0);
    let contains = |it: &String| {
        let rest = it.strip_prefix(problem.path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let is_beside = |it: &String| problem.path[..around(&problem.path)] == it[..around(it)];
    problem.message.starts_with("there is no ") || left_out.iter().any(|it| contains(it) || is_beside(it))
}

/// Returns the meaning of a value in a file. Text that is not YAML is a string.
pub fn value(text: &str) -> serde_json::Value {
    // Otherwise, `no` would be a boolean here, but text in a file.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap_or_else(|_| text.into())
}

/// Words that YAML 1.1, which `kubectl` reads, takes for booleans, and that YAML 1.2 and this crate take for text.
const BOOLEANS_OF_KUBECTL: [&str; 16] =
    ["y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"];

/// Returns a warning for each word in a file that `kubectl` would read as a boolean, because it has no quotes. `text` is the
/// text from which the federation was [parsed](parse).
pub fn bare_booleans(file: &str, text: &str, federation: &Federation) -> Vec<String> {
    let parsed = serde_json::to_value(federation).unwrap_or_default();
    let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (path, place) in Locations::of(text).words() {
        let is_key = place.is_empty();
        let rest = &text[place.start..];
        let word =
            if is_key { rest.split(':').next().unwrap_or_default().trim_end() } else { &text[place.clone()] };
        // The value of a boolean field has the same meaning for both.
        let is_text = || parsed.pointer(&pointer(path)).and_then(serde_json::Value::as_str) == Some(word);
        if BOOLEANS_OF_KUBECTL.contains(&word) && (is_key || is_text()) {
            lines.entry(word).or_default().insert(text[..place.start].matches('\n').count() + 1);
        }
    }
    let warning = |(word, lines): (&str, BTreeSet<usize>)| {
        let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
        let where_found = if lines.len() == 1 { "line" } else { "lines" };
        format!(
            "{file}, {where_found} {}: `kubectl` reads `{word}` without quotes as a boolean; write \"{word}\"",
            lines.join(", ")
        )
    };
    lines.into_iter().map(warning).collect()
}

/// Returns the words in parameters, which may have any type, that YAML 1.1, which `kubectl` reads, and YAML 1.2 read as
/// different values: `n` is a boolean or text, and `012` is an octal or a decimal number.
fn ambiguous_parameters(text: &str, federation: &Federation) -> Vec<Mistake> {
    let is_octal = |word: &str| {
        let digits = word.trim_start_matches(['-', '+']);
        digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|it| it.is_ascii_digit())
    };
    if !text.contains("parameters") {
        return Vec::new();
    }
    let is_ambiguous = |word: &str| is_octal(word) || BOOLEANS_OF_KUBECTL.contains(&word);
    let locations = Locations::of(text);
    let words = locations
        .words()
        .filter(|(path, place)| path.contains(".parameters.") && is_ambiguous(&text[place.clone()]));
    let words: Vec<(&str, Range<usize>)> = words.collect();
    if words.is_empty() {
        return Vec::new();
    }
    let parsed = serde_json::to_value(federation).unwrap_or_default();
    let mistake = |(path, place): (&str, Range<usize>)| {
        let word = &text[place.clone()];
        let value = parsed.pointer(&pointer(path)).filter(|it| it.is_number() || it.is_boolean())?;
        let message =
            format!("`{word}` without quotes is ambiguous: other YAML readers take it for another value");
        let meant = match value.as_f64() {
            Some(number) => number.to_string(),
            None => value.to_string(),
        };
        Some((message, format!("write {meant}, or \"{word}\" for text"), place))
    };
    words.into_iter().filter_map(mistake).collect()
}

/// Returns the JSON pointer of a path such as `spec.clusters[1].name`.
fn pointer(path: &str) -> String {
    path.replace('[', "/").replace(']', "").split('.').map(|it| format!("/{it}")).collect()
}

/// A parsed file with its text, so that errors found later can still be shown in place.
#[derive(Clone, Debug)]
pub struct Parsed<T> {
    /// The parsed value.
    pub value: T,
    /// The text from which the value was parsed.
    pub text: Text,
}

/// Text of a file.
#[derive(Clone, Debug)]
pub struct Text {
    file: String,
    text: String,
}

/// Parses the document in a YAML or JSON file. `file` is the name to use in errors, `example` the suggested fix for an
/// empty file.
///
/// # Errors
///
/// Returns an error if the file is too large, is not UTF-8, or does not contain exactly one document of this type.
pub fn read<T: DeserializeOwned>(
    file: &str,
    bytes: &[u8],
    example: &str,
) -> Result<Parsed<T>, Box<Rejected>> {
    let text = text_of(file, bytes)?;
    let Found { mistakes, value, .. } = find_mistakes(&text.text, example);
    match value {
        Some(value) if mistakes.is_empty() => Ok(Parsed { value, text }),
        _ => Err(text.reject_at(mistakes)),
    }
}

/// Returns the text of a file, if it is short enough and UTF-8.
fn text_of(file: &str, bytes: &[u8]) -> Result<Text, Box<Rejected>> {
    let text = |text: String| Text { file: file.into(), text };
    if bytes.len() > MAX_BYTES {
        let message = format!("the file is too large ({} bytes)", bytes.len());
        let help = format!("a file may have at most {MAX_BYTES} bytes; check that this is the right file");
        return Err(text(String::new()).reject_at(vec![(message, help, 0..0)]));
    }
    match std::str::from_utf8(bytes) {
        Ok(utf8) => Ok(text(utf8.into())),
        Err(error) => {
            // The first invalid bytes are displayed as one replacement character, which takes three bytes.
            let at = error.valid_up_to();
            let help = "check that this is the right file, and save it as UTF-8";
            let shown = text(String::from_utf8_lossy(bytes).into_owned());
            Err(shown.reject_at(vec![("the file is not UTF-8 text".into(), help.into(), at..at + 3)]))
        }
    }
}

impl Text {
    /// Wraps the text of the file named `file`.
    pub fn new(file: &str, text: String) -> Text {
        Text { file: file.to_owned(), text }
    }

    /// Turns problems into errors at the lines to which their paths refer. A path looks like
    /// `clusters[1].nodes`. There must be at least one problem.
    pub fn reject(&self, problems: Vec<Problem>) -> Box<Rejected> {
        let locations = Locations::of(&self.text);
        let place = |path: &str| locations.find(path);
        self.reject_at(problems.into_iter().map(|it| (it.message, it.help, place(&it.path))).collect())
    }

    fn reject_at(&self, faults: Vec<Mistake>) -> Box<Rejected> {
        let is_shown = faults.iter().all(|(.., span)| !self.is_long_at(span.start));
        let error = |(message, help, span)| {
            let error = FileError::new(&self.text, shortened(message), help, span);
            match is_shown {
                true => error,
                false => error.without_line(&self.file),
            }
        };
        let source = || NamedSource::new(&self.file, self.text.clone()).with_language("yaml");
        Box::new(Rejected {
            file: self.file.clone(),
            source: is_shown.then(source),
            errors: faults.into_iter().map(error).collect(),
        })
    }

    /// Returns whether the line at this byte, or one next to it, is too long to be shown.
    fn is_long_at(&self, at: usize) -> bool {
        let before = self.text[..at].rmatch_indices('\n').nth(1).map_or(0, |(newline, _)| newline + 1);
        self.text[before..].split('\n').take(3).any(|line| line.len() > LONG_LINE)
    }
}

impl Rejected {
    /// Returns the errors; there is always at least one.
    pub fn errors(&self) -> &[FileError] {
        &self.errors
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.errors[..] {
            [only] => f.write_str(&only.message),
            many if many.len() == MAX_PROBLEMS => {
                write!(f, "{} has at least {MAX_PROBLEMS} problems", self.file)
            }
            many => write!(f, "{} has {} problems", self.file, many.len()),
        }
    }
}

impl std::error::Error for Rejected {}

impl Diagnostic for Rejected {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|it| it as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match &self.errors[..] {
            [only] => only.labels(),
            _ => None,
        }
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match &self.errors[..] {
            [only] => only.help(),
            _ => None,
        }
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        match &self.errors[..] {
            [_] => None,
            many => Some(Box::new(many.iter().map(|it| it as &dyn Diagnostic))),
        }
    }
}

impl FileError {
    fn new(source: &str, message: String, help: String, span: Range<usize>) -> FileError {
        let before = &source[..span.start];
        let line_start = before.rfind('\n').map_or(0, |it| it + 1);
        FileError {
            message,
            help,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span: Some(span),
        }
    }

    /// States the place of the error in its message instead of showing the line.
    fn without_line(self, file: &str) -> FileError {
        let FileError { line, column, .. } = self;
        FileError { message: format!("{file}:{line}:{column}: {}", self.message), span: None, ..self }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FileError {}

impl Diagnostic for FileError {
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.span.clone().into_iter().map(LabeledSpan::underline)))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }
}

/// Returns the beginning of a message that may contain a value of any length.
fn shortened(message: String) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((at, _)) => format!("{}…", &message[..at]),
        None => message,
    }
}

/// A message, a suggested fix, and the byte range of the error.
type Mistake = (String, String, Range<usize>);

/// The mistakes in a text, and what it means without the parts that contain them.
struct Found<T> {
    /// The mistakes, in the order in which they were found.
    mistakes: Vec<Mistake>,
    /// The value; `None` if it has no meaning without these parts.
    value: Option<T>,
    /// The text without these parts, whose other parts have the same places.
    rest: String,
    /// The paths of these parts.
    left_out: Vec<String>,
}

/// The beginning of the help for a text that is not YAML.
const NOT_YAML: &str = "the file is not valid YAML";
/// The maximum number of parts of a text that are left out to find further mistakes.
const MOST_LEFT_OUT: usize = 40;

/// Parses a text. The parser stops at the first mistake, so the part with the mistake is left out, and the rest is parsed
/// again. Mistakes that follow from what was left out are not reported.
fn find_mistakes<T: DeserializeOwned>(text: &str, example: &str) -> Found<T> {
    let mut found = Found { mistakes: Vec::new(), value: None, rest: text.to_owned(), left_out: Vec::new() };
    while found.left_out.len() <= MOST_LEFT_OUT {
        let (mistake, is_structural) = match deserialize(&found.rest, example) {
            Ok(value) => {
                found.value = Some(value);
                break;
            }
            Err(mistake) => mistake,
        };
        let start = mistake.2.start;
        let entry = (!is_structural && Locations::of(&found.rest).find("").start != start)
            .then(|| entry_at(&found.rest, start))
            .flatten();
        let path = entry.as_ref().map(|it| it.path.as_str()).unwrap_or_default();
        let is_within = |it: &String| {
            it.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        };
        if !found.left_out.iter().any(is_within) {
            found.mistakes.push(mistake);
        }
        let Some(entry) = entry else { break };
        found.rest = without(&found.rest, &entry);
        found.left_out.push(entry.path);
    }
    found.mistakes.sort_by_key(|it| it.2.start);
    found
}

/// Returns the value of a text, or its first mistake, with whether it is a mistake of the text as a whole.
fn deserialize<T: DeserializeOwned>(text: &str, example: &str) -> Result<T, (Mistake, bool)> {
    let options = serde_saphyr::options! {
        emit_comments: false,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
    };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err((("the file is empty".into(), example.into(), 0..0), true));
    }
    serde_saphyr::from_str_with_options::<T>(text, options).map_err(|error| match foreign_blank(text) {
        Some(mistake) => (mistake, true),
        None => {
            let mistake = explain(text, &error);
            let is_structural = is_structural(text, &error, &mistake);
            (mistake, is_structural)
        }
    })
}

/// Returns whether a mistake concerns the text as a whole, so that no part of it can be left out to find others.
fn is_structural(text: &str, error: &Error, (message, help, _): &Mistake) -> bool {
    let error = match error {
        Error::AliasError { error, .. } => error,
        other => other,
    };
    let concerns_all = matches!(
        error,
        Error::MultipleDocuments { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
            | Error::Budget { .. }
    );
    let is_misplaced =
        matches!(error, Error::SerdeMissingField { .. }) && !message.starts_with("missing field");
    concerns_all || is_misplaced || help.starts_with(NOT_YAML) || Locations::of(text).invalid().is_some()
}

/// Returns the mistake of a file that uses blanks other than spaces for its structure: YAML takes them for text, so its error
/// would name another cause.
fn foreign_blank(text: &str) -> Option<Mistake> {
    let is_foreign =
        |it: char| it.is_whitespace() && !matches!(it, ' ' | '\t' | '\n' | '\r') || it == '\u{feff}';
    let content = text.trim_start_matches('\u{feff}');
    let mut start = text.len() - content.len();
    for line in content.split_inclusive('\n') {
        let indentation = line.len() - line.trim_start_matches(|it| it == ' ' || is_foreign(it)).len();
        let after_key = line.find(':').map_or(indentation, |it| it + 1);
        let (at, found) = line
            .char_indices()
            .find(|(at, it)| is_foreign(*it) && (*at < indentation || *at == after_key))
            .filter(|_| !line[indentation..].starts_with('#') && !line.trim().is_empty())
            .unwrap_or((line.len(), ' '));
        if at < line.len() {
            let name = match found {
                '\u{a0}' => "a no-break space",
                '\u{feff}' => "a byte order mark",
                _ => "a character that only looks like a space",
            };
            let message = format!("{name} (U+{:04X}) stands where YAML needs spaces", found as u32);
            let place = start + at..start + at + found.len_utf8();
            return Some((message, "replace it with spaces".into(), place));
        }
        start += line.len();
    }
    None
}

/// Rephrases a parser's error in terms of the resource.
fn explain(text: &str, error: &Error) -> Mistake {
    let place = place(text, error);
    let error = match error {
        Error::AliasError { error, .. } => error,
        other => other,
    };
    let (message, help) = match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("unknown field `{field}`"), instead(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("unknown value `{variant}`"), instead(variant, &possible(expected)))
        }
        Error::SerdeMissingField { field, .. } => {
            return missing(text, field, place);
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            // The value is in backticks or quotes after the name of its type, such as `integer` or `string`.
            let value = unexpected.find(['`', '"']).map_or(unexpected.as_str(), |at| &unexpected[at..]);
            let expected = if expected == "a string" { "text in quotes" } else { expected };
            (format!("invalid value: {value}"), format!("write {expected}"))
        }
        Error::NullIntoString { .. } => {
            ("expected text (found an empty value or `null`)".into(), "write a word, or \"null\" in quotes".into())
        }
        Error::InvalidScalar { ty, .. } => match *ty {
            "floating point" => ("expected a number".into(), "write a number, such as 0.7".into()),
            "boolean" => ("expected true or false".into(), "write `true` or `false`".into()),
            ty => whole_number(text, ty, &place),
        },
        Error::Unexpected { expected, .. } if expected.contains("mapping") => {
            // If a plain word appears where a mapping is expected, the parser reports the location of the next key.
            let locations = Locations::of(text);
            let word = locations.around(place.start).and_then(|_| locations.before(place.start));
            let place = word.unwrap_or(place);
            return ("expected a mapping".into(), hints::mapping(&locations, text, &place), place);
        }
        Error::Unexpected { expected, .. } if expected.contains("scalar") => {
            ("expected a single value".into(), "write a word or a number, without brackets".into())
        }
        Error::Unexpected { expected, .. } if expected.contains("sequence") => (
            "expected a list".into(),
            "write `[ … ]`, or one line per entry, each beginning with `- `".into(),
        ),
        Error::MultipleDocuments { .. } => (
            "the file contains more than one document".into(),
            "put each federation in its own file".into(),
        ),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::Budget { .. } => (
            "the file's aliases expand to too many values".into(),
            "write the values out instead of using `*aliases`".into(),
        ),
        Error::DuplicateMappingKey { key, .. } => (
            format!("duplicate field `{}`", key.as_deref().unwrap_or("…")),
            "keep one of the two".into(),
        ),
        Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
        | Error::ExpectedStringKeyForExternallyTaggedEnum { .. }
        | Error::ExpectedMappingEndAfterEnumVariantValue { .. } => (
            "expected exactly one name with its options".into(),
            "write one, such as `{ hc3i: { checkpointEvery: 2s } }` for a protocol or `{ heat: { steps: 500 } }` for an application".into(),
        ),
        // A quantity's error: what is wrong, then what to write.
        Error::Message { msg, .. } => match msg.split_once(": ") {
            Some((message, help)) => (message.into(), help.into()),
            None => (msg.clone(), "see the field's description in `faultline schema`".into()),
        },
        other => (
            DefaultMessageFormatter.format_message(other).into_owned(),
            format!("{NOT_YAML}; check the indentation and the quotes"),
        ),
    };
    (message, help, place)
}

/// Explains a missing field. If the field is indented by too many or too few columns, it exists, but outside its map.
fn missing(text: &str, field: &str, place: Range<usize>) -> Mistake {
    let locations = Locations::of(text);
    if let Some((line, indentation)) = locations.invalid().and_then(|at| indented(text, at)) {
        let columns = if indentation == 1 { "column" } else { "columns" };
        let message = format!(
            "the indentation of this line ({indentation} {columns}) matches none of the mappings above it"
        );
        let help = format!(
            "indent all fields of a mapping by the same number of columns, here and above; otherwise, `{field}` is missing"
        );
        return (message, help, line);
    }
    let around = locations.around(place.start).unwrap_or(place);
    let path = locations.path_at(around.start).unwrap_or_default();
    if let Some(at) = locations.outside(text, path, field) {
        let help = "indent it by as many columns as the other fields of that mapping";
        return (format!("`{field}` is outside the mapping `{path}`"), help.into(), at..at + field.len());
    }
    let help = format!("add `{field}: …`; `faultline samples` prints complete examples");
    (format!("missing field `{field}`"), help, around)
}

/// Returns the text of the line whose first word is at byte `at`, and by how many columns it is indented; `None` if the
/// line begins elsewhere.
fn indented(text: &str, at: usize) -> Option<(Range<usize>, usize)> {
    let start = text[..at].rfind('\n').map_or(0, |it| it + 1);
    let line = text[start..].split('\n').next().unwrap_or_default().trim_end();
    let indentation = line.len() - line.trim_start().len();
    (start + indentation == at && indentation < line.len()).then_some((at..start + line.len(), indentation))
}

/// Explains a value that is not a whole number, or not one in the range of its field. `kind` is its type.
fn whole_number(text: &str, kind: &str, place: &Range<usize>) -> (String, String) {
    let value = text[place.clone()].trim();
    // Quotes matter only around a number.
    let word = value.trim_matches('"');
    let value = if word.parse::<i128>().is_ok() { value } else { word };
    let largest = if kind == "u64" { u64::MAX } else { u32::MAX.into() };
    let (least, most) = hints::range(&Locations::of(text), place.start).unwrap_or((0, largest));
    let message = match value.parse::<i128>() {
        Ok(_) => format!("`{value}` is out of range"),
        Err(_) if value.is_empty() => "expected a whole number".to_owned(),
        Err(_) => format!("`{value}` is not a whole number"),
    };
    (message, format!("write a whole number from {least} to {most}"))
}

/// Returns the allowed words among those that the parser expects: all of them or, if they are kinds of facts, those
/// that processes report.
fn possible(expected: &[&'static str]) -> Vec<&'static str> {
    let fact = |word: &str| serde_json::from_value::<FactKind>(word.into()).ok();
    let are_facts = expected.iter().all(|it| fact(it).is_some());
    let is_possible = |word: &str| fact(word).is_none_or(|it| triggering().any(|known| known == it));
    expected.iter().copied().filter(|it| !are_facts || is_possible(it)).collect()
}

/// Returns the suggested fix for an unknown word.
fn instead(word: &str, expected: &[&'static str]) -> String {
    if let Some((field, value)) = word.split_once(':').filter(|(field, _)| expected.contains(field)) {
        return format!("write a space after the colon: `{field}: {value}`");
    }
    if word == "reported" && expected.contains(&"rack") {
        return "a line names a node, not a rack: write `loseCluster: { reported: … }` or `crash: { reported: … }`".into();
    }
    let possible = match expected {
        [] => "remove it, because no fields are allowed here".to_owned(),
        [only] => format!("use `{only}`"),
        many => format!("use one of: {}", many.join(", ")),
    };
    match option_elsewhere(word) {
        Some(whose) => format!("`{word}` is an option of {whose}; {possible}"),
        None if expected.is_empty() => possible,
        None => one_of(word, expected),
    }
}

/// Returns a description of the protocols that have this option; `None` if no protocol has it.
fn option_elsewhere(word: &str) -> Option<String> {
    let has_option = |protocol: &&str| {
        let options = serde_json::json!({ *protocol: { word: null } });
        // If the protocol does not have the option, the error starts with `unknown`, whatever the value.
        serde_json::from_value::<ProtocolSpec>(options)
            .map_or_else(|it| !it.to_string().starts_with("unknown"), |_| true)
    };
    match ProtocolSpec::names().filter(has_option).collect::<Vec<_>>()[..] {
        [] => None,
        [only] => Some(format!("the protocol `{only}`")),
        _ => Some("other protocols".to_owned()),
    }
}

/// Returns the byte range of an error: the word or value at its location.
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
