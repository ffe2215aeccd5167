//! Failure traces in every format: what is read from them, and what is refused.

mod generate;

use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;

use faultline_core::{Span, Time};
use faultline_failures::{Columns, FailureTrace, Format, Options, ReadError, Reason, Statistics, read, text};
use proptest::prelude::*;

const TINY: &str = include_str!("data/tiny.json");
const LANL: &str = include_str!("data/lanl.csv");
const SYSTEMS: &str = include_str!("data/lanl-systems.csv");
const SPOT: &str = include_str!("data/spot.json");
const PLAIN: &str = include_str!("data/plain.csv");
const EVENTS: &str = include_str!("data/events.tsv");
const DATES: &str = include_str!("data/dates.csv");

fn parse(text: &str) -> FailureTrace {
    with(text, &Options::default())
}

fn with(text: &str, options: &Options) -> FailureTrace {
    read(text.as_bytes(), options).unwrap_or_else(|it| panic!("{it}"))
}

fn wrong(text: impl AsRef<[u8]>, options: &Options) -> String {
    let ReadError { help, .. } = error(&text, options);
    assert!(!help.is_empty());
    format!("{}; {help}", error(text, options))
}

fn error(text: impl AsRef<[u8]>, options: &Options) -> ReadError {
    match read(text.as_ref(), options) {
        Ok(it) => panic!("read {} faults", it.faults.len()),
        Err(error) => error,
    }
}

/// Returns the faults: start and repair in seconds, node, and cause.
fn faults(trace: &FailureTrace) -> Vec<(f64, Option<f64>, &str, &str)> {
    let one = |it: &faultline_failures::FaultRecord| {
        let repair = it.repair().map(Span::as_secs_f64);
        (it.start.as_secs_f64(), repair, &*trace.nodes[it.node as usize], &*trace.causes[it.cause as usize])
    };
    trace.faults.iter().map(one).collect()
}

#[test]
fn the_statistics_of_a_tiny_trace_are_those_computed_by_hand() {
    let shown = text::text("tiny.json", &Statistics::of(&parse(TINY)));
    let expected = "\
tiny.json: infinitehbd, 5 faults on 3 of 3 nodes, over 4.00 d

 time between faults  mean 15.0 h, median 12.0 h, variation 1.01 (1 if exponential); 1 of 4 gaps is 0
 Weibull fit          shape 1.93, scale 22.8 h (largest deviation 0.41; exponential 0.45), from the gaps above 0
 per node             one fault in 45.0 h; at most 2 on one node; half of the faults on 2 nodes
 at the same instant  1 instant with several faults, at most 2
 within 1 h           1 of 4 groups has several faults; the largest has 2
 repair               mean 16.8 h, median 12.0 h, 90 % within 33.6 h, longest 2.00 d; 0 unknown
 nodes down at once   mean 0.88; at most 2 for 99 % of the time; at most 2

 cause  faults  share    median repair
 GPU    3       60.0 %   12.0 h
 NIC    1       20.0 %   6.00 h
 Fan    1       20.0 %   2.00 d
";
    assert_eq!(shown, expected);
}

#[test]
fn formats_are_recognised_by_their_content() {
    let formats = [TINY, LANL, SPOT, PLAIN, DATES].map(|it| parse(it).format);
    let [hbd, lanl, spot, csv] = Format::ALL;
    assert_eq!(formats, [hbd, lanl, spot, csv, csv]);
    let marked = format!("\u{FEFF}\r\n{}", PLAIN.replace('\n', "\r\n"));
    assert_eq!(faults(&parse(&marked)), faults(&parse(PLAIN)));
    assert_eq!(faults(&parse(&PLAIN.replace('\n', "\r"))), faults(&parse(PLAIN)));
}

