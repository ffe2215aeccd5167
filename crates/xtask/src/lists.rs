//! Checks lists in the documents against the code: no name may be missing or outdated. Also checks the quick start's
//! file.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use faultline_api::resource::{ProtocolSpec, SharedOptions};
use faultline_api::samples::SAMPLES;
use faultline_catalog::Defect;
use faultline_checker::{Context, judge};
use faultline_core::{FactKind, Promise, Promises, Scope};
use faultline_trace::{Manifest, Trace};
use serde::Serialize;

use crate::{Problems, Repository};

/// The document that contains the quick start's file.
const QUICK_START: &str = "docs/tutorial/1-first-run.md";

/// The tables of defect switches: the document, the heading, and the protocols whose switches the table lists.
const SWITCHES: &[(&str, &str, &[&str])] = &[
    ("docs/hc3i.md", "Defect switches", &["hc3i"]),
    ("docs/hydee.md", "Defect switches", &["hydee"]),
    ("docs/baselines.md", "Defect switches of SPBC", &["spbc"]),
    ("docs/baselines.md", "Defect switches of pessimistic logging", &["pessimisticLogging"]),
    ("docs/baselines.md", "Defect switches of independent checkpoints", &["independent"]),
    (
        "docs/baselines.md",
        "Defect switches of coordinated checkpoints",
        &["coordinated", "hierarchicalCoordinated"],
    ),
    ("docs/baselines.md", "Defect switches of the snapshot", &["chandyLamport"]),
    ("docs/tic-sel.md", "Defect switches", &["tic", "sel"]),
    ("docs/cck.md", "Defect switches", &["cck"]),
];

/// Protocols whose switches are listed only with the schedules that reveal them, in `docs/fuzzing.md`.
const WITHOUT_TABLE: &[&str] = &["satin"];

/// The script that runs the fuzzer with each protocol.
const SCRIPT: &str = ".ci/run";

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let manifest = Manifest::bare(Promises::of_scope(Scope::Cluster), &[]);
    let judgement = judge(&Trace::default(), &Context::from_manifest(&manifest));
    let properties = judgement.findings.iter().map(|it| name(it.property));
    let mut problems = Vec::new();
    for (file, title, expected) in [
        ("docs/verdict.md", "Properties", properties.collect()),
        ("docs/verdict.md", "Promises", Promise::ALL.iter().map(name).collect()),
        ("docs/bundle.md", "Facts of processes", FactKind::OF_PROCESSES.iter().map(name).collect()),
        ("docs/federation-file.md", "Protocols", variants("ProtocolSpec")),
        ("docs/federation-file.md", "Applications", variants("ApplicationSpec")),
        ("docs/federation-file.md", "Faults", actions()),
    ]
    .into_iter()
    .chain(SWITCHES.iter().map(|&(file, title, protocols)| (file, title, switches(protocols))))
    {
        let text = fs::read_to_string(repository.root.join(file))?;
        problems.extend(compare(&format!("{file}, {title}"), &listed(&text, title), &expected));
    }
    problems.extend(without_table(ProtocolSpec::names()));
    let script = fs::read_to_string(repository.root.join(SCRIPT))?;
    problems.extend(compare(&format!("{SCRIPT}, fuzzing"), &fuzzed(&script), &protected()));
    problems
        .extend(same_federation(&fs::read_to_string(repository.root.join(QUICK_START))?, SAMPLES[0].text));
    Ok(problems)
}

/// Returns the defect switches of these protocols.
fn switches(protocols: &[&str]) -> BTreeSet<String> {
    protocols.iter().flat_map(|it| Defect::of(it)).map(Defect::switch).collect()
}

/// Returns a problem for each of these protocols that has defect switches but is missing in [`SWITCHES`].
fn without_table<'a>(protocols: impl Iterator<Item = &'a str>) -> Problems {
    let is_listed = |name: &&str| {
        WITHOUT_TABLE.contains(name) || SWITCHES.iter().any(|(_, _, protocols)| protocols.contains(name))
    };
    let missing = protocols.filter(|it| !is_listed(it) && Defect::of(it).next().is_some());
    missing
        .map(|it| format!("no document lists the defect switches of `{it}`: add a table to `SWITCHES`"))
        .collect()
}

/// Returns the protocols that can be fuzzed: all except `none`.
fn protected() -> BTreeSet<String> {
    let protects = |name: &&str| {
        ProtocolSpec::named(name, SharedOptions::default()).is_some_and(|it| it.family().is_some())
    };
    ProtocolSpec::names().filter(protects).map(str::to_owned).collect()
}

