//! Checks for values that an API server would reject in the objects of a federation.

use std::collections::BTreeMap;

use super::{Check, is_name};
use crate::names::in_objects;
use crate::quantity::Size;
use crate::resource::{Comparison, Toleration};

/// Maximum length of a StatefulSet's name that keeps its pods' labels within 63 characters.
pub(crate) const MAX_STATEFUL_SET: usize = 52;
/// Minimum size of a volume, in bytes.
const SMALLEST_VOLUME: u64 = 1 << 20;
/// Maximum length of a label's value.
const MAX_LABEL: usize = 63;
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
                self.problem(
                    path,
                    format!("`{pool}` is not a valid label value"),
                    "use at most 63 letters, digits, hyphens, dots and underscores; start and end with a letter or digit",
                );
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
        self.nodes_for_pods("spec.kubernetes", &kubernetes.node_selector, &kubernetes.tolerations);
        let resources = kubernetes.resources.unwrap_or_default();
        if resources.cpu().millis == 0 {
            self.problem(
                "spec.kubernetes.resources.cpu",
                format!("a pod cannot request {} cores", resources.cpu()),
                "write a number between `1m` and 1024",
            );
        }
        if resources.memory() < 16 << 20 {
            self.problem(
                "spec.kubernetes.resources.memory",
                format!("the memory is too small for a node (found {})", Size(resources.memory())),
                "write at least 16MiB",
            );
        }
        for (path, volume) in [("volumes", &kubernetes.volumes), ("results", &kubernetes.results)] {
            if let Some(volume) = volume.as_ref().filter(|it| it.size.0 < SMALLEST_VOLUME) {
                self.problem(
                    format!("spec.kubernetes.{path}.size"),
                    format!("the volume is too small (found {})", volume.size),
                    "write at least 1MiB",
                );
            }
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
        let selected = node_selector.iter();
        for (label, value) in selected.filter(|it| !it.1.is_empty() && !is_label(it.1)) {
            self.problem(
                format!("{path}.nodeSelector"),
                format!("`{value}` is not a valid value for the label `{label}`"),
                "use at most 63 letters, digits, hyphens, dots and underscores; start and end with a letter or \
                 digit",
            );
        }
        let absurd = |it: &&Toleration| it.operator == Some(Comparison::Exists) && it.value.is_some();
        if let Some(it) = tolerations.iter().find(absurd) {
            self.problem(
                format!("{path}.tolerations"),
                format!(
                    "`operator: Exists` does not allow a value (found `{}`)",
                    it.value.as_deref().unwrap_or("")
                ),
                "remove `value`, or write `operator: Equal`",
            );
        }
    }
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL
        && text.chars().all(inner)
        && outer(text.chars().next())
        && outer(text.chars().next_back())
}
