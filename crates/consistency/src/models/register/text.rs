//! Registers to which texts are appended: states are the texts that were read, and their beginnings.

use super::object::{Effect, Op};
use crate::hash::Map;
use crate::operation::{History, Value};

/// The texts that a register can hold on the way to one that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// The state after a piece was appended in a state.
    next: Map<(u32, u32), u32>,
    /// The states that a piece can lead to.
    ends: Map<u32, Vec<u32>>,
    /// The state of all texts that no operation read.
    unread: u32,
}

impl Texts {
    pub(crate) fn append(&self, state: u32, piece: u32) -> u32 {
        self.next.get(&(state, piece)).copied().unwrap_or(self.unread)
    }

    pub(crate) fn ends(&self, piece: u32) -> &[u32] {
        self.ends.get(&piece).map_or(&[], |it| it)
    }

    /// Turns values into states, and appended texts into pieces. State 0 is the empty text. Returns the number of states.
    ///
    /// A text that was read is followed along all ways to compose it. Texts with the same beginning are neighbours once
    /// they are sorted, so states of the beginning are shared.
    pub(crate) fn number(ops: &mut [Op], values: &[Value], history: &History) -> (Texts, usize) {
        let text = |value: u32| -> &str {
            let value = values[value as usize];
            value.as_text().map_or("", |it| history.texts.get(it))
        };
        let (mut pieces, mut lengths): (Map<&str, u32>, Vec<usize>) = (Map::default(), Vec::new());
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for it in ops.iter() {
            match it.effect {
                Effect::Append(value) => {
                    let next = pieces.len() as u32;
                    pieces.entry(text(value)).or_insert(next);
                    lengths.push(text(value).len());
                }
                Effect::Write(value) => writes.push(text(value)),
                Effect::Read(value) => reads.push(text(value)),
                Effect::Cas(..) => {}
            }
        }
        for list in [&mut writes, &mut reads] {
            list.sort_unstable();
            list.dedup();
        }
        lengths.sort_unstable();
        lengths.dedup();
        let (mut texts, mut count) = (Texts::default(), 1);
        // The states of whole texts that were read or written.
        let mut whole: Map<&str, u32> = Map::default();
        whole.insert("", 0);
        // The states of the beginnings of the last text, by length; 0 at other lengths.
        let (mut states, mut last): (Vec<u32>, &str) = (vec![0], "");
        for read in reads.iter().copied() {
            let same = last.bytes().zip(read.bytes()).take_while(|(a, b)| a == b).count();
            states.truncate(same + 1);
            states.resize(read.len() + 1, 0);
            for write in writes.iter().filter(|it| !it.is_empty() && read.starts_with(**it)) {
                if states[write.len()] == 0 {
                    states[write.len()] = count;
                    count += 1;
                }
                whole.insert(write, states[write.len()]);
            }
            let longest = lengths.last().copied().unwrap_or(0);
            for at in (same + 1).saturating_sub(longest)..read.len() {
                if at > 0 && states[at] == 0 {
                    continue;
                }
                for length in lengths.iter().copied().filter(|it| *it > 0) {
                    let Some(&piece) = read.get(at..at + length).and_then(|it| pieces.get(it)) else {
                        continue;
                    };
                    let end = &mut states[at + length];
                    if *end == 0 {
                        *end = count;
                        count += 1;
                    }
                    if texts.next.insert((states[at], piece), states[at + length]).is_none() {
                        texts.ends.entry(piece).or_default().push(states[at + length]);
                    }
                }
            }
            if states[read.len()] > 0 {
                whole.insert(read, states[read.len()]);
            }
            last = read;
        }
        texts.unread = count;
        // An empty piece changes no text.
        if let Some(&empty) = pieces.get("") {
            for state in 0..=count {
                texts.next.insert((state, empty), state);
            }
        }
        // No operation leads to the state of a text that cannot be composed.
        let (unread, impossible) = (count, count + 1);
        for it in ops.iter_mut() {
            it.effect = match it.effect {
                Effect::Append(value) => Effect::Append(pieces[text(value)]),
                Effect::Write(value) => Effect::Write(whole.get(text(value)).copied().unwrap_or(unread)),
                Effect::Read(value) => Effect::Read(whole.get(text(value)).copied().unwrap_or(impossible)),
                cas => cas,
            };
        }
        (texts, count as usize + 2)
    }
}
