//! Rules, and the defects that disable them.

/// Declares `Rule`, the rules of a protocol, together with `Defect` and `Defects`, the switches that disable individual
/// rules (see `faultline_core::defects`). Code asks whether a rule is obeyed. In builds without debug assertions, the
/// answer is a constant.
macro_rules! rules {
    (
        $($(#[$doc:meta])* $rule:ident, without $(#[$left_out:meta])* $defect:ident;)*
        $(; mutations $($(#[$mutation_doc:meta])* $mutation:ident,)*)?
    ) => {
        faultline_core::defects! {
            $($(#[$left_out])* $defect,)*
            $(; mutations $($(#[$mutation_doc])* $mutation,)*)?
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
