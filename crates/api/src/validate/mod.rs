//! Checks values, alone and in combination.
//!
//! Works on values, not on text: a problem names the path of the value, and [`crate::parse()`] turns paths into
//! locations. All problems are reported at once, up to [`MAX_PROBLEMS`], except that a task-based program's faults with
//! `returns: false` are checked only if the checks before them find no problems.
//!
//! Operators check federations that any user may create, so no check may take long or need much memory. The cost does
//! not depend on the numbers in a federation, such as the number of nodes. Apart from a limited number of drawn faults
//! and unrolled tasks, it depends only on the length of the file.

mod application;
mod clients;
mod expect;
mod faults;
mod kubernetes;
mod presence;
mod system;
mod tasks;
mod traces;

pub use kubernetes::unfit_for_pods;

pub(crate) use kubernetes::MAX_STATEFUL_SET;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use faultline_core::fault::LinkProperties;
use faultline_core::{Role, Scope, Span};

use crate::names::Names;
use crate::quantity::{Duration, Loss};
use crate::resource::{
    ANY, ApplicationSpec, Demand, Emulation, Federation, FederationSpec, Link, Links, MAX_CLUSTERS,
    MAX_NODES, MAX_NODES_ALONE, MAX_NODES_PER_CLUSTER, MAX_PAIRS, MAX_SERVERS, MAX_SPARES, MIN_DETECT_AFTER,
    ProtocolSpec, Receives, ReplicateTo,
};

/// Maximum number of problems that [`validate()`] returns.
pub const MAX_PROBLEMS: usize = 100;
/// Permitted numbers of storage servers.
const SERVERS: RangeInclusive<u32> = 1..=MAX_SERVERS;
/// Maximum number of names that a suggested fix lists.
const MAX_LISTED: usize = 16;

/// An error in a federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the value, such as `spec.faults[2].at`.
    pub path: String,
    /// Description of the problem.
    pub message: String,
    /// Suggested fix.
    pub help: String,
}

impl Problem {
    /// Creates the error for a value that names `file`, where no files are read.
    pub fn unread(path: impl Into<String>, file: &str, help: impl Into<String>) -> Problem {
        let message = format!(
            "`{file}` cannot be read here: only the `faultline` command reads files named in a federation"
        );
        Problem { path: path.into(), message, help: help.into() }
    }
}

/// Returns the problems with `federation`, at most [`MAX_PROBLEMS`]. If there are none, the federation can be run.
///
/// Rejects everything that the schema and the CEL rules of the custom resource definition reject, so API servers admit
/// every federation that this function accepts. There is one exception: the seed of a Kubernetes object is at most
/// [`i64::MAX`]. Files for the other backends may have any seed.
pub fn validate(federation: &Federation) -> Vec<Problem> {
    let mut check = Check::new(&federation.spec);
    check.everything(federation);
    check.problems
}

/// Returns the word in `known` that is most similar to `word`; `None` if none is similar, or if several contain it. Ignores
/// words of more than 64 bytes, because a comparison takes time proportional to the product of the lengths.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let lower = word.to_lowercase();
    let known: Vec<&str> = known.into_iter().filter(|it| it.len() <= LONGEST).collect();
    let containing = containing(word, &known);
    let scored = known.iter().map(|it| (strsim::jaro_winkler(&lower, &it.to_lowercase()), *it));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score > 0.8);
    match (best, &containing[..]) {
        // A mistyped letter or two, not a part of the word.
        (Some((_, best)), _) if strsim::levenshtein(&lower, &best.to_lowercase()) <= 2 => Some(best),
        (_, [only]) => Some(only),
        (best, []) => best.map(|(_, it)| it),
        _ => None,
    }
}

/// Returns the known words that contain `word`, if it is long enough to be a part of a name.
fn containing<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    let lower = word.to_lowercase();
    let contains = |it: &&str| lower.len() > 3 && it.to_lowercase().contains(&lower);
    known.iter().copied().filter(contains).collect()
}

