//! Compares protocols on a small federation, and checks the comparison.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_api::quantity::Period;
use faultline_api::resource::{Family, ProtocolSpec};
use faultline_core::Span;
use faultline_experiments::compare::{
    Comparison, Keeper, Row, Runs, Settings, compare, name_of_runs, page, text,
};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};
use faultline_history::TimePart;
use faultline_session::Recording;
use faultline_trace::manifest::BackendKind;

const HEAT: &str = "heat: { steps: 60, stepTime: 20ms, feedbackEvery: 10, state: 64KiB }";

fn compared(application: &str, faults: &str) -> Comparison {
    let (federation, settings) = small(application, faults);
    simulated(&federation, &settings)
}

fn small(application: &str, faults: &str) -> (Federation, Settings) {
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
    let federation = faultline_api::parse("small.yaml", text.as_bytes()).expect("the federation is valid");
    let protocols = ["hc3i", "hydee", "coordinated", "hc3i.forcing=everyMessage", "none", "fullLogging"];
    let protocols = protocols.map(str::to_owned).to_vec();
    (federation, Settings { protocols, first_seed: 3, seeds: 2, jobs: NonZero::<usize>::MIN })
}

fn simulated(federation: &Federation, settings: &Settings) -> Comparison {
    let (never, mut told) = (AtomicBool::new(false), (0, 0));
    let mut tell = |step: RunProgress<'_>| told = (step.done, step.total);
    let mut keep = |_: &StoredResult| {};
    let recorded = Mutex::new(BTreeSet::new());
    let record = |protocol: &str, federation: &Federation, recording: Recording| {
        assert_eq!(recording.manifest.seed, settings.first_seed);
        let is_new =
            recorded.lock().unwrap().insert(name_of_runs(protocol, !federation.spec.faults.is_empty()));
        assert!(is_new, "{protocol} is recorded once");
    };
    let compared = compare(
        federation,
        settings,
        Runs::Simulated(Keeper { keep: &record, ..Keeper::NONE }),
        &mut ResultStore::new(Vec::new(), &mut keep, &mut tell, &never),
    );
    let recorded = recorded.into_inner().unwrap();
    for row in &compared.rows {
        for (counts, faults) in [(&row.calm, false), (&row.faulty, true)] {
            let name = name_of_runs(&row.protocol, faults);
            assert_eq!(recorded.contains(&name), counts.runs > 0, "{name}");
        }
    }
    assert_eq!((told.0, compared.missing), (told.1, 0), "as many runs as were announced");
    compared
}

