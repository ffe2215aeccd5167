//! Measures links by echo, over the same delay lines, sessions and connections as packets.
//!
//! All processes of a local run share a monotonic clock, so each direction can be measured separately: the delay of a
//! link is the time from when an echo is handed to the link until it arrives at the other end.
//!
//! While the machine is busy, no link has its requested delay. A link that is not as requested is therefore measured
//! repeatedly, for at most a few seconds, and the result contains the number of rounds.
//!
//! A link that changes while the application runs is measured at that time, between the application's
//! packets. An application that keeps the link busy therefore also delays the echoes.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{ProcessId, Span, Time};
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::control::{Measurement, ToSupervisor};
use crate::transport::{EchoReply, Transport};

/// Time between two rounds, long enough for a brief load on the machine to pass.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Interval between the echoes over an observed link.
const ECHO_EVERY: Duration = Duration::from_millis(200);
/// Number of echoes per report on a link.
const REPORTED: usize = 5;

/// An order from the supervisor to measure or observe links with echoes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Echoes {
    /// Measures these links one at a time. Until the given time has passed, repeats the measurement of links that are
    /// not as requested. Replaces an earlier order of this kind.
    Measure(Vec<Measurement>, Span),
    /// Observes exactly these links. Contains the process at the other end of each link, and the requested
    /// latency.
    Observe(Vec<(ProcessId, Span)>),
}

/// Largest number of unanswered echoes that are remembered per link.
const MOST_OPEN: usize = 64;

/// A link that is observed.
struct Observed {
    to: ProcessId,
    requested: Span,
    since: Time,
    /// Echoes in transit: the time at which each was sent, and its expected time of arrival. If the link's
    /// bandwidth delays packets ahead of an echo, the expected time includes that delay.
    open: VecDeque<(Time, Time)>,
    /// For each answered echo, the requested latency plus the deviation of the echo from its expected time of arrival.
    delays: Vec<Span>,
}

impl Observed {
    fn echo(&mut self, transport: &Rc<Transport>) {
        let Some((sent, due)) = transport.echo(self.to) else { return };
        // `due` does not include the delay that traffic control adds.
        self.open.push_back((sent, due.max(sent + self.requested)));
        if self.open.len() > MOST_OPEN {
            self.open.pop_front();
        }
    }

    fn answered(&mut self, echo: &EchoReply) {
        let Some(place) = self.open.iter().position(|it| it.0 == echo.sent) else { return };
        let (_, due) = self.open.remove(place).expect("the position is valid");
        let late = echo.arrived.since(due);
        let early = due.since(echo.arrived);
        self.delays.push(Span((self.requested + late).0.saturating_sub(early.0)));
    }
}

/// Measures and observes links as ordered. A newer order ends an unfinished measurement, because the process at the
/// other end of a link may have failed and may never respond.
pub(crate) async fn measure(
    transport: Rc<Transport>,
    clock: Clock,
    mut orders: mpsc::UnboundedReceiver<Echoes>,
    mut echoes: mpsc::UnboundedReceiver<EchoReply>,
    report: mpsc::UnboundedSender<ToSupervisor>,
) {
    let mut observed: Vec<Observed> = Vec::new();
    let mut again = tokio::time::interval(ECHO_EVERY);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = None;
    loop {
        let order = match next.take() {
            Some(order) => Some(order),
            None => tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => Some(order),
                    None => return,
                },
                Some(echo) = echoes.recv() => {
                    note(&mut observed, clock, &echo, &report);
                    None
                }
                _ = again.tick(), if !observed.is_empty() => {
                    observed.iter_mut().for_each(|it| it.echo(&transport));
                    None
                }
            },
        };
        match order {
            None => {}
            Some(Echoes::Observe(links)) => {
                let since = clock.now();
                let observe = |(to, requested)| Observed {
                    to,
                    requested,
                    since,
                    open: VecDeque::new(),
                    delays: Vec::new(),
                };
                observed = links.into_iter().map(observe).collect();
            }
            Some(Echoes::Measure(links, again_for)) => {
                let patience = clock.now() + again_for;
                let work = async {
                    for link in links {
                        let result = measure_link(&transport, clock, link, patience, &mut echoes).await;
                        let Measurement { to, requested, .. } = link;
                        drop(report.send(ToSupervisor::Measured { to, requested, link: result }));
                    }
                };
                next = tokio::select! {
                    newer = orders.recv() => match newer {
                        Some(newer) => Some(newer),
                        None => return,
                    },
                    () = work => None,
                };
            }
        }
    }
}

/// Records the response to an echo. Reports the delays of the link once there are [`REPORTED`] of them.
fn note(
    observed: &mut [Observed],
    clock: Clock,
    echo: &EchoReply,
    report: &mpsc::UnboundedSender<ToSupervisor>,
) {
    let Some(link) = observed.iter_mut().find(|it| it.to == echo.from) else { return };
    link.answered(echo);
    if link.delays.len() >= REPORTED {
        let &mut Observed { to, requested, since, .. } = link;
        let delays = std::mem::take(&mut link.delays);
        // Every echo of the next report was sent at or after this time.
        link.since = link.open.front().map_or_else(|| clock.now(), |it| it.0);
        drop(report.send(ToSupervisor::Observed { to, requested, since, delays }));
    }
}

