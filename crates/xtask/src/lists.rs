//! Checks lists in the documents against the code: no name may be missing or outdated. Also checks the quick start's
//! file.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

use faultline_api::samples::SAMPLES;
use faultline_checker::{Context, judge};
use faultline_core::{FactKind, Promise, Promises, Scope};
use faultline_protocols::hc3i::Defect;
use faultline_protocols::{
    cck, chandy_lamport, coordinated, hydee, independent, pessimistic_logging, spbc, theft,
};
use faultline_trace::{Manifest, Trace};
use serde::Serialize;

use crate::{Problems, Repository};

/// The document that contains the quick start's file.
const QUICK_START: &str = "docs/tutorial/1-first-run.md";

pub(crate) fn check(repository: &Repository) -> Result<Problems, Box<dyn Error>> {
    let manifest = Manifest::bare(Promises::of_scope(Scope::Cluster), &[]);
    let judgement = judge(&Trace::default(), &Context::from_manifest(&manifest));
    let properties = judgement.findings.iter().map(|it| name(it.property));
    let mut problems = Vec::new();
    for (file, title, expected) in [
        ("docs/verdict.md", "Properties", properties.collect()),
        ("docs/verdict.md", "Promises", Promise::ALL.iter().map(name).collect()),
        ("docs/hc3i.md", "Defect switches", Defect::ALL.iter().map(name).collect()),
        (
            "docs/baselines.md",
            "Defect switches of coordinated checkpoints",
            coordinated::Defect::ALL.iter().map(name).collect(),
        ),
        (
            "docs/baselines.md",
            "Defect switches of the snapshot",
            chandy_lamport::Defect::ALL.iter().map(name).collect(),
        ),
        (
            "docs/baselines.md",
            "Defect switches of pessimistic logging",
            pessimistic_logging::Defect::ALL.iter().map(name).collect(),
        ),
        (
            "docs/baselines.md",
            "Defect switches of independent checkpoints",
            independent::Defect::ALL.iter().map(name).collect(),
        ),
        ("docs/baselines.md", "Defect switches of SPBC", spbc::Defect::ALL.iter().map(name).collect()),
        ("docs/hydee.md", "Defect switches", hydee::Defect::ALL.iter().map(name).collect()),
        ("docs/cck.md", "Defect switches", cck::Defect::ALL.iter().map(name).collect()),
        ("docs/tic-sel.md", "Defect switches", theft::Defect::ALL.iter().map(name).collect()),
        ("docs/bundle.md", "Facts of processes", FactKind::OF_PROCESSES.iter().map(name).collect()),
        ("docs/federation-file.md", "Protocols", variants("ProtocolSpec")),
        ("docs/federation-file.md", "Applications", variants("ApplicationSpec")),
        ("docs/federation-file.md", "Faults", actions()),
    ] {
        let text = fs::read_to_string(repository.root.join(file))?;
        problems.extend(compare(&format!("{file}, {title}"), &listed(&text, title), &expected));
    }
    problems
        .extend(same_federation(&fs::read_to_string(repository.root.join(QUICK_START))?, SAMPLES[0].text));
    Ok(problems)
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
    fields.filter(|it| !["at", "when", "mtbf"].contains(&it.as_str())).collect()
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
        assert_eq!(name(Defect::NoDrain), "no-drain");
    }
}
