//! Measures links by echo, over the same delay lines, sessions and connections as packets.
//!
//! All processes of a local run share a monotonic clock, so each direction can be measured separately: the delay of a
//! link is the time from when an echo is handed to the link until it arrives at the other end. The node's delay line
//! knows when each echo is due, including the jitter and losses that it has drawn. Only the deviation from this time
//! counts, so what is measured is whether the machine keeps the link's latency. [`Sampling`] describes what remains
//! uncertain if the kernel emulates the link.
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

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use faultline_core::fault::LinkProperties;
use faultline_core::{ProcessId, Span, Time};
use faultline_shaper::retransmission;
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::sampling::Sampling;
use crate::clock::Clock;
use crate::control::{Measurement, ObservedEcho, ObservedLink, ToSupervisor};
use crate::transport::{EchoReply, Transport};

/// Time between two rounds, long enough for a brief load on the machine to pass.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Time within which the responses to a round must arrive at first. If they do not, the round is repeated, and each
/// repetition waits twice as long, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Longest time for which a round waits for responses.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Number of losses, in both directions together, for which a round also waits.
const LOSSES: u64 = 20;

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
    /// Measures these links, each to another process. Until the given time has passed, repeats the measurement of links
    /// that are not as requested. Replaces an earlier order of this kind.
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
    let mut measurements = JoinSet::new();
    // The measured links, by the process at the other end.
    let mut measured: BTreeMap<ProcessId, mpsc::UnboundedSender<EchoReply>> = BTreeMap::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return,
                Some(Echoes::Observe(links)) => observed = observe(links, &mut observed),
                Some(Echoes::Measure(links, again_for)) => {
                    measurements = JoinSet::new();
                    measured.clear();
                    let (patience, number) = (clock.now() + again_for, links.len());
                    for link in links {
                        let (responses_in, responses) = mpsc::unbounded_channel();
                        measured.insert(link.to, responses_in);
                        let transport = transport.clone();
                        let rounds = Rounds { transport, clock, patience, responses, links: number };
                        measurements.spawn_local(rounds.measure(link, report.clone()));
                    }
                }
            },
            Some(echo) = echoes.recv() => match observed.iter_mut().find_map(|it| it.answered(&echo).then_some(it)) {
                Some(it) => it.report(&report),
                // The receiver is closed once the link has been measured.
                None => drop(measured.get(&echo.from).map(|it| it.send(echo))),
            },
            _ = again.tick(), if !observed.is_empty() => {
                let now = clock.now();
                for it in &mut observed {
                    it.echo(&transport, now);
                    it.report(&report);
                }
            }
            Some(_) = measurements.join_next() => {}
        }
    }
}

/// Measures a link in rounds of echoes.
struct Rounds {
    transport: Rc<Transport>,
    clock: Clock,
    /// Time until which a link that is not as requested is measured again.
    patience: Time,
    /// Responses to echoes from the process at the other end, including those of earlier measurements.
    responses: mpsc::UnboundedReceiver<EchoReply>,
    /// Number of links that the node measures in parallel.
    links: usize,
}

/// An echo that has been sent.
#[derive(Clone, Copy)]
struct SentEcho {
    sent: Time,
    /// Time of arrival at the other end if the link has the requested latency.
    due: Time,
}

impl Rounds {
    /// Measures a link and reports the result. Waits until the process at the other end responds.
    async fn measure(mut self, link: Measurement, report: mpsc::UnboundedSender<ToSupervisor>) {
        let mut wait = FIRST_WAIT;
        let (began, result) = loop {
            if let Some(measured) = self.measure_link(link, wait).await {
                break measured;
            }
            wait = LONGEST_WAIT.min(wait * 2);
            tokio::time::sleep(BETWEEN_ROUNDS).await;
        };
        let Measurement { to, requested, .. } = link;
        drop(report.send(ToSupervisor::Measured { to, requested: requested.latency, began, link: result }));
    }

    /// Measures a link. Returns the time at which the last round began, and the result; `None` if a response is
    /// missing.
    async fn measure_link(&mut self, link: Measurement, wait: Duration) -> Option<(Time, LinkMeasured)> {
        // The first echo includes the connection setup, and does not count.
        let first = self.echo(link)?;
        self.arrivals(link, &[first], wait).await?;
        let sampling = Sampling::new(link.requested, self.transport.emulated(link.to), self.links);
        let mut rounds = 1;
        loop {
            let began = self.clock.now();
            let (latency, jitter) = self.measure_once(link, sampling, wait).await?;
            let Sampling { samples, uncertainty, .. } = sampling;
            let deviation = latency.0.abs_diff(link.requested.latency.0);
            if deviation <= (link.tolerance + uncertainty).0 || self.clock.now() >= self.patience {
                return Some((began, LinkMeasured { latency, jitter, samples, rounds, uncertainty }));
            }
            tokio::time::sleep(BETWEEN_ROUNDS).await;
            rounds += 1;
        }
    }

    /// Measures one round. Returns the latency, and half the difference between the greatest and the smallest delay;
    /// `None` if a response is missing.
    async fn measure_once(
        &mut self,
        link: Measurement,
        sampling: Sampling,
        wait: Duration,
    ) -> Option<(Span, Span)> {
        let mut echoes = Vec::with_capacity(sampling.samples as usize);
        for _ in 0..sampling.samples {
            echoes.push(self.echo(link)?);
            tokio::time::sleep(Duration::from(sampling.apart)).await;
        }
        let arrived = self.arrivals(link, &echoes, wait).await?;
        let deviations = arrived.iter().map(|(echo, at)| at.0.cast_signed() - echo.due.0.cast_signed());
        let latency = sampling.latency(link.requested.latency, deviations.collect());
        let delays = || arrived.iter().map(|(echo, at)| at.since(echo.sent));
        Some((latency, Span((delays().max()? - delays().min()?).0 / 2)))
    }

    /// Sends an echo; `None` if the process at the other end is not up.
    fn echo(&self, link: Measurement) -> Option<SentEcho> {
        let (sent, due) = self.transport.echo(link.to, link.requested.latency)?;
        Some(SentEcho { sent, due })
    }

    /// Returns the arrivals of all these echoes, which are in the order of their sending. If a response does not arrive
    /// within `wait` after the time that two links with the requested properties take, returns `None`.
    async fn arrivals(
        &mut self,
        link: Measurement,
        echoes: &[SentEcho],
        wait: Duration,
    ) -> Option<Vec<(SentEcho, Time)>> {
        let all = async {
            let mut arrivals = Vec::with_capacity(echoes.len());
            while arrivals.len() < echoes.len() {
                let reply =
                    self.responses.recv().await.expect("a measurement receives responses until it ends");
                if let Ok(index) = echoes.binary_search_by_key(&reply.sent, |it| it.sent) {
                    arrivals.push((echoes[index], reply.arrived));
                }
            }
            arrivals
        };
        let LinkProperties { latency, jitter, loss_ppm, .. } = link.requested;
        let losses = if loss_ppm > 0 { LOSSES } else { 0 };
        let both = (latency + jitter) * 2 + retransmission(link.requested) * losses;
        tokio::time::timeout(wait + Duration::from(both), all).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

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
            let requested = LinkProperties { latency: requested, ..LinkProperties::default() };
            let link = |&to| Measurement { to, requested, tolerance: Span::from_millis(100) };
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
            assert_eq!((result.samples, result.rounds), (51, 1));
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
            assert_eq!(bench.result().await.rounds, 1);
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
