//! Reads from this process's storage.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{ImageName, Machine, ProtocolTypes};

/// The reads in progress, each with its requesters. An image is read once for all requests that arrive
/// before the storage answers; each requester gets the answer.
#[derive(Clone, Debug)]
pub(crate) struct Reads<W> {
    readers: BTreeMap<ImageName, Vec<W>>,
}

impl<W> Default for Reads<W> {
    fn default() -> Self {
        Reads { readers: BTreeMap::new() }
    }
}

impl<W> Reads<W> {
    /// Reads an image for `receiver`.
    pub(crate) fn request<S: ProtocolTypes>(
        &mut self,
        name: ImageName,
        receiver: W,
        host: &mut dyn Machine<S>,
    ) {
        let readers = self.readers.entry(name).or_default();
        if readers.is_empty() {
            host.read(name);
        }
        readers.push(receiver);
    }

    /// Handles the storage's answer. Returns the requesters of the image, in the order of their requests.
    pub(crate) fn finished(&mut self, name: ImageName) -> Vec<W> {
        self.readers.remove(&name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Act, Recorder, name};
    use super::*;

    #[test]
    fn one_read_answers_all_requests_made_in_the_meantime() {
        let (mut reads, mut host) = (Reads::default(), Recorder::default());
        reads.request(name(1, 1), 'a', &mut host);
        reads.request(name(1, 2), 'b', &mut host);
        reads.request(name(1, 1), 'c', &mut host);
        assert_eq!(host.take(), [Act::Read(name(1, 1)), Act::Read(name(1, 2))]);
        assert_eq!(reads.finished(name(1, 1)), ['a', 'c']);
        assert_eq!(reads.finished(name(1, 1)), []);
        reads.request(name(1, 1), 'd', &mut host);
        assert_eq!(host.take(), [Act::Read(name(1, 1))], "an earlier answer may be outdated");
    }
}
