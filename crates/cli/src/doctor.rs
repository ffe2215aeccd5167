//! `faultline doctor`: checks what this machine or a Kubernetes cluster can run and emulate, and suggests
//! fixes.
//!
//! On this machine, it tests features of the kernel in a temporary network namespace, times writes to a temporary file,
//! and reads limits. It changes nothing. `kubectl-faultline` examines Kubernetes clusters ([`crate::plugin`]).

use std::path::Path;

use faultline_console::examination::{Examination, PlannedRun, can, loading};
use faultline_shaper::Kernel;
use faultline_tc::namespace::{MOST_PROCESSES, become_root, isolated};
use faultline_tc::probe::{Ability, Probe};

use crate::arguments::{DoctorArguments, Examined};
use crate::command_error::{CommandError, Exit};
use crate::machine::{self, CheckState, Finding, Size};
use crate::plugin;
use crate::run::without_effect;

/// The kernel features that `--links tc` requires.
const FOR_TC: [Ability; 5] = [Ability::Veth, Ability::Bridge, Ability::Htb, Ability::Pfifo, Ability::U32];

/// Executes `faultline doctor`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, CommandError> {
    if arguments.backend == Examined::Kubernetes {
        return plugin::doctor(arguments);
    }
    if arguments.image.is_some() {
        return Err(without_effect("--image", "kubernetes"));
    }
    let planned = PlannedRun::of(arguments.nodes);
    this_machine(planned.nodes()).print(planned, arguments.tc, arguments.format)
}

fn this_machine(nodes: u64) -> Examination {
    let mut findings = machine::findings(Size::of_nodes(nodes));
    findings.extend(machine::load());
    findings.push(machine::writes(Path::new(".")));
    let traffic = traffic_control();
    findings.extend(links(&traffic, nodes));
    Examination {
        subject: "This machine".to_owned(),
        by: "`--links tc`",
        traffic_control: Some(traffic.is_ok() && nodes <= MOST_PROCESSES.into()),
        kernel_delays: Some(traffic.is_ok_and(|it| it.lacks(&[Ability::Netem]).is_empty())),
        findings,
    }
}

/// Returns the kernel's features for `--links tc`, or an error that says why traffic control is unavailable.
pub(crate) fn kernel_for_tc() -> Result<Kernel, CommandError> {
    traffic_control().map(|probe| probe.kernel()).map_err(|unfit| {
        let Unfit { why, remedy, .. } = unfit;
        CommandError::input(miette::miette!(
            help = format!("{remedy}, or omit `--links tc` to emulate links in the nodes; see `faultline doctor` for details"),
            "traffic control is not available on this machine: {why}"
        ))
    })
}

/// The reason why traffic control is unavailable.
struct Unfit {
    why: String,
    remedy: String,
    /// The kernel features found, if they could be tested.
    probe: Option<Probe>,
}

fn traffic_control() -> Result<Probe, Unfit> {
    let root =
        |why: String| Unfit { why, remedy: "run as root, or permit user namespaces".to_owned(), probe: None };
    let probe = match become_root().and_then(|()| isolated(Probe::run)) {
        Err(error) => return Err(root(error.to_string())),
        Ok(Err(error)) => return Err(root(error.to_string())),
        Ok(Ok(probe)) => probe,
    };
    let lacks = probe.lacks(&FOR_TC);
    if lacks.is_empty() {
        return Ok(probe);
    }
    let names: Vec<_> = lacks.iter().map(|(ability, _)| ability.module()).collect();
    let why = format!("this kernel does not support {}: {}", names.join(", "), lacks[0].1);
    let remedy = loading(&names.join(" "));
    Err(Unfit { why, remedy, probe: Some(probe) })
}

/// Returns the findings about traffic control in this kernel.
fn links(traffic: &Result<Probe, Unfit>, nodes: u64) -> Vec<Finding> {
    let probe = match traffic {
        Ok(probe) => probe,
        Err(Unfit { probe: Some(probe), .. }) => probe,
        Err(Unfit { why, remedy, probe: None }) => {
            let detail = format!("not checked: {why}");
            let remedy = Some(format!("to use `--links tc`, {remedy}"));
            return vec![Finding { name: "traffic control", state: CheckState::Missing, detail, remedy }];
        }
    };
    let findings = probe.findings.iter().map(|(ability, result)| {
        can(*ability, result.as_ref().map(|()| ability.purpose().to_owned()).map_err(String::as_str))
    });
    findings.chain(ports_of_bridge(nodes)).collect()
}

/// Checks that a bridge has enough ports for this many namespaces.
fn ports_of_bridge(nodes: u64) -> Option<Finding> {
    (nodes > MOST_PROCESSES.into()).then(|| Finding {
        name: "bridge ports",
        state: CheckState::Missing,
        detail: format!("{nodes} needed, {MOST_PROCESSES} available"),
        remedy: Some("use fewer nodes, or emulate links in the nodes".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_control_needs_a_port_of_the_bridge_for_each_node() {
        assert_eq!(ports_of_bridge(MOST_PROCESSES.into()), None);
        let finding = ports_of_bridge(u64::from(MOST_PROCESSES) + 1).unwrap();
        assert_eq!(finding.state, CheckState::Missing);
        assert!(finding.remedy.is_some());
    }
}
