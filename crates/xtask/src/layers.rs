//! Checks the direction of dependencies: crates are arranged in layers, and depend only on lower layers. Some
//! dependencies are forbidden even on lower layers.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use cargo_metadata::DependencyKind;

use crate::{Problems, Repository};

/// Crates by layer, lowest first.
const LAYERS: &[&[&str]] = &[
    &["faultline-core"],
    &["faultline-consistency", "faultline-dataflow", "faultline-failures"],
    &[
        "faultline-api",
        "faultline-callers",
        "faultline-clustering",
        "faultline-guard",
        "faultline-protocols",
        "faultline-shaper",
        "faultline-supervisor",
        "faultline-trace",
        "faultline-workloads",
    ],
    &["faultline-history"],
    &["faultline-checker", "faultline-conformance", "faultline-tc", "faultline-tls"],
    &["faultline-report"],
    &["faultline-program", "faultline-runtime", "faultline-sim"],
    &["faultline-catalog", "faultline-client"],
    &["faultline-operator", "faultline-session"],
    &["faultline-view"],
    &[
        "faultline-console",
        "faultline-experiments",
        "faultline-explore",
        "faultline-fuzz",
        "faultline-launch",
    ],
    &[
        "faultline-cli",
        "faultline-e2e",
        "faultline-kubectl",
        "faultline-node",
        "faultline-runtime-tests",
        "xtask",
    ],
];

/// Crates that judge runs, or run in virtual time. They must work without the runtime of real processes and
/// its dependencies.
const WITHOUT_RUNTIME: &[&str] = &[
    "faultline-trace",
    "faultline-history",
    "faultline-checker",
    "faultline-report",
    "faultline-catalog",
    "faultline-session",
    "faultline-experiments",
    "faultline-explore",
    "faultline-fuzz",
];
const RUNTIME: &[&str] = &["faultline-runtime", "tokio", "hyper", "faultline-tc"];

/// Forbidden dependencies of one crate on another, even indirect ones, with the reason.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("faultline-protocols", "tokio", "a protocol does no I/O"),
    ("faultline-workloads", "tokio", "an application does no I/O"),
    ("faultline-dataflow", "tokio", "an application does no I/O"),
    ("faultline-supervisor", "tokio", "the supervisor runs in virtual time too"),
    ("faultline-sim", "tokio", "virtual time has no runtime"),
    ("faultline-sim", "faultline-protocols", "a driver knows processes, not protocols"),
    ("faultline-runtime", "faultline-protocols", "a driver knows processes, not protocols"),
    ("faultline-history", "faultline-protocols", "facts are its only source"),
    ("faultline-history", "faultline-supervisor", "facts are its only source"),
    ("faultline-checker", "faultline-protocols", "the checker shares no code with what it judges"),
    ("faultline-checker", "faultline-supervisor", "the checker shares no code with what it judges"),
    ("faultline-report", "faultline-protocols", "facts are its only source"),
    ("faultline-api", "faultline-protocols", "a protocol is only a value in the resource"),
    ("faultline-operator", "faultline-protocols", "a protocol is only a value in the resource"),
    ("faultline-kubectl", "faultline-operator", "users need a client, not an operator"),
    ("faultline-cli", "faultline-client", "`kubectl-faultline` connects to clusters"),
    ("faultline-cli", "faultline-operator", "`kubectl-faultline` connects to clusters"),
    ("faultline-cli", "k8s-openapi", "the default program knows no objects of Kubernetes"),
    ("faultline-cli", "kube-core", "the default program knows no objects of Kubernetes"),
    ("faultline-cli", "kube-cel", "only tests evaluate the rules of the definition"),
    ("faultline-cli", "rustls", "the default program opens no connection that needs TLS"),
];

/// Features that a crate of the workspace must not request. Cargo builds a single `kube` for the workspace, with the
/// union of all requested features, so its dependencies do not show what one crate requests.
const FEATURES: &[(&str, &str, &[&str], &str)] =
    &[("faultline-client", "kube", &["client", "runtime"], "names need no client")];

/// A dependency of one crate on another.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    /// Whether only tests have the dependency.
    dev: bool,
}

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let resolve = repository.metadata.resolve.as_ref().ok_or("cargo has not resolved the dependencies")?;
    let names: BTreeMap<_, _> =
        repository.metadata.packages.iter().map(|it| (&it.id, it.name.as_str())).collect();
    let mut edges = Vec::new();
    for node in &resolve.nodes {
        for dependency in &node.deps {
            let is = |kind| dependency.dep_kinds.iter().any(|it| it.kind == kind);
            let (from, to) = (names[&node.id], names[&dependency.pkg]);
            let needed = is(DependencyKind::Normal) || is(DependencyKind::Build);
            if from == "kube" && ["kube-client", "kube-runtime"].contains(&to) {
                continue;
            }
            edges.extend(needed.then_some(Edge { from, to, dev: false }));
            edges.extend(is(DependencyKind::Development).then_some(Edge { from, to, dev: true }));
        }
    }
    let members: Vec<&str> =
        repository.metadata.workspace_packages().iter().map(|it| it.name.as_str()).collect();
    let mut problems = judge(LAYERS, &members, &edges);
    for package in repository.metadata.workspace_packages() {
        for it in &package.dependencies {
            problems.extend(judge_features(&package.name, &it.name, &it.features));
        }
    }
    Ok(problems)
}

