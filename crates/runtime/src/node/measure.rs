//! Measures links by echo, over the same lines, sessions and connections as packets.
//!
//! All processes of a local run share a monotonic clock, so that an echo measures each direction by itself: the delay
//! of a link is the time from handing the echo to the link until its arrival.
//!
//! If the machine is busy for a moment, no link has its requested delay. A link that differs from the request is
//! therefore measured again, for a few seconds at most, and the result contains the number of rounds.
//!
//! A link that is changed while the application runs is measured at that time, between the application's packets. An
//! application that keeps the link busy therefore delays the echoes as well.

use std::rc::Rc;
use std::time::Duration;

use faultline_core::{ProcessId, Span, Time};
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::control::{Measurement, ToSupervisor};
use crate::transport::{EchoReply, Transport};

/// Time between two rounds, so that a short load of the machine can pass.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Measures the requested links, one after the other. A newer order cancels the remaining measurements, because the
/// process at the other end of a link may have failed and would never answer.
pub(crate) async fn measure(
    transport: Rc<Transport>,
    clock: Clock,
    mut orders: mpsc::UnboundedReceiver<(Vec<Measurement>, Span)>,
    mut echoes: mpsc::UnboundedReceiver<EchoReply>,
    report: mpsc::UnboundedSender<ToSupervisor>,
) {
    let mut order = orders.recv().await;
    while let Some((links, again_for)) = order {
        let patience = clock.now() + again_for;
        let work = async {
            for link in links {
                let result = measure_link(&transport, clock, link, patience, &mut echoes).await;
                let Measurement { to, requested, .. } = link;
                drop(report.send(ToSupervisor::Measured { to, requested, link: result }));
            }
        };
        order = tokio::select! {
            newer = orders.recv() => newer,
            () = work => orders.recv().await,
        };
    }
}

async fn measure_link(
    transport: &Rc<Transport>,
    clock: Clock,
    link: Measurement,
    patience: Time,
    echoes: &mut mpsc::UnboundedReceiver<EchoReply>,
) -> LinkMeasured {
    // The first echo includes the set-up of the connection, and is not counted.
    let begin = clock.now();
    transport.echo(link.to);
    next_from(echoes, link.to, begin).await;
    let mut rounds = 1;
    loop {
        let (latency, jitter) = measure_once(transport, clock, link, echoes).await;
        let is_as_asked = Span(latency.0.abs_diff(link.requested.0)) <= link.tolerance;
        if is_as_asked || clock.now() >= patience {
            return LinkMeasured { latency, jitter, samples: link.samples, rounds };
        }
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        rounds += 1;
    }
}

/// Measures one round: the median of the delays, and half the difference between the greatest and the smallest.
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

/// Returns the next answer of `peer` to an echo sent at or after `begin`.
async fn next_from(
    echoes: &mut mpsc::UnboundedReceiver<EchoReply>,
    peer: ProcessId,
    begin: Time,
) -> EchoReply {
    loop {
        let echo = echoes.recv().await.expect("the transport lives as long as this task");
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

    /// A measuring task between two processes. The other process is up only once `meet` has been called.
    struct Bench {
        orders: mpsc::UnboundedSender<(Vec<Measurement>, Span)>,
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
            self.orders.send((vec![link], again_for)).unwrap();
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
    fn a_newer_order_voids_one_that_nobody_answers() {
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
    fn a_link_that_is_not_as_asked_is_measured_again_for_a_while() {
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
