//! Sets up every sample and runs it in virtual time. Each must end as its comment says.

use std::collections::BTreeMap;

use faultline_api::resource::{Protocol, ReplicateTo, StorageKind};
use faultline_api::samples::{SAMPLES, sample};
use faultline_api::{Federation, parse};
use faultline_catalog::{Hosted, Setup, Visitor, with_setup};
use faultline_core::{ClusterId, Digest, Fact, Fault, GroupId, Life, ProcessId, Role, Sn, Span};
use faultline_sim::{Config, Links, Run};
use faultline_supervisor::{FaultState, Outcome};
use faultline_trace::Record;

fn federation(name: &str) -> Federation {
    let text = sample(name).expect("the sample exists").text;
    parse(name, text.as_bytes()).unwrap_or_else(|it| panic!("{name}: {it}"))
}

/// Runs a federation on the simulator.
struct Simulate;

/// The end of a run, and the last result of each rank.
struct Ended {
    run: Run,
    results: Vec<(ProcessId, Digest)>,
    reference: Option<Vec<(ProcessId, Digest)>>,
    /// The last checkpoint that each rank restored.
    restored: BTreeMap<ProcessId, Sn>,
    /// Ranks that never return.
    gone: Vec<ProcessId>,
}

impl Visitor for Simulate {
    type Output = Ended;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Ended {
        let reference = setup.reference();
        let clusters = setup.membership.clusters.clone();
        let lost = setup.supervisor.plan.iter().filter_map(|it| match it.fault {
            Fault::LoseCluster { cluster, returns: false, .. } => Some(cluster),
            _ => None,
        });
        let gone = lost.flat_map(|it| clusters[it.index()].processes.to_vec()).collect();
        let links = Links::new(setup.membership.clusters.len(), |from, to| setup.links[&(from, to)]);
        let config = Config::new(setup.process, setup.membership, links, setup.supervisor, setup.seed);
        let mut facts: Vec<Record> = Vec::new();
        let run = faultline_sim::run::<N>(config, &mut facts);
        let mut results = BTreeMap::new();
        let mut restored = BTreeMap::new();
        for record in facts {
            match record.fact {
                Fact::Finished(it) => {
                    results.insert(record.process, it.1);
                }
                Fact::Restored(it) => {
                    restored.insert(record.process, it.0.map_or(Sn(0), |image| image.sn));
                }
                _ => {}
            }
        }
        Ended { run, results: results.into_iter().collect(), reference, restored, gone }
    }
}

fn simulate(name: &str) -> Ended {
    with_setup(&federation(name), None, Simulate).unwrap_or_else(|it| panic!("{name}: {it}"))
}

#[test]
fn samples_complete_with_the_result_of_a_run_without_failures() {
    for sample in SAMPLES.iter().filter(|it| it.name != "same-cluster-loss") {
        let ended = simulate(sample.name);
        assert_eq!(ended.run.outcome, Outcome::Completed, "{}", sample.name);
        // A process that never returns has no result.
        let gone = |rank: &ProcessId| ended.gone.contains(rank);
        let expected = ended.reference.map(|all| all.into_iter().filter(|(rank, _)| !gone(rank)).collect());
        assert_eq!(Some(ended.results), expected, "{}", sample.name);
    }
}

#[test]
fn the_quick_start_shows_all_of_its_faults() {
    let ended = simulate("quickstart");
    assert_eq!(ended.run.faults.len(), 2);
    for (no, state) in &ended.run.faults {
        assert_eq!(*state, FaultState::Effective, "{no}");
    }
    assert!(ended.run.ended.since(faultline_core::Time::ZERO) < Span::from_secs(20), "{}", ended.run.ended);
}

#[test]
fn a_cluster_lost_with_all_copies_is_unrecoverable() {
    let ended = simulate("same-cluster-loss");
    let Outcome::Unrecoverable { group, missing } = ended.run.outcome else {
        panic!("{:?}", ended.run.outcome)
    };
    assert_eq!(group, GroupId(0));
    assert!(!missing.is_empty());
}

#[test]
fn under_full_logging_only_failed_processes_roll_back() {
    let ended = simulate("full-logging");
    assert!(ended.restored.keys().eq(&[ProcessId(0), ProcessId(1), ProcessId(3)]), "{:?}", ended.restored);
}

#[test]
fn under_pessimistic_logging_only_failed_processes_roll_back_whatever_the_program() {
    let ended = simulate("pessimistic-logging");
    assert!(
        ended.run.faults.iter().all(|(_, state)| *state == FaultState::Effective),
        "{:?}",
        ended.run.faults
    );
    assert!(ended.restored.keys().eq(&[ProcessId(0), ProcessId(2), ProcessId(3)]), "{:?}", ended.restored);
}

#[test]
fn under_tic_only_returning_processes_roll_back() {
    let ended = simulate("tic");
    assert!(ended.run.faults.iter().all(|(_, it)| *it == FaultState::Effective), "{:?}", ended.run.faults);
    assert!(ended.restored.keys().eq(&[ProcessId(1)]), "{:?}", ended.restored);
    assert_eq!(ended.gone, [3, 4, 5].map(ProcessId));
}

