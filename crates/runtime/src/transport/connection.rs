//! Connections: establishing them, resuming sessions on new ones, reading and writing.
//!
//! Either end may call. If both call at the same time, the process with the lower number wins: it refuses
//! calls while its own is in progress. Otherwise, the newest connection wins.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use faultline_core::{Life, ProcessId};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tracing::debug;

use super::session::SessionError;
use super::{Connection, Transport};
use crate::control;
use crate::frame::{FrameError, split_frame};
use crate::secret::{Ends, HandshakeError, Secret};

/// Initial and maximum delay between two attempts to reach a process that is up.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Size of the buffer for unread data, in bytes.
const READ_BUFFER: usize = 16 * 1024;

/// The caller's first message after the handshake.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    from: (ProcessId, Life),
    to: (ProcessId, Life),
    /// Number of the next expected frame.
    expected: u64,
}

/// The response to a [`Call`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Answer {
    /// The session resumes. Contains the number of the next expected frame.
    Welcome { expected: u64 },
    /// A call in the opposite direction is in progress.
    Busy,
    /// The two ends disagree about the current life of one of them.
    Stale,
}

#[derive(Debug, Error)]
enum ConnectionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("the two ends disagree about the current life of one of them")]
    Stale,
    #[error("a call from the other end is in progress")]
    Busy,
    #[error("the other end closed the connection")]
    Closed,
}

impl Transport {
    /// Accepts a connection from a caller that has authenticated ([`hear`](Transport::hear)).
    pub(crate) async fn accept(self: Rc<Self>, call: Call, stream: TcpStream) {
        if let Err(error) = self.answer(call, stream).await {
            debug!(from = %call.from.0, %error, "refused a connection");
        }
    }

    /// Writes pending frames of the session with `to` until the socket accepts no more. Connects first if
    /// necessary.
    pub(super) fn write(self: &Rc<Self>, to: ProcessId) {
        let peer = &mut self.state.borrow_mut().peers[to.index()];
        let Some(connection) = &peer.connection else {
            if let Some(entry) = peer.entry.filter(|_| !peer.dialing) {
                peer.dialing = true;
                tokio::task::spawn_local(self.clone().dial(to, entry.life));
            }
            return;
        };
        if peer.blocked {
            return;
        }
        while peer.session.has_unwritten() {
            match connection.write.try_write_vectored(&peer.session.unwritten()) {
                Ok(bytes) => peer.session.wrote(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    peer.blocked = true;
                    let write = connection.write.clone();
                    tokio::task::spawn_local(self.clone().write_on(to, peer.generation, write));
                    return;
                }
                // The reader detects the same failure and ends the connection.
                Err(error) => return debug!(%to, %error, "cannot write to a connection"),
            }
        }
    }

    async fn write_on(self: Rc<Self>, to: ProcessId, generation: u64, write: Rc<OwnedWriteHalf>) {
        if let Err(error) = write.writable().await {
            debug!(%to, %error, "cannot write to a connection");
        }
        {
            let peer = &mut self.state.borrow_mut().peers[to.index()];
            if peer.generation != generation {
                return;
            }
            peer.blocked = false;
        }
        self.write(to);
    }

