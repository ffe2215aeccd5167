//! Tests that the sample files describe the HC3I paper's experiments, and that errors are reported with their
//! positions.

use faultline_api::Federation;
use faultline_api::resource::{ApplicationSpec, ProtocolSpec, Traffic};
use faultline_core::Span;
use faultline_experiments::Files;
use faultline_experiments::samples::{SAMPLES, sample};

const TOPOLOGY: &str = "\
clusters:
  - { name: a, nodes: 3 }
  - { name: b, nodes: 2 }
  - { name: c, nodes: 2 }
links:
  - [{ latency: 10us, bandwidth: 80MB }]
  - [{ latency: 150us }, { latency: 10us, bandwidth: 80MB }]
  - [{ latency: 1ms, jitter: 1us }, { latency: 150us }, { latency: 20us }]
";
const APPLICATION: &str = "\
duration: 1h
messages:
  a: { a: 5, b: 2 }
  b: { a: 1 }
";
const TIMERS: &str = "checkpoint: { a: 10m, b: never, c: 5m }\ncollect: 20m\n";

fn read(topology: &str, application: &str, timers: &str) -> Result<Federation, String> {
    let [topology, application, timers] = [("t.yaml", topology), ("a.yaml", application), ("m.yaml", timers)]
        .map(|(name, text)| (name, text.as_bytes()));
    let federation = Files::read(topology, application, timers).and_then(|it| it.import("test"));
    federation.map_err(|rejected| {
        let errors = rejected.errors().iter();
        errors
            .map(|it| format!("{}:{}:{} {} ({})", rejected.file(), it.line, it.column, it.message, it.help))
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// Reads the files, one of which is invalid, and returns the errors.
fn wrong(topology: &str, application: &str, timers: &str) -> String {
    read(topology, application, timers).expect_err("a file must be rejected")
}

#[test]
fn three_files_become_one_federation() {
    let spec = read(TOPOLOGY, APPLICATION, TIMERS).unwrap().spec;
    let links = spec.links();
    let latency = |from, to| links.properties(from, to).latency;
    assert_eq!(latency("a", "a"), Span::from_micros(10));
    assert_eq!(latency("c", "c"), Span::from_micros(20));
    assert_eq!((latency("a", "b"), latency("b", "a")), (Span::from_micros(150), Span::from_micros(150)));
    assert_eq!((latency("a", "c"), latency("c", "a")), (Span::from_millis(1), Span::from_millis(1)));
    assert_eq!(links.properties("c", "a").jitter, Span::from_micros(1));
    assert_eq!(links.properties("b", "c").bandwidth, 0, "what is not stated is not emulated");
    assert_eq!(links.properties("c", "c").bandwidth, 0);
    let ProtocolSpec::Hc3i(hc3i) = &spec.protocol else { panic!("the protocol is HC3I") };
    assert_eq!(hc3i.checkpoint_every_in["a"].0, Some(Span::from_secs(600)));
    assert_eq!(hc3i.checkpoint_every_in["b"].0, None);
    assert_eq!(spec.deadline(), Span::from_secs(7200));
    assert!(spec.faults.is_empty());
}

#[test]
fn a_link_without_jitter_does_not_inherit_that_of_the_other_links() {
    let topology = TOPOLOGY
        .replace("{ latency: 150us }", "{ latency: 150us, jitter: 2us, loss: 1% }")
        .replace("1ms, jitter: 1us", "1ms");
    let links = read(&topology, APPLICATION, TIMERS).unwrap().spec.links();
    assert_eq!(links.properties("a", "b").jitter, Span::from_micros(2));
    let link = links.properties("c", "a");
    assert_eq!((link.jitter, link.loss_ppm), (Span::ZERO, 0));
}

#[test]
fn recurring_failures_leave_time_for_repair() {
    let spec = read(&format!("{TOPOLOGY}mtbf: 30m\n"), APPLICATION, TIMERS).unwrap().spec;
    assert_eq!(spec.faults.len(), 1);
    assert_eq!(spec.deadline(), Span::from_secs(5 * 3600));
}

#[test]
fn the_samples_are_the_papers_experiments() {
    let text = |name: &str| sample(&format!("hc3i/{name}")).expect("the sample exists").text;
    let together = |topology, application, timers| {
        read(text(topology), text(application), text(timers)).unwrap_or_else(|it| panic!("{it}"))
    };
    for application in ["application", "application-103", "application-probabilities"] {
        together("topology", application, "timers");
        together("topology", application, "timers-collect");
    }
    together("topology-three-clusters", "application-three-clusters", "timers-three-clusters");
    let spec = together("topology", "application", "timers").spec;
    let ApplicationSpec::Synthetic(application) = &spec.application else {
        panic!("the application is synthetic")
    };
    let Traffic::Exact(traffic) = &application.traffic else { panic!("the traffic is exact") };
    let counts: Vec<u32> = traffic.messages.iter().map(|it| it.count).collect();
    assert_eq!(counts, [2920, 145, 11, 2497]);
    assert_eq!(spec.clusters.iter().map(|it| it.nodes).collect::<Vec<_>>(), [100, 100]);
    for sample in SAMPLES {
        let line = sample.description();
        assert!(line.len() > 20 && line.ends_with('.'), "{}: {line}", sample.name);
    }
}

#[test]
fn an_imported_federation_is_a_file_like_any_other() {
    let federation = read(&format!("{TOPOLOGY}mtbf: 30m\n"), APPLICATION, TIMERS).unwrap();
    let text = serde_saphyr::to_string(&federation).unwrap();
    let again =
        faultline_api::parse("again.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}\n{text}"));
    assert_eq!(again, federation);
}

#[test]
fn wrong_words_and_shapes_are_reported_in_their_context() {
    let edit = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from));
        text.replace(from, to)
    };
    insta::assert_snapshot!(
        [
            wrong(&edit(TOPOLOGY, "nodes: 3", "node: 3"), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "80MB }]\n  - [{ latency: 150us }", "80 }]\n  - [{ latency: 150us }"), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "  - [{ latency: 1ms, jitter: 1us }, { latency: 150us }, { latency: 20us }]\n", ""), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "{ latency: 150us }, { latency: 10us, bandwidth: 80MB }", "{ latency: 150us }"), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "name: b", "name: a"), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "jitter: 1us", "jitter: 2ms"), APPLICATION, TIMERS),
            wrong(&edit(TOPOLOGY, "name: c, nodes: 2", "name: c, nodes: 1"), APPLICATION, TIMERS),
            wrong("# nothing\n", APPLICATION, TIMERS),
        ]
        .join("\n"),
        @r"
        t.yaml:2:16 unknown field `node` (did you mean `nodes`?)
        t.yaml:6:34 `80` has no unit (write a value such as `100Mbit` or `80MB` (per second))
        t.yaml:5:1 the matrix of links has 2 rows for 3 clusters (write one row per cluster)
        t.yaml:7:5 row 1 of the matrix (counted from 0) has 1 link instead of 2 (list the links to all previous clusters, then the link within the cluster)
        t.yaml:3:13 the name `a` is used by more than one cluster (give each cluster a unique name)
        t.yaml:8:30 the jitter (2ms) exceeds the latency (1ms), so delays could be negative (choose a jitter no larger than the latency)
        t.yaml:4:23 cluster `c` has only one node (add a node: replicas of checkpoints are kept by a neighbour in the same cluster)
        t.yaml:1:1 the file is empty (`faultline samples hc3i/topology` prints an example)
        "
    );
    insta::assert_snapshot!(
        [
            wrong(TOPOLOGY, &edit(APPLICATION, "b: 2", "d: 2"), TIMERS),
            wrong(TOPOLOGY, &edit(APPLICATION, "  b: { a: 1 }", "  bb: { a: 1 }"), TIMERS),
            wrong(TOPOLOGY, &edit(APPLICATION, "1h", "0s"), TIMERS),
            wrong(TOPOLOGY, "duration: 1h\n", TIMERS),
            wrong(TOPOLOGY, &format!("{APPLICATION}clusters: {{}}\n"), TIMERS),
            wrong(TOPOLOGY, "duration: 1h\nclusters:\n  a: { meanComputation: 2m, send: { b: 1.5 } }\n", TIMERS),
            wrong(TOPOLOGY, "duration: 1h\nclusters:\n  a: { meanComputation: 2, send: { b: 1.5 } }\n", TIMERS),
            wrong(TOPOLOGY, APPLICATION, &edit(TIMERS, ", c: 5m", "")),
            wrong(TOPOLOGY, APPLICATION, &edit(TIMERS, "c: 5m", "c: 5m, d: 6m")),
            wrong(TOPOLOGY, APPLICATION, &edit(TIMERS, "never", "inf")),
            wrong(TOPOLOGY, APPLICATION, &edit(TIMERS, "a: 10m", "a: 10us")),
        ]
        .join("\n"),
        @r"
        a.yaml:3:17 there is no cluster `d` (the clusters are: a, b, c)
        a.yaml:4:3 there is no cluster `bb` (did you mean `b`?)
        a.yaml:1:11 the computing time must not be 0 (write a duration above zero)
        a.yaml:1:1 the file does not define any messages (add `clusters` with probabilities, or `messages` with numbers of messages)
        a.yaml:2:1 `clusters` and `messages` cannot be combined (keep one of the two)
        a.yaml:3:40 1.5 is not a probability (write a number between 0 and 1)
        a.yaml:3:25 `2` has no unit (write a value such as `5ms`, `1.5s` or `2m`)
        m.yaml:1:1 the delay between checkpoints of cluster `c` is missing (add `c: 30m`, or `c: never` for no checkpoints)
        m.yaml:1:43 there is no cluster `d` (the clusters are: a, b, c)
        m.yaml:1:26 `inf` is not a duration (write a value such as `5ms`, `1.5s` or `2m`)
        m.yaml:1:18 the interval of a timer must be at least 1ms (found 10us) (write a longer time, or `never` to disable the timer)
        "
    );
}
