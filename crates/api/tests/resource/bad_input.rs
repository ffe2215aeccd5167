//! Errors for bad input name the file and the line, point at the position, and suggest a fix. The snapshot shows what
//! users read.

use faultline_api::flow::{pieces, with_file};
use faultline_api::parse::{bare_booleans, value};
use faultline_api::resource::{ApplicationSpec, Qap};
use faultline_api::{Rejected, parse};
use miette::{GraphicalReportHandler, GraphicalTheme};
use proptest::prelude::*;
use serde_json::json;

const GOOD: &str = "\
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: example }
spec:
  seed: 7
  clusters: [{ name: paris, nodes: 3 }, { name: rennes, nodes: 2 }]
  links:
    within: { preset: san }
    between: { latency: 5ms, jitter: 200us, bandwidth: 100Mbit }
    pairs: [{ from: paris, to: rennes, latency: 8ms }]
  storage: { kind: disk, writeBandwidth: 200MB }
  protocol:
    hc3i: { checkpointEvery: 2s, collectEvery: 10s, replicas: 1, replicateTo: otherCluster }
  application:
    heat: { steps: 100 }
  failures: { detectAfter: 500ms, restartAfter: 200ms }
  faults:
    - { at: 4s, crash: { cluster: paris, node: 1 } }
    - when: { fact: checkpointRequested, cluster: rennes, occurrence: 3 }
      loseCluster: { cluster: paris, storage: lost }
    - { mtbf: { exponential: 30s }, crash: { cluster: any } }
  deadline: 60s
";

fn rejected(bytes: &[u8]) -> Box<Rejected> {
    parse("federation.yaml", bytes).expect_err("the file must be rejected")
}

fn render(rejected: &Rejected) -> String {
    let mut text = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(110)
        .render_report(&mut text, rejected)
        .expect("a report renders into a string");
    text
}

/// Returns the valid federation with a part replaced.
fn with(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "`{from}` occurs once in the example");
    GOOD.replacen(from, to, 1)
}

/// Returns the valid federation with settings for its pods.
fn pods(settings: &str) -> String {
    format!("{GOOD}  kubernetes: {{ {settings} }}\n")
}