    /// Calls a life until it is connected or has ended. Does not rely on an incoming call in progress, whose
    /// connection may break immediately.
    async fn dial(self: Rc<Self>, to: ProcessId, life: Life) {
        let mut pause = RETRY.0;
        while let Some(address) = self.callable(to, life) {
            match self.call(to, life, address).await {
                Ok(()) => break,
                Err(error) => debug!(%to, %address, %error, "cannot connect"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
        let peer = &mut self.state.borrow_mut().peers[to.index()];
        if peer.address(life).is_some() {
            peer.dialing = false;
        }
    }

    /// Returns the address at which to call `life`; `None` if no call is needed.
    fn callable(&self, to: ProcessId, life: Life) -> Option<SocketAddr> {
        let peer = &self.state.borrow().peers[to.index()];
        peer.address(life).filter(|_| peer.connection.is_none())
    }

    async fn call(
        self: &Rc<Self>,
        to: ProcessId,
        life: Life,
        address: SocketAddr,
    ) -> Result<(), ConnectionError> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let key = self.keys.get(to.index()).ok_or(HandshakeError::Proof)?;
        key.dial(&mut stream, Ends { caller: self.me.process, called: to }).await?;
        let expected = self.state.borrow().peers[to.index()].session.expected();
        let call = Call { from: (self.me.process, self.me.life), to: (to, life), expected };
        control::send(&mut stream, &call).await?;
        match control::receive(&mut stream).await? {
            Answer::Welcome { expected } => Ok(self.connected(to, life, stream, expected)?),
            Answer::Busy => Err(ConnectionError::Busy),
            Answer::Stale => Err(ConnectionError::Stale),
        }
    }

    /// Authenticates a caller of this node, and returns its call.
    pub(crate) async fn hear(&self, stream: &mut TcpStream) -> io::Result<Call> {
        stream.set_nodelay(true)?;
        let key_of =
            |ends: Ends| self.keys.get(ends.caller.index()).filter(|_| ends.called == self.me.process);
        let ends = Secret::answer(stream, key_of).await.map_err(io::Error::other)?;
        let call: Call = control::receive(stream).await?;
        if call.from.0 != ends.caller {
            return Err(io::Error::other(HandshakeError::Proof));
        }
        Ok(call)
    }

    async fn answer(self: &Rc<Self>, call: Call, mut stream: TcpStream) -> Result<(), ConnectionError> {
        let (from, life) = call.from;
        // A life that is newer than the known directory must wait for a newer directory.
        let mut directory = self.directory.subscribe();
        while self.known_life(from) < life {
            directory.changed().await.map_err(|_| ConnectionError::Closed)?;
        }
        let answer = {
            let state = self.state.borrow();
            let is_for_me = call.to == (self.me.process, self.me.life);
            // There are no peers before the first directory, for which a life 0 does not wait.
            match state.peers.get(from.index()).filter(|it| is_for_me && it.address(life).is_some()) {
                None => Answer::Stale,
                Some(peer) if peer.dialing && self.me.process < from => Answer::Busy,
                Some(peer) => Answer::Welcome { expected: peer.session.expected() },
            }
        };
        control::send(&mut stream, &answer).await?;
        match answer {
            Answer::Welcome { .. } => Ok(self.connected(from, life, stream, call.expected)?),
            Answer::Busy => Ok(()),
            Answer::Stale => Err(ConnectionError::Stale),
        }
    }

    /// Returns the newest life of `process` known to have been up.
    fn known_life(&self, process: ProcessId) -> Life {
        self.state.borrow().newest.get(process.index()).copied().unwrap_or_default()
    }

    /// Resumes the session on a new connection.
    fn connected(
        self: &Rc<Self>,
        peer_id: ProcessId,
        life: Life,
        stream: TcpStream,
        wanted: u64,
    ) -> Result<(), SessionError> {
        {
            let peer = &mut self.state.borrow_mut().peers[peer_id.index()];
            if peer.address(life).is_none() {
                return Ok(());
            }
            peer.session.resume(wanted)?;
            peer.disconnect();
            let (read, write) = stream.into_split();
            let reader = tokio::task::spawn_local(self.clone().read(peer_id, peer.generation, read));
            peer.connection = Some(Connection { write: Rc::new(write), reader: reader.abort_handle() });
        }
        self.write(peer_id);
        Ok(())
    }

    async fn read(self: Rc<Self>, from: ProcessId, generation: u64, stream: OwnedReadHalf) {
        let end = self.read_frames(from, generation, stream).await;
        let wanted = {
            let peer = &mut self.state.borrow_mut().peers[from.index()];
            if peer.generation != generation {
                return;
            }
            peer.connection = None;
            peer.disconnect();
            peer.session.has_unacknowledged()
        };
        if let Err(error) = end {
            debug!(%from, %error, "a connection ended");
        }
        if wanted {
            self.write(from);
        }
    }

    async fn read_frames(
        self: &Rc<Self>,
        from: ProcessId,
        generation: u64,
        mut stream: OwnedReadHalf,
    ) -> Result<(), ConnectionError> {
        let mut buffer = BytesMut::new();
        loop {
            if buffer.capacity() - buffer.len() < READ_BUFFER / 4 {
                buffer.reserve(READ_BUFFER);
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(ConnectionError::Closed);
            }
            while let Some(frame) = split_frame(&mut buffer)? {
                self.take(from, generation, frame)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::clock::Clock;
    use crate::links::Links;
    use crate::transport::tests::{End, run};

    /// A process may be hostile: it can call before the supervisor has announced any process.
    #[test]
    fn a_call_before_the_first_directory_from_a_life_that_never_exists_is_stale() {
        run(async {
            let secret = Secret::generate().unwrap();
            let clock = Clock::start();
            let called = End::new(0, 1, &secret, clock, Links::default()).await;
            let mut stream = TcpStream::connect(called.address).await.unwrap();
            let ends = Ends { caller: ProcessId(1), called: ProcessId(0) };
            secret.dial(&mut stream, ends).await.unwrap();
            let call = Call { from: (ProcessId(1), Life(0)), to: (ProcessId(0), Life(1)), expected: 0 };
            control::send(&mut stream, &call).await.unwrap();
            let answer: Answer =
                timeout(Duration::from_secs(30), control::receive(&mut stream)).await.unwrap().unwrap();
            assert!(matches!(answer, Answer::Stale), "{answer:?}");
        });
    }
}
