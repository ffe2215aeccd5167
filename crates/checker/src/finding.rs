//! What a property finds: violations, which are values with a sentence, and sentences about everything else.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use faultline_core::{Position, ProcessId};
use faultline_history::{Context, Source};

use crate::property::Property;

/// One violation of a property.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// What happened, as a sentence that names the processes and messages involved.
    pub text: String,
    /// The facts that prove the violation.
    pub evidence: Vec<Source>,
    /// What happened, as a value; `None` if the judgement was read from JSON, which contains only the sentence.
    #[serde(skip)]
    pub what: Option<Arc<dyn Worded>>,
}

/// Compares only the sentence and the evidence, because a judgement that was read from JSON has no `what`.
impl PartialEq for Violation {
    fn eq(&self, other: &Violation) -> bool {
        (&self.text, &self.evidence) == (&other.text, &other.evidence)
    }
}

impl Eq for Violation {}

/// The finding for one property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The judged property.
    pub property: Property,
    /// The number of instances judged.
    pub instances: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// The number of further violations.
    pub more_violations: u64,
    /// Whether missing facts or a change to the record could explain the violations. They are then no evidence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_doubtful: bool,
    /// The reason why the property, or a part of it, could not be judged although it should have been.
    pub unknown: Option<String>,
    /// Information for the reader that does not affect the verdict.
    pub remarks: Vec<String>,
}

impl Finding {
    /// Returns the number of violations.
    pub fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.more_violations
    }
}

/// The remedy if facts are missing.
pub(crate) const COMPLETE_RECORD: &str =
    "restore the files of the record from a complete copy, or repeat the run";

/// A violation as a value, which only the property that finds it knows.
pub trait Worded: Any + Debug + Send + Sync {
    /// Returns the sentence, without a full stop, with the names that the run gives to its processes and clusters.
    fn sentence(&self, names: &Context) -> String;

    /// Returns the kind of the violation, for a property that can be violated in several ways. Each kind is a reason of
    /// its own, and those of a lower kind come first.
    fn kind(&self) -> u8 {
        0
    }
}

/// A reason why something could not be judged, although it should have been.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// The reason and its remedy, as a sentence without a full stop.
    pub(crate) text: String,
    /// Whether missing facts suffice to explain the gap. The reason for the verdict on an incomplete record is then
    /// that facts are missing.
    pub(crate) follows_from_missing_facts: bool,
}

/// The findings of a property.
#[derive(Clone, Debug)]
pub(crate) struct Findings {
    pub(crate) property: Property,
    /// The number of instances judged.
    pub(crate) instances: u64,
    /// The first violations, with the facts that prove them.
    pub(crate) violations: Vec<(Arc<dyn Worded>, Vec<Source>)>,
    pub(crate) more_violations: u64,
    /// The number of all violations of each kind.
    pub(crate) kinds: BTreeMap<u8, u64>,
    /// The first reason why something could not be judged.
    pub(crate) open: Option<Gap>,
    /// Reasons of other kinds, in order.
    pub(crate) also_open: Vec<Gap>,
    /// Information that does not affect the verdict, as sentences without a full stop.
    pub(crate) remarks: Vec<String>,
}

impl Findings {
    /// The maximum number of violations that are kept, with their evidence. Further ones are only counted.
    const KEPT: usize = 20;

