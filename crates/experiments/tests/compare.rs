//! Protocols side by side: what the comparison says of a small federation.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use faultline_api::resource::{Family, Protocol};
use faultline_experiments::compare::{Comparison, Row, Runs, Settings, compare, page, tell};
use faultline_trace::manifest::Backend;

const HEAT: &str = "heat: { steps: 60, stepTime: 20ms, feedbackEvery: 10, state: 64KiB }";

fn compared(application: &str, faults: &str) -> Comparison {
    let text = format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: small }}
spec:
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}]
  links: {{ between: {{ latency: 3ms, bandwidth: 100Mbit }} }}
  protocol: {{ hc3i: {{ checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster }} }}
  application: {{ {application} }}
  failures: {{ detectAfter: 100ms, restartAfter: 50ms }}
{faults}"
    );
    let federation = faultline_api::parse("small.yaml", text.as_bytes()).expect("can be run");
    let protocols = ["hc3i", "hydee", "coordinated", "every-message", "none", "fullLogging"];
    let protocols = protocols.map(str::to_owned).to_vec();
    let settings = Settings { protocols, first_seed: 3, seeds: 2, jobs: NonZero::<usize>::MIN };
    compare(&federation, &settings, Runs::Simulated, &AtomicBool::new(false), &mut |_, _| {})
        .expect("nobody interrupts")
}

fn mean(row: &Row, quantity: &str) -> f64 {
    row.values.get(quantity).unwrap_or_else(|| panic!("{} has {quantity}", row.protocol)).mean()
}

