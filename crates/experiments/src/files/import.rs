//! Turns the three files into one federation, and maps problems of the federation back to the files.
//!
//! The resource's own validation checks most rules. A problem that it finds is translated from the path in the
//! federation to the file and path that the value came from.

use std::collections::BTreeMap;

use faultline_api::quantity::{Bandwidth, Duration, Loss, Period};
use faultline_api::resource::{
    self, ApplicationSpec, Count, Crash, ExactTraffic, Failures, Fate, FaultSpec, FederationSpec, Hc3i, Link,
    Links, Mtbf, Pair, Preset, ProtocolSpec, RandomTraffic, Send, Storage, StorageKind, Synthetic, Traffic,
};
use faultline_api::{Federation, Problem, validate};
use faultline_core::Span;
use faultline_core::fault::LinkProperties;

use super::{ApplicationFile, File, Timers, Topology};

/// A federation with the origin of its values.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The federation.
    pub federation: Federation,
    /// The origin of each value, by path in the federation.
    origins: BTreeMap<String, (File, String)>,
}

/// Combines the three files. As in the paper (section 3.1), each checkpoint is stored in the memory of its owner and
/// of one neighbour.
pub fn import(name: &str, topology: &Topology, application: &ApplicationFile, timers: &Timers) -> Imported {
    let mut origins = Origins(BTreeMap::new());
    origins.add("spec", File::Topology, "");
    let links = links(topology, &mut origins);
    let traffic = traffic(application, &mut origins);
    let protocol = protocol(timers, &mut origins);
    origins.add("spec.clusters", File::Topology, "clusters");
    for index in 0..topology.clusters.len() {
        let path = format!("clusters[{index}]");
        origins.add(&format!("spec.{path}"), File::Topology, &path);
    }
    origins.add("spec.application.synthetic.message", File::Application, "message");
    origins.add("spec.application.synthetic.state", File::Application, "state");
    origins.add("spec.deadline", File::Application, "duration");
    origins.add("spec.failures.detectAfter", File::Timers, "detectAfter");
    origins.add("spec.failures.restartAfter", File::Timers, "restartAfter");
    origins.add("spec.faults", File::Topology, "mtbf");
    let failures = Failures {
        detect_after: timers.detect_after,
        restart_after: timers.restart_after,
        ..Failures::default()
    };
    let (message, state) = (application.message, application.state);
    let spec = FederationSpec {
        links: Some(links),
        storage: Some(Storage { kind: StorageKind::Memory, ..Storage::default() }),
        failures: (failures != Failures::default()).then_some(failures),
        faults: faults(topology),
        deadline: Some(deadline(topology, application)),
        ..FederationSpec::new(
            topology.clusters.clone(),
            ProtocolSpec::Hc3i(protocol),
            ApplicationSpec::Synthetic(Synthetic { traffic, message, state }),
        )
    };
    Imported { federation: Federation::new(name, spec), origins: origins.0 }
}

