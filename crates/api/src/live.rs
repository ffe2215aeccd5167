//! Changes to a running federation: links, faults added at the end of the list, and pauses.
//!
//! API servers enforce most of the rules for such changes through the custom resource definition. They cannot reject a
//! shortened list of faults, because only the supervisor knows which faults the run has accepted.

use faultline_core::ClusterId;
use faultline_core::fault::Change;
use serde_json::Value;

use crate::names::Names;
use crate::parse::{Rejected, read};
use crate::plan::plan;
use crate::resource::{CANNOT_CHANGE, CHANGE_HELP, Federation, FederationSpec, difference_of_fields, stored};
use crate::schema::schema_of_spec;
use crate::validate::{Problem, validate};

/// Returns the changes that turn a federation running as `old` into `new`, in an order in which they can be applied.
/// `old` must be valid.
///
/// # Errors
///
/// Returns the problems if `new` is invalid or contains changes that a running federation does not allow.
pub fn changes(old: &Federation, new: &Federation) -> Result<Vec<Change>, Vec<Problem>> {
    let mut problems = validate(new);
    problems.extend(changes_of_fixed_fields(&old.spec, &new.spec));
    if !problems.is_empty() {
        return Err(problems);
    }
    let links_before = old.spec.links().expand(&old.spec.clusters);
    let links = new.spec.links().expand(&new.spec.clusters);
    // Links to and from processes outside the clusters matter only if the protocol needs such processes.
    let has_no_outside = Names::of(&new.spec).extra().is_empty();
    let is_outside = |it: ClusterId| it == ClusterId::OUTSIDE && has_no_outside;
    let changed = links.into_iter().filter(|((from, to), properties)| {
        links_before[&(*from, *to)] != *properties && !is_outside(*from) && !is_outside(*to)
    });
    let mut changes: Vec<Change> =
        changed.map(|((from, to), properties)| Change::Link { from, to, properties }).collect();
    let known = plan(old, old.spec.seed()).len();
    changes.extend(plan(new, new.spec.seed()).into_iter().skip(known).map(Change::Fault));
    if old.spec.pause != new.spec.pause {
        changes.push(Change::Pause(new.spec.pause));
    }
    Ok(changes)
}

/// Returns the problems with values that are written differently in two files, although they are equal. API servers
/// treat some of these as forbidden changes, because they compare most quantities as text. Both files must contain valid
/// federations that differ only by permitted [changes]. `old` is the text that was applied.
///
/// # Errors
///
/// Fails if a file is not YAML.
pub fn rewritten(old: &str, new: &str) -> Result<Vec<Problem>, Box<Rejected>> {
    let schema = schema_of_spec();
    let spec = |text: &str| -> Result<Value, Box<Rejected>> {
        let document = read::<Value>("", text.as_bytes(), "describe a federation")?.value;
        Ok(stored(&schema, &document["spec"]))
    };
    let (old, new) = (spec(old)?, spec(new)?);
    let difference = |(field, _)| difference_of_fields(&schema, "spec", [field], &new, &old);
    let mut paths: Vec<String> = FIXED_FIELDS.into_iter().filter_map(difference).collect();
    let [faults_before, faults] = [&old, &new].map(|it| it["faults"].as_array().into_iter().flatten());
    let index = faults_before.zip(faults).position(|(old, new)| old != new);
    paths.extend(index.map(|it| format!("spec.faults[{it}]")));
    let problem = |path: String| Problem {
        message: format!(
            "`{}` is written differently, which an API server rejects although the meaning is the same",
            path.trim_start_matches("spec.")
        ),
        help: "write it exactly as in the running federation".into(),
        path,
    };
    Ok(paths.into_iter().map(problem).collect())
}

/// The name of a field, and a function that returns whether two specs differ in it.
type Field = (&'static str, fn(&FederationSpec, &FederationSpec) -> bool);

/// Fields that must not change while a federation runs.
const FIXED_FIELDS: [Field; 12] = [
    ("seed", |old, new| old.seed != new.seed),
    ("clusters", |old, new| old.clusters != new.clusters),
    ("storage", |old, new| old.storage != new.storage),
    ("protocol", |old, new| old.protocol != new.protocol),
    ("application", |old, new| old.application != new.application),
    ("stealing", |old, new| old.stealing != new.stealing),
    ("schedule", |old, new| old.schedule != new.schedule),
    ("failures", |old, new| old.failures != new.failures),
    ("deadline", |old, new| old.deadline != new.deadline),
    ("expect", |old, new| old.expect != new.expect),
    ("kubernetes", |old, new| old.kubernetes != new.kubernetes),
    ("simulator", |old, new| old.simulator != new.simulator),
];

/// Returns the problems with changes that a running federation does not allow.
pub fn changes_of_fixed_fields(old: &FederationSpec, new: &FederationSpec) -> Vec<Problem> {
    let fields = FIXED_FIELDS.into_iter();
    let changed = fields.filter(|(_, is_changed)| is_changed(old, new)).map(|(field, _)| Problem {
        path: format!("spec.{field}"),
        message: format!("`{field}` {CANNOT_CHANGE}"),
        help: CHANGE_HELP.into(),
    });
    let mut problems: Vec<Problem> = changed.collect();
    for (index, fault) in old.faults.iter().enumerate() {
        if new.faults.get(index) != Some(fault) {
            problems.push(Problem {
                path: if index < new.faults.len() {
                    format!("spec.faults[{index}]")
                } else {
                    "spec.faults".into()
                },
                message: format!("fault {index} in the list was changed or removed"),
                help: "restore it, and add new faults at the end of the list".into(),
            });
            return problems;
        }
    }
    for (index, fault) in new.faults.iter().enumerate().skip(old.faults.len()) {
        if let Some(trigger) = fault.repeated() {
            problems.push(Problem {
                path: format!("spec.faults[{index}].{trigger}"),
                message: format!(
                    "the times of `{trigger}` count from the start of the application, which is already running"
                ),
                help: "use `at` or `when` for faults of a running federation".into(),
            });
        }
        if fault.restart.as_ref().is_some_and(|it| it.command.is_some()) {
            problems.push(Problem {
                path: format!("spec.faults[{index}].restart.command"),
                message: "the nodes of a running federation do not know another command".into(),
                help: "omit `command`, or state the fault before the run".into(),
            });
        }
    }
    problems
}
