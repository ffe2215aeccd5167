//! Orders to agents, and their responses.

use std::time::Duration;

use faultline_core::ProcessId;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::messages::{Killed, OrderNo, ToAgent};
use super::places::Shared;
use crate::clock::monotonic;

/// Time within which a ready agent must carry out an order.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A response from an agent.
#[derive(Debug)]
pub(super) enum Answer {
    /// Times of the order and of the response, by this machine's monotonic clock, and the reading of the agent's clock.
    Armed {
        asked: u64,
        shown: u64,
        arrived: u64,
    },
    Done {
        killed: Option<Killed>,
        problem: Option<String>,
    },
    Paused {
        at: Option<u64>,
        problem: Option<String>,
    },
}

/// An order whose response is pending.
pub(super) struct Pending {
    process: ProcessId,
    order: OrderNo,
    answer: oneshot::Receiver<Answer>,
}

impl Shared {
    /// Sends an order to the agent of `process`, if it is ready.
    pub(super) fn order(
        &self,
        process: ProcessId,
        order: impl FnOnce(OrderNo) -> ToAgent,
    ) -> Option<Pending> {
        let number = self.with(process, |entry| {
            entry.orders += 1;
            entry.orders
        });
        self.order_again(process, number, order(number))
    }

    pub(super) fn order_again(&self, process: ProcessId, order: OrderNo, words: ToAgent) -> Option<Pending> {
        self.with(process, |entry| {
            entry.agent.as_ref()?.words.send(words).ok()?;
            let (sender, answer) = oneshot::channel();
            let asked = monotonic();
            entry.waiting.insert(order, (asked, sender));
            Some(Pending { process, order, answer })
        })
    }

    /// Returns the response to an order if it arrives by `by`; `None` if there is no agent or no response.
    pub(super) async fn answered(&self, pending: Option<Pending>, by: Instant) -> Option<(OrderNo, Answer)> {
        let Pending { process, order, answer } = pending?;
        match timeout_at(by, answer).await {
            Ok(answer) => answer.ok().map(|answer| (order, answer)),
            Err(_) => {
                self.with(process, |entry| entry.waiting.remove(&order));
                None
            }
        }
    }

    pub(super) fn answer(&self, process: ProcessId, order: OrderNo, answer: impl FnOnce(u64) -> Answer) {
        if let Some((asked, waiting)) = self.with(process, |entry| entry.waiting.remove(&order)) {
            // The receiver is closed if the response exceeded the time limit.
            drop(waiting.send(answer(asked)));
        }
    }
}
