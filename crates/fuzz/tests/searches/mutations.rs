//! Small mistakes in the code of the protocols and the supervisor. Each mistake must be detected by the corresponding
//! property.

use std::collections::BTreeSet;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use faultline_api::quantity::Duration;
use faultline_api::resource::{BadStorage, FaultSpec};
use faultline_catalog::Defect;
use faultline_checker::{Property, Verdict};
use faultline_core::fault::{Handled, Outcome};
use faultline_core::{Span, node as composite};
use faultline_fuzz::{ProtocolName, Repetition, Scenario, Steps, Trial, repeats, run, shrink};
use faultline_protocols::{cck, chandy_lamport, hc3i, hydee, independent, theft};
use faultline_session::{Recording, Session, Simulator, UnjudgedRecording};
use faultline_supervisor as supervisor;
use faultline_trace::{Bundle, Manifest};

/// Returns the first of 60 seeds at which the property is violated.
fn first(defect: Defect, protocol: &str, property: Property) -> Option<u64> {
    let protocol: ProtocolName = protocol.parse().unwrap();
    (0..60).find(|&seed| {
        let trial = run(Scenario::new(seed, Some(protocol), Some(defect))).unwrap();
        trial.violated().any(|it| it == property)
    })
}

#[test]
fn a_rollback_that_the_protocol_calls_a_failure_is_found_if_no_process_failed() {
    let of_hc3i = Defect::Hc3i(hc3i::Defect::RollsBackUnasked);
    let of_independent = Defect::Independent(independent::Defect::RollsBackUnasked);
    for (defect, protocol) in [(of_hc3i, "hc3i"), (of_independent, "independent")] {
        let found = first(defect, protocol, Property::RollbackCaused);
        assert!(found.is_some_and(|it| it < 20), "{protocol}: {found:?}");
    }
}

/// Runs schedules of HC3I with a defect until one violates the property, shrinks it, and judges its record again.
fn found_shrunk_and_checked(defect: hc3i::Defect, property: Property) -> (Trial, Recording) {
    let defect = Defect::Hc3i(defect);
    let seed = first(defect, "hc3i", property).expect("it is found");
    let scenario = Scenario::new(seed, Some("hc3i".parse().unwrap()), Some(defect));
    let found = run(scenario.clone()).unwrap();
    assert_eq!(found.judgement.verdict, Verdict::Fail, "{:?}", found.judgement.reasons);
    assert_eq!(repeats(&found).unwrap(), Some(Repetition::Equal));
    let steps = Steps { seeds: 2, trials: 300, last: 5, ..Steps::default() };
    let shrunk = shrink(&scenario, property, steps, |_, _| ControlFlow::Continue(())).unwrap().trial;
    assert!(shrunk.trace.len() < found.trace.len());
    let place = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(place.path().join("found")).unwrap();
    let manifest = Manifest { federation: shrunk.scenario.to_yaml(), ..shrunk.manifest.clone() };
    UnjudgedRecording { manifest, trace: shrunk.trace.clone() }.write(&bundle).unwrap();
    let checked = Recording::read(&bundle).unwrap();
    assert_eq!((checked.judgement.verdict, &checked.trace.flaws[..]), (Verdict::Fail, &[][..]));
    assert_eq!(checked.judgement.of(property), shrunk.judgement.of(property));
    (shrunk, checked)
}

#[test]
fn a_run_without_progress_in_virtual_time_is_a_violation() {
    let (shrunk, checked) = found_shrunk_and_checked(hc3i::Defect::DownNotAwaited, Property::TimeAdvances);
    let Some(Outcome::Stalled { handled: Handled::Timeout, .. }) = shrunk.manifest.outcome else {
        panic!("{:?}", shrunk.manifest.outcome)
    };
    let text = &checked.judgement.of(Property::TimeAdvances).violations[0].text;
    assert!(
        text.starts_with("virtual time stopped advancing at ") && text.ends_with(" handled a timeout"),
        "{text}"
    );
    // Without a limit of events, the run ends as well.
    let scenario = &shrunk.scenario;
    let session = Session::new(&scenario.federation).seed(scenario.seed).trusted(scenario.defect);
    let unlimited = session.simulate(&mut Simulator::new(&mut ())).unwrap();
    assert_eq!(unlimited.manifest.outcome, shrunk.manifest.outcome);
}

#[test]
fn a_panic_of_a_protocol_is_a_violation() {
    let (shrunk, checked) = found_shrunk_and_checked(hc3i::Defect::DeliversWhileHeld, Property::NoPanic);
    let Some(Outcome::Panicked(panic)) = &shrunk.manifest.outcome else {
        panic!("{:?}", shrunk.manifest.outcome)
    };
    assert!(matches!(panic.handled, Handled::Message(_)), "{panic}");
    let text = &checked.judgement.of(Property::NoPanic).violations[0].text;
    for part in [" panicked at ", " s while it handled ", &panic.message, "crates/"] {
        assert!(text.contains(part), "{text} does not contain {part}");
    }
}