#[test]
fn an_end_closes_the_oldest_open_start_of_its_node_and_type() {
    let day = 86_400.0;
    let trace = parse(TINY);
    assert_eq!(
        faults(&trace),
        [
            (0.0 * day, Some(0.5 * day), "n1", "GPU"),
            (0.0 * day, Some(0.25 * day), "n2", "NIC"),
            (1.5 * day, Some(0.25 * day), "n1", "GPU"),
            (2.0 * day, Some(2.0 * day), "n3", "Fan"),
            (2.5 * day, Some(0.5 * day), "n2", "GPU"),
        ]
    );
    let event = |time: u32, kind: &str, desc: &str| {
        format!(
            "{{\"node_id\":\"n\",\"event_time\":{time},\"event_type\":\"fault_{kind}\",\"fault_type\":{{\"Class\":\"GPU\",\"Desc\":\"{desc}\"}}}}"
        )
    };
    let events = [
        event(0, "start", "a"),
        event(1, "start", "a"),
        event(2, "start", "b"),
        event(3, "end", "a"),
        event(5, "end", "b"),
        event(6, "start", "a"),
    ];
    let trace = parse(&format!("[{}]", events.join(",")));
    let repairs: Vec<Option<f64>> = faults(&trace).iter().map(|it| it.1.map(|it| it / day)).collect();
    assert_eq!(repairs, [Some(3.0), None, Some(3.0), None]);
}

#[test]
fn lanl_records_have_local_times_and_one_cause() {
    let trace = parse(LANL);
    assert_eq!(faults(&trace), [(0.0, Some(360.0), "0", "Hardware"), (0.0, None, "1", "Software")]);
    assert_eq!(trace.observed, 3, "the column `nodes` states it");
    let chosen = Options { system: Some("18".into()), ..Options::default() };
    assert_eq!(with(SYSTEMS, &chosen).observed, 5);
    assert_eq!(
        wrong(SYSTEMS, &Options::default()),
        "the file has 2 systems; choose one with `--system`: 2 (1 fault), 18 (1)"
    );
    let other = Options { system: Some("3".into()), ..Options::default() };
    assert_eq!(
        wrong(SYSTEMS, &other),
        "the file has no system `3`; choose one with `--system`: 2 (1 fault), 18 (1)"
    );
}

#[test]
fn a_fall_fails_the_highest_instances_and_a_rise_repairs_the_lowest_first() {
    let trace = parse(SPOT);
    let at = |start: f64, repair, node| (start, Some(repair), node, "preempted");
    assert_eq!(
        faults(&trace),
        [at(0.0, 600.0, "3"), at(900.0, 300.0, "1"), at(900.0, 300.0, "2"), at(900.0, 300.0, "3")]
    );
    assert_eq!(trace.observed, 4);
    let partly =
        parse("{\"data\": [0, 3, 0, 2], \"other\": [{}], \"metadata\": {\"gap_seconds\": 0.5, \"a\": 1}}");
    assert_eq!(
        faults(&partly),
        [
            (0.0, Some(0.5), "0", "preempted"),
            (0.0, Some(0.5), "1", "preempted"),
            (0.0, None, "2", "preempted")
        ]
    );
}

#[test]
fn columns_can_be_renamed_and_rows_chosen() {
    assert_eq!(
        faults(&parse(PLAIN)),
        [(0.0, Some(43_200.0), "n1", "GPU"), (0.0, Some(21_600.0), "n2", "NIC")]
    );
    assert_eq!(
        faults(&parse(DATES)),
        [(0.0, Some(43_200.0), "n1", "GPU"), (43_200.0, None, "n2", "Fan; left")],
        "a trace begins with its first fault"
    );
    let columns = Columns {
        start: "event_start_time".into(),
        end: "event_stop_time".into(),
        node: "node_id".into(),
        ..Columns::default()
    };
    let options =
        Options { columns, conditions: vec![("event_type".into(), "0".into())], ..Options::default() };
    assert_eq!(
        faults(&with(EVENTS, &options)),
        [(0.0, Some(10.0), "n1", "none"), (25.5, None, "n2", "none")]
    );
    let none = Options { conditions: vec![("event_type".into(), "7".into())], ..options.clone() };
    assert!(wrong(EVENTS, &none).starts_with("no row has `7` in the column `event_type`"));
    let unknown = Options { conditions: vec![("event_kind".into(), "0".into())], ..options };
    assert_eq!(
        wrong(EVENTS, &unknown),
        "line 1: the header has no column `event_kind`; did you mean `event_id`?"
    );
}

