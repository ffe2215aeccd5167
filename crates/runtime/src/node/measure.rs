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
//!
//! While the application runs, links are also observed: an echo is sent at regular intervals. If a link or a connection
//! stalls, the responses arrive much later or never. Each echo therefore stays open until its response arrives. If the
//! response is overdue, the supervisor is told, because the run may end before it arrives.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{ProcessId, Span, Time};
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::control::{Measurement, ObservedEcho, ObservedLink, ToSupervisor};
use crate::transport::{EchoReply, Transport};

/// Time between two rounds, long enough for a brief load on the machine to pass.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Interval between the echoes over an observed link.
const ECHO_EVERY: Duration = Duration::from_millis(200);
/// Number of answered echoes per report on a link.
const REPORTED: usize = 5;
/// Number of intervals for which a response is overdue before the echo counts as unanswered. Long enough for a process
/// that was busy to handle a response that has arrived, and for packets ahead of the response.
const OVERDUE: u32 = 10;

/// An order from the supervisor to measure or observe links with echoes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Echoes {
    /// Measures these links one at a time. Until the given time has passed, repeats the measurement of links that are
    /// not as requested. Replaces an earlier order of this kind.
    Measure(Vec<Measurement>, Span),
    /// Observes exactly these links.
    Observe(Vec<ObservedLink>),
}

/// An echo without a response.
struct OpenEcho {
    sent: Time,
    /// Expected time of arrival. If the link's bandwidth delays packets ahead of the echo, includes that delay.
    due: Time,
    /// Number of intervals for which the response has been overdue.
    overdue: u32,
}

/// A link that is observed.
struct Observed {
    link: ObservedLink,
    /// Echoes that may still be answered, oldest first.
    open: VecDeque<OpenEcho>,
    /// Echoes to report.
    echoes: Vec<ObservedEcho>,
}

impl Observed {
    /// Finds overdue responses, and sends another echo.
    fn echo(&mut self, transport: &Rc<Transport>, now: Time) {
        for it in &mut self.open {
            if it.due + self.link.answered_within >= now {
                continue;
            }
            it.overdue += 1;
            if it.overdue == OVERDUE {
                let delay = self.link.requested + now.since(it.due);
                self.echoes.push(ObservedEcho { sent: it.sent, delay, is_answered: false });
            }
        }
        let Some((sent, due)) = transport.echo(self.link.to) else { return };
        // `due` does not include the delay that traffic control adds.
        let due = due.max(sent + self.link.requested);
        self.open.push_back(OpenEcho { sent, due, overdue: 0 });
    }

    fn answered(&mut self, echo: &EchoReply) {
        let Some(place) = self.open.iter().position(|it| it.sent == echo.sent) else { return };
        // Responses arrive in order. Older echoes were lost with an earlier life of the process at the other end.
        let OpenEcho { sent, due, .. } =
            self.open.drain(..=place).next_back().expect("the range is not empty");
        let late = echo.arrived.since(due);
        let early = due.since(echo.arrived);
        let delay = Span((self.link.requested + late).0.saturating_sub(early.0));
        self.echoes.push(ObservedEcho { sent, delay, is_answered: true });
    }

    /// Reports echoes, except a few answered ones, which wait for the next report.
    fn report(&mut self, report: &mpsc::UnboundedSender<ToSupervisor>) {
        if self.echoes.len() >= REPORTED || self.echoes.iter().any(|it| !it.is_answered) {
            let (echoes, ObservedLink { to, requested, .. }) = (std::mem::take(&mut self.echoes), self.link);
            drop(report.send(ToSupervisor::Observed { to, requested, echoes }));
        }
    }
}

