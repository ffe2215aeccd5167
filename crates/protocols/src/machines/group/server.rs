//! A storage server: it keeps replicas for other processes, and does nothing else.

use alloc::vec::Vec;

use faultline_core::{Input, Machine, ProcessId, Protocol, Span, Time, To};

use super::Grouped;
use super::member::Membership;
use super::message::Message;
use super::store::{Answers, Store};
use super::view::View;

#[derive(Clone, Debug)]
pub(crate) struct Server<P: Grouped> {
    view: View,
    store: Store<P>,
    retry_every: Span,
    /// Inquiries from groups whose failures are not known here yet.
    early: Vec<(ProcessId, Message)>,
}

impl<P: Grouped> Server<P> {
    pub(crate) fn new(membership: Membership, retry_every: Span, host: &mut dyn Machine<P>) -> Server<P> {
        let Membership { me, boot, view, placement, rules } = membership;
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
                self.view = View::new(self.view.scope(), None, membership);
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
    pub(crate) fn handle_message(&mut self, from: ProcessId, message: Message, host: &mut dyn Machine<P>) {
        match message {
            Message::Inquire { restore, group } if restore.incarnation > self.view.incarnation(group) => {
                self.early.push((from, message));
            }
            Message::Inquire { restore, group } => {
                let answers = self.store.inquired(from, restore, group, &self.view);
                self.send_answers(answers, host);
            }
            Message::Fetch(name) => self.store.read_for(from, name, host),
            Message::Refused(name) => self.store.refused(name, host),
            Message::Hold { incarnation, name } => self.store.hold(from, incarnation, name, host),
            Message::Secure(name) => self.store.secure(from, name, host),
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
