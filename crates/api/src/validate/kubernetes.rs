//! What an API server would refuse in the objects that a federation becomes.

use super::Check;

/// A StatefulSet's name has at most 52 characters, so that its pods' labels have at most 63.
const MAX_STATEFUL_SET: usize = 52;
/// Bytes of a volume that something fits into.
const SMALLEST_VOLUME: u64 = 1 << 20;
/// Longest value of a label.
const MAX_LABEL: usize = 63;

impl Check<'_> {
    pub(super) fn kubernetes(&mut self, federation: Option<&str>) {
        for (index, cluster) in self.spec.clusters.iter().enumerate() {
            let federation = federation.unwrap_or_default();
            if federation.len() + 1 + cluster.name.len() > MAX_STATEFUL_SET {
                self.problem(
                    format!("spec.clusters[{index}].name"),
                    format!("`{federation}-{}` is too long for the pods of a cluster", cluster.name),
                    format!(
                        "shorten the name of the cluster or of the federation: together at most {} characters",
                        MAX_STATEFUL_SET - 1
                    ),
                );
            }
        }
        let Some(kubernetes) = &self.spec.kubernetes else { return };
        for (cluster, pool) in &kubernetes.pools {
            let path = format!("spec.kubernetes.pools.{cluster}");
            self.cluster(&path, cluster);
            if !is_label(pool) {
                self.problem(
                    path,
                    format!("`{pool}` cannot be the value of a label"),
                    "use at most 63 letters, digits, dashes, dots and underscores, the first and last no punctuation",
                );
            }
        }
        let resources = kubernetes.resources.unwrap_or_default();
        if !(0.001..=1024.0).contains(&resources.cpu()) {
            self.problem(
                "spec.kubernetes.resources.cpu",
                format!("{} cores cannot be set aside for a pod", resources.cpu()),
                "write a number between 0.001 and 1024",
            );
        }
        if resources.memory() < 16 << 20 {
            self.problem(
                "spec.kubernetes.resources.memory",
                "a node does not fit into so little memory",
                "write at least 16MiB",
            );
        }
        for (path, volume) in [("volumes", &kubernetes.volumes), ("results", &kubernetes.results)] {
            if volume.as_ref().is_some_and(|it| it.size.0 < SMALLEST_VOLUME) {
                self.problem(
                    format!("spec.kubernetes.{path}.size"),
                    "nothing fits into so small a volume",
                    "write at least 1MiB",
                );
            }
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
