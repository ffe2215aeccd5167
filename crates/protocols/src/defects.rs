//! Switches for known defects: a rule as printed, or left out. Each protocol lists its own.

/// Declares `Defect`, the known defects of a protocol, and `Defects`, a set of those that are switched on, which is always
/// empty unless the crate's `defects` feature is on.
macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule as printed, or left out: each breaks a property, and the checkers must say so.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Defect {
            $($(#[$doc])* $name,)*
        }

        impl Defect {
            /// Every known defect.
            pub const ALL: &[Defect] = &[$(Defect::$name,)*];
        }

        /// A set of switched-on defects; always empty unless the crate's `defects` feature is on.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Defects {
            #[cfg(feature = "defects")]
            set: u64,
        }

        impl Defects {
            /// The set of one defect.
            #[cfg(feature = "defects")]
            pub fn only(defect: Defect) -> Defects {
                Defects { set: 1 << defect as u64 }
            }

            /// Whether `defect` is switched on.
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
