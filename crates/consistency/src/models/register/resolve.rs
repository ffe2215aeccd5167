//! What is known about operations without a result, before any search. Only for unique values.

use super::object::{Effect, INITIAL, Op, UNREAD};
use crate::operation::NEVER;

/// Returns whether each value that matters is written once at most, and never the initial one.
pub(crate) fn is_unique(ops: &[Op], values: usize) -> bool {
    let mut seen = vec![false; values];
    seen[INITIAL as usize] = true;
    ops.iter().all(|it| match (it.effect, it.writes()) {
        (Effect::Append(_), _) => false,
        (_, Some(value)) => value == UNREAD || !std::mem::replace(&mut seen[value as usize], true),
        _ => true,
    })
}

/// Ends the operations that were observed, and drops those that need not have happened.
///
/// An unknown operation that was observed returned at the latest with its first observer. A compare-and-set that was
/// observed observes, too. An unknown operation that no operation observed can be left out, unless a compare-and-set that was
/// answered `false` may have seen its value.
pub(crate) fn resolve(ops: &mut Vec<Op>, values: usize) {
    if !ops.iter().any(Op::is_unknown) {
        return;
    }
    let mut writer = vec![usize::MAX; values];
    let mut observed = vec![NEVER; values];
    for (at, it) in ops.iter().enumerate() {
        if let Some(value) = it.writes().filter(|value| *value != UNREAD) {
            writer[value as usize] = at;
        }
        if let Some(value) = it.reads() {
            let first = &mut observed[value as usize];
            *first = it.span.ret.min(*first);
        }
    }
    let mut open: Vec<u32> = (0..values as u32).filter(|it| observed[*it as usize] != NEVER).collect();
    while let Some(value) = open.pop() {
        let (by, at) = (writer[value as usize], observed[value as usize]);
        let Some(it) = ops.get_mut(by).filter(|it| it.is_unknown()) else { continue };
        it.span.ret = at;
        if let Effect::Cas(from, to, _) = it.effect {
            it.effect = Effect::Cas(from, to, Some(true));
            if at < observed[from as usize] {
                observed[from as usize] = at;
                open.push(from);
            }
        }
    }
    let last_false = ops.iter().filter(|it| matches!(it.effect, Effect::Cas(_, _, Some(false))));
    let last_false = last_false.map(|it| it.span.ret).max().unwrap_or(0);
    ops.retain(|it| !it.is_unknown() || it.span.call <= last_false);
}
