//! Checks for values that an API server would reject in the objects of a federation.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::{Check, Problem, is_name};
use crate::names::in_objects;
use crate::quantity::{Cores, Size};
use crate::resource::{
    Comparison, Emulation, FederationSpec, Kubernetes, MAX_PULL_SECRETS, Resources, Toleration,
};

/// Maximum length of a StatefulSet's name that keeps its pods' labels within 63 characters.
pub(crate) const MAX_STATEFUL_SET: usize = 52;
/// Minimum size of a volume, in bytes.
const SMALLEST_VOLUME: u64 = 1 << 20;
/// Minimum memory of a process's pod, in bytes.
const SMALLEST_NODE: u64 = 16 << 20;
/// Minimum memory of the supervisor's pod, in bytes.
const SMALLEST_SUPERVISOR: u64 = 64 << 20;
/// Maximum length of a label's value, and of the name of a label or a taint without its domain.
const MAX_LABEL: usize = 63;
/// Maximum length of the name of an image, without its tag and its digest.
const MAX_IMAGE: usize = 255;
/// Maximum length of a domain, and of the name of a class.
const MAX_DOMAIN: usize = 253;
/// Largest ID of a user.
const MAX_USER: u32 = i32::MAX as u32;
/// Maximum number of labels that select Kubernetes nodes.
const MAX_SELECTED: usize = 16;
/// Maximum number of tolerations.
const MAX_TOLERATIONS: usize = 16;
const LABEL_HELP: &str =
    "use at most 63 letters, digits, hyphens, dots and underscores; start and end with a letter or digit";
const KEY_HELP: &str = "use at most 63 letters, digits, hyphens, dots and underscores, starting and ending with a letter or digit; \
     a domain and a slash may precede them, as in `example.com/gpu`";
/// Label by which `pools` selects Kubernetes nodes.
const POOL: &str = "faultline.dev/pool";

