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
//!
//! A process that has failed or left never responds. No other link waits for it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::{Span, Time};
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::control::{Measurement, ObservedEcho, ObservedLink, ToSupervisor};
use crate::transport::{EchoReply, Transport};

/// Time between two rounds, long enough for a brief load on the machine to pass.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Time within which the responses to a round must arrive at first. If they do not, the other links are measured before
/// the round is repeated, and each repetition waits twice as long, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Longest time for which a round waits for responses.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
    /// Expected time of arrival, including delays due to the link's bandwidth and losses.
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
        let Some((sent, due)) = transport.echo(self.link.to, self.link.requested) else { return };
        self.open.push_back(OpenEcho { sent, due, overdue: 0 });
    }

    /// Handles the response to an echo. Returns `false` if the echo was not sent to observe this link.
    fn answered(&mut self, echo: &EchoReply) -> bool {
        let place = self.open.iter().position(|it| it.sent == echo.sent);
        let Some(place) = place.filter(|_| self.link.to == echo.from) else { return false };
        // Responses arrive in order. Older echoes were lost with an earlier life of the process at the other end.
        let OpenEcho { sent, due, .. } =
            self.open.drain(..=place).next_back().expect("the range is not empty");
        let late = echo.arrived.since(due);
        let early = due.since(echo.arrived);
        let delay = Span((self.link.requested + late).0.saturating_sub(early.0));
        self.echoes.push(ObservedEcho { sent, delay, is_answered: true });
        true
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

/// Measures and observes links as ordered. A newer order replaces an unfinished measurement.
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
    let mut measurement: Pin<Box<dyn Future<Output = ()>>> = Box::pin(std::future::pending());
    let (mut responses, _) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(Echoes::Observe(links)) => observed = observe(links, &mut observed),
                Some(Echoes::Measure(links, again_for)) => {
                    let (responses_in, responses_out) = mpsc::unbounded_channel();
                    let rounds = Rounds {
                        transport: transport.clone(),
                        clock,
                        patience: clock.now() + again_for,
                        responses: responses_out,
                    };
                    measurement = Box::pin(rounds.measure(links, report.clone()));
                    responses = responses_in;
                }
            },
            Some(echo) = echoes.recv() => match observed.iter_mut().find_map(|it| it.answered(&echo).then_some(it)) {
                Some(it) => it.report(&report),
                // The receiver is closed if no link is being measured.
                None => drop(responses.send(echo)),
            },
            _ = again.tick(), if !observed.is_empty() => {
                let now = clock.now();
                for it in &mut observed {
                    it.echo(&transport, now);
                    it.report(&report);
                }
            }
            () = &mut measurement => measurement = Box::pin(std::future::pending()),
        }
    }
}

/// Measures links in rounds of echoes.
struct Rounds {
    transport: Rc<Transport>,
    clock: Clock,
    /// Time until which links that are not as requested are measured again.
    patience: Time,
    /// Responses to echoes, including those of earlier measurements.
    responses: mpsc::UnboundedReceiver<EchoReply>,
}

impl Rounds {
    /// Measures links one at a time, and reports the results. If a process does not respond in time, measures the other
    /// links first.
    async fn measure(mut self, links: Vec<Measurement>, report: mpsc::UnboundedSender<ToSupervisor>) {
        let mut missing: VecDeque<_> = links.into_iter().map(|link| (link, FIRST_WAIT)).collect();
        while let Some((link, wait)) = missing.pop_front() {
            match self.measure_link(link, wait).await {
                Some((began, result)) => {
                    let Measurement { to, requested, .. } = link;
                    drop(report.send(ToSupervisor::Measured { to, requested, began, link: result }));
                }
                None => {
                    missing.push_back((link, LONGEST_WAIT.min(wait * 2)));
                    tokio::time::sleep(BETWEEN_ROUNDS).await;
                }
            }
        }
    }

    /// Measures a link. Returns the time at which the last round began, and the result; `None` if a response is
    /// missing.
    async fn measure_link(&mut self, link: Measurement, wait: Duration) -> Option<(Time, LinkMeasured)> {
        // The first echo includes the connection setup, and does not count.
        let (first, _) = self.transport.echo(link.to, link.requested)?;
        self.delays(link, &[first], wait).await?;
        let mut rounds = 1;
        loop {
            let began = self.clock.now();
            let (latency, jitter) = self.measure_once(link, wait).await?;
            let is_as_requested = Span(latency.0.abs_diff(link.requested.0)) <= link.tolerance;
            if is_as_requested || self.clock.now() >= self.patience {
                return Some((began, LinkMeasured { latency, jitter, samples: link.samples, rounds }));
            }
            tokio::time::sleep(BETWEEN_ROUNDS).await;
            rounds += 1;
        }
    }

    /// Measures one round. Returns the median of the delays, and half the difference between the greatest and the
    /// smallest; `None` if a response is missing.
    async fn measure_once(&mut self, link: Measurement, wait: Duration) -> Option<(Span, Span)> {
        let mut sent = Vec::with_capacity(link.samples as usize);
        for _ in 0..link.samples {
            sent.push(self.transport.echo(link.to, link.requested)?.0);
            tokio::time::sleep(Duration::from(link.apart)).await;
        }
        let mut delays = self.delays(link, &sent, wait).await?;
        delays.sort_unstable();
        Some((delays[delays.len() / 2], Span((delays[delays.len() - 1] - delays[0]).0 / 2)))
    }

