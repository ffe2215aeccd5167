//! The format of the spot traces of SkyPilot: the number of available instances at regular times.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::BufRead;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::builder::Builder;
use crate::error::ReadError;
use crate::infinitehbd::nanoseconds;
use crate::input::{Input, Meter};
use crate::json::{Elements, explain, found};

/// The maximum number of instances.
const INSTANCES: u64 = 1_000_000;
const EXPECTED: &str =
    "an object with `metadata` and `data`, `{\"metadata\": {\"gap_seconds\": 300}, \"data\": [4, 3, …]}`";

pub(crate) fn read<R: BufRead>(input: Input<R>, builder: &mut Builder) -> Result<(), ReadError> {
    let meter = input.meter();
    let failure = RefCell::new(None);
    let (gap, has_data) = (Cell::new(None), Cell::new(false));
    let mut ticks = Ticks::default();
    let file = File { meter: &meter, failure: &failure, gap: &gap, has_data: &has_data, ticks: &mut ticks };
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = json.deserialize_map(file).and_then(|()| json.end());
    read.map_err(|error| explain(&error, failure.take(), &meter, EXPECTED))?;
    let missing = |field: &str| ReadError::new(format!("`{field}` is missing"), format!("write {EXPECTED}"));
    let gap: f64 = gap.get().ok_or_else(|| missing("gap_seconds"))?;
    if !has_data.get() {
        return Err(missing("data"));
    }
    ticks.add_to(builder, gap)
}

/// The whole file.
struct File<'a> {
    meter: &'a Meter,
    failure: &'a RefCell<Option<ReadError>>,
    gap: &'a Cell<Option<f64>>,
    has_data: &'a Cell<bool>,
    ticks: &'a mut Ticks,
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let line = self.meter.line();
            match key.as_str() {
                "metadata" => match gap(line, &map.next_value::<Value>()?) {
                    Ok(gap) => self.gap.set(Some(gap)),
                    Err(error) => {
                        self.failure.replace(Some(error));
                        return Err(A::Error::custom("refused"));
                    }
                },
                "data" => {
                    if self.has_data.replace(true) {
                        let error = ReadError::at(line, "`data` appears twice", "keep one list");
                        self.failure.replace(Some(error));
                        return Err(A::Error::custom("refused"));
                    }
                    let ticks = &mut *self.ticks;
                    let take = |line, value: Value| ticks.tick(line, &value);
                    map.next_value_seed(Elements { meter: self.meter, take, failure: self.failure })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the time between two values, in seconds.
fn gap(line: u64, metadata: &Value) -> Result<f64, ReadError> {
    let gap = metadata.get("gap_seconds");
    gap.and_then(Value::as_f64).filter(|it| *it > 0.0).ok_or_else(|| {
        ReadError::at(line, format!("`gap_seconds` {}", found(gap)), "write a number of seconds above 0")
    })
}

/// The changes in the number of available instances.
#[derive(Default)]
struct Ticks {
    /// The number of values.
    count: u64,
    /// The last value, and the greatest one.
    available: u64,
    most: u64,
    /// The index and the new value at each change.
    changes: Vec<(u64, u32, u64)>,
}

impl Ticks {
    fn tick(&mut self, line: u64, value: &Value) -> Result<(), ReadError> {
        let available = value.as_u64().filter(|it| *it <= INSTANCES).ok_or_else(|| {
            ReadError::at(
                line,
                format!("value {} of `data` {}", self.count + 1, found(Some(value))),
                format!("write the number of available instances, at most {INSTANCES}"),
            )
        })?;
        if self.count == 0 || available != self.available {
            self.changes.push((self.count, available as u32, line));
        }
        (self.available, self.most) = (available, self.most.max(available));
        self.count += 1;
        if self.changes.len() > 4_000_000 {
            return Err(ReadError::at(line, "`data` has more than 4000000 changes", "split the file"));
        }
        Ok(())
    }

    /// Adds the faults: while k instances are available, the nodes 0 to k-1 are up.
    fn add_to(self, builder: &mut Builder, gap: f64) -> Result<(), ReadError> {
        builder.observed = self.most as usize;
        let time = |tick: u64, line: u64| {
            nanoseconds(tick as f64 * gap, 1e9).ok_or_else(|| {
                ReadError::at(line, "the trace lasts longer than 292 years", "check `gap_seconds`")
            })
        };
        let Some(&(_, first, line)) = self.changes.first() else { return Ok(()) };
        let nodes: Vec<u32> =
            (0..self.most).map(|it| builder.node(line, "data", &it.to_string())).collect::<Result<_, _>>()?;
        let cause = builder.cause(line, "data", "preempted")?;
        let mut down = vec![None; nodes.len()];
        let mut up = first;
        for &(tick, available, line) in &self.changes {
            let now = time(tick, line)?;
            for node in available..up {
                builder.count_record();
                down[node as usize] = builder.add(line, (now, None), (nodes[node as usize], cause))?;
            }
            for node in up..available {
                if let Some(index) = down[node as usize].take() {
                    builder.end(index, now);
                }
            }
            up = available;
        }
        Ok(())
    }
}
