//! A storage server: it keeps replicas for other processes, and does nothing else.

use alloc::sync::Arc;

use faultline_core::{Birth, Input, Time, To};

use super::config::Config;
use super::message::Control;
use super::store::{Answers, Store};
use super::view::View;
use super::{Hydee, ProtocolHost};

#[derive(Clone, Debug)]
pub(super) struct Server {
    config: Arc<Config>,
    view: View,
    store: Store,
    /// Inquiries of clusters whose failure is not known here yet.
    early: alloc::vec::Vec<(faultline_core::ProcessId, Control)>,
}

impl Server {
    pub(super) fn start(birth: Birth<Config>, host: &mut ProtocolHost) -> Server {
        let Birth { me, boot, membership, config, .. } = birth;
        let view = View::new(&config, membership);
        let store = Store::new(&config, &view, me, boot, host);
        Server { config, view, store, early: alloc::vec::Vec::new() }
    }

    pub(super) fn handle(&mut self, input: Input<Hydee>, now: Time, host: &mut ProtocolHost) {
        let answers = match input {
            Input::Control { from, message } => self.told(from, message, host),
            Input::Image { from, image } => self.store.copy_arrived(from, image, &self.view, host),
            Input::Persisted(name) => self.store.persisted(name, &self.view, host),
            Input::PersistFailed(name) => {
                self.store.write_failed(name, now + self.config.retry_every, &self.view)
            }
            Input::Read { name, image } => self.store.read(name, image.as_ref(), host).1,
            Input::Listed(images) => self.store.listed(images, &self.view, host),
            Input::Membership(membership) => {
                self.view = View::new(&self.config, membership);
                let early = core::mem::take(&mut self.early);
                early.into_iter().flat_map(|(from, message)| self.told(from, message, host)).collect()
            }
            Input::Timeout => {
                self.store.writes.retry(now, host);
                Answers::new()
            }
            Input::Sent { .. }
            | Input::Consumed(_)
            | Input::Received { .. }
            | Input::Snapshot(_)
            | Input::Rested
            | Input::Left
            | Input::Recorded { .. } => Answers::new(),
        };
        for (whom, message) in answers {
            host.control(To::One(whom), message);
        }
    }

    fn told(
        &mut self,
        from: faultline_core::ProcessId,
        message: Control,
        host: &mut ProtocolHost,
    ) -> Answers {
        match message {
            Control::Inquire { restore, cluster } if restore.incarnation > self.view.incarnation(cluster) => {
                self.early.push((from, message));
            }
            Control::Inquire { restore, cluster } => {
                return self.store.inquired(from, restore, cluster, &self.view);
            }
            Control::Fetch(name) => self.store.read_for(from, name, host),
            Control::Refused(name) => self.store.refused(name, host),
            Control::Hold { incarnation, name } => self.store.hold(from, incarnation, name, host),
            Control::Secure(name) => self.store.secure(from, name, host),
            _ => {}
        }
        Answers::new()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.store.writes.next_deadline()
    }
}
