//! Switches for deliberate mistakes. Each protocol has its own list, as do the composite and the supervisor. A list
//! consists of known defects, each of which breaks one rule (by applying it as printed in a paper, or by omitting it),
//! and mutations, which are small mistakes in the code.

/// Declares `Defect`, which lists the known defects and the mutations of a piece of code, and `Defects`, a set of
/// enabled ones. The set is always empty in builds without debug assertions, such as release builds.
#[macro_export]
macro_rules! defects {
    (
        $($(#[$doc:meta])* $name:ident,)*
        $(; mutations $($(#[$mutation_doc:meta])* $mutation:ident,)*)?
    ) => {
        /// A deliberate mistake: a rule as printed in the paper, an omitted rule, or a mutation. Each defect violates a
        /// property, and the checker must detect the violation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Defect {
            $($(#[$doc])* $name,)*
            $($($(#[$mutation_doc])* $mutation,)*)?
        }

        impl Defect {
            /// All known defects.
            pub const ALL: &[Defect] = &[$(Defect::$name,)*];
            /// All mutations.
            pub const MUTATIONS: &[Defect] = &[$($(Defect::$mutation,)*)?];
        }

        /// A set of enabled defects. Always empty in builds without debug assertions.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Defects {
            #[cfg(debug_assertions)]
            set: u128,
        }

        impl Defects {
            /// Creates a set with a single defect.
            #[cfg(debug_assertions)]
            pub fn only(defect: Defect) -> Defects {
                Defects { set: 1 << defect as u32 }
            }

            /// Returns whether no defect is enabled. The code keeps its invariants only in this case.
            #[inline]
            pub fn is_empty(self) -> bool {
                self == Defects::default()
            }

            /// Returns whether `defect` is enabled.
            #[inline]
            pub fn has(self, defect: Defect) -> bool {
                #[cfg(debug_assertions)]
                return self.set & (1 << defect as u32) != 0;
                #[cfg(not(debug_assertions))]
                {
                    let _ = defect;
                    false
                }
            }
        }
    };
}
