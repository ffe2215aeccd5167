//! Division of a graph into a given number of parts of about the same size.

use crate::bisect;
use crate::graph::CommunicationGraph;

/// Divides a graph into `parts` parts with little traffic between them, none larger than necessary. Returns the part of
/// each node. Every part has at least one node.
///
/// # Panics
///
/// Panics if the graph has fewer nodes than parts, or if there are no parts.
pub fn parts(graph: &CommunicationGraph, parts: usize) -> Vec<u32> {
    assert!(parts > 0 && graph.len() >= parts, "{} nodes cannot form {parts} parts", graph.len());
    let most = graph.len().div_ceil(parts);
    let mut part_of = bisect::into(graph, parts, most);
    bisect::exchange(graph, &mut part_of, most);
    part_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_nodes_and_none_is_larger_than_necessary() {
        for nodes in 1..40 {
            let mut graph = CommunicationGraph::new((0..nodes).map(|it| it.to_string()).collect());
            for it in 1..nodes {
                graph.add(it - 1, it, 1, 1);
                graph.add(it / 2, it, 1, 1);
            }
            for count in 1..=nodes {
                let part_of = parts(&graph, count);
                let sizes: Vec<usize> =
                    (0..count as u32).map(|part| part_of.iter().filter(|it| **it == part).count()).collect();
                assert_eq!(sizes.iter().sum::<usize>(), nodes);
                let fits = |it: &usize| (1..=nodes.div_ceil(count)).contains(it);
                assert!(sizes.iter().all(fits), "{nodes} into {count}: {sizes:?}");
            }
        }
    }
}
