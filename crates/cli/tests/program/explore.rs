//! Tests exploration from the user's point of view.

use crate::common::{TestDirectory, says};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

#[test]
fn a_small_state_space_is_visited_completely_and_a_larger_one_says_where_it_stopped() {
    let place = TestDirectory::new();
    let explore = |more: &[&str], code| {
        let usual = ["explore", "--protocol", "hydee", "--nodes", "1", "--messages", "1", "--format", "json"];
        let output = place
            .faultline(usual.iter().chain(more).copied())
            .assert()
            .code(code)
            .get_output()
            .stdout
            .clone();
        serde_json::from_slice::<Value>(&output).unwrap()
    };
    let report = explore(&["--overtakings", "0", "--crashes", "0"], 0);
    let level = &report["levels"][0];
    assert_eq!((&report["verdict"], &level["isComplete"]), (&"pass".into(), &true.into()), "{report}");
    assert!(level["runs"].as_u64().unwrap() > 0 && level["depth"].as_u64().unwrap() > 0, "{report}");
    let report = explore(&["--overtakings", "all", "--states", "500"], 3);
    assert_eq!((&report["verdict"], &report["levels"][0]["isComplete"]), (&"unknown".into(), &false.into()));
    // With `deepen`, the search visits runs with more and more of them. It passes only when a higher
    // limit would not permit any further run.
    for (states, code, verdict) in [("1000", 3, "unknown"), ("20000", 0, "pass")] {
        let report = explore(&["--states", states, "--crashes", "0", "--overtakings", "deepen"], code);
        let levels = report["levels"].as_array().unwrap();
        let is_all = |level: &Value| level["isComplete"] == true && level["isBounded"] == false;
        assert_eq!(
            (report["verdict"] == verdict, code == 0),
            (true, is_all(levels.last().unwrap())),
            "{report}"
        );
        assert!(levels.len() > 1 && levels[0]["isComplete"] == true, "{report}");
    }
    for (more, code, said) in [
        (
            &["--states", "1000", "--crashes", "0", "--overtakings", "deepen"][..],
            3,
            "at most 2 steps overtaken was visited, but not every run with more",
        ),
        (&["--states", "500", "--overtakings", "all"], 3, "did not visit every run within the bounds"),
    ] {
        let usual = ["explore", "--protocol", "hydee", "--nodes", "1", "--messages", "1", "--quiet"];
        place.faultline(usual.iter().chain(more).copied()).assert().code(code).stdout(says(said));
    }
    assert!(!place.path("faultline-runs").exists(), "nothing was found, and nothing written");
}

fn ends_with_a_verdict(arguments: &[&str], said: &'static str) {
    let done = TestDirectory::new().faultline(arguments.iter().copied()).assert().code(0);
    done.stdout(contains(said).and(contains("every run with no step overtaken was visited")));
}

#[test]
fn an_exploration_with_default_bounds_ends_with_a_verdict() {
    ends_with_a_verdict(&["explore", "--protocol", "satin", "--nodes", "1"], "`--overtakings deepen`");
}

#[test]
fn unsupported_federations_are_rejected_with_a_remedy() {
    let place = TestDirectory::new();
    for (arguments, said) in [
        (&["--protocol", "none"][..], "use one of: hc3i"),
        (&["--protocol", "hydre"], "did you mean `hydee`?"),
        (&["--protocol", "tic", "--program", "0>1"], "write another task-based program to a file"),
        (&["--nodes", "1", "--program", "0>7"], "the ranks are 0 to 1"),
        (&["--program", "0-1"], "two different ranks"),
        (&["--messages", "0"], "write a whole number from 1 to 20"),
        (&["--clusters", "1", "--nodes", "1"], "1 to 26 clusters"),
        (&["--all-programs", "--messages", "9"], "use fewer messages"),
        (&["--overtakings", "-1"], "`all` or `deepen`"),
    ] {
        let arguments = std::iter::once("explore").chain(arguments.iter().copied());
        place.faultline(arguments).assert().code(2).stderr(contains(said));
    }
}

#[test]
fn a_violation_is_recorded_as_its_shortest_run() {
    let place = TestDirectory::new();
    let arguments =
        ["explore", "--defect", "resend-greater", "--nodes", "1", "--messages", "1", "--out", "found"];
    let said = contains("FAIL").and(contains("Shortest run")).and(contains("sends m1"));
    place.faultline(arguments).assert().code(1).stdout(said);
    assert!(place.path("found/steps.txt").exists());
    for (command, code) in [("check", 3), ("explain", 0), ("report", 0)] {
        let said = contains("`faultline explore` chose").and(contains("steps.txt lists every step"));
        place.faultline([command, "found"]).assert().code(code).stderr(said);
    }
    assert!(place.path("found/report.html").exists());
}

mod long {
    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn an_exploration_with_default_values_ends_with_a_verdict() {
        super::ends_with_a_verdict(&["explore", "--quiet"], "PASS");
    }
}
