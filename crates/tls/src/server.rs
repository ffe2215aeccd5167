//! The supervisor's side: a listener that uses TLS for callers that request it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use faultline_api::supervision::InvalidKey;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

/// First byte of every TLS connection: the type of a handshake record. No HTTP request begins with this byte.
const HANDSHAKE: u8 = 0x16;
/// Time within which a caller must send its first byte and complete the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Capacity of the queue of connections that are ready for the server. Further connections wait for room in it.
const WAITING: usize = 64;

/// Limits on the open connections of a [`TlsListener`], so that a caller without the key can neither exhaust the
/// supervisor's memory and file descriptors nor keep other callers from connecting.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open connections, including those in the handshake.
    pub connections: usize,
    /// Maximum number of open connections from one address.
    pub per_address: usize,
    /// Time after which a connection that makes no progress in either direction is closed.
    pub idle: Duration,
}

impl Default for Limits {
    /// Returns the defaults: 512 connections, at most 32 of them from one address, and 90 s without progress.
    fn default() -> Limits {
        Limits { connections: 512, per_address: 32, idle: Duration::from_secs(90) }
    }
}

/// A listener for TLS and plain connections on the same port. Handshakes take place in parallel, so a slow caller does
/// not delay the others. The listener closes connections beyond the [`Limits`] immediately.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(Connection, Peer)>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the caller.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
}

/// A connection, encrypted or not. Reads and writes fail with [`io::ErrorKind::TimedOut`] once nothing has been read or
/// written for [`Limits::idle`].
pub struct Connection {
    stream: Stream,
    idle: Duration,
    /// Expires once the connection has been idle for too long.
    timer: Pin<Box<Sleep>>,
    _open: OpenConnection,
}

enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stream {
            Stream::Plain(_) => "Plain",
            Stream::Encrypted(_) => "Encrypted",
        })
    }
}

impl Connection {
    /// Returns `progress` if it is ready, and restarts the timer. Otherwise, fails once the timer has
    /// expired.
    fn unless_idle<T>(&mut self, progress: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.idle);
            return progress;
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Numbers of open connections, by address.
#[derive(Clone, Debug, Default)]
struct Connections(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Counts as an open connection until it is dropped.
#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    connections: Connections,
}

impl Connections {
    /// Counts a connection from `address`; `None` if that would exceed a limit.
    fn open(&self, address: IpAddr, limits: Limits) -> Option<OpenConnection> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let here = open.get(&address).copied().unwrap_or_default();
        if total >= limits.connections || here >= limits.per_address {
            return None;
        }
        open.insert(address, here + 1);
        Some(OpenConnection { address, connections: self.clone() })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.connections.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = open.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                open.remove(&self.address);
            }
        }
    }
}

impl TlsListener {
    /// Accepts connections on `listener`, as the supervisor of the federation with this key.
    ///
    /// # Errors
    ///
    /// Fails if the key is invalid.
    ///
    /// # Panics
    ///
    /// Panics if the listener has no address, or if called outside a Tokio runtime.
    pub fn new(listener: TcpListener, key: &str, limits: Limits) -> Result<TlsListener, InvalidKey> {
        let key = crate::signing_key(key)?;
        let public = key.public_key().expect("an Ed25519 key has a public part").as_ref().to_vec();
        let certified = CertifiedKey::new(vec![CertificateDer::from(public)], key);
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("the provider supports TLS 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = listener.local_addr().expect("a listener has an address");
        let (done, ready) = mpsc::channel(WAITING);
        tokio::spawn(accept(listener, acceptor, limits, done));
        Ok(TlsListener { address, ready })
    }
}

async fn accept(
    mut listener: TcpListener,
    acceptor: TlsAcceptor,
    limits: Limits,
    done: mpsc::Sender<(Connection, Peer)>,
) {
    let connections = Connections::default();
    while !done.is_closed() {
        let (stream, address) = Listener::accept(&mut listener).await;
        let Some(open) = connections.open(address.ip(), limits) else {
            debug!(%address, "closed a connection because too many are open");
            continue;
        };
        let (acceptor, done) = (acceptor.clone(), done.clone());
        tokio::spawn(async move {
            match timeout(PATIENCE, introduced(stream, acceptor)).await {
                Ok(Ok(stream)) => {
                    let is_encrypted = matches!(stream, Stream::Encrypted(_));
                    let timer = Box::pin(sleep(limits.idle));
                    let connection = Connection { stream, idle: limits.idle, timer, _open: open };
                    // The receiver is closed only once the server has ended.
                    let _ = done.send((connection, Peer { address, is_encrypted })).await;
                }
                Ok(Err(error)) => debug!(%address, %error, "the handshake with a caller failed"),
                Err(_) => debug!(%address, "a caller did not complete the handshake in time"),
            }
        });
    }
}

/// Waits for the first byte from a caller, and encrypts the connection if that byte begins a TLS handshake.
async fn introduced(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<Stream> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0] == HANDSHAKE {
        Ok(Stream::Encrypted(Box::new(acceptor.accept(stream).await?)))
    } else {
        Ok(Stream::Plain(stream))
    }
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = Peer;

    async fn accept(&mut self) -> (Connection, Peer) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The runtime is about to end.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer { address: self.address, is_encrypted: false })
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Peer {
        *stream.remote_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let progress = match &mut this.stream {
            Stream::Plain(it) => Pin::new(it).poll_read(cx, buffer),
            Stream::Encrypted(it) => Pin::new(it).poll_read(cx, buffer),
        };
        this.unless_idle(progress, cx)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let progress = match &mut this.stream {
            Stream::Plain(it) => Pin::new(it).poll_write(cx, bytes),
            Stream::Encrypted(it) => Pin::new(it).poll_write(cx, bytes),
        };
        this.unless_idle(progress, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(it) => Pin::new(it).poll_flush(cx),
            Stream::Encrypted(it) => Pin::new(it).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(it) => Pin::new(it).poll_shutdown(cx),
            Stream::Encrypted(it) => Pin::new(it).poll_shutdown(cx),
        }
    }
}
