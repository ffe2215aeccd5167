//! Histories that other programs recorded.

use faultline_consistency::foreign::{ForeignError, read, write};
use faultline_consistency::{History, Limits, Verdict, WIDTH, draw, judge, model};

use crate::random::Random;

/// Returns the verdict about a file, and the strongest level.
fn verdict(text: &str, name: &str, level: usize) -> (Verdict, Option<&'static str>) {
    let model = model(name).expect("a model");
    let history = read(text.as_bytes(), model).expect("a history");
    let judgement = judge(&history, model, level, Limits::default());
    (judgement.verdict, judgement.strongest)
}

fn error(text: &str, name: &str) -> (Option<u32>, String) {
    let ForeignError { line, what, help } =
        read(text.as_bytes(), model(name).expect("a model")).expect_err("a wrong history");
    assert!(!help.is_empty());
    (line, what)
}

const FILES: [(&str, Verdict); 4] = [
    (include_str!("../data/porcupine/etcd_000.log"), Verdict::Fail),
    (include_str!("../data/porcupine/etcd_002.log"), Verdict::Pass),
    (include_str!("../data/porcupine/c01-bad.txt"), Verdict::Fail),
    (include_str!("../data/porcupine/c01-ok.txt"), Verdict::Pass),
];

#[test]
fn verdicts_about_porcupines_histories_are_those_of_its_tests() {
    for (text, expected) in FILES {
        assert_eq!(verdict(text, "register", 0).0, expected, "{}", &text[..100]);
    }
}

/// A history in the form of Jepsen or Maelstrom for each model, and whether its last read is right.
fn jepsen(name: &str, is_right: bool) -> String {
    let pick = |right: &str, wrong: &str| if is_right { right.to_owned() } else { wrong.to_owned() };
    let ops: Vec<(u32, &str, String, String)> = match name {
        "register" => vec![
            (0, "write", "[\"x\" 1]".into(), "[\"x\" 1]".into()),
            (1, "cas", "[\"x\" [1 2]]".into(), "[\"x\" [1 2]]".into()),
            (0, "read", "[\"x\" nil]".into(), pick("[\"x\" 2]", "[\"x\" 1]")),
        ],
        "list" => vec![
            (0, "txn", "[[:append 3 1] [:r 4 nil]]".into(), "[[:append 3 1] [:r 4 nil]]".into()),
            (1, "txn", "[[:r 3 nil]]".into(), pick("[[:r 3 [1]]]", "[[:r 3 []]]")),
        ],
        "set" => vec![
            (0, "add", "1".into(), "1".into()),
            (0, "broadcast", "2".into(), "2".into()),
            (1, "read", "nil".into(), pick("#{1 2}", "[1]")),
        ],
        "queue" => vec![
            (0, "enqueue", "1".into(), "1".into()),
            (0, "enqueue", "2".into(), "2".into()),
            (1, "dequeue", "nil".into(), pick("1", "2")),
            (0, "drain", "nil".into(), pick("[2]", "[1]")),
        ],
        "log" => vec![
            (0, "send", "[[:send \"k\" 7]]".into(), "[[:send \"k\" [0 7]]]".into()),
            (0, "send", "[[:send \"k\" 8]]".into(), "[[:send \"k\" [1 8]]]".into()),
            (
                1,
                "poll",
                "[[:poll]]".into(),
                pick("[[:poll {\"k\" [[0 7] [1 8]]}]]", "[[:poll {\"k\" [[0 8]]}]]"),
            ),
        ],
        "counter" => vec![
            (0, "add", "3".into(), "3".into()),
            (0, "add", "-1".into(), "-1".into()),
            (1, "read", "nil".into(), pick("2", "3")),
        ],
        "ids" => {
            vec![(0, "generate", "nil".into(), "4".into()), (1, "generate", "nil".into(), pick("5", "4"))]
        }
        "lock" => vec![
            (0, "acquire", "nil".into(), "nil".into()),
            (if is_right { 0 } else { 1 }, "release", "nil".into(), "nil".into()),
        ],
        _ => vec![
            (0, "transfer", "{:from 0, :to 1, :amount 5}".into(), "{:from 0, :to 1, :amount 5}".into()),
            (1, "read", "nil".into(), "{0 5, 1 15}".into()),
            (1, "read", "nil".into(), pick("{0 5, 1 15}", "{0 10, 1 15}")),
        ],
    };
    let mut text =
        String::from("{:type :info, :process :nemesis, :f :kill, :value nil, :time 1, :index 0}\n");
    for (at, (process, f, asked, answered)) in ops.into_iter().enumerate() {
        let time = at * 10 + 2;
        text += &format!("{{:type :invoke, :process {process}, :f :{f}, :value {asked}, :time {time}}}\n");
        let time = time + 5;
        text += &format!(
            "#jepsen.history.Op{{:type :ok, :process {process}, :f :{f}, :value {answered}, :time {time}}}\n"
        );
    }
    text
}

