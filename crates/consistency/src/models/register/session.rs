//! The level `session` of registers: a session never reads a value that it knows to be replaced.

use super::object::{INITIAL, Op, Register, UNREAD};
use super::resolve::is_unique;
use super::show_key;
use crate::hash::Map;
use crate::judgement::{Findings, Levels, upto};
use crate::operation::{History, Key, NEVER};

const SESSION: Levels = upto(1);

/// Adds each read of a value whose write had returned before the write of a value that the session had seen or written
/// was called. Linear in the number of operations.
pub(crate) fn judge(history: &History, register: &Register, key: Key, findings: &mut Findings) {
    let only = 1 << 1;
    let values = register.values.len();
    if register.has_texts || !is_unique(&register.ops, values) {
        let what = format!(
            "the sessions of {} cannot be judged, because a value was written twice",
            show_key(history, key)
        );
        findings.doubt(
            only,
            what,
            "let each `write` use a value of its own, or use the level `linearizable`",
        );
        return;
    }
    let mut ops = register.ops.clone();
    super::resolve::resolve(&mut ops, values);
    // When the write of each value was called and returned, and by which operation.
    let mut writes: Vec<Option<&Op>> = vec![None; values];
    for it in &ops {
        if let Some(value) = it.writes().filter(|it| *it != UNREAD) {
            writes[value as usize] = Some(it);
        }
    }
    let mut newest: Map<u32, (u64, u32)> = Map::default();
    for it in &ops {
        let operation = &history.operations[it.index as usize];
        // The session does not know that an operation without a result took effect.
        if operation.answer().is_none() {
            continue;
        }
        let known = newest.entry(operation.session).or_insert((0, 0));
        if let Some(value) = it.reads() {
            let write = writes[value as usize];
            let replaced = match (value, write) {
                (INITIAL, _) => known.0 > 0,
                (_, Some(write)) => write.span.ret != NEVER && write.span.ret < known.0,
                _ => false,
            };
            if replaced {
                let other = known.1 as usize;
                let names = [Some(other), Some(it.index as usize), write.map(|it| it.index as usize)];
                let names: Vec<usize> = names.into_iter().flatten().collect();
                findings.add_case("backward", SESSION, history, &names, || {
                    let (who, what) =
                        (history.client(operation), history.show(register.values[value as usize]));
                    let later = history.describe(&history.operations[other]);
                    let key = show_key(history, key);
                    format!("{who} read {what} from {key}, although it knew the effect of a later `{later}`")
                });
            }
        }
        for value in [it.reads(), it.writes()].into_iter().flatten() {
            if let Some(write) = writes[value as usize]
                && write.span.call > known.0
            {
                *known = (write.span.call, write.index);
            }
        }
    }
}
