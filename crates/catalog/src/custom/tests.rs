//! Tests that a protocol from another crate declares everything that built-in protocols declare.

use faultline_api::resource::{Federation, ProtocolSpec};
use faultline_api::samples::sample;
use faultline_api::{Names, parse, validate};
use faultline_core::{PlannedFault, Role, Scope, Span};
use faultline_protocols::pessimistic_logging::{Config, PessimisticLogging};
use faultline_trace::manifest::{BackendKind, Bounds};
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::manifest::draft;
use crate::{Hosted, Setup, Visitor, with_setup};

/// The parameters of [`PessimisticLogging`] as if it were a user's protocol.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Own {
    pub checkpoint_every: faultline_api::quantity::Period,
}

impl CustomProtocol for PessimisticLogging {
    const NAME: &'static str = "own-logging";
    const COLLECTION: Collection = Collection::AfterCheckpoint;
    type Parameters = Own;

    fn configure(_: Own, spec: &FederationSpec) -> Result<Config, String> {
        Ok(crate::protocol::logging(spec, Default::default()))
    }
}

fn federation() -> Federation {
    add_protocol::<PessimisticLogging>();
    let mut federation = parse("hydee", sample("hydee").unwrap().text.as_bytes()).unwrap();
    let custom = json!({ "name": "own-logging", "checkpointEvery": "1s" });
    federation.spec.protocol = ProtocolSpec::Custom(serde_json::from_value(custom).unwrap());
    federation.spec.faults.clear();
    federation
}

struct Drafted;

impl Visitor for Drafted {
    type Output = (Option<Bounds>, Vec<Role>, Vec<PlannedFault>);

    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output {
        let drafted =
            draft(&federation(), "", &setup, BackendKind::Simulate, std::time::SystemTime::UNIX_EPOCH);
        let roles = setup.membership.members.iter().map(|it| it.role);
        (drafted.bounds, roles.filter(|it| *it != Role::RANK).collect(), drafted.plan)
    }
}

#[test]
fn the_resource_knows_what_the_protocol_declares() {
    let mut federation = federation();
    assert_eq!(federation.spec.scope(), Some(Scope::Process));
    assert_eq!(federation.spec.extra_processes(), [Role::EVENT_LOGGER]);
    federation.spec.faults =
        serde_json::from_value(json!([{ "at": "1s", "crash": { "process": "event-logger" } }])).unwrap();
    assert_eq!(validate(&federation), []);
    let (_, roles, plan) = with_setup(&federation, None, Drafted).unwrap();
    assert_eq!(roles, [Role::EVENT_LOGGER]);
    assert_eq!(plan.len(), 1);
    assert_eq!(Names::of(&federation.spec).extra(), ["event-logger"]);
}

#[test]
fn the_manifest_states_when_the_protocol_collects_garbage() {
    let (bounds, ..) = with_setup(&federation(), None, Drafted).unwrap();
    assert_eq!(bounds.unwrap().collect_every, Some(Span::ZERO));
}

#[test]
fn a_protocol_can_be_added_again() {
    add_protocol::<PessimisticLogging>();
    add_protocol::<PessimisticLogging>();
    assert_eq!(ProtocolSpec::names().filter(|it| *it == "own-logging").count(), 1);
}