#[test]
fn options_choose_faults_but_not_the_numbers_of_nodes() {
    let causes = Options { causes: vec!["NIC".into(), "Fan".into()], nodes: Some(9), ..Options::default() };
    let trace = with(TINY, &causes);
    assert_eq!(faults(&trace).iter().map(|it| it.2).collect::<Vec<_>>(), ["n2", "n3"]);
    assert_eq!((trace.nodes.join(" "), trace.observed), ("n1 n2 n3".to_owned(), 9));
    let hour = |hours: u64| Time(hours * 3_600_000_000_000);
    let part = Options { begin: Some(hour(36)), end: Some(hour(60)), ..Options::default() };
    assert_eq!(
        faults(&with(TINY, &part)).iter().map(|it| it.0).collect::<Vec<_>>(),
        [0.0, 43_200.0],
        "a part begins with its first fault, too"
    );
    let unknown = Options { causes: vec!["Gpu".into()], ..Options::default() };
    assert_eq!(wrong(TINY, &unknown), "no fault has the cause `Gpu`; did you mean `GPU`?");
    let late = Options { begin: Some(hour(960)), ..Options::default() };
    assert!(
        wrong(TINY, &late).starts_with(
            "`--begin` is after the end of the trace (found 40.0 d; the last event is at 4.00 d)"
        )
    );
    let few = Options { nodes: Some(2), ..Options::default() };
    assert!(wrong(TINY, &few).starts_with("`--nodes` is 2, but the file has faults on 3 nodes"));
    let none = Options { begin: Some(hour(2)), end: Some(hour(3)), ..Options::default() };
    assert!(wrong(TINY, &none).starts_with("no fault is left"));
    let unfit = Options { system: Some("2".into()), ..Options::default() };
    assert!(
        wrong(TINY, &unfit).starts_with("`--system` applies only to the format lanl (found infinitehbd)")
    );
}

#[test]
fn the_instant_from_which_times_count_does_not_matter() {
    let rows = |origin: u64| {
        let row =
            |(start, end, node): (u64, u64, &str)| format!("{},{},{node}\n", origin + start, origin + end);
        let rows = [(0, 3600, "gpu-1"), (86_400, 90_000, "gpu-2"), (172_800, 176_400, "gpu-1")].map(row);
        format!("start,end,node\n{}", rows.concat())
    };
    let of = |origin| {
        let trace = parse(&rows(origin));
        (faults(&trace).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), trace.last_event())
    };
    assert_eq!(of(0).0[1], (86_400.0, Some(3600.0)));
    for origin in [43_200, 1_717_200_000] {
        assert_eq!(of(origin), of(0), "{origin}");
    }
}

#[test]
fn merging_joins_records_that_begin_shortly_after_the_previous_one() {
    let rows = "start,end,node\n0,10,a\n500,,a\n1000,1200,a\n1000,1001,b\n1700,1750,a\n";
    let merged = Options { merge: Some(Span::from_secs(600)), ..Options::default() };
    assert_eq!(
        faults(&with(rows, &merged)),
        [
            (0.0, Some(1200.0), "a", "none"),
            (1000.0, Some(1.0), "b", "none"),
            (1700.0, Some(50.0), "a", "none")
        ]
    );
}

