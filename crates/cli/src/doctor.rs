//! `faultline doctor`: what this machine can run and shape, and what can be done about the rest.
//!
//! Tries things in a network namespace that is gone afterwards, and reads limits. Changes nothing.

use std::fs;

use faultline_shaper::Kernel;
use faultline_tc::namespace::{MOST_PROCESSES, isolated};
use faultline_tc::probe::{Ability, Probe};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use crate::arguments::{DoctorArguments, Format};
use crate::output;
use crate::trouble::{Exit, Trouble};

/// What `--links tc` cannot do without.
const FOR_TC: [Ability; 5] = [Ability::Veth, Ability::Bridge, Ability::Htb, Ability::Pfifo, Ability::U32];
/// Descriptors of a node, beside one for each other node: files, timers, sockets.
const DESCRIPTORS: u64 = 32;
/// Memory of a node without its application's state, with room: one with 100 peers had 7.1 MB at its peak (benchmark
/// `checkpoints`).
const NODE_MEMORY: u64 = 16 << 20;
/// Ports that may be taken by others.
const SPARE_PORTS: u64 = 1000;

/// Whether something can be done here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// It can.
    Ok,
    /// It cannot, and what asks for it has another way.
    Missing,
    /// It cannot, and runs of that size fail.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    name: &'static str,
    state: State,
    /// What was found.
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// The object of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis<'a> {
    /// Runs on real processes with so many nodes are possible.
    fit: bool,
    nodes: u64,
    /// `--links tc` is possible.
    traffic_control: bool,
    findings: &'a [Finding],
}

/// `faultline doctor`
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, Trouble> {
    let nodes = u64::from(arguments.nodes.get());
    let mut findings = machine(nodes);
    let traffic = traffic_control();
    let traffic_control = traffic.is_ok() && nodes <= MOST_PROCESSES.into();
    findings.extend(links(&traffic, nodes));
    let fit = findings.iter().all(|it| it.state != State::Fail) && (traffic_control || !arguments.tc);
    match arguments.format {
        Format::Json => {
            let diagnosis = Diagnosis { fit, nodes, traffic_control, findings: &findings };
            output::print(&output::json(&diagnosis))?;
        }
        Format::Text => output::print(&text(&findings, nodes, traffic_control))?,
    }
    Ok(if fit { Exit::Pass } else { Exit::Fail })
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
    let finding = |(ability, result): &(Ability, Result<(), String>)| {
        let instead = match ability {
            Ability::Netem => "; without it, delay and loss are emulated in the nodes",
            Ability::Ifb | Ability::Redirect => "; without it, packets are delayed where they leave",
            _ => "",
        };
        match result {
            Ok(()) => Finding {
                name: ability.module(),
                state: State::Ok,
                detail: ability.purpose().to_owned(),
                remedy: None,
            },
            Err(why) => Finding {
                name: ability.module(),
                state: State::Missing,
                detail: format!("{}: {why}", ability.purpose()),
                remedy: Some(format!("{}{instead}", load(ability.module()))),
            },
        }
    };
    probe.findings.iter().map(finding).chain(ports_of_bridge(nodes)).collect()
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

/// Limits of this machine for runs of so many nodes, of which each is a process that talks to all others.
fn machine(nodes: u64) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft);
    let processes = getrlimit(Resource::RLIMIT_NPROC).map(|(soft, _)| soft);
    let limit = |name, have: Result<u64, nix::Error>, need: u64, remedy: String| match have {
        Ok(have) => enough(name, have, need, |it| it.to_string(), remedy),
        Err(error) => unknown(name, &error.to_string()),
    };
    vec![
        limit(
            "open files",
            descriptors,
            DESCRIPTORS + 2 * nodes,
            format!("`ulimit -n {}`", DESCRIPTORS + 2 * nodes),
        ),
        // A node has a thread for its heart, one for what it stores, and one that computes.
        limit("processes", processes, 8 * nodes, format!("`ulimit -u {}`", 8 * nodes)),
        match ports(&read("/proc/sys/net/ipv4/ip_local_port_range")) {
            Some(have) => {
                let remedy = "`sysctl -w net.ipv4.ip_local_port_range='1024 65535'`, or fewer nodes: each two are joined by a connection";
                enough(
                    "local ports",
                    have,
                    nodes.saturating_mul(nodes) / 2 + 2 * nodes + SPARE_PORTS,
                    |it| it.to_string(),
                    remedy.to_owned(),
                )
            }
            None => unknown("local ports", "/proc does not say"),
        },
        match available_memory(&read("/proc/meminfo")) {
            Some(have) => {
                let remedy = "fewer nodes, or `--backend simulate`: virtual time takes a fraction of it";
                enough("memory", have, nodes * NODE_MEMORY, mebibytes, remedy.to_owned())
            }
            None => unknown("memory", "/proc/meminfo does not say"),
        },
    ]
}

fn enough(name: &'static str, have: u64, need: u64, show: impl Fn(u64) -> String, remedy: String) -> Finding {
    let is_enough = have >= need;
    let have = if have >= u64::MAX / 2 { "no limit".to_owned() } else { show(have) };
    Finding {
        name,
        state: if is_enough { State::Ok } else { State::Fail },
        detail: format!("{have}, of which {} are needed", show(need)),
        remedy: (!is_enough).then_some(remedy),
    }
}

fn unknown(name: &'static str, why: &str) -> Finding {
    Finding { name, state: State::Missing, detail: format!("not known: {why}"), remedy: None }
}

/// How many ports are in the range of `ip_local_port_range`.
fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some((last + 1).saturating_sub(first))
}

/// Bytes that may be taken without swapping, as `/proc/meminfo` says.
fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn text(findings: &[Finding], nodes: u64, traffic_control: bool) -> String {
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
    text.push_str(&format!(
        "\nThis machine {} run {nodes} nodes, and {} emulate their links by traffic control (`--links tc`).\n",
        can(findings.iter().all(|it| it.state != State::Fail)),
        can(traffic_control),
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_fails_with_a_remedy() {
        let low = enough("open files", 10, 11, |it| it.to_string(), "more".to_owned());
        assert_eq!((low.state, low.remedy.as_deref()), (State::Fail, Some("more")));
        let high = enough("open files", 11, 11, |it| it.to_string(), "more".to_owned());
        assert_eq!((high.state, high.remedy), (State::Ok, None));
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(ports("32768\t60999\n"), Some(28_232));
        assert_eq!(ports("here"), None);
        assert_eq!(available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available_memory(""), None);
    }

    #[test]
    fn more_nodes_than_a_bridge_has_ports_have_no_traffic_control() {
        assert_eq!(ports_of_bridge(MOST_PROCESSES.into()), None);
        let finding = ports_of_bridge(u64::from(MOST_PROCESSES) + 1).unwrap();
        assert_eq!(finding.state, State::Missing);
        assert!(finding.remedy.is_some());
    }
}
