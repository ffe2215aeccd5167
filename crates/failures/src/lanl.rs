//! The failure records of Los Alamos National Laboratory, 1996 to 2005.

use std::collections::BTreeMap;
use std::io::BufRead;

use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::Reason;
use crate::builder::{Builder, NAME};
use crate::error::{ReadError, quoted};
use crate::input::Input;
use crate::table::{Table, split};

const SYSTEM: &str = "System";
const STARTED: &str = "Prob Started";
const FIXED: &str = "Prob Fixed";
/// The columns of which at most one contains text: the cause.
const CAUSES: [&str; 6] = ["Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software"];

/// The maximum number of systems in a file.
const SYSTEMS: usize = 1000;

/// Returns whether a header is that of LANL's file.
pub(crate) fn is_header(header: &str) -> bool {
    let columns = split(header, b',');
    [SYSTEM, STARTED, FIXED].iter().all(|name| columns.iter().any(|it| it == name))
}

pub(crate) fn read<R: BufRead>(
    input: Input<R>,
    wanted: Option<&str>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let mut table = Table::new(input, b',')?;
    let column = |name: &str| {
        let help = "this is not a LANL file: omit `--as lanl`, or specify another file";
        let is_lanl = table.names().any(|it| it == SYSTEM || it == STARTED || it == FIXED);
        table.column(name).map_err(|it| if is_lanl { it } else { ReadError { help: help.to_owned(), ..it } })
    };
    let [system, nodes, node, started, fixed] = [SYSTEM, "nodes", "nodenumz", STARTED, FIXED].map(column);
    let (system, nodes, node, started, fixed) = (system?, nodes?, node?, started?, fixed?);
    let causes = CAUSES.map(column).into_iter().collect::<Result<Vec<_>, _>>()?;
    // The number of records of each system.
    let mut systems: BTreeMap<String, u64> = BTreeMap::new();
    while table.advance()? {
        let line = table.line;
        let name = table.field(system)?;
        if let Some(records) = systems.get_mut(name) {
            *records += 1;
        } else if systems.len() == SYSTEMS {
            let what = format!("the file has more than {SYSTEMS} systems");
            return Err(ReadError::at(line, what, "check the column `System`"));
        } else if name.is_empty() || name.len() > NAME {
            let what = format!("`System` is {}", quoted(name));
            return Err(ReadError::at(line, what, "write the number of the system"));
        } else {
            systems.insert(name.to_owned(), 1);
        }
        match wanted {
            Some(wanted) if wanted != name => continue,
            None if systems.len() > 1 => {
                builder.clear();
                continue;
            }
            _ => {}
        }
        builder.count_record();
        let count = table.field(nodes)?;
        let observed: u32 = count.parse().map_err(|_| {
            let what = format!("`nodes` is {}", quoted(count));
            ReadError::at(line, what, "write the number of nodes of the system")
        })?;
        builder.observed = builder.observed.max(observed as usize);
        let mut named = causes.iter().filter(|it| !table.field(**it).is_ok_and(str::is_empty));
        let cause = named.next().map_or("", |it| table.name(*it));
        if let Some(other) = named.next() {
            let what = format!("two causes have text: {} and {}", quoted(cause), quoted(table.name(*other)));
            return Err(ReadError::at(line, what, "keep the text of one cause"));
        }
        let (start, end) = (table.field(started)?, table.field(fixed)?);
        if start.is_empty() {
            builder.skip(Reason::NoStart, line);
            continue;
        }
        let to = if end.is_empty() { Some(None) } else { nanoseconds(end).map(Some) };
        let (Some(from), Some(to)) = (nanoseconds(start), to) else {
            let unreadable = [start, end].into_iter().find(|it| !it.is_empty() && nanoseconds(it).is_none());
            builder.skip_unreadable(line, unreadable.unwrap_or_default());
            continue;
        };
        let node = builder.node(line, "nodenumz", table.field(node)?)?;
        let cause = builder.cause(line, cause, cause)?;
        builder.add(line, (from, to), (node, cause))?;
    }
    check_systems(wanted, &systems)
}

fn check_systems(wanted: Option<&str>, systems: &BTreeMap<String, u64>) -> Result<(), ReadError> {
    let list = || {
        // In the order of their numbers.
        let mut all: Vec<_> = systems.iter().collect();
        all.sort_by_key(|it| (it.0.parse::<u64>().unwrap_or(u64::MAX), it.0.clone()));
        let faults = |count: u64| if count == 1 { "1 fault".to_owned() } else { format!("{count} faults") };
        let shown = all.iter().take(30).enumerate().map(|(index, it)| match index {
            0 => format!("{} ({})", quoted(it.0), faults(*it.1)),
            _ => format!("{} ({})", quoted(it.0), it.1),
        });
        shown.collect::<Vec<_>>().join(", ").replace('`', "")
    };
    match wanted {
        Some(wanted) if !systems.contains_key(wanted) && !systems.is_empty() => Err(ReadError::new(
            format!("the file has no system {}", quoted(wanted)),
            format!("choose one with `--system`: {}", list()),
        )),
        None if systems.len() > 1 => Err(ReadError::new(
            format!("the file has {} systems", systems.len()),
            format!("choose one with `--system`: {}", list()),
        )),
        _ => Ok(()),
    }
}

/// Converts a local time (month/day/year hour:minute) to nanoseconds. A day has 24 hours, because the file states no
/// time zone.
fn nanoseconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(' ')?;
    let mut date = date.split('/');
    let (month, day, year) = (number(date.next()?, 2)?, number(date.next()?, 2)?, date.next()?);
    let (hour, minute) = time.trim_start().split_once(':')?;
    let year = match (year.len(), number(year, 4)?) {
        (2, it @ 69..) => 1900 + it,
        (2, it) => 2000 + it,
        (4, it) => it,
        _ => return None,
    };
    if date.next().is_some() {
        return None;
    }
    let (hour, minute) = (number(hour, 2)? as i8, number(minute, 2)? as i8);
    let local = DateTime::new(year, month as i8, day as i8, hour, minute, 0, 0).ok()?;
    i64::try_from(Offset::UTC.to_timestamp(local).ok()?.as_nanosecond()).ok()
}

/// Parses a number of at most this many digits.
fn number(text: &str, digits: usize) -> Option<i16> {
    let is_number = (1..=digits).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_have_two_or_four_digits_of_the_year() {
        let minute = 60_000_000_000;
        let time = nanoseconds("6/21/2005 10:54").unwrap();
        assert_eq!(nanoseconds("06/21/05 10:54"), Some(time));
        assert_eq!(nanoseconds("6/21/2005 11:00"), Some(time + 6 * minute));
        assert_eq!(nanoseconds("1/1/70 0:01"), Some(minute));
        assert_eq!(nanoseconds("12/31/96 23:59").unwrap() + minute, nanoseconds("1/1/1997 0:00").unwrap());
        for wrong in
            ["", "6/21/2005", "21/6/2005 10:54", "2/30/2005 10:54", "6/21/205 10:54", "6/21/2005 24:00"]
        {
            assert_eq!(nanoseconds(wrong), None, "{wrong}");
        }
        assert_eq!(nanoseconds("6/21/2005/1 10:54"), None);
        assert_eq!(nanoseconds("6/+1/2005 10:54"), None);
    }
}
