//! Separated values with the columns `start`, `end`, `node` and `cause`: the product's own form.

use std::io::BufRead;

use jiff::Timestamp;

use crate::builder::Builder;
use crate::error::{ReadError, did_you_mean, quoted};
use crate::infinitehbd;
use crate::input::Input;
use crate::table::{Table, split};
use crate::{Columns, Options, Reason};

const SEPARATORS: [u8; 3] = [b',', b'\t', b';'];

/// Returns the separator with which the header has all required columns.
pub(crate) fn separator(header: &str, names: &Columns) -> Option<u8> {
    let has_all = |columns: &[String]| {
        [&names.start, &names.end, &names.node].iter().all(|name| columns.contains(name))
    };
    SEPARATORS.into_iter().find(|it| has_all(&split(header, *it)))
}

pub(crate) fn read<R: BufRead>(
    input: Input<R>,
    options: &Options,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let names = &options.columns;
    let header = input.header()?;
    // Without the required columns, the separator that divides the header most serves to report what is missing.
    let fallback = || SEPARATORS.into_iter().max_by_key(|it| split(header, *it).len()).unwrap_or(b',');
    let separator = separator(header, names).unwrap_or_else(fallback);
    let mut table = Table::new(input, separator)?;
    let [start, end, node] = [&names.start, &names.end, &names.node].map(|it| table.column(it));
    let (start, end, node) = (start?, end?, node?);
    let cause = table.find(&names.cause);
    if cause.is_none() {
        refuse_similar(&table, names)?;
    }
    let conditions = options.conditions.iter().map(|(name, value)| Ok((table.column(name)?, value.as_str())));
    let conditions: Vec<_> = conditions.collect::<Result<_, ReadError>>()?;
    let mut is_date = None;
    let mut rows = 0_u64;
    while table.advance()? {
        let line = table.line;
        rows += 1;
        let mut fits = conditions.iter().map(|(column, value)| Ok(table.field(*column)? == *value));
        if !fits.try_fold(true, |all, it: Result<bool, ReadError>| Ok(all && it?))? {
            continue;
        }
        builder.count_record();
        let (from, to) = (table.field(start)?, table.field(end)?);
        if from.is_empty() {
            builder.skip(Reason::NoStart, line);
            continue;
        }
        let unreadable = [from, to].into_iter().find(|it| !it.is_empty() && nanoseconds(it).is_none());
        let to = if to.is_empty() { Some(None) } else { nanoseconds(to).map(Some) };
        let (Some(from), Some(to)) = (nanoseconds(from), to) else {
            builder.skip_unreadable(line, unreadable.unwrap_or_default());
            continue;
        };
        let kinds = [Some(from), to].map(|it| it.map(|it| it.1));
        if kinds.into_iter().flatten().any(|it| *is_date.get_or_insert(it) != it) {
            return Err(ReadError::at(
                line,
                "the file mixes dates with numbers of seconds",
                "write all times as seconds, or all in the form of RFC 3339",
            ));
        }
        let node = builder.node(line, &names.node, table.field(node)?)?;
        let cause = cause.map_or(Ok(""), |it| table.field(it))?;
        let cause = builder.cause(line, &names.cause, cause)?;
        builder.add(line, (from.0, to.map(|it| it.0)), (node, cause))?;
    }
    if let Some((name, value)) = options.conditions.first()
        && rows > 0
        && builder.is_unused()
    {
        let what = format!("no row has {} in the column {}", quoted(value), quoted(name));
        return Err(ReadError::new(what, "change the condition, or omit it"));
    }
    Ok(())
}

/// Refuses a file without causes if another column looks like the one with the causes.
fn refuse_similar<R: BufRead>(table: &Table<R>, names: &Columns) -> Result<(), ReadError> {
    let is_default = names.cause == Columns::default().cause;
    let similar = table.names().filter(|it| it.eq_ignore_ascii_case(&names.cause));
    let similar: Vec<&str> = similar.collect();
    if similar.is_empty() && is_default {
        return Ok(());
    }
    let all: Vec<&str> = table.names().collect();
    Err(ReadError::at(
        1,
        format!("the header has no column {}", quoted(&names.cause)),
        did_you_mean(&names.cause, &all),
    ))
}

/// Converts seconds, or a date in the form of RFC 3339, to nanoseconds. Returns with them whether it is a date.
fn nanoseconds(text: &str) -> Option<(i64, bool)> {
    if text.bytes().all(|it| it.is_ascii_digit() || b".+-eE".contains(&it))
        && let Ok(seconds) = text.parse::<f64>()
    {
        return infinitehbd::nanoseconds(seconds, 1e9).map(|it| (it, false));
    }
    let date: Timestamp = text.parse().ok()?;
    i64::try_from(date.as_nanosecond()).ok().map(|it| (it, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        assert_eq!(nanoseconds("43200"), Some((43_200_000_000_000, false)));
        assert_eq!(nanoseconds("0.25"), Some((250_000_000, false)));
        assert_eq!(nanoseconds("1970-01-01T00:00:02Z"), Some((2_000_000_000, true)));
        assert_eq!(nanoseconds("1970-01-01T01:00:02+01:00"), Some((2_000_000_000, true)));
        for wrong in ["", "-1", "inf", "nan", "1e300", "1,5", "1970-01-01", "1970-01-01T00:00:02", "noon"] {
            assert_eq!(nanoseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_separator_is_the_one_that_yields_all_columns() {
        let names = Columns::default();
        assert_eq!(separator("cause;node;end;start", &names), Some(b';'));
        assert_eq!(separator("start\tend\tnode", &names), Some(b'\t'));
        assert_eq!(separator("start,end;node", &names), None);
    }
}
