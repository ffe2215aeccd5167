//! Making an image durable locally and at its holders.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{ImageName, Machine, ProcessId, ProtocolTypes};

use super::{ImageOf, Writes};

/// The conditions under which an image counts as safe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requires {
    /// Durability in the owner's own storage.
    pub(crate) own: bool,
    /// Durability at every holder.
    pub(crate) replicas: bool,
}

impl Requires {
    /// Both conditions: an image is safe once it survives the loss of all but one of its copies.
    pub(crate) const ALL: Requires = Requires { own: true, replicas: true };
}

/// An image of this process that is being made durable: it is written here, and sent to its holders. It is complete
/// once it is durable here and all holders have confirmed it, and stays complete. A holder that begins a new life may
/// have lost its replica, so it receives the image again. It has to confirm the image again, too, unless the image is
/// already complete: replicas that a holder loses later are replaced by other means.
#[derive(Clone, Debug)]
pub(crate) struct Replication<S: ProtocolTypes> {
    image: Arc<ImageOf<S>>,
    requires: Requires,
    is_durable: bool,
    /// Holders that have not confirmed their replicas.
    awaited: Vec<ProcessId>,
    is_complete: bool,
}

impl<S: ProtocolTypes> Replication<S> {
    /// Writes the image, and sends it to its holders.
    pub(crate) fn begin(
        image: Arc<ImageOf<S>>,
        holders: &[ProcessId],
        requires: Requires,
        writes: &mut Writes<S>,
        host: &mut dyn Machine<S>,
    ) -> Replication<S> {
        writes.write(image.clone(), host);
        for &holder in holders {
            host.send_image(holder, image.clone());
        }
        let awaited = if requires.replicas { holders.to_vec() } else { Vec::new() };
        Replication { image, requires, is_durable: false, awaited, is_complete: false }
    }

    pub(crate) fn image(&self) -> &Arc<ImageOf<S>> {
        &self.image
    }

    /// Returns whether this is the image named `name`.
    pub(crate) fn is(&self, name: ImageName) -> bool {
        self.image.name == name
    }

    /// Records that the image named `name` is durable in this process's storage.
    pub(crate) fn durable(&mut self, name: ImageName) {
        self.is_durable |= self.is(name);
    }

    /// Handles a holder's confirmation for the image named `name`.
    pub(crate) fn confirmed(&mut self, holder: ProcessId, name: ImageName) {
        if self.is(name) {
            self.awaited.retain(|&it| it != holder);
        }
    }

    /// Sends the image again to a holder that began a new life.
    pub(crate) fn repeat(&mut self, holder: ProcessId, host: &mut dyn Machine<S>) {
        if self.requires.replicas && !self.is_complete && !self.awaited.contains(&holder) {
            self.awaited.push(holder);
        }
        host.send_image(holder, self.image.clone());
    }

    /// Sends the image again to all holders that have not confirmed it.
    pub(crate) fn repeat_to_awaited(&self, host: &mut dyn Machine<S>) {
        self.awaited.iter().for_each(|&holder| host.send_image(holder, self.image.clone()));
    }

    /// Returns whether the image is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether the image has just become complete. Call this after each of the methods above.
    pub(crate) fn completes(&mut self) -> bool {
        let is_safe = (self.is_durable || !self.requires.own) && self.awaited.is_empty();
        is_safe && !core::mem::replace(&mut self.is_complete, true)
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::ProcessId;

    use super::super::testing::{Act, Plain, Recorder, image, name};
    use super::*;

    const HOLDERS: [ProcessId; 2] = [ProcessId(2), ProcessId(3)];

    fn begun(requires: Requires, host: &mut Recorder) -> Replication<Plain> {
        Replication::begin(image(1, 1), &HOLDERS, requires, &mut Writes::default(), host)
    }

    #[test]
    fn an_image_is_complete_once_it_is_durable_here_and_at_all_holders() {
        let mut host = Recorder::default();
        let mut replication = begun(Requires::ALL, &mut host);
        let sent = HOLDERS.map(|it| Act::SendImage(it, name(1, 1)));
        assert_eq!(host.take(), [&[Act::Persist(name(1, 1))], &sent[..]].concat());
        replication.confirmed(HOLDERS[0], name(1, 1));
        replication.durable(name(1, 2));
        replication.confirmed(HOLDERS[1], name(1, 2));
        assert!(!replication.completes(), "another image says nothing about this one");
        replication.durable(name(1, 1));
        assert!(!replication.completes());
        replication.confirmed(HOLDERS[1], name(1, 1));
        assert!(replication.completes());
        assert!(!replication.completes(), "only once");
    }

    #[test]
    fn a_holder_in_a_new_life_confirms_again() {
        let mut host = Recorder::default();
        let mut replication = begun(Requires::ALL, &mut host);
        replication.durable(name(1, 1));
        replication.confirmed(HOLDERS[0], name(1, 1));
        host.take();
        replication.repeat(HOLDERS[0], &mut host);
        assert_eq!(host.take(), [Act::SendImage(HOLDERS[0], name(1, 1))]);
        replication.confirmed(HOLDERS[1], name(1, 1));
        assert!(!replication.completes());
        replication.repeat_to_awaited(&mut host);
        assert_eq!(host.take(), [Act::SendImage(HOLDERS[0], name(1, 1))]);
        replication.confirmed(HOLDERS[0], name(1, 1));
        assert!(replication.completes());
        replication.repeat(HOLDERS[1], &mut host);
        host.take();
        replication.repeat_to_awaited(&mut host);
        assert_eq!(host.take(), [], "a complete image waits for nothing");
    }

    #[test]
    fn a_disabled_rule_requires_fewer_confirmations() {
        let mut host = Recorder::default();
        assert!(begun(Requires { own: false, replicas: false }, &mut host).completes());
        let mut replication = begun(Requires { own: true, replicas: false }, &mut host);
        replication.repeat(HOLDERS[0], &mut host);
        assert!(!replication.completes());
        replication.durable(name(1, 1));
        assert!(replication.completes());
    }
}
