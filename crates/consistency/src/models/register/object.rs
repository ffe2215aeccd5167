//! The operations on one register, with numbered values.

use super::text::Texts;
use crate::hash::Map;
use crate::operation::{Answer, Call, History, NEVER, Outcome, Value};
use crate::search::{Object, Span};

/// The number of all values that no operation reads or expects.
pub(crate) const UNREAD: u32 = 0;
/// The number of the initial value.
pub(crate) const INITIAL: u32 = 1;

/// What was asked and answered, with numbered values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read(u32),
    Write(u32),
    /// From, to, and the answer unless it is unknown.
    Cas(u32, u32, Option<bool>),
    /// Appends a piece of text.
    Append(u32),
}

/// An operation on one register. Those that failed, and reads without an answer, are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) span: Span,
    pub(crate) effect: Effect,
    /// The index in the history.
    pub(crate) index: u32,
}

impl Op {
    pub(crate) const fn is_unknown(&self) -> bool {
        self.span.ret == NEVER
    }

    /// Returns whether the operation never changes the register.
    pub(crate) const fn observes(&self) -> bool {
        matches!(self.effect, Effect::Read(_) | Effect::Cas(_, _, Some(false)))
    }

    /// Returns the value that the register surely held.
    pub(crate) const fn reads(&self) -> Option<u32> {
        match self.effect {
            Effect::Read(value) | Effect::Cas(value, _, Some(true)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value that the operation writes, or may write.
    pub(crate) const fn writes(&self) -> Option<u32> {
        match self.effect {
            Effect::Write(value) | Effect::Cas(_, value, Some(true) | None) => Some(value),
            _ => None,
        }
    }
}

/// The operations on one register, and the meaning of its numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Register {
    pub(crate) ops: Vec<Op>,
    /// The values by number. The first two are placeholders for [`UNREAD`] and [`INITIAL`].
    pub(crate) values: Vec<Value>,
    /// Whether texts are appended.
    pub(crate) has_texts: bool,
}

impl Register {
    /// Collects the operations with these indices. All values have their own number.
    pub(crate) fn new(history: &History, indices: &[u32]) -> Register {
        let mut register = Register {
            ops: Vec::with_capacity(indices.len()),
            values: vec![Value::NULL; 2],
            has_texts: false,
        };
        let mut numbers: Map<Value, u32> = Map::default();
        numbers.insert(Value::NULL, INITIAL);
        for &index in indices {
            let it = &history.operations[index as usize];
            let span = Span { call: it.call_at, ret: it.return_at };
            let mut number = |value: Value| {
                *numbers.entry(value).or_insert_with(|| {
                    register.values.push(value);
                    register.values.len() as u32 - 1
                })
            };
            let effect = match (&it.call, &it.outcome) {
                (_, Outcome::Failed) => continue,
                (Call::Read(_), Outcome::Ok(Answer::Value(value))) => Effect::Read(number(*value)),
                (Call::Write(_, value), _) => Effect::Write(number(*value)),
                (Call::AppendText(_, value), _) => {
                    register.has_texts = true;
                    Effect::Append(number(*value))
                }
                (Call::Cas(_, from, to), outcome) => {
                    let answer = match outcome {
                        Outcome::Ok(Answer::Flag(flag)) => Some(*flag),
                        _ => None,
                    };
                    Effect::Cas(number(*from), number(*to), answer)
                }
                _ => continue,
            };
            let is_known = matches!(it.outcome, Outcome::Ok(_)) && !matches!(effect, Effect::Cas(_, _, None));
            let span = if is_known { span } else { Span { ret: NEVER, ..span } };
            register.ops.push(Op { span, effect, index });
        }
        register
    }

    /// Returns the operations with one number for all values that no operation reads or expects, and the number of numbers.
    pub(crate) fn simplified(ops: &[Op]) -> (Vec<Op>, usize) {
        let mentioned = |it: &Op| match it.effect {
            Effect::Read(value) | Effect::Write(value) => value,
            Effect::Cas(from, to, _) => from.max(to),
            Effect::Append(_) => INITIAL,
        };
        let largest = ops.iter().map(mentioned).max().unwrap_or(INITIAL).max(INITIAL);
        let expected = |it: &Op| match it.effect {
            Effect::Cas(from, ..) => Some(from),
            _ => it.reads(),
        };
        let mut numbers = vec![UNREAD; largest as usize + 1];
        numbers[INITIAL as usize] = INITIAL;
        let mut count = INITIAL + 1;
        for value in ops.iter().filter_map(expected) {
            let number = &mut numbers[value as usize];
            if *number == UNREAD {
                *number = count;
                count += 1;
            }
        }
        let number = |value: u32| numbers[value as usize];
        let simplify = |it: &Op| Op {
            effect: match it.effect {
                Effect::Read(value) => Effect::Read(number(value)),
                Effect::Write(value) => Effect::Write(number(value)),
                Effect::Cas(from, to, answer) => Effect::Cas(number(from), number(to), answer),
                Effect::Append(piece) => Effect::Append(piece),
            },
            ..*it
        };
        (ops.iter().map(simplify).collect(), count as usize)
    }
}

/// The operations on one register as an object to search.
pub(crate) struct Searched<'a> {
    pub(crate) ops: &'a [Op],
    /// The number of states, which are values or texts.
    pub(crate) states: usize,
    pub(crate) initial: u32,
    pub(crate) texts: &'a Texts,
}

impl Object for Searched<'_> {
    fn initial(&self) -> u32 {
        self.initial
    }

    fn states(&self) -> usize {
        self.states
    }

    fn step(&self, state: u32, operation: usize) -> Option<u32> {
        match self.ops[operation].effect {
            Effect::Read(value) => (value == state).then_some(state),
            Effect::Write(value) => Some(value),
            Effect::Cas(from, to, Some(true)) => (from == state).then_some(to),
            Effect::Cas(from, _, Some(false)) => (from != state).then_some(state),
            Effect::Cas(from, to, None) => Some(if from == state { to } else { state }),
            Effect::Append(piece) => Some(self.texts.append(state, piece)),
        }
    }

    fn observes(&self, operation: usize) -> bool {
        self.ops[operation].observes()
    }

    fn effect(&self, operation: usize) -> u64 {
        let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        match self.ops[operation].effect {
            Effect::Write(value) => pair(value, u32::MAX),
            Effect::Append(piece) => pair(piece, u32::MAX - 1),
            Effect::Cas(from, to, _) => pair(to, from),
            Effect::Read(value) => pair(value, u32::MAX - 2),
        }
    }

    fn changes(&self, operation: usize) -> Option<u32> {
        match self.ops[operation].effect {
            Effect::Cas(from, ..) => Some(from),
            _ => None,
        }
    }

    fn needs(&self, operation: usize) -> Option<u32> {
        self.ops[operation].reads()
    }

    fn makes(&self, operation: usize, mut each: impl FnMut(u32)) {
        match self.ops[operation].effect {
            Effect::Append(piece) => self.texts.ends(piece).iter().for_each(|&state| each(state)),
            _ => self.ops[operation].writes().into_iter().for_each(each),
        }
    }
}
