//! A graph as chunks: an index, followed by one chunk for each existing value, so that images share unchanged
//! values.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Chunk, ProcessId, TaskId, Theft};
use serde::Serialize;

use super::Graph;
use super::part::{Part, Vertex};

/// The encoded form of a graph, with the same fields in the same order. Only the ready tasks differ:
/// they include the executing ones.
#[derive(Serialize)]
struct Saved<'a> {
    parts: &'a BTreeMap<Theft, Part>,
    ready: Vec<(Theft, TaskId)>,
    loans: &'a BTreeMap<Theft, (Theft, Vertex)>,
    absorbed: &'a BTreeSet<ProcessId>,
}

impl Graph {
    /// Returns the graph as chunks. Executing tasks are saved as not started, and are the next to run.
    ///
    /// # Panics
    ///
    /// Panics if the graph cannot be encoded, which would be a bug.
    pub fn save(&self) -> Arc<[Chunk]> {
        let executing = self.parts.iter().flat_map(|(theft, part)| {
            part.tasks.values().filter(|it| it.is_executing).map(|it| (*theft, it.task()))
        });
        let ready = self.ready.iter().copied().chain(executing).collect();
        let saved = Saved { parts: &self.parts, ready, loans: &self.loans, absorbed: &self.absorbed };
        let index = postcard::to_allocvec(&saved).expect("a graph can be encoded");
        let values =
            self.parts.values().flat_map(|part| part.data.values()).filter_map(|it| it.chunk.clone());
        core::iter::once(Chunk::Bytes(index.into())).chain(values).collect()
    }

    /// Loads a graph that was saved as these chunks.
    ///
    /// # Panics
    ///
    /// Panics if the chunks were not made by [`Graph::save`]. The storage detects corruption before the chunks are
    /// loaded.
    pub fn load(chunks: &[Chunk]) -> Graph {
        let Some((Chunk::Bytes(index), values)) = chunks.split_first() else {
            panic!("a saved graph begins with its index")
        };
        let mut graph: Graph = postcard::from_bytes(index).expect("a saved graph can be decoded");
        let mut values = values.iter();
        for datum in graph.parts.values_mut().flat_map(|part| part.data.values_mut()) {
            if let Some(chunk) = &mut datum.chunk {
                *chunk = values.next().expect("a saved graph has all its values").clone();
            }
        }
        graph
    }
}

/// Serializes only whether a value exists; the value itself has its own chunk.
pub(super) mod presence {
    use faultline_core::Chunk;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::graph) fn serialize<S: Serializer>(
        chunk: &Option<Chunk>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_bool(chunk.is_some())
    }

    pub(in crate::graph) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Chunk>, D::Error> {
        Ok(bool::deserialize(from)?.then_some(Chunk::Virtual(0)))
    }
}
