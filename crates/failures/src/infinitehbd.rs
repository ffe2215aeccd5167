//! The format of the InfiniteHBD trace: a JSON list of events in ascending order, with times in days.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::BufRead;

use serde::de::Deserializer;
use serde_json::Value;

use crate::Reason;
use crate::builder::{Builder, Names};
use crate::error::{ReadError, quoted};
use crate::input::Input;
use crate::json::{Elements, explain, found};

const DAY: f64 = 86_400e9;
const EXPECTED: &str = "a list of events, `[{\"node_id\": …}, …]`";

pub(crate) fn read<R: BufRead>(input: Input<R>, builder: &mut Builder) -> Result<(), ReadError> {
    let meter = input.meter();
    let failure = RefCell::new(None);
    let mut events = Events { builder, last: 0, kinds: Names::default(), open: HashMap::new() };
    let elements =
        Elements { meter: &meter, take: |line, event| events.event(line, &event), failure: &failure };
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = json.deserialize_seq(elements).and_then(|()| json.end());
    read.map_err(|error| explain(&error, failure.take(), &meter, EXPECTED))
}

/// Pairs the ends of faults with their starts.
struct Events<'a> {
    builder: &'a mut Builder,
    /// The time of the last event, in nanoseconds.
    last: i64,
    /// Numbers the types of faults.
    kinds: Names,
    /// The faults without an end, oldest first, by node and type.
    open: HashMap<(u32, u32), VecDeque<usize>>,
}

impl Events<'_> {
    fn event(&mut self, line: u64, event: &Value) -> Result<(), ReadError> {
        if !event.is_object() {
            let what = format!("the event {}, but should be an object", found(Some(event)));
            return Err(ReadError::at(line, what, "write `{\"node_id\": …, \"event_time\": …}`"));
        }
        self.builder.count_record();
        let node = text(line, event, "node_id", "a name")?;
        let is_start = match text(line, event, "event_type", "`fault_start` or `fault_end`")? {
            "fault_start" => true,
            "fault_end" => false,
            other => {
                return Err(ReadError::at(
                    line,
                    format!("`event_type` is {}", quoted(other)),
                    "write `fault_start` or `fault_end`",
                ));
            }
        };
        let fault = event.get("fault_type").filter(|it| it.is_object()).ok_or_else(|| {
            let what = format!("`fault_type` {}", found(event.get("fault_type")));
            ReadError::at(line, what, "write an object with `Level`, `Class` and `Desc`")
        })?;
        let class = text(line, fault, "Class", "the cause")?;
        let time = match event.get("event_time") {
            None | Some(Value::Null) => return self.skip(Reason::NoStart, line),
            Some(time) => time.as_f64().and_then(|it| nanoseconds(it, DAY)).ok_or(time),
        };
        let time = match time {
            Ok(time) => time,
            Err(value) => {
                self.builder.skip_unreadable(line, &value.to_string());
                return Ok(());
            }
        };
        if time < self.last {
            let days = |time: i64| time as f64 / DAY;
            return Err(ReadError::at(
                line,
                format!("`event_time` is {}, after an event at {}", days(time), days(self.last)),
                "sort the events by `event_time`",
            ));
        }
        self.last = time;
        let node = self.builder.node(line, "node_id", node)?;
        let part = |name| fault.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = [part("Level"), class, part("Desc")].join("\0");
        let kind = self.kinds.intern(line, "fault_type", &kind)?;
        if is_start {
            let cause = self.builder.cause(line, "Class", class)?;
            let index = self.builder.add(line, (time, None), (node, cause))?;
            self.open.entry((node, kind)).or_default().extend(index);
            return Ok(());
        }
        let Some(open) = self.open.get_mut(&(node, kind)) else { return self.skip(Reason::NoStart, line) };
        if let Some(index) = open.pop_front() {
            self.builder.end(index, time);
        }
        if open.is_empty() {
            self.open.remove(&(node, kind));
        }
        Ok(())
    }

    fn skip(&mut self, reason: Reason, line: u64) -> Result<(), ReadError> {
        self.builder.skip(reason, line);
        Ok(())
    }
}

/// Returns a field that has to be text.
fn text<'a>(line: u64, object: &'a Value, field: &str, expected: &str) -> Result<&'a str, ReadError> {
    let value = object.get(field);
    value.and_then(Value::as_str).ok_or_else(|| {
        ReadError::at(line, format!("`{field}` {}", found(value)), format!("write {expected}, as text"))
    })
}

/// Converts a time of at least zero to nanoseconds. Returns `None` if it is out of range.
pub(crate) fn nanoseconds(time: f64, unit: f64) -> Option<i64> {
    let time = (time * unit).round();
    (0.0..i64::MAX as f64).contains(&time).then_some(time as i64)
}
