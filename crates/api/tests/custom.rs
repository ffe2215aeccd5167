//! Tests what the resource knows about a protocol from another crate: its scope, and the processes that it needs.

use faultline_api::resource::custom::{
    Declared, InvalidParameter, KnownParameters, KnownProtocol, Parameters, register_protocol,
    reject_extra_processes,
};
use faultline_api::resource::{Collection, Custom, Demand, Federation, FederationSpec, Logs, ProtocolSpec};
use faultline_api::samples::sample;
use faultline_api::{Names, parse, plan, validate};
use faultline_core::{ProcessId, Promises, Role, Scope, Target};
use serde_json::json;

type Declare = fn(&Parameters, &FederationSpec) -> Result<Declared, InvalidParameter>;

/// Returns the quick start under a new protocol with this name.
fn federation(name: &'static str, declare: Declare) -> Federation {
    register_protocol(KnownProtocol {
        name,
        demand: Demand::Nothing,
        logs: Logs::Nothing,
        collection: Collection::Unspecified,
        parameters: KnownParameters {
            schema: |_| serde_json::from_value(json!({ "type": "object" })).unwrap(),
            complete: |it| Ok(it.clone()),
            check: |_, _| Ok(()),
        },
        declare,
    });
    let text = sample("quickstart").unwrap().text;
    let mut federation = parse("quickstart", text.as_bytes()).unwrap();
    federation.spec.protocol =
        ProtocolSpec::Custom(Custom { name: name.to_owned(), parameters: Default::default() });
    federation
}

#[test]
fn too_many_processes_that_roll_back_individually_are_rejected() {
    let mut federation = federation("alone", |_, _| {
        Ok(Declared { promises: Promises::of_scope(Scope::Process), extra_processes: Vec::new() })
    });
    assert_eq!(validate(&federation), []);
    federation.spec.clusters.iter_mut().for_each(|it| it.nodes = 40_000);
    let problems = validate(&federation);
    let message = "under `alone`, processes roll back individually, and 80000 are too many";
    assert!(problems.iter().any(|it| it.message == message), "{problems:?}");
}

/// A single test, because `reject_extra_processes` affects the whole program.
#[test]
fn faults_can_name_helper_processes_except_in_pods() {
    let mut federation = federation("helped", |_, _| {
        let extra_processes = vec![Role::EVENT_LOGGER];
        Ok(Declared { promises: Promises::of_scope(Scope::Cluster), extra_processes })
    });
    assert_eq!(Names::of(&federation.spec).extra(), ["event-logger"]);
    federation.spec.faults =
        serde_json::from_value(json!([{ "at": "1s", "crash": { "process": "event-logger" } }])).unwrap();
    assert_eq!(validate(&federation), []);
    let ranks = Names::of(&federation.spec).ranks();
    let [planned] = &plan(&federation, 1)[..] else { panic!("there is one fault") };
    assert!(planned.fault.kills() == Some(Target::Process(ProcessId(ranks))));
    reject_extra_processes();
    let [problem] = &validate(&federation)[..] else { panic!("the pods reject the protocol") };
    assert_eq!(problem.path, "spec.protocol.custom.name");
    assert!(problem.message.contains("no pods: event-logger"), "{problem:?}");
}
