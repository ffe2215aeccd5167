//! Rules, and the defects that disable them.

/// Declares `Rule`, the rules of a protocol, together with `Defect` and `Defects`, the switches that disable individual
/// rules (see `faultline_core::defects`). Code asks whether a rule is obeyed. In builds without debug assertions, the
/// answer is a constant.
macro_rules! rules {
    (
        $($(#[$doc:meta])* $rule:ident, without $(#[$left_out:meta])* $defect:ident;)*
    ) => {
        faultline_core::defects! {
            $($(#[$left_out])* $defect,)*
        }

        /// A rule of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Defects {
            /// Returns whether the rule is obeyed.
            #[inline]
            pub fn obeys(self, rule: Rule) -> bool {
                !self.has(match rule {
                    $(Rule::$rule => Defect::$defect,)*
                })
            }
        }
    };
}

pub(crate) use rules;

/// Implements, for a configuration with a field `defects`, the questions that the code of its protocol asks.
macro_rules! rule_queries {
    ($config:ident) => {
        impl $config {
            pub(super) fn obeys(&self, rule: Rule) -> bool {
                self.defects.obeys(rule)
            }

            /// Returns whether the protocol obeys all its rules, and therefore keeps its invariants.
            pub(super) fn is_sound(&self) -> bool {
                self.defects.is_empty()
            }
        }
    };
}

pub(crate) use rule_queries;