#[test]
fn the_products_own_form_keeps_the_faults() {
    for text in [TINY, LANL, SPOT, PLAIN, DATES] {
        let trace = parse(text);
        let again = parse(&trace.to_csv());
        assert_eq!(faults(&again), faults(&trace));
        assert_eq!(again.to_csv(), trace.to_csv());
    }
    assert!(parse(DATES).to_csv().ends_with("43200,,n2,Fan; left\n"));
}

#[test]
fn up_to_one_percent_of_the_records_are_skipped() {
    let rows = |wrong: &[&str], right: usize| {
        let right: String = (0..right).map(|it| format!("{it},{it},n\n")).collect();
        format!("start,end,node\n{right}{}\n", wrong.join("\n"))
    };
    let trace = parse(&rows(&[",5,n", "9,3,n"], 198));
    let skipped: Vec<String> = trace.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(
        skipped,
        ["1 without a start, the first in line 200", "1 with an end before the start, the first in line 201"]
    );
    assert_eq!((trace.records, trace.faults.len()), (200, 198));
    assert!(
        wrong(rows(&[",5,n", "9,noon,n"], 197), &Options::default())
            .starts_with("line 199: 2 of 199 records cannot be used: 1 without a start, the first in line 199; 1 with an unreadable")
    );
    let end = TINY.replacen("fault_start", "fault_end", 1);
    assert!(wrong(end, &Options::default()).contains("of 10 records cannot be used: 2 without a start"));
    assert_eq!(trace.skipped[0].reason, Reason::NoStart);
}

/// The files in `data/malformed`, and how the error begins.
const MALFORMED: &[(&str, &str)] = &[
    ("event-type.json", "line 3: `event_type` is `end`; write `fault_start` or `fault_end`"),
    ("node-number.json", "line 2: `node_id` is `2`; write a name, as text"),
    ("node-missing.json", "line 1: `node_id` is missing"),
    ("node-empty.json", "line 1: `node_id` is empty"),
    ("node-escape.json", "line 1: `node_id` is not a name (found `a\\u{1b}[2J`)"),
    ("class-missing.json", "line 1: `Class` is missing"),
    ("fault-type-text.json", "line 1: `fault_type` is `\"GPU\"`; write an object"),
    ("descending.json", "line 3: `event_time` is 0.25, after an event at 0.5; sort"),
    (
        "time-text.json",
        "line 3: 1 of 4 records cannot be used: 1 with an unreadable time, the first in line 3 (found `",
    ),
    ("time-missing.json", "line 4: 1 of 4 records cannot be used: 1 without a start"),
    ("end-without-start.json", "line 1: 2 of 4 records cannot be used: 2 without a start"),
    ("not-an-event.json", "line 1: the event is `7`, but should be an object"),
    ("comma-missing.json", "line 2: this is not valid JSON: expected `,` or `]`"),
    ("trailing.json", "line 4: this is not valid JSON: trailing characters"),
    ("truncated.json", "line 4: the file ends in the middle of a record"),
    ("gap-zero.json", "line 1: `gap_seconds` is `0`; write a number of seconds above 0"),
    ("gap-missing.json", "line 1: `gap_seconds` is missing"),
    ("data-missing.json", "`data` is missing"),
    ("data-twice.json", "line 1: `data` appears twice"),
    ("instances-negative.json", "line 1: value 2 of `data` is `-4`"),
    ("instances-fraction.json", "line 1: value 2 of `data` is `4.5`"),
    ("instances-many.json", "line 1: value 2 of `data` is `1000001`"),
    ("lanl-column-missing.csv", "line 1: the header has no column `Network`"),
    ("lanl-nodes.csv", "line 2: `nodes` is `three`"),
    ("lanl-system-empty.csv", "line 2: `System` is ``"),
    ("lanl-two-causes.csv", "line 2: two causes have text: `Hardware` and `Human Error`"),
    (
        "lanl-day-first.csv",
        "line 2: 1 of 2 records cannot be used: 1 with an unreadable time, the first in line 2 (found `21/6/",
    ),
    ("lanl-field-missing.csv", "line 2: the row has 25 fields, but the header has 26"),
    ("field-missing.csv", "line 3: the row has 3 fields, but the header has 4"),
    ("quote-open.csv", "line 3: a quote is never closed"),
    ("node-empty.csv", "line 3: `node` is empty"),
    ("start-empty.csv", "line 3: 1 of 2 records cannot be used: 1 without a start"),
    ("end-before-start.csv", "line 3: 1 of 2 records cannot be used: 1 with an end before the start"),
    ("cause-capital.csv", "line 1: the header has no column `cause`; did you mean `Cause`?"),
    ("column-twice.csv", "line 1: two columns are named `node`"),
    (
        "start-missing.csv",
        "line 1: the format is not recognised (the file begins with `begin,end,node,cause`)",
    ),
    ("times-mixed.csv", "line 3: the file mixes dates with numbers of seconds"),
    ("separators-mixed.csv", "line 1: the format is not recognised"),
];

