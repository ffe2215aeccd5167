//! Switches for known defects: each applies a rule as printed in the paper, or omits it. Each protocol has its own
//! list.

/// Declares `Defect`, the known defects of a protocol, and `Defects`, a set of enabled ones. The set is always empty
/// unless the crate's feature `defects` is enabled.
macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule as printed in the paper, or omitted. Each defect breaks a property, and the checkers must detect
        /// it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Defect {
            $($(#[$doc])* $name,)*
        }

        impl Defect {
            /// All known defects of the protocol.
            pub const ALL: &[Defect] = &[$(Defect::$name,)*];
        }

        /// A set of enabled defects. Always empty unless the crate's feature `defects` is enabled.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Defects {
            #[cfg(feature = "defects")]
            set: u64,
        }

        impl Defects {
            /// Creates a set with a single defect.
            #[cfg(feature = "defects")]
            pub fn only(defect: Defect) -> Defects {
                Defects { set: 1 << defect as u64 }
            }

            /// Returns whether `defect` is enabled.
            #[inline]
            pub fn has(self, defect: Defect) -> bool {
                #[cfg(feature = "defects")]
                return self.set & (1 << defect as u64) != 0;
                #[cfg(not(feature = "defects"))]
                {
                    let _ = defect;
                    false
                }
            }
        }
    };
}

pub(crate) use defects;
