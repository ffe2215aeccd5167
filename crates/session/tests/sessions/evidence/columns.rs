//! Changes every column of the facts, one at a time: the verdict changes, or `docs/verdict.md` lists the column.

use std::collections::BTreeSet;

use faultline_checker::Verdict;
use faultline_core::Fact;
use faultline_session::{Session, Simulator, UnjudgedRecording};
use serde_json::Value;

/// A failure and a rollback of both clusters.
const MESSAGES: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: small }
spec:
  seed: 3
  clusters: [{ name: lyon, nodes: 2 }, { name: nancy, nodes: 2 }]
  links: { between: { latency: 3ms } }
  protocol: { PROTOCOL: { checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster } }
  application: { heat: { steps: 60, stepTime: 20ms } }
  failures: { detectAfter: 100ms, restartAfter: 50ms }
  faults:
    - { at: 300ms, pause: { cluster: nancy, node: 0, for: 40ms } }
    - { at: 700ms, crash: { cluster: lyon, node: 1, storage: lost } }
";

/// A column: the kind of a fact, and the path to a value in it.
type Column = (String, String);

fn kind(fact: &Fact) -> String {
    serde_json::to_value(fact.kind()).unwrap().as_str().unwrap().to_owned()
}

/// Calls `act` for each value in a fact, with its path. The path omits the position in a list.
fn each(value: &mut Value, path: &str, act: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                // The name of a variant begins with a capital.
                let is_variant = key.starts_with(char::is_uppercase);
                let below = if is_variant { path.to_owned() } else { format!("{path}.{key}") };
                each(value, below.trim_start_matches('.'), act);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| each(value, path, act)),
        Value::Null => {}
        _ => act(path, value),
    }
}

/// Returns the trace with a column changed in all facts, or in the last one only; `None` if the column has only one
/// possible value.
fn changed(run: &UnjudgedRecording, column: &Column, in_all: bool) -> Option<UnjudgedRecording> {
    let mut run = run.clone();
    let mut left = if in_all { usize::MAX } else { 1 };
    let mut has_changed = false;
    for facts in run.trace.streams.values_mut() {
        for (_, fact) in facts.iter_mut().rev().filter(|(_, fact)| kind(fact) == column.0) {
            let mut value = serde_json::to_value(&*fact).unwrap();
            each(&mut value, "", &mut |path, value| {
                if path == column.1 && left > 0 {
                    left -= 1;
                    *value = match &*value {
                        Value::Number(number) => match number.as_u64() {
                            Some(number) if in_all => Value::from(u64::from(number == 0)),
                            Some(number) => Value::from(number.saturating_add(1)),
                            None => value.take(),
                        },
                        Value::Bool(is_set) => Value::from(!is_set),
                        Value::String(text) if text == "Kept" => Value::from("Lost"),
                        Value::String(text) if text == "Restarted" => Value::from("Replaced"),
                        Value::String(text) if text == "Replaced" => Value::from("Restarted"),
                        _ => value.take(),
                    };
                }
            });
            if let Ok(other) = serde_json::from_value::<Fact>(value)
                && other != *fact
            {
                *fact = other;
                has_changed = true;
            }
        }
    }
    has_changed.then_some(run)
}

/// Adds the columns of a run in which no change affects the verdict to `unread`, and all others to `read`.
fn examine(text: &str, read: &mut BTreeSet<Column>, unread: &mut BTreeSet<Column>) {
    let federation = faultline_api::parse("federation.yaml", text.as_bytes()).unwrap();
    let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
    let whole = run.clone().judge().judgement;
    assert_eq!(whole.verdict, Verdict::Pass, "{:?}", whole.reasons);
    let mut columns = BTreeSet::new();
    for (_, fact) in run.trace.streams.values().flatten() {
        let kind = kind(fact);
        let mut value = serde_json::to_value(fact).unwrap();
        each(&mut value, "", &mut |path, _| {
            columns.insert((kind.clone(), path.to_owned()));
        });
    }
    for column in columns {
        let edits = [true, false].into_iter().filter_map(|in_all| changed(&run, &column, in_all));
        let mut verdicts = edits.map(|it| it.judge().judgement.verdict).peekable();
        if verdicts.peek().is_some() {
            let is_read = verdicts.any(|it| it != Verdict::Pass);
            if is_read {
                read.insert(column)
            } else {
                unread.insert(column)
            };
        }
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn a_column_that_nothing_reads_back_is_documented() {
        let (mut read, mut unread) = (BTreeSet::new(), BTreeSet::new());
        for protocol in ["hc3i", "hydee", "pessimisticLogging", "independent"] {
            examine(&MESSAGES.replace("PROTOCOL", protocol), &mut read, &mut unread);
        }
        for sample in ["tic", "cck"] {
            examine(faultline_api::samples::sample(sample).unwrap().text, &mut read, &mut unread);
        }
        let name =
            |(kind, path): &Column| if path.is_empty() { kind.clone() } else { format!("{kind}.{path}") };
        let unread: BTreeSet<String> = unread.difference(&read).map(name).collect();
        let page = include_str!("../../../../../docs/verdict.md");
        let (_, list) = page.split_once("### Columns that nothing reads back").expect("the page lists them");
        let list = list.split("\n## ").next().unwrap();
        let rows = list.lines().filter(|line| line.starts_with("| `"));
        let listed: BTreeSet<String> =
            rows.flat_map(|line| line.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
        assert_eq!(unread, listed);
        println!("{} columns are read", read.len());
    }
}