/// Returns the remedy for an unknown word: the most similar known one or, if none is similar, all of them.
pub fn one_of(word: &str, known: &[&str]) -> String {
    match (similar(word, known.iter().copied()), &containing(word, known)[..]) {
        (Some(similar), _) => format!("did you mean `{similar}`?"),
        (None, []) => match known {
            [only] => format!("use `{only}`"),
            _ => format!("use one of: {}", known.join(", ")),
        },
        (None, several) => format!("use one of: {}", several.join(", ")),
    }
}

/// State of a check.
struct Check<'a> {
    spec: &'a FederationSpec,
    /// Number of nodes by cluster.
    nodes: BTreeMap<&'a str, u32>,
    /// Number of nodes in total.
    total: u64,
    links: Links,
    /// Whether the numbers of nodes and storage servers are valid, so that other values may be compared with them.
    sized: bool,
    /// Names of the processes, once a check has needed them. Valid only if `sized`.
    names: OnceCell<Names>,
    /// Number of faults drawn for `mtbf` entries so far.
    drawn: usize,
    problems: Vec<Problem>,
}

impl<'a> Check<'a> {
    fn new(spec: &'a FederationSpec) -> Check<'a> {
        Check {
            spec,
            nodes: spec.clusters.iter().map(|it| (it.name.as_str(), it.nodes)).collect(),
            total: spec.clusters.iter().map(|it| u64::from(it.nodes)).sum(),
            links: spec.links(),
            sized: true,
            names: OnceCell::new(),
            drawn: 0,
            problems: Vec::new(),
        }
    }

    fn everything(&mut self, federation: &Federation) {
        self.name(federation.metadata.name.as_deref());
        self.clusters();
        self.presence();
        self.links();
        self.stated_protocol();
        self.protocol();
        self.family();
        self.application();
        self.failures();
        self.faults();
        self.processes_that_never_return();
        self.deadline();
        self.expectations();
        self.kubernetes(federation.metadata.name.as_deref());
        self.simulator();
        if let Some(system) = self.spec.application.system() {
            self.system(system);
        }
    }

    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>, help: impl Into<String>) {
        self.add(Problem { path: path.into(), message: message.into(), help: help.into() });
    }

    fn add(&mut self, problem: Problem) {
        if !self.has_max_problems() {
            self.problems.push(problem);
        }
    }

