//! Sets up the samples without running them.

use faultline_api::resource::{Family, ProtocolSpec, ReplicateTo, SharedOptions, StorageKind};
use faultline_api::samples::{SAMPLES, sample};
use faultline_api::{Federation, parse};
use faultline_catalog::{Hosted, Setup, Visitor, with_setup};
use faultline_core::{ClusterId, Life, ProcessId, Role};

fn federation(name: &str) -> Federation {
    let text = sample(name).expect("the sample exists").text;
    parse(name, text.as_bytes()).unwrap_or_else(|it| panic!("{name}: {it}"))
}

#[test]
fn an_explicit_seed_overrides_that_of_the_resource() {
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
    let ProtocolSpec::Hc3i(hc3i) = &mut federation.spec.protocol else { panic!("the quick start runs HC3I") };
    hc3i.replicate_to = Some(ReplicateTo::SharedStorage);
    federation.spec.storage.as_mut().expect("the quick start sets the storage").kind = StorageKind::Memory;
    with_setup(&federation, None, Look).expect("the federation is valid");
}

/// A visitor that returns the roles of the processes that are not ranks.
struct OtherRoles;

impl Visitor for OtherRoles {
    type Output = Vec<Role>;

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Vec<Role> {
        let roles = setup.membership.members.iter().map(|it| it.role);
        roles.filter(|&it| it != Role::RANK).collect()
    }
}

#[test]
fn invalid_federations_are_not_set_up() {
    let mut federation = federation("quickstart");
    federation.spec.clusters[0].nodes = 0;
    let error = with_setup(&federation, None, OtherRoles).expect_err("there are no nodes");
    assert!(error.to_string().contains("spec.clusters[0].nodes"), "{error}");
}

/// The spec alone determines the names of the processes that a protocol adds to the ranks, so that faults can refer to
/// them.
#[test]
fn the_names_of_a_federation_cover_every_process() {
    let mut federations: Vec<Federation> = SAMPLES.iter().map(|it| federation(it.name)).collect();
    for (replicas, servers) in [(0, Some(2)), (1, None), (1, Some(3))] {
        let mut planned = federation("cck");
        let ProtocolSpec::Cck(cck) = &mut planned.spec.protocol else { panic!("the sample runs CCK") };
        cck.replicate_to = Some(ReplicateTo::SharedStorage);
        (cck.replicas, cck.servers) = (Some(replicas), servers);
        federations.push(planned);
    }
    for federation in federations {
        let expected = federation.spec.extra_processes();
        match with_setup(&federation, None, OtherRoles) {
            Ok(roles) => assert_eq!(roles, expected, "{:?}", federation.spec.protocol),
            Err(error) => panic!("{:?}: {error}", federation.spec.protocol),
        }
    }
}

/// Validation limits the number of processes that roll back individually, but does not know the promises of built-in
/// protocols.
#[test]
fn validation_knows_which_processes_roll_back_together() {
    struct OfScope;
    impl Visitor for OfScope {
        type Output = faultline_core::Scope;
        fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
            setup.promises().scope
        }
    }
    for name in ProtocolSpec::names() {
        let protocol = ProtocolSpec::named(name, SharedOptions::default()).expect("the protocol exists");
        let mut federation = federation(match protocol.family() {
            Some(Family::Tasks) if protocol.plans() => "cck",
            Some(Family::Tasks) => "tic",
            _ => "quickstart",
        });
        federation.spec.protocol = protocol;
        // Faults may wait for facts that are never reported under this protocol.
        federation.spec.faults.clear();
        let scope = with_setup(&federation, None, OfScope).unwrap_or_else(|it| panic!("{name}: {it}"));
        assert_eq!(federation.spec.scope(), Some(scope), "{name}");
    }
}
