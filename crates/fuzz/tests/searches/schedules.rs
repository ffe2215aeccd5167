//! Schedules that need a coincidence too rare for a search. Each showed the effect of a small mistake in the code, which
//! violated a property. `cargo xtask mutants` generates such mistakes.

use std::fs;
use std::ops::Range;
use std::path::Path;

use faultline_api::Federation;
use faultline_api::quantity::Duration;
use faultline_api::resource::{BadStorage, FaultSpec};
use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_core::Span;
use faultline_fuzz::{ProtocolName, Scenario, run};
use faultline_protocols::hc3i;

fn read(name: &str) -> Federation {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schedules").join(name);
    faultline_api::parse(name, &fs::read(path).unwrap()).unwrap()
}

fn violated(federation: &Federation, seed: u64, defect: Option<Defect>) -> Vec<Property> {
    run(Scenario { seed, federation: federation.clone(), defect }).unwrap().violated().collect()
}

/// Asserts that a federation violates nothing with these seeds.
fn assert_sound(name: &str, seeds: Range<u64>) {
    let federation = read(name);
    for seed in seeds {
        assert_eq!(violated(&federation, seed, None), [], "{name}, seed {seed}");
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
    let trial = run(Scenario { seed: 7, federation, defect: None }).unwrap();
    assert_eq!(trial.violated().collect::<Vec<_>>(), []);
    assert_eq!(trial.judgement.of(Property::Progress).instances, 1);
}

/// The storage of a process is full while the federation takes its first checkpoints.
#[test]
fn a_partition_repeats_a_write_that_failed() {
    let protocol: ProtocolName = "cck".parse().unwrap();
    for seed in 0..10 {
        let mut scenario = Scenario::new(seed, Some(protocol), None);
        let spec = &mut scenario.federation.spec;
        let cluster = spec.clusters[0].name.clone();
        let span = Duration(Span::from_millis(300));
        let full = BadStorage { process: None, cluster, node: Some(0), span: Some(span) };
        let at = Some(Duration(Span::from_millis(1)));
        spec.faults = vec![FaultSpec { at, full_storage: Some(full), ..FaultSpec::default() }];
        assert_eq!(run(scenario).unwrap().violated().collect::<Vec<_>>(), [], "seed {seed}");
    }
}

/// Cluster a rolls back because of c, past checkpoints that b still holds. Then a loses its storage, and b fails before
/// b's note of the rollback is durable. If a had resumed without waiting for the note, it would restore what it had
/// undone, and use the incarnation of that rollback again.
#[test]
fn a_cluster_waits_for_its_holders_notes() {
    assert_sound("note-lost-with-its-holder.yaml", 1..2);
}

/// The storage server loses its storage, and asks for the images that it should hold. The run lasts so long that it must
/// state that it has them again.
#[test]
fn a_storage_server_is_refilled() {
    let mut federation = read("storage-server-refilled.yaml");
    for protocol in ["tic", "sel"] {
        federation.spec.protocol = federation.spec.protocol.or_instead(protocol).unwrap();
        assert_eq!(violated(&federation, 0, None), [], "{protocol}");
    }
}

/// The process that completed the program fails before all others know the result. A process that learns of it informs
/// the others.
#[test]
fn all_processes_learn_of_the_end() {
    assert_sound("end-learned-late-by-a-successor.yaml", 0..2);
}

/// A restarted coordinator uses the newest map that any process knows. With an older one, it would move partitions
/// between processes that are still running.
#[test]
fn a_restarted_coordinator_uses_the_newest_map() {
    assert_sound("partitions-move-one-after-another.yaml", 0..16);
}

/// The first process of a cluster fails just after another process of the cluster has finished. The whole cluster rolls
/// back, so the other process has to finish again.
#[test]
fn a_run_ends_only_once_undone_results_are_stated_again() {
    assert_sound("result-undone-before-the-end.yaml", 44..52);
}

/// While other processes continue, the run does not settle, so `NoLoss` is not judged. Only `Progress` detects that the
/// message is never delivered.
#[test]
fn a_message_that_is_lost_while_others_continue_is_found() {
    let name = "message-lost-while-others-continue.yaml";
    assert_sound(name, 0..3);
    let lossy = Some(Defect::Hc3i(hc3i::Defect::ReceivedOutsideCheckpoint));
    let federation = read(name);
    assert!((0..3).any(|seed| violated(&federation, seed, lossy).contains(&Property::Progress)));
}

/// An owner and its holder lose their storage one after the other, and the holder asks the owner for its images before
/// the owner has got them back from another holder.
#[test]
fn an_owner_that_has_lost_its_storage_does_not_refuse_its_images() {
    assert_sound("../found/owner-lost-its-storage-as-well.yaml", 83..84);
}
