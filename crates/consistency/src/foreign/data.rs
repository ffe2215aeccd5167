//! Values of foreign histories, whatever their format.

use std::fmt::{self, Display, Write};

use crate::operation::{History, Value};

/// A value of EDN or JSON. Keywords, symbols and numbers that are no 64-bit integers are texts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    List(Vec<Data>),
    Map(Vec<(Data, Data)>),
}

impl Data {
    /// Returns the elements of a list.
    pub(super) fn list(&self) -> Option<&[Data]> {
        match self {
            Data::List(all) => Some(all),
            _ => None,
        }
    }

    /// Returns the two elements of a list that has two.
    pub(super) fn pair(&self) -> Option<(&Data, &Data)> {
        match self.list() {
            Some([first, second]) => Some((first, second)),
            _ => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i64> {
        match self {
            Data::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value with this key in a map.
    pub(super) fn get(&self, key: &str) -> Option<&Data> {
        match self {
            Data::Map(all) => all.iter().find(|it| it.0.text() == Some(key)).map(|it| &it.1),
            _ => None,
        }
    }

    /// Returns the value that represents this data in a history.
    pub(super) fn value(&self, history: &mut History) -> Value {
        match self {
            Data::Null => Value::NULL,
            Data::Integer(number) => match Value::number(*number) {
                Some(value) => value,
                None => history.text(&number.to_string()),
            },
            other => history.text(&other.to_string()),
        }
    }
}

impl Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Null => f.write_str("null"),
            Data::Bool(flag) => write!(f, "{flag}"),
            Data::Integer(number) => write!(f, "{number}"),
            Data::Text(text) => f.write_str(text),
            Data::List(all) => {
                f.write_char('[')?;
                for (at, it) in all.iter().enumerate() {
                    write!(f, "{}{it}", if at > 0 { " " } else { "" })?;
                }
                f.write_char(']')
            }
            Data::Map(all) => {
                f.write_char('{')?;
                for (at, (key, value)) in all.iter().enumerate() {
                    write!(f, "{}{key} {value}", if at > 0 { ", " } else { "" })?;
                }
                f.write_char('}')
            }
        }
    }
}

impl From<serde_json::Value> for Data {
    fn from(json: serde_json::Value) -> Data {
        match json {
            serde_json::Value::Null => Data::Null,
            serde_json::Value::Bool(flag) => Data::Bool(flag),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(number) => Data::Integer(number),
                None => Data::Text(number.to_string()),
            },
            serde_json::Value::String(text) => Data::Text(text),
            serde_json::Value::Array(all) => Data::List(all.into_iter().map(Data::from).collect()),
            serde_json::Value::Object(all) => {
                Data::Map(all.into_iter().map(|(key, value)| (Data::Text(key), value.into())).collect())
            }
        }
    }
}