impl Check<'_> {
    pub(super) fn kubernetes(&mut self, federation: Option<&str>) {
        if let Some(federation) = federation.filter(|it| is_name(it)) {
            self.sets_of_clusters(federation);
            self.sets_outside(federation);
        }
        let Some(kubernetes) = &self.spec.kubernetes else { return };
        for (cluster, pool) in &kubernetes.pools {
            let path = format!("spec.kubernetes.pools.{cluster}");
            self.cluster(&path, cluster);
            if !is_label(pool) {
                self.problem(path, format!("`{pool}` is not a valid label value"), LABEL_HELP);
            }
        }
        for (cluster, site) in &kubernetes.sites {
            let path = format!("spec.kubernetes.sites.{cluster}");
            self.cluster(&path, cluster);
            self.nodes_for_pods(&path, &site.node_selector, &site.tolerations);
            let pinned = kubernetes.pools.contains_key(cluster);
            if pinned && site.node_selector.contains_key(POOL) {
                self.problem(
                    format!("{path}.nodeSelector"),
                    format!("`pools` already uses the label `{POOL}`"),
                    format!("remove it here, or remove `spec.kubernetes.pools.{cluster}`"),
                );
            }
        }
        self.images(kubernetes);
        self.nodes_for_pods("spec.kubernetes", &kubernetes.node_selector, &kubernetes.tolerations);
        if let Some(class) = &kubernetes.priority_class {
            self.class("spec.kubernetes.priorityClass", class);
        }
        let resources = kubernetes.resources.unwrap_or_default();
        self.resources("resources", &resources, "a node", SMALLEST_NODE);
        let supervisor = kubernetes.supervisor.unwrap_or_default();
        self.resources("supervisor", &supervisor, "the supervisor", SMALLEST_SUPERVISOR);
        for (path, volume) in [("volumes", &kubernetes.volumes), ("results", &kubernetes.results)] {
            let Some(volume) = volume else { continue };
            if volume.size.0 < SMALLEST_VOLUME {
                self.problem(
                    format!("spec.kubernetes.{path}.size"),
                    format!("the volume is too small (found {})", volume.size),
                    "write at least 1MiB",
                );
            }
            if let Some(class) = &volume.storage_class {
                self.class(&format!("spec.kubernetes.{path}.storageClass"), class);
            }
        }
    }

    /// Checks the images with the commands of a system, and how they are run.
    fn images(&mut self, kubernetes: &Kubernetes) {
        let is_system = self.spec.application.system().is_some();
        let has_program = self.spec.protocol.program().is_some() || self.spec.application.program().is_some();
        for (path, image) in kubernetes.images() {
            if !is_system {
                let help = match has_program {
                    true => {
                        "omit it, and add the program's command to the operator's `--node-image` (docs/programs.md)"
                    }
                    false => "omit it; the operator's `--node-image` contains everything else that pods run",
                };
                let message =
                    format!("only the commands of a system run in an image of their own (found `{image}`)");
                self.problem(path, message, help);
            } else if let Some(help) = unfit_image(image) {
                self.problem(path, format!("`{image}` is not the name of an image"), help);
            }
        }
        self.at_most_entries(
            "spec.kubernetes.imagePullSecrets",
            kubernetes.image_pull_secrets.len(),
            MAX_PULL_SECRETS,
        );
        let secrets = kubernetes.image_pull_secrets.iter().enumerate();
        for (index, secret) in secrets.filter(|it| !is_domain(it.1)) {
            let message = format!("`{secret}` is not a valid name for a secret");
            let path = format!("spec.kubernetes.imagePullSecrets[{index}]");
            self.problem(path, message, "write the name of a secret of the namespace");
        }
        if kubernetes.run_as.is_some_and(|it| !(1..=MAX_USER).contains(&it)) {
            let message = "the commands of a system must not run as this user";
            self.problem("spec.kubernetes.runAs", message, format!("write a number from 1 to {MAX_USER}"));
        }
    }

    /// Checks the resources of a pod for `purpose`, which needs at least `smallest` bytes of memory.
    fn resources(&mut self, field: &str, resources: &Resources, purpose: &str, smallest: u64) {
        for (name, cores, verb) in
            [("cpu", resources.cpu, "request"), ("cpuLimit", resources.cpu_limit, "be limited to")]
        {
            if let Some(Cores { millis: 0 }) = cores {
                self.problem(
                    format!("spec.kubernetes.{field}.{name}"),
                    format!("a pod cannot {verb} 0 cores"),
                    "write a number between `1m` and 1024",
                );
            }
        }
        if let (Some(cpu), Some(limit)) = (resources.cpu, resources.cpu_limit)
            && cpu > limit
        {
            self.problem(
                format!("spec.kubernetes.{field}.cpuLimit"),
                format!("`cpuLimit` ({limit}) is less than `cpu` ({cpu})"),
                "raise `cpuLimit`, or reduce `cpu`",
            );
        }
        if let Some(memory) = resources.memory.filter(|it| it.0 < smallest) {
            self.problem(
                format!("spec.kubernetes.{field}.memory"),
                format!("the memory is too small for {purpose} (found {memory})"),
                format!("write at least {}", Size(smallest)),
            );
        }
    }

    /// Checks the length of the names of the clusters' StatefulSets.
    fn sets_of_clusters(&mut self, federation: &str) {
        for (index, cluster) in self.spec.clusters.iter().enumerate() {
            if federation.len() + 1 + cluster.name.len() > MAX_STATEFUL_SET {
                self.problem(
                    format!("spec.clusters[{index}].name"),
                    format!("`{federation}-{}` is too long for the names of pods", cluster.name),
                    format!(
                        "shorten one of the two names: together, they may have at most {} characters",
                        MAX_STATEFUL_SET - 1
                    ),
                );
            }
        }
    }

    /// Checks the length of the names of the StatefulSets for the processes outside the clusters.
    fn sets_outside(&mut self, federation: &str) {
        if !self.sized {
            return;
        }
        // The first of the longest names.
        let extra = self.names().extra().iter().rev();
        let Some(longest) = extra.max_by_key(|it| it.len()) else { return };
        let set = format!("{federation}-{}", in_objects(longest));
        if let Some(excess @ 1..) = set.len().checked_sub(MAX_STATEFUL_SET) {
            self.problem(
                "metadata.name",
                format!("`{set}` is too long for the names of pods"),
                format!(
                    "shorten the name of the federation to at most {} characters",
                    federation.len().saturating_sub(excess)
                ),
            );
        }
    }

    /// Checks the labels and taints of the Kubernetes nodes on which pods may run.
    fn nodes_for_pods(
        &mut self,
        path: &str,
        node_selector: &BTreeMap<String, String>,
        tolerations: &[Toleration],
    ) {
        let selector = format!("{path}.nodeSelector");
        self.at_most_entries(&selector, node_selector.len(), MAX_SELECTED);
        for (label, value) in node_selector {
            if !is_key(label) {
                self.problem(
                    selector.as_str(),
                    format!("`{label}` is not a valid name for a label"),
                    KEY_HELP,
                );
            }
            if !value.is_empty() && !is_label(value) {
                self.problem(
                    selector.as_str(),
                    format!("`{value}` is not a valid value for the label `{label}`"),
                    LABEL_HELP,
                );
            }
        }
        self.at_most_entries(&format!("{path}.tolerations"), tolerations.len(), MAX_TOLERATIONS);
        for (index, toleration) in tolerations.iter().enumerate() {
            self.toleration(&format!("{path}.tolerations[{index}]"), toleration);
        }
    }

    fn toleration(&mut self, path: &str, toleration: &Toleration) {
        let compares = toleration.operator != Some(Comparison::Exists);
        match toleration.key.as_deref().unwrap_or_default() {
            "" if compares => self.problem(
                path,
                "a toleration without a key requires `operator: Exists`",
                "add `key`, or write `operator: Exists` to tolerate every taint",
            ),
            "" => {}
            key if !is_key(key) => self.problem(
                format!("{path}.key"),
                format!("`{key}` is not a valid name for a taint"),
                KEY_HELP,
            ),
            _ => {}
        }
        match toleration.value.as_deref() {
            Some(value) if !compares => self.problem(
                format!("{path}.value"),
                format!("`operator: Exists` does not allow a value (found `{value}`)"),
                "remove `value`, or write `operator: Equal`",
            ),
            Some(value) if !value.is_empty() && !is_label(value) => self.problem(
                format!("{path}.value"),
                format!("`{value}` is not a valid value for a taint"),
                LABEL_HELP,
            ),
            _ => {}
        }
    }

    /// Checks the name of a priority class or a storage class.
    fn class(&mut self, path: &str, name: &str) {
        if !is_domain(name) {
            self.problem(
                path,
                format!("`{name}` is not a valid name for a class"),
                format!(
                    "use at most {MAX_DOMAIN} lower-case letters, digits, hyphens and dots, with a letter or digit at both \
                     ends and next to each dot; omit the field for the default class"
                ),
            );
        }
    }
}