#[test]
fn each_protocol_pays_and_saves_in_its_own_way() {
    let compared = compared(HEAT, "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n");
    let [hc3i, hydee, coordinated, every, none, full] = &compared.rows[..] else { panic!("six rows") };
    for row in &compared.rows {
        assert_eq!((row.cannot.as_deref(), row.calm.pass, row.calm.completed), (None, 2, 2), "{row:?}");
    }
    for row in [hc3i, hydee, coordinated, every, full] {
        assert_eq!((row.faulty.pass, row.faulty.completed), (2, 2), "{row:?}");
        assert!(mean(row, "overheadPercent") > 0.0 && mean(row, "lostSeconds") > 0.0, "{row:?}");
        assert!(mean(row, "slowdownPercent") > mean(row, "overheadPercent"), "{row:?}");
        assert!(
            mean(row, "recoverySeconds") > 0.05,
            "another life begins 50 ms after the announcement: {row:?}"
        );
    }
    // Feedback forces checkpoints under HC3I and nowhere else; HydEE and HC3I log the same messages.
    assert!(mean(hc3i, "forcedPerProcess") > 0.0);
    assert!(mean(every, "forcedPerProcess") > 2.0 * mean(hc3i, "forcedPerProcess"), "{every:?}");
    assert_eq!(mean(hydee, "forcedPerProcess") + mean(coordinated, "forcedPerProcess"), 0.0);
    assert_eq!(mean(hc3i, "loggedBytes"), mean(hydee, "loggedBytes"));
    assert!(mean(hydee, "loggedBytes") > 0.0 && mean(coordinated, "loggedBytes") == 0.0);
    assert!(mean(hc3i, "checkpointBytes") > mean(hydee, "checkpointBytes"));
    // One process of four fails: full logging takes it back alone, HydEE its cluster, a global checkpoint everybody.
    assert_eq!(mean(full, "rolledBackPercent"), 25.0);
    assert!(mean(full, "loggedBytes") > mean(hydee, "loggedBytes"));
    assert_eq!((mean(hydee, "rolledBackPercent"), mean(coordinated, "rolledBackPercent")), (50.0, 100.0));
    // Nothing protects the unprotected, which is no failure of theirs.
    assert_eq!(
        (mean(none, "overheadPercent"), mean(none, "checkpointBytes"), none.faulty.runs),
        (0.0, 0.0, 0)
    );
    assert!(none.cannot_with_faults.is_some() && !compared.has_failed());

    let text = tell::text(&compared);
    assert!(text.contains("seeds 3 to 4") && text.contains("processes rolled back, per outage"), "{text}");
    assert!(text.contains("none does not run with faults"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&tell::json(&compared)).expect("one object");
    let hydee = &json["protocols"][1];
    assert_eq!((&hydee["protocol"], &hydee["withFaults"]["pass"]), (&"hydee".into(), &2.into()));
    assert_eq!(hydee["quantities"]["rolledBackPercent"]["mean"], 50.0);
    let page = page::render(&compared);
    assert!(page.contains("<svg") && page.contains("With the faults of the file") && !page.contains("NaN"));
    assert!(page::file(&compared).starts_with("<svg"));
    // On real processes two runs of the same take different times, and only there.
    let own_spread = "none is the reference, run a second time";
    assert!(!tell::text(&compared).contains(own_spread));
    let real = Comparison { backend: Backend::Local, ..compared };
    assert!(tell::text(&real).contains(own_spread));
}

#[test]
fn who_met_fewer_faults_is_not_comparable_and_said_to_be_so() {
    // One process of all coordinates under `coordinated`, and that is lyon's.
    let when = "when: { fact: checkpointRequested, cluster: nancy, occurrence: 2 }";
    let compared =
        compared(HEAT, &format!("  faults: [{{ {when}, crash: {{ cluster: lyon, node: 1 }} }}]\n"));
    let text = tell::text(&compared);
    assert!(text.contains("coordinated met fewer faults than others, 0 of 1 on average"), "{text}");
    assert!(!text.contains("hydee met fewer") && !text.contains("none met fewer"), "{text}");
}

#[test]
fn what_a_protocol_cannot_run_is_said_in_its_row() {
    let compared = compared("salted: { steps: 20 }", "");
    let [hc3i, hydee, ..] = &compared.rows[..] else { panic!("four rows") };
    assert!(hydee.cannot.as_deref().is_some_and(|it| it.contains("salted")), "{hydee:?}");
    assert_eq!((hydee.calm.runs, hydee.values.len(), hc3i.calm.pass), (0, 0, 2));
    let text = tell::text(&compared);
    assert!(text.contains("hydee cannot run this") && !text.contains("WITH FAULTS"), "{text}");
}

#[test]
fn programs_of_tasks_are_compared_by_thefts_and_tasks_that_run_again() {
    let text = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: small }
spec:
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 2 }]
  protocol: { tic: { tau: 200ms, replicateTo: otherCluster } }
  application: { fibonacci: { n: 17, threshold: 5, taskTime: 10ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
  faults: [{ at: 400ms, loseCluster: { cluster: nancy, storage: lost, returns: false } }]
";
    let federation = faultline_api::parse("small.yaml", text.as_bytes()).expect("can be run");
    let protocols = Protocol::compared(Family::Tasks);
    assert_eq!((protocols[0], protocols.last()), ("tic", Some(&"none")));
    let protocols = ["tic", "none"].map(str::to_owned).to_vec();
    let settings = Settings { protocols, first_seed: 3, seeds: 2, jobs: NonZero::<usize>::MIN };
    let compared = compare(&federation, &settings, Runs::Simulated, &AtomicBool::new(false), &mut |_, _| {})
        .expect("nobody interrupts");
    let [tic, none] = &compared.rows[..] else { panic!("two rows") };
    assert_eq!((tic.calm.pass, tic.faulty.pass, none.calm.pass), (2, 2, 2), "{compared:?}");
    assert!(mean(tic, "theftsPerProcess") > 0.0 && mean(none, "theftsPerProcess") > 0.0);
    assert!(mean(tic, "tasksRunAgainPercent") > 0.0 && mean(tic, "recoverySeconds") > 0.0);
    assert!(mean(tic, "overheadPercent") < 50.0, "{tic:?}");
    assert!(!tic.values.contains_key("loggedBytes"));
    assert!(page::render(&compared).contains("tasks run again"));
    assert!(tell::text(&compared).contains("thefts per process"));
}
