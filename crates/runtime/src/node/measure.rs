//! Measures links by echo, over the same lines, sessions and connections that packets take.
//!
//! All processes of a local run share one monotonic clock, so that an echo measures each direction by itself: the delay
//! of a link is from the moment when the echo is given to it to the moment when it is there.

use std::rc::Rc;
use std::time::Duration;

use faultline_core::{ProcessId, Span};
use faultline_trace::manifest::LinkMeasured;
use tokio::sync::mpsc;

use crate::control::ToSupervisor;
use crate::transport::{EchoReply, Transport};

/// One link to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// The process at the other end.
    pub(crate) to: ProcessId,
    /// Echoes.
    pub(crate) samples: u32,
    /// Time between two.
    pub(crate) apart: Span,
}

/// Measures one link after the other, as asked.
pub(crate) async fn measure(
    transport: Rc<Transport>,
    mut wanted: mpsc::UnboundedReceiver<Measurement>,
    mut echoes: mpsc::UnboundedReceiver<EchoReply>,
    report: mpsc::UnboundedSender<ToSupervisor>,
) {
    while let Some(Measurement { to, samples, apart }) = wanted.recv().await {
        // The first echo pays for the connection, and is not counted.
        transport.echo(to);
        if next_from(&mut echoes, to).await.is_none() {
            return;
        }
        for _ in 0..samples {
            transport.echo(to);
            tokio::time::sleep(Duration::from(apart)).await;
        }
        let mut delays = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            let Some(echo) = next_from(&mut echoes, to).await else { return };
            delays.push(echo.arrived.since(echo.sent));
        }
        delays.sort_unstable();
        let latency = delays[delays.len() / 2];
        let jitter = Span((delays[delays.len() - 1] - delays[0]).0 / 2);
        let link = LinkMeasured { latency, jitter, samples };
        drop(report.send(ToSupervisor::Measured { to, link }));
    }
}

async fn next_from(echoes: &mut mpsc::UnboundedReceiver<EchoReply>, peer: ProcessId) -> Option<EchoReply> {
    loop {
        let echo = echoes.recv().await?;
        if echo.from == peer {
            return Some(echo);
        }
    }
}
