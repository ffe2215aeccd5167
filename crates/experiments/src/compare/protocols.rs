//! The federation of a file under each of the protocols that can be compared.

use faultline_api::{Federation, Names};

/// Returns the same federation under the protocol with this name, one of
/// [`ProtocolSpec::compared`](faultline_api::resource::ProtocolSpec::compared); `None` if there is no such protocol.
///
/// A protocol that the file itself requests keeps its options. Any other protocol inherits the options that it shares
/// with the file's protocol: the delays between checkpoints and between collections, the number and location of
/// replicas, and the memory for the message log. Options that the file does not state have the protocol's defaults.
/// The expectations of the file are omitted: its author chose them for one protocol and for runs with faults.
pub fn under(federation: &Federation, name: &str) -> Option<Federation> {
    let mut other = federation.clone();
    let spec = &mut other.spec;
    spec.expect.clear();
    spec.protocol = federation.spec.protocol.or_instead(name)?;
    // Tasks are assigned in advance or stolen, as the protocol requires. Without a protocol, they are assigned or
    // stolen as under the file's own protocol.
    let plans = match spec.protocol.family() {
        None => federation.spec.is_planned(),
        Some(_) => spec.protocol.plans(),
    };
    if plans {
        spec.stealing = None;
        if spec.protocol.family().is_none() {
            spec.schedule.get_or_insert_default();
        }
    } else {
        spec.schedule = None;
    }
    if spec.protocol.family().is_none() && !plans && spec.application.is_planned() {
        spec.stealing = Some(federation.spec.stealing());
    }
    Some(other)
}

/// Returns the same federation without faults, and without expectations, which may concern them.
pub(crate) fn without_faults(federation: &Federation) -> Federation {
    let mut other = federation.clone();
    other.spec.faults.clear();
    other.spec.expect.clear();
    other
}

/// Returns the same federation without the faults of processes that its protocol does not have, and a description of
/// each omitted fault. The remaining faults strike at the same times and the same targets as in the file.
pub(crate) fn without_absent(federation: &Federation) -> (Federation, Vec<String>) {
    let mut other = federation.clone();
    let names = Names::of(&federation.spec);
    let mut left_out = Vec::new();
    let mut number = 0;
    other.spec.faults.retain_mut(|fault| {
        let absent = fault.process().filter(|name| names.process_id(name).is_none());
        let is_absent = absent.is_some();
        left_out.extend(absent.map(|name| format!("spec.faults[{number}]: it has no {name}")));
        if !left_out.is_empty() {
            fault.stream.get_or_insert(number);
        }
        number += 1;
        !is_absent
    });
    (other, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_api::resource::{Family, ProtocolSpec};
    use faultline_api::samples::sample;
    use faultline_core::Target;

    use crate::sweep::Plan;

    #[test]
    fn every_name_is_a_protocol_of_that_name_with_the_options_of_the_file() {
        let text = sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid");
        for name in ProtocolSpec::compared(Family::Messages) {
            let other = under(&federation, name).expect("the protocol exists");
            assert_eq!(Some(other.spec.protocol.name()), name.split('.').next());
            if name.contains('=') {
                // The name of a variant states its option as `faultline sweep --set` does.
                let parameter = format!("protocol.{name}").parse().expect("a name of a field, and its value");
                let plan = Plan::new(&federation, vec![parameter], None).expect("the option exists");
                assert_eq!(plan.settings[0].federation, other);
            }
            if let (Some(own), Some(here)) =
                (federation.spec.protocol.checkpointing(), other.spec.protocol.checkpointing())
            {
                assert_eq!(
                    (own.every, own.replicas, own.replicate_to),
                    (here.every, here.replicas, here.replicate_to)
                );
            }
        }
        assert_eq!(under(&federation, "hc3i"), Some(federation.clone()));
        assert_eq!(under(&federation, "hc4i"), None);
    }

    #[test]
    fn no_federation_of_a_comparison_states_expectations() {
        let text = sample("coordinated").expect("the sample exists").text;
        let federation = faultline_api::parse("coordinated", text.as_bytes()).expect("the sample is valid");
        assert!(!federation.spec.expect.is_empty());
        assert!(under(&federation, "independent").is_some_and(|it| it.spec.expect.is_empty()));
        assert!(without_faults(&federation).spec.expect.is_empty());
    }

    #[test]
    fn faults_of_processes_that_a_protocol_lacks_are_omitted() {
        let text = sample("hydee").expect("the sample exists").text;
        let federation = faultline_api::parse("hydee", text.as_bytes()).expect("the sample is valid");
        assert_eq!(without_absent(&federation), (federation.clone(), vec![]));
        let (other, left_out) = without_absent(&under(&federation, "hc3i").expect("the protocol exists"));
        assert_eq!(left_out, ["spec.faults[4]: it has no recovery-process"]);
        assert_eq!(other.spec.faults, federation.spec.faults[..4]);
    }

    #[test]
    fn all_protocols_have_the_same_faults_except_those_of_processes_that_they_lack() {
        let text = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: drawn }
spec:
  clusters: [{ name: a, nodes: 4 }, { name: b, nodes: 4 }]
  protocol: { hydee: {} }
  application: { heat: { steps: 100 } }
  faults:
    - { mtbf: { exponential: 20s }, crash: { process: recovery-process } }
    - { mtbf: { exponential: 30s }, crash: { cluster: any } }
  deadline: 10m
";
        let federation = faultline_api::parse("drawn.yaml", text.as_bytes()).expect("the file is valid");
        let (other, left_out) =
            without_absent(&under(&federation, "coordinated").expect("the protocol exists"));
        assert_eq!(left_out.len(), 1);
        let crashes_of_ranks = |federation: &Federation| {
            let all = faultline_api::plan(federation, 3).into_iter().map(|it| (it.trigger, it.fault));
            let ranks = all.filter(|(_, it)| matches!(it.kills(), Some(Target::Process(it)) if it.0 < 8));
            ranks.collect::<Vec<_>>()
        };
        let drawn = crashes_of_ranks(&federation);
        assert!(drawn.len() > 10, "{drawn:?}");
        assert_eq!(crashes_of_ranks(&other), drawn);
    }
}
