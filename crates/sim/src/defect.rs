//! Known defects of a driver. Builds with the feature `defects` can enable them. Protocols depend on the
//! omitted rules, and the checkers must detect each defect.

/// An omitted rule of the contract between drivers and processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A packet from a life that has ended is accepted as if its replacement had sent it.
    OldSendersHeard,
    /// A packet to a life that has ended is delivered to its replacement.
    OldReceiversServed,
}

impl Defect {
    /// All known defects of a driver.
    pub const ALL: &[Defect] = &[Defect::OldSendersHeard, Defect::OldReceiversServed];

    /// Returns the name of the defect.
    pub const fn name(self) -> &'static str {
        match self {
            Defect::OldSendersHeard => "old-senders-heard",
            Defect::OldReceiversServed => "old-receivers-served",
        }
    }
}

/// The enabled defect, if any. Always none unless the crate's feature `defects` is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    #[cfg(feature = "defects")]
    on: Option<Defect>,
}

impl Defects {
    /// Enables a single defect.
    #[cfg(feature = "defects")]
    pub fn only(defect: Defect) -> Defects {
        Defects { on: Some(defect) }
    }

    /// Returns whether `defect` is enabled.
    #[inline]
    pub fn has(self, defect: Defect) -> bool {
        #[cfg(feature = "defects")]
        return self.on == Some(defect);
        #[cfg(not(feature = "defects"))]
        {
            let _ = defect;
            false
        }
    }
}
