//! `faultline doctor`: what this machine, or a Kubernetes cluster, can run and shape, and what can be done about the rest.
//!
//! Here it tries things in a network namespace and in a file that are gone afterwards, and reads limits. Changes nothing.
//! Clusters are looked at by [`crate::kubernetes`].

use std::path::Path;

use faultline_shaper::Kernel;
use faultline_tc::namespace::{MOST_PROCESSES, isolated};
use faultline_tc::probe::{Ability, Probe};
use serde::Serialize;

use crate::arguments::{DoctorArguments, Examined, Format};
use crate::machine::{self, Finding, Size, State};
use crate::trouble::{Exit, Trouble};
use crate::{kubernetes, output};

/// What `--links tc` cannot do without.
const FOR_TC: [Ability; 5] = [Ability::Veth, Ability::Bridge, Ability::Htb, Ability::Pfifo, Ability::U32];

/// The object of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Runs on real processes with so many nodes are possible.
    fit: bool,
    nodes: u64,
    /// Traffic control is possible; none when nobody has tried.
    traffic_control: Option<bool>,
    findings: &'a [Finding],
}

/// What was examined.
pub(crate) struct Examination {
    /// What it is called in a sentence.
    pub(crate) subject: String,
    /// How traffic control is asked for there.
    pub(crate) by: &'static str,
    /// Whether it can be had, where that was tried.
    pub(crate) traffic_control: Option<bool>,
    pub(crate) findings: Vec<Finding>,
}

impl Examination {
    /// Whether nothing stands in the way of a run.
    fn is_fit(&self) -> bool {
        self.findings.iter().all(|it| it.state != State::Fail)
    }
}

/// `faultline doctor`
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, Trouble> {
    let nodes = u64::from(arguments.nodes.get());
    let examination = match arguments.backend {
        Examined::Local => this_machine(nodes),
        Examined::Kubernetes => kubernetes::examine(&arguments.cluster, nodes, arguments.tc)?,
    };
    let Examination { traffic_control, findings, .. } = &examination;
    let fit = examination.is_fit() && (*traffic_control == Some(true) || !arguments.tc);
    match arguments.format {
        Format::Json => {
            let diagnosis = Diagnosis { fit, nodes, traffic_control: *traffic_control, findings };
            output::print(&output::json(&diagnosis))?;
        }
        Format::Text => output::print(&text(&examination, nodes))?,
    }
    Ok(if fit { Exit::Pass } else { Exit::Fail })
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
        findings,
    }
}

/// What the kernel can do for `--links tc`, or why it cannot.
pub(crate) fn kernel_for_tc() -> Result<Kernel, Trouble> {
    traffic_control().map(|probe| probe.kernel()).map_err(|unfit| {
        let Unfit { why, remedy, .. } = unfit;
        Trouble::input(miette::miette!(
            help = format!("{remedy}, or leave out `--links tc`: links are emulated in the nodes then. `faultline doctor` says more"),
            "links cannot be emulated by traffic control here: {why}"
        ))
    })
}

/// Why there is no traffic control.
struct Unfit {
    why: String,
    remedy: String,
    /// As far as it could be asked.
    probe: Option<Probe>,
}

fn traffic_control() -> Result<Probe, Unfit> {
    let root = |why: String| Unfit { why, remedy: "run as root".to_owned(), probe: None };
    let probe = match isolated(Probe::run) {
        Err(error) => return Err(root(error.to_string())),
        Ok(Err(error)) => return Err(root(error.to_string())),
        Ok(Ok(probe)) => probe,
    };
    let lacks = probe.lacks(&FOR_TC);
    if lacks.is_empty() {
        return Ok(probe);
    }
    let names: Vec<_> = lacks.iter().map(|(ability, _)| ability.module()).collect();
    let why = format!("this kernel has no {}: {}", names.join(", "), lacks[0].1);
    let remedy = load(&names.join(" "));
    Err(Unfit { why, remedy, probe: Some(probe) })
}

fn load(modules: &str) -> String {
    format!(
        "`modprobe -a {modules}`, or a kernel that has it (many distributions: the package with extra modules)"
    )
}

/// What traffic control finds in this kernel.
fn links(traffic: &Result<Probe, Unfit>, nodes: u64) -> Vec<Finding> {
    let probe = match traffic {
        Ok(probe) => probe,
        Err(Unfit { probe: Some(probe), .. }) => probe,
        Err(Unfit { why, remedy, probe: None }) => {
            let detail = format!("not looked at: {why}");
            let remedy = Some(format!("{remedy}, for `--links tc`"));
            return vec![Finding { name: "traffic control", state: State::Missing, detail, remedy }];
        }
    };
    let findings = probe.findings.iter().map(|(ability, result)| {
        can(*ability, result.as_ref().map(|()| ability.purpose().to_owned()).map_err(String::as_str))
    });
    findings.chain(ports_of_bridge(nodes)).collect()
}

/// That a kernel can do something, or why it cannot.
pub(crate) fn can(ability: Ability, result: Result<String, &str>) -> Finding {
    let instead = match ability {
        Ability::Netem => "; without it, delay and loss are emulated in the nodes",
        Ability::Ifb | Ability::Redirect => "; without it, packets are delayed where they leave",
        _ => "",
    };
    let name = ability.module();
    match result {
        Ok(detail) => Finding { name, state: State::Ok, detail, remedy: None },
        Err(why) => Finding {
            name,
            state: State::Missing,
            detail: format!("{}: {why}", ability.purpose()),
            remedy: Some(format!("{}{instead}", load(name))),
        },
    }
}

/// A bridge joins so many namespaces, and no more.
fn ports_of_bridge(nodes: u64) -> Option<Finding> {
    (nodes > MOST_PROCESSES.into()).then(|| Finding {
        name: "bridge ports",
        state: State::Missing,
        detail: format!("{MOST_PROCESSES}, of which {nodes} are needed"),
        remedy: Some("fewer nodes, or links in the nodes".to_owned()),
    })
}

fn text(examination: &Examination, nodes: u64) -> String {
    let Examination { subject, by, traffic_control, findings } = examination;
    let mut text = String::new();
    for Finding { name, state, detail, remedy } in findings {
        let state = match state {
            State::Ok => "ok",
            State::Missing => "--",
            State::Fail => "FAIL",
        };
        text.push_str(&format!("{state:<5} {name:<15} {detail}\n"));
        if let Some(remedy) = remedy {
            text.push_str(&format!("{:22}remedy: {remedy}\n", ""));
        }
    }
    let can = |can| if can { "can" } else { "cannot" };
    let links = match traffic_control {
        Some(able) => format!(", and {} emulate their links by traffic control ({by})", can(*able)),
        None => String::new(),
    };
    text.push_str(&format!("\n{subject} {} run {nodes} nodes{links}.\n", can(examination.is_fit())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_than_a_bridge_has_ports_have_no_traffic_control() {
        assert_eq!(ports_of_bridge(MOST_PROCESSES.into()), None);
        let finding = ports_of_bridge(u64::from(MOST_PROCESSES) + 1).unwrap();
        assert_eq!(finding.state, State::Missing);
        assert!(finding.remedy.is_some());
    }
}
