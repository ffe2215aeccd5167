//! Known defects of a driver, to be switched on in builds with the feature `defects`: protocols rely on what is left out
//! here, and the checkers must say so.

/// A rule of the contract between drivers and processes that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// What a life sent that has ended since is taken as a word of its replacement.
    OldSendersHeard,
    /// What was sent to a life that has ended since is given to its replacement.
    OldReceiversServed,
}

impl Defect {
    /// Every known defect.
    pub const ALL: &[Defect] = &[Defect::OldSendersHeard, Defect::OldReceiversServed];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Defect::OldSendersHeard => "old-senders-heard",
            Defect::OldReceiversServed => "old-receivers-served",
        }
    }
}

/// The one that is switched on; always none unless the crate's `defects` feature is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    #[cfg(feature = "defects")]
    on: Option<Defect>,
}

impl Defects {
    /// This one.
    #[cfg(feature = "defects")]
    pub fn only(defect: Defect) -> Defects {
        Defects { on: Some(defect) }
    }

    /// Whether `defect` is switched on.
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