/// Returns the observation of exactly these links. Continues earlier observations of links with the same latency.
fn observe(links: Vec<ObservedLink>, earlier: &mut Vec<Observed>) -> Vec<Observed> {
    let continue_or_begin = |link: ObservedLink| {
        let is_it = |it: &Observed| (it.link.to, it.link.requested) == (link.to, link.requested);
        match earlier.iter().position(is_it) {
            Some(place) => Observed { link, ..earlier.swap_remove(place) },
            None => Observed { link, open: VecDeque::new(), echoes: Vec::new() },
        }
    };
    links.into_iter().map(continue_or_begin).collect()
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
                    if let Some(it) = observed.iter_mut().find(|it| it.link.to == echo.from) {
                        it.answered(&echo);
                        it.report(&report);
                    }
                    None
                }
                _ = again.tick(), if !observed.is_empty() => {
                    let now = clock.now();
                    for it in &mut observed {
                        it.echo(&transport, now);
                        it.report(&report);
                    }
                    None
                }
            },
        };
        match order {
            None => {}
            Some(Echoes::Observe(links)) => observed = observe(links, &mut observed),
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
                // In the meantime, responses to their echoes were ignored.
                observed.iter_mut().for_each(|it| it.open.clear());
            }
        }
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
    use faultline_core::ClusterId;

    use super::*;
    use crate::links::Links;
    use crate::secret::Secret;
    use crate::transport::tests::{End, directory, run};

    const PEER: ProcessId = ProcessId(1);
    /// The clusters at the ends of the link.
    const LINK: [ClusterId; 2] = [ClusterId(0), ClusterId(1)];

    /// A measuring task between two processes. The other process is up once `meet` has been called.
    struct Bench {
        orders: mpsc::UnboundedSender<Echoes>,
        reports: mpsc::UnboundedReceiver<ToSupervisor>,
        ends: [Rc<Transport>; 2],
        addresses: [(u32, std::net::SocketAddr); 2],
        secret: Secret,
        clock: Clock,
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
            let ends = [left.transport, right.transport];
            Bench { orders, reports, ends, addresses, secret, clock }
        }

        fn meet(&self) {
            self.ends.iter().for_each(|end| end.update(&directory(&self.addresses)));
        }

        fn order(&self, requested: Span, again_for: Span) {
            let (samples, apart, tolerance) = (5, Span::from_millis(1), Span::from_millis(100));
            let link = Measurement { to: PEER, samples, apart, requested, tolerance };
            self.orders.send(Echoes::Measure(vec![link], again_for)).unwrap();
        }

        fn observe(&self, requested: Span) {
            let link = ObservedLink { to: PEER, requested, answered_within: Span::from_millis(100) };
            self.orders.send(Echoes::Observe(vec![link])).unwrap();
        }

        /// Returns the echoes in the next report on a link with this requested latency.
        async fn observed(&mut self, of: Span) -> Vec<ObservedEcho> {
            let report = tokio::time::timeout(Duration::from_secs(30), self.reports.recv()).await;
            match report.expect("a link is observed").unwrap() {
                ToSupervisor::Observed { to: PEER, requested, echoes } if requested == of => echoes,
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
            bench.observe(requested);
            let first = bench.observed(requested).await;
            bench.order(Span::ZERO, Span::ZERO);
            bench.result().await;
            let second = bench.observed(requested).await;
            assert!(second[0].sent > first[REPORTED - 1].sent, "reports are in order");
            assert_eq!((first.len(), second.len()), (REPORTED, REPORTED));
            bench.orders.send(Echoes::Observe(vec![])).unwrap();
            bench.order(Span::ZERO, Span::ZERO);
            bench.result().await;
            tokio::time::sleep(ECHO_EVERY * 8).await;
            assert!(bench.reports.is_empty(), "no link is observed");
        });
    }

    #[test]
    fn echoes_over_a_stalled_link_are_reported_when_they_are_overdue_and_when_they_are_answered() {
        run(async {
            let mut bench = Bench::new().await;
            bench.meet();
            bench.observe(Span::ZERO);
            let [from, to] = LINK;
            bench.ends[0].cut(from, to, true);
            let mut overdue = Vec::new();
            while overdue.len() < 3 {
                let echoes = bench.observed(Span::ZERO).await.into_iter();
                overdue.extend(echoes.filter(|it| !it.is_answered));
            }
            let long = Span::from(ECHO_EVERY) * u64::from(OVERDUE - 1);
            assert!(overdue.iter().all(|it| it.delay > long), "{overdue:?}");
            // The observation continues although it is ordered again.
            bench.observe(Span::ZERO);
            bench.ends[0].cut(from, to, false);
            let mut answered = Vec::new();
            while answered.len() < overdue.len() {
                answered.extend(bench.observed(Span::ZERO).await.into_iter().filter(|it| it.delay > long));
            }
            for (answered, overdue) in answered.iter().zip(&overdue) {
                assert!(answered.is_answered && answered.sent == overdue.sent, "{answered:?} {overdue:?}");
                assert!(answered.delay >= overdue.delay, "{answered:?} {overdue:?}");
            }
        });
    }

    #[test]
    fn an_echo_that_was_lost_with_its_receiver_delays_no_report() {
        run(async {
            let mut bench = Bench::new().await;
            bench.meet();
            let requested = Span::from_millis(3);
            bench.observe(requested);
            bench.observed(requested).await;
            // The link holds an echo until the receiver has ended.
            let [from, to] = LINK;
            bench.ends[0].cut(from, to, true);
            tokio::time::sleep(ECHO_EVERY * 2).await;
            bench.ends[0].update(&directory(&[bench.addresses[0], (0, bench.addresses[1].1)]));
            bench.ends[0].cut(from, to, false);
            let restarted = End::new(1, 2, &bench.secret, bench.clock, Links::default()).await;
            (bench.ends[1], bench.addresses[1]) = (restarted.transport, (2, restarted.address));
            bench.meet();
            let back = bench.clock.now();
            let mut echoes = bench.observed(requested).await;
            while echoes.iter().all(|it| it.sent < back) {
                echoes = bench.observed(requested).await;
            }
            assert!(echoes.iter().all(|it| it.is_answered), "{echoes:?}");
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