#[test]
fn readers_refuse_what_they_do_not_understand() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed");
    for (file, expected) in MALFORMED {
        let found = wrong(fs::read(directory.join(file)).unwrap(), &Options::default());
        assert!(found.starts_with(expected), "{file}: {found}\nexpected: {expected}");
    }
    assert_eq!(fs::read_dir(directory).unwrap().count(), MALFORMED.len(), "a file is not tested");
}

#[test]
fn files_that_are_not_traces_are_refused() {
    let plain = Options::default();
    let declared = |format| Options { format: Some(format), ..Options::default() };
    let [hbd, lanl, spot, csv] = Format::ALL;
    let cases = [
        (wrong("", &plain), "the file is empty"),
        (wrong(" \n\t\n", &declared(csv)), "the file is empty"),
        (wrong("[]", &plain), "the file contains no faults"),
        (wrong("start,end,node\n", &plain), "the file contains no faults"),
        (wrong("{\"metadata\":{\"gap_seconds\":1},\"data\":[3,3]}", &plain), "the file contains no faults"),
        (wrong(&TINY[..400], &plain), "line 3: the file ends in the middle of a record"),
        (wrong(&TINY[..TINY.len() - 2], &plain), "line 10: the file ends in the middle"),
        (wrong(b"\x1F\x8B\x08\x00", &plain), "the file is compressed; decompress it first: `gzip -dc"),
        (wrong(b"\xFF\xFE[\x00{\x00", &plain), "line 1: the file is not UTF-8 text"),
        (
            wrong(b"\x7FELF\x02\x01\x01\x00\n", &plain),
            "line 1: the format is not recognised (the file begins with `\\u{7f}ELF",
        ),
        (wrong(b"start,end,node\n1,2,\xFF\xFE\n", &plain), "line 2: `node` is not UTF-8 text"),
        (wrong(TINY, &declared(spot)), "line 1: the file is not an object"),
        (wrong(SPOT, &declared(hbd)), "line 1: the file is not a list of events"),
        (wrong(PLAIN, &declared(hbd)), "line 1: this is not valid JSON: expected value in column"),
        (wrong(TINY, &declared(lanl)), "line 1: the header has no column `System`"),
        (wrong(PLAIN, &declared(lanl)), "line 1: the header has no column `System`"),
        (wrong(LANL, &declared(csv)), "line 1: the header has no column `start`"),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found}\nexpected: {expected}");
    }
}