async fn measure_link(
    transport: &Rc<Transport>,
    clock: Clock,
    link: Measurement,
    patience: Time,
    echoes: &mut mpsc::UnboundedReceiver<EchoReply>,
) -> LinkMeasured {
    // The first echo includes the connection setup, and does not count.
    let begin = clock.now();
    transport.echo(link.to);
    next_from(echoes, link.to, begin).await;
    let mut rounds = 1;
    loop {
        let (latency, jitter) = measure_once(transport, clock, link, echoes).await;
        let is_as_requested = Span(latency.0.abs_diff(link.requested.0)) <= link.tolerance;
        if is_as_requested || clock.now() >= patience {
            return LinkMeasured { latency, jitter, samples: link.samples, rounds };
        }
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        rounds += 1;
    }
}

/// Measures one round. Returns the median of the delays, and half the difference between the greatest and the
/// smallest.
async fn measure_once(
    transport: &Rc<Transport>,
    clock: Clock,
    link: Measurement,
    echoes: &mut mpsc::UnboundedReceiver<EchoReply>,
) -> (Span, Span) {
    let begin = clock.now();
    for _ in 0..link.samples {
        transport.echo(link.to);
        tokio::time::sleep(Duration::from(link.apart)).await;
    }
    let mut delays = Vec::with_capacity(link.samples as usize);
    for _ in 0..link.samples {
        let echo = next_from(echoes, link.to, begin).await;
        delays.push(echo.arrived.since(echo.sent));
    }
    delays.sort_unstable();
    (delays[delays.len() / 2], Span((delays[delays.len() - 1] - delays[0]).0 / 2))
}

/// Returns the next response from `peer` to an echo sent at or after `begin`.
async fn next_from(
    echoes: &mut mpsc::UnboundedReceiver<EchoReply>,
    peer: ProcessId,
    begin: Time,
) -> EchoReply {
    loop {
        let echo = echoes.recv().await.expect("the transport outlives this task");
        if echo.from == peer && echo.sent >= begin {
            return echo;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Links;
    use crate::secret::Secret;
    use crate::transport::tests::{End, directory, run};

    const PEER: ProcessId = ProcessId(1);

    /// A measuring task between two processes. The other process is up once `meet` has been called.
    struct Bench {
        orders: mpsc::UnboundedSender<Echoes>,
        reports: mpsc::UnboundedReceiver<ToSupervisor>,
        ends: [Rc<Transport>; 2],
        addresses: [(u32, std::net::SocketAddr); 2],
    }

    impl Bench {
        async fn new() -> Bench {
            let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
            let left = End::new(0, 1, &secret, clock, Links::default()).await;
            let right = End::new(1, 1, &secret, clock, Links::default()).await;
            let (orders, ordered) = mpsc::unbounded_channel();
            let (report, reports) = mpsc::unbounded_channel();
            let transport = left.transport.clone();
            tokio::task::spawn_local(measure(transport, clock, ordered, left.echoes, report));
            let addresses = [(1, left.address), (1, right.address)];
            Bench { orders, reports, ends: [left.transport, right.transport], addresses }
        }

        fn meet(&self) {
            self.ends.iter().for_each(|end| end.update(&directory(&self.addresses)));
        }

        fn order(&self, requested: Span, again_for: Span) {
            let (samples, apart, tolerance) = (5, Span::from_millis(1), Span::from_millis(100));
            let link = Measurement { to: PEER, samples, apart, requested, tolerance };
            self.orders.send(Echoes::Measure(vec![link], again_for)).unwrap();
        }

        async fn observed(&mut self) -> (ProcessId, Span, Time, usize) {
            let report = tokio::time::timeout(Duration::from_secs(30), self.reports.recv()).await;
            match report.expect("a link is observed").unwrap() {
                ToSupervisor::Observed { to, requested, since, delays } => {
                    (to, requested, since, delays.len())
                }
                other => panic!("{other:?}"),
            }
        }

        async fn result(&mut self) -> LinkMeasured {
            let report = tokio::time::timeout(Duration::from_secs(30), self.reports.recv()).await;
            match report.expect("a link is measured").unwrap() {
                ToSupervisor::Measured { to: PEER, link, .. } => link,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_newer_order_replaces_an_unanswered_one() {
        run(async {
            let mut bench = Bench::new().await;
            bench.order(Span::ZERO, Span::ZERO);
            tokio::task::yield_now().await;
            bench.meet();
            bench.order(Span::ZERO, Span::ZERO);
            let result = bench.result().await;
            assert_eq!((result.samples, result.rounds), (5, 1));
            assert!(bench.reports.is_empty());
        });
    }

    #[test]
    fn links_are_observed_on_request_and_while_none_is_measured() {
        run(async {
            let mut bench = Bench::new().await;
            bench.meet();
            let requested = Span::from_millis(3);
            bench.orders.send(Echoes::Observe(vec![(PEER, requested)])).unwrap();
            let first = bench.observed().await;
            bench.order(Span::ZERO, Span::ZERO);
            bench.result().await;
            let second = bench.observed().await;
            assert_eq!((first.1, second.1), (requested, requested));
            assert!(second.2 >= first.2, "reports are in order");
            assert_eq!((first.0, first.3, second.3), (PEER, REPORTED, REPORTED));
            bench.orders.send(Echoes::Observe(vec![])).unwrap();
            bench.order(Span::ZERO, Span::ZERO);
            bench.result().await;
            tokio::time::sleep(ECHO_EVERY * 8).await;
            assert!(bench.reports.is_empty(), "no link is observed");
        });
    }

    #[test]
    fn a_link_that_differs_from_the_request_is_measured_again() {
        run(async {
            let mut bench = Bench::new().await;
            bench.meet();
            let another = Span::from_secs(60);
            bench.order(another, Span::from_secs(1));
            assert!(bench.result().await.rounds > 1);
            bench.order(another, Span::ZERO);
            assert_eq!(bench.result().await.rounds, 1);
        });
    }
}