    /// Returns the delays of all echoes that were sent over a link at these times, which ascend. If a response does not
    /// arrive within `wait` after the time that two links with the requested latency take, returns `None`.
    async fn delays(&mut self, link: Measurement, sent: &[Time], wait: Duration) -> Option<Vec<Span>> {
        let all = async {
            let mut delays = Vec::with_capacity(sent.len());
            while delays.len() < sent.len() {
                let echo =
                    self.responses.recv().await.expect("a measurement receives responses until it ends");
                if echo.from == link.to && sent.binary_search(&echo.sent).is_ok() {
                    delays.push(echo.arrived.since(echo.sent));
                }
            }
            delays
        };
        tokio::time::timeout(wait + Duration::from(link.requested * 2), all).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, ProcessId};

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
        addresses: Vec<(u32, SocketAddr)>,
        secret: Secret,
        clock: Clock,
    }

    impl Bench {
        async fn new() -> Bench {
            Bench::with(Links::default()).await
        }

        /// `links` are the links that the observing process emulates.
        async fn with(links: Links) -> Bench {
            let (secret, clock) = (Secret::generate().unwrap(), Clock::start());
            let left = End::new(0, 1, &secret, clock, links).await;
            let right = End::new(1, 1, &secret, clock, Links::default()).await;
            let (orders, ordered) = mpsc::unbounded_channel();
            let (report, reports) = mpsc::unbounded_channel();
            let transport = left.transport.clone();
            tokio::task::spawn_local(measure(transport, clock, ordered, left.echoes, report));
            let addresses = vec![(1, left.address), (1, right.address)];
            let ends = [left.transport, right.transport];
            Bench { orders, reports, ends, addresses, secret, clock }
        }

        fn meet(&self) {
            self.ends.iter().for_each(|end| end.update(&directory(&self.addresses)));
        }

        fn order(&self, requested: Span, again_for: Span) {
            self.order_all(&[PEER], requested, again_for);
        }

        fn order_all(&self, processes: &[ProcessId], requested: Span, again_for: Span) {
            let (samples, apart, tolerance) = (5, Span::from_millis(1), Span::from_millis(100));
            let link = |&to| Measurement { to, samples, apart, requested, tolerance };
            let links = processes.iter().map(link).collect();
            self.orders.send(Echoes::Measure(links, again_for)).unwrap();
        }

        fn observe(&self, requested: Span) {
            let link = ObservedLink { to: PEER, requested, answered_within: Span::from_millis(100) };
            self.orders.send(Echoes::Observe(vec![link])).unwrap();
        }

        async fn reported(&mut self) -> ToSupervisor {
            let report = tokio::time::timeout(Duration::from_secs(30), self.reports.recv()).await;
            report.expect("a link is measured or observed").unwrap()
        }

        /// Returns the echoes in the next report on a link with this requested latency.
        async fn observed(&mut self, of: Span) -> Vec<ObservedEcho> {
            match self.reported().await {
                ToSupervisor::Observed { to: PEER, requested, echoes } if requested == of => echoes,
                other => panic!("{other:?}"),
            }
        }

        /// Returns the next result, and ignores observations.
        async fn result(&mut self) -> LinkMeasured {
            loop {
                match self.reported().await {
                    ToSupervisor::Measured { to: PEER, link, .. } => return link,
                    ToSupervisor::Observed { .. } => {}
                    other => panic!("{other:?}"),
                }
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
    fn links_are_observed_on_request() {
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
    fn a_process_that_never_responds_delays_no_other_link() {
        run(async {
            let mut bench = Bench::new().await;
            let ended = {
                let listener =
                    tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                listener.local_addr().unwrap()
            };
            bench.addresses.push((1, ended));
            bench.meet();
            let (ended, unknown) = (ProcessId(2), ProcessId(3));
            let requested = Span::from_millis(3);
            bench.observe(requested);
            bench.order_all(&[ended, unknown], Span::ZERO, Span::ZERO);
            bench.observed(requested).await;
            bench.order_all(&[unknown, ended, PEER], Span::ZERO, Span::ZERO);
            assert_eq!(bench.result().await.samples, 5);
        });
    }

    #[test]
    fn a_link_that_is_slower_than_requested_is_observed_as_such() {
        run(async {
            let [from, to] = LINK;
            let latency = Span::from_millis(50);
            let mut links = Links::default();
            links.requested.insert((from, to), LinkProperties { latency, ..LinkProperties::default() });
            let mut bench = Bench::with(links).await;
            bench.meet();
            let requested = Span::from_millis(3);
            bench.observe(requested);
            let echoes = bench.observed(requested).await;
            // Packets leave the delay line slightly early.
            let least = latency - Span::from_millis(1);
            assert!(echoes.iter().all(|it| it.delay >= least), "{echoes:?}");
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
