//! Identifiers: `next`.

use crate::hash::Map;
use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::{Model, descents};
use crate::operation::{Answer, Call, History, Value};

/// The model of generators of identifiers.
pub(crate) const MODEL: Model = Model {
    name: "ids",
    about: "`next` never returns the same identifier twice",
    levels: &["increasing", "unique"],
    kinds: &["next"],
    reads: &["next"],
    repeats: true,
    judge,
};

const INCREASING: Levels = upto(0);
const UNIQUE: Levels = upto(1);

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let operations = &history.operations;
    let mut first: Map<Value, usize> = Map::default();
    let mut all = Vec::new();
    for (at, it) in operations.iter().enumerate() {
        let (Call::Next, Some(Answer::Value(value))) = (&it.call, it.answer()) else { continue };
        all.push((at, *value));
        let other = *first.entry(*value).or_insert(at);
        if other != at {
            findings.add_case("duplicated", UNIQUE, history, &[other, at], || {
                let (a, b) = (history.client(&operations[other]), history.client(it));
                format!("{a} and {b} both got {}", history.show(*value))
            });
        }
    }
    let numbers = all.iter().map(|(at, value)| value.as_number().map(|it| (*at, it)));
    let Some(numbers): Option<Vec<_>> = numbers.collect() else {
        let help = "use the level `unique`";
        findings.doubt(1, "some identifiers are texts, which have no order", help);
        return;
    };
    for (old, new) in descents(history, &numbers) {
        findings.add_case("decreased", INCREASING, history, &[old, new], || {
            let (a, b) = (history.client(&operations[old]), history.client(&operations[new]));
            let number = |at: usize| numbers.iter().find(|it| it.0 == at).map_or(0, |it| it.1);
            format!("{b} got {} after {a} had got {}", number(new), number(old))
        });
    }
}
