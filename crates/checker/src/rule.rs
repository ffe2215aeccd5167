//! How a property is judged: the constant that each property's file declares.

use faultline_core::{FactKind, Promise};
use faultline_history::{Context, History};

use crate::finding::Findings;
use crate::property::Property;

/// How waste is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Waste is reported as a remark.
    #[default]
    Lenient,
    /// Waste violates a property.
    Strict,
}

/// A property, and how it is judged.
pub(crate) struct Rule {
    pub(crate) property: Property,
    /// The property as a sentence.
    pub(crate) statement: &'static str,
    /// The promise that a protocol must make to be judged; `None` if every protocol must have the property.
    pub(crate) promise: Option<Promise>,
    /// The kinds of facts without which the property cannot be judged.
    pub(crate) evidence: &'static [FactKind],
    pub(crate) aspects: &'static [Aspect],
    check: fn(&History<'_>, &mut Findings),
}

/// What sets a property apart from most others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// It is about waste.
    Economy,
    /// A violation holds even if facts are missing, because the reported facts alone prove it.
    NeedsNoOtherFact,
    /// An imported run has no evidence about it.
    NeverImported,
    /// If the protocol does not promise it, violations are remarks.
    RemarkedIfNotPromised,
}

impl Rule {
    /// Creates the rule for a property that every protocol must have.
    pub(crate) const fn new(
        property: Property,
        statement: &'static str,
        check: fn(&History<'_>, &mut Findings),
    ) -> Rule {
        Rule { property, statement, promise: None, evidence: &[], aspects: &[], check }
    }

    /// Restricts the property to protocols that make a promise.
    pub(crate) const fn promised(self, promise: Promise) -> Rule {
        Rule { promise: Some(promise), ..self }
    }

    /// Adds the kinds of facts without which the property cannot be judged.
    pub(crate) const fn needs(self, evidence: &'static [FactKind]) -> Rule {
        Rule { evidence, ..self }
    }

    /// Adds what sets the property apart from most others.
    pub(crate) const fn with(self, aspects: &'static [Aspect]) -> Rule {
        Rule { aspects, ..self }
    }

    pub(crate) fn has(&self, aspect: Aspect) -> bool {
        self.aspects.contains(&aspect)
    }

    /// Returns whether every protocol must have the property, or this one promises it.
    pub(crate) fn is_judged(&self, context: &Context) -> bool {
        self.promise.is_none_or(|it| context.promises.include(it))
    }

    /// Returns whether the run can contain evidence about the property. All runs can, except those that were imported.
    pub(crate) fn is_evident(&self, context: &Context) -> bool {
        context.unmatched.is_none()
            || !self.has(Aspect::NeverImported)
                && (self.property != Property::SameResult || context.expected.is_some())
                && self.evidence.iter().all(|it| context.recorded.contains(*it))
    }

    /// Judges a run by the property, if the protocol promises it.
    pub(crate) fn findings(&self, history: &History<'_>) -> Findings {
        let mut finding = Findings::new(self.property);
        if self.is_judged(history.context) {
            (self.check)(history, &mut finding);
        } else if self.has(Aspect::RemarkedIfNotPromised) {
            (self.check)(history, &mut finding);
            finding = Findings { violations: finding.violations, ..Findings::new(self.property) };
            finding.not_promised(history.context);
        }
        finding
    }

    /// Judges a run by the property if it can contain evidence. Unless the judgement is strict, violations of an economy
    /// property become a remark.
    pub(crate) fn judge(&self, history: &History<'_>, strictness: Strictness) -> Findings {
        if !self.is_evident(history.context) {
            return Findings::new(self.property);
        }
        let mut finding = self.findings(history);
        if strictness == Strictness::Lenient && self.has(Aspect::Economy) {
            finding.excuse_waste(history.context);
        }
        finding
    }
}