fn judge_features(from: &str, to: &str, asked: &[String]) -> Option<String> {
    let (_, _, barred, why) = FEATURES.iter().find(|it| (it.0, it.1) == (from, to))?;
    let feature = barred.iter().find(|it| asked.iter().any(|asked| asked == **it))?;
    Some(format!("{from} requests the feature {feature} of {to}: {why}"))
}

fn judge(layers: &[&[&str]], members: &[&str], edges: &[Edge<'_>]) -> Problems {
    let layer = |name: &str| layers.iter().position(|layer| layer.contains(&name));
    let mut problems = Vec::new();
    for member in members.iter().filter(|it| layer(it).is_none()) {
        problems.push(format!("{member} is not in any layer"));
    }
    for Edge { from, to, .. } in edges.iter().filter(|it| !it.dev) {
        if let (Some(above), Some(below)) = (layer(from), layer(to))
            && above <= below
        {
            problems.push(format!("{from} depends on {to}, which is not in a lower layer"));
        }
    }
    for (from, to, why) in FORBIDDEN {
        if reached(from, edges).contains(to) {
            problems.push(format!("{from} depends on {to}: {why}"));
        }
    }
    for from in WITHOUT_RUNTIME {
        let reached = reached(from, edges);
        let met = RUNTIME.iter().filter(|it| reached.contains(*it));
        problems.extend(met.map(|to| {
            format!("{from} depends on {to}, but must work without the runtime of real processes")
        }));
    }
    problems.extend(cycle(members, edges));
    problems
}

/// Returns everything that `start` depends on, directly or indirectly, ignoring dependencies that only tests
/// have.
fn reached<'a>(start: &'a str, edges: &[Edge<'a>]) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(from) = open.pop() {
        for edge in edges.iter().filter(|it| it.from == from && !it.dev) {
            if reached.insert(edge.to) {
                open.push(edge.to);
            }
        }
    }
    reached
}

/// Returns crates that depend on each other, including through tests. Such crates are compiled twice, with
/// incompatible types. A crate that depends on itself for its tests requests a feature, which is fine.
fn cycle(members: &[&str], edges: &[Edge<'_>]) -> Option<String> {
    let mut rest: BTreeSet<&str> = members.iter().copied().collect();
    while !rest.is_empty() {
        let needs_another =
            |name: &str| edges.iter().any(|it| it.from == name && it.to != name && rest.contains(it.to));
        let free: BTreeSet<&str> = rest.iter().copied().filter(|name| !needs_another(name)).collect();
        if free.is_empty() {
            return Some(format!("these crates form a cycle: {}", Vec::from_iter(rest).join(", ")));
        }
        rest.retain(|name| !free.contains(name));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: &[&[&str]] = &[&["core"], &["left", "right"], &["top"]];
    const MEMBERS: &[&str] = &["core", "left", "right", "top"];

    fn problems(edges: &[(&str, &str, bool)]) -> Problems {
        let edges: Vec<Edge<'_>> = edges.iter().map(|&(from, to, dev)| Edge { from, to, dev }).collect();
        judge(LAYERS, MEMBERS, &edges)
    }

    #[test]
    fn lower_layers_are_allowed_and_tests_may_use_their_own_layer() {
        assert_eq!(
            problems(&[("top", "left", false), ("left", "core", false), ("left", "right", true)]),
            [""; 0]
        );
        assert_eq!(problems(&[("left", "left", true)]), [""; 0]);
    }

    #[test]
    fn the_same_and_higher_layers_are_problems() {
        assert_eq!(
            problems(&[("left", "right", false)]),
            ["left depends on right, which is not in a lower layer"]
        );
        assert_eq!(
            problems(&[("core", "top", false)]),
            ["core depends on top, which is not in a lower layer"]
        );
    }

    #[test]
    fn tests_that_close_a_cycle_are_a_problem() {
        let problems = problems(&[("top", "left", false), ("left", "top", true), ("right", "core", false)]);
        assert_eq!(problems, ["these crates form a cycle: left, top"]);
    }

    #[test]
    fn a_crate_without_a_layer_is_a_problem() {
        assert_eq!(judge(LAYERS, &["new"], &[]), ["new is not in any layer"]);
    }

    #[test]
    fn forbidden_features_are_a_problem() {
        let asked =
            |it: &str| judge_features("faultline-client", "kube", &["derive".to_owned(), it.to_owned()]);
        assert_eq!(asked("jsonpatch"), None);
        assert!(asked("client").is_some_and(|it| it.contains("names need no client")));
    }

    #[test]
    fn forbidden_pairs_include_indirect_dependencies() {
        let edge = |from, to| Edge { from, to, dev: false };
        let edges = [edge("faultline-sim", "helper"), edge("helper", "tokio")];
        assert_eq!(judge(&[], &[], &edges), ["faultline-sim depends on tokio: virtual time has no runtime"]);
        let edges = [edge("faultline-fuzz", "helper"), edge("helper", "hyper")];
        assert_eq!(
            judge(&[], &[], &edges),
            ["faultline-fuzz depends on hyper, but must work without the runtime of real processes"]
        );
    }
}