#[test]
fn a_cluster_that_is_to_leave_leaves_after_a_rollback() {
    let text = faultline_api::samples::sample("guest").unwrap().text;
    let (head, rest) = text.split_once("  faults:").unwrap();
    let deadline = &rest[rest.find("  deadline:").unwrap()..];
    let fault = "  faults: [{ at: 9s, crash: { cluster: nancy, node: 0 } }]\n";
    let federation =
        faultline_api::parse("guest.yaml", format!("{head}{fault}{deadline}").as_bytes()).unwrap();
    let judged = |defect| {
        let trial = run(Scenario { seed: 7, federation: federation.clone(), defect }).unwrap();
        (trial.violated().collect::<Vec<_>>(), trial.judgement.of(Property::Progress).instances)
    };
    assert_eq!(judged(None), (vec![], 1));
    let (violated, _) = judged(Some(Defect::Composite(composite::Defect::DepartureNotRepeated)));
    assert_eq!(violated, [Property::Progress]);
}

#[test]
fn fewer_copies_than_requested_are_found() {
    let of_hc3i = [hc3i::Defect::OneCopyTooFew, hc3i::Defect::NoCopies].map(Defect::Hc3i);
    let of_hydee = [hydee::Defect::OneCopyTooFew, hydee::Defect::NoCopies].map(Defect::Hydee);
    for (defects, protocol) in [(of_hc3i, "hc3i"), (of_hydee, "hydee")] {
        for defect in defects {
            for property in [Property::DurableBeforeCommit, Property::UnrecoverableJustified] {
                let found = first(defect, protocol, property);
                println!("{protocol} {defect}: {property:?} at seed {found:?}");
                assert!(found.is_some(), "{protocol} {defect}: {property:?}");
            }
        }
    }
}

#[test]
fn a_cluster_that_resumes_before_its_holders_have_their_copies_is_found() {
    let of_hydee = Defect::Hydee(hydee::Defect::ReadyBeforeCopies);
    let of_hc3i = Defect::Hc3i(hc3i::Defect::ReadyBeforeCopies);
    for (defect, protocol) in [(of_hydee, "hydee"), (of_hc3i, "hc3i")] {
        let found = first(defect, protocol, Property::DurableBeforeResume);
        assert!(found.is_some(), "{protocol}");
    }
}

#[test]
fn a_process_that_acts_before_its_first_checkpoint_is_found() {
    let defect = Defect::ChandyLamport(chandy_lamport::Defect::ReleasedBeforeFirst);
    let found = first(defect, "chandyLamport", Property::DurableBeforeResume);
    assert!(found.is_some_and(|it| it < 5), "{found:?}");
}

