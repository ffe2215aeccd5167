//! Establishes, maintains and re-establishes connections to agents.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use faultline_core::ProcessId;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use super::messages::{ToAgent, ToPlace};
use super::place_registry::AgentPlace;
use super::places::Shared;
use crate::clock::{AgentClock, ClockSource, monotonic};
use crate::control;
use crate::secret::{Ends, HandshakeError};

/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(200);
/// Time within which an agent must prove that it knows the process's key.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of readings of a remote clock. Only the reading with the fastest response is used.
const READINGS: usize = 8;

/// The reason why an agent is unavailable.
#[derive(Debug, Error)]
enum CallError {
    #[error("its agent cannot be reached: {0}")]
    Connect(io::Error),
    #[error("its agent does not respond")]
    Patience,
    #[error("the handshake with its agent failed: {0}")]
    Handshake(HandshakeError),
    #[error("the connection to its agent broke: {0}")]
    Broken(io::Error),
    #[error("its address belongs to another place, or its agent has another key")]
    Elsewhere,
}

/// Maintains a connection to the agent at `place` for as long as `process` is at this place.
pub(super) async fn keep(shared: Rc<Shared>, process: ProcessId, place: AgentPlace) {
    loop {
        let Err(error) = call(&shared, process, &place).await;
        debug!(%process, %error, "agent unavailable");
        shared.unready(process, &place, error.to_string());
        if !shared.is_at(process, &place) {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn call(shared: &Shared, process: ProcessId, place: &AgentPlace) -> Result<Infallible, CallError> {
    let meet = async {
        let mut stream = TcpStream::connect(place.address).await.map_err(CallError::Connect)?;
        stream.set_nodelay(true).map_err(CallError::Connect)?;
        let key = shared.place_context.keys.of(process).ok_or(CallError::Handshake(HandshakeError::Proof))?;
        let ends = Ends { caller: ProcessId::SUPERVISOR, called: process };
        key.dial_place(&place.uid, &mut stream, ends).await.map_err(|error| match error {
            HandshakeError::Proof => CallError::Elsewhere,
            error => CallError::Handshake(error),
        })?;
        Ok(stream)
    };
    let stream = timeout(PATIENCE, meet).await.map_err(|_| CallError::Patience)??;
    let here = stream.local_addr().map_err(CallError::Connect)?.ip();
    let (mut read, write) = stream.into_split();
    let (words, spoken) = mpsc::unbounded_channel();
    tokio::task::spawn_local(speak(write, spoken));
    let say = |word| words.send(word).map_err(|_| CallError::Broken(io::ErrorKind::BrokenPipe.into()));

    say(ToAgent::Assign(shared.assignment_of(process)))?;
    let ready = loop {
        match listen(&mut read).await? {
            ToPlace::Ready(ready) => break ready,
            other => shared.said(process, place, other),
        }
    };
    let mut clock = AgentClock::same(shared.place_context.clock);
    if !ready.clock_source.is_same(&ClockSource::of_this_process()) {
        let mut quickest: Option<AgentClock> = None;
        for _ in 0..READINGS {
            let asked = monotonic();
            say(ToAgent::Clock)?;
            let shown = loop {
                match listen(&mut read).await? {
                    ToPlace::Clock(shown) => break shown,
                    other => shared.said(process, place, other),
                }
            };
            let reading = AgentClock::read(shared.place_context.clock, asked, shown, monotonic());
            quickest = Some(quickest.map_or(reading, |it| it.better(reading)));
        }
        clock = quickest.expect("the clock was read at least once");
    }
    shared.ready(process, place, &ready, words, clock, here);
    loop {
        let word = listen(&mut read).await?;
        shared.said(process, place, word);
    }
}

async fn listen(read: &mut OwnedReadHalf) -> Result<ToPlace, CallError> {
    control::receive(read).await.map_err(CallError::Broken)
}

/// Sends messages to an agent until it disconnects or no sender is left.
async fn speak(mut write: OwnedWriteHalf, mut spoken: mpsc::UnboundedReceiver<ToAgent>) {
    while let Some(word) = spoken.recv().await {
        if let Err(error) = control::send(&mut write, &word).await {
            return debug!(%error, "an agent closed the connection");
        }
    }
}
