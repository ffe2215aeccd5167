//! The lines that a program and its host exchange: events, and the replies to them.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use faultline_core::{
    Attempt, Boot, ImageName, Incarnation, Membership, MessageId, Position, ProcessId, Sn, Time,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the contract.
pub(crate) const VERSION: u32 = 1;

/// The largest number of a checkpoint, an incarnation or an attempt that a program may use.
const MOST: u32 = i32::MAX as u32;

/// JSON that a program wrote, on one line. The host passes it on without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Arc<str>);

impl Json {
    pub(crate) fn of(value: Option<&RawValue>) -> Json {
        Json(value.map_or("null", RawValue::get).into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// The value that a program saves with an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    pub(crate) value: Json,
    /// The length that networks and storage charge, in bytes.
    pub(crate) bytes: u64,
}

/// An event, as a line of JSON.
pub(crate) struct Event(String);

impl Event {
    /// Begins an event, at no particular time.
    pub(crate) fn untimed(number: u64, name: &str) -> Event {
        Event(format!("{{\"n\":{number},\"event\":\"{name}\""))
    }

    /// Begins an event.
    pub(crate) fn new(number: u64, name: &str, now: Time) -> Event {
        Event::untimed(number, name).number("now", now.0)
    }

    pub(crate) fn number(mut self, field: &str, value: u64) -> Event {
        let _ = write!(self.0, ",\"{field}\":{value}");
        self
    }

    /// Adds a field whose value is JSON.
    pub(crate) fn json(mut self, field: &str, value: &str) -> Event {
        let _ = write!(self.0, ",\"{field}\":{value}");
        self
    }

    /// Adds a field whose value is text that needs no escapes.
    pub(crate) fn word(mut self, field: &str, value: &str) -> Event {
        let _ = write!(self.0, ",\"{field}\":\"{value}\"");
        self
    }

    pub(crate) fn message(mut self, id: MessageId) -> Event {
        let MessageId { from, to, incarnation, number } = id;
        let _ = write!(self.0, ",\"id\":[{},{},{},{number}]", from.0, to.0, incarnation.0);
        self
    }

    pub(crate) fn image(mut self, name: ImageName) -> Event {
        self.0.push_str(",\"name\":");
        image(&mut self.0, name);
        self
    }

    /// Adds a list of images: their names, and their heads.
    pub(crate) fn images<'a>(mut self, images: impl Iterator<Item = (ImageName, &'a Json)>) -> Event {
        self.0.push_str(",\"images\":[");
        for (place, (name, head)) in images.enumerate() {
            self.0.push_str(if place == 0 { "{\"name\":" } else { ",{\"name\":" });
            image(&mut self.0, name);
            let _ = write!(self.0, ",\"head\":{}}}", head.text());
        }
        self.0.push(']');
        self
    }

    pub(crate) fn membership(mut self, membership: &Membership) -> Event {
        let _ = write!(self.0, ",\"membership\":{{\"version\":{},\"members\":[", membership.version.0);
        for (place, it) in membership.members.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(
                self.0,
                "{comma}{{\"life\":{},\"up\":{},\"started\":{},\"gone\":{},\"present\":{},\"idleLives\":{}}}",
                it.life.0,
                it.up,
                it.started,
                it.gone,
                membership.is_present(ProcessId(place as u32)),
                it.idle_lives
            );
        }
        self.0.push_str("]}");
        self
    }

    /// Returns the line, with its end.
    pub(crate) fn line(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

fn image(text: &mut String, name: ImageName) {
    let ImageName { owner, incarnation, sn, attempt } = name;
    let _ = write!(text, "[{},{},{},{}]", owner.0, incarnation.0, sn.0, attempt.0);
}

pub(crate) fn boot_name(boot: Boot) -> &'static str {
    match boot {
        Boot::Fresh => "fresh",
        Boot::Restarted => "restarted",
        Boot::Replaced => "replaced",
    }
}

/// The reply to `hello`.
#[derive(Deserialize)]
pub(crate) struct Hello {
    pub(crate) n: u64,
    pub(crate) contract: u32,
    #[serde(default)]
    pub(crate) wants: Vec<Want>,
}

/// An event that a program must ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Want {
    Consumed,
    Left,
}

/// The reply to any other event.
#[derive(Deserialize)]
pub(crate) struct Reply<'a> {
    pub(crate) n: u64,
    #[serde(borrow, rename = "do", default)]
    pub(crate) actions: Vec<&'a RawValue>,
    #[serde(default)]
    pub(crate) wake: Option<u64>,
    #[serde(default)]
    pub(crate) gauges: ReplyGauges,
}

/// Values for a live view.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplyGauges {
    pub(crate) log_messages: u64,
    pub(crate) log_bytes: u64,
    pub(crate) checkpoints: u32,
}