#[test]
fn a_holder_that_reports_its_storage_as_complete_too_early_is_found() {
    let defect = Some(Defect::Tic(theft::Defect::FilledOnArrival));
    let protocol: ProtocolName = "tic".parse().unwrap();
    let found = (0..300).find(|&seed| {
        let trial = run(Scenario::new(seed, Some(protocol), defect)).unwrap();
        trial.violated().any(|it| it == Property::DurableBeforeCommit)
    });
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn a_cluster_that_leaves_with_a_partition_is_found() {
    for rule in [cck::Defect::CededKept, cck::Defect::ReleasedWithPartitions] {
        let found = first(Defect::Cck(rule), "cck", Property::OneHost);
        println!("{rule:?}: seed {found:?}");
        assert!(found.is_some(), "{rule:?}");
    }
}

/// Waste does not prevent a run from completing, so only the corresponding properties detect it.
#[test]
fn waste_is_found_by_the_corresponding_property() {
    let of_hc3i = |rule, property| (Defect::Hc3i(rule), "hc3i", property);
    let of_hydee = |rule, property| (Defect::Hydee(rule), "hydee", property);
    for (defect, protocol, property) in [
        of_hc3i(hc3i::Defect::ForcesAtEqual, Property::ForcedByNews),
        of_hc3i(hc3i::Defect::CheckpointsTwiceAsOften, Property::CheckpointsSpaced),
        of_hydee(hydee::Defect::CheckpointsTwiceAsOften, Property::CheckpointsSpaced),
        of_hc3i(hc3i::Defect::NeverCollects, Property::PartsCollected),
        of_hc3i(hc3i::Defect::NotAcknowledged, Property::LogsCollected),
        of_hydee(hydee::Defect::OlderPartsKept, Property::PartsCollected),
        of_hydee(hydee::Defect::NeverCollects, Property::LogsCollected),
        of_hydee(hydee::Defect::SuppressedAndSent, Property::SentOnce),
    ] {
        let found = first(defect, protocol, property);
        println!("{protocol} {defect}: {property:?} at seed {found:?}");
        assert!(found.is_some(), "{protocol} {defect}: {property:?}");
    }
}

/// The storage of a process is full while the federation takes its first checkpoints.
#[test]
fn a_partition_repeats_a_write_that_failed() {
    let violated = |mutation: Option<cck::Defect>| -> BTreeSet<Property> {
        let protocol: ProtocolName = "cck".parse().unwrap();
        let violated = (0..10).flat_map(|seed| {
            let mut scenario = Scenario::new(seed, Some(protocol), mutation.map(Defect::Cck));
            let spec = &mut scenario.federation.spec;
            let cluster = spec.clusters[0].name.clone();
            let span = Duration(Span::from_millis(300));
            let full = BadStorage { process: None, cluster, node: Some(0), span: Some(span) };
            let at = Some(Duration(Span::from_millis(1)));
            spec.faults = vec![FaultSpec { at, full_storage: Some(full), ..FaultSpec::default() }];
            let trial = run(scenario).unwrap();
            trial.violated().collect::<Vec<_>>()
        });
        violated.collect()
    };
    assert_eq!(violated(None), BTreeSet::new());
    assert_eq!(violated(Some(cck::Defect::FailedWritesForgotten)), BTreeSet::from([Property::Progress]));
}

/// Cluster a rolls back because of c, past checkpoints that b still holds. Then a loses its storage, and b fails before
/// b's note of the rollback is durable. If a had resumed without waiting for the note, it would restore what it had
/// undone, and use the incarnation of that rollback again.
#[test]
fn a_cluster_waits_for_its_holders_notes() {
    let text = include_bytes!("../mutations/note-lost-with-its-holder.yaml");
    let federation = faultline_api::parse("note-lost-with-its-holder.yaml", text).unwrap();
    let violated = |mutation: Option<hc3i::Defect>| -> Vec<Property> {
        let defect = mutation.map(Defect::Hc3i);
        run(Scenario { seed: 1, federation: federation.clone(), defect }).unwrap().violated().collect()
    };
    assert_eq!(violated(None), []);
    let found = violated(Some(hc3i::Defect::NoteBeforeRecorded));
    assert_eq!(found, [Property::MembersAgree]);
}

/// A restarted coordinator uses the newest map that any process knows. With an older one, it would move partitions
/// between processes that are still running.
#[test]
fn a_restarted_coordinator_uses_the_newest_map() {
    let text = include_bytes!("../mutations/partitions-move-one-after-another.yaml");
    let federation = faultline_api::parse("partitions-move-one-after-another.yaml", text).unwrap();
    let violated = |seed: u64, mutation: Option<cck::Defect>| -> Vec<Property> {
        let defect = mutation.map(Defect::Cck);
        run(Scenario { seed, federation: federation.clone(), defect }).unwrap().violated().collect()
    };
    let found: Vec<u64> = (0..16)
        .filter(|&seed| {
            assert_eq!(violated(seed, None), []);
            violated(seed, Some(cck::Defect::OlderMapUsed)).contains(&Property::OneHost)
        })
        .collect();
    println!("{found:?}");
    assert!(!found.is_empty());
}

/// Returns the first of these seeds at which a federation with a mutation violates this property. Asserts that the
/// federation violates nothing without the mutation.
fn first_in(name: &str, seeds: Range<u64>, mutation: Defect, property: Property) -> Option<u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutations").join(name);
    let federation = faultline_api::parse(name, &fs::read(path).unwrap()).unwrap();
    let violated = |seed: u64, defect: Option<Defect>| -> Vec<Property> {
        run(Scenario { seed, federation: federation.clone(), defect }).unwrap().violated().collect()
    };
    let mut seeds = seeds;
    seeds.find(|&seed| {
        assert_eq!(violated(seed, None), [], "seed {seed}");
        violated(seed, Some(mutation)).contains(&property)
    })
}

/// The first process of a cluster fails just after another process of the cluster has finished. The whole cluster rolls
/// back, so the other process has to finish again.
#[test]
fn a_run_ends_only_once_undone_results_are_stated_again() {
    let mutation = Defect::Supervisor(supervisor::Defect::ResultUndoneCounts);
    let found = first_in("result-undone-before-the-end.yaml", 44..52, mutation, Property::Completed);
    println!("{found:?}");
    assert!(found.is_some());
}

/// While other processes continue, the run does not settle, so `NoLoss` is not judged. Only `Progress` detects that the
/// message is never delivered.
#[test]
fn a_message_that_is_lost_while_others_continue_is_found() {
    let lossy = Defect::Hc3i(hc3i::Defect::ReceivedOutsideCheckpoint);
    let found = first_in("message-lost-while-others-continue.yaml", 0..3, lossy, Property::Progress);
    println!("{found:?}");
    assert!(found.is_some());
}

/// An owner and its holder lose their storage one after the other, and the holder asks the owner for its images before
/// the owner has got them back from another holder.
#[test]
fn an_owner_that_has_lost_its_storage_does_not_refuse_its_images() {
    let (name, mutation) =
        ("../found/owner-lost-its-storage-as-well.yaml", hc3i::Defect::RefusesWhileRefilling);
    let found = first_in(name, 83..84, Defect::Hc3i(mutation), Property::DurableBeforeCommit);
    assert_eq!(found, Some(83));
}
