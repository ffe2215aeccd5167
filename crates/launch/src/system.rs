//! What a node of a system runs, from the federation and the place of the node.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultline_api::Names;
use faultline_api::resource::{self, FederationSpec, OnExit, OnNode};
use faultline_api::system::{Location, SystemNode, TemplateError};
use faultline_core::{CheckNo, HistoryNo, Life, ProbeNo, ProcessId, Span, WatchNo};
use faultline_runtime::NodeOptions;
use faultline_runtime::system::{Attempt, Clients, NodeSystem, Probe, own_id, stable_address_of};
use faultline_supervisor::AfterExit;
use faultline_trace::Bundle;
use regex::Regex;

/// Where a node of a system runs.
pub(crate) struct Place {
    /// The directory of the run, for the data and the working directories of nodes, and for the logs.
    run_dir: PathBuf,
    /// What other nodes call each node, indexed by process.
    hosts: Vec<String>,
    /// The address of the node, if it is not its host.
    bind: Option<String>,
}

impl Place {
    /// Returns the place of a node on this machine. In a pod, its commands run [elsewhere](Place::in_pod).
    pub(crate) fn on_this_machine(options: &NodeOptions, nodes: u32) -> Place {
        // Commands run in directories of their own.
        let run_dir = std::path::absolute(&options.run_dir).unwrap_or_else(|_| options.run_dir.clone());
        let hosts = hosts(&run_dir, nodes, options.own_network);
        Place { run_dir, hosts, bind: None }
    }

    /// Returns the place of a node's commands in a pod. `hosts` are the names of the pods.
    pub(crate) fn in_pod(run_dir: &Path, hosts: Vec<String>, address: IpAddr) -> Place {
        Place { run_dir: run_dir.to_owned(), hosts, bind: Some(address.to_string()) }
    }
}