#[test]
fn damaged_text_is_refused_even_where_it_is_not_used() {
    let plain = Options::default();
    let csv = b"start,end,node,cause,remark\n1,2,a,GPU,x\xE9\n3,4,b,GPU,\n";
    let found = wrong(csv, &plain);
    assert!(found.starts_with("line 2: the file is not UTF-8 text; "), "{found}");
    assert!(found.contains("iconv"), "{found}");
    let json = TINY.replacen("n3", "n\u{1}", 1).replace('\u{1}', "@");
    let mut json = json.into_bytes();
    let at = json.iter().position(|it| *it == b'@').expect("it is there");
    json[at] = 0xFF;
    let line = 1 + json[..at].iter().filter(|it| **it == b'\n').count();
    let found = wrong(&json, &plain);
    assert!(found.starts_with(&format!("line {line}: the file is not UTF-8 text")), "{found}");
    let spot = b"{\"metadata\": {\"gap_seconds\": 1, \"zone\": \"\xC3\"},\n\"data\": [3, 2]}";
    assert!(wrong(spot, &plain).starts_with("line 1: the file is not UTF-8 text"));
    let found = wrong(b"start,end,node\n1,2,a\n3,4,b\xC3", &plain);
    assert!(found.starts_with("line 3: ") && found.contains("not UTF-8 text"), "{found}");
    assert!(wrong(b"start,end,n\xF6de\n1,2,a\n", &plain).starts_with("line 1: "));
    // A character may be divided between two reads.
    let text = format!("start,end,node\n1,2,{}\n", "\u{fc}".repeat(100));
    for size in 1..6 {
        let reader = BufReader::with_capacity(size, text.as_bytes());
        assert_eq!(read(reader, &plain).expect("it is UTF-8").nodes, ["\u{fc}".repeat(100)]);
    }
}

/// A number or a name that is cut is another valid one.
#[test]
fn a_last_line_that_may_be_cut_is_refused() {
    let plain = Options::default();
    let whole = "start,end,node,cause\n10,20,n1,GPU\n30,400,n12,NIC\n";
    assert_eq!(parse(whole).faults.len(), 2);
    assert_eq!(parse(&whole.replace('\n', "\r\n")).faults.len(), 2);
    assert_eq!(parse(&whole.replace('\n', "\r")).faults.len(), 2);
    for end in whole.len() - 14..whole.len() {
        let error = error(&whole[..end], &plain);
        assert_eq!(error.line, Some(3), "{:?}: {error}", &whole[..end]);
        assert!(
            error.help.starts_with("fetch the complete file again"),
            "{:?}: {}",
            &whole[..end],
            error.help
        );
    }
    let found = wrong(&whole[..whole.len() - 1], &plain);
    assert!(found.starts_with("line 3: the last line has no line break, so it may be cut; "), "{found}");
    for cut in [LANL, EVENTS].map(|it| it.trim_end_matches('\n')) {
        let columns = Columns {
            start: "event_start_time".into(),
            end: "event_stop_time".into(),
            node: "node_id".into(),
            ..Columns::default()
        };
        let options = if cut == LANL.trim_end_matches('\n') {
            plain.clone()
        } else {
            Options { columns, ..plain.clone() }
        };
        let found = wrong(cut, &options);
        assert!(found.contains("the last line has no line break"), "{found}");
    }
}

#[test]
fn large_traces_are_read_in_one_pass() {
    let mut bytes = Vec::new();
    generate::lanl(30_000, &mut bytes).unwrap();
    let trace = read(&bytes[..], &Options::default()).unwrap();
    assert_eq!(
        (trace.faults.len(), trace.nodes.len(), trace.observed, trace.causes.len()),
        (30_000, 1000, 1000, 6)
    );
    let it = Statistics::of(&trace);
    // The generated months have 28 days, so a repair across the end of a month appears to take up to three days more.
    assert!(
        it.repair.unknown > 400 && it.repair.longest_seconds <= Some(36_000.0 + 3.0 * 86_400.0),
        "{:?}",
        it.repair
    );
    let mut bytes = Vec::new();
    generate::infinitehbd(30_000, &mut bytes).unwrap();
    let trace = read(&bytes[..], &Options::default()).unwrap();
    assert_eq!((trace.records, trace.faults.len(), trace.nodes.len()), (30_000, 15_000, 1000));
    assert!(trace.skipped.is_empty() && trace.faults.iter().all(|it| it.repair().is_some()));
    // In this form, a record has several lines.
    let late = String::from_utf8(bytes).unwrap().replacen("\"event_time\": 0.0010", "\"event_time\": -1", 1);
    let trace = read(late.as_bytes(), &Options::default()).unwrap();
    assert_eq!((trace.skipped[0].first_line, trace.skipped[0].reason), (12, Reason::UnreadableTime));
}

