//! The event logger (M1, M3, M5, M6): durably stores the order in which messages were delivered to each
//! process. It is outside all clusters. If it fails, the live processes report again to its next life.
//!
//! All data is stored as a single record. Reports that arrive during a write are covered by the next write.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, Host, ImageName, Input, LifeStart, ProcessId, Role, To};
use serde::{Deserialize, Serialize};

use super::{Config, Control, Determinant, LoggerMessage, PessimisticLogging, Recalled, Rule};
use crate::frame::{self, ExtraProcess};
use crate::machines::group::View;

/// The host, as the event logger sees it.
type LoggerHost<'a> = dyn Host<PessimisticLogging> + 'a;

#[derive(Clone, Debug)]
pub(crate) struct Logger {
    config: Arc<Config>,
    /// Orders of deliveries, by rank. `None` if the storage was lost and the process has not reported again since.
    orders: Vec<Option<LoggedOrder>>,
    /// Numbers of additions to `orders`: in total, durable, and durable once the write in progress completes.
    changes: u64,
    durable: u64,
    writing: Option<u64>,
    /// Answers to send, each with the number of changes that must be durable first.
    answers: VecDeque<(u64, ProcessId, LoggerMessage)>,
    /// Whether the storage was lost, and some processes have not reported again.
    lacks: bool,
}

/// Deliveries of one process that none of its committed checkpoints contains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LoggedOrder {
    first: u64,
    determinants: VecDeque<Determinant>,
    /// The checkpoint that contains the earlier deliveries.
    after: Option<ImageName>,
}

impl LoggedOrder {
    fn end(&self) -> u64 {
        self.first + self.determinants.len() as u64
    }

    /// Appends deliveries numbered from `first`, skipping those that are already known.
    fn append(&mut self, first: u64, determinants: &[Determinant]) {
        let here = self.end().saturating_sub(first) as usize;
        assert!(first <= self.end(), "the reports of a process arrive in order");
        self.determinants.extend(determinants.iter().skip(here));
    }

    /// Removes deliveries that a checkpoint contains.
    fn forget(&mut self, below: u64, by: Option<ImageName>) {
        let superfluous = below.saturating_sub(self.first).min(self.determinants.len() as u64);
        self.determinants.drain(..superfluous as usize);
        self.first = self.first.max(below);
        self.after = by.or(self.after);
    }
}

impl ExtraProcess<PessimisticLogging> for Logger {
    const ROLE: Option<Role> = Some(Role::EVENT_LOGGER);

    fn start(start: LifeStart<Config>, _: View, _: &frame::Rules, host: &mut LoggerHost) -> Logger {
        let LifeStart { boot, membership, config, record, .. } = start;
        let ranks = membership.with_role(Role::RANK).count();
        let recorded = record.and_then(|bytes| postcard::from_bytes::<Vec<Option<LoggedOrder>>>(&bytes).ok());
        let nothing = (boot != Boot::Replaced).then(LoggedOrder::default);
        let orders = recorded.unwrap_or_else(|| alloc::vec![nothing; ranks]);
        let lacks = boot == Boot::Replaced;
        let mut this =
            Logger { config, orders, changes: 0, durable: 0, writing: None, answers: VecDeque::new(), lacks };
        this.report_when_complete(host);
        this
    }

    fn handle(&mut self, input: Input<PessimisticLogging>, host: &mut LoggerHost) {
        match input {
            Input::Control { from, message: Control::Order(message) } => {
                self.handle_message(from, message, host);
            }
            Input::Recorded { version } => {
                self.durable = version;
                self.writing = None;
            }
            _ => {}
        }
        self.write(host);
        self.answer(host);
        self.report_when_complete(host);
    }
}

impl Logger {
    fn handle_message(&mut self, from: ProcessId, message: LoggerMessage, host: &mut LoggerHost) {
        let of_process = &mut self.orders[from.index()];
        match (message, &mut *of_process) {
            (LoggerMessage::Log { first, determinants }, Some(order)) => {
                order.append(first, &determinants);
                let upto = order.end();
                self.changed(from, upto, host);
            }
            (LoggerMessage::Know { first, determinants }, _) => {
                let after = of_process.take().and_then(|it| it.after);
                let order =
                    LoggedOrder { first, determinants: determinants.iter().copied().collect(), after };
                let upto = order.end();
                *of_process = Some(order);
                self.changed(from, upto, host);
            }
            (LoggerMessage::Forget { below, by }, Some(order)) => order.forget(below, by),
            (LoggerMessage::Recall { first }, order) => {
                let answer = match order {
                    None => Recalled::Lost,
                    Some(order) if order.first > first => Recalled::Forgotten { by: order.after },
                    Some(order) => {
                        // The restored checkpoint may have been in doubt when the process failed. The logger then still
                        // has deliveries that this checkpoint contains.
                        order.forget(first, None);
                        Recalled::Order { first, determinants: order.determinants.iter().copied().collect() }
                    }
                };
                self.answers.push_back((self.changes, from, LoggerMessage::Recalled(answer)));
            }
            _ => {}
        }
    }

    /// Records an addition, which is acknowledged once it is durable (M1).
    fn changed(&mut self, whose: ProcessId, upto: u64, host: &mut LoggerHost) {
        self.changes += 1;
        let logged = LoggerMessage::Logged { upto };
        if self.config.defects.obeys(Rule::AcknowledgesDurable) {
            self.answers.push_back((self.changes, whose, logged));
        } else {
            send(whose, logged, host);
        }
    }

    fn write(&mut self, host: &mut LoggerHost) {
        if self.writing.is_none() && self.durable < self.changes {
            self.writing = Some(self.changes);
            let bytes = postcard::to_allocvec(&self.orders).expect("numbers can be encoded");
            host.record(self.changes, bytes.into());
        }
    }

    fn answer(&mut self, host: &mut LoggerHost) {
        let due = self.answers.partition_point(|it| it.0 <= self.durable);
        for (_, receiver, message) in self.answers.drain(..due) {
            send(receiver, message, host);
        }
    }

    fn report_when_complete(&mut self, host: &mut LoggerHost) {
        let are_told = self.orders.iter().all(Option::is_some);
        if self.lacks && self.durable >= self.changes && are_told {
            self.lacks = false;
            host.held();
            host.claim(Claim::Protected);
        }
    }
}

fn send(receiver: ProcessId, message: LoggerMessage, host: &mut LoggerHost) {
    host.control(To::One(receiver), Control::Order(message));
}
