//! Banks: `transfer` moves an amount between two accounts, and `read` returns all balances.

use crate::judgement::{Findings, Levels, Limits, upto};
use crate::models::Model;
use crate::operation::{Answer, Call, History, Value};

/// The model of banks.
pub(crate) const MODEL: Model = Model {
    name: "bank",
    about: "each `read` returns the same accounts with the same total, and no negative balance",
    levels: &["snapshot"],
    kinds: &["transfer", "read"],
    reads: &["read"],
    repeats: true,
    judge,
};

const SNAPSHOT: Levels = upto(0);

fn judge(history: &History, _: Limits, findings: &mut Findings) {
    let operations = &history.operations;
    // The first read states the accounts and the total: money is only moved.
    let mut first: Option<(usize, usize, i128)> = None;
    for (at, it) in operations.iter().enumerate() {
        let (Call::ReadAll, Some(Answer::Values(balances))) = (&it.call, it.answer()) else { continue };
        let numbers: Option<Vec<i64>> = balances.iter().map(|it| Value::as_number(*it)).collect();
        let Some(numbers) = numbers else {
            findings.add_case("accounts", SNAPSHOT, history, &[at], || {
                format!("{} read a balance that is no number", history.client(it))
            });
            continue;
        };
        let total: i128 = numbers.iter().map(|it| i128::from(*it)).sum();
        let (other, accounts, expected) = *first.get_or_insert((at, numbers.len(), total));
        let (who, whom) = (history.client(it), history.client(&operations[other]));
        if numbers.len() != accounts {
            let found = numbers.len();
            findings.add_case("accounts", SNAPSHOT, history, &[other, at], || {
                format!("{who} read {found} accounts, but {whom} had read {accounts}")
            });
        } else if total != expected {
            findings.add_case("total", SNAPSHOT, history, &[other, at], || {
                let when = history.time(it.call_at);
                format!("{who} read a total of {total} at {when}, but {whom} had read {expected}")
            });
        }
        if let Some(negative) = numbers.iter().find(|it| **it < 0) {
            findings.add_case("negative", SNAPSHOT, history, &[at], || {
                format!("{who} read a balance of {negative}")
            });
        }
    }
}
