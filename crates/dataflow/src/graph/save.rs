//! A graph as chunks: an index, then one chunk for each value that is there, so that images of unchanged values share them.

use alloc::sync::Arc;

use faultline_core::Chunk;

use super::Graph;

impl Graph {
    /// The graph as chunks. Tasks that execute count as not begun, and are the next ones.
    pub fn save(&self) -> Arc<[Chunk]> {
        let mut graph = self.clone();
        let executing = self.parts.iter().flat_map(|(theft, part)| {
            part.tasks.values().filter(|it| it.is_executing).map(|it| (*theft, it.task()))
        });
        graph.ready.extend(executing);
        let index = postcard::to_allocvec(&graph).expect("a graph can be encoded");
        let values =
            graph.parts.values().flat_map(|part| part.data.values()).filter_map(|it| it.chunk.clone());
        core::iter::once(Chunk::Bytes(index.into())).chain(values).collect()
    }

    /// The graph that was saved as these chunks.
    ///
    /// # Panics
    ///
    /// When they are not what [`Graph::save`] made; the storage would have noticed.
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

/// Of a value only whether it is there: it has a chunk of its own.
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