const NAMES: [&str; 9] = ["register", "list", "set", "queue", "log", "counter", "ids", "lock", "bank"];

#[test]
fn a_dequeue_that_failed_because_the_queue_was_empty_is_an_answer() {
    let history = |end: &str| {
        let events = [
            "{:process 0, :type :invoke, :f :enqueue, :value 1}",
            "{:process 0, :type :ok, :f :enqueue, :value 1}",
            "{:process 1, :type :invoke, :f :dequeue, :value nil}",
            end,
        ];
        events.join("\n")
    };
    for (end, expected) in [
        ("{:process 1, :type :fail, :f :dequeue, :value nil, :error :empty}", Verdict::Fail),
        ("{:process 1, :type :fail, :f :dequeue, :value nil, :error :exhausted}", Verdict::Fail),
        ("{:process 1, :type :ok, :f :dequeue, :value nil}", Verdict::Fail),
        ("{:process 1, :type :fail, :f :dequeue, :value nil, :error :timeout}", Verdict::Unknown),
        ("{:process 1, :type :ok, :f :dequeue, :value 1}", Verdict::Pass),
    ] {
        assert_eq!(verdict(&history(end), "queue", 2).0, expected, "{end}");
    }
}

/// Writes a history and reads it again.
fn rewritten(history: &History, name: &str) -> History {
    let mut text = String::new();
    write(history, model(name).unwrap(), &mut text).unwrap();
    read(text.as_bytes(), model(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error:?}: {text}"))
}

/// Returns the operations in words.
fn told(history: &History) -> Vec<String> {
    let told = |it: &faultline_consistency::Operation| {
        format!("{} {} {} {:?}", history.describe(it), it.call_at, it.return_at, it.outcome.clone())
    };
    history.operations.iter().map(told).collect()
}

#[test]
fn a_history_that_was_written_is_read_as_it_was() {
    for name in NAMES {
        for is_right in [true, false] {
            let history = read(jepsen(name, is_right).as_bytes(), model(name).unwrap()).unwrap();
            assert_eq!(told(&rewritten(&history, name)), told(&history), "{name}");
        }
    }
    // Operations without an effect, without a result, and with another value; keys and values that are texts.
    for (name, text) in [
        (
            "register",
            "{:process 0, :type :invoke, :f :write, :value [\"a b\" \"\\\"x\\\\\"], :time 1}
             {:process 0, :type :fail, :f :write, :value [\"a b\" \"x\"], :time 2, :error :down}
             {:process 1, :type :invoke, :f :cas, :value [:k [1 2]], :time 3}
             {:process 1, :type :fail, :f :cas, :value [:k [1 2]], :time 4}
             {:process 2, :type :invoke, :f :cas, :value [:k [1 2]], :time 5}
             {:process 2, :type :fail, :f :cas, :value [:k [1 2]], :time 6, :error :down}
             {:process 3, :type :invoke, :f :read, :value [:k nil], :time 7}
             {:process 3, :type :info, :f :read, :value [:k nil], :time 8}",
        ),
        (
            "queue",
            "{:process 0, :type :invoke, :f :dequeue, :value nil, :time 1}
             {:process 0, :type :fail, :f :dequeue, :value nil, :time 2, :error :empty}
             {:process 1, :type :invoke, :f :enqueue, :value 4, :time 3}",
        ),
    ] {
        let history = read(text.as_bytes(), model(name).unwrap()).unwrap();
        assert_eq!(told(&rewritten(&history, name)), told(&history), "{name}");
    }
}

#[test]
fn a_history_of_jepsen_is_judged_for_each_model() {
    for name in NAMES {
        assert_eq!(verdict(&jepsen(name, true), name, 0).0, Verdict::Pass, "{name}");
        assert_eq!(verdict(&jepsen(name, false), name, 0).0, Verdict::Fail, "{name}");
        let vector = format!("[{}]", jepsen(name, true));
        assert_eq!(verdict(&vector, name, 0).0, Verdict::Pass, "{name}");
    }
}

const LINES: &str = r#"{"process":0,"type":"invoke","f":"write","key":"x","value":1,"time":10}
{"process":0,"type":"ok","f":"write","key":"x","value":1,"time":20}
{"process":1,"type":"invoke","f":"read","key":"x","value":null,"time":30}
{"process":1,"type":"ok","f":"read","key":"x","value":null,"time":40}
"#;

#[test]
fn json_lines_are_judged() {
    assert_eq!(verdict(LINES, "register", 0), (Verdict::Fail, Some("session")));
    let concurrent = LINES.replace("\"time\":30", "\"time\":15");
    assert_eq!(verdict(&concurrent, "register", 0), (Verdict::Pass, Some("linearizable")));
    // Without times, positions are used.
    let untimed = concurrent.replace(",\"time\":15", "");
    assert_eq!(verdict(&untimed, "register", 0).0, Verdict::Fail);
}

#[test]
fn log_lines_of_new_versions_of_jepsen_are_judged() {
    let lines = |last: &str| {
        format!(
            "2023-01-01 12:00:00,123{{GMT}}\tINFO\t[jepsen worker 0] jepsen.util: 0\t:invoke\t:write\t1\n\
             2023-01-01 12:00:01,123{{GMT}}\tINFO\t[jepsen worker 0] jepsen.util: 0\t:info\t:write\t1\t:timeout\n\
             other text\n\
             2023-01-01 12:00:02,123{{GMT}}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:invoke\t:read\tnil\n\
             2023-01-01 12:00:03,123{{GMT}}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:ok\t:read\t{last}\n\
             2023-01-01 12:00:02,123{{GMT}}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:invoke\t:write\t2\n\
             2023-01-01 12:00:03,123{{GMT}}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:ok\t:write\t2\n"
        )
    };
    assert_eq!(verdict(&lines("1"), "register", 0).0, Verdict::Pass);
    assert_eq!(verdict(&lines("nil"), "register", 0).0, Verdict::Pass);
    assert_eq!(verdict(&lines("2"), "register", 0).0, Verdict::Fail);
}

#[test]
fn a_comparison_that_failed_with_an_error_says_nothing() {
    let lines = |error: &str| {
        format!(
            "{{:process 0, :type :invoke, :f :write, :value 1}}\n{{:process 0, :type :ok, :f :write, :value 1}}\n\
             {{:process 0, :type :invoke, :f :cas, :value [1 2]}}\n{{:process 0, :type :fail, :f :cas, :value [1 2]{error}}}\n\
             {{:process 0, :type :invoke, :f :cas, :value [1 2]}}\n{{:process 0, :type :ok, :f :cas, :value [1 2]}}\n\
             {{:process 0, :type :invoke, :f :read, :value nil}}\n{{:process 0, :type :ok, :f :read, :value 2}}\n"
        )
    };
    assert_eq!(verdict(&lines(", :error :no-leader"), "register", 0).0, Verdict::Pass);
    assert_eq!(verdict(&lines(""), "register", 0).0, Verdict::Fail);
}

#[test]
fn texts_are_followed_along_all_ways_to_compose_them() {
    let lines = |found: &str| {
        let mut text = String::new();
        for (at, piece) in ["a", "ab", "b"].iter().enumerate() {
            text +=
                &format!("{{:process {at}, :type :invoke, :f :append, :key \"k\", :value \"{piece}\"}}\n");
        }
        for (at, piece) in ["a", "ab", "b"].iter().enumerate() {
            text += &format!("{{:process {at}, :type :ok, :f :append, :key \"k\", :value \"{piece}\"}}\n");
        }
        text += "{:process 0, :type :invoke, :f :get, :key \"k\", :value nil}\n";
        text + &format!("{{:process 0, :type :ok, :f :get, :key \"k\", :value \"{found}\"}}\n")
    };
    // Each of these is composed in one way only, which a greedy reader may miss.
    for right in ["aabb", "abab", "abba", "baab", "aabb"] {
        assert_eq!(verdict(&lines(right), "register", 0).0, Verdict::Pass, "{right}");
    }
    for wrong in ["aab", "bbaa", "", "abbab"] {
        assert_eq!(verdict(&lines(wrong), "register", 0).0, Verdict::Fail, "{wrong}");
    }
}

#[test]
fn errors_name_the_line_and_what_is_wrong() {
    let line = |n: u32, what: &str| (Some(n), what.to_owned());
    assert_eq!(error("hello", "register").0, None);
    assert_eq!(error("{:process 0, :type :invoke", "register").0, Some(1));
    assert_eq!(error("{\"process\":0}", "register"), line(1, "the field `type` is missing"));
    let wrong = LINES.replacen("\"write\"", "\"wrte\"", 2);
    assert_eq!(error(&wrong, "register"), line(1, "`wrte` is not an operation of the model `register`"));
    assert_eq!(error(&LINES.replace("\"time\":20", "\"time\":5"), "register").0, Some(2));
    let twice = LINES.lines().nth(1).expect("a line");
    assert_eq!(error(twice, "register"), line(1, "process 0 completes `write`, which it has not invoked"));
    let invoked = LINES.lines().next().expect("a line");
    let what = "process 0 invokes an operation, but its `write` of line 1 has not ended";
    assert_eq!(error(&format!("{invoked}\n{invoked}\n"), "register"), line(2, what));
    let added =
        "{:process 0, :type :invoke, :f :add, :value 1}\n{:process 0, :type :ok, :f :add, :value 1}\n";
    assert_eq!(error(&added.repeat(2), "set"), line(3, "the value 1 was written before, in line 1"));
    assert_eq!(error(&"[".repeat(100_000), "set").1, "lists are nested more than 64 deep");
}

/// Changes, drops, repeats or swaps a few bytes.
fn edited(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + random.below(2) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let end = (at + random.below(20) as usize).min(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => bytes[at] = b"{}[]()\"#:;\\ 0129-n"[random.below(18) as usize],
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Reads and judges edited histories. Each format is edited `rounds` times.
fn edit(rounds: u64, seed: u64) {
    let mut random = Random(seed);
    let short = |text: &str| Vec::from_iter(text.lines().take(12)).join("\n");
    let edn = NAMES.map(|it| (it, jepsen(it, false))).to_vec();
    let others = [short(FILES[0].0), short(FILES[2].0), LINES.to_owned()];
    let others = others.map(|it| vec![("register", it)]);
    for texts in [edn].into_iter().chain(others) {
        let mut readable = 0;
        for round in 0..rounds as usize {
            let (name, text) = &texts[round % texts.len()];
            let (model, bytes) = (model(name).expect("a model"), edited(text, &mut random));
            let Ok(history) = read(&bytes, model) else { continue };
            let judgement = judge(&history, model, 0, Limits { steps: 10_000, ..Limits::default() });
            for case in judgement.anomalies.iter().flat_map(|it| &it.cases) {
                let drawing = draw(&history, case);
                assert!(drawing.lines().all(|it| it.chars().count() <= WIDTH), "{drawing}");
            }
            readable += 1;
        }
        assert!(readable * 20 > rounds, "{readable} of {rounds}: {:?}", texts[0]);
    }
}

#[test]
fn edited_histories_do_not_panic() {
    edit(1_000, 5);
}

mod long {
    #[test]
    #[ignore = "takes 10 s"]
    fn many_edited_histories_do_not_panic() {
        super::edit(200_000, 6);
    }
}
