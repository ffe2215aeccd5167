//! Exchanging the order of a process's deliveries with the event logger (M1 to M3, M5, M6).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{Host, ImageName, MessageId, ProcessId, Role, Time, To};

use super::order::DeliveryOrder;
use super::{Control, Defects, LoggerMessage, PessimisticLogging, Recalled, Rule};
use crate::frame::{Decision, Delivering, Rank};
use crate::machines::group::{Group, View};
use crate::machines::logs::{Channel, Logs};

/// The host, as this protocol sees it.
type ProtocolHost<'a> = dyn Host<PessimisticLogging> + 'a;

/// The order of a process's deliveries, which the event logger learns.
#[derive(Clone, Debug)]
pub(crate) struct ReportedOrder {
    order: DeliveryOrder,
    logger: ProcessId,
    defects: Defects,
}

impl ReportedOrder {
    fn tell(&self, message: LoggerMessage, host: &mut ProtocolHost) {
        host.control(To::One(self.logger), Control::Order(message));
    }

    /// Asks the event logger for the deliveries to repeat (M3), or reports all known deliveries to it (M6).
    fn contact_logger(&self, host: &mut ProtocolHost) {
        let message = if self.order.is_asking() {
            LoggerMessage::Recall { first: self.order.first_to_repeat() }
        } else {
            let (first, determinants) = self.order.known();
            LoggerMessage::Know { first, determinants }
        };
        self.tell(message, host);
    }

    /// Handles the event logger's confirmation that all deliveries before number `upto` are stable (M2).
    fn logged(&mut self, upto: u64, host: &mut ProtocolHost) {
        self.order.stable_before(upto);
        if !self.defects.obeys(Rule::KeepsUntilCheckpoint) {
            self.tell(LoggerMessage::Forget { below: upto, by: None }, host);
        }
    }

    /// Handles the event logger's answer, which lists the deliveries to repeat or states that they are lost or were
    /// removed. Returns whether the deliveries to repeat are now known.
    fn recalled(
        &mut self,
        recalled: Recalled,
        group: &Group<PessimisticLogging>,
        host: &mut ProtocolHost,
    ) -> bool {
        if !self.order.is_asking() || group.is_recovering() {
            return false;
        }
        let kept = group.kept.expect("a process that asks has restored a checkpoint").part(group.me);
        match recalled {
            Recalled::Order { first, determinants } => {
                let is_known = self.order.recalled(first, &determinants);
                if is_known && self.order.needs_rest() {
                    host.request_rest();
                }
                return is_known;
            }
            Recalled::Lost => {
                let log = ImageName { owner: self.logger, ..kept };
                group.unrecoverable(&[(log, Vec::from([self.logger]))], host);
            }
            Recalled::Forgotten { by } => {
                let holders = group.holders.iter().copied();
                let asked = core::iter::once(group.me).chain(holders).collect();
                group.unrecoverable(&[(by.unwrap_or(kept), asked)], host);
            }
        }
        false
    }
}

impl Delivering<PessimisticLogging> for ReportedOrder {
    fn new(defects: Defects, view: &View) -> ReportedOrder {
        let logger = view.membership.with_role(Role::EVENT_LOGGER).next();
        let logger = logger.expect("the federation has an event logger");
        ReportedOrder { order: DeliveryOrder::new(defects), logger, defects }
    }

    fn handle(
        rank: &mut Rank<PessimisticLogging>,
        message: LoggerMessage,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        match message {
            LoggerMessage::Logged { upto } => {
                rank.deliveries.logged(upto, host);
                rank.proceed(host);
            }
            LoggerMessage::Recalled(recalled) => {
                if rank.deliveries.recalled(recalled, &rank.group, host) {
                    rank.proceed(host);
                    rank.replay(now, host);
                }
            }
            LoggerMessage::Log { .. }
            | LoggerMessage::Know { .. }
            | LoggerMessage::Forget { .. }
            | LoggerMessage::Recall { .. } => unreachable!("the event logger handles these"),
        }
    }

    fn decide(&self, id: MessageId) -> Decision {
        self.order.decide(id)
    }

    /// Reports a new delivery to the event logger (M1).
    fn delivered(&mut self, id: MessageId, decision: Decision, host: &mut ProtocolHost) {
        if let Some((first, determinant)) = self.order.deliver(id, decision) {
            self.tell(LoggerMessage::Log { first, determinants: [determinant].into() }, host);
        }
        if self.order.needs_rest() {
            host.request_rest();
        }
    }

    fn sent(&mut self) {
        self.order.sent();
    }

    fn is_stable(&self) -> bool {
        self.order.is_stable()
    }

    fn is_asking(&self) -> bool {
        self.order.is_asking()
    }

    fn repeats(&self) -> bool {
        self.order.repeats()
    }

    fn rested(&mut self) {
        self.order.rested();
    }

    /// Tells the event logger that the order of the deliveries in the checkpoint is no longer needed (M5).
    fn committed(
        &mut self,
        part: ImageName,
        channels: &BTreeMap<ProcessId, Channel<()>>,
        host: &mut ProtocolHost,
    ) {
        let below = delivered(channels);
        self.order.saved(below);
        self.tell(LoggerMessage::Forget { below, by: Some(part) }, host);
    }

    fn restored(
        &mut self,
        logs: &Logs<PessimisticLogging>,
        waiting: usize,
        has_acted: bool,
        host: &mut ProtocolHost,
    ) {
        let sent = logs.channels.values().map(|it| u64::from(it.sent)).sum::<u64>() + waiting as u64;
        self.order.restore(delivered(&logs.channels), sent, has_acted);
        self.contact_logger(host);
    }

    /// Contacts the event logger if it may have lost the reports to its previous life (M6).
    fn membership_changed(
        &self,
        old: Option<&View>,
        group: &Group<PessimisticLogging>,
        host: &mut ProtocolHost,
    ) {
        let view = &group.view;
        // The logger may have lost its storage before this life began.
        let may_lack =
            old.map_or_else(|| view.is_up(self.logger), |old| view.began_new_life(self.logger, old));
        if may_lack && !group.is_recovering() && self.defects.obeys(Rule::TellsNewLogger) {
            self.contact_logger(host);
        }
    }
}

/// Returns the number of deliveries that these channels contain.
fn delivered(channels: &BTreeMap<ProcessId, Channel<()>>) -> u64 {
    channels.values().map(|it| u64::from(it.received)).sum()
}