/// Returns what the node runs besides its process; `None` if the federation is no system.
///
/// # Errors
///
/// Fails if a template cannot be rendered.
pub(crate) fn of_node(
    spec: &FederationSpec,
    seed: u64,
    (process, life): (ProcessId, Life),
    place: impl FnOnce(u32) -> Place,
) -> Result<Option<NodeSystem>, TemplateError> {
    let Some(system) = spec.application.system() else { return Ok(None) };
    let names = Names::of(spec);
    let name = names.process(process);
    let Place { run_dir, hosts, bind } = place(names.ranks());
    let data = run_dir.join("nodes").join(&name).join("data");
    let dir = run_dir.join("nodes").join(&name).join(format!("{}.dir", life.0));
    let text = |it: &PathBuf| it.display().to_string();
    let location = Location { hosts, bind, data: text(&data), dir: text(&dir) };
    let make = move || (names.clone(), location.clone());
    let (of_spec, place) = make();
    let node = SystemNode::new((spec, system, &of_spec), seed, process, life.0, place);
    let rendered = node.render()?;
    let OnNode { watch, on_exit, log_bytes, ready, .. } = node.stated();
    let mut env: Vec<(String, String)> = node.environment().into_iter().collect();
    env.extend(rendered.env);
    let set_up = match system.setup.as_ref().filter(|it| it.by == name) {
        Some(it) => {
            let words = it.exec.iter().map(String::as_str).collect();
            let made = node.attempt("setup", &resource::Attempt::Exec(words), 0)?;
            Some((attempt(made), duration(it.within())))
        }
        None => None,
    };
    let checks = (0..).map(CheckNo).zip(spec.checks()).filter(|(_, it)| it.by.as_ref() == Some(&name));
    let checks = checks.map(|(no, it)| {
        let words = it.exec.as_deref().unwrap_or_default();
        Ok((no, attempt(node.check(words)?), duration(it.check_within())))
    });
    let checks = checks.collect::<Result<_, TemplateError>>()?;
    let final_checks = faultline_catalog::final_checks(spec, system, &of_spec);
    let final_check = final_checks.iter().find(|it| it.1 == process).map(|it| it.0);
    let cluster = of_spec.cluster(of_spec.cluster_of(process)).to_owned();
    let clients = (0..).map(HistoryNo).zip(&system.clients);
    let clients = clients.filter(|(_, (_, it))| it.by == name || it.by == cluster).map(|(no, (of, it))| {
        Ok(Clients {
            no,
            name: of.clone(),
            command: node.client(of, it)?,
            count: it.count() as u16,
            timeout: duration(it.timeout()),
            workload: it.workload(seed),
            nodes: node.nodes(),
            parameters: it.parameters.clone(),
        })
    });
    let clients = clients.collect::<Result<_, TemplateError>>()?;
    let is_mine = |by: &Option<String>| by.as_ref().is_none_or(|it| *it == name || *it == cluster);
    let probes = (0..).map(ProbeNo).zip(&system.probes).filter(|(_, (_, it))| is_mine(&it.by));
    let probes = probes.filter_map(|(no, (field, it))| {
        it.attempt()?;
        let (node, it, field) = (node.clone(), it.clone(), format!("probes.{field}"));
        Some(Probe {
            no,
            every: duration(it.every()),
            timeout: duration(it.timeout()),
            attempt: Box::new(move |sample| {
                let stated = it.attempt().ok_or("the probe attempts nothing")?;
                node.attempt(&field, &stated, sample.into()).map(attempt).map_err(|it| it.to_string())
            }),
        })
    });
    let numbered = (0..).map(WatchNo).zip(system.watch_names());
    let watches = numbered.filter_map(|(no, name)| Some((no, Regex::new(watch.get(name)?).ok()?))).collect();
    let later = spec
        .later_commands(&cluster)
        .map(|(entry, words)| Ok((u16::try_from(entry).unwrap_or(u16::MAX), node.restarted(entry, words)?)));
    let later_commands = later.collect::<Result<_, TemplateError>>()?;
    Ok(Some(NodeSystem {
        id: own_id(),
        command: rendered.command,
        later_commands,
        env,
        files: rendered.files,
        dir,
        data,
        log: run_dir.join(Bundle::log_path(&name, life)),
        log_bytes,
        ready: (
            rendered.ready.map(attempt),
            duration(ready.map_or(resource::Ready::default().within(), resource::Ready::within)),
        ),
        set_up,
        probes: probes.collect(),
        checks,
        clients,
        final_check,
        watches,
        after_exit: match on_exit {
            OnExit::Fail | OnExit::Daemon => AfterExit::End,
            OnExit::Stay => AfterExit::Stay,
            OnExit::Restart => AfterExit::Restart,
            OnExit::RestartCluster => AfterExit::RestartCluster,
        },
        may_finish: system.ends.as_ref().and_then(|it| it.exit.as_ref()) == Some(&cluster),
        is_daemon: on_exit == OnExit::Daemon,
    }))
}

fn attempt(made: resource::Attempt<String>) -> Attempt {
    match made {
        resource::Attempt::Exec(words) => Attempt::Exec(words),
        resource::Attempt::Http(url) => Attempt::Http(url),
        resource::Attempt::Tcp(address) => Attempt::Tcp(address),
    }
}

fn duration(Span(nanos): Span) -> Duration {
    Duration::from_nanos(nanos)
}

/// Returns the address of each node, which is the same in every life: in its network namespace, or of the loopback
/// interface. Runs at the same time have different loopback addresses, so they can use the same ports.
fn hosts(run_dir: &Path, nodes: u32, own_network: bool) -> Vec<String> {
    if own_network {
        return (0..nodes).map(|it| stable_address_of(ProcessId(it)).to_string()).collect();
    }
    let mut hasher = DefaultHasher::new();
    run_dir.hash(&mut hasher);
    let [low, high, ..] = hasher.finish().to_le_bytes();
    let network = u32::from(Ipv4Addr::new(127, 1 + high % 254, low, 0));
    (1..=nodes).map(|it| Ipv4Addr::from(network + it).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_addresses_of_its_own() {
        let [one, other] = ["/a/one", "/a/other"].map(|it| hosts(Path::new(it), 250, false));
        assert_eq!(one, hosts(Path::new("/a/one"), 250, false));
        assert!(one[0].starts_with("127.") && !one[0].starts_with("127.0.") && one[0].ends_with(".1"));
        assert!(one.iter().all(|it| !other.contains(it)));
    }
}
