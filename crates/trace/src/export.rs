//! Exports of facts for other programs: a table in JSON Lines or CSV, and a communication graph.

use std::collections::BTreeMap;
use std::io::{self, Write};

use faultline_core::{Fact, MessageId, ProcessId, Time};
use serde_json::Value;

use crate::import::run::{EndLine, RunLine};
use crate::manifest::Manifest;
use crate::memory::Trace;
use crate::printable::printable;
use crate::row::{COLUMNS, Naming, Row};

/// Writes one [`Row`] per line as a JSON object, sorted by process and life. Columns that are empty for a
/// fact are omitted.
///
/// # Errors
///
/// Fails if `out` cannot be written.
pub fn json_lines(trace: &Trace, manifest: &Manifest, mut out: impl Write) -> io::Result<()> {
    let (names, began) = (Naming::new(manifest), trace.begun().unwrap_or(Time::ZERO));
    for record in trace.records() {
        serde_json::to_writer(&mut out, &Row::new(&record, &names, began))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes the run as events that can be [imported](crate::import): a line that describes the run, a [`Row`] per fact, and
/// a line that states how the run ended. The last line is missing if the run was cut short, or if facts are missing.
///
/// # Errors
///
/// Fails if `out` cannot be written.
pub fn events(trace: &Trace, manifest: &Manifest, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut out, &RunLine::of(manifest))?;
    out.write_all(b"\n")?;
    json_lines(trace, manifest, &mut out)?;
    let began = trace.begun().unwrap_or(Time::ZERO).0 as i64;
    if let Some(end) = EndLine::of(manifest, trace, began) {
        serde_json::to_writer(&mut out, &end)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a header line with [`COLUMNS`], then one [`Row`] per line as comma-separated values, sorted by process and life.
/// RFC 4180 permits no control characters, so those of texts, and invisible characters, are [replaced](printable).
///
/// # Errors
///
/// Fails if `out` cannot be written.
pub fn csv(trace: &Trace, manifest: &Manifest, out: impl Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS)?;
    let (names, began) = (Naming::new(manifest), trace.begun().unwrap_or(Time::ZERO));
    for record in trace.records() {
        let row = serde_json::to_value(Row::new(&record, &names, began))?;
        table.write_record(COLUMNS.iter().map(|&column| match &row[column] {
            Value::Null => String::new(),
            Value::String(text) => printable(text),
            other => other.to_string(),
        }))?;
    }
    table.flush()
}

/// Numbers of bytes and messages, by sender and receiver.
pub type Channels = BTreeMap<(ProcessId, ProcessId), (u64, u64)>;

/// Returns the traffic of each channel in `intervals` intervals of equal length between the first message and
/// the last. A message that is re-sent, or that a re-execution sends again under the same identity, counts once, at its
/// first send.
///
/// # Panics
///
/// Panics if `intervals` is zero.
pub fn channels(trace: &Trace, intervals: usize) -> Vec<Channels> {
    let mut first: BTreeMap<MessageId, (Time, u32)> = BTreeMap::new();
    for record in trace.records() {
        if let Fact::Sent { id, bytes } = record.fact {
            first.entry(id).or_insert((record.at, bytes));
        }
    }
    let times = || first.values().map(|it| it.0);
    let began = times().min().unwrap_or(Time::ZERO);
    let length = times().max().map_or(0, |it| it.since(began).0) / intervals as u64 + 1;
    let mut channels = vec![Channels::new(); intervals];
    for (id, (at, bytes)) in first {
        let interval = (at.since(began).0 / length) as usize;
        let (sum, messages) = channels[interval].entry((id.from, id.to)).or_default();
        *sum += u64::from(bytes);
        *messages += 1;
    }
    channels
}

/// Writes the communication graph as an edge list: one line per process with its name, and one line per channel with its
/// bytes and messages. Each message counts once. Spaces separate the columns, or commas if not all names are plain words;
/// the names are then quoted.
///
/// # Errors
///
/// Fails if `out` cannot be written.
pub fn graph(trace: &Trace, names: &[(ProcessId, &str)], mut out: impl Write) -> io::Result<()> {
    let is_plain = |it: &str| it.chars().all(|it| it.is_alphanumeric() || "-_.".contains(it));
    let (is_quoted, separator, head) = match names.iter().all(|(_, name)| is_plain(name)) {
        true => (false, ' ', "# from to bytes messages"),
        false => (true, ',', "from,to,bytes,messages"),
    };
    let shown = |name: &str| match is_quoted {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    };
    let names: BTreeMap<ProcessId, String> = names.iter().map(|(it, name)| (*it, shown(name))).collect();
    // A reader needs the names of the columns first to recognise the commas.
    let (before, after) = if is_quoted { (Some(head), None) } else { (None, Some(head)) };
    before.map_or(Ok(()), |it| writeln!(out, "{it}"))?;
    names.values().try_for_each(|it| writeln!(out, "{it}"))?;
    after.map_or(Ok(()), |it| writeln!(out, "{it}"))?;
    for ((from, to), (bytes, messages)) in channels(trace, 1).remove(0) {
        if let (Some(from), Some(to)) = (names.get(&from), names.get(&to)) {
            writeln!(out, "{from}{separator}{to}{separator}{bytes}{separator}{messages}")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::{Expectation, HistoryEntry, ProbeEntry, SystemEntry};
    use crate::manifest::tests::example;
    use crate::manifest::{ClusterEntry, ProcessEntry};
    use crate::memory::{Record, Sink};
    use faultline_consistency::Workload;
    use faultline_core::HistoryNo;
    use faultline_core::operation::{Answer, Call, Completion, FINAL, Key};
    use faultline_core::{
        Cause, CheckNo, Claim, ClusterId, Ending, FactNo, FaultNo, GroupId, Incarnation, Life, Observation,
        Position, ProbeNo, Role, Sn, Span, WatchNo,
    };

    fn manifest() -> Manifest {
        let cluster = |name: &str| ClusterEntry { name: name.into(), nodes: 1 };
        let process = |name: &str, cluster| ProcessEntry { name: name.into(), role: Role::RANK, cluster };
        Manifest {
            clusters: vec![cluster("paris"), cluster("rennes")],
            processes: vec![
                process("paris-0", ClusterId(0)),
                process("rennes-0", ClusterId(1)),
                process("storage-server", ClusterId::OUTSIDE),
            ],
            ..example()
        }
    }

    fn trace() -> Trace {
        let id = MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Incarnation(2), number: 3 };
        let at = |incarnation, sn| Position { incarnation: Incarnation(incarnation), sn: Sn(sn) };
        let rolled_back = Claim::RolledBack {
            to: at(3, 4),
            checkpoint: at(2, 4),
            cause: Cause::Alert { from: GroupId(0), position: at(1, 1) },
            vectors: faultline_core::Vectors { ddv: [at(1, 1), at(2, 4)].into(), ..Default::default() }
                .into(),
        };
        let reason = "it said \"late\", twice".into();
        let facts = [
            (ProcessId(1), 0, Fact::Delivered(id)),
            (ProcessId(1), 1, Fact::Claim(Box::new(rolled_back))),
            (ProcessId::SUPERVISOR, 0, Fact::Ineffective { no: FaultNo(1), reason }),
        ];
        let mut trace = Trace::default();
        let (life, number) = (Life(0), FactNo(0));
        let began = Time(7);
        trace.record(Record { process: ProcessId::SUPERVISOR, life, number, at: began, fact: Fact::Begun });
        for (process, number, fact) in facts {
            trace.record(Record { process, life: Life(4), number: FactNo(number), at: Time(5), fact });
        }
        trace
    }

    #[test]
    fn a_line_of_json_names_processes_and_clusters() {
        let mut bytes = Vec::new();
        json_lines(&trace(), &manifest(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            rows[0],
            serde_json::json!({
                "process": "rennes-0", "cluster": "rennes", "life": 4, "number": 0, "time_ns": -2,
                "fact": "delivered", "sender": "paris-0", "sender_cluster": "paris", "receiver": "rennes-0",
                "receiver_cluster": "rennes", "message_incarnation": 2, "message_number": 3,
                "text": "delivers paris-0->rennes-0 #3 (incarnation 2)",
            })
        );
        let back = &rows[1];
        assert_eq!((&back["fact"], &back["cause"]), (&"rolledBack".into(), &"alert".into()));
        assert_eq!((&back["cause_cluster"], &back["incarnation"]), (&"paris".into(), &3.into()));
        assert_eq!((&back["checkpoint_incarnation"], &back["checkpoint_sn"]), (&2.into(), &4.into()));
        assert_eq!(back["dependencies"], "paris=1.1 rennes=2.4");
        assert_eq!((&rows[2]["process"], &rows[2]["time_ns"]), (&"supervisor".into(), &0.into()));
        assert_eq!((&rows[3]["cluster"], &rows[3]["fault"]), (&Value::Null, &1.into()));
        let known = |row: &Value| row.as_object().unwrap().keys().all(|it| COLUMNS.contains(&it.as_str()));
        assert!(rows.iter().all(known), "{rows:?}");
    }

    #[test]
    fn csv_has_the_same_columns_and_quotes_free_text() {
        let mut bytes = Vec::new();
        csv(&trace(), &manifest(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        let cells: Vec<&str> = lines[1].split(',').collect();
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(
            &cells[..9],
            ["rennes-0", "rennes", "4", "0", "-2", "delivered", "paris-0", "paris", "rennes-0"]
        );
        let end =
            ",\"it said \"\"late\"\", twice\",,,,,,,,,\"fault 1 has no effect: it said \"\"late\"\", twice\"";
        assert!(
            lines[4].starts_with("supervisor,,4,0,-2,ineffective,") && lines[4].ends_with(end),
            "{}",
            lines[4]
        );
    }

    #[test]
    fn csv_contains_no_control_characters() {
        let reason = "\u{1b}[2Ja\0b\r\nc\u{7f}".into();
        let mut trace = Trace::default();
        let (process, fact) = (ProcessId::SUPERVISOR, Fact::Ineffective { no: FaultNo(1), reason });
        trace.record(Record { process, life: Life(4), number: FactNo(0), at: Time(5), fact });
        let mut bytes = Vec::new();
        csv(&trace, &manifest(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains(",\u{fffd}[2Ja\u{fffd}b\u{fffd}\u{fffd}c\u{fffd},"), "{text}");
        assert!(text.chars().all(|it| it == '\n' || !it.is_control()));
    }

    #[test]
    fn every_column_is_documented() {
        let document = include_str!("../../../docs/bundle.md");
        for column in COLUMNS {
            assert!(
                document.contains(&format!("| `{column}` |")),
                "docs/bundle.md does not describe {column}"
            );
        }
    }

    #[test]
    fn observations_are_exported_with_their_names_and_imported_again() {
        let probe = ProbeEntry {
            name: "write".into(),
            by: vec![ProcessId(1)],
            every: Span::from_millis(200),
            timeout: Span::from_secs(1),
        };
        let text = "no write is lost".into();
        let history = HistoryEntry {
            name: "kv".into(),
            by: ProcessId(1),
            count: 5,
            timeout: Span::from_secs(1),
            level: "linearizable".into(),
            workload: Workload {
                seed: 1,
                model: "register".into(),
                every: Span::from_millis(20),
                mix: [("read".into(), 1)].into(),
                keys: 3,
                ops_per_key: 300,
                accounts: 8,
            },
        };
        let check =
            Expectation::Check { check: CheckNo(0), text, by: ProcessId(1), within: Span::from_secs(60) };
        let manifest = Manifest {
            system: Some(SystemEntry {
                probes: vec![probe],
                watches: vec!["leader".into()],
                histories: vec![history],
                ..SystemEntry::default()
            }),
            expectations: vec![check],
            processes: manifest().processes[..2].to_vec(),
            bounds: None,
            ..manifest()
        };
        let (latency, probe) = (Span::from_millis(3), ProbeNo(0));
        let endings = [
            Ending::Exit(0),
            Ending::Signal(9),
            Ending::Http(503),
            Ending::Opened,
            Ending::TimedOut,
            Ending::Failed("connection refused".into()),
            Ending::Impossible("no such file".into()),
            Ending::Exit(75),
        ];
        let samples = (0..).zip(endings).map(|(sample, ending)| {
            let said = if ending == Ending::Exit(75) { "cannot connect" } else { "" }.into();
            Observation::Probed { probe, sample, latency, ending, said }
        });
        let others = [
            Observation::Ready,
            Observation::Logged {
                watch: WatchNo(0),
                line: "became leader".into(),
                log_line: 7,
                is_error: false,
                groups: [("term".into(), "3".into())].into(),
            },
            Observation::LeftOut { watch: WatchNo(0) },
            Observation::Exited { ending: Ending::Exit(3), said: "no config".into() },
            Observation::Stopped { ending: Ending::Signal(9), latency, killed: true, said: "closing".into() },
            Observation::Checked {
                check: CheckNo(0),
                latency,
                ending: Ending::Exit(1),
                said: "lost 7".into(),
            },
            Observation::Checked { check: CheckNo(1), latency, ending: Ending::Exit(0), said: "".into() },
            Observation::Invoked {
                history: HistoryNo(0),
                client: 2,
                session: 1,
                operation: 318,
                call: Call::Write(Key(7), 318),
            },
            Observation::Concluded {
                history: HistoryNo(0),
                operation: 318,
                completion: Completion::Ok(Answer::Null),
            },
            Observation::Concluded {
                history: HistoryNo(0),
                operation: FINAL + 1,
                completion: Completion::Unknown("timed out".into()),
            },
        ];
        let mut trace = Trace::default();
        for (number, it) in (0..).map(FactNo).zip(samples.chain(others)) {
            let (process, life, at) = (ProcessId(1), Life(1), Time(number.0));
            trace.record(Record { process, life, number, at, fact: Fact::Observed(Box::new(it)) });
        }
        let mut bytes = Vec::new();
        events(&trace, &manifest, &mut bytes).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        for part in [
            r#""fact":"probeSucceeded","probe":"write","sample":0,"latency_ns":3000000,"ending":"exit","status":0"#,
            r#""text":"probe write fails after 3.00 ms: connection refused (sample 5)""#,
            r#""watch":"leader","line":"became leader","log_line":7,"stream":"stdout","groups":{"term":"3"},"text":"logs leader: became leader""#,
            r#""fact":"probeUnknown","probe":"write","sample":6"#,
            r#""ending":"exit","status":75,"said":"cannot connect""#,
            r#""text":"its command ends: exit status 3: no config""#,
            r#""text":"check \"no write is lost\" fails after 3.00 ms: exit status 1: lost 7""#,
            r#""check":"final operations of kv""#,
            r#""fact":"invoked","history":"kv","client":2,"session":1,"operation":318,"call":{"write":[7,318]}"#,
            r#""text":"client 2 of kv begins operation 318: write 318 to k7 (session 1)""#,
            r#""fact":"concluded","history":"kv","operation":318,"answer":{"ok":"null"}"#,
            r#""text":"final operation 1 of kv has no result: timed out""#,
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let (imported, again) = crate::import::import(&bytes, "events.jsonl", None, 100).unwrap();
        assert_eq!((imported.system, imported.expectations), (manifest.system, manifest.expectations));
        assert_eq!(again.streams[&(ProcessId(1), Life(1))], trace.streams[&(ProcessId(1), Life(1))]);
        let wrong = text.replacen("\"status\":0", "\"status\":1", 1);
        let error = crate::import::import(wrong.as_bytes(), "events.jsonl", None, 100).unwrap_err();
        assert!(error.what.contains("contradict each other"), "{error:?}");
    }

    /// Returns a trace in which process 0 sends `messages` to process 1. Each entry contains the number of a message,
    /// its length, and the time of its send.
    fn sent(messages: &[(u32, u32, u64)]) -> Trace {
        let mut trace = Trace::default();
        for (number, &(name, bytes, at)) in messages.iter().enumerate() {
            let (from, to, incarnation) = (ProcessId(0), ProcessId(1), Incarnation(0));
            let fact = Fact::Sent { id: MessageId { from, to, incarnation, number: name }, bytes };
            let number = FactNo(number as u64);
            trace.record(Record { process: from, life: Life(1), number, at: Time(at), fact });
        }
        trace
    }

    #[test]
    fn a_graph_counts_each_message_once() {
        let trace = sent(&[(0, 10, 5), (1, 20, 5), (1, 20, 5)]);
        let mut bytes = Vec::new();
        graph(&trace, &[(ProcessId(0), "a-0"), (ProcessId(1), "a-1")], &mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "a-0\na-1\n# from to bytes messages\na-0 a-1 30 2\n");
    }

    #[test]
    fn messages_are_counted_in_the_interval_in_which_they_were_first_sent() {
        let trace = sent(&[(0, 1, 100), (1, 2, 109), (2, 4, 110), (0, 1, 119), (3, 8, 119)]);
        let by = |intervals| -> Vec<(u64, u64)> {
            channels(&trace, intervals)
                .iter()
                .map(|it| it.values().copied().next().unwrap_or_default())
                .collect()
        };
        assert_eq!(by(1), [(15, 4)]);
        assert_eq!(by(2), [(3, 2), (12, 2)]);
        assert_eq!(by(4), [(1, 1), (2, 1), (4, 1), (8, 1)]);
        assert_eq!(channels(&Trace::default(), 3), vec![Channels::new(); 3]);
    }
}