/// Returns whether `text` is a valid name for a label or a taint: a name, after a domain and a slash if there is one.
fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_label(name),
        None => is_label(text),
    }
}

/// Returns whether `text` is a domain, which is also the form of the names of most Kubernetes objects.
fn is_domain(text: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_DOMAIN && text.split('.').all(|part| is_word(part, is_outer, "-"))
}

fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_word(text, |c| c.is_ascii_alphanumeric(), "-_.")
}

/// Returns how to write the name of an image if `text` is none that container runtimes accept.
fn unfit_image(text: &str) -> Option<String> {
    // The grammar of the distribution specification's reference implementation.
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        let part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
        let label = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
        let name = format!(r"(?:{label}(?:\.{label})*(?::[0-9]+)?/)?{part}(?:/{part})*");
        let suffixes =
            "(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,})?";
        Regex::new(&format!("^({name}){suffixes}$")).expect("the expression is valid")
    });
    match NAME.captures(text) {
        Some(parts) if parts[1].len() <= MAX_IMAGE => None,
        Some(_) => Some(format!("use at most {MAX_IMAGE} characters before the tag")),
        None => Some(
            "write a name such as `registry.example/etcd:3.5`: lower-case letters, digits and separators, and a tag of at \
             most 128 characters"
                .to_owned(),
        ),
    }
}

/// Returns whether `text` begins and ends with an outer character, and contains only these and `marks`.
fn is_word(text: &str, is_outer: impl Fn(char) -> bool, marks: &str) -> bool {
    text.chars().all(|c| is_outer(c) || marks.contains(c))
        && text.starts_with(&is_outer)
        && text.ends_with(&is_outer)
}

/// The faults of systems that are not supported in pods.
const ONLY_ON_THIS_MACHINE: [&str; 3] = ["stop", "restart", "slow"];

/// Returns what prevents a valid federation from running in pods, although it can run elsewhere.
pub fn unfit_for_pods(spec: &FederationSpec) -> Vec<Problem> {
    if spec.application.system().is_none() {
        return Vec::new();
    }
    let kubernetes = spec.kubernetes.clone().unwrap_or_default();
    let mut problems = Vec::new();
    if let Some(it) = spec.clusters.iter().find(|it| kubernetes.image_of(&it.name).is_none()) {
        problems.push(Problem {
            path: "spec.kubernetes.image".to_owned(),
            message: format!("the pods of `{}` have no image with the commands of the system", it.name),
            help: "state an image that contains them".to_owned(),
        });
    }
    if kubernetes.links != Some(Emulation::Tc) && spec.needs_emulated_links() {
        problems.push(Problem {
            path: "spec.kubernetes.links".to_owned(),
            message: "the links between the commands of a system are emulated only by traffic control".to_owned(),
            help: "write `links: tc` here, or choose the preset `none` for all links and omit the faults `link` and \
                   `partition`"
                .to_owned(),
        });
    }
    for (index, fault) in spec.faults.iter().enumerate() {
        for (name, _) in fault.actions().into_iter().filter(|(name, _)| ONLY_ON_THIS_MACHINE.contains(name)) {
            problems.push(Problem {
                path: format!("spec.faults[{index}].{name}"),
                message: format!("`{name}` is not supported in pods"),
                help: "run the federation on one machine (`--backend local`), or use `crash` or `pause`"
                    .to_owned(),
            });
        }
    }
    problems
}
