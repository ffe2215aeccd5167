//! Writes to this process's storage.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use faultline_core::{ImageName, Machine, ProtocolTypes, Time};

use super::ImageOf;

/// The images that this process is writing. An image is passed to the storage when it is added, and again
/// after each refusal, until it is durable or no longer needed. All refused images are written again
/// together, once the delay after the first refusal has passed.
#[derive(Clone, Debug)]
pub(crate) struct Writes<S: ProtocolTypes> {
    writing: BTreeMap<ImageName, Arc<ImageOf<S>>>,
    /// Images that the storage refused. A subset of `writing`.
    refused: BTreeSet<ImageName>,
    retry_at: Option<Time>,
}

impl<S: ProtocolTypes> Default for Writes<S> {
    fn default() -> Self {
        Writes { writing: BTreeMap::new(), refused: BTreeSet::new(), retry_at: None }
    }
}

impl<S: ProtocolTypes> Writes<S> {
    pub(crate) fn write(&mut self, image: Arc<ImageOf<S>>, host: &mut dyn Machine<S>) {
        self.writing.insert(image.name, image.clone());
        host.persist(image);
    }

    /// Handles an image that is now durable. Returns the image if this process was writing it.
    pub(crate) fn finished(&mut self, name: ImageName) -> Option<Arc<ImageOf<S>>> {
        self.refused.remove(&name);
        self.writing.remove(&name)
    }

    /// Handles a refusal. The image is written again at `retry_at`, or at the time set by an earlier refusal.
    pub(crate) fn refused(&mut self, name: ImageName, retry_at: Time) {
        if self.writing.contains_key(&name) {
            self.refused.insert(name);
            self.retry_at = self.retry_at.or(Some(retry_at));
        }
    }

    /// Returns the time at which refused images will be written again.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.retry_at
    }

    /// Writes refused images again once their delay has passed.
    pub(crate) fn retry(&mut self, now: Time, host: &mut dyn Machine<S>) {
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            for name in core::mem::take(&mut self.refused) {
                let image = self.writing.get(&name).expect("a refused image is still being written");
                host.persist(image.clone());
            }
        }
    }

    /// Returns whether the image is being written.
    pub(crate) fn contains(&self, name: ImageName) -> bool {
        self.writing.contains_key(&name)
    }

    /// Iterates over the names of all images being written, in ascending order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ImageName> {
        self.writing.keys()
    }

    /// Stops repeating writes of the images for which `is_void` returns `true`. A write in progress may still succeed.
    pub(crate) fn forget(&mut self, is_void: impl Fn(&ImageName) -> bool) {
        self.writing.retain(|name, _| !is_void(name));
        self.refused.retain(|name| !is_void(name));
    }

    /// Stops repeating refused writes of the images for which `is_void` returns `true`.
    pub(crate) fn forget_refused(&mut self, is_void: impl Fn(&ImageName) -> bool) {
        self.refused.retain(|name| {
            let is_void = is_void(name);
            if is_void {
                self.writing.remove(name);
            }
            !is_void
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Act, Recorder, image, name};
    use super::*;

    #[test]
    fn an_image_is_written_until_it_is_durable() {
        let (mut writes, mut host) = (Writes::default(), Recorder::default());
        writes.write(image(1, 1), &mut host);
        writes.refused(name(1, 1), Time(50));
        assert_eq!(writes.next_deadline(), Some(Time(50)));
        writes.retry(Time(49), &mut host);
        writes.retry(Time(50), &mut host);
        assert_eq!(host.take(), [Act::Persist(name(1, 1)), Act::Persist(name(1, 1))]);
        assert_eq!(writes.next_deadline(), None);
        assert!(writes.finished(name(1, 1)).is_some());
        assert!(writes.finished(name(1, 1)).is_none());
        writes.refused(name(1, 1), Time(60));
        assert_eq!(writes.next_deadline(), None, "a durable image is not written again");
    }

    #[test]
    fn the_first_refusal_determines_when_all_are_repeated() {
        let (mut writes, mut host) = (Writes::default(), Recorder::default());
        for sn in [1, 2] {
            writes.write(image(1, sn), &mut host);
            writes.refused(name(1, sn), Time(50 + u64::from(sn)));
        }
        host.take();
        writes.retry(Time(51), &mut host);
        assert_eq!(host.take(), [Act::Persist(name(1, 1)), Act::Persist(name(1, 2))]);
    }

    #[test]
    fn a_write_that_is_no_longer_needed_is_not_repeated() {
        let (mut writes, mut host) = (Writes::default(), Recorder::default());
        for sn in [1, 2, 3] {
            writes.write(image(1, sn), &mut host);
        }
        writes.refused(name(1, 1), Time(50));
        writes.refused(name(1, 3), Time(50));
        writes.forget_refused(|it| it.sn.0 < 3);
        assert!(!writes.contains(name(1, 1)));
        assert!(writes.contains(name(1, 2)), "the write of this image has not been refused, and may succeed");
        writes.forget(|it| it.sn.0 == 3);
        host.take();
        writes.retry(Time(50), &mut host);
        assert_eq!(host.take(), []);
        assert_eq!(writes.names().collect::<alloc::vec::Vec<_>>(), [&name(1, 2)]);
    }
}
