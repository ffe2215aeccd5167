//! Facts for other programs: JSON Lines with everything, CSV with what a spreadsheet can use, and who sent how much to
//! whom.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use faultline_core::{Fact, MessageId, ProcessId};

use crate::describe::{describe, message_of};
use crate::memory::{Record, Trace};

/// Writes one [`Record`] per line as JSON, by process and life.
pub fn json_lines(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    for record in trace.records() {
        serde_json::to_writer(&mut out, &record)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes one line per fact, by process and life, under a line of column names. Columns of a message are empty for
/// facts that are not about one.
pub fn csv(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "process,life,number,at_ns,kind,from,to,message_incarnation,message_number,text")?;
    for Record { process, life, number, at, fact } in trace.records() {
        write!(out, "{},{},{},{},{}", process.0, life.0, number.0, at.0, kind_name(&fact))?;
        match message_of(&fact) {
            Some(MessageId { from, to, incarnation, number }) => {
                write!(out, ",{},{},{},{number}", from.0, to.0, incarnation.0)?;
            }
            None => out.write_all(b",,,,")?,
        }
        writeln!(out, ",\"{}\"", describe(&fact).to_string().replace('"', "\"\""))?;
    }
    out.flush()
}

/// Writes the communication graph as an edge list: a line with the name of each process, then one for each channel with
/// its bytes and messages. A message that is sent again, or by a re-execution under its old name, counts once.
pub fn graph(trace: &Trace, names: &[(ProcessId, &str)], mut out: impl Write) -> io::Result<()> {
    let mut channels: BTreeMap<(ProcessId, ProcessId), (u64, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for record in trace.records() {
        if let Fact::Sent { id, bytes } = record.fact
            && seen.insert(id)
        {
            let (sum, messages) = channels.entry((id.from, id.to)).or_default();
            *sum += u64::from(bytes);
            *messages += 1;
        }
    }
    let names: BTreeMap<ProcessId, &str> = names.iter().copied().collect();
    names.values().try_for_each(|it| writeln!(out, "{it}"))?;
    writeln!(out, "# from to bytes messages")?;
    for ((from, to), (bytes, messages)) in channels {
        if let (Some(from), Some(to)) = (names.get(&from), names.get(&to)) {
            writeln!(out, "{from} {to} {bytes} {messages}")?;
        }
    }
    out.flush()
}

/// As users name it in triggers.
fn kind_name(fact: &Fact) -> String {
    match serde_json::to_value(fact.kind()) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a kind of fact is a word, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Sink;
    use faultline_core::{FactNo, FaultNo, Incarnation, Life, ProcessId, Time};

    fn trace() -> Trace {
        let id = MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Incarnation(2), number: 3 };
        let reason = "it said \"late\", twice".into();
        let mut trace = Trace::default();
        for (number, fact) in
            [Fact::Delivered(id), Fact::Ineffective { no: FaultNo(1), reason }].into_iter().enumerate()
        {
            let number = FactNo(number as u64);
            trace.record(Record { process: ProcessId(1), life: Life(4), number, at: Time(5), fact });
        }
        trace
    }

    #[test]
    fn json_lines_hold_the_records() {
        let mut bytes = Vec::new();
        json_lines(&trace(), &mut bytes).unwrap();
        let read: Vec<Record> = String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, trace().records().collect::<Vec<_>>());
    }

    #[test]
    fn a_graph_counts_each_message_once() {
        let mut trace = Trace::default();
        let id =
            |number| MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Incarnation(0), number };
        for (number, (name, bytes)) in [(0, 10), (1, 20), (1, 20)].into_iter().enumerate() {
            let (number, fact) = (FactNo(number as u64), Fact::Sent { id: id(name), bytes });
            trace.record(Record { process: ProcessId(0), life: Life(1), number, at: Time(5), fact });
        }
        let mut bytes = Vec::new();
        graph(&trace, &[(ProcessId(0), "a-0"), (ProcessId(1), "a-1")], &mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "a-0\na-1\n# from to bytes messages\na-0 a-1 30 2\n");
    }

    #[test]
    fn csv_quotes_what_people_wrote() {
        let mut bytes = Vec::new();
        csv(&trace(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines[0], "1,4,0,5,delivered,0,1,2,3,\"delivered p0->p1 #3 (incarnation 2)\"");
        assert_eq!(
            lines[1],
            "1,4,1,5,ineffective,,,,,\"saw no effect of fault 1: it said \"\"late\"\", twice\""
        );
    }
}
