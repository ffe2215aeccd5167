//! Registers whose values are written once.
//!
//! From the first return to the last call of the operations on a value, the register holds this value. Such periods must
//! not overlap, and nothing else fits into one (Gibbons and Korach). Without compare-and-sets, this decides in n log n.

use super::object::{Effect, INITIAL, Op, UNREAD};
use crate::operation::NEVER;

/// The operations on one value: the first return, the last call, and the operations to which these belong.
#[derive(Clone, Copy)]
struct Period {
    first: u64,
    first_by: u32,
    last: u64,
    last_by: u32,
    /// The call of its write, if there is one.
    written: Option<u64>,
    value: u32,
}

/// Why a history of one register is impossible. The numbers are positions in its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contradiction {
    /// The value was read before its write was called, or without a write.
    Early(u32),
    /// The register held two values at once, or an operation does not fit into the period of a value.
    Overlap(u32, u32),
}

impl Contradiction {
    /// Returns the contradiction with indices in the history instead of positions in the operations.
    pub(crate) fn at_indices(self, ops: &[Op]) -> Contradiction {
        let index = |at: u32| ops[at as usize].index;
        match self {
            Contradiction::Early(at) => Contradiction::Early(index(at)),
            Contradiction::Overlap(old, new) => Contradiction::Overlap(index(old), index(new)),
        }
    }
}

/// Returns a contradiction. If there is no compare-and-set, `None` means that there is an order.
pub(crate) fn refute(ops: &[Op], values: usize) -> Option<Contradiction> {
    let none = Period { first: NEVER, first_by: 0, last: 0, last_by: 0, written: None, value: 0 };
    let mut periods = vec![none; values];
    periods[INITIAL as usize] = Period { first: 0, written: Some(0), ..none };
    for (at, it) in ops.iter().enumerate() {
        let at = at as u32;
        for (value, is_write) in [(it.reads(), false), (it.writes(), true)] {
            let Some(value) = value.filter(|value| *value != UNREAD) else { continue };
            let period = &mut periods[value as usize];
            period.value = value;
            if is_write {
                period.written = Some(it.span.call);
            }
            if it.span.ret < period.first {
                (period.first, period.first_by) = (it.span.ret, at);
            }
            // Later operations win, so that the period of a value ends with one that was called.
            if it.span.call >= period.last {
                (period.last, period.last_by) = (it.span.call, at);
            }
        }
    }
    let is_used = |it: &&Period| it.first != NEVER && it.value != INITIAL && it.value != UNREAD;
    if let Some(it) = periods.iter().filter(is_used).find(|it| it.written.is_none_or(|call| it.first < call))
    {
        return Some(Contradiction::Early(it.first_by));
    }
    let mut solid: Vec<Period> = periods.iter().filter(|it| it.first < it.last).copied().collect();
    solid.sort_by_key(|it| (it.first, it.last, it.value));
    if let Some(pair) = solid.windows(2).find(|pair| pair[1].first < pair[0].last) {
        return Some(Contradiction::Overlap(pair[0].last_by, pair[1].first_by));
    }
    // The period that contains an interval.
    let around = |call: u64, ret: u64| {
        let at = solid.partition_point(|it| it.first < call);
        solid[..at].last().filter(|it| ret < it.last)
    };
    for it in periods.iter().filter(is_used).filter(|it| it.first >= it.last) {
        if let Some(period) = around(it.last, it.first) {
            return Some(Contradiction::Overlap(period.last_by, it.last_by));
        }
    }
    for (at, it) in ops.iter().enumerate().filter(|(_, it)| !it.is_unknown()) {
        let needs = match it.effect {
            Effect::Write(UNREAD) => None,
            Effect::Cas(from, _, Some(false)) => Some(from),
            _ => continue,
        };
        if let Some(period) = around(it.span.call, it.span.ret)
            && needs.is_none_or(|from| from == period.value)
        {
            return Some(Contradiction::Overlap(period.last_by, at as u32));
        }
    }
    None
}
