//! Task-based programs in a federation's file: valid fields, and the explanation of errors.

use faultline_api::flow::{flow, pieces, with_file};
use faultline_api::parse;
use faultline_dataflow::programs::Flow;

/// A valid federation that runs a task-based program.
const GOOD: &str = "\
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: example }
spec:
  clusters: [{ name: paris, nodes: 3 }, { name: rennes, nodes: 2, speed: 50, cores: 4 }]
  protocol: { tic: { tau: 2s } }
  application: { fibonacci: { n: 20 } }
  stealing: { patience: 2ms, clusterFirst: 0.5 }
";

/// Returns the valid federation with parts replaced.
fn with<const N: usize>(parts: [(&str, &str); N]) -> String {
    parts.into_iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "`{from}` occurs once in the example");
        text.replacen(from, to, 1)
    })
}

/// Returns the first error: the line, the problem, and the remedy.
fn error(text: &str) -> (usize, String, String) {
    let rejected = parse("federation.yaml", text.as_bytes()).expect_err("the file must be rejected");
    let first = &rejected.errors()[0];
    (first.line, first.message.clone(), first.help.clone())
}

#[track_caller]
fn rejects<const N: usize>(parts: [(&str, &str); N], line: usize, message: &str, help: &str) {
    assert_eq!(error(&with(parts)), (line, message.into(), help.into()));
}

const FIBONACCI: &str = "fibonacci: { n: 20 }";
const TIC: &str = "tic: { tau: 2s }";
const NONE: &str = "none: {}";
const TUNED: [(&str, &str); 2] =
    [(", speed: 50, cores: 4", ""), ("  stealing: { patience: 2ms, clusterFirst: 0.5 }\n", "")];

