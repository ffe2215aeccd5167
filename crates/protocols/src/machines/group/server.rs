//! A storage server: it keeps replicas for other processes, and does nothing else.

use alloc::vec::Vec;

use faultline_core::{Input, Machine, ProcessId, Protocol, Span, Time, To};

use super::Grouped;
use super::member::GroupParameters;
use super::message::GroupMessage;
use super::store::{Answers, Store};
use super::view::View;

#[derive(Clone, Debug)]
pub(crate) struct Server<P: Grouped> {
    view: View,
    store: Store<P>,
    retry_every: Span,
    /// Inquiries from groups whose failures are not known here yet.
    early: Vec<(ProcessId, GroupMessage)>,
}

impl<P: Grouped> Server<P> {
    pub(crate) fn new(
        membership: GroupParameters,
        retry_every: Span,
        host: &mut dyn Machine<P>,
    ) -> Server<P> {
        let GroupParameters { me, boot, view, placement, rules } = membership;
        let store = Store::new(placement, rules, &view, me, boot, host);
        Server { view, store, retry_every, early: Vec::new() }
    }

    /// Handles an input other than a message.
    pub(crate) fn handle(&mut self, input: Input<P>, now: Time, host: &mut dyn Machine<P>)
    where
        P: Protocol,
    {
        let answers = match input {
            Input::Image { from, image } => self.store.copy_arrived(from, image, &self.view, host),
            Input::Persisted(name) => self.store.persisted(name, &self.view, host),
            Input::PersistFailed(name) => self.store.write_failed(name, now + self.retry_every, &self.view),
            Input::Read { name, image } => self.store.read(name, image.as_ref(), host).1,
            Input::Listed(images) => self.store.listed(images, &self.view, host),
            Input::Membership(membership) => {
                self.view = self.view.after(membership);
                for (from, message) in core::mem::take(&mut self.early) {
                    self.handle_message(from, message, host);
                }
                Answers::new()
            }
            Input::Timeout => {
                self.store.writes.retry(now, host);
                Answers::new()
            }
            _ => Answers::new(),
        };
        self.send_answers(answers, host);
    }

    /// Handles a message of the sub-machine.
    pub(crate) fn handle_message(
        &mut self,
        from: ProcessId,
        message: GroupMessage,
        host: &mut dyn Machine<P>,
    ) {
        match message {
            GroupMessage::Inquire { restore, group }
                if restore.incarnation > self.view.incarnation(group) =>
            {
                self.early.push((from, message));
            }
            GroupMessage::Inquire { restore, group } => {
                let answers = self.store.inquired(from, restore, group, &self.view);
                self.send_answers(answers, host);
            }
            GroupMessage::Fetch(name) => self.store.read_for(from, name, host),
            GroupMessage::Refused(name) => self.store.refused(name, host),
            GroupMessage::Hold { incarnation, name } => self.store.hold(from, incarnation, name, host),
            GroupMessage::Secure(name) => self.store.secure(from, name, host),
            _ => {}
        }
    }

    fn send_answers(&mut self, answers: Answers, host: &mut dyn Machine<P>) {
        for (receiver, message) in answers {
            host.control(To::One(receiver), message.into());
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.store.writes.next_deadline()
    }
}
