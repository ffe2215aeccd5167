//! Refilling storage that was lost.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ImageName, Machine, ProcessId, ProtocolTypes};

/// The images that this process's storage still lacks after a loss. The storage is complete once it holds the process's
/// own images again, every owner has named the images to be held for it, and all of these have arrived. The process
/// then reports this, once. Until then, each new life of the process begins as if its storage had just been lost.
#[derive(Clone, Debug)]
pub(crate) struct Refill {
    /// `None` if nothing was lost, or if the storage is complete again.
    lacks: Option<Lacks>,
}

#[derive(Clone, Debug)]
struct Lacks {
    /// Whether the process still lacks its own images.
    own: bool,
    /// Owners that have not yet named the images to be stored for them.
    silent: BTreeSet<ProcessId>,
    /// Images that owners have named and that are not stored here yet.
    wanted: BTreeSet<ImageName>,
}

impl Refill {
    /// Begins a life. `owns` indicates whether the process has images of its own. `owners` lists the processes whose
    /// images it should hold; this takes time proportional to the size of the federation, so it is called only if the
    /// storage was lost.
    pub(crate) fn new(boot: Boot, owns: bool, owners: impl FnOnce() -> Vec<ProcessId>) -> Refill {
        let lacks = (boot == Boot::Replaced).then(|| Lacks {
            own: owns,
            silent: owners().into_iter().collect(),
            wanted: BTreeSet::new(),
        });
        Refill { lacks }
    }

    /// Records that the process has its own images again, or needs none.
    pub(crate) fn has_own(&mut self) {
        if let Some(lacks) = &mut self.lacks {
            lacks.own = false;
        }
    }

    /// Records that an owner has named the images to be stored for it.
    pub(crate) fn owner_reported(&mut self, owner: ProcessId) {
        if let Some(lacks) = &mut self.lacks {
            lacks.silent.remove(&owner);
        }
    }

    /// Returns whether the process still lacks its own images.
    pub(crate) fn lacks_own(&self) -> bool {
        self.lacks.as_ref().is_some_and(|it| it.own)
    }

    /// Records which of the images that an owner has named are missing here. They replace those that the owner named
    /// before.
    pub(crate) fn wants(&mut self, owner: ProcessId, names: impl IntoIterator<Item = ImageName>) {
        if let Some(lacks) = &mut self.lacks {
            lacks.wanted.retain(|it| it.owner != owner);
            lacks.wanted.extend(names);
        }
    }

    /// Records that the image is stored here, or that its owner no longer has it.
    pub(crate) fn settled(&mut self, name: ImageName) {
        if let Some(lacks) = &mut self.lacks {
            lacks.wanted.remove(&name);
        }
    }

    /// Stops waiting for owners for which `is_gone` returns `true`.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(ProcessId) -> bool) {
        if let Some(lacks) = &mut self.lacks {
            lacks.silent.retain(|&owner| !is_gone(owner));
            lacks.wanted.retain(|name| !is_gone(name.owner));
        }
    }

    /// Reports, once, that the storage is complete again.
    pub(crate) fn report<S: ProtocolTypes>(&mut self, host: &mut dyn Machine<S>) {
        let is_complete = |it: &mut Lacks| !it.own && it.silent.is_empty() && it.wanted.is_empty();
        if self.lacks.take_if(is_complete).is_some() {
            host.held();
            host.claim(Claim::Protected);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::testing::{Act, Recorder, name};
    use super::*;

    #[test]
    fn storage_that_was_not_lost_lacks_nothing() {
        for boot in [Boot::Fresh, Boot::Restarted] {
            let mut host = Recorder::default();
            Refill::new(boot, true, || unreachable!("the owners are not looked up")).report(&mut host);
            assert_eq!(host.take(), []);
        }
    }

    #[test]
    fn lost_storage_is_complete_once_everything_is_stored_again() {
        let mut host = Recorder::default();
        let mut refill = Refill::new(Boot::Replaced, true, || vec![ProcessId(2), ProcessId(3)]);
        refill.owner_reported(ProcessId(2));
        refill.wants(ProcessId(2), [name(2, 1), name(2, 2)]);
        refill.has_own();
        refill.settled(name(2, 1));
        refill.owner_reported(ProcessId(3));
        refill.report(&mut host);
        assert_eq!(host.take(), [], "an image is missing");
        refill.settled(name(2, 2));
        refill.report(&mut host);
        refill.report(&mut host);
        assert_eq!(host.take(), [Act::Held, Act::Protected], "a report is made once");
    }

    #[test]
    fn nothing_is_expected_from_an_owner_that_is_gone() {
        let mut host = Recorder::default();
        let mut refill = Refill::new(Boot::Replaced, false, || vec![ProcessId(2), ProcessId(3)]);
        refill.owner_reported(ProcessId(2));
        refill.wants(ProcessId(2), [name(2, 1)]);
        refill.forget(|owner| owner == ProcessId(2));
        refill.report(&mut host);
        assert_eq!(host.take(), []);
        refill.forget(|owner| owner == ProcessId(3));
        refill.report(&mut host);
        assert_eq!(host.take(), [Act::Held, Act::Protected]);
    }

    #[test]
    fn an_owner_may_name_other_images_later() {
        let mut host = Recorder::default();
        let mut refill = Refill::new(Boot::Replaced, true, || vec![ProcessId(2)]);
        assert!(refill.lacks_own());
        refill.has_own();
        assert!(!refill.lacks_own());
        refill.wants(ProcessId(2), [name(2, 1), name(2, 2)]);
        refill.wants(ProcessId(2), [name(2, 3)]);
        refill.owner_reported(ProcessId(2));
        refill.report(&mut host);
        assert_eq!(host.take(), []);
        refill.settled(name(2, 3));
        refill.report(&mut host);
        assert_eq!(host.take(), [Act::Held, Act::Protected]);
    }
}
