//! Lists in JSON files, read one element at a time.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::{ReadError, quoted};
use crate::input::{Meter, unreadable};

/// Passes each element of a list, with the line on which it begins, to a function.
pub(crate) struct Elements<'a, F> {
    pub(crate) meter: &'a Meter,
    pub(crate) take: F,
    /// The error of `take`, which the parser cannot carry.
    pub(crate) failure: &'a RefCell<Option<ReadError>>,
}

impl<'de, F: FnMut(u64, Value) -> Result<(), ReadError>> Visitor<'de> for Elements<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some((line, value)) = list.next_element_seed(Element(self.meter))? {
            self.meter.begin_record();
            if let Err(error) = (self.take)(line, value) {
                self.failure.replace(Some(error));
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

impl<'de, F: FnMut(u64, Value) -> Result<(), ReadError>> DeserializeSeed<'de> for Elements<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

/// One element of a list, with its first line.
struct Element<'a>(&'a Meter);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = (u64, Value);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(u64, Value), D::Error> {
        let line = self.0.line();
        Ok((line, serde::Deserialize::deserialize(from)?))
    }
}

/// Translates the parser's error. `expected` describes the whole file.
pub(crate) fn explain(
    error: &serde_json::Error,
    failure: Option<ReadError>,
    meter: &Meter,
    expected: &str,
) -> ReadError {
    if let Some(error) = failure {
        return error;
    }
    let line = error.line().max(1) as u64;
    if let Some(damage) = meter.damage().filter(|it| it.line <= Some(line)) {
        return damage;
    }
    match error.classify() {
        serde_json::error::Category::Io => meter
            .too_long(meter.line())
            .unwrap_or_else(|| unreadable(&std::io::Error::other(error.to_string()))),
        serde_json::error::Category::Eof => {
            ReadError::at(line, "the file ends in the middle of a record", "fetch the complete file again")
        }
        serde_json::error::Category::Syntax => {
            let text = error.to_string();
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |it| it.0);
            ReadError::at(
                line,
                format!("this is not valid JSON: {what} in column {}", error.column()),
                format!("write {expected}, or name the format with `--as`"),
            )
        }
        serde_json::error::Category::Data => ReadError::at(
            line,
            format!("the file is not {expected}"),
            "check the format, or name it with `--as`",
        ),
    }
}

/// Describes a JSON value that should be something else.
pub(crate) fn found(value: Option<&Value>) -> String {
    match value {
        None => "is missing".to_owned(),
        Some(Value::Array(_)) => "is a list".to_owned(),
        Some(Value::Object(_)) => "is an object".to_owned(),
        Some(it) => format!("is {}", quoted(&it.to_string())),
    }
}