impl Imported {
    /// Returns the problems of the federation, in terms of the files.
    pub fn problems(&self) -> Vec<(File, Problem)> {
        let mut problems: Vec<(File, Problem)> = Vec::new();
        for problem in validate(&self.federation).into_iter().map(|it| self.translate(it)) {
            // The two directions of a link have the same origin.
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        problems
    }

    /// Translates the path of a problem to the nearest enclosing value that came from a file.
    fn translate(&self, problem: Problem) -> (File, Problem) {
        let mut around = problem.path.as_str();
        loop {
            if let Some((file, path)) = self.origins.get(around) {
                let rest = problem.path[around.len()..].trim_start_matches('.');
                let path = match (path.as_str(), rest) {
                    (_, "") => path.clone(),
                    ("", rest) => rest.to_owned(),
                    (path, rest) => format!("{path}.{rest}"),
                };
                return (*file, Problem { path, ..problem });
            }
            match around.rfind(['.', '[']) {
                Some(end) => around = &around[..end],
                None => return (File::Topology, Problem { path: String::new(), ..problem }),
            }
        }
    }
}

/// Origins under construction.
struct Origins(BTreeMap<String, (File, String)>);

impl Origins {
    fn add(&mut self, federation: &str, file: File, path: &str) {
        self.0.insert(federation.to_owned(), (file, path.to_owned()));
    }
}

/// Chooses the most common link within clusters and the most common one between them as defaults; all others become
/// exceptions.
fn links(topology: &Topology, origins: &mut Origins) -> Links {
    let name = |index: usize| topology.clusters[index].name.clone();
    let mut cells = Vec::new();
    for (i, row) in topology.links.iter().enumerate().take(topology.clusters.len()) {
        for (j, link) in row.iter().enumerate().take(i + 1) {
            cells.push((i, j, whole(link)));
        }
    }
    let common = |inside: bool| {
        let mut seen: Vec<((usize, usize), Link, usize)> = Vec::new();
        for &(i, j, link) in cells.iter().filter(|(i, j, _)| (i == j) == inside) {
            match seen.iter_mut().find(|(_, known, _)| *known == link) {
                Some((.., count)) => *count += 1,
                None => seen.push(((i, j), link, 1)),
            }
        }
        // Of several equally common links, takes the first.
        seen.into_iter().rev().max_by_key(|(.., count)| *count).map(|(place, link, _)| (place, link))
    };
    let (within, between) = (common(true), common(false));
    origins.add("spec.links", File::Topology, "links");
    for (class, found) in [("within", &within), ("between", &between)] {
        if let Some(((i, j), _)) = found {
            origins.add(&format!("spec.links.{class}"), File::Topology, &format!("links[{i}][{j}]"));
        }
    }
    let mut links =
        Links { within: within.map(|it| it.1), between: between.map(|it| it.1), pairs: Vec::new() };
    for (i, j, link) in cells {
        let class = if i == j { links.within } else { links.between };
        if class == Some(link) {
            continue;
        }
        let both = if i == j { &[(i, j)][..] } else { &[(j, i), (i, j)][..] };
        for &(from, to) in both {
            let path = format!("spec.links.pairs[{}]", links.pairs.len());
            origins.add(&path, File::Topology, &format!("links[{i}][{j}]"));
            let Link { preset, latency, jitter, bandwidth, loss } = link;
            links.pairs.push(Pair {
                from: name(from),
                to: name(to),
                preset,
                latency,
                jitter,
                bandwidth,
                loss,
            });
        }
    }
    links
}

/// Returns a link with all properties stated, so that it inherits nothing from a class.
fn whole(link: &Link) -> Link {
    let LinkProperties { latency, jitter, bandwidth, loss_ppm } = link.over(Preset::None.properties());
    Link {
        preset: None,
        latency: Some(Duration(latency)),
        jitter: Some(Duration(jitter)),
        bandwidth: Some(Bandwidth::from_bytes_per_second(bandwidth)),
        loss: Some(Loss { ppm: loss_ppm }),
    }
}

fn traffic(application: &ApplicationFile, origins: &mut Origins) -> Traffic {
    if let Some(messages) = &application.messages {
        let path = "spec.application.synthetic.traffic.exact";
        origins.add(&format!("{path}.duration"), File::Application, "duration");
        origins.add(&format!("{path}.messages"), File::Application, "messages");
        let mut counts = Vec::new();
        for (from, row) in messages {
            for (to, &count) in row {
                let entry = format!("{path}.messages[{}]", counts.len());
                let cell = format!("messages.{from}.{to}");
                origins.add(&entry, File::Application, &cell);
                origins.add(&format!("{entry}.from"), File::Application, &format!("messages.{from}"));
                origins.add(&format!("{entry}.to"), File::Application, &cell);
                origins.add(&format!("{entry}.count"), File::Application, &cell);
                counts.push(Count { from: from.clone(), to: to.clone(), count });
            }
        }
        return Traffic::Exact(ExactTraffic { duration: application.duration, messages: counts });
    }
    let path = "spec.application.synthetic.traffic.random";
    origins.add(&format!("{path}.duration"), File::Application, "duration");
    origins.add(&format!("{path}.clusters"), File::Application, "clusters");
    let mut clusters = Vec::new();
    for (cluster, behaviour) in application.clusters.iter().flatten() {
        let (entry, place) = (format!("{path}.clusters[{}]", clusters.len()), format!("clusters.{cluster}"));
        origins.add(&entry, File::Application, &place);
        origins.add(&format!("{entry}.cluster"), File::Application, &place);
        let mut send = Vec::new();
        for (to, &probability) in &behaviour.send {
            let (entry, place) = (format!("{entry}.send[{}]", send.len()), format!("{place}.send.{to}"));
            for path in [entry.clone(), format!("{entry}.to"), format!("{entry}.probability")] {
                origins.add(&path, File::Application, &place);
            }
            send.push(Send { to: to.clone(), probability });
        }
        let mean_computation = behaviour.mean_computation;
        clusters.push(resource::Behaviour { cluster: cluster.clone(), mean_computation, send });
    }
    Traffic::Random(RandomTraffic { duration: application.duration, clusters })
}

fn protocol(timers: &Timers, origins: &mut Origins) -> Hc3i {
    let path = "spec.protocol.hc3i";
    origins.add(path, File::Timers, "");
    origins.add(&format!("{path}.collectEvery"), File::Timers, "collect");
    origins.add(&format!("{path}.checkpointEveryIn"), File::Timers, "checkpoint");
    for cluster in timers.checkpoint.keys() {
        let from = format!("checkpoint.{cluster}");
        origins.add(&format!("{path}.checkpointEveryIn.{cluster}"), File::Timers, &from);
    }
    // The number of replicas comes from the paper, not from a file, so a problem with it is reported as one with the
    // clusters.
    origins.add(&format!("{path}.replicas"), File::Topology, "clusters");
    Hc3i {
        checkpoint_every: Some(Period(None)),
        checkpoint_every_in: timers.checkpoint.clone(),
        collect_every: Some(timers.collect),
        collect_by: None,
        replicas: Some(1),
        replicate_to: Some(resource::ReplicateTo::SameCluster),
        piggyback: None,
        forcing: None,
    }
}

fn faults(topology: &Topology) -> Vec<FaultSpec> {
    let Some(mean) = topology.mtbf.0 else { return Vec::new() };
    vec![FaultSpec {
        mtbf: Some(Mtbf::Exponential(Duration(mean))),
        ..Crash { storage: Some(Fate::Lost), ..Crash::new(resource::ANY, None) }.into()
    }]
}

/// Returns a generous deadline. If nodes fail, it leaves time to re-execute lost work.
fn deadline(topology: &Topology, application: &ApplicationFile) -> Duration {
    let again = if topology.mtbf.0.is_some() { 4 } else { 1 };
    let longest = Span::from_secs(87_600 * 3600);
    Duration((application.duration.0 * again + Span::from_secs(3600)).min(longest))
}