/// The fields of all actions. Each action has some of them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Fields<'a> {
    #[serde(borrow, rename = "do")]
    action: Option<Cow<'a, str>>,
    id: Option<[u32; 4]>,
    position: Option<[u32; 2]>,
    #[serde(borrow)]
    pub(crate) stamp: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) payload: Option<Cow<'a, str>>,
    image: Option<[u32; 4]>,
    name: Option<[u32; 4]>,
    pub(crate) snapshot: Option<u64>,
    incarnation: Option<u32>,
    /// A process; in a claim, a position.
    #[serde(borrow)]
    to: Option<&'a RawValue>,
    pub(crate) to_cluster: Option<u32>,
    #[serde(borrow)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) head: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) saved: Option<&'a RawValue>,
    pub(crate) saved_bytes: Option<u64>,
    version: Option<u64>,
    #[serde(borrow)]
    pub(crate) data: Option<&'a RawValue>,
}

/// What is wrong with an action, as a clause.
pub(crate) type Wrong = String;

pub(crate) fn required<T>(field: &str, value: Option<T>) -> Result<T, Wrong> {
    value.ok_or_else(|| format!("field `{field}` is missing"))
}

/// Fails if the number of a checkpoint, an incarnation or an attempt is too large.
pub(crate) fn bounded(number: u32) -> Result<u32, Wrong> {
    if number <= MOST {
        return Ok(number);
    }
    Err(format!("{number} is too large; the largest number of a checkpoint or an incarnation is {MOST}"))
}

pub(crate) fn position([incarnation, sn]: [u32; 2]) -> Result<Position, Wrong> {
    Ok(Position::new(bounded(incarnation)?, bounded(sn)?))
}

pub(crate) fn message_id([from, to, incarnation, number]: [u32; 4]) -> MessageId {
    MessageId { from: ProcessId(from), to: ProcessId(to), incarnation: Incarnation(incarnation), number }
}

pub(crate) fn image_name([owner, incarnation, sn, attempt]: [u32; 4]) -> Result<ImageName, Wrong> {
    Ok(ImageName {
        owner: ProcessId(owner),
        incarnation: Incarnation(bounded(incarnation)?),
        sn: Sn(bounded(sn)?),
        attempt: Attempt(bounded(attempt)?),
    })
}

impl<'a> Fields<'a> {
    /// Reads an action. An error comes with the action's name, if it has one.
    pub(crate) fn parse(action: &'a RawValue) -> Result<Fields<'a>, (String, Wrong)> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(rename = "do")]
            name: String,
        }
        read(action.get())
            .map_err(|why| (read::<Named>(action.get()).map_or_else(|_| String::new(), |it| it.name), why))
    }

    /// Returns the name of the action, for messages and to perform it.
    pub(crate) fn action(&self) -> &str {
        self.action.as_deref().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> Result<MessageId, Wrong> {
        required("id", self.id).map(message_id)
    }

    pub(crate) fn position(&self) -> Result<Position, Wrong> {
        required("position", self.position).and_then(position)
    }

    pub(crate) fn name(&self) -> Result<ImageName, Wrong> {
        required("name", self.name).and_then(image_name)
    }

    pub(crate) fn image(&self) -> Result<Option<ImageName>, Wrong> {
        self.image.map(image_name).transpose()
    }

    pub(crate) fn incarnation(&self) -> Result<Incarnation, Wrong> {
        required("incarnation", self.incarnation).and_then(bounded).map(Incarnation)
    }

    pub(crate) fn to(&self) -> Result<ProcessId, Wrong> {
        required("to", self.to).and_then(|it| read(it.get())).map(ProcessId)
    }

    pub(crate) fn version(&self) -> Result<u64, Wrong> {
        required("version", self.version)
    }
}

/// Reads JSON. The error states what is wrong, but not where: a reply is one long line.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Wrong> {
    serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        if let Some(field) = text.strip_prefix("missing field ") {
            return format!("field {field} is missing");
        }
        let whole = "expected a whole number from 0 to";
        text.replace("expected u64", &format!("{whole} {}", u64::MAX))
            .replace("expected u32", &format!("{whole} {}", u32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json() {
        let id = message_id([0, 3, 1, 7]);
        let event =
            Event::new(5, "received", Time(9)).message(id).json("stamp", "{}").word("payload", "AA==");
        let expected = r#"{"n":5,"event":"received","now":9,"id":[0,3,1,7],"stamp":{},"payload":"AA=="}"#;
        assert_eq!(event.line(), format!("{expected}\n"));
    }

    #[test]
    fn an_error_names_the_field() {
        assert_eq!(read::<Hello>(r#"{"n":0}"#).err().unwrap(), "field `contract` is missing");
        let action = RawValue::from_string(r#"{"do":"deliver","id":[0,1,2]}"#.to_owned()).unwrap();
        let (name, why) = Fields::parse(&action).err().unwrap();
        assert!(name == "deliver" && why.contains("an array of length 4"), "{why}");
        let action = RawValue::from_string(r#"{"do":"read","name":[0,1,2,4294967295]}"#.to_owned()).unwrap();
        assert!(Fields::parse(&action).ok().unwrap().name().unwrap_err().contains("4294967295 is too large"));
        let why = read::<Reply<'_>>(r#"{"n":1,"wake":1e9}"#).err().unwrap();
        assert!(why.ends_with("expected a whole number from 0 to 18446744073709551615"), "{why}");
    }
}