#[test]
fn a_record_without_an_end_does_not_fill_the_memory() {
    // A gigabyte, which is generated while it is read.
    let endless = |begin: &'static str, fill: u8| {
        let reader = begin.as_bytes().chain(std::io::repeat(fill).take(1 << 30));
        read(BufReader::new(reader), &Options::default()).expect_err("one record is too long").to_string()
    };
    let long = "the record is longer than 1 MiB";
    for (begin, fill) in [
        ("[", b'1'),
        ("[", b'['),
        ("[\"", b'a'),
        ("[{\"node_id\":\"n1\",\"", b'k'),
        ("[", b' '),
        ("{\"", b'a'),
        ("{\"data\":[", b'1'),
        ("{\"data\":[4,3],\"other\":\"", b'a'),
        ("start,end,node\n1,2,", b'n'),
        ("start,end,node\n1,2,n\n\"", b'\n'),
        (
            "System,Prob Started,Prob Fixed,nodes,nodenumz,Facilities,Hardware,Human Error,Network,Undetermined,Software\n2,",
            b'1',
        ),
    ] {
        let error = endless(begin, fill);
        assert!(
            error.contains(long) || error.contains("recursion limit"),
            "{begin}{}: {error}",
            fill as char
        );
    }
    assert!(endless("", b'a').contains("the format is not recognised"));
    assert!(endless("", b' ').contains("the file is empty"));
}

#[test]
fn a_node_with_several_faults_at_once_is_down_once() {
    let down = |rows: &str| Statistics::of(&parse(&format!("start,end,node\n{rows}"))).down_at_once;
    let it = down("0,10,a\n2,4,a\n5,15,a\n10,20,b\n30,40,a\n").expect("the trace has a duration");
    // Node a is down from 0 to 15 and from 30 to 40, node b from 10 to 20.
    assert_eq!((it.mean, it.p90, it.p99, it.most), (35.0 / 40.0, 2, 2, 2));
    let it = down("0,1000,a\n0,9,b\n").expect("the trace has a duration");
    assert_eq!((it.p90, it.p99, it.most), (1, 1, 2), "two nodes are down for less than 1 % of the time");
    let it = down("0,1000,a\n0,20,b\n").expect("the trace has a duration");
    assert_eq!((it.p90, it.p99), (1, 2));
    assert!(down("5,,a\n").is_none());
    let it = down("0,,a\n8,10,b\n").expect("the trace has a duration");
    assert_eq!((it.mean, it.most), (0.2, 1), "an unknown repair time does not count");
}

#[test]
fn groups_are_maximal_runs_of_short_gaps() {
    let rows: String = [0, 50, 110, 171, 900, 4000, 9000].iter().map(|it| format!("{it},,n\n")).collect();
    let statistics = Statistics::of(&parse(&format!("start,end,node\n{rows}")));
    let groups: Vec<_> =
        statistics.groups.iter().map(|it| (it.within_seconds, it.groups, it.several, it.largest)).collect();
    assert_eq!(groups, [(60, 5, 1, 3), (600, 4, 1, 4), (3600, 2, 1, 6)]);
}

#[test]
fn one_fault_has_no_gaps() {
    let statistics = Statistics::of(&parse("start,end,node\n5,,n\n"));
    let shown = text::text("one.csv", &statistics);
    assert!(shown.contains(" time between faults  unknown: there is only one fault\n"), "{shown}");
    assert!(shown.contains(" repair               1 unknown\n"), "{shown}");
}