    pub(crate) fn new(property: Property) -> Findings {
        Findings {
            property,
            instances: 0,
            violations: Vec::new(),
            more_violations: 0,
            kinds: BTreeMap::new(),
            open: None,
            also_open: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Records a violation and its evidence. Always keeps the first one of each kind.
    pub(crate) fn violated(&mut self, evidence: impl Into<Vec<Source>>, what: impl Worded) {
        let of_kind = self.kinds.entry(what.kind()).or_default();
        *of_kind += 1;
        if self.violations.len() < Self::KEPT || *of_kind == 1 {
            self.violations.push((Arc::new(what), evidence.into()));
        } else {
            self.more_violations += 1;
        }
    }

    /// Records why something could not be judged, and what the user can do about it. Keeps only the first reason.
    pub(crate) fn unjudged(&mut self, reason: impl AsRef<str>, remedy: impl AsRef<str>) {
        self.set_gap(reason.as_ref(), remedy.as_ref(), false);
    }

    /// Records the same as [`Findings::unjudged`] if missing facts suffice to explain it.
    pub(crate) fn inconclusive(&mut self, reason: impl AsRef<str>, remedy: impl AsRef<str>) {
        self.set_gap(reason.as_ref(), remedy.as_ref(), true);
    }

    /// Records that something could not be judged because facts are missing.
    pub(crate) fn lacks_facts(&mut self, reason: impl AsRef<str>) {
        self.inconclusive(reason, COMPLETE_RECORD);
    }

    /// Records that something could not be judged because facts of `process` are missing.
    pub(crate) fn lacks_facts_of(&mut self, process: ProcessId, names: &Context) {
        self.lacks_facts(format!("facts of {} are missing", names.process(process)));
    }

    /// Records that something could not be judged because the content of a checkpoint of `owner` is unknown.
    pub(crate) fn lacks_content(&mut self, owner: ProcessId, position: Position, names: &Context) {
        self.lacks_facts(format!(
            "the content of checkpoint {position} of {} is unknown",
            names.process(owner)
        ));
    }

    fn set_gap(&mut self, reason: &str, remedy: &str, follows_from_missing_facts: bool) {
        self.open
            .get_or_insert_with(|| Gap { text: format!("{reason}; {remedy}"), follows_from_missing_facts });
    }

    /// Records information that does not affect the verdict.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// Records a further reason why something could not be judged, of another kind than those before.
    pub(crate) fn also_unjudged(
        &mut self,
        reason: impl AsRef<str>,
        remedy: impl AsRef<str>,
        lacks_facts: bool,
    ) {
        if self.open.is_none() {
            return self.set_gap(reason.as_ref(), remedy.as_ref(), lacks_facts);
        }
        let text = format!("{}; {}", reason.as_ref(), remedy.as_ref());
        self.also_open.push(Gap { text, follows_from_missing_facts: lacks_facts });
    }

    /// Returns the first violation of each kind, in the order of kinds, with the number of the others of its kind.
    pub(crate) fn first_violations(&self, names: &Context) -> Vec<String> {
        let first = |(&kind, &number): (&u8, &u64)| {
            let first = self.violations.iter().find(|(it, _)| it.kind() == kind)?;
            let text = first.0.sentence(names);
            Some(match number - 1 {
                0 => text,
                others => format!("{text} (and {others} more of this kind)"),
            })
        };
        self.kinds.iter().filter_map(first).collect()
    }

    /// Turns all violations into remarks.
    pub(crate) fn not_promised(&mut self, names: &Context) {
        for (breach, _) in std::mem::take(&mut self.violations) {
            self.remark(format!("not promised: {}", breach.sentence(names)));
        }
        self.more_violations = 0;
        self.kinds.clear();
    }

    /// Adds a remark about waste: the first violation, and the number of the others.
    pub(crate) fn wasteful(&mut self, first: &dyn Worded, more: u64, names: &Context) {
        let first = first.sentence(names);
        self.remark(match more {
            0 => format!("wasteful: {first}"),
            more => format!("wasteful: {first} (and {more} more of this kind)"),
        });
    }

    /// Turns the violations of an economy property into one remark.
    pub(crate) fn excuse_waste(&mut self, names: &Context) {
        let more = (self.violations.len() as u64 + self.more_violations).saturating_sub(1);
        if let Some((first, _)) = std::mem::take(&mut self.violations).first() {
            self.wasteful(&**first, more, names);
        }
        self.more_violations = 0;
        self.kinds.clear();
    }

    /// Turns the violations into sentences.
    pub(crate) fn into_finding(self, names: &Context) -> Finding {
        let violation = |(what, evidence): (Arc<dyn Worded>, Vec<Source>)| Violation {
            text: what.sentence(names),
            evidence,
            what: Some(what),
        };
        Finding {
            property: self.property,
            instances: self.instances,
            violations: self.violations.into_iter().map(violation).collect(),
            more_violations: self.more_violations,
            is_doubtful: false,
            unknown: self.open.map(|it| it.text),
            remarks: self.remarks,
        }
    }
}

#[cfg(test)]
impl Findings {
    pub(crate) fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.more_violations
    }

    /// Returns the violations, all of which must be of this type.
    pub(crate) fn wrong<B: Worded + Clone>(&self) -> Vec<B> {
        let wrong: Vec<B> = self.some_wrong().collect();
        assert_eq!(wrong.len(), self.violations.len(), "{:?}", self.violations);
        wrong
    }

    /// Returns the violations of this type, because files that judge a part of a property have types of their own.
    pub(crate) fn some_wrong<B: Worded + Clone>(&self) -> impl Iterator<Item = B> {
        self.violations.iter().filter_map(|(it, _)| (&**it as &dyn Any).downcast_ref().cloned())
    }

    /// Returns the first reason why something could not be judged; empty if there is none.
    pub(crate) fn gap(&self) -> String {
        self.open.as_ref().map_or_else(String::new, |it| it.text.clone())
    }
}