#[test]
fn the_example_is_valid() {
    let federation = parse("federation.yaml", GOOD.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
    assert_eq!(federation.spec.faults.len(), 3);
}

#[test]
fn an_error_on_a_line_of_a_megabyte_is_short_and_names_the_place() {
    let long = "x".repeat(1 << 19);
    for text in [
        with("name: paris, nodes: 3", &format!("name: paris, nodes: {long}")),
        with("name: example", &format!("name: {long}")),
    ] {
        let error = rejected(text.as_bytes());
        let shown = render(&error);
        assert!(shown.len() < 1000, "{} bytes", shown.len());
        assert!(shown.contains("federation.yaml:"), "{shown}");
    }
}

/// With several storage servers, a part can have several replicas.
#[test]
fn replicas_on_shared_storage_are_limited_by_the_number_of_servers() {
    let under = |protocol: &str| {
        let file = format!(
            "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: {{ name: a }}\nspec:\n  \
             clusters: [{{ name: a, nodes: 2 }}]\n  application: {{ jacobi: {{}} }}\n  protocol: {{ {protocol} }}\n"
        );
        parse("federation.yaml", file.as_bytes()).map_err(|it| render(&it))
    };
    under("cck: { replicas: 2, replicateTo: sharedStorage }").unwrap();
    under("cck: { replicas: 2, replicateTo: sharedStorage, servers: 3 }").unwrap();
    let refused = under("tic: { replicas: 2, replicateTo: sharedStorage }").unwrap_err();
    assert!(refused.contains("with one storage server"), "{refused}");
}

/// Returns the valid federation with settings for the second cluster, and with a program in which clusters
/// may join and leave.
fn guest(settings: &str) -> String {
    let program = "synthetic: { traffic: { random: { duration: 30s, clusters: [] } } }";
    let program = with("heat: { steps: 100 }", program).replace("otherCluster", "sharedStorage");
    program.replace("name: rennes, nodes: 2", &format!("name: rennes, nodes: 2, {settings}"))
}

#[test]
fn a_word_for_a_target_is_suggested_as_the_name_of_a_process_or_a_cluster() {
    for (word, suggested) in
        [("paris-1", "write `{ process: paris-1 }`"), ("paris", "write `{ cluster: paris }`")]
    {
        let text = with("crash: { cluster: paris, node: 1 }", &format!("crash: {word}"));
        assert_eq!(rejected(text.as_bytes()).errors()[0].help, suggested);
    }
}

/// Each case contains one mistake, or a few that must be reported together.
#[test]
fn every_mistake_is_explained() {
    let cases: &[(&str, String)] = &[
        ("empty", String::new()),
        ("only comments", "# nothing\n\n".into()),
        ("several documents", format!("{GOOD}---\n{GOOD}")),
        ("not yaml", with("seed: 7", "seed: [7")),
        ("tab", with("  seed: 7", "\tseed: 7")),
        ("another kind", with("kind: Federation", "kind: Pod")),
        ("another version", with("v1alpha1", "v1")),
        ("unknown field", with("deadline: 60s", "deadlien: 60s")),
        ("unknown field at the top", format!("{GOOD}speck: 1\n")),
        ("missing field", with("  application:\n    heat: { steps: 100 }\n", "")),
        ("a field with too small an indentation", with("  links:", " links:")),
        ("fields below one without an indentation", with("  links:", "links:")),
        ("a field with too large an indentation", with("  seed: 7", "   seed: 7")),
        (
            "a field outside its map",
            with("  application:\n    heat: { steps: 100 }\n", "") + "application:\n  heat: { steps: 100 }\n",
        ),
        ("missing field of a fault", with("crash: { cluster: paris, node: 1 }", "pause: { cluster: paris }")),
        ("no options at all", with("{ cluster: paris, node: 1 }", "")),
        ("no name", with("metadata: { name: example }\n", "")),
        ("bad name", with("name: example", "name: My Example")),
        ("duplicate key", with("deadline: 60s", "deadline: 60s\n  deadline: 61s")),
        ("wrong type", with("nodes: 3", "nodes: three")),
        ("negative number", with("nodes: 3", "nodes: -3")),
        ("list for a map", with("{ preset: san }", "[san]")),
        (
            "word for a map",
            with(
                "hc3i: { checkpointEvery: 2s, collectEvery: 10s, replicas: 1, replicateTo: otherCluster }",
                "hc3i",
            ),
        ),
        ("no unit", with("deadline: 60s", "deadline: 60")),
        ("negative latency", with("latency: 5ms", "latency: -5ms")),
        ("bad bandwidth", with("100Mbit", "100Mbps")),
        ("unknown preset", with("preset: san", "preset: sann")),
        ("too many nodes", with("nodes: 3", "nodes: 1000000000")),
        ("far too many nodes", with("nodes: 3", "nodes: 10000000000")),
        ("zero nodes", with("nodes: 2", "nodes: 0")),
        ("duplicate cluster", with("name: rennes", "name: paris")),
        ("reserved name", with("name: rennes", "name: any")),
        ("invalid name of a cluster that is mentioned", with("name: rennes", "name: Rennes II")),
        ("unknown cluster in a link", with("from: paris", "from: pari")),
        ("jitter", with("jitter: 200us", "jitter: 6ms")),
        (
            "loss under traffic control",
            with("jitter: 200us", "loss: 6%").replace("  seed: 7", "  seed: 7\n  kubernetes: { links: tc }"),
        ),
        ("unknown protocol", with("hc3i:", "hc4i:")),
        (
            "option of another protocol",
            with(
                "hc3i: { checkpointEvery: 2s, collectEvery: 10s, replicas: 1, replicateTo: otherCluster }",
                "none: { checkpointEvery: 2s }",
            ),
        ),
        (
            "option per cluster",
            with(
                "hc3i: { checkpointEvery: 2s, collectEvery: 10s, replicas: 1, replicateTo: otherCluster }",
                "coordinated: { checkpointEveryIn: { paris: 2s } }",
            ),
        ),
        (
            "an unsupported number of processes",
            with("heat: { steps: 100 }", "nas: { pattern: cg, message: 100B }"),
        ),
        (
            "ranks that are listed twice",
            with("heat: { steps: 100 }", "nas: { pattern: lu, order: [0, 0] }")
                .replace("nodes: 3", "nodes: 14"),
        ),
        ("an unknown kernel", with("heat: { steps: 100 }", "nas: { pattern: ep }")),
        ("no messages to exchange", with("heat: { steps: 100 }", "pingPong: { sizes: [], rounds: 0 }")),
        ("a program that needs every cluster", with("nodes: 2", "nodes: 2, leavesAfter: 5s")),
        ("a protocol that needs every cluster", guest("joinsAfter: 5s").replace("hc3i:", "coordinated:")),
        ("a cluster that leaves before it joins", guest("joinsAfter: 20s, leavesAfter: 10s")),
        ("a cluster that joins after the end", guest("joinsAfter: 40s")),
        ("no cluster stays", guest("joinsAfter: 5s").replace("nodes: 3", "nodes: 3, leavesAfter: 9s")),
        (
            "replicas although no cluster stays",
            guest("leavesAfter: 9s").replace("sharedStorage", "otherCluster"),
        ),
        ("two protocols", with("    hc3i:", "    none: {}\n    hc3i:")),
        (
            "no other cluster",
            with(", { name: rennes, nodes: 2 }]", "]")
                .replace("    pairs: [{ from: paris, to: rennes, latency: 8ms }]\n", "")
                .replace("cluster: rennes", "cluster: paris"),
        ),
        ("too many replicas", with("replicas: 1, replicateTo: otherCluster", "replicas: 2")),
        ("too few other clusters", with("replicas: 1", "replicas: 2")),
        ("too short a detection time", with("detectAfter: 500ms", "detectAfter: 5ms")),
        ("replaced too late", with("restartAfter: 200ms", "restartAfter: 200ms, replaceAfter: 60s")),
        ("deadline before the end", with("deadline: 60s", "deadline: 1s").replace("at: 4s", "at: 500ms")),
        ("no assertion", format!("{GOOD}  expect: [{{}}]\n")),
        ("two assertions", format!("{GOOD}  expect: [{{ recoveredWithin: 3s, finishedWithin: 9s }}]\n")),
        (
            "expectations of probes without a system",
            format!("{GOOD}  expect: [{{ probe: write, availability: 1.5 }}, {{ exits: lyon }}]\n"),
        ),
        (
            "assertions that lack something",
            format!(
                "{GOOD}  expect: [{{ longestOutage: 1s }}, {{ rollbacks: {{ atMost: 1 }}, atMost: 2 }}]\n"
            ),
        ),
        ("an expectation after the deadline", format!("{GOOD}  expect: [{{ finishedWithin: 2m }}]\n")),
        ("an expectation that is listed twice", {
            let entry = "{ rollbacks: { atMost: 1 } }";
            format!("{GOOD}  expect: [{entry}, {entry}]\n")
        }),
        ("fault after the deadline", with("at: 4s", "at: 70s")),
        (
            "no cores to compute on",
            with("  deadline: 60s", "  deadline: 60s\n  simulator: { handling: { cores: 0 } }"),
        ),
        ("no trigger", with("at: 4s, ", "")),
        ("two triggers", with("at: 4s, ", "at: 4s, mtbf: { exponential: 30s }, ")),
        ("no action", with(", crash: { cluster: any }", "")),
        (
            "process that does not exist",
            with("crash: { cluster: paris, node: 1 }", "crash: { process: paris-9 }"),
        ),
        (
            "process specified twice",
            with("crash: { cluster: paris, node: 1 }", "crash: { process: paris-1, cluster: paris }"),
        ),
        ("two actions", with("crash: { cluster: any }", "crash: {}, loseCluster: {}")),
        ("unknown fact", with("checkpointRequested", "checkpointRequest")),
        ("fact of the supervisor", with("checkpointRequested", "injecting")),
        ("occurrence", with("occurrence: 3", "occurrence: 0")),
        ("node without a cluster in a trigger", with("cluster: rennes, occurrence: 3", "node: 0")),
        (
            "unknown cluster in a fault",
            with("cluster: paris, storage: lost", "cluster: nancy, storage: lost"),
        ),
        ("node out of range", with("node: 1", "node: 3")),
        ("a slow node that is fast", with("crash: { cluster: any }", "slow: { by: 1 }")),
        ("a negative factor", with("crash: { cluster: any }", "slow: { by: -1 }")),
        ("a factor that is no number", with("crash: { cluster: any }", "slow: { by: .nan }")),
        (
            "a flipped bit without data",
            with("crash: { cluster: any }", "flip: {}").replace("heat: {", "salted: {"),
        ),
        (
            "a flipped bit of a state that is not supported",
            with("crash: { cluster: any }", "flip: { in: state }").replace(
                "heat: { steps: 100 }",
                "synthetic: { traffic: { random: { duration: 30s, clusters: [] } } }",
            ),
        ),
        (
            "a rack that a line reports",
            with("loseCluster: { cluster: paris, storage: lost }", "loseRack: { reported: x }"),
        ),
        ("no racks", with("loseCluster: { cluster: paris, storage: lost }", "loseRack: { cluster: paris }")),
        (
            "rack out of range",
            with("loseCluster: { cluster: paris, storage: lost }", "loseRack: { rack: 2 }")
                .replace("nodes: 3", "nodes: 3, rack: 2")
                .replace("nodes: 2 }", "nodes: 2, rack: 1 }"),
        ),
        ("rack without nodes", with("nodes: 3", "nodes: 3, rack: 0")),
        ("immediate repair", with("node: 1", "node: 1, repair: 0s")),
        ("too many spares", with("restartAfter: 200ms", "restartAfter: 200ms, spares: 10001")),
        (
            "spares without replicas",
            with("restartAfter: 200ms", "restartAfter: 200ms, spares: 1")
                .replace("replicas: 1", "replicas: 0"),
        ),
        ("too frequent", with("exponential: 30s", "exponential: 1us")),
        (
            "too frequent together",
            with(
                "    - { mtbf: { exponential: 30s }, crash: { cluster: any } }\n",
                &"    - { mtbf: { exponential: 10ms }, crash: { cluster: any } }\n".repeat(2),
            ),
        ),
        (
            "names too long in total",
            with("name: example", "name: example-with-quite-a-name")
                .replace("rennes", "rennes-the-capital-of-brittany"),
        ),
        (
            "name too long for a process outside the clusters",
            with("name: example", "name: an-example-with-a-name-of-39-characters")
                .replace("otherCluster", "sharedStorage"),
        ),
        ("name of another pod", GOOD.replace("rennes", "supervisor")),
        ("name of the pod of a storage server", GOOD.replace("rennes", "storage-server-12")),
        ("unknown cluster in a pool", pods("pools: { pari: east }")),
        ("bad pool", pods("pools: { paris: east/west }")),
        ("a toleration of nothing", pods("tolerations: [{ effect: NoSchedule }]")),
        ("bad key of a taint", pods("tolerations: [{ key: a b, operator: Exists }]")),
        ("bad value of a taint", pods("tolerations: [{ key: example.com/gpu, value: yes/no }]")),
        ("bad label", pods("nodeSelector: { Example.com/zone: west }")),
        ("no class", pods("priorityClass: '', volumes: { size: 1GiB, storageClass: Fast }")),
        ("too little memory", pods("resources: { memory: 1MiB }")),
        ("too little CPU", pods("resources: { cpu: 0 }")),
        ("a fraction of a core as a number", pods("resources: { cpu: 0.1 }")),
        ("memory as cores", pods("resources: { cpu: 1Gi }")),
        ("no size", pods("volumes: { size: 0B }")),
        ("neither true nor false", pods("results: { size: 1GiB, keep: yes please }")),
        ("no number", pods("resources: { cpu: many }")),
        ("no such fact", GOOD.replace("fact: checkpointRequested", "fact: messageHeld")),
        (
            "many at once",
            with("nodes: 3", "nodes: 0")
                .replace("at: 4s", "at: 61s")
                .replace("cluster: rennes", "cluster: renes"),
        ),
    ];
    let mut report = String::new();
    for (name, text) in cases {
        report += &format!("=== {name}\n{}\n", render(&rejected(text.as_bytes())));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn bytes_that_are_not_text_are_located() {
    let mut bytes = GOOD.as_bytes().to_vec();
    let at = GOOD.find("rennes").expect("the example contains it");
    bytes[at] = 0xff;
    insta::assert_snapshot!(render(&rejected(&bytes)));
}

/// Eight levels of nine aliases each, which a naive parser would expand to more than 43 million values.
#[test]
fn a_billion_laughs_attack_is_stopped_early() {
    let mut levels = String::from("    - &a0 { ha: ha }\n");
    for level in 1..9 {
        let alias = format!("*a{}", level - 1);
        levels += &format!("    - &a{level} [{}]\n", [alias.as_str(); 9].join(", "));
    }
    let text = with("spec:\n", &format!("status:\n{levels}spec:\n"));
    insta::assert_snapshot!(render(&rejected(text.as_bytes())));
}

#[test]
fn aliases_and_json_are_accepted() {
    let aliased = with("within: { preset: san }", "within: &link { preset: san }")
        .replace("between: { latency: 5ms, jitter: 200us, bandwidth: 100Mbit }", "between: *link");
    assert!(parse("aliased.yaml", aliased.as_bytes()).is_ok());
    let federation = parse("federation.yaml", GOOD.as_bytes()).expect("the example is valid");
    let json = serde_json::to_string(&federation).expect("a federation serialises");
    assert_eq!(
        parse("federation.json", json.as_bytes()).expect("the same federation is valid as JSON"),
        federation
    );
}

#[test]
fn files_that_are_too_large_are_rejected() {
    let text = format!("{GOOD}# {}\n", "x".repeat(1 << 20));
    assert!(rejected(text.as_bytes()).errors()[0].message.starts_with("the file is too large (1049"));
}

#[test]
fn all_mistakes_are_found_at_once_and_none_that_follows_from_another() {
    let file = "\
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: typo }
spec:
  clusters: [{ name: a, nodes: 1 }, { name: c, nodes: 1 }]
  application:
    system:
      command: [redis-server, --port, 6399, --bind, \"{{ host_ip }}\"]
      probe: { up: { by: b, tcp: \"{{ host }}:6399\" } }
  faults: [{ at: 2s, loseRack: { reported: leader } }, { at: 5, kill: a-0 }]
  expect: [{ probe: up, recoverWithin: 5s }]
";
    let rejected = rejected(file.as_bytes());
    let found: Vec<_> =
        rejected.errors().iter().map(|it| (it.line, it.column, it.message.as_str())).collect();
    for (line, part, message) in [
        (9, "probe:", "unknown field `probe`"),
        (10, "reported:", "unknown field `reported`"),
        (10, "5, kill", "`5` has no unit"),
        (10, "kill:", "unknown field `kill`"),
        (11, "recoverWithin:", "unknown field `recoverWithin`"),
    ] {
        let text = file.lines().nth(line - 1).unwrap();
        let column = text.find(part).unwrap() + 1;
        let is_it = |it: &&(usize, usize, &str)| (it.0, it.1) == (line, column) && it.2.starts_with(message);
        assert!(found.iter().any(|it| is_it(&it)), "{message}: {found:?}");
    }
    let template = found.iter().find(|it| it.0 == 8).map(|it| it.2);
    assert!(template.is_some_and(|it| it.contains("template")), "{found:?}");
    assert_eq!(found.len(), 6, "nothing that follows from these: {found:?}");
    assert!(found.is_sorted(), "{found:?}");
}

#[test]
fn templates_of_all_nodes_and_of_later_lives_are_checked() {
    let file = |word: &str| {
        format!(
            "\
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: lives }}
spec:
  clusters: [{{ name: a, nodes: 2 }}]
  application:
    system:
      command: [sleep, \"{word}\"]
      ends: {{ after: 5s }}
      probes: {{ up: {{ by: a, tcp: \"{{{{ host }}}}:80\" }} }}
  expect: [{{ probe: up, availability: 0.5 }}, {{ probe: up, recoveredWithin: 2s }}]
"
        )
    };
    for word in ["{% if life > 1 %}{{ nme }}{% endif %}", "{% if node == 1 %}{{ nme }}{% endif %}"] {
        let rejected = rejected(file(word).as_bytes());
        let messages: Vec<&str> = rejected.errors().iter().map(|it| it.message.as_str()).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages.iter().any(|it| it.contains("undefined value: `nme`")), "{messages:?}");
        let limit =
            "2s is not longer than the uncertainty of a recovery, 2s (`every` and `timeout` of the probe)";
        assert!(messages.contains(&limit), "{messages:?}");
    }
}

#[test]
fn one_mistake_does_not_hide_those_of_other_kinds() {
    let twice = with("protocol:", "protokol:").replace("seed: ", "seed: x");
    let rejected = rejected(twice.as_bytes());
    let messages: Vec<&str> = rejected.errors().iter().map(|it| it.message.as_str()).collect();
    assert!(messages.iter().any(|it| it.contains("unknown field `protokol`")), "{messages:?}");
    assert!(messages.iter().any(|it| it.contains("is not a whole number")), "{messages:?}");
    assert!(!messages.iter().any(|it| it.contains("no protocol")), "{messages:?}");
}

#[test]
fn errors_contain_lines_and_columns() {
    let rejected = rejected(with("at: 4s", "at: 70s").as_bytes());
    let error = &rejected.errors()[0];
    assert_eq!((rejected.file(), error.line, error.column), ("federation.yaml", 18, 13));
}

/// Returns the first error in the valid federation with a part replaced: the message and the help.
fn first_error(from: &str, to: &str) -> (String, String) {
    let rejected = rejected(with(from, to).as_bytes());
    let error = &rejected.errors()[0];
    (error.message.clone(), error.help.clone())
}

#[test]
fn messages_name_the_cause_in_the_words_of_the_file() {
    for (from, to, message, help) in [
        ("latency: 5ms", "latency: 5 ms", "`5 ms` contains a blank", "write `5ms`"),
        ("latency: 5ms", "latency: 5\u{a0}ms", "`5\u{a0}ms` contains a blank", "write `5ms`"),
        ("100Mbit", "1bit", "`1bit` is less than the smallest bandwidth", "write at least 8bit"),
        ("  seed: 7", "\u{a0} seed: 7", "a no-break space (U+00A0) stands where", "replace it with spaces"),
        ("seed: 7", "seed:\u{a0}7", "a no-break space (U+00A0) stands where", "replace it with spaces"),
        ("name: example", "name: null", "the federation has no name", "add a name"),
        ("name: example", "name: 5", "`5` is not a valid name", "start with a letter"),
        ("name: paris", "name: null", "expected text (found an empty value or `null`)", "write a word"),
        ("name: paris", "name: [a]", "expected a single value", "without brackets"),
        ("nodes: 3", "nodes: x", "`x` is not a whole number", "write a whole number from 1 to 100000"),
        ("nodes: 3", "nodes: \"x\"", "`x` is not a whole number", "from 1 to 100000"),
        ("nodes: 3", "nodes: 3.5", "`3.5` is not a whole number", "write a whole number from 1 to 100000"),
        ("nodes: 3", "nodes: null", "`null` is not a whole number", "write a whole number from 1 to 100000"),
        ("steps: 100", "steps: 500000000000", "`500000000000` is out of range", "from 1 to 4294967295"),
        ("steps: 100", "steps: 5e2", "`5e2` is not a whole number", "from 1 to 4294967295"),
        ("seed: 7", "seed: seven", "`seven` is not a whole number", "from 0 to 18446744073709551615"),
        ("node: 1", "node: -1", "`-1` is out of range", "from 0 to 4294967295"),
        ("seed: 7", "pause: 1", "expected true or false", "write `true` or `false`"),
        ("latency: 5ms", "latency: 1", "`1` has no unit", "write a value such as `5ms`"),
        ("latency: 5ms", "latency: { a: 1 }", "expected a single value", "without brackets"),
        (
            "heat: { steps: 100 }",
            "heat: 5",
            "expected a mapping",
            "which may be columns, feedbackEvery, rows",
        ),
        ("heat: { steps: 100 }", "heat", "expected a mapping", "write `{ heat: {} }`"),
        ("within: { preset: san }", "within: san", "expected a mapping", "write `{ preset: san }`"),
        ("{ kind: disk, writeBandwidth: 200MB }", "disk", "expected a mapping", "write `{ kind: disk }`"),
        ("{ cluster: paris, storage: lost }", "paris", "expected a mapping", "write `{ cluster: paris }`"),
        (
            "fact: checkpointRequested",
            "fact: committed",
            "unknown value",
            "did you mean `checkpointCommitted`?",
        ),
        (
            "fact: checkpointRequested",
            "fact: checkpoint",
            "unknown value",
            "use one of: checkpointMessage, checkpointRequested, checkpointCommitted, checkpointAborted",
        ),
        ("kind: disk", "kind:disk", "unknown field `kind:disk`", "a space after the colon: `kind: disk`"),
        ("kind: disk", "kind: 5", "unknown value `5`", "use one of: memory, disk"),
        ("kind: Federation", "kind: null", "", ""),
        ("exponential: 30s", "exponential: 5", "`5` has no unit", "write a value such as"),
        ("replicas: 1", "replicas: one", "`one` is not a whole number", "write a whole number"),
        ("deadline: 60s", "deadline: *x", "", ""),
        ("deadline: 60s", "deadline: \"60s", "", ""),
        ("deadline: 60s", "deadline", "", ""),
    ] {
        let (found, advice) = first_error(from, to);
        assert!(found.contains(message) && advice.contains(help), "{to}: {found}: {advice}");
        for jargon in ["deserialize", "Option<", "struct", "variant", "serde", "u32", "integer `"] {
            assert!(!found.contains(jargon) && !advice.contains(jargon), "{to}: {found}: {advice}");
        }
    }
}

#[test]
fn a_time_that_does_not_fit_is_not_shown_as_a_number_of_nanoseconds() {
    let (message, _) = first_error("steps: 100 }", "steps: 4000000000, stepTime: 87600h }");
    assert_eq!(message, "the application computes for more than 3650d, but the deadline of the run is 1m");
    let long = with("heat: { steps: 100 }", "heat: { steps: 100, stepTime: 87600h }");
    let long = long.replace("deadline: 60s", "deadline: 87600h").replace("at: 4s", "at: 87600h");
    let helps: Vec<String> = rejected(long.as_bytes()).errors().iter().map(|it| it.help.clone()).collect();
    assert!(helps.contains(&"choose an earlier time".to_owned()), "{helps:?}");
    assert!(helps.iter().any(|it| it.contains("a deadline cannot be longer than 3650d")), "{helps:?}");
}

#[test]
fn words_that_kubectl_reads_as_booleans_are_pointed_out() {
    let text =
        GOOD.replace("paris", "no").replace("name: rennes", "name: \"on\"").replace("rennes", "\"on\"");
    let text = text.replace("{ checkpointEvery: 2s", "{ checkpointEvery: 2s, checkpointEveryIn: { no: 3s }");
    let federation = parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
    assert_eq!(
        bare_booleans("f.yaml", &text, &federation),
        ["f.yaml, lines 6, 10, 13, 18, 20: `kubectl` reads `no` without quotes as a boolean; write \"no\""]
    );
    // As the value of a boolean field, the word means the same to both.
    let text = GOOD.replace("  seed: 7", "  pause: no");
    let federation = parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
    assert!(bare_booleans("f.yaml", &text, &federation).is_empty());
    let federation = parse("federation.yaml", GOOD.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
    assert!(bare_booleans("f.yaml", GOOD, &federation).is_empty());
}

#[test]
fn words_in_parameters_that_readers_of_yaml_understand_differently_are_refused() {
    let program = |parameters: &str| {
        let text = faultline_api::samples::PROGRAMS[1].text;
        assert!(text.contains("{ rounds: 60 }"));
        text.replace("{ rounds: 60 }", parameters)
    };
    for (parameters, help) in [
        ("{ rounds: 60, mode: n }", "write false, or \"n\" for text"),
        ("{ rounds: 60, mode: [1, On] }", "write true, or \"On\" for text"),
        ("{ rounds: 60, code: 012 }", "write 12, or \"012\" for text"),
        ("{ rounds: 60, inner: { code: -07 } }", "write -7, or \"-07\" for text"),
    ] {
        let rejected = rejected(program(parameters).as_bytes());
        assert_eq!(rejected.errors().len(), 1, "{parameters}");
        let error = &rejected.errors()[0];
        assert!(error.message.contains("is ambiguous") && error.help == help, "{parameters}: {error:?}");
    }
    for parameters in ["{ rounds: 60, mode: \"n\" }", "{ rounds: 0, code: \"012\", on: true, at: 0.5 }"] {
        let text = program(parameters);
        parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
    }
}

#[test]
fn micro_signs_and_a_byte_order_mark_are_accepted() {
    for micro in ['\u{b5}', '\u{3bc}'] {
        let text = format!("\u{feff}{}", with("latency: 5ms", &format!("latency: 5000{micro}s")));
        let federation =
            parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
        let original =
            parse("federation.yaml", GOOD.as_bytes()).unwrap_or_else(|it| panic!("{}", render(&it)));
        assert_eq!(federation.spec, original.spec);
    }
}

#[test]
fn mistakes_after_a_byte_order_mark_are_explained() {
    for (from, to, message) in [
        ("within: { preset: san }", "within: ärger", "expected a mapping"),
        ("nodes: 3", "nodes: é", "`é` is not a whole number"),
        ("  seed: 7", "   seed: 7 # é", "the indentation of this line (2 columns)"),
        ("  application:\n    heat: { steps: 100 }\n", "", "missing field `application`"),
    ] {
        let rejected = rejected(format!("\u{feff}{}", with(from, to)).as_bytes());
        assert!(rejected.errors()[0].message.starts_with(message), "{to}: {}", render(&rejected));
    }
}

#[test]
fn values_on_the_command_line_mean_the_same_as_in_a_file() {
    for (text, meaning) in [
        ("5ms", json!("5ms")),
        ("never", json!("never")),
        ("no", json!("no")),
        ("true", json!(true)),
        ("7", json!(7)),
        ("0x10", json!(16)),
        ("0.5", json!(0.5)),
        ("null", json!(null)),
        ("\"7\"", json!("7")),
        ("a: [1", json!("a: [1")),
        ("[1, 2]", json!([1, 2])),
    ] {
        assert_eq!(value(text), meaning, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        if let Err(rejected) = parse("federation.yaml", &bytes) {
            render(&rejected);
        }
    }

    #[test]
    fn no_change_of_a_valid_file_panics(at in 0..GOOD.len(), length in 0..20_usize, new in "[\\PC\\x00-\\x1f\u{85}\u{a0}]{0,6}") {
        let text = format!("{}{new}{}", &GOOD[..at], GOOD.get(at + length..).unwrap_or_default());
        match parse("federation.yaml", text.as_bytes()) {
            Ok(federation) => drop(bare_booleans("federation.yaml", &text, &federation)),
            Err(rejected) => drop(render(&rejected)),
        }
    }

    #[test]
    fn no_other_text_panics(text in "[-+.,0-9eE \n\r\t~\"'\\[{:#&*!|>%@`\\PC]{0,30}") {
        let _ = value(&text);
        let _ = pieces(&text);
        let _ = with_file(&ApplicationSpec::Qap(Qap::default()), text.clone());
        let _ = with_file(&ApplicationSpec::Qap(Qap::default()), format!("2 {text}"));
    }
}