#[test]
fn the_file_determines_the_program() {
    let federation = parse("federation.yaml", GOOD.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    let spec = &federation.spec;
    let Some(Ok(Flow::Fibonacci(program))) = flow(&spec.application) else {
        panic!("the file requests a Fibonacci program")
    };
    assert_eq!((program.n, program.threshold), (20, 5));
    assert_eq!(
        spec.clusters.iter().map(|it| (it.speed(), it.cores())).collect::<Vec<_>>(),
        [(100, 1), (50, 4)]
    );
}

#[test]
fn every_program_is_accepted() {
    for application in [
        "fibonacci: {}",
        "nQueens: {}",
        "nQueens: { n: 2 }",
        "qap: {}",
        "qap: { instance: nug15, depth: 2 }",
        "taskGraph: {}",
        "jacobi: {}",
    ] {
        let text = with([(FIBONACCI, application)]);
        assert!(parse("federation.yaml", text.as_bytes()).is_ok(), "{application}");
    }
}

#[test]
fn settings_for_tasks_require_a_program_of_tasks() {
    rejects(
        [(TIC, "hc3i: {}")],
        6,
        "`hc3i` does not support task-based programs such as `fibonacci`",
        "choose the protocol `tic`, `sel`, `satin`, `cck` or `none`, or an application that exchanges messages, such as `heat`",
    );
    rejects(
        [(FIBONACCI, "heat: {}"), TUNED[0], TUNED[1]],
        6,
        "`tic` supports only task-based programs, but `heat` exchanges messages",
        "choose a task-based program, such as `fibonacci`, or another protocol, such as `hc3i`",
    );
    let leave_out =
        |field: &str| format!("omit `{field}`, or choose a task-based program, such as `fibonacci`");
    rejects(
        [(TIC, NONE), (FIBONACCI, "heat: {}"), TUNED[0]],
        8,
        "`heat` has no tasks",
        &leave_out("stealing"),
    );
    rejects([(TIC, NONE), (FIBONACCI, "heat: {}"), TUNED[1]], 5, "`heat` has no tasks", &leave_out("speed"));
    for protocol in [TIC, NONE] {
        let text = with([(TIC, protocol)]);
        assert!(parse("federation.yaml", text.as_bytes()).is_ok(), "{protocol}");
    }
}

#[test]
fn values_out_of_range_are_rejected() {
    rejects(
        [("speed: 50", "speed: 0")],
        5,
        "`speed` is 0, which is out of range",
        "write a number from 1 to 10000",
    );
    rejects(
        [("cores: 4", "cores: 257")],
        5,
        "`cores` is 257, which is out of range",
        "write a number from 1 to 256",
    );
    rejects(
        [("patience: 2ms", "patience: 0ms")],
        8,
        "0ns is too short: idle processes would ask for tasks without pausing",
        "write a duration of at least 1us",
    );
    rejects([("0.5", "1.5")], 8, "1.5 is not a probability", "write a number between 0 and 1");
    rejects(
        [("tau: 2s", "tau: 1us")],
        6,
        "the interval of a timer must be at least 1ms (found 1us)",
        "write a longer time",
    );
}

#[test]
fn programs_that_do_not_fit_in_memory_are_rejected() {
    rejects(
        [("n: 20", "n: 60")],
        7,
        "the program has up to 1096305888484 tasks, which do not fit in memory",
        "raise `threshold` or lower `n`: at most 16777216 tasks are possible",
    );
    let limit = "at most 16777216 tasks are possible";
    for (application, tasks, remedy) in [
        ("nQueens: { n: 18, depth: 8 }", 1_939_188_421u64, "lower `depth`"),
        ("qap: { instance: nug12, depth: 8 }", 29_489_090, "lower `depth`"),
        ("taskGraph: { depth: 16, width: 8 }", 321_685_687_669_322, "lower `depth` or `width`"),
    ] {
        rejects(
            [(FIBONACCI, application)],
            7,
            &format!("the program has up to {tasks} tasks, which do not fit in memory"),
            &format!("{remedy}: {limit}"),
        );
    }
    rejects([("n: 20", "n: 0")], 7, "`n` is 0, which is out of range", "write a number from 1 to 93");
    rejects(
        [(FIBONACCI, "nQueens: { n: 6, depth: 7 }")],
        7,
        "`depth` is 7, which is out of range",
        "write a number from 0 to 6",
    );
}

#[test]
fn malformed_instances_are_reported_with_their_line() {
    let data = |text: &str| format!("qap: {{ data: \"{text}\" }}");
    rejects(
        [(FIBONACCI, &data("2\\n0 1\\nx 0\\n0 3\\n3 0"))],
        7,
        "line 3: `x` is not a whole number from 0 to 16777216",
        "write whole numbers from 0 to 16777216, separated by spaces or line breaks",
    );
    rejects(
        [(FIBONACCI, &data("2\\n0 1\\n1 0\\n0 3"))],
        7,
        "line 4: the text ends after 6 of 8 entries of two 2 x 2 matrices",
        "add the missing entries, or correct the size 2",
    );
    rejects(
        [(FIBONACCI, "qap: { instance: nug12, data: \"2 0 1 1 0 0 3 3 0\" }")],
        7,
        "`instance` and `data` cannot be combined",
        "keep one of the two",
    );
}

#[test]
fn the_file_of_an_instance_is_read_by_the_caller() {
    let text = with([(FIBONACCI, "qap: { file: tiny.dat, depth: 1 }")]);
    let mut federation = parse("federation.yaml", text.as_bytes()).expect("the file is not read");
    let application = &mut federation.spec.application;
    let problem = flow(application).unwrap().unwrap_err();
    assert_eq!(problem.path, "spec.application.qap.file");
    assert_eq!(problem.help, "copy the text of the file into `data`");
    assert!(with_file(application, "2 0 1 1 0 0 3 3".into()).is_err());
    *application = with_file(application, "2 0 1 1 0 0 3 3 0".into()).unwrap();
    assert!(flow(application).unwrap().is_ok());
    let again = parse("again.yaml", faultline_api::to_yaml(&federation).as_bytes());
    assert_eq!(again.unwrap_or_else(|it| panic!("{it}")).spec, federation.spec);
}

/// Returns the valid federation with these faults.
fn faulty(faults: &str) -> String {
    format!("{GOOD}  faults: [{faults}]\n")
}

#[test]
fn permanent_failures_must_leave_a_process() {
    let is_good = |faults: &str| parse("federation.yaml", faulty(faults).as_bytes()).is_ok();
    let paris = "{ at: 1s, loseCluster: { cluster: paris, storage: lost, returns: false } }";
    assert!(is_good(paris));
    assert!(is_good(&format!("{paris}, {{ at: 2s, loseCluster: {{ cluster: rennes }} }}")));
    assert!(is_good(&format!("{paris}, {{ at: 2s, crash: {{ process: rennes-1, returns: false }} }}")));
    let help = "let some processes return: omit `returns` in one of the faults";
    let none_left = "with this fault, no process is left to take over the work";
    for last in [
        "{ at: 2s, loseCluster: { cluster: rennes, returns: false } }",
        "{ at: 2s, crash: { process: rennes-1, returns: false } }, { at: 3s, crash: { process: rennes-0, returns: false } }",
        "{ mtbf: { exponential: 1s }, crash: { cluster: rennes, returns: false } }",
    ] {
        assert_eq!(error(&faulty(&format!("{paris}, {last}"))), (9, none_left.into(), help.into()), "{last}");
    }
}

#[test]
fn each_process_is_lost_only_once() {
    let is_good = |faults: &str| parse("federation.yaml", faulty(faults).as_bytes()).is_ok();
    let lost = |cluster: &str| format!("{{ at: 1s, loseCluster: {{ cluster: {cluster}, returns: false }} }}");
    let crash = |process: &str| format!("{{ at: 2s, crash: {{ process: {process}, returns: false }} }}");
    let (paris, rennes) = (lost("paris"), lost("rennes"));
    let (first, second) = (crash("rennes-0"), crash("rennes-1"));
    assert!(is_good(&format!("{paris}, {first}, {first}")));
    assert!(is_good(&format!("{rennes}, {rennes}, {first}, {second}")));
    assert!(!is_good(&format!("{paris}, {first}, {second}")));
    assert!(!is_good(&format!("{first}, {rennes}, {paris}")));
    assert!(!is_good(&format!("{rennes}, {first}, {paris}")));
}

#[test]
fn the_recovery_process_returns() {
    let jacobi = "jacobi: { rows: 4, columns: 4, size: 8, iterations: 10 }";
    let with = |process: &str| {
        let protocol = "cck: { tau: 1s, replicateTo: sharedStorage }";
        let fault = format!("{{ at: 1s, crash: {{ process: {process}, returns: false }} }}");
        faulty(&fault).replace(TIC, protocol).replace(FIBONACCI, jacobi).replace(TUNED[1].0, "")
    };
    assert_eq!(
        error(&with("recovery-process")),
        (
            8,
            "no process can take over from `recovery-process`".into(),
            "omit `returns`, so that the process is restarted".into()
        )
    );
    // Other storage servers or, if there are none, ranks take over the replicas.
    let server = with("storage-server");
    assert!(parse("federation.yaml", server.as_bytes()).is_ok(), "{server}");
}

/// The problem reported if a fault leaves only processes that are not present for the whole run.
const PASSING: &str = "with this fault, only processes of clusters that join or leave during the run, such as `rennes`, \
                       could take over the work, and they may not be present in time";

#[test]
fn clusters_join_a_program_of_tasks_and_do_not_leave() {
    let late = ("nodes: 2, speed: 50", "nodes: 2, joinsAfter: 2s, speed: 50");
    for protocol in [TIC, "sel: {}", "satin: {}", NONE] {
        let text = with([late, (TIC, protocol)]);
        assert!(parse("federation.yaml", text.as_bytes()).is_ok(), "{protocol}");
    }
    rejects(
        [late, ("nodes: 3", "nodes: 3, joinsAfter: 1s")],
        5,
        "no cluster is present for the whole run",
        "remove `joinsAfter` and `leavesAfter` from one cluster: garbage collection needs a cluster that is always present",
    );
    rejects(
        [("nodes: 2, speed: 50", "nodes: 2, leavesAfter: 2s, speed: 50")],
        5,
        "`tic` does not support clusters that leave",
        "choose the protocol `cck`, omit `leavesAfter`, or add a fault `loseCluster` with `returns: false`",
    );
    rejects(
        [("nodes: 2, speed: 50", "nodes: 2, joinsAfter: 0s, speed: 50")],
        5,
        "cluster `rennes` would join at the start",
        "omit `joinsAfter`: by default, a cluster is present from the start",
    );
    // Replicas are kept only in clusters that are present for the whole run.
    rejects(
        [late, ("tau: 2s", "tau: 2s, replicateTo: otherCluster")],
        6,
        "for the checkpoints of `paris`, `replicas: 1` needs 1 other cluster that is present for the whole run (found 0)",
        "reduce `replicas`, change `replicateTo`, or remove `joinsAfter` and `leavesAfter` from more clusters",
    );
    let lost = with([late]) + "  faults: [{ at: 3s, loseCluster: { cluster: paris, returns: false } }]\n";
    assert_eq!(
        error(&lost),
        (
            9,
            PASSING.into(),
            "let some processes return: omit `returns` in one of the faults, or omit `joinsAfter` from `rennes`"
                .into()
        )
    );
}

#[test]
fn a_cluster_joins_and_leaves_before_the_deadline() {
    let deadline = |text: &str| text.to_owned() + "  deadline: 5s\n";
    let help = "choose an earlier time, or extend `deadline`";
    for at in ["5s", "1h"] {
        let joins = format!("nodes: 2, joinsAfter: {at}");
        let late = deadline(&with([("nodes: 2, speed: 50, cores: 4", &joins)]));
        let message = format!("cluster `rennes` would join after {at}, but the deadline of the run is 5s");
        assert_eq!(error(&late), (5, message, help.into()));
    }
    let in_time = deadline(&with([("nodes: 2, speed: 50, cores: 4", "nodes: 2, joinsAfter: 4s")]));
    assert!(parse("federation.yaml", in_time.as_bytes()).is_ok());
    let leaves = [
        ("nodes: 2, speed: 50, cores: 4", "nodes: 2, leavesAfter: 6s"),
        (TIC, "cck: {}"),
        (FIBONACCI, "jacobi: {}"),
        ("  stealing: { patience: 2ms, clusterFirst: 0.5 }\n", ""),
    ];
    assert_eq!(
        error(&deadline(&with(leaves))).1,
        "cluster `rennes` would leave after 6s, but the deadline of the run is 5s"
    );
}

#[test]
fn clusters_join_a_program_that_is_assigned_in_advance_only_under_cck() {
    let late = ("nodes: 2, speed: 50, cores: 4", "nodes: 2, joinsAfter: 2s");
    let stealing = "stealing: { patience: 2ms, clusterFirst: 0.5 }";
    rejects(
        [late, (TIC, NONE), (stealing, "schedule: {}")],
        5,
        "a cluster that joins late gets no tasks, because tasks are assigned in advance",
        "choose the protocol `cck`, let processes steal tasks (`stealing: {}` instead of `schedule`), or omit `joinsAfter`",
    );
    let stolen = with([late, (TIC, NONE), (FIBONACCI, "jacobi: {}")]);
    assert!(parse("federation.yaml", stolen.as_bytes()).is_ok());
    let assigned = stolen.replace(stealing, "");
    assert_eq!(
        error(&assigned).1,
        "a cluster that joins late gets no tasks, because tasks are assigned in advance"
    );
    let under_cck = with([late, (TIC, "cck: {}"), (stealing, "schedule: {}")]);
    assert!(parse("federation.yaml", under_cck.as_bytes()).is_ok());
    let both =
        |leaves: &str| under_cck.replace("joinsAfter: 2s", &format!("joinsAfter: 2s, leavesAfter: {leaves}"));
    assert!(parse("federation.yaml", both("3s").as_bytes()).is_ok());
    let (_, message, help) = error(&both("2s"));
    assert_eq!(
        message,
        "cluster `rennes` must leave after it joins (found `leavesAfter: 2s`, `joinsAfter: 2s`)"
    );
    assert_eq!(
        help,
        "choose a later `leavesAfter`; both times are measured from the start of the application"
    );
}

#[test]
fn clusters_leave_a_program_that_is_assigned_in_advance() {
    let leaves = |at: &str| format!("nodes: 2, leavesAfter: {at}");
    let planned = |at: &str| {
        let stealing = "stealing: { patience: 2ms, clusterFirst: 0.5 }";
        let text = with([(TIC, "cck: {}"), (stealing, "schedule: {}")]);
        text.replace("nodes: 2, speed: 50, cores: 4", &leaves(at))
    };
    assert!(parse("federation.yaml", planned("2s").as_bytes()).is_ok());
    let (_, message, help) = error(&planned("0s"));
    assert_eq!(message, "cluster `rennes` would leave at the start");
    assert_eq!(help, "write a duration greater than 0, or remove the cluster");
    let all = planned("2s").replace("nodes: 3", "nodes: 3, leavesAfter: 1s");
    assert_eq!(error(&all).1, "no cluster is present for the whole run");
    let lost = planned("2s") + "  faults: [{ at: 3s, loseCluster: { cluster: paris, returns: false } }]\n";
    assert_eq!(error(&lost).1, PASSING);
}

#[test]
fn programs_with_messages_do_not_support_permanent_failures() {
    let fault = "{ at: 1s, crash: { cluster: paris, node: 1, returns: false } }";
    let text = faulty(fault).replace(TIC, "hc3i: {}").replace(FIBONACCI, "heat: {}");
    let text = TUNED.iter().fold(text, |text, (from, to)| text.replace(from, to));
    assert_eq!(
        error(&text),
        (
            8,
            "`heat` does not support processes that never return".into(),
            "omit `returns`, or choose a task-based program, such as `fibonacci`".into()
        )
    );
}

#[test]
fn faults_wait_only_for_facts_that_can_occur() {
    let waits = |fact: &str| faulty(&format!("{{ when: {{ fact: {fact} }}, crash: {{ cluster: paris }} }}"));
    for fact in ["lent", "receipted", "absorbed", "saved", "finished"] {
        assert!(parse("federation.yaml", waits(fact).as_bytes()).is_ok(), "{fact}");
    }
    for fact in ["delivered", "checkpointRequested", "orphaned"] {
        assert_eq!(
            error(&waits(fact)).1,
            "this fact is never reported in a task-based program, such as `fibonacci`",
            "{fact}"
        );
    }
    let unprotected = waits("saved").replace(TIC, NONE);
    assert_eq!(error(&unprotected).1, "this fact is never reported under the protocol `none`");
    assert!(parse("federation.yaml", waits("merged").replace(TIC, NONE).as_bytes()).is_ok());
    let without_checkpoints = |fact| waits(fact).replace(TIC, "satin: {}");
    assert_eq!(
        error(&without_checkpoints("saved")).1,
        "this fact is never reported under the protocol `satin`, which takes no checkpoints"
    );
    assert!(parse("federation.yaml", without_checkpoints("restored").as_bytes()).is_ok());
}

/// A valid federation whose tasks are assigned in advance.
const PLANNED: &str = "\
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: example }
spec:
  clusters: [{ name: paris, nodes: 3 }, { name: rennes, nodes: 2 }]
  protocol: { cck: { tau: 2s } }
  application: { jacobi: { rows: 3, columns: 2 } }
  schedule: { window: 3, pieces: [0, 1, 2, 3, 4, 4] }
";

#[track_caller]
fn rejects_planned(from: &str, to: &str, line: usize, message: &str, help: &str) {
    assert_eq!(PLANNED.matches(from).count(), 1, "`{from}` occurs once in the example");
    assert_eq!(error(&PLANNED.replacen(from, to, 1)), (line, message.into(), help.into()));
}

#[test]
fn tasks_are_assigned_in_advance_or_stolen() {
    let federation = parse("federation.yaml", PLANNED.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    assert!(federation.spec.is_planned());
    for (protocol, is_planned) in [("none: {}", true), ("tic: {}", false)] {
        let text = PLANNED.replace("cck: { tau: 2s }", protocol);
        let text = text.replace("  schedule: { window: 3, pieces: [0, 1, 2, 3, 4, 4] }\n", "");
        let federation = parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(federation.spec.is_planned(), is_planned, "{protocol}");
    }
    let stolen = PLANNED
        .replace("cck: { tau: 2s }", "none: {}")
        .replace("schedule: { window: 3, pieces: [0, 1, 2, 3, 4, 4] }", "stealing: {}");
    assert!(
        !parse("federation.yaml", stolen.as_bytes()).unwrap_or_else(|it| panic!("{it}")).spec.is_planned()
    );
}

#[test]
fn programs_whose_tasks_spawn_others_can_be_planned() {
    for (application, protocol, schedule, is_planned) in [
        ("fibonacci: {}", "cck: {}", "schedule: {}", true),
        ("nQueens: {}", "none: {}", "schedule: {}", true),
        ("qap: {}", "none: {}", "stealing: {}", false),
    ] {
        let text = PLANNED
            .replace("jacobi: { rows: 3, columns: 2 }", application)
            .replace("cck: { tau: 2s }", protocol)
            .replace("schedule: { window: 3, pieces: [0, 1, 2, 3, 4, 4] }", schedule);
        let federation = parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(federation.spec.is_planned(), is_planned, "{application} under {protocol}");
    }
}

#[test]
fn programs_that_cannot_be_planned_are_rejected() {
    rejects_planned(
        "jacobi: { rows: 3, columns: 2 }",
        "fibonacci: { n: 4, threshold: 4 }",
        7,
        "2 pieces cannot be assigned to 5 processes",
        "use a larger program, such as one with more `rows` or `columns`, or fewer nodes",
    );
    rejects_planned(
        "jacobi: { rows: 3, columns: 2 }",
        "heat: {}",
        6,
        "`cck` supports only task-based programs, but `heat` exchanges messages",
        "choose a task-based program, such as `jacobi`, or another protocol, such as `hc3i`",
    );
    rejects_planned(
        "cck: { tau: 2s }",
        "tic: {}",
        8,
        "under `tic`, processes steal tasks, and nothing is assigned in advance",
        "omit `schedule`, or choose the protocol `cck`",
    );
    rejects_planned(
        "schedule: {",
        "stealing: {}\n  schedule: {",
        8,
        "under `cck`, tasks are assigned in advance, and no process steals any",
        "omit `stealing`",
    );
}

#[test]
fn the_remedy_for_stealing_and_a_schedule_is_valid() {
    const STEALING: &str = "stealing: { patience: 2ms, clusterFirst: 0.5 }";
    let both = "stealing: {}\n  schedule: {}";
    rejects(
        [(TIC, NONE), (STEALING, both)],
        9,
        "`stealing` and `schedule` cannot be combined",
        "omit one of the two",
    );
    let stolen = "under `tic`, processes steal tasks, and nothing is assigned in advance";
    rejects([(STEALING, both)], 9, stolen, "omit `schedule`");
    rejects([(STEALING, "schedule: {}")], 8, stolen, "omit `schedule`, or choose the protocol `cck`");
    let planned = "under `cck`, tasks are assigned in advance, and no process steals any";
    let remedy = "omit `stealing`, or choose a protocol under which processes steal tasks, such as `tic`";
    rejects([(TIC, "cck: {}"), (", speed: 50, cores: 4", "")], 8, planned, remedy);
    rejects([(TIC, "cck: {}"), (STEALING, both)], 8, planned, "omit `stealing`");
    for (protocol, schedule) in
        [("none: {}", STEALING), ("none: {}", "schedule: {}"), ("cck: {}", "schedule: {}"), (TIC, STEALING)]
    {
        let text = with([(TIC, protocol), (STEALING, schedule)]);
        parse("federation.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{protocol} {schedule}: {it}"));
    }
}

#[test]
fn storage_servers_are_limited_and_need_shared_storage() {
    let (few, many) =
        ("replicateTo: sharedStorage, servers: 0", "replicateTo: sharedStorage, servers: 99999");
    for (options, servers) in [(few, 0), (many, 99999)] {
        rejects_planned(
            "tau: 2s",
            options,
            6,
            &format!("`servers` is {servers}, which is out of range"),
            "write a number from 1 to 1024",
        );
    }
    rejects_planned(
        "tau: 2s",
        "servers: 3",
        6,
        "without shared storage, there are no storage servers",
        "write `replicateTo: sharedStorage`, or omit `servers`",
    );
}

#[test]
fn the_tolerance_of_an_iteration_is_not_negative() {
    for (tolerance, found) in [("-1", "-1"), (".nan", "NaN")] {
        rejects_planned(
            "rows: 3, columns: 2",
            &format!("rows: 3, columns: 2, tolerance: {tolerance}"),
            7,
            &format!("`tolerance` must not be negative (found {found})"),
            "write a number of at least 0; with 0, the computation converges only once no cell changes",
        );
    }
}

/// Each of these processes is a group, and groups have 16-bit numbers.
#[test]
fn processes_that_roll_back_individually_are_limited() {
    let message = "under `tic`, processes roll back individually, and 65538 are too many";
    let help = "reduce the number of nodes to at most 65535 in total, or choose a protocol whose clusters roll back as a \
                whole";
    rejects([("nodes: 3", "nodes: 65536")], 5, message, help);
    let text = with([("nodes: 3", "nodes: 65536"), (TIC, NONE)]);
    assert!(parse("federation.yaml", text.as_bytes()).is_ok());
}

/// By default, the depth of a search is at most the size of its instance.
#[test]
fn a_small_instance_needs_no_depth() {
    let text = with([(FIBONACCI, "qap: { data: \"2 0 1 1 0 0 1 1 0\" }")]);
    assert!(parse("federation.yaml", text.as_bytes()).is_ok());
}

#[test]
fn every_piece_has_a_process() {
    rejects_planned(
        "[0, 1, 2, 3, 4, 4]",
        "[0, 1, 2]",
        8,
        "`pieces` must have 6 entries, one per piece of the program (found 3)",
        "write one process for each piece",
    );
    rejects_planned("4, 4]", "4, 5]", 8, "there is no process 5", "write a number from 0 to 4");
    rejects_planned(
        "window: 3",
        "window: 0",
        8,
        "`window` is 0, which is out of range",
        "write a number from 1 to 1024",
    );
    rejects_planned(
        "pieces: [0, 1, 2, 3, 4, 4]",
        "pieces: [0, 1, 2, 3, 4, 4], file: grid.part.5",
        8,
        "`pieces` and `file` cannot be combined",
        "keep one of the two",
    );
    assert_eq!(pieces("0\n1\n\n1\n"), Ok(vec![0, 1, 1]));
    assert_eq!(pieces("0\nx\n"), Err("line 2: `x` is not the number of a process".to_owned()));
    let text = PLANNED.replace("rows: 3, columns: 2", "rows: 2, columns: 2");
    assert_eq!(error(&text).1, "4 pieces cannot be assigned to 5 processes");
}

#[test]
fn faults_wait_for_facts_about_partitions() {
    let waits = |fact: &str| {
        format!("{PLANNED}  faults: [{{ when: {{ fact: {fact} }}, crash: {{ cluster: paris }} }}]\n")
    };
    for fact in ["ran", "rerun", "delivered", "checkpointMessage", "recoveryJoined", "drained"] {
        assert!(parse("federation.yaml", waits(fact).as_bytes()).is_ok(), "{fact}");
    }
    assert_eq!(error(&waits("lent")).1, "this fact is never reported if tasks are assigned in advance");
    let stolen = GOOD.to_owned() + "  faults: [{ when: { fact: rerun }, crash: { cluster: paris } }]\n";
    assert_eq!(error(&stolen).1, "this fact is never reported in a task-based program, such as `fibonacci`");
}

#[test]
fn no_key_of_a_sample_is_a_boolean_for_kubectl() {
    // kubectl reads YAML 1.1, where these are booleans unless they are quoted.
    const BOOLEANS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];
    for sample in faultline_api::samples::SAMPLES {
        for (key, _) in sample.text.split(['{', ',', '\n']).filter_map(|it| it.split_once(':')) {
            let key = key.trim();
            assert!(!BOOLEANS.contains(&key), "{}: quote the key `{key}`", sample.name);
        }
    }
}