/// Returns the comparison as text, in which sentences are not wrapped.
fn said(compared: &Comparison) -> String {
    text::text(compared).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn mean(row: &Row, quantity: &str) -> f64 {
    row.values.get(quantity).unwrap_or_else(|| panic!("{} has {quantity}", row.protocol)).mean()
}

#[test]
fn each_protocol_has_its_own_costs_and_savings() {
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
    // Messages force checkpoints only under HC3I. HydEE and HC3I log the same messages.
    assert!(mean(hc3i, "forcedPerProcess") > 0.0);
    assert!(mean(every, "forcedPerProcess") > 2.0 * mean(hc3i, "forcedPerProcess"), "{every:?}");
    assert_eq!(mean(hydee, "forcedPerProcess") + mean(coordinated, "forcedPerProcess"), 0.0);
    assert_eq!(mean(hc3i, "loggedBytes"), mean(hydee, "loggedBytes"));
    assert!(mean(hydee, "loggedBytes") > 0.0 && mean(coordinated, "loggedBytes") == 0.0);
    assert!(mean(hc3i, "checkpointBytes") > mean(hydee, "checkpointBytes"));
    // One of the four processes fails: full logging rolls back only this process, HydEE its cluster, and coordinated
    // checkpointing all processes.
    assert_eq!(mean(full, "rolledBackPercent"), 25.0);
    assert!(mean(full, "loggedBytes") > mean(hydee, "loggedBytes"));
    assert_eq!((mean(hydee, "rolledBackPercent"), mean(coordinated, "rolledBackPercent")), (50.0, 100.0));
    // Unprotected runs with faults are not performed, which does not count as a failure.
    assert_eq!(
        (mean(none, "overheadPercent"), mean(none, "checkpointBytes"), none.faulty.runs),
        (0.0, 0.0, 0)
    );
    assert!(none.cannot_with_faults.is_some() && !compared.has_failed());

    let text = text::text(&compared);
    assert!(text.contains("seeds 3 to 4") && text.contains("none does not run with faults"), "{text}");
    assert!(text.lines().all(|it| it.chars().count() <= 100), "{text}");
    assert!(
        !text.contains("warning") && !text.contains("2 of 2"),
        "all runs finished, with the same faults: {text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&text::json(&compared)).expect("the text is one JSON object");
    let hydee = &json["protocols"][1];
    assert_eq!((&hydee["protocol"], &hydee["withFaults"]["pass"]), (&"hydee".into(), &2.into()));
    assert_eq!(hydee["quantities"]["rolledBackPercent"]["mean"], 50.0);
    let page = page::render(&compared, &|_, _| None);
    assert!(page.contains("<svg") && page.contains("With the faults in the file") && !page.contains("NaN"));
    assert!(page::file(&compared).starts_with("<svg"));
    // Only on real processes do two runs of the same federation differ in duration.
    let own_spread = "none is the reference, run a second time";
    assert!(!said(&compared).contains(own_spread));
    let real = Comparison { backend: BackendKind::Local, ..compared };
    assert!(said(&real).contains(own_spread));
}

/// Under `feedbackEvery: 1`, all processes wait for the slowest one in each step.
#[test]
fn a_slow_process_delays_all_others() {
    const COUPLED: &str = "heat: { steps: 400, stepTime: 20ms, feedbackEvery: 1, state: 64KiB }";
    let slow = "  faults: [{ at: 0s, slow: { cluster: lyon, node: 1, by: 3, for: 12s } }]\n";
    let (mut federation, mut settings) = small(COUPLED, slow);
    // Checkpoints are rare, because a process that is slow freezes others for a shorter time.
    let rarely = Period(Some(Span::from_secs(3)));
    federation.spec.protocol.change_shared_options(|it| it.checkpoint_every = Some(rarely));
    settings.protocols = ["coordinated", "hydee", "fullLogging"].map(str::to_owned).to_vec();
    let compared = simulated(&federation, &settings);
    let unprotected = compared.unprotected.as_ref().expect("the reference completed").mean();
    for row in &compared.rows {
        assert_eq!((row.faulty.pass, row.faulty.completed), (2, 2), "{row:?}");
        let overhead = |name| mean(row, name) / 100.0 * unprotected;
        let longer = overhead("slowdownPercent") - overhead("overheadPercent");
        assert!(longer > 4.0, "{}: {longer}", row.protocol);
        let delayed = mean(row, "delayedSeconds");
        assert!((delayed / longer - 1.0).abs() < 0.01, "{}: {delayed} of {longer}", row.protocol);
    }
}

#[test]
fn a_protocol_that_met_fewer_faults_is_reported_as_not_comparable() {
    // Under `coordinated`, a single process of lyon coordinates all clusters.
    let when = "when: { fact: checkpointRequested, cluster: nancy, occurrence: 2 }";
    let compared =
        compared(HEAT, &format!("  faults: [{{ {when}, crash: {{ cluster: lyon, node: 1 }} }}]\n"));
    let text = said(&compared);
    // The warning comes first, and the rows and bars that it concerns are marked.
    let (warning, tables) = text.split_once("WITHOUT FAULTS").unwrap();
    let who = "than others (maximum: 1): coordinated (0). The other";
    assert!(
        warning.contains("warning: costs with faults are not comparable") && warning.contains(who),
        "{text}"
    );
    assert!(tables.contains(" coordinated* ") && !tables.contains("hc3i*"), "{text}");
    let (calm, faulty) = tables.split_once("WITH FAULTS").unwrap();
    assert!(!calm.contains('*') && faulty.contains("coordinated*"), "{text}");
    let page = page::render(&compared, &|_, _| None);
    let top = page.split("<svg").next().unwrap();
    assert!(top.contains("Warning: costs with faults are not comparable"), "{top}");
    let panels: Vec<&str> = page.split("<svg").skip(1).collect();
    let unlike = |panel: &&&str| panel.contains("only 0 of 1 faults");
    assert!(panels.iter().filter(unlike).all(|it| it.contains("with faults") && it.contains("bar unlike")));
    assert!(panels.iter().any(|it| unlike(&it)), "{page}");
}

#[test]
fn unsupported_features_are_noted_in_the_row_of_the_protocol() {
    let compared = compared("salted: { steps: 20 }", "");
    let [hc3i, hydee, ..] = &compared.rows[..] else { panic!("four rows") };
    assert!(hydee.cannot.as_deref().is_some_and(|it| it.contains("salted")), "{hydee:?}");
    assert_eq!((hydee.calm.runs, hydee.values.len(), hc3i.calm.pass), (0, 0, 2));
    let text = text::text(&compared);
    assert!(text.contains("hydee cannot run this federation") && !text.contains("WITH FAULTS"), "{text}");
}

#[test]
fn a_comparison_in_which_no_run_could_be_judged_shows_nothing() {
    let (mut federation, mut settings) =
        small(HEAT, "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n");
    settings.protocols = ["hydee", "none"].map(str::to_owned).to_vec();
    assert!(simulated(&federation, &settings).is_judged());
    federation.spec.deadline = serde_json::from_value("1201ms".into()).expect("a duration");
    let compared = simulated(&federation, &settings);
    assert_eq!((compared.rows[0].calm.unknown, compared.rows[0].faulty.unknown), (2, 2), "{compared:?}");
    assert!(!compared.is_judged() && !compared.has_failed());
    settings.protocols = vec!["none".to_owned()];
    federation.spec.deadline = None;
    assert!(simulated(&federation, &settings).is_judged(), "the unprotected run was measured");
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
    let federation = faultline_api::parse("small.yaml", text.as_bytes()).expect("the federation is valid");
    let protocols = ProtocolSpec::compared(Family::Tasks);
    assert_eq!((protocols[0], protocols.last()), ("tic", Some(&"none")));
    let protocols = ["tic", "none"].map(str::to_owned).to_vec();
    let settings = Settings { protocols, first_seed: 3, seeds: 2, jobs: NonZero::<usize>::MIN };
    let compared = simulated(&federation, &settings);
    let [tic, none] = &compared.rows[..] else { panic!("two rows") };
    assert_eq!((tic.calm.pass, tic.faulty.pass, none.calm.pass), (2, 2, 2), "{compared:?}");
    assert!(mean(tic, "theftsPerProcess") > 0.0 && mean(none, "theftsPerProcess") > 0.0);
    assert!(mean(tic, "tasksRunAgainPercent") > 0.0 && mean(tic, "recoverySeconds") > 0.0);
    assert!(mean(tic, "overheadPercent") < 50.0, "{tic:?}");
    assert!(!tic.values.contains_key("loggedBytes"));
    assert!(page::render(&compared, &|_, _| None).contains("tasks re-executed"));
    assert!(text::text(&compared).contains("thefts per"));
}

#[test]
fn an_assigned_program_is_compared_with_stolen_ones_and_a_global_rollback() {
    let text = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: small }
spec:
  clusters: [{ name: lyon, nodes: 4 }, { name: nancy, nodes: 4 }]
  protocol: { cck: { tau: 200ms, replicateTo: otherCluster } }
  application: { jacobi: { rows: 4, columns: 8, size: 4, iterations: 30, taskTime: 10ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
  faults: [{ at: 700ms, crash: { cluster: lyon, node: 1 } }]
";
    let federation = faultline_api::parse("small.yaml", text.as_bytes()).expect("the federation is valid");
    let protocols = ["none", "cck", "tic", "sel", "satin"].map(str::to_owned).to_vec();
    let settings = Settings { protocols, first_seed: 3, seeds: 2, jobs: NonZero::<usize>::MIN };
    let compared = simulated(&federation, &settings);
    let [none, cck, tic, sel, satin] = &compared.rows[..] else { panic!("five rows") };
    for row in [cck, tic, sel, satin] {
        assert_eq!((row.calm.pass, row.faulty.pass), (2, 2), "{row:?}");
        assert!(row.values.contains_key("tasksRunAgainPercent"), "{row:?}");
    }
    assert_eq!((none.calm.pass, none.faulty.runs), (2, 0));
    // CCK re-executes tasks of the failed process and some tasks of the other processes. A rollback of all processes
    // would re-execute more.
    let (again, global) = (mean(cck, "tasksRunAgainPercent"), mean(cck, "globalRollbackPercent"));
    let others = mean(cck, "rerunPercent");
    assert!(0.0 < others && others < 100.0 && 0.0 < again && again < global, "{cck:?}");
    assert!(!tic.values.contains_key("globalRollbackPercent"));
    let text = text::text(&compared);
    assert!(text.contains("estimated global"), "{text}");
    assert!(page::render(&compared, &|_, _| None).contains("estimated global rollback"));
}

#[test]
fn an_interrupted_comparison_shows_its_results_and_resumes_to_the_same_comparison() {
    let (federation, settings) =
        small(HEAT, "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n");
    let whole = simulated(&federation, &settings);
    // Interrupted after five runs: two of the reference, two of HC3I without faults, and one of HC3I with faults.
    let (interrupted, mut kept) = (AtomicBool::new(false), Vec::new());
    let mut keep = |it: &StoredResult| kept.push(it.clone());
    let mut tell = |step: RunProgress<'_>| interrupted.store(step.done >= 5, Ordering::Relaxed);
    let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &interrupted);
    let cut = compare(&federation, &settings, Runs::Simulated(Keeper::NONE), &mut store);
    // The row for `none` contains the reference runs.
    let [hc3i, none] = &cut.rows[..] else { panic!("two protocols have runs: {cut:?}") };
    assert_eq!((hc3i.calm.runs, hc3i.faulty.runs, none.calm.runs, kept.len()), (2, 1, 2, 5));
    assert_eq!(cut.missing, 17);
    let missing = format!("Missing because the comparison was interrupted: {} runs.", cut.missing);
    assert!(text::text(&cut).contains(&missing) && page::render(&cut, &|_, _| None).contains(&missing));
    // The stored runs are not repeated.
    let file: Vec<String> = kept.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    let known: Vec<StoredResult> = file.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
    let (mut new, mut old) = (0, 0);
    let mut keep = |it: &StoredResult| {
        assert!(!known.iter().any(|known| (&known.setting, known.seed) == (&it.setting, it.seed)));
        new += 1;
    };
    let mut tell = |step: RunProgress<'_>| old += u64::from(step.is_known);
    let never = AtomicBool::new(false);
    let mut store = ResultStore::new(known.clone(), &mut keep, &mut tell, &never);
    let resumed = compare(&federation, &settings, Runs::Simulated(Keeper::NONE), &mut store);
    assert_eq!((text::text(&resumed), resumed.missing), (text::text(&whole), 0));
    // The row for `none` reuses the two reference runs.
    assert_eq!((new, old), (17, 5 + 2));
}

#[test]
fn the_time_of_all_processes_is_accounted_for() {
    let compared = compared(HEAT, "  faults: [{ at: 600ms, crash: { cluster: lyon, node: 1 } }]\n");
    for row in compared.rows.iter().filter(|it| it.faulty.runs > 0) {
        // Sixty steps of 20 ms count once, however often a rank computes them: 4 ranks, 2 seeds.
        let seconds = |part: TimePart| row.time.of(part).as_secs_f64();
        let working = seconds(TimePart::Working);
        assert!((working - 60.0 * 0.02 * 4.0 * 2.0).abs() < 0.3, "{row:?}");
        assert!(seconds(TimePart::Waiting) > 0.0, "halos take 3 ms between clusters: {row:?}");
        assert!(seconds(TimePart::Replacing) > 0.0 && seconds(TimePart::Undone) > 0.0, "{row:?}");
    }
    let text = text::text(&compared);
    assert!(text.contains("TIME, WITH FAULTS") && text.contains("  restoring  "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text::json(&compared)).unwrap();
    assert!(json["protocols"][0]["time"]["workingSeconds"].as_f64().unwrap() > 0.0);
    assert!(page::render(&compared, &|_, _| None).contains("Where the time went, with faults"));
}

#[test]
fn a_timer_that_never_fires_is_reported() {
    let every = |application: &str, period: &str| {
        let (mut federation, mut settings) = small(application, "");
        let ProtocolSpec::Hc3i(options) = &mut federation.spec.protocol else {
            panic!("the file's protocol is HC3I")
        };
        options.checkpoint_every = Some(serde_json::from_value(period.into()).expect("a duration"));
        settings.protocols.truncate(1);
        said(&simulated(&federation, &settings))
    };
    // Each reply follows a new checkpoint of its sender, and forces another one.
    let text = every("pingPong: { sizes: [8B], rounds: 200 }", "500ms");
    let reason = "hc3i: the checkpoint timer (500 ms) never fired without faults, because forced checkpoints came first";
    assert!(text.contains(reason), "{text}");
    assert!(!every(HEAT, "50ms").contains("never fired"));
}
