//! Switches for known defects. Each protocol has its own list. Each defect breaks one rule, by applying it as printed in
//! a paper, or by omitting it.

/// Declares `Defect`, which lists the known defects of a protocol, and `Defects`, a set of enabled ones. The set is always
/// empty in builds without debug assertions, such as release builds.
#[macro_export]
macro_rules! defects {
    (
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        /// A rule as printed in the paper, or an omitted rule. Each defect violates a property, and the checker must
        /// detect the violation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Defect {
            $($(#[$doc])* $name,)*
        }

        impl Defect {
            /// All known defects.
            pub const ALL: &[Defect] = &[$(Defect::$name,)*];
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