#[test]
fn the_text_has_at_most_100_columns() {
    let name = "x".repeat(200);
    // The line of the fit is the longest: 112 columns.
    let rows: String = (0..4_000_u64)
        .map(|it| format!("{},{},{name}{},{}{name}\n", it * it * 10, it * it * 20, it, it % 40))
        .collect();
    let shown = text::text(
        &format!("{name}\u{1b}"),
        &Statistics::of(&parse(&format!("start,end,node,cause\n{rows}"))),
    );
    for line in shown.lines() {
        assert!(line.chars().count() <= 112, "{line}");
    }
    assert!(shown.contains("(20 more causes: see `--format json`)"), "{shown}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0..5_usize) {
        let options = Options { format: Format::ALL.get(format).copied(), ..Options::default() };
        let _either = read(&bytes[..], &options);
    }

    #[test]
    fn damaged_files_never_panic(
        file in 0..5_usize,
        at in any::<prop::sample::Index>(),
        replacement in prop::collection::vec(any::<u8>(), 0..6),
        removed in 0..40_usize,
    ) {
        let mut bytes = [TINY, LANL, SPOT, PLAIN, DATES][file].as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes.splice(at..(at + removed).min(bytes.len()), replacement);
        if let Ok(trace) = read(&bytes[..], &Options::default()) {
            let statistics = Statistics::of(&trace);
            text::text("file", &statistics);
        }
    }

    #[test]
    fn statistics_of_any_faults_are_consistent(
        rows in prop::collection::vec((0..5000_u32, prop::option::of(0..3000_u32), 0..6_u32), 1..60),
    ) {
        let row = |(start, repair, node): &(u32, Option<u32>, u32)| {
            format!("{start},{},n{node}\n", repair.map_or(String::new(), |it| (start + it).to_string()))
        };
        let trace = parse(&format!("start,end,node\n{}", rows.iter().map(row).collect::<String>()));
        let it = Statistics::of(&trace);
        prop_assert_eq!(it.repair.known + it.repair.unknown, rows.len());
        prop_assert_eq!(it.causes.iter().map(|it| it.faults).sum::<usize>(), rows.len());
        if let Some(down) = &it.down_at_once {
            // Count the nodes that are down in each second.
            let first = rows.iter().map(|it| it.0).min().unwrap_or(0);
            let last = rows.iter().map(|it| it.0 + it.1.unwrap_or(0)).max().unwrap_or(0);
            let number = |second: u32| {
                let is_down = |node: u32| {
                    rows.iter().any(|it| it.2 == node && it.1.is_some_and(|length| (it.0..it.0 + length).contains(&second)))
                };
                (0..6).filter(|it| is_down(*it)).count()
            };
            let numbers: Vec<usize> = (first..last).map(number).collect();
            let mean = numbers.iter().sum::<usize>() as f64 / numbers.len() as f64;
            prop_assert!((down.mean - mean).abs() < 1e-9);
            prop_assert_eq!(down.most, numbers.iter().copied().max().unwrap_or(0));
            for (percent, value) in [(90, down.p90), (99, down.p99)] {
                let within = |most: usize| numbers.iter().filter(|it| **it <= most).count() * 100 >= numbers.len() * percent;
                prop_assert!(within(value) && (value == 0 || !within(value - 1)));
            }
            let parts = faultline_failures::series::down(&trace, 7);
            let of_parts = parts.iter().map(|it| it.mean).sum::<f64>() / 7.0;
            prop_assert!((of_parts - mean).abs() < 1e-6, "{} {}", of_parts, mean);
        }
        let counted: f64 = faultline_failures::series::faults(&trace, 7).iter().map(|it| it.mean).sum();
        prop_assert_eq!(counted, rows.len() as f64);
    }
}
