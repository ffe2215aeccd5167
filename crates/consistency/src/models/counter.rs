//! Counters: `add` and `read`.

use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::{Model, final_reads};
use crate::operation::{Answer, Call, History, Operation};

/// The model of counters, which are 0 at first.
pub(crate) const MODEL: Model = Model {
    name: "counter",
    about: "`read` returns at least what was surely added, and at most what may have been added",
    levels: &["bounded", "eventual"],
    kinds: &["add", "read"],
    reads: &["read"],
    repeats: true,
    judge,
};

const BOUNDED: Levels = upto(0);
const EVENTUAL: Levels = upto(1);

/// Sums of numbers by time.
struct Sums {
    times: Vec<u64>,
    sums: Vec<i128>,
}

impl Sums {
    fn new(mut parts: Vec<(u64, i64)>) -> Sums {
        parts.sort_unstable();
        let mut sum = 0;
        let sums = parts.iter().map(|(_, number)| {
            sum += i128::from(*number);
            sum
        });
        let sums = [0].into_iter().chain(sums).collect();
        Sums { times: parts.iter().map(|it| it.0).collect(), sums }
    }

    /// Returns the sum of the numbers before a time.
    fn before(&self, time: u64) -> i128 {
        self.sums[self.times.partition_point(|it| *it < time)]
    }

    /// Returns the sum of the numbers up to a time.
    fn upto(&self, time: u64) -> i128 {
        self.sums[self.times.partition_point(|it| *it <= time)]
    }
}

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let operations = &history.operations;
    // By return, what was surely added; by call, what may have been added.
    let (mut sure, mut possible) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut last_add = 0;
    for it in operations.iter().filter(|it| !it.is_failed()) {
        let Call::Add(value) = it.call else { continue };
        let Some(number) = value.as_number() else {
            findings.doubt(Levels::MAX, "an `add` adds no number", "use the model `set` for elements");
            return;
        };
        let side = usize::from(number < 0);
        possible[side].push((it.call_at, number));
        if it.answer().is_some() {
            sure[side].push((it.return_at, number));
        }
        last_add = last_add.max(it.end());
    }
    let ([sure_up, sure_down], [possible_up, possible_down]) = (sure.map(Sums::new), possible.map(Sums::new));
    let last_add = Some(last_add).filter(|it| *it > 0);
    let mut finals = final_reads(history, "counter", last_add, findings).into_iter().peekable();
    for (at, it) in operations.iter().enumerate() {
        let Some(found) = read(it) else { continue };
        let is_final = finals.next_if_eq(&at).is_some();
        let least = sure_up.before(it.call_at) + possible_down.upto(it.return_at);
        let most = possible_up.upto(it.return_at) + sure_down.before(it.call_at);
        let levels = if is_final { EVENTUAL } else { BOUNDED };
        let (who, at) = (history.client(it), &[at]);
        if i128::from(found) < least {
            let kind = if is_final { "lost" } else { "tooSmall" };
            let sentence = || format!("{who} read {found}, although at least {least} had been added");
            findings.add_case(kind, levels, history, at, sentence);
        } else if i128::from(found) > most {
            let kind = if is_final { "exceeded" } else { "tooLarge" };
            let sentence = || format!("{who} read {found}, although at most {most} can have been added");
            findings.add_case(kind, levels, history, at, sentence);
        }
    }
}

fn read(it: &Operation) -> Option<i64> {
    match (&it.call, it.answer()) {
        (Call::ReadAll, Some(Answer::Value(value))) => value.as_number(),
        _ => None,
    }
}
