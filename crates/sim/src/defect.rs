//! Known defects of a driver. Builds with debug assertions can enable them. Protocols depend on the omitted rules, and
//! the conformance tests must detect each defect.

/// An omitted rule of the contract between drivers and processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A packet from a life that has ended is accepted as if the process's newest life had sent it.
    OldSendersHeard,
    /// A packet to a life that has ended is delivered to the process's newest life.
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

/// The enabled defect, if any. Always none in builds without debug assertions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    #[cfg(debug_assertions)]
    on: Option<Defect>,
}

impl Defects {
    /// Enables a single defect.
    #[cfg(debug_assertions)]
    pub fn only(defect: Defect) -> Defects {
        Defects { on: Some(defect) }
    }

    /// Returns whether `defect` is enabled.
    #[inline]
    pub fn has(self, defect: Defect) -> bool {
        #[cfg(debug_assertions)]
        return self.on == Some(defect);
        #[cfg(not(debug_assertions))]
        {
            let _ = defect;
            false
        }
    }
}