#[test]
fn speed_and_cores_of_a_cluster_reach_its_places() {
    let seconds = |cluster: &str| {
        let mut federation = federation("tasks");
        federation.spec.clusters.truncate(1);
        federation.spec.clusters[0].nodes = 1;
        let text =
            faultline_api::to_yaml(&federation).replace("- name: paris", &format!("- name: paris{cluster}"));
        let federation = parse("changed", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
        let ended = with_setup(&federation, None, Simulate).expect("it is valid");
        assert_eq!(ended.run.outcome, Outcome::Completed);
        ended.run.ended.as_secs_f64()
    };
    let usual = seconds("");
    let faster = seconds("\n    speed: 400");
    let wider = seconds("\n    cores: 4");
    assert!((3.5..4.5).contains(&(usual / faster)), "{usual} s and {faster} s");
    assert!((3.0..4.5).contains(&(usual / wider)), "{usual} s and {wider} s");
}

#[test]
fn independent_checkpoints_show_the_domino_effect() {
    let ended = simulate("domino");
    // The first checkpoint is taken before the application acts.
    assert_eq!(ended.restored, (0..4).map(|rank| (ProcessId(rank), Sn(1))).collect());
}

#[test]
fn a_seed_from_outside_replaces_that_of_the_resource() {
    struct Plan;
    impl Visitor for Plan {
        type Output = (u64, Vec<faultline_core::PlannedFault>);
        fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
            (setup.seed, setup.supervisor.plan)
        }
    }
    let federation = federation("random-faults");
    let plan = |seed| with_setup(&federation, seed, Plan).expect("samples are valid");
    assert_eq!(plan(None).0, 1);
    assert_eq!(plan(None), plan(Some(1)));
    assert_ne!(plan(Some(2)).1, plan(Some(1)).1);
    assert_eq!(plan(Some(2)).1, faultline_api::plan(&federation, 2));
}

#[test]
fn a_storage_server_belongs_to_no_cluster() {
    struct Look;
    impl Visitor for Look {
        type Output = ();
        fn visit<N: Hosted>(self, setup: Setup<N>) {
            assert_eq!(setup.membership.members.len(), 7);
            let server = setup.membership.member(ProcessId(6));
            assert_eq!((server.cluster, server.role), (ClusterId::OUTSIDE, Role::STORAGE_SERVER));
            assert_eq!((server.life, server.up, server.node.0), (Life(0), false, 6));
            assert_eq!(setup.names.process(ProcessId(6)), "storage-server");
            assert_eq!(setup.membership.cluster_of(ProcessId(2)), ClusterId(0));
            assert_eq!(setup.membership.cluster_of(ProcessId(3)), ClusterId(1));
            let between = setup.links[&(ClusterId(0), ClusterId(1))];
            assert_eq!(setup.links[&(ClusterId(1), ClusterId::OUTSIDE)], between);
            assert_ne!(setup.links[&(ClusterId(1), ClusterId(1))], between);
            assert!(setup.supervisor.volatile_storage);
        }
    }
    let mut federation = federation("quickstart");
    let Protocol::Hc3i(hc3i) = &mut federation.spec.protocol else { panic!("the quick start runs HC3I") };
    hc3i.replicate_to = Some(ReplicateTo::SharedStorage);
    federation.spec.storage.as_mut().expect("the quick start states it").kind = StorageKind::Memory;
    with_setup(&federation, None, Look).expect("it is valid");
}

#[test]
fn invalid_federations_are_not_set_up() {
    let mut federation = federation("quickstart");
    federation.spec.clusters[0].nodes = 0;
    let error = with_setup(&federation, None, Simulate).err().expect("there are no nodes");
    assert!(error.to_string().contains("spec.clusters[0].nodes"), "{error}");
}

/// The federation file names the processes that a protocol adds to the ranks, so that faults can refer to them.
#[test]
fn the_names_of_a_federation_cover_every_process() {
    struct Count;
    impl Visitor for Count {
        type Output = Vec<Role>;
        fn visit<N: Hosted>(self, setup: Setup<N>) -> Vec<Role> {
            let roles = setup.membership.members.iter().map(|it| it.role);
            roles.filter(|&it| it != Role::RANK).collect()
        }
    }
    let mut federations: Vec<Federation> = SAMPLES.iter().map(|it| federation(it.name)).collect();
    for (replicas, servers) in [(0, Some(2)), (1, None), (1, Some(3))] {
        let mut planned = federation("cck");
        let Protocol::Cck(cck) = &mut planned.spec.protocol else { panic!("the sample runs CCK") };
        cck.replicate_to = Some(ReplicateTo::SharedStorage);
        (cck.replicas, cck.servers) = (Some(replicas), servers);
        federations.push(planned);
    }
    for federation in federations {
        let expected = federation.spec.protocol.extra_processes();
        match with_setup(&federation, None, Count) {
            Ok(roles) => assert_eq!(roles, expected, "{:?}", federation.spec.protocol),
            Err(error) => panic!("{:?}: {error}", federation.spec.protocol),
        }
    }
}