/// Returns the protocols in the first loop over protocols of a shell script.
fn fuzzed(script: &str) -> BTreeSet<String> {
    let list =
        script.split("for protocol in ").nth(1).and_then(|it| it.split(';').next()).unwrap_or_default();
    list.split_whitespace().filter(|it| *it != "\\").map(str::to_owned).collect()
}

/// Compares the first federation in a Markdown text with a sample, including comments.
fn same_federation(text: &str, sample: &str) -> Option<String> {
    let shown = text.split("```yaml\n").nth(1).and_then(|it| it.split("```").next()).unwrap_or_default();
    let differs = || format!("{QUICK_START} does not contain the output of `faultline samples quickstart`");
    (shown != sample).then(differs)
}

/// Returns the variants of a resource's enum, according to the schema that users see.
fn variants(definition: &str) -> BTreeSet<String> {
    let schema = faultline_api::schema();
    let variants = schema["$defs"][definition]["oneOf"].as_array().cloned().unwrap_or_default();
    variants.iter().filter_map(|it| Some(it["required"][0].as_str()?.to_owned())).collect()
}

/// Returns the possible actions of a fault: the fields of an entry in `faults` that are not triggers.
fn actions() -> BTreeSet<String> {
    let schema = faultline_api::schema();
    let fields = schema["properties"]["spec"]["properties"]["faults"]["items"]["properties"].clone();
    let fields = fields.as_object().cloned().unwrap_or_default().into_iter().map(|(name, _)| name);
    fields.filter(|it| !["at", "when", "mtbf", "trace", "stream"].contains(&it.as_str())).collect()
}

/// Returns a name as it appears in files and on the command line.
fn name(it: impl Serialize) -> String {
    match serde_json::to_value(it) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a name, not {other:?}"),
    }
}

/// Returns the names, formatted as `code`, in the first column of the tables under a heading.
fn listed(text: &str, title: &str) -> BTreeSet<String> {
    let heading = |line: &&str| line.trim_start_matches('#').trim() == title;
    let section = text.lines().skip_while(|it| !heading(it)).skip(1).take_while(|it| !it.starts_with('#'));
    section.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

fn compare(place: &str, listed: &BTreeSet<String>, expected: &BTreeSet<String>) -> Problems {
    let missing = expected.difference(listed).map(|it| format!("{place}: `{it}` is missing"));
    let dead = listed.difference(expected).map(|it| format!("{place}: `{it}` does not exist"));
    missing.chain(dead).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_outdated_names_are_problems() {
        let text = "## Words\n\n| word | what |\n| --- | --- |\n| `old` | x |\n| `kept` | `y` |\n\n## Next\n| `other` |";
        let expected = BTreeSet::from(["kept".to_owned(), "new".to_owned()]);
        assert_eq!(
            compare("file", &listed(text, "Words"), &expected),
            ["file: `new` is missing", "file: `old` does not exist"]
        );
    }

    #[test]
    fn the_quick_start_in_the_document_must_equal_the_sample() {
        let sample = SAMPLES[0].text;
        let shown = |text: &str| format!("words\n```yaml\n{text}```\nmore words");
        assert_eq!(same_federation(&shown(sample), sample), None);
        assert!(same_federation(&shown(&sample.replace("seed: 7", "seed: 8")), sample).is_some());
        assert!(same_federation(&shown(&sample.replace("all random choices", "all")), sample).is_some());
        assert!(same_federation("no file", sample).is_some());
    }

    #[test]
    fn names_have_the_form_that_users_write() {
        assert_eq!(name(FactKind::CheckpointRequested), "checkpointRequested");
        assert!(switches(&["hydee"]).contains("no-drain"));
    }

    #[test]
    fn every_protocol_with_switches_needs_a_table() {
        assert_eq!(without_table(ProtocolSpec::names()), [""; 0]);
        assert_eq!(without_table(["fullLogging", "none"].into_iter()), [""; 0], "they have no switches");
    }

    #[test]
    fn the_protocols_of_a_loop_are_found() {
        let script = "fuzzing() {\n    for protocol in hc3i \\\n        cck; do\n    for protocol in tic; do";
        assert_eq!(fuzzed(script), BTreeSet::from(["hc3i".to_owned(), "cck".to_owned()]));
        assert!(protected().contains("spbc") && !protected().contains("none"));
    }
}