    fn has_max_problems(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| Names::of(self.spec))
    }

    fn name(&mut self, name: Option<&str>) {
        match name {
            None | Some("") => {
                self.problem("metadata", "the federation has no name", "add a name: `metadata: { name: … }`");
            }
            Some(name) if !is_name(name) => self.problem(
                "metadata.name",
                format!("`{name}` is not a valid name for a federation"),
                NAME_HELP,
            ),
            Some(_) => {}
        }
    }

    fn clusters(&mut self) {
        if self.spec.clusters.is_empty() {
            self.problem(
                "spec.clusters",
                "the federation has no clusters",
                "add one, such as `clusters: [{ name: paris, nodes: 3 }]`",
            );
        }
        self.at_most_entries("spec.clusters", self.spec.clusters.len(), MAX_CLUSTERS);
        let mut seen = BTreeSet::new();
        let mut total: u32 = 0;
        for (index, cluster) in self.spec.clusters.iter().enumerate() {
            let path = format!("spec.clusters[{index}]");
            let name = &cluster.name;
            if !is_name(name) {
                self.problem(
                    format!("{path}.name"),
                    format!("`{name}` is not a valid name for a cluster"),
                    NAME_HELP,
                );
            } else if is_reserved(name) {
                self.problem(
                    format!("{path}.name"),
                    format!("a cluster must not be named `{name}`"),
                    "choose another name; this one is reserved",
                );
            } else if !seen.insert(name) {
                self.problem(
                    format!("{path}.name"),
                    format!("the name `{name}` is used by more than one cluster"),
                    "give each cluster a unique name",
                );
            }
            self.sized &= (1..=MAX_NODES_PER_CLUSTER).contains(&cluster.nodes);
            match cluster.nodes {
                0 => self.problem(
                    format!("{path}.nodes"),
                    format!("cluster `{name}` has no nodes"),
                    "write at least 1, or remove the cluster",
                ),
                nodes if nodes > MAX_NODES_PER_CLUSTER => self.problem(
                    format!("{path}.nodes"),
                    format!("cluster `{name}` has too many nodes ({nodes})"),
                    format!("write at most {MAX_NODES_PER_CLUSTER}; a federation has at most {MAX_NODES}"),
                ),
                nodes => total = total.saturating_add(nodes),
            }
            if let Some(rack) = cluster.rack.filter(|it| !(1..=MAX_NODES_PER_CLUSTER).contains(it)) {
                self.problem(
                    format!("{path}.rack"),
                    format!("a rack cannot have {rack} nodes"),
                    format!("write a number between 1 and {MAX_NODES_PER_CLUSTER}, or omit it"),
                );
            }
        }
        if total > MAX_NODES {
            self.problem(
                "spec.clusters",
                format!("the federation has too many nodes ({total})"),
                format!("reduce the total to at most {MAX_NODES}"),
            );
        } else if total > MAX_NODES_ALONE && self.spec.scope() == Some(Scope::Process) {
            let protocol = self.spec.protocol.name();
            self.problem(
                "spec.clusters",
                format!("under `{protocol}`, processes roll back individually, and {total} are too many"),
                format!("reduce the number of nodes to at most {MAX_NODES_ALONE} in total, or choose a protocol whose clusters roll back as a whole"),
            );
        }
    }

    fn links(&mut self) {
        let links = self.links.clone();
        self.link("spec.links.within", &links.within.unwrap_or_default(), links.within());
        self.link("spec.links.between", &links.between.unwrap_or_default(), links.between());
        self.at_most_entries("spec.links.pairs", links.pairs.len(), MAX_PAIRS);
        let mut seen = BTreeSet::new();
        for (index, pair) in links.pairs.iter().enumerate() {
            let path = format!("spec.links.pairs[{index}]");
            self.cluster(&format!("{path}.from"), &pair.from);
            self.cluster(&format!("{path}.to"), &pair.to);
            if !seen.insert((&pair.from, &pair.to)) {
                self.problem(
                    path.clone(),
                    format!("there are two entries for the link from `{}` to `{}`", pair.from, pair.to),
                    "keep one of the two entries",
                );
            }
            let class = if pair.from == pair.to { links.within() } else { links.between() };
            self.link(&path, &pair.link(), pair.link().over(class));
        }
    }

    fn at_most_entries(&mut self, path: &str, entries: usize, limit: usize) {
        if entries > limit {
            self.problem(path, format!("too many entries ({entries})"), format!("list at most {limit}"));
        }
    }

    /// Checks that the properties of a link are possible, and can be confirmed.
    fn link(&mut self, path: &str, stated: &Link, properties: LinkProperties) {
        self.jitter(path, stated, properties);
        let by_kernel = self.spec.kubernetes.as_ref().is_some_and(|it| it.links == Some(Emulation::Tc));
        if let Some(reason) = stated.loss.filter(|_| by_kernel).and_then(Loss::unconfirmed_by_kernel) {
            let most = Loss::MOST_BY_KERNEL;
            let help = format!("write at most {most}, or set `kubernetes.links` to `inNode`");
            self.problem(format!("{path}.loss"), reason, help);
        }
    }

    /// Checks that delays cannot be negative.
    fn jitter(&mut self, path: &str, stated: &Link, properties: LinkProperties) {
        let LinkProperties { latency, jitter, .. } = properties;
        if jitter > latency {
            let field = if stated.jitter.is_some() { "jitter" } else { "latency" };
            self.problem(
                format!("{path}.{field}"),
                format!(
                    "the jitter ({}) exceeds the latency ({}), so delays could be negative",
                    Duration(jitter),
                    Duration(latency)
                ),
                "choose a jitter no larger than the latency",
            );
        }
    }

    /// Returns whether `name` is the name of a cluster; reports a problem if it is not.
    fn cluster(&mut self, path: &str, name: &str) -> bool {
        let exists = self.nodes.contains_key(name);
        if !exists && !self.has_max_problems() {
            let known: Vec<&str> = self.nodes.keys().copied().collect();
            // Invalid names have to change anyway.
            let valid = known.iter().copied().take(MAX_CLUSTERS).filter(|it| is_name(it));
            let help = match similar(name, valid) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => match known[..] {
                    [only] => format!("the only cluster is `{only}`"),
                    _ => format!("the clusters are: {}", listed(&known)),
                },
            };
            self.problem(path, format!("there is no cluster `{name}`"), help);
        }
        exists
    }

    fn protocol(&mut self) {
        let path = format!("spec.protocol.{}", self.spec.protocol.field());
        if let ProtocolSpec::Custom(it) = &self.spec.protocol {
            let problem = it.problem_of_protocol(self.spec);
            // The parameters determine which processes there are outside the clusters.
            self.sized &= problem.is_none();
            self.custom(&path, problem);
        }
        if let Some(program) = self.spec.protocol.program() {
            self.custom(&path, program.problem());
        }
        let Some(checkpointing) = self.spec.protocol.checkpointing() else { return };
        let has_tau =
            matches!(self.spec.protocol, ProtocolSpec::Tic(_) | ProtocolSpec::Sel(_) | ProtocolSpec::Cck(_));
        let every = if has_tau { "tau" } else { "checkpointEvery" };
        self.period(&format!("{path}.{every}"), checkpointing.every, !has_tau);
        self.period(&format!("{path}.collectEvery"), checkpointing.collect_every, true);
        for (cluster, period) in &self.spec.protocol.shared_options().checkpoint_every_in {
            let path = format!("{path}.checkpointEveryIn.{cluster}");
            self.cluster(&path, cluster);
            self.period(&path, period.0, true);
        }
        if let ProtocolSpec::Cck(cck) = &self.spec.protocol {
            self.servers(&path, cck.servers, checkpointing.replicate_to);
        }
        let (protocol, application) = (&self.spec.protocol, &self.spec.application);
        match application {
            ApplicationSpec::Salted(_) if protocol.demand() != Demand::Nothing => {
                self.problem(
                    "spec.application.salted",
                    format!(
                        "re-executions send different messages, but `{}` requires them to send the same ones",
                        self.spec.protocol.name()
                    ),
                    "choose a send-deterministic application, such as `heat`, or the protocol `hc3i`",
                );
            }
            ApplicationSpec::Farm(_) if protocol.relies_on_repetition() => {
                self.problem(
                    "spec.application.farm",
                    format!(
                        "the order of the answers determines which worker gets a piece of work, but `{}` requires a \
                         program that sends the same messages in any order of arrival",
                        self.spec.protocol.name()
                    ),
                    "choose a send-deterministic application, such as `heat`, or the protocol `pessimisticLogging` or `hc3i`",
                );
            }
            ApplicationSpec::Program(it)
                if it.receives() == Receives::Any && protocol.relies_on_repetition() =>
            {
                self.problem(
                    "spec.application.program.receives",
                    format!(
                        "with `any`, the order of arrival may determine what {} sends, but `{}` requires a program that \
                         sends the same messages in any order of arrival",
                        it.name(),
                        protocol.name()
                    ),
                    "use `byRank`, and name the senders in each receiving step, or choose the protocol \
                     `pessimisticLogging` or `hc3i`",
                );
            }
            _ => {}
        }
        self.replicas(&path, checkpointing.replicas, checkpointing.replicate_to);
    }

    /// Reports the problem, if any, with a protocol or an application from another crate.
    fn custom(&mut self, path: &str, problem: Option<(String, String, String)>) {
        if let Some((parameter, message, help)) = problem {
            let path = if parameter.is_empty() { path.to_owned() } else { format!("{path}.{parameter}") };
            self.problem(path, message, help);
        }
    }

    /// Checks the period of a timer. Some options permit disabling the timer.
    fn period(&mut self, path: &str, period: Option<Span>, can_be_disabled: bool) {
        if let Some(period) = period.filter(|it| *it < Span::from_millis(1)) {
            let help = match can_be_disabled {
                true => "write a longer time, or `never` to disable the timer",
                false => "write a longer time",
            };
            let message =
                format!("the interval of a timer must be at least 1ms (found {})", Duration(period));
            self.problem(path, message, help);
        }
    }

    fn replicas(&mut self, path: &str, replicas: u32, to: ReplicateTo) {
        const MOST: u32 = 16;
        let path = format!("{path}.replicas");
        if replicas > MOST {
            self.problem(path, format!("too many replicas ({replicas})"), format!("write at most {MOST}"));
            return;
        }
        if replicas == 0 || !self.sized || self.spec.clusters.is_empty() {
            return;
        }
        match to {
            ReplicateTo::SameCluster => {
                let smallest = self.spec.clusters.iter().min_by_key(|it| it.nodes);
                if let Some(cluster) = smallest.filter(|it| it.nodes <= replicas) {
                    let message = format!(
                        "`replicas: {replicas}` needs {} nodes per cluster, but cluster `{}` has {}",
                        replicas + 1,
                        cluster.name,
                        cluster.nodes
                    );
                    self.problem(path, message, "add nodes, reduce `replicas`, or change `replicateTo`");
                }
            }
            ReplicateTo::OtherCluster if self.spec.clusters.len() < 2 => self.problem(
                path.replace(".replicas", ".replicateTo"),
                "there is no other cluster for the replicas",
                "add a cluster, or write `replicateTo: sameCluster` or `replicateTo: sharedStorage`",
            ),
            // Each replica is kept in a different cluster.
            ReplicateTo::OtherCluster if replicas as usize >= self.spec.clusters.len() => {
                let others = self.spec.clusters.len() - 1;
                self.problem(
                    path,
                    format!("`replicas: {replicas}` needs {replicas} other clusters (found {others})"),
                    "add clusters, or reduce `replicas`",
                );
            }
            ReplicateTo::OtherCluster => self.enough_holders_stay(path, replicas),
            ReplicateTo::SharedStorage if replicas as usize > self.storage_servers() => self.problem(
                path,
                format!(
                    "with one storage server, more than one replica adds no protection (found {replicas})"
                ),
                "write `replicas: 1`",
            ),
            ReplicateTo::SharedStorage => {}
        }
    }

    /// Checks the number of storage servers.
    fn servers(&mut self, path: &str, servers: Option<u32>, to: ReplicateTo) {
        let Some(servers) = servers else { return };
        let path = format!("{path}.servers");
        if !SERVERS.contains(&servers) {
            self.problem(
                path,
                format!("`servers` is {servers}, which is out of range"),
                format!("write a number from {} to {}", SERVERS.start(), SERVERS.end()),
            );
            // Without a valid number of storage servers, the processes of the federation are unknown.
            self.sized = false;
        } else if to != ReplicateTo::SharedStorage {
            self.problem(
                path,
                "without shared storage, there are no storage servers",
                "write `replicateTo: sharedStorage`, or omit `servers`",
            );
        }
    }

    fn storage_servers(&self) -> usize {
        self.spec.extra_processes().iter().filter(|it| **it == Role::STORAGE_SERVER).count()
    }

    fn failures(&mut self) {
        let detect_after = self.spec.detect_after();
        if detect_after < MIN_DETECT_AFTER {
            self.problem(
                "spec.failures.detectAfter",
                format!(
                    "{} is too short to distinguish a failed process from a slow one",
                    Duration(detect_after)
                ),
                format!("write at least {}", Duration(MIN_DETECT_AFTER)),
            );
        }
        let spares = self.spec.failures().spares();
        if spares > MAX_SPARES {
            self.problem(
                "spec.failures.spares",
                format!("there are too many spares ({spares})"),
                format!("write at most {MAX_SPARES}"),
            );
        } else if spares > 0 && self.spec.protocol.checkpointing().is_some_and(|it| it.replicas == 0) {
            self.problem(
                "spec.failures.spares",
                "a process that moves to a spare node finds no checkpoint there, because there are no replicas",
                "set `replicas` of the protocol to at least 1, or `spares` to 0",
            );
        }
        if self.spec.failures().at_once_within() == Span::ZERO {
            self.problem(
                "spec.failures.atOnceWithin",
                "`atOnceWithin` must not be 0s: real processes never end at exactly the same time",
                "write a duration above zero, such as `50ms`",
            );
        }
        let (replace_after, deadline) = (self.spec.failures().replace_after, self.spec.deadline());
        if let Some(replace_after) = replace_after.filter(|it| it.0 >= deadline) {
            self.problem(
                "spec.failures.replaceAfter",
                format!(
                    "a silent pod would be replaced after {replace_after}, but the deadline of the run is {}",
                    Duration(deadline)
                ),
                "choose a time shorter than `spec.deadline`",
            );
        }
    }

    fn deadline(&mut self) {
        let deadline = self.spec.deadline();
        if deadline == Span::ZERO {
            self.problem("spec.deadline", "the deadline must not be 0", "write a duration above zero");
            return;
        }
        if let Some(computing) = self.spec.application.computing_time().filter(|it| *it >= deadline) {
            self.problem(
                "spec.deadline",
                format!(
                    "the application computes for {}, but the deadline of the run is {}",
                    match computing {
                        it if it > Duration::MAX.0 => format!("more than {}", Duration::MAX),
                        it => Duration(it).to_string(),
                    },
                    Duration(deadline)
                ),
                match computing < Duration::MAX.0 {
                    true => "extend the deadline, or shorten the application",
                    false => "shorten the application; a deadline cannot be longer than 3650d",
                },
            );
        }
    }

    /// Returns the remedy for a time that is not before the deadline.
    fn too_late(at: Span) -> &'static str {
        match at < Duration::MAX.0 {
            true => "choose an earlier time, or extend `deadline`",
            false => "choose an earlier time",
        }
    }

    fn simulator(&mut self) {
        let simulator = self.spec.simulator();
        if let Some(cores) = simulator.handling.and_then(|it| it.cores).filter(|it| !(1..=1024).contains(it))
        {
            self.problem(
                "spec.simulator.handling.cores",
                format!("{cores} is not a valid number of cores"),
                "write 1 to 1024, or omit the field to give each process its own core",
            );
        }
        let percent = simulator.least_work_left.unwrap_or(0);
        if percent > 100 {
            self.problem(
                "spec.simulator.leastWorkLeft",
                format!("{percent} is not a percentage from 0 to 100"),
                "write 0 to 100",
            );
        }
    }
}

/// Names that no cluster may have: they are keywords, or names of other pods. The pods of the processes
/// `storage-server.1` and so on have names with [`SERVER`] and a number, which no cluster may have either.
pub(crate) const RESERVED: &[&str] =
    &[ANY, "outside", "supervisor", SERVER, "recovery-process", "event-logger"];
/// Name of the first storage server.
pub(crate) const SERVER: &str = "storage-server";

/// Returns whether no cluster may have this name.
fn is_reserved(name: &str) -> bool {
    let number = name.strip_prefix(SERVER).and_then(|it| it.strip_prefix('-'));
    RESERVED.contains(&name) || number.is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()))
}

/// Returns the names as text. If there are many, lists only the first ones.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let first: Vec<&str> = names.iter().take(MAX_LISTED).map(AsRef::as_ref).collect();
    match names.len() - first.len() {
        0 => first.join(", "),
        others => format!("{} and {others} more", first.join(", ")),
    }
}

pub(crate) const NAME_HELP: &str =
    "use at most 40 lower-case letters, digits and hyphens; start with a letter and do not end with a hyphen";

/// Returns whether `name` can be part of the names of Kubernetes objects and of processes.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= 40
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(allowed)
}
