//! The models: what a system may answer. Each is one file, and one line in [`MODELS`].

mod register;

use crate::hash::Map;
use crate::judgement::{Findings, Limits};
use crate::operation::{Call, History, Key};

/// A model of the data that clients use.
pub struct Model {
    /// The name, as in `--model`.
    pub name: &'static str,
    /// What the model describes, in one line.
    pub about: &'static str,
    /// The levels of consistency, strongest first.
    pub levels: &'static [&'static str],
    /// The kinds of its operations.
    pub kinds: &'static [&'static str],
    /// The kinds that read, without which nothing can be judged.
    pub(crate) reads: &'static [&'static str],
    /// Adds everything that contradicts a level.
    pub(crate) judge: fn(&History, Limits, &mut Findings),
}

/// All models.
pub const MODELS: &[Model] = &[register::MODEL];

/// Returns the model with this name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|it| it.name == name)
}

/// Returns the indices of the operations on each key, by call. The keys are in the order of their first appearance.
fn by_key(history: &History, key: impl Fn(&Call) -> Option<Key>) -> Vec<(Key, Vec<u32>)> {
    let mut places: Map<Key, usize> = Map::default();
    let mut all: Vec<(Key, Vec<u32>)> = Vec::new();
    for (at, it) in history.operations.iter().enumerate() {
        let Some(key) = key(&it.call) else { continue };
        let place = *places.entry(key).or_insert_with(|| {
            all.push((key, Vec::new()));
            all.len() - 1
        });
        all[place].1.push(at as u32);
    }
    all
}
